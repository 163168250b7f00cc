/*
 * saga.c: several steps that belong together.  The body is a branch; a failed await ends it, and what was done is
 * undone, last step first.
 */
#include "host.h"

static dur_outcome reserve(dur_act *act, const char *what) {
    if (strcmp(what, "car") == 0) return dur_act_fail(act, "no car left");
    return dur_act_completef(act, "%s#%llu", what, (unsigned long long)dur_act_id(act));
}

static dur_outcome release(dur_act *act, const char *reservation) {
    printf("released %s\n", reservation);
    return dur_act_complete(act, "");
}

static dur_outcome book_legs(dur_ctx *ctx, void *arg) {
    dur_saga *saga = arg;
    const char *flight = dur_await(dur_activity(ctx, "Reserve", "flight"));
    dur_saga_undo(saga, "Release", flight);
    const char *hotel = dur_await(dur_activity(ctx, "Reserve", "hotel"));
    dur_saga_undo(saga, "Release", hotel);
    const char *car = dur_await(dur_activity(ctx, "Reserve", "car"));
    return dur_completef(ctx, "%s, %s, %s", flight, hotel, car);
}

static dur_outcome book_trip(dur_ctx *ctx, const char *trip) {
    dur_saga *saga = dur_saga_begin(ctx);
    dur_future *legs = dur_spawn(ctx, book_legs, saga);
    const char *booked;
    if (dur_try(legs, &booked) == DUR_OK) return dur_complete(ctx, booked);
    dur_saga_compensate(saga);
    return dur_failf(ctx, "%s not booked: %s", trip, dur_reason(legs));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Reserve", reserve),
    DUR_ACTIVITY("Release", release),
    DUR_ORCHESTRATION("BookTrip", "1.0.0", book_trip),
    DUR_HANDLERS_END,
};

int main(int argc, char **argv) {
    example e;
    example_begin(&e, argc, argv, handlers);
    example_start(&e, "BookTrip", "Lisbon", "trip-1");
    example_expect_failure(&e, "trip-1", "Lisbon not booked: no car left");
    return example_end(&e);
}
