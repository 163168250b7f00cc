/*
 * names.c: names of handlers in this process, and which of them somebody may have meant.
 */
#include "client/names.h"

#include "base/thread.h"

#include <string.h>

enum { LIKE_BYTES_MAX = 64 }; /* longer names are compared no further */

static dur__mutex lock = DUR__MUTEX_INIT;
static dur__link all = { &all, &all };

static void after_fork(void *arg) {
    (void)arg;
    dur__mutex_init(&lock);
}

void dur__names_add(dur__names *names) {
    static bool fork_known; /* guarded by lock */
    dur__mutex_lock(&lock);
    if (!fork_known) dur__at_fork_child(after_fork, NULL);
    fork_known = true;
    dur__list_push(&all, &names->link);
    dur__mutex_unlock(&lock);
}

void dur__names_remove(dur__names *names) {
    dur__mutex_lock(&lock);
    if (dur__link_linked(&names->link)) dur__list_unlink(&names->link);
    dur__mutex_unlock(&lock);
}

static size_t least(size_t a, size_t b, size_t c) {
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* How many characters have to be added, left out or changed; upper and lower case are the same. */
static size_t distance(const char *a, size_t a_size, const char *b, size_t b_size) {
    size_t row[LIKE_BYTES_MAX + 1];
    for (size_t j = 0; j <= b_size; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_size; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            size_t above = row[j];
            row[j] = least(above + 1, row[j - 1] + 1, diagonal + (lower(a[i - 1]) != lower(b[j - 1])));
            diagonal = above;
        }
    }
    return row[b_size];
}

typedef struct best {
    const char *name;
    size_t size, distance;
} best;

static void look_through(const dur_handler_filter *filter, const char *meant, best *found) {
    size_t meant_size = strlen(meant);
    for (size_t i = 0; filter != NULL && i < filter->count; i++) {
        const char *name = filter->keys[i], *at = strrchr(name, '@');
        size_t size = at != NULL ? (size_t)(at - name) : strlen(name);
        if (size > LIKE_BYTES_MAX || strncmp(name, "__", 2) == 0) continue; /* our own are nobody's to call */
        if (size == meant_size && memcmp(name, meant, size) == 0) continue; /* another version is not what was meant */
        size_t far = distance(meant, meant_size, name, size);
        if (far <= meant_size / 3 && far < found->distance) *found = (best){ name, size, far };
    }
}

const char *dur__names_like(dur_arena *arena, const char *name) {
    best found = { NULL, 0, SIZE_MAX };
    if (strlen(name) > LIKE_BYTES_MAX) return NULL;
    dur__mutex_lock(&lock);
    DUR__LIST_EACH(&all, at) {
        const dur__names *names = DUR__CONTAINER(at, dur__names, link);
        look_through(names->handlers, name, &found);
        look_through(names->activities, name, &found);
    }
    const char *like = found.name == NULL ? NULL : dur_arena_format(arena, "%.*s", (int)found.size, found.name);
    dur__mutex_unlock(&lock);
    return like;
}
