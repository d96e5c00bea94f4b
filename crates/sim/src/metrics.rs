//! Metrics as integrals over time, updated when a value changes, and the results computed at the end. Names
//! and definitions follow ccperf's tables: `<statistic>_<quantity>_<layer>`.
//!
//! ```text
//! mean_x = integral of x dt / time, each value held until the next       (integers: exact, no drift)
//! cov_x  = sqrt(mean of x² − mean²) / mean
//! ```
//! Bins of [`BIN_NS`] give rates. The coefficient of variation of the throughput, the mean network power
//! and the mean utility are taken over bins. Empty bins are left out of the logarithm and of the reciprocal.

use forebay_core::qdisc::ByReason;
use forebay_core::units::{ByteCount, Duration, Timestamp};

use crate::event::{after, nanos_between};

/// Width of the bins, 50 ms: ccperf's own lies between 15 and 50 ms.
pub const BIN_NS: u64 = 50_000_000;
/// Weight of the newest gap in the mean of inter-departure times, as a shift: 1/8.
const GAP_SHIFT: u32 = 3;

/// The integral of a value over time, from its first value on.
#[derive(Clone, Copy, Debug)]
pub struct Integral {
    value: u64,
    first: Timestamp,
    since: Timestamp,
    sum: u128,
}

impl Integral {
    /// No value yet.
    pub const NONE: Self = Self { value: 0, first: Timestamp::MAX, since: Timestamp::MAX, sum: 0 };

    /// Sets the value that holds from `now` on.
    #[inline]
    pub fn set(&mut self, now: Timestamp, value: u64) {
        if value == self.value && self.first != Timestamp::MAX {
            return;
        }
        self.first = self.first.min(now);
        self.sum += u128::from(self.value) * u128::from(nanos_between(self.since, now));
        (self.value, self.since) = (value, now);
    }

    /// The current value.
    #[cfg(test)]
    pub fn at(&self) -> f64 {
        self.value as f64
    }

    /// The mean up to `now`; 0 if no time has passed.
    pub fn mean(&self, now: Timestamp) -> f64 {
        let held = u128::from(self.value) * u128::from(nanos_between(self.since, now));
        match nanos_between(self.first, now) {
            0 => 0.0,
            nanos => (self.sum + held) as f64 / nanos as f64,
        }
    }
}

/// Integrals over time of the window and of the bytes in flight, which change together.
#[derive(Clone, Copy, Debug)]
struct Windows {
    cwnd: u64,
    in_flight: u64,
    first: Timestamp,
    since: Timestamp,
    cwnd_sum: u128,
    in_flight_sum: u128,
    /// Integral of the squared bytes in flight.
    squares_sum: u128,
}

impl Windows {
    /// Before the first sample.
    const NONE: Self = Self {
        cwnd: 0,
        in_flight: 0,
        first: Timestamp::MAX,
        since: Timestamp::MAX,
        cwnd_sum: 0,
        in_flight_sum: 0,
        squares_sum: 0,
    };

    /// Sets the values that hold from `now` on.
    #[inline]
    fn set(&mut self, now: Timestamp, cwnd: u64, in_flight: u64) {
        if (cwnd, in_flight) != (self.cwnd, self.in_flight) || self.first == Timestamp::MAX {
            self.add(now);
            (self.cwnd, self.in_flight) = (cwnd, in_flight);
        }
    }

    /// Brings the sums up to `now`.
    #[inline]
    fn add(&mut self, now: Timestamp) {
        let nanos = u128::from(nanos_between(self.since, now));
        self.first = self.first.min(now);
        self.cwnd_sum += u128::from(self.cwnd) * nanos;
        self.in_flight_sum += u128::from(self.in_flight) * nanos;
        self.squares_sum += u128::from(self.in_flight * self.in_flight) * nanos;
        self.since = now;
    }

    /// The three means up to `now`; 0 if no time has passed.
    fn means(mut self, now: Timestamp) -> [f64; 3] {
        if self.first == Timestamp::MAX {
            return [0.0; 3];
        }
        self.add(now);
        let nanos = nanos_between(self.first, now);
        [self.cwnd_sum, self.in_flight_sum, self.squares_sum]
            .map(|sum| if nanos == 0 { 0.0 } else { sum as f64 / nanos as f64 })
    }
}

/// Payload that arrived in a bin, and the smoothed round-trip time at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    /// Payload bytes.
    pub bytes: u32,
    /// Smoothed round-trip time in microseconds, 0 before the first sample.
    pub srtt_us: u32,
}

/// Measurements of one connection during the run; calls must come in order of time.
#[derive(Debug)]
pub struct FlowMeter {
    start: Timestamp,
    windows: Windows,
    srtt: Integral,
    gap: Integral,
    gap_ns: u64,
    last_sent: Option<Timestamp>,
    bins: Vec<Bin>,
    bin_end: Timestamp,
    bin_bytes: u32,
    received_bytes: u64,
    completed: Option<Timestamp>,
}

/// State of a sender that the meter reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observed {
    /// Window in bytes.
    pub cwnd: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Smoothed round-trip time in nanoseconds, 0 for none.
    pub srtt_ns: u64,
}

impl FlowMeter {
    /// For a flow that lives from `start` to `stop`.
    pub fn new(start: Timestamp, stop: Timestamp) -> Self {
        let bins = nanos_between(start, stop).div_ceil(BIN_NS);
        Self {
            start,
            windows: Windows::NONE,
            srtt: Integral::NONE,
            gap: Integral::NONE,
            gap_ns: 0,
            last_sent: None,
            bins: Vec::with_capacity(bins as usize),
            bin_end: after(start, BIN_NS),
            bin_bytes: 0,
            received_bytes: 0,
            completed: None,
        }
    }

    /// The sender's state has changed.
    #[inline]
    pub fn observe(&mut self, now: Timestamp, seen: Observed) {
        self.close_bins(now);
        if seen.cwnd > 0 {
            self.windows.set(now, seen.cwnd, seen.in_flight);
        }
        if seen.srtt_ns > 0 {
            self.srtt.set(now, seen.srtt_ns);
        }
    }

    /// A segment was sent.
    #[inline]
    pub fn on_send(&mut self, now: Timestamp) {
        if let Some(last) = self.last_sent.replace(now) {
            let gap_ns = nanos_between(last, now);
            let kept = self.gap_ns - (self.gap_ns >> GAP_SHIFT);
            self.gap_ns = if self.gap_ns == 0 { gap_ns } else { kept + (gap_ns >> GAP_SHIFT) };
            self.gap.set(now, self.gap_ns);
        }
    }

    /// New payload has arrived.
    #[inline]
    pub fn on_receive(&mut self, now: Timestamp, bytes: u32) {
        self.close_bins(now);
        self.bin_bytes += bytes;
        self.received_bytes += u64::from(bytes);
    }

    /// The last byte was read.
    pub fn on_complete(&mut self, now: Timestamp) {
        self.completed.get_or_insert(now);
    }

    /// Takes what `other` has measured at the receiver up to `now`; this meter has measured at the sender.
    pub(crate) fn take_receiver(&mut self, now: Timestamp, other: &mut Self) {
        [&mut *self, other].into_iter().for_each(|it| it.close_bins(now));
        self.bins.iter_mut().zip(&other.bins).for_each(|(bin, other)| bin.bytes = other.bytes);
        (self.bin_bytes, self.received_bytes) = (other.bin_bytes, other.received_bytes);
        self.completed = other.completed;
    }

    #[inline]
    fn close_bins(&mut self, now: Timestamp) {
        while now >= self.bin_end {
            let srtt_us = (self.srtt.value / 1_000) as u32;
            self.bins.push(Bin { bytes: self.bin_bytes, srtt_us });
            self.bin_bytes = 0;
            self.bin_end = after(self.bin_end, BIN_NS);
        }
    }

    /// The metrics at `now`; the caller adds the sender's own counts.
    pub fn metrics(&mut self, now: Timestamp, mss: u64) -> FlowMetrics {
        self.close_bins(now);
        let life = now.saturating_since(self.start);
        let mss = mss as f64;
        let [cwnd, in_flight, squares] = self.windows.means(now);
        let variance = (squares - in_flight * in_flight).max(0.0);
        let throughput = Spread::of(self.bins.iter().map(|bin| mbit_per_s(bin.bytes.into(), BIN)));
        let with_srtt = self.bins.iter().filter(|bin| bin.srtt_us > 0);
        let power = Spread::of(
            with_srtt
                .map(|bin| mbit_per_s(bin.bytes.into(), BIN) / (f64::from(bin.srtt_us) * 1e-6)),
        );
        let not_empty = self.bins.iter().filter(|bin| bin.bytes > 0);
        let utility =
            Spread::of(not_empty.clone().map(|bin| libm::log(mbit_per_s(bin.bytes.into(), BIN))));
        let delay = Spread::of(not_empty.map(|bin| -1.0 / mbit_per_s(bin.bytes.into(), BIN)));
        FlowMetrics {
            mean_cwnd_l4: cwnd / mss,
            mean_in_flight_l4: in_flight / mss,
            cov_in_flight_l4: ratio(libm::sqrt(variance), in_flight),
            mean_srtt_l4: self.srtt.mean(now) * 1e-6,
            mean_idt_ewma_l4: self.gap.mean(now) * 1e-6,
            mean_throughput_l4: mbit_per_s(self.received_bytes, life),
            cov_throughput_l4: ratio(throughput.deviation(), throughput.mean()),
            mean_network_power_l4: power.mean(),
            mean_utility_pf_l4: utility.mean(),
            mean_utility_mpdf_l4: delay.mean(),
            received_bytes: self.received_bytes,
            completed: self.completed,
            ..FlowMetrics::default()
        }
    }

    /// The bins that have ended.
    pub fn bins(&self) -> &[Bin] {
        &self.bins
    }
}

/// [`BIN_NS`] as a duration.
const BIN: Duration = Duration::from_nanos(BIN_NS);

/// `bytes` over `time` in Mbit/s (10^6 bits per second); 0 over no time.
pub(crate) fn mbit_per_s(bytes: u64, time: Duration) -> f64 {
    ByteCount::new(bytes).per(time).map_or(0.0, |rate| rate.as_mbit_per_sec_f64())
}

/// `share` / `whole`; 0 if `whole` is 0.
pub(crate) fn ratio(share: f64, whole: f64) -> f64 {
    if whole > 0.0 { share / whole } else { 0.0 }
}

/// Mean and spread of a few thousand numbers.
struct Spread {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Spread {
    fn of(numbers: impl Iterator<Item = f64>) -> Self {
        numbers.fold(Self { count: 0.0, sum: 0.0, squares: 0.0 }, |it, number| Self {
            count: it.count + 1.0,
            sum: it.sum + number,
            squares: it.squares + number * number,
        })
    }

    fn mean(&self) -> f64 {
        ratio(self.sum, self.count)
    }

    fn deviation(&self) -> f64 {
        let mean = self.mean();
        libm::sqrt((ratio(self.squares, self.count) - mean * mean).max(0.0))
    }
}

/// Results of one connection. Means run from its start to its stop, or to the end of the run; counts run to
/// the end of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowMetrics {
    /// Window, segments.
    pub mean_cwnd_l4: f64,
    /// Segments outstanding and neither SACKed nor lost.
    pub mean_in_flight_l4: f64,
    /// Standard deviation / mean of the bytes in flight.
    pub cov_in_flight_l4: f64,
    /// Smoothed round-trip time, ms.
    pub mean_srtt_l4: f64,
    /// Time from the write to the read of a byte, including the wait in the send buffer, ms. `None` without
    /// [`crate::Simulation::watch_writing`].
    pub mean_one_way_delay_l7: Option<f64>,
    /// Moving mean (weight 1/8) of the time between departures, ms.
    pub mean_idt_ewma_l4: f64,
    /// New payload at the receiver, Mbit/s.
    pub mean_throughput_l4: f64,
    /// Standard deviation / mean of the throughput, over bins.
    pub cov_throughput_l4: f64,
    /// Payload sent, including retransmissions, Mbit/s.
    pub mean_sending_rate_l4: f64,
    /// Payload that the application wrote, including a full send buffer, Mbit/s.
    pub mean_sending_rate_l7: f64,
    /// Throughput / smoothed round-trip time, Mbit/s per s.
    pub mean_network_power_l4: f64,
    /// ln(throughput in Mbit/s).
    pub mean_utility_pf_l4: f64,
    /// -1 / throughput, s/Mbit.
    pub mean_utility_mpdf_l4: f64,
    /// Length of a loss recovery, ms.
    pub mean_recovery_time_l4: f64,
    /// Loss recoveries that ended.
    pub recovery_episodes: u64,
    /// Segments sent again.
    pub total_retransmissions_l4: u64,
    /// Retransmitted segments that arrived in addition to the original.
    pub total_spurious_retransmissions_l4: u64,
    /// Retransmission timeouts.
    pub total_rtos_l4: u64,
    /// How often the algorithm set limits out of range, which were then clamped.
    pub limits_clamped: u64,
    /// Segments acknowledged below the newest one that never arrived. Only for a receiver that hides losses.
    pub total_unreceived_l4: Option<u64>,
    /// Probes of a closed window. Only for a receiver that reads at a rate.
    pub total_window_probes_l4: Option<u64>,
    /// Share of the time in which only the receiver's window kept data from being sent. Only for a receiver
    /// that reads at a rate.
    pub rwnd_limited_l4: Option<f64>,
    /// Segments sent, including retransmissions.
    pub data_packets_sent: u64,
    /// New payload at the receiver, bytes.
    pub received_bytes: u64,
    /// Time at which the receiver read the last byte.
    pub completed: Option<Timestamp>,
}

/// Results of the bottleneck over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkMetrics {
    /// Mean number of packets in the qdisc, without the device's.
    pub mean_qdisc_length_l2: f64,
    /// Time in the qdisc of the packet that left it last, mean over time, ms.
    pub mean_qdisc_delay_l2: f64,
    /// Mean time in the qdisc of all packets that left it, ms.
    pub mean_qdisc_delay_l2_per_packet: f64,
    /// Frames that left, Mbit/s.
    pub mean_sending_rate_l1: f64,
    /// Packets that the qdisc dropped.
    pub total_qdisc_drops_l2: u64,
    /// Packets that the qdisc marked congestion experienced.
    pub total_qdisc_marks_l2: u64,
    /// Dropped packets by reason.
    pub drops: ByReason,
    /// Marked packets by reason.
    pub marks: ByReason,
    /// Packets lost on the wire.
    pub total_loss_drops: u64,
    /// Packets that left.
    pub packets: u64,
    /// Largest number of packets in the qdisc.
    pub max_qdisc_length_l2: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn mean_weights_values_by_duration() {
        let mut integral = Integral::NONE;
        integral.set(at(100), 10);
        integral.set(at(200), 40);
        // 100 ms of 10 and 300 ms of 40; the time before the first value does not count.
        assert_eq!(integral.mean(at(500)), 32.5);
        integral.set(at(500), 0);
        assert_eq!(integral.mean(at(900)), 16.25);
        assert_eq!(Integral::NONE.mean(at(5)), 0.0);
    }

    #[test]
    fn bins_without_an_event_are_closed_too() {
        let mut meter = FlowMeter::new(at(0), at(1000));
        meter.on_receive(at(10), 1000);
        meter.observe(at(20), Observed { cwnd: 1, in_flight: 0, srtt_ns: 7_000_000 });
        meter.on_receive(at(160), 500);
        let bytes: Vec<u32> = meter.bins().iter().map(|bin| bin.bytes).collect();
        assert_eq!(bytes, [1000, 0, 0]);
        assert!(meter.bins().iter().all(|bin| bin.srtt_us == 7000));
        let metrics = meter.metrics(at(200), 1000);
        assert_eq!((metrics.received_bytes, meter.bins().len()), (1500, 4));
        assert_eq!(metrics.mean_throughput_l4, 0.06);
    }

    #[test]
    fn spread_is_the_population_standard_deviation() {
        assert_eq!(Spread::of([3.0; 4].into_iter()).deviation(), 0.0);
        assert_eq!(Spread::of([2.0, 4.0].into_iter()).deviation(), 1.0);
    }
}
