/*
 * order.cpp: an order waits for its payment, for a day at most.  The payment is a message, kept until it is asked for:
 * it may come at any time, also before anybody waits for it.
 */
#include "host.hpp"

static std::string_view order(durite::context &ctx, std::string_view id) {
    std::string_view slot = ctx.await(durite::activity("Reserve", id));
    durite::future paid = ctx.message("Paid");
    durite::future late = ctx.timer(id == "o-late" ? 25ms : 24h);
    if (durite::select(paid, late) == late) throw std::runtime_error("never paid");
    ctx.status("paid with " + paid.get<std::string>());
    return ctx.await(durite::activity("Ship", slot).retry(durite::retry().attempts(5).delay(200ms)));
}

static std::string reserve(std::string_view id) {
    return "slot of " + std::string(id);
}

static std::string ship(durite::act &act, std::string_view slot) {
    if (act.attempt() < 2) throw std::runtime_error("no van today"); /* tried again, as the order says */
    return std::string(slot) + " shipped";
}

int main(int argc, char **argv) {
    example e(argc, argv,
              durite::handlers().activity("Reserve", reserve).activity("Ship", ship).orchestration("Order", order));
    e.start("Order", "o-1", "o-1");
    e.client.send("o-1", "Paid", "card 42");
    e.expect("o-1", "slot of o-1 shipped");

    e.start("Order", "o-late", "o-late");
    e.expect_failure("o-late", "never paid");
    return e.end();
}
