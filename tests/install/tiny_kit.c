/*
 * tiny_kit.c: the smallest program of somebody who writes a store.
 */
#include <durite/sys/kit.h>

int main(void) {
    return dur_kit_count() > 200 ? 0 : 1;
}
