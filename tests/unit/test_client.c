/*
 * test_client.c: an instance through its life as a client sees it, waiting, and handles.
 *
 * No runtime takes part: turns are committed by hand through the store, so that each state is reached exactly.
 */
#include "base/thread.h"
#include "client_help.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- one instance through its life ---- */

static void an_instance_through_its_life(void **state) {
    fixture *f = *state;
    OK(f, dur_client_start(f->client, &f->err, "Order", "in", .instance = "o", .version = "1.0.0"));
    dur_instance_info *info = info_of(f, "o");
    assert_true(info->size == sizeof(*info) && info->start_pending && info->status == DUR_INSTANCE_RUNNING);
    assert_string_equal(info->name, "Order"); /* from the start that waits */
    assert_string_equal(info->version, "1.0.0");
    assert_true(info->output == NULL && info->parent == NULL && !info->cancelled);
    dur_instance_info_free(info);

    turn t = turn_begin(f);
    turn_add(f, &t, started);
    turn_add(f, &t, (dur_event){ .kind = DUR_EVENT_CUSTOM_STATUS_UPDATED, .status = "half" });
    turn_add(f, &t, (dur_event){ .kind = DUR_EVENT_KEY_VALUE_SET, .key = "b", .value = "2", .last_updated_at_ms = 5 });
    turn_add(f, &t, (dur_event){ .kind = DUR_EVENT_KEY_VALUE_SET, .key = "a", .value = "1", .last_updated_at_ms = 6 });
    turn_end(f, &t, (dur_execution_metadata){ ROW });
    info = info_of(f, "o");
    assert_true(!info->start_pending && info->execution_id == 1 && info->custom_status_version == 1);
    assert_string_equal(info->custom_status, "half");
    assert_true(info->created_at_ms == START_MS && info->updated_at_ms == START_MS);
    dur_instance_info_free(info);

    char *value = NULL;
    dur_kv_list *all = NULL;
    OK(f, dur_client_kv_get(&value, f->client, "o", "a", &f->err));
    assert_string_equal(value, "1");
    dur_free(value);
    OK(f, dur_client_kv_get(&value, f->client, "o", "missing", &f->err));
    assert_null(value);
    OK(f, dur_client_kv_all(&all, f->client, "o", &f->err));
    assert_int_equal(all->count, 2);
    assert_string_equal(all->keys[0], "a");
    assert_string_equal(all->values[1], "2");
    assert_true(all->updated_at_ms[0] == 6 && all->updated_at_ms[1] == 5);
    dur_kv_list_free(all);
    OK(f, dur_client_kv_all(&all, f->client, "nobody", &f->err));
    assert_int_equal(all->count, 0);
    dur_kv_list_free(all);

    complete(f, "o", "the result");
    info = info_of(f, "o");
    assert_int_equal(info->status, DUR_INSTANCE_COMPLETED);
    assert_string_equal(info->output, "the result");
    dur_instance_info_free(info);
    OK(f, dur_client_result(&value, f->client, "o", 0, &f->err));
    assert_string_equal(value, "the result");
    dur_free(value);
    REFUSED(f, DUR_ESTATE, "ended without a value", dur_client_kv_wait(&value, f->client, "o", "c", 1000, &f->err));
    OK(f, dur_client_kv_wait(&value, f->client, "o", "a", 1000, &f->err));
    assert_string_equal(value, "1");
    dur_free(value);
    OK(f, dur_client_cancel(f->client, "o", "late", &f->err));
    OK(f, dur_client_terminate(f->client, "o", "late", &f->err));
    OK(f, dur_client_pulse(f->client, &f->err, "o", "late"));
    REFUSED(f, DUR_ESTATE, "ended", dur_client_send(f->client, &f->err, "o", "q", "late"));
    REFUSED(f, DUR_ESTATE, "ended (Completed)", dur_client_suspend(f->client, "o", NULL, &f->err));
    dur_client_stats stats = { .size = sizeof(stats) };
    OK(f, dur_client_stats_get(&stats, f->client, "o", &f->err));
    assert_true(stats.size == sizeof(stats) && stats.history_event_count == 5 && stats.kv_user_key_count == 2);
}

static void start_policies(void **state) {
    fixture *f = *state;
    run(f, "o");
    REFUSED(f, DUR_EEXISTS, "o", dur_client_start(f->client, &f->err, "Order", "", .instance = "o"));
    OK(f, dur_client_start(f->client, &f->err, "Order", "", .instance = "o", .exists = DUR_START_RETURN_EXISTING));
    REFUSED(f, DUR_EEXISTS, "running",
            dur_client_start(f->client, &f->err, "Order", "", .instance = "o", .exists = DUR_START_REPLACE_FINISHED));
    complete(f, "o", "1");
    REFUSED(f, DUR_EEXISTS, "o", dur_client_start(f->client, &f->err, "Order", "", .instance = "o"));
    OK(f, dur_client_start(f->client, &f->err, "Order", "", .instance = "o", .exists = DUR_START_REPLACE_FINISHED));
    dur_instance_info *info = info_of(f, "o");
    assert_true(info->status == DUR_INSTANCE_RUNNING && info->start_pending);
    dur_instance_info_free(info);
}

static void a_message_id_is_accepted_once(void **state) {
    fixture *f = *state;
    run(f, "o");
    OK(f, dur_client_send(f->client, &f->err, "o", "q", "1", .message_id = "m"));
    dur_error_clear(&f->err);
    OK(f, dur_client_send(f->client, &f->err, "o", "q", "1", .message_id = "m"));
    assert_int_equal(f->err.code, DUR_OK);
    turn t = turn_begin(f);
    assert_int_equal(t.item.message_count, 1);
    assert_non_null(strstr(t.item.messages[0].json.data, "\"message_id\":\"m\""));
}

static void failures_are_told_apart(void **state) {
    fixture *f = *state;
    static const struct {
        dur_failure failure;
        int code;
        const char *text, *category;
        bool cancelled;
    } cases[] = {
        { { .category = DUR_FAILURE_APPLICATION, .message = "no stock" },
          DUR_EFAILED,
          "no stock",
          "application",
          false },
        { { .category = DUR_FAILURE_APPLICATION, .kind = DUR_FAILURE_CANCELLED, .message = "", .reason = "bored" },
          DUR_ECANCELLED,
          "cancelled: bored",
          "application",
          true },
        { { .category = DUR_FAILURE_APPLICATION, .message = "cancelled: says the shop" },
          DUR_EFAILED,
          "cancelled: says the shop",
          "application",
          false },
        { { .category = DUR_FAILURE_APPLICATION, .message = "poison: in the soup" },
          DUR_EFAILED,
          "poison: in the soup",
          "application",
          false },
        { { .category = DUR_FAILURE_CONFIGURATION, .resource = "Order", .message = "moved" },
          DUR_EFAILED,
          "nondeterministic: moved",
          "configuration",
          false },
        { { .category = DUR_FAILURE_INFRASTRUCTURE, .operation = "read", .message = "disk" },
          DUR_EFAILED,
          "infrastructure:read: disk",
          "infrastructure",
          false },
        { { .category = DUR_FAILURE_POISON, .instance = "f", .message = "", .attempt_count = 3, .max_attempts = 2 },
          DUR_EFAILED,
          "poison: orchestration f exceeded 3 attempts (max 2)",
          "poison",
          false },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char id[8];
        char *out = NULL;
        snprintf(id, sizeof(id), "f%zu", i);
        run(f, id);
        fail_with(f, id, &cases[i].failure);
        assert_int_equal(dur_client_result(&out, f->client, id, 0, &f->err), cases[i].code);
        assert_null(out);
        assert_string_equal(f->err.message, cases[i].text);
        dur_instance_info *info = info_of(f, id);
        assert_string_equal(info->output, cases[i].text);
        assert_string_equal(dur_failure_category_name(info->failure_category), cases[i].category);
        assert_true(info->cancelled == cases[i].cancelled);
        dur_instance_info_free(info);
    }
}

/* ---- waiting ---- */

static void time_runs_out(void **state) {
    fixture *f = *state;
    dur_instance_info *info = NULL;
    char *text = NULL;
    run(f, "o");
    for (uint64_t ms = 0; ms <= 20; ms += 20) {
        REFUSED(f, DUR_ETIMEOUT, "\"o\": not yet", dur_client_wait(&info, f->client, "o", ms, &f->err));
        assert_true(f->err.retryable);
        REFUSED(f, DUR_ETIMEOUT, "\"o\": not yet", dur_client_result(&text, f->client, "o", ms, &f->err));
        REFUSED(f, DUR_ETIMEOUT, "\"o\": not yet", dur_client_wait_status(&info, f->client, "o", 0, ms, &f->err));
        REFUSED(f, DUR_ETIMEOUT, "\"o\": not yet", dur_client_kv_wait(&text, f->client, "o", "k", ms, &f->err));
    }
    assert_true(info == NULL && text == NULL);
}

typedef struct waiting {
    fixture *f;
    int code;
    char *text;
    dur_instance_info *info;
    dur_error err;
} waiting;

static void *wait_result(void *arg) {
    waiting *w = arg;
    w->code = dur_client_result(&w->text, w->f->client, "o", UINT64_MAX, &w->err);
    return NULL;
}
static void *wait_status(void *arg) {
    waiting *w = arg;
    w->code = dur_client_wait_status(&w->info, w->f->client, "o", 0, 60000, &w->err);
    return NULL;
}
static void *wait_key(void *arg) {
    waiting *w = arg;
    w->code = dur_client_kv_wait(&w->text, w->f->client, "o", "k", 60000, &w->err);
    return NULL;
}

static void waiters_are_woken(void **state) {
    fixture *f = *state;
    waiting result = { .f = f }, status = { .f = f }, key = { .f = f };
    pthread_t threads[3];
    run(f, "o");
    assert_int_equal(pthread_create(&threads[0], NULL, wait_result, &result), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, wait_status, &status), 0);
    assert_int_equal(pthread_create(&threads[2], NULL, wait_key, &key), 0);
    turn t = wake(f, "o");
    turn_add(f, &t, (dur_event){ .kind = DUR_EVENT_CUSTOM_STATUS_UPDATED, .status = "s" });
    turn_end(f, &t, (dur_execution_metadata){ ROW });
    pthread_join(threads[1], NULL);
    assert_int_equal(status.code, DUR_OK);
    assert_string_equal(status.info->custom_status, "s");
    assert_int_equal(status.info->status, DUR_INSTANCE_RUNNING);
    t = wake(f, "o");
    turn_add(f, &t, (dur_event){ .kind = DUR_EVENT_KEY_VALUE_SET, .key = "k", .value = "v" });
    turn_end(f, &t, (dur_execution_metadata){ ROW });
    pthread_join(threads[2], NULL);
    assert_int_equal(key.code, DUR_OK);
    assert_string_equal(key.text, "v");
    complete(f, "o", "done");
    pthread_join(threads[0], NULL);
    assert_int_equal(result.code, DUR_OK);
    assert_string_equal(result.text, "done");
    dur_instance_info_free(status.info);
    dur_free(key.text);
    dur_free(result.text);
    dur_instance_info *info = NULL; /* an end is also an answer to who waits for a status */
    OK(f, dur_client_wait_status(&info, f->client, "o", 99, 60000, &f->err));
    assert_int_equal(info->status, DUR_INSTANCE_COMPLETED);
    dur_instance_info_free(info);
}

static void suspended_and_resumed(void **state) {
    fixture *f = *state;
    dur_instance_info *info = NULL;
    char *text = NULL;
    run(f, "o");
    OK(f, dur_client_suspend(f->client, "o", "bad deploy", &f->err));
    OK(f, dur_client_wait(&info, f->client, "o", 1000, &f->err));
    assert_true(info->suspended && info->status == DUR_INSTANCE_RUNNING);
    assert_string_equal(info->suspend_reason, "bad deploy");
    dur_instance_info_free(info);
    REFUSED(f, DUR_ESUSPENDED, "bad deploy", dur_client_result(&text, f->client, "o", 60000, &f->err));
    OK(f, dur_client_pulse(f->client, &f->err, "o", "wake"));
    dur_fetch how = { .lock_ms = 1000 };
    dur_orchestration_item item;
    OK(f, dur_store_fetch_orchestration_item(f->bench->store, f->bench->arena, &how, &item, &f->err));
    assert_null(item.instance);
    OK(f, dur_client_resume(f->client, "o", &f->err));
    OK(f, dur_client_resume(f->client, "o", &f->err));
    turn t = turn_begin(f);
    assert_string_equal(t.item.instance, "o");
    info = info_of(f, "o");
    assert_true(!info->suspended && info->suspend_reason == NULL);
    dur_instance_info_free(info);
}

/* ---- a store with the required methods alone ---- */

static void a_bare_store_serves_clients_too(void **state) {
    fixture *f = *state;
    dur_provider_methods bare = *f->bench->store->methods;
    const dur_provider_methods *whole = f->bench->store->methods;
    dur_instance_info *info = NULL;
    dur_instance_list *list = NULL;
    char *text = NULL;
    bare.size = offsetof(dur_provider_methods, lane_open);
    f->bench->store->methods = &bare;
    assert_false(dur_client_has_admin(f->client));
    OK(f, dur_client_start(f->client, &f->err, "Order", "in", .instance = "o"));
    REFUSED(f, DUR_ENOTFOUND, "not found", dur_client_wait(&info, f->client, "o", 30, &f->err));
    turn t = turn_begin(f);
    turn_add(f, &t, started);
    turn_add(f, &t, (dur_event){ .kind = DUR_EVENT_CUSTOM_STATUS_UPDATED, .status = "half" });
    turn_end(f, &t, (dur_execution_metadata){ ROW });
    info = info_of(f, "o");
    assert_true(info->status == DUR_INSTANCE_RUNNING && info->execution_id == 1 && info->custom_status_version == 1);
    assert_string_equal(info->name, "Order");
    assert_string_equal(info->version, "1.0.0");
    assert_string_equal(info->custom_status, "half");
    dur_instance_info_free(info);
    REFUSED(f, DUR_ETIMEOUT, "not yet", dur_client_result(&text, f->client, "o", 30, &f->err));
    REFUSED(f, DUR_EUNSUPPORTED, "commit_turns", dur_client_terminate(f->client, "o", "", &f->err));
    REFUSED(f, DUR_EUNSUPPORTED, "set_suspended", dur_client_suspend(f->client, "o", "", &f->err));
    REFUSED(f, DUR_EUNSUPPORTED, "list_instances", dur_client_list(&list, f->client, NULL, &f->err));
    complete(f, "o", "done");
    OK(f, dur_client_result(&text, f->client, "o", 1000, &f->err));
    assert_string_equal(text, "done");
    dur_free(text);
    run(f, "p");
    dur_failure failure = {
        .category = DUR_FAILURE_APPLICATION, .kind = DUR_FAILURE_CANCELLED, .message = "", .reason = "r"
    };
    fail_with(f, "p", &failure);
    REFUSED(f, DUR_ECANCELLED, "cancelled: r", dur_client_result(&text, f->client, "p", 1000, &f->err));
    f->bench->store->methods = whole;
}

/* ---- processes and handles ---- */

static void a_forked_child_is_refused(void **state) {
    fixture *f = *state;
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dur_error err = DUR_ERROR_INIT;
        char *text = NULL;
        bool good = dur_client_start(f->client, &err, "Order", "", .instance = "o") == DUR_EFORKED &&
                    dur_client_result(&text, f->client, "o", 0, &err) == DUR_EFORKED &&
                    dur_client_terminate(f->client, "o", "", &err) == DUR_EFORKED &&
                    strstr(err.message, "client was made before fork") != NULL;
        dur_client_free(f->client); /* memory only */
        _exit(good ? 0 : 1);
    }
    assert_true(waitpid(child, &status, 0) == child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(f, dur_client_start(f->client, &f->err, "Order", "", .instance = "o"));
}

static void a_client_outlives_its_handle(void **state) {
    (void)state;
    dur_provider *store = NULL;
    dur_client *client = NULL;
    dur_error err = DUR_ERROR_INIT;
    assert_int_equal(dur_open(&store, client_url, &err), DUR_OK);
    assert_int_equal(dur_client_new(&client, store, &err), DUR_OK);
    dur_provider_close(store);
    assert_int_equal(dur_client_start(client, &err, "Order", "", .instance = "o"), DUR_OK);
    dur_client_free(client);
}

/* ---- a limit of time ---- */

static const dur_provider_methods *watched; /* the store's own */
static uint64_t seen_deadline_us;

static int see_get_instance(dur_provider *self, dur_arena *arena, const char *instance, dur_instance_row *out,
                            dur_error *err) {
    seen_deadline_us = dur_deadline_us();
    return watched->get_instance(self, arena, instance, out, err);
}

static int see_enqueue_existing(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    seen_deadline_us = dur_deadline_us();
    return watched->enqueue_existing(self, item, delay_ms, err);
}

/* What reads has the client's time, the shorter one where the caller has a deadline, and what writes has none. */
static void a_limit_is_for_what_reads(void **state) {
    fixture *f = *state;
    dur_instance_info *info = NULL;
    dur_provider *store = f->bench->store;
    OK(f, dur_client_start(f->client, &f->err, "Order", "", .instance = "o"));
    watched = store->methods;
    dur_provider_methods seeing = *watched;
    seeing.get_instance = see_get_instance;
    seeing.enqueue_existing = see_enqueue_existing;
    store->methods = &seeing;
    uint64_t before_us = dur__monotonic_us();
    for (int limited = 0; limited < 2; limited++) {
        dur_client_limit(f->client, limited ? 5000 : 0);
        OK(f, dur_client_info(&info, f->client, "o", &f->err));
        dur_instance_info_free(info);
        if (!limited)
            assert_true(seen_deadline_us == DUR_NO_DEADLINE);
        else
            assert_in_range(seen_deadline_us - before_us, 5000000, 5000000 + (dur__monotonic_us() - before_us));
        OK(f, dur_client_send(f->client, &f->err, "o", "q", ""));
        assert_true(seen_deadline_us == DUR_NO_DEADLINE);
        assert_true(dur_deadline_us() == DUR_NO_DEADLINE);
    }
    (void)dur_deadline_set(before_us + 1000000);
    OK(f, dur_client_info(&info, f->client, "o", &f->err));
    dur_instance_info_free(info);
    assert_true(seen_deadline_us == before_us + 1000000);
    assert_true(dur_deadline_set(DUR_NO_DEADLINE) == before_us + 1000000);
    store->methods = watched;
    dur_client_limit(NULL, 1);
}

static void names(void **state) {
    (void)state;
    assert_string_equal(dur_instance_status_name(DUR_INSTANCE_NOT_FOUND), "NotFound");
    assert_string_equal(dur_instance_status_name(DUR_INSTANCE_FAILED), "Failed");
    assert_string_equal(dur_instance_status_name((dur_instance_status)44), "?");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_instance_through_its_life),
        TEST(start_policies),
        TEST(a_message_id_is_accepted_once),
        TEST(failures_are_told_apart),
        TEST(time_runs_out),
        TEST(waiters_are_woken),
        TEST(suspended_and_resumed),
        TEST(a_bare_store_serves_clients_too),
        TEST(a_forked_child_is_refused),
        TEST(a_client_outlives_its_handle),
        TEST(a_limit_is_for_what_reads),
        cmocka_unit_test(names),
    };
    RUN_ON_ALL(tests);
}
