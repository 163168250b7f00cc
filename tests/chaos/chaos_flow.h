/*
 * chaos_flow.h: the handlers of every node.
 */
#ifndef TESTS_CHAOS_CHAOS_FLOW_H
#define TESTS_CHAOS_CHAOS_FLOW_H

#include <durite/durite.h>

extern const dur_handler chaos_handlers[];

/* The store, as soon as it can be opened; NULL: we were told to end, or it never can (said on standard error). */
dur_provider *open_somehow(const char *url);

#endif
