//! Keys of traffic, and of the agent that controls some of it.

use std::time::Duration;

use forebay_core::units::ByteCount;

use super::links::LINKS_MAX as HOPS_MAX;
use super::{DURATION, Key, Kind, NAME, RATE, Section, key};

/// An Ethernet frame without FCS: 60 bytes at least, 64 keep a sequence number inside.
const FRAMES: (ByteCount, ByteCount) = (ByteCount::new(64), ByteCount::new(1514));
/// The key `packet` of datagram traffic: size of a frame with headers, without FCS.
const PACKET: Key = key("packet", Kind::Size(FRAMES.0, FRAMES.1), "\"1514B\"", "bytes of a frame");
/// From two full segments on; more than the maximum takes memory and limits nothing.
const BUFFERS: (ByteCount, ByteCount) = (ByteCount::new(4_000), ByteCount::new(64_000_000));
/// Receivers acknowledge within half a second (RFC 9293 section 3.8.6.3).
const ACK_DELAYS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(500));
/// Shortest and longest playing time of a video segment.
const SEGMENTS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

const fn kind(name: &'static [(&'static str, &'static str)]) -> Key {
    key("kind", Kind::OneOf(name), "", "the kind of traffic")
}

/// `[[flow]]`.
pub static FLOW: Section = Section {
    summary: "Traffic of one kind between the two sites of a pair, from A to B unless reversed.",
    keys: &[
        key("name", NAME, "the kind of traffic", "name in results; unique"),
        key(
            "traffic",
            Kind::Variants(&[
                ("greedy", &GREEDY),
                ("requests", &REQUESTS),
                ("video", &VIDEO),
                ("media", &MEDIA),
                ("cbr", &CBR),
                ("poisson", &POISSON),
                ("on_off", &ON_OFF),
                ("ping", &PING),
            ]),
            "",
            "the traffic to send",
        ),
        key(
            "transport",
            Kind::OneOf(&[
                ("tcp", ""),
                (
                    "quic",
                    "over UDP by quinn, whose `cc` is \"cubic\" or \"bbr\"; a stream for each request \
                     or segment; back end emu only",
                ),
            ]),
            "\"tcp\"",
            "transport of greedy, requests and video",
        ),
        key(
            "cc",
            Kind::Spec(
                "a congestion control such as \"cubic\" (an algorithm, see `forebay list \
                 algorithms`; with the back end emu from the hosts' kernel), \"kernel:cubic\" (any \
                 in the hosts' kernel), \"bpf:reno\", \"bpf:cubic\", \"bpf:newreno\", \
                 \"bpf:vegas\" or \"bpf:westwood\" (in BPF), \"agent:copa\" or \
                 \"agent:cubic(hystart=off)\" (an algorithm in an agent), or \"aut\" (the \
                 algorithm under test)",
            ),
            "\"cubic\"",
            "congestion control of the connections, and where the algorithm runs; reno is newreno",
        ),
        key("count", Kind::Whole(1, 10_000), "1", "number of identical flows (not for requests)"),
        key("start", DURATION, "\"0s\"", "first byte"),
        key("stop", DURATION, "the plan's stop", "last byte or arrival"),
        key("rtt", DURATION, "the bottleneck's", "two-way propagation delay of this flow")
            .also(", not below the bottleneck's rtt (back end sim only)"),
        key(
            "hop",
            Kind::Whole(1, HOPS_MAX),
            "all links",
            "the only link that the flow's data cross, of several in a row",
        )
        .also(", up to the bottleneck's hops; from A to B, without ttl"),
        key(
            "dscp",
            Kind::Whole(0, 63),
            "0",
            "DSCP of all the flow's packets in both directions, for queues whose `classes` match \
             on it",
        ),
        key(
            "initial_window",
            Kind::Whole(1, 10_000),
            "10",
            "segments that a TCP sender has in flight before the first acknowledgement, and again \
             after an idle time; on the testbed the same for all flows in one direction between \
             two sites",
        )
        .also("; for greedy, requests, video and media over TCP"),
        key(
            "receiver",
            Kind::Spec(
                "\"honest\", \"dividing\", \"duplicating\", \"optimistic\" or \"concealing\" (see \
                 `forebay list receivers`), also with a number such as \"dividing(pieces=10)\"; \
                 for greedy (back end sim only)",
            ),
            "\"honest\"",
            "how the receivers acknowledge: honestly, or to gain throughput",
        ),
        key(
            "read_rate",
            RATE,
            "at once",
            "highest read rate of each receiving application; unread data closes the receive \
             window",
        )
        .also("; of greedy over TCP"),
        key(
            "receive_buffer",
            Kind::Size(BUFFERS.0, BUFFERS.1),
            "the stack's value",
            "payload that each receiver buffers and announces as its window",
        )
        .also("; for greedy, requests, video and media over TCP"),
        key(
            "ack_every",
            Kind::Whole(1, 1000),
            "the stack's value",
            "in-order full segments per acknowledgement",
        )
        .also("; for greedy, requests, video and media over TCP (back end sim only)"),
        key(
            "ack_delay",
            Kind::Duration(ACK_DELAYS.0, ACK_DELAYS.1),
            "the stack's value",
            "longest time that an acknowledgement waits for more segments",
        )
        .also("; for greedy, requests, video and media over TCP (back end sim only)"),
        key(
            "ttl",
            Kind::Whole(1, 2),
            "the hosts'",
            "time to live: packets with 1 end at a router before the queue, with 2 at a router \
             behind the link, before the receivebox",
        )
        .also("; for cbr, poisson and on_off from A to B"),
        key(
            "bundle",
            Kind::Text("the name of a bundle"),
            "none",
            "the bundle whose sites the flow runs between",
        ),
        key(
            "pair",
            NAME,
            "\"cross\"",
            "the flow runs between a pair of sites with this name, outside of any bundle",
        ),
        key("reversed", Kind::Switch, "false", "data runs from B to A"),
    ],
};

/// `traffic = { kind = "greedy" }`.
static GREEDY: Section =
    Section { summary: "Connections that always have data.", keys: &[kind(&[("greedy", "")])] };

/// `traffic = { kind = "requests", .. }`.
static REQUESTS: Section = Section {
    summary: "Open-loop requests over connections; the responses load the link.",
    keys: &[
        kind(&[("requests", "")]),
        key(
            "sizes",
            Kind::Text(
                "a size CDF of forebay (\"caida\", \"caida_1mb\", \"mixed\"), the path of one, relative to \
             the plan, or one size such as \"10KB\"",
            ),
            "",
            "sizes of the responses",
        ),
        key(
            "load",
            Kind::Text(
                "a rate such as \"84Mbit/s\" or a share of the bottleneck's rate such as \"50%\"",
            ),
            "",
            "offered load: bytes of responses over time",
        ),
        key(
            "connections",
            Kind::Any("a whole number, 1 to 10000, or \"each\""),
            "200",
            "number of persistent connections; \"each\": every request opens its own connection, \
             which costs one more round trip, and closes it",
        ),
        key(
            "sampling",
            Kind::OneOf(&[
                (
                    "strata",
                    "midpoints of equally likely strata, so that every seed offers the nominal \
                     load",
                ),
                ("iid", ""),
            ]),
            "\"strata\"",
            "how sizes are drawn",
        ),
    ],
};

/// `traffic = { kind = "video", .. }`.
static VIDEO: Section = Section {
    summary: "Clients that play a video, each over a persistent connection. They choose the \
              highest rate below 0.85 of the last five segments' throughput (harmonic mean). They \
              request a segment as soon as it fits into the buffer.",
    keys: &[
        kind(&[("video", "")]),
        key(
            "segment",
            Kind::Duration(SEGMENTS.0, SEGMENTS.1),
            "\"4s\"",
            "playing time of a segment",
        ),
        key(
            "rates",
            Kind::Texts("1 to 32 rates such as \"5Mbit/s\", each above the one before"),
            "[\"1Mbit/s\", \"2500kbit/s\", \"5Mbit/s\", \"8Mbit/s\", \"16Mbit/s\"]",
            "available rates of each segment; default: YouTube's recommendation for uploads of 360 \
             to 1440 lines",
        ),
        key("buffer", DURATION, "\"30s\"", "longest playing time that is fetched ahead")
            .also(", at least a segment"),
        key(
            "startup",
            DURATION,
            "one segment",
            "playing time that is fetched before playback begins",
        )
        .also(", at most the buffer"),
    ],
};

/// `traffic = { kind = "media", .. }`.
static MEDIA: Section = Section {
    summary: "Live encoders, each over a TCP connection (back end sim only). Their rate follows the \
              congestion control, as in the draft of SCReAMv2; use `cc = \"scream\"` or \
              \"scream_l4s\". Lost data are sent again.",
    keys: &[
        kind(&[("media", "")]),
        key("fps", Kind::Whole(1, 240), "30", "frames per second"),
        key("min_rate", RATE, "\"150kbit/s\"", "lowest rate of payload (RFC 8698)"),
        key("max_rate", RATE, "\"1500kbit/s\"", "highest rate of payload (RFC 8698)"),
        key("start_rate", RATE, "min_rate", "rate before the first acknowledgement"),
        key(
            "variation",
            Kind::Number(0.0, 1.0),
            "0",
            "largest deviation of a frame's size from the nominal one, as a share; uniform",
        ),
        key(
            "late",
            DURATION,
            "\"200ms\"",
            "delay above which a frame counts as late; while an unsent frame is older, the \
             encoder skips frames",
        ),
    ],
};

/// `traffic = { kind = "cbr", .. }`.
static CBR: Section = Section {
    summary: "UDP datagrams at a constant rate.",
    keys: &[kind(&[("cbr", "")]), key("rate", RATE, "", "rate of layer-2 frames"), PACKET],
};

/// `traffic = { kind = "poisson", .. }`.
static POISSON: Section = Section {
    summary: "UDP datagrams at the arrivals of a Poisson process.",
    keys: &[kind(&[("poisson", "")]), key("rate", RATE, "", "mean rate of layer-2 frames"), PACKET],
};

/// `traffic = { kind = "on_off", .. }`.
static ON_OFF: Section = Section {
    summary: "UDP datagrams at a constant rate in random on times (exponential), none between.",
    keys: &[
        kind(&[("on_off", "")]),
        key("rate", RATE, "", "rate of layer-2 frames in the on times"),
        key("on", DURATION, "", "mean on time"),
        key("off", DURATION, "", "mean off time"),
        PACKET,
    ],
};

/// `traffic = { kind = "ping" }`.
static PING: Section = Section {
    summary: "Closed-loop UDP request and response of 40 bytes each.",
    keys: &[kind(&[("ping", "")])],
};

/// `[agent]`.
pub static AGENT: Section = Section {
    summary: "The agent of flows with `agent:`. Without effect with `--backend sim`, where \
              algorithms see each acknowledgement.",
    keys: &[
        key(
            "report",
            Kind::Text("\"round\", \"ack\" or a time, \"100us\" to \"50ms\""),
            "\"round\"",
            "when the kernel reports: each round trip, each acknowledgement, or at this interval",
        ),
        key(
            "period",
            Kind::Text("a time, \"500us\" to \"10ms\", or \"0ms\""),
            "\"10ms\"",
            "how often the agent reads reports, at most a quarter of the shortest round trip; 0ms: \
             each report wakes the agent",
        ),
    ],
};
