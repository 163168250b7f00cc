/*
 * pg_works.h: in which order rows of the worker queue are locked, and which of them a fetch may take.
 */
#ifndef DURITE_PROVIDER_POSTGRES_PG_WORKS_H
#define DURITE_PROVIDER_POSTGRES_PG_WORKS_H

#include "provider/tags.h"

/*
 * Who writes several rows of dur_worker that are not his own alone (others may delete their instances, cancel them, or
 * take over their owner) locks them in order of the key, as l(instance_id, id), and waits for none of them later.
 */
#define DUR__PG_LOCK_WORKS_AS(locking, from, which)                                                                    \
    "(SELECT w.instance_id, w.id FROM @worker w" from " WHERE " which                                                  \
    " ORDER BY w.instance_id, w.id FOR UPDATE OF w" locking ") l"
#define DUR__PG_LOCK_WORKS(which) DUR__PG_LOCK_WORKS_AS("", "", which)
#define DUR__PG_IS_L "w.instance_id = l.instance_id AND w.id = l.id"
#define DUR__PG_DELETE_WORKS                                                                                           \
    "DELETE FROM @worker w USING " DUR__PG_LOCK_WORKS("w.instance_id = ANY ($2::text[])") " WHERE " DUR__PG_IS_L

/* The row w passes the filter of tags: dur__tag_admitted. */
#define DUR__PG_TAG_ADMITTED(mode, tags)                                                                               \
    "CASE " mode " WHEN 0 THEN w.tag IS NULL WHEN 1 THEN w.tag = ANY (" tags ") WHEN 2 THEN w.tag IS NULL OR w.tag ="  \
    " ANY (" tags ") WHEN 3 THEN true ELSE false END"

#endif
