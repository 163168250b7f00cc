/*
 * names.h: which handlers the runtimes of this process have, so that a misspelt name can be answered with a good one.
 */
#ifndef DURITE_CLIENT_NAMES_H
#define DURITE_CLIENT_NAMES_H

#include "base/list.h"
#include <durite/sys/provider_methods.h>

/* A runtime's; in the list from add to remove, and unchanged meanwhile. */
typedef struct dur__names {
    dur__link link;
    const dur_handler_filter *handlers;   /* "Name@1.2.3", "Name@" */
    const dur_handler_filter *activities; /* names */
} dur__names;

void dur__names_add(dur__names *names);
void dur__names_remove(dur__names *names); /* one that was not added: nothing */

/* The name here that is most like this one, in arena; NULL: none is like it. */
const char *dur__names_like(dur_arena *arena, const char *name);

#endif
