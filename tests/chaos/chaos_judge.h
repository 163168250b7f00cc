/*
 * chaos_judge.h: ledger and store in one database, and what is asked of it.
 *
 * line       the ledger: at, pid, kind, a, b, c (chaos.h, and who writes it)
 * instance, execution, event, dead      the store at the end; text: result, output, data, instance or input
 */
#ifndef TESTS_CHAOS_CHAOS_JUDGE_H
#define TESTS_CHAOS_CHAOS_JUDGE_H

#include <stddef.h>

struct sqlite3;

/* How many rules are broken; what breaks them is printed. */
size_t rules(struct sqlite3 *db);

#endif
