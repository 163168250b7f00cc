/*
 * dead_reason.h: why a dead letter is made of a queue message, in the same words everywhere.
 */
#ifndef DURITE_PROVIDER_DEAD_REASON_H
#define DURITE_PROVIDER_DEAD_REASON_H

#define DUR__DELETED "the instance was deleted"
#define DUR__NO_INSTANCE "the instance does not exist"
#define DUR__NEVER_STARTED "the instance was never started: its parent is gone"

#endif
