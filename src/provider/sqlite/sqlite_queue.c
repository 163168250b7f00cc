/*
 * sqlite_queue.c: instances by key, messages on their way in, and the leases that are remembered in memory.
 *
 * ready_at of an instance means something only while nobody leases it: the earliest time at which there is a reason to
 * fetch it.  A message to a leased instance changes only the queue; the lane that holds the lease is told in memory.
 */
#include "provider/sqlite/sqlite_internal.h"
#include <stdlib.h>

void dur__sq_keys_add(dur__sq_txn *txn, dur__sq_keys *keys, uint64_t key) {
    if (keys->count == keys->room) {
        keys->room = keys->room == 0 ? 16 : keys->room * 2;
        uint64_t *list = dur_arena_alloc(txn->file->scratch, keys->room * sizeof(*list));
        if (keys->count > 0) memcpy(list, keys->list, keys->count * sizeof(*list));
        keys->list = list;
    }
    keys->list[keys->count++] = key;
}

int dur__sq_keys_read(dur__sq_txn *txn, dur__sq_keys *keys, sqlite3_stmt *row, dur_error *err) {
    int code = DUR_OK;
    for (; code == DUR_OK && row != NULL; code = dur__sq_next(&row, err))
        dur__sq_keys_add(txn, keys, dur__sq_u64(row, 0));
    return code;
}

uint64_t dur__sq_after(uint64_t now, uint64_t delay) {
    return delay > (uint64_t)INT64_MAX - now ? (uint64_t)INT64_MAX : now + delay;
}

/* The time in the upper bits of a message's id: see message_id. */
enum { ID_TIME_SHIFT = 8 };

/* Grows: in this process always, between processes by the clock or, where that was turned back, by the last message. */
uint64_t dur__sq_seq(dur__sq_txn *txn) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    dur__sq_file *file = txn->file;
    uint64_t came = file->top_id >> ID_TIME_SHIFT, now = txn->now_ms > came ? txn->now_ms : came;
    uint64_t by_clock = now > DUR__SQ_SEQ_EPOCH_MS ? (now - DUR__SQ_SEQ_EPOCH_MS) * 64 : 0;
    file->last_seq = by_clock > file->last_seq ? by_clock : file->last_seq + 1;
    return file->last_seq;
}

/* Sixteen bytes that nobody else has; drawn in blocks, because each draw is a system call. */
static const unsigned char *random_draw(dur__sq_file *file) {
    if (file->random_left == 0) {
        file->world->random(file->world->data, file->random, sizeof file->random);
        file->random_left = sizeof file->random;
    }
    file->random_left -= 16;
    return file->random + file->random_left;
}

void dur__sq_token(dur__sq_txn *txn, char out[80], char kind, uint64_t key) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    static const char digits[] = "0123456789abcdef";
    const unsigned char *random = random_draw(txn->file);
    size_t at = 0;
    out[at++] = kind;
    at += dur__u64_text(out + at, key);
    out[at++] = '.';
    for (size_t i = 0; i < 16; i++) {
        out[at++] = digits[random[i] >> 4];
        out[at++] = digits[random[i] & 15];
    }
    out[at] = '\0';
}

uint64_t dur__sq_token_key(const char *token, char kind) {
    uint64_t key = 0;
    if (token == NULL || token[0] != kind) return 0;
    const char *dot = strchr(token, '.');
    if (dot == NULL || !dur__u64_parse(token + 1, (size_t)(dot - token - 1), &key)) return 0;
    return key > INT64_MAX ? 0 : key;
}

int dur__sq_key(dur__sq_txn *txn, const char *instance, bool make, uint64_t *key, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    int code = dur__sq_get(txn->conn, DUR__SQ_KEY_OF, key, 1, err, "t", instance);
    if (code != DUR_OK || *key != 0 || !make) return code;
    txn->file->next_key = 0;
    code = dur__sq_run(txn->conn, DUR__SQ_INSTANCE_START, err, "tnnn", instance);
    *key = (uint64_t)sqlite3_last_insert_rowid(txn->conn->db);
    return code;
}

void dur__sq_due_at(dur__sq_file *file, uint64_t wall_ms) {
    DUR_ASSERT(dur__sq_leads(file));
    if (wall_ms < atomic_load(&file->times.due_ms)) atomic_store(&file->times.due_ms, wall_ms);
    if (wall_ms <= file->due_seen_ms) file->due_seen_ms = wall_ms - 1;
}

void dur__sq_expires_at(dur__sq_file *file, uint64_t boot_ms) {
    DUR_ASSERT(dur__sq_leads(file));
    if (boot_ms < atomic_load(&file->times.expiry_ms)) atomic_store(&file->times.expiry_ms, boot_ms);
}

/* Ready instances are fetched in the order in which they became ready: a delayed one has its due time's number. */
static uint64_t ready_seq(dur__sq_txn *txn, uint64_t ready_at) {
    return ready_at > DUR__SQ_SEQ_EPOCH_MS ? (ready_at - DUR__SQ_SEQ_EPOCH_MS) * 64 : dur__sq_seq(txn);
}

void dur__sq_ready(dur__sq_file *file) {
    DUR_ASSERT(dur__sq_leads(file));
    file->news.ready = file->ready_maybe = true;
}

/* It is a reason at `due`. */
static void told_ready(dur__sq_txn *txn, uint64_t due) {
    if (due > txn->now_ms) {
        dur__sq_due_at(txn->file, due);
        txn->file->news.due = true;
    } else
        dur__sq_ready(txn->file);
}

int dur__sq_set_ready(dur__sq_txn *txn, uint64_t key, bool any, uint64_t due, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    if (!any) return dur__sq_run(txn->conn, DUR__SQ_INSTANCE_SET_READY, err, "inni", key, txn->now_ms);
    uint64_t ready = due <= txn->now_ms ? 0 : due, at = 0;
    int code = dur__sq_get(txn->conn, DUR__SQ_INSTANCE_SET_READY, &at, 1, err, "iiii", key, ready,
                           ready_seq(txn, ready), txn->now_ms);
    if (code == DUR_OK) told_ready(txn, at);
    return code;
}

/* When is there a reason to fetch it? */
int dur__sq_reason(dur__sq_txn *txn, uint64_t key, uint64_t seen_id, uint64_t seen_now, bool *any, uint64_t *due,
                   dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    sqlite3_stmt *row = NULL;
    *any = false;
    *due = 0;
    /* Not seen: a greater id, or due after the time of looking.  The first that is visible is enough: thousands may lie
       behind it. */
    int code = dur__sq_first(txn->conn, DUR__SQ_QUEUE_REASON, &row, err, "iii", key, seen_id, seen_now);
    for (; code == DUR_OK && row != NULL; code = dur__sq_next(&row, err)) {
        uint64_t this_due = dur__sq_u64(row, 0);
        if (!*any || this_due < *due) *due = this_due;
        *any = true;
        if (*due <= txn->now_ms) break;
    }
    dur__sq_end(&row);
    return code;
}

int dur__sq_ready_anew(dur__sq_txn *txn, uint64_t key, dur_error *err) {
    bool any;
    uint64_t due, look = DUR__SQ_LOOK_NONE;
    int code = dur__sq_reason(txn, key, 0, 0, &any, &due, err);
    if (code == DUR_OK) code = dur__sq_get(txn->conn, DUR__SQ_INSTANCE_LOOK, &look, 1, err, "i", key);
    if (code != DUR_OK) return code;
    return look != DUR__SQ_LOOK_NONE ? dur__sq_set_ready(txn, key, true, 0, err)
                                     : dur__sq_set_ready(txn, key, any, due, err);
}

/* When the message becomes visible; 0: at once. */
static uint64_t due_of(dur__sq_txn *txn, const dur_message_row *item, uint64_t delay_ms) {
    uint64_t due = item->due_ms, later = delay_ms == 0 ? 0 : dur__sq_after(txn->now_ms, delay_ms);
    if (later > due) due = later;
    return due > INT64_MAX ? INT64_MAX : due;
}

/* The row of an instance that nobody has heard of; *key stays 0 when there is one. */
static int instance_make(dur__sq_txn *txn, const dur_message_row *item, uint64_t due, uint64_t *key, dur_error *err) {
    uint64_t ready = due <= txn->now_ms ? 0 : due;
    txn->file->next_key = 0;
    int code = dur__sq_run(txn->conn, DUR__SQ_INSTANCE_START, err, "tiit", item->instance, ready, ready_seq(txn, ready),
                           item->handler);
    if (code == DUR_OK && sqlite3_changes64(txn->conn->db) > 0)
        *key = (uint64_t)sqlite3_last_insert_rowid(txn->conn->db);
    return code;
}

/*
 * The id of the next message: the clock's time in its upper bits where the clock goes on, one more than the last where
 * it does not.  So ids only grow, whatever the clock does and whoever writes (the table keeps the highest,
 * AUTOINCREMENT, and the write lock is held), also in a file that was restored; and an undelayed message's place in the
 * order, which is the time in its id, never lies before that of one that came before it.
 */
static int message_id(dur__sq_txn *txn, uint64_t *out, dur_error *err) {
    uint64_t last = 0, by_clock = txn->now_ms < (uint64_t)1 << 50 ? txn->now_ms << ID_TIME_SHIFT : 0;
    int code = dur__sq_max_id(txn, &last, err);
    *out = by_clock > last ? by_clock : last + 1;
    return code;
}

static int message_add(dur__sq_txn *txn, const dur_message_row *item, uint64_t due, uint64_t key, dur_error *err) {
    bool timer = item->kind == DUR_WORK_TIMER_FIRED;
    uint64_t id = 0;
    int code = message_id(txn, &id, err);
    if (code != DUR_OK) return code;
    code = dur__sq_run(txn->conn, DUR__SQ_QUEUE_ADD, err, "iiiitiijiitt", key, due, due > 0 ? due : id >> ID_TIME_SHIFT,
                       (uint64_t)item->kind,
                       item->kind == DUR_WORK_QUEUE_MESSAGE ? (item->queue != NULL ? item->queue : "") : NULL,
                       timer ? item->execution_id : (uint64_t)0, timer ? item->activity_id : (uint64_t)0, &item->json,
                       txn->now_ms, id, item->handler, item->parent);
    txn->file->max_id = id;
    txn->file->max_id_known = code == DUR_OK && txn->conn == &txn->file->writer;
    return code;
}

int dur__sq_enqueue_new(dur__sq_txn *txn, const dur_message_row *item, uint64_t delay_ms, bool *made, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    uint64_t due = due_of(txn, item, delay_ms), key = 0;
    int code = instance_make(txn, item, due, &key, err);
    *made = key != 0;
    if (code != DUR_OK || key == 0) return code;
    code = message_add(txn, item, due, key, err);
    told_ready(txn, due);
    return code;
}

int dur__sq_enqueue(dur__sq_txn *txn, const dur_message_row *item, uint64_t delay_ms, uint64_t key, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    uint64_t due = due_of(txn, item, delay_ms), ready = due <= txn->now_ms ? 0 : due;
    int code = DUR_OK;
    if (key == 0) {
        bool made = false;
        code = dur__sq_enqueue_new(txn, item, delay_ms, &made, err);
        if (code != DUR_OK || made) return code;
        code = dur__sq_key(txn, item->instance, false, &key, err);
    }
    if (code == DUR_OK) code = message_add(txn, item, due, key, err);
    if (code != DUR_OK) return code;
    dur__sq_lease *lease = dur__map_get_u64(&txn->file->leases, key);
    bool leased = lease != NULL && lease->epoch == txn->file->epoch; /* else the statement looks at the token itself */
    if (lease != NULL) dur__sq_lease_dirty(txn->file, key);
    if (txn->file->born_from != 0 && key >= txn->file->born_from) txn->file->born_mail = true;
    bool continues = item->kind == DUR_WORK_CONTINUE_AS_NEW;
    bool starts = item->kind == DUR_WORK_START_ORCHESTRATION || continues;
    if (starts && (continues || !leased))
        code = dur__sq_run(txn->conn, DUR__SQ_INSTANCE_BEGIN, err, "iti", key,
                           item->handler != NULL ? item->handler : "", (uint64_t)continues);
    if (code != DUR_OK) return code;
    if (starts && !leased) { /* now it exists: what came before and waited is a reason, too */
        bool any;
        uint64_t first;
        code = dur__sq_reason(txn, key, 0, 0, &any, &first, err);
        if (code == DUR_OK && any && first <= txn->now_ms) ready = 0;
    }
    if (code == DUR_OK && (!leased || txn->conn != &txn->file->writer)) {
        sqlite3_stmt *row = NULL;
        code = dur__sq_first(txn->conn, DUR__SQ_INSTANCE_READY, &row, err, "iiii", key, ready, ready_seq(txn, ready),
                             txn->now_ms);
        if (code == DUR_OK && row != NULL && dur__sq_u64(row, 0) > txn->now_ms) /* it was given back with a delay */
            told_ready(txn, dur__sq_u64(row, 0));
        dur__sq_end(&row);
    }
    if (!leased || due > txn->now_ms) told_ready(txn, due);
    return code;
}

/* Whoever held it has written nothing at the end: was something open that may have no row? */
static int look_of(dur__sq_txn *txn, uint64_t key, const dur__sq_release_how *how, uint64_t *look, dur_error *err) {
    enum { LOOKS, ACQUISITIONS, STATUS, OPEN, COLUMNS };
    uint64_t row[COLUMNS];
    *look = DUR__SQ_LOOK_NONE;
    if (how->by_holder) return DUR_OK;
    int code = dur__sq_get(txn->conn, DUR__SQ_INSTANCE_LOOK, row, COLUMNS, err, "i", key);
    bool worked = row[ACQUISITIONS] == 0; /* else nothing was handed out under this lease */
    uint64_t now = how->crashed && worked ? DUR__SQ_LOOK_CRASHED : DUR__SQ_LOOK;
    *look = row[LOOKS];
    if (row[STATUS] < DUR_STATUS_COMPLETED && row[OPEN] > 0 && now > *look) *look = now;
    return code;
}

int dur__sq_release(dur__sq_txn *txn, uint64_t key, const dur__sq_release_how *how, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    bool any;
    uint64_t due, look = DUR__SQ_LOOK_NONE;
    int code = dur__sq_reason(txn, key, how->seen_id, how->seen_now, &any, &due, err);
    if (code == DUR_OK) code = look_of(txn, key, how, &look, err);
    if (code != DUR_OK) return code;
    if (look != DUR__SQ_LOOK_NONE) {
        any = true;
        due = 0;
        txn->file->news.work = true; /* whoever is told of nothing else may write it */
    }
    if (due < how->not_before) due = how->not_before;
    if (due <= txn->now_ms) due = 0;
    uint64_t uncount = how->uncount ? 1 : 0, place = ready_seq(txn, due);
    uint64_t old_place = 0;
    if (any && due == 0 && how->in_its_place)
        code = dur__sq_get(txn->conn, DUR__SQ_INSTANCE_PLACE, &old_place, 1, err, "i", key);
    if (old_place != 0) place = old_place;
    if (code != DUR_OK) return code;
    if (any)
        code = dur__sq_run(txn->conn, DUR__SQ_INSTANCE_RELEASE, err, "iiiiii", key, due, place, how->not_before,
                           uncount, look);
    else
        code = dur__sq_run(txn->conn, DUR__SQ_INSTANCE_RELEASE, err, "inniii", key, how->not_before, uncount, look);
    txn->file->times.stale = true;
    dur__sq_lease_recheck(txn->file, key); /* whoever writes to it in this transaction must look at the row */
    if (any) told_ready(txn, due);
    return code;
}

int dur__sq_state_of(dur__sq_txn *txn, const char *instance, dur__sq_state *out, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    enum { KEY, EXECUTION, EXISTS, ENDED, RUNNING, COLUMNS };
    uint64_t row[COLUMNS];
    int code = dur__sq_get(txn->conn, DUR__SQ_INSTANCE_STATE, row, COLUMNS, err, "t", instance);
    *out = (dur__sq_state){ row[KEY], row[EXECUTION], row[EXISTS] != 0, row[ENDED] != 0, row[RUNNING] != 0 };
    return code;
}

int dur__sq_max_id(dur__sq_txn *txn, uint64_t *out, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    dur__sq_file *file = txn->file;
    if (!file->max_id_known || txn->conn != &file->writer) { /* the caller's own: others may have written before it */
        int code = dur__sq_get(txn->conn, DUR__SQ_QUEUE_MAX_ID, &file->max_id, 1, err, "");
        if (code != DUR_OK) return code;
        file->max_id_known = txn->conn == &file->writer;
    }
    *out = file->max_id;
    return DUR_OK;
}

/* ---- leases in memory ---- */

void dur__sq_lease_dirty(dur__sq_file *file, uint64_t key) {
    DUR_ASSERT(dur__sq_leads(file));
    dur__sq_lease *lease = dur__map_get_u64(&file->leases, key);
    if (lease == NULL) return;
    lease->queued = DUR__SQ_NOT_COUNTED;
    lease->read = false;
    if (lease->dirty) return;
    lease->dirty = true;
    dur__list_push(&lease->lane->dirty, &lease->dirty_link);
}

void dur__sq_lease_recheck(dur__sq_file *file, uint64_t key) {
    DUR_ASSERT(dur__sq_leads(file));
    dur__sq_lease *lease = dur__map_get_u64(&file->leases, key);
    if (lease != NULL) lease->epoch = 0;
}

/* Only messages of queues: all others go by seen_id. */
void dur__sq_lease_give(dur__sq_lease *lease, const char *queue, uint64_t id) {
    if (queue != NULL) dur__map_put_u64(&lease->given, id, lease);
}

/* Its row is gone, and there is room for the next: the round that has the turn reads its queue behind it. */
void dur__sq_lease_take(dur__sq_txn *txn, const dur__sq_lease *lease, uint64_t id) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    if (lease->gap && dur__map_get_u64(&lease->given, id) != NULL) dur__sq_lease_dirty(txn->file, lease->key);
}

void dur__sq_lease_taken(dur__sq_lease *lease, uint64_t id) {
    (void)dur__map_remove_u64(&lease->given, id);
}

void dur__sq_lease_new(dur__sq_lease **out, dur__sq_lane *lane, uint64_t key, const char *instance, const char *token,
                       const char *name, const char *version) {
    dur__sq_lease *lease = *out = dur__xcalloc(1, sizeof(*lease));
    lease->lane = lane;
    lease->key = key;
    lease->instance = dur__xstrdup(instance);
    lease->token = dur__xstrdup(token);
    lease->name = dur__xstrdup(name);
    lease->version = dur__xstrdup(version);
    lease->queued = DUR__SQ_NOT_COUNTED;
}

static size_t text_needs(const char *text) {
    return text != NULL ? strlen(text) + DUR__SQ_BLOCK : 0;
}

void dur__sq_needs(dur__sq_txn *txn, size_t leases, const char *instance, const char *name, const char *version) {
    txn->file->needs += leases * (sizeof(dur__sq_lease) + 80 + 2 * DUR__SQ_BLOCK) + text_needs(instance) +
                        text_needs(name) + text_needs(version);
    txn->file->needs_leases += leases;
}

void dur__sq_lease_enter(dur__sq_lease *lease) {
    dur__list_push(&lease->lane->leases, &lease->lane_link);
    dur__map_put_u64(&lease->lane->file->leases, lease->key, lease);
}

void dur__sq_lease_free(dur__sq_lease *lease) {
    dur__map_free(&lease->given);
    dur__free(lease->tagged);
    dur__free(lease->instance);
    dur__free(lease->token);
    dur__free(lease->name);
    dur__free(lease->version);
    dur__free(lease);
}

void dur__sq_lease_drop(dur__sq_file *file, uint64_t key, bool lost) {
    DUR_ASSERT(dur__sq_leads(file));
    dur__sq_lease *lease = dur__map_remove_u64(&file->leases, key);
    if (lease == NULL) return;
    dur__list_unlink(&lease->lane_link);
    dur__list_unlink(&lease->dirty_link);
    dur__list_unlink(&lease->asked_link);
    if (lost)
        dur__list_push(&lease->lane->lost, &lease->lane_link);
    else
        dur__sq_lease_free(lease);
}

void dur__sq_lease_ask(dur__sq_file *file, uint64_t key) {
    DUR_ASSERT(dur__sq_leads(file));
    dur__sq_lease *lease = dur__map_get_u64(&file->leases, key);
    if (lease == NULL || lease->asked) return;
    lease->asked = true;
    dur__list_push(&lease->lane->asked, &lease->asked_link);
}

int dur__sq_count_lost(dur__sq_txn *txn, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    return dur__sq_run(txn->conn, DUR__SQ_META_COUNT, err, "t", "lost");
}

void dur__sq_changed(dur__sq_file *file, const char *instance) {
    DUR_ASSERT(dur__sq_leads(file));
    /* After the commit, and a waiter counts itself before it reads: who is not counted yet reads what was committed. */
    if (instance == NULL || atomic_load(&file->desk.waiter_count) == 0) return;
    dur__sq_news *news = &file->news;
    if (news->changed_count == news->changed_room) {
        size_t room = news->changed_room == 0 ? 8 : 2 * news->changed_room;
        char **list = dur__resize(news->changed, room * sizeof(*list));
        if (list != NULL) {
            news->changed = list;
            news->changed_room = room;
        }
    }
    char *name = news->changed_count < news->changed_room ? dur__strdup(instance) : NULL;
    if (name != NULL)
        news->changed[news->changed_count++] = name;
    else
        news->all = true;
}

/* ---- what others wrote, and what time brought ---- */

static int leases_compare(dur__sq_txn *txn, dur_error *err) {
    dur__sq_file *file = txn->file;
    dur__map_entry *entry;
    for (size_t at = 0; (entry = dur__map_next(&file->leases, &at)) != NULL;) {
        dur__sq_lease *lease = entry->value;
        sqlite3_stmt *row = NULL;
        int code = dur__sq_first(txn->conn, DUR__SQ_INSTANCE_LEASE, &row, err, "i", lease->key);
        if (code != DUR_OK) return code;
        bool ours = row != NULL && dur__str_eq(dur__sq_text(row, DUR__SQ_LEASE_TOKEN), lease->token);
        bool suspended = ours && !dur__sq_is_null(row, DUR__SQ_LEASE_SUSPENDED);
        dur__sq_end(&row);
        if (!ours)
            dur__sq_lease_drop(file, lease->key, true);
        else if (suspended)
            dur__sq_lease_ask(file, lease->key);
        else
            lease->asked = false; /* until the next time */
    }
    return DUR_OK;
}

static int messages_since(dur__sq_txn *txn, dur_error *err) {
    dur__sq_file *file = txn->file;
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(txn->conn, DUR__SQ_QUEUE_SINCE, &row, err, "i", file->queue_seen_id);
    while (code == DUR_OK && row != NULL) {
        file->queue_seen_id = dur__sq_u64(row, 0);
        dur__sq_lease_dirty(file, dur__sq_u64(row, 1));
        code = dur__sq_next(&row, err);
    }
    return code;
}

static int next_of(dur__sq_txn *txn, dur__sq_sql sql, _Atomic uint64_t *next, uint64_t after, dur_error *err) {
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(txn->conn, sql, &row, err, after != 0 ? "i" : "", after);
    if (row != NULL && !dur__sq_is_null(row, 0) && dur__sq_u64(row, 0) < atomic_load(next))
        atomic_store(next, dur__sq_u64(row, 0));
    dur__sq_end(&row);
    return code;
}

int dur__sq_next_times(dur__sq_txn *txn, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    dur__sq_file *file = txn->file;
    atomic_store(&file->times.due_ms, DUR_NEVER);
    atomic_store(&file->times.expiry_ms, DUR_NEVER);
    file->times.stale = false;
    /* Not after now: what became due since dur__sq_due last looked is still to be told to the lane that holds it. */
    uint64_t seen = file->due_seen_ms > 0 ? file->due_seen_ms : 1;
    int code = next_of(txn, DUR__SQ_QUEUE_NEXT_DUE, &file->times.due_ms, seen, err);
    if (code == DUR_OK) code = next_of(txn, DUR__SQ_INSTANCE_NEXT_READY, &file->times.due_ms, 0, err);
    if (code == DUR_OK) code = next_of(txn, DUR__SQ_WORK_NEXT_VISIBLE, &file->times.due_ms, 0, err);
    if (code == DUR_OK) code = next_of(txn, DUR__SQ_INSTANCE_NEXT_EXPIRY, &file->times.expiry_ms, 0, err);
    if (code == DUR_OK) code = next_of(txn, DUR__SQ_WORK_NEXT_EXPIRY, &file->times.expiry_ms, 0, err);
    if (code == DUR_OK && file->sessions_used)
        code = next_of(txn, DUR__SQ_SESSION_NEXT_EXPIRY, &file->times.expiry_ms, txn->boot_ms, err);
    return code;
}

int dur__sq_look(dur__sq_txn *txn, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    dur__sq_file *file = txn->file;
    uint64_t lost_seq = 0, top = 0;
    file->max_id_known = false;
    int code = dur__sq_restored_look(txn, err);
    if (code == DUR_OK) code = dur__sq_has(txn->conn, DUR__SQ_SESSION_ANY, &file->sessions_used, err, "");
    if (code == DUR_OK) code = dur__sq_get(txn->conn, DUR__SQ_META_GET, &lost_seq, 1, err, "t", "lost");
    if (code == DUR_OK) code = dur__sq_max_id(txn, &top, err);
    if (code == DUR_OK && top > file->top_id) file->top_id = top;
    if (code == DUR_OK && lost_seq != file->lost_seq) code = leases_compare(txn, err);
    if (code == DUR_OK) file->lost_seq = lost_seq;
    if (code == DUR_OK) code = messages_since(txn, err);
    /* The clock went back: what others sent since may be due before the time that was seen.  The next times ask. */
    if (txn->now_ms < file->due_seen_ms) file->due_seen_ms = txn->now_ms;
    if (code == DUR_OK) code = dur__sq_next_times(txn, err);
    if (code == DUR_OK) file->relook = false;
    file->news.work = file->news.all = true;
    dur__sq_ready(file);
    return code;
}

/* Timed locks that have ended: the instance is free, its messages are again a reason to fetch it. */
static int locks_expire(dur__sq_txn *txn, dur_error *err) {
    for (uint64_t before = UINT64_MAX;;) {
        uint64_t key = 0;
        int code = dur__sq_get(txn->conn, DUR__SQ_INSTANCE_EXPIRED, &key, 1, err, "i", txn->boot_ms);
        if (code != DUR_OK) return code;
        if (key == 0) break;
        if (key == before) /* an index that has what the table has not */
            return dur_error_set(err, DUR_ECORRUPT, false, "sqlite.locks",
                                 "a lock that has ended cannot be taken away");
        before = key;
        dur__sq_lease_drop(txn->file, key, true); /* also if this does not commit: its time is over */
        code = dur__sq_release(txn, key, &(dur__sq_release_how){ .seen_id = 0 }, err);
        if (code != DUR_OK) return code;
    }
    txn->file->news.work = true; /* rows, or those of a session that is free now */
    return dur__sq_run(txn->conn, DUR__SQ_WORK_EXPIRE, err, "i", txn->boot_ms);
}

int dur__sq_due(dur__sq_txn *txn, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    dur__sq_file *file = txn->file;
    bool due = txn->now_ms >= atomic_load(&file->times.due_ms);
    bool expired = txn->boot_ms >= atomic_load(&file->times.expiry_ms);
    if (!due && !expired) return DUR_OK;
    int code = expired ? locks_expire(txn, err) : DUR_OK;
    sqlite3_stmt *row = NULL;
    if (code == DUR_OK && due) {
        code = dur__sq_first(txn->conn, DUR__SQ_QUEUE_BECAME_DUE, &row, err, "ii", file->due_seen_ms, txn->now_ms);
        while (code == DUR_OK && row != NULL) {
            dur__sq_lease_dirty(file, dur__sq_u64(row, 0));
            code = dur__sq_next(&row, err);
        }
        if (code == DUR_OK) code = dur__sq_run(txn->conn, DUR__SQ_INSTANCE_PROMOTE, err, "i", txn->now_ms);
        if (code == DUR_OK) code = dur__sq_run(txn->conn, DUR__SQ_WORK_APPEAR, err, "i", txn->now_ms);
        if (code == DUR_OK) file->due_seen_ms = txn->now_ms;
        file->news.work = true;
        dur__sq_ready(file);
    }
    return code == DUR_OK ? dur__sq_next_times(txn, err) : code;
}
