/*
 * world.c: time, ids, randomness and markers, each recorded as a system call: two events, one command, no round trip.
 */
#include "core/limits.h"
#include "core/unreported.h"
#include "replay/engine.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* The recorded answer, or in a new group the one just made; lives in the branch's scope. */
static const char *system_call(dur__exec *exec, const char *name, const char *made, const char *site) {
    if (exec->original) return dur__original_system(exec, name, "", made, site);
    dur_event event = { .kind = DUR_EVENT_ACTIVITY_SCHEDULED, .name = name, .input = "" };
    const char *result;
    if (!dur__command_pair(exec, &event, made, &result, site)) dur__branch_leave(exec);
    return dur__scope_text(exec->running->scope, result);
}

static void random_bytes(dur__exec *exec, void *out, size_t size) {
    memset(out, 0, size);
    if (!exec->replaying && exec->options.random != NULL) exec->options.random(exec->options.random_data, out, size);
}

static uint64_t number_of(const char *text) {
    uint64_t value = 0;
    return dur__u64_parse(text, strlen(text), &value) ? value : 0;
}

uint64_t dur_now_ms_ex(dur_ctx *ctx, const char *site) {
    dur__exec *exec = dur__enter(ctx, "dur_now_ms");
    if (exec == NULL) return 0;
    char made[21];
    dur__u64_text(made, exec->now_ms);
    return number_of(system_call(exec, DUR__SYSCALL "utc_now_ms", made, site));
}

uint64_t dur_random_ex(dur_ctx *ctx, const char *site) {
    dur__exec *exec = dur__enter(ctx, "dur_random");
    if (exec == NULL) return 0;
    uint64_t bits;
    random_bytes(exec, &bits, sizeof(bits));
    char made[21];
    dur__u64_text(made, bits);
    return number_of(system_call(exec, DUR__SYSCALL "random", made, site));
}

const char *dur_guid_ex(dur_ctx *ctx, const char *site) {
    dur__exec *exec = dur__enter(ctx, "dur_guid");
    if (exec == NULL) return NULL;
    unsigned char b[16];
    random_bytes(exec, b, sizeof(b));
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40); /* RFC 4122: version 4, variant 1 */
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    char made[40];
    snprintf(made, sizeof(made), "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    return system_call(exec, DUR__SYSCALL "new_guid", made, site);
}

/* ---- markers (R9) ---- */

static char answer_yes, answer_no; /* values of exec->markers */

static bool marker_ask(dur__exec *exec, const char *id, const char *site) {
    if (exec->original)
        return strcmp(dur__original_system(exec, DUR__SYSCALL "patched", id, "true", site), "true") == 0;
    if (exec->replaying) return dur__match_marker(exec, id);
    dur_event event = { .kind = DUR_EVENT_ACTIVITY_SCHEDULED, .name = DUR__MARKER, .input = id };
    const char *result;
    return dur__command_pair(exec, &event, "true", &result, site);
}

bool dur_patched_ex(dur_ctx *ctx, const char *id, const char *site) {
    dur__exec *exec = dur__enter(ctx, "dur_patched");
    if (exec == NULL) return false;
    dur__need_name(exec, "dur_patched", "id", id, DUR__NAME_BYTES_MAX);
    void *known = dur__map_get(&exec->markers, id);
    if (known != NULL) return known == &answer_yes;
    bool answer = marker_ask(exec, id, site);
    dur__map_put(&exec->markers, dur__intern(exec, id), answer ? &answer_yes : &answer_no);
    return answer;
}

/* For whoever ends the execution without its handler (core/unreported.h); handlers see nothing of it. */
bool dur__mark(dur__exec *exec, const char *what, const dur__leaf *leaf) {
    char id[64];
    snprintf(id, sizeof(id), "%s%" PRIu64, what, leaf->id);
    return exec->broken == DUR_OK && marker_ask(exec, id, leaf->site);
}

void dur__markers_free(dur__exec *exec) {
    dur__map_free(&exec->markers);
}
