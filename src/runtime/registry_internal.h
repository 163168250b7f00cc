/*
 * registry_internal.h: looking handlers up from inside the runtime.
 */
#ifndef DURITE_RUNTIME_REGISTRY_INTERNAL_H
#define DURITE_RUNTIME_REGISTRY_INTERNAL_H

#include <durite/registry.h>

/* One registered version of a name.  Lives as long as its registry. */
typedef struct dur__handler {
    dur_handler_kind kind;
    const char *name;
    const char *version;
    dur_activity_fn *activity;
    bool taken; /* an activity that the host takes: no function */
    dur_orchestration_fn *orchestration;
    size_t stack_bytes;
    void *data;
    dur_unwind_fn *unwind;
} dur__handler;

/* The exact version, or (NULL, "" or "0.0.0") the one that the policy chooses.  NULL: not registered. */
const dur__handler *dur__registry_find(dur_registry *registry, dur_handler_kind kind, const char *name,
                                       const char *version);

/* Runtimes hold references; the first one freezes. */
dur_registry *dur__registry_retain(dur_registry *registry);
void dur__registry_freeze(dur_registry *registry);

#endif
