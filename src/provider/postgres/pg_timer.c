/*
 * pg_timer.c: timers that a lane keeps for the instances that it holds.
 *
 * A timer is a message of an instance to itself.  Where a turn sends nothing else, its row says from the beginning that
 * the holder was given it: no round looks for it, the instance's row does not say when it is due, and the lane hands it
 * out when its time has come.  Whoever ends the lease takes back what was given and goes by what is in the queue, as
 * ever (DUR__PG_END_LEASES, the release of a turn), so that nothing depends on this memory but how soon a timer fires.
 *
 * What is handed out is remembered until the turn that takes it: an end is bare (pg_turn.c) only when none of its
 * timers is left in the queue.
 */
#include "provider/postgres/pg_pieces.h"
#include "provider/postgres/pg_turn.h"

#include <stdlib.h>

typedef struct timer {
    dur__heap_item order; /* when it is due, and its id; in no heap: handed out */
    dur__link link;       /* of the same lease */
    dur__pg_lease *of;
    uint64_t execution, activity;
    size_t json_size;
    char json[];
} timer;

static void timer_free(dur__pg_lane *lane, timer *self) {
    dur__heap_remove(&lane->timers, &self->order);
    dur__map_remove_u64(&lane->timers_by_id, self->order.lo);
    dur__list_unlink(&self->link);
    self->of->timer_count--;
    dur__free(self);
}

void dur__pg_timers_forget(dur__pg_lane *lane, dur__pg_lease *of) {
    for (dur__link *at; (at = dur__list_first(&of->timers)) != NULL;)
        timer_free(lane, DUR__CONTAINER(at, timer, link));
}

static void remember(dur__pg_lane *lane, dur__pg_lease *of, const dur_message_row *item, uint64_t id) {
    timer *self = dur__xmalloc(sizeof(*self) + item->json.size);
    *self = (timer){ .of = of,
                     .order = { .hi = item->due_ms, .lo = id },
                     .execution = item->execution_id,
                     .activity = item->activity_id,
                     .json_size = item->json.size };
    if (item->json.size > 0) memcpy(self->json, item->json.data, item->json.size);
    dur__list_push(&of->timers, &self->link);
    of->timer_count++;
    dur__map_put_u64(&lane->timers_by_id, id, self);
    dur__heap_push(&lane->timers, &self->order);
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

bool dur__pg_sends_only_timers(const dur_turn_commit *turn) {
    for (size_t i = 0; i < turn->orchestrator_item_count; i++) {
        const dur_message_row *item = &turn->orchestrator_items[i];
        if (item->kind != DUR_WORK_TIMER_FIRED || item->due_ms == 0 || item->due_ms >= DUR__PG_DELAY_FOREVER ||
            item->message_id != NULL || item->execution_id != turn->execution_id || item->instance == NULL ||
            strcmp(item->instance, turn->instance) != 0 || !dur__turn_facts_of(turn).keeps)
            return false;
    }
    return true;
}

static timer *consumed(const dur__pg_lane *lane, const dur_turn_commit *turn, size_t i) {
    timer *self = lane->timers_by_id.count > 0 ? dur__map_get_u64(&lane->timers_by_id, turn->consumed[i]) : NULL;
    return self != NULL && strcmp(self->of->instance, turn->instance) == 0 ? self : NULL;
}

static timer *dropped(const dur__pg_lease *of, const dur_turn_commit *turn, size_t i) {
    DUR__LIST_EACH(&of->timers, at) {
        timer *self = DUR__CONTAINER(at, timer, link);
        if (self->execution == turn->timers_dropped[i].execution_id &&
            self->activity == turn->timers_dropped[i].activity_id)
            return self;
    }
    return NULL;
}

bool dur__pg_takes_only_timers(const dur__pg_lane *lane, const dur_turn_commit *turn) {
    for (size_t i = 0; i < turn->consumed_count; i++)
        if (consumed(lane, turn, i) == NULL) return false;
    return true;
}

/* None is named twice: what was consumed need not be dropped. */
bool dur__pg_leaves_no_timer(const dur__pg_lane *lane, const dur__pg_lease *of, const dur_turn_commit *turn) {
    size_t left = of->timer_count;
    for (size_t i = 0; left > 0 && i < turn->consumed_count; i++)
        left -= consumed(lane, turn, i) != NULL;
    for (size_t i = 0; left > 0 && i < turn->timers_dropped_count; i++)
        left -= dropped(of, turn, i) != NULL;
    return left == 0;
}

/* One by one, in the order given: so are their ids, in the answer too. */
static const char timers_sql[] =
    "INSERT INTO @queue (instance_id, due_ms, order_ms, delivered, kind, execution_id, activity_id, json)"
    " SELECT unnest($2::text[]), unnest($3::bigint[]), unnest($3::bigint[]), $7::bigint, " DUR__PG_KIND_TIMER ","
    " unnest($4::bigint[]), unnest($5::bigint[]), unnest($6::text[]) RETURNING id";

int dur__pg_send_timers(dur__pg_batch *batch, const dur__pg_parts *parts) {
    dur__pg_args args;
    dur__pg_table rows = dur__pg_table_of("tiiit");
    for (size_t i = 0; i < parts->count; i++) {
        const dur_turn_commit *turn = parts->all[i].turn;
        for (size_t k = 0; parts->all[i].keeps_timers && k < turn->orchestrator_item_count; k++) {
            const dur_message_row *item = &turn->orchestrator_items[k];
            dur__pg_put_text(&rows, item->instance);
            dur__pg_put_i64(&rows, dur__pg_ms(item->due_ms));
            dur__pg_put_id(&rows, item->execution_id);
            dur__pg_put_id(&rows, item->activity_id);
            dur__pg_put_json(&rows, item->json);
        }
    }
    if (rows.rows == 0) return -1;
    dur__pg_args_begin(batch->conn->store, &args);
    dur__pg_table_args(&args, &rows);
    dur__pg_i64(&args, parts->lane != NULL ? parts->lane->rounds : 0);
    return dur__pg_batch_add(batch, timers_sql, &args);
}

/* What it has set and dropped at once is gone. */
void dur__pg_timers_note(dur__pg_lane *lane, dur__pg_lease *of, const dur_turn_commit *turn, const PGresult *ids,
                         int *row) {
    for (size_t i = 0; ids != NULL && i < turn->orchestrator_item_count; i++)
        remember(lane, of, &turn->orchestrator_items[i], dur__pg_get_u64(ids, (*row)++, 0));
    for (size_t i = 0; of->timer_count > 0 && i < turn->consumed_count; i++) {
        timer *self = consumed(lane, turn, i);
        if (self != NULL) timer_free(lane, self);
    }
    for (size_t i = 0; of->timer_count > 0 && i < turn->timers_dropped_count; i++) {
        timer *self = dropped(of, turn, i);
        if (self != NULL) timer_free(lane, self);
    }
}

/* ---- handing out ------------------------------------------------------------------------------------------------- */

uint64_t dur__pg_timers_next(const dur__pg_lane *lane) {
    const dur__heap_item *first = dur__heap_top(&lane->timers);
    return first != NULL ? first->hi : DUR_NEVER;
}

void dur__pg_timers_hand_out(dur__pg_lane *lane, uint64_t now_ms, dur_arena *arena, dur_round *round) {
    size_t room = round->held_count;
    while (dur__pg_timers_next(lane) <= now_ms) {
        timer *self = DUR__CONTAINER(dur__heap_top(&lane->timers), timer, order);
        if (round->held_count == room) {
            room = room < 16 ? 32 : 2 * room;
            dur_held_message *held = dur_arena_alloc(arena, room * sizeof(*held));
            if (round->held_count > 0) memcpy(held, round->held, round->held_count * sizeof(*held));
            round->held = held;
        }
        dur__heap_remove(&lane->timers, &self->order);
        round->held[round->held_count++] = (dur_held_message){
            .instance = dur_arena_strdup(arena, self->of->instance),
            .lock_token = dur_arena_strdup(arena, self->of->token),
            .message = { .id = self->order.lo,
                         .due_ms = self->order.hi,
                         .attempt_count = 1,
                         .json = { dur_arena_memdup(arena, self->json, self->json_size), self->json_size } }
        };
    }
}
