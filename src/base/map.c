/*
 * map.c: entries in order of insertion, found through a table of their positions.
 *
 * A removed entry stays as a hole to which its slot still points; probing walks over it.  Holes go when the entries are
 * full and everything is rebuilt, so that removing is cheap and iteration never sees an entry move.
 * Text entries keep their hash in `number`.  The hash has a seed per process: ids come from users, who must not be able
 * to choose collisions; and since iteration is by insertion nobody sees it.
 */
#include "base/map.h"
#include "base/assert.h"
#include "base/buf.h"

#include <durite/sys/clock.h>
#include <stdatomic.h>
#include <string.h>

enum { MAP_ROOM_MIN = 8 };

static uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 29;
    x *= 0xa3b195354a39b70du;
    x ^= x >> 32;
    return x;
}

static uint64_t map_seed(void) {
    static _Atomic uint64_t seed;
    uint64_t value = atomic_load_explicit(&seed, memory_order_relaxed);
    if (value == 0) {
        uint64_t fresh;
        dur_world_real()->random(NULL, &fresh, sizeof(fresh));
        fresh |= 1;
        if (atomic_compare_exchange_strong(&seed, &value, fresh)) value = fresh;
    }
    return value;
}

static uint64_t hash_text(const char *key) {
    size_t size = strlen(key);
    uint64_t hash = map_seed() ^ (uint64_t)size;
    uint64_t word;
    for (; size >= sizeof(word); key += sizeof(word), size -= sizeof(word)) {
        memcpy(&word, key, sizeof(word));
        hash = mix(hash ^ word);
    }
    word = 0;
    memcpy(&word, key, size);
    return mix(hash ^ word);
}

static uint64_t hash_number(uint64_t number) {
    return mix(number ^ map_seed());
}

static uint64_t entry_hash(const dur__map_entry *entry) {
    return entry->key != NULL ? entry->number : hash_number(entry->number);
}

/* number: a text's hash, or the number that is the key. */
static bool entry_is(const dur__map_entry *entry, const char *key, uint64_t number) {
    if (entry->value == NULL || entry->number != number) return false;
    if (key == NULL || entry->key == NULL) return key == entry->key;
    return strcmp(entry->key, key) == 0;
}

static dur__map_entry *map_find(const dur__map *map, const char *key, uint64_t number, uint64_t hash) {
    if (map->slot_count == 0) return NULL;
    size_t mask = map->slot_count - 1;
    for (size_t at = (size_t)hash & mask; map->slots[at] != 0; at = (at + 1) & mask) {
        dur__map_entry *entry = &map->entries[map->slots[at] - 1];
        if (entry_is(entry, key, number)) return entry;
    }
    return NULL;
}

static void slot_add(dur__map *map, uint64_t hash, size_t position) {
    size_t mask = map->slot_count - 1;
    size_t at = (size_t)hash & mask;
    while (map->slots[at] != 0)
        at = (at + 1) & mask;
    map->slots[at] = (uint32_t)(position + 1);
}

/* Drop the holes; room for at least `more` besides. */
static size_t room_for(const dur__map *map, size_t more) {
    size_t room = MAP_ROOM_MIN, need = map->count * 2;
    if (need < map->count + more) need = map->count + more;
    while (room < need)
        room *= 2;
    DUR_ASSERT(room < UINT32_MAX);
    return room;
}

static size_t entries_bytes(size_t room) {
    return room * sizeof(dur__map_entry);
}

/* Entries and slots are one block: both are there, or nothing has changed. */
static void map_move(dur__map *map, void *block, size_t room) {
    dur__map_entry *entries = block;
    size_t count = 0;
    for (size_t i = 0; i < map->entry_count; i++)
        if (map->entries[i].value != NULL) entries[count++] = map->entries[i];
    DUR_ASSERT(count == map->count);
    dur__free(map->entries);
    map->entries = entries;
    map->entry_room = room;
    map->entry_count = count;
    map->slot_count = room * 2; /* at most half full, holes included */
    map->slots = (uint32_t *)(void *)((char *)block + entries_bytes(room));
    memset(map->slots, 0, map->slot_count * sizeof(*map->slots));
    for (size_t i = 0; i < count; i++)
        slot_add(map, entry_hash(&entries[i]), i);
}

static size_t block_bytes(size_t room) {
    return entries_bytes(room) + 2 * room * sizeof(uint32_t);
}

bool dur__map_reserve(dur__map *map, size_t more) {
    if (map->entry_room - map->entry_count >= more) return true;
    size_t room = room_for(map, more);
    void *block = dur__get(block_bytes(room));
    if (block != NULL) map_move(map, block, room);
    return block != NULL;
}

void dur__map_xreserve(dur__map *map, size_t more) {
    if (map->entry_room - map->entry_count >= more) return;
    size_t room = room_for(map, more);
    map_move(map, dur__xmalloc(block_bytes(room)), room);
}

static void map_set(dur__map *map, const char *key, uint64_t number, uint64_t hash, void *value) {
    DUR_ASSERT(value != NULL);
    dur__map_entry *entry = map_find(map, key, number, hash);
    if (entry != NULL) {
        entry->key = key; /* the old key may end with the old value */
        entry->value = value;
        return;
    }
    dur__map_xreserve(map, 1);
    map->entries[map->entry_count] = (dur__map_entry){ key, number, value };
    slot_add(map, hash, map->entry_count);
    map->entry_count++;
    map->count++;
}

static void *map_take(dur__map *map, dur__map_entry *entry) {
    if (entry == NULL) return NULL;
    void *value = entry->value;
    *entry = (dur__map_entry){ 0 };
    map->count--;
    return value;
}

void dur__map_free(dur__map *map) {
    dur__free(map->entries); /* the slots with them */
    *map = (dur__map){ 0 };
}

void *dur__map_get(const dur__map *map, const char *key) {
    uint64_t hash = hash_text(key);
    const dur__map_entry *entry = map_find(map, key, hash, hash);
    return entry != NULL ? entry->value : NULL;
}

void dur__map_put(dur__map *map, const char *key, void *value) {
    uint64_t hash = hash_text(key);
    map_set(map, key, hash, hash, value);
}

void *dur__map_remove(dur__map *map, const char *key) {
    uint64_t hash = hash_text(key);
    return map_take(map, map_find(map, key, hash, hash));
}

void *dur__map_get_u64(const dur__map *map, uint64_t number) {
    const dur__map_entry *entry = map_find(map, NULL, number, hash_number(number));
    return entry != NULL ? entry->value : NULL;
}

void dur__map_put_u64(dur__map *map, uint64_t number, void *value) {
    map_set(map, NULL, number, hash_number(number), value);
}

void *dur__map_remove_u64(dur__map *map, uint64_t number) {
    return map_take(map, map_find(map, NULL, number, hash_number(number)));
}

dur__map_entry *dur__map_next(const dur__map *map, size_t *at) {
    while (*at < map->entry_count) {
        dur__map_entry *entry = &map->entries[(*at)++];
        if (entry->value != NULL) return entry;
    }
    return NULL;
}
