//! Keys of bundles, and of the line that they share.

use forebay_core::bundle::NAME_MAX;
use forebay_core::bundle::sendbox::RATES;
use forebay_core::bundle::uplink::WEIGHTS;

use forebay_reader::schema::group_keys;

use super::{JITTER, Key, Kind, NAME, Section, key};

/// The queueing discipline of a sendbox.
const QDISC: Kind = Kind::Spec(
    "a qdisc (see `forebay list qdiscs`) such as \"fifo\" or { kind = \"sfq\", limit = \"150ms\" }",
);
/// Default of `qdisc`: FQ-CoDel for queues that the sendbox creates on purpose. Its target of 25 ms
/// is above the 5 ms of RFC 8290.
const BUNDLE_QDISC: &str = "{ kind = \"fq_codel\", limit = \"150ms\", target = \"25ms\", interval = \"250ms\", \
                            follow_rtt = true }";
/// Weight of a bundle or a group in sharing the uplink.
const WEIGHT: Kind = Kind::Whole(*WEIGHTS.start(), *WEIGHTS.end());
/// Rates that a sendbox can enforce.
const SHAPER_RATE: Kind = Kind::Rate(*RATES.start(), *RATES.end());
/// Restriction of the keys that share an uplink.
const SHARES: &str = "; with [uplink], not for a reversed bundle";
/// Largest unseen share: a bundle with no visible traffic cannot be measured.
const UNSEEN_MAX: f64 = 0.99;
/// Most equal bundles: as many as one box can have.
const COUNT_MAX: u32 = 1024;

/// The key `guarantee` of a bundle.
const GUARANTEED: Key =
    key("guarantee", SHAPER_RATE, "none", "rate of the uplink reserved for this bundle");

/// `[[bundle]]`.
pub static BUNDLE: Section = Section {
    summary: "The traffic from one site to another, measured and paced as one.",
    keys: &[
        key("name", Kind::Name(NAME_MAX, "_-"), "", "name in results; unique"),
        key(
            "count",
            Kind::Whole(1, COUNT_MAX),
            "one bundle, with exactly this name",
            "number of identical bundles, each between its own sites: NAME-1, NAME-2, .., with \
             flows FLOW-1, FLOW-2, .. for each flow of the bundle",
        ),
        key(
            "pair",
            NAME,
            "the name",
            "the pair of sites; one bundle in each direction may use the same pair",
        ),
        key("reversed", Kind::Switch, "false", "carries the traffic from B to A"),
        key(
            "enabled",
            Kind::Switch,
            "true",
            "false: the sites and their traffic, but no sendbox and no receivebox",
        ),
        key(
            "cc",
            Kind::Spec(
                "an algorithm of the sendbox (see `forebay list algorithms`) such as \"copa\"; a \
                 rate parameter, as in { kind = \"const\", rate = \"98%\" }, may be a share of the \
                 link's rate",
            ),
            "",
            "how the bundle's rate is found",
        ),
        key("qdisc", QDISC, BUNDLE_QDISC, "how the sendbox schedules"),
        key(
            "supervised",
            Kind::Switch,
            "true",
            "true: the sendbox limits the rate only while it measures a benefit; false: always",
        ),
        key(
            "tuning",
            Kind::Any(
                "a table of control parameters (see docs/reference/README.md) such as { \
                 supervisor_keep = 0.95 }",
            ),
            "the values of a deployed sendbox",
            "overrides of the sendbox's control parameters; only with `--backend sim`",
        ),
        key(
            "datapath",
            Kind::OneOf(&[("user", ""), ("kernel", "")]),
            "\"user\"",
            "where the sendbox queues packets: \"kernel\" uses its own per-flow queues instead of \
             `qdisc`; only with `--backend emu`, where the hosts then send it super-packets",
        ),
        key(
            "forward",
            Kind::OneOf(&[("bridge", ""), ("route", "")]),
            "\"bridge\"",
            "how the sendbox's machine forwards: \"bridge\": a bridge for each pair of sites; \
             \"route\": one gateway with one NIC, whose sendbox serves all bundles; only with \
             `--backend emu`",
        )
        .also(", the same for all bundles of a plan; \"route\" not for a reversed bundle"),
        key(
            "min_rate",
            SHAPER_RATE,
            "a quarter of the path's rate, at most 1.2Mbit/s",
            "lowest rate of the shaper",
        ),
        key("max_rate", SHAPER_RATE, "none", "highest rate of the shaper"),
        key("weight", WEIGHT, "1", "weight in sharing the uplink within its group").also(SHARES),
        GUARANTEED.also(SHARES),
        key(
            "group",
            Kind::Text("the name of a group"),
            "directly below the uplink",
            "the group in which the bundle shares the uplink",
        )
        .also(SHARES),
        key(
            "unseen",
            Kind::Share(0.0, UNSEEN_MAX),
            "0",
            "share of packets that enter site B on a second path, which bypasses the receivebox",
        )
        .also("; not for a reversed bundle"),
        key(
            "clock",
            Kind::Text(
                "changes in order of time, each a rate or a step: \"0s +1000ppm, 20s -30s, 40s \
                 +10%\", rates up to 50%",
            ),
            "the run's clock",
            "deviation of the receivebox's clock from the run's clock",
        ),
        key(
            "report_jitter",
            JITTER,
            "\"0s\"",
            "largest random delay of the receivebox's messages, uniform; only with `--backend sim`",
        ),
        key(
            "timestamp_jitter",
            JITTER,
            "\"0s\"",
            "largest random delay of the timestamps on the bundle's packets, uniform; only with \
             `--backend sim`",
        ),
    ],
};

/// `[uplink]`.
pub static UPLINK: Section = Section {
    summary: "One sendbox has all bundles from A to B. They share its site's access line by \
              weight. Only with `--backend sim`.",
    keys: &[key("rate", SHAPER_RATE, "", "highest rate of all bundles together")],
};

/// `[[group]]`.
pub static GROUP: Section = Section {
    summary: "A group of bundles that shares the uplink as one.",
    keys: &group_keys(NAME, WEIGHT, SHAPER_RATE),
};
