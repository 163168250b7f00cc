/*
 * pg_round.c: one round of a loop: one pipeline, one transaction, one round trip.
 *
 * What a round writes goes out every time.  What it reads costs as much again, so a busy lane reads only when there is
 * a reason: a notification, a wake of this process, a time that has come, something that it wrote itself; and every few
 * milliseconds a probe, whose answer is such a reason for the next round.  A lane without turns always looks.
 */
#include "base/assert.h"
#include "provider/postgres/pg_internal.h"
#include "provider/postgres/pg_pieces.h"
#include "provider/postgres/pg_works.h"

#include <stdlib.h>

#define PROBE_APART_US 5000u
#define PROBE_APART_TOLD_US 50000u /* where notifications come, a probe is only there for those that were lost */
#define WHOLE_LOOK_APART_US 250000u
#define HELD_LOOKS_MAX 9u    /* then they are 128 ms apart */
#define SLOW_COMMIT_MS 2000u /* a message whose commit took longer waits for the next whole look */

static dur__pg_lane *lane_of(dur_lane *lane) {
    return (dur__pg_lane *)(void *)lane;
}

/* ---- a round ----------------------------------------------------------------------------------------------------- */

#define FREE DUR__PG_FREE
#define VISIBLE DUR__PG_VISIBLE
/* $8 and $9: handlers of instances and of work; $10: who claims sessions.  What others wait for is not looked at. */
#define OF_HANDLERS(what) "FROM ha, LATERAL (SELECT " what " FROM @instances WHERE handler = ha.h AND " FREE
/* Macros among the texts: clang-format would give each an indentation of its own. */
/* clang-format off */
#define OF_ACTIVITIES(what) "FROM wa, LATERAL (SELECT " what " FROM @worker w WHERE w.handler = wa.h AND w.owner IS NULL"
#define TAGGED DUR__PG_TAG_ADMITTED("$3::bigint", "$4::text[]")
static const char info_sql[] =
    "WITH RECURSIVE " DUR__PG_HANDLERS("ha", "@instances", FREE, "$8::text[]") ", "
    DUR__PG_HANDLERS("wa", "@worker", "owner IS NULL", "$9::text[]") ","
    " n AS MATERIALIZED (SELECT #now AS now) SELECT n.now, (SELECT last_value FROM @queue_id_seq),"
    " least((SELECT min(x.ready_at) " OF_HANDLERS("ready_at") " AND ready_at > (SELECT now FROM n) ORDER BY ready_at"
    " LIMIT 1) x),"
    " (SELECT min(ready_at) FROM @instances WHERE holder = $2::bigint AND ready_at > (SELECT now FROM n)),"
    " (SELECT min(expires_at) FROM @instances WHERE owner IS NULL AND token IS NOT NULL AND expires_at >"
    " (SELECT now FROM n)),"
    " (SELECT min(until_ms) FROM @worker WHERE owner IS NULL AND until_ms > 0 AND until_ms > (SELECT now FROM n)),"
    " (SELECT min(until_ms) FROM @sessions WHERE owner IS NULL AND until_ms > (SELECT now FROM n))),"
    " coalesce((SELECT min(x.crashes_alone)::bigint + 1 " OF_HANDLERS("crashes_alone") " AND crashes >= 2 AND"
    " acquisitions > 0 AND " VISIBLE " AND ($5::text IS NULL OR pin IS NULL OR (pin >= $5::text::bigint[] AND pin <="
    " $6::text::bigint[])) ORDER BY crashes_alone LIMIT 1) x), 0),"
    " coalesce((SELECT min(x.crashes_alone)::bigint + 1 " OF_ACTIVITIES("w.crashes_alone") " AND w.crashes >= 2 AND"
    " w.until_ms <= (SELECT now FROM n) AND " TAGGED " AND (w.session_id IS NULL OR ($10::text IS NOT NULL AND NOT"
    " EXISTS (SELECT 1 FROM @sessions s WHERE s.session_id = w.session_id AND s.holder <> $10::text AND (s.owner IS NOT"
    " NULL OR s.until_ms > (SELECT now FROM n))))) ORDER BY w.crashes_alone LIMIT 1) x), 0),"
    " $3::bigint >= 0 AND coalesce((SELECT bool_or(n.now - x.since_ms > 100) "
    OF_ACTIVITIES("w.since_ms") " AND w.until_ms <= (SELECT now FROM n) AND " TAGGED " ORDER BY w.id LIMIT 1) x), false),"
    " EXISTS (SELECT 1 " OF_HANDLERS("1") " AND ready_at >= $7::bigint AND " VISIBLE " LIMIT 1) x),"
    " EXISTS (SELECT 1 FROM @instances WHERE holder = $2::bigint AND ready_at <= (SELECT now FROM n) AND (owner IS NOT"
    " NULL OR EXISTS (SELECT 1 FROM @queue q WHERE q.instance_id = @instances.instance_id AND q.delivered = 0 AND q.due_ms"
    " <= (SELECT now FROM n)))),"
    " EXISTS (SELECT 1 " OF_ACTIVITIES("1") " LIMIT 1) x), EXISTS (SELECT 1 FROM @lost WHERE holder = $2::bigint)"
    " FROM n";
/* clang-format on */
static const char lost_sql[] = "DELETE FROM @lost WHERE holder = $2::bigint RETURNING instance_id, asked";

typedef enum reading { NOTHING, PROBE, LOOK } reading;

typedef struct round_plan {
    dur__pg_turn_plan turns;
    dur__pg_fetch_plan fetch;
    int info_at, lost_at, work_at; /* -1: not asked */
    reading reads;
    uint64_t low_ms; /* entries of the index of free instances before this are not looked at */
} round_plan;

static bool asks_for_suspect(const dur_round *round) {
    return (round->fetch != NULL && round->fetch->kind == DUR_FETCH_SUSPECT) ||
           (round->work != NULL && round->work->kind == DUR_FETCH_SUSPECT);
}

/* Whether the round asks for work that there can be. */
static bool asks_for_work(const dur_round *round) {
    const dur_work_fetch *work = round->work;
    return work != NULL && work->tags.mode != DUR_TAGS_NONE && (work->handlers == NULL || work->handlers->count > 0);
}

static int send_info(dur__pg_lane *lane, dur__pg_batch *batch, const dur_round *round, uint64_t low_ms) {
    static const dur_handler_filter none = { NULL, 0 };
    dur__pg_args args;
    dur__pg_array tags = dur__pg_array_text();
    dur__pg_range texts;
    const dur_work_fetch *work = asks_for_work(round) ? round->work : NULL;
    for (size_t i = 0; work != NULL && i < work->tags.tag_count; i++)
        dur__pg_add_text(&tags, work->tags.tags[i]);
    dur__pg_args_begin(lane->store, &args);
    dur__pg_i64(&args, lane->holder);
    dur__pg_i64(&args, work != NULL ? (int64_t)work->tags.mode : -1);
    dur__pg_array_arg(&args, &tags);
    dur__pg_range_args(&args, round->fetch != NULL ? round->fetch->filter : NULL, &texts);
    dur__pg_i64(&args, (int64_t)low_ms);
    dur__pg_handlers(&args, round->fetch != NULL ? round->fetch->handlers : lane->handlers);
    dur__pg_handlers(&args, work != NULL ? work->handlers : &none);
    dur__pg_text(&args, work != NULL ? work->session_owner : NULL);
    return dur__pg_batch_add(batch, info_sql, &args);
}

/* ---- what to read ------------------------------------------------------------------------------------------------ */

/* By the time of the last answer and ours since then. */
uint64_t dur__pg_lane_now_ms(const dur__pg_lane *lane) {
    if (lane->store->caller_clock) return dur__pg_now_ms(lane->base.store);
    return lane->now_ms + (dur__monotonic_us() - lane->answered_us) / 1000u;
}

uint64_t dur__pg_lane_due_ms(const dur__pg_lane *lane) {
    uint64_t timer_ms = dur__pg_timers_next(lane);
    return timer_ms < lane->next_due_ms ? timer_ms : lane->next_due_ms;
}

static bool time_has_come(const dur__pg_lane *lane) {
    return lane->next_due_ms != DUR_NEVER && dur__pg_lane_now_ms(lane) >= lane->next_due_ms;
}

static reading choose_reading(dur__pg_lane *lane, const dur_round *round, bool writes_for_others, uint64_t now_us) {
    bool news = atomic_exchange(&lane->news, false);
    if (lane->conn->pg != NULL && dur__pg_drain_notifications(lane->conn, lane->owner)) news = true;
    if (round->turn_count + round->ack_count == 0 || lane->store->caller_clock) return LOOK;
    if (news || writes_for_others || lane->more || time_has_come(lane)) return LOOK;
    if (asks_for_suspect(round)) return LOOK; /* "none" is an answer, too */
    return now_us - lane->answered_us >= (lane->store->pooler ? PROBE_APART_US : PROBE_APART_TOLD_US) ? PROBE : NOTHING;
}

/* An execution that ends for good leaves its instance to nobody; all others that let go of theirs may leave a reason.
 */
static bool gives_back(const dur_round *round) {
    for (size_t i = 0; i < round->turn_count; i++) {
        dur_status status = round->turns[i].metadata.status;
        if (!round->turns[i].keep_lease && status != DUR_STATUS_COMPLETED && status != DUR_STATUS_FAILED) return true;
    }
    return false;
}

/*
 * Dead entries pile up at the front of the index of free instances until vacuum comes.  What is sent now stands behind
 * the time of the last look; only what was given back, or was long in committing, stands before it: by the age of the
 * oldest message that waits.  For what others give back a whole look comes often enough, and always when the lane has
 * nothing else to do; a round that gives something back itself looks at all of it at once.  Where that was a probe, or
 * a look of a lane that had no room, what it saw is still there: then the next one that takes something looks at all.
 */
static uint64_t choose_low(dur__pg_lane *lane, const dur_round *round, reading reads, uint64_t now_us) {
    bool idle = round->turn_count + round->ack_count == 0;
    bool owed = lane->passed_over && reads == LOOK && round->fetch != NULL;
    if (idle || owed || gives_back(round) || lane->store->caller_clock || lane->crowded ||
        now_us - lane->whole_look_us >= WHOLE_LOOK_APART_US) {
        lane->whole_look_us = now_us;
        return 0;
    }
    return lane->whole_look_ms > SLOW_COMMIT_MS ? lane->whole_look_ms - SLOW_COMMIT_MS : 0;
}

static void send_reads(dur__pg_lane *lane, dur__pg_batch *batch, const dur_round *round, const char *prefix,
                       round_plan *plan) {
    dur__pg_args args;
    plan->fetch = (dur__pg_fetch_plan){ -1, -1, -1, -1, -1 };
    plan->info_at = plan->lost_at = plan->work_at = -1;
    bool work = asks_for_work(round) && (plan->reads == LOOK || lane->free_work || round->turn_count == 0);
    if (lane->owner != NULL && !plan->turns.takes && (work || (plan->reads == LOOK && round->fetch != NULL)))
        dur__pg_lane_fence_add(batch, lane, false);
    if (plan->reads == LOOK) {
        dur__pg_fetch_add(batch, round->fetch, lane->holder, round->queue_messages_max, prefix, plan->low_ms,
                          lane->rounds, &plan->fetch);
        dur__pg_args_begin(lane->store, &args);
        dur__pg_i64(&args, lane->holder);
        plan->lost_at = dur__pg_batch_add(batch, lost_sql, &args);
    }
    if (plan->reads != NOTHING) plan->info_at = send_info(lane, batch, round, plan->low_ms);
    if (work) dur__pg_work_fetch_add(batch, round->work, prefix, &plan->work_at);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void read_lost(const PGresult *rows, dur_arena *arena, dur_round *round) {
    size_t count = (size_t)PQntuples(rows);
    round->lost = dur_arena_zalloc(arena, (count + 1) * sizeof(*round->lost));
    round->asked = dur_arena_zalloc(arena, (count + 1) * sizeof(*round->asked));
    for (int row = 0; row < PQntuples(rows); row++) {
        const char *instance = dur__pg_get_text(rows, row, 0, arena);
        if (dur__pg_get_bool(rows, row, 1))
            round->asked[round->asked_count++] = instance;
        else
            round->lost[round->lost_count++] = instance;
    }
}

/*
 * A message came, and somebody held the row, or it was too many for one look: look again, at once.  Where that finds
 * nothing, in 1, 2, 4 … ms, because who stands still with a row may do so for hours.
 */
static void look_again(dur__pg_lane *lane, bool held, bool found) {
    if (found) lane->held_looks = 0;
    lane->held_looks = !held ? 0 : lane->held_looks < HELD_LOOKS_MAX ? lane->held_looks + 1 : HELD_LOOKS_MAX;
    lane->more = held && (lane->held_looks == 1 || lane->store->caller_clock);
    if (!held || lane->more) return;
    uint64_t again_ms = lane->now_ms + (1u << (lane->held_looks - 2));
    if (again_ms < lane->next_due_ms) lane->next_due_ms = again_ms;
}

static void read_info(dur__pg_lane *lane, const PGresult *info, const dur_round *round, const round_plan *plan) {
    bool waiting = dur__pg_get_bool(info, 0, 6), held = dur__pg_get_bool(info, 0, 7),
         lost = dur__pg_get_bool(info, 0, 9);
    lane->now_ms = dur__pg_get_u64(info, 0, 0);
    /* What time has made visible, and this round did not ask for, is news for the next wait. */
    bool everywhere = plan->reads == LOOK && round->fetch != NULL && round->work != NULL;
    lane->unseen = !everywhere && (lane->unseen || lane->next_due_ms <= lane->now_ms);
    lane->next_due_ms = dur__pg_get(info, 0, 2) != NULL ? dur__pg_get_u64(info, 0, 2) : DUR_NEVER;
    if (lane->next_due_ms >= DUR__PG_DELAY_FOREVER) lane->next_due_ms = DUR_NEVER;
    if (round->fetch != NULL) lane->suspect_instance = (uint32_t)dur__pg_get_u64(info, 0, 3);
    if (asks_for_work(round)) lane->suspect_work = (uint32_t)dur__pg_get_u64(info, 0, 4);
    lane->works_late = dur__pg_get_bool(info, 0, 5);
    lane->free_instances = waiting;
    if (plan->low_ms == 0) lane->passed_over = waiting && (plan->reads != LOOK || round->fetch == NULL);
    if (asks_for_work(round)) lane->asks_for_work = true;
    lane->free_work = asks_for_work(round) ? dur__pg_get_bool(info, 0, 8) : lane->asks_for_work; /* not known */
    if (plan->reads == LOOK) {
        lane->seen_id = dur__pg_get_u64(info, 0, 1);
        lane->seen_ms = lane->now_ms;
        if (plan->low_ms == 0 && round->fetch != NULL) lane->whole_look_ms = lane->now_ms;
        look_again(lane, held, round->held_count + round->item_count > 0);
    } else {
        lane->more = waiting || held || lost;
        if (!held) lane->seen_ms = lane->now_ms; /* nothing that was due by now has not been handed out */
    }
    lane->answered_us = dur__monotonic_us();
    dur__pg_saw_now(lane->store, lane->now_ms);
}

/* What was not read now is as it was. */
static void tell_state(const dur__pg_lane *lane, const round_plan *plan, dur_round *round) {
    round->now_ms = lane->seen_ms;
    round->seen_id = lane->seen_id;
    round->next_due_ms = dur__pg_lane_due_ms(lane);
    if (round->fetch != NULL) round->suspect_instance = lane->suspect_instance;
    if (round->work != NULL) round->suspect_work = lane->suspect_work;
    round->work_waiting_long = lane->works_late;
    if (round->fetch == NULL) round->more = lane->free_instances;
    if (plan->reads != LOOK && lane->more) round->more = true;
}

/* What it has acquired, been given and lost. */
static void note_leases(dur__pg_lane *lane, const dur_round *round) {
    for (size_t i = 0; i < round->item_count; i++)
        dur__pg_lease_note(lane, &round->items[i]);
    for (size_t i = 0; i < round->held_count; i++)
        dur__pg_lease_told(lane, round->held[i].instance);
    for (size_t i = 0; i < round->lost_count; i++)
        dur__pg_lease_forget(lane, round->lost[i]);
}

/* All that are due by now, and by the time that the round tells. */
static uint64_t timers_due_ms(const dur__pg_lane *lane) {
    uint64_t now_ms = dur__pg_lane_now_ms(lane);
    return now_ms > lane->seen_ms || lane->store->caller_clock ? now_ms : lane->seen_ms;
}

static void hand_out_timers(dur__pg_lane *lane, dur_arena *arena, dur_round *round) {
    if (dur__pg_timers_next(lane) != DUR_NEVER) dur__pg_timers_hand_out(lane, timers_due_ms(lane), arena, round);
}

static void read_reads(dur__pg_lane *lane, const dur__pg_batch *batch, const round_plan *plan, dur_arena *arena,
                       dur_round *round) {
    if (plan->reads == LOOK) {
        dur__pg_fetch_read(batch, &plan->fetch, arena, &round->items, &round->item_count, &round->held,
                           &round->held_count);
        read_lost(batch->results[plan->lost_at], arena, round);
        note_leases(lane, round);
        lane->crowded = round->fetch != NULL && round->item_count == (round->fetch->max > 0 ? round->fetch->max : 1);
        if (lane->crowded) round->more = true;
    }
    if (plan->info_at >= 0) read_info(lane, batch->results[plan->info_at], round, plan);
    hand_out_timers(lane, arena, round);
    tell_state(lane, plan, round);
    if (plan->work_at < 0) return;
    size_t max = round->work->max > 0 ? round->work->max : 1;
    size_t rows = (size_t)PQntuples(batch->results[plan->work_at]);
    round->works = dur_arena_alloc(arena, (rows + 1) * sizeof(*round->works));
    round->work_count = dur__pg_work_fetch_read(batch, plan->work_at, arena, round->works, rows);
    if (rows == max) round->more = true;
}

/* ---- one batch --------------------------------------------------------------------------------------------------- */

/*
 * Others are told of a round by the next one, or before the lane sleeps: its own callers do not wait for that.  At most
 * one notification per 2 ms and process; those who only watch are told every 10 ms while there is other work.
 */
static void notify_of_earlier(dur__pg_lane *lane, dur__pg_batch *batch) {
    if (!lane->notify_pending || !dur__pg_may_notify(lane->store, lane->notify_urgent)) return;
    dur__pg_batch_notify_first(batch);
    lane->notify_pending = lane->notify_urgent = false;
}

static size_t valid_turns(const dur__pg_lane *lane, dur_round *round, dur_arena *arena, dur_turn_commit ***out) {
    size_t count = 0;
    *out = dur_arena_alloc(arena, (round->turn_count + 1) * sizeof(dur_turn_commit *));
    for (size_t i = 0; i < round->turn_count; i++)
        if (dur__pg_turn_found(lane, &round->turns[i])) (*out)[count++] = &round->turns[i];
    return count;
}

/* What a committed round means to others in this process. */
static void tell_others(dur__pg_lane *lane, dur_turn_commit **turns, size_t count, const dur__pg_turn_plan *plan) {
    if (plan->for_lanes) dur__pg_wake_lanes(lane->store, lane);
    for (size_t i = 0; plan->for_watches && i < count; i++)
        if (dur__pg_turn_seen(turns[i])) dur__pg_wake_watches(lane->store, turns[i]->instance);
}

/* One batch: with the writes, or only the reads. */
static int run_batch(dur__pg_lane *lane, dur_arena *arena, dur_round *round, dur_turn_commit **turns, size_t count,
                     bool writes, bool *refused, dur_error *err) {
    dur__pg *store = lane->store;
    dur__pg_batch batch;
    round_plan plan = { .turns = { .work_at = -1, .timers_at = -1, .due_ms = DUR_NEVER } };
    uint64_t now_us = dur__monotonic_us();
    int backend = lane->conn->backend;
    dur__pg_token(store, lane->unknown_prefix);
    lane->rounds++;
    dur__pg_batch_begin(&batch, lane->conn, true);
    notify_of_earlier(lane, &batch);
    if (writes) dur__pg_turns_add(&batch, lane, turns, count, round->acks, round->ack_count, &plan.turns);
    plan.reads = choose_reading(lane, round, plan.turns.for_lanes || plan.turns.sends, now_us);
    if (plan.reads != NOTHING) plan.low_ms = choose_low(lane, round, plan.reads, now_us);
    send_reads(lane, &batch, round, lane->unknown_prefix, &plan);
    if (plan.turns.for_lanes || plan.turns.for_watches) lane->notify_pending = true;
    if (plan.turns.for_lanes) lane->notify_urgent = true;
    int code = dur__pg_batch_run(&batch, "postgres.round", err);
    *refused = dur__pg_refused(&batch, code) || (writes && dur__pg_waited_too_long(&batch));
    if (code == DUR_OK) {
        if (writes) dur__pg_turns_read(&batch, &plan.turns, lane, turns, count);
        for (size_t i = 0; writes && i < round->ack_count; i++)
            dur_error_clear(&round->acks[i].error);
        if (plan.turns.due_ms < lane->next_due_ms) lane->next_due_ms = plan.turns.due_ms;
        read_reads(lane, &batch, &plan, arena, round);
        if (writes) tell_others(lane, turns, count, &plan.turns);
    } else {
        atomic_store(&lane->news, true); /* what was to be read was not */
    }
    if (code == DUR_EUNKNOWN) {
        dur__pg_lane_lost(lane, backend, turns, writes ? count : 0);
        round->settles = lane->unknown;
    }
    dur__pg_batch_end(&batch);
    return code;
}

/*
 * Woken by nothing but a timer that the lane keeps, a moment after the last look: the store need not be asked.
 */
static bool only_timers(dur__pg_lane *lane, const dur_round *round) {
    uint64_t now_us = dur__monotonic_us();
    if (round->turn_count + round->ack_count > 0 || lane->unknown || lane->store->caller_clock) return false;
    if (atomic_load(&lane->doubts)) return false;
    if (asks_for_suspect(round)) return false; /* "none" is an answer, too */
    if (dur__pg_timers_next(lane) == DUR_NEVER || dur__pg_timers_next(lane) > timers_due_ms(lane)) return false;
    if (lane->conn->pg != NULL && dur__pg_drain_notifications(lane->conn, lane->owner)) atomic_store(&lane->news, true);
    return !atomic_load(&lane->news) && !lane->more && !lane->unseen && !lane->free_instances &&
           !(lane->free_work && asks_for_work(round)) && lane->suspect_instance + lane->suspect_work == 0 &&
           !time_has_come(lane) && now_us - lane->answered_us < PROBE_APART_TOLD_US;
}

int dur__pg_lane_round(dur_lane *base, dur_arena *arena, dur_round *round, dur_error *err) {
    dur__pg_lane *lane = lane_of(base);
    dur_turn_commit **turns;
    lane->rest_at_us = 0;
    if (only_timers(lane, round)) {
        hand_out_timers(lane, arena, round);
        tell_state(lane, &(round_plan){ .reads = NOTHING }, round);
        return DUR_OK;
    }
    bool refused = false;
    dur_error mine = DUR_ERROR_INIT;
    size_t count = valid_turns(lane, round, arena, &turns);
    int code = dur__pg_lane_connect(lane, &mine);
    if (code == DUR_OK) code = dur__pg_leases_compare(lane, &mine);
    if (code == DUR_OK && lane->held_up.count > 0) count = dur__pg_leave_held_up(lane, turns, count, false);
    bool writes = count + round->ack_count > 0;
    if (code == DUR_OK) code = run_batch(lane, arena, round, turns, count, writes, &refused, &mine);
    if (refused && writes) { /* each gets its own answer; then look without writing */
        dur__pg_turns_commit(lane->conn, lane, arena, turns, count);
        dur__pg_acks_commit(lane->conn, round->acks, round->ack_count);
        dur__pg_wake(lane->store, lane, NULL);
        round->settles = lane->unknown;
        code = dur__pg_connect(lane->conn, &mine);
        if (code == DUR_OK && !lane->unknown) (void)run_batch(lane, arena, round, NULL, 0, false, &refused, NULL);
        round->more = true; /* what was not read now is read next time */
        return DUR_OK;
    }
    if (code != DUR_OK) {
        dur__pg_turns_failed(turns, count, &mine);
        for (size_t i = 0; i < round->ack_count; i++)
            round->acks[i].error = mine;
        if (err != NULL) *err = mine;
    }
    return code;
}
