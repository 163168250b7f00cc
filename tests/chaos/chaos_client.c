/*
 * chaos_client.c: a client: starts orders, sends to them, waits for them; one call at a time.
 *
 * Each call is in the ledger before it is made ("call-…") and when it has been answered ("ok-…", "no-…").  What has no
 * answer may have happened or not.  A call whose outcome is not known is repeated, under the same id.
 */
#include "chaos.h"
#include "chaos_flow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPEN_MAX = 8 };

typedef struct order {
    char id[40];
    unsigned sent, wanted;
    bool waits; /* the client waits for its result */
} order;

typedef struct actor {
    dur_client *client;
    const char *name;
    unsigned seed, count;
    order open[OPEN_MAX];
} actor;

static bool again(int code, const dur_error *err) {
    if (is_told || (code != DUR_EUNKNOWN && !(code != DUR_OK && err->retryable))) return false;
    pause_ms(20);
    return true;
}

/* False: refused, or we are to end. */
static bool answered(const char *what, int code, const dur_error *err, const char *id, const char *message) {
    char kind[24], reason[600];
    if (code == DUR_EUNKNOWN || (code != DUR_OK && err->retryable)) return false; /* given up: nobody knows */
    bool accepted = code == DUR_OK || code == DUR_EDUPLICATE;
    snprintf(kind, sizeof(kind), "%s-%s", accepted ? "ok" : "no", what);
    snprintf(reason, sizeof(reason), "%s %s", dur_code_name(code), accepted ? "" : err->message);
    ledger(kind, id, message, reason);
    return accepted;
}

static void start_order(actor *self, order *at) {
    dur_error err = DUR_ERROR_INIT;
    char input[40];
    int code;
    snprintf(at->id, sizeof(at->id), "%s-%u", self->name, ++self->count);
    snprintf(input, sizeof(input), "%d|", rand_r(&self->seed) % 100000);
    at->sent = 0;
    at->wanted = 1 + (unsigned)rand_r(&self->seed) % 6;
    at->waits = rand_r(&self->seed) % 4 == 0;
    ledger("call-start", at->id, "", "");
    do
        code = dur_client_start(self->client, &err, "Order", input, .instance = at->id,
                                .exists = DUR_START_RETURN_EXISTING);
    while (again(code, &err));
    if (!answered("start", code, &err, at->id, "")) at->id[0] = '\0';
}

static bool send_to(actor *self, const char *id, const char *message, uint64_t delay_ms) {
    dur_error err = DUR_ERROR_INIT;
    int code;
    ledger(delay_ms > 0 ? "call-later" : "call-send", id, message, "");
    do
        code = dur_client_send(self->client, &err, id, "box", message, .message_id = message, .delay_ms = delay_ms);
    while (again(code, &err));
    return answered("send", code, &err, id, message);
}

/* An event that nobody waits for has no effect: nothing depends on it. */
static void raise_at(actor *self, const char *id) {
    dur_error err = DUR_ERROR_INIT;
    (void)dur_client_pulse(self->client, &err, id, "Go", "x");
}

static void wait_for(actor *self, const char *id) {
    dur_error err = DUR_ERROR_INIT;
    char *output = NULL;
    int code;
    uint64_t end_ms = now_ms() + 3000;
    do
        code = dur_client_result(&output, self->client, id, 1000, &err);
    while ((code == DUR_ETIMEOUT || again(code, &err)) && !is_told && now_ms() < end_ms);
    if (code == DUR_OK) ledger("told", id, output, "");
    if (code == DUR_EFAILED || code == DUR_ECANCELLED || code == DUR_ESUSPENDED)
        ledger("told-failed", id, err.message, "");
    dur_free(output);
}

static void end_order(actor *self, order *at) {
    char message[60];
    snprintf(message, sizeof(message), "end:%s", at->id);
    bool sent = send_to(self, at->id, message, 0);
    snprintf(message, sizeof(message), "late:%s", at->id); /* a dead letter, or refused */
    if (sent && rand_r(&self->seed) % 4 == 0) (void)send_to(self, at->id, message, 0);
    if (sent && at->waits) wait_for(self, at->id);
    at->id[0] = '\0';
}

static void step(actor *self) {
    order *at = &self->open[(size_t)rand_r(&self->seed) % OPEN_MAX];
    char message[60];
    if (at->id[0] == '\0') {
        start_order(self, at);
    } else if (at->sent == at->wanted) {
        end_order(self, at);
    } else if (rand_r(&self->seed) % 5 == 0) {
        raise_at(self, at->id);
    } else {
        snprintf(message, sizeof(message), "m%u:%s", ++at->sent, at->id);
        if (!send_to(self, at->id, message, rand_r(&self->seed) % 8 == 0 ? 200 : 0)) at->id[0] = '\0';
    }
}

int client_main(const char *url, const char *name, unsigned seed) {
    actor self = { .name = name, .seed = seed };
    dur_error err = DUR_ERROR_INIT;
    listen_to_sigterm();
    (void)dur_log_set_sink(dur_log_text, stderr, DUR_LOG_INFO);
    dur_provider *store = open_somehow(url);
    if (store == NULL) return is_told ? 0 : 1;
    if (dur_client_new(&self.client, store, &err) != DUR_OK) return 1;
    while (!is_told) {
        step(&self);
        pause_ms(20);
    }
    dur_client_free(self.client);
    dur_provider_close(store);
    return 0;
}
