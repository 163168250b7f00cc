/*
 * log.c: the sink of this process, how lines reach it, and the two ready sinks.
 *
 * The sink lives in one of two slots.  A thread that logs enters the current slot by counting itself in and looking
 * again: if the slot is still the current one its content cannot change before the thread has left.  Setting a sink
 * fills the other slot, makes it current and waits until the old one is empty.  So logging takes no lock, a sink may
 * block without stopping other threads, and after dur_log_set_sink nobody is inside the old sink.
 *
 * A sink that logs (by calling the library) is not called again on its own thread: those lines are dropped.
 */
#include "obs/log_internal.h"

#include "base/buf.h"
#include "base/thread.h"

#include <durite/sys/clock.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    LINE_BYTES_MAX = 8192,    /* of a ready sink, the newline included */
    MESSAGE_BYTES_MAX = 2048, /* of a record */
    LEVEL_OFF = -1
};

typedef struct slot {
    dur_log_fn *sink;
    void *data;
    atomic_uint inside; /* threads in the sink, or about to find out that they came too late */
} slot;

static slot slots[2];
static atomic_uint current; /* index of the slot in use */
static atomic_int level_max = LEVEL_OFF;
static bool chosen;         /* by the host, or by the environment: what it says is said once; guarded by set_lock */
static atomic_bool waiting; /* somebody waits for a slot to become empty */
static dur__mutex set_lock = DUR__MUTEX_INIT; /* one dur_log_set_sink at a time */
static dur__mutex empty_lock = DUR__MUTEX_INIT;
static dur__cond empty = { PTHREAD_COND_INITIALIZER }; /* never waited on with a timeout, so any clock will do */
static _Thread_local slot *entered;                    /* this thread is inside a sink */

/* ---- entering and leaving ---------------------------------------------------------------------------------------- */

static slot *slot_enter(void) {
    for (;;) {
        unsigned index = atomic_load(&current);
        atomic_fetch_add(&slots[index].inside, 1);
        /* Between the two lines above a setter may have replaced this slot, found it empty and returned, and a second
           one may be filling it.  No test can stop a thread exactly there without a hook in this function, so that one
           which removes this look is found only by chance (sinks_are_replaced_under_fire, under TSan). */
        if (atomic_load(&current) == index) {
            entered = &slots[index];
            return entered;
        }
        atomic_fetch_sub(&slots[index].inside, 1);
        /* A setter may have counted us; it must look again. */
        if (atomic_load(&waiting)) {
            dur__mutex_lock(&empty_lock);
            dur__cond_broadcast(&empty);
            dur__mutex_unlock(&empty_lock);
        }
    }
}

static void slot_leave(slot *s) {
    entered = NULL;
    atomic_fetch_sub(&s->inside, 1);
    if (atomic_load(&waiting)) {
        dur__mutex_lock(&empty_lock);
        dur__cond_broadcast(&empty);
        dur__mutex_unlock(&empty_lock);
    }
}

/* The other threads are gone, and with them those that were inside a sink or held a lock of ours. */
static void forget_other_threads(void *arg) {
    (void)arg;
    for (size_t i = 0; i < 2; i++)
        atomic_store(&slots[i].inside, entered == &slots[i] ? 1u : 0u);
    atomic_store(&waiting, false);
    dur__mutex_init(&set_lock);
    dur__mutex_init(&empty_lock);
    dur__cond_init(&empty);
}

/* Under set_lock. */
static void set_locked(dur_log_fn *sink, void *data, dur_log_level level) {
    static bool fork_known;
    chosen = true;
    if (!fork_known) {
        dur__at_fork_child(forget_other_threads, NULL);
        fork_known = true;
    }
    unsigned old = atomic_load(&current);
    slots[1 - old].sink = sink;
    slots[1 - old].data = data;
    atomic_store(&current, 1 - old);
    atomic_store(&level_max, sink != NULL ? (int)level : LEVEL_OFF);

    atomic_store(&waiting, true);
    dur__mutex_lock(&empty_lock);
    while (atomic_load(&slots[old].inside) != 0)
        dur__cond_wait(&empty, &empty_lock);
    dur__mutex_unlock(&empty_lock);
    atomic_store(&waiting, false);
}

int dur_log_set_sink(dur_log_fn *sink, void *data, dur_log_level level) {
    if ((int)level < DUR_LOG_ERROR || (int)level > DUR_LOG_TRACE) return DUR_EINVAL;
    if (entered != NULL) return DUR_EDEADLK;
    dur__mutex_lock(&set_lock);
    set_locked(sink, data, level);
    dur__mutex_unlock(&set_lock);
    return DUR_OK;
}

/* ---- the environment ---- */

static bool level_named(const char *name, dur_log_level *out) {
    for (int level = DUR_LOG_ERROR; level <= DUR_LOG_TRACE; level++) {
        if (strcmp(name, dur_log_level_name((dur_log_level)level)) != 0) continue;
        *out = (dur_log_level)level;
        return true;
    }
    return false;
}

void dur__log_from_environment(void) {
    const char *wanted = secure_getenv("DURITE_LOG");
    if (wanted == NULL || *wanted == '\0' || entered != NULL) return;
    dur_log_level level = DUR_LOG_INFO;
    bool named = level_named(wanted, &level), first;
    dur__mutex_lock(&set_lock);
    first = !chosen;
    if (first) set_locked(dur_log_text, stderr, level);
    dur__mutex_unlock(&set_lock);
    if (first && !named)
        dur__log(DUR_LOG_WARN, DUR__LOG_RUNTIME, DUR__FIELDS(DUR__TEXT("DURITE_LOG", wanted)),
                 "DURITE_LOG is error, warn, info, debug or trace; info is taken");
}

/* ---- writing lines ----------------------------------------------------------------------------------------------- */

bool dur__log_enabled(dur_log_level level) {
    return (int)level <= atomic_load_explicit(&level_max, memory_order_relaxed);
}

void dur_log_say(dur_log_level level, const char *target, const char *message) {
    if (target == NULL || message == NULL) return;
    dur__log(level, target, NULL, 0, "%s", message);
}

void dur__log(dur_log_level level, const char *target, const dur_log_field *fields, size_t count, const char *format,
              ...) {
    if (!dur__log_enabled(level) || entered != NULL) return;
    int saved_errno = errno;

    char message[MESSAGE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    if (length < 0)
        message[0] = '\0';
    else if ((size_t)length >= sizeof(message))
        message[dur__utf8_cut(message, sizeof(message) - 1)] = '\0';
    for (char *at = message; (at = strpbrk(at, "\r\n")) != NULL;)
        *at = ' '; /* a message is one line, whatever was formatted into it */

    const dur_world *world = dur_world_real();
    dur_log_record record = { .size = sizeof(record),
                              .wall_ms = world->wall_ms(world->data),
                              .level = level,
                              .target = target,
                              .message = message,
                              .fields = fields,
                              .field_count = fields != NULL ? count : 0 };
    slot *s = slot_enter();
    if (s->sink != NULL) s->sink(s->data, &record);
    slot_leave(s);
    errno = saved_errno;
}

const char *dur_log_level_name(dur_log_level level) {
    static const char *const names[] = { "error", "warn", "info", "debug", "trace" };
    return (size_t)level < sizeof(names) / sizeof(names[0]) ? names[level] : "?";
}

/* ---- the ready sinks --------------------------------------------------------------------------------------------- */

/* A line that never grows beyond its array: what does not fit is cut between characters, and the line says so. */
typedef struct line {
    char bytes[LINE_BYTES_MAX];
    size_t size;
    size_t limit; /* content ends here at the latest; behind it is room for what closes the line */
    bool cut;
} line;

static bool line_add(line *l, const char *data, size_t size) {
    if (l->cut || size > l->limit - l->size) {
        l->cut = true;
        return false;
    }
    memcpy(l->bytes + l->size, data, size);
    l->size += size;
    return true;
}

static bool line_text(line *l, const char *text) {
    return line_add(l, text, strlen(text));
}

static void line_number(line *l, int64_t number) {
    char digits[24];
    (void)snprintf(digits, sizeof(digits), "%" PRId64, number);
    line_text(l, digits);
}

static void line_time(line *l, uint64_t wall_ms) {
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm utc;
    char text[48];
    if (gmtime_r(&seconds, &utc) == NULL) memset(&utc, 0, sizeof(utc));
    size_t used = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
    (void)snprintf(text + used, sizeof(text) - used, ".%03uZ", (unsigned)(wall_ms % 1000));
    line_text(l, text);
}

/* Bytes of the well-formed character at text, 0 when there is none. */
static size_t character(const char *text) {
    unsigned char lead = (unsigned char)*text;
    size_t size = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    size_t bad;
    return strnlen(text, size) == size && dur__utf8_valid(text, size, &bad) ? size : 0;
}

/* One character of text in a form that no terminal and no parser takes for anything else; how many bytes it was. */
static size_t line_character(line *l, const char *text, bool json) {
    char escaped[8];
    unsigned char lead = (unsigned char)*text;
    size_t size = character(text);
    unsigned code = lead;
    if (size == 2) code = ((lead & 0x1fu) << 6) | ((unsigned char)text[1] & 0x3fu);
    bool control = size == 0 || code < 0x20 || (code >= 0x7f && code < 0xa0 && size <= 2);
    if (!control) {
        if (size == 1 && (lead == '"' || lead == '\\')) {
            escaped[0] = '\\';
            escaped[1] = (char)lead;
            line_add(l, escaped, 2);
        } else {
            line_add(l, text, size);
        }
        return size;
    }
    if (lead == '\n' || lead == '\t' || lead == '\r') {
        escaped[0] = '\\';
        escaped[1] = lead == '\n' ? 'n' : lead == '\t' ? 't' : 'r';
        line_add(l, escaped, 2);
    } else if (json) { /* a byte that is no text has no place in JSON */
        (void)snprintf(escaped, sizeof(escaped), "\\u%04x", size == 0 ? 0xfffdu : code);
        line_text(l, escaped);
    } else {
        (void)snprintf(escaped, sizeof(escaped), "\\x%02x", code);
        line_text(l, escaped);
    }
    return size == 0 ? 1 : size;
}

/* In quotes; the closing quote always comes, so that a cut line is still well-formed. */
static void line_quoted(line *l, const char *text, bool json) {
    if (l->cut || l->limit - l->size < 2) {
        l->cut = true;
        return;
    }
    line_add(l, "\"", 1);
    l->limit--; /* for the closing quote */
    while (*text != '\0' && !l->cut)
        text += line_character(l, text, json);
    l->limit++;
    l->bytes[l->size++] = '"';
}

/* Without quotes, where quotes and backslashes are readable as they are. */
static void line_plain(line *l, const char *text) {
    while (*text != '\0' && !l->cut) {
        if (*text == '"' || *text == '\\')
            line_add(l, text++, 1);
        else
            text += line_character(l, text, false);
    }
}

static void line_write(line *l, void *file, const char *end) {
    size_t size = strlen(end);
    memcpy(l->bytes + l->size, end, size); /* the room was kept */
    (void)fwrite(l->bytes, 1, l->size + size, (FILE *)file);
    (void)fflush((FILE *)file);
}

/* A bare word needs no quotes. */
static bool is_word(const char *text) {
    if (*text == '\0') return false;
    for (; *text != '\0'; text++)
        if (strchr("\"\\= ", *text) != NULL || (unsigned char)*text < 0x21 || (unsigned char)*text > 0x7e) return false;
    return true;
}

void dur_log_text(void *file, const dur_log_record *record) {
    static const char end[] = "\n", end_cut[] = "...\n";
    if (file == NULL || record == NULL) return;
    line l = { .size = 0, .limit = LINE_BYTES_MAX - sizeof(end_cut), .cut = false };
    line_time(&l, record->wall_ms);
    line_text(&l, " ");
    line_text(&l, dur_log_level_name(record->level));
    line_text(&l, " ");
    line_plain(&l, record->target != NULL ? record->target : "-");
    line_text(&l, " ");
    line_plain(&l, record->message != NULL ? record->message : "");
    for (size_t i = 0; i < record->field_count; i++) {
        const dur_log_field *field = &record->fields[i];
        line_text(&l, " ");
        line_plain(&l, field->key);
        line_text(&l, "=");
        if (field->text == NULL)
            line_number(&l, field->number);
        else if (is_word(field->text))
            line_text(&l, field->text);
        else
            line_quoted(&l, field->text, false);
    }
    line_write(&l, file, l.cut ? end_cut : end);
}

/* "key":value, with what opens it in front.  A field that would lose its name is left out whole. */
static void line_json_field(line *l, const char *before, const dur_log_field *field) {
    size_t start = l->size;
    line_text(l, before);
    line_quoted(l, field->key, true);
    line_text(l, ":");
    if (field->text == NULL) {
        line_number(l, field->number);
        if (!l->cut) return;
    } else if (!l->cut) {
        size_t value = l->size;
        line_quoted(l, field->text, true);
        if (l->size > value) return;
    }
    l->size = start;
}

void dur_log_json(void *file, const dur_log_record *record) {
    static const char end[] = "}}\n", end_cut[] = "},\"truncated\":true}\n";
    if (file == NULL || record == NULL) return;
    line l = { .size = 0, .limit = LINE_BYTES_MAX - sizeof(end_cut), .cut = false };
    line_text(&l, "{\"time\":\"");
    line_time(&l, record->wall_ms);
    line_text(&l, "\",\"level\":\"");
    line_text(&l, dur_log_level_name(record->level));
    line_text(&l, "\",\"target\":");
    l.limit = 512; /* parts that come first leave room for those behind them */
    line_quoted(&l, record->target != NULL ? record->target : "", true);
    bool cut = l.cut;
    l.cut = false;
    l.limit = LINE_BYTES_MAX - sizeof(end_cut);
    line_text(&l, ",\"message\":");
    l.limit = LINE_BYTES_MAX / 2;
    line_quoted(&l, record->message != NULL ? record->message : "", true);
    cut = cut || l.cut;
    l.cut = false;
    l.limit = LINE_BYTES_MAX - sizeof(end_cut);
    line_text(&l, ",\"fields\":{");
    for (size_t i = 0; i < record->field_count && !l.cut; i++)
        line_json_field(&l, i > 0 ? "," : "", &record->fields[i]);
    line_write(&l, file, cut || l.cut ? end_cut : end);
}
