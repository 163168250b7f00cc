/*
 * memory_check.c: are the invariants of memory_internal.h true?  For dur_provider_check, and for tests that shake the
 * store at random.
 */
#include "core/awaits.h"
#include "provider/memory/memory_internal.h"
#include "provider/to_nobody.h"

/* The first finding, or NULL. */
typedef const char *finding;

static finding check_tree(const dur__mem_tree *tree) {
    size_t count = 0;
    const dur__mem_node *before = NULL;
    for (const dur__mem_node *node = dur__mem_tree_first(tree); node != NULL; node = dur__mem_tree_next(node)) {
        if (node->tree != tree) return "a node says that it is in another tree";
        if (before != NULL && !dur__mem_before(before->hi, before->lo, node->hi, node->lo))
            return "a tree is not in order";
        for (int side = 0; side <= 1; side++) {
            const dur__mem_node *child = node->child[side];
            if (child != NULL && (child->parent != node || child->rank > node->rank)) return "a tree is out of shape";
        }
        before = node;
        count++;
    }
    return count == tree->count ? NULL : "a tree's count is wrong";
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

typedef struct message_tally {
    finding wrong;
    size_t messages, queued, starts, reasons, timers;
} message_tally;

static void tally_message(dur__mem *mem, dur__mem_message *message, void *arg) {
    message_tally *tally = arg;
    const dur__mem_channel *channel = message->channel;
    bool given = message->place.tree == &channel->given;
    const dur__mem_tree *own = message->due_ms == 0 ? &channel->now : &channel->later;
    tally->messages++;
    tally->queued += message->kind == DUR_WORK_QUEUE_MESSAGE;
    tally->starts += message->kind == DUR_WORK_START_ORCHESTRATION || message->kind == DUR_WORK_CONTINUE_AS_NEW;
    tally->reasons += message->reason.tree != NULL;
    tally->timers += message->timer.tree != NULL;
    if (!given && message->place.tree != own) tally->wrong = "a message is in the wrong tree of its channel";
    if (given && !dur__mem_leased(message->instance)) tally->wrong = "nobody holds a lease, but a message was given";
    if (given && message->reason.tree != NULL) tally->wrong = "a message that was given is a reason to fetch";
    if (dur__map_get_u64(&mem->messages, message->id) != message) tally->wrong = "a message is not in the map";
    if (dur__lost_without(message->kind) && !dur__mem_exists(message->instance))
        tally->wrong = "it does not exist, and nobody will ever look at its messages";
}

static finding check_channel(const dur__mem_channel *channel) {
    finding wrong = check_tree(&channel->now);
    if (wrong == NULL) wrong = check_tree(&channel->later);
    if (wrong == NULL) wrong = check_tree(&channel->given);
    return wrong;
}

/* The holder of a lease was given a later message of the queue, and will not be told of an earlier one. */
static finding check_passed_over(const dur__mem_instance *instance, const dur__mem_channel *channel) {
    const dur__mem_node *first = dur__mem_tree_first(&channel->now);
    if (first == NULL || instance->lane == NULL || dur__link_linked(&instance->told)) return NULL;
    for (dur__mem_node *node = dur__mem_tree_first(&channel->given); node != NULL; node = dur__mem_tree_next(node)) {
        const dur__mem_message *given = DUR__CONTAINER(node, dur__mem_message, place);
        if (given->due_ms == 0 && dur__mem_before(first->hi, first->lo, node->hi, node->lo))
            return "a message of a queue was passed over";
    }
    return NULL;
}

static finding check_messages(dur__mem *mem, dur__mem_instance *instance, size_t *total) {
    message_tally tally = { .wrong = NULL };
    dur__map_entry *entry;
    finding wrong = check_channel(&instance->plain);
    for (size_t i = 0; wrong == NULL && (entry = dur__map_next(&instance->queues, &i)) != NULL;) {
        wrong = check_channel(entry->value);
        if (wrong == NULL) wrong = check_passed_over(instance, entry->value);
    }
    if (wrong == NULL) wrong = check_tree(&instance->reason_now);
    if (wrong == NULL) wrong = check_tree(&instance->reason_later);
    if (wrong == NULL) wrong = check_tree(&instance->timers);
    if (wrong != NULL) return wrong;
    dur__mem_each_message(mem, instance, tally_message, &tally);
    *total += tally.messages;
    if (tally.wrong != NULL) return tally.wrong;
    if (tally.messages != instance->message_count || tally.queued != instance->queue_message_count ||
        tally.starts != instance->start_count)
        return "an instance counts its messages wrongly";
    if (tally.reasons != instance->reason_now.count + instance->reason_later.count)
        return "an instance counts its reasons wrongly";
    return tally.timers == instance->timers.count ? NULL : "an instance counts its timers wrongly";
}

/* ---- instances --------------------------------------------------------------------------------------------------- */

static finding check_place(dur__mem *mem, const dur__mem_instance *instance) {
    const dur__mem_tree *tree = instance->place.tree;
    bool timed = tree == &mem->wall || tree == &mem->boot;
    if (dur__mem_leased(instance)) {
        if (tree != NULL && !timed) return "a leased instance can be fetched";
        return instance->owner != NULL || tree == &mem->boot ? NULL : "a timed lock would never end";
    }
    if (instance->suspended != NULL) return tree == NULL ? NULL : "a suspended instance can be fetched";
    if (dur__mem_ended(instance) && instance->message_count > 0 && tree == NULL)
        return "it has ended, and nobody would look at its messages";
    bool look = instance->look != DUR__MEM_LOOK_NONE;
    if (instance->message_count == 0 && !look)
        return tree == NULL ? NULL : "an instance without messages can be fetched";
    if (instance->not_before_ms > mem->now_ms) return tree == &mem->wall ? NULL : "a delay would never end";
    const dur__mem_message *first =
        dur__mem_exists(instance) ? dur__mem_first_reason(mem, instance) : dur__mem_first_orphan(mem, instance);
    if (first != NULL || look)
        return tree != NULL && !timed ? NULL : "an instance with a visible message or lost work cannot be fetched";
    /* Of one that does not exist only queue messages are waited for; a clock that went back changes nothing there. */
    bool later = dur__mem_exists(instance) && dur__mem_next_reason(mem, instance) != DUR_NEVER;
    return !later || tree != NULL ? NULL : "an instance would never see its delayed message";
}

/* Rows that no lock or event leads to are found by a walk over all of them: the owner is in the map of owners. */
static bool registered(dur__mem *mem, const dur__mem_owner *owner) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&mem->owners, &i)) != NULL;)
        if (entry->value == owner) return true;
    return false;
}

/* Nobody has it and nobody would look at it: it must not wait for a queue that has a message. */
static finding check_waits(dur__mem *mem, const dur__mem_instance *instance) {
    dur__map_entry *entry;
    finding wrong = NULL;
    const dur__mem_execution *current = NULL;
    if (dur__mem_leased(instance) || instance->suspended != NULL || instance->place.tree != NULL) return NULL;
    for (size_t i = 0; i < instance->execution_count; i++)
        if (instance->executions[i]->execution_id == instance->current_execution) current = instance->executions[i];
    if (current == NULL || instance->queue_message_count == 0) return NULL;
    dur_arena *arena = dur_arena_new();
    dur_text *events = dur_arena_alloc(arena, (current->event_count + 1) * sizeof(*events));
    for (size_t i = 0; i < current->event_count; i++)
        events[i] = (dur_text){ current->events[i].json, current->events[i].json_size };
    for (size_t i = 0; wrong == NULL && (entry = dur__map_next(&instance->queues, &i)) != NULL;) {
        const dur__mem_channel *channel = entry->value;
        const dur__mem_node *later = dur__mem_tree_first(&channel->later);
        if (channel->now.count == 0 && (later == NULL || later->hi > mem->now_ms)) continue;
        if (dur__awaits_queue(arena, events, current->event_count, channel->queue))
            wrong = "it waits for a queue that has a message, and nobody would look";
    }
    dur_arena_free(arena);
    return wrong;
}

static finding check_history(const dur__mem_instance *instance) {
    size_t events = 0;
    for (size_t i = 0; i < instance->execution_count; i++) {
        const dur__mem_execution *execution = instance->executions[i];
        if (i > 0 && instance->executions[i - 1]->execution_id >= execution->execution_id)
            return "executions are not in order";
        for (size_t k = 0; k < execution->event_count; k++) {
            uint64_t before = k > 0 ? execution->events[k - 1].event_id : 0, id = execution->events[k].event_id;
            if (before >= id) return "events are not in order";
            if (before + 1 != id && id != 99999) return "what is before an event is missing";
        }
        events += execution->event_count;
    }
    return events == instance->event_count ? NULL : "an instance counts its events wrongly";
}

static finding check_instance(dur__mem *mem, dur__mem_instance *instance, size_t *messages, size_t *leases) {
    finding wrong = check_history(instance);
    if (wrong == NULL && instance->suspended != NULL && dur__mem_ended(instance))
        wrong = "it has ended and is suspended";
    if (wrong == NULL) wrong = check_messages(mem, instance, messages);
    if (wrong == NULL) wrong = check_tree(&instance->works);
    if (wrong == NULL) wrong = check_place(mem, instance);
    if (wrong == NULL) wrong = check_waits(mem, instance);
    if (wrong == NULL && instance->owner != NULL && !registered(mem, instance->owner))
        wrong = "leased by an owner that is not registered";
    if (wrong == NULL && instance->parent != NULL && dur__map_get(&mem->instances, instance->parent) == NULL)
        wrong = "its parent does not exist";
    if (wrong != NULL || !dur__mem_leased(instance)) return wrong;
    (*leases)++;
    if (dur__map_get(&mem->leases, instance->token) != instance) return "a lease is not in the map";
    return NULL;
}

/* *who: whose finding it is; NULL: of the whole store. */
static finding check_instances(dur__mem *mem, const char **who) {
    size_t messages = 0, leases = 0;
    dur__map_entry *entry;
    finding wrong = NULL;
    for (size_t i = 0; wrong == NULL && (entry = dur__map_next(&mem->instances, &i)) != NULL;) {
        const dur__mem_instance *instance = entry->value;
        *who = instance->id;
        wrong = check_instance(mem, entry->value, &messages, &leases);
    }
    if (wrong == NULL) *who = NULL;
    if (wrong == NULL && messages != mem->messages.count) wrong = "a message has no instance";
    if (wrong == NULL && leases != mem->leases.count) wrong = "a token has no lease";
    for (const dur__mem_bucket *bucket = mem->buckets; wrong == NULL && bucket != NULL; bucket = bucket->next) {
        wrong = check_tree(&bucket->ready[0]);
        if (wrong == NULL) wrong = check_tree(&bucket->ready[1]);
    }
    if (wrong == NULL) wrong = check_tree(&mem->wall);
    return wrong != NULL ? wrong : check_tree(&mem->boot);
}

/* ---- worker rows ------------------------------------------------------------------------------------------------- */

static finding check_work(dur__mem *mem, const dur__mem_work *work) {
    bool shelved = work->shelf != NULL;
    bool timed = work->place.tree == &mem->work_times, delayed = work->place.tree == &mem->work_delays;
    if (work->by_ref.tree != &work->instance->works) return "a worker row is not with its instance";
    if (work->token != NULL && dur__map_get(&mem->claims, work->token) != work)
        return "a worker lock is not in the map";
    if (work->owner != NULL && !registered(mem, work->owner))
        return "a row is locked by an owner that is not registered";
    if (work->instance->has_row && work->execution_id > work->instance->current_execution)
        return "a worker row of an execution that has not begun";
    if (work->token != NULL && work->owner != NULL)
        return work->place.tree != NULL ? "a locked row can be fetched" : NULL;
    if (work->owner != NULL) return "a row has an owner but no lock";
    if (work->token != NULL) return timed ? NULL : "a timed worker lock would never end";
    if (delayed) return work->not_before_ms > mem->now_ms ? NULL : "a row waits for a time that is over";
    if (!shelved || work->place.tree != &work->shelf->rows[dur__mem_work_suspect(work)])
        return "a free row is not on its shelf";
    dur__mem_shelf_kind kind = work->session == NULL ? DUR__MEM_PLAIN
                               : work->session->held ? DUR__MEM_SESSION_HELD
                                                     : DUR__MEM_SESSION_FREE;
    if (work->shelf->kind != kind || !dur__str_eq(work->shelf->tag, work->tag)) return "a row is on the wrong shelf";
    if (kind == DUR__MEM_SESSION_HELD && !dur__str_eq(work->shelf->holder, work->session->holder))
        return "a row of a session is on another holder's shelf";
    return NULL;
}

static finding check_works(dur__mem *mem, const char **who) {
    size_t locked = 0, rows = 0;
    dur__map_entry *entry;
    finding wrong = check_tree(&mem->work_times);
    if (wrong == NULL) wrong = check_tree(&mem->work_delays);
    for (size_t i = 0; wrong == NULL && (entry = dur__map_next(&mem->works, &i)) != NULL;) {
        const dur__mem_work *work = entry->value;
        locked += work->token != NULL;
        rows += work->session != NULL;
        *who = work->instance->id;
        wrong = check_work(mem, work);
    }
    if (wrong == NULL) *who = NULL;
    for (size_t i = 0; wrong == NULL && (entry = dur__map_next(&mem->sessions, &i)) != NULL;) {
        const dur__mem_session *session = entry->value;
        rows -= session->row_count;
        bool timed = session->expiry.tree == &mem->session_times;
        if (timed != (session->held && session->owner == NULL)) wrong = "a session's claim would never end";
        if (session->owner != NULL && !registered(mem, session->owner))
            wrong = "a session is held by an owner that is not registered";
        if (wrong != NULL) *who = session->name;
    }
    if (wrong == NULL && locked != mem->claims.count) wrong = "a worker token has no row";
    return wrong == NULL && rows != 0 ? "a session counts its rows wrongly" : wrong;
}

int dur__mem_check(dur_provider *self, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    const char *who = NULL;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    finding wrong = check_instances(mem, &who);
    if (wrong == NULL) wrong = check_works(mem, &who);
    if (wrong == NULL) wrong = dur__mem_check_doubts(mem, &who);
    int code = wrong == NULL ? DUR_OK
                             : dur_error_set(err, DUR_ECORRUPT, false, "memory.check", "%s%s%s", who != NULL ? who : "",
                                             who != NULL ? ": " : "", wrong);
    dur__mem_leave(mem);
    return code;
}
