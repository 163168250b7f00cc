/*
 * pg_turn.h: what the files share that turn a turn into statements.
 */
#ifndef DURITE_PROVIDER_PG_TURN_H
#define DURITE_PROVIDER_PG_TURN_H

#include "provider/postgres/pg_internal.h"

/* The fence of the owner (pg_fetch.c), taken before any row is touched: the first statement of a batch has it. */
#define DUR__PG_FENCE(key) "(SELECT pg_advisory_xact_lock_shared(" key ")::text) IS NOT NULL"

/* pg_turn.c: what a turn means */
bool dur__pg_turn_writes(const dur_turn_commit *turn); /* an execution: events, status, metadata */
bool dur__pg_turn_ends(const dur_turn_commit *turn);   /* the execution */
bool dur__pg_turn_gives_row(const dur_turn_commit *turn);
int64_t dur__pg_turn_flags(const dur_turn_commit *turn);
uint64_t dur__pg_turn_last_event(const dur_turn_commit *turn);
void dur__pg_add_pin(dur__pg_array *array, const dur_execution_metadata *metadata);

/* … and what it takes, where it does */
/* alone: none of them stands in a named queue. */
void dur__pg_send_consumed(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count, bool alone);
/* lane: of its usual turns, whose steps stand in their rows. */
void dur__pg_send_work_taken(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *lane, dur_turn_commit **turns,
                             size_t count);
void dur__pg_send_cancelled(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count);
void dur__pg_send_timers_dropped(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count);

/* pg_usual.c.  In this order: a statement for one of them does for those before it. */
typedef enum dur__pg_turn_kind {
    DUR__PG_UNUSUAL,
    DUR__PG_IS_CALM, /* of all of them: pg_calm.c */
    DUR__PG_GOES_ON,
    DUR__PG_IS_OVER,
    DUR__PG_BEGINS,
    DUR__PG_IS_BORN
} dur__pg_turn_kind;
dur__pg_turn_kind dur__pg_kind_of_all(dur_turn_commit **turns, size_t count, const dur__pg_lane *lane);
void dur__pg_send_usual(dur__pg *store, dur__pg_batch *batch, dur__pg_lane *lane, dur_turn_commit **turns, size_t count,
                        dur__pg_turn_kind kind, dur__pg_turn_plan *plan);

/* pg_calm.c: of turns in order, first those of old instances.  It has its own memory of all rows, and nobody else has
   written any since; an end needs nothing but its row. */
bool dur__pg_lane_is_calm(const dur__pg_lane *lane);
bool dur__pg_ends_calmly(const dur__pg_lane *lane, const dur_turn_commit *turn);
void dur__pg_send_calm(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *lane, dur_turn_commit **turns,
                       size_t old, size_t count);

/* A statement that takes nothing but the ids of the instances that pass the test; none: it is not sent. */
typedef bool dur__pg_turn_test(const dur_turn_commit *turn);
void dur__pg_send_ids(dur__pg *store, dur__pg_batch *batch, const char *sql, dur_turn_commit **turns, size_t count,
                      dur__pg_turn_test *test);

/* pg_history.c: behind the statement that compares the position */
void dur__pg_send_history(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count);
/* The first row of each as three arrays: how many events, their text, and by whom; and the rows behind it. */
void dur__pg_history_columns(dur__pg_args *args, dur_turn_commit **turns, size_t count);
void dur__pg_send_more_history(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count);
/* All of them stand behind what is there, in order, so that no row can have one of them already.  Usual turns are such.
 */
bool dur__pg_events_are_new(const dur_turn_commit *turn);
bool dur__pg_in_first_row(const dur_turn_commit *turn, size_t at); /* where nothing forbids to put several into one */
/* The text of a row that begins with this event; how many there are in it. */
#define DUR__PG_VERSION_MAX 40u
typedef struct dur__pg_row_text {
    dur__buf json;
    char written[24 + DUR__PG_VERSION_MAX]; /* when, a space, by which version; "": the events are there in full */
} dur__pg_row_text;
#define DUR__PG_ROW_TEXT_INIT                                                                                          \
    {                                                                                                                  \
        .json = { NULL, 0, 0 }                                                                                         \
    }
size_t dur__pg_row_of_events(const dur_turn_commit *turn, size_t from, dur__pg_row_text *row);
dur_text dur__pg_row_json(const dur__pg_row_text *row);
const char *dur__pg_row_written(const dur__pg_row_text *row); /* NULL: in full */

/* pg_short.c */
typedef struct dur__pg_event_text {
    uint64_t source; /* 0: none */
    uint64_t written_ms;
    dur_text version, rest; /* of the event's own text */
} dur__pg_event_text;
/* False: it cannot be put together again from the columns of its row. */
bool dur__pg_event_short(const dur_turn_commit *turn, const dur_event_row *event, dur__pg_event_text *out);
/* Beside the event that has scheduled it: from a comma on; else its whole text.  end: what the names in the instance's
   row say; NULL: they are not known. */
dur_text dur__pg_step_short(const dur_turn_commit *turn, const dur_message *item, const char *end);
dur_text dur__pg_step_in_row(const dur_turn_commit *turn, const dur_message *item,
                             const char *end); /* likewise there */

/* pg_turn_write.c: each sends nothing where there is nothing to write */
void dur__pg_send_executions(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count);
void dur__pg_send_kv(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count, bool merge);
bool dur__pg_send_sessions(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count); /* any? */
/* Behind leases of the same owner that were compared in the same batch.  The answer's place; -1: there is none. */
/* lane: its usual turns, whose steps stand in their rows; NULL: all of it. */
int dur__pg_send_work(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *lane, dur_turn_commit **turns,
                      size_t count);
void dur__pg_send_release(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count);

/* pg_step.c: usual turns and the step in their instance's row */
int64_t dur__pg_step_id(const dur_message *item);
bool dur__pg_claim_is_step(const dur__pg_lane *lane, const dur_turn_commit *turn, const dur_worker_claim *claim);
int64_t dur__pg_step_gone(const dur__pg_lane *lane, const dur_turn_commit *turn);  /* the one that it ends; 0: none */
bool dur__pg_step_stays(const dur__pg_lane *lane, const dur_turn_commit *turn);    /* there is one, and it does not */
bool dur__pg_step_made(const dur__pg_lane *lane, const dur_turn_commit *turn);     /* its work is the new one */
dur_text dur__pg_step_text(const dur__pg_lane *lane, const dur_turn_commit *turn); /* of the new one, in its row */
/* It is committed; ahead: without a change of the row. */
void dur__pg_step_note(dur__pg_lane *lane, const dur_turn_commit *turn, bool usual, bool ahead);
/* The lane has written the instance's row under the lease that it has, and nobody else has since, if the lane was not
   disturbed; and the turn stands behind the last that it knows of; and the position that the row has then. */
bool dur__pg_row_known(const dur__pg_lane *lane, const dur_turn_commit *turn);
bool dur__pg_execution_in_row(const dur__pg_lane *lane, const dur_turn_commit *turn); /* of a row that is known */
/* History may not be where the lane knows it: it is to be looked at. */
bool dur__pg_row_in_doubt(const dur__pg_lane *lane, const dur_turn_commit *turn);
uint64_t dur__pg_row_last(const dur__pg_lane *lane, const dur_turn_commit *turn);
/* What is not done in the usual way knows of rows of dur_worker only.  Their rows are locked. */
void dur__pg_steps_move_of(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *lane, dur_turn_commit **turns,
                           size_t count, const dur_work_ack *acks, size_t ack_count);
/* Three arrays: id, token, json; in a row that is there, one before them: the id of the step that is gone.  Beside
   events an id of 0 says that one is gone, and none is there; ends and births say nothing there. */
typedef enum dur__pg_step_place {
    DUR__PG_STEP_IN_ROW,
    DUR__PG_STEP_IN_NEW_ROW,
    DUR__PG_STEP_BESIDE_EVENTS
} dur__pg_step_place;
void dur__pg_step_columns(dur__pg_args *args, const dur__pg_lane *lane, dur_turn_commit **turns, size_t count,
                          dur__pg_step_place place);

/* pg_timer.c: usual turns and the timers that the lane keeps */
bool dur__pg_sends_only_timers(const dur_turn_commit *turn); /* if anything, to itself */
bool dur__pg_takes_only_timers(const dur__pg_lane *lane, const dur_turn_commit *turn);
bool dur__pg_leaves_no_timer(const dur__pg_lane *lane, const dur_turn_commit *turn);
int dur__pg_send_timers(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count); /* -1: none */
/* It is committed; ids: of its timers, from *row on, NULL: it did not go the usual way. */
void dur__pg_timers_note(dur__pg_lane *lane, const dur_turn_commit *turn, const PGresult *ids, int *row);

/* pg_turn_one.c: one usual turn that is a step; where the answer about its work is */
bool dur__pg_is_one_step(const dur_turn_commit *turn);
int dur__pg_send_one_step(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *lane, const dur_turn_commit *turn);

#endif
