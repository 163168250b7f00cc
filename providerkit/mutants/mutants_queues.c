/*
 * mutants_queues.c: mistakes with messages, work, attempts, sessions and tags.
 */
#include "mutant.h"

#include <time.h>

/* ---- messages -----------------------------------------------------------------------------------------------------
 */

static int create_on_enqueue(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    if (item->kind == DUR_WORK_START_ORCHESTRATION) {
        dur_turn_commit row = { .instance = item->instance,
                                .execution_id = 1,
                                .expected_last = DUR_NOT_COMPARED,
                                .consume_listed = true,
                                .metadata = { .orchestration_name = "TestOrch", .orchestration_version = "1.0.0" } };
        broken_force(BROKEN(self), &row);
    }
    return NEXT(self)->enqueue_for_orchestrator(INNER(self), item, delay_ms, err);
}

static void patch_create_on_enqueue(dur_provider_methods *table) {
    table->enqueue_for_orchestrator = create_on_enqueue;
}

static int timers_at_once(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    dur_message_row now = *item;
    now.due_ms = 0;
    return NEXT(self)->enqueue_for_orchestrator(INNER(self), &now, delay_ms, err);
}

static void patch_timers_at_once(dur_provider_methods *table) {
    table->enqueue_for_orchestrator = timers_at_once;
}

static int delay_ignored(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    (void)delay_ms;
    return NEXT(self)->enqueue_for_orchestrator(INNER(self), item, 0, err);
}

static void patch_delay_ignored(dur_provider_methods *table) {
    table->enqueue_for_orchestrator = delay_ignored;
}

static int by_id(const void *a, const void *b) {
    const dur_fetched_message *left = a, *right = b;
    return left->id < right->id ? -1 : left->id > right->id;
}

static void order_by_id(broken *self, dur_arena *arena, dur_orchestration_item *item) {
    dur_fetched_message *sorted = dur_arena_alloc(arena, (item->message_count + 1) * sizeof(*sorted));
    (void)self;
    if (item->message_count > 0) memcpy(sorted, item->messages, item->message_count * sizeof(*sorted));
    qsort(sorted, item->message_count, sizeof(*sorted), by_id);
    item->messages = sorted;
}

static void least_attempts(broken *self, dur_arena *arena, dur_orchestration_item *item) {
    (void)self, (void)arena;
    for (size_t i = 0; i < item->message_count; i++)
        if (item->messages[i].attempt_count < item->attempt_count)
            item->attempt_count = item->messages[i].attempt_count;
}

static int attempts_lost(dur_provider *self, const char *token, uint64_t delay_ms, bool ignore, dur_error *err) {
    (void)ignore;
    return NEXT(self)->abandon_orchestration_item(INNER(self), token, delay_ms, true, err);
}

static void patch_attempts_lost(dur_provider_methods *table) {
    table->abandon_orchestration_item = attempts_lost;
}

static int abandon_at_once(dur_provider *self, const char *token, uint64_t delay_ms, bool ignore, dur_error *err) {
    (void)delay_ms;
    return NEXT(self)->abandon_orchestration_item(INNER(self), token, 0, ignore, err);
}

static void patch_abandon_at_once(dur_provider_methods *table) {
    table->abandon_orchestration_item = abandon_at_once;
}

/* ---- work ---------------------------------------------------------------------------------------------------------
 */

static int second_first(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                        dur_error *err) {
    dur_leased_work first = { .json = { NULL, 0 } };
    int code = NEXT(self)->fetch_work_item(INNER(self), arena, how, &first, err);
    if (code == DUR_OK && first.json.data != NULL) {
        code = NEXT(self)->fetch_work_item(INNER(self), arena, how, out, err);
        if (code == DUR_OK && out->json.data != NULL)
            return NEXT(self)->abandon_work_item(INNER(self), first.lock_token, 0, true, err);
    }
    *out = first;
    return code;
}

static void patch_second_first(dur_provider_methods *table) {
    table->fetch_work_item = second_first;
}

static int ack_whatever(dur_provider *self, const char *token, const dur_message_row *completion, dur_error *err) {
    int code = NEXT(self)->ack_work_item(INNER(self), token, completion, err);
    if (code == DUR_ELEASE && completion != NULL)
        code = NEXT(self)->enqueue_for_orchestrator(INNER(self), completion, 0, err);
    return code == DUR_ELEASE ? DUR_OK : code;
}

static void patch_ack_whatever(dur_provider_methods *table) {
    table->ack_work_item = ack_whatever;
}

static int ack_keeps_row(dur_provider *self, const char *token, const dur_message_row *completion, dur_error *err) {
    if (completion == NULL) return NEXT(self)->renew_work_item_lock(INNER(self), token, 10, err);
    return NEXT(self)->ack_work_item(INNER(self), token, completion, err);
}

static void patch_ack_keeps_row(dur_provider_methods *table) {
    table->ack_work_item = ack_keeps_row;
}

static int ack_rewrites(dur_provider *self, const char *token, const dur_message_row *completion, dur_error *err) {
    if (completion == NULL) return NEXT(self)->ack_work_item(INNER(self), token, completion, err);
    dur_message_row other = *completion;
    char *text = broken_alloc(BROKEN(self), completion->json.size + 2);
    memcpy(text, completion->json.data, completion->json.size);
    text[completion->json.size] = ' ';
    other.json = (dur_text){ text, completion->json.size + 1 };
    return NEXT(self)->ack_work_item(INNER(self), token, &other, err);
}

static void patch_ack_rewrites(dur_provider_methods *table) {
    table->ack_work_item = ack_rewrites;
}

static int renew_a_little(dur_provider *self, const char *token, uint64_t extend_ms, dur_error *err) {
    return NEXT(self)->renew_work_item_lock(INNER(self), token, extend_ms / 10, err);
}

static void patch_renew_a_little(dur_provider_methods *table) {
    table->renew_work_item_lock = renew_a_little;
}

static int renew_anything(dur_provider *self, const char *token, uint64_t extend_ms, dur_error *err) {
    int code = NEXT(self)->renew_work_item_lock(INNER(self), token, extend_ms, err);
    return code == DUR_ELEASE ? DUR_OK : code;
}

static void patch_renew_anything(dur_provider_methods *table) {
    table->renew_work_item_lock = renew_anything;
}

static int return_at_once(dur_provider *self, const char *token, uint64_t delay_ms, bool ignore, dur_error *err) {
    (void)delay_ms;
    return NEXT(self)->abandon_work_item(INNER(self), token, 0, ignore, err);
}

static void patch_return_at_once(dur_provider_methods *table) {
    table->abandon_work_item = return_at_once;
}

/* While something waits for its time, nothing else is given out. */
static int note_delay(dur_provider *self, const char *token, uint64_t delay_ms, bool ignore, dur_error *err) {
    if (delay_ms > 0) BROKEN(self)->number = NEXT(self)->now_ms(INNER(self)) + delay_ms;
    return NEXT(self)->abandon_work_item(INNER(self), token, delay_ms, ignore, err);
}

static int head_blocks(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                       dur_error *err) {
    if (NEXT(self)->now_ms(INNER(self)) < BROKEN(self)->number) return DUR_OK;
    return NEXT(self)->fetch_work_item(INNER(self), arena, how, out, err);
}

static void patch_head_blocks(dur_provider_methods *table) {
    table->abandon_work_item = note_delay;
    table->fetch_work_item = head_blocks;
}

static void attempts_shared(broken *self, dur_leased_work *work) {
    if (work->attempt_count > self->number) self->number = work->attempt_count;
    work->attempt_count = (uint32_t)self->number;
}

static int wait_too_long(dur_provider *self, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out,
                         dur_error *err) {
    int code = NEXT(self)->fetch_orchestration_item(INNER(self), arena, how, out, err);
    uint64_t ms = code == DUR_OK && out->instance == NULL ? how->poll_ms * 2 : 0;
    struct timespec pause = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000L };
    nanosleep(&pause, NULL);
    return code;
}

static void patch_wait_too_long(dur_provider_methods *table) {
    table->fetch_orchestration_item = wait_too_long;
}

/* ---- sessions and tags --------------------------------------------------------------------------------------------
 */

static void one_owner(broken *self, dur_work_fetch *how) {
    (void)self;
    if (how->session_owner != NULL) how->session_owner = "everybody";
}

static void sessions_for_all(broken *self, dur_work_fetch *how) {
    (void)self;
    if (how->session_owner == NULL && how->tags.mode == DUR_TAGS_DEFAULT_ONLY) {
        how->session_owner = "nobody";
        how->session_lock_ms = how->lock_ms;
    }
}

static int renew_idle(dur_provider *self, const char *const *owners, size_t count, uint64_t extend_ms, uint64_t idle_ms,
                      uint64_t *renewed, dur_error *err) {
    return NEXT(self)->renew_session_lock(INNER(self), owners, count, extend_ms, idle_ms * 1000, renewed, err);
}

static void patch_renew_idle(dur_provider_methods *table) {
    table->renew_session_lock = renew_idle;
}

static int renew_first_owner(dur_provider *self, const char *const *owners, size_t count, uint64_t extend_ms,
                             uint64_t idle_ms, uint64_t *renewed, dur_error *err) {
    return NEXT(self)->renew_session_lock(INNER(self), owners, count > 1 ? 1 : count, extend_ms, idle_ms, renewed, err);
}

static void patch_renew_first_owner(dur_provider_methods *table) {
    table->renew_session_lock = renew_first_owner;
}

static int never_clean(dur_provider *self, uint64_t idle_ms, uint64_t *removed, dur_error *err) {
    (void)self, (void)idle_ms, (void)err;
    *removed = 0;
    return DUR_OK;
}

static void patch_never_clean(dur_provider_methods *table) {
    table->cleanup_orphaned_sessions = never_clean;
}

static void default_left_out(broken *self, dur_work_fetch *how) {
    (void)self;
    if (how->tags.mode == DUR_TAGS_AND_DEFAULT) how->tags.mode = DUR_TAGS_ONLY;
}

static void first_tag_only(broken *self, dur_work_fetch *how) {
    (void)self;
    if (how->tags.tag_count > 1) how->tags.tag_count = 1;
}

static int none_is_default(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                           dur_error *err) {
    dur_work_fetch other = *how;
    if (other.tags.mode == DUR_TAGS_ANY) other.tags.mode = DUR_TAGS_DEFAULT_ONLY;
    return NEXT(self)->fetch_work_item(INNER(self), arena, &other, out, err);
}

static void patch_none_is_default(dur_provider_methods *table) {
    table->fetch_work_item = none_is_default;
}

const mutant mutants_queues[] = {
    { .name = "enqueue_creates_instance",
      .mistake = "enqueueing a start writes the instance row",
      .patch = patch_create_on_enqueue },
    { .name = "timers_fire_at_once", .mistake = "a timer is visible before its time", .patch = patch_timers_at_once },
    { .name = "enqueue_ignores_delay",
      .mistake = "a delayed message is visible at once",
      .patch = patch_delay_ignored },
    { .name = "messages_by_id", .mistake = "messages are ordered by id, not by due time", .fetched = order_by_id },
    { .name = "least_attempts_of_batch",
      .mistake = "a batch has the least attempt count of its messages",
      .fetched = least_attempts },
    { .name = "attempts_lost_on_abandon", .mistake = "abandoning forgets the attempt", .patch = patch_attempts_lost },
    { .name = "abandon_without_delay",
      .mistake = "an abandoned instance does not wait",
      .patch = patch_abandon_at_once },
    { .name = "fifo_broken", .mistake = "the second worker item comes before the first", .patch = patch_second_first },
    { .name = "cancelled_work_acked",
      .mistake = "the ack of a row that is gone succeeds",
      .patch = patch_ack_whatever },
    { .name = "silent_ack_keeps_row",
      .mistake = "an ack without completion leaves the row",
      .patch = patch_ack_keeps_row },
    { .name = "completion_rewritten",
      .mistake = "the text of a completion is not kept verbatim",
      .patch = patch_ack_rewrites },
    { .name = "renewal_too_short", .mistake = "a renewed worker lock ends too early", .patch = patch_renew_a_little },
    { .name = "renewal_of_nothing", .mistake = "renewing a lock that is gone succeeds", .patch = patch_renew_anything },
    { .name = "work_returned_at_once", .mistake = "abandoned work does not wait", .patch = patch_return_at_once },
    { .name = "delayed_head_blocks",
      .mistake = "work that waits hides the work behind it",
      .patch = patch_head_blocks },
    { .name = "attempts_of_all_work",
      .mistake = "attempts are counted for the queue, not for the message",
      .worked = attempts_shared },
    { .name = "poll_too_long", .mistake = "an empty fetch blocks longer than asked", .patch = patch_wait_too_long },
    { .name = "session_claimed_by_all",
      .mistake = "a session is claimed without looking at its owner",
      .work = one_owner },
    { .name = "session_items_for_all",
      .mistake = "a fetch without sessions returns session items",
      .work = sessions_for_all },
    { .name = "idle_sessions_renewed", .mistake = "idle sessions are renewed too", .patch = patch_renew_idle },
    { .name = "one_session_owner_renewed",
      .mistake = "of several owners only the first is renewed",
      .patch = patch_renew_first_owner },
    { .name = "sessions_never_cleaned", .mistake = "orphaned sessions stay for ever", .patch = patch_never_clean },
    { .name = "default_work_left_out", .mistake = "tags-and-default forgets the untagged", .work = default_left_out },
    { .name = "first_tag_only", .mistake = "only the first of several tags is asked for", .work = first_tag_only },
    { .name = "any_tag_is_default", .mistake = "any tag means only the untagged", .patch = patch_none_is_default },
    { .name = NULL },
};
