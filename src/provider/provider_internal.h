/*
 * provider_internal.h: what the boundary's files share, and the little that the rest of the library may ask.
 */
#ifndef DURITE_PROVIDER_INTERNAL_H
#define DURITE_PROVIDER_INTERNAL_H

#include "core/check.h"
#include "core/limits.h"

#include <durite/provider.h>
#include <durite/sys/store.h>

/* Give a store its count of handles (1) and the process that it belongs to.  dur_open does it; an opener that is called
   directly (dur_sqlite_open) does it before it hands the store out. */
bool dur__provider_adopt(dur_provider *store);

/* A lane made of the required methods: leases are not kept, nothing is locked eagerly, messages are not consumed by
   id.  The runtime puts queue messages into history as they come there, and hands completions in through the queue. */
bool dur__lane_is_fallback(const dur_lane *lane);
/* How long such a lane sleeps at most before it looks again; 100 ms unless set. */
void dur__lane_set_poll(dur_lane *lane, uint64_t poll_ms);
/* What another thread has fetched while the lane's own slept (NULL: nothing): the next round that asks for such things
   answers with it first, and then sets item->instance or work->json.data to NULL.  For one round; texts live on. */
void dur__lane_offer(dur_lane *lane, dur_orchestration_item *item, dur_leased_work *work);

/* At the top of every dur_store_ function: DUR_EINVAL, DUR_EFORKED; err says that nothing went wrong otherwise. */
int dur__store_enter(const dur_provider *store, const char *op, dur_error *err);
int dur__store_missing(dur_error *err, const dur_provider *store, const char *method); /* DUR_EUNSUPPORTED */
int dur__store_null(dur_error *err, const char *op, const char *what);                 /* DUR_EINVAL */
int dur__store_check_instance(dur_error *err, const char *op, const char *instance);
int dur__store_check_json(dur_error *err, const char *op, dur_text json); /* U+0000 is refused */
int dur__store_check_message(dur_error *err, const char *op, const dur_message_row *item);
/* Begins its answers, and fills them when it is refused: a turn that contradicts itself is seen by no store. */
int dur__store_check_turn(dur_turn_commit *turn);
/* Name and version of an item whose instance has no row: from its history, else from the start among its messages. */
void dur__store_name_item(dur_arena *arena, dur_orchestration_item *item);

/* The store behind decorators; the store itself when it is none. */
dur_provider *dur__store_innermost(dur_provider *store);

/* A connection to a SQLite store's file, for an activity (sqlite_txn.c); NULL, DUR_EUNSUPPORTED for any other store. */
struct sqlite3 *dur__store_open_sqlite(dur_provider *store, dur_error *err);
void dur__store_close_sqlite(struct sqlite3 *db);

/* This thread is inside dur_sqlite_begin … commit on the store.  drop: roll back, and say why. */
bool dur__store_in_own_txn(dur_provider *store);
void dur__store_drop_own_txn(dur_provider *store, const char *why);

/* A user's function, from before its call until it has returned: a transaction that it has begun with dur_sqlite_begin,
   and left open, is rolled back then (sqlite_own.c).  One may run inside of another. */
typedef struct dur__guest {
    const char *activity; /* NULL: a handler */
    const char *instance;
    struct dur__guest *outer;
} dur__guest;
void dur__guest_enter(dur__guest *self);
void dur__guest_leave(dur__guest *self);

/* Ids that were started through this handle last: a store with the required methods alone cannot tell of a start that
   no turn has consumed. */
void dur__store_remember_start(dur_provider *store, const char *instance);
bool dur__store_remembers_start(dur_provider *store, const char *instance);
void dur__store_forget_start(dur_provider *store, const char *instance);

/* live.h; of the handle, made with it */
struct dur__live *dur__store_live(dur_provider *store);
/* starts.h; of the store that `births` has answered this for; NULL: no memory */
struct dur__starts *dur__store_starts(dur_provider *store, const char *identity);

/* fallback_lane.c */
int dur__fallback_lane_open(dur_provider *store, const dur_lane_options *options, dur_lane **out, dur_error *err);
int dur__fallback_lane_round(dur_lane *lane, dur_arena *arena, dur_round *round, dur_error *err);
int dur__fallback_lane_rest(dur_lane *lane, dur_rest *out, dur_error *err);
int dur__fallback_lane_rise(dur_lane *lane, const dur_rest *slept, bool *news, dur_error *err);
void dur__fallback_lane_close(dur_lane *lane);

/* fallback_array.c */
void dur__fallback_commit(dur_provider *store, dur_turn_commit *turn);
bool dur__fallback_only_releases(const dur_turn_commit *turn);
int dur__fallback_fetch_turns(dur_provider *store, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out,
                              size_t *count, dur_error *err);
int dur__fallback_fetch_works(dur_provider *store, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                              size_t *count, dur_error *err);
void dur__fallback_ack(dur_provider *store, dur_work_ack *ack);
int dur__fallback_check_works(dur_provider *store, const dur_worker_claim *claims, size_t count, uint64_t extend_ms,
                              bool *lost, dur_error *err);
int dur__fallback_return_works(dur_provider *store, const dur_worker_claim *claims, size_t count, dur_error *err);

/* fallback_client.c */
int dur__fallback_exists(dur_provider *store, const char *instance, bool *exists, dur_error *err);
/* The parent that a child's first turn needs (dur_turn_commit.needs_parent). */
int dur__fallback_is_meant(dur_provider *store, const char *parent, uint64_t birth, bool *yes, dur_error *err);
int dur__fallback_enqueue_start(dur_provider *store, const dur_message_row *item, dur_exists_policy policy,
                                uint64_t delay_ms, bool *existed, dur_error *err);
int dur__fallback_enqueue_existing(dur_provider *store, const dur_message_row *item, uint64_t delay_ms, dur_error *err);
int dur__fallback_watch_open(dur_provider *store, dur_watch **out);
int dur__fallback_watch_wait(dur_watch *watch, uint64_t timeout_ms, dur_error *err);
void dur__fallback_watch_wake(dur_watch *watch);
void dur__fallback_watch_close(dur_watch *watch);
int dur__fallback_get_instance_stats(dur_provider *store, dur_arena *arena, const char *instance, bool *found,
                                     dur_instance_stats *out, dur_error *err);
int dur__fallback_dead_letter_messages(const char *instance, size_t count, const char *reason);
int dur__fallback_dead_letter_work(dur_provider *store, const char *lock_token, const char *reason, dur_error *err);

/* check_calls.c: every child answers to a call that its parent has made; DUR_ECORRUPT. */
int dur__check_calls(dur_provider *store, dur_error *err);

#endif
