//! Bytes over time.

/// Width of an interval (ns), as promised by `FlowRecord::bytes_per_100ms`.
const INTERVAL_NS: u64 = 100_000_000;

/// Counts bytes in intervals of 100 ms since the start of the run.
#[derive(Debug, Default)]
pub(super) struct Meter {
    started_ns: u64,
    intervals: Vec<u64>,
    bytes: u64,
}

impl Meter {
    /// Counts from `started_ns` up to `until_ns`; the last interval takes what comes later.
    pub fn begin(&mut self, started_ns: u64, until_ns: u64) {
        self.started_ns = started_ns;
        let count = until_ns.saturating_sub(started_ns).div_ceil(INTERVAL_NS).max(1);
        self.intervals = vec![0; usize::try_from(count).expect("a run is shorter than years")];
    }

    pub fn add(&mut self, now: u64, bytes: u64) {
        self.bytes += bytes;
        let interval = now.saturating_sub(self.started_ns) / INTERVAL_NS;
        let last = self.intervals.len().saturating_sub(1) as u64;
        if let Some(slot) = self.intervals.get_mut(interval.min(last) as usize) {
            *slot += bytes;
        }
    }

    /// All bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes per interval, up to the last one that saw any.
    pub fn take_intervals(&mut self) -> Vec<u64> {
        let used = self.intervals.iter().rposition(|&bytes| bytes > 0).map_or(0, |last| last + 1);
        self.intervals.truncate(used);
        std::mem::take(&mut self.intervals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_land_in_their_interval_and_none_is_lost() {
        let mut meter = Meter::default();
        meter.begin(1_000, 1_000 + 350_000_000);
        meter.add(1_000, 1);
        meter.add(1_000 + 99_999_999, 2);
        meter.add(1_000 + 100_000_000, 4);
        meter.add(1_000 + 900_000_000, 8);
        assert_eq!(meter.bytes(), 15);
        assert_eq!(meter.take_intervals(), [3, 4, 0, 8]);
    }
}
