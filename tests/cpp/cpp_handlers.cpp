/*
 * cpp_handlers.cpp: what a handler in C++ may be, what it returns and throws, and what misuse says.
 */
#include "tap.hpp"

using durite::context;
using durite::future;
using tap::live;

static std::atomic<int> tries;

/* ---- activities ---- */

static void add_activities(durite::handlers &all) {
    all.activity("Nothing", [] {});
    all.activity("Number", [](int n) { return n + 1; });
    all.activity("Upper", [](std::string text) {
        for (char &c : text)
            c = static_cast<char>(c - 'a' + 'A');
        return text;
    });
    all.activity("Who", [](durite::act &act) { return act.name(); });
    all.activity("Throws", [](std::string_view what) {
        live here;
        if (what == "standard") throw std::runtime_error("a reason");
        if (what == "final") throw durite::final_failure("no use");
        if (what == "error") throw durite::error(DUR_ETIMEOUT, "the bank took too long");
        if (what == "number") throw 42;
        if (what == "bytes") throw std::runtime_error("caf\xe9");
        if (what == "utf8") throw std::runtime_error("caf\xc3\xa9");
    });
    all.activity("Flaky", [] {
        if (++tries < 3) throw std::runtime_error("attempt " + std::to_string(tries));
        return tries.load();
    });
    all.activity("NulByte", [] { return std::string("a\0b", 3); });
    all.activity("Starts", [](durite::act &act) {
        std::string id = std::string(act.instance()) + "/started";
        act.client().start(durite::start("Returns", "text").instance(id).exists(DUR_START_RETURN_EXISTING));
        return act.client().result(id, 60s);
    });
}

static std::string catches(context &ctx, std::string_view what) {
    live here;
    std::string told;
    try {
        ctx.activity("Throws", what).get();
    } catch (const durite::error &e) {
        told = e.what();
        ctx.activity("Nothing").get(); /* a wait inside the catch block */
        told += "/" + std::string(e.what()) + "/" + dur_code_name(e.code());
    }
    return told;
}

static std::string retries(context &ctx, std::string_view how) {
    durite::retry policy = durite::retry().attempts(5).delay(1ms);
    if (how == "asks") policy.when([](std::string_view reason, std::uint32_t) { return reason != "attempt 2"; });
    if (how == "throws") policy.when([](std::string_view, std::uint32_t) -> bool { throw 1; });
    if (how == "final") {
        future tried = ctx.schedule(durite::activity("Throws", "final").retry(policy));
        auto got = tried.try_get();
        return got.message() + (tried.final() ? ", final" : "");
    }
    return std::string(ctx.await(durite::activity("Flaky").retry(policy)));
}

/* ---- handlers ---- */

static durite::outcome returns(context &ctx, std::string_view how) {
    live here;
    if (how == "text") return "a text";
    if (how == "throws") throw std::runtime_error("a reason");
    if (how == "number") throw 42;
    if (how == "bytes") throw std::logic_error("caf\xe9");
    if (how == "nul") return std::string("a\0b", 3);
    if (how == "again" && ctx.execution() < 3) return durite::continue_as_new(how);
    if (how == "version") return durite::continue_as_new("text").version("2.0.0");
    return std::to_string(ctx.execution());
}

static std::string branches(context &ctx, std::string_view how) {
    if (how == "throws") {
        durite::branch one = ctx.spawn([](context &branch) {
            live here;
            branch.sleep(1ms);
            throw std::runtime_error("out of the branch");
        });
        auto got = one.try_get();
        return got.message() + "/" + dur_code_name(got.code());
    }
    if (how == "owner") { /* a branch drops the one that has started it, and itself with it */
        future owner;
        durite::branch one = ctx.spawn([&owner](context &outer) {
            live here;
            std::string own = "on the stack of the owner";
            durite::branch inner = outer.spawn([&owner, &own](context &branch) {
                live mine;
                struct looks {
                    std::string &own;
                    ~looks() { own += ", used by what it has started"; }
                } guard{ own };
                branch.sleep(1ms);
                owner.drop();
                branch.sleep(1ms);
            });
            inner.get();
        });
        owner = one;
        return dur_code_name(one.try_get().code());
    }
    if (how == "code") { /* a timeout inside is one outside, as with dur_await */
        durite::branch one = ctx.spawn([](context &branch) { branch.message("Never").get_for(1ms); });
        return dur_code_name(one.try_get().code());
    }
    if (how == "many") {
        std::vector<durite::branch> all;
        std::vector<std::string> squares(10);
        for (std::size_t i = 0; i < squares.size(); i++)
            all.push_back(ctx.spawn([&squares, i](context &branch) {
                branch.sleep(std::chrono::milliseconds(10 - i));
                squares[i] = branch.activity("Number", std::to_string(i)).get<std::string>();
            }));
        std::vector<future> futures(all.begin(), all.end());
        durite::join(futures);
        std::string told;
        for (const std::string &each : squares)
            told += each + " ";
        return told;
    }
    durite::branch never_run = ctx.spawn([own = live()](context &) { return "has run"; });
    durite::branch number = ctx.spawn([](context &) { return 7; });
    never_run = std::move(number);
    return std::to_string(never_run.get<int>());
}

static std::string world(context &ctx, std::string_view) {
    ctx.kv_set("b", "2");
    ctx.kv_set("a", "1");
    ctx.kv_set("c", "3");
    ctx.kv_clear("c");
    std::string told;
    for (const std::string &key : ctx.kv_keys())
        told += key + std::string(ctx.kv_get(key).value_or("?"));
    ctx.status("shown");
    told += ctx.status().value_or("?");
    told += ctx.kv_get("none") ? "!" : ",";
    auto from = ctx.now();
    ctx.sleep(2ms);
    told += ctx.now() - from >= 2ms ? "time," : "no time,";
    told += ctx.guid().size() == 36 && ctx.guid() != ctx.guid() ? "guid," : "no guid,";
    told += ctx.patched("new") ? "new," : "old,";
    told += ctx.kv_remote(ctx.instance(), "a").get();
    told += ctx.kv_remote(ctx.instance(), "none").none() ? "early," : ",";
    future none = ctx.kv_remote(ctx.instance(), "none");
    told += none.get().empty() && none.none() ? "none," : "some,";
    told += ctx.try_message("Never") ? "message," : "no message,";
    told += durite::select({ ctx.message("Never"), ctx.timer(1ms) }).get().empty() ? "timer," : "message,";
    told += ctx.await(durite::child("Returns", "text").instance(std::string(ctx.instance()) + "/child"));
    told += std::string(",") + (ctx.parent() ? "child" : "root");
    ctx.kv_clear_all();
    std::string_view id = ctx.start(durite::child("Returns", "text"));
    return told + (id.empty() ? "" : ",started");
}

static std::string misuses(context &ctx, std::string_view how) {
    live here;
    try {
        if (how == "nul") ctx.activity("Number", std::string_view("1\0", 2));
        if (how == "number") return std::to_string(ctx.activity("Upper", "x").get<int>());
        if (how == "empty") ctx.activity("");
        if (how == "null") future().get();
        if (how == "bytes") ctx.activity("Upper", "caf\xe9");
        if (how == "nothing") durite::select(std::vector<future>());
    } catch (const durite::error &e) {
        return std::string("caught: ") + e.what();
    }
    return "nothing";
}

static durite::store *store;
static durite::client *client;

static std::string run(const char *name, const char *input) {
    std::string id = tap::fresh(name);
    tries = 0;
    client->start(durite::start(name, input).instance(id));
    auto got = client->try_result(id, 60s);
    return got ? *got : dur_code_name(got.code()) + std::string(": ") + got.message();
}

static void runs() {
    durite::handlers all;
    add_activities(all);
    all.orchestration("Catches", catches).orchestration("Retries", retries).orchestration("Returns", returns);
    all.orchestration("Returns", "2.0.0", [](context &, std::string text) { return text + " of version 2"; });
    all.orchestration("Branches", branches).orchestration("World", world).orchestration("Misuses", misuses);
    all.orchestration("Call",
                      [](context &ctx, std::string_view name) { return ctx.activity(name, "41").get<std::string>(); });
    all.orchestration("CallUpper",
                      [](context &ctx, std::string_view text) { return ctx.activity("Upper", text).get(); });
    all.orchestration("NotANumber", [](context &ctx) { ctx.activity("Number", "twelve").get(); });
    durite::runtime runtime(*store, all, durite::runtime_options().double_run().worker_concurrency(4));
    tap::same(run("Call", "Number"), "42", "an activity of a number");
    tap::same(run("Call", "Who"), "Who", "an activity of (durite::act &)");
    tap::same(run("Call", "Nothing"), "", "an activity of nothing");
    tap::same(run("CallUpper", "shout"), "SHOUT", "an activity of a std::string");
    tap::same(run("NotANumber", ""), "DUR_EFAILED: \"twelve\" is not a number that fits", "an input that is no number");
    tap::same(run("Call", "NulByte"), "DUR_EFAILED: the result has a NUL byte at 1; texts are UTF-8 without NUL bytes",
              "a result with a NUL byte");
    tap::same(run("Call", "Starts"), "text of version 2", "an activity has a client");

    tap::same(run("Catches", "standard"), "a reason/a reason/DUR_EFAILED", "what() is the failure of an activity");
    tap::same(run("Catches", "final"), "no use/no use/DUR_EFAILED", "a final failure");
    tap::same(run("Catches", "error"), "the bank took too long/the bank took too long/DUR_EFAILED", "an error of ours");
    const char *none = "an exception that is no std::exception left the handler";
    tap::same(run("Catches", "number"), std::string(none) + "/" + none + "/DUR_EFAILED", "no std::exception");
    tap::same(run("Catches", "bytes"), "caf?/caf?/DUR_EFAILED", "what() that is not UTF-8");
    tap::same(run("Catches", "utf8"), "caf\xc3\xa9/caf\xc3\xa9/DUR_EFAILED", "what() that is UTF-8");

    tap::same(run("Retries", ""), "3", "exceptions are tried again");
    tap::same(run("Retries", "asks"), "DUR_EFAILED: attempt 2", "a predicate decides");
    tap::same(run("Retries", "throws"), "DUR_EFAILED: attempt 1", "a predicate that throws says no");
    tap::same(run("Retries", "final"), "no use, final", "a final failure is not tried again");

    tap::same(run("Branches", "throws"), "out of the branch/DUR_EFAILED", "what() is the failure of a branch");
    tap::same(run("Branches", "owner"), "DUR_ECANCELLED", "a branch that drops its owner");
    tap::same(run("Branches", "code"), "DUR_ETIMEOUT", "the code of a wait is that of its branch");
    tap::same(run("Branches", "many"), "1 2 3 4 5 6 7 8 9 10 ", "branches that capture by reference");
    tap::same(run("Branches", ""), "7", "a branch that is dropped before it has run");
    tap::same(run("World", ""), "a1b2shown,time,guid,new,1,none,no message,timer,text of version 2,root,started",
              "the world");

    tap::same(run("Misuses", "nul"),
              "caught: activity: the input has a NUL byte at 1; texts are UTF-8 without NUL bytes", "a NUL byte");
    tap::same(run("Misuses", "number"), "caught: \"X\" is not a number that fits", "a value that is no number");
    tap::same(run("Misuses", "empty"), "DUR_EFAILED: dur_activity: name is empty", "no name");
    tap::same(run("Misuses", "null"), "DUR_EFAILED: dur_try: future is NULL", "no future");
    tap::same(run("Misuses", "bytes"), "DUR_EFAILED: dur_activity: input is not UTF-8 at byte 3", "no UTF-8");
    tap::same(run("Misuses", "nothing"), "DUR_EFAILED: dur_any: nothing to wait for", "nothing to wait for");
    runtime.stop(60s);
    tap::check(live::now == 0, "and nothing is left", std::to_string(live::now));
}

static void ends() {
    durite::handlers all;
    all.orchestration("Returns", returns).orchestration("Returns", "2.0.0", [](context &ctx, std::string text) {
        return text + " of version " + std::string(ctx.version());
    });
    dur_registry *registry = nullptr;
    dur_registry_new(&registry, nullptr);
    dur_registry_add(registry, all.c(), nullptr);
    dur_registry_policy(registry, "Returns", "1.0.0", nullptr);
    durite::runtime_options options;
    options.raw().registry = registry;
    durite::runtime runtime(*store, durite::handlers(), options);
    dur_registry_free(registry);
    tap::same(run("Returns", "text"), "a text", "a text");
    tap::same(run("Returns", "again"), "3", "continue as new");
    tap::same(run("Returns", "version"), "text of version 2.0.0", "continue as new with a version");
    tap::same(run("Returns", "throws"), "DUR_EFAILED: a reason", "what() is the failure of a handler");
    tap::same(run("Returns", "number"), "DUR_EFAILED: an exception that is no std::exception left the handler",
              "a handler that throws no std::exception");
    tap::same(run("Returns", "bytes"), "DUR_EFAILED: caf?", "a handler's what() that is not UTF-8");
    tap::same(run("Returns", "nul"), "DUR_EFAILED: the result has a NUL byte at 1; texts are UTF-8 without NUL bytes",
              "a handler's result with a NUL byte");
}

template <class F> static std::string thrown(F &&f) {
    try {
        f();
    } catch (const durite::error &e) {
        return dur_code_name(e.code()) + std::string(": ") + e.what();
    }
    return "nothing";
}

static void hosts() {
    tap::check(thrown([] { durite::store bad("nowhere:"); }).find("DUR_EINVAL: ") == 0, "a URL that is none");
    tap::check(!durite::store::try_open("nowhere:"), "the same without an exception");
    durite::handlers twice;
    twice.activity("A", [] {}).activity("A", [] {});
    tap::same(thrown([&] { durite::runtime bad(*store, twice); }),
              "DUR_EEXISTS: activity \"A\" version 1.0.0 is registered already", "a handler that is there twice");
    tap::check(durite::runtime::try_start(*store, twice).code() == DUR_EEXISTS, "the same without an exception");
    tap::check(client->try_start(durite::start("X")).code() == DUR_EINVAL, "a start without an instance");
    tap::check(thrown([] { client->send("nobody", "Go"); }).find("DUR_ENOTFOUND: ") == 0, "a message to nobody");
    tap::check(thrown([] { client->info(std::string("nobody\0-else", 12)); }).find("DUR_EINVAL: instance has a NUL") ==
                   0,
               "an id with a NUL byte");
    tap::check(thrown([] { client->info("nobody"); }).find("DUR_ENOTFOUND: ") == 0, "asking about nobody");
    tap::same(thrown([] { future().get(); }), "DUR_EINVAL: get: not inside the orchestration that it belongs to",
              "a wait outside of a handler");
    auto shared = std::make_shared<int>(7);
    {
        durite::handlers all;
        all.activity("Captures", [shared] { return *shared; });
        all.orchestration("Call", [](context &ctx) { return ctx.activity("Captures").get<int>(); });
        durite::runtime first(*store, all);
        all = durite::handlers();
        durite::runtime second = std::move(first);
        tap::same(run("Call", ""), "7", "what an activity captures lives with the runtime");
        tap::check(shared.use_count() == 2, "once");
    }
    tap::check(shared.use_count() == 1, "and no longer");
}

int main(int argc, char **argv) {
    durite::store opened(argc > 1 ? argv[1] : "memory:");
    durite::client talks(opened);
    store = &opened;
    client = &talks;
    runs();
    ends();
    hosts();
    return tap::end();
}
