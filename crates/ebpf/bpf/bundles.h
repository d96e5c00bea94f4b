/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Bundles: which bundle a packet belongs to, its counters, and the records of its boundaries.
 *
 * A packet belongs to the bundle that lists the longest destination prefix holding it, among the
 * bundles with a source prefix that holds it, as in crates/core/src/bundle/table.rs. Each destination
 * prefix has a number, and the sources of the bundles that list it are prefixes behind that number: two
 * lookups find the bundle, however many there are. Packets that a sendbox does not count belong to no bundle:
 * the boxes' messages, neighbour discovery, and packets from and to addresses that the sendbox leaves out.
 * Its own addresses are among these: their packets do not pass its LAN port.
 *
 * The counters of a bundle are one set under a spin lock, not a set per CPU and not atomics. A boundary's
 * record must say how many bytes, packets and marks had come when this packet was counted. All three counts
 * must be of the same packet, though packets of a bundle arrive on several CPUs. If they do, atomics would
 * move the same cache line. The lock costs 47 to 90 ns per packet, uncontended. Behind a qdisc, packets leave
 * one after the other, and the counters are atomics.
 */
#ifndef FOREBAY_BUNDLES_H
#define FOREBAY_BUNDLES_H

#include "block.h"
#include "messages.h"

#define MAX_BUNDLES 1024
#define MAX_PREFIXES 16384
/* A destination prefix and a source prefix of one bundle. */
#define MAX_PAIRS 65536
/* At most 64 sources and 64 destinations of each bundle. */
#define MAX_LEFT_OUT (2 * 64 * MAX_BUNDLES)
/* Destination prefixes that may lie inside each other; the loader refuses more. */
#define MAX_NESTING 4

struct destination {
	/* Length of this prefix, as in struct prefix. */
	__u32 length;
	__u32 number;
};

/* Key of an LPM trie: a source prefix of a bundle that lists a destination; `length` counts the bits of both. */
struct pair {
	__u32 length;
	__u32 destination;
	struct address source;
};

#define FULL_PAIR (FULL_PREFIX + 8 * sizeof(__u32))

struct bundle {
	__u64 key[2];
	/* Packets per epoch, a power of two, less one. */
	__u64 epoch_mask;
	__u32 id;
	/* Version of the sampling block: 1, or 2 and later. */
	__u32 version;
	/* Parts of sources and of destinations that the block leaves out: all bits or none (block.h). */
	__u64 nat[NAT_ENDS];
};

struct counters {
	struct bpf_spin_lock lock;
	__u32 unused;
	__u64 bytes;
	__u64 packets;
	__u64 ce;
};

struct boundary {
	__u64 hash;
	/* Distinguishes packets without the key; 0 from XDP, where no reader needs it. */
	__u64 identity;
	__u64 received_at_ns;
	__u64 received_bytes;
	__u64 received_packets;
	__u64 received_ce;
	/* Bytes of its super-packet in front of this packet: as many bytes more had to leave first. */
	__u64 ahead_bytes;
	__u32 epoch_mask;
	__u32 bundle;
};

/* The destination prefixes of all bundles, with room for those before and after a change together. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 2 * MAX_PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, struct destination);
} destinations SEC(".maps");

/* The slot of the bundle that lists both; as many fit. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 2 * MAX_PAIRS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pair);
	__type(value, __u32);
} pairs SEC(".maps");

/* An address whose packets a receivebox leaves out of the bundle in this slot, as its sendbox does. */
struct left_out {
	struct address address;
	__u32 slot;
	/* 1: packets from the address; 0: packets to it. */
	__u32 is_source;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_LEFT_OUT);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct left_out);
	__type(value, __u8);
} left_out SEC(".maps");

/* User space changes epoch sizes through mmap. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_BUNDLES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct bundle);
} bundles SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_BUNDLES);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

/* 3640 records, each with a head of 8 bytes: enough for a second at 3.6 thousand boundaries per second. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} boundaries SEC(".maps");

/* Boundaries that found the ring full. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

/* The slot of the packet's bundle; negative: none. */
static __always_inline int find_bundle(const struct packet *packet)
{
	struct prefix key = { .length = FULL_PREFIX, .address = packet->destination };
	struct pair pair = { .length = FULL_PAIR, .source = packet->source };

	for (int level = 0; level < MAX_NESTING; level++) {
		const struct destination *to = bpf_map_lookup_elem(&destinations, &key);
		const __u32 *slot;

		if (!to)
			return -1;
		pair.destination = to->number;
		slot = bpf_map_lookup_elem(&pairs, &pair);
		if (slot)
			return *slot;
		key.length = to->length - 1;
	}
	return -1;
}

static __always_inline bool is_left_out(const struct address *address, int slot, __u32 is_source)
{
	struct left_out key = { *address, slot, is_source };

	return bpf_map_lookup_elem(&left_out, &key);
}

/*
 * The slot of the bundle that a receivebox counts this packet in; negative: none. The caller has to leave
 * messages out.
 */
static __always_inline int bundle_of(const struct packet *packet)
{
	int slot = find_bundle(packet);

	if (slot < 0 || is_left_out(&packet->destination, slot, 0) ||
	    is_left_out(&packet->source, slot, 1))
		return -1;
	return slot;
}

static __always_inline void count_loss(void)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&lost, &zero);

	if (count)
		*count += 1;
}

/* A record to be filled in. Submitting it wakes the reader only if that has read everything before, as it
 * mostly has. */
static __always_inline struct boundary *begin_to_tell(void)
{
	struct boundary *record = bpf_ringbuf_reserve(&boundaries, sizeof(*record), 0);

	if (!record)
		count_loss();
	return record;
}

#endif
