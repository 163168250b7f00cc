/*
 * mutants_main.c: the program durite-mutants: the kit against deliberately broken providers.
 */
#include "mutant.h"

#include <durite/sys/clock.h>
#include <durite/sys/kit.h>
#include <stdio.h>

static const char help[] = "usage: durite-mutants [--only NAME] [--list] [--help]\n"
                           "\n"
                           "Runs the provider kit against broken providers, each the memory store with one mistake, "
                           "and prints the validation\n"
                           "that caught it first (TAP).  Exit code 0: every mutant was caught, every category was "
                           "first to catch one, and the\n"
                           "store without a mistake passed.\n";

typedef struct source {
    const mutant *what;
    uint64_t stores;
} source;

static int open_broken(void *data, dur_kit_store *out, dur_error *err) {
    source *from = data;
    dur_provider *inner = NULL;
    dur_fake_world *world = dur_fake_world_new(1800000000000u, ++from->stores);
    int code = dur_open_ex(&inner, "memory:", DUR_OPEN_OPTIONS(.world = dur_fake_world_get(world)), err);
    if (code != DUR_OK) {
        dur_fake_world_free(world);
        return code;
    }
    out->provider = broken_new(inner, from->what);
    out->data = world;
    return DUR_OK;
}

static void close_broken(void *data, dur_kit_store *store) {
    (void)data;
    dur_provider_close(store->provider);
    dur_fake_world_free(store->data);
}

static void advance(void *data, dur_kit_store *store, uint64_t ms) {
    (void)data;
    dur_fake_world_advance(store->data, ms);
}

static void jump(void *data, dur_kit_store *store, int64_t ms) {
    (void)data;
    dur_fake_world_jump(store->data, ms);
}

static dur_kit_factory factory_of(source *from) {
    return (dur_kit_factory){ .size = sizeof(dur_kit_factory),
                              .data = from,
                              .open = open_broken,
                              .close = close_broken,
                              .advance = advance,
                              .jump = jump,
                              .poll = DUR_KIT_POLL_SHORT };
}

static int judge(const mutant *what, void (*on_result)(void *, const dur_kit_result *), void *data,
                 dur_kit_report *report, dur_error *err) {
    source from = { what, 0 };
    dur_kit_factory factory = factory_of(&from);
    dur_kit_options options = {
        .size = sizeof(options), .stop_at_failure = what->name != NULL, .on_result = on_result, .data = data
    };
    return dur_kit_run(&factory, &options, report, err);
}

/* The differential run must find such a difference too, and tell it in few steps. */
static bool compared(const mutant *what, bool verbose) {
    static const mutant none = { .name = NULL };
    source left = { &none, 0 }, right = { what, 0 };
    dur_kit_factory sound = factory_of(&left), broken_one = factory_of(&right);
    dur_kit_compare_options options = { .size = sizeof(options), .seeds = 40 };
    char *story = NULL;
    bool found = dur_kit_compare(&sound, &broken_one, &options, &story, NULL) == DUR_EFAILED;
    if (verbose && story != NULL) fputs(story, stdout);
    dur_free(story);
    return found;
}

/* The categories, whether anything of each can be asked of this store, and whether it has caught something first. */
typedef struct score {
    const char *names[64];
    bool asked[64], first[64];
    size_t count;
} score;

static void learn_categories(score *all) {
    for (size_t i = 0; i < dur_kit_count(); i++) {
        const char *category = dur_kit_info(i).category;
        if (all->count == 0 || strcmp(all->names[all->count - 1], category) != 0) all->names[all->count++] = category;
    }
}

static void note_asked(void *data, const dur_kit_result *result) {
    score *all = data;
    for (size_t i = 0; i < all->count; i++)
        if (result->outcome != DUR_KIT_SKIPPED && strcmp(result->category, all->names[i]) == 0) all->asked[i] = true;
}

static void note_first(score *all, const char *found) {
    for (size_t i = 0; i < all->count; i++) {
        size_t size = strlen(all->names[i]);
        if (strncmp(found, all->names[i], size) == 0 && found[size] == '/') all->first[i] = true;
    }
}

static int run_all(const mutant *const *lists, size_t list_count, const char *only) {
    score all = { .count = 0 };
    unsigned total = 0, caught = 0, number = 1, silent = 0;
    dur_kit_report report;
    dur_error err = DUR_ERROR_INIT;
    static const mutant none = { .name = NULL };
    learn_categories(&all);
    bool sound = judge(&none, note_asked, &all, &report, &err) == DUR_OK;
    printf("TAP version 13\n%sok 1 - the store without a mistake passes (%u validations)\n", sound ? "" : "not ",
           report.passed);
    if (!sound) printf("# %s: %s\n", report.first_failed, report.first_message);
    for (size_t i = 0; i < list_count; i++)
        for (const mutant *what = lists[i]; what->name != NULL; what++) {
            if (only != NULL && strstr(what->name, only) == NULL) continue;
            bool found = judge(what, NULL, NULL, &report, &err) == DUR_EFAILED;
            total++;
            caught += found;
            if (found) note_first(&all, report.first_failed);
            printf("%sok %u - %s: %s\n", found ? "" : "not ", ++number, what->name, what->mistake);
            if (found) printf("#   caught by %s: %s\n", report.first_failed, report.first_message);
            fflush(stdout);
        }
    for (size_t i = 0; i < all.count && only == NULL; i++) {
        if (!all.asked[i]) continue;
        silent += !all.first[i];
        printf("%sok %u - category %s is first to catch one\n", all.first[i] ? "" : "not ", ++number, all.names[i]);
    }
    if (only == NULL || strstr(only, "compare") != NULL) {
        unsigned differ = 0;
        for (size_t i = 0; i < list_count; i++)
            for (const mutant *what = lists[i]; what->name != NULL; what++) {
                bool found = compared(what, false);
                differ += found;
                if (only != NULL) printf("# %s %s\n", found ? "differs" : "looks the same:", what->name);
            }
        printf("%sok %u - differential runs tell %u of them from the store without a mistake\n",
               differ >= 60 ? "" : "not ", ++number, differ);
        sound &= differ >= 60;
    }
    printf("1..%u\n%u mutants, %u caught, %u not; %zu categories, %u never first\n", number, total, caught,
           total - caught, all.count, silent);
    return sound && total > 0 && caught == total && silent == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    const mutant *const lists[] = { mutants_turns, mutants_queues,  mutants_admin,
                                    mutants_ours,  mutants_details, mutants_strangers };
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) return fputs(help, stdout) < 0;
        if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--list") == 0) {
            for (size_t k = 0; k < sizeof(lists) / sizeof(lists[0]); k++)
                for (const mutant *what = lists[k]; what->name != NULL; what++)
                    printf("%s: %s\n", what->name, what->mistake);
            return 0;
        } else {
            fprintf(stderr, "durite-mutants: unknown option %s\nTry durite-mutants --help.\n", argv[i]);
            return 2;
        }
    }
    return run_all(lists, sizeof(lists) / sizeof(lists[0]), only);
}
