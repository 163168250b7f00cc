/*
 * client.h: start orchestrations and talk to them, from any process that can open the store.
 *
 * A client needs no runtime.  What returns DUR_OK is durable.  Thread class of dur_client: any thread.
 * Strings are copied.  Every `*out` is yours and has its own free.
 */
#ifndef DURITE_CLIENT_H
#define DURITE_CLIENT_H

#include <durite/error.h>
#include <durite/export.h>
#include <durite/provider.h>

DUR_BEGIN_DECLS

typedef struct dur_client dur_client;

DUR_API int dur_client_new(dur_client **out, dur_provider *store, dur_error *err);
DUR_API void dur_client_free(dur_client *client); /* NULL allowed */
/* How long calls of this client may take that read and have no time of their own (info, list, counts, history, keys …);
   0: as long as the store takes, which is the default.  A server or a pooler that has not answered by then, or not let
   a new session in: DUR_EUNAVAILABLE.  Where a PostgreSQL URL has several hosts, or its host several addresses, a new
   session may take longer: libpq gives each two seconds at least.  Calls that wait are given their time.  Calls that
   write are not given up in the middle, which would leave open whether it happened: their limits are the store's,
   busy_ms of a SQLite file, connect_timeout and tcp_user_timeout of a PostgreSQL URL.  Any thread. */
DUR_API void dur_client_limit(dur_client *client, uint64_t timeout_ms);

/* ---- start ------------------------------------------------------------------------------------------------------- */

typedef enum dur_start_policy {
    DUR_START_FAIL,            /* an instance that exists: DUR_EEXISTS */
    DUR_START_RETURN_EXISTING, /* … DUR_OK, nothing changed */
    DUR_START_REPLACE_FINISHED /* … is deleted if it has ended, else DUR_EEXISTS */
} dur_start_policy;

/* dur_client_start(client, &err, "Order", input, .instance = "order-1", .version = "2.0.0", .delay_ms = 5000) */
typedef struct dur_start_args {
    size_t size;
    const char *name;
    const char *input;    /* NULL: "" */
    const char *instance; /* required, at most 1024 bytes of UTF-8 without control characters (below 0x20, 0x7f).  Ids
                             that its handler lets the library make begin with it: see dur_orchestration */
    const char *version;  /* NULL: the policy of the runtime that takes it, which in a mixed fleet is any of them */
    uint64_t delay_ms;    /* at most a century: DUR_ELIMIT */
    dur_start_policy exists;
    void *data; /* dur_runs_start: comes back with its end; else ignored */
} dur_start_args;
/* Returns when the start is durable.  Where a runtime of this process has the handler, that may be with its first turn:
   so a handler that blocks before its first wait holds the caller up, too, for about two seconds. */
DUR_API int dur_client_start_ex(dur_client *client, const dur_start_args *args, dur_error *err);
#define dur_client_start(client, err, ...)                                                                             \
    dur_client_start_ex((client), &(dur_start_args){ .size = sizeof(dur_start_args), .name = __VA_ARGS__ }, (err))

/* dur_client_run(&result, client, &err, "Order", input, .instance = "order-1", .timeout_ms = DUR_SECONDS(30)) */
typedef struct dur_run_args {
    size_t size;
    const char *name;
    const char *input;    /* NULL: "".  One that exists keeps the input that it was started with */
    const char *instance; /* NULL: a new id is made, and each call starts another one */
    const char *version;
    uint64_t timeout_ms; /* 0: as long as it takes; only where no running node has had a handler that it needs, or
                            a child of it, for ten to fifteen seconds is it DUR_ETIMEOUT, which names the handler.  With
                            an id it is looked for first, in this time; a start is not given up in the middle */
} dur_run_args;
/* Start it, or attach to the instance that has the id, running or ended; wait for its end; its result.  So a program
   that does this again gets the recorded answer, and nothing runs twice.  Who attaches gets the version that was
   started, whatever .version says.  Not from an orchestration's handler, whose thread runs other instances, too:
   without a limit that is DUR_EDEADLK, and nothing is started.  Codes of dur_client_start and dur_client_result;
   DUR_EEXISTS: the instance is a run of another orchestration.  *out is yours: dur_free. */
DUR_API int dur_client_run_ex(char **out, dur_client *client, const dur_run_args *args, dur_error *err);
#define dur_client_run(out, client, err, ...)                                                                          \
    dur_client_run_ex((out), (client), &(dur_run_args){ .size = sizeof(dur_run_args), .name = __VA_ARGS__ }, (err))

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* dur_client_send(client, &err, "order-1", "Paid", "42", .message_id = "payment-7") */
typedef struct dur_message_args {
    size_t size;
    const char *instance;
    const char *name;       /* what dur_message() or dur_pulse() of the handler names; at most 512 bytes */
    const char *data;       /* NULL: "" */
    const char *message_id; /* the same id twice is accepted once, and both calls return DUR_OK: an id belongs to the
                               name of its message, and all pulses of the instance share theirs.  Remembered for at
                               least a day, and no longer than the instance: one that is deleted or replaced takes its
                               ids along.  At most 512 bytes */
    uint64_t delay_ms;      /* at most a century: DUR_ELIMIT */
} dur_message_args;
/* Send a message: kept until a dur_message() of that name receives it, in order.  Refused: DUR_ENOTFOUND, or DUR_ESTATE
   (it has ended).  However the instance ends, and when it is deleted, what no waiting call (await, try, select, …) has
   reported to the handler is kept as a dead letter with the reason (dur_client_dead_letters), never thrown away. */
DUR_API int dur_client_send_ex(dur_client *client, const dur_message_args *args, dur_error *err);
/* Counts only while somebody waits: to the oldest dur_pulse() of that name that is open when it arrives; nobody waits,
   or the instance has ended: accepted, and no effect.  DUR_ENOTFOUND. */
DUR_API int dur_client_pulse_ex(dur_client *client, const dur_message_args *args, dur_error *err);
#define dur_client_send(client, err, ...)                                                                              \
    dur_client_send_ex((client), &(dur_message_args){ .size = sizeof(dur_message_args), .instance = __VA_ARGS__ },     \
                       (err))
#define dur_client_pulse(client, err, ...)                                                                             \
    dur_client_pulse_ex((client), &(dur_message_args){ .size = sizeof(dur_message_args), .instance = __VA_ARGS__ },    \
                        (err))

/* Ask an instance to end; its handler may clean up first.  One whose start is delayed ends without having
   begun, as soon as a node looks; where none does before the start is due, the handler begins and is told.
   DUR_ENOTFOUND; one that has ended: DUR_OK, no effect.  The reason (NULL: a default) is what the handler, the history
   and dur_client_result show. */
DUR_API int dur_client_cancel(dur_client *client, const char *instance, const char *reason, dur_error *err);
/* End it now, whatever its handler does or whether one exists; children are cancelled, the parent is told.  Level by
   level: each child is asked as dur_client_cancel asks, may clean up, and asks its own; no child has more than 256
   parents above it.  An instance
   that has not run yet, and one whose history cannot be read, are ended too.  DUR_ENOTFOUND (also one that is deleted
   meanwhile and started again under its id: the new one goes on); one that has ended: DUR_OK, no effect; DUR_EBUSY
   (its history grew at each of many tries). */
DUR_API int dur_client_terminate(dur_client *client, const char *instance, const char *reason, dur_error *err);
/* Keep it from running until resumed.  Messages wait.  A turn that is running is still recorded: the node
   that has it gives it up then, and an activity that runs there goes on.  DUR_ENOTFOUND, DUR_ESTATE (it
   has ended). */
DUR_API int dur_client_suspend(dur_client *client, const char *instance, const char *reason, dur_error *err);
/* DUR_OK, and nothing changes, where it is not suspended, or has ended.  DUR_ENOTFOUND. */
DUR_API int dur_client_resume(dur_client *client, const char *instance, dur_error *err);

/* ---- looking and waiting ----------------------------------------------------------------------------------------- */

typedef enum dur_instance_status {
    DUR_INSTANCE_NOT_FOUND,
    DUR_INSTANCE_RUNNING, /* also: start pending, or continued as new */
    DUR_INSTANCE_COMPLETED,
    DUR_INSTANCE_FAILED
} dur_instance_status;
DUR_API const char *dur_instance_status_name(dur_instance_status status);

typedef struct dur_instance_info {
    size_t size;
    const char *instance;
    const char *name;
    const char *version; /* NULL: not known yet */
    dur_instance_status status;
    bool suspended;
    bool start_pending;         /* no turn yet */
    const char *output;         /* completed: result; failed: reason; else NULL */
    const char *suspend_reason; /* NULL: not suspended */
    const char *custom_status;  /* NULL: none */
    uint64_t custom_status_version;
    const char *parent; /* NULL: a root */
    uint64_t execution_id;
    uint64_t created_at_ms;
    uint64_t updated_at_ms;
    dur_failure_category failure_category; /* counts only when failed */
    bool cancelled;                        /* failed because it was cancelled or terminated */
    const char *owner;                     /* runtime that holds it now; NULL: none */
    const char *no_handler;    /* dur_client_info, dur_client_wait: no running node has the handler that it waits
                                  for: "Name@1.2.3", or "Name@" where no version was asked for; NULL: one has */
    const char *stuck_session; /* the same: an activity of it waits for a session that a node holds which has no
                                  handler for it: "Render in session S of NODE"; NULL: none does */
    const char *said;          /* cancelled: what its handler returned then ("refunded 2 of 3"); NULL: nothing */
} dur_instance_info;
DUR_API void dur_instance_info_free(dur_instance_info *info);

/* DUR_ENOTFOUND when there is none. */
DUR_API int dur_client_info(dur_instance_info **out, dur_client *client, const char *instance, dur_error *err);
/* Until it has ended (continue-as-new is not an end) or is suspended.  timeout 0: look once.  Codes: DUR_ETIMEOUT,
   DUR_ENOTFOUND.  The message of a timeout says so when no running node has the handler that the instance waits for,
   one of its activities or one of the open instances below it (the first 64 are looked at), and which one may have been
   meant.  At most a second after the timeout DUR_EUNAVAILABLE, where the store has not answered (a server or a pooler
   that stands still, see dur_client_limit; timeout 0 waits for its answer).  No polling inside one process.  An id is
   an address: all waits by id (wait, wait_status, result, kv_wait, dur_runs_watch) mean the instance that has the id,
   also one that was started under it, or replaced another, meanwhile.  A caller that must not take another instance's
   end for that of its own uses dur_runs. */
DUR_API int dur_client_wait(dur_instance_info **out, dur_client *client, const char *instance, uint64_t timeout_ms,
                            dur_error *err);
/* Wait for the result: DUR_OK and the output (free with dur_free), DUR_EFAILED or DUR_ECANCELLED with the reason in
   err (of a cancelled one "cancelled: REASON; SAID", see dur_instance_info.said), DUR_ESUSPENDED at once with the
   reason, DUR_ETIMEOUT, DUR_ENOTFOUND; DUR_EDEADLK from any wait without a limit (UINT64_MAX) inside an orchestration's
   handler. */
DUR_API int dur_client_result(char **out, dur_client *client, const char *instance, uint64_t timeout_ms,
                              dur_error *err);
/* Until the custom status is newer than last_version, or it has ended (then info->status says so). */
DUR_API int dur_client_wait_status(dur_instance_info **out, dur_client *client, const char *instance,
                                   uint64_t last_version, uint64_t timeout_ms, dur_error *err);

/* ---- many, by one thread ----------------------------------------------------------------------------------------- */

/*
 * Start many instances and take their ends as they come, without a thread for each:
 *
 *     for (size_t i = 0; i < order_count; i++)
 *         dur_runs_start(runs, &err, "Order", orders[i].json, .instance = orders[i].id, .data = &orders[i]);
 *     while (dur_runs_next(&run, runs, DUR_SECONDS(60), &err) == DUR_OK)
 *         printf("%s: %s\n", run->instance, run->code == DUR_OK ? run->output : run->error);
 *
 * Starts are taken down and sent together, so that many share one commit.  Instances may run in this process, in
 * another or nowhere yet.  A run is the instance that it has started, and no other: if that is deleted the run is told
 * DUR_ENOTFOUND, though another one has its id by then.  (With DUR_START_RETURN_EXISTING one that existed is known by
 * its id alone.)  Thread class of dur_runs: one thread at a time; any number of them on one client.
 */
typedef struct dur_runs dur_runs;

/* How one run has ended. */
typedef struct dur_run {
    size_t size;
    const char *instance;
    int code;           /* as of dur_client_result: DUR_OK, DUR_EFAILED, DUR_ECANCELLED, DUR_ESUSPENDED, DUR_ENOTFOUND;
                           or why it was not started: DUR_EEXISTS, DUR_EIO, DUR_EUNKNOWN (perhaps it was), … */
    bool retryable;     /* the same start may succeed later */
    const char *output; /* DUR_OK: the result; else NULL */
    const char *error;  /* else: the reason, for people; NULL */
    void *data;         /* as it was given */
} dur_run;

/* Does not need the client afterwards, but its store. */
DUR_API int dur_runs_new(dur_runs **out, dur_client *client, dur_error *err);
/* Instances that were started go on; what was taken down and not sent is forgotten.  NULL allowed. */
DUR_API void dur_runs_free(dur_runs *runs);

/* Take a start down; strings are copied.  Sent by the next flush, or by next before it waits: only then is it durable.
   DUR_OK says that it was taken down, nothing else: what becomes of it is told by dur_runs_next.  DUR_EINVAL, … for
   arguments that dur_client_start would refuse: there is no such run then. */
DUR_API int dur_runs_start_ex(dur_runs *runs, const dur_start_args *args, dur_error *err);
#define dur_runs_start(runs, err, ...)                                                                                 \
    dur_runs_start_ex((runs), &(dur_start_args){ .size = sizeof(dur_start_args), .name = __VA_ARGS__ }, (err))
/* Wait for the end of an instance that was started elsewhere, too.  There is none: the run's code is DUR_ENOTFOUND. */
DUR_API int dur_runs_watch(dur_runs *runs, const char *instance, void *data, dur_error *err);
/* Send what was taken down; returns when every start is durable or refused.  DUR_OK in both cases: a refusal is that
   run's end, and dur_runs_next tells it. */
DUR_API int dur_runs_flush(dur_runs *runs, dur_error *err);
/* The next end: one that is known already, else what was taken down is sent (as in flush), and then the first that
   comes.  Each is told once; *out and its strings are valid until the next call with these runs.  A suspended instance
   is told as DUR_ESUSPENDED and is no longer waited for.  timeout 0: look once.  Codes: DUR_ETIMEOUT (nothing is lost,
   ask again; at most a second later where a server stands still, unless starts are to be sent: those are not given up),
   DUR_ESTATE (there is none to wait for).  No polling for what runs on this handle of the store; what runs elsewhere is
   looked at when the store reports a change and, if there are several, a few times a second. */
DUR_API int dur_runs_next(const dur_run **out, dur_runs *runs, uint64_t timeout_ms, dur_error *err);
/* Runs whose end dur_runs_next has not told yet; 0 for NULL. */
DUR_API size_t dur_runs_count(const dur_runs *runs);

/* Keys (of at most 512 bytes) and values.  *out NULL: no such key (DUR_OK).  Free with dur_free / dur_kv_list_free.
   Waiting for a key of an instance that has ended without it: DUR_ESTATE at once. */
DUR_API int dur_client_kv_get(char **out, dur_client *client, const char *instance, const char *key, dur_error *err);
DUR_API int dur_client_kv_wait(char **out, dur_client *client, const char *instance, const char *key,
                               uint64_t timeout_ms, dur_error *err);
typedef struct dur_kv_list {
    size_t size;
    size_t count;
    const char *const *keys; /* ascending */
    const char *const *values;
    const uint64_t *updated_at_ms;
} dur_kv_list;
DUR_API int dur_client_kv_all(dur_kv_list **out, dur_client *client, const char *instance, dur_error *err);
DUR_API void dur_kv_list_free(dur_kv_list *list);

/* Of one instance.  Pending are the messages in its queues; pulses and timers are not among them. */
typedef struct dur_client_stats {
    size_t size;
    uint64_t history_event_count, history_size_bytes, queue_pending_count, kv_user_key_count, kv_total_value_bytes;
} dur_client_stats;
/* DUR_ENOTFOUND. */
DUR_API int dur_client_stats_get(dur_client_stats *out, dur_client *client, const char *instance, dur_error *err);

/* ---- administration: DUR_EUNSUPPORTED, naming the method, on a store without it ---------------------------------- */

DUR_API bool dur_client_has_admin(const dur_client *client);

typedef struct dur_list_options {
    size_t size;
    dur_instance_status status; /* NOT_FOUND: any */
    bool suspended_only;
    bool roots_only;
    const char *name;
    const char *id_prefix;
    const char *parent;
    uint64_t created_after_ms, created_before_ms;
    size_t limit;      /* 0: 1000 */
    const char *after; /* next of the page before */
} dur_list_options;
#define DUR_LIST(...) (&(dur_list_options){ .size = sizeof(dur_list_options), __VA_ARGS__ })
typedef struct dur_instance_list {
    size_t size;
    size_t count;
    const dur_instance_info *const *items; /* by instance id; owned by the list */
    const char *next;                      /* give it as `after` for the next page; NULL: this was the last */
} dur_instance_list;
/* Each page is of one moment.  An instance is listed from the moment when its start was accepted, as dur_client_info
   shows it: one that nobody has begun is running.  Whatever changes between two pages, an instance that is there and
   matches all the time is listed once. */
DUR_API int dur_client_list(dur_instance_list **out, dur_client *client, const dur_list_options *options,
                            dur_error *err);
DUR_API void dur_instance_list_free(dur_instance_list *list);

typedef enum dur_execution_status {
    DUR_EXECUTION_RUNNING,
    DUR_EXECUTION_COMPLETED,
    DUR_EXECUTION_FAILED,
    DUR_EXECUTION_CONTINUED_AS_NEW
} dur_execution_status;
DUR_API const char *dur_execution_status_name(dur_execution_status status); /* "Running" … "ContinuedAsNew" */

typedef struct dur_execution_info {
    size_t size;
    uint64_t execution_id;
    dur_execution_status status;
    const char *output; /* NULL: none */
    uint64_t started_at_ms;
    uint64_t completed_at_ms; /* 0: not ended */
    uint64_t event_count;
} dur_execution_info;
typedef struct dur_execution_list {
    size_t size;
    size_t count;
    const dur_execution_info *const *items; /* ascending; owned by the list */
} dur_execution_list;
DUR_API int dur_client_executions(dur_execution_list **out, dur_client *client, const char *instance, dur_error *err);
DUR_API void dur_execution_list_free(dur_execution_list *list);

/* History of an execution (0: the latest) as a JSON array; free with dur_free.  DUR_ENOTFOUND. */
DUR_API int dur_client_history(char **out, dur_client *client, const char *instance, uint64_t execution_id,
                               dur_error *err);

/* The instance and all below it, parents before children.  DUR_EBUSY, retryable: below it instances begin as fast as
   they are looked for, 10,000 did. */
typedef struct dur_id_list {
    size_t size;
    size_t count;
    const char *const *ids;
} dur_id_list;
DUR_API int dur_client_tree(dur_id_list **out, dur_client *client, const char *instance, dur_error *err);
DUR_API void dur_id_list_free(dur_id_list *list);

typedef struct dur_store_counts {
    size_t size;
    uint64_t total_instances, total_executions, running, completed, failed, suspended, total_events;
    uint64_t orchestrator_queue, worker_queue, timer_queue, dead_letters;
} dur_store_counts;
/* Instances are counted as dur_client_list shows them; executions and events when they are begun. */
DUR_API int dur_client_counts(dur_store_counts *out, dur_client *client, dur_error *err);

typedef struct dur_deleted {
    size_t size;
    uint64_t instances, executions, events, queue_messages;
} dur_deleted;
/* An instance with everything below it, also children whose start is still waiting, however their parent has ended; one
   that is scheduled meanwhile is not started.  What dur_start() has started is nobody's child, and stays.  Running:
   DUR_ERUNNING unless force; then it is suspended for the moment that the deletion takes, and one that has
   messages which no call has reported is ended first, so that they become dead letters.  If the caller dies in that
   moment, a node ends the instance after its owner_timeout_ms ("a client died while it ended or deleted it").  A child
   whose parent is there: DUR_ECHILD.  Who had the id when the call began is meant: one that somebody has deleted and
   started again meanwhile stays, and the call is DUR_ENOTFOUND.  DUR_EBUSY as for dur_client_tree: terminate it first.
   out may be NULL. */
DUR_API int dur_client_delete(dur_deleted *out, dur_client *client, const char *instance, bool force, dur_error *err);

typedef struct dur_bulk_options {
    size_t size;
    const char *const *instances; /* NULL: all */
    size_t instance_count;
    uint64_t completed_before_ms; /* 0: any */
    size_t limit;                 /* 0: 1000 */
} dur_bulk_options;
#define DUR_BULK(...) (&(dur_bulk_options){ .size = sizeof(dur_bulk_options), __VA_ARGS__ })
/* Finished roots with their trees; running ones are left alone.  DUR_EBUSY, retryable: an instance changed meanwhile.
 */
DUR_API int dur_client_delete_bulk(dur_deleted *out, dur_client *client, const dur_bulk_options *which, dur_error *err);

typedef struct dur_prune_rules {
    size_t size;
    uint64_t keep_last;           /* executions to keep, the current one included; 0: not asked */
    uint64_t completed_before_ms; /* 0: not asked; both: both must hold */
} dur_prune_rules;
#define DUR_PRUNE(...) (&(dur_prune_rules){ .size = sizeof(dur_prune_rules), __VA_ARGS__ })
typedef struct dur_pruned {
    size_t size;
    uint64_t instances, executions, events;
} dur_pruned;
/* Old executions of one instance, or of many (running ones included); never the current execution.  At least one rule
   is asked for: a call that names none would throw away every old execution, and is DUR_EINVAL (keep_last = 1 says that
   this is meant). */
DUR_API int dur_client_prune(dur_pruned *out, dur_client *client, const char *instance, const dur_prune_rules *rules,
                             dur_error *err);
DUR_API int dur_client_prune_bulk(dur_pruned *out, dur_client *client, const dur_bulk_options *which,
                                  const dur_prune_rules *rules, dur_error *err);

/* Messages that could not be read, and messages that nobody received before their instance ended or was deleted. They
   stay until they are deleted here; docs/operations.md says how to deliver them again. */
typedef struct dur_dead_letter_info {
    size_t size;
    uint64_t id;
    const char *instance; /* NULL: not known */
    const char *reason;
    uint64_t at_ms;
    const char *message; /* the stored text */
} dur_dead_letter_info;
typedef struct dur_dead_letter_list {
    size_t size;
    size_t count;
    const dur_dead_letter_info *const *items; /* owned by the list */
} dur_dead_letter_list;
/* By id, behind after_id: for the pages of one listing, which begins at 0.  Ids are no order of appearance: a dead
   letter of a transaction that is committed later may have an id before one that was listed already.  Who follows them
   deletes what is handled, and begins each listing at 0. */
DUR_API int dur_client_dead_letters(dur_dead_letter_list **out, dur_client *client, uint64_t after_id, size_t limit,
                                    dur_error *err);
DUR_API void dur_dead_letter_list_free(dur_dead_letter_list *list);
DUR_API int dur_client_dead_letters_delete(dur_client *client, const uint64_t *ids, size_t count, dur_error *err);

DUR_END_DECLS

#endif
