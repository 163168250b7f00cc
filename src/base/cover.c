/*
 * cover.c: what a thread does when there is no memory: its way out, or what was set aside.
 *
 * What is set aside for a reserve is one block, given out from its front.  Blocks of it are freed one by one, by any
 * thread; when the last is back the whole is free again.  A reserve that is filled while blocks of the old one are out
 * leaves the old one to them.
 */
#include "base/assert.h"
#include "base/list.h"
#include "base/memory.h"
#include "base/thread.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define ALIGN alignof(max_align_t)

typedef struct dur__kept {
    dur__link link; /* in `all` while blocks of it are out */
    size_t size, at;
    size_t out;    /* blocks */
    bool reserved; /* a reserve has it */
    alignas(max_align_t) char data[];
} kept;

static dur__mutex lock = DUR__MUTEX_INIT;
static dur__link all = { &all, &all };
static _Atomic size_t any; /* of `all`: nearly always none */
static _Thread_local dur__cover *now;
static _Atomic bool demanded;

/* ---- covers ---- */

void dur__cover_begin(dur__cover *cover) {
    cover->outer = now;
    now = cover;
}

void dur__cover_end(dur__cover *cover) {
    DUR_ASSERT(now == cover);
    now = cover->outer;
}

dur__cover *dur__cover_swap(dur__cover *cover) {
    dur__cover *before = now;
    now = cover;
    return before;
}

dur__cover *dur__cover_now(void) {
    return now;
}

void dur__cover_demand(bool on) {
    atomic_store(&demanded, on);
}

bool dur__cover_leaves(void) {
    return now != NULL && now->out != NULL;
}

void dur__memory_leave(void) {
    DUR_ASSERT(now != NULL && now->out != NULL);
    now->out(now->data);
    dur__assert_failed(__FILE__, __LINE__, "a way out has returned");
}

static void jump_out(void *data) {
    dur__way_out *self = data;
    dur__cover_end(&self->cover);
    _longjmp(self->jump, 1);
}

void dur__way_out_begin(dur__way_out *self) {
    self->cover = (dur__cover){ .out = jump_out, .data = self };
    dur__cover_begin(&self->cover);
}

/* ---- reserves ---- */

bool dur__reserve_fill(dur__reserve *reserve, size_t bytes) {
    if (dur__reserve_left(reserve) >= bytes) return true;
    if (bytes > SIZE_MAX / 2) return false;
    kept *made = dur__get(sizeof(*made) + bytes);
    if (made == NULL) return false;
    dur__reserve_free(reserve);
    *made = (kept){ .size = bytes, .reserved = true };
    reserve->kept = made;
    return true;
}

size_t dur__reserve_left(const dur__reserve *reserve) {
    if (reserve->kept == NULL) return 0;
    if (atomic_load_explicit(&any, memory_order_relaxed) == 0) return reserve->kept->size;
    dur__mutex_lock(&lock);
    size_t left = reserve->kept->size - reserve->kept->at;
    dur__mutex_unlock(&lock);
    return left;
}

void dur__reserve_free(dur__reserve *reserve) {
    kept *self = reserve->kept;
    if (self == NULL) return;
    reserve->kept = NULL;
    dur__mutex_lock(&lock);
    self->reserved = false;
    bool last = self->out == 0;
    dur__mutex_unlock(&lock);
    if (last) dur__free(self);
}

bool dur__cover_need(size_t bytes) {
    if (now == NULL) return false;
    return now->out != NULL || dur__reserve_fill(now->reserve, bytes);
}

bool dur__aside_begin(dur__aside *self, size_t bytes) {
    if (!dur__reserve_fill(&self->reserve, bytes)) return false;
    self->cover = (dur__cover){ .reserve = &self->reserve };
    dur__cover_begin(&self->cover);
    return true;
}

void dur__aside_end(dur__aside *self) {
    if (self->cover.reserve == NULL) return;
    dur__cover_end(&self->cover);
    dur__reserve_free(&self->reserve);
}

/* Each block has its size before it. */
static void *kept_take(kept *self, size_t size) {
    void *block = NULL;
    size_t need = ALIGN + (size + ALIGN - 1) / ALIGN * ALIGN;
    dur__mutex_lock(&lock);
    if (need >= size && need <= self->size - self->at) {
        char *at = self->data + self->at;
        memcpy(at, &size, sizeof(size));
        block = at + ALIGN;
        self->at += need;
        if (self->out++ == 0) {
            dur__list_push(&all, &self->link);
            atomic_fetch_add(&any, 1);
        }
    }
    dur__mutex_unlock(&lock);
    return block;
}

/* The lock is held. */
static kept *kept_of(const void *memory) {
    const char *at = memory;
    DUR__LIST_EACH(&all, link) {
        kept *self = DUR__CONTAINER(link, kept, link);
        if (at >= self->data && at < self->data + self->size) return self;
    }
    return NULL;
}

bool dur__kept_free(void *memory) {
    if (atomic_load_explicit(&any, memory_order_relaxed) == 0) return false;
    bool last = false;
    dur__mutex_lock(&lock);
    kept *self = kept_of(memory);
    if (self != NULL && --self->out == 0) {
        dur__list_unlink(&self->link);
        atomic_fetch_sub(&any, 1);
        self->at = 0;
        last = !self->reserved;
    }
    dur__mutex_unlock(&lock);
    if (last) dur__free(self);
    return self != NULL;
}

bool dur__kept_size(const void *memory, size_t *size) {
    if (atomic_load_explicit(&any, memory_order_relaxed) == 0) return false;
    dur__mutex_lock(&lock);
    bool found = kept_of(memory) != NULL;
    dur__mutex_unlock(&lock);
    if (found) memcpy(size, (const char *)memory - ALIGN, sizeof(*size));
    return found;
}

/* ---- allocations that are covered ---- */

static void *take_kept(void *moved, size_t size) {
    const dur__cover *cover = now;
    if (cover != NULL && cover->out != NULL) cover->out(cover->data);
    kept *self = cover != NULL ? cover->reserve->kept : NULL;
    void *block = self != NULL ? kept_take(self, size > 0 ? size : 1) : NULL;
    if (block == NULL) dur__assert_failed(__FILE__, __LINE__, "out of memory where nothing was set aside for it");
    if (moved == NULL) return block;
    size_t old = dur__memory_size(moved);
    memcpy(block, moved, old < size ? old : size);
    dur__free(moved);
    return block;
}

void *dur_memory_must(void *moved, size_t size) {
    if (atomic_load_explicit(&demanded, memory_order_relaxed) && now == NULL)
        dur__assert_failed(__FILE__, __LINE__, "an allocation that nothing covers");
    void *block = moved == NULL ? dur__get(size) : dur__resize(moved, size);
    return block != NULL ? block : take_kept(moved, size);
}
