/*
 * sim_clock.c: the run's clock in a PostgreSQL server: loaded in front of libc (LD_PRELOAD) by tools/with-postgres.
 *
 * The server's time is then the run's, as for every other process: timestamps, and lock and statement timeouts, which
 * the server compares with its clock before it believes its timer.  Before the first run time is real, but for what the
 * wall clock has beyond: so tests/chaos lets a server's clock jump.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* As sim_common begins. */
struct begin {
    uint64_t seed;
    volatile uint64_t mono_ns;
    volatile int64_t wall_ns;
};

static const struct begin *run;

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("DURITE_SIM_CLOCK");
    if (path == NULL) return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    void *page = mmap(NULL, sizeof(struct begin), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED) run = page;
}

static int real(clockid_t clock, struct timespec *out) {
    return (int)syscall(SYS_clock_gettime, clock, out);
}

#pragma GCC visibility push(default) /* or nobody outside would call what stands in front of libc */

int clock_gettime(clockid_t clock, struct timespec *out) {
    int result = real(clock, out);
    if (clock != CLOCK_REALTIME || run == NULL || result != 0) return result;
    uint64_t real_ns = (uint64_t)out->tv_sec * 1000000000u + (uint64_t)out->tv_nsec;
    uint64_t ns = (uint64_t)((int64_t)(run->mono_ns != 0 ? run->mono_ns : real_ns) + run->wall_ns);
    *out = (struct timespec){ .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    (void)zone;
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){ .tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000 };
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL) *out = now.tv_sec;
    return now.tv_sec;
}
