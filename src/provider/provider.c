/*
 * provider.c: opening stores by URL, counting their handles, and the maintenance calls.
 */
#include "base/assert.h"
#include "base/buf.h"
#include "base/map.h"
#include "base/thread.h"
#include "obs/log_internal.h"
#include "provider/live.h"
#include "provider/openers.h"
#include "provider/provider_internal.h"
#include "provider/starts.h"

#include <ctype.h>
#ifdef DURITE_POSTGRES
#include <durite/postgres.h>
#endif
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define POSTGRES_LIBRARY "libdurite-postgres.so.0"
#define POSTGRES_PACKAGE "libdurite-postgres"
#define POSTGRES_OPENER "dur_postgres_open_url"

/* ---- handles ----------------------------------------------------------------------------------------------------- */

#define STARTS_MAX 1024u

/* Hangs on dur_provider.reserved. */
typedef struct store_state {
    atomic_size_t handles;
    uint64_t serial;             /* of the process that opened it */
    dur__mutex mutex;            /* guards the ring, and desk while it is NULL */
    char **starts;               /* ids that were started through this handle last; NULL: none yet */
    size_t start_next;           /* the oldest, to be replaced next */
    dur__live *live;             /* what runs in this process */
    _Atomic(dur__starts *) desk; /* of the store; NULL: nobody has asked for it */
} store_state;

static store_state *state_of(const dur_provider *store) {
    return __atomic_load_n((void *const *)&store->reserved, __ATOMIC_ACQUIRE);
}

static void state_free(store_state *state) {
    for (size_t i = 0; state->starts != NULL && i < STARTS_MAX; i++)
        dur__free(state->starts[i]);
    dur__free(state->starts);
    dur__live_free(state->live);
    dur__mutex_destroy(&state->mutex);
    dur__free(state);
}

bool dur__provider_adopt(dur_provider *store) {
    if (state_of(store) != NULL) return true;
    store_state *state = dur__zget(sizeof(*state));
    void *none = NULL;
    if (state == NULL) return false;
    atomic_init(&state->handles, 1);
    state->serial = dur__process_serial();
    dur__mutex_init(&state->mutex);
    state->live = dur__live_new();
    if (state->live == NULL) {
        state_free(state);
        return false;
    }
    if (!__atomic_compare_exchange_n(&store->reserved, &none, (void *)state, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        state_free(state); /* two threads saw a store that its opener did not adopt */
    return true;
}

dur_provider *dur_store_retain(dur_provider *store) {
    if (store == NULL || !dur__provider_adopt(store)) return NULL;
    atomic_fetch_add_explicit(&state_of(store)->handles, 1, memory_order_relaxed);
    return store;
}

void dur_provider_close(dur_provider *store) {
    if (store == NULL) return;
    store_state *state = state_of(store);
    if (state == NULL) { /* nobody has adopted it, so nobody else has it */
        store->methods->close(store);
        return;
    }
    if (atomic_fetch_sub_explicit(&state->handles, 1, memory_order_acq_rel) != 1) return;
    if (state->serial == dur__process_serial()) dur__starts_drop(atomic_load(&state->desk));
    store->methods->close(store);
    state_free(state);
}

dur__live *dur__store_live(dur_provider *store) {
    bool adopted = dur__provider_adopt(store); /* as a rule long ago: who asks has retained it */
    DUR_ASSERT(adopted);
    return state_of(store)->live;
}

dur__starts *dur__store_starts(dur_provider *store, const char *identity) {
    store_state *state = dur__provider_adopt(store) ? state_of(store) : NULL;
    if (state == NULL || atomic_load(&state->desk) != NULL) return state != NULL ? atomic_load(&state->desk) : NULL;
    dur__mutex_lock(&state->mutex);
    if (atomic_load(&state->desk) == NULL) atomic_store(&state->desk, dur__starts_share(store->methods, identity));
    dur__mutex_unlock(&state->mutex);
    return atomic_load(&state->desk);
}

void dur__store_remember_start(dur_provider *store, const char *instance) {
    store_state *state = dur__provider_adopt(store) ? state_of(store) : NULL;
    if (state == NULL) return;
    dur__mutex_lock(&state->mutex);
    if (state->starts == NULL) state->starts = dur__zget(STARTS_MAX * sizeof(char *));
    if (state->starts != NULL) { /* a help, no promise: without memory it is not remembered */
        dur__free(state->starts[state->start_next]);
        state->starts[state->start_next] = dur__strdup(instance);
        state->start_next = (state->start_next + 1) % STARTS_MAX;
    }
    dur__mutex_unlock(&state->mutex);
}

bool dur__store_remembers_start(dur_provider *store, const char *instance) {
    bool found = false;
    store_state *state = state_of(store);
    if (state == NULL) return false;
    dur__mutex_lock(&state->mutex);
    for (size_t i = 0; state->starts != NULL && i < STARTS_MAX && !found; i++)
        found = dur__str_eq(state->starts[i], instance);
    dur__mutex_unlock(&state->mutex);
    return found;
}

void dur__store_forget_start(dur_provider *store, const char *instance) {
    store_state *state = state_of(store);
    if (state == NULL) return;
    dur__mutex_lock(&state->mutex);
    for (size_t i = 0; state->starts != NULL && i < STARTS_MAX; i++) {
        if (!dur__str_eq(state->starts[i], instance)) continue;
        dur__free(state->starts[i]);
        state->starts[i] = NULL;
    }
    dur__mutex_unlock(&state->mutex);
}

int dur__store_enter(const dur_provider *store, const char *op, dur_error *err) {
    if (store == NULL || store->methods == NULL)
        return dur_error_set(err, DUR_EINVAL, false, op, "a store is required");
    const store_state *state = state_of(store);
    if (state != NULL && state->serial != dur__process_serial())
        return dur_error_set(err, DUR_EFORKED, false, op, "the store was opened before fork()");
    dur_error_clear(err);
    return DUR_OK;
}

const char *dur_provider_name(const dur_provider *store) {
    return store != NULL && store->methods != NULL && store->methods->name != NULL ? store->methods->name : "unknown";
}

int dur_provider_check(dur_provider *store, dur_error *err) {
    DUR__SET_ASIDE("check", err);
    int code = dur_store_check(store, err);
    return code == DUR_OK ? dur__check_calls(store, err) : code;
}

int dur_provider_backup(dur_provider *store, const char *target, dur_error *err) {
    DUR__SET_ASIDE("backup", err);
    return dur_store_backup(store, target, err);
}

int dur_provider_vacuum(dur_provider *store, uint64_t pages_max, uint64_t *pages_left, dur_error *err) {
    DUR__SET_ASIDE("vacuum", err);
    return dur_store_vacuum(store, pages_max, pages_left, err);
}

/* ---- schemes ----------------------------------------------------------------------------------------------------- */

typedef struct scheme {
    char *name;
    dur_open_fn *open;
} scheme;

static dur__mutex schemes_mutex = DUR__MUTEX_INIT;
static dur__map schemes; /* registered ones, for the life of the process */

static size_t scheme_size(const char *url) {
    size_t size = 0;
    if (!isalpha((unsigned char)url[0])) return 0;
    while (isalnum((unsigned char)url[size]) || (url[size] != '\0' && strchr("+-.", url[size]) != NULL))
        size++;
    return url[size] == ':' ? size : 0;
}

#ifdef DURITE_POSTGRES /* compiled into this very library: tools/amalgamation */
#define OPEN_POSTGRES dur_postgres_open_url
#else
#define OPEN_POSTGRES open_postgres

/* It is installed where we are; a program with an rpath finds us, and by the plain name alone would not find it. */
static void *load_beside(const char *name, dur__buf *why) {
    Dl_info info;
    void *library = NULL;
    dur__buf path = { 0 };
    if (dladdr(&schemes, &info) == 0 || info.dli_fname == NULL || strrchr(info.dli_fname, '/') == NULL) return NULL;
    dur__buf_add(&path, info.dli_fname, (size_t)(strrchr(info.dli_fname, '/') - info.dli_fname) + 1);
    dur__buf_text(&path, name);
    if (access(dur__buf_str(&path), R_OK) == 0) {
        library = dlopen(dur__buf_str(&path), RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) dur__buf_format(why, "%s; ", dlerror());
    }
    dur__buf_free(&path);
    return library;
}

static void *load(const char *name, dur__buf *why) {
    void *library = load_beside(name, why);
    if (library == NULL) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) dur__buf_text(why, dlerror());
    return library;
}

static int open_postgres(dur_provider **out, const char *url, const dur_open_options *options, dur_error *err) {
    dur__buf why = { 0 };
    void *library = load(POSTGRES_LIBRARY, &why);
    if (library == NULL)
        dur_error_set(err, DUR_ENOTFOUND, false, "open",
                      "postgres stores need the package " POSTGRES_PACKAGE ", which is not installed (%s)",
                      dur__buf_str(&why));
    dur__buf_free(&why);
    if (library == NULL) return DUR_ENOTFOUND;
    dur_open_fn *open = NULL;
    *(void **)&open = dlsym(library, POSTGRES_OPENER);
    if (open == NULL) {
        dlclose(library);
        return dur_error_set(err, DUR_ENOTFOUND, false, "open",
                             POSTGRES_LIBRARY " has no " POSTGRES_OPENER ": install the package " POSTGRES_PACKAGE);
    }
    return open(out, url, options, err); /* the library stays loaded: the store's code is in it */
}
#endif

static dur_open_fn *built_in(const char *name) {
    if (strcmp(name, "memory") == 0) return dur__memory_open_url;
    if (strcmp(name, "sqlite") == 0) return dur__sqlite_open_url;
    return NULL;
}

static bool is_postgres(const char *name) {
    return strcmp(name, "postgres") == 0 || strcmp(name, "postgresql") == 0;
}

static dur_open_fn *opener_of(const char *name) {
    dur__mutex_lock(&schemes_mutex);
    const scheme *found = dur__map_get(&schemes, name);
    dur__mutex_unlock(&schemes_mutex);
    if (found != NULL) return found->open;
    return is_postgres(name) ? OPEN_POSTGRES : built_in(name);
}

int dur_provider_register(const char *name, dur_open_fn *open, dur_error *err) {
    if (name == NULL || open == NULL) return dur__store_null(err, "register", name == NULL ? "scheme" : "open");
    DUR__SET_ASIDE("register", err);
    if (!dur__cover_need(DUR__ASIDE_BYTES + 8 * strlen(name))) return DUR__NO_MEMORY(err, "register");
    dur__buf url = { 0 };
    dur__buf_text(&url, name);
    dur__buf_char(&url, ':');
    bool valid = name[0] != '\0' && scheme_size(url.data) == strlen(name);
    dur__buf_free(&url);
    if (!valid) return dur_error_set(err, DUR_EINVAL, false, "register", "a scheme has letters, digits and + - . only");
    int code = DUR_OK;
    dur__mutex_lock(&schemes_mutex);
    if (built_in(name) != NULL || dur__map_get(&schemes, name) != NULL) {
        code = dur_error_set(err, DUR_EEXISTS, false, "register", "the scheme %s is known already", name);
    } else {
        scheme *entry = dur__xcalloc(1, sizeof(*entry));
        entry->name = dur__xstrdup(name);
        entry->open = open;
        dur__map_put(&schemes, entry->name, entry);
        dur_error_clear(err);
    }
    dur__mutex_unlock(&schemes_mutex);
    return code;
}

int dur_open_ex(dur_provider **out, const char *url, const dur_open_options *options, dur_error *err) {
    dur__log_from_environment();
    if (out == NULL) return dur__store_null(err, "open", "out");
    *out = NULL;
    if (url == NULL) return dur__store_null(err, "open", "url");
    DUR__SET_ASIDE("open", err);
    if (!dur__cover_need(DUR__ASIDE_BYTES + 8 * strlen(url))) return DUR__NO_MEMORY(err, "open");
    size_t size = scheme_size(url);
    if (size == 0)
        return dur_error_set(err, DUR_EINVAL, false, "open",
                             "a store is opened by a URL such as memory:, sqlite:PATH or postgres://HOST/DB");
    dur_open_options all = { .size = sizeof(all) };
    if (options != NULL) { /* an older caller's options are shorter */
        size_t given = options->size != 0 && options->size < sizeof(all) ? options->size : sizeof(all);
        memcpy(&all, options, given);
        all.size = sizeof(all);
    }
    dur__buf name = { 0 };
    dur__buf_add(&name, url, size);
    dur_open_fn *open = opener_of(dur__buf_str(&name));
    int code = DUR_OK;
    if (open == NULL)
        code = dur_error_set(err, DUR_EINVAL, false, "open", "no store is known for the scheme %s", name.data);
    dur__buf_free(&name);
    if (code != DUR_OK) return code;
    dur_error_clear(err);
    code = open(out, url, &all, err);
    if (code == DUR_OK && *out == NULL)
        return dur_error_set(err, DUR_ESTATE, false, "open", "the store opened nothing");
    if (code == DUR_OK && (*out)->methods->abi != DUR_PROVIDER_ABI) /* left open: where its close is, nobody knows */
        code = dur_error_set(err, DUR_EUNSUPPORTED, false, "open",
                             "the store %.50s was compiled for another version of this library (ABI %u, this is %u)",
                             (*out)->methods->name, (*out)->methods->abi, DUR_PROVIDER_ABI);
    if (code == DUR_OK && !dur__provider_adopt(*out)) {
        (*out)->methods->close(*out);
        code = DUR__NO_MEMORY(err, "open");
    }
    if (code != DUR_OK) *out = NULL;
    return code;
}

int dur_open(dur_provider **out, const char *url, dur_error *err) {
    return dur_open_ex(out, url, NULL, err);
}
