// SPDX-License-Identifier: GPL-2.0
/*
 * A sendbox whose packets stay in the kernel: an HTB class of the WAN port queues and paces each bundle.
 *
 * `classify` runs in front of the qdisc (tcx), which takes the priority of a packet for its class. While the
 * process beats, it puts each packet that came in at the LAN port into the class of its bundle. Where the
 * machine routes, packets may come in at any device, the WAN port included. On request it also takes packets
 * that the machine itself sends. All other packets go past all classes. `departed` runs behind the qdisc and
 * counts and samples packets that were put into a class. `refused` runs behind the driver and lets `departed`
 * know which buffer will leave once more. `dropped` sees the packets that the kernel drops and counts those
 * that were in a class. None changes a packet otherwise, or drops one unless too much waits already
 * (`limit.h`): all filters between the ports hold.
 *
 * A packet may still belong to a socket of this machine, of a container or a test bed: crossing namespaces
 * does not change that (skb_scrub_packet, net/core/skbuff.c). TCP would then keep at most a millisecond of
 * its flow in the class, and the rest would wait at TCP itself (tcp_small_queue_check,
 * net/ipv4/tcp_output.c). `classify` therefore sends on a copy without a socket, like a packet that came in
 * over a wire. Packets that the machine itself sends keep their socket: it holds back the data that the class
 * has no room for, and nothing has to be dropped.
 */
#include "heartbeat.h"
#include "limit.h"
#include "segments.h"

/* The handle of the qdisc, and the class of the first bundle; the following bundles have the next numbers. */
#define QDISC 0xfb0000U
#define FIRST_CLASS (QDISC | 1)
/* Classes below the bundles', one for each hash, if there are any. */
#define FIRST_LEAF (QDISC | (1 + MAX_BUNDLES))

/* The network namespace that numbers the ports. */
const volatile __u32 netns_inum;
/* Bundles include packets that the machine itself sends. */
const volatile bool takes_own;
/* Packets leave through the WAN port without an Ethernet header (tun, WireGuard, GRE). */
const volatile bool is_bare;
/* Leaves of a bundle, a power of two; 0: the class of a bundle is its leaf. */
const volatile __u32 leaves;
/*
 * Packets and bytes in the qdisc above which each bundle may only use its share. Each leaf has a limit of its
 * own, but a host fills as many leaves as it makes flows.
 */
const volatile __u32 most_packets;
const volatile __u32 most_bytes;

/* Indexes of the ports. A device that is made again has another index. */
struct ports {
	/* 0: packets may come in at any device. */
	__u64 lan;
	__u64 wan;
};

/* User space writes them through mmap. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct ports);
} ports SEC(".maps");

/* Never none: an array has all its elements. */
static __always_inline struct ports ports_now(void)
{
	__u32 zero = 0;
	volatile struct ports *now = bpf_map_lookup_elem(&ports, &zero);

	return now ? (struct ports){ now->lan, now->wan } : (struct ports){};
}

/* Destination addresses of packets that are in no bundle: receiveboxes do not count packets to them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_OWN);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, __u8);
} own SEC(".maps");

/* Outcome for a buffer; the loader reads the counters in this order. */
enum fate {
	/* Buffers that come from the hosts of bundles ... */
	CLASSIFIED_BUNDLE,
	CLASSIFIED_NOT_IP,
	CLASSIFIED_OWN,
	CLASSIFIED_OUTSIDE,
	CLASSIFIED_STALE,
	CLASSIFIED_FULL,
	CLASSIFIED_OVERLIMIT,
	/* ... and buffers that leave through the WAN port. */
	DEPARTED_BUNDLE,
	DEPARTED_UNSAMPLED,
	DEPARTED_UNREAD,
	DEPARTED_OUTSIDE,
	DEPARTED_AGAIN,
	FATES,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FATES);
	__type(key, __u32);
	__type(value, __u64);
} fates SEC(".maps");

static __always_inline void note(__u32 fate)
{
	__u64 *buffers = bpf_map_lookup_elem(&fates, &fate);

	if (buffers)
		*buffers += 1;
}

/* Contents of the qdisc, all classes together, when a packet of a class last left it. */
struct standing {
	__u64 packets;
	__u64 bytes;
	/* Since the qdisc was made. */
	__u64 drops;
	/* Packets, as they are on the wire, that have left any qdisc of the port unseen by `departed`. */
	__u64 unseen;
};

/* User space reads it through mmap. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct standing);
} standing SEC(".maps");

/* Counts of the bundle in each slot: packets as they are on the wire, if the kernel says how many a buffer
 * has. */
struct ledger {
	/* Put into classes of the bundle ... */
	__u64 came;
	/* ... and no longer in any: these have left ... */
	__u64 left;
	/* ... and these were dropped. */
	__u64 dropped;
	/* Buffers that have left. */
	__u64 buffers;
};

/* User space reads it through mmap. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_BUNDLES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct ledger);
} ledgers SEC(".maps");

/*
 * Packets, as they are on the wire, that each bundle may have waiting however many wait for other bundles.
 * User space writes it through mmap.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} share SEC(".maps");

static __always_inline void note_came(__u32 slot, __u32 packets)
{
	struct ledger *of = bpf_map_lookup_elem(&ledgers, &slot);

	if (of)
		__sync_fetch_and_add(&of->came, packets ? packets : 1);
}

static __always_inline void note_dropped(__u32 slot, __u32 packets)
{
	struct ledger *of = bpf_map_lookup_elem(&ledgers, &slot);

	if (!of)
		return;
	__sync_fetch_and_add(&of->dropped, packets ? packets : 1);
}

/* Whether a bundle, the packet that came last included, has more waiting than its share. */
static __always_inline bool is_beyond_share(__u32 slot)
{
	struct ledger *of = bpf_map_lookup_elem(&ledgers, &slot);
	__u32 zero = 0;
	__u64 *most = bpf_map_lookup_elem(&share, &zero);

	if (!of || !most)
		return false;
	/* Signed: a packet that leaves meanwhile may be counted as left before it is counted as come. */
	return (__s64)(of->came - of->left - of->dropped) > (__s64)*(volatile __u64 *)most;
}

/*
 * Flows by their hash, of all bundles together. Two flows that share a value may hide a packet that would
 * count. A power of two, and at least the leaves of a bundle, so that flows that share a value share a leaf,
 * too. A packet that counts costs both programs some 0.36 us together (veth, 10,000 per second, caches cold);
 * any other packet costs nothing that could be measured.
 */
#define WATCHED_FLOWS 4096

/* The packets in the qdisc of the flows with one value of the hash. */
struct watched {
	/* Arrival time of a packet that found no other of its flow, while it waits; 0: there is none. */
	__u64 since_ns;
	/* Packets as they are on the wire, and `times_emptied` when they were counted. */
	__u32 packets;
	__u32 emptied;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WATCHED_FLOWS);
	__type(key, __u32);
	__type(value, struct watched);
} watched SEC(".maps");

/* Waiting time of a packet whose flow had no packet in the qdisc when it came. */
struct wait {
	__u64 ns;
	__u32 slot;
	__u32 unused;
};

/* 1365 records, each with a head of 8 bytes: user space reads them each time that it looks. More are left out. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 32 * 1024);
} waits SEC(".maps");

static __always_inline struct watched *watched_of(__u32 hash)
{
	__u32 at = hash & (WATCHED_FLOWS - 1);

	return bpf_map_lookup_elem(&watched, &at);
}

/* A buffer comes into the qdisc. */
static __always_inline void watch_coming(struct __sk_buff *ctx)
{
	struct watched *of = watched_of(bpf_get_hash_recalc(ctx));
	__u32 packets = ctx->gso_segs ? ctx->gso_segs : 1;
	__u32 emptied = *(volatile __u32 *)&times_emptied;

	if (!of)
		return;
	if (of->emptied != emptied) {
		of->emptied = emptied;
		of->packets = 0;
	}
	if (!__sync_fetch_and_add(&of->packets, packets))
		of->since_ns = bpf_ktime_get_ns();
}

/* Takes `packets` off: they leave the qdisc, or are dropped. */
static __always_inline void watch_going(struct watched *of, __u32 packets)
{
	if (!packets)
		packets = 1;
	of->since_ns = 0;
	if (of->packets <= packets)
		of->packets = 0;
	else
		__sync_fetch_and_sub(&of->packets, packets);
}

/* Not inlined: then BTF has the structure. */
static __noinline void tell_wait(const struct wait *wait)
{
	struct wait *record = bpf_ringbuf_reserve(&waits, sizeof(*record), 0);

	if (!record)
		return;
	*record = *wait;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

static __always_inline void watch_leaving(__u32 slot, __u32 hash, __u32 packets)
{
	struct watched *of = watched_of(hash);
	struct wait wait = { .slot = slot };
	__u64 since_ns;

	if (!of)
		return;
	since_ns = of->since_ns;
	watch_going(of, packets);
	if (!since_ns)
		return;
	wait.ns = bpf_ktime_get_ns() - since_ns;
	tell_wait(&wait);
}

static __always_inline void watch_dropped(__u32 hash, __u32 packets)
{
	struct watched *of = watched_of(hash);

	if (of)
		watch_going(of, packets);
}

static __always_inline __u32 class_of(struct __sk_buff *ctx, __u32 slot)
{
	if (!leaves)
		return FIRST_CLASS + slot;
	return FIRST_LEAF + slot * leaves + (bpf_get_hash_recalc(ctx) & (leaves - 1));
}

/* The slot of the bundle of a class. A number that is no class gives a slot beyond all bundles. */
static __always_inline __u32 slot_of(__u32 class)
{
	return leaves ? (class - FIRST_LEAF) / leaves : class - FIRST_CLASS;
}

/* The place of a class in `leaf_backlogs`. */
static __always_inline __u32 leaf_of(__u32 class)
{
	return class - (leaves ? FIRST_LEAF : FIRST_CLASS);
}

/* Whether the qdisc is so full that each bundle may only use its share. */
static __always_inline bool is_full(struct __sk_buff *ctx)
{
	struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	struct Qdisc *root = skb->dev->qdisc;

	return root->q.qlen >= most_packets || root->qstats.backlog >= most_bytes;
}

/* Whether the packet is in no bundle although prefixes match it. */
static __always_inline bool is_own(struct __sk_buff *ctx, const struct packet *packet)
{
	__be16 ports[2];

	return bpf_map_lookup_elem(&own, &packet->destination) ||
	       (read_ports(ctx, packet, ports) && is_message(packet, ports));
}

static __always_inline enum fate put_into_class(struct __sk_buff *ctx)
{
	struct packet packet;
	__u32 class;
	int slot;

	if (!(is_bare ? read_bare_packet(ctx, &packet) : read_packet(ctx, &packet)))
		return CLASSIFIED_NOT_IP;
	slot = find_bundle(&packet);
	if (slot < 0)
		return CLASSIFIED_OUTSIDE;
	if (is_own(ctx, &packet))
		return CLASSIFIED_OWN;
	if (!beating())
		return CLASSIFIED_STALE;
	class = class_of(ctx, slot);
	note_came(slot, ctx->gso_segs);
	if (is_full(ctx) && is_beyond_share(slot)) {
		note_dropped(slot, ctx->gso_segs);
		return CLASSIFIED_FULL;
	}
	if (!admit(ctx, QDISC, slot, leaf_of(class))) {
		note_dropped(slot, ctx->gso_segs);
		return CLASSIFIED_OVERLIMIT;
	}
	/* `dropped` counts packets with the priority of a class. */
	ctx->priority = class;
	watch_coming(ctx);
	return CLASSIFIED_BUNDLE;
}

/* Whether the packet came from the hosts of bundles. */
static __always_inline bool is_from_hosts(struct __sk_buff *ctx)
{
	__u64 lan = ports_now().lan;

	/* A packet that the machine itself sends has no input device. */
	if (!ctx->ingress_ifindex)
		return takes_own;
	return !lan || ctx->ingress_ifindex == lan;
}

/* Sends a copy that belongs to no socket and passes this program once more; false: no copy was sent or
 * needed. */
static __always_inline bool sent_without_socket(struct __sk_buff *ctx)
{
	return ctx->ingress_ifindex && ctx->sk && beating() && bpf_clone_redirect(ctx, ports_now().wan, 0) >= 0;
}

SEC("tcx/egress")
int classify(struct __sk_buff *ctx)
{
	enum fate fate;

	if (!is_from_hosts(ctx))
		return TCX_NEXT;
	if (sent_without_socket(ctx))
		return TCX_DROP;
	fate = put_into_class(ctx);
	note(fate);
	return fate == CLASSIFIED_FULL || fate == CLASSIFIED_OVERLIMIT ? TCX_DROP : TCX_NEXT;
}

static __always_inline bool read_bare_headers(const struct buffer *of, struct packet *packet)
{
	word ip[sizeof(struct ipv6hdr) / sizeof(word)];

	return read_words(of, 0, ip, 5) &&
	       parse_bare(of->skb->protocol, ip, ip + 5, of->skb->len, packet) == PARSED_IP;
}

static __always_inline bool read_headers(const struct buffer *of, struct packet *packet)
{
	const __u32 ip_at = sizeof(struct ethhdr);
	word eth[3], ip[sizeof(struct ipv6hdr) / sizeof(word)];
	__u64 tags;
	__be16 proto;

	if (!read_words(of, 0, eth, 3) || eth[0] & 1)
		return false;
	/* From the first EtherType on. */
	eth[1] = eth[1] >> 32 | eth[2] << 32;
	eth[2] >>= 32;
	tags = tags_len((void *)&eth[1]);
	proto = tags < sizeof(*eth) ? eth[1] >> 8 * tags : eth[2];
	packet->tags_len = tags;
	return read_words(of, ip_at + tags, ip, 5) &&
	       parse_behind(proto, ip, ip + 5, of->skb->len - tags, packet) == PARSED_IP;
}

/*
 * `sent_before`: packets that the qdisc `root_at` had sent, by its own count, when `departed` ran for the
 * previous batch of buffers. `accounted`: how many packets are accounted for. A batch is with the driver
 * before the next leaves the qdisc (__qdisc_run, sch_generic.c).
 */
__u64 root_at;
__u64 sent_before;
__u64 accounted;

/*
 * Packets of earlier batches that have left unseen. The kernel skips a program that runs already, and some
 * kernels run no program at tracepoints while certain tasks are current. `packets`: the packets of this
 * buffer, as the qdisc counts them.
 */
static __always_inline __u64 find_unseen(struct Qdisc *root, __u64 packets)
{
	__u64 sent = *(const __u64 *)&root->bstats.packets, unseen = 0;

	if ((__u64)root != root_at) {
		root_at = (__u64)root;
		sent_before = accounted = sent;
		/* The packets in the previous qdisc are gone. */
		__sync_fetch_and_add(&times_emptied, 1);
		return 0;
	}
	if (sent != sent_before) {
		/* Signed: some packets bypass the qdisc, such as packets of AF_PACKET sockets that request it. */
		if ((__s64)(sent_before - accounted) > 0)
			unseen = sent_before - accounted;
		accounted = sent_before;
		sent_before = sent;
	}
	accounted += packets;
	return unseen;
}

static __always_inline void note_unseen(__u64 packets)
{
	__u32 zero = 0;
	struct standing *noted = bpf_map_lookup_elem(&standing, &zero);

	if (noted)
		noted->unseen += packets;
}

/* User space could ask for this only by messages that all listeners to rtnetlink receive, too. */
static __always_inline void note_standing(const struct standing *now)
{
	__u32 zero = 0;
	struct standing *noted = bpf_map_lookup_elem(&standing, &zero);

	if (!noted)
		return;
	noted->packets = now->packets;
	noted->bytes = now->bytes;
	noted->drops = now->drops;
}

/*
 * Buffers leave one after the other, for the qdisc has one root. The ledger may lose sight of a packet, such
 * as one that came while no program ran or a buffer that does not say how many packets it has. Such a packet
 * counts only until the qdisc is empty.
 */
static __always_inline void note_left(__u32 slot, __u64 packets, const struct standing *now)
{
	struct ledger *of = bpf_map_lookup_elem(&ledgers, &slot);
	__u64 gone;

	if (!of)
		return;
	of->buffers += 1;
	of->left += packets;
	gone = of->left + of->dropped;
	if (!now->packets || of->came < gone)
		of->came = gone;
}

/*
 * The buffer that the driver refused last (NETDEV_TX_BUSY): the kernel keeps it in front of the qdisc, and no
 * other buffer leaves before it. The refusal must be known: an address alone may belong to a buffer long
 * gone.
 */
__u64 refused_skb;

static __always_inline bool was_refused(__u64 skb)
{
	if (skb != refused_skb)
		return false;
	refused_skb = 0;
	return true;
}

/* The tracepoints report all devices of the machine. */
static __always_inline bool is_wan(struct net_device *dev)
{
	return (__u32)dev->ifindex == ports_now().wan && dev->nd_net.net->ns.inum == netns_inum;
}

static __always_inline enum fate take_leave(struct sk_buff *skb, struct net_device *dev)
{
	struct gso gso = gso_of(skb);
	__u64 unseen = find_unseen(dev->qdisc, gso.size ? gso.segs : 1);
	__u32 slot = slot_of(skb->priority);
	struct buffer of = { skb, (void *)skb };
	struct Qdisc *root = dev->qdisc;
	struct standing now;
	struct packet packet;
	bool is_sampled;

	if (unseen)
		note_unseen(unseen);
	if (slot >= MAX_BUNDLES)
		return DEPARTED_OUTSIDE;
	count_departure(skb, !gso.size, slot, leaf_of(skb->priority));
	if (!(is_bare ? read_bare_headers(&of, &packet) : read_headers(&of, &packet)))
		return DEPARTED_UNREAD;
	is_sampled = sample(&of, &packet, &gso, slot, true);
	now = (struct standing){ root->q.qlen, root->qstats.backlog, root->qstats.drops, 0 };
	note_standing(&now);
	watch_leaving(slot, skb->hash, gso.segs);
	if (!now.packets)
		__sync_fetch_and_add(&times_emptied, 1);
	/*
	 * Last, since it lets user space know that all else is there. Packets that left unseen belong more often to
	 * the bundle whose packet is seen next than to any other.
	 */
	note_left(slot, (gso.segs ? gso.segs : 1) + unseen, &now);
	return is_sampled ? DEPARTED_BUNDLE : DEPARTED_UNSAMPLED;
}

SEC("tp_btf/net_dev_start_xmit")
int departed(__u64 *ctx)
{
	struct sk_buff *skb = (struct sk_buff *)ctx[0];
	struct net_device *dev = (struct net_device *)ctx[1];

	if (is_wan(dev))
		note(was_refused((__u64)skb) ? DEPARTED_AGAIN : take_leave(skb, dev));
	return 0;
}

SEC("tp_btf/net_dev_xmit")
int refused(__u64 *ctx)
{
	/* Unless it was refused, nothing is there any more. */
	__u64 skb = ctx[0];
	struct net_device *dev = (struct net_device *)ctx[2];

	if ((int)ctx[1] == NETDEV_TX_BUSY && is_wan(dev))
		refused_skb = skb;
	return 0;
}

SEC("tp_btf/kfree_skb")
int dropped(__u64 *ctx)
{
	struct sk_buff *skb = (struct sk_buff *)ctx[0];
	__u32 slot = slot_of(skb->priority);

	if (slot < MAX_BUNDLES && is_wan(skb->dev)) {
		__u32 packets = gso_of(skb).segs;

		note_dropped(slot, packets);
		watch_dropped(skb->hash, packets);
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
