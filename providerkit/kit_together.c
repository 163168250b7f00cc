/*
 * kit_together.c: all checks on one store, by ten threads.  Each check has a view of its own (kit_view.c).  Checks that
 * need the clock come one at a time, beside the others; those that need a store of their own are skipped, saying why.
 */
#include "kit_view.h"

#include <stdio.h>
#include <stdlib.h>

#define THREADS 10

typedef struct crowd {
    kit_pool *pool;
    kit_commons *commons;
    dur_kit_factory factory; /* as the checks see it */
    kit_job *timed;          /* those that want the clock */
    size_t timed_count, timed_next;
    bool time_taken;
    size_t running;
    pthread_cond_t changed;
} crowd;

/* The next check, and whether it has the clock; false: there is none and none will come.  Under the pool's mutex. */
static bool next_job(crowd *all, kit_job *job, bool *has_time) {
    kit_pool *pool = all->pool;
    while (!pool->stop) {
        *has_time = all->timed_next < all->timed_count && !all->time_taken;
        if (*has_time) {
            *job = all->timed[all->timed_next++];
            all->time_taken = true;
            return true;
        }
        if (pool->next < pool->count) {
            *job = pool->jobs[pool->next++];
            return true;
        }
        if (all->running == 0 && all->timed_next == all->timed_count) break;
        pthread_cond_wait(&all->changed, &pool->mutex);
    }
    return false;
}

/* True: done.  False: it wants the clock. */
static bool run_in_view(kit *t, crowd *all, const kit_job *job, bool has_time) {
    kit_view *view = kit_view_open(all->commons, has_time);
    t->factory = &all->factory;
    t->store = all->commons->store;
    t->view = view;
    t->p = &view->base;
    t->seed = kit_mix(all->pool->seed, job->check->name, job->round);
    kit_run_check(t, job->check);
    const char *alone = view->alone;
    bool again = view->wants_time && alone == NULL;
    if (alone != NULL) {
        t->outcome = DUR_KIT_SKIPPED;
        snprintf(t->message, sizeof(t->message), "it needs a store of its own: %s", alone);
    }
    kit_view_close(view);
    t->view = NULL;
    return !again;
}

static void *work(void *arg) {
    crowd *all = arg;
    kit_pool *pool = all->pool;
    kit *t = kit_new(pool);
    kit_job job;
    bool has_time;
    pthread_mutex_lock(&pool->mutex);
    while (next_job(all, &job, &has_time)) {
        all->running++;
        pthread_mutex_unlock(&pool->mutex);
        bool done = run_in_view(t, all, &job, has_time);
        pthread_mutex_lock(&pool->mutex);
        all->running--;
        if (has_time) all->time_taken = false;
        if (!done)
            all->timed[all->timed_count++] = job;
        else if (!pool->stop)
            kit_note(pool, &job, t);
        pthread_cond_broadcast(&all->changed);
    }
    pthread_mutex_unlock(&pool->mutex);
    free(t);
    return NULL;
}

int kit_run_together(kit_pool *pool, dur_error *err) {
    pthread_t threads[THREADS];
    kit_commons *commons = calloc(1, sizeof(*commons));
    crowd all = { .pool = pool, .commons = commons, .factory = *pool->factory };
    if (commons == NULL) abort();
    int code = kit_commons_open(commons, pool->factory, err);
    if (code == DUR_OK) {
        all.factory.jump = NULL; /* nobody's clock jumps while others look at it */
        all.timed = calloc(pool->count + 1, sizeof(*all.timed));
        if (all.timed == NULL) abort();
        pthread_cond_init(&all.changed, NULL);
        for (size_t i = 0; i < THREADS; i++)
            if (pthread_create(&threads[i], NULL, work, &all) != 0) abort();
        for (size_t i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        pthread_cond_destroy(&all.changed);
        free(all.timed);
        kit_commons_close(commons);
    }
    free(commons);
    return code;
}
