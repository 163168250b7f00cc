/*
 * check_ours_races.c: our own: what two do at once.  Each race is run several times; what must hold holds whoever wins.
 */
#include "kit_internal.h"

enum { ROUNDS = 6, THREADS = 6 };

/* ---- one of many ------------------------------------------------------------------------------------------------- */

static size_t winners(kit *t, const kit_thread *threads, size_t count, dur_code others) {
    size_t won = 0;
    for (size_t i = 0; i < count; i++) {
        if (threads[i].code != DUR_OK) SAME(threads[i].code, others);
        won += threads[i].code == DUR_OK;
    }
    return won;
}

static void send_same(kit_thread *self) {
    self->code = dur_store_enqueue_existing(self->t->p, self->data, 0, &self->err);
}

static void ours_one_message_id_is_accepted_once_of_many(kit *t) {
    NEEDS("enqueue_existing");
    kit_create(t, "a");
    for (int i = 0; i < ROUNDS; i++) {
        dur_message_row message = kit_queued(t, "a", "q", "x");
        message.message_id = kit_format(t, "payment-%d", i);
        SAME(winners(t, kit_threads(t, THREADS, send_same, &message), THREADS, DUR_EDUPLICATE), 1);
    }
    SAME(TAKE("a").message_count, ROUNDS);
}

typedef struct ending {
    const char *token;
    dur_turn_commit turns[THREADS];
    dur_message_row completions[THREADS];
} ending;

static void ack_same(kit_thread *self) {
    ending *all = self->data;
    self->code = dur_store_ack_orchestration_item(self->t->p, &all->turns[self->index], &self->err);
}

static void ack_same_work(kit_thread *self) {
    ending *all = self->data;
    self->code = dur_store_ack_work_item(self->t->p, all->token, &all->completions[self->index], &self->err);
}

static void ours_one_token_is_acked_once_of_many(kit *t) {
    ending all;
    kit_create(t, "a");
    for (uint64_t i = 0; i < ROUNDS; i++) {
        MUST(kit_put(t, kit_raised(t, "a", "go", "")));
        dur_orchestration_item item = TAKE("a");
        for (uint64_t k = 0; k < THREADS; k++) /* no two events are the same: only the token can tell */
            all.turns[k] = COMMIT_OF(&item, EVENTS(ev_external(100 * i + k + 2, "go")), WORK(kit_activity(t, "a", i)));
        SAME(winners(t, kit_threads(t, THREADS, ack_same, &all), THREADS, DUR_ELEASE), 1);
        SAME(kit_history(t, "a", 1, NULL), i + 2);
        dur_leased_work work = TAKE_WORK(i);
        NO_WORK();
        all.token = work.lock_token;
        for (uint64_t k = 0; k < THREADS; k++)
            all.completions[k] = kit_finished(t, "a", 1, i, "r");
        SAME(winners(t, kit_threads(t, THREADS, ack_same_work, &all), THREADS, DUR_ELEASE), 1);
        item = TAKE("a");
        SAME(item.message_count, 1);
        MUST(ACK(&item, .event_count = 0));
    }
}

/* ---- a message on its way, and a lease that is given back -------------------------------------------------------- */

enum { SENT = 40 };

typedef struct traffic {
    dur_message_row messages[SENT];
    uint64_t seen[SENT];
    size_t seen_count;
} traffic;

static void send_or_release(kit_thread *self) {
    traffic *all = self->data;
    dur_provider *p = self->t->p;
    if (self->index == 0) {
        for (size_t i = 0; i < SENT && self->code == DUR_OK; i++)
            self->code = dur_store_enqueue_for_orchestrator(p, &all->messages[i], 0, &self->err);
        return;
    }
    for (int i = 0; i < 60 && self->code == DUR_OK; i++) { /* takes what it is given, and says so */
        dur_orchestration_item item = { .instance = NULL };
        dur_fetch how = { .lock_ms = 100 * self->t->lock_ms, .max = 1 };
        size_t count = 0;
        uint64_t now_ms = dur_store_now_ms(p);
        self->code = dur_store_fetch_turns(p, self->arena, &how, &item, &count, &self->err);
        if (self->code != DUR_OK || count == 0) continue;
        uint64_t ids[SENT];
        for (size_t k = 0; k < item.message_count && k < SENT; k++) {
            ids[k] = item.messages[k].id;
            if (all->seen_count < SENT) all->seen[all->seen_count++] = ids[k];
        }
        dur_turn_commit turn = { .lock_token = item.lock_token,
                                 .instance = item.instance,
                                 .store_key = item.store_key,
                                 .expected_last = DUR_NOT_COMPARED,
                                 .consume_listed = true,
                                 .consumed = ids,
                                 .consumed_count = item.message_count,
                                 .seen_id = item.message_count > 0 ? ids[item.message_count - 1] : 0,
                                 .seen_now_ms = now_ms };
        self->code = dur_store_commit_turns(p, &turn, 1, &self->err);
        if (self->code == DUR_OK) self->code = (int)turn.error.code;
    }
}

/* "Up to this id" is said of what was handed out; what came meanwhile is a reason to fetch. */
static void ours_message_beside_a_release_is_found(kit *t) {
    NEEDS("fetch_turns", "commit_turns");
    traffic all = { .seen_count = 0 };
    kit_create(t, "a");
    for (size_t i = 0; i < SENT; i++)
        all.messages[i] = kit_raised(t, "a", kit_format(t, "m%zu", i), "");
    kit_thread *two = kit_threads(t, 2, send_or_release, &all);
    SAME(two[0].code, DUR_OK);
    SAME(two[1].code, DUR_OK);
    size_t left = 0;
    dur_orchestration_item item = kit_fetch(t);
    if (item.instance != NULL) {
        left = item.message_count;
        for (size_t i = 0; i < left; i++)
            for (size_t k = 0; k < all.seen_count; k++)
                THAT(item.messages[i].id != all.seen[k]);
    }
    SAME(all.seen_count + left, SENT);
}

/* ---- parents and children ---------------------------------------------------------------------------------------- */

typedef struct family {
    const char *parent;
    dur_turn_commit *child;
} family;

static void delete_or_be_born(kit_thread *self) {
    family *both = self->data;
    if (self->index == 0) {
        dur_delete_result gone;
        self->code = dur_store_delete_instances(self->t->p, &both->parent, 1, true, &gone, &self->err);
        return;
    }
    self->code = dur_store_commit_turns(self->t->p, both->child, 1, &self->err);
    if (self->code == DUR_OK) self->code = (int)both->child->error.code;
}

static void ours_no_child_outlives_its_parent(kit *t) {
    NEEDS("commit_turns", "delete_instances", "get_instance");
    for (int i = 0; i < ROUNDS; i++) {
        const char *parent = kit_format(t, "parent-%d", i), *child = kit_format(t, "child-%d", i);
        kit_create(t, parent);
        MUST(kit_put(t, kit_child(t, child, parent, 2)));
        dur_orchestration_item item = TAKE(child);
        dur_turn_commit first = COMMIT_OF(&item, EVENTS(ev_started(1)), NAMED_CHILD_OF(parent));
        first.needs_parent = true;
        family both = { parent, &first };
        kit_thread *two = kit_threads(t, 2, delete_or_be_born, &both);
        if (two[0].code != DUR_OK) SAME(two[0].code, DUR_ECHILD);
        if (two[1].code != DUR_OK) SAME(first.fault, DUR_TURN_ORPHAN);
        THAT((two[0].code == DUR_OK) != (two[1].code == DUR_OK)); /* one of them came first */
        THAT(kit_exists(t, parent) == kit_exists(t, child));
        if (two[1].code != DUR_OK) MUST(ACK(&item, .event_count = 0));
    }
}

/* ---- owners ------------------------------------------------------------------------------------------------------ */

typedef struct beats {
    const char *owners[2];
    dur_owner_report reports[2];
} beats;

static void beat(kit_thread *self) {
    beats *all = self->data;
    self->code = dur_store_owner_beat(self->t->p, all->owners[self->index], &all->reports[self->index], &self->err);
}

/* Who was told "still ours" has what it had, whatever a peer thought of it in that moment. */
static void ours_beat_that_was_answered_holds(kit *t) {
    NEEDS("owner_register", "owner_beat", "fetch_turns");
    if (t->factory->advance == NULL) kit_skip(t, "time is not the kit's");
    kit_owner(t, "judge");
    for (int i = 0; i < ROUNDS; i++) {
        const char *id = kit_format(t, "i-%d", i);
        beats all = { .owners = { kit_format(t, "late-%d", i), "judge" } };
        kit_owner(t, all.owners[0]);
        MUST(kit_put(t, kit_start(t, id)));
        dur_orchestration_item item = ACQUIRE(all.owners[0], id);
        kit_advance(t, t->lock_ms + t->lock_ms / 2);
        MUST(dur_store_owner_beat(t->p, "judge", &all.reports[1], ERR));
        kit_advance(t, t->lock_ms); /* the other is silent for longer than it may */
        kit_thread *two = kit_threads(t, 2, beat, &all);
        SAME(two[0].code, DUR_OK);
        SAME(two[1].code, DUR_OK);
        int code = ACK(&item, EVENTS(ev_started(1)), NAMED);
        SAME(code == DUR_OK, all.reports[0].still_ours);
        if (code != DUR_OK) {
            item = TAKE(id);
            MUST(ACK(&item, EVENTS(ev_started(1)), NAMED));
        } else {
            MUST(dur_store_owner_release(t->p, all.owners[0], ERR));
        }
    }
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

typedef struct merging {
    dur_turn_commit *turn;
    size_t missed;
} merging;

static void read_or_merge(kit_thread *self) {
    merging *all = self->data;
    if (self->index == 0) {
        self->code = dur_store_ack_orchestration_item(self->t->p, all->turn, &self->err);
        return;
    }
    for (int i = 0; i < 30; i++) {
        const char *value = NULL;
        dur_key_value *values = NULL;
        size_t count = 0;
        self->code = dur_store_get_kv_value(self->t->p, self->arena, "a", "k", &value, &self->err);
        if (self->code == DUR_OK)
            self->code = dur_store_get_kv_all_values(self->t->p, self->arena, "a", &values, &count, &self->err);
        if (self->code != DUR_OK) return;
        if (value == NULL || count != 1) all->missed++;
    }
}

static void ours_values_are_read_while_they_are_merged(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1), ev_set(2, "k", "v")), NAMED, MESSAGES(kit_raised(t, "a", "go", ""))));
    for (uint64_t n = 1; n <= ROUNDS; n++) {
        item = TAKE("a");
        uint64_t last = n == 1 ? 2 : 0;
        dur_turn_commit next =
            COMMIT_OF(&item, .execution = n, EVENTS(ev_set(last + 1, "k", "v"), ev_continued(last + 2, "n")),
                      MESSAGES(kit_next(t, "a", "n")), ENDS(CONTINUED_AS_NEW, "n"));
        merging all = { &next, 0 };
        kit_thread *two = kit_threads(t, 2, read_or_merge, &all);
        SAME(two[0].code, DUR_OK);
        SAME(two[1].code, DUR_OK);
        SAME(all.missed, 0);
    }
}

/* ---- looking and taking are one step ----------------------------------------------------------------------------- */

enum { CROWD = 240, CROWD_MS = 400 };

typedef struct crowd {
    dur_message_row starts[CROWD];
    unsigned char won[THREADS][CROWD], tried[THREADS][CROWD];
    uint64_t until_ms; /* real time: a slow store is judged by fewer */
} crowd;

static void start_each(kit_thread *self) {
    crowd *all = self->data;
    for (size_t i = 0; i < CROWD && kit_real_ms() < all->until_ms; i++) {
        bool existed = false;
        dur_error err = { .code = DUR_OK };
        int code = dur_store_enqueue_start(self->t->p, &all->starts[i], DUR_EXISTS_FAIL, 0, &existed, &err);
        if (code != DUR_OK && code != DUR_EEXISTS) self->code = code;
        all->tried[self->index][i] = 1;
        all->won[self->index][i] = code == DUR_OK;
    }
}

static void won_once(kit *t, const crowd *all, bool every) {
    for (size_t i = 0; i < CROWD; i++) {
        size_t won = 0, tried = 0;
        for (size_t k = 0; k < THREADS; k++)
            won += all->won[k][i], tried += all->tried[k][i];
        if (won > 1 || (every && won == 0 && tried > 0))
            kit_fail(t, __FILE__, __LINE__, "%zu of %zu have got number %zu", won, tried, i);
    }
}

static void ours_one_start_of_many_makes_the_instance(kit *t) {
    NEEDS("enqueue_start");
    crowd *all = dur_arena_zalloc(t->arena, sizeof(*all));
    for (size_t i = 0; i < CROWD; i++)
        all->starts[i] = kit_start(t, kit_format(t, "i-%zu", i));
    all->until_ms = kit_real_ms() + CROWD_MS;
    kit_thread *threads = kit_threads(t, THREADS, start_each, all);
    for (size_t k = 0; k < THREADS; k++)
        SAME(threads[k].code, DUR_OK);
    won_once(t, all, true);
}

static void note_number(crowd *all, size_t thread, const char *text) {
    size_t number = 0;
    for (const char *c = text; *c != '\0'; c++)
        number = *c >= '0' && *c <= '9' ? 10 * number + (size_t)(*c - '0') : 0;
    if (number < CROWD) all->won[thread][number]++;
}

static void take_each(kit_thread *self) {
    crowd *all = self->data;
    for (bool more = true; more && self->code == DUR_OK && kit_real_ms() < all->until_ms;) {
        dur_orchestration_item item = { .instance = NULL };
        dur_leased_work work = { .json = { NULL, 0 } };
        dur_fetch how = { .lock_ms = 100 * self->t->lock_ms };
        dur_work_fetch how_work = { .lock_ms = 100 * self->t->lock_ms };
        self->code = dur_store_fetch_work_item(self->t->p, self->arena, &how_work, &work, &self->err);
        if (self->code == DUR_OK && work.json.data != NULL) all->tried[self->index][work.ref.activity_id % CROWD]++;
        if (self->code == DUR_OK)
            self->code = dur_store_fetch_orchestration_item(self->t->p, self->arena, &how, &item, &self->err);
        if (self->code == DUR_OK && item.instance != NULL) note_number(all, self->index, item.instance);
        more = item.instance != NULL || work.json.data != NULL;
    }
}

/* No two of them get the same instance, nor the same row. */
static void ours_each_of_many_takes_another(kit *t) {
    crowd *all = dur_arena_zalloc(t->arena, sizeof(*all));
    uint64_t until_ms = kit_real_ms() + CROWD_MS;
    for (size_t i = 0; i < CROWD && (i < 4 || kit_real_ms() < until_ms); i++) {
        MUST(kit_put(t, kit_start(t, kit_format(t, "i-%zu", i))));
        MUST(kit_put_work(t, kit_activity(t, "w", i)));
    }
    all->until_ms = kit_real_ms() + CROWD_MS;
    kit_thread *threads = kit_threads(t, THREADS, take_each, all);
    for (size_t k = 0; k < THREADS; k++)
        SAME(threads[k].code, DUR_OK);
    won_once(t, all, false);
    for (size_t i = 0; i < CROWD; i++) {
        size_t rows = 0;
        for (size_t k = 0; k < THREADS; k++)
            rows += all->tried[k][i];
        if (rows > 1) kit_fail(t, __FILE__, __LINE__, "%zu threads have got row %zu", rows, i);
    }
}

const kit_check kit_ours_races[] = {
    CHECK(ours_one_message_id_is_accepted_once_of_many),
    CHECK(ours_one_token_is_acked_once_of_many),
    CHECK(ours_message_beside_a_release_is_found),
    CHECK(ours_no_child_outlives_its_parent),
    CHECK(ours_beat_that_was_answered_holds),
    CHECK(ours_values_are_read_while_they_are_merged),
    CHECK(ours_one_start_of_many_makes_the_instance),
    CHECK(ours_each_of_many_takes_another),
    CHECKS_END,
};
