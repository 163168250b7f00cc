/*
 * pages.h: memory by the page: address space that costs nothing until it is touched, with a guard below it.
 */
#ifndef DURITE_BASE_PAGES_H
#define DURITE_BASE_PAGES_H

#include <stddef.h>

size_t dur__page_size(void);
/* size bytes, zero, of which the first `guard` may not be touched; both whole pages.  NULL: none to be had. */
void *dur__pages_reserve(size_t size, size_t guard);
void dur__pages_free(void *pages, size_t size);
/* The system may take the memory back; what these pages hold afterwards is not defined.  Only a kindness: where memory
   is locked (mlockall) it refuses. */
void dur__pages_forget(void *pages, size_t size);
/* How many bytes at the lower end have never been touched?  A system call for each 256 pages.  0: no way to know. */
size_t dur__pages_untouched(void *pages, size_t size);

#endif
