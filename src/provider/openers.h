/*
 * openers.h: what dur_open calls for the schemes that the library knows.
 */
#ifndef DURITE_PROVIDER_OPENERS_H
#define DURITE_PROVIDER_OPENERS_H

#include <durite/provider.h>

/* memory:[name][?poll=short|long] */
int dur__memory_open_url(dur_provider **out, const char *url, const dur_open_options *options, dur_error *err);

/* sqlite:path[?parameters] */
int dur__sqlite_open_url(dur_provider **out, const char *url, const dur_open_options *options, dur_error *err);

#endif
