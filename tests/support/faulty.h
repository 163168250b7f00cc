/*
 * faulty.h: a decorator for tests: any store, with faults, delays, counts and missing methods.
 *
 * The decorated store is a store like any other.  Methods that the inner store does not have are missing here too.
 * Not installed; tests link the static library.  Thread class: any thread.
 */
#ifndef DURITE_TESTS_FAULTY_H
#define DURITE_TESTS_FAULTY_H

#include <durite/provider.h>
#include <durite/sys/provider_methods.h>

/* One rule.  The first rule that applies to a call decides. */
typedef struct dur__fault_plan {
    /* A method's name; NULL: every method.  Two more names count what goes through in batches, whatever the method:
       "turn" (each turn of ack_orchestration_item, commit_turns, lane_round) and "ack" (each end of a worker item). */
    const char *method;
    uint64_t first;     /* the first matching call to fail, from 1, counted from when the rule was made; 0: 1 */
    uint64_t count;     /* how many in a row; 0: 1; UINT64_MAX: without end */
    uint32_t per_mille; /* with this probability each (of those that first and count name); 0: always */
    bool after;         /* the call takes effect and the answer is lost: the code is DUR_EUNKNOWN */
    dur_code code;      /* DUR_OK: DUR_EUNAVAILABLE (or DUR_EUNKNOWN, see after); not used when only delayed */
    bool permanent;     /* the error is not marked retryable */
    uint64_t delay_us;  /* sleep before the call */
    bool only_delay;    /* and do not fail */
} dur__fault_plan;

/* *out takes over the caller's handle on inner. */
int dur__faulty_wrap(dur_provider **out, dur_provider *inner, uint64_t seed, dur_error *err);
/* The same without any optional method, as a table that ends behind the required ones. */
int dur__minimal_wrap(dur_provider **out, dur_provider *inner, dur_error *err);

/* Take a method away, before the store is used.  Unknown names: DUR_EINVAL. */
int dur__faulty_hide(dur_provider *store, const char *method);
void dur__faulty_add(dur_provider *store, const dur__fault_plan *plan); /* plan->method must live on */
void dur__faulty_clear(dur_provider *store);                            /* no rules */
uint64_t dur__faulty_calls(dur_provider *store, const char *method);    /* NULL: of all methods */
uint64_t dur__faulty_faults(dur_provider *store);                       /* how often a rule failed a call */

#endif
