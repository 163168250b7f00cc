/*
 * testing_run.c: what happens next: one move after the other, and then time.
 *
 * A move is the smallest thing between whose two ends a node can die: one step of the node, what one activity does, the
 * moment in which the node hears of its end, or the arrival of a client's message.
 */
#include "testing_internal.h"

#define STEPS_MAX 1000000u
#define REPLAYED_A_STEP 10u /* so many replayed events are a step */
#define SLICE_MS 10u        /* of a node that goes on and on */
#define SLICE_MOVES 20000u
#define RUNTIME_DUE_MAX_MS 3600000u /* what dur_runtime_due_ms says at most */

typedef enum move_kind { MOVE_NONE, MOVE_NODE, MOVE_END, MOVE_RUN, MOVE_LETTER } move_kind;

typedef struct move {
    move_kind kind;
    size_t index;
} move;

/* ---- what could happen ---- */

static size_t count_acts(const dur_test *t, bool ends) {
    size_t count = 0;
    for (size_t i = 0; i < t->held_count; i++)
        count += ends ? dur__test_may_end(t, i) : !t->held[i].runs;
    return count;
}

static size_t find_act(const dur_test *t, bool ends, size_t number) {
    for (size_t i = 0; i < t->held_count; i++)
        if ((ends ? dur__test_may_end(t, i) : !t->held[i].runs) && number-- == 0) return i;
    return 0;
}

/* In the order in which things happen where nothing is in a hurry: the node first, what a client has still under way
   last. */
static move choose_move(dur_test *t) {
    size_t node = t->stirred, ends = count_acts(t, true), runs = count_acts(t, false);
    size_t count = node + ends + runs + dur__test_letters(t);
    if (count == 0) return (move){ MOVE_NONE, 0 };
    size_t pick = dur__explore_pick(t, count);
    if (pick < node) return (move){ MOVE_NODE, 0 };
    pick -= node;
    if (pick < ends) return (move){ MOVE_END, find_act(t, true, pick) };
    pick -= ends;
    if (pick < runs) return (move){ MOVE_RUN, find_act(t, false, pick) };
    return (move){ MOVE_LETTER, dur__test_find_letter(t, pick - runs) };
}

/* ---- one move ---- */

/* A loop that never ends costs with each turn as much as its history is long, where each turn is replayed. */
static void count_replayed(dur_test *t) {
    dur_metrics metrics = { .size = sizeof(metrics) };
    if (dur_runtime_metrics(&metrics, t->runtime, NULL) != DUR_OK) return;
    t->replayed += metrics.replayed_events - t->node_replayed;
    t->node_replayed = metrics.replayed_events;
}

static int move_node(dur_test *t, dur_error *err) {
    int code = dur__test_node(t, err);
    if (code != DUR_OK) return code;
    if (t->explorer != NULL) {
        code = dur_runtime_step(t->runtime, 0, err);
        t->stirred = dur_runtime_next_ms(t->runtime) == 0;
    } else {
        code = dur_runtime_run_until_idle(t->runtime, SLICE_MS, err);
        t->stirred = code == DUR_ETIMEOUT;
        if (t->stirred) t->moves += SLICE_MOVES;
        if (t->stirred) code = DUR_OK;
    }
    count_replayed(t);
    if (code == DUR_OK) code = dur__test_take(t, err);
    dur__story_events(t);
    return code;
}

bool dur__test_move(dur_test *t, dur_error *err) {
    if (t->explorer != NULL) dur__explore_fault(t, err);
    move next = choose_move(t);
    t->moves++;
    switch (next.kind) {
    case MOVE_NODE:
        return move_node(t, err) == DUR_OK;
    case MOVE_END:
        dur__test_end_act(t, next.index);
        return true;
    case MOVE_RUN:
        dur__test_run_act(t, next.index);
        return true;
    case MOVE_LETTER:
        dur__test_deliver(t, next.index);
        return true;
    case MOVE_NONE:
        break;
    }
    return false;
}

/* ---- time ---- */

/* A runtime says an hour at most.  Whoever goes from hour to hour through a wait of a year meets thousands of moments
   in which nothing happens: the store knows the next in which something may. */
static uint64_t node_due_ms(dur_test *t) {
    uint64_t due_ms = t->runtime != NULL ? dur_runtime_due_ms(t->runtime) : UINT64_MAX;
    if (due_ms == UINT64_MAX || due_ms < RUNTIME_DUE_MAX_MS - 1000) return due_ms;
    dur_round round = { .next_due_ms = DUR_NEVER };
    dur_arena *arena = dur_arena_new();
    if (arena == NULL) return due_ms;
    int code = dur_store_lane_round(t->lane, arena, &round, NULL);
    dur_arena_free(arena);
    if (code != DUR_OK || round.next_due_ms == DUR_NEVER || round.next_due_ms <= round.now_ms) return due_ms;
    uint64_t store_ms = round.next_due_ms - round.now_ms;
    return store_ms > due_ms ? store_ms : due_ms;
}

static uint64_t time_left_ms(const dur_test *t) {
    uint64_t now_ms = dur__test_boot_ms(t);
    return now_ms < DUR__TIME_MAX_MS ? DUR__TIME_MAX_MS - now_ms : 0;
}

uint64_t dur__test_due_ms(dur_test *t) {
    uint64_t due_ms = node_due_ms(t);
    uint64_t now_ms = dur__test_boot_ms(t);
    for (size_t i = 0; i < t->held_count; i++) {
        if (!t->held[i].ran) continue;
        uint64_t left_ms = t->held[i].end_ms > now_ms ? t->held[i].end_ms - now_ms : 0;
        if (left_ms < due_ms) due_ms = left_ms;
    }
    return due_ms <= time_left_ms(t) ? due_ms : UINT64_MAX;
}

void dur__test_pass(dur_test *t, uint64_t ms) {
    dur_fake_world_advance(t->world, ms);
    t->stirred = true;
    for (size_t i = 0; i < t->letter_count; i++)
        t->letters[i].waits -= t->letters[i].waits > 0;
}

/* ---- runs ---- */

static int enter(dur_test *t, const char *op, dur_error *err) {
    if (t == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "a test is required");
    if (t->running) return dur_error_set(err, DUR_EDEADLK, false, op, "called by an activity, which the run waits for");
    dur_error_clear(err);
    dur__test_enter(t);
    return DUR_OK;
}

static uint64_t steps(const dur_test *t) {
    return t->moves + t->replayed / REPLAYED_A_STEP;
}

static int check_steps(const dur_test *t, uint64_t begin, const char *op, dur_error *err) {
    if (steps(t) - begin < STEPS_MAX) return DUR_OK;
    bool replays = t->replayed / REPLAYED_A_STEP > t->moves;
    return dur_error_set(err, DUR_ELIMIT, false, op, "it goes on and on: a million steps, and there is more to do%s",
                         replays ? " (mostly replays of a history that grows: see no_double_run)" : "");
}

/* Where each wait is to be survived: whatever was recorded since the last death is there for the next node. */
static int crash_if_asked(dur_test *t, dur_error *err) {
    dur_store_counts counts = { .size = sizeof(counts) };
    if (!t->options.crash_every_wait || t->runtime == NULL) return DUR_OK;
    int code = dur_client_counts(&counts, t->client, err);
    if (code != DUR_OK || counts.total_events == t->crash_events) return code;
    t->crash_events = counts.total_events;
    return dur_test_crash(t, err);
}

/* begin: how many steps there had been when the call began.  early: a scenario may go on before everything is quiet. */
static int run_until_blocked(dur_test *t, uint64_t begin, bool early, const char *op, dur_error *err) {
    dur_error why = DUR_ERROR_INIT;
    t->running = true;
    uint32_t moves = UINT32_MAX;
    bool pauses = early && dur__explore_pause(t, &moves);
    int code = DUR_OK;
    while (code == DUR_OK && moves > 0 && dur__test_move(t, &why)) {
        if (pauses) moves--;
        code = check_steps(t, begin, op, &why);
        if (code == DUR_OK && !t->stirred) code = crash_if_asked(t, &why);
    }
    t->running = false;
    if (why.code != DUR_OK && err != NULL) *err = why;
    return (int)why.code;
}

int dur_test_run_until_blocked(dur_test *t, dur_error *err) {
    int code = enter(t, "test.run_until_blocked", err);
    return code == DUR_OK ? run_until_blocked(t, steps(t), true, "test.run_until_blocked", err) : code;
}

int dur_test_advance(dur_test *t, uint64_t ms, dur_error *err) {
    static const char op[] = "test.advance";
    int code = enter(t, op, err);
    if (code != DUR_OK) return code;
    uint64_t begin = steps(t), left_ms = ms < time_left_ms(t) ? ms : time_left_ms(t);
    code = run_until_blocked(t, begin, true, op, err);
    while (code == DUR_OK && left_ms > 0) {
        uint64_t due_ms = dur__test_due_ms(t);
        if (due_ms > left_ms) due_ms = left_ms;
        dur__test_pass(t, due_ms);
        left_ms -= due_ms;
        t->moves++;
        code = run_until_blocked(t, begin, true, op, err);
    }
    return code;
}

/* DUR_ERUNNING: it has not ended. */
static int look_for_end(dur_test *t, const char *instance, const char *op, dur_error *err) {
    dur_instance_info *info = NULL;
    int code = dur_client_info(&info, t->client, instance, err);
    if (code != DUR_OK) return code;
    code = DUR_ERUNNING;
    if (info->status == DUR_INSTANCE_COMPLETED || info->status == DUR_INSTANCE_FAILED)
        code = DUR_OK;
    else if (info->suspended)
        code = dur_error_set(err, DUR_ESUSPENDED, false, op, "%s",
                             info->suspend_reason != NULL ? info->suspend_reason : "suspended");
    dur_instance_info_free(info);
    return code;
}

int dur_test_run_to_end(dur_test *t, const char *instance, dur_error *err) {
    static const char op[] = "test.run_to_end";
    int code = enter(t, op, err);
    if (code != DUR_OK) return code;
    if (instance == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "an instance is required");
    uint64_t begin = steps(t);
    for (;;) {
        code = run_until_blocked(t, begin, false, op, err); /* what can happen happens: "never" is said of the rest */
        if (code == DUR_OK) code = look_for_end(t, instance, op, err);
        if (code != DUR_ERUNNING) return code;
        uint64_t due_ms = dur__test_due_ms(t);
        if (due_ms == UINT64_MAX && dur__test_hurry(t)) continue;
        if (due_ms == UINT64_MAX)
            return dur_error_set(err, DUR_ETIMEOUT, false, op,
                                 "instance \"%.100s\" will never end: nothing happens by itself, and it waits for: %s",
                                 instance, dur_test_waits_text(t, instance));
        dur__test_pass(t, due_ms);
        t->moves++;
    }
}
