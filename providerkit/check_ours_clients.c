/*
 * check_ours_clients.c: our own: start policies, messages to instances that exist, message ids, watching.
 */
#include "kit_internal.h"

static int start(kit *t, const char *instance, dur_exists_policy policy, bool *existed) {
    dur_message_row message = kit_start(t, instance);
    *existed = false;
    return dur_store_enqueue_start(t->p, &message, policy, 0, existed, ERR);
}

static int send(kit *t, dur_message_row message, const char *message_id) {
    message.message_id = message_id;
    return dur_store_enqueue_existing(t->p, &message, 0, ERR);
}

static void ours_start_of_what_exists_fails(kit *t) {
    NEEDS("enqueue_start");
    bool existed;
    MUST(start(t, "a", DUR_EXISTS_FAIL, &existed));
    THAT(!existed);
    REFUSED(DUR_EEXISTS, NULL, start(t, "a", DUR_EXISTS_FAIL, &existed)); /* one is waiting */
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 1);
    REFUSED(DUR_EEXISTS, NULL, start(t, "a", DUR_EXISTS_FAIL, &existed)); /* one is running, uncommitted */
    MUST(ACK(&item, EVENTS(ev_started(1), ev_done(2, "out")), ENDS(COMPLETED, "out")));
    REFUSED(DUR_EEXISTS, NULL, start(t, "a", DUR_EXISTS_FAIL, &existed)); /* one has ended */
    NOTHING();
}

static void ours_start_returns_what_exists(kit *t) {
    NEEDS("enqueue_start");
    bool existed;
    MUST(start(t, "a", DUR_EXISTS_RETURN, &existed));
    THAT(!existed);
    MUST(start(t, "a", DUR_EXISTS_RETURN, &existed));
    THAT(existed);
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 1);
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED));
    MUST(start(t, "a", DUR_EXISTS_RETURN, &existed));
    THAT(existed);
    NOTHING();
}

static void ours_start_replaces_the_finished(kit *t) {
    NEEDS("enqueue_start", "get_instance");
    bool existed;
    kit_create(t, "a");
    kit_create_child(t, "child", "a");
    REFUSED(DUR_EEXISTS, NULL, start(t, "a", DUR_EXISTS_REPLACE_FINISHED, &existed));
    STEP_END("child", 1, COMPLETED, "out", ev_done(2, "out"));
    STEP_END("a", 1, COMPLETED, "out", ev_set(2, "k", "v"), ev_done(3, "out"));
    MUST(start(t, "a", DUR_EXISTS_REPLACE_FINISHED, &existed));
    SAME(kit_history(t, "a", 0, NULL), 0);
    TEXT(kit_value(t, "a", "k"), NULL);
    THAT(!kit_exists(t, "child"));
    dur_orchestration_item item = TAKE("a");
    SAME(item.execution_id, 1);
    SAME(item.history_count, 0);
    MUST(start(t, "new", DUR_EXISTS_REPLACE_FINISHED, &existed));
    TAKE("new");
}

static void ours_delayed_start_exists(kit *t) {
    NEEDS("enqueue_start");
    bool existed = false;
    dur_message_row message = kit_start(t, "a");
    MUST(dur_store_enqueue_start(t->p, &message, DUR_EXISTS_FAIL, 400, &existed, ERR));
    NOTHING();
    REFUSED(DUR_EEXISTS, NULL, start(t, "a", DUR_EXISTS_FAIL, &existed));
    kit_advance(t, 450);
    TAKE("a");
}

static void start_same(kit_thread *self) {
    const dur_message_row *message = self->data;
    bool existed = false;
    self->code = dur_store_enqueue_start(self->t->p, message, DUR_EXISTS_FAIL, 0, &existed, &self->err);
}

static void ours_concurrent_starts_one_wins(kit *t) {
    NEEDS("enqueue_start");
    dur_message_row message = kit_start(t, "a");
    kit_thread *eight = kit_threads(t, 8, start_same, &message);
    size_t won = 0;
    for (size_t i = 0; i < 8; i++) {
        if (eight[i].code != DUR_OK) SAME(eight[i].code, DUR_EEXISTS);
        won += eight[i].code == DUR_OK;
    }
    SAME(won, 1);
    SAME(TAKE("a").message_count, 1);
}

/* Each has its own answer, and what one is refused for is not the others'. */
static void ours_several_starts_answered_one_by_one(kit *t) {
    NEEDS("enqueue_start");
    bool existed;
    kit_create(t, "old");
    MUST(start(t, "waits", DUR_EXISTS_FAIL, &existed));
    dur_message_row items[] = { kit_start(t, "a"),     kit_start(t, "old"), kit_start(t, "b"),
                                kit_start(t, "waits"), kit_start(t, "old"), kit_start(t, "later") };
    dur_start_request starts[] = {
        { .item = &items[0] },
        { .item = &items[1] },
        { .item = &items[2], .policy = DUR_EXISTS_RETURN },
        { .item = &items[3], .policy = DUR_EXISTS_RETURN },
        { .item = &items[4], .policy = DUR_EXISTS_REPLACE_FINISHED },
        { .item = &items[5], .delay_ms = 400 },
    };
    static const dur_code expected[] = { DUR_OK, DUR_EEXISTS, DUR_OK, DUR_OK, DUR_EEXISTS, DUR_OK };
    MUST(dur_store_enqueue_starts(t->p, starts, 6, ERR));
    for (size_t i = 0; i < 6; i++)
        SAME(starts[i].error.code, expected[i]);
    THAT(!starts[0].existed);
    THAT(!starts[2].existed);
    THAT(starts[3].existed);
    for (size_t i = 0; i < 3; i++) {
        dur_orchestration_item item = kit_fetch(t);
        THAT(item.instance != NULL);
        SAME(item.message_count, 1);
        MUST(ACK(&item, EVENTS(ev_started(1)), NAMED));
    }
    NOTHING();
    kit_advance(t, 450);
    TAKE("later");
    MUST(dur_store_enqueue_starts(t->p, starts, 0, ERR));
}

static void ours_of_one_id_in_one_call_one_wins(kit *t) {
    NEEDS("enqueue_start");
    dur_message_row item = kit_start(t, "a");
    dur_start_request twins[] = { { .item = &item }, { .item = &item }, { .item = &item } };
    size_t won = 0;
    MUST(dur_store_enqueue_starts(t->p, twins, 3, ERR));
    for (size_t i = 0; i < 3; i++) {
        if (twins[i].error.code != DUR_OK) SAME(twins[i].error.code, DUR_EEXISTS);
        won += twins[i].error.code == DUR_OK;
    }
    SAME(won, 1);
    SAME(TAKE("a").message_count, 1);
}

static void ours_messages_to_unknown_instances_refused(kit *t) {
    NEEDS("enqueue_existing");
    REFUSED(DUR_ENOTFOUND, NULL, send(t, kit_raised(t, "nobody", "go", ""), NULL));
    REFUSED(DUR_ENOTFOUND, NULL, send(t, kit_queued(t, "nobody", "q", ""), NULL));
    REFUSED(DUR_ENOTFOUND, NULL, send(t, kit_cancel(t, "nobody", "why"), NULL));
    MUST(kit_put(t, kit_start(t, "nobody")));
    MUST(send(t, kit_raised(t, "nobody", "go", ""), NULL)); /* a waiting start is enough */
    SAME(TAKE("nobody").message_count, 2);
}

static void ours_messages_to_ended_instances(kit *t) {
    NEEDS("enqueue_existing");
    kit_create(t, "b");
    kit_create_ended(t, "a", NULL, DUR_STATUS_COMPLETED, "out");
    REFUSED(DUR_ESTATE, NULL, send(t, kit_queued(t, "a", "q", "x"), NULL));
    MUST(send(t, kit_raised(t, "a", "go", ""), NULL));
    MUST(send(t, kit_cancel(t, "a", "why"), NULL));
    MUST(kit_put(t, kit_raised(t, "b", "go", "")));
    dur_orchestration_item one = kit_fetch(t), two = kit_fetch(t); /* both a (perhaps) and b */
    dur_orchestration_item *b = one.instance != NULL && strcmp(one.instance, "b") == 0 ? &one : &two;
    TEXT(b->instance, "b");
    MUST(ACK(b, EVENTS(ev_continued(2, "n")), MESSAGES(kit_next(t, "b", "n")), ENDS(CONTINUED_AS_NEW, "n")));
    MUST(send(t, kit_queued(t, "b", "q", "x"), NULL)); /* continued as new is not an end */
}

static void ours_message_ids_accepted_once(kit *t) {
    NEEDS("enqueue_existing");
    kit_create(t, "a");
    kit_create(t, "b");
    MUST(send(t, kit_raised(t, "a", "go", "1"), "payment-7"));
    REFUSED(DUR_EDUPLICATE, NULL, send(t, kit_raised(t, "a", "go", "2"), "payment-7"));
    MUST(send(t, kit_raised(t, "a", "go", "3"), "payment-8"));
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 2);
    MUST(ACK(&item, EVENTS(ev_external(2, "go"))));
    REFUSED(DUR_EDUPLICATE, NULL, send(t, kit_queued(t, "a", "q", "4"), "payment-7")); /* consumed long ago */
    MUST(send(t, kit_raised(t, "b", "go", "5"), "payment-7"));                         /* another instance */
    item = TAKE("b");
    SAME(item.message_count, 1);
    MUST(ACK(&item, EVENTS(ev_external(2, "go"))));
    kit_continue(t, "a", 1);
    REFUSED(DUR_EDUPLICATE, NULL, send(t, kit_raised(t, "a", "go", "6"), "payment-7"));
    kit_advance(t, t->factory->advance != NULL ? DUR_HOURS(23) : 10);
    REFUSED(DUR_EDUPLICATE, NULL, send(t, kit_raised(t, "a", "go", "7"), "payment-7"));
    NOTHING();
}

/* An id belongs to a queue: which one stands in the key that the message has, and stores keep the whole key. */
static void ours_message_ids_belong_to_a_queue(kit *t) {
    NEEDS("enqueue_existing");
    static const char *const queues[] = { "q", "r", "q/r" };
    kit_create(t, "a");
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < 3; i++) {
            dur_message_row message = { 0 };
            dur_work_item item = { .kind = DUR_WORK_QUEUE_MESSAGE,
                                   .instance = "a",
                                   .name = queues[i],
                                   .data = "1",
                                   .message_id = "payment-7" };
            MUST(dur_message_row_from_work(&message, t->arena, &item, ERR));
            if (again)
                REFUSED(DUR_EDUPLICATE, NULL, dur_store_enqueue_existing(t->p, &message, 0, ERR));
            else
                MUST(dur_store_enqueue_existing(t->p, &message, 0, ERR));
        }
    }
    SAME(TAKE("a").message_count, 3);
}

static void ours_message_ids_go_with_their_instance(kit *t) {
    NEEDS("enqueue_existing", "delete_instances", "get_instance", "list_instances");
    kit_create(t, "a");
    MUST(send(t, kit_raised(t, "a", "go", "1"), "payment-7"));
    MUST(kit_delete(t, "a", true, NULL));
    kit_create(t, "a");
    MUST(send(t, kit_raised(t, "a", "go", "2"), "payment-7"));
    SAME(TAKE("a").message_count, 1);
}

static void ours_delayed_message_to_existing(kit *t) {
    NEEDS("enqueue_existing");
    kit_create(t, "a");
    dur_message_row message = kit_raised(t, "a", "go", "");
    MUST(dur_store_enqueue_existing(t->p, &message, 400, ERR));
    NOTHING();
    kit_advance(t, 450);
    TAKE("a");
}

typedef struct watcher {
    dur_watch *watch;
    dur_turn_commit *commit;
} watcher;

static void watch_or_commit(kit_thread *self) {
    watcher *both = self->data;
    if (self->index == 0) {
        kit_sleep(30);
        self->code = dur_store_ack_orchestration_item(self->t->p, both->commit, &self->err);
    } else {
        self->code = dur_store_watch_wait(both->watch, 5000, &self->err);
    }
}

static void ours_watch_sees_commits(kit *t) {
    NEEDS("watch_open", "watch_wait");
    dur_watch *watch = NULL;
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(dur_store_watch_open(t->p, "a", &watch, ERR));
    int code = dur_store_watch_wait(watch, 50, ERR);
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_status(2, "s")), MESSAGES(kit_raised(t, "a", "go", "")));
    watcher both = { watch, &commit };
    kit_thread *two = kit_threads(t, 2, watch_or_commit, &both);
    /* a commit between two waits is seen by the next */
    item = kit_fetch(t);
    int second = item.instance != NULL ? ACK(&item, EVENTS(ev_status(3, "s"))) : DUR_ENOTFOUND;
    int seen = dur_store_watch_wait(watch, 5000, ERR);
    dur_store_watch_close(watch);
    THAT(code == DUR_OK || code == DUR_ETIMEOUT); /* spurious returns are allowed */
    SAME(two[0].code, DUR_OK);
    SAME(two[1].code, DUR_OK);
    SAME(second, DUR_OK);
    SAME(seen, DUR_OK);
}

const kit_check kit_ours_clients[] = {
    CHECK(ours_start_of_what_exists_fails),
    CHECK(ours_start_returns_what_exists),
    CHECK(ours_start_replaces_the_finished),
    CHECK(ours_delayed_start_exists),
    CHECK(ours_concurrent_starts_one_wins),
    CHECK(ours_several_starts_answered_one_by_one),
    CHECK(ours_of_one_id_in_one_call_one_wins),
    CHECK(ours_messages_to_unknown_instances_refused),
    CHECK(ours_messages_to_ended_instances),
    CHECK(ours_message_ids_accepted_once),
    CHECK(ours_message_ids_belong_to_a_queue),
    CHECK(ours_message_ids_go_with_their_instance),
    CHECK(ours_delayed_message_to_existing),
    CHECK(ours_watch_sees_commits),
    CHECKS_END,
};
