/*
 * sim_judge_messages.c: what was accepted was received once or is a dead letter once; in order.
 */
#include "sim_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Is "m12," in a list? */
static bool lists(const char *list, char letter, uint32_t number) {
    char item[24];
    size_t length = (size_t)snprintf(item, sizeof(item), "%c%u,", letter, number);
    for (const char *at = strstr(list, item); at != NULL; at = strstr(at + length, item)) {
        if (at == list || at[-1] == ',' || at[-1] == '|') return true;
    }
    return false;
}

static unsigned times_received(const sim_case *self, char letter, uint32_t number) {
    unsigned count = 0;
    for (size_t i = 0; i < self->end_count; i++)
        count += lists(self->ends[i].text, letter, number);
    return count;
}

static unsigned times_dead(const sim_case *self, uint32_t number) {
    char item[24];
    unsigned count = 0;
    snprintf(item, sizeof(item), "\"m%u\"", number);
    for (size_t i = 0; i < self->letters->count; i++)
        count += strstr(self->letters->items[i]->message, item) != NULL;
    const sim_ledger *book = sim_book();
    for (uint32_t i = 0; count == 0 && i < atomic_load(&book->call_count) && i < SIM_CALLS_MAX; i++) {
        const sim_call *call = sim_call_at(i);
        count += call != NULL && call->kind == SIM_CALL_LETTERS && lists(call->text, 'm', number);
    }
    return count;
}

/* Did a flow see it whose end nobody knows: one that was deleted or terminated, or ended in a cut text? */
static bool seen_by_the_unknown(const sim_case *self, uint32_t number) {
    const sim_ledger *book = sim_book();
    for (uint32_t i = 0; i < atomic_load(&book->hint_count) && i < SIM_HINTS_MAX; i++) {
        const sim_hint *hint = &book->hints[i];
        if (atomic_load(&hint->begun) == 0 || hint->message != number) continue;
        const sim_end *end = sim_case_find(self, hint->ticket);
        if (end == NULL || strlen(end->text) > 400) return true;
    }
    return false;
}

/* Calls with the same message id are one message, as long as nobody deletes its instance. */
static bool group_arrived(const sim_case *self, const sim_call *call) {
    const sim_ledger *book = sim_book();
    for (uint32_t i = 0; i < atomic_load(&book->call_count) && i < SIM_CALLS_MAX; i++) {
        const sim_call *other = sim_call_at(i);
        if (other != NULL && other->kind == SIM_CALL_SEND && strcmp(other->message_id, call->message_id) == 0 &&
            (times_received(self, 'm', i) + times_dead(self, i) > 0 || seen_by_the_unknown(self, i)))
            return true;
    }
    return false;
}

/* May the instance have been another one at some moment between these two?  Then message ids were forgotten. */
static bool may_be_another(const sim_call *first, const sim_call *second) {
    const sim_ledger *book = sim_book();
    uint32_t from = first->begun < second->begun ? first->begun : second->begun;
    uint32_t to = first->ended > second->ended ? first->ended : second->ended;
    if (first->ended == 0 || second->ended == 0) return true;
    for (uint32_t i = 0; i < atomic_load(&book->call_count) && i < SIM_CALLS_MAX; i++) {
        const sim_call *call = sim_call_at(i);
        if (call == NULL || sim_call_faith(call) == SIM_NO || call->begun > to ||
            (sim_call_faith(call) == SIM_YES && call->ended < from))
            continue;
        if ((call->kind == SIM_CALL_START || call->kind == SIM_CALL_DELETE || call->kind == SIM_CALL_DELETE_BULK) &&
            (call->instance[0] == '\0' || strcmp(call->instance, first->instance) == 0))
            return true;
    }
    return false;
}

/* The same message id twice is one message.  (Ids that parents use, too, may be another's without a client's call.) */
static void judge_twins(const sim_case *self, uint32_t number, const sim_call *call) {
    if (call->message_id[0] == '\0' || call->instance[0] == 's' ||
        times_received(self, 'm', number) + times_dead(self, number) == 0)
        return;
    for (uint32_t i = 0; i < number; i++) {
        const sim_call *other = sim_call_at(i);
        if (other != NULL && other->kind == SIM_CALL_SEND && strcmp(other->message_id, call->message_id) == 0 &&
            times_received(self, 'm', i) + times_dead(self, i) > 0 && !may_be_another(other, call))
            sim_fail("messages m%u and m%u to %s have the id %s, and both arrived", i, number, call->instance,
                     call->message_id);
    }
}

static void judge_message(sim_case *self, uint32_t number, const sim_call *call) {
    unsigned received = times_received(self, 'm', number), dead = times_dead(self, number);
    sim_faith faith = sim_call_faith(call);
    if (received + dead > 1)
        sim_fail("message m%u to %s was received %u times and is a dead letter %u times", number, call->instance,
                 received, dead);
    if (received + dead > 0 && faith == SIM_NO)
        sim_fail("message m%u to %s was refused (%s), and arrived", number, call->instance, dur_code_name(call->code));
    if (faith != SIM_YES || received + dead == 1 || seen_by_the_unknown(self, number)) return;
    if (call->message_id[0] != '\0' && group_arrived(self, call)) return;
    sim_fail("message m%u to %s %s was accepted, and is lost", number, call->instance, call->name);
}

/* Of one queue: nothing is received before what was accepted before it was sent. */
static void judge_order(const sim_end *end) {
    uint32_t numbers[SIM_TEXT_MAX / 3];
    size_t count = 0;
    const char *at = strrchr(end->text, '|');
    for (at = at == NULL ? "" : at + 1; *at != '\0'; at++) {
        if (*at == 'm') numbers[count++] = (uint32_t)strtoul(at + 1, NULL, 10);
        at += strcspn(at, ",");
        if (*at == '\0') break;
    }
    for (size_t i = 0; i < count; i++) {
        const sim_call *first = sim_call_at(numbers[i]);
        for (size_t k = i + 1; k < count; k++) {
            const sim_call *second = sim_call_at(numbers[k]);
            if (first == NULL || second == NULL || first->delay_ms > 0 || second->delay_ms > 0 ||
                strcmp(first->name, second->name) != 0)
                continue;
            if (sim_call_before(second, first->begun))
                sim_fail("%s received m%u before m%u, which was accepted before m%u was sent", end->instance,
                         numbers[i], numbers[k], numbers[i]);
        }
    }
}

/* A message that was accepted before a start began is not for that start, nor one that was sent after the next. */
static void judge_birth(const sim_end *end) {
    char *rest;
    const sim_call *start = sim_call_at((uint32_t)strtoul(end->ticket, &rest, 10));
    const sim_ledger *book = sim_book();
    if (*rest != '\0' || start == NULL) return;
    for (uint32_t i = 0; i < atomic_load(&book->call_count) && i < SIM_CALLS_MAX; i++) {
        const sim_call *call = sim_call_at(i);
        if (call == NULL || call->kind != SIM_CALL_SEND || !lists(end->text, 'm', i)) continue;
        if (sim_call_before(call, start->begun))
            sim_fail("%s of start %s received m%u, which was accepted before that start", end->instance, end->ticket,
                     i);
    }
}

void sim_judge_messages(sim_case *self) {
    const sim_ledger *book = sim_book();
    for (uint32_t i = 0; i < atomic_load(&book->call_count) && i < SIM_CALLS_MAX; i++) {
        const sim_call *call = sim_call_at(i);
        if (call != NULL && call->kind == SIM_CALL_SEND) judge_message(self, i, call);
        if (call != NULL && call->kind == SIM_CALL_SEND) judge_twins(self, i, call);
        if (call != NULL && call->kind == SIM_CALL_RAISE && times_received(self, 'e', i) > 1)
            sim_fail("event e%u was received %u times", i, times_received(self, 'e', i));
    }
    for (size_t i = 0; i < self->end_count; i++) {
        judge_order(&self->ends[i]);
        judge_birth(&self->ends[i]);
    }
}
