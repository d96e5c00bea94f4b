//! The shared part of window-based algorithms: slow start, growth by bytes acknowledged, the answers to loss,
//! timeouts, marks and idleness, and the state that a spurious loss restores. An algorithm is a
//! [`WindowLaw`]: how the window grows above ssthresh and the value of ssthresh after a loss.
//!
//! ```text
//! slow start    cwnd < ssthresh: cwnd += bytes acknowledged, up to ssthresh     (RFC 5681, 3.1)
//! avoidance     the law's bytes per window acknowledged, remainder carried      (RFC 3465, 2.1)
//! Loss          ssthresh = law, at least 2 mss; cwnd = ssthresh                 (RFC 5681, 3.2)
//! Rto           ssthresh as at Loss; cwnd = 1 mss; slow start                   (RFC 5681, 3.1)
//! Spurious      cwnd = max(cwnd, saved), ssthresh and law as saved              (RFC 9438, 4.9)
//! EcnCe         as Loss, at most once a window                                  (RFC 3168, 6.1.2)
//! IdleRestart   cwnd halved for each timeout, down to the initial one            (RFC 2861, 3)
//! Underused     cwnd = (cwnd + used) / 2, used being at least the initial one   (RFC 2861, 3)
//!               both: ssthresh = max(ssthresh, 3/4 cwnd)                        (RFC 2861, 3)
//! SlowStartEnd  cwnd = ssthresh = the host's value
//! FeedbackLost  cwnd = min(cwnd, initial), ssthresh as above                    (RFC 5681, 4.1)
//! ```
//! States: open; recovery, from `Loss` to `RecoveryEnd`, without growth; loss, from `Rto` to
//! `RecoveryEnd`, growing; reduced, without growth until a window has been acknowledged.
//!
//! Departures, with reasons:
//! - Slow start has no limit L on the bytes counted per acknowledgement (RFC 3465, 2.2): one
//!   measurement may cover many. Bursts are the host's to pace.
//! - A timeout within an episode, if the loss has lowered ssthresh already, leaves ssthresh, as Linux does:
//!   the flight size of RFC 5681 is then still the one from before the loss.
//! - Bytes reported as lost without an event count as a mark does: some hosts (a sendbox) see
//!   losses and repair none, so no event begins or ends an episode there.
//! - A mark leaves two segments at least, as a loss does, and as in Linux. RFC 3168, 6.1.2, and RFC 9438, 4.6, go
//!   down to one, and then send it ever later.
//! - A sender that did not fill its window does not grow it, as Linux does and RFC 9438, 5.8, asks
//!   for; to lower it then (RFC 7661) is experimental.
//!
//! Ranges: windows of 1 mss to [`CWND_MAX`], mss of 1 B to 64 KiB, all in integers; a measurement
//! counts for at most [`WINDOWS_PER_MEASUREMENT`] windows.

mod control;
#[cfg(test)]
pub(crate) mod tests;

use alloc::vec::Vec;
use core::num::NonZeroU64;

pub(super) use self::control::Steps;
pub use self::control::WindowControl;
use super::Measurement;
use super::interim::{Beta, Interim, SlowStart};
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Largest window, 4 GiB: four times the window that TCP can announce, 100 Gbit/s over 340 ms. Products of
/// two windows, one of these a sixteenth, then fit in 64 bits.
pub const CWND_MAX: u64 = 1 << 32;
/// Largest segment.
const MSS_MAX: u64 = 1 << 16;
/// Windows acknowledged by one measurement beyond which nothing is counted.
pub const WINDOWS_PER_MEASUREMENT: u64 = 16;
/// Part of a window over which the growth per window counts as constant.
const PARTS_OF_WINDOW: u64 = 16;
/// More parts than a measurement has, since each is above a 32nd of the window: for the verifier of BPF,
/// which wants to see an end.
const PARTS_MAX: u64 = 2 * PARTS_OF_WINDOW * WINDOWS_PER_MEASUREMENT;
/// Least ssthresh in segments (RFC 5681, equation 4).
const SSTHRESH_MIN_MSS: u64 = 2;
/// Smallest window that these algorithms set, in segments.
pub const MIN_WINDOW_MSS: f64 = 1.0;

/// Units of growth and reduction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Counting {
    /// Growth by the bytes acknowledged (RFC 3465) of a window that was filled; ssthresh is a share of the window.
    #[default]
    Bytes,
    /// RFC 5681 literally, as in ns-3: growth for each acknowledgement (equation 3), rounded down to a byte,
    /// at least one, of any window; ssthresh is a share of the bytes in flight (equation 4).
    Acknowledgements,
}

/// The window of a sender. All sizes in bytes. Divisors of the algorithms cannot be 0, so that no division
/// can panic, which BPF could not do.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    mss: NonZeroU64,
    initial: u64,
    cwnd: NonZeroU64,
    ssthresh: u64,
    /// Growth not yet a byte, in parts of 1/cwnd byte.
    remainder: u64,
    in_flight: Option<u64>,
    counting: Counting,
    /// For an algorithm that adds whole segments: the count towards the next segment, in its own unit.
    pub(super) counted: u64,
}

fn at_least_one(bytes: u64) -> NonZeroU64 {
    NonZeroU64::new(bytes).unwrap_or(NonZeroU64::MIN)
}

impl Window {
    pub(super) fn new(counting: Counting) -> Self {
        let mut window = Self {
            mss: NonZeroU64::MIN,
            initial: 1,
            cwnd: NonZeroU64::MIN,
            ssthresh: CWND_MAX,
            remainder: 0,
            in_flight: None,
            counting,
            counted: 0,
        };
        window.start(ByteCount::new(1514), ByteCount::new(15_140));
        window
    }

    pub(super) fn start(&mut self, mss: ByteCount, initial: ByteCount) {
        self.mss = at_least_one(mss.as_u64().min(MSS_MAX));
        self.initial = initial.as_u64().max(self.mss()).min(CWND_MAX);
        self.cwnd = at_least_one(self.initial);
        self.ssthresh = CWND_MAX;
        self.remainder = 0;
        self.in_flight = None;
        self.counted = 0;
    }

    /// Segment size, 1 B to 64 KiB.
    pub fn mss(&self) -> u64 {
        self.mss.get()
    }

    /// The window, 1 mss to [`CWND_MAX`].
    pub fn cwnd(&self) -> u64 {
        self.cwnd.get()
    }

    /// Whole segments in the window, at least 1.
    pub fn segments(&self) -> u64 {
        self.cwnd() / self.mss
    }

    /// Slow-start threshold, [`CWND_MAX`] before the first loss.
    pub fn ssthresh(&self) -> u64 {
        self.ssthresh
    }

    /// The window is below ssthresh.
    pub fn in_slow_start(&self) -> bool {
        self.cwnd() < self.ssthresh
    }

    /// Bytes outstanding as last measured.
    pub fn in_flight(&self) -> Option<u64> {
        self.in_flight
    }

    /// Acknowledgements count, and not bytes.
    fn counts_acknowledgements(&self) -> bool {
        self.counting == Counting::Acknowledgements
    }

    /// The basis of ssthresh at a loss: the window, or the bytes in flight where these count and are known.
    pub fn at_loss(&self) -> u64 {
        self.in_flight
            .filter(|_| self.counts_acknowledgements())
            .unwrap_or(self.cwnd())
            .min(CWND_MAX)
    }

    /// Sets the window, within its range.
    pub fn set_cwnd(&mut self, bytes: u64) {
        self.cwnd = at_least_one(bytes.max(self.mss()).min(CWND_MAX));
        self.remainder = self.remainder.min(self.cwnd() - 1);
    }

    /// Adds whole segments and drops the rest of one.
    pub fn add_segments(&mut self, segments: u64) {
        if segments > 0 {
            self.set_cwnd((self.segments() + segments) * self.mss());
        }
    }

    /// Bytes of `segments`, but at least of 2 segments.
    pub fn whole_segments(&self, segments: u64) -> u64 {
        segments.max(SSTHRESH_MIN_MSS) * self.mss()
    }

    /// Sets ssthresh, within its range.
    pub fn set_ssthresh(&mut self, bytes: u64) {
        self.ssthresh = bytes.max(SSTHRESH_MIN_MSS * self.mss()).min(CWND_MAX);
    }

    /// Undoes a reduction that was for nothing.
    pub(super) fn restore(&mut self, saved: &Self) {
        self.set_cwnd(self.cwnd().max(saved.cwnd()));
        self.set_ssthresh(saved.ssthresh);
        self.counted = saved.counted;
    }

    /// Slow start: grows by `acked`, up to ssthresh. Returns the bytes left for avoidance.
    pub fn slow_start(&mut self, acked: u64) -> u64 {
        if self.counts_acknowledgements() {
            self.set_cwnd(self.cwnd() + self.mss());
            return acked.saturating_sub(self.mss());
        }
        let grown = acked.min(self.ssthresh.saturating_sub(self.cwnd()));
        self.set_cwnd(self.cwnd() + grown);
        acked - grown
    }

    /// Bytes for which [`Window::grow`] computes the growth once: a sixteenth of the window, at least a
    /// segment.
    pub(super) fn part(&self) -> u64 {
        (self.cwnd() / PARTS_OF_WINDOW).max(self.mss())
    }

    /// Avoidance: grows by `per_window(cwnd)` bytes for each window acknowledged, never faster than slow
    /// start would. The growth is computed again for each sixteenth of a window, so that it matters little
    /// how many acknowledgements come as one.
    pub fn grow(&mut self, acked: u64, mut per_window: impl FnMut(u64) -> u64) {
        if self.counts_acknowledgements() {
            let bytes = self.mss() * per_window(self.cwnd()).min(self.cwnd()) / self.cwnd;
            return self.set_cwnd(self.cwnd() + bytes.max(1));
        }
        // The first part is outside the loop: a host that comes part by part has no loop.
        let mut left = self.grow_part(acked, &mut per_window);
        for _ in 1..PARTS_MAX {
            if left == 0 {
                break;
            }
            left = self.grow_part(left, &mut per_window);
        }
    }

    /// Grows by the first part of `left`; returns the rest.
    fn grow_part(&mut self, left: u64, per_window: &mut impl FnMut(u64) -> u64) -> u64 {
        let part = left.min(self.part());
        let growth = part * per_window(self.cwnd()).min(self.cwnd()) + self.remainder;
        self.remainder = growth % self.cwnd;
        self.set_cwnd(self.cwnd() + growth / self.cwnd);
        left - part
    }

    /// Whether the sender's data filled the window.
    fn was_filled(&self, measurement: &Measurement) -> bool {
        if let Some(is_filled) = measurement.cwnd_limited {
            return is_filled;
        }
        let Some(in_flight) = self.in_flight else { return !measurement.app_limited };
        // A window that slow start has just doubled cannot be full yet: half of it counts
        // (Linux, tcp_is_cwnd_limited).
        let doubled = if self.in_slow_start() { 2 } else { 1 };
        let before = in_flight.saturating_add(measurement.acked.as_u64());
        !measurement.app_limited
            || before.saturating_mul(doubled).saturating_add(self.mss()) > self.cwnd()
    }
}

/// Least round trip seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct MinRtt(Option<Duration>);

impl MinRtt {
    /// Takes the least round trip of a measurement. Ignores a missing round trip, and zero.
    pub fn observe(&mut self, measurement: &Measurement) {
        if let Some(rtt) = measurement.rtt.map(|rtt| rtt.min).filter(|rtt| !rtt.is_zero()) {
            self.0 = Some(self.0.map_or(rtt, |least| least.min(rtt)));
        }
    }

    /// The least so far, above zero.
    pub fn get(&self) -> Option<Duration> {
        self.0
    }

    /// Counts earlier samples as longer by `nanos`.
    pub fn shift(&mut self, nanos: i64) {
        self.0 = self.0.map(|least| {
            let length = Duration::from_nanos(nanos.unsigned_abs());
            let shifted =
                if nanos < 0 { least.saturating_sub(length) } else { least.saturating_add(length) };
            shifted.max(Duration::from_nanos(1))
        });
    }
}

/// How one algorithm steers a window. `acked` is in bytes, above 0 and at most [`WINDOWS_PER_MEASUREMENT`]
/// windows. A spurious loss restores a clone of the algorithm.
pub trait WindowLaw: Clone + Send + 'static {
    /// Begins with the first window.
    fn start(&mut self, now: Timestamp, window: &Window) {
        let _ = (now, window);
    }
    /// Sees every measurement before the window grows, also in recovery and without anything acknowledged. A
    /// delay-based algorithm may move the window here.
    fn observe(&mut self, now: Timestamp, measurement: &Measurement, window: &mut Window) {
        let _ = (now, measurement, window);
    }
    /// Grows the window below ssthresh; returns the bytes left for avoidance.
    fn slow_start(&mut self, now: Timestamp, acked: u64, window: &mut Window) -> u64 {
        let _ = now;
        window.slow_start(acked)
    }
    /// Grows the window at or above ssthresh.
    fn avoid(&mut self, now: Timestamp, acked: u64, window: &mut Window);
    /// Loss was detected: the new ssthresh in bytes (raised to 2 mss where it is less).
    fn on_loss(&mut self, now: Timestamp, window: &Window) -> u64;
    /// A timeout: [`WindowLaw::on_loss`] has returned `ssthresh`; returns the new ssthresh in bytes.
    fn on_rto(&mut self, ssthresh: u64, window: &Window) -> u64 {
        let _ = window;
        ssthresh
    }
    /// A timeout within an episode, which leaves ssthresh.
    fn on_rto_in_episode(&mut self) {}
    /// A mark, the first in a window, or bytes that are lost without an event: whether it counts as a loss.
    fn heeds_mark(&self) -> bool {
        true
    }
    /// [`WindowLaw::on_loss`] was called for a mark: no repair follows.
    fn on_mark(&mut self) {}
    /// The losses of the episode are repaired.
    fn on_recovery_end(&mut self, now: Timestamp, window: &mut Window) {
        let _ = (now, window);
    }
    /// The last reduction was for nothing; `saved` is the algorithm's state before it.
    fn undo(&mut self, saved: Self) {
        *self = saved;
    }
    /// Something leaves where nothing was in flight, `idle` after the last segment.
    fn on_resume(&mut self, now: Timestamp, idle: Duration) {
        let _ = (now, idle);
    }
    /// Sending resumes after a pause.
    fn on_idle_restart(&mut self, now: Timestamp, window: &Window) {
        let _ = (now, window);
    }
    /// The host has ended slow start, as the algorithm wanted.
    fn on_slow_start_end(&mut self) {}
    /// Round trips seen before count as longer by this many nanoseconds.
    fn shift_rtt(&mut self, nanos: i64) {
        let _ = nanos;
    }
    /// Pacing rate if the algorithm sets one.
    fn pacing_rate(&self, window: &Window) -> Option<Rate> {
        let _ = window;
        None
    }
    /// The host's rules between calls, if it does not call at every acknowledgement: slow start, and PRR
    /// towards the algorithm's ssthresh. An algorithm that grows more slowly says so. Growth beyond that
    /// comes with its decisions.
    fn interim(&self, window: &Window) -> Interim {
        let slow_start = if window.in_slow_start() { SlowStart::Standard } else { SlowStart::Hold };
        Interim { slow_start, beta: Some(Beta::ONE), ..Interim::HOLD }
    }
    /// Reason for the present growth, for logs.
    fn reason(&self) -> &'static str {
        ""
    }
    /// Named numbers for logs.
    fn numbers(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}
