/*
 * test_provider_open.c: URLs, schemes, counted handles, argument checks and forks.
 */
#include "store_help.h"

#include <sys/wait.h>
#include <unistd.h>

static void opens_memory(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    assert_string_equal(dur_provider_name(b->store), "memory");
    assert_int_equal(dur_store_now_ms(b->store), START_MS);
    ASSERT_OK(b, dur_provider_check(b->store, &b->err));
    assert_int_equal(dur_provider_backup(b->store, "x", &b->err), DUR_EUNSUPPORTED);
    assert_non_null(strstr(b->err.message, "backup"));
    assert_int_equal(dur_provider_vacuum(b->store, 1, NULL, &b->err), DUR_EUNSUPPORTED);
    bench_close(b);
}

static void refuses_bad_urls(void **state) {
    (void)state;
    dur_provider *store = (dur_provider *)0x1;
    dur_error err = DUR_ERROR_INIT;
    const char *bad[] = { "", "memory", ":x", "1x:y", "nosuch:thing", "memory:?poll=sometimes", "mem ory:" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(dur_open(&store, bad[i], &err), DUR_EINVAL);
        assert_null(store);
        assert_true(err.message[0] != '\0');
    }
    assert_int_equal(dur_open(&store, NULL, &err), DUR_EINVAL);
    assert_int_equal(dur_open(NULL, "memory:", &err), DUR_EINVAL);
}

static void names_the_postgres_package(void **state) {
    (void)state;
    dur_provider *store;
    dur_error err = DUR_ERROR_INIT;
    int code = dur_open(&store, "postgresql://127.0.0.1:1/none", &err);
    if (code == DUR_ENOTFOUND) assert_non_null(strstr(err.message, "libdurite-postgres"));
    assert_int_not_equal(code, DUR_OK);
}

static void shares_by_name(void **state) {
    (void)state;
    bench *b = bench_open("memory:shared-by-name");
    dur_provider *other;
    ASSERT_OK(b, dur_open(&other, "memory:shared-by-name", &b->err));
    make_running(b, "a");
    dur_event_row *rows;
    size_t count;
    ASSERT_OK(b, dur_store_read(other, b->arena, "a", 0, &rows, &count, &b->err));
    assert_int_equal(count, 1);
    dur_provider *third;
    ASSERT_OK(b, dur_open(&third, "memory:", &b->err));
    ASSERT_OK(b, dur_store_read(third, b->arena, "a", 0, &rows, &count, &b->err));
    assert_int_equal(count, 0);
    dur_provider_close(third);
    dur_provider_close(b->store);
    b->store = other; /* the store lives on in the other handle */
    ASSERT_OK(b, dur_store_read(other, b->arena, "a", 0, &rows, &count, &b->err));
    assert_int_equal(count, 1);
    dur_provider_close(other);
    ASSERT_OK(b, dur_open(&b->store, "memory:shared-by-name", &b->err)); /* and not longer */
    ASSERT_OK(b, dur_store_read(b->store, b->arena, "a", 0, &rows, &count, &b->err));
    assert_int_equal(count, 0);
    bench_close(b);
}

static int open_registered(dur_provider **out, const char *url, const dur_open_options *options, dur_error *err) {
    assert_string_equal(url, "my-store:x?y");
    return dur_open_ex(out, "memory:", options, err);
}

static void registers_schemes(void **state) {
    (void)state;
    dur_error err = DUR_ERROR_INIT;
    dur_provider *store;
    assert_int_equal(dur_provider_register("my-store", open_registered, &err), DUR_OK);
    assert_int_equal(dur_provider_register("my-store", open_registered, &err), DUR_EEXISTS);
    assert_int_equal(dur_provider_register("memory", open_registered, &err), DUR_EEXISTS);
    assert_int_equal(dur_provider_register("sqlite", open_registered, &err), DUR_EEXISTS);
    assert_int_equal(dur_provider_register("a b", open_registered, &err), DUR_EINVAL);
    assert_int_equal(dur_provider_register("", open_registered, &err), DUR_EINVAL);
    assert_int_equal(dur_provider_register(NULL, open_registered, &err), DUR_EINVAL);
    assert_int_equal(dur_open(&store, "my-store:x?y", &err), DUR_OK);
    dur_provider_close(store);
}

static void counts_handles(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    assert_ptr_equal(dur_store_retain(b->store), b->store);
    dur_provider_close(b->store);
    assert_int_equal(dur_store_now_ms(b->store), START_MS); /* still open */
    dur_provider_close(NULL);
    bench_close(b);
}

static void refuses_in_a_forked_child(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dur_message_row start = message_of(DUR_WORK_START_ORCHESTRATION, "a");
        dur_error err = DUR_ERROR_INIT;
        bool ok = dur_store_enqueue_for_orchestrator(b->store, &start, 0, &err) == DUR_EFORKED;
        dur_provider_close(b->store);
        execl("/bin/sh", "sh", "-c", ok ? "exit 0" : "exit 1", (char *)NULL); /* valgrind judges no leaks there */
        _exit(1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    bench_close(b);
}

static void checks_arguments(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    dur_message_row m = message_of(DUR_WORK_START_ORCHESTRATION, NULL);
    static char longer[1100];
    memset(longer, 'x', sizeof(longer) - 1);
    assert_int_equal(dur_store_enqueue_for_orchestrator(b->store, NULL, 0, &b->err), DUR_EINVAL);
    assert_int_equal(dur_store_enqueue_for_orchestrator(b->store, &m, 0, &b->err), DUR_EINVAL);
    m.instance = "";
    assert_int_equal(dur_store_enqueue_for_orchestrator(b->store, &m, 0, &b->err), DUR_EINVAL);
    m.instance = "bad\xff";
    assert_int_equal(dur_store_enqueue_for_orchestrator(b->store, &m, 0, &b->err), DUR_EINVAL);
    m.instance = longer;
    assert_int_equal(dur_store_enqueue_for_orchestrator(b->store, &m, 0, &b->err), DUR_ELIMIT);
    m.instance = "a";
    m.json.data = NULL;
    assert_int_equal(dur_store_enqueue_for_orchestrator(b->store, &m, 0, &b->err), DUR_EINVAL);
    m = queue_of("a", NULL, NULL);
    assert_int_equal(dur_store_enqueue_for_orchestrator(b->store, &m, 0, &b->err), DUR_EINVAL);
    assert_int_equal(dur_store_enqueue_for_orchestrator(NULL, &m, 0, &b->err), DUR_EINVAL);
    assert_int_equal(dur_store_ack_orchestration_item(b->store, NULL, &b->err), DUR_EINVAL);
    dur_turn_commit turn = { .lock_token = NULL };
    assert_int_equal(dur_store_ack_orchestration_item(b->store, &turn, NULL), DUR_EINVAL);
    assert_int_equal(turn.error.code, DUR_EINVAL);
    assert_int_equal(dur_store_fetch_orchestration_item(b->store, b->arena, NULL, NULL, &b->err), DUR_EINVAL);
    assert_int_equal(dur_store_delete_instances(b->store, NULL, 2, false, NULL, &b->err), DUR_EINVAL);
    assert_int_equal(dur_store_lane_round(NULL, b->arena, NULL, &b->err), DUR_EINVAL);
    dur_store_lane_close(NULL);
    dur_store_watch_close(NULL);
    assert_true(dur_store_has(b->store, "lane_open"));
    assert_false(dur_store_has(b->store, "backup"));
    assert_false(dur_store_has(b->store, "nonsense"));
    bench_close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_memory),
        cmocka_unit_test(refuses_bad_urls),
        cmocka_unit_test(names_the_postgres_package),
        cmocka_unit_test(shares_by_name),
        cmocka_unit_test(registers_schemes),
        cmocka_unit_test(counts_handles),
        cmocka_unit_test(refuses_in_a_forked_child),
        cmocka_unit_test(checks_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
