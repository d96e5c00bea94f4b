//! An algorithm in Linux: a host that has the states of TCP itself, counts whole segments, and also lowers
//! the window on its own (PRR, idle restart, limits of a route).
//!
//! ```text
//! Begin     init
//! Ack       cong_avoid: an acknowledgement outside of a recovery
//! Loss      ssthresh: at a loss, a mark or a timeout; returns the new ssthresh
//! Mark      set_state to CWR: the previous Loss was a mark
//! Timeout   set_state to Loss
//! Repaired  set_state from Recovery or Loss to Open or Disorder
//! Undo      undo_cwnd
//! Resume    a segment left where nothing was in flight
//! ```
//! So all of [`super::window::WindowControl`] but its states, with the algorithm's own code: after the same
//! calls, both have the same window to the byte. Bytes that are no whole segment stay here as long as the
//! kernel's window has the segments of this one at the next acknowledgement or loss.
//!
//! If the kernel left out the call for an ssthresh or a restored window, the next acknowledgement brings Loss
//! with Mark or Timeout, or Undo.
//!
//! `crates/ebpf/algorithms` compiles it to BPF. So nothing here or in an algorithm that runs here may panic,
//! call through a pointer, or use floats or memory of its own. Multiplication and division in 128 bits are
//! not allowed either, and a saturating product of 64 bits needs them. Each loop needs a bound that the
//! verifier sees.

use super::window::{CWND_MAX, Counting, WINDOWS_PER_MEASUREMENT, Window, WindowLaw};
use super::{Measurement, RttSample};
use crate::units::{ByteCount, Duration, Timestamp};

/// ssthresh before the first loss (`TCP_INFINITE_SSTHRESH`).
pub const SSTHRESH_INFINITE: u32 = 0x7fff_ffff;

/// [`Call::kind`]: a connection begins with [`Call::cwnd`] segments of [`Call::mss`] bytes.
pub const BEGIN: u32 = 0;
/// [`Call::kind`]: an acknowledgement outside of a recovery.
pub const ACK: u32 = 1;
/// [`Call::kind`]: a loss, a mark or a timeout reduces ssthresh.
pub const LOSS: u32 = 2;
/// [`Call::kind`]: the reported loss was a mark.
pub const MARK: u32 = 3;
/// [`Call::kind`]: a timeout; if it reduces ssthresh, a [`LOSS`] of the same time has come before it.
pub const TIMEOUT: u32 = 4;
/// [`Call::kind`]: the losses are repaired.
pub const REPAIRED: u32 = 5;
/// [`Call::kind`]: the last reduction was for nothing.
pub const UNDO: u32 = 6;
/// [`Call::kind`]: a segment has left where nothing was in flight, [`Call::idle_us`] after the one before it.
pub const RESUME: u32 = 7;

/// [`Call::kind`]: the next part of the last acknowledgement ([`Native::step`]).
pub const GROW: u32 = 8;

/// A call of Linux to a congestion control. Numbers alone and no padding, as C has it in
/// `crates/ebpf/bpf/tcp_algorithm.bpf.c`. Only `kind`, `now_us`, `cwnd` and `ssthresh` mean something in
/// each.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// On the kernel's clock.
    pub now_us: u64,
    /// Bytes sent since the connection began, each once.
    pub sent_bytes: u64,
    /// Bytes acknowledged since then.
    pub acked_bytes: u64,
    /// How long nothing left.
    pub idle_us: u64,
    /// [`BEGIN`] to [`GROW`].
    pub kind: u32,
    /// The window in segments.
    pub cwnd: u32,
    /// ssthresh in segments, [`SSTHRESH_INFINITE`]: none.
    pub ssthresh: u32,
    /// Bytes of a segment.
    pub mss: u32,
    /// The newest round trip (us); 0 if unknown.
    pub rtt_us: u32,
    /// Segments delivered since the last reported acknowledgement, including segments delivered in a recovery.
    pub delivered: u32,
    /// Segments that the window may grow for.
    pub acked: u32,
    /// 1: the sender's data filled the window; else 0.
    pub is_filled: u32,
}

impl Call {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.now_us.wrapping_mul(1000))
    }

    /// An acknowledgement in the form that algorithms get, in segments of `mss`. A round ends with data sent
    /// after its beginning. So the bytes sent count as delivered. The bytes acknowledged, less the last one,
    /// count as delivered before that.
    pub fn measurement(&self, mss: ByteCount) -> Measurement {
        let rtt = Duration::from_micros(self.rtt_us.into());
        Measurement {
            acked: ByteCount::new(mss.as_u64() * u64::from(self.delivered)),
            rtt: (self.rtt_us > 0).then_some(RttSample { latest: rtt, min: rtt }),
            delivered: ByteCount::new(self.sent_bytes),
            prior_delivered: ByteCount::new(self.acked_bytes.saturating_sub(1)),
            app_limited: self.is_filled == 0,
            cwnd_limited: Some(self.is_filled != 0),
            ..Measurement::default()
        }
    }
}

/// Limits in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The window, at least 1.
    pub cwnd: u32,
    /// ssthresh, at least 2; [`SSTHRESH_INFINITE`]: none.
    pub ssthresh: u32,
}

/// A connection of Linux under the algorithm `L`.
#[derive(Clone, Debug)]
pub struct Native<L> {
    window: Window,
    law: L,
    /// Window and algorithm before the last reduction, and when that was ([`Call::now_us`]).
    saved: Option<(Window, L, u64)>,
    /// Bytes of the last acknowledgement that the window has yet to grow for.
    left: u64,
}

impl<L: WindowLaw> Native<L> {
    /// A connection that begins as `call` says. All segments count as its `mss` from then on.
    pub fn new(mut law: L, call: &Call) -> Self {
        let mut window = Window::new(Counting::default());
        let mss = u64::from(call.mss);
        window.start(ByteCount::new(mss), ByteCount::new(mss * u64::from(call.cwnd)));
        law.start(call.now(), &window);
        Self { window, law, saved: None, left: 0 }
    }

    /// Takes a call other than [`BEGIN`]; the limits from now on.
    pub fn take(&mut self, call: &Call) -> Limits {
        let mut step = *call;
        loop {
            if let Some(limits) = self.step(&step) {
                return limits;
            }
            step.kind = GROW;
        }
    }

    /// Takes a call, or one part of an acknowledgement. Returns the limits from now on, or `None` where
    /// `call` is to come again as [`GROW`]. The verifier of BPF does not follow a loop of parts turn by turn
    /// with all that it knows. It only knows the state that a step leaves in memory, which may be anything.
    pub fn step(&mut self, call: &Call) -> Option<Limits> {
        // At other calls the kernel still moves towards its limits, and bytes below a segment would be lost.
        if matches!(call.kind, ACK | LOSS) {
            self.follow(call.cwnd, call.ssthresh);
        }
        let now = call.now();
        match call.kind {
            ACK => self.on_ack(call),
            GROW => self.grow(now),
            LOSS => self.on_loss(call),
            MARK => self.law.on_mark(),
            TIMEOUT => self.on_timeout(call),
            REPAIRED => self.law.on_recovery_end(now, &mut self.window),
            UNDO => self.on_undo(),
            RESUME => self.law.on_resume(now, Duration::from_micros(call.idle_us)),
            _ => {}
        }
        (self.left == 0).then(|| self.limits())
    }

    fn on_ack(&mut self, call: &Call) {
        let (now, mss) = (call.now(), self.window.mss());
        let measurement = call.measurement(ByteCount::new(mss));
        self.law.observe(now, &measurement, &mut self.window);
        self.left = 0;
        let most = WINDOWS_PER_MEASUREMENT * self.window.cwnd();
        let mut left = (u64::from(call.acked) * mss).min(most);
        if call.is_filled == 0 || left == 0 {
            return;
        }
        if self.window.in_slow_start() {
            left = self.law.slow_start(now, left, &mut self.window);
        }
        if !self.window.in_slow_start() {
            self.left = left;
        }
    }

    /// Grows for the next part of the rest.
    fn grow(&mut self, now: Timestamp) {
        let part = self.left.min(self.window.part());
        self.left -= part;
        self.law.avoid(now, part, &mut self.window);
    }

    fn on_loss(&mut self, call: &Call) {
        self.saved = Some((self.window, self.law.clone(), call.now_us));
        let ssthresh = self.law.on_loss(call.now(), &self.window);
        self.window.set_ssthresh(ssthresh);
        self.window.set_cwnd(self.window.ssthresh());
    }

    /// The kernel asks for ssthresh before it reports a timeout, so an answer of the algorithm would come too
    /// late.
    fn on_timeout(&mut self, call: &Call) {
        match &self.saved {
            Some((window, _, at_us)) if *at_us == call.now_us => {
                self.law.on_rto(self.window.ssthresh(), window);
            }
            _ => self.law.on_rto_in_episode(),
        }
    }

    fn on_undo(&mut self) {
        if let Some((window, law, _)) = &self.saved {
            self.window.restore(window);
            self.law.undo(law.clone());
            self.saved = None;
        }
    }

    /// The limits in force.
    pub fn limits(&self) -> Limits {
        let of = |bytes: u64| u32::try_from(bytes / self.window.mss()).unwrap_or(u32::MAX);
        let ssthresh = self.window.ssthresh();
        Limits {
            cwnd: of(self.window.cwnd()),
            ssthresh: if ssthresh == CWND_MAX { SSTHRESH_INFINITE } else { of(ssthresh) },
        }
    }

    /// Takes the limits of the kernel where they differ.
    fn follow(&mut self, cwnd: u32, ssthresh: u32) {
        let (mss, known) = (self.window.mss(), self.limits());
        if known.cwnd != cwnd {
            self.window.set_cwnd(u64::from(cwnd) * mss);
        }
        if known.ssthresh != ssthresh {
            let bytes = u64::from(ssthresh) * mss;
            self.window.set_ssthresh(if ssthresh == SSTHRESH_INFINITE { CWND_MAX } else { bytes });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::algorithms::bic::Bic;
    use crate::cc::algorithms::newreno::NewReno;
    use crate::cc::algorithms::vegas::Vegas;
    use crate::cc::algorithms::westwood::Westwood;
    use crate::cc::{self, CongestionEvent};
    use crate::random::Streams;
    use crate::spec::Spec;

    const MSS: u32 = 1448;

    /// Compares a connection of the kernel with the algorithm `spec` of plans, both with the same calls.
    fn compare<L: WindowLaw>(law: L, spec: &str) {
        let spec: Spec = spec.parse().unwrap();
        let mut control = cc::build(&spec, &[cc::Field::Rtt]).unwrap();
        let mss = ByteCount::new(MSS.into());
        control.init(Timestamp::ZERO, mss, mss * 10);
        let mut random = Streams::new(7).stream("native");
        let mut call = Call { mss: MSS, cwnd: 10, rtt_us: 40_000, ..Call::default() };
        let mut native = Native::new(law, &call);
        for _ in 0..200_000 {
            Limits { cwnd: call.cwnd, ssthresh: call.ssthresh } = native.limits();
            call.now_us += random.below(u64::from(2 * call.rtt_us / call.cwnd) + 2);
            call.kind = match random.below(8_192) {
                0 | 1 => LOSS,
                2 => RESUME,
                _ => ACK,
            };
            call.idle_us = 1_000_000;
            call.acked = (random.below(3) as u32 + 1).min(call.cwnd);
            call.delivered = call.acked;
            call.rtt_us = 40_000 + random.below(200) as u32 * call.cwnd;
            call.is_filled = u32::from(random.below(16) > 0);
            if call.kind == ACK {
                call.acked_bytes += u64::from(call.acked * MSS);
                call.sent_bytes = call.acked_bytes + u64::from(call.cwnd * MSS);
            }
            native.take(&call);
            match call.kind {
                ACK => control.on_measurement(call.now(), &call.measurement(mss)),
                LOSS => {
                    let is_timeout = random.below(4) == 0;
                    let event =
                        if is_timeout { CongestionEvent::Rto } else { CongestionEvent::Loss };
                    control.on_event(call.now(), event);
                    if is_timeout {
                        native.take(&Call { kind: TIMEOUT, ..call });
                        // From then on the kernel's window is a segment, which it reports here.
                        let Limits { ssthresh, .. } = native.limits();
                        let ack =
                            Call { kind: ACK, cwnd: 1, ssthresh, acked: 0, delivered: 0, ..call };
                        native.take(&ack);
                        control.on_measurement(ack.now(), &ack.measurement(mss));
                    }
                    let is_spurious = random.below(4) == 0;
                    for (kind, event) in [
                        (UNDO, is_spurious.then_some(CongestionEvent::Spurious)),
                        (REPAIRED, Some(CongestionEvent::RecoveryEnd)),
                    ] {
                        let Some(event) = event else { continue };
                        let Limits { cwnd, ssthresh } = native.limits();
                        native.take(&Call { kind, cwnd, ssthresh, ..call });
                        control.on_event(call.now(), event);
                    }
                }
                _ => {
                    let idle = Duration::from_micros(call.idle_us);
                    control.on_event(call.now(), CongestionEvent::Resume(idle));
                }
            }
            let limits = control.send_limits();
            let cwnd = ByteCount::new(native.window.cwnd());
            assert_eq!(limits.cwnd, Some(cwnd), "{spec} {call:?}");
            let ssthresh = limits.ssthresh.map_or(CWND_MAX, ByteCount::as_u64);
            assert_eq!(ssthresh, native.window.ssthresh(), "{spec} {call:?}");
        }
        assert!(call.now_us > 10_000_000, "{spec}: {call:?}");
    }

    #[test]
    fn kernel_algorithm_has_the_same_window() {
        compare(NewReno, "newreno");
        compare(Vegas::default(), "vegas");
        compare(Westwood::default(), "westwood");
        // Forgets its last loss at a timeout.
        compare(Bic::default(), "bic");
    }

    /// Timeouts reported to an algorithm: how many reduce, and how many are in an episode.
    #[derive(Clone, Default)]
    struct Timeouts {
        reducing: u32,
        in_episode: u32,
        before: u64,
    }

    impl WindowLaw for Timeouts {
        fn avoid(&mut self, _now: Timestamp, _acked: u64, _window: &mut Window) {}

        fn on_loss(&mut self, _now: Timestamp, window: &Window) -> u64 {
            window.cwnd() / 2
        }

        fn on_rto(&mut self, ssthresh: u64, window: &Window) -> u64 {
            self.reducing += 1;
            self.before = window.cwnd();
            ssthresh
        }

        fn on_rto_in_episode(&mut self) {
            self.in_episode += 1;
        }
    }

    #[test]
    fn timeout_is_reported_with_its_earlier_window() {
        let mut call = Call { mss: MSS, cwnd: 20, ssthresh: SSTHRESH_INFINITE, ..Call::default() };
        let mut native = Native::new(Timeouts::default(), &call);
        let mut told = |kind, now_us, cwnd, ssthresh| {
            call = Call { kind, now_us, cwnd, ssthresh, ..call };
            native.take(&call);
            (native.law.reducing, native.law.in_episode, native.law.before / u64::from(MSS))
        };
        assert_eq!(told(LOSS, 5, 20, SSTHRESH_INFINITE), (0, 0, 0));
        assert_eq!(told(TIMEOUT, 9, 15, 10), (0, 1, 0), "after a loss that was seen before");
        assert_eq!(told(REPAIRED, 10, 10, 10), (0, 1, 0));
        assert_eq!(told(LOSS, 20, 12, 10), (0, 1, 0));
        assert_eq!(told(TIMEOUT, 20, 12, 10), (1, 1, 12));
        assert_eq!(told(TIMEOUT, 30, 1, 6), (1, 2, 12), "once more, without an acknowledgement");
    }

    #[test]
    fn kernel_reductions_are_followed_and_other_bytes_kept() {
        let mut call = Call { mss: MSS, cwnd: 20, ssthresh: SSTHRESH_INFINITE, ..Call::default() };
        let mut native = Native::new(NewReno, &call);
        (call.kind, call.cwnd) = (LOSS, 21);
        assert_eq!(native.take(&call).ssthresh, 10);
        let half = 21 * u64::from(MSS) / 2;
        call = Call { kind: ACK, cwnd: 10, ssthresh: 10, is_filled: 1, acked: 1, ..call };
        assert_eq!(native.take(&call), Limits { cwnd: 10, ssthresh: 10 });
        assert!(native.window.cwnd() > half);
        // On its way from 21 segments to the 10, and there: not a byte is lost.
        call = Call { kind: REPAIRED, cwnd: 13, ..call };
        let before = native.window.cwnd();
        native.take(&call);
        assert_eq!(native.window.cwnd(), before);
        call = Call { kind: ACK, cwnd: 4, ..call };
        assert_eq!(native.take(&call), Limits { cwnd: 5, ssthresh: 10 });
        assert_eq!(native.window.ssthresh(), half);
    }
}
