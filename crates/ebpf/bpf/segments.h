/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counts and samples a socket buffer as the packets that it becomes on the wire, or that it was merged from.
 * The results equal the results of crates/core/src/bundle/path/segments.rs, and of a program that sees those
 * packets one by one. For version 2 and later of the block: version 1 is not known before there is a packet.
 *
 * A super-packet is counted by its bytes alone and not sampled in two cases: it is neither TCP nor UDP right
 * behind its IP header (a tunnel), or its packets have headers of their own (SKB_GSO_FRAGLIST).
 */
#ifndef FOREBAY_SEGMENTS_H
#define FOREBAY_SEGMENTS_H

#include "block.h"
#include "bundles.h"
#include "skb.h"

/* More packets than one super-packet becomes: 64 KiB with 8 bytes each, the least that the kernel allows. */
#define MAX_SEGMENTS 8192
/* Packets that are sampled in one call of the loop. */
#define AT_A_TIME 16
/* Words of the transport's header, and of the data behind it, that can be in the block. */
#define TRANSPORT_WORDS 4

/* A buffer, and where its packets begin. */
struct cutting {
	/* UDP: the whole frame, since its data hardly ever lies in one piece. */
	struct bpf_dynptr frame;
	/* Hash state after the addresses, which are equal in all packets. */
	struct siphash addresses;
	/* Words of the first packet. */
	__u64 network;
	__u64 payload[PAYLOAD_WORDS];
	/* UDP: the next bytes of the data. */
	__u64 next_data;
	/* Bits of the network's word that have the identification, if each packet has the next one. */
	__u64 id_bits;
	__u64 epoch_mask;
	/* Counters as they were before the first packet. */
	__u64 bytes;
	__u64 packets;
	__u64 ce;
	/* TCP: the sequence number of the first packet. */
	__u32 sequence;
	__u32 bundle;
	/* Bytes in front of the data without VLAN tags, bytes of the transport's header among them, and bytes of
	 * VLAN tags. */
	__u32 header_len;
	__u32 transport_len;
	__u32 tags_len;
	__u32 data_len;
	/* Data of a packet. */
	__u32 size;
	/* Packets. */
	__u32 count;
	__u16 id;
	bool is_tcp;
	bool is_udp;
	bool is_ce;
};

/*
 * SampleBlock::identity of a packet with these words behind its addresses. Neither static nor inlined: the
 * verifier checks such a function once, and not on each of a packet's ways to it.
 */
__noinline __u64 identity_of(__u64 network, __u64 payload0, __u64 payload1, __u64 payload2)
{
	__u64 payload[] = { payload0, payload1, payload2 };

	return hash_rest(siphash_begin(0, 0), network, payload, BLOCK_WORDS - ADDRESS_WORDS);
}

/* Records packet number `at`, with `len` bytes of data, as a boundary. */
static __always_inline void tell_packet(const struct cutting *it, __u32 at, __u32 len, __u64 hash,
					__u64 identity)
{
	__u64 ahead = (__u64)at * (it->header_len + it->size);
	struct boundary *record = begin_to_tell();

	if (!record)
		return;
	record->hash = hash;
	record->identity = identity;
	record->received_at_ns = bpf_ktime_get_ns();
	record->received_bytes = it->bytes + ahead + it->header_len + len;
	record->received_packets = it->packets + at + 1;
	record->received_ce = it->ce + (it->is_ce ? at + 1 : 0);
	record->ahead_bytes = ahead;
	record->epoch_mask = it->epoch_mask;
	record->bundle = it->bundle;
	bpf_ringbuf_submit(record, 0);
}

/* Samples packet number `at`, with `len` bytes of data and these words in its block. */
static __always_inline void sample_packet(const struct cutting *it, __u32 at, __u32 len,
					  __u64 network, const __u64 *payload)
{
	__u64 hash = hash_rest(it->addresses, network, payload, BLOCK_WORDS);

	if (!(hash & it->epoch_mask))
		tell_packet(it, at, len, hash, identity_of(network, payload[0], payload[1], payload[2]));
}

/* Bytes of data of a packet whose data begins at `offset`. */
static __always_inline __u32 segment_len(const struct cutting *it, __u32 offset)
{
	__u32 rest = it->data_len - offset;

	return rest < it->size ? rest : it->size;
}

/* The network's word of packet number `at` with `len` bytes of data. `it->network` has no length and no
 * identification. */
static __always_inline __u64 segment_network(const struct cutting *it, __u32 at, __u32 len)
{
	return it->network | (be16((__u16)(it->id + at)) & it->id_bits) |
	       (__u64)be16((__u16)(it->transport_len + len)) << 48;
}

static long sample_tcp(__u32 turn, struct cutting *it)
{
	__u32 at = turn * AT_A_TIME;

#pragma nounroll
	for (int i = 0; i < AT_A_TIME && at < it->count; i++, at++) {
		__u32 offset = at * it->size, len = segment_len(it, offset);
		__u64 payload[] = {
			it->payload[0] | (__u64)__builtin_bswap32(it->sequence + offset) << 32,
			it->payload[1],
			it->payload[2],
		};

		sample_packet(it, at, len, segment_network(it, at, len), payload);
	}
	return 0;
}

/* Where the last eight bytes of the data of a datagram lie in the frame. */
static __always_inline __u32 end_at(const struct cutting *it, __u32 offset, __u32 len)
{
	return it->tags_len + it->header_len + offset + len - sizeof(word);
}

/*
 * Takes the first and the last eight bytes of the data of a UDP datagram. `words` begins at the last eight;
 * its second word is the first of the next datagram.
 */
static __always_inline void take_data(struct cutting *it, __u32 len, const word *words,
				      __u64 *payload)
{
	payload[1] = it->next_data & low_bytes(len);
	payload[2] = len < sizeof(*words) ? 0 : words[0];
	it->next_data = words[1];
}

static long sample_udp(__u32 turn, struct cutting *it)
{
	__u32 at = turn * AT_A_TIME;

#pragma nounroll
	for (int i = 0; i < AT_A_TIME && at < it->count; i++, at++) {
		__u32 offset = at * it->size, len = segment_len(it, offset);
		__u32 rest = it->data_len - offset - len;
		__u64 payload[PAYLOAD_WORDS];
		word words[2] = {};

		payload[0] = it->payload[0] | (__u64)be16((__u16)(UDP_HEADER + len)) << 32;
		if (rest > sizeof(*words))
			rest = sizeof(*words);
		bpf_dynptr_read(words, sizeof(*words) + rest, &it->frame, end_at(it, offset, len), 0);
		take_data(it, len, words, payload);
		sample_packet(it, at, len, segment_network(it, at, len), payload);
	}
	return 0;
}

/* Samples the packets of a super-packet. */
static __always_inline void sample_segments(struct cutting *it, struct __sk_buff *ctx)
{
	__u32 turns = (it->count + AT_A_TIME - 1) / AT_A_TIME;

	it->network &= ~(it->id_bits | 0xffffULL << 48);
	it->sequence = __builtin_bswap32(it->payload[0] >> 32);
	it->payload[0] &= low_bytes(4);
	if (turns > MAX_SEGMENTS / AT_A_TIME)
		turns = MAX_SEGMENTS / AT_A_TIME;
	if (it->is_tcp)
		bpf_loop(turns, sample_tcp, it, 0);
	else if (!bpf_dynptr_from_skb(ctx, 0, &it->frame))
		bpf_loop(turns, sample_udp, it, 0);
}

/*
 * Adds the packets and bytes to the counters of a bundle, and keeps the counts from before them. `in_turn`:
 * buffers come one after the other and need no lock, which would cost nearly as much as all the rest. The
 * additions are atomic, for user space may set the counters to zero. User space may read the bytes of a
 * buffer before its packets are counted.
 */
static __always_inline void reserve(struct counters *count, __u64 bytes, struct cutting *it,
				    bool in_turn)
{
	__u32 ce = it->is_ce ? it->count : 0;

	if (in_turn) {
		it->bytes = __sync_fetch_and_add(&count->bytes, bytes);
		it->packets = __sync_fetch_and_add(&count->packets, it->count);
		it->ce = ce ? __sync_fetch_and_add(&count->ce, ce) : count->ce;
		return;
	}
	bpf_spin_lock(&count->lock);
	it->bytes = count->bytes;
	it->packets = count->packets;
	it->ce = count->ce;
	count->bytes += bytes;
	count->packets += it->count;
	count->ce += ce;
	bpf_spin_unlock(&count->lock);
}

/* Takes the transport's part of the block; false: the packets of this super-packet are not known. */
static __always_inline bool take_transport(struct cutting *it, const struct packet *packet,
					   const struct gso *gso, const word *words)
{
	__u32 header_len = 0;

	it->is_tcp = begins_with(packet, IPPROTO_TCP, TCP_HEADER);
	it->is_udp = begins_with(packet, IPPROTO_UDP, UDP_HEADER);
	if (it->is_tcp) {
		header_len = tcp_header_len(words[1]);
		it->payload[0] = words[0];
		it->payload[1] = without_flags(words[1]);
		it->payload[2] = header_len >= TCP_STAMPED && packet->payload_len >= TCP_STAMPED ?
					 words[3] : 0;
		if (header_len < TCP_HEADER || header_len > packet->payload_len)
			header_len = 0;
	} else if (it->is_udp) {
		header_len = UDP_HEADER;
		it->payload[0] = without_checksum(words[0]);
		it->next_data = words[1];
	} else {
#pragma unroll
		for (int i = 0; i < PAYLOAD_WORDS; i++)
			it->payload[i] = words[i] & low_bytes(packet->payload_len - 8 * i);
	}
	it->transport_len = header_len;
	it->header_len = packet->frame_len - packet->payload_len + header_len;
	it->data_len = packet->payload_len - header_len;
	it->size = it->data_len;
	it->id_bits = 0;
	if (!gso->size)
		return true;
	it->size = gso->size;
	if (packet->source.family == AF_INET && !(gso->type & SKB_GSO_TCP_FIXEDID))
		it->id_bits = 0xffff;
	return header_len && it->data_len && !(gso->type & SKB_GSO_OTHERS);
}

/* Reads the transport's part of the block; false as above, and where it cannot be read. */
static __always_inline bool read_transport(const struct buffer *of, struct cutting *it,
					   const struct packet *packet, const struct gso *gso)
{
	word words[TRANSPORT_WORDS];

	return read_words(of, payload_at(packet), words, TRANSPORT_WORDS) &&
	       take_transport(it, packet, gso, words);
}

/*
 * Counts a buffer of the bundle in this slot, and samples the packets that it is cut into; false: it was not
 * sampled. `packet`: its headers. `in_turn`: no other processor does so at the same time.
 */
static __always_inline bool sample(const struct buffer *of, const struct packet *packet,
				   const struct gso *gso, __u32 slot, bool in_turn)
{
	struct bundle *bundle = bpf_map_lookup_elem(&bundles, &slot);
	struct counters *count = bpf_map_lookup_elem(&counters, &slot);
	struct cutting it;

	if (!bundle || !count)
		return false;
	it.network = network_word(packet, bundle->nat);
	it.addresses = hash_addresses(packet, bundle->key, bundle->nat);
	it.tags_len = packet->tags_len;
	it.id = be16(packet->id);
	it.is_ce = packet->ecn == INET_ECN_CE;
	if (!read_transport(of, &it, packet, gso)) {
		it.count = gso->segs ? gso->segs : 1;
		reserve(count, packet->frame_len, &it, in_turn);
		return false;
	}
	it.count = gso->size ? (it.data_len + it.size - 1) / it.size : 1;
	it.epoch_mask = *(volatile __u64 *)&bundle->epoch_mask;
	it.bundle = bundle->id;
	leave_out_nat(packet, it.payload, bundle->nat, it.is_tcp || it.is_udp);
	it.id_bits &= ~any_nat(bundle->nat);
	reserve(count, (__u64)it.count * it.header_len + it.data_len, &it, in_turn);
	if (it.count > 1) {
		sample_segments(&it, of->ctx);
		return true;
	}
	if (it.is_udp) {
		word words[2] = {};

		read_words(of, end_at(&it, 0, it.data_len), words, 2);
		take_data(&it, it.data_len, words, it.payload);
	}
	sample_packet(&it, 0, it.data_len, it.network, it.payload);
	return true;
}

#endif
