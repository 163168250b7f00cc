/*
 * sqlite_owner.c: owners, their signs of life, and taking over from the dead.
 *
 * An owner has a file beside the database, "<file>.owner-<id>": locked by flock while it lives, with a heartbeat in its
 * first 8 bytes.  A free lock means dead at once (a live process never loses it); a silent heartbeat means dead after
 * the owner's timeout; another boot id means dead.  None of this costs a statement while everybody lives.
 *
 * Who is dead is decided under the write lock in the transaction that frees, by a mark: the file is renamed (".dead")
 * and looked at once more; one that lives gets its name back.  A beat writes its heartbeat and then looks whether the
 * file still has its name.  So either the taker sees the beat, or the beat sees the mark, which decides nothing: it
 * asks under the write lock whether its row is still there, and takes its name back if so.  A mark whose maker died
 * before its COMMIT is decided anew by whoever looks next; the file goes after the COMMIT.
 */
#include "provider/sqlite/sqlite_internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct owner_block { /* the file's content */
    uint64_t heartbeat_ms;   /* boot clock */
    uint64_t timeout_ms;
    char boot[64];
    char id[192];
} owner_block;

/* A file name for any id. */
static char *owner_path(const dur__sq_file *file, const char *id) {
    dur__buf path = { 0 };
    dur__buf_format(&path, "%s.owner-", file->path);
    for (const unsigned char *at = (const unsigned char *)id; *at != '\0'; at++) {
        bool plain =
            (*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || *at == '-';
        if (plain)
            dur__buf_char(&path, (char)*at);
        else
            dur__buf_format(&path, "_%02x", *at);
    }
    return dur__buf_take(&path);
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* And back, from what stands behind ".owner-". */
static void id_of_name(const char *name, char *out, size_t size) {
    size_t at = 0;
    for (; *name != '\0' && at + 1 < size; name++) {
        bool escaped = name[0] == '_' && hex_digit(name[1]) >= 0 && hex_digit(name[2]) >= 0;
        out[at++] = escaped ? (char)(hex_digit(name[1]) * 16 + hex_digit(name[2])) : *name;
        if (escaped) name += 2;
    }
    out[at] = '\0';
}

/* What it is called when it was taken for dead. */
static char *grave_path(const char *path) {
    dur__buf grave = { 0 };
    dur__buf_format(&grave, "%s.dead", path);
    return dur__buf_take(&grave);
}

/* Does the file still have its name? */
static bool file_is_ours(const dur__sq_owner *owner) {
    struct stat now, named;
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

static bool silent(const dur__sq_file *file, uint64_t heartbeat_ms, uint64_t timeout_ms) {
    uint64_t now = file->world->boot_ms(file->world->data);
    return now > heartbeat_ms && now - heartbeat_ms >= timeout_ms;
}

/*
 * Is the owner of this file dead?  Opening and closing it does not touch its flock.  After a loss of power there may be
 * a name and nothing behind it: nobody has it locked, and the name says whose it was.
 */
static bool file_says_dead(const dur__sq_file *file, const char *path, const char *name, owner_block *block) {
    memset(block, 0, sizeof *block);
    int fd = open(path, O_RDONLY | O_CLOEXEC); /* for writing, its closing would look like a death */
    if (fd < 0) return false;                  /* gone meanwhile */
    bool whole = pread(fd, block, sizeof *block, 0) == (ssize_t)sizeof *block;
    bool dead = flock(fd, LOCK_SH | LOCK_NB) == 0;
    block->id[sizeof block->id - 1] = block->boot[sizeof block->boot - 1] = '\0';
    if (whole) {
        bool other_boot = strcmp(block->boot, file->boot) != 0;
        dead = dead || other_boot || silent(file, block->heartbeat_ms, block->timeout_ms);
    }
    if (!whole || block->id[0] == '\0') id_of_name(name, block->id, sizeof block->id);
    close(fd);
    return dead;
}

typedef enum verdict { LIVES, IS_DEAD, IS_GONE /* somebody else has taken it over, or it has ended */ } verdict;

/* Under the write lock: mark it as dead, unless it lives.  A database in memory has owners of this process only. */
static verdict mark_in_memory(dur__sq_file *file, const char *id) {
    dur__mutex_lock(&file->peers.owners_lock);
    dur__sq_owner *owner = owner_find(file, id);
    verdict found = owner == NULL                                                         ? IS_GONE
                    : owner->gone || silent(file, owner->heartbeat_ms, owner->timeout_ms) ? IS_DEAD
                                                                                          : LIVES;
    if (found == IS_DEAD) owner->gone = true;
    dur__mutex_unlock(&file->peers.owners_lock);
    return found;
}

/* Is it registered?  Under the write lock. */
static int has_row(dur__sq_txn *txn, const char *id, bool *has, dur_error *err) {
    return dur__sq_has(txn->conn, DUR__SQ_OWNER_GET, has, err, "t", id);
}

static int mark(dur__sq_txn *txn, const char *id, verdict *found, dur_error *err) {
    dur__sq_file *file = txn->file;
    if (file->path == NULL) {
        *found = mark_in_memory(file, id);
        return DUR_OK;
    }
    char *path = owner_path(file, id), *grave = grave_path(path);
    owner_block block;
    bool undecided = true;
    int code = DUR_OK;
    *found = IS_DEAD;
    if (access(grave, F_OK) ==
        0) /* somebody has marked it, and did not come to the end: before or behind the COMMIT? */
        code = has_row(txn, id, &undecided, err);
    else if (rename(path, grave) != 0) {
        *found = IS_GONE;
        undecided = false;
    }
    if (code == DUR_OK && undecided && !file_says_dead(file, grave, "", &block) && rename(grave, path) == 0)
        *found = LIVES;
    dur__free(path);
    dur__free(grave);
    return code;
}

/* Under the write lock, under which names change: a row whose owner has no file any more. */
static verdict is_nowhere(const dur__sq_file *file, const char *id) {
    char *path = owner_path(file, id), *grave = grave_path(path);
    bool nowhere = access(path, F_OK) != 0 && errno == ENOENT && access(grave, F_OK) != 0 && errno == ENOENT;
    dur__free(path);
    dur__free(grave);
    return nowhere ? IS_DEAD : LIVES;
}

static void grave_remove(const dur__sq_file *file, const char *id) {
    if (file->path == NULL) return;
    char *path = owner_path(file, id), *grave = grave_path(path);
    unlink(grave);
    dur__free(path);
    dur__free(grave);
}

/* ---- setting free what an owner holds ---- */

typedef struct free_op {
    dur__sq_op op;
    const char *id;
    bool clean;
    enum { WHATEVER, IF_DEAD, IF_NOWHERE /* it has no file */ } when;
    verdict found; /* answers */
    uint32_t freed, owners;
    dur__sq_keys keys;
} free_op;

static int leases_of(free_op *self, dur__sq_txn *txn) {
    sqlite3_stmt *row = NULL;
    self->keys.count = 0;
    int code = dur__sq_first(txn->conn, DUR__SQ_INSTANCE_OF_OWNER, &row, &self->op.err, "t", self->id);
    return code == DUR_OK ? dur__sq_keys_read(&self->keys, row, &self->op.err) : code;
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
        code = dur__sq_run(txn->conn, DUR__SQ_QUEUE_UNCOUNT, &op->err, "i", self->keys.list[i]);
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
    self->keys.count = 0;
    self->freed = self->owners = 0;
    self->found = self->when == IF_NOWHERE ? is_nowhere(txn->file, self->id) : IS_DEAD;
    int code = self->when == IF_DEAD ? mark(txn, self->id, &self->found, &op->err) : DUR_OK;
    return code == DUR_OK && self->found == IS_DEAD ? free_rows(self, txn) : code;
}

static void free_done(dur__sq_op *op, dur__sq_file *file) {
    free_op *self = (free_op *)(void *)op;
    for (size_t i = 0; i < self->keys.count; i++)
        dur__sq_lease_drop(file, self->keys.list[i], true);
}

static int owner_free_rows(dur__sq_file *file, const char *id, bool clean, bool only_nowhere, dur_error *err) {
    free_op op = { .op = { .run = free_run, .done = free_done },
                   .id = id,
                   .clean = clean,
                   .when = only_nowhere ? IF_NOWHERE : WHATEVER };
    int code = dur__sq_submit(file, &op.op, err);
    dur__free(op.keys.list);
    return code;
}

/* ---- looking at others ---- */

typedef struct look {
    dur__sq_file *file;
    const char *self; /* the owner that looks; NULL: nobody */
    uint32_t peers;
    char **seem_dead; /* ids */
    size_t count;
} look;

static void look_seems_dead(look *self, const char *id) {
    self->seem_dead = dur__xrealloc(self->seem_dead, (self->count + 1) * sizeof(*self->seem_dead));
    self->seem_dead[self->count++] = dur__xstrdup(id);
}

static void look_at_file(look *self, const char *path, const char *name) {
    static const char marked[] = ".dead";
    owner_block block;
    size_t size = strlen(name), tail = sizeof(marked) - 1;
    if (size > tail && strcmp(name + size - tail, marked) == 0) { /* whoever marked it may be dead as well */
        char *whose = dur__xstrdup(name);
        whose[size - tail] = '\0';
        id_of_name(whose, block.id, sizeof block.id);
        dur__free(whose);
        look_seems_dead(self, block.id);
        return;
    }
    bool dead = file_says_dead(self->file, path, name, &block);
    if (dur__str_eq(block.id, self->self)) return; /* one that is late itself does not bury itself */
    if (dead && block.id[0] != '\0')
        look_seems_dead(self, block.id);
    else if (!dead)
        self->peers++;
}

static void look_at_folder(look *self) {
    dur__sq_file *file = self->file;
    char *folder = dur__xstrdup(file->path);
    char *slash = strrchr(folder, '/');
    const char *base = strrchr(file->path, '/') != NULL ? strrchr(file->path, '/') + 1 : file->path;
    size_t size = strlen(base);
    if (slash != NULL) slash[slash == folder] = '\0';
    DIR *dir = opendir(slash != NULL ? folder : ".");
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (strncmp(entry->d_name, base, size) != 0 || strncmp(entry->d_name + size, ".owner-", 7) != 0) continue;
        if (strstr(entry->d_name + size, ".new") != NULL) continue; /* not locked yet */
        dur__buf path = { 0 };
        dur__buf_format(&path, "%.*s%s", (int)(base - file->path), file->path, entry->d_name);
        look_at_file(self, dur__buf_str(&path), entry->d_name + size + 7);
        dur__buf_free(&path);
    }
    if (dir != NULL) closedir(dir);
    dur__free(folder);
}

/* A database in memory: owners of this process, by their heartbeat alone. */
static void look_at_memory(look *self) {
    dur__mutex_lock(&self->file->peers.owners_lock);
    DUR__LIST_EACH(&self->file->peers.owners, at) {
        dur__sq_owner *owner = DUR__CONTAINER(at, dur__sq_owner, link);
        if (dur__str_eq(owner->id, self->self)) continue;
        if (owner->gone || silent(self->file, owner->heartbeat_ms, owner->timeout_ms))
            look_seems_dead(self, owner->id);
        else
            self->peers++;
    }
    dur__mutex_unlock(&self->file->peers.owners_lock);
}

/* Who deleted the owner's row has taken it over, and its next beat says so. */
static void took_over(const look *self, const free_op *op) {
    dur__sq_file *file = self->file;
    dur__mutex_lock(&file->peers.owners_lock);
    dur__sq_owner *ours = self->self != NULL ? owner_find(file, self->self) : NULL;
    if (ours != NULL && op->owners > 0) {
        ours->taken_over++;
        ours->freed += op->freed;
        snprintf(ours->last_dead, sizeof ours->last_dead, "%s", op->id);
    }
    dur__sq_owner *dead = file->path == NULL ? owner_find(file, op->id) : NULL;
    if (dead != NULL) owner_free(dead, true); /* its next beat finds nobody of its name */
    dur__mutex_unlock(&file->peers.owners_lock);
}

static int take_over(look *self, const char *id, dur_error *err) {
    dur__sq_file *file = self->file;
    free_op op = { .op = { .run = free_run, .done = free_done }, .id = id, .when = IF_DEAD };
    int code = dur__sq_submit(file, &op.op, err);
    if (code == DUR_OK && op.found == LIVES) self->peers++;
    if (code == DUR_OK && op.found == IS_DEAD) {
        took_over(self, &op);
        grave_remove(file, id);
    }
    dur__free(op.keys.list);
    return code;
}

static int owners_look(dur__sq_file *file, const char *self_id, uint32_t *peers, dur_error *err) {
    look found = { .file = file, .self = self_id };
    int code = DUR_OK;
    if (file->path != NULL)
        look_at_folder(&found);
    else
        look_at_memory(&found);
    for (size_t i = 0; i < found.count; i++) {
        if (code == DUR_OK) code = take_over(&found, found.seem_dead[i], err);
        dur__free(found.seem_dead[i]);
    }
    dur__free(found.seem_dead);
    *peers = found.peers;
    return code;
}

int dur__sq_owners_look(dur__sq_file *file, const char *self_id, dur_error *err) {
    uint32_t peers;
    return owners_look(file, self_id, &peers, err);
}

/* ---- somebody looks at us ---- */

typedef struct keep_op {
    dur__sq_op op;
    const char *id;
    char *path; /* of its file; free … */
    dev_t dev;  /* … which is this one */
    ino_t ino;
    bool lives;
} keep_op;

static bool is_at(const keep_op *self, const char *path) {
    struct stat state;
    return stat(path, &state) == 0 && state.st_dev == self->dev && state.st_ino == self->ino;
}

/* Whoever marked it has come to an end: by taking it over, or not. */
static int keep_run(dur__sq_op *op, dur__sq_txn *txn) {
    keep_op *self = (keep_op *)(void *)op;
    bool registered = false;
    int code = has_row(txn, self->id, &registered, &op->err);
    char *grave = grave_path(self->path);
    self->lives = code == DUR_OK && registered &&
                  (is_at(self, self->path) || (is_at(self, grave) && rename(grave, self->path) == 0));
    dur__free(grave);
    return code;
}

/* Is the owner of this process still the one that is registered?  Its last sign of life is written.  One whose file has
   its name is; one whose file has not asks under the write lock.  One that was taken over is forgotten. */
static int owner_keep(dur__sq_file *file, const char *id, bool *lives, dur_error *err) {
    keep_op op = { .op = { .run = keep_run }, .id = id };
    struct stat state;
    dur__mutex_lock(&file->peers.owners_lock);
    dur__sq_owner *owner = owner_find(file, id);
    *lives = owner != NULL && !owner->gone;
    if (*lives && owner->fd >= 0 && !file_is_ours(owner)) {
        *lives = false;
        if (fstat(owner->fd, &state) == 0) {
            op.path = dur__xstrdup(owner->path);
            op.dev = state.st_dev;
            op.ino = state.st_ino;
        }
    }
    dur__mutex_unlock(&file->peers.owners_lock);
    int code = op.path != NULL ? dur__sq_submit(file, &op.op, err) : DUR_OK;
    *lives = *lives || (code == DUR_OK && op.lives);
    dur__free(op.path);
    if (code != DUR_OK || *lives) return code;
    dur__mutex_lock(&file->peers.owners_lock);
    if ((owner = owner_find(file, id)) != NULL) owner_free(owner, true);
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

int dur__sq_owners_resign(dur__sq_txn *txn, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    dur__sq_file *file = txn->file;
    int code = DUR_OK;
    dur__mutex_lock(&file->peers.owners_lock);
    DUR__LIST_EACH(&file->peers.owners, at) {
        dur__sq_owner *owner = DUR__CONTAINER(at, dur__sq_owner, link);
        free_op op = { .id = owner->id, .clean = true };
        if (code == DUR_OK) code = free_rows(&op, txn);
        if (code != DUR_OK && err != NULL && op.op.err.code != DUR_OK) *err = op.op.err;
        owner->gone = true;
        dur__free(op.keys.list);
    }
    dur__mutex_unlock(&file->peers.owners_lock);
    return code;
}

/* ---- methods ---- */

typedef struct register_op {
    dur__sq_op op;
    const dur_owner_options *options;
    char *stale; /* an owner of the table whose file is gone; free */
} register_op;

static int serve(dur__sq_txn *txn, const char *owner, uint64_t activity, const dur_handler_filter *filter,
                 dur_error *err) {
    int code = DUR_OK;
    if (filter == NULL) return dur__sq_run(txn->conn, DUR__SQ_SERVED_ADD, err, "itt", activity, "", owner);
    for (size_t i = 0; i < filter->count && code == DUR_OK; i++)
        code = dur__sq_run(txn->conn, DUR__SQ_SERVED_ADD, err, "itt", activity, filter->keys[i], owner);
    return code;
}

static int register_run(dur__sq_op *op, dur__sq_txn *txn) {
    register_op *self = (register_op *)(void *)op;
    const dur_owner_options *options = self->options;
    int code = dur__sq_run(txn->conn, DUR__SQ_OWNER_ADD, &op->err, "ttii", options->owner, txn->file->boot,
                           options->timeout_ms, txn->now_ms);
    if (code == DUR_OK) code = dur__sq_run(txn->conn, DUR__SQ_SERVED_DELETE, &op->err, "t", options->owner);
    if (code == DUR_OK) code = serve(txn, options->owner, 0, options->handlers, &op->err);
    if (code == DUR_OK) code = serve(txn, options->owner, 1, options->activities, &op->err);
    return code;
}

/* Rows of owners that have no file any more (a copied database, a cleaned folder): nobody else will find them. */
static int stale_rows(dur__sq_file *file, dur_error *err) {
    for (;;) {
        dur__sq_conn *conn = NULL;
        sqlite3_stmt *row = NULL;
        char *stale = NULL;
        int code = dur__sq_reader(file, &conn, err);
        if (code == DUR_OK) code = dur__sq_first(conn, DUR__SQ_OWNER_LIST, &row, err, "");
        while (code == DUR_OK && row != NULL && stale == NULL) {
            if (is_nowhere(file, dur__sq_text(row, 0)) == IS_DEAD) stale = dur__xstrdup(dur__sq_text(row, 0));
            code = dur__sq_next(&row, err);
        }
        dur__sq_end(&row);
        dur__sq_reader_done(file, conn);
        if (code != DUR_OK || stale == NULL) return code;
        code = owner_free_rows(file, stale, false, true, err);
        dur__free(stale);
        if (code != DUR_OK) return code;
    }
}

/* The file appears under its name only when it is locked: a file of that name that is not locked has lost its owner. */
static int owner_file_make(dur__sq_file *file, dur__sq_owner *owner, dur_error *err) {
    owner_block block = { .heartbeat_ms = file->world->boot_ms(file->world->data), .timeout_ms = owner->timeout_ms };
    snprintf(block.boot, sizeof block.boot, "%s", file->boot);
    snprintf(block.id, sizeof block.id, "%s", owner->id);
    dur__buf path = { 0 };
    dur__buf_format(&path, "%s.new", owner->path);
    owner->fd = open(dur__buf_str(&path), O_RDWR | O_CREAT | O_CLOEXEC | O_TRUNC, 0600);
    bool made = owner->fd >= 0 && flock(owner->fd, LOCK_EX | LOCK_NB) == 0 &&
                pwrite(owner->fd, &block, sizeof block, 0) == (ssize_t)sizeof block &&
                rename(dur__buf_str(&path), owner->path) == 0;
    int code = made ? DUR_OK
                    : dur_error_set(err, errno == ENOSPC ? DUR_EFULL : DUR_EIO, true, "sqlite.owner",
                                    "cannot make %s: %s", dur__buf_str(&path), strerror(errno));
    if (!made) unlink(dur__buf_str(&path));
    dur__buf_free(&path);
    return code;
}

/* One of the same id was marked as dead, and nobody came to the end of it: that must not happen to the new one. */
static int namesake_bury(dur__sq_file *file, const dur__sq_owner *owner, dur_error *err) {
    char *grave = grave_path(owner->path);
    int code = access(grave, F_OK) == 0 ? owner_free_rows(file, owner->id, false, false, err) : DUR_OK;
    dur__free(grave);
    if (code == DUR_OK) grave_remove(file, owner->id);
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
    if (filled.timeout_ms == 0) filled.timeout_ms = 10000;
    dur__sq_owner *owner = dur__xcalloc(1, sizeof(*owner));
    owner->id = dur__xstrdup(filled.owner);
    owner->fd = -1;
    owner->timeout_ms = filled.timeout_ms;
    owner->heartbeat_ms = file->world->boot_ms(file->world->data);
    if (file->path != NULL) {
        owner->path = owner_path(file, owner->id);
        code = namesake_bury(file, owner, err);
        if (code == DUR_OK) code = owner_file_make(file, owner, err);
    }
    register_op op = { .op = { .run = register_run }, .options = &filled };
    if (code == DUR_OK) code = dur__sq_submit(file, &op.op, err);
    dur__mutex_lock(&file->peers.owners_lock);
    dur__list_push(&file->peers.owners, &owner->link);
    if (code != DUR_OK) owner_free(owner, false);
    dur__mutex_unlock(&file->peers.owners_lock);
    if (code == DUR_OK && file->path != NULL) code = stale_rows(file, err);
    return code == DUR_OK ? dur__sq_owners_look(file, filled.owner, err) : code;
}

/* When somebody's death was found last, by whomever. */
static int crashed_at(dur__sq_file *file, uint64_t *at_ms, dur_error *err) {
    dur__sq_conn *conn = NULL;
    int code = dur__sq_reader(file, &conn, err);
    if (code == DUR_OK) code = dur__sq_get(conn, DUR__SQ_META_GET, at_ms, 1, err, "t", "crashed");
    dur__sq_reader_done(file, conn);
    return code;
}

int dur__sq_owner_beat(dur_provider *self, const char *id, dur_owner_report *out, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    memset(out, 0, sizeof *out);
    out->now_ms = file->world->wall_ms(file->world->data);
    int code = dur__sq_present(file, err);
    if (code != DUR_OK) return code;
    dur__mutex_lock(&file->peers.owners_lock);
    dur__sq_owner *owner = owner_find(file, id);
    if (owner != NULL) { /* first the sign of life, then the look for a mark: see above */
        owner->heartbeat_ms = file->world->boot_ms(file->world->data);
        if (owner->fd >= 0) (void)!pwrite(owner->fd, &owner->heartbeat_ms, sizeof owner->heartbeat_ms, 0);
    }
    dur__mutex_unlock(&file->peers.owners_lock);
    code = owner_keep(file, id, &out->still_ours, err);
    if (code != DUR_OK || !out->still_ours) return code;
    atomic_store(&file->peers.owners_moved, false);
    code = owners_look(file, id, &out->peers, err);
    if (code == DUR_OK) code = crashed_at(file, &out->crashed_at_ms, err);
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
    int code = owner_free_rows(file, id, true, false, err);
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
        dur__free(file->alive);
        file->alive = dur__xstrdup(id);
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
