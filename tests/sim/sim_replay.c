/*
 * sim_replay.c: the trace as a schedule: each decision is a line of the trace, and a kept trace is followed again.
 *
 * On PostgreSQL a seed alone does not repeat a run: notifications and ends of lock waits come when they come, and from
 * the first that comes otherwise every choice means something else.  So a decision is written down with what was chosen
 * and where the stream of choices stood; who follows it chooses the same, and waits a moment for what was there before.
 */
#include "sim_machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MISSED_MAX 40 /* in a row: it is another run */

static FILE *followed;
static uint64_t followed_count, missed_count, missed_in_a_row, missed_before;

#define HEADER "# sim seed "

bool sim_replay_open(const char *path, uint64_t *seed) {
    char line[64];
    followed = fopen(path, "re");
    if (followed == NULL) {
        perror(path);
        return false;
    }
    if (fgets(line, sizeof(line), followed) != NULL && sscanf(line, HEADER "%" SCNu64, seed) == 1) return true;
    fprintf(stderr, "sim: %s is not a kept trace\n", path);
    return false;
}

static void stop(void) {
    if (followed == NULL) return;
    sim_trace("machine", "followed %" PRIu64 " decisions, and missed %" PRIu64, followed_count, missed_count);
    printf("# followed %" PRIu64 " decisions of the kept trace, and missed %" PRIu64 "\n", followed_count,
           missed_count);
    fclose(followed);
    followed = NULL;
}

bool sim_replay_next(sim_decision *out) {
    char line[1024], who[24], kind[8], state[16];
    while (followed != NULL && fgets(line, sizeof(line), followed) != NULL) {
        if (sscanf(line, "%*s machine %7s %23s %" SCNu64 " %15s %" SCNx64 " %" SCNu64, kind, who, &out->number, state,
                   &out->rng, &out->at_ns) != 6)
            continue;
        out->kind = strcmp(kind, "turn") == 0   ? SIM_DECIDED_TURN
                    : strcmp(kind, "wait") == 0 ? SIM_DECIDED_WAIT
                    : strcmp(kind, "time") == 0 ? SIM_DECIDED_TIME
                                                : SIM_DECIDED_NOTHING;
        if (out->kind == SIM_DECIDED_NOTHING) continue;
        snprintf(out->who, sizeof(out->who), "%s", who);
        out->state = strcmp(state, "point") == 0 ? SIM_AT_POINT : strcmp(state, "gone") == 0 ? SIM_ABSENT : SIM_ASLEEP;
        followed_count++;
        if (missed_count == missed_before) missed_in_a_row = 0;
        missed_before = missed_count;
        return true;
    }
    stop();
    return false;
}

void sim_replay_missed(void) {
    missed_count++;
    if (++missed_in_a_row == MISSED_MAX) stop();
}

void sim_decision_trace(const sim_decision *made) {
    static const char *const kinds[] = { "", "turn", "wait", "time" };
    sim_trace("machine", "%s %s %" PRIu64 " %s %" PRIx64 " %" PRIu64, kinds[made->kind], made->who, made->number,
              made->state == SIM_AT_POINT ? "point"
              : made->state == SIM_ABSENT ? "gone"
                                          : "rest",
              made->rng, made->at_ns);
}

bool sim_trace_keep(char *path, size_t room) {
    const sim_common *all = sim_shared_memory;
    const char *folder = getenv("DURITE_SIM_KEEP");
    snprintf(path, room, "%s/sim-%" PRIu64 ".trace", folder != NULL ? folder : ".", all->seed);
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        perror(path);
        return false;
    }
    fprintf(file, HEADER "%" PRIu64 ": %s\n", all->seed, all->failure);
    bool fine = fwrite(all->trace, 1, all->trace_bytes, file) == all->trace_bytes;
    return fclose(file) == 0 && fine;
}
