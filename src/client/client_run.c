/*
 * client_run.c: start or attach, wait, result.
 */
#include "client/client_internal.h"

#include "core/check.h"
#include <durite/sys/clock.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OP "client.run"
/* Whoever waits without a limit is told when nobody has had the handler for so long. */
#define UNSERVED_MS UINT64_C(10000)

/* An id that exists is attached to, if it is a run of the same orchestration: another one's answer is not the caller's.
 */
static int check_attached(dur_client *client, const dur_start_args *args, dur_error *err) {
    dur_instance_info *info = NULL;
    int code = dur_client_info(&info, client, args->instance, err);
    if (code != DUR_OK) return code;
    if (strcmp(info->name, args->name) != 0)
        code =
            dur_error_set(err, DUR_EEXISTS, false, OP, "instance \"%.200s\" is a run of \"%.100s\", not of \"%.100s\"",
                          args->instance, info->name, args->name);
    dur_instance_info_free(info);
    return code;
}

static int wait_for_end(char **out, dur_client *client, const char *instance, uint64_t timeout_ms, dur_error *err) {
    bool unserved = false;
    if (timeout_ms != 0) return dur__client_result(out, client, instance, timeout_ms, OP, &unserved, err);
    int code;
    do
        code = dur__client_result(out, client, instance, UNSERVED_MS, OP, &unserved, err);
    while (code == DUR_ETIMEOUT && !unserved);
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
    bool existed = false;
    code = dur__client_start_args(&start, &wanted, OP, err);
    if (code == DUR_OK) code = dur__client_start(client, &start, &existed, err);
    if (code == DUR_OK && existed) code = check_attached(client, &start, err);
    return code == DUR_OK ? wait_for_end(out, client, start.instance, args.timeout_ms, err) : code;
}
