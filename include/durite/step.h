/*
 * step.h: a runtime without threads, inside the host's own loop.
 *
 *     dur_runtime_start(&runtime, DUR_RUNTIME(.store = store, .handlers = handlers,
 *                                             .threads = DUR_THREADS_NONE), &err);
 *     for (;;) {
 *         struct pollfd fd = { .fd = dur_runtime_fd(runtime), .events = POLLIN };
 *         poll(&fd, 1, (int)dur_runtime_next_ms(runtime));
 *         dur_runtime_step(runtime, 2, &err);
 *     }
 *
 * Nothing happens but inside these calls: handlers, activities, commits and signs of life.  A step may block for one
 * commit or one call of the store, for one turn of a handler and for one activity; the budget decides whether the next
 * begins.  Whoever does not step for half of owner_timeout_ms may not go on until it has shown life again, and after
 * owner_timeout_ms other nodes take its work: an activity that may take that long is taken by the host
 * (DUR_ACTIVITY_TAKEN) or calls dur_act_beat, or the runtime has a longer owner_timeout_ms.
 *
 * Clients that wait (dur_client_result and the like) on the thread that steps do the steps meanwhile.
 * Thread class: all on the thread that has started the runtime, dur_runtime_stop included; dur_runtime_take from one
 * thread at a time, dur_act_end from any.
 * Guide: docs/guide/own-loop.md.
 */
#ifndef DURITE_STEP_H
#define DURITE_STEP_H

#include <durite/runtime.h>

DUR_BEGIN_DECLS

/*
 * Do what there is to do, until nothing is left or budget_ms are over (0: one thing).  Errors of the store are met as
 * by a runtime with threads: tried again later, counted, logged.  DUR_EINVAL: the runtime has threads; DUR_ESTATE:
 * another thread has started it; DUR_EDEADLK: called by a handler; DUR_EFORKED.  Since 0.1.
 */
DUR_API int dur_runtime_step(dur_runtime *runtime, uint64_t budget_ms, dur_error *err);

/* The same until there is nothing to do before a timer, a message or the end of a taken activity; DUR_ETIMEOUT: the
   budget was not enough, and nothing is lost.  For hosts that are given a window, and for tests. */
DUR_API int dur_runtime_run_until_idle(dur_runtime *runtime, uint64_t budget_ms, dur_error *err);

/* Milliseconds until the next step has something to do by itself; 0: now; at most an hour. */
DUR_API uint64_t dur_runtime_next_ms(dur_runtime *runtime);

/* The same without signs of life, for whoever asks when work will come by itself: milliseconds until a timer, a delayed
   message or another try at the store falls due, an hour at most at a time; UINT64_MAX: nothing will.  As of the end of
   the last step that found nothing to do.  Since 0.1. */
DUR_API uint64_t dur_runtime_due_ms(dur_runtime *runtime);

/* A descriptor that is readable when there is something to do before that: other threads, other processes, ended
   activities.  For poll, select or epoll, level-triggered; the runtime's, valid until it stops.  -1: none is to be had,
   or the runtime has threads. */
DUR_API int dur_runtime_fd(dur_runtime *runtime);

/*
 * The next activity that waits for the host (DUR_ACTIVITY_TAKEN), by name or (NULL) any; *out is NULL when there is
 * none.  Its input is dur_act_input; run it anywhere, on any thread, then say how it ended, from any thread:
 *
 *     dur_act_end(act, charge(act, dur_act_input(act)));
 *
 * act is gone with that.  At most worker_concurrency + prefetch are here at a time, taken or not.  Not on two threads
 * at a time.  In a forked child dur_act_end does nothing: the activity is the parent's.  Codes: DUR_EINVAL,
 * DUR_EFORKED. Since 0.1.
 */
DUR_API int dur_runtime_take(dur_act **out, dur_runtime *runtime, const char *name, dur_error *err);
DUR_API void dur_act_end(dur_act *act, dur_outcome outcome);

/*
 * A host that ends what it takes on the thread that steps says how: otherwise a call that waits on this thread
 * (dur_client_result, dur_act_sleep …) does the steps and waits for an activity that nobody runs.  fn is called between
 * steps of such a call.  It does one thing and returns 0, or it has nothing to do and returns for how many milliseconds
 * (UINT64_MAX: until something comes).  It may be called again while it runs, where what it does waits.  NULL: none.
 * DUR_EINVAL: the runtime has threads; DUR_ESTATE, DUR_EFORKED as dur_runtime_step.  Since 0.1.
 */
typedef uint64_t dur_host_fn(void *data);
DUR_API int dur_runtime_host(dur_runtime *runtime, dur_host_fn *fn, void *data, dur_error *err);

DUR_END_DECLS

#endif
