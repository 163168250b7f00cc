/*
 * pollset.c: epoll, or nothing.  A kqueue could be the same elsewhere.
 */
#include "base/pollset.h"
#include "base/ground.h"

#ifdef DUR__LINUX
#include <sys/epoll.h>

int dur__pollset_open(void) {
    return epoll_create1(EPOLL_CLOEXEC);
}

void dur__pollset_add(int set, int fd) {
    struct epoll_event event = { .events = EPOLLIN };
    (void)epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
}

#else

int dur__pollset_open(void) {
    return -1;
}

void dur__pollset_add(int set, int fd) {
    (void)set, (void)fd;
}

#endif
