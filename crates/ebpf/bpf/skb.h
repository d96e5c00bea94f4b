/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Socket buffers, as programs at tc see them and as the kernel has them. The places of the kernel's own
 * fields are taken from the running kernel (CO-RE).
 */
#ifndef FOREBAY_SKB_H
#define FOREBAY_SKB_H

#include "packet.h"

#include <bpf/bpf_core_read.h>

/* What a program at tc answers so that the next one, or else the kernel, goes on (enum tcx_action_base). */
#define TCX_NEXT (-1)
/* ... and so that the buffer goes no further. */
#define TCX_DROP 2

/* What a driver answers that takes no buffer now (enum netdev_tx, include/linux/netdevice.h). */
#define NETDEV_TX_BUSY 0x10

/*
 * skb_shared_info.gso_type, include/linux/skbuff.h: not cut up right behind the headers of TCP or UDP (tunnels,
 * ESP, SCTP, fragments of UDP), or of packets with headers of their own (SKB_GSO_FRAGLIST).
 */
#define SKB_GSO_OTHERS (0x1ffe0U | 1U << 18)
/* Every packet has the identification of the first: until 6.17, and since. */
#define SKB_GSO_TCP_FIXEDID (1U << 3 | 1U << 30)

/* Stable (include/uapi/linux/bpf.h), as far as it is used: fields between these have their places here, too. */
struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	/* Of a tag that stands beside the frame and not in it. */
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
	/* What it belongs to; none if it came in over a wire. */
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

struct Qdisc {
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
};

struct net_device {
	int ifindex;
	struct Qdisc *qdisc;
	possible_net_t nd_net;
};

struct skb_shared_info {
	unsigned short gso_size;
	unsigned short gso_segs;
	unsigned int gso_type;
};

struct sk_buff {
	struct net_device *dev;
	unsigned int len;
	__u32 priority;
	unsigned int end;
	unsigned char *head;
};

#pragma clang attribute pop

/*
 * Reads of a buffer whose bytes may lie in several pieces. Weak: a kernel without them refuses the programs
 * that call them, and no others.
 */
extern int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags,
			       struct bpf_dynptr *dynptr) __ksym __weak;
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;

/* Bytes up to the end of a fixed IPv6 header behind tags, and of the type of an ICMPv6 message. */
#define HEADERS_LEN                                                                \
	(sizeof(struct ethhdr) + MAX_VLAN_TAGS * sizeof(struct vlan_tag) +         \
	 sizeof(struct ipv6hdr) + 1)

/* Reads the headers of what may be of a bundle; false: no IP packet to one station, or neighbour discovery. */
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

struct gso {
	__u32 size;
	__u32 segs;
	__u32 type;
};

/* How the buffer is to be cut up; all zeros where it is one packet. */
static __always_inline struct gso gso_of(struct sk_buff *skb)
{
	struct skb_shared_info *shared = (void *)(skb->head + skb->end);
	struct gso gso = {};
	unsigned short size = 0, segs = 0;

	/* Not by loads: the verifier knows nothing of what is behind the end. */
	bpf_core_read(&size, sizeof(size), &shared->gso_size);
	if (!size)
		return gso;
	bpf_core_read(&segs, sizeof(segs), &shared->gso_segs);
	bpf_core_read(&gso.type, sizeof(gso.type), &shared->gso_type);
	gso.size = size;
	gso.segs = segs;
	return gso;
}

#endif
