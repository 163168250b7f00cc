/*
 * registry.h: which names and versions this program can run.
 *
 * Handlers are declared in tables; a runtime takes a table, or a registry made of several.
 *
 *     static const dur_handler handlers[] = {
 *         DUR_ACTIVITY("Greet", greet),
 *         DUR_ORCHESTRATION("Hello", "1.0.0", hello),
 *         DUR_HANDLERS_END,
 *     };
 */
#ifndef DURITE_REGISTRY_H
#define DURITE_REGISTRY_H

#include <durite/activity.h>
#include <durite/orchestration.h>

DUR_BEGIN_DECLS

typedef enum dur_handler_kind { DUR_HANDLER_END, DUR_HANDLER_ACTIVITY, DUR_HANDLER_ORCHESTRATION } dur_handler_kind;

typedef void dur_unwind_fn(void);

typedef struct dur_handler {
    size_t size;
    dur_handler_kind kind;
    const char *name;    /* not empty, at most 512 bytes, not starting with "__duroxide_syscall:" */
    const char *version; /* semver; NULL: "1.0.0" */
    dur_activity_fn *activity;
    dur_orchestration_fn *orchestration;
    size_t stack_bytes; /* 0: as the runtime's option; else 16 KiB to 1 GiB */
    bool taken;         /* an activity that the host takes and ends by itself: no function (durite/step.h) */
    void *data;         /* yours: dur_act_data, dur_handler_data; must live as long as a runtime has the handler */
    /* For languages whose frames own things (durite/durite.hpp).  NULL: a handler that is dropped is thrown away where
       it waits.  Otherwise that wait, and each later one, calls this on the handler's stack: it throws, and the
       handler's frames are left one by one.  Every call in between does nothing and answers NULL, 0, "" or false; what
       the handler returns is not looked at.  The function of the handler and those that it gives dur_spawn let nothing
       escape.  One that waits 1000 times more instead of leaving is thrown away all the same. */
    dur_unwind_fn *unwind;
} dur_handler;

#define DUR_ACTIVITY(name_, fn_)                                                                                       \
    { .size = sizeof(dur_handler), .kind = DUR_HANDLER_ACTIVITY, .name = (name_), .activity = (fn_) }
#define DUR_ORCHESTRATION(name_, version_, ...)                                                                        \
    {                                                                                                                  \
        .size = sizeof(dur_handler), .kind = DUR_HANDLER_ORCHESTRATION, .name = (name_), .version = (version_),        \
        .orchestration = __VA_ARGS__                                                                                   \
    }
/* Taken by the host of a runtime without threads: dur_runtime_take, dur_act_end. */
#define DUR_ACTIVITY_TAKEN(name_)                                                                                      \
    { .size = sizeof(dur_handler), .kind = DUR_HANDLER_ACTIVITY, .name = (name_), .taken = true }
#define DUR_HANDLERS_END                                                                                               \
    { .size = sizeof(dur_handler), .kind = DUR_HANDLER_END }

typedef struct dur_registry dur_registry;

/* Thread class of dur_registry: one at a time while it is filled; frozen when a runtime starts with it (later changes
   are DUR_ESTATE, except dur_registry_policy). */
DUR_API int dur_registry_new(dur_registry **out, dur_error *err);
DUR_API void dur_registry_free(dur_registry *registry); /* a runtime keeps its own reference */
/* Add a table (up to DUR_HANDLERS_END).  All or nothing.  Codes: DUR_EINVAL (bad name or version, reserved prefix),
   DUR_EEXISTS (name and version known), naming the handler. */
DUR_API int dur_registry_add(dur_registry *registry, const dur_handler *handlers, dur_error *err);
/* Add everything of another registry, its policies included. */
DUR_API int dur_registry_merge(dur_registry *registry, const dur_registry *other, dur_error *err);
/* Which version new starts take: an exact one, or (NULL) the highest.  May be changed while runtimes use it.
   DUR_EINVAL (a version that is none), DUR_ENOTFOUND. */
DUR_API int dur_registry_policy(dur_registry *registry, const char *orchestration, const char *version, dur_error *err);

/* Looking into it.  Names in order of kind and name; versions ascending, comma-separated, borrowed. */
DUR_API size_t dur_registry_count(const dur_registry *registry);
DUR_API const char *dur_registry_name(const dur_registry *registry, size_t index, dur_handler_kind *kind);
DUR_API const char *dur_registry_versions(const dur_registry *registry, dur_handler_kind kind, const char *name);
DUR_API bool dur_registry_has(const dur_registry *registry, dur_handler_kind kind, const char *name,
                              const char *version);
/* The version that a new start of this name would take; NULL: unknown name. */
DUR_API const char *dur_registry_resolve(const dur_registry *registry, const char *orchestration);

DUR_END_DECLS

#endif
