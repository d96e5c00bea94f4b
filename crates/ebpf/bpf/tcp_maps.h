/* SPDX-License-Identifier: GPL-2.0 */
/* The settings and maps of tcp_datapath.bpf.c, and the operations that all its parts share. */
#ifndef FOREBAY_TCP_MAPS_H
#define FOREBAY_TCP_MAPS_H

#include "tcp_flow.h"
#include "tcp_kernel.h"

/* A connection falls back within four round trips of its agent's end, or within this time if it is
 * longer. */
#define PATIENCE_US 100000

/* Set by the loader. Values that every acknowledgement needs are not here: these are a page of their
 * own, whose address has to be looked up when it was not used for a while. */
struct settings {
	/* enum curve_kind of the fallback. */
	__u32 fallback;
	/* The law of a connection before the first decision. */
	struct law first;
	/* For tests: if not 0, the kernel asks for windows without effect and takes this for the answer
	 * (is_left_out). */
	__u32 left_out;
	/* For tests: the kernel does not call init. */
	bool init_left_out;
};

const volatile struct settings settings = {};

/* The bit of halves.position that says which half is written. */
#define SECOND_HALF (1ULL << 63)

/* The first entry of records. */
struct halves {
	/* Records so far, including records that found their half full, and SECOND_HALF. */
	__u64 position;
	/* The records before each half. */
	__u64 starts[2];
	/* Set by a reader that goes to sleep, cleared by the record that wakes it. */
	__u64 is_asleep;
	/* Records of a half. */
	__u64 size;
	__u64 unused[3];
	/* The reader's alone: records that it has taken. */
	__u64 taken;
	__u64 unused_2[7];
};

_Static_assert(sizeof(struct halves) == RECORD_LEN, "an entry of records");

union record {
	struct halves halves;
	struct head head;
	struct report report;
	struct opened opened;
};

/*
 * Two halves: one is written while the other is read, and the reader exchanges them. So while the
 * reader keeps up, the first few lines of each half serve again and again. They stay in the cache,
 * however many records there is room for. A record with generation 0 has no connection or is being
 * written.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 60001);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, union record);
} records SEC(".maps");

/* The ring that the reader sleeps on: a record in it wakes the reader. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} wakes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

/* The mode of each slot's connection, under its number: a reader sees it without a record. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} modes SEC(".maps");

/* Slots without a connection. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 16384);
	__type(value, __u32);
} free_slots SEC(".maps");

/* Atomics and not a set per CPU: these programs are preemptible, and counts must be exact. */
struct counters {
	__u64 opened;
	__u64 closed;
	/* Connections that found no slot when they began. */
	__u64 refused;
	/* Records that found their half full. */
	__u64 dropped;
	__u64 fallbacks;
	__u64 resumed;
	/* Decisions torn, out of date, or for a connection that has ended. */
	__u64 refused_decisions;
	/* Slots that free_slots did not take back, see MODE_STRANDED. */
	__u64 stranded;
	/* Limits and begins that the kernel did not ask for. */
	__u64 made_up;
	/* Numbers of connections: each has another with each slot that it gets. */
	__u64 numbers;
	/* Connections that got a slot later than with their begin. */
	__u64 regained;
	/* Refused connections of a uid that had its share (tcp_share.h). */
	__u64 beyond_share;
	/* All requests for a slot that failed, including requests after the begin. */
	__u64 in_vain;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct counters);
} counts SEC(".maps");

#define COUNT(name)                                                                                \
	({                                                                                         \
		__u32 zero = 0;                                                                    \
		struct counters *all = bpf_map_lookup_elem(&counts, &zero);                        \
		all ? __sync_fetch_and_add(&all->name, 1) + 1 : 0;                                 \
	})

static __always_inline struct flow *flow_of(struct sock *sk)
{
	return (struct flow *)tcp_sk(sk)->inet_conn.icsk_ca_priv;
}

static __always_inline __u32 now_of(struct tcp_sock *tp)
{
	return tp->tcp_mstamp;
}

/* The word of its slot; 0: it has none. */
static __always_inline __u64 *shown_mode(const struct flow *flow)
{
	__u32 index = flow->slot - 1;

	return flow->slot ? bpf_map_lookup_elem(&modes, &index) : 0;
}

/* Whether it has a slot, and the reader has not taken that back (Datapath::take_back). */
static __always_inline bool has_slot(const struct flow *flow)
{
	__u64 *shown = shown_mode(flow);

	return shown && *(volatile __u64 *)shown >> 32 == flow->generation;
}

/* Shows that a connection goes from `flow->mode` to the next; false: it has no slot, or the reader has
 * taken that back, perhaps just now. */
static __always_inline bool show_next(const struct flow *flow, __u8 next)
{
	__u64 *shown = shown_mode(flow), generation = (__u64)flow->generation << 32;

	return shown && __sync_bool_compare_and_swap(shown, generation | flow->mode, generation | next);
}

static __always_inline void set_mode(struct flow *flow, __u8 mode)
{
	show_next(flow, mode);
	flow->mode = mode;
}

/* Marks an event of the window: answers to earlier reports do not know of it. */
static __always_inline void happened(struct flow *flow, __u16 event)
{
	flow->events |= event;
	flow->barrier = flow->seq;
}

#endif
