/*
 * pg_works.h: in which order rows of the worker queue are locked, and which of them a fetch may take.
 */
#ifndef DURITE_PROVIDER_POSTGRES_PG_WORKS_H
#define DURITE_PROVIDER_POSTGRES_PG_WORKS_H

#include "provider/postgres/pg_internal.h"
#include "provider/tags.h"

/*
 * Who writes several rows of dur_worker that are not his own alone (others may delete their instances, cancel them, or
 * take over their owner) locks them in order of the key, as l(instance_id, id), and waits for none of them later.
 */
#define DUR__PG_LOCK_WORKS_AS(locking, from, which)                                                                    \
    "(SELECT w.instance_id, w.id FROM @worker w" from " WHERE " which                                                  \
    " ORDER BY w.instance_id, w.id FOR UPDATE OF w" locking ") l"
#define DUR__PG_LOCK_WORKS(which) DUR__PG_LOCK_WORKS_AS("", "", which)
#define DUR__PG_IS_L "w.instance_id = l.instance_id AND w.id = l.id"
#define DUR__PG_DELETE_WORKS                                                                                           \
    "DELETE FROM @worker w USING " DUR__PG_LOCK_WORKS("w.instance_id = ANY ($2::text[])") " WHERE " DUR__PG_IS_L

/* Whoever locked them has not begun any: they are free, and not counted. */
/* clang-format off */
#define DUR__PG_GIVE_WORKS_BACK(which)                                                                                 \
    "UPDATE @worker w SET token = NULL, owner = NULL, until_ms = 0, attempts = greatest(w.attempts - 1, 0) FROM "      \
    DUR__PG_LOCK_WORKS(which) " WHERE " DUR__PG_IS_L
/* clang-format on */

/*
 * Rows that somebody has locked, c(instance, id, token, at): with a worker row w and the time n(now) the condition that
 * it is one of them, and its lock holds.  Its instance and id may be left out (NULL, 0): a token is of one row.
 */
#define DUR__PG_CLAIM_TYPES "tit"
#define DUR__PG_CLAIMS "unnest($2::text[], $3::bigint[], $4::text[]) WITH ORDINALITY AS c(instance, id, token, at)"
#define DUR__PG_IS_CLAIMED                                                                                             \
    "w.token = c.token AND (c.instance IS NULL OR w.instance_id = c.instance) AND (c.id = 0 OR w.id = c.id) AND"       \
    " (w.owner IS NOT NULL OR w.until_ms > n.now)"
/* Which of them are there, in order. */
#define DUR__PG_ARE_CLAIMED                                                                                            \
    "SELECT EXISTS (SELECT 1 FROM @worker w, n WHERE " DUR__PG_IS_CLAIMED ") FROM " DUR__PG_CLAIMS " ORDER BY c.at"
void dur__pg_put_claim(dur__pg_table *rows, const char *instance, const dur_activity_ref *ref, const char *token);
void dur__pg_put_taken(dur__pg_table *rows, const dur_turn_commit *turn); /* what it takes */

/* The sessions of work that somebody holds, in order: waits, and is therefore the first that a transaction locks. */
#define DUR__PG_LOCK_SESSIONS(which)                                                                                   \
    "SELECT s.session_id FROM @sessions s WHERE s.session_id IN (SELECT w.session_id FROM @worker w WHERE " which      \
    " AND w.session_id IS NOT NULL) ORDER BY s.session_id FOR UPDATE"
/* They were locked so; one that was made since may be somebody else's just now, who says himself that it is used. */
#define DUR__PG_TOUCH_SESSIONS(now, from)                                                                              \
    "UPDATE @sessions SET active_ms = " now " WHERE session_id IN (SELECT t.session_id FROM @sessions t WHERE"         \
    " t.session_id IN (SELECT session_id FROM " from " WHERE session_id IS NOT NULL) FOR UPDATE SKIP LOCKED)"
/*
 * Of want (session, node, owner, lock_ms, until_ms) those that are free, or that node's, and that nobody has locked:
 * claimed (session_id).  n (now) is there.  Who makes one has a lock of its name, so that nobody waits for the maker.
 * In order of their ids: SKIP LOCKED waits all the same for a row that is changed again in the moment in which the
 * change before it ends (PostgreSQL locks the later versions of such a row without asking).
 */
#define DUR__PG_CLAIM_SESSIONS(seed)                                                                                   \
    "there AS MATERIALIZED (SELECT s.session_id FROM @sessions s WHERE s.session_id IN (SELECT session FROM want)"     \
    " ORDER BY s.session_id FOR UPDATE SKIP LOCKED),"                                                                  \
    " changed AS (UPDATE @sessions s SET holder = w.node, owner = w.owner, lock_ms = w.lock_ms,"                       \
    " until_ms = w.until_ms, active_ms = n.now FROM want w, there t, n WHERE s.session_id = t.session_id AND"          \
    " w.session = t.session_id AND (s.holder = w.node OR (s.owner IS NULL AND s.until_ms <= n.now)) RETURNING"         \
    " s.session_id), missing AS MATERIALIZED (SELECT w.* FROM want w WHERE NOT EXISTS (SELECT 1 FROM @sessions s"      \
    " WHERE s.session_id = w.session) AND pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended(w.session," \
    " " seed "))), made AS (INSERT INTO @sessions (session_id, holder, owner, lock_ms, until_ms, active_ms) SELECT"    \
    " w.session, w.node, w.owner, w.lock_ms, w.until_ms, n.now FROM missing w, n ON CONFLICT (session_id) DO NOTHING"  \
    " RETURNING session_id), claimed AS (SELECT session_id FROM changed UNION ALL SELECT session_id FROM made)"

/* The row w passes the filter of tags: dur__tag_admitted. */
#define DUR__PG_TAG_ADMITTED(mode, tags)                                                                               \
    "CASE " mode " WHEN 0 THEN w.tag IS NULL WHEN 1 THEN w.tag = ANY (" tags ") WHEN 2 THEN w.tag IS NULL OR w.tag ="  \
    " ANY (" tags ") WHEN 3 THEN true ELSE false END"

#endif
