/*
 * kit_internal.h: what checks are written with.
 *
 * A check is a function that gets a `kit *t` with an empty store.  It says what must hold; the first thing that does
 * not ends the check by a jump back to the runner, so that checks read straight down.  Everything that a check makes
 * lives in the arena of t.  Threads of a check (kit_threads) must not use the assertions: they note what they saw.
 */
#ifndef DURITE_KIT_INTERNAL_H
#define DURITE_KIT_INTERNAL_H

#include <durite/sys/kit.h>
#include <durite/sys/store.h>
#include <pthread.h>
#include <setjmp.h>
#include <string.h>

typedef struct kit kit;
typedef void kit_fn(kit *t);

typedef struct kit_check {
    const char *name;
    kit_fn *run;
    dur_kit_poll poll; /* PROBE: in both modes */
} kit_check;

typedef struct kit_category {
    const char *name;
    const kit_check *checks;
    bool reference;
} kit_category;

#define KIT_LANES_MAX 8

struct kit {
    const dur_kit_factory *factory;
    dur_kit_store store;
    dur_provider *p; /* store.provider */
    dur_arena *arena;
    dur_error err;
    uint64_t lock_ms;
    uint64_t quick_ms; /* "at once" */
    uint64_t seed;
    uint64_t random;
    dur_lane *lanes[KIT_LANES_MAX]; /* closed after the check */
    size_t lane_count;
    dur_waker *waker;
    struct kit_view *view; /* its part of a shared store; NULL: it has a store of its own */
    char message[480];
    dur_kit_outcome outcome;
    jmp_buf out;
};

/* ---- saying what must hold -------------------------------------------------------------------------------------- */

_Noreturn void kit_fail(kit *t, const char *file, int line, const char *format, ...) DUR_PRINTF(4, 5);
/* It moves the clock of its store: in a shared one only the check that has the right to. */
void kit_needs_time(kit *t);
_Noreturn void kit_skip(kit *t, const char *format, ...) DUR_PRINTF(2, 3);
void kit_must(kit *t, const char *file, int line, const char *what, int code);
void kit_refused(kit *t, const char *file, int line, const char *what, int want, const char *text, int code);
void kit_same(kit *t, const char *file, int line, const char *what, uint64_t got, uint64_t want);
void kit_text(kit *t, const char *file, int line, const char *what, const char *got, const char *want);
void kit_needs(kit *t, const char *const *methods);

/* The condition holds. */
#define THAT(cond) ((cond) ? (void)0 : kit_fail(t, __FILE__, __LINE__, "not so: %s", #cond))
/* The call (with ERR as its error) succeeds. */
#define MUST(call) kit_must(t, __FILE__, __LINE__, #call, (dur_error_clear(&t->err), (call)))
/* The call fails with this code, and its message has this text in it (NULL: any); permanent, not retryable. */
#define REFUSED(code, text, call)                                                                                      \
    kit_refused(t, __FILE__, __LINE__, #call, (code), (text), (dur_error_clear(&t->err), (call)))
/* Numbers, texts (NULL equals NULL). */
#define SAME(got, want) kit_same(t, __FILE__, __LINE__, #got, (uint64_t)(got), (uint64_t)(want))
#define TEXT(got, want) kit_text(t, __FILE__, __LINE__, #got, (got), (want))
/* The store has these methods; else the check is skipped, naming the first that it lacks. */
#define NEEDS(...) kit_needs(t, (const char *const[]){ __VA_ARGS__, NULL })

#define ERR (&t->err)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- events: the store fills in instance and execution from the turn --------------------------------------------- */

dur_event ev_started(uint64_t id);
dur_event ev_scheduled(uint64_t id); /* ActivityScheduled */
dur_event ev_activity_done(uint64_t id, uint64_t source);
dur_event ev_timer(uint64_t id, uint64_t fire_at_ms);
dur_event ev_external(uint64_t id, const char *name);
dur_event ev_done(uint64_t id, const char *output); /* OrchestrationCompleted */
dur_event ev_failed(uint64_t id, const char *message);
dur_event ev_continued(uint64_t id, const char *input);
dur_event ev_status(uint64_t id, const char *status); /* NULL: reset */
dur_event ev_set(uint64_t id, const char *key, const char *value);
dur_event ev_clear(uint64_t id, const char *key);
dur_event ev_clear_all(uint64_t id);
/* Encoded for the methods that take rows. */
dur_event_row kit_row(kit *t, const char *instance, uint64_t execution, dur_event event);

/* ---- messages ---------------------------------------------------------------------------------------------------- */

#define KIT_NAME "TestOrch"
#define KIT_VERSION "1.0.0"

dur_message_row kit_message(kit *t, const dur_work_item *item);
dur_message_row kit_start(kit *t, const char *instance);
dur_message_row kit_start_as(kit *t, const char *instance, const char *name, const char *version);
dur_message_row kit_child(kit *t, const char *instance, const char *parent, uint64_t parent_id);
dur_message_row kit_next(kit *t, const char *instance, const char *input); /* ContinueAsNew */
dur_message_row kit_activity(kit *t, const char *instance, uint64_t id);   /* execution 1 */
dur_message_row kit_activity_in(kit *t, const char *instance, uint64_t execution, uint64_t id, const char *session,
                                const char *tag);
dur_message_row kit_finished(kit *t, const char *instance, uint64_t execution, uint64_t id, const char *result);
dur_message_row kit_timer(kit *t, const char *instance, uint64_t execution, uint64_t id, uint64_t fire_at_ms);
dur_message_row kit_raised(kit *t, const char *instance, const char *name, const char *data);
dur_message_row kit_queued(kit *t, const char *instance, const char *queue, const char *data);
dur_message_row kit_cancel(kit *t, const char *instance, const char *reason);

int kit_put(kit *t, dur_message_row message);      /* into the orchestrator queue; t->err */
int kit_put_work(kit *t, dur_message_row message); /* into the worker queue; t->err */
/* What a stored text says: the wire name of the kind is in it. */
bool kit_says(dur_text json, const char *part);
bool kit_equal_text(dur_text a, dur_text b);

/* ---- turns ------------------------------------------------------------------------------------------------------- */

typedef struct kit_turn {
    const dur_orchestration_item *item;
    const char *token;  /* NULL: the item's */
    uint64_t execution; /* 0: the item's */
    const dur_event *events;
    size_t event_count;
    const dur_message_row *work;
    size_t work_count;
    const dur_message_row *messages;
    size_t message_count;
    dur_execution_metadata meta;
    const dur_activity_ref *cancelled;
    size_t cancelled_count;
} kit_turn;

#define EVENTS(...)                                                                                                    \
    .events = (const dur_event[]){ __VA_ARGS__ },                                                                      \
    .event_count = sizeof((const dur_event[]){ __VA_ARGS__ }) / sizeof(dur_event)
#define WORK(...)                                                                                                      \
    .work = (const dur_message_row[]){ __VA_ARGS__ },                                                                  \
    .work_count = sizeof((const dur_message_row[]){ __VA_ARGS__ }) / sizeof(dur_message_row)
#define MESSAGES(...)                                                                                                  \
    .messages = (const dur_message_row[]){ __VA_ARGS__ },                                                              \
    .message_count = sizeof((const dur_message_row[]){ __VA_ARGS__ }) / sizeof(dur_message_row)
#define CANCELLED(...)                                                                                                 \
    .cancelled = (const dur_activity_ref[]){ __VA_ARGS__ },                                                            \
    .cancelled_count = sizeof((const dur_activity_ref[]){ __VA_ARGS__ }) / sizeof(dur_activity_ref)
#define REF(instance_, execution_, id_)                                                                                \
    (dur_activity_ref) {                                                                                               \
        .instance = (instance_), .execution_id = (execution_), .activity_id = (id_)                                    \
    }

/* Metadata: names the instance; ends the execution; pins a version. */
#define NAMED .meta = { .orchestration_name = KIT_NAME, .orchestration_version = KIT_VERSION }
#define NAMED_CHILD_OF(parent)                                                                                         \
    .meta = { .orchestration_name = KIT_NAME, .orchestration_version = KIT_VERSION, .parent_instance_id = (parent) }
#define ENDS(how, text)                                                                                                \
    .meta = { .orchestration_name = KIT_NAME,                                                                          \
              .orchestration_version = KIT_VERSION,                                                                    \
              .status = DUR_STATUS_##how,                                                                              \
              .output = (text) }
#define ENDS_CHILD_OF(parent, how, text)                                                                               \
    .meta = { .orchestration_name = KIT_NAME,                                                                          \
              .orchestration_version = KIT_VERSION,                                                                    \
              .status = DUR_STATUS_##how,                                                                              \
              .output = (text),                                                                                        \
              .parent_instance_id = (parent) }
#define PINNED(a, b, c)                                                                                                \
    .meta = { .orchestration_name = KIT_NAME,                                                                          \
              .orchestration_version = KIT_VERSION,                                                                    \
              .has_pinned_version = true,                                                                              \
              .pinned_version = { (a), (b), (c) } }

/* The plain ack of an item; its code, the error in t->err. */
int kit_ack(kit *t, const kit_turn *turn);
#define ACK(item_, ...) kit_ack(t, &(kit_turn){ .item = (item_), __VA_ARGS__ })
/* The same as a commit whose optional fields the check sets itself (expected_last is not compared). */
dur_turn_commit kit_make_commit(kit *t, const kit_turn *turn);
#define COMMIT_OF(item_, ...) kit_make_commit(t, &(kit_turn){ .item = (item_), __VA_ARGS__ })
/* dur_store_commit_turns of one; fault and error are in *commit; the code is the turn's. */
int kit_commit(kit *t, dur_turn_commit *commit);

/* ---- fetching ---------------------------------------------------------------------------------------------------- */

/* Whatever there is; instance is NULL when nothing. */
dur_orchestration_item kit_fetch(kit *t);
dur_orchestration_item kit_fetch_for(kit *t, const dur_capability_filter *filter);
/* Exactly this instance, or nothing at all: otherwise the check ends here. */
dur_orchestration_item kit_take_at(kit *t, const char *file, int line, const char *instance);
void kit_nothing_at(kit *t, const char *file, int line);
#define TAKE(instance) kit_take_at(t, __FILE__, __LINE__, (instance))
#define NOTHING() kit_nothing_at(t, __FILE__, __LINE__)

dur_leased_work kit_fetch_work(kit *t, const dur_work_fetch *how); /* lock_ms 0: t->lock_ms */
dur_leased_work kit_take_work_at(kit *t, const char *file, int line, uint64_t id, const dur_work_fetch *how);
void kit_no_work_at(kit *t, const char *file, int line, const dur_work_fetch *how);
#define HOW(...) (&(dur_work_fetch){ __VA_ARGS__ })
#define TAKE_WORK(id) kit_take_work_at(t, __FILE__, __LINE__, (id), HOW(.max = 1))
#define TAKE_WORK_AS(id, ...) kit_take_work_at(t, __FILE__, __LINE__, (id), HOW(__VA_ARGS__))
#define NO_WORK() kit_no_work_at(t, __FILE__, __LINE__, HOW(.max = 1))
#define NO_WORK_AS(...) kit_no_work_at(t, __FILE__, __LINE__, HOW(__VA_ARGS__))
#define SESSION(owner_) .session_owner = (owner_), .session_lock_ms = t->lock_ms
#define TAGS(mode_, ...)                                                                                               \
    .tags = { .mode = DUR_TAGS_##mode_,                                                                                \
              .tags = (const char *const[]){ __VA_ARGS__ },                                                            \
              .tag_count = sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *) }

/* ---- ready-made lives -------------------------------------------------------------------------------------------- */

void kit_advance(kit *t, uint64_t ms); /* the store's clock */
void kit_expire(kit *t);               /* beyond every lock taken before */
/* A running instance with event 1 and a row, unlocked, its queue empty. */
void kit_create(kit *t, const char *instance);
void kit_create_child(kit *t, const char *instance, const char *parent);
/* One that has ended in its first execution. */
void kit_create_ended(kit *t, const char *instance, const char *parent, dur_status how, const char *output);
/* Continue as new, leaving `execution + 1` running with its Started event. */
void kit_continue(kit *t, const char *instance, uint64_t execution);
/* One more turn with these events, woken by a raised event. */
void kit_turn_with(kit *t, const char *instance, uint64_t execution, const dur_event *events, size_t count,
                   dur_execution_metadata meta);
#define STEP(instance, execution, ...)                                                                                 \
    kit_turn_with(t, (instance), (execution), (const dur_event[]){ __VA_ARGS__ },                                      \
                  sizeof((const dur_event[]){ __VA_ARGS__ }) / sizeof(dur_event),                                      \
                  (dur_execution_metadata){ .status = DUR_STATUS_NONE })
#define STEP_END(instance, execution, how, output_, ...)                                                               \
    kit_turn_with(t, (instance), (execution), (const dur_event[]){ __VA_ARGS__ },                                      \
                  sizeof((const dur_event[]){ __VA_ARGS__ }) / sizeof(dur_event),                                      \
                  (dur_execution_metadata){ .status = DUR_STATUS_##how, .output = (output_) })

size_t kit_history(kit *t, const char *instance, uint64_t execution, dur_event_row **rows);
bool kit_exists(kit *t, const char *instance); /* for admin methods */
dur_instance_row kit_instance(kit *t, const char *instance);
dur_execution_row kit_execution(kit *t, const char *instance, uint64_t execution);
const char *kit_value(kit *t, const char *instance, const char *key);
const char *kit_snapshot(const dur_orchestration_item *item, const char *key);
dur_queue_depths kit_depths(kit *t);
int kit_delete(kit *t, const char *instance, bool force, dur_delete_result *out); /* with its tree, as clients do it */
size_t kit_children(kit *t, const char *parent, dur_instance_row **rows);
size_t kit_tree(kit *t, const char *root, const char *ids[], size_t max);
void kit_corrupt(kit *t, const char *instance);
uint32_t kit_attempts(kit *t, const dur_orchestration_item *item);

/* ---- owners and lanes -------------------------------------------------------------------------------------------- */

void kit_owner(kit *t, const char *owner);
/* fetch_turns of one, under an owner (NULL: a timed lock); it must be this instance. */
dur_orchestration_item kit_acquire_at(kit *t, const char *file, int line, const char *owner, const char *instance);
#define ACQUIRE(owner, instance) kit_acquire_at(t, __FILE__, __LINE__, (owner), (instance))
dur_lane *kit_lane(kit *t, const char *owner); /* closed by the runner */
void kit_round(kit *t, dur_lane *lane, dur_round *round);

/* ---- threads and chance ------------------------------------------------------------------------------------------ */

typedef struct kit_thread {
    kit *t; /* store, lock_ms: read only */
    size_t index;
    dur_arena *arena;
    void *data;
    int code;
    dur_error err;
    const char *text[64]; /* what it saw; in its arena, valid until the check ends */
    size_t count;
} kit_thread;
/* Run n of them at once and wait for all. */
kit_thread *kit_threads(kit *t, size_t n, void (*run)(kit_thread *self), void *data);

uint64_t kit_random(uint64_t *state);
uint64_t kit_real_ms(void);
void kit_sleep(uint64_t ms);
const char *kit_format(kit *t, const char *format, ...) DUR_PRINTF(2, 3);

#define CHECK(name)                                                                                                    \
    { #name, name, DUR_KIT_POLL_PROBE }
#define CHECKS_END                                                                                                     \
    { NULL, NULL, DUR_KIT_POLL_PROBE }

/* ---- the categories, in the order in which they run ---------------------------------------------------------------
 */

#define KIT_REFERENCE(X)                                                                                               \
    X(atomicity)                                                                                                       \
    X(bulk_deletion)                                                                                                   \
    X(cancellation)                                                                                                    \
    X(capability_filtering)                                                                                            \
    X(custom_status)                                                                                                   \
    X(deletion)                                                                                                        \
    X(error_handling)                                                                                                  \
    X(instance_creation)                                                                                               \
    X(instance_locking)                                                                                                \
    X(kv_store)                                                                                                        \
    X(lock_expiration)                                                                                                 \
    X(long_polling)                                                                                                    \
    X(management)                                                                                                      \
    X(multi_execution)                                                                                                 \
    X(poison_message) X(prune) X(queue_semantics) X(race_replay) X(sessions) X(tag_filtering) X(stats)
#define KIT_OURS(X)                                                                                                    \
    X(ours_contract)                                                                                                   \
    X(ours_turns)                                                                                                      \
    X(ours_facts)                                                                                                      \
    X(ours_eager)                                                                                                      \
    X(ours_local)                                                                                                      \
    X(ours_arrays)                                                                                                     \
    X(ours_handlers)                                                                                                   \
    X(ours_rounds)                                                                                                     \
    X(ours_starts)                                                                                                     \
    X(ours_owners)                                                                                                     \
    X(ours_clients)                                                                                                    \
    X(ours_admin)                                                                                                      \
    X(ours_names)                                                                                                      \
    X(ours_refusals)                                                                                                   \
    X(ours_many)                                                                                                       \
    X(ours_fetches)                                                                                                    \
    X(ours_clocks)                                                                                                     \
    X(ours_races) X(ours_watches) X(ours_rules) X(ours_details) X(ours_corners) X(ours_remains) X(ours_recorded)
#define KIT_DECLARE_(name) extern const kit_check kit_##name[];
KIT_REFERENCE(KIT_DECLARE_)
KIT_OURS(KIT_DECLARE_)
#undef KIT_DECLARE_

extern const kit_category kit_categories[];

/* ---- the runner -------------------------------------------------------------------------------------------------- */

typedef struct kit_job {
    const kit_category *category;
    const kit_check *check;
    uint32_t round;
} kit_job;

typedef struct kit_pool {
    const dur_kit_factory *factory;
    const dur_kit_options *options;
    dur_kit_report *report;
    kit_job *jobs;
    size_t count;
    size_t next;
    uint64_t seed;
    bool stop;
    pthread_mutex_t mutex;
} kit_pool;

kit *kit_new(const kit_pool *all); /* what a thread of the runner works with; free */
/* Run a check: t has its store, p, view and seed.  Then its result into the report, under the pool's mutex. */
void kit_run_check(kit *t, const kit_check *check);
void kit_note(kit_pool *all, const kit_job *done, const kit *t);
uint64_t kit_mix(uint64_t seed, const char *name, uint32_t round);
/* All jobs on one store, by ten threads. */
int kit_run_together(kit_pool *all, dur_error *err);
/* Workloads on one store; how many results they have in a round, and running them. */
size_t kit_shared_count(const char *only);
int kit_run_shared(const dur_kit_factory *factory, const dur_kit_options *options, dur_kit_report *report,
                   dur_error *err);
bool kit_wanted(const char *only, const char *category, const char *name);

#endif
