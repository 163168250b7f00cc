/*
 * test_client_refused.c: what each client call says of bad arguments.
 */
#include "client_help.h"

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
            i == 0 ? dur_client_pulse_ex : dur_client_send_ex;
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
    REFUSED(f, DUR_EINVAL, "instances is NULL",
            dur_client_prune_bulk(NULL, c, DUR_BULK(.instance_count = 2), DUR_PRUNE(.keep_last = 1), &f->err));
    REFUSED(f, DUR_EINVAL, "out is required", dur_client_dead_letters(NULL, c, 0, 0, &f->err));
    REFUSED(f, DUR_ELIMIT, "limit is", dur_client_dead_letters(&letters, c, 0, SIZE_MAX, &f->err));
    REFUSED(f, DUR_EINVAL, "ids are required", dur_client_dead_letters_delete(c, NULL, 3, &f->err));
    OK(f, dur_client_dead_letters_delete(c, NULL, 0, &f->err));
}

static void runs_are_checked(void **state) {
    fixture *f = *state;
    dur_client *c = f->client;
    dur_runs *runs = NULL;
    const dur_run *run;
    REFUSED(f, DUR_EINVAL, "out is required", dur_runs_new(NULL, c, &f->err));
    REFUSED(f, DUR_EINVAL, "client is required", dur_runs_new(&runs, NULL, &f->err));
    assert_null(runs);
    OK(f, dur_runs_new(&runs, c, &f->err));
    REFUSED(f, DUR_EINVAL, "runs are required", dur_runs_start(NULL, &f->err, "Order", "", .instance = "i"));
    REFUSED(f, DUR_EINVAL, "args are required", dur_runs_start_ex(runs, NULL, &f->err));
    REFUSED(f, DUR_EINVAL, "size", dur_runs_start_ex(runs, &(dur_start_args){ .name = "Order" }, &f->err));
    REFUSED(f, DUR_EINVAL, "name is required", dur_runs_start(runs, &f->err, NULL, "", .instance = "i"));
    REFUSED(f, DUR_EINVAL, "instance is required", dur_runs_start(runs, &f->err, "Order", ""));
    REFUSED(f, DUR_EINVAL, "which is no policy",
            dur_runs_start(runs, &f->err, "Order", "", .instance = "i", .exists = (dur_start_policy)9));
    REFUSED(f, DUR_EINVAL, "runs are required", dur_runs_watch(NULL, "i", NULL, &f->err));
    REFUSED(f, DUR_EINVAL, "instance is required", dur_runs_watch(runs, NULL, NULL, &f->err));
    REFUSED(f, DUR_EINVAL, "runs are required", dur_runs_flush(NULL, &f->err));
    REFUSED(f, DUR_EINVAL, "out is required", dur_runs_next(NULL, runs, 0, &f->err));
    REFUSED(f, DUR_EINVAL, "runs are required", dur_runs_next(&run, NULL, 0, &f->err));
    REFUSED(f, DUR_ESTATE, "no run to wait for", dur_runs_next(&run, runs, 0, &f->err));
    assert_int_equal(dur_runs_count(NULL), 0);
    assert_int_equal(dur_runs_count(runs), 0);
    dur_runs_free(runs);
    dur_runs_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(starts_are_checked),  TEST(messages_are_checked), TEST(looking_is_checked),
        TEST(the_rest_is_checked), TEST(runs_are_checked),
    };
    RUN_ON_ALL(tests);
}
