/*
 * pg_doubts.h: which crashes are in doubt (pg_doubt.c).
 */
#ifndef DURITE_PROVIDER_POSTGRES_PG_DOUBTS_H
#define DURITE_PROVIDER_POSTGRES_PG_DOUBTS_H

#include "provider/postgres/pg_internal.h"

/* As a row's id: what may have been local to the owner that died (dur_turn_work), until somebody has looked. */
#define DUR__PG_LOCAL_WORK "9223372036854775807"

/* What is counted in the crash of an owner, before any of it is free; behind the last of it the end. */
void dur__pg_crash_begin_add(dur__pg_batch *batch, const char *owner);
void dur__pg_crash_end_add(dur__pg_batch *batch, const char *owner);
int dur__pg_blame(dur_provider *self, const char *lock_token, dur_error *err);

/* A row x of @crashed that has not shown since the crash that it can end; the owner that died may have some rows still,
   not counted yet. */
#define DUR__PG_UNPROVEN(x)                                                                                            \
    "CASE " x ".work_id WHEN " DUR__PG_LOCAL_WORK                                                                      \
    " THEN true WHEN 0 THEN EXISTS (SELECT 1 FROM @instances ui WHERE ui.instance_id = " x ".instance_id AND"          \
    " ui.acquisitions > 0 AND (ui.crashes > 0 OR ui.owner = " x ".crash)) ELSE EXISTS (SELECT 1 FROM @worker uw WHERE" \
    " uw.instance_id = " x ".instance_id AND uw.id = " x ".work_id AND (uw.crashes > 0 OR uw.owner = " x               \
    ".crash)) END"
/* Crashes alone of a row r, without those in doubt. */
#define DUR__PG_CRASHES_ALONE(r, work_id)                                                                              \
    "CASE WHEN " r ".crashes_alone > 0 THEN " r ".crashes_alone - (SELECT count(*) FROM @doubts d WHERE d.instance_id" \
    " = " r ".instance_id AND d.work_id = " work_id ") ELSE 0 END"

#endif
