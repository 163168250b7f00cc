/*
 * compare.h: differential runs: operations, and one store that performs them and tells in text what it answered.
 */
#ifndef DURITE_KIT_COMPARE_H
#define DURITE_KIT_COMPARE_H

#include "kit_internal.h"

/* An operation is a kind and a few numbers; what they mean depends on what has been fetched so far, so that any part of
   a sequence is a sequence. */
typedef struct op {
    uint32_t kind;
    uint32_t a, b, c, d;
} op;

/* A growing text. */
typedef struct text {
    char *data;
    size_t size, room;
} text;
void text_add(text *out, const char *format, ...) DUR_PRINTF(2, 3);
void text_clear(text *out);

#define SIDE_TOKENS 64

typedef struct held {
    const char *instance;
    const char *token;
    uint64_t execution, last;
    uint64_t messages[16];
    size_t message_count;
    uint64_t seen_now_ms; /* when they were handed out */
    const char *owner;    /* NULL: a timed lock */
    bool lane;
} held;

/* One store in a differential run. */
typedef struct side {
    kit t;
    held turns[SIDE_TOKENS];
    size_t turn_count;
    dur_leased_work works[SIDE_TOKENS];
    size_t work_count;
    dur_arena *answers; /* of the current step */
    dur_lane *lane;
    bool owners;
    const char *second; /* id of the owner that comes and goes */
} side;

int side_open(side *at, const dur_kit_factory *factory, dur_error *err);
void side_close(side *at);
/* Perform it and append what was answered, then everything that can be seen. */
void side_step(side *at, const op *what, text *out);
void side_look(side *at, text *out);
/* compare_turns.c: one turn, any combination of its fields, on an instance in any state.  Needs nothing that operations
   before it have done. */
enum { OP_ANY_TURN = 0 };
void do_any_turn(side *at, const op *what, text *out);
void any_turn_words(const op *what, text *out);
/* What a turn was answered, and what a fetch has brought. */
void tell_turn(const dur_turn_commit *turn, text *out);
void tell_item(const dur_orchestration_item *item, text *out);
/* The operation in words. */
void op_words(const op *what, text *out);
size_t op_kinds(void);
/* How often a kind is chosen; all weights together. */
uint32_t op_weight(uint32_t kind);

/* All that a store answers to the operations of this seed, as one number: the same for every store that does as the
   contract says (compare_recorded.h). */
enum { RECORDED_STEPS = 80 };
int compare_digest(const dur_kit_factory *factory, uint64_t seed, bool turns, uint64_t *out, dur_error *err);

#endif
