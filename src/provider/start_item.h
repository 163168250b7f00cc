/*
 * start_item.h: a start that nobody has written, as the item that lane_starts hands out.  Name and version are found by
 * dur_store_lane_starts, as those of any other item.
 */
#ifndef DURITE_PROVIDER_START_ITEM_H
#define DURITE_PROVIDER_START_ITEM_H

#include <durite/sys/provider_methods.h>

static inline dur_orchestration_item dur__start_item(dur_arena *arena, const dur_message_row *start, const char *token,
                                                     uint64_t now_ms) {
    dur_fetched_message *message = dur_arena_zalloc(arena, sizeof(*message));
    message->due_ms = now_ms;
    message->attempt_count = 1;
    message->json = (dur_text){ dur_arena_memdup(arena, start->json.data, start->json.size), start->json.size };
    return (dur_orchestration_item){ .instance = dur_arena_strdup(arena, start->instance),
                                     .lock_token = dur_arena_strdup(arena, token),
                                     .execution_id = 1,
                                     .attempt_count = 1,
                                     .acquisitions = 1,
                                     .messages = message,
                                     .message_count = 1 };
}

#endif
