/*
 * check_custom_status.c: the text that an orchestration shows, and its version.
 */
#include "kit_internal.h"

typedef struct shown {
    bool changed;
    const char *text;
    uint64_t version;
} shown;

static shown look(kit *t, const char *instance, uint64_t last_seen) {
    shown out = { false, NULL, 0 };
    MUST(dur_store_get_custom_status(t->p, t->arena, instance, last_seen, &out.changed, &out.text, &out.version, ERR));
    return out;
}

static void expect(kit *t, uint64_t last_seen, const char *text, uint64_t version) {
    shown now = look(t, "a", last_seen);
    THAT(now.changed);
    TEXT(now.text, text);
    SAME(now.version, version);
}

static void custom_status_set(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_status(2, "first"), ev_status(3, "half way"));
    expect(t, 0, "half way", 1); /* the last of the turn, one version */
}

static void custom_status_clear(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_status(2, "busy"));
    STEP("a", 1, ev_status(3, NULL));
    expect(t, 1, NULL, 2);
}

static void custom_status_none_preserves(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_status(2, "busy"));
    STEP("a", 1, ev_external(3, "go"));
    expect(t, 0, "busy", 1);
    STEP_END("a", 1, COMPLETED, "out", ev_done(4, "out"));
    expect(t, 0, "busy", 1);
}

static void custom_status_version_increments(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_status(2, "one"));
    expect(t, 0, "one", 1);
    STEP("a", 1, ev_status(3, "two"));
    expect(t, 1, "two", 2);
    STEP("a", 1, ev_status(4, NULL));
    expect(t, 2, NULL, 3);
    STEP("a", 1, ev_status(5, "two"));
    expect(t, 3, "two", 4);
}

static void custom_status_polling_no_change(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_status(2, "one"));
    THAT(!look(t, "a", 1).changed);
    THAT(!look(t, "a", 7).changed);
    THAT(look(t, "a", 0).changed);
}

static void custom_status_nonexistent_instance(kit *t) {
    THAT(!look(t, "nobody", 0).changed);
}

static void custom_status_default_on_new_instance(kit *t) {
    kit_create(t, "a");
    THAT(!look(t, "a", 0).changed);
    if (dur_store_has(t->p, "get_instance")) {
        dur_instance_row row = kit_instance(t, "a");
        TEXT(row.custom_status, NULL);
        SAME(row.custom_status_version, 0);
    }
}

const kit_check kit_custom_status[] = {
    CHECK(custom_status_set),
    CHECK(custom_status_clear),
    CHECK(custom_status_none_preserves),
    CHECK(custom_status_version_increments),
    CHECK(custom_status_polling_no_change),
    CHECK(custom_status_nonexistent_instance),
    CHECK(custom_status_default_on_new_instance),
    CHECKS_END,
};
