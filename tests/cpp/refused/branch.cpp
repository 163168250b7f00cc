/* durite: a branch is called with (durite::context &) */
#include <durite/durite.hpp>

void spawn(durite::context &ctx) {
    durite::branch one = ctx.spawn([](int) {});
}
