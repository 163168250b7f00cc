/*
 * crash_disk.c: a SQLite store on a disk that loses power, is full or fails, at every point; see README.md.
 *
 * A worker records the script once and then goes through its points: each is a disk as it may be found, a machine that
 * is switched on with it and goes on to the end of the scene, and the ledger.
 */
#include "disk/machine.h"

#include <durite/log.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SCENES_MAX = 32, JOBS_MAX = 64, SAID_MAX = 20, HANGS_AFTER_S = 120 };

typedef enum kind { POWER, AGAIN, FULL, EIO_READ, EIO_WRITE, SECOND, KINDS } kind;
static const char *const kind_names[KINDS] = { "power", "again", "enospc", "eio-read", "eio-write", "second" };

typedef struct options {
    uint64_t from, points, every, seed;
    int jobs;
    kind kind;
    bool all_kinds, one;
    const char *program;
} options;

typedef struct progress { /* shared by the workers and their parent */
    uint64_t done[JOBS_MAX], lost[JOBS_MAX], now[JOBS_MAX], total;
} progress;

static options opts = { .points = 20000, .every = 1, .seed = 1, .jobs = 1, .all_kinds = true };
static progress *shared;
static char folder[64];

/* ---- the recorded run ---- */

typedef struct recorded {
    disk_log log;
    ledger told;
    disk_state *state; /* rolls on with the points */
    int scene_count, scene_first[SCENES_MAX];
    disk_image scene[SCENES_MAX];   /* the disk when it begins */
    size_t scene_at[SCENES_MAX];    /* the same in the log */
    uint64_t countable[SCENES_MAX]; /* what a fault may fall on, of opts.kind */
    size_t operations[SCENES_MAX];
} recorded;
static recorded rec;

static void switch_on(const disk_image *image, uint64_t seed, uint64_t world_ms) {
    disk_image_write(image, folder);
    disk->world_ms = world_ms;
    disk_reset(folder, seed);
    ledger_reset();
}

static void record(bool second) {
    disk_image nothing = { { NULL }, { 0 }, { 0 } };
    switch_on(&nothing, opts.seed, 1000);
    if (!machine_go(&(machine_run){ .end = step_count - 1, .histories = true, .second = second })) {
        fprintf(stderr, "crash_disk: the script fails on a disk that does nothing wrong: %s\n", machine_why());
        _exit(2);
    }
    rec.log = disk_log_copy();
    rec.told = ledger_copy();
    rec.state = disk_state_new(NULL, rec.log.ops, opts.seed);
}

static void roll(size_t to) {
    if (disk_state_at(rec.state) > to) {
        disk_state_free(rec.state);
        rec.state = disk_state_new(NULL, rec.log.ops, opts.seed);
    }
    disk_state_advance(rec.state, to);
}

/* Where each scene begins, for the points that run one with a fault. */
static void record_scenes(void) {
    for (int at = 0; at < step_count; at = scene_end(at) + 1) {
        int i = rec.scene_count++;
        rec.scene_first[i] = at;
        for (size_t f = 0; f < rec.told.count; f++)
            if (rec.told.facts[f].kind == FACT_STEP && rec.told.facts[f].step == at - 1)
                rec.scene_at[i] = rec.told.facts[f].at;
        roll(rec.scene_at[i]);
        disk_state_whole(rec.state, &rec.scene[i]);
    }
}

/* ---- points ---- */

static bool go_on(const ledger *first, size_t first_at, const ledger *then, size_t then_at, int from, bool second,
                  bool histories) {
    int end = from < step_count ? scene_end(from) : step_count - 1;
    return machine_go(&(machine_run){ .from = from,
                                      .end = end,
                                      .in_doubt = true,
                                      .histories = histories,
                                      .second = second,
                                      .before = { { first, first_at }, { then, then_at } } });
}

/* The machine that has just run on `image` loses power somewhere on its way. */
static bool and_again(const disk_image *image, const ledger *first, size_t first_at, int from, uint64_t seed) {
    size_t at = (size_t)(disk_mix(seed, 3) % (disk->op_count + 1));
    disk_image found;
    ledger then = ledger_copy();
    disk_state *state = disk_state_new(image, disk->ops, disk->seed);
    disk_state_advance(state, at);
    if (machine_trace) fprintf(stderr, "---- power is lost again at operation %zu of %zu\n", at, disk->op_count);
    disk_state_compose(state, disk_mix(seed, 4), &found, machine_trace);
    disk_state_free(state);
    uint64_t world_ms = ledger_world(&then, at);
    switch_on(&found, disk_mix(seed, 5), world_ms);
    if (first != NULL) ledger_owners(first, first_at, disk_mix(seed, 6), folder);
    ledger_owners(&then, at, disk_mix(seed, 7), folder);
    bool good = go_on(first, first_at, &then, at, ledger_doubt(&then, at, from), false, false);
    ledger_free(&then);
    disk_image_free(&found);
    return good;
}

/* A loss of power at each place of the log, once for each seed. */
static bool point_power(uint64_t n, bool again, bool second) {
    size_t places = rec.log.count + 1, at = (size_t)(n % places);
    uint64_t seed = disk_mix(opts.seed, n);
    disk_image found;
    roll(at);
    if (machine_trace) fprintf(stderr, "---- power is lost at operation %zu of %zu\n", at, rec.log.count);
    disk_state_compose(rec.state, seed, &found, machine_trace);
    int from = ledger_doubt(&rec.told, at, 0);
    switch_on(&found, disk_mix(seed, 1), ledger_world(&rec.told, at));
    ledger_owners(&rec.told, at, disk_mix(seed, 2), folder);
    bool good = go_on(&rec.told, at, NULL, 0, from, second, again);
    if (good && again) good = and_again(&found, &rec.told, at, from, seed);
    disk_image_free(&found);
    return good;
}

static disk_fault fault_of(kind which) {
    return which == FULL ? FAULT_FULL : which == EIO_READ ? FAULT_READ : FAULT_WRITE;
}

typedef struct trouble {
    disk_fault fault;
    uint64_t at, count;
    size_t kill_at; /* of the second node; 0: it lives */
} trouble;

/* With a second node the trouble is its own. */
static bool run_scene(int scene, uint64_t seed, trouble what, bool second) {
    int from = rec.scene_first[scene];
    switch_on(&rec.scene[scene], seed, ledger_world(&rec.told, rec.scene_at[scene]));
    ledger_owners(&rec.told, rec.scene_at[scene], seed, folder);
    disk->fault = what.fault;
    disk->fault_at = what.at;
    disk->fault_count = what.count;
    disk->fault_node = second ? 1 : -1;
    disk->kill_node = what.kill_at > 0 ? 1 : -1;
    disk->kill_at = what.kill_at;
    return machine_go(&(machine_run){ .from = from,
                                      .end = scene_end(from),
                                      .patient = true,
                                      .histories = true,
                                      .second = second,
                                      .before = { { &rec.told, rec.scene_at[scene] } } });
}

static void count_scenes(void) {
    for (int i = 0; i < rec.scene_count; i++) {
        if (!run_scene(i, opts.seed, (trouble){ fault_of(opts.kind), UINT64_MAX, 0, 0 }, opts.kind == SECOND)) {
            fprintf(stderr, "crash_disk: scene %d fails on a disk that does nothing wrong: %s\n", i, machine_why());
            _exit(2);
        }
        rec.countable[i] = disk->counted;
        rec.operations[i] = disk->op_count;
    }
}

static bool scene_and_again(int scene, uint64_t seed, trouble what, bool second) {
    return run_scene(scene, seed, what, second) &&
           and_again(&rec.scene[scene], &rec.told, rec.scene_at[scene], rec.scene_first[scene], seed);
}

/* Each write (or read) of each scene fails, for once or for a while; later power is lost. */
static bool point_fault(uint64_t n) {
    static const uint64_t lengths[] = { 1, 2, 5, 40 };
    uint64_t all = 0, seed = disk_mix(opts.seed, n);
    for (int i = 0; i < rec.scene_count; i++)
        all += rec.countable[i];
    uint64_t at = n % all, round = n / all;
    int scene = 0;
    while (at >= rec.countable[scene])
        at -= rec.countable[scene++];
    uint64_t count = lengths[round % (sizeof(lengths) / sizeof(lengths[0]))];
    if (machine_trace)
        fprintf(stderr, "---- scene %d: %s at %llu, %llu times\n", scene, kind_names[opts.kind], (unsigned long long)at,
                (unsigned long long)count);
    return scene_and_again(scene, seed, (trouble){ fault_of(opts.kind), at, count, 0 }, false);
}

/* Power, with one node or two behind it; or the second node alone is killed, or cannot write. */
static bool point_second(uint64_t n) {
    uint64_t round = n / (rec.log.count + 1), seed = disk_mix(opts.seed, n);
    int scene = (int)(disk_mix(seed, 8) % (uint64_t)rec.scene_count);
    if (round % 4 < 2) return point_power(n, false, round % 4 == 1);
    trouble what = { FAULT_NONE, 0, 0, 0 };
    if (round % 4 == 2)
        what.kill_at = 1 + (size_t)(disk_mix(seed, 9) % rec.operations[scene]);
    else
        what = (trouble){ FAULT_WRITE, disk_mix(seed, 9) % (rec.countable[scene] + 1), 1 + disk_mix(seed, 10) % 3, 0 };
    if (machine_trace)
        fprintf(stderr, "---- scene %d: the second node %s %llu\n", scene,
                what.kill_at > 0 ? "is killed at operation" : "cannot do its write",
                (unsigned long long)(what.kill_at > 0 ? what.kill_at : what.at));
    return scene_and_again(scene, seed, what, true);
}

static bool point(uint64_t n) {
    switch (opts.kind) {
    case POWER:
        return point_power(n, false, false);
    case AGAIN:
        return point_power(n, true, false);
    case SECOND:
        return point_second(n);
    case FULL:
    case EIO_READ:
    case EIO_WRITE:
        return point_fault(n);
    case KINDS:
        break;
    }
    return false;
}

/* ---- workers ---- */

static void nothing_said(void *data, const dur_log_record *record) {
    (void)record;
    (void)data;
}

static void say_lost(uint64_t n, const char *why) {
    printf("point %llu (%s): %s\n  repeat it: %s --kind %s --seed %llu --one %llu\n", (unsigned long long)n,
           kind_names[opts.kind], why, opts.program, kind_names[opts.kind], (unsigned long long)opts.seed,
           (unsigned long long)n);
    fflush(stdout);
}

/* In memory, if there is such a place; named after the parent, who removes it, also when a worker has crashed. */
static pid_t parent;
static void folder_of(int job) {
    snprintf(folder, sizeof(folder), "%s/crash_disk.%d.%d", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
             (int)parent, job);
}

static void folder_remove(int job) {
    disk_image nothing = { { NULL }, { 0 }, { 0 } };
    folder_of(job);
    if (access(folder, F_OK) != 0) return;
    disk_image_write(&nothing, folder);
    rmdir(folder);
}

static void work(int job, uint64_t from, uint64_t end) {
    folder_of(job);
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
        perror(folder);
        _exit(2);
    }
    disk_install();
    machine_install(folder);
    dur_log_set_sink(nothing_said, NULL, DUR_LOG_ERROR);
    record(opts.kind == SECOND);
    record_scenes();
    if (opts.kind != POWER && opts.kind != AGAIN) count_scenes();
    if (opts.one) {
        machine_trace = disk_trace = true;
        dur_log_set_sink(dur_log_text, stderr, DUR_LOG_DEBUG);
    }
    for (uint64_t i = from; i < end; i += (uint64_t)opts.jobs) {
        uint64_t n = opts.from + i * opts.every;
        shared->now[job] = i;
        alarm(HANGS_AFTER_S);
        if (!point(n)) {
            if (shared->lost[job]++ < SAID_MAX) say_lost(n, machine_why());
        }
        shared->done[job]++;
    }
    _exit(0);
}

static volatile sig_atomic_t cut_off;
static void on_signal(int number) {
    cut_off = number;
}

static pid_t begin_worker(int job, uint64_t from, uint64_t end) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        exit(2);
    }
    if (pid == 0) {
        signal(SIGINT, SIG_IGN); /* its parent ends it */
        signal(SIGTERM, SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        work(job, from, end);
    }
    return pid;
}

static void say_cut_off(const pid_t *pids) {
    uint64_t done = opts.points;
    for (int job = 0; job < opts.jobs; job++) {
        kill(pids[job], SIGKILL);
        waitpid(pids[job], NULL, 0);
        folder_remove(job);
        if (shared->now[job] < done) done = shared->now[job];
    }
    printf("cut off; go on with --kind %s --seed %llu --every %llu --from %llu\n", kind_names[opts.kind],
           (unsigned long long)opts.seed, (unsigned long long)opts.every,
           (unsigned long long)(opts.from + done * opts.every));
}

static void sum(uint64_t *done, uint64_t *lost) {
    *done = *lost = 0;
    for (int i = 0; i < opts.jobs; i++) {
        *done += shared->done[i];
        *lost += shared->lost[i];
    }
}

static void show(bool last) {
    uint64_t done, lost;
    if (!isatty(1)) return;
    sum(&done, &lost);
    printf("\r%s: %llu of %llu points, %llu lost%s", kind_names[opts.kind], (unsigned long long)done,
           (unsigned long long)opts.points, (unsigned long long)lost, last ? "\r\033[K" : "");
    fflush(stdout);
}

/* False: it could not be done. */
static bool all_points(uint64_t *done, uint64_t *lost) {
    pid_t pids[JOBS_MAX];
    int left = opts.jobs;
    memset(shared, 0, sizeof(*shared));
    for (int job = 0; job < opts.jobs; job++)
        pids[job] = begin_worker(job, (uint64_t)job, opts.points);
    for (bool good = true; left > 0;) {
        int status = 0, job = 0;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (cut_off != 0) {
            say_cut_off(pids);
            return false;
        }
        if (pid == 0) {
            show(false);
            nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
            continue;
        }
        while (job < opts.jobs && pids[job] != pid)
            job++;
        if (job == opts.jobs) continue;
        left--;
        if (WIFSIGNALED(status)) { /* it has crashed or hangs: that is a finding, and the others go on */
            char why[64];
            snprintf(why, sizeof(why), "%s", WTERMSIG(status) == SIGALRM ? "hangs" : strsignal(WTERMSIG(status)));
            shared->lost[job]++;
            shared->done[job]++;
            say_lost(opts.from + shared->now[job] * opts.every, why);
            pids[job] = begin_worker(job, shared->now[job] + (uint64_t)opts.jobs, opts.points);
            left++;
        } else if (WEXITSTATUS(status) != 0) {
            good = false;
        }
        if (left == 0 && !good) {
            folder_remove(job);
            return false;
        }
    }
    show(true);
    sum(done, lost);
    for (int job = 0; job < opts.jobs; job++)
        folder_remove(job);
    return true;
}

/* ---- the command ---- */

static int usage(void) {
    fprintf(stderr, "usage: crash_disk [--kind power|again|enospc|eio-read|eio-write|second] [--from N] [--points N]\n"
                    "                  [--every N] [--seed N] [--jobs N] [--one N]\n"
                    "Without --kind all of them, N points each.  --one repeats a point and says what happens.\n");
    return 2;
}

static bool parse(int argc, char **argv) {
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) return false;
        uint64_t number = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--kind") == 0) {
            for (opts.kind = POWER; opts.kind < KINDS && strcmp(kind_names[opts.kind], argv[i + 1]) != 0;)
                opts.kind++;
            opts.all_kinds = false;
            if (opts.kind == KINDS) return false;
        } else if (strcmp(argv[i], "--from") == 0) {
            opts.from = number;
        } else if (strcmp(argv[i], "--points") == 0) {
            opts.points = number;
        } else if (strcmp(argv[i], "--every") == 0) {
            opts.every = number;
        } else if (strcmp(argv[i], "--seed") == 0) {
            opts.seed = number;
        } else if (strcmp(argv[i], "--jobs") == 0) {
            opts.jobs = (int)number;
        } else if (strcmp(argv[i], "--one") == 0) {
            opts.one = true;
            opts.from = number;
        } else {
            return false;
        }
    }
    if (opts.one) {
        opts.points = 1;
        opts.jobs = 1;
    }
    return opts.every > 0 && opts.jobs > 0 && opts.jobs <= JOBS_MAX && !(opts.one && opts.all_kinds);
}

int main(int argc, char **argv) {
    uint64_t done = 0, lost = 0, all_done = 0, all_lost = 0;
    opts.program = argv[0];
    parent = getpid();
    if (!parse(argc, argv)) return usage();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    shared = disk_shared_memory(sizeof(*shared));
    bool tap = getenv("CMOCKA_MESSAGE_OUTPUT") != NULL; /* as one of the tests */
    if (tap && getenv("DURITE_TEST_SCALE") != NULL && strtoull(getenv("DURITE_TEST_SCALE"), NULL, 10) < 100)
        opts.points = opts.points * strtoull(getenv("DURITE_TEST_SCALE"), NULL, 10) / 100 + 1;
    kind first = opts.all_kinds ? POWER : opts.kind, last = opts.all_kinds ? KINDS - 1 : opts.kind;
    if (tap) printf("1..%d\n", (int)last - (int)first + 1);
    for (opts.kind = first; opts.kind <= last; opts.kind++) {
        if (!all_points(&done, &lost)) return 2;
        if (tap)
            printf("%s %d - nothing_is_lost_by_%s\n", lost == 0 ? "ok" : "not ok", (int)opts.kind - (int)first + 1,
                   kind_names[opts.kind]);
        else if (first != last)
            printf("%s: %llu points, %llu lost\n", kind_names[opts.kind], (unsigned long long)done,
                   (unsigned long long)lost);
        all_done += done;
        all_lost += lost;
    }
    printf("%s%llu points, %llu lost (seed %llu)\n", tap ? "# " : "", (unsigned long long)all_done,
           (unsigned long long)all_lost, (unsigned long long)opts.seed);
    return all_lost > 0;
}
