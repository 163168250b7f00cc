/*
 * client_run.c: start or attach, wait, result.
 */
#include "client/client_internal.h"

#include "base/arena_internal.h"
#include "base/thread.h"
#include "core/check.h"
#include <durite/sys/clock.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OP "client.run"
/* Whoever waits without a limit is told when nobody has had the handler for so long. */
#define UNSERVED_MS UINT64_C(10000)
#define LOOK_MS UINT64_C(5000) /* so often that is looked at */

/* An id that exists is attached to, if it is a run of the same orchestration: another one's answer is not the caller's.
 */
static int check_attached(dur_client *client, const dur_start_args *args, dur_error *err) {
    dur_instance_row row;
    dur_arena *arena = dur__arena_xnew();
    int code = dur__client_row(client, arena, args->instance, &row, err);
    const char *name = code == DUR_OK && row.orchestration_name != NULL ? row.orchestration_name : "";
    if (code == DUR_OK && strcmp(name, args->name) != 0)
        code =
            dur_error_set(err, DUR_EEXISTS, false, OP, "instance \"%.200s\" is a run of \"%.100s\", not of \"%.100s\"",
                          args->instance, name, args->name);
    dur_arena_free(arena);
    return code;
}

/* The end of the wait is the same handler missing at each look for UNSERVED_MS: a node may be restarting. */
static int wait_without_limit(char **out, dur_client *client, const char *instance, dur_error *err) {
    uint64_t begun_us = dur__monotonic_us(), missing_ms = 0;
    dur__lack before = { "" };
    for (uint64_t until_ms = LOOK_MS;; until_ms += LOOK_MS) {
        dur__lack now = { "" };
        int code = dur__client_result(out, client, instance, begun_us, until_ms, OP, &now, err);
        bool same = now.handler[0] != '\0' && strcmp(now.handler, before.handler) == 0;
        missing_ms = same ? missing_ms + LOOK_MS : 0;
        if (code != DUR_ETIMEOUT || missing_ms >= UNSERVED_MS) return code;
        before = now;
    }
}

/* Before a start, which would be a write: is the instance there?  DUR_ENOTFOUND: the start finds out. */
static int attach_in_time(dur_client *client, const dur_start_args *args, uint64_t timeout_ms, uint64_t until_us,
                          dur_error *err) {
    dur_error why = DUR_ERROR_INIT;
    uint64_t outer_us = dur__client_deadline(timeout_ms, until_us);
    int code = check_attached(client, args, &why);
    (void)dur_deadline_set(outer_us);
    if (code != DUR_OK && code != DUR_EEXISTS && code != DUR_EUNAVAILABLE) return DUR_ENOTFOUND;
    if (code != DUR_OK && err != NULL) *err = why;
    return code;
}

/* Who has a limit, and an id that may be there, waits for nothing but answers to reads until it is known. */
static int start_or_attach(dur_client *client, const dur_start_args *args, bool looks, uint64_t timeout_ms,
                           uint64_t until_us, dur_error *err) {
    bool existed = false;
    int code = looks ? attach_in_time(client, args, timeout_ms, until_us, err) : DUR_ENOTFOUND;
    if (code != DUR_ENOTFOUND) return code;
    code = dur__client_start(client, args, &existed, err);
    if (code != DUR_OK || !existed) return code;
    uint64_t outer_us = dur__client_deadline(timeout_ms, until_us);
    code = check_attached(client, args, err);
    (void)dur_deadline_set(outer_us);
    return code;
}

int dur_client_run_ex(char **out, dur_client *client, const dur_run_args *given, dur_error *err) {
    DUR__SET_ASIDE(OP, err);
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, OP, "out is required, got NULL");
    *out = NULL;
    if (given == NULL) return dur_error_set(err, DUR_EINVAL, false, OP, "args are required, got NULL");
    dur_run_args args;
    int code = dur__client_enter(client, OP, err);
    if (code == DUR_OK) code = dur__client_options(&args, sizeof(args), given, OP, err);
    if (code != DUR_OK) return code;
    char made[96];
    if (args.instance == NULL) {
        uint64_t random = 0;
        const dur_world *world = dur_world_real();
        world->random(world->data, &random, sizeof(random));
        snprintf(made, sizeof(made), "run-%016" PRIx64, random);
    }
    const dur_start_args wanted = { .size = sizeof(wanted),
                                    .name = args.name,
                                    .input = args.input,
                                    .instance = args.instance != NULL ? args.instance : made,
                                    .version = args.version,
                                    .exists = DUR_START_RETURN_EXISTING };
    dur_start_args start;
    uint64_t begun_us = dur__monotonic_us(), timeout_ms = args.timeout_ms;
    code = dur__client_may_wait(timeout_ms == 0 || dur__client_until(begun_us, timeout_ms) == UINT64_MAX, OP, err);
    if (code == DUR_OK) code = dur__client_start_args(&start, &wanted, OP, err);
    if (code == DUR_OK)
        code = start_or_attach(client, &start, args.instance != NULL && timeout_ms > 0, timeout_ms,
                               dur__client_until(begun_us, timeout_ms), err);
    if (code != DUR_OK) return code;
    if (timeout_ms == 0) return wait_without_limit(out, client, start.instance, err);
    return dur__client_result(out, client, start.instance, begun_us, timeout_ms, OP, NULL, err);
}
