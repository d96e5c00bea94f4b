//! What is said of a metric.

/// How the runs of an arm become one number.
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

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name; `{class}` stands for small, medium and large, `{q}` for p25, p50, p75, p95 and p99.
    pub name: &'static str,
    /// Of what: `run`, `flow`, `link`, `bundle` or `arm`, several joined by a space.
    pub of: &'static str,
    /// Unit; empty: a pure number.
    pub unit: &'static str,
    /// How runs are pooled.
    pub pooling: Pooling,
    /// What it is.
    pub summary: &'static str,
}

/// An entry, in the order of its fields.
pub(crate) const fn entry(
    name: &'static str,
    of: &'static str,
    unit: &'static str,
    pooling: Pooling,
    summary: &'static str,
) -> Entry {
    Entry { name, of, unit, pooling, summary }
}

impl Entry {
    /// Whether parts of this kind have it.
    pub fn is_of(&self, part: &str) -> bool {
        self.of.split(' ').any(|of| of == part)
    }

    /// What an axis or a column of `metric`, which this is the entry of, is called: `fct p50 (ms)`.
    pub fn heading(&self, metric: &str) -> String {
        let known = ["_ms", "_s", "_mbps", "_packets", "_segments", "_bytes"];
        let bare = known.iter().find_map(|suffix| metric.strip_suffix(suffix));
        let words = bare.filter(|_| !self.unit.is_empty()).unwrap_or(metric).replace('_', " ");
        if self.unit.is_empty() { words } else { format!("{words} ({})", self.unit) }
    }
}
