/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How a sender moves its window between two decisions: crates/core/src/cc/interim.rs in C, name by
 * name (struct law is its Terms). Windows in segments, times in microseconds of 32 bits that wrap,
 * fractions in 1/1024; zero means none. crates/ebpf/src/tcp/tests/arithmetic.rs compares the two.
 */
#ifndef FOREBAY_TCP_LAW_H
#define FOREBAY_TCP_LAW_H

#include "kernel.h"

#define SEGMENTS_MAX (1U << 20)
#define SEGMENTS_MIN 2U
#define SSTHRESH_INFINITE 0x7fffffffU
#define FRACTION_BITS 10
#define TRIP_SAMPLES 8
#define CONSERVATIVE_PARTS 4
#define INITIAL_SEGMENTS 10U

#define HYSTART_SAMPLES 8
#define HYSTART_RISE_MIN_US 4000U
#define HYSTART_RISE_MAX_US 16000U
#define HYSTART_RISE_PARTS 8
#define HYSTART_ROUNDS 5
#define HYSTART_CLASSIC_FROM 16
#define HYSTART_TRAIN_GAP_US 2000
#define HYSTART_ACK_DELAY_MAX_US 1000
#define HYSTART_AGGREGATES 4

/* The low bits of law.flags. */
enum slow_start {
	SLOW_START_HOLD,
	SLOW_START_STANDARD,
	SLOW_START_HYSTART,
	SLOW_START_HYSTART_PLUS_PLUS,
};
#define LAW_SLOW_START 3
/* Reports close with a round; otherwise after law.report_us. */
#define LAW_PER_ROUND (1 << 2)
/* Every report wakes its reader. */
#define LAW_WAKE (1 << 3)
#define LAW_FLAGS (LAW_SLOW_START | LAW_PER_ROUND | LAW_WAKE)

struct law {
	__u32 growth;
	__u32 cap;
	__u16 beta;
	__u16 flags;
	__u16 trip_lost;
	__u16 trip_ce;
	__u32 trip_rtt_us;
	/* Shortest time between two reports. */
	__u32 report_us;
};

struct hystart {
	__u32 round_end;
	__u32 round_min;
	__u32 base;
	__u32 mark;
	__u32 train_us;
	__u8 samples;
	__u8 conservative;
	__u8 is_found;
	__u8 unused;
};

struct window {
	__u32 cwnd;
	__u32 ssthresh;
	__u32 credit;
};

struct ack {
	__u32 acked;
	__u32 una;
	__u32 nxt;
	__u32 rtt_us;
	__u32 now_us;
	__u32 ack_delay_us;
	__u8 has_advanced;
	__u8 is_filled;
	__u8 is_paced;
	__u8 unused;
};

/* Measurements that a report will cover, for the tripwires. */
struct interval {
	__u32 samples;
	__u32 rtt_min_us;
	__u32 lost;
	__u32 ce;
};

static __always_inline __u32 at_most(__u32 value, __u32 most)
{
	return value < most ? value : most;
}

static __always_inline __u32 at_least(__u32 value, __u32 least)
{
	return value > least ? value : least;
}

static __always_inline __u32 within(__u32 value, __u32 least, __u32 most)
{
	return at_most(at_least(value, least), most);
}

/* The lesser of two round trips, 0 being none. */
static __always_inline __u32 lesser_rtt(__u32 one, __u32 other)
{
	return !one || (other && other < one) ? other : one;
}

static __always_inline __u32 saturating_add(__u32 one, __u32 other)
{
	__u32 sum = one + other;

	return sum < one ? ~0U : sum;
}

static __always_inline __u32 saturating_sub(__u32 one, __u32 other)
{
	return one > other ? one - other : 0;
}

static __always_inline __u32 slow_start_of(const struct law *law)
{
	return law->flags & LAW_SLOW_START;
}

static __always_inline bool moves_window(const struct law *law)
{
	return law->growth || slow_start_of(law) != SLOW_START_HOLD;
}

static __always_inline __u32 hystart_rise(__u32 rtt_us)
{
	return within(rtt_us / HYSTART_RISE_PARTS, HYSTART_RISE_MIN_US, HYSTART_RISE_MAX_US);
}

/* Longest delay of acknowledgements by aggregation; `aggregate` in bytes, the rate in bytes per second. */
static __always_inline __u32 hystart_ack_delay(__u32 aggregate, __u64 pacing_rate)
{
	__u64 bytes = (__u64)aggregate * HYSTART_AGGREGATES;

	if (pacing_rate <= bytes * 1000)
		return pacing_rate ? HYSTART_ACK_DELAY_MAX_US : 0;
	return bytes * 1000000 / pacing_rate;
}

/* At the beginning of a connection and after a timeout. */
static __always_inline struct hystart hystart_from(__u32 nxt, __u32 now_us)
{
	struct hystart watch = { .round_end = nxt, .mark = now_us, .train_us = now_us };

	return watch;
}

static __always_inline bool hystart_ends_round(struct hystart *watch, const struct ack *ack)
{
	if ((__s32)(ack->una - watch->round_end) <= 0)
		return false;
	watch->round_end = ack->nxt;
	return true;
}

static __always_inline void hystart_sample(struct hystart *watch, __u32 rtt_us)
{
	if (!rtt_us)
		return;
	watch->round_min = lesser_rtt(watch->round_min, rtt_us);
	if (watch->samples < 255)
		watch->samples++;
}

/* RFC 9406; true if slow start is over. */
static __always_inline bool hystart_plus_plus(struct hystart *watch, const struct ack *ack)
{
	if (hystart_ends_round(watch, ack)) {
		if (watch->round_min)
			watch->base = watch->round_min;
		watch->round_min = 0;
		watch->samples = 0;
		if (watch->conservative && ++watch->conservative > HYSTART_ROUNDS) {
			watch->conservative = 0;
			return true;
		}
	}
	hystart_sample(watch, ack->rtt_us);
	if (watch->samples < HYSTART_SAMPLES)
		return false;
	if (watch->conservative) {
		if (watch->round_min < watch->mark)
			watch->conservative = 0;
	} else if (watch->base &&
		   watch->round_min >= saturating_add(watch->base, hystart_rise(watch->base))) {
		watch->conservative = 1;
		watch->mark = watch->round_min;
	}
	return false;
}

/* Linux, hystart_update; true if slow start is over. */
static __always_inline bool hystart_classic(struct hystart *watch, __u32 cwnd,
					    const struct ack *ack)
{
	__u32 most;
	bool is_judged;

	if (!ack->rtt_us)
		return false;
	watch->base = lesser_rtt(watch->base, ack->rtt_us);
	if (watch->is_found)
		return false;
	if (hystart_ends_round(watch, ack)) {
		watch->round_min = 0;
		watch->samples = 0;
		watch->mark = ack->now_us;
		watch->train_us = ack->now_us;
	}
	if (cwnd < HYSTART_CLASSIC_FROM)
		return false;
	if (ack->now_us - watch->train_us <= HYSTART_TRAIN_GAP_US) {
		watch->train_us = ack->now_us;
		most = saturating_add(watch->base, ack->ack_delay_us);
		if (!ack->is_paced)
			most /= 2;
		if (ack->now_us - watch->mark > most)
			watch->is_found = 1;
	}
	is_judged = watch->samples >= HYSTART_SAMPLES;
	hystart_sample(watch, ack->rtt_us);
	most = saturating_add(watch->base, hystart_rise(watch->base));
	if (is_judged && watch->round_min > most)
		watch->is_found = 1;
	return watch->is_found;
}

static __always_inline bool hystart_observe(__u32 kind, struct hystart *watch,
					    const struct window *window, const struct ack *ack)
{
	if (kind == SLOW_START_HYSTART)
		return hystart_classic(watch, window->cwnd, ack);
	if (kind == SLOW_START_HYSTART_PLUS_PLUS && window->ssthresh == SSTHRESH_INFINITE)
		return hystart_plus_plus(watch, ack);
	return false;
}

/* Returns the segments left for growth above ssthresh. */
static __always_inline __u32 law_slow_start(__u32 kind, const struct hystart *watch,
					    struct window *window, __u32 acked)
{
	__u32 room = saturating_sub(at_most(window->ssthresh, SEGMENTS_MAX), window->cwnd);

	if (kind == SLOW_START_HOLD)
		return 0;
	/* Only the first slow start is watched (RFC 9406, 4.3). */
	if (kind == SLOW_START_HYSTART_PLUS_PLUS && watch->conservative &&
	    window->ssthresh == SSTHRESH_INFINITE) {
		/* The credit of avoidance is in other units. */
		window->credit = window->credit % CONSERVATIVE_PARTS + acked;
		window->cwnd += at_most(window->credit / CONSERVATIVE_PARTS, room);
		window->credit %= CONSERVATIVE_PARTS;
		return 0;
	}
	window->cwnd += at_most(acked, room);
	return saturating_sub(acked, room);
}

static __always_inline void law_grow(const struct law *law, struct window *window, __u32 acked)
{
	__u32 cwnd = within(window->cwnd, 1, SEGMENTS_MAX);
	__u32 growth = at_most(law->growth, cwnd << FRACTION_BITS);
	__u64 segment = (__u64)cwnd << FRACTION_BITS;
	__u64 credit, segments;

	if (!growth || cwnd >= law->cap)
		return;
	credit = window->credit < segment ? window->credit : segment - 1;
	credit += (__u64)at_most(acked, cwnd) * growth;
	if (credit >= segment) {
		segments = credit / segment;
		credit -= segments * segment;
		cwnd += segments;
		window->cwnd = at_most(cwnd, at_most(law->cap, SEGMENTS_MAX));
	}
	window->credit = credit;
}

/* An acknowledgement outside of a recovery; true if the law ends slow start with it. */
static __always_inline bool law_on_ack(const struct law *law, struct hystart *watch,
				       struct window *window, const struct ack *ack)
{
	__u32 left = at_most(ack->acked, SEGMENTS_MAX);
	__u32 kind = slow_start_of(law);
	bool ends = window->cwnd < window->ssthresh && hystart_observe(kind, watch, window, ack);

	if (ends) {
		window->ssthresh = at_least(window->cwnd, SEGMENTS_MIN);
		window->credit = 0;
	}
	if (!left || !ack->has_advanced || !ack->is_filled)
		return ends;
	if (window->cwnd < window->ssthresh)
		left = law_slow_start(kind, watch, window, left);
	if (left && window->cwnd >= window->ssthresh)
		law_grow(law, window, left);
	return ends;
}

/* The window falls without a sign of congestion: ssthresh remembers it (tcp_current_ssthresh). */
static __always_inline void law_fall(struct window *window, __u32 cwnd)
{
	window->ssthresh = at_least(window->ssthresh, (window->cwnd >> 1) + (window->cwnd >> 2));
	window->cwnd = cwnd;
	window->credit = 0;
}

/* After a pause of `timeouts` timeouts. */
static __always_inline void law_restart(struct window *window, __u32 timeouts)
{
	__u32 least = within(window->cwnd, 1, INITIAL_SEGMENTS);

	law_fall(window, at_least(timeouts < 32 ? window->cwnd >> timeouts : 0, least));
}

/* For a timeout no more than `used` segments were outstanding; whether the window falls. */
static __always_inline bool law_underused(struct window *window, __u32 used)
{
	used = at_least(used, INITIAL_SEGMENTS);
	if (used >= window->cwnd)
		return false;
	law_fall(window, saturating_add(window->cwnd, used) / 2);
	return true;
}

/* The wires that an interval has reached. */
enum trip {
	TRIP_RTT = 1 << 0,
	TRIP_LOST = 1 << 1,
	TRIP_CE = 1 << 2,
};

static __always_inline __u32 law_tripped(const struct law *law, const struct interval *interval)
{
	bool is_judged = interval->samples >= TRIP_SAMPLES && interval->rtt_min_us;
	__u32 tripped = 0;

	if (law->trip_rtt_us && is_judged && interval->rtt_min_us > law->trip_rtt_us)
		tripped |= TRIP_RTT;
	if (law->trip_lost && interval->lost >= law->trip_lost)
		tripped |= TRIP_LOST;
	if (law->trip_ce && interval->ce >= law->trip_ce)
		tripped |= TRIP_CE;
	return tripped;
}

/* ssthresh after a loss or a mark. */
static __always_inline __u32 law_reduced(__u32 beta, __u32 cwnd)
{
	__u32 kept = at_most(cwnd, SEGMENTS_MAX);

	if (beta)
		kept = kept * beta >> FRACTION_BITS;
	return at_least(kept, SEGMENTS_MIN);
}

/* The window of a decision; see Terms::decided. */
static __always_inline __u32 law_decided(const struct law *law, __u32 cwnd, __u32 known,
					 __u32 wanted)
{
	__s64 moved = (__s64)cwnd + wanted - known;

	if (!moves_window(law))
		return within(wanted, SEGMENTS_MIN, SEGMENTS_MAX);
	if (wanted == known)
		return cwnd;
	if (moved < (__s64)SEGMENTS_MIN)
		return SEGMENTS_MIN;
	return moved > (__s64)SEGMENTS_MAX ? SEGMENTS_MAX : moved;
}

/* Proportional rate reduction (RFC 9937), as tcp_cwnd_reduction has it. */
struct recovery {
	__u32 ssthresh;
	__u32 prior_cwnd;
	__u32 delivered;
	__u32 sent;
};

static __always_inline __u32 recovery_window(const struct recovery *recovery, __u32 in_flight,
					     __u32 acked, bool has_advanced, bool has_lost)
{
	__u32 allowed;

	if (in_flight > recovery->ssthresh) {
		__u32 prior = at_least(recovery->prior_cwnd, 1);
		__u64 target = (__u64)recovery->delivered * recovery->ssthresh;

		target = target / prior + (target % prior != 0);
		target = target > recovery->sent ? target - recovery->sent : 0;
		allowed = target < SEGMENTS_MAX ? target : SEGMENTS_MAX;
	} else {
		allowed = at_least(saturating_sub(recovery->delivered, recovery->sent), acked);
		if (has_advanced && !has_lost)
			allowed = saturating_add(allowed, 1);
		allowed = at_most(allowed, recovery->ssthresh - in_flight);
	}
	if (!recovery->sent)
		allowed = at_least(allowed, 1);
	return at_most(saturating_add(in_flight, allowed), SEGMENTS_MAX);
}

#endif
