/*
 * minimal.c: a whole provider in one sitting: the required methods over linked lists and one mutex.
 *
 * It keeps everything in memory and looks at everything all the time; what it is for is to be read.  Each method does
 * what include/durite/sys/provider_methods.h says, in that order.  docs/provider-guide.md walks through it, and
 *
 *     cc -shared -fPIC minimal.c -o minimal.so $(pkg-config --cflags --libs durite)
 *     durite-kit --load ./minimal.so minimal:
 *     durite-stress --load ./minimal.so minimal: --duration 5
 *
 * judge it (in our build tree durite-kit-minimal, too, which it is linked into).  Optional methods are left out:
 * sys/store.h supplies their fallbacks, so runtimes and clients work with it.
 */
#include <durite/provider.h>
#include <durite/sys/store.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ----------------------------------------------------------------------------------------------------------
 */

typedef char token[33];

typedef struct message { /* orchestrator queue */
    struct message *next;
    uint64_t id, due_ms, order_ms;
    char *instance, *queue;
    dur_work_kind kind;
    uint32_t attempts;
    token lock; /* the fetch that has it; "" for none */
    char *json;
    size_t size;
} message;

typedef struct work { /* worker queue */
    struct work *next;
    char *instance, *session, *tag, *json;
    uint64_t execution, activity, visible_at, locked_until;
    uint32_t attempts;
    token lock;
    size_t size;
} work;

typedef struct event {
    struct event *next; /* by (execution, id) */
    uint64_t execution, id;
    char *json;
    size_t size;
} event;

typedef struct value { /* NULL in the delta: cleared by the running execution */
    struct value *next;
    char *key, *text;
    uint64_t stamp_ms;
} value;

typedef struct instance {
    struct instance *next;
    char *id, *name, *version, *status;
    uint64_t execution, status_version; /* execution 0: never committed */
    bool pinned;
    dur_semver pin; /* of the current execution */
    token lock;
    uint64_t locked_until, not_before;
    event *events;
    value *kv, *delta; /* at the end of the previous execution; written by this one */
} instance;

typedef struct session {
    struct session *next;
    char *id, *owner;
    uint64_t locked_until, active;
} session;

typedef struct minimal {
    dur_provider base; /* first member: a dur_provider * is a minimal * */
    pthread_mutex_t mutex;
    const dur_world *world;
    uint64_t last_id;
    uint64_t came_ms;  /* when the last message came */
    message *messages; /* in order of id */
    work *works;
    instance *instances;
    session *sessions;
} minimal;

static minimal *enter(dur_provider *self) {
    minimal *me = (minimal *)(void *)self;
    pthread_mutex_lock(&me->mutex);
    return me;
}

static int leave(minimal *me, int code) {
    pthread_mutex_unlock(&me->mutex);
    return code;
}

/* Locks follow the clock that never jumps; due times and delays are wall time. */
static uint64_t boot(minimal *me) {
    return me->world->boot_ms(me->world->data);
}
static uint64_t wall(minimal *me) {
    return me->world->wall_ms(me->world->data);
}
/* So much later than now; the caller may say "for ever", which must not come round to the past. */
static uint64_t after(uint64_t now, uint64_t ms) {
    return ms > UINT64_MAX - 1 - now ? UINT64_MAX - 1 : now + ms;
}

static char *copy(const char *text) {
    return text != NULL ? strdup(text) : NULL;
}
static bool same(const char *a, const char *b) {
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static char *copy_json(dur_text json) {
    char *out = malloc(json.size + 1);
    memcpy(out, json.data, json.size);
    out[json.size] = '\0';
    return out;
}

static void new_token(minimal *me, token out) {
    unsigned char bytes[16];
    me->world->random(me->world->data, bytes, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* Add at the end of a list; works for every struct whose first member is `next`. */
#define APPEND(list, row)                                                                                              \
    do {                                                                                                               \
        void **end_ = (void **)(void *)&(list);                                                                        \
        while (*end_ != NULL)                                                                                          \
            end_ = (void **)*end_;                                                                                     \
        *end_ = (row);                                                                                                 \
    } while (0)

static instance *find(minimal *me, const char *id, bool make) {
    instance *at = me->instances;
    while (at != NULL && strcmp(at->id, id) != 0)
        at = at->next;
    if (at == NULL && make) {
        at = calloc(1, sizeof(*at));
        at->id = copy(id);
        APPEND(me->instances, at);
    }
    return at;
}

/* ---- messages ------------------------------------------------------------------------------------------------------
 */

static void put_message(minimal *me, const dur_message_row *item, uint64_t delay_ms) {
    message *row = calloc(1, sizeof(*row));
    uint64_t now = wall(me);
    row->id = ++me->last_id;
    row->due_ms = item->due_ms;
    if (delay_ms > 0 && after(now, delay_ms) > row->due_ms) row->due_ms = after(now, delay_ms);
    if (now > me->came_ms) me->came_ms = now; /* undelayed: when it came only orders it, and never turns back */
    row->order_ms = row->due_ms != 0 ? row->due_ms : me->came_ms;
    row->instance = copy(item->instance);
    row->queue = copy(item->queue);
    row->kind = item->kind;
    row->json = copy_json(item->json);
    row->size = item->json.size;
    APPEND(me->messages, row);
}

static void free_message(message **at) {
    message *gone = *at;
    *at = gone->next;
    free(gone->instance);
    free(gone->queue);
    free(gone->json);
    free(gone);
}

/* An instance exists when a commit wrote it, or it has history, or a start waits, due or not. */
static bool exists(minimal *me, const char *id) {
    const instance *row = find(me, id, false);
    if (row != NULL && (row->execution > 0 || row->events != NULL)) return true;
    for (const message *at = me->messages; at != NULL; at = at->next)
        if ((at->kind == DUR_WORK_START_ORCHESTRATION || at->kind == DUR_WORK_CONTINUE_AS_NEW) &&
            same(at->instance, id))
            return true;
    return false;
}

static int compare_versions(dur_semver a, dur_semver b) {
    if (a.major != b.major) return a.major < b.major ? -1 : 1;
    if (a.minor != b.minor) return a.minor < b.minor ? -1 : 1;
    return a.patch == b.patch ? 0 : a.patch < b.patch ? -1 : 1;
}

/* Before any lock: only the first range counts; no range admits nothing; no pin passes every range. */
static bool admits(const dur_capability_filter *filter, const instance *row) {
    if (filter == NULL) return true;
    if (filter->count == 0) return false;
    if (row == NULL || !row->pinned) return true;
    return compare_versions(row->pin, filter->ranges[0].min) >= 0 &&
           compare_versions(row->pin, filter->ranges[0].max) <= 0;
}

/* ---- orchestrations ------------------------------------------------------------------------------------------------
 */

static bool locked(minimal *me, const instance *row) {
    return row->lock[0] != '\0' && boot(me) < row->locked_until;
}

/* The first visible message whose instance may be fetched decides; orphans of queues are dropped on the way. */
static instance *choose(minimal *me, const dur_capability_filter *filter) {
    uint64_t now = wall(me);
    for (message **at = &me->messages; *at != NULL;) {
        if (!exists(me, (*at)->instance)) {
            if ((*at)->kind == DUR_WORK_QUEUE_MESSAGE)
                free_message(at);
            else
                at = &(*at)->next; /* others wait for their instance, hiding nobody */
            continue;
        }
        const instance *row = find(me, (*at)->instance, false);
        bool free_now = row == NULL || (!locked(me, row) && wall(me) >= row->not_before);
        if ((*at)->due_ms <= now && free_now && admits(filter, row)) return find(me, (*at)->instance, true);
        at = &(*at)->next;
    }
    return NULL;
}

static int by_due(const void *a, const void *b) {
    const message *left = *(message *const *)a, *right = *(message *const *)b;
    if (left->order_ms != right->order_ms) return left->order_ms < right->order_ms ? -1 : 1;
    return left->id < right->id ? -1 : 1;
}

/* Tag every visible message with the lock, count the attempt, hand out in order of (due, id). */
static void take_messages(minimal *me, instance *row, dur_arena *arena, dur_orchestration_item *out) {
    size_t count = 0;
    for (const message *at = me->messages; at != NULL; at = at->next)
        count++;
    message **mine = dur_arena_alloc(arena, (count + 1) * sizeof(*mine));
    dur_fetched_message *given = dur_arena_zalloc(arena, (count + 1) * sizeof(*given));
    count = 0;
    for (message *at = me->messages; at != NULL; at = at->next)
        if (same(at->instance, row->id) && at->due_ms <= wall(me)) mine[count++] = at;
    qsort(mine, count, sizeof(*mine), by_due);
    for (size_t i = 0; i < count; i++) {
        memcpy(mine[i]->lock, row->lock, sizeof(token));
        mine[i]->attempts++;
        if (mine[i]->attempts > out->attempt_count) out->attempt_count = mine[i]->attempts;
        given[i].id = mine[i]->id;
        given[i].due_ms = mine[i]->order_ms;
        given[i].attempt_count = mine[i]->attempts;
        given[i].queue = dur_arena_strdup(arena, mine[i]->queue);
        given[i].json = (dur_text){ dur_arena_memdup(arena, mine[i]->json, mine[i]->size), mine[i]->size };
    }
    out->messages = given;
    out->message_count = count;
}

static uint64_t latest(const instance *row) {
    uint64_t execution = row->execution;
    for (const event *at = row->events; at != NULL; at = at->next)
        if (at->execution > execution) execution = at->execution;
    return execution;
}

static dur_event_row *copy_events(const instance *row, uint64_t execution, dur_arena *arena, size_t *count) {
    size_t total = 0;
    for (const event *at = row->events; at != NULL; at = at->next)
        total++;
    dur_event_row *out = dur_arena_zalloc(arena, (total + 1) * sizeof(*out));
    *count = 0;
    for (const event *at = row->events; at != NULL; at = at->next)
        if (at->execution == execution)
            out[(*count)++] = (dur_event_row){ .event_id = at->id,
                                               .json = { dur_arena_memdup(arena, at->json, at->size), at->size } };
    return out;
}

static dur_key_value *copy_values(const value *list, dur_arena *arena, size_t *count) {
    size_t total = 0;
    for (const value *at = list; at != NULL; at = at->next)
        total++;
    dur_key_value *out = dur_arena_zalloc(arena, (total + 1) * sizeof(*out));
    *count = 0;
    for (const value *at = list; at != NULL; at = at->next)
        if (at->text != NULL)
            out[(*count)++] =
                (dur_key_value){ dur_arena_strdup(arena, at->key), dur_arena_strdup(arena, at->text), at->stamp_ms };
    return out;
}

static int fetch_orchestration_item(dur_provider *self, dur_arena *arena, const dur_fetch *how,
                                    dur_orchestration_item *out, dur_error *err) {
    minimal *me = enter(self);
    instance *row = choose(me, how->filter);
    (void)err;
    if (row == NULL) return leave(me, DUR_OK);
    new_token(me, row->lock);
    row->locked_until = after(boot(me), how->lock_ms);
    take_messages(me, row, arena, out);
    out->instance = dur_arena_strdup(arena, row->id);
    out->lock_token = dur_arena_strdup(arena, row->lock);
    out->orchestration_name = dur_arena_strdup(arena, row->name); /* NULL: sys/store.h finds it in history or start */
    out->version = dur_arena_strdup(arena, row->version);
    out->execution_id = latest(row) > 0 ? latest(row) : 1;
    out->history = copy_events(row, out->execution_id, arena, &out->history_count);
    if (out->history_count > 0) out->last_event_id = out->history[out->history_count - 1].event_id;
    out->kv = copy_values(row->kv, arena, &out->kv_count); /* never the delta: replay comes to those writes by itself */
    return leave(me, DUR_OK);
}

static instance *find_lock(minimal *me, const char *lock_token) {
    for (instance *at = me->instances; at != NULL; at = at->next)
        if (locked(me, at) && strcmp(at->lock, lock_token) == 0) return at;
    return NULL;
}

static bool has_event(const instance *row, uint64_t execution, uint64_t id) {
    for (const event *at = row->events; at != NULL; at = at->next)
        if (at->execution == execution && at->id == id) return true;
    return false;
}

/* A failed method changed nothing: look at everything before touching anything. */
static int check_events(const instance *row, uint64_t execution, const dur_event_row *events, size_t count,
                        dur_error *err) {
    for (size_t i = 0; i < count; i++) {
        bool twice = row != NULL && has_event(row, execution, events[i].event_id);
        if (events[i].event_id == 0) return dur_error_set(err, DUR_EINVAL, false, "minimal.commit", "event id 0");
        for (size_t k = 0; k < i; k++)
            twice |= events[k].event_id == events[i].event_id;
        if (twice)
            return dur_error_set(err, DUR_ECONFLICT, false, "minimal.commit", "event %llu exists",
                                 (unsigned long long)events[i].event_id);
    }
    return DUR_OK;
}

static void add_event(instance *row, uint64_t execution, const dur_event_row *from) {
    event **at = &row->events, *made = calloc(1, sizeof(*made));
    while (*at != NULL &&
           ((*at)->execution < execution || ((*at)->execution == execution && (*at)->id < from->event_id)))
        at = &(*at)->next;
    *made = (event){ *at, execution, from->event_id, copy_json(from->json), from->json.size };
    *at = made;
}

static void set_value(value **list, const char *key, const char *text, uint64_t stamp_ms) {
    value *at = *list;
    while (at != NULL && strcmp(at->key, key) != 0)
        at = at->next;
    if (at == NULL) {
        at = calloc(1, sizeof(*at));
        at->key = copy(key);
        APPEND(*list, at);
    }
    free(at->text);
    at->text = copy(text);
    at->stamp_ms = stamp_ms;
}

static void free_values(value **list) {
    while (*list != NULL) {
        value *gone = *list;
        *list = gone->next;
        free(gone->key);
        free(gone->text);
        free(gone);
    }
}

/* The only events that a store acts upon. */
static void apply_event(instance *row, const dur_event_row *from) {
    if (from->kind == DUR_EVENT_KEY_VALUE_SET) set_value(&row->delta, from->key, from->value, from->stamp_ms);
    if (from->kind == DUR_EVENT_KEY_VALUE_CLEARED) set_value(&row->delta, from->key, NULL, 0);
    if (from->kind == DUR_EVENT_KEY_VALUES_CLEARED) {
        for (value *at = row->delta; at != NULL; at = at->next)
            set_value(&row->delta, at->key, NULL, 0);
        for (value *at = row->kv; at != NULL; at = at->next)
            set_value(&row->delta, at->key, NULL, 0);
    }
}

static void write_status(instance *row, const dur_turn_commit *turn) {
    const dur_event_row *last = NULL;
    for (size_t i = 0; i < turn->event_count; i++)
        if (turn->events[i].kind == DUR_EVENT_CUSTOM_STATUS_UPDATED) last = &turn->events[i];
    if (last == NULL) return;
    free(row->status);
    row->status = copy(last->value);
    row->status_version++;
}

static void put_work(minimal *me, const dur_message_row *item) {
    work *row = calloc(1, sizeof(*row));
    row->instance = copy(item->instance);
    row->session = copy(item->session_id);
    row->tag = copy(item->tag);
    row->execution = item->execution_id;
    row->activity = item->activity_id;
    row->json = copy_json(item->json);
    row->size = item->json.size;
    APPEND(me->works, row);
}

static void free_work(work **at) {
    work *gone = *at;
    *at = gone->next;
    free(gone->instance);
    free(gone->session);
    free(gone->tag);
    free(gone->json);
    free(gone);
}

static void cancel_works(minimal *me, const dur_turn_commit *turn) {
    for (size_t i = 0; i < turn->cancelled_count; i++) {
        const dur_activity_ref *ref = &turn->cancelled[i];
        for (work **at = &me->works; *at != NULL;)
            if (same((*at)->instance, ref->instance) && (*at)->execution == ref->execution_id &&
                (*at)->activity == ref->activity_id)
                free_work(at);
            else
                at = &(*at)->next;
    }
}

static void write_metadata(instance *row, const dur_turn_commit *turn) {
    const dur_execution_metadata *meta = &turn->metadata;
    if (meta->orchestration_name != NULL && meta->orchestration_version != NULL) {
        free(row->name);
        free(row->version);
        row->name = copy(meta->orchestration_name);
        row->version = copy(meta->orchestration_version);
    }
    if (turn->execution_id > row->execution) {
        row->execution = turn->execution_id;
        row->pinned = false;
    }
    if (meta->has_pinned_version) row->pinned = true, row->pin = meta->pinned_version;
}

static void end_execution(instance *row, dur_status status) {
    if (status == DUR_STATUS_NONE || status == DUR_STATUS_RUNNING) return;
    for (value *at = row->delta; at != NULL; at = at->next)
        set_value(&row->kv, at->key, at->text, at->stamp_ms);
    free_values(&row->delta);
}

/* The order of the guide: consume, metadata, history, status, values, work, cancellations, messages, lock. */
static int ack_orchestration_item(dur_provider *self, dur_turn_commit *turn, dur_error *err) {
    minimal *me = enter(self);
    instance *row = find_lock(me, turn->lock_token);
    int code = row != NULL ? check_events(row, turn->execution_id, turn->events, turn->event_count, &turn->error)
                           : dur_error_set(&turn->error, DUR_ELEASE, false, "minimal.ack", "Invalid lock token");
    turn->lease_kept = false;
    turn->fault = code == DUR_OK ? DUR_TURN_FINE : row == NULL ? DUR_TURN_LEASE_LOST : DUR_TURN_POSITION;
    if (code != DUR_OK) {
        if (err != NULL) *err = turn->error;
        return leave(me, code);
    }
    for (message **at = &me->messages; *at != NULL;)
        if (strcmp((*at)->lock, row->lock) == 0)
            free_message(at);
        else
            at = &(*at)->next;
    write_metadata(row, turn);
    for (size_t i = 0; i < turn->event_count; i++) {
        add_event(row, turn->execution_id, &turn->events[i]);
        apply_event(row, &turn->events[i]);
    }
    write_status(row, turn);
    end_execution(row, turn->metadata.status);
    for (size_t i = 0; i < turn->worker_item_count; i++) {
        put_work(me, &turn->worker_items[i].message);
        turn->worker_items[i].locked = false;
        turn->worker_items[i].row_id = 0;
    }
    cancel_works(me, turn); /* after the insert: scheduled and cancelled in one turn is nothing */
    bool undelayed = false; /* then what is overdue behind it is, too: it stays behind */
    for (size_t i = 0; i < turn->orchestrator_item_count; i++) {
        dur_message_row item = turn->orchestrator_items[i];
        if (undelayed && item.due_ms <= wall(me)) item.due_ms = 0;
        undelayed |= item.due_ms == 0;
        put_message(me, &item, 0);
    }
    row->lock[0] = '\0';
    return leave(me, DUR_OK);
}

static int lost(minimal *me, dur_error *err, const char *op) {
    return leave(me, dur_error_set(err, DUR_ELEASE, false, op, "Invalid lock token"));
}

static int abandon_orchestration_item(dur_provider *self, const char *lock_token, uint64_t delay_ms,
                                      bool ignore_attempt, dur_error *err) {
    minimal *me = enter(self);
    instance *row = find_lock(me, lock_token);
    if (row == NULL) return lost(me, err, "minimal.abandon");
    for (message *at = me->messages; at != NULL; at = at->next)
        if (strcmp(at->lock, row->lock) == 0) {
            at->lock[0] = '\0'; /* its place in the order stays */
            if (ignore_attempt && at->attempts > 0) at->attempts--;
        }
    row->lock[0] = '\0';
    row->not_before = delay_ms > 0 ? after(wall(me), delay_ms) : 0; /* the whole instance waits */
    return leave(me, DUR_OK);
}

static int renew_orchestration_item_lock(dur_provider *self, const char *lock_token, uint64_t extend_ms,
                                         dur_error *err) {
    minimal *me = enter(self);
    instance *row = find_lock(me, lock_token);
    if (row == NULL) return lost(me, err, "minimal.renew");
    row->locked_until = after(boot(me), extend_ms);
    return leave(me, DUR_OK);
}

static int read_events(dur_provider *self, dur_arena *arena, const char *id, uint64_t execution, dur_event_row **out,
                       size_t *count, dur_error *err) {
    minimal *me = enter(self);
    const instance *row = find(me, id, false);
    (void)err;
    *count = 0;
    if (row != NULL) *out = copy_events(row, execution != 0 ? execution : latest(row), arena, count);
    return leave(me, DUR_OK);
}

static int append(dur_provider *self, const char *id, uint64_t execution, const dur_event_row *events, size_t count,
                  dur_error *err) {
    minimal *me = enter(self);
    int code = check_events(find(me, id, false), execution, events, count, err);
    for (size_t i = 0; code == DUR_OK && i < count; i++)
        add_event(find(me, id, true), execution, &events[i]);
    return leave(me, code);
}

static int enqueue_for_orchestrator(dur_provider *self, const dur_message_row *item, uint64_t delay_ms,
                                    dur_error *err) {
    minimal *me = enter(self);
    (void)err;
    put_message(me, item, delay_ms);
    return leave(me, DUR_OK);
}

/* ---- work ----------------------------------------------------------------------------------------------------------
 */

static int enqueue_for_worker(dur_provider *self, const dur_message_row *item, dur_error *err) {
    minimal *me = enter(self);
    (void)err;
    put_work(me, item);
    return leave(me, DUR_OK);
}

static session *find_session(minimal *me, const char *id) {
    session *at = me->sessions;
    while (at != NULL && strcmp(at->id, id) != 0)
        at = at->next;
    return at;
}

static void touch_session(minimal *me, const work *row) {
    session *at = row->session != NULL ? find_session(me, row->session) : NULL;
    if (at != NULL) at->active = boot(me);
}

static bool tag_admits(const dur_tag_filter *filter, const char *tag) {
    if (filter->mode == DUR_TAGS_ANY) return true;
    if (tag == NULL) return filter->mode == DUR_TAGS_DEFAULT_ONLY || filter->mode == DUR_TAGS_AND_DEFAULT;
    if (filter->mode != DUR_TAGS_ONLY && filter->mode != DUR_TAGS_AND_DEFAULT) return false;
    for (size_t i = 0; i < filter->tag_count; i++)
        if (strcmp(filter->tags[i], tag) == 0) return true;
    return false;
}

/* No session; or mine; or nobody's (never claimed, or its lock has ended). */
static bool session_admits(minimal *me, const work *row, const char *owner) {
    if (row->session == NULL) return true;
    if (owner == NULL) return false;
    const session *at = find_session(me, row->session);
    return at == NULL || boot(me) >= at->locked_until || strcmp(at->owner, owner) == 0;
}

static void claim_session(minimal *me, const work *row, const dur_work_fetch *how) {
    if (row->session == NULL) return;
    session *at = find_session(me, row->session);
    if (at == NULL) {
        at = calloc(1, sizeof(*at));
        at->id = copy(row->session);
        APPEND(me->sessions, at);
    }
    free(at->owner);
    at->owner = copy(how->session_owner);
    at->locked_until = after(boot(me), how->session_lock_ms);
    at->active = boot(me);
}

static int fetch_work_item(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                           dur_error *err) {
    minimal *me = enter(self);
    work *row = me->works; /* first in, first out */
    (void)err;
    while (row != NULL && !(wall(me) >= row->visible_at && (row->lock[0] == '\0' || boot(me) >= row->locked_until) &&
                            tag_admits(&how->tags, row->tag) && session_admits(me, row, how->session_owner)))
        row = row->next;
    if (row == NULL) return leave(me, DUR_OK);
    claim_session(me, row, how);
    new_token(me, row->lock);
    row->locked_until = after(boot(me), how->lock_ms);
    row->attempts++;
    out->ref = (dur_activity_ref){ .instance = dur_arena_strdup(arena, row->instance),
                                   .execution_id = row->execution,
                                   .activity_id = row->activity };
    out->lock_token = dur_arena_strdup(arena, row->lock);
    out->attempt_count = row->attempts;
    out->json = (dur_text){ dur_arena_memdup(arena, row->json, row->size), row->size };
    return leave(me, DUR_OK);
}

static work **find_work(minimal *me, const char *lock_token) {
    for (work **at = &me->works; *at != NULL; at = &(*at)->next)
        if ((*at)->lock[0] != '\0' && boot(me) < (*at)->locked_until && strcmp((*at)->lock, lock_token) == 0) return at;
    return NULL;
}

static int ack_work_item(dur_provider *self, const char *lock_token, const dur_message_row *completion,
                         dur_error *err) {
    minimal *me = enter(self);
    work **row = find_work(me, lock_token);
    if (row == NULL) return lost(me, err, "minimal.ack_work");
    touch_session(me, *row);
    free_work(row);
    if (completion != NULL) put_message(me, completion, 0);
    return leave(me, DUR_OK);
}

static int renew_work_item_lock(dur_provider *self, const char *lock_token, uint64_t extend_ms, dur_error *err) {
    minimal *me = enter(self);
    work **row = find_work(me, lock_token);
    if (row == NULL) return lost(me, err, "minimal.renew_work");
    touch_session(me, *row);
    (*row)->locked_until = after(boot(me), extend_ms);
    return leave(me, DUR_OK);
}

static int abandon_work_item(dur_provider *self, const char *lock_token, uint64_t delay_ms, bool ignore_attempt,
                             dur_error *err) {
    minimal *me = enter(self);
    work **row = find_work(me, lock_token);
    if (row == NULL) return lost(me, err, "minimal.abandon_work");
    (*row)->lock[0] = '\0';
    (*row)->visible_at = delay_ms > 0 ? after(wall(me), delay_ms) : 0;
    if (ignore_attempt && (*row)->attempts > 0) (*row)->attempts--;
    return leave(me, DUR_OK);
}

static int renew_session_lock(dur_provider *self, const char *const *owners, size_t owner_count, uint64_t extend_ms,
                              uint64_t idle_ms, uint64_t *renewed, dur_error *err) {
    minimal *me = enter(self);
    uint64_t now = boot(me);
    (void)err;
    *renewed = 0;
    for (session *at = me->sessions; at != NULL; at = at->next)
        for (size_t i = 0; i < owner_count; i++)
            if (strcmp(at->owner, owners[i]) == 0 && now < at->locked_until && now - at->active < idle_ms) {
                at->locked_until = after(now, extend_ms);
                ++*renewed;
            }
    return leave(me, DUR_OK);
}

static bool session_has_work(minimal *me, const char *id) {
    for (const work *at = me->works; at != NULL; at = at->next)
        if (same(at->session, id)) return true;
    return false;
}

static int cleanup_orphaned_sessions(dur_provider *self, uint64_t idle_ms, uint64_t *removed, dur_error *err) {
    minimal *me = enter(self);
    (void)idle_ms, (void)err;
    *removed = 0;
    for (session **at = &me->sessions; *at != NULL;) {
        session *gone = *at;
        if (boot(me) < gone->locked_until || session_has_work(me, gone->id)) {
            at = &gone->next;
            continue;
        }
        *at = gone->next;
        free(gone->id);
        free(gone->owner);
        free(gone);
        ++*removed;
    }
    return leave(me, DUR_OK);
}

/* ---- what clients read ---------------------------------------------------------------------------------------------
 */

static int get_custom_status(dur_provider *self, dur_arena *arena, const char *id, uint64_t last_seen, bool *changed,
                             const char **status, uint64_t *version, dur_error *err) {
    minimal *me = enter(self);
    const instance *row = find(me, id, false);
    (void)err;
    *changed = row != NULL && row->status_version > last_seen;
    if (*changed) {
        *status = dur_arena_strdup(arena, row->status);
        *version = row->status_version;
    }
    return leave(me, DUR_OK);
}

/* The delta wins, a cleared key there hides the older value. */
static int get_kv_all_values(dur_provider *self, dur_arena *arena, const char *id, dur_key_value **out, size_t *count,
                             dur_error *err) {
    minimal *me = enter(self);
    const instance *row = find(me, id, false);
    value *merged = NULL;
    (void)err;
    for (const value *at = row != NULL ? row->kv : NULL; at != NULL; at = at->next)
        set_value(&merged, at->key, at->text, at->stamp_ms);
    for (const value *at = row != NULL ? row->delta : NULL; at != NULL; at = at->next)
        set_value(&merged, at->key, at->text, at->stamp_ms);
    *out = copy_values(merged, arena, count);
    free_values(&merged);
    return leave(me, DUR_OK);
}

static int get_kv_value(dur_provider *self, dur_arena *arena, const char *id, const char *key, const char **out,
                        dur_error *err) {
    dur_key_value *all = NULL;
    size_t count = 0;
    int code = get_kv_all_values(self, arena, id, &all, &count, err);
    *out = NULL;
    for (size_t i = 0; i < count; i++)
        if (strcmp(all[i].key, key) == 0) *out = all[i].value;
    return code;
}

static uint64_t now_ms(dur_provider *self) {
    return wall((minimal *)(void *)self);
}

static void close_store(dur_provider *self) {
    minimal *me = (minimal *)(void *)self;
    while (me->messages != NULL)
        free_message(&me->messages);
    while (me->works != NULL)
        free_work(&me->works);
    for (instance *gone; (gone = me->instances) != NULL; free(gone)) {
        me->instances = gone->next;
        for (event *old; (old = gone->events) != NULL; free(old))
            gone->events = old->next, free(old->json);
        free_values(&gone->kv);
        free_values(&gone->delta);
        free(gone->id), free(gone->name), free(gone->version), free(gone->status);
    }
    for (session *gone; (gone = me->sessions) != NULL; free(gone))
        me->sessions = gone->next, free(gone->id), free(gone->owner);
    pthread_mutex_destroy(&me->mutex);
    free(me);
}

/* ---- opening -------------------------------------------------------------------------------------------------------
 */

static const dur_provider_methods methods = {
    .size = sizeof(dur_provider_methods),
    .abi = DUR_PROVIDER_ABI,
    .name = "minimal",
    .version = "1",
    .close = close_store,
    .now_ms = now_ms,
    .fetch_orchestration_item = fetch_orchestration_item,
    .ack_orchestration_item = ack_orchestration_item,
    .abandon_orchestration_item = abandon_orchestration_item,
    .renew_orchestration_item_lock = renew_orchestration_item_lock,
    .read = read_events,
    .append = append,
    .enqueue_for_worker = enqueue_for_worker,
    .fetch_work_item = fetch_work_item,
    .ack_work_item = ack_work_item,
    .renew_work_item_lock = renew_work_item_lock,
    .abandon_work_item = abandon_work_item,
    .renew_session_lock = renew_session_lock,
    .cleanup_orphaned_sessions = cleanup_orphaned_sessions,
    .enqueue_for_orchestrator = enqueue_for_orchestrator,
    .get_custom_status = get_custom_status,
    .get_kv_value = get_kv_value,
    .get_kv_all_values = get_kv_all_values,
};

static int open_minimal(dur_provider **out, const char *url, const dur_open_options *options, dur_error *err) {
    (void)url;
    minimal *me = calloc(1, sizeof(*me));
    if (me == NULL) return dur_error_set(err, DUR_ENOMEM, false, "minimal.open", "no memory for a store");
    me->base.methods = &methods;
    me->world = options != NULL && options->world != NULL ? options->world : dur_world_real();
    pthread_mutex_init(&me->mutex, NULL);
    *out = &me->base;
    return DUR_OK;
}

/* From now on dur_open("minimal:") opens one. */
int minimal_register(dur_error *err);
int minimal_register(dur_error *err) {
    return dur_provider_register("minimal", open_minimal, err);
}

/* What --load of durite-kit and durite-stress calls. */
int durite_store_module(dur_error *err) {
    return minimal_register(err);
}
