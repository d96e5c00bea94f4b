// SPDX-License-Identifier: GPL-2.0
/*
 * A congestion control that does nothing at an acknowledgement. The kernel's statistics show
 * the cost of calling and timing a program: subtract it from the figures of other programs. The window
 * never changes, so use this only on connections with hardly any round trip time.
 */
#include "tcp_kernel.h"

SEC("struct_ops")
int empty_control(__u64 *ctx)
{
	(void)ctx;
	return 0;
}

SEC("struct_ops")
__u32 empty_ssthresh(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];

	return tcp_sk(sk)->snd_cwnd;
}

SEC("struct_ops")
__u32 empty_undo_cwnd(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];

	return tcp_sk(sk)->snd_cwnd;
}

SEC(".struct_ops.link")
struct tcp_congestion_ops empty = {
	.name = "forebay_empty",
	.flags = TCP_CONG_NON_RESTRICTED,
	.ssthresh = (void *)empty_ssthresh,
	.undo_cwnd = (void *)empty_undo_cwnd,
	.cong_control = (void *)empty_control,
};

char LICENSE[] SEC("license") = "GPL";
