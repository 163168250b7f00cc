/*
 * block.h: the events of a turn as one text, which a store keeps in one row.
 *
 * What an event repeats of its row (instance, execution, event id) and of its neighbours (time, version) is left out:
 *
 *     {"event_id":3,"source_event_id":2,"instance_id":"o-1","execution_id":1,"timestamp_ms":1700000000000,
 *      "duroxide_version":"0.1.0","type":"ActivityCompleted","result":"7"}
 *     {"event_id":4,"instance_id":"o-1","execution_id":1,"timestamp_ms":1700000000005,
 *      "duroxide_version":"0.1.0","type":"TimerCreated","fire_at_ms":1700000060005}
 *
 * is in a row with first id 3 and count 2 (line breaks are not part of it)
 *
 *     [1700000000000,"0.1.0",
 *      ["ActivityCompleted",{"result":"7"},2],
 *      ["TimerCreated",{"fire_at_ms":1700000060005},0,5]]
 *
 * time of the first event, version, then for each event its kind, its fields, and where they are not 0 the event that
 * it answers and how much later it was made.  The array has no blanks, so the JSON functions of a database give back
 * the very bytes of the fields: views put events together by them (docs/format/history.md).
 *
 * Texts come back byte for byte.  One that cannot be put together from such parts (other fields before its type, a
 * foreign id, blanks, something that is no JSON) is a block by itself, whole: '=' and the text.
 */
#ifndef DURITE_CORE_BLOCK_H
#define DURITE_CORE_BLOCK_H

#include "base/buf.h"
#include <durite/sys/provider_methods.h>

/* A row of history: what its columns say, and the text. */
typedef struct dur__block {
    const char *instance;
    uint64_t execution_id;
    uint64_t first_id; /* the ids of the others follow it */
    uint64_t count;
    dur_text bytes;
} dur__block;

/*
 * Append the block of the first events to out, which may hold something, and say how many they are: at least one, all
 * that follow each other by id and fit together into bytes_max.  One that is larger is a block by itself.
 */
size_t dur__block_pack(dur__buf *out, const char *instance, uint64_t execution_id, const dur_event_row *events,
                       size_t count, size_t bytes_max);

/* How many events it gives back: its count, or 1 where the bytes cannot hold as many. */
size_t dur__block_events(const dur__block *block);

/*
 * Its events, as a reader of a store hands them out, in so many rows.  False: the bytes are no such block, damaged or
 * written by somebody else.  Then the first row has them as they are and the others have empty texts, so that whoever
 * decodes the history finds it damaged as it would by any other text.
 */
bool dur__block_unpack(dur_event_row *out, dur_arena *arena, const dur__block *block);

#endif
