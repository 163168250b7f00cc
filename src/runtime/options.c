/*
 * options.c: the options of a runtime: read at the size the caller compiled, checked, copied, defaults filled in.
 */
#include "runtime/runtime_internal.h"

#include "core/limits.h"
#include "core/semver.h"
#include <durite/version.h>
#include <stdlib.h>

#define OP "runtime.start"
#define ADDRESSES_ARE_FEW (SIZE_MAX <= UINT32_MAX) /* 3 GB for everything, and stacks are 1.25 of them */

static char *own(dur_runtime *runtime, const char *text) {
    if (text == NULL) return NULL;
    runtime->owned = dur__xrealloc(runtime->owned, (runtime->owned_count + 1) * sizeof(char *));
    return runtime->owned[runtime->owned_count++] = dur__xstrdup(text);
}

static int bad(dur_error *err, const char *option, const char *why) {
    return dur_error_set(err, DUR_EINVAL, false, OP, "option %s: %s", option, why);
}

static void fill_u64(uint64_t *value, uint64_t standard) {
    if (*value == 0) *value = standard;
}
static void fill_u32(uint32_t *value, uint32_t standard) {
    if (*value == 0) *value = standard;
}

static void fill_defaults(dur_runtime_options *o) {
    fill_u32(&o->orchestration_concurrency, 2);
    fill_u32(&o->worker_concurrency, 64);
    fill_u32(&o->prefetch, 64);
    fill_u64(&o->orchestrator_lock_timeout_ms, 5000);
    fill_u64(&o->orchestrator_lock_renewal_buffer_ms, 2000);
    fill_u64(&o->worker_lock_timeout_ms, 30000);
    fill_u64(&o->worker_lock_renewal_buffer_ms, 5000);
    fill_u64(&o->dispatcher_min_poll_interval_ms, 100);
    fill_u64(&o->dispatcher_long_poll_timeout_ms, 30000);
    fill_u64(&o->owner_timeout_ms, 10000);
    fill_u32(&o->max_attempts, 10);
    fill_u64(&o->suspect_alone_ms, 5000);
    fill_u64(&o->unregistered_backoff_ms, 1000);
    fill_u64(&o->unregistered_backoff_max_ms, 60000);
    fill_u64(&o->cancel_grace_ms, 300000);
    fill_u64(&o->activity_cancel_grace_ms, 10000);
    fill_u32(&o->abandoned_max, 16);
    fill_u64(&o->session_lock_timeout_ms, 30000);
    fill_u64(&o->session_lock_renewal_buffer_ms, 5000);
    fill_u64(&o->session_idle_timeout_ms, 300000);
    fill_u64(&o->session_cleanup_interval_ms, 300000);
    fill_u32(&o->max_sessions, 10);
    fill_u32(&o->parked_max, ADDRESSES_ARE_FEW ? 4000 : 30000);
    fill_u64(&o->parked_bytes_max, ADDRESSES_ARE_FEW ? (uint64_t)256 << 20 : (uint64_t)1 << 30);
    if (o->stack_bytes == 0) o->stack_bytes = 256 * 1024;
    fill_u64(&o->arena_bytes_max, (uint64_t)256 << 20);
    fill_u64(&o->payload_bytes_max, (uint64_t)4 << 20);
    fill_u64(&o->custom_status_bytes_max, 256 * 1024);
    fill_u32(&o->kv_keys_max, 150);
    fill_u64(&o->kv_value_bytes_max, 64 * 1024);
    fill_u64(&o->history_events_warn, 50000);
}

static int check_numbers(const dur_runtime_options *o, dur_error *err) {
    if (o->orchestration_concurrency > 256) return bad(err, "orchestration_concurrency", "more than 256 loops");
    if (o->worker_concurrency > 10000) return bad(err, "worker_concurrency", "more than 10,000 threads");
    if (o->prefetch > 100000) return bad(err, "prefetch", "more than 100,000");
    if (o->orchestrator_lock_timeout_ms < 100) return bad(err, "orchestrator_lock_timeout_ms", "less than 100 ms");
    if (o->worker_lock_timeout_ms < 100) return bad(err, "worker_lock_timeout_ms", "less than 100 ms");
    if (o->session_lock_timeout_ms < 100) return bad(err, "session_lock_timeout_ms", "less than 100 ms");
    if (o->dispatcher_long_poll_timeout_ms > 3600000)
        return bad(err, "dispatcher_long_poll_timeout_ms", "more than an hour: stopping waits for it");
    if (o->owner_timeout_ms < 1000) return bad(err, "owner_timeout_ms", "less than a second: owners beat each second");
    if (o->suspect_alone_ms > 3600000) return bad(err, "suspect_alone_ms", "more than an hour: others wait for it");
    if (o->unregistered_backoff_max_ms < o->unregistered_backoff_ms)
        return bad(err, "unregistered_backoff_max_ms", "less than unregistered_backoff_ms");
    if (o->stack_bytes < 16 * 1024 || o->stack_bytes > (size_t)1 << 30)
        return bad(err, "stack_bytes", "not between 16 KiB and 1 GiB");
    if (o->threads != DUR_THREADS_OWN && o->threads != DUR_THREADS_NONE) return bad(err, "threads", "no such choice");
    if (o->nondeterminism != DUR_NONDETERMINISM_SUSPEND && o->nondeterminism != DUR_NONDETERMINISM_FAIL)
        return bad(err, "nondeterminism", "no such policy");
    uint64_t held = o->worker_lock_timeout_ms > o->worker_lock_renewal_buffer_ms
                        ? o->worker_lock_timeout_ms - o->worker_lock_renewal_buffer_ms
                        : 0;
    if (o->session_idle_timeout_ms <= held)
        return bad(err, "session_idle_timeout_ms",
                   "must be longer than worker_lock_timeout_ms less its renewal buffer, or a session ends under a "
                   "running activity");
    return DUR_OK;
}

static int check_text(const char *option, const char *text, size_t max, dur_error *err) {
    size_t at;
    if (text == NULL) return DUR_OK;
    if (text[0] == '\0') return bad(err, option, "is empty");
    if (strlen(text) > max)
        return dur_error_set(err, DUR_EINVAL, false, OP, "option %s: more than %zu bytes", option, max);
    if (!dur__utf8_valid(text, strlen(text), &at)) return bad(err, option, "is not UTF-8");
    return DUR_OK;
}

static int take_tags(dur_runtime *runtime, dur_error *err) {
    dur_runtime_options *o = &runtime->options;
    size_t count = 0;
    while (o->worker_tags != NULL && o->worker_tags[count] != NULL) {
        int code = check_text("worker_tags", o->worker_tags[count], DUR__TAG_BYTES_MAX, err);
        if (code != DUR_OK) return code;
        if (++count > DUR__TAGS_MAX) return bad(err, "worker_tags", "more than 5 tags, or not ended by NULL");
    }
    bool named = o->tags == DUR_TAG_ONLY || o->tags == DUR_TAG_AND_DEFAULT;
    if (named && count == 0) return bad(err, "worker_tags", "the choice of tags needs at least one");
    if (!named && count > 0)
        return bad(err, "worker_tags", "given, but tags is not DUR_TAG_ONLY or DUR_TAG_AND_DEFAULT");
    if ((int)o->tags < 0 || o->tags > DUR_TAG_NONE) return bad(err, "tags", "no such choice");
    const char **tags = dur__xcalloc(count + 1, sizeof(char *));
    for (size_t i = 0; i < count; i++)
        tags[i] = own(runtime, o->worker_tags[i]);
    o->worker_tags = (const char *const *)tags;
    runtime->tag_filter = (dur_tag_filter){ .mode = (dur_tag_mode)o->tags, .tags = tags, .tag_count = count };
    return DUR_OK;
}

static int take_versions(dur_runtime *runtime, dur_error *err) {
    dur_runtime_options *o = &runtime->options;
    dur_version_range *range = &runtime->versions;
    if (!dur__semver_parse(o->replay_version_min != NULL ? o->replay_version_min : "0.0.0", &range->min))
        return bad(err, "replay_version_min", "is not a semantic version (1.2.3)");
    if (o->replay_version_max == NULL)
        o->replay_version_max = dur__semver_compare_text(DUR_VERSION, "0.1.999") > 0 ? DUR_VERSION : "0.1.999";
    if (!dur__semver_parse(o->replay_version_max, &range->max))
        return bad(err, "replay_version_max", "is not a semantic version (1.2.3)");
    if (dur__semver_compare(range->min, range->max) > 0)
        return bad(err, "replay_version_min", "is higher than replay_version_max");
    runtime->filter = (dur_capability_filter){ .ranges = range, .count = 1 };
    return DUR_OK;
}

static bool env_on(const char *name) {
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' && strcmp(value, "0") != 0;
}

int dur__options_take(dur_runtime *runtime, const dur_runtime_options *given, dur_error *err) {
    if (given == NULL) return dur_error_set(err, DUR_EINVAL, false, OP, "options are required");
    if (given->size < offsetof(dur_runtime_options, registry) || given->size > 16384)
        return bad(err, "size", "is not a size of dur_runtime_options: use DUR_RUNTIME(…)");
    dur_runtime_options *o = &runtime->options;
    memcpy(o, given, given->size < sizeof(*o) ? given->size : sizeof(*o));
    o->size = sizeof(*o);
    if (o->store == NULL) return bad(err, "store", "is required");
    if (o->handlers == NULL && o->registry == NULL) return bad(err, "handlers", "a table or a registry is required");
    int code = check_text("name", o->name, 32, err);
    if (code == DUR_OK) code = check_text("worker_node_id", o->worker_node_id, 256, err);
    if (code != DUR_OK) return code;
    fill_defaults(o);
    if ((code = check_numbers(o, err)) != DUR_OK) return code;
    if ((code = take_versions(runtime, err)) != DUR_OK) return code;
    o->name = own(runtime, o->name != NULL ? o->name : "durite");
    o->worker_node_id = own(runtime, o->worker_node_id);
    o->replay_version_min = own(runtime, o->replay_version_min);
    o->replay_version_max = own(runtime, o->replay_version_max);
    if ((code = take_tags(runtime, err)) != DUR_OK) {
        o->worker_tags = NULL;
        return code;
    }
    runtime->stepped.on = o->threads == DUR_THREADS_NONE;
    o->double_run |= env_on("DURITE_DOUBLE_RUN");
    o->evict_every_turn |= env_on("DURITE_EVICT");
    return DUR_OK;
}

void dur__options_free(dur_runtime *runtime) {
    if (runtime->tag_filter.tags != NULL) dur__free((void *)(uintptr_t)runtime->tag_filter.tags);
    for (size_t i = 0; i < runtime->owned_count; i++)
        dur__free(runtime->owned[i]);
    dur__free(runtime->owned);
}
