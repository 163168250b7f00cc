/*
 * host.h: store, runtime and client in one object, for a program that is nothing else.
 *
 *     int main(void) {
 *         dur_host *host = NULL;
 *         dur_error err = DUR_ERROR_INIT;
 *         int code = dur_host_start(&host, "sqlite:orders.db", handlers, &err);
 *         if (code == DUR_OK) code = dur_host_run(host, &err);      // until ^C or SIGTERM
 *         if (code != DUR_OK) fprintf(stderr, "%s\n", err.message);
 *         dur_host_free(host);
 *         return code;
 *     }
 *
 * A program with more to do uses dur_open, dur_runtime_start and dur_client_new, which this is made of.
 * Thread class of dur_host: any thread; dur_host_stop and dur_host_free not beside other calls.
 */
#ifndef DURITE_HOST_H
#define DURITE_HOST_H

#include <durite/client.h>
#include <durite/provider.h>
#include <durite/runtime.h>

DUR_BEGIN_DECLS

typedef struct dur_host dur_host;

/*
 * Open the store, start a runtime with default options on it and make a client.  *out is yours: dur_host_free.  Codes
 * of dur_open, dur_runtime_start and dur_client_new; nothing is left behind then, and *out is NULL.  Since 0.1.
 */
DUR_API int dur_host_start(dur_host **out, const char *url, const dur_handler *handlers, dur_error *err);
/* The same with options of the runtime: DUR_RUNTIME(.handlers = handlers, .worker_concurrency = 8).  Their store is the
   host's: it must be NULL here. */
DUR_API int dur_host_start_ex(dur_host **out, const char *url, const dur_runtime_options *options, dur_error *err);

/* Its parts, which live as long as the host; the runtime is NULL once it was stopped.  NULL for NULL. */
DUR_API dur_provider *dur_host_store(const dur_host *host);
DUR_API dur_runtime *dur_host_runtime(const dur_host *host);
DUR_API dur_client *dur_host_client(const dur_host *host);

/*
 * Wait for SIGINT or SIGTERM, then stop the runtime as dur_host_stop with a grace of ten seconds.  The only call of
 * this library that touches signals: both have a handler of ours while it waits, and what they had before when it
 * returns, already while it stops, so that a second ^C does what it would do without us.  One that is ignored stays
 * ignored.  One call at a time in a process: DUR_EBUSY.  Codes of dur_runtime_stop; DUR_ESTATE: the runtime was
 * stopped.  DUR_EINVAL: it has no threads (durite/step.h), so nothing would happen.  Since 0.1.
 */
DUR_API int dur_host_run(dur_host *host, dur_error *err);

/* Stop the runtime (dur_runtime_stop and its codes); client and store go on.  Stopped already, NULL: DUR_OK. */
DUR_API int dur_host_stop(dur_host *host, uint64_t grace_ms, dur_error *err);
/* Stop, with a grace of ten seconds unless it was stopped, and close everything.  A transaction of this thread on the
   store (dur_sqlite_begin) is rolled back first, with a WARN.  NULL allowed. */
DUR_API void dur_host_free(dur_host *host);

DUR_END_DECLS

#endif
