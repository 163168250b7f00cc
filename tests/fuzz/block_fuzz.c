/*
 * block_fuzz.c: whatever texts are packed come back byte for byte; whatever is unpacked is survived.
 *
 * Input: a byte that says how much room a block has, and one event per line; its id is the number in it, if there is
 * one.
 */
#include "core/block.h"
#include "fuzz/fuzz_bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LINES_MAX = 64 };

static size_t lines_of(const uint8_t *data, size_t size, dur_event_row *out) {
    static const char head[] = "{\"event_id\":";
    size_t count = 0;
    for (size_t at = 0; at < size && count < LINES_MAX;) {
        const char *line = (const char *)data + at;
        const char *end = memchr(line, '\n', size - at);
        size_t length = end != NULL ? (size_t)(end - line) : size - at;
        uint64_t id = count > 0 ? out[count - 1].event_id + 1 : 1;
        if (length > sizeof(head) && memcmp(line, head, sizeof(head) - 1) == 0 && line[sizeof(head) - 1] <= '9' &&
            line[sizeof(head) - 1] > '0')
            id = (uint64_t)(line[sizeof(head) - 1] - '0');
        out[count++] = (dur_event_row){ .event_id = id, .json = { line, length } };
        at += length + 1;
    }
    return count;
}

static void packs(dur_arena *arena, const dur_event_row *events, size_t count, size_t room) {
    dur_event_row back[LINES_MAX];
    for (size_t at = 0; at < count;) {
        dur__buf out = { 0 };
        size_t used = dur__block_pack(&out, "o-1", 1, &events[at], count - at, room);
        MUST(used >= 1 && used <= count - at, "as many as were given");
        dur__block block = { "o-1", 1, events[at].event_id, used, { out.data, out.size } };
        MUST(dur__block_unpack(back, arena, &block), out.data);
        for (size_t i = 0; i < used; i++) {
            dur_text was = events[at + i].json, is = back[i].json;
            MUST(back[i].event_id == events[at + i].event_id, out.data);
            MUST(is.size == was.size && (was.size == 0 || memcmp(is.data, was.data, was.size) == 0), out.data);
        }
        dur__buf_free(&out);
        at += used;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    dur_event_row events[LINES_MAX];
    if (size == 0) return 0;
    dur_arena *arena = dur_arena_new();
    packs(arena, events, lines_of(data + 1, size - 1, events), (size_t)data[0] * 8);
    dur__block block = { "o-1", 1, 1, 1 + data[0] % LINES_MAX, { (const char *)data + 1, size - 1 } };
    if (dur__block_events(&block) <= LINES_MAX) dur__block_unpack(events, arena, &block);
    dur_arena_free(arena);
    return 0;
}
