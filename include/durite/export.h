/*
 * export.h: what the compiler must be told about our declarations.
 *
 * The only header with compiler tests.  Include durite.h instead.
 */
#ifndef DURITE_EXPORT_H
#define DURITE_EXPORT_H

#if defined(__GNUC__)
#define DUR_API __attribute__((visibility("default")))
#define DUR_PRINTF(at, first) __attribute__((format(printf, at, first)))
#define DUR_MUST_USE __attribute__((warn_unused_result))
#define DUR_NORETURN __attribute__((noreturn))
#define DUR_DEPRECATED(instead) __attribute__((deprecated(instead)))
#else
#define DUR_API
#define DUR_PRINTF(at, first)
#define DUR_MUST_USE
#define DUR_NORETURN
#define DUR_DEPRECATED(instead)
#endif

#ifdef __cplusplus
#define DUR_BEGIN_DECLS extern "C" {
#define DUR_END_DECLS }
#else
#define DUR_BEGIN_DECLS
#define DUR_END_DECLS
#endif

/* "file.c:12" of the place where a macro is used; scheduling macros record it for error reports. */
#define DUR_TEXT_(x) #x
#define DUR_TEXT(x) DUR_TEXT_(x)
#define DUR_SITE __FILE__ ":" DUR_TEXT(__LINE__)

/* Durations are milliseconds everywhere. */
#define DUR_SECONDS(n) ((uint64_t)(n)*1000u)
#define DUR_MINUTES(n) ((uint64_t)(n)*60000u)
#define DUR_HOURS(n) ((uint64_t)(n)*3600000u)
#define DUR_DAYS(n) ((uint64_t)(n)*86400000u)

#endif
