/*
 * compare_turns.c: a differential run's turn: any combination of its fields, on an instance in any state.
 *
 * What a turn means follows from many fields together, and each store reads them in its own way: fault, answers, rows,
 * counts and what is fetched next must be the same.  Contradictions are part of it: they are refused everywhere.
 */
#include "compare.h"

#include <stdio.h>

#define T (&at->t)
#define P (at->t.p)
#define ID "j0"
#define PARENT "j1"

/* The choices of one operation, drawn from its numbers. */
typedef struct choice {
    /* the instance before */
    uint32_t begun;   /* only its start waits, it runs, it has ended, it is not there */
    uint32_t holder;  /* nobody, a timed lock, an owner outside of lanes, the lane's owner */
    uint32_t waiting; /* nothing else, an event, a queue's message, a cancel */
    uint32_t paused;  /* "why", where nobody holds it */
    uint32_t parent;  /* exists, or does not */
    uint32_t work;    /* none, a row locked for the turn, the same and lost */
    /* the turn */
    uint32_t token;     /* the holder's, another, take_over */
    uint32_t instance;  /* named, or found by the token */
    uint32_t execution; /* the current one, the next, 0 */
    uint32_t events;    /* the next, none, two, one that is there */
    uint32_t status, named, pinned;
    uint32_t expected; /* not compared, right, wrong */
    uint32_t listed;   /* all that was handed out under the token, listed: all, none */
    uint32_t keep, seen, delay, back;
    uint32_t suspend; /* no, to nothing, for a reason, a reason that is not looked at */
    uint32_t remove, if_unleased, if_uncancelled, if_suspended, needs_parent;
    uint32_t eager;   /* no worker item, for anybody, locked, with an empty token, of a turn without owner */
    uint32_t message; /* sends itself one, a timer, the parent an answer */
    uint32_t again;   /* the same once more */
} choice;

static uint32_t draw(uint64_t *random, uint32_t of) {
    return (uint32_t)(kit_random(random) % of);
}

static bool seldom(uint64_t *random, uint32_t of) {
    return draw(random, of) == 0;
}

static choice choose(const op *o) {
    uint64_t random = (uint64_t)o->a + 1000 * ((uint64_t)o->b + 1000 * ((uint64_t)o->c + 1000 * (uint64_t)o->d)) + 1;
    uint64_t *r = &random;
    for (int i = 0; i < 4; i++)
        (void)kit_random(r);
    choice c = { .begun = draw(r, 4), .holder = draw(r, 4), .waiting = draw(r, 4), .paused = seldom(r, 4) };
    c.parent = draw(r, 2), c.work = draw(r, 3);
    c.token = seldom(r, 8) ? 1 : seldom(r, 3) || c.holder == 0 ? 2 : 0;
    c.instance = seldom(r, 4);
    c.execution = seldom(r, 3) ? 2 : seldom(r, 6);
    c.events = draw(r, 4), c.status = seldom(r, 2) ? draw(r, 5) : 0, c.named = draw(r, 2), c.pinned = draw(r, 2);
    c.expected = draw(r, 3) == 0 ? 1 : seldom(r, 6) ? 2 : 0;
    c.listed = draw(r, 3);
    c.keep = draw(r, 2), c.seen = seldom(r, 3), c.delay = seldom(r, 4), c.back = seldom(r, 6);
    c.suspend = seldom(r, 2) ? draw(r, 4) : 0;
    c.remove = seldom(r, 4), c.needs_parent = seldom(r, 3);
    c.if_unleased = c.token == 2 && draw(r, 2), c.if_uncancelled = c.if_unleased && draw(r, 2);
    c.if_suspended = c.token == 2 && seldom(r, 4);
    c.eager = draw(r, 5), c.message = draw(r, 4), c.again = seldom(r, 4);
    if (seldom(r, 12)) return c; /* contradictions and all */
    bool writes = c.execution != 2 && !c.back;
    if (!writes) c.events = 1, c.status = c.named = c.pinned = 0;
    if (c.execution == 2) c.keep = 0;
    if (c.back) c.keep = 0, c.token = c.token == 2 ? 0 : c.token;
    if (c.token != 2) c.if_unleased = c.if_uncancelled = c.if_suspended = 0;
    if (c.suspend == 2 && (c.status == DUR_STATUS_COMPLETED || c.status == DUR_STATUS_FAILED)) c.suspend = 1;
    return c;
}

void any_turn_words(const op *what, text *out) {
    static const char *const begun[] = { "its start waits", "runs", "has ended", "is not there" };
    static const char *const holders[] = { "nobody", "a timed lock", "an owner", "the lane" };
    static const char *const waiting[] = { "nothing", "an event", "a queue's message", "a cancel" };
    static const char *const tokens[] = { "the holder's", "another", "take_over" };
    static const char *const executions[] = { "current", "next", "0" };
    static const char *const events[] = { "the next", "none", "two", "one that is there" };
    static const char *const expected[] = { "not compared", "right", "wrong" };
    static const char *const listed[] = { "all that was given", "all, listed", "none, listed" };
    static const char *const suspends[] = { "no", "resume", "suspend", "not looked at" };
    static const char *const eager[] = { "none", "for anybody", "locked", "empty token", "without owner" };
    static const char *const works[] = { "none", "ours", "lost" };
    static const char *const sends[] = { "nothing", "itself an event", "itself a timer", "its parent an answer" };
    choice c = choose(what);
    text_add(out, "\n#       instance: %s, held by %s, waiting: %s%s%s", begun[c.begun], holders[c.holder],
             waiting[c.waiting], c.paused ? ", suspended" : "", c.parent ? ", parent exists" : "");
    text_add(out, "\n#       token %s%s, execution %s, events %s, status %s%s%s, position %s, takes %s",
             tokens[c.token], c.instance ? " (alone)" : "", executions[c.execution], events[c.events],
             dur_status_name((dur_status)c.status), c.named ? ", named" : "", c.pinned ? ", pinned" : "",
             expected[c.expected], listed[c.listed]);
    text_add(out, "\n#       %s%s%s%s%s%s%s%s%ssuspend: %s, consumes work: %s, adds work: %s, sends %s%s",
             c.keep ? "keep " : "", c.seen ? "seen " : "", c.delay ? "delay " : "", c.back ? "give_back " : "",
             c.remove ? "remove_work " : "", c.if_unleased ? "if_unleased " : "",
             c.if_uncancelled ? "if_uncancelled " : "", c.if_suspended ? "if_suspended " : "",
             c.needs_parent ? "needs_parent " : "", suspends[c.suspend], works[c.work], eager[c.eager],
             sends[c.message], c.again ? ", twice" : "");
}

/* ---- the instance before ------------------------------------------------------------------------------------------
 */

static int acquire(side *at, const char *owner, bool lane, dur_orchestration_item *out) {
    dur_orchestration_item items[8];
    size_t count = 0;
    dur_fetch fetch = { .lock_ms = 1000, .owner = owner, .max = 8 };
    out->instance = NULL;
    if (lane) {
        dur_round round = { .fetch = &fetch };
        if (dur_store_lane_round(at->lane, T->arena, &round, NULL) != DUR_OK) return 0;
        count = round.item_count < 8 ? round.item_count : 8;
        if (count > 0) memcpy(items, round.items, count * sizeof(items[0]));
    } else if (dur_store_fetch_turns(P, T->arena, &fetch, items, &count, NULL) != DUR_OK) {
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(items[i].instance, ID) == 0)
            *out = items[i];
        else /* somebody else's: an operation before has left it */
            (void)dur_store_abandon_orchestration_item(P, items[i].lock_token, 0, true, NULL);
    }
    return out->instance != NULL;
}

static void begin_clean(side *at) {
    static const char *const both[] = { ID, PARENT };
    dur_delete_result gone;
    dur_orchestration_item item;
    for (size_t i = 0; i < COUNT(both); i++)
        (void)dur_store_delete_instances(P, &both[i], 1, true, &gone, NULL);
    while (acquire(at, NULL, false, &item)) { /* a start that waited behind it */
        dur_turn_commit away = { .lock_token = item.lock_token, .execution_id = 1, .expected_last = DUR_NOT_COMPARED };
        (void)dur_store_ack_orchestration_item(P, &away, NULL);
        (void)dur_store_delete_instances(P, &both[0], 1, true, &gone, NULL);
    }
    if (at->lane != NULL) { /* it has heard of its lost leases */
        dur_round round = { .turns = NULL };
        (void)dur_store_lane_round(at->lane, T->arena, &round, NULL);
    }
}

static void run_first(side *at, const char *id, dur_status status) {
    dur_orchestration_item items[8];
    size_t count = 0;
    kit *t = T;
    dur_message_row start = kit_start(T, id);
    (void)dur_store_enqueue_for_orchestrator(P, &start, 0, NULL);
    dur_fetch fetch = { .lock_ms = 1000, .max = 8 };
    if (dur_store_fetch_turns(P, T->arena, &fetch, items, &count, NULL) != DUR_OK) return;
    for (size_t i = 0; i < count; i++) {
        dur_turn_commit turn = COMMIT_OF(&items[i], EVENTS(ev_started(1), ev_set(2, "k0", "v")), NAMED);
        turn.metadata.status = status;
        turn.metadata.birth = 7;
        if (strcmp(items[i].instance, id) == 0)
            (void)dur_store_commit_turns(P, &turn, 1, NULL);
        else
            (void)dur_store_abandon_orchestration_item(P, items[i].lock_token, 0, true, NULL);
    }
}

typedef struct before {
    dur_orchestration_item item; /* instance NULL: nobody holds it */
    const char *owner;
    uint64_t ids[16]; /* of its messages, as they were handed out */
    size_t id_count;
    dur_worker_claim claim;
} before;

static void arrange(side *at, const choice *c, before *out) {
    begin_clean(at);
    if (c->parent) run_first(at, PARENT, DUR_STATUS_NONE);
    dur_message_row start = kit_start(T, ID);
    if (c->begun == 1 || c->begun == 2) run_first(at, ID, c->begun == 2 ? DUR_STATUS_COMPLETED : DUR_STATUS_NONE);
    if (c->begun == 0) (void)dur_store_enqueue_for_orchestrator(P, &start, 0, NULL);
    dur_message_row more = c->waiting == 2 ? kit_queued(T, ID, "q0", "1") : kit_raised(T, ID, "event", "1");
    if (c->waiting == 3) more = kit_cancel(T, ID, "why");
    if (c->waiting != 0 && c->begun < 2) (void)dur_store_enqueue_for_orchestrator(P, &more, 0, NULL);
    if (c->holder == 0) {
        if (c->paused && c->begun < 2) (void)dur_store_set_suspended(P, ID, "why", NULL);
    } else if (at->owners || c->holder == 1) {
        bool lane = c->holder == 3 && at->lane != NULL;
        out->owner = c->holder == 1 ? NULL : lane ? "o1" : at->second;
        if (acquire(at, out->owner, lane, &out->item))
            for (size_t i = 0; i < out->item.message_count && i < COUNT(out->ids); i++)
                out->ids[out->id_count++] = out->item.messages[i].id;
    }
    if (c->work == 0 || c->begun == 3) return;
    dur_message_row work = kit_activity(T, ID, 9);
    dur_leased_work got = { .lock_token = NULL };
    (void)dur_store_enqueue_for_worker(P, &work, NULL);
    dur_work_fetch how = { .lock_ms = 5000, .tags = { .mode = DUR_TAGS_DEFAULT_ONLY } };
    (void)dur_store_fetch_work_item(P, T->arena, &how, &got, NULL);
    if (got.lock_token == NULL) return;
    out->claim = (dur_worker_claim){ .ref = got.ref, .lock_token = got.lock_token };
    if (c->work == 2) (void)dur_store_abandon_work_item(P, got.lock_token, 0, true, NULL);
}

/* ---- the turn -----------------------------------------------------------------------------------------------------
 */

static dur_turn_commit a_turn(side *at, const choice *c, const before *was, const char *eager) {
    dur_event_row *rows = NULL;
    size_t count = 0;
    (void)dur_store_read(P, T->arena, ID, 1, &rows, &count, NULL);
    uint64_t last = c->execution == 1 ? 0 : count > 0 ? rows[count - 1].event_id : 0;
    uint64_t execution = c->execution == 2 ? 0 : 1 + c->execution;
    dur_event events[] = { ev_status(last + 1, "here"), ev_set(last + 2, "k1", "v") };
    if (c->events == 3) events[0].event_id = 1;
    dur_message_row work = kit_activity_in(T, ID, execution, last + 1, NULL, NULL);
    dur_message_row messages[] = { kit_raised(T, ID, "sent", ""), kit_timer(T, ID, 1, 5, dur_store_now_ms(P) + 500),
                                   kit_raised(T, PARENT, "sent", "") };
    kit_turn turn = { .item = &(dur_orchestration_item){ .instance = ID,
                                                         .lock_token = c->token == 1 || was->item.instance == NULL
                                                                           ? "no-such-token"
                                                                           : was->item.lock_token,
                                                         .store_key = c->token == 2 ? 0 : was->item.store_key,
                                                         .execution_id = 1 },
                      .events = events,
                      .event_count = c->events == 1   ? 0
                                     : c->events == 2 ? 2
                                                      : 1,
                      .work = &work,
                      .work_count = c->eager != 0,
                      .messages = c->message > 0 ? &messages[c->message - 1] : NULL,
                      .message_count = c->message > 0 };
    dur_turn_commit out = kit_make_commit(T, &turn);
    out.execution_id = execution;
    out.metadata = (dur_execution_metadata){ .status = (dur_status)c->status,
                                             .output = c->status != 0 ? "output" : NULL,
                                             .orchestration_name = c->named ? KIT_NAME : NULL,
                                             .orchestration_version = c->named ? "2.0.0" : NULL,
                                             .parent_instance_id = c->needs_parent ? PARENT : NULL,
                                             .parent_birth = c->needs_parent ? 7 : 0,
                                             .has_pinned_version = c->pinned,
                                             .pinned_version = { 1, 2, 3 } };
    out.take_over = c->token == 2;
    if (c->instance && !out.take_over) out.instance = NULL;
    out.expected_last = c->expected == 0 ? DUR_NOT_COMPARED : c->expected == 1 ? last : last + 3;
    out.consume_listed = c->listed != 0;
    out.consumed = was->ids;
    out.consumed_count = c->listed == 1 ? was->id_count : 0;
    out.worker_consumed = &was->claim;
    out.worker_consumed_count = was->claim.lock_token != NULL;
    out.owner = c->eager == 4 ? NULL : was->owner;
    if (out.worker_item_count > 0) out.worker_items[0].lock_token = c->eager == 3 ? "" : c->eager == 1 ? NULL : eager;
    out.keep_lease = c->keep;
    if (c->seen && was->id_count > 0) out.seen_id = was->ids[was->id_count - 1], out.seen_now_ms = dur_store_now_ms(P);
    out.delay_ms = c->delay ? 200 : 0;
    out.give_back = c->back;
    out.set_suspended = c->suspend == 1 || c->suspend == 2;
    out.suspended = c->suspend >= 2 ? "paused" : NULL;
    out.remove_work = c->remove;
    out.if_unleased = c->if_unleased;
    out.if_uncancelled = c->if_uncancelled;
    out.if_suspended = c->if_suspended ? "why" : NULL;
    out.needs_parent = c->needs_parent;
    return out;
}

static void commit(side *at, const choice *c, const before *was, const char *eager, text *out) {
    dur_turn_commit turn = a_turn(at, c, was, eager);
    int code;
    if (c->holder == 3 && at->lane != NULL && !turn.take_over && turn.instance != NULL) {
        dur_round round = { .turns = &turn, .turn_count = 1 };
        code = dur_store_lane_round(at->lane, T->arena, &round, NULL);
    } else {
        code = dur_store_commit_turns(P, &turn, 1, NULL);
    }
    text_add(out, "any turn %s fault %d\n", dur_code_name(code), (int)turn.fault);
    tell_turn(&turn, out);
}

static void look_after(side *at, text *out) {
    dur_instance_row row = { .instance_id = NULL };
    dur_execution_row *executions = NULL;
    dur_event_row *events = NULL;
    size_t count = 0, n = 0;
    int code = dur_store_get_instance(P, T->arena, ID, &row, NULL);
    text_add(out, "  %s %s", dur_code_name(code), row.start_pending ? "pending" : "");
    if (code == DUR_OK && !row.start_pending)
        text_add(out, "%s execution %llu %s output %s suspended %s custom %s held %s", row.orchestration_version,
                 (unsigned long long)row.current_execution_id, dur_status_name(row.status),
                 row.output != NULL ? row.output : "-", row.suspended != NULL ? row.suspended : "-",
                 row.custom_status != NULL ? row.custom_status : "-", row.owner != NULL ? "yes" : "no");
    text_add(out, "\n");
    if (dur_store_list_executions(P, T->arena, ID, &executions, &count, NULL) != DUR_OK) count = 0;
    for (size_t i = 0; i < count; i++) {
        (void)dur_store_read(P, T->arena, ID, executions[i].execution_id, &events, &n, NULL);
        text_add(out, "  execution %llu %s events %zu\n", (unsigned long long)executions[i].execution_id,
                 dur_status_name(executions[i].status), n);
    }
}

/* Whoever comes next: what it is given, with which counts. */
static void next_comes(side *at, text *out) {
    dur_orchestration_item item;
    dur_leased_work work[4];
    size_t count = 0;
    kit_advance(T, 250); /* beyond the delay; the locks still hold */
    text_add(out, "next\n");
    if (acquire(at, NULL, false, &item)) tell_item(&item, out);
    dur_work_fetch how = { .lock_ms = 100, .tags = { .mode = DUR_TAGS_DEFAULT_ONLY }, .max = 4 };
    (void)dur_store_fetch_works(P, T->arena, &how, work, &count, NULL);
    for (size_t i = 0; i < count; i++)
        text_add(out, "  work %llu attempts %u\n", (unsigned long long)work[i].ref.activity_id, work[i].attempt_count);
    for (size_t i = 0; i < count; i++)
        (void)dur_store_ack_work_item(P, work[i].lock_token, NULL, NULL);
}

void do_any_turn(side *at, const op *o, text *out) {
    choice c = choose(o);
    before was = { .owner = NULL };
    dur_owner_report report;
    if (at->owners) (void)dur_store_owner_beat(P, "o1", &report, NULL);
    arrange(at, &c, &was);
    commit(at, &c, &was, "eager", out);
    if (c.again) commit(at, &c, &was, "eager too", out);
    look_after(at, out);
    next_comes(at, out);
    begin_clean(at);
}
