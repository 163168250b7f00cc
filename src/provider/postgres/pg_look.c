/*
 * pg_look.c: when a peer is dead, from what one observer has seen of it.  No clock, no connection: numbers in, a
 * verdict out, so that a test can go through all of it.
 *
 * Silence is what an observer has seen itself: the same beat at every look, over a time that its own clock measures.
 * The server's clock may jump, and what it says a beat's age is then means nothing.  Between two looks only so much
 * counts as a look tells: while the server or the observer stood still nobody's beat got through.
 *
 * Every node beats and looks once a second, in one statement.  A killed process (at k, its last beat at b <= k) is
 * found in two looks:
 *
 *   - The first that finds its lock free comes at most a second after k (and after its server processes have noticed).
 *   - The second is an extra one, as soon as it can tell: APART after the first, and OVERDUE after b.
 *
 * So the verdict comes at most max(1 s + APART, OVERDUE) = 1.7 s after k, and three tenths of a second are left for
 * what machines add: a late look, the take-over, the claim.  Where there are no locks (a pooler) only silence counts,
 * from the look that first saw b: a timeout of 10 s means 9 to 11 s after k.
 *
 * One that lives and has lost all its sessions is taken over only if it shows no lock at either look and no beat for
 * half a second after one was due; the take-over compares the beat once more.  Its lanes connect, and lock, as soon as
 * they notice; its keeper when it beats.
 *
 * OVERDUE must be counted from b and not from the look that first saw b: by its looks alone an observer cannot tell
 * who beat and died right after its last look from who beat and lost its sessions right before this one, and waiting
 * for the second's next beat is too long for the first.  The server's stamp tells, if its clock has not jumped since
 * the last look, which the observer's own clock tells (stamp_age).
 */
#include "provider/postgres/pg_internal.h"

#define APART_US 700000u
#define OVERDUE_US 1500000u
#define LATE_US 1500000u /* two looks further apart: this one was not at its time, and confirms nothing */
#define GAP_MS 2000u     /* and no more than this counts as silence */

/*
 * How old a beat is that came since the last look.  Never too old: the server's clock has not moved further than ours
 * since we asked, so it has not jumped ahead; when it was set back, a stamp is ahead of it or too young.  0: no
 * telling.
 */
static uint64_t stamp_age(const dur__pg_glance *before, const dur__pg_glance *now, int64_t beat_ms) {
    if (before->seen_us == 0) return 0;
    uint64_t gap_us = now->seen_us - before->seen_us;
    int64_t most_ms = (int64_t)((now->seen_us - before->asked_us) / 1000u) + 1;
    if (gap_us > LATE_US || now->now_ms - before->now_ms > most_ms) return 0;
    /* Before the last look: it was on its way then; long before: by another clock. */
    if (beat_ms > now->now_ms || before->now_ms - beat_ms > (int64_t)(LATE_US / 1000u)) return 0;
    uint64_t age_us = (uint64_t)(now->now_ms - beat_ms) * 1000u;
    return age_us < gap_us ? age_us : gap_us;
}

void dur__pg_look_add(dur__pg_look *look, const dur__pg_glance *before, const dur__pg_glance *at,
                      const dur__pg_sight *sight) {
    bool known = look->at.seen_us != 0, was_free = look->last.is_free;
    bool same = known && look->last.beat_ms == sight->beat_ms;
    uint64_t gap_us = at->seen_us - look->at.seen_us;
    uint64_t most_us = sight->timeout_ms / 2 < GAP_MS ? sight->timeout_ms * 500u : GAP_MS * 1000u;
    if (same) {
        look->silent_us += gap_us < most_us ? gap_us : most_us;
        look->quiet_us += gap_us < GAP_MS * 1000u ? gap_us : GAP_MS * 1000u;
        look->free_us = was_free && sight->is_free && gap_us <= LATE_US ? look->free_us + gap_us : 0;
    } else {
        look->silent_us = look->free_us = 0;
        look->quiet_us = stamp_age(known ? &look->at : before, at, sight->beat_ms);
    }
    look->at = *at;
    look->last = *sight;
}

bool dur__pg_look_silent(const dur__pg_look *look) {
    return look->silent_us / 1000u >= look->last.timeout_ms;
}

uint64_t dur__pg_look_left_us(const dur__pg_look *look) {
    uint64_t apart = look->free_us < APART_US ? APART_US - look->free_us : 0;
    uint64_t overdue = look->quiet_us < OVERDUE_US ? OVERDUE_US - look->quiet_us : 0;
    if (!look->last.is_free) return UINT64_MAX;
    return apart > overdue ? apart : overdue;
}
