/*
 * crash_report.c: the last words of a handler that crashed.
 *
 * Installed only when the host asks.  In the signal handler nothing is used but what POSIX allows there: our own
 * formatting, write(), sigaction() and raise().  Afterwards whatever was installed before us has its turn.
 */
#include "coro/crash_report.h"
#include "base/pages.h"
#include "coro/coro_internal.h"

#include <durite/error.h>
#include <durite/runtime.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum { SIGNALS = 2 };

static const int signals[SIGNALS] = { SIGSEGV, SIGBUS };
static struct sigaction before[SIGNALS];
static _Atomic int installed; /* 0 no, 1 being done, 2 yes */

/* ---- a line of text without stdio ---- */

typedef struct line {
    char text[512];
    size_t size;
} line;

static void line_text(line *out, const char *text) {
    for (; *text != '\0' && out->size < sizeof(out->text) - 1; text++) {
        unsigned char c = (unsigned char)*text;
        out->text[out->size++] = c < 0x20 ? '?' : (char)c;
    }
}

static void line_number(line *out, uintptr_t number, unsigned base) {
    char digits[24];
    size_t at = sizeof(digits) - 1;
    digits[at] = '\0';
    do {
        digits[--at] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number > 0);
    line_text(out, digits + at);
}

static void line_write(line *out) {
    out->text[out->size++] = '\n';
    ssize_t written = write(STDERR_FILENO, out->text, out->size);
    (void)written; /* nobody left to tell */
}

/* ---- the signal ---- */

static _Thread_local const char *volatile inside_activity, *volatile inside_instance;

void dur__crash_report_inside(const char *activity, const char *instance) {
    inside_activity = activity;
    inside_instance = instance;
}

static void line_quoted(line *out, const char *what, const char *text) {
    line_text(out, what);
    line_text(out, " \"");
    line_text(out, text);
    line_text(out, "\"");
}

static void report(int sig, const siginfo_t *info) {
    const dur__coro *coro = dur__coro_current();
    const char *activity = inside_activity, *instance = inside_instance;
    if (coro == NULL && activity == NULL) return; /* not in user code that we run: not our story */
    const char *name = coro != NULL && coro->name != NULL ? coro->name : "";
    size_t bytes = coro != NULL ? coro->size : 0;
    line out = { .size = 0 };
    if (coro != NULL && info->si_code > 0 && dur__coro_guard_owner(info->si_addr, &name, &bytes)) {
        line_quoted(&out, "durite: stack overflow in handler", name);
        line_text(&out, " (stack ");
        line_number(&out, bytes, 10);
        line_text(&out, " bytes)");
    } else {
        line_text(&out, sig == SIGSEGV ? "durite: SIGSEGV" : "durite: SIGBUS");
        if (info->si_code > 0) {
            line_text(&out, " at address 0x");
            line_number(&out, (uintptr_t)info->si_addr, 16);
        }
        if (coro != NULL)
            line_quoted(&out, " in handler", name);
        else
            line_quoted(&out, " in activity", activity);
    }
    if (instance != NULL) line_quoted(&out, " of instance", instance);
    line_write(&out);
}

static void pass_on(const struct sigaction *to, int sig, siginfo_t *info, void *context) {
    if ((to->sa_flags & SA_SIGINFO) != 0) {
        to->sa_sigaction(sig, info, context);
        return;
    }
    if (to->sa_handler == SIG_IGN && info->si_code <= 0) return;
    if (to->sa_handler != SIG_DFL && to->sa_handler != SIG_IGN) {
        to->sa_handler(sig);
        return;
    }
    /* The default: a fault happens again as soon as we return; a signal that somebody sent must be sent again. */
    struct sigaction fallback = { .sa_handler = SIG_DFL };
    sigemptyset(&fallback.sa_mask);
    sigaction(sig, &fallback, NULL);
    if (info->si_code <= 0) raise(sig);
}

static void on_signal(int sig, siginfo_t *info, void *context) {
    int errno_kept = errno;
    report(sig, info);
    for (size_t i = 0; i < SIGNALS; i++)
        if (signals[i] == sig) pass_on(&before[i], sig, info, context);
    errno = errno_kept;
}

int dur_crash_report_install(dur_error *err) {
    int expected = 0;
    if (!atomic_compare_exchange_strong(&installed, &expected, 1)) return DUR_OK; /* once is enough */
    struct sigaction ours = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    sigemptyset(&ours.sa_mask);
    for (size_t i = 0; i < SIGNALS; i++) {
        if (sigaction(signals[i], &ours, &before[i]) == 0) continue;
        int why = errno;
        while (i > 0) {
            i--;
            sigaction(signals[i], &before[i], NULL);
        }
        atomic_store(&installed, 0);
        return dur_error_set(err, DUR_EFAILED, false, "crash_report.install", "sigaction: errno %d", why);
    }
    atomic_store(&installed, 2);
    dur__crash_report_thread_begin();
    return DUR_OK;
}

/* ---- alternate stacks ---- */

static _Thread_local char *alternate;
static _Thread_local size_t alternate_size;

static size_t alternate_bytes(void) {
    size_t size = 32 * 1024; /* a handler of the host's may follow ours */
#ifdef _SC_MINSIGSTKSZ
    long least = sysconf(_SC_MINSIGSTKSZ); /* large vector registers are part of a signal's frame */
    if (least > 0) size += (size_t)least;
#endif
    size_t page = dur__page_size();
    return (size + page - 1) / page * page;
}

void dur__crash_report_thread_begin(void) {
    stack_t now;
    if (alternate != NULL || sigaltstack(NULL, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;
    size_t size = alternate_bytes();
    void *map = dur__pages_reserve(size, 0);
    if (map == NULL) return;
    stack_t ours = { .ss_sp = map, .ss_size = size };
    if (sigaltstack(&ours, NULL) != 0) {
        dur__pages_free(map, size);
        return;
    }
    alternate = map;
    alternate_size = size;
}

void dur__crash_report_thread_end(void) {
    if (alternate == NULL) return;
    stack_t now;
    stack_t none = { .ss_flags = SS_DISABLE };
    bool ours = sigaltstack(NULL, &now) == 0 && now.ss_sp == (void *)alternate;
    if (ours && sigaltstack(&none, NULL) != 0) return; /* better lost than in use */
    dur__pages_free(alternate, alternate_size);
    alternate = NULL;
}
