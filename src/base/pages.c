/*
 * pages.c: mmap and its relatives, whose flags differ from system to system.
 */
#include "base/pages.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

/* Linux takes MAP_STACK for a hint; on FreeBSD it makes a mapping that grows, with a guard of its own. */
#ifdef __linux__
#define RESERVE (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK)
#else
#define RESERVE (MAP_PRIVATE | MAP_ANON)
#endif
#define HUGE_PAGE ((size_t)2 << 20)

size_t dur__page_size(void) {
    static _Atomic size_t known;
    size_t size = atomic_load_explicit(&known, memory_order_relaxed);
    if (size == 0) {
        size = (size_t)sysconf(_SC_PAGESIZE);
        atomic_store_explicit(&known, size, memory_order_relaxed);
    }
    return size;
}

void *dur__pages_reserve(size_t size, size_t guard) {
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, RESERVE, -1, 0);
    if (map == MAP_FAILED) return NULL;
    if (guard > 0 && mprotect(map, guard, PROT_NONE) != 0) {
        munmap(map, size);
        return NULL;
    }
#ifdef MADV_NOHUGEPAGE /* a huge page under one stack would be the memory of a hundred */
    if (size >= HUGE_PAGE) (void)madvise(map, size, MADV_NOHUGEPAGE);
#endif
    return map;
}

void dur__pages_free(void *pages, size_t size) {
    munmap(pages, size);
}

void dur__pages_forget(void *pages, size_t size) {
    (void)madvise(pages, size, MADV_DONTNEED);
}

size_t dur__pages_untouched(void *pages, size_t size) {
    size_t page = dur__page_size();
    unsigned char resident[256];
    for (size_t at = 0; at < size;) {
        size_t count = (size - at) / page;
        if (count > sizeof(resident)) count = sizeof(resident);
        if (mincore((char *)pages + at, count * page, (void *)resident) != 0) return 0;
        for (size_t i = 0; i < count; i++)
            if ((resident[i] & 1) != 0) return at + i * page;
        at += count * page;
    }
    return size;
}
