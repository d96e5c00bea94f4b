//! Keys of measurement windows and figures.

use super::super::curves::BINS;
use super::{DURATION, Kind, NAME, Section, TEXT, key};

/// `[[window]]`.
pub static WINDOW: Section = Section {
    summary: "An interval whose metrics are reported as `name.metric`.",
    keys: &[
        key("name", NAME, "", "prefix of the metrics; unique"),
        key("from", DURATION, "", "start, since the start of the run"),
        key("to", DURATION, "the plan's stop", "end, since the start of the run"),
    ],
};

/// `[curves]`.
pub static CURVES: Section = Section {
    summary: "How each arm is compared with the baseline over time: `forebay list metrics` has `nrmse_..`.",
    keys: &[
        key("from", DURATION, "", "start of the comparison, since the start of the run"),
        key("to", DURATION, "", "end of the comparison; a run that ends earlier does not count"),
        key(
            "bin",
            Kind::Duration(*BINS.start(), *BINS.end()),
            "\"100ms\"",
            "width of the bins whose means are compared, a multiple of 100 ms",
        ),
        key("slow_start", DURATION, "", "end of slow start, since the start of the run"),
    ],
};

/// `[[figure]]`.
pub static FIGURE: Section = Section {
    summary: "A figure of the report, drawn of every cell; bars, curves and those with a panel a cell once.",
    keys: &[
        key(
            "kind",
            Kind::OneOf(&[
                ("cdf", "of single requests, or of a quantity over time"),
                ("bars", "a metric of all seeds"),
                ("curve", "the same against the number that tells cells apart"),
                ("plane", "one metric against another, a point a run"),
                ("timeline", "of the first seed"),
                ("ribbon", "least, median and greatest of the seeds over time"),
                ("transitions", "a table of the bundles' changes of state"),
                ("default", "the figures of a plan that names none"),
            ]),
            "",
            "how it is drawn",
        ),
        key("title", TEXT, "none", "what to see in the figure"),
        key(
            "metric",
            Kind::Text(
                "a metric (see `forebay list metrics`) such as \"slowdown_p50\", \
             \"flows/web/goodput_mbps\", \"links/forward/utilisation\" or \
             \"bundles/*/queue_mean_packets\" (the mean over all); of cdf \"slowdown\" or \"fct_ms\", \
             also of a flow",
            ),
            "none",
            "what bars, curve and cdf show, and plane shows upwards",
        ),
        key(
            "against",
            Kind::Text("a metric (see `forebay list metrics`) such as \"flows/bulk/mean_srtt_l4\""),
            "none",
            "what plane shows to the right",
        ),
        key(
            "series",
            Kind::Texts(
                "quantities over time, all of one unit, such as \
             [\"links/forward/queue_packets\", \"bundles/*/queue_packets\"] (`forebay list series`)",
            ),
            "none",
            "what timeline and ribbon show, and cdf of one; `*`: of each",
        ),
        key(
            "facet",
            Kind::Text(
                "of cdf size, flow or cell; of plane and a cdf of a series cell; of timeline and ribbon part, arm or \
             cell",
            ),
            "one panel; of timeline and ribbon part",
            "what each panel is of; with arm the curves are the series, else the arms",
        ),
        key(
            "baseline",
            NAME,
            "none",
            "the arm that bars of the others are divided by, and curves run by run; in a ribbon with a panel per \
             arm, the arm that is drawn in every panel",
        ),
        key("published", Kind::Tables(&PUBLISHED), "none", "what others report, beside the bars"),
    ],
};

/// `[[figure.published]]`.
static PUBLISHED: Section = Section {
    summary: "A number that somebody else reports, drawn and tabled beside an arm's own.",
    keys: &[
        key("label", TEXT, "\"published\"", "name of the bar"),
        key("arm", NAME, "", "arm of the number"),
        key(
            "cell",
            Kind::Text("the name of a cell, or its first word"),
            "all",
            "cell of the number",
        ),
        key(
            "value",
            Kind::Number(f64::MIN, f64::MAX),
            "",
            "what is reported, in the unit of the figure",
        ),
        key("source", TEXT, "", "where the number is reported"),
    ],
};
