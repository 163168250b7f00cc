/*
 * fleet.c: nodes that differ: what this one has, and what nobody has.
 *
 * The names and versions of the registries become the filter of every fetch, and are published with the owner id.  What
 * no registered owner has waits in the store as it is; the keeper looks for it now and then, says it once, ends what
 * somebody has cancelled, and, where unregistered_attempts_max asks for that, what has waited too long.  Nothing of
 * that is acquired: an instance is ended by a commit that is refused as soon as somebody holds it.
 */
#include "runtime/runtime_internal.h"

#include "base/arena_internal.h"

#include "client/client_internal.h"
#include <stdlib.h>

#define LOG_EVERY_MS (10 * 60000) /* what nobody has is mentioned again after this */
#define SESSION_AGAIN_MS 10000    /* … work of a session that its holder cannot run first after this, then doubled */
#define END_AT_ONCE 64            /* of each handler, in one look */

/* ---- what we have ---- */

static void key_add(dur_runtime *runtime, dur_handler_filter *filter, const char *text) {
    const char **keys = dur__xrealloc((void *)(uintptr_t)filter->keys, (filter->count + 1) * sizeof(char *));
    keys[filter->count++] = dur_arena_strdup(runtime->fleet_arena, text);
    filter->keys = keys;
}

static int compare_keys(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Two registries may have versions of one name. */
static void keys_sort(dur_handler_filter *filter) {
    const char **keys = (const char **)(uintptr_t)filter->keys;
    size_t kept = 0;
    if (filter->count > 1) qsort(keys, filter->count, sizeof(*keys), compare_keys);
    for (size_t i = 0; i < filter->count; i++)
        if (kept == 0 || strcmp(keys[kept - 1], keys[i]) != 0) keys[kept++] = keys[i];
    filter->count = kept;
}

/* "1.0.0,1.1.0": each of them, and the name alone for starts that leave the version to the registry's policy. */
static void add_versions(dur_runtime *runtime, const char *name, const char *versions) {
    dur_arena *arena = runtime->fleet_arena;
    key_add(runtime, &runtime->handlers, dur_handler_key(arena, name, NULL));
    for (const char *at = versions; *at != '\0';) {
        size_t size = strcspn(at, ",");
        const char *version = dur_arena_format(arena, "%.*s", (int)size, at);
        key_add(runtime, &runtime->handlers, dur_handler_key(arena, name, version));
        at += size + (at[size] == ',');
    }
}

void dur__fleet_take(dur_runtime *runtime) {
    runtime->fleet_arena = dur__arena_xnew();
    for (size_t i = 0; i < runtime->registry_count; i++) {
        const dur_registry *registry = runtime->registries[i];
        for (size_t k = 0; k < dur_registry_count(registry); k++) {
            dur_handler_kind kind;
            const char *name = dur_registry_name(registry, k, &kind);
            if (kind == DUR_HANDLER_ACTIVITY)
                key_add(runtime, &runtime->activities, name);
            else if (!runtime->options.activities_only)
                add_versions(runtime, name, dur_registry_versions(registry, kind, name));
        }
    }
    if (runtime->tag_filter.mode == DUR_TAGS_NONE)
        runtime->activities.count = 0;
    else
        for (size_t i = 0; dur__syscall_name(i) != NULL; i++)
            key_add(runtime, &runtime->activities, dur__syscall_name(i));
    keys_sort(&runtime->handlers);
    keys_sort(&runtime->activities);
}

/* ---- what nobody has ---- */

typedef struct unserved {
    char *key;
    uint32_t looks;                                 /* that found it, as far apart as unregistered_backoff says */
    uint64_t counted_at_ms, delay_ms, logged_at_ms; /* boot time */
    bool seen;                                      /* by this look */
} unserved;

static void unserved_free(unserved *known) {
    dur__free(known->key);
    dur__free(known);
}

void dur__fleet_free(dur_runtime *runtime) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&runtime->unserved, &i)) != NULL;)
        unserved_free(entry->value);
    dur__map_free(&runtime->unserved);
    dur__free((void *)(uintptr_t)runtime->handlers.keys);
    dur__free((void *)(uintptr_t)runtime->activities.keys);
    dur_arena_free(runtime->fleet_arena);
}

static const char *kind_word(const dur_unserved *row) {
    return row->kind == DUR_UNSERVED_ACTIVITY ? "activity" : "orchestration";
}

static void split_key(const dur_unserved *row, dur_arena *arena, const char **name, const char **version) {
    const char *at = row->kind == DUR_UNSERVED_ACTIVITY ? NULL : strrchr(row->handler, '@');
    *name = at == NULL ? row->handler : dur_arena_format(arena, "%.*s", (int)(at - row->handler), row->handler);
    *version = at == NULL ? "" : at + 1;
}

static void tell(const dur_unserved *row, dur_arena *arena) {
    const char *name, *version;
    split_key(row, arena, &name, &version);
    dur__log(
        DUR_LOG_WARN, DUR__LOG_RUNTIME,
        DUR__FIELDS(DUR__TEXT("name", name), DUR__TEXT("version", version), DUR__TEXT("instance_id", row->instance)),
        "no node has the handler of %s \"%s\"%s%s: what needs it waits until one comes", kind_word(row), name,
        version[0] != '\0' ? " version " : "", version);
}

/* True: it has been there at more looks than are allowed. */
static bool note(dur_runtime *runtime, const dur_unserved *row, dur_arena *arena) {
    const dur_runtime_options *o = &runtime->options;
    uint64_t now_ms = runtime->world->boot_ms(runtime->world->data);
    const char *key = dur_arena_format(arena, "%s %s", kind_word(row), row->handler);
    unserved *known = dur__map_get(&runtime->unserved, key);
    if (known == NULL) {
        known = dur__xcalloc(1, sizeof(*known));
        known->key = dur__xstrdup(key);
        known->delay_ms = o->unregistered_backoff_ms;
        known->counted_at_ms = known->logged_at_ms = now_ms;
        known->looks = 1;
        dur__map_put(&runtime->unserved, known->key, known);
        tell(row, arena);
    } else if (!known->seen && now_ms - known->counted_at_ms >= known->delay_ms) {
        known->looks++;
        known->counted_at_ms = now_ms;
        known->delay_ms = dur__backoff_ms(known->delay_ms, 1, o->unregistered_backoff_max_ms);
    }
    known->seen = true;
    if (now_ms - known->logged_at_ms >= LOG_EVERY_MS) {
        known->logged_at_ms = now_ms;
        tell(row, arena);
    }
    return o->unregistered_attempts_max != 0 && known->looks >= o->unregistered_attempts_max;
}

/* Somebody has it now, or nothing needs it any more: another time it is news again. */
static void forget_unseen(dur_runtime *runtime) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&runtime->unserved, &i)) != NULL;) {
        unserved *known = entry->value;
        if (known->seen) {
            known->seen = false;
            continue;
        }
        (void)dur__map_remove(&runtime->unserved, known->key);
        unserved_free(known);
    }
}

/* ---- ending it ---- */

static dur_failure not_registered(const dur_unserved *row, dur_arena *arena) {
    const char *name, *version;
    split_key(row, arena, &name, &version);
    return (dur_failure){ .category = DUR_FAILURE_CONFIGURATION,
                          .resource = name,
                          .missing = "handler",
                          .message = dur_arena_format(arena, "%s \"%s\"%s%s is not registered", kind_word(row), name,
                                                      version[0] != '\0' ? " version " : "", version) };
}

/* only: as it was looked at; NULL: whoever has the id. */
static void end_instance(dur_runtime *runtime, dur_client *client, const char *instance, const dur_instance_row *only,
                         const dur_failure *failure, dur__client_end_if when) {
    dur_error err = DUR_ERROR_INIT;
    int code = dur__client_end(client, instance, only, failure, when, &err);
    if (code == DUR_OK) {
        DUR__COUNT(runtime, orchestration_failures);
        dur__log(DUR_LOG_WARN, DUR__LOG_ORCHESTRATION, DUR__FIELDS(DUR__TEXT("instance_id", instance)),
                 "ended without its handler, which no node has");
    } else if (code != DUR_ELEASE && code != DUR_ENOTFOUND) {
        DUR__COUNT(runtime, provider_errors);
    }
}

/* What is decided in one look. */
typedef struct look {
    dur_runtime *runtime;
    dur_client *client;
    dur_arena *arena;
    dur__map cancelled; /* by instance: requests that nobody has heard yet */
    dur__map ended;
    dur__map asked; /* somebody's request waits, whomever it means */
} look;

typedef struct request {
    dur_instance_row instance;
    dur_work_item cancel;
} request;

static void end_cancelled(look *self, const request *asked) {
    dur_failure failure = dur__cancelled_by(&asked->cancel);
    dur__map_put(&self->ended, asked->instance.instance_id, self);
    end_instance(self->runtime, self->client, asked->instance.instance_id, &asked->instance, &failure,
                 DUR__END_IF_UNLEASED);
}

/* The call that the instance answers to, in its newest execution or, where it has not begun, in the start that waits.
 */
static bool call_of(look *self, const dur_instance_row *row, dur__parent *out) {
    dur_event_row *events = NULL;
    size_t count = 0;
    dur_event started;
    dur_work_item start;
    if (row->start_pending) {
        if (dur_work_from_json(&start, self->arena, row->pending_start, NULL) != DUR_OK) return false;
        *out = DUR__PARENT_OF(&start);
        return true;
    }
    int code = dur_store_read(self->runtime->store, self->arena, row->instance_id, 0, &events, &count, NULL);
    if (code != DUR_OK || count == 0) return false;
    if (dur_event_from_json(&started, self->arena, events[0].json, NULL) != DUR_OK) return false;
    *out = DUR__PARENT_OF(&started);
    return true;
}

/* Histories are read only where it depends on them: a client's request is for whoever has the id. */
static bool is_meant(look *self, const request *asked) {
    const dur_instance_row *row = &asked->instance;
    dur__parent call;
    if (asked->cancel.parent_instance == NULL) return true;
    if (!row->start_pending && !dur__str_eq(asked->cancel.parent_instance, row->parent_instance_id)) return false;
    return call_of(self, row, &call) && dur__cancel_is_for(&asked->cancel, &call);
}

/*
 * A cancel request is for the handler, which may come back: a service that is just being deployed is one that nobody
 * has.  It gets its grace, counted from the request; what has not begun has nothing to clean up.  The request of a
 * parent that means another instance is left for whoever takes this one.
 */
static void hear_cancel(look *self, const dur_unserved *row) {
    const dur_runtime_options *options = &self->runtime->options;
    request *asked = dur_arena_alloc(self->arena, sizeof(*asked));
    if (dur__map_get(&self->ended, row->instance) != NULL) return;
    dur__map_put(&self->asked, row->instance, self);
    if (dur__client_row(self->client, self->arena, row->instance, &asked->instance, NULL) != DUR_OK) return;
    if (dur_work_from_json(&asked->cancel, self->arena, row->json, NULL) != DUR_OK) return;
    uint64_t now_ms = dur_store_now_ms(self->runtime->store);
    bool patience = now_ms < row->since_ms || now_ms - row->since_ms < options->cancel_grace_ms;
    bool due = asked->instance.start_pending || !patience;
    if (!due && options->unregistered_attempts_max == 0) return; /* nothing else ends it before */
    if (!is_meant(self, asked)) return;
    if (due)
        end_cancelled(self, asked);
    else
        dur__map_put(&self->cancelled, asked->instance.instance_id, asked);
}

/*
 * Nobody has come for too long.  Who has asked it to end before is answered first, and so is who asks before the end is
 * written: the next look hears him.
 */
static void end_unserved(look *self, const dur_unserved *row) {
    const request *asked = dur__map_get(&self->cancelled, row->instance);
    if (dur__map_get(&self->ended, row->instance) != NULL) return;
    if (asked != NULL) {
        end_cancelled(self, asked);
    } else {
        dur_failure failure = not_registered(row, self->arena);
        bool heard = dur__map_get(&self->asked, row->instance) != NULL; /* it means another one, and stays there */
        end_instance(self->runtime, self->client, row->instance, NULL, &failure,
                     heard ? DUR__END_IF_UNLEASED : DUR__END_IF_UNCANCELLED);
    }
}

static void end_activities(dur_runtime *runtime, const dur_unserved *row, dur_arena *arena) {
    dur_leased_work works[END_AT_ONCE];
    dur_work_ack acks[END_AT_ONCE];
    dur_message_row messages[END_AT_ONCE];
    dur_handler_filter one = { &row->handler, 1 };
    const char *owner = runtime->has_owners ? dur_runtime_owner(runtime) : NULL;
    dur_work_fetch how = { .lock_ms = runtime->options.worker_lock_timeout_ms,
                           .session_owner = dur__runtime_session_owner(runtime, owner),
                           .session_lock_ms = runtime->options.session_lock_timeout_ms,
                           .tags = { .mode = DUR_TAGS_ANY },
                           .handlers = &one,
                           .max = END_AT_ONCE };
    size_t count = 0, used = 0;
    dur_failure failure = not_registered(row, arena);
    if (dur_store_fetch_works(runtime->store, arena, &how, works, &count, NULL) != DUR_OK) return;
    for (size_t i = 0; i < count; i++) {
        dur_work_item item;
        bool fits = dur_work_from_json(&item, arena, works[i].json, NULL) == DUR_OK && item.name != NULL &&
                    strcmp(item.name, row->handler) == 0;
        dur_work_item failed = { .kind = DUR_WORK_ACTIVITY_FAILED,
                                 .instance = works[i].ref.instance,
                                 .execution_id = works[i].ref.execution_id,
                                 .id = works[i].ref.activity_id,
                                 .details = &failure };
        if (!fits || dur_message_row_from_work(&messages[used], arena, &failed, NULL) != DUR_OK) {
            (void)dur_store_abandon_work_item(runtime->store, works[i].lock_token, 0, true, NULL);
            continue;
        }
        acks[used] =
            (dur_work_ack){ .lock_token = works[i].lock_token, .ref = works[i].ref, .completion = &messages[used] };
        used++;
    }
    if (used > 0) (void)dur_store_ack_works(runtime->store, acks, used, NULL); /* else their locks end by time */
}

/* It may be for a moment only: another runtime of the same worker_node_id may have it.  So it is said at the second
   look in a row. */
static void note_session(dur_runtime *runtime, const dur_unserved *row, dur_arena *arena) {
    uint64_t now_ms = runtime->world->boot_ms(runtime->world->data);
    const char *key = dur_arena_format(arena, "session %s %s", row->session, row->handler);
    unserved *known = dur__map_get(&runtime->unserved, key);
    if (known == NULL) {
        known = dur__xcalloc(1, sizeof(*known));
        known->key = dur__xstrdup(key);
        dur__map_put(&runtime->unserved, known->key, known);
    }
    if (known->seen) return;
    known->seen = true;
    known->looks++;
    if (known->looks < 2 || (known->delay_ms != 0 && now_ms - known->logged_at_ms < known->delay_ms)) return;
    known->logged_at_ms = now_ms;
    known->delay_ms = known->delay_ms == 0 ? SESSION_AGAIN_MS : dur__backoff_ms(known->delay_ms, 1, LOG_EVERY_MS);
    dur__log(DUR_LOG_WARN, DUR__LOG_RUNTIME,
             DUR__FIELDS(DUR__TEXT("name", row->handler), DUR__TEXT("session_id", row->session),
                         DUR__TEXT("instance_id", row->instance), DUR__TEXT("owner", row->owner)),
             "activity \"%s\" of \"%s\" waits: session \"%s\" is held by %s, which has no handler of it; the session"
             " moves when it has been idle for session_idle_timeout_ms",
             row->handler, row->instance, row->session, row->owner);
}

bool dur__fleet_look(dur_runtime *runtime, dur_arena *arena) {
    dur_unserved *rows = NULL;
    size_t count = 0;
    dur_client *client = NULL;
    dur_error err = DUR_ERROR_INIT;
    bool sessions = false;
    if (dur__runtime_phase(runtime) != DUR__PHASE_RUN || dur__keeper_fenced(runtime)) return false;
    size_t each = runtime->options.unregistered_attempts_max != 0 ? END_AT_ONCE : 1;
    if (dur_store_list_unserved(runtime->store, arena, each, &rows, &count, &err) != DUR_OK) {
        DUR__COUNT(runtime, provider_errors);
        return false;
    }
    if (count > 0 && dur_client_new(&client, runtime->store, &err) != DUR_OK) return false;
    look self = { .runtime = runtime, .client = client, .arena = arena };
    for (size_t i = 0; i < count; i++)
        if (rows[i].kind == DUR_UNSERVED_CANCEL) hear_cancel(&self, &rows[i]);
    const char *last = "";
    for (size_t i = 0; i < count; i++) {
        const dur_unserved *row = &rows[i];
        if (row->kind == DUR_UNSERVED_SESSION) {
            note_session(runtime, row, arena);
            sessions = true;
            continue;
        }
        if (row->kind == DUR_UNSERVED_CANCEL || !note(runtime, row, arena)) continue;
        if (row->kind == DUR_UNSERVED_INSTANCE) {
            end_unserved(&self, row);
        } else if (strcmp(last, row->handler) != 0) { /* all of them at once */
            end_activities(runtime, row, arena);
            last = row->handler;
        }
    }
    forget_unseen(runtime);
    dur__map_free(&self.cancelled);
    dur__map_free(&self.ended);
    dur__map_free(&self.asked);
    dur_client_free(client);
    return sessions;
}
