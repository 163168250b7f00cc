/*
 * machine.c: nodes without threads that go through the script, and the ledger.
 *
 * One node is this process; a second one is a process of its own that does what it is told through a pipe, so that only
 * one of them does something at a time and a run is a function of its seed.
 */
#include "disk/machine.h"

#include <dirent.h>
#include <durite/sqlite.h>
#include <durite/step.h>
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FACTS_MAX = 1 << 16, TRIES_MAX = 400, WAL_PAGES = 40, NODES = 2 };
#define TEXT_MAX ((size_t)1 << 26)

typedef struct told {
    size_t count, used;
    fact facts[FACTS_MAX];
    unsigned long tokens; /* never the same twice, whatever happens to the disk */
    int step;             /* under way */
    char why[1000];
} told;

static told *shared;
static char *texts;
static char folder_path[300], db_path[320];
bool machine_trace;

typedef struct node {
    dur_provider *store;
    dur_client *client;
    dur_runtime *runtime;
    dur_error err;
} node;
static node self;

/* ---- the ledger ---- */

static const char *keep(const char *text, size_t size) {
    if (shared->used + size + 1 > TEXT_MAX) {
        fprintf(stderr, "crash_disk: the ledger is full\n");
        abort();
    }
    char *kept = texts + shared->used;
    memcpy(kept, text, size);
    kept[size] = '\0';
    shared->used += size + 1;
    return kept;
}

static fact *note(fact_kind kind, const char *instance, const char *text, size_t size) {
    if (shared->count == FACTS_MAX) {
        fprintf(stderr, "crash_disk: too many facts\n");
        abort();
    }
    fact *made = &shared->facts[shared->count++];
    *made =
        (fact){ .kind = kind, .step = shared->step, .at = disk->op_count, .world_ms = disk->world_ms, .size = size };
    made->instance = instance != NULL ? keep(instance, strlen(instance)) : "";
    made->text = text != NULL ? keep(text, size) : "";
    return made;
}

ledger ledger_copy(void) {
    ledger copy = { shared->count, shared->count, malloc((shared->count + 1) * sizeof(fact)) };
    if (copy.facts == NULL) abort();
    for (size_t i = 0; i < copy.count; i++) {
        copy.facts[i] = shared->facts[i];
        copy.facts[i].instance = strdup(shared->facts[i].instance);
        char *text = malloc(copy.facts[i].size + 1);
        if (text == NULL) abort();
        memcpy(text, shared->facts[i].text, copy.facts[i].size);
        text[copy.facts[i].size] = '\0';
        copy.facts[i].text = text;
    }
    return copy;
}

void ledger_free(ledger *book) {
    for (size_t i = 0; i < book->count; i++) {
        free((void *)(uintptr_t)book->facts[i].instance);
        free((void *)(uintptr_t)book->facts[i].text);
    }
    free(book->facts);
    book->facts = NULL;
    book->count = 0;
}

void ledger_reset(void) {
    shared->count = shared->used = 0;
    shared->why[0] = '\0';
}

int ledger_doubt(const ledger *book, size_t at, int from) {
    int doubt = from;
    for (size_t i = 0; i < book->count; i++)
        if (book->facts[i].kind == FACT_STEP && book->facts[i].at <= at) doubt = book->facts[i].step + 1;
    return doubt;
}

uint64_t ledger_world(const ledger *book, size_t at) {
    uint64_t ms = 0;
    for (size_t i = 0; i < book->count; i++)
        if (book->facts[i].at <= at || ms == 0) ms = book->facts[i].world_ms;
    return ms;
}

void ledger_owners(const ledger *book, size_t at, uint64_t seed, const char *folder) {
    for (size_t i = 0; i < book->count; i++) {
        const fact *owner = &book->facts[i];
        if (owner->kind != FACT_OWNER || owner->at > at) continue;
        uint64_t fate = disk_mix(seed, i) % 4;
        if (fate == 0) continue; /* the folder did not have its name yet, or no longer */
        char path[700];
        snprintf(path, sizeof(path), "%s/%s%s", folder, owner->instance, fate == 1 ? ".new" : "");
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0) continue;
        if (fate != 2 && write(fd, owner->text, owner->size) < 0) perror(path);
        close(fd);
    }
}

const char *machine_why(void) {
    return shared->why;
}

static int wrong(const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (shared->why[0] == '\0') vsnprintf(shared->why, sizeof(shared->why), format, args);
    va_end(args);
    return -1;
}

void activity_ran(dur_act *act) {
    fact *made = note(FACT_RAN, dur_act_instance_id(act), NULL, 0);
    made->execution = dur_act_execution_id(act);
    made->number = dur_act_id(act);
}

unsigned long next_token(void) {
    return ++shared->tokens;
}

/* ---- one node ---- */

static void note_owners(void) {
    DIR *dir = opendir(folder_path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char path[700], bytes[1024];
        if (strstr(entry->d_name, ".owner-") == NULL) continue;
        snprintf(path, sizeof(path), "%s/%s", folder_path, entry->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t size = fd >= 0 ? read(fd, bytes, sizeof(bytes)) : -1;
        if (fd >= 0) close(fd);
        if (size >= 0) note(FACT_OWNER, entry->d_name, bytes, (size_t)size);
    }
    if (dir != NULL) closedir(dir);
}

static int node_open(void) {
    int code = DUR_OK;
    if (self.store == NULL)
        code = dur_sqlite_open(&self.store, DUR_SQLITE(.path = db_path, .wal_pages = WAL_PAGES), &self.err);
    if (code == DUR_OK && self.client == NULL) code = dur_client_new(&self.client, self.store, &self.err);
    return code;
}

static int node_run(void) {
    static const char *const tags[] = { "gpu", NULL };
    if (self.runtime != NULL) return DUR_OK;
    int code =
        dur_runtime_start(&self.runtime,
                          DUR_RUNTIME(.store = self.store, .handlers = handlers_at(shared->step),
                                      .threads = DUR_THREADS_NONE, .tags = DUR_TAG_AND_DEFAULT, .worker_tags = tags),
                          &self.err);
    if (code == DUR_OK) note_owners();
    return code;
}

static int node_stop(void) {
    int code = self.runtime != NULL ? dur_runtime_stop(self.runtime, 1000, &self.err) : DUR_OK;
    self.runtime = NULL;
    return code;
}

static int node_close(void) {
    int code = node_stop();
    dur_client_free(self.client);
    dur_provider_close(self.store);
    self.client = NULL;
    self.store = NULL;
    return code;
}

static int node_settle(void) {
    return self.runtime != NULL ? dur_runtime_run_until_idle(self.runtime, 10000, &self.err) : DUR_OK;
}

static const char *instance_of(const step *st) {
    return st->verb == START || st->verb == START_LATER || st->verb == START_V1 ? st->b : st->a;
}

static bool takes_away(const step *st, const char *instance) {
    bool does = st->verb == DELETE || st->verb == PRUNE || (st->verb == START && st->policy != DUR_START_FAIL);
    return does && instance_of(st) != NULL && strcmp(instance_of(st), instance) == 0;
}

/* ---- steps: DUR_OK, DUR_ERUNNING (not yet), -1 (wrong: said), or what the library said ---- */

static int do_start(const step *st, int number, bool again) {
    dur_start_args args = { .size = sizeof(args), .name = st->a, .input = st->c, .instance = st->b };
    args.delay_ms = st->verb == START_LATER ? 1500 : 0;
    args.version = st->verb == START_V1 ? "1.0.0" : NULL;
    args.exists = st->policy;
    (void)number;
    int code = dur_client_start_ex(self.client, &args, &self.err);
    return code == DUR_EEXISTS && again ? DUR_OK : code;
}

static int do_send(const step *st, int number) {
    char id[32];
    snprintf(id, sizeof(id), "step-%d", number);
    dur_message_args args = { .size = sizeof(args), .instance = st->a, .name = st->b, .data = st->c, .message_id = id };
    return st->verb == RAISE ? dur_client_pulse_ex(self.client, &args, &self.err)
                             : dur_client_send_ex(self.client, &args, &self.err);
}

static int see_history(const step *st) {
    char *text = NULL;
    int code = dur_client_history(&text, self.client, st->a, 0, &self.err);
    if (code == DUR_ENOTFOUND) { /* its first turn may be to come, its start is there */
        dur_instance_info *info = NULL;
        code = dur_client_info(&info, self.client, st->a, &self.err);
        dur_instance_info_free(info);
        return code == DUR_OK ? DUR_ERUNNING : code;
    }
    if (code == DUR_OK && strstr(text, st->b) == NULL) code = DUR_ERUNNING;
    dur_free(text);
    return code;
}

static int result_text(const char *instance, char *out, size_t size, int *ended, dur_error *err) {
    dur_instance_info *info = NULL;
    int code = dur_client_info(&info, self.client, instance, err);
    if (code != DUR_OK) return code;
    *ended = info->status == DUR_INSTANCE_COMPLETED ? DUR_OK : info->cancelled ? DUR_ECANCELLED : DUR_EFAILED;
    if (info->status == DUR_INSTANCE_RUNNING) code = DUR_ERUNNING;
    if (info->suspended) code = DUR_ESUSPENDED;
    snprintf(out, size, "%s %s", dur_code_name(*ended), info->output != NULL ? info->output : "");
    if (info->suspended) snprintf(out, size, "%s", info->suspend_reason);
    dur_instance_info_free(info);
    return code;
}

static int see_result(const step *st) {
    char text[600] = "";
    int ended = DUR_OK;
    int code = result_text(st->a, text, sizeof(text), &ended, &self.err);
    if (code == DUR_ESUSPENDED) return wrong("%s is suspended: %s", st->a, text);
    if (code != DUR_OK) return code;
    if (ended != st->code) return wrong("%s ended as \"%s\", not as %s", st->a, text, dur_code_name(st->code));
    if (st->b != NULL && strcmp(text + strlen("DUR_OK "), st->b) != 0)
        return wrong("%s ended as \"%s\", not as \"%s\"", st->a, text, st->b);
    note(FACT_RESULT, st->a, text, strlen(text));
    return DUR_OK;
}

static int see_value(const step *st) {
    char *value = NULL;
    int code = dur_client_kv_get(&value, self.client, st->a, st->b, &self.err);
    if (code == DUR_OK && (value == NULL || (st->c != NULL && strcmp(value, st->c) != 0))) code = DUR_ERUNNING;
    dur_free(value);
    return code;
}

static int see_info(const step *st) {
    dur_instance_info *info = NULL;
    int code = dur_client_info(&info, self.client, st->a, &self.err);
    if (st->verb == ABSENT) {
        dur_instance_info_free(info);
        return code == DUR_ENOTFOUND ? DUR_OK : code == DUR_OK ? wrong("%s is there again", st->a) : code;
    }
    if (code != DUR_OK) return code;
    if (st->verb == SUSPENDED && !info->suspended) code = wrong("%s is not suspended", st->a);
    if (st->verb == STATUS && (info->custom_status == NULL || strcmp(info->custom_status, st->b) != 0))
        code = DUR_ERUNNING;
    dur_instance_info_free(info);
    return code;
}

static int see_executions(const step *st) {
    dur_execution_list *list = NULL;
    int code = dur_client_executions(&list, self.client, st->a, &self.err);
    if (code != DUR_OK) return code;
    if (list->count != (size_t)st->code) code = wrong("%s has %zu executions, not %d", st->a, list->count, st->code);
    dur_execution_list_free(list);
    return code;
}

static int do_dead_letters(const step *st) {
    dur_dead_letter_list *list = NULL;
    int code = dur_client_dead_letters(&list, self.client, 0, 100, &self.err);
    if (code != DUR_OK) return code;
    if (st->verb == FORGET) {
        for (size_t i = 0; i < list->count && code == DUR_OK; i++)
            code = dur_client_dead_letters_delete(self.client, &list->items[i]->id, 1, &self.err);
    } else if (list->count > (size_t)st->code) {
        code = wrong("there are %zu dead letters, not %d", list->count, st->code);
    } else if (list->count < (size_t)st->code) {
        code = DUR_ERUNNING;
    }
    dur_dead_letter_list_free(list);
    return code;
}

static int do_delete(const step *st, bool again) {
    int code = dur_client_delete(NULL, self.client, st->a, true, &self.err);
    return code == DUR_ENOTFOUND && again ? DUR_OK : code;
}

static int node_step(int number, bool again) {
    const step *st = &steps[number];
    uint64_t left = 0;
    switch (st->verb) {
    case START:
    case START_LATER:
    case START_V1:
        return do_start(st, number, again);
    case RAISE:
    case ENQUEUE:
        return do_send(st, number);
    case CANCEL:
        return dur_client_cancel(self.client, st->a, "asked", &self.err);
    case TERMINATE:
        return dur_client_terminate(self.client, st->a, "told", &self.err);
    case SUSPEND:
        return dur_client_suspend(self.client, st->a, "wait", &self.err);
    case RESUME:
        return dur_client_resume(self.client, st->a, &self.err);
    case DELETE:
        return do_delete(st, again);
    case PRUNE:
        return dur_client_prune(NULL, self.client, st->a, DUR_PRUNE(.keep_last = 1), &self.err);
    case FORGET:
    case DEAD_LETTERS:
        return do_dead_letters(st);
    case UNTIL:
        return see_history(st);
    case RESULT:
        return see_result(st);
    case VALUE:
        return see_value(st);
    case STATUS:
    case SUSPENDED:
    case ABSENT:
        return see_info(st);
    case EXECUTIONS:
        return see_executions(st);
    case VACUUM:
        return dur_provider_vacuum(self.store, 1000, &left, &self.err);
    case UPGRADE:
    case RESTART: /* by the machine */
    case SCENE:
        return DUR_OK;
    }
    return DUR_OK;
}

/* ---- after a loss of power ---- */

static int see_prefix(const fact *known) {
    char *now = NULL;
    int code = dur_client_history(&now, self.client, known->instance, known->execution, &self.err);
    if (code == DUR_ENOTFOUND)
        return wrong("lost: the history of %s, execution %llu", known->instance, (unsigned long long)known->execution);
    if (code == DUR_OK && strncmp(now, known->text, known->size) != 0)
        code = wrong("lost: the history of %s was\n%s\nand is\n%s", known->instance, known->text, now);
    dur_free(now);
    return code;
}

static int see_scheduled(const fact *ran) {
    char *now = NULL, wanted[64];
    int code = dur_client_history(&now, self.client, ran->instance, ran->execution, &self.err);
    if (code == DUR_ENOTFOUND)
        return wrong("lost: an activity of %s has run, and the instance is not there", ran->instance);
    snprintf(wanted, sizeof(wanted), "\"event_id\":%llu,", (unsigned long long)ran->number);
    if (code == DUR_OK && strstr(now, wanted) == NULL)
        code = wrong("lost: activity %llu of %s has run, and is not in its history\n%s",
                     (unsigned long long)ran->number, ran->instance, now);
    dur_free(now);
    return code;
}

static int see_before(const machine_run *run, const ledger *book, size_t at) {
    int code = DUR_OK;
    for (size_t i = 0; book != NULL && i < book->count && code == DUR_OK; i++) {
        const fact *known = &book->facts[i];
        if (known->at > at || (known->kind != FACT_HISTORY && known->kind != FACT_RAN)) continue;
        if (run->from < step_count && takes_away(&steps[run->from], known->instance)) continue;
        if (known->kind == FACT_HISTORY && known->step == run->from - 1) code = see_prefix(known);
        if (known->kind == FACT_RAN && known->step == run->from) code = see_scheduled(known);
    }
    return code;
}

static bool taken_away(const fact *known, int end) {
    for (int i = known->step + 1; i <= end && i < step_count; i++)
        if (takes_away(&steps[i], known->instance)) return true;
    return false;
}

static int see_results(const machine_run *run, const ledger *book, size_t at) {
    int code = DUR_OK;
    for (size_t i = 0; book != NULL && i < book->count && code == DUR_OK; i++) {
        const fact *known = &book->facts[i];
        char text[600] = "";
        int ended;
        if (known->kind != FACT_RESULT || known->at > at || taken_away(known, run->end)) continue;
        code = result_text(known->instance, text, sizeof(text), &ended, &self.err);
        if (code == DUR_ERUNNING || code == DUR_ENOTFOUND || (code == DUR_OK && strcmp(text, known->text) != 0))
            code = wrong("lost: %s had ended as \"%s\", and is now \"%s\" (%s)", known->instance, known->text, text,
                         dur_code_name(code));
    }
    return code;
}

/* After each step. */
static int note_histories(int number) {
    disk_fault fault = disk->fault;
    char prefix[8];
    const char *first = instance_of(&steps[scene_first(number)]);
    dur_instance_list *list = NULL;
    snprintf(prefix, sizeof(prefix), "%.3s", first);
    disk->fault = FAULT_NONE;
    int code = dur_client_list(&list, self.client, DUR_LIST(.id_prefix = prefix), &self.err);
    for (size_t i = 0; code == DUR_OK && i < list->count; i++) {
        char *text = NULL;
        uint64_t execution = list->items[i]->execution_id;
        if (list->items[i]->start_pending) continue;
        code = dur_client_history(&text, self.client, list->items[i]->instance, execution, &self.err);
        if (code == DUR_OK) note(FACT_HISTORY, list->items[i]->instance, text, strlen(text) - 1)->execution = execution;
        dur_free(text);
    }
    dur_instance_list_free(list);
    disk->fault = fault;
    return code;
}

/* ---- the second node ---- */

typedef enum order_kind { DO_OPEN, DO_STEP, DO_SETTLE, DO_STOP, DO_CLOSE, DO_CHECK, DO_QUIT } order_kind;
typedef struct message {
    order_kind what;
    int number;
    bool again;
} message;

static int to_second = -1, from_second = -1;
static pid_t second_pid;

static int obey(const message *told_to) {
    int code = DUR_OK;
    switch (told_to->what) {
    case DO_OPEN:
        code = node_open();
        return code == DUR_OK ? node_run() : code;
    case DO_STEP:
        return node_step(told_to->number, told_to->again);
    case DO_SETTLE:
        return node_settle();
    case DO_STOP:
        return node_stop();
    case DO_CLOSE:
        return node_close();
    case DO_CHECK:
        return self.runtime != NULL ? dur_runtime_check(self.runtime, &self.err) : DUR_OK;
    case DO_QUIT:
        return DUR_OK;
    }
    return DUR_OK;
}

static void second_main(int in, int out) {
    message order;
    disk_node = 1;
    memset(&self, 0, sizeof(self));
    while (read(in, &order, sizeof(order)) == sizeof(order) && order.what != DO_QUIT) {
        disk_news();
        int code = obey(&order);
        char reply[sizeof(int) + sizeof(dur_error)];
        memcpy(reply, &code, sizeof(code));
        memcpy(reply + sizeof(code), &self.err, sizeof(self.err));
        if (write(out, reply, sizeof(reply)) != sizeof(reply)) break;
    }
    _exit(0);
}

static void second_begin(void) {
    int down[2], up[2];
    if (pipe(down) != 0 || pipe(up) != 0 || (second_pid = fork()) < 0) {
        perror("crash_disk: second node");
        exit(2);
    }
    if (second_pid == 0) {
        close(down[1]);
        close(up[0]);
        second_main(down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    to_second = down[1];
    from_second = up[0];
}

static void second_end(void) {
    if (second_pid == 0) return;
    message quit = { DO_QUIT, 0, false };
    if (write(to_second, &quit, sizeof(quit)) < 0 && errno != EPIPE) perror("crash_disk: second node");
    close(to_second);
    close(from_second);
    waitpid(second_pid, NULL, 0);
    second_pid = 0;
}

static int tell(int who, order_kind what, int number, bool again) {
    message told_to = { what, number, again };
    if (who == 0 || second_pid == 0) {
        if (second_pid != 0) disk_news();
        return obey(&told_to);
    }
    int code = DUR_OK;
    char reply[sizeof(int) + sizeof(dur_error)];
    if (write(to_second, &told_to, sizeof(told_to)) == sizeof(told_to) &&
        read(from_second, reply, sizeof(reply)) == sizeof(reply)) {
        memcpy(&code, reply, sizeof(code));
        memcpy(&self.err, reply + sizeof(code), sizeof(self.err));
        return code;
    }
    second_end(); /* it was killed: what it was told is in doubt */
    return DUR_EUNKNOWN;
}

static int tell_all(order_kind what) {
    int code = tell(0, what, 0, false);
    int other = second_pid != 0 ? tell(1, what, 0, false) : DUR_OK;
    return code != DUR_OK ? code : other == DUR_EUNKNOWN ? DUR_OK : other;
}

/* ---- the machine ---- */

/* Until nobody writes any more. */
static int settle(void) {
    int code = DUR_OK;
    size_t before;
    do {
        before = disk->op_count;
        code = tell_all(DO_SETTLE);
    } while (code == DUR_OK && second_pid != 0 && disk->op_count != before);
    return code == DUR_ETIMEOUT ? DUR_OK : code;
}

static bool may_pass(const machine_run *run, int code) {
    if (code == DUR_ERUNNING || code == DUR_EUNKNOWN) return true;
    return run->patient && (code == DUR_EIO || code == DUR_EFULL || code == DUR_EBUSY) && disk->faults_made > 0;
}

static int one_step(int number, bool again) {
    const step *st = &steps[number];
    int who = number % NODES, code = DUR_OK;
    if (st->verb == UPGRADE) code = tell_all(DO_STOP);
    if (st->verb == RESTART) code = tell(who, DO_CLOSE, 0, false);
    if (st->verb == RESTART || st->verb == UPGRADE) {
        if (code == DUR_OK) code = tell_all(DO_OPEN);
        return code;
    }
    return tell(who, DO_STEP, number, again);
}

static bool failed(int code, const char *what, int number) {
    if (code == DUR_OK) return false;
    if (code == -1)
        wrong("?");
    else
        wrong("%s, step %d: %s: %s", what, number, dur_code_name(code), self.err.message);
    return true;
}

static bool play(const machine_run *run, int number) {
    bool again = run->in_doubt && number == run->from;
    int code = DUR_OK;
    shared->step = number;
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        code = settle();
        if (code == DUR_OK) code = one_step(number, again);
        if (machine_trace)
            fprintf(stderr, "step %d, operation %zu, %llu ms (clock %llu us): %s %s\n", number, disk->op_count,
                    (unsigned long long)disk->world_ms, (unsigned long long)disk->clock_us, dur_code_name(code),
                    code > 0 ? self.err.message : "");
        if (!may_pass(run, code)) break;
        again = again || code != DUR_ERUNNING;
        disk_advance_ms(tries < 20 ? 100 : 700);
        if (code != DUR_ERUNNING) (void)tell_all(DO_OPEN);
    }
    if (failed(code, code == DUR_ERUNNING ? "never came" : "refused", number)) return false;
    note(FACT_STEP, NULL, NULL, 0);
    return !run->histories || !failed(note_histories(number), "histories", number);
}

/* SQLite's own check takes a page that it cannot read for a broken one. */
static int check(const machine_run *run) {
    uint64_t before = disk->faults_made;
    int code = dur_provider_check(self.store, &self.err);
    return code == DUR_ECORRUPT && run->patient && disk->faults_made != before ? DUR_EIO : code;
}

static bool begin(const machine_run *run) {
    int code = DUR_OK;
    bool seen = false;
    shared->step = run->from;
    if (run->second) second_begin();
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        code = node_open();
        for (int i = 0; i < 2 && code == DUR_OK && !seen; i++)
            code = see_before(run, run->before[i].ledger, run->before[i].at);
        seen = seen || code == DUR_OK;
        if (code == DUR_OK) code = check(run);
        if (code == DUR_OK) code = tell_all(DO_OPEN);
        if (!may_pass(run, code)) break;
        disk_advance_ms(100);
    }
    return !failed(code, "opening", run->from);
}

static bool end(const machine_run *run) {
    disk->fault = FAULT_NONE;
    int code = see_results(run, run->before[0].ledger, run->before[0].at);
    if (code == DUR_OK) code = see_results(run, run->before[1].ledger, run->before[1].at);
    if (code == DUR_OK) code = tell_all(DO_CHECK);
    if (code == DUR_OK) code = dur_provider_check(self.store, &self.err);
    return !failed(code, "at rest", run->end);
}

bool machine_go(const machine_run *run) {
    bool good = begin(run);
    for (int number = run->from; good && number <= run->end; number++)
        good = play(run, number);
    good = good && end(run);
    second_end();
    (void)node_close();
    return good;
}

void machine_install(const char *folder) {
    shared = disk_shared_memory(sizeof(*shared));
    texts = disk_shared_memory(TEXT_MAX);
    snprintf(folder_path, sizeof(folder_path), "%s", folder);
    snprintf(db_path, sizeof(db_path), "%s/disk.db", folder);
}
