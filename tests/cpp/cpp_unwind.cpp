/*
 * cpp_unwind.cpp: handlers that are dropped at every kind of wait, in every way, leave no object behind.
 */
#include "tap.hpp"

using durite::context;
using durite::future;
using tap::live;

static std::atomic<int> caught_errors, caught_all, hold_turn, in_turn;
static std::atomic<bool> changed;

/* ---- waits ---- */

static void deep(int depth, const context &ctx, const future &what) {
    live here;
    try {
        if (depth > 0)
            deep(depth - 1, ctx, what);
        else
            what.get();
    } catch (const std::exception &) { /* a drop is none of these */
        caught_errors++;
    }
}

/* Waits as it is told, until a message "Go". */
static void wait_as(const context &ctx, std::string_view kind) {
    live here;
    std::vector<live> more(3);
    future go = ctx.message("Go");
    if (kind == "get") {
        go.get();
    } else if (kind == "deep") {
        deep(20, ctx, go);
    } else if (kind == "select") {
        durite::select(go, ctx.timer(24h));
    } else if (kind == "any") {
        durite::any(ctx.timer(24h), go);
    } else if (kind == "join") {
        durite::join(go, ctx.timer(1ms));
    } else if (kind == "get_for") {
        go.get_for(24h);
    } else if (kind == "all_of") {
        ctx.all_of({ go, ctx.timer(1ms) }).get();
    } else if (kind == "first_of") {
        ctx.first_of({ go, ctx.timer(24h) }).get();
    } else if (kind == "timer") { /* never fires: the message does not help, the way out is another */
        durite::any(ctx.timer(24h), go);
    } else if (kind == "pulse") {
        durite::any(ctx.pulse("Never"), go);
    } else if (kind == "activity") {
        durite::any(ctx.schedule(durite::activity("Nowhere", "").tag("nobody serves this")), go);
    } else if (kind == "retry") {
        auto patient = durite::retry().attempts(1000).delay(1h);
        durite::any(ctx.schedule(durite::activity("Fails").retry(patient)), go);
    } else if (kind == "child") {
        durite::any(ctx.child("Child"), go);
    } else if (kind == "kv_remote") {
        durite::join(ctx.kv_remote(ctx.instance(), "key"), go);
    } else if (kind == "saga") {
        go.get();
        durite::saga saga(ctx);
        saga.undo(durite::activity("Quick"));
        saga.compensate();
    } else if (kind == "scope") {
        durite::scope inner(ctx);
        ctx.activity("Quick").get();
        go.get();
    } else if (kind == "try_message") {
        while (!ctx.try_message("Other")) {
            if (durite::any(go, ctx.timer(1h)) == go) return;
        }
    } else if (kind == "branch") {
        live outer;
        live *seen = &outer;
        durite::branch inner = ctx.spawn([seen, go](context &branch) {
            live own = *seen;
            durite::branch innermost = branch.spawn([&own, go](context &) {
                live copied = own;
                go.get();
                copied = own;
            });
            innermost.get();
        });
        inner.get();
    } else if (kind == "catch") {
        try {
            throw std::runtime_error("handled while it waits");
        } catch (const std::exception &e) {
            go.get();
            if (std::string_view(e.what()) != "handled while it waits") throw std::logic_error("not ours");
        }
    } else if (kind == "in flight") {
        struct waits {
            const future &go;
            live own;
            ~waits() { (void)go.try_get(); } /* never do this; it does no harm while an exception is in flight */
        };
        try {
            waits guard{ go, {} };
            throw std::runtime_error("in flight while it waits");
        } catch (const std::runtime_error &) {
            go.try_get();
        }
    } else {
        throw std::logic_error("no such wait");
    }
}

static const char *const kinds[] = {
    "get",   "deep",     "select", "any",       "join", "get_for", "all_of",      "first_of", "timer", "pulse",
    "retry", "activity", "child",  "kv_remote", "saga", "scope",   "try_message", "branch",   "catch", "in flight",
};

static std::string waits_once(context &ctx, std::string_view kind) {
    live here;
    ctx.status("waits");
    wait_as(ctx, kind);
    return "went on at " + std::string(kind);
}

/* ---- handlers that do not let themselves be dropped ---- */

static std::string swallows(context &ctx, std::string_view) {
    live here;
    ctx.status("waits");
    try {
        ctx.message("Go").get();
    } catch (...) {
        caught_all++;
        try { /* nothing of this is recorded */
            ctx.kv_set("dropped", "yes");
            ctx.status("dropped");
            ctx.activity("Quick");
            ctx.start(durite::child("Child"));
            if (!ctx.guid().empty() || ctx.random() != 0 || ctx.kv_get("dropped")) return "calls still work";
            ctx.timer(1ms).get();
        } catch (const durite::dropped &) {
            return "this is not looked at";
        }
        return "the second wait did not throw";
    }
    return "went on";
}

static std::string never_leaves(context &ctx, std::string_view) {
    ctx.status("waits");
    for (;;) {
        try {
            ctx.message("Go").get();
            return "went on";
        } catch (...) {
            caught_all++;
        }
    }
}

static std::string waits_in_destructor(context &ctx, std::string_view) {
    struct waits {
        context &ctx;
        live own;
        ~waits() {
            if (std::uncaught_exceptions() == 0) return;
            caught_all++;
            (void)ctx.activity("Quick").get<std::string>();
            (void)ctx.activity("Quick").get<int>();
            (void)durite::select(ctx.timer(1ms), ctx.message("Other"));
            durite::join(ctx.timer(1ms));
            ctx.sleep(1ms);
            (void)ctx.try_message("Other");
            durite::saga(ctx).compensate();
        }
    };
    waits guard{ ctx, {} };
    ctx.status("waits");
    ctx.message("Go").get();
    return "went on";
}

/* ---- handlers for other ways to be dropped ---- */

/* Its lease is taken away while it runs: its commit is refused. */
static std::string runs_long(context &ctx, std::string_view) {
    live here;
    in_turn++;
    while (hold_turn > 0)
        tap::pause();
    ctx.message("Go").get();
    return "went on";
}

static std::string changes(context &ctx, std::string_view) {
    live here;
    ctx.status("waits");
    if (changed) ctx.activity("Quick").get();
    ctx.message("Go").get();
    return "went on";
}

static std::string loses(context &ctx, std::string_view) {
    live here;
    ctx.status("waits");
    durite::branch loser = ctx.spawn([](context &branch) {
        live own;
        branch.message("Go").get();
    });
    durite::select(loser, ctx.timer(1ms));
    int left = live::now;
    {
        durite::branch given_up = ctx.spawn([](context &branch) {
            live own, branch_own;
            branch.sleep(1h);
        });
        ctx.sleep(1ms);
    }
    return ctx.replaying() || live::now <= left ? "no object of a loser is left" : "objects of losers are left";
}

static std::string misuses(context &ctx, std::string_view) {
    live here;
    try {
        ctx.kv_set("", "no key");
    } catch (const std::exception &) {
        caught_errors++;
    }
    return "went on";
}

static durite::handlers handlers() {
    durite::handlers all;
    all.activity("Quick", [] {});
    all.activity("Nowhere", [](durite::act &) {});
    all.activity("Fails", [](durite::act &) { throw std::runtime_error("again"); });
    all.orchestration("Child", [](context &ctx) { ctx.sleep(24h); });
    all.orchestration("Waits", waits_once).orchestration("Swallows", swallows).orchestration("Changes", changes);
    all.orchestration("NeverLeaves", never_leaves).orchestration("WaitsInDestructor", waits_in_destructor);
    all.orchestration("RunsLong", runs_long).orchestration("Loses", loses).orchestration("Misuses", misuses);
    return all;
}

/* ---- drops ---- */

static durite::store *store;
static durite::client *client;

static std::string begin(const char *name, const char *input, bool waits_for_status = true) {
    std::string id = tap::fresh(name);
    client->start(durite::start(name, input).instance(id));
    if (waits_for_status) client->wait_status(id, 0, 60s);
    return id;
}

static std::string result_of(const std::string &id) {
    durite::expected<std::string> got = client->try_result(id, 60s);
    return got ? *got : got.message();
}

static void nothing_left(const std::string &name) {
    bool none = tap::eventually([] { return live::now == 0; });
    tap::check(none && live::strangers == 0 && live::ever > 0 && caught_errors == 0, name,
               std::to_string(live::now) + " objects left, " + std::to_string(live::strangers) +
                   " gone on another thread, " + std::to_string(caught_errors) + " taken for an error");
    live::now = live::ever = live::strangers = caught_errors = 0;
}

static void at_every_wait() {
    for (const char *kind : kinds) {
        std::string id;
        {
            durite::runtime runtime(*store, handlers(), durite::runtime_options().evict_every_turn());
            id = begin("Waits", kind);
            nothing_left(std::string("evicted at ") + kind);
            client->send(id, "Go");
            tap::same(result_of(id), std::string("went on at ") + kind, std::string("and goes on at ") + kind);
            nothing_left(std::string("when it has ended at ") + kind);
        }
        durite::runtime runtime(*store, handlers());
        id = begin("Waits", kind);
        runtime.stop(60s);
        tap::check(live::now == 0, std::string("stopped at ") + kind, std::to_string(live::now) + " left");
        durite::runtime second(*store, handlers(), durite::runtime_options().double_run());
        client->send(id, "Go");
        tap::same(result_of(id), std::string("went on at ") + kind, std::string("and goes on elsewhere at ") + kind);
        second.stop(60s);
        nothing_left(std::string("after both at ") + kind);
    }
}

static void in_every_way(const char *kind) {
    std::string at = std::string(" at ") + kind;
    durite::runtime runtime(*store, handlers(), durite::runtime_options().cancel_grace(1ms));
    client->terminate(begin("Waits", kind), "by the test");
    nothing_left("terminated" + at);

    dur_deleted deleted = {};
    deleted.size = sizeof(deleted);
    dur_error err = DUR_ERROR_INIT;
    dur_client_delete(&deleted, client->c(), begin("Waits", kind).c_str(), true, &err);
    nothing_left("deleted" + at);

    std::string id = begin("Waits", kind);
    client->suspend(id, "by the test");
    nothing_left("suspended" + at);
    client->resume(id);
    client->send(id, "Go");
    tap::same(result_of(id), std::string("went on") + at, "and goes on when it is resumed" + at);

    id = begin("Waits", kind);
    client->cancel(id, "by the test"); /* some waits are caught, and it waits again: then the grace ends it */
    tap::check(client->try_result(id, 60s).code() == DUR_ECANCELLED, "cancelled" + at);
    caught_errors = 0; /* a cancelled wait is an error, which `deep` is right to catch */
    nothing_left("after a cancel" + at);
}

static void lost_lease() {
    durite::runtime runtime(*store, handlers());
    hold_turn = 1;
    std::string id = tap::fresh("RunsLong");
    std::thread starter([&] { client->start(durite::start("RunsLong").instance(id)); });
    tap::eventually([] { return in_turn > 0; });
    starter.join();
    client->suspend(id, "by the test");
    hold_turn = 0;
    nothing_left("its lease was lost while it ran");
    client->resume(id);
    client->send(id, "Go");
    tap::same(result_of(id), "went on", "and it goes on");
    runtime.stop(60s);
    nothing_left("a lost lease leaves nothing");
}

static void stubborn() {
    for (const char *name : { "Swallows", "NeverLeaves", "WaitsInDestructor" }) {
        caught_all = 0;
        durite::runtime runtime(*store, handlers());
        std::string id = begin(name, "");
        runtime.stop(60s);
        tap::check(live::now == 0 && caught_all > 0, std::string(name) + " is dropped all the same",
                   std::to_string(live::now) + " objects left, caught " + std::to_string(caught_all));
        if (std::string_view(name) == "NeverLeaves")
            tap::check(caught_all == 1000, "and is asked to leave 1000 times", std::to_string(caught_all));
        durite::runtime second(*store, handlers(), durite::runtime_options().double_run());
        std::string history = client->history(id);
        client->send(id, "Go");
        tap::same(result_of(id), "went on", std::string(name) + " goes on");
        tap::check(history.find("dropped") == history.npos && history.find("Quick") == history.npos,
                   std::string(name) + " recorded nothing while it was dropped", history);
        second.stop(60s);
        live::now = live::ever = live::strangers = 0;
    }
}

static void broken() {
    std::string id;
    {
        durite::runtime runtime(*store, handlers());
        id = begin("Changes", "");
    }
    nothing_left("before the change");
    changed = true;
    durite::runtime runtime(*store, handlers());
    client->send(id, "Go");
    tap::check(client->try_result(id, 60s).code() == DUR_ESUSPENDED, "a changed handler does not fit its history");
    nothing_left("a handler that does not fit its history is unwound");
    changed = false;
    client->resume(id);
    tap::same(result_of(id), "went on", "and goes on with the old code");
    runtime.stop(60s);
    nothing_left("after the change");
}

static void branches() {
    durite::runtime runtime(*store, handlers(), durite::runtime_options().double_run());
    tap::same(result_of(begin("Loses", "")), "no object of a loser is left", "branches that are given up are unwound");
    nothing_left("losers leave nothing");
    tap::same(result_of(begin("Misuses", "", false)), "dur_kv_set: key is empty", "misuse ends the handler");
    nothing_left("misuse leaves nothing");
}

int main(int argc, char **argv) {
    durite::store opened(argc > 1 ? argv[1] : "memory:");
    durite::client talks(opened);
    store = &opened;
    client = &talks;
    at_every_wait();
    for (const char *kind : { "get", "deep", "branch", "catch" })
        in_every_way(kind);
    lost_lease();
    stubborn();
    broken();
    branches();
    return tap::end();
}
