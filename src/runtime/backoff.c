/*
 * backoff.c: how long to wait before trying again, and for handlers that are not registered here.
 */
#include "runtime/runtime_internal.h"

#include <stdlib.h>

#define NAMES_MAX 4096            /* kinds of unregistered things remembered; beyond that they share the base delay */
#define LOG_EVERY_MS (10 * 60000) /* a name that stays unregistered is mentioned again after this */

/* Trouble is said again after so long, and then less and less often; where none came for as long, the next is new. */
enum { SAY_FIRST_US = 1000000, SAY_STEP_US = 64000000 };

uint64_t dur__backoff_ms(uint64_t base_ms, uint32_t tries, uint64_t max_ms) {
    uint64_t delay = base_ms;
    /* Doubling stops at the cap, so that no number of tries can wrap it. */
    for (uint32_t i = 0; i < tries && delay < max_ms; i++) {
        if (delay > max_ms / 2) return max_ms;
        delay *= 2;
    }
    return delay < max_ms ? delay : max_ms;
}

uint64_t dur__backoff_jitter_us(const dur_world *world, uint64_t ms) {
    uint32_t random = 0;
    world->random(world->data, &random, sizeof(random));
    uint64_t us = ms * 1000;
    uint64_t spread = us / 5; /* ±20 % */
    return us - spread + (spread == 0 ? 0 : random % (2 * spread + 1));
}

typedef struct unknown_name {
    char *key;
    uint64_t delay_ms;
    uint64_t grown_at_ms; /* boot time: the delay doubles at most once while it passes */
    uint64_t logged_at_ms;
} unknown_name;

static unknown_name *find_name(dur_runtime *runtime, const char *key, uint64_t now_ms, bool *fresh) {
    unknown_name *found = dur__map_get(&runtime->unregistered, key);
    *fresh = found == NULL;
    if (found != NULL || runtime->unregistered.count >= NAMES_MAX) return found;
    found = dur__xcalloc(1, sizeof(*found));
    found->key = dur__xstrdup(key);
    found->delay_ms = runtime->options.unregistered_backoff_ms;
    found->grown_at_ms = found->logged_at_ms = now_ms;
    dur__map_put(&runtime->unregistered, found->key, found);
    return found;
}

/* How long it is to wait; *log: it is to be said. */
static uint64_t next_delay(dur_runtime *runtime, const char *key, bool *log) {
    uint64_t now_ms = runtime->world->boot_ms(runtime->world->data);
    uint64_t delay = runtime->options.unregistered_backoff_ms;
    dur__mutex_lock(&runtime->mutex);
    unknown_name *known = find_name(runtime, key, now_ms, log);
    if (known != NULL) {
        if (!*log && now_ms - known->grown_at_ms >= known->delay_ms) {
            known->delay_ms = dur__backoff_ms(known->delay_ms, 1, runtime->options.unregistered_backoff_max_ms);
            known->grown_at_ms = now_ms;
        }
        delay = known->delay_ms;
        if (now_ms - known->logged_at_ms >= LOG_EVERY_MS) *log = true;
        if (*log) known->logged_at_ms = now_ms;
    }
    dur__mutex_unlock(&runtime->mutex);
    return delay;
}

bool dur__backoff_say(dur_runtime *runtime, const char *what) {
    bool log;
    (void)next_delay(runtime, what, &log);
    return log;
}

uint64_t dur__backoff_unregistered(dur_runtime *runtime, const char *what, const char *name, const char *version) {
    dur__buf key = { 0 };
    bool log;
    dur__buf_format(&key, "%s %s@%s", what, name, version != NULL ? version : "");
    uint64_t delay = next_delay(runtime, dur__buf_str(&key), &log);
    dur__buf_free(&key);
    if (log)
        dur__log(DUR_LOG_WARN, DUR__LOG_RUNTIME,
                 DUR__FIELDS(DUR__TEXT("name", name), DUR__TEXT("version", version != NULL ? version : ""),
                             DUR__NUMBER("delay_ms", delay)),
                 "%s \"%s\"%s%s is not registered here: its work waits until a node has it", what, name,
                 version != NULL ? " version " : "", version != NULL ? version : "");
    return delay;
}

bool dur__trouble_say(dur_runtime *runtime, dur__said *said, int code, char times[DUR__TIMES_BYTES]) {
    uint64_t now = dur__monotonic_us();
    dur__mutex_lock(&runtime->mutex);
    bool other = said->last_us == 0 || said->code != code || now - said->last_us > SAY_STEP_US;
    if (other) *said = (dur__said){ .code = code, .next_us = now, .step_us = SAY_FIRST_US };
    said->last_us = now;
    bool say = now >= said->next_us;
    times[0] = '\0';
    if (say && said->unsaid > 0)
        snprintf(times, DUR__TIMES_BYTES, " (%llu more since this was last said)", (unsigned long long)said->unsaid);
    said->unsaid = say ? 0 : said->unsaid + 1;
    if (say) {
        said->next_us = now + said->step_us;
        if (said->step_us < SAY_STEP_US) said->step_us *= 2;
    }
    dur__mutex_unlock(&runtime->mutex);
    return say;
}

void dur__backoff_free(dur_runtime *runtime) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&runtime->unregistered, &i)) != NULL;) {
        unknown_name *known = entry->value;
        dur__free(known->key);
        dur__free(known);
    }
    dur__map_free(&runtime->unregistered);
}
