/*
 * hostile_runtime.c: handlers that do not return, histories and messages that cannot be read, locks that are short.
 */
#include "hostile.h"

#include <dirent.h>

/* ---- H17: a handler that loops or blocks ---- */

static atomic_bool block, go_on, warned, inside, gave_up;
static char warned_of[64];

static void wait_for(atomic_bool *what) {
    for (uint64_t waited = 0; !atomic_load(what) && waited < patience_ms(); waited++)
        pause_ms(1);
}

/* Only the first time: whoever takes the instance over is let through. */
static void block_once(void) {
    if (!atomic_exchange(&block, false)) return;
    atomic_store(&inside, true);
    wait_for(&go_on);
    if (!atomic_load(&go_on)) atomic_store(&gave_up, true);
}

static dur_outcome blocks(dur_ctx *ctx, const char *input) {
    (void)input;
    const char *got = dur_await(dur_activity(ctx, "Echo", "a"));
    block_once();
    return dur_completef(ctx, "%s done", got);
}

static dur_outcome blocks_first(dur_ctx *ctx, const char *input) {
    block_once();
    return dur_complete(ctx, input);
}

static void drop_blocks(void *unused) {
    (void)unused;
    block_once();
}

static dur_outcome blocks_dropped(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_on_drop(ctx, drop_blocks, NULL);
    return dur_complete(ctx, dur_await(dur_event(ctx, "Go")));
}

static dur_outcome plain(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input)));
}

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static const dur_handler stuck_handlers[] = { DUR_ORCHESTRATION("Blocks", NULL, blocks),
                                              DUR_ORCHESTRATION("BlocksFirst", NULL, blocks_first),
                                              DUR_ORCHESTRATION("BlocksDropped", NULL, blocks_dropped),
                                              DUR_ORCHESTRATION("Plain", NULL, plain),
                                              DUR_ACTIVITY("Echo", echo),
                                              DUR_HANDLERS_END };

static size_t threads(void) {
    size_t count = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void until_threads(size_t count) {
    for (uint64_t waited = 0; threads() > count; waited++) {
        if (waited > patience_ms()) fail_msg("%zu threads, there were %zu", threads(), count);
        pause_ms(1);
    }
}

static void stuck_begin(void) {
    atomic_store(&go_on, false);
    atomic_store(&warned, false);
    atomic_store(&gave_up, false);
    atomic_store(&inside, false);
    atomic_store(&block, true);
}

/* The stop names the handler, its instance and its last line; the store and everything else go on. */
static void stop_is_busy(world *w, const char *name, const char *instance) {
    assert_int_equal(dur_runtime_stop(w->runtime, 50, &w->err), DUR_EBUSY);
    w->runtime = NULL;
    const char *named[] = { name, instance, "hostile_runtime.c:" };
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++)
        if (strstr(w->err.message, named[i]) == NULL) fail_msg("no \"%s\" in: %s", named[i], w->err.message);
    start(w, "Plain", "still here", "after");
    RUN(w, stuck_handlers);
    expect(w, "after", "still here");
}

static void fault_h17_a_stop_returns_while_a_handler_blocks(void **state) {
    world *w = *state;
    stuck_begin();
    size_t before = threads();
    RUN(w, stuck_handlers);
    start(w, "Blocks", "", "stuck");
    wait_for(&inside);
    stop_is_busy(w, "Blocks", "stuck");
    expect(w, "stuck", "a done"); /* by the second runtime, while the first handler still blocks */
    world_stop(w);
    atomic_store(&go_on, true);
    until_threads(before);
    expect(w, "stuck", "a done");
}

static void fault_h17_a_stop_returns_while_a_drop_blocks(void **state) {
    world *w = *state;
    stuck_begin();
    size_t before = threads();
    RUN(w, stuck_handlers);
    start(w, "BlocksDropped", "", "dropped");
    until_history(w, "dropped", "\"ExternalSubscribed\"", 1);
    stop_is_busy(w, "BlocksDropped", "dropped");
    OK(w, dur_client_raise(w->client, &w->err, "dropped", "Go", "now"));
    expect(w, "dropped", "now");
    world_stop(w);
    atomic_store(&go_on, true);
    until_threads(before);
}

/* Whoever starts it need not wait for its first turn for ever. */
static void fault_h17_a_start_is_answered_while_its_first_turn_blocks(void **state) {
    world *w = *state;
    RUN(w, stuck_handlers);
    start(w, "Plain", "1", "before"); /* from now on the loop is there to take starts */
    expect(w, "before", "1");
    stuck_begin();
    start(w, "BlocksFirst", "x", "first");
    atomic_store(&go_on, true);
    expect(w, "first", "x");
    assert_false(atomic_load(&gave_up));
}

static void hear(void *unused, const dur_log_record *record) {
    (void)unused;
    if (record->level > DUR_LOG_WARN || strstr(record->message, "\"Blocks\"") == NULL) return;
    if (atomic_exchange(&warned, true)) return;
    snprintf(warned_of, sizeof(warned_of), "%s",
             strstr(record->message, "hostile_runtime.c:") != NULL ? "with its line" : record->message);
    atomic_store(&go_on, true);
}

static void fault_h17_a_slow_turn_is_said_while_it_lasts(void **state) {
    world *w = *state;
    stuck_begin();
    assert_int_equal(dur_log_set_sink(hear, NULL, DUR_LOG_WARN), DUR_OK);
    RUN(w, stuck_handlers);
    start(w, "Blocks", "", "slow");
    wait_for(&inside);
    wait_for(&go_on); /* the warning lets the handler go */
    expect(w, "slow", "a done");
    dur_log_set_sink(NULL, NULL, DUR_LOG_WARN);
    assert_true(atomic_load(&warned) && !atomic_load(&gave_up));
    assert_string_equal(warned_of, "with its line");
}

static const hostile_role roles[] = { { "none", NULL } };

static const struct CMUnitTest tests[] = {
    TEST(fault_h17_a_stop_returns_while_a_handler_blocks),
    TEST(fault_h17_a_stop_returns_while_a_drop_blocks),
    TEST(fault_h17_a_start_is_answered_while_its_first_turn_blocks),
    TEST(fault_h17_a_slow_turn_is_said_while_it_lasts),
};

HOSTILE_MAIN(roles, tests)
