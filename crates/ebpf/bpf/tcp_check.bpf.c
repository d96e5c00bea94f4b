// SPDX-License-Identifier: GPL-2.0
/*
 * Runs the arithmetic of the congestion-control programs on numbers that a test gives, and marks what
 * a test sends.
 */
#include "packet.h"
#include "tcp_flow.h"
#include "tcp_native.h"

struct law_case {
	struct law law;
	struct hystart hystart;
	struct window window;
	struct ack ack;
	__u32 ends;
};

SEC("syscall")
int check_law(struct law_case *it)
{
	it->ends = law_on_ack(&it->law, &it->hystart, &it->window, &it->ack);
	return 0;
}

struct decision_case {
	struct law law;
	__u32 cwnd;
	__u32 known;
	__u32 wanted;
	struct recovery recovery;
	__u32 in_flight;
	__u32 acked;
	__u32 has_advanced;
	__u32 has_lost;
	struct interval interval;
	/* Results. */
	__u32 decided;
	__u32 reduced;
	__u32 window;
	__u32 tripped;
};

SEC("syscall")
int check_decision(struct decision_case *it)
{
	it->decided = law_decided(&it->law, it->cwnd, it->known, it->wanted);
	it->reduced = law_reduced(it->law.beta, it->cwnd);
	it->window = recovery_window(&it->recovery, it->in_flight, it->acked, it->has_advanced,
				     it->has_lost);
	it->tripped = law_tripped(&it->law, &it->interval);
	return 0;
}

struct fall_case {
	struct window restarted;
	struct window underused;
	__u32 timeouts;
	__u32 used;
	__u32 aggregate;
	/* Results. */
	__u32 falls;
	__u64 pacing_rate;
	__u32 ack_delay_us;
	__u32 unused;
};

SEC("syscall")
int check_fall(struct fall_case *it)
{
	law_restart(&it->restarted, it->timeouts);
	it->falls = law_underused(&it->underused, it->used);
	it->ack_delay_us = hystart_ack_delay(it->aggregate, it->pacing_rate);
	return 0;
}

enum curve_event {
	CURVE_ACK,
	CURVE_LOSS,
	CURVE_RTO,
};

struct curve_case {
	struct curve curve;
	__u64 now_us;
	__u32 event;
	__u32 acked;
	__u32 mss;
	/* Result of a loss. */
	__u32 ssthresh;
};

SEC("syscall")
int check_curve(struct curve_case *it)
{
	if (it->event == CURVE_ACK) {
		curve_grow(&it->curve, it->acked, it->now_us, it->mss);
		return 0;
	}
	it->ssthresh = curve_on_loss(&it->curve, it->mss);
	if (it->event == CURVE_RTO)
		curve_on_rto(&it->curve);
	return 0;
}

enum native_event {
	NATIVE_ACK,
	NATIVE_LOSS,
	NATIVE_RTO,
	NATIVE_RESUME,
};

struct native_case {
	struct native native;
	__u64 now_us;
	__u64 idle_us;
	struct window window;
	struct ack ack;
	/* enum native_kind */
	__u32 kind;
	__u32 event;
	__u32 mss;
	__u32 unused;
};

SEC("syscall")
int check_native(struct native_case *it)
{
	if (it->event == NATIVE_ACK) {
		native_on_ack(it->kind, SLOW_START_STANDARD, &it->native, &it->window, &it->ack,
			      it->now_us, it->mss);
	} else if (it->event == NATIVE_RESUME) {
		native_on_resume(it->kind, &it->native, it->idle_us, it->now_us);
	} else {
		/* As the kernel does, but for the way there. */
		it->window.ssthresh =
			native_on_loss(it->kind, &it->native, it->window.cwnd, it->mss);
		it->window.cwnd = it->event == NATIVE_RTO ? 1 : it->window.ssthresh;
		if (it->event == NATIVE_RTO)
			native_on_rto(it->kind, &it->native, it->ack.nxt, it->now_us);
	}
	return 0;
}

/* Segments of this length or more are marked; shorter ones are acknowledgements. */
#define MARKED_FROM 1000

/* Congestion experienced on each full TCP segment over IPv4 that says ECT(0) (RFC 3168). */
SEC("xdp")
int mark(struct xdp_md *ctx)
{
	__u8 *data = (__u8 *)(long)ctx->data, *end = (__u8 *)(long)ctx->data_end;
	__u8 *ip = data + 14;
	__u32 sum;

	if (ip + 20 > end || end - data < MARKED_FROM)
		return XDP_PASS;
	if (ip[0] != 0x45 || ip[9] != 6 || (ip[1] & 3) != 2)
		return XDP_PASS;
	ip[1] |= 3;
	/* One more in the low byte of the first word, and so one less in the checksum (RFC 1624). */
	sum = ip[10] << 8 | ip[11];
	sum += 0xfffe;
	sum = (sum & 0xffff) + (sum >> 16);
	ip[10] = sum >> 8;
	ip[11] = sum;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
