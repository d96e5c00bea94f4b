//! The rules of [`CongestionControl`] and of the sendbox around it.
//!
//! - Any measurement, with any optional field unknown: no panic, a window of at least the registry's minimum,
//!   finite numbers.
//! - Fed once a packet, once a round trip or every 10 ms, the same algorithm keeps nearly the same window.
//!   Every field that it does not need is unknown.
//! - Parameters that are unknown or out of range are refused.
//!
//! [`conform`] checks all of this for one algorithm, from any crate.

mod feeding;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use self::feeding::PATH_RTT;
pub use self::feeding::{Feeding, mean_window};
use crate::bundle::control::{Control, Peer};
use crate::bundle::sendbox::SendboxConfig;
use crate::bundle::{BoundaryMark, DepartureCounters, EpochSize, Report};
use crate::cc::{Algorithm, CongestionControl, CongestionEvent, Measurement, RttSample};
use crate::qdisc::Backlog;
use crate::spec::{Spec, Value};
use crate::units::{ByteCount, Duration, Rate, Ratio, Timestamp};

/// Segment size of the tests: a full frame (bytes).
const MSS: ByteCount = ByteCount::new(1514);

/// One call of an algorithm.
#[expect(clippy::large_enum_variant, reason = "most operations are measurements")]
#[derive(Clone, Debug)]
pub enum Operation {
    /// Time passes, then this is measured.
    Measure(Duration, Measurement),
    /// This happens.
    Event(CongestionEvent),
    /// Time passes, then the timer is served if it is due.
    Timer(Duration),
}

/// An algorithm under test.
pub struct Model {
    algorithm: &'static Algorithm,
    cc: Box<dyn CongestionControl>,
    now: Timestamp,
}

impl Model {
    /// The algorithm with its defaults, started.
    pub fn new(algorithm: &'static Algorithm) -> Self {
        Self::with(algorithm, &Spec::named(algorithm.name))
    }

    /// The algorithm with every switch turned that is off by default, started.
    pub fn switched(algorithm: &'static Algorithm) -> Self {
        let switches = algorithm
            .params
            .iter()
            .filter(|param| param.written_default().as_deref() == Some("false"));
        let spec = switches.fold(Spec::named(algorithm.name), |spec, switch| {
            spec.with(switch.name(), Value::Bool(true))
        });
        Self::with(algorithm, &spec)
    }

    fn with(algorithm: &'static Algorithm, spec: &Spec) -> Self {
        let mut cc = algorithm.build(spec).expect("defaults and switches are valid");
        cc.set_seed(1);
        let now = Timestamp::from_nanos(5_000_000_000);
        cc.init(now, MSS, MSS * 10);
        Self { algorithm, cc, now }
    }

    /// Applies one call and checks the rules.
    pub fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Measure(elapsed, measurement) => {
                self.now += *elapsed;
                self.cc.on_measurement(self.now, measurement);
            }
            Operation::Event(event) => self.cc.on_event(self.now, *event),
            Operation::Timer(elapsed) => {
                self.now += *elapsed;
                if self.cc.next_timer().is_some_and(|at| at <= self.now) {
                    self.cc.on_timer(self.now);
                }
            }
        }
        self.check();
    }

    fn check(&self) {
        let name = self.algorithm.name;
        let limits = self.cc.send_limits();
        if let Some(cwnd) = limits.cwnd {
            let least = self.algorithm.min_window_mss * MSS.as_f64();
            assert!(cwnd.as_f64() >= least - 1.0, "{name}: window of {cwnd}");
        }
        let state = self.cc.state();
        for (number, value) in state.numbers {
            assert!(value.is_finite(), "{name}: {number} = {value}");
        }
        assert!(!state.phase.is_empty(), "{name}: no phase");
    }
}

fn bytes() -> impl Strategy<Value = ByteCount> {
    prop_oneof![0u64..100_000, Just(0), Just(u64::MAX), any::<u64>()].prop_map(ByteCount::new)
}

fn rates() -> impl Strategy<Value = Rate> {
    prop_oneof![1_000_000u64..1_000_000_000, Just(0), Just(u64::MAX), any::<u64>()]
        .prop_map(Rate::from_bits_per_sec)
}

fn durations() -> impl Strategy<Value = Duration> {
    prop_oneof![0u64..200_000_000, Just(0), Just(u64::MAX / 4), any::<u64>()]
        .prop_map(Duration::from_nanos)
}

fn shares() -> impl Strategy<Value = Ratio> {
    (0.0..=1.0).prop_map(|share| Ratio::new(share).expect("a share"))
}

prop_compose! {
    fn measurements()(
        (interval, acked, lost) in (durations(), bytes(), prop::option::of(bytes())),
        rtt in prop::option::of((durations(), durations())),
        (feedback_delay, one_way) in
            (prop::option::of(durations()), prop::option::of(durations())),
        (send_rate, delivery_rate, train_rate) in (
            prop::option::of(rates()),
            prop::option::weighted(0.8, rates()),
            prop::option::of(rates()),
        ),
        in_flight in prop::option::of(bytes()),
        (delivered, prior_delivered, lost_prior_delivered) in
            (bytes(), bytes(), prop::option::of(bytes())),
        (app_limited, cwnd_limited, idle) in (
            any::<bool>(),
            prop::option::weighted(0.2, any::<bool>()),
            prop::option::of(shares()),
        ),
        (ecn_ce, ect1, backlog) in
            (prop::option::of(bytes()), prop::option::of(bytes()), prop::option::of(bytes())),
    ) -> Measurement {
        Measurement {
            interval, acked, lost, feedback_delay, send_rate, delivery_rate, train_rate,
            in_flight, delivered, prior_delivered, lost_prior_delivered, app_limited,
            cwnd_limited, idle, ecn_ce, ect1, one_way, backlog,
            rtt: rtt.map(|(latest, min)| RttSample { latest, min }),
        }
    }
}

fn events() -> impl Strategy<Value = CongestionEvent> {
    prop_oneof![
        Just(CongestionEvent::Loss),
        Just(CongestionEvent::RecoveryEnd),
        Just(CongestionEvent::Rto),
        Just(CongestionEvent::Spurious),
        Just(CongestionEvent::EcnCe),
        any::<u32>().prop_map(CongestionEvent::IdleRestart),
        durations().prop_map(CongestionEvent::Resume),
        bytes().prop_map(CongestionEvent::Underused),
        bytes().prop_map(CongestionEvent::SlowStartEnd),
        Just(CongestionEvent::FeedbackLost),
        Just(CongestionEvent::Unenforced),
        Just(CongestionEvent::Enforced),
        durations().prop_map(CongestionEvent::DelayNoise),
        any::<i64>().prop_map(CongestionEvent::RttShift),
        (-50_000_000i64..50_000_000).prop_map(CongestionEvent::RttShift),
    ]
}

/// Sequences of calls, sensible and senseless ones.
pub fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let steps = || (0u64..50_000_000).prop_map(Duration::from_nanos);
    let operation = prop_oneof![
        8 => (steps(), measurements()).prop_map(|(at, what)| Operation::Measure(at, what)),
        4 => (steps(), sane()).prop_map(|(at, what)| Operation::Measure(at, what)),
        1 => events().prop_map(Operation::Event),
        1 => steps().prop_map(Operation::Timer),
    ];
    prop::collection::vec(operation, 1..200)
}

prop_compose! {
    /// Measurements of a path of 50 ms with a queue: they get an algorithm past its first phase.
    fn sane()(
        rtt_us in 50_000u64..90_000,
        mbit in 80u64..100,
        in_flight in 100_000u64..2_000_000,
    ) -> Measurement {
        let rtt = Duration::from_micros(rtt_us);
        Measurement {
            interval: Duration::from_millis(5),
            acked: ByteCount::new(60_000),
            rtt: Some(RttSample { latest: rtt, min: rtt }),
            delivery_rate: Some(Rate::from_mbit_per_sec(mbit)),
            in_flight: Some(ByteCount::new(in_flight)),
            ..Measurement::default()
        }
    }
}

/// One call of a sendbox.
#[derive(Clone, Debug)]
pub enum SendboxOperation {
    /// A packet with this hash leaves.
    Depart(u64),
    /// A report of the boundary that left this many before arrives, with these claims.
    Report(usize, Report),
    /// Time passes, then the tick, with this many packets in the queue.
    Tick(Duration, u64),
    /// The host's judgement of the receivebox changes.
    Peer(Peer),
}

/// Sequences of calls of a sendbox, reports of hostile content among them.
pub fn sendbox_operations() -> impl Strategy<Value = Vec<SendboxOperation>> {
    let report = (any::<u64>(), bytes(), any::<u64>(), any::<u64>(), 0u8..=20).prop_map(
        |(received_ns, received_bytes, received_packets, received_ce, log2)| Report {
            hash: 0,
            received_at: Timestamp::from_nanos(received_ns),
            received_bytes,
            received_packets,
            received_ce,
            epoch_size: EpochSize::from_log2(log2).expect("at most 20"),
        },
    );
    let operation = prop_oneof![
        8 => any::<u64>().prop_map(|hash| SendboxOperation::Depart(hash << 20)),
        4 => (0usize..20, report).prop_map(|(age, report)| SendboxOperation::Report(age, report)),
        2 => (0u64..200_000_000, 0u64..3)
            .prop_map(|(ns, packets)| SendboxOperation::Tick(Duration::from_nanos(ns), packets)),
        1 => prop_oneof![Just(Peer::Alive), Just(Peer::Silent), Just(Peer::Restarted)]
            .prop_map(SendboxOperation::Peer),
    ];
    prop::collection::vec(operation, 1..300)
}

/// A sendbox under test: with any reports, its rate stays within the configured bounds.
pub struct SendboxModel {
    control: Control,
    departed: DepartureCounters,
    config: SendboxConfig,
    now: Timestamp,
    boundaries: Vec<u64>,
}

impl SendboxModel {
    /// A sendbox steered by `algorithm`, which enforces its limits only while they pay if it is `supervised`.
    pub fn new(algorithm: &'static Algorithm, supervised: bool) -> Self {
        let cc = algorithm.build(&Spec::named(algorithm.name)).expect("defaults are valid");
        let config = SendboxConfig {
            min_rate: Some(Rate::from_mbit_per_sec(1)),
            max_rate: Some(Rate::from_mbit_per_sec(500)),
            dry_run: false,
            supervised,
            time_of_day: Duration::ZERO,
            seed: 1,
            ..SendboxConfig::default()
        };
        let now = Timestamp::from_nanos(1_000_000_000);
        Self {
            control: Control::new(config.clone(), cc),
            departed: DepartureCounters::default(),
            config,
            now,
            boundaries: Vec::new(),
        }
    }

    /// Applies one call and checks the rules.
    pub fn apply(&mut self, operation: &SendboxOperation) {
        match operation {
            SendboxOperation::Depart(hash) => {
                let mark = Some(BoundaryMark { hash: *hash, identity: *hash });
                if self.control.on_departures(&self.departed.count(self.now, MSS, mark)) {
                    self.boundaries.push(*hash);
                }
            }
            SendboxOperation::Report(age, report) => {
                let at = self.boundaries.len().checked_sub(age + 1);
                let hash = at.map_or(report.hash, |at| self.boundaries[at]);
                let epoch = self.control.on_report(self.now, &Report { hash, ..*report });
                if let Some(epoch) = epoch {
                    assert_eq!(epoch.identity, hash);
                    assert!(epoch.rtt > Duration::ZERO);
                }
            }
            SendboxOperation::Tick(elapsed, packets) => {
                self.now += *elapsed;
                let backlog = Backlog { packets: *packets, bytes: MSS * *packets };
                self.control.on_tick(self.now, backlog);
                assert!(self.control.next_timer() > self.now);
            }
            SendboxOperation::Peer(peer) => self.control.on_peer(self.now, *peer),
        }
        let rate = self.control.rate().expect("a configured maximum always holds");
        assert!(self.config.min_rate <= Some(rate) && Some(rate) <= self.config.max_rate);
        let counters = self.control.counters();
        assert!(counters.boundaries_matched <= counters.packets_sent);
        assert!(!self.control.decision().state.is_empty());
    }
}

/// Cases that each property is tried with.
const CASES: u32 = 128;
/// Largest [`Algorithm::batch_tolerance`], a share of the mean window.
const TOLERANCE_MAX: f64 = 0.2;

/// Name of a rule, and the function that checks it for an algorithm: it panics where the rule is broken.
pub type Rule = (&'static str, fn(&'static Algorithm));

/// Every rule of this module.
pub const RULES: [Rule; 4] = [
    ("keeps_a_valid_window", |algorithm| {
        always(&operations(), |operations| keeps_a_window(algorithm, operations));
    }),
    ("keeps_a_sendbox_within_its_bounds", |algorithm| {
        always(&sendbox_operations(), |operations| keeps_a_rate(algorithm, operations));
    }),
    ("is_batch_invariant", |algorithm| {
        let moved = moved_by_feeding(algorithm);
        assert!(moved.is_empty(), "{moved:#?}");
    }),
    ("refuses_unknown_parameters", refuses_what_it_does_not_know),
];

/// Checks every rule of this module for `algorithm`, with its defaults and with its switches turned. The
/// tests of a crate with an algorithm of its own call this. Takes about a second with optimisation.
///
/// # Panics
///
/// Where a rule is broken; the message has the smallest sequence of calls that breaks the rule.
pub fn conform(algorithm: &'static Algorithm) {
    RULES.iter().for_each(|(_, rule)| rule(algorithm));
}

/// Applies `rule` to the draws of `strategy`.
fn always<S: Strategy>(strategy: &S, rule: impl Fn(&S::Value)) {
    let config = ProptestConfig {
        cases: CASES,
        // A failure is printed in full, and leaves no file behind.
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let tried = TestRunner::new(config).run(strategy, |drawn| {
        rule(&drawn);
        Ok(())
    });
    if let Err(error) = tried {
        panic!("{error}");
    }
}

fn keeps_a_window(algorithm: &'static Algorithm, operations: &[Operation]) {
    for mut model in [Model::new(algorithm), Model::switched(algorithm)] {
        operations.iter().for_each(|operation| model.apply(operation));
    }
}

fn keeps_a_rate(algorithm: &'static Algorithm, operations: &[SendboxOperation]) {
    for supervised in [false, true] {
        let mut model = SendboxModel::new(algorithm, supervised);
        operations.iter().for_each(|operation| model.apply(operation));
    }
}

/// How far other feeding moves the mean window, where that is beyond the tolerance.
fn moved_by_feeding(algorithm: &'static Algorithm) -> Vec<String> {
    let Algorithm { name, batch_tolerance, .. } = algorithm;
    assert!(*batch_tolerance <= TOLERANCE_MAX, "{name}: {batch_tolerance}");
    let Some(packet) = mean_window(algorithm, Feeding::Packet) else {
        return Vec::new(); // It sets a rate and no window.
    };
    let mut moved = Vec::new();
    for period in [Duration::from_millis(10), PATH_RTT] {
        let batch = mean_window(algorithm, Feeding::Every(period)).expect("as above");
        if (batch / packet - 1.0).abs() > *batch_tolerance {
            moved.push(alloc::format!(
                "{name}: {packet:.1} packets per packet, {batch:.1} every {period:?}"
            ));
        }
    }
    moved
}

fn refuses_what_it_does_not_know(algorithm: &Algorithm) {
    let spec = Spec::named(algorithm.name).with("wrong", Value::Integer(1));
    let error = algorithm.build(&spec).err().expect("refused");
    assert_eq!(error.key, "wrong", "{}", algorithm.name);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::algorithms::{constant, newreno};
    use crate::cc::{ALGORITHMS, SendLimits, State};

    proptest! {
        #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

        #[test]
        fn any_measurements_leave_a_valid_window(operations in operations()) {
            ALGORITHMS.iter().for_each(|algorithm| keeps_a_window(algorithm, &operations));
        }

        #[test]
        fn any_reports_leave_the_rate_within_its_bounds(operations in sendbox_operations()) {
            ALGORITHMS.iter().for_each(|algorithm| keeps_a_rate(algorithm, &operations));
        }
    }

    #[test]
    fn feeding_interval_hardly_moves_the_window() {
        let moved: Vec<String> = ALGORITHMS.iter().flat_map(moved_by_feeding).collect();
        assert!(moved.is_empty(), "{moved:#?}");
    }

    #[test]
    fn unknown_parameters_are_refused_by_every_algorithm() {
        ALGORITHMS.iter().for_each(refuses_what_it_does_not_know);
    }

    /// Closes its window at a timeout.
    struct Closing(bool);

    impl CongestionControl for Closing {
        fn init(&mut self, _now: Timestamp, _mss: ByteCount, _initial_cwnd: ByteCount) {}
        fn on_measurement(&mut self, _now: Timestamp, _measurement: &Measurement) {}
        fn on_event(&mut self, _now: Timestamp, event: CongestionEvent) {
            self.0 |= event == CongestionEvent::Rto;
        }
        fn send_limits(&self) -> SendLimits {
            let cwnd = if self.0 { ByteCount::ZERO } else { MSS * 10 };
            SendLimits { cwnd: Some(cwnd), ..SendLimits::default() }
        }
        fn state(&self) -> State {
            State { phase: "closing", ..State::default() }
        }
    }

    const CLOSING: Algorithm = Algorithm {
        name: "closing",
        build: &|_| Ok(Box::new(Closing(false))),
        ..constant::ALGORITHM
    };

    #[test]
    #[should_panic(expected = "closing: window of ")]
    fn what_breaks_a_rule_does_not_conform() {
        conform(&CLOSING);
    }

    #[test]
    fn what_breaks_none_conforms() {
        conform(&newreno::ALGORITHM);
    }
}
