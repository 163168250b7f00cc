/*
 * compare_side.c: one store of a differential run: opening it, and all that can be seen of it, in text.
 */
#include "compare.h"

#include <durite/sys/memory.h>

#include <stdio.h>
#include <stdlib.h>

void text_add(text *out, const char *format, ...) {
    va_list args;
    for (;;) {
        va_start(args, format);
        int size = vsnprintf(out->data != NULL ? out->data + out->size : NULL, out->room - out->size, format, args);
        va_end(args);
        if (size < 0) return;
        if (out->data != NULL && (size_t)size < out->room - out->size) {
            out->size += (size_t)size;
            return;
        }
        out->room = (out->size + (size_t)size + 1) * 2;
        out->data = dur_memory_resize(out->data, out->room); /* a story is freed by dur_free */
        if (out->data == NULL) abort();
        out->data[out->size] = '\0';
    }
}

void text_clear(text *out) {
    out->size = 0;
    if (out->data != NULL) out->data[0] = '\0';
}

int side_open(side *at, const dur_kit_factory *factory, dur_error *err) {
    memset(at, 0, sizeof(*at));
    at->t.factory = factory;
    at->t.lock_ms = 1000;
    at->t.arena = dur_arena_new();
    int code = factory->open(factory->data, &at->t.store, err);
    if (code != DUR_OK) {
        dur_arena_free(at->t.arena);
        return code;
    }
    at->t.p = at->t.store.provider;
    at->second = "o2";
    at->owners = dur_store_has(at->t.p, "owner_register");
    dur_owner_options one = { .owner = "o1", .timeout_ms = 2005 }, two = { .owner = "o2", .timeout_ms = 2005 };
    if (at->owners && dur_store_owner_register(at->t.p, &one, NULL) == DUR_OK)
        (void)dur_store_owner_register(at->t.p, &two, NULL);
    at->t.waker = dur_waker_new();
    dur_lane_options options = { .owner = "o1", .waker = at->t.waker };
    if (at->owners && dur_store_has(at->t.p, "lane_open"))
        (void)dur_store_lane_open(at->t.p, &options, &at->lane, NULL);
    return DUR_OK;
}

void side_close(side *at) {
    if (at->lane != NULL) dur_store_lane_close(at->lane);
    at->t.factory->close(at->t.factory->data, &at->t.store);
    dur_waker_free(at->t.waker);
    dur_arena_free(at->t.arena);
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

#define NUMBER(n) ((unsigned long long)(n))
static const char *or_dash(const char *text_) {
    return text_ != NULL ? text_ : "-";
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const dur_key_value *)a)->key, ((const dur_key_value *)b)->key);
}

static void look_values(side *at, dur_arena *arena, const char *id, text *out) {
    dur_key_value *values = NULL;
    size_t count = 0;
    bool changed = false;
    const char *status = NULL;
    uint64_t version = 0;
    dur_store_get_kv_all_values(at->t.p, arena, id, &values, &count, NULL);
    if (count > 0) qsort(values, count, sizeof(*values), by_key);
    for (size_t i = 0; i < count; i++)
        text_add(out, "    kv %s=%s at %llu\n", values[i].key, values[i].value, NUMBER(values[i].last_updated_at_ms));
    dur_store_get_custom_status(at->t.p, arena, id, 0, &changed, &status, &version, NULL);
    if (changed) text_add(out, "    status %s %llu\n", or_dash(status), NUMBER(version));
}

static void look_executions(side *at, dur_arena *arena, const char *id, text *out) {
    dur_execution_row *rows = NULL;
    size_t count = 0;
    if (dur_store_list_executions(at->t.p, arena, id, &rows, &count, NULL) != DUR_OK) return;
    for (size_t i = 0; i < count; i++) {
        dur_event_row *events = NULL;
        size_t n = 0;
        text_add(out, "    execution %llu %s %s from %llu to %llu events %llu\n", NUMBER(rows[i].execution_id),
                 dur_status_name(rows[i].status), or_dash(rows[i].output), NUMBER(rows[i].started_at_ms),
                 NUMBER(rows[i].completed_at_ms), NUMBER(rows[i].event_count));
        dur_store_read(at->t.p, arena, id, rows[i].execution_id, &events, &n, NULL);
        for (size_t k = 0; k < n; k++)
            text_add(out, "      %llu %.*s\n", NUMBER(events[k].event_id), (int)events[k].json.size,
                     events[k].json.data);
    }
    dur_event_row *latest = NULL;
    size_t n = 0;
    dur_store_read(at->t.p, arena, id, 0, &latest, &n, NULL);
    text_add(out, "    latest %zu\n", n);
}

static void look_instance(side *at, dur_arena *arena, const char *id, text *out) {
    dur_instance_row row = { .instance_id = NULL };
    dur_instance_stats stats = { 0, 0, 0, 0, 0 };
    bool found = false;
    int code = dur_store_get_instance(at->t.p, arena, id, &row, NULL);
    text_add(out, "  %s %s\n", id, dur_code_name(code));
    if (code == DUR_OK && row.start_pending)
        text_add(out, "    pending\n"); /* what else a start that waits shows is the store's own */
    else if (code == DUR_OK)
        text_add(out, "    %s %s execution %llu %s %s parent %s suspended %s custom %s %llu owner %s\n",
                 or_dash(row.orchestration_name), or_dash(row.orchestration_version), NUMBER(row.current_execution_id),
                 dur_status_name(row.status), or_dash(row.output), or_dash(row.parent_instance_id),
                 or_dash(row.suspended), or_dash(row.custom_status), NUMBER(row.custom_status_version),
                 or_dash(row.owner));
    if (code == DUR_OK)
        text_add(out, "    birth %llu handler %s pending %s\n", NUMBER(row.birth), or_dash(row.handler),
                 row.pending_start.size > 0 ? "start" : "-");
    look_executions(at, arena, id, out);
    look_values(at, arena, id, out);
    if (dur_store_get_instance_stats(at->t.p, arena, id, &found, &stats, NULL) == DUR_OK && found)
        text_add(out, "    stats %llu %llu %llu %llu %llu\n", NUMBER(stats.history_event_count),
                 NUMBER(stats.history_size_bytes), NUMBER(stats.queue_pending_count), NUMBER(stats.kv_user_key_count),
                 NUMBER(stats.kv_total_value_bytes));
}

/* How much of each kind an owner has locked. */
static void look_holdings(side *at, dur_arena *arena, const char *owner, text *out) {
    dur_holding *all = NULL;
    size_t count = 0, of[3] = { 0, 0, 0 };
    if (!at->owners || dur_store_owner_holdings(at->t.p, arena, owner, &all, &count, NULL) != DUR_OK) return;
    for (size_t i = 0; i < count; i++)
        of[all[i].kind]++;
    text_add(out, "  holds %zu instances %zu rows %zu sessions\n", of[0], of[1], of[2]);
}

void side_look(side *at, text *out) {
    static const char *const ids[] = { "i0", "i1", "i2" };
    dur_arena *arena = dur_arena_new();
    dur_system_metrics metrics = { .total_instances = 0 };
    dur_queue_depths depths = { 0, 0, 0, 0 };
    dur_instance_row *rows = NULL;
    dur_dead_letter *letters = NULL;
    size_t count = 0;
    dur_instance_query query = { .limit = 0 };
    for (size_t i = 0; i < COUNT(ids); i++)
        look_instance(at, arena, ids[i], out);
    look_holdings(at, arena, "o1", out);
    look_holdings(at, arena, at->second, out);
    dur_store_get_system_metrics(at->t.p, &metrics, NULL);
    dur_store_get_queue_depths(at->t.p, &depths, NULL);
    text_add(out, "  metrics %llu %llu %llu %llu %llu %llu %llu %llu\n  depths %llu %llu %llu\n",
             NUMBER(metrics.total_instances), NUMBER(metrics.total_executions), NUMBER(metrics.running),
             NUMBER(metrics.completed), NUMBER(metrics.failed), NUMBER(metrics.total_events), NUMBER(metrics.suspended),
             NUMBER(metrics.starts_waiting), NUMBER(depths.worker_queue), NUMBER(depths.timer_queue),
             NUMBER(depths.dead_letters));
    dur_store_list_instances(at->t.p, arena, &query, &rows, &count, NULL);
    for (size_t i = 0; i < count; i++)
        text_add(out, "  listed %s %s\n", rows[i].instance_id, dur_status_name(rows[i].status));
    count = 0;
    dur_store_list_dead_letters(at->t.p, arena, 0, 1000, &letters, &count, NULL);
    for (size_t i = 0; i < count; i++)
        text_add(out, "  letter %s %.*s\n", or_dash(letters[i].instance), (int)letters[i].json.size,
                 letters[i].json.data);
    dur_arena_free(arena);
}
