/*
 * turn.h: what a turn means, decided once for all stores.
 *
 * A dur_turn_commit has some forty fields, and most of what a store does follows from several of them together: whether
 * the turn writes an execution, whether its lease stays, which counts it clears.  These facts are computed here, and
 * nowhere else; the stores differ only in how they write them down.  The memory store asserts what the facts promise.
 */
#ifndef DURITE_PROVIDER_TURN_H
#define DURITE_PROVIDER_TURN_H

#include <durite/sys/provider_methods.h>

/*
 * The first reason why a turn contradicts itself, for people ("events need an execution id"); NULL: it is valid.  The
 * dur_store_ functions refuse such a turn with DUR_EINVAL before any store sees it, so that a store asserts this.
 */
const char *dur__turn_invalid(const dur_turn_commit *turn);

typedef struct dur__turn_facts {
    /* what it writes */
    bool names;          /* name and version are given: makes or renames the instance's row */
    bool writes;         /* an execution, which begins with it unless it is there: events, status, version, or an ack */
    bool ends_execution; /* its values are merged; a continue-as-new does that, too */
    bool ends_instance;  /* for good: it needs no handler any more */
    bool born;           /* makes the instance: the first turn of a start that nobody has written */

    /* what it takes */
    bool takes_given; /* every message that was handed out under the token, instead of those that are listed */
    bool takes_start; /* a listed message of a turn without execution may be the start that says which handler it needs
                       */
    bool never_was;   /* an instance that has not begun loses its start, and with it what stands in front of the next */
    bool removes_work; /* worker rows, timers and messages of an instance that has begun */

    /* what becomes of the lease */
    bool take_over;     /* no token is compared, and whatever lease there is ends */
    bool keeps;         /* the lease stays; otherwise it ends with this turn */
    bool is_release;    /* nothing is written, the lease goes */
    bool suspends;      /* with a reason; what was seen before the pause is a reason to fetch again after it */
    bool resumes;       /* every message is a reason to fetch again */
    bool uncounts;      /* the acquisition was not used: one is taken off the counts */
    bool clears_counts; /* attempts and acquisitions begin anew.  Neither: a release that says nothing of what it has
                           seen, whose handler may have crashed: the counts stay */
    uint64_t seen_id, seen_now_ms; /* what is no reason to fetch again; 0, 0: everything is one */
    uint64_t delay_ms;

    /* what is compared */
    bool compares_position; /* the last event of execution_id is expected_last */
    bool compares_parent;
} dur__turn_facts;

/* Of a valid turn. */
dur__turn_facts dur__turn_facts_of(const dur_turn_commit *turn);

/* The token with which a worker item is locked at once: there is one, and an owner to lock it for; NULL: for anybody.
 */
const char *dur__turn_eager(const dur_turn_commit *turn, const dur_turn_work *item);

/* May the store leave a worker item out, because the lane that keeps the lease has it alone?  Then it is the store's
   choice (dur_turn_work.local). */
bool dur__turn_asks_local(const dur_turn_commit *turn, const dur_turn_work *item);

/* The event that says the custom status after the turn, the last of its kind; NULL: it stays. */
const dur_event_row *dur__turn_custom_status(const dur_turn_commit *turn);

/*
 * What refuses a turn, in the order in which it is decided: where several fail, the first is the answer.  A store that
 * checks one after the other does so in this order; one that learns of all at once takes the lowest.  Duplicate events
 * come last: they are found by writing.
 */
typedef enum dur__turn_check {
    DUR__TURN_TOKEN,       /* DUR_TURN_LEASE_LOST, DUR_ELEASE: the token is not, or no longer, the instance's */
    DUR__TURN_EXISTS,      /* DUR_TURN_LEASE_LOST, DUR_ENOTFOUND: take_over of an instance that is none */
    DUR__TURN_UNLEASED,    /* DUR_TURN_LEASE_LOST, DUR_ELEASE: if_unleased */
    DUR__TURN_UNCANCELLED, /* DUR_TURN_LEASE_LOST, DUR_ELEASE: if_uncancelled */
    DUR__TURN_LAST_EVENT,  /* DUR_TURN_POSITION, DUR_ECONFLICT: expected_last */
    DUR__TURN_MEANT,       /* DUR_TURN_POSITION, DUR_ECONFLICT: take_over of another instance: birth, messages, pause */
    DUR__TURN_PARENT,      /* DUR_TURN_ORPHAN, DUR_ENOTFOUND */
    DUR__TURN_WORK,        /* DUR_TURN_WORK_LOST, DUR_ELEASE */
    DUR__TURN_NEW_EVENTS,  /* DUR_TURN_POSITION, DUR_ECONFLICT: an event has that id already */
    DUR__TURN_CHECKS
} dur__turn_check;

dur_turn_fault dur__turn_fault_of(dur__turn_check check);
dur_code dur__turn_code_of(dur__turn_check check);

/* The answers of a turn that nobody has decided yet.  The dur_store_ functions do it before a store sees the turn. */
void dur__turn_unanswered(dur_turn_commit *turn);

/*
 * The ack of an orchestration item: the same turn, its optional fields not looked at.  The dur_store_ functions hand
 * this to the store.
 */
dur_turn_commit dur__turn_plain(const dur_turn_commit *turn);

#endif
