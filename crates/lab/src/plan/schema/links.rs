//! Keys of links and of their changes.

use std::time::Duration;

use super::{
    DURATION, DURATION_MAX, JITTER, Key, Kind, NAME, RATE, RATE_OR_NONE, SHARE, Section, key,
};

/// Most links in parallel or in a row.
pub(super) const LINKS_MAX: u32 = 32;
/// Least time between steps of a walk or a pulse: each is an event of the simulation.
const STEP: Kind = Kind::Duration(Duration::from_millis(1), DURATION_MAX);

const LINK_QDISC: Kind = Kind::Spec(
    "a qdisc (see `forebay list qdiscs`) such as \"fifo\" or { kind = \"sfq\", limit = \"1200p\" }; a limit may \
     be \"3bdp\" of rate and rtt, or \"150ms\" where there is a rate",
);
const WALKING: Kind = Kind::Any("a value of what walks: a rate, a duration or a share");
const TRACE: Kind = Kind::Text(
    "a trace of forebay (\"0.57mbps-poisson\", \"2.64mbps-poisson\", \"3.04mbps-poisson\", \"leo_handovers\", \
     \"lte_outages\", \"lte_poor\"), a drawn path (\"lte\", \"leo\", \"wifi\", \"docsis\", \"adsl\") such as \
     \"lte(seed=3, seconds=60)\", or the path of a trace, relative to the plan: mahimahi, CSV or iperf3 --json",
);

// Keys common to links of several sections.
const LINK_RATE: Key = key("rate", RATE, "`trace` instead", "rate of layer-2 frames without FCS");
const LINK_TRACE: Key = key(
    "trace",
    TRACE,
    "none",
    "rate over time instead of `rate`; CSV also delay over time, and loss instead of `loss`",
);
const LINK_TRACE_END: Key = key(
    "trace_end",
    Kind::OneOf(&[("repeat", "it begins again"), ("hold", "its last values hold")]),
    "\"repeat\"",
    "what comes after the end of `trace`",
)
.also("; hold with a trace of CSV or iperf3");
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
const LINK_REORDER: Key = key(
    "reorder",
    SHARE,
    "0",
    "probability that a packet is held back; above 0 packets also overtake when a trace shortens the delay",
);
const LINK_REORDER_PACKETS: Key =
    key("reorder_packets", Kind::Whole(1, 1000), "3", "how many later packets overtake a held one");

const LINK_CLEARS_ECN: Key = key(
    "clears_ecn",
    Kind::Switch,
    "false",
    "packets come to the queue as not ECN-capable, as out of a tunnel in compatibility mode (RFC 6040) or over \
     a path that clears the field: they are dropped and not marked",
)
.also("; true with `--backend sim` alone");

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
            Kind::Whole(1, LINKS_MAX),
            "1",
            "links side by side, each with its share of the rate and of the queue's limit in packets \
             or bytes; their rows are path-1, path-2, ..; with `--backend sim` alone",
        )
        .also("; with `rate` alone, not with `trace`"),
        key(
            "balance",
            Kind::OneOf(&[
                ("flow", "each flow keeps to a path, which its hash chooses"),
                ("packet", "packets take turns"),
            ]),
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
            Kind::Whole(1, LINKS_MAX),
            "1",
            "links in a row, each like this one and the propagation behind the first; the rows of those \
             behind it are hop-2, hop-3, ..; with `--backend sim` alone",
        )
        .also("; with one path and no bundle"),
        key("change", Kind::Tables(&CHANGE), "none", "changes during the run"),
        key("pulse", Kind::Tables(&PULSE), "none", "changes to another value and back, in turn"),
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
        key("message_loss", SHARE, "0", "loss of messages of a receivebox, beside `loss`"),
        LINK_REORDER,
        LINK_REORDER_PACKETS,
        key("qdisc", LINK_QDISC, "{ kind = \"fifo\", limit = \"10000p\" }", "the queue"),
        key(
            "ack_filter",
            Kind::Switch,
            "false",
            "an acknowledgement that waits goes when a later one of its connection tells all that it does",
        )
        .also("; true with a rate or a trace, the qdisc fifo and `--backend sim` alone"),
        key("change", Kind::Tables(&REVERSE_CHANGE), "none", "changes during the run"),
        key("walk", Kind::Tables(&WALK), "none", "random walks during the run"),
    ],
};

/// `[[bottleneck.walk]]` and `[[reverse.walk]]`.
static WALK: Section = Section {
    summary: "A random walk of the way there, or of the way back, drawn from the seed: in each step d becomes \
              correlation x d + noise, and the value moves by d. With `--backend sim` alone.",
    keys: &[
        key("of", Kind::OneOf(&[("rate", ""), ("delay", ""), ("loss", "")]), "", "what walks")
            .also("; rate of a link that has one"),
        key("every", STEP, "", "time between steps"),
        key("correlation", Kind::Number(-1.0, 1.0), "0", "of each step with the one before"),
        key("deviation", WALKING, "", "standard deviation of the noise"),
        key("min", WALKING, "", "least value"),
        key("max", WALKING, "", "greatest value"),
    ],
};

/// `[[bottleneck.pulse]]`.
static PULSE: Section = Section {
    summary: "A pulse wave: the bottleneck changes from its own value to another one and back, in turn, until the \
              plan's stop.",
    keys: &[
        key("of", Kind::OneOf(&[("rate", ""), ("rtt", ""), ("loss", "")]), "", "what changes")
            .also("; rate of a link that has one"),
        key("every", STEP, "", "time at each value").also(", at least 1/100000 of the plan's stop"),
        key(
            "to",
            Kind::Any("a value of what changes: a rate, a duration or a share"),
            "",
            "the other value",
        ),
    ],
};

/// `[[bottleneck.change]]` and `[[link.change]]`.
static CHANGE: Section = Section {
    summary: "A change of the link; what is not given stays.",
    keys: &[
        key("at", DURATION, "", "when, since the start of the run"),
        CHANGED_RATE,
        key("rtt", DURATION, "as before", "new two-way delay, half of it in each direction"),
        CHANGED_LOSS,
    ],
};

const CHANGED_RATE: Key = key(
    "rate",
    RATE_OR_NONE,
    "as before",
    "new rate, from the next packet on; \"0bit/s\": nothing is sent",
);
const CHANGED_LOSS: Key = key("loss", SHARE, "as before", "new loss probability");

/// `[[reverse.change]]`.
static REVERSE_CHANGE: Section = Section {
    summary: "A change of the link back; what is not given stays. The delay of the link back is half \
              of the bottleneck's `rtt`, changes of `rtt` included.",
    keys: &[
        key("at", DURATION, "", "when, since the start of the run"),
        CHANGED_RATE,
        CHANGED_LOSS,
    ],
};

/// `[[link]]`.
pub static LINK: Section = Section {
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
        LINK_TRACE_END,
        LINK_RTT,
        LINK_JITTER,
        LINK_BATCH,
        LINK_LOSS,
        key("message_loss", SHARE, "0", "loss of messages of a sendbox, beside `loss`"),
        LINK_REORDER,
        LINK_REORDER_PACKETS,
        key("qdisc", LINK_QDISC, "", "the queue"),
        LINK_CLEARS_ECN,
        key("change", Kind::Tables(&CHANGE), "none", "changes during the run"),
    ],
};
