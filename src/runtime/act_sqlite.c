/*
 * act_sqlite.c: a connection of the activity's own to the store's file.
 */
#include "runtime/runtime_internal.h"

#include <durite/sqlite.h>
