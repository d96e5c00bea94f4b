//! DCTCP: reduces by the share of marked bytes, not by whether anything was marked.
//!
//! ```text
//! once a round   M = bytes marked / bytes acknowledged           alpha = 15/16 alpha + 1/16 M
//! mark           cwnd = ssthresh = cwnd (1 - alpha / 2), then no change for a round
//! loss           ssthresh = cwnd / 2, as Reno; so is growth
//! ```
//! States as in [`super::window`], and a round after each reduction by marks. alpha is 1 at first.
//!
//! Departures from RFC 8257: no intended ones. The receiver's part (section 3.2) is the host's;
//! `ecn_ce` must count the marked bytes. The algorithm uses these bytes alone: hosts raise `EcnCe`
//! for other algorithms.
//!
//! Ranges: alpha 0 to 1 in 2^-20, windows as in [`super::window`].

use alloc::vec::Vec;

use super::rounds::Rounds;
use super::window::{MIN_WINDOW_MSS, Window, WindowControl, WindowLaw};
use super::{Algorithm, Field, Measurement};
use crate::units::{ByteCount, Timestamp};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "dctcp",
    summary: "DCTCP: reduces the window by half the share of marked bytes",
    sources: &["RFC 8257", "Alizadeh et al.: Data Center TCP, SIGCOMM 2010"],
    params: &[],
    needs: &[Field::EcnCe],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &|_| Ok(WindowControl::boxed(Dctcp::new())),
};

/// alpha = 1.
const ONE: u64 = 1 << 20;
/// Weight of a round in alpha is 1/16 (RFC 8257, section 4.2).
const GAIN_SHIFT: u32 = 4;

#[derive(Clone, Debug)]
pub(super) struct Dctcp {
    /// Share of marked bytes, in 2^-20.
    alpha: u64,
    rounds: Rounds,
    /// Bytes of this round.
    acked: ByteCount,
    marked: ByteCount,
    /// The round that follows a reduction by marks.
    reduced: Option<Rounds>,
    /// From a loss or timeout to its repair.
    is_repairing: bool,
    /// The newest measurement has lost bytes.
    is_lossy: bool,
}

impl Dctcp {
    pub(super) fn new() -> Self {
        Self {
            alpha: ONE,
            rounds: Rounds::default(),
            acked: ByteCount::ZERO,
            marked: ByteCount::ZERO,
            reduced: None,
            is_repairing: false,
            is_lossy: false,
        }
    }

    fn update_alpha(&mut self, measurement: &Measurement) {
        let marked = measurement.ecn_ce.unwrap_or_default();
        self.acked += measurement.acked;
        self.marked += marked.min(measurement.acked);
        if !self.rounds.on_measurement(measurement) || self.acked == ByteCount::ZERO {
            return;
        }
        let (marked, acked) = (u128::from(self.marked.as_u64()), u128::from(self.acked.as_u64()));
        let share = (marked * u128::from(ONE) / acked) as u64;
        self.alpha = ((self.alpha << GAIN_SHIFT) - self.alpha + share.min(ONE)) >> GAIN_SHIFT;
        (self.acked, self.marked) = (ByteCount::ZERO, ByteCount::ZERO);
    }

    pub(super) fn lowered(&self, window: &Window) -> u64 {
        let taken = u128::from(window.cwnd()) * u128::from(self.alpha) / u128::from(2 * ONE);
        window.cwnd() - taken as u64
    }

    fn on_marked_bytes(&mut self, measurement: &Measurement, window: &mut Window) {
        if let Some(rounds) = &mut self.reduced
            && rounds.on_measurement(measurement)
        {
            self.reduced = None;
        }
        let is_marked = measurement.ecn_ce.is_some_and(|marked| marked > ByteCount::ZERO);
        if !is_marked || self.reduced.is_some() || self.is_repairing {
            return;
        }
        let lowered = self.lowered(window);
        window.set_ssthresh(lowered);
        window.set_cwnd(window.ssthresh().min(window.cwnd()));
        let mut rounds = Rounds::default();
        rounds.restart(measurement);
        self.reduced = Some(rounds);
    }
}

impl WindowLaw for Dctcp {
    fn observe(&mut self, _now: Timestamp, measurement: &Measurement, window: &mut Window) {
        self.update_alpha(measurement);
        self.on_marked_bytes(measurement, window);
        self.is_lossy = measurement.lost.is_some_and(|lost| lost > ByteCount::ZERO);
    }

    fn avoid(&mut self, _now: Timestamp, acked: u64, window: &mut Window) {
        if self.reduced.is_none() {
            let mss = window.mss();
            window.grow(acked, |_| mss);
        }
    }

    fn on_loss(&mut self, _now: Timestamp, window: &Window) -> u64 {
        self.is_repairing = true;
        window.cwnd() / 2
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

    fn reason(&self) -> &'static str {
        if self.reduced.is_some() { "marked" } else { "not marked" }
    }

    fn numbers(&self) -> Vec<(&'static str, f64)> {
        alloc::vec![("alpha", self.alpha as f64 / ONE as f64)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::CongestionEvent;
    use crate::cc::rounds::{MSS, RoundSender};
    use crate::spec::Spec;

    fn alpha(sender: &RoundSender) -> f64 {
        sender.cc.state().numbers[0].1
    }

    #[test]
    fn alpha_forgets_a_sixteenth_a_round_without_marks() {
        let mut sender = RoundSender::new(ALGORITHM.build(&Spec::named("dctcp")));
        let mut expected = 1.0;
        for _ in 0..20 {
            sender.round(1_000);
            expected *= 15.0 / 16.0;
            assert!((alpha(&sender) - expected).abs() < 1e-4, "{} {expected}", alpha(&sender));
        }
    }

    #[test]
    fn alpha_tends_to_the_share_of_marked_bytes() {
        let mut sender = RoundSender::new(ALGORITHM.build(&Spec::named("dctcp")));
        for _ in 0..200 {
            sender.extra.ecn_ce = Some(ByteCount::new(sender.cwnd() / 5));
            sender.round(1_000);
        }
        assert!((alpha(&sender) - 0.2).abs() < 0.01, "{}", alpha(&sender));
    }

    #[test]
    fn mark_takes_half_of_alpha_from_the_window() {
        let mut sender = RoundSender::new(ALGORITHM.build(&Spec::named("dctcp")));
        for _ in 0..10 {
            sender.round(1_000);
        }
        let before = sender.cwnd();
        sender.extra.ecn_ce = Some(ByteCount::new(1));
        let after = sender.round(1_000);
        let expected = before as f64 * (1.0 - alpha(&sender) / 2.0);
        assert!((after as f64 - expected).abs() < MSS as f64, "{before} {after} {expected}");
    }

    #[test]
    fn loss_halves_and_unmarked_ns3_hardly_reduces() {
        let mut plain = RoundSender::new(ALGORITHM.build(&Spec::named("dctcp")));
        assert_eq!(plain.event(CongestionEvent::Loss), 5 * MSS);
        let mut ns3 = RoundSender::as_ns3("dctcp");
        (0..20).for_each(|_| _ = ns3.round(1_000));
        let before = ns3.cwnd();
        assert!(ns3.event(CongestionEvent::Loss) > before * 8 / 10);
    }
}
