/*
 * mutants_details.c: small mistakes with what is ours, each of which a single validation is there to tell.
 */
#include "mutant.h"

/* ---- turns and rounds ---------------------------------------------------------------------------------------------
 */

static void status_needs_events(broken *self, dur_turn_commit *turn) {
    (void)self;
    if (turn->event_count == 0) turn->metadata.status = DUR_STATUS_NONE;
}

static void new_execution_anywhere(broken *self, dur_turn_commit *turn) {
    (void)self;
    if (turn->execution_id > 1) turn->expected_last = DUR_NOT_COMPARED;
}

static void failure_is_forgotten(broken *self, dur_turn_commit *turn) {
    (void)self;
    bool release = turn->execution_id == 0 && !turn->set_suspended && !turn->take_over && !turn->give_back;
    if (release && turn->seen_id == 0 && turn->seen_now_ms == 0) turn->seen_id = 1;
}

static void failed_turn_locks(broken *self, dur_turn_commit *turn) {
    (void)self;
    for (size_t i = 0; i < turn->worker_item_count && turn->error.code != DUR_OK; i++)
        turn->worker_items[i].locked = turn->worker_items[i].lock_token != NULL;
}

static void holding_counts(broken *self, dur_arena *arena, dur_round *round) {
    (void)self, (void)arena;
    for (size_t i = 0; i < round->held_count; i++)
        round->held[i].message.attempt_count++;
}

static bool is_timer(const dur_held_message *held) {
    static const char kind[] = "{\"TimerFired\"";
    size_t size = sizeof(kind) - 1;
    return held->message.json.size > size && memcmp(held->message.json.data, kind, size) == 0;
}

static void timers_not_held(broken *self, dur_arena *arena, dur_round *round) {
    size_t kept = 0;
    (void)self, (void)arena;
    for (size_t i = 0; i < round->held_count; i++)
        if (!is_timer(&round->held[i])) round->held[kept++] = round->held[i];
    round->held_count = kept;
}

/* ---- arrays -------------------------------------------------------------------------------------------------------
 */

static void one_work_at_a_time(broken *self, dur_work_fetch *how) {
    (void)self;
    if (how->max > 1 && how->owner == NULL) how->max = 1;
}

static void fresh_work_is_any(broken *self, dur_work_fetch *how) {
    (void)self;
    if (how->kind == DUR_FETCH_FRESH) how->kind = DUR_FETCH_ANY;
}

static void history_always(broken *self, dur_fetch *how) {
    (void)self;
    how->without_history = false;
}

static int check_without_renewal(dur_provider *self, const dur_worker_claim *claims, size_t count, uint64_t extend_ms,
                                 bool *lost, dur_error *err) {
    (void)extend_ms;
    return NEXT(self)->check_works(INNER(self), claims, count, 0, lost, err);
}

static void patch_check_without_renewal(dur_provider_methods *table) {
    table->check_works = check_without_renewal;
}

static int looking_renews(dur_provider *self, const dur_worker_claim *claims, size_t count, uint64_t extend_ms,
                          bool *lost, dur_error *err) {
    return NEXT(self)->check_works(INNER(self), claims, count, extend_ms > 0 ? extend_ms : 5000, lost, err);
}

static void patch_looking_renews(dur_provider_methods *table) {
    table->check_works = looking_renews;
}

static int first_returned_only(dur_provider *self, const dur_worker_claim *claims, size_t count, dur_error *err) {
    return NEXT(self)->return_works(INNER(self), claims, count > 1 ? 1 : count, err);
}

static void patch_first_returned_only(dur_provider_methods *table) {
    table->return_works = first_returned_only;
}

/* ---- clients ------------------------------------------------------------------------------------------------------
 */

static int start_without_delay(dur_provider *self, const dur_message_row *item, dur_exists_policy policy,
                               uint64_t delay_ms, bool *existed, dur_error *err) {
    (void)delay_ms;
    return NEXT(self)->enqueue_start(INNER(self), item, policy, 0, existed, err);
}

static void patch_start_without_delay(dur_provider_methods *table) {
    table->enqueue_start = start_without_delay;
}

static int existing_is_an_error(dur_provider *self, const dur_message_row *item, dur_exists_policy policy,
                                uint64_t delay_ms, bool *existed, dur_error *err) {
    if (policy == DUR_EXISTS_RETURN) policy = DUR_EXISTS_FAIL;
    return NEXT(self)->enqueue_start(INNER(self), item, policy, delay_ms, existed, err);
}

static void patch_existing_is_an_error(dur_provider_methods *table) {
    table->enqueue_start = existing_is_an_error;
}

static int nothing_is_replaced(dur_provider *self, const dur_message_row *item, dur_exists_policy policy,
                               uint64_t delay_ms, bool *existed, dur_error *err) {
    if (policy == DUR_EXISTS_REPLACE_FINISHED) policy = DUR_EXISTS_FAIL;
    return NEXT(self)->enqueue_start(INNER(self), item, policy, delay_ms, existed, err);
}

static void patch_nothing_is_replaced(dur_provider_methods *table) {
    table->enqueue_start = nothing_is_replaced;
}

static int message_without_delay(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    (void)delay_ms;
    return NEXT(self)->enqueue_existing(INNER(self), item, 0, err);
}

static void patch_message_without_delay(dur_provider_methods *table) {
    table->enqueue_existing = message_without_delay;
}

static int send_to_the_dead(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    int code = NEXT(self)->enqueue_existing(INNER(self), item, delay_ms, err);
    return code == DUR_ESTATE ? DUR_OK : code;
}

static void patch_send_to_the_dead(dur_provider_methods *table) {
    table->enqueue_existing = send_to_the_dead;
}

/* Message ids are remembered beyond the instance. */
static int ids_outlive(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    char key[256];
    if (item->message_id == NULL) return NEXT(self)->enqueue_existing(INNER(self), item, delay_ms, err);
    snprintf(key, sizeof(key), "%s/%s", item->instance, item->message_id);
    if (broken_noted(BROKEN(self), key) != NULL)
        return dur_error_set(err, DUR_EDUPLICATE, false, "enqueue_existing", "seen before");
    int code = NEXT(self)->enqueue_existing(INNER(self), item, delay_ms, err);
    if (code == DUR_OK) broken_note(BROKEN(self), key, "accepted");
    return code;
}

static void patch_ids_outlive(dur_provider_methods *table) {
    table->enqueue_existing = ids_outlive;
}

static int past_is_tomorrow(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    dur_message_row other = *item;
    if (item->due_ms > 0 && item->due_ms < 1000) other.due_ms = NEXT(self)->now_ms(INNER(self)) + DUR_DAYS(1);
    return NEXT(self)->enqueue_for_orchestrator(INNER(self), &other, delay_ms, err);
}

static void patch_past_is_tomorrow(dur_provider_methods *table) {
    table->enqueue_for_orchestrator = past_is_tomorrow;
}

/* ---- admin --------------------------------------------------------------------------------------------------------
 */

static int letters_thrown_away(dur_provider *self, const char *instance, const uint64_t *ids, size_t count,
                               const char *reason, dur_error *err) {
    (void)self, (void)instance, (void)ids, (void)count, (void)reason, (void)err;
    return DUR_OK;
}

static void patch_letters_thrown_away(dur_provider_methods *table) {
    table->dead_letter_messages = letters_thrown_away;
}

static int work_thrown_away(dur_provider *self, const char *token, const char *reason, dur_error *err) {
    (void)reason;
    return NEXT(self)->ack_work_item(INNER(self), token, NULL, err);
}

static void patch_work_thrown_away(dur_provider_methods *table) {
    table->dead_letter_work = work_thrown_away;
}

static int queues_not_counted(dur_provider *self, dur_arena *arena, const char *instance, bool *found,
                              dur_instance_stats *out, dur_error *err) {
    int code = NEXT(self)->get_instance_stats(INNER(self), arena, instance, found, out, err);
    out->queue_pending_count = 0;
    return code;
}

static void patch_queues_not_counted(dur_provider_methods *table) {
    table->get_instance_stats = queues_not_counted;
}

static int never_updated(dur_provider *self, dur_arena *arena, const char *instance, dur_instance_row *out,
                         dur_error *err) {
    int code = NEXT(self)->get_instance(INNER(self), arena, instance, out, err);
    if (code == DUR_OK) out->updated_at_ms = out->created_at_ms;
    return code;
}

static void patch_never_updated(dur_provider_methods *table) {
    table->get_instance = never_updated;
}

static int owner_hidden(dur_provider *self, dur_arena *arena, const char *instance, dur_instance_row *out,
                        dur_error *err) {
    int code = NEXT(self)->get_instance(INNER(self), arena, instance, out, err);
    if (code == DUR_OK) out->owner = NULL;
    return code;
}

static void patch_owner_hidden(dur_provider_methods *table) {
    table->get_instance = owner_hidden;
}

static int start_survives(dur_provider *self, const char *const *ids, const dur_meant *meant, size_t count, bool force,
                          dur_delete_result *out, dur_error *err) {
    dur_arena *arena = dur_arena_new();
    dur_instance_row row;
    bool waits =
        count == 1 && NEXT(self)->get_instance(INNER(self), arena, ids[0], &row, NULL) == DUR_OK && row.start_pending;
    dur_arena_free(arena);
    if (waits && force) return DUR_OK;
    return NEXT(self)->delete_instances(INNER(self), ids, meant, count, force, out, err);
}

static void patch_start_survives(dur_provider_methods *table) {
    table->delete_instances = start_survives;
}

const mutant mutants_details[] = {
    { .name = "status_needs_events", .mistake = "a status without events is not kept", .turn = status_needs_events },
    { .name = "new_execution_anywhere",
      .mistake = "the position in a new execution is not compared",
      .turn = new_execution_anywhere },
    { .name = "failure_is_forgotten",
      .mistake = "a release that says nothing clears the attempts",
      .turn = failure_is_forgotten },
    { .name = "failed_turn_locks",
      .mistake = "a turn that failed says its work is locked",
      .turned = failed_turn_locks },
    { .name = "holding_counts", .mistake = "being handed to a held lease counts an attempt", .round = holding_counts },
    { .name = "timers_not_held", .mistake = "a held lease is not handed its timers", .round = timers_not_held },
    { .name = "one_work_at_a_time", .mistake = "fetching many activities gives one", .work = one_work_at_a_time },
    { .name = "fresh_work_is_any", .mistake = "suspect activities are given out as fresh", .work = fresh_work_is_any },
    { .name = "history_always", .mistake = "history comes though nobody wants it", .fetch = history_always },
    { .name = "check_without_renewal",
      .mistake = "looking at running work does not renew it",
      .patch = patch_check_without_renewal },
    { .name = "looking_renews", .mistake = "a mere look at work is activity", .patch = patch_looking_renews },
    { .name = "first_returned_only",
      .mistake = "of several activities given back only the first is",
      .patch = patch_first_returned_only },
    { .name = "start_without_delay", .mistake = "a delayed start is due at once", .patch = patch_start_without_delay },
    { .name = "existing_is_an_error",
      .mistake = "a start that wants what exists fails",
      .patch = patch_existing_is_an_error },
    { .name = "nothing_is_replaced",
      .mistake = "a start does not replace what has ended",
      .patch = patch_nothing_is_replaced },
    { .name = "message_without_delay",
      .mistake = "a delayed message is visible at once",
      .patch = patch_message_without_delay },
    { .name = "send_to_the_dead",
      .mistake = "a queue message to an ended instance is taken and lost",
      .patch = patch_send_to_the_dead },
    { .name = "ids_outlive", .mistake = "message ids are remembered beyond the instance", .patch = patch_ids_outlive },
    { .name = "past_is_tomorrow", .mistake = "a due time long ago never comes", .patch = patch_past_is_tomorrow },
    { .name = "letters_thrown_away", .mistake = "dead letters are not kept", .patch = patch_letters_thrown_away },
    { .name = "work_thrown_away", .mistake = "unreadable work is deleted", .patch = patch_work_thrown_away },
    { .name = "queues_not_counted",
      .mistake = "waiting queue messages are not counted",
      .patch = patch_queues_not_counted },
    { .name = "never_updated", .mistake = "the time of the last change is not kept", .patch = patch_never_updated },
    { .name = "owner_hidden", .mistake = "nobody sees who leases an instance", .patch = patch_owner_hidden },
    { .name = "start_survives",
      .mistake = "deleting leaves a start that waits, and says that it is gone",
      .patch = patch_start_survives },
    { .name = NULL },
};
