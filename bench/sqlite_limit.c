/*
 * sqlite_limit.c: the SQLite store alone against bare SQL.
 *
 * Two loops in one thread, on one disk, one after the other: the ruler (text keys, three worker indexes, 20 steps per
 * commit, written by bare SQL) and the store's lane driven with synthetic turns (20 in flight, 5 steps each, work taken
 * over by the turn that adds the next).  No handlers, no workers: what is left is the store.  CPU time beside wall
 * time, because the disk's share differs from machine to machine.
 *
 * usage: sqlite-limit [FOLDER [SECONDS]]
 */
#include <durite/sqlite.h>
#include <durite/sys/store.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { IN_FLIGHT = 20, STEPS = 5, TEXT = 220 };

static double wall(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double cpu(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)used.ru_utime.tv_sec + (double)used.ru_stime.tv_sec +
           ((double)used.ru_utime.tv_usec + (double)used.ru_stime.tv_usec) * 1e-6;
}

static void die(const char *what, const char *why) {
    fprintf(stderr, "sqlite-limit: %s: %s\n", what, why);
    exit(1);
}

typedef struct measure {
    double steps_per_s, cpu_us;
} measure;

static measure measured(double steps, double seconds, double cpu_seconds) {
    return (measure){ steps / seconds, cpu_seconds * 1e6 / steps };
}

/* ---- the ruler ---- */

static void sql(sqlite3 *db, const char *text) {
    if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK) die(text, sqlite3_errmsg(db));
}

static void run(sqlite3_stmt *stmt) {
    if (sqlite3_step(stmt) != SQLITE_DONE) die("step", sqlite3_errmsg(sqlite3_db_handle(stmt)));
    sqlite3_reset(stmt);
}

static measure ruler(const char *path, double seconds, const char *text) {
    sqlite3 *db = NULL;
    sqlite3_stmt *event = NULL, *add = NULL, *take = NULL;
    if (sqlite3_open(path, &db) != SQLITE_OK) die(path, sqlite3_errmsg(db));
    sql(db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=4000;"
            "CREATE TABLE history(instance_id TEXT, execution_id INTEGER, event_id INTEGER, event_type TEXT,"
            " event_data TEXT, PRIMARY KEY(instance_id, execution_id, event_id)) WITHOUT ROWID;"
            "CREATE TABLE worker_queue(id INTEGER PRIMARY KEY AUTOINCREMENT, work_item TEXT, visible_at INTEGER,"
            " lock_token TEXT, instance_id TEXT, execution_id INTEGER, activity_id INTEGER);"
            "CREATE INDEX w1 ON worker_queue(lock_token, id); CREATE INDEX w2 ON worker_queue(visible_at);"
            "CREATE INDEX w3 ON worker_queue(instance_id, execution_id, activity_id)");
    sqlite3_prepare_v2(db, "INSERT INTO history VALUES(?1, 1, ?2, 'ActivityCompleted', ?3)", -1, &event, NULL);
    sqlite3_prepare_v2(db,
                       "INSERT INTO worker_queue(work_item, visible_at, lock_token, instance_id, execution_id,"
                       " activity_id) VALUES(?1, 0, ?2, ?3, 1, ?4)",
                       -1, &add, NULL);
    sqlite3_prepare_v2(db, "DELETE FROM worker_queue WHERE lock_token=?1", -1, &take, NULL);
    double begin = wall(), cpu_begin = cpu(), steps = 0;
    for (unsigned long round = 0; wall() - begin < seconds; round++) {
        sql(db, "BEGIN IMMEDIATE");
        for (int i = 0; i < IN_FLIGHT; i++, steps++) {
            char id[32], token[64];
            snprintf(id, sizeof id, "order-%08lu", (round / STEPS) * IN_FLIGHT + (unsigned long)i);
            for (int e = 0; e < 2; e++) {
                sqlite3_bind_text(event, 1, id, -1, SQLITE_STATIC);
                sqlite3_bind_int64(event, 2, (sqlite3_int64)(round % STEPS) * 2 + e + 1);
                sqlite3_bind_text(event, 3, text, -1, SQLITE_STATIC);
                run(event);
            }
            snprintf(token, sizeof token, "lock_%s_%lu", id, round);
            sqlite3_bind_text(take, 1, token, -1, SQLITE_STATIC);
            run(take);
            snprintf(token, sizeof token, "lock_%s_%lu", id, round + 1);
            sqlite3_bind_text(add, 1, text, -1, SQLITE_STATIC);
            sqlite3_bind_text(add, 2, token, -1, SQLITE_STATIC);
            sqlite3_bind_text(add, 3, id, -1, SQLITE_STATIC);
            sqlite3_bind_int64(add, 4, (sqlite3_int64)(round % STEPS) * 2 + 2);
            run(add);
        }
        sql(db, "COMMIT");
    }
    measure out = measured(steps, wall() - begin, cpu() - cpu_begin);
    sqlite3_finalize(event);
    sqlite3_finalize(add);
    sqlite3_finalize(take);
    sqlite3_close(db);
    return out;
}

/* ---- the lane ---- */

typedef struct flight {
    char id[32], token[80], eager[32];
    uint64_t key, last, row_id;
    int step; /* turns committed */
    dur_event_row events[2];
    dur_turn_work work;
    dur_worker_claim claim;
    uint64_t consumed;
    char next_id[32]; /* the one that follows: started by the turn that ends this one */
    dur_message_row next;
} flight;

static void start(dur_provider *store, flight *f, unsigned long number, const char *text) {
    dur_error err = DUR_ERROR_INIT;
    memset(f, 0, sizeof *f);
    snprintf(f->id, sizeof f->id, "order-%08lu", number);
    dur_message_row message = { .kind = DUR_WORK_START_ORCHESTRATION,
                                .instance = f->id,
                                .json = { text, strlen(text) } };
    if (dur_store_enqueue_for_orchestrator(store, &message, 0, &err) != DUR_OK) die("start", err.message);
}

static unsigned long number_next = IN_FLIGHT;

/* The turn of a flight: two events; the work of the last turn goes, the next one's comes, for us alone. */
static void turn_fill(flight *f, dur_turn_commit *turn, const char *text, const char *owner) {
    dur_text json = { text, strlen(text) };
    memset(turn, 0, sizeof *turn);
    bool first = f->step == 0, end = f->step == STEPS;
    for (int e = 0; e < 2; e++)
        f->events[e] = (dur_event_row){ .event_id = f->last + (uint64_t)e + 1,
                                        .kind = DUR_EVENT_ACTIVITY_COMPLETED,
                                        .json = json };
    turn->lock_token = f->token;
    turn->instance = f->id;
    turn->store_key = f->key;
    turn->execution_id = 1;
    turn->events = f->events;
    turn->event_count = 2;
    turn->expected_last = f->last;
    turn->consume_listed = true;
    turn->owner = owner;
    turn->keep_lease = !end;
    if (first) {
        turn->consumed = &f->consumed;
        turn->consumed_count = 1;
        turn->metadata.orchestration_name = "Order";
        turn->metadata.orchestration_version = "1.0.0";
    } else if (f->row_id != 0) {
        f->claim = (dur_worker_claim){ .ref = { f->id, 1, f->last, f->row_id }, .lock_token = f->eager };
        turn->worker_consumed = &f->claim;
        turn->worker_consumed_count = 1;
    }
    if (end) {
        turn->metadata.status = DUR_STATUS_COMPLETED;
        turn->metadata.output = "done";
        snprintf(f->next_id, sizeof f->next_id, "order-%08lu", number_next++);
        f->next = (dur_message_row){ .kind = DUR_WORK_START_ORCHESTRATION, .instance = f->next_id, .json = json };
        turn->orchestrator_items = &f->next;
        turn->orchestrator_item_count = 1;
        return;
    }
    static unsigned long serial;
    char token[32];
    snprintf(token, sizeof token, "e%lu", ++serial);
    static char tokens[IN_FLIGHT * 4][32]; /* the old one is still named by the claim */
    static unsigned at;
    char *kept = tokens[at++ % (IN_FLIGHT * 4)];
    snprintf(kept, 32, "%s", token);
    f->work = (dur_turn_work){ .message = { .kind = DUR_WORK_ACTIVITY_EXECUTE,
                                            .instance = f->id,
                                            .execution_id = 1,
                                            .activity_id = f->last + 2,
                                            .json = json },
                               .lock_token = kept,
                               .may_be_local = true };
    turn->open = 1;
    turn->worker_items = &f->work;
    turn->worker_item_count = 1;
}

static measure lane_loop(const char *url, double seconds, const char *text, uint64_t *rounds) {
    dur_error err = DUR_ERROR_INIT;
    dur_provider *store = NULL;
    dur_lane *lane = NULL;
    static flight flights[IN_FLIGHT];
    static const char owner[] = "bench-owner";
    if (dur_open(&store, url, &err) != DUR_OK) die(url, err.message);
    if (dur_store_owner_register(store, &(dur_owner_options){ .owner = owner }, &err) != DUR_OK) die(url, err.message);
    dur_waker *waker = dur_waker_new();
    if (dur_store_lane_open(store, &(dur_lane_options){ .owner = owner, .waker = waker }, &lane, &err) != DUR_OK)
        die(url, err.message);
    dur_arena *arena = dur_arena_new();
    static dur_turn_commit turns[IN_FLIGHT];
    static flight *of[IN_FLIGHT];
    double steps = 0, begin = wall(), cpu_begin = cpu();
    for (int i = 0; i < IN_FLIGHT; i++)
        start(store, &flights[i], (unsigned long)i, text);
    for (*rounds = 0; wall() - begin < seconds; (*rounds)++) {
        dur_arena_reset(arena);
        dur_round round = { .turns = turns };
        dur_fetch fetch = { .owner = owner, .max = IN_FLIGHT, .kind = DUR_FETCH_FRESH, .without_history = true };
        bool waiting = false, ends = false;
        for (int i = 0; i < IN_FLIGHT; i++) {
            waiting = waiting || flights[i].key == 0;
            if (flights[i].key == 0) continue;
            of[round.turn_count] = &flights[i];
            ends = ends || flights[i].step == STEPS;
            turn_fill(&flights[i], &turns[round.turn_count++], text, owner);
        }
        if (waiting || ends) round.fetch = &fetch;
        if (dur_store_lane_round(lane, arena, &round, &err) != DUR_OK) die("round", err.message);
        for (size_t i = 0; i < round.turn_count; i++) {
            flight *f = of[i];
            if (turns[i].fault != DUR_TURN_FINE) die("turn", turns[i].error.message);
            steps += f->step > 0;
            if (f->step++ == STEPS) {
                char id[32];
                snprintf(id, sizeof id, "%s", f->next_id);
                memset(f, 0, sizeof *f);
                snprintf(f->id, sizeof f->id, "%s", id);
                continue;
            }
            f->last += 2;
            f->row_id = f->work.row_id;
            snprintf(f->eager, sizeof f->eager, "%s", f->work.lock_token);
        }
        for (size_t i = 0; i < round.item_count; i++)
            for (int k = 0; k < IN_FLIGHT; k++) {
                if (strcmp(flights[k].id, round.items[i].instance) != 0) continue;
                snprintf(flights[k].token, sizeof flights[k].token, "%s", round.items[i].lock_token);
                flights[k].key = round.items[i].store_key;
                flights[k].consumed = round.items[i].messages[0].id;
            }
    }
    measure out = measured(steps, wall() - begin, cpu() - cpu_begin);
    dur_store_lane_close(lane);
    dur_store_owner_release(store, owner, &err);
    dur_provider_close(store);
    dur_waker_free(waker);
    dur_arena_free(arena);
    return out;
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : ".";
    double seconds = argc > 2 ? atof(argv[2]) : 3;
    char path[512], url[600], text[TEXT + 1];
    static const char *const ends[] = { "", "-wal", "-shm", ".lock" };
    memset(text, 'x', TEXT);
    text[TEXT] = '\0';
    uint64_t rounds = 0;
    snprintf(path, sizeof path, "%s/sqlite-limit-%d.db", folder, (int)getpid());
    measure limit = argc > 3 ? (measure){ 1, 1 } : ruler(path, seconds, text);
    for (size_t i = 0; i < 4; i++) {
        snprintf(url, sizeof url, "%s%s", path, ends[i]);
        unlink(url);
    }
    snprintf(url, sizeof url, "sqlite:%s", path);
    measure lane = lane_loop(url, seconds, text, &rounds);
    for (size_t i = 0; i < 4; i++) {
        snprintf(url, sizeof url, "%s%s", path, ends[i]);
        unlink(url);
    }
    printf("ruler %8.0f steps/s %6.1f us cpu/step\n", limit.steps_per_s, limit.cpu_us);
    printf("lane  %8.0f steps/s %6.1f us cpu/step, %llu rounds\n", lane.steps_per_s, lane.cpu_us,
           (unsigned long long)rounds);
    printf("ratio %8.2f wall, %.2f cpu\n", lane.steps_per_s / limit.steps_per_s, limit.cpu_us / lane.cpu_us);
    return 0;
}
