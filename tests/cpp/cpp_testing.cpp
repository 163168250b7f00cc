/*
 * cpp_testing.cpp: handlers in C++ under the testing library: no time passes, nodes die, and whether a handler is
 * unwound at each wait or never is not to be seen in its history.
 */
#include "tap.hpp"

#include <durite/testing.h>

using durite::context;
using tap::live;

static std::string order(context &ctx, std::string_view id) {
    live here;
    std::vector<std::string> steps{ std::string(ctx.activity("Reserve", id).get()) };
    durite::branch reminder = ctx.spawn([&steps](context &branch) {
        live own;
        for (;;) {
            branch.sleep(1h);
            steps.push_back("reminded");
        }
    });
    durite::future paid = ctx.message("Paid"), late = ctx.timer(24h);
    try {
        if (durite::select(paid, late) == late) throw std::runtime_error("never paid");
        steps.emplace_back(paid.get());
    } catch (const std::runtime_error &) {
        steps.emplace_back(ctx.activity("Release", id).get());
        throw;
    }
    std::string told;
    for (const std::string &step : steps)
        told += step + ";";
    return told;
}

static durite::handlers handlers() {
    return durite::handlers()
        .activity("Reserve", [word = std::string("reserved ")](std::string_view id) { return word + std::string(id); })
        .activity("Release", [word = std::string("released")] { return word; })
        .orchestration("Order", order);
}

static std::string run(const durite::handlers &all, bool crash, bool evict, bool pay, std::string &history) {
    dur_test_options options = {};
    options.size = sizeof(options);
    options.handlers = all.c();
    options.crash_every_wait = crash;
    options.evict_every_wait = evict;
    dur_test *t = nullptr;
    dur_error err = DUR_ERROR_INIT;
    if (dur_test_new(&t, &options, &err) != DUR_OK) return err.message;
    durite::start what = durite::start("Order", "o-1").instance("o-1");
    dur_start_args begin = what.c();
    (void)dur_test_start_ex(t, &begin, &err);
    (void)dur_test_advance(t, 2 * 3600 * 1000 + 1000, &err);
    if (pay) durite::client_ref(dur_test_client(t)).send("o-1", "Paid", "card");
    std::string told = dur_test_run_to_end(t, "o-1", &err) == DUR_OK ? dur_test_output(t, "o-1") : err.message;
    history = durite::client_ref(dur_test_client(t)).history("o-1");
    dur_test_free(t);
    return told;
}

static int scenario(dur_test *t, void *, dur_error *err) {
    durite::start what = durite::start("Order", "o-1").instance("o-1");
    dur_start_args begin = what.c();
    int code = dur_test_start_ex(t, &begin, err);
    return code == DUR_OK ? dur_test_run_to_end(t, "o-1", err) : code;
}

int main() {
    durite::handlers all = handlers();
    for (bool pay : { true, false }) {
        std::string wanted = pay ? "reserved o-1;reminded;reminded;card;" : "never paid", plain, other;
        tap::same(run(all, false, false, pay, plain), wanted, "in one go");
        tap::same(run(all, false, true, pay, other), wanted, "unwound at each wait");
        tap::check(plain == other, "with the same history", plain + "\n# " + other);
        tap::same(run(all, true, false, pay, other), wanted, "with a crash at each wait");
        tap::check(live::now == 0, "and nothing is left", std::to_string(live::now));

        dur_replay_report report = {};
        report.size = sizeof(report);
        dur_error err = DUR_ERROR_INIT;
        int code = dur_replay_history(&report, all.c(), plain.c_str(), &err);
        tap::check(code == DUR_OK && report.finished && live::now == 0, "its history fits", err.message);
    }
    dur_explore_options options = {};
    options.size = sizeof(options);
    options.handlers = all.c();
    options.scenario = scenario;
    options.runs = 200;
    options.crashes = options.reorder = options.cancels = true;
    dur_error err = DUR_ERROR_INIT;
    tap::check(dur_test_explore(nullptr, &options, &err) == DUR_OK, "200 explored runs", err.message);
    tap::check(live::now == 0 && live::ever > 1000, "leave nothing", std::to_string(live::now));
    return tap::end();
}
