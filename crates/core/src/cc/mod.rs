//! Congestion control: one trait, one registry, [`algorithms`] and their shared parts.
//!
//! Algorithms share [`window`], [`rounds`], [`hystart`], [`delay`], [`estimators`], [`drain`], [`limits`], [`overflow`]
//! and [`pcc`].
//! Their hosts share [`interim`], [`native`] and [`foreign`].

pub mod algorithms;
pub mod delay;
pub mod drain;
pub mod estimators;
#[cfg(test)]
mod flow;
pub mod foreign;
pub mod hystart;
pub mod interim;
pub mod limits;
pub mod native;
pub mod overflow;
pub mod pcc;
mod registry;
pub mod rounds;
pub mod window;

use alloc::boxed::Box;
use alloc::vec::Vec;

pub use self::algorithms::{ALGORITHMS, policy};
pub use self::interim::Interim;
pub use self::registry::Registry;
use crate::spec::{Parameter, Spec, SpecError};
use crate::units::{ByteCount, Duration, Rate, Ratio, Timestamp};

/// Round-trip times seen in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttSample {
    /// The newest.
    pub latest: Duration,
    /// The smallest of the interval.
    pub min: Duration,
}

/// Behaviour of the path over an interval. One ACK, one kernel report and one bundle epoch are all a
/// measurement. `None` means not known here; zero never means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measurement {
    /// Time covered, from the previous measurement to this one.
    pub interval: Duration,
    /// Bytes newly known to have been delivered.
    pub acked: ByteCount,
    /// Bytes newly considered lost.
    pub lost: Option<ByteCount>,
    /// Bytes newly reported as marked congestion experienced.
    pub ecn_ce: Option<ByteCount>,
    /// Bytes newly reported as arrived with ECT(1), and so without a mark (RFC 9768 section 3.2, s.e1b).
    pub ect1: Option<ByteCount>,
    /// Round-trip times; in a sendbox composed of the one-way delay and the window minimum of the
    /// return leg.
    pub rtt: Option<RttSample>,
    /// Age of the feedback: from the departure of the newest acknowledged packet to now.
    pub feedback_delay: Option<Duration>,
    /// Time that the acknowledged packet took to the other end, by the timestamps of both hosts (RFC 7323):
    /// in their ticks, and with the offset of their clocks.
    pub one_way: Option<Duration>,
    /// Rate at which the acknowledged bytes were sent.
    pub send_rate: Option<Rate>,
    /// Rate at which they arrived, over about one round trip.
    pub delivery_rate: Option<Rate>,
    /// Rate at which they arrived, over a small part of a round trip.
    pub train_rate: Option<Rate>,
    /// Bytes outstanding after this measurement.
    pub in_flight: Option<ByteCount>,
    /// Bytes delivered since the start.
    pub delivered: ByteCount,
    /// `delivered` at the time the newest acknowledged packet was sent (counts rounds).
    pub prior_delivered: ByteCount,
    /// `delivered` at the time the first of the newly lost packets was sent.
    pub lost_prior_delivered: Option<ByteCount>,
    /// The sender had at some time of the interval nothing to send; in TCP, when it sent the newest packet
    /// that one of the interval's acknowledgements reported (draft-ietf-ccwg-bbr, RS.is_app_limited).
    pub app_limited: bool,
    /// The sender's data filled the window; at a sendbox false while its host holds the bundle below its
    /// window. `None`: to be derived from `app_limited` and `in_flight`.
    pub cwnd_limited: Option<bool>,
    /// Share of the interval in which the sender had nothing to send.
    pub idle: Option<Ratio>,
    /// Bytes that wait at a sendbox, at its latest tick or change between empty and not.
    pub backlog: Option<ByteCount>,
}

/// Events that must not wait for the next measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionEvent {
    /// Loss was detected; once an episode, before the measurement of the same ACK.
    Loss,
    /// The losses of the episode are repaired.
    RecoveryEnd,
    /// A retransmission timeout.
    Rto,
    /// The last loss or timeout was spurious: restore saved state.
    Spurious,
    /// A congestion-experienced mark arrived.
    EcnCe,
    /// A segment leaves where nothing was in flight, this long after the one before it.
    Resume(Duration),
    /// Sending resumes after an idle period of this many timeouts, at least one.
    IdleRestart(u32),
    /// For a timeout at most this part of the window was used.
    Underused(ByteCount),
    /// The parts of round trips change: those seen before count as longer by this many nanoseconds (negative:
    /// shorter), and so does the base.
    RttShift(i64),
    /// The host left slow start at this window, as the algorithm wanted (HyStart).
    SlowStartEnd(ByteCount),
    /// No feedback came for a time in which the host enforced no limits: the present queue is unknown.
    FeedbackLost,
    /// The host enforces no limits from now on: traffic that does not yield to them says nothing.
    Unenforced,
    /// The host enforces the limits from now on.
    Enforced,
    /// Round trips vary by this while the queue is short: a shorter queue cannot be distinguished from none.
    DelayNoise(Duration),
}

impl CongestionEvent {
    /// Name and value of the event for programs in other languages. The value is in nanoseconds, in bytes, or
    /// a number of timeouts. Events without a value have 0.
    pub fn named(self) -> (&'static str, i64) {
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        match self {
            Self::Loss => ("loss", 0),
            Self::RecoveryEnd => ("recovery_end", 0),
            Self::Rto => ("rto", 0),
            Self::Spurious => ("spurious", 0),
            Self::EcnCe => ("ecn_ce", 0),
            Self::Resume(idle) => ("resume", nanos(idle)),
            Self::IdleRestart(timeouts) => ("idle_restart", timeouts.into()),
            Self::Underused(used) => ("underused", signed(used.as_u64())),
            Self::RttShift(nanos) => ("rtt_shift", nanos),
            Self::SlowStartEnd(cwnd) => ("slow_start_end", signed(cwnd.as_u64())),
            Self::FeedbackLost => ("feedback_lost", 0),
            Self::Unenforced => ("unenforced", 0),
            Self::Enforced => ("enforced", 0),
            Self::DelayNoise(time) => ("delay_noise", nanos(time)),
        }
    }
}

/// The limits an algorithm sets. The host derives the missing ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SendLimits {
    /// Bytes that may be outstanding.
    pub cwnd: Option<ByteCount>,
    /// Slow-start threshold.
    pub ssthresh: Option<ByteCount>,
    /// Pacing rate. With `cwnd` given too, the lower of the two binds.
    pub pacing_rate: Option<Rate>,
    /// The algorithm takes the sender for app-limited: a host that derives the rate must not let
    /// the window bind below the recent maximum of the delivery rate. `None`: the host judges.
    pub app_limited: Option<bool>,
}

/// A congestion-control algorithm: infallible, without clock or I/O.
pub trait CongestionControl: Send {
    /// Starts at `now` with packets of `mss` bytes and `initial_cwnd` bytes of window.
    fn init(&mut self, now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount);
    /// The seed of the algorithm's random choices, if it makes any. Comes before `init`.
    fn set_seed(&mut self, seed: u64) {
        let _ = seed;
    }
    /// The flow or bundle that the algorithm decides for, such as `flow bulk`: for messages. Comes before
    /// `init`.
    fn set_owner(&mut self, owner: &str) {
        let _ = owner;
    }
    /// Whether the limits follow from the path's behaviour. A sendbox may measure whether such limits pay.
    fn follows_path(&self) -> bool {
        true
    }
    /// Takes the path's behaviour since the last call.
    fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement);
    /// Takes an event that could not wait.
    fn on_event(&mut self, now: Timestamp, event: CongestionEvent);
    /// Called at or after [`CongestionControl::next_timer`].
    fn on_timer(&mut self, now: Timestamp) {
        let _ = now;
    }
    /// When the algorithm wants to be called without a measurement.
    fn next_timer(&self) -> Option<Timestamp> {
        None
    }
    /// The limits in force.
    fn send_limits(&self) -> SendLimits;
    /// Rate of payload that fits the limits, for a source that adapts; `None`: derived from the limits.
    fn source_rate(&self) -> Option<Rate> {
        None
    }
    /// The host's rules for the window until the next call, acknowledgement by acknowledgement. A host that
    /// calls at each acknowledgement never uses this.
    fn interim(&self) -> Interim {
        Interim::HOLD
    }
    /// The algorithm's own state, for logs: a name of the phase and named numbers.
    fn state(&self) -> State;
    /// How often the limits in force were brought within bounds after a call; for a user's own algorithm, see
    /// [`foreign::bounded`].
    fn clamped(&self) -> u64 {
        0
    }
    /// A copy in the same state, for a host that needs one for each of many short connections; `None`: the
    /// host builds it.
    fn copied(&self) -> Option<Box<dyn CongestionControl>> {
        None
    }
}

/// An algorithm's own state as numbers with names (units in the name), for logs and figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Phase, such as `"slow_start"` or `"drain"`.
    pub phase: &'static str,
    /// Reason for the last decision.
    pub reason: &'static str,
    /// Least round-trip time in force.
    pub min_rtt: Option<Duration>,
    /// Standing queueing delay.
    pub queue_delay: Option<Duration>,
    /// Estimated rate of the bottleneck.
    pub bottleneck_rate: Option<Rate>,
    /// Named numbers.
    pub numbers: Vec<(&'static str, f64)>,
}

crate::named! {
    /// A field of [`Measurement`] that not every host can fill.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Field {
        /// [`Measurement::lost`].
        Lost => "lost",
        /// [`Measurement::ecn_ce`].
        EcnCe => "ecn_ce",
        /// [`Measurement::ect1`]: for an algorithm that needs it, a host sends ECT(1), and belongs to L4S
        /// (RFC 9331).
        Ect1 => "ect1",
        /// [`Measurement::rtt`].
        Rtt => "rtt",
        /// [`Measurement::feedback_delay`].
        FeedbackDelay => "feedback_delay",
        /// [`Measurement::send_rate`].
        SendRate => "send_rate",
        /// [`Measurement::delivery_rate`].
        DeliveryRate => "delivery_rate",
        /// [`Measurement::train_rate`].
        TrainRate => "train_rate",
        /// [`Measurement::in_flight`].
        InFlight => "in_flight",
        /// [`Measurement::idle`].
        Idle => "idle",
        /// [`Measurement::backlog`]: known to a sendbox only, so algorithms that need it steer bundles and no
        /// flows.
        Backlog => "backlog",
    }
}

/// Makes an instance of an algorithm: a function, or a closure that lives as long as the program.
pub type Build =
    &'static (dyn Fn(&Spec) -> Result<Box<dyn CongestionControl>, SpecError> + Send + Sync);

/// One entry of a [`Registry`].
#[derive(Clone, Copy)]
pub struct Algorithm {
    /// Name as written in plans.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Papers and RFCs.
    pub sources: &'static [&'static str],
    /// Parameters that a specification may set.
    pub params: &'static [&'static dyn Parameter],
    /// Fields that the algorithm cannot do without. It uses all other fields where they are known.
    pub needs: &'static [Field],
    /// Smallest window it ever sets, in segments.
    pub min_window_mss: f64,
    /// Largest move of the mean window (a share of it) when the algorithm is fed once a round trip or every
    /// 10 ms, compared with once a packet. It is at most 0.05 without a reason in its file, never above 0.2.
    pub batch_tolerance: f64,
    /// Builds an instance; refuses parameters out of range. Called by [`Algorithm::build()`] alone.
    pub build: Build,
}

/// Parameters that algorithms once had, and their replacements.
const RETIRED: [(&str, &str); 1] = [(
    "competes",
    "no value: set `supervised = false` in the bundle to keep its limits at any cost",
)];

impl Algorithm {
    /// Builds an instance with the parameters in `spec`.
    ///
    /// # Errors
    ///
    /// A parameter is not one of the algorithm's, or out of range.
    pub fn build(&self, spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
        spec.check_names(self.params).map_err(|error| {
            match RETIRED.iter().find(|(key, _)| *key == error.key) {
                Some((_, allowed)) => SpecError { allowed: (*allowed).into(), ..error },
                None => error,
            }
        })?;
        (self.build)(spec)
    }
}

impl core::fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name)
    }
}

/// Builds the algorithm of [`Registry::BUILTIN`] that `spec` names, for a host that fills the fields of
/// `supplied`.
///
/// # Errors
///
/// As [`Registry::build`].
pub fn build(spec: &Spec, supplied: &[Field]) -> Result<Box<dyn CongestionControl>, SpecError> {
    Registry::BUILTIN.build(spec, supplied)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limits and state after a slow start and a loss.
    fn run(cc: &mut dyn CongestionControl) -> (SendLimits, State) {
        let (mss, rtt) = (ByteCount::new(1448), Duration::from_millis(20));
        cc.init(Timestamp::ZERO, mss, mss * 10);
        for round in 1..=40 {
            let now = Timestamp::ZERO + rtt * round;
            if round == 30 {
                cc.on_event(now, CongestionEvent::Loss);
            }
            let acked = mss * 10;
            let rtt = Some(RttSample { latest: rtt, min: rtt });
            cc.on_measurement(now, &Measurement { acked, rtt, ..Measurement::default() });
        }
        (cc.send_limits(), cc.state())
    }

    #[test]
    fn copy_behaves_like_the_original() {
        let mut copies = 0;
        for algorithm in ALGORITHMS {
            let build = || algorithm.build(&Spec::named(algorithm.name)).ok();
            let (Some(mut built), Some(original)) = (build(), build()) else { continue };
            let Some(mut copy) = original.copied() else { continue };
            let before = original.state();
            assert_eq!(run(&mut *copy), run(&mut *built), "{}", algorithm.name);
            assert_eq!(original.state(), before, "{}: only the copy has run", algorithm.name);
            copies += 1;
        }
        assert!(copies >= 8, "{copies} algorithms can be copied");
    }
}
