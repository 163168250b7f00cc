/*
 * test_turn.c: what a turn means: which turns contradict themselves, and what follows from the fields of the others.
 */
#include "provider/turn.h"
#include "store_help.h"

/* Every combination of what decides: 2^15 turns. */
enum { COMBINATIONS = 1 << 15 };

static dur_turn_commit combined(uint32_t bits) {
    static const dur_event_row event = { .event_id = 1, .json = { "{}", 2 } };
    static const uint64_t consumed = 7;
#define BIT(n) ((bits >> (n)&1) != 0)
    dur_turn_commit turn = { .lock_token = "token",
                             .instance = "a",
                             .execution_id = BIT(0),
                             .events = &event,
                             .event_count = BIT(1),
                             .expected_last = BIT(2) ? 0 : DUR_NOT_COMPARED,
                             .consume_listed = BIT(3),
                             .consumed = &consumed,
                             .consumed_count = BIT(3) && BIT(4),
                             .keep_lease = BIT(5),
                             .seen_id = BIT(6) ? 9 : 0,
                             .give_back = BIT(7),
                             .take_over = BIT(8),
                             .if_unleased = BIT(9),
                             .remove_work = BIT(10),
                             .set_suspended = BIT(11),
                             .suspended = BIT(12) ? "why" : NULL,
                             .writes_start = BIT(13),
                             .delay_ms = BIT(6) ? 5 : 0 };
    if (BIT(14)) {
        turn.metadata.orchestration_name = "Name";
        turn.metadata.orchestration_version = "1.0.0";
        turn.metadata.status = BIT(4) ? DUR_STATUS_COMPLETED : BIT(6) ? DUR_STATUS_CONTINUED_AS_NEW : DUR_STATUS_NONE;
    }
#undef BIT
    return turn;
}

static void facts_agree_with_each_other(void **state) {
    (void)state;
    size_t valid = 0;
    for (uint32_t bits = 0; bits < COMBINATIONS; bits++) {
        dur_turn_commit turn = combined(bits);
        if (dur__turn_invalid(&turn) != NULL) continue;
        dur__turn_facts facts = dur__turn_facts_of(&turn);
        valid++;
        /* nothing is left out in silence */
        assert_true(facts.writes || (turn.event_count == 0 && !facts.names && turn.metadata.status == DUR_STATUS_NONE));
        assert_true(!facts.writes || turn.execution_id != 0);
        assert_true(!facts.ends_instance || facts.ends_execution);
        assert_true(!facts.ends_execution || facts.writes);
        /* of the counts exactly one thing becomes: cleared, one taken off, or left by a release that says nothing */
        assert_false(facts.uncounts && facts.clears_counts);
        assert_true(facts.uncounts || facts.clears_counts || facts.is_release);
        /* a lease is kept by its holder only, and who keeps it leaves nothing for the next */
        assert_true(!facts.keeps || (turn.keep_lease && !facts.take_over && !facts.suspends && !facts.uncounts));
        assert_true(!facts.keeps || (facts.seen_id == 0 && facts.delay_ms == 0));
        assert_true(!facts.take_over || (facts.seen_id == 0 && facts.delay_ms == 0 && !facts.takes_given));
        assert_false(facts.suspends && facts.resumes);
        assert_false(facts.suspends && facts.ends_instance);
        assert_true(!facts.is_release || (!facts.writes && !facts.suspends && !facts.resumes && !facts.take_over));
        assert_false(facts.never_was && (facts.removes_work || facts.writes));
        assert_true(!facts.born || (facts.writes && facts.names && !facts.take_over));
    }
    assert_true(valid > 1000); /* it was not the sieve that agreed */
}

static void assert_invalid(dur_turn_commit turn, const char *part) {
    const char *why = dur__turn_invalid(&turn);
    assert_non_null(why);
    assert_non_null(strstr(why, part));
}

static void contradictions_are_named(void **state) {
    (void)state;
    dur_turn_commit fine = combined(1 | 2); /* an execution, an event, the rest of an ack */
    dur_turn_commit turn = fine;
    assert_null(dur__turn_invalid(&fine));
    turn.execution_id = 0;
    assert_invalid(turn, "execution id");
    turn = fine;
    turn.give_back = true;
    assert_invalid(turn, "give_back");
    turn.event_count = 0;
    assert_null(dur__turn_invalid(&turn));
    turn.keep_lease = true;
    assert_invalid(turn, "gives a lease back");
    turn = fine;
    turn.if_unleased = true;
    assert_invalid(turn, "take_over");
    turn = fine;
    turn.metadata.status = DUR_STATUS_FAILED;
    turn.set_suspended = true;
    assert_null(dur__turn_invalid(&turn)); /* to nothing: who ends it says that it is not suspended */
    turn.suspended = "why";
    assert_invalid(turn, "suspended");
    turn = fine;
    turn.writes_start = true;
    assert_invalid(turn, "name");
    turn = fine;
    turn.take_over = true;
    turn.instance = NULL;
    assert_invalid(turn, "instance");
    turn = fine;
    turn.lock_token = NULL;
    assert_invalid(turn, "lock_token");
}

static void every_check_has_a_fault(void **state) {
    (void)state;
    dur_turn_fault order[] = { DUR_TURN_LEASE_LOST, DUR_TURN_POSITION, DUR_TURN_ORPHAN, DUR_TURN_WORK_LOST };
    size_t at = 0;
    for (int check = 0; check < DUR__TURN_NEW_EVENTS; check++) { /* as the contract orders them */
        dur_turn_fault fault = dur__turn_fault_of((dur__turn_check)check);
        assert_int_not_equal(dur__turn_code_of((dur__turn_check)check), DUR_OK);
        while (order[at] != fault)
            assert_true(++at < sizeof(order) / sizeof(order[0]));
    }
    assert_int_equal(at, 3);
    assert_int_equal(dur__turn_fault_of(DUR__TURN_NEW_EVENTS), DUR_TURN_POSITION);
}

static void a_plain_turn_has_no_optional_fields(void **state) {
    (void)state;
    dur_turn_commit turn = combined(COMBINATIONS - 1), plain = dur__turn_plain(&turn);
    dur__turn_facts facts = dur__turn_facts_of(&plain);
    assert_null(dur__turn_invalid(&plain));
    assert_true(facts.takes_given && facts.writes && facts.clears_counts);
    assert_false(facts.keeps || facts.take_over || facts.suspends || facts.resumes || facts.removes_work || facts.born);
    assert_false(facts.compares_position || facts.compares_parent);
    assert_int_equal(plain.event_count, 1);
    assert_string_equal(plain.metadata.orchestration_name, "Name");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_agree_with_each_other),
        cmocka_unit_test(contradictions_are_named),
        cmocka_unit_test(every_check_has_a_fault),
        cmocka_unit_test(a_plain_turn_has_no_optional_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
