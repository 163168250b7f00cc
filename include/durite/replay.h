/*
 * replay.h: run a saved history against today's code, without a store or threads.
 *
 * For tests and deploy checks: "would this program accept what is running now?"
 */
#ifndef DURITE_REPLAY_H
#define DURITE_REPLAY_H

#include <durite/registry.h>

DUR_BEGIN_DECLS

typedef struct dur_replay_report {
    size_t size;
    uint64_t events;       /* replayed */
    bool finished;         /* the handler returned */
    uint64_t new_commands; /* commands that the code gives beyond the end of the history (a turn that was cut off: 0) */
} dur_replay_report;

/*
 * Replay a history (a JSON array as dur_client_history gives it) against the handlers.  DUR_OK: it fits.
 * DUR_ENONDETERMINISM: it does not; err says at which event, what history holds, what the code asked for and where.
 * Other codes: DUR_ECORRUPT, DUR_ENOTFOUND (no such handler or version), DUR_EINVAL.  out may be NULL.  Any thread.
 */
DUR_API int dur_replay_history(dur_replay_report *out, const dur_handler *handlers, const char *history_json,
                               dur_error *err);

DUR_END_DECLS

#endif
