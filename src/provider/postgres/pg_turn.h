/*
 * pg_turn.h: what the files share that turn a turn into statements.
 *
 * A commit is one batch, in this order (pg_commit.c):
 *   1. rows of instances that are made or written, and those of the targets of messages: locked in order of ids, FOR NO
 *      KEY UPDATE (FOR UPDATE where leases of others end);
 *   2. rows of instances that only go on: FOR KEY SHARE, without waiting.  In both tokens are compared;
 *   3. the owner, where something is taken in its name;
 *   4. everything else, which waits for no row of an instance any more.
 * Whatever is compared and does not hold divides by zero, which undoes the batch and says nothing of what was in it.
 */
#ifndef DURITE_PROVIDER_PG_TURN_H
#define DURITE_PROVIDER_PG_TURN_H

#include "provider/postgres/pg_internal.h"

/* One turn of a commit, and what the lane knows of its instance. */
typedef struct dur__pg_part {
    dur_turn_commit *turn;
    dur__turn_facts facts;
    const dur__pg_lease *lease; /* of the lane, under the turn's token; NULL: not known here */
    bool updates;               /* the instance's row is written; born ones are made instead */
    bool locks;                 /* … or something that its lock protects */
    bool in_place;              /* its history stands where the lane knows it to end: the key compares the position */
    bool keeps_timers;          /* all that it sends are timers, which the lane keeps */
    bool bare_end;              /* an end behind which there is nothing but what others have sent */
} dur__pg_part;

typedef struct dur__pg_parts {
    dur__pg_lane *lane; /* NULL: outside of lanes */
    dur__pg_part *all;  /* in the order of the turns */
    size_t count;
} dur__pg_parts;

typedef bool dur__pg_part_test(const dur__pg_part *part);
/* A statement that takes nothing but the ids of the instances that pass the test; none: it is not sent. */
void dur__pg_send_ids(dur__pg_batch *batch, const char *sql, const dur__pg_parts *parts, dur__pg_part_test *test);

/* pg_turn.c: instances' rows */
void dur__pg_parts_begin(dur__pg_parts *parts, dur__pg_lane *lane, dur_turn_commit **turns, size_t count);
void dur__pg_parts_end(dur__pg_parts *parts);
bool dur__pg_item_is_local(const dur__pg_lane *lane, const dur_turn_commit *turn, const dur_turn_work *item);
/* Step 1 in full; the box has the targets of messages. */
void dur__pg_send_row_locks(dur__pg_batch *batch, const dur__pg_parts *parts, dur__pg_outbox *box);
void dur__pg_send_rows(dur__pg_batch *batch, const dur__pg_parts *parts);
void dur__pg_send_fence(dur__pg_batch *batch, const dur__pg_parts *parts); /* step 2 */
/* Behind the locks: positions that no key compares; the execution before the one that begins goes to its table. */
void dur__pg_send_positions(dur__pg_batch *batch, const dur__pg_parts *parts);
void dur__pg_send_past_executions(dur__pg_batch *batch, const dur__pg_parts *parts);
void dur__pg_send_past_execution(dur__pg_batch *batch, const char *instance, uint64_t execution_id); /* no turn's */

/* pg_turn_take.c: what it takes, and who is meant */
void dur__pg_send_meant(dur__pg_batch *batch, const dur__pg_parts *parts);
/* Refused unless all of it is there; completions of acks go by the outbox. */
void dur__pg_send_work_taken(dur__pg_batch *batch, const dur__pg_parts *parts, const dur_work_ack *acks,
                             size_t ack_count);
void dur__pg_send_taken(dur__pg_batch *batch, const dur__pg_parts *parts);
void dur__pg_send_cancelled(dur__pg_batch *batch, const dur__pg_parts *parts);
void dur__pg_send_timers_dropped(dur__pg_batch *batch, const dur__pg_parts *parts);

/* pg_turn_write.c: each sends nothing where there is nothing to write */
void dur__pg_send_kv(dur__pg_batch *batch, const dur__pg_parts *parts);
void dur__pg_send_sessions(dur__pg_batch *batch, const dur__pg_parts *parts);
void dur__pg_send_recovered(dur__pg_batch *batch, const dur__pg_parts *parts); /* before the rows */
int dur__pg_send_work(dur__pg_batch *batch, const dur__pg_parts *parts);       /* the answer's place; -1: none */
void dur__pg_send_release(dur__pg_batch *batch, const dur__pg_parts *parts);

/* pg_history.c */
void dur__pg_send_history(dur__pg_batch *batch, const dur__pg_parts *parts);
/* Of nobody's turn. */
void dur__pg_send_events(dur__pg_batch *batch, const char *instance, uint64_t execution_id, const dur_event_row *events,
                         size_t count);
/* All of them stand behind what was compared, in order, so that no row can have one of them already. */
bool dur__pg_events_are_new(const dur_turn_commit *turn);

/* pg_timer.c: the timers that the lane keeps */
bool dur__pg_sends_only_timers(const dur_turn_commit *turn); /* if anything, to itself */
bool dur__pg_takes_only_timers(const dur__pg_lane *lane, const dur_turn_commit *turn);
bool dur__pg_leaves_no_timer(const dur__pg_lane *lane, const dur__pg_lease *of, const dur_turn_commit *turn);
int dur__pg_send_timers(dur__pg_batch *batch, const dur__pg_parts *parts); /* -1: none */
/* It is committed, and keeps its lease; ids: of its timers, from *row on, NULL: the lane keeps none of them. */
void dur__pg_timers_note(dur__pg_lane *lane, dur__pg_lease *of, const dur_turn_commit *turn, const PGresult *ids,
                         int *row);

#endif
