/*
 * tiny_stress.c: the smallest program that puts load on a store.
 */
#include <durite/sys/stress.h>
#include <stdio.h>

int main(void) {
    dur_stress_config config = *dur_stress_known(0);
    dur_stress_result result = { .size = sizeof(result) };
    dur_error err = DUR_ERROR_INIT;
    config.duration_s = 1;
    config.delay_ms = 1;
    int code = dur_stress_run(&result, "memory:", &config, NULL, NULL, &err);
    if (code != DUR_OK) fprintf(stderr, "%s\n", err.message);
    config.scenario = "nothing";
    return code == DUR_OK && result.completed > 0 && result.failed == 0 &&
                   dur_stress_run(&result, "memory:", &config, NULL, NULL, &err) == DUR_EINVAL
               ? 0
               : 1;
}
