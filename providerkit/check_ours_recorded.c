/*
 * check_ours_recorded.c: our own: random operations, and everything that is answered and can be seen after each,
 * compared with what was recorded.
 *
 * A check sees what its author has thought of; these see whatever differs.  They say little of where: the differential
 * run that the message names does (durite-kit URL --against memory:), and finds the shortest way there.
 */
#include "compare.h"
#include "compare_recorded.h"

enum { PATIENCE_MS = 2500 }; /* real time: of a slow store fewer seeds are looked at, and at least two */

#define NEEDS_ALL()                                                                                                    \
    NEEDS("owner_register", "owner_beat", "owner_release", "lane_open", "lane_round", "fetch_turns", "commit_turns",   \
          "fetch_works", "ack_works", "check_works", "return_works", "enqueue_start", "enqueue_existing",              \
          "get_instance_stats", "list_instances", "get_instance", "list_executions", "get_system_metrics",             \
          "get_queue_depths", "delete_instances", "delete_instances_bulk", "prune_executions",                         \
          "prune_executions_bulk", "dead_letter_messages", "dead_letter_work", "list_dead_letters",                    \
          "delete_dead_letters", "set_suspended")

static void follow(kit *t, const uint64_t *recorded, size_t count, bool turns) {
    NEEDS_ALL();
    if (t->factory->advance == NULL) kit_skip(t, "time is not the kit's");
    if (t->view != NULL) kit_skip(t, "it needs stores of its own");
    uint64_t until_ms = kit_real_ms() + PATIENCE_MS;
    for (size_t i = 0; i < count && (i < 2 || kit_real_ms() < until_ms); i++) {
        uint64_t got = 0;
        MUST(compare_digest(t->factory, i + 1, turns, &got, ERR));
        if (got != recorded[i])
            kit_fail(t, __FILE__, __LINE__,
                     "the answers are not those that were recorded: durite-kit URL --against memory:%s --seed %zu "
                     "--seeds 1 --steps %d tells which",
                     turns ? " --turns" : "", i + 1, RECORDED_STEPS);
    }
}

static void ours_recorded_operations(kit *t) {
    follow(t, recorded_operations, COUNT(recorded_operations), false);
}

static void ours_recorded_turns(kit *t) {
    follow(t, recorded_turns, COUNT(recorded_turns), true);
}

const kit_check kit_ours_recorded[] = {
    CHECK(ours_recorded_operations),
    CHECK(ours_recorded_turns),
    CHECKS_END,
};
