/*
 * hostile_sessions.c: many nodes claim, use, renew and clean up the same sessions at once.
 */
#include "neighbour.h"

#ifdef HAVE_LIBPQ

#include <durite/sys/store.h>
#include <pthread.h>

enum { SESSIONS = 8, NODES = 6 };

typedef struct crowd {
    char url[1100];
    size_t rounds;
    uint64_t seed;
    atomic_uint done; /* nodes that have come to their end */
    atomic_uint deadlocks;
} crowd;

/* One of them; each has a store of its own, and all are the same node to the sessions. */
typedef struct member {
    crowd *crowd;
    unsigned number;
    pthread_t thread;
} member;

static void judge(crowd *c, int code, const dur_error *err) {
    if (code != DUR_OK && strstr(err->message, "deadlock") != NULL) {
        fprintf(stderr, "%s: %s\n", err->op, err->message);
        atomic_fetch_add(&c->deadlocks, 1);
    }
}

static uint64_t next_random(uint64_t *seed) { /* splitmix64 */
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static const char *const node_id = "node";

/* Work of all sessions in random order. */
static void enqueue_some(crowd *c, dur_provider *store, uint64_t *seed, unsigned number, size_t round) {
    dur_error err = DUR_ERROR_INIT;
    for (uint64_t i = 0; i < SESSIONS; i++) {
        char session[16], instance[40];
        snprintf(session, sizeof(session), "s%llu", (unsigned long long)(next_random(seed) % SESSIONS));
        snprintf(instance, sizeof(instance), "i-%u-%zu", number, round);
        dur_message_row item = { .kind = DUR_WORK_ACTIVITY_EXECUTE,
                                 .instance = instance,
                                 .execution_id = 1,
                                 .activity_id = i + 2,
                                 .session_id = session,
                                 .json = { "{}", 2 } };
        judge(c, dur_store_enqueue_for_worker(store, &item, &err), &err);
    }
}

static void shuffle(dur_work_ack *acks, size_t count, uint64_t *seed) {
    for (size_t i = count; i > 1; i--) {
        size_t other = (size_t)(next_random(seed) % i);
        dur_work_ack swap = acks[i - 1];
        acks[i - 1] = acks[other];
        acks[other] = swap;
    }
}

/* Take what is there, say that it goes on, and finish it, all at once. */
static void work_off(crowd *c, dur_provider *store, uint64_t *seed) {
    enum { MAX = SESSIONS * 2 };
    dur_error err = DUR_ERROR_INIT;
    dur_arena *arena = dur_arena_new();
    dur_leased_work works[MAX];
    dur_work_ack acks[MAX] = { { .lock_token = NULL } };
    dur_worker_claim claims[MAX];
    bool lost[MAX];
    size_t count = 0;
    dur_work_fetch how = { .lock_ms = 60000,
                           .session_owner = node_id,
                           .session_lock_ms = 60000,
                           .tags = { .mode = DUR_TAGS_DEFAULT_ONLY },
                           .max = MAX };
    judge(c, dur_store_fetch_works(store, arena, &how, works, &count, &err), &err);
    for (size_t i = 0; i < count; i++) {
        acks[i] = (dur_work_ack){ .lock_token = works[i].lock_token, .ref = works[i].ref };
        claims[i] = (dur_worker_claim){ .lock_token = works[i].lock_token, .ref = works[i].ref };
    }
    shuffle(acks, count, seed);
    if (count > 0) judge(c, dur_store_check_works(store, claims, count, 60000, lost, &err), &err);
    if (count > 0) judge(c, dur_store_renew_work_item_lock(store, works[0].lock_token, 60000, &err), &err);
    if (count > 0) judge(c, dur_store_ack_works(store, acks, count, &err), &err);
    for (size_t i = 0; i < count; i++)
        judge(c, (int)acks[i].error.code, &acks[i].error);
    dur_arena_free(arena);
}

static void *be_a_node(void *arg) {
    member *m = arg;
    crowd *c = m->crowd;
    dur_error err = DUR_ERROR_INIT;
    dur_provider *store = NULL;
    uint64_t seed = c->seed + m->number, number = 0;
    if (dur_open(&store, c->url, &err) != DUR_OK) atomic_fetch_add(&c->deadlocks, 1000);
    for (size_t round = 0; store != NULL && round < c->rounds; round++) {
        enqueue_some(c, store, &seed, m->number, round);
        work_off(c, store, &seed);
        judge(c, dur_store_renew_session_lock(store, &node_id, 1, 60000, 60000, &number, &err), &err);
        if (m->number == 0) judge(c, dur_store_cleanup_orphaned_sessions(store, 0, &number, &err), &err);
    }
    dur_provider_close(store);
    return NULL;
}

static void fault_h30_sessions_never_deadlock(void **state) {
    static crowd c;
    world *w = *state;
    member members[NODES];
    if (!on_provider("postgres")) skip();
    w->broken = true; /* work of no instance is left */
    snprintf(c.url, sizeof(c.url), "%s&pool=1", w->url);
    c.rounds = scaled(400, 40);
    c.seed = now_ms();
    printf("# seed %llu\n", (unsigned long long)c.seed);
    for (unsigned i = 0; i < NODES; i++) {
        members[i] = (member){ .crowd = &c, .number = i };
        assert_int_equal(pthread_create(&members[i].thread, NULL, be_a_node, &members[i]), 0);
    }
    for (unsigned i = 0; i < NODES; i++)
        pthread_join(members[i].thread, NULL);
    assert_int_equal(atomic_load(&c.deadlocks), 0);
}

/* ---- the same by runtimes: turns that claim and finish work of sessions ------------------------------------------ */

static dur_outcome fan(dur_ctx *ctx, const char *input) {
    dur_future *futures[SESSIONS];
    unsigned long from = strtoul(input, NULL, 10);
    for (int round = 0; round < 3; round++) {
        for (unsigned long i = 0; i < SESSIONS; i++) {
            unsigned long at = from % 2 == 0 ? (from + i) % SESSIONS : (from + SESSIONS - i) % SESSIONS;
            futures[i] = dur_activity(ctx, "Echo", input, .session = dur_format(ctx, "s%lu", at));
        }
        dur_join_n(futures, SESSIONS);
    }
    return dur_complete(ctx, input);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ORCHESTRATION("Fan", "1.0.0", fan),
    DUR_HANDLERS_END,
};

static void fault_h30_turns_with_sessions_never_deadlock(void **state) {
    world *w = *state, nodes[2] = { { .url = "" } };
    char database[40], url[900], sql[120];
    size_t count = scaled(100, 20);
    snprintf(database, sizeof(database), "sessions_%d", (int)getpid());
    if (!on_provider("postgres") || !url_of_database(url, sizeof(url), database)) skip();
    PGconn *db = pg_beside();
    pg_do(db, "CREATE DATABASE %s", database); /* of which the server counts the deadlocks */
    for (size_t i = 0; i < 2; i++) {
        snprintf(nodes[i].url, sizeof(nodes[i].url), "%s&schema=mine&application_name=%s", url, database);
        world_open_store(&nodes[i]);
        OK(&nodes[i], dur_client_new(&nodes[i].client, nodes[i].store, &nodes[i].err));
        RUN(&nodes[i], handlers, .worker_node_id = "node", .orchestration_concurrency = 2, .worker_concurrency = 8);
    }
    for (size_t i = 0; i < count; i++) {
        char id[24];
        snprintf(id, sizeof(id), "%zu", i);
        start(&nodes[i % 2], "Fan", id, id);
    }
    for (size_t i = 0; i < count; i++) {
        char id[24];
        snprintf(id, sizeof(id), "%zu", i);
        expect(&nodes[i % 2], id, id);
    }
    for (size_t i = 0; i < 2; i++) {
        world_stop(&nodes[i]);
        dur_client_free(nodes[i].client);
        dur_provider_close(nodes[i].store);
    }
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM pg_stat_activity WHERE datname = '%s'", database);
    while (pg_number(db, "%s", sql) > 0)
        pause_ms(5);
    long deadlocks = pg_number(db, "SELECT deadlocks FROM pg_stat_database WHERE datname = '%s'", database);
    pg_do(db, "DROP DATABASE %s", database);
    PQfinish(db);
    (void)w;
    assert_int_equal(deadlocks, 0);
}

#else

static void nothing_without_libpq(void **state) {
    (void)state;
    skip();
}

#endif

static const hostile_role roles[] = { { "none", NULL } };

static const struct CMUnitTest tests[] = {
#ifdef HAVE_LIBPQ
    TEST(fault_h30_sessions_never_deadlock),
    TEST(fault_h30_turns_with_sessions_never_deadlock),
#else
    TEST(nothing_without_libpq),
#endif
};

HOSTILE_MAIN(roles, tests)
