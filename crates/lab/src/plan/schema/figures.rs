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
    summary: "How each arm is compared with the baseline over time, for the metrics `nrmse_..` \
              (see `forebay list metrics`).",
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
    summary: "A figure of the report. One is drawn for each cell; bars, curves and figures with \
              one panel per cell are drawn once.",
    keys: &[
        key(
            "kind",
            Kind::OneOf(&[
                ("cdf", "distribution of single requests, or of a quantity over time"),
                ("bars", "a metric over all seeds"),
                ("curve", "the same against the number in which cells differ"),
                ("plane", "one metric against another, one point per run"),
                ("timeline", "quantities over time, first seed"),
                ("ribbon", "smallest, median and largest value of the seeds over time"),
                ("transitions", "a table of the bundles' state changes"),
                ("default", "the default figures, which a plan without [[figure]] gets"),
            ]),
            "",
            "how the figure is drawn",
        ),
        key("title", TEXT, "none", "the point of the figure, for its reader"),
        key(
            "metric",
            Kind::Text(
                "a metric (see `forebay list metrics`) such as \"slowdown_p50\", \
                 \"flows/web/goodput_mbps\", \"links/forward/utilisation\" or \
                 \"bundles/*/queue_mean_packets\" (the mean over all); for cdf \"slowdown\" or \
                 \"fct_ms\", also of a flow",
            ),
            "none",
            "the metric of bars, curve and cdf, and the vertical axis of plane",
        ),
        key(
            "against",
            Kind::Text("a metric (see `forebay list metrics`) such as \"flows/bulk/mean_srtt_l4\""),
            "none",
            "the horizontal axis of plane",
        ),
        key(
            "series",
            Kind::Texts(
                "quantities over time with the same unit, such as \
                 [\"links/forward/queue_packets\", \"bundles/*/queue_packets\"] (`forebay list \
                 series`)",
            ),
            "none",
            "the quantities of timeline and ribbon, or one for cdf; `*`: one curve for each",
        ),
        key(
            "facet",
            Kind::Text(
                "for cdf size, flow or cell; for plane and a cdf of a series cell; for timeline \
                 and ribbon part, arm or cell",
            ),
            "one panel; for timeline and ribbon part",
            "one panel for each of these; with arm, each series is a curve, otherwise each arm",
        ),
        key(
            "baseline",
            NAME,
            "none",
            "the arm by which values of other arms are divided (curves: run by run); in a ribbon \
             with one panel per arm, the arm drawn in every panel",
        ),
        key(
            "published",
            Kind::Tables(&PUBLISHED),
            "none",
            "published values, drawn next to the bars",
        ),
    ],
};

/// `[[figure.published]]`.
static PUBLISHED: Section = Section {
    summary: "A published number, shown in the figure and in a table next to an arm's own value.",
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
            "the published value, in the unit of the figure",
        ),
        key("source", TEXT, "", "the publication of the number"),
    ],
};
