/* durite: an activity runs on several threads at a time, so its lambda cannot be mutable */
#include <durite/durite.hpp>

void add(durite::handlers &all) {
    all.activity("Counts", [count = 0](std::string_view) mutable { return ++count; });
}
