//! Every key that a plan may contain: the reader refuses others, `forebay plan schema` prints them.

use std::fmt::Write;

use forebay_core::spec::one_of;

/// One key of a table.
#[derive(Debug)]
pub struct Key {
    /// Name as written.
    pub name: &'static str,
    /// What is allowed, in the words of error messages.
    pub allowed: &'static str,
    /// What its absence means; empty: the key is required.
    pub default: &'static str,
    /// What it does, one line.
    pub summary: &'static str,
}

/// The keys of one table.
#[derive(Debug)]
pub struct Section {
    /// How the table is written, such as `[[flow]]`.
    pub heading: &'static str,
    /// What it describes.
    pub summary: &'static str,
    /// Keys of the section, in the order of the documentation.
    pub keys: &'static [Key],
}

impl Section {
    /// The key called `name`.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// `one of a, b, c`, instead of the key `written`.
    pub fn allowed_keys(&self, written: &str) -> String {
        let names: Vec<&str> = self.keys.iter().map(|key| key.name).collect();
        one_of(written, &names)
    }
}

pub(crate) const fn key(
    name: &'static str,
    allowed: &'static str,
    default: &'static str,
    summary: &'static str,
) -> Key {
    Key { name, allowed, default, summary }
}

const NAME: &str = "1 to 64 letters, digits, `_` or `-`";
const DURATION: &str = "a duration such as \"50ms\", \"1.5s\" or \"100us\", at most \"1440min\"";
const TIME: &str = "a duration such as \"50ms\", round trips of the bottleneck such as \"100rtt\", or the longest \
                    of several: \"max(60s, 100rtt)\"; at most \"1440min\"";
pub(super) const RATE: &str = "a rate such as \"96Mbit/s\", 1kbit/s to 400Gbit/s";
const RATE_OR_NONE: &str =
    "a rate such as \"96Mbit/s\", 1kbit/s to 400Gbit/s, or \"0bit/s\": nothing is sent";
const JITTER: &str = "a duration from \"0s\" to \"1s\"";
const SHARE: &str = "a share from 0 to 1 such as \"0.01\", \"1%\" or 0.01";
const QDISC: &str = "a qdisc (see `forebay list qdiscs`) such as \"fifo\" or { kind = \"sfq\", \
                     limit = \"150ms\" }";
pub(super) const BUNDLE_QDISC: &str =
    "{ kind = \"fq_codel\", limit = \"150ms\", target = \"25ms\", interval = \"250ms\" }";
const LINK_QDISC: &str = "a qdisc (see `forebay list qdiscs`) such as \"fifo\" or { kind = \
                          \"sfq\", limit = \"1200p\" }; a limit may be \"3bdp\" of rate and rtt, \
                          or \"150ms\" where there is a rate";
const WEIGHT: &str = "a whole number, 1 to 1000; with [uplink], not of a reversed bundle";
const GUARANTEE: &str = "a rate such as \"96Mbit/s\", 100kbit/s to 100Gbit/s; with [uplink], not of a reversed \
                         bundle";
const FRAME: &str = "a size of a frame, \"64B\" to \"1514B\"";
const TABLE: &str = "a table";
const TABLES: &str = "a list of tables";
const WALKING: &str = "a value of what walks: a rate, a duration or a share";
const TRACE: &str = "a trace of forebay (\"0.57mbps-poisson\", \"2.64mbps-poisson\", \"3.04mbps-poisson\"), or the \
                     path of a mahimahi trace, relative to the plan";

/// The document.
pub static PLAN: Section = Section {
    heading: "(top level)",
    summary: "One experiment: a bottleneck, traffic over it, bundles around it, arms to compare.",
    keys: &[
        key("name", NAME, "", "names the results"),
        key("title", "a text", "the name", "heading in the report"),
        key(
            "description",
            "a text",
            "none",
            "what the experiment shows, in plain words; values are shown beside it",
        ),
        key(
            "extends",
            "the path of another plan, relative to this one",
            "none",
            "top-level keys of that plan hold where this plan has none of that name",
        ),
        key(
            "seeds",
            "a range such as \"1..3\" (both ends included) or one number",
            "\"1..3\"",
            "every random choice of a run is drawn from its seed",
        ),
        key(
            "as_published",
            "a table of dotted keys with their values",
            "none",
            "what `--as-published` sets: whoever published the experiment ran it so",
        ),
        key(
            "aut",
            "the algorithm under test, as a flow's `cc`, or a list of several such as [\"cubic\", \"bbr\"]",
            "none",
            "what flows with `cc = \"aut\"` have; each of several is an arm of its name, instead of [[arm]]",
        ),
        key("stop", TIME, "", "end of arrivals, counted from the start of the run"),
        key("warmup", TIME, "\"0s\"", "requests arriving and bytes moving before are not counted"),
        key(
            "stack",
            "\"linux\" (the testbed's kernel) or \"ns3\" (ns-3 as ccperf sets it up; back ends sim and \
             ns3)",
            "\"linux\"",
            "how TCP's switches stand in the simulator",
        ),
        key(
            "ecn",
            "\"off\" or \"classic\" (RFC 3168, between all hosts)",
            "\"off\"",
            "whether queues whose `ecn` is true can mark packets of TCP instead of dropping them; those \
             of an algorithm that needs marks, such as dctcp, they always can",
        ),
        key(
            "start_jitter",
            TIME,
            "\"0s\"",
            "each connection starts later by a share of it that is drawn from the seed",
        ),
        key("drain", DURATION, "\"30s\"", "longest wait for unfinished requests after `stop`"),
        key("bottleneck", TABLE, "", "the link from site A to site B"),
        key("reverse", TABLE, "unlimited rate, no loss", "the link back"),
        key("link", TABLES, "none", "links of pairs of sites that do not take the bottleneck"),
        key("flow", TABLES, "", "the traffic"),
        key("bundle", TABLES, "none", "the bundles"),
        key(
            "uplink",
            TABLE,
            "nothing is shared out",
            "the line of site A, which its bundles share",
        ),
        key("group", TABLES, "none", "groups of bundles, which share the uplink as one"),
        key("arm", TABLES, "one arm called `default`", "what is compared"),
        key("arms", "a list of names of arms", "all arms", "which arms are run, in this order"),
        key(
            "cells",
            "a table of dotted keys with lists of values",
            "one cell",
            "a grid: every arm is run in every combination",
        ),
        key("cell", TABLES, "none", "cells with a name, each of them with all of the grid"),
        key("window", TABLES, "none", "further intervals over which metrics are taken"),
        key("figure", TABLES, "[[figure]] kind = \"default\"", "what the report draws"),
        key("fault", TABLES, "none", "signals sent to the boxes and the agent"),
        key("upset", TABLES, "none", "changes of the sites' devices and of what receiveboxes see"),
        key("attack", TABLE, "none", "hostile messages sent to a box"),
        key("agent", TABLE, "all defaults", "how the agent of flows with `agent:` hears of them"),
    ],
};

// What links of several sections have.
const LINK_RATE: Key = key("rate", RATE, "", "rate of layer-2 frames without FCS; or `trace`");
const LINK_TRACE: Key = key("trace", TRACE, "none", "capacity over time instead of `rate`");
const LINK_RTT: Key =
    key("rtt", DURATION, "", "two-way propagation delay, half of it in each direction");
const LINK_BATCH: Key = key(
    "batch",
    JITTER,
    "\"0s\"",
    "packets leave together, at whole multiples of this, as those of a link that waits for its turn",
);
const LINK_JITTER: Key = key(
    "jitter",
    JITTER,
    "\"0s\"",
    "each packet takes longer than the delay, uniformly up to this, and waits for those before it",
);
const LINK_LOSS: Key =
    key("loss", SHARE, "0", "probability that a packet is lost before the queue");
const LINK_REORDER: Key = key("reorder", SHARE, "0", "probability that a packet is held back");
const LINK_REORDER_PACKETS: Key = key(
    "reorder_packets",
    "a whole number, 1 to 1000",
    "3",
    "how many later packets overtake a held one",
);

const LINK_CLEARS_ECN: Key = key(
    "clears_ecn",
    "true or false; true with `--backend sim` alone",
    "false",
    "packets come to the queue as not ECN-capable, as out of a tunnel in compatibility mode (RFC 6040) or over \
     a path that clears the field: they are dropped and not marked",
);

/// `[bottleneck]`.
pub static BOTTLENECK: Section = Section {
    heading: "[bottleneck]",
    summary: "The link from site A to site B, whose delay is half of `rtt`.",
    keys: &[
        LINK_RATE,
        LINK_TRACE,
        key(
            "path",
            "the name of a path (see `forebay list paths`) such as \"winds_satellite\"",
            "none",
            "a path that somebody measured: its `rate` or `trace`, `rtt`, `loss` and `qdisc` hold where \
             the plan has none",
        ),
        LINK_RTT,
        LINK_JITTER,
        LINK_BATCH,
        LINK_LOSS,
        key("message_loss", SHARE, "0", "loss of messages of a sendbox, beside `loss`"),
        LINK_REORDER,
        LINK_REORDER_PACKETS,
        key("qdisc", LINK_QDISC, "", "the queue"),
        LINK_CLEARS_ECN,
        key(
            "paths",
            "a whole number, 1 to 32; with `rate` alone, not with `trace`",
            "1",
            "links side by side, each with its share of the rate and of the queue's limit in packets \
             or bytes; their rows are path-1, path-2, ..; with `--backend sim` alone",
        ),
        key(
            "balance",
            "\"flow\" (each flow keeps to a path, which its hash chooses) or \"packet\" (packets take \
             turns)",
            "\"flow\"",
            "how packets are shared among several paths",
        ),
        key(
            "path_spread",
            DURATION,
            "\"0s\"",
            "by how much the last of several paths is longer than the first, one way; those between \
             in equal steps",
        ),
        key(
            "hops",
            "a whole number, 1 to 32; with one path and no bundle",
            "1",
            "links in a row, each like this one and the propagation behind the first; the rows of those \
             behind it are hop-2, hop-3, ..; with `--backend sim` alone",
        ),
        key("change", TABLES, "none", "changes during the run"),
        key("pulse", TABLES, "none", "changes to another value and back, in turn"),
        key("walk", TABLES, "none", "random walks during the run; with one path"),
    ],
};

/// `[reverse]`.
pub static REVERSE: Section = Section {
    heading: "[reverse]",
    summary: "The link from site B to site A: no bottleneck unless a rate is given here.",
    keys: &[
        key("rate", RATE, "unlimited", "rate of layer-2 frames without FCS"),
        LINK_TRACE,
        LINK_JITTER,
        LINK_BATCH,
        LINK_LOSS,
        key("message_loss", SHARE, "0", "loss of messages of a receivebox, beside `loss`"),
        LINK_REORDER,
        LINK_REORDER_PACKETS,
        key("qdisc", LINK_QDISC, "{ kind = \"fifo\", limit = \"10000p\" }", "the queue"),
        key(
            "ack_filter",
            "true or false; true with a rate or a trace, the qdisc fifo and `--backend sim` alone",
            "false",
            "an acknowledgement that waits goes when a later one of its connection tells all that it does",
        ),
        key("change", TABLES, "none", "changes during the run"),
        key("walk", TABLES, "none", "random walks during the run"),
    ],
};

/// `[[bottleneck.walk]]`.
pub static WALK: Section = Section {
    heading: "[[bottleneck.walk]]",
    summary: "A random walk of the way there, drawn from the seed: in each step d becomes \
              correlation x d + noise, and the value moves by d. With `--backend sim` alone.",
    keys: WALK_KEYS,
};

/// `[[reverse.walk]]`.
pub static REVERSE_WALK: Section = Section {
    heading: "[[reverse.walk]]",
    summary: "A random walk of the way back.",
    keys: WALK_KEYS,
};

const WALK_KEYS: &[Key] = &[
    key("of", "rate, delay or loss; rate of a link that has one", "", "what walks"),
    key("every", "a duration, \"1ms\" to \"1440min\"", "", "time between steps"),
    key("correlation", "a number, -1 to 1", "0", "of each step with the one before"),
    key("deviation", WALKING, "", "standard deviation of the noise"),
    key("min", WALKING, "", "least value"),
    key("max", WALKING, "", "greatest value"),
];

/// `[[bottleneck.pulse]]`.
pub static PULSE: Section = Section {
    heading: "[[bottleneck.pulse]]",
    summary: "A pulse wave: the bottleneck changes from its own value to another one and back, in turn, until the \
              plan's stop.",
    keys: &[
        key("of", "rate, rtt or loss; rate of a link that has one", "", "what changes"),
        key(
            "every",
            "a duration, \"1ms\" to \"1440min\" and at least 1/100000 of the plan's stop",
            "",
            "time at each value",
        ),
        key("to", "a value of what changes: a rate, a duration or a share", "", "the other value"),
    ],
};

/// `[[bottleneck.change]]`.
pub static CHANGE: Section = Section {
    heading: "[[bottleneck.change]]",
    summary: "A change of the link; what is not given stays.",
    keys: CHANGE_KEYS,
};

/// `[[link.change]]`.
pub static LINK_CHANGE: Section = Section {
    heading: "[[link.change]]",
    summary: "A change of the link of a pair of sites; what is not given stays.",
    keys: CHANGE_KEYS,
};

const CHANGE_KEYS: &[Key] = &[
    key("at", DURATION, "", "when, since the start of the run"),
    key("rate", RATE_OR_NONE, "as before", "new rate, from the next packet on"),
    key("rtt", DURATION, "as before", "new two-way delay, half of it in each direction"),
    key("loss", SHARE, "as before", "new loss probability"),
];

/// `[[reverse.change]]`.
pub static REVERSE_CHANGE: Section = Section {
    heading: "[[reverse.change]]",
    summary: "A change of the link back; what is not given stays. The delay of the link back is half \
              of the bottleneck's `rtt`, changes of `rtt` included.",
    keys: &[
        key("at", DURATION, "", "when, since the start of the run"),
        key("rate", RATE_OR_NONE, "as before", "new rate, from the next packet on"),
        key("loss", SHARE, "as before", "new loss probability"),
    ],
};

/// `[[link]]`.
pub static LINK: Section = Section {
    heading: "[[link]]",
    summary: "The link of a pair of sites that does not take the bottleneck: another way into the world, \
              with no bottleneck on the way back. With `--backend sim` alone.",
    keys: &[
        key(
            "name",
            NAME,
            "",
            "names the pair of sites, which has flows or a bundle, and the rows; unique",
        ),
        LINK_RATE,
        LINK_TRACE,
        LINK_RTT,
        LINK_JITTER,
        LINK_BATCH,
        LINK_LOSS,
        key("message_loss", SHARE, "0", "loss of messages of a sendbox, beside `loss`"),
        LINK_REORDER,
        LINK_REORDER_PACKETS,
        key("qdisc", LINK_QDISC, "", "the queue"),
        LINK_CLEARS_ECN,
        key("change", TABLES, "none", "changes during the run"),
    ],
};

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
             \"bpf:reno\" or \"bpf:cubic\" (in \
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

/// `[[bundle]]`.
pub static BUNDLE: Section = Section {
    heading: "[[bundle]]",
    summary: "The traffic from one site to another, measured and paced as one.",
    keys: &[
        key("name", NAME, "", "names the rows; unique"),
        key("pair", NAME, "the name", "the pair of sites; a bundle each way may share one"),
        key("reversed", "true or false", "false", "carries the traffic from B to A"),
        key("enabled", "true or false", "true", "false: the sites and their traffic, no boxes"),
        key(
            "cc",
            "an algorithm of the sendbox (see `forebay list algorithms`) such as \"copa\"; the rate of \
             one that takes one, such as { kind = \"const\", rate = \"98%\" }, may be a share of the link's",
            "",
            "how the bundle's rate is found",
        ),
        key("qdisc", QDISC, BUNDLE_QDISC, "how the sendbox schedules"),
        key("min_rate", RATE, "1.2Mbit/s", "lower bound of the shaper, at least 100kbit/s"),
        key("max_rate", RATE, "none", "upper bound of the shaper, at most 100Gbit/s"),
        key("weight", WEIGHT, "1", "share of the uplink beside those in the same group"),
        key("guarantee", GUARANTEE, "none", "what is there of the uplink, whatever others ask for"),
        key(
            "group",
            "the name of a group; with [uplink], not of a reversed bundle",
            "directly below the uplink",
            "the group of bundles that shares the uplink with others as one",
        ),
        key(
            "unseen",
            "a share from 0 to 0.99 such as \"20%\"; not of a reversed bundle",
            "0",
            "packets that take a second way into site B, past the receivebox",
        ),
        key(
            "clock",
            "changes in order of time, each a rate or a step: \"0s +1000ppm, 20s -30s, 40s +10%\", rates \
             up to 50%",
            "that of the run",
            "what the receivebox reads the time on, compared with the run's",
        ),
        key(
            "report_jitter",
            JITTER,
            "\"0s\"",
            "messages of the receivebox leave late, uniformly up to this; with `--backend sim` alone",
        ),
        key(
            "timestamp_jitter",
            JITTER,
            "\"0s\"",
            "packets of the bundle are stamped late, uniformly up to this; with `--backend sim` alone",
        ),
    ],
};

/// `[uplink]`.
pub static UPLINK: Section = Section {
    heading: "[uplink]",
    summary: "All bundles from A to B are of one sendbox, and share the line of its site by weights. With \
              `--backend sim` alone.",
    keys: &[key("rate", RATE, "", "what they send together at the most, 100kbit/s to 100Gbit/s")],
};

/// `[[group]]`.
pub static GROUP: Section = Section {
    heading: "[[group]]",
    summary: "Bundles that share the uplink with others as one.",
    keys: &[
        key("name", NAME, "", "what bundles and groups call it; unique"),
        key(
            "parent",
            "the name of a group",
            "directly below the uplink",
            "the group that this one is in",
        ),
        key("weight", WEIGHT, "1", "share of the uplink beside those in the same group"),
        key("guarantee", GUARANTEE, "what is guaranteed within", "what is there for all within"),
        key("max_rate", RATE, "none", "all within together are never faster"),
    ],
};

/// `[[arm]]`.
pub static ARM: Section = Section {
    heading: "[[arm]]",
    summary: "One side of a comparison: a name and what it changes.",
    keys: &[
        key(
            "name",
            NAME,
            "",
            "names the rows; unique; `status_quo`, `in_network_fq` and `solo`, in which a flow runs alone since the \
             others hardly live, are what metrics compare the others with",
        ),
        key("summary", "a text", "none", "what the arm is, in plain words, for the report"),
        key("set", "a table of dotted keys with their values", "nothing", "overrides of the plan"),
    ],
};

/// `[[cell]]`.
pub static CELL: Section = Section {
    heading: "[[cell]]",
    summary: "A setting in which every arm is run: a name and what it changes.",
    keys: &[
        key("name", NAME, "", "names the rows; unique"),
        key("set", "a table of dotted keys with their values", "nothing", "overrides of the plan"),
    ],
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

/// `[[window]]`.
pub static WINDOW: Section = Section {
    heading: "[[window]]",
    summary: "An interval whose metrics are reported as `name.metric`.",
    keys: &[
        key("name", NAME, "", "prefix of the metrics; unique"),
        key("from", DURATION, "", "start, since the start of the run"),
        key("to", DURATION, "the plan's stop", "end, since the start of the run"),
    ],
};

/// `[[figure]]`.
pub static FIGURE: Section = Section {
    heading: "[[figure]]",
    summary: "A figure of the report, drawn of every cell; bars, curves and those with a panel a cell once.",
    keys: &[
        key(
            "kind",
            "cdf (of single requests, or of a quantity over time), bars (a metric of all seeds), curve (the same \
             against the number that tells cells apart), plane (one metric against another, a point a run), \
             timeline (of the first seed), ribbon (least, median and greatest of the seeds over time), \
             transitions (a table of the bundles' changes of state) or default (the figures of a plan that \
             names none)",
            "",
            "how it is drawn",
        ),
        key("title", "a text", "none", "what to see in the figure"),
        key(
            "metric",
            "a metric (see `forebay list metrics`) such as \"slowdown_p50\", \
             \"flows/web/goodput_mbps\", \"links/forward/utilisation\" or \
             \"bundles/*/queue_mean_packets\" (the mean over all); of cdf \"slowdown\" or \"fct_ms\", \
             also of a flow",
            "none",
            "what bars, curve and cdf show, and plane shows upwards",
        ),
        key(
            "against",
            "a metric (see `forebay list metrics`) such as \"flows/bulk/mean_srtt_l4\"",
            "none",
            "what plane shows to the right",
        ),
        key(
            "series",
            "a list of quantities over time, all of one unit, such as \
             [\"links/forward/queue_packets\", \"bundles/*/queue_packets\"] (`forebay list series`)",
            "none",
            "what timeline and ribbon show, and cdf of one; `*`: of each",
        ),
        key(
            "facet",
            "of cdf size, flow or cell; of plane and a cdf of a series cell; of timeline and ribbon part, arm or \
             cell",
            "one panel; of timeline and ribbon part",
            "what each panel is of; with arm the curves are the series, else the arms",
        ),
        key(
            "baseline",
            "the name of an arm",
            "none",
            "the arm that bars of the others are divided by",
        ),
        key("published", TABLES, "none", "what others report, beside the bars"),
    ],
};

/// `[[figure.published]]`.
pub static PUBLISHED: Section = Section {
    heading: "[[figure.published]]",
    summary: "A number that somebody else reports, drawn and tabled beside an arm's own.",
    keys: &[
        key("label", "a text", "\"published\"", "name of the bar"),
        key("arm", "the name of an arm", "", "arm of the number"),
        key("cell", "the name of a cell, or its first word", "all", "cell of the number"),
        key("value", "a number in the unit of the figure", "", "what is reported"),
        key("source", "a text", "", "where the number is reported"),
    ],
};

/// `[[fault]]`.
pub static FAULT: Section = Section {
    heading: "[[fault]]",
    summary: "A signal to a box, or to the agent of the flows, during the run. A plan or an arm \
              without that program goes on without the fault.",
    keys: &[
        key("at", DURATION, "", "when, since the start of the run"),
        key("bundle", "the name of a bundle", "", "the bundle whose box it is; not for an agent"),
        key("end", "\"sendbox\", \"receivebox\" or \"agent\"", "", "which program"),
        key(
            "action",
            "\"kill\", \"stop\", \"continue\" or \"restart\"; of a box also \"restart_other_key\", \
             \"restart_full_log\" (on a full disk) or \"restart_blocked_log\" (a pipe that nobody reads), \
             these two with `--backend emu` alone",
            "",
            "what happens to the program",
        ),
    ],
};

/// `[[upset]]`.
pub static UPSET: Section = Section {
    heading: "[[upset]]",
    summary: "A change of a device of a bundle's sites, or of what comes to its receivebox, in every \
              arm: also in those without the boxes. With `--backend sim` only unseen, forged, suspend \
              and resume.",
    keys: &[
        key("at", DURATION, "", "when, since the start of the run"),
        key("bundle", "the name of a bundle", "", "the bundle whose sites change"),
        key("site", "\"a\" or \"b\"", "\"a\"", "which site; from unseen on all are at site B"),
        key(
            "what",
            "\"down\", \"up\" (the WAN device of the box), \"leave_bridge\", \"join_bridge\" (the \
             same device), \"mtu\" (of both ports), \"address\", \"no_address\" (one more of the \
             bridge, among the hosts'), \"offloads_on\", \"offloads_off\" (of both ports), \"unseen\" \
             (packets that pass the receivebox by), \"forged\" (packets in the bundle's name), \
             \"suspend\" or \"resume\" (the receivebox's machine, which packets pass, with \
             `--backend sim` alone)",
            "",
            "what changes",
        ),
        key("mtu", "a whole number, 576 to 9000", "none", "bytes, with \"mtu\""),
        key("share", SHARE, "none", "of the packets, with \"unseen\""),
        key("rate", "0kbit/s or a rate such as \"10Mbit/s\"", "none", "of frames, with \"forged\""),
    ],
};

/// `[attack]`.
pub static ATTACK: Section = Section {
    heading: "[attack]",
    summary: "Forged, replayed, truncated and oversized messages to a box in its peer's name, as \
              fast as a socket takes them. Replayed are the newest messages and the session \
              before the first fault, that one first as a whole. Its time and the second after it \
              are a window called `attack`.",
    keys: &[
        key("at", DURATION, "", "when it begins, since the start of the run"),
        key("bundle", "the name of a bundle", "", "the bundle whose box is attacked"),
        key("target", "\"sendbox\" or \"receivebox\"", "", "which box"),
        key("messages", "a whole number, 1 to 1000000000", "1000000", "how many messages"),
        key("enabled", "true or false", "true", "false: no attack"),
    ],
};

/// All sections in the order of the documentation.
pub static SECTIONS: [&Section; 30] = [
    &PLAN,
    &BOTTLENECK,
    &REVERSE,
    &CHANGE,
    &REVERSE_CHANGE,
    &PULSE,
    &WALK,
    &REVERSE_WALK,
    &LINK,
    &LINK_CHANGE,
    &FLOW,
    &GREEDY,
    &REQUESTS,
    &VIDEO,
    &CBR,
    &POISSON,
    &ON_OFF,
    &PING,
    &BUNDLE,
    &UPLINK,
    &GROUP,
    &ARM,
    &CELL,
    &WINDOW,
    &FIGURE,
    &PUBLISHED,
    &FAULT,
    &UPSET,
    &ATTACK,
    &AGENT,
];

/// The annotated listing of `forebay plan schema`.
pub fn listing() -> String {
    let mut out = String::from(
        "# Plans are TOML. Quantities have a unit (\"96Mbit/s\", \"50ms\", \"1200p\", \"15KB\").\n\
         # A bare number for a quantity and an unknown key are errors.\n\
         # Overrides (--set, arms, cells) name keys by dots, elements of lists by their name; --set\n\
         # replaces what the plan has, and not what an arm or a cell sets itself:\n\
         #   --set bottleneck.rate=48Mbit/s  --set bundle.a.cc=setpoint  --set flow.web.count=4\n",
    );
    for section in SECTIONS {
        let _ = write!(out, "\n{}\n  # {}\n", section.heading, section.summary);
        for key in section.keys {
            let default = match key.default {
                "" => "required".to_string(),
                default => format!("default: {default}"),
            };
            let _ = writeln!(out, "  {:<16} {} ({default})", key.name, key.summary);
            let _ = writeln!(out, "  {:<16}   {}", "", key.allowed);
        }
    }
    out
}
