/* SPDX-License-Identifier: GPL-2.0 */
/* Writing the records of a connection. */
#ifndef FOREBAY_TCP_RECORD_H
#define FOREBAY_TCP_RECORD_H

#include "tcp_maps.h"

/* How far the last event may lie behind, in reports. */
#define BARRIER_LAG_MAX 0x4000
/* Why a record is written, and nothing that happened. */
#define EVENTS_OF_REPORT (EVENT_ROUND | EVENT_TIMER)
/* Among the events of a connection, never of a record: the last record found the ring full. */
#define EVENT_UNTOLD EVENT_OPEN

static __always_inline void copy_address(__u8 *to, const __be32 *from, int words)
{
#pragma unroll
	for (int word = 0; word < 4; word++)
		((__u32 *)to)[word] = word < words ? from[word] : 0;
}

static __always_inline void fill_opened(struct opened *opened, struct sock *sk)
{
	struct sock_common *common = &sk->__sk_common;

	opened->family = common->skc_family;
	if (common->skc_family == AF_INET) {
		__be32 address = common->skc_rcv_saddr;

		copy_address(opened->local, &address, 1);
		address = common->skc_daddr;
		copy_address(opened->remote, &address, 1);
	} else {
#pragma unroll
		for (int word = 0; word < 4; word++) {
			((__u32 *)opened->local)[word] =
				common->skc_v6_rcv_saddr.in6_u.u6_addr32[word];
			((__u32 *)opened->remote)[word] =
				common->skc_v6_daddr.in6_u.u6_addr32[word];
		}
	}
	opened->local_port = common->skc_num;
	opened->remote_port = common->skc_dport >> 8 | common->skc_dport << 8;
	opened->netns = common->skc_net.net->ns.inum;
	opened->unused = 0;
}

static __always_inline void fill_head(struct report *report, struct sock *sk, struct flow *flow,
				      __u8 state)
{
	struct tcp_sock *tp = tcp_sk(sk);

	report->slot = flow->slot - 1;
	report->generation = flow->generation;
	report->seq = flow->seq;
	report->ca_state = state;
	report->mode = flow->mode;
	report->at_us = tp->tcp_mstamp;
	report->bytes_acked = tp->bytes_acked;
	report->delivered = tp->delivered;
	report->delivered_ce = tp->delivered_ce;
	report->lost = tp->lost;
	report->retransmitted = tp->total_retrans;
	report->in_flight = packets_in_flight(tp);
	report->cwnd = tp->snd_cwnd;
	report->ssthresh = tp->snd_ssthresh;
	report->mss = tp->mss_cache;
	report->srtt_us = tp->srtt_us >> 3;
	report->min_rtt_us = tp->rtt_min.s[0].v;
}

static __always_inline void fill_rest(struct report *report, struct sock *sk, struct flow *flow,
				      const struct rate_sample *rs)
{
	struct tcp_sock *tp = tcp_sk(sk);
	bool has_sample = rs && rs->delivered > 0 && rs->interval_us > 0;

	report->pacing_rate = sk->sk_pacing_rate;
	report->rtt_us = rs && rs->rtt_us > 0 ? rs->rtt_us : 0;
	report->rtt_min_us = flow->rtt_min_us;
	report->window_us = now_of(tp) - flow->reported_us;
	report->acks = flow->acks;
	report->rate_delivered = has_sample ? rs->delivered : 0;
	report->rate_interval_us = has_sample ? rs->interval_us : 0;
	report->send_interval_us = has_sample ? rs->snd_interval_us : 0;
	report->prior_delivered = has_sample ? rs->prior_delivered : 0;
	report->snd_wnd = tp->snd_wnd;
	report->packets_out = tp->packets_out;
	report->flags = (flow->bits & FLOW_APP_LIMITED ? REPORT_APP_LIMITED : 0) |
			(flow->bits & FLOW_FILLED ? REPORT_CWND_LIMITED : 0) |
			(__u32)flow->idle_timeouts << REPORT_IDLE_SHIFT;
	report->underused = flow->bits & FLOW_UNDERUSED ? at_least(flow->used, 1) : 0;
}

/* The number of the next record; from now on it waits for an answer. */
static __always_inline void begin_record(struct flow *flow, __u32 now)
{
	if (flow->answered == (__u16)flow->seq)
		flow->waiting_us = now;
	flow->seq++;
	/* Half of the numbers of 16 bits count as later: the barrier must not fall behind them. */
	if ((__u16)(flow->seq - flow->barrier) > BARRIER_LAG_MAX)
		flow->barrier = flow->seq - BARRIER_LAG_MAX;
}

static __always_inline bool announce(struct sock *sk, struct flow *flow)
{
	struct report *report;

	begin_record(flow, now_of(tcp_sk(sk)));
	report = bpf_ringbuf_reserve(&records, sizeof(*report), 0);
	count_record();
	if (!report) {
		COUNT(dropped);
		flow->bits |= FLOW_UNANNOUNCED;
		return false;
	}
	fill_head(report, sk, flow, ca_state(tcp_sk(sk)));
	report->events = EVENT_OPEN;
	fill_opened((struct opened *)&report->pacing_rate, sk);
	/* What is left of the record. */
	report->packets_out = 0;
	report->flags = 0;
	report->underused = 0;
	flow->bits &= ~FLOW_UNANNOUNCED;
	bpf_ringbuf_submit(report, BPF_RB_FORCE_WAKEUP);
	return true;
}

/* Keeps what a full ring did not take for the next record. */
static __always_inline void keep_events(struct flow *flow, __u16 events)
{
	flow->events |= (events & ~EVENTS_OF_REPORT) | EVENT_UNTOLD;
}

/* Writes a record; false if the ring is full. */
static __always_inline bool write_report(struct sock *sk, struct flow *flow,
					 const struct rate_sample *rs, __u16 events, __u8 state)
{
	struct report *report;
	bool is_asleep;
	__u64 wake;

	begin_record(flow, now_of(tcp_sk(sk)));
	report = bpf_ringbuf_reserve(&records, sizeof(*report), 0);
	is_asleep = count_record();
	if (!report) {
		COUNT(dropped);
		return false;
	}
	events |= flow->events & ~EVENT_UNTOLD;
	fill_head(report, sk, flow, state);
	fill_rest(report, sk, flow, rs);
	report->events = events;
	flow->events = 0;
	flow->idle_timeouts = 0;
	if (flow->bits & FLOW_UNDERUSED) {
		flow->bits &= ~FLOW_UNDERUSED;
		flow->used = 0;
	}
	wake = events & EVENTS_THAT_WAKE || is_asleep ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
	if (wake == BPF_RB_NO_WAKEUP && flow->mode != MODE_FALLBACK && flow->law.flags & LAW_WAKE)
		wake = 0;
	bpf_ringbuf_submit(report, wake);
	return true;
}

/* Writes a record and begins the next interval. What a full ring did not take is told by the next. */
static __always_inline void report(struct sock *sk, struct flow *flow, const struct rate_sample *rs,
				   __u16 events, __u8 state)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (!flow->slot)
		return;
	if ((flow->bits & FLOW_UNANNOUNCED && !announce(sk, flow)) ||
	    !write_report(sk, flow, rs, events, state))
		keep_events(flow, events);
	flow->reported_us = now_of(tp);
	flow->round_end = tp->snd_nxt;
	flow->rtt_min_us = 0;
	flow->acks = 0;
	flow->samples = 0;
	flow->lost = tp->lost;
	flow->delivered_ce = tp->delivered_ce;
	flow->bits &= ~(FLOW_APP_LIMITED | FLOW_FILLED);
}

#endif
