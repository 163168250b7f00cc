/*
 * nemesis_logical.c: logical replication of all tables, switched on under load; what the subscriber has is compared
 * when nothing runs any more.  The subscriber is another database of the same server.
 */
#include "chaos.h"
#include "chaos_flow.h"

#include <stdio.h>
#include <string.h>

static PGconn *connect_copy(const chaos *c) {
    char text[300];
    snprintf(text, sizeof(text), "host=%s user=durite dbname=copy", c->servers[c->primary].socket);
    return PQconnectdb(text);
}

static bool make_tables(const chaos *c) {
    char url[400];
    snprintf(url, sizeof(url), "postgres:///copy?host=%s&user=durite&schema=%s", c->servers[c->primary].socket,
             CHAOS_SCHEMA);
    dur_provider *store = open_somehow(url);
    dur_provider_close(store);
    return store != NULL;
}

const char *nemesis_logical(chaos *c) {
    PGconn *here = admin_begin(c);
    const char *wrong = NULL;
    if (sql_number(here, "CREATE DATABASE copy") < 0 || !make_tables(c)) wrong = "no second database";
    PGconn *there = connect_copy(c);
    if (wrong == NULL &&
        (sql_number(there, "TRUNCATE %s.dur_meta", CHAOS_SCHEMA) < 0 ||
         sql_number(here, "CREATE PUBLICATION everything FOR ALL TABLES") < 0 ||
         sql_number(here, "SELECT count(*) FROM pg_create_logical_replication_slot('copying', 'pgoutput')") < 0 ||
         sql_number(
             there,
             "CREATE SUBSCRIPTION copying CONNECTION 'host=%s user=durite dbname=postgres' PUBLICATION everything"
             " WITH (create_slot = false, slot_name = copying)",
             c->servers[c->primary].socket) < 0))
        wrong = "no subscription";
    PQfinish(there);
    PQfinish(here);
    c->copying = wrong == NULL;
    if (wrong == NULL) nap(c, 8000);
    return wrong;
}

/* All rows of a table as one number. */
static bool same_content(PGconn *here, PGconn *there, const char *table) {
    char sql[400], mine[200], other[200];
    snprintf(sql, sizeof(sql),
             "SELECT count(*) || ' rows ' || coalesce(md5(string_agg(md5(t::text), '' ORDER BY md5(t::text))), '') FROM"
             " %s.%s t",
             CHAOS_SCHEMA, table);
    return sql_try(here, mine, sizeof(mine), sql) && sql_try(there, other, sizeof(other), sql) &&
           strcmp(mine, other) == 0;
}

void logical_compare(chaos *c) {
    if (!c->copying) return;
    PGconn *here = admin_begin(c), *there = connect_copy(c);
    PGresult *tables = PQexec(here, "SELECT tablename FROM pg_tables WHERE schemaname = '" CHAOS_SCHEMA "'");
    if (PQntuples(tables) == 0) ledger_fault("no tables to compare");
    for (int i = 0; i < PQntuples(tables); i++) {
        const char *table = PQgetvalue(tables, i, 0);
        uint64_t end_ms = now_ms() + 120000;
        while (!same_content(here, there, table) && now_ms() < end_ms)
            pause_ms(200);
        if (now_ms() >= end_ms) ledger_fault("the subscriber has another %s", table);
    }
    printf("# %d tables compared with their logical copy\n", PQntuples(tables));
    PQclear(tables);
    (void)sql_number(there, "DROP SUBSCRIPTION copying");
    PQfinish(there);
    PQfinish(here);
}
