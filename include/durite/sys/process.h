/*
 * process.h: what there is once in a process, for stores that live in libraries of their own.
 *
 * A store may be linked with parts of Durite a second time; state that belongs to the process must not be there twice:
 * the host's assert hook, who is told of a fork, and how long a thread waits.
 */
#ifndef DURITE_SYS_PROCESS_H
#define DURITE_SYS_PROCESS_H

#include <durite/export.h>
#include <stdint.h>

DUR_BEGIN_DECLS

/* A broken invariant: the host's hook (dur_assert_hook), or a line on standard error; then abort().  Any thread. */
DUR_API DUR_NORETURN void dur_assert_failed(const char *file, int line, const char *what);

/* A number that changes in a forked child: objects remember it at birth and compare.  Uses pthread_atfork. */
DUR_API uint64_t dur_process_serial(void);
/* Run fn(arg) in every forked child, right after the fork (close descriptors there, take no locks).  Remove it, from
   any thread, before arg dies.  fn NULL: nothing. */
DUR_API void dur_at_fork_child(void (*fn)(void *), void *arg);
DUR_API void dur_at_fork_remove(void (*fn)(void *), void *arg);

/*
 * Until when the caller of this thread waits for an answer, in microseconds of CLOCK_MONOTONIC.  A store that others
 * can hold up (a server, a pooler) gives up a read by then, DUR_EUNAVAILABLE.  Only reads are made under a deadline: a
 * write that is given up would leave open whether it happened.  set: returns the deadline before, to be set again.
 */
#define DUR_NO_DEADLINE UINT64_MAX
DUR_API uint64_t dur_deadline_us(void);
DUR_API uint64_t dur_deadline_set(uint64_t us);

DUR_END_DECLS

#endif
