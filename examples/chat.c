/*
 * chat.c: a conversation.  Messages are kept until they are received, in order, also over continue-as-new; the
 * custom status is the answer that the other side sees.
 */
#include "host.h"

static dur_outcome think(dur_act *act, const char *question) {
    return dur_act_completef(act, "you said \"%s\"", question);
}

static dur_outcome chat(dur_ctx *ctx, const char *turns_text) {
    unsigned long turns = strtoul(turns_text, NULL, 10);
    const char *message = dur_await(dur_message(ctx, "Line"));
    if (strcmp(message, "bye") == 0) return dur_completef(ctx, "%lu answers", turns);
    dur_status_set(ctx, dur_await(dur_activity(ctx, "Think", message)));
    return dur_continue_as_new(ctx, dur_format(ctx, "%lu", turns + 1));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Think", think),
    DUR_ORCHESTRATION("Chat", "1.0.0", chat),
    DUR_HANDLERS_END,
};

int main(int argc, char **argv) {
    static const char *const lines[] = { "hello", "how are you?", "see you" };
    example e;
    example_begin(&e, argc, argv, handlers);
    example_start(&e, "Chat", "0", "chat-1");
    uint64_t seen = 0;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        example_send(&e, "chat-1", "Line", lines[i]);
        dur_instance_info *info = NULL;
        if (dur_client_wait_status(&info, e.client, "chat-1", seen, DUR_SECONDS(30), &e.err) != DUR_OK)
            example_fail(&e, "answer");
        printf("> %s\n%s\n", lines[i], info->custom_status);
        seen = info->custom_status_version;
        dur_instance_info_free(info);
    }
    example_send(&e, "chat-1", "Line", "bye");
    example_expect(&e, "chat-1", "3 answers");
    return example_end(&e);
}
