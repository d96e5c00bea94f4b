// SPDX-License-Identifier: GPL-2.0
/*
 * Reno and Cubic in the kernel alone (tcp_native.h).
 */
#include "tcp_kernel.h"
#include "tcp_native.h"

struct settings {
	/* enum native_kind */
	__u32 kind;
	/* enum slow_start */
	__u32 slow_start;
	/* A jiffy. */
	__u64 tick_ns;
};

/* Set by the loader. */
const volatile struct settings settings = {};

static __always_inline struct native *native_of(struct sock *sk)
{
	return (struct native *)tcp_sk(sk)->inet_conn.icsk_ca_priv;
}

SEC("struct_ops")
int native_init(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];

	native_of(sk)->hystart = hystart_from(tcp_sk(sk)->snd_nxt, tcp_sk(sk)->tcp_mstamp);
	return 0;
}

SEC("struct_ops")
int native_cong_avoid(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);
	struct window window = { .cwnd = tp->snd_cwnd, .ssthresh = tp->snd_ssthresh };
	struct ack ack = {
		.acked = ctx[2],
		.una = tp->snd_una,
		.nxt = tp->snd_nxt,
		.rtt_us = tp->rack.rtt_us,
		.now_us = tp->tcp_mstamp,
		.ack_delay_us = hystart_ack_delay(sk->sk_gso_max_size, sk->sk_pacing_rate),
		.is_filled = is_window_filled(tp),
		.is_paced = sk->sk_pacing_status != SK_PACING_NONE,
	};

	native_on_ack(settings.kind, settings.slow_start, native_of(sk), &window, &ack,
		      tp->tcp_mstamp, tp->mss_cache);
	if (window.ssthresh != tp->snd_ssthresh)
		tp->snd_ssthresh = window.ssthresh;
	if (window.cwnd != tp->snd_cwnd)
		tp->snd_cwnd = window.cwnd;
	return 0;
}

SEC("struct_ops")
__u32 native_ssthresh(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);

	return native_on_loss(settings.kind, native_of(sk), tp->snd_cwnd, tp->mss_cache);
}

SEC("struct_ops")
int native_set_state(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);

	if ((__u8)ctx[1] == TCP_CA_LOSS)
		native_on_rto(settings.kind, native_of(sk), tp->snd_nxt, tp->tcp_mstamp);
	return 0;
}

SEC("struct_ops")
__u32 native_undo_cwnd(__u64 *ctx)
{
	struct tcp_sock *tp = tcp_sk((struct sock *)ctx[0]);

	return at_least(tp->snd_cwnd, tp->prior_cwnd);
}

SEC("struct_ops")
int native_cwnd_event(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);
	/* In jiffies, as the kernel notes when the last segment left. */
	__u32 idle = (__u32)bpf_jiffies64() - tp->lsndtime;

	if ((__u32)ctx[1] == CA_EVENT_TX_START && idle <= 0x7fffffff)
		native_on_resume(settings.kind, native_of(sk), idle * settings.tick_ns / 1000,
				 tp->tcp_mstamp);
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
