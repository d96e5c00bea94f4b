//! A flow on a path, fed with each acknowledgement.

use super::*;
use crate::cc::flow::{self, Flow};

fn flow(rate: Rate) -> Flow {
    Flow::new(build(&Spec::named("bbr3")), rate, RTT)
}

#[test]
fn startup_finds_the_rate_in_some_rounds() {
    let mut flow = flow(Rate::from_mbit_per_sec(16));
    flow.run(2, |_| {});
    let names = flow.names();
    assert_eq!(names[..2], ["startup", "drain"]);
    assert!(names[2].starts_with("probe_bw"), "{names:?}");
    assert!(flow.phases[2].1.as_secs_f64() < 0.8, "{:?}", flow.phases);
    let state = flow.cc.state();
    let found = state.bottleneck_rate.unwrap().as_mbit_per_sec_f64();
    assert!((found / 16.0 - 1.0).abs() < 0.02, "{found}");
    assert_eq!(state.min_rtt, Some(RTT + flow::MSS.time_at(flow.rate).unwrap()));
}

#[test]
fn probe_bw_fills_the_path_with_little_queue() {
    let mut flow = flow(Rate::from_mbit_per_sec(16));
    flow.run(1, |_| {});
    let before = flow.delivered.0;
    let (mut sum, mut samples) = (0.0, 0u32);
    flow.run(5, |flow| {
        (sum, samples) = (sum + flow.in_flight().as_f64() / flow::MSS.as_f64(), samples + 1);
    });
    let carried = (flow.delivered.0 - before).as_f64() * 8.0 / 4.0 / 16e6;
    assert!(carried > 0.97, "{carried}");
    // The product is 54 packets.
    let mean = sum / f64::from(samples);
    assert!((52.0..66.0).contains(&mean), "{mean}");
}

#[test]
fn shallow_buffer_bounds_inflight_with_little_loss() {
    let mut flow = flow(Rate::from_mbit_per_sec(16));
    flow.buffer = 11;
    flow.run(2, |_| {});
    let (dropped, delivered) = (flow.dropped, flow.delivered.0);
    flow.run(30, |_| {});
    let packets = (flow.delivered.0 - delivered).as_u64() / flow::MSS.as_u64();
    let lost = (flow.dropped - dropped) as f64 / packets as f64;
    assert!(lost < 0.01, "{lost}");
    let carried = packets as f64 * flow::MSS.as_f64() * 8.0 / 28.0 / 16e6;
    assert!(carried > 0.9, "{carried}");
}
