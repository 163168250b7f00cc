/*
 * syscalls.c: the activities that are always there.
 *
 * Handlers of ours record time and ids without a worker; histories of the original schedule them, and reading another
 * instance's key is an activity here too.
 */
#include "runtime/runtime_internal.h"

#include "core/json.h"

#include <stdio.h>

#define PREFIX "__duroxide_syscall:"

static const char *const names[] = { PREFIX "get_kv_value", PREFIX "new_guid", PREFIX "utc_now_ms" };

const char *dur__syscall_name(size_t index) {
    return index < sizeof(names) / sizeof(names[0]) ? names[index] : NULL;
}

bool dur__syscall_known(const char *name) {
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static void run_guid(dur__task *task) {
    const dur_world *world = task->runtime->world;
    unsigned char b[16];
    world->random(world->data, b, sizeof(b));
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    dur__task_complete(task, dur_arena_format(task->arena,
                                              "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                                              b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11],
                                              b[12], b[13], b[14], b[15]));
}

/* {"instance_id": …, "key": …} to a JSON text, or null where there is no such key. */
static bool read_input(dur__task *task, const char **instance, const char **key) {
    dur__json json;
    dur_text text = { task->item.input, strlen(task->item.input) };
    dur_error err = DUR_ERROR_INIT;
    dur_text member;
    bool first = true, fine = true;
    *instance = *key = NULL;
    dur__json_begin(&json, task->arena, text, "input", &err);
    fine = dur__json_open(&json, '{', "an object");
    while (fine && dur__json_member(&json, &first, &member)) {
        const char **to = member.size == 11 && memcmp(member.data, "instance_id", 11) == 0 ? instance
                          : member.size == 3 && memcmp(member.data, "key", 3) == 0         ? key
                                                                                           : NULL;
        fine = to != NULL ? dur__json_string(&json, to, NULL) : dur__json_skip(&json, NULL);
    }
    return dur__json_end(&json, text) == DUR_OK && *instance != NULL && *key != NULL;
}

static void fail(dur__task *task, dur_failure_category category, bool retryable, const char *message) {
    dur_failure failure = { .category = category,
                            .kind = DUR_FAILURE_ACTIVITY_FAILED,
                            .operation = "get_kv_value",
                            .message = message,
                            .retryable = retryable };
    dur__task_fail(task, &failure);
}

static void run_get_kv(dur__task *task) {
    const char *instance, *key, *value = NULL;
    if (!read_input(task, &instance, &key)) {
        fail(task, DUR_FAILURE_APPLICATION, false, "get_kv_value: the input is not {\"instance_id\": …, \"key\": …}");
        return;
    }
    dur_error err = DUR_ERROR_INIT;
    uint32_t tries = 0;
    /* A store that is busy or away is no answer: wait for it, unless the answer is no longer wanted. */
    while (dur_store_get_kv_value(task->runtime->store, task->arena, instance, key, &value, &err) != DUR_OK) {
        if (!err.retryable || atomic_load(&task->cancelled)) {
            fail(task, DUR_FAILURE_APPLICATION, err.retryable, dur_arena_strdup(task->arena, err.message));
            return;
        }
        dur_act act = { .task = task };
        (void)dur_act_sleep(&act, dur__backoff_ms(10, tries++, 3000));
    }
    while (!dur__cover_need(4096 + 16 * (value != NULL ? strlen(value) : 0))) { /* as a store that is away */
        dur_act act = { .task = task };
        if (dur_act_sleep(&act, 100)) break;
    }
    dur__buf text = { .arena = task->arena };
    if (value == NULL)
        dur__buf_text(&text, "null");
    else
        dur__json_write_text(&text, value);
    dur__task_complete(task, dur__buf_str(&text));
}

void dur__syscall_run(dur__task *task) {
    const char *call = task->item.name + strlen(PREFIX);
    const dur_world *world = task->runtime->world;
    if (strcmp(call, "new_guid") == 0)
        run_guid(task);
    else if (strcmp(call, "utc_now_ms") == 0)
        dur__task_complete(task,
                           dur_arena_format(task->arena, "%llu", (unsigned long long)world->wall_ms(world->data)));
    else
        run_get_kv(task);
}
