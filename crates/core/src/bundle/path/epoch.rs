//! The number of packets in an epoch: few enough for several feedback samples per round trip, many enough
//! that reports stay a small part of the traffic.
//!
//! ```text
//! path    N = pow2floor(packets/s x RTT) / 4          4 to 8 boundaries a round trip
//! budget  N >= packets/s / reports/s allowed          at most 200 reports/s and 1 % of the bytes
//! ```
//! The two contradict each other below about 100 packets of bandwidth-delay product. Then the size
//! alternates: the finer one while a credit of reports lasts, the coarser one until the credit is
//! refilled. So the budget holds on average, and as many samples arrive as it allows. Since sizes are
//! powers of two, boundary sets are nested and a change in flight costs no match. Only packets that the
//! receivebox sees are reported, so both rules count those.
//!
//! Source: EuroSys'21 "Site-to-site internet traffic control", section 5.1 for the path rule.

use crate::bundle::EpochSize;
use crate::bundle::tuning::Tuning;
use crate::cc::interim::INITIAL_SEGMENTS;
use crate::units::{ByteCount, Duration, Timestamp};

/// Bytes of a report on the wire, Ethernet, IPv4 and UDP headers included; a rounded-up figure.
const REPORT_BYTES: f64 = 128.0;
/// Size before any traffic: about one boundary in the initial window of a flow, and 8 in the first 64
/// packets of a slow start.
const FIRST_LOG2: u8 = INITIAL_SEGMENTS.ilog2() as u8;

/// The sizes that suit a bundle: `fine` while credit lasts, `coarse` otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    fine: u8,
    coarse: u8,
}

fn log2_floor(packets: f64) -> u8 {
    let limit = f64::from(EpochSize::MAX.packets());
    libm::floor(libm::log2(packets.clamp(1.0, limit))) as u8
}

fn log2_ceil(packets: f64) -> u8 {
    let limit = f64::from(EpochSize::MAX.packets());
    libm::ceil(libm::log2(packets.clamp(1.0, limit))) as u8
}

/// Reports per second that `bytes_per_s` of traffic pay for.
fn report_budget(tuning: &Tuning, bytes_per_s: f64) -> f64 {
    (tuning.epoch_byte_share * bytes_per_s / REPORT_BYTES)
        .max(1.0 / tuning.reports_time.as_secs_f64())
        .min(tuning.epoch_reports)
}

/// Reports that may be requested at once: half a second of the budget.
fn credit(tuning: &Tuning) -> f64 {
    tuning.epoch_reports / 2.0
}

fn sizes(tuning: &Tuning, packets_per_s: f64, bytes_per_s: f64, rtt: Duration) -> Sizes {
    let packets_in_flight = packets_per_s * rtt.as_secs_f64();
    let path = log2_floor(packets_in_flight).saturating_sub(2);
    let budget = log2_ceil(packets_per_s / report_budget(tuning, bytes_per_s));
    if path >= budget {
        return Sizes { fine: path, coarse: path };
    }
    Sizes { fine: budget.saturating_sub(1), coarse: budget }
}

/// Chooses the epoch size of one bundle from its departures and its round-trip time.
#[derive(Clone, Debug)]
pub struct EpochSizer {
    log2: u8,
    /// Upper bound after an epoch stayed open for too long.
    cap_log2: u8,
    packets_per_s: f64,
    bytes_per_s: f64,
    /// Share of the sent packets that the receivebox sees (0 to 1).
    seen: f64,
    /// Departures since `counted_from`, not yet in the estimates.
    packets: u64,
    bytes: ByteCount,
    counted_from: Option<Timestamp>,
    credit_reports: f64,
    is_saving: bool,
    /// First departure after the last boundary.
    open_since: Option<Timestamp>,
}

impl EpochSizer {
    /// Starts without any knowledge of the traffic.
    pub fn new(tuning: &Tuning) -> Self {
        Self {
            log2: FIRST_LOG2,
            cap_log2: EpochSize::MAX.log2(),
            packets_per_s: 0.0,
            bytes_per_s: 0.0,
            seen: 1.0,
            packets: 0,
            bytes: ByteCount::ZERO,
            counted_from: None,
            credit_reports: credit(tuning),
            is_saving: false,
            open_since: None,
        }
    }

    /// The size in force.
    pub fn size(&self) -> EpochSize {
        EpochSize::from_log2(self.log2).unwrap_or(EpochSize::MAX)
    }

    /// Sets the share of the sent packets that the receivebox sees (0 to 1).
    pub fn set_seen(&mut self, seen: f64) {
        self.seen = seen;
    }

    /// Counts `packets` packets of `len` bytes in total that have left by `now`; `is_boundary` is about
    /// the last.
    pub fn on_departures(
        &mut self,
        tuning: &Tuning,
        now: Timestamp,
        packets: u64,
        len: ByteCount,
        is_boundary: bool,
    ) {
        self.packets += packets;
        self.bytes += len;
        self.counted_from.get_or_insert(now);
        if !is_boundary {
            self.open_since.get_or_insert(now);
            return;
        }
        let open = self.open_since.take().map_or(Duration::ZERO, |at| now.saturating_since(at));
        if open < tuning.reports_time / 2 {
            self.cap_log2 = (self.cap_log2 + 1).min(EpochSize::MAX.log2());
        }
        self.credit_reports -= self.seen;
        if self.credit_reports < -tuning.epoch_debt {
            // A burst far above the estimate: each further debt halves the requested reports.
            self.log2 = (self.log2 + 1).min(self.cap_log2);
            self.credit_reports = 0.0;
            self.is_saving = true;
        }
    }

    /// Reconsiders the size; call at every tick. `rtt` is the path's least, `None` while unknown.
    pub fn on_tick(&mut self, tuning: &Tuning, now: Timestamp, rtt: Option<Duration>) {
        self.update_traffic(tuning, now);
        let patience = tuning.reports_time.max(rtt.unwrap_or(Duration::ZERO) * 2);
        if self.open_since.is_some_and(|at| now.saturating_since(at) > patience) {
            self.log2 = self.log2.saturating_sub(1);
            self.cap_log2 = self.log2;
            self.open_since = Some(now);
        }
        if let Some(rtt) = rtt {
            self.follow(tuning, rtt);
        }
    }

    fn update_traffic(&mut self, tuning: &Tuning, now: Timestamp) {
        let Some(from) = self.counted_from else { return };
        let elapsed_s = now.saturating_since(from).as_secs_f64();
        if elapsed_s <= 0.0 {
            return;
        }
        let keep = libm::exp(-elapsed_s / tuning.epoch_traffic_time.as_secs_f64());
        let blend = |old: f64, count: f64| keep * old + (1.0 - keep) * count / elapsed_s;
        self.packets_per_s = blend(self.packets_per_s, self.packets as f64);
        self.bytes_per_s = blend(self.bytes_per_s, self.bytes.as_f64());
        self.packets = 0;
        self.bytes = ByteCount::ZERO;
        self.counted_from = Some(now);
        self.credit_reports += report_budget(tuning, self.bytes_per_s) * elapsed_s;
        if self.credit_reports >= credit(tuning) {
            self.credit_reports = credit(tuning);
            self.is_saving = false;
        } else if self.credit_reports < 1.0 {
            self.is_saving = true;
        }
    }

    /// Moves to the suitable size. If the size in force suits a rate within `rates_near`, it stays, so
    /// that sizes do not flap at a power of two.
    fn follow(&mut self, tuning: &Tuning, rtt: Duration) {
        let choose = |sizes: Sizes| if self.is_saving { sizes.coarse } else { sizes.fine };
        let at = |factor: f64| {
            let packets_per_s = self.seen * self.packets_per_s * factor;
            choose(sizes(tuning, packets_per_s, self.bytes_per_s * factor, rtt))
        };
        let within = tuning.rates_near;
        let (low, high) = (at(1.0 - within), at(1.0 + within));
        self.log2 = self.log2.clamp(low.min(high), low.max(high)).min(self.cap_log2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: ByteCount = ByteCount::new(1514);

    /// Feeds `seconds` of evenly spaced packets whose hashes come from `state`; returns boundaries.
    fn feed(sizer: &mut EpochSizer, from_s: f64, seconds: f64, pps: f64, rtt_ms: u64) -> u64 {
        let mut hash = 0x9e37_79b9_7f4a_7c15_u64;
        let mut boundaries = 0;
        let mut tick_s = from_s;
        for index in 0..(seconds * pps) as u64 {
            let at_s = from_s + index as f64 / pps;
            let now = Timestamp::from_nanos((at_s * 1e9) as u64);
            hash = hash.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            let is_boundary = sizer.size().is_boundary(hash >> 24);
            boundaries += u64::from(is_boundary);
            sizer.on_departures(&Tuning::DEFAULT, now, 1, PACKET, is_boundary);
            if at_s >= tick_s {
                tick_s += 0.005;
                sizer.on_tick(&Tuning::DEFAULT, now, Some(Duration::from_millis(rtt_ms)));
            }
        }
        boundaries
    }

    #[test]
    fn round_trip_has_four_to_eight_boundaries() {
        for (mbit, rtt_ms, packets) in [(96.0, 50, 64), (96.0, 200, 256), (48.0, 100, 64)] {
            let mut sizer = EpochSizer::new(&Tuning::DEFAULT);
            feed(&mut sizer, 0.0, 4.0, mbit * 1e6 / 8.0 / 1514.0, rtt_ms);
            assert_eq!(sizer.size().packets(), packets, "{mbit} Mbit/s x {rtt_ms} ms");
        }
    }

    #[test]
    fn budget_leaves_three_samples_at_20_ms() {
        for mbit in [24.0, 48.0, 96.0] {
            let mut sizer = EpochSizer::new(&Tuning::DEFAULT);
            let pps = mbit * 1e6 / 8.0 / 1514.0;
            feed(&mut sizer, 0.0, 5.0, pps, 20);
            let reports_per_s = feed(&mut sizer, 5.0, 40.0, pps, 20) as f64 / 40.0;
            assert!(reports_per_s < 205.0, "{mbit} Mbit/s: {reports_per_s} reports/s");
            assert!(reports_per_s * 0.02 > 3.0, "{mbit} Mbit/s: {reports_per_s} reports/s");
        }
    }

    #[test]
    fn reports_take_one_percent_of_slow_bundles() {
        let mut sizer = EpochSizer::new(&Tuning::DEFAULT);
        let pps = 12e6 / 8.0 / 1514.0;
        feed(&mut sizer, 0.0, 5.0, pps, 10);
        let reports_per_s = feed(&mut sizer, 5.0, 40.0, pps, 10) as f64 / 40.0;
        assert!(reports_per_s * REPORT_BYTES < 0.0105 * 1.5e6, "{reports_per_s} reports/s");
    }

    #[test]
    fn long_open_epoch_is_closed_by_smaller_size() {
        let mut sizer = EpochSizer::new(&Tuning::DEFAULT);
        feed(&mut sizer, 0.0, 3.0, 8000.0, 50);
        assert_eq!(sizer.size().packets(), 64);
        let boundaries = feed(&mut sizer, 3.0, 10.0, 20.0, 50);
        assert!(sizer.size().packets() <= 4, "{:?}", sizer.size());
        assert!(boundaries >= 30, "{boundaries}");
    }

    #[test]
    fn a_burst_after_silence_does_not_flood() {
        let mut sizer = EpochSizer::new(&Tuning::DEFAULT);
        feed(&mut sizer, 0.0, 10.0, 10.0, 50);
        let boundaries = feed(&mut sizer, 10.0, 1.0, 80_000.0, 50);
        assert!(boundaries < 800, "{boundaries}");
    }

    #[test]
    fn unseen_packets_are_unreported_and_add_boundaries() {
        let mut sizer = EpochSizer::new(&Tuning::DEFAULT);
        sizer.set_seen(0.1);
        let pps = 96e6 / 8.0 / 1514.0;
        feed(&mut sizer, 0.0, 5.0, pps, 50);
        let reports_per_s = 0.1 * feed(&mut sizer, 5.0, 20.0, pps, 50) as f64 / 20.0;
        assert!((80.0..205.0).contains(&reports_per_s), "{reports_per_s} reports/s");
    }

    #[test]
    fn an_idle_bundle_keeps_its_size() {
        let mut sizer = EpochSizer::new(&Tuning::DEFAULT);
        feed(&mut sizer, 0.0, 3.0, 8000.0, 50);
        sizer.open_since = None;
        let before = sizer.size();
        sizer.on_tick(
            &Tuning::DEFAULT,
            Timestamp::from_nanos(3_100_000_000),
            Some(Duration::from_millis(50)),
        );
        assert_eq!(sizer.size(), before);
    }
}
