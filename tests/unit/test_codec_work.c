/*
 * test_codec_work.c: work items as JSON and as messages.
 */
#include <durite/sys/provider_methods.h>
#include <durite/sys/work.h>

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ONE_MORE_(upper, name, queue) +1
enum { WORK_KINDS = 0 DUR_WORK_KINDS(ONE_MORE_) };

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

static dur_text text_of(const char *text) {
    return (dur_text){ text, strlen(text) };
}

static const char *encode(const dur_work_item *item) {
    dur_text json;
    dur_error err = DUR_ERROR_INIT;
    if (dur_work_to_json(&json, arena, item, &err) != DUR_OK) fail_msg("%s", err.message);
    assert_int_equal(json.size, strlen(json.data));
    return json.data;
}

static dur_work_item decode(const char *text) {
    dur_work_item item;
    dur_error err = DUR_ERROR_INIT;
    if (dur_work_from_json(&item, arena, text_of(text), &err) != DUR_OK) fail_msg("%s\n%s", text, err.message);
    return item;
}

static const dur_failure failure = {
    .category = DUR_FAILURE_APPLICATION, .kind = DUR_FAILURE_ORCHESTRATION_FAILED, .message = "no", .retryable = true
};
static const dur_carried carried[] = { { "q", "1" }, { "q", "2" } };
#define CALL .instance = "i", .execution_id = 3, .id = 5
#define CALL_JSON "\"instance\":\"i\",\"execution_id\":3,\"id\":5"
#define DETAILS_JSON                                                                                                   \
    "\"details\":{\"Application\":{\"kind\":\"OrchestrationFailed\",\"message\":\"no\",\"retryable\":true}}"

static const struct golden {
    dur_work_item item;
    const char *text;
} goldens[] = {
    { { .kind = DUR_WORK_START_ORCHESTRATION,
        .instance = "i",
        .orchestration = "Order",
        .input = "x",
        .execution_id = 1 },
      "{\"StartOrchestration\":{\"instance\":\"i\",\"orchestration\":\"Order\",\"input\":\"x\",\"execution_id\":1}}" },
    { { .kind = DUR_WORK_START_ORCHESTRATION,
        .instance = "i",
        .orchestration = "Order",
        .input = "x",
        .version = "1.0.0",
        .parent_instance = "p",
        .has_parent_id = true,
        .parent_id = 4,
        .has_parent_execution_id = true,
        .parent_execution_id = 2,
        .execution_id = 1 },
      "{\"StartOrchestration\":{\"instance\":\"i\",\"orchestration\":\"Order\",\"input\":\"x\",\"version\":\"1.0.0\","
      "\"parent_instance\":\"p\",\"parent_id\":4,\"execution_id\":1,\"parent_execution_id\":2}}" },
    { { .kind = DUR_WORK_CONTINUE_AS_NEW, .instance = "i", .orchestration = "Order", .input = "x" },
      "{\"ContinueAsNew\":{\"instance\":\"i\",\"orchestration\":\"Order\",\"input\":\"x\",\"carry_forward_events\":[]}"
      "}" },
    { { .kind = DUR_WORK_CONTINUE_AS_NEW,
        .instance = "i",
        .orchestration = "Order",
        .input = "x",
        .version = "2.0.0",
        .parent_instance = "p",
        .has_parent_id = true,
        .parent_id = 4,
        .has_parent_execution_id = true,
        .parent_execution_id = 2,
        .carry_forward_events = carried,
        .carry_forward_count = 2,
        .initial_custom_status = "s" },
      "{\"ContinueAsNew\":{\"instance\":\"i\",\"orchestration\":\"Order\",\"input\":\"x\",\"version\":\"2.0.0\","
      "\"parent_instance\":\"p\",\"parent_id\":4,\"parent_execution_id\":2,"
      "\"carry_forward_events\":[[\"q\",\"1\"],[\"q\",\"2\"]],\"initial_custom_status\":\"s\"}}" },
    { { .kind = DUR_WORK_ACTIVITY_EXECUTE, CALL, .name = "Charge", .input = "9" },
      "{\"ActivityExecute\":{" CALL_JSON ",\"name\":\"Charge\",\"input\":\"9\"}}" },
    { { .kind = DUR_WORK_ACTIVITY_EXECUTE,
        CALL,
        .name = "Charge",
        .input = "9",
        .session_id = "s",
        .tag = "t",
        .orchestration_name = "Order",
        .orchestration_version = "1.0.0",
        .attempt = 2,
        .first_id = 5 },
      "{\"ActivityExecute\":{" CALL_JSON ",\"name\":\"Charge\",\"input\":\"9\",\"session_id\":\"s\",\"tag\":\"t\","
      "\"orchestration_name\":\"Order\",\"orchestration_version\":\"1.0.0\",\"attempt\":2,\"first_id\":5}}" },
    { { .kind = DUR_WORK_ACTIVITY_COMPLETED, CALL, .result = "ok" },
      "{\"ActivityCompleted\":{" CALL_JSON ",\"result\":\"ok\"}}" },
    { { .kind = DUR_WORK_ACTIVITY_FAILED, CALL, .details = &failure },
      "{\"ActivityFailed\":{" CALL_JSON "," DETAILS_JSON "}}" },
    { { .kind = DUR_WORK_TIMER_FIRED, CALL, .fire_at_ms = UINT64_MAX },
      "{\"TimerFired\":{" CALL_JSON ",\"fire_at_ms\":18446744073709551615}}" },
    { { .kind = DUR_WORK_EXTERNAL_RAISED, .instance = "i", .name = "Paid", .data = "d" },
      "{\"ExternalRaised\":{\"instance\":\"i\",\"name\":\"Paid\",\"data\":\"d\"}}" },
    { { .kind = DUR_WORK_QUEUE_MESSAGE, .instance = "i", .name = "orders", .data = "d", .message_id = "m-1" },
      "{\"QueueMessage\":{\"instance\":\"i\",\"name\":\"orders\",\"data\":\"d\",\"message_id\":\"m-1\"}}" },
    { { .kind = DUR_WORK_SUB_ORCH_COMPLETED, CALL, .result = "r" },
      "{\"SubOrchCompleted\":{\"parent_instance\":\"i\",\"parent_execution_id\":3,\"parent_id\":5,\"result\":\"r\"}}" },
    { { .kind = DUR_WORK_SUB_ORCH_FAILED, CALL, .details = &failure },
      "{\"SubOrchFailed\":{\"parent_instance\":\"i\",\"parent_execution_id\":3,\"parent_id\":5," DETAILS_JSON "}}" },
    { { .kind = DUR_WORK_CANCEL_INSTANCE, .instance = "i", .reason = "r" },
      "{\"CancelInstance\":{\"instance\":\"i\",\"reason\":\"r\"}}" },
    { { .kind = DUR_WORK_CANCEL_INSTANCE, .instance = "i", .reason = "r", .cancel_seq = 9 },
      "{\"CancelInstance\":{\"instance\":\"i\",\"reason\":\"r\",\"cancel_seq\":9}}" },
    { { .kind = DUR_WORK_CANCEL_INSTANCE,
        .instance = "i",
        .reason = "r",
        .parent_instance = "p",
        .has_parent_id = true,
        .parent_id = 4,
        .has_parent_execution_id = true,
        .parent_execution_id = 2 },
      "{\"CancelInstance\":{\"instance\":\"i\",\"parent_instance\":\"p\",\"parent_id\":4,\"parent_execution_id\":2,"
      "\"reason\":\"r\"}}" },
    { { .kind = DUR_WORK_CONTINUE_AS_NEW,
        .instance = "i",
        .orchestration = "Order",
        .input = "x",
        .parent_birth = 9007199254740991,
        .birth = 1,
        .depth = 7 },
      "{\"ContinueAsNew\":{\"instance\":\"i\",\"orchestration\":\"Order\",\"input\":\"x\","
      "\"parent_birth\":9007199254740991,\"birth\":1,\"depth\":7,\"carry_forward_events\":[]}}" },
    { { .kind = DUR_WORK_SUB_ORCH_COMPLETED, CALL, .parent_birth = 3, .result = "r" },
      "{\"SubOrchCompleted\":{\"parent_instance\":\"i\",\"parent_execution_id\":3,\"parent_id\":5,"
      "\"parent_birth\":3,\"result\":\"r\"}}" },
    { { .kind = DUR_WORK_SUB_ORCH_FAILED, CALL, .parent_birth = 3, .details = &failure },
      "{\"SubOrchFailed\":{\"parent_instance\":\"i\",\"parent_execution_id\":3,\"parent_id\":5,\"parent_birth\":"
      "3," DETAILS_JSON "}}" },
    { { .kind = DUR_WORK_CANCEL_INSTANCE, .instance = "i", .reason = "r", .parent_instance = "p", .parent_birth = 3 },
      "{\"CancelInstance\":{\"instance\":\"i\",\"parent_instance\":\"p\",\"parent_birth\":3,\"reason\":\"r\"}}" },
};
enum { GOLDENS = sizeof(goldens) / sizeof(goldens[0]) };

static void same_text(const char *a, const char *b) {
    if (a == NULL || b == NULL) {
        assert_true(a == b);
    } else {
        assert_string_equal(a, b);
    }
}

static void same_item(const dur_work_item *a, const dur_work_item *b) {
    assert_int_equal(a->kind, b->kind);
    assert_true(a->execution_id == b->execution_id && a->id == b->id && a->fire_at_ms == b->fire_at_ms);
    assert_true(a->has_parent_id == b->has_parent_id && a->parent_id == b->parent_id);
    assert_true(a->has_parent_execution_id == b->has_parent_execution_id);
    assert_true(a->parent_execution_id == b->parent_execution_id);
    assert_true(a->parent_birth == b->parent_birth && a->birth == b->birth && a->depth == b->depth);
    assert_true(a->attempt == b->attempt && a->cancel_seq == b->cancel_seq && a->first_id == b->first_id);
    const char *const ours[] = { a->instance,
                                 a->orchestration,
                                 a->name,
                                 a->input,
                                 a->version,
                                 a->parent_instance,
                                 a->result,
                                 a->data,
                                 a->reason,
                                 a->session_id,
                                 a->tag,
                                 a->initial_custom_status,
                                 a->message_id,
                                 a->orchestration_name,
                                 a->orchestration_version };
    const char *const theirs[] = { b->instance,
                                   b->orchestration,
                                   b->name,
                                   b->input,
                                   b->version,
                                   b->parent_instance,
                                   b->result,
                                   b->data,
                                   b->reason,
                                   b->session_id,
                                   b->tag,
                                   b->initial_custom_status,
                                   b->message_id,
                                   b->orchestration_name,
                                   b->orchestration_version };
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        same_text(ours[i], theirs[i]);
    assert_int_equal(a->carry_forward_count, b->carry_forward_count);
    for (size_t i = 0; i < a->carry_forward_count; i++)
        same_text(a->carry_forward_events[i].data, b->carry_forward_events[i].data);
    assert_true((a->details == NULL) == (b->details == NULL));
    if (a->details != NULL) same_text(dur_failure_display(arena, a->details), dur_failure_display(arena, b->details));
}

static void goldens_both_ways(void **state) {
    (void)state;
    bool seen[WORK_KINDS] = { false };
    for (size_t i = 0; i < GOLDENS; i++) {
        assert_string_equal(encode(&goldens[i].item), goldens[i].text);
        dur_work_item back = decode(goldens[i].text);
        same_item(&goldens[i].item, &back);
        seen[goldens[i].item.kind] = true;
    }
    for (size_t i = 0; i < WORK_KINDS; i++) {
        if (!seen[i]) fail_msg("no golden of %s", dur_work_kind_name((dur_work_kind)i));
    }
}

static void strangest_texts_come_back(void **state) {
    (void)state;
    char *large = malloc((1 << 20) + 1);
    memset(large, '\\', 1 << 20);
    large[1 << 20] = '\0';
    const char *const texts[] = { "", "\"}}", "\\", "\x01\x1f\x7f", "\xf0\x9f\x98\x80", large };
    for (size_t t = 0; t < sizeof(texts) / sizeof(texts[0]); t++) {
        for (size_t i = 0; i < GOLDENS; i++) {
            dur_work_item item = goldens[i].item;
            const char **fields[] = { &item.instance,
                                      &item.orchestration,
                                      &item.name,
                                      &item.input,
                                      &item.version,
                                      &item.parent_instance,
                                      &item.result,
                                      &item.data,
                                      &item.reason,
                                      &item.session_id,
                                      &item.tag,
                                      &item.initial_custom_status,
                                      &item.message_id,
                                      &item.orchestration_name,
                                      &item.orchestration_version };
            for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
                if (*fields[f] != NULL) *fields[f] = texts[t];
            }
            dur_work_item back = decode(encode(&item));
            same_item(&item, &back);
            dur_arena_reset(arena);
        }
    }
    free(large);
}

static void texts_of_other_writers(void **state) {
    (void)state;
    dur_work_item item = decode("{\"StartOrchestration\":{\"parent_id\":null,\"parent_instance\":null,\"version\":null,"
                                "\"zone\":{\"a\":[{}]},\"input\":\"\",\"orchestration\":\"o\",\"instance\":\"i\"}}");
    assert_true(item.execution_id == 1 && item.version == NULL && !item.has_parent_id);
    item = decode("{\"ContinueAsNew\":{\"instance\":\"i\",\"orchestration\":\"o\",\"input\":\"\",\"version\":null}}");
    assert_int_equal(item.carry_forward_count, 0);
    item = decode(" { \"Time\\u0072Fired\" : { \"fire_at_ms\" : 1 , "
                  "\"id\":2,\"execution_id\":3,\"instance\":\"i\",\"name\":7 } } ");
    assert_int_equal(item.kind, DUR_WORK_TIMER_FIRED);
    assert_null(item.name);
}

static void broken_items_say_what_and_where(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int code;
        const char *message;
    } cases[] = {
        { "{\"Later\":{\"a\":1}}", DUR_EUNSUPPORTED, "work item: unknown kind \"Later\" at byte 2" },
        { "\"Later\"", DUR_EUNSUPPORTED, "work item: unknown kind \"Later\" at byte 1" },
        { "{\"Later\":{\"a\":1}", DUR_ECORRUPT, "work item: expected ',' or '}', found the end at byte 16" },
        { "{\"Later\":{\"a\":01}}", DUR_ECORRUPT, "work item: expected ',' or '}', found '1' at byte 15" },
        { "\"TimerFired\"", DUR_ECORRUPT, "work item: TimerFired without fields at byte 12" },
        { "{}", DUR_ECORRUPT, "work item: no kind at byte 2" },
        { "{\"CancelInstance\":{\"instance\":\"i\"}}", DUR_ECORRUPT,
          "work item: CancelInstance has no \"reason\" at byte 34" },
        { "{\"CancelInstance\":{\"instance\":\"i\",\"reason\":\"\"},\"x\":1}", DUR_ECORRUPT,
          "work item: more than one kind at byte 47" },
        { "{\"CancelInstance\":[]}", DUR_ECORRUPT, "work item: expected an object, found '[' at byte 18" },
        { "7", DUR_ECORRUPT, "work item: expected an object, found '7' at byte 0" },
        { "", DUR_ECORRUPT, "work item: expected an object, found the end at byte 0" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        dur_work_item item;
        dur_error err = DUR_ERROR_INIT;
        int code = dur_work_from_json(&item, arena, text_of(cases[i].text), &err);
        if (code != cases[i].code || strcmp(err.message, cases[i].message) != 0)
            fail_msg("%s\n%s: %s", cases[i].text, dur_code_name(code), err.message);
    }
    dur_work_item item;
    assert_int_equal(dur_work_from_json(NULL, arena, text_of("{}"), NULL), DUR_EINVAL);
    assert_int_equal(dur_work_from_json(&item, NULL, text_of("{}"), NULL), DUR_EINVAL);
    assert_int_equal(dur_work_from_json(&item, arena, (dur_text){ NULL, 1 }, NULL), DUR_EINVAL);
}

static void incomplete_items_are_not_written(void **state) {
    (void)state;
    dur_text json;
    dur_message_row message;
    dur_error err = DUR_ERROR_INIT;
    dur_work_item item = { .kind = DUR_WORK_QUEUE_MESSAGE, .instance = "i", .name = "n" };
    assert_int_equal(dur_message_row_from_work(&message, arena, &item, &err), DUR_EINVAL);
    assert_string_equal(err.message, "QueueMessage: data is required");
    item.data = "\xe2\x82";
    assert_int_equal(dur_work_to_json(&json, arena, &item, &err), DUR_EINVAL);
    assert_string_equal(err.message, "QueueMessage: data is not UTF-8 at byte 0");
    item.kind = DUR_WORK_UNKNOWN;
    assert_int_equal(dur_work_to_json(&json, arena, &item, &err), DUR_EINVAL);
    assert_int_equal(dur_work_to_json(&json, arena, NULL, &err), DUR_EINVAL);
    assert_int_equal(dur_message_row_from_work(NULL, arena, &item, &err), DUR_EINVAL);
}

static void messages_carry_the_columns(void **state) {
    (void)state;
    for (size_t i = 0; i < GOLDENS; i++) {
        const dur_work_item *item = &goldens[i].item;
        dur_message_row message;
        dur_error err = DUR_ERROR_INIT;
        assert_int_equal(dur_message_row_from_work(&message, arena, item, &err), DUR_OK);
        bool identified = item->kind == DUR_WORK_ACTIVITY_EXECUTE || item->kind == DUR_WORK_TIMER_FIRED;
        assert_int_equal(message.kind, item->kind);
        same_text(message.instance, item->instance);
        assert_true(message.execution_id == (identified ? item->execution_id : 0));
        assert_true(message.activity_id == (identified ? item->id : 0));
        assert_true(message.due_ms == (item->kind == DUR_WORK_TIMER_FIRED ? item->fire_at_ms : 0));
        same_text(message.session_id, item->session_id);
        same_text(message.tag, item->tag);
        same_text(message.queue, item->kind == DUR_WORK_QUEUE_MESSAGE ? item->name : NULL);
        bool keyed = item->kind == DUR_WORK_QUEUE_MESSAGE && item->message_id != NULL; /* an id belongs to a queue */
        same_text(message.message_id, keyed ? "6:orders/m-1" : item->message_id);
        assert_string_equal(message.json.data, goldens[i].text);
    }
    assert_string_equal(dur_work_kind_name(DUR_WORK_UNKNOWN), "?");
}

static void handlers_are_known_by_name_and_version(void **state) {
    (void)state;
    assert_string_equal(dur_handler_key(arena, "Order", "1.2.3"), "Order@1.2.3");
    assert_string_equal(dur_handler_key(arena, "Order", NULL), "Order@");
    assert_string_equal(dur_handler_key(arena, "Order", ""), "Order@");
    assert_string_equal(dur_handler_key(arena, "Order", "0.0.0"), "Order@");
    assert_string_equal(dur_handler_key(arena, NULL, NULL), "@");
    static const char *const keys[] = { "A@", "B@1.0.0", "C@" };
    const dur_handler_filter some = { keys, 3 }, none = { NULL, 0 };
    assert_true(dur_handler_passes(NULL, "X@"));
    assert_true(dur_handler_passes(&some, "A@") && dur_handler_passes(&some, "B@1.0.0"));
    assert_true(dur_handler_passes(&some, "C@") && dur_handler_passes(&some, NULL) && dur_handler_passes(&some, ""));
    assert_false(dur_handler_passes(&some, "B@") || dur_handler_passes(&some, "B@1.0.01"));
    assert_false(dur_handler_passes(&none, NULL) || dur_handler_passes(&none, "A@"));
}

static void truncations_and_mutations(void **state) {
    (void)state;
    uint64_t seed = 42;
    print_message("seed %" PRIu64 "\n", seed);
    for (size_t i = 0; i < GOLDENS; i++) {
        size_t whole = strlen(goldens[i].text);
        for (size_t size = 0; size < whole + 500; size++) {
            dur_work_item item;
            size_t length = size < whole ? size : whole;
            char *exact = malloc(length + 1);
            memcpy(exact, goldens[i].text, length);
            if (size >= whole) {
                seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
                exact[(seed >> 33) % length] = (char)(seed >> 56);
            }
            int code = dur_work_from_json(&item, arena, (dur_text){ exact, length }, NULL);
            free(exact);
            if (size < whole) assert_true(code == DUR_ECORRUPT);
            if (code == DUR_OK) {
                dur_work_item back = decode(encode(&item));
                same_item(&item, &back);
            }
        }
        dur_arena_reset(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(goldens_both_ways, setup, teardown),
        cmocka_unit_test_setup_teardown(strangest_texts_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(texts_of_other_writers, setup, teardown),
        cmocka_unit_test_setup_teardown(broken_items_say_what_and_where, setup, teardown),
        cmocka_unit_test_setup_teardown(incomplete_items_are_not_written, setup, teardown),
        cmocka_unit_test_setup_teardown(messages_carry_the_columns, setup, teardown),
        cmocka_unit_test_setup_teardown(handlers_are_known_by_name_and_version, setup, teardown),
        cmocka_unit_test_setup_teardown(truncations_and_mutations, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
