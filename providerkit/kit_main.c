/*
 * kit_main.c: the program durite-kit: the judge of providers from the command line.
 */
#include "compare.h"
#include "kit_urls.h"

#include <durite/provider.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef KIT_REGISTER /* a build of the program that knows one more scheme */
int KIT_REGISTER(dur_error *err);
#endif

static const char help[] =
    "usage: durite-kit URL [options]\n"
    "       durite-kit URL --against URL [--seeds N] [--seed S] [--steps N] [--turns]\n"
    "       durite-kit --list [--only PATTERN]\n"
    "\n"
    "Judges a store: runs every validation on a store of its own and reports as TAP on standard output.\n"
    "\n"
    "URL   memory:             a new one for each validation\n"
    "      sqlite:[PATH]       files PATH-PID-N, removed afterwards; without PATH in TMPDIR\n"
    "      postgres://...      schemas NAME_PID_N of that database (schema=NAME, durite_kit), dropped afterwards; on "
    "the\n"
    "                          server's clock, which takes minutes, unless clock=caller\n"
    "      any other scheme    {n} in the URL becomes a number not used before\n"
    "      with --load FILE.so one of that file's: a store of yours (docs/provider-guide.md)\n"
    "\n"
    "  --list            name the validations: category, name\n"
    "  --only PATTERN    those whose category/name contains or (with * and ?) matches it\n"
    "  --poll MODE       short or long: what an empty fetch with a poll time does (default: try it)\n"
    "  --repeat N        run each N times\n"
    "  --jobs N          N at a time (default 1)\n"
    "  --seed S          seed of everything random (default 1)\n"
    "  --lock MS         how long locks last that validations take, and some wait out (default: 1000, 15000 with\n"
    "                    --shared; 5000 where no time is waited for); longer for a slow store or a busy machine\n"
    "  --shared          all of them on one store, by ten threads, each in a part of its own; then workloads on one\n"
    "                    store and its invariants.  Those that tell of a whole store are skipped and say so\n"
    "  --against URL     instead: the same random operations on two stores, answers compared\n"
    "  --seeds N         how many sequences (default 100)\n"
    "  --steps N         operations in each (default 120)\n"
    "  --turns           each operation is one turn: any combination of its fields\n"
    "  --record          with --seeds N: prints compare_recorded.h, of a store that is right\n"
    "  --help            this text\n"
    "\n"
    "The last line is \"N passed, N failed, N skipped (R of the reference)\": R validations of the reference passed.\n"
    "Exit code: 0 all passed (or skipped, naming the method that the store lacks), 1 some failed, 2 it could not "
    "run.\n";

typedef struct arguments {
    const char *url;
    const char *against;
    const char *module;
    bool list;
    bool explain;
    uint32_t seeds, steps;
    bool turns;
    bool record;
    uint64_t lock_ms; /* 0: as the kit has it */
    dur_kit_options options;
} arguments;

static int wrong(const char *format, const char *what) {
    fprintf(stderr, "durite-kit: ");
    fprintf(stderr, format, what);
    fprintf(stderr, "\nTry durite-kit --help.\n");
    return 2;
}

static bool number(const char *given, uint64_t most, uint64_t *out) {
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(given, &end, 10);
    *out = value;
    return errno == 0 && given[0] >= '0' && given[0] <= '9' && *end == '\0' && value > 0 && value <= most;
}

static int parse(arguments *out, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        uint64_t value = 0;
        if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
            out->explain = true;
            continue;
        }
        if (strcmp(name, "--list") == 0) {
            out->list = true;
            continue;
        }
        if (strcmp(name, "--turns") == 0) {
            out->turns = true;
            continue;
        }
        if (strcmp(name, "--record") == 0) {
            out->record = true;
            continue;
        }
        if (strcmp(name, "--shared") == 0) {
            out->options.shared = true;
            continue;
        }
        if (name[0] != '-') {
            if (out->url != NULL) return wrong("one URL is enough: %s", name);
            out->url = name;
            continue;
        }
        static const char *const known[] = { "--only", "--poll",  "--against", "--repeat", "--jobs",
                                             "--seed", "--seeds", "--steps",   "--lock",   "--load" };
        size_t which = 0;
        while (which < sizeof(known) / sizeof(known[0]) && strcmp(name, known[which]) != 0)
            which++;
        if (which == sizeof(known) / sizeof(known[0])) return wrong("unknown option %s", name);
        if (i + 1 >= argc) return wrong("%s needs a value", name);
        const char *given = argv[++i];
        if (which == 0) out->options.only = given;
        if (which == 1 && strcmp(given, "short") == 0)
            out->options.poll = DUR_KIT_POLL_SHORT;
        else if (which == 1 && strcmp(given, "long") == 0)
            out->options.poll = DUR_KIT_POLL_LONG;
        else if (which == 1)
            return wrong("--poll is short or long, not %s", given);
        if (which == 2) out->against = given;
        if (which == 9) out->module = given;
        if (which < 3 || which == 9) continue;
        if (!number(given, which == 5 ? UINT64_MAX : 1000000, &value)) return wrong("not a number to use: %s", given);
        if (which == 3) out->options.repeat = (uint32_t)value;
        if (which == 4) out->options.jobs = (uint32_t)value;
        if (which == 5) out->options.seed = value;
        if (which == 6) out->seeds = (uint32_t)value;
        if (which == 7) out->steps = (uint32_t)value;
        if (which == 8) out->lock_ms = value;
    }
    if (out->url == NULL && !out->list && !out->explain) return wrong("%s", "a URL is needed, for example memory:");
    if (out->against == NULL && !out->record && (out->seeds > 0 || out->steps > 0 || out->turns))
        return wrong("%s", "--seeds, --steps and --turns go with --against");
    if (out->record && out->seeds == 0) return wrong("%s", "--record needs --seeds");
    return 0;
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

static void print_plan(void *data, size_t results) {
    (void)data;
    printf("TAP version 13\n1..%zu\n", results);
    fflush(stdout);
}

static void print_result(void *data, const dur_kit_result *result) {
    unsigned *number_of = data;
    const char *bad = result->outcome == DUR_KIT_FAILED ? "not " : "";
    printf("%sok %u - %s", bad, ++*number_of, result->name);
    if (result->round > 1) printf(" (round %u)", result->round);
    if (result->outcome == DUR_KIT_SKIPPED) printf(" # SKIP %s", result->message);
    printf("\n");
    if (result->outcome == DUR_KIT_FAILED)
        printf("# %s/%s, seed %llu: %s\n", result->category, result->name, (unsigned long long)result->seed,
               result->message);
    fflush(stdout);
}

static int list(const char *only) {
    for (size_t i = 0; i < dur_kit_count(); i++) {
        if (!dur_kit_selects(only, i)) continue;
        dur_kit_check_info info = dur_kit_info(i);
        printf("%s %s\n", info.category, info.name);
    }
    return 0;
}

static int compare(const arguments *args, const dur_kit_factory *left, dur_error *err) {
    dur_kit_factory right;
    char *story = NULL;
    int code = kit_urls_new(&right, args->against, args->options.poll, true, err);
    if (code != DUR_OK) {
        fprintf(stderr, "durite-kit: %s: %s\n", args->against, err->message);
        return 2;
    }
    dur_kit_compare_options options = { .size = sizeof(options),
                                        .first_seed = args->options.seed,
                                        .seeds = args->seeds,
                                        .steps = args->steps,
                                        .turns = args->turns };
    code = dur_kit_compare(left, &right, &options, &story, err);
    printf("TAP version 13\n1..1\n%sok 1 - %s behaves as %s\n", code == DUR_OK ? "" : "not ", args->url, args->against);
    if (code != DUR_OK) printf("%s\n", story != NULL ? story : err->message);
    printf("%d passed, %d failed, 0 skipped (0 of the reference)\n", code == DUR_OK, code != DUR_OK);
    dur_free(story);
    kit_urls_free(&right);
    return code == DUR_OK ? 0 : code == DUR_EFAILED ? 1 : 2;
}

/* The text of compare_recorded.h, of a store that is right. */
static int record(const arguments *args, const dur_kit_factory *factory, dur_error *err) {
    printf("/* compare_recorded.h: what our stores have answered to seeds 1, 2, ...: durite-kit memory: --record */\n"
           "/* clang-format off */\n");
    for (int turns = 0; turns <= 1; turns++) {
        printf("static const uint64_t recorded_%s[] = {\n", turns ? "turns" : "operations");
        for (uint64_t seed = 1; seed <= args->seeds; seed++) {
            uint64_t number_of = 0;
            if (compare_digest(factory, seed, turns != 0, &number_of, err) != DUR_OK) {
                fprintf(stderr, "durite-kit: %s\n", err->message);
                return 2;
            }
            printf("    0x%016llx,\n", (unsigned long long)number_of);
        }
        printf("};\n");
    }
    return 0;
}

static int judge(const arguments *args, const dur_kit_factory *factory, dur_error *err) {
    dur_kit_report report;
    unsigned results = 0;
    dur_kit_options options = args->options;
    options.on_plan = print_plan;
    options.on_result = print_result;
    options.data = &results;
    int code = dur_kit_run(factory, &options, &report, err);
    if (code != DUR_OK && code != DUR_EFAILED) {
        fprintf(stderr, "durite-kit: %s\n", err->message);
        return 2;
    }
    printf("%u passed, %u failed, %u skipped (%u of the reference)\n", report.passed, report.failed, report.skipped,
           report.reference_passed);
    return code == DUR_OK ? 0 : 1;
}

int main(int argc, char **argv) {
    arguments args = { .options = { .size = sizeof(dur_kit_options) } };
    dur_error err = DUR_ERROR_INIT;
    dur_kit_factory factory;
    int code = parse(&args, argc, argv);
    if (code != 0) return code;
    if (args.explain) return fputs(help, stdout) < 0;
    if (args.list) return list(args.options.only);
#ifdef KIT_REGISTER
    if (KIT_REGISTER(&err) != DUR_OK) {
        fprintf(stderr, "durite-kit: %s\n", err.message);
        return 2;
    }
#endif
    if (args.module != NULL && dur_kit_load(args.module, &err) != DUR_OK) {
        fprintf(stderr, "durite-kit: %s\n", err.message);
        return 2;
    }
    if (kit_urls_new(&factory, args.url, args.options.poll, args.against != NULL || args.record, &err) != DUR_OK) {
        fprintf(stderr, "durite-kit: cannot open %s: %s\n", args.url, err.message);
        return 2;
    }
    if (args.lock_ms > 0) factory.lock_timeout_ms = args.lock_ms;
    code = args.record            ? record(&args, &factory, &err)
           : args.against != NULL ? compare(&args, &factory, &err)
                                  : judge(&args, &factory, &err);
    kit_urls_free(&factory);
    if (fflush(stdout) == 0 && ferror(stdout) == 0) return code;
    fprintf(stderr, "durite-kit: the report could not be written\n");
    return 2;
}
