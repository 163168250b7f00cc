/*
 * sqlite_owner.c: owners, their signs of life, and taking over from the dead.
 *
 * An owner has a file beside the database, "<file>.owner-<id>": locked by flock while it lives, with a heartbeat in its
 * first 8 bytes.  A free lock means dead at once (a live process never loses it); a silent heartbeat means dead after
 * the owner's timeout; another boot id means dead.  Taking over deletes the file, which tells a stopped owner that
 * comes back.  None of this costs a statement while everybody lives.
 */
#include "provider/sqlite/sqlite_internal.h"
#include "provider/sqlite/sqlite_methods.h"
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
    dur__buf path = { NULL, 0, 0 };
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

static dur__sq_owner *owner_find(dur__sq_file *file, const char *id) {
    DUR__LIST_EACH(&file->owners, at) {
        dur__sq_owner *owner = DUR__CONTAINER(at, dur__sq_owner, link);
        if (strcmp(owner->id, id) == 0) return owner;
    }
    return NULL;
}

static void owner_free(dur__sq_owner *owner, bool keep_file) {
    dur__list_unlink(&owner->link);
    if (owner->fd >= 0) {
        struct stat now, named;
        bool ours = fstat(owner->fd, &now) == 0 && stat(owner->path, &named) == 0 && now.st_ino == named.st_ino;
        if (ours && !keep_file) unlink(owner->path);
        close(owner->fd);
    }
    free(owner->id);
    free(owner->path);
    free(owner);
}

/* ---- setting free what an owner holds ---- */

typedef struct free_op {
    dur__sq_op op;
    const char *id;
    bool clean;
    uint32_t freed;
    uint64_t *keys;
    size_t key_count, key_room;
} free_op;

static int leases_of(free_op *self, dur__sq_txn *txn) {
    sqlite3_stmt *row = NULL;
    self->key_count = 0;
    int code = dur__sq_first(txn->conn, DUR__SQ_INSTANCE_OF_OWNER, &row, &self->op.err, "t", self->id);
    while (code == DUR_OK && row != NULL) {
        if (self->key_count == self->key_room) {
            self->key_room = self->key_room == 0 ? 64 : self->key_room * 2;
            self->keys = dur__xrealloc(self->keys, self->key_room * sizeof(*self->keys));
        }
        self->keys[self->key_count++] = dur__sq_u64(row, 0);
        code = dur__sq_next(&row, &self->op.err);
    }
    return code;
}

static int free_run(dur__sq_op *op, dur__sq_txn *txn) {
    free_op *self = (free_op *)(void *)op;
    dur__sq_release_how how = { .uncount = self->clean };
    txn->file->alive_epoch = 0;
    int code = leases_of(self, txn);
    for (size_t i = 0; i < self->key_count && code == DUR_OK && self->clean; i++)
        code = dur__sq_run(txn->conn, DUR__SQ_QUEUE_UNCOUNT, &op->err, "i", self->keys[i]);
    for (size_t i = 0; i < self->key_count && code == DUR_OK; i++)
        code = dur__sq_release(txn, self->keys[i], &how, &op->err);
    self->freed = (uint32_t)self->key_count;
    if (code == DUR_OK)
        code = dur__sq_run(txn->conn, DUR__SQ_WORK_OF_OWNER, &op->err, "tii", self->id, (uint64_t)(self->clean ? 0 : 1),
                           (uint64_t)(self->clean ? 1 : 0));
    self->freed += (uint32_t)sqlite3_changes64(txn->conn->db);
    if (code == DUR_OK)
        code = dur__sq_run(txn->conn, DUR__SQ_SESSION_OF_OWNER, &op->err, "tii", self->id, txn->boot_ms,
                           (uint64_t)(self->clean ? 0 : 1));
    /* What stays reserved for its node is free in the end: at once, or later, the next look finds out. */
    if (code == DUR_OK && sqlite3_changes64(txn->conn->db) > 0) dur__sq_expires_at(txn->file, txn->boot_ms + 1);
    if (code == DUR_OK) code = dur__sq_run(txn->conn, DUR__SQ_OWNER_DELETE, &op->err, "t", self->id);
    if (code == DUR_OK) code = dur__sq_run(txn->conn, DUR__SQ_SERVED_DELETE, &op->err, "t", self->id);
    if (code == DUR_OK && self->key_count > 0) code = dur__sq_count_lost(txn, &op->err);
    txn->file->wake_work = true;
    return code;
}

static void free_done(dur__sq_op *op, dur__sq_file *file) {
    free_op *self = (free_op *)(void *)op;
    for (size_t i = 0; i < self->key_count; i++)
        dur__sq_lease_drop(file, self->keys[i], true);
}

static int owner_free_rows(dur__sq_file *file, const char *id, bool clean, uint32_t *freed, dur_error *err) {
    free_op op = { .op = { .run = free_run, .done = free_done }, .id = id, .clean = clean };
    int code = dur__sq_submit(file, &op.op, err);
    *freed = op.freed;
    free(op.keys);
    return code;
}

/* ---- looking at others ---- */

/*
 * Is the owner of this file dead?  Opening and closing it does not touch its flock.  After a loss of power there may be
 * a name and nothing behind it: nobody has it locked, and the name says whose it was.
 */
static bool file_says_dead(dur__sq_file *file, const char *path, const char *name, owner_block *block) {
    memset(block, 0, sizeof *block);
    int fd = open(path, O_RDONLY | O_CLOEXEC); /* for writing, its closing would look like a death */
    if (fd < 0) return false;                  /* gone meanwhile */
    bool whole = pread(fd, block, sizeof *block, 0) == (ssize_t)sizeof *block;
    bool dead = flock(fd, LOCK_SH | LOCK_NB) == 0;
    block->id[sizeof block->id - 1] = block->boot[sizeof block->boot - 1] = '\0';
    if (whole) {
        uint64_t now = file->world->boot_ms(file->world->data);
        bool other_boot = strcmp(block->boot, file->boot) != 0;
        bool silent = !other_boot && now > block->heartbeat_ms && now - block->heartbeat_ms >= block->timeout_ms;
        dead = dead || other_boot || silent;
    }
    if (!whole || block->id[0] == '\0') id_of_name(name, block->id, sizeof block->id);
    close(fd);
    return dead;
}

typedef struct look {
    dur__sq_file *file;
    const char *except; /* its own id */
    uint32_t peers;
    char **dead; /* ids */
    char **paths;
    size_t count;
} look;

static void look_dead(look *self, const char *id, const char *path) {
    self->dead = dur__xrealloc(self->dead, (self->count + 1) * sizeof(*self->dead));
    self->paths = dur__xrealloc(self->paths, (self->count + 1) * sizeof(*self->paths));
    self->dead[self->count] = dur__xstrdup(id);
    self->paths[self->count++] = dur__xstrdup(path);
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
        dur__buf path = { NULL, 0, 0 };
        dur__buf_format(&path, "%.*s%s", (int)(base - file->path), file->path, entry->d_name);
        owner_block block;
        bool dead = file_says_dead(file, dur__buf_str(&path), entry->d_name + size + 7, &block);
        if (dead && block.id[0] != '\0')
            look_dead(self, block.id, dur__buf_str(&path));
        else if (!dead && !dur__str_eq(block.id, self->except))
            self->peers++;
        dur__buf_free(&path);
    }
    if (dir != NULL) closedir(dir);
    free(folder);
}

/* A database in memory: owners of this process, by their heartbeat alone.  With owners_lock held. */
static void look_at_memory(look *self) {
    uint64_t now = self->file->world->boot_ms(self->file->world->data);
    DUR__LIST_EACH(&self->file->owners, at) {
        dur__sq_owner *owner = DUR__CONTAINER(at, dur__sq_owner, link);
        if (dur__str_eq(owner->id, self->except) || owner->gone) continue;
        if (now > owner->heartbeat_ms && now - owner->heartbeat_ms >= owner->timeout_ms)
            look_dead(self, owner->id, NULL);
        else
            self->peers++;
    }
}

static int take_over(dur__sq_file *file, look *found, dur_error *err) {
    int code = DUR_OK;
    for (size_t i = 0; i < found->count; i++) {
        uint32_t freed = 0;
        if (code == DUR_OK) code = owner_free_rows(file, found->dead[i], false, &freed, err);
        if (code == DUR_OK) {
            if (found->paths[i] != NULL) unlink(found->paths[i]);
            dur__mutex_lock(&file->owners_lock);
            dur__sq_owner *ours = owner_find(file, found->dead[i]);
            if (ours != NULL) ours->gone = true;
            file->taken_over++;
            file->freed += freed;
            snprintf(file->last_dead, sizeof file->last_dead, "%s", found->dead[i]);
            dur__mutex_unlock(&file->owners_lock);
        }
        free(found->dead[i]);
        free(found->paths[i]);
    }
    free(found->dead);
    free(found->paths);
    return code;
}

static int owners_look(dur__sq_file *file, const char *self_id, uint32_t *peers, dur_error *err) {
    look found = { .file = file, .except = self_id };
    if (file->path != NULL)
        look_at_folder(&found);
    else {
        dur__mutex_lock(&file->owners_lock);
        look_at_memory(&found);
        dur__mutex_unlock(&file->owners_lock);
    }
    *peers = found.peers;
    return take_over(file, &found, err);
}

int dur__sq_owners_look(dur__sq_file *file, dur_error *err) {
    uint32_t peers;
    return owners_look(file, NULL, &peers, err);
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
            char *path = owner_path(file, dur__sq_text(row, 0));
            if (access(path, F_OK) != 0 && errno == ENOENT) stale = dur__xstrdup(dur__sq_text(row, 0));
            free(path);
            code = dur__sq_next(&row, err);
        }
        dur__sq_end(&row);
        dur__sq_reader_done(file, conn);
        if (code != DUR_OK || stale == NULL) return code;
        uint32_t freed;
        code = owner_free_rows(file, stale, false, &freed, err);
        free(stale);
        if (code != DUR_OK) return code;
    }
}

/* The file appears under its name only when it is locked: a file of that name that is not locked has lost its owner. */
static int owner_file_make(dur__sq_file *file, dur__sq_owner *owner, dur_error *err) {
    owner_block block = { .heartbeat_ms = file->world->boot_ms(file->world->data), .timeout_ms = owner->timeout_ms };
    snprintf(block.boot, sizeof block.boot, "%s", file->boot);
    snprintf(block.id, sizeof block.id, "%s", owner->id);
    dur__buf path = { NULL, 0, 0 };
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

/* Known and not taken for dead; one that was is forgotten. */
static bool owner_alive(dur__sq_file *file, const char *id) {
    struct stat state;
    dur__mutex_lock(&file->owners_lock);
    dur__sq_owner *owner = owner_find(file, id);
    bool dead =
        owner != NULL && (owner->gone || (owner->fd >= 0 && fstat(owner->fd, &state) == 0 && state.st_nlink == 0));
    if (dead) owner_free(owner, true);
    dur__mutex_unlock(&file->owners_lock);
    return owner != NULL && !dead;
}

int dur__sq_owner_register(dur_provider *self, const dur_owner_options *options, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    if (options->owner == NULL || options->owner[0] == '\0' || strlen(options->owner) >= sizeof((owner_block *)0)->id)
        return dur_error_set(err, DUR_EINVAL, false, "sqlite.owner", "an owner id has 1 to 191 bytes");
    if (owner_alive(file, options->owner))
        return dur_error_set(err, DUR_EEXISTS, false, "sqlite.owner", "owner %s is registered", options->owner);
    dur_owner_options filled = *options;
    if (filled.timeout_ms == 0) filled.timeout_ms = 10000;
    dur__sq_owner *owner = dur__xcalloc(1, sizeof(*owner));
    owner->id = dur__xstrdup(filled.owner);
    owner->fd = -1;
    owner->timeout_ms = filled.timeout_ms;
    owner->heartbeat_ms = file->world->boot_ms(file->world->data);
    int code = DUR_OK;
    if (file->path != NULL) {
        owner->path = owner_path(file, owner->id);
        code = owner_file_make(file, owner, err);
    }
    register_op op = { .op = { .run = register_run }, .options = &filled };
    if (code == DUR_OK) code = dur__sq_submit(file, &op.op, err);
    dur__mutex_lock(&file->owners_lock);
    dur__list_push(&file->owners, &owner->link);
    if (code != DUR_OK) owner_free(owner, false);
    dur__mutex_unlock(&file->owners_lock);
    if (code == DUR_OK && file->path != NULL) code = stale_rows(file, err);
    uint32_t peers;
    if (code == DUR_OK) code = owners_look(file, filled.owner, &peers, err);
    return code;
}

int dur__sq_owner_beat(dur_provider *self, const char *id, dur_owner_report *out, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    memset(out, 0, sizeof *out);
    out->now_ms = file->world->wall_ms(file->world->data);
    dur__mutex_lock(&file->owners_lock);
    dur__sq_owner *owner = owner_find(file, id);
    bool known = owner != NULL;
    if (known) {
        struct stat state;
        owner->heartbeat_ms = file->world->boot_ms(file->world->data);
        out->still_ours = !owner->gone;
        if (owner->fd >= 0) {
            (void)!pwrite(owner->fd, &owner->heartbeat_ms, sizeof owner->heartbeat_ms, 0);
            if (fstat(owner->fd, &state) == 0 && state.st_nlink == 0) out->still_ours = false;
        }
        if (!out->still_ours) owner_free(owner, true);
    }
    dur__mutex_unlock(&file->owners_lock);
    if (!known || !out->still_ours) return DUR_OK;
    atomic_store(&file->owners_moved, false);
    int code = owners_look(file, id, &out->peers, err);
    dur__mutex_lock(&file->owners_lock);
    out->taken_over = file->taken_over;
    out->freed = file->freed;
    snprintf(out->last_dead, sizeof out->last_dead, "%s", file->last_dead);
    file->taken_over = file->freed = 0;
    dur__mutex_unlock(&file->owners_lock);
    return code;
}

int dur__sq_owner_release(dur_provider *self, const char *id, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    uint32_t freed;
    int code = owner_free_rows(file, id, true, &freed, err);
    if (code != DUR_OK) return code;
    dur__mutex_lock(&file->owners_lock);
    dur__sq_owner *owner = owner_find(file, id);
    if (owner != NULL) owner_free(owner, false);
    dur__mutex_unlock(&file->owners_lock);
    return DUR_OK;
}

int dur__sq_owner_lives(dur__sq_txn *txn, const char *id, dur_error *err) {
    dur__sq_file *file = txn->file;
    if (id == NULL || (file->alive_epoch == file->epoch && dur__str_eq(file->alive, id))) return DUR_OK;
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(txn->conn, DUR__SQ_OWNER_GET, &row, err, "t", id);
    bool lives = row != NULL;
    dur__sq_end(&row);
    if (lives) { /* until somebody else writes, or an owner goes here */
        free(file->alive);
        file->alive = dur__xstrdup(id);
        file->alive_epoch = file->epoch;
    }
    if (code != DUR_OK || lives) return code;
    return dur_error_set(err, DUR_ELEASE, false, "sqlite.fetch", "owner %s is not registered, or was taken for dead",
                         id);
}

bool dur__sq_owner_known(dur__sq_file *file, const char *id) {
    dur__mutex_lock(&file->owners_lock);
    bool known = owner_find(file, id) != NULL;
    dur__mutex_unlock(&file->owners_lock);
    return known;
}

/* Not released: whoever looks next takes over. */
void dur__sq_owners_close(dur__sq_file *file) {
    for (dur__link *at; (at = dur__list_first(&file->owners)) != NULL;)
        owner_free(DUR__CONTAINER(at, dur__sq_owner, link), true);
}

/* In a forked child: the flock lives as long as any copy of the descriptor. */
void dur__sq_owners_forked(dur__sq_file *file) {
    DUR__LIST_EACH(&file->owners, at) {
        dur__sq_owner *owner = DUR__CONTAINER(at, dur__sq_owner, link);
        if (owner->fd >= 0) close(owner->fd);
        owner->fd = -1;
    }
}
