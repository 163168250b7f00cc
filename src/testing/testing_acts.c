/*
 * testing_acts.c: activities: the node hands them to the test, which runs them or their mocks, and tells the node of
 * their end when their time is over.
 */
#include "testing_internal.h"

#include <stdlib.h>
#include <string.h>

#define TAKE_AGAIN_MS 20u /* there was no memory for it */

dur__mocked *dur__test_find_activity(const dur_test *t, const char *name) {
    for (dur__mocked *a = t->activities; a != NULL; a = a->next)
        if (strcmp(a->name, name) == 0) return a;
    return NULL;
}

dur__mocked *dur__test_activity(dur_test *t, const char *name) {
    dur__mocked *a = dur__test_find_activity(t, name);
    if (a != NULL) return a;
    a = dur__test_zalloc(t, sizeof(*a));
    a->name = dur__test_strdup(t, name);
    a->next = t->activities;
    t->activities = a;
    return a;
}

int dur_test_mock_ex(dur_test *t, const dur_mock_args *args, dur_error *err) {
    if (t == NULL || args == NULL || args->activity == NULL || args->activity[0] == '\0')
        return dur_error_set(err, DUR_EINVAL, false, "test.mock", "a test and the activity's name are required");
    dur_error_clear(err);
    dur__test_enter(t);
    bool known = dur__test_find_activity(t, args->activity) != NULL;
    dur__mocked *a = dur__test_activity(t, args->activity);
    dur_mock_args mock = { .size = sizeof(mock) };
    memcpy(&mock, args, args->size < sizeof(mock) ? args->size : sizeof(mock));
    mock.activity = a->name;
    mock.result = dur__test_strdup(t, mock.result != NULL ? mock.result : "");
    mock.reason = dur__test_strdup(t, mock.reason != NULL ? mock.reason : "mocked failure");
    a->mock = mock;
    a->mocked = true;
    a->failures_left = mock.fail_times;
    if (known || t->runtime == NULL) return DUR_OK;
    return dur_test_crash(t, err); /* a node learns of its activities when it starts */
}

size_t dur_test_calls(const dur_test *t, const char *activity) {
    const dur__mocked *a = t != NULL && activity != NULL ? dur__test_find_activity(t, activity) : NULL;
    return a != NULL ? a->calls : 0;
}

const char *dur_test_call_input(const dur_test *t, const char *activity, size_t index) {
    const dur__mocked *a = t != NULL && activity != NULL ? dur__test_find_activity(t, activity) : NULL;
    return a != NULL && index < a->calls ? a->inputs[index] : NULL;
}

/* ---- running ---- */

int dur__test_take(dur_test *t, dur_error *err) {
    while (t->runtime != NULL) {
        dur_act *act = NULL;
        int code = dur_runtime_take(&act, t->runtime, NULL, err);
        if (code != DUR_OK) t->stirred = true; /* it is still there */
        if (code != DUR_OK || act == NULL) return code;
        t->held = dur__grow(t->held, t->held_count, &t->held_room, sizeof(*t->held));
        t->held[t->held_count++] = (dur__held){ .act = act, .of = dur__test_activity(t, dur_act_name(act)) };
    }
    return DUR_OK;
}

static void note_call(dur_test *t, dur__mocked *a, const char *input) {
    a->inputs = dur__grow(a->inputs, a->calls, &a->room, sizeof(*a->inputs));
    a->inputs[a->calls++] = dur__test_strdup(t, input);
}

static dur_outcome call(dur__mocked *a, dur_act *act, const char *input) {
    if (!a->mocked) {
        if (a->registered != NULL) return a->registered(act, input);
        return dur_act_fail_final(act, "this activity has no function: give it a mock");
    }
    if (a->failures_left > 0) {
        if (a->failures_left != UINT32_MAX) a->failures_left--;
        return a->mock.final ? dur_act_fail_final(act, a->mock.reason) : dur_act_fail(act, a->mock.reason);
    }
    return a->mock.fn != NULL ? a->mock.fn(act, input, a->mock.data) : dur_act_complete(act, a->mock.result);
}

static dur__held *find_held(dur_test *t, const dur_act *act) {
    for (size_t i = 0; i < t->held_count; i++)
        if (t->held[i].act == act) return &t->held[i];
    return NULL;
}

/* While it waits (dur_act_sleep, a client) others come and go. */
void dur__test_run_act(dur_test *t, size_t index) {
    dur_act *act = t->held[index].act;
    dur__mocked *a = t->held[index].of;
    const char *input = dur_act_input(act);
    uint64_t begin_ms = dur__test_boot_ms(t);
    dur_outcome outcome;
    t->held[index].runs = true;
    if (dur_act_cancelled(act)) {
        outcome = dur_act_fail(act, "cancelled");
    } else {
        note_call(t, a, input);
        dur__test_tell(t, "activity %s(\"%s\") of %s runs", a->name, input, dur_act_instance_id(act));
        outcome = call(a, act, input);
    }
    dur__test_enter(t); /* the user's code may have used another test */
    dur__held *held = find_held(t, act);
    if (held == NULL) return;
    held->ran = true;
    held->outcome = outcome;
    uint64_t delay_ms = a->mocked ? a->mock.delay_ms : 0;
    held->end_ms = delay_ms < UINT64_MAX - begin_ms ? begin_ms + delay_ms : UINT64_MAX;
}

/* Somebody waits on this thread: what is in hand goes on, in its order. */
uint64_t dur__test_host(void *test) {
    dur_test *t = test;
    uint64_t now_ms = dur__test_boot_ms(t), least_ms = UINT64_MAX;
    if (dur__test_take(t, NULL) != DUR_OK) least_ms = TAKE_AGAIN_MS;
    for (size_t i = 0; i < t->held_count; i++) {
        if (dur__test_may_end(t, i)) {
            dur__test_end_act(t, i);
            return 0;
        }
        if (t->held[i].ran && t->held[i].end_ms - now_ms < least_ms) least_ms = t->held[i].end_ms - now_ms;
    }
    for (size_t i = 0; i < t->held_count; i++) {
        if (t->held[i].runs) continue;
        dur__test_run_act(t, i);
        return 0;
    }
    return least_ms;
}

bool dur__test_may_end(const dur_test *t, size_t index) {
    const dur__held *held = &t->held[index];
    return held->ran && (dur__test_boot_ms(t) >= held->end_ms || dur_act_cancelled(held->act));
}

void dur__test_end_act(dur_test *t, size_t index) {
    dur__held held = t->held[index];
    memmove(t->held + index, t->held + index + 1, (--t->held_count - index) * sizeof(*t->held));
    dur__test_tell(t, "activity %s(\"%s\") of %s %s", held.of->name, dur_act_input(held.act),
                   dur_act_instance_id(held.act), dur_act_cancelled(held.act) ? "was given up" : "has ended");
    dur_act_end(held.act, held.outcome);
    t->stirred = true;
}

void dur__test_lose_acts(dur_test *t) {
    while (t->held_count > 0) {
        dur_act *act = t->held[--t->held_count].act;
        dur_act_end(act, dur_act_fail(act, "the node died"));
    }
}
