/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The fields of the kernel's TCP that the congestion-control programs read or write. Their places
 * are taken from the running kernel (CO-RE).
 */
#ifndef FOREBAY_TCP_KERNEL_H
#define FOREBAY_TCP_KERNEL_H

#include "tcp_law.h"

#include <bpf/bpf_core_read.h>

/* enum tcp_ca_state */
enum {
	TCP_CA_OPEN,
	TCP_CA_DISORDER,
	TCP_CA_CWR,
	TCP_CA_RECOVERY,
	TCP_CA_LOSS,
};
/* States of a socket before its connection is there (include/net/tcp_states.h). */
#define TCP_SYN_SENT 2
#define TCP_SYN_RECV 3
/* enum tcp_ca_event */
#define CA_EVENT_TX_START 0
/* enum sk_pacing */
#define SK_PACING_NONE 0
#define SK_PACING_NEEDED 1
/* sk_max_pacing_rate of a socket that asked for none. */
#define PACING_UNLIMITED (~0UL)
/* struct socket.flags: a writer waits for the send buffer. */
#define SOCK_NOSPACE (1UL << 2)
/* tcp_congestion_ops.flags */
#define TCP_CONG_NON_RESTRICTED 1

#define AF_INET 2
#define AF_INET6 10

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
};

struct ns_common {
	unsigned int inum;
};

struct netns_ipv4 {
	__u8 sysctl_tcp_slow_start_after_idle;
};

struct net {
	struct ns_common ns;
	struct netns_ipv4 ipv4;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct socket {
	unsigned long flags;
};

/* A user as the initial user namespace numbers it. */
typedef struct {
	__u32 val;
} kuid_t;

struct sock {
	struct sock_common __sk_common;
	struct socket *sk_socket;
	kuid_t sk_uid;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	__u32 sk_pacing_status;
	unsigned int sk_gso_max_size;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	__u32 icsk_rto;
	__u8 icsk_ca_state : 5;
	__u64 icsk_ca_priv[13];
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_rack {
	__u32 rtt_us;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u64 tcp_mstamp;
	__u64 first_tx_mstamp;
	__u64 bytes_acked;
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 snd_wnd;
	__u32 snd_cwnd;
	__u32 snd_cwnd_cnt;
	__u32 snd_cwnd_clamp;
	__u32 snd_cwnd_stamp;
	__u32 snd_ssthresh;
	__u32 prior_cwnd;
	__u32 prr_out;
	__u32 packets_out;
	__u32 sacked_out;
	__u32 lost_out;
	__u32 retrans_out;
	__u32 max_packets_out;
	__u32 delivered;
	__u32 delivered_ce;
	__u32 lost;
	__u32 total_retrans;
	__u32 mss_cache;
	__u32 srtt_us;
	__u32 lsndtime;
	__u8 is_cwnd_limited : 1;
	struct minmax rtt_min;
	struct tcp_rack rack;
};

struct rate_sample {
	__u32 prior_delivered;
	__s32 delivered;
	long interval_us;
	__u32 snd_interval_us;
	long rtt_us;
	int losses;
	__u32 acked_sacked;
	bool is_app_limited;
};

#pragma clang attribute pop

/* The functions of a congestion control; libbpf finds the members in the kernel's by their names. */
struct tcp_congestion_ops {
	char name[16];
	__u32 flags;
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	void (*set_state)(struct sock *sk, __u8 state);
	void (*cwnd_event)(struct sock *sk, __u32 event);
	void (*in_ack_event)(struct sock *sk, __u32 flags);
	__u32 (*undo_cwnd)(struct sock *sk);
	void (*cong_control)(struct sock *sk);
};

static __always_inline struct tcp_sock *tcp_sk(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

/* BPF_CORE_READ_BITFIELD of a field that the kernel keeps in a byte, like the two fields here. The general
 * one leaves a dozen instructions in the way of every acknowledgement. */
#define READ_BITS(base, field)                                                                     \
	({                                                                                         \
		const __u8 *at = (const void *)(base) + __CORE_RELO(base, field, BYTE_OFFSET);     \
		__u64 bits = *at;                                                                  \
                                                                                                   \
		bits <<= __CORE_RELO(base, field, LSHIFT_U64);                                     \
		bits >>= __CORE_RELO(base, field, RSHIFT_U64);                                     \
		__CORE_RELO(base, field, BYTE_SIZE) == 1 ? bits :                                  \
							   BPF_CORE_READ_BITFIELD(base, field);    \
	})

static __always_inline __u8 ca_state(struct tcp_sock *tp)
{
	return READ_BITS(&tp->inet_conn, icsk_ca_state);
}

static __always_inline __u32 packets_in_flight(struct tcp_sock *tp)
{
	return tp->packets_out - (tp->sacked_out + tp->lost_out) + tp->retrans_out;
}

/* Limit of windows that grow; a route may set one (`ip route .. cwnd lock N`). */
static __always_inline __u32 cwnd_max(struct tcp_sock *tp)
{
	return at_most(tp->snd_cwnd_clamp, SEGMENTS_MAX);
}

/* Whether a program of this project, or the kernel at the beginning, can have set this threshold. */
static __always_inline bool is_threshold(__u32 ssthresh)
{
	return (ssthresh >= SEGMENTS_MIN && ssthresh <= SEGMENTS_MAX) ||
	       ssthresh == SSTHRESH_INFINITE;
}

/* Whether a program of this project, or the kernel after one, can have set this window. */
static __always_inline bool is_window(__u32 cwnd)
{
	return cwnd && cwnd <= SEGMENTS_MAX;
}

/* Linux 6.18 has been seen to leave out all calls of programs for some milliseconds, in softirqs that had
 * interrupted process 1. The kernel then takes a value from its stack for the answer of ssthresh() or
 * undo_cwnd(): hundreds of millions of segments. Where this is false, make_up of each program restores
 * threshold and window. */
static __always_inline bool has_limits(struct tcp_sock *tp)
{
	return is_threshold(tp->snd_ssthresh) && is_window(tp->snd_cwnd);
}

/* The answer to a SYN comes before init. */
static __always_inline bool is_opening(struct sock *sk)
{
	__u8 state = sk->__sk_common.skc_state;

	return state == TCP_SYN_SENT || state == TCP_SYN_RECV;
}

/* The window before the last reduction; if a stray window was reduced, the segments that are out. */
static __always_inline __u32 window_before(struct tcp_sock *tp)
{
	if (is_window(tp->prior_cwnd))
		return at_least(tp->prior_cwnd, SEGMENTS_MIN);
	return at_most(at_least(tp->packets_out, SEGMENTS_MIN), cwnd_max(tp));
}

/* The window; if it is a stray value, the window before the last reduction. Where the kernel asks for
 * ssthresh, that is the window, too. */
static __always_inline __u32 window_now(struct tcp_sock *tp)
{
	return is_window(tp->snd_cwnd) ? tp->snd_cwnd : window_before(tp);
}

/* Lowers the window to a threshold that was restored. In a recovery the kernel may have raised it beyond the
 * previous window. At the end the kernel sets the window to the stray threshold, or leaves it where that is
 * SSTHRESH_INFINITE or more. */
static __always_inline void lower_window(struct tcp_sock *tp, __u8 state)
{
	__u32 limit = state < TCP_CA_CWR ? tp->snd_ssthresh : window_before(tp);

	if (!is_window(tp->snd_cwnd) || tp->snd_cwnd > limit)
		tp->snd_cwnd = tp->snd_ssthresh;
}

/* Bounds the limits of a connection that was never reduced: they come from elsewhere, such as a route. */
static __always_inline void bound_limits(struct tcp_sock *tp)
{
	if (!is_threshold(tp->snd_ssthresh))
		tp->snd_ssthresh = tp->snd_ssthresh < SEGMENTS_MIN ? SEGMENTS_MIN :
								      SSTHRESH_INFINITE;
	tp->snd_cwnd = within(tp->snd_cwnd, 1, SEGMENTS_MAX);
}

/* For tests: whether set_state does nothing where the kernel takes `left_out` for the answer. Odd: always;
 * even: where a reduction begins. */
static __always_inline bool is_left_out(__u32 left_out, __u8 state)
{
	return left_out && (left_out & 1 || state >= TCP_CA_CWR);
}

/* tcp_is_cwnd_limited: in slow start a window that has just doubled cannot be full yet. */
static __always_inline bool is_window_filled(struct tcp_sock *tp)
{
	if (READ_BITS(tp, is_cwnd_limited))
		return true;
	return tp->snd_cwnd < tp->snd_ssthresh && tp->snd_cwnd < 2 * tp->max_packets_out;
}

#endif
