/* durite: a handler returns nothing, a text */
#include <durite/durite.hpp>

void add(durite::handlers &all) {
    all.activity("Returns", [](std::string_view) { return std::vector<int>(); });
}
