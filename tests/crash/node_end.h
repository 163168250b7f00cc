/*
 * node_end.h: a node that is told to end says first whether it knows of all that is locked under its name.
 */
#ifndef TESTS_CRASH_NODE_END_H
#define TESTS_CRASH_NODE_END_H

#include "e2e/harness.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t node_is_told;

static void node_told(int number) {
    (void)number;
    node_is_told = 1;
}

/* The node: first of all, and then now and again (NULL: it has no runtime yet). */
static inline void node_listen(void) {
    (void)signal(SIGTERM, node_told);
}

static inline void node_end_if_told(dur_runtime *runtime) {
    dur_error err = DUR_ERROR_INIT;
    if (!node_is_told) return;
    if (runtime == NULL || dur_runtime_check(runtime, &err) != DUR_ECORRUPT) _exit(0);
    fprintf(stderr, "node %d: %s\n", (int)getpid(), err.message);
    _exit(1);
}

/* The test.  One that did not listen yet is killed by the signal. */
static inline void node_end(pid_t pid) {
    int status = 0;
    kill(pid, SIGTERM);
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) fail_msg("a node found something that it does not know of");
}

#endif
