/*
 * game_loop.c: crops that grow while nobody plays, in a game with 60 frames a second and one thread.
 *
 * Each frame gives the runtime two milliseconds.  A step never begins something new when they are over; one commit may
 * take longer on a slow disk, and then one frame does.
 */
#include <durite/durite.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FRAME_MS 16
#define BUDGET_MS 2
#define FIELDS 12

static int harvested; /* the game's state; everything happens on its one thread */

static dur_outcome harvest(dur_act *act, const char *crop) {
    harvested++;
    return dur_act_complete(act, crop);
}

static dur_outcome field(dur_ctx *ctx, const char *crop) {
    dur_await(dur_timer(ctx, 120)); /* days, in a game for patient people: they survive its end */
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Harvest", crop)));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Harvest", harvest),
    DUR_ORCHESTRATION("Field", "1.0.0", field),
    DUR_HANDLERS_END,
};

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void until(uint64_t at_ms) { /* the frame's end: a real game waits for the screen */
    uint64_t now = now_ms();
    if (now < at_ms) nanosleep(&(struct timespec){ .tv_nsec = (long)(at_ms - now) * 1000000 }, NULL);
}

int main(int argc, char **argv) {
    dur_error err = DUR_ERROR_INIT;
    dur_provider *store = NULL;
    dur_runtime *runtime = NULL;
    dur_client *client = NULL;
    int code = dur_open(&store, argc > 1 ? argv[1] : "memory:", &err);
    if (code == DUR_OK)
        code = dur_runtime_start(&runtime,
                                 DUR_RUNTIME(.store = store, .handlers = handlers, .threads = DUR_THREADS_NONE), &err);
    if (code == DUR_OK) code = dur_client_new(&client, store, &err);
    for (int i = 0; i < FIELDS && code == DUR_OK; i++) {
        char id[32];
        snprintf(id, sizeof(id), "field-%d", i);
        code = dur_client_start(client, &err, "Field", "wheat", .instance = id, .exists = DUR_START_REPLACE_FINISHED);
    }

    unsigned frames = 0;
    for (uint64_t frame_ms = now_ms(); code == DUR_OK && harvested < FIELDS; frames++) {
        code = dur_runtime_step(runtime, BUDGET_MS, &err);
        /* draw */
        until(frame_ms += FRAME_MS);
    }

    if (code == DUR_OK)
        printf("harvested %d fields in %u frames\n", harvested, frames);
    else
        fprintf(stderr, "%s: %s\n", err.op, err.message);
    dur_client_free(client);
    dur_runtime_stop(runtime, DUR_SECONDS(1), NULL);
    dur_provider_close(store);
    return code == DUR_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
