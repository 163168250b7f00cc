/*
 * stress.h: what the handlers and the run of libdurite-stress share.
 */
#ifndef DURITE_STRESS_H
#define DURITE_STRESS_H

#include <durite/durite.h>
#include <durite/sys/stress.h>

#define STRESS_TASKS_MAX 1000u

/* Handlers of both scenarios. */
extern const dur_handler stress_handlers[];
/* Is it the scenario of large payloads? */
bool stress_is_large(const dur_stress_config *config);
/* Activities of one instance of the scenario. */
uint32_t stress_activities(const dur_stress_config *config);
/* The input of one instance, for dur_client_start; size is at least 64. */
void stress_input(const dur_stress_config *config, char *out, size_t size);

#endif
