//! Every key that a plan may contain, with its type, unit and range. The reader refuses any other key;
//! `forebay plan schema` prints the list.

mod bundles;
mod cost;
mod figures;
mod flows;
mod hits;
mod links;
mod topology;

use std::time::Duration;

use forebay_core::units::LINK_RATES;
use forebay_reader::Format;
use forebay_reader::schema::{Heading, Key, Kind, Section, key};

pub use self::bundles::BUNDLE;
pub use self::figures::FIGURE;
pub use self::flows::FLOW;
pub use self::links::{BOTTLENECK, REVERSE};

use self::bundles::{GROUP, UPLINK};
use self::cost::COST;
use self::figures::{CURVES, WINDOW};
use self::flows::AGENT;
use self::hits::{ATTACK, FAULT, UPSET};
use self::links::LINK;
use self::topology::TOPOLOGY;

/// Plans, as they are read.
pub static FORMAT: Format = Format { root: &PLAN, names_elements: true };

/// Longest name: rows, file names and figures contain names.
pub(super) const NAME_MAX: usize = 64;
/// A name of an arm, a flow, a link or another part.
const NAME: Kind = Kind::Name(NAME_MAX, "_-");
/// Longest duration in a plan: an emulation runs in real time.
pub(super) const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);
/// A duration up to [`DURATION_MAX`].
pub(super) const DURATION: Kind = Kind::Duration(Duration::ZERO, DURATION_MAX);
/// A duration that may count in round trips of the bottleneck.
const TIME: Kind = Kind::Text(
    "a duration such as \"50ms\", round trips of the bottleneck such as \"100rtt\", or the longest of several: \
     \"max(60s, 100rtt)\"; at most \"1440min\"",
);
/// A rate that links can have.
pub(super) const RATE: Kind = Kind::Rate(*LINK_RATES.start(), *LINK_RATES.end());
/// A rate that links can have, or `0bit/s`: the link stops.
const RATE_OR_NONE: Kind = Kind::RateOrNone(*LINK_RATES.start(), *LINK_RATES.end());
/// Greatest jitter: a box delayed by more would count as hung.
const JITTER: Kind = Kind::Duration(Duration::ZERO, Duration::from_secs(1));
/// A share or a probability, 0 to 1.
pub(super) const SHARE: Kind = Kind::Share(0.0, 1.0);
/// Text without restrictions, for titles and descriptions.
const TEXT: Kind = Kind::Text("a text");
/// Overrides: dotted keys of the plan with values.
const DOTTED: Kind = Kind::Any("a table of dotted keys with their values");

/// The document.
pub static PLAN: Section = Section {
    summary: "One experiment: a bottleneck, the traffic over it, the bundles and the arms to \
              compare.",
    keys: &[
        key("name", NAME, "", "name of the experiment in results"),
        key("title", TEXT, "the name", "heading in the report"),
        key(
            "description",
            TEXT,
            "none",
            "purpose of the experiment in plain words; the report lists the values next to it",
        ),
        key(
            "extends",
            Kind::Text("the path of another plan, relative to this one"),
            "none",
            "base plan: its top-level keys apply unless this plan sets them",
        ),
        key(
            "seeds",
            Kind::Text("a range such as \"1..3\" (both ends included) or one number"),
            "\"1..3\"",
            "seeds to run; every random choice of a run is drawn from its seed",
        ),
        key(
            "as_published",
            DOTTED,
            "none",
            "values that `--as-published` sets, as in the publication of the experiment",
        ),
        key(
            "aut",
            Kind::Any(
                "the algorithm under test, as a flow's `cc`, or a list of several such as [\"cubic\", \"bbr\"]",
            ),
            "none",
            "algorithm of flows with `cc = \"aut\"`; each algorithm of a list becomes an arm with \
             its name, instead of [[arm]]",
        ),
        key("stop", TIME, "", "end of arrivals, counted from the start of the run"),
        key(
            "warmup",
            TIME,
            "\"0s\"",
            "requests that arrive and bytes that move before this time are not counted",
        ),
        key(
            "stack",
            Kind::OneOf(&[
                ("linux", "the testbed's kernel"),
                ("ns3", "ns-3 as ccperf sets it up; back ends sim and ns3"),
            ]),
            "\"linux\"",
            "TCP settings in the simulator",
        ),
        key(
            "ecn",
            Kind::OneOf(&[("off", ""), ("classic", "RFC 3168, between all hosts")]),
            "\"off\"",
            "whether TCP connections negotiate ECN, so that queues with `ecn = true` mark their \
             packets instead of dropping them; algorithms that need marks, such as dctcp, always \
             do",
        ),
        key(
            "start_jitter",
            TIME,
            "\"0s\"",
            "largest random delay of each connection's start, drawn from the seed",
        ),
        key("drain", DURATION, "\"30s\"", "longest wait for unfinished requests after `stop`"),
        key(
            "bottleneck",
            Kind::Table(&BOTTLENECK),
            "none with [cost], else required",
            "the link from site A to site B",
        ),
        key(
            "reverse",
            Kind::Table(&REVERSE),
            "unlimited rate, no loss",
            "the reverse link, from site B to site A",
        ),
        key(
            "link",
            Kind::Tables(&LINK),
            "none",
            "links of site pairs whose traffic does not cross the bottleneck",
        ),
        key(
            "topology",
            Kind::Table(&TOPOLOGY),
            "two sites",
            "many sites, and the links between them",
        ),
        key("flow", Kind::Tables(&FLOW), "none with [cost], else required", "the traffic"),
        key("bundle", Kind::Tables(&BUNDLE), "none", "the bundles"),
        key(
            "uplink",
            Kind::Table(&UPLINK),
            "no shared uplink",
            "the access line of site A, which its bundles share",
        ),
        key(
            "group",
            Kind::Tables(&GROUP),
            "none",
            "groups of bundles; each group shares the uplink as one",
        ),
        key("arm", Kind::Tables(&ARM), "one arm called `default`", "the variants to compare"),
        key("arms", Kind::Texts("names of arms"), "all arms", "the arms to run, in this order"),
        key(
            "baseline",
            NAME,
            "`status_quo`",
            "the arm without the studied mechanism: `.._over_status_quo` ratios compare other arms \
             with it",
        ),
        key(
            "ideal",
            NAME,
            "`in_network_fq`",
            "the arm that shows the best possible result: `.._over_in_network_fq` and `gap_closed` \
             compare other arms with it",
        ),
        key(
            "alone",
            NAME,
            "`solo`",
            "the arm in which flows run alone because competing flows are cut short: `harm_..` \
             compares other arms with it",
        ),
        key(
            "cells",
            Kind::Any("a table of dotted keys with lists of values"),
            "one cell",
            "a grid: every arm runs in every combination of values",
        ),
        key("cell", Kind::Tables(&CELL), "none", "named cells, each combined with the whole grid"),
        key(
            "window",
            Kind::Tables(&WINDOW),
            "none",
            "additional intervals over which metrics are computed",
        ),
        key(
            "curves",
            Kind::Table(&CURVES),
            "none",
            "how greedy flows with one connection are compared over time with the baseline",
        ),
        key(
            "figure",
            Kind::Tables(&FIGURE),
            "[[figure]] kind = \"default\"",
            "figures of the report",
        ),
        key("fault", Kind::Tables(&FAULT), "none", "signals sent to the boxes and the agent"),
        key(
            "upset",
            Kind::Tables(&UPSET),
            "none",
            "changes to the sites' devices and to the traffic that receiveboxes see",
        ),
        key("attack", Kind::Table(&ATTACK), "none", "hostile messages sent to a box"),
        key(
            "agent",
            Kind::Table(&AGENT),
            "all defaults",
            "how the kernel reports to the agent of flows with `agent:`, or of a trial of [cost]",
        ),
        key(
            "cost",
            Kind::Table(&COST),
            "none",
            "trials of the CPU cost of an algorithm, instead of links and traffic (back end emu only)",
        ),
    ],
};

/// `[[arm]]`.
pub static ARM: Section = Section {
    summary: "A variant in a comparison: its name and its overrides.",
    keys: &[
        key("name", NAME, "", "name in results; unique"),
        key("summary", TEXT, "none", "description of the arm in plain words, for the report"),
        key("set", DOTTED, "nothing", "overrides of the plan"),
    ],
};

/// `[[cell]]`.
pub static CELL: Section = Section {
    summary: "A setting in which every arm runs: its name and its overrides.",
    keys: &[
        key("name", NAME, "", "name in results; unique"),
        key("set", DOTTED, "nothing", "overrides of the plan"),
    ],
};

/// All tables of a plan in the order of the documentation.
pub fn headings() -> Vec<Heading> {
    PLAN.headings()
}

/// The annotated listing of `forebay plan schema`.
pub fn listing() -> String {
    let head = "# Plans are TOML. Quantities have a unit (\"96Mbit/s\", \"50ms\", \"1200p\", \"15KB\").\n\
                # A bare number for a quantity and an unknown key are errors.\n\
                # Overrides (--set, arms, cells) name keys by dots, elements of lists by their name; --set\n\
                # replaces the value of the plan; an arm or a cell keeps its own:\n\
                #   --set bottleneck.rate=48Mbit/s  --set bundle.a.cc=setpoint  --set flow.web.count=4\n";
    format!("{head}{}", PLAN.listing())
}
