/*
 * explore_story.c: what a node has recorded, as lines of a story.
 */
#include "testing_internal.h"

#include <string.h>

static dur__told *told_of(dur_test *t, const char *instance) {
    for (size_t i = 0; i < t->told_count; i++)
        if (strcmp(t->told[i].instance, instance) == 0) return &t->told[i];
    t->told = dur__grow(t->told, t->told_count, &t->told_room, sizeof(*t->told));
    t->told[t->told_count] = (dur__told){ .instance = dur__test_strdup(t, instance) };
    return &t->told[t->told_count++];
}

static const char *first_of(const char *a, const char *b, const char *c, const char *d) {
    return a != NULL ? a : b != NULL ? b : c != NULL ? c : d;
}

static void tell_event(dur_test *t, dur_arena *arena, const char *instance, const dur_event *event) {
    const char *text = first_of(event->result, event->output, event->input, event->data);
    if (event->details != NULL) text = dur_failure_display(arena, event->details);
    if (event->kind == DUR_EVENT_TIMER_CREATED)
        dur__test_tell(t, "%s: TimerCreated for %llu ms", instance,
                       (unsigned long long)(event->fire_at_ms - event->timestamp_ms));
    else
        dur__test_tell(t, "%s: %s%s%s%s%s%s", instance, dur_event_kind_name(event->kind),
                       event->name != NULL ? " " : "", event->name != NULL ? event->name : "",
                       text != NULL ? " \"" : "", text != NULL ? text : "", text != NULL ? "\"" : "");
}

static void tell_instance(dur_test *t, dur_arena *arena, const dur_instance_info *info) {
    dur__told *told = told_of(t, info->instance);
    if (told->execution_id != info->execution_id) told->events = 0;
    told->execution_id = info->execution_id;
    dur_event *events = NULL;
    size_t count = 0;
    if (dur_store_read_events(t->store, arena, info->instance, 0, &events, &count, NULL) != DUR_OK) return;
    for (; told->events < count; told->events++)
        tell_event(t, arena, info->instance, &events[told->events]);
}

void dur__story_events(dur_test *t) {
    dur_instance_list *list = NULL;
    if (t->story == NULL || dur_client_list(&list, t->client, DUR_LIST(.limit = 1000), NULL) != DUR_OK) return;
    dur_arena *arena = dur_arena_new();
    for (size_t i = 0; arena != NULL && i < list->count; i++)
        tell_instance(t, arena, list->items[i]);
    dur_arena_free(arena);
    dur_instance_list_free(list);
}
