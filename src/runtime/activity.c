/*
 * activity.c: what an activity sees (dur_act_*), and running one.
 */
#include "runtime/runtime_internal.h"

#include <durite/client.h>
#include <durite/sqlite.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>

/* Kinds of dur_outcome that only an activity may return; other values mean that it returned something else. */
enum { ACT_COMPLETED = 0x4101, ACT_FAILED = 0x4102, ACT_NO_MEMORY = 0x4103 };
enum { ACT_FINAL = 1 };

/* ---- how it ends ---- */

/* What an end itself needs of what was set aside, beside its text. */
#define END_BYTES 4096u

struct dur__kept_text {
    dur__kept_text *next;
    char text[];
};

/* Of what was set aside for the end of this activity; NULL: it is too large for that. */
static char *kept_text(dur__task *task, size_t size) {
    dur__cover cover;
    dur__kept_text *kept = NULL;
    if (dur__cover_leaves() || size > SIZE_MAX / 4) return NULL;
    if (task->host != NULL) dur__worker_covered(task->host, &cover);
    if (dur__cover_need(sizeof(*kept) + END_BYTES + 3 * size)) {
        kept = dur__xmalloc(sizeof(*kept) + size + 1);
        kept->next = task->kept_texts;
        task->kept_texts = kept;
    }
    if (task->host != NULL) dur__cover_end(&cover);
    return kept != NULL ? kept->text : NULL;
}

void dur__activity_texts_free(dur__task *task) {
    for (dur__kept_text *kept; (kept = task->kept_texts) != NULL;) {
        task->kept_texts = kept->next;
        dur__free(kept);
    }
}

/* Users' texts are as large as they are, and users' code is not left by a jump: NULL says that there is no memory. */
static char *text_copy(dur__task *task, const char *text) {
    dur__way_out out;
    if (DUR__OUT_OF_MEMORY(&out)) return NULL;
    char *copy = dur_arena_strdup(task->arena, text);
    dur__way_out_end(&out);
    return copy;
}

static char *text_format(dur__task *task, const char *format, va_list args) {
    dur__way_out out;
    if (DUR__OUT_OF_MEMORY(&out)) return NULL;
    char *text = dur_arena_vformat(task->arena, format, args);
    dur__way_out_end(&out);
    return text;
}

static dur_outcome outcome(dur_act *act, int kind, int flags, const char *given) {
    if (given == NULL) given = "";
    char *text = act != NULL ? text_copy(act->task, given) : "";
    if (text == NULL) {
        size_t size = strlen(given);
        text = kept_text(act->task, size);
        if (text != NULL) memcpy(text, given, size + 1);
    }
    return (dur_outcome){ .kind_ = text != NULL ? kind : ACT_NO_MEMORY, .flags_ = flags, .text_ = text };
}

static dur_outcome outcome_format(dur_act *act, int kind, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    char *text = act != NULL ? text_format(act->task, format, args) : "";
    if (text == NULL) {
        va_list sized;
        va_copy(sized, again);
        int size = vsnprintf(NULL, 0, format, sized);
        va_end(sized);
        text = size >= 0 ? kept_text(act->task, (size_t)size) : NULL;
        if (text != NULL) (void)vsnprintf(text, (size_t)size + 1, format, again);
    }
    va_end(again);
    return (dur_outcome){ .kind_ = text != NULL ? kind : ACT_NO_MEMORY, .text_ = text };
}

dur_outcome dur_act_complete(dur_act *act, const char *result) {
    return outcome(act, ACT_COMPLETED, 0, result);
}
dur_outcome dur_act_fail(dur_act *act, const char *reason) {
    return outcome(act, ACT_FAILED, 0, reason);
}
dur_outcome dur_act_fail_final(dur_act *act, const char *reason) {
    return outcome(act, ACT_FAILED, ACT_FINAL, reason);
}

dur_outcome dur_act_completef(dur_act *act, const char *format, ...) {
    va_list args;
    va_start(args, format);
    dur_outcome given = outcome_format(act, ACT_COMPLETED, format, args);
    va_end(args);
    return given;
}

dur_outcome dur_act_failf(dur_act *act, const char *format, ...) {
    va_list args;
    va_start(args, format);
    dur_outcome given = outcome_format(act, ACT_FAILED, format, args);
    va_end(args);
    return given;
}

/* ---- who and where ---- */

/* Outside of an activity there is nobody to ask: calls without one answer nothing. */
static const dur__task nobody = { .item = { .instance = "", .name = "" }, .worker_id = "" };

static const dur__task *task_of(const dur_act *act) {
    return act != NULL ? act->task : &nobody;
}

const char *dur_act_instance_id(const dur_act *act) {
    return task_of(act)->item.instance;
}
uint64_t dur_act_execution_id(const dur_act *act) {
    return task_of(act)->item.execution_id;
}
const char *dur_act_name(const dur_act *act) {
    return task_of(act)->item.name;
}
uint64_t dur_act_id(const dur_act *act) {
    return task_of(act)->item.id;
}
const char *dur_act_worker_id(const dur_act *act) {
    return task_of(act)->worker_id;
}
const char *dur_act_session(const dur_act *act) {
    return task_of(act)->item.session_id;
}
const char *dur_act_tag(const dur_act *act) {
    return task_of(act)->item.tag;
}
const char *dur_act_input(const dur_act *act) {
    return act != NULL ? act->task->item.input : NULL;
}
uint32_t dur_act_delivery(const dur_act *act) {
    return task_of(act)->delivery;
}
uint32_t dur_act_attempt(const dur_act *act) {
    if (act == NULL) return 0;
    return act->task->item.attempt != 0 ? (uint32_t)act->task->item.attempt : 1;
}

void *dur_act_data(const dur_act *act) {
    return act != NULL && act->task->handler != NULL ? act->task->handler->data : NULL;
}

/* Items written by the original do not say who scheduled them: look once. */
static void find_orchestration(dur__task *task) {
    if (task->item.orchestration_name != NULL) return;
    dur_event *events = NULL;
    size_t count = 0;
    DUR__ASIDE aside = { .reserve = { NULL } };
    dur_arena *arena = dur__aside_begin(&aside, DUR__ASIDE_BYTES) ? dur_arena_new() : NULL;
    if (arena == NULL) return; /* at the next call */
    if (dur_store_read_events(task->runtime->store, arena, task->item.instance, task->item.execution_id, &events,
                              &count, NULL) == DUR_OK &&
        count > 0) {
        task->item.orchestration_version = dur_arena_strdup(task->arena, events[0].version);
        task->item.orchestration_name = dur_arena_strdup(task->arena, events[0].name);
    }
    if (task->item.orchestration_name == NULL) task->item.orchestration_name = "";
    dur_arena_free(arena);
}

const char *dur_act_orchestration_name(const dur_act *act) {
    if (act == NULL) return "";
    find_orchestration(act->task);
    return act->task->item.orchestration_name != NULL ? act->task->item.orchestration_name : "";
}

const char *dur_act_orchestration_version(const dur_act *act) {
    if (act == NULL) return "";
    find_orchestration(act->task);
    return act->task->item.orchestration_version != NULL ? act->task->item.orchestration_version : "";
}

const char *dur_act_attempt_key(const dur_act *act) {
    if (act == NULL) return "";
    dur__task *task = act->task;
    if (task->attempt_key == NULL)
        task->attempt_key =
            dur_arena_format(task->arena, "%s/%llu/%llu", task->item.instance,
                             (unsigned long long)task->item.execution_id, (unsigned long long)task->item.id);
    return task->attempt_key;
}

/* An id is an address: the birth says which of the instances that have had it.  The original writes none. */
const char *dur_act_key(const dur_act *act) {
    if (act == NULL) return "";
    dur__task *task = act->task;
    const dur_work_item *item = &task->item;
    if (task->key == NULL)
        task->key = dur_arena_format(task->arena, "%s/%llx/%llu/%llu", item->instance, (unsigned long long)item->birth,
                                     (unsigned long long)item->execution_id,
                                     (unsigned long long)(item->first_id != 0 ? item->first_id : item->id));
    return task->key;
}

/* ---- cancellation ---- */

bool dur_act_cancelled(const dur_act *act) {
    if (act == NULL || !atomic_load(&act->task->cancelled)) return false;
    atomic_store(&act->task->told, true);
    return true;
}
bool dur_act_beat(dur_act *act) {
    if (act == NULL) return false;
    dur__step_beat(act->task->runtime);
    return dur_act_cancelled(act);
}
int dur_act_cancel_fd(dur_act *act) {
    if (act == NULL) return -1;
    atomic_store(&act->task->told, true); /* whoever has the descriptor may learn of it without another call */
    return dur__cancel_fd(act->task);
}

bool dur_act_sleep(dur_act *act, uint64_t ms) {
    if (act == NULL) return false;
    uint64_t end_us = dur__monotonic_us() + (ms > UINT64_MAX / 2000 ? UINT64_MAX / 2 : ms * 1000);
    int fd = dur__cancel_fd(act->task);
    while (!dur_act_cancelled(act)) {
        uint64_t now_us = dur__monotonic_us();
        if (now_us >= end_us) return false;
        if (dur__drive(end_us - now_us)) continue; /* inside a step: others go on meanwhile, and may cancel this one */
        uint64_t left_ms = (end_us - now_us + 999) / 1000;
        uint64_t slice = fd < 0 ? 20 : 60000; /* without a descriptor the flag is looked at often */
        struct pollfd wait = { .fd = fd, .events = POLLIN };
        (void)dur__poll(&wait, fd < 0 ? 0 : 1, (left_ms < slice ? left_ms : slice) * 1000);
    }
    return true;
}

/* ---- the store, memory, log ---- */

struct dur_client *dur_act_client(dur_act *act) {
    if (act == NULL) return NULL;
    dur__task *task = act->task;
    if (task->client == NULL) (void)dur_client_new(&task->client, task->runtime->store, NULL);
    return task->client;
}

dur_provider *dur_act_store(dur_act *act) {
    return act != NULL ? act->task->runtime->store : NULL;
}

void *dur_act_alloc(dur_act *act, size_t size) {
    if (act == NULL) return NULL;
    dur__way_out out;
    if (DUR__OUT_OF_MEMORY(&out)) return NULL;
    void *memory = dur_arena_zalloc(act->task->arena, size);
    dur__way_out_end(&out);
    return memory;
}

char *dur_act_format(dur_act *act, const char *format, ...) {
    if (act == NULL || format == NULL) return NULL;
    va_list args;
    va_start(args, format);
    char *text = text_format(act->task, format, args);
    va_end(args);
    return text;
}

void dur_act_trace(dur_act *act, dur_log_level level, const char *format, ...) {
    if (act == NULL || format == NULL || !dur__log_enabled(level)) return;
    va_list args;
    va_start(args, format);
    const char *text = text_format(act->task, format, args);
    va_end(args);
    if (text == NULL) text = format; /* no memory: better than nothing */
    const dur__task *task = act->task;
    dur__log(level, DUR__LOG_ACTIVITY,
             DUR__FIELDS(DUR__TEXT("instance_id", task->item.instance),
                         DUR__NUMBER("execution_id", task->item.execution_id),
                         DUR__TEXT("orchestration_name", dur_act_orchestration_name(act)),
                         DUR__TEXT("orchestration_version", dur_act_orchestration_version(act)),
                         DUR__TEXT("activity_name", task->item.name), DUR__NUMBER("activity_id", task->item.id),
                         DUR__TEXT("activity_tag", task->item.tag != NULL ? task->item.tag : "default"),
                         DUR__TEXT("worker_id", task->worker_id)),
             "%s", text);
}

/* ---- running ---- */

static void fail_with(dur__task *task, bool final, const char *message) {
    dur_failure failure = { .category = DUR_FAILURE_APPLICATION,
                            .kind = DUR_FAILURE_ACTIVITY_FAILED,
                            .message = message,
                            .retryable = !final };
    dur__task_fail(task, &failure);
}

static void take_outcome(dur__task *task, const dur_outcome *given) {
    const char *text = given->text_ != NULL ? given->text_ : "";
    size_t size = strlen(text), bad = 0;
    if (given->kind_ == ACT_NO_MEMORY || !dur__cover_need(END_BYTES + 2 * (given->kind_ == ACT_FAILED ? size : 0))) {
        fail_with(task, false, "out of memory: what the activity returned could not be kept");
    } else if (given->kind_ != ACT_COMPLETED && given->kind_ != ACT_FAILED) {
        fail_with(task, true,
                  dur_arena_format(task->arena,
                                   "activity \"%s\" returned no outcome: end it with "
                                   "dur_act_complete or dur_act_fail",
                                   task->item.name));
    } else if (!dur__utf8_valid(text, size, &bad)) {
        fail_with(task, true,
                  dur_arena_format(task->arena, "activity \"%s\" returned a text that is not UTF-8 (byte %zu)",
                                   task->item.name, bad));
    } else if (size > task->runtime->options.payload_bytes_max) {
        fail_with(task, true,
                  dur_arena_format(task->arena, "activity \"%s\" returned a payload of %zu bytes, the limit is %llu",
                                   task->item.name, size,
                                   (unsigned long long)task->runtime->options.payload_bytes_max));
    } else if (given->kind_ == ACT_COMPLETED) {
        dur__task_complete(task, text);
    } else {
        fail_with(task, (given->flags_ & ACT_FINAL) != 0, text);
    }
}

void dur__activity_cleanup(dur__task *task) {
    dur_client_free(task->client);
    task->client = NULL;
    dur__mutex_lock(&task->runtime->work.mutex);
    dur__bell_close(&task->cancel_bell);
    dur__mutex_unlock(&task->runtime->work.mutex);
    dur__activity_sqlite_close(task);
}

void dur__activity_ended(dur__task *task, const dur_outcome *given) {
    take_outcome(task, given);
    dur__activity_cleanup(task);
}

void dur__activity_run(dur__task *task) {
    if (atomic_load(&task->cancelled)) {
        atomic_store(&task->told, true);
        fail_with(task, true, "cancelled before it started");
    } else if (task->handler == NULL) {
        dur__syscall_run(task);
    } else {
        dur_act act = { .task = task };
        DUR__COUNT(task->runtime, activities_running);
        dur__guest guest = { .activity = task->item.name, .instance = task->item.instance };
        dur__guest_enter(&guest);
        dur_outcome given = task->handler->activity(&act, task->item.input);
        dur__guest_leave(&guest);
        if (dur__runtime_forked(task->runtime)) return; /* the end of it is its parent's */
        dur__uncount(&task->runtime->counters.activities_running, 1);
        if (atomic_load(&task->state) == DUR__TASK_ABANDONED) return; /* cleaned up by its worker */
        take_outcome(task, &given);
    }
    dur__activity_cleanup(task);
}
