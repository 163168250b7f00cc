/*
 * test_example_saga.c: what was reserved is released, whichever leg fails and whatever dies meanwhile.
 */
#include "example_test.h"

#define main example_main
#include "../../examples/saga.c"
#undef main

/* The world outside: an agency that knows a call again by its key. */
typedef struct agency {
    char open[8][96];
} agency;

static dur_outcome agency_reserve(dur_act *act, const char *what, void *data) {
    agency *a = data;
    if (strcmp(what, "car") == 0) return dur_act_fail(act, "no car left");
    for (int i = 0; i < 8; i++) {
        if (strcmp(a->open[i], dur_act_key(act)) == 0) break;
        if (a->open[i][0] != '\0') continue;
        snprintf(a->open[i], sizeof(a->open[i]), "%s", dur_act_key(act));
        break;
    }
    return dur_act_complete(act, dur_act_key(act));
}

static dur_outcome agency_release(dur_act *act, const char *reservation, void *data) {
    agency *a = data;
    for (int i = 0; i < 8; i++)
        if (strcmp(a->open[i], reservation) == 0) snprintf(a->open[i], sizeof(a->open[i]), "released");
    return dur_act_complete(act, "");
}

static void a_trip_without_a_car_releases_the_rest_last_first(void **state) {
    (void)state;
    dur_test *t = NULL;
    OK(dur_test_new(&t, DUR_TEST(.handlers = handlers), &failure));
    OK(dur_test_start(t, &failure, "BookTrip", "Lisbon", .instance = "t"));
    OK(dur_test_run_to_end(t, "t", &failure));
    assert_string_equal(dur_test_output(t, "t"), "Lisbon not booked: no car left");
    assert_int_equal(dur_test_calls(t, "Release"), 2);
    assert_memory_equal(dur_test_call_input(t, "Release", 0), "hotel", 5);
    assert_memory_equal(dur_test_call_input(t, "Release", 1), "flight", 6);
    dur_test_free(t);
}

static void a_trip_with_a_car_releases_nothing(void **state) {
    (void)state;
    dur_test *t = NULL;
    OK(dur_test_new(&t, DUR_TEST(.handlers = handlers), &failure));
    OK(dur_test_mock(t, &failure, "Reserve", .result = "ok"));
    OK(dur_test_start(t, &failure, "BookTrip", "Lisbon", .instance = "t"));
    OK(dur_test_run_to_end(t, "t", &failure));
    assert_string_equal(dur_test_output(t, "t"), "ok, ok, ok");
    assert_int_equal(dur_test_calls(t, "Release"), 0);
    dur_test_free(t);
}

static int book(dur_test *t, void *data, dur_error *err) {
    *(agency *)data = (agency){ 0 };
    dur_test_mock(t, err, "Reserve", .fn = agency_reserve, .data = data);
    dur_test_mock(t, err, "Release", .fn = agency_release, .data = data);
    return dur_test_start(t, err, "BookTrip", "Lisbon", .instance = "t");
}

static int nothing_stays_reserved(dur_test *t, void *data, dur_error *err) {
    const agency *a = data;
    if (dur_test_output(t, "t") == NULL) return dur_error_set(err, DUR_EFAILED, false, "saga", "it does not end");
    for (int i = 0; i < 8; i++)
        if (a->open[i][0] != '\0' && strcmp(a->open[i], "released") != 0)
            return dur_error_set(err, DUR_EFAILED, false, "saga", "%s stays reserved", a->open[i]);
    return DUR_OK;
}

static void crashes_leave_nothing_reserved(void **state) {
    (void)state;
    agency a;
    OK(dur_test_explore(NULL, DUR_EXPLORE(.handlers = handlers, .scenario = book, .invariant = nothing_stays_reserved,
                                          .data = &a, .runs = 300, .crashes = true, .reorder = true, .duplicates = true),
                        &failure));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trip_without_a_car_releases_the_rest_last_first),
        cmocka_unit_test(a_trip_with_a_car_releases_nothing),
        cmocka_unit_test(crashes_leave_nothing_reserved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
