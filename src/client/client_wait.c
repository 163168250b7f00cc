/*
 * client_wait.c: waiting for an end, a status or a value, and reading values.
 *
 * The end of an instance that runs in this process is told by its loop (provider/live.h).  For all else a watch is
 * opened before the first look, so that a change between look and wait is not missed.  The store wakes the watch;
 * nobody polls, except a store without watches inside its fallback.
 */
#include "client/client_internal.h"
#include "client/names.h"

#include "base/arena_internal.h"
#include "base/buf.h"
#include "base/drive.h"
#include "base/thread.h"
#include "core/check.h"
#include "core/limits.h"
#include "provider/live.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A lost wake-up of some foreign store costs so much, not for ever. */
#define LOOK_AGAIN_MS UINT64_C(60000)
/* After an error that may go away. */
#define TRY_AGAIN_MS UINT64_C(50)
/* A look that has begun gets so much more than the wait: a busy store is not one that stands still. */
#define ANSWER_US UINT64_C(1000000)

typedef struct waiter {
    dur_client *client;
    const char *op;
    const char *instance;
    dur_watch *watch; /* NULL: only a look */
    uint64_t timeout_ms;
    uint64_t deadline_us; /* UINT64_MAX: none */
    uint64_t outer_us;    /* the deadline of whoever calls */
    dur__lack *lack;      /* NULL: not asked for */
    bool in_vain;         /* nothing will happen by itself */
} waiter;

static waiter waiter_of(dur_client *client, const char *instance, uint64_t timeout_ms, const char *op) {
    return (waiter){ .client = client,
                     .op = op,
                     .instance = instance,
                     .timeout_ms = timeout_ms,
                     .deadline_us = dur__client_until(dur__monotonic_us(), timeout_ms),
                     .outer_us = DUR_NO_DEADLINE };
}

uint64_t dur__client_until(uint64_t begun_us, uint64_t timeout_ms) {
    return timeout_ms < (UINT64_MAX - begun_us) / 1000 ? begun_us + timeout_ms * 1000 : UINT64_MAX;
}

uint64_t dur__client_deadline(uint64_t timeout_ms, uint64_t deadline_us) {
    bool bounded = timeout_ms > 0 && deadline_us < UINT64_MAX - ANSWER_US; /* 0: one look, however long it takes */
    return dur_deadline_set(bounded ? deadline_us + ANSWER_US : DUR_NO_DEADLINE);
}

int dur__client_may_wait(bool no_limit, const char *op, dur_error *err) {
    if (!no_limit || dur__on_handlers_stack == 0) return DUR_OK;
    return dur_error_set(
        err, DUR_EDEADLK, false, op,
        "called from inside a handler, whose thread runs other instances, too: give a limit, call it in an "
        "activity, or await dur_orchestration");
}

static int waiter_may_begin(const waiter *self, dur_error *err) {
    return dur__client_may_wait(self->deadline_us == UINT64_MAX, self->op, err);
}

static int waiter_begin(waiter *self, dur_error *err) {
    self->outer_us = dur__client_deadline(self->timeout_ms, self->deadline_us);
    if (self->timeout_ms == 0) return DUR_OK;
    return dur_store_watch_open(self->client->store, self->instance, &self->watch, err);
}

/* The output of an instance that runs in this process, as soon as it has completed; NULL: ask the store. */
static char *waiter_live(const waiter *self) {
    if (self->timeout_ms == 0) return NULL;
    uint64_t again_us = dur__monotonic_us() + LOOK_AGAIN_MS * 1000;
    return dur__live_await(self->client->store, self->instance,
                           again_us < self->deadline_us ? again_us : self->deadline_us);
}

static void waiter_end(waiter *self) {
    if (self->watch != NULL) dur_store_watch_close(self->watch);
    (void)dur_deadline_set(self->outer_us);
}

/* Until something may have changed, at most `most_ms`.  DUR_ETIMEOUT when the time is up. */
static int waiter_sleep(waiter *self, uint64_t most_ms, dur_error *err) {
    uint64_t now_us = dur__monotonic_us();
    if (self->watch == NULL || now_us >= self->deadline_us)
        return dur_error_set(err, DUR_ETIMEOUT, true, self->op, "instance \"%.200s\": not yet, after %" PRIu64 " ms",
                             self->instance, self->timeout_ms);
    uint64_t left_ms = self->deadline_us == UINT64_MAX ? most_ms : (self->deadline_us - now_us + 999) / 1000;
    dur_error slept = DUR_ERROR_INIT;
    int code = dur_store_watch_wait(self->watch, left_ms < most_ms ? left_ms : most_ms, &slept);
    self->in_vain = code == DUR_ETIMEOUT && self->deadline_us == UINT64_MAX && dur__drive_stalls();
    if (self->in_vain && most_ms == LOOK_AGAIN_MS)
        return dur_error_set(err, DUR_ETIMEOUT, false, self->op,
                             "instance \"%.100s\": nothing will happen by itself, and it waits for: %s", self->instance,
                             dur__world_waits(self->instance));
    if (code == DUR_OK || code == DUR_ETIMEOUT || slept.retryable) return DUR_OK; /* look, then see about the time */
    if (err != NULL) *err = slept;
    return code;
}

/* ---- why nothing happens ---- */

static void say_unserved(waiter *self, dur_arena *arena, const char *below, const char *handler, dur_error *err) {
    const char *at = strrchr(handler, '@');
    const char *name = at != NULL ? dur_arena_format(arena, "%.*s", (int)(at - handler), handler) : handler;
    const char *version = at != NULL && at[1] != '\0' ? dur_arena_format(arena, " version %s", at + 1) : "";
    const char *like = dur__names_like(arena, name);
    bool child = !dur__str_eq(below, self->instance);
    if (self->lack != NULL) snprintf(self->lack->handler, sizeof(self->lack->handler), "%s", handler);
    dur_error_set(err, DUR_ETIMEOUT, true, self->op,
                  "instance \"%.100s\": not yet, after %" PRIu64
                  " ms: no running node has the handler \"%.100s\"%.40s%s%.100s%s%s%.100s%s",
                  self->instance, self->timeout_ms, name, version, child ? ", which its child \"" : "",
                  child ? below : "", child ? "\" needs" : "", like != NULL ? "; did you mean \"" : "",
                  like != NULL ? like : "", like != NULL ? "\"?" : "");
}

/* The time is up.  Whoever waits is told of a handler that nobody has.  A single look (timeout 0) asks the store no
   second question, unless the row says it already. */
static void explain_timeout(waiter *self, dur_arena *arena, const dur_instance_row *row, dur_error *err) {
    const char *below = self->instance, *handler = row->unserved ? row->handler : NULL;
    if (self->in_vain) return; /* it is said already */
    if (handler == NULL && self->timeout_ms > 0) handler = dur__client_unserved(self->client, arena, row, &below);
    if (handler != NULL) say_unserved(self, arena, below, handler, err);
}

/* An error ends the wait unless it may go away while there is time; its own text is better than "timed out". */
static int waiter_error(waiter *self, int code, const dur_error *why, dur_error *err) {
    bool wait = why->retryable || (code == DUR_ENOTFOUND && !dur__client_sees_starts(self->client));
    if (wait && waiter_sleep(self, TRY_AGAIN_MS, NULL) == DUR_OK) return DUR_OK;
    if (err != NULL) *err = *why;
    return code;
}

/* ---- until an info satisfies ---- */

typedef struct goal {
    bool status; /* a newer custom status; else the end or a suspension */
    uint64_t last_version;
} goal;

static bool reached(const goal *wanted, const dur_instance_info *info) {
    if (dur__client_ended(info)) return true;
    return wanted->status ? info->custom_status_version > wanted->last_version : dur__client_halted(info);
}

static int wait_info(dur_instance_info **out, waiter *wait, const goal *wanted, dur_error *err) {
    dur_client *client = wait->client;
    dur_arena *arena;
    dur_instance_info *info = dur__client_box(sizeof(*info), &arena);
    int code = waiter_begin(wait, err);
    while (code == DUR_OK) {
        dur_instance_row row;
        dur_error why = DUR_ERROR_INIT;
        code = dur__client_row(client, arena, wait->instance, &row, &why);
        if (code == DUR_OK) {
            dur__client_info_fill(info, &row);
            if (reached(wanted, info)) break;
            code = waiter_sleep(wait, LOOK_AGAIN_MS, err);
            if (code == DUR_ETIMEOUT) explain_timeout(wait, arena, &row, err);
        } else {
            code = waiter_error(wait, code, &why, err);
        }
        if (code == DUR_OK) { /* what was read goes, or an hour of progress reports would pile up */
            dur__client_box_free(info);
            info = dur__client_box(sizeof(*info), &arena);
        }
    }
    if (code == DUR_OK) code = dur__client_info_failure(client, arena, info, err);
    if (code == DUR_OK)
        *out = info;
    else
        dur__client_box_free(info);
    waiter_end(wait);
    return code;
}

int dur_client_wait(dur_instance_info **out, dur_client *client, const char *instance, uint64_t timeout_ms,
                    dur_error *err) {
    const char *op = "client.wait";
    DUR__SET_ASIDE(op, err);
    const goal end = { false, 0 };
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "out is required, got NULL");
    *out = NULL;
    int code = dur__client_enter_instance(client, instance, op, err);
    if (code != DUR_OK) return code;
    waiter wait = waiter_of(client, instance, timeout_ms, op);
    code = waiter_may_begin(&wait, err);
    if (code != DUR_OK) return code;
    dur__free(waiter_live(&wait)); /* the store knows more than its output */
    return wait_info(out, &wait, &end, err);
}

int dur_client_wait_status(dur_instance_info **out, dur_client *client, const char *instance, uint64_t last_version,
                           uint64_t timeout_ms, dur_error *err) {
    const char *op = "client.wait_status";
    DUR__SET_ASIDE(op, err);
    const goal newer = { true, last_version };
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "out is required, got NULL");
    *out = NULL;
    int code = dur__client_enter_instance(client, instance, op, err);
    if (code != DUR_OK) return code;
    waiter wait = waiter_of(client, instance, timeout_ms, op);
    code = waiter_may_begin(&wait, err);
    return code != DUR_OK ? code : wait_info(out, &wait, &newer, err);
}

int dur__client_outcome(const dur_instance_info *info, const char **text) {
    bool ended = dur__client_ended(info);
    *text = ended ? info->output : info->suspend_reason;
    if (*text == NULL) *text = "";
    if (!ended) return DUR_ESUSPENDED;
    if (info->status == DUR_INSTANCE_COMPLETED) return DUR_OK;
    return info->cancelled ? DUR_ECANCELLED : DUR_EFAILED;
}

/* A copy for the caller; NULL stays NULL. */
static int give_text(char **out, const char *text, const char *op, dur_error *err) {
    *out = text != NULL ? dur__strdup(text) : NULL;
    return *out != NULL || text == NULL ? DUR_OK : DUR__NO_MEMORY(err, op);
}

int dur__client_result(char **out, dur_client *client, const char *instance, uint64_t begun_us, uint64_t timeout_ms,
                       const char *op, dur__lack *lack, dur_error *err) {
    DUR__SET_ASIDE(op, err);
    const goal end = { false, 0 };
    dur_instance_info *info = NULL;
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "out is required, got NULL");
    *out = NULL;
    int code = dur__client_enter_instance(client, instance, op, err);
    if (code != DUR_OK) return code;
    waiter wait = waiter_of(client, instance, timeout_ms, op);
    wait.deadline_us = dur__client_until(begun_us, timeout_ms);
    wait.lack = lack;
    code = waiter_may_begin(&wait, err);
    if (code != DUR_OK) return code;
    *out = waiter_live(&wait);
    if (*out != NULL) return DUR_OK;
    code = wait_info(&info, &wait, &end, err);
    if (code != DUR_OK) return code;
    const char *text;
    code = dur__client_outcome(info, &text);
    if (code == DUR_OK)
        code = give_text(out, text, op, err);
    else
        dur_error_set(err, (dur_code)code, false, op, "%s", text);
    dur_instance_info_free(info);
    return code;
}

int dur_client_result(char **out, dur_client *client, const char *instance, uint64_t timeout_ms, dur_error *err) {
    return dur__client_result(out, client, instance, dur__monotonic_us(), timeout_ms, "client.result", NULL, err);
}

/* ---- keys and values ---- */

static int enter_key(dur_client *client, const char *instance, const char *key, const char *op, dur_error *err) {
    int code = dur__client_enter_instance(client, instance, op, err);
    if (code != DUR_OK) return code;
    return dur__check_text(err, op, "key", key, DUR__KV_KEY_BYTES_MAX, DUR__NOT_EMPTY);
}

int dur_client_kv_get(char **out, dur_client *client, const char *instance, const char *key, dur_error *err) {
    DUR__LIMITED(client);
    const char *op = "client.kv_get";
    DUR__SET_ASIDE(op, err);
    const char *value = NULL;
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "out is required, got NULL");
    *out = NULL;
    int code = enter_key(client, instance, key, op, err);
    if (code != DUR_OK) return code;
    dur_arena *arena = dur__arena_xnew();
    code = dur_store_get_kv_value(client->store, arena, instance, key, &value, err);
    if (code == DUR_OK) code = give_text(out, value, op, err);
    dur_arena_free(arena);
    return code;
}

/* One look: *found is the value, or an error that ends the wait.  Status first: a value that an ending instance wrote
   is then seen by the second read. */
static int kv_look(waiter *self, dur_arena *arena, const char *key, const char **found, dur_error *err) {
    dur_instance_row row;
    dur_error why = DUR_ERROR_INIT;
    int code = dur__client_row(self->client, arena, self->instance, &row, &why);
    if (code == DUR_OK) code = dur_store_get_kv_value(self->client->store, arena, self->instance, key, found, &why);
    if (code != DUR_OK) return waiter_error(self, code, &why, err);
    if (*found != NULL) return DUR_OK;
    if (row.status == DUR_STATUS_COMPLETED || row.status == DUR_STATUS_FAILED)
        return dur_error_set(err, DUR_ESTATE, false, self->op,
                             "instance \"%.200s\" has ended without a value for \"%.100s\"", self->instance, key);
    code = waiter_sleep(self, LOOK_AGAIN_MS, err);
    if (code == DUR_ETIMEOUT) explain_timeout(self, arena, &row, err);
    return code;
}

int dur_client_kv_wait(char **out, dur_client *client, const char *instance, const char *key, uint64_t timeout_ms,
                       dur_error *err) {
    const char *op = "client.kv_wait";
    DUR__SET_ASIDE(op, err);
    const char *value = NULL;
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "out is required, got NULL");
    *out = NULL;
    int code = enter_key(client, instance, key, op, err);
    if (code != DUR_OK) return code;
    waiter wait = waiter_of(client, instance, timeout_ms, op);
    code = waiter_may_begin(&wait, err);
    if (code != DUR_OK) return code;
    dur_arena *arena = dur__arena_xnew();
    code = waiter_begin(&wait, err);
    while (code == DUR_OK && value == NULL) {
        dur_arena_reset(arena);
        code = kv_look(&wait, arena, key, &value, err);
    }
    waiter_end(&wait);
    if (code == DUR_OK) code = give_text(out, value, op, err);
    dur_arena_free(arena);
    return code;
}

static int compare_keys(const void *a, const void *b) {
    return strcmp(((const dur_key_value *)a)->key, ((const dur_key_value *)b)->key);
}

int dur_client_kv_all(dur_kv_list **out, dur_client *client, const char *instance, dur_error *err) {
    DUR__LIMITED(client);
    const char *op = "client.kv_all";
    DUR__SET_ASIDE(op, err);
    dur_arena *arena;
    dur_key_value *pairs = NULL;
    size_t count = 0;
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "out is required, got NULL");
    *out = NULL;
    int code = dur__client_enter_instance(client, instance, op, err);
    if (code != DUR_OK) return code;
    dur_kv_list *list = dur__client_box(sizeof(*list), &arena);
    code = dur_store_get_kv_all_values(client->store, arena, instance, &pairs, &count, err);
    if (code == DUR_OK) code = dur__client_room(arena, op, err);
    if (code != DUR_OK) {
        dur__client_box_free(list);
        return code;
    }
    if (count > 0) qsort(pairs, count, sizeof(*pairs), compare_keys);
    const char **keys = dur_arena_alloc(arena, (count + 1) * sizeof(*keys));
    const char **values = dur_arena_alloc(arena, (count + 1) * sizeof(*values));
    uint64_t *stamps = dur_arena_alloc(arena, (count + 1) * sizeof(*stamps));
    for (size_t i = 0; i < count; i++) {
        keys[i] = pairs[i].key;
        values[i] = pairs[i].value;
        stamps[i] = pairs[i].last_updated_at_ms;
    }
    *list = (dur_kv_list){ sizeof(*list), count, keys, values, stamps };
    *out = list;
    return DUR_OK;
}

void dur_kv_list_free(dur_kv_list *list) {
    dur__client_box_free(list);
}
