/*
 * test_registry.c: names, versions, policies, and what is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/registry_internal.h"
#include <durite/durite.h>
#include <string.h>

static dur_outcome act_a(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}
static dur_outcome orch_1(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, input);
}
static dur_outcome orch_2(dur_ctx *ctx, const char *input) {
    return dur_fail(ctx, input);
}

static const dur_handler table[] = {
    DUR_ORCHESTRATION("Order", "1.10.0", orch_2),
    DUR_ACTIVITY("Ship", act_a),
    DUR_ORCHESTRATION("Order", "1.9.0", orch_1),
    DUR_ORCHESTRATION("Order", "1.10.0-rc.1", orch_1),
    DUR_ACTIVITY("Book", act_a),
    DUR_HANDLERS_END,
};

static dur_registry *filled(void) {
    dur_registry *registry = NULL;
    assert_int_equal(dur_registry_new(&registry, NULL), DUR_OK);
    assert_int_equal(dur_registry_add(registry, table, NULL), DUR_OK);
    return registry;
}

static void names_and_versions_are_in_order(void **state) {
    (void)state;
    dur_registry *registry = filled();
    dur_handler_kind kind;
    assert_int_equal(dur_registry_count(registry), 3);
    assert_string_equal(dur_registry_name(registry, 0, &kind), "Book");
    assert_int_equal(kind, DUR_HANDLER_ACTIVITY);
    assert_string_equal(dur_registry_name(registry, 1, NULL), "Ship");
    assert_string_equal(dur_registry_name(registry, 2, &kind), "Order");
    assert_int_equal(kind, DUR_HANDLER_ORCHESTRATION);
    assert_null(dur_registry_name(registry, 3, NULL));
    assert_string_equal(dur_registry_versions(registry, DUR_HANDLER_ORCHESTRATION, "Order"),
                        "1.9.0,1.10.0-rc.1,1.10.0");
    assert_string_equal(dur_registry_versions(registry, DUR_HANDLER_ACTIVITY, "Ship"), "1.0.0");
    assert_null(dur_registry_versions(registry, DUR_HANDLER_ACTIVITY, "Order"));
    assert_true(dur_registry_has(registry, DUR_HANDLER_ORCHESTRATION, "Order", "1.9.0"));
    assert_false(dur_registry_has(registry, DUR_HANDLER_ORCHESTRATION, "Order", "2.0.0"));
    assert_true(dur_registry_has(registry, DUR_HANDLER_ORCHESTRATION, "Order", NULL));
    dur_registry_free(registry);
}

static void the_policy_chooses_the_version(void **state) {
    (void)state;
    dur_error err;
    dur_registry *registry = filled();
    assert_string_equal(dur_registry_resolve(registry, "Order"), "1.10.0");
    assert_ptr_equal(dur__registry_find(registry, DUR_HANDLER_ORCHESTRATION, "Order", NULL)->orchestration, orch_2);
    dur__registry_freeze(registry); /* a policy may change while runtimes use it */
    assert_int_equal(dur_registry_policy(registry, "Order", "1.9.0", &err), DUR_OK);
    assert_string_equal(dur_registry_resolve(registry, "Order"), "1.9.0");
    assert_ptr_equal(dur__registry_find(registry, DUR_HANDLER_ORCHESTRATION, "Order", "0.0.0")->orchestration, orch_1);
    assert_ptr_equal(dur__registry_find(registry, DUR_HANDLER_ORCHESTRATION, "Order", "1.10.0")->orchestration, orch_2);
    assert_null(dur__registry_find(registry, DUR_HANDLER_ORCHESTRATION, "Order", "3.0.0"));
    assert_int_equal(dur_registry_policy(registry, "Order", "7.0.0", &err), DUR_ENOTFOUND);
    assert_non_null(strstr(err.message, "1.9.0,1.10.0-rc.1,1.10.0"));
    assert_int_equal(dur_registry_policy(registry, "Order", "1.\xff.0", &err), DUR_EINVAL);
    assert_non_null(strstr(err.message, "not UTF-8 at byte 2"));
    assert_int_equal(dur_registry_policy(registry, "Nobody", NULL, &err), DUR_ENOTFOUND);
    assert_int_equal(dur_registry_policy(registry, "Order", NULL, &err), DUR_OK);
    assert_string_equal(dur_registry_resolve(registry, "Order"), "1.10.0");
    assert_null(dur_registry_resolve(registry, "Ship"));
    assert_null(dur_registry_resolve(NULL, NULL));
    dur_registry_free(registry);
}

static void refuse(const dur_handler *handlers, int code, const char *text) {
    dur_error err;
    dur_registry *registry = filled();
    assert_int_equal(dur_registry_add(registry, handlers, &err), code);
    if (strstr(err.message, text) == NULL) fail_msg("\"%s\" lacks \"%s\"", err.message, text);
    assert_int_equal(dur_registry_count(registry), 3); /* all or nothing */
    dur_registry_free(registry);
}

static void bad_handlers_are_named(void **state) {
    (void)state;
    static char long_name[600];
    memset(long_name, 'x', sizeof(long_name) - 1);
#define REFUSE(code, text, ...)                                                                                        \
    refuse((const dur_handler[]){ DUR_ACTIVITY("Fine", act_a), __VA_ARGS__, DUR_HANDLERS_END }, code, text)
    REFUSE(DUR_EINVAL, "name", DUR_ACTIVITY(NULL, act_a));
    REFUSE(DUR_EINVAL, "name", DUR_ACTIVITY("", act_a));
    REFUSE(DUR_EINVAL, "512", DUR_ACTIVITY(long_name, act_a));
    REFUSE(DUR_EINVAL, "UTF-8", DUR_ACTIVITY("a\xff", act_a));
    REFUSE(DUR_EINVAL, "reserved", DUR_ACTIVITY("__duroxide_syscall:new_guid", act_a));
    REFUSE(DUR_EINVAL, "Order", DUR_ORCHESTRATION("Order", "1.0", orch_1));
    REFUSE(DUR_EINVAL, "no function", DUR_ORCHESTRATION("Empty", "1.0.0", NULL));
    REFUSE(DUR_EEXISTS, "\"Ship\" version 1.0.0", DUR_ACTIVITY("Ship", act_a));
    REFUSE(DUR_EEXISTS, "\"Fine\" version 1.0.0", DUR_ACTIVITY("Fine", act_a));
    REFUSE(DUR_EINVAL, "kind", { .size = sizeof(dur_handler), .kind = (dur_handler_kind)9, .name = "What" });
    REFUSE(DUR_EINVAL, "size", { .size = 0 });
#undef REFUSE
    dur_error err;
    assert_int_equal(dur_registry_add(NULL, table, &err), DUR_EINVAL);
    dur_registry *registry = filled();
    assert_int_equal(dur_registry_add(registry, NULL, &err), DUR_EINVAL);
    dur__registry_freeze(registry);
    assert_int_equal(dur_registry_add(registry, table, &err), DUR_ESTATE);
    dur_registry_free(registry);
    dur_registry_free(NULL);
}

static void merge_takes_everything_with_its_policies(void **state) {
    (void)state;
    dur_error err;
    dur_registry *from = filled(), *to = NULL;
    assert_int_equal(dur_registry_policy(from, "Order", "1.9.0", &err), DUR_OK);
    assert_int_equal(dur_registry_new(&to, &err), DUR_OK);
    assert_int_equal(dur_registry_merge(to, from, &err), DUR_OK);
    assert_int_equal(dur_registry_count(to), 3);
    assert_string_equal(dur_registry_resolve(to, "Order"), "1.9.0");
    assert_int_equal(dur_registry_merge(to, from, &err), DUR_EEXISTS);
    assert_int_equal(dur_registry_merge(to, to, &err), DUR_EINVAL);
    dur_registry_free(from);
    assert_string_equal(dur_registry_versions(to, DUR_HANDLER_ORCHESTRATION, "Order"), "1.9.0,1.10.0-rc.1,1.10.0");
    dur_registry_free(to);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_versions_are_in_order),
        cmocka_unit_test(the_policy_chooses_the_version),
        cmocka_unit_test(bad_handlers_are_named),
        cmocka_unit_test(merge_takes_everything_with_its_policies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
