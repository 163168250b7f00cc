/*
 * pg_usual.c: usual turns: those of instances that a lane holds, which begin, go on or end, and send nothing but timers
 * to themselves.
 *
 * Nearly every turn is one, so they are written with as little as possible: one statement for the old ones of a round
 * and one for those that are born, each of which compares the leases and positions, writes the instances' rows, and
 * with what it has written there the history and the executions.  They compare the same things as pg_turn.c, with less
 * to look at; what they refuse the long way decides.
 *
 * Arrays are unnested side by side in a list of columns: as arguments of one unnest() each of them would be put into a
 * table of its own first, which takes longer than the update of a row.
 */
#include "provider/postgres/pg_turn.h"

#include <stdlib.h>

/* ---- statements -------------------------------------------------------------------------------------------------- */

#define TURNS(more)                                                                                                    \
    "(SELECT unnest($2::text[]) AS id, unnest($3::text[]) AS token, unnest($4::bigint[]) AS execution,"                \
    " unnest($5::bigint[]) AS expected, unnest($6::bigint[]) AS last, unnest($11::bigint[]) AS gone,"                  \
    " unnest($12::bigint[]) AS step, unnest($13::text[]) AS step_token, unnest($14::text[]) AS step_json,"             \
    " unnest($15::text[]) AS step_handler, unnest($19::bigint[]) AS row_last" more ") t"
#define STATE ", unnest($20::bigint[]) AS flags, unnest($21::text[]) AS custom"
#define RESULT ", unnest($22::bigint[]) AS status, unnest($23::text[]) AS output"
#define NAMES                                                                                                          \
    ", unnest($24::text[]) AS name, unnest($25::text[]) AS version, unnest($26::text[]) AS parent,"                    \
    " unnest($27::text[]) AS pin, unnest($28::bigint[]) AS birth"

/*
 * A lease that this lane holds; where the holder is another, it was taken outside of the lane.  IS TRUE keeps the
 * planner from going by the owner, who may hold thousands of rows.
 */
#define HELD_HERE                                                                                                      \
    "i.instance_id = t.id AND (i.token = t.token) IS TRUE AND (i.owner = $7::text) IS TRUE AND (i.holder = "           \
    "$8::bigint) IS TRUE AND i.last_event = t.row_last AND " DUR__PG_FENCE("$9::bigint")
/*
 * The step in the row (pg_step.c) is the one that ends, where one ends or begins; of those that are over none is left.
 * Where history is ahead the step stands there, and that nobody has touched it is what the position says.
 */
#define BEHIND "t.row_last < t.expected"
#define SAME_STEP " AND (" BEHIND " OR t.gone IS NULL AND t.step IS NULL OR i.step_id IS NOT DISTINCT FROM t.gone)"
#define NO_STEP_LEFT                                                                                                   \
    " AND (" BEHIND " OR t.gone IS NULL AND t.step IS NULL AND t.flags & 16 <> 0 OR i.step_id IS NOT DISTINCT FROM"    \
    " t.gone)"
#define STEP_STAYS "t.gone IS NULL AND t.step IS NULL AND NOT " BEHIND
#define NEXT_STEP                                                                                                      \
    " step_id = CASE WHEN " STEP_STAYS " THEN i.step_id ELSE t.step END,"                                              \
    " step_token = CASE WHEN " STEP_STAYS " THEN i.step_token ELSE t.step_token END,"                                  \
    " step_json = CASE WHEN " STEP_STAYS " THEN i.step_json ELSE t.step_json END,"                                     \
    " step_handler = CASE WHEN " STEP_STAYS " THEN i.step_handler ELSE t.step_handler END,"

#define EVENTS "unnest($16::bigint[]) AS events, unnest($17::text[]) AS json, unnest($18::text[]) AS written"
/* Their first row of history; further ones come with a statement of their own (pg_history.c).  The texts do not go
   through the update, which would copy them. */
#define HISTORY                                                                                                        \
    "h AS (INSERT INTO @history (instance_id, execution_id, event_id, events, json, written) SELECT id, execution,"    \
    " expected + 1, events, json, written FROM (SELECT unnest($2::text[]) AS id, unnest($4::bigint[]) AS execution,"   \
    " unnest($5::bigint[]) AS expected, " EVENTS ") t)"
/* The executions that do not stand in their rows.  Behind an event that was there before, theirs is there too. */
#define EXECUTIONS_APART                                                                                               \
    ", x AS (INSERT INTO @executions (instance_id, execution_id, status, output, started_at, completed_at) SELECT id," \
    " execution, greatest(status, 1)::smallint, output, now, CASE WHEN status > 1 THEN now ELSE 0 END FROM u WHERE"    \
    " apart AND (status > 1 OR expected = 0) ON CONFLICT (instance_id, execution_id) DO UPDATE SET status ="           \
    " excluded.status, output = excluded.output, completed_at = excluded.completed_at WHERE excluded.status > 1)"
#define ALL_OR_NOTHING " SELECT 1 / (CASE WHEN count(*) = $10::bigint THEN 1 ELSE 0 END) FROM u"

/* All of them go on: no indexed column is touched. */
static const char plain_rows_sql[] =
    "WITH u AS (UPDATE @instances i SET" NEXT_STEP " last_event = t.last, updated_at = #now, acquisitions = 0 FROM"
    " " TURNS("") " WHERE i.current_execution = t.execution AND " HELD_HERE SAME_STEP
                  " RETURNING 1), " HISTORY ALL_OR_NOTHING;

/* Of those that are over the lease goes.  Behind an end there can only be messages that nobody was given: they wait for
   anybody. */
#define STATUS_AND_LEASE                                                                                               \
    " next = CASE WHEN t.status IN (2, 3) THEN '' ELSE i.next END,"                                                    \
    " next_execution = CASE WHEN t.status IN (2, 3) THEN " DUR__PG_NEVER_BEGINS " ELSE i.next_execution END,"          \
    " custom_status = CASE WHEN t.flags & 8 <> 0 THEN t.custom ELSE i.custom_status END,"                              \
    " custom_status_version = i.custom_status_version + (t.flags >> 3 & 1), acquisitions = 0,"                         \
    " token = CASE WHEN t.flags & 16 <> 0 THEN i.token END, owner = CASE WHEN t.flags & 16 <> 0 THEN i.owner END,"     \
    " holder = CASE WHEN t.flags & 16 <> 0 THEN i.holder END,"                                                         \
    " ready_at = CASE WHEN t.flags & 16 = 0 AND i.ready_due = 0 AND i.ready_at IS NOT NULL THEN #now ELSE i.ready_at"  \
    " END,"                                                                                                            \
    " status = CASE WHEN i.status IS NOT NULL AND t.status > 1 THEN t.status ELSE i.status END,"                       \
    " output = CASE WHEN i.status IS NOT NULL AND t.status > 1 THEN t.output ELSE i.output END"
#define WITH_RESULT                                                                                                    \
    " RETURNING t.id, t.execution, t.expected, t.status, t.output, i.updated_at AS now, i.status IS NULL AS "          \
    "apart), " HISTORY

/* Some are over, or say how far they are. */
static const char ending_rows_sql[] =
    "WITH u AS (UPDATE @instances i SET" NEXT_STEP " last_event = t.last, updated_at = #now," STATUS_AND_LEASE
    " FROM " TURNS(STATE RESULT) " WHERE i.current_execution = t.execution AND " HELD_HERE NO_STEP_LEFT WITH_RESULT
        EXECUTIONS_APART ALL_OR_NOTHING;

/* Some begin, under a lease that they were acquired with. */
static const char beginning_rows_sql[] =
    "WITH u AS (UPDATE @instances i SET" NEXT_STEP " has_row = i.has_row OR t.name IS NOT NULL, has_history = true,"
    " known = true,"
    " name = coalesce(t.name, i.name), version = coalesce(t.version, i.version),"
    " parent = CASE WHEN t.name IS NULL OR i.has_row THEN i.parent ELSE t.parent END,"
    " birth = CASE WHEN t.name IS NULL OR i.has_row THEN i.birth ELSE nullif(t.birth, 0) END,"
    " created_at = CASE WHEN t.name IS NULL OR i.has_row THEN i.created_at ELSE #now END, updated_at = #now,"
    " current_execution = t.execution, last_event = t.last, pin = coalesce(t.pin::bigint[], i.pin)," STATUS_AND_LEASE
    " FROM " TURNS(STATE RESULT NAMES) " WHERE (i.current_execution = t.execution OR (t.expected = 0 AND"
                                       " i.current_execution < t.execution)) AND " HELD_HERE NO_STEP_LEFT WITH_RESULT
                                           EXECUTIONS_APART ALL_OR_NOTHING;

/*
 * Those that begin with this turn, whose start was never written.  Somebody has made the instance: refused, by its key.
 * Nothing of theirs is compared that tells whether the owner lives, so he is looked for, by a snapshot that is younger
 * than his fence: the fence is taken by a statement before this one.
 */
#define OWNER_LIVES "(SELECT EXISTS (SELECT 1 FROM @owners WHERE owner = $7::text))"
static const char born_sql[] =
    "WITH u AS (INSERT INTO @instances (instance_id, has_row, has_history, known, name, version, current_execution,"
    " last_event, pin, custom_status, custom_status_version, created_at, updated_at, token, owner, holder, step_id,"
    " step_token, step_json, step_handler, status, birth) SELECT t.id, true, true, true, t.name, t.version, "
    "t.execution, t.last,"
    " t.pin::bigint[], t.custom, t.flags >> 3 & 1, n.now, n.now, t.token, $7::text, $8::bigint, t.step, t.step_token,"
    " t.step_json, t.step_handler, 1, nullif(t.birth, 0) FROM (SELECT #now AS now) n, " TURNS(
        STATE NAMES) " WHERE " OWNER_LIVES
                     " RETURNING instance_id, current_execution, created_at), " HISTORY ALL_OR_NOTHING;

/* ---- which turns are usual --------------------------------------------------------------------------------------- */

/*
 * A lane remembers the instances that it acquired new, with nothing but their start, for as long as they have no
 * key-value state, were given no message and sent themselves none, apart from timers that the lane keeps.  Their first
 * commit deletes the start by its id, and behind their end there is nothing to merge, and nothing to set free but the
 * row.
 */
#define FRESH_MAX 20000

void dur__pg_fresh_add(dur__pg_lane *lane, const char *instance) {
    if (lane->fresh.count >= FRESH_MAX || dur__map_get(&lane->fresh, instance) != NULL) return;
    char *key = dur__xstrdup(instance);
    dur__map_put(&lane->fresh, key, key);
}

void dur__pg_fresh_forget(dur__pg_lane *lane, const char *instance) {
    if (lane->fresh.count > 0) free(dur__map_remove(&lane->fresh, instance));
}

void dur__pg_fresh_forget_all(dur__pg_lane *lane) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&lane->fresh, &i)) != NULL;)
        free(entry->value);
    dur__map_free(&lane->fresh);
    memset(&lane->fresh, 0, sizeof(lane->fresh));
}

static bool is_fresh(const dur__pg_lane *lane, const dur_turn_commit *turn) {
    return lane->fresh.count > 0 && dur__map_get(&lane->fresh, turn->instance) != NULL;
}

/* It leaves something behind that an end must see to. */
bool dur__pg_turn_leaves_more(const dur_turn_commit *turn, bool usual) {
    if (!usual && (turn->orchestrator_item_count > 0 || turn->timers_dropped_count > 0)) return true;
    for (size_t i = 0; i < turn->event_count; i++) {
        dur_event_kind kind = turn->events[i].kind;
        if (kind == DUR_EVENT_KEY_VALUE_SET || kind == DUR_EVENT_KEY_VALUE_CLEARED ||
            kind == DUR_EVENT_KEY_VALUES_CLEARED)
            return true;
    }
    return false;
}

/* It cancels a step that once stood in the row; where it is now this lane does not know. */
static bool cancels_moved_step(const dur_turn_commit *turn, const dur__pg_lane *lane) {
    for (size_t i = 0; i < turn->cancelled_count; i++)
        if ((int64_t)turn->cancelled[i].row_id < 0) return dur__pg_step_gone(lane, turn) == 0;
    return false;
}

static dur__pg_turn_kind kind_of(const dur_turn_commit *turn, const dur__pg_lane *lane) {
    const dur_execution_metadata *metadata = &turn->metadata;
    bool described = metadata->orchestration_name != NULL || metadata->has_pinned_version;
    if (turn->take_over || turn->set_suspended || turn->give_back || turn->remove_work || turn->delay_ms > 0 ||
        turn->needs_parent || !turn->consume_listed || turn->execution_id == 0 || turn->event_count == 0 ||
        turn->owner == NULL || !dur__pg_sends_only_timers(turn) || !dur__pg_events_are_new(turn) ||
        turn->events[0].event_id != turn->expected_last + 1 || strcmp(turn->owner, lane->owner) != 0 ||
        cancels_moved_step(turn, lane))
        return DUR__PG_UNUSUAL;
    if (turn->writes_start)
        return dur__pg_turn_keeps(turn) && metadata->status == DUR_STATUS_NONE && dur__pg_turn_gives_row(turn)
                   ? DUR__PG_IS_BORN
                   : DUR__PG_UNUSUAL;
    if (dur__pg_turn_keeps(turn) && metadata->status == DUR_STATUS_NONE) {
        if (turn->expected_last > 0) return described ? DUR__PG_UNUSUAL : DUR__PG_GOES_ON;
        return turn->consumed_count == 1 && is_fresh(lane, turn) ? DUR__PG_BEGINS : DUR__PG_UNUSUAL;
    }
    bool over = metadata->status == DUR_STATUS_COMPLETED || metadata->status == DUR_STATUS_FAILED;
    return over && !turn->keep_lease && turn->expected_last > 0 && !described &&
                   !dur__pg_turn_leaves_more(turn, true) && is_fresh(lane, turn) && !dur__pg_step_stays(lane, turn) &&
                   dur__pg_takes_only_timers(lane, turn) && dur__pg_leaves_no_timer(lane, turn)
               ? DUR__PG_IS_OVER
               : DUR__PG_UNUSUAL;
}

static bool is_behind(const dur__pg_lane *lane, const dur_turn_commit *turn) {
    return !turn->writes_start && dur__pg_row_last(lane, turn) < turn->expected_last;
}

/* One that goes on by itself is as well off with its row. */
static bool goes_ahead(const dur__pg_lane *lane, const dur_turn_commit *turn, size_t count) {
    return dur__pg_lane_is_calm(lane) && (count > 1 || is_behind(lane, turn)) && dur__pg_row_known(lane, turn);
}

static bool is_calm(const dur__pg_lane *lane, const dur_turn_commit *turn, dur__pg_turn_kind kind, size_t count) {
    if (kind == DUR__PG_IS_BORN) return dur__pg_lane_is_calm(lane);
    if (kind == DUR__PG_GOES_ON) return goes_ahead(lane, turn, count);
    return kind == DUR__PG_IS_OVER && dur__pg_ends_calmly(lane, turn);
}

/*
 * The rarest kind among them, apart from those that are born.  A statement that changes a row that is behind does not
 * know what step stands in history.
 */
dur__pg_turn_kind dur__pg_kind_of_all(dur_turn_commit **turns, size_t count, const dur__pg_lane *lane) {
    dur__pg_turn_kind all = DUR__PG_GOES_ON;
    bool calm = true, step_is_ahead = false, doubtful = false;
    for (size_t i = 0; i < count; i++) {
        dur__pg_turn_kind kind = kind_of(turns[i], lane);
        if (kind == DUR__PG_UNUSUAL || dur__pg_row_in_doubt(lane, turns[i])) return DUR__PG_UNUSUAL;
        if (kind == DUR__PG_GOES_ON && dur__turn_custom_status(turns[i]) != NULL) kind = DUR__PG_IS_OVER;
        calm = calm && is_calm(lane, turns[i], kind, count);
        if (kind == DUR__PG_IS_BORN) continue;
        if (kind > all) all = kind;
        step_is_ahead |= is_behind(lane, turns[i]) && dur__pg_step_stays(lane, turns[i]);
        doubtful |= is_behind(lane, turns[i]) && lane->store->pooler; /* which may have changed the server unseen */
    }
    return calm ? DUR__PG_IS_CALM : step_is_ahead || doubtful ? DUR__PG_UNUSUAL : all;
}

/* ---- sending them ------------------------------------------------------------------------------------------------ */

/* As HELD_HERE wants them. */
static void usual_args(dur__pg *store, dur__pg_args *args, const dur__pg_lane *lane, dur_turn_commit **turns,
                       size_t count) {
    dur__pg_array id = dur__pg_array_text(), token = dur__pg_array_text(), execution = dur__pg_array_i64();
    dur__pg_array expected = dur__pg_array_i64(), last = dur__pg_array_i64(), row_last = dur__pg_array_i64();
    for (size_t i = 0; i < count; i++) {
        dur__pg_add_text(&id, turns[i]->instance);
        dur__pg_add_text(&token, turns[i]->lock_token);
        dur__pg_add_i64(&execution, (int64_t)turns[i]->execution_id);
        dur__pg_add_i64(&expected, (int64_t)turns[i]->expected_last);
        dur__pg_add_i64(&last, (int64_t)dur__pg_turn_last_event(turns[i]));
        dur__pg_add_i64(&row_last, (int64_t)dur__pg_row_last(lane, turns[i]));
    }
    dur__pg_args_begin(store, args);
    dur__pg_array_arg(args, &id);
    dur__pg_array_arg(args, &token);
    dur__pg_array_arg(args, &execution);
    dur__pg_array_arg(args, &expected);
    dur__pg_array_arg(args, &last);
    dur__pg_text(args, lane->owner);
    dur__pg_i64(args, lane->holder);
    dur__pg_i64(args, dur__pg_fence_key(store, lane->owner));
    dur__pg_i64(args, (int64_t)count);
    dur__pg_step_columns(args, lane, turns, count, DUR__PG_STEP_IN_ROW);
    dur__pg_history_columns(args, turns, count);
    dur__pg_array_arg(args, &row_last);
}

static void state_columns(dur__pg_args *args, dur_turn_commit **turns, size_t count) {
    enum { FLAGS, CUSTOM, STATUS, OUTPUT, COLUMNS };
    dur__pg_array columns[COLUMNS] = { dur__pg_array_i64(), dur__pg_array_text(), dur__pg_array_i64(),
                                       dur__pg_array_text() };
    for (size_t i = 0; i < count; i++) {
        const dur_turn_commit *turn = turns[i];
        const dur_event_row *custom = dur__turn_custom_status(turn);
        dur__pg_add_i64(&columns[FLAGS], dur__pg_turn_flags(turn));
        dur__pg_add_text(&columns[CUSTOM], custom != NULL ? custom->value : NULL);
        dur__pg_add_i64(&columns[STATUS], (int64_t)turn->metadata.status);
        dur__pg_add_text(&columns[OUTPUT], turn->metadata.status != DUR_STATUS_NONE ? turn->metadata.output : NULL);
    }
    dur__pg_array_args(args, columns, COLUMNS);
}

static void name_columns(dur__pg_args *args, dur_turn_commit **turns, size_t count) {
    enum { NAME, VERSION, PARENT, PIN, BIRTH, COLUMNS };
    dur__pg_array columns[COLUMNS];
    for (int i = 0; i < COLUMNS; i++)
        columns[i] = i == BIRTH ? dur__pg_array_i64() : dur__pg_array_text();
    for (size_t i = 0; i < count; i++) {
        const dur_execution_metadata *metadata = &turns[i]->metadata;
        bool named = dur__pg_turn_gives_row(turns[i]);
        dur__pg_add_text(&columns[NAME], named ? metadata->orchestration_name : NULL);
        dur__pg_add_text(&columns[VERSION], named ? metadata->orchestration_version : NULL);
        dur__pg_add_text(&columns[PARENT], metadata->parent_instance_id);
        dur__pg_add_pin(&columns[PIN], metadata);
        dur__pg_add_i64(&columns[BIRTH], (int64_t)metadata->birth);
    }
    dur__pg_array_args(args, columns, COLUMNS);
}

static void send_rows(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *lane, dur_turn_commit **turns,
                      size_t count, dur__pg_turn_kind kind) {
    dur__pg_args args;
    const char *sql = kind == DUR__PG_GOES_ON   ? plain_rows_sql
                      : kind == DUR__PG_IS_OVER ? ending_rows_sql
                      : kind == DUR__PG_BEGINS  ? beginning_rows_sql
                                                : born_sql;
    usual_args(store, &args, lane, turns, count);
    if (kind > DUR__PG_GOES_ON) state_columns(&args, turns, count);
    if (kind > DUR__PG_IS_OVER) name_columns(&args, turns, count);
    dur__pg_batch_add(batch, sql, &args);
}

/* Timers that the lane has handed out, and starts of instances that are new here: nothing else of those was given. */
static bool takes_nothing_queued(const dur__pg_lane *lane, dur_turn_commit **turns, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (turns[i]->expected_last > 0 && !dur__pg_takes_only_timers(lane, turns[i])) return false;
    return true;
}

/* Those that are born behind the others. */
static int by_instance(const void *a, const void *b) {
    const dur_turn_commit *x = *(dur_turn_commit *const *)a, *y = *(dur_turn_commit *const *)b;
    return x->writes_start != y->writes_start ? (x->writes_start ? 1 : -1) : strcmp(x->instance, y->instance);
}

/*
 * Nothing but the instances' own rows, and those of their work: the first statement locks them, in order of their ids.
 * Rows that are made behind it are out of order, but that waits for nobody except one who is just making a row of the
 * same name; should that one wait for a row of ours, the server finds it, and the round is tried again.
 */
void dur__pg_send_usual(dur__pg *store, dur__pg_batch *batch, dur__pg_lane *lane, dur_turn_commit **turns, size_t count,
                        dur__pg_turn_kind kind, dur__pg_turn_plan *plan) {
    size_t old = 0;
    if (count == 1 && kind == DUR__PG_GOES_ON && !lane->sessions && dur__pg_is_one_step(turns[0])) {
        plan->work_at = dur__pg_send_one_step(store, batch, lane, turns[0]);
        return;
    }
    qsort(turns, count, sizeof(*turns), by_instance);
    while (old < count && !turns[old]->writes_start)
        old++;
    if (kind == DUR__PG_IS_CALM) {
        dur__pg_send_calm(store, batch, lane, turns, old, count);
    } else {
        if (old > 0)
            send_rows(store, batch, lane, turns, old, kind);
        else
            dur__pg_fence_add(store, batch, lane->owner);
        if (old < count) send_rows(store, batch, lane, turns + old, count - old, DUR__PG_IS_BORN);
    }
    dur__pg_send_consumed(store, batch, turns, count, takes_nothing_queued(lane, turns, count));
    dur__pg_send_work_taken(store, batch, lane, turns, count);
    dur__pg_send_more_history(store, batch, turns, count);
    dur__pg_send_kv(store, batch, turns, count, false);
    if (dur__pg_send_sessions(store, batch, turns, count)) lane->sessions = true;
    plan->work_at = dur__pg_send_work(store, batch, lane, turns, count);
    dur__pg_send_cancelled(store, batch, turns, count);
    plan->timers_at = dur__pg_send_timers(store, batch, turns, count);
    dur__pg_send_timers_dropped(store, batch, turns, count);
}
