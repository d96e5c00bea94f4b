//! Single flows under delay-based algorithms.

use super::*;
use crate::cc::algorithms::{basic_delay, copa, setpoint};
use crate::cc::flow::{Flow, MSS};
use crate::spec::Value;
use crate::units::Duration;

fn flow(name: &str, buffer: u32) -> Flow {
    let algorithms = [basic_delay::ALGORITHM, copa::ALGORITHM, setpoint::ALGORITHM];
    let algorithm = algorithms.into_iter().find(|algorithm| algorithm.name == name).unwrap();
    let spec = Spec::named(name).with("flow", Value::Bool(true));
    let rate = Rate::from_mbit_per_sec(16);
    let mut flow = Flow::new(algorithm.build(&spec), rate, Duration::from_millis(40));
    flow.buffer = buffer;
    flow
}

#[test]
fn single_flow_fills_the_path_with_short_queue() {
    for name in ["basic_delay", "copa", "setpoint"] {
        let mut flow = flow(name, 100);
        flow.run(5, |_| {});
        let (before, dropped) = (flow.delivered.0, flow.dropped);
        let (mut sum, mut samples) = (0.0, 0u32);
        flow.run(35, |flow| {
            sum += flow.in_flight().as_f64() / MSS.as_f64();
            samples += 1;
        });
        let carried = (flow.delivered.0 - before).as_f64() * 8.0 / 30.0 / 16e6;
        assert!(carried > 0.9, "{name}: {carried}");
        let queue = sum / f64::from(samples) - 54.0;
        assert!(queue < 15.0, "{name}: {queue}");
        assert_eq!(flow.dropped, dropped, "{name}");
    }
}

#[test]
fn single_flow_starts_at_initial_window_and_doubles() {
    let mut flow = flow("copa", 10_000);
    assert_eq!(flow.cc.send_limits().cwnd, Some(MSS * 10));
    let mut windows = alloc::vec![];
    flow.run(1, |flow| windows.push(flow.cc.send_limits().cwnd.unwrap().as_u64()));
    let doubled = windows.iter().position(|cwnd| *cwnd == 2 * 15_000).unwrap();
    assert_eq!(doubled, 9, "by the tenth acknowledgement");
}

#[test]
fn host_doubles_in_slow_start_and_reports_queues() {
    let mut flow = flow("copa", 10_000);
    let mut laws = alloc::vec![];
    flow.run(1, |flow| laws.push((flow.cc.state().phase, flow.cc.interim())));
    let start = laws.iter().take_while(|(phase, _)| *phase == "measuring").count();
    assert!(laws[..start].iter().all(|(_, law)| law.growth == Interim::DOUBLING.growth));
    assert!(laws[start..].iter().all(|(_, law)| *law == Interim::HOLD));
    // 40.75 ms without a queue, and three times the 4.5 ms of six packets.
    let rtt = laws[start - 1].1.tripwires.rtt.as_secs_f64();
    assert!((rtt - 54.25e-3).abs() < 1e-3, "{rtt}");
}

#[test]
fn shallow_buffer_ends_slow_start_by_loss() {
    let mut flow = flow("copa", 8);
    flow.run(20, |_| {});
    assert_eq!(flow.names()[..2], ["measuring", "shaping"]);
    let carried = flow.delivered.0.as_f64() * 8.0 / 20.0 / 16e6;
    assert!(carried > 0.8, "{carried}");
}

#[test]
fn timeout_of_a_single_flow_leaves_minimum_window() {
    let mut flow = flow("copa", 100);
    flow.run(5, |_| {});
    flow.cc.on_event(flow.now, CongestionEvent::Rto);
    assert_eq!(flow.cc.send_limits().cwnd, Some(MSS * 4));
}

#[test]
fn lone_competing_flow_is_unchanged_and_bundle_refused() {
    let switching = |flow: bool| {
        let spec = Spec::named("copa").with("mode_switching", Value::Bool(true));
        copa::ALGORITHM.build(&spec.with("flow", Value::Bool(flow)))
    };
    let error = switching(false).err().unwrap().to_string();
    assert!(error.starts_with("mode_switching = true: allowed is"), "{error}");
    let mut flow =
        Flow::new(switching(true), Rate::from_mbit_per_sec(16), Duration::from_millis(40));
    flow.buffer = 100;
    flow.run(5, |_| {});
    let before = flow.delivered.0;
    flow.run(35, |_| {});
    let carried = (flow.delivered.0 - before).as_f64() * 8.0 / 30.0 / 16e6;
    assert!(carried > 0.9, "{carried}");
    assert!(!flow.names().contains(&"competing"), "{:?}", flow.names());
}
