/*
 * sim_judge.c: what must hold at a quiet point and at the end, and when the end has come.
 */
#include "sim_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENDS_MAX 512

void sim_case_open(sim_case *self, const sim_run *run) {
    dur_error err = DUR_ERROR_INIT;
    *self = (sim_case){ .run = run, .store = run->provider, .end_max = ENDS_MAX };
    sim_enter(run, SIM_ACTORS_MAX);
    if ((run->provider == NULL && dur_open(&self->store, run->url, &err) != DUR_OK) ||
        dur_client_new(&self->client, self->store, &err) != DUR_OK ||
        dur_client_list(&self->instances, self->client, DUR_LIST(.limit = 1000), &err) != DUR_OK ||
        dur_client_dead_letters(&self->letters, self->client, 0, 1000, &err) != DUR_OK)
        sim_fail("the judge cannot look: %s: %s", err.op, err.message);
    self->ends = calloc(ENDS_MAX, sizeof(*self->ends));
    if (self->ends == NULL) sim_fail("out of memory");
}

void sim_case_close(sim_case *self) {
    free(self->ends);
    dur_instance_list_free(self->instances);
    dur_dead_letter_list_free(self->letters);
    dur_client_free(self->client);
    if (self->run->provider == NULL) dur_provider_close(self->store);
}

/* "… TICKET|FOLD|RECEIVED": where the ticket begins; NULL: there is none. */
static const char *ticket_in(const char *text, size_t *length) {
    const char *bar = strchr(text, '|');
    if (bar == NULL) return NULL;
    const char *start = bar;
    while (start > text && strchr("0123456789.xy", start[-1]) != NULL)
        start--;
    *length = (size_t)(bar - start);
    return *length == 0 || *length >= SIM_TICKET_MAX ? NULL : start;
}

const sim_end *sim_case_find(const sim_case *self, const char *ticket) {
    for (size_t i = 0; i < self->end_count; i++) {
        if (strcmp(self->ends[i].ticket, ticket) == 0) return &self->ends[i];
    }
    return NULL;
}

const sim_end *sim_case_end(sim_case *self, const char *instance, const char *text) {
    size_t length;
    const char *start = ticket_in(text, &length);
    char ticket[SIM_TICKET_MAX];
    if (start == NULL) return NULL;
    snprintf(ticket, sizeof(ticket), "%.*s", (int)length, start);
    sim_end *known = (sim_end *)sim_case_find(self, ticket);
    if (known == NULL) {
        if (self->end_count == self->end_max) return NULL;
        known = &self->ends[self->end_count++];
        sim_copy(known->ticket, sizeof(known->ticket), ticket);
        sim_copy(known->instance, sizeof(known->instance), instance);
        sim_copy(known->text, sizeof(known->text), start);
        return known;
    }
    /* Texts of errors are cut. */
    size_t shared = strlen(known->text) < strlen(start) ? strlen(known->text) : strlen(start);
    if (strncmp(known->text, start, shared) != 0 || (shared < strlen(start) && strlen(known->text) < 400) ||
        strcmp(known->instance, instance) != 0)
        sim_fail("the end of %s is \"%s\" of %s, and was \"%s\" of %s before", ticket, start, instance, known->text,
                 known->instance);
    return known;
}

/* ---- the three moments ------------------------------------------------------------------------------------------- */

static void check_store(const sim_case *self) {
    dur_error err = DUR_ERROR_INIT;
    int code = dur_provider_check(self->store, &err);
    if (code != DUR_OK) sim_fail("dur_provider_check: %s: %s", dur_code_name(code), err.message);
}

void sim_judge_quiet(const sim_run *run, bool all_served) {
    sim_case self;
    sim_case_open(&self, run);
    check_store(&self);
    sim_judge_histories(&self, false, all_served);
    sim_case_close(&self);
}

/* Whoever was asked to end keeps a timer for it, and a parent that gives a child up asks. */
static bool somebody_may_be_cancelled(void) {
    const sim_ledger *book = sim_book();
    for (uint32_t i = 0; i < atomic_load(&book->call_count) && i < SIM_CALLS_MAX; i++) {
        const sim_call *call = sim_call_at(i);
        if (call != NULL && (call->kind == SIM_CALL_CANCEL || call->kind == SIM_CALL_TERMINATE ||
                             (call->kind == SIM_CALL_START && strchr(call->text, 'C') != NULL)))
            return true;
    }
    return false;
}

/* Whoever ends or deletes by force makes the instance stand still; if he dies a node ends it, in a while. */
#define GOING "a client is about to end or to delete it"

static bool is_over(const sim_case *self) {
    dur_error err = DUR_ERROR_INIT;
    dur_store_counts counts = { .size = sizeof(counts) };
    bool over = true;
    for (size_t i = 0; i < self->instances->count; i++) {
        const dur_instance_info *info = self->instances->items[i];
        if (info->suspended) { /* whoever suspended it may be done, or dead */
            dur_instance_info *more = NULL;
            int code = dur_client_info(&more, self->client, info->instance, &err);
            bool going = code == DUR_OK && more->suspend_reason != NULL && strcmp(more->suspend_reason, GOING) == 0;
            if (code == DUR_OK && !going && more->suspend_reason != NULL &&
                strncmp(more->suspend_reason, "call-", 5) != 0)
                sim_fail("%s is suspended: %s", info->instance, more->suspend_reason);
            dur_instance_info_free(more);
            if (!going) {
                code = dur_client_resume(self->client, info->instance, &err);
                sim_note("the judge resumes %s: %s", info->instance, dur_code_name(code));
            }
        }
        /* One that has ended and is held: by who buries what was sent to it, perhaps by a dead node.  What it was given
           is not counted below, and is nowhere else. */
        if (info->status != DUR_INSTANCE_RUNNING && info->owner == NULL) continue;
        sim_note("%s has %s%s; owner %s", info->instance,
                 info->status == DUR_INSTANCE_RUNNING ? "not ended" : "ended, and is not buried",
                 info->start_pending ? ", nor begun" : "", info->owner == NULL ? "none" : info->owner);
        over = false;
    }
    if (dur_client_counts(&counts, self->client, &err) != DUR_OK) sim_fail("the judge cannot count: %s", err.message);
    if (counts.orchestrator_queue > 0 || counts.worker_queue > 0) {
        sim_note("%llu messages and %llu activities wait", (unsigned long long)counts.orchestrator_queue,
                 (unsigned long long)counts.worker_queue);
        return false;
    }
    const sim_ledger *book = sim_book();
    for (uint32_t i = 0; i < atomic_load(&book->call_count) && i < SIM_CALLS_MAX; i++) {
        const sim_call *call = sim_call_at(i);
        if (call == NULL || call->delay_ms == 0) continue;
        /* The delay begins somewhere between the two, and who is frozen is long between them. */
        uint64_t since_ms = call->begun_ms > call->ended_ms ? call->begun_ms : call->ended_ms;
        if (since_ms + call->delay_ms + 3000 > sim_now_ms()) return false;
    }
    if (over && counts.timer_queue > 0 && !somebody_may_be_cancelled())
        sim_fail("all have ended, and %llu timers wait", (unsigned long long)counts.timer_queue);
    return over;
}

bool sim_judge_done(const sim_run *run) {
    sim_case self;
    sim_case_open(&self, run);
    bool over = is_over(&self);
    sim_case_close(&self);
    return over;
}

void sim_judge_end(const sim_run *run) {
    sim_case self;
    sim_case_open(&self, run);
    check_store(&self);
    sim_judge_ends(&self);
    sim_judge_starts(&self);
    sim_judge_messages(&self);
    sim_judge_works(&self);
    sim_judge_histories(&self, true, true);
    sim_case_close(&self);
}

void sim_judge_tell(const sim_run *run) {
    static const char *const names[] = { "starts",  "messages", "events",          "cancels", "terminates",  "suspends",
                                         "resumes", "deletes",  "deletes of many", "prunes",  "dead letters" };
    unsigned counts[11][3] = { { 0 } };
    sim_enter(run, SIM_ACTORS_MAX);
    const sim_ledger *book = sim_book();
    for (uint32_t i = 0; i < atomic_load(&book->call_count) && i < SIM_CALLS_MAX; i++) {
        const sim_call *call = sim_call_at(i);
        if (call != NULL) counts[call->kind][sim_call_faith(call)]++;
    }
    for (size_t i = 0; i < 11; i++) {
        if (counts[i][0] + counts[i][1] + counts[i][2] > 0)
            printf("%s: %u accepted, %u perhaps, %u refused\n", names[i], counts[i][SIM_YES], counts[i][SIM_PERHAPS],
                   counts[i][SIM_NO]);
    }
    unsigned received = 0;
    for (uint32_t i = 0; i < atomic_load(&book->hint_count) && i < SIM_HINTS_MAX; i++)
        received += book->hints[i].message != SIM_NO_MESSAGE;
    printf("flows: %u; received: %u; activities run: %u; ends told: %u\n", atomic_load(&book->hint_count) - received,
           received, atomic_load(&book->work_count), atomic_load(&book->told_count));
}
