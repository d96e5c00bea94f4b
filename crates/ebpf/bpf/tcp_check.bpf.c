// SPDX-License-Identifier: GPL-2.0
/* Runs the arithmetic of the congestion-control programs on numbers that a test gives. */
#include "tcp_flow.h"

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
	/* Results. */
	__u32 decided;
	__u32 reduced;
	__u32 window;
};

SEC("syscall")
int check_decision(struct decision_case *it)
{
	it->decided = law_decided(&it->law, it->cwnd, it->known, it->wanted);
	it->reduced = law_reduced(it->law.beta, it->cwnd);
	it->window = recovery_window(&it->recovery, it->in_flight, it->acked, it->has_advanced,
				     it->has_lost);
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
	it->ssthresh = curve_on_loss(&it->curve);
	if (it->event == CURVE_RTO)
		curve_on_rto(&it->curve);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
