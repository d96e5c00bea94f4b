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
    let greatest = if default * (REACH as f64) < 1.0 { default * REACH as f64 } else { 0.999 };
    Number { default, least: default / REACH as f64, greatest }
}

/// A multiple of something.
const fn factor(default: f64) -> Number<f64> {
    Number { default, least: default / REACH as f64, greatest: default * REACH as f64 }
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
    "Rate of the shaper", "this project's simulations; the form of the law is in `control/rate.rs`" {
        /// Shortest time in which the window is approached: longer than a tick.
        rate_time_min: Duration = time(Duration::from_millis(4));
        /// Lowest rate as a share of the bottleneck's: enough boundaries still pass to see the queue drain.
        rate_floor: f64 = share(0.1);
        /// How far control goes beyond what the path has shown, to find new capacity: the rate over the bottleneck's,
        /// and under limits the bytes on the path over their mean without limits.
        rate_ceiling: f64 = factor(1.25);
        /// Most of `min_rate` where none is given: one full frame in 10 ms. At lower rates a raised rate takes effect late,
        /// because boundaries, and with them reports, become rare.
        rate_min: Rate = rate(Rate::from_bits_per_sec(1_200_000));
        /// `min_rate` over what the path has carried, where none is given and that is less than `rate_min`.
        rate_min_share: f64 = share(0.25);
    }
    "Supervisor", "docs/internals/decisions/shape-only-while-it-pays.md" {
        /// Share of the reference rate that limits have to deliver.
        supervisor_keep: f64 = share(0.97);
        /// A box with a backlog in less of the time is idle at times: its hosts have no more to send.
        supervisor_busy: f64 = share(0.9);
        /// Ratio from which one delay is longer than another. A mean delay of all packets that is longer than in
        /// passing ends shaping, where hosts have no more to send. Noise that is longer than before gives the algorithm
        /// another chance.
        supervisor_longer: f64 = factor(1.2);
        /// Deficit that ends shaping on a path without variance, in time of the reference rate.
        supervisor_budget: Duration = time(Duration::from_millis(250));
        /// Shortest time over which rates and delays are averaged. A trial is twice as long.
        supervisor_block: Duration = time(Duration::from_secs(1));
        /// Shortest such time in loop times.
        supervisor_block_loops: f64 = factor(5.0);
        /// Loop times after a change of limits that are not judged. A rate that stays the same for no longer shows
        /// nothing.
        supervisor_settle_loops: f64 = factor(3.0);
        /// Fewer waits a second than this count for less: most of a bundle of bulk flows is not sparse.
        supervisor_waits: f64 = factor(10.0);
        /// Blocks of the mean delay that ends shaping.
        supervisor_delay_blocks: u32 = count(10);
        /// Blocks that are kept, and so the longest time of a mean.
        supervisor_blocks: u32 = count(25);
        /// A queue stands whose delay stays above this for a block.
        supervisor_standing: Duration = time(Duration::from_millis(4));
        /// Rates within this share over `capacity_time` are the same: of a link that serves the bundle alone.
        supervisor_constant: f64 = share(0.015);
        /// Rates within this share are the same: those of one trial, and those before and in a drain.
        supervisor_same: f64 = share(0.05);
        /// Share of the excess delay that a trial has to take away.
        supervisor_gain: f64 = share(0.33);
        /// Shortest back-off, and memory of the least round trip: within it a drain shows that one again.
        supervisor_back_off: Duration = time(Duration::from_secs(120));
        /// Growth of the back-off with a trial that failed, and its longest over its shortest.
        supervisor_back_off_growth: f64 = factor(4.0);
        /// Drains that need not wait for the back-off begin at multiples of this time of the day.
        supervisor_grid: Duration = time(Duration::from_secs(20));
        /// Shortest time between such drains in least round trips; a back-off takes twice as many.
        supervisor_grid_round_trips: f64 = factor(50.0);
        /// Rate while a queue is drained at the start of a trial, over the reference.
        supervisor_drain: f64 = share(0.87);
        /// Part of what a block delivers above the reference that the reference takes over: passing would give as much.
        supervisor_rise: f64 = share(0.25);
    }
    "What several parts of control judge by", "this project's simulations and runs between namespaces" {
        /// A shorter delay, or a smaller difference of two, is noise: that of receive queues and of processors.
        delay_noise: Duration = time(Duration::from_millis(1));
        /// Rates within this share of each other are near. Limits keep the rate near the reference while less is on the
        /// path than without limits, and the box releases its backlog near the reference. A drain probes, and an epoch
        /// keeps its size, while rates stay near. A test needs a rate that is not near.
        rates_near: f64 = share(0.1);
        /// Time over which the capacity of a path stays the same. A rate that does not change for this time is of a
        /// link that serves the bundle alone. The path still carries what arrived within this time.
        capacity_time: Duration = time(Duration::from_secs(5));
        /// Multiples of the usual deviation that chance does not exceed: of the deficit, of a missing share, and of the
        /// clock's stretches from the line below them.
        chance_deviations: f64 = factor(3.0);
        /// Multiples of it where a wrong decision lasts: between both outcomes of a test, and of the least delays of
        /// successive loop times. The median difference of these is about one deviation.
        sure_deviations: f64 = factor(4.0);
        /// Time within which a bundle that sends has reports. Control judges those of one such time together: a stretch
        /// of the clock, a round of a share, the order. Reports are missing after the longer of this and two loop
        /// times. A slow bundle may cause one report in this time. An open epoch gets a smaller size after the longer
        /// of this and two least round trips.
        reports_time: Duration = time(Duration::from_millis(100));
        /// Values that show what is usual: ways back for the least one and for their lateness, ways back after a pause
        /// for its drift, and differences of least delays for the noise. With fewer ways back every better one counts
        /// at once.
        usual_count: u32 = count(32);
        /// Fewer full packets in a round, or boundaries in the window of the order, say nothing of a share.
        share_packets: f64 = factor(20.0);
        /// Fewer reports show no rate and no round trip, and make no stretch of the clock. Fewer stretches show no slew
        /// and no drift, and no more than twice as many are the level before a step. Fewer differences of delays show
        /// no noise.
        reports_few: u32 = count(4);
        /// Time after which control forgets an imbalance, an excess or the finding of a test, so that the next one is
        /// another one. No hold and no rest is longer: by then nothing is left to hold for.
        calm: Duration = time(Duration::from_secs(60));
        /// Repetitions that make something persistent: parts of the window with imbalance, rounds with too many bytes
        /// or before a test, findings of tests, doubts about the clock, and stretches of the clock on either side of a
        /// step. The long memory is as many memories.
        persistent: u32 = count(3);
        /// First time without limits after an imbalance, a test, or a share that cannot be tested; doubles each time up to
        /// `calm`, and begins again after that.
        rest: Duration = time(Duration::from_secs(5));
        /// How late boxes are, at least. A smaller difference shows nothing: neither congestion in a mean queue, nor a
        /// queue in round trips, nor a drain that goes on, nor a base that is too short.
        boxes_late: Duration = time(Duration::from_micros(250));
    }
    "Missing reports", "docs/operate/failures.md" {
        /// How long control waits for evidence. Without reports it then gives up: a frozen rate knows nothing of a path
        /// that has changed since. It waits as long for the report of a boundary before it knows a round trip, for
        /// proof that a change of the way back was the clock's, for the end of a test, a drain or a suspicion, and
        /// between doubts. In a longer pause clocks drift by more than goes unnoticed.
        waited_max: Duration = time(Duration::from_secs(3));
        /// How much control waits for: boundaries without a report, and loop times without one. If half of the reports
        /// are lost, one chance in a thousand is left. After as many loop times a boundary is not reported any more,
        /// and a test or a drain ends.
        waited_count: u32 = count(10);
        /// A boundary is not reported any more after so long: what has the same hash then is another one. Far above what a
        /// queue adds while packets leave.
        reports_age: Duration = time(Duration::from_millis(500));
    }
    "Epochs", "EuroSys'21 \"Site-to-site internet traffic control\", section 5.1, and the budget of reports in `path/epoch.rs`" {
        /// Reports a second that a bundle may cause; half a second's may be asked for at once.
        epoch_reports: f64 = factor(200.0);
        /// Share of the bundle's bytes that its reports may use.
        epoch_byte_share: f64 = share(0.01);
        /// Reports beyond the credit after which the size is raised at once.
        epoch_debt: f64 = factor(10.0);
        /// Time constant of the traffic estimate, and of the usual rate: long against a burst, short against a load change.
        epoch_traffic_time: Duration = time(Duration::from_millis(500));
    }
    "Round trips, rates and losses", "this project's simulations and runs between namespaces" {
        /// Time constant of the mean delivery rate in loop times. With an empty queue the delivery rate is what was sent a
        /// loop time ago: a correction by its latest value would feed that back.
        feedback_mean_loops: f64 = factor(2.0);
        /// Share of lost bytes that shows a buffer at its end and no mere random loss.
        feedback_overflow: f64 = share(0.05);
        /// Shortest span of a rate, and of a least round trip: stamps that are 0.2 ms late then cost 1 %.
        feedback_span: Duration = time(Duration::from_millis(20));
        /// Memory of the least way back, of the least round trip, of the receivebox's clock and of alarms: longer than
        /// most queues stand. Clocks may drift by `delay_noise` in it, twice what ordinary quartz does. A slower drift
        /// is worth no doubt.
        feedback_memory: Duration = time(Duration::from_secs(10));
        /// A change of the least way back from one report to the next that needs no second look.
        feedback_sudden: Duration = time(Duration::from_millis(5));
        /// Part of the mean lateness by which the least of all may be late.
        feedback_late_share: f64 = share(0.1);
        /// Part of the mean lateness where nothing is known against the clock: late stamps seem to be early reports.
        feedback_late_quiet: f64 = factor(1.5);
    }
    "The receivebox's clock", "Moon, Skelly and Towsley, INFOCOM 1999, and this project's runs with clocks that are put on, back and slewed" {
        /// Least movement of either way in a short window over how far its stretches are above the line on average, and in the
        /// shortest window over `delay_noise`.
        clock_straight: f64 = factor(10.0);
        /// Slopes that may be of one drift, the way forth over the way back, at least.
        clock_same_drift_min: f64 = share(0.6);
        /// Slopes that may be of one drift, the way forth over the way back, at most: a drain of the queue adds to it.
        clock_same_drift_max: f64 = factor(2.5);
        /// Changes that differ by no more than this part are the same, and so are slopes in a short window, in which queues of
        /// both ways may happen to move oppositely. In longer windows so small a part may be some of it.
        clock_part: f64 = share(0.25);
    }
    "Order of packets", "EuroSys'21 \"Site-to-site internet traffic control\", section 7.6; docs/internals/decisions/several-paths-show-in-the-order.md" {
        /// Time for which matched boundaries are remembered. Half of its parts are `persistent`.
        order_window: Duration = time(Duration::from_secs(4));
        /// Share of late boundaries above which the paths are imbalanced. Below half of it they are not any more.
        order_imbalanced: f64 = share(0.05);
    }
    "What the receivebox does not see", "docs/internals/decisions/unseen-shares-are-tested-early.md" {
        /// Missing beyond what is known to be unseen that is put to the test, and the same of bytes too many.
        unseen_excess: f64 = share(0.04);
        /// Evidence that is put to the test: a round with an excess adds 1. Twice as much is needed while no rate is
        /// enforced: what a slow start overshoots by is lost in fewer rounds.
        unseen_evidence: f64 = factor(4.0);
        /// What a round without an excess takes away. So pulses add up, too.
        unseen_evidence_decay: f64 = share(0.5);
        /// Rate of the test over what the path would carry if it were congested.
        unseen_test_share: f64 = share(0.8);
        /// Least rate of the test over the rate before.
        unseen_test_share_min: f64 = share(0.7);
        /// Missing share from which on the rate is held at the most that has arrived within `capacity_time`: the path
        /// carries that, whatever is missing now. Without a queue any excess holds it: until it is known what is missing, what
        /// is there must not pay for it.
        unseen_hold: f64 = share(0.2);
        /// Share from which on too little is seen. If control newly finds so much unseen, it forgets what it has
        /// learnt. If more is missing, the rate stays until the test begins, as it does where there is no queue: a loop
        /// at its floor cannot be tested.
        unseen_lost: f64 = share(0.4);
        /// A shorter queueing delay, or one of less than a quarter of the round trip, is no queue that loses.
        unseen_queued: Duration = time(Duration::from_millis(5));
        /// A mean queue of more packets than this, at the rate that the path has carried, is congestion's: a buffer that loses
        /// so much is nearly full, and small packets make a least round trip shorter by one.
        unseen_congested_packets: f64 = factor(3.0);
        /// How much of the difference to what it shows a round takes over.
        unseen_gain: f64 = share(0.05);
        /// A smaller share is none: missing, or seen. Chance makes at least as much of either outcome of a test.
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
