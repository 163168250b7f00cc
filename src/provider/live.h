/*
 * live.h: instances that a runtime of this process has leased on a store, and who in this process waits for their end.
 *
 * Whoever waits for an instance that runs here needs no store: its loop says when the last commit is confirmed, and
 * hands over the output.  An instance that leaves in any other way (its lease is lost, it is suspended, it has failed
 * or goes on as new) sends its waiters to the store.
 */
#ifndef DURITE_PROVIDER_LIVE_H
#define DURITE_PROVIDER_LIVE_H

#include <durite/sys/provider_methods.h>

typedef struct dur__live dur__live;

dur__live *dur__live_new(void);
void dur__live_free(dur__live *live); /* nobody waits any more */

/* A loop has come, or goes: without one nothing is expected. */
void dur__live_loop(dur_provider *store, bool comes);
/* `owner` has acquired an instance; it has left again; it has left completed, the commit is confirmed: how many waited.
 */
void dur__live_add(dur_provider *store, const char *instance, const void *owner);
void dur__live_remove(dur_provider *store, const char *instance, const void *owner);
size_t dur__live_completed(dur_provider *store, const char *instance, const void *owner, const char *output);

/* Wake those whom the calls above have told something: after a round, and before sleeping. */
void dur__live_tell(dur_provider *store);

/* An instance is being started, so a loop of this process may acquire it at any moment; it was, so one has done so or
   is about to; and: it was not. */
void dur__live_expect(dur_provider *store, const char *instance);
void dur__live_started(dur_provider *store, const char *instance);
void dur__live_unexpect(dur_provider *store, const char *instance);

/* Until an instance that runs here has completed: its output, to be freed.  NULL: it does not run here, does not any
   more, or until_us (dur__monotonic_us) has come: ask the store. */
char *dur__live_await(dur_provider *store, const char *instance, uint64_t until_us);

#endif
