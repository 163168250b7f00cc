/*
 * mutants_strangers.c: mistakes of a store whose author knows another database well: collations, pages, clocks.  Those
 * that need the inside of a store are texts (tests/mutants/checks.txt).
 */
#include "mutant.h"

#include <strings.h>

static int by_collation(const void *a, const void *b) {
    return strcasecmp(((const dur_instance_row *)a)->instance_id, ((const dur_instance_row *)b)->instance_id);
}

static int list_by_collation(dur_provider *self, dur_arena *arena, const dur_instance_query *query,
                             dur_instance_row **out, size_t *count, dur_error *err) {
    int code = NEXT(self)->list_instances(INNER(self), arena, query, out, count, err);
    if (code == DUR_OK && *count > 1) qsort(*out, *count, sizeof(**out), by_collation);
    return code;
}

static void patch_list_by_collation(dur_provider_methods *table) {
    table->list_instances = list_by_collation;
}

static void note_token(broken *self, dur_leased_work *work) {
    if (work->lock_token != NULL) broken_note(self, work->lock_token, "handed out");
}

static int stale_is_fine(dur_provider *self, const char *lock_token, uint64_t delay_ms, bool ignore_attempt,
                         dur_error *err) {
    int code = NEXT(self)->abandon_work_item(INNER(self), lock_token, delay_ms, ignore_attempt, err);
    return code == DUR_ELEASE && broken_noted(BROKEN(self), lock_token) != NULL ? DUR_OK : code;
}

static void patch_stale_is_fine(dur_provider_methods *table) {
    table->abandon_work_item = stale_is_fine;
}

static int list_of_a_page(dur_provider *self, dur_arena *arena, const dur_instance_query *query, dur_instance_row **out,
                          size_t *count, dur_error *err) {
    dur_instance_query page = *query;
    if (page.limit == 0) page.limit = 1000;
    return NEXT(self)->list_instances(INNER(self), arena, &page, out, count, err);
}

static void patch_list_of_a_page(dur_provider_methods *table) {
    table->list_instances = list_of_a_page;
}

static void arrays_take_any_version(broken *self, dur_fetch *how) {
    (void)self;
    if (how->max > 0) how->filter = NULL;
}

static int renewals_add_up(dur_provider *self, const char *lock_token, uint64_t extend_ms, dur_error *err) {
    return NEXT(self)->renew_orchestration_item_lock(INNER(self), lock_token, extend_ms + extend_ms / 2, err);
}

static void patch_renewals_add_up(dur_provider_methods *table) {
    table->renew_orchestration_item_lock = renewals_add_up;
}

static int values_away(dur_provider *self, dur_arena *arena, const char *instance, const char *key, const char **value,
                       dur_error *err) {
    broken *me = BROKEN(self);
    int code = NEXT(self)->get_kv_value(INNER(self), arena, instance, key, value, err);
    pthread_mutex_lock(&me->mutex);
    if (++me->number > 60 && me->number % 7 == 0) *value = NULL;
    pthread_mutex_unlock(&me->mutex);
    return code;
}

static void patch_values_away(dur_provider_methods *table) {
    table->get_kv_value = values_away;
}

static int always_news(dur_watch *watch, uint64_t timeout_ms, dur_error *err) {
    (void)watch, (void)timeout_ms, (void)err;
    return DUR_OK;
}

static void patch_always_news(dur_provider_methods *table) {
    table->watch_wait = always_news;
}

static int one_time_for_all(dur_provider *self, dur_arena *arena, const char *instance, dur_execution_row **out,
                            size_t *count, dur_error *err) {
    int code = NEXT(self)->list_executions(INNER(self), arena, instance, out, count, err);
    for (size_t i = 0; code == DUR_OK && i < *count; i++)
        if ((*out)[i].status == DUR_STATUS_CONTINUED_AS_NEW) (*out)[i].completed_at_ms = (*out)[i].started_at_ms;
    return code;
}

static void patch_one_time_for_all(dur_provider_methods *table) {
    table->list_executions = one_time_for_all;
}

static void never_more(broken *self, dur_arena *arena, dur_round *round) {
    (void)self, (void)arena;
    round->more = false;
}

static int renewals_of_32_bits(dur_provider *self, const char *lock_token, uint64_t extend_ms, dur_error *err) {
    return NEXT(self)->renew_work_item_lock(INNER(self), lock_token, (uint32_t)extend_ms, err);
}

static void patch_renewals_of_32_bits(dur_provider_methods *table) {
    table->renew_work_item_lock = renewals_of_32_bits;
}

static int three_letters(dur_provider *self, const uint64_t *ids, size_t count, dur_error *err) {
    return NEXT(self)->delete_dead_letters(INNER(self), ids, count < 3 ? count : 3, err);
}

static void patch_three_letters(dur_provider_methods *table) {
    table->delete_dead_letters = three_letters;
}

static int row_from_a_replica(dur_provider *self, dur_arena *arena, const char *instance, dur_instance_row *out,
                              dur_error *err) {
    broken *me = BROKEN(self);
    int code = NEXT(self)->get_instance(INNER(self), arena, instance, out, err);
    pthread_mutex_lock(&me->mutex);
    if (code == DUR_OK && ++me->number > 75 && me->number % 5 == 0) out->current_execution_id++;
    pthread_mutex_unlock(&me->mutex);
    return code;
}

static void patch_row_from_a_replica(dur_provider_methods *table) {
    table->get_instance = row_from_a_replica;
}

const mutant mutants_strangers[] = {
    { .name = "list-by-collation",
      .mistake = "instances are listed in the order of a collation",
      .patch = patch_list_by_collation },
    { .name = "stale-worker-gives-back",
      .mistake = "a worker whose lock is gone may give its row back",
      .worked = note_token,
      .patch = patch_stale_is_fine },
    { .name = "list-of-a-page",
      .mistake = "a list without a limit has a thousand rows",
      .patch = patch_list_of_a_page },
    { .name = "arrays-take-any-version",
      .mistake = "the fetch of arrays does not look at versions",
      .fetch = arrays_take_any_version },
    { .name = "renewals-add-up",
      .mistake = "a renewal is longer than what was asked for",
      .patch = patch_renewals_add_up },
    { .name = "values-away-for-a-moment",
      .mistake = "a value cannot be read for a moment",
      .patch = patch_values_away },
    { .name = "watch-that-never-rests",
      .mistake = "a watch returns at once, whether something changed or not",
      .patch = patch_always_news },
    { .name = "one-time-for-all",
      .mistake = "an execution that continued as new has ended when it began",
      .patch = patch_one_time_for_all },
    { .name = "renewals-of-32-bits",
      .mistake = "the length of a renewal has 32 bits",
      .patch = patch_renewals_of_32_bits },
    { .name = "three-letters-at-a-time",
      .mistake = "a call deletes three dead letters at the most",
      .patch = patch_three_letters },
    { .name = "row-from-a-replica",
      .mistake = "an instance is shown with the number of another execution now and then",
      .patch = patch_row_from_a_replica },
    { .name = "never-more", .mistake = "a round does not say that more waits to be fetched", .round = never_more },
    { .name = NULL },
};
