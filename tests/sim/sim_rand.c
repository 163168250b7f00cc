/*
 * sim_rand.c: streams of choices, each begun by the seed, a purpose and a number.
 */
#include "sim.h"

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

sim_rng sim_stream(uint64_t seed, const char *purpose, uint64_t number) {
    uint64_t state = mix(seed + 0x9e3779b97f4a7c15u);
    for (const char *at = purpose; *at != '\0'; at++)
        state = mix(state ^ (unsigned char)*at);
    return (sim_rng){ mix(state ^ mix(number + 1)) };
}

uint64_t sim_next(sim_rng *rng) {
    rng->state += 0x9e3779b97f4a7c15u;
    return mix(rng->state);
}

uint64_t sim_below(sim_rng *rng, uint64_t bound) {
    return sim_next(rng) % bound;
}

uint64_t sim_between(sim_rng *rng, uint64_t low, uint64_t high) {
    return low + sim_below(rng, high - low + 1);
}

bool sim_chance(sim_rng *rng, unsigned percent) {
    return sim_below(rng, 100) < percent;
}
