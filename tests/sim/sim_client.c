/*
 * sim_client.c: clients: start, send, raise, look, wait.  Each step is a function of the seed and of the step's number,
 * which stands in the ledger: whoever opens after a death goes on with the step behind the one in which it died.
 */
#include "sim_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

sim_client *sim_client_open(const sim_seat *seat, bool admin) {
    dur_error err = DUR_ERROR_INIT;
    sim_client *self = calloc(1, sizeof(*self));
    if (self == NULL) sim_fail("out of memory");
    self->run = seat->run;
    self->number = seat->number;
    self->admin = admin;
    int code = DUR_OK;
    if (seat->run->provider == NULL) code = dur_open(&self->store, seat->run->url, &err);
    if (code == DUR_OK)
        code = dur_client_new(&self->client, self->store != NULL ? self->store : seat->run->provider, &err);
    if (code == DUR_OK) return self;
    sim_note("a client does not open: %s: %s", dur_code_name(code), err.message);
    dur_provider_close(self->store);
    free(self);
    return NULL;
}

void sim_client_close(sim_client *self) {
    dur_client_free(self->client);
    dur_provider_close(self->store);
    free(self);
}

/* How long a script is.  A node's is short, and most have none. */
static uint32_t script_length(const sim_client *self) {
    sim_rng rng = sim_stream(self->run->seed, "script", self->number);
    if (self->inside) return (uint32_t)(sim_chance(&rng, 40) ? sim_between(&rng, 1, 8) : 0);
    return (uint32_t)(self->admin ? sim_between(&rng, 4, 14) : sim_between(&rng, 6, 24));
}

#define PAUSE_MAX_MS 2500
#define WAVE_MS 4000 /* a crowd does a few things at once, and waits for the next such moment */
#define WAVE_STEPS 3

static uint64_t draw_pause(const sim_client *self, uint32_t step, uint64_t now, sim_rng *rng) {
    if (sim_crowd(self->run)) return (step + 1) % WAVE_STEPS == 0 ? WAVE_MS - now % WAVE_MS : 0;
    if (sim_chance(rng, 50)) return 0;
    return sim_below(rng, sim_chance(rng, 80) ? 100 : PAUSE_MAX_MS);
}

sim_rest sim_client_step(sim_client *self) {
    sim_ledger *book = sim_book();
    uint64_t now = sim_now_ms();
    uint32_t count = script_length(self);
    /* More than any pause: the clock has gone back meanwhile. */
    if (self->wake_ms > now && self->wake_ms - now <= WAVE_MS)
        return (sim_rest){ .want = SIM_SLEEP, .ms = self->wake_ms - now, .fd = -1 };
    uint32_t step = atomic_load(&book->next[self->number]);
    if (step >= count) return (sim_rest){ .want = SIM_DONE, .fd = -1 };
    atomic_store(&book->next[self->number], step + 1);
    sim_rng rng = sim_stream(self->run->seed, "step", self->number * 1000 + step);
    uint64_t pause = draw_pause(self, step, now, &rng);
    self->wake_ms = now + pause;
    if (self->admin)
        sim_admin_do(self, &rng);
    else
        sim_client_do(self, &rng);
    if (pause == 0) return (sim_rest){ .want = SIM_MORE, .fd = -1 };
    return (sim_rest){ .want = SIM_SLEEP, .ms = pause, .fd = -1 };
}

void sim_answered(const char *call, const char *instance, int code, const dur_error *err) {
    bool broken = code == DUR_EINVAL || code == DUR_ECORRUPT || code == DUR_ESCHEMA || code == DUR_EUNSUPPORTED ||
                  code == DUR_EPERM || code == DUR_ENONDETERMINISM || code == DUR_EDEADLK || code == DUR_EFORKED ||
                  (sim_run_of()->calm && (code == DUR_EIO || code == DUR_EUNKNOWN || code == DUR_EUNAVAILABLE));
    if (broken) sim_fail("%s of %s: %s: %s", call, instance, dur_code_name(code), err->message);
}

/* Mostly one that was started lately: what does not exist refuses everything. */
static bool pick_started(char *out, size_t size, sim_rng *rng) {
    uint32_t count = atomic_load(&sim_book()->call_count), back = (uint32_t)sim_between(rng, 1, 12);
    for (uint32_t i = count; i > 0; i--) {
        const sim_call *call = sim_call_at(i - 1);
        if (call == NULL || call->kind != SIM_CALL_START || call->code != DUR_OK || --back > 0) continue;
        sim_copy(out, size, call->instance);
        return true;
    }
    return false;
}

void sim_pick_id(char *out, size_t size, sim_rng *rng) {
    if (!sim_crowd(sim_run_of()) && sim_chance(rng, 70) && pick_started(out, size, rng)) return;
    sim_pick_any(out, size, rng);
}

void sim_pick_any(char *out, size_t size, sim_rng *rng) {
    if (sim_crowd(sim_run_of()) && sim_chance(rng, 85)) {
        snprintf(out, size, "r%u", (unsigned)(sim_now_ms() / WAVE_MS % SIM_ROOTS));
        return;
    }
    bool shared = sim_chance(rng, 15);
    snprintf(out, size, "%c%u", shared ? 's' : 'r', (unsigned)sim_below(rng, shared ? SIM_SHARED : SIM_ROOTS));
}

/* ---- start ------------------------------------------------------------------------------------------------------- */

#define DELAYED 15 /* percent of the starts, also of ids that parents call */

static void prepare_start(sim_call *call, sim_rng *rng) {
    static const char *const versions[] = { "", "", "", "1.0.0", "2.0.0" };
    sim_copy(call->name, sizeof(call->name), "Flow");
    sim_copy(call->version, sizeof(call->version), versions[sim_below(rng, 5)]);
    call->policy = (uint8_t)sim_below(rng, 3);
    call->delay_ms = sim_chance(rng, DELAYED) ? sim_between(rng, 1, 2000) : 0;
    if (sim_crowd(sim_run_of()) && sim_chance(rng, 70))
        sim_program_make_for_crowd(call->text, SIM_PROGRAM_MAX, rng);
    else
        sim_program_make(call->text, SIM_PROGRAM_MAX, rng, 2);
}

static void start(sim_client *self, sim_call *call) {
    dur_error err = DUR_ERROR_INIT;
    char input[SIM_TEXT_MAX + 32];
    snprintf(input, sizeof(input), "%u|0|1||%s", sim_call_number(call), call->text);
    sim_call_begin(call);
    int code = dur_client_start(self->client, &err, call->name, input, .instance = call->instance,
                                .version = call->version[0] == '\0' ? NULL : call->version, .delay_ms = call->delay_ms,
                                .exists = (dur_start_policy)call->policy);
    sim_call_end(call, code);
    sim_note("start %u of %s policy %u delay %llu: %s: %s", sim_call_number(call), call->instance, call->policy,
             (unsigned long long)call->delay_ms, call->text, dur_code_name(code));
    sim_answered("start", call->instance, code, &err);
}

static void do_start(sim_client *self, sim_rng *rng) {
    char id[SIM_ID_MAX];
    sim_pick_any(id, sizeof(id), rng);
    sim_call *call = sim_call_new(SIM_CALL_START, id);
    if (call == NULL) return;
    prepare_start(call, rng);
    start(self, call);
}

/* Delete what runs, and start the same again under its id: what is on its way to the one must not reach the other. */
static void do_again(sim_client *self, sim_rng *rng) {
    dur_error err = DUR_ERROR_INIT;
    char id[SIM_ID_MAX];
    const sim_call *before = NULL;
    sim_pick_id(id, sizeof(id), rng);
    for (uint32_t i = atomic_load(&sim_book()->call_count); i > 0 && before == NULL; i--) {
        const sim_call *call = sim_call_at(i - 1);
        if (call != NULL && call->kind == SIM_CALL_START && strcmp(call->instance, id) == 0) before = call;
    }
    sim_call *delete = before == NULL ? NULL : sim_call_new(SIM_CALL_DELETE, id);
    sim_call *again = delete == NULL ? NULL : sim_call_new(SIM_CALL_START, id);
    if (again == NULL) return;
    sim_call_begin(delete);
    int code = dur_client_delete(NULL, self->client, id, true, &err);
    sim_call_end(delete, code);
    sim_note("delete %s to start it again: %s", id, dur_code_name(code));
    sim_answered("delete", id, code, &err);
    prepare_start(again, rng);
    sim_copy(again->text, sizeof(again->text), before->text);
    again->delay_ms = 0;
    start(self, again);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* The last that was sent: the next one stands behind it, if it still waits. */
static const sim_call *last_sent(sim_call_kind kind) {
    for (uint32_t i = atomic_load(&sim_book()->call_count); i > 0; i--) {
        const sim_call *call = sim_call_at(i - 1);
        if (call != NULL && call->kind == kind) return call;
    }
    return NULL;
}

static void do_send(sim_client *self, sim_rng *rng, sim_call_kind kind) {
    dur_error err = DUR_ERROR_INIT;
    char id[SIM_ID_MAX], data[24];
    sim_pick_id(id, sizeof(id), rng);
    const sim_call *before = sim_chance(rng, 40) ? last_sent(kind) : NULL;
    sim_call *call = sim_call_new(kind, before != NULL ? before->instance : id);
    if (call == NULL) return;
    bool queue = kind == SIM_CALL_SEND;
    sim_copy(id, sizeof(id), call->instance);
    snprintf(call->name, sizeof(call->name), "%c%u", queue ? 'q' : 'e', (unsigned)sim_below(rng, 2));
    if (before != NULL) sim_copy(call->name, sizeof(call->name), before->name);
    if (queue && sim_chance(rng, 25))
        snprintf(call->message_id, sizeof(call->message_id), "id-%.20s-%s-%u", id, call->name,
                 (unsigned)sim_below(rng, 2));
    call->delay_ms = sim_chance(rng, 10) ? sim_between(rng, 1, 1500) : 0;
    snprintf(data, sizeof(data), "%c%u", queue ? 'm' : 'e', sim_call_number(call));
    sim_call_begin(call);
    dur_message_args args = { .size = sizeof(args),
                              .instance = id,
                              .name = call->name,
                              .data = data,
                              .message_id = call->message_id[0] == '\0' ? NULL : call->message_id,
                              .delay_ms = call->delay_ms };
    int code = queue ? dur_client_send_ex(self->client, &args, &err) : dur_client_pulse_ex(self->client, &args, &err);
    sim_call_end(call, code);
    sim_note("%s to %s %s %s: %s", data, id, call->name, call->message_id, dur_code_name(code));
    sim_answered(queue ? "enqueue" : "raise", id, code, &err);
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

/* On memory nobody else would go on meanwhile. */
static uint64_t draw_timeout(const sim_client *self, sim_rng *rng) {
    return self->run->store == SIM_MEMORY || sim_chance(rng, 40) ? 0 : sim_between(rng, 1, 1500);
}

static void do_result(sim_client *self, sim_rng *rng) {
    dur_error err = DUR_ERROR_INIT;
    char id[SIM_ID_MAX], *out = NULL;
    sim_pick_id(id, sizeof(id), rng);
    uint64_t timeout = draw_timeout(self, rng);
    uint32_t begun = sim_order();
    int code = dur_client_result(&out, self->client, id, timeout, &err);
    if (code == DUR_OK || code == DUR_EFAILED || code == DUR_ECANCELLED)
        sim_told_add(begun, id, code, code == DUR_OK ? out : err.message);
    sim_note("result of %s: %s: %s", id, dur_code_name(code), code == DUR_OK ? out : err.message);
    sim_answered("result", id, code, &err);
    dur_free(out);
}

static void do_wait(sim_client *self, sim_rng *rng) {
    dur_error err = DUR_ERROR_INIT;
    dur_instance_info *info = NULL;
    char id[SIM_ID_MAX], *value = NULL;
    sim_pick_id(id, sizeof(id), rng);
    uint64_t timeout = draw_timeout(self, rng);
    int code = DUR_OK;
    switch (sim_below(rng, 3)) {
    case 0:
        code = dur_client_wait(&info, self->client, id, timeout, &err);
        if (code == DUR_OK && info->status == DUR_INSTANCE_RUNNING && !info->suspended)
            sim_fail("wait for %s has ended, and it runs", id);
        break;
    case 1:
        code = dur_client_kv_wait(&value, self->client, id, "k1", timeout, &err);
        break;
    default:
        code = dur_client_wait_status(&info, self->client, id, 0, timeout, &err);
    }
    sim_note("wait for %s: %s", id, dur_code_name(code));
    sim_answered("wait", id, code, &err);
    dur_instance_info_free(info);
    dur_free(value);
}

/* Keys and status begin with the ticket of whoever wrote them: it must be of this id. */
static void expect_own(const char *what, const char *id, const char *text) {
    char *rest;
    if (text == NULL) return;
    const sim_call *call = sim_call_at((uint32_t)strtoul(text, &rest, 10));
    if (*rest != '.' && (call == NULL || call->kind != SIM_CALL_START || strcmp(call->instance, id) != 0))
        sim_fail("%s of %s is \"%s\"", what, id, text);
}

static void do_info(sim_client *self, sim_rng *rng) {
    dur_error err = DUR_ERROR_INIT;
    dur_instance_info *info = NULL;
    char id[SIM_ID_MAX], *value = NULL;
    dur_kv_list *keys = NULL;
    dur_client_stats stats = { .size = sizeof(stats) };
    sim_pick_id(id, sizeof(id), rng);
    int code = dur_client_info(&info, self->client, id, &err);
    if (code == DUR_OK && (strcmp(info->instance, id) != 0 || info->status == DUR_INSTANCE_NOT_FOUND))
        sim_fail("info of %s is of %s, %s", id, info->instance, dur_instance_status_name(info->status));
    sim_answered("info", id, code, &err);
    if (code == DUR_OK) expect_own("the status", id, info->custom_status);
    dur_instance_info_free(info);
    code = dur_client_kv_get(&value, self->client, id, "k0", &err);
    sim_answered("kv_get", id, code, &err);
    expect_own("a key", id, code == DUR_OK ? value : NULL);
    dur_free(value);
    code = dur_client_kv_all(&keys, self->client, id, &err);
    sim_answered("kv_all", id, code, &err);
    for (size_t i = 0; code == DUR_OK && i < keys->count; i++)
        expect_own("a key", id, keys->values[i]);
    if (code == DUR_OK) dur_kv_list_free(keys);
    sim_answered("stats", id, dur_client_stats_get(&stats, self->client, id, &err), &err);
}

/* ---- many -------------------------------------------------------------------------------------------------------- */

static void do_runs(sim_client *self, sim_rng *rng) {
    dur_error err = DUR_ERROR_INIT;
    dur_runs *runs = NULL;
    const dur_run *run = NULL;
    sim_call *calls[3] = { NULL };
    size_t count = (size_t)sim_between(rng, 1, 3);
    if (dur_runs_new(&runs, self->client, &err) != DUR_OK) return;
    for (size_t i = 0; i < count; i++) {
        char id[SIM_ID_MAX], input[SIM_TEXT_MAX + 32];
        sim_pick_any(id, sizeof(id), rng);
        calls[i] = sim_call_new(SIM_CALL_START, id);
        if (calls[i] == NULL) continue;
        prepare_start(calls[i], rng);
        snprintf(input, sizeof(input), "%u|0|1||%s", sim_call_number(calls[i]), calls[i]->text);
        sim_call_begin(calls[i]); /* perhaps, from here on */
        int taken = dur_runs_start(runs, &err, calls[i]->name, input, .instance = id, .data = calls[i],
                                   .version = calls[i]->version[0] == '\0' ? NULL : calls[i]->version,
                                   .delay_ms = calls[i]->delay_ms, .exists = (dur_start_policy)calls[i]->policy);
        sim_answered("runs_start", id, taken, &err);
        sim_note("runs: start %u of %s policy %u delay %llu: %s", sim_call_number(calls[i]), id, calls[i]->policy,
                 (unsigned long long)calls[i]->delay_ms, calls[i]->text);
    }
    bool flushed = dur_runs_flush(runs, &err) == DUR_OK;
    uint32_t begun = sim_order();
    int code;
    while ((code = dur_runs_next(&run, runs, draw_timeout(self, rng), &err)) == DUR_OK) {
        sim_call *call = run->data;
        const char *text = run->code == DUR_OK ? run->output : run->error;
        sim_note("runs: start %u of %s: %s: %s", sim_call_number(call), run->instance, dur_code_name(run->code), text);
        sim_call_end(call, run->code == DUR_EFAILED || run->code == DUR_ECANCELLED || run->code == DUR_ESUSPENDED ||
                                   run->code == DUR_ENOTFOUND
                               ? DUR_OK
                               : run->code);
        if (run->code == DUR_OK || run->code == DUR_EFAILED || run->code == DUR_ECANCELLED)
            sim_told_add(begun, run->instance, run->code, text);
        /* Nobody is told the end of the one before, nor of the next, started under the id when ours was deleted. */
        uint32_t whose = (uint32_t)strtoul(run->code == DUR_OK ? text : "", NULL, 10);
        if (run->code == DUR_OK && call->policy != DUR_START_RETURN_EXISTING && whose != sim_call_number(call))
            sim_fail("start %u of %s was told another's end: %s", sim_call_number(call), run->instance, text);
    }
    /* Behind a flush every start is durable or refused, and refusals have been told now. */
    for (size_t i = 0; i < count && flushed && (code == DUR_ETIMEOUT || code == DUR_ESTATE); i++) {
        if (calls[i] != NULL && atomic_load(&calls[i]->ended) == 0) sim_call_end(calls[i], DUR_OK);
    }
    dur_runs_free(runs);
}

void sim_client_do(sim_client *self, sim_rng *rng) {
    uint64_t choice = sim_below(rng, sim_crowd(self->run) ? 75 : 100);
    if (choice < 26)
        do_start(self, rng);
    else if (choice < 34)
        do_again(self, rng);
    else if (choice < 65)
        do_send(self, rng, SIM_CALL_SEND);
    else if (choice < 73)
        do_send(self, rng, SIM_CALL_RAISE);
    else if (choice < 85)
        do_result(self, rng);
    else if (choice < 88)
        do_info(self, rng);
    else if (choice < 90)
        do_wait(self, rng);
    else if (choice < 94)
        do_runs(self, rng);
    else
        sim_admin_do(self, rng);
}
