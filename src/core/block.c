/*
 * block.c: the events of a turn as one text (block.h).
 *
 * Packing compares byte by byte with what unpacking will write; only what a kind has of its own is read as JSON, to
 * know that it is one object, without blanks.
 */
#include "core/block.h"

#include "base/assert.h"
#include "core/json.h"

enum { VERSION_MAX = 64, KIND_MAX = 64 };
#define WHOLE '='

/* ---- packing ---- */

/* An event without what its row says. */
typedef struct parts {
    uint64_t source; /* 0: none */
    uint64_t stamp_ms;
    dur_text version;
    dur_text kind;
    dur_text rest; /* behind the kind's quote */
} parts;

#define TAKES(text, literal) takes(text, literal, sizeof(literal) - 1)

static bool takes(dur_text *text, const char *start, size_t size) {
    if (text->size < size || memcmp(text->data, start, size) != 0) return false;
    *text = (dur_text){ text->data + size, text->size - size };
    return true;
}

/* As it will be written: no zero before it; and a database can count with it. */
static bool takes_number(dur_text *text, uint64_t *out) {
    uint64_t value = 0;
    size_t digits = 0;
    for (; digits < text->size && text->data[digits] >= '0' && text->data[digits] <= '9'; digits++) {
        if (digits == 18 || (digits == 1 && value == 0)) return false;
        value = value * 10 + (uint64_t)(text->data[digits] - '0');
    }
    *text = (dur_text){ text->data + digits, text->size - digits };
    *out = value;
    return digits > 0;
}

static bool takes_this_number(dur_text *text, uint64_t wanted) {
    uint64_t value;
    return takes_number(text, &value) && value == wanted;
}

/* Up to the quote that closes it; it needs no escapes. */
static bool takes_string(dur_text *text, dur_text *out, size_t max) {
    size_t size = 0;
    for (; size < text->size && text->data[size] != '"'; size++) {
        unsigned char c = (unsigned char)text->data[size];
        if (c < 0x20 || c >= 0x7f || c == '\\') return false;
    }
    *out = (dur_text){ text->data, size };
    *text = (dur_text){ text->data + size, text->size - size };
    return size > 0 && size <= max && TAKES(text, "\"");
}

static bool parts_take(parts *out, const char *instance, uint64_t execution_id, const dur_event_row *event) {
    dur_text rest = event->json;
    out->source = 0;
    if (!TAKES(&rest, "{\"event_id\":") || !takes_this_number(&rest, event->event_id)) return false;
    if (TAKES(&rest, ",\"source_event_id\":") && (!takes_number(&rest, &out->source) || out->source == 0)) return false;
    if (!TAKES(&rest, ",\"instance_id\":\"") || !takes(&rest, instance, strlen(instance)) ||
        !TAKES(&rest, "\",\"execution_id\":") || !takes_this_number(&rest, execution_id) ||
        !TAKES(&rest, ",\"timestamp_ms\":") || !takes_number(&rest, &out->stamp_ms) ||
        !TAKES(&rest, ",\"duroxide_version\":\"") || !takes_string(&rest, &out->version, VERSION_MAX) ||
        !TAKES(&rest, ",\"type\":\"") || !takes_string(&rest, &out->kind, KIND_MAX))
        return false;
    out->rest = rest;
    return rest.size > 0 && (rest.data[0] == ',' ? rest.size > 2 : rest.size == 1 && rest.data[0] == '}');
}

/* Is what was appended from `at` on one object and nothing else? */
static bool is_object(dur__buf *out, size_t at) {
    dur__buf_grow(out, 8);
    memset(out->data + out->size, 0, 8); /* where words are read */
    dur__json json = {
        .at = out->data + at, .start = out->data, .end = out->data + out->size, .what = "block", .compact = true
    };
    return dur__json_skip(&json, NULL) && json.at == json.end;
}

static bool same_text(dur_text a, dur_text b) {
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

/* One more event, opened by a comma; first is the block's. */
static bool element_write(dur__buf *out, const parts *event, const parts *first) {
    if (event->stamp_ms < first->stamp_ms || !same_text(event->version, first->version)) return false;
    dur__buf_add(out, ",[\"", 3);
    dur__buf_add(out, event->kind.data, event->kind.size);
    dur__buf_add(out, "\",{", 3);
    size_t fields = out->size - 1, comma = event->rest.data[0] == ',';
    dur__buf_add(out, event->rest.data + comma, event->rest.size - comma);
    if (!is_object(out, fields)) return false;
    uint64_t later = event->stamp_ms - first->stamp_ms;
    if (event->source != 0 || later != 0) {
        dur__buf_char(out, ',');
        dur__buf_u64(out, event->source);
    }
    if (later != 0) {
        dur__buf_char(out, ',');
        dur__buf_u64(out, later);
    }
    dur__buf_char(out, ']');
    return true;
}

static void cut(dur__buf *out, size_t size) {
    out->size = size;
    if (out->data != NULL) out->data[size] = '\0';
}

static bool needs_escapes(const char *text) {
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == '"' || *text == '\\') return true;
    return false;
}

/* How many events it could take; 0: the first is none of ours. */
static size_t pack_some(dur__buf *out, const char *instance, uint64_t execution_id, const dur_event_row *events,
                        size_t count, size_t bytes_max) {
    parts first, next;
    size_t begin = out->size, used = 1;
    if (needs_escapes(instance) || !parts_take(&first, instance, execution_id, &events[0])) return 0;
    dur__buf_char(out, '[');
    dur__buf_u64(out, first.stamp_ms);
    dur__buf_add(out, ",\"", 2);
    dur__buf_add(out, first.version.data, first.version.size);
    dur__buf_char(out, '"');
    if (!element_write(out, &first, &first)) return 0;
    for (; used < count && events[used].event_id == events[used - 1].event_id + 1; used++) {
        size_t end = out->size;
        if (parts_take(&next, instance, execution_id, &events[used]) && element_write(out, &next, &first) &&
            out->size - begin < bytes_max)
            continue;
        cut(out, end);
        break;
    }
    dur__buf_char(out, ']');
    return used;
}

size_t dur__block_pack(dur__buf *out, const char *instance, uint64_t execution_id, const dur_event_row *events,
                       size_t count, size_t bytes_max) {
    DUR_ASSERT(instance != NULL && count > 0);
    size_t begin = out->size;
    size_t used = pack_some(out, instance, execution_id, events, count, bytes_max);
    if (used > 0) return used;
    cut(out, begin);
    dur__buf_char(out, WHOLE);
    dur__buf_add(out, events[0].json.data, events[0].json.size);
    return 1;
}

/* ---- unpacking ---- */

size_t dur__block_events(const dur__block *block) {
    return block->count > 0 && block->count <= block->bytes.size ? (size_t)block->count : 1;
}

/* As the codec of events writes it. */
static void event_write(dur__buf *out, const dur__block *block, uint64_t event_id, const parts *event) {
    dur__buf_add(out, "{\"event_id\":", 12);
    dur__buf_u64(out, event_id);
    if (event->source != 0) {
        dur__buf_add(out, ",\"source_event_id\":", 19);
        dur__buf_u64(out, event->source);
    }
    dur__buf_add(out, ",\"instance_id\":", 15);
    dur__json_write_text(out, block->instance);
    dur__buf_add(out, ",\"execution_id\":", 16);
    dur__buf_u64(out, block->execution_id);
    dur__buf_add(out, ",\"timestamp_ms\":", 16);
    dur__buf_u64(out, event->stamp_ms);
    dur__buf_add(out, ",\"duroxide_version\":\"", 21);
    dur__buf_add(out, event->version.data, event->version.size);
    dur__buf_add(out, "\",\"type\":\"", 10);
    dur__buf_add(out, event->kind.data, event->kind.size);
    dur__buf_char(out, '"');
    if (event->rest.size > 2) dur__buf_char(out, ',');
    dur__buf_add(out, event->rest.data + 1, event->rest.size - 1);
}

static bool element_read(dur__json *json, parts *event, uint64_t first_ms) {
    uint64_t later = 0;
    bool begins = true;
    event->source = 0;
    if (!dur__json_open(json, '[', "an event") || !dur__json_more(json, ']', &begins) ||
        !dur__json_string(json, &event->kind.data, &event->kind.size) || !dur__json_more(json, ']', &begins) ||
        dur__json_peek(json) != '{' || !dur__json_skip(json, &event->rest))
        return false;
    bool more = dur__json_more(json, ']', &begins);
    if (more) more = dur__json_u64(json, &event->source) && dur__json_more(json, ']', &begins);
    if (more) more = dur__json_u64(json, &later) && dur__json_more(json, ']', &begins);
    event->stamp_ms = first_ms + later;
    return json->code == DUR_OK && !more;
}

static bool unpack(dur_event_row *out, dur_arena *arena, const dur__block *block, dur__buf *text) {
    uint64_t first_ms = 0, read = 0;
    bool begins = true;
    parts event;
    dur__json json;
    dur__json_begin(&json, arena, block->bytes, "block", NULL);
    if (!dur__json_open(&json, '[', "a block") || !dur__json_more(&json, ']', &begins) ||
        !dur__json_u64(&json, &first_ms) || !dur__json_more(&json, ']', &begins) ||
        !dur__json_string(&json, &event.version.data, &event.version.size))
        return false;
    for (; read < block->count && dur__json_more(&json, ']', &begins); read++) {
        if (!element_read(&json, &event, first_ms)) return false;
        dur__buf_clear(text);
        event_write(text, block, out[read].event_id, &event);
        out[read].json = (dur_text){ dur_arena_memdup(arena, text->data, text->size), text->size };
    }
    return read == block->count && !dur__json_more(&json, ']', &begins) && dur__json_end(&json, block->bytes) == DUR_OK;
}

static bool unpack_all(dur_event_row *out, dur_arena *arena, const dur__block *block, dur__buf *text) {
    const char *data = block->bytes.data;
    size_t size = block->bytes.size, count = dur__block_events(block);
    bool good = count == block->count && size > 0;
    for (size_t i = 0; i < count; i++)
        out[i] = (dur_event_row){ .event_id = block->first_id + i, .kind = DUR_EVENT_UNKNOWN };
    if (good && data[0] == WHOLE) {
        out[0].json = (dur_text){ dur_arena_memdup(arena, data + 1, size - 1), size - 1 };
        if (count == 1) return true;
        good = false;
    }
    good = good && unpack(out, arena, block, text);
    for (size_t i = 0; i < count && !good; i++)
        out[i].json = i > 0 ? (dur_text){ "", 0 } : (dur_text){ dur_arena_memdup(arena, data, size), size };
    return good;
}

/* Whoever leaves by his way out leaves through here, so that the text goes. */
static bool unpack_leaving(dur_event_row *out, dur_arena *arena, const dur__block *block, dur__buf *text) {
    dur__way_out out_of_memory;
    if (DUR__OUT_OF_MEMORY(&out_of_memory)) {
        dur__buf_free(text);
        dur__memory_leave();
    }
    bool good = unpack_all(out, arena, block, text);
    dur__way_out_end(&out_of_memory);
    return good;
}

bool dur__block_unpack(dur_event_row *out, dur_arena *arena, const dur__block *block) {
    dur__buf text = { 0 };
    bool good = (dur__cover_leaves() ? unpack_leaving : unpack_all)(out, arena, block, &text);
    dur__buf_free(&text);
    return good;
}
