/*
 * kit.c: the runner of checks: which ones, on which stores, by how many jobs, and what came of them.
 */
#include "kit_internal.h"

#include <fnmatch.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define KIT_REF_(name) { #name, kit_##name, true },
#define KIT_OUR_(name) { #name, kit_##name, false },
const kit_category kit_categories[] = { KIT_REFERENCE(KIT_REF_) KIT_OURS(KIT_OUR_){ NULL, NULL, false } };

/* ---- the list ---------------------------------------------------------------------------------------------------- */

size_t dur_kit_count(void) {
    size_t count = 0;
    for (const kit_category *category = kit_categories; category->name != NULL; category++)
        for (const kit_check *check = category->checks; check->name != NULL; check++)
            count++;
    return count;
}

dur_kit_check_info dur_kit_info(size_t index) {
    for (const kit_category *category = kit_categories; category->name != NULL; category++)
        for (const kit_check *check = category->checks; check->name != NULL; check++)
            if (index-- == 0) return (dur_kit_check_info){ category->name, check->name, category->reference };
    return (dur_kit_check_info){ NULL, NULL, false };
}

bool dur_kit_selects(const char *only, size_t index) {
    dur_kit_check_info info = dur_kit_info(index);
    return info.name != NULL && kit_wanted(only, info.category, info.name);
}

bool kit_wanted(const char *only, const char *category, const char *name) {
    char full[160];
    if (only == NULL || only[0] == '\0') return true;
    snprintf(full, sizeof(full), "%s/%s", category, name);
    if (strpbrk(only, "*?[") != NULL) return fnmatch(only, full, 0) == 0 || fnmatch(only, name, 0) == 0;
    return strstr(full, only) != NULL;
}

/* ---- one check --------------------------------------------------------------------------------------------------- */

static void close_lanes(kit *t) {
    while (t->lane_count > 0)
        dur_store_lane_close(t->lanes[--t->lane_count]);
    dur_waker_free(t->waker);
    t->waker = NULL;
}

/* The jump back from kit_fail and kit_skip lands here; nothing that changes after setjmp is read behind it but *t. */
static void run_guarded(kit *t, kit_fn *run) {
    if (setjmp(t->out) == 0) run(t);
}

void kit_run_check(kit *t, const kit_check *check) {
    t->arena = dur_arena_new();
    t->random = t->seed;
    t->outcome = DUR_KIT_PASSED;
    t->message[0] = '\0';
    dur_error_clear(&t->err);
    run_guarded(t, check->run);
    close_lanes(t);
    dur_arena_free(t->arena);
    t->arena = NULL;
}

static void run_alone(kit *t, const kit_check *check) {
    if (t->factory->open(t->factory->data, &t->store, &t->err) != DUR_OK) {
        t->outcome = DUR_KIT_FAILED;
        snprintf(t->message, sizeof(t->message), "no store to be had: %.400s", t->err.message);
        return;
    }
    t->p = t->store.provider;
    kit_run_check(t, check);
    t->factory->close(t->factory->data, &t->store);
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

uint64_t kit_mix(uint64_t seed, const char *name, uint32_t round) {
    uint64_t hash = seed * 0x9E3779B97F4A7C15u + round;
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001B3u;
    return hash | 1;
}

void kit_note(kit_pool *all, const kit_job *done, const kit *t) {
    dur_kit_report *report = all->report;
    dur_kit_result result = { done->category->name, done->check->name, done->category->reference, done->round, t->seed,
                              t->outcome,           t->message };
    if (t->outcome == DUR_KIT_PASSED) {
        report->passed++;
        if (done->category->reference && done->round == 1) report->reference_passed++;
    } else if (t->outcome == DUR_KIT_SKIPPED) {
        report->skipped++;
    } else {
        if (report->failed++ == 0) {
            snprintf(report->first_failed, sizeof(report->first_failed), "%s/%s", result.category, result.name);
            snprintf(report->first_message, sizeof(report->first_message), "%s", t->message);
        }
        if (all->options->stop_at_failure) all->stop = true;
    }
    if (all->options->on_result != NULL) all->options->on_result(all->options->data, &result);
}

kit *kit_new(const kit_pool *all) {
    kit *t = calloc(1, sizeof(*t));
    if (t == NULL) abort();
    t->factory = all->factory;
    uint64_t outwaited_ms = all->options->shared ? 15000 : 1000; /* ten threads keep each other waiting */
    t->lock_ms = all->factory->lock_timeout_ms != 0 ? all->factory->lock_timeout_ms
                 : all->factory->advance != NULL    ? 5000
                                                    : outwaited_ms;
    t->quick_ms = all->factory->short_poll_threshold_ms != 0 ? all->factory->short_poll_threshold_ms : 100;
    return t;
}

static void *work(void *arg) {
    kit_pool *all = arg;
    kit *t = kit_new(all);
    pthread_mutex_lock(&all->mutex);
    while (all->next < all->count && !all->stop) {
        kit_job one = all->jobs[all->next++];
        pthread_mutex_unlock(&all->mutex);
        t->seed = kit_mix(all->seed, one.check->name, one.round);
        run_alone(t, one.check);
        pthread_mutex_lock(&all->mutex);
        if (!all->stop) kit_note(all, &one, t);
    }
    pthread_mutex_unlock(&all->mutex);
    free(t);
    return NULL;
}

/*
 * An empty fetch with a poll time, on the real clock: does it wait?  Who waits does so each time; a store that answers
 * at once may be late on a busy machine, so the quickest of several answers decides.
 */
static int probe(const dur_kit_factory *factory, dur_kit_poll *out, dur_error *err) {
    enum { POLL_MS = 300, TRIES = 5 };
    dur_kit_store store = { NULL, NULL };
    int code = factory->open(factory->data, &store, err);
    if (code != DUR_OK) return code;
    dur_arena *arena = dur_arena_new();
    *out = DUR_KIT_POLL_LONG;
    for (int i = 0; i < TRIES && code == DUR_OK && *out == DUR_KIT_POLL_LONG; i++) {
        dur_orchestration_item item;
        dur_fetch how = { .lock_ms = 1000, .poll_ms = POLL_MS };
        uint64_t from = kit_real_ms();
        code = dur_store_fetch_orchestration_item(store.provider, arena, &how, &item, err);
        if (kit_real_ms() - from < POLL_MS * 2 / 3) *out = DUR_KIT_POLL_SHORT;
    }
    dur_arena_free(arena);
    factory->close(factory->data, &store);
    return code;
}

static size_t choose(kit_pool *all, dur_kit_poll poll, uint32_t repeat) {
    size_t count = 0;
    for (uint32_t round = 1; round <= repeat; round++)
        for (const kit_category *category = kit_categories; category->name != NULL; category++)
            for (const kit_check *check = category->checks; check->name != NULL; check++) {
                if (!kit_wanted(all->options->only, category->name, check->name)) continue;
                if (check->poll != DUR_KIT_POLL_PROBE && check->poll != poll) continue;
                if (all->jobs != NULL) all->jobs[count] = (kit_job){ category, check, round };
                count++;
            }
    return count;
}

static void run_pool(kit_pool *all, uint32_t jobs) {
    pthread_t threads[64];
    size_t started = 0;
    if (jobs > 64) jobs = 64;
    if (jobs <= 1) {
        work(all);
    } else {
        while (started < jobs && pthread_create(&threads[started], NULL, work, all) == 0)
            started++;
        if (started == 0) work(all);
        for (size_t i = 0; i < started; i++)
            pthread_join(threads[i], NULL);
    }
}

int dur_kit_run(const dur_kit_factory *factory, const dur_kit_options *options, dur_kit_report *report,
                dur_error *err) {
    static const dur_kit_options none = { .size = sizeof(none) };
    dur_kit_report own;
    kit_pool all = { .mutex = PTHREAD_MUTEX_INITIALIZER };
    dur_kit_poll poll = DUR_KIT_POLL_PROBE;
    int code;
    if (factory == NULL || factory->size != sizeof(*factory) || factory->open == NULL || factory->close == NULL)
        return dur_error_set(err, DUR_EINVAL, false, "kit.run", "a factory with size, open and close is required");
    if (options != NULL && options->size != sizeof(*options))
        return dur_error_set(err, DUR_EINVAL, false, "kit.run", "options->size is not that of this kit");
    if (options == NULL) options = &none;
    if (report == NULL) report = &own;
    memset(report, 0, sizeof(*report));

    poll = options->poll != DUR_KIT_POLL_PROBE ? options->poll : factory->poll;
    if (poll == DUR_KIT_POLL_PROBE && (code = probe(factory, &poll, err)) != DUR_OK) return code;
    all.factory = factory;
    all.options = options;
    all.report = report;
    all.seed = options->seed != 0 ? options->seed : 1;
    uint32_t repeat = options->repeat != 0 ? options->repeat : 1;
    size_t count = choose(&all, poll, repeat), loads = options->shared ? kit_shared_count(options->only) * repeat : 0;
    if (count + loads == 0)
        return dur_error_set(err, DUR_ENOTFOUND, false, "kit.run", "no check is called \"%s\"", options->only);
    all.jobs = calloc(count + 1, sizeof(*all.jobs));
    if (all.jobs == NULL) return dur_error_set(err, DUR_ENOMEM, false, "kit.run", "no memory for %zu jobs", count);
    all.count = choose(&all, poll, repeat);
    if (options->on_plan != NULL) options->on_plan(options->data, count + loads);
    code = DUR_OK;
    if (!options->shared)
        run_pool(&all, options->jobs);
    else if (count > 0)
        code = kit_run_together(&all, err);
    if (code == DUR_OK && loads > 0) code = kit_run_shared(factory, options, report, err);
    free(all.jobs);
    pthread_mutex_destroy(&all.mutex);
    if (code != DUR_OK || report->failed == 0) return code;
    return dur_error_set(err, DUR_EFAILED, false, "kit.run", "%u of %zu failed, first %s", report->failed,
                         count + loads, report->first_failed);
}
