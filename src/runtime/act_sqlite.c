/*
 * act_sqlite.c: a connection of the activity's own to the store's file.
 *
 * The runtime knows nothing of SQLite: the provider opens and closes the connection.
 */
#include "runtime/runtime_internal.h"

#include "provider/provider_internal.h"
#include <durite/sqlite.h>

struct sqlite3 *dur__store_open_sqlite(dur_provider *store, dur_error *err) __attribute__((weak));
void dur__store_close_sqlite(struct sqlite3 *db) __attribute__((weak));

struct sqlite3 *dur_act_sqlite(dur_act *act, dur_error *err) {
    dur__task *task = act->task;
    dur_error_clear(err);
    if (task->sqlite == NULL) {
        if (dur__store_open_sqlite == NULL) {
            dur_error_set(err, DUR_EUNSUPPORTED, false, "act.sqlite", "this library was built without SQLite");
            return NULL;
        }
        task->sqlite = dur__store_open_sqlite(task->runtime->store, err);
    }
    return task->sqlite;
}

void dur__activity_sqlite_close(dur__task *task) {
    if (task->sqlite != NULL) dur__store_close_sqlite(task->sqlite);
    task->sqlite = NULL;
}
