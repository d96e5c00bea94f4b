//! Comparison of a plan's arms over time: `[curves]`.

use std::ops::RangeInclusive;
use std::time::Duration;

use forebay_reader::Reader;
use serde::{Deserialize, Serialize};

/// Bin widths that curves may have: multiples of the shortest, which is the store's.
pub const BINS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(1);

/// The time range and the bin width in which the curves of a flow are compared with the baseline's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Curves {
    /// Start of the comparison, since the start of the run.
    pub from: Duration,
    /// End of the comparison.
    pub to: Duration,
    /// Width of a bin, one of [`BINS`].
    pub bin: Duration,
    /// End of slow start for the comparison, since the start of the run.
    pub slow_start: Duration,
}

impl Curves {
    /// The comparison that `plan` asks for.
    pub(super) fn read(plan: &Reader<'_>) -> Option<Self> {
        let table = plan.table("curves")?;
        let (from, to) = (table.duration("from"), table.duration("to"));
        if from.zip(to).is_some_and(|(from, to)| from >= to) {
            table.wrong_because("to", "a time after `from`");
        }
        let bin = table.duration("bin").unwrap_or(*BINS.start());
        if !is_bin(bin) {
            table.wrong_because("bin", "100ms to 1s in steps of 100ms");
        }
        let slow_start = table.duration("slow_start");
        Some(Self { from: from?, to: to?, bin, slow_start: slow_start? })
    }

    /// Number of the store's bins in one of these.
    pub fn store_bins(&self) -> usize {
        (self.bin.as_nanos() / BINS.start().as_nanos()).max(1) as usize
    }
}

/// Whether curves can have bins of this width.
pub fn is_bin(bin: Duration) -> bool {
    BINS.contains(&bin) && bin.as_nanos().is_multiple_of(BINS.start().as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::plan::library::Source;

    #[test]
    fn bins_are_whole_ones_of_the_store() {
        let ms = Duration::from_millis;
        assert!([100, 200, 1000].into_iter().all(|it| is_bin(ms(it))));
        assert!(![0, 50, 150, 1100].into_iter().any(|it| is_bin(ms(it))));
    }

    #[test]
    fn curves_are_read_and_refused_by_key() {
        let plan = |curves: &str| {
            let text = format!(
                "name = \"p\"\nstop = \"5s\"\ncurves = {{ {curves} }}\n\
                 bottleneck = {{ rate = \"96Mbit/s\", rtt = \"50ms\", qdisc = \"fifo\" }}\n\
                 flow = [{{ name = \"bulk\", traffic = {{ kind = \"greedy\" }} }}]\n"
            );
            let source = Source { file: "p".into(), folder: None, text };
            Plan::from_source(source, &[])
        };
        let whole = "from = \"1s\", to = \"4s\", bin = \"500ms\", slow_start = \"2s\"";
        let curves = plan(whole).unwrap().references.curves().unwrap();
        assert_eq!((curves.bin, curves.store_bins()), (Duration::from_millis(500), 5));
        for (from, to, key) in [("500ms", "150ms", "bin"), ("4s", "1s", "to"), ("1s", "?", "from")]
        {
            let error = plan(&whole.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(&format!("curves.{key}")) || error.contains(key), "{error}");
        }
    }
}
