/*
 * bell.c: an eventfd, or a pipe with a byte for each ring.
 */
#include "base/bell.h"
#include "base/assert.h"
#include "base/ground.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <unistd.h>

#ifdef DUR__LINUX
#include <sys/eventfd.h>

typedef uint64_t ring; /* what is written for one */

static bool open_both(dur__bell *bell) {
    bell->fd = bell->rope = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return bell->fd >= 0;
}

static uint64_t rings(const uint64_t *what, size_t size) {
    DUR_ASSERT(size == sizeof(*what));
    return *what;
}

#else

typedef char ring;

static bool prepare(int fd) {
    return fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0;
}

static bool open_both(dur__bell *bell) {
    int ends[2];
    if (pipe(ends) != 0) return false;
    *bell = (dur__bell){ .fd = ends[0], .rope = ends[1] };
    if (prepare(ends[0]) && prepare(ends[1])) return true;
    int why = errno;
    dur__bell_close(bell);
    errno = why;
    return false;
}

static uint64_t rings(const uint64_t *what, size_t size) {
    (void)what;
    return size;
}

#endif

bool dur__bell_open(dur__bell *bell) {
    bool opened = open_both(bell);
    if (!opened) *bell = DUR__BELL_NONE;
    bell->process = dur__process_serial();
    return opened;
}

/* A forked child has its parent's descriptors: what it writes or reads there, its parent would hear or miss. */
static bool is_ours(const dur__bell *bell) {
    return bell->process == dur__process_serial();
}

void dur__bell_close(dur__bell *bell) {
    if (bell->fd >= 0) close(bell->fd);
    if (bell->rope >= 0 && bell->rope != bell->fd) close(bell->rope);
    *bell = DUR__BELL_NONE;
}

void dur__bell_ring(const dur__bell *bell) {
    const ring one = 1;
    ssize_t put;
    if (!is_ours(bell)) return;
    do {
        put = write(bell->rope, &one, sizeof(one));
    } while (put < 0 && errno == EINTR);
    DUR_ASSERT(put == (ssize_t)sizeof(one));
}

/* A pipe is read in pieces: whatever is left keeps the descriptor readable. */
uint64_t dur__bell_hear(const dur__bell *bell) {
    uint64_t what = 0;
    ssize_t got;
    if (!is_ours(bell)) return 0;
    do {
        got = read(bell->fd, &what, sizeof(what));
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        DUR_ASSERT(errno == EAGAIN);
        return 0;
    }
    return rings(&what, (size_t)got);
}
