/*
 * test_example_saga.c: what was reserved is released, whichever leg fails and whatever dies meanwhile.
 */
#include "example_test.h"

#define main example_main
#include "../../examples/saga.c"
#undef main

/* The world outside: an agency that knows a reservation by its name.  To reserve or release it twice does it once. */
typedef struct agency {
    char names[8][96];
    bool open[8];
} agency;

static bool *leg_of(agency *a, const char *name) {
    int i = 0;
    while (i < 7 && a->names[i][0] != '\0' && strcmp(a->names[i], name) != 0)
        i++;
    snprintf(a->names[i], sizeof(a->names[i]), "%s", name);
    return &a->open[i];
}

static dur_outcome agency_reserve(dur_act *act, const char *name, void *data) {
    if (strncmp(name, "car", 3) == 0) return dur_act_fail(act, "no car left");
    *leg_of(data, name) = true;
    return dur_act_complete(act, name);
}

static dur_outcome agency_release(dur_act *act, const char *name, void *data) {
    *leg_of(data, name) = false;
    return dur_act_complete(act, "");
}

static void a_trip_without_a_car_releases_the_rest_last_first(void **state) {
    (void)state;
    dur_test *t = NULL;
    OK(dur_test_new(&t, DUR_TEST(.handlers = handlers), &failure));
    OK(dur_test_start(t, &failure, "BookTrip", "Lisbon", .instance = "t"));
    OK(dur_test_run_to_end(t, "t", &failure));
    assert_string_equal(dur_test_output(t, "t"), "Lisbon not booked: no car left");
    assert_int_equal(dur_test_calls(t, "Release"), 3);
    assert_string_equal(dur_test_call_input(t, "Release", 0), "car for t"); /* perhaps it was reserved all the same */
    assert_string_equal(dur_test_call_input(t, "Release", 1), "hotel for t");
    assert_string_equal(dur_test_call_input(t, "Release", 2), "flight for t");
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

static void a_cancel_in_the_middle_of_releasing_keeps_nothing(void **state) {
    (void)state;
    dur_test *t = NULL;
    OK(dur_test_new(&t, DUR_TEST(.handlers = handlers), &failure));
    OK(dur_test_mock(t, &failure, "Release", .delay_ms = DUR_SECONDS(10)));
    OK(dur_test_start(t, &failure, "BookTrip", "Lisbon", .instance = "t"));
    OK(dur_test_run_until_blocked(t, &failure));
    assert_true(dur_test_waits(t, "t", DUR_WAIT_ACTIVITY, "Release"));
    OK(dur_test_cancel(t, "t", "never mind", &failure));
    OK(dur_test_run_to_end(t, "t", &failure));
    assert_int_equal(dur_test_calls(t, "Release"), 4); /* the one that was given up, twice */
    assert_string_equal(dur_test_call_input(t, "Release", 1), dur_test_call_input(t, "Release", 0));
    assert_int_equal(dur_test_events(t, "t", "ActivityCompleted"), 2 + 3);
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
        if (a->open[i]) return dur_error_set(err, DUR_EFAILED, false, "saga", "%s stays reserved", a->names[i]);
    return DUR_OK;
}

static void crashes_and_cancels_leave_nothing_reserved(void **state) {
    (void)state;
    agency a;
    OK(dur_test_explore(NULL,
                        DUR_EXPLORE(.handlers = handlers, .scenario = book, .invariant = nothing_stays_reserved,
                                    .data = &a, .runs = 300, .crashes = true, .reorder = true, .duplicates = true,
                                    .cancels = true),
                        &failure));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trip_without_a_car_releases_the_rest_last_first),
        cmocka_unit_test(a_trip_with_a_car_releases_nothing),
        cmocka_unit_test(a_cancel_in_the_middle_of_releasing_keeps_nothing),
        cmocka_unit_test(crashes_and_cancels_leave_nothing_reserved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
