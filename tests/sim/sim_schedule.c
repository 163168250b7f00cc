/*
 * sim_schedule.c: one run: who goes on next, when time passes, and what goes wrong.
 *
 * A decision is one actor and how many points it may pass.  When nobody can go on, time moves to the next deadline. The
 * first part of a run has faults; in the finale everybody is there, and all that can end must end.
 *
 * Most decisions are a turn and nothing else.  On SQLite those are made by the actor that stops, here as well: it goes
 * on itself, or wakes who does, and the machine's process is not woken for it.  They are the same decisions.
 */
#include "sim_machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DECISIONS_MAX 20000         /* with faults */
#define FINALE_DECISIONS_MAX 200000 /* without */
#define LAST_LOOK_DECISIONS_MAX 3000
#define FINALE_NS (900u * 1000000000ull)
#define MS 1000000u
#define LOOKS_MAX 16
#define FOUND_OUT_NS (3000u * 1000000ull) /* a node that has died: what it holds is counted nowhere */
#define JUMP_HEARD_NS (3000u * 1000000ull)
#define JUMPED_MS_MAX 180000
#define LOOK_APART_NS (300u * 1000000ull)
#define TOLD_WAIT_MS 20 /* of real time, for what a kept trace says was there */
#define SLOW_MAX 1000   /* looks at a server that does not answer, a few milliseconds each */

typedef struct actor {
    sim_part part;
    sim_seat seat;
    bool begun;         /* has ever been spawned */
    bool finished;      /* a client that is done */
    uint64_t frozen_ns; /* not scheduled until then; 0: is */
    uint64_t back_ns;   /* absent: comes back then */
    uint64_t priority;  /* who goes first, where that is how this run chooses */
    void *self;         /* memory: the actor itself */
    sim_rest rest;      /* memory: what it wanted last */
    uint64_t deadline_ns;
    uint64_t owed; /* following a kept trace: points that it has passed ahead of that */
} actor;

/* The parts of a run, in their order. */
typedef enum part { PLAY, LAST_LOOK, FINALE, STOPPING } part;

/* How this run behaves; percentages are per thousand decisions. */
typedef struct manner {
    bool by_priority;
    uint32_t burst_max; /* points in one turn, at most */
    unsigned kill, freeze, stop, error, jump;
} manner;

/* Shared by the machine and all actors. */
typedef struct schedule {
    sim_run *run;
    sim_common *all;
    actor actors[SIM_ACTORS_MAX];
    size_t count;
    sim_rng rng;
    manner manner;
    bool finale;
    part part;
    size_t decisions, decisions_max; /* of this part */
    uint64_t end_ns, ask_ns;         /* of the finale: it is over; the judge is not asked before */
    bool direct;                     /* who stops may decide */
    int64_t jumped_ms;               /* the wall clock, in all */
    uint64_t settled;                /* changes when notifications were last waited for */
    unsigned looks;                  /* at quiet points so far: the judge itself wakes everybody */
    uint64_t look_ns;                /* not before */
} schedule;

static schedule *the_schedule;

static sim_slot *slot_of(schedule *self, size_t i) {
    return &self->all->slots[i];
}

static bool in_memory(const schedule *self) {
    return self->run->store == SIM_MEMORY;
}

static bool present(schedule *self, size_t i) {
    return in_memory(self) ? self->actors[i].self != NULL : slot_of(self, i)->state != SIM_ABSENT;
}

/* ---- coming and going ---- */

static void begin(schedule *self, size_t i) {
    actor *at = &self->actors[i];
    if (at->begun) at->seat.life++;
    at->begun = true;
    at->seat.finale = self->finale;
    at->back_ns = at->frozen_ns = 0;
    if (!in_memory(self)) {
        sim_actor_spawn(&at->seat, &at->part);
        return;
    }
    sim_trace("machine", "open %s life %u", at->part.name, at->seat.life);
    at->self = sim_open(&at->seat);
    at->rest = (sim_rest){ .want = SIM_MORE };
    if (at->self == NULL) at->back_ns = self->all->mono_ns + 100 * MS;
}

static void gone(schedule *self, size_t i, uint64_t back_ms) {
    actor *at = &self->actors[i];
    at->back_ns = self->all->mono_ns + back_ms * MS;
    at->frozen_ns = 0;
    if (in_memory(self)) at->self = NULL;
}

static void settle(schedule *self, size_t i) {
    const sim_slot *slot = slot_of(self, i);
    if (self->run->store == SIM_POSTGRES) sim_server_settle(slot->backends, slot->backend_count);
}

/* ---- a turn ---- */

static void step_in_memory(schedule *self, actor *at) {
    at->rest = sim_step(at->self);
    uint64_t now = self->all->mono_ns;
    self->all->points++;
    self->all->changes++;
    self->all->mono_ns += 1000u * sim_between(&self->rng, 1, 200);
    at->deadline_ns = at->rest.ms > (SIM_NEVER - now) / MS ? SIM_NEVER : now + at->rest.ms * MS;
    sim_trace(at->part.name, "step %d", (int)at->rest.want);
    if (at->rest.want != SIM_DONE) return;
    sim_close(at->self);
    at->self = NULL;
    at->finished = true;
}

/* A server that is slow is waited for; one whose session waits for somebody's lock is not. */
static bool await_server(schedule *self, size_t i, uint32_t quantum) {
    const sim_slot *slot = slot_of(self, i);
    for (int n = 0; n < SLOW_MAX && slot->state == SIM_BLOCKED && slot->backend != 0; n++) {
        if (slot->backend != SIM_BACKEND_UNKNOWN && sim_server_blocked(slot->backend)) break;
        if (!sim_actor_resume(i, quantum)) return false;
    }
    return true;
}

/*
 * As many points as in the kept trace.  What woke it there may come a moment later now.  Where it slept there and does
 * not now, it stands at its next point, behind which it has done nothing yet: that one is owed.
 */
static bool resume_as_told(schedule *self, size_t i, const sim_decision *told) {
    actor *at = &self->actors[i];
    const sim_slot *slot = slot_of(self, i);
    bool stops = told->state == SIM_AT_POINT;
    if (told->state != SIM_ABSENT && told->number == 0 && at->owed > 0) return true;
    uint64_t begin = self->all->points - at->owed, passed = at->owed;
    at->owed = 0;
    for (int n = 0; slot->state != SIM_ABSENT && (stops ? passed < told->number : passed <= told->number); n++) {
        if (!sim_actor_resume(i, (uint32_t)(told->number - passed) + (stops ? 0 : 1)) || !await_server(self, i, 1))
            return false;
        uint64_t now = self->all->points - begin;
        if (now == told->number && !stops && slot->state != SIM_AT_POINT && told->state != SIM_ABSENT) return true;
        if (now > passed) n = 0;
        passed = now;
        if (n > 0) (void)sim_real_poll(NULL, 0, 1);
        if (n == TOLD_WAIT_MS) {
            sim_replay_missed();
            return true;
        }
    }
    at->owed = passed > told->number ? passed - told->number : 0;
    return true;
}

static bool resume(schedule *self, size_t i, const sim_decision *told) {
    actor *at = &self->actors[i];
    if (in_memory(self)) {
        step_in_memory(self, at);
        return true;
    }
    uint32_t quantum = (uint32_t)sim_between(&self->rng, 1, self->manner.burst_max);
    self->direct = self->run->store == SIM_SQLITE && told->kind == SIM_DECIDED_NOTHING;
    bool fine = told->kind == SIM_DECIDED_TURN ? resume_as_told(self, i, told)
                                               : sim_actor_resume(i, quantum) && await_server(self, i, quantum);
    if (self->direct) i = self->all->running;
    self->direct = false;
    if (!fine) return false;
    at = &self->actors[i];
    const sim_slot *slot = slot_of(self, i);
    if (slot->state != SIM_ABSENT) return true;
    settle(self, i);
    sim_trace("machine", "%s has ended%s%s", at->part.name, slot->done ? ", done" : "",
              slot->refused ? ", refused" : "");
    if (slot->done)
        at->finished = true;
    else
        gone(self, i, sim_between(&self->rng, 1, 2000));
    return true;
}

static bool memory_can_go(schedule *self, actor *at) {
    if (at->rest.want != SIM_SLEEP || self->all->mono_ns >= at->deadline_ns) return true;
    struct pollfd fd = { .fd = at->rest.fd, .events = POLLIN };
    return at->rest.fd >= 0 && sim_real_poll(&fd, 1, 0) > 0;
}

static bool can_go(schedule *self, size_t i) {
    actor *at = &self->actors[i];
    if (!present(self, i) || at->frozen_ns != 0) return false;
    if (in_memory(self)) return memory_can_go(self, at);
    sim_slot *slot = slot_of(self, i);
    switch (slot->state) {
    case SIM_AT_POINT:
        return true;
    case SIM_ASLEEP:
        return slot->heard != self->all->changes || self->all->mono_ns >= slot->deadline_ns ||
               (slot->top && slot->order != SIM_GO);
    case SIM_BLOCKED:
        return slot->heard != self->all->changes || self->all->mono_ns >= slot->deadline_ns;
    default:
        return false;
    }
}

static size_t choose(schedule *self) {
    size_t able[SIM_ACTORS_MAX], count = 0, best = SIM_ACTORS_MAX;
    for (size_t i = 0; i < self->count; i++)
        if (can_go(self, i)) able[count++] = i;
    if (count == 0) return SIM_ACTORS_MAX;
    if (!self->manner.by_priority) return able[sim_below(&self->rng, count)];
    for (size_t k = 0; k < count; k++)
        if (best == SIM_ACTORS_MAX || self->actors[able[k]].priority > self->actors[best].priority) best = able[k];
    /* Now and then the first becomes the last: few such moments find most orders that matter. */
    if (sim_below(&self->rng, 40) == 0) self->actors[best].priority = sim_next(&self->rng) >> 1;
    return best;
}

/* ---- time ---- */

/* What comes next by itself; SIM_NEVER: nothing. */
static uint64_t next_deadline(schedule *self) {
    uint64_t first = SIM_NEVER;
    for (size_t i = 0; i < self->count; i++) {
        actor *at = &self->actors[i];
        uint64_t ns = SIM_NEVER;
        if (!present(self, i))
            ns = at->finished ? SIM_NEVER : at->back_ns;
        else if (at->frozen_ns != 0)
            ns = at->frozen_ns;
        else if (in_memory(self))
            ns = at->deadline_ns;
        else if (slot_of(self, i)->state == SIM_ASLEEP || slot_of(self, i)->state == SIM_BLOCKED)
            ns = slot_of(self, i)->deadline_ns;
        if (ns < first) first = ns;
    }
    return first;
}

static void bring_back(schedule *self) {
    for (size_t i = 0; i < self->count; i++) {
        actor *at = &self->actors[i];
        if (at->frozen_ns != 0 && self->all->mono_ns >= at->frozen_ns) {
            at->frozen_ns = 0;
            sim_trace("machine", "thaw %s", at->part.name);
        }
        if (!present(self, i) && !at->finished && self->all->mono_ns >= at->back_ns) begin(self, i);
    }
}

/* ---- what goes wrong ---- */

static bool happens(schedule *self, unsigned per_thousand) {
    return per_thousand > 0 && sim_below(&self->rng, 1000) < per_thousand;
}

static size_t victim(schedule *self) {
    size_t i = sim_below(&self->rng, self->count);
    return present(self, i) && self->actors[i].frozen_ns == 0 ? i : SIM_ACTORS_MAX;
}

static void die(schedule *self, size_t i) {
    if (i == SIM_ACTORS_MAX || in_memory(self)) return; /* its store would die with it */
    bool late = self->run->store == SIM_POSTGRES && sim_chance(&self->rng, 50);
    sim_trace("machine", "kill %s%s", self->actors[i].part.name, late ? ", what it has sent arrives" : "");
    if (late)
        sim_actor_kill_late(i);
    else
        sim_actor_kill(i);
    settle(self, i);
    gone(self, i, sim_between(&self->rng, 0, 5000));
}

static void freeze(schedule *self, size_t i) {
    if (i == SIM_ACTORS_MAX) return;
    uint64_t ms = sim_chance(&self->rng, 50) ? sim_between(&self->rng, 1, 2000) : sim_between(&self->rng, 2000, 30000);
    sim_trace("machine", "freeze %s for %llu ms", self->actors[i].part.name, (unsigned long long)ms);
    self->actors[i].frozen_ns = self->all->mono_ns + ms * MS;
}

static void stop(schedule *self, size_t i) {
    if (i == SIM_ACTORS_MAX || self->actors[i].part.role != SIM_NODE) return;
    sim_trace("machine", "stop %s", self->actors[i].part.name);
    if (in_memory(self)) {
        sim_close(self->actors[i].self);
        gone(self, i, sim_between(&self->rng, 1, 2000));
    } else {
        slot_of(self, i)->order = SIM_STOP;
    }
}

static void spoil_write(schedule *self, size_t i) {
    static const int errors[] = { 5 /* EIO */, 28 /* ENOSPC */ };
    if (i == SIM_ACTORS_MAX || in_memory(self)) return;
    sim_slot *slot = slot_of(self, i);
    slot->fault_errno = errors[sim_below(&self->rng, 2)];
    slot->fault_in = (uint32_t)sim_between(&self->rng, 1, 30);
    slot->fault_count = (uint32_t)sim_below(&self->rng, 4);
}

/* Not ever farther in one direction: what is due by a clock that was set back would wait for longer than the judge. */
static void jump(schedule *self) {
    int64_t ms = (int64_t)sim_between(&self->rng, 1, 90000) * (sim_chance(&self->rng, 50) ? 1 : -1);
    if (self->jumped_ms + ms > JUMPED_MS_MAX || self->jumped_ms + ms < -JUMPED_MS_MAX) ms = -ms;
    self->jumped_ms += ms;
    sim_trace("machine", "the wall clock jumps by %lld ms", (long long)ms);
    self->all->wall_ns += ms * (int64_t)MS;
    self->look_ns = self->all->mono_ns + JUMP_HEARD_NS; /* who sleeps hears of it at its next beat */
}

static void misfortune(schedule *self) {
    const manner *m = &self->manner;
    if (self->finale || self->run->calm) return;
    if (happens(self, m->kill)) die(self, victim(self));
    if (happens(self, m->freeze)) freeze(self, victim(self));
    if (happens(self, m->stop)) stop(self, victim(self));
    if (happens(self, m->error)) spoil_write(self, victim(self));
    if (happens(self, m->jump)) jump(self);
}

/* The same choices, of which nothing comes; true: something would. */
static bool misfortune_strikes(schedule *self) {
    const manner *m = &self->manner;
    const unsigned chances[] = { m->kill, m->freeze, m->stop, m->error, m->jump };
    if (self->finale || self->run->calm) return false;
    for (size_t i = 0; i < sizeof(chances) / sizeof(chances[0]); i++)
        if (happens(self, chances[i])) return true;
    return false;
}

static void choose_manner(schedule *self) {
    sim_rng rng = sim_stream(self->run->seed, "manner", 0);
    static const uint32_t bursts[] = { 1, 3, 10, 40, 200 };
    self->manner.by_priority = sim_chance(&rng, 40);
    self->manner.burst_max = bursts[sim_below(&rng, 5)];
    if (sim_chance(&rng, 60)) self->manner.kill = (unsigned)sim_below(&rng, 8);
    if (sim_chance(&rng, 40)) self->manner.freeze = (unsigned)sim_below(&rng, 6);
    if (sim_chance(&rng, 50)) self->manner.stop = (unsigned)sim_below(&rng, 10);
    if (sim_chance(&rng, 20)) self->manner.error = (unsigned)sim_below(&rng, 8);
    /* On memory there are a tenth of the decisions. */
    if (sim_chance(&rng, 30)) self->manner.jump = (unsigned)sim_below(&rng, 5) * (in_memory(self) ? 10 : 1);
    self->run->calm = sim_chance(&rng, 25);
}

/* ---- quiet points ---- */

static bool is_quiet(schedule *self) {
    for (size_t i = 0; i < self->count; i++) {
        if (!present(self, i)) continue;
        if (self->actors[i].frozen_ns != 0 || can_go(self, i)) return false;
        if (!in_memory(self) && !(slot_of(self, i)->state == SIM_ASLEEP && slot_of(self, i)->top)) return false;
    }
    return true;
}

static bool check_nodes(schedule *self) {
    for (size_t i = 0; i < self->count; i++) {
        if (!present(self, i) || self->actors[i].part.role != SIM_NODE) continue;
        if (in_memory(self)) {
            sim_check(self->actors[i].self);
            continue;
        }
        if (slot_of(self, i)->order != SIM_GO) continue;
        slot_of(self, i)->order = SIM_CHECK;
        if (!sim_actor_resume(i, 1)) return false;
    }
    return true;
}

static bool look(schedule *self) {
    bool living[SIM_ACTORS_MAX] = { false }, ignored = false;
    for (size_t i = 0; i < self->count; i++)
        living[i] = present(self, i) && self->actors[i].frozen_ns == 0;
    bool served = sim_all_served(self->run, living);
    sim_trace("machine", "quiet%s", served ? "" : ", not all served");
    self->looks++;
    self->look_ns = self->all->mono_ns + LOOK_APART_NS;
    return sim_judge_run(self->run, served ? SIM_JUDGE_SERVED : SIM_JUDGE_QUIET, &ignored) && check_nodes(self);
}

/* Nobody can go on: look, perhaps, and let time pass. */
static bool pass_time(schedule *self, const sim_decision *told, sim_decision *made) {
    bool unsettled = self->run->store == SIM_POSTGRES && self->settled != self->all->changes;
    if (told->kind != SIM_DECIDED_NOTHING) unsettled = told->kind == SIM_DECIDED_WAIT;
    if (unsettled) {
        (void)sim_real_poll(NULL, 0, 1); /* notifications come when they come: everybody looks once more */
        self->settled = ++self->all->changes;
        made->kind = SIM_DECIDED_WAIT;
        return true;
    }
    made->kind = SIM_DECIDED_TIME;
    uint64_t next = next_deadline(self);
    if (told->kind == SIM_DECIDED_TIME) next = self->all->begin_ns + told->number;
    if (next == SIM_NEVER) {
        snprintf(self->all->failure, sizeof(self->all->failure), "nobody will ever go on");
        return false;
    }
    bool worth = self->looks < LOOKS_MAX && self->all->mono_ns >= self->look_ns && next > self->all->mono_ns + 20 * MS;
    if (worth && is_quiet(self) && sim_chance(&self->rng, 50) && !look(self)) return false;
    if (next > self->all->mono_ns) self->all->mono_ns = next;
    made->number = self->all->mono_ns - self->all->begin_ns;
    return true;
}

/* Whom the kept trace says; SIM_ACTORS_MAX: nobody goes on.  Who cannot go is not there, or stands still now. */
static size_t chosen_by(schedule *self, sim_decision *told) {
    if (told->kind != SIM_DECIDED_TURN) return SIM_ACTORS_MAX;
    for (size_t i = 0; i < self->count; i++)
        if (strcmp(self->actors[i].part.name, told->who) == 0 && present(self, i) && self->actors[i].frozen_ns == 0)
            return i;
    sim_replay_missed();
    told->kind = SIM_DECIDED_NOTHING;
    return choose(self);
}

static bool clients_finished(const schedule *self) {
    for (size_t i = 0; i < self->count; i++)
        if (self->actors[i].part.role == SIM_CLIENT && !self->actors[i].finished) return false;
    return true;
}

static bool is_time_to_look(schedule *self) {
    return self->all->mono_ns >= self->look_ns && is_quiet(self);
}

static bool is_time_to_ask(schedule *self) {
    return clients_finished(self) && self->all->mono_ns >= self->ask_ns && is_quiet(self);
}

static void begin_part(schedule *self, part which, size_t decisions_max) {
    self->part = which;
    self->decisions = 0;
    self->decisions_max = decisions_max;
}

/* Another decision, before the machine does something else or begins the next part? */
static bool goes_on(schedule *self) {
    if (self->decisions == self->decisions_max) return false;
    switch (self->part) {
    case PLAY:
        return !clients_finished(self);
    case LAST_LOOK:
        return !is_time_to_look(self);
    case FINALE:
        return self->all->mono_ns < self->end_ns && !is_time_to_ask(self);
    case STOPPING:
        return true;
    }
    return false;
}

static bool decide(schedule *self) {
    self->decisions++;
    sim_decision told = { 0 }, made = { .who = "-" };
    bool follows = sim_replay_next(&told);
    if (!follows) told.kind = SIM_DECIDED_NOTHING;
    if (follows) {
        self->rng.state = told.rng;
        if (self->all->mono_ns < self->all->begin_ns + told.at_ns)
            self->all->mono_ns = self->all->begin_ns + told.at_ns;
    }
    made.rng = self->rng.state;
    made.at_ns = self->all->mono_ns - self->all->begin_ns;
    bring_back(self);
    misfortune(self);
    size_t i = choose(self);
    if (follows) i = chosen_by(self, &told);
    if (i == SIM_ACTORS_MAX) {
        bool fine = pass_time(self, &told, &made);
        if (self->run->store == SIM_POSTGRES) sim_decision_trace(&made);
        return fine;
    }
    uint64_t before = self->all->points;
    bool fine = resume(self, i, &told);
    if (self->run->store != SIM_POSTGRES) return fine;
    made.kind = SIM_DECIDED_TURN;
    snprintf(made.who, sizeof(made.who), "%s", self->actors[i].part.name);
    made.number = self->all->points - before;
    made.state = slot_of(self, i)->state;
    sim_decision_trace(&made);
    return fine;
}

/* Does bring_back do nothing? */
static bool nobody_is_due(schedule *self) {
    for (size_t i = 0; i < self->count; i++) {
        const actor *at = &self->actors[i];
        if (at->frozen_ns != 0 && self->all->mono_ns >= at->frozen_ns) return false;
        if (!present(self, i) && !at->finished && self->all->mono_ns >= at->back_ns) return false;
    }
    return true;
}

sim_slot *sim_schedule_next(void) {
    schedule *self = the_schedule;
    sim_state state = sim_me->state;
    if (!self->direct || state == SIM_ENDED || state == SIM_BROKEN || !goes_on(self) || !nobody_is_due(self))
        return NULL;
    sim_rng before = self->rng;
    size_t i = misfortune_strikes(self) ? SIM_ACTORS_MAX : choose(self);
    if (i == SIM_ACTORS_MAX) {
        self->rng = before; /* the machine comes to the same, and does it */
        return NULL;
    }
    self->decisions++;
    slot_of(self, i)->quantum = (uint32_t)sim_between(&self->rng, 1, self->manner.burst_max);
    self->all->running = i;
    return slot_of(self, i);
}

/* ---- a run ---- */

/* Nodes are stopped and come back with every handler; who is away comes back now. */
static void begin_finale(schedule *self) {
    sim_trace("machine", "finale");
    self->finale = true;
    for (size_t i = 0; i < self->count; i++) {
        actor *at = &self->actors[i];
        at->frozen_ns = 0;
        at->back_ns = self->all->mono_ns;
        if (!present(self, i)) continue;
        if (!in_memory(self)) slot_of(self, i)->fault_in = 0;
        stop(self, i);
    }
}

static bool run_finale(schedule *self) {
    uint64_t pause_ns = 500 * MS;
    bool done = false;
    begin_finale(self);
    begin_part(self, FINALE, FINALE_DECISIONS_MAX);
    self->end_ns = self->all->mono_ns + FINALE_NS;
    self->ask_ns = self->all->mono_ns + FOUND_OUT_NS;
    do {
        while (goes_on(self))
            if (!decide(self)) return false;
        if (!is_time_to_ask(self)) break;
        if (!sim_judge_run(self->run, SIM_JUDGE_DONE, &done)) return false;
        if (done) return true;
        self->ask_ns = self->all->mono_ns + pause_ns;
        pause_ns += pause_ns / 2;
    } while (goes_on(self));
    if (!sim_judge_run(self->run, SIM_JUDGE_DONE, &done)) return false;
    if (done && clients_finished(self)) return true;
    snprintf(self->all->failure, sizeof(self->all->failure), "stuck: not everything has ended (%s)",
             clients_finished(self) ? "see the ledger" : "a client is not done");
    return false;
}

/* Who has ended stays away. */
static bool is_somebody_left(schedule *self) {
    bool left = false;
    for (size_t i = 0; i < self->count; i++) {
        if (!present(self, i)) self->actors[i].finished = true;
        left = left || present(self, i);
    }
    return left;
}

static bool stop_all(schedule *self) {
    for (size_t i = 0; i < self->count; i++)
        stop(self, present(self, i) ? i : SIM_ACTORS_MAX);
    begin_part(self, STOPPING, FINALE_DECISIONS_MAX);
    while (is_somebody_left(self)) {
        if (!goes_on(self)) {
            snprintf(self->all->failure, sizeof(self->all->failure), "a node does not stop");
            return false;
        }
        if (!decide(self)) return false;
    }
    return true;
}

/* The finale stops every node, and what they give back is looked at again: what was forgotten shows before that. */
static bool look_before_finale(schedule *self) {
    begin_part(self, LAST_LOOK, LAST_LOOK_DECISIONS_MAX);
    while (goes_on(self))
        if (!decide(self)) return false;
    return self->decisions == self->decisions_max || look(self);
}

static bool play(schedule *self) {
    begin_part(self, PLAY, DECISIONS_MAX);
    while (goes_on(self))
        if (!decide(self)) return false;
    if (!look_before_finale(self) || !run_finale(self)) return false;
    bool ignored = false;
    return look(self) && stop_all(self) && sim_judge_run(self->run, SIM_JUDGE_END, &ignored);
}

bool sim_schedule(sim_run *run) {
    schedule *self = mmap(NULL, sizeof(*self), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (self == MAP_FAILED) {
        perror("mmap");
        _exit(2);
    }
    the_schedule = self;
    self->run = run;
    self->all = sim_shared_memory;
    self->rng = sim_stream(run->seed, "schedule", 0);
    choose_manner(self);
    sim_part parts[SIM_ACTORS_MAX];
    self->count = sim_plan(run, parts);
    for (size_t i = 0; i < self->count; i++) {
        self->actors[i].part = parts[i];
        self->actors[i].seat = (sim_seat){ .run = run, .number = i };
        self->actors[i].priority = sim_next(&self->rng);
        self->actors[i].back_ns =
            sim_chance(&self->rng, 70) ? 0 : self->all->mono_ns + sim_between(&self->rng, 1, 500) * MS;
    }
    bool fine = play(self);
    if (!fine) self->all->failed = true;
    for (size_t i = 0; i < self->count && !in_memory(self); i++)
        if (slot_of(self, i)->pid != 0) sim_actor_kill(i);
    return fine;
}
