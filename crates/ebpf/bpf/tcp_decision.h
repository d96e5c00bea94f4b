/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Decisions: taken from a connection's slot, executed where they set window, threshold and pacing. Also
 * the fallback of a connection that gets no decisions any more.
 */
#ifndef FOREBAY_TCP_DECISION_H
#define FOREBAY_TCP_DECISION_H

#include "tcp_maps.h"

/* Least pacing rate in bytes per second: 1 kbit/s. */
#define PACING_MIN 125
/* A fallen-back connection reports no more often, microseconds. */
#define FALLBACK_REPORT_US 10000
/* sysctl_tcp_pacing_ss_ratio, sysctl_tcp_pacing_ca_ratio: the kernel's defaults. */
#define PACING_SLOW_START_PERCENT 200
#define PACING_AVOIDANCE_PERCENT 120

/* tcp_update_pacing_rate: needed without pacing, too: the size of the buffers handed to the device
 * depends on it. */
static __always_inline void follow_pacing(struct sock *sk, struct tcp_sock *tp)
{
	__u64 percent = tp->snd_cwnd < tp->snd_ssthresh / 2 ? PACING_SLOW_START_PERCENT :
							      PACING_AVOIDANCE_PERCENT;
	__u64 rate = (__u64)tp->mss_cache * (1000000 / 100 << 3) * percent;

	rate *= at_least(tp->snd_cwnd, tp->packets_out);
	if (tp->srtt_us)
		rate /= tp->srtt_us;
	sk->sk_pacing_rate = rate < sk->sk_max_pacing_rate ? rate : sk->sk_max_pacing_rate;
}

/* Ends the pacing that a decision began, not pacing that the socket asked for (SO_MAX_PACING_RATE). */
static __always_inline void end_pacing(struct sock *sk, struct flow *flow)
{
	if (flow->bits & FLOW_PACER && sk->sk_pacing_status == SK_PACING_NEEDED &&
	    sk->sk_max_pacing_rate == PACING_UNLIMITED)
		sk->sk_pacing_status = SK_PACING_NONE;
	flow->bits &= ~(FLOW_PACED | FLOW_PACER);
}

static __always_inline void set_pacing(struct sock *sk, struct flow *flow, __u64 rate)
{
	if (!rate) {
		end_pacing(sk, flow);
		return;
	}
	if (rate < PACING_MIN)
		rate = PACING_MIN;
	sk->sk_pacing_rate = rate < sk->sk_max_pacing_rate ? rate : sk->sk_max_pacing_rate;
	if (sk->sk_pacing_status == SK_PACING_NONE) {
		sk->sk_pacing_status = SK_PACING_NEEDED;
		flow->bits |= FLOW_PACER;
	}
	flow->bits |= FLOW_PACED;
}

/* Time that max(4 RTT, PATIENCE_US) leaves for a record to come and to be answered. The acknowledgement
 * that notices a missing answer comes up to a round trip later, and half a round trip is for RTTs that
 * grow. At least 5/8 of PATIENCE_US. */
static __always_inline __u32 answer_time(__u32 round_trip)
{
	return at_least(round_trip * 4, PATIENCE_US) - round_trip * 3 / 2;
}

/* Shortest time between two reports. */
static __always_inline __u32 period_of(const struct flow *flow)
{
	return flow->mode == MODE_FALLBACK ? FALLBACK_REPORT_US : flow->law.report_us;
}

/* The longest time to a record with reports per round while holes are being repaired. */
static __always_inline __u32 repair_round(struct tcp_sock *tp)
{
	return (tp->srtt_us >> 3) + (tp->srtt_us >> 5);
}

/* How long a record waits for its answer, so that a connection falls back within max(4 RTT, PATIENCE_US)
 * of its agent's end. The first record that stays unanswered comes up to a round trip later, or the time
 * between two reports. In a repair it may come a quarter of a round trip later still. */
static __always_inline __u32 patience(const struct flow *flow, struct tcp_sock *tp)
{
	/* srtt_us is in 1/8. */
	__u32 round_trip = tp->srtt_us >> 3;

	return answer_time(round_trip) - at_least(round_trip, period_of(flow));
}

/* Whether an answer has been missing for long enough that is_alone() may hold. patience() is at least an
 * eighth of PATIENCE_US, which it is at a round trip of a quarter and half of it between two reports. */
static __always_inline bool may_be_alone(const struct flow *flow, struct tcp_sock *tp)
{
	return flow->answered != (__u16)flow->seq && flow->mode != MODE_FALLBACK &&
	       now_of(tp) - flow->waiting_us > PATIENCE_US / 8;
}

/* Whether an answer has been missing for too long. */
static __always_inline bool is_alone(const struct flow *flow, struct tcp_sock *tp)
{
	return flow->mode != MODE_FALLBACK && flow->answered != (__u16)flow->seq &&
	       now_of(tp) - flow->waiting_us > patience(flow, tp);
}

static __always_inline void fall_back(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);
	struct curve curve = { .kind = settings.fallback, .min_rtt_us = tp->rtt_min.s[0].v };

	flow->curve = curve;
	/* The rate of a decision goes with it. */
	end_pacing(sk, flow);
	set_mode(flow, MODE_FALLBACK);
	happened(flow, EVENT_FALLBACK);
	COUNT(fallbacks);
}

static __noinline void fall_back_if_alone(struct sock *sk)
{
	if (is_alone(flow_of(sk), tcp_sk(sk)))
		fall_back(sk);
}

/* Begins a law, from a decision or the first. The state that watches slow start stays. */
static __always_inline void set_law(struct flow *flow, struct tcp_sock *tp, const struct law *law)
{
	__u32 report_us_max;

	if (flow->mode == MODE_FALLBACK) {
		flow->hystart = hystart_from(tp->snd_nxt, now_of(tp));
		tp->snd_cwnd_cnt = 0;
	}
	flow->law.growth = at_most(law->growth, SEGMENTS_MAX << FRACTION_BITS);
	flow->law.cap = within(law->cap, SEGMENTS_MIN, SEGMENTS_MAX);
	flow->law.beta = at_most(law->beta, 1 << FRACTION_BITS);
	flow->law.flags = law->flags & LAW_FLAGS;
	flow->law.trip_lost = law->trip_lost;
	flow->law.trip_ce = law->trip_ce;
	flow->law.trip_rtt_us = law->trip_rtt_us;
	/* Half of the time that is left is for the answer. */
	report_us_max = at_most(answer_time(tp->srtt_us >> 3), PATIENCE_US) / 2;
	flow->law.report_us = at_most(law->report_us, report_us_max);
}

/* Reads a slot; false if it was being written. */
static __always_inline bool read_slot(const struct slot *slot, struct slot *copy)
{
	const volatile __u64 *from = (const volatile __u64 *)slot;
	__u64 *to = (__u64 *)copy;
	__u32 sum = 0;

#pragma unroll
	for (int word = 0; word < SLOT_LEN / 8; word++) {
		to[word] = from[word];
		sum += (__u32)to[word] + (__u32)(to[word] >> 32);
	}
	sum -= copy->count + copy->check;
	return !(copy->count & 1) && sum == copy->check &&
	       *(const volatile __u32 *)&slot->count == copy->count;
}

/* Whether a decision answers a record of this connection that is not too old. */
static __always_inline bool is_fresh(const struct flow *flow, struct tcp_sock *tp,
				     const struct slot *decision)
{
	__u32 age = flow->seq - decision->answered;

	if (decision->generation != flow->generation || age > 0x7fff || !decision->answered)
		return false;
	return !age || now_of(tp) - decision->answered_us <= patience(flow, tp);
}

static __always_inline void answered(struct flow *flow, const struct slot *decision)
{
	__u32 age = flow->seq - decision->answered;

	flow->answered = decision->answered;
	if (age == 1)
		flow->waiting_us = flow->reported_us;
	else if (age > 1)
		flow->waiting_us = decision->answered_us;
}

/* Sets window, threshold and pacing as a decision says. */
static __always_inline void obey(struct sock *sk, struct flow *flow, const struct slot *decision)
{
	struct tcp_sock *tp = tcp_sk(sk);
	__u8 state = ca_state(tp);
	bool is_reducing = (state == TCP_CA_CWR || state == TCP_CA_RECOVERY) && flow->law.beta;
	__u32 cwnd;

	set_pacing(sk, flow, decision->pacing_rate);
	if ((__s16)(flow->answered - flow->barrier) <= 0)
		return;
	if (decision->ssthresh)
		tp->snd_ssthresh = within(decision->ssthresh, SEGMENTS_MIN, SEGMENTS_MAX);
	if (!decision->cwnd || is_reducing)
		return;
	cwnd = law_decided(&flow->law, tp->snd_cwnd, decision->known_cwnd, decision->cwnd);
	cwnd = at_most(cwnd, cwnd_max(tp));
	if (cwnd == tp->snd_cwnd)
		return;
	tp->snd_cwnd = cwnd;
	if (moves_window(&flow->law))
		flow->barrier = flow->seq;
}

/* Whether the slot holds another decision than the last one that was looked at. */
static __always_inline bool is_told(const struct flow *flow)
{
	__u32 index = flow->slot - 1;
	struct slot *slot;

	if (!flow->slot)
		return false;
	slot = bpf_map_lookup_elem(&slots, &index);
	return slot && *(volatile __u32 *)&slot->count != flow->slot_count;
}

static __noinline void take_decision(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);
	__u32 index = flow->slot - 1;
	struct slot *slot, decision;

	slot = bpf_map_lookup_elem(&slots, &index);
	if (!slot)
		return;
	if (!read_slot(slot, &decision)) {
		/* While it is written the next acknowledgement tries again. */
		if (!(decision.count & 1) && *(volatile __u32 *)&slot->count == decision.count) {
			flow->slot_count = decision.count;
			COUNT(refused_decisions);
		}
		return;
	}
	flow->slot_count = decision.count;
	if (!is_fresh(flow, tp, &decision)) {
		COUNT(refused_decisions);
		return;
	}
	answered(flow, &decision);
	set_law(flow, tp, &decision.law);
	if (flow->mode == MODE_FALLBACK) {
		flow->events |= EVENT_RESUMED;
		COUNT(resumed);
	}
	if (flow->mode != MODE_AGENT)
		set_mode(flow, MODE_AGENT);
	obey(sk, flow, &decision);
}

#endif
