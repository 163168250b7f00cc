/*
 * sim_node.c: a node: a runtime without threads.
 */
#include "sim_load.h"

#include <stdio.h>
#include <stdlib.h>

#define TAKEN_MAX 8

struct sim_node {
    const sim_run *run;
    dur_provider *store; /* ours; NULL: the run's */
    dur_runtime *runtime;
    sim_client inside; /* a client in the same process: what it starts may begin with its first turn */
    bool inside_done;
    uint32_t life;
    sim_rng rng; /* how long taken activities take */
    struct {
        dur_act *act;
        uint64_t end_ms;
    } taken[TAKEN_MAX];
};

static dur_runtime_options options_of(const sim_seat *seat, dur_provider *store, const char *name) {
    sim_world world;
    static const char *const tags[] = { "gpu", NULL };
    sim_world_make(&world, seat->run);
    dur_runtime_options options = { .size = sizeof(options),
                                    .store = store,
                                    .name = name,
                                    .threads = DUR_THREADS_NONE,
                                    .tags = DUR_TAG_AND_DEFAULT,
                                    .worker_tags = tags };
    if (seat->finale) { /* everything is served now, and as everybody else has it */
        options.handlers = sim_handlers(SIM_H_ALL, true);
        return options;
    }
    const sim_node_plan *plan = &world.node[seat->number];
    options.handlers = sim_handlers(plan->handlers, true);
    if ((plan->handlers & SIM_H_GPU) == 0) options.worker_tags = NULL, options.tags = DUR_TAG_DEFAULT_ONLY;
    options.activities_only = plan->activities_only;
    options.parked_max = plan->parked_max;
    options.max_sessions = plan->max_sessions;
    options.worker_concurrency = plan->worker_concurrency;
    options.prefetch = plan->prefetch;
    options.evict_every_turn = plan->evict_every_turn;
    options.double_run = plan->double_run;
    options.owner_timeout_ms = plan->owner_timeout_ms;
    options.session_lock_timeout_ms = plan->session_lock_timeout_ms;
    options.session_lock_renewal_buffer_ms = plan->session_lock_timeout_ms / 4;
    options.session_idle_timeout_ms = plan->session_idle_timeout_ms;
    if (plan->session_idle_timeout_ms > 0) { /* a session does not end under a running activity */
        options.worker_lock_timeout_ms = plan->session_idle_timeout_ms;
        options.worker_lock_renewal_buffer_ms = plan->session_idle_timeout_ms / 3;
    }
    options.cancel_grace_ms = plan->cancel_grace_ms;
    options.worker_node_id = plan->stable ? name : NULL;
    return options;
}

sim_node *sim_node_open(const sim_seat *seat) {
    dur_error err = DUR_ERROR_INIT;
    char name[24];
    sim_node *self = calloc(1, sizeof(*self));
    if (self == NULL) sim_fail("out of memory");
    self->run = seat->run;
    self->life = (uint32_t)seat->life;
    self->rng = sim_stream(seat->run->seed, "taken", seat->number * 1000 + seat->life);
    snprintf(name, sizeof(name), "node%zu", seat->number + 1);
    dur_provider *store = seat->run->provider;
    int code = DUR_OK;
    if (store == NULL) {
        code = dur_open(&self->store, seat->run->url, &err);
        store = self->store;
    }
    if (code == DUR_OK) {
        dur_runtime_options options = options_of(seat, store, name);
        code = dur_runtime_start(&self->runtime, &options, &err);
    }
    self->inside = (sim_client){ .run = seat->run, .number = seat->number, .inside = true };
    self->inside_done = seat->finale;
    if (code == DUR_OK) {
        code = dur_client_new(&self->inside.client, store, &err);
        if (code == DUR_OK) return self;
        dur_runtime_stop(self->runtime, 0, NULL);
    }
    sim_note("%s does not open: %s: %s", name, dur_code_name(code), err.message);
    if (code == DUR_EINVAL || code == DUR_ECORRUPT || code == DUR_ESCHEMA)
        sim_fail("%s does not open: %s: %s", name, dur_code_name(code), err.message);
    dur_provider_close(self->store);
    free(self);
    return NULL;
}

/* Take what waits for us, and end what is due; in how many ms the next one is. */
static uint64_t serve_taken(sim_node *self) {
    uint64_t now = sim_now_ms(), next = UINT64_MAX;
    for (size_t i = 0; i < TAKEN_MAX; i++) {
        dur_error err = DUR_ERROR_INIT;
        if (self->taken[i].act == NULL) {
            if (dur_runtime_take(&self->taken[i].act, self->runtime, NULL, &err) != DUR_OK)
                sim_fail("dur_runtime_take: %s", err.message);
            self->taken[i].end_ms = now + sim_below(&self->rng, 120);
        }
        dur_act *act = self->taken[i].act;
        if (act == NULL) continue;
        if (self->taken[i].end_ms <= now || dur_act_cancelled(act)) {
            self->taken[i].act = NULL;
            dur_act_end(act, sim_act_taken(act, dur_act_input(act)));
            next = 0;
        } else if (self->taken[i].end_ms - now < next) {
            next = self->taken[i].end_ms - now;
        }
    }
    return next;
}

sim_rest sim_node_step(sim_node *self) {
    dur_error err = DUR_ERROR_INIT;
    uint64_t inside = UINT64_MAX;
    sim_work_life(self->life);
    int code = dur_runtime_step(self->runtime, 0, &err);
    if (code != DUR_OK) sim_fail("dur_runtime_step: %s: %s", dur_code_name(code), err.message);
    if (!self->inside_done) {
        sim_rest rest = sim_client_step(&self->inside);
        self->inside_done = rest.want == SIM_DONE;
        inside = rest.want == SIM_SLEEP ? rest.ms : rest.want == SIM_MORE ? 0 : UINT64_MAX;
    }
    uint64_t taken = serve_taken(self);
    uint64_t next = dur_runtime_next_ms(self->runtime);
    if (taken < next) next = taken;
    if (inside < next) next = inside;
    if (next == 0) return (sim_rest){ .want = SIM_MORE, .fd = -1 };
    return (sim_rest){ .want = SIM_SLEEP, .ms = next, .fd = dur_runtime_fd(self->runtime) };
}

void sim_node_close(sim_node *self) {
    dur_error err = DUR_ERROR_INIT;
    for (size_t i = 0; i < TAKEN_MAX; i++) {
        if (self->taken[i].act != NULL)
            dur_act_end(self->taken[i].act, sim_act_taken(self->taken[i].act, dur_act_input(self->taken[i].act)));
    }
    dur_client_free(self->inside.client);
    int code = dur_runtime_stop(self->runtime, 100, &err);
    if (code != DUR_OK) sim_note("dur_runtime_stop: %s: %s", dur_code_name(code), err.message);
    dur_provider_close(self->store);
    free(self);
}

void sim_node_check(sim_node *self) {
    dur_error err = DUR_ERROR_INIT;
    int code = dur_runtime_check(self->runtime, &err);
    if (code == DUR_ECORRUPT) sim_fail("dur_runtime_check: %s", err.message);
}
