/*
 * double_run.c: for tests and examples: before each commit, the history with the new turn is replayed on a fresh stack
 * and every decision compared.  What would be found after the next crash is found at once.
 */
#include "runtime/runtime_internal.h"

#include "base/arena_internal.h"

#include <stdlib.h>

struct dur__rerun {
    dur_arena *arena; /* rows and the KV snapshot */
    dur_text *rows;
    size_t count, room;
    dur_key_value *kv;
    size_t kv_count;
};

static void add_row(dur__rerun *rerun, dur_text json) {
    if (rerun->count == rerun->room) {
        size_t room = rerun->room == 0 ? 64 : rerun->room * 2;
        rerun->rows = dur__xrealloc(rerun->rows, room * sizeof(dur_text));
        rerun->room = room;
    }
    rerun->rows[rerun->count++] = (dur_text){ dur_arena_memdup(rerun->arena, json.data, json.size), json.size };
}

void dur__rerun_begin(dur__inst *inst, const dur_orchestration_item *item, const dur_key_value *kv, size_t kv_count) {
    dur__rerun *rerun = dur__xcalloc(1, sizeof(*rerun));
    rerun->arena = dur__arena_xnew();
    for (size_t i = 0; item != NULL && i < item->history_count; i++)
        add_row(rerun, item->history[i].json);
    rerun->kv = dur_arena_zalloc(rerun->arena, (kv_count + 1) * sizeof(dur_key_value));
    for (size_t i = 0; i < kv_count; i++) {
        rerun->kv[i].key = dur_arena_strdup(rerun->arena, kv[i].key);
        rerun->kv[i].value = dur_arena_strdup(rerun->arena, kv[i].value);
        rerun->kv[i].last_updated_at_ms = kv[i].last_updated_at_ms;
    }
    rerun->kv_count = kv_count;
    inst->rerun = rerun;
}

static int replay_row(dur__exec *exec, dur_arena *arena, dur_text json, dur_error *err) {
    dur_event event;
    dur_arena_reset(arena);
    int code = dur_event_from_json(&event, arena, json, err);
    return code == DUR_OK ? dur__exec_replay_event(exec, &event, err) : code;
}

int dur__rerun_check(dur__inst *inst, dur_error *err) {
    const dur__turn *turn = dur__exec_turn(inst->exec);
    dur__rerun *rerun = inst->rerun;
    if (rerun == NULL || turn->event_count == 0) return DUR_OK;
    dur__exec *fresh = dur__inst_exec_new(inst, rerun->kv, rerun->kv_count);
    if (fresh == NULL) return DUR__NO_MEMORY(err, "double_run");
    DUR__COUNT_N(inst->loop->runtime, replayed_events, rerun->count + turn->event_count);
    dur_arena *arena = dur__pool_arena(inst->loop);
    dur_error found = DUR_ERROR_INIT;
    int code = DUR_OK;
    dur__user_enter(inst);
    for (size_t i = 0; code == DUR_OK && i < rerun->count; i++)
        code = replay_row(fresh, arena, rerun->rows[i], &found);
    for (size_t i = 0; code == DUR_OK && i < turn->event_count; i++)
        code = replay_row(fresh, arena, turn->events[i].json, &found);
    if (code == DUR_OK) code = dur__exec_replay_end(fresh, &found);
    dur__exec_free(fresh);
    dur__user_leave(inst);
    dur__pool_arena_back(inst->loop, arena);
    if (code == DUR_OK) return DUR_OK;
    if (code == DUR_ENOMEM) return DUR__NO_MEMORY(err, "double_run");
    return dur_error_set(err, DUR_ENONDETERMINISM, false, "double_run",
                         "a second run of the same history differs: %.400s", found.message);
}

void dur__rerun_keep(dur__inst *inst) {
    const dur__turn *turn = dur__exec_turn(inst->exec);
    if (inst->rerun == NULL) return;
    for (size_t i = 0; i < turn->event_count; i++)
        add_row(inst->rerun, turn->events[i].json);
}

void dur__rerun_free(dur__rerun *rerun) {
    if (rerun == NULL) return;
    dur_arena_free(rerun->arena);
    dur__free(rerun->rows);
    dur__free(rerun);
}
