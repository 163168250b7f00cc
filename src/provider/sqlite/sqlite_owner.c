/*
 * sqlite_owner.c: owners, their signs of life, and taking over from the dead.
 *
 * An owner has a row, and a file beside the database, "<file>.owner-<id>": locked by flock while it lives, with a
 * heartbeat in its first 8 bytes.  A free lock means dead at once (a live process never loses it); a silent heartbeat
 * means dead after the owner's timeout; another boot id means dead, and so does no file at all.
 *
 * Who is dead is decided under the write lock, in the transaction that frees: files are made and removed under it, too.
 * A beat needs no statement, unless it comes so late that somebody may have found its owner silent: then it asks under
 * the write lock whether its row is still there.  Whoever looks reads the clock and then the heartbeat, and a beat
 * writes the heartbeat and then reads the clock: so an owner that was found silent knows that it was.
 *
 * A file goes before the COMMIT that frees its owner's rows: whoever dies between the two leaves a row without a file.
 */
#include "provider/sqlite/sqlite_internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_BYTES = PATH_MAX + 1024 }; /* longer than an id of 191 bytes can make it */

typedef struct owner_block { /* the file's content */
    uint64_t heartbeat_ms;   /* boot clock */
    uint64_t timeout_ms;
    char boot[64];
    char id[192];
} owner_block;

/* A file name for any id. */
static void owner_path(const dur__sq_file *file, const char *id, char out[NAME_BYTES]) {
    int at = snprintf(out, NAME_BYTES, "%s.owner-", file->path);
    for (; *id != '\0' && at >= 0 && at < NAME_BYTES - 4; id++) {
        unsigned char c = (unsigned char)*id;
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
        at += snprintf(out + at, (size_t)(NAME_BYTES - at), plain ? "%c" : "_%02x", c);
    }
}

/* Does the file still have its name? */
static bool file_is_ours(const dur__sq_owner *owner) {
    struct stat now, named;
    if (owner->fd < 0) return true; /* a database in memory */
    return fstat(owner->fd, &now) == 0 && stat(owner->path, &named) == 0 && now.st_ino == named.st_ino &&
           now.st_dev == named.st_dev;
}

static dur__sq_owner *owner_find(dur__sq_file *file, const char *id) {
    DUR__LIST_EACH(&file->peers.owners, at) {
        dur__sq_owner *owner = DUR__CONTAINER(at, dur__sq_owner, link);
        if (strcmp(owner->id, id) == 0) return owner;
    }
    return NULL;
}

static void owner_free(dur__sq_owner *owner, bool keep_file) {
    dur__list_unlink(&owner->link);
    if (owner->fd >= 0) {
        if (!keep_file && file_is_ours(owner)) unlink(owner->path);
        close(owner->fd);
    }
    dur__free(owner->id);
    dur__free(owner->path);
    dur__free(owner);
}

/* ---- who is dead ---- */

static uint64_t boot_now(const dur__sq_file *file) {
    return file->world->boot_ms(file->world->data);
}

static bool silent(uint64_t now_ms, uint64_t heartbeat_ms, uint64_t timeout_ms) {
    return now_ms > heartbeat_ms && now_ms - heartbeat_ms >= timeout_ms;
}

/* A database in memory has owners of this process only. */
static bool is_dead_in_memory(dur__sq_file *file, const char *id) {
    dur__mutex_lock(&file->peers.owners_lock);
    const dur__sq_owner *owner = owner_find(file, id);
    bool dead = owner == NULL || silent(boot_now(file), owner->heartbeat_ms, owner->timeout_ms);
    dur__mutex_unlock(&file->peers.owners_lock);
    return dead;
}

/*
 * An owner with a row: for certain only under the write lock.  Opening and closing its file does not touch its flock.
 * After a loss of power there may be a name and nothing behind it: nobody has it locked.
 */
static bool is_dead(dur__sq_file *file, const char *id) {
    owner_block block;
    uint64_t now_ms = boot_now(file); /* first: see above */
    if (file->path == NULL) return is_dead_in_memory(file, id);
    char path[NAME_BYTES];
    owner_path(file, id, path);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* for writing, its closing would look like a death */
    bool dead = fd >= 0 ? flock(fd, LOCK_SH | LOCK_NB) == 0 : errno == ENOENT;
    if (fd < 0) return dead;
    bool whole = pread(fd, &block, sizeof block, 0) == (ssize_t)sizeof block;
    close(fd);
    if (dead || !whole) return dead;
    block.boot[sizeof block.boot - 1] = '\0';
    return strcmp(block.boot, file->boot) != 0 || silent(now_ms, block.heartbeat_ms, block.timeout_ms);
}

/* Is it registered?  Under the write lock. */
static int has_row(dur__sq_txn *txn, const char *id, bool *has, dur_error *err) {
    return dur__sq_has(txn->conn, DUR__SQ_OWNER_HAS, has, err, "t", id);
}

static void file_remove(const dur__sq_file *file, const char *id) {
    if (file->path == NULL) return;
    char path[NAME_BYTES];
    owner_path(file, id, path);
    unlink(path);
}

/* ---- setting free what an owner holds ---- */

typedef struct free_op {
    dur__sq_op op;
    const char *id;
    bool clean;
    bool if_dead;
    bool dead; /* answers */
    uint32_t freed, owners;
    dur__sq_keys keys;
} free_op;

static int leases_of(free_op *self, dur__sq_txn *txn) {
    sqlite3_stmt *row = NULL;
    self->keys = (dur__sq_keys){ 0 };
    int code = dur__sq_first(txn->conn, DUR__SQ_INSTANCE_OF_OWNER, &row, &self->op.err, "t", self->id);
    return code == DUR_OK ? dur__sq_keys_read(txn, &self->keys, row, &self->op.err) : code;
}

/* Before its rows are counted: what may have killed it, should something have run alone there. */
static int remember_crash(free_op *self, dur__sq_txn *txn) {
    int code = dur__sq_run(txn->conn, DUR__SQ_META_SET, &self->op.err, "ti", "crashed", txn->now_ms);
    if (code == DUR_OK) code = dur__sq_run(txn->conn, DUR__SQ_CRASH_ANEW, &self->op.err, "t", self->id);
    return code == DUR_OK ? dur__sq_run(txn->conn, DUR__SQ_CRASH_ADD, &self->op.err, "t", self->id) : code;
}

static int free_rows(free_op *self, dur__sq_txn *txn) {
    dur__sq_op *op = &self->op;
    /* Behind all that came meanwhile those that a crash has hit would not show for long that it was not their doing. */
    dur__sq_release_how how = { .uncount = self->clean, .in_its_place = !self->clean, .crashed = !self->clean };
    txn->file->alive_epoch = 0;
    int code = leases_of(self, txn);
    if (code == DUR_OK && !self->clean) code = remember_crash(self, txn);
    for (size_t i = 0; i < self->keys.count && code == DUR_OK && self->clean; i++)
        code =
            dur__sq_run(txn->conn, DUR__SQ_QUEUE_CLEAR, &op->err, "inii", self->keys.list[i], (uint64_t)1, (uint64_t)0);
    for (size_t i = 0; i < self->keys.count && code == DUR_OK && !self->clean; i++)
        code = dur__sq_run(txn->conn, DUR__SQ_INSTANCE_CRASHED, &op->err, "i", self->keys.list[i]);
    for (size_t i = 0; i < self->keys.count && code == DUR_OK; i++)
        code = dur__sq_release(txn, self->keys.list[i], &how, &op->err);
    self->freed = (uint32_t)self->keys.count;
    if (code == DUR_OK)
        code = dur__sq_run(txn->conn, DUR__SQ_WORK_OF_OWNER, &op->err, "tii", self->id, (uint64_t)(self->clean ? 0 : 1),
                           (uint64_t)(self->clean ? 1 : 0));
    self->freed += (uint32_t)sqlite3_changes64(txn->conn->db);
    if (code == DUR_OK && !self->clean) code = dur__sq_run(txn->conn, DUR__SQ_CRASH_FORGET, &op->err, "");
    if (code == DUR_OK) code = dur__sq_run(txn->conn, DUR__SQ_SESSION_OF_OWNER, &op->err, "ti", self->id, txn->boot_ms);
    /* What stays reserved for its node is free in the end: at once, or later, the next look finds out. */
    if (code == DUR_OK && sqlite3_changes64(txn->conn->db) > 0) dur__sq_expires_at(txn->file, txn->boot_ms + 1);
    if (code == DUR_OK) code = dur__sq_run(txn->conn, DUR__SQ_OWNER_DELETE, &op->err, "t", self->id);
    self->owners = (uint32_t)sqlite3_changes64(txn->conn->db);
    if (code == DUR_OK) code = dur__sq_run(txn->conn, DUR__SQ_SERVED_DELETE, &op->err, "t", self->id);
    if (code == DUR_OK && self->keys.count > 0) code = dur__sq_count_lost(txn, &op->err);
    txn->file->news.work = true;
    return code;
}

static int free_run(dur__sq_op *op, dur__sq_txn *txn) {
    free_op *self = (free_op *)(void *)op;
    self->keys = (dur__sq_keys){ 0 };
    self->freed = self->owners = 0;
    self->dead = !self->if_dead || is_dead(txn->file, self->id);
    int code = self->dead ? free_rows(self, txn) : DUR_OK;
    if (code == DUR_OK && self->dead && self->if_dead) file_remove(txn->file, self->id);
    return code;
}

static void free_done(dur__sq_op *op, dur__sq_file *file) {
    free_op *self = (free_op *)(void *)op;
    for (size_t i = 0; i < self->keys.count; i++)
        dur__sq_lease_drop(file, self->keys.list[i], true);
}

/* ---- looking at others ---- */

/* Who deleted the owner's row has taken it over, and its next beat says so. */
static void took_over(dur__sq_file *file, const char *self_id, const free_op *op) {
    dur__mutex_lock(&file->peers.owners_lock);
    dur__sq_owner *ours = self_id != NULL ? owner_find(file, self_id) : NULL;
    if (ours != NULL && op->owners > 0) {
        ours->taken_over++;
        ours->freed += op->freed;
        snprintf(ours->last_dead, sizeof ours->last_dead, "%s", op->id);
    }
    dur__sq_owner *dead = file->path == NULL ? owner_find(file, op->id) : NULL;
    if (dead != NULL) owner_free(dead, true); /* its next beat finds nobody of its name */
    dur__mutex_unlock(&file->peers.owners_lock);
}

static int take_over(dur__sq_file *file, const char *self_id, const char *id, bool *dead, dur_error *err) {
    free_op op = { .op = { .run = free_run, .done = free_done }, .id = id, .if_dead = true };
    int code = dur__sq_submit(file, &op.op, err);
    *dead = code == DUR_OK && op.dead;
    if (*dead) took_over(file, self_id, &op);
    return code;
}

/* Who is registered, and when somebody's death was found last, by whomever. */
static int owners_read(dur__sq_file *file, dur_arena *arena, dur__sq_rows *ids, uint64_t *crashed_at_ms,
                       dur_error *err) {
    dur__sq_conn *conn = NULL;
    sqlite3_stmt *row = NULL;
    DUR__SQ_READ(read, file, err);
    int code = dur__sq_read_open(&read, &conn, err);
    if (code == DUR_OK) code = dur__sq_get(conn, DUR__SQ_META_GET, crashed_at_ms, 1, err, "t", "crashed");
    if (code == DUR_OK) code = dur__sq_first(conn, DUR__SQ_OWNER_LIST, &row, err, "");
    for (; code == DUR_OK && row != NULL; code = dur__sq_next(&row, err))
        *(const char **)dur__sq_rows_add(ids, 1, sizeof(char *)) = dur__sq_dup(arena, row, 0);
    dur__sq_read_done(&read);
    return code;
}

static int owners_look(dur__sq_file *file, const char *self_id, dur_owner_report *out, dur_error *err) {
    dur_arena *arena = dur_arena_new();
    if (arena == NULL) return DUR__NO_MEMORY(err, "sqlite.owner");
    dur__sq_rows list = { .arena = arena };
    int code = owners_read(file, arena, &list, &out->crashed_at_ms, err);
    const char **ids = (const char **)(void *)list.data;
    out->peers = 0;
    for (size_t i = 0; i < list.count && code == DUR_OK; i++) {
        if (dur__str_eq(ids[i], self_id)) continue; /* one that is late itself does not bury itself */
        bool dead = is_dead(file, ids[i]);
        if (dead) code = take_over(file, self_id, ids[i], &dead, err);
        out->peers += !dead;
    }
    dur_arena_free(arena);
    return code;
}

int dur__sq_owners_look(dur__sq_file *file, const char *self_id, dur_error *err) {
    dur_owner_report ignored;
    return owners_look(file, self_id, &ignored, err);
}

/* ---- somebody looks at us ---- */

typedef struct ask_op {
    dur__sq_op op;
    const char *id;
    bool registered;
} ask_op;

static int ask_run(dur__sq_op *op, dur__sq_txn *txn) {
    ask_op *self = (ask_op *)(void *)op;
    return has_row(txn, self->id, &self->registered, &op->err);
}

/* Is the owner of this process still the one that is registered?  One that is not is forgotten. */
static int owner_keep(dur__sq_file *file, const char *id, bool *lives, dur_error *err) {
    ask_op op = { .op = { .run = ask_run }, .id = id };
    dur__mutex_lock(&file->peers.owners_lock);
    dur__sq_owner *owner = owner_find(file, id);
    *lives = owner != NULL && file_is_ours(owner);
    bool asks = *lives && owner->was_late;
    dur__mutex_unlock(&file->peers.owners_lock);
    int code = asks ? dur__sq_submit(file, &op.op, err) : DUR_OK;
    if (code != DUR_OK) return code;
    *lives = *lives && (!asks || op.registered);
    dur__mutex_lock(&file->peers.owners_lock);
    owner = owner_find(file, id);
    if (owner != NULL && *lives) owner->was_late = false;
    if (owner != NULL && !*lives) owner_free(owner, false);
    dur__mutex_unlock(&file->peers.owners_lock);
    return DUR_OK;
}

/* ---- a file that was restored ---- */

int dur__sq_owners_hold_unknown(dur__sq_txn *txn, bool *any, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    dur__sq_file *file = txn->file;
    int code = DUR_OK;
    *any = false;
    dur__mutex_lock(&file->desk.lock);
    DUR__LIST_EACH(&file->desk.lanes, at) {
        const dur__sq_lane *lane = DUR__CONTAINER(at, dur__sq_lane, link);
        sqlite3_stmt *row = NULL;
        if (lane->owner == NULL || code != DUR_OK) continue;
        code = dur__sq_first(txn->conn, DUR__SQ_INSTANCE_OF_OWNER, &row, err, "t", lane->owner);
        for (; code == DUR_OK && row != NULL && !*any; code = dur__sq_next(&row, err))
            *any = dur__map_get_u64(&file->leases, dur__sq_u64(row, 0)) == NULL;
        dur__sq_end(&row);
    }
    dur__mutex_unlock(&file->desk.lock);
    return code;
}

/* The lock is not to be left behind. */
static int free_rows_locked(free_op *op, dur__sq_txn *txn) {
    dur__way_out out_of_memory;
    if (DUR__OUT_OF_MEMORY(&out_of_memory)) return DUR__NO_MEMORY(&op->op.err, "sqlite.owner");
    int code = free_rows(op, txn);
    dur__way_out_end(&out_of_memory);
    return code;
}

int dur__sq_owners_resign(dur__sq_txn *txn, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    dur__sq_file *file = txn->file;
    int code = DUR_OK;
    dur__mutex_lock(&file->peers.owners_lock);
    DUR__LIST_EACH_SAFE(&file->peers.owners, at, after) {
        dur__sq_owner *owner = DUR__CONTAINER(at, dur__sq_owner, link);
        free_op op = { .id = owner->id, .clean = true };
        if (code == DUR_OK) code = free_rows_locked(&op, txn);
        if (code != DUR_OK && err != NULL && op.op.err.code != DUR_OK) *err = op.op.err;
        owner_free(owner, false); /* its next beat finds nobody of its name */
    }
    dur__mutex_unlock(&file->peers.owners_lock);
    return code;
}

/* ---- methods ---- */

typedef struct register_op {
    free_op namesake; /* of a process that died, and nobody has looked since */
    const dur_owner_options *options;
    dur__sq_owner *owner;
} register_op;

static int serve(dur__sq_txn *txn, const char *owner, uint64_t activity, const dur_handler_filter *filter,
                 dur_error *err) {
    int code = DUR_OK;
    if (filter == NULL) return dur__sq_run(txn->conn, DUR__SQ_SERVED_ADD, err, "itt", activity, "", owner);
    for (size_t i = 0; i < filter->count && code == DUR_OK; i++)
        code = dur__sq_run(txn->conn, DUR__SQ_SERVED_ADD, err, "itt", activity, filter->keys[i], owner);
    return code;
}

/* The file appears under its name only when it is locked: whoever looks without the write lock sees nobody die. */
static int owner_file_make(dur__sq_file *file, dur__sq_owner *owner, dur_error *err) {
    owner_block block = { .heartbeat_ms = boot_now(file), .timeout_ms = owner->timeout_ms };
    snprintf(block.boot, sizeof block.boot, "%s", file->boot);
    snprintf(block.id, sizeof block.id, "%s", owner->id);
    char path[NAME_BYTES];
    snprintf(path, sizeof path, "%s.new", owner->path);
    owner->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_TRUNC, 0600);
    bool made = owner->fd >= 0 && flock(owner->fd, LOCK_EX | LOCK_NB) == 0 &&
                pwrite(owner->fd, &block, sizeof block, 0) == (ssize_t)sizeof block && rename(path, owner->path) == 0;
    int code = made ? DUR_OK
                    : dur_error_set(err, errno == ENOSPC ? DUR_EFULL : DUR_EIO, true, "sqlite.owner",
                                    "cannot make %s: %s", path, strerror(errno));
    if (!made) unlink(path);
    return code;
}

/* Files that nobody has locked: under the write lock nobody is just making one. */
static void files_sweep(const dur__sq_file *file) {
    const char *base = strrchr(file->path, '/') + 1;
    size_t size = strlen(base);
    DIR *dir = opendir(file->intact.folder.path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (strncmp(entry->d_name, base, size) != 0 || strncmp(entry->d_name + size, ".owner-", 7) != 0) continue;
        char path[NAME_BYTES];
        snprintf(path, sizeof path, "%s%s", file->path, entry->d_name + size);
        int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0) unlink(path);
        if (fd >= 0) close(fd);
    }
    if (dir != NULL) closedir(dir);
}

/* What stands in its way: a dead one of its name, with a row or with a file only. */
static int room_make(register_op *self, dur__sq_txn *txn) {
    bool taken = false;
    const char *id = self->options->owner;
    dur_error *err = &self->namesake.op.err;
    self->namesake.keys = (dur__sq_keys){ 0 };
    int code = has_row(txn, id, &taken, err);
    bool ours = self->owner->fd >= 0; /* this transaction has begun anew */
    if (code == DUR_OK && taken && !ours && !is_dead(txn->file, id))
        return dur_error_set(err, DUR_EEXISTS, false, "sqlite.owner", "owner %s is registered", id);
    if (code == DUR_OK && taken) code = free_rows(&self->namesake, txn);
    if (code != DUR_OK || ours || txn->file->path == NULL) return code;
    files_sweep(txn->file);
    return owner_file_make(txn->file, self->owner, err);
}

static int register_run(dur__sq_op *op, dur__sq_txn *txn) {
    register_op *self = (register_op *)(void *)op;
    const dur_owner_options *options = self->options;
    int code = room_make(self, txn);
    if (code == DUR_OK)
        code = dur__sq_run(txn->conn, DUR__SQ_OWNER_ADD, &op->err, "ttii", options->owner, txn->file->boot,
                           options->timeout_ms, txn->now_ms);
    if (code == DUR_OK) code = dur__sq_run(txn->conn, DUR__SQ_SERVED_DELETE, &op->err, "t", options->owner);
    if (code == DUR_OK) code = serve(txn, options->owner, 0, options->handlers, &op->err);
    if (code == DUR_OK) code = serve(txn, options->owner, 1, options->activities, &op->err);
    return code;
}

int dur__sq_owner_register(dur_provider *self, const dur_owner_options *options, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    if (options->owner == NULL || options->owner[0] == '\0' || strlen(options->owner) >= sizeof((owner_block *)0)->id)
        return dur_error_set(err, DUR_EINVAL, false, "sqlite.owner", "an owner id has 1 to 191 bytes");
    bool lives = false;
    int code = owner_keep(file, options->owner, &lives, err);
    if (code != DUR_OK) return code;
    if (lives) return dur_error_set(err, DUR_EEXISTS, false, "sqlite.owner", "owner %s is registered", options->owner);
    dur_owner_options filled = *options;
    char path[NAME_BYTES] = "";
    if (filled.timeout_ms == 0) filled.timeout_ms = 10000;
    if (file->path != NULL) owner_path(file, filled.owner, path);
    dur__sq_owner *owner = dur__zget(sizeof(*owner));
    if (owner == NULL) return DUR__NO_MEMORY(err, "sqlite.owner");
    owner->fd = -1;
    owner->id = dur__strdup(filled.owner);
    owner->path = dur__strdup(path);
    if (owner->id == NULL || owner->path == NULL) {
        owner_free(owner, true);
        return DUR__NO_MEMORY(err, "sqlite.owner");
    }
    owner->timeout_ms = filled.timeout_ms;
    owner->heartbeat_ms = boot_now(file);
    register_op op = { .namesake = { .op = { .run = register_run, .done = free_done }, .id = filled.owner },
                       .options = &filled,
                       .owner = owner };
    code = dur__sq_submit(file, &op.namesake.op, err);
    dur__mutex_lock(&file->peers.owners_lock);
    dur__list_push(&file->peers.owners, &owner->link);
    if (code != DUR_OK) owner_free(owner, false);
    dur__mutex_unlock(&file->peers.owners_lock);
    return code == DUR_OK ? dur__sq_owners_look(file, filled.owner, err) : code;
}

int dur__sq_owner_beat(dur_provider *self, const char *id, dur_owner_report *out, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    memset(out, 0, sizeof *out);
    out->now_ms = file->world->wall_ms(file->world->data);
    int code = dur__sq_present(file, err);
    if (code != DUR_OK) return code;
    dur__mutex_lock(&file->peers.owners_lock);
    dur__sq_owner *owner = owner_find(file, id);
    if (owner != NULL) { /* first the sign of life, then the clock: see above */
        uint64_t before_ms = owner->heartbeat_ms;
        owner->heartbeat_ms = boot_now(file);
        if (owner->fd >= 0) (void)!pwrite(owner->fd, &owner->heartbeat_ms, sizeof owner->heartbeat_ms, 0);
        owner->was_late = owner->was_late || silent(boot_now(file), before_ms, owner->timeout_ms);
    }
    dur__mutex_unlock(&file->peers.owners_lock);
    code = owner_keep(file, id, &out->still_ours, err);
    if (code != DUR_OK || !out->still_ours) return code;
    atomic_store(&file->peers.owners_moved, false);
    code = owners_look(file, id, out, err);
    dur__mutex_lock(&file->peers.owners_lock);
    owner = owner_find(file, id);
    if (owner != NULL) { /* what it, and its lanes, have freed since the last one */
        out->taken_over = owner->taken_over;
        out->freed = owner->freed;
        snprintf(out->last_dead, sizeof out->last_dead, "%s", owner->last_dead);
        owner->taken_over = owner->freed = 0;
    }
    dur__mutex_unlock(&file->peers.owners_lock);
    return code;
}

int dur__sq_owner_release(dur_provider *self, const char *id, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    free_op op = { .op = { .run = free_run, .done = free_done }, .id = id, .clean = true };
    int code = dur__sq_submit(file, &op.op, err);
    if (code != DUR_OK) return code;
    dur__mutex_lock(&file->peers.owners_lock);
    dur__sq_owner *owner = owner_find(file, id);
    if (owner != NULL) owner_free(owner, false);
    dur__mutex_unlock(&file->peers.owners_lock);
    return DUR_OK;
}

int dur__sq_owner_lives(dur__sq_txn *txn, const char *id, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    dur__sq_file *file = txn->file;
    if (id == NULL || (file->alive_epoch == file->epoch && dur__str_eq(file->alive, id))) return DUR_OK;
    bool lives = false;
    int code = has_row(txn, id, &lives, err);
    if (lives) { /* until somebody else writes, or an owner goes here */
        char *alive = dur__xstrdup(id);
        dur__free(file->alive);
        file->alive = alive;
        file->alive_epoch = file->epoch;
    }
    if (code != DUR_OK || lives) return code;
    return dur_error_set(err, DUR_ELEASE, false, "sqlite.fetch", "owner %s is not registered, or was taken for dead",
                         id);
}

bool dur__sq_owner_known(dur__sq_file *file, const char *id) {
    dur__mutex_lock(&file->peers.owners_lock);
    bool known = owner_find(file, id) != NULL;
    dur__mutex_unlock(&file->peers.owners_lock);
    return known;
}

/* Not released: whoever looks next takes over. */
void dur__sq_owners_close(dur__sq_file *file) {
    for (dur__link *at; (at = dur__list_first(&file->peers.owners)) != NULL;)
        owner_free(DUR__CONTAINER(at, dur__sq_owner, link), true);
}

/* In a forked child: the flock lives as long as any copy of the descriptor. */
void dur__sq_owners_forked(dur__sq_file *file) {
    DUR__LIST_EACH(&file->peers.owners, at) {
        dur__sq_owner *owner = DUR__CONTAINER(at, dur__sq_owner, link);
        if (owner->fd >= 0) close(owner->fd);
        owner->fd = -1;
    }
}
