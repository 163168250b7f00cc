/*
 * work.h: the messages that travel through the two queues, and their JSON.
 *
 * A work item is what happened or shall happen; a dur_message_row is a work item on its way through a store: the same
 * thing as text, with the few columns that a store needs to route it.  Stores never look into the text.
 */
#ifndef DURITE_SYS_WORK_H
#define DURITE_SYS_WORK_H

#include <durite/sys/event.h>

DUR_BEGIN_DECLS

/* KIND(upper, wire name, queue) */
#define DUR_WORK_KINDS(KIND)                                                                                           \
    KIND(START_ORCHESTRATION, "StartOrchestration", ORCH)                                                              \
    KIND(CONTINUE_AS_NEW, "ContinueAsNew", ORCH)                                                                       \
    KIND(ACTIVITY_EXECUTE, "ActivityExecute", WORKER)                                                                  \
    KIND(ACTIVITY_COMPLETED, "ActivityCompleted", ORCH)                                                                \
    KIND(ACTIVITY_FAILED, "ActivityFailed", ORCH)                                                                      \
    KIND(TIMER_FIRED, "TimerFired", ORCH)                                                                              \
    KIND(EXTERNAL_RAISED, "ExternalRaised", ORCH)                                                                      \
    KIND(QUEUE_MESSAGE, "QueueMessage", ORCH)                                                                          \
    KIND(SUB_ORCH_COMPLETED, "SubOrchCompleted", ORCH)                                                                 \
    KIND(SUB_ORCH_FAILED, "SubOrchFailed", ORCH)                                                                       \
    KIND(CANCEL_INSTANCE, "CancelInstance", ORCH)

#define DUR_WORK_ENUM_(upper, name, queue) DUR_WORK_##upper,
typedef enum dur_work_kind {
    DUR_WORK_KINDS(DUR_WORK_ENUM_) DUR_WORK_UNKNOWN =
        255 /* well-formed, but of a kind that this version does not know */
} dur_work_kind;
#undef DUR_WORK_ENUM_

DUR_API const char *dur_work_kind_name(dur_work_kind kind);

typedef struct dur_work_item {
    dur_work_kind kind;
    bool has_parent_id;
    bool has_parent_execution_id;
    const char *instance;      /* for SubOrch*: the parent instance */
    uint64_t execution_id;     /* StartOrchestration, activity and timer kinds; for SubOrch*: the parent's */
    uint64_t id;               /* schedule event id; for SubOrch*: parent_id */
    const char *orchestration; /* StartOrchestration, ContinueAsNew */
    const char *name;          /* activity, event or queue */
    const char *input;
    const char *version; /* NULL: the registry's policy decides */
    /* The call that an instance answers to: StartOrchestration, ContinueAsNew; on CancelInstance (ours, optional) the
       call that is given up: whoever answers to another one ignores it.  SubOrch* have parent_birth only. */
    const char *parent_instance;
    uint64_t parent_id;
    uint64_t parent_execution_id; /* optional */
    uint64_t parent_birth;        /* ours, optional: which of the instances that had the parent's id; 0: not known */
    uint64_t birth;               /* ours, optional.  ContinueAsNew: the instance's own, which it keeps.
                                     StartOrchestration: which the instance gets, drawn by a client that is to know its
                                     own again; 0: whoever runs the first turn draws it.
                                     ActivityExecute: of the instance that asks */
    const char *result;
    const char *data;
    const char *reason;
    const dur_failure *details;
    const char *session_id;
    const char *tag;
    uint64_t fire_at_ms;
    const dur_carried *carry_forward_events;
    size_t carry_forward_count;
    const char *initial_custom_status;
    const char *message_id; /* ours, optional: ExternalRaised, QueueMessage */

    /* ours, optional, ActivityExecute: what the activity's context shows */
    const char *orchestration_name;
    const char *orchestration_version;
    uint64_t attempt;    /* of its retry policy, from 1; 0: not given */
    uint64_t cancel_seq; /* ours, optional, CancelInstance: 0 a request; else the grace of request event N is over */
    uint64_t first_id; /* ours, optional, ActivityExecute: the schedule id of the first attempt of the same call, where
                          this is a later one; 0: this is the first.  Part of dur_act_key */
    uint64_t depth;    /* ours, optional, StartOrchestration, ContinueAsNew: how many parents are above the instance */
} dur_work_item;

/* JSON in both directions; codes as for events.  An unknown kind is DUR_EUNSUPPORTED. */
DUR_API int dur_work_to_json(dur_text *out, dur_arena *arena, const dur_work_item *item, dur_error *err);
DUR_API int dur_work_from_json(dur_work_item *out, dur_arena *arena, dur_text json, dur_error *err);

/* A work item on its way: what a store keeps as columns, and the text that it keeps as it is. */
typedef struct dur_message_row {
    dur_work_kind kind;
    const char *instance;   /* whom it is for (SubOrch*: the parent) */
    uint64_t execution_id;  /* ActivityExecute: with activity_id, its identity; TimerFired: the same; else 0 */
    uint64_t activity_id;   /* ActivityExecute, TimerFired: the schedule event's id */
    const char *session_id; /* ActivityExecute, NULL: none */
    const char *tag;        /* ActivityExecute, NULL: none */
    const char *queue;      /* QueueMessage: the queue's name; else NULL */
    const char *message_id; /* ExternalRaised, QueueMessage: idempotency key among all messages of the instance, or
                               NULL.  A QueueMessage's has its queue in it: an id belongs to a queue */
    const char *handler;    /* what a node must have to take it: StartOrchestration, ContinueAsNew: dur_handler_key;
                               ActivityExecute: the activity's name; NULL: says nothing */
    const char *parent;     /* StartOrchestration: the instance that calls; NULL: a root */
    uint64_t due_ms;        /* not visible before this wall time; 0: at once, whatever the clock says */
    dur_text json;          /* the work item, kept verbatim */
} dur_message_row;

/*
 * The text by which nodes and instances find each other: "Name@1.2.3", or "Name@" where no version is asked for (NULL,
 * "" or "0.0.0": the registry's policy decides).  In arena.
 */
DUR_API const char *dur_handler_key(dur_arena *arena, const char *orchestration, const char *version);

/*
 * Make the message of a work item: encodes it and fills the columns (due_ms of TimerFired is its fire_at_ms, else 0).
 * Everything lives in arena.
 */
DUR_API int dur_message_row_from_work(dur_message_row *out, dur_arena *arena, const dur_work_item *item,
                                      dur_error *err);

DUR_END_DECLS

#endif
