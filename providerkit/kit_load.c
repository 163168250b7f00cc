/*
 * kit_load.c: stores that are shared objects.
 */
#include <dlfcn.h>
#include <durite/sys/kit.h>
#include <durite/sys/store.h>

int dur_kit_load(const char *path, dur_error *err) {
    int (*module)(dur_error * err) = NULL;
    if (path == NULL) return dur_error_set(err, DUR_EINVAL, false, "kit.load", "path is required");
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) return dur_error_set(err, DUR_ENOTFOUND, false, "kit.load", "%s", dlerror());
    *(void **)&module = dlsym(object, DUR_STORE_MODULE);
    if (module != NULL) return module(err); /* it stays loaded: the store's code is in it */
    dlclose(object);
    return dur_error_set(err, DUR_ENOTFOUND, false, "kit.load", "%s has no function %s", path, DUR_STORE_MODULE);
}
