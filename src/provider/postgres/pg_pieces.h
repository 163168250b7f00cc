/*
 * pg_pieces.h: pieces of SQL that several statements have: what is free, finished, empty; how leases end; the rows of
 * history.
 */
#ifndef DURITE_PROVIDER_PG_PIECES_H
#define DURITE_PROVIDER_PG_PIECES_H

#define DUR__PG_SERVER_START "(SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000)::bigint)"
/* Another one: a server that has taken the place of the one before, and may not have the last of what that had told. */
#define DUR__PG_TIMELINE "(SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint)"
#define DUR__PG_CANCEL "10"
#define DUR__PG_NEVER_BEGINS "9223372036854775807" /* next_execution of what has ended: nothing is needed */
#define DUR__PG_CONTINUE_AS_NEW "1"
/* Kinds of messages that start: START_ORCHESTRATION, CONTINUE_AS_NEW. */
/* The owner of session s has no handler for worker row w. */
#define DUR__PG_HOLDER_HAS_NOT                                                                                         \
    "s.owner IS NOT NULL AND w.handler <> '' AND NOT EXISTS (SELECT 1 FROM @served v WHERE v.activity AND v.handler"   \
    " IN (w.handler, '') AND v.owner = s.owner)"
#define DUR__PG_STARTS "(0, " DUR__PG_CONTINUE_AS_NEW ")"
/* The parent that a child's first turn needs: of that birth (0: of any), or brought here with history and without. */
#define DUR__PG_IS_MEANT(row, birth)                                                                                   \
    "(" row ".known AND (" birth " = 0 OR " row ".birth = " birth " OR " row ".birth IS NULL AND " row ".has_history)" \
    ")"
/*
 * Lock the row of one instance, if it is there.  It may come between this statement and the next, which would see it
 * without the lock; so whether it was locked is handed on in a setting of the transaction.
 */
#define DUR__PG_LOCK_ONE(strength)                                                                                     \
    "SELECT set_config('durite.locked', count(*)::text, true) FROM (SELECT 1 FROM @instances WHERE instance_id ="      \
    " $2::text FOR " strength ") t"
#define DUR__PG_IS_LOCKED "current_setting('durite.locked', true) = '1'"
/* The handler that runs the instance of a row. */
#define DUR__PG_NEEDS                                                                                                  \
    "CASE WHEN status IN (2, 3) THEN '' WHEN next_execution > current_execution THEN coalesce(next, '') WHEN name IS"  \
    " NULL OR version IS NULL THEN '' ELSE name || chr(64) || CASE version WHEN '0.0.0' THEN '' ELSE version END END "
/* Nobody holds it under an owner, and it has a reason to be fetched; with the second: now, as n(now) says. */
#define DUR__PG_FREE "owner IS NULL AND suspended IS NULL AND known AND ready_at IS NOT NULL"
#define DUR__PG_VISIBLE "ready_at <= (SELECT now FROM n) AND (token IS NULL OR expires_at <= (SELECT now FROM n))"
/* Of an instance's row i: how its current execution stands; whether it has ended and nothing begins it anew. */
#define DUR__PG_STATUS "coalesce(i.status, 1)"
#define DUR__PG_STARTS_WAIT                                                                                            \
    "EXISTS (SELECT 1 FROM @queue s WHERE s.instance_id = i.instance_id AND s.kind IN " DUR__PG_STARTS ")"
#define DUR__PG_FINISHED "(" DUR__PG_STATUS " IN (2, 3) AND NOT " DUR__PG_STARTS_WAIT ")"
/* Tell the lanes that hold the instances of $2 that they do so no more. */
#define DUR__PG_TELL_LOST                                                                                              \
    "INSERT INTO @lost (holder, instance_id, at_ms) SELECT holder, instance_id, #now FROM @instances WHERE"            \
    " instance_id = ANY ($2::text[]) AND token IS NOT NULL AND holder IS NOT NULL"
/* An instance's row i that stands for nothing any more. */
#define DUR__PG_EMPTY                                                                                                  \
    "NOT i.known AND NOT EXISTS (SELECT 1 FROM @queue q WHERE q.instance_id = i.instance_id) AND NOT EXISTS (SELECT 1" \
    " FROM @worker w WHERE w.instance_id = i.instance_id)"
/*
 * Parts of a statement that ends the leases of i0 (instance_id, acquisitions, less, died, until), which were locked by
 * a statement before it.  Its holder no longer has its messages.  Attempts were counted at the acquisition; `less`
 * takes one back.  A commit since then (acquisitions 0) has cleared them, and need not have touched the messages that
 * it left. What was handed to a lease that was held is not counted: its attempts were made negative.
 */
#define DUR__PG_TAKE_BACK                                                                                              \
    "g AS (UPDATE @queue q SET delivered = 0, attempts = CASE WHEN q.attempts < 0 THEN -q.attempts WHEN"               \
    " i0.acquisitions = 0 THEN 0 ELSE greatest(q.attempts - i0.less, 0) END FROM i0 WHERE q.instance_id ="             \
    " i0.instance_id AND q.delivered <> 0)"
/* And what waits for them, from when on. */
#define DUR__PG_WAITING                                                                                                \
    "m AS (SELECT i0.*, (SELECT min(q.order_ms) FROM @queue q WHERE q.instance_id = i0.instance_id) AS at,"            \
    " (SELECT min(q.due_ms) FROM @queue q WHERE q.instance_id = i0.instance_id) AS due FROM i0)"
/*
 * A number of an event that a damaged row has may be the largest there is: a sum that went out of range would fail the
 * statements of all other instances, too.
 */
#define DUR__PG_PLUS(id, n) "(least(" id ", 9223372036854775807 - (" n ")) + (" n "))"
/*
 * The handlers of a parameter, as ha(h); where that is NULL, all that rows of the table have for which `free` holds,
 * one probe of an index each.  Begins a WITH RECURSIVE.
 */
#define DUR__PG_HANDLERS(ha, table, free, parameter)                                                                   \
    ha "_all(h) AS ((SELECT handler FROM " table " WHERE " free " AND " parameter " IS NULL ORDER BY handler LIMIT 1)" \
       " UNION ALL SELECT (SELECT handler FROM " table " WHERE " free " AND handler > " ha "_all.h ORDER BY handler"   \
       " LIMIT 1) FROM " ha "_all WHERE h IS NOT NULL), " ha "(h) AS MATERIALIZED (SELECT h FROM " ha "_all WHERE h"   \
       " IS NOT NULL UNION ALL SELECT unnest(" parameter "))"
/* The executions that there are: past ones, and those in their instances' rows. */
#define DUR__PG_EXECUTIONS                                                                                             \
    "(SELECT instance_id, execution_id, status, output, started_at, completed_at FROM @executions UNION ALL SELECT"    \
    " instance_id, current_execution, status, output, started_at, completed_at FROM @instances WHERE status IS NOT"    \
    " NULL)"
/* How many activities were open behind the last turn of instance i; nothing is, once it has ended.  When its last turn
   was.  For statements behind the one that locks i: turns write history without writing i. */
#define DUR__PG_LAST_OF(i, column)                                                                                     \
    "(SELECT h." column " FROM @history h WHERE h.instance_id = " i ".instance_id AND h.execution_id = " i             \
    ".current_execution ORDER BY h.first_id DESC LIMIT 1)"
#define DUR__PG_IS_OPEN(i)                                                                                             \
    "(coalesce(" i ".status, 1) NOT IN (2, 3) AND coalesce(" DUR__PG_LAST_OF(i, "open") ", 0) > 0)"
/*
 * All of it, and the rows: they are free from `until` on (0: at once).  `died`: the owner has.  What may have been
 * local to it is a reason to look, whatever waits; 2: it was running, or might have been, when the owner died.
 */
#define DUR__PG_LOOK_OF(i, died)                                                                                       \
    "CASE WHEN NOT " DUR__PG_IS_OPEN(i) " THEN " i ".look WHEN " died " AND " i ".acquisitions = 0 THEN 2 ELSE"        \
                                        " greatest(" i ".look, 1) END"
#define DUR__PG_ENDS                                                                                                   \
    DUR__PG_TAKE_BACK ", " DUR__PG_WAITING ", f AS MATERIALIZED (SELECT m.*, CASE WHEN x.token IS NULL THEN x.look"    \
                      " ELSE " DUR__PG_LOOK_OF(                                                                        \
                          "x", "m.died") " END AS look, #now AS now FROM m JOIN @instances x ON x.instance_id ="       \
                                         " m.instance_id)"
#define DUR__PG_END_ROWS(columns)                                                                                      \
    "UPDATE @instances i SET token = NULL, owner = NULL, holder = NULL, look = f.look, expires_at = NULL,"             \
    " acquisitions = greatest(i.acquisitions - f.less, 0), not_before = f.until," columns                              \
    " ready_at = CASE WHEN f.look > 0 THEN greatest(least(f.at, f.now), f.until) ELSE f.at + greatest(f.until - f.at," \
    " 0) END, ready_due = CASE WHEN f.look > 0 THEN f.until ELSE greatest(coalesce(f.due, 0), f.until) END FROM f"     \
    " WHERE i.instance_id = f.instance_id"
#define DUR__PG_END_LEASES DUR__PG_ENDS " " DUR__PG_END_ROWS("")
/* A row h of history, as dur__pg_read_blocks reads it: in order of first_id. */
#define DUR__PG_BLOCK "h.execution_id, h.first_id, h.count, h.block"
/* The last one of the rows h that the condition names; NULL: there is none. */
/* clang-format off */
#define DUR__PG_LAST(condition)                                                                                        \
    "(SELECT " DUR__PG_PLUS("h.first_id", "h.count - 1") " FROM @history h WHERE " condition " ORDER BY h.first_id"    \
    " DESC LIMIT 1)"
/* clang-format on */
/* Of an event e(instance, execution, id) that comes alone: where a row has it already, the id of that row, so that it
   is refused as a duplicate. */
#define DUR__PG_NEW_EVENT_ID                                                                                           \
    "coalesce((SELECT CASE WHEN p.first_id > e.id - p.count THEN p.first_id END FROM (SELECT h.first_id, h.count FROM" \
    " @history h WHERE h.instance_id = e.instance AND h.execution_id = e.execution AND h.first_id < e.id ORDER BY"     \
    " h.first_id DESC LIMIT 1) p), e.id)"
#define DUR__PG_KIND_TIMER "5"
#define DUR__PG_KIND_QUEUE "7"

#endif
