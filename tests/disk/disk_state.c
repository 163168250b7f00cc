/*
 * disk_state.c: what may be on the disk after a loss of power.
 *
 * A file is what was synced and a list of what was written since.  Of that list each write is kept, lost, torn at
 * sectors of 512 bytes or at any byte, shortened, or replaced by rubbish where it made the file longer; in any order.
 * Bytes beside a write are never touched.  Names are journalled by every file system in use: what was made and deleted
 * since the folder was synced is there up to some point.
 */
#include "disk/disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SECTOR = 512, INODES_MAX = 4096, PAGE = 4096 };

typedef struct content {
    char *bytes;
    size_t used, size, room; /* beyond used: zeros */
} content;

typedef struct inode {
    content synced;
    uint32_t *since; /* operations of the log */
    size_t since_count, since_room;
} inode;

struct disk_state {
    inode *inodes[INODES_MAX];
    int32_t names[DISK_SLOTS]; /* synced */
    uint32_t *renames;
    size_t rename_count, rename_room;
    size_t at;
    const disk_op *ops;
    uint64_t seed;
};

static void out_of_memory(void) {
    fprintf(stderr, "disk: out of memory\n");
    abort();
}

static void push(uint32_t **list, size_t *count, size_t *room, uint32_t value) {
    if (*count == *room) {
        *room = *room == 0 ? 64 : *room * 2;
        *list = realloc(*list, *room * sizeof(**list));
        if (*list == NULL) out_of_memory();
    }
    (*list)[(*count)++] = value;
}

/* ---- content ---- */

static void content_use(content *self, size_t used) {
    if (used > self->room) {
        self->room = (used + 65535) & ~(size_t)65535;
        self->bytes = realloc(self->bytes, self->room);
        if (self->bytes == NULL) out_of_memory();
    }
    if (used > self->used) {
        memset(self->bytes + self->used, 0, used - self->used);
        self->used = used;
    }
}

static void content_write(content *self, uint64_t offset, const char *bytes, size_t size) {
    size_t end = (size_t)offset + size;
    if (bytes != NULL) {
        content_use(self, end);
        memcpy(self->bytes + offset, bytes, size);
    } else if (offset < self->used) {
        memset(self->bytes + offset, 0, (end < self->used ? end : self->used) - (size_t)offset);
    }
    if (end > self->size) self->size = end;
}

static void content_truncate(content *self, size_t size) {
    if (size < self->used) self->used = size;
    self->size = size;
}

static void content_copy(content *to, const content *from) {
    to->used = 0;
    content_use(to, from->used);
    if (from->used > 0) memcpy(to->bytes, from->bytes, from->used);
    to->size = from->size;
}

static void apply(content *to, const disk_op *op) {
    if (op->kind == DISK_TRUNCATE)
        content_truncate(to, (size_t)op->offset);
    else
        content_write(to, op->offset, op->bytes, op->size);
}

/* ---- the log, up to a point ---- */

static inode *inode_get(disk_state *state, int32_t id) {
    if (id >= INODES_MAX) {
        fprintf(stderr, "disk: too many files\n");
        abort();
    }
    if (state->inodes[id] == NULL && (state->inodes[id] = calloc(1, sizeof(inode))) == NULL) out_of_memory();
    return state->inodes[id];
}

disk_state *disk_state_new(const disk_image *first, const disk_op *ops, uint64_t seed) {
    disk_state *state = calloc(1, sizeof(*state));
    if (state == NULL) out_of_memory();
    state->ops = ops;
    state->seed = seed;
    for (int slot = 0; slot < DISK_SLOTS; slot++) {
        state->names[slot] = -1;
        if (first == NULL || first->bytes[slot] == NULL) continue;
        content *synced = &inode_get(state, slot)->synced;
        content_write(synced, 0, first->bytes[slot], first->used[slot]);
        synced->size = first->size[slot];
        state->names[slot] = slot;
    }
    return state;
}

void disk_state_free(disk_state *state) {
    if (state == NULL) return;
    for (size_t i = 0; i < INODES_MAX; i++) {
        if (state->inodes[i] == NULL) continue;
        free(state->inodes[i]->synced.bytes);
        free(state->inodes[i]->since);
        free(state->inodes[i]);
    }
    free(state->renames);
    free(state);
}

static void names_sync(disk_state *state) {
    for (size_t i = 0; i < state->rename_count; i++) {
        const disk_op *op = &state->ops[state->renames[i]];
        state->names[op->slot] = op->kind == DISK_CREATE ? op->inode : -1;
    }
    state->rename_count = 0;
}

static void file_sync(const disk_state *state, inode *file, bool all) {
    for (size_t i = 0; i < file->since_count; i++)
        if (all || disk_mix(state->seed, file->since[i]) % 2 == 0) apply(&file->synced, &state->ops[file->since[i]]);
    file->since_count = 0;
}

void disk_state_advance(disk_state *state, size_t to) {
    for (; state->at < to; state->at++) {
        const disk_op *op = &state->ops[state->at];
        inode *file = inode_get(state, op->inode);
        switch ((disk_kind)op->kind) {
        case DISK_WRITE:
        case DISK_TRUNCATE:
            push(&file->since, &file->since_count, &file->since_room, (uint32_t)state->at);
            break;
        case DISK_SYNC:
        case DISK_SYNC_FAILED:
            file_sync(state, file, op->kind == DISK_SYNC);
            if (op->folder) names_sync(state);
            break;
        case DISK_CREATE:
        case DISK_DELETE:
            push(&state->renames, &state->rename_count, &state->rename_room, (uint32_t)state->at);
            if (op->folder) names_sync(state);
            break;
        }
    }
}

size_t disk_state_at(const disk_state *state) {
    return state->at;
}

/* ---- a loss of power ---- */

typedef enum fate { KEPT, LOST, SECTORS, SHORTENED, TAIL, RUBBISH, FATES } fate;
static const char *const fate_names[] = {
    "kept", "lost", "torn at sectors", "shortened", "without its head", "rubbish"
};

static void write_some(content *to, const disk_op *op, size_t from, size_t end) {
    if (end > from) content_write(to, op->offset + from, op->bytes != NULL ? op->bytes + from : NULL, end - from);
}

static void suffer(content *to, const disk_op *op, fate what, uint64_t *random) {
    size_t size = op->size, before = to->size;
    if (op->kind == DISK_TRUNCATE || what == KEPT || size == 0) {
        if (what == KEPT || (what != LOST && disk_random(random) % 2 == 0)) apply(to, op);
        return;
    }
    switch (what) {
    case SECTORS:
        for (size_t at = 0; at < size;) {
            size_t end = at + SECTOR - (size_t)((op->offset + at) % SECTOR);
            if (end > size) end = size;
            if (disk_random(random) % 2 == 0) write_some(to, op, at, end);
            at = end;
        }
        break;
    case SHORTENED:
        write_some(to, op, 0, (size_t)(disk_random(random) % size));
        break;
    case TAIL:
        write_some(to, op, (size_t)(disk_random(random) % size), size);
        break;
    case RUBBISH: /* blocks that were given to the file, and never written */
        if (op->offset + size > before) {
            size_t from = op->offset > before ? 0 : before - (size_t)op->offset;
            char bytes[PAGE];
            if (size - from > PAGE) size = from + PAGE;
            for (size_t i = 0; i < size - from; i++)
                bytes[i] = (char)disk_random(random);
            content_write(to, op->offset + from, bytes, size - from);
        }
        break;
    case KEPT:
    case LOST:
    case FATES:
        break;
    }
}

static fate choose(int mode, size_t i, size_t cut, uint64_t *random) {
    static const fate mixed[] = { KEPT, KEPT, KEPT, LOST, LOST, SECTORS, SHORTENED, TAIL, RUBBISH };
    fate torn = (fate)(SECTORS + disk_random(random) % (FATES - SECTORS));
    switch (mode) {
    case 0:
        return LOST;
    case 1:
        return KEPT;
    case 2: /* in order, up to somewhere */
        return i < cut ? KEPT : i == cut ? torn : LOST;
    case 3: /* the later ones came first */
        return i < cut ? LOST : i == cut ? torn : KEPT;
    case 4: /* all but one */
        return i == cut ? (disk_random(random) % 2 == 0 ? LOST : torn) : KEPT;
    default:
        return mixed[disk_random(random) % (sizeof(mixed) / sizeof(mixed[0]))];
    }
}

static void file_compose(const disk_state *state, const inode *file, uint64_t *random, content *out, const char *name,
                         bool trace) {
    content_copy(out, &file->synced);
    int mode = (int)(disk_random(random) % 8);
    size_t cut = file->since_count > 0 ? (size_t)(disk_random(random) % file->since_count) : 0;
    for (size_t i = 0; i < file->since_count; i++) {
        const disk_op *op = &state->ops[file->since[i]];
        fate what = choose(mode, i, cut, random);
        if (trace)
            fprintf(stderr, "  %s: %s of %u bytes at %llu (operation %u): %s\n", name,
                    op->kind == DISK_TRUNCATE ? "truncate" : "write", op->size, (unsigned long long)op->offset,
                    file->since[i], fate_names[what]);
        suffer(out, op, what, random);
    }
}

void disk_state_compose(disk_state *state, uint64_t seed, disk_image *out, bool trace) {
    static const char *const names[DISK_SLOTS] = { "database", "wal", "journal" };
    uint64_t random = seed;
    int32_t now[DISK_SLOTS];
    memcpy(now, state->names, sizeof(now));
    size_t done = (size_t)(disk_random(&random) % (state->rename_count + 1));
    for (size_t i = 0; i < done; i++) {
        const disk_op *op = &state->ops[state->renames[i]];
        now[op->slot] = op->kind == DISK_CREATE ? op->inode : -1;
    }
    if (trace) fprintf(stderr, "  names: %zu of %zu changes\n", done, state->rename_count);
    memset(out, 0, sizeof(*out));
    for (int slot = 0; slot < DISK_SLOTS; slot++) {
        if (now[slot] < 0) continue;
        content made = { NULL, 0, 0, 0 };
        content_use(&made, 1);
        file_compose(state, inode_get(state, now[slot]), &random, &made, names[slot], trace);
        out->bytes[slot] = made.bytes;
        out->used[slot] = made.used;
        out->size[slot] = made.size;
        if (trace) fprintf(stderr, "  %s: %zu bytes\n", names[slot], made.size);
    }
}

void disk_state_whole(disk_state *state, disk_image *out) {
    int32_t now[DISK_SLOTS];
    memset(out, 0, sizeof(*out));
    memcpy(now, state->names, sizeof(now));
    for (size_t i = 0; i < state->rename_count; i++) {
        const disk_op *op = &state->ops[state->renames[i]];
        now[op->slot] = op->kind == DISK_CREATE ? op->inode : -1;
    }
    for (int slot = 0; slot < DISK_SLOTS; slot++) {
        if (now[slot] < 0) continue;
        const inode *file = inode_get(state, now[slot]);
        content made = { NULL, 0, 0, 0 };
        content_use(&made, 1);
        content_copy(&made, &file->synced);
        for (size_t i = 0; i < file->since_count; i++)
            apply(&made, &state->ops[file->since[i]]);
        out->bytes[slot] = made.bytes;
        out->used[slot] = made.used;
        out->size[slot] = made.size;
    }
}

/* ---- logs ---- */

disk_log disk_log_copy(void) {
    disk_log log = { malloc((disk->op_count + 1) * sizeof(disk_op)), malloc(disk->bytes_used + 1), disk->op_count };
    size_t used = 0;
    if (log.ops == NULL || log.bytes == NULL) out_of_memory();
    for (size_t i = 0; i < log.count; i++) {
        log.ops[i] = disk->ops[i];
        if (log.ops[i].bytes == NULL) continue;
        log.ops[i].bytes = memcpy(log.bytes + used, disk->ops[i].bytes, log.ops[i].size);
        used += log.ops[i].size;
    }
    return log;
}

void disk_log_free(disk_log *log) {
    free(log->ops);
    free(log->bytes);
}

/* ---- images ---- */

void disk_image_free(disk_image *image) {
    for (int slot = 0; slot < DISK_SLOTS; slot++)
        free(image->bytes[slot]);
    memset(image, 0, sizeof(*image));
}

static void folder_empty(int folder) {
    DIR *dir = fdopendir(dup(folder));
    rewinddir(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) unlinkat(folder, entry->d_name, 0);
    closedir(dir);
}

void disk_image_write(const disk_image *image, const char *path) {
    static const char *const names[DISK_SLOTS] = { "disk.db", "disk.db-wal", "disk.db-journal" };
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) {
        perror(path);
        exit(2);
    }
    folder_empty(folder);
    for (int slot = 0; slot < DISK_SLOTS; slot++) {
        if (image->bytes[slot] == NULL) continue;
        int fd = openat(folder, names[slot], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 || pwrite(fd, image->bytes[slot], image->used[slot], 0) != (ssize_t)image->used[slot] ||
            ftruncate(fd, (off_t)image->size[slot]) != 0) {
            perror(names[slot]);
            exit(2);
        }
        close(fd);
    }
    close(folder);
}
