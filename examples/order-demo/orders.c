/*
 * orders.c: the shop's handlers: what happens to an order, and the activities that touch the shop's own tables.
 *
 * The tables live in the same file as the store.  Each activity writes them in a transaction of its own, under
 * dur_act_key, which is the same for every delivery and every retry: at-least-once becomes exactly-once.
 */
#include "orders.h"
#include <durite/sqlite.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

enum {
    DECLINED_EVERY = 7, /* these orders' cards are declined */
    NEVER_SHIPPED_EVERY = 11,
    SHIPPING_MS = 400, /* at least; spread over SHIPPING_SPREAD_MS */
    SHIPPING_SPREAD_MS = 4000,
    DEADLINE_MS = 6000,
};

static unsigned long order_number(const char *order_id) {
    return strtoul(order_id + strcspn(order_id, "0123456789"), NULL, 10);
}

/* One INSERT OR IGNORE into a table of the shop, in the activity's own transaction on the store's file. */
static dur_outcome write_once(dur_act *act, const char *sql, const char *key, const char *second, const char *third) {
    dur_error err = DUR_ERROR_INIT;
    sqlite3_stmt *insert = NULL;
    sqlite3 *db = dur_act_sqlite(act, &err);
    if (db == NULL || dur_sqlite_begin(dur_act_store(act), db, &err) != DUR_OK) return dur_act_fail(act, err.message);
    bool written = sqlite3_prepare_v2(db, sql, -1, &insert, NULL) == SQLITE_OK &&
                   sqlite3_bind_text(insert, 1, key, -1, SQLITE_TRANSIENT) == SQLITE_OK &&
                   sqlite3_bind_text(insert, 2, second, -1, SQLITE_TRANSIENT) == SQLITE_OK &&
                   (third == NULL || sqlite3_bind_text(insert, 3, third, -1, SQLITE_TRANSIENT) == SQLITE_OK) &&
                   sqlite3_step(insert) == SQLITE_DONE;
    sqlite3_finalize(insert);
    if (!written) {
        dur_outcome failed = dur_act_failf(act, "ledger: %s", sqlite3_errmsg(db));
        dur_sqlite_rollback(dur_act_store(act), db, NULL);
        return failed;
    }
    if (dur_sqlite_commit(dur_act_store(act), db, &err) != DUR_OK) return dur_act_fail(act, err.message);
    return dur_act_complete(act, key);
}

static dur_outcome ledger(dur_act *act, const char *order_id, const char *kind) {
    return write_once(act, "INSERT OR IGNORE INTO ledger(key, order_id, kind) VALUES (?1, ?2, ?3)", dur_act_key(act),
                      order_id, kind);
}

static dur_outcome reserve(dur_act *act, const char *order_id) {
    return dur_act_completef(act, "shelf-%lu", order_number(order_id) % 10);
}

static dur_outcome release(dur_act *act, const char *slot) {
    return dur_act_complete(act, slot);
}

static dur_outcome charge(dur_act *act, const char *order_id) {
    if (order_number(order_id) % DECLINED_EVERY == 0) return dur_act_fail_final(act, "card declined");
    return ledger(act, order_id, "charge");
}

static dur_outcome refund(dur_act *act, const char *order_id) {
    return ledger(act, order_id, "refund");
}

/* Hands the parcel over; the carrier's message comes later, or never.  The message id makes a repeated delivery
 * harmless. */
static dur_outcome hand_over(dur_act *act, const char *order_id) {
    dur_error err = DUR_ERROR_INIT;
    unsigned long n = order_number(order_id);
    if (n % NEVER_SHIPPED_EVERY == 0) return dur_act_complete(act, "lost in the mail");
    int code = dur_client_send(dur_act_client(act), &err, order_id, "Shipped", "tracking",
                               .message_id = dur_act_key(act), .delay_ms = SHIPPING_MS + n * 37 % SHIPPING_SPREAD_MS);
    if (code != DUR_OK) return dur_act_fail(act, err.message);
    return dur_act_complete(act, "handed over");
}

/* input: "state order_id" */
static dur_outcome confirm(dur_act *act, const char *input) {
    const char *space = strchr(input, ' ');
    const char *state = dur_act_format(act, "%.*s", (int)(space - input), input);
    return write_once(act, "INSERT OR IGNORE INTO orders(order_id, state) VALUES (?1, ?2)", space + 1, state, NULL);
}

static const dur_retry patient = {
    .size = sizeof(dur_retry), .attempts_max = 20, .delay_ms = 20, .delay_ms_max = 1000
};

/* The good way of an order; any failure ends this branch and the caller compensates. */
static dur_outcome fulfil(dur_ctx *ctx, void *arg) {
    dur_saga *saga = arg;
    const char *order_id = dur_instance_id(ctx);
    const char *slot = dur_await(dur_activity(ctx, "Reserve", order_id, .retry = &patient));
    dur_saga_undo(saga, "Release", slot, .retry = &patient);
    dur_await(dur_activity(ctx, "Charge", order_id, .retry = &patient));
    dur_saga_undo(saga, "Refund", order_id, .retry = &patient);
    dur_await(dur_activity(ctx, "HandOver", order_id, .retry = &patient));
    dur_status_set(ctx, "shipping");
    dur_future *shipped = dur_message(ctx, "Shipped");
    dur_future *late = dur_timer(ctx, DEADLINE_MS);
    if (dur_select(shipped, late) == late) return dur_fail(ctx, "not shipped in time");
    return dur_complete(ctx, "shipped");
}

static dur_outcome order(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_saga *saga = dur_saga_begin(ctx);
    dur_future *done = dur_spawn(ctx, fulfil, saga);
    const char *state = "shipped";
    if (dur_try(done, NULL) != DUR_OK) {
        dur_trace(ctx, DUR_LOG_INFO, "compensating: %s", dur_reason(done));
        dur_saga_compensate(saga);
        state = "compensated";
    }
    dur_await(dur_activity(ctx, "Confirm", dur_format(ctx, "%s %s", state, dur_instance_id(ctx)), .retry = &patient));
    return dur_complete(ctx, state);
}

const dur_handler order_handlers[] = {
    DUR_ACTIVITY("Reserve", reserve),
    DUR_ACTIVITY("Release", release),
    DUR_ACTIVITY("Charge", charge),
    DUR_ACTIVITY("Refund", refund),
    DUR_ACTIVITY("HandOver", hand_over),
    DUR_ACTIVITY("Confirm", confirm),
    DUR_ORCHESTRATION("Order", "1.0.0", order),
    DUR_HANDLERS_END,
};
