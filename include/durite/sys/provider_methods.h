/*
 * provider_methods.h: the contract between Durite and a store.
 *
 * A provider is dumb storage with two queues, leases and one atomic operation, the commit of a turn.  It never reads
 * or writes the texts that pass through it (dur_text json), never invents ids of events or executions, and knows
 * nothing of policies.  Everything it must know stands beside the text as a column.
 *
 * A provider is a struct whose first member is dur_provider; its table of methods may be shorter than ours: `size`
 * says where it ends, and a method that is NULL or beyond the end is one that it does not have.  Required methods come
 * first; each optional one has a fallback in src/provider, described at the method, so that a provider of the required
 * methods alone runs everything, only slower.  docs/provider-guide.md is the tutorial, durite-kit the judge.
 *
 * Callers do not call the table but the functions of sys/store.h, which check arguments and supply the fallbacks.
 *
 * Rules for every method:
 *   - int results are dur_code; err may be NULL; a failure that may go away by itself is marked retryable (busy,
 *     connection lost, deadlock, disk full), everything else is permanent (bad token, expired lock, duplicate event).
 *   - results are put into the given arena, or borrowed from arguments; nothing is to be freed.
 *   - any thread may call any method at any time, except lane methods: one thread per lane.
 *   - a failed method changed nothing; DUR_EUNKNOWN is the one exception (the outcome of a commit was not learned).
 *   - times are wall-clock milliseconds of the store (its `now`), and so are all delays (of messages, of abandon, of a
 *     turn): they end when `now` says so, also when that was set.  A caller may say any number, UINT64_MAX too: what
 *     does not fit behind the clock lasts for ever.  Lock times never depend on a jumping clock where the store can
 *     avoid it.  A due time of 0 means visible at once whatever the clock says.
 *   - names (ids of instances and messages, owners, sessions, queues, tags, keys, handlers, tokens) are bytes: two that
 *     differ in one are two, whatever a database would rather compare (case, blanks at the end, accents), and what
 *     comes by id comes in the order of strcmp.
 *   - texts (json) are kept byte for byte and never looked into; sys/store.h refuses U+0000 in them (DUR_EINVAL), as
 *     byte or as escape, because no text of C can hold it.
 *   - messages of an instance are ordered by (due time, id); abandoning does not change the order.  A message without a
 *     due time has that of its coming: the store's time under the lock that also gives the id, and never less than the
 *     one before it that waits had.  So undelayed messages are first in, first out, whatever clocks do, however long a
 *     sender stood still.  A due time that has passed when the message comes is its place all the same: a timer that
 *     was due before a message came is before it, and who puts a message back (a fallback) puts it where it was.
 *     Among the messages of one turn the turn decides: one whose due time has passed and that stands behind an
 *     undelayed one of the same turn is undelayed, too.
 *   - an instance EXISTS when it has a row written by a commit, or history, or a start or continue-as-new waiting (due
 *     or not).  Of several starts the one that came first, by id, makes the instance, also where it is due later.
 * Enqueueing a start makes no row of an instance, but whoever looks sees it all the same: get_instance and
 * list_instances show an instance that is known only by its start as running, with start_pending and the start, and
 * get_system_metrics counts it as starts_waiting.  Other messages make nothing visible.
 */
#ifndef DURITE_SYS_PROVIDER_METHODS_H
#define DURITE_SYS_PROVIDER_METHODS_H

#include <durite/error.h>
#include <durite/sys/arena.h>
#include <durite/sys/clock.h>
#include <durite/sys/event.h>
#include <durite/sys/waker.h>
#include <durite/sys/work.h>
#include <poll.h>

DUR_BEGIN_DECLS

typedef struct dur_provider dur_provider;
typedef struct dur_provider_methods dur_provider_methods;
typedef struct dur_lane dur_lane;
typedef struct dur_watch dur_watch;

/* Base of every provider.  `methods` must stay valid while the provider is open. */
struct dur_provider {
    const dur_provider_methods *methods;
    void *reserved; /* for the functions of sys/store.h; start with NULL */
};

/* Base of every lane and watch: a provider's own come first-member-wise behind it. */
struct dur_lane {
    dur_provider *store;
};
struct dur_watch {
    dur_provider *store;
};

#define DUR_NOT_COMPARED UINT64_MAX
#define DUR_NEVER UINT64_MAX

/* ---- values ---------------------------------------------------------------------------------------------------- */

typedef struct dur_semver {
    uint32_t major, minor, patch;
} dur_semver;

typedef struct dur_version_range {
    dur_semver min, max; /* both inclusive */
} dur_version_range;

/* Which histories a node can run.  Only the first range counts; no range: nothing is returned. */
typedef struct dur_capability_filter {
    const dur_version_range *ranges;
    size_t count;
} dur_capability_filter;

/*
 * Which handlers a node has.  Stores keep one text per instance, its handler: that of the start that made it (a start
 * for an instance that exists changes nothing), then of each turn that names orchestration and version (dur_handler_key
 * of both), then of each continue-as-new; none where nobody has said or a release has taken its start away, and none
 * once it has ended (metadata.status COMPLETED or FAILED), for then nothing runs any more and any node may clear up.  A
 * worker row keeps that of its message.  A fetch with a filter sees only rows whose handler is among the keys, and
 * those without one: applied before anything is locked or counted, and by an index that begins with the handler, so
 * that any number of rows of other services in front cost nothing.  A store that cannot do that ignores filters: who
 * asks copes with what comes.
 */
typedef struct dur_handler_filter {
    const char *const *keys; /* in order of strcmp, none twice */
    size_t count;            /* 0: nothing passes, not even what needs no handler */
} dur_handler_filter;

/* Whether a row with this handler (NULL or "": none) passes; a filter that is NULL lets everything pass. */
DUR_API bool dur_handler_passes(const dur_handler_filter *filter, const char *handler);

typedef enum dur_status {
    DUR_STATUS_NONE, /* in metadata: unchanged; for clients: not found */
    DUR_STATUS_RUNNING,
    DUR_STATUS_COMPLETED,
    DUR_STATUS_FAILED,
    DUR_STATUS_CONTINUED_AS_NEW
} dur_status;

DUR_API const char *dur_status_name(dur_status status); /* "Running", … ; "NotFound" for NONE */
DUR_API dur_status dur_status_from_name(const char *name);

/* One event as it is stored.  When reading only event_id and json are set. */
typedef struct dur_event_row {
    uint64_t event_id;   /* 1 … INT64_MAX - 1 */
    dur_event_kind kind; /* stores look only at CUSTOM_STATUS_UPDATED and the three KEY_VALUE kinds */
    const char *key;     /* KEY_VALUE_SET, KEY_VALUE_CLEARED */
    const char *value;   /* KEY_VALUE_SET: value; CUSTOM_STATUS_UPDATED: text, NULL is a reset */
    uint64_t stamp_ms;   /* KEY_VALUE_SET: last_updated_at_ms */
    dur_text json;       /* kept verbatim */
} dur_event_row;

/* The row of an event: encodes it and copies the columns; lives in arena. */
DUR_API int dur_event_row_from(dur_event_row *out, dur_arena *arena, const dur_event *event, dur_error *err);

typedef struct dur_key_value {
    const char *key;
    const char *value;
    uint64_t last_updated_at_ms;
} dur_key_value;

/* A message as it is fetched from the orchestrator queue. */
typedef struct dur_fetched_message {
    uint64_t id; /* unique in the store, grows in order of enqueueing */
    uint64_t due_ms;
    uint32_t attempt_count; /* fetches of this message, this one included.  Being handed to a lease that is held (by a
                               round, by lane_messages) is told like a fetch, but not kept: it would be a write each */
    const char *queue;      /* QueueMessage: queue name; else NULL */
    dur_text json;
} dur_fetched_message;

/* ---- orchestrations --------------------------------------------------------------------------------------------- */

/*
 * Suspects.  An owner that dies without a goodbye may have been killed by something that ran there.  Whatever it had
 * locked gets one crash more: worker rows, and instances that were acquired and have not committed since.  A store
 * keeps three things beside each: how many crashes, how many of them while it ran alone, and whether it runs alone now.
 * The first redelivery is free; with DUR_SUSPECT_CRASHES crashes it is a suspect.  Suspects are fetched by kind SUSPECT
 * only, which marks what it takes as running alone; other fetches take the mark away, and so does alone_ended.  A
 * commit of an instance, and an activity that returned, end the suspicion.  Timed locks know no crashes.
 *
 * Doubt.  What is no suspect runs beside the one that runs alone, and may be what kills the process.  So the store
 * remembers of such a crash everything else that was counted in it.  As long as one of those has not shown since that
 * it can end (an instance by a commit, a worker row by being consumed, acknowledged, abandoned with its attempt counted
 * or buried), the crash is in doubt: fetches do not tell it as a crash alone, though it counts in the order of
 * suspects. When all have shown it, it is told.  A crash is never told when one of them was blamed for it (method
 * blame), or went without having shown anything: cancelled, removed by a commit, deleted.
 */
enum { DUR_SUSPECT_CRASHES = 2 };

typedef enum dur_fetch_kind {
    DUR_FETCH_ANY,
    DUR_FETCH_FRESH,  /* only what is no suspect */
    DUR_FETCH_SUSPECT /* only suspects, those with the fewest crashes alone first, those in doubt included; they run
                         alone from now on */
} dur_fetch_kind;

typedef struct dur_fetch {
    uint64_t lock_ms;                    /* the lock ends by itself after this; not used with an owner */
    uint64_t poll_ms;                    /* may block so long for something to come; 0: answer at once.  Other calls
                                            are answered meanwhile */
    const dur_capability_filter *filter; /* NULL: every version */
    const dur_handler_filter *handlers;  /* NULL: every handler */
    /* The fields below are used only with fetch_turns and lane_round. */
    const char *owner; /* NULL: a timed lock; else a lease that holds while the owner lives */
    size_t max;        /* instances at most; 0: 1 */
    dur_fetch_kind kind;
    uint32_t queue_messages_max; /* of each queue only the first so many; 0: all */
    bool without_history;        /* leave history out (messages, name, version and last_event_id are there) */
} dur_fetch;

typedef struct dur_orchestration_item {
    const char *instance;
    const char *lock_token;         /* random, new at each acquisition */
    uint64_t store_key;             /* the store's own key of the instance, to be handed back; 0: it has none */
    const char *orchestration_name; /* from the instance row, else from history, else from the start message */
    const char *version;            /* NULL: not known */
    uint64_t execution_id;          /* current execution; 1 for a new instance */
    uint64_t last_event_id;         /* of that execution; 0: no history */
    uint32_t attempt_count;         /* largest of the messages */
    uint32_t acquisitions;          /* in a row without a commit, this one included; 0: the store does not count */
    uint32_t crashes;               /* among those acquisitions: their owner died */
    uint32_t crashes_alone;         /* … while the instance ran alone, without those in doubt */
    const dur_event_row *history;   /* of the current execution, by event id */
    size_t history_count;
    const dur_fetched_message *messages; /* all visible ones, by (due, id) */
    size_t message_count;
    bool more_messages; /* queue_messages_max left some out */
    /* Worker rows of the current execution, by activity id: those that were there when the messages were read, or
       before.  works_known: a fetch of a store that has local work tells them; lane_history does not, because whoever
       holds the lease knows what it has. */
    const uint64_t *works;
    size_t work_count;
    bool works_known;
    bool work_lost;          /* a lease has ended while activities were open, and nobody has committed since.  A fetch
                                gives it to anybody, whatever its filters: to write rows needs no handler */
    bool start_later;        /* it has not begun, starts are among the messages, and the one that came first is not due:
                                those are calls of an id that is taken.  A store that does not say so lets the first
                                that is due have the id */
    const dur_key_value *kv; /* state at the end of the previous execution */
    size_t kv_count;
    const char *history_error; /* a stored event cannot be read: why ("… deserialization failed …"); history is
                                  empty.  Filled by sys/store.h, which tries to decode; a store leaves it NULL */
} dur_orchestration_item;

typedef struct dur_execution_metadata {
    dur_status status;              /* NONE: leave as it is */
    const char *output;             /* result, error text or continue-as-new input */
    const char *orchestration_name; /* name and version given: create or update the instance row */
    const char *orchestration_version;
    const char *parent_instance_id;
    uint64_t parent_birth; /* not stored: for needs_parent; 0: not known */
    uint64_t birth;        /* kept in the row that name and version make, unchanged from then on; 0: none.
                              A number that tells this instance from others that had its id */
    bool has_pinned_version;
    dur_semver pinned_version;
} dur_execution_metadata;

typedef struct dur_activity_ref {
    const char *instance;
    uint64_t execution_id;
    uint64_t activity_id;
    uint64_t row_id; /* as answered when it was inserted or fetched; 0: not known */
} dur_activity_ref;

/* A worker row that a turn finishes: the activity's completion is among the turn's events. */
typedef struct dur_worker_claim {
    dur_activity_ref ref;
    const char *lock_token;
} dur_worker_claim;

/*
 * A worker item that a turn adds, and whether it is to be locked for this runtime at once.
 *
 * Local work.  A row that is inserted with one commit and deleted with the next says nothing that history does not say.
 * So a store may leave it out where the turn asks for that, in a lane_round that keeps the lease: the runtime of the
 * lane has the activity alone, and its completion consumes no row.  While the lease holds nobody needs the row.  Who
 * gives the lease up writes the rows of what is still open in that commit, locked with its tokens.  When the lease ends
 * otherwise, nobody has written them: what is open in history and has neither a row nor a completion among the messages
 * was local.  Whoever acquires the instance next writes it as `recovered`, gives the lease back with that commit, and
 * everything is as if the rows had been there all the time.
 */
typedef struct dur_turn_work {
    dur_message_row message;
    const char *lock_token; /* NULL or empty, or the turn has no owner: for anybody.  Else lock it with this token,
                               attempt count 1 */
    /* answer */
    bool locked; /* false although asked: its session is somebody else's, or the store does not lock eagerly */
    /* asked */
    bool may_be_local; /* with lock_token, no session, and keep_lease */
    bool recovered;    /* without lock_token: it was local under a lease that has ended.  Its attempt count is 1, and
                          where that lease's owner has died, so is its count of crashes, in which it was company */
    /* answers */
    bool local;      /* it was not stored: this lane's runtime has it alone.  False, too, from a store that does not
                        know local work, which locks it as ever */
    uint64_t row_id; /* the store's id of the row, 0: it has none */
} dur_turn_work;

/* Which comparison made a turn fail; of several the first of: lease (with if_unleased and if_uncancelled), position
   (then who is meant), parent, work.  An event that is there already is found last, and is DUR_TURN_POSITION, too. */
typedef enum dur_turn_fault {
    DUR_TURN_FINE,
    DUR_TURN_LEASE_LOST, /* the token is not (or no longer) the instance's */
    DUR_TURN_POSITION,   /* event expected_last is missing or has a successor */
    DUR_TURN_WORK_LOST,  /* a consumed worker row is gone or locked by somebody else: see lost_work */
    DUR_TURN_STORE,      /* the store failed; error says whether trying again makes sense */
    DUR_TURN_ORPHAN      /* needs_parent, and that parent does not exist; DUR_ENOTFOUND */
} dur_turn_fault;

/*
 * The commit of one turn.  All or nothing.  With the fields below "optional" left zero (expected_last as
 * DUR_NOT_COMPARED) it is exactly the ack of an orchestration item: messages tagged by the token are deleted, the lock
 * is removed.  Order inside: docs/provider-guide.md.
 *
 * A turn that contradicts itself is refused by the functions of sys/store.h, DUR_EINVAL, before a store sees it:
 * events, status, name or version without an execution id or with give_back; keep_lease without an execution id;
 * give_back with keep_lease or take_over; a reason to suspend what it ends; a condition (if_) without take_over;
 * writes_start without instance, execution, name and version.  Nothing of a turn is ever left out in silence.
 */
typedef struct dur_turn_commit {
    const char *lock_token;
    const char *instance; /* NULL: found by the token */
    uint64_t store_key;   /* from the item; 0: not known */
    uint64_t execution_id;
    const dur_event_row *events; /* appended; a duplicate id fails the turn; an id out of its range is refused */
    size_t event_count;
    dur_turn_work *worker_items; /* inserted before cancelled ones are deleted */
    size_t worker_item_count;
    /* Sent in this order.  SubOrchCompleted, SubOrchFailed and CancelInstance to an instance that does not exist are
       dropped, which is decided under the lock of this commit: the receiver had begun, and was deleted since */
    const dur_message_row *orchestrator_items;
    size_t orchestrator_item_count;
    dur_execution_metadata metadata;
    /* The execution begins with the first turn that has something of it to write (events, status, pinned version,
       name), or that is an ack: one which takes all that was handed out.  A turn that lists what it consumes, and
       nothing else, begins none */
    const dur_activity_ref *cancelled; /* deleted from the worker queue; missing ones do no harm */
    size_t cancelled_count;

    /* ---- optional: lane_round and commit_turns only ---- */
    uint64_t expected_last;   /* last event id of the execution before this turn; DUR_NOT_COMPARED: not checked */
    bool consume_listed;      /* delete exactly these messages, not "all that carry the token" */
    const uint64_t *consumed; /* message ids; missing ones do no harm */
    size_t consumed_count;
    const dur_worker_claim *worker_consumed;
    size_t worker_consumed_count;
    const dur_activity_ref *timers_dropped; /* TimerFired messages to delete, not due, due or handed out; missing ones
                                               do no harm */
    size_t timers_dropped_count;
    const char *owner;         /* who holds the lease, and for whom worker items are locked */
    const char *session_owner; /* with session items among worker_items: who claims, for how long */
    uint64_t session_lock_ms;
    bool keep_lease;      /* the token stays valid; messages that come later are handed to the owner */
    uint64_t seen_id;     /* without keep_lease: messages that were handed out under this lease and left, up to this */
    uint64_t seen_now_ms; /*   id (delayed ones: due up to this time), were seen and are no reason to fetch the instance
                               again, nor is what waits in a queue behind one of them.  What was never handed out is a
                               reason, whatever its id: ids need not be in order of commit.  0, 0: all count.  Both as
                               of the last round before the turn was made; where the lease is handed more before the
                               turn is committed they are 0, 0 again: nobody has seen that */
    uint64_t delay_ms;    /* without keep_lease: not fetched again before now + delay (0: at once) */
    bool give_back;       /* the acquisition was not used (shutdown, unregistered): do not count it */
    /* A turn with execution_id 0 is a release: nothing is written, the lease goes, and what it lists as consumed; if
       that was its start, the instance no longer exists, unless another start waits behind it.  Messages that it lists
       are sent.  It clears the counts of
       attempts only if it says what it has seen (the handler ran and waits); otherwise it leaves them, or with
       give_back takes one off. */
    bool take_over;   /* no token is compared; any lease on the instance ends (terminate).  Who is meant is compared:
                         metadata.birth, where it and the row's are given, and every message that is listed as
                         consumed is there.  Otherwise another instance has the id, or it has begun:
                         DUR_TURN_POSITION */
    bool if_unleased; /* with take_over: DUR_TURN_LEASE_LOST when somebody holds the instance */
    bool remove_work; /* delete worker rows, timers and messages of the instance (terminate), but neither starts, unless
                         they are listed as consumed, nor QueueMessages: a start is somebody's call and is answered, a
                         QueueMessage was accepted and becomes a dead letter, when the instance is fetched next, for
                         which they are a reason again, whoever has seen them.  With execution_id 0 it says that an
                         instance which has not begun is none: when its start is consumed, what stands in front of the
                         next start goes, too, handed out or not, QueueMessages as dead letters (where the store keeps
                         them) at once; what is behind is for whoever has the id then */
    bool set_suspended;    /* mark suspended with this reason, which ends the lease (NULL: resume); a turn that ends has
                              none, nor has one of an instance that has ended */
    const char *suspended; /* not looked at without set_suspended */
    bool needs_parent; /* compared too: metadata.parent_instance_id exists and, if metadata.parent_birth is given, is
                          the instance that is meant: that birth is in its row, or it has history and no birth (it was
                          brought here by other means; what Durite ends before its first turn has one, too).  By a birth
                          one that is no more than a start that waits is not found: it has not begun and is nobody's
                          parent.  With the refusal of
                          delete_instances to leave a child's row behind, no child outlives its parent, whenever it was
                          scheduled, nor finds another under the same id */

    bool writes_start; /* only in a lane_round of a store that has `births`: this turn makes the instance, which nobody
                          has written, as a start, a fetch and the turn would have, under the lease of the turn's owner,
                          or else the lane's.  Where it is known already, if only by a start that waits, or that owner
                          is not registered: DUR_TURN_LEASE_LOST, and nothing was written.  lock_token is a new, random
                          one.  Committed, lock_token and store_key are answers: those of the lease, as a fetch would
                          have told them */
    bool if_uncancelled; /* with if_unleased: DUR_TURN_LEASE_LOST also when a CancelInstance waits for the instance, due
                            or not */
    const char *if_suspended; /* with take_over: DUR_TURN_POSITION unless it is suspended, for this reason */
    uint32_t open; /* with events: how many activities are open after the last of them, local ones or not.  A hint, kept
                      with the history: when the lease ends otherwise than by its holder's commit (the owner died or was
                      released, abandoned), and the last turn with events said more than 0, that is a reason to fetch
                      the instance, without any message and whatever its handler and version, for every fetch that is
                      not for suspects, until the holder of a later lease commits (a take_over holds none).  Too high
                      does no harm */

    /* ---- answers ---- */
    dur_turn_fault fault;
    dur_error error; /* code DUR_OK when committed */
    bool lease_kept; /* false although asked: the store cannot keep leases */
    const dur_worker_claim *const *lost_work;
    size_t lost_work_count;
} dur_turn_commit;

/* ---- activities -------------------------------------------------------------------------------------------------- */

typedef enum dur_tag_mode {
    DUR_TAGS_DEFAULT_ONLY, /* untagged items */
    DUR_TAGS_ONLY,         /* items with one of the tags */
    DUR_TAGS_AND_DEFAULT,  /* both */
    DUR_TAGS_ANY,
    DUR_TAGS_NONE /* nothing: the store is not even asked */
} dur_tag_mode;

typedef struct dur_tag_filter {
    dur_tag_mode mode;
    const char *const *tags;
    size_t tag_count;
} dur_tag_filter;

typedef struct dur_work_fetch {
    uint64_t lock_ms;
    uint64_t poll_ms;
    const char *session_owner; /* NULL: only items without a session */
    uint64_t session_lock_ms;
    dur_tag_filter tags;
    const dur_handler_filter *handlers; /* names of activities; NULL: all */
    /* fetch_works and lane_round only */
    const char *owner; /* NULL: a timed lock */
    size_t max;        /* 0: 1 */
    dur_fetch_kind kind;
} dur_work_fetch;

typedef struct dur_leased_work {
    dur_activity_ref ref;
    const char *lock_token;
    uint32_t attempt_count; /* this fetch included */
    uint32_t crashes;       /* owners that died while they had the row locked.  They stay when the row is given back
                               unstarted (return_works, abandon with ignore_attempt, owner_release); an attempt that
                               returned (abandon that counts) clears them */
    uint32_t crashes_alone; /* … while it ran alone, without those in doubt */
    dur_text json;
} dur_leased_work;

/* The end of a worker item that goes through the queue. */
typedef struct dur_work_ack {
    const char *lock_token;
    dur_activity_ref ref;              /* zero: found by the token */
    const dur_message_row *completion; /* NULL: delete only */
    dur_error error;                   /* answer; DUR_ELEASE: row gone or lock expired */
} dur_work_ack;

/* ---- rounds: all that a loop does with the store, in one transaction --------------------------------------------- */

typedef struct dur_held_message {
    const char *instance;
    const char *lock_token;
    dur_fetched_message message;
} dur_held_message;

typedef struct dur_round {
    /* in */
    dur_turn_commit *turns; /* answered one by one */
    size_t turn_count;
    dur_work_ack *acks; /* answered one by one */
    size_t ack_count;
    const dur_fetch *fetch;      /* NULL: acquire no instance.  Sees what this round wrote */
    const dur_work_fetch *work;  /* NULL: take no work */
    uint32_t queue_messages_max; /* for held messages: of each queue a lease has at most so many that were handed out
                                    and not consumed; 0: all.  A turn that consumes some makes room, listed or not
                                    (all that were handed out under the token): what follows comes with the round
                                    that commits it or, at the latest, with the next */
    /* out, in the arena of the call */
    dur_orchestration_item *items;
    size_t item_count;
    dur_leased_work *works;
    size_t work_count;
    dur_held_message *held; /* messages for leases of this lane that it was not given before, by (due, id); of a queue
                               never one whose elder is visible and was not given */
    size_t held_count;
    const char **lost; /* instances whose lease this lane no longer holds (delete, terminate, take-over) */
    size_t lost_count;
    uint64_t now_ms;      /* the store's time */
    uint64_t seen_id;     /* highest message id that this round's reads may have seen */
    uint64_t next_due_ms; /* when something may become visible by itself, never later: a message falls due, a delay
                             ends, a timed lock of an instance, a worker row or a session ends; DUR_NEVER */
    bool more;            /* there may be more to fetch at once */
    /* What a fetch of kind SUSPECT would find, of instances with `fetch`, of work with `work`: 0: nothing, or nothing
       was asked; else 1 more than the first one's crashes alone, those in doubt included.  So of both kinds whoever has
       the fewest goes first. */
    uint32_t suspect_instance, suspect_work;
    bool work_waiting_long; /* the head of the shared worker queue is older than 100 ms */
    bool settles;           /* with DUR_EUNKNOWN, of the round or of a turn: what it has acquired, made or handed out
                               unheard the lane itself gives back or hands out again before anything else, so whatever
                               the caller knows of holds.  false: only giving up the owner id frees what nobody knows */
    const char **asked;     /* instances that this lane holds and is asked to give up in good order (set_suspended): the
                               lease holds until it does.  Each is told once */
    size_t asked_count;
} dur_round;

typedef struct dur_lane_options {
    const char *owner;                  /* registered before; NULL where the store has no owners */
    dur_waker *waker;                   /* the sleeper to wake; lives longer than the lane */
    const dur_handler_filter *handlers; /* what its node has; lives longer than the lane; NULL: all */
    bool stepped; /* the thread that uses it comes by when it likes: nothing of others is left to it to write */
} dur_lane_options;

/* ---- owners ------------------------------------------------------------------------------------------------------ */

typedef struct dur_owner_options {
    const char *owner;   /* id, new at each process start */
    uint64_t timeout_ms; /* dead when silent for so long (default 10 s) */
    /* What it has, kept while it is registered, for list_unserved; NULL: everything. */
    const dur_handler_filter *handlers;
    const dur_handler_filter *activities;
} dur_owner_options;

/* Something that is locked under an owner. */
typedef enum dur_holding_kind { DUR_HOLDS_INSTANCE, DUR_HOLDS_WORK, DUR_HOLDS_SESSION } dur_holding_kind;
typedef struct dur_holding {
    dur_holding_kind kind;
    const char *instance;               /* SESSION: the session's name */
    uint64_t execution_id, activity_id; /* WORK; else 0 */
    const char *token;                  /* as fetch gave it; SESSION: "" */
} dur_holding;

typedef struct dur_owner_report {
    bool still_ours;     /* false: taken for dead; everything under this id is lost */
    bool went_back;      /* the store is, or may be, in an earlier state than one that it has told (a failover to a
                            standby, a restore): what it holds under this id is not what this process knows, leases,
                            messages, worker rows and sessions alike.  Give the id up (owner_release) and begin again */
    uint32_t peers;      /* other live owners */
    uint32_t taken_over; /* dead owners whose leases this owner, by its beats or its lanes, set free since its last */
    uint32_t freed;      /* leases and worker rows set free by that */
    char last_dead[64];  /* id of the last of them */
    uint32_t refused;    /* dead owners that the store would not let this beat take over, again and again */
    char last_refused[64], refused_why[160]; /* id of the last of them, and the store's words */
    uint64_t now_ms;
    uint64_t crashed_at_ms; /* when an owner that did not stop cleanly was last taken over, by whomever; 0: never */
    uint64_t look_again_ms; /* the next beat is wanted this soon: a peer seems dead, and it can be told then; 0: at its
                               time */
} dur_owner_report;

/* Something that waits for a handler which no registered owner has. */
typedef enum dur_unserved_kind {
    DUR_UNSERVED_INSTANCE, /* it could be fetched now */
    DUR_UNSERVED_ACTIVITY, /* a worker row, the same */
    DUR_UNSERVED_CANCEL,   /* such an instance, and this cancel request waits for it */
    DUR_UNSERVED_SESSION   /* a worker row of a session: the owner that holds the session has not got it, others have */
} dur_unserved_kind;

typedef struct dur_unserved {
    dur_unserved_kind kind;
    const char *handler;
    const char *instance;
    uint64_t since_ms;           /* CANCEL: when the request was enqueued */
    dur_text json;               /* CANCEL: the request */
    const char *session, *owner; /* SESSION: its name, and who holds it */
} dur_unserved;

/* ---- start policies ---------------------------------------------------------------------------------------------- */

typedef enum dur_exists_policy {
    DUR_EXISTS_FAIL,            /* DUR_EEXISTS */
    DUR_EXISTS_RETURN,          /* DUR_OK, nothing changed, *existed is set */
    DUR_EXISTS_REPLACE_FINISHED /* a finished instance is deleted with its tree; a running one: DUR_EEXISTS */
} dur_exists_policy;

/* One of several starts, as enqueue_start is given it, and its answer. */
typedef struct dur_start_request {
    const dur_message_row *item;
    dur_exists_policy policy;
    uint64_t delay_ms;
    /* answers */
    bool existed;
    dur_error error; /* code DUR_OK: durable, or it exists and may */
} dur_start_request;

/* ---- admin ------------------------------------------------------------------------------------------------------- */

typedef struct dur_instance_row {
    const char *instance_id;
    const char *orchestration_name;
    const char *orchestration_version;
    uint64_t current_execution_id;
    dur_status status;
    const char *output; /* NULL: none */
    uint64_t created_at_ms;
    uint64_t updated_at_ms;
    const char *parent_instance_id; /* NULL: a root */
    uint64_t birth;                 /* as it was given with the first turn; 0: none */
    const char *suspended;          /* reason; NULL: not suspended */
    const char *custom_status;      /* NULL: none */
    uint64_t custom_status_version;
    const char *owner;         /* who leases it now; NULL: nobody */
    const char *handler;       /* get_instance only: what a node must have to run it; NULL: nothing, or not known */
    bool unserved;             /* get_instance only: no registered owner has that */
    const char *stuck_session; /* get_instance only: "Activity in session S of OWNER": a worker row of it waits, and the
                                  session's owner has no handler for it; NULL: none does */
    bool start_pending;        /* known only by a start that no turn has consumed yet */
    dur_text pending_start;    /* get_instance; list_instances with start_pending: text of the first start or
                                  continue-as-new that waits, as it is stored, so that clients can show and terminate
                                  what has not run; size 0: none */
    uint64_t pending_start_id; /* … and its message id */
} dur_instance_row;

typedef struct dur_execution_row {
    uint64_t execution_id;
    dur_status status;
    const char *output;
    uint64_t started_at_ms;
    uint64_t completed_at_ms; /* 0: not ended */
    uint64_t event_count;
} dur_execution_row;

typedef struct dur_system_metrics {
    uint64_t total_instances, total_executions, running, completed, failed, total_events;
    uint64_t suspended;      /* starts that wait included */
    uint64_t starts_waiting; /* known only by a start that no turn has consumed yet: in no other number but suspended */
} dur_system_metrics;

typedef struct dur_queue_depths {
    uint64_t orchestrator_queue; /* visible now */
    uint64_t worker_queue;       /* not locked */
    uint64_t timer_queue;        /* orchestrator messages not yet due */
    uint64_t dead_letters;
} dur_queue_depths;

typedef struct dur_instance_stats {
    uint64_t history_event_count, history_size_bytes, queue_pending_count, kv_user_key_count, kv_total_value_bytes;
} dur_instance_stats;

/* Of what is known only by a start, the start says what the row of others does: its handler has the name ("Name@…"),
   its message the parent, and it was created when the start came. */
typedef struct dur_instance_query {
    dur_status status; /* NONE: any; RUNNING: all that have not ended, between two executions and start_pending, too */
    bool suspended_only;
    const char *name;      /* orchestration name; NULL: any */
    const char *id_prefix; /* NULL: any */
    const char *parent;    /* direct children of this instance; NULL: any */
    bool roots_only;
    uint64_t created_after_ms; /* 0: any */
    uint64_t created_before_ms;
    size_t limit;      /* 0: all */
    const char *after; /* instance id: continue behind it; rows come by instance id */
} dur_instance_query;

typedef struct dur_bulk_filter {
    const char *const *instance_ids; /* NULL: all; an array of none: none */
    size_t instance_id_count;
    uint64_t completed_before_ms; /* 0: any */
    size_t limit;                 /* 0: 1000.  Of roots that are deleted; of instances of which executions are deleted:
                                     those with nothing to prune do not use it up */
} dur_bulk_filter;

typedef struct dur_prune_options {
    bool has_keep_last;
    uint64_t keep_last;           /* counts the current execution; none, 0 and 1 keep it alone */
    uint64_t completed_before_ms; /* 0: not asked; both given: both must hold; none given: the current one stays */
} dur_prune_options;

/* Who is meant by an id, which is an address: by its birth, or, as long as it has not begun, by the start that makes it
   (pending_start_id).  0: whoever has the id.  One without a birth that has history (it was brought here by other
   means) is meant by any. */
typedef struct dur_meant {
    uint64_t birth;
    uint64_t start_id;
} dur_meant;

typedef struct dur_delete_result {
    uint64_t instances, executions, events, queue_messages;
} dur_delete_result;

typedef struct dur_prune_result {
    uint64_t instances_processed, executions_deleted, events_deleted;
} dur_prune_result;

typedef struct dur_dead_letter {
    uint64_t id;
    const char *instance;
    const char *reason;
    uint64_t at_ms;
    dur_text json;
} dur_dead_letter;

/* Until when a lane has nothing to do, and which descriptors may end that sooner (lane_rest). */
#define DUR_REST_FDS 4
typedef struct dur_rest {
    uint64_t us; /* 0: do not sleep; UINT64_MAX: only the descriptors end it */
    struct pollfd fds[DUR_REST_FDS];
    size_t fd_count;
} dur_rest;

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* The shape of everything that goes through the table, arrays of structs included.  It grows with each change of this
   header; a store that was compiled with another number is refused by dur_open.  From 1.0 on it changes only with the
   first number of the version. */
#define DUR_PROVIDER_ABI 1u

struct dur_provider_methods {
    size_t size;      /* sizeof(dur_provider_methods) as the provider was compiled */
    uint32_t abi;     /* DUR_PROVIDER_ABI as the provider was compiled */
    const char *name; /* "sqlite" */
    const char *version;
    bool own_clock;  /* true: due and lock times follow the store's own clock (a server); false: dur_world of open */
    bool local_work; /* true: its lanes leave work out (dur_turn_work), and its fetches tell the rows that are there */

    /* ======== required ======== */

    /* Close and free.  Handles are counted by the caller; nothing else is called afterwards. */
    void (*close)(dur_provider *self);
    /* The store's time, wall milliseconds.  May be an estimate between two answers of a server. */
    uint64_t (*now_ms)(dur_provider *self);

    /*
     * Lock one instance that has a visible message, no valid lock, is not suspended and passes both filters (applied
     * before any lock and before history is touched; an instance without a pinned version passes).  All its visible
     * messages are tagged with the token and their attempt_count grows by one.  Of several the one whose first such
     * message is the oldest, so that nobody who sends to itself keeps others waiting; every fetch (fetch_turns,
     * lane_round) goes by all of this, only suspects have an order of their own.  Nothing to do: DUR_OK with
     * out->instance NULL.  A message for an instance that does not exist never hides another instance's work;
     * visible QueueMessages of an instance that does not exist become dead letters (or are deleted with a warning),
     * at the latest by a fetch without a filter that finds nothing else; its other messages wait.
     */
    int (*fetch_orchestration_item)(dur_provider *self, dur_arena *arena, const dur_fetch *how,
                                    dur_orchestration_item *out, dur_error *err);
    /*
     * Commit one turn and remove the lock, a lane's lease too.  Optional fields are zero, expected_last is
     * DUR_NOT_COMPARED: sys/store.h leaves them out.  All messages that were
     * handed out under the token are deleted: those of the fetch, and those that rounds handed to the lease since.  Bad
     * or expired token: DUR_ELEASE, "Invalid lock token".  Duplicate event: DUR_ECONFLICT.  Writes the answers in turn,
     * and err too.
     */
    int (*ack_orchestration_item)(dur_provider *self, dur_turn_commit *turn, dur_error *err);
    /* Give an instance back.  It is not fetched again before delay_ms have passed, and what came meanwhile waits with
       it; then all its messages are there in their order.  ignore_attempt: attempt counts go down by one, not below
       0. */
    int (*abandon_orchestration_item)(dur_provider *self, const char *lock_token, uint64_t delay_ms,
                                      bool ignore_attempt, dur_error *err);
    /* The lock ends extend_ms from now, also where it would have ended later; a lease under an owner stays as it is.
       Bad or expired token: DUR_ELEASE, as for abandon and for what workers have. */
    int (*renew_orchestration_item_lock)(dur_provider *self, const char *lock_token, uint64_t extend_ms,
                                         dur_error *err);

    /* Events of an execution (0: the latest), by id.  Unknown: DUR_OK, count 0. */
    int (*read)(dur_provider *self, dur_arena *arena, const char *instance, uint64_t execution_id, dur_event_row **out,
                size_t *count, dur_error *err);
    /* Append for tests and tools; duplicate: DUR_ECONFLICT; id 0: DUR_EINVAL. */
    int (*append)(dur_provider *self, const char *instance, uint64_t execution_id, const dur_event_row *events,
                  size_t count, dur_error *err);

    int (*enqueue_for_worker)(dur_provider *self, const dur_message_row *item, dur_error *err);
    /* Lock one item: visible, unlocked or lock expired, tag, session and handlers admit it, first in first out.  None:
       json.data is NULL.  Claims the session in the same step; losing the race is "none", or better, the next item. */
    int (*fetch_work_item)(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                           dur_error *err);
    /* Delete the row and enqueue the completion, atomically.  Row gone or lock expired: DUR_ELEASE. */
    int (*ack_work_item)(dur_provider *self, const char *lock_token, const dur_message_row *completion, dur_error *err);
    /* As for instances: from now.  The row's session was active. */
    int (*renew_work_item_lock)(dur_provider *self, const char *lock_token, uint64_t extend_ms, dur_error *err);
    /* Give a row back; it keeps its place in the order, behind the delay.  ignore_attempt: the count goes down by one.
     */
    int (*abandon_work_item)(dur_provider *self, const char *lock_token, uint64_t delay_ms, bool ignore_attempt,
                             dur_error *err);

    /* Extend the sessions that one of the owners still holds and that were active less than idle_ms ago (0: none), to
       extend_ms from now; how many.  That is no activity of theirs. */
    int (*renew_session_lock)(dur_provider *self, const char *const *owners, size_t owner_count, uint64_t extend_ms,
                              uint64_t idle_ms, uint64_t *renewed, dur_error *err);
    /* Delete sessions that have no items, free or locked, and whose lock has ended, under an owner those that were not
       active for idle_ms; how many.  Items that nobody runs and that the owner has no handler for (owner_register) are
       none of the session's: another node takes them, and the session with them. */
    int (*cleanup_orphaned_sessions)(dur_provider *self, uint64_t idle_ms, uint64_t *removed, dur_error *err);

    /* Put a message into the orchestrator queue; visible at max(item->due_ms, now + delay_ms). */
    int (*enqueue_for_orchestrator)(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err);

    /* *changed: the stored version is greater than last_seen; then status (NULL: none) and version are set. */
    int (*get_custom_status)(dur_provider *self, dur_arena *arena, const char *instance, uint64_t last_seen,
                             bool *changed, const char **status, uint64_t *version, dur_error *err);
    /* Value now, writes of the running execution included; NULL: no such key. */
    int (*get_kv_value)(dur_provider *self, dur_arena *arena, const char *instance, const char *key, const char **value,
                        dur_error *err);
    int (*get_kv_all_values)(dur_provider *self, dur_arena *arena, const char *instance, dur_key_value **out,
                             size_t *count, dur_error *err);

    /* ======== optional: lanes.  Fallback: rounds made of the methods above; leases are not kept, so handlers are
       replayed at every turn; queue messages go into history as they come; threads beside the loops wait in the
       fetches with their poll_ms ======== */

    /* DUR_ESTATE: the owner is not registered. */
    int (*lane_open)(dur_provider *self, const dur_lane_options *options, dur_lane **out, dur_error *err);
    /* One transaction (or as few as possible).  The result is an error only if nothing was done; else each turn and
       ack has its own answer. */
    int (*lane_round)(dur_lane *lane, dur_arena *arena, dur_round *round, dur_error *err);
    /*
     * Waiting, in two halves, so that the sleep between them may be the host's own poll().  lane_rest serves whatever
     * others wait for and says how long nothing can come by itself, and what to poll for reading, the lane's waker
     * among it.  Something is all that a round could hand out or tell: messages for leases of the lane, leases lost or
     * asked for, and whatever anybody can fetch, by whomever's doing it came or came back (a resume, work given back,
     * work of a turn, what an owner had that left or died) or by time.
     * out->us is 0: something may have come; do not sleep, no lane_rise follows.  Otherwise the waker counts
     * as asleep from here until lane_rise, which is told what the poll found.  *news: something may have come, or the
     * waker was woken; false: rest again.  Both may be wrong in the direction of looking once too often.
     */
    int (*lane_rest)(dur_lane *lane, dur_rest *out, dur_error *err);
    int (*lane_rise)(dur_lane *lane, const dur_rest *slept, bool *news, dur_error *err);
    /* Leases stay with their owner, as long as that lives. */
    void (*lane_close)(dur_lane *lane);
    /* Messages of a leased instance behind `after` (a message's id and due time), of one queue or (NULL) all that were
       handed out and all of its queues.  Those of a queue count as handed out; what lies before `after` and was not
       comes with a round. */
    int (*lane_messages)(dur_lane *lane, dur_arena *arena, const char *instance, const char *lock_token,
                         const char *queue, uint64_t after_due_ms, uint64_t after_id, size_t max,
                         dur_fetched_message **out, size_t *count, dur_error *err);
    /* History and KV snapshot of a leased instance (for one that was fetched without). */
    int (*lane_history)(dur_lane *lane, dur_arena *arena, const char *instance, const char *lock_token,
                        uint64_t execution_id, dur_orchestration_item *out, dur_error *err);
    /*
     * Its lane_round takes turns with writes_start.  The answer names the store within this process: handles for which
     * it is the same are one store, and what a client starts through one of them a loop on another may begin.  It does
     * not change while the handle is open, but is NULL on a thread whose starts must come by enqueue_start just now
     * (with a transaction of its own, for which the loop's would wait).  Costs no statement.  Fallback: no turn writes
     * its start.
     */
    const char *(*births)(dur_provider *self);

    /* ======== optional: arrays.  Fallback: one by one ======== */

    /* fetch_turns and fetch_works: an owner that is not registered (never, no longer, taken for dead) is told so,
       DUR_ELEASE, and gets nothing. */
    int (*fetch_turns)(dur_provider *self, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out,
                       size_t *count, dur_error *err);
    int (*commit_turns)(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err);
    int (*fetch_works)(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                       size_t *count, dur_error *err);
    int (*ack_works)(dur_provider *self, dur_work_ack *acks, size_t count, dur_error *err);
    /* Of the rows locked with these tokens, which are gone?  Answers in lost[i].  With extend_ms the timed ones are
       renewed and their sessions were active; 0 only looks.  Fallback: renew_work_item_lock one by one, which renews
       in either case. */
    int (*check_works)(dur_provider *self, const dur_worker_claim *claims, size_t count, uint64_t extend_ms, bool *lost,
                       dur_error *err);
    /* Give worker rows back unstarted, attempt not counted.  Fallback: abandon_work_item one by one. */
    int (*return_works)(dur_provider *self, const dur_worker_claim *claims, size_t count, dur_error *err);
    /* What is locked with this token, a worker row or an instance, does not run alone any more: a crash from now on
       says nothing about it.  A token that is gone does no harm.  Fallback: nothing; there are no suspects. */
    int (*alone_ended)(dur_provider *self, const char *lock_token, dur_error *err);
    /* What is locked with this token is given up as poison: the crashes in which it ran beside others are its doing,
       and are told against nobody else.  It does not run alone any more.  May be repeated; a token that is gone does no
       harm.  Fallback: nothing; there are no suspects. */
    int (*blame)(dur_provider *self, const char *lock_token, dur_error *err);

    /* ======== optional: owners.  Fallback: timed locks that the runtime renews ======== */

    int (*owner_register)(dur_provider *self, const dur_owner_options *options, dur_error *err);
    /* Show life; look for dead peers and set their leases free.  Who is dead is decided under the lock that frees: one
       whose beat was answered "still ours" is not taken over before it has been silent for its timeout again. */
    int (*owner_beat)(dur_provider *self, const char *owner, dur_owner_report *out, dur_error *err);
    /* A clean end: everything locked under the id is free at once, attempts not counted, no crashes.  Sessions claimed
       by a session_owner that is not the id stay reserved for it, for their lock time: that node may come back.  So
       they do when the owner dies; those claimed by the id itself are free at once, however it ends. */
    int (*owner_release)(dur_provider *self, const char *owner, dur_error *err);
    /* Everything that is locked under the owner at one moment, for checks: leases, worker rows and the sessions that
       its fetches have claimed, in no order.  What has been given back, acknowledged, or taken from an owner that is
       dead is not there; an owner that is not registered has nothing.  Work that a store keeps with the lease, for its
       lane alone, need not be there.  May read all rows.  Without it dur_runtime_check is DUR_EUNSUPPORTED; there is no
       fallback. */
    int (*owner_holdings)(dur_provider *self, dur_arena *arena, const char *owner, dur_holding **out, size_t *count,
                          dur_error *err);

    /* ======== optional: clients ======== */

    /* Put a start into the queue unless the instance exists.  Fallback: look, then enqueue (not atomic). */
    int (*enqueue_start)(dur_provider *self, const dur_message_row *item, dur_exists_policy policy, uint64_t delay_ms,
                         bool *existed, dur_error *err);
    /* Put a message into the queue of an instance that exists: DUR_ENOTFOUND otherwise; DUR_EDUPLICATE when its
       message_id was accepted before; DUR_ESTATE for a QueueMessage to an instance that has ended; of several the first
       of these.  A message that was refused leaves no id behind.
       Fallback: look, then enqueue; message ids are not remembered. */
    int (*enqueue_existing)(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err);
    /* Learn of changes of an instance (status, custom status, KV, suspension, deletion), whoever made them and whether
       or not the instance is there yet; a start (enqueue_start) is told, its first turn need not be, for a start that
       waits is running, too.  A change after watch_open makes the next watch_wait of each watch return DUR_OK;
       DUR_ETIMEOUT otherwise, with timeout 0 at once, having looked all the same.  Spurious returns are allowed.
       Fallback: polling. */
    int (*watch_open)(dur_provider *self, const char *instance, dur_watch **out, dur_error *err);
    int (*watch_wait)(dur_watch *watch, uint64_t timeout_ms, dur_error *err);
    void (*watch_close)(dur_watch *watch);
    int (*get_instance_stats)(dur_provider *self, dur_arena *arena, const char *instance, bool *found,
                              dur_instance_stats *out, dur_error *err);

    /* ======== optional: admin.  Without them: DUR_EUNSUPPORTED, naming the method ======== */

    /* In one snapshot, by instance id, and by an index for each single filter but name and times: the cost goes by what
       is listed. */
    int (*list_instances)(dur_provider *self, dur_arena *arena, const dur_instance_query *query, dur_instance_row **out,
                          size_t *count, dur_error *err);
    int (*get_instance)(dur_provider *self, dur_arena *arena, const char *instance, dur_instance_row *out,
                        dur_error *err); /* DUR_ENOTFOUND */
    int (*list_executions)(dur_provider *self, dur_arena *arena, const char *instance, dur_execution_row **out,
                           size_t *count, dur_error *err);
    int (*get_system_metrics)(dur_provider *self, dur_system_metrics *out, dur_error *err);
    int (*get_queue_depths)(dur_provider *self, dur_queue_depths *out, dur_error *err);
    /* All or nothing.  Refused: a running member without force (DUR_ERUNNING, "running"), a child of a listed one that
       is not listed (DUR_ECHILD, "child"), an unknown id (DUR_ENOTFOUND, "not found"), and, where meant is given, one
       for each id, another instance than the one that is meant, as is found under the lock that deletes: DUR_ECONFLICT,
       also where the one that is meant has begun since.  Leases end with it.  Starts
       that wait behind an instance are calls of others, who wait for an answer: they stay, with attempts of 0, and the
       first of them makes a new instance under the id.  An instance without history is its first start, and that goes
       with it; a ContinueAsNew always does.  QueueMessages, which somebody was told are accepted, become dead letters
       (where the store keeps them), and count as deleted; so they do with every other way in which a store deletes an
       instance.  Those that only history holds are the caller's matter: dur_client_delete puts them back first. */
    int (*delete_instances)(dur_provider *self, const char *const *ids, const dur_meant *meant, size_t count,
                            bool force, dur_delete_result *out, dur_error *err);
    /* Finished roots that match, with their trees.  Without ids those that ended first go first, up to the limit. */
    int (*delete_instances_bulk)(dur_provider *self, const dur_bulk_filter *filter, dur_delete_result *out,
                                 dur_error *err);
    /* Executions of one instance; never the current one nor a running one.  DUR_ENOTFOUND. */
    int (*prune_executions)(dur_provider *self, const char *instance, const dur_prune_options *options,
                            dur_prune_result *out, dur_error *err);
    int (*prune_executions_bulk)(dur_provider *self, const dur_bulk_filter *filter, const dur_prune_options *options,
                                 dur_prune_result *out, dur_error *err);

    /* Move what cannot be read out of the way, with the reason.  Messages that are gone, or another instance's, do no
       harm.  Fallback: it is consumed and logged. */
    int (*dead_letter_messages)(dur_provider *self, const char *instance, const uint64_t *ids, size_t count,
                                const char *reason, dur_error *err);
    int (*dead_letter_work)(dur_provider *self, const char *lock_token, const char *reason, dur_error *err);
    /* By id, behind after_id: pages of one listing.  Ids need not be in order of commit. */
    int (*list_dead_letters)(dur_provider *self, dur_arena *arena, uint64_t after_id, size_t limit,
                             dur_dead_letter **out, size_t *count, dur_error *err);
    int (*delete_dead_letters)(dur_provider *self, const uint64_t *ids, size_t count, dur_error *err);

    /* Suspend (reason, which may be empty) or resume (NULL): a suspended instance is skipped by fetch.  Once resumed,
       all its messages are a reason to fetch it, those seen before the pause (seen_id), too.  A lane that holds it is
       asked to give it up (asked), so that what its runtime has alone is written; or its lease ends, as a lease without
       a lane does, and the acquisition is not counted, nor are the fetches of its messages.  A store with local work
       asks. DUR_ENOTFOUND; DUR_ESTATE to suspend one that has ended (COMPLETED, FAILED), as is found under the lock
       that writes: what it left would never be fetched. */
    int (*set_suspended)(dur_provider *self, const char *instance, const char *reason, dur_error *err);

    /* A copy of the whole store that can be opened, while it is used. */
    int (*backup)(dur_provider *self, const char *target, dur_error *err);
    /* A full check of the store: DUR_ECORRUPT with the first finding, which names table, instance and what is wrong.
       Rows against rows too: no visible message without somebody who has a reason to look, none that nobody will ever
       look at (an answer, a cancel, a timer or an activity's end for an instance that does not exist), no lock of an
       owner that is not registered, no row that belongs to nothing, no gap in a history.  A finding is seen in one
       snapshot. */
    int (*check)(dur_provider *self, dur_error *err);
    /* Bring what was deleted back to the system, a bounded piece at a time; pages left. */
    int (*vacuum)(dur_provider *self, uint64_t pages_max, uint64_t *pages_left, dur_error *err);

    /* ======== optional: clients that wait for many ======== */

    /* Several starts whose caller waits for all of them; returns when each is durable or refused.  The result is an
       error only if nothing was done; else each start has its own answer.  Two of one id: as if one came after the
       other, in either order.  Fallback: enqueue_start one by one. */
    int (*enqueue_starts)(dur_provider *self, dur_start_request *starts, size_t count, dur_error *err);
    /* Make watch_wait of this watch, or the next one, return DUR_OK.  Any thread.  Fallback: who may have to be woken
       waits in short pieces. */
    void (*watch_wake)(dur_watch *watch);

    /* ======== optional: fleets ======== */

    /* What waits for a handler that no registered owner has: of each such handler the first `each` instances and worker
       rows, and cancel requests: every one that waits for an instance that is listed, and others; of everything the
       first few hundred.  A request may come twice.  Of the oldest few hundred free worker rows with a session those
       that the session's owner has no handler for.  A read that costs as much as
       there are different handlers among what waits.  Fallback: nothing is known. */
    int (*list_unserved)(dur_provider *self, dur_arena *arena, size_t each, dur_unserved **out, size_t *count,
                         dur_error *err);
};

/* True when the table has the method: DUR_HAS_METHOD(store->methods, lane_open). */
#define DUR_HAS_METHOD(table, method)                                                                                  \
    ((table)->size >= offsetof(dur_provider_methods, method) + sizeof((table)->method) && (table)->method != NULL)

DUR_END_DECLS

#endif
