/*
 * machine.h: one or two nodes on one disk, going through the script, and the ledger of what they were told.
 */
#ifndef TESTS_DISK_MACHINE_H
#define TESTS_DISK_MACHINE_H

#include "disk/disk.h"
#include "disk/scenes.h"

/* Each with its place in the disk's log: what was answered there is there after every later loss of power. */
typedef enum fact_kind {
    FACT_STEP,    /* step `number` was answered */
    FACT_RAN,     /* an activity ran: what scheduled it is there: instance, execution, event `number` */
    FACT_HISTORY, /* of an instance and execution, without the bracket at its end */
    FACT_RESULT,  /* how an instance has ended, as text */
    FACT_OWNER    /* a file beside the database: name and content */
} fact_kind;

typedef struct fact {
    fact_kind kind;
    int step; /* that was under way */
    size_t at;
    uint64_t world_ms, execution, number;
    const char *instance, *text;
    size_t size;
} fact;

typedef struct ledger {
    size_t count, room;
    fact *facts;
} ledger;

void machine_install(const char *folder);
extern bool machine_trace;

/* Run steps [from, end] on the files in the folder, facts into the shared ledger.  in_doubt: step `from` may have been
   done.  False: something is not as it must be, machine_why says what. */
typedef struct machine_run {
    int from, end;
    bool in_doubt;
    bool histories; /* take them down after each step */
    bool patient;   /* calls may fail, and are tried again */
    bool second;    /* with a second node, which does every other step */
    struct {        /* what must be there now: facts up to a place in the log of that time */
        const ledger *ledger;
        size_t at;
    } before[2];
} machine_run;
bool machine_go(const machine_run *run);
const char *machine_why(void);

/* What was written down since the last disk_reset; free with ledger_free. */
ledger ledger_copy(void);
void ledger_free(ledger *self);
void ledger_reset(void);
/* The first step that was not answered at `at`, of those from `from` on. */
int ledger_doubt(const ledger *self, size_t at, int from);
uint64_t ledger_world(const ledger *self, size_t at);
/* Files of owners as they may be found after a loss of power at `at`. */
void ledger_owners(const ledger *self, size_t at, uint64_t seed, const char *folder);

#endif
