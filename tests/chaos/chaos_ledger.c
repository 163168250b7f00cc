/*
 * chaos_ledger.c: what was asked for, accepted and done, in a file that survives kill -9.
 */
#include "chaos.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int file = -1;
volatile sig_atomic_t is_told;

static void told(int number) {
    (void)number;
    is_told = 1;
}

void listen_to_sigterm(void) {
    (void)signal(SIGTERM, told);
}

uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

void pause_ms(uint64_t ms) {
    nanosleep(&(struct timespec){ .tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000 * 1000000) }, NULL);
}

void ledger_open(const char *path) {
    file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file >= 0) return;
    perror(path);
    _exit(1);
}

void ledger(const char *kind, const char *a, const char *b, const char *c) {
    char line[4096];
    int size = snprintf(line, sizeof(line), "%llu\t%d\t%s\t%s\t%s\t%s\n", (unsigned long long)now_ms(), (int)getpid(),
                        kind, a, b, c);
    if (size > 0 && size < (int)sizeof(line) && write(file, line, (size_t)size) == size) return;
    perror("ledger"); /* without it nobody can judge */
    _exit(1);
}

void ledger_fault(const char *format, ...) {
    char text[1000];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    for (char *at = text; *at != '\0'; at++)
        if (*at == '\t' || *at == '\n') *at = ' ';
    fprintf(stderr, "%s\n", text);
    ledger("fault", text, "", "");
}
