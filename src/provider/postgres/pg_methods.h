/*
 * pg_methods.h: the methods of the PostgreSQL store, by the files that have them.
 */
#ifndef DURITE_PG_METHODS_H
#define DURITE_PG_METHODS_H

#include <durite/sys/provider_methods.h>

int dur__pg_check(dur_provider *self, dur_error *err);
uint64_t dur__pg_now_ms(dur_provider *self);
int dur__pg_enqueue_for_orchestrator(dur_provider *self, const dur_message_row *item, uint64_t delay_ms,
                                     dur_error *err);
int dur__pg_enqueue_starts(dur_provider *self, dur_start_request *starts, size_t count, dur_error *err);
int dur__pg_enqueue_start(dur_provider *self, const dur_message_row *item, dur_exists_policy policy, uint64_t delay_ms,
                          bool *existed, dur_error *err);
int dur__pg_enqueue_existing(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err);
int dur__pg_ack_orchestration_item(dur_provider *self, dur_turn_commit *turn, dur_error *err);
int dur__pg_commit_turns(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err);
int dur__pg_fetch_orchestration_item(dur_provider *self, dur_arena *arena, const dur_fetch *how,
                                     dur_orchestration_item *out, dur_error *err);
int dur__pg_fetch_turns(dur_provider *self, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out,
                        size_t *count, dur_error *err);
int dur__pg_abandon_orchestration_item(dur_provider *self, const char *lock_token, uint64_t delay_ms,
                                       bool ignore_attempt, dur_error *err);
int dur__pg_renew_orchestration_item_lock(dur_provider *self, const char *lock_token, uint64_t extend_ms,
                                          dur_error *err);
int dur__pg_enqueue_for_worker(dur_provider *self, const dur_message_row *item, dur_error *err);
int dur__pg_fetch_work_item(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                            dur_error *err);
int dur__pg_ack_work_item(dur_provider *self, const char *lock_token, const dur_message_row *completion,
                          dur_error *err);
int dur__pg_renew_work_item_lock(dur_provider *self, const char *lock_token, uint64_t extend_ms, dur_error *err);
int dur__pg_abandon_work_item(dur_provider *self, const char *lock_token, uint64_t delay_ms, bool ignore_attempt,
                              dur_error *err);
int dur__pg_fetch_works(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                        size_t *count, dur_error *err);
int dur__pg_ack_works(dur_provider *self, dur_work_ack *acks, size_t count, dur_error *err);
int dur__pg_check_works(dur_provider *self, const dur_worker_claim *claims, size_t count, uint64_t extend_ms,
                        bool *lost, dur_error *err);
int dur__pg_return_works(dur_provider *self, const dur_worker_claim *claims, size_t count, dur_error *err);
int dur__pg_alone_ended(dur_provider *self, const char *lock_token, dur_error *err);
int dur__pg_dead_letter_work(dur_provider *self, const char *lock_token, const char *reason, dur_error *err);
int dur__pg_renew_session_lock(dur_provider *self, const char *const *owners, size_t owner_count, uint64_t extend_ms,
                               uint64_t idle_ms, uint64_t *renewed, dur_error *err);
int dur__pg_cleanup_orphaned_sessions(dur_provider *self, uint64_t idle_ms, uint64_t *removed, dur_error *err);
const char *dur__pg_births(dur_provider *self);
int dur__pg_lane_open(dur_provider *self, const dur_lane_options *options, dur_lane **out, dur_error *err);
int dur__pg_lane_round(dur_lane *lane, dur_arena *arena, dur_round *round, dur_error *err);
int dur__pg_lane_rest(dur_lane *lane, dur_rest *out, dur_error *err);
int dur__pg_lane_rise(dur_lane *lane, const dur_rest *slept, bool *news, dur_error *err);
void dur__pg_lane_close(dur_lane *lane);
int dur__pg_lane_messages(dur_lane *lane, dur_arena *arena, const char *instance, const char *lock_token,
                          const char *queue, uint64_t after_due_ms, uint64_t after_id, size_t max,
                          dur_fetched_message **out, size_t *count, dur_error *err);
int dur__pg_lane_history(dur_lane *lane, dur_arena *arena, const char *instance, const char *lock_token,
                         uint64_t execution_id, dur_orchestration_item *out, dur_error *err);
int dur__pg_watch_open(dur_provider *self, const char *instance, dur_watch **out, dur_error *err);
int dur__pg_watch_wait(dur_watch *watch, uint64_t timeout_ms, dur_error *err);
void dur__pg_watch_wake(dur_watch *watch);
void dur__pg_watch_close(dur_watch *watch);
int dur__pg_owner_register(dur_provider *self, const dur_owner_options *options, dur_error *err);
int dur__pg_owner_beat(dur_provider *self, const char *owner, dur_owner_report *out, dur_error *err);
int dur__pg_owner_release(dur_provider *self, const char *owner, dur_error *err);
int dur__pg_owner_holdings(dur_provider *self, dur_arena *arena, const char *owner, dur_holding **out, size_t *count,
                           dur_error *err);
int dur__pg_read(dur_provider *self, dur_arena *arena, const char *instance, uint64_t execution_id, dur_event_row **out,
                 size_t *count, dur_error *err);
int dur__pg_append(dur_provider *self, const char *instance, uint64_t execution_id, const dur_event_row *events,
                   size_t count, dur_error *err);
int dur__pg_get_custom_status(dur_provider *self, dur_arena *arena, const char *instance, uint64_t last_seen,
                              bool *changed, const char **status, uint64_t *version, dur_error *err);
int dur__pg_get_kv_value(dur_provider *self, dur_arena *arena, const char *instance, const char *key,
                         const char **value, dur_error *err);
int dur__pg_get_kv_all_values(dur_provider *self, dur_arena *arena, const char *instance, dur_key_value **out,
                              size_t *count, dur_error *err);
int dur__pg_get_instance_stats(dur_provider *self, dur_arena *arena, const char *instance, bool *found,
                               dur_instance_stats *out, dur_error *err);
int dur__pg_list_instances(dur_provider *self, dur_arena *arena, const dur_instance_query *query,
                           dur_instance_row **out, size_t *count, dur_error *err);
int dur__pg_get_instance(dur_provider *self, dur_arena *arena, const char *instance, dur_instance_row *out,
                         dur_error *err);
int dur__pg_list_executions(dur_provider *self, dur_arena *arena, const char *instance, dur_execution_row **out,
                            size_t *count, dur_error *err);
int dur__pg_get_system_metrics(dur_provider *self, dur_system_metrics *out, dur_error *err);
int dur__pg_get_queue_depths(dur_provider *self, dur_queue_depths *out, dur_error *err);
int dur__pg_dead_letter_messages(dur_provider *self, const char *instance, const uint64_t *ids, size_t count,
                                 const char *reason, dur_error *err);
int dur__pg_list_dead_letters(dur_provider *self, dur_arena *arena, uint64_t after_id, size_t limit,
                              dur_dead_letter **out, size_t *count, dur_error *err);
int dur__pg_delete_dead_letters(dur_provider *self, const uint64_t *ids, size_t count, dur_error *err);
int dur__pg_set_suspended(dur_provider *self, const char *instance, const char *reason, dur_error *err);
int dur__pg_delete_instances(dur_provider *self, const char *const *ids, const dur_meant *meant, size_t count,
                             bool force, dur_delete_result *out, dur_error *err);
int dur__pg_delete_instances_bulk(dur_provider *self, const dur_bulk_filter *filter, dur_delete_result *out,
                                  dur_error *err);
int dur__pg_prune_executions(dur_provider *self, const char *instance, const dur_prune_options *options,
                             dur_prune_result *out, dur_error *err);
int dur__pg_prune_executions_bulk(dur_provider *self, const dur_bulk_filter *filter, const dur_prune_options *options,
                                  dur_prune_result *out, dur_error *err);
int dur__pg_list_unserved(dur_provider *self, dur_arena *arena, size_t each, dur_unserved **out, size_t *count,
                          dur_error *err);

#endif
