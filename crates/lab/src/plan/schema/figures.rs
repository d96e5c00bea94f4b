//! Keys of what is measured and drawn.

use super::{DURATION, NAME, Section, TABLES, key};

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
            "the arm that bars of the others are divided by, and curves run by run",
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
