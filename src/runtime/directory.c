/*
 * directory.c: which loop has leased an instance.  Only runtimes with several loops keep it.
 */
#include "runtime/runtime_internal.h"

void dur__directory_put(dur_runtime *runtime, const char *instance, dur__loop *loop) {
    if (runtime->loop_count < 2) return;
    dur__mutex_lock(&runtime->mutex);
    (void)dur__map_remove(&runtime->directory, instance); /* another loop's key may end before ours */
    dur__map_put(&runtime->directory, instance, loop);
    dur__mutex_unlock(&runtime->mutex);
}

void dur__directory_remove(dur_runtime *runtime, const char *instance, dur__loop *loop) {
    if (runtime->loop_count < 2) return;
    dur__mutex_lock(&runtime->mutex);
    if (dur__map_get(&runtime->directory, instance) == loop) dur__map_remove(&runtime->directory, instance);
    dur__mutex_unlock(&runtime->mutex);
}

dur__loop *dur__directory_get(dur_runtime *runtime, const char *instance) {
    if (runtime->loop_count < 2) return NULL;
    dur__mutex_lock(&runtime->mutex);
    dur__loop *loop = dur__map_get(&runtime->directory, instance);
    dur__mutex_unlock(&runtime->mutex);
    return loop;
}
