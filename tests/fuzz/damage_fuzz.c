/*
 * damage_fuzz.c: a SQLite store whose bytes or rows are not what they were: an error or an answer, never a crash or a
 * loop.
 *
 * A store with an instance of each kind is made once.  The input is a list of choices: bytes of the file that change,
 * pages that are lost, exchanged or cut off, and fields of rows that are set by hand.  Then the store is opened,
 * checked and looked at, a node without threads works on it in a world whose time passes as it is told, and it is
 * closed.
 */
#include "fuzz_bytes.h"
#include <dirent.h>
#include <durite/durite.h>
#include <durite/step.h>
#include <durite/sys/clock.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PAGE = 4096, FILE_MAX = 1 << 20, CHANGES_MAX = 8 };

static dur_error err;
static uint8_t sound[FILE_MAX], damaged[FILE_MAX];
static size_t sound_size;
static char folder[64], file[96], url[128];

/* ---- what is in the store ---- */

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome plain(dur_ctx *ctx, const char *input) {
    dur_kv_set(ctx, "key", input);
    dur_status_set(ctx, "here");
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input)));
}

static dur_outcome waits(dur_ctx *ctx, const char *input) {
    dur_future *all[] = { dur_pulse(ctx, "e"), dur_message(ctx, "q"),
                          dur_activity(ctx, "Host", input, .session = "s", .tag = "t"),
                          dur_orchestration(ctx, "Plain", "kid"), dur_timer(ctx, DUR_DAYS(30)) };
    const char *value = "";
    (void)dur_try(all[3], &value);
    (void)dur_try(dur_select_n(all, 3), &value);
    return dur_continue_as_new(ctx, dur_execution_id(ctx) < 3 ? value : "");
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ACTIVITY_TAKEN("Host"), /* and nobody takes it */
    DUR_ORCHESTRATION("Plain", "1.0.0", plain),
    DUR_ORCHESTRATION("Waits", "1.0.0", waits),
    DUR_HANDLERS_END,
};

static void no_log(void *data, const dur_log_record *record) {
    (void)data;
    (void)record;
}

/* A node on the store: false where it cannot be opened or started. */
typedef struct node {
    dur_fake_world *world;
    dur_provider *store;
    dur_client *client;
    dur_runtime *runtime;
} node;

static bool node_begin(node *n, uint64_t now_ms) {
    *n = (node){ .world = dur_fake_world_new(now_ms, 7) };
    (void)dur_fake_world_enter(n->world);
    const dur_world *inside = dur_fake_world_get(n->world);
    if (dur_open_ex(&n->store, url, DUR_OPEN_OPTIONS(.world = inside), &err) != DUR_OK) return false;
    MUST(dur_client_new(&n->client, n->store, &err) == DUR_OK, err.message);
    return dur_runtime_start(&n->runtime,
                             DUR_RUNTIME(.store = n->store, .handlers = handlers, .threads = DUR_THREADS_NONE,
                                         .world = inside, .max_attempts = 2, .tags = DUR_TAG_ANY),
                             &err) == DUR_OK;
}

static void node_end(node *n) {
    if (n->runtime != NULL) (void)dur_runtime_stop(n->runtime, 1000, &err);
    dur_client_free(n->client);
    dur_provider_close(n->store);
    (void)dur_fake_world_enter(NULL);
    dur_fake_world_free(n->world);
}

static void empty_folder(void) {
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char path[400];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (unlink(path) != 0) (void)rmdir(path);
    }
    if (dir != NULL) (void)closedir(dir);
}

static void remove_folder(void) {
    empty_folder();
    (void)rmdir(folder);
}

static void make_sound(void) {
    node n;
    snprintf(folder, sizeof(folder), "%s/durite-damage.%ld", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
             (long)getpid());
    snprintf(file, sizeof(file), "%s/store.db", folder);
    snprintf(url, sizeof(url), "sqlite:%s?durability=relaxed", file);
    MUST(mkdir(folder, 0700) == 0, folder);
    (void)atexit(remove_folder);
    MUST(node_begin(&n, 1000000), err.message);
    MUST(dur_client_start(n.client, &err, "Waits", "a", .instance = "waits") == DUR_OK, err.message);
    MUST(dur_client_start(n.client, &err, "Plain", "b", .instance = "plain") == DUR_OK, err.message);
    MUST(dur_runtime_run_until_idle(n.runtime, 60000, &err) == DUR_OK, err.message);
    MUST(dur_client_send(n.client, &err, "waits", "q", "m") == DUR_OK, err.message);
    MUST(dur_runtime_run_until_idle(n.runtime, 60000, &err) == DUR_OK, err.message);
    MUST(dur_client_suspend(n.client, "waits", "", &err) == DUR_OK, err.message);
    MUST(dur_runtime_run_until_idle(n.runtime, 60000, &err) == DUR_OK, err.message);
    MUST(dur_runtime_stop(n.runtime, 1000, &err) == DUR_OK, err.message);
    n.runtime = NULL;
    MUST(dur_client_start(n.client, &err, "Plain", "c", .instance = "not begun") == DUR_OK, err.message);
    MUST(dur_client_pulse(n.client, &err, "waits", "e", "d", .message_id = "once") == DUR_OK, err.message);
    MUST(dur_client_resume(n.client, "waits", &err) == DUR_OK, err.message);
    node_end(&n);
    FILE *from = fopen(file, "rb");
    MUST(from != NULL, file);
    sound_size = fread(sound, 1, sizeof(sound), from);
    (void)fclose(from);
    MUST(sound_size > 4 * PAGE && sound_size < FILE_MAX, "the size of the store");
}

/* ---- what happens to it ---- */

static size_t damage_bytes(bytes *in, uint8_t how, size_t size) {
    size_t at = (byte(in) * 65536u + byte(in) * 256u + byte(in)) % size, pages = size / PAGE;
    size_t page = at / PAGE * PAGE, other = choice(in, pages) * PAGE, count = 1 + choice(in, 64);
    if (at + count > size) count = size - at;
    switch (how % 6) {
    case 0:
        damaged[at] ^= (uint8_t)(1u << (byte(in) % 8));
        break;
    case 1:
        memset(damaged + at, byte(in), count);
        break;
    case 2:
        memset(damaged + page, 0, PAGE);
        break;
    case 3:
        memmove(damaged + page, damaged + other, PAGE);
        break;
    case 4:
        return page > 0 ? page : PAGE;
    default:
        damaged[at] = byte(in);
        break;
    }
    return size;
}

static void run_sql(sqlite3 *db, const char *sql) {
    (void)sqlite3_exec(db, sql, NULL, NULL, NULL); /* what the schema refuses is not to be had this way */
}

/* One field of one row, or a row that goes. */
static void damage_row(bytes *in, sqlite3 *db) {
    static const char *const values[] = { "NULL",    "''",    "0",           "-1",      "9223372036854775807",
                                          "x'ff00'", "'{'",   "zeroblob(9)", "'waits'", "'plain'",
                                          "1e300",   "99999", "'[]'",        "1" };
    char *sql = NULL;
    sqlite3_stmt *tables = NULL, *columns = NULL;
    const char *table = NULL, *column = NULL;
    uint8_t skip = byte(in), which = byte(in), row = byte(in), value = byte(in);
    (void)sqlite3_prepare_v2(db, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name", -1, &tables,
                             NULL);
    for (int i = 0; i <= skip % 16 && sqlite3_step(tables) == SQLITE_ROW; i++)
        table = (const char *)sqlite3_column_text(tables, 0);
    if (table != NULL) {
        sql = sqlite3_mprintf("SELECT name FROM pragma_table_info(%Q)", table);
        (void)sqlite3_prepare_v2(db, sql, -1, &columns, NULL);
        sqlite3_free(sql);
        for (int i = 0; i <= which % 16 && sqlite3_step(columns) == SQLITE_ROW; i++)
            column = (const char *)sqlite3_column_text(columns, 0);
    }
    if (column != NULL) {
        const char *text = values[value % (sizeof(values) / sizeof(values[0]))];
        sql = value >= 240 ? sqlite3_mprintf("DELETE FROM %w WHERE %w = (SELECT %w FROM %w LIMIT 1 OFFSET %d)", table,
                                             column, column, table, row % 16)
                           : sqlite3_mprintf("UPDATE OR REPLACE %w SET %w = %s WHERE %w = (SELECT %w FROM %w LIMIT 1"
                                             " OFFSET %d)",
                                             table, column, text, column, column, table, row % 16);
        run_sql(db, sql);
        sqlite3_free(sql);
    }
    (void)sqlite3_finalize(columns);
    (void)sqlite3_finalize(tables);
}

static void damage_rows(bytes *in, size_t count) {
    sqlite3 *db = NULL;
    if (sqlite3_open_v2(file, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK) {
        run_sql(db, "PRAGMA ignore_check_constraints = ON; PRAGMA synchronous = OFF");
        for (size_t i = 0; i < count; i++)
            damage_row(in, db);
    }
    (void)sqlite3_close(db);
}

static void write_damaged(size_t size) {
    FILE *to = fopen(file, "wb");
    MUST(to != NULL && fwrite(damaged, 1, size, to) == size && fclose(to) == 0, file);
}

/* Everything that reads, whatever it answers. */
static void look(node *n) {
    static const char *const instances[] = { "waits", "plain", "not begun" };
    dur_instance_list *list = NULL;
    dur_dead_letter_list *letters = NULL;
    (void)dur_provider_check(n->store, &err);
    if (dur_client_list(&list, n->client, NULL, &err) == DUR_OK) dur_instance_list_free(list);
    if (dur_client_dead_letters(&letters, n->client, 0, 10, &err) == DUR_OK) dur_dead_letter_list_free(letters);
    for (size_t i = 0; i < 3; i++) {
        dur_instance_info *info = NULL;
        dur_kv_list *keys = NULL;
        dur_id_list *tree = NULL;
        char *text = NULL;
        if (dur_client_info(&info, n->client, instances[i], &err) == DUR_OK) dur_instance_info_free(info);
        if (dur_client_kv_all(&keys, n->client, instances[i], &err) == DUR_OK) dur_kv_list_free(keys);
        if (dur_client_tree(&tree, n->client, instances[i], &err) == DUR_OK) dur_id_list_free(tree);
        if (dur_client_history(&text, n->client, instances[i], 0, &err) == DUR_OK) dur_free(text);
    }
}

static void use(void) {
    node n;
    bool runs = node_begin(&n, 2000000);
    if (n.store != NULL) look(&n);
    for (int i = 0; runs && i < 3; i++) {
        (void)dur_runtime_run_until_idle(n.runtime, 20000, &err);
        dur_fake_world_advance(n.world, DUR_SECONDS(20));
    }
    if (runs) {
        (void)dur_client_start(n.client, &err, "Plain", "d", .instance = "new");
        (void)dur_client_send(n.client, &err, "waits", "q", "x");
        (void)dur_runtime_run_until_idle(n.runtime, 20000, &err);
        (void)dur_runtime_check(n.runtime, &err);
        (void)dur_client_terminate(n.client, "waits", "", &err);
        (void)dur_client_delete(NULL, n.client, "plain", true, &err);
        (void)dur_runtime_run_until_idle(n.runtime, 20000, &err);
    }
    node_end(&n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bytes in = { data, data + size };
    dur_log_set_sink(no_log, NULL, DUR_LOG_ERROR);
    if (sound_size == 0) make_sound();
    empty_folder();
    memcpy(damaged, sound, sound_size);
    size_t now = sound_size;
    uint8_t how = byte(&in);
    for (size_t i = how & 3u; i > 0; i--)
        now = damage_bytes(&in, byte(&in), now);
    write_damaged(now);
    if (how & 4u) damage_rows(&in, 1 + choice(&in, CHANGES_MAX));
    use();
    return 0;
}
