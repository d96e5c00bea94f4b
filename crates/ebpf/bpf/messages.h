/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which packets are the boxes' messages, and so in no bundle: UDP to or from an end that user space has named, as
 * crates/host/src/daemon/apart.rs does. All else to and from the machines of boxes is traffic like any other.
 */
#ifndef FOREBAY_MESSAGES_H
#define FOREBAY_MESSAGES_H

#include "packet.h"

/* Four ends for each address that a box leaves out: three ports, and one that messages come from. */
#define MAX_MESSAGE_ENDS (4 * MAX_OWN)

/* Where messages go, or come from. */
struct message_end {
	struct address address;
	__be16 port;
	/* 1: the source of a packet; 0: its destination. */
	__u16 is_source;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_MESSAGE_ENDS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct message_end);
	__type(value, __u8);
} messages SEC(".maps");

static __always_inline bool is_end(const struct address *address, __be16 port, __u16 is_source)
{
	struct message_end end = { *address, port, is_source };

	return bpf_map_lookup_elem(&messages, &end);
}

/* Whether a packet may be a message: it begins with a UDP header. */
static __always_inline bool has_ports(const struct packet *packet)
{
	return begins_with(packet, IPPROTO_UDP, UDP_HEADER);
}

/* Whether a packet with these ports, of source and destination, is a message by where it goes. */
static __always_inline bool is_message_to(const struct packet *packet, const __be16 *ports)
{
	return is_end(&packet->destination, ports[1], 0);
}

/* Whether it is one by either end. */
static __always_inline bool is_message(const struct packet *packet, const __be16 *ports)
{
	return is_message_to(packet, ports) || is_end(&packet->source, ports[0], 1);
}

/* Takes the ports of a packet that may be a message, whose headers lie in front of `data_end`. */
static __always_inline bool take_ports(const struct packet *packet, void *data_end, __be16 *ports)
{
	const __be16 *from = packet->payload;

	if (!has_ports(packet) || (void *)(from + 2) > data_end)
		return false;
	ports[0] = from[0];
	ports[1] = from[1];
	return true;
}

#endif
