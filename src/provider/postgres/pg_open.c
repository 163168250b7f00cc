/*
 * pg_open.c: opening a store by URL or options, closing it, and the table of methods.
 */
#include "provider/postgres/pg_doubts.h"
#include "provider/postgres/pg_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NAME_MAX_BYTES 63 /* the server cuts longer names silently: two tenants would meet in one schema */

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static int bad(dur_error *err, const char *what) {
    return dur_error_set(err, DUR_EINVAL, false, "postgres.open", "%s", what);
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* %XX of a URL; false when it is malformed or names a NUL. */
static bool decode(dur__buf *out, const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (text[i] != '%') {
            dur__buf_char(out, text[i]);
            continue;
        }
        int high = i + 2 < size ? hex_digit(text[i + 1]) : -1;
        int low = i + 2 < size ? hex_digit(text[i + 2]) : -1;
        if (high < 0 || low < 0 || high * 16 + low == 0) return false;
        dur__buf_char(out, (char)(high * 16 + low));
        i += 2;
    }
    return true;
}

/* One parameter of ours: 1 taken, 0 not ours, -1 wrong (err is set). */
static int take_parameter(dur_postgres_options *options, dur__buf *schema, const char *name, size_t name_size,
                          const char *value, size_t value_size, dur_error *err) {
#define IS(text) (name_size == strlen(text) && memcmp(name, text, name_size) == 0)
#define SAYS(text) (value_size == strlen(text) && memcmp(value, text, value_size) == 0)
    uint64_t number;
    if (IS("schema")) {
        dur__buf_clear(schema);
        if (!decode(schema, value, value_size)) return bad(err, "schema= is not well-formed"), -1;
        options->schema = dur__buf_str(schema);
    } else if (IS("pool")) {
        if (!dur__u64_parse(value, value_size, &number) || number == 0 || number > 1000)
            return bad(err, "pool= is a number from 1 to 1000"), -1;
        options->pool = (uint32_t)number;
    } else if (IS("pooler")) {
        if (!SAYS("transaction") && !SAYS("session") && !SAYS("none"))
            return bad(err, "pooler= is none, session or transaction"), -1;
        options->pooler = SAYS("transaction") ? DUR_POSTGRES_POOLER_TRANSACTION
                          : SAYS("session")   ? DUR_POSTGRES_POOLER_SESSION
                                              : DUR_POSTGRES_POOLER_NONE;
    } else if (IS("poll")) {
        if (!SAYS("long") && !SAYS("short")) return bad(err, "poll= is short or long"), -1;
        options->long_poll = SAYS("long");
    } else if (IS("clock")) {
        if (!SAYS("caller") && !SAYS("server")) return bad(err, "clock= is server or caller"), -1;
        options->caller_clock = SAYS("caller");
    } else if (IS("migrate")) {
        if (!SAYS("0") && !SAYS("1")) return bad(err, "migrate= is 0 or 1"), -1;
        options->must_exist = SAYS("0");
    } else if (IS("temporary")) {
        if (!SAYS("0") && !SAYS("1")) return bad(err, "temporary= is 0 or 1"), -1;
        options->temporary = SAYS("1");
    } else {
        return 0;
    }
    return 1;
#undef IS
#undef SAYS
}

/* A name that libpq would not take is told, unless the query may be a part of something secret: an unescaped "?" in a
   password makes one. */
static int check_known(const char *query, const char *name, size_t size, dur_error *err) {
    PQconninfoOption *all = PQconndefaults();
    bool known = all == NULL || (size == 3 && memcmp(name, "ssl", 3) == 0); /* of JDBC; libpq takes it, too */
    for (const PQconninfoOption *at = all; !known && at->keyword != NULL; at++)
        known = strlen(at->keyword) == size && memcmp(at->keyword, name, size) == 0;
    if (all != NULL) PQconninfoFree(all);
    if (known || strchr(query, '@') != NULL || memchr(name, '%', size) != NULL) return DUR_OK;
    return dur_error_set(err, DUR_EINVAL, false, "postgres.open", "there is no parameter \"%.*s\"", (int)size, name);
}

/* Copy the URL without our parameters, which go into options. */
static int strip_url(const char *url, dur__buf *out, dur_postgres_options *options, dur__buf *schema, dur_error *err) {
    const char *query = strchr(url, '?');
    if (query == NULL) {
        dur__buf_text(out, url);
        return DUR_OK;
    }
    dur__buf_add(out, url, (size_t)(query - url));
    char separator = '?';
    for (const char *at = query + 1; *at != '\0';) {
        size_t size = strcspn(at, "&");
        const char *equals = memchr(at, '=', size);
        size_t name_size = equals != NULL ? (size_t)(equals - at) : size;
        const char *value = equals != NULL ? equals + 1 : at + size;
        int taken = take_parameter(options, schema, at, name_size, value, (size_t)(at + size - value), err);
        if (taken == 0 && size > 0 && check_known(query, at, name_size, err) != DUR_OK) taken = -1;
        if (taken < 0) return DUR_EINVAL;
        if (taken == 0 && size > 0) {
            dur__buf_char(out, separator);
            dur__buf_add(out, at, size);
            separator = '&';
        }
        at += size + (at[size] == '&' ? 1 : 0);
    }
    return DUR_OK;
}

/* ---- the store --------------------------------------------------------------------------------------------------- */

static int64_t hash64(const char *text, uint64_t hash) { /* FNV-1a */
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return (int64_t)hash;
}

int64_t dur__pg_owner_key(const dur__pg *store, const char *owner) {
    return hash64(owner, (uint64_t)store->schema_key) &
           ~(int64_t)1; /* the lowest bit tells two locks of an owner apart */
}

static int check_schema(const char *schema, dur_error *err) {
    size_t where = 0;
    size_t size = strlen(schema);
    if (size == 0) return bad(err, "the schema's name is empty");
    if (size > NAME_MAX_BYTES)
        return dur_error_set(err, DUR_ELIMIT, false, "postgres.open", "the schema's name has %zu bytes, %d are allowed",
                             size, NAME_MAX_BYTES);
    if (!dur__utf8_valid(schema, size, &where))
        return dur_error_set(err, DUR_EINVAL, false, "postgres.open", "the schema's name is not UTF-8 at byte %zu",
                             where);
    if (strncmp(schema, "pg_", 3) == 0) return bad(err, "schemas that begin with pg_ belong to the server");
    return DUR_OK;
}

static void name_schema(dur__pg *store, const char *schema) {
    store->schema = dur__xstrdup(schema);
    dur__buf_char(&store->prefix, '"');
    for (const char *at = schema; *at != '\0'; at++) {
        if (*at == '"') dur__buf_char(&store->prefix, '"');
        dur__buf_char(&store->prefix, *at);
    }
    dur__buf_text(&store->prefix, "\".");
    store->schema_key = hash64(schema, 14695981039346656037u);
    snprintf(store->channel, sizeof(store->channel), "durite_%016llx", (unsigned long long)store->schema_key);
}

static const char *value_of(const PQconninfoOption *all, const char *keyword) {
    for (const PQconninfoOption *at = all; at->keyword != NULL; at++)
        if (strcmp(at->keyword, keyword) == 0) return at->val;
    return NULL;
}

/* Of the URL, or where libpq would take them from: PGOPTIONS, a service file. */
static void keep_options(dur__pg *store, const PQconninfoOption *all) {
    PQconninfoOption *defaults = PQconndefaults();
    const char *given = value_of(all, "options");
    if (given == NULL && defaults != NULL) given = value_of(defaults, "options");
    if (given != NULL && given[0] != '\0') store->given_options = dur__xstrdup(given);
    if (defaults != NULL) PQconninfoFree(defaults);
}

/* What the caller gave, and what we want where the caller said nothing: a dead peer is to be noticed. */
static void name_connection(dur__pg *store, const PQconninfoOption *all) {
    static const char *const ours[][2] = {
        { "client_encoding", "UTF8" }, { "keepalives", "1" },
        { "keepalives_idle", "10" },   { "keepalives_interval", "3" },
        { "keepalives_count", "3" },   { "tcp_user_timeout", "20000" },
        { "connect_timeout", "10" },   { "application_name", "durite" },
    };
    size_t count = 0, room = sizeof(ours) / sizeof(ours[0]) + 1;
    for (const PQconninfoOption *at = all; at->keyword != NULL; at++)
        room++;
    store->keywords = dur__xcalloc(room, sizeof(char *));
    store->values = dur__xcalloc(room, sizeof(char *));
    for (const PQconninfoOption *at = all; at->keyword != NULL; at++) {
        if (at->val == NULL || strcmp(at->keyword, "options") == 0) continue;
        store->keywords[count] = dur__xstrdup(at->keyword);
        store->values[count++] = dur__xstrdup(at->val);
    }
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        if (value_of(all, ours[i][0]) != NULL) continue;
        store->keywords[count] = dur__xstrdup(ours[i][0]);
        store->values[count++] = dur__xstrdup(ours[i][1]);
    }
}

/* Two that a caller has named differently are two, though they may be one on the server.  Where each caller has a clock
   of its own every handle is one. */
static void name_identity(dur__pg *store, const PQconninfoOption *all) {
    static const char *const parts[] = { "service", "host", "hostaddr", "port", "dbname", "user" };
    dur__buf name = { 0 };
    if (store->caller_clock) dur__buf_format(&name, "%p ", (void *)store);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const char *value = value_of(all, parts[i]);
        dur__buf_format(&name, "%s=%s ", parts[i], value != NULL ? value : "");
    }
    dur__buf_text(&name, store->schema);
    store->identity = dur__xstrdup(dur__buf_str(&name));
    dur__buf_free(&name);
}

const char *dur__pg_births(dur_provider *self) {
    return dur__pg_of(self)->identity;
}

static int read_conninfo(dur__pg *store, const char *conninfo, dur_error *err) {
    char *why = NULL;
    PQconninfoOption *all = PQconninfoParse(conninfo, &why);
    if (all == NULL) {
        /* libpq's words may repeat a part of the URL, and with it a password */
        PQfreemem(why);
        return bad(err, "libpq does not understand the URL or its parameters");
    }
    name_connection(store, all);
    keep_options(store, all);
    name_identity(store, all);
    PQconninfoFree(all);
    return DUR_OK;
}

static void free_texts(char **texts) {
    for (size_t i = 0; texts != NULL && texts[i] != NULL; i++) {
        memset(texts[i], 0, strlen(texts[i])); /* one of them is the password */
        dur__free(texts[i]);
    }
    dur__free(texts);
}

/* In a forked child the sockets are the parent's: closing politely would end the parent's sessions. */
static void leave_sockets(dur__pg *store) {
    DUR__LIST_EACH(&store->idle, at) {
        const dur__pg_conn *conn = DUR__CONTAINER(at, dur__pg_conn, link);
        if (conn->pg != NULL) (void)close(PQsocket(conn->pg));
    }
}

static void store_close(dur_provider *self) {
    dur__pg *store = dur__pg_of(self);
    dur__link *link;
    dur__map_entry *entry;
    if (store->serial != dur__process_serial()) {
        leave_sockets(store);
        return; /* other threads of the parent may have held its mutex */
    }
    dur__pg_keepers_close(store);
    while ((link = dur__list_pop(&store->idle)) != NULL)
        dur__pg_conn_free(DUR__CONTAINER(link, dur__pg_conn, link));
    dur__pg_conn_free(store->listener);
    if (store->temporary) (void)dur__pg_drop_schema(store, NULL);
    dur_waker_free(store->reader_waker);
    dur__map_free(&store->watched);
    dur__map_free(&store->backends);
    for (size_t i = 0; (entry = dur__map_next(&store->sqls, &i)) != NULL;)
        dur__free(entry->value);
    dur__map_free(&store->sqls);
    dur__buf_free(&store->prefix);
    free_texts(store->keywords);
    free_texts(store->values);
    dur__free(store->given_options);
    dur__free(store->schema);
    dur__free(store->identity);
    dur__cond_destroy(&store->freed);
    dur__cond_destroy(&store->changed);
    dur__mutex_destroy(&store->mutex);
    dur__free(store);
}

static dur__pg *store_new(const dur_postgres_options *options) {
    dur__pg *store = dur__xcalloc(1, sizeof(*store));
    store->base.methods = options->caller_clock ? &dur__pg_caller_methods : &dur__pg_methods;
    store->pooler = options->pooler == DUR_POSTGRES_POOLER_TRANSACTION;
    store->session_pooler = options->pooler == DUR_POSTGRES_POOLER_SESSION;
    store->long_poll = options->long_poll;
    store->must_exist = options->must_exist;
    store->caller_clock = options->caller_clock;
    store->world = options->world != NULL ? options->world : dur_world_real();
    store->pool_max = options->pool > 0 ? options->pool : DUR__PG_DEFAULT_POOL;
    store->serial = dur__process_serial();
    dur__mutex_init(&store->mutex);
    dur__cond_init(&store->freed);
    dur__cond_init(&store->changed);
    store->reader_waker = dur_waker_new();
    dur__list_init(&store->idle);
    dur__list_init(&store->lanes);
    dur__list_init(&store->watches);
    dur__list_init(&store->keepers);
    return store;
}

int dur_postgres_open(dur_provider **out, const dur_postgres_options *options, dur_error *err) {
    dur_postgres_options all = { .size = sizeof(all) };
    if (out == NULL) return bad(err, "out is required");
    *out = NULL;
    if (options == NULL || options->conninfo == NULL) return bad(err, "conninfo is required");
    size_t size = options->size != 0 && options->size < sizeof(all) ? options->size : sizeof(all);
    memcpy(&all, options, size); /* an older caller's options are shorter */
    const char *schema = all.schema != NULL ? all.schema : "public";
    if ((unsigned)all.pooler > DUR_POSTGRES_POOLER_TRANSACTION) return bad(err, "pooler is not one that there is");
    int code = check_schema(schema, err);
    if (code != DUR_OK) return code;
    if (all.temporary && strcmp(schema, "public") == 0)
        return bad(err, "a temporary store needs a schema of its own: everything in it is dropped");
    dur__pg *store = store_new(&all);
    if (store->reader_waker == NULL) {
        store_close(&store->base);
        return dur_error_set(err, DUR_ENOMEM, false, "postgres.open", "no descriptor for a waker");
    }
    name_schema(store, schema);
    code = read_conninfo(store, all.conninfo, err);
    if (code == DUR_OK && all.temporary) code = dur__pg_drop_schema(store, err);
    store->temporary = all.temporary && code == DUR_OK;
    if (code == DUR_OK) code = dur__pg_migrate(store, err);
    if (code != DUR_OK) {
        store_close(&store->base);
        return code;
    }
    *out = &store->base;
    return DUR_OK;
}

int dur_postgres_open_url(dur_provider **out, const char *url, const dur_open_options *options, dur_error *err) {
    dur_postgres_options ours = { .size = sizeof(ours) };
    dur__buf conninfo = { 0 }, schema = { 0 };
    if (out == NULL || url == NULL) return bad(err, "out and url are required");
    *out = NULL;
    if (strstr(url, "://") == NULL)
        return bad(err, "a URL is postgres://USER@HOST:PORT/DATABASE?schema=NAME; what is left out, libpq takes from "
                        "PGHOST, PGDATABASE … : postgres:// alone is such a URL");
    if (options != NULL) ours.world = options->world;
    int code = strip_url(url, &conninfo, &ours, &schema, err);
    ours.conninfo = dur__buf_str(&conninfo);
    if (code == DUR_OK) code = dur_postgres_open(out, &ours, err);
    if (conninfo.data != NULL) memset(conninfo.data, 0, conninfo.size);
    dur__buf_free(&conninfo);
    dur__buf_free(&schema);
    return code;
}

int dur_postgres_register(dur_error *err) {
    int code = dur_provider_register("postgres", dur_postgres_open_url, err);
    return code == DUR_OK ? dur_provider_register("postgresql", dur_postgres_open_url, err) : code;
}

/* ---- methods ----------------------------------------------------------------------------------------------------- */

#define METHODS(clock)                                                                                                 \
    {                                                                                                                  \
        .size = sizeof(dur_provider_methods), .abi = DUR_PROVIDER_ABI, .name = "postgres", .version = "1",             \
        .own_clock = (clock), .local_work = true, .close = store_close, .now_ms = dur__pg_now_ms,                      \
        .fetch_orchestration_item = dur__pg_fetch_orchestration_item,                                                  \
        .ack_orchestration_item = dur__pg_ack_orchestration_item,                                                      \
        .abandon_orchestration_item = dur__pg_abandon_orchestration_item,                                              \
        .renew_orchestration_item_lock = dur__pg_renew_orchestration_item_lock, .read = dur__pg_read,                  \
        .append = dur__pg_append, .enqueue_for_worker = dur__pg_enqueue_for_worker,                                    \
        .fetch_work_item = dur__pg_fetch_work_item, .ack_work_item = dur__pg_ack_work_item,                            \
        .renew_work_item_lock = dur__pg_renew_work_item_lock, .abandon_work_item = dur__pg_abandon_work_item,          \
        .renew_session_lock = dur__pg_renew_session_lock,                                                              \
        .cleanup_orphaned_sessions = dur__pg_cleanup_orphaned_sessions,                                                \
        .enqueue_for_orchestrator = dur__pg_enqueue_for_orchestrator, .get_custom_status = dur__pg_get_custom_status,  \
        .get_kv_value = dur__pg_get_kv_value, .get_kv_all_values = dur__pg_get_kv_all_values,                          \
        .lane_open = dur__pg_lane_open, .lane_round = dur__pg_lane_round, .lane_rest = dur__pg_lane_rest,              \
        .lane_rise = dur__pg_lane_rise, .lane_close = dur__pg_lane_close, .lane_messages = dur__pg_lane_messages,      \
        .lane_history = dur__pg_lane_history, .births = dur__pg_births, .fetch_turns = dur__pg_fetch_turns,            \
        .commit_turns = dur__pg_commit_turns, .fetch_works = dur__pg_fetch_works, .ack_works = dur__pg_ack_works,      \
        .check_works = dur__pg_check_works, .return_works = dur__pg_return_works, .alone_ended = dur__pg_alone_ended,  \
        .blame = dur__pg_blame, .owner_register = dur__pg_owner_register, .owner_beat = dur__pg_owner_beat,            \
        .owner_release = dur__pg_owner_release, .owner_holdings = dur__pg_owner_holdings,                              \
        .enqueue_start = dur__pg_enqueue_start, .enqueue_existing = dur__pg_enqueue_existing,                          \
        .watch_open = dur__pg_watch_open, .watch_wait = dur__pg_watch_wait, .watch_close = dur__pg_watch_close,        \
        .enqueue_starts = dur__pg_enqueue_starts, .watch_wake = dur__pg_watch_wake,                                    \
        .list_unserved = dur__pg_list_unserved, .get_instance_stats = dur__pg_get_instance_stats,                      \
        .list_instances = dur__pg_list_instances, .get_instance = dur__pg_get_instance,                                \
        .list_executions = dur__pg_list_executions, .get_system_metrics = dur__pg_get_system_metrics,                  \
        .get_queue_depths = dur__pg_get_queue_depths, .delete_instances = dur__pg_delete_instances,                    \
        .delete_instances_bulk = dur__pg_delete_instances_bulk, .prune_executions = dur__pg_prune_executions,          \
        .prune_executions_bulk = dur__pg_prune_executions_bulk, .dead_letter_messages = dur__pg_dead_letter_messages,  \
        .dead_letter_work = dur__pg_dead_letter_work, .list_dead_letters = dur__pg_list_dead_letters,                  \
        .delete_dead_letters = dur__pg_delete_dead_letters, .set_suspended = dur__pg_set_suspended,                    \
        .check = dur__pg_check,                                                                                        \
    }

const dur_provider_methods dur__pg_methods = METHODS(true);
const dur_provider_methods dur__pg_caller_methods = METHODS(false);
