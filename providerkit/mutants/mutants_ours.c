/*
 * mutants_ours.c: mistakes with what the reference does not have: optional fields, arrays, rounds, owners, clients.
 */
#include "mutant.h"

/* ---- turns --------------------------------------------------------------------------------------------------------
 */

static void position_ignored(broken *self, dur_turn_commit *turn) {
    (void)self;
    turn->expected_last = DUR_NOT_COMPARED;
}

static void orphans_are_born(broken *self, dur_turn_commit *turn) {
    (void)self;
    turn->needs_parent = false;
}

static void any_parent_will_do(broken *self, dur_turn_commit *turn) {
    (void)self;
    turn->metadata.parent_birth = 0;
}

static void births_forgotten(broken *self, dur_turn_commit *turn) {
    (void)self;
    turn->metadata.birth = 0;
}

static void releases_consume_nothing(broken *self, dur_turn_commit *turn) {
    (void)self;
    if (turn->execution_id == 0) turn->consumed_count = 0;
}

static void consumed_by_token(broken *self, dur_turn_commit *turn) {
    (void)self;
    turn->consume_listed = false;
    turn->consumed_count = 0;
}

static void work_not_finished(broken *self, dur_turn_commit *turn) {
    (void)self;
    turn->worker_consumed_count = 0;
}

static void timers_not_dropped(broken *self, dur_turn_commit *turn) {
    (void)self;
    turn->timers_dropped_count = 0;
}

static void lease_not_kept(broken *self, dur_turn_commit *turn) {
    (void)self;
    turn->keep_lease = false;
}

static void seen_ignored(broken *self, dur_turn_commit *turn) {
    (void)self;
    turn->seen_id = turn->seen_now_ms = 0;
}

static void seen_includes_later(broken *self, dur_turn_commit *turn) {
    (void)self;
    if (turn->seen_id != 0) {
        turn->seen_id += 1000;
        turn->seen_now_ms += 3600000;
    }
}

static void given_back_counts(broken *self, dur_turn_commit *turn) {
    (void)self;
    turn->give_back = false;
}

static void work_outlives_terminate(broken *self, dur_turn_commit *turn) {
    (void)self;
    turn->remove_work = false;
}

static void letters_go_with_the_end(broken *self, dur_turn_commit *turn) {
    const dur_provider_methods *inner = self->inner->methods;
    dur_arena *arena = dur_arena_new();
    dur_orchestration_item item = { .instance = NULL };
    bool ends = turn->take_over && turn->remove_work && turn->execution_id != 0 && turn->fault == DUR_TURN_FINE;
    if (ends) inner->fetch_orchestration_item(self->inner, arena, &(dur_fetch){ .lock_ms = 60000 }, &item, NULL);
    if (item.instance != NULL && strcmp(item.instance, turn->instance) == 0) {
        dur_turn_commit taken = { .lock_token = item.lock_token,
                                  .execution_id = item.execution_id,
                                  .expected_last = DUR_NOT_COMPARED };
        inner->ack_orchestration_item(self->inner, &taken, NULL);
    } else if (item.instance != NULL) {
        inner->abandon_orchestration_item(self->inner, item.lock_token, 0, true, NULL);
    }
    dur_arena_free(arena);
}

static void orphans_leave_their_messages(broken *self, dur_turn_commit *turn) {
    (void)self;
    if (turn->execution_id == 0) turn->remove_work = false;
}

static void suspension_ignored(broken *self, dur_turn_commit *turn) {
    (void)self;
    if (turn->suspended != NULL) turn->set_suspended = false;
}

static void reason_alone_suspends(broken *self, dur_turn_commit *turn) {
    (void)self;
    if (turn->suspended != NULL) turn->set_suspended = true;
}

static void release_without_delay(broken *self, dur_turn_commit *turn) {
    (void)self;
    turn->delay_ms = 0;
}

static int all_or_none(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err) {
    int code = NEXT(self)->commit_turns(INNER(self), turns, count, err);
    for (size_t i = 0; code == DUR_OK && count > 1 && i < count; i++)
        if (turns[i].error.code != DUR_OK)
            return dur_error_set(err, turns[i].error.code, false, "commit", "one failed");
    return code;
}

static void patch_all_or_none(dur_provider_methods *table) {
    table->commit_turns = all_or_none;
}

/* ---- local work ---------------------------------------------------------------------------------------------------
 */

static void open_is_forgotten(broken *self, dur_turn_commit *turn) {
    (void)self;
    turn->open = 0;
}

static void recovered_counts_nothing(broken *self, dur_turn_commit *turn) {
    (void)self;
    for (size_t i = 0; i < turn->worker_item_count; i++)
        turn->worker_items[i].recovered = false;
}

static void local_only_in_words(broken *self, dur_turn_commit *turn) {
    (void)self;
    for (size_t i = 0; i < turn->worker_item_count; i++)
        turn->worker_items[i].may_be_local = false;
}

static void local_says_so(broken *self, dur_turn_commit *turn) {
    (void)self;
    for (size_t i = 0; i < turn->worker_item_count && turn->keep_lease; i++) {
        turn->worker_items[i].local = turn->worker_items[i].locked;
        turn->worker_items[i].locked = false;
    }
}

static void local_without_a_token(broken *self, dur_turn_commit *turn) {
    (void)self;
    for (size_t i = 0; i < turn->worker_item_count; i++)
        if (turn->worker_items[i].may_be_local && turn->worker_items[i].lock_token == NULL)
            turn->worker_items[i].lock_token = "nobody-asked";
}

/* ---- eager locks --------------------------------------------------------------------------------------------------
 */

static void eager_without_session(broken *self, dur_turn_commit *turn) {
    (void)self;
    for (size_t i = 0; i < turn->worker_item_count; i++)
        if (turn->worker_items[i].lock_token != NULL) turn->worker_items[i].message.session_id = NULL;
}

static void eager_without_tag(broken *self, dur_turn_commit *turn) {
    (void)self;
    for (size_t i = 0; i < turn->worker_item_count; i++)
        if (turn->worker_items[i].lock_token != NULL) turn->worker_items[i].message.tag = NULL;
}

static void eager_is_a_word(broken *self, dur_turn_commit *turn) {
    (void)self;
    for (size_t i = 0; i < turn->worker_item_count; i++)
        if (turn->worker_items[i].lock_token == NULL && i > 0) {
            turn->worker_items[i].lock_token = "nobody-asked";
            turn->worker_items[i].message.session_id = NULL;
        }
}

/* ---- arrays -------------------------------------------------------------------------------------------------------
 */

static void one_at_a_time(broken *self, dur_fetch *how) {
    (void)self;
    if (how->max > 1 && how->owner == NULL) how->max = 1;
}

static void fresh_is_any(broken *self, dur_fetch *how) {
    (void)self;
    if (how->kind == DUR_FETCH_FRESH) how->kind = DUR_FETCH_ANY;
}

static void all_of_each_queue(broken *self, dur_fetch *how) {
    (void)self;
    how->queue_messages_max = 0;
}

static int first_ack_only(dur_provider *self, dur_work_ack *acks, size_t count, dur_error *err) {
    int code = NEXT(self)->ack_works(INNER(self), acks, count > 1 ? 1 : count, err);
    for (size_t i = 1; i < count; i++)
        dur_error_clear(&acks[i].error);
    return code;
}

static void patch_first_ack_only(dur_provider_methods *table) {
    table->ack_works = first_ack_only;
}

static int nothing_is_lost(dur_provider *self, const dur_worker_claim *claims, size_t count, uint64_t extend_ms,
                           bool *lost, dur_error *err) {
    int code = NEXT(self)->check_works(INNER(self), claims, count, extend_ms, lost, err);
    for (size_t i = 0; i < count; i++)
        lost[i] = false;
    return code;
}

static void patch_nothing_is_lost(dur_provider_methods *table) {
    table->check_works = nothing_is_lost;
}

static int returned_work_counts(dur_provider *self, const dur_worker_claim *claims, size_t count, dur_error *err) {
    int code = DUR_OK;
    for (size_t i = 0; i < count && code == DUR_OK; i++)
        code = NEXT(self)->abandon_work_item(INNER(self), claims[i].lock_token, 0, false, err);
    return code;
}

static void patch_returned_work_counts(dur_provider_methods *table) {
    table->return_works = returned_work_counts;
}

/* ---- rounds -------------------------------------------------------------------------------------------------------
 */

/* What was handed out is handed out again in the next round. */
static void held_twice(broken *self, dur_arena *arena, dur_round *round) {
    dur_held_message *before = self->number != 0 ? (void *)(uintptr_t)self->number : NULL;
    if (round->held_count > 0) {
        const dur_held_message *from = &round->held[0];
        dur_held_message *copy = broken_alloc(self, sizeof(*copy));
        *copy = *from;
        pthread_mutex_lock(&self->mutex);
        copy->instance = dur_arena_strdup(self->scratch, from->instance);
        copy->lock_token = dur_arena_strdup(self->scratch, from->lock_token);
        copy->message.json.data = dur_arena_memdup(self->scratch, from->message.json.data, from->message.json.size);
        copy->message.queue = dur_arena_strdup(self->scratch, from->message.queue);
        pthread_mutex_unlock(&self->mutex);
        self->number = (uint64_t)(uintptr_t)copy;
    } else if (before != NULL) {
        round->held = dur_arena_alloc(arena, sizeof(*round->held));
        round->held[0] = *before;
        round->held_count = 1;
        self->number = 0;
    }
}

/* A turn that consumes all that was handed out gives no place in a queue back. */
static void places_taken(broken *self, dur_turn_commit *turn) {
    if (turn->lease_kept && !turn->consume_listed) broken_note(self, turn->instance, "full");
}

static void places_not_freed(broken *self, dur_arena *arena, dur_round *round) {
    size_t kept = 0;
    (void)arena;
    for (size_t i = 0; i < round->held_count; i++)
        if (round->held[i].message.queue == NULL || broken_noted(self, round->held[i].instance) == NULL)
            round->held[kept++] = round->held[i];
    round->held_count = kept;
}

static void losses_untold(broken *self, dur_arena *arena, dur_round *round) {
    (void)self, (void)arena;
    round->lost_count = 0;
}

static void never_due(broken *self, dur_arena *arena, dur_round *round) {
    (void)self, (void)arena;
    round->next_due_ms = DUR_NEVER;
}

/* ---- owners -------------------------------------------------------------------------------------------------------
 */

static void lease_is_timed(broken *self, dur_fetch *how) {
    (void)self;
    how->owner = NULL;
}

static void nobody_is_suspect(broken *self, dur_leased_work *work) {
    (void)self;
    work->crashes = work->crashes_alone = 0;
}

static int told_nothing(dur_provider *self, const char *lock_token, dur_error *err) {
    (void)self, (void)lock_token, (void)err;
    return DUR_OK;
}

static void patch_never_blamed(dur_provider_methods *table) {
    table->blame = told_nothing;
}

static void patch_always_alone(dur_provider_methods *table) {
    table->alone_ended = told_nothing;
}

static void suspects_in_company(broken *self, dur_work_fetch *how) {
    (void)self;
    if (how->kind == DUR_FETCH_SUSPECT) how->kind = DUR_FETCH_ANY;
}

static int register_for_ever(dur_provider *self, const dur_owner_options *options, dur_error *err) {
    dur_owner_options other = *options;
    other.timeout_ms = 1000000000;
    return NEXT(self)->owner_register(INNER(self), &other, err);
}

static void patch_register_for_ever(dur_provider_methods *table) {
    table->owner_register = register_for_ever;
}

static int release_does_nothing(dur_provider *self, const char *owner, dur_error *err) {
    (void)self, (void)owner, (void)err;
    return DUR_OK;
}

static void patch_release_does_nothing(dur_provider_methods *table) {
    table->owner_release = release_does_nothing;
}

static int holds_no_work(dur_provider *self, dur_arena *arena, const char *owner, dur_holding **out, size_t *count,
                         dur_error *err) {
    int code = NEXT(self)->owner_holdings(INNER(self), arena, owner, out, count, err);
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++)
        if ((*out)[i].kind != DUR_HOLDS_WORK) (*out)[kept++] = (*out)[i];
    *count = kept;
    return code;
}

static void patch_holds_no_work(dur_provider_methods *table) {
    table->owner_holdings = holds_no_work;
}

static int still_alive(dur_provider *self, const char *owner, dur_owner_report *out, dur_error *err) {
    int code = NEXT(self)->owner_beat(INNER(self), owner, out, err);
    out->still_ours = true;
    return code;
}

static void patch_still_alive(dur_provider_methods *table) {
    table->owner_beat = still_alive;
}

/* ---- clients ------------------------------------------------------------------------------------------------------
 */

static int start_anyway(dur_provider *self, const dur_message_row *item, dur_exists_policy policy, uint64_t delay_ms,
                        bool *existed, dur_error *err) {
    (void)policy;
    *existed = false;
    return NEXT(self)->enqueue_for_orchestrator(INNER(self), item, delay_ms, err);
}

static void patch_start_anyway(dur_provider_methods *table) {
    table->enqueue_start = start_anyway;
}

static int start_forgotten(dur_provider *self, const dur_message_row *item, dur_exists_policy policy, uint64_t delay_ms,
                           bool *existed, dur_error *err) {
    if (policy != DUR_EXISTS_FAIL || delay_ms > 0)
        return NEXT(self)->enqueue_start(INNER(self), item, policy, delay_ms, existed, err);
    *existed = false;
    return DUR_OK;
}
static void patch_start_forgotten(dur_provider_methods *table) {
    table->enqueue_start = start_forgotten;
}

static int ids_forgotten(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    dur_message_row other = *item;
    other.message_id = NULL;
    return NEXT(self)->enqueue_existing(INNER(self), &other, delay_ms, err);
}

static void patch_ids_forgotten(dur_provider_methods *table) {
    table->enqueue_existing = ids_forgotten;
}

static int send_to_nobody(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    int code = NEXT(self)->enqueue_existing(INNER(self), item, delay_ms, err);
    return code == DUR_ENOTFOUND ? NEXT(self)->enqueue_for_orchestrator(INNER(self), item, delay_ms, err) : code;
}

static void patch_send_to_nobody(dur_provider_methods *table) {
    table->enqueue_existing = send_to_nobody;
}

static int suspend_a_little(dur_provider *self, const char *instance, const char *reason, dur_error *err) {
    int code = NEXT(self)->set_suspended(INNER(self), instance, reason, err);
    return code == DUR_ENOTFOUND ? DUR_OK : code;
}

static void patch_suspend_a_little(dur_provider_methods *table) {
    table->set_suspended = suspend_a_little;
}

static void any_handler(broken *self, dur_fetch *how) {
    (void)self;
    how->handlers = NULL;
}

static void any_activity(broken *self, dur_work_fetch *how) {
    (void)self;
    how->handlers = NULL;
}

static void leased_or_not(broken *self, dur_turn_commit *turn) {
    (void)self;
    turn->if_unleased = turn->if_uncancelled = false;
}

const mutant mutants_ours[] = {
    { .name = "position_not_compared", .mistake = "a turn is committed at any position", .turn = position_ignored },
    { .name = "any_parent_will_do", .mistake = "a parent is known by its id alone", .turn = any_parent_will_do },
    { .name = "births_forgotten", .mistake = "an instance's birth is not kept", .turn = births_forgotten },
    { .name = "releases_consume_nothing",
      .mistake = "a release leaves what it lists",
      .turn = releases_consume_nothing },
    { .name = "orphans_are_born", .mistake = "a child of nobody is committed", .turn = orphans_are_born },
    { .name = "messages_consumed_by_token",
      .mistake = "a turn deletes messages that it did not list",
      .turn = consumed_by_token },
    { .name = "work_not_finished", .mistake = "worker rows that a turn finishes stay", .turn = work_not_finished },
    { .name = "timers_not_dropped", .mistake = "dropped timers stay in the queue", .turn = timers_not_dropped },
    { .name = "lease_not_kept", .mistake = "a lease that was to be kept is given up", .turn = lease_not_kept },
    { .name = "seen_messages_count",
      .mistake = "messages that were seen bring the instance back",
      .turn = seen_ignored },
    { .name = "unseen_messages_forgotten",
      .mistake = "messages that came later count as seen",
      .turn = seen_includes_later },
    { .name = "given_back_counts",
      .mistake = "an acquisition that was given back is counted",
      .turn = given_back_counts },
    { .name = "work_outlives_terminate",
      .mistake = "terminating leaves messages and work",
      .turn = work_outlives_terminate },
    { .name = "terminate_takes_queue_messages",
      .mistake = "queue messages that were accepted go with an instance that is terminated",
      .turned = letters_go_with_the_end },
    { .name = "orphans_leave_their_messages",
      .mistake = "what was sent to a child that is never started is left for whoever has its id next",
      .turn = orphans_leave_their_messages },
    { .name = "suspension_ignored", .mistake = "a turn cannot suspend its instance", .turn = suspension_ignored },
    { .name = "release_without_delay", .mistake = "a released instance does not wait", .turn = release_without_delay },
    { .name = "one_fails_all",
      .mistake = "one failed turn of an array is everybody's error",
      .patch = patch_all_or_none },
    { .name = "local_open_forgotten",
      .mistake = "nobody looks for the work that a dead owner had without rows",
      .turn = open_is_forgotten },
    { .name = "local_recovered_uncounted",
      .mistake = "work that was lost with its lease begins with no attempt",
      .turn = recovered_counts_nothing },
    { .name = "local_and_a_row",
      .mistake = "work is said to be local and has a row",
      .turn = local_only_in_words,
      .turned = local_says_so },
    { .name = "local_without_asking",
      .mistake = "work that is for anybody stays local",
      .turn = local_without_a_token },
    { .name = "eager_ignores_session", .mistake = "an eager lock forgets the session", .turn = eager_without_session },
    { .name = "eager_ignores_tag", .mistake = "an eagerly locked row loses its tag", .turn = eager_without_tag },
    { .name = "eager_without_asking", .mistake = "rows are locked that nobody asked for", .turn = eager_is_a_word },
    { .name = "one_turn_at_a_time", .mistake = "fetching many gives one", .fetch = one_at_a_time },
    { .name = "fresh_is_any", .mistake = "suspects are given out as fresh", .fetch = fresh_is_any },
    { .name = "all_of_each_queue", .mistake = "queue messages are not limited", .fetch = all_of_each_queue },
    { .name = "first_ack_only", .mistake = "of several acks only the first is done", .patch = patch_first_ack_only },
    { .name = "nothing_is_lost", .mistake = "lost worker rows are not reported", .patch = patch_nothing_is_lost },
    { .name = "returned_work_counts",
      .mistake = "work given back unstarted counts an attempt",
      .patch = patch_returned_work_counts },
    { .name = "held_twice", .mistake = "messages of a held lease are handed out twice", .round = held_twice },
    { .name = "places_not_freed",
      .mistake = "a turn that consumes all that was handed out makes no room in its queues",
      .turned = places_taken,
      .round = places_not_freed },
    { .name = "losses_untold", .mistake = "lost leases are not reported", .round = losses_untold },
    { .name = "never_due", .mistake = "the next due time is not told", .round = never_due },
    { .name = "lease_is_timed", .mistake = "a lease ends by time although its owner lives", .fetch = lease_is_timed },
    { .name = "nobody_is_suspect",
      .mistake = "crashes of a dead owner's work are not counted",
      .worked = nobody_is_suspect },
    { .name = "never_blamed", .mistake = "what is given up is to blame for nothing", .patch = patch_never_blamed },
    { .name = "always_alone", .mistake = "what runs alone does so until it ends", .patch = patch_always_alone },
    { .name = "suspects_in_company", .mistake = "crashes alone are not counted", .work = suspects_in_company },
    { .name = "owners_never_die", .mistake = "a silent owner keeps its leases", .patch = patch_register_for_ever },
    { .name = "release_does_nothing",
      .mistake = "an owner that ends keeps its leases",
      .patch = patch_release_does_nothing },
    { .name = "holds_no_work", .mistake = "work that an owner has is not told", .patch = patch_holds_no_work },
    { .name = "dead_owner_untold", .mistake = "an owner taken for dead is not told", .patch = patch_still_alive },
    { .name = "start_anyway", .mistake = "an existing instance is started again", .patch = patch_start_anyway },
    { .name = "start_forgotten",
      .mistake = "a start that waits for a lane is answered when none comes, and not written",
      .patch = patch_start_forgotten },
    { .name = "message_ids_forgotten",
      .mistake = "the same message id is accepted twice",
      .patch = patch_ids_forgotten },
    { .name = "send_to_nobody",
      .mistake = "a message to an unknown instance is accepted",
      .patch = patch_send_to_nobody },
    { .name = "suspend_nobody", .mistake = "suspending an unknown instance succeeds", .patch = patch_suspend_a_little },
    { .name = "any_handler", .mistake = "instances are fetched whatever handler they need", .fetch = any_handler },
    { .name = "any_activity", .mistake = "work is fetched whatever its name", .work = any_activity },
    { .name = "reason_alone_suspends",
      .mistake = "a reason suspends without being asked to",
      .turn = reason_alone_suspends },
    { .name = "takes_leased", .mistake = "if_unleased takes over what is leased", .turn = leased_or_not },
    { .name = NULL },
};
