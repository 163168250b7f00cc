/*
 * memory.h: memory that may run out, and what a thread does then.
 *
 * Two forms of each allocation.  dur__get, dur__zget and dur__resize answer NULL.  The dur__x forms, and with them
 * buffers, maps and arenas, do not answer NULL: they are for code that runs under a *cover*, which is one of
 *
 *   a way out   code whose whole state is dropped together, or that has changed nothing yet, is left by a jump
 *   a reserve   code that must come to its end (what follows a commit; a change under a lock) takes from what was
 *               set aside before it began
 *
 * The innermost cover of the thread counts.  Without any a failed x allocation is a broken invariant of ours: so
 * whoever calls the library's inside sets one first.  dur__cover_demand makes that a broken invariant also where there
 * is memory, so that tests find what is not covered without having to fail it.
 */
#ifndef DURITE_BASE_MEMORY_H
#define DURITE_BASE_MEMORY_H

#include <durite/sys/memory.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>

#define dur__get dur_memory_alloc
#define dur__zget dur_memory_zalloc
#define dur__resize dur_memory_resize
#define dur__free dur_free

void *dur__xmalloc(size_t size);
void *dur__xcalloc(size_t count, size_t size);
void *dur__xrealloc(void *memory, size_t size);
char *dur__xstrdup(const char *text); /* NULL gives NULL */
char *dur__strdup(const char *text);  /* text is not NULL; NULL: no memory */

/* ---- covers ---- */

typedef struct dur__reserve dur__reserve;

typedef struct dur__cover {
    struct dur__cover *outer;
    void (*out)(void *data); /* does not return; NULL: a reserve */
    void *data;
    dur__reserve *reserve;
} dur__cover;

/* In the order of a stack, on one thread. */
void dur__cover_begin(dur__cover *cover);
void dur__cover_end(dur__cover *cover);
/* The thread's cover is that one for a while (a call back into whoever has called us); returns the one before. */
dur__cover *dur__cover_swap(dur__cover *cover);
dur__cover *dur__cover_now(void);
void dur__cover_demand(bool on);
bool dur__cover_leaves(void); /* it is a way out */
/* Leave: the thread's cover is a way out. */
_Noreturn void dur__memory_leave(void);

/*
 * A way out by a jump:
 *
 *     dur__way_out out;
 *     if (DUR__OUT_OF_MEMORY(&out)) { … undo, without memory …; return DUR_ENOMEM; }
 *     … x allocations …
 *     dur__way_out_end(&out);
 *
 * As with any setjmp: locals that change in between and are read behind the jump are volatile.
 */
typedef struct dur__way_out {
    dur__cover cover;
    jmp_buf jump;
} dur__way_out;

void dur__way_out_begin(dur__way_out *self);
static inline void dur__way_out_end(dur__way_out *self) {
    dur__cover_end(&self->cover);
}
#define DUR__OUT_OF_MEMORY(self) (dur__way_out_begin(self), _setjmp((self)->jump) != 0)

/*
 * Bytes set aside.  What is taken from it is freed as everything else (dur_free), by any thread, and then set aside
 * again.  One thread uses a reserve at a time.  Zeroed: empty.
 */
struct dur__reserve {
    struct dur__kept *kept;
};

/* At least so many bytes, or false: then it is as it was.  Blocks cost 32 bytes each beside their size. */
bool dur__reserve_fill(dur__reserve *reserve, size_t bytes);
size_t dur__reserve_left(const dur__reserve *reserve);
void dur__reserve_free(dur__reserve *reserve);

/* The thread's reserve has so many bytes left, or has been filled to have them.  Under a way out: true. */
bool dur__cover_need(size_t bytes);

/* A reserve for the length of a function: what every public call begins with.  It ends with the block. */
typedef struct dur__aside {
    dur__cover cover;
    dur__reserve reserve;
} dur__aside;
bool dur__aside_begin(dur__aside *self, size_t bytes);
void dur__aside_end(dur__aside *self); /* also where begin was not called */
#define DUR__ASIDE_BYTES (32u << 10)
#define DUR__ASIDE __attribute__((cleanup(dur__aside_end))) dur__aside
#define DUR__NO_MEMORY(err, op) dur_error_set(err, DUR_ENOMEM, true, op, "out of memory")
#define DUR__SET_ASIDE(op, err)                                                                                        \
    DUR__ASIDE aside_ = { .reserve = { NULL } };                                                                       \
    if (!dur__aside_begin(&aside_, DUR__ASIDE_BYTES)) return DUR__NO_MEMORY(err, op)

/* ---- for memory.c ---- */

/* memory is of a reserve: it has gone back there.  False: it is not. */
bool dur__kept_free(void *memory);
bool dur__kept_size(const void *memory, size_t *size);

/* Bytes of a block, at least those that were asked for. */
size_t dur__memory_size(void *memory);

/* Seven eighths of the cap are in use. */
bool dur__memory_tight(void);

#endif
