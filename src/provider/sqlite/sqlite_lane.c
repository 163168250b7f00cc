/*
 * sqlite_lane.c: what a runtime's loop does with the store: rounds, and waiting for the next one.
 *
 * A round leads, and its transaction carries the inbox of everybody else.  Waiting costs no statement: it sleeps on the
 * lane's waker and on inotify, and asks SQLite whether anybody else has written only when the WAL was written.
 */
#include "base/waker_internal.h"
#include "provider/sqlite/sqlite_internal.h"
#include "provider/sqlite/sqlite_own.h"
#include <stdlib.h>

enum { SPIN_US = 100, SPIN_WORTH_US = 150, REST_MOST_US = 2000 };

int dur__sq_lane_open(dur_provider *self, const dur_lane_options *options, dur_lane **out, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    if (options->owner != NULL && !dur__sq_owner_known(file, options->owner))
        return dur_error_set(err, DUR_ESTATE, false, "sqlite.lane_open", "owner %s is not registered", options->owner);
    dur__sq_lane *lane = dur__zget(sizeof(*lane));
    char *owner = options->owner != NULL ? dur__strdup(options->owner) : NULL;
    if (lane == NULL || (owner == NULL && options->owner != NULL)) {
        dur__free(lane);
        dur__free(owner);
        return DUR__NO_MEMORY(err, "sqlite.lane_open");
    }
    lane->base.store = self;
    lane->file = file;
    lane->waker = options->waker;
    lane->stepped = options->stepped;
    lane->handlers = options->handlers;
    lane->owner = owner;
    lane->signalled = true; /* the first round looks at what is there already */
    dur__list_init(&lane->leases);
    dur__list_init(&lane->dirty);
    dur__list_init(&lane->lost);
    dur__list_init(&lane->asked);
    dur__mutex_lock(&file->desk.lock);
    dur__list_push(&file->desk.lanes, &lane->link);
    dur__mutex_unlock(&file->desk.lock);
    *out = &lane->base;
    return DUR_OK;
}

static void lost_free(dur__sq_lane *lane) {
    for (dur__link *at; (at = dur__list_pop(&lane->lost)) != NULL;)
        dur__sq_lease_free(DUR__CONTAINER(at, dur__sq_lease, lane_link));
}

void dur__sq_lane_close(dur_lane *base) {
    dur__sq_lane *lane = (dur__sq_lane *)(void *)base;
    dur__sq_file *file = lane->file;
    dur__sq_lead_memory(file);
    for (dur__link *at; (at = dur__list_first(&lane->leases)) != NULL;)
        dur__sq_lease_drop(file, DUR__CONTAINER(at, dur__sq_lease, lane_link)->key, false);
    dur__mutex_lock(&file->desk.lock);
    dur__list_unlink(&lane->link);
    dur__sq_watch_pass_on(file, NULL); /* waiters have slept while it watched for them */
    dur__mutex_unlock(&file->desk.lock);
    dur__sq_unlead_memory(file);
    lost_free(lane);
    dur__free(lane->owner);
    dur__free(lane);
}

static void lane_rests(dur__sq_lane *lane, bool rests) {
    dur__mutex_lock(&lane->file->desk.lock);
    if (!lane->has_thread || !pthread_equal(lane->thread, pthread_self())) {
        lane->thread = pthread_self();
        lane->has_thread = true;
    }
    lane->rests = rests;
    dur__mutex_unlock(&lane->file->desk.lock);
}

/* ---- the reads at the end of a round ---- */

typedef struct held_op {
    dur__sq_op op;
    dur__sq_lane *lane;
    dur_arena *arena;
    dur_round *round;
    dur__sq_rows held; /* dur_held_message */
    dur_held_message *all;
    size_t count;
} held_op;

static int held_of(held_op *self, dur__sq_txn *txn, dur__sq_lease *lease) {
    dur_fetched_message *messages = NULL;
    size_t count = 0;
    bool more = false;
    dur__sq_seen seen = { lease->key, txn->now_ms, lease->seen_id, lease->seen_now, lease, NULL, NULL };
    int code = dur__sq_read_messages(txn->conn, self->arena, &seen, self->round->queue_messages_max, &messages, &count,
                                     &more, &self->op.err);
    lease->read = true;
    lease->gap = more;
    if (code != DUR_OK || count == 0) return code;
    const char *instance = dur_arena_strdup(self->arena, lease->instance);
    const char *token = dur_arena_strdup(self->arena, lease->token);
    dur_held_message *held = dur__sq_rows_add(&self->held, count, sizeof(*held));
    for (size_t i = 0; i < count; i++)
        held[i] = (dur_held_message){ instance, token, messages[i] };
    dur__map_xreserve(&lease->given, count);
    return DUR_OK;
}

/* Somebody touched the row in this transaction: its turn ended the lease, or an operation looked at it. */
static int still_ours(dur__sq_txn *txn, const dur__sq_lease *lease, bool *ours, dur_error *err) {
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(txn->conn, DUR__SQ_INSTANCE_LEASE, &row, err, "i", lease->key);
    *ours = row != NULL && dur__str_eq(dur__sq_text(row, DUR__SQ_LEASE_TOKEN), lease->token);
    dur__sq_end(&row);
    return code;
}

static int held_run(dur__sq_op *op, dur__sq_txn *txn) {
    held_op *self = (held_op *)(void *)op;
    self->held = (dur__sq_rows){ .arena = self->arena };
    int code = dur__sq_max_id(txn, &self->round->seen_id, &op->err);
    DUR__LIST_EACH(&self->lane->dirty, at) {
        dur__sq_lease *lease = DUR__CONTAINER(at, dur__sq_lease, dirty_link);
        bool ours = true;
        if (code == DUR_OK && lease->epoch == 0) code = still_ours(txn, lease, &ours, &op->err);
        if (code == DUR_OK && ours) code = held_of(self, txn, lease);
    }
    self->round->now_ms = txn->now_ms;
    dur__sq_file *file = txn->file;
    bool known = atomic_load(&file->times.due_ms) != DUR_NEVER || atomic_load(&file->times.expiry_ms) != DUR_NEVER;
    if (code == DUR_OK && file->times.stale && known) code = dur__sq_next_times(txn, &op->err);
    if (code == DUR_OK && self->round->fetch == NULL && file->ready_maybe) /* it may want to know */
        code = dur__sq_has(txn->conn, DUR__SQ_INSTANCE_ANY_READY, &self->round->more, &op->err, "");
    self->all = dur__sq_rows_take(&self->held, &self->count);
    return code;
}

static int held_order(const void *a, const void *b) {
    const dur_fetched_message *x = &((const dur_held_message *)a)->message,
                              *y = &((const dur_held_message *)b)->message;
    if (x->due_ms != y->due_ms) return x->due_ms < y->due_ms ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* They are handed out now: remember up to where.  A lease that was given up in this round is gone already. */
static void held_done(dur__sq_op *op, dur__sq_file *file) {
    held_op *self = (held_op *)(void *)op;
    dur_round *round = self->round;
    DUR__LIST_EACH_SAFE(&self->lane->dirty, at, after) {
        dur__sq_lease *lease = DUR__CONTAINER(at, dur__sq_lease, dirty_link);
        if (!lease->read) continue; /* something came behind the read: next round */
        dur__list_unlink(at);
        lease->dirty = lease->read = false;
        lease->seen_id = round->seen_id;
        lease->seen_now = round->now_ms;
    }
    dur_held_message *all = self->all;
    round->held_count = self->count;
    if (round->held_count > 1) qsort(all, round->held_count, sizeof(*all), held_order);
    round->held = all;
    for (size_t i = 0; i < round->held_count; i++) {
        const dur_held_message *held = &all[i];
        dur__sq_lease *lease = dur__map_get_u64(&file->leases, dur__sq_token_key(held->lock_token, 'k'));
        if (lease != NULL) dur__sq_lease_give(lease, held->message.queue, held->message.id);
    }
}

/* Where there is no memory the next round tells. */
static void names_take(dur__sq_lane *lane, dur_arena *arena, dur_round *round) {
    dur__way_out out_of_memory;
    if (dur__list_empty(&lane->lost) && dur__list_empty(&lane->asked)) return;
    if (DUR__OUT_OF_MEMORY(&out_of_memory)) {
        atomic_store(&lane->signalled, true);
        return;
    }
    dur__sq_rows lost = { .arena = arena }, asked = { .arena = arena };
    DUR__LIST_EACH(&lane->lost, at)
    *(const char **)dur__sq_rows_add(&lost, 1, sizeof(char *)) =
        dur_arena_strdup(arena, DUR__CONTAINER(at, dur__sq_lease, lane_link)->instance);
    DUR__LIST_EACH(&lane->asked, at)
    *(const char **)dur__sq_rows_add(&asked, 1, sizeof(char *)) =
        dur_arena_strdup(arena, DUR__CONTAINER(at, dur__sq_lease, asked_link)->instance);
    dur__way_out_end(&out_of_memory);
    round->lost = (const char **)(void *)lost.data;
    round->lost_count = lost.count;
    round->asked = (const char **)(void *)asked.data;
    round->asked_count = asked.count;
    lost_free(lane);
    while (dur__list_pop(&lane->asked) != NULL) {
    }
}

/* ---- a round ---- */

typedef struct round_ops {
    dur__sq_turn_op *turns;
    dur__sq_ack_op *acks;
    dur__sq_op **list;
    dur__sq_fetch_op fetch;
    dur__sq_work_op work;
    held_op held;
    dur__sq_op *last[3];
    size_t last_count;
} round_ops;

static bool round_prepare(round_ops *ops, dur__sq_lane *lane, dur_arena *arena, dur_round *round) {
    dur__way_out out_of_memory;
    if (DUR__OUT_OF_MEMORY(&out_of_memory)) return false;
    size_t count = round->turn_count + round->ack_count, at = 0;
    ops->turns = dur_arena_alloc(arena, round->turn_count * sizeof(*ops->turns) + 1);
    ops->acks = dur_arena_alloc(arena, round->ack_count * sizeof(*ops->acks) + 1);
    ops->list = dur_arena_alloc(arena, count * sizeof(*ops->list) + 1);
    for (size_t i = 0; i < round->turn_count; i++) {
        dur__sq_turn_op_init(&ops->turns[i], &round->turns[i], arena);
        ops->turns[i].lane = lane;
        ops->list[at++] = &ops->turns[i].op;
    }
    for (size_t i = 0; i < round->ack_count; i++) {
        dur__sq_ack_op_init(&ops->acks[i], &round->acks[i]);
        ops->list[at++] = &ops->acks[i].op;
    }
    ops->last_count = 0;
    ops->held = (held_op){ .op = { .run = held_run, .done = held_done }, .lane = lane, .arena = arena, .round = round };
    ops->last[ops->last_count++] = &ops->held.op;
    if (round->fetch != NULL) {
        size_t max = round->fetch->max > 0 ? round->fetch->max : 1;
        round->items = dur_arena_alloc(arena, max * sizeof(*round->items));
        dur__sq_fetch_op_init(&ops->fetch, round->fetch, arena, lane, round->items, max);
        ops->last[ops->last_count++] = &ops->fetch.op;
    }
    if (round->work != NULL) {
        size_t max = round->work->max > 0 ? round->work->max : 1;
        round->works = dur_arena_alloc(arena, max * sizeof(*round->works));
        dur__sq_work_op_init(&ops->work, round->work, arena, round->works, max);
        ops->last[ops->last_count++] = &ops->work.op;
    }
    dur__way_out_end(&out_of_memory);
    return true;
}

static void round_answer(round_ops *ops, dur_round *round) {
    for (size_t i = 0; i < round->turn_count; i++)
        dur__sq_turn_op_answer(&ops->turns[i]);
    for (size_t i = 0; i < round->ack_count; i++)
        round->acks[i].error = ops->acks[i].op.err;
    if (round->fetch != NULL) {
        if (!ops->fetch.op.failed) {
            round->item_count = ops->fetch.count;
            round->more = ops->fetch.more;
            round->suspect_instance = ops->fetch.suspect;
        } else
            dur__sq_fetch_op_drop(&ops->fetch);
    }
    if (round->work != NULL && !ops->work.op.failed) {
        round->work_count = ops->work.count;
        round->more = round->more || ops->work.more;
        round->suspect_work = ops->work.suspect;
        round->work_waiting_long = ops->work.waiting_long;
    }
}

/* A round that did nothing for want of memory has failed: its caller pauses. */
static int round_starved(const round_ops *ops, const dur_round *round, dur_error *err) {
    bool starved = false;
    for (size_t i = 0; i < ops->last_count; i++)
        starved = starved || (ops->last[i]->failed && ops->last[i]->err.code == DUR_ENOMEM);
    if (!starved) return DUR_OK;
    atomic_store(&ops->held.lane->signalled, true); /* what was left is news again */
    bool nothing =
        round->turn_count + round->ack_count + round->item_count + round->work_count + round->held_count == 0;
    return nothing ? DUR__NO_MEMORY(err, "sqlite.round") : DUR_OK;
}

int dur__sq_lane_round(dur_lane *base, dur_arena *arena, dur_round *round, dur_error *err) {
    dur__sq_lane *lane = (dur__sq_lane *)(void *)base;
    dur__sq_file *file = lane->file;
    round_ops ops;
    lane_rests(lane, false);
    if (!round_prepare(&ops, lane, arena, round)) return DUR__NO_MEMORY(err, "sqlite.round");
    int code = dur__sq_lead(file, err);
    if (code != DUR_OK) return code;
    lane->asks_instances = round->fetch != NULL && round->fetch->kind != DUR_FETCH_SUSPECT;
    lane->asks_work = round->work != NULL && round->work->kind != DUR_FETCH_SUSPECT;
    /* A round that does not look everywhere leaves the signal for the next wait. */
    if (lane->asks_instances && lane->asks_work) atomic_store(&lane->signalled, false);
    lane->left_inbox = false;
    dur__sq_batch(file, dur__sq_busy_until(file), lane, ops.list, round->turn_count + round->ack_count, ops.last,
                  ops.last_count);
    if (ops.held.op.failed && ops.held.op.undone) { /* nothing was done */
        code = ops.held.op.err.code;
        if (err != NULL) *err = ops.held.op.err;
    }
    round_answer(&ops, round);
    if (code == DUR_OK) code = round_starved(&ops, round, err);
    if (code == DUR_OK) names_take(lane, arena, round); /* else nobody reads the answers: the next round tells */
    dur__sq_unlead(file);
    if (round->now_ms == 0) round->now_ms = file->world->wall_ms(file->world->data);
    uint64_t left = dur__sq_time_left(file, DUR_NEVER);
    round->next_due_ms = left == DUR_NEVER ? DUR_NEVER : dur__sq_after(round->now_ms, left);
    return code;
}

/* ---- waiting ---- */

/* The WAL was written: by somebody else?  Then look what it means for us. */
static int moved_look(dur__sq_lane *lane, dur_error *err) {
    dur__sq_file *file = lane->file;
    bool changed = false;
    int code = dur__sq_lead(file, err);
    if (code != DUR_OK) return code;
    code = dur__sq_foreign(file, &changed, err);
    if (code == DUR_OK && changed) dur__sq_signal_all(file);
    dur__sq_unlead(file);
    return code;
}

/* What came from other processes, and what others of this one wait for.  True: there is something to look at. */
static bool look_around(dur__sq_lane *lane, int *code, dur_error *err) {
    dur__sq_file *file = lane->file;
    for (;;) {
        dur__sq_wake_drain(file);
        if (atomic_exchange(&file->peers.wal_moved, false)) *code = moved_look(lane, err);
        if (*code == DUR_OK && atomic_exchange(&file->peers.owners_moved, false))
            *code = dur__sq_owners_look(file, lane->owner, err);
        if (*code != DUR_OK || atomic_exchange(&lane->signalled, false)) return true;
        if (!dur__sq_inbox_waits(file)) return false;
        lane->left_inbox = !lane->left_inbox;
        if (lane->left_inbox) return true; /* the round that follows serves it, together with its own fetch */
        *code = dur__sq_lead(file, err);
        if (*code != DUR_OK) return true;
        dur__sq_batch(file, dur__sq_busy_until(file), NULL, NULL, 0, NULL, 0);
        dur__sq_unlead(file);
    }
}

/*
 * A lane whose sleeps have been short lately spins instead: waking a sleeper takes as long as a quarter of a commit.
 * One long sleep ends that, a few short ones begin it again.
 */
int dur__sq_lane_rest(dur_lane *base, dur_rest *out, dur_error *err) {
    dur__sq_lane *lane = (dur__sq_lane *)(void *)base;
    dur__sq_file *file = lane->file;
    int code = DUR_OK;
    lane_rests(lane, true);
    uint64_t left_ms = look_around(lane, &code, err) ? 0 : dur__sq_time_left(file, DUR_NEVER);
    if (left_ms > 0) {
        lane->rest_at_us = dur__monotonic_us();
        if (lane->rest_us <= SPIN_WORTH_US && !lane->stepped) (void)dur__waker_spin(lane->waker, SPIN_US);
        if (dur__sq_rest(file, lane->waker, left_ms, out)) return DUR_OK;
    }
    lane_rests(lane, false);
    return code;
}

int dur__sq_lane_rise(dur_lane *base, const dur_rest *slept, bool *news, dur_error *err) {
    dur__sq_lane *lane = (dur__sq_lane *)(void *)base;
    (void)slept, (void)err;
    *news = dur__sq_rise(lane->file, lane->waker);
    uint64_t took_us = dur__monotonic_us() - lane->rest_at_us;
    lane->rest_us = (3 * lane->rest_us + (took_us < REST_MOST_US ? took_us : REST_MOST_US)) / 4;
    lane_rests(lane, false);
    return DUR_OK;
}

/* ---- reads of a leased instance ---- */

/* Leads when it succeeds. */
static int lease_of(dur__sq_lane *lane, const char *instance, const char *token, dur__sq_lease **out, dur_error *err) {
    int code = dur__sq_lead(lane->file, err);
    if (code != DUR_OK) return code;
    *out = dur__map_get_u64(&lane->file->leases, dur__sq_token_key(token, 'k'));
    if (*out != NULL && dur__str_eq((*out)->token, token) && dur__str_eq((*out)->instance, instance)) return DUR_OK;
    dur__sq_unlead(lane->file);
    return dur_error_set(err, DUR_ELEASE, false, "sqlite.lane", "Invalid lock token");
}

int dur__sq_lane_messages(dur_lane *base, dur_arena *arena, const char *instance, const char *lock_token,
                          const char *queue, uint64_t after_due_ms, uint64_t after_id, size_t max,
                          dur_fetched_message **out, size_t *count, dur_error *err) {
    dur__sq_lane *lane = (dur__sq_lane *)(void *)base;
    dur__sq_file *file = lane->file;
    dur__sq_lease *lease = NULL;
    *out = NULL;
    *count = 0;
    int code = lease_of(lane, instance, lock_token, &lease, err);
    if (code != DUR_OK) return code;
    /* Of all messages only those that a round has handed out: what became due since comes with the next one. */
    uint64_t now = queue != NULL ? file->world->wall_ms(file->world->data) : lease->seen_now;
    dur__sq_behind which = { lease->key, now, queue, after_due_ms, after_id, max };
    size_t found = 0;
    dur__way_out out_of_memory;
    if (DUR__OUT_OF_MEMORY(&out_of_memory)) {
        dur__sq_conn_reset(&file->writer);
        dur__sq_unlead(file);
        *count = 0;
        return DUR__NO_MEMORY(err, "sqlite.lane");
    }
    code = dur__sq_read_behind(&file->writer, arena, &which, out, &found, err);
    if (code == DUR_OK) dur__map_xreserve(&lease->given, found);
    dur__way_out_end(&out_of_memory);
    for (size_t i = 0; i < found && code == DUR_OK; i++) {
        dur_fetched_message message = (*out)[i];
        if (message.queue == NULL && message.id > lease->seen_id) continue; /* comes with the next round */
        (*out)[(*count)++] = message;
        dur__sq_lease_give(lease, message.queue, message.id); /* and does not come with one */
    }
    dur__sq_unlead(file);
    return code;
}

/* What is remembered of it. */
static int lease_read(dur__sq_lane *lane, dur_arena *arena, const char *instance, const char *token,
                      dur_orchestration_item *out, dur_error *err) {
    dur__sq_lease *lease = NULL;
    int code = lease_of(lane, instance, token, &lease, err);
    if (code != DUR_OK) return code;
    dur__way_out out_of_memory;
    if (DUR__OUT_OF_MEMORY(&out_of_memory)) {
        dur__sq_unlead(lane->file);
        return DUR__NO_MEMORY(err, "sqlite.lane");
    }
    out->orchestration_name = dur_arena_strdup(arena, lease->name);
    out->version = dur_arena_strdup(arena, lease->version);
    out->store_key = lease->key;
    out->execution_id = lease->execution > 0 ? lease->execution : 1;
    dur__way_out_end(&out_of_memory);
    dur__sq_unlead(lane->file);
    return DUR_OK;
}

int dur__sq_lane_history(dur_lane *base, dur_arena *arena, const char *instance, const char *lock_token,
                         uint64_t execution_id, dur_orchestration_item *out, dur_error *err) {
    dur__sq_lane *lane = (dur__sq_lane *)(void *)base;
    dur__sq_conn *conn = NULL;
    dur_event_row *history = NULL;
    dur_key_value *kv = NULL;
    memset(out, 0, sizeof *out);
    int code = lease_read(lane, arena, instance, lock_token, out, err);
    if (code != DUR_OK) return code;
    if (execution_id != 0) out->execution_id = execution_id;
    DUR__SQ_READ(read, lane->file, err);
    code = dur__sq_read_snapshot(&read, &conn, err);
    if (code == DUR_OK)
        code = dur__sq_read_history(conn, arena, instance, out->store_key, out->execution_id, &history,
                                    &out->history_count, err);
    if (code == DUR_OK) code = dur__sq_read_kv(conn, arena, out->store_key, false, &kv, &out->kv_count, err);
    out->instance = dur_arena_strdup(arena, instance);
    out->lock_token = dur_arena_strdup(arena, lock_token);
    dur__sq_read_done(&read);
    out->history = history;
    out->kv = kv;
    if (history != NULL && out->history_count > 0) out->last_event_id = history[out->history_count - 1].event_id;
    return code;
}
