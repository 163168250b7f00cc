/*
 * cxx.c: see cxx.h.
 *
 * We are not linked with a C++ runtime.  A program that is has it in its global scope, where a weak symbol finds it; a
 * C program that loads handlers from a C++ library has it among what is loaded.
 */
#include "coro/cxx.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

extern void *__cxa_get_globals(void) __attribute__((weak));
extern void __cxa_end_catch(void) __attribute__((weak));

typedef void *get_fn(void);
typedef void end_fn(void);

static _Atomic(get_fn *) get_globals;
static _Atomic(end_fn *) end_catch;

/* Through memory, because ISO C knows no cast from an object pointer to a function. */
static void take(void *library) {
    void *get = dlsym(library, "__cxa_get_globals"), *end = dlsym(library, "__cxa_end_catch");
    get_fn *found_get;
    end_fn *found_end;
    if (get == NULL || end == NULL) return;
    *(void **)(void *)&found_get = get;
    *(void **)(void *)&found_end = end;
    atomic_store(&end_catch, found_end);
    atomic_store(&get_globals, found_get);
}

void dur__cxx_find(void) {
    static const char *const libraries[] = { "libstdc++.so.6", "libc++abi.so.1", "libc++.so.1" };
    if (atomic_load(&get_globals) != NULL) return;
    if (__cxa_get_globals != NULL && __cxa_end_catch != NULL) {
        atomic_store(&end_catch, __cxa_end_catch);
        atomic_store(&get_globals, __cxa_get_globals);
    }
    for (size_t i = 0; atomic_load(&get_globals) == NULL && i < sizeof(libraries) / sizeof(libraries[0]); i++) {
        void *library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD); /* stays open: its functions are ours now */
        if (library != NULL) take(library);
    }
}

void dur__cxx_swap(dur__cxx *kept) {
    get_fn *get = atomic_load_explicit(&get_globals, memory_order_acquire);
    if (get == NULL) return;
    dur__cxx *own = get(), left = *own;
    *own = *kept;
    *kept = left;
}

void dur__cxx_drop(dur__cxx *kept) {
    get_fn *get = atomic_load_explicit(&get_globals, memory_order_acquire);
    if (get == NULL || kept->caught == NULL) return;
    dur__cxx_swap(kept);
    for (const dur__cxx *own = get(); own->caught != NULL;)
        atomic_load (&end_catch)();
    dur__cxx_swap(kept);
    *kept = (dur__cxx){ .caught = NULL };
}
