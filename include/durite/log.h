/*
 * log.h: where log lines go.
 *
 * The library is silent until the host gives it a sink, or the environment says DURITE_LOG=info (error, warn, info,
 * debug, trace): then lines go to standard error, from the first store or runtime on, unless the host has called
 * dur_log_set_sink before; a later call replaces it.  A record is a message with fields; payloads and secrets never
 * appear in it.  Sinks are called without locks held, from any of our threads; they may block, delaying that thread.
 */
#ifndef DURITE_LOG_H
#define DURITE_LOG_H

#include <durite/error.h>
#include <durite/export.h>
#include <stdio.h>

DUR_BEGIN_DECLS

typedef enum dur_log_level { DUR_LOG_ERROR, DUR_LOG_WARN, DUR_LOG_INFO, DUR_LOG_DEBUG, DUR_LOG_TRACE } dur_log_level;

typedef struct dur_log_field {
    const char *key;  /* "instance_id" */
    const char *text; /* NULL: the number counts */
    int64_t number;
} dur_log_field;

typedef struct dur_log_record {
    size_t size;
    uint64_t wall_ms;
    dur_log_level level;
    const char *target;  /* "durite::orchestration", "durite::activity", "durite::runtime", "durite::provider" */
    const char *message; /* one line */
    const dur_log_field *fields;
    size_t field_count;
} dur_log_record;

typedef void dur_log_fn(void *data, const dur_log_record *record);

/* Where lines of this process go and from which level on; NULL: nowhere (the default).  Any thread, takes effect at
   once; when it returns, no thread is still inside the old sink (called from a sink itself: DUR_EDEADLK). */
DUR_API int dur_log_set_sink(dur_log_fn *sink, void *data, dur_log_level level);

/* One line, through the sink; for stores that are libraries of their own.  Targets of ours are "durite::provider" and
   the like.  Any thread; from inside a sink it does nothing. */
DUR_API void dur_log_say(dur_log_level level, const char *target, const char *message);

/* Ready sinks; data is a FILE *.  One line each: readable text, or one JSON object. */
DUR_API void dur_log_text(void *file, const dur_log_record *record);
DUR_API void dur_log_json(void *file, const dur_log_record *record);

DUR_API const char *dur_log_level_name(dur_log_level level); /* "error" … "trace" */

DUR_END_DECLS

#endif
