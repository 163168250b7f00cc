/*
 * store.h: calling a provider.
 *
 * For every method of the table there is a function dur_store_METHOD with the same parameters.  It checks arguments
 * (DUR_EINVAL), refuses calls in a forked child (DUR_EFORKED), supplies the fallback of a method that the provider does
 * not have, and answers DUR_EUNSUPPORTED naming the method where there is none.  What a method does, costs and promises
 * stands in provider_methods.h.  Everything of the library and durite-kit call stores through these.  A decorator calls
 * the inner table instead (inner->methods->read(inner, …)): what these functions add to a call must be added once.
 */
#ifndef DURITE_SYS_STORE_H
#define DURITE_SYS_STORE_H

#include <durite/sys/provider_methods.h>

DUR_BEGIN_DECLS

/*
 * A store in a shared object of its own has this one function, not we: it makes the store's schemes known with
 * dur_provider_register, and is called once, when somebody loads the object (dur_kit_load; durite-kit and durite-stress
 * with --load).  Link the object with libdurite's shared library, as the program that loads it is.
 */
#define DUR_STORE_MODULE "durite_store_module"
DUR_API int durite_store_module(dur_error *err);

/* Keep a store open beyond its handle: one more / one less dur_provider_close is needed. */
DUR_API dur_provider *dur_store_retain(dur_provider *store);

/* Does the store itself have the method (no fallback)?  By name, "lane_open". */
DUR_API bool dur_store_has(const dur_provider *store, const char *method);

/* read, decoded.  A stored event that cannot be read: DUR_ECORRUPT, "deserialization failed", with its position. */
DUR_API int dur_store_read_events(dur_provider *store, dur_arena *arena, const char *instance, uint64_t execution_id,
                                  dur_event **out, size_t *count, dur_error *err);

DUR_API uint64_t dur_store_now_ms(dur_provider *store);
DUR_API int dur_store_fetch_orchestration_item(dur_provider *store, dur_arena *arena, const dur_fetch *how,
                                               dur_orchestration_item *out, dur_error *err);
DUR_API int dur_store_ack_orchestration_item(dur_provider *store, dur_turn_commit *turn, dur_error *err);
DUR_API int dur_store_abandon_orchestration_item(dur_provider *store, const char *lock_token, uint64_t delay_ms,
                                                 bool ignore_attempt, dur_error *err);
DUR_API int dur_store_renew_orchestration_item_lock(dur_provider *store, const char *lock_token, uint64_t extend_ms,
                                                    dur_error *err);
DUR_API int dur_store_read(dur_provider *store, dur_arena *arena, const char *instance, uint64_t execution_id,
                           dur_event_row **out, size_t *count, dur_error *err);
DUR_API int dur_store_append(dur_provider *store, const char *instance, uint64_t execution_id,
                             const dur_event_row *events, size_t count, dur_error *err);
DUR_API int dur_store_enqueue_for_worker(dur_provider *store, const dur_message_row *item, dur_error *err);
DUR_API int dur_store_fetch_work_item(dur_provider *store, dur_arena *arena, const dur_work_fetch *how,
                                      dur_leased_work *out, dur_error *err);
DUR_API int dur_store_ack_work_item(dur_provider *store, const char *lock_token, const dur_message_row *completion,
                                    dur_error *err);
DUR_API int dur_store_renew_work_item_lock(dur_provider *store, const char *lock_token, uint64_t extend_ms,
                                           dur_error *err);
DUR_API int dur_store_abandon_work_item(dur_provider *store, const char *lock_token, uint64_t delay_ms,
                                        bool ignore_attempt, dur_error *err);
DUR_API int dur_store_renew_session_lock(dur_provider *store, const char *const *owners, size_t owner_count,
                                         uint64_t extend_ms, uint64_t idle_ms, uint64_t *renewed, dur_error *err);
DUR_API int dur_store_cleanup_orphaned_sessions(dur_provider *store, uint64_t idle_ms, uint64_t *removed,
                                                dur_error *err);
DUR_API int dur_store_enqueue_for_orchestrator(dur_provider *store, const dur_message_row *item, uint64_t delay_ms,
                                               dur_error *err);
DUR_API int dur_store_get_custom_status(dur_provider *store, dur_arena *arena, const char *instance, uint64_t last_seen,
                                        bool *changed, const char **status, uint64_t *version, dur_error *err);
DUR_API int dur_store_get_kv_value(dur_provider *store, dur_arena *arena, const char *instance, const char *key,
                                   const char **value, dur_error *err);
DUR_API int dur_store_get_kv_all_values(dur_provider *store, dur_arena *arena, const char *instance,
                                        dur_key_value **out, size_t *count, dur_error *err);
DUR_API int dur_store_lane_open(dur_provider *store, const dur_lane_options *options, dur_lane **out, dur_error *err);
DUR_API int dur_store_lane_round(dur_lane *lane, dur_arena *arena, dur_round *round, dur_error *err);
/* lane_rest, a poll, lane_rise; until there is something to look at or timeout_ms have passed. */
DUR_API int dur_store_lane_wait(dur_lane *lane, uint64_t timeout_ms, dur_error *err);
DUR_API int dur_store_lane_rest(dur_lane *lane, dur_rest *out, dur_error *err);
DUR_API int dur_store_lane_rise(dur_lane *lane, const dur_rest *slept, bool *news, dur_error *err);
DUR_API void dur_store_lane_close(dur_lane *lane);
DUR_API int dur_store_lane_messages(dur_lane *lane, dur_arena *arena, const char *instance, const char *lock_token,
                                    const char *queue, uint64_t after_due_ms, uint64_t after_id, size_t max,
                                    dur_fetched_message **out, size_t *count, dur_error *err);
DUR_API int dur_store_lane_history(dur_lane *lane, dur_arena *arena, const char *instance, const char *lock_token,
                                   uint64_t execution_id, dur_orchestration_item *out, dur_error *err);
/* *count 0 where the store has no such method. */
DUR_API int dur_store_fetch_turns(dur_provider *store, dur_arena *arena, const dur_fetch *how,
                                  dur_orchestration_item *out, size_t *count, dur_error *err);
DUR_API int dur_store_commit_turns(dur_provider *store, dur_turn_commit *turns, size_t count, dur_error *err);
DUR_API int dur_store_fetch_works(dur_provider *store, dur_arena *arena, const dur_work_fetch *how,
                                  dur_leased_work *out, size_t *count, dur_error *err);
DUR_API int dur_store_ack_works(dur_provider *store, dur_work_ack *acks, size_t count, dur_error *err);
DUR_API int dur_store_check_works(dur_provider *store, const dur_worker_claim *claims, size_t count, uint64_t extend_ms,
                                  bool *lost, dur_error *err);
DUR_API int dur_store_return_works(dur_provider *store, const dur_worker_claim *claims, size_t count, dur_error *err);
DUR_API int dur_store_alone_ended(dur_provider *store, const char *lock_token, dur_error *err);
DUR_API int dur_store_blame(dur_provider *store, const char *lock_token, dur_error *err);
DUR_API int dur_store_owner_register(dur_provider *store, const dur_owner_options *options, dur_error *err);
DUR_API int dur_store_owner_beat(dur_provider *store, const char *owner, dur_owner_report *out, dur_error *err);
DUR_API int dur_store_owner_release(dur_provider *store, const char *owner, dur_error *err);
DUR_API int dur_store_owner_holdings(dur_provider *store, dur_arena *arena, const char *owner, dur_holding **out,
                                     size_t *count, dur_error *err);
DUR_API int dur_store_enqueue_start(dur_provider *store, const dur_message_row *item, dur_exists_policy policy,
                                    uint64_t delay_ms, bool *existed, dur_error *err);
/* At most DUR_STARTS_MAX at a time.  A start that cannot be one (no item, no such policy): DUR_EINVAL, nothing done. */
#define DUR_STARTS_MAX 4096u
DUR_API int dur_store_enqueue_starts(dur_provider *store, dur_start_request *starts, size_t count, dur_error *err);
DUR_API int dur_store_enqueue_existing(dur_provider *store, const dur_message_row *item, uint64_t delay_ms,
                                       dur_error *err);
DUR_API int dur_store_watch_open(dur_provider *store, const char *instance, dur_watch **out, dur_error *err);
DUR_API int dur_store_watch_wait(dur_watch *watch, uint64_t timeout_ms, dur_error *err);
DUR_API void dur_store_watch_close(dur_watch *watch);
/* False: the store cannot, and the fallback of watches is not in use. */
DUR_API bool dur_store_watch_wake(dur_watch *watch);
DUR_API int dur_store_list_unserved(dur_provider *store, dur_arena *arena, size_t each, dur_unserved **out,
                                    size_t *count, dur_error *err);
DUR_API int dur_store_get_instance_stats(dur_provider *store, dur_arena *arena, const char *instance, bool *found,
                                         dur_instance_stats *out, dur_error *err);
DUR_API int dur_store_list_instances(dur_provider *store, dur_arena *arena, const dur_instance_query *query,
                                     dur_instance_row **out, size_t *count, dur_error *err);
DUR_API int dur_store_get_instance(dur_provider *store, dur_arena *arena, const char *instance, dur_instance_row *out,
                                   dur_error *err);
DUR_API int dur_store_list_executions(dur_provider *store, dur_arena *arena, const char *instance,
                                      dur_execution_row **out, size_t *count, dur_error *err);
DUR_API int dur_store_get_system_metrics(dur_provider *store, dur_system_metrics *out, dur_error *err);
DUR_API int dur_store_get_queue_depths(dur_provider *store, dur_queue_depths *out, dur_error *err);
DUR_API int dur_store_delete_instances(dur_provider *store, const char *const *ids, size_t count, bool force,
                                       dur_delete_result *out, dur_error *err); /* whoever has the ids */
DUR_API int dur_store_delete_meant(dur_provider *store, const char *const *ids, const dur_meant *meant, size_t count,
                                   bool force, dur_delete_result *out, dur_error *err);
DUR_API int dur_store_delete_instances_bulk(dur_provider *store, const dur_bulk_filter *filter, dur_delete_result *out,
                                            dur_error *err);
DUR_API int dur_store_prune_executions(dur_provider *store, const char *instance, const dur_prune_options *options,
                                       dur_prune_result *out, dur_error *err);
DUR_API int dur_store_prune_executions_bulk(dur_provider *store, const dur_bulk_filter *filter,
                                            const dur_prune_options *options, dur_prune_result *out, dur_error *err);
DUR_API int dur_store_dead_letter_messages(dur_provider *store, const char *instance, const uint64_t *ids, size_t count,
                                           const char *reason, dur_error *err);
DUR_API int dur_store_dead_letter_work(dur_provider *store, const char *lock_token, const char *reason, dur_error *err);
DUR_API int dur_store_list_dead_letters(dur_provider *store, dur_arena *arena, uint64_t after_id, size_t limit,
                                        dur_dead_letter **out, size_t *count, dur_error *err);
DUR_API int dur_store_delete_dead_letters(dur_provider *store, const uint64_t *ids, size_t count, dur_error *err);
DUR_API int dur_store_set_suspended(dur_provider *store, const char *instance, const char *reason, dur_error *err);
DUR_API int dur_store_backup(dur_provider *store, const char *target, dur_error *err);
DUR_API int dur_store_check(dur_provider *store, dur_error *err);
DUR_API int dur_store_vacuum(dur_provider *store, uint64_t pages_max, uint64_t *pages_left, dur_error *err);

DUR_END_DECLS

#endif
