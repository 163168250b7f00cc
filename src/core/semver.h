/*
 * semver.h: versions of handlers and of the engine.
 *
 * Handlers' versions are ordered by the rules of semantic versioning 2.0, pre-releases included; build metadata does
 * not count.  What a store keeps (the pinned version of a history) is the three numbers alone.
 */
#ifndef DURITE_CORE_SEMVER_H
#define DURITE_CORE_SEMVER_H

#include <durite/sys/provider_methods.h>
#include <stdbool.h>

/* "1.2.3", optionally "-pre.1" and "+build"; nothing else.  out may be NULL. */
bool dur__semver_parse(const char *text, dur_semver *out);
/* For stored texts: also "1", "1.2" and a leading "v"; what follows the numbers is ignored. */
bool dur__semver_parse_lenient(const char *text, dur_semver *out);

/* < 0, 0, > 0.  The numbers only. */
int dur__semver_compare(dur_semver a, dur_semver b);
/* The same of two texts, by full precedence: 1.0.0-rc.1 < 1.0.0.  Texts that are no versions come first, by strcmp. */
int dur__semver_compare_text(const char *a, const char *b);

bool dur__semver_in(const dur_version_range *range, dur_semver version);

#endif
