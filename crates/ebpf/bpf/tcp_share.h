/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who may take a slot. Slots are the machine's, and any user can open connections. A user (uid) gets
 * another one while it holds less than SHARE_OF_FREE times the free slots: the dynamic threshold of
 * shared packet memory (Choudhury and Hahne, 1998). So a lone user may have three quarters, and however
 * many users take all they can, some slots are left for the next. Part of the free slots is kept for
 * root.
 *
 * Slots are counted where they are taken and given back, in words of uid and count that change as one. No
 * acknowledgement comes here, and `owners` keeps the cell that each slot was counted in.
 */
#ifndef FOREBAY_TCP_SHARE_H
#define FOREBAY_TCP_SHARE_H

#include "tcp_maps.h"

#define SHARE_OF_FREE 3
#define HOLDERS_OF_SET 16
/* In the low half of an owner: its slot is counted in no cell. */
#define UNCOUNTED 0xffffffffU
/* Results that are no owners, whose low half is never 0: nothing is left, or nothing for this uid. */
#define NONE_LEFT 0
#define BEYOND_SHARE (1ULL << 32)

/* The first entry of holders, written by the loader but for `used`. */
struct shares {
	/* Slots that are taken, and slots that are being decided on. */
	__u64 used;
	/* All slots, and the slots that are root's alone. */
	__u64 slots;
	__u64 reserve;
	/* A secret odd number that maps uids to their sets, and 64 less the bits of a set's number. */
	__u64 hash;
	__u64 shift;
	__u64 unused[11];
};

/* Each cell is a uid (high half) and the slots that it holds; a cell without slots is free. */
struct holder_set {
	__u64 cells[HOLDERS_OF_SET];
};

union holders {
	struct shares shares;
	struct holder_set set;
};

_Static_assert(sizeof(struct shares) == sizeof(struct holder_set), "an entry of holders");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2049);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, union holders);
} holders SEC(".maps");

/* For each taken slot: the uid (high half) and the number of its cell. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} owners SEC(".maps");

/* One more slot for a uid. */
struct holding {
	struct holder_set *set;
	__u32 uid;
	/* Slots that it holds with this one; 0: it is not counted. */
	__u32 held;
	__u32 cell;
};

/* Counts in the cell that the uid has. Another uid may take the cell meanwhile. */
static long join_cell(__u64 number, struct holding *holding)
{
	__u64 *cell = &holding->set->cells[number % HOLDERS_OF_SET], word = *(volatile __u64 *)cell;

	if (word >> 32 != holding->uid || !(__u32)word)
		return 0;
	word = __sync_fetch_and_add(cell, 1);
	if (word >> 32 != holding->uid || !(__u32)word) {
		__sync_fetch_and_sub(cell, 1);
		return 0;
	}
	holding->held = (__u32)word + 1;
	holding->cell = number % HOLDERS_OF_SET;
	return 1;
}

/* Makes a free cell the uid's. */
static long take_cell(__u64 number, struct holding *holding)
{
	__u64 *cell = &holding->set->cells[number % HOLDERS_OF_SET], word = *(volatile __u64 *)cell;

	if ((__u32)word ||
	    !__sync_bool_compare_and_swap(cell, word, (__u64)holding->uid << 32 | 1))
		return 0;
	holding->held = 1;
	holding->cell = number % HOLDERS_OF_SET;
	return 1;
}

static __always_inline struct shares *all_shares(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&holders, &first);
}

/* Undoes claim_share(). */
static __noinline void free_share(__u64 owner)
{
	__u32 cell = (__u32)owner - 1, index = 1 + cell / HOLDERS_OF_SET;
	struct shares *shares = all_shares();
	struct holder_set *set;

	if (!shares || !(__u32)owner)
		return;
	__sync_fetch_and_sub(&shares->used, 1);
	if ((__u32)owner == UNCOUNTED)
		return;
	set = bpf_map_lookup_elem(&holders, &index);
	if (set)
		__sync_fetch_and_sub(&set->cells[cell % HOLDERS_OF_SET], 1);
}

/* Whether root has opened or taken over the connection. Anyone may open a connection to a socket on which
 * root listens, and no process has it yet when it begins. */
static __always_inline bool is_roots(struct sock *sk)
{
	return !sk->sk_uid.val && sk->sk_socket;
}

/* Counts a slot for the owner of a connection and returns the owner, or the reason for a refusal. */
static __noinline __u64 claim_share(struct sock *sk)
{
	struct shares *shares = all_shares();
	struct holding holding = { .uid = sk->sk_uid.val };
	bool is_root = is_roots(sk);
	__u64 used, limit, owner;
	__u32 index;

	if (!shares)
		return NONE_LEFT;
	limit = shares->slots - (is_root ? 0 : shares->reserve);
	if (*(volatile __u64 *)&shares->used >= limit)
		return NONE_LEFT;
	used = __sync_fetch_and_add(&shares->used, 1);
	index = 1 + (holding.uid * shares->hash >> (shares->shift & 63));
	holding.set = bpf_map_lookup_elem(&holders, &index);
	if (holding.set)
		bpf_loop(HOLDERS_OF_SET, join_cell, &holding, 0);
	if (holding.set && !holding.held)
		bpf_loop(HOLDERS_OF_SET, take_cell, &holding, 0);
	owner = (__u64)holding.uid << 32;
	owner |= holding.held ? (index - 1) * HOLDERS_OF_SET + holding.cell + 1 : UNCOUNTED;
	if (used >= limit) {
		free_share(owner);
		return NONE_LEFT;
	}
	/* If other uids have all cells of its set, its count is unknown. */
	if (!is_root && (!holding.held || holding.held > (limit - used) * SHARE_OF_FREE)) {
		free_share(owner);
		return BEYOND_SHARE;
	}
	return owner;
}

#endif
