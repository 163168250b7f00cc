/*
 * pool.c: memory that a loop uses over and over: arenas, letters, tasks.  Bounded; what is beyond goes back to malloc.
 */
#include "runtime/runtime_internal.h"

#include <stdlib.h>

#define ARENAS_KEPT 512
#define LETTERS_KEPT 512
#define TASKS_KEPT 512
#define ARENA_BYTES_KEPT (256 * 1024) /* an arena that has grown beyond this is not kept */

dur_arena *dur__pool_arena(dur__loop *loop) {
    if (loop->free_arena_count > 0) return loop->free_arenas[--loop->free_arena_count];
    dur_arena *arena = dur_arena_new();
    DUR_ASSERT(arena != NULL);
    return arena;
}

void dur__pool_arena_back(dur__loop *loop, dur_arena *arena) {
    if (loop->free_arena_count >= ARENAS_KEPT || dur_arena_bytes(arena) > ARENA_BYTES_KEPT) {
        dur_arena_free(arena);
        return;
    }
    dur_arena_reset(arena);
    if (loop->free_arena_count == loop->free_arena_room) {
        loop->free_arena_room = loop->free_arena_room == 0 ? 32 : loop->free_arena_room * 2;
        loop->free_arenas = dur__xrealloc(loop->free_arenas, loop->free_arena_room * sizeof(dur_arena *));
    }
    loop->free_arenas[loop->free_arena_count++] = arena;
}

static void letter_clear(dur__letter *letter) {
    memset(letter, 0, sizeof(*letter));
    letter->arrival.cookie = letter;
}

dur__letter *dur__pool_letter(dur__loop *loop) {
    dur__link *link = dur__list_pop(&loop->free_letters);
    dur__letter *letter;
    if (link != NULL) {
        letter = DUR__CONTAINER(link, dur__letter, arrival.link);
        loop->free_letter_count--;
    } else {
        letter = dur__xmalloc(sizeof(*letter));
    }
    letter_clear(letter);
    letter->arena = dur__pool_arena(loop);
    return letter;
}

void dur__pool_letter_back(dur__loop *loop, dur__letter *letter) {
    if (letter->task != NULL) {
        dur__pool_task_back(loop, letter->task);
        return;
    }
    dur__pool_arena_back(loop, letter->arena);
    if (loop->free_letter_count >= LETTERS_KEPT) {
        free(letter);
        return;
    }
    letter_clear(letter);
    dur__list_push(&loop->free_letters, &letter->arrival.link);
    loop->free_letter_count++;
}

dur__task *dur__pool_task(dur__loop *loop) {
    dur__link *link = dur__list_pop(&loop->free_tasks);
    dur__task *task;
    if (link != NULL) {
        task = DUR__CONTAINER(link, dur__task, link);
        loop->free_task_count--;
    } else {
        task = dur__xmalloc(sizeof(*task));
    }
    memset(task, 0, sizeof(*task));
    letter_clear(&task->letter);
    task->letter.task = task;
    task->arena = dur__pool_arena(loop);
    task->runtime = loop->runtime;
    task->loop = loop;
    task->epoch = loop->epoch;
    task->serial = atomic_fetch_add(&loop->runtime->task_serial, 1) + 1;
    task->cancel_fd = -1;
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
    dur__pool_arena_back(loop, task->arena);
    task->arena = NULL;
    if (loop->free_task_count >= TASKS_KEPT) {
        free(task);
        return;
    }
    dur__list_push(&loop->free_tasks, &task->link);
    loop->free_task_count++;
}

void dur__task_leave(dur__task *task) {
    if (atomic_fetch_sub(&task->holders, 1) > 1) return;
    dur_arena_free(task->arena);
    free(task);
}

void dur__pool_free(dur__loop *loop) {
    dur__link *link;
    while ((link = dur__list_pop(&loop->free_letters)) != NULL)
        free(DUR__CONTAINER(link, dur__letter, arrival.link));
    while ((link = dur__list_pop(&loop->free_tasks)) != NULL)
        free(DUR__CONTAINER(link, dur__task, link));
    for (size_t i = 0; i < loop->free_arena_count; i++)
        dur_arena_free(loop->free_arenas[i]);
    free(loop->free_arenas);
}
