//! A [`WindowLaw`] as a [`CongestionControl`]: when it grows, which calls it gets, and how reductions
//! are undone.

use alloc::boxed::Box;

use super::{CWND_MAX, Counting, WINDOWS_PER_MEASUREMENT, Window, WindowLaw};
use crate::cc::interim::{Beta, Interim};
use crate::cc::{CongestionControl, CongestionEvent, Measurement, SendLimits, State};
use crate::units::{ByteCount, Timestamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WindowPhase {
    Open,
    /// From `Loss` to `RecoveryEnd`.
    Recovery,
    /// From `Rto` to `RecoveryEnd`.
    Loss,
    /// After a reduction that no `RecoveryEnd` will end: bytes yet to be acknowledged.
    Reduced(u64),
}

/// A step of an algorithm `L` that grows the window.
type Grows<L, T> = fn(&mut L, Timestamp, u64, &mut Window) -> T;

/// Steps of an implementation that departs from the source of the algorithm `L`. They replace the algorithm's steps.
/// `None` is the algorithm's own step, which costs no call through a pointer.
#[derive(Clone)]
pub(in crate::cc) struct Steps<L> {
    /// [`WindowLaw::slow_start`].
    pub slow_start: Option<Grows<L, u64>>,
    /// [`WindowLaw::avoid`].
    pub avoid: Option<Grows<L, ()>>,
    /// [`WindowLaw::on_loss`].
    pub on_loss: Option<fn(&mut L, Timestamp, &Window) -> u64>,
    /// [`WindowLaw::on_rto`].
    pub on_rto: Option<fn(&mut L, u64, &Window) -> u64>,
}

impl<L> Steps<L> {
    /// Every step is the algorithm's own.
    pub const NONE: Self = Self { slow_start: None, avoid: None, on_loss: None, on_rto: None };
}

/// A [`WindowLaw`] as a [`CongestionControl`].
#[derive(Clone)]
pub struct WindowControl<L> {
    law: L,
    steps: Steps<L>,
    window: Window,
    phase: WindowPhase,
    /// Window and algorithm before the last reduction.
    saved: Option<(Window, L)>,
    /// Something was acknowledged since the last timeout.
    progressed: bool,
}

impl<L: WindowLaw> WindowControl<L> {
    /// Runs `law`, boxed for a registry entry.
    pub fn boxed(law: L) -> Box<dyn CongestionControl> {
        Box::new(Self::departing(law, Steps::NONE, Counting::default()))
    }

    /// Runs `law` with `steps` in place of its own.
    pub(in crate::cc) fn departing(law: L, steps: Steps<L>, counting: Counting) -> Self {
        let window = Window::new(counting);
        Self { law, steps, window, phase: WindowPhase::Open, saved: None, progressed: true }
    }

    fn save(&mut self) {
        self.saved = Some((self.window, self.law.clone()));
    }

    fn ssthresh_at_loss(&mut self, now: Timestamp) -> u64 {
        match self.steps.on_loss {
            None => self.law.on_loss(now, &self.window),
            Some(on_loss) => on_loss(&mut self.law, now, &self.window),
        }
    }

    fn on_loss(&mut self, now: Timestamp) {
        // If the window was just reduced (a mark before the loss), that reduction counts for both.
        if !matches!(self.phase, WindowPhase::Reduced(_)) {
            self.save();
            let ssthresh = self.ssthresh_at_loss(now);
            self.reduce_to(ssthresh);
        }
        self.phase = WindowPhase::Recovery;
    }

    fn on_mark(&mut self, now: Timestamp) {
        if self.phase == WindowPhase::Open && self.law.heeds_mark() {
            let before = self.window.cwnd();
            self.save();
            let ssthresh = self.ssthresh_at_loss(now);
            self.law.on_mark();
            self.reduce_to(ssthresh);
            self.phase = WindowPhase::Reduced(before);
        }
    }

    fn reduce_to(&mut self, ssthresh: u64) {
        self.window.set_ssthresh(ssthresh);
        self.window.set_cwnd(self.window.ssthresh);
    }

    fn on_rto(&mut self, now: Timestamp) {
        // ns-3, which alone counts so, computes ssthresh again each time, from the window after
        // recovery (TcpSocketBase::ReTxTimeout).
        let is_anew = self.window.counts_acknowledgements();
        if is_anew && self.phase == WindowPhase::Recovery {
            self.window.set_cwnd(self.window.in_flight.unwrap_or(self.window.cwnd()));
        }
        let is_repeated = self.phase == WindowPhase::Loss && !self.progressed && !is_anew;
        let in_episode = self.phase != WindowPhase::Open && !is_anew;
        if !is_repeated && !in_episode {
            self.save();
            let ssthresh = self.ssthresh_at_loss(now);
            let ssthresh = match self.steps.on_rto {
                None => self.law.on_rto(ssthresh, &self.window),
                Some(on_rto) => on_rto(&mut self.law, ssthresh, &self.window),
            };
            self.window.set_ssthresh(ssthresh);
        } else {
            self.law.on_rto_in_episode();
        }
        self.window.set_cwnd(self.window.mss());
        self.phase = WindowPhase::Loss;
        self.progressed = false;
    }

    fn on_spurious(&mut self) {
        if let Some((window, law)) = self.saved.take() {
            self.window.restore(&window);
            self.law.undo(law);
        }
        self.phase = WindowPhase::Open;
    }

    fn on_idle_restart(&mut self, now: Timestamp, timeouts: u32) {
        let halved = self.window.cwnd().checked_shr(timeouts).unwrap_or(0);
        self.fall_unused(halved.max(self.window.cwnd().min(self.window.initial)));
        self.law.on_idle_restart(now, &self.window);
    }

    fn on_underused(&mut self, used: u64) {
        let used = used.max(self.window.initial);
        if self.phase == WindowPhase::Open && used < self.window.cwnd() {
            self.fall_unused((self.window.cwnd() + used) / 2);
        }
    }

    /// The window falls without a sign of congestion: ssthresh remembers it.
    fn fall_unused(&mut self, cwnd: u64) {
        let kept = self.window.cwnd() / 4 * 3;
        self.window.set_ssthresh(self.window.ssthresh.max(kept));
        self.window.set_cwnd(cwnd);
    }

    fn may_grow(&mut self, acked: u64) -> bool {
        match &mut self.phase {
            WindowPhase::Open | WindowPhase::Loss => true,
            WindowPhase::Recovery => false,
            WindowPhase::Reduced(left) => {
                *left = left.saturating_sub(acked);
                if *left == 0 {
                    self.phase = WindowPhase::Open;
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
        let most = WINDOWS_PER_MEASUREMENT * self.window.cwnd();
        let acked = measurement.acked.as_u64().min(most);
        if acked == 0 {
            return;
        }
        self.progressed = true;
        let is_filled =
            self.window.counts_acknowledgements() || self.window.was_filled(measurement);
        if !self.may_grow(acked) || !is_filled {
            return;
        }
        let mut left = acked;
        if self.window.in_slow_start() {
            left = match self.steps.slow_start {
                None => self.law.slow_start(now, acked, &mut self.window),
                Some(slow_start) => slow_start(&mut self.law, now, acked, &mut self.window),
            };
        }
        if left > 0 && !self.window.in_slow_start() {
            match self.steps.avoid {
                None => self.law.avoid(now, left, &mut self.window),
                Some(avoid) => avoid(&mut self.law, now, left, &mut self.window),
            }
        }
    }

    fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        match event {
            CongestionEvent::Loss => self.on_loss(now),
            CongestionEvent::Rto => self.on_rto(now),
            CongestionEvent::EcnCe => self.on_mark(now),
            CongestionEvent::Spurious => self.on_spurious(),
            CongestionEvent::RecoveryEnd => {
                self.phase = WindowPhase::Open;
                self.law.on_recovery_end(now, &mut self.window);
            }
            CongestionEvent::IdleRestart(timeouts) => self.on_idle_restart(now, timeouts),
            CongestionEvent::Resume(idle) => self.law.on_resume(now, idle),
            CongestionEvent::Underused(used) => self.on_underused(used.as_u64()),
            CongestionEvent::FeedbackLost => self.on_idle_restart(now, u32::MAX),
            CongestionEvent::RttShift(nanos) => self.law.shift_rtt(nanos),
            CongestionEvent::SlowStartEnd(cwnd) => {
                self.window.set_cwnd(cwnd.as_u64());
                self.window.set_ssthresh(self.window.cwnd());
                self.law.on_slow_start_end();
            }
            CongestionEvent::Unenforced
            | CongestionEvent::Enforced
            | CongestionEvent::DelayNoise(_) => {}
        }
    }

    fn send_limits(&self) -> SendLimits {
        let ssthresh =
            (self.window.ssthresh < CWND_MAX).then(|| ByteCount::new(self.window.ssthresh));
        SendLimits {
            cwnd: Some(ByteCount::new(self.window.cwnd())),
            ssthresh,
            pacing_rate: self.law.pacing_rate(&self.window),
            ..SendLimits::default()
        }
    }

    fn interim(&self) -> Interim {
        // No host counts acknowledgements.
        if self.window.counts_acknowledgements() {
            return Interim { beta: Some(Beta::ONE), ..Interim::HOLD };
        }
        self.law.interim(&self.window)
    }

    fn state(&self) -> State {
        let phase = match self.phase {
            WindowPhase::Recovery => "recovery",
            WindowPhase::Reduced(_) => "reduced",
            WindowPhase::Open | WindowPhase::Loss if self.window.in_slow_start() => "slow_start",
            WindowPhase::Open | WindowPhase::Loss => "avoidance",
        };
        State { phase, reason: self.law.reason(), numbers: self.law.numbers(), ..State::default() }
    }

    fn copied(&self) -> Option<Box<dyn CongestionControl>> {
        Some(Box::new(self.clone()))
    }
}
