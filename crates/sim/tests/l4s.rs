//! Prague at a bottleneck with DualPI2: competing with Cubic, and with itself.

use forebay_core::spec::Spec;
use forebay_core::traffic::Source;
use forebay_core::units::{Duration, Rate, Ratio};
use forebay_sim::network::Network;
use forebay_sim::{BIN_NS, Dumbbell, Flow, Owner, Simulation, Stack};

/// Time before the measurement: slow start, and convergence to a share. With half of 120 Mbit/s, Cubic takes
/// 10 s from one drop to the next.
const WARMUP: Duration = Duration::from_secs(20);
/// Length of a run; the measurement starts after [`WARMUP`].
const STOP: Duration = Duration::from_secs(100);
/// Drops are few, so that a run depends on its random draws.
const SEEDS: [u64; 3] = [1, 2, 3];

/// Figures of a flow from the end of the warm-up on, over all runs.
struct Outcome {
    mbit_per_s: f64,
    /// 99th percentile of the packets' time in queue and server (ms).
    p99_ms: f64,
}

/// Runs flows with these algorithms and round trips (ms) over `mbit_per_s`.
fn run<const N: usize>(mbit_per_s: u64, flows: [(&str, u64); N]) -> [Outcome; N] {
    let flow = |(cc, rtt_ms)| Flow {
        cc: Spec::named(cc),
        source: Source::Greedy { bytes: None },
        start: Duration::ZERO,
        rtt: Some(Duration::from_millis(rtt_ms)),
    };
    let mut bytes = [0; N];
    let mut sojourns: [Vec<u64>; N] = std::array::from_fn(|_| Vec::new());
    for seed in SEEDS {
        let mut network = Network::from(&Dumbbell {
            stop: STOP,
            seed,
            stack: Stack::LINUX,
            rate: Rate::from_mbit_per_sec(mbit_per_s),
            rtt: Duration::ZERO,
            loss: Ratio::ZERO,
            qdisc: Spec::named("dualpi2"),
            changes: Vec::new(),
            flows: flows.map(flow).to_vec(),
        });
        network.logged.insert(0);
        let mut simulation = Simulation::new(&network).unwrap();
        simulation.run();
        let skipped = (WARMUP.as_nanos() / u128::from(BIN_NS)) as usize;
        for (flow, bytes) in bytes.iter_mut().enumerate() {
            let bins = &simulation.flow_bins(flow)[skipped..];
            *bytes += bins.iter().map(|bin| u64::from(bin.bytes)).sum::<u64>();
        }
        for (owner, packet) in simulation.packet_log(0) {
            let is_counted =
                u128::from(packet.arrived_ns) >= WARMUP.as_nanos() && packet.departed_ns > 0;
            if let (Owner::Flow(flow), true) = (owner, is_counted) {
                sojourns[flow].push(packet.departed_ns - packet.arrived_ns);
            }
        }
    }
    let seconds = (STOP - WARMUP).as_secs_f64() * SEEDS.len() as f64;
    std::array::from_fn(|flow| {
        let sojourns = &mut sojourns[flow];
        sojourns.sort_unstable();
        Outcome {
            mbit_per_s: bytes[flow] as f64 * 8e-6 / seconds,
            p99_ms: sojourns[sojourns.len() * 99 / 100] as f64 * 1e-6,
        }
    })
}

/// Prints the flows' figures for manual inspection.
fn tell(path: &str, flows: &[Outcome]) {
    for Outcome { mbit_per_s, p99_ms } in flows {
        println!("{path}: {mbit_per_s:.1} Mbit/s, p99 {p99_ms:.2} ms");
    }
}

#[test]
fn prague_and_cubic_rates_are_within_factor_two() {
    for mbit_per_s in [40, 120] {
        for rtt_ms in [10, 20, 40] {
            let path = format!("{mbit_per_s} Mbit/s, {rtt_ms} ms");
            let flows = run(mbit_per_s, [("prague", rtt_ms), ("cubic", rtt_ms)]);
            tell(&path, &flows);
            let [prague, cubic] = flows;
            assert!((0.5..2.0).contains(&(prague.mbit_per_s / cubic.mbit_per_s)), "{path}");
            let both = prague.mbit_per_s + cubic.mbit_per_s;
            assert!(both > 0.93 * mbit_per_s as f64, "{path}: {both} Mbit/s");
            // The target of the other queue is 15 ms.
            assert!(prague.p99_ms <= 2.0 && cubic.p99_ms > 15.0, "{path}");
        }
    }
}

#[test]
fn a_short_round_trip_gives_prague_hardly_more() {
    let flows = run(40, [("prague", 5), ("prague", 25)]);
    tell("40 Mbit/s, 5 and 25 ms", &flows);
    let [short, long] = flows;
    // Rates that grow in proportion to the round trip would give a ratio of five.
    assert!((0.8..1.5).contains(&(short.mbit_per_s / long.mbit_per_s)));
    assert!(short.mbit_per_s + long.mbit_per_s > 0.93 * 40.0);
    assert!(short.p99_ms <= 2.0 && long.p99_ms <= 2.0);
}
