/*
 * tap.hpp: checks that print TAP, a store for the program, and objects that count themselves.
 */
#ifndef TESTS_CPP_TAP_HPP
#define TESTS_CPP_TAP_HPP

#include <durite/durite.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <unistd.h>

using namespace std::chrono_literals;

namespace tap {

inline int count, failures;

inline void check(bool holds, const std::string &name, const std::string &why = {}) {
    std::printf("%s %d - %s\n", holds ? "ok" : "not ok", ++count, name.c_str());
    if (!holds) std::printf("# %s\n", why.c_str());
    if (!holds) failures++;
}

inline void same(const std::string &got, const std::string &wanted, const std::string &name) {
    check(got == wanted, name, "got \"" + got + "\", wanted \"" + wanted + "\"");
}

inline int end() {
    std::printf("1..%d\n", count);
    return failures > 0;
}

/* Ids that no other run of the program has used on the same store. */
inline std::string fresh(const std::string &what) {
    static int serial;
    return what + "-" + std::to_string(getpid()) + "-" + std::to_string(++serial);
}

inline void pause() {
    std::this_thread::sleep_for(1ms);
}

template <class F> bool eventually(F &&holds) {
    for (int i = 0; i < 60000; i++) {
        if (holds()) return true;
        pause();
    }
    return false;
}

/* Objects of handlers: how many there are, and whether each goes on the thread that has made it. */
class live {
  public:
    live() : text_("a text that is too long for the object itself"), thread_(std::this_thread::get_id()) {
        now++, ever++;
    }
    live(const live &) : live() {}
    live &operator=(const live &) = default;
    ~live() {
        now--;
        if (thread_ != std::this_thread::get_id()) strangers++;
    }
    static inline std::atomic<int> now, ever, strangers;

  private:
    std::string text_; /* on the heap: a leak would be found */
    std::thread::id thread_;
};

} // namespace tap

#endif
