/*
 * sqlite_alone.h: SQLite in a process without threads that opens a store thousands of times: no locks of its own, and
 * memory that goes back to a list and comes from there.  A third of what opening a store costs is malloc otherwise.
 * To be called before SQLite is used.  In builds with checks memory is malloc's: it looks at each piece.
 */
#ifndef TESTS_SUPPORT_SQLITE_ALONE_H
#define TESTS_SUPPORT_SQLITE_ALONE_H

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

enum { ALONE_STEP = 16, ALONE_STEPS = 128, ALONE_DOUBLINGS = 10, ALONE_SLAB = 1 << 18 };

/* In front of each piece; its room is a multiple of ALONE_STEP, and what SQLite gets is aligned as malloc's is. */
typedef union alone_piece {
    struct {
        size_t room;
        union alone_piece *next; /* in a list */
    } head;
    long double alignment;
} alone_piece;

static struct {
    alone_piece *small[ALONE_STEPS + 1], *large[ALONE_DOUBLINGS];
    char *slab;
    size_t slab_left;
} alone;

static inline int alone_room(int size) {
    size_t room = ALONE_STEP;
    if (size <= ALONE_STEP * ALONE_STEPS) return (size + ALONE_STEP - 1) / ALONE_STEP * ALONE_STEP;
    for (room = ALONE_STEP * ALONE_STEPS; room < (size_t)size && room < 1u << 30;)
        room *= 2;
    return room < (size_t)size ? size : (int)room;
}

/* Where pieces of that room wait; NULL: they are malloc's. */
static inline alone_piece **alone_list(size_t room) {
    if (room <= ALONE_STEP * ALONE_STEPS) return &alone.small[room / ALONE_STEP];
    for (size_t i = 0; i < ALONE_DOUBLINGS; i++)
        if (room == (size_t)ALONE_STEP * ALONE_STEPS << (i + 1)) return &alone.large[i];
    return NULL;
}

static inline alone_piece *alone_new(size_t room) {
    size_t all = sizeof(alone_piece) + room;
    if (all > ALONE_SLAB / 8) return malloc(all);
    if (alone.slab_left < all) {
        alone.slab = malloc(ALONE_SLAB);
        alone.slab_left = alone.slab != NULL ? ALONE_SLAB : 0;
        if (alone.slab == NULL) return NULL;
    }
    alone_piece *piece = (alone_piece *)(void *)alone.slab;
    alone.slab += all;
    alone.slab_left -= all;
    return piece;
}

static inline void *alone_get(int size) {
    size_t room = (size_t)alone_room(size > 0 ? size : 1);
    alone_piece **list = alone_list(room), *piece = list != NULL ? *list : NULL;
    if (piece != NULL)
        *list = piece->head.next;
    else if ((piece = alone_new(room)) == NULL)
        return NULL;
    piece->head.room = room;
    return piece + 1;
}

static inline void alone_give(void *memory) {
    alone_piece *piece = (alone_piece *)memory - 1;
    alone_piece **list = alone_list(piece->head.room);
    if (list == NULL) {
        free(piece);
        return;
    }
    piece->head.next = *list;
    *list = piece;
}

static inline int alone_size(void *memory) {
    return (int)((alone_piece *)memory - 1)->head.room;
}

static inline void *alone_more(void *memory, int size) {
    int room = alone_size(memory);
    if (size <= room) return memory;
    void *more = alone_get(size);
    if (more == NULL) return NULL;
    memcpy(more, memory, (size_t)room);
    alone_give(memory);
    return more;
}

static inline int alone_begin(void *data) {
    (void)data;
    return SQLITE_OK;
}

static inline void alone_end(void *data) {
    (void)data;
}

static inline void sqlite_alone(void) {
    sqlite3_config(SQLITE_CONFIG_SINGLETHREAD);
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 1024, 300);
#if !defined(__SANITIZE_ADDRESS__) && !defined(DURITE_DEBUG)
    static const sqlite3_mem_methods methods = {
        alone_get, alone_give, alone_more, alone_size, alone_room, alone_begin, alone_end, NULL,
    };
    sqlite3_config(SQLITE_CONFIG_MALLOC, &methods);
#endif
}

#endif
