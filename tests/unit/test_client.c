/*
 * test_client.c: every client call on the library's stores: good arguments, bad ones, and each state of an instance.
 *
 * No runtime takes part: turns are committed by hand through the store, so that each state is reached exactly.
 */
#include "store_help.h"

#include "core/limits.h"
#include <durite/client.h>

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct fixture {
    bench *bench;
    dur_client *client;
    dur_error err;
} fixture;

static const char *url;

static int setup(void **state) {
    static fixture f;
    memset(&f, 0, sizeof(f));
    f.bench = bench_open(url);
    assert_int_equal(dur_client_new(&f.client, f.bench->store, &f.err), DUR_OK);
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    dur_client_free(f->client);
    bench_close(f->bench);
    return 0;
}

#define OK(f, ...)                                                                                                     \
    do {                                                                                                               \
        int code_ = (__VA_ARGS__);                                                                                     \
        if (code_ != DUR_OK) fail_msg("%s: %s: %s", #__VA_ARGS__, dur_code_name(code_), (f)->err.message);             \
    } while (0)

static void refused(const fixture *f, int wanted, const char *text, int got, const char *call) {
    if (got != wanted || (int)f->err.code != got || strstr(f->err.message, text) == NULL)
        fail_msg("%s: %s (%s): %s", call, dur_code_name(got), dur_code_name((int)f->err.code), f->err.message);
}
#define REFUSED(f, wanted, text, ...)                                                                                  \
    do {                                                                                                               \
        dur_error_clear(&(f)->err);                                                                                    \
        refused(f, wanted, text, (__VA_ARGS__), #__VA_ARGS__);                                                         \
    } while (0)

/* ---- turns by hand ---- */

typedef struct turn {
    dur_orchestration_item item;
    dur_event_row rows[16];
    dur_message messages[4];
    size_t count, message_count;
    uint64_t execution_id, next_id;
} turn;

/* Take the next instance that has messages. */
static turn turn_begin(fixture *f) {
    turn t = { 0 };
    dur_fetch how = { .lock_ms = 60000 };
    OK(f, dur_store_fetch_orchestration_item(f->bench->store, f->bench->arena, &how, &t.item, &f->err));
    assert_non_null(t.item.instance);
    t.execution_id = t.item.execution_id;
    t.next_id = t.item.last_event_id + 1;
    return t;
}

static void turn_add(fixture *f, turn *t, dur_event event) {
    event.event_id = t->next_id++;
    event.instance_id = t->item.instance;
    event.execution_id = t->execution_id;
    event.timestamp_ms = START_MS;
    event.duroxide_version = "0.1.0";
    OK(f, dur_event_row_from(&t->rows[t->count++], f->bench->arena, &event, &f->err));
}

static void turn_send(fixture *f, turn *t, dur_work_item item) {
    OK(f, dur_message_from_work(&t->messages[t->message_count++], f->bench->arena, &item, &f->err));
}

static void turn_end(fixture *f, const turn *t, dur_execution_metadata metadata) {
    dur_turn_commit commit = {
        .lock_token = t->item.lock_token,
        .execution_id = t->execution_id,
        .events = t->rows,
        .event_count = t->count,
        .orchestrator_items = t->messages,
        .orchestrator_item_count = t->message_count,
        .metadata = metadata,
        .expected_last = DUR_NOT_COMPARED,
    };
    OK(f, dur_store_ack_orchestration_item(f->bench->store, &commit, &f->err));
}

static const dur_event started = {
    .kind = DUR_EVENT_ORCHESTRATION_STARTED, .name = "Order", .version = "1.0.0", .input = "in", .trace = 1
};
#define ROW .orchestration_name = "Order", .orchestration_version = "1.0.0"

/* Start an instance and commit its first turn. */
static void run(fixture *f, const char *instance) {
    OK(f, dur_client_start(f->client, &f->err, "Order", "in", .instance = instance));
    turn t = turn_begin(f);
    assert_string_equal(t.item.instance, instance);
    turn_add(f, &t, started);
    turn_end(f, &t, (dur_execution_metadata){ ROW, .status = DUR_STATUS_RUNNING });
}

/* One more turn, which an event wakes. */
static turn wake(fixture *f, const char *instance) {
    OK(f, dur_client_raise(f->client, &f->err, instance, "wake"));
    turn t = turn_begin(f);
    assert_string_equal(t.item.instance, instance);
    return t;
}

static void complete(fixture *f, const char *instance, const char *output) {
    turn t = wake(f, instance);
    turn_add(f, &t, (dur_event){ .kind = DUR_EVENT_ORCHESTRATION_COMPLETED, .output = output });
    turn_end(f, &t, (dur_execution_metadata){ .status = DUR_STATUS_COMPLETED, .output = output });
}

static void fail_with(fixture *f, const char *instance, const dur_failure *failure) {
    turn t = wake(f, instance);
    turn_add(f, &t, (dur_event){ .kind = DUR_EVENT_ORCHESTRATION_FAILED, .details = failure });
    turn_end(f, &t,
             (dur_execution_metadata){ .status = DUR_STATUS_FAILED,
                                       .output = dur_failure_display(f->bench->arena, failure) });
}

static dur_instance_info *info_of(fixture *f, const char *instance) {
    dur_instance_info *info = NULL;
    OK(f, dur_client_info(&info, f->client, instance, &f->err));
    return info;
}

static dur_event *events_of(fixture *f, const char *instance, uint64_t execution_id, size_t *count) {
    char *text = NULL;
    dur_event *events;
    OK(f, dur_client_history(&text, f->client, instance, execution_id, &f->err));
    dur_text json = { text, strlen(text) };
    OK(f, dur_history_from_json(&events, count, f->bench->arena, json, &f->err));
    dur_free(text);
    return events;
}

/* ---- arguments ---- */

static char *repeated(char c, size_t count) {
    char *text = malloc(count + 1);
    memset(text, c, count);
    text[count] = '\0';
    return text;
}

static void starts_are_checked(void **state) {
    fixture *f = *state;
    dur_client *c = f->client;
    char *long_id = repeated('i', DUR__INSTANCE_BYTES_MAX + 1), *long_name = repeated('n', DUR__NAME_BYTES_MAX + 1);
    char *large = repeated('x', DUR__PAYLOAD_BYTES_MAX + 1);
    REFUSED(f, DUR_EINVAL, "client is required", dur_client_start(NULL, &f->err, "Order", "", .instance = "i"));
    REFUSED(f, DUR_EINVAL, "args are required", dur_client_start_ex(c, NULL, &f->err));
    REFUSED(f, DUR_EINVAL, "size", dur_client_start_ex(c, &(dur_start_args){ .name = "Order" }, &f->err));
    REFUSED(f, DUR_EINVAL, "name is required", dur_client_start(c, &f->err, NULL, "", .instance = "i"));
    REFUSED(f, DUR_EINVAL, "name must not be empty", dur_client_start(c, &f->err, "", "", .instance = "i"));
    REFUSED(f, DUR_EINVAL, "instance is required", dur_client_start(c, &f->err, "Order", ""));
    REFUSED(f, DUR_EINVAL, "instance must not be empty", dur_client_start(c, &f->err, "Order", "", .instance = ""));
    REFUSED(f, DUR_EINVAL, "instance is not UTF-8 at byte 1",
            dur_client_start(c, &f->err, "O", "", .instance = "a\xff"));
    REFUSED(f, DUR_EINVAL, "control character 0x0a", dur_client_start(c, &f->err, "O", "", .instance = "a\n"));
    REFUSED(f, DUR_EINVAL, "input is not UTF-8", dur_client_start(c, &f->err, "Order", "\xc3", .instance = "i"));
    REFUSED(f, DUR_EINVAL, "\"1\" is not MAJOR",
            dur_client_start(c, &f->err, "O", "", .instance = "i", .version = "1"));
    REFUSED(f, DUR_EINVAL, "no policy",
            dur_client_start(c, &f->err, "Order", "", .instance = "i", .exists = (dur_start_policy)7));
    REFUSED(f, DUR_ELIMIT, "instance has 1025 bytes, 1024", dur_client_start(c, &f->err, "O", "", .instance = long_id));
    REFUSED(f, DUR_ELIMIT, "name has 513 bytes, 512", dur_client_start(c, &f->err, long_name, "", .instance = "i"));
    REFUSED(f, DUR_ELIMIT, "input has 4194305 bytes", dur_client_start(c, &f->err, "Order", large, .instance = "i"));
    REFUSED(f, DUR_ELIMIT, "delay_ms", dur_client_start(c, &f->err, "O", "", .instance = "i", .delay_ms = UINT64_MAX));
    assert_int_equal(dur_client_start(c, NULL, NULL, "", .instance = "i"), DUR_EINVAL);
    struct {
        dur_start_args args;
        uint64_t later;
    } newer = { { .size = sizeof(newer), .name = "Order", .instance = "newer" }, 0 };
    OK(f, dur_client_start_ex(c, &newer.args, &f->err));
    newer.later = 1;
    newer.args.instance = "newest";
    REFUSED(f, DUR_EINVAL, "not known to this version", dur_client_start_ex(c, &newer.args, &f->err));
    dur_instance_info *info = NULL;
    REFUSED(f, DUR_ENOTFOUND, "not found", dur_client_info(&info, c, "i", &f->err));
    large[DUR__PAYLOAD_BYTES_MAX] = '\0';
    OK(f, dur_client_start(c, &f->err, "Order", large, .instance = "i"));
    free(long_id);
    free(long_name);
    free(large);
}

static void messages_are_checked(void **state) {
    fixture *f = *state;
    dur_client *c = f->client;
    run(f, "i");
    for (int i = 0; i < 2; i++) {
        int (*call)(dur_client *, const dur_message_args *, dur_error *) =
            i == 0 ? dur_client_raise_ex : dur_client_enqueue_ex;
#define MESSAGE(...) &(dur_message_args){ .size = sizeof(dur_message_args), __VA_ARGS__ }
        REFUSED(f, DUR_EINVAL, "client is required", call(NULL, MESSAGE(.instance = "i", .name = "n"), &f->err));
        REFUSED(f, DUR_EINVAL, "args are required", call(c, NULL, &f->err));
        REFUSED(f, DUR_EINVAL, "instance is required", call(c, MESSAGE(.name = "n"), &f->err));
        REFUSED(f, DUR_EINVAL, "name is required", call(c, MESSAGE(.instance = "i"), &f->err));
        REFUSED(f, DUR_EINVAL, "name must not be empty", call(c, MESSAGE(.instance = "i", .name = ""), &f->err));
        REFUSED(f, DUR_EINVAL, "data is not UTF-8",
                call(c, MESSAGE(.instance = "i", .name = "n", .data = "\x80"), &f->err));
        REFUSED(f, DUR_EINVAL, "message_id must not be empty",
                call(c, MESSAGE(.instance = "i", .name = "n", .message_id = ""), &f->err));
        REFUSED(f, DUR_ENOTFOUND, "not found", call(c, MESSAGE(.instance = "nobody", .name = "n"), &f->err));
        REFUSED(f, DUR_ELIMIT, "delay_ms",
                call(c, MESSAGE(.instance = "i", .name = "n", .delay_ms = UINT64_MAX), &f->err));
    }
    REFUSED(f, DUR_EINVAL, "reason is not UTF-8", dur_client_cancel(c, "i", "\xff", &f->err));
    REFUSED(f, DUR_EINVAL, "reason is not UTF-8", dur_client_terminate(c, "i", "\xff", &f->err));
    REFUSED(f, DUR_EINVAL, "reason is not UTF-8", dur_client_suspend(c, "i", "\xff", &f->err));
    REFUSED(f, DUR_ENOTFOUND, "not found", dur_client_cancel(c, "nobody", NULL, &f->err));
    REFUSED(f, DUR_ENOTFOUND, "not found", dur_client_terminate(c, "nobody", NULL, &f->err));
    REFUSED(f, DUR_ENOTFOUND, "not found", dur_client_suspend(c, "nobody", NULL, &f->err));
    REFUSED(f, DUR_ENOTFOUND, "not found", dur_client_resume(c, "nobody", &f->err));
}

/* Calls with an out and an instance: the same six mistakes. */
static int call_info(void **out, dur_client *c, const char *i, dur_error *err) {
    return dur_client_info((dur_instance_info **)out, c, i, err);
}
static int call_wait(void **out, dur_client *c, const char *i, dur_error *err) {
    return dur_client_wait((dur_instance_info **)out, c, i, 0, err);
}
static int call_wait_status(void **out, dur_client *c, const char *i, dur_error *err) {
    return dur_client_wait_status((dur_instance_info **)out, c, i, 0, 0, err);
}
static int call_result(void **out, dur_client *c, const char *i, dur_error *err) {
    return dur_client_result((char **)out, c, i, 0, err);
}
static int call_kv_wait(void **out, dur_client *c, const char *i, dur_error *err) {
    return dur_client_kv_wait((char **)out, c, i, "k", 0, err);
}
static int call_executions(void **out, dur_client *c, const char *i, dur_error *err) {
    return dur_client_executions((dur_execution_list **)out, c, i, err);
}
static int call_history(void **out, dur_client *c, const char *i, dur_error *err) {
    return dur_client_history((char **)out, c, i, 0, err);
}
static int call_tree(void **out, dur_client *c, const char *i, dur_error *err) {
    return dur_client_tree((dur_id_list **)out, c, i, err);
}
static int call_stats(void **out, dur_client *c, const char *i, dur_error *err) {
    static dur_client_stats stats = { .size = sizeof(stats) };
    return dur_client_stats_get(out != NULL ? &stats : NULL, c, i, err);
}

static void looking_is_checked(void **state) {
    fixture *f = *state;
    static int (*const calls[])(void **, dur_client *, const char *,
                                dur_error *) = { call_info,    call_wait,    call_wait_status,
                                                 call_result,  call_kv_wait, call_executions,
                                                 call_history, call_tree,    call_stats };
    char *long_id = repeated('i', DUR__INSTANCE_BYTES_MAX + 1);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        void *out = NULL;
        REFUSED(f, DUR_EINVAL, "out is required", calls[i](NULL, f->client, "i", &f->err));
        REFUSED(f, DUR_EINVAL, "client is required", calls[i](&out, NULL, "i", &f->err));
        REFUSED(f, DUR_EINVAL, "instance is required", calls[i](&out, f->client, NULL, &f->err));
        REFUSED(f, DUR_EINVAL, "instance must not be empty", calls[i](&out, f->client, "", &f->err));
        REFUSED(f, DUR_EINVAL, "instance is not UTF-8", calls[i](&out, f->client, "\xf0", &f->err));
        REFUSED(f, DUR_ELIMIT, "instance has 1025 bytes", calls[i](&out, f->client, long_id, &f->err));
        REFUSED(f, DUR_ENOTFOUND, "not found", calls[i](&out, f->client, "nobody", &f->err));
        assert_int_equal(calls[i](&out, f->client, "nobody", NULL), DUR_ENOTFOUND);
        assert_null(out);
    }
    free(long_id);
}

static void the_rest_is_checked(void **state) {
    fixture *f = *state;
    dur_client *c = f->client, *none = NULL;
    char *text = NULL;
    dur_kv_list *all = NULL;
    dur_instance_list *list = NULL;
    dur_dead_letter_list *letters = NULL;
    dur_store_counts counts = { .size = 0 };
    dur_deleted deleted = { .size = 0 };
    dur_pruned pruned = { .size = SIZE_MAX };
    REFUSED(f, DUR_EINVAL, "out is required", dur_client_new(NULL, f->bench->store, &f->err));
    REFUSED(f, DUR_EINVAL, "store is required", dur_client_new(&none, NULL, &f->err));
    dur_client_free(NULL);
    dur_instance_info_free(NULL);
    dur_instance_list_free(NULL);
    dur_kv_list_free(NULL);
    dur_execution_list_free(NULL);
    dur_id_list_free(NULL);
    dur_dead_letter_list_free(NULL);
    assert_false(dur_client_has_admin(NULL));
    assert_true(dur_client_has_admin(c));
    REFUSED(f, DUR_EINVAL, "key is required", dur_client_kv_get(&text, c, "i", NULL, &f->err));
    REFUSED(f, DUR_EINVAL, "key must not be empty", dur_client_kv_wait(&text, c, "i", "", 0, &f->err));
    REFUSED(f, DUR_EINVAL, "key is not UTF-8", dur_client_kv_get(&text, c, "i", "\xff", &f->err));
    REFUSED(f, DUR_EINVAL, "out is required", dur_client_kv_get(NULL, c, "i", "k", &f->err));
    REFUSED(f, DUR_EINVAL, "out is required", dur_client_kv_all(NULL, c, "i", &f->err));
    REFUSED(f, DUR_EINVAL, "instance is required", dur_client_kv_all(&all, c, NULL, &f->err));
    REFUSED(f, DUR_EINVAL, "out is required", dur_client_list(NULL, c, NULL, &f->err));
    REFUSED(f, DUR_EINVAL, "client is required", dur_client_list(&list, NULL, NULL, &f->err));
    REFUSED(f, DUR_EINVAL, "which is none",
            dur_client_list(&list, c, DUR_LIST(.status = (dur_instance_status)9), &f->err));
    REFUSED(f, DUR_EINVAL, "id_prefix is not UTF-8", dur_client_list(&list, c, DUR_LIST(.id_prefix = "\xff"), &f->err));
    REFUSED(f, DUR_ELIMIT, "limit is", dur_client_list(&list, c, DUR_LIST(.limit = SIZE_MAX), &f->err));
    REFUSED(f, DUR_EINVAL, "size of the options",
            dur_client_list(&list, c, &(dur_list_options){ .limit = 1 }, &f->err));
    REFUSED(f, DUR_EINVAL, "out is required", dur_client_counts(NULL, c, &f->err));
    REFUSED(f, DUR_EINVAL, "set it before the call", dur_client_counts(&counts, c, &f->err));
    REFUSED(f, DUR_ENOTFOUND, "not found", dur_client_delete(NULL, c, "nobody", false, &f->err));
    REFUSED(f, DUR_EINVAL, "set it before the call", dur_client_delete(&deleted, c, "nobody", false, &f->err));
    REFUSED(f, DUR_EINVAL, "instance is required", dur_client_delete(NULL, c, NULL, false, &f->err));
    REFUSED(f, DUR_EINVAL, "instances is NULL",
            dur_client_delete_bulk(NULL, c, DUR_BULK(.instance_count = 2), &f->err));
    REFUSED(f, DUR_ELIMIT, "limit is", dur_client_delete_bulk(NULL, c, DUR_BULK(.limit = SIZE_MAX), &f->err));
    const char *const bad[] = { "a", NULL };
    REFUSED(f, DUR_EINVAL, "instance is required",
            dur_client_delete_bulk(NULL, c, DUR_BULK(.instances = bad, .instance_count = 2), &f->err));
    REFUSED(f, DUR_EINVAL, "set it before the call", dur_client_prune(&pruned, c, "nobody", DUR_PRUNE(), &f->err));
    REFUSED(f, DUR_ENOTFOUND, "not found", dur_client_prune(NULL, c, "nobody", DUR_PRUNE(.keep_last = 1), &f->err));
    REFUSED(f, DUR_EINVAL, "out is required", dur_client_dead_letters(NULL, c, 0, 0, &f->err));
    REFUSED(f, DUR_ELIMIT, "limit is", dur_client_dead_letters(&letters, c, 0, SIZE_MAX, &f->err));
    REFUSED(f, DUR_EINVAL, "ids are required", dur_client_dead_letters_delete(c, NULL, 3, &f->err));
    OK(f, dur_client_dead_letters_delete(c, NULL, 0, &f->err));
}

/* ---- one instance through its life ---- */

static void an_instance_through_its_life(void **state) {
    fixture *f = *state;
    OK(f, dur_client_start(f->client, &f->err, "Order", "in", .instance = "o", .version = "1.0.0"));
    dur_instance_info *info = info_of(f, "o");
    assert_true(info->size == sizeof(*info) && info->start_pending && info->status == DUR_INSTANCE_RUNNING);
    assert_string_equal(info->name, "Order"); /* from the start that waits */
    assert_string_equal(info->version, "1.0.0");
    assert_true(info->output == NULL && info->parent == NULL && info->failure_category == NULL && !info->cancelled);
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
    OK(f, dur_client_raise(f->client, &f->err, "o", "late"));
    REFUSED(f, DUR_ESTATE, "ended", dur_client_enqueue(f->client, &f->err, "o", "q", "late"));
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
    OK(f, dur_client_enqueue(f->client, &f->err, "o", "q", "1", .message_id = "m"));
    dur_error_clear(&f->err);
    OK(f, dur_client_enqueue(f->client, &f->err, "o", "q", "1", .message_id = "m"));
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
          "canceled: bored",
          "application",
          true },
        { { .category = DUR_FAILURE_APPLICATION, .message = "canceled: says the shop" },
          DUR_EFAILED,
          "canceled: says the shop",
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
        assert_string_equal(info->failure_category, cases[i].category);
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
    OK(f, dur_client_raise(f->client, &f->err, "o", "wake"));
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

/* ---- terminate ---- */

static void ended_by_force(fixture *f, const char *instance, const char *reason) {
    char *out = NULL;
    char expected[64];
    snprintf(expected, sizeof(expected), "canceled: %s", reason);
    assert_int_equal(dur_client_result(&out, f->client, instance, 0, &f->err), DUR_ECANCELLED);
    assert_string_equal(f->err.message, expected);
    dur_instance_info *info = info_of(f, instance);
    assert_true(info->cancelled && info->status == DUR_INSTANCE_FAILED && !info->suspended);
    dur_instance_info_free(info);
}

static void terminate_a_running_one(void **state) {
    fixture *f = *state;
    size_t count;
    run(f, "o");
    turn held = wake(f, "o"); /* somebody holds the lease, and has events to write */
    turn_add(f, &held, (dur_event){ .kind = DUR_EVENT_TIMER_CREATED, .fire_at_ms = 1 });
    OK(f, dur_client_enqueue(f->client, &f->err, "o", "q", "left"));
    OK(f, dur_client_terminate(f->client, "o", "enough", &f->err));
    ended_by_force(f, "o", "enough");
    dur_event *events = events_of(f, "o", 0, &count);
    assert_int_equal(count, 2);
    assert_true(events[1].kind == DUR_EVENT_ORCHESTRATION_FAILED && events[1].event_id == 2);
    dur_turn_commit late = { .lock_token = held.item.lock_token,
                             .execution_id = 1,
                             .events = held.rows,
                             .event_count = 1,
                             .expected_last = DUR_NOT_COMPARED };
    assert_int_equal(dur_store_ack_orchestration_item(f->bench->store, &late, &f->err), DUR_ELEASE);
    dur_store_counts counts = { .size = sizeof(counts) };
    OK(f, dur_client_counts(&counts, f->client, &f->err));
    assert_true(counts.failed == 1 && counts.orchestrator_queue == 0 && counts.worker_queue == 0);
    OK(f, dur_client_terminate(f->client, "o", "twice", &f->err));
    events_of(f, "o", 0, &count);
    assert_int_equal(count, 2);
}

static void terminate_a_suspended_one(void **state) {
    fixture *f = *state;
    run(f, "o");
    OK(f, dur_client_suspend(f->client, "o", "stuck", &f->err));
    OK(f, dur_client_terminate(f->client, "o", "enough", &f->err));
    ended_by_force(f, "o", "enough");
    dur_store_counts counts = { .size = sizeof(counts) };
    OK(f, dur_client_counts(&counts, f->client, &f->err));
    assert_int_equal(counts.suspended, 0);
}

static void terminate_before_the_first_turn(void **state) {
    fixture *f = *state;
    size_t count;
    OK(f, dur_client_start(f->client, &f->err, "Order", "input", .instance = "o", .version = "2.0.0",
                           .delay_ms = 3600000));
    OK(f, dur_client_raise(f->client, &f->err, "o", "early"));
    OK(f, dur_client_terminate(f->client, "o", NULL, &f->err));
    ended_by_force(f, "o", "terminated by a client");
    dur_event *events = events_of(f, "o", 1, &count);
    assert_int_equal(count, 2);
    assert_true(events[0].kind == DUR_EVENT_ORCHESTRATION_STARTED && events[0].trace == 1);
    assert_string_equal(events[0].name, "Order");
    assert_string_equal(events[0].version, "2.0.0");
    assert_string_equal(events[0].input, "input");
    dur_fetch how = { .lock_ms = 1000 };
    dur_orchestration_item item;
    dur_fake_world_advance(f->bench->fake, 7200000);
    OK(f, dur_store_fetch_orchestration_item(f->bench->store, f->bench->arena, &how, &item, &f->err));
    assert_null(item.instance); /* the start is gone */
}

static void terminate_between_generations(void **state) {
    fixture *f = *state;
    size_t count;
    run(f, "o");
    turn t = wake(f, "o");
    turn_add(f, &t, (dur_event){ .kind = DUR_EVENT_ORCHESTRATION_CONTINUED_AS_NEW, .input = "next" });
    turn_send(f, &t,
              (dur_work_item){ .kind = DUR_WORK_CONTINUE_AS_NEW,
                               .instance = "o",
                               .orchestration = "Order",
                               .input = "next",
                               .version = "3.0.0" });
    turn_end(f, &t, (dur_execution_metadata){ .status = DUR_STATUS_CONTINUED_AS_NEW, .output = "next" });
    dur_instance_info *info = info_of(f, "o");
    assert_true(info->status == DUR_INSTANCE_RUNNING && info->output == NULL);
    dur_instance_info_free(info);
    dur_instance_list *list = NULL;
    OK(f, dur_client_list(&list, f->client, DUR_LIST(.status = DUR_INSTANCE_RUNNING), &f->err));
    assert_int_equal(list->count, 1);
    dur_instance_list_free(list);
    OK(f, dur_client_terminate(f->client, "o", "enough", &f->err));
    ended_by_force(f, "o", "enough");
    dur_event *events = events_of(f, "o", 2, &count);
    assert_int_equal(count, 2);
    assert_string_equal(events[0].input, "next");
    assert_string_equal(events[0].version, "3.0.0");
    assert_true(events[1].kind == DUR_EVENT_ORCHESTRATION_FAILED && events[1].execution_id == 2);
    dur_execution_list *executions = NULL;
    OK(f, dur_client_executions(&executions, f->client, "o", &f->err));
    assert_int_equal(executions->count, 2);
    assert_string_equal(executions->items[0].status, "ContinuedAsNew");
    assert_string_equal(executions->items[1].status, "Failed");
    assert_true(executions->items[1].event_count == 2 && executions->items[1].completed_at_ms == START_MS);
    dur_execution_list_free(executions);
}

/* A parent with three children: one answered, one open, one with an id of its own. */
static void terminate_tells_parent_and_children(void **state) {
    fixture *f = *state;
    OK(f, dur_client_start(f->client, &f->err, "Order", "in", .instance = "root"));
    turn t = turn_begin(f);
    turn_add(f, &t, started);
    turn_end(f, &t, (dur_execution_metadata){ ROW });
    dur_work_item start = { .kind = DUR_WORK_START_ORCHESTRATION,
                            .instance = "mid",
                            .orchestration = "Order",
                            .input = "",
                            .execution_id = 1,
                            .parent_instance = "root",
                            .has_parent_id = true,
                            .parent_id = 4,
                            .has_parent_execution_id = true,
                            .parent_execution_id = 9 };
    dur_message message;
    bool existed;
    OK(f, dur_message_from_work(&message, f->bench->arena, &start, &f->err));
    OK(f, dur_store_enqueue_start(f->bench->store, &message, DUR_EXISTS_FAIL, 0, &existed, &f->err));
    t = turn_begin(f);
    dur_event mid = started;
    mid.parent_instance = "root";
    mid.has_parent_id = mid.has_parent_execution_id = true;
    mid.parent_id = 4;
    mid.parent_execution_id = 9;
    turn_add(f, &t, mid);
    static const char *const ids[] = { "answered", "sub::3", "own-id" };
    for (size_t i = 0; i < 3; i++)
        turn_add(
            f, &t,
            (dur_event){ .kind = DUR_EVENT_SUB_ORCHESTRATION_SCHEDULED, .name = "C", .instance = ids[i], .input = "" });
    turn_add(f, &t,
             (dur_event){ .kind = DUR_EVENT_SUB_ORCHESTRATION_COMPLETED,
                          .has_source_event_id = true,
                          .source_event_id = 2,
                          .result = "" });
    turn_end(f, &t, (dur_execution_metadata){ ROW, .parent_instance_id = "root" });
    OK(f, dur_client_start(f->client, &f->err, "C", "", .instance = "mid::sub::3"));
    OK(f, dur_client_start(f->client, &f->err, "C", "", .instance = "own-id"));
    OK(f, dur_client_start(f->client, &f->err, "C", "", .instance = "answered"));

    REFUSED(f, DUR_ECHILD, "sub-orchestration", dur_client_delete(NULL, f->client, "mid", true, &f->err));
    OK(f, dur_client_terminate(f->client, "mid", "enough", &f->err));
    ended_by_force(f, "mid", "enough");
    bool told_root = false, told_short = false, told_own = false;
    dur_fetch how = { .lock_ms = 1000 };
    for (;;) {
        dur_orchestration_item item;
        OK(f, dur_store_fetch_orchestration_item(f->bench->store, f->bench->arena, &how, &item, &f->err));
        if (item.instance == NULL) break;
        dur_work_item got; /* the last of its messages; children have their start in front */
        OK(f, dur_work_from_json(&got, f->bench->arena, item.messages[item.message_count - 1].json, &f->err));
        if (strcmp(item.instance, "root") == 0) {
            told_root = got.kind == DUR_WORK_SUB_ORCH_FAILED && got.id == 4 && got.execution_id == 9 &&
                        got.details->kind == DUR_FAILURE_CANCELLED;
        } else if (strcmp(item.instance, "answered") == 0) {
            assert_int_equal(got.kind, DUR_WORK_START_ORCHESTRATION);
        } else {
            assert_int_equal(got.kind, DUR_WORK_CANCEL_INSTANCE);
            assert_string_equal(got.reason, "parent terminated: enough");
            told_short |= strcmp(item.instance, "mid::sub::3") == 0;
            told_own |= strcmp(item.instance, "own-id") == 0;
        }
    }
    assert_true(told_root && told_short && told_own);

    dur_id_list *tree = NULL;
    OK(f, dur_client_tree(&tree, f->client, "root", &f->err));
    assert_int_equal(tree->count, 2);
    assert_string_equal(tree->ids[0], "root");
    assert_string_equal(tree->ids[1], "mid");
    dur_id_list_free(tree);
    dur_deleted deleted = { .size = sizeof(deleted) };
    REFUSED(f, DUR_ERUNNING, "running", dur_client_delete(&deleted, f->client, "root", false, &f->err));
    OK(f, dur_client_delete(&deleted, f->client, "root", true, &f->err));
    assert_int_equal(deleted.instances, 2);
}

static void terminate_over_a_broken_history(void **state) {
    fixture *f = *state;
    run(f, "o");
    dur_event_row broken = { .event_id = 2, .kind = DUR_EVENT_TIMER_CREATED, .json = text_of("{\"event_id\":2,") };
    OK(f, dur_store_append(f->bench->store, "o", 1, &broken, 1, &f->err));
    OK(f, dur_client_terminate(f->client, "o", "broken", &f->err));
    dur_event_row *rows;
    size_t count;
    OK(f, dur_store_read(f->bench->store, f->bench->arena, "o", 1, &rows, &count, &f->err));
    assert_int_equal(count, 3);
    assert_int_equal(rows[2].event_id, 99999);
    ended_by_force(f, "o", "broken");
}

/* What gets in the way of the first commit: a turn of somebody else, or an answer that is lost. */
static const dur_provider_methods *real_methods;
static enum { NOTHING, OTHER_TURN, LOST_ANSWER, ALWAYS_OTHER_TURN } hindrance;
static uint64_t others;

static int hindered_commit(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err) {
    if (hindrance == OTHER_TURN || hindrance == ALWAYS_OTHER_TURN) {
        dur_arena *arena = dur_arena_new();
        dur_event timer = { .kind = DUR_EVENT_TIMER_CREATED,
                            .event_id = ++others,
                            .instance_id = "o",
                            .execution_id = 1,
                            .duroxide_version = "0.1.0",
                            .fire_at_ms = 1 };
        dur_event_row row;
        assert_int_equal(dur_event_row_from(&row, arena, &timer, err), DUR_OK);
        assert_int_equal(real_methods->append(self, "o", 1, &row, 1, err), DUR_OK);
        dur_arena_free(arena);
    }
    int code = real_methods->commit_turns(self, turns, count, err);
    bool lost = hindrance == LOST_ANSWER;
    if (hindrance != ALWAYS_OTHER_TURN) hindrance = NOTHING;
    return lost ? dur_error_set(err, DUR_EUNKNOWN, true, "test", "connection lost") : code;
}

static void terminate_looks_again(void **state) {
    fixture *f = *state;
    static dur_provider_methods methods;
    size_t count;
    real_methods = f->bench->store->methods;
    methods = *real_methods;
    methods.commit_turns = hindered_commit;
    f->bench->store->methods = &methods;
    run(f, "o");
    hindrance = OTHER_TURN;
    others = 1;
    OK(f, dur_client_terminate(f->client, "o", "enough", &f->err));
    assert_int_equal(f->err.code, DUR_OK);
    dur_event *events = events_of(f, "o", 0, &count);
    assert_int_equal(count, 3);
    assert_true(events[1].kind == DUR_EVENT_TIMER_CREATED && events[2].kind == DUR_EVENT_ORCHESTRATION_FAILED);
    OK(f, dur_client_start(f->client, &f->err, "Order", "", .instance = "p"));
    hindrance = LOST_ANSWER;
    OK(f, dur_client_terminate(f->client, "p", "enough", &f->err));
    events_of(f, "p", 0, &count);
    assert_int_equal(count, 2);
    OK(f, dur_client_delete(NULL, f->client, "o", true, &f->err));
    run(f, "o");
    hindrance = ALWAYS_OTHER_TURN;
    others = 1;
    REFUSED(f, DUR_EBUSY, "too busy", dur_client_terminate(f->client, "o", "enough", &f->err));
    assert_true(f->err.retryable);
    hindrance = NOTHING;
    f->bench->store->methods = real_methods;
}

/* ---- administration ---- */

static void lists_come_in_pages(void **state) {
    fixture *f = *state;
    char id[16];
    for (int i = 0; i < 7; i++) {
        snprintf(id, sizeof(id), "%s-%d", i < 5 ? "a" : "b", i);
        run(f, id);
        if (i % 2 == 0) complete(f, id, "r");
    }
    char after[64] = "";
    size_t seen = 0, pages = 0;
    for (bool more = true; more; pages++) {
        dur_instance_list *list = NULL;
        OK(f, dur_client_list(&list, f->client, DUR_LIST(.limit = 3, .after = pages > 0 ? after : NULL), &f->err));
        for (size_t i = 0; i < list->count; i++)
            assert_int_equal(list->items[i].instance[2], '0' + (int)seen++);
        more = list->next != NULL;
        if (more) snprintf(after, sizeof(after), "%s", list->next);
        dur_instance_list_free(list);
    }
    assert_true(seen == 7 && pages == 3);
    static const struct {
        dur_list_options options;
        size_t count;
    } cases[] = {
        { { .status = DUR_INSTANCE_COMPLETED }, 4 },
        { { .status = DUR_INSTANCE_RUNNING }, 3 },
        { { .status = DUR_INSTANCE_FAILED }, 0 },
        { { .id_prefix = "b-" }, 2 },
        { { .name = "Order" }, 7 },
        { { .name = "Nobody" }, 0 },
        { { .roots_only = true }, 7 },
        { { .parent = "a-0" }, 0 },
        { { .suspended_only = true }, 0 },
        { { .created_before_ms = START_MS }, 0 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        dur_instance_list *list = NULL;
        dur_list_options options = cases[i].options;
        options.size = sizeof(options);
        OK(f, dur_client_list(&list, f->client, &options, &f->err));
        if (list->count != cases[i].count) fail_msg("case %zu: %zu", i, list->count);
        assert_null(list->next);
        dur_instance_list_free(list);
    }
    dur_store_counts counts = { .size = sizeof(counts) };
    OK(f, dur_client_counts(&counts, f->client, &f->err));
    assert_true(counts.size == sizeof(counts) && counts.total_instances == 7 && counts.completed == 4);
    assert_true(counts.running == 3 && counts.total_executions == 7 && counts.total_events == 11);
    const char *const some[] = { "a-0", "a-1", "a-2" }; /* one of them runs, and stays */
    dur_deleted deleted = { .size = sizeof(deleted) };
    OK(f, dur_client_delete_bulk(&deleted, f->client, DUR_BULK(.instances = some, .instance_count = 3), &f->err));
    assert_int_equal(deleted.instances, 2);
    OK(f, dur_client_delete_bulk(NULL, f->client, NULL, &f->err));
    OK(f, dur_client_counts(&counts, f->client, &f->err));
    assert_int_equal(counts.total_instances, 3);
}

/* A struct of an older, shorter version gets what it knows, and nothing behind it. */
static void shorter_results_are_not_overrun(void **state) {
    fixture *f = *state;
    struct {
        dur_store_counts counts;
        uint64_t guard;
    } out;
    run(f, "o");
    memset(&out, 0x5a, sizeof(out));
    out.counts.size = offsetof(dur_store_counts, running);
    OK(f, dur_client_counts(&out.counts, f->client, &f->err));
    assert_true(out.counts.total_executions == 1);
    assert_true(out.counts.running == UINT64_C(0x5a5a5a5a5a5a5a5a));
}

static void histories_are_given_as_stored(void **state) {
    fixture *f = *state;
    char *text = NULL;
    OK(f, dur_client_start(f->client, &f->err, "Order", "", .instance = "p"));
    OK(f, dur_client_history(&text, f->client, "p", 0, &f->err));
    assert_string_equal(text, "[]");
    dur_free(text);
    dur_execution_list *executions = NULL;
    OK(f, dur_client_executions(&executions, f->client, "p", &f->err));
    assert_int_equal(executions->count, 0);
    dur_execution_list_free(executions);
    REFUSED(f, DUR_ENOTFOUND, "no execution 2", dur_client_history(&text, f->client, "p", 2, &f->err));
    OK(f, dur_client_terminate(f->client, "p", "", &f->err));
    OK(f, dur_client_history(&text, f->client, "p", 1, &f->err));
    assert_true(strncmp(text, "[{\"event_id\":1,", 15) == 0);
    dur_free(text);
}

static void old_generations_are_pruned(void **state) {
    fixture *f = *state;
    run(f, "o");
    for (uint64_t n = 2; n <= 4; n++) {
        turn t = wake(f, "o");
        turn_add(f, &t, (dur_event){ .kind = DUR_EVENT_ORCHESTRATION_CONTINUED_AS_NEW, .input = "" });
        turn_send(f, &t,
                  (dur_work_item){
                      .kind = DUR_WORK_CONTINUE_AS_NEW, .instance = "o", .orchestration = "Order", .input = "" });
        turn_end(f, &t, (dur_execution_metadata){ .status = DUR_STATUS_CONTINUED_AS_NEW });
        t = turn_begin(f);
        t.execution_id = n;
        t.next_id = 1;
        turn_add(f, &t, started);
        turn_end(f, &t, (dur_execution_metadata){ ROW, .status = DUR_STATUS_RUNNING });
    }
    dur_pruned pruned = { .size = sizeof(pruned) };
    OK(f, dur_client_prune(&pruned, f->client, "o", NULL, &f->err));
    assert_int_equal(pruned.executions, 0);
    OK(f, dur_client_prune(&pruned, f->client, "o", DUR_PRUNE(.keep_last = 3), &f->err));
    assert_int_equal(pruned.executions, 1);
    OK(f, dur_client_prune_bulk(&pruned, f->client, DUR_BULK(), DUR_PRUNE(.keep_last = 1), &f->err));
    assert_true(pruned.executions == 2 && pruned.instances == 1);
    dur_instance_info *info = info_of(f, "o");
    assert_true(info->execution_id == 4 && info->status == DUR_INSTANCE_RUNNING);
    dur_instance_info_free(info);
}

static void dead_letters_are_shown_and_removed(void **state) {
    fixture *f = *state;
    dur_dead_letter_list *letters = NULL;
    run(f, "o");
    OK(f, dur_client_enqueue(f->client, &f->err, "o", "q", "x"));
    turn t = turn_begin(f);
    OK(f, dur_store_dead_letter_messages(f->bench->store, "o", &t.item.messages[0].id, 1, "unreadable", &f->err));
    OK(f, dur_client_dead_letters(&letters, f->client, 0, 0, &f->err));
    assert_int_equal(letters->count, 1);
    assert_string_equal(letters->items[0].instance, "o");
    assert_string_equal(letters->items[0].reason, "unreadable");
    assert_non_null(strstr(letters->items[0].message, "QueueMessage"));
    uint64_t id = letters->items[0].id;
    dur_dead_letter_list_free(letters);
    OK(f, dur_client_dead_letters(&letters, f->client, id, 10, &f->err));
    assert_int_equal(letters->count, 0);
    dur_dead_letter_list_free(letters);
    OK(f, dur_client_dead_letters_delete(f->client, &id, 1, &f->err));
    OK(f, dur_client_dead_letters(&letters, f->client, 0, 10, &f->err));
    assert_int_equal(letters->count, 0);
    dur_dead_letter_list_free(letters);
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
    REFUSED(f, DUR_ECANCELLED, "canceled: r", dur_client_result(&text, f->client, "p", 1000, &f->err));
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
    assert_int_equal(dur_open(&store, url, &err), DUR_OK);
    assert_int_equal(dur_client_new(&client, store, &err), DUR_OK);
    dur_provider_close(store);
    assert_int_equal(dur_client_start(client, &err, "Order", "", .instance = "o"), DUR_OK);
    dur_client_free(client);
}

static void names(void **state) {
    (void)state;
    assert_string_equal(dur_instance_status_name(DUR_INSTANCE_NOT_FOUND), "NotFound");
    assert_string_equal(dur_instance_status_name(DUR_INSTANCE_FAILED), "Failed");
    assert_string_equal(dur_instance_status_name((dur_instance_status)44), "?");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(starts_are_checked),
        TEST(messages_are_checked),
        TEST(looking_is_checked),
        TEST(the_rest_is_checked),
        TEST(an_instance_through_its_life),
        TEST(start_policies),
        TEST(a_message_id_is_accepted_once),
        TEST(failures_are_told_apart),
        TEST(time_runs_out),
        TEST(waiters_are_woken),
        TEST(suspended_and_resumed),
        TEST(terminate_a_running_one),
        TEST(terminate_a_suspended_one),
        TEST(terminate_before_the_first_turn),
        TEST(terminate_between_generations),
        TEST(terminate_tells_parent_and_children),
        TEST(terminate_over_a_broken_history),
        TEST(terminate_looks_again),
        TEST(lists_come_in_pages),
        TEST(shorter_results_are_not_overrun),
        TEST(histories_are_given_as_stored),
        TEST(old_generations_are_pruned),
        TEST(dead_letters_are_shown_and_removed),
        TEST(a_bare_store_serves_clients_too),
        TEST(a_forked_child_is_refused),
        TEST(a_client_outlives_its_handle),
        cmocka_unit_test(names),
    };
    static const char *const urls[] = { "memory:", "sqlite::memory:" };
    int failed = 0;
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        url = urls[i];
        failed += cmocka_run_group_tests_name(url, tests, NULL, NULL);
    }
    return failed;
}
