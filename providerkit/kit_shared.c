/*
 * kit_shared.c: ten threads on one store.  Each is client, dispatcher and worker at once and takes whatever it gets;
 * what must hold of the whole is counted beside the store and compared at the end.
 */
#include "kit_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 10
#define INSTANCES 120
#define ACTIVITIES 3

static const char *const invariants[] = {
    "ours_shared_nothing_unexpected",  "ours_shared_one_holder_at_a_time",  "ours_shared_one_worker_at_a_time",
    "ours_shared_every_instance_ends", "ours_shared_every_completion_once", "ours_shared_histories_have_no_gaps",
    "ours_shared_last_value_wins",     "ours_shared_queues_are_empty",
};
enum { UNEXPECTED, HOLDER, WORKER, ENDS_ALL, ONCE, GAPS, VALUES, QUEUES, INVARIANTS };

typedef struct shared {
    atomic_int held[INSTANCES];
    atomic_int working[INSTANCES][ACTIVITIES];
    atomic_int turns[INSTANCES];
    atomic_int ended;
    atomic_int next; /* instance to start */
    atomic_bool stop;
    pthread_mutex_t mutex;
    char broken[INVARIANTS][400]; /* what was seen first; "" while it holds */
} shared;

typedef struct hand {
    kit t; /* first: checks get a pointer to it */
    shared *all;
    pthread_t thread;
} hand;

static void breaks(shared *all, int which, const char *format, ...) DUR_PRINTF(3, 4);
static void breaks(shared *all, int which, const char *format, ...) {
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&all->mutex);
    if (all->broken[which][0] == '\0') vsnprintf(all->broken[which], sizeof(all->broken[which]), format, args);
    pthread_mutex_unlock(&all->mutex);
    va_end(args);
    atomic_store(&all->stop, true);
}

static int index_of(const char *instance) {
    return atoi(instance + strlen("shared-"));
}

/* ---- what each thread does --------------------------------------------------------------------------------------- */

static size_t done_before(const dur_orchestration_item *item) {
    size_t done = 0;
    for (size_t i = 0; i < item->history_count; i++)
        done += kit_says(item->history[i].json, "\"ActivityCompleted\"");
    return done;
}

static void turn(kit *t, shared *all, const dur_orchestration_item *item) {
    int who = index_of(item->instance);
    dur_event events[64];
    dur_message_row work[ACTIVITIES];
    size_t count = 0, works = 0, done = done_before(item);
    uint64_t last = item->last_event_id;
    bool ended = last > 0 && item->history_count > 0 &&
                 kit_says(item->history[item->history_count - 1].json, "OrchestrationCompleted");
    dur_execution_metadata meta = { .orchestration_name = KIT_NAME, .orchestration_version = KIT_VERSION };
    if (last == 0) {
        events[count++] = ev_started(++last);
        for (uint64_t i = 0; i < ACTIVITIES; i++) {
            events[count++] = ev_scheduled(++last);
            work[works++] = kit_activity(t, item->instance, i);
        }
    }
    for (size_t i = 0; i < item->message_count && count < 50 && !ended; i++) {
        bool completion = kit_says(item->messages[i].json, "ActivityCompleted");
        done += completion;
        if (completion)
            events[count++] = ev_activity_done(++last, 2);
        else if (kit_says(item->messages[i].json, "Raised"))
            events[count++] = ev_external(++last, "noise");
    }
    if (!ended) {
        events[count++] = ev_set(last + 1, "turns", kit_format(t, "%d", atomic_fetch_add(&all->turns[who], 1) + 1));
        last++;
        if (done == ACTIVITIES) {
            events[count++] = ev_done(++last, "out");
            meta.status = DUR_STATUS_COMPLETED;
            meta.output = "out";
            atomic_fetch_add(&all->ended, 1);
        }
    }
    if (done > ACTIVITIES) breaks(all, ONCE, "%s got %zu completions of %d", item->instance, done, ACTIVITIES);
    atomic_fetch_sub(&all->held[who], 1); /* before the ack: afterwards it may be somebody else's */
    MUST(ACK(item, .events = events, .event_count = count, .work = work, .work_count = works, .meta = meta));
}

static bool dispatch(kit *t, shared *all) {
    dur_orchestration_item item = kit_fetch(t);
    if (item.instance == NULL) return false;
    int who = index_of(item.instance);
    if (atomic_fetch_add(&all->held[who], 1) != 0) breaks(all, HOLDER, "%s has two holders", item.instance);
    uint64_t dice = kit_random(&t->random) % 20;
    if (dice == 0) REFUSED(DUR_ELEASE, "Invalid lock token", ACK(&item, .token = "no-such-token", .event_count = 0));
    if (dice == 1) {
        atomic_fetch_sub(&all->held[who], 1);
        MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 0, true, ERR));
        return true;
    }
    turn(t, all, &item);
    return true;
}

static bool labour(kit *t, shared *all) {
    dur_leased_work work = kit_fetch_work(t, HOW(.max = 1));
    if (work.json.data == NULL) return false;
    int who = index_of(work.ref.instance);
    atomic_int *mark = &all->working[who][work.ref.activity_id];
    if (atomic_fetch_add(mark, 1) != 0)
        breaks(all, WORKER, "activity %llu of %s is at two workers", (unsigned long long)work.ref.activity_id,
               work.ref.instance);
    if (kit_random(&t->random) % 10 == 0) {
        atomic_fetch_sub(mark, 1);
        MUST(dur_store_abandon_work_item(t->p, work.lock_token, 0, false, ERR));
        return true;
    }
    dur_message_row done = kit_finished(t, work.ref.instance, 1, work.ref.activity_id, "r");
    MUST(dur_store_ack_work_item(t->p, work.lock_token, &done, ERR)); /* the mark stays: it must not come again */
    return true;
}

static void live(kit *t) {
    shared *all = ((hand *)(void *)t)->all;
    int idle = 0;
    while (!atomic_load(&all->stop) && (atomic_load(&all->ended) < INSTANCES || idle < 3)) {
        int next = atomic_fetch_add(&all->next, 1);
        if (next < INSTANCES) MUST(kit_put(t, kit_start(t, kit_format(t, "shared-%d", next))));
        if (kit_random(&t->random) % 4 == 0 && next > 0)
            MUST(kit_put(t, kit_raised(t, kit_format(t, "shared-%d", (next - 1) % INSTANCES), "noise", "")));
        bool some = dispatch(t, all);
        some |= labour(t, all);
        idle = some ? 0 : idle + 1;
        if (idle > 200000)
            breaks(all, ENDS_ALL, "%d of %d ended, and nothing to fetch", atomic_load(&all->ended), INSTANCES);
        if (next > INSTANCES * 400) breaks(all, ENDS_ALL, "no end in sight");
        dur_arena_reset(t->arena);
    }
}

static void *run(void *arg) {
    hand *me = arg;
    if (setjmp(me->t.out) == 0) live(&me->t);
    if (me->t.outcome == DUR_KIT_FAILED) breaks(me->all, UNEXPECTED, "%s", me->t.message);
    return NULL;
}

/* ---- what must hold in the end ----------------------------------------------------------------------------------- */

static void judge_instance(kit *t, shared *all, int who) {
    const char *instance = kit_format(t, "shared-%d", who);
    dur_event_row *rows;
    size_t count = kit_history(t, instance, 1, &rows), done = 0, ends = 0;
    for (size_t i = 0; i < count; i++) {
        done += kit_says(rows[i].json, "\"ActivityCompleted\"");
        ends += kit_says(rows[i].json, "OrchestrationCompleted");
        if (rows[i].event_id != i + 1) breaks(all, GAPS, "%s: event %zu has another id", instance, i + 1);
    }
    if (ends != 1) breaks(all, ENDS_ALL, "%s ended %zu times", instance, ends);
    if (done != ACTIVITIES) breaks(all, ONCE, "%s has %zu completions of %d", instance, done, ACTIVITIES);
    const char *value = kit_value(t, instance, "turns");
    if (value == NULL || atoi(value) != atomic_load(&all->turns[who]))
        breaks(all, VALUES, "%s: the value is of turn %s, not %d", instance, value, atomic_load(&all->turns[who]));
}

static void judge(kit *t) {
    shared *all = ((hand *)(void *)t)->all;
    for (int i = 0; i < INSTANCES; i++)
        judge_instance(t, all, i);
    while (dispatch(t, all)) /* late noise */
        ;
    NO_WORK();
    kit_expire(t);
    NOTHING();
    if (dur_store_has(t->p, "get_queue_depths")) {
        dur_queue_depths depths = kit_depths(t);
        if (depths.orchestrator_queue + depths.worker_queue + depths.timer_queue != 0)
            breaks(all, QUEUES, "%llu messages, %llu works left", (unsigned long long)depths.orchestrator_queue,
                   (unsigned long long)depths.worker_queue);
    }
}

static void prepare(hand *me, shared *all, const dur_kit_factory *factory, const dur_kit_store *store, uint64_t seed) {
    me->all = all;
    me->t.factory = factory;
    me->t.store = *store;
    me->t.p = store->provider;
    me->t.arena = dur_arena_new();
    me->t.random = seed;
    me->t.outcome = DUR_KIT_PASSED;
    me->t.lock_ms = factory->advance != NULL ? 5000 : 60000; /* nothing expires by chance */
}

static int one_round(const dur_kit_factory *factory, uint64_t seed, shared *all, dur_error *err) {
    dur_kit_store store = { NULL, NULL };
    hand *hands = calloc(THREADS + 1, sizeof(*hands));
    if (hands == NULL) return dur_error_set(err, DUR_ENOMEM, false, "kit.shared", "no memory");
    int code = factory->open(factory->data, &store, err);
    if (code == DUR_OK) {
        for (uint64_t i = 0; i <= THREADS; i++)
            prepare(&hands[i], all, factory, &store, seed * 1000 + i);
        for (size_t i = 0; i < THREADS; i++)
            if (pthread_create(&hands[i].thread, NULL, run, &hands[i]) != 0) abort();
        for (size_t i = 0; i < THREADS; i++)
            pthread_join(hands[i].thread, NULL);
        hand *last = &hands[THREADS];
        if (!atomic_load(&all->stop)) {
            if (setjmp(last->t.out) == 0) judge(&last->t);
            if (last->t.outcome == DUR_KIT_FAILED) breaks(all, QUEUES, "%s", last->t.message);
        }
        for (size_t i = 0; i <= THREADS; i++)
            dur_arena_free(hands[i].t.arena);
        factory->close(factory->data, &store);
    }
    free(hands);
    return code;
}

size_t kit_shared_count(const char *only) {
    size_t count = 0;
    for (int i = 0; i < INVARIANTS; i++)
        count += kit_wanted(only, "ours_shared", invariants[i]);
    return count;
}

static void note(const dur_kit_options *options, dur_kit_report *report, const shared *all, int which, uint32_t round,
                 uint64_t seed) {
    bool failed = all->broken[which][0] != '\0';
    dur_kit_result result = {
        "ours_shared",     invariants[which], false, round, seed, failed ? DUR_KIT_FAILED : DUR_KIT_PASSED,
        all->broken[which]
    };
    if (failed && report->failed++ == 0) {
        snprintf(report->first_failed, sizeof(report->first_failed), "ours_shared/%s", invariants[which]);
        snprintf(report->first_message, sizeof(report->first_message), "%s", all->broken[which]);
    }
    report->passed += !failed;
    if (options->on_result != NULL) options->on_result(options->data, &result);
}

int kit_run_shared(const dur_kit_factory *factory, const dur_kit_options *options, dur_kit_report *report,
                   dur_error *err) {
    uint32_t repeat = options->repeat != 0 ? options->repeat : 1;
    uint64_t seed = options->seed != 0 ? options->seed : 1;
    for (uint32_t round = 1; round <= repeat; round++, seed++) {
        shared *all = calloc(1, sizeof(*all));
        if (all == NULL) return dur_error_set(err, DUR_ENOMEM, false, "kit.shared", "no memory");
        pthread_mutex_init(&all->mutex, NULL);
        int code = one_round(factory, seed, all, err);
        for (int i = 0; i < INVARIANTS && code == DUR_OK; i++)
            if (kit_wanted(options->only, "ours_shared", invariants[i])) note(options, report, all, i, round, seed);
        pthread_mutex_destroy(&all->mutex);
        free(all);
        if (code != DUR_OK) return code;
    }
    return DUR_OK;
}
