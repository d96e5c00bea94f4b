//! Keys of bundles, and of the line that they share.

use forebay_core::bundle::NAME_MAX;
use forebay_core::bundle::sendbox::RATES;
use forebay_core::bundle::uplink::WEIGHTS;

use forebay_reader::schema::group_keys;

use super::{JITTER, Key, Kind, NAME, Section, key};

const QDISC: Kind = Kind::Spec(
    "a qdisc (see `forebay list qdiscs`) such as \"fifo\" or { kind = \"sfq\", limit = \"150ms\" }",
);
const BUNDLE_QDISC: &str = "{ kind = \"fq_codel\", limit = \"150ms\", target = \"25ms\", interval = \"250ms\", \
                            follow_rtt = true }";
const WEIGHT: Kind = Kind::Whole(*WEIGHTS.start(), *WEIGHTS.end());
/// Rates that a sendbox can enforce.
const SHAPER_RATE: Kind = Kind::Rate(*RATES.start(), *RATES.end());
const SHARES: &str = "; with [uplink], not of a reversed bundle";
/// Largest unseen share: a bundle with no visible traffic cannot be measured.
const UNSEEN_MAX: f64 = 0.99;
/// Most equal bundles: as many as one box can have.
const COUNT_MAX: u32 = 1024;

const GUARANTEED: Key =
    key("guarantee", SHAPER_RATE, "none", "what is there of the uplink, whatever others ask for");

/// `[[bundle]]`.
pub static BUNDLE: Section = Section {
    summary: "The traffic from one site to another, measured and paced as one.",
    keys: &[
        key("name", Kind::Name(NAME_MAX, "_-"), "", "names the rows; unique"),
        key(
            "count",
            Kind::Whole(1, COUNT_MAX),
            "one, called as it is",
            "so many bundles alike, each between sites of its own: NAME-1, NAME-2, .., with flows FLOW-1, FLOW-2, .. for \
             each flow of the bundle",
        ),
        key("pair", NAME, "the name", "the pair of sites; a bundle each way may share one"),
        key("reversed", Kind::Switch, "false", "carries the traffic from B to A"),
        key("enabled", Kind::Switch, "true", "false: the sites and their traffic, no boxes"),
        key(
            "cc",
            Kind::Spec(
                "an algorithm of the sendbox (see `forebay list algorithms`) such as \"copa\"; the rate of \
             one that takes one, such as { kind = \"const\", rate = \"98%\" }, may be a share of the link's",
            ),
            "",
            "how the bundle's rate is found",
        ),
        key("qdisc", QDISC, BUNDLE_QDISC, "how the sendbox schedules"),
        key(
            "supervised",
            Kind::Switch,
            "true",
            "the sendbox enforces limits only while it measures that they pay; false: they always hold",
        ),
        key(
            "tuning",
            Kind::Any(
                "a table of numbers of the control (see docs/reference/README.md) such as { supervisor_keep = 0.95 }",
            ),
            "what boxes run with",
            "other numbers than those that the sendbox's control is tuned by; with `--backend sim` alone",
        ),
        key(
            "datapath",
            Kind::OneOf(&[("user", ""), ("kernel", "")]),
            "\"user\"",
            "where the sendbox queues: \"kernel\" has queues by flow of its own in the place of qdisc; \
             with `--backend emu` alone, where the hosts in front hand it super-packets",
        ),
        key(
            "forward",
            Kind::OneOf(&[("bridge", ""), ("route", "")]),
            "\"bridge\"",
            "what forwards where the sendbox is: \"bridge\" one for each pair of sites, \"route\" one gateway with one NIC, \
             whose sendbox has all bundles; with `--backend emu` alone",
        )
        .also(", for all bundles of a plan the same; \"route\" not of a reversed bundle"),
        key(
            "min_rate",
            SHAPER_RATE,
            "a quarter of what the path carries, at most 1.2Mbit/s",
            "lower bound of the shaper",
        ),
        key("max_rate", SHAPER_RATE, "none", "upper bound of the shaper"),
        key("weight", WEIGHT, "1", "share of the uplink beside those in the same group").also(SHARES),
        GUARANTEED.also(SHARES),
        key(
            "group",
            Kind::Text("the name of a group"),
            "directly below the uplink",
            "the group of bundles that shares the uplink with others as one",
        )
        .also(SHARES),
        key(
            "unseen",
            Kind::Share(0.0, UNSEEN_MAX),
            "0",
            "packets that take a second way into site B, past the receivebox",
        )
        .also("; not of a reversed bundle"),
        key(
            "clock",
            Kind::Text(
                "changes in order of time, each a rate or a step: \"0s +1000ppm, 20s -30s, 40s +10%\", rates \
             up to 50%",
            ),
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
    summary: "All bundles from A to B are of one sendbox, and share the line of its site by weights. With \
              `--backend sim` alone.",
    keys: &[key("rate", SHAPER_RATE, "", "what they send together at the most")],
};

/// `[[group]]`.
pub static GROUP: Section = Section {
    summary: "Bundles that share the uplink with others as one.",
    keys: &group_keys(NAME, WEIGHT, SHAPER_RATE),
};
