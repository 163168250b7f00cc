/*
 * log_internal.h: writing log lines from inside the library.
 */
#ifndef DURITE_OBS_LOG_INTERNAL_H
#define DURITE_OBS_LOG_INTERNAL_H

#include <durite/log.h>

#define DUR__LOG_RUNTIME "durite::runtime"
#define DUR__LOG_ORCHESTRATION "durite::orchestration"
#define DUR__LOG_ACTIVITY "durite::activity"
#define DUR__LOG_PROVIDER "durite::provider"

/* Cheap: one atomic read. */
bool dur__log_enabled(dur_log_level level);

/* DURITE_LOG=LEVEL in the environment: lines go to standard error, where the host has set no sink.  Called when a store
   is opened and when a runtime starts. */
void dur__log_from_environment(void);

/* fields may be NULL with count 0.  Never put payloads into the message or a field. */
void dur__log(dur_log_level level, const char *target, const dur_log_field *fields, size_t count, const char *format,
              ...) DUR_PRINTF(5, 6);

/* fields and count: dur__log(level, target, DUR__FIELDS(DUR__TEXT("instance_id", id), DUR__NUMBER("turn", n)), "…"); */
#define DUR__FIELDS(...)                                                                                               \
    (const dur_log_field[]){ __VA_ARGS__ }, sizeof((const dur_log_field[]){ __VA_ARGS__ }) / sizeof(dur_log_field)
static inline const char *dur__log_known(const char *text) {
    return text != NULL ? text : "";
} /* NULL is a number */
#define DUR__TEXT(key_, text_)                                                                                         \
    { .key = (key_), .text = dur__log_known(text_) }
#define DUR__NUMBER(key_, number_)                                                                                     \
    { .key = (key_), .number = (int64_t)(number_) }

#endif
