/*
 * memory_doubt.c: crashes in which something ran alone among suspects, but not alone in the process.
 *
 * Of each such crash everything is remembered that was counted in it.  The crash is in doubt as long as one of the
 * others has not shown that it can end; what was blamed for it, or went without showing anything, stays for good.
 * There are few of them: they go when nothing that ran alone in a crash is a suspect any more.
 */
#include "provider/memory/memory_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct member {
    dur__link link;  /* in mem->members */
    uint64_t crash;  /* serial */
    uint64_t work;   /* row id; 0: the instance itself */
    bool alone;      /* it ran alone among suspects */
    bool for_good;   /* it will not show any more that it was not to blame */
    char instance[]; /* id */
} member;

static bool is(const member *self, const char *instance, uint64_t work) {
    return self->work == work && strcmp(self->instance, instance) == 0;
}

/* It was counted and has not shown since that it can end. */
static bool unproven(dur__mem *mem, const member *self) {
    if (self->work == DUR__MEM_LOCAL) return true; /* until somebody looks what it was */
    if (self->work != 0) {
        const dur__mem_work *work = dur__map_get_u64(&mem->works, self->work);
        return work != NULL && work->crashes > 0;
    }
    const dur__mem_instance *instance = dur__mem_find(mem, self->instance);
    return instance != NULL && instance->acquisitions > 0 && instance->crashes > 0;
}

static void member_free(member *self) {
    dur__list_unlink(&self->link);
    dur__free(self);
}

static bool in_doubt(dur__mem *mem, const member *alone) {
    DUR__LIST_EACH(&mem->members, at) {
        const member *other = DUR__CONTAINER(at, member, link);
        if (other->crash == alone->crash && other != alone && (other->for_good || unproven(mem, other))) return true;
    }
    return false;
}

uint32_t dur__mem_doubts(dur__mem *mem, const char *instance, uint64_t work) {
    uint32_t count = 0;
    DUR__LIST_EACH(&mem->members, at) {
        const member *self = DUR__CONTAINER(at, member, link);
        if (self->alone && is(self, instance, work)) count += in_doubt(mem, self);
    }
    return count;
}

void dur__mem_doubt_for_good(dur__mem *mem, const char *instance, uint64_t work) {
    DUR__LIST_EACH(&mem->members, at) {
        member *self = DUR__CONTAINER(at, member, link);
        if (is(self, instance, work)) self->for_good = true;
    }
}

/* What is counted for the first time since it has shown something: what was remembered of it before is over. */
static void begin_anew(dur__mem *mem, const char *instance, uint64_t work) {
    DUR__LIST_EACH_SAFE(&mem->members, at, after) {
        member *self = DUR__CONTAINER(at, member, link);
        if (is(self, instance, work) && (self->alone || !self->for_good)) member_free(self);
    }
}

static void add(dur__mem *mem, const char *instance, uint64_t work, bool alone) {
    size_t size = strlen(instance) + 1;
    member *self = dur__xcalloc(1, sizeof(*self) + size);
    self->crash = mem->last_crash;
    self->work = work;
    self->alone = alone;
    memcpy(self->instance, instance, size);
    dur__list_push(&mem->members, &self->link);
}

/* Before the rows of an owner that died are counted and free. */
void dur__mem_crash_begin(dur__mem *mem, const dur__mem_owner *owner) {
    bool alone = false;
    mem->last_crash++;
    mem->crashed_at_ms = mem->now_ms;
    DUR__LIST_EACH(&owner->leases, at) {
        const dur__mem_instance *instance = DUR__CONTAINER(at, dur__mem_instance, by_owner);
        if (instance->acquisitions == 0) continue;
        if (instance->crashes == 0) begin_anew(mem, instance->id, 0);
        alone |= instance->runs_alone;
    }
    DUR__LIST_EACH(&owner->works, at) {
        const dur__mem_work *work = DUR__CONTAINER(at, dur__mem_work, by_owner);
        if (work->crashes == 0) begin_anew(mem, work->instance->id, work->id);
        alone |= work->runs_alone;
    }
    if (!alone) return;
    DUR__LIST_EACH(&owner->leases, at) {
        const dur__mem_instance *instance = DUR__CONTAINER(at, dur__mem_instance, by_owner);
        if (instance->acquisitions > 0) add(mem, instance->id, 0, instance->runs_alone);
    }
    DUR__LIST_EACH(&owner->leases, at) {
        const dur__mem_instance *instance = DUR__CONTAINER(at, dur__mem_instance, by_owner);
        if (instance->open > 0 && instance->acquisitions == 0) add(mem, instance->id, DUR__MEM_LOCAL, false);
    }
    DUR__LIST_EACH(&owner->works, at) {
        const dur__mem_work *work = DUR__CONTAINER(at, dur__mem_work, by_owner);
        add(mem, work->instance->id, work->id, work->runs_alone);
    }
}

void dur__mem_doubt_row(dur__mem *mem, const char *instance, uint64_t work) {
    uint64_t last = mem->last_crash;
    DUR__LIST_EACH_SAFE(&mem->members, at, after) {
        const member *self = DUR__CONTAINER(at, member, link);
        if (!is(self, instance, DUR__MEM_LOCAL) || self->for_good) continue;
        mem->last_crash = self->crash;
        add(mem, instance, work, false);
    }
    mem->last_crash = last;
}

void dur__mem_doubt_no_more(dur__mem *mem, const char *instance) {
    DUR__LIST_EACH_SAFE(&mem->members, at, after) {
        member *self = DUR__CONTAINER(at, member, link);
        if (is(self, instance, DUR__MEM_LOCAL) && !self->for_good) member_free(self);
    }
}

static bool matters(dur__mem *mem, uint64_t crash) {
    DUR__LIST_EACH(&mem->members, at) {
        const member *self = DUR__CONTAINER(at, member, link);
        if (self->crash == crash && self->alone && unproven(mem, self)) return true;
    }
    return false;
}

/* Behind that: crashes that nobody could be charged with any more are forgotten. */
void dur__mem_crash_end(dur__mem *mem) {
    DUR__LIST_EACH_SAFE(&mem->members, at, after) {
        member *self = DUR__CONTAINER(at, member, link);
        if (!matters(mem, self->crash)) member_free(self);
    }
}

void dur__mem_doubts_free(dur__mem *mem) {
    DUR__LIST_EACH_SAFE(&mem->members, at, after)
    member_free(DUR__CONTAINER(at, member, link));
}

int dur__mem_blame(dur_provider *self, const char *lock_token, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__mem_work *work = dur__mem_work_claimed(mem, &(dur_worker_claim){ .lock_token = lock_token }, NULL);
    dur__mem_instance *instance = dur__mem_lease_find(mem, lock_token);
    if (work != NULL) {
        work->runs_alone = false;
        dur__mem_doubt_for_good(mem, work->instance->id, work->id);
    }
    if (instance != NULL) {
        instance->runs_alone = false;
        dur__mem_doubt_for_good(mem, instance->id, 0);
    }
    dur__mem_leave(mem);
    return DUR_OK;
}

const char *dur__mem_check_doubts(dur__mem *mem, const char **who) {
    DUR__LIST_EACH(&mem->members, at) {
        const member *self = DUR__CONTAINER(at, member, link);
        bool any = false;
        *who = self->instance;
        DUR__LIST_EACH(&mem->members, of) {
            const member *other = DUR__CONTAINER(of, member, link);
            any |= other->crash == self->crash && other->alone;
        }
        if (!any) return "it was in a crash in which nothing ran alone";
        if (!self->alone || !unproven(mem, self)) continue;
        const dur__mem_work *work = self->work != 0 ? dur__map_get_u64(&mem->works, self->work) : NULL;
        const dur__mem_instance *instance = dur__mem_find(mem, self->instance);
        if (dur__mem_doubts(mem, self->instance, self->work) >
            (work != NULL ? work->crashes_alone : instance->crashes_alone))
            return "it is in doubt of more crashes than it ran alone in";
    }
    *who = NULL;
    return NULL;
}
