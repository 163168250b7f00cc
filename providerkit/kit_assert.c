/*
 * kit_assert.c: how a check says what must hold, its threads, and its chance.
 */
#include "kit_view.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char *base_name(const char *file) {
    const char *slash = strrchr(file, '/');
    return slash != NULL ? slash + 1 : file;
}

void kit_fail(kit *t, const char *file, int line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = dur_arena_vformat(t->arena, format, args);
    va_end(args);
    snprintf(t->message, sizeof(t->message), "%.380s (%s:%d)", text, base_name(file), line);
    t->outcome = DUR_KIT_FAILED;
    longjmp(t->out, 1);
}

void kit_skip(kit *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(t->message, sizeof(t->message), format, args);
    va_end(args);
    t->outcome = DUR_KIT_SKIPPED;
    longjmp(t->out, 1);
}

void kit_needs_time(kit *t) {
    if (t->view == NULL || t->view->has_time || !t->view->commons->moves) return;
    t->view->wants_time = true;
    t->outcome = DUR_KIT_FAILED;
    longjmp(t->out, 1); /* the runner begins it again, with the clock */
}

void kit_must(kit *t, const char *file, int line, const char *what, int code) {
    if (code != DUR_OK) kit_fail(t, file, line, "%.160s: %s, %s", what, dur_code_name(code), t->err.message);
}

void kit_refused(kit *t, const char *file, int line, const char *what, int want, const char *text, int code) {
    if (code == DUR_OK) kit_fail(t, file, line, "%.160s: succeeded, %s expected", what, dur_code_name(want));
    if (code != want)
        kit_fail(t, file, line, "%.160s: %s (%s), %s expected", what, dur_code_name(code), t->err.message,
                 dur_code_name(want));
    if (t->err.code != (dur_code)want)
        kit_fail(t, file, line, "%.160s: answered %s, but the error says %s", what, dur_code_name(code),
                 dur_code_name(t->err.code));
    if (t->err.retryable) kit_fail(t, file, line, "%.160s: marked retryable (%s)", what, t->err.message);
    if (text != NULL && strstr(t->err.message, text) == NULL)
        kit_fail(t, file, line, "%.160s: the message \"%s\" does not say \"%s\"", what, t->err.message, text);
}

void kit_same(kit *t, const char *file, int line, const char *what, uint64_t got, uint64_t want) {
    if (got != want)
        kit_fail(t, file, line, "%s is %llu, not %llu", what, (unsigned long long)got, (unsigned long long)want);
}

void kit_text(kit *t, const char *file, int line, const char *what, const char *got, const char *want) {
    if (got == want || (got != NULL && want != NULL && strcmp(got, want) == 0)) return;
    kit_fail(t, file, line, "%s is %s%.80s%s, not %s%.80s%s", what, got ? "\"" : "", got ? got : "NULL",
             got ? "\"" : "", want ? "\"" : "", want ? want : "NULL", want ? "\"" : "");
}

void kit_needs(kit *t, const char *const *methods) {
    for (; *methods != NULL; methods++)
        if (!dur_store_has(t->p, *methods)) {
            if (t->view != NULL && dur_store_has(t->store.provider, *methods))
                kit_skip(t, "it needs a store of its own: %s tells of everybody", *methods);
            kit_skip(t, "the store has no %s", *methods);
        }
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

typedef struct runner {
    kit_thread self;
    void (*run)(kit_thread *self);
    pthread_barrier_t *gate;
    pthread_t thread;
} runner;

static void *run_thread(void *arg) {
    runner *one = arg;
    pthread_barrier_wait(one->gate);
    one->run(&one->self);
    return NULL;
}

kit_thread *kit_threads(kit *t, size_t n, void (*run)(kit_thread *self), void *data) {
    pthread_barrier_t gate;
    runner *all = calloc(n, sizeof(*all));
    kit_thread *out = dur_arena_zalloc(t->arena, n * sizeof(*out));
    pthread_barrier_init(&gate, NULL, (unsigned)n);
    for (size_t i = 0; i < n; i++) {
        all[i] = (runner){ .self = { .t = t, .index = i, .arena = dur_arena_new(), .data = data },
                           .run = run,
                           .gate = &gate };
        if (pthread_create(&all[i].thread, NULL, run_thread, &all[i]) != 0) abort(); /* the gate counts on all */
    }
    for (size_t i = 0; i < n; i++) {
        pthread_join(all[i].thread, NULL);
        out[i] = all[i].self;
        for (size_t k = 0; k < out[i].count; k++)
            out[i].text[k] = dur_arena_strdup(t->arena, out[i].text[k]);
        dur_arena_free(out[i].arena);
        out[i].arena = NULL;
    }
    pthread_barrier_destroy(&gate);
    free(all);
    return out;
}

/* ---- chance and time --------------------------------------------------------------------------------------------- */

uint64_t kit_random(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint64_t kit_real_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

void kit_sleep(uint64_t ms) {
    struct timespec left = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000L };
    while (nanosleep(&left, &left) != 0)
        ;
}

const char *kit_format(kit *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = dur_arena_vformat(t->arena, format, args);
    va_end(args);
    return text;
}
