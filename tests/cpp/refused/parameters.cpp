/* durite: an activity is called with (durite::act &, std::string_view) */
#include <durite/durite.hpp>

void add(durite::handlers &all) {
    all.activity("Wants", [](std::string_view, std::string_view) {});
}
