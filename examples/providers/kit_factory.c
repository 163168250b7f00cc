/*
 * kit_factory.c: judging a store of yours by a program of yours.
 *
 *     cc kit_factory.c minimal.c $(pkg-config --cflags --libs durite-kit) -o judge
 *     ./judge [PATTERN]          which validations, as durite-kit --only
 *
 * The factory makes an empty store for each validation and moves its clock, so that nothing sleeps.  durite-kit does
 * this for whatever a URL can open; this is for stores that need more: a database to be made, faults to be planted.
 */
#include <durite/provider.h>
#include <durite/sys/clock.h>
#include <durite/sys/kit.h>
#include <stdio.h>
#include <stdlib.h>

int minimal_register(dur_error *err); /* minimal.c */

static int open_store(void *data, dur_kit_store *out, dur_error *err) {
    dur_fake_world *world = dur_fake_world_new(1800000000000u, 1);
    (void)data;
    if (world == NULL) return dur_error_set(err, DUR_ENOMEM, false, "judge.open", "no memory for a clock");
    dur_open_options options = { .size = sizeof(options), .world = dur_fake_world_get(world) };
    int code = dur_open_ex(&out->provider, "minimal:", &options, err);
    out->data = world;
    if (code != DUR_OK) dur_fake_world_free(world);
    return code;
}

static void close_store(void *data, dur_kit_store *store) {
    (void)data;
    dur_provider_close(store->provider);
    dur_fake_world_free(store->data);
}

static void advance(void *data, dur_kit_store *store, uint64_t ms) {
    (void)data;
    dur_fake_world_advance(store->data, ms);
}

static void jump(void *data, dur_kit_store *store, int64_t wall_ms) {
    (void)data;
    dur_fake_world_jump(store->data, wall_ms);
}

static void say(void *data, const dur_kit_result *result) {
    (void)data;
    if (result->outcome == DUR_KIT_FAILED) printf("%s/%s: %s\n", result->category, result->name, result->message);
}

int main(int argc, char **argv) {
    const dur_kit_factory factory = { .size = sizeof(factory),
                                      .poll = DUR_KIT_POLL_SHORT,
                                      .open = open_store,
                                      .close = close_store,
                                      .advance = advance,
                                      .jump = jump };
    const dur_kit_options options = { .size = sizeof(options), .only = argc > 1 ? argv[1] : NULL, .on_result = say };
    dur_kit_report report;
    dur_error err = DUR_ERROR_INIT;
    int code = minimal_register(&err);
    if (code == DUR_OK) code = dur_kit_run(&factory, &options, &report, &err);
    if (code != DUR_OK && code != DUR_EFAILED) {
        fprintf(stderr, "%s\n", err.message);
        return 2;
    }
    printf("%u passed, %u failed, %u skipped\n", report.passed, report.failed, report.skipped);
    return code == DUR_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
