/*
 * orchestration.h: what the author of an orchestration uses.
 *
 * An orchestration is a C function that reads as blocking code and survives crashes.  Nouns schedule and return at
 * once (dur_activity, dur_timer, dur_message, …), verbs wait (dur_await, dur_try, dur_select, dur_join).  It may be
 * thrown away at any wait and run again from its first line in another process; recorded answers then bring it to where
 * it was.  So, in a handler:
 *
 *   - Of two calls in one statement that schedule, wait or record, one must be nested in the other's arguments: C does
 *     not say which argument is evaluated first.
 *   - Nothing but memory of this header (dur_alloc, dur_format, received values) is held across a wait: no malloc,
 *     file, lock.  dur_on_drop is for the exception.
 *   - No time(), rand(), getenv(), getpid(), mutable statics, locale, pointer values as data; no blocking calls.
 *   - Changing a handler with running instances needs a new version or dur_patched().
 *
 * Memory: every pointer that a handler receives lives until its execution ends (or its scope: dur_scope_begin).  There
 * is nothing to free.  Strings given to us are copied.  NULL as input, output or data means "".
 *
 * Thread class of dur_ctx, dur_future, dur_saga, dur_scope: pinned; use them only in the handler that got them.
 * Wrong arguments (NULL name, not UTF-8, too long, another handler's future) end the branch with a failure saying so.
 */
#ifndef DURITE_ORCHESTRATION_H
#define DURITE_ORCHESTRATION_H

#include <durite/error.h>
#include <durite/export.h>
#include <durite/log.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

DUR_BEGIN_DECLS

typedef struct dur_ctx dur_ctx;       /* one execution of a handler */
typedef struct dur_future dur_future; /* something that was asked for and will settle */
typedef struct dur_scope dur_scope;
typedef struct dur_saga dur_saga;

/* How a handler or an activity ended.  Made by dur_complete and friends only; its fields are ours. */
typedef struct dur_outcome {
    int kind_;
    int flags_;
    const char *text_;
    const char *version_;
} dur_outcome;

typedef dur_outcome dur_orchestration_fn(dur_ctx *ctx, const char *input);
typedef dur_outcome dur_branch_fn(dur_ctx *ctx, void *arg);

/* ---- how a handler ends: exactly one of these, by return --------------------------------------------------------- */

DUR_API dur_outcome dur_complete(dur_ctx *ctx, const char *output);
DUR_API dur_outcome dur_completef(dur_ctx *ctx, const char *format, ...) DUR_PRINTF(2, 3);
DUR_API dur_outcome dur_fail(dur_ctx *ctx, const char *reason);
DUR_API dur_outcome dur_failf(dur_ctx *ctx, const char *format, ...) DUR_PRINTF(2, 3);
/* The same, and as what: DUR_EFAILED, DUR_ECANCELLED, DUR_ETIMEOUT or DUR_EPOISON, as a wait has answered.  Whoever
   waits for the branch is answered so, as if dur_await had ended it. */
DUR_API dur_outcome dur_fail_as(dur_ctx *ctx, dur_code code, const char *reason);

/* Start over as a new execution with a fresh history: dur_continue_as_new(ctx, input, .version = "2.0.0").
   Without a version the registry's policy chooses, which is how an eternal orchestration is upgraded. */
typedef struct dur_continue_args {
    size_t size;
    const char *input;
    const char *version;
} dur_continue_args;
DUR_API dur_outcome dur_continue_as_new_ex(dur_ctx *ctx, const dur_continue_args *args);
#define dur_continue_as_new(ctx, ...)                                                                                  \
    dur_continue_as_new_ex((ctx), &(dur_continue_args){ .size = sizeof(dur_continue_args), .input = __VA_ARGS__ })

/* ---- schedule: nouns --------------------------------------------------------------------------------------------- */

typedef enum dur_backoff {
    DUR_BACKOFF_EXPONENTIAL, /* delay × factor^(attempt-1) */
    DUR_BACKOFF_FIXED,       /* delay */
    DUR_BACKOFF_LINEAR,      /* delay × attempt */
    DUR_BACKOFF_NONE         /* at once */
} dur_backoff;

/* Ask whether this failure is worth another attempt.  Called on the loop's thread, also on replay: it must be a pure
   function of its arguments.  attempt is the number of the attempt that failed, from 1. */
typedef bool dur_retry_fn(const char *reason, uint32_t attempt, void *data);

/* When and how often a failed activity is tried again.  Zero means default. */
typedef struct dur_retry {
    size_t size;
    uint32_t attempts_max; /* 0: 3 */
    dur_backoff backoff;
    uint64_t delay_ms;           /* 0: 100 */
    double delay_factor;         /* 0: 2.0 */
    uint64_t delay_ms_max;       /* 0: 30 s */
    double jitter;               /* 0 … 1: share of the delay that is random (recorded with the timer) */
    uint64_t attempt_timeout_ms; /* 0: none.  An attempt that takes longer, its wait for a worker included, is cancelled
                                    and counts as failed */
    uint64_t total_timeout_ms;   /* 0: none.  Over all attempts and delays */
    bool no_retry_on_timeout;    /* true: a timed-out attempt ends it, as in Duroxide */
    dur_retry_fn *predicate;     /* NULL: everything not marked final is tried again */
    void *predicate_data;
} dur_retry;
#define DUR_RETRY(...) (&(const dur_retry){ .size = sizeof(dur_retry), __VA_ARGS__ })

/* dur_activity(ctx, "Name", input, .tag = "gpu", .session = "s1", .retry = DUR_RETRY(.attempts_max = 5)) */
typedef struct dur_activity_args {
    size_t size;
    const char *name;
    const char *input;
    const char *tag;     /* only workers that serve the tag take it; at most 256 bytes */
    const char *session; /* routed to the node that owns the session, which runs one of its activities at a time; at
                            most 512 bytes */
    const dur_retry *retry;
    uint64_t timeout_ms; /* 0: none.  Over the whole call; the failure is DUR_ETIMEOUT */
    const char *site;    /* filled by the macro */
} dur_activity_args;
DUR_API dur_future *dur_activity_ex(dur_ctx *ctx, const dur_activity_args *args);

/* dur_orchestration(ctx, "Name", input, .version = "2.0.0", .instance = "id"): a child that answers to us.  Dropping it
   cancels it.  An id that exists fails the call, whose instance is left alone however the call is given up.  Without
   .instance the id is made from ours, PARENT::sub::N, and counts against the 1024 bytes of every id: an instance whose
   id has more than 974 bytes gives its children ids of its own choice, or the branch fails.  So it does where 256
   parents are above us already: a handler that calls itself for ever comes to an end. */
typedef struct dur_orchestration_args {
    size_t size;
    const char *name;
    const char *input;
    const char *version;
    const char *instance;
    const char *site;
} dur_orchestration_args;
DUR_API dur_future *dur_orchestration_ex(dur_ctx *ctx, const dur_orchestration_args *args);
/* Start one that does not answer to us and is not cancelled with us; its instance id.  Under an id that exists nothing
   is started, and nobody is told: give one that nobody else gives, or none.  Then it is OURS::start::EXECUTION.N, with
   the same limit as a child's. */
DUR_API const char *dur_start_ex(dur_ctx *ctx, const dur_orchestration_args *args);

DUR_API dur_future *dur_timer_ex(dur_ctx *ctx, uint64_t delay_ms, const char *site);
/* The next message of that name (dur_client_send), first in, first out.  A message is kept until a waiting call has
   reported it to the handler: it may come before this call, while nobody waits, or before the instance continues as
   new.  What a dropped wait was given goes back to its place. */
DUR_API dur_future *dur_message_ex(dur_ctx *ctx, const char *name, const char *site);
/* Counts only while somebody waits: a pulse (dur_client_pulse) goes to the oldest open dur_pulse() of its name, and
   where there is none it is recorded and has no effect, although it was accepted.  It says "look now" to a loop that
   looks anyway; whatever must arrive is a message. */
DUR_API dur_future *dur_pulse_ex(dur_ctx *ctx, const char *name, const char *site);
DUR_API dur_future *dur_kv_remote_ex(dur_ctx *ctx, const char *instance, const char *key, const char *site);
/* A concurrent branch of this handler, with a stack of its own.  It settles as the branch ends. */
DUR_API dur_future *dur_spawn_ex(dur_ctx *ctx, dur_branch_fn *fn, void *arg, const char *site);
/* One future for many.  All settles when each has, failed if one did (the first by order of settling); its members are
   left alone and stay usable.  First settles as the first that does; then the others are dropped, as by dur_drop, and
   only the winner stays usable.  Neither owns its members: to drop the one future drops none of them. */
DUR_API dur_future *dur_all_of(dur_ctx *ctx, dur_future *const *futures, size_t count);
DUR_API dur_future *dur_first_of(dur_ctx *ctx, dur_future *const *futures, size_t count);

#define dur_activity(ctx, ...)                                                                                         \
    dur_activity_ex((ctx),                                                                                             \
                    &(dur_activity_args){ .size = sizeof(dur_activity_args), .site = DUR_SITE, .name = __VA_ARGS__ })
#define dur_orchestration(ctx, ...)                                                                                    \
    dur_orchestration_ex((ctx), &(dur_orchestration_args){                                                             \
                                    .size = sizeof(dur_orchestration_args), .site = DUR_SITE, .name = __VA_ARGS__ })
#define dur_start(ctx, ...)                                                                                            \
    dur_start_ex((ctx), &(dur_orchestration_args){                                                                     \
                            .size = sizeof(dur_orchestration_args), .site = DUR_SITE, .name = __VA_ARGS__ })
#define dur_timer(ctx, delay_ms) dur_timer_ex((ctx), (delay_ms), DUR_SITE)
#define dur_message(ctx, name) dur_message_ex((ctx), (name), DUR_SITE)
#define dur_pulse(ctx, name) dur_pulse_ex((ctx), (name), DUR_SITE)
/* "" or the value of a key of another instance; see dur_is_none */
#define dur_kv_remote(ctx, instance, key) dur_kv_remote_ex((ctx), (instance), (key), DUR_SITE)
#define dur_spawn(ctx, fn, arg) dur_spawn_ex((ctx), (fn), (arg), DUR_SITE)

/* ---- wait: verbs ------------------------------------------------------------------------------------------------- */

/* The value; or, if it failed, this branch ends failed with the same reason (the handler, if it is the first one). */
DUR_API const char *dur_await(dur_future *future);
/* DUR_OK and the value, or DUR_EFAILED, DUR_ECANCELLED, DUR_ETIMEOUT, DUR_EPOISON (an activity or child that crashed
   its process each time; final).  out may be NULL. */
DUR_API int dur_try(dur_future *future, const char **out);
/* The same within a time; then DUR_ETIMEOUT, and the future is dropped. */
DUR_API int dur_try_for_ex(dur_future *future, uint64_t timeout_ms, const char **out, const char *site);
#define dur_try_for(future, timeout_ms, out) dur_try_for_ex((future), (timeout_ms), (out), DUR_SITE)
/* The next message of that name that came before what woke this handler, without waiting: DUR_OK, or DUR_ENOTFOUND for
   none.  A loop of it drains what was there.  (To take what has come until this very moment: dur_try_for with 0 ms.) */
DUR_API int dur_try_message_ex(dur_ctx *ctx, const char *name, const char **out, const char *site);
#define dur_try_message(ctx, name, out) dur_try_message_ex((ctx), (name), (out), DUR_SITE)
DUR_API dur_future *dur_any_n(dur_future *const *futures, size_t count);    /* waits; first settled; drops nothing */
DUR_API dur_future *dur_select_n(dur_future *const *futures, size_t count); /* any, then drops the others */
DUR_API void dur_join_n(dur_future *const *futures, size_t count);          /* until all have settled, failed or not */
#define DUR_FUTURES_(...) ((dur_future *const[]){ __VA_ARGS__ })
#define DUR_COUNT_(...) (sizeof(DUR_FUTURES_(__VA_ARGS__)) / sizeof(dur_future *))
#define dur_any(...) dur_any_n(DUR_FUTURES_(__VA_ARGS__), DUR_COUNT_(__VA_ARGS__))
#define dur_select(...) dur_select_n(DUR_FUTURES_(__VA_ARGS__), DUR_COUNT_(__VA_ARGS__))
#define dur_join(...) dur_join_n(DUR_FUTURES_(__VA_ARGS__), DUR_COUNT_(__VA_ARGS__))

/* Without waiting: has it settled; how (DUR_ERUNNING: not yet); why it failed, for people ("" if it did not); whether a
   remote KV read found nothing; and whether its failure was marked final by the activity. */
DUR_API bool dur_is_settled(const dur_future *future);
DUR_API int dur_code_of(const dur_future *future);
DUR_API const char *dur_reason(const dur_future *future);
DUR_API bool dur_is_none(const dur_future *future);
DUR_API bool dur_is_final(const dur_future *future);

/* Give it up: what is open is cancelled.  Awaiting it later is DUR_ECANCELLED.  NULL allowed. */
DUR_API void dur_drop(dur_future *future);
/* Let it go on when its branch or the handler ends.  It is then nobody's and cannot be awaited after that.  A message
   that a dur_message() gets which is nobody's counts as unreported. */
DUR_API void dur_detach(dur_future *future);

/* ---- the deterministic world ------------------------------------------------------------------------------------- */

DUR_API uint64_t dur_now_ms_ex(dur_ctx *ctx, const char *site);  /* wall time, recorded */
DUR_API const char *dur_guid_ex(dur_ctx *ctx, const char *site); /* random UUID (version 4), recorded */
DUR_API uint64_t dur_random_ex(dur_ctx *ctx, const char *site);  /* 64 random bits, recorded */
#define dur_now_ms(ctx) dur_now_ms_ex((ctx), DUR_SITE)
#define dur_guid(ctx) dur_guid_ex((ctx), DUR_SITE)
#define dur_random(ctx) dur_random_ex((ctx), DUR_SITE)
/* True in executions that reached this call for the first time with it in the code, false in older ones; recorded.
   The id has at most 512 bytes.
   if (dur_patched(ctx, "send-receipt")) …new code… else …old code… */
DUR_API bool dur_patched_ex(dur_ctx *ctx, const char *id, const char *site);
#define dur_patched(ctx, id) dur_patched_ex((ctx), (id), DUR_SITE)

/* Log a line, once: nothing is written while replaying, and lines appear after the turn's commit. */
DUR_API void dur_trace(dur_ctx *ctx, dur_log_level level, const char *format, ...) DUR_PRINTF(3, 4);

/* Text that clients see while the orchestration runs; kept over continue-as-new.  get: NULL when none is set. */
DUR_API void dur_status_set(dur_ctx *ctx, const char *text);
DUR_API void dur_status_setf(dur_ctx *ctx, const char *format, ...) DUR_PRINTF(2, 3);
DUR_API void dur_status_clear(dur_ctx *ctx);
DUR_API const char *dur_status_get(dur_ctx *ctx);

/* Keys and values of this instance; kept over continue-as-new, readable by clients and other orchestrations.
   A key has at most 512 bytes. */
DUR_API void dur_kv_set(dur_ctx *ctx, const char *key, const char *value);
DUR_API const char *dur_kv_get(dur_ctx *ctx, const char *key); /* NULL: no such key */
DUR_API void dur_kv_clear(dur_ctx *ctx, const char *key);
DUR_API void dur_kv_clear_all(dur_ctx *ctx);
DUR_API size_t dur_kv_count(dur_ctx *ctx);
/* Keys in ascending byte order; valid until the next change of a key. */
DUR_API const char *dur_kv_key(dur_ctx *ctx, size_t index);
/* Clear the keys last set before that time; how many. */
DUR_API size_t dur_kv_prune(dur_ctx *ctx, uint64_t before_ms);

DUR_API const char *dur_instance_id(const dur_ctx *ctx);
DUR_API uint64_t dur_execution_id(const dur_ctx *ctx); /* from 1, one more at each continue-as-new */
DUR_API const char *dur_orchestration_name(const dur_ctx *ctx);
DUR_API const char *dur_orchestration_version(const dur_ctx *ctx);
DUR_API const char *dur_parent_instance(const dur_ctx *ctx); /* NULL: none */
DUR_API void *dur_handler_data(const dur_ctx *ctx);          /* of its dur_handler; NULL: none */
DUR_API bool dur_is_replaying(const dur_ctx *ctx);
DUR_API uint64_t dur_history_events(const dur_ctx *ctx); /* of this execution so far: when to continue as new */
/* Why cancellation was requested; NULL: it was not.  What is open settles as DUR_ECANCELLED at that moment; what is
   scheduled afterwards works, so that a handler can compensate within the grace. */
DUR_API const char *dur_cancel_reason(const dur_ctx *ctx);

/* ---- saga -------------------------------------------------------------------------------------------------------- */

DUR_API dur_saga *dur_saga_begin(dur_ctx *ctx);
/* What to do if a later step fails: an activity.  Strings are copied. */
DUR_API void dur_saga_undo_ex(dur_saga *saga, const dur_activity_args *args);
#define dur_saga_undo(saga, ...)                                                                                       \
    dur_saga_undo_ex((saga),                                                                                           \
                     &(dur_activity_args){ .size = sizeof(dur_activity_args), .site = DUR_SITE, .name = __VA_ARGS__ })
/* Run what was registered, last first, one after another; waits.  What a cancel gives up in the middle is run again.
   Returns how many of them failed. */
DUR_API size_t dur_saga_compensate(dur_saga *saga);

/* ---- memory of this execution ------------------------------------------------------------------------------------ */

DUR_API void *dur_alloc(dur_ctx *ctx, size_t size); /* zeroed */
DUR_API char *dur_strdup(dur_ctx *ctx, const char *text);
DUR_API char *dur_format(dur_ctx *ctx, const char *format, ...) DUR_PRINTF(2, 3);
DUR_API char *dur_vformat(dur_ctx *ctx, const char *format, va_list args) DUR_PRINTF(2, 0);
/* What this branch receives and allocates until dur_scope_end is freed there, futures made in between are dropped.  For
   loops of long executions.  Scopes nest. */
DUR_API dur_scope *dur_scope_begin(dur_ctx *ctx);
DUR_API void dur_scope_end(dur_scope *scope);
/* Call fn(arg) when this branch's stack goes, however it goes, at eviction too: free something, never compensate.
   Runs on the loop's thread, last registered first, and must not call anything of this header. */
DUR_API void dur_on_drop(dur_ctx *ctx, void (*fn)(void *), void *arg);

DUR_END_DECLS

#endif
