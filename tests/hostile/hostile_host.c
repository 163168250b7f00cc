/*
 * hostile_host.c: what a host program meets: handlers of another language, crashes, one process with two libraries.
 */
#include "hostile.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>

/* ---- H31: this program is C and loads handlers that are C++ ---- */

static void fault_h31_handlers_of_a_loaded_library_keep_their_exceptions(void **state) {
    world *w = *state;
    void *library = dlopen(HOSTILE_CXX_HANDLERS, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fail_msg("%s", dlerror());
    const dur_handler *(*table)(void);
    *(void **)(void *)&table = dlsym(library, "hostile_cxx_handlers");
    assert_non_null(table);
    RUN(w, table());
    char id[32];
    size_t count = scaled(30, 10);
    for (size_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "c-%zu", i);
        start(w, "Catches", id, id);
        until_history(w, id, "\"ExternalSubscribed\"", 1);
    }
    for (size_t turn = 1; turn <= 2; turn++)
        for (size_t i = 0; i < count; i++) {
            snprintf(id, sizeof(id), "c-%zu", i * 7 % count);
            until_history(w, id, "\"ExternalSubscribed\"", turn);
            OK(w, dur_client_pulse(w->client, &w->err, id, "Go", ""));
        }
    for (size_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "c-%zu", i);
        expect(w, id, "right");
    }
    world_stop(w);
}

/* ---- H37: what belongs to the process is there once ---- */

typedef struct object {
    const unsigned char *data;
    size_t size;
} object;

static object map_file(const char *path) {
    object out = { .data = NULL };
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) fail_msg("%s cannot be read", path);
    out.size = (size_t)info.st_size;
    out.data = mmap(NULL, out.size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    assert_ptr_not_equal(out.data, MAP_FAILED);
    return out;
}

/* Does the library take the function from another one? */
static bool imports(const object *file, const char *name) {
    const ElfW(Ehdr) *head = (const void *)file->data;
    const ElfW(Shdr) *sections = (const void *)(file->data + head->e_shoff);
    for (size_t i = 0; i < head->e_shnum; i++) {
        if (sections[i].sh_type != SHT_DYNSYM) continue;
        const ElfW(Sym) *symbols = (const void *)(file->data + sections[i].sh_offset);
        const char *names = (const char *)file->data + sections[sections[i].sh_link].sh_offset;
        for (size_t k = 0; k < sections[i].sh_size / sizeof(*symbols); k++)
            if (symbols[k].st_shndx == SHN_UNDEF && strcmp(names + symbols[k].st_name, name) == 0) return true;
    }
    return false;
}

static void fault_h37_there_is_one_assert_hook_and_one_list_of_fork_calls(void **state) {
    (void)state;
    if (!on_provider("postgres")) skip();
    Dl_info info;
    char path[1024];
    assert_true(dladdr((void *)(uintptr_t)dur_open, &info) != 0 && strrchr(info.dli_fname, '/') != NULL);
    snprintf(path, sizeof(path), "%.*s/libdurite-postgres.so.0", (int)(strrchr(info.dli_fname, '/') - info.dli_fname),
             info.dli_fname);
    object file = map_file(path);
    static const char *const shared[] = { "dur_assert_failed", "dur_process_serial" };
    for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++)
        if (!imports(&file, shared[i])) fail_msg("%s has its own %s", path, shared[i]);
    munmap((void *)(uintptr_t)file.data, file.size);
}

/* ---- H38: the last words of a crash ---- */

static volatile int *nowhere;

static dur_outcome crashes(dur_act *act, const char *input) {
    *nowhere = 1;
    return dur_act_complete(act, input);
}

static dur_outcome calls(dur_ctx *ctx, const char *input) {
    if (strcmp(input, "handler") == 0) *nowhere = 1;
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Crashes", input)));
}

static const dur_handler crashers[] = { DUR_ORCHESTRATION("Calls", NULL, calls), DUR_ACTIVITY("Crashes", crashes),
                                        DUR_HANDLERS_END };

static int crash_role(const char *url, long in_handler) {
    dur_provider *store = NULL;
    dur_client *client = NULL;
    dur_runtime *runtime = NULL;
    dur_error err = DUR_ERROR_INIT;
    (void)url;
    if (dur_crash_report_install(&err) != DUR_OK || dur_open(&store, "memory:", &err) != DUR_OK) return 1;
    if (dur_client_new(&client, store, &err) != DUR_OK) return 1;
    if (dur_runtime_start(&runtime, DUR_RUNTIME(.store = store, .handlers = crashers), &err) != DUR_OK) return 1;
    (void)dur_client_start(client, &err, "Calls", in_handler ? "handler" : "activity", .instance = "order-7");
    char *result = NULL;
    (void)dur_client_result(&result, client, "order-7", patience_ms(), &err);
    return 0;
}

/* What this program says on standard error when it crashes there. */
static void crash_and_read(bool in_handler, char *text, size_t size) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        dup2(ends[1], 2);
        execl("/proc/self/exe", "node", "--node", "crash", "memory:", in_handler ? "1" : "0", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t got; used < size - 1 && (got = read(ends[0], text + used, size - 1 - used)) > 0;)
        used += (size_t)got;
    text[used] = '\0';
    close(ends[0]);
    assert_true(WIFSIGNALED(node_wait(pid)));
}

static void fault_h38_a_crash_names_the_activity_and_its_instance(void **state) {
    (void)state;
    char text[4096];
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* they have signal handlers of their own */
#endif
    crash_and_read(false, text, sizeof(text));
    if (strstr(text, "in activity \"Crashes\" of instance \"order-7\"") == NULL) fail_msg("it says: %s", text);
    crash_and_read(true, text, sizeof(text));
    if (strstr(text, "in handler \"Calls\" of instance \"order-7\"") == NULL) fail_msg("it says: %s", text);
}

/* ---- more memory than there can be ---- */

static dur_outcome asks_for_all(dur_act *act, const char *input) {
    (void)input;
    if (dur_act_alloc(act, SIZE_MAX) != NULL || dur_act_alloc(act, SIZE_MAX - 100) != NULL)
        return dur_act_fail(act, "got it");
    return dur_act_complete(act, "refused");
}

static dur_outcome asks_once(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "AsksForAll", input)));
}

static void fault_h176_more_memory_than_there_is_is_refused(void **state) {
    static const dur_handler handlers[] = { DUR_ACTIVITY("AsksForAll", asks_for_all),
                                            DUR_ORCHESTRATION("AsksOnce", NULL, asks_once), DUR_HANDLERS_END };
    world *w = *state;
    RUN(w, handlers);
    start(w, "AsksOnce", "", "i");
    expect(w, "i", "refused");
    world_stop(w);
}

static const hostile_role roles[] = { { "crash", crash_role } };

static const struct CMUnitTest tests[] = {
    TEST(fault_h31_handlers_of_a_loaded_library_keep_their_exceptions),
    TEST(fault_h37_there_is_one_assert_hook_and_one_list_of_fork_calls),
    TEST(fault_h38_a_crash_names_the_activity_and_its_instance),
    TEST(fault_h176_more_memory_than_there_is_is_refused),
};

HOSTILE_MAIN(roles, tests)
