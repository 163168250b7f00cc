/*
 * pg_turn.h: what the two files share that turn a turn into statements.
 */
#ifndef DURITE_PROVIDER_PG_TURN_H
#define DURITE_PROVIDER_PG_TURN_H

#include "provider/postgres/pg_internal.h"

/* The fence of the owner (pg_fetch.c), taken before any row is touched: the first statement of a batch has it. */
#define DUR__PG_FENCE(key) "(SELECT pg_advisory_xact_lock_shared(" key ")::text) IS NOT NULL"

/* pg_turn.c: what a turn means */
bool dur__pg_turn_writes(const dur_turn_commit *turn); /* an execution: events, status, metadata */
bool dur__pg_turn_ends(const dur_turn_commit *turn);   /* the execution */

/* A statement that takes nothing but the ids of the instances that pass the test; none: it is not sent. */
typedef bool dur__pg_turn_test(const dur_turn_commit *turn);
void dur__pg_send_ids(dur__pg *store, dur__pg_batch *batch, const char *sql, dur_turn_commit **turns, size_t count,
                      dur__pg_turn_test *test);

/* pg_history.c: behind the statement that compares the position */
void dur__pg_send_history(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count);
/* All of them stand behind what is there, in order, so that no row can have one of them already.  Usual turns are such.
 */
bool dur__pg_events_are_new(const dur_turn_commit *turn);
/* The text of a row that begins with this event; how many there are in it. */
size_t dur__pg_row_of_events(const dur__pg *store, const dur_turn_commit *turn, size_t from, dur__buf *json);

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
int64_t dur__pg_step_gone(const dur__pg_lane *lane, const dur_turn_commit *turn);    /* the one that it ends; 0: none */
bool dur__pg_step_stays(const dur__pg_lane *lane, const dur_turn_commit *turn);      /* there is one, and it does not */
bool dur__pg_step_made(const dur__pg_lane *lane, const dur_turn_commit *turn);       /* its work is the new one */
void dur__pg_step_note(dur__pg_lane *lane, const dur_turn_commit *turn, bool usual); /* it is committed */
/* What is not done in the usual way knows of rows of dur_worker only. */
void dur__pg_steps_move_of(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count,
                           const dur_work_ack *acks, size_t ack_count);
/* Four arrays: gone, id, token, json. */
void dur__pg_step_columns(dur__pg_args *args, const dur__pg_lane *lane, dur_turn_commit **turns, size_t count);

/* pg_turn_one.c: one usual turn that is a step; where the answer about its work is */
bool dur__pg_is_one_step(const dur_turn_commit *turn);
int dur__pg_send_one_step(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *lane, const dur_turn_commit *turn);

#endif
