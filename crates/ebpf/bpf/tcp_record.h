/* SPDX-License-Identifier: GPL-2.0 */
/* Writing the records of a connection. Nothing here waits, and nothing is locked: a record has its
 * place by one addition. */
#ifndef FOREBAY_TCP_RECORD_H
#define FOREBAY_TCP_RECORD_H

#include "tcp_decision.h"

/* Tries where a queue or a ring may refuse for a moment. */
#define TRIES_MAX 4
/* How far the last event may lie behind, in reports. */
#define BARRIER_LAG_MAX 0x4000
/* Reasons to write a record; they are no events of the connection. */
#define EVENTS_OF_REPORT (EVENT_ROUND | EVENT_TIMER)
/* Among the events of a connection, never of a record: the last record found its half full. */
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
	__builtin_memset(opened->unused, 0, sizeof(opened->unused));
}

static __always_inline void fill_head(struct head *head, struct sock *sk, struct flow *flow,
				      __u8 state)
{
	struct tcp_sock *tp = tcp_sk(sk);

	head->slot = flow->slot - 1;
	head->seq = flow->seq;
	head->ca_state = state;
	head->mode = flow->mode;
	head->at_us = tp->tcp_mstamp;
	head->bytes_acked = tp->bytes_acked;
	head->delivered = tp->delivered;
	head->delivered_ce = tp->delivered_ce;
	head->lost = tp->lost;
	head->retransmitted = tp->total_retrans;
	head->in_flight = packets_in_flight(tp);
	head->cwnd = tp->snd_cwnd;
	head->ssthresh = tp->snd_ssthresh;
	head->mss = tp->mss_cache;
	head->srtt_us = tp->srtt_us >> 3;
	head->min_rtt_us = tp->rtt_min.s[0].v;
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

/* The place that a record is written to: 0 if its half is full. */
struct claim {
	union record *record;
	/* The reader has taken all before it. */
	bool is_first;
	/* The reader sleeps; the claim wakes it once. */
	bool wakes;
};

/* Takes the place of the next record. The addition's result is used, so it is a barrier: if a reader
 * did not see the record, its is_asleep is seen here. A place may belong to a half that the reader has
 * exchanged twice meanwhile, which can happen if that half was full. Such a place lies beyond every
 * half. */
static __always_inline struct claim claim_record(void)
{
	struct claim claim = {};
	__u32 first = 0, index;
	struct halves *halves = bpf_map_lookup_elem(&records, &first);
	__u64 position, half, place, size;

	if (!halves)
		return claim;
	position = __sync_fetch_and_add(&halves->position, 1);
	asm volatile("" : : "r"(position) : "memory");
	half = position >> 63;
	size = halves->size;
	place = (position & ~SECOND_HALF) - *(volatile __u64 *)&halves->starts[half];
	index = 1 + place + (half ? size : 0);
	if (place < size)
		claim.record = bpf_map_lookup_elem(&records, &index);
	if (!claim.record) {
		COUNT(dropped);
		return claim;
	}
	claim.is_first = !place;
	claim.wakes = *(volatile __u64 *)&halves->is_asleep &&
		      __sync_fetch_and_and(&halves->is_asleep, 0);
	return claim;
}

/* From here on the record belongs to the reader, which gives it back with generation 0. */
static __always_inline void publish(union record *record, __u32 generation)
{
	asm volatile("" : : : "memory");
#ifdef __TARGET_ARCH_x86
	/* Stores are seen in their order. */
	*(volatile __u32 *)&record->head.generation = generation;
#else
	__sync_lock_test_and_set(&record->head.generation, generation);
#endif
}

/* The ring may refuse for a moment. If it is full the reader has not looked yet. */
static __noinline void wake_reader(void)
{
	__u64 bell = 0;

#pragma unroll
	for (int try = 0; try < TRIES_MAX; try++)
		if (!bpf_ringbuf_output(&wakes, &bell, sizeof(bell), BPF_RB_FORCE_WAKEUP))
			return;
}

static __noinline bool announce(struct sock *sk)
{
	struct flow *flow = flow_of(sk);
	struct claim claim;

	begin_record(flow, now_of(tcp_sk(sk)));
	claim = claim_record();
	if (!claim.record) {
		flow->bits |= FLOW_UNANNOUNCED;
		return false;
	}
	fill_head(&claim.record->head, sk, flow, ca_state(tcp_sk(sk)));
	claim.record->head.events = EVENT_OPEN;
	fill_opened(&claim.record->opened, sk);
	flow->bits &= ~FLOW_UNANNOUNCED;
	publish(claim.record, flow->generation);
	wake_reader();
	return true;
}

/* Keeps the events for the next record when the half is full. */
static __always_inline void keep_events(struct flow *flow, __u16 events)
{
	flow->events |= (events & ~EVENTS_OF_REPORT) | EVENT_UNTOLD;
}

/* Writes a record; false if there is no room. */
static __always_inline bool write_report(struct sock *sk, struct flow *flow,
					 const struct rate_sample *rs, __u16 events, __u8 state)
{
	struct claim claim;

	begin_record(flow, now_of(tcp_sk(sk)));
	claim = claim_record();
	if (!claim.record)
		return false;
	events |= flow->events & ~EVENT_UNTOLD;
	fill_head(&claim.record->head, sk, flow, state);
	fill_rest(&claim.record->report, sk, flow, rs);
	claim.record->head.events = events;
	flow->events = 0;
	flow->idle_timeouts = 0;
	if (flow->bits & FLOW_UNDERUSED) {
		flow->bits &= ~FLOW_UNDERUSED;
		flow->used = 0;
	}
	publish(claim.record, flow->generation);
	if (claim.is_first && flow->mode != MODE_FALLBACK && flow->law.flags & LAW_WAKE)
		claim.wakes = true;
	if (events & EVENTS_THAT_WAKE || claim.wakes)
		wake_reader();
	return true;
}

static __always_inline void begin_interval(struct flow *flow, struct tcp_sock *tp)
{
	flow->reported_us = now_of(tp);
	flow->round_end = tp->snd_nxt;
	flow->rtt_min_us = 0;
	flow->acks = 0;
	flow->samples = 0;
	flow->lost = tp->lost;
	flow->delivered_ce = tp->delivered_ce;
	flow->bits &= ~(FLOW_APP_LIMITED | FLOW_FILLED);
}

/* Writes a record and begins the next interval. If the half is full, the next record has the events. A
 * connection whose slot was taken back goes on as one that found none. */
static __noinline void report(struct sock *sk, const struct rate_sample *rs, __u16 events, __u8 state)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);

	if (!flow->slot)
		return;
	if (!has_slot(flow)) {
		flow->slot = 0;
		if (flow->mode != MODE_FALLBACK)
			fall_back(sk);
		return;
	}
	if ((flow->bits & FLOW_UNANNOUNCED && !announce(sk)) ||
	    !write_report(sk, flow, rs, events, state))
		keep_events(flow, events);
	begin_interval(flow, tp);
}

#endif
