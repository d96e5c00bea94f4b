//! Keys of links, and of what happens to them.

use super::{DURATION, JITTER, Key, NAME, RATE, SHARE, Section, TABLES, key};

const RATE_OR_NONE: &str =
    "a rate such as \"96Mbit/s\", 1kbit/s to 400Gbit/s, or \"0bit/s\": nothing is sent";
const LINK_QDISC: &str = "a qdisc (see `forebay list qdiscs`) such as \"fifo\" or { kind = \
                          \"sfq\", limit = \"1200p\" }; a limit may be \"3bdp\" of rate and rtt, \
                          or \"150ms\" where there is a rate";
const WALKING: &str = "a value of what walks: a rate, a duration or a share";
const TRACE: &str = "a trace of forebay (\"0.57mbps-poisson\", \"2.64mbps-poisson\", \"3.04mbps-poisson\"), or the \
                     path of a mahimahi trace, relative to the plan";

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
