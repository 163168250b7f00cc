/*
 * mutant.h: deliberately broken providers: the memory store behind a decorator that makes one mistake.
 */
#ifndef DURITE_KIT_MUTANT_H
#define DURITE_KIT_MUTANT_H

#include <durite/provider.h>
#include <durite/sys/store.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct broken broken;

/* One mistake.  Hooks may be NULL; those that change something get a copy, never the caller's own. */
typedef struct mutant {
    const char *name;
    const char *mistake;
    void (*turn)(broken *self, dur_turn_commit *turn);   /* before a commit, however it is made */
    void (*turned)(broken *self, dur_turn_commit *turn); /* after it: may change the answer */
    void (*fetch)(broken *self, dur_fetch *how);         /* before a fetch */
    void (*fetched)(broken *self, dur_arena *arena, dur_orchestration_item *item); /* an item that was fetched */
    void (*work)(broken *self, dur_work_fetch *how);
    void (*worked)(broken *self, dur_leased_work *work);
    void (*round)(broken *self, dur_arena *arena, dur_round *round); /* after a round */
    void (*patch)(dur_provider_methods *table);                      /* methods of its own */
} mutant;

/* What some mistakes have to remember: a list of texts. */
typedef struct memo {
    struct memo *next;
    char *key, *value;
} memo;

struct broken {
    dur_provider base;
    dur_provider *inner;
    const mutant *what;
    dur_provider_methods table;
    pthread_mutex_t mutex; /* guards memos and scratch */
    memo *memos;
    dur_arena *scratch; /* lives as long as the store */
    uint64_t number;
};

/* Wrap a store; the result owns it. */
dur_provider *broken_new(dur_provider *inner, const mutant *what);
#define BROKEN(self) ((broken *)(void *)(self))
#define INNER(self) (BROKEN(self)->inner)
#define NEXT(self) (INNER(self)->methods)

void *broken_alloc(broken *self, size_t size);                      /* zeroed */
void broken_note(broken *self, const char *key, const char *value); /* replaces; value NULL: forgets */
const char *broken_noted(broken *self, const char *key);
/* A turn on the inner store that needs no token. */
int broken_force(broken *self, dur_turn_commit *turn);

extern const mutant mutants_turns[], mutants_queues[], mutants_admin[], mutants_ours[], mutants_details[],
    mutants_strangers[];

#endif
