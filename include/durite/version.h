/*
 * version.h: which Durite this is, at compile time and at run time.
 */
#ifndef DURITE_VERSION_H
#define DURITE_VERSION_H

#include <durite/export.h>

#define DUR_VERSION_MAJOR 0
#define DUR_VERSION_MINOR 1
#define DUR_VERSION_PATCH 0
#define DUR_VERSION "0.1.0"

/* Features that a program may test for instead of comparing versions. */
#define DUR_HAS_SQLITE 1
#define DUR_HAS_PATCHED 1
#define DUR_HAS_CALLER_TRANSACTIONS 1

DUR_BEGIN_DECLS

/* The version of the library that is running, "0.1.0".  Static text.  Any thread.  Since 0.1. */
DUR_API const char *dur_version(void);

DUR_END_DECLS

#endif
