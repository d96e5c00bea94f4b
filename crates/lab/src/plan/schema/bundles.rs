//! Keys of bundles, and of the line that they share.

use super::{JITTER, NAME, RATE, Section, key};

const QDISC: &str = "a qdisc (see `forebay list qdiscs`) such as \"fifo\" or { kind = \"sfq\", \
                     limit = \"150ms\" }";
const BUNDLE_QDISC: &str = "{ kind = \"fq_codel\", limit = \"150ms\", target = \"25ms\", interval = \"250ms\", \
                            follow_rtt = true }";
const WEIGHT: &str = "a whole number, 1 to 1000; with [uplink], not of a reversed bundle";
const GUARANTEE: &str = "a rate such as \"96Mbit/s\", 100kbit/s to 100Gbit/s; with [uplink], not of a reversed \
                         bundle";

/// `[[bundle]]`.
pub static BUNDLE: Section = Section {
    heading: "[[bundle]]",
    summary: "The traffic from one site to another, measured and paced as one.",
    keys: &[
        key("name", NAME, "", "names the rows; unique"),
        key(
            "count",
            "a whole number, 1 to 1024",
            "one, called as it is",
            "so many bundles alike, each between sites of its own: NAME-1, NAME-2, .., with flows FLOW-1, FLOW-2, .. for \
             each flow of the bundle",
        ),
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
        key(
            "supervised",
            "true or false",
            "true",
            "the sendbox enforces limits only while it measures that they pay; false: they always hold",
        ),
        key(
            "datapath",
            "\"user\" or \"kernel\"",
            "\"user\"",
            "where the sendbox queues: \"kernel\" has queues by flow of its own in the place of qdisc; \
             with `--backend emu` alone, where the hosts in front hand it super-packets",
        ),
        key(
            "forward",
            "\"bridge\" or \"route\", for all bundles of a plan the same; \"route\" not of a reversed bundle",
            "\"bridge\"",
            "what forwards where the sendbox is: \"bridge\" one for each pair of sites, \"route\" one gateway with one NIC, \
             whose sendbox has all bundles; with `--backend emu` alone",
        ),
        key(
            "min_rate",
            RATE,
            "a quarter of what the path carries, at most 1.2Mbit/s",
            "lower bound of the shaper, at least 100kbit/s",
        ),
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
