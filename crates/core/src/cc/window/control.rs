//! A [`WindowLaw`] as a [`CongestionControl`]: when it grows, what it is told of, what is taken back.

use alloc::boxed::Box;

use super::{CWND_MAX, Ns3, WINDOWS_PER_MEASUREMENT, Window, WindowLaw};
use crate::cc::law::Law;
use crate::cc::{CongestionControl, CongestionEvent, Measurement, SendLimits, State};
use crate::units::{ByteCount, Timestamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// From `Loss` to `RecoveryEnd`.
    Recovery,
    /// From `Rto` to `RecoveryEnd`.
    Loss,
    /// After a reduction that no `RecoveryEnd` will end: bytes yet to be acknowledged.
    Reduced(u64),
}

/// A [`WindowLaw`] as a [`CongestionControl`].
#[derive(Clone)]
pub struct WindowControl<L> {
    law: L,
    window: Window,
    phase: Phase,
    /// cwnd, ssthresh and law before the last reduction.
    saved: Option<(u64, u64, L)>,
    /// Something was acknowledged since the last timeout.
    progressed: bool,
}

impl<L: WindowLaw> WindowControl<L> {
    /// Runs `law` with ns-3's departures as given.
    pub fn new(law: L, ns3: Ns3) -> Self {
        Self { law, window: Window::new(ns3), phase: Phase::Open, saved: None, progressed: true }
    }

    /// The same, boxed for a registry entry.
    pub fn boxed(law: L, ns3: Ns3) -> Box<dyn CongestionControl> {
        Box::new(Self::new(law, ns3))
    }

    fn save(&mut self) {
        self.saved = Some((self.window.cwnd, self.window.ssthresh, self.law.clone()));
    }

    fn on_loss(&mut self, now: Timestamp) {
        // The reduction of a window that was just reduced (a mark before the loss) stands for both.
        if !matches!(self.phase, Phase::Reduced(_)) {
            self.save();
            let ssthresh = self.law.on_loss(now, &self.window);
            self.reduce_to(ssthresh);
        }
        self.phase = Phase::Recovery;
    }

    fn on_mark(&mut self, now: Timestamp) {
        if self.phase != Phase::Open {
            return;
        }
        let before = self.window.cwnd;
        let law = self.law.clone();
        if let Some(ssthresh) = self.law.on_mark(now, &self.window) {
            self.saved = Some((before, self.window.ssthresh, law));
            self.reduce_to(ssthresh);
            self.phase = Phase::Reduced(before);
        }
    }

    fn reduce_to(&mut self, ssthresh: u64) {
        self.window.set_ssthresh(ssthresh);
        self.window.set_cwnd(self.window.ssthresh);
    }

    fn on_rto(&mut self, now: Timestamp) {
        // TcpSocketBase::ReTxTimeout computes ssthresh anew each time, from what recovery has left.
        let is_ns3 = self.window.ns3.flight || self.window.ns3.growth;
        if is_ns3 && self.phase == Phase::Recovery {
            self.window.set_cwnd(self.window.in_flight.unwrap_or(self.window.cwnd));
        }
        let is_repeated = self.phase == Phase::Loss && !self.progressed && !is_ns3;
        let in_episode = self.phase != Phase::Open && !is_ns3;
        if !is_repeated && !in_episode {
            self.save();
            let ssthresh = self.law.on_rto(now, &self.window);
            self.window.set_ssthresh(ssthresh);
        } else {
            self.law.on_rto_in_episode();
        }
        self.window.set_cwnd(self.window.mss);
        self.phase = Phase::Loss;
        self.progressed = false;
    }

    fn on_spurious(&mut self) {
        if let Some((cwnd, ssthresh, law)) = self.saved.take() {
            self.window.set_cwnd(self.window.cwnd.max(cwnd));
            self.window.set_ssthresh(ssthresh);
            self.law.undo(law);
        }
        self.phase = Phase::Open;
    }

    fn on_idle_restart(&mut self, now: Timestamp, timeouts: u32) {
        let halved = self.window.cwnd.checked_shr(timeouts).unwrap_or(0);
        self.fall_unused(halved.max(self.window.cwnd.min(self.window.initial)));
        self.law.on_idle_restart(now, &self.window);
    }

    fn on_underused(&mut self, used: u64) {
        let used = used.max(self.window.initial);
        if self.phase == Phase::Open && used < self.window.cwnd {
            self.fall_unused((self.window.cwnd + used) / 2);
        }
    }

    /// The window falls without a sign of congestion: ssthresh remembers it.
    fn fall_unused(&mut self, cwnd: u64) {
        let kept = self.window.cwnd / 4 * 3;
        self.window.set_ssthresh(self.window.ssthresh.max(kept));
        self.window.set_cwnd(cwnd);
    }

    fn may_grow(&mut self, acked: u64) -> bool {
        match &mut self.phase {
            Phase::Open | Phase::Loss => true,
            Phase::Recovery => false,
            Phase::Reduced(left) => {
                *left = left.saturating_sub(acked);
                if *left == 0 {
                    self.phase = Phase::Open;
                }
                false
            }
        }
    }
}

impl<L: WindowLaw> CongestionControl for WindowControl<L> {
    fn init(&mut self, now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        self.window.start(mss, initial_cwnd);
        self.law.start(now, &self.window);
    }

    fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement) {
        self.window.in_flight = measurement.in_flight.map(ByteCount::as_u64);
        self.law.observe(now, measurement, &mut self.window);
        if measurement.lost.is_some_and(|lost| lost > ByteCount::ZERO) {
            self.on_mark(now);
        }
        let most = WINDOWS_PER_MEASUREMENT * self.window.cwnd;
        let acked = measurement.acked.as_u64().min(most);
        if acked == 0 {
            return;
        }
        self.progressed = true;
        // ns-3 grows a window that nothing fills, too.
        let is_filled = self.window.ns3.growth || self.window.was_filled(measurement);
        if !self.may_grow(acked) || !is_filled {
            return;
        }
        let mut left = acked;
        if self.window.in_slow_start() {
            left = self.law.slow_start(now, acked, &mut self.window);
        }
        if left > 0 && !self.window.in_slow_start() {
            self.law.avoid(now, left, &mut self.window);
        }
    }

    fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        match event {
            CongestionEvent::Loss => self.on_loss(now),
            CongestionEvent::Rto => self.on_rto(now),
            CongestionEvent::EcnCe => self.on_mark(now),
            CongestionEvent::Spurious => self.on_spurious(),
            CongestionEvent::RecoveryEnd => {
                self.phase = Phase::Open;
                self.law.on_recovery_end(now, &mut self.window);
            }
            CongestionEvent::IdleRestart(timeouts) => self.on_idle_restart(now, timeouts),
            CongestionEvent::Resume(idle) => self.law.on_resume(now, idle),
            CongestionEvent::Underused(used) => self.on_underused(used.as_u64()),
            CongestionEvent::FeedbackLost => self.on_idle_restart(now, u32::MAX),
            CongestionEvent::RttShift(nanos) => self.law.shift_rtt(nanos),
            CongestionEvent::SlowStartEnd(cwnd) => {
                self.window.set_cwnd(cwnd.as_u64());
                self.window.set_ssthresh(self.window.cwnd);
                self.law.on_slow_start_end();
            }
            CongestionEvent::Unenforced | CongestionEvent::TimeOfDay(_) => {}
        }
    }

    fn send_limits(&self) -> SendLimits {
        let ssthresh =
            (self.window.ssthresh < CWND_MAX).then(|| ByteCount::new(self.window.ssthresh));
        SendLimits {
            cwnd: Some(ByteCount::new(self.window.cwnd)),
            ssthresh,
            pacing_rate: self.law.pacing_rate(&self.window),
            ..SendLimits::default()
        }
    }

    fn law(&self) -> Law {
        self.law.host_law(&self.window)
    }

    fn state(&self) -> State {
        let phase = match self.phase {
            Phase::Recovery => "recovery",
            Phase::Reduced(_) => "reduced",
            Phase::Open | Phase::Loss if self.window.in_slow_start() => "slow_start",
            Phase::Open | Phase::Loss => "avoidance",
        };
        State { phase, reason: self.law.reason(), numbers: self.law.numbers(), ..State::default() }
    }

    fn copied(&self) -> Option<Box<dyn CongestionControl>> {
        Some(Box::new(self.clone()))
    }
}
