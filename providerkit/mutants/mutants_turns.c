/*
 * mutants_turns.c: mistakes with locks, acks, history and versions.
 */
#include "mutant.h"

static void fine(dur_turn_commit *turn) {
    dur_error_clear(&turn->error);
    turn->fault = DUR_TURN_FINE;
}

/* ---- locks --------------------------------------------------------------------------------------------------------
 */

static void ignore_token(broken *self, dur_turn_commit *turn) {
    (void)self;
    if (turn->error.code == DUR_ELEASE) fine(turn);
}

static void never_expire(broken *self, dur_fetch *how) {
    (void)self;
    how->lock_ms *= 1000;
}

static void expire_early(broken *self, dur_fetch *how) {
    (void)self;
    how->lock_ms /= 4;
}

static void release_on_failure(broken *self, dur_turn_commit *turn) {
    if (turn->error.code == DUR_ECONFLICT && turn->lock_token != NULL)
        self->inner->methods->abandon_orchestration_item(self->inner, turn->lock_token, 0, false, NULL);
}

/* One token per instance for ever: "T-" and its id; the store's own is kept beside. */
static void constant_token(broken *self, dur_arena *arena, dur_orchestration_item *item) {
    const char *name = dur_arena_format(arena, "T-%s", item->instance);
    broken_note(self, name, item->lock_token);
    item->lock_token = name;
}

static void resolve_token(broken *self, dur_turn_commit *turn) {
    const char *real = turn->lock_token != NULL ? broken_noted(self, turn->lock_token) : NULL;
    if (real != NULL) turn->lock_token = real;
}

static int constant_abandon(dur_provider *self, const char *token, uint64_t delay_ms, bool ignore, dur_error *err) {
    const char *real = broken_noted(BROKEN(self), token);
    return NEXT(self)->abandon_orchestration_item(INNER(self), real != NULL ? real : token, delay_ms, ignore, err);
}

static int constant_renew(dur_provider *self, const char *token, uint64_t extend_ms, dur_error *err) {
    const char *real = broken_noted(BROKEN(self), token);
    return NEXT(self)->renew_orchestration_item_lock(INNER(self), real != NULL ? real : token, extend_ms, err);
}

static void patch_constant_token(dur_provider_methods *table) {
    table->abandon_orchestration_item = constant_abandon;
    table->renew_orchestration_item_lock = constant_renew;
}

/* Messages for a locked instance fall on the floor. */
static void note_locked(broken *self, dur_arena *arena, dur_orchestration_item *item) {
    broken_note(self, dur_arena_format(arena, "by %s", item->lock_token), item->instance);
    broken_note(self, item->instance, "locked");
}

static void note_unlocked(broken *self, dur_turn_commit *turn) {
    char key[128];
    snprintf(key, sizeof(key), "by %s", turn->lock_token != NULL ? turn->lock_token : "");
    const char *instance = broken_noted(self, key);
    if (turn->error.code == DUR_OK && instance != NULL) broken_note(self, instance, NULL);
}

static int drop_when_locked(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    if (broken_noted(BROKEN(self), item->instance) != NULL && item->kind != DUR_WORK_START_ORCHESTRATION) return DUR_OK;
    return NEXT(self)->enqueue_for_orchestrator(INNER(self), item, delay_ms, err);
}

static void patch_drop_when_locked(dur_provider_methods *table) {
    table->enqueue_for_orchestrator = drop_when_locked;
}

/* A token that expired is as good as ever while nobody else came. */
static void note_token(broken *self, dur_arena *arena, dur_orchestration_item *item) {
    broken_note(self, dur_arena_format(arena, "by %s", item->lock_token), item->instance);
    broken_note(self, dur_arena_format(arena, "of %s", item->instance), item->lock_token);
}

static void accept_expired(broken *self, dur_turn_commit *turn) {
    char key[1200];
    snprintf(key, sizeof(key), "by %s", turn->lock_token != NULL ? turn->lock_token : "");
    const char *instance = broken_noted(self, key);
    if (turn->error.code == DUR_OK) broken_note(self, key, NULL);
    if (turn->error.code != DUR_ELEASE || instance == NULL) return;
    snprintf(key, sizeof(key), "of %s", instance);
    const char *last = broken_noted(self, key);
    if (last == NULL || strcmp(last, turn->lock_token) != 0) return;
    turn->instance = instance;
    if (broken_force(self, turn) == DUR_OK) fine(turn);
}

static int forget_deleted(dur_provider *self, const char *const *ids, const dur_meant *meant, size_t count, bool force,
                          dur_delete_result *out, dur_error *err) {
    char key[1200];
    for (size_t i = 0; i < count; i++) {
        snprintf(key, sizeof(key), "of %s", ids[i]);
        broken_note(BROKEN(self), key, NULL);
    }
    return NEXT(self)->delete_instances(INNER(self), ids, meant, count, force, out, err);
}

static void patch_forget_deleted(dur_provider_methods *table) {
    table->delete_instances = forget_deleted;
}

/* An ack brings a deleted instance back. */
static void resurrect(broken *self, dur_turn_commit *turn) {
    char key[1200];
    dur_instance_row row;
    dur_arena *arena = dur_arena_new();
    snprintf(key, sizeof(key), "by %s", turn->lock_token != NULL ? turn->lock_token : "");
    const char *instance = broken_noted(self, key);
    if (turn->error.code == DUR_ELEASE && instance != NULL && broken_noted(self, "deleted") != NULL &&
        self->inner->methods->get_instance(self->inner, arena, instance, &row, NULL) == DUR_ENOTFOUND) {
        turn->instance = instance;
        if (broken_force(self, turn) == DUR_OK) fine(turn);
    }
    dur_arena_free(arena);
}

static int note_deleted(dur_provider *self, const char *const *ids, const dur_meant *meant, size_t count, bool force,
                        dur_delete_result *out, dur_error *err) {
    int code = NEXT(self)->delete_instances(INNER(self), ids, meant, count, force, out, err);
    if (code == DUR_OK) broken_note(BROKEN(self), "deleted", "yes");
    return code;
}

static void patch_note_deleted(dur_provider_methods *table) {
    table->delete_instances = note_deleted;
}

/* ---- acks ---------------------------------------------------------------------------------------------------------
 */

static void insert_work_first(broken *self, dur_turn_commit *turn) {
    for (size_t i = 0; i < turn->worker_item_count; i++)
        self->inner->methods->enqueue_for_worker(self->inner, &turn->worker_items[i].message, NULL);
    turn->worker_item_count = 0;
}

static void swallow_duplicates(broken *self, dur_turn_commit *turn) {
    const char *instance = turn->instance != NULL ? turn->instance : broken_noted(self, turn->lock_token);
    dur_event_row *rows = NULL, *kept = broken_alloc(self, (turn->event_count + 1) * sizeof(*kept));
    size_t count = 0, left = 0;
    dur_arena *arena = dur_arena_new();
    if (instance != NULL)
        self->inner->methods->read(self->inner, arena, instance, turn->execution_id, &rows, &count, NULL);
    for (size_t i = 0; i < turn->event_count; i++) {
        bool known = false;
        for (size_t k = 0; k < count; k++)
            known |= rows[k].event_id == turn->events[i].event_id;
        if (!known) kept[left++] = turn->events[i];
    }
    turn->events = kept;
    turn->event_count = left;
    dur_arena_free(arena);
}

static void note_instance(broken *self, dur_arena *arena, dur_orchestration_item *item) {
    (void)arena;
    broken_note(self, item->lock_token, item->instance);
}

static void lose_last_work(broken *self, dur_turn_commit *turn) {
    (void)self;
    if (turn->worker_item_count > 2) turn->worker_item_count--;
}

static void cancel_first(broken *self, dur_turn_commit *turn) { /* what is inserted by the same turn stays */
    dur_activity_ref *kept = broken_alloc(self, (turn->cancelled_count + 1) * sizeof(*kept));
    size_t count = 0;
    for (size_t i = 0; i < turn->cancelled_count; i++) {
        bool inserted = false;
        for (size_t k = 0; k < turn->worker_item_count; k++)
            inserted |= turn->worker_items[k].message.activity_id == turn->cancelled[i].activity_id;
        if (!inserted) kept[count++] = turn->cancelled[i];
    }
    turn->cancelled = kept;
    turn->cancelled_count = count;
}

static void cancel_all_executions(broken *self, dur_turn_commit *turn) {
    dur_activity_ref *more = broken_alloc(self, (turn->cancelled_count * 2 + 1) * sizeof(*more));
    for (size_t i = 0; i < turn->cancelled_count; i++) {
        more[2 * i] = more[2 * i + 1] = turn->cancelled[i];
        more[2 * i + 1].execution_id++;
        more[2 * i + 1].row_id = 0;
    }
    turn->cancelled = more;
    turn->cancelled_count *= 2;
}

static void drop_tags(broken *self, dur_turn_commit *turn) {
    (void)self;
    for (size_t i = 0; i < turn->worker_item_count; i++)
        turn->worker_items[i].message.tag = NULL;
}

/* ---- versions -----------------------------------------------------------------------------------------------------
 */

static int compare(dur_semver a, dur_semver b) {
    if (a.major != b.major) return a.major < b.major ? -1 : 1;
    if (a.minor != b.minor) return a.minor < b.minor ? -1 : 1;
    return a.patch == b.patch ? 0 : a.patch < b.patch ? -1 : 1;
}

/* Lock first, look at the version afterwards: what does not fit stays locked. */
static int filter_late(dur_provider *self, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out,
                       dur_error *err) {
    static const dur_version_range everything = { { 0, 0, 0 }, { 9999, 9999, 9999 } };
    static const dur_capability_filter all = { &everything, 1 };
    dur_fetch bare = *how;
    const dur_version_range *range = how->filter != NULL && how->filter->count > 0 ? how->filter->ranges : NULL;
    if (range != NULL) bare.filter = &all;
    int code = NEXT(self)->fetch_orchestration_item(INNER(self), arena, &bare, out, err);
    if (code != DUR_OK || out->instance == NULL || range == NULL) return code;
    const char *pin = broken_noted(BROKEN(self), out->instance);
    dur_semver version = { 0, 0, 0 };
    if (pin == NULL || sscanf(pin, "%u.%u.%u", &version.major, &version.minor, &version.patch) != 3) return code;
    if (compare(version, range->min) < 0 || compare(version, range->max) > 0) out->instance = NULL;
    return code;
}

static void note_pin(broken *self, dur_turn_commit *turn) {
    char pin[64];
    const dur_semver *version = &turn->metadata.pinned_version;
    snprintf(pin, sizeof(pin), "%u.%u.%u", version->major, version->minor, version->patch);
    if (turn->metadata.has_pinned_version && turn->event_count > 0 && turn->orchestrator_item_count > 0)
        broken_note(self, turn->orchestrator_items[0].instance, pin);
}

static void patch_filter_late(dur_provider_methods *table) {
    table->fetch_orchestration_item = filter_late;
}

static void last_range(broken *self, dur_fetch *how) {
    if (how->filter == NULL || how->filter->count < 2) return;
    dur_capability_filter *other = broken_alloc(self, sizeof(*other));
    other->ranges = &how->filter->ranges[how->filter->count - 1];
    other->count = 1;
    how->filter = other;
}

static void exclusive_end(broken *self, dur_fetch *how) {
    if (how->filter == NULL || how->filter->count == 0) return;
    dur_capability_filter *other = broken_alloc(self, sizeof(*other));
    dur_version_range *range = broken_alloc(self, sizeof(*range));
    *range = how->filter->ranges[0];
    if (range->max.patch > 0) range->max.patch--;
    *other = (dur_capability_filter){ range, 1 };
    how->filter = other;
}

static void packed_pin(broken *self, dur_turn_commit *turn) {
    dur_semver *pin = &turn->metadata.pinned_version;
    (void)self;
    uint64_t packed = pin->major * 1000000ull + pin->minor * 1000ull + pin->patch;
    *pin = (dur_semver){ (uint32_t)(packed / 1000000), (uint32_t)(packed / 1000 % 1000), (uint32_t)(packed % 1000) };
}

static void first_pin_only(broken *self, dur_turn_commit *turn) {
    (void)self;
    if (turn->execution_id > 1) turn->metadata.pinned_version = (dur_semver){ 1, 0, 0 };
}

static void pin_without_range(broken *self, dur_fetch *how) {
    (void)self;
    if (how->filter != NULL && how->filter->count == 0) how->filter = NULL;
}

/* ---- executions ---------------------------------------------------------------------------------------------------
 */

static int read_first(dur_provider *self, dur_arena *arena, const char *instance, uint64_t execution_id,
                      dur_event_row **out, size_t *count, dur_error *err) {
    return NEXT(self)->read(INNER(self), arena, instance, execution_id == 0 ? 1 : execution_id, out, count, err);
}

static void patch_read_first(dur_provider_methods *table) {
    table->read = read_first;
}

static int read_readable(dur_provider *self, dur_arena *arena, const char *instance, uint64_t execution_id,
                         dur_event_row **out, size_t *count, dur_error *err) {
    int code = NEXT(self)->read(INNER(self), arena, instance, execution_id, out, count, err);
    size_t kept = 0;
    for (size_t i = 0; code == DUR_OK && i < *count; i++) {
        dur_event event;
        if (dur_event_from_json(&event, arena, (*out)[i].json, NULL) == DUR_OK) (*out)[kept++] = (*out)[i];
    }
    if (code == DUR_OK) *count = kept;
    return code;
}

static void patch_read_readable(dur_provider_methods *table) {
    table->read = read_readable;
}

static int append_swallows(dur_provider *self, const char *instance, uint64_t execution_id, const dur_event_row *events,
                           size_t count, dur_error *err) {
    int code = NEXT(self)->append(INNER(self), instance, execution_id, events, count, err);
    return code == DUR_ECONFLICT ? DUR_OK : code;
}

static void patch_append_swallows(dur_provider_methods *table) {
    table->append = append_swallows;
}

static void version_forgotten(broken *self, dur_arena *arena, dur_orchestration_item *item) {
    (void)self, (void)arena;
    if (item->last_event_id > 0) item->version = NULL;
}

const mutant mutants_turns[] = {
    { .name = "ack_ignores_token", .mistake = "an ack with a bad token succeeds", .turned = ignore_token },
    { .name = "lock_ignores_expiry", .mistake = "a lock on an instance never ends", .fetch = never_expire },
    { .name = "lock_ends_early",
      .mistake = "a lock on an instance ends after a quarter of its time",
      .fetch = expire_early },
    { .name = "failed_ack_releases", .mistake = "an ack that fails gives the lock away", .turned = release_on_failure },
    { .name = "token_reused",
      .mistake = "every fetch of an instance gives the same token",
      .fetched = constant_token,
      .turn = resolve_token,
      .patch = patch_constant_token },
    { .name = "locked_means_deaf",
      .mistake = "messages for a locked instance are dropped",
      .fetched = note_locked,
      .turned = note_unlocked,
      .patch = patch_drop_when_locked },
    { .name = "expired_token_accepted",
      .mistake = "an ack after expiry succeeds while nobody else came",
      .fetched = note_token,
      .turned = accept_expired,
      .patch = patch_forget_deleted },
    { .name = "ack_resurrects",
      .mistake = "the ack of a turn in progress brings a deleted instance back",
      .fetched = note_token,
      .turned = resurrect,
      .patch = patch_note_deleted },
    { .name = "ack_not_atomic",
      .mistake = "worker items are inserted although the ack fails",
      .turn = insert_work_first },
    { .name = "duplicate_event_swallowed",
      .mistake = "events that exist are skipped silently",
      .turn = swallow_duplicates,
      .fetched = note_instance },
    { .name = "ack_loses_work", .mistake = "the last of several worker items is lost", .turn = lose_last_work },
    { .name = "cancel_before_insert",
      .mistake = "cancelled activities are deleted before new ones are inserted",
      .turn = cancel_first },
    { .name = "cancel_by_id_alone",
      .mistake = "cancelling hits the same id of another execution",
      .turn = cancel_all_executions },
    { .name = "tag_dropped_on_ack", .mistake = "the ack path does not write the tag", .turn = drop_tags },
    { .name = "filter_after_lock",
      .mistake = "an instance is locked before its version is looked at",
      .turn = note_pin,
      .patch = patch_filter_late },
    { .name = "last_range_counts",
      .mistake = "the last version range counts instead of the first",
      .fetch = last_range },
    { .name = "range_end_exclusive",
      .mistake = "the upper end of a version range is left out",
      .fetch = exclusive_end },
    { .name = "version_packed",
      .mistake = "versions are packed into one number, a thousand per part",
      .turn = packed_pin },
    { .name = "first_pin_for_ever", .mistake = "a later execution keeps the pin of the first", .turn = first_pin_only },
    { .name = "no_range_means_all",
      .mistake = "a filter without ranges passes everything",
      .fetch = pin_without_range },
    { .name = "read_first_execution",
      .mistake = "read gives the first execution, not the latest",
      .patch = patch_read_first },
    { .name = "read_skips_unreadable",
      .mistake = "read leaves out what it cannot decode",
      .patch = patch_read_readable },
    { .name = "version_forgotten",
      .mistake = "a fetch does not know the version that a turn wrote",
      .fetched = version_forgotten },
    { .name = "append_swallows", .mistake = "append of an existing event is no error", .patch = patch_append_swallows },
    { .name = NULL },
};
