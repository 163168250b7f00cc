/*
 * pg_step.c: the step that an instance's own node runs, kept in the instance's row; what a lane knows of such rows.
 *
 * Most work is run by the node that holds its instance, and its end is the next thing that happens to the instance.  A
 * row of dur_worker for it would be written and deleted between two updates of the instance's row; so it stands in that
 * row instead, as what it is: one activity, locked for the owner of the lease.  It is there only under a lease and only
 * for the lane that holds it.  Whoever else needs it, and whoever ends the lease, moves it to dur_worker first: then it
 * is a row like any other.  Its id there is below 0, so that no number of the table's own is taken, and says which
 * activity it is.
 *
 * Where history is ahead of the row (pg_usual.c) the step stands there, beside the event that has scheduled it.
 *
 * The lane remembers what it has written to the rows of its instances: their positions and steps.  The statements
 * compare that with the row: a memory that is wrong costs a refusal, and the long way that follows moves the step, with
 * all else that stands in the row instead of a table of its own.
 */
#include "provider/postgres/pg_turn.h"

#include <stdlib.h>

#define JSON_MAX 1500u   /* more would leave the row's page */
#define ACTIVITY_BITS 40 /* and what is left for the execution: enough to keep those apart that still run */
#define EXECUTION_MASK 0x3fffffu

/* What a lane knows of the row of an instance that it has written under the lease that it has. */
typedef struct row {
    uint64_t last; /* the position in it … */
    uint64_t head; /* … and that of history, which may be ahead */
    int64_t step;  /* 0: none */
    char *token;   /* of the step */
    uint64_t execution;
    bool has_execution; /* with its status and output */
    char *lease;        /* its token */
    uint64_t calms;     /* the lane's, when it was compared: since then nobody else has written it (pg_disturb.c) */
    uint64_t session;   /* the lane's, when it was written */
    char *end;          /* of the texts of its steps, as the names in the row say it; NULL: those are not known */
    char instance[];
} row;

/* ---- moving it --------------------------------------------------------------------------------------------------- */

/* In order of the ids, as everybody locks them. */
static const char lock_sql[] =
    "SELECT 1 FROM @instances WHERE instance_id = ANY ($2::text[]) ORDER BY instance_id FOR UPDATE";
static const char move_sql[] =
    "WITH i0 AS MATERIALIZED (SELECT i.instance_id FROM @instances i WHERE i.instance_id = ANY ($2::text[]) AND"
    " (i.step_id IS NOT NULL OR i.status IS NOT NULL OR " DUR__PG_AHEAD(
        "1", "") " IS NOT NULL)), " DUR__PG_MOVE_STEPS ", e0 AS (INSERT INTO @executions (instance_id,"
                 " execution_id, status, output, started_at, completed_at) SELECT e.* FROM i0 JOIN"
                 " (" DUR__PG_EXECUTIONS_IN_ROWS ") e ON e.instance_id = i0.instance_id) UPDATE @instances i"
                 " SET " DUR__PG_NO_STEP ", status = NULL, output = NULL FROM i0 WHERE i.instance_id = i0.instance_id";
/* By a token alone: only who runs it knows that, so it is one of the few that somebody here holds. */
static const char find_sql[] = "SELECT i.instance_id FROM @instances i CROSS JOIN " DUR__PG_STEP
                               " s WHERE i.owner IS NOT NULL AND s.token = $2::text";

void dur__pg_steps_lock_add(dur__pg *store, dur__pg_batch *batch, const dur__pg_array *instances) {
    dur__pg_args args;
    if (instances->count == 0) return;
    dur__pg_args_begin(store, &args);
    dur__pg_array_copy_arg(&args, instances);
    dur__pg_batch_add(batch, lock_sql, &args);
}

void dur__pg_steps_move_add(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *by, dur__pg_array *instances) {
    dur__pg_args args;
    bool any = instances->count > 0;
    dur__pg_disturb_add(store, batch, by, instances);
    dur__pg_args_begin(store, &args);
    dur__pg_array_arg(&args, instances);
    if (any)
        dur__pg_batch_add(batch, move_sql, &args);
    else
        dur__pg_args_free(&args);
}

/*
 * An end without a message has no row locked yet; it is out of order, and as rare as what it is for.  What a turn does
 * to its instance the lane remembers; of work that ends beside turns it does not know whose row it is.
 */
void dur__pg_steps_move_of(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *lane, dur_turn_commit **turns,
                           size_t count, const dur_work_ack *acks, size_t ack_count) {
    dur__pg_array ids = dur__pg_array_text(), acked = dur__pg_array_text(), bare = dur__pg_array_text();
    for (size_t i = 0; i < count; i++)
        dur__pg_add_text(&ids, turns[i]->instance);
    for (size_t i = 0; i < ack_count; i++) {
        if ((int64_t)acks[i].ref.row_id > 0 || acks[i].ref.instance == NULL) continue;
        dur__pg_add_text(&acked, acks[i].ref.instance);
        if (acks[i].completion == NULL) dur__pg_add_text(&bare, acks[i].ref.instance);
    }
    dur__pg_steps_lock_add(store, batch, &bare);
    dur__buf_free(&bare.data);
    dur__pg_disturb_add(store, batch, NULL, &acked);
    dur__pg_add_all(&ids, &acked);
    dur__buf_free(&acked.data);
    dur__pg_steps_move_add(store, batch, lane, &ids);
}

static int move_one(dur__pg *store, const char *op, const char *instance, dur_error *err) {
    dur__pg_conn *conn;
    dur__pg_batch batch;
    dur__pg_array one = dur__pg_array_text();
    int code = dur__pg_borrow(store, &conn, err);
    if (code != DUR_OK) return code;
    dur__pg_add_text(&one, instance);
    dur__pg_batch_begin(&batch, conn, true);
    dur__pg_steps_lock_add(store, &batch, &one);
    dur__pg_steps_move_add(store, &batch, NULL, &one);
    code = dur__pg_batch_run(&batch, op, err);
    dur__pg_batch_end(&batch);
    dur__pg_return(conn);
    return code;
}

int dur__pg_step_move_by_token(dur__pg *store, const char *op, const char *token, bool *moved, dur_error *err) {
    dur__pg_args args;
    dur_arena *arena = dur_arena_new();
    const char *instance = NULL;
    dur__pg_args_begin(store, &args);
    dur__pg_text(&args, token);
    int code = dur__pg_first_text(store, op, find_sql, &args, arena, &instance, err);
    *moved = code == DUR_OK && instance != NULL;
    if (*moved) code = move_one(store, op, instance, err);
    dur_arena_free(arena);
    return code;
}

/* ---- what a lane remembers --------------------------------------------------------------------------------------- */

static void row_free(row *self) {
    if (self == NULL) return;
    free(self->token);
    free(self->lease);
    free(self->end);
    free(self);
}

void dur__pg_step_forget(dur__pg_lane *lane, const char *instance) {
    if (lane->steps.count > 0) row_free(dur__map_remove(&lane->steps, instance));
}

void dur__pg_steps_forget_all(dur__pg_lane *lane) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&lane->steps, &i)) != NULL;)
        row_free(entry->value);
    dur__map_free(&lane->steps);
    memset(&lane->steps, 0, sizeof(lane->steps));
}

static row *row_of(const dur__pg_lane *lane, const char *instance) {
    return lane->steps.count > 0 ? dur__map_get(&lane->steps, instance) : NULL;
}

static row *remember(dur__pg_lane *lane, const char *instance) {
    row *known = row_of(lane, instance);
    if (known != NULL) return known;
    size_t size = strlen(instance) + 1;
    known = dur__xcalloc(1, sizeof(*known) + size);
    memcpy(known->instance, instance, size);
    dur__map_put(&lane->steps, known->instance, known);
    return known;
}

/* NULL: it has no step. */
static const row *has_step(const row *known) {
    return known != NULL && known->step != 0 ? known : NULL;
}

static const row *step_of(const dur__pg_lane *lane, const char *instance) {
    return has_step(row_of(lane, instance));
}

bool dur__pg_row_known(const dur__pg_lane *lane, const dur_turn_commit *turn) {
    const row *known = row_of(lane, turn->instance);
    return known != NULL && known->head == turn->expected_last && lane->calm && known->calms == lane->calms &&
           known->execution == turn->execution_id && dur__str_eq(known->lease, turn->lock_token);
}

bool dur__pg_execution_in_row(const dur__pg_lane *lane, const dur_turn_commit *turn) {
    const row *known = row_of(lane, turn->instance);
    return known != NULL && known->has_execution;
}

/*
 * The session that wrote history ahead of the row is gone, and perhaps with it the server: one that has taken its
 * place, or was restored, may have less of history, and the row would not tell.
 */
bool dur__pg_row_in_doubt(const dur__pg_lane *lane, const dur_turn_commit *turn) {
    const row *known = lane->session > 1 ? row_of(lane, turn->instance) : NULL;
    return known != NULL && known->last < known->head && known->session != lane->session;
}

uint64_t dur__pg_row_last(const dur__pg_lane *lane, const dur_turn_commit *turn) {
    const row *known = row_of(lane, turn->instance);
    return known != NULL && known->head == turn->expected_last ? known->last : turn->expected_last;
}

/* ---- what a turn does with it ------------------------------------------------------------------------------------ */

int64_t dur__pg_step_id(const dur_message *item) {
    return -(int64_t)((item->execution_id & EXECUTION_MASK) << ACTIVITY_BITS | item->activity_id);
}

/* Where the answer to its turn was lost, its id is not known. */
static bool is_step(const row *self, const dur_worker_claim *claim) {
    return self != NULL && (claim->ref.row_id == 0 || (int64_t)claim->ref.row_id == self->step) &&
           dur__str_eq(claim->lock_token, self->token);
}

bool dur__pg_claim_is_step(const dur__pg_lane *lane, const dur_turn_commit *turn, const dur_worker_claim *claim) {
    return is_step(step_of(lane, turn->instance), claim);
}

static bool cancels(const dur_turn_commit *turn, const row *self) {
    for (size_t i = 0; i < turn->cancelled_count; i++) {
        const dur_activity_ref *ref = &turn->cancelled[i];
        dur_message item = { .execution_id = ref->execution_id, .activity_id = ref->activity_id };
        if ((ref->instance == NULL || strcmp(ref->instance, turn->instance) == 0) &&
            (ref->row_id != 0 ? (int64_t)ref->row_id : dur__pg_step_id(&item)) == self->step)
            return true;
    }
    return false;
}

static int64_t gone(const row *step, const dur_turn_commit *turn) {
    for (size_t i = 0; step != NULL && i < turn->worker_consumed_count; i++)
        if (is_step(step, &turn->worker_consumed[i])) return step->step;
    return step != NULL && cancels(turn, step) ? step->step : 0;
}

int64_t dur__pg_step_gone(const dur__pg_lane *lane, const dur_turn_commit *turn) {
    return gone(step_of(lane, turn->instance), turn);
}

static bool stays(const row *step, const dur_turn_commit *turn) {
    return step != NULL && gone(step, turn) == 0;
}

bool dur__pg_step_stays(const dur__pg_lane *lane, const dur_turn_commit *turn) {
    return stays(step_of(lane, turn->instance), turn);
}

/* As no JSON does: in a row that would be a text in short. */
static bool begins_with_comma(dur_text text) {
    return text.size > 0 && text.data[0] == ',';
}

static bool made(const row *step, const dur_turn_commit *turn) {
    if (turn->worker_item_count != 1 || !dur__pg_turn_keeps(turn) || stays(step, turn)) return false;
    const dur_turn_work *work = &turn->worker_items[0];
    const dur_message *item = &work->message;
    return work->lock_token != NULL && work->lock_token[0] != '\0' && item->session_id == NULL && item->tag == NULL &&
           item->json.size <= JSON_MAX && !begins_with_comma(item->json) && item->activity_id != 0 &&
           item->activity_id >> ACTIVITY_BITS == 0 && item->execution_id == turn->execution_id &&
           item->instance != NULL && strcmp(item->instance, turn->instance) == 0;
}

bool dur__pg_step_made(const dur__pg_lane *lane, const dur_turn_commit *turn) {
    return made(step_of(lane, turn->instance), turn);
}

/* How the texts of steps end, as the names say it that a turn gives its instance's row. */
static char *end_of_names(const dur_execution_metadata *metadata) {
    dur__buf end = { NULL, 0, 0 };
    dur__buf_text(&end, ",\"orchestration_name\":\"");
    dur__buf_text(&end, metadata->orchestration_name);
    dur__buf_text(&end, "\",\"orchestration_version\":\"");
    dur__buf_text(&end, metadata->orchestration_version);
    dur__buf_text(&end, "\"}}");
    return dur__buf_take(&end);
}

/* Its row was compared, and is as the turn has left it. */
static void note_compared(const dur__pg_lane *lane, row *known, const dur_turn_commit *turn) {
    known->last = known->head;
    if (turn->writes_start)
        known->has_execution = true;
    else if (!lane->calm || known->calms != lane->calms)
        known->has_execution = false; /* who has written the row may have moved it */
    known->calms = lane->calm ? lane->calms : 0;
    known->execution = turn->execution_id;
    if (dur__str_eq(known->lease, turn->lock_token)) return;
    free(known->lease);
    known->lease = dur__xstrdup(turn->lock_token);
}

/* What went the long way has moved it, and its next turn writes the row. */
void dur__pg_step_note(dur__pg_lane *lane, const dur_turn_commit *turn, bool usual, bool ahead) {
    if (!usual || !dur__pg_turn_keeps(turn)) {
        dur__pg_step_forget(lane, turn->instance);
        return;
    }
    if (turn->writes_start) dur__pg_step_forget(lane, turn->instance); /* of another that had its id */
    row *known = remember(lane, turn->instance);
    const row *step = has_step(known);
    bool is_made = made(step, turn), is_gone = gone(step, turn) != 0;
    known->head = dur__pg_turn_last_event(turn);
    known->session = lane->session;
    if (dur__pg_turn_gives_row(turn)) {
        free(known->end);
        known->end = end_of_names(&turn->metadata);
    }
    if (!ahead) note_compared(lane, known, turn);
    if (!is_made && !is_gone) return;
    free(known->token);
    known->token = is_made ? dur__xstrdup(turn->worker_items[0].lock_token) : NULL;
    known->step = is_made ? dur__pg_step_id(&turn->worker_items[0].message) : 0;
}

/* ---- its columns ------------------------------------------------------------------------------------------------- */

static dur_text text_in_row(const row *known, const dur_turn_commit *turn) {
    const dur_message *item = &turn->worker_items[0].message;
    if (!dur__pg_turn_gives_row(turn)) return dur__pg_step_in_row(turn, item, known != NULL ? known->end : NULL);
    char *end = end_of_names(&turn->metadata);
    dur_text text = dur__pg_step_in_row(turn, item, end);
    free(end);
    return text;
}

dur_text dur__pg_step_text(const dur__pg_lane *lane, const dur_turn_commit *turn) {
    return text_in_row(row_of(lane, turn->instance), turn);
}

static void add_i64_or_null(dur__pg_array *array, int64_t value) {
    if (value != 0)
        dur__pg_add_i64(array, value);
    else
        dur__pg_add_null(array);
}

static bool is_told_beside_events(const dur_turn_commit *turn) {
    return !turn->writes_start && dur__pg_turn_keeps(turn);
}

typedef struct step_columns {
    dur__pg_array id, token, json, handler;
} step_columns;

static void add_step(step_columns *out, const dur_turn_work *work, dur_text text) {
    dur__pg_add_i64(&out->id, dur__pg_step_id(&work->message));
    dur__pg_add_text(&out->token, work->lock_token);
    dur__pg_add_json(&out->json, text);
    dur__pg_add_text(&out->handler, dur__pg_handler_of(&work->message));
}

static void add_none(step_columns *out, bool ended) {
    if (ended)
        dur__pg_add_i64(&out->id, 0);
    else
        dur__pg_add_null(&out->id);
    dur__pg_add_null(&out->token);
    dur__pg_add_null(&out->json);
    dur__pg_add_null(&out->handler);
}

void dur__pg_step_columns(dur__pg_args *args, const dur__pg_lane *lane, dur_turn_commit **turns, size_t count,
                          dur__pg_step_place place) {
    bool beside = place == DUR__PG_STEP_BESIDE_EVENTS;
    dur__pg_array ends = dur__pg_array_i64();
    step_columns out = { dur__pg_array_i64(), dur__pg_array_text(), dur__pg_array_text(), dur__pg_array_text() };
    for (size_t i = 0; i < count; i++) {
        const row *known = row_of(lane, turns[i]->instance), *step = has_step(known);
        bool told = !beside || is_told_beside_events(turns[i]);
        int64_t old = told ? gone(step, turns[i]) : 0;
        if (place == DUR__PG_STEP_IN_ROW) add_i64_or_null(&ends, old);
        if (told && made(step, turns[i])) {
            const dur_turn_work *work = &turns[i]->worker_items[0];
            const char *end = known != NULL ? known->end : NULL;
            add_step(&out, work,
                     beside ? dur__pg_step_short(turns[i], &work->message, end) : text_in_row(known, turns[i]));
        } else {
            add_none(&out, beside && old != 0);
        }
    }
    if (place == DUR__PG_STEP_IN_ROW) dur__pg_array_arg(args, &ends);
    dur__pg_array_arg(args, &out.id);
    dur__pg_array_arg(args, &out.token);
    dur__pg_array_arg(args, &out.json);
    dur__pg_array_arg(args, &out.handler);
}
