// SPDX-License-Identifier: GPL-2.0
/*
 * The congestion control of connections whose algorithm runs in user space. It measures, writes a
 * record a round or at once where something cannot wait, takes decisions from the connection's slot,
 * and executes their law acknowledgement by acknowledgement (tcp_law.h). It decides nothing else: an
 * agent that is late, stopped or dead leaves Reno or Cubic in charge within max(4 RTT, 100 ms).
 *
 * With cong_control the kernel neither reduces the window in a recovery nor lowers it where it is not
 * used nor sets the pacing rate, on which the size of segments handed to the device depends: all that
 * is here. Undo is the kernel's.
 *
 * Nothing that user space writes is trusted: numbers are clamped where they are read. Nor is it
 * certain that every call comes (make_up).
 */
#include "tcp_record.h"

/* Set by the loader: snd_cwnd_stamp may be written, as from Linux 6.10 on. Without it the window of a
 * connection that does not use it stays as it is. */
const volatile bool has_stamp = true;

/* Least pacing rate, bytes a second: 1 kbit/s. */
#define PACING_MIN 125
/* A fallen-back connection reports no more often, microseconds. */
#define FALLBACK_REPORT_US 10000
/* Least time from a record that found the ring full to the next try, microseconds. */
#define RETRY_US 1000
/* sysctl_tcp_pacing_ss_ratio, sysctl_tcp_pacing_ca_ratio: the kernel's defaults. */
#define PACING_SLOW_START_PERCENT 200
#define PACING_AVOIDANCE_PERCENT 120
/* Tries to take a slot or to give it back. */
#define TRIES_MAX 4
#define ENOENT 2

/* The window is held by somebody who has an ssthresh: PRR brings it there in a recovery. */
static __always_inline bool has_ssthresh(const struct flow *flow)
{
	return flow->mode == MODE_FALLBACK || flow->law.beta;
}

/* tcp_update_pacing_rate: not only for pacing, the size of what is handed to the device depends on it. */
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

/* Ends the pacing that a decision began, not that of the socket (SO_MAX_PACING_RATE). */
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

/* What max(4 RTT, patience_us) leaves for a record to come and to be answered: the acknowledgement that
 * finds out that it was not comes up to a round trip later, and half of one is for RTTs that grow. At
 * least 5/8 of patience_us. */
static __always_inline __u32 answer_time(__u32 round_trip)
{
	return at_least(round_trip * 4, settings.patience_us) - round_trip * 3 / 2;
}

/* Shortest time between two reports. */
static __always_inline __u32 period_of(const struct flow *flow)
{
	return flow->mode == MODE_FALLBACK ? FALLBACK_REPORT_US : flow->law.report_us;
}

/* How long a record waits for its answer, so that a connection falls back within max(4 RTT,
 * patience_us) of its agent's end: the first record that stays unanswered comes up to a round trip or
 * the time between two reports later. */
static __always_inline __u32 patience(const struct flow *flow, struct tcp_sock *tp)
{
	/* srtt_us is in 1/8. */
	__u32 round_trip = tp->srtt_us >> 3;

	return answer_time(round_trip) - at_least(round_trip, period_of(flow));
}

/* Nobody has answered for too long. */
static __always_inline bool is_alone(const struct flow *flow, struct tcp_sock *tp)
{
	return flow->mode != MODE_FALLBACK && flow->answered != (__u16)flow->seq &&
	       now_of(tp) - flow->waiting_us > patience(flow, tp);
}

static __always_inline void fall_back(struct sock *sk, struct flow *flow)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct curve curve = { .kind = settings.fallback, .min_rtt_us = tp->rtt_min.s[0].v };

	flow->curve = curve;
	/* The rate of a decision goes with it. */
	end_pacing(sk, flow);
	set_mode(flow, MODE_FALLBACK);
	happened(flow, EVENT_FALLBACK);
	COUNT(fallbacks);
}

/* Begins a law: of a decision or the first. What watches slow start goes on where it was. */
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
	/* Half of what is left is for the answer. */
	report_us_max = at_most(answer_time(tp->srtt_us >> 3), settings.patience_us) / 2;
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

/* Whether the record that a decision answers is one of this connection and not too old. */
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

/* Sets what a decision says of window, threshold and pacing. */
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
	if (cwnd == tp->snd_cwnd)
		return;
	tp->snd_cwnd = cwnd;
	if (moves_window(&flow->law))
		flow->barrier = flow->seq;
}

static __always_inline void take_decision(struct sock *sk, struct flow *flow)
{
	struct tcp_sock *tp = tcp_sk(sk);
	__u32 index = flow->slot - 1;
	struct slot *slot, decision;
	struct law law;

	if (!flow->slot)
		return;
	slot = bpf_map_lookup_elem(&slots, &index);
	if (!slot || *(volatile __u32 *)&slot->count == flow->slot_count)
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
	law.growth = decision.growth;
	law.cap = decision.cap;
	law.beta = decision.beta;
	law.flags = decision.flags;
	law.trip_lost = decision.trip_lost;
	law.trip_ce = decision.trip_ce;
	law.trip_rtt_us = decision.trip_rtt_us;
	law.report_us = decision.report_us;
	set_law(flow, tp, &law);
	if (flow->mode == MODE_FALLBACK) {
		flow->events |= EVENT_RESUMED;
		COUNT(resumed);
	}
	if (flow->mode != MODE_AGENT)
		set_mode(flow, MODE_AGENT);
	obey(sk, flow, &decision);
}

/* The kernel's law: standard slow start, then Reno or Cubic. */
static __always_inline void grow_unled(struct flow *flow, struct tcp_sock *tp, __u32 acked)
{
	__u32 mss = tp->mss_cache, left = acked, segments;

	if (tp->snd_cwnd < tp->snd_ssthresh) {
		__u32 room = at_most(tp->snd_ssthresh, SEGMENTS_MAX);

		room = saturating_sub(room, tp->snd_cwnd);
		tp->snd_cwnd += at_most(acked, room);
		left = saturating_sub(acked, room);
	}
	if (!left || tp->snd_cwnd < tp->snd_ssthresh || !mss)
		return;
	curve_follow(&flow->curve, tp->snd_cwnd, mss);
	curve_grow(&flow->curve, at_most(left, SEGMENTS_MAX) * (__u64)mss, tp->tcp_mstamp, mss);
	segments = flow->curve.cwnd / mss;
	if (segments > tp->snd_cwnd)
		tp->snd_cwnd = at_most(segments, SEGMENTS_MAX);
}

static __always_inline struct window window_of(struct tcp_sock *tp)
{
	struct window window = {
		.cwnd = tp->snd_cwnd,
		.ssthresh = tp->snd_ssthresh,
		.credit = tp->snd_cwnd_cnt,
	};

	return window;
}

static __always_inline void set_window(struct tcp_sock *tp, const struct window *window)
{
	tp->snd_cwnd = window->cwnd;
	tp->snd_ssthresh = window->ssthresh;
	tp->snd_cwnd_cnt = window->credit;
	if (has_stamp)
		tp->snd_cwnd_stamp = bpf_jiffies64();
}

static __always_inline bool lowers_unused(struct sock *sk)
{
	return sk->__sk_common.skc_net.net->ipv4.sysctl_tcp_slow_start_after_idle;
}

/* A writer waits for the send buffer: what there is to send is more than what is out. */
static __always_inline bool waits_for_buffer(struct sock *sk)
{
	struct socket *socket = sk->sk_socket;

	return !socket || socket->flags & SOCK_NOSPACE;
}

/* tcp_cwnd_application_limited, which the kernel leaves to who has cong_control: a timeout after the
 * window was last filled or lowered. The kernel asks where it sends, and this at the
 * acknowledgement of what it sent. */
static __always_inline void validate(struct sock *sk, struct flow *flow, __u8 state)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct window window;
	__u32 now;

	if (!has_stamp || flow->bits & FLOW_UNDERUSED)
		return;
	flow->used = at_most(at_least(flow->used, tp->max_packets_out), 0xffff);
	now = bpf_jiffies64();
	if ((__s32)(now - tp->snd_cwnd_stamp) < (__s32)tp->inet_conn.icsk_rto || !lowers_unused(sk))
		return;
	tp->snd_cwnd_stamp = now;
	if (state != TCP_CA_OPEN || waits_for_buffer(sk) || flow->used == 0xffff) {
		flow->used = 0;
		return;
	}
	if (has_ssthresh(flow)) {
		window = window_of(tp);
		if (!law_underused(&window, flow->used)) {
			flow->used = 0;
			return;
		}
		set_window(tp, &window);
		happened(flow, 0);
	}
	flow->bits |= FLOW_UNDERUSED;
}

static __always_inline void grow(struct flow *flow, struct tcp_sock *tp, const struct ack *ack)
{
	struct window window = window_of(tp);

	if (law_on_ack(&flow->law, &flow->hystart, &window, ack)) {
		tp->snd_ssthresh = window.ssthresh;
		happened(flow, EVENT_SLOW_START_END);
	}
	if (window.cwnd != tp->snd_cwnd)
		tp->snd_cwnd = window.cwnd;
	tp->snd_cwnd_cnt = window.credit;
}

static __always_inline void reduce(struct flow *flow, struct tcp_sock *tp,
				   const struct rate_sample *rs, bool has_advanced)
{
	struct recovery recovery;

	if (!rs->acked_sacked || !has_ssthresh(flow))
		return;
	/* ssthresh was asked for after this acknowledgement's segments had been counted. */
	if (tp->delivered == flow->recovery_from)
		flow->recovery_from -= rs->acked_sacked;
	recovery = (struct recovery){
		.ssthresh = tp->snd_ssthresh,
		.prior_cwnd = tp->prior_cwnd,
		.delivered = tp->delivered - flow->recovery_from,
		.sent = tp->prr_out,
	};

	tp->snd_cwnd = at_least(recovery_window(&recovery, packets_in_flight(tp), rs->acked_sacked,
						has_advanced, rs->losses > 0), 1);
}

/* Trips once; a decision sets the wires again. */
static __always_inline void watch_wires(struct flow *flow, struct tcp_sock *tp)
{
	struct law *law = &flow->law;
	struct interval interval = {
		.samples = flow->samples,
		.rtt_min_us = flow->rtt_min_us,
		.lost = (__u16)(tp->lost - flow->lost),
		.ce = (__u16)(tp->delivered_ce - flow->delivered_ce),
	};
	__u32 tripped;

	if (!(law->trip_rtt_us | law->trip_lost | law->trip_ce))
		return;
	tripped = law_tripped(law, &interval);
	if (tripped & TRIP_RTT) {
		law->trip_rtt_us = 0;
		flow->events |= EVENT_TRIP_RTT;
	}
	if (tripped & TRIP_LOST) {
		law->trip_lost = 0;
		flow->events |= EVENT_TRIP_LOSS;
	}
	if (tripped & TRIP_CE) {
		law->trip_ce = 0;
		flow->events |= EVENT_TRIP_CE;
	}
}

/* Why a record is due with this acknowledgement; 0: none is. */
static __always_inline __u16 due(const struct flow *flow, struct tcp_sock *tp, bool is_round_over)
{
	bool is_per_round = flow->mode == MODE_FALLBACK || flow->law.flags & LAW_PER_ROUND;
	__u32 since = now_of(tp) - flow->reported_us;

	if (flow->events & EVENT_UNTOLD && since < RETRY_US)
		return 0;
	if (flow->events & ~EVENT_UNTOLD)
		return flow->events & ~EVENT_UNTOLD;
	if (since < period_of(flow))
		return 0;
	if (!is_per_round)
		return EVENT_TIMER;
	return is_round_over ? EVENT_ROUND : 0;
}

/* A loss, a mark or a timeout at such a window: the new threshold. */
static __always_inline __u32 begin_reduction(struct flow *flow, struct tcp_sock *tp, __u32 cwnd)
{
	__u32 mss = at_least(tp->mss_cache, 1);

	flow->recovery_from = tp->delivered;
	flow->bits &= ~FLOW_UNDONE;
	if (flow->mode != MODE_FALLBACK) {
		tp->snd_cwnd_cnt = 0;
		return law_reduced(flow->law.beta, cwnd);
	}
	curve_follow(&flow->curve, cwnd, mss);
	return curve_on_loss(&flow->curve, mss) / mss;
}

/* Linux 6.18 has been seen to leave out all calls of programs for some milliseconds, in softirqs that
 * had interrupted process 1. What it takes for the answer of ssthresh() then is what stood on its stack:
 * hundreds of millions of segments. */
static __always_inline void make_up(struct flow *flow, struct tcp_sock *tp)
{
	bool has_lost, is_marked;

	if (is_threshold(tp->snd_ssthresh))
		return;
	tp->snd_ssthresh = begin_reduction(flow, tp, at_most(tp->prior_cwnd, SEGMENTS_MAX));
	if (tp->snd_cwnd > SEGMENTS_MAX)
		tp->snd_cwnd = tp->snd_ssthresh;
	has_lost = (__u16)tp->lost != flow->lost;
	is_marked = !has_lost && (__u16)tp->delivered_ce != flow->delivered_ce;
	happened(flow, is_marked ? EVENT_ECN : EVENT_LOSS);
	COUNT(made_up);
}

static __always_inline void fold(struct flow *flow, const struct rate_sample *rs, __u32 rtt)
{
	if (rtt) {
		flow->rtt_min_us = lesser_rtt(flow->rtt_min_us, rtt);
		if (flow->samples < 0xff)
			flow->samples++;
		if (flow->mode == MODE_FALLBACK)
			flow->curve.min_rtt_us = lesser_rtt(flow->curve.min_rtt_us, rtt);
	}
	if (flow->acks < 0xffff)
		flow->acks++;
	if (rs->is_app_limited)
		flow->bits |= FLOW_APP_LIMITED;
}

static __always_inline void on_ack(struct sock *sk, const struct rate_sample *rs)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);
	__u32 rtt = rs->rtt_us > 0 ? rs->rtt_us : 0;
	bool has_advanced = tp->snd_una != flow->una, is_filled = is_window_filled(tp);
	__u8 state = ca_state(tp);
	__u16 reason;

	/* The answer to a SYN comes before init. */
	if (!flow->generation) {
		follow_pacing(sk, tp);
		return;
	}
	flow->una = tp->snd_una;
	make_up(flow, tp);
	take_decision(sk, flow);
	fold(flow, rs, rtt);
	if (is_alone(flow, tp))
		fall_back(sk, flow);

	if (!is_filled) {
		validate(sk, flow, state);
	} else {
		flow->bits |= FLOW_FILLED;
		if (!(flow->bits & FLOW_UNDERUSED))
			flow->used = 0;
	}
	if (state == TCP_CA_CWR || state == TCP_CA_RECOVERY) {
		reduce(flow, tp, rs, has_advanced);
	} else if (flow->mode == MODE_FALLBACK) {
		if (rs->acked_sacked && has_advanced && is_filled)
			grow_unled(flow, tp, rs->acked_sacked);
	} else {
		struct ack ack = {
			.acked = rs->acked_sacked,
			.una = tp->snd_una,
			.nxt = tp->snd_nxt,
			.rtt_us = rtt,
			.now_us = now_of(tp),
			.has_advanced = has_advanced,
			.is_filled = is_filled,
		};

		if (slow_start_of(&flow->law) == SLOW_START_HYSTART &&
		    tp->snd_cwnd < tp->snd_ssthresh) {
			ack.ack_delay_us = hystart_ack_delay(sk->sk_gso_max_size, sk->sk_pacing_rate);
			ack.is_paced = sk->sk_pacing_status != SK_PACING_NONE;
		}
		grow(flow, tp, &ack);
	}
	if (!(flow->bits & FLOW_PACED))
		follow_pacing(sk, tp);
	if (!flow->slot)
		return;
	if (flow->mode != MODE_FALLBACK)
		watch_wires(flow, tp);
	reason = due(flow, tp, (__s32)(tp->snd_una - flow->round_end) > 0);
	if (reason)
		report(sk, flow, rs, reason, state);
}

SEC("struct_ops")
int cong_control_4(__u64 *ctx)
{
	on_ack((struct sock *)ctx[0], (const struct rate_sample *)ctx[3]);
	return 0;
}

/* Before Linux 6.10. */
SEC("struct_ops")
int cong_control_2(__u64 *ctx)
{
	on_ack((struct sock *)ctx[0], (const struct rate_sample *)ctx[1]);
	return 0;
}

/* False: there is none. A queue may refuse for a moment. */
static __always_inline bool take_slot(__u32 *index)
{
#pragma unroll
	for (int pop = 0; pop < TRIES_MAX; pop++) {
		long status = bpf_map_pop_elem(&free_slots, index);

		if (!status || status == -ENOENT)
			return !status;
	}
	return false;
}

SEC("struct_ops")
int datapath_init(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);
	struct law first = settings.first;
	struct slot *slot;
	__u32 index;

	/* A SYN that was lost has been answered here already. */
	*flow = (struct flow){};
	/* 0 is none. */
	flow->generation = COUNT(opened);
	if (!flow->generation)
		flow->generation = 1;
	flow->una = tp->snd_una;
	flow->round_end = tp->snd_nxt;
	flow->reported_us = now_of(tp);
	flow->lost = tp->lost;
	flow->delivered_ce = tp->delivered_ce;
	tp->snd_cwnd_cnt = 0;
	if (!take_slot(&index)) {
		COUNT(refused);
		fall_back(sk, flow);
		return 0;
	}
	flow->slot = index + 1;
	/* What stands there was decided for the connection before. */
	slot = bpf_map_lookup_elem(&slots, &index);
	if (slot)
		flow->slot_count = slot->count;
	set_mode(flow, MODE_START);
	flow->hystart = hystart_from(tp->snd_nxt, now_of(tp));
	set_law(flow, tp, &first);
	announce(sk, flow);
	return 0;
}

/* A queue may refuse for a moment. What it does not take at all the loader gives back. */
static __always_inline void give_back(__u32 index)
{
	__u64 *shown;

#pragma unroll
	for (int push = 0; push < TRIES_MAX; push++)
		if (!bpf_map_push_elem(&free_slots, &index, 0))
			return;
	shown = bpf_map_lookup_elem(&modes, &index);
	if (shown)
		*(volatile __u64 *)shown = MODE_STRANDED;
	COUNT(stranded);
}

SEC("struct_ops")
int datapath_release(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct flow *flow = flow_of(sk);
	__u32 index = flow->slot - 1;

	if (!flow->generation)
		return 0;
	COUNT(closed);
	end_pacing(sk, flow);
	if (!flow->slot)
		return 0;
	report(sk, flow, 0, EVENT_CLOSE, ca_state(tcp_sk(sk)));
	set_mode(flow, MODE_NONE);
	flow->slot = 0;
	give_back(index);
	return 0;
}

SEC("struct_ops")
__u32 datapath_ssthresh(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];

	if (settings.left_out)
		return settings.left_out;
	return begin_reduction(flow_of(sk), tcp_sk(sk), tcp_sk(sk)->snd_cwnd);
}

SEC("struct_ops")
int datapath_set_state(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);
	__u8 next = ctx[1], last = ca_state(tp);
	bool is_episode;

	if (settings.left_out && next >= TCP_CA_CWR)
		return 0;
	make_up(flow, tp);
	if (next == TCP_CA_LOSS) {
		happened(flow, 0);
		/* No acknowledgement may take an answer or find out that there is none for long. Its
		 * window does not know of the timeout. */
		take_decision(sk, flow);
		if (is_alone(flow, tp))
			fall_back(sk, flow);
		if (flow->mode == MODE_FALLBACK)
			curve_on_rto(&flow->curve);
		else
			flow->hystart = hystart_from(tp->snd_nxt, now_of(tp));
		/* No acknowledgement will come soon that could tell it. */
		report(sk, flow, 0, EVENT_RTO, TCP_CA_LOSS);
	} else if (next == TCP_CA_RECOVERY && last < TCP_CA_RECOVERY) {
		/* A loss that was being answered already is told once. */
		happened(flow, flow->bits & FLOW_CWR_LOSS ? 0 : EVENT_LOSS);
	} else if (next == TCP_CA_CWR && last < TCP_CA_CWR) {
		/* Without a mark a tail loss probe has repaired a loss, or the device dropped. */
		bool is_marked = (__u16)tp->delivered_ce != flow->delivered_ce;

		flow->bits |= is_marked ? 0 : FLOW_CWR_LOSS;
		happened(flow, is_marked ? EVENT_ECN : EVENT_LOSS);
	} else if (next <= TCP_CA_DISORDER && last >= TCP_CA_CWR) {
		if (last != TCP_CA_LOSS && has_ssthresh(flow) && !(flow->bits & FLOW_UNDONE) &&
		    tp->snd_ssthresh < SSTHRESH_INFINITE)
			tp->snd_cwnd = tp->snd_ssthresh;
		is_episode = last >= TCP_CA_RECOVERY || flow->bits & FLOW_CWR_LOSS;
		happened(flow, is_episode ? EVENT_RECOVERY_END : 0);
		flow->bits &= ~(FLOW_UNDONE | FLOW_CWR_LOSS);
	}
	return 0;
}

SEC("struct_ops")
__u32 datapath_undo_cwnd(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);

	flow->bits |= FLOW_UNDONE;
	tp->snd_cwnd_cnt = 0;
	happened(flow, EVENT_SPURIOUS);
	return at_least(tp->snd_cwnd, tp->prior_cwnd);
}

/* tcp_cwnd_restart, which the kernel leaves to who has cong_control. */
static __always_inline void restart(struct flow *flow, struct tcp_sock *tp, __u32 timeouts)
{
	struct window window = window_of(tp);

	law_restart(&window, timeouts);
	set_window(tp, &window);
	if (!(flow->bits & FLOW_UNDERUSED))
		flow->used = 0;
	if (flow->mode == MODE_FALLBACK)
		flow->curve.began_us = 0;
}

SEC("struct_ops")
int datapath_cwnd_event(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);
	__u32 rto = at_least(tp->inet_conn.icsk_rto, 1), idle;

	/* The repair after a timeout is no pause: segments still count as sent. */
	if ((__u32)ctx[1] != CA_EVENT_TX_START || !tp->lsndtime || tp->packets_out)
		return 0;
	idle = (__u32)bpf_jiffies64() - tp->lsndtime;
	if (idle > 0x7fffffff || idle <= rto)
		return 0;
	flow->idle_timeouts = at_most(idle / rto, 255);
	happened(flow, EVENT_IDLE);
	if (has_ssthresh(flow) && lowers_unused(sk))
		restart(flow, tp, idle / rto);
	return 0;
}

SEC(".struct_ops.link")
struct tcp_congestion_ops datapath = {
	.name = "forebay",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)datapath_init,
	.release = (void *)datapath_release,
	.ssthresh = (void *)datapath_ssthresh,
	.set_state = (void *)datapath_set_state,
	.cwnd_event = (void *)datapath_cwnd_event,
	.undo_cwnd = (void *)datapath_undo_cwnd,
	.cong_control = (void *)cong_control_4,
};

/* Before Linux 6.10. */
SEC(".struct_ops.link")
struct tcp_congestion_ops datapath_2 = {
	.name = "forebay",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)datapath_init,
	.release = (void *)datapath_release,
	.ssthresh = (void *)datapath_ssthresh,
	.set_state = (void *)datapath_set_state,
	.cwnd_event = (void *)datapath_cwnd_event,
	.undo_cwnd = (void *)datapath_undo_cwnd,
	.cong_control = (void *)cong_control_2,
};

char LICENSE[] SEC("license") = "GPL";
