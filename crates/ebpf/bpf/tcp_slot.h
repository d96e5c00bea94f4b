/* SPDX-License-Identifier: GPL-2.0 */
/* How a connection comes by a slot, and gives it back. */
#ifndef FOREBAY_TCP_SLOT_H
#define FOREBAY_TCP_SLOT_H

#include "tcp_record.h"
#include "tcp_share.h"

/* Least time from the last report or request of a connection without a slot to its next request,
 * microseconds. */
#define ASK_AGAIN_US 1000000
#define ENOENT 2

/* The next number for a connection, never 0. */
static __always_inline __u32 next_number(void)
{
	__u32 number = COUNT(numbers);

	return number ? number : 1;
}

/* Takes a free slot. False: no slot is free, or the queue refuses for the moment. */
static __always_inline bool pop_slot(__u32 *index)
{
#pragma unroll
	for (int pop = 0; pop < TRIES_MAX; pop++) {
		long status = bpf_map_pop_elem(&free_slots, index);

		if (!status || status == -ENOENT)
			return !status;
	}
	return false;
}

/* Takes a slot, without showing the connection in it yet. If no slot is free, returns the reason. */
static __noinline __u64 take_slot(struct sock *sk)
{
	struct flow *flow = flow_of(sk);
	__u64 owner = claim_share(sk), *owner_of;
	struct slot *slot;
	__u32 index;

	if ((__u32)owner && !pop_slot(&index)) {
		free_share(owner);
		owner = NONE_LEFT;
	}
	if (!(__u32)owner) {
		COUNT(in_vain);
		return owner;
	}
	flow->slot = index + 1;
	owner_of = bpf_map_lookup_elem(&owners, &index);
	if (owner_of)
		*owner_of = owner;
	/* The decision there was made for the previous connection. */
	slot = bpf_map_lookup_elem(&slots, &index);
	if (slot)
		flow->slot_count = slot->count;
	return owner;
}

/* Shows a connection under its number in the slot that it has just taken. */
static __always_inline void show(const struct flow *flow)
{
	__u64 *shown = shown_mode(flow);

	if (shown)
		*(volatile __u64 *)shown = (__u64)flow->generation << 32 | flow->mode;
}

/* A connection without a slot asks for one from time to time, with an acknowledgement. If its slot was
 * taken back while it was silent, it need not wait. */
static __always_inline bool may_ask_again(const struct flow *flow, struct tcp_sock *tp)
{
	return now_of(tp) - flow->reported_us >= ASK_AGAIN_US;
}

/* Until the agent has answered, the connection stays under the kernel's algorithm. */
static __noinline void ask_again(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);

	flow->reported_us = now_of(tp);
	if (!(__u32)take_slot(sk))
		return;
	flow->generation = next_number();
	show(flow);
	COUNT(regained);
	/* No reader could hear of the events so far. */
	flow->events = 0;
	flow->idle_timeouts = 0;
	announce(sk);
	begin_interval(flow, tp);
}

/* A queue may refuse for a moment. If it does not take a slot at all, the loader gives the slot back. */
static __always_inline void give_back(__u32 index)
{
	__u64 *owner_of = bpf_map_lookup_elem(&owners, &index), owner, *shown;

	if (!owner_of)
		return;
	/* Once it is in the queue it may have another. */
	owner = *(volatile __u64 *)owner_of;
#pragma unroll
	for (int push = 0; push < TRIES_MAX; push++) {
		if (!bpf_map_push_elem(&free_slots, &index, 0)) {
			free_share(owner);
			return;
		}
	}
	shown = bpf_map_lookup_elem(&modes, &index);
	if (shown)
		*(volatile __u64 *)shown = MODE_STRANDED;
	COUNT(stranded);
}

#endif
