/* durite: a payload is a text */
#include <durite/durite.hpp>

double half(durite::future value) {
    return value.get<double>() / 2;
}
