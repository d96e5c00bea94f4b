// SPDX-License-Identifier: GPL-2.0
/*
 * The sampler behind the merging of packets: at the way in of a device (tcx), where packets that came in one
 * by one have become super-packets (GRO). It only watches: every packet goes on.
 *
 * Here packets of devices without Ethernet headers are sampled, too (tun, WireGuard, PPP, IP tunnels). They
 * are counted as if they had an Ethernet header: the sampling block has no part of it.
 */
#include "segments.h"

/* Kinds of devices whose packets have Ethernet headers (include/uapi/linux/if_arp.h). */
#define ARPHRD_ETHER 1
#define ARPHRD_LOOPBACK 772
/* More than any tunnel leaves in front of a packet: the outer IPv6 header, and a GRE header with all
 * options. */
#define MOST_IN_FRONT 64

static __always_inline bool is_ethernet(const struct net_device *dev)
{
	return dev->type == ARPHRD_ETHER || dev->type == ARPHRD_LOOPBACK;
}

/*
 * As `read_packet`, for a packet behind `at` bytes that are no Ethernet header. Not inlined, like the next
 * one, so that the stack has room for the rest of the program.
 */
static __noinline bool read_behind(struct __sk_buff *ctx, __u32 at, struct packet *packet)
{
	/* Of an IPv6 header, and of the type of an ICMPv6 message. */
	const __u32 headers_len = sizeof(struct ipv6hdr) + 1;
	void *data = (void *)(long)ctx->data;
	void *data_end;
	__u32 len = ctx->len;

	if (at > MOST_IN_FRONT || at > len)
		return false;
	if (data + at + headers_len > (void *)(long)ctx->data_end)
		bpf_skb_pull_data(ctx, len < at + headers_len ? len : at + headers_len);
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	if (parse_bare(ctx->protocol, data + at, data_end, len - at, packet) != PARSED_IP)
		return false;
	packet->tags_len += at;
	return !is_discovery(packet, data_end);
}

static __noinline bool is_message_here(struct __sk_buff *ctx, const struct packet *packet)
{
	__be16 ports[2];

	return read_ports(ctx, packet, ports) && is_message_to(packet, ports);
}

SEC("tcx/ingress")
int merged(struct __sk_buff *ctx)
{
	struct buffer of = { bpf_cast_to_kern_ctx(ctx), ctx };
	struct packet packet;
	struct gso gso;
	int slot;

	if (!(is_ethernet(of.skb->dev) ? read_packet(ctx, &packet) :
					 read_behind(ctx, of.skb->mac_len, &packet)))
		return TCX_NEXT;
	slot = bundle_of(&packet);
	if (slot < 0 || is_message_here(ctx, &packet))
		return TCX_NEXT;
	gso = gso_of(of.skb);
	sample(&of, &packet, &gso, slot, false);
	return TCX_NEXT;
}

char LICENSE[] SEC("license") = "GPL";
