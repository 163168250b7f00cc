/*
 * replay_fuzz.c: a history that is not what it was is refused, or it is a history like any other.
 *
 * Text that begins like JSON is replayed by the handlers of the goldens.  Other input is a list of choices: a random
 * program runs and records; events of its history are left out, repeated, exchanged and changed; that is replayed.  The
 * end is DUR_OK, DUR_ENONDETERMINISM or DUR_ECORRUPT.  An execution that accepts it goes on with further arrivals,
 * which belong to it or do not, and what it records then must be accepted by the next.
 */
#include "core/unreported.h"
#include "fuzz_bytes.h"
#include "replay/engine.h"
#include "replay/golden_handlers.h"
#include "unit/random_program.h"
#include <durite/replay.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROWS_MAX = 600, COULD_MAX = 600, ARRIVALS_MAX = 24, CHANGES_MAX = 12 };

static dur_error err;

static void known(int code) {
    MUST(code == DUR_OK || code == DUR_ENONDETERMINISM || code == DUR_ECORRUPT, err.message);
}

static void try_text(const uint8_t *data, size_t size) {
    char *text = dur__xmalloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    int code = dur_replay_history(NULL, golden_handlers, text, &err);
    if (code != DUR_ENOTFOUND && code != DUR_EUNSUPPORTED) known(code); /* another handler, a kind of the future */
    free(text);
}

typedef struct run {
    bytes *in;
    dur_arena *arena;
    dur__stacks *stacks;
    dur__exec *exec;
    dur_text rows[ROWS_MAX];
    size_t row_count;
    dur_work_item could[COULD_MAX]; /* what has been asked for, as its answer */
    size_t could_count;
    uint64_t now, random;
} run;

static void any_random(void *data, void *out, size_t size) {
    run *w = data;
    for (size_t i = 0; i < size; i++) {
        w->random = mix(w->random);
        ((unsigned char *)out)[i] = (unsigned char)(w->random >> 32);
    }
}

static void exec_new(run *w) {
    w->exec = dur__exec_new(&(dur__exec_options){ .instance = "i",
                                                  .execution_id = 1,
                                                  .name = "P",
                                                  .version = "1.0.0",
                                                  .fn = random_program,
                                                  .stack_bytes = 64 << 10,
                                                  .stacks = w->stacks,
                                                  .random = any_random,
                                                  .random_data = w,
                                                  .cancel_grace_ms = 100 });
}

static void exec_end(run *w) {
    for (dur__arrival *left; (left = dur__exec_drain(w->exec, NULL)) != NULL;)
        free(left);
    dur__exec_free(w->exec);
    w->exec = NULL;
}

static void could(run *w, dur_work_item item) {
    if (w->could_count < COULD_MAX) w->could[w->could_count++] = item;
}

static void collect(run *w) {
    const dur__turn *turn = dur__exec_turn(w->exec);
    for (size_t i = 0; i < turn->event_count && w->row_count < ROWS_MAX; i++)
        w->rows[w->row_count++] =
            (dur_text){ dur_arena_strdup(w->arena, turn->events[i].json.data), turn->events[i].json.size };
    for (size_t i = 0; i < turn->worker_item_count; i++)
        could(w, (dur_work_item){ .kind = DUR_WORK_ACTIVITY_COMPLETED,
                                  .execution_id = 1,
                                  .id = turn->worker_items[i].item.id,
                                  .result = "r" });
    for (size_t i = 0; i < turn->orchestrator_item_count; i++) {
        const dur_work_item *item = &turn->orchestrator_items[i].item;
        if (item->kind == DUR_WORK_TIMER_FIRED)
            could(w, (dur_work_item){
                         .kind = item->kind, .execution_id = 1, .id = item->id, .fire_at_ms = item->fire_at_ms });
        if (item->kind == DUR_WORK_START_ORCHESTRATION && item->parent_instance != NULL)
            could(w,
                  (dur_work_item){
                      .kind = DUR_WORK_SUB_ORCH_COMPLETED, .execution_id = 1, .id = item->parent_id, .result = "c" });
    }
    for (dur__link *link; (link = dur__list_pop(turn->consumed)) != NULL;)
        free(DUR__CONTAINER(link, dur__arrival, link));
    dur__exec_turn_done(w->exec);
}

static dur_work_item arrival_of(run *w) {
    static const char *const names[] = { "e0", "e1", "q0", "q1" };
    static const dur_failure failed = { .category = DUR_FAILURE_APPLICATION, .message = "x", .retryable = true };
    uint8_t kind = byte(w->in);
    dur_work_item item = { .execution_id = 1, .id = 1 + kind / 8u, .result = "w", .reason = "enough" };
    if (kind < 160 && w->could_count > 0) {
        size_t at = choice(w->in, w->could_count);
        item = w->could[at];
        w->could[at] = w->could[--w->could_count];
        if (kind % 4 != 0) return item;
        if (item.kind == DUR_WORK_ACTIVITY_COMPLETED) item.kind = DUR_WORK_ACTIVITY_FAILED, item.details = &failed;
        if (item.kind == DUR_WORK_SUB_ORCH_COMPLETED) item.kind = DUR_WORK_SUB_ORCH_FAILED, item.details = &failed;
        return item;
    }
    switch (kind % 8) {
    case 0: /* of something that nobody asked for, or of another kind */
        item.kind = DUR_WORK_ACTIVITY_COMPLETED;
        break;
    case 1:
        item.kind = DUR_WORK_TIMER_FIRED;
        break;
    case 2:
        item.kind = DUR_WORK_SUB_ORCH_FAILED;
        item.details = &failed;
        break;
    case 3:
        item.kind = DUR_WORK_CANCEL_INSTANCE;
        item.cancel_seq = kind / 64u;
        break;
    case 4:
    case 5:
        item.kind = DUR_WORK_EXTERNAL_RAISED;
        item.name = names[kind & 1];
        item.data = "d";
        break;
    default:
        item.kind = DUR_WORK_QUEUE_MESSAGE;
        item.name = names[2 + (kind & 1)];
        item.data = "m";
        break;
    }
    return item;
}

/* Offer and step: DUR_OK, or what the first step said that was something else. */
static int go_on(run *w, size_t arrivals) {
    int code = DUR_OK;
    for (size_t i = 0; i < arrivals && !dur__exec_finished(w->exec) && w->row_count < ROWS_MAX; i++) {
        dur__arrival *arrival = dur__xcalloc(1, sizeof(*arrival));
        arrival->item = arrival_of(w);
        arrival->item.instance = "i";
        arrival->order_ms = arrival->order_id = w->now;
        dur__exec_offer(w->exec, arrival);
        for (bool took = true; took && code == DUR_OK;) {
            w->now += 7;
            code = dur__exec_step(w->exec, w->now, &took, &err);
            if (code == DUR_OK) collect(w);
        }
        if (code != DUR_OK) break;
    }
    return code;
}

static int replay(run *w) {
    int code = DUR_OK;
    exec_new(w);
    for (size_t i = 0; i < w->row_count && code == DUR_OK; i++) {
        dur_event event;
        code = dur_event_from_json(&event, w->arena, w->rows[i], &err);
        if (code == DUR_OK) code = dur__exec_replay_event(w->exec, &event, &err);
    }
    return code == DUR_OK ? dur__exec_replay_end(w->exec, &err) : code;
}

static void change_fields(dur_event *event, const dur_event *other, uint8_t how) {
    static const char *const texts[] = { "", "A", "q0", "e1", "i::sub::4", "\xf0\x9f\x92\xa5", "0", NULL };
    const char *text = texts[how / 16u % 8];
    switch (how % 16) {
    case 0:
        event->kind = other->kind;
        break;
    case 1:
        event->source_event_id = other->event_id;
        event->has_source_event_id = true;
        break;
    case 2:
        event->source_event_id = other->source_event_id;
        event->has_source_event_id = other->has_source_event_id;
        break;
    case 3:
        event->event_id = how < 128 ? other->event_id : UINT64_MAX;
        break;
    case 4:
        event->name = text;
        break;
    case 5:
        event->result = event->data = event->output = text;
        break;
    case 6:
        event->key = event->value = text;
        break;
    case 7:
        event->timestamp_ms = event->fire_at_ms = how < 128 ? 0 : UINT64_MAX;
        break;
    case 8:
        event->details = other->details;
        break;
    case 9:
        event->instance = event->parent_instance = text;
        break;
    case 10:
        event->input = text;
        break;
    case 11:
        event->trace = 1 - (event->trace != 0); /* a history of the original */
        break;
    case 12:
        event->status = event->initial_custom_status = text;
        break;
    case 13:
        event->execution_id = how < 128 ? 2 : UINT64_MAX;
        break;
    case 14:
        event->has_source_event_id = false;
        break;
    default:
        event->source_event_id = how < 128 ? 0 : UINT64_MAX;
        event->has_source_event_id = true;
        break;
    }
}

static size_t change(bytes *in, dur_event *events, size_t count) {
    size_t at = choice(in, count), other = choice(in, count);
    switch (choice(in, 7)) {
    case 6: /* the code was older, and had asked for a marker */
        if (count + 2 > ROWS_MAX) return count;
        events[count] = (dur_event){ .kind = DUR_EVENT_ACTIVITY_SCHEDULED, .name = DUR__MARKER, .input = "old" };
        events[count + 1] = (dur_event){ .kind = DUR_EVENT_ACTIVITY_COMPLETED, .result = "true" };
        events[count + 1].has_source_event_id = true;
        events[count].event_id = events[count + 1].source_event_id = count + 1;
        events[count + 1].event_id = count + 2;
        for (size_t i = count; i < count + 2; i++)
            events[i].instance_id = "i", events[i].execution_id = 1, events[i].duroxide_version = "0.1.0";
        return count + 2;
    case 0: /* lost */
        memmove(events + at, events + at + 1, (count - at - 1) * sizeof(*events));
        return count - 1;
    case 1: /* twice */
        if (count == ROWS_MAX) return count;
        memmove(events + at + 1, events + at, (count - at) * sizeof(*events));
        return count + 1;
    case 2: { /* in another order */
        dur_event kept = events[at];
        events[at] = events[other];
        events[other] = kept;
        return count;
    }
    case 3: /* torn off */
        return at + 1;
    default:
        change_fields(&events[at], &events[other], byte(in));
        return count;
    }
}

/* False: no history is left, or it is one that cannot be written. */
static bool damage(run *w) {
    static dur_event events[ROWS_MAX];
    size_t count = w->row_count;
    for (size_t i = 0; i < count; i++)
        MUST(dur_event_from_json(&events[i], w->arena, w->rows[i], &err) == DUR_OK, err.message);
    bool numbered = choice(w->in, 4) != 0;
    for (size_t i = 1 + choice(w->in, CHANGES_MAX); i > 0 && count > 0; i--)
        count = change(w->in, events, count);
    for (size_t i = 0; i < count; i++) {
        if (numbered) events[i].event_id = i + 1;
        if (dur_event_to_json(&w->rows[i], w->arena, &events[i], NULL) != DUR_OK) return false;
    }
    w->row_count = count;
    return count > 0;
}

static void try_run(run *w) {
    const char *input = dur_arena_format(w->arena, "%x", byte(w->in) * 256u + byte(w->in));
    exec_new(w);
    dur__exec_begin begin = { .input = input, .birth = 7 };
    MUST(dur__exec_start(w->exec, &begin, w->now, &err) == DUR_OK, err.message);
    collect(w);
    MUST(go_on(w, choice(w->in, ARRIVALS_MAX)) == DUR_OK, err.message);
    exec_end(w);
    MUST(replay(w) == DUR_OK, err.message); /* what was recorded */
    exec_end(w);
    if (w->row_count == ROWS_MAX || !damage(w)) return;
    int code = replay(w);
    known(code);
    if (code == DUR_OK) {
        MUST(dur__exec_finished(w->exec) || dur__exec_last_event(w->exec) == w->row_count, "what follows has its id");
        code = go_on(w, choice(w->in, ARRIVALS_MAX));
        known(code);
    }
    exec_end(w);
    if (code != DUR_OK || w->row_count == ROWS_MAX) return;
    MUST(replay(w) == DUR_OK, err.message);
    exec_end(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bytes in = { data, data + size };
    if (size > 0 && data[0] == '[') {
        try_text(data, size);
        return 0;
    }
    run *w = dur__xcalloc(1, sizeof(*w));
    w->in = &in;
    w->now = 1000;
    w->arena = dur_arena_new();
    w->stacks = dur__stacks_new();
    try_run(w);
    dur__stacks_free(w->stacks);
    dur_arena_free(w->arena);
    free(w);
    return 0;
}
