/*
 * activity.h: what the author of an activity uses.
 *
 * An activity is an ordinary C function on a worker thread: it may block, use files and sockets, and take long.  It
 * runs at least once, and each attempt of a retry policy runs again: make its effects idempotent by dur_act_key.
 * Thread class of dur_act: the activity's thread, or one that it started and joins; dur_act_cancelled from any thread.
 * Calls without a dur_act (NULL) do nothing and answer NULL, "", 0, -1 or false.
 */
#ifndef DURITE_ACTIVITY_H
#define DURITE_ACTIVITY_H

#include <durite/orchestration.h>

DUR_BEGIN_DECLS

typedef struct dur_act dur_act;
struct dur_client;

typedef dur_outcome dur_activity_fn(dur_act *act, const char *input);

/* ---- how it ends ---- */
DUR_API dur_outcome dur_act_complete(dur_act *act, const char *result);
DUR_API dur_outcome dur_act_completef(dur_act *act, const char *format, ...) DUR_PRINTF(2, 3);
DUR_API dur_outcome dur_act_fail(dur_act *act, const char *reason); /* a retry policy may try again */
DUR_API dur_outcome dur_act_failf(dur_act *act, const char *format, ...) DUR_PRINTF(2, 3);
DUR_API dur_outcome dur_act_fail_final(dur_act *act, const char *reason); /* no retry will help */

/* ---- who and where ---- */
DUR_API const char *dur_act_instance_id(const dur_act *act);
DUR_API uint64_t dur_act_execution_id(const dur_act *act);
DUR_API const char *dur_act_orchestration_name(const dur_act *act);
DUR_API const char *dur_act_orchestration_version(const dur_act *act);
DUR_API const char *dur_act_name(const dur_act *act);
DUR_API const char *dur_act_input(const dur_act *act);
DUR_API uint64_t dur_act_id(const dur_act *act); /* the schedule event's id */
DUR_API const char *dur_act_worker_id(const dur_act *act);
DUR_API const char *dur_act_session(const dur_act *act); /* NULL: none; at most 512 bytes */
DUR_API const char *dur_act_tag(const dur_act *act);     /* NULL: none */
DUR_API uint32_t dur_act_attempt(const dur_act *act);    /* of the retry policy, from 1 */
/* How often this attempt was handed to a worker, from 1.  (max_attempts is compared with less: with the crashes in
   which it ran alone; on a store without owners with this.)  It leaves out deliveries that say nothing against the
   activity: those that were given back by a runtime that stopped (dur_runtime_stop) or took a new owner id, also where
   the activity was running and went on to its end.  1 therefore does not mean that it never ran before. */
DUR_API uint32_t dur_act_delivery(const dur_act *act);
/* The idempotency key for the outside world: the same for every attempt of the retry policy, every delivery, after
   crashes and on every node, and no other call's: another dur_activity(), another execution and another instance that
   gets the same id have other keys.  "instance/birth/execution/id" of the first attempt; at most 1100 bytes. */
DUR_API const char *dur_act_key(const dur_act *act);
/* The same for every delivery of this attempt only: "instance/execution/id".  A bank that is asked under it may charge
   once for each attempt; it is for what each attempt is to do anew. */
DUR_API const char *dur_act_attempt_key(const dur_act *act);
DUR_API void *dur_act_data(const dur_act *act); /* of its dur_handler; NULL: none */

/* ---- cancellation: the orchestration gave up, or this runtime stops; the result will be ignored ----
   After a stop (its grace is over) another node, or the next runtime here, runs the activity again: return soon,
   however you like.  What an activity returns that has not asked counts as ever. */
DUR_API bool dur_act_cancelled(const dur_act *act);
/* A descriptor that becomes readable at that moment, for poll(); -1 when none is to be had.  Not yours to close.
   Whoever has it counts as one that has asked. */
DUR_API int dur_act_cancel_fd(dur_act *act);
/* Sleep for ms, or until cancelled: true when cancelled.  Inside dur_runtime_step the node goes on meanwhile; an
   activity that begins then ends before this one goes on. */
DUR_API bool dur_act_sleep(dur_act *act, uint64_t ms);

/* An activity that takes long and runs inside dur_runtime_step calls this now and then, at least every second or so:
   the node shows that it lives.  True when cancelled.  Elsewhere it only looks at that. */
DUR_API bool dur_act_beat(dur_act *act);

/* A client on the same store; lives as long as the activity. */
DUR_API struct dur_client *dur_act_client(dur_act *act);

/* ---- memory and log ---- */
DUR_API void *dur_act_alloc(dur_act *act, size_t size); /* zeroed; freed when the activity ends */
DUR_API char *dur_act_format(dur_act *act, const char *format, ...) DUR_PRINTF(2, 3);
DUR_API void dur_act_trace(dur_act *act, dur_log_level level, const char *format, ...) DUR_PRINTF(3, 4);

DUR_END_DECLS

#endif
