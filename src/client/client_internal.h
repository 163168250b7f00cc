/*
 * client_internal.h: what the files of the client share.
 */
#ifndef DURITE_CLIENT_INTERNAL_H
#define DURITE_CLIENT_INTERNAL_H

#include "base/buf.h"
#include <durite/client.h>
#include <durite/sys/store.h>

struct dur_client {
    dur_provider *store;        /* retained */
    uint64_t process;           /* in which it was made: a forked child must not use it */
    _Atomic(uint64_t) limit_ms; /* of calls that only read; 0: none */
};

/* DUR__LIMITED(client); in a call that only reads: the client's limit holds until the function returns. */
#define DUR__LIMITED(client)                                                                                           \
    __attribute__((unused, cleanup(dur__client_limit_end))) uint64_t limit_outer_us = dur__client_limit_begin(client)
uint64_t dur__client_limit_begin(dur_client *client);
void dur__client_limit_end(const uint64_t *outer_us);

/* ---- client.c ---- */

/* Every public call begins here: a client is there, and this is the process that made it. */
int dur__client_enter(const dur_client *client, const char *op, dur_error *err);
/* The same, and a good instance id. */
int dur__client_enter_instance(const dur_client *client, const char *instance, const char *op, dur_error *err);

/* Copy an options struct of any version into ours, which is `size` large and zero beyond theirs.  A larger one is fine
   as long as what we do not know is zero. */
int dur__client_options(void *to, size_t size, const void *from, const char *op, dur_error *err);
/* The other direction: as much of an answer as the caller's struct has room for; its size field says, and is checked
   before anything is done (NULL: no answer is wanted). */
int dur__client_answer_check(const void *to, size_t size, const char *op, dur_error *err);
void dur__client_answer(void *to, size_t size, const void *from);

/* An object that owns an arena, all zero; everything it points to goes there.  Freed as a whole. */
void *dur__client_box(size_t size, dur_arena **arena);
void dur__client_box_free(void *object);

/* Arguments of a start, from a struct of any version: checked; and made a message that lives in arena.  birth: by which
   the caller knows its instance again; 0: it need not. */
int dur__client_start_args(dur_start_args *out, const dur_start_args *given, const char *op, dur_error *err);
int dur__client_start_message(dur_message_row *out, dur_arena *arena, const dur_start_args *args, uint64_t birth,
                              dur_error *err);
int dur__client_encode(dur_message_row *out, dur_arena *arena, const dur_work_item *item, dur_error *err);
dur_exists_policy dur__client_policy(dur_start_policy policy);

/* Start, with arguments that were checked; *existed as of enqueue_start. */
int dur__client_start(dur_client *client, const dur_start_args *args, bool *existed, dur_error *err);
/* What was read into the arena can be worked with: room for that is set aside. */
int dur__client_room(const dur_arena *arena, const char *op, dur_error *err);

/* ---- client_wait.c ---- */

/* DUR_EDEADLK: without a limit, and inside a handler. */
int dur__client_may_wait(bool no_limit, const char *op, dur_error *err);

/* A handler which the instance waits for, or something below it, and which no running node has; empty: none. */
typedef struct dur__lack {
    char handler[320];
} dur__lack;

/* dur_client_result under another name, of a caller whose time began at begun_us.  lack: what the message of a timeout
   names; NULL: not asked for. */
int dur__client_result(char **out, dur_client *client, const char *instance, uint64_t begun_us, uint64_t timeout_ms,
                       const char *op, dur__lack *lack, dur_error *err);

/* The end of a time that began at begun_us; UINT64_MAX: it has none. */
uint64_t dur__client_until(uint64_t begun_us, uint64_t timeout_ms);
/* Before the reads of a wait that ends by then (durite/sys/process.h).  The deadline before, to be set again. */
uint64_t dur__client_deadline(uint64_t timeout_ms, uint64_t deadline_us);

/* ---- client_unserved.c ---- */

/* The handler that no running node has and that one waits for: the instance of the row, something open below it, or an
   activity of these; *who is that instance, in arena.  NULL: nothing is known. */
const char *dur__client_unserved(dur_client *client, dur_arena *arena, const dur_instance_row *row, const char **who);

/* ---- client_info.c ---- */

/* The row of an instance, from get_instance or, where a store has none, from its history.  DUR_ENOTFOUND. */
int dur__client_row(dur_client *client, dur_arena *arena, const char *instance, dur_instance_row *out, dur_error *err);
/* True when DUR_ENOTFOUND of the above is certain: a store without get_instance cannot see a start that waits. */
bool dur__client_sees_starts(const dur_client *client);
/* What only the start that waits knows: name, version, parent. */
void dur__client_row_complete(dur_instance_row *row, dur_arena *arena);
/* Fill info from a row; texts are shared with the row, so its arena must be the info's. */
void dur__client_info_fill(dur_instance_info *info, const dur_instance_row *row);
/* Category and cancelled flag of one that has failed; reads the end of its history where the text is not enough.
   DUR_OK, also where that cannot be read; DUR_ENOMEM. */
int dur__client_info_failure(dur_client *client, dur_arena *arena, dur_instance_info *info, dur_error *err);

/* ---- client_wait.c ---- */

/* Of an info that has ended or is suspended: DUR_OK, DUR_EFAILED, DUR_ECANCELLED, DUR_ESUSPENDED; *text is the output
   or the reason, never NULL. */
int dur__client_outcome(const dur_instance_info *info, const char **text);

/* ---- client_admin.c ---- */

typedef struct dur__tree {
    const char **ids;
    dur_meant *meant; /* by its start: it has not begun */
    size_t count;
} dur__tree;
/* Whom the row shows. */
dur_meant dur__client_meant(const dur_instance_row *row);
/* An instance and all below it, a parent before its children; also those whose start nobody has consumed yet. */
int dur__client_tree(dur_client *client, dur_arena *arena, const dur_instance_row *root, dur__tree *out,
                     dur_error *err);

/* ---- client_terminate.c ---- */

typedef enum dur__client_end_if {
    DUR__END_ALWAYS,
    DUR__END_IF_UNLEASED,    /* DUR_ELEASE when a runtime holds it by then */
    DUR__END_IF_UNCANCELLED, /* … or a cancel request waits for it */
    DUR__END_IF_GOING        /* DUR_ESTATE unless it is suspended for DUR__GOING */
} dur__client_end_if;

/* End it with this failure, without its handler.  DUR_ENOTFOUND also where another one has its id by then. */
int dur__client_end(dur_client *client, const char *instance, const dur_instance_row *only, const dur_failure *failure,
                    dur__client_end_if when, dur_error *err);
/* Does its history hold queue messages that no call has reported? */
int dur__client_holds_letters(dur_client *client, dur_arena *arena, const char *instance, bool *out, dur_error *err);
/* Why an instance stands still for the moment that its end, or its deletion, takes: nothing to tell to who waits.  If
   the client dies in that moment, a node ends the instance (runtime/going.c). */
#define DUR__GOING "a client is about to end or to delete it"
static inline bool dur__client_halted(const dur_instance_info *info) {
    return info->suspended && !dur__str_eq(info->suspend_reason, DUR__GOING);
}
/* Who has made it stand still lets it go on. */
int dur__client_stand_still(dur_client *client, dur_arena *arena, const char *instance, dur_error *err);
void dur__client_resume(dur_client *client, const char *instance);
/* Take the start of an instance away that has not begun, and that start only: it is not started, and leaves nothing. */
int dur__client_take_start(dur_client *client, const char *instance, uint64_t start_id, bool if_unleased,
                           dur_error *err);
/* Histories of the original keep a child's id without its parent's. */
const char *dur__client_child_id(dur_arena *arena, const char *parent, const char *stored);

static inline bool dur__client_ended(const dur_instance_info *info) {
    return info->status == DUR_INSTANCE_COMPLETED || info->status == DUR_INSTANCE_FAILED;
}

#endif
