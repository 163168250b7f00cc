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
#include "provider/postgres/pg_turn.h"

#include <stdlib.h>

typedef struct dur__pg_timer {
    dur__link link; /* of the same instance */
    struct dur__pg_timed *of;
    uint64_t id, execution, activity, due_ms;
    size_t place;    /* in the heap; … */
    bool handed_out; /* … no more */
    size_t json_size;
    char json[];
} timer;

typedef struct dur__pg_timed {
    dur__link timers;
    size_t count;
    char *token; /* of the lease */
    char id[];
} instance;

/* ---- those that are not due yet: a heap, the first one on top ---------------------------------------------------- */

static bool before(const timer *a, const timer *b) {
    return a->due_ms != b->due_ms ? a->due_ms < b->due_ms : a->id < b->id;
}

static void put(dur__pg_timers *all, size_t place, timer *self) {
    all->heap[place] = self;
    self->place = place;
}

static void rise(dur__pg_timers *all, size_t place, timer *self) {
    for (size_t above; place > 0; place = above) {
        above = (place - 1) / 2;
        if (!before(self, all->heap[above])) break;
        put(all, place, all->heap[above]);
    }
    put(all, place, self);
}

static void sink(dur__pg_timers *all, size_t place, timer *self) {
    for (size_t below; (below = 2 * place + 1) < all->count; place = below) {
        if (below + 1 < all->count && before(all->heap[below + 1], all->heap[below])) below++;
        if (!before(all->heap[below], self)) break;
        put(all, place, all->heap[below]);
    }
    put(all, place, self);
}

static void heap_add(dur__pg_timers *all, timer *self) {
    if (all->count == all->room) {
        all->room = all->room > 0 ? 2 * all->room : 64;
        all->heap = dur__xrealloc(all->heap, all->room * sizeof(timer *));
    }
    rise(all, all->count++, self);
}

static void heap_remove(dur__pg_timers *all, timer *self) {
    if (self->handed_out) return;
    self->handed_out = true;
    timer *last = all->heap[--all->count];
    if (last == self) return;
    size_t place = self->place;
    if (place > 0 && before(last, all->heap[(place - 1) / 2]))
        rise(all, place, last);
    else
        sink(all, place, last);
}

/* ---- of instances ------------------------------------------------------------------------------------------------ */

static instance *instance_of(const dur__pg_lane *lane, const char *id) {
    return lane->timers.instances.count > 0 ? dur__map_get(&lane->timers.instances, id) : NULL;
}

static void timer_free(dur__pg_timers *all, timer *self) {
    heap_remove(all, self);
    dur__map_remove_u64(&all->by_id, self->id);
    dur__list_unlink(&self->link);
    self->of->count--;
    dur__free(self);
}

static void instance_free(dur__pg_timers *all, instance *self) {
    for (dur__link *at; (at = dur__list_first(&self->timers)) != NULL;)
        timer_free(all, DUR__CONTAINER(at, timer, link));
    dur__free(self->token);
    dur__free(self);
}

void dur__pg_timers_forget(dur__pg_lane *lane, const char *id) {
    instance *self = instance_of(lane, id);
    if (self == NULL) return;
    dur__map_remove(&lane->timers.instances, id);
    instance_free(&lane->timers, self);
}

void dur__pg_timers_forget_all(dur__pg_lane *lane) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&lane->timers.instances, &i)) != NULL;)
        instance_free(&lane->timers, entry->value);
    dur__map_free(&lane->timers.instances);
    dur__map_free(&lane->timers.by_id);
    dur__free(lane->timers.heap);
    memset(&lane->timers, 0, sizeof(lane->timers));
}

static instance *instance_under(dur__pg_lane *lane, const char *id, const char *token) {
    instance *self = instance_of(lane, id);
    if (self != NULL && strcmp(self->token, token) == 0) return self;
    dur__pg_timers_forget(lane, id); /* those of another lease */
    size_t size = strlen(id) + 1;
    self = dur__xmalloc(sizeof(*self) + size);
    dur__list_init(&self->timers);
    self->count = 0;
    self->token = dur__xstrdup(token);
    memcpy(self->id, id, size);
    dur__map_put(&lane->timers.instances, self->id, self);
    return self;
}

static void remember(dur__pg_lane *lane, const dur_turn_commit *turn, const dur_message_row *item, uint64_t id) {
    instance *of = instance_under(lane, turn->instance, turn->lock_token);
    timer *self = dur__xmalloc(sizeof(*self) + item->json.size);
    *self = (timer){ .of = of,
                     .id = id,
                     .execution = item->execution_id,
                     .activity = item->activity_id,
                     .due_ms = item->due_ms,
                     .json_size = item->json.size };
    if (item->json.size > 0) memcpy(self->json, item->json.data, item->json.size);
    dur__list_push(&of->timers, &self->link);
    of->count++;
    dur__map_put_u64(&lane->timers.by_id, id, self);
    heap_add(&lane->timers, self);
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
    timer *self = lane->timers.by_id.count > 0 ? dur__map_get_u64(&lane->timers.by_id, turn->consumed[i]) : NULL;
    return self != NULL && strcmp(self->of->id, turn->instance) == 0 ? self : NULL;
}

static timer *dropped(const dur__pg_lane *lane, const dur_turn_commit *turn, size_t i) {
    instance *of = instance_of(lane, turn->instance);
    if (of == NULL) return NULL;
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
bool dur__pg_leaves_no_timer(const dur__pg_lane *lane, const dur_turn_commit *turn) {
    const instance *of = instance_of(lane, turn->instance);
    size_t left = of != NULL ? of->count : 0;
    for (size_t i = 0; left > 0 && i < turn->consumed_count; i++)
        left -= consumed(lane, turn, i) != NULL;
    for (size_t i = 0; left > 0 && i < turn->timers_dropped_count; i++)
        left -= dropped(lane, turn, i) != NULL;
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
    dur__pg_args_begin(parts->store, &args);
    dur__pg_table_args(&args, &rows);
    dur__pg_i64(&args, parts->lane != NULL ? parts->lane->rounds : 0);
    return dur__pg_batch_add(batch, timers_sql, &args);
}

static void forget_taken(dur__pg_lane *lane, const dur_turn_commit *turn) {
    const instance *of = instance_of(lane, turn->instance);
    if (of == NULL) return;
    for (size_t i = 0; i < turn->consumed_count; i++) {
        timer *self = consumed(lane, turn, i);
        if (self != NULL) timer_free(&lane->timers, self);
    }
    for (size_t i = 0; i < turn->timers_dropped_count; i++) {
        timer *self = dropped(lane, turn, i);
        if (self != NULL) timer_free(&lane->timers, self);
    }
    if (of->count == 0) dur__pg_timers_forget(lane, turn->instance);
}

/* What it has set and dropped at once is gone. */
void dur__pg_timers_note(dur__pg_lane *lane, const dur_turn_commit *turn, const PGresult *ids, int *row) {
    for (size_t i = 0; ids != NULL && i < turn->orchestrator_item_count; i++)
        remember(lane, turn, &turn->orchestrator_items[i], dur__pg_get_u64(ids, (*row)++, 0));
    if (dur__turn_facts_of(turn).keeps)
        forget_taken(lane, turn);
    else
        dur__pg_timers_forget(lane, turn->instance);
}

/* ---- handing out ------------------------------------------------------------------------------------------------- */

uint64_t dur__pg_timers_next(const dur__pg_lane *lane) {
    return lane->timers.count > 0 ? ((const timer *)lane->timers.heap[0])->due_ms : DUR_NEVER;
}

void dur__pg_timers_hand_out(dur__pg_lane *lane, uint64_t now_ms, dur_arena *arena, dur_round *round) {
    size_t room = round->held_count;
    while (dur__pg_timers_next(lane) <= now_ms) {
        timer *self = lane->timers.heap[0];
        if (round->held_count == room) {
            room = room < 16 ? 32 : 2 * room;
            dur_held_message *held = dur_arena_alloc(arena, room * sizeof(*held));
            if (round->held_count > 0) memcpy(held, round->held, round->held_count * sizeof(*held));
            round->held = held;
        }
        heap_remove(&lane->timers, self);
        round->held[round->held_count++] = (dur_held_message){
            .instance = dur_arena_strdup(arena, self->of->id),
            .lock_token = dur_arena_strdup(arena, self->of->token),
            .message = { .id = self->id,
                         .due_ms = self->due_ms,
                         .attempt_count = 1,
                         .json = { dur_arena_memdup(arena, self->json, self->json_size), self->json_size } }
        };
    }
}
