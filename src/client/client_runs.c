/*
 * client_runs.c: one thread that starts many instances and takes their ends as they come.
 *
 * A run is taken down, then sent together with its neighbours, then it flies until its end is known, then it is ready
 * and waits to be told.  While it flies it is a member of a set (provider/live.h): a loop of this process says when it
 * ends, and wakes us once for all that one round has ended.
 *
 * Runs that no loop of this handle has are elsewhere.  Somebody must look at them, at all of them, for a store's wake
 * from another process does not say whom it means: when the one watch of the set reports something, and every
 * LOOK_MS where that watch stands for several.  Looking takes at most a part of the time (REST), however many there
 * are.
 */
#include "client/client_internal.h"

#include "base/arena_internal.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/drive.h"
#include "base/list.h"
#include "base/thread.h"
#include "core/parent.h"
#include "provider/live.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SEND_MAX 512u                  /* starts at a time */
#define LOOKS_MAX 64u                  /* at a time: who is here has not to wait for long */
#define REST 4u                        /* after looks, so many times as long as they took */
#define ACQUIRED_US UINT64_C(2000)     /* what was started here and can run here has been acquired by then */
#define LOOK_US UINT64_C(200000)       /* the watch may miss what happens to others than its own instance … */
#define LOOK_ONE_US UINT64_C(60000000) /* … and a lost wake-up of some foreign store costs so much, not for ever */
#define TRY_AGAIN_US UINT64_C(50000)   /* after an error that may go away */
#define NO_WAKE_US UINT64_C(10000)     /* in a watch that cannot be woken, while others run here */

typedef struct run {
    dur__live_member member; /* from sending to its end */
    dur__link link;          /* in one of the lists of runs */
    dur_run end;
    dur_message_row message; /* until it is sent */
    char *json;              /* … of the message, and behind it its handler */
    dur_exists_policy policy;
    uint64_t delay_ms;
    uint64_t birth; /* of the instance that it has started; 0: whoever has the id */
    uint64_t pass;  /* of looks: it was looked at */
    bool untold;    /* it could not join: nobody tells of its end */
    char *text;     /* output or error */
    char id[];
} run;

struct dur_runs {
    dur_client client; /* our own: retains the store */
    dur__live_set *set;
    dur__link down; /* not sent */
    size_t down_count;
    dur__link flying; /* members of the set */
    dur__link asked;  /* … to be looked at: a loop has sent them to the store, or nobody knows anything */
    dur__link ready;  /* their end is known */
    size_t count;     /* all of these */
    size_t untold;    /* … of them */
    run *told;        /* whose texts the caller may read */
    dur_arena *arena; /* of one look */
    dur_watch *watch; /* NULL: none */
    run *watched;     /* its instance's, which was elsewhere */
    bool can_wake;    /* … the watch */
    uint64_t pass;
    uint64_t look_at_us;    /* when to look at what is elsewhere */
    uint64_t not_before_us; /* … the next time, though a watch reports something */
    char trouble[160];      /* why the last look failed; empty: it did not */
};

static int enter(const dur_runs *runs, const char *op, dur_error *err) {
    if (runs == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "runs are required, got NULL");
    return dur__client_enter(&runs->client, op, err);
}

static run *run_of(dur__link *link) {
    return DUR__CONTAINER(link, run, link);
}

static run *run_new(dur_runs *runs, const char *instance, void *data) {
    size_t size = strlen(instance) + 1;
    run *made = dur__zget(sizeof(*made) + size);
    if (made == NULL) return NULL;
    memcpy(made->id, instance, size);
    made->end.size = sizeof(made->end);
    made->end.instance = made->id;
    made->end.data = data;
    runs->count++;
    return made;
}

static void run_free(run *self) {
    if (self == NULL) return;
    dur__live_quit(&self->member);
    dur__list_unlink(&self->link);
    dur__free(self->json);
    dur__free(self->text);
    dur__free(self);
}

static void watch_close(dur_runs *runs) {
    dur_store_watch_close(runs->watch);
    runs->watch = NULL;
    runs->watched = NULL;
}

static void run_moves(run *self, dur__link *list) {
    dur__list_unlink(&self->link);
    dur__list_push(list, &self->link);
}

/* `text` is taken over. */
static void run_ends(dur_runs *runs, run *self, int code, bool retryable, char *text) {
    dur__live_quit(&self->member);
    runs->untold -= self->untold;
    self->untold = false;
    if (runs->watched == self) watch_close(runs);
    self->end.code = code;
    self->end.retryable = retryable;
    self->text = text;
    *(code == DUR_OK ? &self->end.output : &self->end.error) = text;
    run_moves(self, &runs->ready);
}

/* What no loop has acquired after a while is looked at. */
static void look_soon(dur_runs *runs) {
    uint64_t soon_us = dur__monotonic_us() + ACQUIRED_US;
    if (runs->look_at_us > soon_us) runs->look_at_us = soon_us;
    runs->pass++;
}

/* ---- new and free ---- */

int dur_runs_new(dur_runs **out, dur_client *client, dur_error *err) {
    const char *op = "runs.new";
    DUR__SET_ASIDE(op, err);
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "out is required, got NULL");
    *out = NULL;
    int code = dur__client_enter(client, op, err);
    if (code != DUR_OK) return code;
    dur_runs *runs = dur__xcalloc(1, sizeof(*runs));
    runs->set = dur__live_set_new(client->store);
    if (runs->set == NULL) {
        dur__free(runs);
        return DUR__NO_MEMORY(err, op);
    }
    runs->client = *client;
    dur_store_retain(client->store);
    runs->arena = dur__arena_xnew();
    runs->can_wake = dur_store_has(client->store, "watch_wake") || !dur_store_has(client->store, "watch_open");
    dur__list_init(&runs->down);
    dur__list_init(&runs->flying);
    dur__list_init(&runs->asked);
    dur__list_init(&runs->ready);
    *out = runs;
    return DUR_OK;
}

void dur_runs_free(dur_runs *runs) {
    if (runs == NULL) return;
    if (runs->watch != NULL) watch_close(runs);
    dur__link *lists[] = { &runs->down, &runs->flying, &runs->asked, &runs->ready };
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        for (dur__link *at; (at = dur__list_first(lists[i])) != NULL;)
            run_free(run_of(at));
    run_free(runs->told);
    dur__live_set_free(runs->set);
    dur_arena_free(runs->arena);
    dur_provider_close(runs->client.store);
    dur__free(runs);
}

size_t dur_runs_count(const dur_runs *runs) {
    return runs != NULL ? runs->count : 0;
}

/* ---- starting ---- */

int dur_runs_start_ex(dur_runs *runs, const dur_start_args *given, dur_error *err) {
    const char *op = "runs.start";
    DUR__SET_ASIDE(op, err);
    dur_start_args args = { .size = 0 };
    dur_message_row message;
    int code = enter(runs, op, err);
    if (code == DUR_OK) code = dur__client_start_args(&args, given, op, err);
    if (code != DUR_OK) return code;
    dur_arena_reset(runs->arena);
    uint64_t birth = dur__birth_new(dur_world_real());
    code = dur__client_start_message(&message, runs->arena, &args, birth, err);
    if (code != DUR_OK) return code;
    size_t handler_size = strlen(message.handler) + 1;
    char *json = dur__get(message.json.size + handler_size);
    run *made = json != NULL ? run_new(runs, args.instance, args.data) : NULL;
    if (made == NULL) {
        dur__free(json);
        return DUR__NO_MEMORY(err, op);
    }
    made->json = json;
    memcpy(made->json, message.json.data, message.json.size);
    memcpy(made->json + message.json.size, message.handler, handler_size);
    made->message = message;
    made->message.handler = made->json + message.json.size;
    made->message.instance = made->id;
    made->message.json.data = made->json;
    made->policy = dur__client_policy(args.exists);
    made->delay_ms = args.delay_ms;
    made->birth = birth;
    dur__list_push(&runs->down, &made->link);
    runs->down_count++;
    return DUR_OK;
}

int dur_runs_watch(dur_runs *runs, const char *instance, void *data, dur_error *err) {
    const char *op = "runs.watch";
    DUR__SET_ASIDE(op, err);
    if (runs == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "runs are required, got NULL");
    int code = dur__client_enter_instance(&runs->client, instance, op, err);
    if (code != DUR_OK) return code;
    run *made = run_new(runs, instance, data);
    if (made == NULL || !dur__live_join(runs->set, &made->member, made->id, 0)) {
        if (made != NULL) runs->count--;
        dur__free(made);
        return DUR__NO_MEMORY(err, op);
    }
    dur__list_push(&runs->asked, &made->link);
    return DUR_OK;
}

/* Without memory it is told of no end, and looked at as what is elsewhere is. */
static void join(dur_runs *runs, run *self) {
    self->untold = !dur__live_join(runs->set, &self->member, self->id, self->birth);
    runs->untold += self->untold;
}

/* What became of a start.  One that replaces joins only now: what was told before is its predecessor's. */
static void run_answered(dur_runs *runs, run *self, const dur_start_request *answer) {
    dur__free(self->json);
    self->json = NULL;
    if (answer->error.code != DUR_OK) {
        run_ends(runs, self, (int)answer->error.code, answer->error.retryable, dur__xstrdup(answer->error.message));
        return;
    }
    if (answer->existed && self->policy == DUR_EXISTS_RETURN) self->birth = 0; /* whoever has the id is meant */
    bool late = self->member.set == NULL;
    if (late)
        dur__live_starting(runs->client.store, self->id); /* … also what is told from now on by a loop that has it */
    if (late) join(runs, self);
    run_moves(self, late || answer->existed ? &runs->asked : &runs->flying);
}

/* The first of what was taken down, together: durable or refused when it returns. */
static bool send_some(dur_runs *runs) {
    size_t count = runs->down_count < SEND_MAX ? runs->down_count : SEND_MAX;
    dur_start_request *starts = dur__zget(count * sizeof(*starts));
    run **sent = dur__get(count * sizeof(run *));
    if (starts == NULL || sent == NULL) {
        dur__free(starts);
        dur__free(sent);
        return false;
    }
    dur_error err = DUR_ERROR_INIT;
    runs->down_count -= count;
    for (size_t i = 0; i < count; i++) {
        dur__link *first = dur__list_pop(&runs->down);
        DUR_ASSERT(first != NULL);
        run *self = sent[i] = run_of(first);
        starts[i].item = &self->message;
        starts[i].policy = self->policy;
        starts[i].delay_ms = self->delay_ms;
        dur__live_starting(runs->client.store, self->id);
        if (self->policy != DUR_EXISTS_REPLACE_FINISHED) join(runs, self);
    }
    int code = dur_store_enqueue_starts(runs->client.store, starts, count, &err);
    for (size_t i = 0; i < count; i++) {
        if (code != DUR_OK) starts[i].error = err; /* of all */
        run_answered(runs, sent[i], &starts[i]);
    }
    dur__free(sent);
    dur__free(starts);
    look_soon(runs);
    return true;
}

int dur_runs_flush(dur_runs *runs, dur_error *err) {
    DUR__SET_ASIDE("runs.flush", err);
    int code = enter(runs, "runs.flush", err);
    while (code == DUR_OK && !dur__list_empty(&runs->down))
        if (!send_some(runs)) code = DUR__NO_MEMORY(err, "runs.flush");
    return code;
}

/* ---- looking ---- */

/* Ours was deleted, and somebody has started another under its id. */
static bool is_another(dur_runs *runs, const run *self, const dur_instance_row *row) {
    dur_work_item start;
    uint64_t birth = row->birth;
    if (row->start_pending && dur_work_from_json(&start, runs->arena, row->pending_start, NULL) == DUR_OK)
        birth = start.birth != 0 ? start.birth : UINT64_MAX; /* not one that runs have started */
    return !dur__same_birth(self->birth, birth);
}

static void look_at(dur_runs *runs, run *self) {
    dur_instance_row row;
    dur_instance_info info;
    dur_error why = DUR_ERROR_INIT;
    const char *text = why.message;
    self->pass = runs->pass;
    dur_arena_reset(runs->arena);
    int code = dur__client_row(&runs->client, runs->arena, self->id, &row, &why);
    if (code == DUR_OK && is_another(runs, self, &row))
        code = dur_error_set(&why, DUR_ENOTFOUND, false, "runs.next",
                             "instance \"%.200s\" was deleted; another one has its id", self->id);
    bool waits = why.retryable || (code == DUR_ENOTFOUND && !dur__client_sees_starts(&runs->client));
    if (code == DUR_OK) {
        dur__client_info_fill(&info, &row);
        waits = !dur__client_ended(&info) && !dur__client_halted(&info);
        if (!waits) waits = dur__client_info_failure(&runs->client, runs->arena, &info, &why) != DUR_OK;
        if (!waits) code = dur__client_outcome(&info, &text);
    } else if (waits) {
        snprintf(runs->trouble, sizeof(runs->trouble), "%.150s", why.message);
    }
    char *kept = waits ? NULL : dur__strdup(text); /* without memory: at the next look */
    if (kept == NULL)
        run_moves(self, &runs->flying); /* behind those that nobody has looked at for longer */
    else
        run_ends(runs, self, code, false, kept);
}

/* Ends that loops of this process have told, and what they have sent to the store. */
static void take_told(dur_runs *runs) {
    for (dur__live_member *m; (m = dur__live_told(runs->set)) != NULL;) {
        run *self = DUR__CONTAINER(m, run, member);
        char *output = m->output;
        *m = (dur__live_member){ .set = NULL };
        if (output != NULL) {
            run_ends(runs, self, DUR_OK, false, output);
        } else {
            join(runs, self); /* before the look: nothing falls in between */
            run_moves(self, &runs->asked);
        }
    }
    bool any = !dur__list_empty(&runs->asked);
    for (dur__link *at; (at = dur__list_first(&runs->asked)) != NULL;)
        look_at(runs, run_of(at));
    if (any) look_soon(runs);
}

/* Of any of them: other processes wake all watches. */
static void watch_one(dur_runs *runs) {
    if (runs->watched != NULL && !atomic_load(&runs->watched->member.here)) return;
    if (runs->watch != NULL) watch_close(runs);
    DUR__LIST_EACH(&runs->flying, at) {
        run *self = run_of(at);
        if (atomic_load(&self->member.here)) continue;
        if (dur_store_watch_open(runs->client.store, self->id, &runs->watch, NULL) == DUR_OK) runs->watched = self;
        return;
    }
}

/* Look at those that are elsewhere and that this pass has not seen yet, and say when to look again. */
static void look_around(dur_runs *runs, size_t looks_max) {
    uint64_t begun_us = dur__monotonic_us();
    size_t looks = 0, left = runs->count;
    watch_one(runs);
    runs->trouble[0] = '\0';
    for (dur__link *at = runs->flying.next, *after; at != &runs->flying && left > 0 && looks < looks_max; at = after) {
        run *self = run_of(at);
        after = at->next;
        left--;
        if (self->pass == runs->pass || atomic_load(&self->member.here)) continue;
        look_at(runs, self);
        looks++;
    }
    uint64_t now_us = dur__monotonic_us();
    bool alone = runs->watch != NULL && dur__live_elsewhere(runs->set) + runs->untold == 1;
    runs->not_before_us = now_us + REST * (now_us - begun_us);
    if (looks == looks_max) { /* and perhaps more */
        runs->look_at_us = runs->not_before_us;
        return;
    }
    runs->look_at_us = now_us + (runs->trouble[0] != '\0' ? TRY_AGAIN_US : alone ? LOOK_ONE_US : LOOK_US);
    runs->pass++;
}

/* ---- waiting ---- */

/* Until a loop has told something, a watch reports something, or it is time to look. */
static void sleep_until(dur_runs *runs, size_t elsewhere, uint64_t now_us, uint64_t until_us) {
    dur_error err = DUR_ERROR_INIT;
    if (elsewhere == 0 && runs->watch != NULL) watch_close(runs);
    if (elsewhere > 0 && runs->look_at_us < until_us) until_us = runs->look_at_us;
    if (runs->watch == NULL || now_us < runs->not_before_us) {
        bool rests = runs->watch != NULL && runs->not_before_us < until_us;
        dur__live_set_wait(runs->set, rests ? runs->not_before_us : until_us);
        return;
    }
    if (!runs->can_wake && elsewhere < runs->count && now_us + NO_WAKE_US < until_us) until_us = now_us + NO_WAKE_US;
    int code = dur__live_set_watch(runs->set, runs->watch, until_us, &err);
    if (code == DUR_ETIMEOUT) return;
    if (code != DUR_OK && !err.retryable) watch_close(runs); /* the next look opens another */
    runs->look_at_us = runs->not_before_us;
    runs->pass++;
}

/* Until an end is known: DUR_OK. */
static int await_one(dur_runs *runs, uint64_t timeout_ms, const char *op, dur_error *err) {
    uint64_t now_us = dur__monotonic_us(), deadline_us = dur__client_until(now_us, timeout_ms);
    bool looked = timeout_ms > 0;
    for (;;) {
        uint64_t outer_us = dur__client_deadline(timeout_ms, deadline_us);
        take_told(runs);
        (void)dur_deadline_set(outer_us);
        if (!dur__list_empty(&runs->ready)) return DUR_OK;
        if (runs->count == 0) return dur_error_set(err, DUR_ESTATE, false, op, "there is no run to wait for");
        if (!dur__list_empty(&runs->down)) {
            if (!send_some(runs)) return DUR__NO_MEMORY(err, op);
            continue;
        }
        size_t elsewhere = dur__live_elsewhere(runs->set) + runs->untold;
        now_us = dur__monotonic_us();
        if (elsewhere == 0) runs->look_at_us = UINT64_MAX;
        if (elsewhere > 0 && (!looked || now_us >= runs->look_at_us)) {
            outer_us = dur__client_deadline(timeout_ms, deadline_us);
            look_around(runs, looked ? LOOKS_MAX : SIZE_MAX);
            (void)dur_deadline_set(outer_us);
            looked = true;
            continue;
        }
        if (now_us >= deadline_us)
            return dur_error_set(err, DUR_ETIMEOUT, true, op, "none of %zu has ended after %" PRIu64 " ms%s%s",
                                 runs->count, timeout_ms, runs->trouble[0] != '\0' ? "; the store says: " : "",
                                 runs->trouble);
        outer_us = dur__client_deadline(timeout_ms, deadline_us);
        sleep_until(runs, elsewhere, now_us, deadline_us);
        (void)dur_deadline_set(outer_us);
        if (deadline_us == UINT64_MAX && dur__list_empty(&runs->down) && dur__drive_stalls())
            return dur_error_set(err, DUR_ETIMEOUT, false, op,
                                 "none of %zu will end: nothing happens by itself, and \"%.100s\" waits for: %s",
                                 runs->count, run_of(runs->flying.next)->id,
                                 dur__world_waits(run_of(runs->flying.next)->id));
    }
}

int dur_runs_next(const dur_run **out, dur_runs *runs, uint64_t timeout_ms, dur_error *err) {
    const char *op = "runs.next";
    DUR__SET_ASIDE(op, err);
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "out is required, got NULL");
    *out = NULL;
    int code = enter(runs, op, err);
    if (code == DUR_OK && dur__list_empty(&runs->ready))
        code = dur__client_may_wait(dur__client_until(dur__monotonic_us(), timeout_ms) == UINT64_MAX, op, err);
    if (code != DUR_OK) return code;
    run_free(runs->told);
    runs->told = NULL;
    if (dur__list_empty(&runs->ready)) code = await_one(runs, timeout_ms, op, err);
    if (code != DUR_OK) return code;
    runs->told = run_of(dur__list_pop(&runs->ready));
    runs->count--;
    *out = &runs->told->end;
    return DUR_OK;
}
