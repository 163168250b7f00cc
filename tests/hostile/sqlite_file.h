/*
 * sqlite_file.h: what tests of SQLite files share beside hostile.h.
 */
#ifndef TESTS_HOSTILE_SQLITE_FILE_H
#define TESTS_HOSTILE_SQLITE_FILE_H

#include "hostile.h"

#include <durite/sqlite.h>
#include <sqlite3.h>

static inline const char *path_of(const world *w) {
    return w->url + strlen("sqlite:");
}

/* What sqlite3's .backup and .restore do. */
static inline int copy_into(const char *from, const char *to) {
    sqlite3 *source = NULL, *target = NULL;
    int result = sqlite3_open_v2(from, &source, SQLITE_OPEN_READONLY, NULL);
    if (result == SQLITE_OK) result = sqlite3_open_v2(to, &target, SQLITE_OPEN_READWRITE, NULL);
    sqlite3_backup *backup = result == SQLITE_OK ? sqlite3_backup_init(target, "main", source, "main") : NULL;
    result = SQLITE_OK;
    while (backup != NULL && result != SQLITE_DONE) {
        result = sqlite3_backup_step(backup, -1);
        if (result != SQLITE_DONE && result != SQLITE_BUSY && result != SQLITE_LOCKED) break;
        if (result != SQLITE_DONE) pause_ms(2);
    }
    bool fine = backup != NULL && sqlite3_backup_finish(backup) == SQLITE_OK && result == SQLITE_DONE;
    sqlite3_close(source);
    sqlite3_close(target);
    return fine ? 0 : 1;
}

/* The store and the client of the world, anew; NULL: not yet. */
static inline void reopen(world *w, const dur_sqlite_options *how) {
    dur_client_free(w->client);
    dur_provider_close(w->store);
    w->client = NULL;
    w->store = NULL;
    if (how == NULL) return;
    OK(w, dur_sqlite_open(&w->store, how, &w->err));
    OK(w, dur_client_new(&w->client, w->store, &w->err));
}

static inline bool is_known(world *w, const char *id) {
    dur_instance_info *info = NULL;
    int code = dur_client_info(&info, w->client, id, &w->err);
    if (code != DUR_OK && code != DUR_ENOTFOUND) fail_msg("%s: %s %s", id, dur_code_name(code), w->err.message);
    dur_instance_info_free(info);
    return code == DUR_OK;
}

/* For sqlite3_exec: data is the int that counts. */
static inline int count_row(void *data, int columns, char **values, char **names) {
    (void)columns, (void)values, (void)names;
    ++*(int *)data;
    return 0;
}

static inline void until_status(world *w, const char *instance, const char *text) {
    for (uint64_t waited = 0;; waited++) {
        if (waited > patience_ms()) fail_msg("%s: no status %s", instance, text);
        dur_instance_info *info = NULL;
        bool there = dur_client_info(&info, w->client, instance, NULL) == DUR_OK && info->custom_status != NULL &&
                     strcmp(info->custom_status, text) == 0;
        dur_instance_info_free(info);
        if (there) return;
        pause_ms(1);
    }
}

#endif
