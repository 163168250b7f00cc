/*
 * explore.c: thousands of runs of one scenario, in which things go wrong, and the shortest one that fails.
 *
 * A run asks again and again: which of these comes next, does something go wrong now?  Answer 0 is how things go where
 * nothing goes wrong.  So a run is the list of its other answers: a seed draws them, a list repeats them, and a failure
 * is made shorter by leaving answers out, as long as it still fails.
 */
#include "testing_internal.h"

#include <durite/sys/memory.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS 1000u
#define MOVES 5000u
#define SHRINKS_MAX 2000u
#define SHIFT_MAX 4
#define CRASHES_MAX 8u
#define JUMPS_MAX 4u
#define CANCELS_MAX 2u
#define PAUSE_MOVES_MAX 12u
#define LATE_MAX 8u /* what is on its way is so for 0, 1, 3, 7 … 127 moments: the timers of others pass, too */

/* Kinds are numbered apart, and at each move the same questions are asked: so an answer that is left out moves others
   as little as may be. */
typedef enum question_kind { ASK_FAULT, ASK_PICK, ASK_PAUSE, ASK_LATE, ASK_AGAIN, ASK_KINDS } question_kind;

typedef struct answer {
    question_kind kind;
    uint32_t number; /* of the question */
    uint32_t value;  /* never 0 */
} answer;

typedef struct answers {
    answer *items;
    size_t count, room;
} answers;

/* Of a thousand questions so many are answered otherwise; drawn for each run, so that runs differ in kind. */
typedef struct rates {
    uint32_t crash, jump, cancel, reorder, late, again, pause;
} rates;

struct dur__explorer {
    const dur_explore_options *options;
    bool drawing; /* by the seed; else the answers are given */
    uint64_t random;
    rates rates;
    answers list;
    uint32_t asked[ASK_KINDS];
    uint32_t crashes, jumps, cancels;
};

/* What goes wrong, as an answer; from CANCEL on the number of who is cancelled. */
enum { FAULT_NONE, FAULT_CRASH, FAULT_JUMP, FAULT_CANCEL = FAULT_JUMP + 4 };
static const int64_t jumps_ms[] = { 3600000, -3600000, 90000000, -10000 };

/* ---- questions ---- */

static uint64_t draw(struct dur__explorer *ex) {
    uint64_t x = ex->random += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static bool happens(struct dur__explorer *ex, uint32_t per_mille) {
    return per_mille > 0 && draw(ex) % 1000 < per_mille;
}

static uint32_t given(const struct dur__explorer *ex, question_kind kind, uint32_t number) {
    for (size_t i = 0; i < ex->list.count; i++)
        if (ex->list.items[i].kind == kind && ex->list.items[i].number == number) return ex->list.items[i].value;
    return 0;
}

/* What the seed has drawn, or, where answers are given, what they say. */
static uint32_t settle(struct dur__explorer *ex, question_kind kind, uint32_t drawn) {
    uint32_t number = ex->asked[kind]++;
    if (!ex->drawing) return given(ex, kind, number);
    if (drawn == 0) return 0;
    ex->list.items = dur__grow(ex->list.items, ex->list.count, &ex->list.room, sizeof(answer));
    ex->list.items[ex->list.count++] = (answer){ kind, number, drawn };
    return drawn;
}

/* 0 … count - 1 */
static uint32_t ask(struct dur__explorer *ex, question_kind kind, size_t count, uint32_t per_mille) {
    uint32_t drawn = 0;
    if (ex->drawing && count > 1 && happens(ex, per_mille)) drawn = 1 + (uint32_t)(draw(ex) % (count - 1));
    return settle(ex, kind, drawn) % (uint32_t)(count > 0 ? count : 1);
}

uint32_t dur__explore_late(dur_test *t) {
    return t->explorer != NULL ? ask(t->explorer, ASK_LATE, LATE_MAX + 1, t->explorer->rates.late) : 0;
}

uint32_t dur__explore_again(dur_test *t) {
    return t->explorer != NULL ? ask(t->explorer, ASK_AGAIN, LATE_MAX + 1, t->explorer->rates.again) : 0;
}

size_t dur__explore_pick(dur_test *t, size_t count) {
    return t->explorer != NULL ? ask(t->explorer, ASK_PICK, count, t->explorer->rates.reorder) : 0;
}

bool dur__explore_pause(dur_test *t, uint32_t *moves) {
    if (t->explorer == NULL) return false;
    uint32_t value = ask(t->explorer, ASK_PAUSE, PAUSE_MOVES_MAX + 1, t->explorer->rates.pause);
    if (value == 0) return false;
    *moves = value - 1;
    dur__test_tell(t, "client: goes on before everything is quiet");
    return true;
}

/* ---- what goes wrong ---- */

static uint32_t draw_fault(struct dur__explorer *ex, const dur_test *t) {
    if (ex->crashes < CRASHES_MAX && t->runtime != NULL && happens(ex, ex->rates.crash)) return FAULT_CRASH;
    if (ex->jumps < JUMPS_MAX && happens(ex, ex->rates.jump)) return FAULT_JUMP + (uint32_t)(draw(ex) % 4);
    if (ex->cancels < CANCELS_MAX && t->root_count > 0 && happens(ex, ex->rates.cancel))
        return FAULT_CANCEL + (uint32_t)(draw(ex) % t->root_count);
    return FAULT_NONE;
}

static void jump(dur_test *t, int64_t ms) {
    dur__test_tell(t, "** the wall clock jumps by %lld s", (long long)(ms / 1000));
    dur_fake_world_jump(t->world, ms);
    t->stirred = true;
}

static void cancel(dur_test *t, const char *instance) {
    dur__test_tell(t, "** somebody cancels %s", instance);
    (void)dur_client_cancel(t->client, instance, "cancelled by somebody", NULL);
    t->stirred = true;
}

void dur__explore_fault(dur_test *t, dur_error *err) {
    struct dur__explorer *ex = t->explorer;
    uint32_t fault = settle(ex, ASK_FAULT, ex->drawing ? draw_fault(ex, t) : FAULT_NONE);
    if (fault == FAULT_NONE) return;
    if (fault == FAULT_CRASH) {
        ex->crashes++;
        dur__test_tell(t, "** the node dies; another one takes over");
        (void)dur_test_crash(t, err);
    } else if (fault < FAULT_CANCEL) {
        ex->jumps++;
        jump(t, jumps_ms[fault - FAULT_JUMP]);
    } else if (t->root_count > 0) {
        ex->cancels++;
        cancel(t, t->roots[(fault - FAULT_CANCEL) % t->root_count]);
    }
}

/* ---- one run ---- */

static uint32_t one_of(struct dur__explorer *ex, bool wanted, uint32_t a, uint32_t b, uint32_t c) {
    const uint32_t choices[] = { 0, a, b, c };
    uint32_t chosen = choices[draw(ex) % 4]; /* drawn also where it is not wanted: the rest stays the same */
    return wanted ? chosen : 0;
}

static void draw_rates(struct dur__explorer *ex) {
    const dur_explore_options *o = ex->options;
    ex->rates.crash = one_of(ex, o->crashes, 10, 50, 150);
    ex->rates.jump = one_of(ex, o->clock_jumps, 10, 30, 60);
    ex->rates.cancel = one_of(ex, o->cancels, 10, 30, 100);
    ex->rates.reorder = one_of(ex, o->reorder, 100, 300, 600);
    ex->rates.pause = one_of(ex, o->reorder || o->late_messages, 300, 600, 900);
    ex->rates.late = one_of(ex, o->late_messages, 200, 500, 900);
    ex->rates.again = one_of(ex, o->duplicates, 100, 300, 700);
}

/* Until nothing is left to happen.  *cut: there was more than moves_max allow. */
static int run_out(dur_test *t, uint32_t moves_max, bool *cut, dur_error *err) {
    while (t->moves < moves_max) {
        dur_error_clear(err);
        if (dur__test_move(t, err)) continue;
        if (err->code != DUR_OK) return (int)err->code;
        dur_store_counts counts = { .size = sizeof(counts) };
        int code = dur_client_counts(&counts, t->client, err);
        if (code != DUR_OK) return code;
        uint64_t due_ms = counts.running > 0 ? dur__test_due_ms(t) : UINT64_MAX;
        if (due_ms != UINT64_MAX)
            dur__test_pass(t, due_ms);
        else if (!dur__test_hurry(t))
            return DUR_OK;
    }
    dur_store_counts left = { .size = sizeof(left) };
    int code = dur_client_counts(&left, t->client, err);
    *cut = code == DUR_OK && left.running > 0;
    if (*cut)
        dur__test_tell(t, "explore: the run is cut off after %llu moves (moves_max)", (unsigned long long)t->moves);
    return code;
}

static int find_one(dur_test *t, const dur_list_options *which, const char *what, dur_error *err) {
    dur_instance_list *list = NULL;
    int code = dur_client_list(&list, t->client, which, err);
    if (code == DUR_OK && list->count > 0) {
        const dur_instance_info *info = list->items[0];
        code = dur_error_set(err, DUR_EFAILED, false, "explore", "%s %s: %s", info->instance, what,
                             info->suspended ? info->suspend_reason : dur_test_waits_text(t, info->instance));
    }
    dur_instance_list_free(list);
    return code;
}

static int judge(dur_test *t, const dur_explore_options *o, bool cut, dur_error *err) {
    int code = find_one(t, DUR_LIST(.suspended_only = true, .limit = 1), "is suspended", err);
    if (code != DUR_OK) return code;
    if (o->invariant == NULL)
        code = find_one(t, DUR_LIST(.status = DUR_INSTANCE_RUNNING, .limit = 1), "has not ended and waits for", err);
    else
        code = o->invariant(t, o->data, err);
    if (code == DUR_OK) return DUR_OK;
    if (err->code == DUR_OK || err->message[0] == '\0')
        dur_error_set(err, DUR_EFAILED, false, "explore", "the invariant does not hold");
    dur_error why = *err;
    if (cut) /* what has not happened yet would perhaps have happened later */
        dur_error_set(err, why.code, why.retryable, why.op, "cut off after %llu moves (moves_max), with more to do: %s",
                      (unsigned long long)t->moves, why.message);
    return code;
}

/* DUR_OK: it held.  *broken: it could not run at all. */
static int run_once(struct dur__explorer *ex, uint64_t seed, dur__lines *story, uint64_t *moves, bool *broken,
                    dur_error *err) {
    const dur_explore_options *o = ex->options;
    dur_test *t = NULL;
    memset(ex->asked, 0, sizeof(ex->asked));
    ex->crashes = ex->jumps = ex->cancels = 0;
    dur_error_clear(err);
    int code = dur_test_new(
        &t, DUR_TEST(.handlers = o->handlers, .seed = seed, .no_double_run = o->no_double_run, .runtime = o->runtime),
        err);
    *broken = code != DUR_OK;
    if (code != DUR_OK) return code;
    t->explorer = ex;
    t->story = story;
    code = o->scenario(t, o->data, err);
    dur__test_enter(t);
    if (code != DUR_OK && err->code == DUR_OK)
        dur_error_set(err, DUR_EFAILED, false, "explore", "the scenario has returned %s", dur_code_name(code));
    bool cut = false;
    if (code == DUR_OK) code = run_out(t, o->moves_max > 0 ? o->moves_max : MOVES, &cut, err);
    t->explorer = NULL;
    if (code == DUR_OK) code = judge(t, o, cut, err);
    *moves += t->moves;
    dur_test_free(t);
    return code;
}

/* ---- the shortest run that fails ---- */

typedef struct shrinking {
    struct dur__explorer *ex; /* its list is the shortest so far */
    uint64_t seed;
    uint32_t tries;
    uint64_t moves;
} shrinking;

/* Takes the list over where it fails, too. */
static bool still_fails(shrinking *s, const answer *items, size_t count) {
    bool broken = false;
    dur_error err = DUR_ERROR_INIT;
    answers before = s->ex->list;
    if (s->tries++ >= SHRINKS_MAX) return false;
    answers tried = { NULL, count, 0 };
    tried.items = malloc((count + 1) * sizeof(answer));
    if (tried.items == NULL) return false;
    if (count > 0) memcpy(tried.items, items, count * sizeof(answer));
    tried.room = count + 1;
    s->ex->list = tried;
    bool fails = run_once(s->ex, s->seed, NULL, &s->moves, &broken, &err) != DUR_OK && !broken;
    s->ex->list = fails ? tried : before;
    free(fails ? before.items : tried.items);
    return fails;
}

/* The list without `gone` answers from `at` on; what went wrong later comes so much later or sooner. */
static bool fails_without(shrinking *s, size_t at, size_t gone, int shift) {
    size_t count = s->ex->list.count;
    answer *rest = malloc((count + 1) * sizeof(answer));
    if (rest == NULL) return false;
    memcpy(rest, s->ex->list.items, at * sizeof(answer));
    memcpy(rest + at, s->ex->list.items + at + gone, (count - at - gone) * sizeof(answer));
    for (size_t i = at; i < count - gone; i++)
        if (rest[i].kind <= ASK_PICK) rest[i].number = (uint32_t)((int64_t)rest[i].number + shift);
    bool fails = still_fails(s, rest, count - gone);
    free(rest);
    return fails;
}

/* Leave out pieces, large ones first.  A node that does not die has not to be started again: what comes behind comes
   some moves sooner then.  True: it has become shorter. */
static bool leave_out(shrinking *s) {
    bool shorter = false;
    for (size_t piece = s->ex->list.count; piece > 0; piece /= 2) {
        for (size_t at = 0; at < s->ex->list.count && s->tries < SHRINKS_MAX;) {
            size_t count = s->ex->list.count, gone = piece < count - at ? piece : count - at;
            bool fails = fails_without(s, at, gone, 0);
            for (int shift = 1; piece == 1 && !fails && at + gone < count && shift <= SHIFT_MAX; shift++)
                fails = fails_without(s, at, gone, -shift) || fails_without(s, at, gone, shift);
            shorter |= fails;
            if (!fails) at += gone;
        }
    }
    return shorter;
}

/* What must be answered otherwise may do with the smallest such answer. */
static bool make_simpler(shrinking *s) {
    bool simpler = false;
    for (size_t i = 0; i < s->ex->list.count && s->tries < SHRINKS_MAX; i++) {
        size_t count = s->ex->list.count;
        answer *tried = malloc(count * sizeof(answer));
        if (tried == NULL) return simpler;
        memcpy(tried, s->ex->list.items, count * sizeof(answer));
        if (tried[i].value > 1) {
            tried[i].value = 1;
            simpler |= still_fails(s, tried, count);
        }
        free(tried);
    }
    return simpler;
}

static void shrink(shrinking *s) {
    s->ex->drawing = false;
    while (leave_out(s) || make_simpler(s))
        if (s->tries >= SHRINKS_MAX) return;
}

static char *tell(struct dur__explorer *ex, uint64_t seed, uint32_t *faults, dur_error *err) {
    shrinking s = { .ex = ex, .seed = seed };
    dur__lines story = { 0 }, all = { 0 };
    bool broken = false;
    dur_error why = DUR_ERROR_INIT;
    shrink(&s);
    (void)run_once(ex, seed, &story, &s.moves, &broken, &why);
    if (why.code == DUR_OK) why = *err; /* it has other sources of chance than its seed */
    *faults = (uint32_t)ex->list.count;
    dur__lines_add(&all, "explore: seed %llu fails: %s\n", (unsigned long long)seed, why.message);
    dur__lines_add(&all, "the shortest run found that still fails, in which %zu thing%s should:\n", ex->list.count,
                   ex->list.count == 1 ? " does not go as it" : "s do not go as they");
    dur__lines_add(&all, "%s", story.data != NULL ? story.data : "");
    dur__lines_add(&all, "  so: %s\nrun it again with .only = %llu\n", why.message, (unsigned long long)seed);
    dur_error_set(err, DUR_EFAILED, false, "test.explore", "seed %llu: %s", (unsigned long long)seed, why.message);
    if (!ex->options->quiet) fputs(all.data, stderr);
    free(story.data);
    return all.data;
}

/* For the caller, who frees it with dur_free: the library's memory, which may be hooked.  NULL: there is none. */
static char *give(char *text) {
    size_t size = strlen(text) + 1;
    char *given = dur_memory_alloc(size);
    if (given != NULL) memcpy(given, text, size);
    free(text);
    return given;
}

/* ---- all runs ---- */

static int run_seed(struct dur__explorer *ex, uint64_t seed, bool plain, dur_explore_report *report, dur_error *err) {
    bool broken = false;
    ex->drawing = true;
    ex->random = seed * UINT64_C(0x9e3779b97f4a7c15);
    ex->list.count = 0;
    draw_rates(ex);
    if (plain) ex->rates = (rates){ 0 };
    int code = run_once(ex, seed, NULL, &report->moves, &broken, err);
    report->runs++;
    report->faults += ex->list.count;
    if (code == DUR_OK || broken) return code;
    report->failed_seed = seed;
    report->story = give(tell(ex, seed, &report->story_faults, err));
    return DUR_EFAILED;
}

static int check_options(const dur_explore_options *o, dur_error *err) {
    if (o == NULL || o->handlers == NULL || o->scenario == NULL)
        return dur_error_set(err, DUR_EINVAL, false, "test.explore", "handlers and scenario are required");
    return DUR_OK;
}

int dur_test_explore(dur_explore_report *out, const dur_explore_options *given_options, dur_error *err) {
    dur_explore_report report = { .size = sizeof(report) };
    dur_explore_options options = { .size = sizeof(options) };
    dur_error why = DUR_ERROR_INIT;
    int code = check_options(given_options, err);
    if (code != DUR_OK) return code;
    memcpy(&options, given_options, given_options->size < sizeof(options) ? given_options->size : sizeof(options));
    dur_fake_world *outside = dur_fake_world_enter(NULL);
    struct dur__explorer ex = { .options = &options };
    uint64_t seed = options.only != 0 ? options.only : options.seed != 0 ? options.seed : 1;
    uint32_t runs = options.only != 0 ? 1 : options.runs != 0 ? options.runs : RUNS;
    for (uint32_t i = 0; code == DUR_OK && i < runs; i++) /* the first goes as it should, unless it is asked for */
        code = run_seed(&ex, seed + i, i == 0 && options.only == 0, &report, &why);
    free(ex.list.items);
    (void)dur_fake_world_enter(outside);
    if (err != NULL) *err = why;
    if (out != NULL) {
        size_t size = out->size > 0 && out->size < sizeof(report) ? out->size : sizeof(report);
        memcpy(out, &report, size);
        out->size = size;
    } else {
        dur_free(report.story);
    }
    return code;
}
