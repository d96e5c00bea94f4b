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
const NAME: Kind = Kind::Name(NAME_MAX, "_-");
/// Longest duration in a plan: an emulation runs in real time.
pub(super) const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);
pub(super) const DURATION: Kind = Kind::Duration(Duration::ZERO, DURATION_MAX);
const TIME: Kind = Kind::Text(
    "a duration such as \"50ms\", round trips of the bottleneck such as \"100rtt\", or the longest of several: \
     \"max(60s, 100rtt)\"; at most \"1440min\"",
);
pub(super) const RATE: Kind = Kind::Rate(*LINK_RATES.start(), *LINK_RATES.end());
const RATE_OR_NONE: Kind = Kind::RateOrNone(*LINK_RATES.start(), *LINK_RATES.end());
/// Greatest jitter: a box delayed by more would count as hung.
const JITTER: Kind = Kind::Duration(Duration::ZERO, Duration::from_secs(1));
pub(super) const SHARE: Kind = Kind::Share(0.0, 1.0);
const TEXT: Kind = Kind::Text("a text");
const DOTTED: Kind = Kind::Any("a table of dotted keys with their values");

/// The document.
pub static PLAN: Section = Section {
    summary: "One experiment: a bottleneck, traffic over it, bundles around it, arms to compare.",
    keys: &[
        key("name", NAME, "", "names the results"),
        key("title", TEXT, "the name", "heading in the report"),
        key(
            "description",
            TEXT,
            "none",
            "what the experiment shows, in plain words; values are shown beside it",
        ),
        key(
            "extends",
            Kind::Text("the path of another plan, relative to this one"),
            "none",
            "top-level keys of that plan hold where this plan has none of that name",
        ),
        key(
            "seeds",
            Kind::Text("a range such as \"1..3\" (both ends included) or one number"),
            "\"1..3\"",
            "every random choice of a run is drawn from its seed",
        ),
        key(
            "as_published",
            DOTTED,
            "none",
            "what `--as-published` sets: whoever published the experiment ran it so",
        ),
        key(
            "aut",
            Kind::Any(
                "the algorithm under test, as a flow's `cc`, or a list of several such as [\"cubic\", \"bbr\"]",
            ),
            "none",
            "what flows with `cc = \"aut\"` have; each of several is an arm of its name, instead of [[arm]]",
        ),
        key("stop", TIME, "", "end of arrivals, counted from the start of the run"),
        key("warmup", TIME, "\"0s\"", "requests arriving and bytes moving before are not counted"),
        key(
            "stack",
            Kind::OneOf(&[
                ("linux", "the testbed's kernel"),
                ("ns3", "ns-3 as ccperf sets it up; back ends sim and ns3"),
            ]),
            "\"linux\"",
            "how TCP's switches stand in the simulator",
        ),
        key(
            "ecn",
            Kind::OneOf(&[("off", ""), ("classic", "RFC 3168, between all hosts")]),
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
        key(
            "bottleneck",
            Kind::Table(&BOTTLENECK),
            "none beside [cost], else required",
            "the link from site A to site B",
        ),
        key("reverse", Kind::Table(&REVERSE), "unlimited rate, no loss", "the link back"),
        key(
            "link",
            Kind::Tables(&LINK),
            "none",
            "links of pairs of sites that do not take the bottleneck",
        ),
        key(
            "topology",
            Kind::Table(&TOPOLOGY),
            "two sites",
            "many sites, and the links between them",
        ),
        key("flow", Kind::Tables(&FLOW), "none beside [cost], else required", "the traffic"),
        key("bundle", Kind::Tables(&BUNDLE), "none", "the bundles"),
        key(
            "uplink",
            Kind::Table(&UPLINK),
            "nothing is shared out",
            "the line of site A, which its bundles share",
        ),
        key(
            "group",
            Kind::Tables(&GROUP),
            "none",
            "groups of bundles, which share the uplink as one",
        ),
        key("arm", Kind::Tables(&ARM), "one arm called `default`", "what is compared"),
        key("arms", Kind::Texts("names of arms"), "all arms", "which arms are run, in this order"),
        key(
            "baseline",
            NAME,
            "`status_quo`",
            "the arm without what is studied: ratios `.._over_status_quo` compare the arms with it",
        ),
        key(
            "ideal",
            NAME,
            "`in_network_fq`",
            "the arm that shows what is possible: `.._over_in_network_fq` and `gap_closed` compare the arms with it",
        ),
        key(
            "alone",
            NAME,
            "`solo`",
            "the arm in which flows run alone since the others hardly live: `harm_..` compares the arms with it",
        ),
        key(
            "cells",
            Kind::Any("a table of dotted keys with lists of values"),
            "one cell",
            "a grid: every arm is run in every combination",
        ),
        key(
            "cell",
            Kind::Tables(&CELL),
            "none",
            "cells with a name, each of them with all of the grid",
        ),
        key(
            "window",
            Kind::Tables(&WINDOW),
            "none",
            "further intervals over which metrics are taken",
        ),
        key(
            "curves",
            Kind::Table(&CURVES),
            "none",
            "how greedy flows of one connection are compared with those of the baseline over time",
        ),
        key(
            "figure",
            Kind::Tables(&FIGURE),
            "[[figure]] kind = \"default\"",
            "what the report draws",
        ),
        key("fault", Kind::Tables(&FAULT), "none", "signals sent to the boxes and the agent"),
        key(
            "upset",
            Kind::Tables(&UPSET),
            "none",
            "changes of the sites' devices and of what receiveboxes see",
        ),
        key("attack", Kind::Table(&ATTACK), "none", "hostile messages sent to a box"),
        key(
            "agent",
            Kind::Table(&AGENT),
            "all defaults",
            "how the agent of flows with `agent:`, or of a trial of [cost], hears of them",
        ),
        key(
            "cost",
            Kind::Table(&COST),
            "none",
            "trials of the cost of an algorithm, instead of links and traffic (back end emu only)",
        ),
    ],
};

/// `[[arm]]`.
pub static ARM: Section = Section {
    summary: "One side of a comparison: a name and what it changes.",
    keys: &[
        key("name", NAME, "", "names the rows; unique"),
        key("summary", TEXT, "none", "what the arm is, in plain words, for the report"),
        key("set", DOTTED, "nothing", "overrides of the plan"),
    ],
};

/// `[[cell]]`.
pub static CELL: Section = Section {
    summary: "A setting in which every arm is run: a name and what it changes.",
    keys: &[
        key("name", NAME, "", "names the rows; unique"),
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
                # replaces what the plan has, and not what an arm or a cell sets itself:\n\
                #   --set bottleneck.rate=48Mbit/s  --set bundle.a.cc=setpoint  --set flow.web.count=4\n";
    format!("{head}{}", PLAN.listing())
}
