/*
 * client.c: the client object, and everything that puts a message into a queue: start, send, pulse, cancel.
 */
#include "client/client_internal.h"

#include "base/arena_internal.h"
#include "base/buf.h"
#include "base/thread.h"
#include "core/check.h"
#include "core/limits.h"
#include "provider/live.h"
#include "provider/provider_internal.h"

#include <inttypes.h>
#include <stdlib.h>

int dur_client_new(dur_client **out, dur_provider *store, dur_error *err) {
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, "client.new", "out is required, got NULL");
    *out = NULL;
    if (store == NULL) return dur_error_set(err, DUR_EINVAL, false, "client.new", "store is required, got NULL");
    int code = dur__store_enter(store, "client.new", err);
    if (code != DUR_OK) return code;
    dur_client *client = dur__zget(sizeof(*client));
    if (client == NULL) return DUR__NO_MEMORY(err, "client.new");
    client->store = dur_store_retain(store);
    if (client->store == NULL) {
        dur__free(client);
        return DUR__NO_MEMORY(err, "client.new");
    }
    client->process = dur__process_serial();
    *out = client;
    return DUR_OK;
}

void dur_client_free(dur_client *client) {
    if (client == NULL) return;
    dur_provider_close(client->store);
    dur__free(client);
}

/* ---- a limit of time ---- */

void dur_client_limit(dur_client *client, uint64_t timeout_ms) {
    if (client != NULL) atomic_store(&client->limit_ms, timeout_ms);
}

uint64_t dur__client_limit_begin(dur_client *client) {
    uint64_t outer_us = dur_deadline_us(), now_us = dur__monotonic_us();
    uint64_t limit_ms = client != NULL ? atomic_load(&client->limit_ms) : 0;
    if (limit_ms == 0 || limit_ms >= (UINT64_MAX - now_us) / 1000) return outer_us;
    uint64_t deadline_us = now_us + limit_ms * 1000;
    return dur_deadline_set(deadline_us < outer_us ? deadline_us : outer_us);
}

void dur__client_limit_end(const uint64_t *outer_us) {
    (void)dur_deadline_set(*outer_us);
}

/* ---- doors ---- */

int dur__client_enter(const dur_client *client, const char *op, dur_error *err) {
    if (client == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "client is required, got NULL");
    if (client->process != dur__process_serial())
        return dur_error_set(err, DUR_EFORKED, false, op,
                             "this client was made before fork(): a child opens a store of its own; a SQLite file "
                             "that was open at the fork it cannot open, close it before the fork, or exec");
    return DUR_OK;
}

int dur__client_enter_instance(const dur_client *client, const char *instance, const char *op, dur_error *err) {
    int code = dur__client_enter(client, op, err);
    if (code != DUR_OK) return code;
    return dur__check_name(err, op, "instance", instance, DUR__INSTANCE_BYTES_MAX, DUR__NOT_EMPTY);
}

/* Every options struct begins with its size. */
static size_t size_field(const void *options) {
    size_t size;
    memcpy(&size, options, sizeof(size));
    return size;
}

int dur__client_options(void *to, size_t size, const void *from, const char *op, dur_error *err) {
    memset(to, 0, size);
    if (from == NULL) return DUR_OK;
    size_t theirs = size_field(from);
    if (theirs < sizeof(size_t))
        return dur_error_set(err, DUR_EINVAL, false, op, "size of the options is %zu; fill them with the macro",
                             theirs);
    for (size_t i = size; i < theirs; i++) {
        if (((const char *)from)[i] != 0)
            return dur_error_set(err, DUR_EINVAL, false, op, "an option at byte %zu is not known to this version", i);
    }
    memcpy(to, from, theirs < size ? theirs : size);
    return DUR_OK;
}

int dur__client_answer_check(const void *to, size_t size, const char *op, dur_error *err) {
    size_t theirs = to != NULL ? size_field(to) : size;
    if (theirs >= sizeof(size_t) && theirs <= 64 * size) return DUR_OK; /* else it was never set */
    return dur_error_set(err, DUR_EINVAL, false, op, "size of the result struct is %zu; set it before the call",
                         theirs);
}

void dur__client_answer(void *to, size_t size, const void *from) {
    size_t theirs = size_field(to);
    size_t common = theirs < size ? theirs : size;
    memset((char *)to + sizeof(size_t), 0, theirs - sizeof(size_t));
    memcpy((char *)to + sizeof(size_t), (const char *)from + sizeof(size_t), common - sizeof(size_t));
}

/* ---- boxes ---- */

typedef struct box {
    _Alignas(16) dur_arena *arena; /* the box itself lives there, too */
} box;

void *dur__client_box(size_t size, dur_arena **arena) {
    *arena = dur__arena_xnew();
    box *made = dur_arena_zalloc(*arena, sizeof(*made) + size);
    made->arena = *arena;
    *(size_t *)(void *)(made + 1) = size; /* what is boxed begins with its size */
    return made + 1;
}

void dur__client_box_free(void *object) {
    if (object != NULL) dur_arena_free(((box *)object - 1)->arena);
}

int dur__client_room(const dur_arena *arena, const char *op, dur_error *err) {
    size_t bytes = dur_arena_bytes(arena);
    return bytes < SIZE_MAX / 8 && dur__cover_need(DUR__ASIDE_BYTES + 4 * bytes) ? DUR_OK : DUR__NO_MEMORY(err, op);
}

/* ---- messages ---- */

static int check_delay(dur_error *err, const char *op, uint64_t delay_ms) {
    if (delay_ms <= DUR__DELAY_MS_MAX) return DUR_OK;
    return dur_error_set(err, DUR_ELIMIT, false, op, "delay_ms is %" PRIu64 ", %" PRIu64 " are allowed", delay_ms,
                         DUR__DELAY_MS_MAX);
}

int dur__client_start_args(dur_start_args *args, const dur_start_args *given, const char *op, dur_error *err) {
    if (given == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "args are required, got NULL");
    int code = dur__client_options(args, sizeof(*args), given, op, err);
    if (code == DUR_OK)
        code = dur__check_name(err, op, "instance", args->instance, DUR__INSTANCE_BYTES_MAX, DUR__NOT_EMPTY);
    if (code == DUR_OK) code = dur__check_name(err, op, "name", args->name, DUR__NAME_BYTES_MAX, DUR__NOT_EMPTY);
    if (code == DUR_OK) code = dur__check_text(err, op, "input", args->input, DUR__PAYLOAD_BYTES_MAX, DUR__OPTIONAL);
    if (code == DUR_OK) code = dur__check_version(err, op, args->version);
    if (code == DUR_OK) code = check_delay(err, op, args->delay_ms);
    if (code == DUR_OK && (unsigned)args->exists > DUR_START_REPLACE_FINISHED)
        code = dur_error_set(err, DUR_EINVAL, false, op, "exists is %d, which is no policy", (int)args->exists);
    return code;
}

dur_exists_policy dur__client_policy(dur_start_policy policy) {
    switch (policy) {
    case DUR_START_RETURN_EXISTING:
        return DUR_EXISTS_RETURN;
    case DUR_START_REPLACE_FINISHED:
        return DUR_EXISTS_REPLACE_FINISHED;
    case DUR_START_FAIL:
        break;
    }
    return DUR_EXISTS_FAIL;
}

int dur__client_start_message(dur_message_row *out, dur_arena *arena, const dur_start_args *args, uint64_t birth,
                              dur_error *err) {
    dur_work_item item = {
        .kind = DUR_WORK_START_ORCHESTRATION,
        .instance = args->instance,
        .orchestration = args->name,
        .input = args->input != NULL ? args->input : "",
        .version = args->version,
        .execution_id = 1,
        .birth = birth,
    };
    return dur__client_encode(out, arena, &item, err);
}

/* Payloads are as large as they are: nothing has happened yet, so there is a way out. */
int dur__client_encode(dur_message_row *out, dur_arena *arena, const dur_work_item *item, dur_error *err) {
    dur__way_out way_out;
    if (DUR__OUT_OF_MEMORY(&way_out)) return DUR__NO_MEMORY(err, "client.encode");
    int code = dur_message_row_from_work(out, arena, item, err);
    dur__way_out_end(&way_out);
    return code;
}

int dur__client_start(dur_client *client, const dur_start_args *args, bool *existed, dur_error *err) {
    dur_message_row message;
    dur_arena *arena = dur__arena_xnew();
    int code = dur__client_start_message(&message, arena, args, 0, err);
    if (code == DUR_OK) {
        dur__live_starting(client->store, args->instance);
        if (args->delay_ms == 0) dur__live_expect(client->store, args->instance);
        code = dur_store_enqueue_start(client->store, &message, dur__client_policy(args->exists), args->delay_ms,
                                       existed, err);
        if (code != DUR_OK || *existed)
            dur__live_unexpect(client->store, args->instance);
        else
            dur__live_started(client->store, args->instance);
        /* Whoever was replaced may have come here while the start was on its way, and its end not be told yet. */
        if (code == DUR_OK && args->exists == DUR_START_REPLACE_FINISHED)
            dur__live_starting(client->store, args->instance);
    }
    dur_arena_free(arena);
    return code;
}

int dur_client_start_ex(dur_client *client, const dur_start_args *given, dur_error *err) {
    const char *op = "client.start";
    DUR__SET_ASIDE(op, err);
    dur_start_args args = { .size = 0 };
    bool existed = false;
    int code = dur__client_enter(client, op, err);
    if (code == DUR_OK) code = dur__client_start_args(&args, given, op, err);
    return code == DUR_OK ? dur__client_start(client, &args, &existed, err) : code;
}

/* Put an item into the queue of an instance that exists. */
static int send(dur_client *client, const dur_work_item *item, uint64_t delay_ms, dur_error *err) {
    dur_message_row message;
    dur_arena *arena = dur__arena_xnew();
    int code = dur__client_encode(&message, arena, item, err);
    if (code == DUR_OK) code = dur_store_enqueue_existing(client->store, &message, delay_ms, err);
    dur_arena_free(arena);
    if (code == DUR_EDUPLICATE) { /* what was asked for has happened, by the first of the two calls */
        dur_error_clear(err);
        code = DUR_OK;
    }
    return code;
}

static int send_message(dur_client *client, dur_work_kind kind, const dur_message_args *given, const char *op,
                        dur_error *err) {
    dur_message_args args;
    if (given == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "args are required, got NULL");
    int code = dur__client_enter(client, op, err);
    if (code == DUR_OK) code = dur__client_options(&args, sizeof(args), given, op, err);
    if (code == DUR_OK) code = dur__client_enter_instance(client, args.instance, op, err);
    if (code == DUR_OK) code = dur__check_name(err, op, "name", args.name, DUR__NAME_BYTES_MAX, DUR__NOT_EMPTY);
    if (code == DUR_OK) code = dur__check_text(err, op, "data", args.data, DUR__PAYLOAD_BYTES_MAX, DUR__OPTIONAL);
    if (code == DUR_OK && args.message_id != NULL)
        code = dur__check_name(err, op, "message_id", args.message_id, DUR__MESSAGE_ID_BYTES_MAX, DUR__NOT_EMPTY);
    if (code == DUR_OK) code = check_delay(err, op, args.delay_ms);
    if (code != DUR_OK) return code;
    dur_work_item item = {
        .kind = kind,
        .instance = args.instance,
        .name = args.name,
        .data = args.data != NULL ? args.data : "",
        .message_id = args.message_id,
    };
    return send(client, &item, args.delay_ms, err);
}

int dur_client_pulse_ex(dur_client *client, const dur_message_args *args, dur_error *err) {
    DUR__SET_ASIDE("client.pulse", err);
    return send_message(client, DUR_WORK_EXTERNAL_RAISED, args, "client.pulse", err);
}

int dur_client_send_ex(dur_client *client, const dur_message_args *args, dur_error *err) {
    DUR__SET_ASIDE("client.send", err);
    return send_message(client, DUR_WORK_QUEUE_MESSAGE, args, "client.send", err);
}

int dur_client_cancel(dur_client *client, const char *instance, const char *reason, dur_error *err) {
    const char *op = "client.cancel";
    DUR__SET_ASIDE(op, err);
    int code = dur__client_enter_instance(client, instance, op, err);
    if (code == DUR_OK) code = dur__check_text(err, op, "reason", reason, DUR__REASON_BYTES_MAX, DUR__OPTIONAL);
    if (code != DUR_OK) return code;
    dur_work_item item = {
        .kind = DUR_WORK_CANCEL_INSTANCE,
        .instance = instance,
        .reason = reason != NULL ? reason : "cancelled by a client",
    };
    return send(client, &item, 0, err);
}
