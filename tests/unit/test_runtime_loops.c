/*
 * test_runtime_loops.c: loops without their threads, driven one pass at a time: who gets a completion, what is looked
 * for again, what is given back.
 *
 * The runtime here is made of the same parts as a real one, on the memory store, with nobody running them: each step
 * of a loop or worker is a call of the test, so that every order of events can be had.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/runtime_internal.h"
#include "support/faulty.h"
#include <durite/durite.h>
#include <stdlib.h>

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        int code_ = (call);                                                                                            \
        if (code_ != DUR_OK) fail_msg("%s: %s: %s", #call, dur_code_name(code_), err.message);                         \
    } while (0)

static dur_error err;

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}
static dur_outcome one_step(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input)));
}
static dur_outcome in_session(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input, .session = input)));
}
static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ORCHESTRATION("OneStep", "1.0.0", one_step),
    DUR_ORCHESTRATION("InSession", "1.0.0", in_session),
    DUR_HANDLERS_END,
};

/* ---- a runtime without threads ---- */

static dur_runtime *runtime;
static dur_client *client;

static void up(size_t loops, uint32_t max_sessions) {
    static unsigned serial;
    char url[64];
    snprintf(url, sizeof(url), "memory:loops-%u", ++serial);
    runtime = calloc(1, sizeof(*runtime));
    atomic_init(&runtime->references, 1);
    atomic_init(&runtime->owner, "");
    dur__mutex_init(&runtime->mutex);
    dur__cond_init(&runtime->changed);
    dur__work_init(&runtime->work);
    dur_provider *inner = NULL;
    OK(dur_open(&inner, url, &err));
    OK(dur__faulty_wrap(&runtime->store, inner, 1, &err));
    OK(dur__options_take(
        runtime, DUR_RUNTIME(.store = runtime->store, .handlers = handlers, .max_sessions = max_sessions), &err));
    OK(dur_registry_new(&runtime->registries[0], &err));
    runtime->registry_count = 1;
    OK(dur_registry_add(runtime->registries[0], handlers, &err));
    dur__fleet_take(runtime);
    runtime->world = dur_world_real();
    runtime->has_owners = true;
    OK(dur__keeper_register(runtime, &err));
    snprintf(runtime->session_owner_own, sizeof(runtime->session_owner_own), "node");
    runtime->loop_count = loops;
    runtime->loops = calloc(loops, sizeof(dur__loop));
    for (size_t i = 0; i < loops; i++)
        OK(dur__loop_open(&runtime->loops[i], runtime, (unsigned)i, &err));
    assert_true(dur__loop_has_memory(&runtime->loops[0]));
    dur__loop_covered(&runtime->loops[0]); /* whatever a test calls runs under the reserve of a loop's pass */
    OK(dur_client_new(&client, runtime->store, &err));
}

static void down(void) {
    dur_client_free(client);
    dur__cover_end(&runtime->loops[0].cover);
    for (size_t i = 0; i < runtime->loop_count; i++)
        dur__loop_close(&runtime->loops[i]);
    dur__runtime_release(runtime);
}

/* One pass of a loop: run what is ready, and one exchange with the store. */
static void pass(dur__loop *loop) {
    assert_true(dur__loop_has_memory(&runtime->loops[0]));
    dur__loop_take_done(loop);
    dur__loop_run_ready(loop);
    dur__round(loop);
}

static void start(const char *name, const char *instance) {
    OK(dur_client_start(client, &err, name, instance, .instance = instance));
}

/* A worker takes the oldest task of the local queue … */
static dur__task *worker_takes(void) {
    dur__work *work = &runtime->work;
    dur__link *link = dur__list_pop(&work->queue);
    assert_non_null(link);
    dur__task *task = DUR__CONTAINER(link, dur__task, link);
    dur__list_push(&work->running, link);
    work->queued--;
    work->running_count++;
    atomic_store(&task->state, DUR__TASK_RUNNING);
    return task;
}

/* … and has done it; whom it is for is the caller's next line. */
static void worker_ends(dur__task *task) {
    dur__task_complete(task, "done");
    dur__mutex_lock(&runtime->work.mutex);
    atomic_store(&task->state, DUR__TASK_DONE);
    dur__work_finished(runtime, task);
    dur__mutex_unlock(&runtime->work.mutex);
}

static void expect_done(const char *instance) {
    char *result = NULL;
    OK(dur_client_result(&result, client, instance, 0, &err));
    assert_string_equal(result, "done");
    dur_free(result);
}

/* ---- completions between loops ---- */

/* An instance at the first loop, its activity taken from the shared queue by the second. */
static dur__task *crossed(void) {
    up(2, 0);
    dur__loop *first = &runtime->loops[0], *second = &runtime->loops[1];
    start("OneStep", "a");
    pass(first);
    assert_int_equal(first->instances.count, 1);
    first->work_waiting_long = true; /* so that it does not lock the work for itself */
    pass(first);
    assert_int_equal(runtime->work.queued, 0);
    pass(second);
    dur__task *task = worker_takes();
    assert_ptr_equal(task->loop, second);
    worker_ends(task);
    return task;
}

static void a_completion_goes_to_the_loop_that_holds_the_instance(void **state) {
    (void)state;
    dur__task *task = crossed();
    dur__loop *first = &runtime->loops[0], *second = &runtime->loops[1];
    dur__loop_done(second, task);
    dur__loop_take_done(second);
    assert_true(dur__list_empty(&second->acks)); /* not through the store */
    assert_ptr_equal(atomic_load(&first->done), task);
    pass(first);
    expect_done("a");
    dur_queue_depths depths = { 0 };
    OK(dur_store_get_queue_depths(runtime->store, &depths, &err));
    assert_int_equal(depths.worker_queue, 0); /* its row went with the turn */
    down();
}

static void a_loop_that_gave_the_instance_up_meanwhile_sends_it_through_the_store(void **state) {
    (void)state;
    dur__task *task = crossed();
    dur__loop *first = &runtime->loops[0], *second = &runtime->loops[1];
    dur__loop_done(second, task);
    dur__loop_take_done(second);
    dur__inst *inst = dur__map_get(&first->instances, "a");
    dur__release(inst, 0, false, true);
    dur__round(first); /* the lease is gone before the completion is looked at */
    assert_int_equal(first->instances.count, 0);
    dur__loop_take_done(first);
    assert_false(dur__list_empty(&first->acks)); /* one way at a time: not back to where it came from */
    assert_null(atomic_load(&second->done));
    pass(first);
    second->look_instances = true;
    pass(second); /* whoever looks first has it now */
    pass(first);
    pass(second);
    expect_done("a");
    down();
}

static void a_completion_that_nobody_here_waits_for_goes_through_the_store(void **state) {
    (void)state;
    dur__task *task = crossed();
    dur__loop *first = &runtime->loops[0], *second = &runtime->loops[1];
    dur__release(dur__map_get(&first->instances, "a"), 0, false, true);
    dur__round(first);
    assert_null(dur__directory_get(runtime, "a"));
    dur__route_completion(second, task);
    assert_false(dur__list_empty(&second->acks));
    pass(second);
    pass(second);
    pass(second);
    expect_done("a");
    down();
}

/* We were taken for dead.  The second loop has begun again under the new id, and taken the activity once more; the
   first has not heard of it yet. */
static void a_completion_of_the_new_owner_waits_for_a_loop_that_has_the_old_one(void **state) {
    (void)state;
    dur__task *task = crossed();
    dur__loop *first = &runtime->loops[0], *second = &runtime->loops[1];
    task->epoch = ++second->epoch;
    dur__loop_done(second, task);
    dur__loop_take_done(second);
    dur__loop_take_done(first);
    assert_ptr_equal(atomic_load(&first->done), task); /* its row is locked, and nobody else ends it */
    first->epoch = second->epoch;
    dur__inst_free(dur__map_get(&first->instances, "a"));
    dur__loop_take_done(first);
    assert_false(dur__list_empty(&first->acks));
    down();
}

/* ---- sessions that were left out ---- */

static void sessions_that_were_left_out_are_looked_for_again(void **state) {
    (void)state;
    up(1, 1);
    dur__loop *loop = &runtime->loops[0];
    start("InSession", "a");
    pass(loop);
    pass(loop);
    dur__task *a = worker_takes(); /* the one session that this node may have */
    start("InSession", "b");
    pass(loop);
    pass(loop);
    pass(loop);
    assert_int_equal(runtime->work.blocked_count, 1); /* taken, and waits here for the session to end */
    start("InSession", "c");
    pass(loop);
    pass(loop);
    loop->look_work = true;
    pass(loop); /* with one waiting here already sessions are left out */
    assert_int_equal(runtime->work.blocked_count, 1);
    assert_false(loop->look_work);
    worker_ends(a);
    dur__loop_done(loop, a);
    dur__loop_take_done(loop);
    assert_true(loop->look_work); /* nothing else would ever make it look */
    pass(loop);
    assert_int_equal(runtime->work.blocked_count, 1); /* the third, behind the second */
    expect_done("a");
    for (int i = 0; i < 2; i++) {
        dur__task *task = worker_takes();
        worker_ends(task);
        dur__loop_done(loop, task);
        pass(loop);
    }
    expect_done("b");
    expect_done("c");
    down();
}

/* ---- work that waits too long ---- */

static void what_waited_unstarted_is_given_back(void **state) {
    (void)state;
    up(1, 0);
    dur__loop *loop = &runtime->loops[0];
    start("OneStep", "a");
    pass(loop);
    pass(loop);
    assert_int_equal(runtime->work.queued, 1);
    dur__route_give_back(loop, 100000000); /* nothing has waited so long */
    assert_int_equal(runtime->work.queued, 1);
    dur__route_give_back(loop, 0);
    assert_int_equal(runtime->work.queued, 1); /* it has no row yet: nobody could take it */
    dur__local_share(loop, 0);
    pass(loop);
    assert_int_equal(runtime->work.queued, 1);
    dur__route_give_back(loop, 0);
    assert_int_equal(runtime->work.queued, 0);
    dur_arena *arena = dur_arena_new();
    dur_work_fetch how = { .lock_ms = 1000 };
    dur_leased_work work = { 0 };
    OK(dur_store_fetch_work_item(runtime->store, arena, &how, &work, &err));
    assert_non_null(work.lock_token);        /* another node has it */
    assert_int_equal(work.attempt_count, 1); /* waiting here was no attempt */
    OK(dur_store_abandon_work_item(runtime->store, work.lock_token, 0, true, &err));
    loop->look_work = true;
    pass(loop); /* and it may come back */
    dur__task *task = worker_takes();
    worker_ends(task);
    dur__loop_done(loop, task);
    dur_arena_free(arena);
    down();
}

/* ---- a round that has nothing to ask ---- */

static void a_turn_that_turns_out_to_be_committed_hands_its_work_out(void **state) {
    (void)state;
    up(1, 0);
    dur__loop *loop = &runtime->loops[0];
    start("OneStep", "a");
    pass(loop);
    dur__loop_run_ready(loop);
    dur__inst *inst = dur__map_get(&loop->instances, "a");
    assert_non_null(inst->commit);
    dur_turn_commit committed = *inst->commit;
    OK(dur_store_commit_turns(runtime->store, &committed, 1, &err));
    inst->unknown = true; /* the answer was lost */
    atomic_store(&runtime->phase, DUR__PHASE_DRAIN);
    dur__round(loop); /* it is learned, and then there is nothing left to ask for */
    assert_int_equal(inst->state, DUR__INST_PARKED);
    assert_int_equal(runtime->work.queued, 1);
    assert_int_equal(runtime->work.reserved, 0);
    down();
}

/* ---- what a store's failure holds up ---- */

/* The gate is one for all stores of the process. */
static void a_loop_whose_store_fails_does_not_keep_the_gate_closed(void **state) {
    (void)state;
    up(1, 0);
    dur__loop *loop = &runtime->loops[0];
    loop->suspect_instance = 1; /* it asks for a suspect */
    loop->suspect_last = false;
    dur__faulty_add(runtime->store, &(dur__fault_plan){ .method = "lane_round" });
    dur__round(loop);
    assert_int_equal(dur__faulty_faults(runtime->store), 1);
    assert_true(dur__gate_open());
    down();
}

/* Its commit is tried for ever; what was acquired behind it is not to wait as long. */
static void an_end_that_the_store_refuses_does_not_keep_suspects_out(void **state) {
    (void)state;
    up(1, 0);
    dur__loop *loop = &runtime->loops[0];
    start("OneStep", "a");
    dur__round(loop);
    dur__inst *inst = dur__map_get(&loop->instances, "a");
    assert_true(inst->uncommitted);
    dur__release(inst, 0, false, false);
    dur_turn_commit refused = *inst->commit;
    refused.fault = DUR_TURN_STORE;
    dur_error_set(&refused.error, DUR_ECORRUPT, false, "test", "a page of it cannot be read");
    dur__commit_refused(inst, &refused);
    assert_ptr_equal(dur__map_get(&loop->instances, "a"), inst);
    assert_true(dur__gate_open());
    down();
}

/* ---- suspects: one at a time in the whole process ---- */

/* So many owners have died with it. */
static void dies(const char *name, dur_fetch_kind kind) {
    dur_arena *arena = dur_arena_new();
    dur_leased_work work = { 0 };
    dur_owner_report report = { 0 };
    size_t count = 0;
    dur_handler_filter only = { &name, 1 };
    OK(dur_store_owner_register(runtime->store, &(dur_owner_options){ .owner = "dead", .timeout_ms = 1 }, &err));
    OK(dur_store_fetch_works(runtime->store, arena,
                             &(dur_work_fetch){ .owner = "dead", .handlers = &only, .max = 1, .kind = kind }, &work,
                             &count, &err));
    assert_int_equal(count, 1);
    while (report.taken_over == 0)
        OK(dur_store_owner_beat(runtime->store, dur_runtime_owner(runtime), &report, &err));
    dur_arena_free(arena);
}

/* An activity that dead owners had, and that is a suspect now. */
static void of_the_dead(const char *name) {
    dur_arena *arena = dur_arena_new();
    dur_message_row message;
    static uint64_t id = 1000;
    dur_work_item item = {
        .kind = DUR_WORK_ACTIVITY_EXECUTE, .instance = "gone", .execution_id = 1, .id = ++id, .name = name, .input = ""
    };
    OK(dur_message_row_from_work(&message, arena, &item, &err));
    OK(dur_store_enqueue_for_worker(runtime->store, &message, &err));
    for (int i = 0; i < DUR_SUSPECT_CRASHES; i++)
        dies(name, DUR_FETCH_FRESH);
    for (size_t i = 0; i < runtime->loop_count; i++)
        runtime->loops[i].suspect_work = 1;
    dur_arena_free(arena);
}

static bool suspects_may_run(void) {
    return dur__gate_open();
}

static void a_suspect_that_is_not_registered_here_lets_the_next_one_run(void **state) {
    (void)state;
    up(1, 0);
    of_the_dead("Nobody's");
    pass(&runtime->loops[0]);
    assert_int_equal(runtime->counters.work_items_fetched, 0); /* it is not even taken */
    assert_int_equal(runtime->work.queued, 0);
    assert_true(suspects_may_run());
    of_the_dead("Echo");
    runtime->loops[0].suspect_work = 1;
    pass(&runtime->loops[0]);
    dur__task *task = worker_takes();
    assert_int_not_equal(task->alone, 0);
    assert_false(suspects_may_run());
    worker_ends(task);
    dur__loop_done(&runtime->loops[0], task);
    down();
}

static void a_suspect_that_is_poison_lets_the_next_one_run(void **state) {
    (void)state;
    up(1, 0);
    of_the_dead("Echo");
    dies("Echo", DUR_FETCH_SUSPECT); /* alone */
    runtime->options.max_attempts = 1;
    pass(&runtime->loops[0]);
    assert_int_equal(runtime->work.queued, 0);
    assert_true(suspects_may_run());
    down();
}

static void a_suspect_that_is_forgotten_with_its_owner_lets_the_next_one_run(void **state) {
    (void)state;
    up(1, 0);
    dur__loop *loop = &runtime->loops[0];
    of_the_dead("Echo");
    pass(loop);
    assert_int_equal(runtime->work.queued, 1);
    assert_false(suspects_may_run());
    loop->epoch++; /* we were taken for dead, too */
    dur__route_give_back(loop, 0);
    assert_int_equal(runtime->work.queued, 0);
    assert_true(suspects_may_run());
    down();
}

/* ---- the order of suspects, H105 ---- */

static void all_workers_are_busy(uint64_t since_us) {
    runtime->options.worker_concurrency = 1;
    runtime->options.suspect_alone_ms = 3600000;
    runtime->work.running_count = 1;
    runtime->work.finished_at_us = dur__monotonic_us() - since_us;
}

/* An activity that has crashed less often goes first, also where no worker is free for it in this moment. */
static void fault_h105_a_suspect_instance_waits_for_the_work_that_goes_before_it(void **state) {
    (void)state;
    up(1, 0);
    dur__loop *loop = &runtime->loops[0];
    pass(loop); /* whatever a loop looks for at first */
    loop->look_instances = loop->look_work = false;
    loop->suspect_work_known = true;
    loop->suspect_instance = 2;
    loop->suspect_work = 1;
    all_workers_are_busy(600000000); /* for minutes, and one has ended something since the node began */
    assert_false(dur__round_due(loop, dur__monotonic_us()));
    dur__round(loop);
    assert_true(suspects_may_run()); /* nobody has been asked for */
    loop->look_instances = loop->look_work = false;
    loop->suspect_instance = 1; /* the other way round, and as often: work goes first then, too */
    loop->suspect_work = 2;
    assert_true(dur__round_due(loop, dur__monotonic_us()));
    loop->suspect_instance = 2;
    loop->suspect_work = 0; /* none */
    assert_true(dur__round_due(loop, dur__monotonic_us()));
    loop->suspect_work_known = false; /* perhaps one */
    assert_false(dur__round_due(loop, dur__monotonic_us()));
    loop->suspect_work_known = true;
    loop->suspect_work = 1;
    all_workers_are_busy(UINT64_C(7200000000)); /* longer than anybody runs alone: behind those nobody waits */
    assert_true(dur__round_due(loop, dur__monotonic_us()));
    runtime->work.running_count = 0;
    loop->suspect_instance = loop->suspect_work = 0;
    down();
}

/* ---- a turn without a handler that is refused for its position ---- */

/* It is decided anew by who takes the instance next, and that must not be all that a node does. */
static void fault_h142_an_end_that_is_refused_is_not_tried_at_once(void **state) {
    (void)state;
    up(1, 0);
    dur__loop *loop = &runtime->loops[0];
    start("OneStep", "a");
    dur__round(loop);
    dur__inst *inst = dur__map_get(&loop->instances, "a");
    dur__inst_drop_exec(inst);
    dur__suspend(inst, "test"); /* a commit without a handler */
    dur_turn_commit refused = *inst->commit;
    dur_event_row row = { .event_id = 99999 };
    inst->commit->events = &row; /* one that writes something */
    inst->commit->event_count = 1;
    refused.fault = DUR_TURN_POSITION;
    dur_error_set(&refused.error, DUR_ECONFLICT, false, "test", "another turn stands in its place");
    dur__commit_refused(inst, &refused);
    assert_ptr_equal(dur__map_get(&loop->instances, "a"), inst);
    assert_true(inst->commit->give_back); /* no attempt of the instance */
    assert_true(inst->commit->delay_ms >= 100);
    down();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_completion_goes_to_the_loop_that_holds_the_instance),
        cmocka_unit_test(a_loop_that_gave_the_instance_up_meanwhile_sends_it_through_the_store),
        cmocka_unit_test(a_completion_that_nobody_here_waits_for_goes_through_the_store),
        cmocka_unit_test(a_completion_of_the_new_owner_waits_for_a_loop_that_has_the_old_one),
        cmocka_unit_test(sessions_that_were_left_out_are_looked_for_again),
        cmocka_unit_test(what_waited_unstarted_is_given_back),
        cmocka_unit_test(a_turn_that_turns_out_to_be_committed_hands_its_work_out),
        cmocka_unit_test(a_loop_whose_store_fails_does_not_keep_the_gate_closed),
        cmocka_unit_test(an_end_that_the_store_refuses_does_not_keep_suspects_out),
        cmocka_unit_test(a_suspect_that_is_not_registered_here_lets_the_next_one_run),
        cmocka_unit_test(a_suspect_that_is_poison_lets_the_next_one_run),
        cmocka_unit_test(a_suspect_that_is_forgotten_with_its_owner_lets_the_next_one_run),
        cmocka_unit_test(fault_h105_a_suspect_instance_waits_for_the_work_that_goes_before_it),
        cmocka_unit_test(fault_h142_an_end_that_is_refused_is_not_tried_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
