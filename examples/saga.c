/*
 * saga.c: several steps that belong together.  The body is a branch; a failed await ends it, and what was done is
 * undone, last step first.  What undoes a step is said before the step is taken, under a name that we choose: a cancel
 * may come while a reservation is made, and nobody would know its name.
 */
#include "host.h"

static dur_outcome reserve(dur_act *act, const char *name) {
    if (strncmp(name, "car", 3) == 0) return dur_act_fail(act, "no car left");
    return dur_act_complete(act, name);
}

/* What was never reserved is released without harm. */
static dur_outcome release(dur_act *act, const char *name) {
    printf("released %s\n", name);
    return dur_act_complete(act, "");
}

static const char *reserve_leg(dur_ctx *ctx, dur_saga *saga, const char *what) {
    const char *name = dur_format(ctx, "%s for %s", what, dur_instance_id(ctx));
    dur_saga_undo(saga, "Release", name);
    return dur_await(dur_activity(ctx, "Reserve", name));
}

static dur_outcome book_legs(dur_ctx *ctx, void *saga) {
    const char *flight = reserve_leg(ctx, saga, "flight");
    const char *hotel = reserve_leg(ctx, saga, "hotel");
    const char *car = reserve_leg(ctx, saga, "car");
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
