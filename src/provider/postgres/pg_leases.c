/*
 * pg_leases.c: what a lane holds, and whether the store says the same.
 *
 * A lane learns of every lease that somebody takes from it (dur_lost), so nobody need ask, as long as the store knows
 * what it has answered.  A server that has taken the place of another one may know less: a standby that was behind, a
 * backup.  There the lane may hold what it has long ended, which nobody would run, for its owner lives; or it runs what
 * is not there.  So behind each new session, and where the server's process is another one behind a pooler, both sides
 * are compared: instance, token, and the last event.  Where they are equal nothing is lost, and all goes on; where not,
 * the rows of workers and sessions are as doubtful as the leases: the owner is told by its next beat, and begins again
 * under another id.
 */
#include "provider/postgres/pg_internal.h"

#include <stdlib.h>

#define POSITION_UNKNOWN UINT64_MAX

typedef struct lease {
    char *token;
    uint64_t execution, last;
    bool accounted; /* while both sides are compared: the store says the same, or has told where it went */
    char instance[];
} lease;

static lease *lease_of(const dur__pg_lane *lane, const char *instance) {
    return lane->leases.count > 0 ? dur__map_get(&lane->leases, instance) : NULL;
}

static void lease_free(lease *self) {
    if (self == NULL) return;
    free(self->token);
    free(self);
}

void dur__pg_lease_forget(dur__pg_lane *lane, const char *instance) {
    if (lane->leases.count > 0) lease_free(dur__map_remove(&lane->leases, instance));
}

void dur__pg_leases_forget_all(dur__pg_lane *lane) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&lane->leases, &i)) != NULL;)
        lease_free(entry->value);
    dur__map_free(&lane->leases);
    memset(&lane->leases, 0, sizeof(lane->leases));
}

static lease *remember(dur__pg_lane *lane, const char *instance, const char *token) {
    lease *self = lease_of(lane, instance);
    if (self == NULL) {
        size_t size = strlen(instance) + 1;
        self = dur__xcalloc(1, sizeof(*self) + size);
        memcpy(self->instance, instance, size);
        self->last = POSITION_UNKNOWN;
        dur__map_put(&lane->leases, self->instance, self);
    }
    if (!dur__str_eq(self->token, token)) {
        free(self->token);
        self->token = dur__xstrdup(token);
    }
    return self;
}

void dur__pg_lease_note(dur__pg_lane *lane, const dur_orchestration_item *item) {
    lease *self = remember(lane, item->instance, item->lock_token);
    self->execution = item->execution_id;
    self->last = item->last_event_id;
}

void dur__pg_lease_commit(dur__pg_lane *lane, const dur_turn_commit *turn) {
    if (!dur__pg_turn_keeps(turn)) {
        dur__pg_lease_forget(lane, turn->instance);
        return;
    }
    lease *self = remember(lane, turn->instance, turn->lock_token);
    if (turn->event_count == 0) return;
    self->execution = turn->execution_id;
    self->last =
        turn->expected_last != DUR_NOT_COMPARED ? turn->events[turn->event_count - 1].event_id : POSITION_UNKNOWN;
}

static const char held_sql[] = "SELECT i.instance_id, i.token, greatest(i.current_execution, 1), " DUR__PG_LAST_AHEAD
                               " FROM @instances i WHERE i.owner = $2::text AND i.holder = $3::bigint";
/* Read behind the rows: who ends a lease does both in one transaction. */
static const char lost_sql[] = "SELECT instance_id FROM @lost WHERE holder = $3::bigint AND $2::text IS NOT NULL";

static bool is_equal(const lease *self, const PGresult *rows, int row) {
    return dur__str_eq(self->token, dur__pg_get(rows, row, 1)) &&
           (self->last == POSITION_UNKNOWN ||
            (self->execution == dur__pg_get_u64(rows, row, 2) && self->last == dur__pg_get_u64(rows, row, 3)));
}

/* held: as the store says; lost: what others have ended, and the lane was not told yet. */
static bool both_sides_agree(dur__pg_lane *lane, const PGresult *held, const PGresult *lost) {
    bool agree = true;
    dur__map_entry *entry;
    for (int row = 0; row < PQntuples(held); row++) {
        lease *self = lease_of(lane, dur__pg_get(held, row, 0));
        if (self != NULL && is_equal(self, held, row))
            self->accounted = true;
        else
            agree = false;
    }
    for (int row = 0; row < PQntuples(lost); row++) {
        lease *self = lease_of(lane, dur__pg_get(lost, row, 0));
        if (self != NULL) self->accounted = true;
    }
    for (size_t i = 0; (entry = dur__map_next(&lane->leases, &i)) != NULL;) {
        lease *self = entry->value;
        agree = agree && self->accounted;
        self->accounted = false;
    }
    return agree;
}

int dur__pg_leases_compare(dur__pg_lane *lane, dur_error *err) {
    static const char *const both[] = { held_sql, lost_sql };
    dur__pg_args args;
    dur__pg_batch batch;
    int at[2];
    if (!atomic_exchange(&lane->doubts, false) || lane->owner == NULL) return DUR_OK;
    dur__pg_batch_begin(&batch, lane->conn, false);
    for (int i = 0; i < 2; i++) {
        dur__pg_args_begin(lane->store, &args);
        dur__pg_text(&args, lane->owner);
        dur__pg_i64(&args, lane->holder);
        at[i] = dur__pg_batch_add(&batch, both[i], &args);
    }
    int code = dur__pg_batch_run(&batch, "postgres.leases", err);
    if (code != DUR_OK)
        atomic_store(&lane->doubts, true);
    else if (!both_sides_agree(lane, batch.results[at[0]], batch.results[at[1]]))
        dur__pg_owner_doubt(lane->store, lane->owner);
    dur__pg_batch_end(&batch);
    return code;
}
