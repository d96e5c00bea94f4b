//! Keys of traffic, and of the agent that decides for some of it.

use super::{DURATION, NAME, RATE, Section, key};

const FRAME: &str = "a size of a frame, \"64B\" to \"1514B\"";

/// `[[flow]]`.
pub static FLOW: Section = Section {
    heading: "[[flow]]",
    summary: "Traffic of one kind between the two sites of a pair, from A to B unless reversed.",
    keys: &[
        key("name", NAME, "the kind of traffic", "names the rows; unique"),
        key(
            "traffic",
            "a table with kind = greedy, requests, video, cbr, poisson, on_off or ping",
            "",
            "what is sent",
        ),
        key(
            "cc",
            "a congestion control such as \"cubic\" (an algorithm, see `forebay list algorithms`; with \
             the back end emu that of the hosts' kernel), \"kernel:cubic\" (any of the hosts' kernel), \
             \"bpf:reno\", \"bpf:cubic\", \"bpf:newreno\", \"bpf:vegas\" or \"bpf:westwood\" (in \
             BPF), \"agent:copa\" or \"agent:cubic(hystart=off)\" (an algorithm in an agent), or \"aut\" (the \
             algorithm under test)",
            "\"cubic\"",
            "congestion control of the TCP sockets, and where the algorithm runs; reno is newreno",
        ),
        key("count", "a whole number, 1 to 10000", "1", "how many alike (not requests)"),
        key("start", DURATION, "\"0s\"", "first byte"),
        key("stop", DURATION, "the plan's stop", "last byte or arrival"),
        key(
            "rtt",
            "a duration not below the bottleneck's rtt (back end sim only)",
            "the bottleneck's",
            "two-way propagation delay of this flow",
        ),
        key(
            "hop",
            "a whole number up to the bottleneck's hops; from A to B, without ttl",
            "all of them",
            "the one link of several in a row that its data take",
        ),
        key(
            "dscp",
            "a whole number, 0 to 63",
            "0",
            "DSCP of all its packets, both ways, for queues whose `classes` have rules about it",
        ),
        key(
            "initial_window",
            "a whole number, 1 to 10000; of greedy, requests and video",
            "10",
            "segments that a TCP sender has in flight before the first acknowledgement, and again after an idle \
             time; on the testbed one number for all that sends the same way between a pair of sites",
        ),
        key(
            "receiver",
            "\"honest\", \"dividing\", \"duplicating\", \"optimistic\" or \"concealing\" (see `forebay list \
             receivers`), also with a number such as \"dividing(pieces=10)\"; of greedy (back end sim only)",
            "\"honest\"",
            "whether the receivers acknowledge what has come, or what serves them",
        ),
        key(
            "read_rate",
            "a rate such as \"20Mbit/s\", 1kbit/s to 400Gbit/s; of greedy",
            "at once",
            "payload that each receiving application reads at most: what waits for it closes the window",
        ),
        key(
            "receive_buffer",
            "a size such as \"256KB\", 4KB to 64MB; of greedy, requests and video",
            "that of the stack",
            "payload that each receiver holds, which it announces as its window",
        ),
        key(
            "ack_every",
            "a whole number, 1 to 1000; of greedy, requests and video (back end sim only)",
            "that of the stack",
            "full segments in order that share an acknowledgement",
        ),
        key(
            "ack_delay",
            "a duration from \"1ms\" to \"500ms\"; of greedy, requests and video (back end sim only)",
            "that of the stack",
            "longest that an acknowledgement waits for more segments, whatever their pace",
        ),
        key(
            "ttl",
            "1 or 2; of cbr, poisson and on_off from A to B",
            "the hosts'",
            "time to live: 1 ends at a router before the queue, 2 at one behind the link, before the \
             receivebox",
        ),
        key("bundle", "the name of a bundle", "none", "runs between the sites of that bundle"),
        key("pair", NAME, "\"cross\"", "runs between a pair of sites of this name, in no bundle"),
        key("reversed", "true or false", "false", "data runs from B to A"),
    ],
};

/// `traffic = { kind = "greedy" }`.
pub static GREEDY: Section = Section {
    heading: "traffic = { kind = \"greedy\" }",
    summary: "TCP connections that always have data.",
    keys: &[key("kind", "\"greedy\"", "", "the kind of traffic")],
};

/// `traffic = { kind = "requests", .. }`.
pub static REQUESTS: Section = Section {
    heading: "traffic = { kind = \"requests\", .. }",
    summary: "Open-loop requests over TCP connections; the answers load the link.",
    keys: &[
        key("kind", "\"requests\"", "", "the kind of traffic"),
        key(
            "sizes",
            "a size CDF of forebay (\"caida\", \"caida_1mb\", \"mixed\"), the path of one, relative to \
             the plan, or one size such as \"10KB\"",
            "",
            "sizes of the answers",
        ),
        key(
            "load",
            "a rate such as \"84Mbit/s\" or a share of the bottleneck's such as \"50%\"",
            "",
            "bytes of answers offered over time",
        ),
        key(
            "connections",
            "a whole number, 1 to 10000, or \"each\"",
            "200",
            "persistent connections; \"each\": every request opens one of its own, which costs it a \
             round trip more, and closes it",
        ),
        key(
            "sampling",
            "\"strata\" (the midpoints of equally likely strata, so that every seed \
             offers the nominal load) or \"iid\"",
            "\"strata\"",
            "how sizes are drawn",
        ),
    ],
};

/// `traffic = { kind = "video", .. }`.
pub static VIDEO: Section = Section {
    heading: "traffic = { kind = \"video\", .. }",
    summary: "Clients that play a video, each over a persistent TCP connection, at the rate that 0.85 of the \
              throughput of the last five segments (their harmonic mean) allows. They ask for a segment \
              as soon as it has room in the buffer.",
    keys: &[
        key("kind", "\"video\"", "", "the kind of traffic"),
        key("segment", "a duration, \"100ms\" to \"60s\"", "\"4s\"", "playing time of a segment"),
        key(
            "rates",
            "a list of 1 to 32 rates such as \"5Mbit/s\", each above the one before",
            "[\"1Mbit/s\", \"2500kbit/s\", \"5Mbit/s\", \"8Mbit/s\", \"16Mbit/s\"]",
            "rates that there are of each segment; by default what YouTube recommends for uploads of 360 to \
             1440 lines",
        ),
        key(
            "buffer",
            "a duration of at least a segment",
            "\"30s\"",
            "most playing time that is fetched ahead",
        ),
        key(
            "startup",
            "a duration of at most the buffer",
            "one segment",
            "what is fetched before playback begins",
        ),
    ],
};

/// `traffic = { kind = "cbr", .. }`.
pub static CBR: Section = Section {
    heading: "traffic = { kind = \"cbr\", .. }",
    summary: "UDP datagrams at a constant rate.",
    keys: &[
        key("kind", "\"cbr\"", "", "the kind of traffic"),
        key("rate", RATE, "", "rate of layer-2 frames"),
        key("packet", FRAME, "\"1514B\"", "bytes of a frame"),
    ],
};

/// `traffic = { kind = "poisson", .. }`.
pub static POISSON: Section = Section {
    heading: "traffic = { kind = \"poisson\", .. }",
    summary: "UDP datagrams at the arrivals of a Poisson process.",
    keys: &[
        key("kind", "\"poisson\"", "", "the kind of traffic"),
        key("rate", RATE, "", "mean rate of layer-2 frames"),
        key("packet", FRAME, "\"1514B\"", "bytes of a frame"),
    ],
};

/// `traffic = { kind = "on_off", .. }`.
pub static ON_OFF: Section = Section {
    heading: "traffic = { kind = \"on_off\", .. }",
    summary: "UDP datagrams at a constant rate in random on times (exponential), none between.",
    keys: &[
        key("kind", "\"on_off\"", "", "the kind of traffic"),
        key("rate", RATE, "", "rate of layer-2 frames in the on times"),
        key("on", DURATION, "", "mean on time"),
        key("off", DURATION, "", "mean off time"),
        key("packet", FRAME, "\"1514B\"", "bytes of a frame"),
    ],
};

/// `traffic = { kind = "ping" }`.
pub static PING: Section = Section {
    heading: "traffic = { kind = \"ping\" }",
    summary: "Closed-loop UDP request and response of 40 bytes each.",
    keys: &[key("kind", "\"ping\"", "", "the kind of traffic")],
};

/// `[agent]`.
pub static AGENT: Section = Section {
    heading: "[agent]",
    summary: "The agent of flows with `agent:`. Without effect with `--backend sim`, where algorithms \
              hear of each acknowledgement.",
    keys: &[
        key(
            "report",
            "\"round\", \"ack\" or a time, \"100us\" to \"50ms\"",
            "\"round\"",
            "how often the kernel reports: each round trip, each acknowledgement, each so often",
        ),
        key(
            "period",
            "a time, \"500us\" to \"10ms\", or \"0ms\"",
            "\"10ms\"",
            "time between two looks at the reports, at most a quarter of the shortest round trip; \
             0ms: each report wakes the agent",
        ),
    ],
};
