/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The arithmetic of tcp_native.bpf.c: Reno and Cubic in the kernel alone. Reno is core's newreno
 * (tcp_window.h); Cubic is core's with linux_growth (tcp_cubic.h), so that it is Linux's. Below
 * cong_avoid, recovery, pacing rate and idle restart are the kernel's own, as for its own two. Reno
 * leaves slow start at a loss, Cubic by HyStart (tcp_law.h) too.
 */
#ifndef FOREBAY_TCP_NATIVE_H
#define FOREBAY_TCP_NATIVE_H

#include "tcp_cubic.h"

enum native_kind {
	NATIVE_RENO,
	NATIVE_CUBIC,
};

/* In icsk_ca_priv, which the kernel zeroes before init. */
struct native {
	union {
		struct curve curve;
		struct cubic cubic;
	};
	struct hystart hystart;
	/* When the newest segment had left, at the acknowledgement after which nothing was in flight; 0:
	 * something was. */
	__u64 drained_us;
};

_Static_assert(sizeof(struct native) <= 104, "icsk_ca_priv");
_Static_assert(CURVE_RENO == 0, "a zeroed curve is Reno's");

static __always_inline void native_avoid(__u32 kind, struct native *native, struct window *window,
					 __u32 acked, __u64 now_us, __u32 mss)
{
	__u32 cwnd = window->cwnd;

	if (kind == NATIVE_CUBIC) {
		cwnd += cubic_grow(&native->cubic, now_us, acked, cwnd);
	} else if (mss) {
		curve_follow(&native->curve, cwnd, mss);
		curve_grow(&native->curve, acked * (__u64)mss, now_us, mss);
		cwnd = native->curve.cwnd / mss;
	}
	if (cwnd > window->cwnd)
		window->cwnd = at_most(cwnd, at_least(window->cwnd, SEGMENTS_MAX));
}

/* An acknowledgement outside of a recovery. `slow_start`: the method that ends slow start. */
static __always_inline void native_on_ack(__u32 kind, __u32 slow_start, struct native *native,
					  struct window *window, const struct ack *ack,
					  __u64 now_us, __u32 mss)
{
	bool is_seen = kind == NATIVE_CUBIC && !cubic_is_young(&native->cubic, now_us);
	__u32 left = at_most(ack->acked, SEGMENTS_MAX);

	if (is_seen)
		native->cubic.min_rtt_us = lesser_rtt(native->cubic.min_rtt_us, ack->rtt_us);
	if (window->cwnd < window->ssthresh && is_seen &&
	    hystart_observe(slow_start, &native->hystart, window, ack))
		window->ssthresh = at_least(window->cwnd, SEGMENTS_MIN);
	if (!ack->is_filled)
		return;
	if (window->cwnd < window->ssthresh)
		left = law_slow_start(SLOW_START_STANDARD, &native->hystart, window, left);
	if (left && window->cwnd >= window->ssthresh)
		native_avoid(kind, native, window, left, now_us, mss);
}

/* A loss or a mark: the new ssthresh. */
static __always_inline __u32 native_on_loss(__u32 kind, struct native *native, __u32 cwnd,
					    __u32 mss)
{
	if (kind == NATIVE_CUBIC)
		return cubic_on_loss(&native->cubic, cwnd);
	mss = at_least(mss, 1);
	curve_follow(&native->curve, cwnd, mss);
	return curve_on_loss(&native->curve, mss) / mss;
}

/* A timeout; the ssthresh for it was taken before. */
static __always_inline void native_on_rto(__u32 kind, struct native *native, __u32 nxt,
					  __u32 now_us)
{
	if (kind == NATIVE_CUBIC)
		cubic_on_rto(&native->cubic);
	native->hystart = hystart_from(nxt, now_us);
}

/* A segment left while nothing was in flight, `idle_us` after the last segment. */
static __always_inline void native_on_resume(__u32 kind, struct native *native, __u64 idle_us,
					     __u64 now_us)
{
	if (kind == NATIVE_CUBIC)
		cubic_pause(&native->cubic, idle_us, now_us);
}

#endif
