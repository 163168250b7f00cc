/*
 * scenes.h: the script that crash_disk runs: a bit of every feature, as steps whose answers are the ledger.
 */
#ifndef TESTS_DISK_SCENES_H
#define TESTS_DISK_SCENES_H

#include <durite/durite.h>

typedef enum verb {
    START,        /* name, instance, input; policy */
    START_LATER,  /* … after 1.5 s */
    START_V1,     /* … of version 1.0.0 */
    RAISE,        /* instance, event, data */
    ENQUEUE,      /* instance, queue, data */
    CANCEL,       /* instance */
    TERMINATE,    /* instance */
    SUSPEND,      /* instance */
    RESUME,       /* instance */
    DELETE,       /* instance */
    PRUNE,        /* instance, to its last execution */
    FORGET,       /* the dead letters */
    UNTIL,        /* instance, text that its history has by now */
    RESULT,       /* instance, text (NULL: any); code */
    VALUE,        /* instance, key, value (NULL: any) */
    STATUS,       /* instance, text of its custom status */
    EXECUTIONS,   /* instance; code: how many */
    DEAD_LETTERS, /* code: how many */
    SUSPENDED,    /* instance */
    ABSENT,       /* instance */
    UPGRADE,      /* the runtime stops, and starts with version 2 of the handlers */
    RESTART,      /* the store is closed and opened */
    VACUUM,
    SCENE /* nothing: here a scene ends */
} verb;

typedef struct step {
    verb verb;
    const char *a, *b, *c;
    int code;
    dur_start_policy policy;
} step;

extern const step steps[];
extern const int step_count;
int scene_first(int at); /* the first step of the scene of a step */
int scene_end(int at);   /* the SCENE at its end */
const dur_handler *handlers_at(int at);

/* Told by the activities, whose world outlives the machine. */
void activity_ran(dur_act *act);
unsigned long next_token(void);

#endif
