//! An experiment and packets to take metrics of in tests.

use forebay_core::record::{
    BundleCounters, BundleRecord, DecisionRecord, EpochRecord, FlowRecord, HostRecord, LinkRecord,
    PacketRecord, QueueSample, RequestRecord, RunRecord,
};

use super::{Evaluation, evaluate, requests};
use crate::metrics::{PacketLog, RunRows};
use crate::plan::library::Source;
use crate::plan::{Experiment, Plan};

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
pub fn packet(identity: u64, arrived_ns: u64, departed_ns: u64) -> PacketRecord {
    let released_ns = if departed_ns == 0 { 0 } else { departed_ns + 25_000_000 };
    PacketRecord {
        identity,
        arrived_ns,
        departed_ns,
        released_ns,
        bytes: 1500,
        ..PacketRecord::default()
    }
}

/// An experiment with requests and a competing greedy flow, and an invented run.
pub fn invented_run() -> (Experiment, Evaluation) {
    let text = r#"
        name = "invented"
        stop = "2s"
        warmup = "500ms"
        bottleneck = { rate = "96Mbit/s", rtt = "50ms", qdisc = "fifo" }
        flow = [
            { name = "web", bundle = "a" },
            { name = "bulk", bundle = "a", traffic = { kind = "greedy" } },
        ]
        arm = [{ name = "default", set = { flow.web.traffic = {
            kind = "requests", sizes = "caida", load = "30Mbit/s", connections = 20 } } }]
        bundle = [{ name = "a", cc = "copa", qdisc = "sfq" }]
    "#;
    let source = Source { file: "test".into(), folder: None, text: text.into() };
    let plan = Plan::from_source(source, &[]).expect("a plan");
    let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).expect("an experiment");
    let rows = invented_rows(&experiment, 1.5);
    let evaluation = evaluate(&experiment, &rows).expect("rows in memory can be read");
    (experiment, evaluation)
}

/// Rows in which every request takes `slowdown` times its ideal, and the bottleneck's queue holds
/// 10 packets throughout.
pub fn invented_rows(experiment: &Experiment, slowdown: f64) -> RunRows {
    let web = experiment.flows.iter().position(|flow| flow.name == "web").expect("web");
    let schedule = experiment.schedule(&experiment.flows[web]).expect("drawn").expect("requests");
    let rate = experiment.forward.rate().expect("a rate");
    let requests = schedule.requests().iter().enumerate().map(|(index, request)| {
        let ideal = requests::ideal(request.size.as_u64(), experiment.rtt, rate);
        let scheduled_ns = request.at.as_nanos() as u64;
        RequestRecord {
            flow: web,
            index: index as u32,
            connection: request.connection,
            size_bytes: request.size.as_u64(),
            scheduled_ns,
            sent_ns: Some(scheduled_ns),
            queued_behind: index % 10 == 0,
            finished_ns: Some(scheduled_ns + (ideal.as_nanos() as f64 * slowdown) as u64),
        }
    });
    let packets = |count: u64| {
        (0..count).map(|index| PacketRecord {
            queue_packets: 10,
            ..packet(index + 1, index * 1_000_000, (index + 11) * 1_000_000)
        })
    };
    let link =
        |name: &str| LinkRecord { name: name.into(), rate_achieved: 1.0, ..LinkRecord::default() };
    let epochs = (10..1900).step_by(10).map(|index| EpochRecord {
        at_ns: (index + 70) * 1_000_000,
        identity: index + 1,
        previous_identity: index - 9,
        rtt_ns: 70_200_000,
        delivery_rate_bps: 12_100_000,
        epoch_packets: 16,
        ..EpochRecord::default()
    });
    let bundle = |name: &str| BundleRecord {
        name: name.into(),
        epochs: epochs.clone().collect(),
        queue: (0..200)
            .map(|k| QueueSample { at_ns: k * 10_000_000, packets: 90, bytes: 0 })
            .collect(),
        decisions: (0..20)
            .map(|k| DecisionRecord {
                at_ns: k * 100_000_000,
                rate_bps: Some(95_000_000),
                min_rtt_ns: Some(50_100_000),
                bottleneck_bps: Some(96_000_000),
                state: "shaping".into(),
                reason: "window".into(),
                ..DecisionRecord::default()
            })
            .collect(),
        counters: BundleCounters {
            boundaries_sent: 200,
            boundaries_matched: 199,
            bytes_sent: 1_000_000,
            message_bytes: 1_000,
            ..BundleCounters::default()
        },
        ..BundleRecord::default()
    };
    let flow =
        |flow| FlowRecord { flow, bytes_per_100ms: vec![100_000; 25], ..FlowRecord::default() };
    let run = RunRecord {
        started_ns: 0,
        finished_ns: 2_500_000_000,
        requests: requests.collect(),
        flows: (0..experiment.flows.len()).map(flow).collect(),
        links: vec![link("forward"), link("reverse")],
        bundles: experiment.bundles.iter().map(|b| bundle(&b.name)).collect(),
        attack: None,
        agent: None,
        cost: None,
        host: HostRecord {
            kernel: "6.1".into(),
            cpu_cores: vec![("sendbox".into(), 0.2), ("link".into(), 0.3)],
            ..HostRecord::default()
        },
    };
    let packets = [(); 2].map(|()| PacketLog::Rows(packets(2000).collect())).to_vec();
    RunRows { run, packets }
}
