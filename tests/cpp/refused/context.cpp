/* durite: an orchestration is called with (durite::context &, std::string_view) */
#include <durite/durite.hpp>

void add(durite::handlers &all) {
    all.orchestration("Wants", [](durite::act &, std::string_view) {});
}
