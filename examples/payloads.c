/*
 * payloads.c: structured inputs and results, as JSON by libjansson.  Durite carries text and does not look into it.
 *
 * A value that was parsed is memory of malloc: it must not live across a wait, because a handler that is dropped there
 * would leak it.  So parse, take what is needed, and give it back, between two waits; text that is kept is the
 * context's.
 */
#include "host.h"

#include <jansson.h>

enum { LINES_MAX = 32 };

/* What is given up here as a text of the context's. */
static const char *text_of(dur_ctx *ctx, json_t *value) {
    char *text = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS);
    const char *kept = text != NULL ? dur_strdup(ctx, text) : "null";
    free(text);
    json_decref(value);
    return kept;
}

/* {"sku": "…", "count": n} in, {"sku": "…", "cents": n} out */
static dur_outcome price(dur_act *act, const char *input) {
    json_error_t why;
    const char *sku = NULL;
    int count = 0;
    json_t *line = json_loads(input, 0, &why);
    if (line == NULL || json_unpack_ex(line, &why, 0, "{s:s, s:i}", "sku", &sku, "count", &count) != 0) {
        json_decref(line);
        return dur_act_fail_final(act, why.text); /* the same text would fail again */
    }
    char *text = NULL;
    json_t *answer = json_pack("{s:s, s:i}", "sku", sku, "cents", count * 250);
    if (answer != NULL) text = json_dumps(answer, JSON_COMPACT);
    dur_outcome end = text != NULL ? dur_act_complete(act, text) : dur_act_fail(act, "no memory");
    free(text);
    json_decref(answer);
    json_decref(line);
    return end;
}

/* [{"sku": …, "count": …}, …] in, {"lines": n, "cents": n} out */
static dur_outcome quote(dur_ctx *ctx, const char *input) {
    dur_future *prices[LINES_MAX];
    const char *lines[LINES_MAX];
    json_error_t why;
    json_t *order = json_loads(input, 0, &why);
    size_t count = json_array_size(order), total = 0;
    if (count == 0 || count > LINES_MAX) {
        json_decref(order);
        return dur_failf(ctx, "an order is an array of 1 to %d lines", LINES_MAX);
    }
    for (size_t i = 0; i < count; i++)
        lines[i] = text_of(ctx, json_incref(json_array_get(order, i)));
    json_decref(order); /* before the first wait */
    for (size_t i = 0; i < count; i++)
        prices[i] = dur_activity(ctx, "Price", lines[i]);
    for (size_t i = 0; i < count; i++) {
        const char *answer = NULL;
        if (dur_try(prices[i], &answer) != DUR_OK) return dur_failf(ctx, "line %zu: %s", i + 1, dur_reason(prices[i]));
        json_t *priced = json_loads(answer, 0, NULL);
        total += (size_t)json_integer_value(json_object_get(priced, "cents"));
        json_decref(priced); /* before the next one */
    }
    return dur_complete(ctx,
                        text_of(ctx, json_pack("{s:I, s:I}", "lines", (json_int_t)count, "cents", (json_int_t)total)));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Price", price),
    DUR_ORCHESTRATION("Quote", "1.0.0", quote),
    DUR_HANDLERS_END,
};

int main(int argc, char **argv) {
    example e;
    json_object_seed(1); /* before there are threads */
    example_begin(&e, argc, argv, handlers);
    example_start(&e, "Quote", "[{\"sku\": \"pen\", \"count\": 2}, {\"count\": 1, \"sku\": \"ink\"}]", "quote-1");
    example_expect(&e, "quote-1", "{\"cents\":750,\"lines\":2}");
    example_start(&e, "Quote", "[{\"sku\": \"pen\"}]", "quote-2");
    example_expect_failure(&e, "quote-2", "line 1: Object item not found: count");
    return example_end(&e);
}
