//! Keys of links and of their changes.

use std::time::Duration;

use super::{
    DURATION, DURATION_MAX, JITTER, Key, Kind, NAME, RATE, RATE_OR_NONE, SHARE, Section, key,
};

/// Most links in parallel or in a row.
pub(super) const LINKS_MAX: u32 = 32;
/// Least time between steps of a walk or a pulse: each is an event of the simulation.
const STEP: Kind = Kind::Duration(Duration::from_millis(1), DURATION_MAX);

/// The queueing discipline of a link.
const LINK_QDISC: Kind = Kind::Spec(
    "a qdisc (see `forebay list qdiscs`) such as \"fifo\" or { kind = \"sfq\", limit = \"1200p\" }; a limit may \
     be \"3bdp\" of rate and rtt, or \"150ms\" where there is a rate",
);
/// A value of the property that walks or pulses; the key `of` decides its type.
const WALKING: Kind = Kind::Any("a rate, a duration or a share, matching `of`");
/// A trace by its name, its drawn path or its file.
const TRACE: Kind = Kind::Text(
    "a trace of forebay (\"0.57mbps-poisson\", \"2.64mbps-poisson\", \"3.04mbps-poisson\", \"leo_handovers\", \
     \"lte_outages\", \"lte_poor\"), a drawn path (\"lte\", \"lte_att\", \"lte_tmobile\", \"lte_verizon\", \"leo\", \
     \"wifi\", \"docsis\", \"adsl\") such as \
     \"lte(seed=3, seconds=60)\", or the path of a trace, relative to the plan: mahimahi, CSV or iperf3 --json",
);

// Keys common to links of several sections.
/// The key `rate` of a link.
const LINK_RATE: Key = key("rate", RATE, "`trace` instead", "rate of layer-2 frames without FCS");
/// The key `trace` of a link.
const LINK_TRACE: Key = key(
    "trace",
    TRACE,
    "none",
    "rate over time instead of `rate`; CSV also delay over time, and loss instead of `loss`",
);
/// The key `trace_end` of a link.
const LINK_TRACE_END: Key = key(
    "trace_end",
    Kind::OneOf(&[
        ("repeat", "the trace starts again"),
        ("hold", "the last values of the trace stay"),
    ]),
    "\"repeat\"",
    "behaviour after the end of `trace`",
)
.also("; hold with a trace of CSV or iperf3");
/// The key `rtt` of a link.
const LINK_RTT: Key =
    key("rtt", DURATION, "", "two-way propagation delay, half of it in each direction");
/// The key `batch` of a link.
const LINK_BATCH: Key = key(
    "batch",
    JITTER,
    "\"0s\"",
    "packets leave in batches at multiples of this time, as on a link that waits for its turn",
);
/// The key `jitter` of a link.
const LINK_JITTER: Key = key(
    "jitter",
    JITTER,
    "\"0s\"",
    "largest random extra delay of each packet, uniform; packets stay in order",
);
/// The key `loss` of a link.
const LINK_LOSS: Key =
    key("loss", SHARE, "0", "probability that a packet is lost before the queue");
/// The key `reorder` of a link.
const LINK_REORDER: Key = key(
    "reorder",
    SHARE,
    "0",
    "probability that a packet is held back; above 0 packets also overtake when a trace shortens the delay",
);
/// The key `reorder_packets` of a link.
const LINK_REORDER_PACKETS: Key = key(
    "reorder_packets",
    Kind::Whole(1, 1000),
    "3",
    "number of later packets that overtake a held-back one",
);

/// The key `clears_ecn` of a link.
const LINK_CLEARS_ECN: Key = key(
    "clears_ecn",
    Kind::Switch,
    "false",
    "packets reach the queue as not ECN-capable, so it drops instead of marking them; as after a \
     tunnel in compatibility mode (RFC 6040) or a path that clears the field",
)
.also("; true only with `--backend sim`");

/// `[bottleneck]`.
pub static BOTTLENECK: Section = Section {
    summary: "The link from site A to site B, whose delay is half of `rtt`.",
    keys: &[
        LINK_RATE,
        LINK_TRACE,
        LINK_TRACE_END,
        key(
            "path",
            Kind::Any("the name of a path (see `forebay list paths`) such as \"winds_satellite\""),
            "none",
            "a measured path: its `rate` or `trace`, `rtt`, `loss` and `qdisc` apply unless the \
             plan sets them",
        ),
        LINK_RTT,
        LINK_JITTER,
        LINK_BATCH,
        LINK_LOSS,
        key("message_loss", SHARE, "0", "loss of a sendbox's messages, in addition to `loss`"),
        LINK_REORDER,
        LINK_REORDER_PACKETS,
        key("qdisc", LINK_QDISC, "", "the queue"),
        LINK_CLEARS_ECN,
        key(
            "paths",
            Kind::Whole(1, LINKS_MAX),
            "1",
            "number of parallel links; each gets an equal share of the rate and of the queue's \
             limit in packets or bytes. Their rows are path-1, path-2, ..; only with `--backend \
             sim`",
        )
        .also("; with `rate`, not with `trace`"),
        key(
            "balance",
            Kind::OneOf(&[
                ("flow", "each flow stays on one path, which its hash chooses"),
                ("packet", "packets take turns"),
            ]),
            "\"flow\"",
            "how packets are distributed over several paths",
        ),
        key(
            "path_spread",
            DURATION,
            "\"0s\"",
            "one-way delay that the last of several paths has in addition to the first; the paths \
             between are spaced evenly",
        ),
        key(
            "hops",
            Kind::Whole(1, LINKS_MAX),
            "1",
            "number of links in a row, each like this one; all propagation delay is behind the \
             first. Rows of later links are hop-2, hop-3, ..; only with `--backend sim`",
        )
        .also("; with one path and no bundle"),
        key("change", Kind::Tables(&CHANGE), "none", "changes during the run"),
        key("pulse", Kind::Tables(&PULSE), "none", "periodic changes to another value and back"),
        key("walk", Kind::Tables(&WALK), "none", "random walks during the run; with one path"),
    ],
};

/// `[reverse]`.
pub static REVERSE: Section = Section {
    summary: "The link from site B to site A: no bottleneck unless a rate is given here.",
    keys: &[
        key("rate", RATE, "unlimited", "rate of layer-2 frames without FCS"),
        LINK_TRACE,
        LINK_TRACE_END,
        LINK_JITTER,
        LINK_BATCH,
        LINK_LOSS,
        key("message_loss", SHARE, "0", "loss of a receivebox's messages, in addition to `loss`"),
        LINK_REORDER,
        LINK_REORDER_PACKETS,
        key("qdisc", LINK_QDISC, "{ kind = \"fifo\", limit = \"10000p\" }", "the queue"),
        key(
            "ack_filter",
            Kind::Switch,
            "false",
            "drops a waiting acknowledgement when a later one of its connection carries the same \
             information",
        )
        .also("; true only with a rate or a trace, the qdisc fifo and `--backend sim`"),
        key("change", Kind::Tables(&REVERSE_CHANGE), "none", "changes during the run"),
        key("walk", Kind::Tables(&WALK), "none", "random walks during the run"),
    ],
};

/// `[[bottleneck.walk]]` and `[[reverse.walk]]`.
static WALK: Section = Section {
    summary: "A random walk of the forward or the reverse link, drawn from the seed. In each step \
              d becomes correlation x d + noise, and the value moves by d. Only with `--backend \
              sim`.",
    keys: &[
        key("of", Kind::OneOf(&[("rate", ""), ("delay", ""), ("loss", "")]), "", "what walks")
            .also("; rate only if the link has one"),
        key("every", STEP, "", "time between steps"),
        key(
            "correlation",
            Kind::Number(-1.0, 1.0),
            "0",
            "correlation of each step with the previous one",
        ),
        key("deviation", WALKING, "", "standard deviation of the noise"),
        key("min", WALKING, "", "least value"),
        key("max", WALKING, "", "greatest value"),
    ],
};

/// `[[bottleneck.pulse]]`.
static PULSE: Section = Section {
    summary: "A pulse wave: the bottleneck alternates between its own value and another one until \
              the plan's stop.",
    keys: &[
        key("of", Kind::OneOf(&[("rate", ""), ("rtt", ""), ("loss", "")]), "", "what changes")
            .also("; rate only if the link has one"),
        key("every", STEP, "", "time at each value").also(", at least 1/100000 of the plan's stop"),
        key("to", Kind::Any("a rate, a duration or a share, matching `of`"), "", "the other value"),
    ],
};

/// `[[bottleneck.change]]` and `[[link.change]]`.
static CHANGE: Section = Section {
    summary: "A change of the link; values that are not given stay.",
    keys: &[
        key("at", DURATION, "", "when, since the start of the run"),
        CHANGED_RATE,
        key("rtt", DURATION, "as before", "new two-way delay, half of it in each direction"),
        CHANGED_LOSS,
    ],
};

/// The key `rate` of a change.
const CHANGED_RATE: Key = key(
    "rate",
    RATE_OR_NONE,
    "as before",
    "new rate, from the next packet on; \"0bit/s\": nothing is sent",
);
/// The key `loss` of a change.
const CHANGED_LOSS: Key = key("loss", SHARE, "as before", "new loss probability");

/// `[[reverse.change]]`.
static REVERSE_CHANGE: Section = Section {
    summary: "A change of the reverse link; values that are not given stay. Its delay is half of \
              the bottleneck's `rtt`, including changes of `rtt`.",
    keys: &[
        key("at", DURATION, "", "when, since the start of the run"),
        CHANGED_RATE,
        CHANGED_LOSS,
    ],
};

/// `[[link]]`.
pub static LINK: Section = Section {
    summary: "The link of a site pair whose traffic does not cross the bottleneck. Its reverse \
              direction has no bottleneck. Only with `--backend sim`.",
    keys: &[
        key(
            "name",
            NAME,
            "",
            "name of the site pair, which has flows or a bundle, and name in results; unique",
        ),
        LINK_RATE,
        LINK_TRACE,
        LINK_TRACE_END,
        LINK_RTT,
        LINK_JITTER,
        LINK_BATCH,
        LINK_LOSS,
        key("message_loss", SHARE, "0", "loss of a sendbox's messages, in addition to `loss`"),
        LINK_REORDER,
        LINK_REORDER_PACKETS,
        key("qdisc", LINK_QDISC, "", "the queue"),
        LINK_CLEARS_ECN,
        key("change", Kind::Tables(&CHANGE), "none", "changes during the run"),
    ],
};
