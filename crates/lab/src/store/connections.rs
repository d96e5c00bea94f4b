//! A connection over time for comparisons of platforms: all quantities on one grid.

use super::{Store, StoreError};

/// Width of a bin (s).
const BIN_S: f64 = 0.1;

/// A greedy TCP connection over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OverTime {
    /// Bins of 100 ms from the start of the run on.
    pub bins: Vec<Bin>,
}

/// Figures of a connection in 100 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bin {
    /// When the bin begins (s since the start of the run).
    pub at_s: f64,
    /// Window: mean of the samples every 10 ms; the previous value if there are none.
    pub cwnd_segments: f64,
    /// Smoothed round trip, sampled like the window; 0 before the first.
    pub srtt_ms: f64,
    /// Payload that the receiver read.
    pub throughput_mbps: f64,
    /// Retransmitted segments.
    pub retransmissions: f64,
}

impl OverTime {
    /// Merges `count` bins into one, at least 1; leaves out an incomplete last bin.
    pub fn in_bins_of(&self, count: usize) -> Self {
        let merged = |bins: &[Bin]| {
            let mean = |of: fn(&Bin) -> f64| bins.iter().map(of).sum::<f64>() / bins.len() as f64;
            Bin {
                at_s: bins[0].at_s,
                cwnd_segments: mean(|bin| bin.cwnd_segments),
                srtt_ms: mean(|bin| bin.srtt_ms),
                throughput_mbps: mean(|bin| bin.throughput_mbps),
                retransmissions: bins.iter().map(|bin| bin.retransmissions).sum(),
            }
        };
        Self { bins: self.bins.chunks_exact(count.max(1)).map(merged).collect() }
    }
}

impl Store {
    /// The connection `name` of run `id`: the name of its flow, followed by `#0`, `#1` and so on if the flow
    /// has several. Has no bins if the run holds no samples of the connection. This is so for flows of more
    /// than [`forebay_core::record::SAMPLED_MAX`] connections, and for flows that are not greedy.
    pub fn connection_over_time(&self, id: i64, name: &str) -> Result<OverTime, StoreError> {
        let read = |quantity| self.series(id, "flow", name, quantity);
        let (windows, srtts) = (read("cwnd_segments")?, read("srtt_ms")?);
        if windows.is_empty() {
            return Ok(OverTime::default());
        }
        let (rates, resent) = (read("throughput_mbps")?, read("retransmissions")?);
        let lasts_at =
            [windows.last(), rates.last()].into_iter().flatten().map(|(at, _)| place(*at));
        let count = lasts_at.max().map_or(0, |last| last + 1);
        let windows = means(&windows, count);
        let srtts = means(&srtts, count);
        let resent = lasts(&resent, count);
        let mut bins = vec![Bin::default(); count];
        for (index, bin) in bins.iter_mut().enumerate() {
            let before = index.checked_sub(1).map_or(0.0, |before| resent[before]);
            *bin = Bin {
                at_s: index as f64 * BIN_S,
                cwnd_segments: windows[index],
                srtt_ms: srtts[index],
                throughput_mbps: 0.0,
                retransmissions: resent[index] - before,
            };
        }
        for (at, rate) in rates {
            bins[place(at)].throughput_mbps = rate;
        }
        Ok(OverTime { bins })
    }
}

/// The bin of a time. Times of bins are sums of tenths, which floats represent inexactly.
fn place(at_s: f64) -> usize {
    (at_s / BIN_S + 1e-6) as usize
}

fn means(points: &[(f64, f64)], count: usize) -> Vec<f64> {
    let mut sums = vec![(0.0, 0_u32); count];
    for (at, value) in points {
        if let Some((sum, seen)) = sums.get_mut(place(*at)) {
            *sum += value;
            *seen += 1;
        }
    }
    let mut last = 0.0;
    let mean = |(sum, seen): (f64, u32)| {
        if seen > 0 {
            last = sum / f64::from(seen);
        }
        last
    };
    sums.into_iter().map(mean).collect()
}

fn lasts(points: &[(f64, f64)], count: usize) -> Vec<f64> {
    let mut values = vec![0.0; count];
    for (at, value) in points {
        values[place(*at).min(count)..].fill(*value);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bin_holds_mean_of_its_samples() {
        let points = [(0.0, 10.0), (0.05, 20.0), (0.1, 5.0), (0.35, 8.0), (9.9, 1.0)];
        assert_eq!(means(&points, 5), [15.0, 5.0, 5.0, 8.0, 8.0]);
        assert_eq!(lasts(&points[..4], 5), [20.0, 5.0, 5.0, 8.0, 8.0]);
    }

    #[test]
    fn longer_bins_average_and_sum_retransmissions() {
        let bin = |index: u32| Bin {
            at_s: f64::from(index) / 10.0,
            cwnd_segments: f64::from(index),
            srtt_ms: 40.0,
            throughput_mbps: f64::from(10 * index),
            retransmissions: f64::from(index % 2),
        };
        let over_time = OverTime { bins: (0..11).map(bin).collect() };
        assert_eq!(over_time.in_bins_of(1), over_time);
        let longer = over_time.in_bins_of(5).bins;
        assert_eq!(longer.len(), 2, "the eleventh fills none");
        let second = Bin {
            at_s: 0.5,
            cwnd_segments: 7.0,
            srtt_ms: 40.0,
            throughput_mbps: 70.0,
            retransmissions: 3.0,
        };
        assert_eq!(longer[1], second);
    }

    #[test]
    fn bin_includes_its_start_time() {
        for bin in 0..600_usize {
            assert_eq!(place(bin as f64 * 1e8 / 1e9), bin);
            assert_eq!(place((bin as f64 * 1e8 + 9e7) / 1e9), bin);
        }
    }
}
