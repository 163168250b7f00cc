/*
 * chaos_rules.c: what must hold, each rule a query for what breaks it.
 *
 * "held" are the lines of the ledger that no server has taken along: an asynchronous standby that was promoted did not
 * have the last commits ("lost", with the time from which on and until when something may be missing).
 */
#include "chaos_judge.h"

#include <sqlite3.h>
#include <stdio.h>

static const char views_sql[] =
    "CREATE INDEX line_kind ON line(kind, a, b); CREATE INDEX event_kind ON event(kind, text);"
    "CREATE TABLE lost AS SELECT CAST(a AS INT) AS since, CAST(b AS INT) AS until FROM line WHERE kind = 'lost';"
    "CREATE VIEW held AS SELECT * FROM line WHERE NOT EXISTS (SELECT 1 FROM lost WHERE at BETWEEN since AND until);"
    "CREATE TABLE received AS SELECT i.id AS instance, j.value AS message, j.key AS place FROM instance i,"
    " json_each(i.output) j WHERE i.status = 'Completed' AND i.name <> 'Child';"
    "CREATE INDEX received_message ON received(instance, message);"
    "CREATE TABLE letter AS SELECT instance, json_extract(message, '$.QueueMessage.data') AS message FROM dead;"
    "CREATE INDEX letter_message ON letter(instance, message);"
    "CREATE TABLE scheduled AS SELECT instance || '/' || execution || '/' || id AS key, instance, execution, id FROM"
    " event WHERE kind = 'ActivityScheduled'; CREATE INDEX scheduled_key ON scheduled(key);";

typedef struct rule {
    const char *sentence;
    const char *breakers;
} rule;

static const rule all[] = {
    { "nothing was seen that must not be", "SELECT a FROM line WHERE kind = 'fault'" },
    { "nothing was told as failed", "SELECT a || ': ' || b FROM line WHERE kind = 'told-failed'" },
    { "every start that was accepted is there",
      "SELECT a FROM held WHERE kind = 'ok-start' AND NOT EXISTS (SELECT 1 FROM instance WHERE id = a)" },
    { "every instance has ended, and well",
      "SELECT id || ' ' || status || ' ' || coalesce(output, '') FROM instance WHERE status <> 'Completed'" },
    { "nobody is there whom nobody has asked for",
      "SELECT id FROM instance i WHERE parent IS NULL AND NOT EXISTS (SELECT 1 FROM line WHERE kind = 'call-start' AND "
      "a"
      " = i.id) AND NOT EXISTS (SELECT 1 FROM event WHERE kind = 'OrchestrationChained' AND text = i.id)" },
    { "whoever was started detached is there",
      "SELECT text FROM event WHERE kind = 'OrchestrationChained' AND NOT EXISTS (SELECT 1 FROM instance WHERE id ="
      " text)" },
    { "no call was refused that should have been accepted",
      "SELECT n.kind || ' ' || n.a || ' ' || n.b || ' ' || n.c FROM line n WHERE (n.kind = 'no-start' OR (n.kind ="
      " 'no-send' AND NOT (n.b LIKE 'late:%' AND n.c LIKE 'DUR_ESTATE%'))) AND NOT EXISTS (SELECT 1 FROM line s, lost"
      " WHERE s.kind = 'ok-start' AND s.a = n.a AND s.at BETWEEN since AND until)" },
    { "every message that was accepted was received, or is a dead letter",
      "SELECT a || ' ' || b FROM held h WHERE kind = 'ok-send' AND NOT EXISTS (SELECT 1 FROM received WHERE instance = "
      "a"
      " AND message = b) AND NOT EXISTS (SELECT 1 FROM letter WHERE instance = a AND message = b) AND NOT EXISTS "
      "(SELECT"
      " 1 FROM line s, lost WHERE s.kind = 'ok-start' AND s.a = h.a AND s.at BETWEEN since AND until AND NOT EXISTS"
      " (SELECT 1 FROM instance WHERE id = s.a))" },
    { "no message was received twice, or is also a dead letter",
      "SELECT instance || ' ' || message FROM (SELECT instance, message FROM received UNION ALL SELECT instance, "
      "message"
      " FROM letter) GROUP BY instance, message HAVING count(*) > 1" },
    { "no message was received that nobody has sent",
      "SELECT instance || ' ' || message FROM received WHERE message <> 'end:judge' AND NOT EXISTS (SELECT 1 FROM line"
      " WHERE kind IN ('call-send', 'call-later') AND a = instance AND b = message)" },
    { "messages are received in the order in which they were accepted",
      "SELECT x.instance || ' ' || x.message || ' before ' || y.message FROM received x JOIN received y ON x.instance ="
      " y.instance AND x.place < y.place JOIN line after ON after.kind = 'call-send' AND after.a = x.instance AND "
      "after.b"
      " = x.message JOIN line before ON before.kind = 'ok-send' AND before.a = y.instance AND before.b = y.message "
      "WHERE"
      " before.at < after.at AND NOT EXISTS (SELECT 1 FROM line WHERE kind = 'call-later' AND a = y.instance AND b ="
      " y.message)" },
    { "what a client was told is what history says",
      "SELECT a || ': ' || b || ' / ' || output FROM held JOIN instance ON id = a WHERE kind = 'told' AND b IS NOT"
      " output" },
    { "a key has the value that was set last",
      "SELECT id || ': ' || coalesce(last, 'none') FROM instance WHERE name = 'Order' AND status = 'Completed' AND last"
      " IS NOT json_extract(output, '$[#-1]')" },
    { "executions and events are without a gap",
      "SELECT instance FROM execution GROUP BY instance HAVING count(*) <> max(number) OR min(number) <> 1 UNION ALL"
      " SELECT instance || '/' || execution FROM event GROUP BY instance, execution HAVING count(*) <> max(id) OR "
      "min(id)"
      " <> 1" },
    { "an execution begins once and ends once, last",
      "SELECT instance || '/' || execution FROM event GROUP BY instance, execution HAVING sum(role = 0) <> 1 OR "
      "sum(role ="
      " 4) <> 1 OR max(CASE WHEN role = 4 THEN id END) <> max(id) OR min(CASE WHEN role = 0 THEN id END) <> 1" },
    { "whatever was asked for is answered once, and after it was asked for",
      "SELECT instance || '/' || execution || '/' || source FROM event WHERE role = 1 AND source IS NOT NULL GROUP BY"
      " instance, execution, source HAVING count(*) > 1 OR min(id) <= source" },
    { "a result that was recorded was made by a run of that very activity",
      "SELECT e.instance || '/' || e.execution || '/' || e.source || ' ' || e.text FROM event e WHERE e.kind ="
      " 'ActivityCompleted' AND NOT EXISTS (SELECT 1 FROM line WHERE kind = 'effect' AND a = e.instance || '/' ||"
      " e.execution || '/' || e.source AND b = e.text)" },
    { "a result is recorded once",
      "SELECT text FROM event WHERE kind = 'ActivityCompleted' GROUP BY text HAVING count(*) > 1" },
    { "each side effect belongs to an activity that history knows",
      "SELECT a || ' ' || b FROM line WHERE kind = 'effect' AND NOT EXISTS (SELECT 1 FROM scheduled WHERE key = a) AND "
      "NOT"
      " EXISTS (SELECT 1 FROM lost WHERE at BETWEEN since AND until + 30000)" },
    { "a parent was told what its child has returned",
      "SELECT e.instance || '/' || e.execution || '/' || e.source FROM event e JOIN event s ON s.instance = e.instance "
      "AND"
      " s.execution = e.execution AND s.id = e.source JOIN instance i ON i.parent = e.instance AND (i.id = s.text OR "
      "i.id"
      " = s.instance || '::' || s.text) WHERE e.kind = 'SubOrchestrationCompleted' AND i.output <> e.text" },
};

static size_t breakers(sqlite3 *db, const rule *r) {
    sqlite3_stmt *query = NULL;
    size_t count = 0;
    if (sqlite3_prepare_v2(db, r->breakers, -1, &query, NULL) != SQLITE_OK) {
        printf("# BROKEN RULE: %s: %s\n", r->sentence, sqlite3_errmsg(db));
        return 1;
    }
    while (sqlite3_step(query) == SQLITE_ROW) {
        if (count++ == 0) printf("# BROKEN: %s, but:\n", r->sentence);
        if (count <= 5) printf("#     %s\n", (const char *)sqlite3_column_text(query, 0));
    }
    sqlite3_finalize(query);
    if (count > 5) printf("#     … %zu in all\n", count);
    return count;
}

size_t rules(sqlite3 *db) {
    size_t broken = 0;
    if (sqlite3_exec(db, views_sql, NULL, NULL, NULL) != SQLITE_OK) {
        printf("# the judge cannot begin: %s\n", sqlite3_errmsg(db));
        return 1;
    }
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        broken += breakers(db, &all[i]) > 0;
    return broken;
}
