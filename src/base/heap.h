/*
 * heap.h: a binary heap of items that know their place, smallest (hi, lo) on top.  Items are embedded in what they
 * order.
 */
#ifndef DURITE_BASE_HEAP_H
#define DURITE_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct dur__heap_item {
    uint64_t hi, lo;
    size_t at; /* index + 1; 0: in no heap */
} dur__heap_item;

typedef struct dur__heap {
    dur__heap_item **items;
    size_t count, room;
} dur__heap; /* zeroed: empty */

void dur__heap_reserve(dur__heap *heap, size_t room);         /* up to so many items a push needs no memory */
void dur__heap_push(dur__heap *heap, dur__heap_item *item);   /* or move it, when its key has changed */
void dur__heap_remove(dur__heap *heap, dur__heap_item *item); /* harmless when it is in none */
void dur__heap_free(dur__heap *heap);
static inline dur__heap_item *dur__heap_top(const dur__heap *heap) {
    return heap->count == 0 ? NULL : heap->items[0];
}

#endif
