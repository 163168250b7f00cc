/*
 * host.c: store, runtime and client in one object, and the signals that end it.
 *
 * A handler may do next to nothing: it writes a byte into a pipe on which dur_host_run waits.  The pipe belongs to the
 * process, as signals do.
 */
#include <durite/host.h>

#include "client/client_internal.h"
#include "provider/provider_internal.h"
#include "runtime/runtime_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define GRACE_MS UINT64_C(10000)

struct dur_host {
    dur_provider *store;
    dur_runtime *runtime; /* NULL: stopped */
    dur_client *client;
};

/* ---- the object ---- */

int dur_host_start_ex(dur_host **out, const char *url, const dur_runtime_options *options, dur_error *err) {
    const char *op = "host.start";
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "out is required, got NULL");
    *out = NULL;
    dur_runtime_options own = { .size = 0 };
    int code = dur__client_options(&own, sizeof(own), options, op, err);
    if (code != DUR_OK) return code;
    if (own.store != NULL) return dur_error_set(err, DUR_EINVAL, false, op, "option store: it is opened by its URL");
    dur_host *host = dur__zget(sizeof(*host));
    if (host == NULL) return dur_error_set(err, DUR_ENOMEM, false, op, "no memory for a host");
    code = dur_open(&host->store, url, err);
    own.size = sizeof(own);
    own.store = host->store;
    if (code == DUR_OK) code = dur_client_new(&host->client, host->store, err);
    if (code == DUR_OK) code = dur_runtime_start(&host->runtime, &own, err);
    if (code == DUR_OK)
        *out = host;
    else
        dur_host_free(host);
    return code;
}

int dur_host_start(dur_host **out, const char *url, const dur_handler *handlers, dur_error *err) {
    return dur_host_start_ex(out, url, DUR_RUNTIME(.handlers = handlers), err);
}

dur_provider *dur_host_store(const dur_host *host) {
    return host != NULL ? host->store : NULL;
}
dur_runtime *dur_host_runtime(const dur_host *host) {
    return host != NULL ? host->runtime : NULL;
}
dur_client *dur_host_client(const dur_host *host) {
    return host != NULL ? host->client : NULL;
}

int dur_host_stop(dur_host *host, uint64_t grace_ms, dur_error *err) {
    dur_error_clear(err);
    if (host == NULL || host->runtime == NULL) return DUR_OK;
    int code = dur_runtime_stop(host->runtime, grace_ms, err);
    if (code != DUR_EDEADLK && code != DUR_ESTATE) host->runtime = NULL; /* else nothing has happened */
    return code;
}

void dur_host_free(dur_host *host) {
    if (host == NULL) return;
    if (host->runtime != NULL) /* it cannot be stopped inside of one */
        dur__store_drop_own_txn(host->store, "its host was freed");
    (void)dur_host_stop(host, GRACE_MS, NULL);
    dur_client_free(host->client);
    dur_provider_close(host->store);
    dur__free(host);
}

/* ---- signals ---- */

static const int awaited[] = { SIGINT, SIGTERM };
enum { AWAITED = sizeof(awaited) / sizeof(awaited[0]) };

static atomic_flag running = ATOMIC_FLAG_INIT; /* somebody is in dur_host_run */
static atomic_int told_fd = -1;                /* the pipe's end for the handlers; -1: nobody waits */
static atomic_int telling;                     /* handlers that may be about to write there, on any thread */

static void tell(int number) {
    int saved = errno;
    atomic_fetch_add(&telling, 1);
    int fd = atomic_load(&told_fd);
    (void)number;
    if (fd >= 0 && write(fd, "", 1) < 0) errno = 0; /* full: whoever waits is told already */
    atomic_fetch_sub(&telling, 1);
    errno = saved;
}

/* What is ignored was meant to be, by nohup or by a shell for what it starts in the background. */
static void handlers_install(struct sigaction before[AWAITED]) {
    struct sigaction ours = { .sa_handler = tell, .sa_flags = SA_RESTART };
    sigfillset(&ours.sa_mask);
    for (int i = 0; i < AWAITED; i++) {
        (void)sigaction(awaited[i], NULL, &before[i]);
        if ((before[i].sa_flags & SA_SIGINFO) != 0 || before[i].sa_handler != SIG_IGN)
            (void)sigaction(awaited[i], &ours, NULL);
    }
}

static void handlers_give_back(const struct sigaction before[AWAITED]) {
    for (int i = 0; i < AWAITED; i++)
        (void)sigaction(awaited[i], &before[i], NULL);
}

/* A thread that blocks them would not be told, if it is the only one. */
static void mask_open(sigset_t *before) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < AWAITED; i++)
        sigaddset(&set, awaited[i]);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, before);
}

static int wait_for_signal(dur_error *err) {
    int ends[2];
    struct sigaction before[AWAITED];
    sigset_t mask;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return dur_error_set(err, DUR_ENOMEM, true, "host.run", "no pipe: %s", strerror(errno));
    atomic_store(&told_fd, ends[1]);
    handlers_install(before);
    mask_open(&mask);
    struct pollfd told = { .fd = ends[0], .events = POLLIN };
    while (dur__poll(&told, 1, UINT64_MAX) <= 0) {
    }
    handlers_give_back(before);
    (void)pthread_sigmask(SIG_SETMASK, &mask, NULL);
    atomic_store(&told_fd, -1);
    while (atomic_load(&telling) > 0) /* not longer than a write: the descriptor may be another's when it is closed */
        dur__relax();
    close(ends[0]);
    close(ends[1]);
    return DUR_OK;
}

int dur_host_run(dur_host *host, dur_error *err) {
    const char *op = "host.run";
    dur_error_clear(err);
    if (host == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "host is required, got NULL");
    if (host->runtime == NULL) return dur_error_set(err, DUR_ESTATE, false, op, "the runtime was stopped");
    if (host->runtime->stepped.on)
        return dur_error_set(err, DUR_EINVAL, false, op,
                             "the runtime has no threads (DUR_THREADS_NONE): nobody would work meanwhile; call "
                             "dur_runtime_step instead");
    if (atomic_flag_test_and_set(&running))
        return dur_error_set(err, DUR_EBUSY, false, op, "another thread of this process is in dur_host_run");
    int code = wait_for_signal(err);
    atomic_flag_clear(&running);
    return code == DUR_OK ? dur_host_stop(host, GRACE_MS, err) : code;
}
