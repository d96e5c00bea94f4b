//! What a run of the plant leaves behind, and the figures taken from it.

use crate::bundle::control::Counters;
use crate::bundle::decision::Decision;
use crate::units::Duration;

/// Width of the bins of a [`Trace`].
pub const BIN: Duration = Duration::from_millis(10);

/// One interval of [`BIN`].
#[derive(Clone, Debug, Default)]
pub struct Bin {
    /// Packets in the bottleneck's queue at the beginning.
    pub queue_packets: usize,
    /// Bytes that the bottleneck could have sent.
    pub capacity_bytes: f64,
    /// Packets dropped by the bottleneck's queue.
    pub drops: u64,
    /// Per bundle.
    pub bundles: Vec<BundleBin>,
}

/// One bundle in one interval.
#[derive(Clone, Debug, Default)]
pub struct BundleBin {
    /// Bytes that left the bottleneck.
    pub bytes: u64,
    /// Packets in the sendbox's queue at the beginning.
    pub sendbox_packets: u64,
    /// Rate of the shaper at the beginning (bits per second).
    pub rate_bps: Option<u64>,
    /// What the sendbox had decided at the beginning.
    pub decision: Option<Decision>,
}

/// What a run leaves behind.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// In order of time.
    pub bins: Vec<Bin>,
    /// Completion of each finite flow, per bundle and flow.
    pub completions: Vec<Vec<Option<Duration>>>,
    /// Reports that arrived, over all bundles.
    pub reports: u64,
    /// The state at the end, per bundle.
    pub decisions: Vec<Decision>,
    /// What the sendboxes have counted, per bundle.
    pub counters: Vec<Counters>,
}

impl Trace {
    fn between(&self, from_s: f64, to_s: f64) -> &[Bin] {
        let index = |seconds: f64| (seconds / BIN.as_secs_f64()).round() as usize;
        let end = index(to_s).min(self.bins.len());
        &self.bins[index(from_s).min(end)..end]
    }

    /// Share of the capacity that was used (0 to 1).
    pub fn utilisation(&self, from_s: f64, to_s: f64) -> f64 {
        let bins = self.between(from_s, to_s);
        let bytes: u64 = bins.iter().flat_map(|bin| &bin.bundles).map(|bundle| bundle.bytes).sum();
        bytes as f64 / bins.iter().map(|bin| bin.capacity_bytes).sum::<f64>()
    }

    /// Mean queue at the bottleneck (packets).
    pub fn mean_queue(&self, from_s: f64, to_s: f64) -> f64 {
        let bins = self.between(from_s, to_s);
        bins.iter().map(|bin| bin.queue_packets as f64).sum::<f64>() / bins.len() as f64
    }

    /// Mean queue at the sendbox of the first bundle (packets).
    pub fn mean_sendbox_queue(&self, from_s: f64, to_s: f64) -> f64 {
        let bins = self.between(from_s, to_s);
        let packets = bins.iter().map(|bin| bin.bundles[0].sendbox_packets as f64);
        packets.sum::<f64>() / bins.len() as f64
    }

    /// 95th percentile of the queue at the bottleneck (packets).
    pub fn p95_queue(&self, from_s: f64, to_s: f64) -> usize {
        let bins = self.between(from_s, to_s);
        let mut packets: Vec<usize> = bins.iter().map(|bin| bin.queue_packets).collect();
        packets.sort_unstable();
        packets[packets.len() * 95 / 100]
    }

    /// Longest queue at the bottleneck (packets).
    pub fn peak_queue(&self, from_s: f64, to_s: f64) -> usize {
        self.between(from_s, to_s).iter().map(|bin| bin.queue_packets).max().unwrap_or(0)
    }

    /// Packets dropped by the bottleneck's queue.
    pub fn drops(&self, from_s: f64, to_s: f64) -> u64 {
        self.between(from_s, to_s).iter().map(|bin| bin.drops).sum()
    }

    /// Throughput of one bundle (Mbit/s).
    pub fn throughput_mbit(&self, bundle: usize, from_s: f64, to_s: f64) -> f64 {
        let bytes: u64 =
            self.between(from_s, to_s).iter().map(|bin| bin.bundles[bundle].bytes).sum();
        bytes as f64 * 8e-6 / (to_s - from_s)
    }

    /// First time after `from_s` at which `holds` is true of the interval of `width_s` before it.
    pub fn first(
        &self,
        from_s: f64,
        width_s: f64,
        holds: impl Fn(&Self, f64, f64) -> bool,
    ) -> Option<f64> {
        let end_s = self.bins.len() as f64 * BIN.as_secs_f64();
        let mut at_s = from_s + width_s;
        while at_s <= end_s {
            if holds(self, at_s - width_s, at_s) {
                return Some(at_s - from_s);
            }
            at_s += BIN.as_secs_f64();
        }
        None
    }
}
