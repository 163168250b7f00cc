/*
 * version.c: the version of the running library.
 */
#include <durite/version.h>

const char *dur_version(void) {
    return DUR_VERSION;
}
