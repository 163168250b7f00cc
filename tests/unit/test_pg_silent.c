/*
 * test_pg_silent.c: sessions that break off, or go silent, while they are being set up.
 */
#include "pg_flow.h"
#include "pg_proxy.h"

#include <stdatomic.h>

/*
 * A node for each number of pieces of an answer behind which its new sessions break off: somewhere among connecting,
 * settings, the sign of life, the comparison of leases, the end of the lost session and what it had claimed.  Each
 * serves a handler of its own, so nobody takes over what one of them has forgotten.
 */
enum { NODES = 13, BROKEN = 2, ANSWER_MS = 40000 };

typedef struct node {
    proxy x;
    dur_provider *store;
    dur_runtime *runtime;
    char handler[24];
    dur_handler handlers[2];
} node;

static dur_outcome waits(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_await(dur_message(ctx, "M"));
    dur_await(dur_timer(ctx, 20));
    return dur_complete(ctx, dur_await(dur_message(ctx, "M")));
}

static bool node_start(pg_bench *p, node *n, int number) {
    if (!proxy_open(&n->x, "no such text")) return false;
    n->store = proxy_store(&n->x, p);
    snprintf(n->handler, sizeof(n->handler), "Waits%d", number);
    n->handlers[0] = (dur_handler)DUR_ORCHESTRATION(n->handler, "1.0.0", waits);
    n->handlers[1] = (dur_handler)DUR_HANDLERS_END;
    ASSERT_OK(&p->b, dur_runtime_start(&n->runtime,
                                       DUR_RUNTIME(.store = n->store, .handlers = n->handlers, .owner_timeout_ms = 1000,
                                                   .orchestration_concurrency = 1),
                                       &p->b.err));
    return true;
}

static void all_end(pg_bench *p, dur_client *client, node *nodes, int round) {
    for (int i = 0; i < NODES; i++) {
        char id[48];
        snprintf(id, sizeof(id), "%s-%d", nodes[i].handler, round);
        ASSERT_OK(&p->b, dur_client_send(client, &p->b.err, id, "M", "first"));
        ASSERT_OK(&p->b, dur_client_send(client, &p->b.err, id, "M", "second"));
    }
    for (int i = 0; i < NODES; i++) {
        char id[48], *result = NULL;
        snprintf(id, sizeof(id), "%s-%d", nodes[i].handler, round);
        int code = dur_client_result(&result, client, id, ANSWER_MS, &p->b.err);
        if (code != DUR_OK) fail_msg("sessions that break off behind %d pieces: %s", i, p->b.err.message);
        assert_string_equal(result, "second");
        dur_free(result);
    }
}

/* Once their new sessions end, then they stay and say nothing. */
static void fault_h186_a_new_session_that_goes_silent_is_given_up(void **state) {
    pg_bench *p = *state;
    static node nodes[NODES]; /* outlives a failure */
    dur_client *client;
    memset(nodes, 0, sizeof(nodes));
    ASSERT_OK(&p->b, dur_client_new(&client, p->b.store, &p->b.err));
    for (int i = 0; i < NODES; i++)
        if (!node_start(p, &nodes[i], i)) skip();
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < NODES; i++) {
            char id[48];
            snprintf(id, sizeof(id), "%s-%d", nodes[i].handler, round);
            ASSERT_OK(&p->b, dur_client_start(client, &p->b.err, nodes[i].handler, "", .instance = id));
            atomic_store(&nodes[i].x.break_behind, i);
            atomic_store(&nodes[i].x.breaks_silently, round == 1);
        }
        for (int i = 0; i < NODES; i++) {
            char sql[200];
            snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s.dur_instances WHERE instance_id = '%s-%d' AND has_row",
                     p->schema, nodes[i].handler, round);
            while (pg_number(p->db, sql) == 0)
                pg_pause_ms(5);
            atomic_store(&nodes[i].x.to_break, BROKEN);
            atomic_fetch_add(&nodes[i].x.ended, 1);
        }
        all_end(p, client, nodes, round);
    }
    for (int i = 0; i < NODES; i++) {
        ASSERT_OK(&p->b, dur_runtime_stop(nodes[i].runtime, DUR_SECONDS(20), &p->b.err));
        dur_provider_close(nodes[i].store);
        proxy_close(&nodes[i].x);
    }
    ASSERT_OK(&p->b, dur_provider_check(p->b.store, &p->b.err));
    dur_client_free(client);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(fault_h186_a_new_session_that_goes_silent_is_given_up),
    };
    signal(SIGPIPE, SIG_IGN); /* of the proxies */
    PG_MAIN(tests);
}
