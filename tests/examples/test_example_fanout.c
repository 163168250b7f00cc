/*
 * test_example_fanout.c: many activities at once; none is lost, whatever order they come in.
 */
#include "example_test.h"

#define main example_main
#include "../../examples/fanout.c"
#undef main

static int a_book(dur_test *t, void *data, dur_error *err) {
    return dur_test_start(t, err, "CountBook", data, .instance = "b");
}

static int nine_words(dur_test *t, void *data, dur_error *err) {
    (void)data;
    const char *output = dur_test_output(t, "b");
    if (output != NULL && strcmp(output, "9 words on 3 pages") == 0) return DUR_OK;
    return dur_error_set(err, DUR_EFAILED, false, "fanout", "%s",
                         output != NULL ? output : dur_test_waits_text(t, "b"));
}

static void every_page_is_counted_once(void **state) {
    (void)state;
    OK(dur_test_explore(NULL,
                        DUR_EXPLORE(.handlers = handlers, .scenario = a_book, .invariant = nine_words, .runs = 200,
                                    .data = "call me|some years ago|never mind how long", .crashes = true,
                                    .reorder = true, .clock_jumps = true),
                        &failure));
}

static void sixty_pages_take_as_long_as_one(void **state) {
    (void)state;
    char book[200] = "";
    dur_test *t = NULL;
    for (int i = 0; i < 60; i++)
        snprintf(book + i * 3, sizeof(book) - (size_t)i * 3, "%s", i < 59 ? "no|" : "no");
    OK(dur_test_new(&t, DUR_TEST(.handlers = handlers), &failure));
    OK(dur_test_mock(t, &failure, "CountWords", .result = "1", .delay_ms = DUR_SECONDS(10)));
    uint64_t begin_ms = dur_test_now_ms(t);
    OK(dur_test_start(t, &failure, "CountBook", book, .instance = "b"));
    OK(dur_test_run_to_end(t, "b", &failure));
    assert_string_equal(dur_test_output(t, "b"), "60 words on 60 pages");
    assert_int_equal(dur_test_now_ms(t) - begin_ms, DUR_SECONDS(10));
    dur_test_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_page_is_counted_once),
        cmocka_unit_test(sixty_pages_take_as_long_as_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
