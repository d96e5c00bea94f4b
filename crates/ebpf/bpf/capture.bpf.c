// SPDX-License-Identifier: GPL-2.0
/*
 * Hands frames to the AF_XDP socket of their receive queue, with the time of their arrival: all frames (the
 * link emulator, behind which there is no kernel path), or those towards a bundle (a sendbox, a bump in the
 * wire). All other frames go on through the kernel, where a bridge carries them.
 *
 * A process that died has no socket in the map. A process that hangs, or gets too little processor time, does
 * not beat, and after `stale_after_ns` its traffic takes the kernel's path again: it must never be a black
 * hole. Frames that it could not carry take that path, too: frames that are addressed to the box itself or
 * too long.
 */
#include "heartbeat.h"
#include "messages.h"

/* Destination prefixes of all bundles. */
#define MAX_PREFIXES 16384
/* Receive queues; more than any device we drive has. */
#define MAX_QUEUES 64

/* Outcome for a frame; the loader reads the counters in this order. */
enum fate {
	FATE_REDIRECTED,
	FATE_NOT_IP,
	FATE_MALFORMED,
	FATE_DISCOVERY,
	FATE_OWN,
	FATE_OWN_MAC,
	FATE_OUTSIDE,
	FATE_LONG,
	FATE_STALE,
	FATE_NO_SOCKET,
	FATE_NO_STAMP,
	FATE_VLAN,
	FATE_MPLS,
	FATE_PPPOE,
	FATES,
};

/* Captures all frames, with any contents. */
const volatile bool capture_all;

/*
 * A frame may lie in several pieces. `data` to `data_end` is the first piece, which holds all headers. Such a
 * program is loaded with BPF_F_XDP_HAS_FRAGS, from Linux 5.18 on. Earlier kernels never look at the call that
 * they do not know.
 */
const volatile bool in_pieces;

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/* Destinations of the bundles, with room for those before and after a change together. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 2 * MAX_PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, __u8);
} destinations SEC(".maps");

/* The machine's own addresses, and addresses that receiveboxes count no packets to. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_OWN);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, __u8);
} own SEC(".maps");

/* An Ethernet address, filled up with zeros. */
struct mac {
	__u8 octet[8];
};

/*
 * Ethernet addresses of the box's own devices. The kernel has to route a frame to one: if it were sent on as
 * it is, the next station would drop it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct mac);
	__type(value, __u8);
} own_macs SEC(".maps");

/* Bits of frames without a VLAN tag, and of tags that name no VLAN (priority tags: VLAN 0). */
#define NO_TAG 0
#define NO_VLAN 4095

/*
 * VLANs, a bit each, whose frames a bridge sends on, as they come or without their tag, and so does the
 * process. The bridge drops the frames of all other VLANs. User space writes it through mmap.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096 / 64);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} kept_vlans SEC(".maps");

/* Bytes of the longest frame that the process can take; 0: of any. User space writes it through mmap. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} longest_frame SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FATES);
	__type(key, __u32);
	__type(value, __u64);
} fates SEC(".maps");

/*
 * Puts the time (CLOCK_MONOTONIC) in front of the frame, where it travels to the socket. A reader
 * that wakes up late still knows when and in which order frames came.
 */
static __always_inline bool stamp(struct xdp_md *ctx)
{
	__u64 *arrived;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*arrived)))
		return false;
	arrived = (void *)(long)ctx->data_meta;
	if ((void *)(arrived + 1) > (void *)(long)ctx->data)
		return false;
	*arrived = bpf_ktime_get_ns();
	return true;
}

/* Bytes of the whole frame. */
static __always_inline __u64 frame_len(struct xdp_md *ctx)
{
	if (in_pieces)
		return bpf_xdp_get_buff_len(ctx);
	return (__u64)ctx->data_end - ctx->data;
}

/* The socket or the process would drop it. */
static __always_inline bool too_long(struct xdp_md *ctx)
{
	__u32 zero = 0;
	__u64 *longest = bpf_map_lookup_elem(&longest_frame, &zero);

	if (!longest || !*longest)
		return false;
	return frame_len(ctx) > *longest;
}

static __always_inline bool to_own_mac(const struct ethhdr *eth)
{
	struct mac to = {};

	__builtin_memcpy(to.octet, eth->h_dest, sizeof(eth->h_dest));
	return bpf_map_lookup_elem(&own_macs, &to);
}

/* A frame behind another kind of tag, such as a provider's, has no tag for a bridge. */
static __always_inline __u32 vlan_of(void *data, void *data_end)
{
	struct ethhdr *eth = data;
	struct vlan_tag *tag = (void *)(eth + 1);
	__u32 vlan;

	if ((void *)(tag + 1) > data_end || eth->h_proto != be16(ETH_P_8021Q))
		return NO_TAG;
	vlan = be16(tag->tci) & 0xfff;
	return vlan ? vlan : NO_VLAN;
}

static __always_inline bool keeps_vlan(void *data, void *data_end)
{
	__u32 vlan = vlan_of(data, data_end), at = vlan / 64;
	__u64 *kept = bpf_map_lookup_elem(&kept_vlans, &at);

	return kept && *kept >> (vlan % 64) & 1;
}

static __always_inline enum fate classify(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct packet packet;
	__be16 ports[2];

	switch (parse(data, data_end, frame_len(ctx), &packet)) {
	case PARSED_IP:
		break;
	case PARSED_MALFORMED:
		return FATE_MALFORMED;
	case PARSED_MPLS:
		return FATE_MPLS;
	case PARSED_PPPOE:
		return FATE_PPPOE;
	default:
		return FATE_NOT_IP;
	}
	if (!longest_prefix(&destinations, &packet.destination))
		return FATE_OUTSIDE;
	if (is_discovery(&packet, data_end))
		return FATE_DISCOVERY;
	if (bpf_map_lookup_elem(&own, &packet.destination) ||
	    (take_ports(&packet, data_end, ports) && is_message(&packet, ports)))
		return FATE_OWN;
	if (data + sizeof(struct ethhdr) > data_end)
		return FATE_MALFORMED;
	if (to_own_mac(data))
		return FATE_OWN_MAC;
	if (!keeps_vlan(data, data_end))
		return FATE_VLAN;
	if (too_long(ctx))
		return FATE_LONG;
	return beating() ? FATE_REDIRECTED : FATE_STALE;
}

SEC("xdp")
int capture(struct xdp_md *ctx)
{
	__u32 fate = capture_all ? FATE_REDIRECTED : classify(ctx);
	int action = XDP_PASS;
	__u64 *count;

	/* If the driver has no room for the time, the process finds zeros: a sendbox takes such a frame as new. */
	if (fate == FATE_REDIRECTED && !stamp(ctx) && capture_all)
		fate = FATE_NO_STAMP;
	if (fate == FATE_REDIRECTED) {
		action = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
		if (action != XDP_REDIRECT)
			fate = FATE_NO_SOCKET;
	}
	count = bpf_map_lookup_elem(&fates, &fate);
	if (count)
		*count += 1;
	return action;
}

char LICENSE[] SEC("license") = "GPL";
