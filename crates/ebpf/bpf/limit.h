/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The bytes that wait in the leaves of each bundle, and whether one more buffer may wait.
 *
 * A leaf may hold ALPHA times the free part of its bundle's limit, a dynamic threshold (Choudhury and Hahne,
 * Dynamic queue length thresholds for shared-memory packet switches, IEEE/ACM Transactions on Networking
 * 6(2), 1998). If n flows send all they can, each then has ALPHA / (1 + n ALPHA) of the limit waiting: equal
 * shares, together below the limit. The free part lets in flows that have less waiting, and an empty leaf
 * always takes a buffer.
 *
 * A leaf is first in, first out. Each buffer carries in skb->cb the bytes that came before it to its leaf.
 * That part of skb->cb is the qdisc's, and HTB, TBF and bfifo do not use it. Once the buffer leaves, all
 * these bytes have left or were dropped. So an unseen departure counts only until the next departure of its
 * leaf. Until then the backlog of the qdisc shows how many of the bytes that are counted in all leaves have
 * left.
 */
#ifndef FOREBAY_LIMIT_H
#define FOREBAY_LIMIT_H

#include "bundles.h"
#include "skb.h"

/* Leaves of all bundles; as in src/classes/mod.rs. */
#define MAX_LEAVES 8192
/* A flow alone has 2/3 of the limit. With 1 it would have half of the limit; with 8, new flows would find
 * little room. */
#define ALPHA 2
/*
 * About 5 s. A leaf that has taken no buffer for this time takes one, whose departure corrects its count: unseen departures
 * lock no flow out. Leaves that send less than a packet in this time exceed the limit by it.
 */
#define FORGET_AFTER 5000

/* More than a leaf holds. */
#define MOST_BYTES_OF_LEAF (1 << 26)

/* Bytes on the wire, modulo 2^32: far less waits. */
struct backlog {
	__u32 enqueued;
	__u32 dequeued;
	/* How often the qdisc had been empty when these were counted. */
	__u32 emptied;
	/* When the last buffer was let in, in units of 2^20 ns. */
	__u32 enqueued_at;
	/* For a leaf: where the leaving buffer begins, and how much of it has left in the packets that it was cut up
	 * into. */
	__u32 leaving;
	__u32 left_of_it;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LEAVES);
	__type(key, __u32);
	__type(value, struct backlog);
} leaf_backlogs SEC(".maps");

/* Behind the elements of the bundles: the total. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_BUNDLES + 1);
	__type(key, __u32);
	__type(value, struct backlog);
} bundle_backlogs SEC(".maps");

static __always_inline struct backlog *total_backlog(void)
{
	__u32 behind = MAX_BUNDLES;

	return bpf_map_lookup_elem(&bundle_backlogs, &behind);
}

/* Bytes that may wait in the leaves of each bundle; 0: no limit. User space writes it through mmap. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_BUNDLES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} limits SEC(".maps");

/* How often a packet has left the qdisc empty. Bytes that are still counted then have left unseen. */
__u32 times_emptied;

/* Signed: a buffer that leaves meanwhile may be counted as left before it is counted as come. */
static __always_inline __s32 waiting(struct backlog *of)
{
	__u32 emptied = *(volatile __u32 *)&times_emptied;

	if (of->emptied != emptied) {
		of->emptied = emptied;
		of->dequeued = of->enqueued;
	}
	return of->enqueued - of->dequeued;
}

/* Bytes that are counted and do not wait in the qdisc, by its own count: their departure was not seen. */
static __always_inline __s32 gone_unseen(struct __sk_buff *ctx, struct backlog *total, __u32 qdisc)
{
	struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	struct Qdisc *root = skb->dev->qdisc;
	__s32 unseen;

	if (root->handle != qdisc)
		return 0;
	if (!root->q.qlen)
		__sync_fetch_and_add(&times_emptied, 1);
	unseen = waiting(total) - (__s32)root->qstats.backlog;
	return unseen > 0 ? unseen : 0;
}

/* Counts a buffer that comes to a leaf of this qdisc; false: it is to be dropped. */
static __always_inline bool admit(struct __sk_buff *ctx, __u32 qdisc, __u32 slot, __u32 leaf)
{
	struct backlog *of_bundle = bpf_map_lookup_elem(&bundle_backlogs, &slot);
	struct backlog *of_leaf = bpf_map_lookup_elem(&leaf_backlogs, &leaf);
	struct backlog *total = total_backlog();
	__u64 *limit = bpf_map_lookup_elem(&limits, &slot);
	__u32 bytes = ctx->wire_len, now = bpf_ktime_get_coarse_ns() >> 20;
	__s64 most, here, unused, unseen;

	if (!of_bundle || !of_leaf || !total || !limit)
		return true;
	most = *(volatile __u64 *)limit;
	/* All these bytes may be of this leaf. */
	unseen = gone_unseen(ctx, total, qdisc);
	here = waiting(of_leaf) - unseen;
	unused = most - waiting(of_bundle) + unseen;
	if (most && here > 0 && here > ALPHA * unused && now - of_leaf->enqueued_at < FORGET_AFTER)
		return false;
	of_leaf->enqueued_at = now;
	ctx->cb[0] = __sync_fetch_and_add(&of_leaf->enqueued, bytes);
	__sync_fetch_and_add(&of_bundle->enqueued, bytes);
	__sync_fetch_and_add(&total->enqueued, bytes);
	return true;
}

/*
 * Counts a buffer that leaves a leaf, or a packet that it was cut up into. Without locks: one leaves after the other, for
 * the qdisc has one root.
 */
static __always_inline void count_departure(struct sk_buff *skb, bool is_whole, __u32 slot, __u32 leaf)
{
	struct backlog *of_bundle = bpf_map_lookup_elem(&bundle_backlogs, &slot);
	struct backlog *of_leaf = bpf_map_lookup_elem(&leaf_backlogs, &leaf);
	struct backlog *total = total_backlog();
	const struct qdisc_skb_cb *cb = (const struct qdisc_skb_cb *)skb->cb;
	__u32 begins;
	__s32 here, before, bytes, gone;

	if (!of_bundle || !of_leaf || !total)
		return;
	here = waiting(of_leaf);
	waiting(of_bundle);
	waiting(total);
	bytes = is_whole ? skb->len : cb->pkt_len;
	/* All packets that a buffer is cut up into carry its place. */
	begins = *(const __u32 *)cb->data;
	if (of_leaf->leaving != begins) {
		of_leaf->leaving = begins;
		of_leaf->left_of_it = 0;
	}
	of_leaf->left_of_it += bytes;
	before = begins - of_leaf->dequeued;
	/* Implausible if another program has written there: then nothing has left unseen. */
	if (before < here && before > -MOST_BYTES_OF_LEAF)
		gone = before + of_leaf->left_of_it;
	else
		gone = bytes;
	if (gone > here)
		gone = here;
	/* Negative: it was taken for gone before. */
	if (gone <= 0)
		return;
	of_leaf->dequeued += gone;
	of_bundle->dequeued += gone;
	total->dequeued += gone;
}

#endif
