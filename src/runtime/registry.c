/*
 * registry.c: names and versions to handlers.
 *
 * A registry owns a sorted list of names, each with its versions in ascending order.  It is filled by one thread, then
 * frozen by the first runtime; only the policy of a name may change after that, under the mutex.
 */
#include "runtime/registry_internal.h"

#include "base/assert.h"
#include "base/buf.h"
#include "base/thread.h"
#include "core/check.h"
#include "core/limits.h"
#include "core/semver.h"
#include <stdatomic.h>
#include <stdlib.h>

#define STACK_LEAST ((size_t)16 << 10)
#define STACK_MOST ((size_t)1 << 30)
#define RESERVED_PREFIX "__duroxide_syscall:"

typedef struct name_entry {
    dur_handler_kind kind;
    char *name;
    dur__handler **versions; /* ascending */
    size_t count;
    char *versions_text;        /* "1.0.0,1.1.0" */
    const dur__handler *policy; /* NULL: the highest; under the mutex */
} name_entry;

struct dur_registry {
    dur__mutex mutex;
    atomic_uint references;
    atomic_bool frozen;
    name_entry **names; /* by kind and name */
    size_t count;
};

int dur_registry_new(dur_registry **out, dur_error *err) {
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, "registry.new", "out is required");
    dur_registry *registry = dur__zget(sizeof(*registry));
    if (registry == NULL) return dur_error_set(err, DUR_ENOMEM, false, "registry.new", "no memory for a registry");
    dur__mutex_init(&registry->mutex);
    atomic_init(&registry->references, 1);
    atomic_init(&registry->frozen, false);
    *out = registry;
    dur_error_clear(err);
    return DUR_OK;
}

static void handler_free(dur__handler *handler) {
    if (handler == NULL) return;
    dur__free((char *)(uintptr_t)handler->version);
    dur__free(handler);
}

static void entry_free(name_entry *entry) {
    for (size_t i = 0; i < entry->count; i++)
        handler_free(entry->versions[i]);
    dur__free(entry->versions);
    dur__free(entry->versions_text);
    dur__free(entry->name);
    dur__free(entry);
}

void dur_registry_free(dur_registry *registry) {
    if (registry == NULL || atomic_fetch_sub(&registry->references, 1) != 1) return;
    for (size_t i = 0; i < registry->count; i++)
        entry_free(registry->names[i]);
    dur__free(registry->names);
    dur__mutex_destroy(&registry->mutex);
    dur__free(registry);
}

dur_registry *dur__registry_retain(dur_registry *registry) {
    atomic_fetch_add(&registry->references, 1);
    return registry;
}

void dur__registry_freeze(dur_registry *registry) {
    atomic_store(&registry->frozen, true);
}

/* Where the name is, or would be. */
static size_t entry_position(const dur_registry *registry, dur_handler_kind kind, const char *name, bool *found) {
    size_t low = 0, high = registry->count;
    *found = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const name_entry *entry = registry->names[middle];
        int order = entry->kind != kind ? (int)entry->kind - (int)kind : strcmp(entry->name, name);
        if (order == 0) *found = true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static name_entry *entry_find(const dur_registry *registry, dur_handler_kind kind, const char *name) {
    if (registry == NULL || name == NULL) return NULL;
    bool found;
    size_t at = entry_position(registry, kind, name, &found);
    return found ? registry->names[at] : NULL;
}

static const dur__handler *version_find(const name_entry *entry, const char *version) {
    for (size_t i = 0; i < entry->count; i++) {
        if (strcmp(entry->versions[i]->version, version) == 0) return entry->versions[i];
    }
    return NULL;
}

static name_entry *entry_make(dur_registry *registry, dur_handler_kind kind, const char *name) {
    bool found;
    size_t at = entry_position(registry, kind, name, &found);
    if (found) return registry->names[at];
    name_entry *entry = dur__xcalloc(1, sizeof(*entry));
    entry->kind = kind;
    entry->name = dur__xstrdup(name);
    registry->names = dur__xrealloc(registry->names, (registry->count + 1) * sizeof(name_entry *));
    memmove(registry->names + at + 1, registry->names + at, (registry->count - at) * sizeof(name_entry *));
    registry->names[at] = entry;
    registry->count++;
    return entry;
}

static void versions_text_make(name_entry *entry) {
    dur__buf text = { 0 };
    for (size_t i = 0; i < entry->count; i++) {
        if (i > 0) dur__buf_char(&text, ',');
        dur__buf_text(&text, entry->versions[i]->version);
    }
    dur__free(entry->versions_text);
    entry->versions_text = dur__buf_take(&text);
}

static void version_insert(name_entry *entry, const dur__handler *from) {
    dur__handler *handler = dur__xmalloc(sizeof(*handler));
    *handler = *from;
    handler->name = entry->name;
    handler->version = dur__xstrdup(from->version);
    size_t at = entry->count;
    while (at > 0 && dur__semver_compare_text(entry->versions[at - 1]->version, from->version) > 0)
        at--;
    entry->versions = dur__xrealloc(entry->versions, (entry->count + 1) * sizeof(dur__handler *));
    memmove(entry->versions + at + 1, entry->versions + at, (entry->count - at) * sizeof(dur__handler *));
    entry->versions[at] = handler;
    entry->count++;
    versions_text_make(entry);
}

static const char *kind_word(dur_handler_kind kind) {
    return kind == DUR_HANDLER_ACTIVITY ? "activity" : "orchestration";
}

/* A table's element, whatever size the caller compiled it with. */
static dur_handler element_read(const dur_handler *at) {
    dur_handler handler = { 0 };
    memcpy(&handler, at, at->size < sizeof(handler) ? at->size : sizeof(handler));
    return handler;
}

static int element_check(const dur_handler *handler, dur_error *err) {
    const char *op = "registry.add";
    size_t bad = 0;
    if (handler->kind != DUR_HANDLER_ACTIVITY && handler->kind != DUR_HANDLER_ORCHESTRATION)
        return dur_error_set(err, DUR_EINVAL, false, op, "handler \"%s\" has no known kind",
                             handler->name != NULL ? handler->name : "");
    const char *word = kind_word(handler->kind);
    if (handler->name == NULL || handler->name[0] == '\0')
        return dur_error_set(err, DUR_EINVAL, false, op, "an %s needs a name", word);
    if (strlen(handler->name) > DUR__NAME_BYTES_MAX)
        return dur_error_set(err, DUR_EINVAL, false, op, "the name of %s \"%.40s…\" has more than %d bytes", word,
                             handler->name, DUR__NAME_BYTES_MAX);
    if (!dur__utf8_valid(handler->name, strlen(handler->name), &bad))
        return dur_error_set(err, DUR_EINVAL, false, op, "the name of an %s is not UTF-8 at byte %zu", word, bad);
    bad = dur__control_at(handler->name);
    if (handler->name[bad] != '\0')
        return dur_error_set(err, DUR_EINVAL, false, op, "the name of an %s has control character 0x%02x at byte %zu",
                             word, (unsigned)(unsigned char)handler->name[bad], bad);
    if (handler->stack_bytes != 0 && (handler->stack_bytes < STACK_LEAST || handler->stack_bytes > STACK_MOST))
        return dur_error_set(err, DUR_EINVAL, false, op, "%s \"%s\": stack_bytes is %zu, not between 16 KiB and 1 GiB",
                             word, handler->name, handler->stack_bytes);
    if (strncmp(handler->name, RESERVED_PREFIX, strlen(RESERVED_PREFIX)) == 0)
        return dur_error_set(err, DUR_EINVAL, false, op, "%s \"%s\" begins with the reserved " RESERVED_PREFIX, word,
                             handler->name);
    if (handler->version != NULL && !dur__semver_parse(handler->version, NULL))
        return dur_error_set(err, DUR_EINVAL, false, op, "%s \"%s\": \"%s\" is not a semantic version (1.2.3)", word,
                             handler->name, handler->version);
    bool has_function =
        handler->kind == DUR_HANDLER_ACTIVITY ? handler->activity != NULL : handler->orchestration != NULL;
    if (handler->taken && (handler->kind != DUR_HANDLER_ACTIVITY || has_function))
        return dur_error_set(err, DUR_EINVAL, false, op,
                             "%s \"%s\": only an activity without a function can be taken by the host", word,
                             handler->name);
    if (!has_function && !handler->taken)
        return dur_error_set(err, DUR_EINVAL, false, op, "%s \"%s\" has no function", word, handler->name);
    return DUR_OK;
}

static int exists_error(dur_error *err, const char *op, dur_handler_kind kind, const char *name, const char *version) {
    return dur_error_set(err, DUR_EEXISTS, false, op, "%s \"%s\" version %s is registered already", kind_word(kind),
                         name, version);
}

/* The same name and version earlier in the same table. */
static bool repeated(const dur_handler *table, const dur_handler *until, const dur_handler *wanted) {
    const char *version = wanted->version != NULL ? wanted->version : "1.0.0";
    for (const char *at = (const char *)table; at != (const char *)until;
         at += ((const dur_handler *)(const void *)at)->size) {
        dur_handler other = element_read((const dur_handler *)(const void *)at);
        const char *other_version = other.version != NULL ? other.version : "1.0.0";
        if (other.kind == wanted->kind && strcmp(other.name, wanted->name) == 0 && strcmp(other_version, version) == 0)
            return true;
    }
    return false;
}

static int table_check(const dur_registry *registry, const dur_handler *handlers, dur_error *err) {
    for (const char *at = (const char *)handlers;; at += ((const dur_handler *)(const void *)at)->size) {
        const dur_handler *element = (const dur_handler *)(const void *)at;
        if (element->size < offsetof(dur_handler, stack_bytes) || element->size > 4096)
            return dur_error_set(err, DUR_EINVAL, false, "registry.add",
                                 "a table element has size %zu: use DUR_ACTIVITY, DUR_ORCHESTRATION and "
                                 "DUR_HANDLERS_END",
                                 element->size);
        dur_handler handler = element_read(element);
        if (handler.kind == DUR_HANDLER_END) return DUR_OK;
        int code = element_check(&handler, err);
        if (code != DUR_OK) return code;
        const char *version = handler.version != NULL ? handler.version : "1.0.0";
        const name_entry *entry = entry_find(registry, handler.kind, handler.name);
        if ((entry != NULL && version_find(entry, version) != NULL) || repeated(handlers, element, &handler))
            return exists_error(err, "registry.add", handler.kind, handler.name, version);
    }
}

static int writable(const dur_registry *registry, const char *op, dur_error *err) {
    if (registry == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "registry is required");
    if (atomic_load(&registry->frozen))
        return dur_error_set(err, DUR_ESTATE, false, op, "a runtime uses this registry: it can no longer be changed");
    return DUR_OK;
}

/* All of a table is added, or nothing. */
static size_t table_bytes(const dur_registry *registry, const dur_handler *handlers) {
    size_t bytes = DUR__ASIDE_BYTES, count = registry->count;
    for (const char *at = (const char *)handlers;; at += ((const dur_handler *)(const void *)at)->size) {
        dur_handler handler = element_read((const dur_handler *)(const void *)at);
        if (handler.kind == DUR_HANDLER_END) return bytes;
        bytes += 1024 + 2 * ++count * (sizeof(void *) + 32) + 8 * strlen(handler.name);
    }
}

int dur_registry_add(dur_registry *registry, const dur_handler *handlers, dur_error *err) {
    int code = writable(registry, "registry.add", err);
    if (code != DUR_OK) return code;
    if (handlers == NULL)
        return dur_error_set(err, DUR_EINVAL, false, "registry.add", "a table of handlers is required");
    code = table_check(registry, handlers, err);
    if (code != DUR_OK) return code;
    DUR__SET_ASIDE("registry.add", err);
    if (!dur__cover_need(table_bytes(registry, handlers))) return DUR__NO_MEMORY(err, "registry.add");
    for (const char *at = (const char *)handlers;; at += ((const dur_handler *)(const void *)at)->size) {
        dur_handler handler = element_read((const dur_handler *)(const void *)at);
        if (handler.kind == DUR_HANDLER_END) break;
        dur__handler added = { .kind = handler.kind,
                               .version = handler.version != NULL ? handler.version : "1.0.0",
                               .activity = handler.activity,
                               .taken = handler.taken,
                               .orchestration = handler.orchestration,
                               .stack_bytes = handler.stack_bytes,
                               .data = handler.data,
                               .unwind = handler.unwind };
        version_insert(entry_make(registry, handler.kind, handler.name), &added);
    }
    dur_error_clear(err);
    return DUR_OK;
}

int dur_registry_merge(dur_registry *registry, const dur_registry *other, dur_error *err) {
    int code = writable(registry, "registry.merge", err);
    if (code != DUR_OK) return code;
    if (other == NULL || other == registry)
        return dur_error_set(err, DUR_EINVAL, false, "registry.merge", "another registry is required");
    for (size_t i = 0; i < other->count; i++) {
        const name_entry *theirs = other->names[i], *ours = entry_find(registry, theirs->kind, theirs->name);
        for (size_t v = 0; ours != NULL && v < theirs->count; v++) {
            if (version_find(ours, theirs->versions[v]->version) != NULL)
                return exists_error(err, "registry.merge", theirs->kind, theirs->name, theirs->versions[v]->version);
        }
    }
    size_t bytes = DUR__ASIDE_BYTES;
    for (size_t i = 0; i < other->count; i++)
        bytes += other->names[i]->count * (1024 + 2 * (registry->count + other->count) * (sizeof(void *) + 32)) +
                 8 * strlen(other->names[i]->name);
    DUR__SET_ASIDE("registry.merge", err);
    if (!dur__cover_need(bytes)) return DUR__NO_MEMORY(err, "registry.merge");
    for (size_t i = 0; i < other->count; i++) {
        const name_entry *theirs = other->names[i];
        name_entry *ours = entry_make(registry, theirs->kind, theirs->name);
        for (size_t v = 0; v < theirs->count; v++)
            version_insert(ours, theirs->versions[v]);
        dur__mutex_lock((dur__mutex *)(uintptr_t)&other->mutex);
        const dur__handler *policy = theirs->policy;
        dur__mutex_unlock((dur__mutex *)(uintptr_t)&other->mutex);
        if (policy != NULL) ours->policy = version_find(ours, policy->version);
    }
    dur_error_clear(err);
    return DUR_OK;
}

int dur_registry_policy(dur_registry *registry, const char *orchestration, const char *version, dur_error *err) {
    const char *op = "registry.policy";
    if (registry == NULL || orchestration == NULL)
        return dur_error_set(err, DUR_EINVAL, false, op, "registry and orchestration are required");
    int code = dur__check_name(err, op, "orchestration", orchestration, DUR__NAME_BYTES_MAX, DUR__REQUIRED);
    if (code == DUR_OK) code = dur__check_version(err, op, version);
    if (code != DUR_OK) return code;
    name_entry *entry = entry_find(registry, DUR_HANDLER_ORCHESTRATION, orchestration);
    if (entry == NULL)
        return dur_error_set(err, DUR_ENOTFOUND, false, op, "orchestration \"%s\" is not registered", orchestration);
    const dur__handler *exact = version != NULL ? version_find(entry, version) : NULL;
    if (version != NULL && exact == NULL)
        return dur_error_set(err, DUR_ENOTFOUND, false, op, "orchestration \"%s\" has no version %s (it has %s)",
                             orchestration, version, entry->versions_text);
    dur__mutex_lock(&registry->mutex);
    entry->policy = exact;
    dur__mutex_unlock(&registry->mutex);
    dur_error_clear(err);
    return DUR_OK;
}

size_t dur_registry_count(const dur_registry *registry) {
    return registry != NULL ? registry->count : 0;
}

const char *dur_registry_name(const dur_registry *registry, size_t index, dur_handler_kind *kind) {
    if (registry == NULL || index >= registry->count) return NULL;
    if (kind != NULL) *kind = registry->names[index]->kind;
    return registry->names[index]->name;
}

const char *dur_registry_versions(const dur_registry *registry, dur_handler_kind kind, const char *name) {
    const name_entry *entry = entry_find(registry, kind, name);
    return entry != NULL ? entry->versions_text : NULL;
}

bool dur_registry_has(const dur_registry *registry, dur_handler_kind kind, const char *name, const char *version) {
    const name_entry *entry = entry_find(registry, kind, name);
    return entry != NULL && (version == NULL || version_find(entry, version) != NULL);
}

static const dur__handler *chosen(dur_registry *registry, const name_entry *entry) {
    DUR_ASSERT(entry->count > 0);
    dur__mutex_lock(&registry->mutex);
    const dur__handler *policy = entry->policy;
    dur__mutex_unlock(&registry->mutex);
    return policy != NULL ? policy : entry->versions[entry->count - 1];
}

const char *dur_registry_resolve(const dur_registry *registry, const char *orchestration) {
    const name_entry *entry = entry_find(registry, DUR_HANDLER_ORCHESTRATION, orchestration);
    return entry != NULL ? chosen((dur_registry *)(uintptr_t)registry, entry)->version : NULL;
}

const dur__handler *dur__registry_find(dur_registry *registry, dur_handler_kind kind, const char *name,
                                       const char *version) {
    const name_entry *entry = entry_find(registry, kind, name);
    if (entry == NULL) return NULL;
    if (version == NULL || version[0] == '\0' || strcmp(version, "0.0.0") == 0) return chosen(registry, entry);
    return version_find(entry, version);
}
