/*
 * pg_conn.c: connections: opening, settings, the pool, and what an error of the server means.
 */
#include "base/assert.h"
#include "provider/postgres/pg_internal.h"

#include <durite/log.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- errors ------------------------------------------------------------------------------------------------------ */

typedef struct state_rule {
    const char *prefix; /* of the SQLSTATE; the longest match comes first */
    dur_code code;
    bool retryable;
} state_rule;

static const state_rule rules[] = {
    { "40001", DUR_EBUSY, true },        /* serialization failure */
    { "40P01", DUR_EBUSY, true },        /* deadlock: we were the victim */
    { "55P03", DUR_EBUSY, true },        /* lock not available */
    { "57014", DUR_EBUSY, true },        /* cancelled, statement timeout */
    { "53100", DUR_EFULL, true },        /* disk full */
    { "53", DUR_EBUSY, true },           /* too many connections, out of memory */
    { "57P", DUR_EUNAVAILABLE, true },   /* shutdown, crash, starting up, dropped database */
    { "08", DUR_EUNAVAILABLE, true },    /* connection */
    { "25006", DUR_EUNAVAILABLE, true }, /* read-only: a standby; after a failover we find the primary */
    { "25P03", DUR_EUNAVAILABLE, true }, /* idle in transaction: the session was ended */
    { "0A000", DUR_EBUSY, true },        /* cached plan must not change result type: prepared anew */
    { "26000", DUR_EBUSY, true },        /* the prepared statement is gone: prepared anew */
    { "42P05", DUR_EBUSY, true },        /* it is there already: prepared anew */
    { "42P01", DUR_EUNAVAILABLE, true }, /* a table is missing: the schema is being made again */
    { "3F000", DUR_EUNAVAILABLE, true }, /* and so is the schema */
    { "28", DUR_EPERM, false },          /* password, role */
    { "42501", DUR_EPERM, false },       /* rights */
    { "3D000", DUR_ENOTFOUND, false },   /* no such database */
    { "23505", DUR_ECONFLICT, false },   { "22021", DUR_EINVAL, false }, /* not valid in the server's encoding, a NUL in
                                                                            a text */
    { "22P05", DUR_EINVAL, false },      { "XX001", DUR_ECORRUPT, false }, { "XX002", DUR_ECORRUPT, false },
    { "58030", DUR_EIO, true },          { "", DUR_EIO, false },
};

/* One line, without what libpq repeats about the connection: a message may hold host and user, never a password. */
int dur__pg_error(dur_error *err, const char *op, const char *sqlstate, const char *message) {
    const char *state = sqlstate != NULL && sqlstate[0] != '\0' ? sqlstate : "08006";
    const state_rule *rule = rules;
    char line[400] = "";
    size_t size = 0;
    while (strncmp(state, rule->prefix, strlen(rule->prefix)) != 0)
        rule++;
    for (const char *at = message != NULL ? message : ""; *at != '\0' && size + 1 < sizeof(line); at++)
        line[size++] = *at == '\n' ? ' ' : *at;
    while (size > 0 && line[size - 1] == ' ')
        size--;
    line[size] = '\0';
    return dur_error_set(err, rule->code, rule->retryable, op, "%s (SQLSTATE %s)", line, state);
}

int dur__pg_error_of(const dur__pg_conn *conn, dur_error *err, const char *op, const char *sqlstate,
                     const char *message) {
    dur_error said = DUR_ERROR_INIT;
    int code = dur__pg_error(&said, op, sqlstate, message);
    const char *user = conn->pg != NULL ? PQuser(conn->pg) : NULL, *schema = conn->store->schema;
    if (code == DUR_EPERM)
        return dur_error_set(
            err, DUR_EPERM, false, op,
            "%.150s: role \"%.60s\" needs USAGE on schema \"%.60s\", SELECT, INSERT, UPDATE, DELETE on "
            "its TABLES and USAGE, SELECT on its SEQUENCES (GRANT … ON ALL … IN SCHEMA)",
            said.message, user != NULL ? user : "", schema);
    if (conn->foreign && sqlstate != NULL && strcmp(sqlstate, "25006") == 0)
        return dur_error_set(err, DUR_ESTATE, false, op, "the transaction is read only: %.150s", said.message);
    bool unprepared = sqlstate != NULL && (strcmp(sqlstate, "26000") == 0 || strcmp(sqlstate, "42P05") == 0);
    if (unprepared && conn->store->session_pooler)
        return dur_error_set(err, said.code, said.retryable, op,
                             "%.150s: the session is shared; pooler=session needs a pooler in session mode, for one in "
                             "transaction mode say pooler=transaction",
                             said.message);
    if (err != NULL) *err = said;
    return code;
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static bool hands_on(const char *encoding) { /* SQL_ASCII: bytes, which nobody changes on their way */
    return encoding == NULL || strcmp(encoding, "UTF8") == 0 || strcmp(encoding, "SQL_ASCII") == 0;
}

/* What is UTF-8 here is UTF-8 there: otherwise the server would convert it, to other letters or to none. */
int dur__pg_check_encoding(const PGconn *pg, const char *op, dur_error *err) {
    const char *server = PQparameterStatus(pg, "server_encoding"), *client = PQparameterStatus(pg, "client_encoding");
    if (!hands_on(server))
        return dur_error_set(err, DUR_EINVAL, false, op,
                             "database \"%.60s\" has the encoding %.30s, which lacks letters that a text may have: "
                             "CREATE DATABASE … TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C' makes "
                             "one that has them",
                             PQdb(pg), server);
    if (hands_on(client) || (server != NULL && strcmp(server, "SQL_ASCII") == 0)) return DUR_OK;
    return dur_error_set(err, DUR_EINVAL, false, op,
                         "client_encoding is %.30s: the server would take our UTF-8 for that; SET client_encoding = "
                         "'UTF8'",
                         client);
}

/* ---- one connection ---------------------------------------------------------------------------------------------- */

dur__pg_conn *dur__pg_conn_new(dur__pg *store) {
    dur__pg_conn *conn = dur__xcalloc(1, sizeof(*conn));
    conn->store = store;
    return conn;
}

/* In session mode a pooler lends it to somebody else when we have gone. */
static void leave_pooled_session(dur__pg_conn *conn) {
    if (!conn->store->session_pooler || PQstatus(conn->pg) != CONNECTION_OK ||
        PQtransactionStatus(conn->pg) != PQTRANS_IDLE || PQpipelineStatus(conn->pg) != PQ_PIPELINE_OFF)
        return; /* the pooler sees that it is broken, and ends it */
    conn->setting_up = true;
    PQclear(dur__pg_exec(conn, "DISCARD ALL"));
    conn->setting_up = false;
}

void dur__pg_disconnect(dur__pg_conn *conn) {
    if (conn->foreign) return; /* its owner sees that it is broken */
    if (conn->pg != NULL) {
        dur__pg_session_known(conn->store, conn->backend, false);
        leave_pooled_session(conn);
        PQfinish(conn->pg);
    }
    conn->pg = NULL;
    dur__map_free(&conn->prepared);
    memset(&conn->prepared, 0, sizeof(conn->prepared));
    conn->next_name = 0;
    conn->batches = conn->plan_again_at = 0;
}

void dur__pg_conn_free(dur__pg_conn *conn) {
    if (conn == NULL) return;
    dur__pg_disconnect(conn);
    dur__free(conn);
}

/* A pooler's last word is not the server's: it does not know what the server has done, and names no place in its
   source. */
bool dur__pg_note_farewell(dur__pg_conn *conn, const PGresult *result) {
    const char *severity = result != NULL ? PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED) : NULL;
    if (severity == NULL && result != NULL) severity = PQresultErrorField(result, PG_DIAG_SEVERITY); /* of poolers */
    if (severity == NULL || (strcmp(severity, "FATAL") != 0 && strcmp(severity, "PANIC") != 0)) return false;
    bool ours = !conn->store->pooler && !conn->store->session_pooler && !conn->foreign;
    if (ours && PQresultErrorField(result, PG_DIAG_SOURCE_FUNCTION) != NULL) conn->farewell = true;
    return true;
}

/* One that comes while nothing is asked is a notice to libpq. */
static void ignore_notice(void *arg, const PGresult *result) {
    (void)dur__pg_note_farewell(arg, result);
}

/* The server may have gone while nobody looked: an end of file waits in the socket. */
static bool alive(const dur__pg_conn *conn) {
    if (conn->pg == NULL || PQstatus(conn->pg) != CONNECTION_OK || PQtransactionStatus(conn->pg) != PQTRANS_IDLE)
        return false;
    struct pollfd look = { .fd = PQsocket(conn->pg), .events = POLLIN };
    for (int i = 0; i < 4; i++) { /* a farewell is followed by the end of the stream */
        if (poll(&look, 1, 0) <= 0) return true;
        if (PQconsumeInput(conn->pg) != 1 || PQstatus(conn->pg) != CONNECTION_OK) return false;
    }
    return true;
}

/* What became of a text; takes its result. */
static int outcome_of(const dur__pg_conn *conn, PGresult *result, dur_error *err) {
    ExecStatusType status = PQresultStatus(result);
    int code = DUR_OK;
    if (dur__pg_is_late(conn, result))
        code = dur__pg_late(err, "postgres.session");
    else if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        code = dur__pg_error_of(conn, err, "postgres.session", PQresultErrorField(result, PG_DIAG_SQLSTATE),
                                result != NULL ? PQresultErrorMessage(result) : PQerrorMessage(conn->pg));
    PQclear(result);
    return code;
}

int dur__pg_simple(dur__pg_conn *conn, const char *sql, dur_error *err) {
    return outcome_of(conn, dur__pg_exec(conn, sql), err);
}

/*
 * Settings of our sessions, whatever the role or the database says.  Generic plans save planning in every call, and are
 * made while the tables are small: then a scan of everything looks cheap, alone or as one side of a hash or merge join,
 * and later walks over all that has become dead.  So every statement goes by an index, row by row (which also marks
 * dead entries, as a bitmap does not).  A lock that is not to be had is an error after a while (lock_timeout); how long
 * a statement takes is no error, or what must be done at once, a take-over say, would never be done. A transaction that
 * its client left open must not keep the others waiting, nor one whose machine is gone: then the server waits for the
 * rest of it until it notices, by default for two hours.
 */
typedef struct setting {
    const char *name, *value;
} setting;

static const setting settings[] = {
    { "enable_seqscan", "off" },
    { "enable_hashjoin", "off" },
    { "enable_mergejoin", "off" },
    { "enable_bitmapscan", "off" },
    { "enable_indexscan", "on" },
    { "enable_nestloop", "on" },
    { "plan_cache_mode", "force_generic_plan" },
    { "jit", "off" },
    { "search_path", "" },
    { "client_min_messages", "warning" },
    { "statement_timeout", "0" },
    { "idle_in_transaction_session_timeout", "10s" },
    { "tcp_keepalives_idle", "10" },
    { "tcp_keepalives_interval", "3" },
    { "tcp_keepalives_count", "3" },
    { "default_transaction_isolation", "read committed" },
    { "default_transaction_read_only", "off" },
    { "default_transaction_deferrable", "off" },
};
enum { SETTINGS = sizeof(settings) / sizeof(settings[0]) };

static const char *lock_wait(const dur__pg_conn *conn) {
    return conn->hurries ? DUR__PG_LOCK_WAIT_HURRIED : DUR__PG_LOCK_WAIT;
}

static void add_option(dur__buf *out, const char *name, const char *value) {
    dur__buf_format(out, " -c %s=", name);
    for (; *value != '\0'; value++) {
        if (*value == ' ' || *value == '\\') dur__buf_char(out, '\\');
        dur__buf_char(out, *value);
    }
}

/*
 * They go with the request for a session, so they are those of a session that is made for us, or there is none: what
 * is SET in a session that a pooler lends would stay there for other applications.  The mark tells whether the session
 * that we get is the one that we asked for: poolers can be told to ignore options.  Behind those of the caller, so that
 * ours count.
 */
static void startup_options(const dur__pg_conn *conn, const char *mark, dur__buf *out) {
    if (conn->store->given_options != NULL) dur__buf_text(out, conn->store->given_options);
    for (size_t i = 0; i < SETTINGS; i++)
        add_option(out, settings[i].name, settings[i].value);
    add_option(out, "lock_timeout", lock_wait(conn));
    int version = atomic_load(&conn->store->server_version);
    if (version >= 140000) add_option(out, "idle_session_timeout", "0");
    if (version >= 170000) add_option(out, "transaction_timeout", "0");
    add_option(out, "durite.session", mark);
}

/* Behind a pooler in session mode the session is ours until we leave. */
static void add_settings(const dur__pg_conn *conn, dur__buf *sql) {
    for (size_t i = 0; i < SETTINGS; i++)
        dur__buf_format(sql, "SET %s = '%s'; ", settings[i].name, settings[i].value);
    dur__buf_format(sql, "SET lock_timeout = %s; ", lock_wait(conn));
}

#define MARK_SIZE 24

/* In one round trip: the settings that depend on the server's version, the sign of life, and LISTEN (pg_notify.c). */
static int prepare_session(dur__pg_conn *conn, const char *mark, dur_error *err) {
    dur__buf sql = { 0 };
    if (conn->store->pooler) return DUR_OK;
    if (conn->store->session_pooler)
        add_settings(conn, &sql);
    else /* what follows it is not done in a session of somebody else */
        dur__buf_format(&sql, "SELECT 1 / (current_setting('durite.session', true) IS NOT DISTINCT FROM '%s')::int; ",
                        mark);
    if (PQserverVersion(conn->pg) >= 140000) dur__buf_text(&sql, "SET idle_session_timeout = 0; ");
    if (PQserverVersion(conn->pg) >= 170000) dur__buf_text(&sql, "SET transaction_timeout = 0; ");
    if (conn->owner_key != 0)
        dur__buf_format(&sql, "SELECT pg_advisory_lock_shared(%lld); ", (long long)conn->owner_key);
    if (conn->want_listen) dur__buf_format(&sql, "LISTEN %s", conn->store->channel);
    PGresult *result = dur__pg_exec(conn, sql.data);
    dur__buf_free(&sql);
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    bool not_ours = state != NULL && strcmp(state, "22012") == 0;
    int code = outcome_of(conn, result, err);
    return !not_ours ? code
                     : dur_error_set(err, DUR_EINVAL, false, "postgres.connect",
                                     "startup options do not reach the server: behind a pooler say pooler=transaction "
                                     "or pooler=session");
}

static void open_session(dur__pg_conn *conn, const char *mark) {
    const dur__pg *store = conn->store;
    dur__buf options = { 0 };
    size_t count = 0;
    while (store->keywords[count] != NULL)
        count++;
    const char **keywords = dur__xcalloc(count + 2, sizeof(*keywords));
    const char **values = dur__xcalloc(count + 2, sizeof(*values));
    for (size_t i = 0; i < count; i++) {
        keywords[i] = store->keywords[i];
        values[i] = store->values[i];
    }
    if (!store->pooler && !store->session_pooler)
        startup_options(conn, mark, &options);
    else if (store->given_options != NULL)
        dur__buf_text(&options, store->given_options);
    if (options.size > 0) {
        keywords[count] = "options";
        values[count] = options.data;
    }
    dur__pg_open_session(conn, keywords, values);
    dur__buf_free(&options);
    dur__free(keywords);
    dur__free(values);
}

/* libpq gives no SQLSTATE for a refused connection: a wrong password is not worth a second try. */
static int refused_session(const PGconn *pg, dur_error *err) {
    const char *why = PQerrorMessage(pg);
    if (strstr(why, "startup parameter") != NULL)
        return dur_error_set(err, DUR_EINVAL, false, "postgres.connect",
                             "a pooler refuses startup options: say pooler=transaction or pooler=session");
    bool refused = PQconnectionNeedsPassword(pg) || strstr(why, "password authentication failed") != NULL ||
                   (strstr(why, "role \"") != NULL && strstr(why, "does not exist") != NULL) ||
                   strstr(why, "no pg_hba.conf entry") != NULL;
    bool missing = strstr(why, "database \"") != NULL && strstr(why, "does not exist") != NULL;
    return dur__pg_error(err, "postgres.connect", refused ? "28000" : missing ? "3D000" : "08001", why);
}

static int try_connect(dur__pg_conn *conn, dur_error *err) {
    dur__pg *store = conn->store;
    char mark[MARK_SIZE];
    dur__pg_disconnect(conn);
    snprintf(mark, sizeof(mark), "%016llx", (unsigned long long)dur__pg_random_holder(store));
    open_session(conn, mark);
    if (conn->pg == NULL) return dur_error_set(err, DUR_ENOMEM, true, "postgres.connect", "no memory for a connection");
    int code = DUR_OK;
    if (PQstatus(conn->pg) != CONNECTION_OK) {
        bool asked = PQstatus(conn->pg) != CONNECTION_BAD;
        code = asked ? dur__pg_late(err, "postgres.connect") : refused_session(conn->pg, err);
    } else {
        conn->farewell = false;
        PQsetNoticeReceiver(conn->pg, ignore_notice, conn);
        atomic_store(&store->server_version, PQserverVersion(conn->pg));
        code = dur__pg_check_encoding(conn->pg, "postgres.connect", err);
        if (code == DUR_OK) code = prepare_session(conn, mark, err);
    }
    if (code == DUR_OK) {
        conn->backend = PQbackendPID(conn->pg);
        conn->sessions++;
        if (!store->pooler) dur__pg_session_known(store, conn->backend, true);
    }
    if (code != DUR_OK) dur__pg_disconnect(conn);
    return code;
}

/* Settings that only later versions have go with the second request: the first says which version it is, and may have
   been ended for being idle. */
int dur__pg_connect(dur__pg_conn *conn, dur_error *err) {
    if (alive(conn)) return DUR_OK;
    if (dur__pg_in_time(UINT64_MAX) == 0) return dur__pg_late(err, "postgres.connect"); /* or waits add up */
    bool first = atomic_load(&conn->store->server_version) == 0;
    conn->setting_up = true;
    int code = try_connect(conn, err);
    if (code == DUR_EUNAVAILABLE && first && atomic_load(&conn->store->server_version) != 0)
        code = try_connect(conn, err);
    conn->setting_up = false;
    return code;
}

/* Behind a pooler the session's settings are not ours, and its batches do not say them again. */
int dur__pg_begin(dur__pg_conn *conn, dur_error *err) {
    return dur__pg_simple(conn,
                          "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL statement_timeout = 0; SET LOCAL"
                          " lock_timeout = " DUR__PG_LOCK_WAIT,
                          err);
}

int dur__pg_end(dur__pg_conn *conn, const char *op, int code, dur_error *err) {
    if (code != DUR_OK) {
        if (conn->pg != NULL && dur__pg_simple(conn, "ROLLBACK", NULL) != DUR_OK) dur__pg_disconnect(conn);
        return code;
    }
    code = dur__pg_simple(conn, "COMMIT", err);
    if (code == DUR_OK || PQtransactionStatus(conn->pg) == PQTRANS_IDLE) return code; /* or the server said no */
    dur__pg_disconnect(conn);
    return dur_error_set(err, DUR_EUNKNOWN, true, op,
                         "the connection was lost while committing; it may have happened or not");
}

static const char end_session_sql[] =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $2::bigint AND usename = current_user AND"
    " pid <> pg_backend_pid()";

/* The lost session may still be at work, and commit later than we look. */
int dur__pg_end_session(dur__pg_conn *conn, int backend, dur_error *err) {
    dur__pg_args args;
    dur__pg_batch batch;
    if (conn->store->pooler) return DUR_OK; /* its number says nothing: the pooler has rolled back by itself */
    dur__pg_batch_begin(&batch, conn, false);
    dur__pg_args_begin(conn->store, &args);
    dur__pg_i64(&args, backend);
    int at = dur__pg_batch_add(&batch, end_session_sql, &args);
    int code = dur__pg_batch_run(&batch, "postgres.recover", err);
    if (code == DUR_OK && PQntuples(batch.results[at]) > 0)
        code = dur_error_set(err, DUR_EBUSY, true, "postgres.recover", "the session that was lost is still ending");
    dur__pg_batch_end(&batch);
    return code;
}

/* ---- the pool ---------------------------------------------------------------------------------------------------- */

#define POOL_WAIT_US 1000000u /* then it is said */
#define POOL_SAY_AGAIN_US 30000000u

/* All of them are in use: too few, or all wait for the same. */
static void wait_for_one(dur__pg *store, uint64_t since_us) {
    if (dur__cond_wait_us(&store->freed, &store->mutex, dur__pg_in_time(POOL_WAIT_US))) return;
    uint64_t now_us = dur__monotonic_us();
    if (now_us < store->pool_say_us || now_us - since_us < POOL_WAIT_US) return;
    store->pool_say_us = now_us + POOL_SAY_AGAIN_US;
    char line[240];
    snprintf(line, sizeof(line),
             "a call has waited %llu ms for a connection: all of the pool (pool=%zu) are in use; pg_stat_activity says "
             "what they wait for, and pool=N gives the store more",
             (unsigned long long)((now_us - since_us) / 1000), store->pool_max);
    dur__mutex_unlock(&store->mutex); /* a sink is somebody else's code */
    dur_log_say(DUR_LOG_WARN, "durite::provider", line);
    dur__mutex_lock(&store->mutex);
}

int dur__pg_borrow(dur__pg *store, dur__pg_conn **out, dur_error *err) {
    uint64_t since_us = dur__monotonic_us();
    dur__mutex_lock(&store->mutex);
    while (dur__list_empty(&store->idle) && store->opened >= store->pool_max) {
        if (dur__pg_in_time(UINT64_MAX) == 0) {
            dur__mutex_unlock(&store->mutex);
            return dur_error_set(err, DUR_EUNAVAILABLE, true, "postgres.pool",
                                 "no connection of the pool (pool=%zu) was free in the time given", store->pool_max);
        }
        wait_for_one(store, since_us);
    }
    dur__link *link = store->idle.prev != &store->idle ? store->idle.prev : NULL; /* the warmest */
    dur__pg_conn *conn = NULL;
    if (link != NULL) {
        dur__list_unlink(link);
        conn = DUR__CONTAINER(link, dur__pg_conn, link);
    } else {
        store->opened++;
    }
    uint64_t owner_timeout_ms = dur__pg_owners_timeout_ms(store);
    dur__mutex_unlock(&store->mutex);
    if (conn == NULL) conn = dur__pg_conn_new(store);
    dur__pg_set_patience(conn, owner_timeout_ms);
    int code = dur__pg_connect(conn, err);
    if (code != DUR_OK) {
        dur__pg_return(conn);
        return code;
    }
    *out = conn;
    return DUR_OK;
}

void dur__pg_return(dur__pg_conn *conn) {
    dur__pg *store = conn->store;
    dur__mutex_lock(&store->mutex);
    dur__list_push(&store->idle, &conn->link);
    dur__cond_signal(&store->freed);
    dur__mutex_unlock(&store->mutex);
}
