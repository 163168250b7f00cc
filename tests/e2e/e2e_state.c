/*
 * e2e_state.c: custom status, keys and values, administration through the client.
 */
#include "harness.h"

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome statuses(dur_ctx *ctx, const char *input) {
    if (strcmp(input, "2") == 0) return dur_completef(ctx, "kept %s", dur_status_get(ctx));
    dur_status_set(ctx, "first");
    dur_await(dur_activity(ctx, "Echo", ""));
    dur_status_clear(ctx);
    bool cleared = dur_status_get(ctx) == NULL;
    dur_await(dur_activity(ctx, "Echo", ""));
    dur_status_setf(ctx, "third %d", cleared);
    return dur_continue_as_new(ctx, "2");
}

static dur_outcome keys(dur_ctx *ctx, const char *input) {
    if (strcmp(input, "2") == 0) {
        size_t pruned = dur_kv_prune(ctx, dur_now_ms(ctx) + 1000);
        return dur_completef(ctx, "pruned %zu left %zu", pruned, dur_kv_count(ctx));
    }
    dur_kv_set(ctx, "b", "1");
    dur_kv_set(ctx, "a", "");
    dur_kv_set(ctx, "c", "3");
    dur_await(dur_activity(ctx, "Echo", ""));
    dur_kv_clear(ctx, "c");
    dur_kv_clear(ctx, "never was");
    const char *gone = dur_kv_get(ctx, "c");
    dur_await(dur_pulse(ctx, "Go"));
    if (gone != NULL || strcmp(dur_kv_key(ctx, 0), "a") != 0 || dur_kv_count(ctx) != 2) return dur_fail(ctx, "keys");
    return dur_continue_as_new(ctx, "2");
}

static dur_outcome counter(dur_ctx *ctx, const char *input) {
    unsigned long limit = strtoul(input, NULL, 10);
    for (;;) {
        const char *text = dur_kv_get(ctx, "n");
        unsigned long n = text == NULL ? 0 : strtoul(text, NULL, 10);
        if (n == limit) return dur_completef(ctx, "%lu", n);
        dur_kv_set(ctx, "n", dur_format(ctx, "%lu", n + 1));
        dur_await(dur_activity(ctx, "Echo", ""));
    }
}

static dur_outcome too_much(dur_ctx *ctx, const char *input) {
    size_t size = 300 * 1024;
    char *text = dur_alloc(ctx, size + 1);
    memset(text, 'x', size);
    if (strcmp(input, "status") == 0) dur_status_set(ctx, text);
    if (strcmp(input, "value") == 0) dur_kv_set(ctx, "k", text);
    if (strcmp(input, "keys") == 0)
        for (int i = 0; i < 200; i++)
            dur_kv_set(ctx, dur_format(ctx, "%d", i), "");
    return dur_complete(ctx, "too much was accepted");
}

static dur_outcome remote(dur_ctx *ctx, const char *input) {
    dur_future *value = dur_kv_remote(ctx, input, "n");
    dur_future *none = dur_kv_remote(ctx, input, "no such key");
    dur_join(value, none);
    return dur_completef(ctx, "%s %d", dur_await(value), dur_is_none(none));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ORCHESTRATION("Statuses", "1.0.0", statuses),
    DUR_ORCHESTRATION("Keys", "1.0.0", keys),
    DUR_ORCHESTRATION("Counter", "1.0.0", counter),
    DUR_ORCHESTRATION("TooMuch", "1.0.0", too_much),
    DUR_ORCHESTRATION("Remote", "1.0.0", remote),
    DUR_HANDLERS_END,
};

static void custom_status_is_kept_over_continue_as_new(void **state) {
    world *w = *state;
    dur_instance_info *info = NULL;
    RUN(w, handlers, .double_run = true);
    start(w, "Statuses", "1", "s");
    expect(w, "s", "kept third 1");
    OK(w, dur_client_wait_status(&info, w->client, "s", 2, patience_ms(), &w->err));
    assert_string_equal(info->custom_status, "third 1");
    assert_int_equal(info->custom_status_version, 3);
    dur_instance_info_free(info);
}

static void keys_and_values(void **state) {
    world *w = *state;
    char *value = NULL;
    dur_kv_list *list = NULL;
    RUN(w, handlers, .double_run = true);
    start(w, "Keys", "1", "k");
    OK(w, dur_client_kv_wait(&value, w->client, "k", "b", patience_ms(), &w->err));
    assert_string_equal(value, "1");
    dur_free(value);
    until_history(w, "k", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_kv_get(&value, w->client, "k", "c", &w->err));
    assert_null(value);
    OK(w, dur_client_kv_all(&list, w->client, "k", &w->err));
    assert_int_equal(list->count, 2);
    assert_string_equal(list->keys[0], "a");
    assert_string_equal(list->values[0], "");
    dur_kv_list_free(list);
    OK(w, dur_client_pulse(w->client, &w->err, "k", "Go", ""));
    expect(w, "k", "pruned 2 left 0");
    assert_int_equal(dur_client_kv_wait(&value, w->client, "k", "b", 20, &w->err), DUR_ESTATE); /* it has ended */
}

static void read_modify_write(void **state) {
    world *w = *state;
    char *value = NULL;
    RUN(w, handlers, .evict_every_turn = true);
    start(w, "Counter", "25", "c");
    expect(w, "c", "25");
    OK(w, dur_client_kv_get(&value, w->client, "c", "n", &w->err));
    assert_string_equal(value, "25");
    dur_free(value);
    start(w, "Remote", "c", "r");
    expect(w, "r", "25 1");
}

static void limits_fail_with_a_reason(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "TooMuch", "status", "s");
    start(w, "TooMuch", "value", "v");
    start(w, "TooMuch", "keys", "k");
    expect_failure(w, "s", DUR_EFAILED, "status");
    expect_failure(w, "v", DUR_EFAILED, "value");
    expect_failure(w, "k", DUR_EFAILED, "keys");
}

static void listing_counting_deleting(void **state) {
    world *w = *state;
    dur_instance_list *list = NULL;
    dur_store_counts counts = { .size = sizeof(counts) };
    dur_deleted deleted = { .size = sizeof(deleted) };
    dur_instance_info *info = NULL;
    RUN(w, handlers);
    for (int i = 0; i < 25; i++) {
        char id[16];
        snprintf(id, sizeof(id), "c-%02d", i);
        start(w, "Counter", "1", id);
        expect(w, id, "1");
    }
    start(w, "Keys", "1", "k");
    until_history(w, "k", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_list(&list, w->client, DUR_LIST(.status = DUR_INSTANCE_COMPLETED, .limit = 20), &w->err));
    assert_int_equal(list->count, 20);
    assert_string_equal(list->items[19]->instance, "c-19");
    assert_non_null(list->next);
    dur_instance_list *rest = NULL;
    OK(w, dur_client_list(&rest, w->client,
                          DUR_LIST(.status = DUR_INSTANCE_COMPLETED, .limit = 20, .after = list->next), &w->err));
    assert_int_equal(rest->count, 5);
    assert_null(rest->next);
    dur_instance_list_free(rest);
    dur_instance_list_free(list);
    OK(w, dur_client_counts(&counts, w->client, &w->err));
    assert_int_equal(counts.total_instances, 26);
    assert_int_equal(counts.running, 1);
    assert_int_equal(counts.completed, 25);
    assert_int_equal(dur_client_delete(&deleted, w->client, "k", false, &w->err), DUR_ERUNNING);
    OK(w, dur_client_delete(&deleted, w->client, "k", true, &w->err));
    assert_int_equal(deleted.instances, 1);
    assert_int_equal(dur_client_info(&info, w->client, "k", &w->err), DUR_ENOTFOUND);
    OK(w, dur_client_delete_bulk(&deleted, w->client, DUR_BULK(.limit = 10), &w->err));
    assert_int_equal(deleted.instances, 10);
    OK(w, dur_client_delete_bulk(&deleted, w->client, DUR_BULK(), &w->err));
    assert_int_equal(deleted.instances, 15);
    OK(w, dur_client_counts(&counts, w->client, &w->err));
    assert_int_equal(counts.total_instances, 0);
}

static void a_deleted_instance_can_be_started_again(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Keys", "1", "k");
    until_history(w, "k", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_delete(NULL, w->client, "k", true, &w->err));
    start(w, "Counter", "2", "k");
    expect(w, "k", "2");
}

static void statistics(void **state) {
    world *w = *state;
    dur_client_stats stats = { .size = sizeof(stats) };
    RUN(w, handlers);
    start(w, "Counter", "2", "c");
    expect(w, "c", "2");
    OK(w, dur_client_stats_get(&stats, w->client, "c", &w->err));
    assert_int_equal(stats.history_event_count, history_count(w, "c", 0, "\"event_id\""));
    assert_true(stats.history_size_bytes > 0);
    assert_int_equal(stats.kv_user_key_count, 1);
    assert_int_equal(stats.kv_total_value_bytes, 1);
    assert_int_equal(dur_client_stats_get(&stats, w->client, "nobody", &w->err), DUR_ENOTFOUND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(custom_status_is_kept_over_continue_as_new),
        TEST(keys_and_values),
        TEST(read_modify_write),
        TEST(limits_fail_with_a_reason),
        TEST(listing_counting_deleting),
        TEST(a_deleted_instance_can_be_started_again),
        TEST(statistics),
    };
    return cmocka_run_group_tests_name("e2e_state", tests, NULL, NULL);
}
