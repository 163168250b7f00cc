/*
 * map.h: from text (or a 64-bit number) to a pointer.  Open addressing; iteration in order of insertion, so that
 * nothing depends on hash values.  Keys are borrowed: they must live as long as the entry.  A put that grows the map is
 * a covered allocation (base/memory.h), and leaves the map as it was when the thread leaves by its way out.
 */
#ifndef DURITE_BASE_MAP_H
#define DURITE_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct dur__map_entry {
    const char *key; /* NULL: a number's entry, or removed */
    uint64_t number;
    void *value; /* NULL: removed */
} dur__map_entry;

typedef struct dur__map {
    dur__map_entry *entries; /* in order of insertion, with holes */
    uint32_t *slots;
    size_t entry_count; /* holes included */
    size_t entry_room;
    size_t slot_count; /* power of two */
    size_t count;      /* live entries */
} dur__map;            /* zeroed: empty */

void dur__map_free(dur__map *map);
void *dur__map_get(const dur__map *map, const char *key);       /* NULL: none */
void dur__map_put(dur__map *map, const char *key, void *value); /* replaces; value not NULL */
void *dur__map_remove(dur__map *map, const char *key);          /* what was there, or NULL */
/* Room for so many more: putting them needs no memory.  False: there is none, and the map is as it was. */
bool dur__map_reserve(dur__map *map, size_t more);
void dur__map_xreserve(dur__map *map, size_t more); /* a covered allocation */
void *dur__map_get_u64(const dur__map *map, uint64_t number);
void dur__map_put_u64(dur__map *map, uint64_t number, void *value);
void *dur__map_remove_u64(dur__map *map, uint64_t number);
/* for (size_t i = 0; (e = dur__map_next(map, &i)) != NULL;) …  Removing the current entry meanwhile is allowed. */
dur__map_entry *dur__map_next(const dur__map *map, size_t *at);

#endif
