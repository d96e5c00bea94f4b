//! Keys of traffic, and of the agent that controls some of it.

use std::time::Duration;

use forebay_core::units::ByteCount;

use super::links::LINKS_MAX as HOPS_MAX;
use super::{DURATION, Key, Kind, NAME, RATE, Section, key};

/// An Ethernet frame without FCS: 60 bytes at least, 64 keep a sequence number inside.
const FRAMES: (ByteCount, ByteCount) = (ByteCount::new(64), ByteCount::new(1514));
const PACKET: Key = key("packet", Kind::Size(FRAMES.0, FRAMES.1), "\"1514B\"", "bytes of a frame");
/// From two full segments on; more than the maximum takes memory and limits nothing.
const BUFFERS: (ByteCount, ByteCount) = (ByteCount::new(4_000), ByteCount::new(64_000_000));
/// Receivers acknowledge within half a second (RFC 9293 section 3.8.6.3).
const ACK_DELAYS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(500));
const SEGMENTS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

const fn kind(name: &'static [(&'static str, &'static str)]) -> Key {
    key("kind", Kind::OneOf(name), "", "the kind of traffic")
}

/// `[[flow]]`.
pub static FLOW: Section = Section {
    summary: "Traffic of one kind between the two sites of a pair, from A to B unless reversed.",
    keys: &[
        key("name", NAME, "the kind of traffic", "names the rows; unique"),
        key(
            "traffic",
            Kind::Variants(&[
                ("greedy", &GREEDY),
                ("requests", &REQUESTS),
                ("video", &VIDEO),
                ("cbr", &CBR),
                ("poisson", &POISSON),
                ("on_off", &ON_OFF),
                ("ping", &PING),
            ]),
            "",
            "what is sent",
        ),
        key(
            "cc",
            Kind::Spec(
                "a congestion control such as \"cubic\" (an algorithm, see `forebay list algorithms`; with \
             the back end emu that of the hosts' kernel), \"kernel:cubic\" (any of the hosts' kernel), \
             \"bpf:reno\", \"bpf:cubic\", \"bpf:newreno\", \"bpf:vegas\" or \"bpf:westwood\" (in \
             BPF), \"agent:copa\" or \"agent:cubic(hystart=off)\" (an algorithm in an agent), or \"aut\" (the \
             algorithm under test)",
            ),
            "\"cubic\"",
            "congestion control of the TCP sockets, and where the algorithm runs; reno is newreno",
        ),
        key("count", Kind::Whole(1, 10_000), "1", "how many alike (not requests)"),
        key("start", DURATION, "\"0s\"", "first byte"),
        key("stop", DURATION, "the plan's stop", "last byte or arrival"),
        key(
            "rtt",
            DURATION,
            "the bottleneck's",
            "two-way propagation delay of this flow",
        )
        .also(", not below the bottleneck's rtt (back end sim only)"),
        key(
            "hop",
            Kind::Whole(1, HOPS_MAX),
            "all of them",
            "the one link of several in a row that its data take",
        )
        .also(", up to the bottleneck's hops; from A to B, without ttl"),
        key(
            "dscp",
            Kind::Whole(0, 63),
            "0",
            "DSCP of all its packets, both ways, for queues whose `classes` have rules about it",
        ),
        key(
            "initial_window",
            Kind::Whole(1, 10_000),
            "10",
            "segments that a TCP sender has in flight before the first acknowledgement, and again after an idle \
             time; on the testbed one number for all that sends the same way between a pair of sites",
        )
        .also("; of greedy, requests and video"),
        key(
            "receiver",
            Kind::Spec(
                "\"honest\", \"dividing\", \"duplicating\", \"optimistic\" or \"concealing\" (see `forebay list \
                 receivers`), also with a number such as \"dividing(pieces=10)\"; of greedy (back end sim only)",
            ),
            "\"honest\"",
            "whether the receivers acknowledge what has come, or what serves them",
        ),
        key(
            "read_rate",
            RATE,
            "at once",
            "payload that each receiving application reads at most: what waits for it closes the window",
        )
        .also("; of greedy"),
        key(
            "receive_buffer",
            Kind::Size(BUFFERS.0, BUFFERS.1),
            "that of the stack",
            "payload that each receiver holds, which it announces as its window",
        )
        .also("; of greedy, requests and video"),
        key(
            "ack_every",
            Kind::Whole(1, 1000),
            "that of the stack",
            "full segments in order that share an acknowledgement",
        )
        .also("; of greedy, requests and video (back end sim only)"),
        key(
            "ack_delay",
            Kind::Duration(ACK_DELAYS.0, ACK_DELAYS.1),
            "that of the stack",
            "longest that an acknowledgement waits for more segments, whatever their pace",
        )
        .also("; of greedy, requests and video (back end sim only)"),
        key(
            "ttl",
            Kind::Whole(1, 2),
            "the hosts'",
            "time to live: 1 ends at a router before the queue, 2 at one behind the link, before the \
             receivebox",
        )
        .also("; of cbr, poisson and on_off from A to B"),
        key("bundle", Kind::Text("the name of a bundle"), "none", "runs between the sites of that bundle"),
        key("pair", NAME, "\"cross\"", "runs between a pair of sites of this name, in no bundle"),
        key("reversed", Kind::Switch, "false", "data runs from B to A"),
    ],
};

/// `traffic = { kind = "greedy" }`.
static GREEDY: Section =
    Section { summary: "TCP connections that always have data.", keys: &[kind(&[("greedy", "")])] };

/// `traffic = { kind = "requests", .. }`.
static REQUESTS: Section = Section {
    summary: "Open-loop requests over TCP connections; the answers load the link.",
    keys: &[
        kind(&[("requests", "")]),
        key(
            "sizes",
            Kind::Text(
                "a size CDF of forebay (\"caida\", \"caida_1mb\", \"mixed\"), the path of one, relative to \
             the plan, or one size such as \"10KB\"",
            ),
            "",
            "sizes of the answers",
        ),
        key(
            "load",
            Kind::Text(
                "a rate such as \"84Mbit/s\" or a share of the bottleneck's such as \"50%\"",
            ),
            "",
            "bytes of answers offered over time",
        ),
        key(
            "connections",
            Kind::Any("a whole number, 1 to 10000, or \"each\""),
            "200",
            "persistent connections; \"each\": every request opens one of its own, which costs it a \
             round trip more, and closes it",
        ),
        key(
            "sampling",
            Kind::OneOf(&[
                (
                    "strata",
                    "the midpoints of equally likely strata, so that every seed offers the nominal load",
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
    summary: "Clients that play a video, each over a persistent TCP connection, at the rate that 0.85 of the \
              throughput of the last five segments (their harmonic mean) allows. They ask for a segment \
              as soon as it has room in the buffer.",
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
            "rates that there are of each segment; by default what YouTube recommends for uploads of 360 to \
             1440 lines",
        ),
        key("buffer", DURATION, "\"30s\"", "most playing time that is fetched ahead")
            .also(", at least a segment"),
        key("startup", DURATION, "one segment", "what is fetched before playback begins")
            .also(", at most the buffer"),
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
    summary: "The agent of flows with `agent:`. Without effect with `--backend sim`, where algorithms \
              hear of each acknowledgement.",
    keys: &[
        key(
            "report",
            Kind::Text("\"round\", \"ack\" or a time, \"100us\" to \"50ms\""),
            "\"round\"",
            "how often the kernel reports: each round trip, each acknowledgement, each so often",
        ),
        key(
            "period",
            Kind::Text("a time, \"500us\" to \"10ms\", or \"0ms\""),
            "\"10ms\"",
            "time between two looks at the reports, at most a quarter of the shortest round trip; \
             0ms: each report wakes the agent",
        ),
    ],
};
