/*
 * test_block.c: the events of a turn as one text: what core has written is packed, whatever it is; every text comes
 * back byte for byte; damaged blocks are survived.
 */
#include "core/block.h"
#include "core/encode.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ONE_MORE_(upper, name, role) +1
enum { EVENT_KINDS = 0 DUR_EVENT_KINDS(ONE_MORE_) };

enum { ALL = 1000000, EVENTS_MAX = 40 };

static dur_arena *arena;

static int setup(void **state) {
    (void)state;
    arena = dur_arena_new();
    return arena == NULL;
}
static int teardown(void **state) {
    (void)state;
    dur_arena_free(arena);
    return 0;
}

static dur_event_row row_of(uint64_t id, const char *text) {
    return (dur_event_row){ .event_id = id, .json = { text, strlen(text) } };
}

static dur_text packed(const char *instance, uint64_t execution, const dur_event_row *events, size_t count,
                       size_t bytes_max, size_t *used) {
    dur__buf out = { 0 };
    dur__buf_text(&out, "before"); /* it appends */
    *used = dur__block_pack(&out, instance, execution, events, count, bytes_max);
    assert_true(*used >= 1 && *used <= count);
    assert_memory_equal(out.data, "before", 6);
    assert_int_equal(out.data[out.size], '\0');
    dur_text text = { dur_arena_memdup(arena, out.data + 6, out.size - 6), out.size - 6 };
    dur__buf_free(&out);
    return text;
}

/* Pack all, unpack all, compare; how many blocks it took. */
static size_t round_trip(const char *instance, uint64_t execution, const dur_event_row *events, size_t count,
                         size_t bytes_max) {
    size_t blocks = 0;
    for (size_t at = 0, used = 0; at < count; at += used, blocks++) {
        dur__block block = { instance, execution, events[at].event_id, 0, { NULL, 0 } };
        block.bytes = packed(instance, execution, &events[at], count - at, bytes_max, &used);
        block.count = used;
        assert_int_equal(dur__block_events(&block), used);
        if (used > 1) assert_true(block.bytes.size <= bytes_max);
        dur_event_row *back = dur_arena_alloc(arena, used * sizeof(*back));
        assert_true(dur__block_unpack(back, arena, &block));
        for (size_t i = 0; i < used; i++) {
            const dur_text *is = &back[i].json, *was = &events[at + i].json;
            assert_int_equal(back[i].event_id, events[at + i].event_id);
            assert_int_equal(back[i].kind, DUR_EVENT_UNKNOWN);
            if (is->size != was->size || memcmp(is->data, was->data, was->size) != 0)
                fail_msg("\n%.*s\ncame back as\n%s\nfrom\n%s", (int)was->size, was->data, is->data, block.bytes.data);
            assert_int_equal(is->data[is->size], '\0');
        }
    }
    return blocks;
}

/* ---- what is stored ---- */

#define HEAD(id, source, stamp)                                                                                        \
    "{\"event_id\":" id source ",\"instance_id\":\"o-1\",\"execution_id\":1,\"timestamp_ms\":" stamp                   \
    ",\"duroxide_version\":\"0.1.0\",\"type\":"

static void a_turn_is_one_block_without_what_its_row_says(void **state) {
    (void)state;
    dur_event_row events[] = {
        row_of(3, HEAD("3", ",\"source_event_id\":2", "1700000000000") "\"ActivityCompleted\",\"result\":\"7\"}"),
        row_of(4, HEAD("4", "", "1700000000005") "\"TimerCreated\",\"fire_at_ms\":1700000060005}"),
        row_of(5, HEAD("5", "", "1700000000000") "\"KeyValuesCleared\"}"),
        row_of(6, HEAD("6", ",\"source_event_id\":4", "1700000000009") "\"TimerFired\",\"fire_at_ms\":1}"),
    };
    size_t used = 0;
    assert_string_equal(packed("o-1", 1, events, 4, ALL, &used).data,
                        "[1700000000000,\"0.1.0\",[\"ActivityCompleted\",{\"result\":\"7\"},2],"
                        "[\"TimerCreated\",{\"fire_at_ms\":1700000060005},0,5],[\"KeyValuesCleared\",{}],"
                        "[\"TimerFired\",{\"fire_at_ms\":1},4,9]]");
    assert_int_equal(used, 4);
    assert_int_equal(round_trip("o-1", 1, events, 4, ALL), 1);
}

static void a_block_ends_where_the_ids_or_the_room_end(void **state) {
    (void)state;
    dur_event_row events[] = {
        row_of(1, HEAD("1", "", "10") "\"ExternalSubscribed\",\"name\":\"a\"}"),
        row_of(2, HEAD("2", "", "10") "\"ExternalSubscribed\",\"name\":\"b\"}"),
        row_of(7, HEAD("7", "", "10") "\"ExternalSubscribed\",\"name\":\"c\"}"),
        row_of(8, HEAD("8", "", "9") "\"ExternalSubscribed\",\"name\":\"d\"}"), /* a clock that was set back */
        row_of(9, HEAD("9", "", "9") "\"ExternalSubscribed\",\"name\":\"e\"}"),
    };
    size_t used = 0;
    packed("o-1", 1, events, 5, ALL, &used);
    assert_int_equal(used, 2);
    assert_int_equal(round_trip("o-1", 1, events, 5, ALL), 3);
    assert_int_equal(round_trip("o-1", 1, events, 5, 0), 5);
    size_t both = packed("o-1", 1, events, 5, ALL, &used).size;
    packed("o-1", 1, events, 5, both, &used);
    assert_int_equal(used, 2);
    packed("o-1", 1, events, 5, both - 1, &used);
    assert_int_equal(used, 1);
}

/* ---- what core did not write, or not so ---- */

static void other_texts_are_kept_whole(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "{}",
        "[",
        "=",
        "[]",
        "null",
        "no JSON",
        "{\"event_id\":3}",
        "[1,\"v\",[\"k\",{}]]",
        "\n",
        "\xff\xfe",
        HEAD("3", "", "1"),
        HEAD("3", "", "1") "\"K\"",
        HEAD("3", "", "1") "\"K\",}",
        HEAD("3", "", "1") "\"K\"}}",
        HEAD("3", "", "1") "\"K\"} ",
        HEAD("3", "", "1") "\"K\"}\n",
        HEAD("3", "", "1") "\"K\",\"a\":1},{\"b\":2}",
        HEAD("3", "", "1") "\"K\", \"a\":1}",
        HEAD("3", "", "1") "\"K\",\"a\": 1}",
        HEAD("3", "", "1") "\"K\",\"a\":[1, 2]}",
        HEAD("3", "", "1") "\"K\",\n\"a\":1}",
        HEAD("3", "", "1") "\"K\",\"a\":\"\\u0000\"}",
        HEAD("3", "", "1") "\"K\",\"a\":\"\\ud800\"}",
        HEAD("3", "", "1") "\"K\",\"a\":\"\x80\"}",
        HEAD("3", "", "1") "\"K\",\"a\":01}",
        HEAD("3", "", "1") "\"K\",a:1}",
        HEAD("3", "", "1") "\"K\",\"a\":1,}",
        HEAD("3", "", "1") "\"\",\"a\":1}",
        HEAD("3", "", "1") "\"K\\u0041\"}",
        HEAD("3", "", "1") "7}",
        HEAD("4", "", "1") "\"K\"}",
        HEAD("03", "", "1") "\"K\"}",
        HEAD("3", "", "01") "\"K\"}",
        HEAD("3", ",\"source_event_id\":0", "1") "\"K\"}",
        HEAD("3", ",\"source_event_id\":02", "1") "\"K\"}",
        HEAD("3", ",\"source_event_id\":18446744073709551615", "1") "\"K\"}",
        HEAD("3", "", "18446744073709551615") "\"K\"}",
        HEAD("3", "", "1000000000000000000") "\"K\"}",
        HEAD("3", "", "-1") "\"K\"}",
        HEAD("3", "", "1.0") "\"K\"}",
        "{\"event_id\":3,\"instance_id\":\"o-2\",\"execution_id\":1,\"timestamp_ms\":1,\"duroxide_version\":\"0.1.0\","
        "\"type\":\"K\"}",
        "{\"event_id\":3,\"instance_id\":\"o-1\",\"execution_id\":2,\"timestamp_ms\":1,\"duroxide_version\":\"0.1.0\","
        "\"type\":\"K\"}",
        "{\"instance_id\":\"o-1\",\"event_id\":3,\"execution_id\":1,\"timestamp_ms\":1,\"duroxide_version\":\"0.1.0\","
        "\"type\":\"K\"}",
        "{\"event_id\":3,\"instance_id\":\"o-1\",\"execution_id\":1,\"timestamp_ms\":1,\"duroxide_version\":\"\","
        "\"type\":\"K\"}",
        "{\"event_id\":3,\"instance_id\":\"o-1\",\"execution_id\":1,\"timestamp_ms\":1,\"type\":\"K\","
        "\"duroxide_version\":\"0.1.0\"}",
        "{ \"event_id\":3,\"instance_id\":\"o-1\",\"execution_id\":1,\"timestamp_ms\":1,\"duroxide_version\":\"0.1.0\","
        "\"type\":\"K\"}",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        dur_event_row events[] = { row_of(3, texts[i]),
                                   row_of(4, HEAD("4", "", "1") "\"ExternalSubscribed\",\"name\":\"x\"}") };
        size_t used = 0;
        dur_text text = packed("o-1", 1, events, 2, ALL, &used);
        if (text.data[0] != '=' || used != 1) fail_msg("not whole: %s\nbut %s", texts[i], text.data);
        assert_string_equal(text.data + 1, texts[i]);
        assert_int_equal(round_trip("o-1", 1, events, 2, ALL), 2);
    }
}

static void what_may_look_odd_is_packed(void **state) {
    (void)state;
    static const char *const texts[] = {
        HEAD("3", "", "0") "\"K\",\"a\":18446744073709551615}",
        HEAD("3", "", "999999999999999999") "\"K\",\"a\":-1.5e+300,\"a\":null,\"type\":\"L\",\"event_id\":9}",
        HEAD("3", "", "1") "\"KindOfALaterVersion\",\"a\":{\"b\":[[],{},[true,false,\"\\/\\u00e9]}\"]]}}",
        HEAD("3", "", "1") "\"K\",\"\":\"{\\\"event_id\\\":3}\\n ]\",\"b\":\"\xc3\xa9\x7f\"}",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        dur_event_row event = row_of(3, texts[i]);
        size_t used = 0;
        assert_int_equal(packed("o-1", 1, &event, 1, ALL, &used).data[0], '[');
        round_trip("o-1", 1, &event, 1, ALL);
    }
}

static void ids_with_quotes_and_bytes_of_any_kind_come_back(void **state) {
    (void)state;
    static const char *const ids[] = { "a\"b", "a\\b", "a\nb", "\xf0\x9f\x98\x80", "\xff", "", "type\":\"K" };
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        dur_event event = { .kind = DUR_EVENT_EXTERNAL_SUBSCRIBED,
                            .event_id = 1,
                            .execution_id = 7,
                            .instance_id = ids[i],
                            .duroxide_version = "0.1.0",
                            .name = "n" };
        dur__buf text = { 0 };
        dur__event_encode(&text, &event);
        dur_event_row row = { .event_id = 1, .json = { text.data, text.size } };
        assert_int_equal(round_trip(ids[i], 7, &row, 1, ALL), 1);
        dur__buf_clear(&text); /* and as somebody writes it who knows of no escapes */
        dur__buf_format(&text, "{\"event_id\":1,\"instance_id\":\"%s\",\"execution_id\":7,\"timestamp_ms\":1,", ids[i]);
        dur__buf_text(&text, "\"duroxide_version\":\"0.1.0\",\"type\":\"K\"}");
        row.json = (dur_text){ text.data, text.size };
        assert_int_equal(round_trip(ids[i], 7, &row, 1, ALL), 1);
        dur__buf_free(&text);
    }
}

/* ---- random ones ---- */

static uint64_t next_random(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static uint64_t first_seed(void) {
    const char *env = getenv("DURITE_TEST_SEED");
    uint64_t seed = env != NULL ? strtoull(env, NULL, 10) : 20261118;
    print_message("seed %" PRIu64 "\n", seed);
    return seed;
}

static const char *random_text(uint64_t *seed) {
    static const char *const pieces[] = {
        "a", "\"", "\\", "\n", "}", "{", "]", "[", ",", "\xc3\xa9", "\x01", ":", "0"
    };
    dur__buf out = { 0 };
    for (uint64_t n = next_random(seed) % 24; n > 0; n--)
        dur__buf_text(&out, pieces[next_random(seed) % (sizeof(pieces) / sizeof(pieces[0]))]);
    char *text = dur_arena_strdup(arena, dur__buf_str(&out));
    dur__buf_free(&out);
    return text;
}

/* Any kind, with any of its texts. */
static dur_event random_event(uint64_t *seed, const char *instance, uint64_t id, uint64_t stamp) {
    dur_failure *failure = dur_arena_zalloc(arena, sizeof(*failure));
    *failure = (dur_failure){ .category = DUR_FAILURE_APPLICATION, .message = random_text(seed) };
    return (dur_event){ .kind = (dur_event_kind)(next_random(seed) % EVENT_KINDS),
                        .has_source_event_id = next_random(seed) % 2 == 0,
                        .source_event_id = 1 + next_random(seed) % 5,
                        .event_id = id,
                        .instance_id = instance,
                        .execution_id = 3,
                        .timestamp_ms = stamp,
                        .duroxide_version = "0.1.0",
                        .name = random_text(seed),
                        .version = random_text(seed),
                        .instance = random_text(seed),
                        .input = random_text(seed),
                        .output = random_text(seed),
                        .result = random_text(seed),
                        .data = random_text(seed),
                        .reason = random_text(seed),
                        .tag = next_random(seed) % 2 == 0 ? random_text(seed) : NULL,
                        .key = random_text(seed),
                        .value = random_text(seed),
                        .last_updated_at_ms = next_random(seed),
                        .details = failure,
                        .birth = next_random(seed) % 2 };
}

/* In place of a byte, before it, or without it. */
static void spoil(uint64_t *seed, dur__buf *text) {
    static const char alphabet[] = "\"\\{}[],: \n\t0129aetfn\x80\x01=";
    size_t at = (size_t)(next_random(seed) % text->size);
    char c = alphabet[next_random(seed) % (sizeof(alphabet) - 1)];
    switch (next_random(seed) % 3) {
    case 0:
        text->data[at] = c;
        break;
    case 1:
        dur__buf_char(text, ' ');
        memmove(text->data + at + 1, text->data + at, text->size - at - 1);
        text->data[at] = c;
        break;
    default:
        memmove(text->data + at, text->data + at + 1, text->size - at);
        text->size--;
        break;
    }
}

static dur_text random_json(uint64_t *seed, const dur_event *event, uint64_t spoils) {
    dur__buf text = { 0 };
    dur__event_encode(&text, event);
    for (; spoils > 0 && text.size > 1; spoils--)
        spoil(seed, &text);
    dur_text json = { dur_arena_memdup(arena, text.data, text.size), text.size };
    dur__buf_free(&text);
    return json;
}

static void whatever_core_writes_in_a_turn_is_one_block(void **state) {
    (void)state;
    uint64_t seed = first_seed();
    dur_event_row events[EVENTS_MAX];
    for (int run = 0; run < 1000; run++, dur_arena_reset(arena)) {
        uint64_t was = seed, first = 1 + next_random(&seed) % 100000, stamp = next_random(&seed) >> 12;
        size_t count = (size_t)(1 + next_random(&seed) % EVENTS_MAX);
        for (size_t i = 0; i < count; i++) {
            dur_event event = random_event(&seed, "order-1", first + i, stamp);
            events[i] = (dur_event_row){ .event_id = first + i, .json = random_json(&seed, &event, 0) };
            stamp += next_random(&seed) % 3;
        }
        size_t blocks = round_trip("order-1", 3, events, count, ALL);
        if (blocks != 1) fail_msg("seed %" PRIu64 ": %zu blocks of %zu events", was, blocks, count);
    }
}

static void texts_of_any_kind_come_back(void **state) {
    (void)state;
    uint64_t seed = first_seed();
    dur_event_row events[EVENTS_MAX];
    size_t packed_together = 0;
    for (int run = 0; run < 3000; run++, dur_arena_reset(arena)) {
        uint64_t id = 1 + next_random(&seed) % 10;
        size_t count = (size_t)(1 + next_random(&seed) % 6);
        for (size_t i = 0; i < count; i++, id += next_random(&seed) % 8 == 0 ? 2 : 1) {
            const char *whose = next_random(&seed) % 8 == 0 ? "order-2" : "order-1";
            dur_event event = random_event(&seed, whose, id, next_random(&seed) % 4);
            events[i] = (dur_event_row){ .event_id = id };
            events[i].json = random_json(&seed, &event, next_random(&seed) % 2 * (1 + next_random(&seed) % 3));
        }
        packed_together += count - round_trip("order-1", 3, events, count, (size_t)(1 + next_random(&seed) % 600));
    }
    assert_true(packed_together > 500); /* it was not only whole ones */
}

static void damaged_blocks_are_survived(void **state) {
    (void)state;
    uint64_t seed = first_seed();
    dur_event_row events[4], back[512];
    dur_error err = DUR_ERROR_INIT;
    dur_event decoded;
    size_t used = 0, found = 0;
    for (int run = 0; run < 3000; run++, dur_arena_reset(arena)) {
        for (size_t i = 0; i < 4; i++) {
            dur_event event = random_event(&seed, "o", i + 1, 5);
            events[i] = (dur_event_row){ .event_id = i + 1, .json = random_json(&seed, &event, 0) };
        }
        dur_text text = packed("o", 3, events, 4, ALL, &used);
        dur__buf bytes = { 0 };
        dur__buf_add(&bytes, text.data, text.size);
        if (run % 2 == 0) bytes.size = (size_t)(next_random(&seed) % bytes.size);
        for (uint64_t n = 1 + next_random(&seed) % 3; n > 0 && bytes.size > 1; n--)
            spoil(&seed, &bytes);
        /* the exact size, so that a sanitizer sees whoever reads behind it */
        char *exact = malloc(bytes.size > 0 ? bytes.size : 1);
        if (bytes.size > 0) memcpy(exact, bytes.data, bytes.size);
        dur__block block = { "o", 3, 1, run % 7 == 0 ? next_random(&seed) : 4, { exact, bytes.size } };
        size_t count = dur__block_events(&block);
        assert_true(count >= 1 && (count == block.count || count == 1));
        if (count <= 512 && !dur__block_unpack(back, arena, &block)) {
            found++;
            assert_int_not_equal(dur_event_from_json(&decoded, arena, back[0].json, &err), DUR_OK);
        }
        free(exact);
        dur__buf_free(&bytes);
    }
    assert_true(found > 2000);
}

static void a_block_of_nothing_is_damaged(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        uint64_t count;
    } blocks[] = {
        { "", 1 },
        { "", 0 },
        { "[]", 0 },
        { "[]", 1 },
        { "[1,\"v\"]", 1 },
        { "[1,\"v\",[\"K\",{}]]", 0 },
        { "[1,\"v\",[\"K\",{}]]", 2 },
        { "[1,\"v\",[\"K\",{}],[\"K\",{}]]", 1 },
        { "[1,\"v\",[\"K\",{}]]x", 1 },
        { "[1,\"v\",[\"K\",{},1,2,3]]", 1 },
        { "[1,\"v\",[\"K\",7]]", 1 },
        { "[1,\"v\",[\"K\"]]", 1 },
        { "[1,\"v\",[\"K\",{}]", 1 },
        { "=x", 2 },
        { "=x", UINT64_MAX },
        { "{}", 1 },
        { "[-1,\"v\",[\"K\",{}]]", 1 },
    };
    dur_event_row back[4];
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        dur__block block = { "o", 1, 1, blocks[i].count, { blocks[i].bytes, strlen(blocks[i].bytes) } };
        if (dur__block_unpack(back, arena, &block)) fail_msg("taken for good: %s", blocks[i].bytes);
        assert_string_equal(back[0].json.data, blocks[i].bytes);
    }
    dur__block good = { "o", 1, 1, 1, { "[1,\"v\",[\"K\",{}]]", 16 } };
    good.bytes.size = strlen(good.bytes.data);
    assert_true(dur__block_unpack(back, arena, &good));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_turn_is_one_block_without_what_its_row_says),
        cmocka_unit_test(a_block_ends_where_the_ids_or_the_room_end),
        cmocka_unit_test(other_texts_are_kept_whole),
        cmocka_unit_test(what_may_look_odd_is_packed),
        cmocka_unit_test(ids_with_quotes_and_bytes_of_any_kind_come_back),
        cmocka_unit_test(whatever_core_writes_in_a_turn_is_one_block),
        cmocka_unit_test(texts_of_any_kind_come_back),
        cmocka_unit_test(damaged_blocks_are_survived),
        cmocka_unit_test(a_block_of_nothing_is_damaged),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
