//! Bytes over time.

use forebay_core::record::FlowRecord;

/// Width of an interval (ns), as promised by `FlowRecord::bytes_per_100ms`.
const INTERVAL_NS: u64 = 100_000_000;

/// Most intervals: a day. Later bytes count in the last one.
const INTERVALS_MAX: u64 = 864_000;

/// Counts bytes in intervals of 100 ms since the start of the run.
#[derive(Debug, Default)]
pub(super) struct Meter {
    started_ns: u64,
    intervals: Vec<u64>,
    bytes: u64,
}

impl Meter {
    /// Starts to count at `started_ns`.
    pub fn begin(&mut self, started_ns: u64) {
        self.started_ns = started_ns;
    }

    pub fn add(&mut self, now: u64, bytes: u64) {
        self.bytes += bytes;
        let interval = now.saturating_sub(self.started_ns) / INTERVAL_NS;
        let interval = interval.min(INTERVALS_MAX - 1) as usize;
        if interval >= self.intervals.len() {
            self.intervals.resize(interval + 1, 0);
        }
        self.intervals[interval] += bytes;
    }

    /// The record of connection `index` of `flow` with these bytes. Bytes over time end with the last
    /// interval that has any.
    pub fn take_record(&mut self, flow: usize, index: u32) -> FlowRecord {
        let bytes_per_100ms = std::mem::take(&mut self.intervals);
        FlowRecord { flow, index, bytes: self.bytes, bytes_per_100ms, ..FlowRecord::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_in_their_interval() {
        let mut meter = Meter::default();
        meter.begin(1_000);
        meter.add(1_000, 1);
        meter.add(1_000 + 99_999_999, 2);
        meter.add(1_000 + 100_000_000, 4);
        meter.add(1_000 + 300_000_000, 8);
        let record = meter.take_record(2, 7);
        assert_eq!((record.flow, record.index, record.bytes), (2, 7, 15));
        assert_eq!(record.bytes_per_100ms, [3, 4, 0, 8]);
    }

    #[test]
    fn meter_memory_is_bounded_for_long_runs() {
        let mut meter = Meter::default();
        meter.begin(0);
        meter.add(u64::MAX, 1);
        assert_eq!(meter.take_record(0, 0).bytes_per_100ms.len() as u64, INTERVALS_MAX);
    }
}
