/*
 * pg_handler.c: the handlers that a fetch is for, and what waits for one that nobody has.
 */
#include "provider/postgres/pg_internal.h"
#include "provider/postgres/pg_pieces.h"

const char *dur__pg_handler_of(const dur_message_row *item) {
    return item->handler != NULL ? item->handler : "";
}

/* What needs no handler passes every filter but an empty one. */
void dur__pg_handlers(dur__pg_args *args, const dur_handler_filter *filter) {
    dur__pg_array keys = dur__pg_array_text();
    if (filter == NULL) {
        dur__pg_null_texts(args);
        return;
    }
    if (filter->count > 0) dur__pg_add_text(&keys, "");
    for (size_t i = 0; i < filter->count; i++)
        dur__pg_add_text(&keys, filter->keys[i]);
    dur__pg_array_arg(args, &keys);
}

#define FREE DUR__PG_FREE
#define NOBODY_HAS(activity, handler)                                                                                  \
    handler " <> '' AND NOT EXISTS (SELECT 1 FROM @served s WHERE s.activity = " activity                              \
            " AND s.handler IN (" handler ", ''))"

#define CANCEL_WAITS "q.kind = " DUR__PG_CANCEL " AND q.due_ms <= (SELECT now FROM n)"

/* $2: how many of each.  Kinds as in dur_unserved_kind.  Of cancel requests those of the instances that are listed, and
   the first of all. */
/* clang-format off */
static const char unserved_sql[] =
    "WITH RECURSIVE " DUR__PG_HANDLERS("ha", "@instances", FREE, "NULL::text[]") ", "
    DUR__PG_HANDLERS("wa", "@worker", "owner IS NULL", "NULL::text[]") ","
    " n AS MATERIALIZED (SELECT #now AS now),"
    " li AS MATERIALIZED (SELECT ha.h, x.instance_id FROM ha CROSS JOIN LATERAL (SELECT instance_id FROM @instances"
    " WHERE handler = ha.h AND " FREE " AND ready_at <= (SELECT now FROM n) AND (token IS NULL OR expires_at <= (SELECT"
    " now FROM n)) ORDER BY ready_at LIMIT $2::bigint) x WHERE " NOBODY_HAS("false", "ha.h") " LIMIT 128)"
    " SELECT 0 AS kind, li.h, li.instance_id, 0::bigint, NULL::text FROM li"
    " UNION ALL (SELECT 1, wa.h, x.instance_id, 0, NULL FROM wa CROSS JOIN LATERAL (SELECT instance_id FROM @worker w"
    " WHERE w.handler = wa.h AND w.owner IS NULL AND w.until_ms <= (SELECT now FROM n) ORDER BY w.id LIMIT $2::bigint)"
    " x WHERE " NOBODY_HAS("true", "wa.h") " LIMIT 128)"
    " UNION ALL (SELECT 2, li.h, li.instance_id, q.order_ms, q.json FROM li JOIN @queue q ON q.instance_id ="
    " li.instance_id WHERE " CANCEL_WAITS " LIMIT 256)"
    " UNION ALL (SELECT 2, i.handler, i.instance_id, q.order_ms, q.json FROM @queue q JOIN @instances i ON"
    " i.instance_id = q.instance_id WHERE " CANCEL_WAITS " AND i.token IS NULL AND i.suspended IS NULL AND i.known AND "
    NOBODY_HAS("false", "i.handler") " LIMIT 64)";
/* clang-format on */

static const char sessions_sql[] =
    "SELECT w.handler, w.instance_id, w.session_id, s.owner FROM (SELECT * FROM @worker WHERE owner IS NULL AND"
    " session_id IS NOT NULL ORDER BY id LIMIT 256) w JOIN @sessions s USING (session_id) WHERE w.until_ms <= #now AND"
    " " DUR__PG_HOLDER_HAS_NOT " AND EXISTS (SELECT 1 FROM @served v WHERE v.activity AND v.handler IN (w.handler, ''))"
    " LIMIT 64";

/* Behind those that are there. */
static int sessions_add(dur__pg *store, dur_arena *arena, dur_unserved **out, size_t *count, dur_error *err) {
    dur__pg_args args;
    PGresult *result;
    dur__pg_args_begin(store, &args);
    int code = dur__pg_one(store, "postgres.unserved", sessions_sql, &args, false, &result, err);
    size_t more = code == DUR_OK ? (size_t)PQntuples(result) : 0;
    dur_unserved *all = dur_arena_zalloc(arena, (*count + more + 1) * sizeof(*all));
    if (*count > 0) memcpy(all, *out, *count * sizeof(*all));
    for (size_t i = 0; i < more; i++)
        all[*count + i] = (dur_unserved){ .kind = DUR_UNSERVED_SESSION,
                                          .handler = dur__pg_get_text(result, (int)i, 0, arena),
                                          .instance = dur__pg_get_text(result, (int)i, 1, arena),
                                          .session = dur__pg_get_text(result, (int)i, 2, arena),
                                          .owner = dur__pg_get_text(result, (int)i, 3, arena) };
    PQclear(result);
    *out = all;
    *count += more;
    return code;
}

int dur__pg_list_unserved(dur_provider *self, dur_arena *arena, size_t each, dur_unserved **out, size_t *count,
                          dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    PGresult *result;
    dur__pg_args_begin(store, &args);
    dur__pg_i64(&args, (int64_t)each);
    int code = dur__pg_one(store, "postgres.unserved", unserved_sql, &args, false, &result, err);
    *count = code == DUR_OK ? (size_t)PQntuples(result) : 0;
    *out = dur_arena_zalloc(arena, (*count + 1) * sizeof(**out));
    for (size_t i = 0; i < *count; i++) {
        dur_unserved *row = &(*out)[i];
        row->kind = (dur_unserved_kind)dur__pg_get_i64(result, (int)i, 0);
        row->handler = dur__pg_get_text(result, (int)i, 1, arena);
        row->instance = dur__pg_get_text(result, (int)i, 2, arena);
        row->since_ms = dur__pg_get_u64(result, (int)i, 3);
        if (row->kind == DUR_UNSERVED_CANCEL) row->json = dur__pg_get_json(result, (int)i, 4, arena);
    }
    PQclear(result);
    return code == DUR_OK ? sessions_add(store, arena, out, count, err) : code;
}
