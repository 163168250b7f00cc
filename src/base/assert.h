/*
 * assert.h: broken invariants of our own.  Callers' mistakes and the world's get an error code instead.
 */
#ifndef DURITE_BASE_ASSERT_H
#define DURITE_BASE_ASSERT_H

#include <durite/sys/process.h>

#define dur__assert_failed dur_assert_failed /* the process's: one hook, whichever library breaks */

/* Always on, in release too. */
#define DUR_ASSERT(x) ((x) ? (void)0 : dur__assert_failed(__FILE__, __LINE__, #x))

/* Costly checks, only in debug builds. */
#ifdef DURITE_DEBUG
#define DUR_DEBUG_ASSERT(x) DUR_ASSERT(x)
#else
#define DUR_DEBUG_ASSERT(x) ((void)sizeof(x))
#endif

#endif
