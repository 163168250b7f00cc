/*
 * kit.h: the judge of providers.
 *
 * A provider author gives the kit a factory of empty stores; the kit runs its checks, each on a store of its own, and
 * reports one by one.  It needs no test framework and no access to the provider beyond sys/store.h.  The program
 * durite-kit does the same for everything that dur_open can open.  docs/provider-guide.md tells how to use it.
 */
#ifndef DURITE_SYS_KIT_H
#define DURITE_SYS_KIT_H

#include <durite/sys/provider_methods.h>

DUR_BEGIN_DECLS

/* What an empty fetch with a poll time does: two modes, and each has two checks that the other must fail. */
typedef enum dur_kit_poll {
    DUR_KIT_POLL_PROBE, /* try it on an empty store and judge by what was seen */
    DUR_KIT_POLL_SHORT, /* answers at once */
    DUR_KIT_POLL_LONG   /* waits for something to come */
} dur_kit_poll;

/* A store under test, and whatever its factory wants to remember about it. */
typedef struct dur_kit_store {
    dur_provider *provider;
    void *data;
} dur_kit_store;

typedef struct dur_kit_factory {
    size_t size; /* sizeof(dur_kit_factory) */
    void *data;
    uint64_t lock_timeout_ms; /* lock time that checks use and outwait; 0: 5000 with advance, else 1000 (15000 when
                                 shared) */
    uint64_t short_poll_threshold_ms; /* "at once" means less than this; 0: 100 */
    dur_kit_poll poll;

    /* Required: an empty store that shares nothing with any other.  Called from several threads with jobs. */
    int (*open)(void *data, dur_kit_store *out, dur_error *err);
    /* Required: end it, its data and its files. */
    void (*close)(void *data, dur_kit_store *store);
    /* Move the store's clock (all of its clocks) forward.  NULL: the kit sleeps. */
    void (*advance)(void *data, dur_kit_store *store, uint64_t ms);
    /* Move the store's wall clock alone, either way.  NULL: checks of jumping clocks are skipped. */
    void (*jump)(void *data, dur_kit_store *store, int64_t wall_ms);
    /* Replace the instance's stored events by well-formed JSON of an unknown kind.  NULL: the kit appends such an
     * event. */
    int (*corrupt_history)(void *data, dur_kit_store *store, const char *instance, dur_error *err);
    /* Largest attempt count of the instance's messages.  NULL: the kit takes what a fetch says. */
    int (*max_attempt_count)(void *data, dur_kit_store *store, const char *instance, uint32_t *out, dur_error *err);
} dur_kit_factory;

typedef enum dur_kit_outcome { DUR_KIT_PASSED, DUR_KIT_FAILED, DUR_KIT_SKIPPED } dur_kit_outcome;

typedef struct dur_kit_result {
    const char *category; /* "atomicity" */
    const char *name;     /* "atomicity_failure_rollback"; our own begin with "ours_" */
    bool reference;       /* one of the 231 that are the original's (docs/parity.md: two of its 233 are not) */
    uint32_t round;       /* from 1; with repeat more than one */
    uint64_t seed;        /* gives the same run again */
    dur_kit_outcome outcome;
    const char *message; /* failed: what, where; skipped: why; else "" */
} dur_kit_result;

typedef struct dur_kit_options {
    size_t size;      /* sizeof(dur_kit_options) */
    const char *only; /* names or category/name, with * and ?; or a part of it.  NULL: all */
    uint32_t repeat;  /* 0: 1 */
    uint32_t jobs;    /* checks at a time; 0: 1 */
    uint64_t seed;    /* 0: 1 */
    bool shared;      /* all checks on one store, by ten threads, each in a part of its own; what tells of the whole
                         store is skipped and says so.  Then workloads on one store, and its invariants */
    bool stop_at_failure;
    dur_kit_poll poll; /* PROBE: the factory's */
    /* Called for each result, one at a time, in any order with jobs. */
    void (*on_plan)(void *data, size_t results);
    void (*on_result)(void *data, const dur_kit_result *result);
    void *data;
} dur_kit_options;

typedef struct dur_kit_report {
    uint32_t passed, failed, skipped;
    uint32_t reference_passed;
    char first_failed[96]; /* category/name of the first failure; "" */
    char first_message[480];
} dur_kit_report;

/* Run.  options may be NULL.  DUR_OK: all passed or were skipped; DUR_EFAILED: some failed, the report says how many;
   other codes: the kit could not run (bad options, no store to be had). */
DUR_API int dur_kit_run(const dur_kit_factory *factory, const dur_kit_options *options, dur_kit_report *report,
                        dur_error *err);

/* The checks, in the order in which they run. */
typedef struct dur_kit_check_info {
    const char *category;
    const char *name;
    bool reference;
} dur_kit_check_info;
DUR_API size_t dur_kit_count(void);
DUR_API dur_kit_check_info dur_kit_info(size_t index);
/* Does dur_kit_options.only choose it?  NULL chooses all. */
DUR_API bool dur_kit_selects(const char *only, size_t index);

/*
 * Two stores get the same random sequence of operations; every answer and everything visible must be equal.  Both
 * factories must be able to advance their clock.  DUR_EFAILED: they differ; *story is a text for people (the seed, the
 * difference and the shortest sequence found that still shows it), to be freed with dur_free.
 */
typedef struct dur_kit_compare_options {
    size_t size;
    uint64_t first_seed; /* 0: 1 */
    uint32_t seeds;      /* 0: 100 */
    uint32_t steps;      /* operations per seed; 0: 120 */
    bool turns;          /* every operation is one turn: any combination of its fields, on an instance in any state */
    void (*on_seed)(void *data, uint64_t seed, uint32_t done);
    void *data;
} dur_kit_compare_options;
DUR_API int dur_kit_compare(const dur_kit_factory *left, const dur_kit_factory *right,
                            const dur_kit_compare_options *options, char **story, dur_error *err);

/*
 * Load a store that is a shared object and make its schemes known to dur_open: what --load of durite-kit and
 * durite-stress does.  The object has the function durite_store_module (sys/store.h); it is never unloaded.  A path
 * without a slash is looked for where the system looks for libraries.  Codes: DUR_ENOTFOUND (no such file, or it cannot
 * be loaded, or it has no such function: the message says which), those of the function.  Since 0.1.
 */
DUR_API int dur_kit_load(const char *path, dur_error *err);

DUR_END_DECLS

#endif
