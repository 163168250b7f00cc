/*
 * chaos_main.c: what tools/chaos runs, below a private server; nodes and clients are this program, too.
 *
 * usage: chaos FOLDER SECONDS SEED [brief]
 */
#include "chaos.h"

#include <durite/postgres.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int chaos_run(chaos *c);

/* The page that tests/sim/clock reads: behind the seed and a clock that stands, what the wall clock has beyond. */
static volatile int64_t *map_clock(void) {
    const char *path = getenv("DURITE_SIM_CLOCK");
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return NULL;
    int64_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return page != MAP_FAILED ? &page[2] : NULL;
}

static int process_main(char **argv) {
    char path[300];
    unsigned long long number = strtoull(argv[4], NULL, 10);
    snprintf(path, sizeof(path), "%s/ledger", argv[5]);
    ledger_open(path);
    if (strcmp(argv[1], "--node") == 0) return node_main(argv[2], argv[3], number);
    return client_main(argv[2], argv[3], (unsigned)number);
}

int main(int argc, char **argv) {
    static chaos c;
    char path[300];
    dur_postgres_register(NULL);
    if (argc == 6 && argv[1][0] == '-') return process_main(argv);
    if (argc >= 4 && getenv("DURITE_TEST_POSTGRES_DATA") == NULL) {
        puts("1..1\nok 1 - what_was_accepted_holds # SKIP no PostgreSQL server on this machine");
        return 0;
    }
    if (argc < 4) {
        fprintf(stderr, "usage: chaos FOLDER SECONDS SEED [brief]   (tools/chaos runs it)\n");
        return 2;
    }
    c.folder = argv[1];
    c.disk = getenv("DURITE_CHAOS_DISK");
    c.seed = (unsigned)strtoul(argv[3], NULL, 10);
    c.brief = argc > 4;
    c.owner_timeout_ms = c.brief ? 2000 : 5000;
    c.clock_ns = map_clock();
    c.begin_ms = now_ms();
    c.end_ms = c.begin_ms + strtoull(argv[2], NULL, 10) * 1000;
    snprintf(path, sizeof(path), "%s/ledger", c.folder);
    ledger_open(path);
    printf("1..1\n# seed %u\n", c.seed);
    fflush(stdout);
    int failed = chaos_run(&c);
    printf("%sok 1 - what_was_accepted_holds\n", failed ? "not " : "");
    return failed;
}
