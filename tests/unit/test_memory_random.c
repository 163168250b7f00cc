/*
 * test_memory_random.c: the memory store shaken at random, its invariants checked after every step.
 *
 * Two runtimes with lanes and a few plain callers work on a handful of instances while time moves, jumps, owners die,
 * and operators delete, suspend and terminate.  Checked beside the store's own invariants: a lane is given a message at
 * most once per acquisition, and nobody is given a message that was consumed.
 */
#include "store_help.h"

#include "base/map.h"

#include <stdlib.h>

enum { INSTANCES = 6, LANES = 2, HELD_MAX = 64, STEPS = 250 };

typedef struct held {
    char instance[8], token[40];
    uint64_t execution, last_event;
    uint64_t ids[64];
    size_t id_count;
} held;

typedef struct shaken_lane {
    char owner[16];
    dur_waker *waker;
    dur_lane *lane; /* NULL: its owner is dead */
    held leases[HELD_MAX];
    size_t lease_count;
    uint64_t seen_id, seen_now_ms;
} shaken_lane;

typedef struct shake {
    bench *b;
    uint64_t random, serial;
    shaken_lane lanes[LANES];
    char plain[16][40];          /* tokens of timed locks */
    char plain_instance[16][40]; /* on these */
    size_t plain_count;
    char work[32][40];
    size_t work_count;
    dur__map given;    /* "token/id" */
    dur__map consumed; /* ids */
} shake;

static unsigned dice(shake *s, uint64_t sides) {
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return (unsigned)(s->random % sides);
}

static const char *any_instance(shake *s) {
    static const char *const ids[INSTANCES] = { "i0", "i1", "i2", "i3", "i4", "i5" };
    return ids[dice(s, INSTANCES)];
}

static void given(shake *s, const char *token, uint64_t id) {
    char *key = malloc(64);
    snprintf(key, 64, "%s/%llu", token, (unsigned long long)id);
    assert_null(dur__map_get(&s->given, key));
    assert_null(dur__map_get_u64(&s->consumed, id));
    dur__map_put(&s->given, key, key);
}

/* ---- runtimes ---------------------------------------------------------------------------------------------------- */

static void lane_begin(shake *s, shaken_lane *lane) {
    snprintf(lane->owner, sizeof(lane->owner), "owner-%llu", (unsigned long long)++s->serial);
    dur_owner_options owner = { .owner = lane->owner, .timeout_ms = 5000 };
    ASSERT_OK(s->b, dur_store_owner_register(s->b->store, &owner, &s->b->err));
    dur_lane_options options = { .owner = lane->owner, .waker = lane->waker };
    ASSERT_OK(s->b, dur_store_lane_open(s->b->store, &options, &lane->lane, &s->b->err));
    lane->lease_count = 0;
}

static void lane_end(shake *s, shaken_lane *lane, bool clean) {
    if (clean) ASSERT_OK(s->b, dur_store_owner_release(s->b->store, lane->owner, &s->b->err));
    dur_store_lane_close(lane->lane);
    lane->lane = NULL;
    lane->lease_count = 0;
}

static void lease_forget(shaken_lane *lane, const char *instance) {
    for (size_t i = 0; i < lane->lease_count; i++) {
        if (strcmp(lane->leases[i].instance, instance) != 0) continue;
        lane->leases[i] = lane->leases[--lane->lease_count];
        return;
    }
}

static void lease_note(held *lease, uint64_t id) {
    if (lease->id_count < 64) lease->ids[lease->id_count++] = id;
}

static void round_note(shake *s, shaken_lane *lane, const dur_round *round) {
    for (size_t i = 0; i < round->lost_count; i++) {
        bool again = false; /* lost and, in the same round, acquired again */
        for (size_t k = 0; k < round->item_count; k++)
            again |= strcmp(round->items[k].instance, round->lost[i]) == 0;
        if (!again) lease_forget(lane, round->lost[i]);
    }
    for (size_t i = 0; i < round->item_count; i++) {
        const dur_orchestration_item *item = &round->items[i];
        lease_forget(lane, item->instance);
        held *lease = &lane->leases[lane->lease_count++];
        memset(lease, 0, sizeof(*lease));
        snprintf(lease->instance, sizeof(lease->instance), "%s", item->instance);
        snprintf(lease->token, sizeof(lease->token), "%s", item->lock_token);
        lease->execution = item->execution_id;
        lease->last_event = item->last_event_id;
        for (size_t k = 0; k < item->message_count; k++) {
            given(s, item->lock_token, item->messages[k].id);
            lease_note(lease, item->messages[k].id);
        }
    }
    for (size_t i = 0; i < round->held_count; i++) {
        given(s, round->held[i].lock_token, round->held[i].message.id);
        for (size_t k = 0; k < lane->lease_count; k++)
            if (strcmp(lane->leases[k].token, round->held[i].lock_token) == 0)
                lease_note(&lane->leases[k], round->held[i].message.id);
    }
    for (size_t i = 0; i < round->work_count && s->work_count < 32; i++)
        snprintf(s->work[s->work_count++], 40, "%s", round->works[i].lock_token);
    lane->seen_id = round->seen_id;
    lane->seen_now_ms = round->now_ms;
}

static bool has_ended(shake *s, const char *instance) {
    dur_instance_row row;
    return dur_store_get_instance(s->b->store, s->b->arena, instance, &row, NULL) == DUR_OK &&
           (row.status == DUR_STATUS_COMPLETED || row.status == DUR_STATUS_FAILED);
}

/* A turn on a lease that the lane believes in, with a bit of everything. */
static void step_turn(shake *s, shaken_lane *lane) {
    dur_fetch how = { .owner = lane->owner,
                      .max = 1 + dice(s, 3),
                      .kind = (dur_fetch_kind)dice(s, 3),
                      .queue_messages_max = (uint32_t)dice(s, 3),
                      .without_history = dice(s, 2) };
    dur_work_fetch work = { .owner = lane->owner,
                            .max = 2,
                            .session_owner = dice(s, 2) ? lane->owner : "fixed",
                            .session_lock_ms = 500,
                            .tags = { .mode = (dur_tag_mode)dice(s, 5) } };
    dur_round round = { .fetch = dice(s, 3) ? &how : NULL,
                        .work = dice(s, 2) ? &work : NULL,
                        .queue_messages_max = (uint32_t)dice(s, 3) };
    dur_turn_commit turn;
    char token[40];
    held *lease = lane->lease_count > 0 && dice(s, 4) > 0 ? &lane->leases[dice(s, lane->lease_count)] : NULL;
    held copy;
    size_t consumed = 0;
    if (lease != NULL) {
        copy = *lease;
        bool ends = dice(s, 8) == 0;
        dur_event_row event = event_of(copy.last_event + 1);
        snprintf(token, sizeof(token), "eager-%llu", (unsigned long long)++s->serial);
        dur_turn_work item = { .message = activity_of(s->b, copy.instance, copy.last_event + 1,
                                                      dice(s, 2) ? "s1" : NULL, dice(s, 3) ? NULL : "gpu"),
                               .lock_token = dice(s, 2) ? token : NULL };
        dur_message_row timer = message_of(DUR_WORK_TIMER_FIRED, copy.instance);
        timer.execution_id = copy.execution;
        timer.activity_id = copy.last_event + 1;
        timer.due_ms = dur_store_now_ms(s->b->store) + dice(s, 2000);
        dur_activity_ref drop = { .execution_id = copy.execution, .activity_id = dice(s, copy.last_event + 1) };
        consumed = copy.id_count > 0 ? dice(s, copy.id_count + 1) : 0;
        turn = (dur_turn_commit){ .lock_token = copy.token,
                                  .instance = copy.instance,
                                  .execution_id = copy.execution,
                                  .events = &event,
                                  .event_count = dice(s, 4) > 0,
                                  .metadata = named(),
                                  .expected_last = copy.last_event,
                                  .worker_items = &item,
                                  .worker_item_count = dice(s, 2),
                                  .orchestrator_items = &timer,
                                  .orchestrator_item_count = dice(s, 2),
                                  .consume_listed = true,
                                  .consumed = copy.ids,
                                  .consumed_count = consumed,
                                  .timers_dropped = &drop,
                                  .timers_dropped_count = dice(s, 2),
                                  .owner = lane->owner,
                                  .session_owner = lane->owner,
                                  .session_lock_ms = 500,
                                  .keep_lease = dice(s, 3) > 0,
                                  .seen_id = lane->seen_id,
                                  .seen_now_ms = lane->seen_now_ms,
                                  .delay_ms = dice(s, 3) ? 0 : dice(s, 500),
                                  .give_back = dice(s, 10) == 0,
                                  .set_suspended = dice(s, 20) == 0,
                                  .suspended = "shaken" };
        if (turn.give_back) { /* it has not run */
            turn.event_count = turn.worker_item_count = turn.orchestrator_item_count = 0;
            turn.metadata = (dur_execution_metadata){ .status = DUR_STATUS_NONE };
            turn.keep_lease = false;
            if (copy.last_event == 0) turn.consumed_count = consumed = 0; /* its start stays */
        } else if (ends)
            turn.metadata.status = dice(s, 2) ? DUR_STATUS_COMPLETED : DUR_STATUS_CONTINUED_AS_NEW;
        if (ends || has_ended(s, copy.instance)) { /* nobody suspends it, or leaves what it has seen there */
            turn.set_suspended = false;
            turn.seen_id = turn.seen_now_ms = 0;
        }
        round.turns = &turn;
        round.turn_count = 1;
        ASSERT_OK(s->b, dur_store_lane_round(lane->lane, s->b->arena, &round, &s->b->err));
    } else {
        ASSERT_OK(s->b, dur_store_lane_round(lane->lane, s->b->arena, &round, &s->b->err));
    }
    if (lease != NULL && turn.error.code == DUR_OK) {
        for (size_t i = 0; i < consumed; i++)
            dur__map_put_u64(&s->consumed, copy.ids[i], s);
        memmove(lease->ids, lease->ids + consumed, (lease->id_count - consumed) * sizeof(lease->ids[0]));
        lease->id_count -= consumed;
        lease->last_event += turn.event_count;
        if (!turn.lease_kept) lease_forget(lane, copy.instance);
    } else if (lease != NULL) {
        assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST);
        lease_forget(lane, copy.instance);
    }
    round_note(s, lane, &round);
}

/* ---- everybody else ---------------------------------------------------------------------------------------------- */

static void step_client(shake *s) {
    const char *id = any_instance(s);
    dur_message_row m;
    switch (dice(s, 4)) {
    case 0:
        m = start_of(s->b, id);
        dur_store_enqueue_start(s->b->store, &m, (dur_exists_policy)dice(s, 3), dice(s, 2) ? 0 : dice(s, 400), NULL,
                                NULL);
        break;
    case 1:
        m = message_of(dice(s, 2) ? DUR_WORK_EXTERNAL_RAISED : DUR_WORK_CANCEL_INSTANCE, id);
        m.message_id = dice(s, 2) ? "once" : NULL;
        dur_store_enqueue_existing(s->b->store, &m, dice(s, 2) ? 0 : dice(s, 400), NULL);
        break;
    case 2:
        m = queue_of(id, dice(s, 2) ? "q" : "r", NULL);
        dur_store_enqueue_existing(s->b->store, &m, dice(s, 3) ? 0 : dice(s, 400), NULL);
        break;
    default: /* the seeds' way: nobody looks whether it exists */
        m = dice(s, 2) ? queue_of(id, "q", NULL) : message_of(DUR_WORK_EXTERNAL_RAISED, id);
        ASSERT_OK(s->b, dur_store_enqueue_for_orchestrator(s->b->store, &m, dice(s, 100), &s->b->err));
    }
}

static void step_plain(shake *s) {
    dur_fetch how = { .lock_ms = dice(s, 1000) };
    dur_orchestration_item item;
    if (s->plain_count < 16 && dice(s, 2)) {
        ASSERT_OK(s->b, dur_store_fetch_orchestration_item(s->b->store, s->b->arena, &how, &item, &s->b->err));
        if (item.instance == NULL) return;
        for (size_t i = 0; i < item.message_count; i++)
            given(s, item.lock_token, item.messages[i].id);
        snprintf(s->plain_instance[s->plain_count], 40, "%s", item.instance);
        snprintf(s->plain[s->plain_count++], 40, "%s", item.lock_token);
        return;
    }
    if (s->plain_count == 0) return;
    const char *token = s->plain[--s->plain_count];
    dur_event_row *rows = NULL;
    size_t count = 0;
    uint64_t execution = 1 + dice(s, 2);
    ASSERT_OK(s->b, dur_store_read(s->b->store, s->b->arena, s->plain_instance[s->plain_count], execution, &rows,
                                   &count, &s->b->err));
    dur_event_row event = event_of(dice(s, 8) > 0 ? count + 1 : 1 + dice(s, count + 1)); /* the next, or one again */
    dur_turn_commit turn = {
        .lock_token = token, .execution_id = execution, .events = &event, .event_count = dice(s, 2)
    };
    turn.metadata = named(); /* whoever consumes a start makes the instance */
    switch (dice(s, 3)) {
    case 0:
        dur_store_ack_orchestration_item(s->b->store, &turn, NULL);
        break;
    case 1:
        dur_store_abandon_orchestration_item(s->b->store, token, dice(s, 300), dice(s, 2), NULL);
        break;
    default:
        dur_store_renew_orchestration_item_lock(s->b->store, token, dice(s, 300), NULL);
        break;
    }
}

static void step_work(shake *s) {
    dur_work_fetch how = { .lock_ms = dice(s, 600),
                           .session_owner = dice(s, 2) ? "w1" : "w2",
                           .session_lock_ms = 300,
                           .tags = { .mode = DUR_TAGS_ANY } };
    dur_leased_work work;
    if (s->work_count < 32 && dice(s, 2)) {
        ASSERT_OK(s->b, dur_store_fetch_work_item(s->b->store, s->b->arena, &how, &work, &s->b->err));
        if (work.json.data != NULL) snprintf(s->work[s->work_count++], 40, "%s", work.lock_token);
        return;
    }
    if (s->work_count == 0) return;
    const char *token = s->work[--s->work_count];
    dur_message_row done = message_of(DUR_WORK_EXTERNAL_RAISED, any_instance(s)); /* one that may wait for a start */
    dur_worker_claim claim = { .lock_token = token };
    switch (dice(s, 5)) {
    case 0:
        dur_store_ack_work_item(s->b->store, token, dice(s, 2) ? &done : NULL, NULL);
        break;
    case 1:
        dur_store_abandon_work_item(s->b->store, token, dice(s, 300), dice(s, 2), NULL);
        break;
    case 2:
        dur_store_renew_work_item_lock(s->b->store, token, dice(s, 300), NULL);
        break;
    case 3:
        dur_store_dead_letter_work(s->b->store, token, "shaken", NULL);
        break;
    default:
        ASSERT_OK(s->b, dur_store_return_works(s->b->store, &claim, 1, &s->b->err));
        break;
    }
}

static void step_operator(shake *s) {
    const char *id = any_instance(s);
    const char *holders[] = { "w1", "fixed" };
    dur_turn_commit end = { .instance = id,
                            .execution_id = 1,
                            .expected_last = DUR_NOT_COMPARED,
                            .take_over = true,
                            .remove_work = true,
                            .set_suspended = true, /* to nothing */
                            .metadata = { .status = DUR_STATUS_FAILED } };
    dur_bulk_filter all = { .limit = dice(s, 3) };
    dur_prune_options prune = { .has_keep_last = true, .keep_last = dice(s, 3) };
    switch (dice(s, 9)) {
    case 0:
        dur_store_delete_instances(s->b->store, &id, 1, dice(s, 2), NULL, NULL);
        break;
    case 1:
        dur_store_set_suspended(s->b->store, id, dice(s, 3) ? NULL : "shaken", NULL);
        break;
    case 2:
        ASSERT_OK(s->b, dur_store_commit_turns(s->b->store, &end, 1, &s->b->err));
        break;
    case 3:
        dur_store_delete_instances_bulk(s->b->store, &all, NULL, NULL);
        break;
    case 4:
        dur_store_prune_executions_bulk(s->b->store, &all, &prune, NULL, NULL);
        break;
    case 5:
        dur_store_renew_session_lock(s->b->store, holders, 2, 500, dice(s, 1000), NULL, NULL);
        break;
    case 6:
        dur_store_cleanup_orphaned_sessions(s->b->store, dice(s, 1000), NULL, NULL);
        break;
    default: { /* resume everybody, so that not all sleep in the end */
        dur_store_set_suspended(s->b->store, id, NULL, NULL);
    }
    }
}

static void step_time(shake *s) {
    if (dice(s, 10) == 0)
        dur_fake_world_jump(s->b->fake, (int64_t)dice(s, 20000) - 10000);
    else
        dur_fake_world_advance(s->b->fake, dice(s, 400));
}

static void step_owner(shake *s) {
    shaken_lane *lane = &s->lanes[dice(s, LANES)];
    dur_owner_report report;
    if (lane->lane == NULL) {
        lane_begin(s, lane);
    } else if (dice(s, 12) == 0) {
        lane_end(s, lane, dice(s, 2));
    } else {
        ASSERT_OK(s->b, dur_store_owner_beat(s->b->store, lane->owner, &report, &s->b->err));
        if (!report.still_ours) lane_end(s, lane, false);
    }
}

static void step(shake *s) {
    shaken_lane *lane = &s->lanes[dice(s, LANES)];
    switch (dice(s, 10)) {
    case 0:
    case 1:
    case 2:
        step_client(s);
        break;
    case 3:
    case 4:
        if (lane->lane != NULL) step_turn(s, lane);
        break;
    case 5:
        step_plain(s);
        break;
    case 6:
        step_work(s);
        break;
    case 7:
        step_time(s);
        break;
    case 8:
        step_owner(s);
        break;
    default:
        if (dice(s, 3) == 0) step_operator(s);
    }
}

static void run(uint64_t seed) {
    shake s = { .b = bench_open("memory:"), .random = seed * 2654435761u + 1 };
    for (int i = 0; i < LANES; i++)
        s.lanes[i].waker = dur_waker_new();
    for (int i = 0; i < STEPS; i++) {
        step(&s);
        if (dur_store_check(s.b->store, &s.b->err) != DUR_OK) {
            fprintf(stderr, "seed %llu, step %d: %s\n", (unsigned long long)seed, i, s.b->err.message);
            fail();
        }
    }
    for (int i = 0; i < LANES; i++) {
        if (s.lanes[i].lane != NULL) dur_store_lane_close(s.lanes[i].lane);
        dur_waker_free(s.lanes[i].waker);
    }
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&s.given, &i)) != NULL;)
        free(entry->value);
    dur__map_free(&s.given);
    dur__map_free(&s.consumed);
    bench_close(s.b);
}

static void shaken_at_random(void **state) {
    (void)state;
    const char *one = getenv("DURITE_TEST_SEED");
    if (one != NULL) {
        run(strtoull(one, NULL, 10));
        return;
    }
    const char *scale = getenv("DURITE_TEST_SCALE");
    uint64_t seeds = 500 * (scale != NULL ? strtoull(scale, NULL, 10) : 100) / 100;
    if (seeds < 50) seeds = 50;
    for (uint64_t seed = 1; seed <= seeds; seed++)
        run(seed);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(shaken_at_random) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
