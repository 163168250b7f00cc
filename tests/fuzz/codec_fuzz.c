/*
 * codec_fuzz.c: whatever is read as an event, work item, failure or history can be written, and reads the same again.
 */
#include <durite/sys/work.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Two writings of one value must be the same bytes. */
static void same(dur_text a, dur_text b) {
    if (a.size != b.size || memcmp(a.data, b.data, a.size) != 0) abort();
}

static void require(int code) {
    if (code != DUR_OK) abort();
}

static void known(int code) {
    if (code != DUR_OK && code != DUR_ECORRUPT && code != DUR_EUNSUPPORTED) abort();
}

static void try_event(dur_arena *arena, dur_text text) {
    dur_event event, again;
    dur_text first, second;
    int code = dur_event_from_json(&event, arena, text, NULL);
    known(code);
    if (code != DUR_OK) return;
    require(dur_event_to_json(&first, arena, &event, NULL));
    require(dur_event_from_json(&again, arena, first, NULL));
    require(dur_event_to_json(&second, arena, &again, NULL));
    same(first, second);
}

static void try_work(dur_arena *arena, dur_text text) {
    dur_work_item item, again;
    dur_message_row message;
    dur_text second;
    int code = dur_work_from_json(&item, arena, text, NULL);
    known(code);
    if (code != DUR_OK) return;
    require(dur_message_row_from_work(&message, arena, &item, NULL));
    require(dur_work_from_json(&again, arena, message.json, NULL));
    require(dur_work_to_json(&second, arena, &again, NULL));
    same(message.json, second);
}

static void try_failure(dur_arena *arena, dur_text text) {
    dur_failure failure, again;
    dur_text first, second;
    int code = dur_failure_from_json(&failure, arena, text, NULL);
    known(code);
    if (code != DUR_OK) return;
    if (dur_failure_display(arena, &failure) == NULL) abort();
    require(dur_failure_to_json(&first, arena, &failure, NULL));
    require(dur_failure_from_json(&again, arena, first, NULL));
    require(dur_failure_to_json(&second, arena, &again, NULL));
    same(first, second);
}

static void try_history(dur_arena *arena, dur_text text) {
    dur_event *events;
    dur_text first;
    size_t count;
    int code = dur_history_from_json(&events, &count, arena, text, NULL);
    known(code);
    if (code == DUR_OK) require(dur_history_to_json(&first, arena, events, count, NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    dur_arena *arena = dur_arena_new();
    dur_text text = { (const char *)data, size };
    try_event(arena, text);
    try_work(arena, text);
    try_failure(arena, text);
    try_history(arena, text);
    dur_arena_free(arena);
    return 0;
}
