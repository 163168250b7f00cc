/*
 * sim_judge_history.c: histories replay; and at a quiet point nobody waits for something that is there.
 */
#include "sim_load.h"

#include <durite/replay.h>
#include <durite/sys/event.h>
#include <stdlib.h>
#include <string.h>

#define EXECUTIONS_MAX 32
/* What is due may wait for so long: where nothing went wrong; where notifications travel on a real wire while time is
   not real; and where a dead node must be found out first. */
#define SLACK_CALM_MS 20
#define SLACK_WIRE_MS 3000
#define SLACK_MS 60000

static uint64_t slack(const sim_case *self) {
    if (!self->run->calm) return SLACK_MS;
    return self->run->store == SIM_POSTGRES ? SLACK_WIRE_MS : SLACK_CALM_MS;
}

/* ---- replay ------------------------------------------------------------------------------------------------------ */

/* Was it ended over its handler's head, by terminate or before it began?  Then the last event is not the handler's. */
static bool was_unheard(const sim_case *self, const dur_instance_info *listed) {
    dur_error err = DUR_ERROR_INIT;
    dur_instance_info *info = NULL;
    if (!listed->cancelled) return false;
    if (dur_client_info(&info, self->client, listed->instance, &err) != DUR_OK)
        sim_fail("info of %s: %s", listed->instance, err.message);
    bool unheard = info->said == NULL;
    dur_instance_info_free(info);
    return unheard;
}

/* What was detached runs, however its flow has ended: its input ends with ":0" (sim_flow_family.c). */
static void judge_detached(const char *instance, const char *json) {
    dur_error err = DUR_ERROR_INIT;
    dur_event *events = NULL;
    size_t count = 0;
    dur_arena *arena = dur_arena_new();
    if (dur_history_from_json(&events, &count, arena, (dur_text){ json, strlen(json) }, &err) != DUR_OK)
        sim_fail("history of %s: %s", instance, err.message);
    for (size_t i = 0; i < count; i++) {
        const char *input = events[i].kind == DUR_EVENT_ACTIVITY_SCHEDULED && strcmp(events[i].name, "Echo") == 0
                                ? events[i].input
                                : "";
        char path[SIM_TICKET_MAX + 24];
        sim_copy(path, sizeof(path), input);
        path[strcspn(path, "#")] = '\0';
        if (strlen(input) > 2 && strcmp(input + strlen(input) - 2, ":0") == 0 && !sim_has_run(path))
            sim_fail("%s has detached activity %s, which never ran", instance, path);
    }
    dur_arena_free(arena);
}

static void replay(const sim_case *self, const char *instance) {
    dur_error err = DUR_ERROR_INIT;
    dur_execution_list *list = NULL;
    char *histories[EXECUTIONS_MAX] = { NULL };
    size_t count = 0;
    if (dur_client_executions(&list, self->client, instance, &err) != DUR_OK) return;
    bool whole = list->count > 0 && list->items[0]->execution_id == 1 && list->count <= EXECUTIONS_MAX; /* not pruned */
    for (size_t i = 0; whole && i < list->count; i++) {
        if (dur_client_history(&histories[i], self->client, instance, list->items[i]->execution_id, &err) != DUR_OK)
            sim_fail("history of %s: %s", instance, err.message);
        whole = strcmp(histories[i], "[]") != 0; /* ended before its first turn */
        judge_detached(instance, histories[i]);
        count++;
    }
    if (whole) {
        sim_book_close(true);
        int code =
            dur_replay_histories(NULL, sim_handlers(SIM_H_ALL, false), (const char *const *)histories, count, &err);
        sim_book_close(false);
        if (code != DUR_OK)
            sim_fail("the history of %s does not replay: %s: %s", instance, dur_code_name(code), err.message);
    }
    for (size_t i = 0; i < count; i++)
        dur_free(histories[i]);
    dur_execution_list_free(list);
}

/* ---- what waits -------------------------------------------------------------------------------------------------- */

static bool answered(const dur_event *events, size_t count, const dur_event *command) {
    for (size_t i = 0; i < count; i++) {
        if (events[i].has_source_event_id && events[i].source_event_id == command->event_id) return true;
    }
    return false;
}

static bool is_dead(const sim_case *self, const sim_call *call) {
    for (size_t i = 0; i < self->letters->count; i++) {
        const char *mark = strstr(self->letters->items[i]->message, "\"m");
        for (; mark != NULL; mark = strstr(mark + 1, "\"m")) {
            if (strtoul(mark + 2, NULL, 10) == sim_call_number(call)) return true;
        }
    }
    return false;
}

/* To a dequeue that its branch has not come back to. */
static bool was_delivered(const dur_event *events, size_t count, uint32_t message) {
    for (size_t i = 0; i < count; i++) {
        if (events[i].kind == DUR_EVENT_QUEUE_EVENT_DELIVERED && strtoul(events[i].data + 1, NULL, 10) == message)
            return true;
    }
    return false;
}

/* A message that was accepted for this instance since it was started, is due, and was seen by nobody. */
static const sim_call *waiting(const sim_case *self, const dur_instance_info *info, const char *queue,
                               const dur_event *events, size_t count) {
    const sim_ledger *book = sim_book();
    char *rest;
    const sim_call *start = sim_call_at((uint32_t)strtoul(events[0].input, &rest, 10));
    if (*rest != '|' || start == NULL || atomic_load(&start->ended) == 0) return NULL;
    for (uint32_t i = 0; i < atomic_load(&book->call_count) && i < SIM_CALLS_MAX; i++) {
        const sim_call *call = sim_call_at(i);
        if (call != NULL && call->kind == SIM_CALL_SEND && sim_call_faith(call) == SIM_YES &&
            strcmp(call->instance, info->instance) == 0 && strcmp(call->name, queue) == 0 &&
            call->begun > start->ended && call->message_id[0] == '\0' && !sim_hint_has(NULL, i) &&
            call->ended_ms + call->delay_ms + slack(self) < sim_now_ms() && !is_dead(self, call) &&
            !was_delivered(events, count, i))
            return call;
    }
    return NULL;
}

/* A timer is open as long as nothing stands behind it: an arrival, or a command, which may show that the handler has
   got what it waited for without one (a message that was given back) and has dropped the timer. */
static void judge_timers(const sim_case *self, const dur_instance_info *info, const dur_event *events, size_t count) {
    uint64_t now = sim_now_ms();
    for (size_t i = count; i > 0 && events[i - 1].kind == DUR_EVENT_TIMER_CREATED; i--) {
        const dur_event *event = &events[i - 1];
        if (event->fire_at_ms + slack(self) < now)
            sim_fail("timer %llu of %s is due since %llu ms, and everybody sleeps", (unsigned long long)event->event_id,
                     info->instance, (unsigned long long)(now - event->fire_at_ms));
    }
}

/* Deliveries name no subscription: they go to the oldest. */
static bool asks_for(const dur_event *events, size_t count, const char *queue) {
    size_t open = 0, delivered = 0;
    for (size_t i = 0; i < count; i++) {
        if (events[i].name == NULL || strcmp(events[i].name, queue) != 0) continue;
        open += events[i].kind == DUR_EVENT_QUEUE_SUBSCRIBED && !answered(events, count, &events[i]);
        delivered += events[i].kind == DUR_EVENT_QUEUE_EVENT_DELIVERED;
    }
    return open > delivered;
}

static void judge_waits(const sim_case *self, const dur_instance_info *info, const dur_event *events, size_t count) {
    uint64_t now = sim_now_ms();
    for (size_t i = 0; i < count; i++) {
        const dur_event *event = &events[i];
        if (event->kind == DUR_EVENT_ACTIVITY_SCHEDULED && strcmp(event->name, "Taken") != 0 &&
            event->session_id == NULL && event->timestamp_ms + slack(self) < now && !answered(events, count, event))
            sim_fail("activity %llu (%s) of %s waits for %llu ms, and everybody sleeps",
                     (unsigned long long)event->event_id, event->name, info->instance,
                     (unsigned long long)(now - event->timestamp_ms));
    }
    for (unsigned i = 0; i < SIM_QUEUES && count > 0 && events[0].input != NULL; i++) {
        const char *queue = i == 0 ? "q0" : "q1";
        const sim_call *call = asks_for(events, count, queue) ? waiting(self, info, queue, events, count) : NULL;
        if (call != NULL)
            sim_fail("%s waits for %s, message m%u waits for it, and everybody sleeps", info->instance, queue,
                     sim_call_number(call));
    }
}

/* A request to end that was accepted since it was started, and is not in its history. */
static void judge_cancels(const sim_case *self, const dur_instance_info *info, const dur_event *events, size_t count) {
    const sim_ledger *book = sim_book();
    char *rest;
    for (size_t i = 0; i < count; i++) {
        if (events[i].kind == DUR_EVENT_ORCHESTRATION_CANCEL_REQUESTED) return;
    }
    if (count == 0 || events[0].input == NULL) return;
    const sim_call *start = sim_call_at((uint32_t)strtoul(events[0].input, &rest, 10));
    for (uint32_t i = 0; i < atomic_load(&book->call_count) && i < SIM_CALLS_MAX && start != NULL && *rest == '|';
         i++) {
        const sim_call *call = sim_call_at(i);
        if (call != NULL && call->kind == SIM_CALL_CANCEL && sim_call_before(start, call->begun) &&
            sim_call_faith(call) == SIM_YES && strcmp(call->instance, info->instance) == 0 &&
            call->ended_ms + slack(self) < sim_now_ms())
            sim_fail("%s was asked to end by call %u, has not heard, and everybody sleeps", info->instance, i);
    }
    for (size_t i = 0; i < self->instances->count && info->parent != NULL; i++) {
        const dur_instance_info *parent = self->instances->items[i];
        if (strcmp(parent->instance, info->parent) == 0 && parent->status != DUR_INSTANCE_RUNNING &&
            parent->updated_at_ms + slack(self) < sim_now_ms())
            sim_fail("%s goes on, its parent %s has ended, and everybody sleeps", info->instance, info->parent);
    }
}

static bool may_be_delayed(const char *instance) {
    const sim_ledger *book = sim_book();
    for (uint32_t i = 0; i < atomic_load(&book->call_count) && i < SIM_CALLS_MAX; i++) {
        const sim_call *call = sim_call_at(i);
        if (call != NULL && call->kind == SIM_CALL_START && call->delay_ms > 0 &&
            strcmp(call->instance, instance) == 0 && call->begun_ms + call->delay_ms + SLACK_WIRE_MS > sim_now_ms())
            return true;
    }
    return false;
}

static void judge_waiting(const sim_case *self, const dur_instance_info *info) {
    dur_error err = DUR_ERROR_INIT;
    dur_event *events = NULL;
    size_t count = 0;
    char *json = NULL;
    if (info->status != DUR_INSTANCE_RUNNING || info->suspended) return;
    if (info->start_pending) {
        if (info->created_at_ms + slack(self) < sim_now_ms() && !may_be_delayed(info->instance))
            sim_fail("%s waits to begin, and everybody sleeps", info->instance);
        return;
    }
    int code = dur_client_history(&json, self->client, info->instance, 0, &err);
    if (code != DUR_OK) return;
    dur_arena *arena = dur_arena_new();
    dur_text text = { .data = json, .size = strlen(json) };
    code = dur_history_from_json(&events, &count, arena, text, &err);
    if (code != DUR_OK) sim_fail("history of %s: %s", info->instance, err.message);
    judge_waits(self, info, events, count);
    judge_timers(self, info, events, count);
    judge_cancels(self, info, events, count);
    dur_arena_free(arena);
    dur_free(json);
}

void sim_judge_histories(sim_case *self, bool end, bool all_served) {
    for (size_t i = 0; i < self->instances->count; i++) {
        if (end && !was_unheard(self, self->instances->items[i]))
            replay(self, self->instances->items[i]->instance);
        else if (!end && all_served)
            judge_waiting(self, self->instances->items[i]);
    }
}
