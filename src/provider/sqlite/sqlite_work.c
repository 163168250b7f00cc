/*
 * sqlite_work.c: the worker queue.
 *
 * Rows are clustered by identity (instance, execution, activity), so that cancelling is a delete of a prefix and a
 * step's delete and insert meet on one page.  Rows that are locked at birth never enter an index.  A token of ours
 * carries the row's key; one chosen by the caller is found by the reference that comes with it.
 */
#include "provider/sqlite/sqlite_internal.h"
#include "provider/tags.h"
#include <stdlib.h>

typedef struct work_id {
    uint64_t key, execution, activity, seq;
} work_id;

enum { WAITING_LONG_MS = 100 };

int dur__sq_insert_work(dur__sq_txn *txn, uint64_t key, const dur_message_row *item, const char *token,
                        const char *owner, uint64_t *row_id, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    uint64_t seq = dur__sq_seq(txn), attempts = token != NULL ? 1 : 0;
    *row_id = seq;
    if (token == NULL) txn->file->news.work = true;
    return dur__sq_run(txn->conn, DUR__SQ_WORK_ADD, err, "iiiittittjt", key, item->execution_id, item->activity_id, seq,
                       token, token != NULL ? owner : NULL, attempts, item->session_id, item->tag, &item->json,
                       item->handler);
}

/* ---- sessions ---- */

/* Is it, or could it be, that node's? */
static int session_admits(dur__sq_txn *txn, const char *session, const char *node, bool *admits, dur_error *err) {
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(txn->conn, DUR__SQ_SESSION_GET, &row, err, "t", session);
    *admits = code == DUR_OK && (row == NULL || dur__str_eq(dur__sq_text(row, 0), node) ||
                                 (dur__sq_is_null(row, 1) && dur__sq_u64(row, 2) <= txn->boot_ms));
    dur__sq_end(&row);
    return code;
}

int dur__sq_claim_session(dur__sq_txn *txn, const char *session, const char *node, const char *owner, uint64_t lock_ms,
                          bool *claimed, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    int code = session_admits(txn, session, node, claimed, err);
    if (code != DUR_OK || !*claimed) return code;
    txn->file->times.stale = true;
    txn->file->sessions_used = true;
    if (owner == NULL) dur__sq_expires_at(txn->file, dur__sq_after(txn->boot_ms, lock_ms));
    return dur__sq_run(txn->conn, DUR__SQ_SESSION_CLAIM, err, "tttiii", session, node, owner,
                       dur__sq_after(txn->boot_ms, lock_ms), lock_ms, txn->boot_ms);
}

int dur__sq_touch_session(dur__sq_txn *txn, uint64_t key, uint64_t execution, uint64_t activity, uint64_t seq,
                          const char *token, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    if (!txn->file->sessions_used) return DUR_OK;
    return dur__sq_run(txn->conn, DUR__SQ_SESSION_TOUCH, err, "iiiiti", key, execution, activity, seq, token,
                       txn->boot_ms);
}

typedef struct session_op {
    dur__sq_op op;
    const char *const *nodes;
    size_t node_count;
    uint64_t extend_ms, idle_ms, changed;
} session_op;

static int sessions_renew_run(dur__sq_op *op, dur__sq_txn *txn) {
    session_op *self = (session_op *)(void *)op;
    self->changed = 0;
    txn->file->times.stale = true;
    dur__sq_expires_at(txn->file, dur__sq_after(txn->boot_ms, self->extend_ms)); /* perhaps sooner than before */
    for (size_t i = 0; i < self->node_count; i++) {
        int code =
            dur__sq_run(txn->conn, DUR__SQ_SESSION_RENEW, &op->err, "tiii", self->nodes[i],
                        dur__sq_after(txn->boot_ms, self->extend_ms), txn->boot_ms, dur__sq_after(0, self->idle_ms));
        if (code != DUR_OK) return code;
        self->changed += (uint64_t)sqlite3_changes64(txn->conn->db);
    }
    return DUR_OK;
}

static int sessions_clean_run(dur__sq_op *op, dur__sq_txn *txn) {
    session_op *self = (session_op *)(void *)op;
    int code =
        dur__sq_run(txn->conn, DUR__SQ_SESSION_ORPHANS, &op->err, "ii", txn->boot_ms, dur__sq_after(0, self->idle_ms));
    self->changed = (uint64_t)sqlite3_changes64(txn->conn->db);
    txn->file->times.stale = true;
    if (self->changed > 0) txn->file->news.work = true; /* rows that waited for another node are free */
    return code;
}

int dur__sq_renew_session_lock(dur_provider *self, const char *const *owners, size_t owner_count, uint64_t extend_ms,
                               uint64_t idle_ms, uint64_t *renewed, dur_error *err) {
    session_op op = { .op = { .run = sessions_renew_run },
                      .nodes = owners,
                      .node_count = owner_count,
                      .extend_ms = extend_ms,
                      .idle_ms = idle_ms };
    int code = dur__sq_submit(dur__sq_file_of(self), &op.op, err);
    *renewed = code == DUR_OK ? op.changed : 0;
    return code;
}

int dur__sq_cleanup_orphaned_sessions(dur_provider *self, uint64_t idle_ms, uint64_t *removed, dur_error *err) {
    session_op op = { .op = { .run = sessions_clean_run }, .idle_ms = idle_ms };
    int code = dur__sq_submit(dur__sq_file_of(self), &op.op, err);
    *removed = code == DUR_OK ? op.changed : 0;
    return code;
}

/* ---- fetch ---- */

static int lock_row(dur__sq_work_op *self, dur__sq_txn *txn, const work_id *id) {
    dur_error *err = &self->op.err;
    const dur_work_fetch *how = self->how;
    char token[160], random[80];
    dur__sq_token(txn, random, 'x', 0);
    snprintf(token, sizeof token, "w%llu.%llu.%llu.%llu.%s", (unsigned long long)id->key,
             (unsigned long long)id->execution, (unsigned long long)id->activity, (unsigned long long)id->seq,
             strchr(random, '.') + 1);
    sqlite3_stmt *row = NULL; /* read first: what UPDATE … RETURNING says goes through a table of its own */
    int code =
        dur__sq_first(txn->conn, DUR__SQ_WORK_READ, &row, err, "iiii", id->key, id->execution, id->activity, id->seq);
    if (code != DUR_OK || row == NULL) return code;
    dur_leased_work *work = &self->works[self->count];
    memset(work, 0, sizeof *work);
    work->attempt_count = (uint32_t)dur__sq_u64(row, 0) + 1;
    work->json = dur__sq_json(self->arena, row, 1);
    work->ref.instance = dur__sq_is_null(row, 2) ? "" : dur__sq_dup(self->arena, row, 2);
    work->crashes = (uint32_t)dur__sq_u64(row, 3);
    work->crashes_alone = (uint32_t)dur__sq_u64(row, 4);
    dur__sq_end(&row);
    uint64_t until = dur__sq_after(txn->boot_ms, how->lock_ms);
    code =
        dur__sq_run(txn->conn, DUR__SQ_WORK_LOCK, err, "iiiittoi", id->key, id->execution, id->activity, id->seq, token,
                    how->owner, how->owner == NULL ? &until : NULL, (uint64_t)(how->kind == DUR_FETCH_SUSPECT));
    if (code != DUR_OK) return code;
    if (how->owner == NULL) dur__sq_expires_at(txn->file, until);
    work->ref.execution_id = id->execution;
    work->ref.activity_id = id->activity;
    work->ref.row_id = id->seq;
    work->lock_token = dur_arena_strdup(self->arena, token);
    self->count++;
    return DUR_OK;
}

typedef struct work_choice {
    work_id id;
    char *session;
} work_choice;

static int compare_choices(const void *a, const void *b) {
    uint64_t x = ((const work_choice *)a)->id.seq, y = ((const work_choice *)b)->id.seq;
    return x < y ? -1 : x > y;
}

/* What this row is, if the caller may have it. */
static int work_consider(dur__sq_work_op *self, dur__sq_txn *txn, sqlite3_stmt *row, work_choice *out, size_t *count) {
    const dur_work_fetch *how = self->how;
    const char *session = dur__sq_text(row, 4); /* it is claimed when the row is locked */
    bool admits = session == NULL;
    int code = DUR_OK;
    if (!dur__tag_admitted(&how->tags, dur__sq_text(row, 5))) return DUR_OK;
    if (session != NULL && how->session_owner != NULL)
        code = session_admits(txn, session, how->session_owner, &admits, &self->op.err);
    if (code == DUR_OK && admits)
        out[(*count)++] =
            (work_choice){ { dur__sq_u64(row, 0), dur__sq_u64(row, 1), dur__sq_u64(row, 2), dur__sq_u64(row, 3) },
                           dur__sq_dup(self->arena, row, 4) };
    return code;
}

/* The first rows of one handler that the caller may have, behind those of others. */
static int work_select(dur__sq_work_op *self, dur__sq_txn *txn, const char *handler, work_choice *out, size_t *count) {
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(txn->conn, DUR__SQ_WORK_CANDIDATES, &row, &self->op.err, "ti", handler,
                             (uint64_t)(self->how->kind == DUR_FETCH_ANY));
    size_t most = *count + self->max;
    if (row != NULL && txn->now_ms > dur__sq_u64(row, 3) / 64 + DUR__SQ_SEQ_EPOCH_MS + WAITING_LONG_MS)
        self->waiting_long = true;
    while (code == DUR_OK && row != NULL && *count < most) {
        code = work_consider(self, txn, row, out, count);
        if (code == DUR_OK) code = dur__sq_next(&row, &self->op.err);
    }
    dur__sq_end(&row);
    return code;
}

/* Suspects are few: all handlers together, in their own order. */
static int work_suspects(dur__sq_work_op *self, dur__sq_txn *txn, work_choice *out, size_t max, size_t *count) {
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(txn->conn, DUR__SQ_WORK_SUSPECTS, &row, &self->op.err, "");
    self->suspect = 0;
    *count = 0;
    while (code == DUR_OK && row != NULL && *count < max) {
        if (dur_handler_passes(self->how->handlers, dur__sq_text(row, 6)))
            code = work_consider(self, txn, row, out, count);
        if (*count == 1 && self->suspect == 0) self->suspect = (uint32_t)dur__sq_u64(row, 7) + 1;
        if (code == DUR_OK) code = dur__sq_next(&row, &self->op.err);
    }
    dur__sq_end(&row);
    return code;
}

/* The head of the shared queue, in order, over all handlers that have something there. */
static int work_choose(dur__sq_work_op *self, dur__sq_txn *txn, work_choice *out, size_t *count) {
    const dur_handler_filter *filter = self->how->handlers;
    const char *handler = NULL;
    int code = dur__sq_handler_next(txn->conn, DUR__SQ_WORK_HANDLERS, filter, self->arena, "", &handler, &self->op.err);
    while (code == DUR_OK && handler != NULL) {
        code = work_select(self, txn, handler, out, count);
        qsort(out, *count, sizeof(*out), compare_choices);
        if (*count > self->max) *count = self->max;
        const char *from = dur__sq_handler_after(filter, self->arena, handler);
        if (code == DUR_OK)
            code = dur__sq_handler_next(txn->conn, DUR__SQ_WORK_HANDLERS, filter, self->arena, from, &handler,
                                        &self->op.err);
    }
    return code;
}

static int work_claim(dur__sq_work_op *self, dur__sq_txn *txn, const work_choice *choice) {
    const dur_work_fetch *how = self->how;
    bool claimed = true;
    int code = DUR_OK;
    if (choice->session != NULL)
        code = dur__sq_claim_session(txn, choice->session, how->session_owner, how->owner, how->session_lock_ms,
                                     &claimed, &self->op.err);
    return code == DUR_OK && claimed ? lock_row(self, txn, &choice->id) : code;
}

static int work_run(dur__sq_op *op, dur__sq_txn *txn) {
    dur__sq_work_op *self = (dur__sq_work_op *)(void *)op;
    self->count = 0;
    self->more = self->waiting_long = false;
    self->suspect = 0;
    if (self->how->tags.mode == DUR_TAGS_NONE || self->max == 0) return DUR_OK;
    if (self->how->handlers != NULL && self->how->handlers->count == 0) return DUR_OK;
    int code = dur__sq_owner_lives(txn, self->how->owner, &op->err);
    if (code != DUR_OK) return code;
    work_choice *choices = dur_arena_alloc(txn->file->scratch, 2 * self->max * sizeof(*choices));
    bool alone = self->how->kind == DUR_FETCH_SUSPECT;
    size_t count = 0;
    code = alone ? work_suspects(self, txn, choices, self->max, &count) : work_choose(self, txn, choices, &count);
    for (size_t i = 0; i < count && code == DUR_OK; i++)
        code = work_claim(self, txn, &choices[i]);
    self->more = self->count == self->max;
    if (code == DUR_OK) code = work_suspects(self, txn, choices, 1, &count); /* what is left */
    return code;
}

void dur__sq_work_op_init(dur__sq_work_op *self, const dur_work_fetch *how, dur_arena *arena, dur_leased_work *works,
                          size_t max) {
    memset(self, 0, sizeof *self);
    self->op.run = work_run;
    self->how = how;
    self->arena = arena;
    self->works = works;
    self->max = max;
}

static int fetch_many(dur__sq_store *store, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                      size_t max, size_t *count, dur_error *err) {
    dur__sq_work_op op;
    *count = 0;
    if (how->tags.mode == DUR_TAGS_NONE) return DUR_OK;
    dur__sq_work_op_init(&op, how, arena, out, max);
    int code = dur__sq_poll(store, &op.op, &op.count, how->poll_ms, err);
    *count = code == DUR_OK ? op.count : 0;
    return code;
}

int dur__sq_fetch_work_item(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                            dur_error *err) {
    size_t count = 0;
    dur_work_fetch plain = *how;
    plain.owner = NULL;
    plain.max = 1;
    plain.kind = DUR_FETCH_ANY;
    memset(out, 0, sizeof *out);
    int code = fetch_many((dur__sq_store *)(void *)self, arena, &plain, out, 1, &count, err);
    if (code != DUR_OK || count == 0) memset(out, 0, sizeof *out);
    return code;
}

int dur__sq_fetch_works(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                        size_t *count, dur_error *err) {
    return fetch_many((dur__sq_store *)(void *)self, arena, how, out, how->max > 0 ? how->max : 1, count, err);
}

/* ---- by token ---- */

static bool token_parse(const char *token, work_id *out) {
    uint64_t parts[4]; /* "wKEY.EXECUTION.ACTIVITY.SEQ." and what makes it unique */
    if (*token++ != 'w') return false;
    for (int i = 0; i < 4; i++) {
        char *end = NULL;
        if (*token < '0' || *token > '9') return false;
        parts[i] = strtoull(token, &end, 10);
        if (*end != '.') return false;
        token = end + 1;
    }
    *out = (work_id){ parts[0], parts[1], parts[2], parts[3] };
    return true;
}

static int lost(dur_error *err, const char *why) {
    return dur_error_set(err, DUR_ELEASE, false, "sqlite.work", "Invalid lock token: %s", why);
}

/* Which row, by the token or by the reference beside it, whose seq may be 0.  Found is not yet locked by us. */
static int work_locate(dur__sq_txn *txn, const char *token, const dur_activity_ref *ref, work_id *id, dur_error *err) {
    if (token == NULL) return lost(err, "none given");
    if (token_parse(token, id)) return DUR_OK;
    if (ref != NULL && ref->instance != NULL) {
        *id = (work_id){ 0, ref->execution_id, ref->activity_id, ref->row_id };
        return dur__sq_key(txn, ref->instance, false, &id->key, err);
    }
    uint64_t found[4];
    int code = dur__sq_get(txn->conn, DUR__SQ_WORK_BY_TOKEN, found, 4, err, "t", token);
    *id = (work_id){ found[0], found[1], found[2], found[3] };
    return code == DUR_OK && id->key == 0 ? lost(err, "no such row") : code;
}

typedef struct work_row {
    work_id id;
    bool timed;
} work_row;

/* The row that the token locks now; otherwise DUR_ELEASE. */
static int work_find(dur__sq_txn *txn, const char *token, const dur_activity_ref *ref, work_row *out, dur_error *err) {
    memset(out, 0, sizeof *out);
    sqlite3_stmt *row = NULL;
    int code = work_locate(txn, token, ref, &out->id, err);
    if (code == DUR_OK)
        code = dur__sq_first(txn->conn, DUR__SQ_WORK_GET, &row, err, "iiiit", out->id.key, out->id.execution,
                             out->id.activity, out->id.seq, token);
    if (code != DUR_OK) return code;
    if (row == NULL) return lost(err, "the row is gone");
    bool ours = dur__str_eq(dur__sq_text(row, 0), token);
    out->timed = !dur__sq_is_null(row, 1);
    bool expired = out->timed && dur__sq_u64(row, 1) <= txn->boot_ms;
    out->id.seq = dur__sq_u64(row, 2);
    dur__sq_end(&row);
    if (!ours) return lost(err, "locked by somebody else");
    return expired ? lost(err, "the lock has expired") : DUR_OK;
}

static int session_active(dur__sq_txn *txn, const work_id *id, const char *token, dur_error *err) {
    return dur__sq_touch_session(txn, id->key, id->execution, id->activity, id->seq, token, err);
}

static int work_delete(dur__sq_txn *txn, const work_id *id, dur_error *err) {
    txn->file->times.stale = true;
    return dur__sq_run(txn->conn, DUR__SQ_WORK_DELETE, err, "iiii", id->key, id->execution, id->activity, id->seq);
}

static int ack_run(dur__sq_op *op, dur__sq_txn *txn) {
    dur__sq_ack_op *self = (dur__sq_ack_op *)(void *)op;
    work_row row;
    int code = work_find(txn, self->ack->lock_token, &self->ack->ref, &row, &op->err);
    if (code == DUR_OK) code = session_active(txn, &row.id, self->ack->lock_token, &op->err);
    if (code == DUR_OK) code = work_delete(txn, &row.id, &op->err);
    if (code == DUR_OK && self->ack->completion != NULL)
        code = dur__sq_enqueue(txn, self->ack->completion, 0, 0, &op->err);
    return code;
}

void dur__sq_ack_op_init(dur__sq_ack_op *self, dur_work_ack *ack) {
    memset(self, 0, sizeof *self);
    self->op.run = ack_run;
    self->ack = ack;
}

int dur__sq_ack_work_item(dur_provider *self, const char *lock_token, const dur_message_row *completion,
                          dur_error *err) {
    dur_work_ack ack = { .lock_token = lock_token, .completion = completion };
    dur__sq_ack_op op;
    dur__sq_ack_op_init(&op, &ack);
    return dur__sq_submit(dur__sq_file_of(self), &op.op, err);
}

int dur__sq_ack_works(dur_provider *self, dur_work_ack *acks, size_t count, dur_error *err) {
    dur__sq_ack_op *ops = dur__get((count + 1) * sizeof(*ops));
    dur__sq_op **list = dur__get((count + 1) * sizeof(*list));
    if (ops == NULL || list == NULL) {
        dur__free(ops);
        dur__free(list);
        return DUR__NO_MEMORY(err, "sqlite.ack");
    }
    for (size_t i = 0; i < count; i++) {
        dur__sq_ack_op_init(&ops[i], &acks[i]);
        list[i] = &ops[i].op;
    }
    int code = dur__sq_submit_all(dur__sq_file_of(self), list, count, err);
    for (size_t i = 0; code == DUR_OK && i < count; i++)
        acks[i].error = ops[i].op.err;
    dur__free(list);
    dur__free(ops);
    return code;
}

/* ---- renew, abandon, check, return, bury ---- */

typedef struct work_op {
    dur__sq_op op;
    const char *token;
    const dur_message_row *item;
    const dur_worker_claim *claims;
    size_t count;
    uint64_t ms;
    bool ignore_attempt;
    bool *lost;
    const char *reason;
} work_op;

static int renew_row(dur__sq_txn *txn, work_row *row, uint64_t ms, dur_error *err) {
    if (!row->timed) return DUR_OK; /* it lives with its owner */
    uint64_t until = dur__sq_after(txn->boot_ms, ms);
    txn->file->times.stale = true;
    dur__sq_expires_at(txn->file, until); /* which may be sooner than before */
    return dur__sq_run(txn->conn, DUR__SQ_WORK_RENEW, err, "iiiii", row->id.key, row->id.execution, row->id.activity,
                       row->id.seq, until);
}

static int renew_run(dur__sq_op *op, dur__sq_txn *txn) {
    work_op *self = (work_op *)(void *)op;
    work_row row;
    int code = work_find(txn, self->token, NULL, &row, &op->err);
    if (code == DUR_OK) code = session_active(txn, &row.id, self->token, &op->err);
    return code == DUR_OK ? renew_row(txn, &row, self->ms, &op->err) : code;
}

static int free_row(dur__sq_txn *txn, const work_id *id, uint64_t delay_ms, bool uncount, dur_error *err) {
    uint64_t at = delay_ms > 0 ? dur__sq_after(txn->now_ms, delay_ms) : 0;
    if (at > 0) dur__sq_due_at(txn->file, at);
    txn->file->news.work = txn->file->times.stale = true;
    return dur__sq_run(txn->conn, DUR__SQ_WORK_FREE, err, "iiiiii", id->key, id->execution, id->activity, id->seq, at,
                       (uint64_t)(uncount ? 1 : 0));
}

static int abandon_run(dur__sq_op *op, dur__sq_txn *txn) {
    work_op *self = (work_op *)(void *)op;
    work_row row;
    int code = work_find(txn, self->token, NULL, &row, &op->err);
    return code == DUR_OK ? free_row(txn, &row.id, self->ms, self->ignore_attempt, &op->err) : code;
}

static int return_run(dur__sq_op *op, dur__sq_txn *txn) {
    work_op *self = (work_op *)(void *)op;
    for (size_t i = 0; i < self->count; i++) {
        work_row row;
        int code = work_find(txn, self->claims[i].lock_token, &self->claims[i].ref, &row, &op->err);
        if (code == DUR_OK) code = free_row(txn, &row.id, 0, true, &op->err);
        if (code != DUR_OK && code != DUR_ELEASE) return code;
        dur_error_clear(&op->err); /* gone already: nothing to give back */
    }
    return DUR_OK;
}

static int check_run(dur__sq_op *op, dur__sq_txn *txn) {
    work_op *self = (work_op *)(void *)op;
    for (size_t i = 0; i < self->count; i++) {
        work_row row;
        int code = work_find(txn, self->claims[i].lock_token, &self->claims[i].ref, &row, &op->err);
        self->lost[i] = code == DUR_ELEASE;
        bool renews = code == DUR_OK && self->ms > 0; /* a look is no activity of its session */
        if (renews) code = session_active(txn, &row.id, self->claims[i].lock_token, &op->err);
        if (renews && code == DUR_OK) code = renew_row(txn, &row, self->ms, &op->err);
        if (code != DUR_OK && code != DUR_ELEASE) return code;
        dur_error_clear(&op->err);
    }
    return DUR_OK;
}

static int bury_run(dur__sq_op *op, dur__sq_txn *txn) {
    work_op *self = (work_op *)(void *)op;
    work_row row;
    int code = work_find(txn, self->token, NULL, &row, &op->err);
    if (code == DUR_OK)
        code = dur__sq_run(txn->conn, DUR__SQ_DEAD_WORK, &op->err, "iiiiti", row.id.key, row.id.execution,
                           row.id.activity, row.id.seq, self->reason, txn->now_ms);
    return code == DUR_OK ? work_delete(txn, &row.id, &op->err) : code;
}

static int enqueue_run(dur__sq_op *op, dur__sq_txn *txn) {
    work_op *self = (work_op *)(void *)op;
    uint64_t key = 0, row_id = 0;
    int code = dur__sq_key(txn, self->item->instance, true, &key, &op->err);
    return code == DUR_OK ? dur__sq_insert_work(txn, key, self->item, NULL, NULL, &row_id, &op->err) : code;
}

int dur__sq_enqueue_for_worker(dur_provider *self, const dur_message_row *item, dur_error *err) {
    work_op op = { .op = { .run = enqueue_run }, .item = item };
    return dur__sq_submit(dur__sq_file_of(self), &op.op, err);
}

int dur__sq_renew_work_item_lock(dur_provider *self, const char *lock_token, uint64_t extend_ms, dur_error *err) {
    work_op op = { .op = { .run = renew_run }, .token = lock_token, .ms = extend_ms };
    return dur__sq_submit(dur__sq_file_of(self), &op.op, err);
}

int dur__sq_abandon_work_item(dur_provider *self, const char *lock_token, uint64_t delay_ms, bool ignore_attempt,
                              dur_error *err) {
    work_op op = {
        .op = { .run = abandon_run }, .token = lock_token, .ms = delay_ms, .ignore_attempt = ignore_attempt
    };
    return dur__sq_submit(dur__sq_file_of(self), &op.op, err);
}

int dur__sq_check_works(dur_provider *self, const dur_worker_claim *claims, size_t count, uint64_t extend_ms,
                        bool *lost_, dur_error *err) {
    work_op op = { .op = { .run = check_run }, .claims = claims, .count = count, .ms = extend_ms, .lost = lost_ };
    return dur__sq_submit(dur__sq_file_of(self), &op.op, err);
}

int dur__sq_return_works(dur_provider *self, const dur_worker_claim *claims, size_t count, dur_error *err) {
    work_op op = { .op = { .run = return_run }, .claims = claims, .count = count };
    return dur__sq_submit(dur__sq_file_of(self), &op.op, err);
}

/* A token is an instance's or a worker row's; blamed: and it is given up. */
static int not_alone(dur__sq_op *op, dur__sq_txn *txn, bool blamed) {
    work_op *self = (work_op *)(void *)op;
    uint64_t key = dur__sq_token_key(self->token, 'k');
    work_row row = { .timed = false };
    int code;
    if (key != 0) {
        code = dur__sq_run(txn->conn, DUR__SQ_INSTANCE_NOT_ALONE, &op->err, "it", key, self->token);
        if (code != DUR_OK || sqlite3_changes64(txn->conn->db) == 0) return code;
        row.id = (work_id){ .key = key };
    } else {
        code = work_find(txn, self->token, NULL, &row, &op->err);
        if (code == DUR_ELEASE) {
            dur_error_clear(&op->err);
            return DUR_OK;
        }
        if (code == DUR_OK)
            code = dur__sq_run(txn->conn, DUR__SQ_WORK_NOT_ALONE, &op->err, "iiii", row.id.key, row.id.execution,
                               row.id.activity, row.id.seq);
    }
    if (code != DUR_OK || !blamed) return code;
    return dur__sq_run(txn->conn, DUR__SQ_CRASH_BY_ROW, &op->err, "iiii", row.id.key, row.id.execution, row.id.activity,
                       row.id.seq);
}

static int alone_run(dur__sq_op *op, dur__sq_txn *txn) {
    return not_alone(op, txn, false);
}

static int blame_run(dur__sq_op *op, dur__sq_txn *txn) {
    return not_alone(op, txn, true);
}

int dur__sq_alone_ended(dur_provider *self, const char *lock_token, dur_error *err) {
    work_op op = { .op = { .run = alone_run }, .token = lock_token };
    return dur__sq_submit(dur__sq_file_of(self), &op.op, err);
}

int dur__sq_blame(dur_provider *self, const char *lock_token, dur_error *err) {
    work_op op = { .op = { .run = blame_run }, .token = lock_token };
    return dur__sq_submit(dur__sq_file_of(self), &op.op, err);
}

int dur__sq_dead_letter_work(dur_provider *self, const char *lock_token, const char *reason, dur_error *err) {
    work_op op = { .op = { .run = bury_run }, .token = lock_token, .reason = reason };
    return dur__sq_submit(dur__sq_file_of(self), &op.op, err);
}
