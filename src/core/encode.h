/*
 * encode.h: encoders of the hot path.
 *
 * They append to the caller's buffer and allocate nothing else.  The value must be complete and its texts UTF-8: what
 * enters from outside was checked at the door, so a missing required text is an assert here.  dur_event_to_json and
 * dur_work_to_json check first.
 */
#ifndef DURITE_CORE_ENCODE_H
#define DURITE_CORE_ENCODE_H

#include "base/buf.h"
#include <durite/sys/event.h>
#include <durite/sys/work.h>

void dur__event_encode(dur__buf *out, const dur_event *event);
void dur__work_encode(dur__buf *out, const dur_work_item *item);

#endif
