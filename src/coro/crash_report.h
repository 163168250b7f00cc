/*
 * crash_report.h: alternate signal stacks for our threads.
 *
 * A handler that has run out of stack cannot run a signal handler on it.  sigaltstack is per thread, so each thread
 * that runs user code brackets its life with these two, whether or not the host has asked for the crash report (it may
 * ask later).
 */
#ifndef DURITE_CORO_CRASH_REPORT_H
#define DURITE_CORO_CRASH_REPORT_H

/* Nothing is done when the thread has an alternate stack already, or there is no memory. */
void dur__crash_report_thread_begin(void);
void dur__crash_report_thread_end(void);

/* Whose user code this thread runs from now on, for the report; both NULL: nobody's.  Handlers are known by their
   stack, so activity is NULL for them.  Borrowed until the next call. */
void dur__crash_report_inside(const char *activity, const char *instance);

#endif
