/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The sampling block and its hash, with the layout of crates/core/src/bundle/path/sample.rs.
 */
#ifndef FOREBAY_BLOCK_H
#define FOREBAY_BLOCK_H

#include "packet.h"
#include "siphash.h"

/* Words of the block, of its addresses, and of its IP payload. */
#define BLOCK_WORDS 8
#define ADDRESS_WORDS 4
#define PAYLOAD_WORDS 3
/*
 * Versions 3 to 5 are version 2 without the fields that NAT changes: of sources, of destinations, or of both.
 * Each end has a word, all of whose bits are set where NAT changes it: with masks instead of branches the
 * verifier has few paths.
 */
#define NAT_ENDS 2
/* Bytes of a TCP header up to the end of timestamps that stand as RFC 7323 appendix A advises. */
#define TCP_STAMPED 32

/* The low `bytes` bytes of a word, 0 to 8. */
static __always_inline __u64 low_bytes(int bytes)
{
	if (bytes <= 0)
		return 0;
	return bytes >= 8 ? ~0ULL : (1ULL << 8 * bytes) - 1;
}

/* The second word of a TCP header without the header's length and the flags. */
static __always_inline __u64 without_flags(__u64 word)
{
	return word & ~(0xffffULL << 32);
}

/* Bytes of a TCP header, from its second word. */
static __always_inline __u32 tcp_header_len(__u64 word)
{
	return (word >> 36 & 0xf) * 4;
}

/* The first word of a UDP header, which is the header, without the checksum. */
static __always_inline __u64 without_checksum(__u64 word)
{
	return word & low_bytes(6);
}

/* The two words of an address. */
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

/* All bits, if NAT changes anything. */
static __always_inline __u64 any_nat(const __u64 *nat)
{
	return nat[0] | nat[1];
}

static __always_inline __u64 network_word(const struct packet *packet, const __u64 *nat)
{
	__u64 fragment = packet->frag_off & be16(FRAGMENT_MASK);
	__u64 is_whole = fragment;

	asm volatile("" : "+r"(is_whole));
	is_whole = (is_whole - 1) >> 63;
	return (packet->id & ~(any_nat(nat) & -is_whole)) | fragment << 16 |
	       (__u64)packet->protocol << 32 | (__u64)be16(packet->payload_len) << 48;
}

/* Clears the fields that NAT changes in the words of the IP payload; `has_ports`: they begin with TCP or UDP
 * ports. */
static __always_inline void leave_out_nat(const struct packet *packet, __u64 *words,
					  const __u64 *nat, bool has_ports)
{
	__u64 any = any_nat(nat);

	if (has_ports) {
		words[0] &= ~((nat[0] & 0xffff) | (nat[1] & 0xffff0000));
	} else if (is_fragment(packet)) {
		words[0] &= ~any;
		words[1] &= ~any;
		words[2] &= ~any;
	} else if (packet->protocol == IPPROTO_ICMP || packet->protocol == IPPROTO_ICMPV6) {
		words[0] &= ~(any & 0xffffffffULL << 16);
	} else if (packet->protocol == IPPROTO_FRAGMENT) {
		words[1] &= ~any;
		words[2] &= ~any;
	}
}

/* The state after the addresses of a packet, under the key of its bundle. */
static __always_inline struct siphash hash_addresses(const struct packet *packet, const __u64 *key,
						     const __u64 *nat)
{
	struct siphash state = siphash_begin(key[0], key[1]);
	__u64 words[ADDRESS_WORDS];

	address_words(&packet->source, words);
	address_words(&packet->destination, words + 2);
#pragma unroll
	for (int i = 0; i < ADDRESS_WORDS; i++)
		siphash_word(&state, words[i] & ~nat[i / 2]);
	return state;
}

/* The hash of the words behind the addresses, from the state after the addresses; `words`: words of the whole
 * block. */
static __always_inline __u64 hash_rest(struct siphash state, __u64 network, const __u64 *payload,
				       int words)
{

	siphash_word(&state, network);
#pragma unroll
	for (int i = 0; i < PAYLOAD_WORDS; i++)
		siphash_word(&state, payload[i]);
	return siphash_end(state, words);
}

/* Up to 8 of the `len` bytes that begin at `from`, zero-padded. */
static __always_inline __u64 word_of(const __u8 *from, int len, void *data_end)
{
	__u64 word = 0;

	if ((void *)from + 8 <= data_end)
		return *(const __u64 *)from & low_bytes(len);
#pragma unroll
	for (int i = 0; i < 8; i++) {
		if (i >= len || (void *)from + i + 1 > data_end)
			break;
		word |= (__u64)from[i] << 8 * i;
	}
	return word;
}

/*
 * The last 8 of the `len` bytes, 8 at least, that begin at `from`. The bound, which only a frame in
 * more than one piece exceeds, is for the verifier.
 */
static __always_inline __u64 last_word(const __u8 *from, __u32 len, void *data_end)
{
	const __u8 *last = from + ((len - 8) & 0x3fff);

	if ((void *)last + 8 > data_end)
		return 0;
	return *(const __u64 *)last;
}

/* Words of version 2 for TCP and UDP; false for any other packet. The frame is in one piece. */
static __always_inline bool transport_words(const struct packet *packet, void *data_end,
					    __u64 *words)
{
	const __u8 *payload = packet->payload;
	int len = packet->payload_len;

	if (begins_with(packet, IPPROTO_TCP, TCP_HEADER)) {
		__u64 second = word_of(payload + 8, len - 8, data_end);

		words[0] = word_of(payload, len, data_end);
		words[1] = without_flags(second);
		words[2] = 0;
		if (tcp_header_len(second) >= TCP_STAMPED && len >= TCP_STAMPED)
			words[2] = word_of(payload + 24, len - 24, data_end);
		return true;
	}
	if (begins_with(packet, IPPROTO_UDP, UDP_HEADER)) {
		words[0] = without_checksum(word_of(payload, len, data_end));
		words[1] = word_of(payload + UDP_HEADER, len - UDP_HEADER, data_end);
		words[2] = len >= UDP_HEADER + 8 ? last_word(payload, len, data_end) : 0;
		return true;
	}
	return false;
}

/* The sampling hash of a packet in one piece; Ethernet padding is not read. */
static __always_inline __u64 sampling_hash(const struct packet *packet, void *data_end,
					   const __u64 *key, __u32 version, const __u64 *nat)
{
	const __u8 *payload = packet->payload;
	__u64 words[PAYLOAD_WORDS];
	struct siphash addresses;
	bool has_ports = version != 1 && transport_words(packet, data_end, words);

	if (!has_ports) {
#pragma unroll
		for (int i = 0; i < PAYLOAD_WORDS; i++)
			words[i] = word_of(payload + 8 * i, packet->payload_len - 8 * i, data_end);
	}
	leave_out_nat(packet, words, nat, has_ports);
	addresses = hash_addresses(packet, key, nat);
	return hash_rest(addresses, network_word(packet, nat), words, BLOCK_WORDS);
}

#endif
