/*
 * pg_txn.c: start, raise and enqueue inside the caller's own transaction.
 */
#include "core/check.h"
#include "core/limits.h"
#include "provider/postgres/pg_internal.h"

#include <durite/client.h>
#include <stdlib.h>
