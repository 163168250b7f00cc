/*
 * sqlite_inbox.c: who writes, and how writes of many threads become one transaction.
 *
 * All writes of this process to one file go through its inbox.  One thread leads at a time: a lane in its round when
 * there is one, else the thread that asks.  The leader runs everything that waits in one transaction and answers each
 * request after COMMIT.  There are no savepoints: when a request fails after it has written, the transaction is rolled
 * back and run again without it; one that fails before its first write is just left out.
 */
#include "provider/sqlite/sqlite_internal.h"
#include "provider/sqlite/sqlite_own.h"
#include <stdlib.h>

/* How long a request waits for a lane that is busy elsewhere before its own thread leads. */
enum { LANE_PATIENCE_US = 2000, LEAD_PATIENCE_US = 50000 };

enum { ASIDE_BYTES = 1024 }; /* set aside before each COMMIT, beside what is asked for */

static int deadlock(dur_error *err) {
    return dur_error_set(err, DUR_EDEADLK, false, "sqlite",
                         "this thread has a transaction of its own on the store: commit or roll it back first");
}

/* ---- the lead: first come, first served ---- */

/* With the lock held. */
static void lead_take(dur__sq_file *file) {
    DUR_ASSERT(!file->desk.leading);
    file->desk.leading = true;
    file->desk.leader = pthread_self();
}

/* Nobody knows when a caller's transaction ends: until then, a moment at a time, as long as who waits has time.  With
   the lock held. */
static bool lead_wait(dur__sq_file *file, uint64_t until_us) {
    if (file->desk.own == NULL) {
        dur__cond_wait(&file->desk.turn, &file->desk.lock);
        return true;
    }
    if (dur__sq_own_watch(file)) return true;
    uint64_t now = dur__monotonic_us();
    if (now >= until_us) return false;
    dur__cond_wait_us(&file->desk.turn, &file->desk.lock,
                      until_us - now < LEAD_PATIENCE_US ? until_us - now : LEAD_PATIENCE_US);
    return true;
}

int dur__sq_lead(dur__sq_file *file, dur_error *err) {
    if (dur__sq_in_own_txn(file)) return deadlock(err);
    int code = DUR_OK;
    dur__link ticket = { NULL, NULL };
    uint64_t until_us = dur__sq_busy_until(file);
    dur__mutex_lock(&file->desk.lock);
    dur__list_push(&file->desk.queue, &ticket);
    while (code == DUR_OK && (file->desk.leading || dur__list_first(&file->desk.queue) != &ticket))
        if (!lead_wait(file, until_us)) code = dur__sq_busy_error(file, err);
    dur__list_unlink(&ticket);
    if (code == DUR_OK) lead_take(file);
    dur__mutex_unlock(&file->desk.lock);
    return code;
}

void dur__sq_lead_alone(dur__sq_file *file, bool leads) {
    dur__mutex_lock(&file->desk.lock);
    file->desk.leading = leads;
    file->desk.leader = pthread_self();
    dur__mutex_unlock(&file->desk.lock);
}

/* With the lock held. */
static void lead_pass_on(dur__sq_file *file) {
    DUR_ASSERT(dur__sq_leads(file));
    file->desk.leading = false;
    if (!dur__list_empty(&file->desk.queue)) {
        dur__cond_broadcast(&file->desk.turn);
        return;
    }
    dur__link *first = dur__list_first(&file->desk.inbox); /* nobody asked for the lead: whoever waits may take it */
    if (first != NULL) dur__cond_signal(&DUR__CONTAINER(first, dur__sq_op, link)->call->answered);
}

void dur__sq_unlead(dur__sq_file *file) {
    dur__mutex_lock(&file->desk.lock);
    lead_pass_on(file);
    dur__mutex_unlock(&file->desk.lock);
}

bool dur__sq_inbox_waits(dur__sq_file *file) {
    dur__mutex_lock(&file->desk.lock);
    bool waits = !dur__list_empty(&file->desk.inbox);
    dur__mutex_unlock(&file->desk.lock);
    return waits;
}

/* A lane that will come by soon: one that sleeps is woken.  With the lock held. */
static bool lane_comes(dur__sq_file *file) {
    bool comes = false;
    DUR__LIST_EACH(&file->desk.lanes, at) {
        dur__sq_lane *lane = DUR__CONTAINER(at, dur__sq_lane, link);
        if (lane->has_thread && pthread_equal(lane->thread, pthread_self())) return false;
        if (lane->rests) {
            dur_waker_wake(lane->waker);
            return true;
        }
        comes = comes || lane->has_thread;
    }
    return comes;
}

/* The first of those that were answered and have not gone.  With the lock held. */
static void wake_answered(dur__sq_file *file) {
    dur__link *first = dur__list_first(&file->desk.answered);
    if (first != NULL) dur__cond_signal(&DUR__CONTAINER(first, dur__sq_op, link)->call->answered);
}

/* They have waited long enough for somebody else's lock.  What a transaction has is answered by it; with the lock held.
 */
static void withdraw(dur__sq_file *file, dur__sq_op **ops, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!dur__link_linked(&ops[i]->link)) continue;
        dur__list_unlink(&ops[i]->link);
        ops[i]->failed = ops[i]->undone = true;
        ops[i]->call->left--;
        dur__sq_busy_error(file, &ops[i]->err);
    }
}

int dur__sq_submit_all(dur__sq_file *file, dur__sq_op **ops, size_t count, dur_error *err) {
    if (dur__sq_in_own_txn(file)) return deadlock(err);
    if (count == 0) return DUR_OK;
    uint64_t until_us = dur__sq_busy_until(file);
    dur__sq_call call = { .left = count };
    dur__cond_init(&call.answered);
    dur__mutex_lock(&file->desk.lock);
    for (size_t i = 0; i < count; i++) {
        dur_error_clear(&ops[i]->err);
        ops[i]->failed = ops[i]->undone = false;
        ops[i]->call = &call;
        dur__list_push(&file->desk.inbox, &ops[i]->link);
    }
    uint64_t give_up = 0;
    while (call.left > 0) {
        if (dur__sq_own_watch(file)) continue;
        bool free_lead = !file->desk.leading && dur__list_empty(&file->desk.queue);
        uint64_t now = dur__monotonic_us();
        if (now >= until_us && (file->desk.held_from_us != 0 || file->desk.own != NULL)) withdraw(file, ops, count);
        if (call.left == 0) break;
        if (free_lead && (give_up != 0 ? now >= give_up : !lane_comes(file))) {
            lead_take(file);
            dur__mutex_unlock(&file->desk.lock);
            dur__sq_batch(file, until_us, NULL, NULL, 0, NULL, 0);
            dur__mutex_lock(&file->desk.lock);
            lead_pass_on(file);
            continue;
        }
        if (free_lead && give_up == 0) give_up = now + LANE_PATIENCE_US;
        dur__cond_wait_us(&call.answered, &file->desk.lock, free_lead ? give_up - now : LEAD_PATIENCE_US);
    }
    for (size_t i = 0; i < count; i++)
        dur__list_unlink(&ops[i]->link);
    wake_answered(file);
    dur__mutex_unlock(&file->desk.lock);
    dur__cond_destroy(&call.answered);
    return DUR_OK;
}

int dur__sq_submit(dur__sq_file *file, dur__sq_op *op, dur_error *err) {
    int code = dur__sq_submit_all(file, &op, 1, &op->err);
    if (code == DUR_OK) code = op->err.code;
    if (err != NULL && err != &op->err) *err = op->err;
    return code;
}

/* ---- one transaction ---- */

static void rollback(dur__sq_file *file) {
    dur__sq_conn_reset(&file->writer); /* a way out may have been taken */
    file->max_id_known = false;
    file->next_key = 0;
    file->alive_epoch = 0;
    file->relook = file->ready_maybe = true; /* what was remembered on the way may not have happened */
    dur__sq_vfs_drop(file->writer.db);
    if (sqlite3_get_autocommit(file->writer.db) == 0) dur__sq_run(&file->writer, DUR__SQ_ROLLBACK, NULL, "");
}

/* Without memory even a rollback may fail: then the next transaction makes it. */
static int rolled_back(dur__sq_file *file, dur_error *err) {
    if (sqlite3_get_autocommit(file->writer.db) == 0) rollback(file);
    if (sqlite3_get_autocommit(file->writer.db) == 0) return DUR__NO_MEMORY(err, "sqlite.begin");
    return dur__sq_prepare(&file->writer, DUR__SQ_ROLLBACK, err);
}

int dur__sq_foreign(dur__sq_file *file, bool *changed, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(file));
    uint64_t version = 0;
    *changed = false;
    int code = dur__sq_get(&file->writer, DUR__SQ_DATA_VERSION, &version, 1, err, "");
    if (code != DUR_OK) return code;
    if (version != file->data_version) {
        file->data_version = version;
        file->epoch++;
        file->next_key = 0;
        file->relook = file->ready_maybe = true;
        *changed = true;
    }
    return DUR_OK;
}

static void read_clocks(dur__sq_txn *txn) {
    const dur_world *world = txn->file->world;
    txn->now_ms = world->wall_ms(world->data);
    txn->boot_ms = world->boot_ms(world->data);
}

/*
 * Not before the lock is held, which may have taken long, and for each op anew, which may have come since.  What has
 * become due is looked at for each time that is read: whoever reads messages of a lease goes by what was found due, and
 * says that it has seen all up to that time.
 */
static int time_passes(dur__sq_txn *txn, dur_error *err) {
    read_clocks(txn);
    return dur__sq_due(txn, err);
}

static int begin(dur__sq_file *file, dur__sq_txn *txn, uint64_t until_us, dur_error *err) {
    bool changed;
    int code = dur__sq_found_gone(file, err);
    if (code == DUR_OK) code = rolled_back(file, err);
    if (code == DUR_OK) {
        file->wait.until_us = until_us;
        code = dur__sq_busy_ended(file, dur__sq_run(&file->writer, DUR__SQ_BEGIN, err, ""), err);
        file->wait.until_us = 0;
    }
    txn->changes = sqlite3_total_changes64(file->writer.db);
    read_clocks(txn);
    if (code == DUR_OK) code = dur__sq_foreign(file, &changed, err);
    if (code == DUR_OK && !file->boot_known) code = dur__sq_boot_look(txn, err);
    if (code == DUR_OK && file->relook) code = dur__sq_look(txn, err);
    if (code == DUR_OK) code = time_passes(txn, err);
    return code;
}

/* What is made on the way is in the scratch: it goes with the transaction. */
static int txn_begin(dur__sq_file *file, dur__sq_txn *txn, uint64_t until_us, dur_error *err) {
    dur__way_out out_of_memory;
    *txn = (dur__sq_txn){ .file = file, .conn = &file->writer };
    dur_arena_reset(file->scratch);
    file->needs = file->needs_leases = 0;
    file->born_from = 0;
    file->born_mail = false;
    if (DUR__OUT_OF_MEMORY(&out_of_memory)) return DUR__NO_MEMORY(err, "sqlite.begin");
    int code = begin(file, txn, until_us, err);
    dur__way_out_end(&out_of_memory);
    return code;
}

/* What is done after COMMIT needs no more than what is set aside before it. */
static int done_prepare(dur__sq_file *file, dur_error *err) {
    if (dur__reserve_fill(&file->aside, file->needs + ASIDE_BYTES) &&
        dur__map_reserve(&file->leases, file->needs_leases))
        return DUR_OK;
    return DUR__NO_MEMORY(err, "sqlite.commit");
}

static int op_run(dur__sq_txn *txn, dur__sq_op *op) {
    dur__way_out out_of_memory;
    if (DUR__OUT_OF_MEMORY(&out_of_memory)) {
        dur__sq_conn_reset(txn->conn);
        return DUR__NO_MEMORY(&op->err, "sqlite");
    }
    int code = time_passes(txn, &op->err);
    if (code == DUR_OK) code = op->run(op, txn);
    dur__way_out_end(&out_of_memory);
    return code;
}

/* Run one op; true: the transaction is spoilt and must start again without it. */
static bool op_spoils(dur__sq_txn *txn, dur__sq_op *op) {
    sqlite3 *db = txn->conn->db;
    sqlite3_int64 before = sqlite3_total_changes64(db);
    dur_error_clear(&op->err);
    int code = op_run(txn, op);
    if (code == DUR_OK) return false;
    if (op->err.code == DUR_OK) dur_error_set(&op->err, (dur_code)code, false, "sqlite", "%s", dur_code_text(code));
    op->failed = true;
    return sqlite3_get_autocommit(db) != 0 || sqlite3_total_changes64(db) != before;
}

static void fail_all(dur__sq_op *ops, const dur_error *why) {
    for (dur__sq_op *op = ops; op != NULL; op = op->next) {
        op->failed = op->undone = true; /* also what a comparison refused: it saw what did not happen */
        op->err = *why;
    }
}

static void done_all(dur__sq_file *file, dur__sq_op *ops) {
    dur__cover cover = { .reserve = &file->aside };
    dur__cover_begin(&cover);
    for (dur__sq_op *op = ops; op != NULL; op = op->next)
        if (!op->failed && op->done != NULL) op->done(op, file);
    dur__cover_end(&cover);
}

/* Run all ops in one transaction, which was begun, as often as it takes. */
static void run_all(dur__sq_file *file, dur__sq_txn txn, dur__sq_op *ops) {
    dur_error err = DUR_ERROR_INIT;
    for (bool begun = true;; begun = false) {
        bool spoilt = false;
        size_t left = 0;
        if (!begun && txn_begin(file, &txn, dur__sq_busy_until(file), &err) != DUR_OK) break;
        for (dur__sq_op *op = ops; op != NULL && !spoilt; op = op->next) {
            if (!op->failed) spoilt = op_spoils(&txn, op);
            left += !op->failed;
        }
        if (spoilt) {
            rollback(file);
            continue; /* without the culprit: one less each time */
        }
        file->commits += left > 0;
        uint64_t begun_us = dur__monotonic_us();
        bool wrote = sqlite3_total_changes64(file->writer.db) != txn.changes;
        int committed = done_prepare(file, &err);
        if (committed == DUR_OK && wrote) committed = dur__sq_mark_write(file, &err);
        if (committed == DUR_OK) committed = dur__sq_run(&file->writer, DUR__SQ_COMMIT, &err, "");
        if (committed == DUR_OK) dur__sq_wake_others(file, dur__monotonic_us() - begun_us);
        if (committed != DUR_OK) {
            err.retryable = true;
            break;
        }
        if (wrote) dur__sq_mark_committed(file); /* before the look: another's checkpoint may have brought it there */
        if (dur__sq_intact(file, &file->writer, &err) != DUR_OK) break; /* it may be where nobody will find it */
        file->boot_known = true;
        if (file->max_id_known && file->max_id > file->top_id) file->top_id = file->max_id;
        done_all(file, ops);
        return;
    }
    rollback(file);
    fail_all(ops, &err);
}

static dur__sq_op **append(dur__sq_op **end, dur__sq_op *op) {
    *end = op;
    op->next = NULL;
    return &op->next;
}

static dur__sq_op **take_inbox(dur__sq_file *file, dur__sq_op **end) {
    dur__mutex_lock(&file->desk.lock);
    for (dur__link *at; (at = dur__list_pop(&file->desk.inbox)) != NULL;)
        end = append(end, DUR__CONTAINER(at, dur__sq_op, link));
    dur__mutex_unlock(&file->desk.lock);
    return end;
}

/* Its thread is to be woken when it has no other that waits. */
static void finish(dur__sq_file *file, dur__sq_op *op) {
    if (--op->call->left == 0) dur__list_push(&file->desk.answered, &op->link);
}

/* What was asked for from elsewhere.  Each wakes the next: waking costs the leader more than writing the row. */
static void answer(dur__sq_file *file, dur__sq_op *ops) {
    bool any = false;
    for (dur__sq_op *op = ops; op != NULL && !any; op = op->next)
        any = op->call != NULL;
    if (!any) return;
    dur__mutex_lock(&file->desk.lock);
    for (dur__sq_op *op = ops, *next; op != NULL; op = next) {
        next = op->next;
        if (op->call != NULL) finish(file, op);
    }
    wake_answered(file);
    dur__mutex_unlock(&file->desk.lock);
}

/* The leader's own, everything in the inbox (unless it is to wait), the reads of a round. */
static dur__sq_op *collect(dur__sq_file *file, bool inbox, dur__sq_op **ops, size_t count, dur__sq_op **last,
                           size_t last_count) {
    dur__sq_op *first = NULL, **end = &first;
    for (size_t i = 0; i < count; i++)
        end = append(end, ops[i]);
    if (inbox) end = take_inbox(file, end);
    for (size_t i = 0; i < last_count; i++)
        end = append(end, last[i]);
    return first;
}

void dur__sq_batch(dur__sq_file *file, uint64_t until_us, dur__sq_lane *self, dur__sq_op **ops, size_t count,
                   dur__sq_op **last, size_t last_count) {
    DUR_ASSERT(dur__sq_leads(file));
    dur__sq_txn txn;
    dur_error err = DUR_ERROR_INIT;
    if (count + last_count == 0 && !dur__sq_inbox_waits(file)) return;
    dur__sq_gate_enter(file);
    bool begun = txn_begin(file, &txn, until_us, &err) == DUR_OK;
    /* The inbox is taken with the lock in hand: until then each request may go when its time is up. */
    bool others = begun || err.code != DUR_EBUSY || file->wait.is_ours;
    dur__sq_op *all = collect(file, others, ops, count, last, last_count);
    if (begun)
        run_all(file, txn, all);
    else {
        rollback(file);
        fail_all(all, &err);
    }
    dur__sq_gate_leave(file);
    answer(file, all);
    dur__sq_wake_flush(file, self);
    dur__sq_checkpoint(file);
}
