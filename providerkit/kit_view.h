/*
 * kit_view.h: parts of one store, each of which looks like a whole one to the check that has it.
 */
#ifndef DURITE_KIT_VIEW_H
#define DURITE_KIT_VIEW_H

#include "kit_internal.h"

#include <pthread.h>
#include <stdatomic.h>

#define KIT_VIEWS_MAX 65536
#define KIT_TAGS_MAX 64
#define KIT_CHOSEN_MAX 32
#define KIT_OWNERS_MAX 16

/* The store that is shared. */
typedef struct kit_commons {
    const dur_kit_factory *factory;
    dur_kit_store store;
    dur_provider_methods methods; /* of the views */
    bool moves;                   /* the clock is the kit's to move; else time passes for everybody alike */
    pthread_rwlock_t look;        /* for writing: a fetch that sorts out what belongs to others */
    atomic_uint serials;
    atomic_bool over[KIT_VIEWS_MAX]; /* views that have ended, by serial */
} kit_commons;

typedef struct kit_view {
    dur_provider base;
    kit_commons *commons;
    unsigned serial;
    char prefix[16];
    bool has_time;
    atomic_bool wants_time;    /* the check cannot go on without the clock */
    const char *_Atomic alone; /* or with others at all: why */
    const char *owners[KIT_OWNERS_MAX];
    size_t owner_count;
    pthread_mutex_t mutex; /* guards the rest */
    char **texts;
    size_t text_count, text_room;
    const char *tags[KIT_TAGS_MAX]; /* seen so far */
    size_t tag_count;
    char chosen[KIT_CHOSEN_MAX][64]; /* tokens of eager locks */
    size_t chosen_count;
} kit_view;

int kit_commons_open(kit_commons *commons, const dur_kit_factory *factory, dur_error *err);
void kit_commons_close(kit_commons *commons);
kit_view *kit_view_open(kit_commons *commons, bool has_time);
void kit_view_close(kit_view *view);
const char *kit_view_name(kit_view *view, const char *name);

/* ---- for the methods of a view (kit_view.c, kit_view_calls.c) ---------------------------------------------------- */

static inline kit_view *view_of(dur_provider *self) {
    return (kit_view *)(void *)self;
}
#define INNER (view_of(self)->commons->store.provider)

/* A call beside others; a fetch that sorts out waits for all of these. */
#define TOGETHER(call)                                                                                                 \
    do {                                                                                                               \
        pthread_rwlock_rdlock(&view_of(self)->commons->look);                                                          \
        int code_ = (call);                                                                                            \
        pthread_rwlock_unlock(&view_of(self)->commons->look);                                                          \
        return code_;                                                                                                  \
    } while (0)

const char *kit_in(dur_provider *self, const char *name);  /* with the prefix; NULL stays NULL */
const char *kit_out(dur_provider *self, const char *name); /* without it */
bool kit_mine(const kit_view *view, const char *name);
int kit_alone(dur_provider *self, const char *why, dur_error *err); /* this cannot be shared */
int kit_later(dur_provider *self, bool delayed, dur_error *err);    /* DUR_OK: it may hand in something for later */
bool kit_is_later(dur_provider *self, uint64_t due_ms);
uint64_t kit_held_ms(dur_provider *self, uint64_t ms); /* the time of a lock: without the clock, for ever */
dur_message_row kit_message_in(dur_provider *self, const dur_message_row *item);
void *kit_list(size_t count, size_t size); /* zeroed, never NULL; free */

uint64_t kit_view_now(dur_provider *self);
int kit_view_read(dur_provider *self, dur_arena *arena, const char *instance, uint64_t execution_id,
                  dur_event_row **out, size_t *count, dur_error *err);
int kit_view_append(dur_provider *self, const char *instance, uint64_t execution_id, const dur_event_row *events,
                    size_t count, dur_error *err);
int kit_view_enqueue(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err);
int kit_view_enqueue_start(dur_provider *self, const dur_message_row *item, dur_exists_policy policy, uint64_t delay_ms,
                           bool *existed, dur_error *err);
int kit_view_enqueue_existing(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err);
int kit_view_custom_status(dur_provider *self, dur_arena *arena, const char *instance, uint64_t last_seen,
                           bool *changed, const char **status, uint64_t *version, dur_error *err);
int kit_view_kv_value(dur_provider *self, dur_arena *arena, const char *instance, const char *key, const char **value,
                      dur_error *err);
int kit_view_kv_all(dur_provider *self, dur_arena *arena, const char *instance, dur_key_value **out, size_t *count,
                    dur_error *err);
int kit_view_owner_register(dur_provider *self, const dur_owner_options *options, dur_error *err);
int kit_view_owner_beat(dur_provider *self, const char *owner, dur_owner_report *report, dur_error *err);
int kit_view_owner_release(dur_provider *self, const char *owner, dur_error *err);
int kit_view_owner_holdings(dur_provider *self, dur_arena *arena, const char *owner, dur_holding **out, size_t *count,
                            dur_error *err);
int kit_view_watch_open(dur_provider *self, const char *instance, dur_watch **out, dur_error *err);
int kit_view_watch_wait(dur_watch *watch, uint64_t timeout_ms, dur_error *err);
void kit_view_watch_wake(dur_watch *watch);
int kit_view_list_unserved(dur_provider *self, dur_arena *arena, size_t each, dur_unserved **out, size_t *count,
                           dur_error *err);
int kit_view_enqueue_starts(dur_provider *self, dur_start_request *starts, size_t count, dur_error *err);
void kit_view_watch_close(dur_watch *watch);
int kit_view_stats(dur_provider *self, dur_arena *arena, const char *instance, bool *found, dur_instance_stats *out,
                   dur_error *err);
int kit_view_list(dur_provider *self, dur_arena *arena, const dur_instance_query *query, dur_instance_row **out,
                  size_t *count, dur_error *err);
int kit_view_get(dur_provider *self, dur_arena *arena, const char *instance, dur_instance_row *out, dur_error *err);
int kit_view_executions(dur_provider *self, dur_arena *arena, const char *instance, dur_execution_row **out,
                        size_t *count, dur_error *err);
int kit_view_metrics(dur_provider *self, dur_system_metrics *out, dur_error *err);
int kit_view_depths(dur_provider *self, dur_queue_depths *out, dur_error *err);
int kit_view_delete(dur_provider *self, const char *const *ids, const dur_meant *meant, size_t count, bool force,
                    dur_delete_result *out, dur_error *err);
int kit_view_delete_bulk(dur_provider *self, const dur_bulk_filter *filter, dur_delete_result *out, dur_error *err);
int kit_view_prune(dur_provider *self, const char *instance, const dur_prune_options *options, dur_prune_result *out,
                   dur_error *err);
int kit_view_prune_bulk(dur_provider *self, const dur_bulk_filter *filter, const dur_prune_options *options,
                        dur_prune_result *out, dur_error *err);
int kit_view_dead_letter_messages(dur_provider *self, const char *instance, const uint64_t *ids, size_t count,
                                  const char *reason, dur_error *err);
int kit_view_letters(dur_provider *self, dur_arena *arena, uint64_t after_id, size_t limit, dur_dead_letter **out,
                     size_t *count, dur_error *err);
int kit_view_delete_letters(dur_provider *self, const uint64_t *ids, size_t count, dur_error *err);
int kit_view_suspend(dur_provider *self, const char *instance, const char *reason, dur_error *err);
int kit_view_check(dur_provider *self, dur_error *err);

#endif
