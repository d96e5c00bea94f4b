// SPDX-License-Identifier: GPL-2.0
/*
 * The congestion control of connections whose algorithm runs in user space. It measures, writes a record
 * per round or at once for an event that cannot wait, takes decisions from the connection's slot, and
 * executes their law acknowledgement by acknowledgement (tcp_law.h). It decides nothing else: an agent
 * that is late, stopped or dead leaves Reno or Cubic in charge within max(4 RTT, 100 ms).
 *
 * With cong_control the kernel leaves three tasks to this program. It reduces the window in a recovery,
 * lowers a window that is not used, and sets the pacing rate, on which the size of segments handed to the
 * device depends. Undo is the kernel's.
 *
 * Nothing that user space writes is trusted: numbers are clamped where they are read. Nor is it
 * certain that every call comes (make_up).
 *
 * An acknowledgement meets a cold cache, and spends most of its time waiting for its instructions. So code
 * that few acknowledgements need stands apart, in functions that are not inlined.
 */
#include "tcp_decision.h"
#include "tcp_growth.h"
#include "tcp_slot.h"

/* Least time from a record that found no room to the next try, microseconds. */
#define RETRY_US 1000

static __always_inline bool has_wires(const struct flow *flow)
{
	const struct law *law = &flow->law;

	return flow->mode != MODE_FALLBACK &&
	       (law->trip_rtt_us || law->trip_lost || law->trip_ce);
}

/* Trips once; a decision sets the wires again. */
static __noinline void watch_wires(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);
	struct law *law = &flow->law;
	struct interval interval = {
		.samples = flow->samples,
		.rtt_min_us = flow->rtt_min_us,
		.lost = (__u16)(tp->lost - flow->lost),
		.ce = (__u16)(tp->delivered_ce - flow->delivered_ce),
	};
	__u32 tripped;

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

/* Why a record is due with this acknowledgement; 0: none is. While holes are being repaired, a round may
 * take several round trips, too long without an answer. */
static __always_inline __u16 due(const struct flow *flow, struct tcp_sock *tp, __u8 state)
{
	bool is_round_over = (__s32)(tp->snd_una - flow->round_end) > 0;
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
	if (is_round_over)
		return EVENT_ROUND;
	return state != TCP_CA_OPEN && since > repair_round(tp) ? EVENT_TIMER : 0;
}

static __always_inline void fold(struct flow *flow, const struct rate_sample *rs)
{
	long rtt = rs->rtt_us;

	if (rtt > 0) {
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

/* A connection begins: with a slot, or, where none is left, under the kernel's algorithm. */
static __noinline void begin(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);
	struct law first = settings.first;
	__u64 owner;

	/* A SYN that was lost has been answered here already. */
	*flow = (struct flow){};
	COUNT(opened);
	flow->generation = next_number();
	flow->una = tp->snd_una;
	flow->round_end = tp->snd_nxt;
	flow->reported_us = now_of(tp);
	flow->lost = tp->lost;
	flow->delivered_ce = tp->delivered_ce;
	tp->snd_cwnd_cnt = 0;
	owner = take_slot(sk);
	if (!(__u32)owner) {
		COUNT(refused);
		if (owner == BEYOND_SHARE)
			COUNT(beyond_share);
		fall_back(sk);
		return;
	}
	flow->mode = MODE_START;
	show(flow);
	flow->hystart = hystart_from(tp->snd_nxt, now_of(tp));
	set_law(flow, tp, &first);
	announce(sk);
}

/* Makes up for an init that the kernel left out, as it leaves out other calls (make_up). False: the
 * connection is not open yet, and init comes. */
static __always_inline bool begin_late(struct sock *sk)
{
	if (is_opening(sk))
		return false;
	begin(sk);
	COUNT(made_up);
	return true;
}

static __always_inline void on_ack(struct sock *sk, const struct rate_sample *rs)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);
	bool is_filled = is_window_filled(tp), has_advanced;
	__u8 state = ca_state(tp);
	__u16 reason;

	if (unlikely(!flow->generation) && !begin_late(sk)) {
		follow_pacing(sk, tp);
		return;
	}
	if (unlikely(!has_limits(tp)))
		make_up(sk, state);
	if (unlikely(is_told(flow)))
		take_decision(sk);
	if (unlikely(may_be_alone(flow, tp)))
		fall_back_if_alone(sk);
	has_advanced = tp->snd_una != flow->una;
	flow->una = tp->snd_una;
	fold(flow, rs);

	if (!is_filled) {
		validate(sk);
	} else {
		flow->bits |= FLOW_FILLED;
		if (!(flow->bits & FLOW_UNDERUSED))
			flow->used = 0;
	}
	if (unlikely(state == TCP_CA_CWR || state == TCP_CA_RECOVERY)) {
		reduce(sk, rs, has_advanced);
	} else if (flow->mode == MODE_FALLBACK) {
		if (is_filled && has_advanced && rs->acked_sacked)
			grow_unled(sk, rs->acked_sacked);
	} else if (is_filled || tp->snd_cwnd < tp->snd_ssthresh) {
		/* Slow start may end where the window is not filled. */
		grow(sk, rs, has_advanced, is_filled);
	}
	if (!(flow->bits & FLOW_PACED))
		follow_pacing(sk, tp);
	if (unlikely(!flow->slot)) {
		if (may_ask_again(flow, tp))
			ask_again(sk);
		return;
	}
	if (unlikely(has_wires(flow)))
		watch_wires(sk);
	reason = due(flow, tp, state);
	if (reason)
		report(sk, rs, reason, state);
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

SEC("struct_ops")
int datapath_init(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];

	if (!settings.init_left_out)
		begin(sk);
	return 0;
}

SEC("struct_ops")
int datapath_release(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct flow *flow = flow_of(sk);

	if (!flow->generation)
		return 0;
	COUNT(closed);
	end_pacing(sk, flow);
	if (has_slot(flow))
		report(sk, 0, EVENT_CLOSE, ca_state(tcp_sk(sk)));
	if (show_next(flow, MODE_NONE))
		give_back(flow->slot - 1);
	flow->slot = 0;
	return 0;
}

SEC("struct_ops")
__u32 datapath_ssthresh(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];

	if (settings.left_out)
		return settings.left_out;
	return begin_reduction(flow_of(sk), tcp_sk(sk), window_now(tcp_sk(sk)));
}

SEC("struct_ops")
int datapath_set_state(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);
	__u8 next = ctx[1], last = ca_state(tp);
	bool is_episode;

	if (is_left_out(settings.left_out, next))
		return 0;
	/* Nothing is to be reported of a SYN that was lost, nor of a connection that is at its end. */
	if (!flow->generation && (next != TCP_CA_LOSS || !begin_late(sk)))
		return 0;
	if (!has_limits(tp))
		make_up(sk, next);
	if (next == TCP_CA_LOSS) {
		happened(flow, 0);
		/* The next acknowledgement, which would take a waiting answer, may be late. The window of
		 * that answer does not include the timeout. */
		if (is_told(flow))
			take_decision(sk);
		fall_back_if_alone(sk);
		if (flow->mode == MODE_FALLBACK)
			curve_on_rto(&flow->curve);
		else
			flow->hystart = hystart_from(tp->snd_nxt, now_of(tp));
		/* No acknowledgement will come soon that could report it. */
		report(sk, 0, EVENT_RTO, TCP_CA_LOSS);
	} else if (next == TCP_CA_RECOVERY && last < TCP_CA_RECOVERY) {
		/* A loss that is already being answered is reported once. */
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

	if (settings.left_out)
		return settings.left_out;
	/* The kernel restores a threshold that is above the present one. */
	if (!has_limits(tp))
		make_up(sk, ca_state(tp));
	undo(flow_of(sk), tp);
	return at_least(tp->snd_cwnd, tp->prior_cwnd);
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
	if (!has_limits(tp))
		make_up(sk, ca_state(tp));
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
