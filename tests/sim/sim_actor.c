/*
 * sim_actor.c: actors as processes: their life, their turns, their death; and the judge.
 */
#include "sim_machine.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STUCK_SECONDS 60 /* of real time, for one turn: an actor that spins, or a machine that has broken down */

/* ---- in the actor ---- */

static void obey(void *self) {
    if (sim_me->order != SIM_CHECK) return;
    sim_me->order = SIM_GO;
    sim_me->alone = true;
    sim_check(self);
    sim_me->alone = false;
    sim_hand_over(SIM_AT_POINT);
}

static void between_steps(void *self, sim_rest rest) {
    sim_me->top = true;
    if (rest.want == SIM_SLEEP) {
        struct pollfd fd = { .fd = rest.fd, .events = POLLIN };
        uint64_t now = sim_shared_memory->mono_ns;
        uint64_t deadline = rest.ms > (SIM_NEVER - now) / 1000000u ? SIM_NEVER : now + rest.ms * 1000000u;
        (void)sim_wait(&fd, rest.fd >= 0 ? 1 : 0, deadline);
    } else {
        sim_point("step", 0);
    }
    sim_me->top = false;
    obey(self);
}

static void live(const sim_seat *seat) {
    void *self = sim_open(seat);
    if (self == NULL) {
        sim_me->refused = true;
        return;
    }
    while (sim_me->order != SIM_STOP) {
        sim_rest rest = sim_step(self);
        if (rest.want == SIM_DONE) {
            sim_me->done = true;
            break;
        }
        between_steps(self, rest);
    }
    sim_close(self);
}

static void begin_process(sim_slot *slot, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if ((pid_t)syscall(SYS_getppid) != parent) _exit(127);
    sim_me = slot;
    while (atomic_load(&slot->turn) == 0)
        syscall(SYS_futex, &slot->turn, FUTEX_WAIT, 0, NULL, NULL, 0);
    if (slot->order == SIM_DIE_LATE) syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
}

/* ---- in the machine ---- */

static sim_slot *prepare(size_t number, const char *name, uint64_t life) {
    sim_slot *slot = &sim_shared_memory->slots[number];
    memset(slot, 0, sizeof(*slot));
    snprintf(slot->name, sizeof(slot->name), "%s", name);
    slot->state = SIM_AT_POINT;
    slot->random = sim_stream(sim_shared_memory->seed, name, life);
    slot->pace = sim_stream(sim_shared_memory->seed, name, life + 1000);
    return slot;
}

void sim_actor_spawn(const sim_seat *seat, const sim_part *part) {
    sim_slot *slot = prepare(seat->number, part->name, seat->life);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        _exit(2);
    }
    if (pid == 0) {
        begin_process(slot, parent);
        live(seat);
        for (;;)
            sim_hand_over(SIM_ENDED);
    }
    slot->pid = pid;
    sim_trace("machine", "spawn %s life %u%s", part->name, seat->life, seat->finale ? " finale" : "");
}

static void bury(sim_slot *slot) {
    kill(slot->pid, SIGKILL);
    while (waitpid(slot->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    slot->pid = 0;
    slot->state = SIM_ABSENT;
    sim_shared_memory->changes++; /* its locks are free */
}

void sim_actor_kill(size_t number) {
    bury(&sim_shared_memory->slots[number]);
}

void sim_actor_kill_late(size_t number) {
    sim_slot *slot = &sim_shared_memory->slots[number];
    slot->order = SIM_DIE_LATE;
    sim_turn_give(&slot->turn);
    while (waitpid(slot->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    slot->pid = 0;
    slot->state = SIM_ABSENT;
    sim_shared_memory->changes++;
}

/* Whoever has the turn: has it ended by itself? */
static bool has_crashed(sim_slot *slot) {
    int status = 0;
    if (waitpid(slot->pid, &status, WNOHANG) != slot->pid) return false;
    slot->pid = 0;
    slot->state = SIM_ABSENT;
    snprintf(sim_shared_memory->failure, sizeof(sim_shared_memory->failure), "%s ended by itself: %s %d", slot->name,
             WIFSIGNALED(status) ? "signal" : "exit code",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return true;
}

/* Until the turn is the machine's again.  false: a process is gone, or does not come back. */
static bool wait_for_turn(sim_common *all) {
    uint64_t turns = 0;
    struct timespec begun = { 0, 0 }, now;
    while (atomic_load(&all->machine_turn) == 0) {
        struct timespec slice = { .tv_nsec = 200000000 };
        if (syscall(SYS_futex, &all->machine_turn, FUTEX_WAIT, 0, &slice, NULL, 0) == 0 || errno != ETIMEDOUT) continue;
        uint64_t given = atomic_load(&all->turns);
        sim_slot *slot = &all->slots[all->running];
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
        if (given != turns) { /* they go on among themselves */
            turns = given;
            begun = now;
        } else if (has_crashed(slot)) {
            return false;
        } else if (now.tv_sec - begun.tv_sec > STUCK_SECONDS) {
            snprintf(all->failure, sizeof(all->failure), "%s does not come back", slot->name);
            return false;
        }
    }
    return true;
}

bool sim_actor_resume(size_t number, uint32_t quantum) {
    sim_common *all = sim_shared_memory;
    all->slots[number].quantum = quantum;
    all->running = number;
    atomic_store(&all->machine_turn, 0);
    sim_turn_give(&all->slots[number].turn);
    if (!wait_for_turn(all)) {
        all->failed = true;
        return false;
    }
    sim_slot *last = &all->slots[all->running];
    if (last->state == SIM_ENDED) bury(last);
    return last->state != SIM_BROKEN;
}

/* ---- the judge ---- */

static bool judge(const sim_run *run, sim_verdict what) {
    switch (what) {
    case SIM_JUDGE_QUIET:
    case SIM_JUDGE_SERVED:
        sim_judge_quiet(run, what == SIM_JUDGE_SERVED);
        return true;
    case SIM_JUDGE_DONE:
        return sim_judge_done(run);
    case SIM_JUDGE_END:
        sim_judge_end(run);
        return true;
    }
    return false;
}

bool sim_judge_run(const sim_run *run, sim_verdict what, bool *answer) {
    if (run->store == SIM_MEMORY) {
        *answer = judge(run, what);
        return true;
    }
    sim_slot *slot = prepare(SIM_JUDGE, "judge", sim_shared_memory->points);
    slot->alone = true;
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        _exit(2);
    }
    if (pid == 0) {
        begin_process(slot, parent);
        slot->done = judge(run, what);
        for (;;)
            sim_hand_over(SIM_ENDED);
    }
    slot->pid = pid;
    bool fine = sim_actor_resume(SIM_JUDGE, 0);
    *answer = slot->done;
    if (slot->pid != 0) bury(slot);
    return fine;
}
