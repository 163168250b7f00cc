/*
 * pg_lease.c: what a lane holds, and whether the store says the same.
 *
 * A lane learns of every lease that somebody takes from it (dur_lost), so nobody need ask, as long as the store knows
 * what it has answered and the lane has heard it.  Behind each new session, after a round whose outcome was not
 * learned, and where the server's process is another one behind a pooler, both sides are compared: instance, token, and
 * the last event.  First the lane's row gets a new session number, so that what the old session has not taken yet it
 * never takes. Leases that the lane does not know (it never heard of the claim) are given back, those that are gone are
 * told as lost, and what the lost round handed out or asked for comes again.  All others go on: the round says that the
 * lane settles it, or the runtime would give up all that it has.
 *
 * A server that has taken the place of another one may know less: a standby that was behind, a backup.  What the lane
 * was handed and has not recorded, messages above all, is then doubtful, too, and no comparison of leases shows it: so
 * a log that goes on under another timeline is enough.  The lane does nothing more; the owner is told by its next beat,
 * and begins again under another id.
 */
#include "provider/postgres/pg_internal.h"
#include "provider/postgres/pg_pieces.h"
#include "provider/postgres/pg_works.h"

#include <stdlib.h>

static dur__pg_lease *find(const dur__pg_lane *lane, const char *instance) {
    return lane->leases.count > 0 ? dur__map_get(&lane->leases, instance) : NULL;
}

dur__pg_lease *dur__pg_lease_of(const dur__pg_lane *lane, const dur_turn_commit *turn) {
    dur__pg_lease *self = find(lane, turn->instance);
    return self != NULL && dur__str_eq(self->token, turn->lock_token) ? self : NULL;
}

static void lease_free(dur__pg_lane *lane, dur__pg_lease *self) {
    if (self == NULL) return;
    dur__pg_timers_forget(lane, self);
    dur__free(self->token);
    dur__free(self);
}

void dur__pg_lease_forget(dur__pg_lane *lane, const char *instance) {
    if (lane->leases.count > 0) lease_free(lane, dur__map_remove(&lane->leases, instance));
}

void dur__pg_leases_free(dur__pg_lane *lane) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&lane->leases, &i)) != NULL;)
        lease_free(lane, entry->value);
    dur__map_free(&lane->leases);
    dur__map_free(&lane->timers_by_id);
    dur__heap_free(&lane->timers);
}

static dur__pg_lease *remember(dur__pg_lane *lane, const char *instance, const char *token) {
    dur__pg_lease *self = find(lane, instance);
    if (self != NULL && strcmp(self->token, token) == 0) return self;
    dur__pg_lease_forget(lane, instance);
    size_t size = strlen(instance) + 1;
    self = dur__xcalloc(1, sizeof(*self) + size);
    memcpy(self->instance, instance, size);
    self->token = dur__xstrdup(token);
    self->last = DUR_NOT_COMPARED;
    dur__list_init(&self->timers);
    dur__map_put(&lane->leases, self->instance, self);
    return self;
}

/* It was acquired, or its history was read under the lease that it has. */
void dur__pg_lease_note(dur__pg_lane *lane, const dur_orchestration_item *item) {
    bool acquired = find(lane, item->instance) == NULL || item->works_known;
    dur__pg_lease *self = remember(lane, item->instance, item->lock_token);
    self->execution = item->execution_id;
    self->last = item->last_event_id;
    if (!acquired) return;
    self->committed = false;
    self->lost_work = item->work_lost;
    self->bare = item->last_event_id == 0 && item->execution_id == 1 && item->message_count == 1 &&
                 !item->more_messages && item->acquisitions == 1;
}

dur__pg_lease *dur__pg_lease_commit(dur__pg_lane *lane, const dur_turn_commit *turn) {
    if (turn->writes_start) dur__pg_lease_forget(lane, turn->instance); /* of another that had its id */
    if (!dur__turn_facts_of(turn).keeps) {
        dur__pg_lease_forget(lane, turn->instance);
        return NULL;
    }
    dur__pg_lease *self = remember(lane, turn->instance, turn->lock_token);
    self->committed = true;
    if (turn->writes_start) self->bare = true;
    if (dur__pg_touches_values(turn)) self->bare = false;
    if (turn->event_count == 0) return self;
    self->execution = turn->execution_id;
    self->last =
        turn->expected_last != DUR_NOT_COMPARED ? turn->events[turn->event_count - 1].event_id : DUR_NOT_COMPARED;
    return self;
}

void dur__pg_lease_told(dur__pg_lane *lane, const char *instance) {
    dur__pg_lease *self = find(lane, instance);
    if (self != NULL) self->bare = false;
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

/* $2 ids, $3 the lane, $4 its owner, $5 its session, $6 the round that was lost. */
static int add(dur__pg_batch *batch, const char *sql, const dur__pg_lane *lane, const dur__pg_array *ids) {
    const dur__pg_array none = dur__pg_array_text();
    dur__pg_args args;
    dur__pg_args_begin(lane->store, &args);
    dur__pg_array_copy_arg(&args, ids != NULL ? ids : &none);
    dur__pg_i64(&args, lane->holder);
    dur__pg_text(&args, lane->owner);
    dur__pg_i64(&args, (int64_t)lane->session);
    dur__pg_i64(&args, lane->unknown_round);
    return dur__pg_batch_add(batch, sql, &args);
}

/* clang-format off */
static const char enter_sql[] =
    "INSERT INTO @lanes (holder, owner, session) SELECT $3::bigint, o.owner, $5::bigint FROM @owners o WHERE o.owner ="
    " $4::text AND o.dead = 0 ON CONFLICT (holder) DO UPDATE SET session = excluded.session";
static const char held_sql[] =
    "SELECT i.instance_id, i.token, greatest(i.current_execution, 1), coalesce("
    DUR__PG_LAST("h.instance_id = i.instance_id AND h.execution_id = i.current_execution") ", 0) FROM @instances i WHERE"
    " i.owner = $4::text AND i.holder = $3::bigint";
/* Read behind the rows: who ends a lease does both in one transaction. */
static const char lost_sql[] = "SELECT instance_id FROM @lost WHERE holder = $3::bigint";
static const char server_sql[] = "SELECT " DUR__PG_SERVER_START ", " DUR__PG_TIMELINE;

#define THESE "instance_id = ANY ($2::text[])"
static const char lock_unknown_sql[] = "SELECT 1 FROM @instances WHERE " THESE " ORDER BY instance_id FOR UPDATE";
static const char end_unknown_sql[] =
    "WITH i0 AS (SELECT instance_id, acquisitions, 1 AS less, false AS died, 0 AS until FROM @instances WHERE " THESE
    " AND holder = $3::bigint AND owner = $4::text), " DUR__PG_END_LEASES;
static const char tell_gone_sql[] =
    "INSERT INTO @lost (holder, instance_id, at_ms) SELECT $3::bigint, unnest($2::text[]), #now";
static const char lock_kept_sql[] = "SELECT 1 FROM @instances WHERE " THESE " ORDER BY instance_id FOR NO KEY UPDATE";
/* Timers that the lost round has set are among them: the lane has not got their ids. */
static const char again_sql[] =
    "WITH q AS (UPDATE @queue SET delivered = 0, attempts = abs(attempts) WHERE " THESE " AND delivered = $6::bigint"
    " RETURNING instance_id) UPDATE @instances SET ready_at = 0, ready_due = 0 WHERE instance_id IN (SELECT instance_id"
    " FROM q)";
/* Each is told once, and the lost round may have told it to nobody. */
static const char ask_again_sql[] =
    "INSERT INTO @lost (holder, instance_id, asked, at_ms) SELECT holder, instance_id, true, #now FROM @instances WHERE "
    THESE " AND holder = $3::bigint AND owner = $4::text AND suspended IS NOT NULL";
static const char unborn_works_sql[] = DUR__PG_GIVE_WORKS_BACK("token = ANY ($2::text[])");
/* clang-format on */

/* ---- comparing --------------------------------------------------------------------------------------------------- */

/* It is given up: its caller is told that it may be there. */
static void give_up_birth(dur__pg_lane *lane, const dur_turn_commit *turn) {
    for (size_t i = 0; i < turn->worker_item_count; i++) {
        const char *token = dur__turn_eager(turn, &turn->worker_items[i]);
        if (token != NULL) dur__pg_add_text(&lane->unborn_works, token);
    }
}

static void doubt(dur__pg_lane *lane, const dur_turn_commit *turn) {
    dur__pg_lease *self = turn->writes_start || turn->lock_token == NULL ? NULL : dur__pg_lease_of(lane, turn);
    if (turn->writes_start) give_up_birth(lane, turn);
    if (self == NULL) return;
    self->in_doubt = true;
    self->bare = false;
    self->may_be_over = !dur__turn_facts_of(turn).keeps;
    self->doubtful_last = turn->event_count > 0 ? turn->events[turn->event_count - 1].event_id : self->last;
}

void dur__pg_lane_lost(dur__pg_lane *lane, int backend, dur_turn_commit **turns, size_t count) {
    if (lane->owner == NULL) return; /* nothing of it is compared: its locks run out */
    lane->unknown = true;
    lane->unknown_round = lane->rounds;
    lane->lost_backend = backend;
    for (size_t i = 0; i < count; i++)
        doubt(lane, turns[i]);
}

static bool is_where_it_was(const dur__pg_lease *self, const PGresult *held, int row) {
    uint64_t last = dur__pg_get_u64(held, row, 3);
    if (self->last == DUR_NOT_COMPARED || (self->in_doubt && last == self->doubtful_last)) return true;
    return self->execution == dur__pg_get_u64(held, row, 2) && self->last == last;
}

typedef struct comparison {
    dur__pg_array unknown, kept, gone; /* ids: to be given back; in order; to be told as lost */
    bool agree;                        /* nothing is where the lane has not left it */
} comparison;

/* held: as the store says; lost: what others have ended, and the lane was not told yet. */
static void compare(dur__pg_lane *lane, const PGresult *held, const PGresult *lost, comparison *out) {
    dur__map_entry *entry;
    for (int row = 0; row < PQntuples(held); row++) {
        const char *id = dur__pg_get(held, row, 0);
        dur__pg_lease *self = find(lane, id);
        if (self == NULL || !dur__str_eq(self->token, dur__pg_get(held, row, 1))) {
            dur__pg_add_text(&out->unknown, id);
            continue;
        }
        if (!is_where_it_was(self, held, row)) out->agree = false;
        self->accounted = true;
        dur__pg_add_text(&out->kept, id);
    }
    for (int row = 0; row < PQntuples(lost); row++) {
        dur__pg_lease *self = find(lane, dur__pg_get(lost, row, 0));
        if (self != NULL) self->accounted = true;
    }
    for (size_t i = 0; (entry = dur__map_next(&lane->leases, &i)) != NULL;) {
        const dur__pg_lease *self = entry->value;
        if (self->accounted || (self->in_doubt && self->may_be_over)) continue;
        out->agree = false;
        dur__pg_add_text(&out->gone, self->instance);
    }
}

/* Both sides are the same from here on; or nothing has happened. */
static void end_comparison(dur__pg_lane *lane, bool done) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&lane->leases, &i)) != NULL;) {
        dur__pg_lease *self = entry->value;
        bool over = !self->accounted;
        self->accounted = false;
        if (!done) continue;
        self->in_doubt = false;
        self->last = DUR_NOT_COMPARED; /* until its next turn, of which it is compared */
        if (over) dur__pg_lease_forget(lane, self->instance);
    }
}

/* ---- what follows from it ---------------------------------------------------------------------------------------- */

static int settle(dur__pg_lane *lane, const comparison *found, dur_error *err) {
    dur__pg_batch batch;
    bool again = lane->unknown && found->kept.count > 0;
    if (!again && found->unknown.count + found->gone.count == 0) return DUR_OK;
    dur__pg_batch_begin(&batch, lane->conn, false); /* may be repeated */
    if (found->unknown.count > 0) {
        add(&batch, lock_unknown_sql, lane, &found->unknown);
        add(&batch, end_unknown_sql, lane, &found->unknown);
    }
    if (found->gone.count > 0) add(&batch, tell_gone_sql, lane, &found->gone);
    if (again) {
        add(&batch, lock_kept_sql, lane, &found->kept);
        add(&batch, again_sql, lane, &found->kept);
        add(&batch, ask_again_sql, lane, &found->kept);
    }
    int code = dur__pg_batch_run(&batch, "postgres.leases", err);
    dur__pg_batch_end(&batch);
    return code;
}

static int end_lost_session(dur__pg_lane *lane, dur_error *err) {
    return lane->unknown ? dur__pg_end_session(lane->conn, lane->lost_backend, err) : DUR_OK;
}

/*
 * Worker rows that the lost round has claimed are known by the prefix of its tokens.  Behind the new session number:
 * where the lost session cannot be ended (a pooler) it may have claimed them until then.
 */
static int undo_lost_claims(dur__pg_lane *lane, dur_error *err) {
    dur__pg_batch batch;
    if (!lane->unknown) return DUR_OK;
    int code = dur__pg_undo_claims(lane->conn, lane->unknown_prefix, err);
    if (code == DUR_EUNKNOWN) /* of this, too: but it may be repeated */
        code = dur_error_set(err, DUR_EUNAVAILABLE, true, "postgres.leases", "the connection was lost");
    if (code != DUR_OK || lane->unborn_works.count == 0) return code;
    dur__pg_batch_begin(&batch, lane->conn, false); /* may be repeated */
    add(&batch, unborn_works_sql, lane, &lane->unborn_works);
    code = dur__pg_batch_run(&batch, "postgres.leases", err);
    dur__pg_batch_end(&batch);
    return code;
}

typedef struct place {
    int64_t server_start, timeline;
} place;

/* Another server process, which has gone on where it ended, has forgotten nothing. */
static bool knows_less(const dur__pg_lane *lane, const place *now, const comparison *found) {
    if (lane->server_start == 0 || lane->server_start == now->server_start) return false;
    return lane->timeline != now->timeline || !found->agree;
}

static int read_both(dur__pg_lane *lane, comparison *found, place *now, dur_error *err) {
    dur__pg_batch batch;
    dur__pg_batch_begin(&batch, lane->conn, false);
    add(&batch, enter_sql, lane, NULL);
    int held = add(&batch, held_sql, lane, NULL);
    int lost = add(&batch, lost_sql, lane, NULL);
    int server = add(&batch, server_sql, lane, NULL);
    int code = dur__pg_batch_run(&batch, "postgres.leases", err);
    if (code == DUR_OK) {
        now->server_start = dur__pg_get_i64(batch.results[server], 0, 0);
        now->timeline = dur__pg_get_i64(batch.results[server], 0, 1);
        compare(lane, batch.results[held], batch.results[lost], found);
    }
    dur__pg_batch_end(&batch);
    return code;
}

int dur__pg_leases_compare(dur__pg_lane *lane, dur_error *err) {
    place now = { 0, 0 };
    comparison found = { dur__pg_array_text(), dur__pg_array_text(), dur__pg_array_text(), true };
    if (!atomic_exchange(&lane->doubts, false) || lane->owner == NULL) return DUR_OK;
    int code = end_lost_session(lane, err);
    if (code == DUR_OK) code = read_both(lane, &found, &now, err);
    if (code == DUR_OK && knows_less(lane, &now, &found)) {
        dur__pg_owner_doubt(lane->store, lane->owner);
        code = dur_error_set(err, DUR_EUNAVAILABLE, true, "postgres.leases",
                             "the server has taken the place of another one, and may know less");
    }
    if (code == DUR_OK) code = undo_lost_claims(lane, err);
    if (code == DUR_OK) code = settle(lane, &found, err);
    end_comparison(lane, code == DUR_OK);
    if (code == DUR_OK) {
        lane->server_start = now.server_start;
        lane->timeline = now.timeline;
        lane->unknown = false;
        dur__buf_free(&lane->unborn_works.data);
        lane->unborn_works = dur__pg_array_text();
        atomic_store(&lane->news, true);
    } else {
        atomic_store(&lane->doubts, true);
    }
    dur__buf_free(&found.unknown.data);
    dur__buf_free(&found.kept.data);
    dur__buf_free(&found.gone.data);
    return code;
}

int dur__pg_lane_connect(dur__pg_lane *lane, dur_error *err) {
    int code = dur__pg_connect(lane->conn, err);
    if (lane->session != lane->conn->sessions || lane->unknown) atomic_store(&lane->doubts, true);
    lane->session = lane->conn->sessions;
    return code;
}
