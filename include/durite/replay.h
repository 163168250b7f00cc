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
    uint64_t events; /* replayed, over all histories */
    bool finished;   /* the last execution has ended */
} dur_replay_report;

/*
 * Replay a history (a JSON array as dur_client_history gives it) against the handlers.  DUR_OK: it fits.
 * DUR_ENONDETERMINISM: it does not (a command too many or too few is one); err says at which event, what history holds,
 * what the code asked for and where.  Other codes: DUR_ECORRUPT (also where an event is missing), DUR_EUNSUPPORTED (an
 * event of a kind that this version does not know), DUR_ENOTFOUND (no such handler or version), DUR_EINVAL.  out may be
 * NULL.  Any thread.
 */
DUR_API int dur_replay_history(dur_replay_report *out, const dur_handler *handlers, const char *history_json,
                               dur_error *err);

/*
 * The same for several executions of one instance, oldest first: an execution finds the keys (dur_kv_get) that the one
 * before it left.  A handler that reads keys over a continue-as-new can only be judged by this call.  Codes as above,
 * and DUR_EINVAL for executions that do not follow one another.
 */
DUR_API int dur_replay_histories(dur_replay_report *out, const dur_handler *handlers, const char *const *histories_json,
                                 size_t count, dur_error *err);

DUR_END_DECLS

#endif
