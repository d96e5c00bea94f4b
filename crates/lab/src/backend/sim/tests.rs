//! Simulated plans: shared parts of their tests, and the records of a run.

mod bundles;
mod extremes;
mod flows;
mod links;
mod published;
mod sites;

use forebay_core::link::Service;
use forebay_core::record::Fate;
use forebay_core::units::Rate;

use super::*;
use crate::metrics::PacketLog;
use crate::metrics::{describe, evaluate};
use crate::plan::Plan;
use crate::plan::library::Source;

const PLAN: &str = r#"
name = "p"
stop = "2s"
drain = "3s"
bottleneck = { rate = "20Mbit/s", rtt = "40ms", qdisc = { kind = "fifo", limit = "50p" } }
reverse = { rate = "5Mbit/s" }
[[flow]]
name = "web"
pair = "web"
traffic = { kind = "requests", sizes = "30KB", load = "40%", connections = 5 }
[[flow]]
name = "bulk"
count = 2
start = "500ms"
stop = "1500ms"
traffic = { kind = "greedy" }
[[flow]]
name = "up"
reversed = true
traffic = { kind = "cbr", rate = "1Mbit/s", packet = "142B" }
[[flow]]
name = "probe"
count = 3
traffic = { kind = "ping" }
"#;

fn experiment(sets: &[&str]) -> Experiment {
    let source = Source { file: "p".into(), folder: None, text: PLAN.into() };
    let sets: Vec<_> = sets.iter().map(|it| crate::plan::Override::parse(it).unwrap()).collect();
    let plan = Plan::from_source(source, &sets).unwrap();
    plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap()
}

fn rows_of(experiment: &Experiment) -> RunRows {
    Sim::default().run(experiment, Path::new(""), &mut |_| ()).unwrap()
}

#[test]
fn a_run_that_is_stopped_gives_no_rows() {
    let (mut sim, stop) = (Sim::default(), Stop::default());
    sim.heed(&stop, 1);
    let mut steps = 0;
    let mut progress = |_| {
        steps += 1;
        stop.ask();
    };
    let ended = sim.run(&experiment(&[]), Path::new(""), &mut progress);
    assert!(matches!(ended.err(), Some(BackendError::Stopped)));
    assert_eq!(steps, 1);
}

/// The rows, and every packet of both links.
fn rows_and_packets(experiment: &Experiment) -> (RunRows, [Vec<PacketRecord>; 2]) {
    let mut packets = [Vec::new(), Vec::new()];
    let visit = |sight: Sight<'_>| {
        if let Sight::OnLink(link, packet) = sight {
            packets[link].push(*packet);
        }
    };
    let (stop, cores) = (Stop::default(), Cores::new(1));
    let with = With { stop: &stop, share: cores.begin() };
    let rows = run(experiment, false, &with, &mut |_| (), visit).unwrap();
    (rows, packets)
}

#[test]
fn simulator_only_metrics_are_described() {
    let rows = rows_of(&experiment(&[])).run;
    let of_flows = rows.flows.iter().flat_map(|flow| &flow.measured);
    let of_links = rows.links.iter().flat_map(|link| &link.measured);
    let names: Vec<&str> = of_flows.chain(of_links).map(|(name, _)| *name).collect();
    assert!(names.contains(&"mean_cwnd_l4") && names.contains(&"mean_qdisc_delay_l2"), "{names:?}");
    for name in names {
        assert!(describe(name).is_some(), "{name}");
    }
}

#[test]
fn no_packet_is_missing_in_the_log() {
    let (_, [all, _]) = rows_and_packets(&experiment(&["bottleneck.loss=0.01"]));
    let count = |fate| all.iter().filter(|packet| packet.fate == fate).count();
    let ended = [Fate::Delivered, Fate::QueueDrop, Fate::Lost, Fate::Inside].map(count);
    assert_eq!(ended.iter().sum::<usize>(), all.len());
    assert!(ended[0] > 2000 && ended[2] > 10, "{ended:?}");
    assert!(all.is_sorted_by_key(|packet| packet.arrived_ns));
    for packet in all.iter().filter(|packet| packet.fate == Fate::Delivered) {
        // The queue of 50 packets, the one being sent and its own time at 20 Mbit/s.
        assert!(packet.departed_ns - packet.arrived_ns <= 52 * 605_600 + 52, "{packet:?}");
        assert_eq!(packet.released_ns - packet.departed_ns, 20_000_000);
    }
}

#[test]
fn refusals_of_the_network_precede_the_run() {
    let mut fast = greedy("cubic");
    fast.forward.service = Service::Rate(Rate::from_mbit_per_sec(400_000));
    fast.stop = Duration::from_secs(130);
    let mut unordered = greedy("cubic");
    unordered.forward.changes = [2, 1]
        .map(|at| plan::Change { at: Duration::from_secs(at), rate: None, delay: None, loss: None })
        .to_vec();
    for (experiment, expected) in
        [(fast, "g: segments = "), (unordered, "g: bottleneck.at = 1s: allowed is not before")]
    {
        let error = Sim::default().check(&experiment).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn the_stack_is_the_plan_s() {
    let opened = |stack| {
        let experiment = experiment(&[&format!("stack={stack}")]);
        let (rows, [forward, _]) = rows_and_packets(&experiment);
        let sizes = forward.iter().map(|packet| packet.bytes).max();
        let first = rows.run.flows.iter().find(|row| row.flow == 1).unwrap();
        (sizes, first.bytes_per_100ms[5] > 0)
    };
    // PPP and Ethernet; 40 ms for the handshake and 40 ms for the first window, or only the first window.
    assert_eq!(opened("ns3").0, Some(1502));
    assert_eq!(opened("linux"), (Some(1514), true));
}

/// One greedy flow for 2 s with a congestion control of its own.
fn greedy(cc: &str) -> Experiment {
    let text = format!(
        "name = \"g\"\nstop = \"2s\"\n\
         bottleneck = {{ rate = \"20Mbit/s\", rtt = \"40ms\", qdisc = {{ kind = \"fifo\", limit = \"1bdp\" }} }}\n\
         flow = [{{ name = \"bulk\", cc = \"{cc}\", traffic = {{ kind = \"greedy\" }} }}]\n"
    );
    let source = Source { file: "g".into(), folder: None, text };
    let plan = Plan::from_source(source, &[]).unwrap();
    plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap()
}

#[test]
fn connections_are_looked_at_every_10_ms() {
    let experiment = greedy("cubic");
    let rows = rows_of(&experiment);
    let samples = &rows.run.flows[0].samples;
    let times: Vec<u64> = samples.iter().map(|sample| sample.at_ns / 1_000_000).collect();
    assert_eq!(times, (0..200).map(|k| k * 10).collect::<Vec<_>>());
    assert_eq!(samples[0].cwnd_segments, 10.0);
    assert!(samples.windows(2).all(|pair| pair[0].retransmissions <= pair[1].retransmissions));
    let evaluation = evaluate(&experiment, &rows).unwrap();
    let metric = |name: &str| evaluation.flows[0].metrics.get(name).unwrap();
    // 66 frames fit into the path and as many into the queue; slow start may overshoot.
    assert!((100.0..200.0).contains(&metric("peak_cwnd_l4")), "{}", metric("peak_cwnd_l4"));
    // From 10 to 33 segments: two round trips.
    assert!((70.0..=130.0).contains(&metric("half_bdp_after_ms")));
    let quantities = evaluation.series.iter().filter(|it| it.part == "flow");
    let quantities: Vec<&str> = quantities.map(|it| it.quantity).collect();
    assert_eq!(
        quantities,
        ["throughput_mbps", "cwnd_segments", "in_flight_segments", "srtt_ms", "retransmissions"]
    );
}

#[test]
fn streamed_packets_give_the_metrics_of_a_log() {
    let bundles = Source::plan("bundler/queue_shift_both").unwrap();
    let bundles = Plan::from_source(
        bundles,
        &["stop=3s", "warmup=1s"].map(|set| crate::plan::Override::parse(set).unwrap()),
    );
    let bundles = bundles.unwrap();
    let arm = bundles.arms.iter().find(|arm| arm.name == "copa_sfq").unwrap();
    let bundles = bundles.experiment(arm, &bundles.cells[0], 1).unwrap();
    assert_eq!(bundles.bundles.len(), 2);
    let unruly = experiment(&[
        "bottleneck.loss=0.01",
        "bottleneck.reorder=0.02",
        "bottleneck.qdisc=sfq",
        "window=[{ name = \"late\", from = \"1s\", to = \"1750ms\" }]",
    ]);
    let change = "bottleneck.change=[{ at = \"1s\", rtt = \"10ms\", rate = \"10Mbit/s\" }]";
    for experiment in [bundles, unruly, experiment(&["stack=ns3", change])] {
        let (mut rows, packets) = rows_and_packets(&experiment);
        let one = evaluate(&experiment, &rows).unwrap();
        for (log, packets) in rows.packets.iter_mut().zip(packets) {
            assert!(packets.len() > 1000);
            *log = PacketLog::Rows(packets);
        }
        let other = evaluate(&experiment, &rows).unwrap();
        assert_eq!(format!("{one:?}"), format!("{other:?}"));
    }
}
