/*
 * chaos_judge.c: the end of a run: whatever waits is told to end, and when nothing runs any more ledger and store are
 * read into one SQLite database, in which each rule is a query (chaos_rules.c).
 */
#include "chaos_judge.h"

#include "chaos.h"
#include "chaos_flow.h"
#include <durite/sys/event.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 500, STILL_MS_MAX = 60000 };

static const char schema_sql[] =
    "PRAGMA synchronous = off; PRAGMA journal_mode = memory;"
    "CREATE TABLE line(at INT, pid INT, kind TEXT, a TEXT, b TEXT, c TEXT);"
    "CREATE TABLE instance(id TEXT PRIMARY KEY, name TEXT, status TEXT, output TEXT, parent TEXT, last TEXT);"
    "CREATE TABLE execution(instance TEXT, number INT, status TEXT, PRIMARY KEY(instance, number));"
    "CREATE TABLE event(instance TEXT, execution INT, id INT, kind TEXT, role INT, source INT, name TEXT, text TEXT,"
    " PRIMARY KEY(instance, execution, id));"
    "CREATE TABLE dead(instance TEXT, message TEXT);";

/* ---- SQLite ------------------------------------------------------------------------------------------------------ */

static void refuse(sqlite3 *db, const char *what) {
    fprintf(stderr, "judge: %s: %s\n", what, sqlite3_errmsg(db));
    abort();
}

static sqlite3_stmt *statement(sqlite3 *db, const char *sql) {
    sqlite3_stmt *made = NULL;
    if (sqlite3_prepare_v2(db, sql, -1, &made, NULL) != SQLITE_OK) refuse(db, sql);
    return made;
}

/* Texts, or NULL; a column that holds a number takes it from a text. */
static void row(sqlite3 *db, sqlite3_stmt *insert, const char *const *texts, int count) {
    for (int i = 0; i < count; i++)
        sqlite3_bind_text(insert, i + 1, texts[i], -1, SQLITE_TRANSIENT);
    if (sqlite3_step(insert) != SQLITE_DONE) refuse(db, sqlite3_sql(insert));
    sqlite3_reset(insert);
}

static void read_ledger(const chaos *c, sqlite3 *db) {
    char path[300], line[5000];
    sqlite3_stmt *insert = statement(db, "INSERT INTO line VALUES (?,?,?,?,?,?)");
    snprintf(path, sizeof(path), "%s/ledger", c->folder);
    FILE *in = fopen(path, "r");
    if (in == NULL) abort();
    while (fgets(line, sizeof(line), in) != NULL) {
        const char *part[6] = { "", "", "", "", "", "" };
        char *at = line;
        line[strcspn(line, "\n")] = '\0';
        for (int i = 0; i < 6 && at != NULL; i++)
            part[i] = strsep(&at, "\t");
        row(db, insert, part, 6);
    }
    fclose(in);
    sqlite3_finalize(insert);
}

/* ---- the store --------------------------------------------------------------------------------------------------- */

typedef struct reader {
    dur_client *client;
    sqlite3 *db;
    sqlite3_stmt *instance, *execution, *event, *dead;
    dur_error err;
} reader;

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) == DUR_OK) break;                                                                                   \
        fprintf(stderr, "judge: %s: %s: %s\n", #call, r->err.op, r->err.message);                                      \
        abort();                                                                                                       \
    } while (0)

static const char *text_of(const dur_event *event) {
    const char *all[] = { event->result, event->output, event->data, event->instance, event->input };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i] != NULL) return all[i];
    return event->details != NULL ? event->details->message : NULL;
}

static void read_history(reader *r, const char *instance, uint64_t execution) {
    char *json, numbers[4][24];
    dur_event *events;
    size_t count;
    MUST(dur_client_history(&json, r->client, instance, execution, &r->err));
    dur_arena *arena = dur_arena_new();
    MUST(dur_history_from_json(&events, &count, arena, (dur_text){ .data = json, .size = strlen(json) }, &r->err));
    for (size_t i = 0; i < count; i++) {
        const dur_event *e = &events[i];
        const uint64_t values[4] = { execution, e->event_id, (uint64_t)dur_event_kind_role(e->kind),
                                     e->source_event_id };
        for (size_t n = 0; n < 4; n++)
            snprintf(numbers[n], sizeof(numbers[n]), "%llu", (unsigned long long)values[n]);
        row(r->db, r->event,
            (const char *const[]){ instance, numbers[0], numbers[1], dur_event_kind_name(e->kind), numbers[2],
                                   e->has_source_event_id ? numbers[3] : NULL, e->name, text_of(e) },
            8);
    }
    dur_arena_free(arena);
    dur_free(json);
}

static void read_instance(reader *r, const dur_instance_info *info) {
    char *last = NULL, number[24];
    dur_execution_list *list = NULL;
    MUST(dur_client_kv_get(&last, r->client, info->instance, "last", &r->err));
    row(r->db, r->instance,
        (const char *const[]){ info->instance, info->name, dur_instance_status_name(info->status), info->output,
                               info->parent, last },
        6);
    dur_free(last);
    MUST(dur_client_executions(&list, r->client, info->instance, &r->err));
    for (size_t i = 0; i < list->count; i++) {
        snprintf(number, sizeof(number), "%llu", (unsigned long long)list->items[i]->execution_id);
        row(r->db, r->execution,
            (const char *const[]){ info->instance, number, dur_execution_status_name(list->items[i]->status) }, 3);
        read_history(r, info->instance, list->items[i]->execution_id);
    }
    dur_execution_list_free(list);
}

static void read_store(dur_client *client, sqlite3 *db) {
    reader all = { .client = client, .db = db, .err = DUR_ERROR_INIT }, *r = &all;
    dur_instance_list *page = NULL;
    dur_dead_letter_list *letters = NULL;
    char after[200] = "";
    bool more = true;
    r->instance = statement(db, "INSERT INTO instance VALUES (?,?,?,?,?,?)");
    r->execution = statement(db, "INSERT INTO execution VALUES (?,?,?)");
    r->event = statement(db, "INSERT INTO event VALUES (?,?,?,?,?,?,?,?)");
    r->dead = statement(db, "INSERT INTO dead VALUES (?,?)");
    while (more) {
        MUST(
            dur_client_list(&page, client, DUR_LIST(.limit = PAGE, .after = after[0] != '\0' ? after : NULL), &r->err));
        for (size_t i = 0; i < page->count; i++)
            read_instance(r, page->items[i]);
        more = page->next != NULL;
        if (more) snprintf(after, sizeof(after), "%s", page->next);
        dur_instance_list_free(page);
    }
    for (uint64_t id = 0;;) {
        MUST(dur_client_dead_letters(&letters, client, id, PAGE, &r->err));
        for (size_t i = 0; i < letters->count; i++)
            row(db, r->dead, (const char *const[]){ letters->items[i]->instance, letters->items[i]->message }, 2);
        bool last = letters->count == 0;
        if (!last) id = letters->items[letters->count - 1]->id;
        dur_dead_letter_list_free(letters);
        if (last) break;
    }
    sqlite3_finalize(r->instance);
    sqlite3_finalize(r->execution);
    sqlite3_finalize(r->event);
    sqlite3_finalize(r->dead);
}

/* ---- until nothing runs ------------------------------------------------------------------------------------------ */

/* Whoever waits for a message gets one; how many run. */
static size_t tell_to_end(dur_client *client) {
    dur_error err = DUR_ERROR_INIT;
    dur_instance_list *page = NULL;
    char after[200] = "";
    size_t running = 0;
    for (bool more = true; more;) {
        if (dur_client_list(
                &page, client,
                DUR_LIST(.limit = PAGE, .status = DUR_INSTANCE_RUNNING, .after = after[0] != '\0' ? after : NULL),
                &err) != DUR_OK)
            return SIZE_MAX;
        for (size_t i = 0; i < page->count; i++)
            if (strcmp(page->items[i]->name, "Child") != 0)
                (void)dur_client_send(client, &err, page->items[i]->instance, "box", "end:judge",
                                      .message_id = "end:judge");
        running += page->count;
        more = page->next != NULL;
        if (more) snprintf(after, sizeof(after), "%s", page->next);
        dur_instance_list_free(page);
    }
    return running;
}

/* True: nothing runs, nothing waits.  False: for a minute nothing has changed, and something does. */
static bool until_quiet(dur_client *client) {
    dur_error err = DUR_ERROR_INIT;
    dur_store_counts counts = { .size = sizeof(counts) };
    uint64_t events = 0, moved_ms = now_ms();
    while (now_ms() - moved_ms < STILL_MS_MAX) {
        size_t running = tell_to_end(client);
        if (dur_client_counts(&counts, client, &err) == DUR_OK) {
            if (running == 0 && counts.running == 0 && counts.orchestrator_queue == 0 && counts.worker_queue == 0)
                return true;
            if (counts.total_events != events) moved_ms = now_ms();
            events = counts.total_events;
        }
        pause_ms(200);
    }
    ledger_fault("stuck: %llu run, %llu messages and %llu activities wait", (unsigned long long)counts.running,
                 (unsigned long long)counts.orchestrator_queue, (unsigned long long)counts.worker_queue);
    return false;
}

static sqlite3 *gather(chaos *c, dur_client *client) {
    char path[300];
    sqlite3 *db = NULL;
    snprintf(path, sizeof(path), "%s/judge.db", c->folder);
    if (sqlite3_open(path, &db) != SQLITE_OK) abort();
    if (sqlite3_exec(db, schema_sql, NULL, NULL, NULL) != SQLITE_OK) refuse(db, "schema");
    sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    read_ledger(c, db);
    read_store(client, db);
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    return db;
}

size_t judge(chaos *c) {
    char url[700];
    dur_client *client = NULL;
    dur_error err = DUR_ERROR_INIT;
    server_url(c, "durite", url, sizeof(url));
    snprintf(url + strlen(url), sizeof(url) - strlen(url), "&schema=%s", CHAOS_SCHEMA);
    dur_provider *store = open_somehow(url);
    if (store == NULL || dur_client_new(&client, store, &err) != DUR_OK) return 1;
    uint64_t begin_ms = now_ms();
    bool quiet = until_quiet(client);
    printf("# %s after %.1f s\n", quiet ? "quiet" : "NOT quiet", (double)(now_ms() - begin_ms) / 1000.0);
    fleet_end(c, true);
    logical_compare(c);
    if (dur_provider_check(store, &err) != DUR_OK) ledger_fault("dur_provider_check: %s", err.message);
    sqlite3 *db = gather(c, client);
    size_t broken = rules(db);
    report(c, db);
    sqlite3_close(db);
    dur_client_free(client);
    dur_provider_close(store);
    if (broken > 0)
        shell("'%s/pg_dump' -h '%s' -U durite -n %s postgres >'%s/store.sql'", getenv("DURITE_TEST_POSTGRES_BIN"),
              c->servers[c->primary].socket, CHAOS_SCHEMA, c->folder);
    return broken;
}
