/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The growth of Reno and Cubic above ssthresh, in bytes and in integers as in crates/core/src/cc
 * (window.rs, newreno.rs, cubic/mod.rs). Used by the fallback of the datapath, and by the Reno that
 * runs in the kernel alone. crates/ebpf/src/tcp/tests/arithmetic.rs compares it with core's.
 *
 * The fallback's Cubic is RFC 9438's and not Linux's (tcp_cubic.h). The fallback takes connections over
 * in the middle and does not know whether they have lost anything. So it must not grow them by 5 % a
 * window, as Linux does before any loss. Nor has a connection of the datapath room for Linux's state.
 *
 *   W(t)    C (t - K)^3 + W_max                     C = 0.4 segments / s^3     (RFC 9438, 4.2)
 *   K       cbrt((W_max - W_epoch) / C)
 *   growth  W(t + RTT), within cwnd and 1.5 cwnd, less cwnd, a window          (4.2, 4.4, 4.5)
 *   W_est   += a mss a window; a = 9/17 until it reaches the window of the last loss, then 1   (4.3)
 *   loss    W_max = cwnd, or 0.85 cwnd where cwnd < W_max; ssthresh = 0.7 cwnd (4.6, 4.7)
 *
 * Growth is constant over an acknowledgement; core splits acknowledgements of more than a sixteenth of
 * a window.
 * t in 1/1024 s, up to 17 minutes from K; W_est in 1/256 byte; windows below 2 GiB.
 */
#ifndef FOREBAY_TCP_WINDOW_H
#define FOREBAY_TCP_WINDOW_H

#include "tcp_law.h"

#define CURVE_BYTES_MAX (1ULL << 31)
#define TICKS_PER_SEC 1024
#define TICKS_MAX (1U << 20)
#define EST_BITS 8
/* Bits of a cube root of ticks^3: (2^31 bytes of 1-byte segments / 0.4)^(1/3) s is below 2^21. */
#define ROOT_BITS 21

enum curve_kind {
	CURVE_RENO,
	CURVE_CUBIC,
};

struct curve {
	/* W_est. */
	__u64 estimate;
	/* When the epoch began; 0: the next growth begins one. */
	__u64 began_us;
	__u32 cwnd;
	/* Growth not yet a byte, in parts of 1/cwnd byte. */
	__u32 remainder;
	/* 0 if there was no loss. */
	__u32 w_max;
	__u32 before_loss;
	/* K in ticks. */
	__u32 k;
	/* Where the function is flat. */
	__u32 origin;
	/* The least seen, 0: none. */
	__u32 min_rtt_us;
	__u32 kind;
};

/* 1 if one < other, without a branch: the verifier would follow both ways at each bit. */
static __always_inline __u64 is_less(__u64 one, __u64 other)
{
	return ((~one & other) | (~(one ^ other) & (one - other))) >> 63;
}

/* The greatest integer below 2^ROOT_BITS whose cube is at most `value`. */
static __always_inline __u64 cube_root(__u64 value)
{
	__u64 root = 0;

#pragma unroll
	for (int bit = ROOT_BITS - 1; bit >= 0; bit--) {
		__u64 candidate = root | 1ULL << bit;

		root |= (1 ^ is_less(value, candidate * candidate * candidate)) << bit;
	}
	return root;
}

/* cbrt(bytes / C) in ticks. */
static __always_inline __u32 ticks_to_origin(__u64 bytes, __u32 mss)
{
	__u64 cube = (bytes << 10) / mss * 5 / 2;

	return cube_root((cube < ~0ULL >> 20 ? cube : ~0ULL >> 20) << 20);
}

/* C ticks^3 in bytes. */
static __always_inline __u64 cubic_bytes(__u64 ticks, __u32 mss)
{
	if (ticks > TICKS_MAX)
		ticks = TICKS_MAX;
	return ((ticks * ticks * ticks >> 20) * mss * 2 / 5) >> 10;
}

static __always_inline __u64 ticks_of(__u64 us)
{
	return us / 1000000 * TICKS_PER_SEC + us % 1000000 * TICKS_PER_SEC / 1000000;
}

/* W(at) in bytes. */
static __always_inline __u64 curve_at(const struct curve *curve, __u64 at, __u32 mss)
{
	__u64 before = at < curve->k;
	__u64 distance = cubic_bytes(before ? curve->k - at : at - curve->k, mss);

	if (!before)
		return curve->origin + distance;
	return curve->origin > distance ? curve->origin - distance : 0;
}

static __always_inline void curve_set(struct curve *curve, __u64 bytes)
{
	if (bytes > CURVE_BYTES_MAX - 1)
		bytes = CURVE_BYTES_MAX - 1;
	curve->cwnd = bytes;
	if (bytes && curve->remainder >= bytes)
		curve->remainder = bytes - 1;
}

static __always_inline void curve_begin(struct curve *curve, __u64 now_us, __u32 mss)
{
	__u32 cwnd = curve->cwnd;

	curve->began_us = now_us;
	curve->k = ticks_to_origin(saturating_sub(curve->w_max, cwnd), mss);
	curve->origin = at_least(curve->w_max, cwnd);
	curve->estimate = (__u64)cwnd << EST_BITS;
}

/* W_est after `acked` bytes, in bytes. */
static __always_inline __u64 curve_reno(struct curve *curve, __u32 acked, __u32 mss)
{
	/* Below 2^63: acked is below 2^31, mss below 2^17. */
	__u64 growth = ((__u64)acked * mss) << EST_BITS;

	if (curve->estimate >> EST_BITS < curve->before_loss)
		growth = growth * 9 / 17;
	curve->estimate += growth / curve->cwnd;
	if (curve->estimate > CURVE_BYTES_MAX << EST_BITS)
		curve->estimate = CURVE_BYTES_MAX << EST_BITS;
	return curve->estimate >> EST_BITS;
}

/* Grows by W(t + RTT) - cwnd, or by mss, for each window acknowledged; `acked` in bytes. */
static __always_inline void curve_grow(struct curve *curve, __u32 acked, __u64 now_us, __u32 mss)
{
	bool is_cubic = curve->kind == CURVE_CUBIC;
	__u64 target = 0, reno = 0, cwnd = curve->cwnd, growth = mss;

	if (!cwnd || !mss)
		return;
	if (is_cubic) {
		if (!curve->began_us)
			curve_begin(curve, now_us, mss);
		target = curve_at(curve, ticks_of(now_us - curve->began_us + curve->min_rtt_us), mss);
		reno = curve_reno(curve, acked, mss);
		growth = target < cwnd ? cwnd : target;
		if (growth > cwnd / 2 * 3)
			growth = cwnd / 2 * 3;
		growth = growth < cwnd ? 0 : growth - cwnd;
	}
	if (growth > cwnd)
		growth = cwnd;
	growth = at_most(acked, cwnd) * growth + curve->remainder;
	curve->remainder = growth % cwnd;
	curve_set(curve, cwnd + growth / cwnd);
	if (is_cubic && curve->cwnd < reno)
		curve_set(curve, reno);
}

/* A loss or a mark: the window goes to the new ssthresh, which is returned, in bytes. */
static __always_inline __u32 curve_on_loss(struct curve *curve, __u32 mss)
{
	__u64 cwnd = curve->cwnd, kept = cwnd / 2, least = (__u64)SEGMENTS_MIN * mss;

	if (curve->kind == CURVE_CUBIC) {
		curve->w_max = cwnd < curve->w_max ? cwnd * 17 / 20 : cwnd;
		curve->before_loss = cwnd;
		curve->began_us = 0;
		kept = cwnd * 7 / 10;
	}
	curve_set(curve, kept > least ? kept : least);
	return curve->cwnd;
}

/* A timeout: as a loss, and nothing to aim for. */
static __always_inline void curve_on_rto(struct curve *curve)
{
	curve->w_max = 0;
	curve->began_us = 0;
}

/* Takes the window over from the kernel where that has another. */
static __always_inline void curve_follow(struct curve *curve, __u32 segments, __u32 mss)
{
	__u64 bytes = (__u64)segments * mss;

	if (curve->cwnd < bytes || curve->cwnd - bytes >= mss)
		curve_set(curve, bytes);
}

_Static_assert(sizeof(struct curve) == 48, "must fit next to the other state of a connection");

#endif
