/* durite: an orchestration is a function or a lambda without captures */
#include <durite/durite.hpp>

void add(durite::handlers &all, int captured) {
    all.orchestration("Captures", [captured](durite::context &) { return captured; });
}
