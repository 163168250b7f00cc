/*
 * event.h: history events, failures, and their JSON.
 *
 * A history is a sequence of events of one execution, ids from 1.  docs/format/history.md has every field.  Texts are
 * UTF-8, ended by NUL; U+0000 cannot be part of one.  An event borrows its texts; a decoded event's texts live in the
 * arena that was given to the decoder.
 */
#ifndef DURITE_SYS_EVENT_H
#define DURITE_SYS_EVENT_H

#include <durite/error.h>
#include <durite/export.h>
#include <durite/sys/arena.h>
#include <stdbool.h>
#include <stdint.h>

DUR_BEGIN_DECLS

/* KIND(upper, wire name, role).  Roles: START and ARRIVAL come from the world, COMMAND from the handler, DROP is the
   command that gives something up, TERMINAL ends the execution. */
#define DUR_EVENT_KINDS(KIND)                                                                                          \
    KIND(ORCHESTRATION_STARTED, "OrchestrationStarted", START)                                                         \
    KIND(ORCHESTRATION_COMPLETED, "OrchestrationCompleted", TERMINAL)                                                  \
    KIND(ORCHESTRATION_FAILED, "OrchestrationFailed", TERMINAL)                                                        \
    KIND(ORCHESTRATION_CONTINUED_AS_NEW, "OrchestrationContinuedAsNew", TERMINAL)                                      \
    KIND(ORCHESTRATION_CANCEL_REQUESTED, "OrchestrationCancelRequested", ARRIVAL)                                      \
    KIND(ORCHESTRATION_CHAINED, "OrchestrationChained", COMMAND)                                                       \
    KIND(ACTIVITY_SCHEDULED, "ActivityScheduled", COMMAND)                                                             \
    KIND(ACTIVITY_COMPLETED, "ActivityCompleted", ARRIVAL)                                                             \
    KIND(ACTIVITY_FAILED, "ActivityFailed", ARRIVAL)                                                                   \
    KIND(ACTIVITY_CANCEL_REQUESTED, "ActivityCancelRequested", DROP)                                                   \
    KIND(TIMER_CREATED, "TimerCreated", COMMAND)                                                                       \
    KIND(TIMER_FIRED, "TimerFired", ARRIVAL)                                                                           \
    KIND(EXTERNAL_SUBSCRIBED, "ExternalSubscribed", COMMAND)                                                           \
    KIND(EXTERNAL_EVENT, "ExternalEvent", ARRIVAL)                                                                     \
    KIND(EXTERNAL_SUBSCRIBED_CANCELLED, "ExternalSubscribedCancelled", DROP)                                           \
    KIND(QUEUE_SUBSCRIBED, "ExternalSubscribedPersistent", COMMAND)                                                    \
    KIND(QUEUE_EVENT_DELIVERED, "ExternalEventPersistent", ARRIVAL)                                                    \
    KIND(QUEUE_SUBSCRIPTION_CANCELLED, "ExternalSubscribedPersistentCancelled", DROP)                                  \
    KIND(SUB_ORCHESTRATION_SCHEDULED, "SubOrchestrationScheduled", COMMAND)                                            \
    KIND(SUB_ORCHESTRATION_COMPLETED, "SubOrchestrationCompleted", ARRIVAL)                                            \
    KIND(SUB_ORCHESTRATION_FAILED, "SubOrchestrationFailed", ARRIVAL)                                                  \
    KIND(SUB_ORCHESTRATION_CANCEL_REQUESTED, "SubOrchestrationCancelRequested", DROP)                                  \
    KIND(CUSTOM_STATUS_UPDATED, "CustomStatusUpdated", COMMAND)                                                        \
    KIND(KEY_VALUE_SET, "KeyValueSet", COMMAND)                                                                        \
    KIND(KEY_VALUE_CLEARED, "KeyValueCleared", COMMAND)                                                                \
    KIND(KEY_VALUES_CLEARED, "KeyValuesCleared", COMMAND)

#define DUR_EVENT_ENUM_(upper, name, role) DUR_EVENT_##upper,
typedef enum dur_event_kind {
    DUR_EVENT_KINDS(DUR_EVENT_ENUM_) DUR_EVENT_UNKNOWN =
        255 /* of a kind that this version does not know, or unreadable */
} dur_event_kind;
#undef DUR_EVENT_ENUM_

typedef enum dur_event_role {
    DUR_EVENT_ROLE_START,
    DUR_EVENT_ROLE_ARRIVAL,
    DUR_EVENT_ROLE_COMMAND,
    DUR_EVENT_ROLE_DROP,
    DUR_EVENT_ROLE_TERMINAL
} dur_event_role;

DUR_API const char *dur_event_kind_name(dur_event_kind kind); /* wire name; "?" for no kind */
DUR_API dur_event_role dur_event_kind_role(dur_event_kind kind);

/* Why something failed.  Which fields count depends on category and kind, as in the wire format: infrastructure has
   operation, message, retryable; configuration resource, message (may be NULL), missing, and its kind is always
   Nondeterminism; application kind, message, retryable; poison attempt_count, max_attempts, poison, message. */
typedef enum dur_failure_kind {
    DUR_FAILURE_ACTIVITY_FAILED,
    DUR_FAILURE_ORCHESTRATION_FAILED,
    DUR_FAILURE_PANICKED,
    DUR_FAILURE_CANCELLED /* reason */
} dur_failure_kind;

typedef enum dur_poison_kind {
    DUR_POISON_ORCHESTRATION,         /* instance, execution_id */
    DUR_POISON_ACTIVITY,              /* instance, execution_id, activity_name, activity_id */
    DUR_POISON_FAILED_DESERIALIZATION /* instance, execution_id, error */
} dur_poison_kind;

typedef struct dur_failure {
    dur_failure_category category;
    dur_failure_kind kind;
    dur_poison_kind poison;
    bool retryable;
    const char *operation;
    const char *message;
    const char *resource;
    const char *reason;  /* Cancelled */
    const char *said;    /* Cancelled (ours, optional): what the handler returned afterwards; NULL: nothing */
    const char *missing; /* Configuration (ours, optional): "handler": no node has it; NULL: code and history differ */
    uint32_t attempt_count;
    uint32_t max_attempts;
    const char *instance;
    uint64_t execution_id;
    const char *activity_name;
    uint64_t activity_id;
    const char *error;
} dur_failure;

/* "nondeterministic: …", "configuration: …" (something is missing), "cancelled: REASON[; SAID]", "poison: …" or the
 * plain message; lives in arena. */
DUR_API char *dur_failure_display(dur_arena *arena, const dur_failure *failure);

/* One message carried over continue-as-new.  Of a list, NULL is absent, a pointer with count 0 an empty list. */
typedef struct dur_carried {
    const char *name;
    const char *data;
} dur_carried;

/*
 * An event: the envelope, then the fields of all kinds side by side.  NULL means absent (or not a field of the kind);
 * docs/format/history.md says which kind has which.
 */
typedef struct dur_event {
    dur_event_kind kind;
    bool has_source_event_id;
    bool has_parent_id;
    bool has_parent_execution_id;
    uint64_t event_id;
    uint64_t source_event_id; /* the schedule that this event answers or gives up */
    const char *instance_id;
    uint64_t execution_id;
    uint64_t timestamp_ms;
    const char *duroxide_version; /* version of the engine that wrote the event */

    const char *name;     /* orchestration, activity, event or queue */
    const char *version;  /* Started; optional (ours) on SubOrchestrationScheduled and OrchestrationChained */
    const char *instance; /* child or chained instance */
    const char *input;
    const char *output;
    const char *result;
    const char *data;
    const char *reason;
    const char *session_id;
    const char *tag;
    const char *status; /* CustomStatusUpdated; NULL: reset */
    const char *key;
    const char *value;
    uint64_t fire_at_ms;
    uint64_t last_updated_at_ms;
    const dur_failure *details;

    /* Started */
    const char *parent_instance;
    uint64_t parent_id;
    uint64_t parent_execution_id; /* optional */
    uint64_t parent_birth;        /* ours, optional: which of the instances that had the parent's id; 0: not known */
    uint64_t birth;               /* ours, optional: the same of this instance; its executions share it; 0: none */
    const dur_carried *carry_forward_events;
    size_t carry_forward_count;
    const char *initial_custom_status;
    uint64_t depth; /* ours, optional: how many parents are above it; 0: none, or not known */
    uint32_t trace; /* ours, optional: 1 says that the history is a trace (see docs/format/history.md) */
} dur_event;

/*
 * Write event as JSON, in the arena.  The text is ended by NUL.
 * Codes: DUR_EINVAL (a required field is missing, a text is not UTF-8).  Since 0.1.
 */
DUR_API int dur_event_to_json(dur_text *out, dur_arena *arena, const dur_event *event, dur_error *err);

/*
 * Read one event.  Unknown fields are ignored, absent optional ones take their default.
 * Codes: DUR_ECORRUPT (not JSON, a required field is missing or of another type, a number over 2^64-1, U+0000, a lone
 * surrogate; the message says where), DUR_EUNSUPPORTED (well-formed, but of an unknown kind; the message names it).
 */
DUR_API int dur_event_from_json(dur_event *out, dur_arena *arena, dur_text json, dur_error *err);

DUR_API int dur_failure_to_json(dur_text *out, dur_arena *arena, const dur_failure *failure, dur_error *err);
DUR_API int dur_failure_from_json(dur_failure *out, dur_arena *arena, dur_text json, dur_error *err);

/* A history as it is exported: one JSON array of events.  Codes as above, with the position of the event at fault. */
DUR_API int dur_history_to_json(dur_text *out, dur_arena *arena, const dur_event *events, size_t count, dur_error *err);
DUR_API int dur_history_from_json(dur_event **out, size_t *count, dur_arena *arena, dur_text json, dur_error *err);

DUR_END_DECLS

#endif
