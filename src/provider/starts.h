/*
 * starts.h: starts that wait in this process for a loop that begins them.
 *
 * Whoever starts an instance waits for one commit anyway.  Where a loop of this process can take the start before
 * anybody has written it, the instance's first turn writes it (dur_turn_commit.writes_start), and start, acquisition
 * and turn are that one commit.  Nobody depends on a loop: a start that is not taken soon is withdrawn by its caller,
 * and one that is given back is left to him; he writes it with enqueue_start, which alone knows policies.
 *
 * A store is known here by what its `births` answers: all handles of a process that answer the same have one desk.
 */
#ifndef DURITE_PROVIDER_STARTS_H
#define DURITE_PROVIDER_STARTS_H

#include "base/list.h"
#include "base/thread.h"

#include <durite/sys/provider_methods.h>

typedef struct dur__starts dur__starts;

/* ---- clients ----------------------------------------------------------------------------------------------------- */

/* Hand starts to loops and wait.  done[i]: it was written, or nobody knows whether it was; its answer is there.  Else:
   it is the caller's to write.  How many are done. */
size_t dur__starts_hand_in(dur_provider *store, dur_start_request *starts, size_t count, bool *done);

/* ---- loops ------------------------------------------------------------------------------------------------------- */

/* One loop's place.  All zero: it has none, and everything below does nothing. */
typedef struct dur__taker {
    dur__starts *desk;
    uint64_t prefix; /* of the tokens of what it takes: random */
    dur_waker *waker;
    const atomic_bool *asleep;          /* … and who hands something in must wake it */
    const dur_handler_filter *handlers; /* what it has */
    dur__thread thread;                 /* that takes: nobody waits for itself */
    dur__link link;                     /* of the desk */
    dur__link inbox, taken;             /* requests */
    atomic_bool open;                   /* it will come by soon; changed with the desk's mutex */
    atomic_uint waiting;                /* in the inbox; the same */
    atomic_uint load;                   /* turns of its rounds, the last ones counting most */
    atomic_bool in_round;               /* whoever waits has patience: it comes back */
    bool told;                          /* somebody was answered and is not awake */
} dur__taker;

/* prefix, waker, asleep and handlers are set, and live until it has left.  Nothing where the store has no births. */
void dur__taker_join(dur__taker *self, dur_provider *store);
/* All that it has or that waits for it goes back.  Any thread, when the loop's own does not come back. */
void dur__taker_leave(dur__taker *self);
/* It comes by, and will again: starts may be put into its inbox; or not: those that wait there go back. */
void dur__taker_open(dur__taker *self);
void dur__taker_close(dur__taker *self);
/* Beside its rounds, of so many turns. */
void dur__taker_round(dur__taker *self, bool begins, size_t turns);

/* A start that was taken, as the item of an instance that was just acquired: one message, whose id is 0. */
typedef struct dur__start_taken {
    uint64_t number; /* it is known by this until it is answered; from 1 on */
    dur_orchestration_item item;
} dur__start_taken;
/* At most max of those that wait; how many. */
size_t dur__taker_take(dur__taker *self, dur_arena *arena, uint64_t now_ms, size_t max, dur__start_taken *out);
/* Any thread: has it not been answered? */
bool dur__taker_has(dur__taker *self, uint64_t number);
/* Its first turn was committed.  Who waits is woken by dur__taker_tell. */
void dur__taker_written(dur__taker *self, uint64_t number);
void dur__taker_tell(dur__taker *self);
/* It was not: its caller writes it.  With an error: or hears of that, because to write it might be to do it twice, or
   he has waited as long as he would by himself.  Any thread; one that was answered does no harm. */
void dur__taker_back(dur__taker *self, uint64_t number, const dur_error *why);

/* ---- the boundary ------------------------------------------------------------------------------------------------ */

dur__starts *dur__starts_share(const dur_provider_methods *methods, const char *identity); /* NULL: no memory */
void dur__starts_drop(dur__starts *self);                                                  /* NULL allowed */

#endif
