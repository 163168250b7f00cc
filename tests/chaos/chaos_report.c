/*
 * chaos_report.c: what the run was and what it cost, from the same database.
 */
#include "chaos.h"

#include <sqlite3.h>
#include <stdio.h>

/* A ticker's next tick after its node died, or after the server did. */
static const char views_sql[] =
    "CREATE TABLE tick AS SELECT at, pid, c AS ticker FROM line WHERE kind = 'effect' AND c LIKE 'ticker-%';"
    "CREATE INDEX tick_at ON tick(ticker, at); CREATE INDEX tick_all ON tick(at);"
    "CREATE TABLE wait AS SELECT l.kind AS kind, l.at AS died, t.ticker AS ticker, (SELECT min(n.at) FROM tick n WHERE"
    " n.ticker = t.ticker AND n.at > l.at) - l.at AS ms FROM line l, (SELECT DISTINCT ticker FROM tick) t WHERE l.kind "
    "="
    " 'down' OR (l.kind = 'dead' AND ',' || l.c || ',' LIKE '%,' || t.ticker || ',%');"
    "CREATE TABLE pause AS SELECT at - lag(at) OVER (ORDER BY at) AS ms, at FROM tick;"
    "CREATE TABLE happened AS SELECT b.a AS name, b.at AS since, (SELECT min(e.at) FROM line e WHERE e.kind = 'end' AND"
    " e.a = b.a AND e.at >= b.at) AS until FROM line b WHERE b.kind = 'begin' AND NOT EXISTS (SELECT 1 FROM line e "
    "WHERE"
    " e.kind = 'end' AND e.a = b.a AND e.b <> '');";

static const char *const lines[] = {
    "SELECT printf('%d starts and %d messages accepted, %d ends told; %d instances, %d events, %d side effects of which"
    " %d are repetitions, %d dead letters', (SELECT count(*) FROM line WHERE kind = 'ok-start'), (SELECT count(*) FROM"
    " line WHERE kind = 'ok-send'), (SELECT count(*) FROM line WHERE kind = 'told'), (SELECT count(*) FROM instance),"
    " (SELECT count(*) FROM event), (SELECT count(*) FROM line WHERE kind = 'effect'), (SELECT count(*) - "
    "count(DISTINCT"
    " a) FROM line WHERE kind = 'effect'), (SELECT count(*) FROM dead))",
    "SELECT printf('%s: %d × %d tickers: next progress after %d ms (p50), %d ms (p99), %d ms (max)', CASE kind WHEN"
    " 'dead' THEN 'a node dies' ELSE 'the server dies' END, count(DISTINCT died), count(DISTINCT ticker), max(CASE WHEN"
    " part <= 0.5 THEN ms END), max(CASE WHEN part <= 0.99 THEN ms END), max(ms)) FROM (SELECT kind, died, ticker, ms,"
    " percent_rank() OVER (PARTITION BY kind ORDER BY ms) AS part FROM wait WHERE ms IS NOT NULL) GROUP BY kind",
    "SELECT printf('%-28s %2d times, %5.1f s in all; %5.1f ticks a second; longest standstill %d ms', name, count(*),"
    " sum(until - since) / 1000.0, 1000.0 * sum((SELECT count(*) FROM tick WHERE at BETWEEN since AND until)) / max(1,"
    " sum(until - since)), max((SELECT max(ms) FROM pause WHERE at BETWEEN since AND until + 5000))) FROM happened "
    "GROUP"
    " BY name ORDER BY name",
    "SELECT printf('without any of them %31.1f ticks a second', 1000.0 * count(*) / max(1, (SELECT max(at) - min(at) "
    "FROM"
    " tick) - (SELECT sum(until - since) FROM happened WHERE name <> 'an old snapshot'))) FROM tick t WHERE NOT EXISTS"
    " (SELECT 1 FROM happened WHERE name <> 'an old snapshot' AND t.at BETWEEN since AND until)",
    "SELECT printf('the slowest: %s %s: %s after %d ms', l.kind, l.a || ' ' || l.b, w.ticker, w.ms) FROM wait w JOIN "
    "line l"
    " ON l.at = w.died AND l.kind = w.kind WHERE w.ms IS NOT NULL ORDER BY w.ms DESC LIMIT 1",
    "SELECT printf('an asynchronous standby: %d starts and %d messages that were accepted in the last %d ms before are"
    " gone with the server', (SELECT count(*) FROM line WHERE kind = 'ok-start' AND at BETWEEN since AND until AND NOT"
    " EXISTS (SELECT 1 FROM instance WHERE id = a)), (SELECT count(*) FROM line WHERE kind = 'ok-send' AND at BETWEEN"
    " since AND until AND NOT EXISTS (SELECT 1 FROM received WHERE instance = a AND message = b) AND NOT EXISTS "
    "(SELECT 1"
    " FROM letter WHERE instance = a AND message = b)), until - since) FROM lost",
};

void report(chaos *c, sqlite3 *db) {
    char *why = NULL;
    if (sqlite3_exec(db, views_sql, NULL, NULL, &why) != SQLITE_OK) printf("# no report: %s\n", why);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        sqlite3_stmt *query = NULL;
        if (sqlite3_prepare_v2(db, lines[i], -1, &query, NULL) != SQLITE_OK) printf("# %s\n", sqlite3_errmsg(db));
        while (query != NULL && sqlite3_step(query) == SQLITE_ROW)
            printf("# %s\n", (const char *)sqlite3_column_text(query, 0));
        sqlite3_finalize(query);
    }
    printf("# %zu sessions terminated\n", c->terminated);
}
