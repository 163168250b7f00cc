/*
 * sim_main.c: which seeds, on which store; each run in a process of its own; what failed, and how to see it again.
 * sim --help tells the rest.
 */
#include "sim_machine.h"
#include "support/sqlite_alone.h"

#ifdef HAVE_LIBPQ
#include <durite/postgres.h>
#endif
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOBS_MAX 64
#define BEGIN_NS 1000000000000u
#define SERVER_BYTES 4096           /* of sim_common: as much as a server has mapped (clock/sim_clock.c) */
#define STALLING 25                 /* percent of the runs */
#define WALL_NS 1800000000000000000 /* what the wall clock is ahead of the other */

typedef struct sim_options {
    sim_store store;
    const char *url; /* PostgreSQL */
    uint64_t from, seeds;
    uint64_t every, part; /* of those: each whose number leaves this rest */
    int jobs;
    bool trace, twice, keep_going, log, tell, keep;
    const char *replay; /* a kept trace; NULL: by the seed alone */
} sim_options;

/* What a run leaves for whoever began it. */
typedef struct result {
    bool ran, failed;
    uint64_t seed, hash, points, virtual_ms;
    char failure[2048];
    char kept[256]; /* where its trace is; "": it is the same again by the seed */
} result;

static const char usage_text[] = "usage: sim [memory:|sqlite:|postgres://…] [options]\n"
                                 "  --from N       the first seed (default 1)\n"
                                 "  --seeds N      how many (default 100)\n"
                                 "  --every N --part K  only seeds that leave the rest K\n"
                                 "  --jobs N       runs at a time (default 2; postgres: 1)\n"
                                 "  --scaled       so many percent of that as DURITE_TEST_SCALE says\n"
                                 "  --trace        print what happened, line by line, on standard error\n"
                                 "  --log          the library's own log lines, too\n"
                                 "  --tell         what the ledger says at the end of each run\n"
                                 "  --keep         leave the store's files, and name their folder (sqlite)\n"
                                 "  --twice        run each seed twice and compare the traces (memory, sqlite)\n"
                                 "  --replay FILE  follow the kept trace of a run that has failed, as far as it goes\n"
                                 "  --keep-going   do not stop at the first seed that fails\n"
                                 "Prints \"ok N\" for TAP and a last line \"N seeds, N failed\".\n";

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *walk) {
    (void)about;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void log_line(void *data, const dur_log_record *line);

/* ---- one run, in a process of its own ---- */

/* In a file where a server's clock is to follow the run (DURITE_SIM_CLOCK, clock/sim_clock.c), which then never goes
   back from run to run. */
static sim_common *map_shared(void) {
    const char *path = getenv("DURITE_SIM_CLOCK");
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    int kind = fd >= 0 ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS;
    /* What the run before has left is cut off, but for the page that the server looks at: zeros cost nothing until they
       are touched, and most of the trace and of the ledger never is. */
    if (fd >= 0 && (ftruncate(fd, SERVER_BYTES) != 0 || ftruncate(fd, sizeof(sim_common)) != 0)) return MAP_FAILED;
    sim_common *all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, kind, fd, 0);
    if (fd >= 0) close(fd);
    return all;
}

static void make_shared(uint64_t seed, bool trace) {
    sim_common *all = map_shared();
    if (all == MAP_FAILED) {
        perror("mmap");
        _exit(2);
    }
    uint64_t before_ns = all->mono_ns;
    memset(&all->changes, 0, SERVER_BYTES - offsetof(sim_common, changes)); /* the rest is zeros */
    all->seed = seed;
    all->mono_ns = before_ns >= BEGIN_NS ? before_ns + 3600000000000u : BEGIN_NS;
    all->wall_ns = WALL_NS;
    all->begin_ns = all->mono_ns;
    all->trace_hash = 0xcbf29ce484222325u;
    all->tracing = trace;
    sim_rng rng = sim_stream(seed, "stalls", 0);
    all->stalls = sim_chance(&rng, STALLING);
    sim_shared_memory = all;
}

static bool open_memory(sim_run *run) {
    dur_error err = { 0 };
    if (dur_open(&run->provider, "memory:", &err) == DUR_OK) return true;
    snprintf(sim_shared_memory->failure, sizeof(sim_shared_memory->failure), "memory: %s", err.message);
    return false;
}

/* Of the one run of this process. */
static struct {
    const sim_options *options;
    sim_run run;
    result *result;
    char url[256], folder[128], database[48];
} now;

static void make_folder(void) {
    const char *under = getenv("DURITE_SIM_TMP"); /* in memory: a sync costs nothing, and nothing is worn out */
    snprintf(now.folder, sizeof(now.folder), "%s/simXXXXXX", under != NULL ? under : "/dev/shm");
    if (mkdtemp(now.folder) == NULL) {
        perror(now.folder);
        _exit(2);
    }
    snprintf(now.url, sizeof(now.url), "sqlite:%s/sim.db", now.folder);
}

static void run_seed(const sim_options *options, uint64_t seed, result *out) {
    now.options = options;
    now.result = out;
    if (options->store == SIM_SQLITE) make_folder();
    make_shared(seed, options->trace || options->store == SIM_POSTGRES); /* which a seed does not repeat */
    dur_log_set_sink(log_line, NULL, DUR_LOG_DEBUG);                     /* always: a line takes time */
    now.run = (sim_run){ .seed = seed, .store = options->store, .url = now.url, .shared = sim_shared_memory->ledger };
    snprintf(now.database, sizeof(now.database), "sim_%llu_%ld", (unsigned long long)seed, (long)getpid());
    bool fine = true;
    if (options->store == SIM_MEMORY) fine = open_memory(&now.run);
    if (options->store == SIM_POSTGRES) /* now and then whoever opens it first makes the schema */
        fine = sim_server_open(options->url, now.database, seed % 8 == 0, now.url, sizeof(now.url));
    sim_run_ended(fine && sim_schedule(&now.run));
}

_Noreturn void sim_run_ended(bool fine) {
    const sim_common *all = sim_shared_memory;
    result *out = now.result;
    if (now.options->tell || !fine) sim_judge_tell(&now.run);
    fflush(stdout);
    if (now.options->trace) (void)!write(2, all->trace, all->trace_bytes);
    out->failed = !fine;
    out->hash = all->trace_hash;
    out->points = all->points;
    out->virtual_ms = (all->mono_ns - all->begin_ns) / 1000000u;
    snprintf(out->failure, sizeof(out->failure), "%s", all->failure);
    if (!fine && now.options->store == SIM_POSTGRES && !sim_trace_keep(out->kept, sizeof(out->kept)))
        out->kept[0] = '\0';
    out->ran = true;
    if (now.options->store == SIM_POSTGRES) sim_server_close(now.database);
    if (now.options->store == SIM_SQLITE && now.options->keep)
        fprintf(stderr, "# kept: %s\n", now.folder);
    else if (now.options->store == SIM_SQLITE)
        nftw(now.folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    _exit(0);
}

static void log_line(void *data, const dur_log_record *line) {
    (void)data;
    if (!now.options->log && now.options->store != SIM_POSTGRES) return;
    char text[300];
    size_t size = (size_t)snprintf(text, sizeof(text), "%s", line->message);
    for (size_t i = 0; i < line->field_count && size < sizeof(text); i++) {
        const dur_log_field *field = &line->fields[i];
        size +=
            (size_t)(field->text != NULL ? snprintf(text + size, sizeof(text) - size, " %s=%s", field->key, field->text)
                                         : snprintf(text + size, sizeof(text) - size, " %s=%lld", field->key,
                                                    (long long)field->number));
    }
    sim_note("log %s %s", dur_log_level_name(line->level), text);
}

static void run_apart(const sim_options *options, uint64_t seed, result *out) {
    memset(out, 0, sizeof(*out));
    out->seed = seed;
    fflush(stdout);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(127);
        run_seed(options, seed, out);
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (out->ran) return;
    out->failed = true;
    if (out->failure[0] == '\0')
        snprintf(out->failure, sizeof(out->failure), "the run ended by %s %d",
                 WIFSIGNALED(status) ? "signal" : "exit code",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* ---- many runs ---- */

typedef struct sim_board {
    _Atomic uint64_t next, ran, failed, points, virtual_ms;
    result results[JOBS_MAX];
} sim_board;

static void tell_failure(const sim_options *options, const result *one) {
    printf("# seed %llu: %s\n", (unsigned long long)one->seed, one->failure);
    if (one->kept[0] != '\0')
        printf("# again: tools/sim -j 1 BUILD postgres --replay %s\n", one->kept);
    else
        printf("# again: sim %s --from %llu --seeds 1 --trace --log\n", options->url, (unsigned long long)one->seed);
    fflush(stdout);
}

static bool same_twice(const sim_options *options, result *one) {
    if (!options->twice || one->failed) return true;
    uint64_t hash = one->hash;
    run_apart(options, one->seed, one);
    if (one->hash == hash) return true;
    one->failed = true;
    snprintf(one->failure, sizeof(one->failure), "another trace the second time: %016llx, %016llx",
             (unsigned long long)hash, (unsigned long long)one->hash);
    return false;
}

static void work(const sim_options *options, sim_board *board, result *mine) {
    for (;;) {
        uint64_t seed = atomic_fetch_add(&board->next, 1);
        if (seed >= options->from + options->seeds) return;
        if (seed % options->every != options->part) continue;
        if (!options->keep_going && atomic_load(&board->failed) > 0) return;
        run_apart(options, seed, mine);
        (void)same_twice(options, mine);
        atomic_fetch_add(&board->ran, 1);
        atomic_fetch_add(&board->points, mine->points);
        atomic_fetch_add(&board->virtual_ms, mine->virtual_ms);
        if (!mine->failed) continue;
        atomic_fetch_add(&board->failed, 1);
        tell_failure(options, mine);
    }
}

static bool option_number(uint64_t *out, char **argv, int argc, int *i) {
    if (*i + 1 >= argc) return false;
    char *end = NULL;
    *out = strtoull(argv[++*i], &end, 10);
    return *end == '\0' && end != argv[*i];
}

static bool parse(sim_options *out, int argc, char **argv) {
    uint64_t jobs = 2;
    bool scaled = false;
    *out = (sim_options){ .store = SIM_MEMORY, .url = "memory:", .from = 1, .seeds = 100, .every = 1 };
    for (int i = 1; i < argc; i++) {
        bool fine = true;
        if (strcmp(argv[i], "--from") == 0)
            fine = option_number(&out->from, argv, argc, &i);
        else if (strcmp(argv[i], "--seeds") == 0)
            fine = option_number(&out->seeds, argv, argc, &i);
        else if (strcmp(argv[i], "--jobs") == 0)
            fine = option_number(&jobs, argv, argc, &i);
        else if (strcmp(argv[i], "--every") == 0)
            fine = option_number(&out->every, argv, argc, &i) && out->every > 0;
        else if (strcmp(argv[i], "--part") == 0)
            fine = option_number(&out->part, argv, argc, &i);
        else if (strcmp(argv[i], "--replay") == 0)
            fine = i + 1 < argc && (out->replay = argv[++i]) != NULL;
        else if (strcmp(argv[i], "--scaled") == 0)
            scaled = true;
        else if (strcmp(argv[i], "--trace") == 0)
            out->trace = true;
        else if (strcmp(argv[i], "--log") == 0)
            out->log = true;
        else if (strcmp(argv[i], "--tell") == 0)
            out->tell = true;
        else if (strcmp(argv[i], "--keep") == 0)
            out->keep = true;
        else if (strcmp(argv[i], "--twice") == 0)
            out->twice = true;
        else if (strcmp(argv[i], "--keep-going") == 0)
            out->keep_going = true;
        else if (strncmp(argv[i], "memory:", 7) == 0)
            out->store = SIM_MEMORY, out->url = "memory:";
        else if (strncmp(argv[i], "sqlite:", 7) == 0)
            out->store = SIM_SQLITE, out->url = "sqlite:";
        else if (strncmp(argv[i], "postgres", 8) == 0)
            out->store = SIM_POSTGRES, out->url = argv[i];
        else
            fine = false;
        if (!fine) {
            fprintf(stderr, "sim: what is %s?\n%s", argv[i], usage_text);
            return false;
        }
    }
    const char *scale = scaled ? getenv("DURITE_TEST_SCALE") : NULL;
    if (scale != NULL) out->seeds = out->seeds * strtoull(scale, NULL, 10) / 100 + 1;
    if (out->store == SIM_POSTGRES) jobs = 1; /* a server has one clock */
    out->jobs = jobs < 1 ? 1 : jobs > JOBS_MAX ? JOBS_MAX : (int)jobs;
    return true;
}

/* Cut off: what has begun is run to its end, nothing else begins, and the last lines say how much it was. */
static sim_board *board;
static volatile sig_atomic_t cut_off;
static void on_signal(int number) {
    cut_off = number;
    atomic_store(&board->next, UINT64_MAX / 2);
}

int main(int argc, char **argv) {
    sim_options options;
    if (argc > 1 && strcmp(argv[1], "--help") == 0) return fputs(usage_text, stdout) < 0;
    if (!parse(&options, argc, argv)) return 2;
    if (options.replay != NULL && !sim_replay_open(options.replay, &options.from)) return 2;
    sqlite_alone();
    if (options.replay != NULL) options.seeds = options.every = 1, options.part = 0;
#ifdef HAVE_LIBPQ
    dur_error err = { 0 };
    if (dur_postgres_register(&err) != DUR_OK) fprintf(stderr, "sim: %s\n", err.message);
    setenv("PGSSLMODE", "disable", 1);
    setenv("PGGSSENCMODE", "disable", 1);
#endif
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) return perror("mmap"), 2;
    atomic_store(&board->next, options.from);
    pid_t parent = getpid();
    if (options.store != SIM_POSTGRES) { /* whose server is cut off as well; a second signal does not wait */
        struct sigaction once = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND };
        (void)sigaction(SIGINT, &once, NULL);
        (void)sigaction(SIGTERM, &once, NULL);
    }
    for (int i = 0; i < options.jobs; i++) {
        if (fork() != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (options.store != SIM_POSTGRES) {
            (void)signal(SIGINT, SIG_IGN);
            (void)signal(SIGTERM, SIG_IGN);
        }
        if (getppid() != parent) _exit(127);
        work(&options, board, &board->results[i]);
        _exit(0);
    }
    while (wait(NULL) > 0 || errno == EINTR) {
    }
    uint64_t ran = atomic_load(&board->ran), failed = atomic_load(&board->failed);
    if (cut_off != 0) printf("# cut off; go on with --from %llu\n", (unsigned long long)(options.from + ran));
    printf("1..1\n%sok 1 - %llu seeds\n", failed == 0 ? "" : "not ", (unsigned long long)ran);
    printf("# %llu points, %llu s of virtual time\n", (unsigned long long)atomic_load(&board->points),
           (unsigned long long)atomic_load(&board->virtual_ms) / 1000);
    printf("# %llu seeds, %llu failed\n", (unsigned long long)ran, (unsigned long long)failed);
    return failed == 0 && ran > 0 ? 0 : 1;
}
