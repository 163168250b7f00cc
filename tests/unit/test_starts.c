/*
 * test_starts.c: the desk between those who start instances and the loops that begin them: who gets a start, and that
 * every caller has one answer, whatever the loop does.
 *
 * A caller is a thread; the test is the loop.  A caller may lose patience with a test that is not scheduled for long:
 * then it has its answer, and another one is tried.
 */
#include "sqlite_test.h"

#include "provider/starts.h"

#include <pthread.h>
#include <sched.h>

enum { TRIES_MAX = 50, CROWD = 4 };

/* ---- loops ------------------------------------------------------------------------------------------------------- */

typedef struct loop {
    dur__taker taker;
    atomic_bool asleep;
    dur_handler_filter handlers;
} loop;

static const char *const every[] = { "Other@1.0.0", "Test@1.0.0" };

static void loop_open(loop *l, fixture *f, size_t first_handler, size_t handlers) {
    *l = (loop){ .handlers = { every + first_handler, handlers } };
    l->taker.waker = dur_waker_new();
    l->taker.asleep = &l->asleep;
    l->taker.handlers = &l->handlers;
    dur__taker_join(&l->taker, f->store);
    dur__taker_open(&l->taker);
}

static void loop_close(loop *l) {
    dur__taker_leave(&l->taker);
    dur_waker_free(l->taker.waker);
}

/* ---- callers ----------------------------------------------------------------------------------------------------- */

typedef struct caller {
    dur_provider *store;
    dur_message_row items[CROWD];
    dur_start_request starts[CROWD];
    size_t count;
    atomic_bool over;
    int code;
    pthread_t thread;
} caller;

static void *call(void *arg) {
    caller *c = arg;
    c->code = dur_store_enqueue_starts(c->store, c->starts, c->count, NULL);
    atomic_store(&c->over, true);
    return NULL;
}

static void begin(fixture *f, caller *c, size_t count, unsigned serial) {
    *c = (caller){ .store = f->store, .count = count };
    for (size_t i = 0; i < count; i++) {
        c->items[i] = start_of(f, dur_arena_format(f->arena, "%u-%zu", serial, i));
        c->starts[i] = (dur_start_request){ .item = &c->items[i] };
    }
    assert_int_equal(pthread_create(&c->thread, NULL, call, c), 0);
}

static void end(const caller *c) {
    pthread_join(c->thread, NULL);
    assert_int_equal(c->code, DUR_OK);
}

/* Its starts are with that loop, all of them, and none was taken. */
static void hand_in(fixture *f, loop *l, caller *c, size_t count) {
    for (unsigned i = 0; i < TRIES_MAX; i++) {
        dur__taker_open(&l->taker);
        dur__taker_round(&l->taker, true, 0); /* they have patience */
        begin(f, c, count, i);
        while (!atomic_load(&c->over) && atomic_load(&l->taker.waiting) < count)
            sched_yield();
        if (atomic_load(&l->taker.waiting) == count) return;
        end(c);
    }
    fail_msg("no loop gets a start");
}

static size_t take(fixture *f, loop *l, dur__start_taken *out, size_t max) {
    size_t count = dur__taker_take(&l->taker, f->arena, 77, max, out);
    dur__taker_round(&l->taker, false, 0);
    return count;
}

/* The loop has all its starts. */
static void taken(fixture *f, loop *l, caller *c, size_t count, dur__start_taken *out) {
    for (;;) {
        hand_in(f, l, c, count);
        size_t got = take(f, l, out, count);
        if (got == count) return;
        for (size_t i = 0; i < got; i++)
            dur__taker_back(&l->taker, out[i].number, NULL);
        end(c);
    }
}

static bool is_there(fixture *f, const char *instance) {
    dur_instance_row row;
    return dur_store_get_instance(f->store, f->arena, instance, &row, &f->err) == DUR_OK;
}

static void what_is_written_is_answered(void **state) {
    fixture *f = *state;
    loop l;
    caller c;
    dur__start_taken got[1];
    loop_open(&l, f, 0, 2);
    taken(f, &l, &c, 1, got);
    assert_true(got[0].number > 0);
    assert_string_equal(got[0].item.instance, c.items[0].instance);
    assert_string_equal(got[0].item.orchestration_name, "Test");
    assert_string_equal(got[0].item.version, "1.0.0");
    assert_int_equal(got[0].item.message_count, 1);
    assert_int_equal(got[0].item.messages[0].id, 0);
    assert_int_equal(got[0].item.messages[0].attempt_count, 1);
    assert_int_equal(got[0].item.acquisitions, 1);
    assert_true(dur__taker_has(&l.taker, got[0].number));
    assert_false(atomic_load(&c.over));
    dur__taker_written(&l.taker, got[0].number);
    dur__taker_tell(&l.taker);
    end(&c);
    assert_int_equal(c.starts[0].error.code, DUR_OK);
    assert_false(is_there(f, c.items[0].instance)); /* the caller has not written it */
    assert_false(dur__taker_has(&l.taker, got[0].number));
    dur__taker_back(&l.taker, got[0].number, NULL); /* no harm */
    loop_close(&l);
}

static void what_is_given_back_is_written_by_its_caller(void **state) {
    fixture *f = *state;
    loop l;
    caller c;
    dur__start_taken got[1];
    loop_open(&l, f, 0, 2);
    taken(f, &l, &c, 1, got);
    dur__taker_back(&l.taker, got[0].number, NULL);
    assert_false(dur__taker_has(&l.taker, got[0].number));
    end(&c);
    assert_int_equal(c.starts[0].error.code, DUR_OK);
    assert_true(is_there(f, c.items[0].instance));
    loop_close(&l);
}

/* Written or not: to do it again would be wrong. */
static void an_unknown_outcome_is_its_callers(void **state) {
    fixture *f = *state;
    loop l;
    caller c;
    dur__start_taken got[1];
    dur_error why = DUR_ERROR_INIT;
    loop_open(&l, f, 0, 2);
    taken(f, &l, &c, 1, got);
    dur_error_set(&why, DUR_EUNKNOWN, false, "test", "nobody knows");
    dur__taker_back(&l.taker, got[0].number, &why);
    end(&c);
    assert_int_equal(c.starts[0].error.code, DUR_EUNKNOWN);
    assert_false(is_there(f, c.items[0].instance));
    loop_close(&l);
}

/* The loop does nothing at all. */
static void who_loses_patience_writes_it_himself(void **state) {
    fixture *f = *state;
    loop l;
    caller c;
    loop_open(&l, f, 0, 2);
    begin(f, &c, 2, 0);
    end(&c);
    for (int i = 0; i < 2; i++)
        assert_true(is_there(f, c.items[i].instance));
    assert_int_equal(atomic_load(&l.taker.waiting), 0);
    assert_false(atomic_load(&l.taker.open)); /* the next one need not wait as long */
    loop_close(&l);
}

/* One is written, one given back, two have not been taken: the caller goes on when the last is answered. */
static void each_of_a_call_has_its_own_answer(void **state) {
    fixture *f = *state;
    loop l;
    caller c;
    dur__start_taken got[2];
    loop_open(&l, f, 0, 2);
    hand_in(f, &l, &c, CROWD);
    assert_int_equal(dur__taker_take(&l.taker, f->arena, 77, 2, got), 2); /* no more than asked for; in order */
    assert_string_equal(got[0].item.instance, c.items[0].instance);
    assert_string_equal(got[1].item.instance, c.items[1].instance);
    dur__taker_back(&l.taker, got[1].number, NULL);
    dur__taker_close(&l.taker);
    assert_false(atomic_load(&c.over));
    dur__taker_written(&l.taker, got[0].number);
    dur__taker_tell(&l.taker);
    end(&c);
    for (size_t i = 0; i < CROWD; i++) {
        assert_int_equal(c.starts[i].error.code, DUR_OK);
        assert_int_equal(is_there(f, c.items[i].instance), i != 0);
    }
    loop_close(&l);
}

static void a_loop_that_leaves_gives_all_back(void **state) {
    fixture *f = *state;
    loop l;
    caller c;
    dur__start_taken got[1];
    loop_open(&l, f, 0, 2);
    hand_in(f, &l, &c, CROWD);
    assert_int_equal(dur__taker_take(&l.taker, f->arena, 77, 1, got), 1);
    loop_close(&l);
    end(&c);
    for (size_t i = 0; i < CROWD; i++) {
        assert_int_equal(c.starts[i].error.code, DUR_OK);
        assert_true(is_there(f, c.items[i].instance));
    }
}

/* A file is one store, by however many handles. */
static void all_handles_of_a_store_have_one_desk(void **state) {
    fixture *f = *state;
    loop l;
    caller c;
    dur__start_taken got[1];
    dur_provider *first = f->store, *second = NULL;
    OK(f, dur_open(&second, f->url, &f->err));
    loop_open(&l, f, 0, 2);
    f->store = second;
    taken(f, &l, &c, 1, got);
    dur__taker_written(&l.taker, got[0].number);
    dur__taker_tell(&l.taker);
    end(&c);
    loop_close(&l);
    f->store = first;
    dur_provider_close(second);
}

/* ---- who gets it ------------------------------------------------------------------------------------------------- */

/* Returns without anybody who would come. */
static void not_handed(fixture *f, const dur_start_request *how, dur_provider *store) {
    static unsigned serial;
    dur_message_row item = start_of(f, dur_arena_format(f->arena, "direct-%u", ++serial));
    dur_start_request start = *how;
    bool done = true;
    start.item = &item;
    assert_int_equal(dur__starts_hand_in(store, &start, 1, &done), 0);
    assert_false(done);
}

static void *start_directly(void *arg) {
    fixture *f = arg;
    not_handed(f, &(dur_start_request){ .policy = DUR_EXISTS_REPLACE_FINISHED }, f->store);
    not_handed(f, &(dur_start_request){ .delay_ms = DUR_HOURS(1) }, f->store);
    return NULL;
}

static void some_are_never_handed_out(void **state) {
    fixture *f = *state;
    loop l;
    pthread_t thread;
    loop_open(&l, f, 0, 2);
    assert_int_equal(pthread_create(&thread, NULL, start_directly, f), 0);
    pthread_join(thread, NULL);
    not_handed(f, &(dur_start_request){ .delay_ms = 0 }, f->store); /* a loop does not wait for itself */
    assert_true(atomic_load(&l.taker.open));                        /* nobody has waited for it in vain */
    loop_close(&l);
}

/* The loop would wait for the transaction of the very thread that waits for it. */
static void *start_in_own_transaction(void *arg) {
    fixture *f = arg;
    sqlite3 *db = NULL;
    dur_message_row item = start_of(f, "own");
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    OK(f, dur_sqlite_begin(f->store, db, &f->err));
    assert_int_equal(dur_store_enqueue_start(f->store, &item, DUR_EXISTS_FAIL, 0, NULL, &f->err), DUR_EDEADLK);
    OK(f, dur_sqlite_rollback(f->store, db, &f->err));
    sqlite3_close(db);
    return NULL;
}

static void none_of_a_thread_with_a_transaction_of_its_own(void **state) {
    fixture *f = *state;
    loop l;
    pthread_t thread;
    loop_open(&l, f, 0, 2);
    assert_int_equal(pthread_create(&thread, NULL, start_in_own_transaction, f), 0);
    pthread_join(thread, NULL);
    loop_close(&l);
}

static void finish(caller *c, loop *l, dur__start_taken *got) {
    dur__taker_written(&l->taker, got->number);
    dur__taker_tell(&l->taker);
    end(c);
}

/* To a loop that has the handler; of several to the first whose rounds are not full, else to the idlest; and one that
   sleeps is woken. */
static void a_loop_is_chosen(void **state) {
    fixture *f = *state;
    loop all[4];
    caller c;
    dur__start_taken got[1];
    loop_open(&all[0], f, 0, 1); /* not that handler */
    for (int i = 1; i < 4; i++)
        loop_open(&all[i], f, 1, 1);
    taken(f, &all[1], &c, 1, got);
    finish(&c, &all[1], got);
    atomic_store(&all[1].taker.load, 30);
    taken(f, &all[2], &c, 1, got);
    finish(&c, &all[2], got);
    atomic_store(&all[2].taker.load, 40);
    atomic_store(&all[3].taker.load, 25);
    atomic_store(&all[3].asleep, true);
    assert_true(dur_waker_sleep_begin(all[3].taker.waker));
    taken(f, &all[3], &c, 1, got);
    assert_true(dur_waker_sleep_end(all[3].taker.waker));
    finish(&c, &all[3], got);
    for (int i = 0; i < 4; i++)
        loop_close(&all[i]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_is_answered),
        TEST(what_is_given_back_is_written_by_its_caller),
        TEST(an_unknown_outcome_is_its_callers),
        TEST(who_loses_patience_writes_it_himself),
        TEST(each_of_a_call_has_its_own_answer),
        TEST(a_loop_that_leaves_gives_all_back),
        TEST(all_handles_of_a_store_have_one_desk),
        TEST(some_are_never_handed_out),
        TEST(none_of_a_thread_with_a_transaction_of_its_own),
        TEST(a_loop_is_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
