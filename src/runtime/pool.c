/*
 * pool.c: memory that a loop uses over and over: arenas, letters, tasks.  Bounded; what is beyond goes back to malloc.
 */
#include "runtime/runtime_internal.h"

#include "base/arena_internal.h"

#include <stdlib.h>

#define ARENAS_KEPT 512
#define LETTERS_KEPT 512
#define TASKS_KEPT 512
#define ARENA_BYTES_KEPT (256 * 1024) /* an arena that has grown beyond this is not kept */

dur_arena *dur__pool_arena(dur__loop *loop) {
    if (loop->free_arena_count > 0) return loop->free_arenas[--loop->free_arena_count];
    return dur__arena_xnew();
}

void dur__pool_arena_back(dur__loop *loop, dur_arena *arena) {
    if (loop->free_arena_count >= ARENAS_KEPT || dur_arena_bytes(arena) > ARENA_BYTES_KEPT) {
        dur_arena_free(arena);
        return;
    }
    dur_arena_reset(arena);
    if (loop->free_arena_count == loop->free_arena_room) {
        size_t room = loop->free_arena_room == 0 ? 32 : loop->free_arena_room * 2;
        dur_arena **moved = dur__resize(loop->free_arenas, room * sizeof(dur_arena *));
        if (moved == NULL) {
            dur_arena_free(arena);
            return;
        }
        loop->free_arenas = moved;
        loop->free_arena_room = room;
    }
    loop->free_arenas[loop->free_arena_count++] = arena;
}

static void letter_clear(dur__letter *letter) {
    memset(letter, 0, sizeof(*letter));
    letter->arrival.cookie = letter;
}

/* Memory for a letter or a task, which has an arena already: who leaves by a way out leaves no arena behind. */
static void *object_new(dur__loop *loop, dur_arena *arena, size_t size) {
    void *object = dur__get(size);
    if (object != NULL) return object;
    if (!dur__cover_leaves()) return dur__xmalloc(size);
    dur__pool_arena_back(loop, arena);
    dur__memory_leave();
}

dur__letter *dur__pool_letter(dur__loop *loop) {
    dur_arena *arena = dur__pool_arena(loop);
    dur__link *link = dur__list_pop(&loop->free_letters);
    dur__letter *letter =
        link != NULL ? DUR__CONTAINER(link, dur__letter, arrival.link) : object_new(loop, arena, sizeof(*letter));
    if (link != NULL) loop->free_letter_count--;
    letter_clear(letter);
    letter->arena = arena;
    return letter;
}

void dur__pool_letter_back(dur__loop *loop, dur__letter *letter) {
    if (letter->task != NULL) {
        dur__pool_task_back(loop, letter->task);
        return;
    }
    dur__pool_arena_back(loop, letter->arena);
    if (loop->free_letter_count >= LETTERS_KEPT) {
        dur__free(letter);
        return;
    }
    letter_clear(letter);
    dur__list_push(&loop->free_letters, &letter->arrival.link);
    loop->free_letter_count++;
}

dur__task *dur__pool_task(dur__loop *loop) {
    dur_arena *arena = dur__pool_arena(loop);
    dur__link *link = dur__list_pop(&loop->free_tasks);
    dur__task *task = link != NULL ? DUR__CONTAINER(link, dur__task, link) : object_new(loop, arena, sizeof(*task));
    if (link != NULL) loop->free_task_count--;
    memset(task, 0, sizeof(*task));
    letter_clear(&task->letter);
    task->letter.task = task;
    task->arena = arena;
    task->runtime = loop->runtime;
    task->loop = loop;
    task->epoch = loop->epoch;
    task->serial = atomic_fetch_add(&loop->runtime->task_serial, 1) + 1;
    task->cancel_bell = DUR__BELL_NONE;
    atomic_init(&task->holders, 1);
    atomic_init(&task->state, DUR__TASK_IDLE);
    atomic_init(&task->cancelled, false);
    atomic_init(&task->told, false);
    atomic_init(&task->local, false);
    return task;
}

void dur__pool_task_back(dur__loop *loop, dur__task *task) {
    dur__gate_release(&task->alone); /* never started, or its end is recorded: a crash does not touch it any more */
    dur__inst_detach(task);
    dur__activity_texts_free(task);
    dur__pool_arena_back(loop, task->arena);
    task->arena = NULL;
    if (loop->free_task_count >= TASKS_KEPT) {
        dur__free(task);
        return;
    }
    dur__list_push(&loop->free_tasks, &task->link);
    loop->free_task_count++;
}

void dur__task_leave(dur__task *task) {
    if (atomic_fetch_sub(&task->holders, 1) > 1) return;
    dur__activity_texts_free(task);
    dur_arena_free(task->arena);
    dur__free(task);
}

void dur__pool_free(dur__loop *loop) {
    dur__link *link;
    while ((link = dur__list_pop(&loop->free_letters)) != NULL)
        dur__free(DUR__CONTAINER(link, dur__letter, arrival.link));
    while ((link = dur__list_pop(&loop->free_tasks)) != NULL)
        dur__free(DUR__CONTAINER(link, dur__task, link));
    for (size_t i = 0; i < loop->free_arena_count; i++)
        dur_arena_free(loop->free_arenas[i]);
    dur__free(loop->free_arenas);
}
