//! The simulations whose speed is measured, here and beside ns-3 (`benches/ns3`).

use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::Source;
use forebay_core::units::{Duration, Rate, Ratio};
use forebay_sim::{Change, Dumbbell, Flow, Stack};

/// B1, ccperf #60: one NewReno flow, 64 Mbit/s, from 5 s on 16 Mbit/s.
pub fn rate_step() -> Dumbbell {
    let rate = Some(Rate::from_mbit_per_sec(16));
    let at = Duration::from_secs(5);
    Dumbbell {
        stop: Duration::from_secs(15),
        rate: Rate::from_mbit_per_sec(64),
        rtt: Duration::from_millis(15),
        qdisc: fifo(20),
        changes: vec![Change { at, rate, ..Change::default() }],
        ..dumbbell(1, "newreno")
    }
}

/// B2: `flows` NewReno flows over 1 Gbit/s, 40 ms and a bandwidth-delay product of queue.
pub fn many(flows: usize, stop: Duration) -> Dumbbell {
    Dumbbell { stop, ..dumbbell(flows, "newreno") }
}

/// `flows` NewReno flows over 10 Gbit/s and 40 ms, for a cost that depends on their number: with
/// 10,000 each has a window of a few segments.
pub fn crowd(flows: usize, stop: Duration) -> Dumbbell {
    let rate = Rate::from_mbit_per_sec(10_000);
    Dumbbell { rate, qdisc: fifo(33_000), stop, ..dumbbell(flows, "newreno") }
}

/// One Cubic flow whose slow start overruns a queue of 1000 packets with a window of thousands.
pub fn overshoot(stop: Duration) -> Dumbbell {
    let base = dumbbell(1, "cubic");
    // The buffers of B1 would end the slow start below the bandwidth-delay product.
    let stack = Stack { send_buffer: 32_000_000, receive_buffer: 32_000_000, ..base.stack };
    Dumbbell { stop, qdisc: fifo(1000), stack, ..base }
}

fn dumbbell(flows: usize, cc: &str) -> Dumbbell {
    let flow = Flow {
        cc: Spec::named(cc),
        source: Source::Greedy { bytes: None },
        start: Duration::ZERO,
        rtt: None,
    };
    Dumbbell {
        stop: Duration::ZERO,
        seed: 1,
        stack: Stack::NS3,
        rate: Rate::from_mbit_per_sec(1000),
        rtt: Duration::from_millis(40),
        loss: Ratio::ZERO,
        qdisc: fifo(3300),
        changes: Vec::new(),
        flows: vec![flow; flows],
    }
}

fn fifo(packets: u32) -> Spec {
    Spec::named("fifo").with("limit", Value::Text(format!("{packets}p")))
}
