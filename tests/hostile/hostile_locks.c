/*
 * hostile_locks.c: whoever has waited for a lock goes by what is so then, not by what he saw before (H80).
 */
#include "neighbour.h"

#include <pthread.h>

static dur_outcome says(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, input);
}

static const dur_handler handlers[] = { DUR_ORCHESTRATION("Says", "1.0.0", says), DUR_HANDLERS_END };

/* Instances x-0, x-1, … that have ended, and nobody who runs others. */
static void let_some_end(world *w, size_t count) {
    char id[32];
    RUN(w, handlers);
    for (size_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "x-%zu", i);
        start(w, "Says", "first", id);
    }
    for (size_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "x-%zu", i);
        expect(w, id, "first");
    }
    world_stop(w);
}

/* ---- a start that takes the place of what has ended ---- */

enum { RIVALS = 3 };

typedef struct rivals {
    dur_client *client;
    pthread_barrier_t line;
    size_t count;
    atomic_uint accepted[200]; /* by instance */
    atomic_bool failed;
} rivals;

static void *rival_main(void *data) {
    rivals *r = data;
    for (size_t i = 0; i < r->count; i++) {
        char id[32];
        dur_error err = DUR_ERROR_INIT;
        int code;
        snprintf(id, sizeof(id), "x-%zu", i);
        (void)pthread_barrier_wait(&r->line);
        do { /* a store that is busy may say "not now" */
            dur_error_clear(&err);
            code = dur_client_start(r->client, &err, "Says", "second", .instance = id,
                                    .exists = DUR_START_REPLACE_FINISHED);
        } while (err.retryable);
        if (code == DUR_OK)
            atomic_fetch_add(&r->accepted[i], 1);
        else if (code != DUR_EEXISTS)
            atomic_store(&r->failed, true);
    }
    return NULL;
}

/* Whoever comes second finds a start that waits: his own would never run. */
static void fault_h80_of_those_who_replace_one_is_accepted(void **state) {
    world *w = *state;
    pthread_t threads[RIVALS];
    rivals *r = calloc(1, sizeof(*r));
    r->client = w->client;
    r->count = scaled(200, 40);
    if (r->count > 200) r->count = 200;
    let_some_end(w, r->count);
    (void)pthread_barrier_init(&r->line, NULL, RIVALS);
    for (size_t i = 0; i < RIVALS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, rival_main, r), 0);
    for (size_t i = 0; i < RIVALS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    (void)pthread_barrier_destroy(&r->line);
    assert_false(r->failed);
    for (size_t i = 0; i < r->count; i++)
        if (r->accepted[i] != 1) fail_msg("x-%zu: %u starts were accepted", i, (unsigned)r->accepted[i]);
    free(r);
}

#ifdef HAVE_LIBPQ
#include <durite/postgres.h>

typedef struct deleter {
    dur_client *client;
    int code;
    dur_error err;
} deleter;

static void *deleter_main(void *data) {
    deleter *d = data;
    do {
        dur_error_clear(&d->err);
        d->code = dur_client_delete(NULL, d->client, "x-0", false, &d->err);
    } while (d->err.retryable);
    return NULL;
}

static void until_held_up_by(PGconn *db, PGconn *beside) {
    uint64_t end_ms = now_ms() + patience_ms();
    while (pg_number(beside, "SELECT count(*) FROM pg_locks WHERE NOT granted AND %d = ANY (pg_blocking_pids(pid))",
                     PQbackendPID(db)) == 0) {
        assert_true(now_ms() < end_ms);
        pause_ms(1);
    }
}

/* A transaction of the caller's own stands open over such a start; a delete waits for it, and is told that the instance
   it has meant is gone. */
static void fault_h80_a_delete_sees_what_has_taken_the_place(void **state) {
    world *w = *state;
    pthread_t thread;
    if (!on_provider("postgres")) skip(); /* elsewhere nobody waits with something in his hand */
    let_some_end(w, 1);
    PGconn *db = pg_beside(), *beside = pg_beside();
    pg_do(db, "BEGIN");
    dur_start_args second = { .size = sizeof(second),
                              .name = "Says",
                              .input = "second",
                              .instance = "x-0",
                              .exists = DUR_START_REPLACE_FINISHED };
    OK(w, dur_postgres_start(w->store, db, &second, &w->err));
    deleter d = { .client = w->client, .err = DUR_ERROR_INIT };
    assert_int_equal(pthread_create(&thread, NULL, deleter_main, &d), 0);
    until_held_up_by(db, beside);
    pg_do(db, "COMMIT");
    assert_int_equal(pthread_join(thread, NULL), 0);
    PQfinish(db);
    PQfinish(beside);
    if (d.code != DUR_ENOTFOUND) fail_msg("%s: %s", dur_code_name(d.code), d.err.message);
    RUN(w, handlers);
    expect(w, "x-0", "second");
}
#endif

static const struct CMUnitTest tests[] = {
    TEST(fault_h80_of_those_who_replace_one_is_accepted),
#ifdef HAVE_LIBPQ
    TEST(fault_h80_a_delete_sees_what_has_taken_the_place),
#endif
};

int main(void) {
    return cmocka_run_group_tests(tests, NULL, NULL);
}
