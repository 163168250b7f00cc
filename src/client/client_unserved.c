/*
 * client_unserved.c: which handler keeps an instance from its end because no running node has it.
 *
 * A misspelt name may be that of the instance, of an activity, or of anything below it.  Few calls come here: a wait
 * whose time is up.  And most of them end with the first question: nothing in the store waits for a handler that nobody
 * has.
 */
#include "client/client_internal.h"

#define EACH 64u      /* of one handler */
#define LOOKS_MAX 64u /* instances of one tree */

typedef struct waiting {
    const dur_unserved *rows; /* of the whole store */
    size_t count;
} waiting;

static const char *activity_of(const waiting *all, const char *instance) {
    for (size_t i = 0; i < all->count; i++) {
        if (all->rows[i].kind == DUR_UNSERVED_ACTIVITY && dur__str_eq(all->rows[i].instance, instance))
            return all->rows[i].handler;
    }
    return NULL;
}

/* Open children, behind those that are to be looked at already. */
static size_t add_children(dur_client *client, dur_arena *arena, const char *parent, const char **ids, size_t count) {
    dur_instance_row *rows = NULL;
    size_t found = 0;
    dur_instance_query query = { .status = DUR_STATUS_RUNNING, .parent = parent, .limit = LOOKS_MAX - count };
    if (count == LOOKS_MAX || dur_store_list_instances(client->store, arena, &query, &rows, &found, NULL) != DUR_OK ||
        dur__client_room(arena, "client.wait", NULL) != DUR_OK)
        return count;
    for (size_t i = 0; i < found && count < LOOKS_MAX; i++)
        ids[count++] = rows[i].instance_id;
    return count;
}

const char *dur__client_unserved(dur_client *client, dur_arena *arena, const dur_instance_row *row, const char **who) {
    dur_unserved *rows = NULL;
    const char *ids[LOOKS_MAX] = { row->instance_id };
    waiting all = { NULL, 0 };
    size_t count = 1;
    if (dur_store_list_unserved(client->store, arena, EACH, &rows, &all.count, NULL) != DUR_OK ||
        dur__client_room(arena, "client.wait", NULL) != DUR_OK)
        return NULL;
    all.rows = rows;
    for (size_t i = 0; i < count && all.count > 0; i++) {
        dur_instance_row child = { .instance_id = NULL };
        const dur_instance_row *at = i == 0 ? row : &child;
        if (i > 0 && dur__client_row(client, arena, ids[i], &child, NULL) != DUR_OK) continue;
        const char *handler = at->unserved ? at->handler : activity_of(&all, ids[i]);
        *who = ids[i];
        if (handler != NULL) return handler;
        if (!at->start_pending || i == 0) count = add_children(client, arena, ids[i], ids, count);
    }
    return NULL;
}
