/*
 * test_pg_disturb_crowd.c: a lane of the PostgreSQL store that goes on while many suspend, give up, append to and
 * delete what it holds: what it was told to be written is there, in order, and nothing else.
 */
#include "pg_ahead.h"

#define STORE(r) ((r)->p->b.store)
#define ERROR(r) (&(r)->p->b.err)
#define ASSERT_DONE(r, call) ASSERT_OK(&(r)->p->b, call)

enum { CROWD = 8, DELETED_FROM = 5, TROUBLEMAKERS = 3, EVENTS_MAX = 20000, CROWD_MS = 1200 };
#define APPENDED "{\"appended\":1}"

typedef struct member {
    const char *name;
    flow f; /* the lane's alone */
    bool held;
    atomic_bool deleted;
    atomic_int appended;
    char written[EVENTS_MAX]; /* by the id of the event: the lane was told so */
} member;

typedef struct crowd {
    rig *r;
    unsigned seed;
    atomic_int troublemakers;
    atomic_bool stop;
    member members[CROWD];
} crowd;

static unsigned next_random(unsigned *seed) {
    *seed = *seed * 1103515245u + 12345u;
    return *seed >> 16;
}

static void append_one(const crowd *c, member *m, dur_arena *arena) {
    dur_event_row *events, event;
    size_t n = 0;
    if (dur_store_read(STORE(c->r), arena, m->name, 1, &events, &n, NULL) != DUR_OK) return;
    event = event_of(n + 1);
    event.json = text_of(APPENDED);
    if (dur_store_append(STORE(c->r), m->name, 1, &event, 1, NULL) == DUR_OK) atomic_fetch_add(&m->appended, 1);
}

/* Its token is looked for: otherwise only its lane knows it. */
static void give_up_one(const crowd *c, const char *instance, PGconn *db, dur_arena *arena) {
    PGresult *row = PQexec(db, dur_arena_format(arena, "SELECT token FROM %s.dur_instances WHERE instance_id = '%s'",
                                                c->r->p->schema, instance));
    if (PQntuples(row) == 1)
        (void)dur_store_abandon_orchestration_item(STORE(c->r), PQgetvalue(row, 0, 0), 0, true, NULL);
    PQclear(row);
}

/* To what may be deleted nothing is appended: it would be there again. */
static void disturb_one(const crowd *c, member *m, unsigned what, PGconn *db, dur_arena *arena) {
    dur_delete_result gone;
    if (what < 4) {
        (void)dur_store_set_suspended(STORE(c->r), m->name, "wait", NULL);
        pg_pause_ms(what);
        (void)dur_store_set_suspended(STORE(c->r), m->name, NULL, NULL);
    } else if (what < 8) {
        give_up_one(c, m->name, db, arena);
    } else if (m < &c->members[DELETED_FROM]) {
        append_one(c, m, arena);
    } else if (what == 8) {
        if (dur_store_delete_instances(STORE(c->r), &m->name, 1, true, &gone, NULL) == DUR_OK)
            atomic_store(&m->deleted, true);
    }
}

static void *make_trouble(void *arg) {
    crowd *c = arg;
    PGconn *db = PQconnectdb(pg_server());
    unsigned seed = c->seed + (unsigned)atomic_fetch_add(&c->troublemakers, 1);
    while (!atomic_load(&c->stop)) {
        dur_arena *arena = dur_arena_new();
        member *m = &c->members[next_random(&seed) % CROWD];
        disturb_one(c, m, next_random(&seed) % 12, db, arena);
        dur_arena_free(arena);
        pg_pause_ms((long)next_random(&seed) % 30);
    }
    PQfinish(db);
    return NULL;
}

static void read_answer(const crowd *c, member *m, dur_turn_fault fault) {
    dur_event_row *events;
    if (fault == DUR_TURN_FINE) {
        went(&m->f);
        m->written[m->f.last] = 1;
        return;
    }
    m->f.step = (dur_turn_work){ .row_id = 0 };
    m->held = fault != DUR_TURN_LEASE_LOST;
    if (fault == DUR_TURN_POSITION)
        ASSERT_DONE(c->r, dur_store_read(STORE(c->r), c->r->p->b.arena, m->f.item.instance, 1, &events, &m->f.last,
                                         ERROR(c->r)));
}

static void take_item(crowd *c, const dur_orchestration_item *item) {
    member *m = &c->members[item->instance[1] - '0'];
    m->f = (flow){ .item = *item, .last = item->last_event_id };
    m->held = true;
}

static void crowd_round(crowd *c, unsigned *seed, const dur_fetch *look) {
    dur_turn_commit turns[CROWD];
    member *whose[CROWD];
    dur_round round = { .turns = turns, .fetch = look };
    for (member *m = c->members; m < c->members + CROWD; m++) {
        if (!m->held || m->f.last + 1 >= EVENTS_MAX) continue;
        whose[round.turn_count] = m;
        turns[round.turn_count++] = next_turn(c->r, &m->f, (deed)(next_random(seed) % 3));
    }
    ASSERT_DONE(c->r, dur_store_lane_round(c->r->lane, c->r->p->b.arena, &round, ERROR(c->r)));
    for (size_t i = 0; i < round.turn_count; i++)
        read_answer(c, whose[i], turns[i].fault);
    for (size_t i = 0; i < round.item_count; i++)
        take_item(c, &round.items[i]);
}

/* Without a gap, and just what was said to be written; of what was deleted nothing. */
static void assert_told(const crowd *c, const member *m) {
    dur_event_row *events;
    size_t n = 0;
    int appended = 0;
    ASSERT_DONE(c->r, dur_store_read(STORE(c->r), c->r->p->b.arena, m->f.item.instance, 1, &events, &n, ERROR(c->r)));
    for (size_t i = 1; i < n; i++) {
        bool others = strcmp(events[i].json.data, APPENDED) == 0;
        assert_int_equal(events[i].event_id, i + 1);
        assert_int_equal(m->written[i + 1], !others);
        if (!others) assert_string_equal(events[i].json.data, event_json(c->r, i + 1));
        appended += others;
    }
    assert_int_equal(n == 0, atomic_load(&m->deleted));
    assert_int_equal(appended, atomic_load(&m->appended));
    if (n > 0) assert_null(memchr(m->written + n + 1, 1, EVENTS_MAX - n - 1));
}

/* They have a message that nobody consumes: whenever they are set free they are worth a look. */
static void many_disturb_it(void **state) {
    rig r = rig_open(*state);
    crowd *c = dur_arena_zalloc(r.p->b.arena, sizeof(*c));
    pthread_t threads[TROUBLEMAKERS];
    c->r = &r;
    unsigned seed = c->seed = (unsigned)pg_monotonic_ms();
    printf("# seed %u\n", c->seed);
    for (int i = 0; i < CROWD; i++) {
        c->members[i].name = SQL(&r, "m%d", i);
        c->members[i].f = begun_flow(&r, c->members[i].name);
        c->members[i].held = true;
        send_event(&r, &c->members[i].f);
    }
    for (int i = 0; i < 4; i++) /* undisturbed: the rows are behind when the trouble begins */
        crowd_round(c, &seed, NULL);
    assert_true(count(&r, "history", "at_ms IS NOT NULL") > 0);
    for (int i = 0; i < TROUBLEMAKERS; i++)
        pthread_create(&threads[i], NULL, make_trouble, c);
    uint64_t end_ms = pg_monotonic_ms() + CROWD_MS;
    for (int i = 0; pg_monotonic_ms() < end_ms; i++)
        crowd_round(c, &seed, i % 3 == 0 ? &fresh : NULL);
    atomic_store(&c->stop, true);
    for (int i = 0; i < TROUBLEMAKERS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < CROWD; i++)
        assert_told(c, &c->members[i]);
    ASSERT_DONE(&r, dur_provider_check(STORE(&r), ERROR(&r)));
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(many_disturb_it),
    };
    PG_MAIN(tests);
}
