/*
 * test_example_chat.c: a conversation, with a client that waits for each answer, and with everything out of order.
 */
#include "example_test.h"

#define main example_main
#include "../../examples/chat.c"
#undef main

static void each_message_is_answered(void **state) {
    (void)state;
    dur_test *t = NULL;
    uint64_t seen = 0;
    OK(dur_test_new(&t, DUR_TEST(.handlers = handlers, .evict_every_wait = true), &failure));
    OK(dur_test_start(t, &failure, "Chat", "0", .instance = "c"));
    for (int i = 0; i < 3; i++) {
        dur_instance_info *info = NULL;
        OK(dur_test_send(t, &failure, "c", "Line", "hello"));
        OK(dur_client_wait_status(&info, dur_test_client(t), "c", seen, DUR_SECONDS(30), &failure));
        assert_string_equal(info->custom_status, "you said \"hello\"");
        seen = info->custom_status_version;
        dur_instance_info_free(info);
    }
    OK(dur_test_send(t, &failure, "c", "Line", "bye"));
    OK(dur_test_run_to_end(t, "c", &failure));
    assert_string_equal(dur_test_output(t, "c"), "3 answers");
    dur_test_free(t);
}

static int three_lines(dur_test *t, void *data, dur_error *err) {
    (void)data;
    static const char *const lines[] = { "a", "b", "c" };
    int code = dur_test_start(t, err, "Chat", "0", .instance = "c");
    for (size_t i = 0; code == DUR_OK && i < 3; i++)
        code = dur_test_send(t, err, "c", "Line", lines[i], .message_id = lines[i]);
    if (code != DUR_OK) return code;
    /* By the client and an hour later: it overtakes nothing. */
    return dur_client_send(dur_test_client(t), err, "c", "Line", "bye", .delay_ms = DUR_HOURS(1));
}

static int three_answers(dur_test *t, void *data, dur_error *err) {
    (void)data;
    const char *output = dur_test_output(t, "c");
    if (output != NULL && strcmp(output, "3 answers") == 0) return DUR_OK;
    return dur_error_set(err, DUR_EFAILED, false, "chat", "%s", output != NULL ? output : dur_test_waits_text(t, "c"));
}

static void no_line_is_lost_or_answered_twice(void **state) {
    (void)state;
    OK(dur_test_explore(NULL,
                        DUR_EXPLORE(.handlers = handlers, .scenario = three_lines, .invariant = three_answers,
                                    .runs = 200, .crashes = true, .reorder = true, .duplicates = true),
                        &failure));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_message_is_answered),
        cmocka_unit_test(no_line_is_lost_or_answered_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
