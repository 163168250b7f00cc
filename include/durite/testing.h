/*
 * testing.h: what a test of your own orchestrations needs.  Library of its own: libdurite-testing.
 *
 *     dur_test *t;
 *     dur_test_new(&t, DUR_TEST(.handlers = handlers), &err);
 *     dur_test_mock(t, &err, "Charge", .result = "ok", .fail_times = 2, .reason = "bank is closed");
 *     dur_test_start(t, &err, "Order", "42", .instance = "o");
 *     dur_test_run_until_blocked(t, &err);
 *     assert(dur_test_waits(t, "o", DUR_WAIT_MESSAGE, "Paid"));
 *     dur_test_run_to_end(t, "o", &err);                       // 30 days of timers in no time
 *     assert(strcmp(dur_test_output(t, "o"), "never paid") == 0);
 *     dur_test_free(t);
 *
 * A test is a node, a memory store and a world of its own on the calling thread.  Nothing happens but inside these
 * calls.  Time stands still while there is something to do, and moves only when a call of this header moves it, or when
 * something on this thread sleeps (dur_act_sleep, dur_client_result): then it jumps, and nobody really sleeps.  A run
 * is a function of its seed and of what the test does.
 *
 * Double-run mode is on: each turn is also replayed from its history, so a nondeterministic handler fails its test.
 *
 * Thread class of dur_test: the thread that made it.  From dur_test_new to dur_test_free the clocks that the library
 * reads on this thread are the test's; a runtime with threads does not belong on a thread with a test.
 * Every const char * that is returned lives until the test is freed.  NULL where something is required: DUR_EINVAL;
 * what has no code answers as if there were no such thing (0, NULL, NOT_FOUND).
 * Guide: docs/guide/testing.md.  Example: examples/testing.c.
 */
#ifndef DURITE_TESTING_H
#define DURITE_TESTING_H

#include <durite/client.h>
#include <durite/replay.h>
#include <durite/runtime.h>

DUR_BEGIN_DECLS

typedef struct dur_test dur_test;

/* Zero means default everywhere. */
typedef struct dur_test_options {
    size_t size;
    const dur_handler *handlers; /* required; must live as long as the test */
    uint64_t seed;               /* of what is random: 0: 1 */
    uint64_t start_ms;           /* wall time at the beginning; 0: 2025-01-01T00:00:00Z */
    bool crash_every_wait;       /* the node dies whenever everything waits: what survives is what was recorded */
    bool evict_every_wait;       /* handlers are thrown away at each wait and replayed */
    bool no_double_run;
    const dur_runtime_options *runtime; /* limits, tags, grace times …; NULL: defaults.  Store, handlers, threads, world
                                           and what follows crashes are the test's */
} dur_test_options;
#define DUR_TEST(...) (&(dur_test_options){ .size = sizeof(dur_test_options), __VA_ARGS__ })

/* DUR_EINVAL: no handlers, or a handler that a runtime would refuse; DUR_EEXISTS: a handler that is there twice.
 *out is yours: dur_test_free.  Since 0.1. */
DUR_API int dur_test_new(dur_test **out, const dur_test_options *options, dur_error *err);
DUR_API void dur_test_free(dur_test *t); /* NULL allowed */

/* A client on the test's store, for everything that has no shorter word here: info, keys, lists, terminate, histories.
   While a call of it waits the node and activities go on, and time passes.  A wait without a limit for what does not
   come by itself (a message that only this thread could send) is DUR_ETIMEOUT, as of dur_test_run_to_end. */
DUR_API dur_client *dur_test_client(dur_test *t);

/* ---- activities -------------------------------------------------------------------------------------------------- */

/* An activity without a mock runs as it is registered. */
typedef dur_outcome dur_mock_fn(dur_act *act, const char *input, void *data);

/* dur_test_mock(t, &err, "Charge", .result = "ok", .fail_times = 2, .reason = "bank is closed", .delay_ms = 5000) */
typedef struct dur_mock_args {
    size_t size;
    const char *activity;
    const char *result;  /* what it completes with; NULL: "" */
    uint32_t fail_times; /* so many calls fail first, counted from this call of dur_test_mock; UINT32_MAX: all */
    const char *reason;  /* of those failures; NULL: "mocked failure" */
    bool final;          /* and no retry will help */
    uint64_t delay_ms;   /* each call takes so long, in the test's time, beside others; one that is given up meanwhile
                            ends at once; UINT64_MAX: it never ends by itself */
    dur_mock_fn *fn;     /* decides instead of result, when the failures are over */
    void *data;          /* of fn */
} dur_mock_args;
/* Replaces the mock that the activity has.  An activity that is not registered is one from now on.  DUR_EINVAL. */
DUR_API int dur_test_mock_ex(dur_test *t, const dur_mock_args *args, dur_error *err);
#define dur_test_mock(t, err, ...)                                                                                     \
    dur_test_mock_ex((t), &(dur_mock_args){ .size = sizeof(dur_mock_args), .activity = __VA_ARGS__ }, (err))

/* How often the activity was called, mocked or not, and with which input (index from 0; NULL: no such call). */
DUR_API size_t dur_test_calls(const dur_test *t, const char *activity);
DUR_API const char *dur_test_call_input(const dur_test *t, const char *activity, size_t index);

/* ---- what clients do ---------------------------------------------------------------------------------------------
 * The arguments, codes and effects of dur_client_start, send, pulse and cancel.  In dur_test_explore what is sent by
 * these may come late (also behind a deadline), in another order, or twice; the answer is then that of a message which
 * is on its way: DUR_OK.  A start may come twice, but never late: what follows is for an instance that there is. */

DUR_API int dur_test_start_ex(dur_test *t, const dur_start_args *args, dur_error *err);
DUR_API int dur_test_pulse_ex(dur_test *t, const dur_message_args *args, dur_error *err);
DUR_API int dur_test_send_ex(dur_test *t, const dur_message_args *args, dur_error *err);
DUR_API int dur_test_cancel(dur_test *t, const char *instance, const char *reason, dur_error *err);
#define dur_test_start(t, err, ...)                                                                                    \
    dur_test_start_ex((t), &(dur_start_args){ .size = sizeof(dur_start_args), .name = __VA_ARGS__ }, (err))
#define dur_test_pulse(t, err, ...)                                                                                    \
    dur_test_pulse_ex((t), &(dur_message_args){ .size = sizeof(dur_message_args), .instance = __VA_ARGS__ }, (err))
#define dur_test_send(t, err, ...)                                                                                     \
    dur_test_send_ex((t), &(dur_message_args){ .size = sizeof(dur_message_args), .instance = __VA_ARGS__ }, (err))

/* ---- time -------------------------------------------------------------------------------------------------------- */

DUR_API uint64_t dur_test_now_ms(const dur_test *t); /* wall time of the test */

/* Until nothing more can happen without time or a message.  Time does not move, unless an activity sleeps or waits
   (dur_act_sleep, a client): so long.  In a scenario of dur_test_explore: for a while, perhaps until then.  DUR_ELIMIT:
   it goes on and on (a million steps, of which ten replayed events are one: in double-run mode an execution of some
   3000 turns, since each turn replays all before it; no_double_run goes further); DUR_EDEADLK: called by an activity;
   DUR_ENOMEM: there was no memory for something, and the next call tries it again. */
DUR_API int dur_test_run_until_blocked(dur_test *t, dur_error *err);

/* Let ms pass: every timer in between fires at its time.  Time ends in some 285000 years, and goes no further.
   Codes as above. */
DUR_API int dur_test_advance(dur_test *t, uint64_t ms, dur_error *err);

/* Until the instance has ended, one way or the other: time jumps to whatever comes next.  DUR_OK: it has;
   DUR_ETIMEOUT: nothing will ever happen by itself, and the message says what the instance waits for; DUR_ESUSPENDED
   with the reason (a handler that is not deterministic: what history holds and what the code asked for); DUR_ENOTFOUND;
   DUR_ELIMIT, DUR_EDEADLK, DUR_ENOMEM as above.  Since 0.1. */
DUR_API int dur_test_run_to_end(dur_test *t, const char *instance, dur_error *err);

/* ---- looking ----------------------------------------------------------------------------------------------------- */

/* NOT_FOUND, RUNNING, COMPLETED or FAILED. */
DUR_API dur_instance_status dur_test_status(dur_test *t, const char *instance);
/* The result of a completed instance, the reason of a failed one; NULL: it has not ended. */
DUR_API const char *dur_test_output(dur_test *t, const char *instance);

typedef enum dur_wait_kind {
    DUR_WAIT_TIMER,    /* also of retries and time limits; has no name */
    DUR_WAIT_ACTIVITY, /* called, and not ended */
    DUR_WAIT_CHILD,    /* by the name of its orchestration */
    DUR_WAIT_PULSE,
    DUR_WAIT_MESSAGE
} dur_wait_kind;
/* Is something of the kind and (NULL: any) name open in the instance's current execution? */
DUR_API bool dur_test_waits(dur_test *t, const char *instance, dur_wait_kind kind, const char *name);
/* All of it, for people: "message Paid; timer in 86400000 ms"; "nothing", "completed: ok", … */
DUR_API const char *dur_test_waits_text(dur_test *t, const char *instance);
/* How many events of a kind ("TimerFired", docs/format/history.md; NULL: all) the instance has, over its executions.
   The events themselves: dur_client_history. */
DUR_API size_t dur_test_events(dur_test *t, const char *instance, const char *kind);

/* ---- death ------------------------------------------------------------------------------------------------------- */

/* The node dies as by kill -9: what is not committed is lost, activities that have run and whose end was not recorded
   run again, and another node takes over at once.  Handlers are replayed from history by the next run.  DUR_EDEADLK:
   called by an activity. */
DUR_API int dur_test_crash(dur_test *t, dur_error *err);

/* ---- recorded histories as fixtures ------------------------------------------------------------------------------ */

/* Write an instance's current history to a file, and replay such a file (or what dur_client_history gave in production)
   against handlers: dur_replay_history and its codes; DUR_EIO, DUR_ENOTFOUND for the file. */
DUR_API int dur_test_save_history(dur_test *t, const char *instance, const char *path, dur_error *err);
DUR_API int dur_test_replay_file(dur_replay_report *out, const dur_handler *handlers, const char *path, dur_error *err);

/* ---- exploring: runs that nobody thought of ---------------------------------------------------------------------- */

/*
 * Starts things and sends messages, by the verbs of this header; anything may go wrong meanwhile and afterwards.
 * Called at the beginning of each run, in a test of its own: bring your own data (a bank, a warehouse) back to its
 * beginning first.  Must do the same each time.  A code other than DUR_OK fails the run.
 */
typedef int dur_scenario_fn(dur_test *t, void *data, dur_error *err);
/* What must hold when nothing more happens.  DUR_OK, or any other code with the reason in err. */
typedef int dur_invariant_fn(dur_test *t, void *data, dur_error *err);

typedef struct dur_explore_options {
    size_t size;
    const dur_handler *handlers; /* required */
    dur_scenario_fn *scenario;   /* required */
    dur_invariant_fn *invariant; /* NULL: every instance has ended */
    void *data;                  /* of both */
    uint32_t runs;               /* 0: 1000 */
    uint64_t seed;               /* of the first run, the next has the next number; 0: 1 */
    uint64_t only;               /* this seed alone; 0: all */
    /* What may go wrong. */
    bool crashes;       /* the node dies anywhere, also between what an activity did and the record of its end */
    bool reorder;       /* what is independent comes in any order: activities, their ends, messages, the scenario */
    bool duplicates;    /* a client sends again what was accepted already (an answer was lost) */
    bool late_messages; /* messages are on their way for a while, in which time passes, and overtake each other */
    bool cancels;       /* somebody cancels an instance */
    bool clock_jumps;   /* the wall clock jumps, both ways */
    bool no_double_run; /* faster */
    bool quiet;         /* the story of a failure is not printed on standard error */
    uint32_t moves_max; /* 0: 5000.  A run of more is cut off there, and the invariant is asked; where the invariant
                           does not hold then, err and the story say that the run was cut off */
    const dur_runtime_options *runtime; /* as in dur_test_options */
} dur_explore_options;
#define DUR_EXPLORE(...) (&(dur_explore_options){ .size = sizeof(dur_explore_options), __VA_ARGS__ })

typedef struct dur_explore_report {
    size_t size; /* sizeof(dur_explore_report), or 0 */
    uint64_t runs;
    uint64_t moves;        /* steps of nodes, activities and messages, over all runs */
    uint64_t faults;       /* things that went wrong, over all runs */
    uint64_t failed_seed;  /* 0: none */
    uint32_t story_faults; /* how many things do not go as they should in the run that the story tells */
    char *story;           /* NULL: nothing failed, or no memory; free with dur_free */
} dur_explore_report;

/*
 * Run after run, until one fails.  DUR_OK: everything held in all runs.  DUR_EFAILED: something did not; err has the
 * seed and the reason, and out->story (also on standard error) the shortest run found that still fails, line by line.
 * Other codes: it could not run.  out may be NULL.  With the same options the same runs.  Since 0.1.
 */
DUR_API int dur_test_explore(dur_explore_report *out, const dur_explore_options *options, dur_error *err);

DUR_END_DECLS

#endif
