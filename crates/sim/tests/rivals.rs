//! A single flow competing with a flow that fills the buffer.

use forebay_core::qdisc;
use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::Source;
use forebay_core::units::{Duration, Rate, Ratio};
use forebay_sim::{Dumbbell, Flow, Simulation, Stack};

/// Throughput (Mbit/s) of a flow with `cc` and of a Cubic flow that starts 5 s later. The path has 24 Mbit/s,
/// 40 ms and a buffer of two bandwidth-delay products.
fn beside_cubic(cc: Spec) -> [f64; 2] {
    let flow = |cc: Spec, start_s: u64| Flow {
        cc,
        source: Source::Greedy { bytes: None },
        start: Duration::from_secs(start_s),
        rtt: None,
    };
    let dumbbell = Dumbbell {
        stop: Duration::from_secs(65),
        seed: 1,
        stack: Stack::LINUX,
        rate: Rate::from_mbit_per_sec(24),
        rtt: Duration::from_millis(40),
        loss: Ratio::ZERO,
        qdisc: Spec::named("fifo").with("limit", Value::Text("160p".into())),
        changes: Vec::new(),
        flows: vec![flow(cc, 0), flow(Spec::named("cubic"), 5)],
    };
    qdisc::check(&dumbbell.qdisc).unwrap();
    let mut simulation = Simulation::new(&dumbbell).unwrap();
    simulation.run();
    [0, 1].map(|flow| simulation.flow_metrics(flow).unwrap().mean_throughput_l4)
}

fn of_flow(kind: &str) -> Spec {
    Spec::named(kind).with("flow", Value::Bool(true))
}

#[test]
fn copa_competes_with_cubic_only_with_mode_switching() {
    let [plain, beside] = beside_cubic(of_flow("copa"));
    assert!(plain < 0.5 * beside, "{plain} against {beside}");
    let switching = of_flow("copa").with("mode_switching", Value::Bool(true));
    let [switching, beside] = beside_cubic(switching);
    assert!(switching > 2.0 * plain, "{switching} where it was {plain}");
    assert!((0.35..2.0).contains(&(switching / beside)), "{switching} against {beside}");
}

#[test]
fn nimbus_competes_as_a_single_flow() {
    let [nimbus, beside] = beside_cubic(of_flow("nimbus"));
    // Nimbus does not switch in the first 15 s, and Reno then recovers slowly from Cubic's share.
    assert!((0.2..2.0).contains(&(nimbus / beside)), "{nimbus} against {beside}");
}
