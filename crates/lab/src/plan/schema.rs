//! Every key that a plan may contain: the reader refuses others, `forebay plan schema` prints them.

mod bundles;
mod figures;
mod flows;
mod hits;
mod links;
mod topology;

use std::fmt::Write;

use forebay_core::spec::one_of;

pub use self::bundles::{BUNDLE, GROUP, UPLINK};
pub use self::figures::{FIGURE, PUBLISHED, WINDOW};
pub use self::flows::{AGENT, CBR, FLOW, GREEDY, ON_OFF, PING, POISSON, REQUESTS, VIDEO};
pub use self::hits::{ATTACK, FAULT, UPSET};
pub use self::links::{
    BOTTLENECK, CHANGE, LINK, LINK_CHANGE, PULSE, REVERSE, REVERSE_CHANGE, REVERSE_WALK, WALK,
};
pub use self::topology::TOPOLOGY;

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
const JITTER: &str = "a duration from \"0s\" to \"1s\"";
const SHARE: &str = "a share from 0 to 1 such as \"0.01\", \"1%\" or 0.01";
const TABLE: &str = "a table";
const TABLES: &str = "a list of tables";

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
        key("topology", TABLE, "two sites", "many sites, and the links between them"),
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

/// All sections in the order of the documentation.
pub static SECTIONS: [&Section; 31] = [
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
    &TOPOLOGY,
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
