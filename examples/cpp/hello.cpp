/*
 * hello.cpp: the smallest whole program in C++.  Run twice on a file (sqlite:hello.db), the second time it prints what
 * is recorded, and runs nothing.
 */
#include <durite/durite.hpp>
#include <iostream>

static std::string greet(std::string_view name) {
    return "Hello, " + std::string(name) + "!";
}

static std::string_view hello(durite::context &ctx, std::string_view name) {
    return ctx.await(durite::activity("Greet", name));
}

int main(int argc, char **argv) try {
    durite::handlers handlers;
    handlers.activity("Greet", greet).orchestration("Hello", hello);
    durite::host host(argc > 1 ? argv[1] : "memory:", handlers);
    std::cout << host.client().run(durite::start("Hello", "world").instance("hello-1")) << '\n';
} catch (const durite::error &e) {
    std::cerr << e.what() << '\n';
    return 1;
}
