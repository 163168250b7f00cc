/*
 * runtime.h: the threads that run orchestrations and activities.
 *
 * Thread class of dur_runtime: any thread.  No thread of ours runs before start and after stop.
 */
#ifndef DURITE_RUNTIME_H
#define DURITE_RUNTIME_H

#include <durite/client.h>
#include <durite/metrics.h>
#include <durite/provider.h>
#include <durite/registry.h>

DUR_BEGIN_DECLS

typedef struct dur_runtime dur_runtime;

/* What happens when a handler no longer fits its history. */
typedef enum dur_nondeterminism_policy {
    DUR_NONDETERMINISM_SUSPEND, /* the instance waits, flagged with the report, until resumed after a fixed deploy */
    DUR_NONDETERMINISM_FAIL
} dur_nondeterminism_policy;

/* Which activities this runtime takes. */
typedef enum dur_tag_choice {
    DUR_TAG_DEFAULT_ONLY, /* without a tag */
    DUR_TAG_ONLY,         /* with one of worker_tags */
    DUR_TAG_AND_DEFAULT,  /* both */
    DUR_TAG_ANY,
    DUR_TAG_NONE /* none: orchestrations only */
} dur_tag_choice;

/* Whose threads run it. */
typedef enum dur_threads {
    DUR_THREADS_OWN, /* its own: loops, workers and a keeper */
    DUR_THREADS_NONE /* the host's: everything happens inside dur_runtime_step (durite/step.h) */
} dur_threads;

/* Zero means default everywhere. */
typedef struct dur_runtime_options {
    size_t size;                 /* sizeof(dur_runtime_options) as the caller compiled it */
    dur_provider *store;         /* required */
    const dur_handler *handlers; /* a table; or */
    dur_registry *registry;      /* a registry (frozen by this start); one of the two, or both */
    bool activities_only;        /* a worker: it acquires no orchestration, whatever is registered.  One without any
                                    orchestration in its tables is such a worker by itself; for one without activities
                                    see tags, DUR_TAG_NONE */
    const char *name;            /* in thread names, worker ids and logs; NULL: "durite" */
    dur_threads threads;

    uint32_t orchestration_concurrency; /* loops; 0: 2.  A store with one writer (memory, sqlite) uses one */
    uint32_t worker_concurrency;        /* worker threads at most, one activity each; 0: 64.  They start as work waits
                                           and end when they are idle; two (or one, of 1) are always there */
    uint32_t prefetch;                  /* activities waiting locally beyond the workers, at most; 0: 64.  When other
                                           nodes are there and no worker is free, what has waited 100 ms is theirs, and
                                           none is taken until an activity ends; each that ends lets one more wait */

    /* Stores without owners or lanes: locks by time, polling.  Others do not need these.  A lock lasts at least 100 ms;
       it is renewed a buffer before its end, and at least three times while it lasts. */
    uint64_t orchestrator_lock_timeout_ms;        /* 0: 5 s */
    uint64_t orchestrator_lock_renewal_buffer_ms; /* 0: 2 s */
    uint64_t worker_lock_timeout_ms;              /* 0: 30 s */
    uint64_t worker_lock_renewal_buffer_ms;       /* 0: 5 s */
    uint64_t dispatcher_min_poll_interval_ms;     /* 0: 100 ms.  A fetch that found nothing is not repeated sooner */
    uint64_t dispatcher_long_poll_timeout_ms;     /* 0: 30 s, at most an hour.  How long the fetch of a store without
                                                     wake-ups may wait, on a thread of its own; dur_runtime_stop
                                                     waits for its end.  A store that answers at once ignores it */
    uint64_t owner_timeout_ms;                    /* 0: 10 s, at least 1 s; a node silent for so long is dead, and so is
                                                     a client that has made an instance stand still to end or to
                                                     delete it */

    uint32_t max_attempts;     /* 0: 10.  Crashes of the process while it ran alone (or acquisitions or
                                  deliveries without an end, for other reasons) before poison */
    uint64_t suspect_alone_ms; /* 0: 5 s, at most an hour.  How long what ran in two crashes runs alone among
                                  such; doubles with each further crash (docs/guide/after-a-crash.md) */
    /* Handlers that no live node has (docs/guide/fleets.md).  A node looks for what waits for one every
       unregistered_backoff_ms (0: 1 s) and says so in the log.  Stores that cannot choose by handler: what has none
       here is given back for so long, doubled up to unregistered_backoff_max_ms (0: 60 s). */
    uint64_t unregistered_backoff_ms;
    uint64_t unregistered_backoff_max_ms;
    uint32_t unregistered_attempts_max; /* 0: it waits without end.  Else it fails, as a configuration error, when so
                                           many looks of one node in a row, 1, 2, 4 … 60 s apart, found nobody that has
                                           the handler */
    dur_nondeterminism_policy nondeterminism;

    uint64_t cancel_grace_ms;          /* 0: 5 min.  A cancelled orchestration not ended by then is terminated: by a
                                          delayed message, which goes unheard when it has ended before */
    uint64_t activity_cancel_grace_ms; /* 0: 10 s.  Then a cancelled activity is abandoned: its slot is replaced */
    uint32_t abandoned_max;            /* 0: 16.  Abandoned activities before slots are no longer replaced;
                                          those beyond are named in the log and keep their slots */

    uint64_t session_lock_timeout_ms;        /* 0: 30 s */
    uint64_t session_lock_renewal_buffer_ms; /* 0: 5 s */
    uint64_t session_idle_timeout_ms;        /* 0: 300 s; more than worker_lock_timeout_ms less its buffer */
    uint64_t session_cleanup_interval_ms;    /* 0: 300 s */
    uint32_t max_sessions;                   /* 0: 10 */
    const char *worker_node_id;              /* stable session owner over restarts, for which sessions of a node that
                                                ended stay reserved for session_lock_timeout_ms; NULL: for none */
    dur_tag_choice tags;
    const char *const *worker_tags; /* ended by NULL */

    const char *replay_version_min; /* NULL: "0.0.0".  Histories of engines in this range are run here */
    const char *replay_version_max; /* NULL: this version, at least "0.1.999" */

    /* Each takes its stack and 64 KiB of addresses: with pointers of 32 bits the first two are 4,000 and 256 MiB. */
    uint32_t parked_max;       /* handlers kept on their stacks; 0: 30,000 */
    uint64_t parked_bytes_max; /* 0: 1 GiB */
    size_t stack_bytes;        /* 0: 256 KiB; a handler's own size wins */
    uint64_t arena_bytes_max;  /* per execution; 0: 256 MiB.  Over it the instance is suspended */

    /* Limits; what goes beyond fails the orchestration with a clear reason. */
    uint64_t payload_bytes_max;       /* 0: 4 MiB.  inputs, results, messages */
    uint64_t custom_status_bytes_max; /* 0: 256 KiB */
    uint32_t kv_keys_max;             /* 0: 150 */
    uint64_t kv_value_bytes_max;      /* 0: 64 KiB */
    uint64_t history_events_warn;     /* 0: 50,000; no hard limit */

    bool double_run;               /* tests: replay each turn on a fresh stack and compare */
    bool evict_every_turn;         /* tests: park nothing */
    const struct dur_world *world; /* NULL: the real one */
} dur_runtime_options;
#define DUR_RUNTIME(...) (&(dur_runtime_options){ .size = sizeof(dur_runtime_options), __VA_ARGS__ })

/*
 * Start.  Everything in options is copied, except the store and the functions of handlers.  *out is yours:
 * dur_runtime_stop.  Codes: DUR_EINVAL (which option and why), DUR_ENOMEM, errors of the store.  Since 0.1.
 */
DUR_API int dur_runtime_start(dur_runtime **out, const dur_runtime_options *options, dur_error *err);

/*
 * Stop: no new work is taken, running activities may end within the grace, leases are given back; returns as soon as
 * nothing is left.  A handler that is in a turn when the grace is over has as long again to come back, a second at
 * least and ten at most: so the call takes no longer than that if no store call hangs.  DUR_EBUSY: activities and
 * handlers that never returned are named in the message, handlers with their instance and their last call; their
 * threads are left behind with the memory, handlers and store that they need, nothing that they still do is recorded;
 * the rest has stopped, the runtime is gone and its leases are free for others.  Code and data that such a thread may
 * touch must stay: do not unload its library or free what it works with.  DUR_EDEADLK from inside a handler, activity
 * or callback, or a transaction of this thread on the store (dur_sqlite_begin): nothing happened.  DUR_EFORKED in a
 * forked child: descriptors are closed, the parent's threads and leases are not touched.  NULL is allowed.  Since 0.1.
 */
DUR_API int dur_runtime_stop(dur_runtime *runtime, uint64_t grace_ms, dur_error *err);

/*
 * For tests and tools: is there anything in the store that is locked for this runtime and unknown to the runtime?
 * Such a lease or activity would wait for ever, because its owner lives.  Or has the runtime parked an instance whose
 * lease is not in the store, so that nobody wakes it here?  DUR_ECORRUPT names it.
 *
 * The check needs no quiet point: what is on its way between store, loops and workers is waited for, so a finding is a
 * lock that stays unknown for a second, or a lease that stays away for five.  Without findings it reads what the
 * runtime has locked, once or a few times.
 * Only a store that refuses for all of that second to take something back can make a finding of a healthy runtime.
 *
 * DUR_EBUSY: a loop has not answered for ten seconds: a handler has not come back, or the store has not answered it (a
 * lock that somebody else holds, a server that stands still); DUR_EUNSUPPORTED: the store
 * has no owners, or does not tell what they hold; DUR_EDEADLK: called by a handler or activity; DUR_EFORKED; errors of
 * the store.  dur_provider_check is the other half: rows against rows.  Any other thread, and not during
 * dur_runtime_stop.  Since 0.1.
 */
DUR_API int dur_runtime_check(dur_runtime *runtime, dur_error *err);

/* Counters since start. */
DUR_API int dur_runtime_metrics(dur_metrics *out, dur_runtime *runtime, dur_error *err);
/* Owner id of this runtime, new at each start; "" where the store has no owners.  Borrowed. */
DUR_API const char *dur_runtime_owner(const dur_runtime *runtime);

/*
 * The host's choice, once, from main: report a crash in a handler or an activity (its name and instance; a handler's
 * stack overflow with the stack's size) on standard error before the process dies.  Installs handlers for SEGV and BUS
 * on an alternate stack and chains to what was there.
 */
DUR_API int dur_crash_report_install(dur_error *err);

/* A broken invariant of ours calls this before abort(); NULL: a line on standard error.  For hosts with their own. */
DUR_API void dur_assert_hook(void (*hook)(const char *file, int line, const char *what));

DUR_END_DECLS

#endif
