/*
 * sim_plan.c: who takes part, with which handlers and options: a function of the seed.
 */
#include "sim_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void node_make(sim_node_plan *node, const sim_run *run, uint64_t number) {
    sim_rng rng = sim_stream(run->seed, "node", number);
    *node = (sim_node_plan){ .handlers = SIM_H_ALL };
    if (sim_chance(&rng, 40))
        node->handlers = (unsigned)(sim_next(&rng) & sim_next(&rng) & SIM_H_ALL) | 1u << sim_below(&rng, 9);
    else if (sim_chance(&rng, 30))
        node->handlers &= (unsigned)sim_next(&rng) | (unsigned)sim_next(&rng);
    node->evict_every_turn = sim_chance(&rng, 25);
    node->double_run = sim_chance(&rng, 25);
    node->parked_max = sim_chance(&rng, 25) ? (uint32_t)sim_between(&rng, 1, 3) : 0;
    node->activities_only = sim_chance(&rng, 10);
    node->stable = sim_chance(&rng, 30);
    node->max_sessions = sim_chance(&rng, 30) ? 1 : 0;
    node->worker_concurrency = sim_chance(&rng, 30) ? 1 : 0;
    node->prefetch = sim_chance(&rng, 30) ? (uint32_t)sim_between(&rng, 1, 3) : 0;
    node->owner_timeout_ms = sim_chance(&rng, 40) ? sim_between(&rng, 2000, 8000) : 0;
    node->session_lock_timeout_ms = sim_chance(&rng, 50) ? sim_between(&rng, 1000, 5000) : 0;
    node->session_idle_timeout_ms = sim_chance(&rng, 50) ? sim_between(&rng, 200, 5000) : 0;
    node->cancel_grace_ms = sim_chance(&rng, 30) ? sim_between(&rng, 3000, 20000) : 0;
    if (node->activities_only) /* it runs none, whatever it has */
        node->handlers &= ~(unsigned)(SIM_H_FLOW1 | SIM_H_FLOW2 | SIM_H_LEAF);
}

#define CROWDS 20 /* percent of the runs */

bool sim_crowd(const sim_run *run) {
    sim_rng rng = sim_stream(run->seed, "crowd", 0);
    return sim_chance(&rng, CROWDS);
}

void sim_world_make(sim_world *out, const sim_run *run) {
    sim_rng rng = sim_stream(run->seed, "world", 0);
    memset(out, 0, sizeof(*out));
    out->nodes = (size_t)sim_between(&rng, 1, sim_chance(&rng, 30) ? 5 : 3);
    out->clients = (size_t)sim_between(&rng, 1, 3);
    out->admins = (size_t)sim_below(&rng, 3);
    unsigned served = 0;
    out->crowd = sim_crowd(run);
    if (out->crowd) {
        out->nodes = (size_t)sim_between(&rng, 1, 2);
        out->clients = (size_t)sim_between(&rng, 2, 4);
    }
    for (size_t i = 0; i < out->nodes; i++) {
        node_make(&out->node[i], run, i);
        served |= out->node[i].handlers;
    }
    /* What is nowhere goes to one of them; nodes that run activities only come first by luck, never all of them. */
    size_t last = (size_t)sim_below(&rng, out->nodes);
    if ((served & SIM_H_ALL) != SIM_H_ALL) {
        out->node[last].handlers |= SIM_H_ALL & ~served;
        out->node[last].activities_only = false;
    }
}

size_t sim_plan(const sim_run *run, sim_part parts[SIM_ACTORS_MAX]) {
    sim_world world;
    size_t count = 0;
    sim_world_make(&world, run);
    for (size_t i = 0; i < world.nodes; i++, count++) {
        parts[count].role = SIM_NODE;
        snprintf(parts[count].name, sizeof(parts[count].name), "node%u", (unsigned)i + 1);
    }
    for (size_t i = 0; i < world.clients; i++, count++) {
        parts[count].role = SIM_CLIENT;
        snprintf(parts[count].name, sizeof(parts[count].name), "client%u", (unsigned)i + 1);
    }
    for (size_t i = 0; i < world.admins; i++, count++) {
        parts[count].role = SIM_CLIENT;
        snprintf(parts[count].name, sizeof(parts[count].name), "admin%u", (unsigned)i + 1);
    }
    return count;
}

bool sim_all_served(const sim_run *run, const bool living[SIM_ACTORS_MAX]) {
    sim_world world;
    unsigned served = 0;
    sim_world_make(&world, run);
    for (size_t i = 0; i < world.nodes; i++)
        served |= living[i] ? world.node[i].handlers : 0;
    return (served & SIM_H_ALL) == SIM_H_ALL;
}

/* ---- actors, by role --------------------------------------------------------------------------------------------- */

typedef struct actor {
    const sim_run *run;
    size_t number;
    sim_node *node; /* or */
    sim_client *client;
} actor;

void *sim_open(const sim_seat *seat) {
    sim_world world;
    sim_enter(seat->run, seat->number);
    sim_world_make(&world, seat->run);
    actor *self = calloc(1, sizeof(*self));
    if (self == NULL) sim_fail("out of memory");
    self->run = seat->run;
    self->number = seat->number;
    if (seat->number < world.nodes)
        self->node = sim_node_open(seat);
    else
        self->client = sim_client_open(seat, seat->number >= world.nodes + world.clients);
    if (self->node != NULL || self->client != NULL) return self;
    free(self);
    return NULL;
}

sim_rest sim_step(void *actor_) {
    actor *self = actor_;
    sim_enter(self->run, self->number);
    return self->node != NULL ? sim_node_step(self->node) : sim_client_step(self->client);
}

void sim_close(void *actor_) {
    actor *self = actor_;
    sim_enter(self->run, self->number);
    if (self->node != NULL)
        sim_node_close(self->node);
    else
        sim_client_close(self->client);
    free(self);
}

void sim_check(void *actor_) {
    actor *self = actor_;
    sim_enter(self->run, self->number);
    if (self->node != NULL) sim_node_check(self->node);
}
