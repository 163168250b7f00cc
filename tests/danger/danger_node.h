/*
 * danger_node.h: this test program again, as another process: it dies with the test and never holds its output open.
 */
#ifndef TESTS_DANGER_DANGER_NODE_H
#define TESTS_DANGER_DANGER_NODE_H

#include "e2e/harness.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* Run this program as "PROGRAM --node WHAT URL NUMBER".  keep_fd: a descriptor that it inherits; -1: none. */
static inline pid_t node_spawn(const char *what, const char *url, long number, int keep_fd) {
    char text[32];
    snprintf(text, sizeof(text), "%ld", number);
    pid_t parent = getpid(), pid = fork();
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, 0);
    dup2(null, 1);
    if (getenv("DURITE_TEST_LOG") == NULL) dup2(null, 2);
    if (keep_fd >= 0) fcntl(keep_fd, F_SETFD, 0);
    execl("/proc/self/exe", "node", "--node", what, url, text, (char *)NULL);
    _exit(127);
}

/* Wait for its end; the status of waitpid. */
static inline int node_wait(pid_t pid) {
    int status = -1;
    while (waitpid(pid, &status, 0) < 0) {
    }
    return status;
}

static inline void node_kill(pid_t pid) {
    kill(pid, SIGKILL);
    (void)node_wait(pid);
}

static inline bool node_gone(pid_t pid, int *status) {
    return waitpid(pid, status, WNOHANG) == pid;
}

static inline bool file_exists(const char *dir, const char *name) {
    char path[192];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static inline void file_touch(const char *dir, const char *name) {
    char path[192];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
}

/* The folder of a sqlite URL. */
static inline void folder_of(char out[128], const char *url) {
    snprintf(out, 128, "%s", url + strlen("sqlite:"));
    *strrchr(out, '/') = '\0';
}

static inline uint64_t now_ms(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / 1000000u;
}

#endif
