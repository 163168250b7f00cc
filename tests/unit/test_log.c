/*
 * test_log.c: the sink of the process and the two ready sinks.
 */
#include "obs/log_internal.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct seen {
    size_t count;
    dur_log_level level;
    char target[64];
    char message[4096];
    char key[64];
    char text[64];
    int64_t number;
    size_t fields;
} seen;

static void remember(void *data, const dur_log_record *record) {
    seen *s = data;
    s->count++;
    s->level = record->level;
    s->fields = record->field_count;
    snprintf(s->target, sizeof(s->target), "%s", record->target);
    snprintf(s->message, sizeof(s->message), "%s", record->message);
    for (size_t i = 0; i < record->field_count; i++) {
        if (record->fields[i].text != NULL) {
            snprintf(s->key, sizeof(s->key), "%s", record->fields[i].key);
            snprintf(s->text, sizeof(s->text), "%s", record->fields[i].text);
        } else {
            s->number = record->fields[i].number;
        }
    }
}

static int no_sink(void **state) {
    (void)state;
    return dur_log_set_sink(NULL, NULL, DUR_LOG_ERROR);
}

/* ---- the sink ---------------------------------------------------------------------------------------------------- */

static void nothing_is_enabled_without_a_sink(void **state) {
    (void)state;
    assert_false(dur__log_enabled(DUR_LOG_ERROR));
    dur__log(DUR_LOG_ERROR, DUR__LOG_RUNTIME, NULL, 0, "to nobody");
}

static void a_sink_gets_records_up_to_its_level(void **state) {
    (void)state;
    seen s = { 0 };
    assert_int_equal(dur_log_set_sink(remember, &s, DUR_LOG_INFO), DUR_OK);
    assert_true(dur__log_enabled(DUR_LOG_ERROR));
    assert_true(dur__log_enabled(DUR_LOG_INFO));
    assert_false(dur__log_enabled(DUR_LOG_DEBUG));
    dur__log(DUR_LOG_DEBUG, DUR__LOG_RUNTIME, NULL, 0, "not this one");
    assert_int_equal(s.count, 0);
    dur__log(DUR_LOG_WARN, DUR__LOG_PROVIDER, DUR__FIELDS(DUR__TEXT("instance_id", "i-1"), DUR__NUMBER("turn", -7)),
             "commit %s", "failed");
    assert_int_equal(s.count, 1);
    assert_int_equal(s.level, DUR_LOG_WARN);
    assert_string_equal(s.target, "durite::provider");
    assert_string_equal(s.message, "commit failed");
    assert_int_equal(s.fields, 2);
    assert_string_equal(s.key, "instance_id");
    assert_string_equal(s.text, "i-1");
    assert_int_equal(s.number, -7);
}

static void a_removed_sink_gets_nothing(void **state) {
    (void)state;
    seen s = { 0 };
    assert_int_equal(dur_log_set_sink(remember, &s, DUR_LOG_TRACE), DUR_OK);
    assert_int_equal(dur_log_set_sink(NULL, NULL, DUR_LOG_TRACE), DUR_OK);
    assert_false(dur__log_enabled(DUR_LOG_ERROR));
    dur__log(DUR_LOG_ERROR, DUR__LOG_RUNTIME, NULL, 0, "gone");
    assert_int_equal(s.count, 0);
}

static void a_level_that_does_not_exist_is_refused(void **state) {
    (void)state;
    seen s = { 0 };
    assert_int_equal(dur_log_set_sink(remember, &s, (dur_log_level)5), DUR_EINVAL);
    assert_int_equal(dur_log_set_sink(remember, &s, (dur_log_level)-1), DUR_EINVAL);
    assert_false(dur__log_enabled(DUR_LOG_ERROR));
    assert_string_equal(dur_log_level_name(DUR_LOG_ERROR), "error");
    assert_string_equal(dur_log_level_name(DUR_LOG_TRACE), "trace");
    assert_string_equal(dur_log_level_name((dur_log_level)17), "?");
}

static void a_message_is_one_line_and_is_cut_between_characters(void **state) {
    (void)state;
    seen s = { 0 };
    assert_int_equal(dur_log_set_sink(remember, &s, DUR_LOG_INFO), DUR_OK);
    dur__log(DUR_LOG_INFO, DUR__LOG_RUNTIME, NULL, 0, "a\r\nb%sc", "\n");
    assert_string_equal(s.message, "a  b c");
    char text[8001];
    for (size_t i = 0; i < 8000; i += 2)
        memcpy(text + i, "\xc3\xa9", 2);
    text[8000] = '\0';
    dur__log(DUR_LOG_INFO, DUR__LOG_RUNTIME, NULL, 0, "x%s", text);
    size_t length = strlen(s.message);
    assert_in_range(length, 2000, 2047);
    assert_memory_equal(s.message + length - 2, "\xc3\xa9", 2);
}

static void errno_survives_a_log_line(void **state) {
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    assert_int_equal(dur_log_set_sink(dur_log_text, full, DUR_LOG_INFO), DUR_OK);
    errno = EAGAIN;
    dur__log(DUR_LOG_INFO, DUR__LOG_RUNTIME, NULL, 0, "no space left for this");
    assert_int_equal(errno, EAGAIN);
    no_sink(NULL);
    fclose(full);
}

/* ---- sinks and threads ------------------------------------------------------------------------------------------- */

static void set_from_inside(void *data, const dur_log_record *record) {
    (void)record;
    int *code = data;
    *code = dur_log_set_sink(NULL, NULL, DUR_LOG_INFO);
}

static void setting_a_sink_from_a_sink_would_wait_for_itself(void **state) {
    (void)state;
    int code = DUR_OK;
    assert_int_equal(dur_log_set_sink(set_from_inside, &code, DUR_LOG_INFO), DUR_OK);
    dur__log(DUR_LOG_INFO, DUR__LOG_RUNTIME, NULL, 0, "line");
    assert_int_equal(code, DUR_EDEADLK);
    code = DUR_OK;
    dur__log(DUR_LOG_INFO, DUR__LOG_RUNTIME, NULL, 0, "the sink is still there");
    assert_int_equal(code, DUR_EDEADLK);
}

static void log_from_inside(void *data, const dur_log_record *record) {
    (void)record;
    ++*(int *)data;
    dur__log(DUR_LOG_ERROR, DUR__LOG_RUNTIME, NULL, 0, "again");
}

static void a_sink_that_logs_is_not_called_by_itself(void **state) {
    (void)state;
    int calls = 0;
    assert_int_equal(dur_log_set_sink(log_from_inside, &calls, DUR_LOG_INFO), DUR_OK);
    dur__log(DUR_LOG_INFO, DUR__LOG_RUNTIME, NULL, 0, "once");
    assert_int_equal(calls, 1);
}

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool inside, open, removed;
} gate;

static void wait_at_gate(void *data, const dur_log_record *record) {
    (void)record;
    gate *g = data;
    pthread_mutex_lock(&g->lock);
    g->inside = true;
    pthread_cond_broadcast(&g->changed);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void *log_one(void *arg) {
    (void)arg;
    dur__log(DUR_LOG_INFO, DUR__LOG_RUNTIME, NULL, 0, "line");
    return NULL;
}

static void *remove_sink(void *arg) {
    gate *g = arg;
    dur_log_set_sink(NULL, NULL, DUR_LOG_INFO);
    pthread_mutex_lock(&g->lock);
    g->removed = true;
    assert_true(g->open); /* not before the sink could return */
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

static void setting_a_sink_waits_until_nobody_is_inside_the_old_one(void **state) {
    (void)state;
    gate g = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false, false };
    pthread_t logger, remover;
    assert_int_equal(dur_log_set_sink(wait_at_gate, &g, DUR_LOG_INFO), DUR_OK);
    assert_int_equal(pthread_create(&logger, NULL, log_one, NULL), 0);
    pthread_mutex_lock(&g.lock);
    while (!g.inside)
        pthread_cond_wait(&g.changed, &g.lock);
    pthread_mutex_unlock(&g.lock);

    assert_int_equal(pthread_create(&remover, NULL, remove_sink, &g), 0);
    while (dur__log_enabled(DUR_LOG_ERROR)) /* the remover has come to its wait, or is about to */
        usleep(100);
    usleep(2000);
    pthread_mutex_lock(&g.lock);
    assert_false(g.removed);
    g.open = true;
    pthread_cond_broadcast(&g.changed);
    pthread_mutex_unlock(&g.lock);
    pthread_join(remover, NULL);
    pthread_join(logger, NULL);
    assert_true(g.removed);
}

/* A sink's data is alive only while it is set: the sink checks, the setters end it when they have replaced it. */
typedef struct mortal {
    atomic_bool alive;
    atomic_uint calls;
} mortal;

static void check_alive(void *data, const dur_log_record *record) {
    (void)record;
    mortal *m = data;
    if (!atomic_load_explicit(&m->alive, memory_order_relaxed)) abort();
    atomic_fetch_add_explicit(&m->calls, 1, memory_order_relaxed);
}

static atomic_bool stop;

static void *log_until_stopped(void *arg) {
    (void)arg;
    while (!atomic_load(&stop))
        dur__log(DUR_LOG_INFO, DUR__LOG_RUNTIME, NULL, 0, "line");
    return NULL;
}

static void *replace_sinks(void *arg) {
    size_t rounds = *(size_t *)arg;
    mortal own[2];
    for (size_t i = 0; i < rounds; i++) {
        mortal *m = &own[i % 2];
        atomic_store_explicit(&m->alive, true, memory_order_relaxed);
        dur_log_set_sink(check_alive, m, DUR_LOG_INFO);
        /* Another thread may have replaced it by now; either way nobody is inside ours after this. */
        dur_log_set_sink(NULL, NULL, DUR_LOG_INFO);
        atomic_store_explicit(&m->alive, false, memory_order_relaxed);
    }
    return NULL;
}

static void sinks_are_replaced_under_fire(void **state) {
    (void)state;
    const char *scale = getenv("DURITE_TEST_SCALE");
    size_t rounds = 20000 * (scale != NULL ? strtoul(scale, NULL, 10) : 100) / 100;
    pthread_t loggers[2], setters[2];
    atomic_store(&stop, false);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&loggers[i], NULL, log_until_stopped, NULL), 0);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&setters[i], NULL, replace_sinks, &rounds), 0);
    for (size_t i = 0; i < 2; i++)
        pthread_join(setters[i], NULL);
    atomic_store(&stop, true);
    for (size_t i = 0; i < 2; i++)
        pthread_join(loggers[i], NULL);
}

static void a_forked_child_does_not_wait_for_threads_it_does_not_have(void **state) {
    (void)state;
    gate g = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false, false };
    pthread_t logger;
    assert_int_equal(dur_log_set_sink(wait_at_gate, &g, DUR_LOG_INFO), DUR_OK);
    assert_int_equal(pthread_create(&logger, NULL, log_one, NULL), 0);
    pthread_mutex_lock(&g.lock);
    while (!g.inside)
        pthread_cond_wait(&g.changed, &g.lock);
    pthread_mutex_unlock(&g.lock);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        _exit(dur_log_set_sink(NULL, NULL, DUR_LOG_INFO) == DUR_OK ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    pthread_mutex_lock(&g.lock);
    g.open = true;
    pthread_cond_broadcast(&g.changed);
    pthread_mutex_unlock(&g.lock);
    pthread_join(logger, NULL);
    assert_int_equal(status, 0);
}

/* ---- the ready sinks --------------------------------------------------------------------------------------------- */

static char output[20000];

static const char *written(dur_log_fn *sink, const dur_log_record *record) {
    memset(output, 0, sizeof(output));
    FILE *file = fmemopen(output, sizeof(output) - 1, "w");
    assert_non_null(file);
    sink(file, record);
    fclose(file);
    return output;
}

static const dur_log_field fields[] = { { "instance_id", "order 7", 0 }, { "turn", NULL, 12 }, { "kind", "start", 0 } };

static void a_text_line_has_time_level_target_message_and_fields(void **state) {
    (void)state;
    dur_log_record record = {
        sizeof(record), 1700000000123, DUR_LOG_WARN, "durite::runtime", "a \"slow\" turn", fields, 3
    };
    assert_string_equal(written(dur_log_text, &record),
                        "2023-11-14T22:13:20.123Z warn durite::runtime a \"slow\" turn instance_id=\"order 7\" turn=12 "
                        "kind=start\n");
}

static void a_json_line_is_one_object(void **state) {
    (void)state;
    dur_log_record record = {
        sizeof(record), 1700000000123, DUR_LOG_ERROR, "durite::runtime", "a \"slow\" turn", fields, 3
    };
    assert_string_equal(written(dur_log_json, &record),
                        "{\"time\":\"2023-11-14T22:13:20.123Z\",\"level\":\"error\",\"target\":\"durite::runtime\","
                        "\"message\":\"a \\\"slow\\\" turn\",\"fields\":{\"instance_id\":\"order 7\",\"turn\":12,"
                        "\"kind\":\"start\"}}\n");
}

static void control_characters_and_bytes_that_are_no_text_are_escaped(void **state) {
    (void)state;
    /* escape, newline, tab, DEL, a C1 control in UTF-8, a lone continuation byte, a cut sequence */
    const dur_log_field hostile[] = { { "k", "\x1b[2J\n\t\x7f\xc2\x9b\x80\xe2\x82", 0 } };
    dur_log_record record = { sizeof(record), 0, DUR_LOG_INFO, "t", "\x1b]0;title\x07 caf\xc3\xa9", hostile, 1 };
    assert_string_equal(written(dur_log_text, &record),
                        "1970-01-01T00:00:00.000Z info t \\x1b]0;title\\x07 caf\xc3\xa9 "
                        "k=\"\\x1b[2J\\n\\t\\x7f\\x9b\\x80\\xe2\\x82\"\n");
    assert_string_equal(written(dur_log_json, &record),
                        "{\"time\":\"1970-01-01T00:00:00.000Z\",\"level\":\"info\",\"target\":\"t\",\"message\":"
                        "\"\\u001b]0;title\\u0007 caf\xc3\xa9\",\"fields\":{\"k\":\"\\u001b[2J\\n\\t\\u007f\\u009b"
                        "\\ufffd\\ufffd\\ufffd\"}}\n");
}

static void no_line_is_longer_than_8_kib_and_a_cut_one_says_so(void **state) {
    (void)state;
    char *longer = malloc(10001);
    dur_log_field many[40];
    for (size_t size = 0; size <= 10000; size += size < 100 ? 1 : 97) {
        memset(longer, size % 3 == 0 ? 'a' : '\n', size);
        longer[size] = '\0';
        for (size_t i = 0; i < 40; i++)
            many[i] = (dur_log_field){ "key", i % 2 == 0 ? longer : NULL, 5 };
        dur_log_record record = { sizeof(record), 0, DUR_LOG_INFO, longer, longer, many, 40 };

        const char *text = written(dur_log_text, &record);
        size_t length = strlen(text);
        assert_in_range(length, 1, 8192);
        assert_ptr_equal(strchr(text, '\n'), text + length - 1);
        const char *json = written(dur_log_json, &record);
        length = strlen(json);
        assert_in_range(length, 1, 8192);
        assert_ptr_equal(strchr(json, '\n'), json + length - 1);
        if (size > 600) {
            assert_string_equal(json + length - strlen("},\"truncated\":true}\n"), "},\"truncated\":true}\n");
        } else if (size < 20) {
            assert_string_equal(json + length - 3, "}}\n");
        }
        /* Quotes pair up and braces close: what is between quotes has no bare quote, escapes are whole. */
        int depth = 0;
        bool quoted = false;
        for (const char *at = json; *at != '\n'; at++) {
            if (*at == '\\') {
                assert_true(quoted);
                assert_non_null(strchr("\"\\nrtu", *++at));
            } else if (*at == '"') {
                quoted = !quoted;
            } else if (!quoted) {
                depth += *at == '{' ? 1 : *at == '}' ? -1 : 0;
            }
        }
        assert_false(quoted);
        assert_int_equal(depth, 0);
    }
    free(longer);
}

static void a_ready_sink_without_file_or_record_does_nothing(void **state) {
    (void)state;
    dur_log_record record = { sizeof(record), 0, DUR_LOG_INFO, NULL, NULL, NULL, 0 };
    dur_log_text(NULL, &record);
    dur_log_json(NULL, &record);
    dur_log_text(stderr, NULL);
    dur_log_json(stderr, NULL);
    assert_string_equal(written(dur_log_text, &record), "1970-01-01T00:00:00.000Z info - \n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(nothing_is_enabled_without_a_sink, no_sink),
        cmocka_unit_test_teardown(a_sink_gets_records_up_to_its_level, no_sink),
        cmocka_unit_test_teardown(a_removed_sink_gets_nothing, no_sink),
        cmocka_unit_test_teardown(a_level_that_does_not_exist_is_refused, no_sink),
        cmocka_unit_test_teardown(a_message_is_one_line_and_is_cut_between_characters, no_sink),
        cmocka_unit_test_teardown(errno_survives_a_log_line, no_sink),
        cmocka_unit_test_teardown(setting_a_sink_from_a_sink_would_wait_for_itself, no_sink),
        cmocka_unit_test_teardown(a_sink_that_logs_is_not_called_by_itself, no_sink),
        cmocka_unit_test_teardown(setting_a_sink_waits_until_nobody_is_inside_the_old_one, no_sink),
        cmocka_unit_test_teardown(sinks_are_replaced_under_fire, no_sink),
        cmocka_unit_test_teardown(a_forked_child_does_not_wait_for_threads_it_does_not_have, no_sink),
        cmocka_unit_test(a_text_line_has_time_level_target_message_and_fields),
        cmocka_unit_test(a_json_line_is_one_object),
        cmocka_unit_test(control_characters_and_bytes_that_are_no_text_are_escaped),
        cmocka_unit_test(no_line_is_longer_than_8_kib_and_a_cut_one_says_so),
        cmocka_unit_test(a_ready_sink_without_file_or_record_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
