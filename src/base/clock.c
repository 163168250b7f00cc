/*
 * clock.c: the real world, and one for tests that stands still.
 */
#include "base/assert.h"
#include "base/buf.h"
#include "base/ground.h"
#include "base/thread.h"

#include <durite/sys/clock.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static uint64_t clock_read_ms(clockid_t clock) {
    struct timespec now;
    DUR_ASSERT(clock_gettime(clock, &now) == 0);
    return now.tv_sec < 0 ? 0 : (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint64_t real_wall_ms(void *data) {
    (void)data;
    return clock_read_ms(CLOCK_REALTIME);
}

static uint64_t real_boot_ms(void *data) {
    (void)data;
#ifdef DUR__LINUX
    return clock_read_ms(CLOCK_BOOTTIME);
#else
    return clock_read_ms(CLOCK_MONOTONIC);
#endif
}

/* How many bytes it has given; negative: errno says why. */
static ssize_t some_random(void *out, size_t size) {
#ifdef DUR__LINUX
    return getrandom(out, size, 0);
#else
    size_t most = 256; /* getentropy gives all or nothing, and not more at a time */
    if (size > most) size = most;
    return getentropy(out, size) == 0 ? (ssize_t)size : -1;
#endif
}

static void real_random(void *data, void *out, size_t size) {
    (void)data;
    char *at = out;
    while (size > 0) {
        ssize_t got = some_random(at, size);
        if (got < 0 && errno == EINTR) continue;
        DUR_ASSERT(got > 0); /* without randomness tokens prove nothing */
        at += got;
        size -= (size_t)got;
    }
}

void dur__boot_id(char *out, size_t size) {
    snprintf(out, size, "unknown");
#ifdef DUR__LINUX
    char text[40] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0) close(fd);
    text[strcspn(text, "\n")] = '\0';
    if (got > 0) snprintf(out, size, "%s", text);
#endif
}

const dur_world *dur_world_real(void) {
    static const dur_world real = { NULL, real_wall_ms, real_boot_ms, real_random };
    return &real;
}

struct dur_fake_world {
    dur_world world;
    dur__mutex mutex;
    uint64_t wall_ms;
    uint64_t boot_ms;
    uint64_t monotonic_us; /* of threads that live here: never behind boot_ms, and another one at each look */
    uint64_t slept_us;     /* what is no whole millisecond yet */
    uint64_t state;        /* of the generator: a Weyl sequence whose steps are mixed */
    dur_waits_fn *waits;   /* NULL: others may come */
    void *waits_data;
};

static _Thread_local dur_fake_world *home; /* where this thread lives; NULL: in the real world */

static uint64_t fake_wall_ms(void *data) {
    dur_fake_world *fake = data;
    dur__mutex_lock(&fake->mutex);
    uint64_t now = fake->wall_ms;
    dur__mutex_unlock(&fake->mutex);
    return now;
}

static uint64_t fake_boot_ms(void *data) {
    dur_fake_world *fake = data;
    dur__mutex_lock(&fake->mutex);
    uint64_t now = fake->boot_ms;
    dur__mutex_unlock(&fake->mutex);
    return now;
}

static uint64_t fake_word(dur_fake_world *fake) {
    fake->state += 0x9e3779b97f4a7c15u;
    uint64_t x = fake->state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The bytes are those of little-endian words, so that a seed means the same everywhere. */
static void fake_random(void *data, void *out, size_t size) {
    dur_fake_world *fake = data;
    unsigned char *at = out;
    dur__mutex_lock(&fake->mutex);
    uint64_t word = 0;
    for (size_t i = 0; i < size; i++) {
        if (i % 8 == 0) word = fake_word(fake);
        at[i] = (unsigned char)(word >> (i % 8 * 8));
    }
    dur__mutex_unlock(&fake->mutex);
}

dur_fake_world *dur_fake_world_new(uint64_t start_ms, uint64_t seed) {
    dur_fake_world *fake = dur__zget(sizeof(*fake));
    if (fake == NULL) return NULL;
    fake->world = (dur_world){ fake, fake_wall_ms, fake_boot_ms, fake_random };
    dur__mutex_init(&fake->mutex);
    fake->wall_ms = start_ms;
    fake->boot_ms = start_ms;
    fake->state = seed;
    return fake;
}

void dur_fake_world_free(dur_fake_world *fake) {
    if (fake == NULL) return;
    if (home == fake) home = NULL;
    dur__mutex_destroy(&fake->mutex);
    dur__free(fake);
}

const dur_world *dur_fake_world_get(dur_fake_world *fake) {
    return &fake->world;
}

void dur_fake_world_advance(dur_fake_world *fake, uint64_t ms) {
    dur__mutex_lock(&fake->mutex);
    fake->wall_ms += ms;
    fake->boot_ms += ms;
    dur__mutex_unlock(&fake->mutex);
}

void dur_fake_world_jump(dur_fake_world *fake, int64_t wall_ms) {
    dur__mutex_lock(&fake->mutex);
    uint64_t amount = wall_ms < 0 ? -(uint64_t)wall_ms : (uint64_t)wall_ms;
    if (wall_ms >= 0)
        fake->wall_ms += amount;
    else
        fake->wall_ms = amount < fake->wall_ms ? fake->wall_ms - amount : 0;
    dur__mutex_unlock(&fake->mutex);
}

/* ---- threads that live in a fake world ---- */

dur_fake_world *dur_fake_world_enter(dur_fake_world *fake) {
    dur_fake_world *before = home;
    home = fake;
    return before;
}

bool dur__world_entered(void) {
    return home != NULL;
}

void dur_fake_world_alone(dur_fake_world *fake, dur_waits_fn *waits, void *data) {
    fake->waits = waits;
    fake->waits_data = data;
}

bool dur__world_alone(void) {
    return home != NULL && home->waits != NULL;
}

const char *dur__world_waits(const char *instance) {
    return home->waits(home->waits_data, instance);
}

bool dur__world_is_home(const dur_world *world) {
    return home != NULL && world == &home->world;
}

static uint64_t at_least(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

bool dur__home_monotonic_us(uint64_t *out) {
    if (home == NULL) return false;
    dur__mutex_lock(&home->mutex);
    *out = home->monotonic_us = at_least(home->monotonic_us + 1, home->boot_ms * 1000);
    dur__mutex_unlock(&home->mutex);
    return true;
}

bool dur__home_sleep_us(uint64_t us) {
    if (home == NULL) return false;
    dur__mutex_lock(&home->mutex);
    home->slept_us += us;
    home->wall_ms += home->slept_us / 1000;
    home->boot_ms += home->slept_us / 1000;
    home->slept_us %= 1000;
    /* What looks have put in front of the boot clock is part of the sleep: the two stay together. */
    home->monotonic_us = at_least(home->monotonic_us + 1, home->boot_ms * 1000 + home->slept_us);
    dur__mutex_unlock(&home->mutex);
    return true;
}
