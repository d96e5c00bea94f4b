use proptest::prelude::*;

use super::graph::{Builder, Operator};
use super::observation::FEATURES;
use super::*;
use crate::cc::algorithms::constant;
use crate::cc::{Algorithm, RttSample};
use crate::spec::Parameter;
use crate::testing::cc::{Model, Operation, SendboxModel, operations, sendbox_operations};
use crate::units::Rate;

const MSS: ByteCount = ByteCount::new(1448);
const RTT: Duration = Duration::from_millis(20);

/// A graph over one row: `weight` times its value `place`, over `below`.
fn graph(place: usize, weight: f32, below: f32) -> Arc<Graph> {
    let (mut builder, input) = Builder::new(&[1, WIDTH]).unwrap();
    let mut weights = [0.0; WIDTH];
    weights[place] = weight;
    let weights = builder.constant(&[WIDTH, 1], &weights).unwrap();
    let product = builder.apply(&Operator::MatMul, &[Some(input), Some(weights)]).unwrap();
    let below = builder.constant(&[1], &[below]).unwrap();
    let action = builder.apply(&Operator::Div, &[Some(product), Some(below)]).unwrap();
    Arc::new(builder.finish(&action).unwrap())
}

/// Place of the number that says whether the in-flight value is known.
const KNOWS_FLIGHT: usize = FEATURES.len() + 5;

fn flow() -> Spec {
    Spec::named("policy").with(FLOW.name, Value::Bool(true))
}

/// A flow with a measurement and a decision each round trip.
struct Path {
    cc: Box<dyn CongestionControl>,
    now: Timestamp,
}

impl Path {
    fn new(graph: &Arc<Graph>, spec: &Spec) -> Self {
        let mut cc = build(graph, spec).unwrap();
        cc.init(Timestamp::ZERO, MSS, MSS * 10);
        Self { cc, now: Timestamp::ZERO }
    }

    /// Passes `round_trips` round trips of `rtt` in which `filled` of the window is delivered and
    /// in flight.
    fn pass(&mut self, round_trips: u32, rtt: Duration, filled: f64) {
        for _ in 0..round_trips {
            self.now += rtt;
            let window = self.cc.send_limits().cwnd.unwrap_or(MSS * 10);
            let acked = ByteCount::new((window.as_f64() * filled) as u64);
            self.cc.on_measurement(
                self.now,
                &Measurement {
                    acked,
                    lost: Some(ByteCount::ZERO),
                    rtt: Some(RttSample { latest: rtt, min: rtt }),
                    delivery_rate: acked.per(rtt),
                    in_flight: Some(acked),
                    ..Measurement::default()
                },
            );
            if self.cc.next_timer().is_some_and(|at| at <= self.now) {
                self.cc.on_timer(self.now);
            }
        }
    }

    fn segments(&self) -> f64 {
        self.cc.send_limits().cwnd.unwrap().as_f64() / MSS.as_f64()
    }
}

#[test]
fn decision_multiplies_the_window_once_per_round_trip() {
    let mut path = Path::new(&graph(KNOWS_FLIGHT, 0.5, 1.0), &flow());
    // The first decision comes after 100 ms.
    path.pass(5, RTT, 1.0);
    assert!((path.segments() / 10.0 - 2.0_f64.sqrt()).abs() < 1e-3, "{}", path.segments());
    path.pass(2, RTT, 1.0);
    assert!((path.segments() / 10.0 - 2.0_f64.powf(1.5)).abs() < 1e-3, "{}", path.segments());
    assert_eq!(path.cc.state().phase, "policy");
}

#[test]
fn an_action_is_at_most_a_doubling() {
    let mut path = Path::new(&graph(KNOWS_FLIGHT, 50.0, 1.0), &flow());
    path.pass(5, RTT, 1.0);
    assert!((path.segments() - 20.0).abs() < 1e-3, "{}", path.segments());
    let mut path = Path::new(&graph(KNOWS_FLIGHT, -50.0, 1.0), &flow());
    path.pass(50, RTT, 1.0);
    assert!((path.segments() - 2.0).abs() < 1e-3, "the least window");
}

#[test]
fn unfilled_window_does_not_grow() {
    let mut path = Path::new(&graph(KNOWS_FLIGHT, 1.0, 1.0), &flow());
    path.pass(50, RTT, 0.4);
    assert!((path.segments() - 10.0).abs() < 1e-3, "{}", path.segments());
}

#[test]
fn a_policy_of_rates_has_a_window_besides() {
    let spec = flow().with("steers", Value::Text("rate".into()));
    let mut path = Path::new(&graph(KNOWS_FLIGHT, 0.0, 1.0), &spec);
    assert_eq!(path.cc.send_limits().pacing_rate, None, "no round trip is known");
    path.pass(5, RTT, 1.0);
    let limits = path.cc.send_limits();
    assert_eq!(limits.cwnd, Some(MSS * 20));
    // Ten segments in 20 ms.
    let bits_per_s = limits.pacing_rate.unwrap().as_bits_per_sec();
    assert!(bits_per_s.abs_diff(10 * 1448 * 8 * 50) <= 1, "{bits_per_s}");
    assert!(build(&graph(0, 0.0, 1.0), &flow().with("steers", Value::Text("x".into()))).is_err());
}

#[test]
fn copa_takes_over_permanently_without_finite_policy_output() {
    let mut path = Path::new(&graph(KNOWS_FLIGHT, 1.0, 0.0), &flow());
    path.pass(5, RTT, 1.0);
    let State { phase, reason, .. } = path.cc.state();
    assert_eq!((phase, reason), ("fallback", "the policy returned no finite number"));
    path.pass(1000, RTT, 1.0);
    assert_eq!(path.cc.state().phase, "fallback");
}

#[test]
fn copa_takes_over_temporarily_on_a_long_queue() {
    let mut path = Path::new(&graph(KNOWS_FLIGHT, 0.0, 1.0), &flow());
    path.pass(10, RTT, 1.0);
    path.pass(4, RTT * 6, 1.0);
    assert_eq!(path.cc.state().phase, "policy", "four decisions are none too many");
    path.pass(3, RTT * 6, 1.0);
    assert_eq!(path.cc.state().phase, "fallback");
    path.pass(600, RTT, 1.0);
    assert_eq!(path.cc.state().phase, "policy");
}

#[test]
fn bundle_has_no_limits_before_first_delivery() {
    let mut path = Path::new(&graph(KNOWS_FLIGHT, 0.0, 1.0), &Spec::named("policy"));
    path.pass(4, RTT, 30.0);
    assert_eq!(path.cc.send_limits(), SendLimits::default());
    path.pass(1, RTT, 30.0);
    // 300 segments a round trip.
    assert!((path.segments() - 300.0).abs() < 1e-3, "{}", path.segments());
}

#[test]
fn row_holds_measurements_and_marks_unknowns() {
    let mut steering = SteeredSender::new(&flow(), 2).unwrap();
    steering.start(Timestamp::ZERO, MSS, MSS * 10);
    let measurement = Measurement {
        acked: MSS * 8,
        lost: Some(MSS * 2),
        rtt: Some(RttSample { latest: RTT * 2, min: RTT }),
        send_rate: Some(Rate::from_mbit_per_sec(4)),
        delivery_rate: Some(Rate::from_mbit_per_sec(3)),
        in_flight: Some(MSS * 5),
        ..Measurement::default()
    };
    steering.on_measurement(&measurement);
    let now = Timestamp::ZERO + RTT;
    assert_eq!(steering.close(now).loss(), 0.2);
    assert_eq!(steering.due(), now + RTT * 2);
    let near = |row: &[f32], expected: [f32; 7]| {
        let far = row.iter().zip(expected).any(|(made, expected)| (made - expected).abs() > 1e-6);
        assert!(!far, "{row:?} for {expected:?}");
    };
    let rows = steering.observation();
    assert_eq!(rows[..WIDTH], [0.0; WIDTH], "before the first decision");
    // 8 segments in a least round trip: log2 is 3. The slope and the marks are not known yet.
    near(&rows[WIDTH..], [0.75, 1.0, 0.0, 0.2, 0.0, 0.5, 0.3]);
    assert_eq!(rows[WIDTH + 7..], [1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0]);

    steering.on_measurement(&Measurement {
        rtt: Some(RttSample { latest: RTT * 3, min: RTT * 3 }),
        ecn_ce: Some(MSS),
        ..measurement
    });
    steering.close(now + RTT * 2);
    let rows = steering.observation();
    near(&rows[..7], [0.75, 1.0, 0.0, 0.2, 0.0, 0.5, 0.3]);
    // 20 ms more in 40 ms; an eighth of the acknowledged bytes lost; half as fast.
    near(&rows[WIDTH..], [0.75, 2.0, 0.5, 0.2, 0.125, 0.5, 0.2]);

    steering.close(now + RTT * 3);
    assert_eq!(steering.observation()[WIDTH..], [0.0; WIDTH], "nothing was measured");
}

#[test]
fn recomposed_round_trips_lengthen_the_open_row_too() {
    let mut steering = SteeredSender::new(&flow(), 1).unwrap();
    steering.start(Timestamp::ZERO, MSS, MSS * 10);
    let of = |rtt| Measurement {
        rtt: Some(RttSample { latest: rtt, min: rtt }),
        ..Measurement::default()
    };
    steering.on_measurement(&of(RTT));
    steering.on_event(Timestamp::ZERO, CongestionEvent::RttShift(1_000_000));
    steering.on_measurement(&of(RTT + Duration::from_millis(1)));
    let outcome = steering.close(Timestamp::ZERO + RTT);
    let shifted = Some(RTT + Duration::from_millis(1));
    assert_eq!((outcome.rtt, outcome.min_rtt), (shifted, shifted));
}

#[test]
fn graphs_of_other_sizes_are_no_policies() {
    for (input, output) in [(&[1, WIDTH + 1], 1), (&[65, WIDTH], 65), (&[2, WIDTH], 2)] {
        let (mut builder, first) = Builder::new(input).unwrap();
        let weights = builder.constant(&[input[1], 1], &vec![0.0; input[1]]).unwrap();
        let made = builder.apply(&Operator::MatMul, &[Some(first), Some(weights)]).unwrap();
        let graph = builder.finish(&made).unwrap();
        assert_eq!(graph.output_len(), output);
        assert!(history_of(&graph).is_err(), "{input:?}");
    }
}

fn tame(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    build(&graph(KNOWS_FLIGHT, 3.0, 1.0), spec)
}

fn wild(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    build(&graph(1, 1.0, 0.0), spec)
}

const PARAMS: &[&dyn Parameter] = &[&FLOW, &steering::STEERS];

const fn entry(build: crate::cc::Build) -> Algorithm {
    Algorithm {
        name: "policy",
        params: PARAMS,
        needs: NEEDS,
        min_window_mss: steering::MIN_WINDOW_MSS,
        build,
        ..constant::ALGORITHM
    }
}

static ENTRIES: [Algorithm; 2] = [entry(&tame), entry(&wild)];

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_measurements_leave_a_valid_window(operations in operations()) {
        for entry in &ENTRIES {
            for mut model in [Model::new(entry), Model::switched(entry)] {
                operations.iter().for_each(|operation| model.apply(operation));
            }
        }
    }

    #[test]
    fn any_reports_leave_the_rate_within_its_bounds(operations in sendbox_operations()) {
        for entry in &ENTRIES {
            let mut model = SendboxModel::new(entry, false);
            operations.iter().for_each(|operation| model.apply(operation));
        }
    }

    #[test]
    fn observations_stay_within_their_bounds(operations in operations()) {
        let mut steering = SteeredSender::new(&Spec::named("policy"), 3).unwrap();
        let mut now = Timestamp::ZERO;
        steering.start(now, MSS, MSS * 10);
        for operation in &operations {
            match operation {
                Operation::Measure(elapsed, measurement) => {
                    now += *elapsed;
                    steering.on_measurement(measurement);
                }
                Operation::Event(event) => steering.on_event(now, *event),
                Operation::Timer(elapsed) => now += *elapsed,
            }
            steering.close(now);
            for row in steering.observation().chunks(WIDTH) {
                let (values, known) = row.split_at(FEATURES.len());
                for (value, feature) in values.iter().zip(FEATURES) {
                    prop_assert!((feature.low..=feature.high).contains(value), "{}", feature.name);
                }
                prop_assert!(known.iter().all(|it| [0.0, 1.0].contains(it)));
            }
        }
    }
}
