/*
 * live.h: instances that a runtime of this process has leased on a store, and who in this process waits for their end.
 *
 * Whoever waits for an instance that runs here needs no store: its loop says when the last commit is confirmed, and
 * hands over the output.  An instance that leaves in any other way (its lease is lost, it is suspended, it has failed
 * or goes on as new) sends its waiters to the store.
 *
 * A thread waits for one instance (dur__live_await), or for many: then it has a set with a member for each, and is
 * woken once for all that one round has ended.
 */
#ifndef DURITE_PROVIDER_LIVE_H
#define DURITE_PROVIDER_LIVE_H

#include "base/list.h"
#include "base/thread.h"

#include <durite/sys/provider_methods.h>

typedef struct dur__live dur__live;

dur__live *dur__live_new(void);
void dur__live_free(dur__live *live); /* nobody waits any more */

/* A loop has come, or goes: without one nothing is expected. */
void dur__live_loop(dur_provider *store, bool comes);
/* `owner` has acquired an instance; it has left again; it has left completed, the commit is confirmed: how many waited.
   birth: which of those that had the id; 0: the loop does not know, and who waits for one of them asks the store. */
void dur__live_add(dur_provider *store, const char *instance, const void *owner);
void dur__live_remove(dur_provider *store, const char *instance, const void *owner);
size_t dur__live_completed(dur_provider *store, const char *instance, const void *owner, uint64_t birth,
                           const char *output);

/* Wake those whom the calls above have told something: after a round, and before sleeping. */
void dur__live_tell(dur_provider *store);

/* A start of this id is about to be sent: if it is accepted, whoever has run under the id here is another instance. */
void dur__live_starting(dur_provider *store, const char *instance);
/* An instance is being started, so a loop of this process may acquire it at any moment; it was, so one has done so or
   is about to; and: it was not. */
void dur__live_expect(dur_provider *store, const char *instance);
void dur__live_started(dur_provider *store, const char *instance);
void dur__live_unexpect(dur_provider *store, const char *instance);

/* Until an instance that runs here has completed: its output, to be freed.  NULL: it does not run here, does not any
   more, or until_us (dur__monotonic_us) has come: ask the store. */
char *dur__live_await(dur_provider *store, const char *instance, uint64_t until_us);

/* ---- sets: one thread that waits for many ------------------------------------------------------------------------ */

typedef struct dur__live_set dur__live_set;

/* A place in a set, for one instance; all zero at first. */
typedef struct dur__live_member {
    dur__live_set *set;  /* NULL: in none */
    struct entry *entry; /* NULL: it was told */
    dur__link link;      /* in the entry, then among those that were told */
    atomic_bool here;    /* a loop of this process has the instance */
    uint64_t number;     /* in order of joining */
    uint64_t birth;      /* of the instance that is meant; 0: whoever has the id */
    char *output;        /* told: of one that has completed, to be freed; NULL: ask the store */
} dur__live_member;

dur__live_set *dur__live_set_new(dur_provider *store);
void dur__live_set_free(dur__live_set *set); /* without members; NULL allowed */

/* Whatever is said about the instance from now on is told once, whether it runs here already or not.  Whoever asks the
   store joins first: what happens in between is told.  The output of another birth than this is not: ask the store. */
bool dur__live_join(dur__live_set *set, dur__live_member *member, const char *instance, uint64_t birth);
void dur__live_quit(dur__live_member *member); /* in none, or told already: no harm */
/* The next that was told, since dur__live_tell; it is out of the set.  NULL: none. */
dur__live_member *dur__live_told(dur__live_set *set);
/* Members whose instance no loop of this process has. */
size_t dur__live_elsewhere(dur__live_set *set);
/* Until somebody was told, or until_us.  With a watch: or it sees something; its code. */
void dur__live_set_wait(dur__live_set *set, uint64_t until_us);
int dur__live_set_watch(dur__live_set *set, dur_watch *watch, uint64_t until_us, dur_error *err);

#endif
