/*
 * fanout.c: many activities at once.  Schedule all, then await in order; who finishes first does not matter.
 */
#include "host.h"

enum { PAGES_MAX = 64 };

static dur_outcome count_words(dur_act *act, const char *page) {
    size_t words = 0;
    for (const char *p = page; *p != '\0'; p++)
        words += *p != ' ' && (p[1] == ' ' || p[1] == '\0');
    return dur_act_completef(act, "%zu", words);
}

static dur_outcome count_book(dur_ctx *ctx, const char *book) {
    dur_future *pages[PAGES_MAX];
    size_t page_count = 0;
    for (const char *at = book; *at != '\0' && page_count < PAGES_MAX;) {
        size_t length = strcspn(at, "|");
        pages[page_count++] = dur_activity(ctx, "CountWords", dur_format(ctx, "%.*s", (int)length, at));
        at += length + (at[length] == '|');
    }
    unsigned long total = 0;
    for (size_t i = 0; i < page_count; i++)
        total += strtoul(dur_await(pages[i]), NULL, 10);
    return dur_completef(ctx, "%lu words on %zu pages", total, page_count);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("CountWords", count_words),
    DUR_ORCHESTRATION("CountBook", "1.0.0", count_book),
    DUR_HANDLERS_END,
};

int main(int argc, char **argv) {
    example e;
    example_begin(&e, argc, argv, handlers);
    example_start(&e, "CountBook", "call me|some years ago|never mind how long", "moby-dick");
    example_expect(&e, "moby-dick", "9 words on 3 pages");
    return example_end(&e);
}
