/*
 * Batching invariance: history is a function of the arrivals, whatever the batches, whoever is evicted and when.
 *
 * From a seed comes a handler (a small program, interpreted) and, in a first run that takes arrivals one by one and is
 * never evicted, a sequence of arrivals.  Further runs get the same sequence in random batches, are freed and replayed
 * from their JSON never, sometimes or after every turn, and must write the same history, byte for byte: time and
 * randomness are functions of the position in history.  What was sent to the queues minus what was taken back must be
 * equal too. The same is done by the rules for histories of the original.
 *
 * DURITE_TEST_SCALE (percent) scales the number of seeds, DURITE_TEST_SEED runs one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "replay/engine.h"
#include "unit/random_program.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the world ---- */

enum { ARRIVALS_MAX = 36, ROWS_MAX = 4000 };

typedef struct message { /* an arrival, as the sequence has it */
    dur_work_item item;
    uint64_t key;
} message;

typedef struct run {
    uint64_t seed;
    bool original, eager;
    rng r; /* of batches and evictions */
    dur__stacks *stacks;
    dur_arena *arena;
    dur__exec *exec;
    uint64_t execution;
    char *rows[ROWS_MAX]; /* of the current execution */
    size_t row_count;
    dur__buf history; /* of all */
    uint64_t balance; /* sent minus taken back */
    dur__buf final;   /* what is told to the outside at the end */
    message waiting[ARRIVALS_MAX + 64];
    size_t waiting_count; /* offered to a freed execution: to be offered again */
    bool over;
    /* first run: what could arrive */
    dur_work_item could[ROWS_MAX];
    size_t could_count;
    bool writing;
    uint64_t last_key;
    char *input;
    const dur_carried *carried;
    size_t carried_count;
    const char *status;
} run;

static uint64_t clock_of(const run *w) {
    return 1000 + w->execution * 100000 + (w->exec ? dur__exec_last_event(w->exec) : 0) * 7;
}

static void position_random(void *data, void *out, size_t size) {
    run *w = data;
    uint64_t value = mix(w->seed ^ mix(w->execution) ^ (w->exec ? dur__exec_last_event(w->exec) : 0));
    for (size_t i = 0; i < size; i++) {
        ((unsigned char *)out)[i] = (unsigned char)(value >> 32);
        value = mix(value);
    }
}

static void exec_make(run *w, const dur_key_value *kv, size_t kv_count) {
    w->exec = dur__exec_new(&(dur__exec_options){ .instance = "i",
                                                  .execution_id = w->execution,
                                                  .name = "P",
                                                  .version = "1.0.0",
                                                  .fn = random_program,
                                                  .stack_bytes = 64 << 10,
                                                  .stacks = w->stacks,
                                                  .kv = kv,
                                                  .kv_count = kv_count,
                                                  .random = position_random,
                                                  .random_data = w,
                                                  .queue_eager = w->eager,
                                                  .cancel_grace_ms = 100 });
}

static uint64_t identity(const dur_work_item *item) {
    uint64_t h = mix((uint64_t)item->kind + item->execution_id * 1000 + item->id * 1000000);
    return item->kind == DUR_WORK_START_ORCHESTRATION ? hash_text(1, item->instance) : h;
}

static void could_forget(run *w, dur_work_kind kind, uint64_t id) {
    for (size_t i = 0; i < w->could_count; i++) {
        if (w->could[i].id != id || w->could[i].kind != kind || w->could[i].execution_id != w->execution) continue;
        w->could[i] = w->could[--w->could_count];
        return;
    }
}

static void collect_items(run *w, const dur__turn *turn) {
    for (size_t i = 0; i < turn->worker_item_count; i++) {
        const dur_work_item *item = &turn->worker_items[i].item;
        w->balance += identity(item);
        w->could[w->could_count++] =
            (dur_work_item){ .kind = DUR_WORK_ACTIVITY_COMPLETED, .execution_id = item->execution_id, .id = item->id };
    }
    for (size_t i = 0; i < turn->orchestrator_item_count; i++) {
        const dur_work_item *item = &turn->orchestrator_items[i].item;
        switch (item->kind) {
        case DUR_WORK_TIMER_FIRED:
            w->balance += identity(item);
            w->could[w->could_count++] = *item;
            break;
        case DUR_WORK_START_ORCHESTRATION:
            w->balance += identity(item);
            if (item->parent_instance != NULL)
                w->could[w->could_count++] = (dur_work_item){ .kind = DUR_WORK_SUB_ORCH_COMPLETED,
                                                              .execution_id = item->parent_execution_id,
                                                              .id = item->parent_id };
            break;
        case DUR_WORK_CANCEL_INSTANCE:
            if (item->cancel_seq == 0)
                w->balance -= hash_text(1, item->instance);
            else
                w->could[w->could_count++] = (dur_work_item){ .kind = DUR_WORK_CANCEL_INSTANCE,
                                                              .cancel_seq = item->cancel_seq,
                                                              .reason = "grace" };
            break;
        default: {
            dur_text json;
            assert_int_equal(dur_work_to_json(&json, w->arena, item, NULL), DUR_OK);
            dur__buf_text(&w->final, json.data);
        }
        }
    }
    for (size_t i = 0; i < turn->cancelled_activity_count; i++) {
        w->balance -= identity(&(dur_work_item){
            .kind = DUR_WORK_ACTIVITY_EXECUTE, .execution_id = w->execution, .id = turn->cancelled_activities[i] });
        could_forget(w, DUR_WORK_ACTIVITY_COMPLETED, turn->cancelled_activities[i]);
    }
    for (size_t i = 0; i < turn->dropped_timer_count; i++) {
        w->balance -= identity(&(dur_work_item){
            .kind = DUR_WORK_TIMER_FIRED, .execution_id = w->execution, .id = turn->dropped_timers[i] });
        could_forget(w, DUR_WORK_TIMER_FIRED, turn->dropped_timers[i]);
    }
}

static void commit(run *w) {
    const dur__turn *turn = dur__exec_turn(w->exec);
    for (size_t i = 0; i < turn->event_count; i++) {
        char *row = dur__xstrdup(turn->events[i].json.data);
        if (w->original) { /* without the mark it is a history of the original */
            char *mark = strstr(row, ",\"trace\":1");
            if (mark != NULL) memmove(mark, mark + 10, strlen(mark + 10) + 1);
        }
        assert_true(w->row_count < ROWS_MAX);
        w->rows[w->row_count++] = row;
        dur__buf_text(&w->history, row);
        dur__buf_char(&w->history, '\n');
    }
    collect_items(w, turn);
    if (turn->end == DUR__END_CONTINUED) { /* the ContinueAsNew item tells the rest */
        for (size_t i = 0; i < turn->orchestrator_item_count; i++) {
            const dur_work_item *item = &turn->orchestrator_items[i].item;
            if (item->kind != DUR_WORK_CONTINUE_AS_NEW) continue;
            w->input = dur_arena_strdup(w->arena, item->input);
            w->status = dur_arena_strdup(w->arena, item->initial_custom_status);
            dur_carried *carried = dur_arena_alloc(w->arena, (item->carry_forward_count + 1) * sizeof(*carried));
            for (size_t c = 0; c < item->carry_forward_count; c++)
                carried[c] = (dur_carried){ dur_arena_strdup(w->arena, item->carry_forward_events[c].name),
                                            dur_arena_strdup(w->arena, item->carry_forward_events[c].data) };
            w->carried = carried;
            w->carried_count = item->carry_forward_count;
        }
    }
    for (dur__link *link; (link = dur__list_pop(turn->consumed)) != NULL;)
        free(DUR__CONTAINER(link, dur__arrival, link));
    dur__exec_turn_done(w->exec);
}

static void broken(const run *w, const char *where, const dur_error *err) {
    fail_msg("seed %" PRIu64 ": %s: %s\n%s", w->seed, where, err->message, dur__buf_str(&w->history));
}

static void offer(run *w, const message *m) {
    dur__arrival *arrival = dur__xcalloc(1, sizeof(*arrival));
    arrival->item = m->item;
    arrival->item.instance = "i";
    arrival->order_ms = m->key;
    arrival->order_id = 1;
    dur__exec_offer(w->exec, arrival);
}

static void drain(run *w) {
    dur__left verdict;
    for (dur__arrival *left; (left = dur__exec_drain(w->exec, &verdict)) != NULL;) {
        if (verdict == DUR__LEFT_KEEP) w->waiting[w->waiting_count++] = (message){ left->item, left->order_ms };
        free(left);
    }
}

static void offer_waiting(run *w) {
    for (size_t i = 0; i < w->waiting_count; i++)
        offer(w, &w->waiting[i]);
    w->waiting_count = 0;
}

static void evict(run *w) {
    dur_error err;
    drain(w);
    dur__exec_free(w->exec);
    w->exec = NULL;
    exec_make(w, NULL, 0);
    dur_arena *arena = dur_arena_new();
    for (size_t i = 0; i < w->row_count; i++) {
        dur_event event;
        assert_int_equal(dur_event_from_json(&event, arena, (dur_text){ w->rows[i], strlen(w->rows[i]) }, &err),
                         DUR_OK);
        if (dur__exec_replay_event(w->exec, &event, &err) != DUR_OK) broken(w, "replay", &err);
        dur_arena_reset(arena);
    }
    if (dur__exec_replay_end(w->exec, &err) != DUR_OK) broken(w, "end of replay", &err);
    assert_int_equal(dur__exec_turn(w->exec)->event_count, 0);
    dur_arena_free(arena);
    offer_waiting(w);
}

static void begin(run *w) {
    dur_error err;
    for (size_t i = 0; i < w->row_count; i++)
        free(w->rows[i]);
    w->row_count = 0;
    w->execution++;
    exec_make(w, NULL, 0);
    w->exec->original = w->original;
    offer_waiting(w);
    dur__exec_begin start = { .input = w->input,
                              .order_ms = w->last_key,
                              .order_id = 2,
                              .parent = { .instance = "dad", .has_id = true, .id = 4 },
                              .carried = w->original ? NULL : w->carried,
                              .carried_count = w->original ? 0 : w->carried_count,
                              .initial_custom_status = w->status };
    if (dur__exec_start(w->exec, &start, clock_of(w), &err) != DUR_OK) broken(w, "start", &err);
    commit(w);
}

/* Nothing can be taken any more, or the execution has ended: then the next one begins, or all is over. */
static void turn_over(run *w) {
    while (!w->over && dur__exec_finished(w->exec)) {
        dur__end end = w->exec->end;
        drain(w);
        dur__exec_free(w->exec);
        w->exec = NULL;
        if (end != DUR__END_CONTINUED)
            w->over = true;
        else
            begin(w);
    }
}

static void work(run *w, uint32_t evictions, uint32_t lazy) {
    dur_error err;
    for (bool took = true; took && !w->over;) {
        if (dur__exec_step(w->exec, clock_of(w), &took, &err) != DUR_OK) broken(w, "step", &err);
        if (took && lazy != 0 && pick(&w->r, lazy) != 0 && !dur__exec_finished(w->exec)) continue; /* a longer turn */
        w->last_key = w->exec->group_ms != UINT64_MAX ? w->exec->group_ms : w->last_key;
        commit(w);
        turn_over(w);
        if (!w->over && evictions != 0 && pick(&w->r, evictions) == 0) evict(w);
    }
}

static dur_work_item invent(run *w, rng *r) {
    static const char *const events[] = { "e0", "e1" }, *const queues[] = { "q0", "q1" };
    dur_failure *details = dur_arena_zalloc(w->arena, sizeof(*details));
    details->category = DUR_FAILURE_APPLICATION;
    details->message = dur_arena_format(w->arena, "x%u", pick(r, 100));
    details->retryable = pick(r, 4) != 0;
    const char *text = dur_arena_format(w->arena, "v%u", pick(r, 1000));
    uint32_t kind = pick(r, 24);
    if (kind == 0 && pick(r, 4) == 0) return (dur_work_item){ .kind = DUR_WORK_CANCEL_INSTANCE, .reason = text };
    if (kind <= 3) return (dur_work_item){ .kind = DUR_WORK_EXTERNAL_RAISED, .name = events[pick(r, 2)], .data = text };
    if (kind <= 8) return (dur_work_item){ .kind = DUR_WORK_QUEUE_MESSAGE, .name = queues[pick(r, 2)], .data = text };
    if (kind == 9)
        return (dur_work_item){ .kind = DUR_WORK_TIMER_FIRED, .execution_id = w->execution, .id = 1 + pick(r, 40) };
    if (w->could_count == 0)
        return (dur_work_item){ .kind = DUR_WORK_EXTERNAL_RAISED, .name = events[pick(r, 2)], .data = text };
    size_t at = pick(r, (uint32_t)w->could_count);
    dur_work_item item = w->could[at];
    if (pick(r, 20) != 0) w->could[at] = w->could[--w->could_count]; /* else it may come twice */
    if (item.kind == DUR_WORK_ACTIVITY_COMPLETED || item.kind == DUR_WORK_SUB_ORCH_COMPLETED) {
        item.result = text;
        if (pick(r, 4) == 0) {
            item.kind = item.kind == DUR_WORK_ACTIVITY_COMPLETED ? DUR_WORK_ACTIVITY_FAILED : DUR_WORK_SUB_ORCH_FAILED;
            item.details = details;
            if (pick(r, 30) == 0) details->category = DUR_FAILURE_INFRASTRUCTURE, details->operation = "op";
        }
    }
    return item;
}

static void run_init(run *w, uint64_t seed, uint64_t variant, bool original) {
    memset(w, 0, sizeof(*w));
    w->seed = seed;
    w->original = original;
    w->eager = seed % 5 == 0; /* a store that cannot leave messages in the queue */
    w->r.state = mix(seed * 31 + variant);
    w->arena = dur_arena_new();
    w->input = dur_arena_format(w->arena, "%" PRIx64, seed);
}

static void run_end(run *w) {
    if (w->exec != NULL) drain(w);
    dur__exec_free(w->exec);
    for (size_t i = 0; i < w->row_count; i++)
        free(w->rows[i]);
    dur__buf_free(&w->history);
    dur__buf_free(&w->final);
    dur_arena_free(w->arena);
}

static size_t first_run(run *w, message *sequence) {
    rng r = { mix(w->seed ^ 0xa11) };
    size_t count = 0;
    begin(w);
    turn_over(w);
    while (count < ARRIVALS_MAX && !w->over) {
        sequence[count] = (message){ invent(w, &r), count + 1 };
        offer(w, &sequence[count++]);
        work(w, 0, 0);
    }
    return count;
}

static void other_run(run *w, const message *sequence, size_t count, uint32_t batch, uint32_t evictions,
                      uint32_t lazy) {
    begin(w);
    turn_over(w);
    for (size_t at = 0; at < count && !w->over;) {
        size_t size = 1 + pick(&w->r, batch), before = at;
        for (size_t i = 0; i < size && at < count; i++) { /* nothing comes for an execution that does not exist yet */
            if (sequence[at].item.execution_id > w->execution) break;
            offer(w, &sequence[at++]);
        }
        if (at == before) return; /* that execution will never be: the histories differ */
        work(w, evictions, lazy);
    }
}

static void compare(const run *a, const run *b, const char *what) {
    if (strcmp(dur__buf_str(&a->history), dur__buf_str(&b->history)) != 0)
        fail_msg("seed %" PRIu64 ": %s: histories differ\n--- one by one\n%s--- %s\n%s", a->seed, what,
                 dur__buf_str(&a->history), what, dur__buf_str(&b->history));
    if (a->balance != b->balance || strcmp(dur__buf_str(&a->final), dur__buf_str(&b->final)) != 0)
        fail_msg("seed %" PRIu64 ": %s: the effects differ\n%s\n%s", a->seed, what, dur__buf_str(&a->history),
                 dur__buf_str(&b->history));
}

static run reference, other;
static size_t events_seen, cancelled_seen, continued_seen, completed_seen;

static void check_seed(dur__stacks *stacks, uint64_t seed, bool original) {
    static const struct {
        const char *name;
        uint32_t batch, evictions, lazy;
    } variants[] = {
        { "one by one, evicted always", 1, 1, 0 },
        { "random batches, evicted never", 6, 0, 3 },
        { "random batches, evicted sometimes", 6, 4, 3 },
        { "all at once, evicted always", 100, 1, 2 },
    };
    message sequence[ARRIVALS_MAX];
    run_init(&reference, seed, 0, original);
    reference.stacks = stacks;
    size_t count = first_run(&reference, sequence);
    const char *history = dur__buf_str(&reference.history);
    cancelled_seen += strstr(history, "OrchestrationCancelRequested") != NULL;
    continued_seen += strstr(history, "OrchestrationContinuedAsNew") != NULL;
    completed_seen += strstr(history, "OrchestrationCompleted") != NULL;
    for (size_t i = 0; i < 2; i++) {
        size_t v = (seed + i * 2 + i) % 4;
        run_init(&other, seed, v + 1, original);
        other.stacks = stacks;
        other_run(&other, sequence, count, variants[v].batch, variants[v].evictions, variants[v].lazy);
        compare(&reference, &other, variants[v].name);
        events_seen += other.row_count;
        run_end(&other);
    }
    run_end(&reference);
}

static void run_seeds(bool original, double share) {
    const char *one = getenv("DURITE_TEST_SEED"), *scale = getenv("DURITE_TEST_SCALE");
    dur__stacks *stacks = dur__stacks_new();
    uint64_t seeds = (uint64_t)(10000 * share * (scale != NULL ? strtod(scale, NULL) / 100 : 1));
    if (seeds < 100) seeds = 100;
    if (one != NULL) {
        check_seed(stacks, strtoull(one, NULL, 10), original);
    } else {
        for (uint64_t seed = 1; seed <= seeds; seed++)
            check_seed(stacks, seed, original);
    }
    assert_int_equal(dur__stacks_in_use(stacks), 0);
    dur__stacks_free(stacks);
}

static void test_trace(void **state) {
    (void)state;
    events_seen = cancelled_seen = continued_seen = completed_seen = 0;
    run_seeds(false, 1);
    printf("%zu events, %zu cancelled, %zu continued, %zu completed\n", events_seen, cancelled_seen, continued_seen,
           completed_seen);
    if (getenv("DURITE_TEST_SEED") == NULL) { /* a test that never meets them would be none */
        assert_true(cancelled_seen > 0);
        assert_true(continued_seen > 0);
        assert_true(completed_seen > 0);
    }
}

static void test_original(void **state) {
    (void)state;
    run_seeds(true, 0.2);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_trace), cmocka_unit_test(test_original) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
