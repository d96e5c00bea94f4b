/* SPDX-License-Identifier: GPL-2.0 */
/*
 * CUBIC as Linux grows it: crates/core/src/cc/algorithms/cubic with linux_growth, in the same integers. linux.rs
 * there has the formulas and the kernel's functions that they come from. Whole segments; times in
 * microseconds; t in 1/1024 s, up to 17 minutes from K; windows up to SEGMENTS_MAX.
 * crates/ebpf/src/tcp/tests/native.rs compares the two.
 */
#ifndef FOREBAY_TCP_CUBIC_H
#define FOREBAY_TCP_CUBIC_H

#include "tcp_window.h"

/* C in 1/1024 segment / s^3. */
#define CUBIC_C 410
/* Most acknowledgements per added segment before any loss. */
#define CUBIC_EARLY_COUNT 20
/* Time for which the count is kept for the same window. */
#define CUBIC_KEPT_US 31250
/* Time after a reduction in which round trips are not looked at. */
#define CUBIC_YOUNG_US 1000000
#define CUBIC_W_MAX_PARTS 20

struct cubic {
	/* When the epoch began; 0: the next count begins one. */
	__u64 began_us;
	/* When the count was taken, and for which window. */
	__u64 counted_us;
	__u32 counted_for;
	/* Segments acknowledged for one more, and segments acknowledged since the last one was added. */
	__u32 count;
	__u32 counted;
	/* K in ticks. */
	__u32 k;
	/* Where the function is flat. */
	__u32 origin;
	/* W_est, and acknowledgements towards the next. */
	__u32 estimate;
	__u32 acked;
	/* In 1/20 segment (fast convergence takes 17 for 20); 0 if there was no loss. */
	__u32 w_max;
	/* The least seen, 0: none. */
	__u32 min_rtt_us;
	__u32 unused;
};

static __always_inline __u64 us_since(__u64 now_us, __u64 then_us)
{
	return now_us > then_us ? now_us - then_us : 0;
}

/* Round trips do not count now. */
static __always_inline bool cubic_is_young(const struct cubic *cubic, __u64 now_us)
{
	return cubic->began_us && us_since(now_us, cubic->began_us) < CUBIC_YOUNG_US;
}

static __always_inline void cubic_begin(struct cubic *cubic, __u64 now_us, __u32 acked, __u32 cwnd)
{
	__u32 w_max = cubic->w_max / CUBIC_W_MAX_PARTS;

	cubic->began_us = now_us;
	cubic->k = cube_root(((__u64)saturating_sub(w_max, cwnd) << 40) / CUBIC_C);
	cubic->origin = at_least(w_max, cwnd);
	cubic->estimate = cwnd;
	cubic->acked = acked;
}

/* W(at). */
static __always_inline __u32 cubic_target(const struct cubic *cubic, __u64 at)
{
	bool is_before = at < cubic->k;
	__u64 off = is_before ? cubic->k - at : at - cubic->k, distance;

	if (off > TICKS_MAX)
		off = TICKS_MAX;
	distance = ((off * off * off >> 10) * CUBIC_C) >> 30;
	return is_before ? saturating_sub(cubic->origin, distance) : cubic->origin + distance;
}

/* W_est after these acknowledgements: one more for each 15/8 of a window beyond the first. */
static __always_inline __u32 cubic_estimate(struct cubic *cubic, __u32 cwnd)
{
	__u32 each = cwnd * 15 / 8, more;

	if (cubic->acked > each) {
		more = (cubic->acked - 1) / each;
		cubic->estimate += more;
		cubic->acked -= more * each;
	}
	return cubic->estimate;
}

/* Takes the count for a window of 1 to SEGMENTS_MAX, unless the count in force is kept. */
static __always_inline void cubic_update(struct cubic *cubic, __u64 now_us, __u32 acked, __u32 cwnd)
{
	bool is_kept = cubic->count && us_since(now_us, cubic->counted_us) <= CUBIC_KEPT_US;
	__u32 count, target, estimate;

	cubic->acked += acked;
	if (is_kept && cubic->counted_for == cwnd)
		return;
	cubic->counted_for = cwnd;
	cubic->counted_us = now_us;
	if (!cubic->began_us)
		cubic_begin(cubic, now_us, acked, cwnd);
	target = cubic_target(cubic, ticks_of(us_since(now_us, cubic->began_us) +
					      cubic->min_rtt_us));
	count = target > cwnd ? cwnd / (target - cwnd) : 100 * cwnd;
	if (cubic->w_max < CUBIC_W_MAX_PARTS)
		count = at_most(count, CUBIC_EARLY_COUNT);
	estimate = cubic_estimate(cubic, cwnd);
	if (estimate > cwnd)
		count = at_most(count, cwnd / (estimate - cwnd));
	cubic->count = at_least(count, 2);
}

/* Segments to add to a window of `cwnd` for `acked` segments. */
static __always_inline __u32 cubic_grow(struct cubic *cubic, __u64 now_us, __u32 acked, __u32 cwnd)
{
	__u32 early, more;

	cubic_update(cubic, now_us, acked, within(cwnd, 1, SEGMENTS_MAX));
	/* Segments counted towards a greater count are worth one segment at most. */
	early = cubic->counted >= cubic->count;
	cubic->counted = (early ? 0 : cubic->counted) + acked;
	more = cubic->counted / cubic->count;
	cubic->counted %= cubic->count;
	return early + more;
}

/* A loss or a mark: the new ssthresh. The count in force stays. */
static __always_inline __u32 cubic_on_loss(struct cubic *cubic, __u32 cwnd)
{
	cwnd = at_most(cwnd, SEGMENTS_MAX);
	cubic->w_max = cwnd * (cwnd * CUBIC_W_MAX_PARTS < cubic->w_max ? 17 : CUBIC_W_MAX_PARTS);
	cubic->began_us = 0;
	cubic->counted = 0;
	return at_least(cwnd * 717 >> 10, SEGMENTS_MIN);
}

/* A timeout, after the call for its loss: nothing to aim for, and the path may be another. */
static __always_inline void cubic_on_rto(struct cubic *cubic)
{
	*cubic = (struct cubic){};
}

/* Time without anything to send does not count, and the epoch outlives it. Never into the future. */
static __always_inline void cubic_pause(struct cubic *cubic, __u64 idle_us, __u64 now_us)
{
	if (!cubic->began_us)
		return;
	cubic->began_us += idle_us;
	if (cubic->began_us > now_us)
		cubic->began_us = now_us;
}

_Static_assert(sizeof(struct cubic) == 56, "must fit next to the other state of a connection");

#endif
