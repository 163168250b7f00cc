/*
 * testing_internal.h: a test, and what its files share.
 *
 * One thread owns everything here.  What a test keeps is not the library's memory, which a test may let run out.
 */
#ifndef DURITE_TESTING_INTERNAL_H
#define DURITE_TESTING_INTERNAL_H

#include <durite/step.h>
#include <durite/sys/arena.h>
#include <durite/sys/clock.h>
#include <durite/sys/store.h>
#include <durite/testing.h>

#define DUR__TIME_MAX_MS (UINT64_C(9000000000000000)) /* nothing is later: microseconds still fit */

/* A text that grows. */
typedef struct dur__lines {
    char *data;
    size_t size, room;
} dur__lines;
void dur__lines_add(dur__lines *lines, const char *format, ...) DUR_PRINTF(2, 3);
void dur__lines_vadd(dur__lines *lines, const char *format, va_list args) DUR_PRINTF(2, 0);

/* An activity by name: how it is mocked, and what it was called with. */
typedef struct dur__mocked {
    struct dur__mocked *next;
    const char *name;
    dur_activity_fn *registered; /* NULL: only mocked, or taken by the user's own host */
    void *data;                  /* of its handler */
    bool mocked;
    dur_mock_args mock;
    uint32_t failures_left;
    const char **inputs;
    size_t calls, room;
} dur__mocked;

/* An activity that the node has handed to the test. */
typedef struct dur__held {
    dur_act *act;
    dur__mocked *of;
    bool runs;       /* is in its function, or has been */
    bool ran;        /* what it does is done, and the node has not heard of it */
    uint64_t end_ms; /* by the boot clock: how long something takes does not hang on a clock that is set; MAX: never */
    dur_outcome outcome;
} dur__held;

typedef enum dur__letter_kind {
    DUR__LETTER_PULSE,
    DUR__LETTER_SEND,
    DUR__LETTER_CANCEL,
    DUR__LETTER_START
} dur__letter_kind;

/* What a client has sent and nobody has received. */
typedef struct dur__letter {
    dur__letter_kind kind;
    bool again;               /* it was received once already */
    uint32_t waits;           /* so often time passes before it can arrive */
    dur_message_args message; /* CANCEL: instance, and the reason as data */
    dur_start_args start;
} dur__letter;

/* How far the story has told an instance's history. */
typedef struct dur__told {
    const char *instance;
    uint64_t execution_id;
    size_t events;
} dur__told;

struct dur_test {
    dur_test_options options;
    struct dur__kept *kept; /* what is handed out, and what is remembered */
    dur_fake_world *world;
    dur_provider *store;
    dur_client *client;
    dur_waker *waker;
    dur_lane *lane;       /* asks the store when something falls due, and takes nothing */
    dur_runtime *runtime; /* NULL: it could not be started; the next run tries again */
    dur_handler *handlers;
    size_t handler_count;
    dur__mocked *activities;
    dur__held *held;
    size_t held_count, held_room;
    bool stirred; /* the node may have something to do */
    bool running; /* inside a run: an activity must not run the test */
    uint64_t moves;
    uint64_t replayed;      /* events, by all nodes */
    uint64_t node_replayed; /* of those by the node that there is */
    uint64_t crash_events;  /* events there were at the last crash of crash_every_wait */
    uint64_t nodes;         /* started so far */

    /* exploring */
    struct dur__explorer *explorer; /* NULL: everything goes as it should */
    dur__letter *letters;
    size_t letter_count, letter_room;
    const char **roots;
    size_t root_count, root_room;
    dur__lines *story; /* NULL: nobody listens */
    dur__told *told;
    size_t told_count, told_room;
};

/* testing.c */
void dur__test_enter(dur_test *t);
uint64_t dur__test_boot_ms(const dur_test *t);
int dur__test_node(dur_test *t, dur_error *err); /* there is one when it returns DUR_OK */
void dur__test_tell(dur_test *t, const char *format, ...) DUR_PRINTF(2, 3);
void *dur__grow(void *items, size_t count, size_t *room, size_t size);
void *dur__test_zalloc(dur_test *t, size_t size);      /* until the test is freed */
char *dur__test_strdup(dur_test *t, const char *text); /* NULL gives NULL */

/* testing_acts.c */
dur__mocked *dur__test_activity(dur_test *t, const char *name);            /* there is one from now on */
dur__mocked *dur__test_find_activity(const dur_test *t, const char *name); /* NULL: neither registered nor mocked */
int dur__test_take(dur_test *t, dur_error *err);                           /* what the node hands out */
void dur__test_run_act(dur_test *t, size_t index);                         /* what it does */
void dur__test_end_act(dur_test *t, size_t index);                         /* and the node hears of it */
bool dur__test_may_end(const dur_test *t, size_t index);                   /* its time is over */
void dur__test_lose_acts(dur_test *t);                                     /* the node is dead */
uint64_t dur__test_host(void *test);                                       /* of dur_runtime_host */

/* testing_clients.c */
void dur__test_deliver(dur_test *t, size_t index);
size_t dur__test_letters(const dur_test *t);                    /* how many may arrive now */
size_t dur__test_find_letter(const dur_test *t, size_t number); /* of those */
bool dur__test_hurry(dur_test *t); /* nothing else will happen: what is on its way arrives; false: nothing is */

/* testing_run.c */
bool dur__test_move(dur_test *t, dur_error *err); /* false: blocked, or err has a code */
uint64_t dur__test_due_ms(dur_test *t);           /* until the next thing by itself; UINT64_MAX: nothing */
void dur__test_pass(dur_test *t, uint64_t ms);    /* time passes, also for what is on its way */

/* explore.c; all without an explorer: 0, nothing happens */
uint32_t dur__explore_late(dur_test *t);  /* n > 0: a message is on its way for 2^(n-1) - 1 moments */
uint32_t dur__explore_again(dur_test *t); /* the same of a message that is sent again */
size_t dur__explore_pick(dur_test *t, size_t count);
void dur__explore_fault(dur_test *t, dur_error *err);  /* perhaps something goes wrong now */
bool dur__explore_pause(dur_test *t, uint32_t *moves); /* the scenario goes on after so many moves */

/* explore_story.c */
void dur__story_events(dur_test *t);

#endif
