/*
 * deadline.c: until when the caller of this thread waits for an answer (durite/sys/process.h).
 */
#include <durite/sys/process.h>

static _Thread_local uint64_t deadline_us = DUR_NO_DEADLINE;

uint64_t dur_deadline_us(void) {
    return deadline_us;
}

uint64_t dur_deadline_set(uint64_t us) {
    uint64_t before = deadline_us;
    deadline_us = us;
    return before;
}
