/*
 * hostile.h: what the tests of tests/hostile share: a world of its own per test (e2e/harness.h) and this program again
 * as another process (danger/danger_node.h).
 *
 * A test here is named after its fault, fault_hNN_what_must_hold, and goes through public headers, sys/ and processes
 * only: it says what users were promised, and stays as it is when a store is written anew.  A program whose tests need
 * other processes gives HOSTILE_MAIN its roles; node_spawn("role", url, number, -1) runs one of them.
 */
#ifndef TESTS_HOSTILE_HOSTILE_H
#define TESTS_HOSTILE_HOSTILE_H

#include "danger/danger_node.h"

/* What another process does; its exit code. */
typedef struct hostile_role {
    const char *name;
    int (*run)(const char *url, long number);
} hostile_role;

static inline int hostile_role_run(const hostile_role *roles, size_t count, char **argv) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(roles[i].name, argv[2]) == 0) return roles[i].run(argv[3], strtol(argv[4], NULL, 10));
    fprintf(stderr, "no role \"%s\"\n", argv[2]);
    return 127;
}

/* `roles` and `tests` are arrays. */
#define HOSTILE_MAIN(roles, tests)                                                                                     \
    int main(int argc, char **argv) {                                                                                  \
        if (argc == 5 && strcmp(argv[1], "--node") == 0)                                                               \
            return hostile_role_run((roles), sizeof(roles) / sizeof((roles)[0]), argv);                                \
        return cmocka_run_group_tests((tests), NULL, NULL);                                                            \
    }

#endif
