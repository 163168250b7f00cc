/*
 * host.hpp: what the examples share, so that each can show its own idea: a store, a runtime, a client, and comparing.
 *
 * Every example takes a store URL (default: memory:) and exits with 0 when it saw what it promised.  Double-run mode is
 * on: each turn is also replayed from its history on a fresh stack, so a nondeterministic handler is found at once.
 */
#ifndef EXAMPLE_HOST_HPP
#define EXAMPLE_HOST_HPP

#include <durite/durite.hpp>
#include <iostream>

using namespace std::chrono_literals;

class example {
  public:
    example(int argc, char **argv, const durite::handlers &handlers)
        : store(argc > 1 ? argv[1] : "memory:"), runtime(store, handlers, durite::runtime_options().double_run()),
          client(store) {}

    void start(const char *name, const char *input, const char *instance) {
        client.start(durite::start(name, input).instance(instance).exists(DUR_START_REPLACE_FINISHED));
    }

    void expect(const char *instance, std::string_view expected) {
        compare(instance, client.result(instance, 30s), expected);
    }

    void expect_failure(const char *instance, std::string_view reason) {
        compare(instance, client.try_result(instance, 30s).message(), reason);
    }

    int end() const { return wrong; }

    durite::store store;
    durite::runtime runtime;
    durite::client client;

  private:
    void compare(const char *instance, std::string_view got, std::string_view expected) {
        std::cout << instance << ": " << got << '\n';
        if (got == expected) return;
        std::cerr << instance << ": expected \"" << expected << "\"\n";
        wrong = 1;
    }

    int wrong = 0;
};

#endif
