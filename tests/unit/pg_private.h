/*
 * pg_private.h: tests that stop and start the server have one of their own, so that neighbours are not disturbed.
 */
#ifndef DURITE_TESTS_PG_PRIVATE_H
#define DURITE_TESTS_PG_PRIVATE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Run this program again, with these arguments, below tools/with-postgres; returns only in the inner one. */
static inline void pg_private_server(char **argv) {
    char self[1024];
    char *inner[8] = { "with-postgres", "--optional", self };
    size_t count = 3;
    ssize_t size = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (getenv("DURITE_TEST_PRIVATE") != NULL || size <= 0) return;
    self[size] = '\0';
    for (size_t i = 1; argv[i] != NULL && count < 7; i++)
        inner[count++] = argv[i];
    setenv("DURITE_TEST_PRIVATE", "1", 1);
    unsetenv("DURITE_TEST_POSTGRES");
    execv(DURITE_SOURCE_DIR "/tools/with-postgres", inner);
    perror("with-postgres");
    exit(1);
}

/* pg_ctl on the private server: "-m immediate stop", "start". */
static inline int pg_ctl(const char *what) {
    char command[2048];
    const char *data = getenv("DURITE_TEST_POSTGRES_DATA"), *bin = getenv("DURITE_TEST_POSTGRES_BIN");
    const char *as = getenv("DURITE_TEST_POSTGRES_AS");
    if (data == NULL || bin == NULL) return -1;
    snprintf(command, sizeof(command), "cd / && %s '%s/pg_ctl' -D '%s' -l '%s/server.log' -w %s >/dev/null 2>&1",
             as != NULL ? as : "", bin, data, data, what);
    return system(command);
}

#endif
