/*
 * hostile_cxx.cpp: handlers in C++ that wait where exceptions are being handled.
 *
 * With HOSTILE_CXX_LIBRARY it is a library with these handlers for a program that is written in C.
 */
#include <durite/durite.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>

/* An exception that is in flight when its handler is dropped is nobody's to destroy: the stack is not unwound. */
extern "C" __attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
extern "C" const char *__lsan_default_suppressions(void) {
    return "leak:__cxa_allocate_exception";
}

static dur_future *go(dur_ctx *ctx) {
    return dur_pulse_ex(ctx, "Go", DUR_SITE);
}

/* Is the exception that is being handled here still ours? */
static bool handles(const char *text) {
    try {
        throw;
    } catch (const std::exception &e) {
        return std::strcmp(e.what(), text) == 0;
    } catch (...) {
        return false;
    }
}

static dur_outcome catches(dur_ctx *ctx, const char *input) {
    bool right = true;
    try {
        throw std::runtime_error(input);
    } catch (const std::exception &) {
        right = handles(input);
        (void)dur_await(go(ctx));
        right = right && handles(input) && std::uncaught_exceptions() == 0;
        try { /* a second one inside the first */
            throw std::logic_error("inner");
        } catch (const std::exception &) {
            (void)dur_await(go(ctx));
            right = right && handles("inner");
        }
        right = right && handles(input);
    }
    right = right && std::current_exception() == nullptr;
    return dur_complete(ctx, right ? "right" : "wrong");
}

namespace {
struct waits_in_flight {
    dur_ctx *ctx;
    bool *right;
    ~waits_in_flight() {
        int before = std::uncaught_exceptions();
        (void)dur_await(go(ctx));
        *right = before == 1 && std::uncaught_exceptions() == 1;
    }
};
} // namespace

static dur_outcome unwinds(dur_ctx *ctx, const char *input) {
    bool right = false;
    try {
        waits_in_flight guard = { ctx, &right };
        throw std::runtime_error(input);
    } catch (const std::exception &e) {
        right = right && std::strcmp(e.what(), input) == 0 && std::uncaught_exceptions() == 0;
    }
    return dur_complete(ctx, right ? "right" : "wrong");
}

static dur_outcome sees_none(dur_ctx *ctx, const char *) {
    bool right = std::uncaught_exceptions() == 0 && std::current_exception() == nullptr;
    (void)dur_await(go(ctx));
    right = right && std::uncaught_exceptions() == 0 && std::current_exception() == nullptr;
    return dur_complete(ctx, right ? "right" : "wrong");
}

static dur_handler handler(const char *name, dur_orchestration_fn *fn) {
    dur_handler made = {};
    made.size = sizeof(made);
    made.kind = DUR_HANDLER_ORCHESTRATION;
    made.name = name;
    made.orchestration = fn;
    return made;
}

extern "C" DUR_API const dur_handler *hostile_cxx_handlers(void);
extern "C" const dur_handler *hostile_cxx_handlers(void) {
    static dur_handler table[4] = {
        handler("Catches", catches), handler("Unwinds", unwinds), handler("SeesNone", sees_none), {}
    };
    table[3].size = sizeof(dur_handler);
    table[3].kind = DUR_HANDLER_END;
    return table;
}

#ifndef HOSTILE_CXX_LIBRARY

static const char *const names[] = { "Catches", "Unwinds", "SeesNone" };

static void must(int code, const dur_error &err) {
    if (code == DUR_OK) return;
    std::printf("not ok 1 - %s: %s\n", dur_code_name(static_cast<dur_code>(code)), err.message);
    std::exit(1);
}

/* All of them wait at once on one thread, then go on in another order than they came. */
static int wrong_ones(int count, bool evict) {
    dur_error err = DUR_ERROR_INIT;
    dur_provider *store = nullptr;
    dur_runtime *runtime = nullptr;
    dur_client *client = nullptr;
    int wrong = 0;
    must(dur_open(&store, "memory:", &err), err);
    must(dur_client_new(&client, store, &err), err);
    dur_runtime_options options = {};
    options.size = sizeof(options);
    options.store = store;
    options.handlers = hostile_cxx_handlers();
    options.evict_every_turn = evict;
    must(dur_runtime_start(&runtime, &options, &err), err);
    char id[32];
    for (int i = 0; i < count; i++) {
        std::snprintf(id, sizeof(id), "i-%d", i);
        dur_start_args args = {};
        args.size = sizeof(args);
        args.name = names[i % 3];
        args.input = id;
        args.instance = id;
        must(dur_client_start_ex(client, &args, &err), err);
    }
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < count; i++) { /* 7919 is a prime: each of them once */
            std::snprintf(id, sizeof(id), "i-%d", static_cast<int>(i * 7919L % count));
            bool subscribed = false;
            int kind = static_cast<int>(i * 7919L % count) % 3;
            if (turn == 1 && kind != 0) continue; /* these wait once */
            while (!subscribed) {                 /* an event before its subscription would be lost */
                char *history = nullptr;
                if (dur_client_history(&history, client, id, 0, nullptr) == DUR_OK) {
                    const char *first = std::strstr(history, "\"ExternalSubscribed\"");
                    subscribed = first != nullptr && (turn == 0 || std::strstr(first + 1, "\"ExternalSubscribed\""));
                }
                dur_free(history);
            }
            dur_message_args args = {};
            args.size = sizeof(args);
            args.instance = id;
            args.name = "Go";
            args.data = "";
            must(dur_client_pulse_ex(client, &args, &err), err);
        }
    }
    for (int i = 0; i < count; i++) {
        char *result = nullptr;
        std::snprintf(id, sizeof(id), "i-%d", i);
        int code = dur_client_result(&result, client, id, 300000, &err);
        if (code != DUR_OK || std::strcmp(result, "right") != 0) wrong++;
        dur_free(result);
    }
    must(dur_runtime_stop(runtime, 300000, &err), err);
    dur_client_free(client);
    dur_provider_close(store);
    return wrong;
}

int main() {
    int count = 500;
    const char *scale = std::getenv("DURITE_TEST_SCALE");
    if (scale != nullptr) count = count * std::atoi(scale) / 100 < 50 ? 50 : count * std::atoi(scale) / 100;
    std::printf("1..2\n");
    int wrong = wrong_ones(count, false), wrong_evicted = wrong_ones(count / 10, true);
    std::printf("# %d of %d wrong, %d of %d with replays\n", wrong, count, wrong_evicted, count / 10);
    std::printf("%s 1 - fault_h31_a_wait_inside_a_catch_block_keeps_its_exception\n", wrong == 0 ? "ok" : "not ok");
    std::printf("%s 2 - fault_h31_the_same_when_handlers_are_replayed\n", wrong_evicted == 0 ? "ok" : "not ok");
    return wrong + wrong_evicted > 0;
}

#endif
