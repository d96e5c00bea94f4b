// SPDX-License-Identifier: GPL-2.0
/*
 * Counts the packets of bundles on the device where they arrive, and reports those that close an
 * epoch. It only watches: every frame passes.
 */
#include "block.h"
#include "bundles.h"

/* Reports a boundary. Not inlined: BTF has the structures of a function's arguments, and so has
 * the skeleton. */
static __noinline void tell(const struct boundary *record)
{
	struct boundary *slot = begin_to_tell();

	if (!slot)
		return;
	*slot = *record;
	bpf_ringbuf_submit(slot, 0);
}

SEC("xdp")
int sampler(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct boundary record = {};
	struct counters *count;
	struct bundle *bundle;
	struct packet packet;
	__be16 ports[2];
	__u32 index, mask;
	int found;

	if (parse(data, data_end, data_end - data, &packet) != PARSED_IP ||
	    is_discovery(&packet, data_end))
		return XDP_PASS;
	found = bundle_of(&packet);
	if (found < 0 ||
	    (take_ports(&packet, data_end, ports) && is_message_to(&packet, ports)))
		return XDP_PASS;
	index = found;
	bundle = bpf_map_lookup_elem(&bundles, &index);
	count = bpf_map_lookup_elem(&counters, &index);
	if (!bundle || !count)
		return XDP_PASS;

	record.hash = sampling_hash(&packet, data_end, bundle->key, bundle->version, bundle->nat);
	mask = *(volatile __u64 *)&bundle->epoch_mask;

	/* No helper may be called under the lock, so that the clock is read before. */
	if (!(record.hash & mask))
		record.received_at_ns = bpf_ktime_get_ns();
	bpf_spin_lock(&count->lock);
	record.received_bytes = count->bytes += packet.frame_len;
	record.received_packets = count->packets += 1;
	record.received_ce = count->ce += packet.ecn == INET_ECN_CE;
	bpf_spin_unlock(&count->lock);
	if (record.hash & mask)
		return XDP_PASS;

	record.epoch_mask = mask;
	record.bundle = bundle->id;
	tell(&record);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
