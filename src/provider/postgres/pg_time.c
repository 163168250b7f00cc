/*
 * pg_time.c: time as the store sees it, and random tokens.
 */
#include "provider/postgres/pg_internal.h"

#include <stdlib.h>
#include <unistd.h>

#define POLL_PAUSE_US 20000u

void dur__pg_saw_now(dur__pg *store, uint64_t now_ms) {
    const dur_world *real = dur_world_real();
    if (now_ms == 0 || store->caller_clock) return;
    atomic_store(&store->clock_offset_ms, (int64_t)now_ms - (int64_t)real->boot_ms(real->data));
    atomic_store(&store->offset_known, 1);
}

/* Between two answers the server's time is ours plus a difference; ours is the boot clock, which does not jump. */
uint64_t dur__pg_now_ms(dur_provider *self) {
    dur__pg *store = dur__pg_of(self);
    const dur_world *real = dur_world_real();
    if (store->caller_clock) return store->world->wall_ms(store->world->data);
    if (atomic_load(&store->offset_known) == 0) {
        dur__pg_args args;
        PGresult *result = NULL;
        dur__pg_args_begin(store, &args);
        if (dur__pg_one(store, "postgres.now", "SELECT #now", &args, false, &result, NULL) == DUR_OK)
            dur__pg_saw_now(store, dur__pg_get_u64(result, 0, 0));
        PQclear(result);
        if (atomic_load(&store->offset_known) == 0) return real->wall_ms(real->data);
    }
    return (uint64_t)(atomic_load(&store->clock_offset_ms) + (int64_t)real->boot_ms(real->data));
}

uint64_t dur__pg_deadline(uint64_t timeout_ms) {
    if (timeout_ms == 0) return 0;
    uint64_t now = dur__monotonic_us();
    return timeout_ms > (UINT64_MAX - 1 - now) / 1000u ? UINT64_MAX : now + timeout_ms * 1000u;
}

/* A long poll outside a lane looks again from time to time; lanes have notifications. */
bool dur__pg_poll_pause(dur__pg *store, uint64_t deadline_us) {
    uint64_t now = deadline_us > 0 ? dur__monotonic_us() : 0;
    if (now >= deadline_us) return false;
    uint64_t us = deadline_us - now < POLL_PAUSE_US ? deadline_us - now : POLL_PAUSE_US;
    dur__mutex_lock(&store->mutex);
    dur__cond_wait_us(&store->changed, &store->mutex, us);
    dur__mutex_unlock(&store->mutex);
    return true;
}

void dur__pg_token(dur__pg *store, char out[DUR__PG_TOKEN_SIZE]) {
    static const char digits[] = "0123456789abcdef";
    unsigned char bytes[(DUR__PG_TOKEN_SIZE - 1) / 2];
    store->world->random(store->world->data, bytes, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[DUR__PG_TOKEN_SIZE - 1] = '\0';
}

int64_t dur__pg_random_holder(dur__pg *store) {
    uint64_t number = 0;
    store->world->random(store->world->data, &number, sizeof(number));
    return (int64_t)(number >> 1);
}
