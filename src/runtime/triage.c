/*
 * triage.c: what to do with an instance that was just acquired.
 *
 *   unreadable history            wait a second, count it; after max_attempts it ends as poison.  Of a long history
 *                                 only the ends are read here; replay meets what is between them, with the same
 *                                 consequence
 *   ended                         nothing runs any more: messages are consumed, queue messages become dead letters
 *   continued as new              with its next start at hand: the next execution; otherwise everything waits (C27)
 *   history                       replay, then go on
 *   no history, a start at hand   start
 *   neither                       messages for an instance that has not begun: they wait for its start, unless one of
 *                                 them asks it to end: it ends before it has begun.  Calls of its id are refused
 * Before user code runs: attempts (poison), the engine's version range, and whether the handler is registered here.
 */
#include "runtime/runtime_internal.h"

#include "core/open_work.h"
#include "core/semver.h"
#include <stdlib.h>

typedef struct triage {
    dur__loop *loop;
    dur__inst *inst;
    const dur_orchestration_item *item;
    dur_arena *arena;
    dur__letter **letters; /* by (due, id); taken ones are NULL */
    size_t letter_count;
    dur__letter *start;
    dur_event first;
    dur_event_kind terminal; /* DUR_EVENT_UNKNOWN: it has not ended */
    uint32_t attempts;       /* this one included; those that ended with a crash are judged apart */
    bool recovered;          /* what was local under an earlier lease has been looked for */
} triage;

/* ---- messages ---- */

dur__dead dur__dead_letters(dur__inst *inst, const uint64_t *ids, size_t count, const char *reason) {
    dur_provider *store = inst->loop->runtime->store;
    dur_error err = DUR_ERROR_INIT;
    dur__log(DUR_LOG_WARN, DUR__LOG_RUNTIME,
             DUR__FIELDS(DUR__TEXT("instance_id", inst->id), DUR__NUMBER("messages", count)),
             "%zu message(s) for \"%s\" are dead letters: %s", count, inst->id, reason);
    if (dur_store_dead_letter_messages(store, inst->id, ids, count, reason, &err) == DUR_OK)
        return dur_store_has(store, "dead_letter_messages") ? DUR__DEAD_KEPT : DUR__DEAD_TO_CONSUME;
    dur__log(DUR_LOG_WARN, DUR__LOG_PROVIDER, DUR__FIELDS(DUR__TEXT("instance_id", inst->id)),
             "dead letters could not be kept: %s", err.message);
    return DUR__DEAD_FAILED;
}

/* Nobody reads it; whoever commits next consumes it with what else is drained. */
static void drain_unread(dur__inst *inst, uint64_t id) {
    dur__letter *letter = dur__pool_letter(inst->loop);
    letter->message_id = id;
    letter->arrival.item = (dur_work_item){ .kind = DUR_WORK_QUEUE_MESSAGE, .instance = inst->id };
    dur__list_push(&inst->drained, &letter->arrival.link);
}

dur__letter *dur__letter_from_message(dur__inst *inst, const dur_fetched_message *message) {
    dur__loop *loop = inst->loop;
    dur__letter *letter = dur__pool_letter(loop);
    dur_error err = DUR_ERROR_INIT;
    int code = dur_work_from_json(&letter->arrival.item, letter->arena, message->json, &err);
    if (code == DUR_OK) {
        letter->message_id = message->id;
        letter->arrival.order_ms = message->due_ms;
        letter->arrival.order_id = message->id;
        return letter;
    }
    dur__pool_letter_back(loop, letter);
    if (code != DUR_EUNSUPPORTED) {
        if (dur__dead_letters(inst, &message->id, 1, err.message) == DUR__DEAD_TO_CONSUME)
            drain_unread(inst, message->id);
    } else if (dur__backoff_say(loop->runtime, err.message)) { /* it comes again and again */
        dur__log(DUR_LOG_WARN, DUR__LOG_RUNTIME,
                 DUR__FIELDS(DUR__TEXT("instance_id", inst->id), DUR__NUMBER("message_id", message->id)),
                 "a message is of a kind that this version does not know; it is left for a newer node: %s",
                 err.message);
    }
    return NULL;
}

static void read_messages(triage *t) {
    const dur_orchestration_item *item = t->item;
    t->letters = dur_arena_zalloc(t->arena, (item->message_count + 1) * sizeof(dur__letter *));
    uint32_t attempts = item->acquisitions;
    for (size_t i = 0; i < item->message_count; i++) {
        dur__letter *letter = dur__letter_from_message(t->inst, &item->messages[i]);
        if (letter == NULL) continue;
        dur_work_kind kind = letter->arrival.item.kind;
        t->letters[t->letter_count++] = letter;
        /* A queue message may lie through any number of acquisitions until a dequeue waits for it: it says nothing. */
        if (kind != DUR_WORK_QUEUE_MESSAGE && item->messages[i].attempt_count > attempts)
            attempts = item->messages[i].attempt_count;
    }
    t->attempts = attempts > item->crashes ? attempts - item->crashes : 0;
}

/* The start that belongs to this state: a continue-as-new for an execution that ended so, else the start that came
   first: whoever asked for that was told that the id is taken by it, though it was due later than others. */
static void choose_start(triage *t, dur_work_kind kind) {
    size_t first = t->letter_count;
    for (size_t i = 0; i < t->letter_count; i++) {
        if (t->letters[i] == NULL || t->letters[i]->arrival.item.kind != kind) continue;
        if (first == t->letter_count || t->letters[i]->message_id < t->letters[first]->message_id) first = i;
    }
    if (first == t->letter_count) return;
    t->start = t->letters[first];
    t->letters[first] = NULL;
}

/* ---- history ---- */

static bool read_ends(triage *t, dur_error *err) {
    const dur_orchestration_item *item = t->item;
    t->terminal = DUR_EVENT_UNKNOWN;
    if (item->history_count == 0) return true;
    if (dur_event_from_json(&t->first, t->arena, item->history[0].json, err) != DUR_OK) return false;
    /* Ours ends with its terminal event; the original writes more behind it. */
    size_t from = t->first.trace != 0 ? item->history_count - 1 : 0;
    dur_arena *arena = dur__pool_arena(t->loop);
    bool fine = true;
    for (size_t i = from; fine && i < item->history_count && t->terminal == DUR_EVENT_UNKNOWN; i++) {
        dur_event event;
        dur_arena_reset(arena);
        fine = dur_event_from_json(&event, arena, item->history[i].json, err) == DUR_OK;
        if (fine && dur_event_kind_role(event.kind) == DUR_EVENT_ROLE_TERMINAL) t->terminal = event.kind;
    }
    dur__pool_arena_back(t->loop, arena);
    return fine;
}

static void remember_parent(dur__inst *inst, dur__parent parent) {
    dur__inst_forget_parent(inst);
    inst->parent = parent;
    inst->parent.instance = dur__xstrdup(parent.instance);
}

static void identity_from_history(triage *t) {
    if (t->item->history_count == 0) return;
    remember_parent(t->inst, DUR__PARENT_OF(&t->first));
    t->inst->birth = t->first.birth;
}

/* ---- where nothing runs ---- */

static void letters_back(triage *t) {
    for (size_t i = 0; i < t->letter_count; i++) {
        if (t->letters[i] != NULL) dur__pool_letter_back(t->loop, t->letters[i]);
        t->letters[i] = NULL;
    }
    if (t->start != NULL) dur__pool_letter_back(t->loop, t->start);
    t->start = NULL;
}

/* ---- what was local ---- */

/* Before the letters are given away. */
static void recover_open(triage *t, dur__open_work *open) {
    t->recovered = true;
    for (size_t i = 0; i < t->letter_count; i++) {
        const dur_work_item *item = t->letters[i] != NULL ? &t->letters[i]->arrival.item : NULL;
        bool ends =
            item != NULL && (item->kind == DUR_WORK_ACTIVITY_COMPLETED || item->kind == DUR_WORK_ACTIVITY_FAILED);
        if (ends && item->execution_id == t->inst->execution_id) dur__open_work_known(open, item->id);
    }
    dur__local_recover(t->inst, open, t->item, &t->first);
    dur__map_free(&open->at);
}

/* Where no handler is replayed: whoever gives the lease back writes the rows all the same. */
static void recover(triage *t) {
    const dur_orchestration_item *item = t->item;
    if (t->recovered || !item->works_known || item->history_count == 0 || t->terminal != DUR_EVENT_UNKNOWN) return;
    dur__open_work open = { 0 };
    dur_arena *arena = dur__pool_arena(t->loop);
    for (size_t i = 0; i < item->history_count; i++) {
        dur_event event;
        if (i % 64 == 0) dur_arena_reset(arena);
        if (dur_event_from_json(&event, arena, item->history[i].json, NULL) == DUR_OK)
            dur__open_work_see(&open, i, &event);
    }
    dur__pool_arena_back(t->loop, arena);
    recover_open(t, &open);
}

static void wait_here(triage *t, uint64_t delay_ms, bool seen) {
    recover(t);
    letters_back(t);
    dur__release(t->inst, delay_ms, true, seen);
}

static void wait_counted(triage *t, uint64_t delay_ms) {
    letters_back(t);
    dur__release_counted(t->inst, delay_ms);
}

#define ENDED "the instance has ended"

static void bury_dead(dur_turn_commit *commit, uint64_t *consumed, const uint64_t *ids, size_t count, dur__dead what) {
    if (what == DUR__DEAD_TO_CONSUME) {
        memcpy(consumed + commit->consumed_count, ids, count * sizeof(*ids));
        commit->consumed_count += count;
    } else if (what == DUR__DEAD_FAILED) { /* they are still there: look again */
        commit->seen_id = commit->seen_now_ms = 0;
        commit->delay_ms = 1000;
    }
}

static void bury(triage *t) {
    uint64_t *dead_ids = dur_arena_alloc(t->arena, (t->letter_count + 1) * sizeof(uint64_t));
    size_t dead_count = 0, message_count = 0;
    identity_from_history(t);
    dur_turn_commit *commit = dur__commit_begin(t->inst);
    uint64_t *ids = dur_arena_alloc(t->inst->commit_arena, (t->item->message_count + 1) * sizeof(uint64_t));
    DUR__LIST_EACH(&t->inst->drained, at) {
        ids[commit->consumed_count++] = DUR__CONTAINER(at, dur__letter, arrival.link)->message_id;
    }
    dur_message_row *answers = dur_arena_zalloc(t->inst->commit_arena, (t->letter_count + 1) * sizeof(*answers));
    for (size_t i = 0; i < t->letter_count; i++) {
        const dur_work_item *item = &t->letters[i]->arrival.item;
        if (item->kind == DUR_WORK_QUEUE_MESSAGE) {
            dead_ids[dead_count++] = t->letters[i]->message_id;
            continue;
        }
        ids[commit->consumed_count++] = t->letters[i]->message_id;
        if (!dur__start_refused(t->inst, item)) continue;
        dur_work_item answer;
        dur__ending_refuse_start(&answer, t->inst->commit_arena, item);
        if (dur_message_row_from_work(&answers[message_count], t->inst->commit_arena, &answer, NULL) == DUR_OK)
            message_count++;
    }
    commit->consumed = ids;
    commit->orchestrator_items = answers;
    commit->orchestrator_item_count = message_count;
    if (!t->item->more_messages) {
        commit->seen_id = t->loop->seen_id;
        commit->seen_now_ms = t->loop->seen_now_ms;
    }
    if (dead_count > 0)
        bury_dead(commit, ids, dead_ids, dead_count, dur__dead_letters(t->inst, dead_ids, dead_count, ENDED));
    letters_back(t);
    dur__loop_queue_commit(t->inst);
}

/* ---- poison ---- */

static void log_not_ended(const dur__inst *inst, const dur_error *why) {
    dur__log(DUR_LOG_WARN, DUR__LOG_ORCHESTRATION, DUR__FIELDS(DUR__TEXT("instance_id", inst->id)),
             "an instance that must end could not be ended yet: %s", why->message);
}

static void end_as(triage *t, const dur_failure *failure, bool corrupted) {
    dur_error err = DUR_ERROR_INIT;
    for (size_t i = 0; i < t->letter_count; i++) { /* calls of others are answered by who buries it */
        dur__letter *letter = t->letters[i];
        if (letter == NULL || letter->arrival.item.kind == DUR_WORK_QUEUE_MESSAGE) continue;
        if (letter->arrival.item.kind == DUR_WORK_START_ORCHESTRATION) continue;
        dur__list_push(&t->inst->drained, &letter->arrival.link);
        t->letters[i] = NULL;
    }
    dur__ending ending = { .failure = failure, .corrupted = corrupted, .item = t->item };
    if (t->start != NULL) {
        ending.start = &t->start->arrival.item;
        remember_parent(t->inst, DUR__PARENT_OF(ending.start)); /* an orphan takes its own start along, by that */
        dur__list_push(&t->inst->drained, &t->start->arrival.link);
        t->start = NULL;
    }
    if (dur__ending_build(t->inst, &ending, &err) == DUR_OK) {
        bool asked = failure->category == DUR_FAILURE_APPLICATION; /* it was cancelled */
        if (!asked) DUR__COUNT(t->loop->runtime, orchestration_poison);
        DUR__COUNT(t->loop->runtime, orchestration_failures);
        dur__log(asked ? DUR_LOG_INFO : DUR_LOG_ERROR, DUR__LOG_ORCHESTRATION,
                 DUR__FIELDS(DUR__TEXT("instance_id", t->inst->id)), "%s", t->inst->commit->metadata.output);
        letters_back(t);
        dur__loop_queue_commit(t->inst);
    } else {
        log_not_ended(t->inst, &err);
        wait_counted(t, 1000);
    }
}

static bool is_poison(const triage *t) {
    uint32_t max = t->loop->runtime->options.max_attempts;
    return t->item->crashes_alone >= max || t->attempts > max;
}

static void end_as_poison(triage *t) {
    dur_runtime *runtime = t->loop->runtime;
    dur_error err = DUR_ERROR_INIT;
    uint32_t max = runtime->options.max_attempts;
    bool crashed = t->item->crashes_alone >= max; /* then it is not run once more, so that is how often it ran */
    uint32_t count = crashed ? max : t->attempts - 1;
    if (crashed && dur_store_blame(runtime->store, t->inst->token, &err) != DUR_OK) { /* before its end is recorded */
        DUR__COUNT(runtime, provider_errors);
        log_not_ended(t->inst, &err);
        wait_here(t, 1000, false);
        return;
    }
    dur_failure failure = { .category = DUR_FAILURE_POISON,
                            .poison = DUR_POISON_ORCHESTRATION,
                            .attempt_count = count,
                            .max_attempts = max,
                            .instance = t->inst->id,
                            .execution_id = t->inst->execution_id,
                            .message = dur_arena_format(t->arena,
                                                        crashed ? "ran %u times and the process died each time"
                                                                : "was acquired %u times and never committed",
                                                        (unsigned)count) };
    end_as(t, &failure, false);
}

/* Ended as poison before: the last row is our terminal event. */
static bool corrupted_and_ended(triage *t) {
    dur_event_row *rows = NULL;
    size_t count = 0;
    dur_event event;
    return dur_store_read(t->loop->runtime->store, t->arena, t->inst->id, t->inst->execution_id, &rows, &count, NULL) ==
               DUR_OK &&
           count > 0 && dur_event_from_json(&event, t->arena, rows[count - 1].json, NULL) == DUR_OK &&
           dur_event_kind_role(event.kind) == DUR_EVENT_ROLE_TERMINAL;
}

static void handle_corrupted(triage *t, const char *why) {
    if (corrupted_and_ended(t)) {
        bury(t);
        return;
    }
    uint32_t max = t->loop->runtime->options.max_attempts;
    if (t->attempts <= max) {
        dur__log(DUR_LOG_WARN, DUR__LOG_ORCHESTRATION,
                 DUR__FIELDS(DUR__TEXT("instance_id", t->inst->id), DUR__NUMBER("attempt", t->attempts)),
                 "the history cannot be read: %s", why);
        wait_counted(t, 1000);
        return;
    }
    dur_failure failure = { .category = DUR_FAILURE_POISON,
                            .poison = DUR_POISON_FAILED_DESERIALIZATION,
                            .attempt_count = t->attempts,
                            .max_attempts = max,
                            .instance = t->inst->id,
                            .execution_id = t->inst->execution_id,
                            .error = why,
                            .message = why };
    end_as(t, &failure, true);
}

/* ---- handlers that are not here ---- */

/* A request that no handler will hear counts all the same. */
static const dur_work_item *cancel_of(const triage *t) {
    dur__parent call = t->start != NULL ? DUR__PARENT_OF(&t->start->arrival.item) : DUR__PARENT_OF(&t->first);
    for (size_t i = 0; i < t->letter_count; i++) {
        const dur_work_item *item = t->letters[i] != NULL ? &t->letters[i]->arrival.item : NULL;
        if (item != NULL && item->kind == DUR_WORK_CANCEL_INSTANCE && item->cancel_seq == 0 &&
            dur__cancel_is_for(item, &call))
            return item;
    }
    return NULL;
}

static void handle_unregistered(triage *t, const char *name, const char *version) {
    dur_runtime *runtime = t->loop->runtime;
    uint64_t delay = dur__backoff_unregistered(runtime, "orchestration", name, version);
    uint32_t max = runtime->options.unregistered_attempts_max;
    if (max == 0 || t->attempts < max) {
        if (max == 0)
            wait_here(t, delay, false);
        else
            wait_counted(t, delay);
        return;
    }
    const dur_work_item *cancel = cancel_of(t);
    dur_failure failure = { .category = DUR_FAILURE_CONFIGURATION,
                            .resource = name,
                            .missing = "handler",
                            .message =
                                dur_arena_format(t->arena, "orchestration \"%s\"%s%s is not registered", name,
                                                 version != NULL ? " version " : "", version != NULL ? version : "") };
    if (cancel != NULL) failure = dur__cancelled_by(cancel);
    end_as(t, &failure, false);
}

/* The id is taken by a start that is not due: whoever has called it meanwhile is told so. */
static void refuse_calls(triage *t) {
    dur__link calls;
    dur__list_init(&calls);
    for (size_t i = 0; i < t->letter_count; i++) {
        if (t->letters[i] == NULL || t->letters[i]->arrival.item.kind != DUR_WORK_START_ORCHESTRATION) continue;
        dur__list_push(&calls, &t->letters[i]->arrival.link);
        t->letters[i] = NULL;
    }
    letters_back(t);
    dur__release_refusing(t->inst, &calls);
}

/*
 * The start is not due.  The lease is ours, so nobody else consumes the start or begins; somebody who has asked the
 * instance to end need not wait for the start, because what has not begun has nothing to clean up.
 */
static void wait_for_start(triage *t) {
    dur_provider *store = t->loop->runtime->store;
    dur_instance_row row = { .instance_id = NULL };
    dur_error err = DUR_ERROR_INIT;
    bool asked = false;
    for (size_t i = 0; i < t->letter_count; i++)
        asked |= t->letters[i] != NULL && t->letters[i]->arrival.item.kind == DUR_WORK_CANCEL_INSTANCE;
    int code = asked && t->item->history_count == 0 && dur_store_has(store, "get_instance")
                   ? dur_store_get_instance(store, t->arena, t->inst->id, &row, &err)
                   : DUR_ENOTFOUND;
    if (code != DUR_OK && code != DUR_ENOTFOUND) {
        log_not_ended(t->inst, &err);
        wait_here(t, 1000, false);
        return;
    }
    if (row.start_pending && row.pending_start.size > 0) {
        dur_fetched_message start = { .id = row.pending_start_id, .json = row.pending_start };
        t->start = dur__letter_from_message(t->inst, &start);
    }
    const dur_work_item *cancel = t->start != NULL ? cancel_of(t) : NULL;
    if (cancel == NULL) {
        if (t->start != NULL) dur__pool_letter_back(t->loop, t->start);
        t->start = NULL;
        refuse_calls(t);
        return;
    }
    dur_failure failure = dur__cancelled_by(cancel);
    end_as(t, &failure, false);
}

static bool version_fits(triage *t) {
    dur_semver version;
    if (t->item->history_count == 0 || t->first.duroxide_version == NULL) return true;
    if (!dur__semver_parse_lenient(t->first.duroxide_version, &version)) return true;
    return dur__semver_in(&t->loop->runtime->versions, version);
}

/* ---- running ---- */

static void offer_letters(triage *t) {
    for (size_t i = 0; i < t->letter_count; i++) {
        if (t->letters[i] != NULL) dur__inst_receive(t->inst, t->letters[i]);
        t->letters[i] = NULL;
    }
    /* inst_receive has put them into the inbox: the handler is not live yet. */
    for (dur__link *link; (link = dur__list_pop(&t->inst->inbox)) != NULL;)
        dur__exec_offer(t->inst->exec, DUR__CONTAINER(link, dur__arrival, link));
    dur__local_offer(t->inst);
}

static int begin(triage *t, dur_error *err) {
    dur__inst *inst = t->inst;
    const dur_work_item *start = &t->start->arrival.item;
    remember_parent(inst, DUR__PARENT_OF(start));
    inst->birth = start->birth;
    if (start->kind == DUR_WORK_START_ORCHESTRATION && start->birth == 0)
        inst->birth = dur__birth_new(t->loop->runtime->world);
    inst->first_turn = true;
    dur__exec_begin how = { .input = start->input,
                            .parent = DUR__PARENT_OF(start),
                            .birth = inst->birth,
                            .carried = start->carry_forward_events,
                            .carried_count = start->carry_forward_count,
                            .initial_custom_status = start->initial_custom_status };
    uint64_t begin_us = dur__monotonic_us();
    dur__user_enter(inst);
    int code = dur__exec_start(inst->exec, &how, t->loop->now_ms, err);
    dur__user_leave(inst);
    dur__inst_ran(inst, begin_us);
    dur__list_push(&inst->drained, &t->start->arrival.link);
    t->start = NULL;
    return code;
}

static int replay_all(triage *t, dur_arena *arena, dur__open_work *open, dur_error *err) {
    int code = DUR_OK;
    for (size_t i = 0; code == DUR_OK && i < t->item->history_count; i++) {
        dur_event event;
        if (i % 64 == 0) dur_arena_reset(arena);
        code = dur_event_from_json(&event, arena, t->item->history[i].json, err);
        if (code == DUR_OK && t->item->works_known) dur__open_work_see(open, i, &event);
        if (code == DUR_OK) code = dur__exec_replay_event(t->inst->exec, &event, err);
    }
    return code;
}

static int replay_events(triage *t, dur_arena *arena, dur__open_work *open, dur_error *err) {
    dur__way_out out;
    if (DUR__OUT_OF_MEMORY(&out)) return DUR__NO_MEMORY(err, "runtime.replay");
    int code = replay_all(t, arena, open, err);
    dur__way_out_end(&out);
    return code;
}

static int replay(triage *t, dur_error *err) {
    dur_arena *arena = dur__pool_arena(t->loop);
    dur__open_work open = { 0 };
    identity_from_history(t);
    DUR__COUNT(t->loop->runtime, replays);
    DUR__COUNT_N(t->loop->runtime, replayed_events, t->item->history_count);
    uint64_t begin_us = dur__monotonic_us();
    dur__user_enter(t->inst);
    int code = replay_events(t, arena, &open, err);
    if (code == DUR_OK) code = dur__exec_replay_end(t->inst->exec, err);
    dur__user_leave(t->inst);
    dur__inst_ran(t->inst, begin_us);
    dur__pool_arena_back(t->loop, arena);
    if (code == DUR_OK && !t->recovered)
        recover_open(t, &open); /* one that was brought here with its history, for instance */
    else
        dur__map_free(&open.at);
    return code;
}

/* What is more than to run the handler is for what the store has. */
static bool begins_here(const triage *t, const dur_work_item *start) {
    return start != NULL && !is_poison(t) && start->parent_instance == NULL &&
           dur__runtime_find(t->loop->runtime, DUR_HANDLER_ORCHESTRATION, start->orchestration, start->version) != NULL;
}

static void run(triage *t) {
    dur__inst *inst = t->inst;
    bool fresh = t->start != NULL;
    const dur_work_item *start = fresh ? &t->start->arrival.item : NULL;
    const char *name = fresh ? start->orchestration : t->first.name;
    const char *version = fresh ? start->version : t->first.version;
    if (inst->unborn != 0 && !begins_here(t, start)) {
        wait_here(t, 0, false);
        return;
    }
    if (is_poison(t)) {
        end_as_poison(t);
        return;
    }
    inst->handler = dur__runtime_find(t->loop->runtime, DUR_HANDLER_ORCHESTRATION, name, version);
    if (inst->handler == NULL) {
        handle_unregistered(t, name != NULL ? name : "", version);
        return;
    }
    dur_error err = DUR_ERROR_INIT;
    inst->exec = dur__inst_exec_new(inst, t->item->kv, t->item->kv_count);
    if (inst->exec == NULL) {
        letters_back(t);
        dur__inst_later(inst);
        return;
    }
    if (t->loop->runtime->options.double_run)
        dur__rerun_begin(inst, fresh ? NULL : t->item, t->item->kv, t->item->kv_count);
    if (fresh) offer_letters(t); /* its first group may ask whether a queue has a message */
    int code = fresh ? begin(t, &err) : replay(t, &err);
    if (code == DUR_OK && inst->recover_count > 0) {
        wait_here(t, 0, false);
    } else if (code == DUR_OK) {
        if (!fresh) offer_letters(t);
        dur__loop_make_ready(t->loop, inst);
    } else if (!fresh && (code == DUR_ECORRUPT || code == DUR_EUNSUPPORTED)) {
        dur__inst_drop_exec(inst);
        handle_corrupted(t, dur_arena_strdup(t->arena, err.message));
    } else {
        if (code != DUR_ENOMEM) recover(t); /* else the lease is kept, and it is looked for again */
        letters_back(t);
        dur__inst_broken(inst, code, &err);
    }
}

static void decide(triage *t) {
    dur_error err = DUR_ERROR_INIT;
    if (t->item->work_lost && t->item->history_error == NULL && read_ends(t, &err)) {
        wait_here(t, 0, false); /* with what was lost; and then it is as if those rows had never been missing */
    } else if (t->item->history_error != NULL) {
        handle_corrupted(t, t->item->history_error);
    } else if (!read_ends(t, &err)) {
        handle_corrupted(t, dur_arena_strdup(t->arena, err.message));
    } else if (!version_fits(t)) {
        wait_here(t, 1000, false);
    } else if (t->terminal == DUR_EVENT_ORCHESTRATION_COMPLETED || t->terminal == DUR_EVENT_ORCHESTRATION_FAILED) {
        bury(t);
    } else if (t->item->history_count > 0 && t->terminal == DUR_EVENT_UNKNOWN) {
        run(t);
    } else {
        bool continued = t->terminal == DUR_EVENT_ORCHESTRATION_CONTINUED_AS_NEW;
        choose_start(t, DUR_WORK_CONTINUE_AS_NEW);
        if (t->start == NULL && !continued && !t->item->start_later) choose_start(t, DUR_WORK_START_ORCHESTRATION);
        if (continued) t->inst->execution_id++;
        if (t->start != NULL)
            run(t);
        else
            wait_for_start(t);
    }
}

/* Before any of its code runs. */
static void enter_alone(const triage *t, uint64_t ticket) {
    if (ticket == 0) return;
    const char *name = t->item->orchestration_name;
    t->inst->alone = ticket;
    dur__gate_enter(ticket, t->item->lock_token, t->item->crashes,
                    dur_arena_format(t->arena, "orchestration \"%s\" (\"%s\")", t->item->instance,
                                     name != NULL ? name : "not begun"));
}

/* Messages, and the two ends of the history: what is decided before user code runs. */
static bool room(const dur_orchestration_item *item) {
    size_t bytes = item->message_count * 512;
    for (size_t i = 0; i < item->message_count; i++)
        bytes += item->messages[i].json.size;
    if (item->history_count > 0) bytes += item->history[0].json.size + item->history[item->history_count - 1].json.size;
    return dur__loop_room(bytes);
}

static void acquired(dur__loop *loop, const dur_orchestration_item *item, uint64_t alone, uint64_t unborn) {
    bool has_room = room(item);
    triage t = { .loop = loop, .item = item, .arena = dur__pool_arena(loop) };
    t.inst = dur__inst_new(loop, item);
    t.inst->uncommitted = true;
    t.inst->unborn = unborn;
    DUR__COUNT(loop->runtime, orchestration_items_fetched);
    enter_alone(&t, alone);
    if (has_room) {
        read_messages(&t);
        decide(&t);
    } else {
        dur__inst_later(t.inst);
    }
    dur__pool_arena_back(loop, t.arena);
}

void dur__triage(dur__loop *loop, const dur_orchestration_item *item, uint64_t alone) {
    if (loop->inside.left_behind) { /* it goes with the owner */
        dur__gate_release(&alone);
        return;
    }
    dur__inst *stale = dur__map_get(&loop->instances, item->instance);
    if (stale != NULL) dur__inst_lost(stale, "the store has given it out again");
    acquired(loop, item, alone, 0);
}

void dur__triage_unborn(dur__loop *loop, const dur__start_taken *start) {
    acquired(loop, &start->item, 0, start->number);
}

static int read_again(dur__inst *inst, dur_arena *arena, dur_orchestration_item *item, dur_error *err) {
    dur__loop *loop = inst->loop;
    dur_fetched_message *messages = NULL;
    int code = dur_store_lane_history(loop->lane, arena, inst->id, inst->token, 0, item, err);
    if (code != DUR_OK) return code;
    code = dur_store_lane_messages(loop->lane, arena, inst->id, inst->token, NULL, 0, 0, 0, &messages,
                                   &item->message_count, err);
    item->messages = messages;
    return code;
}

static void restart(dur__inst *inst) {
    dur__loop *loop = inst->loop;
    dur_orchestration_item item = { .instance = NULL };
    dur_error err = DUR_ERROR_INIT;
    dur_arena *arena = dur__pool_arena(loop);
    int code = dur__loop_room(0) ? read_again(inst, arena, &item, &err) : DUR_ENOMEM;
    if (code == DUR_OK && !room(&item)) code = DUR_ENOMEM;
    if (code == DUR_ENOMEM) {
        dur__inst_later(inst);
    } else if (code == DUR_ELEASE) {
        dur__inst_lost(inst, err.message);
    } else if (code != DUR_OK) { /* then by the usual way: somebody acquires it */
        DUR__COUNT(loop->runtime, provider_errors);
        dur__release(inst, 0, true, false);
    } else {
        triage t = { .loop = loop, .item = &item, .arena = dur__pool_arena(loop), .inst = inst };
        dur__inst_drop_exec(inst); /* what the round has brought meanwhile is among the messages read */
        if (inst->execution_id != item.execution_id) dur__local_forget(inst);
        inst->execution_id = item.execution_id;
        inst->first_turn = inst->queue_gap = inst->again = inst->reread = false;
        read_messages(&t);
        decide(&t);
        dur__pool_arena_back(loop, t.arena);
    }
    dur__pool_arena_back(loop, arena);
}

void dur__triage_restarts(dur__loop *loop) {
    uint64_t now_us = dur__list_empty(&loop->restarts) ? 0 : dur__monotonic_us();
    DUR__LIST_EACH_SAFE(&loop->restarts, at, after) {
        dur__inst *inst = DUR__CONTAINER(at, dur__inst, link);
        if (loop->inside.left_behind) return;
        if (inst->retry_at_us <= now_us) restart(inst);
    }
}
