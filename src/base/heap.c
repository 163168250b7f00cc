/* heap.c: see heap.h. */
#include "base/heap.h"
#include "base/buf.h"
#include <stdlib.h>

static bool item_less(const dur__heap_item *a, const dur__heap_item *b) {
    return a->hi != b->hi ? a->hi < b->hi : a->lo < b->lo;
}

static void heap_set(dur__heap *heap, size_t at, dur__heap_item *item) {
    heap->items[at] = item;
    item->at = at + 1;
}

static void heap_sift(dur__heap *heap, size_t at) {
    dur__heap_item *item = heap->items[at];
    while (at > 0 && item_less(item, heap->items[(at - 1) / 2])) {
        heap_set(heap, at, heap->items[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= heap->count) break;
        if (child + 1 < heap->count && item_less(heap->items[child + 1], heap->items[child])) child++;
        if (!item_less(heap->items[child], item)) break;
        heap_set(heap, at, heap->items[child]);
        at = child;
    }
    heap_set(heap, at, item);
}

void dur__heap_reserve(dur__heap *heap, size_t room) {
    if (heap->room >= room) return;
    if (room < 2 * heap->room) room = 2 * heap->room;
    heap->items = dur__xrealloc(heap->items, room * sizeof(*heap->items));
    heap->room = room;
}

void dur__heap_push(dur__heap *heap, dur__heap_item *item) {
    if (item->at == 0) {
        if (heap->count == heap->room) {
            size_t room = heap->room == 0 ? 8 : heap->room * 2;
            heap->items = dur__xrealloc(heap->items, room * sizeof(*heap->items));
            heap->room = room;
        }
        heap_set(heap, heap->count++, item);
    }
    heap_sift(heap, item->at - 1);
}

void dur__heap_remove(dur__heap *heap, dur__heap_item *item) {
    if (item->at == 0) return;
    size_t at = item->at - 1;
    item->at = 0;
    dur__heap_item *last = heap->items[--heap->count];
    if (last == item) return;
    heap_set(heap, at, last);
    heap_sift(heap, at);
}

void dur__heap_free(dur__heap *heap) {
    dur__free(heap->items);
    *heap = (dur__heap){ 0 };
}
