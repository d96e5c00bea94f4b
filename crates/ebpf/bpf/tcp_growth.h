/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The window between two decisions: it grows, falls where it is not used, and is reduced. With
 * cong_control the kernel leaves all of it to the program.
 */
#ifndef FOREBAY_TCP_GROWTH_H
#define FOREBAY_TCP_GROWTH_H

#include "tcp_maps.h"

/* Set by the loader: snd_cwnd_stamp may be written, as from Linux 6.10 on. Without it an unused window
 * stays unchanged. */
const volatile bool has_stamp = true;

/* The law in force has an ssthresh: PRR brings the window there in a recovery. */
static __always_inline bool has_ssthresh(const struct flow *flow)
{
	return flow->mode == MODE_FALLBACK || flow->law.beta;
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

/* A writer waits for the send buffer: it has more to send than is out. */
static __always_inline bool waits_for_buffer(struct sock *sk)
{
	struct socket *socket = sk->sk_socket;

	return !socket || socket->flags & SOCK_NOSPACE;
}

/* The fallback: standard slow start, then Reno or Cubic. */
static __noinline void grow_unled(struct sock *sk, __u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);
	__u32 mss = tp->mss_cache, left = acked, segments;

	if (tp->snd_cwnd < tp->snd_ssthresh) {
		__u32 room = at_most(tp->snd_ssthresh, cwnd_max(tp));

		room = saturating_sub(room, tp->snd_cwnd);
		tp->snd_cwnd += at_most(acked, room);
		left = saturating_sub(acked, room);
	}
	if (!left || tp->snd_cwnd < tp->snd_ssthresh || !mss)
		return;
	curve_follow(&flow->curve, tp->snd_cwnd, mss);
	curve_grow(&flow->curve, at_most(left, SEGMENTS_MAX) * (__u64)mss, tp->tcp_mstamp, mss);
	segments = flow->curve.cwnd / mss;
	segments = at_most(segments, cwnd_max(tp));
	if (segments > tp->snd_cwnd)
		tp->snd_cwnd = segments;
}

/* Grows by the law of the last decision. */
static __always_inline void grow(struct sock *sk, const struct rate_sample *rs, bool has_advanced,
			    bool is_filled)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);
	struct window window = window_of(tp);
	struct ack ack = {
		.acked = rs->acked_sacked,
		.una = tp->snd_una,
		.nxt = tp->snd_nxt,
		.rtt_us = rs->rtt_us > 0 ? rs->rtt_us : 0,
		.now_us = now_of(tp),
		.has_advanced = has_advanced,
		.is_filled = is_filled,
	};

	/* The division is for trains that may be too long. No train within half a round trip is. */
	if (slow_start_of(&flow->law) == SLOW_START_HYSTART && window.cwnd < window.ssthresh &&
	    ack.now_us - flow->hystart.mark > lesser_rtt(flow->hystart.base, ack.rtt_us) / 2) {
		ack.ack_delay_us = hystart_ack_delay(sk->sk_gso_max_size, sk->sk_pacing_rate);
		ack.is_paced = sk->sk_pacing_status != SK_PACING_NONE;
	}
	if (law_on_ack(&flow->law, &flow->hystart, &window, &ack)) {
		tp->snd_ssthresh = window.ssthresh;
		happened(flow, EVENT_SLOW_START_END);
	}
	if (window.cwnd != tp->snd_cwnd)
		tp->snd_cwnd = at_most(window.cwnd, cwnd_max(tp));
	tp->snd_cwnd_cnt = window.credit;
}

static __noinline void lower_unused(struct sock *sk, __u32 now)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);
	struct window window;

	/* Also where nothing is lowered: else every acknowledgement from now on would come here. */
	tp->snd_cwnd_stamp = now;
	if (!lowers_unused(sk) || ca_state(tp) != TCP_CA_OPEN || waits_for_buffer(sk) ||
	    flow->used == 0xffff) {
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

/* tcp_cwnd_application_limited, which the kernel leaves to a program with cong_control: acts a timeout
 * after the window was last filled or lowered. The kernel checks where it sends, this function at the
 * acknowledgement of the sent data. */
static __always_inline void validate(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);
	__u32 out = at_most(tp->max_packets_out, 0xffff), now;

	if (!has_stamp || flow->bits & FLOW_UNDERUSED)
		return;
	if (out > flow->used)
		flow->used = out;
	now = bpf_jiffies64();
	if ((__s32)(now - tp->snd_cwnd_stamp) >= (__s32)tp->inet_conn.icsk_rto)
		lower_unused(sk, now);
}

static __noinline void reduce(struct sock *sk, const struct rate_sample *rs, bool has_advanced)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);
	struct recovery recovery;

	if (!rs->acked_sacked || !has_ssthresh(flow))
		return;
	/* The kernel asked for ssthresh after it had counted this acknowledgement's segments. */
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

/* A reduction is taken back: nothing was lost. */
static __always_inline void undo(struct flow *flow, struct tcp_sock *tp)
{
	flow->bits |= FLOW_UNDONE;
	tp->snd_cwnd_cnt = 0;
	happened(flow, EVENT_SPURIOUS);
}

/* Reports a reduction for which no call came, and the events of the calls that would have followed.
 * `state` is in force or begins; set_state reports a state that begins. */
static __always_inline void tell_late(struct flow *flow, struct tcp_sock *tp, __u8 state)
{
	bool has_lost = (__u16)tp->lost != flow->lost;
	bool is_marked = !has_lost && (__u16)tp->delivered_ce != flow->delivered_ce;
	__u8 standing = ca_state(tp);

	if (standing == TCP_CA_LOSS) {
		if (flow->mode == MODE_FALLBACK)
			curve_on_rto(&flow->curve);
		else
			flow->hystart = hystart_from(tp->snd_nxt, now_of(tp));
		happened(flow, EVENT_RTO);
		return;
	}
	happened(flow, is_marked ? EVENT_ECN : EVENT_LOSS);
	if (is_marked)
		return;
	if (standing == TCP_CA_CWR)
		flow->bits |= FLOW_CWR_LOSS;
	else if (standing < TCP_CA_CWR && state < TCP_CA_CWR)
		happened(flow, EVENT_RECOVERY_END);
}

/* Called where has_limits is false: replaces threshold and window that no program gave. `state` is in
 * force or begins. */
static __noinline void make_up(struct sock *sk, __u8 state)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);

	if (!tp->prior_cwnd) {
		bound_limits(tp);
		return;
	}
	COUNT(made_up);
	if (is_threshold(tp->snd_ssthresh)) {
		tp->snd_cwnd = window_before(tp);
		undo(flow, tp);
		return;
	}
	tp->snd_ssthresh = begin_reduction(flow, tp, window_before(tp));
	lower_window(tp, state);
	tell_late(flow, tp, state);
}

/* tcp_cwnd_restart, which the kernel leaves to a program with cong_control. */
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

#endif
