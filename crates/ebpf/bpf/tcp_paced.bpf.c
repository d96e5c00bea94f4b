// SPDX-License-Identifier: GPL-2.0
/*
 * BBRv3 of crates/core/src/cc in the kernel alone. `cargo xtask bpf-algorithms` compiles this with the functions of
 * crates/ebpf/algorithms. Window and pacing rate are the algorithm's, also during a recovery: the kernel leaves
 * both to a congestion control with cong_control.
 *
 * The verifier cannot follow an acknowledgement in one piece. So its parts are global functions, which the verifier
 * checks one by one.
 *
 * A connection for whose state there is no memory keeps the window that it has. After a timeout it grows to the usual
 * initial window.
 */
#include "tcp_kernel.h"

/* STATE_BYTES of crates/ebpf/algorithms. */
#define STATE_BYTES 7232
/* PacedCall::flags. */
#define CALL_APP_LIMITED 1
#define CALL_FILLED 2
/* Least pacing rate, bytes per second: 1 kbit/s. The kernel does not pace at a rate of 0. */
#define PACING_MIN 125
/* Pacing rates above it, bytes per second, are not scaled: 8 Tbit/s. */
#define PACING_SCALED_MAX (1ULL << 40)

/* PacedCall::kind, as in crates/core/src/cc/algorithms/bbr3/paced.rs. */
enum {
	CALL_BEGIN,
	CALL_ACK,
	CALL_LOSS,
	CALL_MARK,
	CALL_TIMEOUT,
	CALL_REPAIRED,
	CALL_UNDO,
	CALL_RESTART,
};

/* struct PacedCall of crates/core/src/cc/algorithms/bbr3/paced.rs, which describes the fields. */
struct call {
	__u64 now_us;
	__u64 delivered;
	__u64 prior_delivered;
	__u64 sampled;
	__u64 interval_us;
	__u64 seed;
	__u32 kind;
	__u32 cwnd;
	__u32 mss;
	__u32 rtt_us;
	__u32 acked;
	__u32 lost;
	__u32 in_flight;
	__u32 flags;
	__u64 window;
	__u64 rate;
};

_Static_assert(sizeof(struct call) == 96, "as Rust has it");

struct state {
	__u64 words[STATE_BYTES / 8];
};

struct connection {
	/* tcp_sock.delivered, .delivered_ce and .lost at the last acknowledgement. */
	__u32 delivered;
	__u32 delivered_ce;
	__u32 lost;
	/* Pacing was not on before. */
	__u16 is_pacer;
	/* An episode of losses, which its repair ends. */
	__u16 is_losing;
	struct call call;
	struct state state;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} connections SEC(".maps");

struct settings {
	/* Calls are written down, for tests. */
	__u32 is_recorded;
	/* For tests: as in tcp_maps.h. */
	__u32 left_out;
};

/* Set by the loader. */
const volatile struct settings settings SEC(".rodata.settings") = {};

/* Made where calls are written down. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 21);
} calls SEC(".maps");

#define IN_RUST(name)                                                                              \
	extern void forebay_bbr3_##name(struct state *state, struct call *call);                   \
	__noinline int bbr3_##name(struct state *state, struct call *call)                         \
	{                                                                                          \
		if (!state || !call)                                                               \
			return 0;                                                                  \
		forebay_bbr3_##name(state, call);                                                  \
		return 0;                                                                          \
	}

IN_RUST(begin)
IN_RUST(event)
IN_RUST(part0)
IN_RUST(part1)
IN_RUST(part2)
IN_RUST(part3)
IN_RUST(part4)
IN_RUST(part5)
IN_RUST(part6)
IN_RUST(part7)
IN_RUST(part8)

static __always_inline void take_ack(struct state *state, struct call *call)
{
	bbr3_part0(state, call);
	bbr3_part1(state, call);
	bbr3_part2(state, call);
	bbr3_part3(state, call);
	bbr3_part4(state, call);
	bbr3_part5(state, call);
	bbr3_part6(state, call);
	bbr3_part7(state, call);
	bbr3_part8(state, call);
}

static __always_inline struct connection *connection_of(struct sock *sk)
{
	return bpf_sk_storage_get(&connections, sk, 0, 0);
}

/* Notes the call, and sets window and pacing rate as it answers. The kernel sends segments of another size after a
 * change of the path's MTU, in the same rhythm. */
static __always_inline void obey(struct sock *sk, struct connection *it)
{
	struct tcp_sock *tp = tcp_sk(sk);
	__u64 cwnd = it->call.mss ? it->call.window / it->call.mss : 1, rate = it->call.rate / 8;
	__u32 max = cwnd_max(tp);

	if (settings.is_recorded)
		bpf_ringbuf_output(&calls, &it->call, sizeof(it->call), BPF_RB_NO_WAKEUP);
	tp->snd_cwnd = cwnd > max ? max : cwnd ? cwnd : 1;
	if (it->call.mss && rate < PACING_SCALED_MAX)
		rate = rate * tp->mss_cache / it->call.mss;
	if (rate < PACING_MIN)
		rate = PACING_MIN;
	sk->sk_pacing_rate = rate < sk->sk_max_pacing_rate ? rate : sk->sk_max_pacing_rate;
}

static __always_inline void tell(struct sock *sk, struct connection *it, __u32 kind)
{
	it->call.now_us = tcp_sk(sk)->tcp_mstamp;
	it->call.kind = kind;
	bbr3_event(&it->state, &it->call);
	obey(sk, it);
}

/* Begins a connection; false: there is no memory for its state. */
static __always_inline bool begin(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct connection *it;
	struct call *call;

	it = bpf_sk_storage_get(&connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!it)
		return false;
	call = &it->call;
	it->delivered = tp->delivered;
	it->delivered_ce = tp->delivered_ce;
	it->lost = tp->lost;
	it->is_losing = 0;
	call->now_us = tp->tcp_mstamp;
	call->kind = CALL_BEGIN;
	call->delivered = 0;
	call->seed = (__u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32();
	call->cwnd = window_now(tp);
	call->mss = tp->mss_cache;
	bbr3_begin(&it->state, call);
	it->is_pacer = sk->sk_pacing_status == SK_PACING_NONE;
	if (it->is_pacer)
		sk->sk_pacing_status = SK_PACING_NEEDED;
	obey(sk, it);
	return true;
}

SEC("struct_ops")
int algorithm_init(__u64 *ctx)
{
	begin((struct sock *)ctx[0]);
	return 0;
}

SEC("struct_ops")
int algorithm_release(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct connection *it = connection_of(sk);

	if (it && it->is_pacer && sk->sk_pacing_status == SK_PACING_NEEDED &&
	    sk->sk_max_pacing_rate == PACING_UNLIMITED)
		sk->sk_pacing_status = SK_PACING_NONE;
	bpf_sk_storage_delete(&connections, sk);
	return 0;
}

SEC("struct_ops")
int algorithm_cong_control(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	const struct rate_sample *rs = (const struct rate_sample *)ctx[3];
	struct tcp_sock *tp = tcp_sk(sk);
	struct connection *it = connection_of(sk);
	bool has_sample = rs->delivered > 0 && rs->interval_us > 0;
	__u32 delivered = tp->delivered, lost = tp->lost;
	struct call *call;

	/* BBR has no threshold. The kernel restores one, or takes a stray value for one (has_limits). */
	if (tp->snd_ssthresh != SSTHRESH_INFINITE)
		tp->snd_ssthresh = SSTHRESH_INFINITE;
	if (!it) {
		/* The kernel has left out init, or there was no memory. */
		if (!is_opening(sk) && !begin(sk) && tp->snd_cwnd < INITIAL_SEGMENTS)
			tp->snd_cwnd++;
		return 0;
	}
	call = &it->call;
	call->now_us = tp->tcp_mstamp;
	call->kind = CALL_ACK;
	call->acked = delivered - it->delivered;
	call->lost = lost - it->lost;
	call->delivered += (__u64)call->acked * call->mss;
	it->delivered = delivered;
	it->delivered_ce = tp->delivered_ce;
	it->lost = lost;
	/* Without a sample nothing shows the end of a round. */
	call->prior_delivered = 0;
	call->sampled = 0;
	call->interval_us = 0;
	if (has_sample) {
		__u64 since = (__u64)(delivered - rs->prior_delivered) * call->mss;

		call->prior_delivered = call->delivered > since ? call->delivered - since : 0;
		call->sampled = (__u64)rs->delivered * call->mss;
		call->interval_us = rs->interval_us;
	}
	call->rtt_us = rs->rtt_us > 0 ? rs->rtt_us : 0;
	call->in_flight = packets_in_flight(tp);
	call->flags = (rs->is_app_limited ? CALL_APP_LIMITED : 0) |
		      (is_window_filled(tp) ? CALL_FILLED : 0);
	take_ack(&it->state, call);
	obey(sk, it);
	return 0;
}

SEC("struct_ops")
__u32 algorithm_ssthresh(__u64 *ctx)
{
	(void)ctx;
	return settings.left_out ? settings.left_out : SSTHRESH_INFINITE;
}

SEC("struct_ops")
int algorithm_set_state(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);
	struct connection *it = connection_of(sk);
	__u8 next = ctx[1], last = ca_state(tp);

	if (is_left_out(settings.left_out, next) || !it)
		return 0;
	if (next == TCP_CA_LOSS) {
		it->is_losing = 1;
		tell(sk, it, CALL_TIMEOUT);
	} else if (next == TCP_CA_RECOVERY && last < TCP_CA_RECOVERY) {
		/* A loss that is already being answered is reported once. */
		if (!it->is_losing)
			tell(sk, it, CALL_LOSS);
		it->is_losing = 1;
	} else if (next == TCP_CA_CWR && last < TCP_CA_CWR) {
		/* Without a mark a tail loss probe has repaired a loss, or the device dropped. */
		it->is_losing = tp->delivered_ce == it->delivered_ce;
		tell(sk, it, it->is_losing ? CALL_LOSS : CALL_MARK);
	} else if (next < TCP_CA_CWR && last >= TCP_CA_CWR) {
		if (it->is_losing)
			tell(sk, it, CALL_REPAIRED);
		it->is_losing = 0;
	}
	return 0;
}

SEC("struct_ops")
__u32 algorithm_undo_cwnd(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);
	struct connection *it = connection_of(sk);

	if (settings.left_out)
		return settings.left_out;
	if (it)
		tell(sk, it, CALL_UNDO);
	return window_now(tp);
}

SEC("struct_ops")
int algorithm_cwnd_event(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);
	struct connection *it = connection_of(sk);
	__u32 rto = at_least(tp->inet_conn.icsk_rto, 1), idle;

	if ((__u32)ctx[1] != CA_EVENT_TX_START || !tp->lsndtime || tp->packets_out || !it)
		return 0;
	idle = (__u32)bpf_jiffies64() - tp->lsndtime;
	if (idle <= 0x7fffffff && idle > rto)
		tell(sk, it, CALL_RESTART);
	return 0;
}

SEC(".struct_ops.link")
struct tcp_congestion_ops algorithm = {
	.name = "forebay",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)algorithm_init,
	.release = (void *)algorithm_release,
	.ssthresh = (void *)algorithm_ssthresh,
	.cong_control = (void *)algorithm_cong_control,
	.set_state = (void *)algorithm_set_state,
	.undo_cwnd = (void *)algorithm_undo_cwnd,
	.cwnd_event = (void *)algorithm_cwnd_event,
};

/* The connection of a test, which drives it call by call. */
static struct state checked;
static struct call asked;

SEC("syscall")
int check_algorithm(struct call *it)
{
	asked = *it;
	if (asked.kind == CALL_BEGIN)
		bbr3_begin(&checked, &asked);
	else if (asked.kind == CALL_ACK)
		take_ack(&checked, &asked);
	else
		bbr3_event(&checked, &asked);
	*it = asked;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
