/*
 * schedule.c: the nouns.  Each checks what it is given, makes a leaf and a future for it, and gives the command.
 */
#include "core/check.h"
#include "core/json.h"
#include "core/limits.h"
#include "core/semver.h"
#include "replay/engine.h"
#include <stdio.h>

/* ---- arguments: a wrong one ends the branch with a reason that names it ---- */

static void need_utf8(dur__exec *exec, const char *call, const char *what, const char *text, size_t size) {
    size_t bad = 0;
    if (!dur__utf8_valid(text, size, &bad)) dur__branch_failf(exec, "%s: %s is not UTF-8 at byte %zu", call, what, bad);
}

void dur__need_name(dur__exec *exec, const char *call, const char *what, const char *text, size_t max) {
    if (text == NULL || *text == '\0')
        dur__branch_failf(exec, "%s: %s is %s", call, what, text == NULL ? "NULL" : "empty");
    size_t size = strlen(text);
    if (size > max) dur__branch_failf(exec, "%s: %s has %zu bytes, the limit is %zu", call, what, size, max);
    need_utf8(exec, call, what, text, size);
    size_t bad = dur__control_at(text);
    if (bad < size)
        dur__branch_failf(exec, "%s: %s has control character 0x%02x at byte %zu", call, what,
                          (unsigned)(unsigned char)text[bad], bad);
}

void dur__need_version(dur__exec *exec, const char *call, const char *version) {
    if (version == NULL) return;
    dur__need_name(exec, call, "version", version, DUR__VERSION_BYTES_MAX);
    if (!dur__semver_parse(version, NULL))
        dur__branch_failf(exec, "%s: version \"%s\" is not MAJOR.MINOR.PATCH", call, version);
}

const char *dur__need_payload(dur__exec *exec, const char *call, const char *what, const char *text) {
    if (text == NULL) return "";
    size_t size = strlen(text);
    uint64_t max = exec->options.limits.payload_bytes_max;
    if (max != 0 && size > max)
        dur__branch_failf(exec, "%s: %s has %zu bytes, the limit is %llu", call, what, size, (unsigned long long)max);
    need_utf8(exec, call, what, text, size);
    return text;
}

void dur__need_size(dur__exec *exec, const char *call, size_t size, size_t min) {
    if (size < min) dur__branch_failf(exec, "%s: the size field is not set (use the macro, or sizeof)", call);
}

/* ---- leaves with a future ---- */

static dur_future *leaf_future(dur__exec *exec, dur__leaf_kind kind, const char *site, dur__leaf **leaf) {
    dur_future *future = dur__future_new(exec, DUR__FUTURE_LEAF);
    *leaf = dur__leaf_new(exec, kind, site);
    (*leaf)->future = future;
    future->of.leaf = *leaf;
    return future;
}

static void schedule(dur__exec *exec, dur__leaf *leaf, dur_event *event) {
    if (!dur__leaf_schedule(exec, leaf, event)) dur__branch_leave(exec);
}

dur_future *dur__activity(dur__exec *exec, const dur_activity_args *own, uint64_t first_id) {
    if (own->retry != NULL || own->timeout_ms != 0) return dur__retry_start(exec, own, own->retry, first_id);
    dur__leaf *leaf;
    dur_future *future = leaf_future(exec, DUR__LEAF_ACTIVITY, own->site, &leaf);
    leaf->name = dur__intern(exec, own->name);
    leaf->first_id = first_id;
    dur_event event = { .kind = DUR_EVENT_ACTIVITY_SCHEDULED,
                        .name = own->name,
                        .input = own->input,
                        .session_id = own->session,
                        .tag = own->tag };
    schedule(exec, leaf, &event);
    return future;
}

uint64_t dur__activity_first_id(const dur_future *future) {
    if (future->kind == DUR__FUTURE_RETRY) return future->of.retry != NULL ? dur__retry_first_id(future->of.retry) : 0;
    DUR_ASSERT(future->kind == DUR__FUTURE_LEAF);
    return future->of.leaf != NULL ? future->of.leaf->id : 0;
}

dur_future *dur_activity_ex(dur_ctx *ctx, const dur_activity_args *args) {
    dur__exec *exec = dur__enter(ctx, "dur_activity");
    if (exec == NULL) return NULL;
    dur_activity_args own;
    dur__activity_args(exec, "dur_activity", args, &own);
    return dur__activity(exec, &own, 0);
}

void dur__activity_args(dur__exec *exec, const char *call, const dur_activity_args *args, dur_activity_args *own) {
    if (args == NULL) dur__branch_failf(exec, "%s: args is NULL", call);
    dur__need_size(exec, call, args->size, offsetof(dur_activity_args, tag));
    *own = (dur_activity_args){ 0 };
    memcpy(own, args, args->size < sizeof(*own) ? args->size : sizeof(*own));
    dur__need_name(exec, call, "name", own->name, DUR__NAME_BYTES_MAX);
    if (strncmp(own->name, DUR__SYSCALL, sizeof(DUR__SYSCALL) - 1) == 0)
        dur__branch_failf(exec, "%s: names that begin with %s are reserved", call, DUR__SYSCALL);
    own->input = dur__need_payload(exec, call, "input", own->input);
    uint64_t tag_max = exec->options.limits.tag_bytes_max;
    if (own->tag != NULL) dur__need_name(exec, call, "tag", own->tag, tag_max != 0 ? (size_t)tag_max : SIZE_MAX);
    if (own->session != NULL) dur__need_name(exec, call, "session", own->session, DUR__SESSION_BYTES_MAX);
}

dur_future *dur_timer_ex(dur_ctx *ctx, uint64_t delay_ms, const char *site) {
    dur__exec *exec = dur__enter(ctx, "dur_timer");
    if (exec == NULL) return NULL;
    dur__leaf *leaf;
    dur_future *future = leaf_future(exec, DUR__LEAF_TIMER, site, &leaf);
    dur_event event = { .kind = DUR_EVENT_TIMER_CREATED, .fire_at_ms = dur__after(exec->now_ms, delay_ms) };
    schedule(exec, leaf, &event);
    return future;
}

dur_future *dur_pulse_ex(dur_ctx *ctx, const char *name, const char *site) {
    dur__exec *exec = dur__enter(ctx, "dur_pulse");
    if (exec == NULL) return NULL;
    dur__need_name(exec, "dur_pulse", "name", name, DUR__NAME_BYTES_MAX);
    dur__leaf *leaf;
    dur_future *future = leaf_future(exec, DUR__LEAF_PULSE, site, &leaf);
    leaf->topic = dur__topic_get(&exec->mailbox, name, false);
    leaf->topic->users++;
    dur_event event = { .kind = DUR_EVENT_EXTERNAL_SUBSCRIBED, .name = name };
    schedule(exec, leaf, &event);
    return future;
}

dur_future *dur__message_wait(dur__exec *exec, const char *name, bool is_try, const char *site) {
    dur__need_name(exec, is_try ? "dur_try_message" : "dur_message", "name", name, DUR__NAME_BYTES_MAX);
    dur__leaf *leaf;
    dur_future *future = leaf_future(exec, DUR__LEAF_MESSAGE, site, &leaf);
    leaf->topic = dur__topic_get(&exec->mailbox, name, true);
    leaf->is_try = is_try;
    dur_event event = { .kind = DUR_EVENT_QUEUE_SUBSCRIBED, .name = name };
    schedule(exec, leaf, &event);
    return future;
}

dur_future *dur_message_ex(dur_ctx *ctx, const char *name, const char *site) {
    dur__exec *exec = dur__enter(ctx, "dur_message");
    return exec == NULL ? NULL : dur__message_wait(exec, name, false, site);
}

dur_future *dur_kv_remote_ex(dur_ctx *ctx, const char *instance, const char *key, const char *site) {
    dur__exec *exec = dur__enter(ctx, "dur_kv_remote");
    if (exec == NULL) return NULL;
    dur__need_name(exec, "dur_kv_remote", "instance", instance, DUR__INSTANCE_BYTES_MAX);
    dur__need_name(exec, "dur_kv_remote", "key", key, DUR__KV_KEY_BYTES_MAX);
    dur__buf input = { .arena = dur__passing(exec) };
    dur__buf_text(&input, "{\"instance_id\":");
    dur__json_write_text(&input, instance);
    dur__buf_text(&input, ",\"key\":");
    dur__json_write_text(&input, key);
    dur__buf_char(&input, '}');
    char *text = dur__scope_text(exec->running->scope, dur__buf_str(&input));
    dur__leaf *leaf;
    dur_future *future = leaf_future(exec, DUR__LEAF_ACTIVITY, site, &leaf);
    future->decode = true;
    leaf->name = DUR__SYSCALL "get_kv_value";
    dur_event event = { .kind = DUR_EVENT_ACTIVITY_SCHEDULED, .name = leaf->name, .input = text };
    schedule(exec, leaf, &event);
    return future;
}

/* ---- other orchestrations ---- */

static void orchestration_args(dur__exec *exec, const char *call, const dur_orchestration_args *args,
                               dur_orchestration_args *own) {
    if (args == NULL) dur__branch_failf(exec, "%s: args is NULL", call);
    dur__need_size(exec, call, args->size, offsetof(dur_orchestration_args, version));
    *own = (dur_orchestration_args){ 0 };
    memcpy(own, args, args->size < sizeof(*own) ? args->size : sizeof(*own));
    dur__need_name(exec, call, "name", own->name, DUR__NAME_BYTES_MAX);
    own->input = dur__need_payload(exec, call, "input", own->input);
    dur__need_version(exec, call, own->version);
    if (own->instance == NULL) return;
    dur__need_name(exec, call, "instance", own->instance, DUR__INSTANCE_BYTES_MAX);
    if (strncmp(own->instance, "sub::", 5) == 0)
        dur__branch_failf(exec, "%s: instance ids that begin with sub:: are reserved", call);
}

const char *dur__unnameable_text(dur__exec *exec) {
    return dur_arena_format(exec->turn_arena,
                            "an id that is made here begins with this instance's, which has %zu bytes; %d leave room "
                            "for the rest: give .instance",
                            strlen(exec->options.instance), DUR__INSTANCE_BYTES_MAX - DUR__MADE_ID_BYTES);
}

/*
 * Nothing begins under an id that no call can name, nor deeper than a cancel may have to follow.  The limits do not
 * depend on the event's own id: a handler that may make one id may make them all.  What history holds has happened.
 */
static void need_callable(dur__exec *exec, const char *call, const dur_event *event) {
    bool child = event->kind == DUR_EVENT_SUB_ORCHESTRATION_SCHEDULED;
    bool deep = child && exec->parent.depth >= DUR__DEPTH_MAX;
    bool unnameable =
        event->instance == NULL && strlen(exec->options.instance) > DUR__INSTANCE_BYTES_MAX - DUR__MADE_ID_BYTES;
    if ((!deep && !unnameable) || exec->original || dur__match_is_next(exec, event)) return;
    if (deep)
        dur__branch_failf(exec,
                          "%s: %d parents are above this instance, the limit: does \"%.200s\" call itself for ever?",
                          call, DUR__DEPTH_MAX, event->name);
    dur__branch_failf(exec, "%s: %s", call, dur__unnameable_text(exec));
}

dur_future *dur_orchestration_ex(dur_ctx *ctx, const dur_orchestration_args *args) {
    dur__exec *exec = dur__enter(ctx, "dur_orchestration");
    if (exec == NULL) return NULL;
    dur_orchestration_args own;
    orchestration_args(exec, "dur_orchestration", args, &own);
    dur_event event = { .kind = DUR_EVENT_SUB_ORCHESTRATION_SCHEDULED,
                        .name = own.name,
                        .input = own.input,
                        .version = own.version,
                        .instance = own.instance };
    need_callable(exec, "dur_orchestration", &event);
    dur__leaf *leaf;
    dur_future *future = leaf_future(exec, DUR__LEAF_CHILD, own.site, &leaf);
    leaf->name = dur__intern(exec, own.name);
    schedule(exec, leaf, &event);
    return future;
}

const char *dur_start_ex(dur_ctx *ctx, const dur_orchestration_args *args) {
    dur__exec *exec = dur__enter(ctx, "dur_start");
    if (exec == NULL) return NULL;
    dur_orchestration_args own;
    orchestration_args(exec, "dur_start", args, &own);
    dur_event event = { .kind = DUR_EVENT_ORCHESTRATION_CHAINED,
                        .name = own.name,
                        .input = own.input,
                        .version = own.version,
                        .instance = own.instance };
    need_callable(exec, "dur_start", &event);
    if (exec->original) { /* its id is known when its record is */
        dur_future *answer = dur__future_new(exec, DUR__FUTURE_PLAIN);
        if (!dur__original_command(exec, &event, NULL, answer, NULL, own.site)) dur__branch_leave(exec);
        return own.instance != NULL ? dur__scope_text(exec->running->scope, own.instance) : dur_await(answer);
    }
    if (!dur__command(exec, &event, own.site)) dur__branch_leave(exec);
    if (!exec->replaying) dur__effect_started(exec, &event);
    return dur__scope_text(exec->running->scope, event.instance);
}
