/*
 * headers_cxx.cpp: a C++ program that includes everything, links against the shared library and calls it.
 *
 * The macros with named arguments are C; C++ calls the _ex functions.
 */
#include <durite/durite.h>

#include <cstdio>
#include <cstring>
#include <string>

static int tests;
static int failures;

static void check(bool holds, const char *name) {
    std::printf("%s %d - %s\n", holds ? "ok" : "not ok", ++tests, name);
    if (!holds) failures++;
}

static void collect(void *data, const dur_log_record *record) {
    static_cast<std::string *>(data)->append(record->message);
}

/* Compiled, not run: what a handler in C++ looks like. */
dur_outcome greet(dur_ctx *ctx, const char *name);
dur_outcome greet(dur_ctx *ctx, const char *name) {
    dur_activity_args args = {};
    args.size = sizeof(args);
    args.name = "Greet";
    args.input = name;
    args.site = DUR_SITE;
    return dur_complete(ctx, dur_await(dur_activity_ex(ctx, &args)));
}

int main() {
    std::printf("1..4\n");
    check(std::strcmp(dur_version(), DUR_VERSION) == 0, "the_library_has_the_version_of_its_headers");

    dur_error err = DUR_ERROR_INIT;
    dur_provider *store = nullptr;
    int code = dur_open(&store, nullptr, &err);
    check(code == DUR_EINVAL && err.message[0] != '\0', "opening_nothing_is_an_invalid_argument_with_a_message");

    std::string lines;
    code = dur_log_set_sink(collect, &lines, DUR_LOG_INFO);
    check(code == DUR_OK && dur_log_set_sink(nullptr, nullptr, DUR_LOG_INFO) == DUR_OK,
          "a_sink_can_be_set_and_removed");

    code = dur_open(&store, "memory:", &err);
    check(code == DUR_OK && std::strcmp(dur_provider_name(store), "memory") == 0, "a_store_opens");
    dur_provider_close(store);
    return failures == 0 ? 0 : 1;
}
