/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Socket buffers, as programs at tc see them and as the kernel has them. The places of the kernel's own
 * fields are taken from the running kernel (CO-RE).
 */
#ifndef FOREBAY_SKB_H
#define FOREBAY_SKB_H

#include "messages.h"

#include <bpf/bpf_core_read.h>

/* Answer of a program at tc: pass the packet to the next program, or to the kernel (enum tcx_action_base). */
#define TCX_NEXT (-1)
/* Answer of a program at tc: drop the packet. */
#define TCX_DROP 2

/* Answer of a driver that takes no buffer now (enum netdev_tx, include/linux/netdevice.h). */
#define NETDEV_TX_BUSY 0x10

/*
 * Types of skb_shared_info.gso_type (include/linux/skbuff.h) that are not cut up right behind the headers of
 * TCP or UDP (tunnels, ESP, SCTP, fragments of UDP), or whose packets have headers of their own
 * (SKB_GSO_FRAGLIST).
 */
#define SKB_GSO_OTHERS (0x1ffe0U | 1U << 18)
/* Every packet has the identification of the first: until 6.17, and since. */
#define SKB_GSO_TCP_FIXEDID (1U << 3 | 1U << 30)

/* Stable (include/uapi/linux/bpf.h). Has the fields that we use, and the fields between. */
struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	/* A VLAN tag that is kept outside the frame. */
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
	__u32 tc_index;
	__u32 cb[5];
	__u32 hash;
	__u32 tc_classid;
	__u32 data;
	__u32 data_end;
	__u32 napi_id;
	__u32 family;
	__u32 remote_ip4;
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port;
	__u32 local_port;
	__u32 data_meta;
	__u64 flow_keys;
	__u64 tstamp;
	__u32 wire_len;
	__u32 gso_segs;
	/* The socket that the packet belongs to; none if it came in over a wire. */
	struct bpf_sock *sk;
};

struct bpf_dynptr {
	__u64 opaque[2];
} __attribute__((aligned(8)));

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct qdisc_skb_head {
	__u32 qlen;
};

struct gnet_stats_queue {
	__u32 backlog;
	__u32 drops;
};

/* Nested as in the kernel. */
struct u64_stats {
	__u64 v;
};

struct gnet_stats_basic_sync {
	struct u64_stats packets;
};

struct Qdisc {
	__u32 handle;
	struct qdisc_skb_head q;
	struct gnet_stats_basic_sync bstats;
	struct gnet_stats_queue qstats;
};

struct net_device {
	int ifindex;
	unsigned short type;
	struct Qdisc *qdisc;
	possible_net_t nd_net;
};

struct skb_shared_info {
	unsigned short gso_size;
	unsigned short gso_segs;
	unsigned int gso_type;
};

/* The part of skb->cb that is the qdisc's (include/net/sch_generic.h): `data` is the `cb` of struct __sk_buff. */
struct qdisc_skb_cb {
	unsigned int pkt_len;
	unsigned char data[20];
};

struct sk_buff {
	struct net_device *dev;
	char cb[48];
	unsigned int len;
	/* Bytes of the buffer that lie in other pieces than the first. */
	unsigned int data_len;
	__u32 priority;
	__u32 hash;
	__be16 protocol;
	/* Bytes in front of the IP header, as a program at the way in finds the buffer. */
	__u16 mac_len;
	unsigned int end;
	unsigned char *head;
	unsigned char *data;
};

/* Has only words: through it the verifier allows reads of kernel memory that it has no type for. */
struct rtnl_link_stats64 {
	__u64 rx_packets;
};

#pragma clang attribute pop

/*
 * Reads of a buffer whose bytes may lie in several pieces. Weak: a kernel without them refuses only the
 * programs that call them.
 */
extern int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags,
			       struct bpf_dynptr *dynptr) __ksym __weak;
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;
/* Compiled to plain loads by the verifier; reading an invalid address yields 0. */
extern void *bpf_rdonly_cast(const void *memory, __u32 type) __ksym __weak;

#define kernel_memory(type, at) \
	((const type *)bpf_rdonly_cast((const void *)(at), bpf_core_type_id_kernel(type)))

/* Bytes up to the end of a fixed IPv6 header behind tags, and of the type of an ICMPv6 message. */
#define HEADERS_LEN                                                                \
	(sizeof(struct ethhdr) + MAX_VLAN_TAGS * sizeof(struct vlan_tag) +         \
	 sizeof(struct ipv6hdr) + 1)

/* Reads the headers of a packet that may be of a bundle; false: no IP packet to one station, or neighbour
 * discovery. */
static __always_inline bool read_packet(struct __sk_buff *ctx, struct packet *packet)
{
	void *data = (void *)(long)ctx->data;
	void *data_end;

	/* Headers hardly ever lie elsewhere. */
	if (data + HEADERS_LEN > (void *)(long)ctx->data_end)
		bpf_skb_pull_data(ctx, ctx->len < HEADERS_LEN ? ctx->len : HEADERS_LEN);
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	return parse(data, data_end, ctx->len, packet) == PARSED_IP &&
	       !is_discovery(packet, data_end);
}

/* Reads the ports of a packet that may be a message. */
static __always_inline bool read_ports(struct __sk_buff *ctx, const struct packet *packet,
				       __be16 *ports)
{
	return has_ports(packet) &&
	       !bpf_skb_load_bytes(ctx, payload_at(packet), ports, 2 * sizeof(*ports));
}

/* As `read_packet`, where packets have no Ethernet header. */
static __always_inline bool read_bare_packet(struct __sk_buff *ctx, struct packet *packet)
{
	/* Bytes of an IPv6 header, and of the type of an ICMPv6 message. */
	const __u32 headers_len = sizeof(struct ipv6hdr) + 1;
	void *data = (void *)(long)ctx->data;
	void *data_end;

	if (data + headers_len > (void *)(long)ctx->data_end)
		bpf_skb_pull_data(ctx, ctx->len < headers_len ? ctx->len : headers_len);
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	return parse_bare(ctx->protocol, data, data_end, ctx->len, packet) == PARSED_IP &&
	       !is_discovery(packet, data_end);
}

/* A buffer as the kernel has it, and as the kind of program sees it. */
struct buffer {
	struct sk_buff *skb;
	struct __sk_buff *ctx;
};

/* A word of a frame; the same bytes may be looked at as headers. */
typedef __u64 __attribute__((may_alias)) word;

/* Words that are read at a time, at most. */
#define MOST_WORDS 5

/* Reads bytes wherever they lie. Not inlined: the programs would be twice as long. */
static __noinline bool copy_bytes(struct __sk_buff *ctx, __u32 at, word *words, __u32 len)
{
	struct bpf_dynptr frame;

	if (len > MOST_WORDS * sizeof(*words))
		return false;
	return !bpf_dynptr_from_skb(ctx, 0, &frame) &&
	       !bpf_dynptr_read(words, len, &frame, at, 0);
}

/*
 * Reads words from a place in the frame; behind its end they are anything. If all lie in the first piece, as
 * headers nearly always do, no call is made. On processors that must not predict returns (Safe RET), five or
 * six returns are in each read through a dynptr, and cost more than the hash of the packet.
 */
static __always_inline bool read_words(const struct buffer *of, __u32 at, word *words, __u32 count)
{
	__u32 len = of->skb->len, elsewhere = of->skb->data_len;
	const word *there;

	if (elsewhere && at + count * sizeof(*words) > len - elsewhere) {
		word copy[MOST_WORDS] = {};

		len = len - at < count * sizeof(*words) ? len - at : count * sizeof(*words);
		if (!copy_bytes(of->ctx, at, copy, len))
			return false;
#pragma unroll
		for (__u32 i = 0; i < count; i++)
			words[i] = copy[i];
		return true;
	}
	there = (const word *)kernel_memory(struct rtnl_link_stats64, of->skb->data + at);
#pragma unroll
	for (__u32 i = 0; i < MOST_WORDS; i++) {
		if (i >= count)
			break;
		words[i] = there[i];
		/* As a whole: each load is checked. */
		asm volatile("" : "+r"(words[i]));
	}
	return true;
}

struct gso {
	__u32 size;
	__u32 segs;
	__u32 type;
};

/* How the buffer is to be cut up; all zeros where it is one packet. */
static __always_inline struct gso gso_of(struct sk_buff *skb)
{
	const struct skb_shared_info *shared =
		kernel_memory(struct skb_shared_info, skb->head + skb->end);

	if (!shared->gso_size)
		return (struct gso){};
	return (struct gso){ shared->gso_size, shared->gso_segs, shared->gso_type };
}

#endif
