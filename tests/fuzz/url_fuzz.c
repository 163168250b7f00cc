/*
 * url_fuzz.c: whatever is given to dur_open as a URL is a store, or refused in words.
 *
 * SQLite files are made in a folder of their own; paths that lead out of it are left out.  The PostgreSQL store reads
 * its URL with libpq's own parser, and gets no connection: libpq's function is replaced here.
 */
#include "fuzz_bytes.h"
#include <dirent.h>
#include <durite/durite.h>
#include <durite/sys/clock.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef HAVE_LIBPQ
#include <durite/postgres.h>
#include <libpq-fe.h>

PGconn *PQconnectdbParams(const char *const *keywords, const char *const *values, int expand_dbname) {
    size_t seen = 0;
    for (size_t i = 0; keywords[i] != NULL; i++)
        seen += strlen(keywords[i]) + (values[i] != NULL ? strlen(values[i]) : 0);
    (void)expand_dbname;
    (void)seen;
    return NULL; /* libpq does so where memory is short */
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static dur_error err;
static char folder[64];

static void empty_folder(void) {
    DIR *dir = opendir(".");
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 && unlink(entry->d_name) != 0)
            (void)rmdir(entry->d_name);
    if (dir != NULL) (void)closedir(dir);
}

static void remove_folder(void) {
    empty_folder();
    (void)rmdir(folder);
}

static void begin(void) {
    snprintf(folder, sizeof(folder), "%s/durite-url.%ld", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
             (long)getpid());
    MUST(mkdir(folder, 0700) == 0, folder);
    MUST(chdir(folder) == 0, folder);
    (void)atexit(remove_folder);
#ifdef HAVE_LIBPQ
    MUST(dur_postgres_register(&err) == DUR_OK, err.message);
    (void)unsetenv("PGSERVICEFILE"); /* no file of this machine decides */
    (void)setenv("PGSYSCONFDIR", folder, 1);
    (void)setenv("HOME", folder, 1);
#endif
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    dur_provider *store = NULL;
    if (folder[0] == '\0') begin();
    char *url = calloc(1, size + 1);
    MUST(url != NULL, "memory");
    memcpy(url, data, size);
    bool postgres = strncmp(url, "postgres", 8) == 0;
    const char *path = strchr(url, ':') != NULL ? strchr(url, ':') + 1 : "";
    if (strncmp(path, "//", 2) == 0) path += 2;
    const char *slash = strchr(path, '/'), *query = strchr(path, '?');
    bool leads_out = slash != NULL && (query == NULL || slash < query);
    if (!postgres && leads_out) {
        free(url);
        return 0;
    }
    err.message[0] = '\0';
    int code = dur_open(&store, url, &err);
    MUST((code == DUR_OK) == (store != NULL), url);
    if (code != DUR_OK) {
        MUST(err.code == code && err.message[0] != '\0', url);
    } else {
        MUST(!postgres, url);
        MUST(dur_provider_check(store, &err) == DUR_OK, err.message);
        dur_provider_close(store);
    }
    empty_folder();
    free(url);
    return 0;
}
