/*
 * session.c: which sessions have an activity that runs here, or is about to: one at a time each, and not more than
 * max_sessions of them.  Everything here is called with work.mutex held.
 */
#include "runtime/runtime_internal.h"

#include <stdlib.h>

#define WAITING_MAX 1000 /* activities that are here and wait for their session */

bool dur__session_full(dur_runtime *runtime) {
    return runtime->work.session_count >= runtime->options.max_sessions;
}

bool dur__session_busy(dur_runtime *runtime, const char *session) {
    return dur__map_get(&runtime->work.sessions, session) != NULL;
}

/* No more of their rows are taken for now: they could only wait here. */
bool dur__session_closed(dur_runtime *runtime) {
    const dur__work *work = &runtime->work;
    return work->blocked_count > 0 && (dur__session_full(runtime) || work->blocked_count >= WAITING_MAX);
}

bool dur__session_admit(dur_runtime *runtime, const char *session) {
    dur__work *work = &runtime->work;
    if (dur__session_busy(runtime, session) || dur__session_full(runtime)) return false;
    char *name = dur__xstrdup(session);
    dur__map_put(&work->sessions, name, name);
    work->session_count++;
    return true;
}

void dur__session_leave(dur_runtime *runtime, const char *session) {
    dur__work *work = &runtime->work;
    char *name = dur__map_remove(&work->sessions, session);
    DUR_ASSERT(name != NULL);
    work->session_count--;
    dur__free(name);
}

void dur__session_free(dur_runtime *runtime) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&runtime->work.sessions, &i)) != NULL;)
        dur__free(entry->value);
    dur__map_free(&runtime->work.sessions);
}
