/*
 * hostile_gone.c: what is left to whom somebody who is gone was dear: answers to a parent that was deleted, a wait for
 * an instance that was, an instance that a client was about to delete when it died.
 */
#include "neighbour.h"

#include <durite/sys/store.h>
#include <pthread.h>
#include <stdatomic.h>

/* ---- handlers ---------------------------------------------------------------------------------------------------- */

static dur_outcome waits(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "go")));
}

static dur_outcome says(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, input);
}

static dur_outcome calls(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "Waits", "", .instance = input)));
}

static dur_outcome asks(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "Says", "", .instance = input)));
}

static const dur_handler handlers[] = {
    DUR_ORCHESTRATION("Waits", "1.0.0", waits),
    DUR_ORCHESTRATION("Says", "1.0.0", says),
    DUR_ORCHESTRATION("Calls", "1.0.0", calls),
    DUR_ORCHESTRATION("Asks", "1.0.0", asks),
    DUR_HANDLERS_END,
};

/* ---- H92: messages to an instance that does not exist ------------------------------------------------------------ */

static void until_nothing_waits(world *w) {
    for (uint64_t end_ms = now_ms() + patience_ms();; pause_ms(1)) {
        dur_queue_depths depths;
        OK(w, dur_store_get_queue_depths(w->store, &depths, &w->err));
        if (depths.orchestrator_queue + depths.timer_queue + depths.worker_queue == 0) return;
        if (now_ms() > end_ms)
            fail_msg("%llu messages wait for ever",
                     (unsigned long long)(depths.orchestrator_queue + depths.timer_queue));
    }
}

/* p calls x, which exists and stands still. */
static void call_somebody_who_stands_still(world *w) {
    RUN(w, handlers);
    start(w, "Waits", "", "x");
    until_history(w, "x", "ExternalSubscribed", 1);
    OK(w, dur_client_suspend(w->client, "x", "stands still", &w->err));
    start(w, "Calls", "x", "p");
    until_history(w, "p", "SubOrchestrationScheduled", 1);
}

/* p is gone when x goes on and says that it is not p's. */
static void fault_h92_an_answer_to_nobody_goes_nowhere(void **state) {
    world *w = *state;
    call_somebody_who_stands_still(w);
    OK(w, dur_client_delete(NULL, w->client, "p", true, &w->err));
    OK(w, dur_client_resume(w->client, "x", &w->err));
    OK(w, dur_client_pulse(w->client, &w->err, "x", "go", "gone on"));
    expect(w, "x", "gone on");
    until_nothing_waits(w);
}

/* x is gone when p, which has not heard x's answer, gives its call up. */
static void fault_h92_a_cancel_to_nobody_goes_nowhere(void **state) {
    world *w = *state;
    call_somebody_who_stands_still(w);
    OK(w, dur_client_suspend(w->client, "p", "does not hear", &w->err));
    OK(w, dur_client_resume(w->client, "x", &w->err));
    OK(w, dur_client_pulse(w->client, &w->err, "x", "go", "gone on")); /* behind the call */
    expect(w, "x", "gone on");
    OK(w, dur_client_delete(NULL, w->client, "x", true, &w->err));
    OK(w, dur_client_terminate(w->client, "p", "given up", &w->err));
    until_nothing_waits(w);
}

/* Parents are deleted while their children answer: in whichever order, nothing is left, and nobody in the way. */
static void fault_h92_an_answer_beside_a_deletion_leaves_nothing(void **state) {
    world *w = *state;
    RUN(w, handlers);
    for (size_t i = 0; i < scaled(60, 10); i++) {
        start(w, "Asks", "c", "p");
        for (size_t k = 0; k < i % 6; k++)
            pause_ms(1);
        OK(w, dur_client_delete(NULL, w->client, "p", true, &w->err));
    }
    until_nothing_waits(w);
    start(w, "Asks", "c", "p");
    expect(w, "p", "");
}

/* Rows that nobody will ever look at are found, whoever wrote them. */
static void fault_h92_what_nobody_will_look_at_is_found(void **state) {
    world *w = *state;
    dur_arena *arena = dur_arena_new();
    static const dur_failure why = { .category = DUR_FAILURE_APPLICATION, .message = "refused" };
    const dur_work_item items[] = {
        { .kind = DUR_WORK_SUB_ORCH_COMPLETED, .execution_id = 1, .id = 2, .result = "42" },
        { .kind = DUR_WORK_SUB_ORCH_FAILED, .execution_id = 1, .id = 2, .details = &why },
        { .kind = DUR_WORK_CANCEL_INSTANCE, .reason = "given up" },
        { .kind = DUR_WORK_TIMER_FIRED, .execution_id = 1, .id = 2, .fire_at_ms = 1 },
        { .kind = DUR_WORK_ACTIVITY_COMPLETED, .execution_id = 1, .id = 2, .result = "42" },
    };
    for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
        dur_message_row message;
        dur_work_item item = items[i];
        static const char *const nobody[] = { "nobody" };
        item.instance = "nobody";
        OK(w, dur_message_row_from_work(&message, arena, &item, &w->err));
        OK(w, dur_provider_check(w->store, &w->err));
        OK(w, dur_store_enqueue_for_orchestrator(w->store, &message, 0, &w->err));
        int code = dur_provider_check(w->store, &w->err);
        if (code != DUR_ECORRUPT || strstr(w->err.message, "nobody") == NULL)
            fail_msg("%s to nobody: %s: %s", dur_work_kind_name(item.kind), dur_code_name(code), w->err.message);
        start(w, "Waits", "", "nobody"); /* now there is somebody who looks */
        OK(w, dur_provider_check(w->store, &w->err));
        OK(w, dur_store_delete_instances(w->store, nobody, 1, true, NULL, &w->err));
    }
    dur_arena_free(arena);
}

/* ---- H91: a wait for an instance whose id another has --------------------------------------------------------------
 */

static void expect_run(world *w, dur_runs *runs, int code, const char *output) {
    const dur_run *run = NULL;
    OK(w, dur_runs_next(&run, runs, patience_ms(), &w->err));
    if (run->code != code)
        fail_msg("the run is told %s: %s", dur_code_name(run->code), run->code == DUR_OK ? run->output : run->error);
    if (output != NULL) assert_string_equal(run->output, output);
}

/* Somebody deletes what a run has started, and starts another under the id; `here`: by the same handle. */
static void another_under_its_id(world *w, bool here, bool ended, bool delayed) {
    world other = { .client = w->client };
    dur_runs *runs = NULL;
    RUN(w, handlers);
    if (!here) {
        memcpy(other.url, w->url, sizeof(other.url));
        world_open_store(&other);
        OK(&other, dur_client_new(&other.client, other.store, &other.err));
    }
    OK(w, dur_runs_new(&runs, w->client, &w->err));
    OK(w, dur_runs_start(runs, &w->err, ended ? "Says" : "Waits", "first", .instance = "r"));
    OK(w, dur_runs_flush(runs, &w->err));
    until_history(w, "r", ended ? "OrchestrationCompleted" : "ExternalSubscribed", 1);
    OK(&other, dur_client_delete(NULL, other.client, "r", true, &other.err));
    OK(&other, dur_client_start(other.client, &other.err, "Says", "second", .instance = "r",
                                .delay_ms = delayed ? DUR_SECONDS(3600) : 0));
    if (!delayed) expect(&other, "r", "second");
    if (ended) { /* the loop has told the run its own end, or the run looks and finds another */
        const dur_run *run = NULL;
        OK(w, dur_runs_next(&run, runs, patience_ms(), &w->err));
        if (run->code != DUR_ENOTFOUND) assert_string_equal(run->output, "first");
    } else
        expect_run(w, runs, DUR_ENOTFOUND, NULL);
    OK(w, dur_runs_watch(runs, "r", NULL, &w->err)); /* whoever has the id */
    if (!delayed) expect_run(w, runs, DUR_OK, "second");
    dur_runs_free(runs);
    if (here) return;
    dur_client_free(other.client);
    dur_provider_close(other.store);
}

static void fault_h91_a_run_is_told_its_own_end(void **state) {
    another_under_its_id(*state, true, false, false);
}

static void fault_h91_also_where_another_process_deletes_it(void **state) {
    another_under_its_id(*state, false, false, false);
}

static void fault_h91_also_where_it_had_ended(void **state) {
    another_under_its_id(*state, false, true, false);
}

static void fault_h91_also_where_the_next_has_not_begun(void **state) {
    another_under_its_id(*state, true, false, true);
}

static void fault_h91_also_where_it_has_replaced_another(void **state) {
    world *w = *state;
    dur_runs *runs = NULL;
    RUN(w, handlers);
    start(w, "Says", "before", "r");
    expect(w, "r", "before");
    OK(w, dur_runs_new(&runs, w->client, &w->err));
    OK(w, dur_runs_start(runs, &w->err, "Waits", "first", .instance = "r", .exists = DUR_START_REPLACE_FINISHED));
    OK(w, dur_runs_flush(runs, &w->err));
    until_history(w, "r", "ExternalSubscribed", 1);
    OK(w, dur_client_delete(NULL, w->client, "r", true, &w->err));
    start(w, "Says", "second", "r");
    expect(w, "r", "second");
    expect_run(w, runs, DUR_ENOTFOUND, NULL);
    dur_runs_free(runs);
}

/* Who is ended before the first turn is the run's own all the same. */
static void fault_h91_what_is_ended_before_it_begins_is_the_runs_own(void **state) {
    world *w = *state;
    dur_runs *runs = NULL;
    RUN(w, handlers);
    OK(w, dur_runs_new(&runs, w->client, &w->err));
    OK(w, dur_runs_start(runs, &w->err, "Waits", "", .instance = "t", .delay_ms = DUR_SECONDS(3600)));
    OK(w, dur_runs_start(runs, &w->err, "Waits", "", .instance = "c", .delay_ms = DUR_SECONDS(3600)));
    OK(w, dur_runs_flush(runs, &w->err));
    OK(w, dur_client_terminate(w->client, "t", "not wanted", &w->err));
    OK(w, dur_client_cancel(w->client, "c", "not wanted", &w->err));
    expect_run(w, runs, DUR_ECANCELLED, NULL);
    expect_run(w, runs, DUR_ECANCELLED, NULL);
    dur_runs_free(runs);
}

/* ---- H101: a client that dies, or stands still, in the middle of a deletion ----------------------------------------
 */

static dur_outcome holds(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *letter = dur_message(ctx, "box"); /* arrives, and no call reports it */
    const char *go = dur_await(dur_pulse(ctx, "go"));
    dur_await(letter);
    return dur_complete(ctx, go);
}

static const dur_handler holders[] = {
    DUR_ORCHESTRATION("Holds", "1.0.0", holds),
    DUR_ORCHESTRATION("Waits", "1.0.0", waits),
    DUR_HANDLERS_END,
};

static struct {
    const dur_provider_methods *real;
    dur_provider_methods mine;
    atomic_bool there, go_on;
} midway;

/* Behind the step that makes the instance stand still. */
static int suspend_and_die(dur_provider *self, const char *instance, const char *reason, dur_error *err) {
    int code = midway.real->set_suspended(self, instance, reason, err);
    if (reason != NULL) kill(getpid(), SIGKILL);
    return code;
}

static int suspend_and_stop(dur_provider *self, const char *instance, const char *reason, dur_error *err) {
    int code = midway.real->set_suspended(self, instance, reason, err);
    atomic_store(&midway.there, true);
    while (!atomic_load(&midway.go_on))
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    return code;
}

static void meet(dur_provider *store, int (*suspend)(dur_provider *, const char *, const char *, dur_error *)) {
    memset(&midway, 0, sizeof(midway));
    midway.real = store->methods;
    memcpy(&midway.mine, midway.real, sizeof(midway.mine));
    midway.mine.set_suspended = suspend;
    store->methods = &midway.mine;
}

static int deleter_run(const char *url, long number) {
    world w = { 0 };
    (void)number;
    snprintf(w.url, sizeof(w.url), "%s", url);
    world_open_store(&w);
    OK(&w, dur_client_new(&w.client, w.store, &w.err));
    meet(w.store, suspend_and_die);
    (void)dur_client_delete(NULL, w.client, "x", true, &w.err);
    return 1;
}

static void hold_a_letter(world *w) {
    RUN(w, holders, .owner_timeout_ms = 1000);
    start(w, "Holds", "", "x");
    until_history(w, "x", "ExternalSubscribed", 1);
    OK(w, dur_client_send(w->client, &w->err, "x", "box", "a letter"));
    until_history(w, "x", "a letter", 1);
}

static void expect_one_dead_letter(world *w) {
    for (uint64_t end_ms = now_ms() + patience_ms();; pause_ms(1)) {
        dur_queue_depths depths;
        OK(w, dur_store_get_queue_depths(w->store, &depths, &w->err));
        if (depths.dead_letters == 1 && depths.orchestrator_queue == 0) return;
        if (now_ms() > end_ms) fail_msg("%llu dead letters", (unsigned long long)depths.dead_letters);
    }
}

/* Whoever waits for it is told, and it can be started again. */
static void fault_h101_what_a_dead_client_was_deleting_does_not_stand_still(void **state) {
    world *w = *state;
    if (on_provider("memory:")) skip(); /* it would die with the store */
    hold_a_letter(w);
    int status = node_wait(node_spawn("deleter", w->url, 0, -1));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    expect_failure(w, "x", DUR_ECANCELLED, "a client died");
    expect_one_dead_letter(w);
    OK(w, dur_client_start(w->client, &w->err, "Waits", "", .instance = "x", .exists = DUR_START_REPLACE_FINISHED));
}

static void *delete_slowly(void *data) {
    world *other = data;
    OK(other, dur_client_delete(NULL, other->client, "x", true, &other->err));
    return NULL;
}

/* One that was only slow goes on to delete it, and nothing is lost. */
static void fault_h101_a_slow_client_loses_nothing(void **state) {
    world *w = *state;
    world other = { 0 };
    pthread_t thread;
    hold_a_letter(w);
    memcpy(other.url, w->url, sizeof(other.url));
    world_open_store(&other);
    OK(&other, dur_client_new(&other.client, other.store, &other.err));
    meet(other.store, suspend_and_stop);
    assert_int_equal(pthread_create(&thread, NULL, delete_slowly, &other), 0);
    while (!atomic_load(&midway.there))
        pause_ms(1);
    expect_failure(w, "x", DUR_ECANCELLED, "a client died");
    atomic_store(&midway.go_on, true);
    pthread_join(thread, NULL);
    other.store->methods = midway.real;
    dur_client_free(other.client);
    dur_provider_close(other.store);
    dur_instance_info *info = NULL;
    assert_int_equal(dur_client_info(&info, w->client, "x", &w->err), DUR_ENOTFOUND);
    expect_one_dead_letter(w);
}

/* ---- H115: a child whose parent is gone when its first turn is committed
 * ---------------------------------------------
 */

static atomic_int begun;

static dur_outcome notes(dur_ctx *ctx, const char *input) {
    atomic_fetch_add(&begun, 1);
    return dur_complete(ctx, input);
}

static dur_outcome calls_noted(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "Notes", input, .instance = "c")));
}

static const dur_handler parents[] = {
    DUR_ORCHESTRATION("Notes", "1.0.0", notes),
    DUR_ORCHESTRATION("CallsNoted", "1.0.0", calls_noted),
    DUR_HANDLERS_END,
};

/* The child's handler has run, and nothing of that is written: the next step commits. */
static void hold_the_first_turn(world *w) {
    atomic_store(&begun, 0);
    RUN(w, parents, .threads = DUR_THREADS_NONE);
    start(w, "CallsNoted", "the first", "p");
    for (uint64_t end_ms = now_ms() + patience_ms(); atomic_load(&begun) == 0;) {
        OK(w, dur_runtime_step(w->runtime, 0, &w->err));
        if (now_ms() > end_ms) fail_msg("the child does not begin");
    }
    stepped_runtime = NULL;
}

static void until_refused(world *w) {
    dur_instance_info *info = NULL;
    stepped_runtime = w->runtime;
    for (uint64_t end_ms = now_ms() + patience_ms(); dur_client_info(&info, w->client, "c", &w->err) == DUR_OK;) {
        dur_instance_info_free(info);
        if (now_ms() > end_ms) fail_msg("the child is there, and its parent is not");
        pause_ms(1);
    }
    until_nothing_waits(w);
    OK(w, dur_provider_check(w->store, &w->err));
    start(w, "CallsNoted", "the second", "p");
    expect(w, "p", "the second");
}

/* What is sent to the child meanwhile, and what the node was handed before: the cancel of its parent's end is both. */
static void fault_h115_what_was_sent_to_a_child_that_is_refused_goes_with_it(void **state) {
    world *w = *state;
    world other = { 0 };
    memcpy(other.url, w->url, sizeof(other.url));
    world_open_store(&other);
    OK(&other, dur_client_new(&other.client, other.store, &other.err));
    hold_the_first_turn(w);
    OK(&other, dur_client_pulse(other.client, &other.err, "c", "go", "too early"));
    OK(&other, dur_client_send(other.client, &other.err, "c", "box", "a letter"));
    OK(&other, dur_client_terminate(other.client, "p", "enough", &other.err));
    OK(&other, dur_client_delete(NULL, other.client, "p", false, &other.err));
    dur_client_free(other.client);
    dur_provider_close(other.store);
    until_refused(w);
    expect_one_dead_letter(w);
}

/* ---- H124: a client that stands still in the middle of a deletion, and goes on when another has the id --------------
 */

typedef struct slow_deletion {
    world other;
    pthread_t thread;
    bool force;
    int code;
} slow_deletion;

static int delete_and_stop(dur_provider *self, const char *const *ids, const dur_meant *meant, size_t count, bool force,
                           dur_delete_result *out, dur_error *err) {
    if (!atomic_exchange(&midway.there, true))
        while (!atomic_load(&midway.go_on))
            nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    return midway.real->delete_instances(self, ids, meant, count, force, out, err);
}

static void *delete_later(void *data) {
    slow_deletion *self = data;
    self->code = dur_client_delete(NULL, self->other.client, "x", self->force, &self->other.err);
    return NULL;
}

/* It has looked, and stands still before it deletes. */
static void begin_deletion(world *w, slow_deletion *self, bool force) {
    memset(self, 0, sizeof(*self));
    self->force = force;
    memcpy(self->other.url, w->url, sizeof(self->other.url));
    world_open_store(&self->other);
    OK(&self->other, dur_client_new(&self->other.client, self->other.store, &self->other.err));
    meet(self->other.store, self->other.store->methods->set_suspended);
    midway.mine.delete_instances = delete_and_stop;
    assert_int_equal(pthread_create(&self->thread, NULL, delete_later, self), 0);
    while (!atomic_load(&midway.there))
        pause_ms(1);
}

static int go_on_deleting(slow_deletion *self) {
    atomic_store(&midway.go_on, true);
    pthread_join(self->thread, NULL);
    self->other.store->methods = midway.real;
    dur_client_free(self->other.client);
    dur_provider_close(self->other.store);
    return self->code;
}

static void delete_meanwhile(world *w, const char *instance) {
    OK(w, dur_client_delete(NULL, w->client, instance, true, &w->err));
}

static void expect_untouched(world *w, slow_deletion *slow, const char *instance) {
    int code = go_on_deleting(slow);
    if (code != DUR_ENOTFOUND) fail_msg("%s instead of DUR_ENOTFOUND", dur_code_name(code));
    dur_instance_info *info = NULL;
    OK(w, dur_client_info(&info, w->client, instance, &w->err));
    assert_false(info->suspended);
    dur_instance_info_free(info);
    OK(w, dur_client_pulse(w->client, &w->err, instance, "go", "the next"));
    expect(w, instance, "the next");
}

static void fault_h124_a_slow_deletion_leaves_the_next_alone(void **state) {
    world *w = *state;
    slow_deletion slow;
    RUN(w, handlers);
    start(w, "Waits", "", "x");
    until_history(w, "x", "ExternalSubscribed", 1);
    begin_deletion(w, &slow, true);
    delete_meanwhile(w, "x");
    start(w, "Waits", "", "x");
    until_history(w, "x", "ExternalSubscribed", 1);
    expect_untouched(w, &slow, "x");
}

/* Also one that had ended, deleted without force; the next has ended, too. */
static void fault_h124_also_where_both_have_ended(void **state) {
    world *w = *state;
    slow_deletion slow;
    RUN(w, handlers);
    start(w, "Says", "first", "x");
    expect(w, "x", "first");
    begin_deletion(w, &slow, false);
    OK(w, dur_client_start(w->client, &w->err, "Says", "next", .instance = "x", .exists = DUR_START_REPLACE_FINISHED));
    expect(w, "x", "next");
    int code = go_on_deleting(&slow);
    if (code != DUR_ENOTFOUND) fail_msg("%s instead of DUR_ENOTFOUND", dur_code_name(code));
    expect(w, "x", "next");
}

/* Somebody else deletes it and starts the next, which has not begun when the deletion goes on. */
static void expect_the_next_is_left(world *w, slow_deletion *slow) {
    delete_meanwhile(w, "x");
    start(w, "Waits", "", "x");
    int code = go_on_deleting(slow);
    if (code != DUR_ENOTFOUND) fail_msg("%s instead of DUR_ENOTFOUND", dur_code_name(code));
    RUN(w, handlers);
    OK(w, dur_client_pulse(w->client, &w->err, "x", "go", "the next"));
    expect(w, "x", "the next");
}

/* Known by its start alone, the first as the next. */
static void fault_h124_also_where_nobody_has_begun(void **state) {
    world *w = *state;
    slow_deletion slow;
    start(w, "Waits", "", "x");
    begin_deletion(w, &slow, true);
    expect_the_next_is_left(w, &slow);
}

/* The next has not begun where the first had. */
static void fault_h124_also_where_the_next_has_not_begun(void **state) {
    world *w = *state;
    slow_deletion slow;
    RUN(w, handlers);
    start(w, "Waits", "", "x");
    until_history(w, "x", "ExternalSubscribed", 1);
    world_stop(w);
    begin_deletion(w, &slow, true);
    expect_the_next_is_left(w, &slow);
}

/* One that begins meanwhile is the same. */
static void fault_h124_what_begins_meanwhile_is_deleted(void **state) {
    world *w = *state;
    slow_deletion slow;
    start(w, "Waits", "", "x");
    begin_deletion(w, &slow, true);
    RUN(w, handlers);
    until_history(w, "x", "ExternalSubscribed", 1);
    assert_int_equal(go_on_deleting(&slow), DUR_OK);
    dur_instance_info *info = NULL;
    assert_int_equal(dur_client_info(&info, w->client, "x", &w->err), DUR_ENOTFOUND);
}

static const hostile_role roles[] = { { "deleter", deleter_run } };

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

static const struct CMUnitTest tests[] = {
    TEST(fault_h92_an_answer_to_nobody_goes_nowhere),
    TEST(fault_h92_a_cancel_to_nobody_goes_nowhere),
    TEST(fault_h92_an_answer_beside_a_deletion_leaves_nothing),
    TEST(fault_h92_what_nobody_will_look_at_is_found),
    TEST(fault_h91_a_run_is_told_its_own_end),
    TEST(fault_h91_also_where_another_process_deletes_it),
    TEST(fault_h91_also_where_it_had_ended),
    TEST(fault_h91_also_where_the_next_has_not_begun),
    TEST(fault_h91_also_where_it_has_replaced_another),
    TEST(fault_h91_what_is_ended_before_it_begins_is_the_runs_own),
    TEST(fault_h101_what_a_dead_client_was_deleting_does_not_stand_still),
    TEST(fault_h101_a_slow_client_loses_nothing),
    TEST(fault_h115_what_was_sent_to_a_child_that_is_refused_goes_with_it),
    TEST(fault_h124_a_slow_deletion_leaves_the_next_alone),
    TEST(fault_h124_also_where_both_have_ended),
    TEST(fault_h124_also_where_nobody_has_begun),
    TEST(fault_h124_also_where_the_next_has_not_begun),
    TEST(fault_h124_what_begins_meanwhile_is_deleted),
};

HOSTILE_MAIN(roles, tests)
