/*
 * act_sqlite.c: a connection of the activity's own to the store's file.
 *
 * The runtime knows nothing of SQLite: the provider opens and closes the connection.
 */
#include "runtime/runtime_internal.h"

#include "provider/provider_internal.h"
#include <durite/sqlite.h>

struct sqlite3 *dur_act_sqlite(dur_act *act, dur_error *err) {
    dur_error_clear(err);
    if (act == NULL) {
        dur_error_set(err, DUR_EINVAL, false, "act.sqlite", "act is required, got NULL");
        return NULL;
    }
    dur__task *task = act->task;
    if (dur__runtime_forked(task->runtime)) {
        dur_error_set(err, DUR_EFORKED, false, "act.sqlite", "the activity belongs to the parent process");
        return NULL;
    }
    if (task->sqlite == NULL) task->sqlite = dur__store_open_sqlite(task->runtime->store, err);
    return task->sqlite;
}

void dur__activity_sqlite_close(dur__task *task) {
    if (task->sqlite != NULL) dur__store_close_sqlite(task->sqlite);
    task->sqlite = NULL;
}
