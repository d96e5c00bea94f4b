//! The numbers that tune the control of a bundle: each with a default, a range, a unit and a source.
//!
//! A number stands here if another value would be right too, and once: what several parts judge by is one number. What
//! protects memory, what bounds hostile input or a fault, and what is a fact of frames and clocks are constants where they
//! are used.
//!
//! Boxes run with the defaults. A plan may set each number of a bundle (`tuning = { supervisor_keep = 0.95 }`), which is
//! how their effect is measured.

use crate::spec::{Param, Parameter, Quantity, Spec, SpecError};
use crate::units::{Duration, Rate};

/// A default, and the least and greatest value that are allowed.
#[derive(Clone, Copy)]
struct Number<T> {
    default: T,
    least: T,
    greatest: T,
}

impl<T: Quantity> Number<T> {
    const fn param(self, name: &'static str, summary: &'static str) -> Param<T> {
        Param::new(name, summary).or(self.default).within(self.least..=self.greatest)
    }
}

/// How far from its default a number may be set: by this factor. A share stays between 0 and 1.
const REACH: u32 = 10;

/// A part of a whole.
const fn share(default: f64) -> Number<f64> {
    let Number { least, greatest, .. } = factor(default);
    Number { default, least, greatest: if greatest < 1.0 { greatest } else { 0.999 } }
}

/// A multiple of something.
const fn factor(default: f64) -> Number<f64> {
    let (least, greatest) = (default / REACH as f64, default * REACH as f64);
    Number { default, least: rounded(least), greatest: rounded(greatest) }
}

/// `value` to nine decimals: 0.7 / 10 is 0.06999999999999999, which no reader would write.
const fn rounded(value: f64) -> f64 {
    (value * 1e9 + 0.5) as u64 as f64 / 1e9
}

/// How many of something, at least one.
const fn count(default: u32) -> Number<u32> {
    let least = if default > REACH { default / REACH } else { 1 };
    Number { default, least, greatest: default * REACH }
}

const fn time(default: Duration) -> Number<Duration> {
    let nanos = default.as_nanos() as u64;
    let [least, greatest] = [nanos / REACH as u64, nanos * REACH as u64];
    Number { default, least: Duration::from_nanos(least), greatest: Duration::from_nanos(greatest) }
}

const fn rate(default: Rate) -> Number<Rate> {
    let bits = default.as_bits_per_sec();
    let [least, greatest] = [bits / REACH as u64, bits * REACH as u64];
    Number {
        default,
        least: Rate::from_bits_per_sec(least),
        greatest: Rate::from_bits_per_sec(greatest),
    }
}

/// Declares [`Tuning`] from groups of numbers, each `name: type = kind(default);` below its documentation.
macro_rules! tuning {
    ($(
        $group:literal, $source:literal {
            $($(#[doc = $doc:literal])+ $name:ident: $type:ty = $number:expr;)+
        }
    )+) => {
        /// The numbers that tune the control of a bundle.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
        pub struct Tuning {
            $($(
                $(#[doc = $doc])+
                #[doc = concat!("\n\nSource: ", $source, ".")]
                pub $name: $type,
            )+)+
        }

        impl Tuning {
            /// What boxes run with.
            pub const DEFAULT: Self = Self { $($($name: $number.default,)+)+ };

            /// Each number as a parameter of a plan.
            pub const PARAMS: &'static [&'static dyn Parameter] = &[$($(
                &$number.param(stringify!($name), concat!($($doc),+)),
            )+)+];

            /// What each group of numbers is for, its source, and the names of its numbers.
            pub const GROUPS: &'static [(&'static str, &'static str, &'static [&'static str])] =
                &[$(($group, $source, &[$(stringify!($name)),+])),+];

            /// The numbers that `spec` has, and the defaults of the others.
            ///
            /// # Errors
            ///
            /// A name is not one of [`Tuning::PARAMS`], or a value is not allowed.
            pub fn of(spec: &Spec) -> Result<Self, SpecError> {
                spec.check_names(Self::PARAMS)?;
                Ok(Self { $($($name: $number.param(stringify!($name), "").of(spec)?,)+)+ })
            }
        }
    };
}

impl Tuning {
    /// Gap between reports from which clocks may have drifted unnoticed, and the longest drain for a clock in doubt.
    pub fn pause(&self) -> Duration {
        self.waited_max / 3
    }

    /// Memory of what outlasts queues: the least round trip of all, in which no clock has a part.
    pub fn long_memory(&self) -> Duration {
        self.feedback_memory * self.persistent
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self::DEFAULT
    }
}

tuning! {
    "Rate of the shaper", "this project's simulations; the controller is in `control/rate.rs`" {
        /// Shortest time in which the rate brings the bytes in flight to the window. It is longer
        /// than a tick.
        rate_time_min: Duration = time(Duration::from_millis(4));
        /// Lowest rate over the bottleneck rate. At this rate enough boundaries still pass to show
        /// that the queue drains.
        rate_floor: f64 = share(0.1);
        /// Highest rate over the bottleneck rate; the excess finds new capacity. Under limits it
        /// also bounds the bytes on the path, over their mean without limits.
        rate_ceiling: f64 = factor(1.25);
        /// Upper bound of the default `min_rate`: one full frame in 10 ms. At lower rates
        /// boundaries and reports are rare, so a raised rate takes effect late.
        rate_min: Rate = rate(Rate::from_bits_per_sec(1_200_000));
        /// Default `min_rate` over the rate that the path has carried, if that is less than
        /// `rate_min`.
        rate_min_share: f64 = share(0.25);
    }
    "Supervisor", "docs/internals/decisions/shape-only-while-it-pays.md" {
        /// Share of the reference rate that a bundle under limits must deliver.
        supervisor_keep: f64 = share(0.97);
        /// A box that has a backlog for a smaller share of the time is idle at times: its hosts
        /// have no more to send.
        supervisor_busy: f64 = share(0.9);
        /// Ratio from which one delay counts as longer than another. If hosts have no more to send,
        /// a longer mean delay of all packets than without limits ends shaping. Noise that is
        /// longer than before gives the algorithm another chance.
        supervisor_longer: f64 = factor(1.2);
        /// Deficit that ends shaping on a path without variance, in time at the reference rate.
        supervisor_budget: Duration = time(Duration::from_millis(250));
        /// Length of a block: the shortest time over which rates and delays are averaged. A trial
        /// is twice as long.
        supervisor_block: Duration = time(Duration::from_secs(1));
        /// Shortest block in loop times.
        supervisor_block_loops: f64 = factor(5.0);
        /// Loop times after a change of limits that are not judged. A rate that stays the same for
        /// a shorter time shows nothing.
        supervisor_settle_loops: f64 = factor(3.0);
        /// Fewer waits per second than this get less weight: most of a bundle of bulk flows is not
        /// sparse.
        supervisor_waits: f64 = factor(10.0);
        /// Blocks in the mean delay that ends shaping.
        supervisor_delay_blocks: u32 = count(10);
        /// Blocks that are kept. They bound the time of a mean.
        supervisor_blocks: u32 = count(25);
        /// A queue is standing if its delay stays above this for a block.
        supervisor_standing: Duration = time(Duration::from_millis(4));
        /// Rates within this share over `capacity_time` are constant: the link serves the bundle
        /// alone.
        supervisor_constant: f64 = share(0.015);
        /// Rates within this share are the same: within one trial, and before and during a drain.
        supervisor_same: f64 = share(0.05);
        /// Share of the excess delay that a trial must remove.
        supervisor_gain: f64 = share(0.33);
        /// Shortest back-off, and memory of the minimum round trip: within this time a drain shows
        /// the minimum again.
        supervisor_back_off: Duration = time(Duration::from_secs(120));
        /// Growth of the back-off with each failed trial, and ratio of the longest to the shortest
        /// back-off.
        supervisor_back_off_growth: f64 = factor(4.0);
        /// Drains that need not wait for the back-off begin at multiples of this time of the day.
        supervisor_grid: Duration = time(Duration::from_secs(20));
        /// Shortest time between such drains in minimum round trips. A back-off takes twice as
        /// many.
        supervisor_grid_round_trips: f64 = factor(50.0);
        /// Rate over the reference while a queue is drained at the start of a trial.
        supervisor_drain: f64 = share(0.87);
        /// The reference rises by this share of a block's delivery above it, because the bundle
        /// would deliver as much without limits.
        supervisor_rise: f64 = share(0.25);
    }
    "Thresholds shared by several parts of control", "this project's simulations and runs between namespaces" {
        /// A shorter delay, or a smaller difference between two delays, is noise of receive queues
        /// and processors.
        delay_noise: Duration = time(Duration::from_millis(1));
        /// Rates within this share of each other are near. Limits keep the rate near the reference
        /// while less is on the path than without limits. The box also releases its backlog near
        /// the reference. A drain probes, and an epoch keeps its size, while rates stay near. A
        /// test needs a rate that is not near.
        rates_near: f64 = share(0.1);
        /// Time over which the capacity of a path counts as unchanged. If a rate is constant for
        /// this time, the link serves the bundle alone. The path can still carry the rate that
        /// arrived within this time.
        capacity_time: Duration = time(Duration::from_secs(5));
        /// Multiples of the usual deviation that chance does not exceed. They apply to the deficit,
        /// to a missing share, and to the clock's stretches, measured from the line below them.
        chance_deviations: f64 = factor(3.0);
        /// Multiples of the deviation where a wrong decision lasts: between both outcomes of a
        /// test, and between the minimum delays of successive loop times. The median difference of
        /// these delays is about one deviation.
        sure_deviations: f64 = factor(4.0);
        /// Time within which a sending bundle has reports. Control judges the reports of one such
        /// time together: a stretch of the clock, a round of a share, the order. Reports are
        /// missing after this time or two loop times, whichever is longer. A slow bundle may cause
        /// one report in this time. An open epoch gets a smaller size after this time or two
        /// minimum round trips, whichever is longer.
        reports_time: Duration = time(Duration::from_millis(100));
        /// Number of values that show the usual level. They are return delays (minimum, lateness,
        /// drift after a pause) and differences of minimum delays (noise). With fewer return
        /// delays, every better one counts at once.
        usual_count: u32 = count(32);
        /// Fewer full packets in a round, or fewer boundaries in the window of the order, show no
        /// share.
        share_packets: f64 = factor(20.0);
        /// Fewer reports show no rate, no round trip and no stretch of the clock. Fewer stretches
        /// show no slew and no drift. At most twice as many stretches form the level before a step.
        /// Fewer differences of delays show no noise.
        reports_few: u32 = count(4);
        /// Time after which control forgets an imbalance, an excess or the result of a test. The
        /// next one then counts as new. No hold and no rest is longer.
        calm: Duration = time(Duration::from_secs(60));
        /// Repetitions that make a condition persistent. They count parts of the window with
        /// imbalance, rounds with surplus bytes, rounds before a test, and results of tests. For
        /// the clock they count doubts, and stretches on either side of a step. The long memory is
        /// this many memories long.
        persistent: u32 = count(3);
        /// First time without limits after an imbalance, a test, or a share that cannot be tested.
        /// It doubles each time up to `calm`, and starts from here again after that time.
        rest: Duration = time(Duration::from_secs(5));
        /// Least lateness of boxes. A smaller difference shows nothing: no congestion in a mean
        /// queue, no queue in round trips, no continuing drain, and no base that is too short.
        boxes_late: Duration = time(Duration::from_micros(250));
    }
    "Missing reports", "docs/operate/failures.md" {
        /// Time that control waits for evidence. Without reports it then gives up, because a frozen
        /// rate ignores changes of the path. While no round trip is known, it waits this long for
        /// the report of a boundary. It waits as long for proof that the clock changed the return
        /// delay, and for the end of a test, a drain or a suspicion. Doubts are this far apart. In
        /// a longer pause, clock drift becomes noticeable.
        waited_max: Duration = time(Duration::from_secs(3));
        /// Number of boundaries without a report, and of loop times without one, that control waits
        /// for. If half of the reports are lost, the chance of this is one in a thousand. After as
        /// many loop times a boundary is no longer reported, and a test or a drain ends.
        waited_count: u32 = count(10);
        /// Age after which a boundary is no longer reported. A later packet with the same hash is a
        /// new boundary. The age is far above the delay that a queue adds while packets leave.
        reports_age: Duration = time(Duration::from_millis(500));
    }
    "Epochs", "EuroSys'21 \"Site-to-site internet traffic control\", section 5.1, and the budget of reports in `path/epoch.rs`" {
        /// Reports per second that a bundle may cause. It may request half a second's reports at
        /// once.
        epoch_reports: f64 = factor(200.0);
        /// Share of the bundle's bytes that its reports may use.
        epoch_byte_share: f64 = share(0.01);
        /// Reports beyond the credit after which the size is raised at once.
        epoch_debt: f64 = factor(10.0);
        /// Time constant of the traffic estimate and of the usual rate. It is long compared with a
        /// burst and short compared with a load change.
        epoch_traffic_time: Duration = time(Duration::from_millis(500));
    }
    "Round trips, rates and losses", "this project's simulations and runs between namespaces" {
        /// Time constant of the mean delivery rate in loop times. With an empty queue the delivery
        /// rate equals the send rate of a loop time ago. A correction by its latest value would
        /// feed that back.
        feedback_mean_loops: f64 = factor(2.0);
        /// Share of lost bytes that shows a full buffer rather than random loss.
        feedback_overflow: f64 = share(0.05);
        /// Shortest span of a rate and of a minimum round trip. Stamps that are 0.2 ms late then
        /// cost 1 %.
        feedback_span: Duration = time(Duration::from_millis(20));
        /// Memory of the minimum return delay, of the minimum round trip, of the receivebox's clock
        /// and of alarms. It is longer than most queues last. Clocks may drift by `delay_noise` in
        /// this time, twice the drift of ordinary quartz. Control ignores slower drift.
        feedback_memory: Duration = time(Duration::from_secs(10));
        /// Change of the minimum return delay from one report to the next that needs no
        /// confirmation.
        feedback_sudden: Duration = time(Duration::from_millis(5));
        /// Share of the mean lateness by which the earliest report may itself be late.
        feedback_late_share: f64 = share(0.1);
        /// Share of the mean lateness while nothing speaks against the clock. Late stamps look like
        /// early reports.
        feedback_late_quiet: f64 = factor(1.5);
    }
    "The receivebox's clock", "Moon, Skelly and Towsley, INFOCOM 1999, and this project's runs with clocks that are stepped and slewed" {
        /// Least movement of either one-way delay in a short window, over the mean distance of its
        /// stretches above the line. In the shortest window it is the movement over `delay_noise`.
        clock_straight: f64 = factor(10.0);
        /// Least ratio of slopes, forward over return, that may be one drift.
        clock_same_drift_min: f64 = share(0.6);
        /// Largest ratio of slopes, forward over return, that may be one drift. A draining queue
        /// adds to the ratio.
        clock_same_drift_max: f64 = factor(2.5);
        /// Changes that differ by at most this share are the same. So are slopes in a short window,
        /// because the queues of both directions may move oppositely by chance. In longer windows a
        /// part this small may belong to the change.
        clock_part: f64 = share(0.25);
    }
    "Order of packets", "EuroSys'21 \"Site-to-site internet traffic control\", section 7.6; docs/internals/decisions/several-paths-show-in-the-order.md" {
        /// Time for which matched boundaries are remembered. It consists of twice `persistent`
        /// parts.
        order_window: Duration = time(Duration::from_secs(4));
        /// Share of late boundaries above which the paths are imbalanced. Below half of it they are
        /// balanced again.
        order_imbalanced: f64 = share(0.05);
    }
    "Traffic unseen by the receivebox", "docs/internals/decisions/unseen-shares-are-tested-early.md" {
        /// Unexplained loss (or surplus) above this share counts as an excess, which can trigger a
        /// rate test.
        unseen_excess: f64 = share(0.04);
        /// Evidence that triggers a test; a round with an excess adds 1. While no rate is enforced,
        /// twice as much is needed, because a slow start loses its overshoot in fewer rounds.
        unseen_evidence: f64 = factor(4.0);
        /// Evidence that a round without an excess removes. The rest stays, so pulses add up too.
        unseen_evidence_decay: f64 = share(0.5);
        /// Rate of the test over the rate that the path would carry if it were congested.
        unseen_test_share: f64 = share(0.8);
        /// Least rate of the test over the rate before it.
        unseen_test_share_min: f64 = share(0.7);
        /// Missing share above which the rate is held at the highest rate that arrived within
        /// `capacity_time`, because the path carries that rate. Without a queue any excess holds
        /// the rate: traffic must not pay for unexplained loss.
        unseen_hold: f64 = share(0.2);
        /// Share above which too little is seen. If control newly finds this much unseen, it
        /// forgets what it has learnt. If more is missing, or if there is no queue, the rate stays
        /// until the test begins: a loop at its floor cannot be tested.
        unseen_lost: f64 = share(0.4);
        /// A shorter queueing delay, or one below a quarter of the round trip, shows no queue that
        /// loses packets.
        unseen_queued: Duration = time(Duration::from_millis(5));
        /// A longer mean queue in packets, at the rate that the path has carried, shows congestion.
        /// A buffer with such loss is nearly full, and small packets shorten a minimum round trip
        /// by one packet.
        unseen_congested_packets: f64 = factor(3.0);
        /// Share of the difference to a round's result that the estimate takes over.
        unseen_gain: f64 = share(0.05);
        /// A smaller missing or unseen share counts as none. Chance alone makes at least as much of
        /// either outcome of a test.
        unseen_negligible: f64 = share(0.01);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Value;

    #[test]
    fn numbers_of_a_plan_replace_their_defaults_alone() {
        assert_eq!(Tuning::of(&Spec::named("tuning")), Ok(Tuning::DEFAULT));
        let spec = Spec::named("tuning")
            .with("supervisor_keep", Value::Float(0.9))
            .with("rest", Value::Text("2s".into()));
        let rest = Duration::from_secs(2);
        let set = Tuning { supervisor_keep: 0.9, rest, ..Tuning::DEFAULT };
        assert_eq!(Tuning::of(&spec), Ok(set));
    }

    #[test]
    fn wrong_names_and_values_are_refused() {
        for (name, value, part) in [
            ("supervisor_kept", Value::Float(0.9), "supervisor_keep"),
            ("supervisor_keep", Value::Float(1.0), " to 0.999"),
            ("supervisor_blocks", Value::Integer(0), "2 to 250"),
            ("rest", Value::Integer(2), "a duration, 500ms to 50s"),
        ] {
            let error = Tuning::of(&Spec::named("tuning").with(name, value)).unwrap_err();
            assert!(error.allowed.contains(part), "{error}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut spec = Spec::named("tuning");
        for param in Tuning::PARAMS {
            let default = param.written_default().expect("each has a default");
            spec = spec.with(param.name(), Value::Text(default));
        }
        assert_eq!(Tuning::of(&spec), Ok(Tuning::DEFAULT));
        assert_eq!(spec.params.len(), Tuning::PARAMS.len(), "no name twice");
    }
}
