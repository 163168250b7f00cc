/*
 * clock.h: injected time and randomness.
 *
 * Nobody in the library calls time() or rand(): runtimes and stores get a dur_world.  The real one is the default;
 * tests and the simulator pass their own, so that a run is a function of its seed.  What the library waits for it
 * measures with the machine's clock, unless the thread has entered a fake world: a world of one's own must keep pace
 * with real time, or its nodes take themselves for dead.
 * Thread class: any thread (an implementation must be safe for that).
 */
#ifndef DURITE_SYS_CLOCK_H
#define DURITE_SYS_CLOCK_H

#include <durite/export.h>
#include <stddef.h>
#include <stdint.h>

DUR_BEGIN_DECLS

typedef struct dur_world {
    void *data;
    uint64_t (*wall_ms)(void *data);                    /* milliseconds since 1970 */
    uint64_t (*boot_ms)(void *data);                    /* never goes back; counts while the machine sleeps */
    void (*random)(void *data, void *out, size_t size); /* random bytes */
} dur_world;

/* The machine's own clocks and getrandom().  Static. */
DUR_API const dur_world *dur_world_real(void);

/* A world for tests: time stands still until advanced, randomness comes from the seed.  NULL: no memory. */
typedef struct dur_fake_world dur_fake_world;
DUR_API dur_fake_world *dur_fake_world_new(uint64_t start_ms, uint64_t seed);
DUR_API void dur_fake_world_free(dur_fake_world *fake);
DUR_API const dur_world *dur_fake_world_get(dur_fake_world *fake);
/* Move both clocks forward, or only the wall clock by any amount (a clock that jumps). */
DUR_API void dur_fake_world_advance(dur_fake_world *fake, uint64_t ms);
DUR_API void dur_fake_world_jump(dur_fake_world *fake, int64_t wall_ms);

/*
 * Let the calling thread live in that world from now on (NULL: in the real one again); returns where it lived before.
 * Every duration that the library measures on this thread is the fake's: it passes with the boot clock, and by a
 * microsecond whenever it is read, so that whoever spins comes to an end.  Whatever would sleep for a time on this
 * thread moves both clocks by that time instead, and nobody sleeps.  For a runtime without threads (durite/step.h)
 * whose store and options have the same world: then days pass in the time that their work takes.  Not for a thread that
 * waits for what another thread does: such a wait is over before that thread has begun.
 */
DUR_API dur_fake_world *dur_fake_world_enter(dur_fake_world *fake);

/* Nobody but the thread that lives in that world uses the stores of its runtimes.  Then a client's wait without a limit
   ends when nothing will happen by itself: DUR_ETIMEOUT, with what `waits` says that the instance waits for.  NULL: it
   is not so. */
typedef const char *dur_waits_fn(void *data, const char *instance);
DUR_API void dur_fake_world_alone(dur_fake_world *fake, dur_waits_fn *waits, void *data);

DUR_END_DECLS

#endif
