/*
 * kit_urls.c: a factory of stores for everything that dur_open can open.
 */
#include "kit_urls.h"

#include <durite/provider.h>
#include <durite/sys/clock.h>
#include <glob.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define URL_MAX 1024
#define START_MS 1800000000000u

typedef struct source {
    char url[URL_MAX];
    char parameters[URL_MAX]; /* of a sqlite URL, with the question mark */
    bool sqlite;
    atomic_uint next;
} source;

typedef struct opened {
    dur_fake_world *world;
    char file[URL_MAX + 64]; /* "" where there is none */
} opened;

/* Owners that were left for dead have a file each. */
static void remove_owners(const char *file) {
    char pattern[URL_MAX + 96];
    glob_t found = { .gl_pathc = 0 };
    snprintf(pattern, sizeof(pattern), "%s.owner-*", file);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            (void)unlink(found.gl_pathv[i]);
    globfree(&found);
}

static void remove_files(const char *file) {
    static const char *const ends[] = { "", "-wal", "-shm", "-journal", ".lock" };
    remove_owners(file);
    char name[URL_MAX + 96];
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        snprintf(name, sizeof(name), "%s%s", file, ends[i]);
        (void)unlink(name);
    }
}

/* The URL of the n-th store. */
static void name_store(const source *from, unsigned n, char *url, size_t size, opened *store) {
    const char *hole = strstr(from->url, "{n}");
    store->file[0] = '\0';
    if (from->sqlite && strcmp(from->url, "sqlite::memory:") != 0) {
        snprintf(store->file, sizeof(store->file), "%s-%ld-%u", from->url + strlen("sqlite:"), (long)getpid(), n);
        snprintf(url, size, "sqlite:%s%s", store->file, from->parameters);
    } else if (hole != NULL) {
        snprintf(url, size, "%.*s%ld_%u%s", (int)(hole - from->url), from->url, (long)getpid(), n, hole + 3);
    } else {
        snprintf(url, size, "%s%s", from->url, from->parameters);
    }
}

static int open_store(void *data, dur_kit_store *out, dur_error *err) {
    source *from = data;
    char url[3 * URL_MAX];
    opened *store = calloc(1, sizeof(*store));
    if (store == NULL) return dur_error_set(err, DUR_ENOMEM, false, "kit.open", "no memory for a store");
    unsigned n = atomic_fetch_add(&from->next, 1) + 1;
    name_store(from, n, url, sizeof(url), store);
    if (store->file[0] != '\0') remove_files(store->file);
    store->world = dur_fake_world_new(START_MS, n);
    dur_open_options options = { .size = sizeof(options), .world = dur_fake_world_get(store->world) };
    int code = dur_open_ex(&out->provider, url, &options, err);
    if (code != DUR_OK) {
        dur_fake_world_free(store->world);
        free(store);
        return code;
    }
    out->data = store;
    return DUR_OK;
}

static void close_store(void *data, dur_kit_store *store) {
    opened *mine = store->data;
    (void)data;
    dur_provider_close(store->provider);
    if (mine->file[0] != '\0') remove_files(mine->file);
    dur_fake_world_free(mine->world);
    free(mine);
    *store = (dur_kit_store){ NULL, NULL };
}

static void advance(void *data, dur_kit_store *store, uint64_t ms) {
    opened *mine = store->data;
    (void)data;
    dur_fake_world_advance(mine->world, ms);
}

static void jump(void *data, dur_kit_store *store, int64_t wall_ms) {
    opened *mine = store->data;
    (void)data;
    dur_fake_world_jump(mine->world, wall_ms);
}

static int split(source *from, const char *url, dur_error *err) {
    const char *folder = getenv("TMPDIR");
    if (strlen(url) + 64 > URL_MAX)
        return dur_error_set(err, DUR_EINVAL, false, "kit.open", "the URL is longer than %d bytes", URL_MAX - 64);
    from->sqlite = strncmp(url, "sqlite:", 7) == 0;
    snprintf(from->url, sizeof(from->url), "%s", url);
    if (!from->sqlite) return DUR_OK;
    char *question = strchr(from->url, '?');
    if (question != NULL) {
        snprintf(from->parameters, sizeof(from->parameters), "%s", question);
        *question = '\0';
    }
    if (strcmp(from->url, "sqlite:") == 0) /* long paths of TMPDIR are cut: the open then says so */
        snprintf(from->url, sizeof(from->url), "sqlite:%.900s/durite-kit", folder != NULL ? folder : "/tmp");
    return DUR_OK;
}

/* Our own stores are told by their URL which mode of polling is wanted, unless it says so already. */
static void ask_for_poll(source *from, dur_kit_poll poll) {
    const char *mode = poll == DUR_KIT_POLL_LONG ? "long" : "short";
    char *at = from->sqlite ? from->parameters : from->url;
    bool ours = from->sqlite || strncmp(from->url, "memory:", 7) == 0 || strncmp(from->url, "postgres", 8) == 0;
    size_t used = strlen(at);
    if (!ours || poll == DUR_KIT_POLL_PROBE || strstr(at, "poll=") != NULL) return;
    snprintf(at + used, URL_MAX - used, "%cpoll=%s", strchr(at, '?') != NULL ? '&' : '?', mode);
}

static void add_parameter(source *from, const char *text) {
    size_t used = strlen(from->url);
    snprintf(from->url + used, URL_MAX - used, "%c%s", strchr(from->url, '?') != NULL ? '&' : '?', text);
}

/* A server has one clock for everybody, unless it is told ours; and a store is a schema, of which each gets a new one.
 */
static void ask_postgres(source *from, bool our_time) {
    if (strncmp(from->url, "postgres", 8) != 0) return;
    if (our_time && strstr(from->url, "clock=") == NULL) add_parameter(from, "clock=caller");
    if (strstr(from->url, "{n}") != NULL) return;
    const char *given = strstr(from->url, "schema="), *name = given != NULL ? given + strlen("schema=") : "durite_kit";
    size_t size = strcspn(name, "&");
    char text[128]; /* of several the last one counts */
    snprintf(text, sizeof(text), "schema=%.*s_{n}&temporary=1", (int)(size < 40 ? size : 40), name);
    add_parameter(from, text);
}

int kit_urls_new(dur_kit_factory *factory, const char *url, dur_kit_poll poll, bool our_time, dur_error *err) {
    source *from = calloc(1, sizeof(*from));
    dur_kit_store probe;
    if (from == NULL) return dur_error_set(err, DUR_ENOMEM, false, "kit.open", "no memory");
    *factory = (dur_kit_factory){ .size = sizeof(*factory), .data = from, .open = open_store, .close = close_store };
    int code = split(from, url, err);
    if (code == DUR_OK) ask_for_poll(from, poll);
    if (code == DUR_OK) ask_postgres(from, our_time);
    if (code == DUR_OK) code = open_store(from, &probe, err);
    if (code != DUR_OK) {
        kit_urls_free(factory);
        return code;
    }
    bool own_clock = probe.provider->methods->own_clock;
    if (!own_clock) factory->advance = advance;
    /* On a store with its own clock the node's may jump as it likes.  A server that is told the caller's time has one
       clock for due times and locks: where it jumps, locks jump with it. */
    if (own_clock || strcmp(probe.provider->methods->name, "postgres") != 0) factory->jump = jump;
    close_store(from, &probe);
    return DUR_OK;
}

void kit_urls_free(dur_kit_factory *factory) {
    free(factory->data);
    factory->data = NULL;
}
