//! The window between two decisions, acknowledgement by acknowledgement: the reference that every host
//! follows. `crates/ebpf/bpf/tcp_law.h` is the same in C and is compared with it over random
//! acknowledgements.
//!
//! ```text
//! slow start   cwnd < ssthresh: cwnd += acknowledged, up to ssthresh; left early by HyStart or
//!              HyStart++ where the interim says so ([`hystart`])             (RFC 5681, 3.1; RFC 9406)
//! growth       otherwise: `growth` for each window acknowledged, whole segments, the remainder
//!              carried, never faster than slow start, up to `cap`                (RFC 3465, 2.1)
//! loss, mark   ssthresh = beta cwnd, at least 2 segments; the way there is PRR   (RFC 5681, 3.1)
//! PRR          in flight above ssthresh: ceil(delivered ssthresh / cwnd before) - sent may leave;
//!              else max(delivered - sent, newly delivered), one more where the acknowledgement
//!              advances and reports no loss, up to ssthresh                        (RFC 9937, 6.2)
//! pause        cwnd halved for each timeout, down to the first window              (RFC 2861, 3)
//! unused       to the middle between cwnd and the part used for a timeout, at least the first
//!              window; both: ssthresh = max(ssthresh, 3/4 cwnd)                    (RFC 2861, 3)
//! tripwire     asks for a report at once; a decision sets it again
//! ```
//! A host that calls the algorithm rarely executes an interim between decisions. A sendbox decides at each
//! report and every 5 ms, a simulated sender at each acknowledgement: neither needs an interim.
//!
//! An interim grows the window only where the acknowledgement advances, the window was filled and no recovery
//! is under way. A host counts in segments, as TCP stacks do: [`Terms`] is an [`Interim`] in these units,
//! with fractions in 1/1024. All in integers. Ranges: windows up to [`SEGMENTS_MAX`], times up to 71 minutes
//! in microseconds of 32 bits, which wrap.

pub mod hystart;

use self::hystart::HostHyStart;
use super::SendLimits;
use crate::units::{ByteCount, Duration};

/// Largest window of a host, in segments: 1.5 GB at 1448 B.
pub const SEGMENTS_MAX: u32 = 1 << 20;
/// Least window that a decision sets and least ssthresh (RFC 5681, equation 4), in segments.
pub const SEGMENTS_MIN: u32 = 2;
/// ssthresh before anything was lost (Linux, `TCP_INFINITE_SSTHRESH`).
pub const SSTHRESH_INFINITE: u32 = 0x7fff_ffff;
/// Fraction bits of growth and beta.
pub const FRACTION_BITS: u32 = 10;
/// Round-trip samples of a window before its least one can trip (RFC 9406, `N_RTT_SAMPLE`).
pub const TRIP_SAMPLES: u32 = 8;
/// The first window (RFC 6928), in segments: no lower for want of use.
pub const INITIAL_SEGMENTS: u32 = 10;
/// Conservative slow start's share of the growth (RFC 9406, `CSS_GROWTH_DIVISOR`).
const CONSERVATIVE_PARTS: u32 = 4;

/// Window growth of the host below ssthresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowStart {
    /// Nothing: the window is as decided.
    #[default]
    Hold,
    /// The window grows by the acknowledged segments (RFC 5681, 3.1).
    Standard,
    /// As `Standard`, until HyStart as in Linux ends it.
    HyStart,
    /// As `Standard`, until HyStart++ ends it (RFC 9406); once, before anything was lost.
    HyStartPlusPlus,
}

/// A share of the window, 0 to 1, in 1/1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Beta(u16);

impl Beta {
    /// The whole window.
    pub const ONE: Self = Self(1 << FRACTION_BITS);

    /// `part` of `whole`, rounded to the nearest 1/1024; more than the whole counts as the whole.
    pub const fn of(part: u32, whole: u32) -> Self {
        let whole = if whole == 0 { 1 } else { whole };
        let part = if part > whole { whole } else { part };
        let ratio = (((part as u64) << FRACTION_BITS) + whole as u64 / 2) / whole as u64;
        Self(ratio as u16)
    }

    /// In 1/1024.
    pub const fn parts(self) -> u16 {
        self.0
    }
}

/// Asks the host for a report without delay, once, when a limit is reached within the interval that
/// the next report covers. The greatest value means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tripwires {
    /// The least round trip of the interval, after [`TRIP_SAMPLES`] samples, is longer.
    pub rtt: Duration,
    /// This many bytes were lost.
    pub lost: ByteCount,
    /// This many bytes were marked congestion experienced.
    pub ce: ByteCount,
}

impl Tripwires {
    /// No limit at all.
    pub const NONE: Self =
        Self { rtt: Duration::MAX, lost: ByteCount::new(u64::MAX), ce: ByteCount::new(u64::MAX) };
}

/// The host's rules between decisions. The default holds everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interim {
    /// At or above ssthresh, the window grows by this for each window acknowledged.
    pub growth: ByteCount,
    /// Not beyond this window; the greatest value means none.
    pub cap: ByteCount,
    /// Growth below ssthresh.
    pub slow_start: SlowStart,
    /// The share of the window that ssthresh gets at a loss or a mark, the whole window for an algorithm that
    /// will say so itself. `None`: the algorithm has no ssthresh, and its window holds in a recovery too.
    pub beta: Option<Beta>,
    /// Conditions for a report at once.
    pub tripwires: Tripwires,
}

impl Interim {
    /// Keep the limits until the next decision.
    pub const HOLD: Self = Self {
        growth: ByteCount::ZERO,
        cap: ByteCount::new(u64::MAX),
        slow_start: SlowStart::Hold,
        beta: None,
        tripwires: Tripwires::NONE,
    };

    /// Slow start of an algorithm without ssthresh: the window grows by the acknowledged bytes, also where a
    /// timeout has left the host an ssthresh.
    pub const DOUBLING: Self =
        Self { growth: ByteCount::new(u64::MAX), slow_start: SlowStart::Standard, ..Self::HOLD };

    /// The window moves between decisions: a decision counts relative to the window that was reported, so
    /// that growth since then is kept.
    pub fn moves_window(&self) -> bool {
        self.growth > ByteCount::ZERO || self.slow_start != SlowStart::Hold
    }
}

impl Default for Interim {
    fn default() -> Self {
        Self::HOLD
    }
}

/// An [`Interim`] as a host executes it. Zero means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// 1/1024 segments for each window acknowledged.
    pub growth: u32,
    /// Segments; [`SEGMENTS_MAX`] where the interim has none.
    pub cap: u32,
    /// Below ssthresh.
    pub slow_start: SlowStart,
    /// 1/1024 of the window.
    pub beta: u16,
    /// [`Tripwires::rtt`] in microseconds.
    pub trip_rtt_us: u32,
    /// [`Tripwires::lost`] in segments.
    pub trip_lost: u16,
    /// [`Tripwires::ce`] in segments.
    pub trip_ce: u16,
}

impl Terms {
    /// The terms of `interim` with segments of `mss` bytes. Tripwires in bytes are rounded up.
    pub fn new(interim: &Interim, mss: ByteCount) -> Self {
        let mss = mss.as_u64().max(1);
        let count = |bytes: ByteCount| match bytes.as_u64() {
            u64::MAX => 0,
            bytes => bytes.div_ceil(mss).clamp(1, u64::from(u16::MAX)) as u16,
        };
        let growth = (u128::from(interim.growth.as_u64()) << FRACTION_BITS) / u128::from(mss);
        let trip_rtt_us = match interim.tripwires.rtt {
            Duration::MAX => 0,
            rtt => rtt.as_micros().clamp(1, u128::from(u32::MAX)) as u32,
        };
        Self {
            growth: growth.min(u128::from(SEGMENTS_MAX << FRACTION_BITS)) as u32,
            cap: (interim.cap.as_u64() / mss).min(u64::from(SEGMENTS_MAX)) as u32,
            slow_start: interim.slow_start,
            beta: interim.beta.map_or(0, Beta::parts),
            trip_rtt_us,
            trip_lost: count(interim.tripwires.lost),
            trip_ce: count(interim.tripwires.ce),
        }
    }

    /// As [`Interim::moves_window`].
    pub fn moves_window(&self) -> bool {
        self.growth > 0 || self.slow_start != SlowStart::Hold
    }

    /// ssthresh after a loss or a mark that found the window at `cwnd` segments.
    pub fn reduced(&self, cwnd: u32) -> u32 {
        let cwnd = cwnd.min(SEGMENTS_MAX);
        let kept = if self.beta == 0 { cwnd } else { (cwnd * u32::from(self.beta)) >> 10 };
        kept.max(SEGMENTS_MIN)
    }

    /// Which tripwires an interval has reached: round trip, loss, marks.
    pub fn tripped(&self, interval: &Interval) -> [bool; 3] {
        let is_judged = interval.samples >= TRIP_SAMPLES && interval.rtt_min_us > 0;
        [
            self.trip_rtt_us > 0 && is_judged && interval.rtt_min_us > self.trip_rtt_us,
            self.trip_lost > 0 && interval.lost >= u32::from(self.trip_lost),
            self.trip_ce > 0 && interval.ce >= u32::from(self.trip_ce),
        ]
    }

    /// The window of a decision that wants `wanted` segments and knew of `known` when the window is `cwnd`.
    /// Growth since then is kept where the interim moves the window.
    pub fn decided(&self, cwnd: u32, known: u32, wanted: u32) -> u32 {
        if !self.moves_window() {
            return wanted.clamp(SEGMENTS_MIN, SEGMENTS_MAX);
        }
        if wanted == known {
            return cwnd;
        }
        let moved = i64::from(cwnd) + i64::from(wanted) - i64::from(known);
        moved.clamp(i64::from(SEGMENTS_MIN), i64::from(SEGMENTS_MAX)) as u32
    }
}

/// The contents of the next report, for the tripwires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Acknowledgements with a round-trip sample.
    pub samples: u32,
    /// The least sample in microseconds; 0: none.
    pub rtt_min_us: u32,
    /// Segments lost.
    pub lost: u32,
    /// Segments marked.
    pub ce: u32,
}

/// One acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Segments newly acknowledged or SACKed.
    pub acked: u32,
    /// SND.UNA after it.
    pub una: u32,
    /// Next number to send (SND.NXT).
    pub nxt: u32,
    /// The acknowledgement moved SND.UNA.
    pub has_advanced: bool,
    /// The sender's data filled the window.
    pub is_filled: bool,
    /// Round-trip sample in microseconds; 0: none.
    pub rtt_us: u32,
    /// When it came, in microseconds that wrap.
    pub now_us: u32,
    /// How late the sample may be because of aggregation ([`hystart::ack_delay_us`]).
    pub ack_delay_us: u32,
    /// Something paces the segments.
    pub is_paced: bool,
}

/// The window of a host, in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostWindow {
    /// Segments that may be outstanding.
    pub cwnd: u32,
    /// Slow-start threshold.
    pub ssthresh: u32,
    /// Growth not yet a segment: 1/1024 segments per window times segments acknowledged, or
    /// segments acknowledged in conservative slow start.
    pub credit: u32,
    /// The state of HyStart.
    pub hystart: HostHyStart,
}

impl HostWindow {
    /// Starts at `now_us` with `cwnd` segments, SND.NXT being `nxt`.
    pub fn new(cwnd: u32, nxt: u32, now_us: u32) -> Self {
        let hystart = HostHyStart::new(nxt, now_us);
        Self { cwnd: cwnd.min(SEGMENTS_MAX), ssthresh: SSTHRESH_INFINITE, credit: 0, hystart }
    }

    /// Sending resumes after a pause of `timeouts` timeouts (`tcp_cwnd_restart`).
    pub fn restart(&mut self, timeouts: u32) {
        let least = self.cwnd.clamp(1, INITIAL_SEGMENTS);
        self.fall(self.cwnd.checked_shr(timeouts).unwrap_or(0).max(least));
    }

    /// For a timeout no more than `used` segments were outstanding, which did not fill the window
    /// (`tcp_cwnd_application_limited`).
    pub fn on_underused(&mut self, used: u32) {
        let used = used.max(INITIAL_SEGMENTS);
        if used < self.cwnd {
            self.fall(self.cwnd.saturating_add(used) / 2);
        }
    }

    /// The window falls without a sign of congestion: ssthresh remembers it (`tcp_current_ssthresh`).
    fn fall(&mut self, cwnd: u32) {
        self.ssthresh = self.ssthresh.max(self.cwnd / 2 + self.cwnd / 4);
        self.cwnd = cwnd;
        self.credit = 0;
    }

    /// Takes an acknowledgement outside of a recovery; true if the interim ends slow start with it.
    pub fn on_ack(&mut self, terms: &Terms, ack: &Ack) -> bool {
        let ends = self.cwnd < self.ssthresh && self.observe(terms.slow_start, ack);
        if ends {
            self.ssthresh = self.cwnd.max(SEGMENTS_MIN);
            self.credit = 0;
        }
        if ack.acked == 0 || !ack.has_advanced || !ack.is_filled {
            return ends;
        }
        let mut left = ack.acked.min(SEGMENTS_MAX);
        if self.cwnd < self.ssthresh {
            left = self.slow_start(terms.slow_start, left);
        }
        if left > 0 && self.cwnd >= self.ssthresh {
            self.grow(terms, left);
        }
        ends
    }

    fn observe(&mut self, kind: SlowStart, ack: &Ack) -> bool {
        match kind {
            SlowStart::Hold | SlowStart::Standard => false,
            SlowStart::HyStart => self.hystart.classic(self.cwnd, ack),
            SlowStart::HyStartPlusPlus => {
                self.ssthresh == SSTHRESH_INFINITE && self.hystart.plus_plus(ack)
            }
        }
    }

    /// Returns the segments left for growth above ssthresh.
    fn slow_start(&mut self, kind: SlowStart, acked: u32) -> u32 {
        if kind == SlowStart::Hold {
            return 0;
        }
        // Only the first slow start is watched (RFC 9406, 4.3).
        let is_conservative = kind == SlowStart::HyStartPlusPlus
            && self.ssthresh == SSTHRESH_INFINITE
            && self.hystart.is_conservative();
        let mut counted = acked;
        if is_conservative {
            // Credit from avoidance is in other units.
            self.credit = self.credit % CONSERVATIVE_PARTS + acked;
            counted = self.credit / CONSERVATIVE_PARTS;
            self.credit %= CONSERVATIVE_PARTS;
        }
        let room = self.ssthresh.min(SEGMENTS_MAX).saturating_sub(self.cwnd);
        self.cwnd += counted.min(room);
        if is_conservative { 0 } else { acked.saturating_sub(room) }
    }

    fn grow(&mut self, terms: &Terms, acked: u32) {
        let cwnd = self.cwnd.clamp(1, SEGMENTS_MAX);
        let growth = terms.growth.min(cwnd << FRACTION_BITS);
        if growth == 0 || cwnd >= terms.cap {
            return;
        }
        let segment = u64::from(cwnd) << FRACTION_BITS;
        let credit = u64::from(self.credit).min(segment - 1)
            + u64::from(acked.min(cwnd)) * u64::from(growth);
        self.credit = (credit % segment) as u32;
        let grown = u64::from(cwnd) + credit / segment;
        self.cwnd = grown.min(u64::from(terms.cap.min(SEGMENTS_MAX))) as u32;
    }
}

/// The window of a recovery towards `ssthresh` segments after an acknowledgement, as Linux has PRR
/// (`tcp_cwnd_reduction`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Segments it aims for.
    pub ssthresh: u32,
    /// The window before it.
    pub prior_cwnd: u32,
    /// Segments delivered since it began, this acknowledgement's among them.
    pub delivered: u32,
    /// Segments sent since it began.
    pub sent: u32,
}

impl Recovery {
    /// The window, with `in_flight` segments outstanding, `acked` segments newly delivered (more than none)
    /// and `has_lost` if any became lost.
    pub fn window(&self, in_flight: u32, acked: u32, has_advanced: bool, has_lost: bool) -> u32 {
        let allowed = if in_flight > self.ssthresh {
            let target = u64::from(self.delivered) * u64::from(self.ssthresh);
            let target = target.div_ceil(u64::from(self.prior_cwnd.max(1)));
            target.saturating_sub(u64::from(self.sent)).min(u64::from(SEGMENTS_MAX)) as u32
        } else {
            let owed = self.delivered.saturating_sub(self.sent).max(acked);
            let more = u32::from(has_advanced && !has_lost);
            owed.saturating_add(more).min(self.ssthresh - in_flight)
        };
        // The first repair always leaves.
        let allowed = if self.sent == 0 { allowed.max(1) } else { allowed };
        in_flight.saturating_add(allowed).min(SEGMENTS_MAX)
    }
}

/// The part of `limits` that a host sets which counts in segments of `mss` bytes: cwnd and ssthresh, at least
/// one segment and none where the algorithm sets none.
pub fn in_segments(limits: &SendLimits, mss: ByteCount) -> (Option<u32>, Option<u32>) {
    let count = |bytes: ByteCount| {
        (bytes.as_u64() / mss.as_u64().max(1)).clamp(1, u64::from(SEGMENTS_MAX)) as u32
    };
    (limits.cwnd.map(count), limits.ssthresh.map(count))
}

#[cfg(test)]
mod tests;
