/*
 * limits.h: every bound of the library, in one place.
 *
 * Sizes are bytes without the closing NUL.  They are checked where data enters (client, handler calls, decoders) and
 * taken for granted everywhere else.  What a store holds already is read whatever its size: a limit that is lowered
 * must not make old histories unreadable.
 */
#ifndef DURITE_CORE_LIMITS_H
#define DURITE_CORE_LIMITS_H

#include <stdint.h>

enum {
    DUR__NAME_BYTES_MAX = 512,         /* orchestration, activity, event, queue */
    DUR__INSTANCE_BYTES_MAX = 1024,    /* instance ids; those of children included */
    DUR__MADE_ID_BYTES = 50,           /* … what a made id adds to its maker's: "::start::" and two numbers */
    DUR__DEPTH_MAX = 256,              /* parents above a child: an endless recursion ends, and a cancel reaches it */
    DUR__VERSION_BYTES_MAX = 64,       /* "1.2.3-pre+build" */
    DUR__TAG_BYTES_MAX = 256,          /* worker tags */
    DUR__TAGS_MAX = 5,                 /* tags that one worker serves */
    DUR__SESSION_BYTES_MAX = 512,      /* session ids */
    DUR__MESSAGE_ID_BYTES_MAX = 512,   /* idempotency keys of messages and pulses */
    DUR__MESSAGE_KEY_BYTES_MAX = 1040, /* … as stores remember them: with the name of the queue */
    DUR__REASON_BYTES_MAX = 64 << 10,  /* of cancel, terminate, suspend */
    DUR__PAYLOAD_BYTES_MAX = 4 << 20,  /* inputs, outputs, results, event and queue data */
    DUR__STATUS_BYTES_MAX = 256 << 10, /* custom status */
    DUR__KV_KEYS_MAX = 150,            /* per instance */
    DUR__KV_KEY_BYTES_MAX = 512,
    DUR__KV_VALUE_BYTES_MAX = 64 << 10,
    DUR__EVENTS_WARN = 50000,       /* per execution: say so, once; no hard limit */
    DUR__JSON_DEPTH_MAX = 64,       /* nesting of stored JSON, in fields that are not ours too */
    DUR__LIST_LIMIT_DEFAULT = 1000, /* rows of a page, instances of a bulk call */
    DUR__LIST_LIMIT_MAX = 100000,
    DUR__CORRUPTED_EVENT_ID = 99999 /* terminal event over a history that cannot be read */
};

#define DUR__DELAY_MS_MAX (UINT64_C(100) * 366 * 86400000) /* a century: sums of times stay far from 2^63 */

#endif
