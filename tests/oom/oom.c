/*
 * oom.c: every allocation of every script fails once, alone and for good; README.md.
 *
 * usage: oom [--store memory|sqlite|sqlite-own] [--every N] [--script NAME] [--from POINT] [--only POINT] [--trace]
 *
 * A point is one allocation of one script, failed in one of two ways.  Points are tried in processes of their own, many
 * in each: one that ends badly is told, and the next one goes on behind it.
 */
#include "oom.h"

#include <dirent.h>
#include <durite/sys/clock.h>
#include <execinfo.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_MS UINT64_C(1700000000000)
#define SECONDS_MAX 20
#define OWN_EVERY 101 /* of SQLite's own, of which there are so many more, where they are not asked for alone */
#define SPREAD 7919   /* a sample does not begin at the same point of each script */
#define STUCK 64      /* waits that brought nothing while memory was refused: then it is given back */

/* ---- the allocator ---- */

/* Whose allocations are counted, and fail: the library's (dur_memory_hooks), or SQLite's (sqlite3_config). */
typedef struct target {
    const char *name, *scheme;
    bool of_sqlite;
} target;
static const target targets[] = {
    { "memory", "memory:", false },
    { "sqlite", "sqlite:", false },
    { "sqlite-own", "sqlite:", true },
    { NULL, NULL, false },
};
static const target *now_at;

static struct {
    uint64_t count;   /* allocations since the script began */
    uint64_t fail_at; /* that one fails; 0: none */
    bool for_good;    /* and all behind it, until memory is given back */
    bool failed, off;
    int64_t blocks; /* out */
} heap;

static bool trace; /* the first failure of a point is told with its place */

static bool refused(void) {
    heap.count++;
    if (heap.fail_at == 0 || heap.off) return false;
    if (heap.count != heap.fail_at && !(heap.for_good && heap.count > heap.fail_at)) return false;
    if (trace && !heap.failed) {
        void *frames[40];
        backtrace_symbols_fd(frames, backtrace(frames, 40), 2);
    }
    heap.failed = true;
    return true;
}

static void *heap_alloc(size_t size, void *data) {
    (void)data;
    if (!now_at->of_sqlite && refused()) return NULL;
    void *block = malloc(size);
    heap.blocks += block != NULL;
    return block;
}

static void *heap_resize(void *block, size_t size, void *data) {
    (void)data;
    return !now_at->of_sqlite && refused() ? NULL : realloc(block, size);
}

static void heap_free(void *block, void *data) {
    (void)data;
    heap.blocks--;
    free(block);
}

/* SQLite asks for the size of each block. */
static void *sqlite_alloc(int size) {
    return now_at->of_sqlite && refused() ? NULL : malloc((size_t)size);
}
static void sqlite_release(void *block) {
    free(block);
}
static void *sqlite_resize(void *block, int size) {
    return now_at->of_sqlite && refused() ? NULL : realloc(block, (size_t)size);
}
static int sqlite_size(void *block) {
    return (int)malloc_usable_size(block);
}
static int sqlite_round(int size) {
    return (size + 7) & ~7;
}
static int sqlite_begin(void *data) {
    (void)data;
    return SQLITE_OK;
}
static void sqlite_end(void *data) {
    (void)data;
}

static bool hooks_set(void) {
    static const sqlite3_mem_methods methods = { sqlite_alloc, sqlite_release, sqlite_resize, sqlite_size,
                                                 sqlite_round, sqlite_begin,   sqlite_end,    NULL };
    return dur_memory_hooks(heap_alloc, heap_resize, heap_free, NULL) == DUR_OK &&
           sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) == SQLITE_OK;
}

void memory_back(void) {
    heap.off = true;
}

bool memory_failed(void) {
    return heap.failed;
}

/* ---- one run ---- */

static struct shared {
    uint64_t point; /* under way */
    uint64_t total; /* allocations of the script, known once it was run without a failure */
    uint64_t done, bad;
} * shared;

static bool warm;                 /* what there is once in a process is there */
static char folder[PATH_MAX / 2]; /* of the store's files; each child has one */

void fail(const world *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "oom: %s, %s, point %llu (%s): ", now_at->name, w->script, (unsigned long long)heap.fail_at,
            heap.for_good ? "for good" : "once");
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    _exit(3);
}

void settle(world *w) {
    for (int i = 0; i < 10000; i++) {
        dur_error err = DUR_ERROR_INIT;
        int code = dur_runtime_run_until_idle(w->runtime, 1000, &err);
        if (code == DUR_OK && (!memory_failed() || heap.off)) return;
        if (code != DUR_OK && code != DUR_ETIMEOUT) fail(w, "a step: %s", err.message);
        if (i > STUCK) memory_back();
    }
    fail(w, "it does not come to rest");
}

void ends(world *w, const char *instance, int code, const char *text) {
    for (int i = 0; i < 1000; i++) {
        dur_error err = DUR_ERROR_INIT;
        char *out = NULL;
        int got = dur_client_result(&out, w->client, instance, DUR_MINUTES(1), &err);
        const char *said = got == DUR_OK ? out : err.message;
        bool right = got == code && (text == NULL || strcmp(said, text) == 0);
        if (got == DUR_ENOMEM || got == DUR_ETIMEOUT) {
            if (got == DUR_ENOMEM || i > 2) memory_back();
        } else if (!right) {
            fail(w, "%s: %s, \"%s\" instead of %s, \"%s\"", instance, dur_code_name(got), said, dur_code_name(code),
                 text != NULL ? text : "?");
        }
        dur_free(out);
        if (right) return;
    }
    fail(w, "%s does not end", instance);
}

static char *beside(const char *name) {
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void files_remove(const char *but) {
    struct dirent *entry;
    DIR *dir = folder[0] != '\0' ? opendir(folder) : NULL;
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (but == NULL || strcmp(entry->d_name, but) != 0) (void)unlink(beside(entry->d_name));
    if (dir != NULL) closedir(dir);
}

/* Nearly all that SQLite allocates it allocates to make tables: only the first script does. */
static void file_copy(void) {
    static char data[1 << 20];
    FILE *from = fopen(beside("made"), "rb"), *to = from != NULL ? fopen(beside("store"), "wb") : NULL;
    size_t size = to != NULL ? fread(data, 1, sizeof data, from) : 0;
    if (to != NULL && (fwrite(data, 1, size, to) != size || size == sizeof data)) abort();
    if (from != NULL) fclose(from);
    if (to != NULL) fclose(to);
}

static void begin(world *w, const dur_world *time) {
    char url[PATH_MAX + 64];
    files_remove("made");
    if (folder[0] != '\0') file_copy();
    snprintf(url, sizeof url, "%s%s", now_at->scheme, folder[0] != '\0' ? beside("store") : "");
    w->path = folder[0] != '\0' ? beside("store") : NULL;
    DO(w, dur_open_ex(&w->store, url, DUR_OPEN_OPTIONS(.world = time), &err));
    DO(w, dur_runtime_start(&w->runtime,
                            DUR_RUNTIME(.store = w->store, .handlers = oom_handlers, .threads = DUR_THREADS_NONE,
                                        .world = time, .name = "oom"),
                            &err));
    DO(w, dur_client_new(&w->client, w->store, &err));
}

static void judge(world *w) {
    memory_back();
    settle(w);
    DO(w, dur_provider_check(w->store, &err));
    DO(w, dur_runtime_check(w->runtime, &err));
    DO(w, dur_runtime_stop(w->runtime, 1000, &err));
    DO(w, dur_provider_check(w->store, &err));
    dur_client_free(w->client);
    dur_provider_close(w->store);
}

/* Returns how many allocations there were until memory was given back. */
static uint64_t run_once(const script *s, uint64_t fail_at, bool for_good) {
    world w = { .script = s->name };
    dur_fake_world *time = dur_fake_world_new(START_MS, 1);
    int64_t before = heap.blocks;
    dur_fake_world_enter(time);
    heap.count = 0;
    heap.fail_at = fail_at;
    heap.for_good = for_good;
    heap.failed = heap.off = false;
    begin(&w, dur_fake_world_get(time));
    s->run(&w);
    uint64_t count = heap.count;
    judge(&w);
    heap.off = true;
    dur_fake_world_enter(NULL);
    if (heap.blocks != before && warm) fail(&w, "%lld blocks are left", (long long)(heap.blocks - before));
    dur_fake_world_free(time);
    return count;
}

/* ---- many ---- */

static void quiet(void *data, const dur_log_record *record) {
    (void)data;
    fprintf(stderr, "# %s\n", record->message);
}

/* In memory where there is a file system for that: a point makes a store of its own. */
static void folder_make(void) {
    const char *in = getenv("TMPDIR");
    if (in == NULL) in = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder, sizeof folder, "%s/oom.XXXXXX", in);
    if (mkdtemp(folder) == NULL) abort();
}

static void store_make(void) {
    dur_provider *store = NULL;
    char url[PATH_MAX + 64];
    snprintf(url, sizeof url, "%s%s", now_at->scheme, beside("made"));
    if (dur_open(&store, url, NULL) != DUR_OK) abort();
    dur_provider_close(store);
}

static void child(const script *s, uint64_t from, uint64_t every, bool for_good) {
    if (trace) (void)dur_log_set_sink(quiet, NULL, DUR_LOG_INFO);
    if (folder[0] != '\0' && s != scripts) store_make();
    (void)run_once(s, 0, false);
    warm = true;
    shared->total = run_once(s, 0, false);
    for (uint64_t point = from; point <= shared->total; point += every) {
        shared->point = point;
        if (!trace) alarm(SECONDS_MAX); /* one that hangs is lost, too */
        (void)run_once(s, point, for_good);
        shared->done++;
    }
    _exit(0);
}

static void try_all(const script *s, uint64_t from, uint64_t every, bool for_good) {
    shared->point = 0;
    folder[0] = '\0';
    if (strcmp(now_at->scheme, "memory:") != 0) folder_make();
    for (;;) {
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) child(s, from, every, for_good);
        int status = 0;
        if (pid < 0 || waitpid(pid, &status, 0) != pid) abort();
        files_remove(NULL);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
        shared->bad++;
        shared->done++;
        printf("point %s %s %llu (%s): %s %d\n", now_at->name, s->name, (unsigned long long)shared->point,
               for_good ? "for good" : "once", WIFSIGNALED(status) ? "signal" : "exit",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        fflush(stdout);
        if (shared->point == 0) break; /* not even without a failure */
        from = shared->point + every;
    }
    if (folder[0] != '\0') (void)rmdir(folder);
}

static uint64_t number_of(const char *text) {
    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

static size_t target_count(void) {
    size_t count = 0;
    while (targets[count].name != NULL)
        count++;
    return count;
}

static size_t script_count(void) {
    size_t count = 0;
    while (scripts[count].name != NULL)
        count++;
    return count;
}

static void try_script(const script *s, uint64_t from, uint64_t only, uint64_t every) {
    for (int for_good = 0; for_good <= 1; for_good++)
        try_all(s, from != 0 ? from : 1 + (uint64_t)(2 * (s - scripts) + for_good) * SPREAD % every,
                only != 0 ? UINT64_MAX / 2 : every, for_good != 0);
}

int main(int argc, char **argv) {
    uint64_t every = 1, from = 0, only = 0;
    bool tap = getenv("CMOCKA_MESSAGE_OUTPUT") != NULL; /* as one of the tests */
    int number = 0;
    const char *name = NULL, *store = NULL, *scale = getenv("DURITE_TEST_SCALE");
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--trace") == 0)
            trace = true;
        else if (i + 1 < argc && strcmp(argv[i], "--every") == 0)
            every = number_of(argv[++i]);
        else if (i + 1 < argc && strcmp(argv[i], "--from") == 0)
            from = number_of(argv[++i]);
        else if (i + 1 < argc && strcmp(argv[i], "--only") == 0)
            only = number_of(argv[++i]);
        else if (i + 1 < argc && strcmp(argv[i], "--script") == 0)
            name = argv[++i];
        else if (i + 1 < argc && strcmp(argv[i], "--store") == 0)
            store = argv[++i];
    }
    if (every > 1 && number_of(scale) > 0 && number_of(scale) < 100) every = every * 100 / number_of(scale);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || !hooks_set()) return 2;
    if (only != 0) from = only;
    if (tap) printf("1..%zu\n", script_count() * (store != NULL ? 1 : target_count()));
    for (now_at = targets; now_at->name != NULL; now_at++) {
        if (store != NULL && strcmp(store, now_at->name) != 0) continue;
        time_t begun = time(NULL);
        for (const script *s = scripts; s->name != NULL; s++) {
            if (name != NULL && strcmp(name, s->name) != 0) continue;
            uint64_t done = shared->done, bad = shared->bad;
            try_script(s, from, only, store == NULL && now_at->of_sqlite ? every * OWN_EVERY : every);
            if (tap) printf("%sok %d - %s %s\n# ", shared->bad > bad ? "not " : "", ++number, now_at->name, s->name);
            printf("%s %s: %llu points, %llu lost\n", now_at->name, s->name, (unsigned long long)(shared->done - done),
                   (unsigned long long)(shared->bad - bad));
            fflush(stdout);
        }
        printf("# %s took %llu s\n", now_at->name, (unsigned long long)(time(NULL) - begun));
    }
    printf("%s%llu points, %llu lost\n", tap ? "# " : "", (unsigned long long)shared->done,
           (unsigned long long)shared->bad);
    return shared->bad != 0;
}
