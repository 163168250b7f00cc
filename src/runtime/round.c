/*
 * round.c: one exchange with the store: turns to commit, activities' ends, and what there is to take, in one call.
 */
#include "runtime/runtime_internal.h"

#include "provider/live.h"

#define FETCH_MAX 128 /* instances acquired at a time: a crash costs each of them one attempt */
#define TURNS_MAX 1024
#define FLOWS_US 100000u      /* a worker that has just ended something will end the next soon */
#define QUEUE_MESSAGES_MAX 64 /* of each queue with a fetch; the rest is read when a dequeue waits */
#define LOCAL_TAKES 4         /* every so many rounds with local work the shared queue is asked first (L9) */

typedef struct round {
    dur_round ask;
    dur__inst **insts;
    dur__task **tasks;
    dur_fetch fetch;
    dur_work_fetch work;
    size_t work_reserved;
    uint64_t alone_instance, alone_work; /* tickets for the suspect that it asks for; 0: others */
} round;

/* ---- what is due ---- */

static bool commits_due(const dur__loop *loop, uint64_t now_us) {
    DUR__LIST_EACH(&loop->commits, at) {
        if (DUR__CONTAINER(at, dur__inst, link)->retry_at_us <= now_us) return true;
    }
    return false;
}

static bool acks_due(const dur__loop *loop, uint64_t now_us) {
    DUR__LIST_EACH(&loop->acks, at) {
        if (DUR__CONTAINER(at, dur__task, link)->ack_retry_at_us <= now_us) return true;
    }
    return false;
}

static bool takes_work(const dur__loop *loop) {
    return dur__runtime_phase(loop->runtime) == DUR__PHASE_RUN && loop->runtime->tag_filter.mode != DUR_TAGS_NONE;
}

/* Local work of a dead node is written by whoever comes, with or without orchestrations: the store gives out nothing
   else to who has none. */
static bool takes_instances(const dur__loop *loop) {
    dur_runtime *runtime = loop->runtime;
    return dur__runtime_phase(runtime) == DUR__PHASE_RUN &&
           (dur__fleet_runs(runtime) || runtime->store->methods->local_work);
}

/*
 * Of both kinds the suspect with the fewest crashes alone goes first: so whoever crashes goes behind all that it has
 * taken along, whose ends are the evidence against it, and each of those ends between two crashes.
 */
static bool work_goes_first(const dur__loop *loop) {
    if (loop->suspect_work == 0 || !takes_work(loop)) return false;
    bool instance = loop->suspect_instance != 0 && takes_instances(loop);
    return !(instance && loop->suspect_instance < loop->suspect_work);
}

static bool takes_suspect_work(const dur__loop *loop) {
    return work_goes_first(loop) && dur__work_flows(loop->runtime, FLOWS_US);
}

/* Workers that are busy for a moment are waited for; behind activities that take hours nobody waits. */
static bool takes_suspect_instance(const dur__loop *loop) {
    if (loop->suspect_instance == 0 || !takes_instances(loop)) return false;
    if (takes_work(loop) && !loop->suspect_work_known) return false; /* the order is not known yet */
    uint64_t patience_us = loop->runtime->options.suspect_alone_ms * 1000;
    return !(work_goes_first(loop) && dur__work_flows(loop->runtime, patience_us));
}

bool dur__round_due(dur__loop *loop, uint64_t now_us) {
    if (loop->retry_at_us > now_us) return false;
    if (commits_due(loop, now_us) || acks_due(loop, now_us)) return true;
    if (takes_instances(loop) && loop->look_instances) return true;
    if ((takes_suspect_instance(loop) || takes_suspect_work(loop)) && dur__gate_open()) return true;
    return takes_work(loop) && loop->look_work && dur__work_room(loop->runtime) > 0;
}

uint64_t dur__round_next_us(dur__loop *loop, uint64_t now_us) {
    uint64_t next = UINT64_MAX;
    DUR__LIST_EACH(&loop->commits, at) {
        uint64_t due = DUR__CONTAINER(at, dur__inst, link)->retry_at_us;
        if (due < next) next = due;
    }
    DUR__LIST_EACH(&loop->acks, link) {
        uint64_t due = DUR__CONTAINER(link, dur__task, link)->ack_retry_at_us;
        if (due < next) next = due;
    }
    if (next == UINT64_MAX && loop->retry_at_us <= now_us) return UINT64_MAX;
    if (next == UINT64_MAX || next < loop->retry_at_us) next = loop->retry_at_us;
    return next > now_us ? next - now_us : 0;
}

/* ---- asking ---- */

static void add_turns(dur__loop *loop, round *r, uint64_t now_us) {
    DUR__LIST_EACH_SAFE(&loop->commits, at, after) {
        dur__inst *inst = DUR__CONTAINER(at, dur__inst, link);
        if (inst->retry_at_us > now_us) continue;
        if (inst->unborn != 0 && !dur__taker_has(&loop->taker, inst->unborn))
            dur__inst_free(inst); /* it ran for so long that its start was given back: somebody else writes that */
        else if (inst->unknown)
            dur__commit_learn(inst); /* may end it */
        else if (inst->abandons)
            dur__commit_abandon(inst);
    }
    size_t count = 0;
    DUR__LIST_EACH(&loop->commits, link) count++;
    if (count > TURNS_MAX) count = TURNS_MAX;
    if (count == 0) return;
    r->ask.turns = dur_arena_alloc(loop->arena, count * sizeof(dur_turn_commit));
    r->insts = dur_arena_alloc(loop->arena, count * sizeof(dur__inst *));
    DUR__LIST_EACH(&loop->commits, each) {
        dur__inst *inst = DUR__CONTAINER(each, dur__inst, link);
        if (inst->retry_at_us > now_us || inst->unknown || inst->abandons || r->ask.turn_count == count) continue;
        r->insts[r->ask.turn_count] = inst;
        r->ask.turns[r->ask.turn_count++] = *inst->commit;
    }
}

static bool encode_completion(dur__task *task, dur_arena *arena, dur_message_row *out) {
    dur_error err = DUR_ERROR_INIT;
    if (dur_message_row_from_work(out, arena, &task->letter.arrival.item, &err) == DUR_OK) return true;
    dur__log(DUR_LOG_ERROR, DUR__LOG_ACTIVITY, DUR__FIELDS(DUR__TEXT("activity_name", task->item.name)), "%s",
             err.message);
    return false;
}

static size_t completion_bytes(const dur__task *task) {
    const dur_work_item *item = &task->letter.arrival.item;
    size_t bytes = 1024;
    if (task->ack_bare) return bytes;
    if (item->result != NULL) bytes += strlen(item->result);
    if (item->details != NULL && item->details->message != NULL) bytes += strlen(item->details->message);
    return bytes;
}

static void add_acks(dur__loop *loop, round *r, uint64_t now_us) {
    size_t count = 0;
    DUR__LIST_EACH(&loop->acks, at) count++;
    if (count == 0) return;
    r->ask.acks = dur_arena_zalloc(loop->arena, count * sizeof(dur_work_ack));
    r->tasks = dur_arena_alloc(loop->arena, count * sizeof(dur__task *));
    DUR__LIST_EACH_SAFE(&loop->acks, link, after) {
        dur__task *task = DUR__CONTAINER(link, dur__task, link);
        if (task->ack_retry_at_us > now_us) continue;
        if (!dur__loop_room(completion_bytes(task))) break; /* in a later round */
        dur__list_unlink(link);
        dur_work_ack *ack = &r->ask.acks[r->ask.ack_count];
        ack->lock_token = task->token;
        ack->ref = task->ref;
        if (!task->ack_bare) {
            dur_message_row *message = dur_arena_alloc(loop->arena, sizeof(*message));
            if (encode_completion(task, loop->arena, message)) ack->completion = message;
        }
        r->tasks[r->ask.ack_count++] = task;
    }
}

/* Locked one by one for so long: the first must be renewed before the last has come. */
static size_t locked_at_once(const dur__loop *loop, uint64_t lock_ms, size_t max) {
    if (!loop->fallback || lock_ms / 20 >= max) return max;
    return lock_ms >= 20 ? (size_t)(lock_ms / 20) : 1;
}

static void add_fetch(dur__loop *loop, round *r) {
    dur_runtime *runtime = loop->runtime;
    if (!takes_instances(loop)) return;
    r->fetch = (dur_fetch){ .lock_ms = runtime->options.orchestrator_lock_timeout_ms,
                            .filter = &runtime->filter,
                            .handlers = &runtime->handlers,
                            .owner = loop->owner,
                            .max = locked_at_once(loop, runtime->options.orchestrator_lock_timeout_ms, FETCH_MAX),
                            .kind = DUR_FETCH_FRESH,
                            .queue_messages_max = QUEUE_MESSAGES_MAX };
    if (takes_suspect_instance(loop) && !loop->suspect_last) r->alone_instance = dur__gate_claim(runtime);
    if (r->alone_instance != 0) {
        r->fetch.kind = DUR_FETCH_SUSPECT;
        r->fetch.max = 1;
    } else if (loop->fallback) {
        r->fetch.kind = DUR_FETCH_ANY; /* a store that does not count crashes knows no suspects */
    }
    r->ask.fetch = &r->fetch;
}

static bool work_wanted(dur__loop *loop, const round *r) {
    if (!takes_work(loop)) return false;
    bool eager = false;
    for (size_t i = 0; i < r->ask.turn_count && !eager; i++)
        eager = r->ask.turns[i].worker_item_count > 0;
    if (!eager && (loop->look_work || takes_suspect_work(loop))) return true;
    if (!eager) return false;
    if (loop->suspect_instance != 0 && !loop->suspect_work_known) return true;
    return ++loop->local_takes % LOCAL_TAKES == 0;
}

/*
 * What is reserved while the store answers is not there for the turns that other loops build meanwhile: where there are
 * several, a loop asks for little until it gets all that it asks for.
 */
static size_t work_want(const dur__loop *loop) {
    const dur_runtime *runtime = loop->runtime;
    size_t room = (size_t)runtime->options.worker_concurrency + runtime->options.prefetch;
    if (runtime->loop_count < 2) return room;
    size_t most = (room + runtime->loop_count - 1) / runtime->loop_count;
    size_t want = dur__workers_count(loop->runtime) << loop->work_doublings;
    return want < most ? want : most;
}

static void add_work(dur__loop *loop, round *r) {
    dur_runtime *runtime = loop->runtime;
    if (!work_wanted(loop, r)) return;
    if (r->alone_instance == 0 && takes_suspect_work(loop)) r->alone_work = dur__gate_claim(runtime);
    size_t want = r->alone_work != 0 ? 1 : work_want(loop);
    want = locked_at_once(loop, runtime->options.worker_lock_timeout_ms, want);
    r->work_reserved = dur__work_reserve(runtime, want, r->alone_work != 0);
    if (r->work_reserved == 0) {
        loop->suspect_work_known = true; /* there is no room to look: who waits for the answer waits for nothing */
        return;
    }
    dur__mutex_lock(&runtime->work.mutex);
    bool closed = dur__session_closed(runtime);
    dur__mutex_unlock(&runtime->work.mutex);
    r->work = (dur_work_fetch){ .lock_ms = runtime->options.worker_lock_timeout_ms,
                                .session_owner = closed ? NULL : dur__runtime_session_owner(runtime, loop->owner),
                                .session_lock_ms = runtime->options.session_lock_timeout_ms,
                                .tags = runtime->tag_filter,
                                .handlers = &runtime->activities,
                                .owner = loop->owner,
                                .max = r->work_reserved,
                                .kind = r->alone_work != 0 ? DUR_FETCH_SUSPECT
                                        : loop->fallback   ? DUR_FETCH_ANY
                                                           : DUR_FETCH_FRESH };
    r->ask.work = &r->work;
}

/* ---- answers ---- */

/* Activities first: while a worker wakes up for them, the rest is put away. */
static void answer_turns(dur__loop *loop, const round *r) {
    for (size_t i = 0; i < r->ask.turn_count; i++)
        if (r->ask.turns[i].fault == DUR_TURN_FINE) dur__commit_confirmed(r->insts[i], &r->ask.turns[i]);
    dur__route_hand_out(loop);
    for (size_t i = 0; i < r->ask.turn_count; i++) {
        if (r->ask.turns[i].fault == DUR_TURN_FINE)
            dur__commit_put_away(r->insts[i]);
        else
            dur__commit_refused(r->insts[i], &r->ask.turns[i]);
    }
}

static void answer_lost(dur__loop *loop, const round *r) {
    for (size_t i = 0; i < r->ask.lost_count; i++) {
        dur__inst *inst = dur__map_get(&loop->instances, r->ask.lost[i]);
        if (inst != NULL) dur__inst_lost(inst, "the store says so");
    }
}

/* Before messages are handed out: none of them is to be seen. */
static void answer_asked(dur__loop *loop, const round *r) {
    for (size_t i = 0; i < r->ask.asked_count; i++) {
        dur__inst *inst = dur__map_get(&loop->instances, r->ask.asked[i]);
        if (inst == NULL || inst->state == DUR__INST_LEAVING) continue;
        if (inst->exec == NULL || inst->state == DUR__INST_COMMITTING)
            inst->asked = true;
        else
            dur__release(inst, 0, true, false);
    }
}

static void answer_items(dur__loop *loop, round *r) {
    size_t got = r->ask.item_count;
    if (r->ask.fetch == NULL) return;
    loop->others_wait = got == r->fetch.max && r->alone_instance == 0;
    loop->suspect_last = r->alone_instance != 0;
    if (r->alone_instance != 0 && got == 0) {
        dur__gate_release(&r->alone_instance);
        loop->suspect_instances_none = r->ask.suspect_instance != 0;
        loop->suspect_instance = 0;
    }
    DUR_ASSERT(r->alone_instance == 0 || got <= 1);
    /* After a suspect the others, and after the others a suspect.  Before user code runs: it may take the process. */
    loop->look_instances = (got > 0 && r->ask.more) || loop->suspect_last;
    for (size_t i = 0; i < got; i++)
        dur__triage(loop, &r->ask.items[i], r->alone_instance);
}

/* The store takes it for known, and we cannot keep it: all of them are read again. */
static void reread(dur__inst *inst) {
    if (inst->state == DUR__INST_LEAVING) return; /* with the lease it goes to whoever comes next */
    if (inst->exec == NULL || inst->state == DUR__INST_COMMITTING)
        inst->reread = true;
    else
        dur__inst_later(inst);
}

static void answer_held(dur__loop *loop, const round *r) {
    for (size_t i = 0; i < r->ask.held_count; i++) {
        const dur_held_message *held = &r->ask.held[i];
        dur__inst *inst = dur__map_get(&loop->instances, held->instance);
        if (inst == NULL || strcmp(inst->token, held->lock_token) != 0) continue;
        /* A turn that gives the lease up and is to be submitted again was made before this came: nobody has seen it. */
        if (inst->commit != NULL && !inst->commit->keep_lease) inst->commit->seen_id = inst->commit->seen_now_ms = 0;
        if (!dur__loop_room(held->message.json.size)) {
            reread(inst);
            continue;
        }
        dur__letter *letter = dur__letter_from_message(inst, &held->message);
        if (letter != NULL) dur__inst_receive(inst, letter);
    }
}

static void answer_works(dur__loop *loop, round *r) {
    if (r->ask.work == NULL) return;
    size_t got = r->ask.work_count;
    DUR_ASSERT(got <= r->work_reserved);
    dur__work_unreserve(loop->runtime, r->work_reserved - got);
    if (r->alone_work != 0) {
        if (got == 0) {
            dur__gate_release(&r->alone_work);
            loop->suspect_work_none = r->ask.suspect_work != 0;
            loop->suspect_work = 0;
        }
    } else {
        loop->look_work = got == r->work_reserved;
        loop->work_doublings = !loop->look_work ? 0 : loop->work_doublings < 16 ? loop->work_doublings + 1 : 16;
        loop->sessions_skipped =
            r->work.session_owner == NULL; /* theirs is still there: look when one has ended here */
        if (got > 0) loop->news = false;
    }
    for (size_t i = 0; i < got; i++)
        dur__route_work(loop, &r->ask.works[i], r->alone_work);
}

/* A round that did not look for the one kind says nothing about it.  What is told and was not there when it was asked
   for, because somebody has it locked, is no reason to ask again and again: not until there is news. */
static void note_suspects(dur__loop *loop, const dur_round *a) {
    if (a->fetch != NULL) {
        loop->suspect_instances_none = loop->suspect_instances_none && a->suspect_instance != 0;
        loop->suspect_instance = loop->suspect_instances_none ? 0 : a->suspect_instance;
    }
    if (a->work != NULL) {
        loop->suspect_work_known = true;
        loop->suspect_work_none = loop->suspect_work_none && a->suspect_work != 0;
        loop->suspect_work = loop->suspect_work_none ? 0 : a->suspect_work;
    }
}

static void answered(dur__loop *loop, round *r) {
    const dur_round *a = &r->ask;
    loop->failures = 0;
    loop->retry_at_us = 0;
    loop->now_ms = a->now_ms != 0 ? a->now_ms : loop->now_ms;
    if (a->turn_count > 0) {
        loop->expected = 0;
        loop->gathered = false;
    }
    answer_turns(loop, r);
    for (size_t i = 0; i < a->ack_count; i++)
        dur__route_acked(loop, r->tasks[i], &a->acks[i].error);
    answer_lost(loop, r);
    answer_asked(loop, r);
    /* From here on the reads of this round count: what it showed was seen, what it did not show was not. */
    loop->seen_id = a->seen_id;
    loop->seen_now_ms = a->now_ms;
    loop->next_due_ms = a->next_due_ms;
    note_suspects(loop, a);
    loop->work_waiting_long = a->work_waiting_long;
    bool nothing = a->item_count == 0 && a->work_count == 0 && a->held_count == 0 && a->turn_count == 0;
    loop->empty_looks = nothing ? loop->empty_looks + 1 : 0;
    answer_held(loop, r);
    answer_items(loop, r);
    answer_works(loop, r);
    loop->news = false;
    loop->owed_look =
        loop->owed_look && ((a->fetch == NULL && takes_instances(loop)) || (a->work == NULL && takes_work(loop)));
}

/* A store that refuses has answered. */
static const char *trouble(dur_code code) {
    switch (code) {
    case DUR_EUNAVAILABLE:
    case DUR_EUNKNOWN:
    case DUR_ETIMEOUT:
        return "the store does not answer";
    case DUR_EBUSY:
        return "the store is busy";
    default:
        return "the store refuses";
    }
}

static void failed(dur__loop *loop, round *r, const dur_error *err) {
    dur_runtime *runtime = loop->runtime;
    DUR__COUNT(runtime, provider_errors);
    uint64_t delay_ms = dur__backoff_ms(10, loop->failures++, 3000);
    loop->retry_at_us = dur__monotonic_us() + dur__backoff_jitter_us(runtime->world, delay_ms);
    char times[DUR__TIMES_BYTES];
    if (dur__trouble_say(runtime, &runtime->said_round, err->code, times))
        dur__log(DUR_LOG_WARN, DUR__LOG_PROVIDER,
                 DUR__FIELDS(DUR__NUMBER("failures", loop->failures), DUR__TEXT("operation", err->op)),
                 "%s; everything is kept and tried again: %s%s", trouble(err->code), err->message, times);
    for (size_t i = 0; i < r->ask.turn_count; i++) {
        dur__inst *inst = r->insts[i];
        if (inst->unborn != 0 && err->code == DUR_EBUSY) /* its caller has waited as long as he would by himself */
            dur__taker_back(&loop->taker, inst->unborn, err);
        if (inst->unborn != 0)
            dur__unborn_failed(inst, err);
        else
            dur__commit_retry(inst, err, err->code == DUR_EUNKNOWN);
    }
    dur_error transient = *err;
    transient.retryable = true;
    for (size_t i = 0; i < r->ask.ack_count; i++)
        dur__route_acked(loop, r->tasks[i], &transient);
    if (err->code == DUR_EUNKNOWN && !loop->settles && (r->ask.fetch != NULL || r->ask.work != NULL) &&
        runtime->has_owners) {
        loop->stale = true;
        dur__keeper_renew_owner(runtime);
    }
    dur__gate_release(&r->alone_instance);
    dur__gate_release(&r->alone_work);
    if (r->ask.fetch != NULL) loop->look_instances = true;
    if (r->ask.work == NULL) return;
    dur__work_unreserve(runtime, r->work_reserved);
    loop->look_work = true;
}

void dur__round(dur__loop *loop) {
    round r = { .ask = { .next_due_ms = DUR_NEVER } };
    dur_error err = DUR_ERROR_INIT;
    uint64_t now_us = dur__monotonic_us();
    dur_arena_reset(loop->arena);
    if (!dur__loop_has_memory(loop) ||
        !dur__loop_room_fetch(
            loop, FETCH_MAX)) { /* what is asked for is answered: not without the means to take the answer */
        loop->retry_at_us = now_us + loop->pause_us;
        return;
    }
    loop->told = 0;
    loop->handed_out = 0;
    dur__lookouts_offer(loop);
    add_turns(loop, &r, now_us);
    add_acks(loop, &r, now_us);
    add_fetch(loop, &r);
    add_work(loop, &r);
    if (r.ask.turn_count > 0 || r.ask.ack_count > 0 || r.ask.fetch != NULL || r.ask.work != NULL) {
        DUR__COUNT(loop->runtime, rounds);
        dur__taker_round(&loop->taker, true, r.ask.turn_count);
        int code = dur_store_lane_round(loop->lane, loop->arena, &r.ask, &err);
        dur__taker_round(&loop->taker, false, 0);
        loop->settles = r.ask.settles;
        if (code == DUR_OK)
            answered(loop, &r);
        else
            failed(loop, &r, &err);
    }
    /* Also without a round: a turn may have been learned to be committed. */
    dur__triage_restarts(loop);
    dur__route_hand_out(loop);
    loop->told_at_us = loop->told > 0 ? dur__monotonic_us() : 0;
    dur__taker_tell(&loop->taker);
    dur__live_tell(loop->runtime->store);
    dur__park_trim(loop);
}
