/*
 * error.h: the one list of error codes, and the error object that the caller owns.
 *
 * Every function that can fail returns a dur_code as int (0 is success) and takes a dur_error as its last
 * parameter, which may be NULL.  The code is for the program, the text is for people.  Nothing has to be freed.
 */
#ifndef DURITE_ERROR_H
#define DURITE_ERROR_H

#include <durite/export.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

DUR_BEGIN_DECLS

/* CODE(name, value, text).  Values never change; new ones are appended. */
#define DUR_CODES(CODE)                                                                                                \
    CODE(OK, 0, "success")                                                                                             \
    CODE(EINVAL, 1, "invalid argument")                                                                                \
    CODE(ENOMEM, 2, "out of memory")                                                                                   \
    CODE(ENOTFOUND, 3, "not found")                                                                                    \
    CODE(EEXISTS, 4, "already exists")                                                                                 \
    CODE(ETIMEOUT, 5, "timed out")                                                                                     \
    CODE(ECANCELLED, 6, "cancelled")                                                                                   \
    CODE(EFAILED, 7, "failed") /* application failure */                                                               \
    CODE(ESUSPENDED, 8, "suspended")                                                                                   \
    CODE(ERUNNING, 9, "still running")                                                                                 \
    CODE(EBUSY, 10, "busy")                                                                                            \
    CODE(EDEADLK, 11, "would wait for itself")                                                                         \
    CODE(EFORKED, 12, "used in a forked child")                                                                        \
    CODE(EIO, 13, "store failed")                                                                                      \
    CODE(EFULL, 14, "store is full")                                                                                   \
    CODE(ECORRUPT, 15, "stored data is corrupted")                                                                     \
    CODE(ESCHEMA, 16, "store has another schema version")                                                              \
    CODE(EUNSUPPORTED, 17, "not supported by this store")                                                              \
    CODE(ELEASE, 18, "lock or lease lost")   /* bad, expired or stolen token */                                        \
    CODE(ECONFLICT, 19, "conflicting write") /* position or duplicate event */                                         \
    CODE(EUNAVAILABLE, 20, "store unreachable")                                                                        \
    CODE(ENONDETERMINISM, 21, "nondeterministic")                                                                      \
    CODE(ELIMIT, 22, "limit exceeded")                                                                                 \
    CODE(ESTATE, 23, "wrong state for this call")                                                                      \
    CODE(ECHILD, 24, "is a sub-orchestration")                                                                         \
    CODE(EPERM, 25, "not permitted")                                                                                   \
    CODE(EPOISON, 26, "failed too often")                                                                              \
    CODE(EDUPLICATE, 27, "message already accepted") /* same message id: no harm */                                    \
    CODE(EUNKNOWN, 28, "outcome unknown")            /* connection lost during commit */

#define DUR_CODE_ENUM_(name, value, text) DUR_##name = value,
/* One negative enumerator makes the type signed, so that codes and int mix without a warning. */
typedef enum dur_code { DUR_CODES(DUR_CODE_ENUM_) DUR_CODE_SIGNED_ = -1 } dur_code;
#undef DUR_CODE_ENUM_

typedef struct dur_error {
    dur_code code;           /* DUR_OK when nothing went wrong */
    bool retryable;          /* the same call may succeed later */
    char op[32];             /* "sqlite.commit" */
    char message[472];       /* one line without control characters; what is too long loses its middle */
    const void *reserved[2]; /* NULL */
} dur_error;

#define DUR_ERROR_INIT                                                                                                 \
    {                                                                                                                  \
        DUR_OK, false, "", "", {                                                                                       \
            0, 0                                                                                                       \
        }                                                                                                              \
    }

/*
 * Fill err (NULL allowed) and return code, so that callers write: return dur_error_set(...).
 * format is not NULL.  The text is cut to fit: what is too long loses its middle.  Any thread.  Since 0.1.
 */
DUR_API int dur_error_set(dur_error *err, dur_code code, bool retryable, const char *op, const char *format, ...)
    DUR_PRINTF(5, 6);

/* Make err say that nothing went wrong.  NULL allowed.  Since 0.1. */
DUR_API void dur_error_clear(dur_error *err);

/* "DUR_EINVAL" and "invalid argument" for a code; "DUR_E?" and "unknown code" for no code of ours.  Static text. */
DUR_API const char *dur_code_name(int code);
DUR_API const char *dur_code_text(int code);

/* Why an instance, a child or an activity failed, in one word. */
typedef enum dur_failure_category {
    DUR_FAILURE_INFRASTRUCTURE, /* a store; a history or message that cannot be read */
    DUR_FAILURE_CONFIGURATION,  /* no node has the handler, or its code does not fit the history */
    DUR_FAILURE_APPLICATION,    /* what the user's code said, and cancellation */
    DUR_FAILURE_POISON          /* it crashed its process again and again */
} dur_failure_category;
DUR_API const char *dur_failure_category_name(dur_failure_category category); /* "infrastructure" … "poison"; "?" */

DUR_END_DECLS

#endif
