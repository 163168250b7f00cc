/*
 * compare.c: the same random operations on two stores; where they part, the shortest sequence that still shows it.
 */
#include "compare.h"

#include <durite/memory.h>

#include <stdio.h>
#include <stdlib.h>

typedef struct pair {
    const dur_kit_factory *left, *right;
    text said_left, said_right;
    dur_error err;
    int code; /* a store could not be opened */
} pair;

/* Perform the operations on both; the position of the first difference, or count. */
static size_t perform(pair *both, const op *ops, size_t count) {
    side *sides = calloc(2, sizeof(*sides));
    size_t at = count;
    if (sides == NULL) abort();
    both->code = side_open(&sides[0], both->left, &both->err);
    if (both->code == DUR_OK) {
        both->code = side_open(&sides[1], both->right, &both->err);
        for (size_t i = 0; both->code == DUR_OK && i < count && at == count; i++) {
            text_clear(&both->said_left);
            text_clear(&both->said_right);
            side_step(&sides[0], &ops[i], &both->said_left);
            side_step(&sides[1], &ops[i], &both->said_right);
            if (both->said_left.size != both->said_right.size ||
                memcmp(both->said_left.data, both->said_right.data, both->said_left.size) != 0)
                at = i;
        }
        if (both->code == DUR_OK) side_close(&sides[1]);
        side_close(&sides[0]);
    }
    free(sides);
    return at;
}

static void generate(op *ops, size_t count, uint64_t seed, bool turns) {
    uint64_t random = seed;
    random = kit_random(&random) ^ seed; /* neighbouring seeds are strangers */
    uint32_t total = 0;
    for (uint32_t i = 0; i < op_kinds(); i++)
        total += op_weight(i);
    for (size_t i = 0; i < count; i++) {
        uint32_t dice = (uint32_t)(kit_random(&random) % total), kind = 0;
        while (dice >= op_weight(kind))
            dice -= op_weight(kind++);
        if (turns) kind = OP_ANY_TURN;
        ops[i] = (op){ kind, (uint32_t)(kit_random(&random) % 1000), (uint32_t)(kit_random(&random) % 1000),
                       (uint32_t)(kit_random(&random) % 1000), (uint32_t)(kit_random(&random) % 1000) };
    }
}

/* Leave out ever smaller pieces as long as the stores still differ (delta debugging). */
static size_t shrink(pair *both, op *ops, size_t count) {
    op *less = calloc(count + 1, sizeof(*less));
    if (less == NULL) abort();
    for (size_t piece = count / 2; piece > 0; piece = piece > 1 ? piece / 2 : 0) {
        for (size_t from = 0; from < count;) {
            size_t gone = from + piece <= count ? piece : count - from, left = 0;
            for (size_t i = 0; i < count; i++)
                if (i < from || i >= from + gone) less[left++] = ops[i];
            size_t found = left > 0 ? perform(both, less, left) : left;
            if (both->code != DUR_OK) break;
            if (found < left) {
                count = found + 1;
                memcpy(ops, less, count * sizeof(*ops));
            } else {
                from += gone;
            }
        }
    }
    free(less);
    return count;
}

static void tell_difference(const text *left, const text *right, text *out) {
    const char *a = left->data, *b = right->data;
    unsigned shown = 0;
    while ((*a != '\0' || *b != '\0') && shown < 5) {
        size_t na = strcspn(a, "\n"), nb = strcspn(b, "\n");
        if (na != nb || memcmp(a, b, na) != 0) {
            text_add(out, "#   left:  %.*s\n#   right: %.*s\n", (int)na, a, (int)nb, b);
            shown++;
        }
        a += na + (a[na] == '\n');
        b += nb + (b[nb] == '\n');
    }
}

static void tell_story(pair *both, uint64_t seed, const op *ops, size_t count, text *out) {
    text_add(out, "# seed %llu: the stores differ after %zu operations\n", (unsigned long long)seed, count);
    for (size_t i = 0; i < count; i++) {
        text_add(out, "#  %3zu ", i + 1);
        op_words(&ops[i], out);
        text_add(out, "\n");
    }
    perform(both, ops, count);
    tell_difference(&both->said_left, &both->said_right, out);
}

/* ---- what was recorded ---------------------------------------------------------------------------------------------
 */

/* FNV-1a.  Times are told by how long after the beginning they are: stores need not begin at the same. */
static uint64_t digest(uint64_t hash, const char *text_, uint64_t began_ms) {
    for (const char *at = text_; *at != '\0';) {
        char shown[24] = { *at, '\0' };
        size_t digits = strspn(at, "0123456789");
        if (digits >= 13 && digits < sizeof(shown)) {
            int64_t later = (int64_t)(strtoull(at, NULL, 10) - began_ms);
            (void)snprintf(shown, sizeof(shown), "%+lld", (long long)later);
        }
        for (const char *c = shown; *c != '\0'; c++)
            hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
        at += digits >= 13 && digits < sizeof(shown) ? digits : 1;
    }
    return hash;
}

int compare_digest(const dur_kit_factory *factory, uint64_t seed, bool turns, uint64_t *out, dur_error *err) {
    op ops[RECORDED_STEPS];
    text said = { NULL, 0, 0 };
    side *alone = calloc(1, sizeof(*alone));
    if (alone == NULL) abort();
    int code = side_open(alone, factory, err);
    *out = UINT64_C(14695981039346656037);
    if (code == DUR_OK) {
        uint64_t began_ms = dur_store_now_ms(alone->t.p);
        generate(ops, COUNT(ops), seed, turns);
        for (size_t i = 0; i < COUNT(ops); i++) {
            text_clear(&said);
            side_step(alone, &ops[i], &said);
            *out = digest(*out, said.data, began_ms);
        }
        side_close(alone);
    }
    dur_free(said.data);
    free(alone);
    return code;
}

static bool usable(const dur_kit_factory *factory) {
    return factory != NULL && factory->size == sizeof(*factory) && factory->open != NULL && factory->close != NULL &&
           factory->advance != NULL;
}

int dur_kit_compare(const dur_kit_factory *left, const dur_kit_factory *right, const dur_kit_compare_options *options,
                    char **story, dur_error *err) {
    static const dur_kit_compare_options none = { .size = sizeof(none) };
    if (options == NULL) options = &none;
    if (!usable(left) || !usable(right) || options->size != sizeof(*options) || story == NULL)
        return dur_error_set(err, DUR_EINVAL, false, "kit.compare",
                             "two factories that can advance their clock, and a place for the story, are required");
    size_t steps = options->steps != 0 ? options->steps : 120;
    uint32_t seeds = options->seeds != 0 ? options->seeds : 100;
    uint64_t first = options->first_seed != 0 ? options->first_seed : 1;
    pair both = { .left = left, .right = right };
    text out = { NULL, 0, 0 };
    int code = DUR_OK;
    op *ops = calloc(steps, sizeof(*ops));
    *story = NULL;
    if (ops == NULL) return dur_error_set(err, DUR_ENOMEM, false, "kit.compare", "no memory for %zu steps", steps);
    for (uint32_t i = 0; i < seeds && code == DUR_OK; i++) {
        generate(ops, steps, first + i, options->turns);
        size_t found = perform(&both, ops, steps);
        code = both.code;
        if (options->on_seed != NULL) options->on_seed(options->data, first + i, i + 1);
        if (code == DUR_OK && found < steps) {
            tell_story(&both, first + i, ops, shrink(&both, ops, found + 1), &out);
            *story = out.data;
            code = DUR_EFAILED;
            dur_error_set(&both.err, DUR_EFAILED, false, "kit.compare", "the stores differ at seed %llu",
                          (unsigned long long)(first + i));
        }
    }
    if (code != DUR_OK && err != NULL) *err = both.err;
    dur_free(both.said_left.data);
    dur_free(both.said_right.data);
    free(ops);
    return code;
}
