/*
 * random_program.h: an orchestration that is a random program.  From a seed come its calls, in every combination that
 * the handler's API allows; what it receives goes into a digest, and that into what it asks for later, so that a
 * replay that sees anything else is noticed at once.
 */
#ifndef TESTS_UNIT_RANDOM_PROGRAM_H
#define TESTS_UNIT_RANDOM_PROGRAM_H

#include <durite/orchestration.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- randomness ---- */

static inline uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

typedef struct rng {
    uint64_t state;
} rng;

static inline uint32_t pick(rng *r, uint32_t below) {
    r->state = mix(r->state);
    return (uint32_t)((r->state >> 33) % below);
}

static inline uint64_t hash_text(uint64_t h, const char *text) {
    for (; *text != '\0'; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return mix(h);
}

/* ---- the handler: a random program.  Everything it receives goes into a digest, and that into later inputs ---- */

typedef struct program {
    rng r;
    uint64_t digest;
    int depth;
    dur_future *slots[4]; /* made and not awaited yet */
} program;

static inline dur_outcome run_branch(dur_ctx *ctx, void *arg);

static inline void feel(program *p, const char *text) {
    p->digest = hash_text(p->digest, text != NULL ? text : "(null)");
}

static inline const char *name_of(program *p, const char *prefix, dur_ctx *ctx) {
    return dur_format(ctx, "%s%u", prefix, pick(&p->r, 2));
}

static inline bool stubborn(const char *reason, uint32_t attempt, void *data) {
    (void)reason;
    (void)data;
    return attempt != 2;
}

static inline dur_future *make(dur_ctx *ctx, program *p) {
    const char *input = dur_format(ctx, "%" PRIx64, p->digest & 0xffff);
    switch (pick(&p->r, p->depth < 2 ? 12 : 10)) {
    case 0:
    case 1:
        return dur_activity(ctx, "A", input);
    case 2: {
        /* One after another: in one initializer C would leave their order open, and the seed would mean another program
           to another compiler. */
        dur_retry retry = { .size = sizeof(retry), .attempts_max = 3, .delay_ms = 10 };
        retry.backoff = (dur_backoff)pick(&p->r, 4);
        retry.jitter = pick(&p->r, 2) ? 0.5 : 0.0;
        retry.attempt_timeout_ms = pick(&p->r, 2) ? 40 : 0;
        retry.total_timeout_ms = pick(&p->r, 3) == 0 ? 90 : 0;
        retry.predicate = pick(&p->r, 4) == 0 ? stubborn : NULL;
        return dur_activity(ctx, "R", input, .retry = &retry);
    }
    case 3:
        return dur_activity(ctx, "T", input, .timeout_ms = 30, .tag = "x", .session = "s");
    case 4:
        return dur_timer(ctx, 5 + pick(&p->r, 50));
    case 5:
        return dur_pulse(ctx, name_of(p, "e", ctx));
    case 6:
    case 7:
        return dur_message(ctx, name_of(p, "q", ctx));
    case 8:
        return dur_orchestration(ctx, "C", input);
    case 9:
        return dur_kv_remote(ctx, "other", "key");
    default: {
        program *child = dur_alloc(ctx, sizeof(*child));
        child->r.state = mix(p->r.state ^ 0x5eed);
        child->depth = p->depth + 1;
        return dur_spawn(ctx, run_branch, child);
    }
    }
}

static inline void take(program *p, dur_future *future) {
    const char *value = "";
    dur_code code = dur_try(future, &value);
    p->digest = mix(p->digest ^ (uint64_t)code);
    feel(p, code == DUR_OK ? value : dur_reason(future));
}

static inline dur_future **slot_of(program *p) {
    return &p->slots[pick(&p->r, 4)];
}

static inline void op_select(dur_ctx *ctx, program *p, bool any) {
    dur_future *all[3];
    size_t count = 2 + pick(&p->r, 2);
    for (size_t i = 0; i < count; i++)
        all[i] = make(ctx, p);
    dur_future *kept = *slot_of(p);
    if (kept != NULL && pick(&p->r, 3) == 0) all[0] = kept;
    dur_future *winner = any ? dur_any_n(all, count) : dur_select_n(all, count);
    for (size_t i = 0; i < count; i++)
        if (all[i] == winner) p->digest = mix(p->digest ^ i);
    take(p, winner);
}

static inline void op_combine(dur_ctx *ctx, program *p) {
    dur_future *all[3];
    for (size_t i = 0; i < 3; i++)
        all[i] = make(ctx, p);
    switch (pick(&p->r, 3)) {
    case 0:
        dur_join_n(all, 3);
        break;
    case 1:
        take(p, dur_all_of(ctx, all, 3));
        break;
    default: {
        dur_future *first = dur_first_of(ctx, all, 3);
        if (pick(&p->r, 4) != 0) take(p, first);
        break;
    }
    }
    if (pick(&p->r, 2)) take(p, all[pick(&p->r, 3)]);
}

static inline void op_world(dur_ctx *ctx, program *p) {
    const char *key = name_of(p, "k", ctx);
    switch (pick(&p->r, 11)) {
    case 0:
        feel(p, dur_guid(ctx));
        break;
    case 1:
        p->digest = mix(p->digest ^ dur_now_ms(ctx));
        break;
    case 2:
        p->digest = mix(p->digest ^ dur_random(ctx));
        break;
    case 3:
        dur_kv_set(ctx, key, dur_format(ctx, "%" PRIx64, p->digest));
        break;
    case 4:
        feel(p, dur_kv_get(ctx, key));
        break;
    case 5:
        dur_kv_clear(ctx, key);
        break;
    case 6:
        p->digest = mix(p->digest ^ dur_kv_prune(ctx, 1000 + dur_history_events(ctx) * 5));
        break;
    case 7:
        dur_status_setf(ctx, "%" PRIx64, p->digest);
        break;
    case 8:
        feel(p, dur_status_get(ctx));
        break;
    case 9:
        p->digest = mix(p->digest ^ (dur_patched(ctx, key) ? 1u : 0u));
        break;
    default:
        feel(p, dur_start(ctx, "D", "x"));
        break;
    }
    feel(p, dur_cancel_reason(ctx));
    p->digest = mix(p->digest ^ dur_history_events(ctx));
}

static inline void op(dur_ctx *ctx, program *p) {
    switch (pick(&p->r, 14)) {
    case 0:
    case 1:
        take(p, make(ctx, p));
        break;
    case 2: {
        dur_future *future = make(ctx, p);
        feel(p, dur_await(future)); /* may end the branch */
        break;
    }
    case 3:
    case 4:
        op_select(ctx, p, false);
        break;
    case 5:
        op_select(ctx, p, true);
        break;
    case 6: {
        const char *value = "";
        dur_future *future = make(ctx, p);
        p->digest = mix(p->digest ^ (uint64_t)dur_try_for(future, 20, &value));
        feel(p, value);
        break;
    }
    case 7: {
        const char *value = "";
        p->digest = mix(p->digest ^ (uint64_t)dur_try_message(ctx, name_of(p, "q", ctx), &value));
        feel(p, value);
        break;
    }
    case 8:
    case 9: {
        dur_future **slot = slot_of(p); /* first: C leaves open which side of an assignment comes first */
        *slot = make(ctx, p);
        break;
    }
    case 10: {
        dur_future **slot = slot_of(p);
        if (*slot == NULL) break;
        if (pick(&p->r, 2))
            take(p, *slot);
        else
            dur_drop(*slot);
        *slot = NULL;
        break;
    }
    case 11: {
        dur_future *future = make(ctx, p);
        if (pick(&p->r, 3) == 0) dur_detach(future);
        break;
    }
    case 12:
        op_combine(ctx, p);
        break;
    default:
        op_world(ctx, p);
        break;
    }
}

static inline void run_ops(dur_ctx *ctx, program *p, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (pick(&p->r, 6) != 0) {
            op(ctx, p);
            continue;
        }
        dur_scope *scope = dur_scope_begin(ctx);
        dur_future *kept[4]; /* slots made inside would be freed with the scope */
        memcpy(kept, p->slots, sizeof(kept));
        op(ctx, p);
        op(ctx, p);
        for (size_t s = 0; s < 4; s++)
            if (p->slots[s] != kept[s]) p->slots[s] = NULL;
        dur_scope_end(scope);
    }
}

static inline dur_outcome run_branch(dur_ctx *ctx, void *arg) {
    program *p = arg;
    run_ops(ctx, p, 1 + pick(&p->r, 4));
    if (pick(&p->r, 5) == 0) return dur_failf(ctx, "b%" PRIx64, p->digest);
    return dur_completef(ctx, "b%" PRIx64, p->digest);
}

static inline dur_outcome random_program(dur_ctx *ctx, const char *input) {
    program *p = dur_alloc(ctx, sizeof(*p));
    p->r.state = mix(strtoull(input, NULL, 16) ^ dur_execution_id(ctx));
    run_ops(ctx, p, 3 + pick(&p->r, 8));
    if (dur_execution_id(ctx) < 3 && pick(&p->r, 2))
        return dur_continue_as_new(ctx, dur_format(ctx, "%" PRIx64, p->digest));
    if (pick(&p->r, 6) == 0) return dur_failf(ctx, "f%" PRIx64, p->digest);
    return dur_completef(ctx, "c%" PRIx64, p->digest);
}

#endif
