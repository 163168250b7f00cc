/*
 * sqlite_fetch.c: acquiring instances that have a reason to run.
 *
 * Candidates come from the index on ready_at, oldest first.  Each is looked at once: either it is locked, or its
 * ready_at is corrected, so that nothing can hide the work of others.
 */
#include "provider/dead_reason.h"
#include "provider/provider_internal.h"
#include "provider/sqlite/sqlite_internal.h"
#include <stdlib.h>

typedef struct candidate {
    uint64_t key, execution, status, acquisitions, seq, crashes, crashes_alone, look;
    uint32_t suspect; /* 1 more than its crashes alone, those in doubt included */
    char *instance, *name, *version;
    dur__sq_first_start start; /* when it was looked for */
    size_t queued;             /* rows of its in the queue; DUR__SQ_NOT_COUNTED */
} candidate;

static void candidate_fill(dur_arena *arena, sqlite3_stmt *row, candidate *out) {
    *out = (candidate){ .key = dur__sq_u64(row, 0),
                        .instance = dur__sq_dup(arena, row, 1),
                        .name = dur__sq_dup(arena, row, 2),
                        .version = dur__sq_dup(arena, row, 3),
                        .execution = dur__sq_u64(row, 4),
                        .status = dur__sq_u64(row, 5),
                        .acquisitions = dur__sq_u64(row, 6),
                        .seq = dur__sq_u64(row, 7),
                        .crashes = dur__sq_u64(row, 8),
                        .crashes_alone = dur__sq_u64(row, 9),
                        .suspect = (uint32_t)dur__sq_u64(row, 11) + 1,
                        .look = dur__sq_u64(row, 12),
                        .queued = DUR__SQ_NOT_COUNTED };
}

/* Visible queue messages of an instance that does not exist: out of the way, but not lost.  Delayed ones wait. */
static int orphans_bury(dur__sq_txn *txn, const candidate *it, dur_error *err) {
    uint64_t due = 0; /* of those that are left; 0: there are none */
    int code =
        dur__sq_run(txn->conn, DUR__SQ_DEAD_QUEUES, err, "itii", it->key, DUR__NO_INSTANCE, txn->now_ms, txn->now_ms);
    if (code == DUR_OK) code = dur__sq_run(txn->conn, DUR__SQ_QUEUE_DELETE_QUEUES, err, "ii", it->key, txn->now_ms);
    if (code == DUR_OK) code = dur__sq_get(txn->conn, DUR__SQ_QUEUE_ORPHAN_NEXT, &due, 1, err, "i", it->key);
    return code == DUR_OK ? dur__sq_set_ready(txn, it->key, due != 0, due, err) : code;
}

/* Does it exist?  One that is known only by messages has nobody to run: queue messages are buried, others wait. */
static int candidate_judge(dur__sq_txn *txn, candidate *it, bool *runs, dur_error *err) {
    enum { ID, AT, START_DUE, COLUMNS };
    uint64_t start[COLUMNS];
    *runs = true;
    if (it->name != NULL || it->start.id != 0) return DUR_OK;
    int code = dur__sq_get(txn->conn, DUR__SQ_QUEUE_START, start, COLUMNS, err, "i", it->key);
    bool exists = start[ID] != 0;
    it->start = (dur__sq_first_start){ start[ID], start[START_DUE] > txn->now_ms };
    if (code == DUR_OK && !exists && it->execution != 0)
        code = dur__sq_has(txn->conn, DUR__SQ_HISTORY_ANY, &exists, err, "i", it->key);
    if (code != DUR_OK || exists) return code;
    *runs = false;
    return orphans_bury(txn, it, err);
}

static int messages_read(dur__sq_txn *txn, dur__sq_fetch_op *self, candidate *it, dur_orchestration_item *item,
                         dur_error *err) {
    dur_fetched_message *messages = NULL;
    dur__sq_seen seen = { it->key, txn->now_ms, 0, 0, NULL, &it->start, &it->queued };
    int code = dur__sq_read_messages(txn->conn, self->arena, &seen, self->how->queue_messages_max, &messages,
                                     &item->message_count, &item->more_messages, err);
    item->messages = messages;
    for (size_t i = 0; i < item->message_count; i++)
        if (messages[i].attempt_count > item->attempt_count) item->attempt_count = messages[i].attempt_count;
    return code;
}

/* The fetch counts for each of them. */
static int messages_tag(dur__sq_txn *txn, const char *token, const dur_orchestration_item *item, dur_error *err) {
    int code = DUR_OK;
    for (size_t i = 0; i < item->message_count && code == DUR_OK; i++)
        code = dur__sq_run(txn->conn, DUR__SQ_QUEUE_TAG_ONE, err, "it", item->messages[i].id, token);
    return code;
}

static int position_read(dur__sq_txn *txn, dur__sq_fetch_op *self, const candidate *it, dur_orchestration_item *item,
                         dur_error *err) {
    item->execution_id = it->execution != 0 ? it->execution : 1;
    if (it->execution == 0) return DUR_OK; /* new: no history, no values */
    if (!self->how->without_history) {
        dur_event_row *history = NULL;
        dur_key_value *kv = NULL;
        int code = dur__sq_read_history(txn->conn, self->arena, it->instance, it->key, item->execution_id, &history,
                                        &item->history_count, err);
        if (code == DUR_OK) code = dur__sq_read_kv(txn->conn, self->arena, it->key, false, &kv, &item->kv_count, err);
        item->history = history;
        item->kv = kv;
        if (item->history_count > 0) item->last_event_id = history[item->history_count - 1].event_id;
        return code;
    }
    return dur__sq_get(txn->conn, DUR__SQ_HISTORY_LAST, &item->last_event_id, 1, err, "ii", it->key,
                       item->execution_id);
}

/* In the transaction that read the messages: what has neither a row nor a completion there has no row anywhere. */
static int works_read(dur__sq_txn *txn, dur_arena *arena, const candidate *it, dur_orchestration_item *item,
                      dur_error *err) {
    sqlite3_stmt *row = NULL;
    dur__sq_rows works = { .arena = arena };
    item->works_known = true;
    item->work_lost = it->look != DUR__SQ_LOOK_NONE;
    if (it->execution == 0) return DUR_OK;
    int code = dur__sq_first(txn->conn, DUR__SQ_WORK_OF_EXECUTION, &row, err, "ii", it->key, it->execution);
    while (code == DUR_OK && row != NULL) {
        *(uint64_t *)dur__sq_rows_add(&works, 1, sizeof(uint64_t)) = dur__sq_u64(row, 0);
        code = dur__sq_next(&row, err);
    }
    dur__sq_end(&row);
    item->works = dur__sq_rows_take(&works, &item->work_count);
    return code;
}

static void lease_make(dur__sq_lease **out, const candidate *it, const dur_orchestration_item *item,
                       dur__sq_lane *lane) {
    size_t given = 0;
    dur__sq_lease_new(out, lane, it->key, it->instance, item->lock_token, it->name, it->version);
    dur__sq_lease *lease = *out;
    lease->execution = it->execution;
    lease->last_event = item->last_event_id;
    lease->has_execution = it->execution != 0 && it->name != NULL;
    lease->counted = lease->untimed = true;
    lease->tagged_count = item->message_count;
    lease->tagged = dur__xcalloc(item->message_count, sizeof(*lease->tagged));
    for (size_t i = 0; i < item->message_count; i++) {
        lease->tagged[i] = item->messages[i].id;
        given += item->messages[i].queue != NULL;
    }
    if (given > 0) dur__map_xreserve(&lease->given, given);
    lease->queued = it->queued;
    lease->no_values = it->execution == 0;
}

static int acquire(dur__sq_fetch_op *self, dur__sq_txn *txn, candidate *it) {
    dur_error *err = &self->op.err;
    const dur_fetch *how = self->how;
    uint64_t key = it->key;
    bool runs = false;
    dur_orchestration_item *item = &self->items[self->count];
    memset(item, 0, sizeof *item);
    int code = messages_read(txn, self, it, item, err);
    if (code == DUR_OK) code = candidate_judge(txn, it, &runs, err);
    if (code != DUR_OK || !runs) return code;
    if (item->message_count == 0 && it->look == DUR__SQ_LOOK_NONE) /* what made it ready is gone */
        return dur__sq_ready_anew(txn, key, err);
    char token[80];
    dur__sq_token(txn, token, 'k', key);
    code = messages_tag(txn, token, item, err);
    if (code != DUR_OK) return code;
    item->instance = it->instance;
    item->orchestration_name = it->name; /* NULL: a text has it, which is read by whoever decodes texts */
    item->version = it->version;
    item->lock_token = dur_arena_strdup(self->arena, token);
    item->store_key = key;
    item->start_later = it->name == NULL && it->execution == 0 && it->start.later;
    item->acquisitions = (uint32_t)it->acquisitions + 1;
    item->crashes = (uint32_t)it->crashes;
    item->crashes_alone = (uint32_t)it->crashes_alone;
    uint64_t alone = how->kind == DUR_FETCH_SUSPECT;
    if (how->owner != NULL)
        code = dur__sq_run(txn->conn, DUR__SQ_INSTANCE_LOCK, err, "ittni", key, token, how->owner, alone);
    else {
        uint64_t until = dur__sq_after(txn->boot_ms, how->lock_ms);
        code =
            dur__sq_run(txn->conn, DUR__SQ_INSTANCE_LOCK, err, "ittii", key, token, (const char *)NULL, until, alone);
        dur__sq_expires_at(txn->file, until);
    }
    if (code == DUR_OK) code = position_read(txn, self, it, item, err);
    if (code == DUR_OK) code = works_read(txn, self->arena, it, item, err);
    if (code != DUR_OK) return code;
    dur__store_name_item(self->arena, item); /* here, where it can be left */
    if (self->lane != NULL && how->owner != NULL) {
        lease_make(&self->leases[self->count], it, item, self->lane);
        dur__sq_needs(txn, 1, NULL, NULL, NULL);
    }
    self->count++;
    return DUR_OK;
}

/* ---- instances that wait ---- */

static int compare_candidates(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->seq != y->seq) return x->seq < y->seq ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

typedef struct versions {
    uint64_t any, low, high;
} versions;

static versions versions_of(const dur_fetch *how) {
    if (how->filter == NULL || how->filter->count == 0) return (versions){ .any = 1 };
    return (versions){ 0, dur__sq_packed(how->filter->ranges[0].min), dur__sq_packed(how->filter->ranges[0].max) };
}

/* Those that the filter lets pass, from this row on, behind what is there; up to `max` of all. */
static int candidates_read(dur__sq_fetch_op *self, sqlite3_stmt *row, const dur_handler_filter *filter, candidate *out,
                           size_t max, size_t *count) {
    int code = DUR_OK;
    while (code == DUR_OK && row != NULL && *count < max) {
        if (dur_handler_passes(filter, dur__sq_text(row, 10))) candidate_fill(self->arena, row, &out[(*count)++]);
        code = dur__sq_next(&row, &self->op.err);
    }
    dur__sq_end(&row);
    return code;
}

/* The first `max` of one handler, behind those of others. */
static int candidates_of(dur__sq_fetch_op *self, dur__sq_txn *txn, const char *handler, candidate *out, size_t max,
                         size_t *count) {
    sqlite3_stmt *row = NULL;
    versions v = versions_of(self->how);
    int code = dur__sq_first(txn->conn, DUR__SQ_INSTANCE_CANDIDATES, &row, &self->op.err, "iiiiit", v.any, v.low,
                             v.high, (uint64_t)(self->how->kind == DUR_FETCH_ANY), (uint64_t)max, handler);
    return code == DUR_OK ? candidates_read(self, row, NULL, out, SIZE_MAX, count) : code;
}

static bool takes_nothing(const dur_fetch *how) {
    return (how->filter != NULL && how->filter->count == 0) || (how->handlers != NULL && how->handlers->count == 0);
}

/* Suspects are few: all handlers together, in their own order. */
static int suspects(dur__sq_fetch_op *self, dur__sq_txn *txn, candidate *out, size_t max, size_t *count) {
    sqlite3_stmt *row = NULL;
    versions v = versions_of(self->how);
    *count = 0;
    if (takes_nothing(self->how)) return DUR_OK;
    int code = dur__sq_first(txn->conn, DUR__SQ_INSTANCE_SUSPECTS, &row, &self->op.err, "iii", v.any, v.low, v.high);
    return code == DUR_OK ? candidates_read(self, row, self->how->handlers, out, max, count) : code;
}

/* Those that only somebody has to look at: before all others, whatever their handler. */
static int lost_ones(dur__sq_fetch_op *self, dur__sq_txn *txn, candidate *out, size_t max, size_t *count) {
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(txn->conn, DUR__SQ_INSTANCE_LOST, &row, &self->op.err, "i", (uint64_t)max);
    return code == DUR_OK ? candidates_read(self, row, NULL, out, max, count) : code;
}

/* The first `max` of all handlers that have something there and that the caller has; out has room for twice as many. */
static int candidates(dur__sq_fetch_op *self, dur__sq_txn *txn, candidate *out, size_t max, size_t *count) {
    dur__sq_sql sql = DUR__SQ_INSTANCE_HANDLERS;
    if (self->how->kind == DUR_FETCH_SUSPECT) return suspects(self, txn, out, max, count);
    const dur_handler_filter *filter = self->how->handlers;
    const char *handler = NULL;
    *count = 0;
    int code = lost_ones(self, txn, out, max, count);
    if (code != DUR_OK || *count > 0 || takes_nothing(self->how)) return code;
    code = dur__sq_handler_next(txn->conn, sql, filter, self->arena, "", &handler, &self->op.err);
    while (code == DUR_OK && handler != NULL) {
        size_t before = *count;
        code = candidates_of(self, txn, handler, out, max, count);
        if (before > 0) qsort(out, *count, sizeof(*out), compare_candidates);
        if (*count > max) *count = max;
        const char *from = dur__sq_handler_after(filter, self->arena, handler);
        if (code == DUR_OK)
            code = dur__sq_handler_next(txn->conn, sql, filter, self->arena, from, &handler, &self->op.err);
    }
    return code;
}

static int suspects_look(dur__sq_fetch_op *self, dur__sq_txn *txn) {
    candidate one;
    size_t count = 0;
    int code = suspects(self, txn, &one, 1, &count);
    self->suspect = count > 0 ? one.suspect : 0;
    return code;
}

/* Nothing for this one; for nobody?  Then nobody has to ask until something comes. */
static int none_is_ready(dur__sq_fetch_op *self, dur__sq_txn *txn) {
    bool any = true;
    int code = dur__sq_has(txn->conn, DUR__SQ_INSTANCE_ANY_READY, &any, &self->op.err, "");
    if (code == DUR_OK && !any) txn->file->ready_maybe = false;
    return code;
}

static int fetch_run(dur__sq_op *op, dur__sq_txn *txn) {
    dur__sq_fetch_op *self = (dur__sq_fetch_op *)(void *)op;
    dur__sq_fetch_op_drop(self);
    self->more = false;
    self->suspect = 0;
    int code = dur__sq_owner_lives(txn, self->how->owner, &self->op.err);
    if (code != DUR_OK) return code;
    if (!txn->file->ready_maybe) return DUR_OK;
    candidate list[128];
    size_t count = 0, want = 0;
    while (self->count < self->max) { /* all of one query first: acquiring changes the index that it walks */
        want = self->max - self->count < 64 ? self->max - self->count : 64;
        code = candidates(self, txn, list, want, &count);
        for (size_t i = 0; i < count && code == DUR_OK; i++)
            code = acquire(self, txn, &list[i]);
        if (code != DUR_OK || (count < want && (count == 0 || list[0].look == DUR__SQ_LOOK_NONE))) break;
    }
    self->more = self->count == self->max;
    if (code == DUR_OK && self->how->kind != DUR_FETCH_ANY) code = suspects_look(self, txn);
    if (code == DUR_OK && count == 0 && self->suspect == 0) code = none_is_ready(self, txn);
    return code;
}

static void fetch_done(dur__sq_op *op, dur__sq_file *file) {
    dur__sq_fetch_op *self = (dur__sq_fetch_op *)(void *)op;
    for (size_t i = 0; i < self->count; i++) {
        dur__sq_lease *lease = self->leases != NULL ? self->leases[i] : NULL;
        if (lease == NULL) continue;
        self->leases[i] = NULL;
        dur__sq_lease_drop(file, lease->key, true); /* an older one of this process: its owner was given up */
        lease->epoch = file->epoch;
        lease->seen_now = self->now_ms;
        lease->seen_id = self->max_id;
        lease->gap = self->items[i].more_messages;
        for (size_t k = 0; k < self->items[i].message_count; k++)
            dur__sq_lease_give(lease, self->items[i].messages[k].queue, self->items[i].messages[k].id);
        dur__sq_lease_enter(lease);
        if (file->due_seen_ms <= lease->seen_now) continue;
        dur__sq_lease_dirty(file, lease->key); /* what became due behind the fetch found no lease here yet */
        atomic_store(&lease->lane->signalled, true);
    }
}

static int fetch_run_seen(dur__sq_op *op, dur__sq_txn *txn) {
    dur__sq_fetch_op *self = (dur__sq_fetch_op *)(void *)op;
    int code = fetch_run(op, txn);
    self->now_ms = txn->now_ms;
    return code == DUR_OK && self->lane != NULL ? dur__sq_max_id(txn, &self->max_id, &op->err) : code;
}

void dur__sq_fetch_op_init(dur__sq_fetch_op *self, const dur_fetch *how, dur_arena *arena, dur__sq_lane *lane,
                           dur_orchestration_item *items, size_t max) {
    memset(self, 0, sizeof *self);
    self->op.run = fetch_run_seen;
    self->op.done = fetch_done;
    self->how = how;
    self->arena = arena;
    self->lane = lane;
    self->items = items;
    self->max = max;
    if (lane != NULL) self->leases = dur_arena_zalloc(arena, max * sizeof(*self->leases));
}

void dur__sq_fetch_op_drop(dur__sq_fetch_op *self) {
    for (size_t i = 0; self->leases != NULL && i <= self->count && i < self->max; i++) { /* one may be half made */
        if (self->leases[i] != NULL) dur__sq_lease_free(self->leases[i]);
        self->leases[i] = NULL;
    }
    self->count = 0;
}

/* ---- methods ---- */

static int fetch_many(dur__sq_store *store, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out,
                      size_t max, size_t *count, dur_error *err) {
    dur__sq_fetch_op op;
    dur__sq_fetch_op_init(&op, how, arena, NULL, out, max);
    int code = dur__sq_poll(store, &op.op, &op.count, how->poll_ms, err);
    *count = code == DUR_OK ? op.count : 0;
    return code;
}

int dur__sq_fetch_orchestration_item(dur_provider *self, dur_arena *arena, const dur_fetch *how,
                                     dur_orchestration_item *out, dur_error *err) {
    size_t count = 0;
    dur_fetch plain = {
        .lock_ms = how->lock_ms, .poll_ms = how->poll_ms, .filter = how->filter, .handlers = how->handlers
    };
    memset(out, 0, sizeof *out);
    int code = fetch_many((dur__sq_store *)(void *)self, arena, &plain, out, 1, &count, err);
    if (code != DUR_OK || count == 0) memset(out, 0, sizeof *out);
    return code;
}

int dur__sq_fetch_turns(dur_provider *self, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out,
                        size_t *count, dur_error *err) {
    return fetch_many((dur__sq_store *)(void *)self, arena, how, out, how->max > 0 ? how->max : 1, count, err);
}

/* Abandon and renew: small writes that find the row by the token. */
typedef struct lock_op {
    dur__sq_op op;
    const char *token;
    uint64_t ms;
    bool ignore_attempt;
} lock_op;

static int lock_lost(dur_error *err, const char *op) {
    return dur_error_set(err, DUR_ELEASE, false, op, "Invalid lock token");
}

static int abandon_run(dur__sq_op *op, dur__sq_txn *txn) {
    lock_op *self = (lock_op *)(void *)op;
    uint64_t key = dur__sq_token_key(self->token, 'k');
    sqlite3_stmt *row = NULL;
    if (key == 0) return lock_lost(&op->err, "sqlite.abandon");
    int code = dur__sq_first(txn->conn, DUR__SQ_INSTANCE_LEASE, &row, &op->err, "i", key);
    if (code != DUR_OK) return code;
    bool ours = row != NULL && dur__str_eq(dur__sq_text(row, DUR__SQ_LEASE_TOKEN), self->token);
    dur__sq_end(&row);
    if (!ours) return lock_lost(&op->err, "sqlite.abandon");
    code = dur__sq_run(txn->conn, DUR__SQ_QUEUE_CLEAR, &op->err, "itii", key, self->token,
                       (uint64_t)self->ignore_attempt, (uint64_t)0);
    dur__sq_release_how how = { .uncount = self->ignore_attempt, .in_its_place = self->ms == 0 };
    if (self->ms > 0) how.not_before = dur__sq_after(txn->now_ms, self->ms);
    return code == DUR_OK ? dur__sq_release(txn, key, &how, &op->err) : code;
}

static void abandon_done(dur__sq_op *op, dur__sq_file *file) {
    dur__sq_lease_drop(file, dur__sq_token_key(((lock_op *)(void *)op)->token, 'k'), false);
}

static int renew_run(dur__sq_op *op, dur__sq_txn *txn) {
    lock_op *self = (lock_op *)(void *)op;
    uint64_t key = dur__sq_token_key(self->token, 'k'), until = dur__sq_after(txn->boot_ms, self->ms);
    sqlite3_stmt *row = NULL;
    if (key == 0) return lock_lost(&op->err, "sqlite.renew");
    int code = dur__sq_first(txn->conn, DUR__SQ_INSTANCE_LEASE, &row, &op->err, "i", key);
    if (code != DUR_OK) return code;
    bool ours = row != NULL && dur__str_eq(dur__sq_text(row, DUR__SQ_LEASE_TOKEN), self->token);
    bool timed = row != NULL && !dur__sq_is_null(row, DUR__SQ_LEASE_UNTIL);
    if (timed && dur__sq_u64(row, DUR__SQ_LEASE_UNTIL) <= txn->boot_ms) ours = false;
    dur__sq_end(&row);
    if (!ours) return lock_lost(&op->err, "sqlite.renew");
    if (!timed) return DUR_OK; /* it lives with its owner */
    txn->file->times.stale = true;
    dur__sq_expires_at(txn->file, until); /* which may be sooner than before */
    return dur__sq_run(txn->conn, DUR__SQ_INSTANCE_RENEW, &op->err, "ii", key, until);
}

int dur__sq_abandon_orchestration_item(dur_provider *self, const char *lock_token, uint64_t delay_ms,
                                       bool ignore_attempt, dur_error *err) {
    lock_op op = { .op = { .run = abandon_run, .done = abandon_done },
                   .token = lock_token,
                   .ms = delay_ms,
                   .ignore_attempt = ignore_attempt };
    return dur__sq_submit(dur__sq_file_of(self), &op.op, err);
}

int dur__sq_renew_orchestration_item_lock(dur_provider *self, const char *lock_token, uint64_t extend_ms,
                                          dur_error *err) {
    lock_op op = { .op = { .run = renew_run }, .token = lock_token, .ms = extend_ms };
    return dur__sq_submit(dur__sq_file_of(self), &op.op, err);
}
