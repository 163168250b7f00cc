/*
 * testing_clients.c: what clients do: at once, or, while exploring, late and twice.
 */
#include "testing_internal.h"

#include <string.h>

static int check(const dur_test *t, const void *args, const char *op, dur_error *err) {
    if (t == NULL || args == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "test and arguments are required");
    return DUR_OK;
}

static dur_message_args message_copy(dur_test *t, const dur_message_args *args) {
    dur_message_args copy = { .size = sizeof(copy) };
    memcpy(&copy, args, args->size < sizeof(copy) ? args->size : sizeof(copy));
    copy.size = sizeof(copy);
    copy.instance = dur__test_strdup(t, copy.instance);
    copy.name = dur__test_strdup(t, copy.name);
    copy.data = dur__test_strdup(t, copy.data);
    copy.message_id = dur__test_strdup(t, copy.message_id);
    return copy;
}

static dur_start_args start_copy(dur_test *t, const dur_start_args *args) {
    dur_start_args copy = { .size = sizeof(copy) };
    memcpy(&copy, args, args->size < sizeof(copy) ? args->size : sizeof(copy));
    copy.size = sizeof(copy);
    copy.name = dur__test_strdup(t, copy.name);
    copy.input = dur__test_strdup(t, copy.input);
    copy.instance = dur__test_strdup(t, copy.instance);
    copy.version = dur__test_strdup(t, copy.version);
    return copy;
}

static const char *text(const char *given) {
    return given != NULL ? given : "";
}

static int send(dur_test *t, const dur__letter *letter, dur_error *err) {
    const dur_message_args *m = &letter->message;
    const char *again = letter->again ? "again: " : "";
    t->stirred = true;
    switch (letter->kind) {
    case DUR__LETTER_START:
        dur__test_tell(t, "client: %sstart %s(\"%s\") as %s", again, text(letter->start.name),
                       text(letter->start.input), text(letter->start.instance));
        return dur_client_start_ex(t->client, &letter->start, err);
    case DUR__LETTER_PULSE:
        dur__test_tell(t, "client: %spulse %s(\"%s\") to %s", again, text(m->name), text(m->data), text(m->instance));
        return dur_client_pulse_ex(t->client, m, err);
    case DUR__LETTER_SEND:
        dur__test_tell(t, "client: %ssend \"%s\" as %s to %s", again, text(m->data), text(m->name), text(m->instance));
        return dur_client_send_ex(t->client, m, err);
    case DUR__LETTER_CANCEL:
        dur__test_tell(t, "client: %scancel %s", again, text(m->instance));
        return dur_client_cancel(t->client, m->instance, m->data, err);
    }
    return DUR_EINVAL;
}

/* on_its_way: as dur__explore_late says it. */
static void keep(dur_test *t, dur__letter letter, uint32_t on_its_way, bool again) {
    letter.again = again;
    letter.waits = (UINT32_C(1) << (on_its_way - 1)) - 1;
    if (letter.kind == DUR__LETTER_START)
        letter.start = start_copy(t, &letter.start);
    else
        letter.message = message_copy(t, &letter.message);
    t->letters = dur__grow(t->letters, t->letter_count, &t->letter_room, sizeof(*t->letters));
    t->letters[t->letter_count++] = letter;
}

void dur__test_deliver(dur_test *t, size_t index) {
    dur__letter letter = t->letters[index];
    memmove(t->letters + index, t->letters + index + 1, (--t->letter_count - index) * sizeof(*t->letters));
    dur_error err = DUR_ERROR_INIT;
    if (send(t, &letter, &err) != DUR_OK) dur__test_tell(t, "client: … %s", err.message);
}

size_t dur__test_letters(const dur_test *t) {
    size_t count = 0;
    for (size_t i = 0; i < t->letter_count; i++)
        count += t->letters[i].waits == 0;
    return count;
}

size_t dur__test_find_letter(const dur_test *t, size_t number) {
    for (size_t i = 0; i < t->letter_count; i++)
        if (t->letters[i].waits == 0 && number-- == 0) return i;
    return 0;
}

bool dur__test_hurry(dur_test *t) {
    for (size_t i = 0; i < t->letter_count; i++)
        t->letters[i].waits = 0;
    return t->letter_count > 0;
}

/* A start is never late: what follows is for an instance that there is. */
static int post(dur_test *t, const dur__letter *letter, dur_error *err) {
    dur__test_enter(t);
    bool may_wait = letter->kind != DUR__LETTER_START && letter->message.instance != NULL;
    uint32_t late = may_wait ? dur__explore_late(t) : 0;
    if (late > 0) {
        keep(t, *letter, late, false);
        dur_error_clear(err);
        return DUR_OK;
    }
    int code = send(t, letter, err);
    uint32_t again = code == DUR_OK ? dur__explore_again(t) : 0;
    if (again > 0) keep(t, *letter, again, true);
    if (code == DUR_ESTATE &&
        t->explorer != NULL) { /* who was sent it has ended since: it could have been on its way */
        dur_error_clear(err);
        return DUR_OK;
    }
    return code;
}

int dur_test_start_ex(dur_test *t, const dur_start_args *args, dur_error *err) {
    int code = check(t, args, "test.start", err);
    if (code != DUR_OK) return code;
    code = post(t, &(dur__letter){ .kind = DUR__LETTER_START, .start = *args }, err);
    if (code == DUR_OK) {
        t->roots = dur__grow(t->roots, t->root_count, &t->root_room, sizeof(*t->roots));
        t->roots[t->root_count++] = dur__test_strdup(t, args->instance);
    }
    return code;
}

int dur_test_pulse_ex(dur_test *t, const dur_message_args *args, dur_error *err) {
    int code = check(t, args, "test.pulse", err);
    return code == DUR_OK ? post(t, &(dur__letter){ .kind = DUR__LETTER_PULSE, .message = *args }, err) : code;
}

int dur_test_send_ex(dur_test *t, const dur_message_args *args, dur_error *err) {
    int code = check(t, args, "test.send", err);
    return code == DUR_OK ? post(t, &(dur__letter){ .kind = DUR__LETTER_SEND, .message = *args }, err) : code;
}

int dur_test_cancel(dur_test *t, const char *instance, const char *reason, dur_error *err) {
    int code = check(t, instance, "test.cancel", err);
    dur_message_args message = { .size = sizeof(message), .instance = instance, .data = reason };
    return code == DUR_OK ? post(t, &(dur__letter){ .kind = DUR__LETTER_CANCEL, .message = message }, err) : code;
}
