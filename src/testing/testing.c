/*
 * testing.c: a test begins and ends; its node, and how that dies.
 *
 * Death needs no machinery: the boot clock jumps by as long as an owner may be silent while the wall clock stands
 * still, another owner looks, and the store takes the node for dead.  From then on it refuses whatever the node still
 * says, as it would refuse a process that was only slow.
 */
#include "testing_internal.h"

#include <stdalign.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define START_MS UINT64_C(1735689600000) /* 2025-01-01T00:00:00Z */
#define OWNER_TIMEOUT_MS 1000u

void dur__test_enter(dur_test *t) {
    (void)dur_fake_world_enter(t->world);
}

void *dur__grow(void *items, size_t count, size_t *room, size_t size) {
    if (count < *room) return items;
    *room = *room > 0 ? *room * 2 : 8;
    void *more = realloc(items, *room * size);
    if (more == NULL) abort(); /* a test without memory has nothing to say */
    return more;
}

struct dur__kept {
    struct dur__kept *next;
    alignas(max_align_t) char data[];
};

void *dur__test_zalloc(dur_test *t, size_t size) {
    struct dur__kept *kept = calloc(1, sizeof(*kept) + size);
    if (kept == NULL) abort();
    kept->next = t->kept;
    t->kept = kept;
    return kept->data;
}

char *dur__test_strdup(dur_test *t, const char *text) {
    if (text == NULL) return NULL;
    size_t size = strlen(text) + 1;
    return memcpy(dur__test_zalloc(t, size), text, size);
}

static void free_kept(struct dur__kept *kept) {
    while (kept != NULL) {
        struct dur__kept *next = kept->next;
        free(kept);
        kept = next;
    }
}

/* ---- texts ---- */

void dur__lines_vadd(dur__lines *lines, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (size < 0) return;
    while (lines->room - lines->size < (size_t)size + 1)
        lines->data = dur__grow(lines->data, lines->room, &lines->room, 1);
    vsnprintf(lines->data + lines->size, (size_t)size + 1, format, args);
    lines->size += (size_t)size;
}

void dur__lines_add(dur__lines *lines, const char *format, ...) {
    va_list args;
    va_start(args, format);
    dur__lines_vadd(lines, format, args);
    va_end(args);
}

static void tell_time(dur_test *t) {
    uint64_t begin_ms = t->options.start_ms, now_ms = dur_test_now_ms(t);
    uint64_t ms = now_ms >= begin_ms ? now_ms - begin_ms : begin_ms - now_ms;
    const char *sign = now_ms >= begin_ms ? "" : "-";
    if (ms < 1000)
        dur__lines_add(t->story, "  %s%llu ms\t", sign, (unsigned long long)ms);
    else
        dur__lines_add(t->story, "  %s%llu.%03llu s\t", sign, (unsigned long long)(ms / 1000),
                       (unsigned long long)(ms % 1000));
}

void dur__test_tell(dur_test *t, const char *format, ...) {
    if (t->story == NULL) return;
    tell_time(t);
    va_list args;
    va_start(args, format);
    dur__lines_vadd(t->story, format, args);
    va_end(args);
    dur__lines_add(t->story, "\n");
}

/* ---- the node ---- */

/* Every activity is taken by the test, which then decides what it does, when, and when the node hears of it. */
static void fill_handlers(dur_test *t) {
    size_t at = 0;
    for (size_t i = 0; i < t->handler_count; i++)
        if (t->options.handlers[i].kind == DUR_HANDLER_ORCHESTRATION) t->handlers[at++] = t->options.handlers[i];
    for (dur__mocked *a = t->activities; a != NULL; a = a->next) {
        t->handlers[at] = (dur_handler)DUR_ACTIVITY_TAKEN(a->name);
        t->handlers[at++].data = a->data;
    }
    t->handlers[at] = (dur_handler)DUR_HANDLERS_END;
}

static size_t count_activities(const dur_test *t) {
    size_t count = 0;
    for (const dur__mocked *a = t->activities; a != NULL; a = a->next)
        count++;
    return count;
}

int dur__test_node(dur_test *t, dur_error *err) {
    if (t->runtime != NULL) return DUR_OK;
    dur_runtime_options options = { .size = sizeof(options) };
    if (t->options.runtime != NULL) {
        size_t size = t->options.runtime->size;
        memcpy(&options, t->options.runtime, size < sizeof(options) ? size : sizeof(options));
    }
    free(t->handlers);
    t->handlers = calloc(t->handler_count + count_activities(t) + 1, sizeof(*t->handlers));
    if (t->handlers == NULL) return dur_error_set(err, DUR_ENOMEM, false, "test.node", "no memory");
    fill_handlers(t);
    options.size = sizeof(options);
    options.store = t->store;
    options.handlers = t->handlers;
    options.registry = NULL;
    options.threads = DUR_THREADS_NONE;
    options.world = dur_fake_world_get(t->world);
    options.owner_timeout_ms = OWNER_TIMEOUT_MS;
    options.max_attempts = UINT32_MAX; /* who dies by our hand is no poison */
    options.suspect_alone_ms = 1;
    options.prefetch = 100000;
    options.double_run = !t->options.no_double_run;
    options.evict_every_turn = t->options.evict_every_wait;
    t->node_replayed = 0;
    int code = dur_runtime_start(&t->runtime, &options, err);
    t->stirred = true;
    t->nodes++;
    return code == DUR_OK ? dur_runtime_host(t->runtime, dur__test_host, t, err) : code;
}

/* As kind as it can be: it gives back what it has. */
static void stop_node(dur_test *t) {
    if (t->runtime == NULL) return;
    dur__test_lose_acts(t);
    (void)dur_runtime_stop(t->runtime, 0, NULL);
    t->runtime = NULL;
    t->stirred = true;
}

/* Another owner finds it silent. */
static int fence(dur_test *t, dur_error *err) {
    dur_owner_report report = { 0 };
    char owner[64];
    snprintf(owner, sizeof(owner), "undertaker-%llu", (unsigned long long)t->nodes);
    dur_fake_world_advance(t->world, OWNER_TIMEOUT_MS);
    dur_fake_world_jump(t->world, -(int64_t)OWNER_TIMEOUT_MS);
    int code = dur_store_owner_register(t->store, &(dur_owner_options){ .owner = owner }, err);
    if (code != DUR_OK) return code;
    code = dur_store_owner_beat(t->store, owner, &report, err);
    (void)dur_store_owner_release(t->store, owner, NULL);
    if (code == DUR_OK && report.taken_over == 0)
        code = dur_error_set(err, DUR_ESTATE, false, "test.crash", "the store does not take the node for dead");
    return code;
}

int dur_test_crash(dur_test *t, dur_error *err) {
    if (t == NULL) return dur_error_set(err, DUR_EINVAL, false, "test.crash", "a test is required");
    dur_error_clear(err);
    dur__test_enter(t);
    if (t->runtime == NULL) return dur__test_node(t, err); /* there is none that could die */
    for (size_t i = 0; i < t->held_count; i++)
        if (t->held[i].runs && !t->held[i].ran)
            return dur_error_set(err, DUR_EDEADLK, false, "test.crash",
                                 "called by an activity, whose node would be gone");
    int code = fence(t, err);
    if (code != DUR_OK) return code;
    stop_node(t);
    return dur__test_node(t, err);
}

/* ---- a test ---- */

/* The node gets a table of its own, in which activities are taken: what is wrong with the user's is seen here. */
static int check_handlers(const dur_handler *handlers, dur_error *err) {
    dur_registry *registry = NULL;
    int code = dur_registry_new(&registry, err);
    if (code == DUR_OK) code = dur_registry_add(registry, handlers, err);
    dur_registry_free(registry);
    return code;
}

static int open_all(dur_test *t, dur_error *err) {
    const dur_world *world = dur_fake_world_get(t->world);
    int code = check_handlers(t->options.handlers, err);
    if (code == DUR_OK) code = dur_open_ex(&t->store, "memory:", DUR_OPEN_OPTIONS(.world = world), err);
    if (code == DUR_OK) code = dur_client_new(&t->client, t->store, err);
    t->waker = dur_waker_new(); /* nobody sleeps on it */
    if (code == DUR_OK && t->waker == NULL)
        code = dur_error_set(err, DUR_ENOMEM, false, "test.new", "no memory or descriptor for a waker");
    if (code == DUR_OK)
        code = dur_store_lane_open(t->store, &(dur_lane_options){ .waker = t->waker, .stepped = true }, &t->lane, err);
    for (const dur_handler *h = t->options.handlers; code == DUR_OK && h->kind != DUR_HANDLER_END; h++) {
        t->handler_count++;
        if (h->kind != DUR_HANDLER_ACTIVITY) continue;
        dur__mocked *activity = dur__test_activity(t, h->name);
        activity->registered = h->activity;
        activity->data = h->data;
    }
    return code == DUR_OK ? dur__test_node(t, err) : code; /* what it refuses is refused now */
}

static const char *waits_of(void *test, const char *instance) {
    return dur_test_waits_text(test, instance);
}

int dur_test_new(dur_test **out, const dur_test_options *options, dur_error *err) {
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, "test.new", "out is required");
    *out = NULL;
    if (options == NULL || options->handlers == NULL)
        return dur_error_set(err, DUR_EINVAL, false, "test.new", "handlers are required");
    dur_test *t = calloc(1, sizeof(*t));
    if (t == NULL) return dur_error_set(err, DUR_ENOMEM, false, "test.new", "no memory for a test");
    memcpy(&t->options, options, options->size < sizeof(t->options) ? options->size : sizeof(t->options));
    if (t->options.start_ms >= DUR__TIME_MAX_MS) {
        free(t);
        return dur_error_set(err, DUR_EINVAL, false, "test.new", "start_ms is behind the end of time");
    }
    if (t->options.seed == 0) t->options.seed = 1;
    if (t->options.start_ms == 0) t->options.start_ms = START_MS;
    t->world = dur_fake_world_new(t->options.start_ms, t->options.seed);
    int code = DUR_OK;
    if (t->world == NULL) code = dur_error_set(err, DUR_ENOMEM, false, "test.new", "no memory for a world");
    if (code == DUR_OK) dur__test_enter(t);
    if (code == DUR_OK) dur_fake_world_alone(t->world, waits_of, t);
    if (code == DUR_OK) code = open_all(t, err);
    if (code != DUR_OK) {
        dur_test_free(t);
        return code;
    }
    dur_error_clear(err);
    *out = t;
    return DUR_OK;
}

void dur_test_free(dur_test *t) {
    if (t == NULL) return;
    dur__test_enter(t);
    stop_node(t);
    dur_store_lane_close(t->lane);
    dur_waker_free(t->waker);
    dur_client_free(t->client);
    dur_provider_close(t->store);
    for (dur__mocked *a = t->activities; a != NULL; a = a->next)
        free(a->inputs);
    free(t->handlers);
    free(t->held);
    free(t->letters);
    free(t->roots);
    free(t->told);
    free_kept(t->kept);
    dur_fake_world_free(t->world); /* and the thread lives in the real one again */
    free(t);
}

dur_client *dur_test_client(dur_test *t) {
    if (t == NULL) return NULL;
    dur__test_enter(t);
    t->stirred = true; /* whatever it is asked to do */
    return t->client;
}

uint64_t dur__test_boot_ms(const dur_test *t) {
    const dur_world *world = dur_fake_world_get(t->world);
    return world->boot_ms(world->data);
}

uint64_t dur_test_now_ms(const dur_test *t) {
    if (t == NULL) return 0;
    const dur_world *world = dur_fake_world_get(t->world);
    return world->wall_ms(world->data);
}
