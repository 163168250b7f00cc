/*
 * session.c: how many sessions have an activity on this node, and which of them runs one: a session's activities run
 * one at a time.  Everything here is called with work.mutex held.
 */
#include "runtime/runtime_internal.h"

#include <stdlib.h>

typedef struct session_use {
    size_t uses;  /* activities waiting or running here */
    bool running; /* one of them is */
    char name[];
} session_use;

bool dur__session_full(dur_runtime *runtime) {
    return runtime->work.session_count >= runtime->options.max_sessions;
}

/* A session that has an activity here is always served (it is ours); a new one only below the limit. */
bool dur__session_admit(dur_runtime *runtime, const char *session) {
    dur__work *work = &runtime->work;
    session_use *use = dur__map_get(&work->sessions, session);
    if (use == NULL) {
        if (dur__session_full(runtime)) return false;
        size_t size = strlen(session) + 1;
        use = dur__xmalloc(sizeof(*use) + size);
        use->uses = 0;
        use->running = false;
        memcpy(use->name, session, size);
        dur__map_put(&work->sessions, use->name, use);
        work->session_count++;
    }
    use->uses++;
    return true;
}

bool dur__session_begin(dur_runtime *runtime, const char *session) {
    session_use *use = dur__map_get(&runtime->work.sessions, session);
    DUR_ASSERT(use != NULL);
    if (use->running) return false;
    use->running = true;
    return true;
}

void dur__session_end(dur_runtime *runtime, const char *session) {
    session_use *use = dur__map_get(&runtime->work.sessions, session);
    DUR_ASSERT(use != NULL && use->running);
    use->running = false;
}

void dur__session_leave(dur_runtime *runtime, const char *session) {
    dur__work *work = &runtime->work;
    session_use *use = dur__map_get(&work->sessions, session);
    DUR_ASSERT(use != NULL && use->uses > 0);
    if (--use->uses > 0) return;
    dur__map_remove(&work->sessions, session);
    work->session_count--;
    free(use);
}

void dur__session_free(dur_runtime *runtime) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&runtime->work.sessions, &i)) != NULL;)
        free(entry->value);
    dur__map_free(&runtime->work.sessions);
}
