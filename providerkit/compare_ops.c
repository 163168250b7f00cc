/*
 * compare_ops.c: the operations of a differential run: each performed on one store, its answer told in text.
 */
#include "compare.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const ids[] = { "i0", "i1", "i2" };
static const char *const keys[] = { "k0", "k1", "k2" };
static const char *const sessions[] = { NULL, NULL, "s0", "s1" };
static const char *const tags[] = { NULL, NULL, "red", "blue" };
static const char *const workers[] = { NULL, "w0", "w1" };

#define PICK(list, n) ((list)[(n) % (sizeof(list) / sizeof((list)[0]))])
#define T (&at->t)
#define P (at->t.p)

static void tell(text *out, const char *what, int code) {
    text_add(out, "%s %s\n", what, dur_code_name(code));
}

static void do_fetch(side *at, const op *o, text *out);
static void do_fetch_work(side *at, const op *o, text *out);

static held *some_turn(side *at, uint32_t n) {
    return at->turn_count > 0 ? &at->turns[n % at->turn_count] : NULL;
}
static dur_leased_work *some_work(side *at, uint32_t n) {
    return at->work_count > 0 ? &at->works[n % at->work_count] : NULL;
}

static void drop_turn(side *at, held *gone) {
    *gone = at->turns[--at->turn_count];
}

static void drop_work(side *at, dur_leased_work *gone) {
    *gone = at->works[--at->work_count];
}

/* ---- putting in -------------------------------------------------------------------------------------------------- */

static void do_start(side *at, const op *o, text *out) {
    bool existed = false;
    dur_message_row start = kit_start(T, PICK(ids, o->a));
    /* Whether messages before a start that is not due bring the instance up is the store's own: no delay here. */
    int code = dur_store_enqueue_start(P, &start, (dur_exists_policy)(o->b % 3), 0, &existed, NULL);
    text_add(out, "start %s %s\n", dur_code_name(code), existed ? "existed" : "");
}

static dur_message_row a_message(side *at, const op *o) {
    const char *id = PICK(ids, o->a);
    char data[16];
    snprintf(data, sizeof(data), "%u", o->d % 1000);
    switch (o->b % 6) {
    case 0:
        return kit_queued(T, id, o->c % 2 ? "q0" : "q1", data);
    case 1:
        return kit_queued(T, id, "q0", data);
    case 2:
        return kit_cancel(T, id, data);
    case 3:
        return kit_finished(T, id, 1, o->c % 6, data);
    case 4:
        return kit_timer(T, id, 1, 1 + o->c % 6, dur_store_now_ms(P) + o->d % 900);
    default:
        return kit_raised(T, id, "event", data);
    }
}

static void do_put(side *at, const op *o, text *out) {
    dur_message_row message = a_message(at, o);
    uint64_t delay_ms = o->d % 7 == 0 && message.kind != DUR_WORK_QUEUE_MESSAGE ? 250 : 0;
    tell(out, "put", dur_store_enqueue_for_orchestrator(P, &message, delay_ms, NULL));
    /* An orphan becomes a dead letter when a fetch without a filter passes it, or before. */
    if (message.kind == DUR_WORK_QUEUE_MESSAGE) do_fetch(at, &(op){ .a = 1, .b = 1, .d = 1 }, out);
}

static void do_send(side *at, const op *o, text *out) {
    dur_message_row message = a_message(at, o);
    if (message.kind == DUR_WORK_START_ORCHESTRATION) message = kit_raised(T, message.instance, "event", "x");
    message.message_id = o->d % 3 == 0 ? NULL : PICK(keys, o->d);
    tell(out, "send", dur_store_enqueue_existing(P, &message, 0, NULL));
}

static void do_put_work(side *at, const op *o, text *out) {
    dur_message_row work =
        kit_activity_in(T, PICK(ids, o->a), 1 + o->b % 2, o->c % 6, PICK(sessions, o->d), PICK(tags, o->b));
    tell(out, "put work", dur_store_enqueue_for_worker(P, &work, NULL));
}

/* ---- taking out -------------------------------------------------------------------------------------------------- */

void tell_item(const dur_orchestration_item *item, text *out) {
    text_add(out, "  item %s execution %llu last %llu attempts %u acquired %u crashes %u/%u ", item->instance,
             (unsigned long long)item->execution_id, (unsigned long long)item->last_event_id, item->attempt_count,
             item->acquisitions, item->crashes_alone, item->crashes);
    text_add(out, "name %s version %s history %zu %s\n", item->orchestration_name ? item->orchestration_name : "-",
             item->version ? item->version : "-", item->history_count, item->more_messages ? "more" : "");
    for (size_t i = 0; i < item->history_count; i++)
        text_add(out, "    event %llu %.*s\n", (unsigned long long)item->history[i].event_id,
                 (int)item->history[i].json.size, item->history[i].json.data);
    for (size_t i = 0; i < item->message_count; i++)
        text_add(out, "    message due %llu attempts %u queue %s %.*s\n", (unsigned long long)item->messages[i].due_ms,
                 item->messages[i].attempt_count, item->messages[i].queue ? item->messages[i].queue : "-",
                 (int)item->messages[i].json.size, item->messages[i].json.data);
    for (size_t i = 0; i < item->kv_count; i++) /* in any order: a sum of texts would hide nothing that sorting shows */
        for (size_t k = 0; k < COUNT(keys); k++)
            if (strcmp(item->kv[i].key, keys[k]) == 0)
                text_add(out, "    kv[%zu of %zu] %s\n", k, item->kv_count, item->kv[i].value);
}

static int by_instance(const void *a, const void *b) {
    return strcmp(((const dur_orchestration_item *)a)->instance, ((const dur_orchestration_item *)b)->instance);
}

static void keep(side *at, const dur_orchestration_item *item, const char *owner, bool lane) {
    if (at->turn_count == SIDE_TOKENS) at->turn_count--;
    held *mine = &at->turns[at->turn_count++];
    *mine = (held){ .instance = item->instance,
                    .token = item->lock_token,
                    .execution = item->execution_id,
                    .last = item->last_event_id,
                    .seen_now_ms = dur_store_now_ms(P),
                    .owner = owner,
                    .lane = lane };
    for (size_t i = 0; i < item->message_count && i < COUNT(mine->messages); i++)
        mine->messages[mine->message_count++] = item->messages[i].id;
}

/* Which instance comes first is the store's choice; what comes in all is not. */
static void do_fetch(side *at, const op *o, text *out) {
    static const dur_version_range ranges[] = { { { 1, 0, 0 }, { 1, 9, 9 } }, { { 2, 0, 0 }, { 2, 1000, 7 } } };
    const dur_capability_filter filter = { &ranges[o->a / 4 % 2], o->a / 8 % 2 == 0 ? 1 : o->a / 16 % 2 };
    static const char *const names[] = { KIT_NAME "@1.0.0", KIT_NAME "@2.0.0" };
    const dur_handler_filter handlers = { &names[o->b / 16 % 2], 1 };
    const char *owner = at->owners && o->b % 3 == 0 ? at->second : NULL;
    dur_orchestration_item items[8];
    size_t count = 0;
    dur_fetch how = { .lock_ms = 1000,
                      .filter = o->a % 4 == 0 ? &filter : NULL,
                      .handlers = o->b / 4 % 4 == 0 && dur_store_has(P, "list_unserved") ? &handlers : NULL,
                      .owner = owner,
                      .max = 8,
                      .kind = (dur_fetch_kind)(o->c % 5 < 3 ? 0 : o->c % 5 - 2),
                      .queue_messages_max = o->d % 3,
                      .without_history = o->d % 5 == 0 };
    int code = dur_store_fetch_turns(P, T->arena, &how, items, &count, NULL);
    if (code == DUR_ELEASE) code = DUR_OK, count = 0; /* an owner that was taken for dead gets nothing, either way */
    text_add(out, "fetch %s %zu\n", dur_code_name(code), count);
    if (code != DUR_OK) return;
    qsort(items, count, sizeof(items[0]), by_instance);
    for (size_t i = 0; i < count; i++) {
        tell_item(&items[i], out);
        keep(at, &items[i], owner, false);
    }
}

static void do_round(side *at, const op *o, text *out) {
    if (at->lane == NULL) return;
    dur_fetch fetch = { .lock_ms = 1000, .owner = "o1", .max = 8, .kind = (dur_fetch_kind)(o->a % 3) };
    dur_round round = { .fetch = &fetch, .queue_messages_max = o->c % 2 };
    int code = dur_store_lane_round(at->lane, T->arena, &round, NULL);
    if (code == DUR_ELEASE) code = DUR_OK;
    text_add(out, "round %s items %zu held %zu lost %zu\n", dur_code_name(code), round.item_count, round.held_count,
             round.lost_count); /* next_due_ms may be early in one and not in the other */
    if (code != DUR_OK) return;
    if (round.item_count > 0) qsort(round.items, round.item_count, sizeof(round.items[0]), by_instance);
    for (size_t i = 0; i < round.item_count; i++) {
        tell_item(&round.items[i], out);
        keep(at, &round.items[i], "o1", true);
    }
    for (size_t i = 0; i < round.held_count; i++)
        text_add(out, "  held %s attempts %u %.*s\n", round.held[i].instance, round.held[i].message.attempt_count,
                 (int)round.held[i].message.json.size, round.held[i].message.json.data);
    for (size_t k = 0; k < COUNT(ids); k++)
        for (size_t i = 0; i < round.lost_count; i++)
            if (strcmp(round.lost[i], ids[k]) == 0) text_add(out, "  lost %s\n", ids[k]);
}

static void do_fetch_work(side *at, const op *o, text *out) {
    static const char *const red[] = { "red", "blue" };
    const char *worker = PICK(workers, o->b);
    dur_leased_work got[3];
    size_t count = 0;
    dur_work_fetch how = { .lock_ms = 800,
                           .session_owner = worker,
                           .session_lock_ms = 1200,
                           .tags = { .mode = (dur_tag_mode)(o->c % 4), .tags = red, .tag_count = 1 + o->c / 4 % 2 },
                           .max = 1 + o->a % 3,
                           .owner = at->owners && o->d % 4 == 0 ? at->second : NULL,
                           .kind = (dur_fetch_kind)(o->d % 7 < 5 ? 0 : o->d % 7 - 4) };
    int code;
    if (o->a % 2 == 0) { /* the seeds' call */
        got[0].json.data = NULL;
        code = dur_store_fetch_work_item(P, T->arena, &how, got, NULL);
        count = got[0].json.data != NULL;
    } else {
        code = dur_store_fetch_works(P, T->arena, &how, got, &count, NULL);
    }
    if (code == DUR_ELEASE) code = DUR_OK, count = 0;
    text_add(out, "fetch work %s %zu\n", dur_code_name(code), code == DUR_OK ? count : 0);
    for (size_t i = 0; code == DUR_OK && i < count; i++) {
        text_add(out, "  work %s/%llu/%llu attempts %u crashes %u/%u %.*s\n", got[i].ref.instance,
                 (unsigned long long)got[i].ref.execution_id, (unsigned long long)got[i].ref.activity_id,
                 got[i].attempt_count, got[i].crashes_alone, got[i].crashes, (int)got[i].json.size, got[i].json.data);
        if (at->work_count == SIDE_TOKENS) at->work_count--;
        at->works[at->work_count++] = got[i];
    }
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

/* Random content for a turn of `who`; events from its last on. */
static dur_turn_commit a_turn(side *at, const op *o, const held *who, uint64_t execution, uint64_t last) {
    dur_event events[4];
    dur_message_row work[2], messages[2];
    dur_activity_ref cancelled[1];
    kit_turn turn = { .execution = execution };
    uint32_t n = o->c;
    if (n % 11 != 0) events[turn.event_count++] = last == 0 ? ev_started(1) : ev_external(last + 1, "e");
    if (n % 3 == 0) events[turn.event_count++] = ev_set(last + 2, PICK(keys, o->d), PICK(ids, o->b));
    if (n % 5 == 0) events[turn.event_count++] = n % 2 ? ev_clear(last + 3, PICK(keys, n)) : ev_clear_all(last + 3);
    if (n % 7 == 0) events[turn.event_count++] = ev_status(last + 4, n % 2 ? "status" : NULL);
    if (n % 13 == 0 && turn.event_count > 0) events[0].event_id = 1 + n % 3; /* perhaps twice */
    if (n % 2 == 0 && turn.event_count > 0)
        work[turn.work_count++] =
            kit_activity_in(T, who->instance, execution, last + 1, PICK(sessions, n), PICK(tags, o->d));
    if (n % 17 == 0 && turn.event_count > 1) work[turn.work_count++] = kit_activity(T, who->instance, last + 2);
    if (o->d % 4 == 0) messages[turn.message_count++] = kit_raised(T, PICK(ids, o->d / 4), "sent", "x");
    if (o->d % 9 == 0)
        messages[turn.message_count++] = kit_timer(T, who->instance, execution, last + 1, dur_store_now_ms(P) + 500);
    if (o->d % 5 == 0) cancelled[turn.cancelled_count++] = REF(who->instance, execution, last + o->d % 2);
    if (n % 6 == 1)
        turn.meta = (dur_execution_metadata){ .orchestration_name = KIT_NAME, .orchestration_version = "2.0.0" };
    if (last == 0)
        turn.meta = (dur_execution_metadata){ .orchestration_name = KIT_NAME,
                                              .orchestration_version = KIT_VERSION,
                                              .has_pinned_version = o->d % 2 == 0,
                                              .pinned_version = { 1 + o->d % 3, o->d % 5 == 0 ? 1000 : 0, o->d % 8 },
                                              .parent_instance_id = o->d % 6 == 0 ? PICK(ids, o->d / 6) : NULL };
    turn.meta.status = o->b % 12 == 0 ? DUR_STATUS_COMPLETED : o->b % 12 == 1 ? DUR_STATUS_FAILED : DUR_STATUS_NONE;
    if (turn.meta.status != DUR_STATUS_NONE) turn.meta.output = "output";
    if (o->b % 12 < 4 && o->b % 12 > 1) { /* continue as new */
        turn.meta.status = DUR_STATUS_CONTINUED_AS_NEW;
        turn.meta.output = "next";
        messages[0] = kit_next(T, who->instance, "next");
        if (turn.message_count == 0) turn.message_count = 1;
    }
    turn.events = events;
    turn.work = work;
    turn.messages = messages;
    turn.cancelled = cancelled;
    dur_orchestration_item item = { .instance = who->instance, .lock_token = who->token, .execution_id = execution };
    turn.item = &item;
    return kit_make_commit(T, &turn);
}

static bool next_execution(side *at, const held *who) {
    dur_execution_row *rows = NULL;
    size_t count = 0;
    if (dur_store_list_executions(P, T->arena, who->instance, &rows, &count, NULL) != DUR_OK || count == 0)
        return false;
    return rows[count - 1].execution_id == who->execution && rows[count - 1].status == DUR_STATUS_CONTINUED_AS_NEW;
}

void tell_turn(const dur_turn_commit *turn, text *out) {
    text_add(out, "  turn %s fault %d %s lost work %zu", dur_code_name((int)turn->error.code),
             turn->error.code == DUR_ECONFLICT ? 0 : (int)turn->fault, turn->lease_kept ? "kept" : "",
             turn->lost_work_count);
    for (size_t i = 0; i < turn->worker_item_count && turn->error.code == DUR_OK; i++)
        text_add(out, " %s", turn->worker_items[i].locked ? "locked" : "free");
    text_add(out, "\n");
}

static void do_commit(side *at, const op *o, text *out);

static void do_ack(side *at, const op *o, text *out) {
    held *who = some_turn(at, o->a);
    if (who == NULL) {
        do_fetch(at, o, out); /* nothing to do it with yet */
        return;
    }
    bool next = next_execution(at, who);
    dur_turn_commit commit = a_turn(at, o, who, who->execution + next, next ? 0 : who->last);
    commit.instance = NULL;
    commit.store_key = 0;
    text_add(out, "ack %s %s\n", who->instance, dur_code_name(dur_store_ack_orchestration_item(P, &commit, NULL)));
    tell_turn(&commit, out);
    if (commit.error.code == DUR_OK || commit.error.code == DUR_ELEASE) drop_turn(at, who);
}

static void do_commit(side *at, const op *o, text *out) {
    held *who = some_turn(at, o->a);
    if (who == NULL) {
        do_fetch(at, o, out); /* nothing to do it with yet */
        return;
    }
    bool next = next_execution(at, who);
    dur_turn_commit commit = a_turn(at, o, who, who->execution + next, next ? 0 : who->last);
    dur_leased_work *work = some_work(at, o->d);
    dur_worker_claim claim;
    dur_activity_ref timer = REF(who->instance, who->execution, 1 + o->c % 6); /* an event's id: never 0 */
    uint32_t n = o->b;
    commit.owner = who->owner;
    if (n % 2) commit.expected_last = next ? 0 : n % 14 == 13 ? 1 : who->last;
    commit.consume_listed = n % 3 != 0;
    commit.consumed = who->messages;
    commit.consumed_count = commit.consume_listed && who->message_count > 0 ? o->c % (who->message_count + 1) : 0;
    if (commit.metadata.status != DUR_STATUS_NONE)
        commit.consumed_count = commit.consume_listed ? who->message_count : 0;
    commit.keep_lease = who->owner != NULL && n % 4 < 2;
    if (n % 5 == 0 && work != NULL && strcmp(work->ref.instance, who->instance) == 0) {
        claim = (dur_worker_claim){ .ref = work->ref, .lock_token = work->lock_token };
        commit.worker_consumed = &claim;
        commit.worker_consumed_count = 1;
    }
    if (n % 6 == 0) commit.timers_dropped = &timer, commit.timers_dropped_count = 1;
    if (n % 7 == 0 && who->message_count > 0 && commit.consume_listed) {
        commit.seen_id = who->messages[who->message_count - 1];
        commit.seen_now_ms = who->seen_now_ms;
    }
    if (n % 8 == 1) commit.delay_ms = 200;
    commit.needs_parent = o->a % 3 == 0;
    commit.metadata.birth = 1 + n % 2;
    commit.metadata.parent_birth = o->c % 3;
    if (n % 9 == 1) { /* a release */
        dur_turn_commit release = { .lock_token = who->token,
                                    .instance = who->instance,
                                    .consume_listed = true,
                                    .expected_last = DUR_NOT_COMPARED,
                                    .owner = who->owner,
                                    .delay_ms = commit.delay_ms,
                                    .give_back = n % 2,
                                    .seen_id = commit.seen_id,
                                    .seen_now_ms = commit.seen_now_ms };
        commit = release;
    }
    if (n % 10 == 1 && commit.seen_id == 0) commit.set_suspended = true, commit.suspended = n % 20 == 1 ? "why" : NULL;
    char eager[32];
    snprintf(eager, sizeof(eager), "eager-%u-%u", o->c, o->d);
    if (who->owner != NULL && commit.worker_item_count > 0 && n % 3 == 1) {
        commit.worker_items[0].lock_token = dur_arena_strdup(T->arena, eager);
        commit.session_owner = "w0";
        commit.session_lock_ms = 1200;
    }
    int code = DUR_OK;
    if (who->lane && at->lane != NULL) {
        dur_round round = { .turns = &commit, .turn_count = 1 };
        code = dur_store_lane_round(at->lane, T->arena, &round, NULL);
        dur_round more = { .turns = NULL }; /* what there is room for now comes with either of the two */
        int after = dur_store_lane_round(at->lane, T->arena, &more, NULL);
        if (after != DUR_OK) more.held_count = more.lost_count = 0;
        text_add(out, "  held %zu lost %zu\n", round.held_count + more.held_count, round.lost_count + more.lost_count);
    } else {
        code = dur_store_commit_turns(P, &commit, 1, NULL);
    }
    text_add(out, "commit %s %s\n", who->instance, dur_code_name(code));
    tell_turn(&commit, out);
    if (commit.error.code == DUR_ELEASE && commit.fault == DUR_TURN_LEASE_LOST)
        drop_turn(at, who);
    else if (commit.error.code == DUR_OK && !commit.lease_kept)
        drop_turn(at, who);
    else if (commit.error.code == DUR_OK) {
        dur_event_row *rows = NULL;
        size_t count = 0;
        who->execution += next;
        dur_store_read(P, T->arena, who->instance, who->execution, &rows, &count, NULL);
        who->last = count > 0 ? rows[count - 1].event_id : 0;
        who->message_count = 0;
    }
}

static void do_terminate(side *at, const op *o, text *out) {
    kit *t = T;
    held who = { .instance = PICK(ids, o->a), .execution = 1 };
    kit_advance(T, 350); /* beyond every delay: whether it outlives this is the store's own */
    dur_execution_row *rows = NULL;
    dur_event_row *events = NULL;
    size_t count = 0;
    if (dur_store_list_executions(P, T->arena, who.instance, &rows, &count, NULL) == DUR_OK && count > 0)
        who.execution = rows[count - 1].execution_id;
    dur_store_read(P, T->arena, who.instance, who.execution, &events, &count, NULL);
    dur_orchestration_item item = { .instance = who.instance, .execution_id = who.execution };
    dur_event end = ev_failed(count > 0 ? events[count - 1].event_id + 1 : 1, "terminated");
    dur_turn_commit commit = COMMIT_OF(&item, .events = &end, .event_count = 1,
                                       .meta = { .status = DUR_STATUS_FAILED, .output = "terminated" });
    commit.take_over = true;
    commit.remove_work = true;
    tell(out, "terminate", dur_store_commit_turns(P, &commit, 1, NULL));
    tell_turn(&commit, out);
}

static void do_abandon(side *at, const op *o, text *out) {
    held *who = some_turn(at, o->a);
    if (who == NULL) {
        do_fetch(at, o, out); /* nothing to do it with yet */
        return;
    }
    text_add(
        out, "abandon %s %s\n", who->instance,
        dur_code_name(dur_store_abandon_orchestration_item(P, who->token, o->b % 3 == 0 ? 300 : 0, o->c % 2, NULL)));
    drop_turn(at, who);
}

static void do_renew(side *at, const op *o, text *out) {
    held *who = some_turn(at, o->a);
    if (who == NULL) {
        do_fetch(at, o, out); /* nothing to do it with yet */
        return;
    }
    tell(out, "renew", dur_store_renew_orchestration_item_lock(P, who->token, 1500, NULL));
}

static void do_wrong_token(side *at, const op *o, text *out) {
    held nobody = { .instance = PICK(ids, o->a), .token = "no-such-token", .execution = 1, .last = 1 };
    dur_turn_commit commit = a_turn(at, o, &nobody, 1, 1);
    tell(out, "ack", dur_store_ack_orchestration_item(P, &commit, NULL));
    tell(out, "abandon", dur_store_abandon_orchestration_item(P, "no-such-token", 0, false, NULL));
    tell(out, "renew work", dur_store_renew_work_item_lock(P, "no-such-token", 100, NULL));
    tell(out, "ack work", dur_store_ack_work_item(P, "no-such-token", NULL, NULL));
    dur_leased_work *work = some_work(at, o->b);
    held *who = some_turn(at, o->c); /* the token of a turn is no token of work, and the other way round */
    if (who != NULL) tell(out, "ack work with turn", dur_store_ack_work_item(P, who->token, NULL, NULL));
    if (work != NULL)
        tell(out, "abandon turn with work", dur_store_abandon_orchestration_item(P, work->lock_token, 0, false, NULL));
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

static void do_ack_work(side *at, const op *o, text *out) {
    dur_leased_work *work = some_work(at, o->a);
    if (work == NULL) {
        do_fetch_work(at, o, out);
        return;
    }
    dur_message_row done = kit_finished(T, work->ref.instance, work->ref.execution_id, work->ref.activity_id, "r");
    tell(out, "ack work", dur_store_ack_work_item(P, work->lock_token, o->b % 3 ? &done : NULL, NULL));
    if (o->c % 4) drop_work(at, work); /* else its token is used again */
}

static void do_ack_works(side *at, const op *o, text *out) {
    dur_work_ack acks[3];
    dur_message_row done[3];
    size_t count = at->work_count < 2 ? at->work_count : 2;
    for (size_t i = 0; i < count; i++) {
        dur_leased_work work = at->works[(o->a + i) % at->work_count];
        done[i] = kit_finished(T, work.ref.instance, work.ref.execution_id, work.ref.activity_id, "r");
        acks[i] = (dur_work_ack){ .lock_token = work.lock_token, .ref = work.ref, .completion = &done[i] };
    }
    if (o->b % 2) acks[count++] = (dur_work_ack){ .lock_token = "no-such-token" };
    tell(out, "ack works", dur_store_ack_works(P, acks, count, NULL));
    for (size_t i = 0; i < count; i++)
        text_add(out, "  %s\n", dur_code_name((int)acks[i].error.code));
}

static void do_bury_work(side *at, const op *o, text *out) {
    dur_leased_work *work = some_work(at, o->a);
    if (work == NULL) return;
    tell(out, "bury work", dur_store_dead_letter_work(P, work->lock_token, "on purpose", NULL));
    drop_work(at, work);
}

static void do_abandon_work(side *at, const op *o, text *out) {
    dur_leased_work *work = some_work(at, o->a);
    if (work == NULL) {
        do_fetch_work(at, o, out);
        return;
    }
    dur_worker_claim claim = { .ref = work->ref, .lock_token = work->lock_token };
    if (o->b % 4 == 0)
        tell(out, "return work", dur_store_return_works(P, &claim, 1, NULL));
    else
        tell(out, "abandon work",
             dur_store_abandon_work_item(P, work->lock_token, o->b % 4 == 1 ? 300 : 0, o->c % 2, NULL));
    drop_work(at, work);
}

static void do_check_work(side *at, const op *o, text *out) {
    dur_leased_work *work = some_work(at, o->a);
    if (work == NULL) {
        do_fetch_work(at, o, out);
        return;
    }
    dur_worker_claim claim = { .ref = work->ref, .lock_token = work->lock_token };
    bool lost = false;
    int code = dur_store_check_works(P, &claim, 1, o->b % 3 ? 900 : 0, &lost, NULL);
    text_add(out, "check work %s %s\n", dur_code_name(code), lost ? "lost" : "held");
    if (o->c % 2) tell(out, "renew work", dur_store_renew_work_item_lock(P, work->lock_token, 900, NULL));
}

static void do_sessions(side *at, const op *o, text *out) {
    static const char *const owners[] = { "w0", "w1" };
    uint64_t count = 0;
    int code = o->a % 2
                   ? dur_store_renew_session_lock(P, owners, 1 + o->b % 2, 1200, o->c % 2 ? 400 : 100000, &count, NULL)
                   : dur_store_cleanup_orphaned_sessions(P, 1000, &count, NULL);
    text_add(out, "sessions %s %llu\n", dur_code_name(code), (unsigned long long)count);
}

/* ---- time and administration ------------------------------------------------------------------------------------- */

static void do_advance(side *at, const op *o, text *out) {
    static const uint64_t steps[] = { 10, 100, 300, 700, 1100, 2500 };
    kit_advance(T, PICK(steps, o->a));
    text_add(out, "now %llu\n", (unsigned long long)dur_store_now_ms(P));
}

static void tell_beat(side *at, const char *owner, dur_owner_report *report, text *out) {
    int code = dur_store_owner_beat(P, owner, report, NULL);
    if (!report->still_ours) report->peers = report->taken_over = report->freed = 0; /* not its business any more */
    text_add(out, "beat %s %s %s peers %u taken %u freed %u\n", owner, dur_code_name(code),
             report->still_ours ? "ours" : "lost", report->peers, report->taken_over, report->freed);
}

/* The first owner beats always and lives; the second sometimes, and may find itself taken for dead. */
static void do_beat(side *at, const op *o, text *out) {
    dur_owner_report report = { .still_ours = false };
    if (!at->owners) return;
    tell_beat(at, "o1", &report, out);
    if (o->a % 3 != 0) return;
    tell_beat(at, at->second, &report, out);
    if (report.still_ours) return;
    at->second = dur_arena_format(T->arena, "o2-%u-%u", o->b, o->c); /* a new id, as a process would take */
    dur_owner_options again = { .owner = at->second, .timeout_ms = 2005 };
    tell(out, "register", dur_store_owner_register(P, &again, NULL));
}

/* The second owner stops cleanly and comes back under a new id. */
static void do_leave(side *at, const op *o, text *out) {
    dur_owner_report report = { .still_ours = false };
    if (!at->owners) return;
    tell_beat(at, "o1", &report, out); /* whether registering looks for dead peers is the store's own */
    tell(out, "release", dur_store_owner_release(P, at->second, NULL));
    at->second = dur_arena_format(T->arena, "o2-%u-%u-%u", o->b, o->c, o->d);
    dur_owner_options again = { .owner = at->second, .timeout_ms = 2005 };
    tell(out, "register", dur_store_owner_register(P, &again, NULL));
}

static void do_list(side *at, const op *o, text *out) {
    dur_instance_query query = { .status = (dur_status)(o->a % 5),
                                 .suspended_only = o->b % 4 == 0,
                                 .name = o->b % 3 == 0 ? KIT_NAME : NULL,
                                 .id_prefix = o->c % 3 == 0 ? PICK(ids, o->c) : NULL,
                                 .parent = o->c % 5 == 0 ? PICK(ids, o->d) : NULL,
                                 .roots_only = o->d % 4 == 0,
                                 .after = o->d % 5 == 0 ? PICK(ids, o->b) : NULL,
                                 .limit = o->d % 3 };
    dur_instance_row *rows = NULL;
    size_t count = 0;
    tell(out, "list", dur_store_list_instances(P, T->arena, &query, &rows, &count, NULL));
    for (size_t i = 0; i < count; i++)
        text_add(out, "  found %s %s execution %llu owner %s suspended %s\n", rows[i].instance_id,
                 dur_status_name(rows[i].status), (unsigned long long)rows[i].current_execution_id,
                 rows[i].owner != NULL ? rows[i].owner : "-", rows[i].suspended != NULL ? rows[i].suspended : "-");
}

static void do_delete(side *at, const op *o, text *out) {
    const char *const some[] = { PICK(ids, o->a), PICK(ids, o->a + 1) };
    dur_delete_result result = { 0, 0, 0, 0 };
    dur_bulk_filter filter = { .completed_before_ms = o->c % 2 ? dur_store_now_ms(P) - 100 : 0, .limit = o->d % 3 };
    int code = o->b % 4 == 0 ? dur_store_delete_instances_bulk(P, &filter, &result, NULL)
                             : dur_store_delete_instances(P, some, 1 + o->c % 2, o->b % 4 == 1, &result, NULL);
    if (o->b % 4 == 0 && filter.limit != 0) { /* which ones a limit takes is the store's choice */
        while (code == DUR_OK && result.instances > 0)
            code = dur_store_delete_instances_bulk(P, &filter, &result, NULL);
    }
    text_add(out, "delete %s %llu %llu %llu %llu\n", dur_code_name(code), (unsigned long long)result.instances,
             (unsigned long long)result.executions, (unsigned long long)result.events,
             (unsigned long long)result.queue_messages);
}

static void do_prune(side *at, const op *o, text *out) {
    dur_prune_result result = { 0, 0, 0 };
    dur_prune_options options = { .has_keep_last = o->b % 2,
                                  .keep_last = o->c % 3,
                                  .completed_before_ms = o->d % 2 ? dur_store_now_ms(P) - 100 : 0 };
    dur_bulk_filter filter = { .instance_ids = NULL };
    int code = o->d % 3 == 0 ? dur_store_prune_executions_bulk(P, &filter, &options, &result, NULL)
                             : dur_store_prune_executions(P, PICK(ids, o->a), &options, &result, NULL);
    text_add(out, "prune %s %llu %llu %llu\n", dur_code_name(code), (unsigned long long)result.instances_processed,
             (unsigned long long)result.executions_deleted, (unsigned long long)result.events_deleted);
}

static void do_suspend(side *at, const op *o, text *out) {
    tell(out, "suspend", dur_store_set_suspended(P, PICK(ids, o->a), o->b % 3 ? NULL : "why", NULL));
}

static void do_letters(side *at, const op *o, text *out) {
    held *who = some_turn(at, o->a);
    /* What is left of the delay of an instance that is no more, its start being a dead letter, is the store's own. */
    if (who == NULL || who->message_count == 0 || who->last == 0) return;
    tell(out, "dead letter", dur_store_dead_letter_messages(P, who->instance, who->messages, 1, "on purpose", NULL));
}

static void do_forget_letters(side *at, const op *o, text *out) {
    dur_dead_letter *rows = NULL;
    size_t count = 0;
    if (dur_store_list_dead_letters(P, T->arena, 0, 1 + o->a % 3, &rows, &count, NULL) != DUR_OK || count == 0) return;
    tell(out, "forget", dur_store_delete_dead_letters(P, &rows[o->b % count].id, 1, NULL));
}

static void do_append(side *at, const op *o, text *out) {
    const char *id = PICK(ids, o->a);
    dur_instance_row row;
    if (dur_store_get_instance(P, T->arena, id, &row, NULL) != DUR_OK || row.orchestration_name == NULL) return;
    dur_event_row event = kit_row(T, id, row.current_execution_id, ev_external(1 + o->c % 5, "appended"));
    tell(out, "append", dur_store_append(P, id, row.current_execution_id, &event, 1, NULL));
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint32_t weight;
    void (*run)(side *at, const op *o, text *out);
} table[] = {
    [OP_ANY_TURN] = { "any turn", 0, do_any_turn },
    { "start", 16, do_start },
    { "put a message", 14, do_put },
    { "send to existing", 8, do_send },
    { "put work", 6, do_put_work },
    { "fetch", 16, do_fetch },
    { "round", 8, do_round },
    { "fetch work", 12, do_fetch_work },
    { "ack", 20, do_ack },
    { "commit", 22, do_commit },
    { "terminate", 2, do_terminate },
    { "abandon", 6, do_abandon },
    { "renew", 3, do_renew },
    { "wrong token", 2, do_wrong_token },
    { "ack work", 9, do_ack_work },
    { "ack works", 3, do_ack_works },
    { "bury work", 1, do_bury_work },
    { "abandon work", 6, do_abandon_work },
    { "check work", 4, do_check_work },
    { "sessions", 4, do_sessions },
    { "advance", 14, do_advance },
    { "beat", 6, do_beat },
    { "leave", 2, do_leave },
    { "list", 3, do_list },
    { "delete", 4, do_delete },
    { "prune", 6, do_prune },
    { "suspend", 3, do_suspend },
    { "dead letter", 2, do_letters },
    { "forget letters", 1, do_forget_letters },
    { "append", 1, do_append },
};

size_t op_kinds(void) {
    return COUNT(table);
}
uint32_t op_weight(uint32_t kind) {
    return table[kind].weight;
}

void op_words(const op *what, text *out) {
    text_add(out, "%s (%u %u %u %u)", table[what->kind].name, what->a, what->b, what->c, what->d);
    if (what->kind == OP_ANY_TURN) any_turn_words(what, out);
}

void side_step(side *at, const op *what, text *out) {
    if (setjmp(at->t.out) == 0) {
        table[what->kind].run(at, what, out);
        side_look(at, out);
    } else {
        text_add(out, "broke off: %s\n", at->t.message);
    }
}
