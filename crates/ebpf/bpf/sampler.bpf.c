// SPDX-License-Identifier: GPL-2.0
/*
 * Counts the packets of bundles on the device where they arrive, and reports those that close an
 * epoch. It only watches: every frame passes.
 *
 * A packet belongs to the bundle that lists the longest destination prefix holding it, among the
 * bundles with a source prefix that holds it, as in crates/core/src/bundle/table.rs. What a sendbox
 * does not count belongs to none: packets to the box's address for messages, neighbour discovery,
 * and packets of the sendbox's own, which do not pass its LAN port.
 *
 * The counters of a bundle are one set under a spin lock, not a set per CPU and not atomics: a
 * boundary's record must say how many bytes, packets and marks had come when this packet was
 * counted, all three as of the same packet, though packets of a bundle arrive on several CPUs.
 * Where they do, atomics would move the same cache line. It costs 47 ns per packet, uncontended.
 */
#include "packet.h"
#include "siphash.h"

#define MAX_BUNDLES 256
#define MAX_PREFIXES 4096
/* 64 addresses of each bundle's sendbox. */
#define MAX_SENDERS (64 * MAX_BUNDLES)
/* Destination prefixes that may lie inside each other; the loader refuses more. */
#define MAX_NESTING 4
/* Bytes of IP payload in the sampling block. */
#define SAMPLED_PAYLOAD 24
/* More-fragments flag and fragment offset: a router may change neither, but may clear DF. */
#define FRAGMENT_MASK 0x3fff

/* Bundles by their slot. */
struct members {
	__u64 word[MAX_BUNDLES / 64];
};

struct destination {
	/* Length of this prefix, as in struct prefix. */
	__u32 length;
	__u32 unused;
	struct members members;
};

struct bundle {
	__u64 key[2];
	/* Packets per epoch, a power of two, less one. */
	__u64 epoch_mask;
	__u64 id;
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
	__u64 received_at_ns;
	__u64 received_bytes;
	__u64 received_packets;
	__u64 received_ce;
	__u32 epoch_mask;
	__u32 bundle;
};

/* Bundles that list exactly this destination prefix. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, MAX_PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, struct destination);
} destinations SEC(".maps");

/* Bundles that list this source prefix or one that holds it. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, MAX_PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, struct members);
} sources SEC(".maps");

/* Where the box takes messages. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct address);
	__type(value, __u8);
} own SEC(".maps");

/* An address of the sendbox of the bundle in this slot. */
struct sender {
	struct address address;
	__u32 slot;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SENDERS);
	__type(key, struct sender);
	__type(value, __u8);
} senders SEC(".maps");

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

/* 4681 records: a second's worth at 4.6 thousand boundaries a second. */
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

/* The lowest bit that is set. clang 14 crashes on __builtin_ctzll for BPF. */
static __always_inline int lowest_bit(__u64 word)
{
	int bit = 0;

#pragma unroll
	for (int half = 32; half; half /= 2) {
		if (!(word & ((1ULL << half) - 1))) {
			word >>= half;
			bit += half;
		}
	}
	return bit;
}

/* The slot of the packet's bundle; negative: none. */
static __always_inline int find_bundle(const struct packet *packet)
{
	struct prefix key = { .length = FULL_PREFIX, .address = packet->destination };
	const struct members *from = 0;

	for (int level = 0; level < MAX_NESTING; level++) {
		const struct destination *to = bpf_map_lookup_elem(&destinations, &key);

		if (!to)
			return -1;
		if (!from)
			from = longest_prefix(&sources, &packet->source);
		if (!from)
			return -1;
#pragma unroll
		for (int i = 0; i < MAX_BUNDLES / 64; i++) {
			__u64 both = to->members.word[i] & from->word[i];

			if (both)
				return i * 64 + lowest_bit(both);
		}
		key.length = to->length - 1;
	}
	return -1;
}

/* Whether the sendbox of the bundle has sent the packet itself. */
static __always_inline bool is_of_sendbox(const struct packet *packet, int slot)
{
	struct sender sender = { .address = packet->source, .slot = slot };

	return bpf_map_lookup_elem(&senders, &sender);
}

/* The low `bytes` bytes of a word, 0 to 8. */
static __always_inline __u64 low_bytes(int bytes)
{
	if (bytes <= 0)
		return 0;
	return bytes >= 8 ? ~0ULL : (1ULL << 8 * bytes) - 1;
}

/* The first bytes of the IP payload, zero-padded; Ethernet padding is not read. */
static __always_inline void payload_words(const struct packet *packet, void *data_end, __u64 *words)
{
	const __u8 *payload = packet->payload;

	if ((void *)payload + SAMPLED_PAYLOAD <= data_end) {
#pragma unroll
		for (int i = 0; i < SAMPLED_PAYLOAD / 8; i++)
			words[i] = ((const __u64 *)payload)[i] &
				   low_bytes(packet->payload_len - 8 * i);
		return;
	}
#pragma unroll
	for (int i = 0; i < SAMPLED_PAYLOAD / 8; i++)
		words[i] = 0;
#pragma unroll
	for (int i = 0; i < SAMPLED_PAYLOAD; i++) {
		if (i >= packet->payload_len || (void *)payload + i + 1 > data_end)
			break;
		words[i / 8] |= (__u64)payload[i] << 8 * (i % 8);
	}
}

static __always_inline void address_words(const struct address *address, __u64 *words)
{
	if (address->family == AF_INET) {
		/* ::ffff:a.b.c.d */
		words[0] = 0;
		words[1] = (__u64)address->word[0] << 32 | 0xffff0000;
	} else {
		words[0] = (__u64)address->word[1] << 32 | address->word[0];
		words[1] = (__u64)address->word[3] << 32 | address->word[2];
	}
}

/* The sampling hash; the block's layout is that of crates/core/src/bundle/sample.rs. */
static __always_inline __u64 sampling_hash(const struct packet *packet, void *data_end,
					   const struct bundle *bundle)
{
	__u64 block[SIPHASH_WORDS];

	address_words(&packet->source, block);
	address_words(&packet->destination, block + 2);
	block[4] = packet->id | (__u64)(packet->frag_off & be16(FRAGMENT_MASK)) << 16 |
		   (__u64)packet->protocol << 32 | (__u64)be16(packet->payload_len) << 48;
	payload_words(packet, data_end, block + 5);
	return siphash13(block, bundle->key[0], bundle->key[1]);
}

static __always_inline void count_loss(void)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&lost, &zero);

	if (count)
		*count += 1;
}

/* Wakes the reader only if it has read everything before, which is most of the time. Not inlined: BTF has
 * the structures of a function's arguments, and so has the skeleton. */
static __noinline void tell(const struct boundary *record)
{
	struct boundary *slot = bpf_ringbuf_reserve(&boundaries, sizeof(*slot), 0);

	if (!slot) {
		count_loss();
		return;
	}
	*slot = *record;
	bpf_ringbuf_submit(slot, 0);
}

SEC("xdp")
int sampler(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct boundary record = {};
	struct counters *count;
	struct bundle *bundle;
	struct packet packet;
	__u32 index, mask;
	int found;

	if (parse(data, data_end, &packet) != PARSED_IP || is_discovery(&packet, data_end))
		return XDP_PASS;
	found = find_bundle(&packet);
	if (found < 0 || bpf_map_lookup_elem(&own, &packet.destination) ||
	    is_of_sendbox(&packet, found))
		return XDP_PASS;
	index = found;
	bundle = bpf_map_lookup_elem(&bundles, &index);
	count = bpf_map_lookup_elem(&counters, &index);
	if (!bundle || !count)
		return XDP_PASS;

	record.hash = sampling_hash(&packet, data_end, bundle);
	mask = *(volatile __u64 *)&bundle->epoch_mask;

	/* No helper may be called under the lock, so that the clock is read before. */
	if (!(record.hash & mask))
		record.received_at_ns = bpf_ktime_get_ns();
	bpf_spin_lock(&count->lock);
	record.received_bytes = count->bytes += packet.frame_len;
	record.received_packets = count->packets += 1;
	record.received_ce = count->ce += packet.ecn == INET_ECN_CE;
	bpf_spin_unlock(&count->lock);
	if (record.hash & mask)
		return XDP_PASS;

	record.epoch_mask = mask;
	record.bundle = bundle->id;
	tell(&record);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
