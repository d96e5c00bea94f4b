//! The description of a metric.

use serde::{Serialize, Serializer};

/// How the runs of an arm are pooled into one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Taken again over the requests of all runs together.
    Requests,
    /// Mean over the runs.
    Mean,
    /// Share of the time of all runs together: their mean, since runs of an arm are equally long.
    Time,
    /// Sum over the runs.
    Sum,
    /// Smallest of the runs.
    Min,
    /// Largest of the runs.
    Max,
}

impl Pooling {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "all requests together",
            Self::Mean => "mean of the runs",
            Self::Time => "time of all runs together",
            Self::Sum => "sum of the runs",
            Self::Min => "smallest of the runs",
            Self::Max => "largest of the runs",
        }
    }
}

impl Serialize for Pooling {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The placeholders in the names of entries, and their values; `{q}` and `{p}` are quantiles in percent.
pub const HOLES: [(&str, &[&str]); 3] = [
    ("{class}", &["small", "medium", "large"]),
    ("{q}", &["p25", "p50", "p75", "p95", "p99"]),
    ("{p}", &["p5", "p50", "p95", "p99"]),
];

/// How formulas of entries are written.
pub const NOTATION: &str = "<x> is the mean of x over time; each value holds until the next one. \
                            mean, sd, sum and max are taken over samples. Qp is the p-th \
                            percentile of samples (type 7 of Hyndman and Fan), Qp<x> a percentile \
                            over time. #{..} is a count. C is the current rate of the link (for a \
                            flow: of its link), D the current two-way propagation delay.";

/// Source of metrics defined in this project.
pub(crate) const OWN: &str = "forebay";
/// Source of metrics with ccperf's names.
pub(crate) const CCPERF: &str =
    "ccperf (Vielhaus et al., IEEE COMST 2025, 10.1109/COMST.2025.3533303)";
/// Source of metrics from the evaluation of Bundler.
pub(crate) const BUNDLER: &str = "Bundler (Cangialosi et al., EuroSys 2021)";
/// The source of Jain's index.
pub(crate) const JAIN: &str = "Jain, Chiu and Hawe, DEC-TR-301, 1984";
/// Source of the counters of drops and marks.
pub(crate) const LINUX_QDISC: &str = "statistics of Linux's queueing disciplines (net/sched)";

/// One metric.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Entry {
    /// Name; one with [`HOLES`] stands for several metrics.
    pub name: &'static str,
    /// Subjects: `run`, `flow`, `link`, `bundle` or `arm`, several joined by a space.
    #[serde(serialize_with = "words")]
    pub of: &'static str,
    /// Unit; empty: a pure number.
    pub unit: &'static str,
    /// How runs are pooled.
    pub pooling: Pooling,
    /// Definition in words.
    #[serde(rename = "definition")]
    pub summary: &'static str,
    /// Definition as a formula, in [`NOTATION`].
    pub formula: &'static str,
    /// Source: a paper, an RFC, another program; `forebay` for metrics defined in this project.
    pub source: &'static str,
}

fn words<S: Serializer>(text: &&'static str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(text.split(' '))
}

/// An entry, in the order of its fields.
pub(crate) const fn entry(
    name: &'static str,
    of: &'static str,
    unit: &'static str,
    pooling: Pooling,
    summary: &'static str,
    formula: &'static str,
    source: &'static str,
) -> Entry {
    Entry { name, of, unit, pooling, summary, formula, source }
}

impl Entry {
    /// Whether parts of this kind have the metric.
    pub fn is_of(&self, part: &str) -> bool {
        self.of.split(' ').any(|of| of == part)
    }

    /// Heading of an axis or a column of `metric`, a name of this entry: `fct p50 (ms)`.
    pub fn heading(&self, metric: &str) -> String {
        let known = ["_ms", "_s", "_mbps", "_packets", "_segments", "_bytes"];
        let bare = known.iter().find_map(|suffix| metric.strip_suffix(suffix));
        let words = bare.filter(|_| !self.unit.is_empty()).unwrap_or(metric).replace('_', " ");
        if self.unit.is_empty() { words } else { format!("{words} ({})", self.unit) }
    }
}
