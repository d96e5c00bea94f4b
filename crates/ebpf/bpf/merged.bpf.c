// SPDX-License-Identifier: GPL-2.0
/*
 * The sampler behind what merges packets: at the way in of a device (tcx), where what came in one by one has
 * become super-packets (GRO). It only watches: every packet goes on.
 */
#include "segments.h"

SEC("tcx/ingress")
int merged(struct __sk_buff *ctx)
{
	struct buffer of = { bpf_cast_to_kern_ctx(ctx), ctx };
	struct packet packet;
	__be16 ports[2];
	struct gso gso;
	int slot;

	if (!read_packet(ctx, &packet))
		return TCX_NEXT;
	slot = bundle_of(&packet);
	if (slot < 0 || (read_ports(ctx, &packet, ports) && is_message_to(&packet, ports)))
		return TCX_NEXT;
	gso = gso_of(of.skb);
	sample(&of, &packet, &gso, slot, false);
	return TCX_NEXT;
}

char LICENSE[] SEC("license") = "GPL";
