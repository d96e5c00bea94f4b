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
	/* Calls are written down, for tests. */
	bool is_recorded;
	/* For tests: as in tcp_maps.h. */
	__u32 left_out;
};

/* Set by the loader. */
const volatile struct settings settings = {};

enum call {
	CALL_CONG_AVOID,
	CALL_SSTHRESH,
	CALL_SET_STATE,
	CALL_UNDO_CWND,
	/* No call: reports a pause as a call at the segment that ended it would have. */
	CALL_PAUSE,
};

#define STEP_FILLED (1 << 0)
/* Slow start was ended. */
#define STEP_ENDED (1 << 1)

struct step {
	__u64 at_us;
	/* Segments acknowledged, ssthresh, the state, the window or microseconds of idleness. */
	__u64 value;
	__u32 rtt_us;
	__u32 cwnd;
	__u32 call;
	__u32 flags;
};

/* Made where calls are written down. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} steps SEC(".maps");

/* Not inlined: BTF has the structures of a function's arguments, and so has the skeleton. */
static __noinline void write_down(const struct step *step)
{
	bpf_ringbuf_output(&steps, (void *)step, sizeof(*step), BPF_RB_NO_WAKEUP);
}

static __always_inline void record(struct tcp_sock *tp, __u64 at_us, enum call call, __u64 value,
				   __u32 flags)
{
	if (settings.is_recorded) {
		struct step step = { at_us, value, tp->rack.rtt_us, tp->snd_cwnd, call, flags };

		write_down(&step);
	}
}

static __always_inline struct native *native_of(struct sock *sk)
{
	return (struct native *)tcp_sk(sk)->inet_conn.icsk_ca_priv;
}

/* Replaces threshold and window that no program gave; `state` is in force or begins. */
static __noinline void mend(struct sock *sk, __u8 state)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct native *native = native_of(sk);

	if (!tp->prior_cwnd) {
		bound_limits(tp);
		return;
	}
	if (is_threshold(tp->snd_ssthresh)) {
		tp->snd_cwnd = window_before(tp);
		return;
	}
	tp->snd_ssthresh = native_on_loss(settings.kind, native, window_before(tp), tp->mss_cache);
	if (ca_state(tp) == TCP_CA_LOSS)
		native_on_rto(settings.kind, native, tp->snd_nxt, tp->tcp_mstamp);
	lower_window(tp, state);
}

static __always_inline void make_up(struct sock *sk, __u8 state)
{
	if (unlikely(!has_limits(tcp_sk(sk))))
		mend(sk, state);
}

/* The kernel calls Linux's Cubic (cwnd_event) for each segment that leaves while nothing is in flight.
 * If every acknowledgement comes before the next segment, that is as often as it calls it for
 * acknowledgements. The acknowledgement of the segment is enough: it gives the time when the segment
 * left. */
static __always_inline void note_pause(struct tcp_sock *tp, struct native *native)
{
	/* When the newest acknowledged segment was sent. */
	__u64 sent_us = tp->first_tx_mstamp, idle_us;

	if (native->drained_us && sent_us > native->drained_us) {
		idle_us = sent_us - native->drained_us;
		native_on_resume(settings.kind, native, idle_us, sent_us);
		record(tp, sent_us, CALL_PAUSE, idle_us, 0);
	}
	native->drained_us = packets_in_flight(tp) ? 0 : sent_us;
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
	struct window window;
	struct ack ack;
	__u32 flags;

	make_up(sk, ca_state(tp));
	note_pause(tp, native_of(sk));
	ack = (struct ack){
		.acked = ctx[2],
		.una = tp->snd_una,
		.nxt = tp->snd_nxt,
		.rtt_us = tp->rack.rtt_us,
		.now_us = tp->tcp_mstamp,
		.ack_delay_us = tp->snd_cwnd < tp->snd_ssthresh ?
					hystart_ack_delay(sk->sk_gso_max_size, sk->sk_pacing_rate) :
					0,
		.is_filled = is_window_filled(tp),
		.is_paced = sk->sk_pacing_status != SK_PACING_NONE,
	};
	flags = ack.is_filled ? STEP_FILLED : 0;
	window = (struct window){ .cwnd = tp->snd_cwnd, .ssthresh = tp->snd_ssthresh };
	native_on_ack(settings.kind, settings.slow_start, native_of(sk), &window, &ack,
		      tp->tcp_mstamp, tp->mss_cache);
	if (window.ssthresh != tp->snd_ssthresh) {
		tp->snd_ssthresh = window.ssthresh;
		flags |= STEP_ENDED;
	}
	if (window.cwnd != tp->snd_cwnd)
		tp->snd_cwnd = at_most(window.cwnd, cwnd_max(tp));
	record(tp, tp->tcp_mstamp, CALL_CONG_AVOID, ack.acked, flags);
	return 0;
}

/* In a recovery the kernel calls cong_avoid at no acknowledgement. */
SEC("struct_ops")
int native_in_ack_event(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];

	make_up(sk, ca_state(tcp_sk(sk)));
	return 0;
}

SEC("struct_ops")
__u32 native_ssthresh(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);
	__u32 ssthresh;

	if (settings.left_out)
		return settings.left_out;
	ssthresh = native_on_loss(settings.kind, native_of(sk), window_now(tp), tp->mss_cache);
	record(tp, tp->tcp_mstamp, CALL_SSTHRESH, ssthresh, 0);
	return ssthresh;
}

SEC("struct_ops")
int native_set_state(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);

	if (is_left_out(settings.left_out, ctx[1]))
		return 0;
	make_up(sk, ctx[1]);
	if ((__u8)ctx[1] == TCP_CA_LOSS)
		native_on_rto(settings.kind, native_of(sk), tp->snd_nxt, tp->tcp_mstamp);
	record(tp, tp->tcp_mstamp, CALL_SET_STATE, (__u8)ctx[1], 0);
	return 0;
}

SEC("struct_ops")
__u32 native_undo_cwnd(__u64 *ctx)
{
	struct tcp_sock *tp = tcp_sk((struct sock *)ctx[0]);
	__u32 cwnd = at_least(tp->snd_cwnd, tp->prior_cwnd);

	if (settings.left_out)
		return settings.left_out;
	record(tp, tp->tcp_mstamp, CALL_UNDO_CWND, cwnd, 0);
	return cwnd;
}

SEC(".struct_ops.link")
struct tcp_congestion_ops native = {
	.name = "forebay",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)native_init,
	.ssthresh = (void *)native_ssthresh,
	.cong_avoid = (void *)native_cong_avoid,
	.in_ack_event = (void *)native_in_ack_event,
	.set_state = (void *)native_set_state,
	.undo_cwnd = (void *)native_undo_cwnd,
};

char LICENSE[] SEC("license") = "GPL";
