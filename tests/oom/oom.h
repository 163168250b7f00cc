/*
 * oom.h: what the scripts and the program that fails their allocations share.  README.md says how it is judged.
 */
#ifndef DURITE_TESTS_OOM_H
#define DURITE_TESTS_OOM_H

#include <durite/durite.h>
#include <stdbool.h>

typedef struct world {
    dur_provider *store;
    dur_runtime *runtime;
    dur_client *client;
    const char *script; /* its name, for what is said */
    const char *path;   /* of the SQLite file; NULL: there is none */
} world;

typedef struct script {
    const char *name;
    void (*run)(world *w);
} script;

extern const script scripts[]; /* ended by a NULL name */
extern const dur_handler oom_handlers[];

/* Memory is there again. */
void memory_back(void);
/* Was it refused since the script began? */
bool memory_failed(void);
void fail(const world *w, const char *format, ...) DUR_PRINTF(2, 3);

/* A call that may answer DUR_ENOMEM: then memory is given back and it is made again, and must succeed. */
#define DO(w, call)                                                                                                    \
    do {                                                                                                               \
        dur_error err = DUR_ERROR_INIT;                                                                                \
        int code_ = (call);                                                                                            \
        if ((code_ == DUR_ENOMEM || code_ == DUR_ETIMEOUT) && memory_failed()) {                                       \
            memory_back();                                                                                             \
            dur_error_clear(&err);                                                                                     \
            code_ = (call);                                                                                            \
        }                                                                                                              \
        if (code_ != DUR_OK) fail((w), "%s:%d: %s: %s", __FILE__, __LINE__, dur_code_name(code_), err.message);        \
    } while (0)

/* The instance ends so (code, and text where it is not NULL), whatever happens to memory meanwhile. */
void ends(world *w, const char *instance, int code, const char *text);
/* Steps until there is nothing to do. */
void settle(world *w);

#endif
