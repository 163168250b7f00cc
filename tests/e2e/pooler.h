/*
 * pooler.h: a process that becomes pgbouncer.  It refuses to run as root, and ends with the test.
 */
#ifndef TESTS_E2E_POOLER_H
#define TESTS_E2E_POOLER_H

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

/* In a child, after fork. */
static inline _Noreturn void pooler_become(const char *settings_path) {
    if (getuid() == 0)
        execl("/usr/bin/setpriv", "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--pdeathsig=TERM",
              "/usr/sbin/pgbouncer", "-q", settings_path, (char *)NULL);
    else if (prctl(PR_SET_PDEATHSIG, SIGTERM) == 0)
        execl("/usr/sbin/pgbouncer", "pgbouncer", "-q", settings_path, (char *)NULL);
    _exit(127);
}

#endif
