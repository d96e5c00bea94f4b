//! Prague, the congestion control of L4S. It reduces by the share of marked bytes, as DCTCP does. For the
//! Internet, its rate depends little on a short round trip, and it answers a loss as Reno does.
//!
//! ```text
//! v = max(srtt, 25 ms)
//! once in v     M = bytes with CE / bytes with CE or ECT(1)         alpha = 15/16 alpha + 1/16 M
//! first mark    alpha = 1
//! mark          cwnd = ssthresh = cwnd (1 - alpha / 2), then no other reduction by marks for v
//! avoidance     (srtt / v)^2 mss for each window that came unmarked, also after a mark
//! loss          ssthresh = cwnd / 2, with the cwnd from before a mark within v
//! pace          cwnd / srtt, twice that while cwnd < ssthresh / 2
//! ```
//! So cwnd / srtt grows by a segment per v in each v, whatever the round trip is below 25 ms. At a share p of
//! marks it comes to 2 (1 - p) / p segments per v. If marks are drawn and few, it comes to more, for then a
//! reduction waits for the next mark. Slow start counts only unmarked bytes, too. States as in
//! [`super::window`].
//!
//! Sources: draft-briscoe-iccrg-prague-congestion-control-04, sections 2.3 and 2.4; RFC 9331, section 4; the L4S
//! team's net/ipv4/tcp_prague.c for growth after a mark and for the pace.
//!
//! Departures, with reasons:
//! - v is 25 ms or more from the end of slow start on. The draft waits for 500 round trips and Linux for
//!   four, so that short flows are as fast as with other algorithms; here the whole flow can be compared.
//! - Segments keep their length, and the least window is the same as in [`super::window`]. Linux sends
//!   shorter segments where two segments in 25 ms are too much, which is below 1 Mbit/s.
//! - Linux varies the pace of small windows by 3 % within a round trip; this does not.
//!
//! Classic queues that mark are not detected, as in the draft, though RFC 9331 (section 4.3, item 3) requires
//! it on the Internet: there, this flow would outdo classic ones. The host provides the receiver's part,
//! accurate feedback (RFC 9768).
//!
//! Ranges: alpha 0 to 1 in floats, windows as in [`super::window`].

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::rounds::Rounds;
use super::window::{MIN_WINDOW_MSS, Window, WindowControl, WindowLaw};
use super::{Algorithm, CongestionControl, Field, Measurement};
use crate::spec::{Spec, SpecError};
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "prague",
    summary: "Prague: DCTCP for the Internet, with ECT(1) and accurate feedback (L4S)",
    sources: &[
        "draft-briscoe-iccrg-prague-congestion-control-04",
        "RFC 9331",
        "L4S team: Linux net/ipv4/tcp_prague.c",
    ],
    params: &[],
    needs: &[Field::EcnCe, Field::Ect1, Field::Rtt],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &build,
};

/// Least virtual round trip (draft, section 2.4.4), for item 4 of RFC 9331, section 4.3.
const VIRTUAL_RTT_MIN: Duration = Duration::from_millis(25);
/// Weight of a round in alpha (draft, section 2.3.2).
const GAIN: f64 = 1.0 / 16.0;
/// Weight of a sample in the smoothed round trip (RFC 6298, section 2).
const RTT_PARTS: u32 = 8;

fn build(_spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    Ok(WindowControl::boxed(Prague::default()))
}

/// A virtual round trip: a round trip of the connection, but at least [`VIRTUAL_RTT_MIN`].
#[derive(Clone, Debug, Default)]
struct VirtualRound {
    began: Timestamp,
    rounds: Rounds,
}

impl VirtualRound {
    /// Begins with this measurement.
    fn begin(now: Timestamp, measurement: &Measurement) -> Self {
        let mut rounds = Rounds::default();
        rounds.restart(measurement);
        Self { began: now, rounds }
    }

    /// Takes a measurement; true if the round ends with it, and another begins.
    fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement) -> bool {
        let is_over = now.saturating_since(self.began) >= VIRTUAL_RTT_MIN
            && self.rounds.on_measurement(measurement);
        if is_over {
            self.began = now;
        }
        is_over
    }
}

/// The bytes that marks took from the window, and the virtual round trip after that.
#[derive(Clone, Debug)]
struct Reduction {
    taken: u64,
    round: VirtualRound,
}

#[derive(Clone, Debug, Default)]
struct Prague {
    /// Share of marked bytes; `None` before the first mark.
    alpha: Option<f64>,
    srtt: Option<Duration>,
    /// When this round ends, alpha is updated.
    round: VirtualRound,
    /// Bytes of this round.
    with_ce: u64,
    with_ect1: u64,
    /// Within a virtual round trip of a reduction by marks.
    reduction: Option<Reduction>,
    /// Marked bytes of the newest measurement that are not yet left out of growth.
    uncounted: u64,
    /// Acknowledged fractions of a byte that count for growth.
    credit: f64,
    /// From a loss or timeout to its repair.
    is_repairing: bool,
    /// The newest measurement has lost bytes.
    is_lossy: bool,
}

impl Prague {
    fn update_srtt(&mut self, measurement: &Measurement) {
        let latest = measurement.rtt.map(|rtt| rtt.latest).filter(|latest| !latest.is_zero());
        if let Some(latest) = latest {
            let smoothed = |srtt: Duration| srtt - srtt / RTT_PARTS + latest / RTT_PARTS;
            self.srtt = Some(self.srtt.map_or(latest, smoothed));
        }
    }

    fn update_alpha(&mut self, now: Timestamp, measurement: &Measurement) {
        let [ce, ect1] =
            [measurement.ecn_ce, measurement.ect1].map(|bytes| bytes.unwrap_or_default().as_u64());
        self.with_ce = self.with_ce.saturating_add(ce);
        self.with_ect1 = self.with_ect1.saturating_add(ect1);
        if ce > 0 && self.alpha.is_none() {
            self.alpha = Some(1.0);
            self.round = VirtualRound::begin(now, measurement);
            (self.with_ce, self.with_ect1) = (0, 0);
        }
        let all = self.with_ce.saturating_add(self.with_ect1);
        if !self.round.on_measurement(now, measurement) || all == 0 {
            return;
        }
        let share = self.with_ce as f64 / all as f64;
        self.alpha = self.alpha.map(|alpha| alpha + GAIN * (share - alpha));
        (self.with_ce, self.with_ect1) = (0, 0);
    }

    fn on_marks(&mut self, now: Timestamp, measurement: &Measurement, window: &mut Window) {
        if let Some(Reduction { round, .. }) = &mut self.reduction
            && round.on_measurement(now, measurement)
        {
            self.reduction = None;
        }
        let Some(alpha) = self.alpha.filter(|_| self.uncounted > 0) else { return };
        if self.reduction.is_some() || self.is_repairing {
            return;
        }
        let taken = (window.cwnd() as f64 * alpha / 2.0) as u64;
        window.set_ssthresh(window.cwnd() - taken);
        window.set_cwnd(window.ssthresh().min(window.cwnd()));
        self.reduction = Some(Reduction { taken, round: VirtualRound::begin(now, measurement) });
    }

    /// The unmarked part of `acked` bytes.
    fn unmarked(&mut self, acked: u64) -> u64 {
        acked.saturating_sub(core::mem::take(&mut self.uncounted))
    }

    /// The part of `acked` bytes that lets the rate grow as it would with a virtual round trip.
    fn scaled(&mut self, acked: u64) -> u64 {
        let Some(srtt) = self.srtt.filter(|srtt| *srtt < VIRTUAL_RTT_MIN) else { return acked };
        let share = srtt.as_secs_f64() / VIRTUAL_RTT_MIN.as_secs_f64();
        self.credit += acked as f64 * share * share;
        let whole = self.credit as u64;
        self.credit -= whole as f64;
        whole
    }
}

impl WindowLaw for Prague {
    fn observe(&mut self, now: Timestamp, measurement: &Measurement, window: &mut Window) {
        self.uncounted = measurement.ecn_ce.unwrap_or_default().as_u64();
        self.is_lossy = measurement.lost.is_some_and(|lost| lost > ByteCount::ZERO);
        self.update_srtt(measurement);
        self.update_alpha(now, measurement);
        self.on_marks(now, measurement, window);
    }

    fn slow_start(&mut self, _now: Timestamp, acked: u64, window: &mut Window) -> u64 {
        let unmarked = self.unmarked(acked);
        window.slow_start(unmarked)
    }

    fn avoid(&mut self, _now: Timestamp, acked: u64, window: &mut Window) {
        let (mss, unmarked) = (window.mss(), self.unmarked(acked));
        window.grow(self.scaled(unmarked), |_| mss);
    }

    fn on_loss(&mut self, _now: Timestamp, window: &Window) -> u64 {
        self.is_repairing = true;
        let taken = self.reduction.take().map_or(0, |reduction| reduction.taken);
        ((window.cwnd() + taken) / 2).min(window.cwnd())
    }

    fn heeds_mark(&self) -> bool {
        // Marks have had their answer already; lost bytes have not.
        self.is_lossy
    }

    fn on_mark(&mut self) {
        self.is_lossy = false;
        self.is_repairing = false;
    }

    fn on_recovery_end(&mut self, _now: Timestamp, _window: &mut Window) {
        self.is_repairing = false;
    }

    fn pacing_rate(&self, window: &Window) -> Option<Rate> {
        let rate = ByteCount::new(window.cwnd()).per(self.srtt?)?;
        let doubles = window.cwnd() < window.ssthresh() / 2;
        Some(if doubles { rate.scale(2.0) } else { rate })
    }

    fn reason(&self) -> &'static str {
        if self.reduction.is_some() { "marked" } else { "not marked" }
    }

    fn numbers(&self) -> Vec<(&'static str, f64)> {
        alloc::vec![("alpha", self.alpha.unwrap_or_default())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::CongestionEvent;
    use crate::cc::rounds::{MSS, RoundSender};

    fn sender() -> RoundSender {
        RoundSender::new(build(&Spec::named("prague")))
    }

    /// Acknowledges a window after `rtt_ms`, this share of it marked.
    fn round(sender: &mut RoundSender, rtt_ms: u64, share: f64) -> u64 {
        let marked = (sender.cwnd() as f64 * share) as u64;
        sender.extra.ecn_ce = Some(ByteCount::new(marked));
        sender.extra.ect1 = Some(ByteCount::new(sender.cwnd() - marked));
        sender.round(rtt_ms * 1000)
    }

    fn alpha(sender: &RoundSender) -> f64 {
        sender.cc.state().numbers[0].1
    }

    #[test]
    fn first_mark_ends_slow_start_at_half_window() {
        let mut sender = sender();
        assert_eq!(round(&mut sender, 30, 0.0), 20 * MSS);
        assert_eq!(round(&mut sender, 30, 1.0), 10 * MSS);
        assert_eq!((sender.ssthresh(), alpha(&sender)), (Some(10 * MSS), 1.0));
    }

    #[test]
    fn alpha_follows_marked_share_every_25_ms() {
        for (rtt_ms, rounds) in [(50, 1), (5, 5)] {
            let mut sender = sender();
            round(&mut sender, rtt_ms, 1.0);
            for _ in 0..rounds {
                round(&mut sender, rtt_ms, 0.5);
            }
            assert!((alpha(&sender) - (1.0 - 0.5 / 16.0)).abs() < 1e-3, "{}", alpha(&sender));
            for _ in 0..100 * rounds {
                round(&mut sender, rtt_ms, 0.2);
            }
            assert!((alpha(&sender) - 0.2).abs() < 0.01, "{}", alpha(&sender));
        }
    }

    #[test]
    fn shorter_round_trips_grow_as_at_25_ms() {
        for (rtt_ms, rounds, segments) in [(50, 4, 4.0), (25, 4, 4.0), (5, 100, 4.0)] {
            let mut sender = sender();
            round(&mut sender, rtt_ms, 1.0);
            let before = sender.cwnd();
            for _ in 0..rounds {
                round(&mut sender, rtt_ms, 0.0);
            }
            let grown = (sender.cwnd() - before) as f64 / MSS as f64;
            assert!((grown - segments).abs() < 0.5, "{grown} segments at {rtt_ms} ms");
        }
    }

    #[test]
    fn marks_reduce_once_per_25_ms_without_growth() {
        let mut sender = sender();
        round(&mut sender, 10, 1.0);
        let halved = sender.cwnd();
        assert_eq!([round(&mut sender, 10, 1.0), round(&mut sender, 10, 1.0)], [halved; 2]);
        let expected = halved as f64 * (1.0 - alpha(&sender) / 2.0);
        let reduced = round(&mut sender, 10, 1.0);
        assert!((reduced as f64 - expected).abs() < 1.0, "{reduced} and not {expected}");
    }

    #[test]
    fn loss_halves_the_window_from_before_its_marks() {
        let mut sender = sender();
        assert_eq!(round(&mut sender, 30, 0.0), 20 * MSS);
        assert_eq!(sender.event(CongestionEvent::Loss), 10 * MSS);
        sender.event(CongestionEvent::RecoveryEnd);
        assert_eq!(round(&mut sender, 30, 1.0), 5 * MSS);
        assert_eq!(sender.event(CongestionEvent::Loss), 5 * MSS, "marks took as much already");
    }

    #[test]
    fn pace_is_window_per_round_doubled_in_startup() {
        let mut sender = sender();
        assert_eq!(sender.cc.send_limits().pacing_rate, None);
        for (share, times) in [(0.0, 2), (1.0, 1)] {
            round(&mut sender, 40, share);
            let expected = ByteCount::new(times * sender.cwnd()).per(Duration::from_millis(40));
            assert_eq!(sender.cc.send_limits().pacing_rate, expected);
        }
    }
}
