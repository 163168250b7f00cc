/*
 * tags.h: whether a filter admits an activity with this tag.  The SQL stores say the same in one text each.
 */
#ifndef DURITE_PROVIDER_TAGS_H
#define DURITE_PROVIDER_TAGS_H

#include <durite/sys/provider_methods.h>
#include <string.h>

/* Statements of the stores name the modes by their numbers. */
_Static_assert(DUR_TAGS_DEFAULT_ONLY == 0 && DUR_TAGS_ONLY == 1 && DUR_TAGS_AND_DEFAULT == 2 && DUR_TAGS_ANY == 3,
               "DUR__PG_TAG_ADMITTED in pg_works.h");

static inline bool dur__tag_admitted(const dur_tag_filter *filter, const char *tag) {
    if (filter->mode == DUR_TAGS_ANY) return true;
    if (filter->mode == DUR_TAGS_NONE) return false;
    if (tag == NULL) return filter->mode != DUR_TAGS_ONLY;
    if (filter->mode == DUR_TAGS_DEFAULT_ONLY) return false;
    for (size_t i = 0; i < filter->tag_count; i++)
        if (strcmp(filter->tags[i], tag) == 0) return true;
    return false;
}

#endif
