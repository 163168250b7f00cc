/*
 * test_pg_pooled.c: what a store behind a pooler in transaction mode sends: every transaction brings its settings, and
 * none of them makes the server warn.  Functions of libpq are taken over, to see what passes.
 */
#include "pg_help.h"

#include <dlfcn.h>
#include <durite/durite.h>
#include <stdatomic.h>

static struct {
    atomic_int transactions, bare, notices;
    char first[300], notice[300];
} seen;
static _Thread_local int since_sync;  /* statements of the transaction that is being sent */
static _Thread_local bool in_another; /* … which is a part of one that has said what it needs */

#define REAL(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name))

int PQsendQueryParams(PGconn *conn, const char *command, int count, const Oid *types, const char *const *values,
                      const int *lengths, const int *formats, int format) {
    static const char *const wanted[] = { "transaction_isolation", "transaction_read_only", "statement_timeout" };
    if (!in_another && since_sync < 3 && strstr(command, wanted[since_sync]) == NULL) {
        if (atomic_fetch_add(&seen.bare, 1) == 0) snprintf(seen.first, sizeof(seen.first), "%s", command);
        since_sync = 3;
    }
    since_sync++;
    return REAL(PQsendQueryParams)(conn, command, count, types, values, lengths, formats, format);
}

int PQenterPipelineMode(PGconn *conn) {
    in_another = PQtransactionStatus(conn) != PQTRANS_IDLE;
    since_sync = 0;
    return REAL(PQenterPipelineMode)(conn);
}

int PQpipelineSync(PGconn *conn) {
    since_sync = 0;
    atomic_fetch_add(&seen.transactions, 1);
    return REAL(PQpipelineSync)(conn);
}

static void count_notice(void *arg, const PGresult *result) {
    (void)arg;
    if (atomic_fetch_add(&seen.notices, 1) == 0)
        snprintf(seen.notice, sizeof(seen.notice), "%s", PQresultErrorMessage(result));
}

PQnoticeReceiver PQsetNoticeReceiver(PGconn *conn, PQnoticeReceiver receiver, void *arg) {
    (void)receiver;
    return REAL(PQsetNoticeReceiver)(conn, count_notice, arg);
}

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome asks(dur_ctx *ctx, const char *input) {
    dur_await(dur_activity(ctx, "Echo", input));
    return dur_complete(ctx, dur_await(dur_message(ctx, "box")));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ORCHESTRATION("Asks", "1.0.0", asks),
    DUR_HANDLERS_END,
};

static void run_some(pg_bench *p) {
    bench *b = &p->b;
    dur_runtime *runtime = NULL;
    dur_client *client = NULL;
    dur_provider *store = NULL;
    memset(&seen, 0, sizeof(seen));
    ASSERT_OK(b, dur_open(&store, dur_arena_format(b->arena, "%s&pooler=transaction", p->url), &b->err));
    char *result = NULL;
    ASSERT_OK(b, dur_client_new(&client, store, &b->err));
    ASSERT_OK(b, dur_runtime_start(&runtime,
                                   &(dur_runtime_options){
                                       .size = sizeof(dur_runtime_options), .store = store, .handlers = handlers },
                                   &b->err));
    for (int i = 0; i < 5; i++) {
        char id[16];
        snprintf(id, sizeof(id), "i-%d", i);
        ASSERT_OK(b, dur_client_start(client, &b->err, "Asks", "", .instance = id));
        ASSERT_OK(b, dur_client_send(client, &b->err, id, "box", id));
        ASSERT_OK(b, dur_client_result(&result, client, id, 60000, &b->err));
        dur_free(result);
        ASSERT_OK(b, dur_client_delete(NULL, client, id, true, &b->err));
    }
    ASSERT_OK(b, dur_runtime_stop(runtime, 60000, &b->err));
    dur_client_free(client);
    dur_provider_close(store);
}

static void every_transaction_brings_its_settings(void **state) {
    run_some(*state);
    assert_true(atomic_load(&seen.transactions) > 20);
    if (atomic_load(&seen.bare) > 0)
        fail_msg("%d of %d transactions do not say what they need, first: %s", atomic_load(&seen.bare),
                 atomic_load(&seen.transactions), seen.first);
}

static void no_transaction_makes_the_server_warn(void **state) {
    run_some(*state);
    if (atomic_load(&seen.notices) > 0)
        fail_msg("%d notices in %d transactions, first: %s", atomic_load(&seen.notices),
                 atomic_load(&seen.transactions), seen.notice);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(every_transaction_brings_its_settings),
        PG_TEST(no_transaction_makes_the_server_warn),
    };
    PG_MAIN(tests);
}
