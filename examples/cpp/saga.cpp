/*
 * saga.cpp: several steps that belong together.  What undoes a step is said before the step is taken, under a name that
 * we choose: a cancel may come while a reservation is made, and nobody would know its name.
 *
 * The catch block waits, which is fine.  It catches errors, not `...`: a handler that is dropped goes on elsewhere, and
 * there is nothing to undo.
 */
#include "host.hpp"

static std::string book_trip(durite::context &ctx, std::string_view trip) {
    durite::saga saga(ctx);
    auto reserve = [&](std::string what) {
        std::string name = what + " for " + std::string(ctx.instance());
        saga.undo(durite::activity("Release", name));
        return ctx.await(durite::activity("Reserve", name));
    };
    try {
        std::string booked(reserve("flight"));
        booked += ", " + std::string(reserve("hotel"));
        booked += ", " + std::string(reserve("car"));
        return booked;
    } catch (const durite::error &e) {
        saga.compensate();
        throw std::runtime_error(std::string(trip) + " not booked: " + e.what());
    }
}

static std::string_view reserve(std::string_view name) {
    if (name.substr(0, 3) == "car") throw durite::final_failure("no car left"); /* no retry will help */
    return name;
}

/* What was never reserved is released without harm. */
static void release(std::string_view name) {
    std::cout << "released " << name << '\n';
}

int main(int argc, char **argv) {
    example e(
        argc, argv,
        durite::handlers().activity("Reserve", reserve).activity("Release", release).orchestration("Trip", book_trip));
    e.start("Trip", "Lisbon", "trip-1");
    e.expect_failure("trip-1", "Lisbon not booked: no car left");
    return e.end();
}
