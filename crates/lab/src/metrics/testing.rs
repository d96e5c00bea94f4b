//! An experiment and packets to take metrics of in tests.

use crate::plan::library::Source;
use crate::plan::{Experiment, Plan};
use crate::rows::PacketRow;

/// One greedy flow in the bundle `a` over 96 Mbit/s with 50 ms, for a second.
pub fn experiment() -> Experiment {
    let text = r#"
        name = "test"
        stop = "1s"
        bottleneck = { rate = "96Mbit/s", rtt = "50ms", qdisc = "fifo" }
        flow = [{ name = "bulk", bundle = "a", traffic = { kind = "greedy" } }]
        bundle = [{ name = "a", cc = "copa", qdisc = "sfq" }]
    "#;
    let source = Source { file: "test".into(), folder: None, text: text.into() };
    let plan = Plan::from_source(source, &[]).expect("a plan");
    plan.experiment(&plan.arms[0], &plan.cells[0], 1).expect("an experiment")
}

/// A packet of 1500 bytes that took the 25 ms of [`experiment`]'s link.
pub fn packet(identity: u64, arrived_ns: u64, departed_ns: u64) -> PacketRow {
    let released_ns = if departed_ns == 0 { 0 } else { departed_ns + 25_000_000 };
    PacketRow {
        identity,
        arrived_ns,
        departed_ns,
        released_ns,
        bytes: 1500,
        ..PacketRow::default()
    }
}
