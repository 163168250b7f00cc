/*
 * sqlite_sql.h: every prepared statement of the store, in one list.
 *
 * Each is prepared once per connection, at first use.  docs/format/schema.md explains the tables.
 */
#ifndef DURITE_SQLITE_SQL_H
#define DURITE_SQLITE_SQL_H

/* Of instance i, with what other tables know: the time of its last event, whether it has history though its row has no
   name, and the start that waits (of those that are asked for it). */
#define DUR__SQ_FIRST_START(of, what)                                                                                  \
    ", CASE WHEN " of " THEN (SELECT " what " FROM dur_queue q WHERE q.key=i.key AND qname IS NULL AND "               \
    "kind IN (0, 1) ORDER BY +q.id LIMIT 1) END"
#define DUR__SQ_LIST_COLUMNS(starts_of)                                                                                \
    "id, name, version, execution, status, parent, created, updated, suspended, custom_status, "                       \
    "custom_status_version, owner, birth, output, (SELECT at FROM dur_history e WHERE e.key=i.key AND "                \
    "e.execution=i.execution ORDER BY first_id DESC LIMIT 1), CASE WHEN name IS NULL THEN EXISTS("                     \
    "SELECT 1 FROM dur_history e WHERE e.key=i.key) ELSE 0 END" DUR__SQ_FIRST_START(starts_of, "at")                   \
        DUR__SQ_FIRST_START(starts_of, "json") DUR__SQ_FIRST_START(starts_of, "q.id")

/* By id, from ?1 on; the index that leads there is chosen by what else is said.  Of the status of what is known only by
   a start, or only by other messages, nothing has been said: 0. */
#define DUR__SQ_LIST_FROM(columns, which)                                                                              \
    "SELECT " columns " FROM dur_instance i WHERE " which " AND id > ?1 AND "                                          \
    "(?5 IS NULL OR substr(id, 1, length(?5)) = ?5) AND CASE WHEN name IS NOT NULL THEN "                              \
    "(?4 IS NULL OR name = ?4) AND (?6 = 0 OR parent IS NULL) AND (?7 = 0 OR created > ?7) AND "                       \
    "(?8 = 0 OR created < ?8) AND (?9 IS NULL OR parent = ?9) ELSE " DUR__SQ_START_MATCHES " END"
#define DUR__SQ_OF_STATUS "(?2 = 0 OR status = ?2 OR (?2 = 1 AND status IN (0, 4)))"
#define DUR__SQ_LIST_WHERE(which)                                                                                      \
    DUR__SQ_LIST_FROM(DUR__SQ_LIST_COLUMNS("name IS NULL"), which) " ORDER BY id LIMIT ?10"

/* Three walks by the index, side by side: IN would read them all and sort. */
#define DUR__SQ_LIST_KEYS(is) DUR__SQ_LIST_FROM("key AS k, id AS n", "status = " is)
#define DUR__SQ_RUNNING_KEYS                                                                                           \
    DUR__SQ_LIST_KEYS("1") " UNION ALL " DUR__SQ_LIST_KEYS("0") " UNION ALL " DUR__SQ_LIST_KEYS("4")

/* It is no more than a start that waits, and that is one of those: the first part of its handler is the name. */
#define DUR__SQ_START_MATCHES                                                                                          \
    "NOT EXISTS (SELECT 1 FROM dur_history e WHERE e.key=i.key) AND EXISTS (SELECT 1 FROM (SELECT handler, parent, "   \
    "at "                                                                                                              \
    "FROM dur_queue q WHERE q.key=i.key AND qname IS NULL AND kind IN (0, 1) ORDER BY +q.id LIMIT 1) s WHERE "         \
    "(?4 IS NULL OR (substr(s.handler, 1, length(?4) + 1) = ?4 || '@' AND "                                            \
    "instr(substr(s.handler, length(?4) + 2), '@') = 0)) AND (?6 = 0 OR s.parent IS NULL) AND (?7 = 0 OR s.at > ?7) "  \
    "AND (?8 = 0 OR s.at < ?8) AND (?9 IS NULL OR s.parent = ?9))"

/*
 * Crashes in which something ran alone among suspects, and not alone in its process: dur_crash has all that was counted
 * in them, worker rows, (0, 0, 0) instances and (0, 0, -1) what had no row under the lease of one, until it has rows.
 * What has not shown since that it can end: */
#define DUR__SQ_UNPROVEN(x)                                                                                            \
    "CASE WHEN " x ".seq > 0 THEN EXISTS (SELECT 1 FROM dur_worker uw WHERE uw.key=" x ".key AND uw.execution=" x "."  \
    "execution AND uw.activity=" x ".activity AND uw.seq=" x ".seq AND uw.crashes > 0) ELSE EXISTS (SELECT 1 FROM "    \
    "dur_instance ui WHERE ui.key=" x ".key AND CASE WHEN " x ".seq < 0 THEN ui.look = 2 ELSE ui.acquisitions > 0 "    \
    "AND ui.crashes > 0 END) END"
/* How many of the crashes in which this one ran alone may be the doing of another. */
#define DUR__SQ_DOUBTS(key, execution, activity, seq)                                                                  \
    "(SELECT count(*) FROM dur_crash a WHERE a.alone AND a.key=" key " AND a.execution=" execution                     \
    " AND a.activity=" activity " AND a.seq=" seq                                                                      \
    " AND EXISTS (SELECT 1 FROM dur_crash o WHERE o.crash=a.crash AND (o.key, o.execution, "                           \
    "o.activity, o.seq) <> (a.key, a.execution, a.activity, a.seq) AND (o.for_good OR " DUR__SQ_UNPROVEN("o") ")))"

/* Crashes are those of the acquisitions that count: with 0 of them they are old. */
#define DUR__SQ_CANDIDATE_COLUMNS                                                                                      \
    "key, id, name, version, execution, status, acquisitions, ready_seq, crashes*(acquisitions>0), "                   \
    "CASE WHEN acquisitions > 0 AND crashes_alone > 0 THEN crashes_alone - "                                           \
    "" DUR__SQ_DOUBTS("dur_instance.key", "0", "0", "0") " ELSE 0 END, handler, crashes_alone, look"

#define DUR__SQ_IS_READY "ready_at = 0 AND suspended IS NULL"

/* A start, or a continue-as-new, waits for instance i: its next execution is still to come. */
#define DUR__SQ_START_WAITS                                                                                            \
    "EXISTS (SELECT 1 FROM dur_queue q WHERE q.key=i.key AND q.qname IS NULL AND q.kind IN (0, 1))"
#define DUR__SQ_HAS_ENDED "CASE WHEN i.status IN (2, 3) THEN NOT " DUR__SQ_START_WAITS " ELSE 0 END"
/* The tree of an instance, which is in it. */
#define DUR__SQ_WITH_TREE                                                                                              \
    "WITH RECURSIVE tree(key, id) AS (SELECT key, id FROM dur_instance WHERE key=?1 UNION SELECT i.key, i.id FROM "    \
    "tree t JOIN dur_instance i ON i.parent IS NOT NULL AND i.parent=t.id) "

/* Nothing runs any more: any node may clear up. */
#define DUR__SQ_HANDLER_NOW "handler=CASE WHEN status IN (2, 3) THEN '' ELSE handler END"

#define DUR__SQ_MESSAGE_COLUMNS "id, ord, attempts, qname, json, kind"

/* What a turn changes.  ?8: an execution begins with it; ?12: it is one of the current execution; ?13: its handler;
   ?15: it takes over, and has not looked for lost work. */
#define DUR__SQ_TURN_COLUMNS                                                                                           \
    "name=coalesce(?2, name), version=coalesce(?3, version), "                                                         \
    "parent=CASE WHEN name IS NULL THEN ?4 ELSE parent END, "                                                          \
    "birth=CASE WHEN name IS NULL THEN ?14 ELSE birth END, execution=?5, "                                             \
    "status=CASE WHEN ?8 THEN coalesce(?6, 1) ELSE coalesce(?6, status) END, "                                         \
    "pinned=CASE WHEN ?8 THEN ?7 ELSE coalesce(?7, pinned) END, "                                                      \
    "created=CASE WHEN name IS NULL AND ?2 IS NOT NULL THEN ?9 ELSE created END, updated=?9, acquisitions=0, "         \
    "started=CASE WHEN ?8 THEN ?9 WHEN ?12 THEN coalesce(started, ?9) ELSE started END, "                              \
    "completed=CASE WHEN ?8 OR ?6 IS NOT NULL THEN ?11 ELSE completed END, "                                           \
    "output=CASE WHEN ?8 OR ?6 IS NOT NULL THEN ?10 ELSE output END, "                                                 \
    "handler=coalesce(?13, handler), look=CASE WHEN ?15 AND coalesce(?6, status) NOT IN (2, 3) THEN look ELSE 0 END, " \
    "suspended=CASE WHEN ?6 IN (2, 3) THEN NULL ELSE suspended END"

/* The executions of one instance: the current one is in its row, once it has begun. */
#define DUR__SQ_EXECUTIONS                                                                                             \
    "(SELECT key, execution, status, output, started, completed FROM dur_past_execution WHERE key=?1 UNION ALL "       \
    "SELECT key, execution, max(status, 1), output, started, completed FROM dur_instance WHERE key=?1 "                \
    "AND started IS NOT NULL)"

/* The owner of a session has no handler for worker row w. */
#define DUR__SQ_HOLDER_HAS_NOT(session)                                                                                \
    "w.handler <> '' AND NOT EXISTS (SELECT 1 FROM dur_served v WHERE v.activity = 1 AND v.handler IN (w.handler, "    \
    "'') AND v.owner = " session ".owner)"

/* SQL(name, text) */
#define DUR__SQ_STATEMENTS(SQL)                                                                                        \
    SQL(BEGIN, "BEGIN IMMEDIATE")                                                                                      \
    SQL(COMMIT, "COMMIT")                                                                                              \
    SQL(ROLLBACK, "ROLLBACK")                                                                                          \
    SQL(SAVEPOINT, "SAVEPOINT durite")                                                                                 \
    SQL(SAVEPOINT_BACK, "ROLLBACK TO durite")                                                                          \
    SQL(SAVEPOINT_END, "RELEASE durite")                                                                               \
    SQL(READ_BEGIN, "BEGIN")                                                                                           \
    SQL(READ_END, "COMMIT")                                                                                            \
    SQL(DATA_VERSION, "PRAGMA data_version")                                                                           \
    SQL(SCHEMA_VERSION, "PRAGMA schema_version")                                                                       \
    SQL(META_GET, "SELECT value FROM dur_meta WHERE name=?1")                                                          \
    SQL(META_SET, "INSERT OR REPLACE INTO dur_meta(name, value) VALUES(?1, ?2)")                                       \
    SQL(META_SWAP, "UPDATE dur_meta SET value=?2 WHERE name=?1 AND value=?3")                                          \
    SQL(META_COUNT, "INSERT INTO dur_meta(name, value) VALUES(?1, 1) ON CONFLICT(name) DO UPDATE SET value=value+1")   \
    /* instances */                                                                                                    \
    SQL(KEY_OF, "SELECT key FROM dur_instance WHERE id=?1")                                                            \
    SQL(INSTANCE_STATE, /* dur__sq_state.  It exists with a row of its own, history, or a start that waits */          \
        "SELECT key, execution, CASE WHEN name IS NOT NULL THEN 1 WHEN " DUR__SQ_START_WAITS " THEN 1 ELSE "           \
        "EXISTS (SELECT 1 FROM dur_history e WHERE e.key=i.key) END, " DUR__SQ_HAS_ENDED ", "                          \
        "CASE WHEN status IN (0, 1) THEN 1 ELSE " DUR__SQ_START_WAITS " END FROM dur_instance i WHERE id=?1")          \
    SQL(INSTANCE_LEASE, /* in the order of DUR__SQ_LEASE_ID … */                                                     \
        "SELECT id, execution, status, suspended, owner, token, locked_until, acquisitions FROM dur_instance "         \
        "WHERE key=?1")                                                                                                \
    SQL(INSTANCE_READ, "SELECT key, execution, custom_status_version, custom_status FROM dur_instance WHERE id=?1")    \
    SQL(INSTANCE_WHOLE, /* and what it needs to run, whether nobody has that, what its session waits for */            \
        "SELECT " DUR__SQ_LIST_COLUMNS(                                                                                \
            "1") ", CASE WHEN status IN (2, 3) THEN '' ELSE handler END, "                                             \
                 "token IS NULL AND NOT EXISTS (SELECT 1 FROM dur_served s WHERE s.activity = 0 AND "                  \
                 "s.handler IN (i.handler, '')), (SELECT w.handler || ' in session ' || w.session || ' of ' || "       \
                 "s.owner FROM dur_worker w JOIN dur_session s ON s.session=w.session WHERE w.key=i.key AND "          \
                 "w.token IS NULL AND w.session IS NOT NULL AND s.owner IS NOT NULL AND " DUR__SQ_HOLDER_HAS_NOT(      \
                     "s") " LIMIT 1) FROM dur_instance i WHERE id=?1")                                                 \
    SQL(INSTANCE_BIRTH, "SELECT birth, suspended FROM dur_instance WHERE key=?1")                                      \
    SQL(INSTANCE_START,                                                                                                \
        "INSERT INTO dur_instance(id, ready_at, ready_seq, handler) VALUES(?1, ?2, ?3, coalesce(?4, '')) "             \
        "ON CONFLICT(id) DO NOTHING")                                                                                  \
    SQL(INSTANCE_NO_HANDLER, /* a start was taken away, and the one that is first now may need another */              \
        "UPDATE dur_instance SET handler=coalesce((SELECT handler FROM dur_queue WHERE key=?1 AND qname IS NULL "      \
        "AND kind IN (0, 1) ORDER BY +id LIMIT 1), '') WHERE key=?1 AND name IS NULL "                                 \
        "AND NOT EXISTS (SELECT 1 FROM dur_history WHERE key=?1)")                                                     \
    SQL(INSTANCE_NEXT_KEY, "SELECT coalesce(max(key), 0) + 1 FROM dur_instance")                                       \
    SQL(INSTANCE_BORN,                                                                                                 \
        "INSERT INTO dur_instance(key, id, name, version, execution, status, created, updated, started, token, owner," \
        " pinned, completed, output, handler, birth)"                                                                  \
        " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) "                                \
        "ON CONFLICT(id) DO NOTHING")                                                                                  \
    SQL(INSTANCE_READY,                                                                                                \
        "UPDATE dur_instance SET ready_at=CASE WHEN max(?2, not_before) <= ?4 THEN 0 ELSE max(?2, not_before) END, "   \
        "ready_seq=?3, " DUR__SQ_HANDLER_NOW                                                                           \
        " WHERE key=?1 AND token IS NULL AND (ready_at IS NULL OR (ready_at > 0 AND "                                  \
        "ready_at > max(?2, not_before))) RETURNING ready_at")                                                         \
    SQL(INSTANCE_TURN, "UPDATE dur_instance SET " DUR__SQ_TURN_COLUMNS " WHERE key=?1")                                \
    SQL(INSTANCE_TURN_END, /* the same, and the lease goes */                                                          \
        "UPDATE dur_instance SET " DUR__SQ_TURN_COLUMNS ", token=NULL, owner=NULL, locked_until=NULL, "                \
        "ready_at=NULL, ready_seq=NULL, not_before=0 WHERE key=?1")                                                    \
    SQL(INSTANCE_END, /* the same where all the rest is known to be right: two indexes are changed, not seven */       \
        "UPDATE dur_instance SET status=?2, output=?3, completed=?4, updated=?4, token=NULL, owner=NULL, "             \
        "suspended=CASE WHEN ?2 IN (2, 3) THEN NULL ELSE suspended END "                                               \
        "WHERE key=?1")                                                                                                \
    SQL(INSTANCE_STATUS_TEXT,                                                                                          \
        "UPDATE dur_instance SET custom_status=?2, custom_status_version=custom_status_version+1, updated=?3 "         \
        "WHERE key=?1")                                                                                                \
    SQL(INSTANCE_RELEASE,                                                                                              \
        "UPDATE dur_instance SET token=NULL, owner=NULL, locked_until=NULL, ready_at=?2, ready_seq=?3, "               \
        "not_before=?4, acquisitions=max(acquisitions-?5, 0), look=?6, " DUR__SQ_HANDLER_NOW " WHERE key=?1")          \
    SQL(INSTANCE_LOOK, /* is there work that has no row, and may be nobody's? */                                       \
        "SELECT look, acquisitions, status, (SELECT open FROM dur_history e WHERE e.key=i.key AND "                    \
        "e.execution=i.execution ORDER BY first_id DESC LIMIT 1) FROM dur_instance i WHERE key=?1")                    \
    SQL(INSTANCE_PLACE, "SELECT ready_seq FROM dur_instance WHERE key=?1 AND acquisitions > 0 AND ready_seq NOTNULL")  \
    SQL(INSTANCE_BEGIN, /* a continue-as-new (?3) says which handler it needs; so does a start for what did not */     \
        "UPDATE dur_instance SET handler=?2, " /* exist, of which nothing was ever acquired in vain */                 \
        "acquisitions=CASE WHEN ?3 OR token IS NOT NULL THEN acquisitions ELSE 0 END, "                                \
        "not_before=CASE WHEN ?3 OR token IS NOT NULL THEN not_before ELSE 0 END WHERE key=?1 AND "                    \
        "(handler <> ?2 OR acquisitions + not_before > 0) AND (?3 OR (name IS NULL AND "                               \
        "NOT EXISTS (SELECT 1 FROM dur_history WHERE key=?1) AND 1 = (SELECT count(*) FROM dur_queue "                 \
        "WHERE key=?1 AND qname IS NULL AND kind IN (0, 1))))")                                                        \
    SQL(INSTANCE_SET_READY, /* at ?2, or when it may be fetched again; NULL: there is no reason */                     \
        "UPDATE dur_instance SET ready_at=CASE WHEN max(?2, not_before) <= ?4 THEN 0 ELSE max(?2, not_before) END, "   \
        "ready_seq=?3, " DUR__SQ_HANDLER_NOW " WHERE key=?1 RETURNING ready_at")                                       \
    SQL(INSTANCE_SUSPEND, "UPDATE dur_instance SET suspended=?2, updated=?3 WHERE key=?1")                             \
    SQL(INSTANCE_LOCK, "UPDATE dur_instance SET token=?2, owner=?3, locked_until=?4, ready_at=NULL, not_before=0, "    \
                       "crashes=crashes*(acquisitions>0), crashes_alone=crashes_alone*(acquisitions>0), "              \
                       "runs_alone=?5, acquisitions=acquisitions+1 WHERE key=?1")                                      \
    SQL(INSTANCE_CRASHED, "UPDATE dur_instance SET crashes=crashes+1, crashes_alone=crashes_alone+runs_alone "         \
                          "WHERE key=?1 AND acquisitions > 0")                                                         \
    SQL(INSTANCE_NOT_ALONE, "UPDATE dur_instance SET runs_alone=0 WHERE key=?1 AND token=?2")                          \
    SQL(INSTANCE_RENEW, "UPDATE dur_instance SET locked_until=?2 WHERE key=?1")                                        \
    SQL(INSTANCE_CANDIDATES,                                                                                           \
        "SELECT " DUR__SQ_CANDIDATE_COLUMNS " FROM dur_instance WHERE " DUR__SQ_IS_READY " AND handler = ?6 "          \
        "AND look = 0 AND (?1 OR pinned IS NULL OR pinned BETWEEN ?2 AND ?3) AND (?4 OR crashes < 2 OR "               \
        "acquisitions = 0) "                                                                                           \
        "ORDER BY ready_seq LIMIT ?5")                                                                                 \
    SQL(INSTANCE_SUSPECTS,                                                                                             \
        "SELECT " DUR__SQ_CANDIDATE_COLUMNS " FROM dur_instance WHERE " DUR__SQ_IS_READY " AND crashes >= 2 "          \
        "AND look = 0 AND acquisitions > 0 AND (?1 OR pinned IS NULL OR pinned BETWEEN ?2 AND ?3) "                    \
        "ORDER BY crashes_alone, ready_seq")                                                                           \
    SQL(INSTANCE_LOST, /* what is written of them needs no handler: any node may, and no code of theirs runs */        \
        "SELECT " DUR__SQ_CANDIDATE_COLUMNS " FROM dur_instance WHERE " DUR__SQ_IS_READY " AND look > 0 "              \
        "ORDER BY ready_seq LIMIT ?1")                                                                                 \
    SQL(INSTANCE_HANDLERS, /* the first one from ?1 on that has something ready */                                     \
        "SELECT handler FROM dur_instance WHERE " DUR__SQ_IS_READY " AND handler >= ?1 ORDER BY handler LIMIT 1")      \
    SQL(INSTANCE_OF_HANDLER,                                                                                           \
        "SELECT handler, id, 0, NULL, NULL, NULL FROM dur_instance WHERE " DUR__SQ_IS_READY " AND handler = ?1 "       \
        "ORDER BY ready_seq LIMIT ?2")                                                                                 \
    SQL(INSTANCE_ANY_READY, "SELECT 1 FROM dur_instance WHERE ready_at = 0 AND suspended IS NULL LIMIT 1")             \
    SQL(INSTANCE_PROMOTE, "UPDATE dur_instance SET ready_at=0 WHERE ready_at > 0 AND ready_at <= ?1")                  \
    SQL(INSTANCE_EXPIRED, "SELECT key FROM dur_instance WHERE locked_until IS NOT NULL AND locked_until <= ?1")        \
    SQL(INSTANCE_NEXT_READY, "SELECT min(ready_at) FROM dur_instance WHERE ready_at > 0")                              \
    SQL(INSTANCE_NEXT_EXPIRY, "SELECT min(locked_until) FROM dur_instance WHERE locked_until IS NOT NULL")             \
    SQL(INSTANCE_OF_OWNER, "SELECT key FROM dur_instance WHERE owner IS NOT NULL AND owner=?1")                        \
    SQL(INSTANCE_DELETE, "DELETE FROM dur_instance WHERE key=?1 RETURNING started IS NOT NULL")                        \
    SQL(CHILDREN, "SELECT key, id FROM dur_instance WHERE parent IS NOT NULL AND parent=?1 ORDER BY id")               \
    SQL(TREE, DUR__SQ_WITH_TREE "SELECT key FROM tree")                                                                \
    SQL(TREE_LIVES, /* some of it has not ended */                                                                     \
        DUR__SQ_WITH_TREE "SELECT 1 FROM tree JOIN dur_instance i USING(key) WHERE NOT " DUR__SQ_HAS_ENDED " LIMIT 1") \
    /* executions */                                                                                                   \
    SQL(EXECUTION, "SELECT execution FROM dur_instance WHERE key=?1")                                                  \
    SQL(EXECUTION_KEEP, /* the current one, before another begins */                                                   \
        "INSERT INTO dur_past_execution(key, execution, status, output, started, completed, pinned) "                  \
        "SELECT key, execution, max(status, 1), output, started, completed, pinned FROM dur_instance "                 \
        "WHERE key=?1 AND started IS NOT NULL")                                                                        \
    SQL(EXECUTION_NEXT,                                                                                                \
        "UPDATE dur_instance SET execution=?2, status=1, started=?3, completed=0, output=NULL WHERE key=?1")           \
    SQL(EXECUTION_BEGIN, "UPDATE dur_instance SET started=?2 WHERE key=?1 AND started IS NULL")                        \
    SQL(EXECUTION_MAKE, /* one before the current */                                                                   \
        "INSERT INTO dur_past_execution(key, execution, status, started, pinned) VALUES(?1, ?2, 1, ?3, ?4) "           \
        "ON CONFLICT DO UPDATE SET pinned=?4 WHERE ?4 IS NOT NULL")                                                    \
    SQL(EXECUTION_STATUS,                                                                                              \
        "UPDATE dur_past_execution SET status=?3, output=?4, completed=?5 WHERE key=?1 AND execution=?2")              \
    SQL(EXECUTION_LIST,                                                                                                \
        "SELECT execution, status, output, started, completed, (SELECT sum(count) FROM dur_history e WHERE "           \
        "e.key=x.key AND e.execution=x.execution) FROM " DUR__SQ_EXECUTIONS " x ORDER BY execution")                   \
    SQL(EXECUTION_OLD, "SELECT execution, status, completed FROM " DUR__SQ_EXECUTIONS " ORDER BY execution DESC")      \
    SQL(EXECUTION_DELETE, "DELETE FROM dur_past_execution WHERE key=?1 AND execution=?2")                              \
    SQL(EXECUTIONS_DELETE, "DELETE FROM dur_past_execution WHERE key=?1")                                              \
    /* history */                                                                                                      \
    SQL(HISTORY_ADD, "INSERT INTO dur_history(key, execution, first_id, count, at, open, block) "                      \
                     "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)")                                                             \
    SQL(HISTORY_READ,                                                                                                  \
        "SELECT first_id, count, block FROM dur_history WHERE key=?1 AND execution=?2 ORDER BY first_id")              \
    SQL(HISTORY_LAST, "SELECT first_id + count - 1, at, open FROM dur_history WHERE key=?1 AND execution=?2 "          \
                      "ORDER BY first_id DESC LIMIT 1")                                                                \
    SQL(HISTORY_UP_TO, /* which events the block has that could have ?3 */                                             \
        "SELECT first_id, first_id + count - 1 FROM dur_history WHERE key=?1 AND execution=?2 AND first_id <= ?3 "     \
        "ORDER BY first_id DESC LIMIT 1")                                                                              \
    SQL(HISTORY_ANY, "SELECT 1 FROM dur_history WHERE key=?1 LIMIT 1")                                                 \
    SQL(HISTORY_COUNT, /* of executions from ?2 to ?3 */                                                               \
        "SELECT coalesce(sum(count), 0) FROM dur_history WHERE key=?1 AND execution BETWEEN ?2 AND ?3")                \
    SQL(HISTORY_DELETE, "DELETE FROM dur_history WHERE key=?1 AND execution BETWEEN ?2 AND ?3")                        \
    /* the orchestrator queue */                                                                                       \
    SQL(QUEUE_ADD, "INSERT INTO dur_queue(id, key, due, ord, at, kind, qname, execution, activity, json, handler, "    \
                   "parent) VALUES(?10, ?1, ?2, ?3, ?9, ?4, ?5, ?6, ?7, ?8, ?11, ?12)")                                \
    SQL(QUEUE_DELETE, "DELETE FROM dur_queue WHERE id=?1 AND key=?2")                                                  \
    SQL(QUEUE_DELETE_TOKEN, "DELETE FROM dur_queue WHERE key=?1 AND token=?2")                                         \
    SQL(QUEUE_DELETE_SEEN, /* what rounds have handed to the holder, queues apart */                                   \
        "DELETE FROM dur_queue WHERE key=?1 AND qname IS NULL AND id <= ?2 AND due <= ?3")                             \
    SQL(QUEUE_DELETE_KEY, "DELETE FROM dur_queue WHERE key=?1")                                                        \
    SQL(QUEUE_DELETE_QUEUES, "DELETE FROM dur_queue WHERE key=?1 AND qname IS NOT NULL AND due <= ?2")                 \
    SQL(QUEUE_DELETE_OWN, /* not calls of others, nor what clients have put into queues */                             \
        "DELETE FROM dur_queue WHERE key=?1 AND kind <> 0 AND qname IS NULL")                                          \
    SQL(QUEUE_DELETE_FRONT, /* of an instance that has not begun: what stands in front of the next start */            \
        "DELETE FROM dur_queue AS q WHERE key=?1 AND kind <> 0 AND NOT EXISTS (SELECT 1 FROM dur_history WHERE "       \
        "key=?1) "                                                                                                     \
        "AND NOT EXISTS (SELECT 1 FROM dur_queue s WHERE s.key=?1 AND s.kind=0 AND (s.ord, s.id) < (q.ord, q.id))")    \
    SQL(QUEUE_DELETE_TIMER, "DELETE FROM dur_queue WHERE activity > 0 AND key=?1 AND execution=?2 AND activity=?3")    \
    SQL(QUEUE_TAG_ONE, "UPDATE dur_queue SET token=?2, attempts=attempts+1 WHERE id=?1")                               \
    SQL(QUEUE_READ_FEW, "SELECT " DUR__SQ_MESSAGE_COLUMNS ", due FROM dur_queue WHERE key=?1 LIMIT ?2")                \
    SQL(QUEUE_READ_PLAIN,                                                                                              \
        "SELECT " DUR__SQ_MESSAGE_COLUMNS " FROM dur_queue WHERE key=?1 AND qname IS NULL AND due <= ?2 "              \
        "AND (+id > ?3 OR +due > ?4) ORDER BY ord, id")                                                                \
    SQL(QUEUE_NAME, /* the first one from ?2 on */                                                                     \
        "SELECT min(qname) FROM dur_queue WHERE key=?1 AND qname >= ?2")                                               \
    SQL(QUEUE_READ_NAMED, "SELECT " DUR__SQ_MESSAGE_COLUMNS " FROM dur_queue WHERE key=?1 AND qname=?3 AND due <= ?2 " \
                          "ORDER BY ord, id LIMIT ?4")                                                                 \
    SQL(QUEUE_BEHIND, "SELECT " DUR__SQ_MESSAGE_COLUMNS " FROM dur_queue WHERE key=?1 AND due <= ?2 "                  \
                      "AND (ord, id) > (?3, ?4) ORDER BY ord, id LIMIT ?5")                                            \
    SQL(QUEUE_BEHIND_NAMED,                                                                                            \
        "SELECT " DUR__SQ_MESSAGE_COLUMNS " FROM dur_queue WHERE key=?1 AND qname=?6 AND due <= ?2 "                   \
        "AND (ord, id) > (?3, ?4) ORDER BY ord, id LIMIT ?5")                                                          \
    SQL(QUEUE_REASON, "SELECT due FROM dur_queue WHERE key=?1 AND (+id > ?2 OR +due > ?3)")                            \
    SQL(QUEUE_START, /* the one that came first; + keeps SQLite from a walk over all ids */                            \
        "SELECT id, at, due FROM dur_queue WHERE key=?1 AND qname IS NULL AND kind IN (0, 1) "                         \
        "ORDER BY +id LIMIT 1")                                                                                        \
    SQL(QUEUE_CALLS, /* starts behind an instance that has begun, or behind the one that it is */                      \
        "SELECT i.id, q.due, q.json, q.handler, q.parent FROM dur_instance i JOIN dur_queue q ON q.key=i.key WHERE "   \
        "i.key=?1 AND q.kind=0 "                                                                                       \
        "ORDER BY +q.id LIMIT -1 OFFSET NOT EXISTS (SELECT 1 FROM dur_history e WHERE e.key=?1)")                      \
    SQL(QUEUE_ORPHAN_NEXT, "SELECT min(due) FROM dur_queue WHERE key=?1 AND qname IS NOT NULL")                        \
    SQL(QUEUE_GET, "SELECT 1 FROM dur_queue WHERE id=?1 AND key=?2")                                                   \
    SQL(QUEUE_CANCEL, "SELECT 1 FROM dur_queue WHERE key=?1 AND qname IS NULL AND kind=10 LIMIT 1")                    \
    SQL(QUEUE_SINCE, "SELECT id, key FROM dur_queue WHERE id > ?1 ORDER BY id")                                        \
    SQL(QUEUE_BECAME_DUE, "SELECT key FROM dur_queue WHERE due > 0 AND due > ?1 AND due <= ?2")                        \
    SQL(QUEUE_NEXT_DUE, "SELECT min(due) FROM dur_queue WHERE due > 0 AND due > ?1")                                   \
    SQL(QUEUE_MAX_ID, "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name='dur_queue'), 0)")                  \
    SQL(QUEUE_COUNT_NAMED, "SELECT count(*) FROM dur_queue WHERE key=?1 AND qname IS NOT NULL")                        \
    SQL(QUEUE_CLEAR, /* what was tagged with ?2, or with the token of its instance: ?3 attempts less; ?4: it stays */  \
        "UPDATE dur_queue SET token=CASE WHEN ?4 THEN token END, attempts=max(attempts-?3, 0) "                        \
        "WHERE key=?1 AND token=coalesce(?2, (SELECT token FROM dur_instance WHERE key=?1))")                          \
    SQL(QUEUE_CLEAR_ONE, /* by id: a backlog in its queues is not looked through */                                    \
        "UPDATE dur_queue SET token=CASE WHEN ?4 THEN token END, attempts=max(attempts-?3, 0) "                        \
        "WHERE id=?5 AND key=?1 AND token=?2")                                                                         \
    SQL(MESSAGE_ID_GET, "SELECT 1 FROM dur_message_id WHERE key=?1 AND message_id=?2")                                 \
    SQL(MESSAGE_ID_ADD,                                                                                                \
        "INSERT INTO dur_message_id(key, message_id, execution, at) VALUES(?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING")    \
    SQL(MESSAGE_IDS_OLD, "DELETE FROM dur_message_id WHERE key=?1 AND execution < ?2 AND at < ?3")                     \
    SQL(MESSAGE_IDS_DELETE, "DELETE FROM dur_message_id WHERE key=?1")                                                 \
    /* the worker queue */                                                                                             \
    SQL(WORK_ADD, "INSERT INTO dur_worker(key, execution, activity, seq, token, owner, attempts, session, tag, json, " \
                  "handler) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, coalesce(?11, ''))")                       \
    SQL(WORK_CONSUME,                                                                                                  \
        "DELETE FROM dur_worker WHERE key=?1 AND execution=?2 AND activity=?3 AND (?4 = 0 OR seq=?4) AND token=?5 "    \
        "AND (locked_until IS NULL OR locked_until > ?6)")                                                             \
    SQL(WORK_OF_EXECUTION, "SELECT activity FROM dur_worker WHERE key=?1 AND execution=?2")                            \
    SQL(WORK_LOST, "UPDATE dur_worker SET attempts=1, crashes=?5 WHERE key=?1 AND execution=?2 AND activity=?3 "       \
                   "AND seq=?4")                                                                                       \
    SQL(WORK_DELETE, "DELETE FROM dur_worker WHERE key=?1 AND execution=?2 AND activity=?3 AND seq=?4")                \
    SQL(WORK_CANCEL, "DELETE FROM dur_worker WHERE key=?1 AND execution=?2 AND activity=?3")                           \
    SQL(WORK_DELETE_KEY, "DELETE FROM dur_worker WHERE key=?1")                                                        \
    SQL(WORK_GET, /* by its number, or by the token that locks it */                                                   \
        "SELECT token, locked_until, seq FROM dur_worker WHERE key=?1 AND execution=?2 AND activity=?3 AND "           \
        "CASE WHEN ?4 = 0 THEN token=?5 ELSE seq=?4 END")                                                              \
    SQL(WORK_BY_TOKEN, "SELECT key, execution, activity, seq FROM dur_worker WHERE token=?1")                          \
    SQL(WORK_READ, "SELECT w.attempts, w.json, i.id, w.crashes, CASE WHEN w.crashes_alone > 0 THEN w.crashes_alone - " \
                   "" DUR__SQ_DOUBTS("w.key", "w.execution", "w.activity",                                             \
                                     "w.seq") " ELSE 0 END FROM dur_worker w "                                         \
                                              "LEFT JOIN dur_instance i ON i.key=w.key "                               \
                                              "WHERE w.key=?1 AND w.execution=?2 AND w.activity=?3 AND w.seq=?4")      \
    SQL(WORK_LOCK, "UPDATE dur_worker SET token=?5, owner=?6, locked_until=?7, runs_alone=?8, attempts=attempts+1 "    \
                   "WHERE key=?1 AND execution=?2 AND activity=?3 AND seq=?4")                                         \
    SQL(WORK_NOT_ALONE, "UPDATE dur_worker SET runs_alone=0 WHERE key=?1 AND execution=?2 AND activity=?3 AND seq=?4") \
    SQL(WORK_RENEW, "UPDATE dur_worker SET locked_until=?5 WHERE key=?1 AND execution=?2 AND activity=?3 AND seq=?4")  \
    SQL(WORK_FREE, "UPDATE dur_worker SET token=NULL, owner=NULL, locked_until=NULL, visible_at=?5, "                  \
                   "attempts=max(attempts-?6, 0), crashes=crashes*?6, crashes_alone=crashes_alone*?6 "                 \
                   "WHERE key=?1 AND execution=?2 AND activity=?3 AND seq=?4")                                         \
    SQL(WORK_EXPIRE, "UPDATE dur_worker SET token=NULL, owner=NULL, locked_until=NULL "                                \
                     "WHERE locked_until IS NOT NULL AND locked_until <= ?1")                                          \
    SQL(WORK_APPEAR, "UPDATE dur_worker SET visible_at=0 WHERE visible_at > 0 AND visible_at <= ?1")                   \
    SQL(WORK_CANDIDATES, "SELECT key, execution, activity, seq, session, tag FROM dur_worker WHERE token IS NULL "     \
                         "AND visible_at = 0 AND handler = ?1 AND (?2 OR crashes < 2) ORDER BY seq")                   \
    SQL(WORK_SUSPECTS, "SELECT key, execution, activity, seq, session, tag, handler, crashes_alone FROM dur_worker "   \
                       "WHERE token IS NULL AND crashes >= 2 AND visible_at = 0 ORDER BY crashes_alone, seq")          \
    SQL(WORK_HANDLERS, "SELECT handler FROM dur_worker WHERE token IS NULL AND visible_at = 0 AND handler >= ?1 "      \
                       "ORDER BY handler LIMIT 1")                                                                     \
    SQL(WORK_OF_HANDLER,                                                                                               \
        "SELECT w.handler, i.id, 0, NULL, NULL, NULL FROM dur_worker w JOIN dur_instance i USING(key) WHERE w.token "  \
        "IS NULL AND w.visible_at = 0 AND w.handler = ?1 ORDER BY w.seq LIMIT ?2")                                     \
    SQL(WORK_NEXT_VISIBLE, "SELECT min(visible_at) FROM dur_worker WHERE visible_at > 0")                              \
    SQL(WORK_NEXT_EXPIRY, "SELECT min(locked_until) FROM dur_worker WHERE locked_until IS NOT NULL")                   \
    SQL(WORK_OF_OWNER, "UPDATE dur_worker SET token=NULL, owner=NULL, locked_until=NULL, crashes=crashes+?2, "         \
                       "crashes_alone=crashes_alone+(?2 AND runs_alone), attempts=max(attempts-?3, 0) "                \
                       "WHERE token IS NOT NULL AND owner=?1")                                                         \
    /* crashes that may be in doubt; ?1: the owner that died */                                                        \
    SQL(CRASH_ANEW, /* what is counted for the first time since it has shown that it can end */                        \
        "DELETE FROM dur_crash WHERE (alone OR NOT for_good) AND CASE WHEN seq > 0 THEN EXISTS (SELECT 1 FROM "        \
        "dur_worker w WHERE w.key=dur_crash.key AND w.execution=dur_crash.execution AND "                              \
        "w.activity=dur_crash.activity "                                                                               \
        "AND w.seq=dur_crash.seq AND w.owner=?1 AND w.crashes=0) WHEN seq < 0 THEN NOT EXISTS (SELECT 1 FROM "         \
        "dur_instance i WHERE i.key=dur_crash.key AND i.look = 2) ELSE EXISTS (SELECT 1 FROM dur_instance i WHERE "    \
        "i.key=dur_crash.key AND i.owner=?1 AND i.acquisitions > 0 AND i.crashes=0) END")                              \
    SQL(CRASH_ADD,                                                                                                     \
        "INSERT OR IGNORE INTO dur_crash(crash, key, execution, activity, seq, alone) SELECT ?1, * FROM "              \
        "(SELECT key, 0, 0, 0, runs_alone FROM dur_instance WHERE owner IS NOT NULL AND owner=?1 AND "                 \
        "acquisitions > 0 UNION ALL SELECT key, 0, 0, -1, 0 FROM dur_instance i WHERE owner IS NOT NULL AND owner=?1 " \
        "AND acquisitions = 0 AND 0 < (SELECT open FROM dur_history e WHERE e.key=i.key AND e.execution=i.execution "  \
        "ORDER BY first_id DESC LIMIT 1) UNION ALL SELECT key, execution, activity, seq, runs_alone FROM dur_worker "  \
        "WHERE "                                                                                                       \
        "token IS NOT NULL AND owner=?1) WHERE EXISTS (SELECT 1 FROM dur_instance WHERE owner IS NOT NULL "            \
        "AND owner=?1 AND acquisitions > 0 AND runs_alone UNION ALL SELECT 1 FROM dur_worker WHERE token "             \
        "IS NOT NULL AND owner=?1 AND runs_alone)")                                                                    \
    SQL(CRASH_FORGET, /* those that nobody could be charged with any more */                                           \
        "DELETE FROM dur_crash WHERE NOT EXISTS (SELECT 1 FROM dur_crash a WHERE a.crash=dur_crash.crash AND a.alone " \
        "AND " DUR__SQ_UNPROVEN("a") ")")                                                                              \
    SQL(CRASH_LOCAL, /* what had no row has one now */                                                                 \
        "INSERT OR IGNORE INTO dur_crash(crash, key, execution, activity, seq, alone) SELECT crash, key, ?2, ?3, ?4, " \
        "0 FROM dur_crash WHERE key=?1 AND seq < 0 AND NOT for_good")                                                  \
    SQL(CRASH_BY_ROW, "UPDATE dur_crash SET for_good=1 WHERE key=?1 AND execution=?2 AND activity=?3 AND seq=?4")      \
    SQL(CRASH_BY_ACTIVITY,                                                                                             \
        "UPDATE dur_crash SET for_good=1 WHERE key=?1 AND execution=?2 AND activity=?3 AND seq > 0")                   \
    SQL(CRASH_BY_KEY, "UPDATE dur_crash SET for_good=1 WHERE key=?1")                                                  \
    /* sessions */                                                                                                     \
    SQL(SESSION_ANY, "SELECT 1 FROM dur_session LIMIT 1")                                                              \
    SQL(SESSION_GET, "SELECT node, owner, locked_until FROM dur_session WHERE session=?1")                             \
    SQL(SESSION_CLAIM,                                                                                                 \
        "INSERT INTO dur_session(session, node, owner, locked_until, lock_ms, active) VALUES(?1, ?2, ?3, ?4, ?5, ?6) " \
        "ON CONFLICT(session) DO UPDATE SET node=?2, owner=?3, locked_until=?4, lock_ms=?5, active=?6")                \
    SQL(SESSION_TOUCH, /* that of a worker row, by its number or the token that locks it */                            \
        "UPDATE dur_session SET active=?6 WHERE session=(SELECT session FROM dur_worker WHERE key=?1 AND "             \
        "execution=?2 AND activity=?3 AND (?4 = 0 OR seq=?4) AND token=?5)")                                           \
    SQL(SESSION_RENEW, "UPDATE dur_session SET locked_until=?2 WHERE node=?1 AND ?3 - active < ?4 "                    \
                       "AND (owner IS NOT NULL OR locked_until > ?3)")                                                 \
    SQL(SESSION_ORPHANS, /* under a live owner nothing expires: there it has ended when it is idle for so long */      \
        "DELETE FROM dur_session WHERE ((owner IS NULL AND locked_until <= ?1) OR (owner IS NOT NULL AND "             \
        "?1 - active >= ?2)) AND NOT EXISTS "                                                                          \
        "(SELECT 1 FROM dur_worker w WHERE w.session IS NOT NULL AND w.session=dur_session.session AND NOT "           \
        "(dur_session.owner IS NOT NULL AND w.token IS NULL AND " DUR__SQ_HOLDER_HAS_NOT("dur_session") "))")          \
    SQL(SESSION_NEXT_EXPIRY, "SELECT min(locked_until) FROM dur_session WHERE owner IS NULL AND locked_until > ?1")    \
    SQL(SESSION_OF_OWNER, "UPDATE dur_session SET owner=NULL, locked_until=?2+lock_ms*(node!=?1) WHERE owner=?1")      \
    /* keys and values */                                                                                              \
    SQL(KV_SET, "INSERT INTO dur_kv_delta(key, name, value, at) VALUES(?1, ?2, ?3, ?4) "                               \
                "ON CONFLICT(key, name) DO UPDATE SET value=?3, at=?4")                                                \
    SQL(KV_CLEAR_DELTA, "UPDATE dur_kv_delta SET value=NULL, at=?2 WHERE key=?1")                                      \
    SQL(KV_CLEAR_STORE,                                                                                                \
        "INSERT INTO dur_kv_delta(key, name, value, at) SELECT key, name, NULL, ?2 FROM dur_kv s WHERE key=?1 "        \
        "ON CONFLICT DO NOTHING")                                                                                      \
    SQL(KV_MERGE, "INSERT INTO dur_kv(key, name, value, at) SELECT key, name, value, at FROM dur_kv_delta "            \
                  "WHERE key=?1 "                                                                                      \
                  "AND value IS NOT NULL ON CONFLICT(key, name) DO UPDATE SET value=excluded.value, at=excluded.at")   \
    SQL(KV_MERGE_DROP,                                                                                                 \
        "DELETE FROM dur_kv WHERE key=?1 AND name IN (SELECT name FROM dur_kv_delta WHERE key=?1 AND value IS NULL)")  \
    SQL(KV_DELTA_ANY, "SELECT 1 FROM dur_kv_delta WHERE key=?1 LIMIT 1")                                               \
    SQL(KV_DELTA_EMPTY, "DELETE FROM dur_kv_delta WHERE key=?1")                                                       \
    SQL(KV_DELETE, "DELETE FROM dur_kv WHERE key=?1")                                                                  \
    SQL(KV_SNAPSHOT, "SELECT name, value, at FROM dur_kv WHERE key=?1 ORDER BY name")                                  \
    SQL(KV_ALL, "SELECT name, value, at FROM dur_kv_delta WHERE key=?1 AND value IS NOT NULL UNION ALL "               \
                "SELECT name, value, at FROM dur_kv s WHERE key=?1 AND NOT EXISTS (SELECT 1 FROM dur_kv_delta d "      \
                "WHERE d.key=s.key AND d.name=s.name) ORDER BY 1")                                                     \
    SQL(KV_GET, "SELECT CASE WHEN d.key IS NULL THEN s.value ELSE d.value END FROM dur_instance i LEFT JOIN "          \
                "dur_kv_delta d ON d.key=i.key AND d.name=?2 LEFT JOIN dur_kv s ON s.key=i.key AND s.name=?2 "         \
                "WHERE i.id=?1")                                                                                       \
    /* owners */                                                                                                       \
    SQL(OWNER_ADD, "INSERT OR REPLACE INTO dur_owner(id, boot, timeout_ms, at) VALUES(?1, ?2, ?3, ?4)")                \
    SQL(OWNER_HAS, "SELECT 1 FROM dur_owner WHERE id=?1")                                                              \
    SQL(OWNER_LIST, "SELECT id FROM dur_owner")                                                                        \
    SQL(OWNER_DELETE, "DELETE FROM dur_owner WHERE id=?1")                                                             \
    SQL(SERVED_ADD, "INSERT OR IGNORE INTO dur_served(activity, handler, owner) VALUES(?1, ?2, ?3)")                   \
    SQL(SERVED_DELETE, "DELETE FROM dur_served WHERE owner=?1")                                                        \
    SQL(SERVED, "SELECT 1 FROM dur_served WHERE activity=?1 AND handler IN (?2, '') LIMIT 1")                          \
    SQL(CANCELS_OF,                                                                                                    \
        "SELECT i.handler, i.id, q.ord, q.json, NULL, NULL FROM dur_instance i JOIN dur_queue q ON q.key = i.key "     \
        "WHERE i.id = ?1 AND q.kind = 10 AND q.due <= ?2 LIMIT 64")                                                    \
    SQL(UNSERVED_CANCELS,                                                                                              \
        "SELECT i.handler, i.id, q.ord, q.json, NULL, NULL FROM dur_queue q CROSS JOIN dur_instance i ON "             \
        "i.key = q.key WHERE q.kind = 10 AND q.due <= ?1 AND i.ready_at = 0 AND i.suspended IS NULL AND "              \
        "i.handler <> '' AND NOT EXISTS (SELECT 1 FROM dur_served s WHERE s.activity = 0 AND s.handler IN "            \
        "(i.handler, '')) LIMIT 64")                                                                                   \
    SQL(UNSERVED_SESSIONS, /* the holder has it not, somebody has */                                                   \
        "SELECT w.handler, i.id, 0, NULL, w.session, s.owner FROM (SELECT key, handler, session FROM "                 \
        "dur_worker WHERE token IS NULL AND session IS NOT NULL AND visible_at = 0 ORDER BY seq LIMIT 256) w "         \
        "JOIN dur_session s ON s.session=w.session JOIN dur_instance i ON i.key=w.key "                                \
        "WHERE s.owner IS NOT NULL AND " DUR__SQ_HOLDER_HAS_NOT(                                                       \
            "s") " AND EXISTS (SELECT 1 FROM dur_served v WHERE v.activity = 1 AND "                                   \
                 "v.handler IN (w.handler, '')) LIMIT 64")                                                             \
    /* dead letters */                                                                                                 \
    SQL(DEAD_QUEUES, /* what waits in the queues of an instance, due up to ?4 */                                       \
        "INSERT INTO dur_dead_letter(instance, reason, at, json) SELECT i.id, ?2, ?3, q.json FROM dur_instance i "     \
        "JOIN dur_queue q ON q.key=i.key WHERE i.key=?1 AND q.qname IS NOT NULL AND q.due <= ?4 ORDER BY q.ord, q.id") \
    SQL(DEAD_MESSAGE, "INSERT INTO dur_dead_letter(instance, reason, at, json) SELECT i.id, ?3, ?4, q.json FROM "      \
                      "dur_queue q JOIN dur_instance i USING(key) WHERE q.id=?1 AND q.key=?2")                         \
    SQL(DEAD_WORK, "INSERT INTO dur_dead_letter(instance, reason, at, json) SELECT i.id, ?5, ?6, w.json FROM "         \
                   "dur_worker w LEFT JOIN dur_instance i USING(key) WHERE w.key=?1 AND w.execution=?2 AND "           \
                   "w.activity=?3 AND w.seq=?4")                                                                       \
    SQL(DEAD_FRONT, /* as QUEUE_DELETE_FRONT */                                                                        \
        "INSERT INTO dur_dead_letter(instance, reason, at, json) SELECT i.id, ?2, ?3, q.json FROM dur_instance i "     \
        "JOIN dur_queue q ON q.key=i.key WHERE i.key=?1 AND q.qname IS NOT NULL AND NOT EXISTS (SELECT 1 "             \
        "FROM dur_history WHERE key=?1) AND NOT EXISTS (SELECT 1 FROM dur_queue s WHERE s.key=?1 AND s.kind=0 "        \
        "AND (s.ord, s.id) < (q.ord, q.id)) ORDER BY q.ord, q.id")                                                     \
    SQL(DEAD_LIST, "SELECT id, instance, reason, at, json FROM dur_dead_letter WHERE id > ?1 ORDER BY id LIMIT ?2")    \
    SQL(DEAD_DELETE, "DELETE FROM dur_dead_letter WHERE id=?1")                                                        \
    /* administration */                                                                                               \
    SQL(LIST, DUR__SQ_LIST_WHERE(DUR__SQ_OF_STATUS " AND (?3 = 0 OR suspended IS NOT NULL)"))                          \
    SQL(LIST_STATUS, DUR__SQ_LIST_WHERE("status = ?2 AND (?3 = 0 OR suspended IS NOT NULL)"))                          \
    SQL(LIST_RUNNING,                                                                                                  \
        "SELECT " DUR__SQ_LIST_COLUMNS("name IS NULL") " FROM (" DUR__SQ_RUNNING_KEYS " ORDER BY n LIMIT ?10) "        \
                                                       "CROSS JOIN dur_instance i ON i.key=k ORDER BY n")              \
    SQL(LIST_SUSPENDED, DUR__SQ_LIST_WHERE("suspended IS NOT NULL AND ?3 AND " DUR__SQ_OF_STATUS))                     \
    SQL(LIST_CHILDREN,                                                                                                 \
        DUR__SQ_LIST_WHERE("key IN (SELECT key FROM dur_instance WHERE parent IS NOT NULL AND "                        \
                           "parent = ?9 UNION SELECT key FROM dur_queue WHERE parent IS NOT NULL AND "                 \
                           "parent = ?9) AND " DUR__SQ_OF_STATUS " AND (?3 = 0 OR suspended IS NOT NULL)"))            \
    SQL(COUNT_INSTANCES,                                                                                               \
        "SELECT count(*), sum(status IN (0, 1, 4)), sum(status=2), sum(status=3), sum(suspended IS NOT NULL) "         \
        "FROM dur_instance WHERE name IS NOT NULL")                                                                    \
    SQL(COUNT_STARTS, /* of those that are no more than that */                                                        \
        "SELECT count(*), coalesce(sum(suspended IS NOT NULL), 0) FROM dur_instance i WHERE status = 0 AND name IS "   \
        "NULL AND EXISTS (SELECT 1 FROM dur_queue q WHERE q.key=i.key AND qname IS NULL AND kind IN (0, 1)) AND NOT "  \
        "EXISTS (SELECT 1 FROM dur_history e WHERE e.key=i.key)")                                                      \
    SQL(COUNT_EXECUTIONS, "SELECT (SELECT count(*) FROM dur_past_execution) + "                                        \
                          "(SELECT count(*) FROM dur_instance WHERE started IS NOT NULL)")                             \
    SQL(COUNT_EVENTS, "SELECT coalesce(sum(count), 0) FROM dur_history")                                               \
    SQL(COUNT_QUEUE, "SELECT count(*), sum(due > ?1) FROM dur_queue")                                                  \
    SQL(COUNT_LOCKED_QUEUE, "SELECT count(*) FROM dur_queue q JOIN dur_instance i ON i.key=q.key "                     \
                            "WHERE q.token IS NOT NULL AND i.token IS NOT NULL AND q.token=i.token AND q.due <= ?1 "   \
                            "AND (i.locked_until IS NULL OR i.locked_until > ?2)")                                     \
    SQL(COUNT_WORK, "SELECT count(*) FROM dur_worker WHERE token IS NULL OR locked_until <= ?2")                       \
    SQL(COUNT_DEAD, "SELECT count(*) FROM dur_dead_letter")                                                            \
    SQL(BULK_ROOTS, "SELECT key, completed FROM dur_instance INDEXED BY dur_instance_ended WHERE"                      \
                    " parent IS NULL AND status IN (2, 3) AND name IS NOT NULL AND started IS NOT NULL"                \
                    " AND (completed, key) > (?1, ?2) AND completed < ?3 ORDER BY completed, key LIMIT ?4")            \
    SQL(BULK_ALL, "SELECT key FROM dur_instance WHERE name IS NOT NULL ORDER BY key")                                  \
    SQL(ENDED_BEFORE, /* ?2: a time, or 0 for any; ?3: only a root */                                                  \
        "SELECT 1 FROM dur_instance WHERE key=?1 AND name IS NOT NULL AND (?2 = 0 OR (completed <> 0 AND "             \
        "completed < ?2)) AND (NOT ?3 OR parent IS NULL)")                                                             \
    SQL(STATS_KV, "SELECT count(*), coalesce(sum(length(CAST(value AS BLOB))), 0) FROM (SELECT value FROM "            \
                  "dur_kv_delta WHERE key=?1 "                                                                         \
                  "AND value IS NOT NULL UNION ALL SELECT value FROM dur_kv s WHERE key=?1 AND NOT EXISTS "            \
                  "(SELECT 1 FROM dur_kv_delta d WHERE d.key=s.key AND d.name=s.name))")

#define DUR__SQ_ENUM_(name, text) DUR__SQ_##name,
typedef enum dur__sq_sql { DUR__SQ_STATEMENTS(DUR__SQ_ENUM_) DUR__SQ_COUNT } dur__sq_sql;
#undef DUR__SQ_ENUM_

#endif
