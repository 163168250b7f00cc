/*
 * work_fuzz.c: whatever waits in a store's queues, a node consumes it, puts it off or keeps it, and serves others.
 *
 * The input has lines.  Each is put into a queue of a memory store as the text of a work item, with the columns that
 * its text asks for, or, where nobody can read the text, with some that were chosen.  In front of a line one character
 * says how.  A node without threads, in a world whose time passes as it is told, works all of it off; then it must
 * still run what is healthy.
 */
#include "fuzz_bytes.h"
#include <durite/durite.h>
#include <durite/step.h>
#include <durite/sys/clock.h>
#include <durite/sys/store.h>
#include <durite/sys/work.h>
#include <string.h>

#define ONE_MORE_(upper, name, queue) +1
enum { WORK_KINDS = 0 DUR_WORK_KINDS(ONE_MORE_) };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LINES_MAX = 8 };

static dur_error err;

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome plain(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input)));
}

/* Waits for one of each kind, all the time. */
static dur_outcome waits(dur_ctx *ctx, const char *input) {
    dur_future *all[] = { dur_pulse(ctx, "e"), dur_message(ctx, "q"), dur_activity(ctx, "Host", input),
                          dur_orchestration(ctx, "Nobody", "", .instance = "kid"), dur_timer(ctx, DUR_DAYS(30)) };
    const char *value = "";
    (void)dur_try(dur_select_n(all, 5), &value);
    if (dur_execution_id(ctx) < 4) return dur_continue_as_new(ctx, value);
    return dur_complete(ctx, value);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ACTIVITY_TAKEN("Host"), /* and nobody takes it */
    DUR_ORCHESTRATION("Plain", "1.0.0", plain),
    DUR_ORCHESTRATION("Waits", "1.0.0", waits),
    DUR_HANDLERS_END,
};

static void no_log(void *data, const dur_log_record *record) {
    (void)data;
    (void)record;
}

/* The first character: its bits say which queue, and what the columns are where the text does not say so. */
static void put(dur_provider *store, dur_arena *arena, uint8_t how, dur_text text) {
    static const char *const instances[] = { "a", "b", "kid", "nobody" };
    dur_work_item item;
    dur_message_row message = { .kind = (dur_work_kind)((how >> 3) % WORK_KINDS),
                                .instance = instances[how & 3],
                                .execution_id = 1,
                                .activity_id = how & 7u,
                                .json = text };
    if (message.kind == DUR_WORK_QUEUE_MESSAGE) message.queue = "q";
    if (message.kind == DUR_WORK_START_ORCHESTRATION) message.handler = "Waits@1.0.0";
    if (message.kind == DUR_WORK_ACTIVITY_EXECUTE) message.handler = "Echo";
    if (dur_work_from_json(&item, arena, text, NULL) == DUR_OK &&
        dur_message_row_from_work(&message, arena, &item, NULL) == DUR_OK)
        message.json = text; /* as it was written */
    if (message.kind == DUR_WORK_ACTIVITY_EXECUTE)
        (void)dur_store_enqueue_for_worker(store, &message, &err);
    else
        (void)dur_store_enqueue_for_orchestrator(store, &message, 0, &err);
}

static void put_lines(dur_provider *store, bytes in) {
    dur_arena *arena = dur_arena_new();
    for (size_t i = 0; i < LINES_MAX && bytes_left(&in) > 1; i++) {
        uint8_t how = byte(&in);
        const uint8_t *end = memchr(in.at, '\n', bytes_left(&in));
        if (end == NULL) end = in.end;
        put(store, arena, how, (dur_text){ (const char *)in.at, (size_t)(end - in.at) });
        in.at = end < in.end ? end + 1 : end;
    }
    dur_arena_free(arena);
}

static void rest(dur_runtime *runtime, dur_fake_world *world) {
    for (int i = 0; i < 3; i++) {
        int code = dur_runtime_run_until_idle(runtime, 60000, &err);
        MUST(code == DUR_OK, err.message);
        dur_fake_world_advance(world, DUR_SECONDS(20));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    dur_fake_world *world = dur_fake_world_new(1000000, 7);
    dur_provider *store = NULL;
    dur_runtime *runtime = NULL;
    dur_client *client = NULL;
    char *result = NULL;
    dur_log_set_sink(no_log, NULL, DUR_LOG_ERROR);
    (void)dur_fake_world_enter(world);
    const dur_world *inside = dur_fake_world_get(world);
    MUST(dur_open_ex(&store, "memory:", DUR_OPEN_OPTIONS(.world = inside), &err) == DUR_OK, err.message);
    MUST(dur_client_new(&client, store, &err) == DUR_OK, err.message);
    dur_runtime_options *options = DUR_RUNTIME(.store = store, .handlers = handlers, .threads = DUR_THREADS_NONE,
                                               .world = inside, .max_attempts = 3);
    MUST(dur_runtime_start(&runtime, options, &err) == DUR_OK, err.message);
    MUST(dur_client_start(client, &err, "Waits", "", .instance = "a") == DUR_OK, err.message);
    MUST(dur_client_start(client, &err, "Plain", "x", .instance = "b") == DUR_OK, err.message);
    MUST(dur_runtime_run_until_idle(runtime, 60000, &err) == DUR_OK, err.message);
    put_lines(store, (bytes){ data, data + size });
    rest(runtime, world);
    MUST(dur_client_start(client, &err, "Plain", "well", .instance = "healthy") == DUR_OK, err.message);
    MUST(dur_client_result(&result, client, "healthy", 60000, &err) == DUR_OK, err.message);
    MUST(strcmp(result, "well") == 0, result);
    dur_free(result);
    MUST(dur_runtime_stop(runtime, 60000, &err) == DUR_OK, err.message);
    dur_client_free(client);
    dur_provider_close(store);
    (void)dur_fake_world_enter(NULL);
    dur_fake_world_free(world);
    return 0;
}
