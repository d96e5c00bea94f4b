/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counts and samples a socket buffer as the packets that it becomes on the wire, or that it was merged of:
 * what crates/core/src/bundle/segments.rs does, and what a program finds that sees those packets one by one.
 * Of version 2 and later: the block of version 1 is not known before there is a packet.
 *
 * A super-packet that is neither TCP nor UDP right behind its IP header, as of a tunnel, or whose packets have
 * headers of their own (SKB_GSO_FRAGLIST), is counted as far as its bytes go and not sampled.
 */
#ifndef FOREBAY_SEGMENTS_H
#define FOREBAY_SEGMENTS_H

#include "block.h"
#include "bundles.h"
#include "skb.h"

/* More packets than one super-packet becomes: 64 KiB of 8 bytes each, which is the kernel's least. */
#define MAX_SEGMENTS 8192
/* Bytes of the transport's header, and of what is behind it, that can be in the block. */
#define TRANSPORT_BYTES 32

/* A buffer, and where its packets begin. */
struct cutting {
	struct __sk_buff *skb;
	/* After the addresses, which all packets have alike. */
	struct siphash addresses;
	/* As the first packet has them. */
	__u64 network;
	__u64 payload[PAYLOAD_WORDS];
	/* Counters as they were before the first packet. */
	struct boundary record;
	/* Bytes of VLAN tags, which are not counted. */
	__u32 tags_len;
	/* Other bytes in front of the data, and those of the transport's header among them. */
	__u32 header_len;
	__u32 transport_len;
	__u32 data_len;
	/* Data of a packet. */
	__u32 size;
	__u16 id;
	/* Bits of the network's word that have the identification, if each packet has the next one. */
	__u64 id_bits;
	bool is_tcp;
	bool is_udp;
	bool is_ce;
};

/* The first and the last eight bytes of the data of a UDP datagram. */
static __always_inline void read_data(struct cutting *it, __u32 offset, __u32 len, __u64 *words)
{
	struct bpf_dynptr frame;

	words[0] = words[1] = 0;
	if (bpf_dynptr_from_skb(it->skb, 0, &frame))
		return;
	offset += it->tags_len + it->header_len;
	if (len < 8) {
		bpf_dynptr_read(&words[0], len & 7, &frame, offset, 0);
		return;
	}
	bpf_dynptr_read(&words[0], 8, &frame, offset, 0);
	bpf_dynptr_read(&words[1], 8, &frame, offset + len - 8, 0);
}

/* Samples the packet `at`. */
static __always_inline void sample_segment(struct cutting *it, __u32 at)
{
	__u32 offset = at * it->size, len = it->data_len - offset;
	__u64 network = it->network, payload[PAYLOAD_WORDS];
	struct boundary *record = &it->record;

	if (len > it->size)
		len = it->size;
	payload[0] = it->payload[0];
	payload[1] = it->payload[1];
	payload[2] = it->payload[2];
	network = (network & ~it->id_bits) | (be16((__u16)(it->id + at)) & it->id_bits);
	network = (network & ~(0xffffULL << 48)) | (__u64)be16((__u16)(it->transport_len + len)) << 48;
	if (it->is_tcp && at) {
		__u32 sequence = __builtin_bswap32(payload[0] >> 32) + offset;

		payload[0] = (payload[0] & low_bytes(4)) | (__u64)__builtin_bswap32(sequence) << 32;
	}
	if (it->is_udp) {
		if (it->data_len > it->size)
			payload[0] = (payload[0] & low_bytes(4)) |
				     (__u64)be16((__u16)(UDP_HEADER + len)) << 32;
		read_data(it, offset, len, payload + 1);
	}
	record->hash = hash_rest(it->addresses, network, payload);
	record->received_bytes += it->header_len + len;
	record->received_packets += 1;
	record->received_ce += it->is_ce;
	if (!(record->hash & record->epoch_mask))
		tell(record);
	record->ahead_bytes += it->header_len + len;
}

static long sample_next(__u32 at, void *it)
{
	sample_segment(it, at);
	return 0;
}

/* Adds to the counters of a bundle, and puts them into the record as they were before. */
static __always_inline void reserve(struct counters *count, __u64 bytes, __u64 packets, __u64 ce,
				    struct boundary *before)
{
	bpf_spin_lock(&count->lock);
	before->received_bytes = count->bytes;
	before->received_packets = count->packets;
	before->received_ce = count->ce;
	count->bytes += bytes;
	count->packets += packets;
	count->ce += ce;
	bpf_spin_unlock(&count->lock);
}

/* Takes what the block has of the transport; false: the packets of this super-packet are not known. */
static __always_inline bool take_transport(struct cutting *it, const struct packet *packet,
					   const struct gso *gso, const __u64 *words)
{
	__u32 header_len = 0;

	it->payload[0] = words[0];
	it->payload[1] = words[1];
	it->payload[2] = words[2];
	if (begins_with(packet, IPPROTO_TCP, TCP_HEADER)) {
		header_len = tcp_header_len(words[1]);
		it->is_tcp = true;
		it->payload[1] = without_flags(words[1]);
		it->payload[2] = header_len >= TCP_STAMPED && packet->payload_len >= TCP_STAMPED ?
					 words[3] : 0;
		if (header_len < TCP_HEADER || header_len > packet->payload_len)
			header_len = 0;
	} else if (begins_with(packet, IPPROTO_UDP, UDP_HEADER)) {
		header_len = UDP_HEADER;
		it->is_udp = true;
		it->payload[0] = without_checksum(words[0]);
	}
	it->transport_len = header_len;
	it->header_len = packet->frame_len - packet->payload_len + header_len;
	it->data_len = packet->payload_len - header_len;
	it->size = it->data_len;
	if (!gso->size)
		return true;
	it->size = gso->size;
	if (packet->source.family == AF_INET && !(gso->type & SKB_GSO_TCP_FIXEDID))
		it->id_bits = 0xffff;
	return header_len && it->data_len && !(gso->type & SKB_GSO_OTHERS);
}

/* Reads what the block has of the transport; false as above, and where it cannot be read. */
static __always_inline bool read_transport(struct cutting *it, const struct packet *packet,
					   const struct gso *gso)
{
	__u64 words[TRANSPORT_BYTES / 8] = {};
	__u32 len = packet->payload_len;
	struct bpf_dynptr frame;

	if (len > TRANSPORT_BYTES)
		len = TRANSPORT_BYTES;
	if (bpf_dynptr_from_skb(it->skb, 0, &frame) ||
	    bpf_dynptr_read(words, len, &frame, payload_at(packet), 0))
		return false;
	return take_transport(it, packet, gso, words);
}

/*
 * Counts a buffer of the bundle in this slot, and samples what it is cut into; false: it was not sampled. `skb` is
 * what the kind of program has for the buffer, of which these are the headers.
 */
static __always_inline bool sample(struct __sk_buff *skb, const struct packet *packet,
				   const struct gso *gso, __u32 slot)
{
	struct bundle *bundle = bpf_map_lookup_elem(&bundles, &slot);
	struct counters *count = bpf_map_lookup_elem(&counters, &slot);
	struct cutting it = { .skb = skb };
	__u32 packets;

	if (!bundle || !count)
		return false;
	it.tags_len = packet->tags_len;
	it.id = be16(packet->id);
	it.is_ce = packet->ecn == INET_ECN_CE;
	if (!read_transport(&it, packet, gso)) {
		packets = gso->segs ? gso->segs : 1;
		reserve(count, packet->frame_len, packets, it.is_ce ? packets : 0, &it.record);
		return false;
	}
	packets = it.size ? (it.data_len + it.size - 1) / it.size : 1;
	it.record.received_at_ns = bpf_ktime_get_ns();
	it.record.epoch_mask = *(volatile __u64 *)&bundle->epoch_mask;
	it.record.bundle = bundle->id;
	it.network = network_word(packet, bundle->nat);
	it.addresses = hash_addresses(packet, bundle->key, bundle->nat);
	leave_out_nat(packet, it.payload, bundle->nat, it.is_tcp || it.is_udp);
	it.id_bits &= ~any_nat(bundle->nat);
	reserve(count, (__u64)packets * it.header_len + it.data_len, packets, it.is_ce ? packets : 0,
		&it.record);
	if (packets == 1)
		sample_segment(&it, 0);
	else
		bpf_loop(packets < MAX_SEGMENTS ? packets : MAX_SEGMENTS, sample_next, &it, 0);
	return true;
}

#endif
