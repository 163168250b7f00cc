/*
 * going.c: instances that a client was about to end or to delete when it died.
 *
 * For the moment that an end or a deletion by force takes the instance is suspended (DUR__GOING, client_delete.c), and
 * nobody but that client would let it go on.  A client has no lease whose end others could see.  So nodes look at what
 * is suspended: what has been so for owner_timeout_ms is ended, which is what the client wanted or the step before
 * that. The client may live and be slow: an end gives back what the history holds, and the deletion may follow.  To let
 * the instance go on instead would be wrong then, because it could receive messages that the deletion takes along.
 */
#include "client/client_internal.h"
#include "runtime/runtime_internal.h"

#include <stdlib.h>

enum { PAGE = 200 }; /* of what is suspended, at each look */

typedef struct dur__going {
    struct dur__going *next; /* in runtime->going */
    uint64_t birth, start_id, since_us;
    bool seen; /* since the looks began with the first page */
    char id[];
} sighting;

static sighting *sighting_of(dur_runtime *runtime, const dur_instance_row *row) {
    for (sighting *known = runtime->going; known != NULL; known = known->next) {
        if (strcmp(known->id, row->instance_id) == 0 && known->birth == row->birth &&
            known->start_id == row->pending_start_id)
            return known;
    }
    size_t size = strlen(row->instance_id) + 1;
    sighting *made = dur__xcalloc(1, sizeof(*made) + size);
    memcpy(made->id, row->instance_id, size);
    made->birth = row->birth;
    made->start_id = row->pending_start_id;
    made->since_us = dur__monotonic_us();
    made->next = runtime->going;
    runtime->going = made;
    return made;
}

static void end_it(dur_runtime *runtime, dur_client *client, const dur_instance_row *row) {
    static const dur_failure why = { .category = DUR_FAILURE_APPLICATION,
                                     .kind = DUR_FAILURE_CANCELLED,
                                     .message = "a client died while it ended or deleted it",
                                     .reason = "a client died while it ended or deleted it" };
    dur_error err = DUR_ERROR_INIT;
    int code = dur__client_end(client, row->instance_id, row, &why, DUR__END_IF_GOING, &err);
    if (code == DUR_OK)
        dur__log(DUR_LOG_WARN, DUR__LOG_ORCHESTRATION, DUR__FIELDS(DUR__TEXT("instance_id", row->instance_id)),
                 "a client has made it stand still, to end or to delete it, and has not gone on: ended");
    else if (code != DUR_ENOTFOUND && code != DUR_ESTATE)
        DUR__COUNT(runtime, provider_errors);
}

static void forget(dur_runtime *runtime, bool all) {
    for (sighting **at = &runtime->going; *at != NULL;) {
        sighting *known = *at;
        bool stays = known->seen && !all;
        known->seen = false;
        if (stays) {
            at = &known->next;
            continue;
        }
        *at = known->next;
        dur__free(known);
    }
}

void dur__going_look(dur_runtime *runtime, dur_arena *arena) {
    dur_client *client = NULL;
    dur_instance_row *rows = NULL;
    size_t count = 0;
    if (dur__runtime_phase(runtime) != DUR__PHASE_RUN || !dur_store_has(runtime->store, "list_instances")) return;
    dur_instance_query query = { .suspended_only = true, .limit = PAGE, .after = runtime->going_after };
    if (dur_store_list_instances(runtime->store, arena, &query, &rows, &count, NULL) != DUR_OK) return;
    for (size_t i = 0; i < count; i++) {
        if (!dur__str_eq(rows[i].suspended, DUR__GOING)) continue;
        sighting *known = sighting_of(runtime, &rows[i]);
        known->seen = true;
        if (dur__monotonic_us() - known->since_us < runtime->options.owner_timeout_ms * 1000) continue;
        if (client == NULL && dur_client_new(&client, runtime->store, NULL) != DUR_OK) break;
        end_it(runtime, client, &rows[i]);
    }
    dur__free(runtime->going_after);
    runtime->going_after = count == PAGE ? dur__xstrdup(rows[count - 1].instance_id) : NULL;
    if (runtime->going_after == NULL) forget(runtime, false); /* all of them were looked at */
    dur_client_free(client);
}

void dur__going_free(dur_runtime *runtime) {
    forget(runtime, true);
    dur__free(runtime->going_after);
}
