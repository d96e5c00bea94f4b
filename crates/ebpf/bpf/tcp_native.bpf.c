// SPDX-License-Identifier: GPL-2.0
/*
 * Reno and Cubic in the kernel alone: the arithmetic of crates/core/src/cc (tcp_window.h) below
 * cong_avoid, so that recovery, pacing rate and idle restart are the kernel's own, as for its cubic.
 * Slow start is left by HyStart as in Linux (tcp_law.h), except by Reno.
 */
#include "tcp_kernel.h"
#include "tcp_window.h"

struct settings {
	/* enum curve_kind */
	__u32 kind;
	/* enum slow_start */
	__u32 slow_start;
};

/* Set by the loader. */
const volatile struct settings settings = {};

/* In icsk_ca_priv. */
struct native {
	struct curve curve;
	struct hystart hystart;
	/* When the last acknowledgement came. */
	__u64 acked_us;
};

_Static_assert(sizeof(struct native) <= 104, "icsk_ca_priv");

static __always_inline struct native *native_of(struct sock *sk)
{
	return (struct native *)tcp_sk(sk)->inet_conn.icsk_ca_priv;
}

SEC("struct_ops")
int native_init(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct native *native = native_of(sk);

	native->curve.kind = settings.kind;
	native->hystart = hystart_from(tcp_sk(sk)->snd_nxt, tcp_sk(sk)->tcp_mstamp);
	return 0;
}

/* Returns the segments left for avoidance. */
static __always_inline __u32 slow_start(struct native *native, struct sock *sk, __u32 acked,
					bool is_filled)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct window window = { .cwnd = tp->snd_cwnd, .ssthresh = tp->snd_ssthresh };
	struct ack ack = {
		.acked = acked,
		.una = tp->snd_una,
		.nxt = tp->snd_nxt,
		.rtt_us = tp->rack.rtt_us,
		.now_us = tp->tcp_mstamp,
		.ack_delay_us = hystart_ack_delay(sk->sk_gso_max_size, sk->sk_pacing_rate),
		.is_paced = sk->sk_pacing_status != SK_PACING_NONE,
	};
	__u32 kind = settings.slow_start, left;

	if (hystart_observe(kind, &native->hystart, &window, &ack)) {
		window.ssthresh = at_least(window.cwnd, SEGMENTS_MIN);
		tp->snd_ssthresh = window.ssthresh;
		return is_filled ? acked : 0;
	}
	if (!is_filled)
		return 0;
	left = law_slow_start(SLOW_START_STANDARD, &native->hystart, &window, acked);
	if (window.cwnd != tp->snd_cwnd)
		tp->snd_cwnd = window.cwnd;
	return left;
}

SEC("struct_ops")
int native_cong_avoid(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);
	struct native *native = native_of(sk);
	struct curve *curve = &native->curve;
	__u32 left = at_most(ctx[2], SEGMENTS_MAX), mss = tp->mss_cache, segments;
	bool is_filled = is_window_filled(tp);

	curve->min_rtt_us = lesser_rtt(curve->min_rtt_us, tp->rack.rtt_us);
	native->acked_us = tp->tcp_mstamp;
	if (tp->snd_cwnd < tp->snd_ssthresh)
		left = slow_start(native, sk, left, is_filled);
	if (!left || !is_filled || tp->snd_cwnd < tp->snd_ssthresh || !mss)
		return 0;
	curve_follow(curve, tp->snd_cwnd, mss);
	curve_grow(curve, left * (__u64)mss, tp->tcp_mstamp, mss);
	segments = curve->cwnd / mss;
	if (segments > tp->snd_cwnd)
		tp->snd_cwnd = at_most(segments, SEGMENTS_MAX);
	return 0;
}

SEC("struct_ops")
__u32 native_ssthresh(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);
	struct native *native = native_of(sk);
	__u32 mss = at_least(tp->mss_cache, 1);

	curve_follow(&native->curve, tp->snd_cwnd, mss);
	return at_least(curve_on_loss(&native->curve) / mss, SEGMENTS_MIN);
}

SEC("struct_ops")
int native_set_state(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct native *native = native_of(sk);

	if ((__u8)ctx[1] != TCP_CA_LOSS)
		return 0;
	curve_on_rto(&native->curve);
	native->curve.min_rtt_us = 0;
	native->hystart = hystart_from(tcp_sk(sk)->snd_nxt, tcp_sk(sk)->tcp_mstamp);
	return 0;
}

SEC("struct_ops")
__u32 native_undo_cwnd(__u64 *ctx)
{
	struct tcp_sock *tp = tcp_sk((struct sock *)ctx[0]);

	return at_least(tp->snd_cwnd, tp->prior_cwnd);
}

/* Times without anything to send do not count for the curve (RFC 9438, 5.8). */
SEC("struct_ops")
int native_cwnd_event(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);
	struct native *native = native_of(sk);
	__u64 now = tp->tcp_mstamp;

	if ((__u32)ctx[1] == CA_EVENT_TX_START && now > native->acked_us)
		curve_pause(&native->curve, now - native->acked_us, now);
	return 0;
}

SEC(".struct_ops.link")
struct tcp_congestion_ops native = {
	.name = "forebay",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)native_init,
	.ssthresh = (void *)native_ssthresh,
	.cong_avoid = (void *)native_cong_avoid,
	.set_state = (void *)native_set_state,
	.cwnd_event = (void *)native_cwnd_event,
	.undo_cwnd = (void *)native_undo_cwnd,
};

char LICENSE[] SEC("license") = "GPL";
