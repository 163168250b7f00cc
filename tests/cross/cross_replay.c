/*
 * cross_replay: histories that one build recorded must fit another build of the same source.
 *
 *   cross_replay record FOLDER    run orchestrations that use everything a handler may call, save each execution's
 *                                 history, and some as they stood half-way
 *   cross_replay replay FOLDER    replay what is saved; the last line is "N replayed, N differ"
 *   cross_replay                  as a test: both in this build, TAP
 *
 * Handlers are a random program per seed and a few that are fixed.  One is wrong on purpose: it makes two calls in one
 * argument list, which gcc and clang evaluate in opposite order.  Its history goes to FOLDER/control, and whoever
 * compares two compilers must see it refused.  DURITE_TEST_SCALE (percent) scales the number of seeds.
 */
#include "unit/random_program.h"
#include "unit/workload.h"
#include <dirent.h>
#include <durite/replay.h>
#include <durite/sys/event.h>
#include <sys/stat.h>

#define ONE_MORE_(upper, name, role) +1
enum { EVENT_KINDS = 0 DUR_EVENT_KINDS(ONE_MORE_) };

enum { SEEDS = 300 };

/* ---- handlers ---------------------------------------------------------------------------------------------------- */

/* Ends as the digest in its input says, so that both ways and several durations are met. */
static dur_outcome by_digest(dur_act *act, const char *input) {
    uint64_t digest = hash_text(dur_act_attempt(act), input);
    if (digest % 4 == 0 && dur_act_sleep(act, digest / 4 % 50)) return dur_act_fail(act, "given up");
    if (digest % 3 == 0) return dur_act_failf(act, "no %" PRIx64, digest & 0xff);
    if (digest % 31 == 1) return dur_act_fail_final(act, "never");
    return dur_act_completef(act, "a%" PRIx64, digest & 0xffff);
}

static dur_outcome child_by_digest(dur_ctx *ctx, const char *input) {
    uint64_t digest = hash_text(0, input);
    const char *value = "";
    dur_try(dur_activity(ctx, "A", input), &value);
    if (digest % 3 == 0) dur_await(dur_timer(ctx, digest % 20));
    if (digest % 5 == 0) return dur_failf(ctx, "child of %s cannot", dur_parent_instance(ctx));
    return dur_complete(ctx, value);
}

static dur_outcome detached(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, input);
}

/* Whose keys are read from elsewhere; never ends by itself. */
static dur_outcome holder(dur_ctx *ctx, const char *input) {
    dur_kv_set(ctx, "key", input);
    dur_kv_set(ctx, "gone", "soon");
    dur_kv_clear_all(ctx);
    dur_kv_set(ctx, "key", input);
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "never")));
}

static dur_outcome travel(dur_ctx *ctx, const char *last) {
    dur_saga *saga = dur_saga_begin(ctx);
    const char *flight = dur_await(dur_activity(ctx, "Echo", "flight"));
    dur_saga_undo(saga, "Echo", flight);
    const char *hotel = dur_await(dur_activity(ctx, "Echo", "hotel"));
    dur_saga_undo(saga, "Refuse", hotel, .retry = DUR_RETRY(.attempts_max = 2, .delay_ms = 1));
    dur_future *car = dur_activity(ctx, last, "car");
    if (dur_try(car, NULL) == DUR_OK) return dur_complete(ctx, hotel);
    return dur_failf(ctx, "%s; %zu could not be undone", dur_reason(car), dur_saga_compensate(saga));
}

/* Its child fails, whatever else is lucky enough to. */
static dur_outcome agency(dur_ctx *ctx, const char *last) {
    dur_future *trip = dur_orchestration(ctx, "Travel", last);
    return dur_complete(ctx, dur_try(trip, NULL) == DUR_OK ? "gone" : dur_reason(trip));
}

static dur_outcome fan_out(dur_ctx *ctx, const char *input) {
    dur_future *all[100];
    for (size_t i = 0; i < 100; i++)
        all[i] = dur_activity(ctx, "A", dur_format(ctx, "%s %zu", input, i));
    dur_join_n(all, 100);
    uint64_t digest = 0;
    for (size_t i = 0; i < 100; i++)
        digest = hash_text(digest, dur_code_of(all[i]) == DUR_OK ? dur_await(all[i]) : dur_reason(all[i]));
    return dur_completef(ctx, "%" PRIx64, digest);
}

static dur_outcome unordered(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_completef(ctx, "%s %s", dur_await(dur_activity(ctx, "Echo", "left")),
                         dur_await(dur_activity(ctx, "Echo", "right")));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("A", by_digest),
    DUR_ACTIVITY("R", by_digest),
    DUR_ACTIVITY("T", by_digest),
    DUR_ACTIVITY("Echo", work_echo),
    DUR_ACTIVITY("Refuse", work_refuse),
    DUR_ORCHESTRATION("Random", "1.0.0", random_program),
    DUR_ORCHESTRATION("C", "1.0.0", child_by_digest),
    DUR_ORCHESTRATION("D", "1.0.0", detached),
    DUR_ORCHESTRATION("Holder", "1.0.0", holder),
    DUR_ORCHESTRATION("Travel", "1.0.0", travel),
    DUR_ORCHESTRATION("Agency", "1.0.0", agency),
    DUR_ORCHESTRATION("FanOut", "1.0.0", fan_out),
    DUR_ORCHESTRATION("Child", "1.0.0", work_child),
    DUR_ORCHESTRATION("All", "1.0.0", work_all),
    DUR_ORCHESTRATION("Unordered", "1.0.0", unordered),
    DUR_HANDLERS_END,
};

/* ---- record ------------------------------------------------------------------------------------------------------ */

typedef struct recording {
    const char *folder;
    dur_provider *store;
    dur_runtime *runtime;
    dur_client *client;
    dur_error err;
    size_t files, saved;
    bool seen[EVENT_KINDS];
} recording;

static void give_up(const char *what, const char *why) {
    fprintf(stderr, "cross_replay: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}
#define MUST(r, call)                                                                                                  \
    do {                                                                                                               \
        if ((call) != DUR_OK) give_up(#call, (r)->err.message);                                                        \
    } while (0)

/* All executions up to this one, one per line: a later one finds the keys that an earlier one left. */
static void save(recording *r, const char *instance, uint64_t last) {
    char path[1024];
    bool control = strcmp(instance, "control") == 0;
    snprintf(path, sizeof(path), "%s%s/%04zu.histories", r->folder, control ? "/control" : "", r->files++);
    FILE *file = fopen(path, "w");
    if (file == NULL) give_up(path, "cannot be written");
    for (uint64_t execution = 1; execution <= last; execution++) {
        char *history = NULL;
        MUST(r, dur_client_history(&history, r->client, instance, execution, &r->err));
        if (fputs(history, file) < 0 || fputc('\n', file) < 0) give_up(path, "cannot be written");
        for (int kind = 0; kind < EVENT_KINDS; kind++) {
            char text[96];
            snprintf(text, sizeof(text), "\"type\":\"%s\"", dur_event_kind_name((dur_event_kind)kind));
            r->seen[kind] = r->seen[kind] || strstr(history, text) != NULL;
        }
        r->saved++;
        dur_free(history);
    }
    if (fclose(file) != 0) give_up(path, "cannot be written");
}

static void start_instance(recording *r, const char *name, const char *input, const char *instance) {
    MUST(r, dur_client_start(r->client, &r->err, name, input, .instance = instance));
}

/* Give an instance what it may wait for; true: it has ended.  Half-way histories are kept of a few. */
static bool feed(recording *r, const char *instance, size_t pass) {
    dur_instance_info *info = NULL;
    MUST(r, dur_client_info(&info, r->client, instance, &r->err));
    bool ended = info->status == DUR_INSTANCE_COMPLETED || info->status == DUR_INSTANCE_FAILED;
    bool suspended = info->suspended, begun = !info->start_pending;
    uint64_t execution = info->execution_id;
    if (suspended) give_up(instance, info->suspend_reason);
    dur_instance_info_free(info);
    if (ended) return true;
    static const char *const events[] = { "e0", "e1", "Go" }, *const queues[] = { "q0", "q1", "q" };
    for (size_t i = 0; i < 3; i++) {
        char data[32];
        snprintf(data, sizeof(data), "m%zu", pass);
        dur_client_pulse(r->client, NULL, instance, events[i], data);
        dur_client_send(r->client, NULL, instance, queues[i], data);
    }
    if (begun && hash_text(pass, instance) % 16 == 0) save(r, instance, execution);
    if (hash_text(pass, instance) % 61 == 0) dur_client_cancel(r->client, instance, "enough", NULL);
    return false;
}

static void save_everything(recording *r) {
    dur_instance_list *list = NULL;
    MUST(r, dur_client_list(&list, r->client, DUR_LIST(.limit = 100000), &r->err));
    for (size_t i = 0; i < list->count; i++)
        if (!list->items[i]->start_pending) save(r, list->items[i]->instance, list->items[i]->execution_id);
    dur_instance_list_free(list);
}

static void record(const char *folder) {
    recording *r = &(recording){ .folder = folder, .err = DUR_ERROR_INIT };
    char path[1024];
    snprintf(path, sizeof(path), "%s/control", folder);
    if ((mkdir(folder, 0777) != 0 && access(folder, W_OK) != 0) || mkdir(path, 0777) != 0)
        give_up(path, "cannot be made: FOLDER must be new");
    MUST(r, dur_open(&r->store, "memory:", &r->err));
    MUST(r, dur_client_new(&r->client, r->store, &r->err));
    MUST(r, dur_runtime_start(
                &r->runtime,
                DUR_RUNTIME(.store = r->store, .handlers = handlers, .worker_concurrency = 16, .tags = DUR_TAG_ANY),
                &r->err));
    char *reason = NULL;
    start_instance(r, "Agency", "Refuse", "agency");
    MUST(r, dur_client_result(&reason, r->client, "agency", DUR_SECONDS(60), &r->err));
    dur_free(reason);
    start_instance(r, "Holder", "held", "other");
    start_instance(r, "Unordered", "", "control");
    start_instance(r, "Travel", "Echo", "travel-well");
    start_instance(r, "Travel", "Refuse", "travel-badly");
    start_instance(r, "FanOut", "f", "fan-out");
    start_instance(r, "All", "in", "all");
    static const char *const fixed[] = { "control", "travel-well", "travel-badly", "fan-out", "all" };
    size_t seeds = scaled(SEEDS, 100), open = 1;
    for (size_t seed = 1; seed <= seeds; seed++) {
        char instance[32], input[32];
        snprintf(instance, sizeof(instance), "random-%zu", seed);
        snprintf(input, sizeof(input), "%zx", seed);
        start_instance(r, "Random", input, instance);
    }
    for (size_t pass = 0; open > 0; pass++, pause_ms(5)) {
        open = 0;
        for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
            open += !feed(r, fixed[i], pass);
        for (size_t seed = 1; seed <= seeds; seed++) {
            char instance[32];
            snprintf(instance, sizeof(instance), "random-%zu", seed);
            open += !feed(r, instance, pass);
        }
    }
    MUST(r, dur_runtime_stop(r->runtime, DUR_SECONDS(20), &r->err));
    save_everything(r);
    dur_client_free(r->client);
    dur_provider_close(r->store);
    for (int kind = 0; kind < EVENT_KINDS; kind++)
        if (!r->seen[kind])
            give_up(dur_event_kind_name((dur_event_kind)kind), "in no history: not everything is shown");
    printf("%zu histories recorded, all %d kinds of events\n", r->saved, (int)EVENT_KINDS);
}

/* ---- replay ------------------------------------------------------------------------------------------------------ */

static char *read_text(const char *path) {
    FILE *file = fopen(path, "r");
    struct stat st;
    if (file == NULL || fstat(fileno(file), &st) != 0) give_up(path, "cannot be read");
    char *text = calloc(1, (size_t)st.st_size + 1);
    if (fread(text, 1, (size_t)st.st_size, file) != (size_t)st.st_size) give_up(path, "cannot be read");
    fclose(file);
    return text;
}

static bool is_over(const char *history) {
    static const char *const terminal[] = { "\"type\":\"OrchestrationCompleted\"", "\"type\":\"OrchestrationFailed\"",
                                            "\"type\":\"OrchestrationContinuedAsNew\"" };
    for (size_t i = 0; i < 3; i++)
        if (strstr(history, terminal[i]) != NULL) return true;
    return false;
}

/* Do they fit, each to its end?  Returns how many there are. */
static size_t replay_file(const char *path, bool *same) {
    char *text = read_text(path);
    const char *histories[16];
    size_t count = 0, events = occurrences(text, "\"event_id\":");
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (count == sizeof(histories) / sizeof(histories[0]))
            give_up(path, "has more executions than a random program");
        histories[count++] = line;
    }
    dur_replay_report report = { .size = sizeof(report) };
    dur_error err = DUR_ERROR_INIT;
    int code = dur_replay_histories(&report, handlers, histories, count, &err);
    *same = code == DUR_OK && report.finished == is_over(histories[count - 1]) && report.events == events;
    if (!*same)
        printf("%s: %s %s (%" PRIu64 " of %zu events, %s)\n", path, dur_code_name(code), err.message, report.events,
               events, report.finished ? "ended" : "not ended");
    free(text);
    return count;
}

static size_t replay_folder(const char *folder, size_t *differ) {
    DIR *dir = opendir(folder);
    if (dir == NULL) give_up(folder, "cannot be read");
    size_t replayed = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot == NULL || strcmp(dot, ".histories") != 0) continue;
        char path[1024];
        bool same = false;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        replayed += replay_file(path, &same);
        *differ += !same;
    }
    closedir(dir);
    return replayed;
}

static int replay(const char *folder) {
    char control[1024];
    size_t differ = 0, refused = 0;
    size_t replayed = replay_folder(folder, &differ);
    snprintf(control, sizeof(control), "%s/control", folder);
    replay_folder(control, &refused);
    printf("control %s\n", refused > 0 ? "refused" : "fits");
    printf("%zu replayed, %zu differ\n", replayed, differ);
    return replayed > 0 && differ == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- as a test --------------------------------------------------------------------------------------------------- */

static void histories_of_this_build_replay_in_it(void **state) {
    (void)state;
    char folder[] = "/tmp/durite-cross-XXXXXX", command[128];
    assert_non_null(mkdtemp(folder));
    record(folder);
    int code = replay(folder);
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(code, EXIT_SUCCESS);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "record") == 0) {
        record(argv[2]);
        return EXIT_SUCCESS;
    }
    if (argc == 3 && strcmp(argv[1], "replay") == 0) return replay(argv[2]);
    if (argc != 1) give_up(argv[1], "usage: cross_replay [record FOLDER | replay FOLDER]");
    const struct CMUnitTest tests[] = { cmocka_unit_test(histories_of_this_build_replay_in_it) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
