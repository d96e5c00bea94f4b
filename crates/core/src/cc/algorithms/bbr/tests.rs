use super::*;
use crate::cc::RttSample;
use crate::cc::flow::{Flow, MSS};
use crate::spec::Value;

const RATE: Rate = Rate::from_mbit_per_sec(16);
const RTT: Duration = Duration::from_millis(40);

#[test]
fn the_gains_are_those_of_the_draft() {
    let high = HIGH_GAIN as f64 / UNIT as f64;
    assert!((high / (2.0 / core::f64::consts::LN_2) - 1.0).abs() < 2e-3);
    assert!((high * DRAIN_GAIN as f64 / UNIT as f64 - 1.0).abs() < 1e-2);
    assert_eq!(CYCLE.iter().sum::<u64>(), 8 * UNIT);
}

#[test]
fn startup_finds_the_rate_and_drain_empties_queue() {
    let mut flow = Flow::new(build(&Spec::named("bbr")), RATE, RTT);
    flow.run(2, |_| {});
    assert_eq!(flow.names(), ["startup", "drain", "probe_bw"]);
    // Three rounds of 40 ms fill it, four of up to 2.9 times that show that it is full; one drains.
    assert!(flow.phases[2].1.as_secs_f64() < 0.8, "{:?}", flow.phases);
    let state = flow.cc.state();
    let found = state.bottleneck_rate.unwrap().as_mbit_per_sec_f64();
    assert!((found / 16.0 - 1.0).abs() < 0.01, "{found}");
    let base = RTT + MSS.time_at(RATE).unwrap();
    assert_eq!(state.min_rtt, Some(base));
}

#[test]
fn probe_bw_fills_the_path_with_little_queue() {
    let mut flow = Flow::new(build(&Spec::named("bbr")), RATE, RTT);
    flow.run(2, |_| {});
    let before = flow.delivered.0;
    let (mean, most) = outstanding(&mut flow, 9);
    let carried = (flow.delivered.0 - before).as_f64() * 8.0 / 7.0 / 16e6;
    assert!(carried > 0.98, "{carried}");
    // The product is 54 packets, and the phase of 3/4 ends three quanta above it, at 60.
    assert!((58.0..64.0).contains(&mean), "{mean}");
    assert!(most <= 54.0 * 1.25 + 12.0, "{most}");
}

/// Packets outstanding until `seconds`: the mean over acknowledgements, and the most.
fn outstanding(flow: &mut Flow, seconds: u64) -> (f64, f64) {
    let (mut sum, mut samples, mut most) = (0.0, 0u32, 0.0f64);
    flow.run(seconds, |flow| {
        let packets = flow.in_flight().as_f64() / MSS.as_f64();
        (sum, samples, most) = (sum + packets, samples + 1, most.max(packets));
    });
    (sum / f64::from(samples), most)
}

#[test]
fn feeding_four_times_per_round_keeps_the_window() {
    let means = [0, 10].map(|ms| {
        let rate = Rate::from_mbit_per_sec(48);
        let mut flow = Flow::new(build(&Spec::named("bbr")), rate, RTT);
        flow.period = Duration::from_millis(ms);
        flow.run(2, |_| {});
        outstanding(&mut flow, 9).0
    });
    // The phase of 3/4 lasts up to a measurement longer: a quarter of the rate in 10 ms, 10 packets.
    assert!((means[0] - means[1]).abs() < 10.0, "{means:?}");
}

#[test]
fn stale_min_rtt_is_measured_in_probe_rtt() {
    let mut flow = Flow::new(build(&Spec::named("bbr")), RATE, RTT);
    flow.run(5, |_| {});
    // A longer path, which the last least round trip of startup hides until it is forgotten.
    flow.rtt = Duration::from_millis(60);
    flow.run(13, |_| {});
    let phase = flow.names().iter().position(|phase| *phase == "probe_rtt").unwrap();
    let at = flow.phases[phase].1;
    assert!((10.0..10.4).contains(&at.as_secs_f64()), "{at:?}");
    let left = flow.phases[phase + 1].1;
    assert!((0.2..0.45).contains(&left.saturating_since(at).as_secs_f64()));
    let base = flow.cc.state().min_rtt.unwrap();
    assert!((0.060..0.062).contains(&base.as_secs_f64()), "{base:?}");
    assert_eq!(flow.names().last(), Some(&"probe_bw"));
}

/// An algorithm with a host that reports its own queue, as for a bundle.
struct OfBundle(Box<dyn CongestionControl>);

impl CongestionControl for OfBundle {
    fn init(&mut self, now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        self.0.init(now, mss, initial_cwnd);
    }
    fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement) {
        let backlog = Some(ByteCount::ZERO);
        self.0.on_measurement(now, &Measurement { backlog, ..*measurement });
    }
    fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        self.0.on_event(now, event);
    }
    fn send_limits(&self) -> SendLimits {
        self.0.send_limits()
    }
    fn state(&self) -> State {
        self.0.state()
    }
}

#[test]
fn bundle_keeps_half_the_path_in_probe_rtt() {
    let least = |is_bundle: bool| {
        let cc = build(&Spec::named("bbr"));
        let of_bundle = |cc| Box::new(OfBundle(cc)) as Box<dyn CongestionControl>;
        let cc = if is_bundle { cc.map(of_bundle) } else { cc };
        let mut flow = Flow::new(cc, RATE, RTT);
        flow.run(5, |_| {});
        let longer = Duration::from_millis(60);
        flow.rtt = longer;
        let mut least = f64::INFINITY;
        flow.run(13, |flow| {
            if flow.cc.state().phase == "probe_rtt" {
                least = least.min(flow.cc.send_limits().cwnd.unwrap().as_f64());
            }
        });
        assert_eq!(flow.names().last(), Some(&"probe_bw"));
        least / (RATE.as_bytes_per_sec_f64() * longer.as_secs_f64())
    };
    assert!(least(false) < 0.2, "{}", least(false));
    assert!((0.5..0.7).contains(&least(true)), "{}", least(true));
}

#[test]
fn probe_rtt_does_not_lower_the_bottleneck_rate() {
    // 200 ms are forty rounds of 5 ms, four times the memory of the filter.
    let mut flow = Flow::new(build(&Spec::named("bbr")), RATE, Duration::from_millis(5));
    flow.run(5, |_| {});
    flow.rtt = Duration::from_millis(7);
    let mut least = f64::INFINITY;
    flow.run(12, |flow| {
        let found = flow.cc.state().bottleneck_rate.unwrap();
        least = least.min(found.as_mbit_per_sec_f64());
    });
    assert!(flow.names().contains(&"probe_rtt"));
    assert!((15.7..16.3).contains(&least), "{least}");
}

/// A flow in probe_bw at the product of 10 Mbit/s and 40 ms, 50 kB.
fn settled(cc: Result<Box<dyn CongestionControl>, SpecError>) -> Flow {
    let mut flow = Flow::new(cc, Rate::from_mbit_per_sec(10), RTT);
    flow.run(2, |_| {});
    assert_eq!(flow.cc.state().phase, "probe_bw");
    flow
}

fn measured(flow: &Flow, acked: ByteCount, lost: ByteCount) -> Measurement {
    Measurement {
        acked,
        lost: Some(lost),
        in_flight: Some(flow.in_flight()),
        delivered: flow.delivered.0,
        prior_delivered: flow.delivered.0.saturating_sub(flow.in_flight()),
        ..Measurement::default()
    }
}

#[test]
fn recovery_conserves_packets_then_restores_the_window() {
    let mut flow = settled(build(&Spec::named("bbr")));
    let cwnd = |flow: &Flow| flow.cc.send_limits().cwnd.unwrap();
    let before = cwnd(&flow);
    flow.cc.on_event(flow.now, CongestionEvent::Loss);
    let measurement = measured(&flow, MSS, MSS * 3);
    flow.cc.on_measurement(flow.now, &measurement);
    assert_eq!(cwnd(&flow), flow.in_flight() + MSS);
    flow.cc.on_event(flow.now, CongestionEvent::RecoveryEnd);
    assert_eq!(cwnd(&flow), before);
}

#[test]
fn timeout_leaves_one_segment_until_repaired() {
    let mut flow = settled(build(&Spec::named("bbr")));
    let before = flow.cc.send_limits().cwnd;
    flow.cc.on_event(flow.now, CongestionEvent::Rto);
    assert_eq!(flow.cc.send_limits().cwnd, Some(MSS));
    flow.cc.on_event(flow.now, CongestionEvent::RecoveryEnd);
    assert_eq!(flow.cc.send_limits().cwnd, before);
}

#[test]
fn ns3_recovery_restores_bdp_and_timeout_restores_nothing() {
    let mut flow = settled(as_ns3(&Spec::named("bbr")));
    let cwnd = |flow: &Flow| flow.cc.send_limits().cwnd.unwrap();
    flow.cc.on_event(flow.now, CongestionEvent::Loss);
    let measurement = measured(&flow, MSS, MSS);
    flow.cc.on_measurement(flow.now, &measurement);
    // Nothing new was delivered; the repair that has left is in flight.
    assert_eq!(cwnd(&flow), flow.in_flight() + MSS);
    flow.cc.on_event(flow.now, CongestionEvent::RecoveryEnd);
    let product = Rate::from_mbit_per_sec(10).bytes_in(RTT) + MSS * 3;
    assert!(cwnd(&flow).as_u64().abs_diff(product.as_u64()) < 3 * MSS.as_u64(), "{}", cwnd(&flow));
    flow.cc.on_event(flow.now, CongestionEvent::Rto);
    flow.cc.on_event(flow.now, CongestionEvent::RecoveryEnd);
    assert_eq!(cwnd(&flow), MSS);
}

#[test]
fn ns3_recovery_ending_in_startup_leaves_no_bound() {
    let mut flow = Flow::new(as_ns3(&Spec::named("bbr")), RATE, RTT);
    let cwnd = |flow: &Flow| flow.cc.send_limits().cwnd.unwrap();
    let tell = |flow: &mut Flow, round: u64| {
        let window = MSS * 10;
        let measurement = Measurement {
            acked: window,
            delivery_rate: Some(RATE),
            rtt: Some(RttSample { latest: RTT, min: RTT }),
            in_flight: Some(window),
            delivered: window * round,
            prior_delivered: window * (round - 1),
            ..Measurement::default()
        };
        flow.cc.on_measurement(flow.now, &measurement);
    };
    (1..=2).for_each(|round| tell(&mut flow, round));
    flow.cc.on_event(flow.now, CongestionEvent::Loss);
    tell(&mut flow, 3);
    flow.cc.on_event(flow.now, CongestionEvent::RecoveryEnd);
    assert_eq!(cwnd(&flow), ByteCount::new(u64::from(u32::MAX)));
    tell(&mut flow, 4);
    // Ten segments more than the greatest number of 32 bits.
    assert_eq!(cwnd(&flow), MSS * 10 - ByteCount::new(1));
    assert_ne!(flow.cc.state().phase, "startup");
}

#[test]
fn ns3_probe_rtt_forgets_the_bottleneck_rate() {
    let mut flow = Flow::new(as_ns3(&Spec::named("bbr")), RATE, Duration::from_millis(5));
    flow.run(5, |_| {});
    flow.rtt = Duration::from_millis(7);
    let mut least = f64::INFINITY;
    flow.run(12, |flow| {
        least = least.min(flow.cc.state().bottleneck_rate.unwrap().as_mbit_per_sec_f64());
    });
    // Four segments of 1500 B in 7.75 ms.
    assert!((5.0..7.5).contains(&least), "{least}");
}

#[test]
fn probe_bw_never_starts_in_the_drain_phase() {
    let begins = |is_ns3| {
        let mut times = [0; CYCLE.len()];
        for seed in 0..1000 {
            let mut law = Bbr::new(MARGIN_UNIT, is_ns3);
            law.set_seed(seed);
            law.enter_probe_bw(Timestamp::ZERO);
            times[law.cycle_index] += 1;
        }
        times.map(|times| times > 0)
    };
    assert_eq!(begins(false), [true, false, true, true, true, true, true, true]);
    assert_eq!(begins(true), [true, false, false, true, true, true, true, true]);
}

#[test]
fn window_is_two_products_and_three_quanta() {
    let product = |flow: &Flow| {
        let state = flow.cc.state();
        state.bottleneck_rate.unwrap().bytes_in(state.min_rtt.unwrap())
    };
    // Below 24 Mbit/s a quantum is two segments; ns-3 has three of one and two for aggregated ACKs.
    let spec = Spec::named("bbr");
    for (cc, segments) in [(build(&spec), 6), (as_ns3(&spec), 5)] {
        let mut flow = settled(cc);
        flow.run(3, |_| {});
        while flow.cc.state().numbers[0].1 != 1.0 {
            let end = flow.now.as_nanos() / 1_000_000_000 + 1;
            flow.run(end, |_| {});
        }
        let cwnd = flow.cc.send_limits().cwnd.unwrap();
        let expected = product(&flow) * 2 + MSS * segments;
        assert!(cwnd.as_u64().abs_diff(expected.as_u64()) <= 4, "{segments}: {cwnd} {expected}");
    }
}

#[test]
fn a_margin_above_a_half_is_refused() {
    let spec = Spec::named("bbr").with("pacing_margin", Value::Text("60%".into()));
    assert_eq!(build(&spec).err().unwrap().key, "pacing_margin");
}
