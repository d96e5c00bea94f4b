/* SPDX-License-Identifier: GPL-2.0 */
/*
 * IP packets in Ethernet frames: headers, addresses as map keys, longest prefixes.
 */
#ifndef FOREBAY_PACKET_H
#define FOREBAY_PACKET_H

#include "kernel.h"

#define AF_INET 2
#define AF_INET6 10

#define ETH_P_IP 0x0800
#define ETH_P_8021Q 0x8100
#define ETH_P_IPV6 0x86dd
#define ETH_P_MPLS_UC 0x8847
#define ETH_P_MPLS_MC 0x8848
#define ETH_P_PPP_SES 0x8864
#define ETH_P_8021AD 0x88a8
/* The tag of providers before IEEE 802.1ad, which is still met. */
#define ETH_P_QINQ1 0x9100
/* A customer's tag and a provider's. */
#define MAX_VLAN_TAGS 2
#define IPPROTO_HOPOPTS 0
#define IPPROTO_ICMP 1
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_FRAGMENT 44
#define IPPROTO_ICMPV6 58
#define INET_ECN_CE 3

#define TCP_HEADER 20
#define UDP_HEADER 8
/* More-fragments flag and fragment offset: a router may change neither, but may clear DF. */
#define FRAGMENT_MASK 0x3fff

/* ICMPv6 133 to 137: neighbour discovery and redirects (RFC 4861 section 4). */
#define ND_FIRST 133
#define ND_LAST 137

/* Addresses of the box itself, and of 1,024 bundles' peers, eight for each name. */
#define MAX_OWN 16384

#define be16(x) __builtin_bswap16(x)

struct ethhdr {
	__u8 h_dest[6];
	__u8 h_source[6];
	__be16 h_proto;
} __attribute__((packed));

/* Behind an EtherType of VLAN tags. */
struct vlan_tag {
	__be16 tci;
	__be16 proto;
} __attribute__((packed));

struct iphdr {
	__u8 version_ihl;
	__u8 tos;
	__be16 tot_len;
	__be16 id;
	__be16 frag_off;
	__u8 ttl;
	__u8 protocol;
	__u16 check;
	__be32 saddr;
	__be32 daddr;
};

struct ipv6hdr {
	__u8 version_class;
	__u8 class_flow;
	__be16 flow;
	__be16 payload_len;
	__u8 nexthdr;
	__u8 hop_limit;
	__be64 saddr[2];
	__be64 daddr[2];
} __attribute__((packed));

/*
 * An address of either family as a key. An IPv4 address fills the first four bytes. The family
 * keeps the two families apart, so that the IPv6 prefix ::/0 holds no IPv4 address.
 */
struct address {
	__u32 family;
	__be32 word[4];
};

/* Key of an LPM trie; `length` counts the bits of the family too. */
struct prefix {
	__u32 length;
	struct address address;
};

#define FULL_PREFIX (8 * sizeof(struct address))

struct packet {
	struct address source;
	struct address destination;
	/* After the IPv4 header with its options, or after the fixed IPv6 header. */
	void *payload;
	/* The frame holds all of the payload, and Ethernet padding after it. */
	__u16 payload_len;
	/*
	 * Bytes of the frame without VLAN tags, which switches add and remove, and without padding, which not every
	 * device adds. Includes an Ethernet header even if the packet has none: boxes with and without one count
	 * alike.
	 */
	__u32 frame_len;
	/* As on the wire; zero for IPv6. */
	__be16 id;
	__be16 frag_off;
	/* IPv4 protocol, or next header of the fixed IPv6 header. */
	__u8 protocol;
	__u8 ecn;
	/* Bytes of VLAN tags in front of the IP header; without an Ethernet header, minus the bytes of one. */
	__s8 tags_len;
};

enum parsed {
	/* An IP packet to one station, behind up to two VLAN tags. */
	PARSED_IP,
	/* Something else, such as ARP, or a frame to a group (multicast, broadcast). */
	PARSED_OTHER,
	/* An IP packet whose headers contradict themselves or are cut off. */
	PARSED_MALFORMED,
	/* Frames that may hold an IP packet, which is not looked for. */
	PARSED_MPLS,
	PARSED_PPPOE,
};

/* `ip`: where the header begins, in a frame of `len` bytes without its tags. */
static __always_inline enum parsed parse_ipv4(struct iphdr *ip, void *data_end, __u64 len,
					     struct packet *packet)
{
	__u32 header_len, total_len;

	if ((void *)(ip + 1) > data_end)
		return PARSED_MALFORMED;
	header_len = (ip->version_ihl & 0x0f) * 4;
	total_len = be16(ip->tot_len);
	if (ip->version_ihl >> 4 != 4 || header_len < sizeof(*ip) || total_len < header_len)
		return PARSED_MALFORMED;

	packet->source = (struct address){ AF_INET, { ip->saddr } };
	packet->destination = (struct address){ AF_INET, { ip->daddr } };
	packet->payload = (void *)ip + header_len;
	packet->payload_len = total_len - header_len;
	/* In numbers, not pointers: verifiers up to 6.1 lose the bounds of the length. */
	packet->frame_len = sizeof(struct ethhdr) + total_len;
	if (packet->frame_len > len)
		return PARSED_MALFORMED;
	packet->id = ip->id;
	packet->frag_off = ip->frag_off;
	packet->protocol = ip->protocol;
	packet->ecn = ip->tos & 3;
	return PARSED_IP;
}

static __always_inline enum parsed parse_ipv6(struct ipv6hdr *ip, void *data_end, __u64 len,
					     struct packet *packet)
{
	if ((void *)(ip + 1) > data_end || ip->version_class >> 4 != 6)
		return PARSED_MALFORMED;

	packet->source.family = AF_INET6;
	__builtin_memcpy(packet->source.word, ip->saddr, sizeof(ip->saddr));
	packet->destination.family = AF_INET6;
	__builtin_memcpy(packet->destination.word, ip->daddr, sizeof(ip->daddr));
	packet->payload = ip + 1;
	packet->payload_len = be16(ip->payload_len);
	packet->frame_len = sizeof(struct ethhdr) + sizeof(*ip) + packet->payload_len;
	if (packet->frame_len > len)
		return PARSED_MALFORMED;
	/* A jumbogram says its length in an option (RFC 2675). */
	if (!packet->payload_len && ip->nexthdr == IPPROTO_HOPOPTS)
		packet->frame_len = len;
	packet->id = 0;
	packet->frag_off = 0;
	packet->protocol = ip->nexthdr;
	packet->ecn = ip->class_flow >> 4 & 3;
	return PARSED_IP;
}

/* 1 for a VLAN tag and 0 otherwise, without branches: the verifier would follow all later code once for
 * each. */
static __always_inline __u64 is_tag(__be16 proto)
{
	__u64 product = (__u64)(proto ^ be16(ETH_P_8021Q)) * (proto ^ be16(ETH_P_8021AD)) *
			(proto ^ be16(ETH_P_QINQ1));

	asm volatile("" : "+r"(product));
	return (product - 1) >> 63;
}

/* Bytes of VLAN tags whose EtherTypes begin at `proto`, where there is room for all that may be. */
static __always_inline __u64 tags_len(const __be16 *proto)
{
	const int tag = sizeof(struct vlan_tag) / sizeof(*proto);
	__u64 first = is_tag(proto[0]);

	return sizeof(struct vlan_tag) * (first + (first & is_tag(proto[tag])));
}

/* Reads the header that the EtherType in front of it announces, in a frame of `len` bytes without its
 * tags. */
static __always_inline enum parsed parse_behind(__be16 proto, void *header, void *data_end,
						__u64 len, struct packet *packet)
{
	switch (proto) {
	case be16(ETH_P_IP):
		return parse_ipv4(header, data_end, len, packet);
	case be16(ETH_P_IPV6):
		return parse_ipv6(header, data_end, len, packet);
	case be16(ETH_P_MPLS_UC):
	case be16(ETH_P_MPLS_MC):
		return PARSED_MPLS;
	case be16(ETH_P_PPP_SES):
		return PARSED_PPPOE;
	default:
		return PARSED_OTHER;
	}
}

/* Reads the headers at `data`, of a frame of `len` bytes that may go on elsewhere behind `data_end`. */
static __always_inline enum parsed parse(void *data, void *data_end, __u64 len,
					 struct packet *packet)
{
	struct ethhdr *eth = data;
	__be16 *proto;
	__u64 tags;

	/* Even the shortest IP packet has room for tags. */
	if ((void *)(eth + 1) + MAX_VLAN_TAGS * sizeof(struct vlan_tag) > data_end ||
	    eth->h_dest[0] & 1)
		return PARSED_OTHER;
	proto = data + sizeof(*eth) - sizeof(*proto);
	tags = tags_len(proto);
	proto = (void *)proto + tags;
	if ((void *)(proto + 1) > data_end)
		return PARSED_OTHER;
	packet->tags_len = tags;
	return parse_behind(*proto, proto + 1, data_end, len - tags, packet);
}

/* As `parse`, for a packet of `len` bytes without an Ethernet header, whose EtherType the kernel gives. */
static __always_inline enum parsed parse_bare(__be16 proto, void *data, void *data_end, __u64 len,
					      struct packet *packet)
{
	packet->tags_len = -(int)sizeof(struct ethhdr);
	return parse_behind(proto, data, data_end, len + sizeof(struct ethhdr), packet);
}

/* Where in the frame, with its tags, the payload begins. */
static __always_inline __u32 payload_at(const struct packet *packet)
{
	return packet->tags_len + packet->frame_len - packet->payload_len;
}

/* For IPv4: a fragment of IPv6 has a header of its own. */
static __always_inline bool is_fragment(const struct packet *packet)
{
	return packet->frag_off & be16(FRAGMENT_MASK);
}

/* Whether the packet begins with the header of its transport; a fragment does not. */
static __always_inline bool begins_with(const struct packet *packet, __u8 protocol, __u32 header_len)
{
	return packet->protocol == protocol && packet->payload_len >= header_len &&
	       !is_fragment(packet);
}

/* Neighbour discovery belongs to the link and to no bundle, though both ends may have addresses of one. */
static __always_inline bool is_discovery(const struct packet *packet, void *data_end)
{
	__u8 *type = packet->payload;

	if (packet->source.family != AF_INET6 || packet->protocol != IPPROTO_ICMPV6)
		return false;
	return (void *)(type + 1) <= data_end && *type >= ND_FIRST && *type <= ND_LAST;
}

/* The value of the longest prefix in `trie` that holds `address`. */
static __always_inline void *longest_prefix(void *trie, const struct address *address)
{
	struct prefix key = { .length = FULL_PREFIX, .address = *address };

	return bpf_map_lookup_elem(trie, &key);
}

#endif
