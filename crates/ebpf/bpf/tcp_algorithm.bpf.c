// SPDX-License-Identifier: GPL-2.0
/*
 * A law of crates/core/src/cc in the kernel alone. `cargo xtask bpf-algorithms` compiles this for each law
 * with its function in ALGORITHM (crates/ebpf/algorithms), and makes one object of both, in which the
 * function is inlined. States of the connection, recovery, pacing rate and idle restart are the kernel's,
 * as for its own congestion controls.
 *
 * A connection for whose law there is no memory keeps the window that the kernel gives it, and halves it at
 * a loss.
 */
#include "tcp_kernel.h"

#define LAW_BYTES 1024
/* More than the parts of an acknowledgement (PARTS_MAX of crates/core/src/cc/window.rs). */
#define STEPS_MAX 513

/* call::kind, as in crates/core/src/cc/native.rs. */
enum {
	CALL_BEGIN,
	CALL_ACK,
	CALL_LOSS,
	CALL_MARK,
	CALL_TIMEOUT,
	CALL_REPAIRED,
	CALL_UNDO,
	CALL_RESUME,
	CALL_GROW,
};

/* struct Call of crates/core/src/cc/native.rs, which describes the fields. */
struct call {
	__u64 now_us;
	__u64 sent_bytes;
	__u64 acked_bytes;
	__u64 idle_us;
	__u32 kind;
	__u32 cwnd;
	__u32 ssthresh;
	__u32 mss;
	__u32 rtt_us;
	__u32 delivered;
	__u32 acked;
	__u32 is_filled;
};

_Static_assert(sizeof(struct call) == 64, "as Rust has it");

/* Answers ssthresh << 32 | window, or 0: once more with CALL_GROW. */
extern __u64 ALGORITHM(void *law, const struct call *call);

struct connection {
	/* tcp_sock.delivered at the last reported acknowledgement. */
	__u64 delivered;
	/* When the newest segment had left, at the acknowledgement after which nothing was in flight; 0:
	 * something was. */
	__u64 drained_us;
	__u64 law[LAW_BYTES / 8];
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

struct told {
	struct call call;
	__u64 limits;
};

/* Made where calls are written down. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 21);
} calls SEC(".maps");

static __always_inline struct connection *connection_of(struct sock *sk)
{
	return bpf_sk_storage_get(&connections, sk, 0, 0);
}

/* A call on its way through a law. */
struct asked {
	void *law;
	struct told told;
};

/* Ends with the answer. The law is inlined here alone: the 512 bytes of a stack have no room for it at each
 * place that calls it. */
static long step(__u32 index, struct asked *it)
{
	(void)index;
	it->told.limits = ALGORITHM(it->law, &it->told.call);
	it->told.call.kind = CALL_GROW;
	return it->told.limits != 0;
}

/* Without a copy of the call, for which the stack has no room either. */
static __always_inline __u64 ask(struct asked *it)
{
	__u32 kind = it->told.call.kind;

	bpf_loop(STEPS_MAX, step, it, 0);
	it->told.call.kind = kind;
	return it->told.limits;
}

static __always_inline __u64 tell(struct asked *it)
{
	__u64 limits = ask(it);

	if (settings.is_recorded)
		bpf_ringbuf_output(&calls, &it->told, sizeof(it->told), BPF_RB_NO_WAKEUP);
	return limits;
}

/* The fields that all calls have. */
static __always_inline struct asked asked_of(struct connection *it, struct tcp_sock *tp, __u32 kind)
{
	return (struct asked){
		.law = it->law,
		.told.call = {
			.now_us = tp->tcp_mstamp,
			.kind = kind,
			.cwnd = window_now(tp),
			.ssthresh = tp->snd_ssthresh,
		},
	};
}

/* A call without further fields. */
static __always_inline __u64 tell_of(struct connection *it, struct tcp_sock *tp, __u32 kind)
{
	struct asked asked = asked_of(it, tp, kind);

	return tell(&asked);
}

/* Reports a reduction for which no call came: then the timeout, and where nothing is to be repaired a mark,
 * since a law waits for the end of a repair. */
static __always_inline __u32 tell_late(struct connection *it, struct tcp_sock *tp)
{
	struct asked asked = asked_of(it, tp, CALL_LOSS);
	__u8 state = ca_state(tp);
	__u32 ssthresh;

	asked.told.call.cwnd = window_before(tp);
	asked.told.call.ssthresh = SSTHRESH_INFINITE;
	ssthresh = tell(&asked) >> 32;
	if (state != TCP_CA_RECOVERY) {
		asked.told.call.kind = state == TCP_CA_LOSS ? CALL_TIMEOUT : CALL_MARK;
		tell(&asked);
	}
	return ssthresh;
}

/* Replaces threshold and window that no program gave; `state` is in force or begins. */
static __noinline void mend(struct sock *sk, __u8 state)
{
	struct connection *it = connection_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	if (!tp->prior_cwnd) {
		bound_limits(tp);
		return;
	}
	if (is_threshold(tp->snd_ssthresh)) {
		tp->snd_cwnd = window_before(tp);
		if (it)
			tell_of(it, tp, CALL_UNDO);
		return;
	}
	tp->snd_ssthresh = it ? tell_late(it, tp) : at_least(window_before(tp) / 2, SEGMENTS_MIN);
	lower_window(tp, state);
}

static __always_inline void make_up(struct sock *sk, __u8 state)
{
	if (unlikely(!has_limits(tcp_sk(sk))))
		mend(sk, state);
}

/* Does as note_pause in tcp_native.bpf.c. */
static __always_inline void note_pause(struct tcp_sock *tp, struct connection *it)
{
	__u64 sent_us = tp->first_tx_mstamp;

	if (it->drained_us && sent_us > it->drained_us) {
		struct asked asked = asked_of(it, tp, CALL_RESUME);

		asked.told.call.now_us = sent_us;
		asked.told.call.idle_us = sent_us - it->drained_us;
		tell(&asked);
	}
	it->drained_us = packets_in_flight(tp) ? 0 : sent_us;
}

SEC("struct_ops")
int algorithm_init(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);
	struct connection *it;
	struct asked asked;

	it = bpf_sk_storage_get(&connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!it)
		return 0;
	it->delivered = tp->delivered;
	it->drained_us = 0;
	asked = asked_of(it, tp, CALL_BEGIN);
	asked.told.call.mss = tp->mss_cache;
	tell(&asked);
	return 0;
}

SEC("struct_ops")
int algorithm_cong_avoid(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);
	struct connection *it = connection_of(sk);
	__u32 delivered = tp->delivered, cwnd, ssthresh;
	struct asked asked;
	struct call *call = &asked.told.call;
	__u64 limits;

	if (!it)
		return 0;
	make_up(sk, ca_state(tp));
	note_pause(tp, it);
	asked = asked_of(it, tp, CALL_ACK);
	call->sent_bytes = tp->bytes_acked + (tp->snd_nxt - tp->snd_una);
	call->acked_bytes = tp->bytes_acked;
	call->rtt_us = tp->rack.rtt_us;
	call->delivered = delivered - (__u32)it->delivered;
	call->acked = ctx[2];
	call->is_filled = is_window_filled(tp);
	it->delivered = delivered;
	limits = tell(&asked);
	ssthresh = limits >> 32;
	cwnd = limits;
	if (ssthresh != tp->snd_ssthresh)
		tp->snd_ssthresh = ssthresh;
	if (cwnd != tp->snd_cwnd)
		tp->snd_cwnd = at_most(cwnd, cwnd_max(tp));
	return 0;
}

/* In a recovery the kernel calls cong_avoid at no acknowledgement. */
SEC("struct_ops")
int algorithm_in_ack_event(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];

	make_up(sk, ca_state(tcp_sk(sk)));
	return 0;
}

SEC("struct_ops")
__u32 algorithm_ssthresh(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);
	struct connection *it = connection_of(sk);

	if (settings.left_out)
		return settings.left_out;
	if (!it)
		return at_least(window_now(tp) / 2, SEGMENTS_MIN);
	return tell_of(it, tp, CALL_LOSS) >> 32;
}

SEC("struct_ops")
int algorithm_set_state(__u64 *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = tcp_sk(sk);
	struct connection *it = connection_of(sk);
	__u8 state = ctx[1];

	if (is_left_out(settings.left_out, state) || !it)
		return 0;
	make_up(sk, state);
	if (state == TCP_CA_CWR)
		tell_of(it, tp, CALL_MARK);
	else if (state == TCP_CA_LOSS)
		tell_of(it, tp, CALL_TIMEOUT);
	else if (state < TCP_CA_CWR && ca_state(tp) >= TCP_CA_RECOVERY)
		tell_of(it, tp, CALL_REPAIRED);
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
		tell_of(it, tp, CALL_UNDO);
	return at_least(tp->snd_cwnd, tp->prior_cwnd);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops algorithm = {
	.name = "forebay",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)algorithm_init,
	.ssthresh = (void *)algorithm_ssthresh,
	.cong_avoid = (void *)algorithm_cong_avoid,
	.in_ack_event = (void *)algorithm_in_ack_event,
	.set_state = (void *)algorithm_set_state,
	.undo_cwnd = (void *)algorithm_undo_cwnd,
};

/* The law of a test, which drives it call by call. */
static __u64 checked[LAW_BYTES / 8];

SEC("syscall")
int check_algorithm(struct told *it)
{
	struct asked asked = { checked, *it };

	it->limits = ask(&asked);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
