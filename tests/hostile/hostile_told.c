/*
 * hostile_told.c: what a client does on purpose is no error of the node that it is done to (H103).
 */
#include "hostile.h"

enum { MESSAGES = 80 }; /* more than come with an acquisition: the node reads on in the queue */

static atomic_bool has_begun, may_go_on;
static atomic_uint loud;

static void listen_for_errors(void *data, const dur_log_record *line) {
    (void)data;
    if (line->level > DUR_LOG_WARN || strstr(line->message, "has not come back") != NULL) return;
    atomic_fetch_add(&loud, 1);
    print_message("%s %s\n", dur_log_level_name(line->level), line->message);
}

/* Stands still in its first turn, until the test has taken its lease away. */
static dur_outcome reads_all(dur_ctx *ctx, const char *input) {
    atomic_store(&has_begun, true);
    for (uint64_t end_ms = now_ms() + patience_ms(); !atomic_load(&may_go_on) && now_ms() < end_ms;)
        pause_ms(1);
    const char *value = NULL;
    unsigned count = 0;
    (void)input;
    while (dur_try_dequeue(ctx, "box", &value) == DUR_OK)
        count++;
    return dur_completef(ctx, "%u", count);
}

static const dur_handler handlers[] = { DUR_ORCHESTRATION("ReadsAll", "1.0.0", reads_all), DUR_HANDLERS_END };

static void fault_h103_whose_instance_is_suspended_says_no_error(void **state) {
    world *w = *state;
    NEEDS_THREADS("a handler stands still while a client calls");
    atomic_store(&has_begun, false);
    atomic_store(&may_go_on, false);
    atomic_store(&loud, 0);
    start(w, "ReadsAll", "", "a");
    for (int i = 0; i < MESSAGES; i++)
        OK(w, dur_client_enqueue(w->client, &w->err, "a", "box", "x"));
    dur_log_set_sink(listen_for_errors, NULL, DUR_LOG_DEBUG);
    RUN(w, handlers);
    while (!atomic_load(&has_begun))
        pause_ms(1);
    OK(w, dur_client_suspend(w->client, "a", "why not", &w->err));
    atomic_store(&may_go_on, true);
    OK(w, dur_client_resume(w->client, "a", &w->err));
    expect(w, "a", "80");
    dur_log_set_sink(NULL, NULL, DUR_LOG_DEBUG);
    assert_int_equal(atomic_load(&loud), 0);
}

static const struct CMUnitTest tests[] = { TEST(fault_h103_whose_instance_is_suspended_says_no_error) };

int main(void) {
    return cmocka_run_group_tests(tests, NULL, NULL);
}
