use forebay_core::cc::{self, Algorithm, Registry};
use forebay_core::record::Fate;
use forebay_core::spec;
use forebay_core::units::Rate;

use super::*;
use crate::metrics::{describe, evaluate};
use crate::plan::Plan;
use crate::plan::library::{self, Source};
use crate::rows::PacketLog;

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
    Sim.run(experiment, Path::new(""), &mut |_| ()).unwrap()
}

/// The rows, and every packet of both links.
fn rows_and_packets(experiment: &Experiment) -> (RunRows, [Vec<PacketRecord>; 2]) {
    let mut packets = [Vec::new(), Vec::new()];
    let visit = |sight: Sight<'_>| {
        if let Sight::OnLink(link, packet) = sight {
            packets[link].push(*packet);
        }
    };
    let rows = run(experiment, false, &mut |_| (), visit).unwrap();
    (rows, packets)
}

/// The published step in the simulator: a run by the names of its figures.
fn rate_step_down(plan: &Plan, seed: u64) -> impl Fn(&str) -> f64 + use<> {
    let cell = plan.cells.iter().find(|it| it.name == "rate-down").unwrap();
    let experiment = plan.experiment(&plan.arms[0], cell, seed).unwrap();
    let evaluation = evaluate(&experiment, &rows_of(&experiment)).unwrap();
    move |name: &str| {
        let forward = evaluation.links.iter().find(|link| link.name == "forward").unwrap();
        let found = evaluation.flows[0].metrics.get(name).or_else(|| forward.metrics.get(name));
        found.unwrap_or_else(|| panic!("{name} is missing"))
    }
}

/// ccperf's experiment 60: figure, its value, and how far a median may be from it, as a share of it and
/// on top of that.
const PUBLISHED_STEP: [(&str, f64, f64, f64); 24] = [
    ("mean_throughput_l4", 27.72, 0.005, 0.0),
    ("mean_throughput_l7", 27.72, 0.005, 0.0),
    ("mean_delivery_rate_l4", 27.71, 0.01, 0.0),
    ("mean_sending_rate_l4", 27.80, 0.005, 0.0),
    ("mean_sending_rate_l7", 29.85, 0.005, 0.0),
    ("mean_sending_rate_l1", 28.76, 0.005, 0.0),
    ("mean_cwnd_l4", 46.95, 0.015, 0.0),
    ("mean_in_flight_l4", 46.46, 0.015, 0.0),
    ("mean_srtt_l4", 21.81, 0.015, 0.0),
    ("mean_est_qdelay_l4", 6.81, 0.06, 0.0),
    ("mean_network_power_l4", 1518.17, 0.015, 0.0),
    ("mean_utility_mpdf_l4", -0.05, 0.0, 0.003),
    ("mean_utilization_bw_l4", 0.92, 0.0, 0.01),
    ("mean_utilization_bdp_l4", 1.46, 0.05, 0.0),
    ("flow_completion_time_l4", 15.0, 0.0, 0.015),
    ("mean_one_way_delay_l7", 1457.08, 0.015, 0.0),
    ("mean_idt_ewma_l4", 0.58, 0.03, 0.0),
    ("mean_qdisc_length_l2", 8.62, 0.06, 0.0),
    ("mean_qdisc_delay_l2", 5.7, 0.0, 0.4),
    ("total_qdisc_drops_l2", 74.0, 0.0, 8.0),
    ("total_retransmissions_l4", 74.0, 0.0, 8.0),
    ("mean_recovery_time_l4", 28.64, 0.1, 0.0),
    ("cov_throughput_l4", 0.67, 0.0, 0.02),
    ("total_rtos_l4", 0.0, 0.0, 0.0),
];

#[test]
fn a_plan_gives_ccperf_s_figures_of_its_published_step() {
    let mut wrong = Vec::new();
    // The single run keeps the medians' bounds too, though it could differ by more.
    for sets in [&["start_jitter=1rtt", "seeds=1..9"][..], &[]] {
        let parsed = sets.iter().map(|it| crate::plan::Override::parse(it).unwrap());
        let parsed: Vec<_> = parsed.collect();
        let plan = Plan::load_as_published("ccperf/responsiveness_step", &parsed).unwrap();
        let runs: Vec<_> = plan.seeds.iter().map(|seed| rate_step_down(&plan, seed)).collect();
        for (name, published, share, margin) in PUBLISHED_STEP {
            let mut found: Vec<f64> = runs.iter().map(|figure| figure(name)).collect();
            found.sort_by(f64::total_cmp);
            let median = found[found.len() / 2];
            if (median - published).abs() > share * published + margin {
                wrong.push(format!("{sets:?} {name}: {median}, ccperf {published}"));
            }
        }
        for figure in &runs {
            assert_eq!(figure("total_retransmissions_l4"), figure("total_qdisc_drops_l2"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_plan_of_the_benchmark_can_be_simulated_and_measures_the_algorithm_under_test() {
    let sets = [crate::plan::Override::parse("aut=[\"newreno\", \"bbr\"]").unwrap()];
    for name in library::benchmark() {
        for plan in [Plan::load(name, &sets), Plan::load_as_published(name, &sets)] {
            for experiment in plan.unwrap().experiments() {
                let experiment = experiment.unwrap();
                Sim.check(&experiment).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
        // The runs as published are the short ones.
        let plan = Plan::load_as_published(name, &[]).unwrap();
        let experiment = plan.experiments().next().unwrap().unwrap();
        let evaluation = evaluate(&experiment, &rows_of(&experiment)).unwrap();
        assert!(evaluation.invalid.is_empty(), "{name}: {:?}", evaluation.invalid);
        let aut = evaluation.flows.iter().find(|flow| flow.name == "aut").unwrap();
        assert!(aut.metrics.get("mean_throughput_l4") > Some(0.1), "{name}");
    }
}

#[test]
fn what_only_a_simulator_sees_is_described() {
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
fn a_flow_with_a_longer_way_takes_longer_and_the_path_stays() {
    let sets = ["flow.bulk.rtt=90ms", "flow.bulk.count=1", "flow.web.rtt=60ms"];
    let evaluation = |sets: &[&str]| {
        let experiment = experiment(sets);
        evaluate(&experiment, &rows_of(&experiment)).unwrap()
    };
    let (plain, longer) = (evaluation(&sets[1..2]), evaluation(&sets));
    let srtt = |it: &crate::metrics::Evaluation| it.flows[1].metrics.get("mean_srtt_l4").unwrap();
    assert!(srtt(&plain) >= 40.0 && srtt(&longer) >= 90.0, "{} {}", srtt(&plain), srtt(&longer));
    // A slowdown is against the flow's own round trip, and no request beats it.
    let slowdowns = longer.requests.iter().filter_map(|request| request.outcome.slowdown);
    assert!(slowdowns.clone().all(|slowdown| slowdown >= 1.0));
    assert!(slowdowns.fold(f64::MAX, f64::min) < 1.3);
}

#[test]
fn starts_are_drawn_from_the_seed_within_the_jitter() {
    let source = Source { file: "p".into(), folder: None, text: PLAN.into() };
    let sets = [crate::plan::Override::parse("start_jitter=0.5rtt").unwrap()];
    let plan = Plan::from_source(source, &sets).unwrap();
    let start = |seed| plan.experiment(&plan.arms[0], &plan.cells[0], seed).unwrap().flows[1].start;
    let (one, two) = (start(1), start(2));
    assert_eq!(start(1), one);
    assert_ne!(one, two);
    for start in [one, two] {
        assert!((Duration::from_millis(500)..Duration::from_millis(520)).contains(&start));
    }
}

#[test]
fn queues_mark_packets_where_the_plan_has_ecn_and_reasons_are_told() {
    let figures = |ecn: &str| {
        let codel = ["bottleneck.qdisc=codel", "bottleneck.qdisc.ecn=true"];
        let experiment = experiment(&[ecn, codel[0], codel[1], "flow.bulk.count=4"]);
        let evaluation = evaluate(&experiment, &rows_of(&experiment)).unwrap();
        let forward = evaluation.links.into_iter().find(|link| link.name == "forward").unwrap();
        let names = ["marks_codel_packets", "drops_codel_packets"];
        names.map(|name| forward.metrics.get(name).unwrap())
    };
    let [marks, drops] = figures("ecn=classic");
    assert!(marks > 0.0, "{marks} {drops}");
    let [unmarked, dropped] = figures("ecn=off");
    assert!(unmarked == 0.0 && dropped > drops, "{unmarked} {dropped}");
}

#[test]
fn each_connection_of_a_flow_starts_by_itself_and_one_more_moves_no_other() {
    let starts = |count: u32| {
        let source = Source { file: "p".into(), folder: None, text: PLAN.into() };
        let sets = ["start_jitter=0.5rtt".into(), format!("flow.bulk.count={count}")];
        let sets = sets.map(|set: String| crate::plan::Override::parse(&set).unwrap());
        let plan = Plan::from_source(source, &sets).unwrap();
        let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
        let setup = super::setup::Setup::of(&experiment).unwrap();
        let of_bulk = setup.places.iter().zip(&setup.network.flows).filter(|it| it.0.flow == 1);
        of_bulk.map(|(_, flow)| flow.start).collect::<Vec<_>>()
    };
    let many = starts(10);
    let window = Duration::from_millis(500)..Duration::from_millis(520);
    assert!(many.len() == 10 && many.iter().all(|start| window.contains(start)), "{many:?}");
    let distinct: std::collections::BTreeSet<_> = many.iter().collect();
    assert_eq!(distinct.len(), 10, "{many:?}");
    assert_eq!(starts(1), many[..1]);
    assert_eq!(starts(3), many[..3]);
}

#[test]
fn every_request_is_answered_with_the_bytes_it_asked_for() {
    let experiment = experiment(&[]);
    let rows = rows_of(&experiment);
    // 8 Mbit/s of 30 kB for 2 s.
    assert!((60..=70).contains(&rows.run.requests.len()), "{}", rows.run.requests.len());
    let asked: u64 = rows.run.requests.iter().map(|request| request.size_bytes).sum();
    let web: Vec<_> = rows.run.flows.iter().filter(|row| row.flow == 0).collect();
    assert_eq!((web.len(), web[0].bytes), (1, asked));
    assert_eq!(web[0].bytes_per_100ms.iter().sum::<u64>(), asked);
    for request in &rows.run.requests {
        assert_eq!(request.sent_ns, Some(request.scheduled_ns), "clients are never late");
        // A round trip and 30 kB at 20 Mbit/s.
        assert!(request.finished_ns.unwrap() - request.scheduled_ns >= 52_000_000, "{request:?}");
        assert!(request.finished_ns.unwrap() <= rows.run.finished_ns);
    }
    let evaluation = evaluate(&experiment, &rows).unwrap();
    assert!(evaluation.invalid.is_empty(), "{:?}", evaluation.invalid);
}

#[test]
fn a_connection_for_each_request_costs_a_round_trip_and_answers_the_same() {
    let of = |sets: &[&str]| {
        let experiment = experiment(sets);
        let rows = rows_of(&experiment);
        let evaluation = evaluate(&experiment, &rows).unwrap();
        assert!(evaluation.invalid.is_empty(), "{:?}", evaluation.invalid);
        rows
    };
    let each = "flow.web.traffic.connections=\"each\"";
    let [kept, own] = [&[][..], &[each]].map(of);
    assert_eq!(kept.run.requests.len(), own.run.requests.len());
    let asked: u64 = own.run.requests.iter().map(|request| request.size_bytes).sum();
    let bytes = |rows: &RunRows| {
        let web = rows.run.flows.iter().find(|row| row.flow == 0).unwrap();
        (web.bytes, web.bytes_per_100ms.iter().sum::<u64>())
    };
    assert_eq!((bytes(&kept), bytes(&own)), ((asked, asked), (asked, asked)));
    for (kept, own) in kept.run.requests.iter().zip(&own.run.requests) {
        assert_eq!((kept.scheduled_ns, kept.size_bytes), (own.scheduled_ns, own.size_bytes));
        // A handshake, a round trip and 30 kB at 20 Mbit/s; nothing waits for another request.
        assert!(own.finished_ns.unwrap() - own.scheduled_ns >= 92_000_000, "{own:?}");
        assert!(own.sent_ns == Some(own.scheduled_ns) && !own.queued_behind);
    }
}

#[test]
fn flows_begin_and_end_when_the_plan_says_and_where() {
    let (rows, packets) = rows_and_packets(&experiment(&[]));
    let of_flow = |flow| rows.run.flows.iter().filter(move |row| row.flow == flow);
    for (index, bulk) in of_flow(1).enumerate() {
        let (before, rest) = bulk.bytes_per_100ms.split_at(5);
        assert_eq!((before, bulk.index as usize), (&[0; 5][..], index));
        assert!(rest[1] > 0 && rest.iter().sum::<u64>() == bulk.bytes);
        // What stood in queues at 1.5 s has come 21 ms and a round trip later, repairs after that.
        assert!(rest[15..].iter().sum::<u64>() <= rest[5], "{rest:?}");
    }
    let up = of_flow(2).next().unwrap();
    // 100 bytes of payload 880.3 times a second over a link that is never full.
    assert!((175_900..=176_100).contains(&up.bytes) && up.lost == 0, "{up:?}");
    for probe in of_flow(3) {
        assert!(probe.rtts_ns.iter().all(|rtt| *rtt >= 40_000_000) && probe.rtts_ns.len() > 10);
    }
    assert_eq!([of_flow(1).count(), of_flow(2).count(), of_flow(3).count()], [2, 1, 3]);
    let pairs = packets.map(|link| link.iter().map(|packet| packet.pair).max());
    assert_eq!(pairs, [Some(1), Some(1)]);
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
fn names_of_the_kernel_are_known_and_those_of_nobody_refused() {
    assert!(Sim.check(&experiment(&["flow.bulk.cc=reno"])).is_ok());
    for (set, expected) in [
        ("flow.bulk.cc=cdg", "--set: flow.bulk.cc.kind = cdg: allowed is one of"),
        ("flow.web.cc=kernel:cubic(gain=1)", "--set: flow.web.cc.gain = 1: allowed is one of"),
    ] {
        let error = Sim.check(&experiment(&[set])).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn what_the_network_refuses_is_refused_before_a_run() {
    let mut fast = greedy("cubic");
    fast.forward.rate = Some(Rate::from_mbit_per_sec(400_000));
    fast.stop = Duration::from_secs(130);
    let mut unordered = greedy("cubic");
    unordered.forward.changes = [2, 1]
        .map(|at| plan::Change { at: Duration::from_secs(at), rate: None, delay: None, loss: None })
        .to_vec();
    for (experiment, expected) in
        [(fast, "g: segments = "), (unordered, "g: bottleneck.at = 1s: allowed is not before")]
    {
        let error = Sim.check(&experiment).unwrap_err().to_string();
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
    // PPP and Ethernet; 40 ms for the handshake and 40 for the first window, or the latter alone.
    assert_eq!(opened("ns3").0, Some(1502));
    assert_eq!(opened("linux"), (Some(1514), true));
}

#[test]
fn a_bundle_holds_the_queue_and_judges_its_path_rightly() {
    let source = Source::plan("bundler/queue_shift").unwrap();
    let sets = ["stop=12s", "warmup=5s"].map(|set| crate::plan::Override::parse(set).unwrap());
    let plan = Plan::from_source(source, &sets).unwrap();
    let arm = plan.arms.iter().find(|arm| arm.name == "copa_sfq").unwrap();
    let experiment = plan.experiment(arm, &plan.cells[0], 1).unwrap();
    let rows = rows_of(&experiment);
    let bundle = &rows.run.bundles[0];
    assert_eq!((rows.run.bundles.len(), bundle.name.as_str(), bundle.hand_backs), (1, "a", 0));
    assert!(bundle.queue.is_sorted_by_key(|sample| sample.at_ns) && bundle.queue.len() >= 1200);
    let evaluation = evaluate(&experiment, &rows).unwrap();
    assert!(evaluation.invalid.is_empty(), "{:?}", evaluation.invalid);
    let metric = |name: &str| evaluation.bundles[0].metrics.get(name).unwrap();
    assert!(metric("queue_share_at_sendbox") > 0.85);
    assert!(metric("rtt_within_1ms") > 0.8 && metric("boundaries_matched") > 0.95);
    let of_all = ["rtt_within_1ms_of_all", "boundaries_matched_of_all"].map(metric);
    assert!(of_all.iter().all(|share| (0.7..1.0).contains(share)), "{of_all:?}");
    assert_eq!(metric("epochs_without_truth"), 0.0);
}

#[test]
fn several_paths_are_one_link_in_the_figures_and_each_has_its_own() {
    for balance in ["flow", "packet"] {
        let experiment = experiment(&[
            "bottleneck.paths=4",
            "bottleneck.path_spread=9ms",
            &format!("bottleneck.balance={balance}"),
            "flow.bulk.count=20",
            "bundle=[{ name = \"a\", cc = \"copa\", qdisc = \"sfq\" }]",
            "flow.bulk.bundle=a",
        ]);
        let rows = rows_of(&experiment);
        let names: Vec<&str> = rows.run.links.iter().map(|link| link.name.as_str()).collect();
        assert_eq!(names, ["forward", "reverse", "path-1", "path-2", "path-3", "path-4"]);
        let evaluation = evaluate(&experiment, &rows).unwrap();
        assert!(evaluation.invalid.is_empty(), "{:?}", evaluation.invalid);
        let figure = |link: usize, name: &str| evaluation.links[link].metrics.get(name).unwrap();
        let of_paths = |name: &str| (2..6).map(|path| figure(path, name)).sum::<f64>();
        let carried = figure(0, "throughput_mbps");
        assert!(carried > 10.0 && (carried / of_paths("throughput_mbps") - 1.0).abs() < 0.02);
        assert!((figure(0, "utilisation") - carried / 20.0).abs() < 1e-9);
        for name in ["queue_mean_packets", "drops_queue_packets"] {
            let whole = figure(0, name);
            assert!(whole > 0.0 && (whole - of_paths(name)).abs() < 1e-9, "{name}");
        }
        let together = evaluation.run.get("queue_total_mean_packets").unwrap();
        let at_sendbox = evaluation.bundles[0].metrics.get("queue_mean_packets").unwrap();
        let at_links = figure(0, "queue_mean_packets") + figure(1, "queue_mean_packets");
        assert!((together - at_links - at_sendbox).abs() < 1e-9, "{together}");
        assert_eq!(evaluation.bundles[0].metrics.get("epochs_without_truth"), Some(0.0));
    }
}

#[test]
fn a_pair_of_sites_with_a_link_of_its_own_takes_no_other() {
    let text = r#"
        name = "p"
        stop = "10s"
        warmup = "3s"
        bottleneck = { rate = "40Mbit/s", rtt = "20ms", qdisc = { kind = "fifo", limit = "1bdp" } }
        link = [{ name = "far", rate = "20Mbit/s", rtt = "100ms", qdisc = { kind = "fifo", limit = "1bdp" } }]
        bundle = [{ name = "far", cc = "copa" }]
        flow = [
            { name = "near", traffic = { kind = "greedy" } },
            { name = "bulk", bundle = "far", traffic = { kind = "greedy" } },
            { name = "probe", bundle = "far", traffic = { kind = "ping" } },
        ]
    "#;
    let source = Source { file: "p".into(), folder: None, text: text.into() };
    let plan = Plan::from_source(source, &[]).unwrap();
    let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
    let evaluation = evaluate(&experiment, &rows_of(&experiment)).unwrap();
    let part = |parts: &[crate::metrics::Part], name: &str| {
        parts.iter().find(|part| part.name == name).unwrap().metrics.clone()
    };
    let names: Vec<&str> = evaluation.links.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(names, ["forward", "reverse", "far", "far-back"]);
    for (link, mbps) in [("forward", 40.0), ("far", 20.0)] {
        let link = part(&evaluation.links, link);
        let throughput = link.get("throughput_mbps").unwrap();
        assert!((0.75 * mbps..=mbps).contains(&throughput), "{throughput} of {mbps}");
        assert_eq!(link.get("jain"), None, "a pair each");
    }
    let probe = part(&evaluation.flows, "probe").get("rtt_p50_ms").unwrap();
    assert!((100.0..115.0).contains(&probe), "{probe}");
    let bundle = part(&evaluation.bundles, "far");
    assert!(bundle.get("rtt_within_1ms").unwrap() > 0.8, "{bundle:?}");
    assert!((bundle.get("min_rtt_ms").unwrap() - 100.0).abs() < 2.0, "{bundle:?}");
}

#[test]
fn a_link_that_walks_carries_what_it_is_said_to_carry() {
    let walk = "{ of = \"rate\", every = \"50ms\", deviation = \"3Mbit/s\", min = \"5Mbit/s\", \
                max = \"15Mbit/s\" }";
    let sets = [format!("bottleneck.walk=[{walk}]"), "flow.bulk.count=20".into()];
    let experiment = experiment(&sets.each_ref().map(String::as_str));
    let rows = rows_of(&experiment);
    let evaluation = evaluate(&experiment, &rows).unwrap();
    assert!(evaluation.invalid.is_empty(), "{:?}", evaluation.invalid);
    let carried = evaluation.series.iter().find(|it| it.quantity == "throughput_mbps").unwrap();
    // Twenty flows keep the queue full from 0.7 s on.
    for bin in 8..15 {
        let from = Duration::from_millis(100 * bin);
        let bits =
            experiment.forward.capacity_bits(from, from + Duration::from_millis(100)).unwrap();
        let (_, mbps) = carried.points[bin as usize];
        assert!((4.9..15.1).contains(&mbps) && (mbps - bits / 1e5).abs() < 0.5, "{bin}: {mbps}");
    }
}

#[test]
fn flows_over_one_link_of_a_parking_lot_have_what_the_one_over_all_leaves() {
    let text = "name = \"lot\"\nstop = \"20s\"\nwarmup = \"5s\"\n\
        [bottleneck]\nrate = \"10Mbit/s\"\nrtt = \"40ms\"\nhops = 3\n\
        qdisc = { kind = \"fifo\", limit = \"1bdp\" }\n"
        .to_string();
    let flow = |name: &str, hop: &str| {
        format!("[[flow]]\nname = \"{name}\"\n{hop}\ntraffic = {{ kind = \"greedy\" }}\n")
    };
    let flows = [("all", ""), ("one", "hop = 1"), ("two", "hop = 2"), ("three", "hop = 3")];
    let text = flows.iter().fold(text, |text, (name, hop)| text + &flow(name, hop));
    let plan = Plan::from_source(Source { file: "lot".into(), folder: None, text }, &[]).unwrap();
    let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
    let evaluation = evaluate(&experiment, &rows_of(&experiment)).unwrap();
    assert!(evaluation.invalid.is_empty(), "{:?}", evaluation.invalid);
    let names: Vec<&str> = evaluation.links.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(names, ["forward", "reverse", "hop-2", "hop-3"]);
    let goodput = |flow: usize| evaluation.flows[flow].metrics.get("goodput_mbps").unwrap();
    for (link, flow) in [(0, 1), (2, 2), (3, 3)] {
        let carried = evaluation.links[link].metrics.get("throughput_mbps").unwrap();
        let share = (goodput(0) + goodput(flow)) / carried;
        assert!(carried > 9.0 && (0.93..1.0).contains(&share), "{link}: {carried}, {share}");
        assert!(goodput(0) < 0.6 * goodput(flow), "the one over all meets three queues");
    }
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
fn a_plan_may_name_a_law_that_was_registered() {
    let mut algorithms = Registry::default();
    let half = Algorithm {
        name: "half",
        build: &|_| {
            let rate = spec::Value::Text("10Mbit/s".into());
            cc::build(&spec::Spec::named("const").with("rate", rate), &[])
        },
        ..cc::constant::ALGORITHM
    };
    algorithms.register(half).unwrap();
    let web = PLAN.replace("pair = \"web\"", "bundle = \"a\"");
    let text = format!("{web}[[bundle]]\nname = \"a\"\ncc = \"half\"\n");
    let source = || Source { file: "p".into(), folder: None, text: text.clone() };
    let sets = [crate::plan::Override::parse("flow.bulk.cc=half").unwrap()];
    let error = Plan::from_source(source(), &sets).unwrap_err().to_string();
    assert!(error.contains("half"), "{error}");
    let plan = Plan::with_algorithms(source(), &sets, algorithms).unwrap();
    let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
    let rows = rows_of(&experiment);
    assert!(!rows.run.flows.is_empty() && !rows.run.bundles.is_empty());
}

#[test]
fn a_kernel_s_algorithm_is_the_stack_s_and_an_agent_s_that_of_the_registry() {
    let of = |cc: &str| rows_of(&greedy(cc)).run.flows.remove(0);
    let same = |one: &str, other: &str| assert_eq!(of(one), of(other), "{one}, {other}");
    same("kernel:cubic", "cubic");
    same("agent:cubic", "cubic(hystart=off, linux_growth=false)");
    same("bpf:cubic", "cubic(hystart=classic, linux_growth=true)");
    same("bpf:reno", "newreno");
    same("agent:copa", "copa(flow=true)");
    assert_ne!(of("agent:cubic"), of("cubic"), "Linux has HyStart");
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
    // 66 frames fit into the path and as many into the queue; slow start may go beyond.
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
fn bundles_of_site_a_share_its_uplink_and_those_of_site_b_do_not() {
    let bundle = |name: &str, keys: &str| {
        let flow = format!("[[flow]]\nname = \"{name}\"\nbundle = \"{name}\"\ncount = 4\n");
        let reversed = if keys == "reversed = true" { "reversed = true\n" } else { "" };
        format!(
            "{flow}{reversed}traffic = {{ kind = \"greedy\" }}\n\
             [[bundle]]\nname = \"{name}\"\ncc = \"copa\"\n{keys}\n"
        )
    };
    let text = format!(
        "name = \"p\"\nstop = \"10s\"\n[bottleneck]\nrate = \"40Mbit/s\"\nrtt = \"20ms\"\n\
         qdisc = \"fifo\"\n[reverse]\nrate = \"20Mbit/s\"\n[uplink]\nrate = \"16Mbit/s\"\n{}{}{}",
        bundle("one", "weight = 3"),
        bundle("back", "reversed = true"),
        bundle("other", "max_rate = \"20Mbit/s\""),
    );
    let source = Source { file: "p".into(), folder: None, text };
    let plan = Plan::from_source(source, &[]).unwrap();
    let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
    assert_eq!(experiment.uplink.as_ref().unwrap().bundles, [0, 2]);
    let bundles = rows_of(&experiment).run.bundles;
    let mbit = |place: usize| bundles[place].counters.bytes_sent as f64 * 8e-6 / 10.0;
    let seen = [mbit(0), mbit(1), mbit(2)];
    // In the first round trips there is less.
    assert!((11.0..12.5).contains(&seen[0]) && (3.7..4.2).contains(&seen[2]), "{seen:?}");
    assert!(seen[1] > 16.0, "{seen:?}");
}

#[test]
fn jitter_makes_packets_late_and_none_overtakes() {
    let experiment = experiment(&["bottleneck.jitter=4ms", "reverse.jitter=2ms"]);
    let (_, packets) = rows_and_packets(&experiment);
    for (packets, most_ns) in packets.iter().zip([4_000_000, 2_000_000]) {
        let mut left: Vec<_> = packets.iter().filter(|it| it.released_ns > 0).collect();
        left.sort_by_key(|packet| packet.departed_ns);
        assert!(left.windows(2).all(|pair| pair[0].released_ns <= pair[1].released_ns));
        let late = |packet: &&PacketRecord| packet.released_ns - packet.departed_ns - 20_000_000;
        let lates: Vec<u64> = left.iter().map(late).collect();
        assert!(lates.len() > 1000 && lates.iter().all(|late| *late <= most_ns));
        // Of packets close to each other most wait for a late one.
        assert!(lates.iter().sum::<u64>() / lates.len() as u64 > most_ns / 2);
    }
}

#[test]
fn packets_of_a_batch_leave_together() {
    let experiment = experiment(&["reverse.batch=10ms"]);
    let (_, packets) = rows_and_packets(&experiment);
    let left = packets[1].iter().filter(|it| it.released_ns > 0);
    let begins: Vec<u64> = left.map(|packet| packet.released_ns - 20_000_000).collect();
    assert!(begins.iter().all(|at| at.is_multiple_of(10_000_000)), "{begins:?}");
    let batches: std::collections::BTreeSet<u64> = begins.iter().copied().collect();
    assert!(begins.len() > 3 * batches.len(), "{} in {}", begins.len(), batches.len());
}

#[test]
fn the_true_round_trip_has_the_jitter_of_the_way_there() {
    let sets = ["stop=4s", "warmup=1s", "bottleneck.jitter=3ms", "reverse.jitter=3ms"];
    let sets: Vec<_> = sets.iter().map(|it| crate::plan::Override::parse(it).unwrap()).collect();
    let plan = Plan::load("bundler/queue_shift", &sets).unwrap();
    let arm = plan.arms.iter().find(|arm| arm.name == "copa_sfq").unwrap();
    let experiment = plan.experiment(arm, &plan.cells[0], 1).unwrap();
    let evaluation = evaluate(&experiment, &rows_of(&experiment)).unwrap();
    let close = evaluation.bundles[0].metrics.get("rtt_within_1ms").unwrap();
    assert!(close > 0.8, "{close}");
}

#[test]
fn reading_packets_as_the_run_goes_says_the_same_as_reading_a_log_of_all() {
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

/// A sendbox that serves DSCP 46 first: 6 Mbit/s of datagrams with `dscp` beside four greedy flows.
fn priority(dscp: u8) -> crate::metrics::Evaluation {
    let text = format!(
        r#"
name = "priority"
stop = "6s"
bottleneck = {{ rate = "20Mbit/s", rtt = "40ms", qdisc = {{ kind = "fifo", limit = "200p" }} }}
[[bundle]]
name = "a"
cc = {{ kind = "const", rate = "90%" }}
[bundle.qdisc]
kind = "prio"
bands = [{{ kind = "fifo", limit = "100p" }}, {{ kind = "fifo", limit = "100p" }}]
classes = [{{ dscp = 46, class = 0 }}]
[[flow]]
name = "voice"
bundle = "a"
dscp = {dscp}
traffic = {{ kind = "cbr", rate = "6Mbit/s" }}
[[flow]]
name = "bulk"
bundle = "a"
count = 4
traffic = {{ kind = "greedy" }}
"#
    );
    let source = Source { file: "p".into(), folder: None, text };
    let plan = Plan::from_source(source, &[]).unwrap();
    let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
    evaluate(&experiment, &rows_of(&experiment)).unwrap()
}

#[test]
fn a_sendbox_of_strict_priority_loses_nothing_of_the_class_that_goes_first() {
    let of_flow = |it: &crate::metrics::Evaluation, flow: usize, name: &str| {
        it.flows[flow].metrics.get(name).unwrap()
    };
    let (first, among_others) = (priority(46), priority(0));
    assert_eq!(first.flows[0].metrics.get("datagrams_lost"), None);
    assert!(of_flow(&among_others, 0, "datagrams_lost") > 50.0);
    // The greedy flows have what is left of 18 Mbit/s.
    let bulk = of_flow(&first, 1, "goodput_mbps");
    assert!((9.0..12.0).contains(&bulk), "{bulk}");
}

#[test]
fn rules_about_what_simulated_packets_lack_are_refused_by_their_key() {
    let qdisc = "{ kind = \"prio\", bands = [\"fifo\"], classes = [{ port = 80, class = 0 }] }";
    let experiment = experiment(&[&format!("bottleneck.qdisc={qdisc}")]);
    let error = Sim.check(&experiment).unwrap_err().to_string();
    assert!(error.starts_with("p: bottleneck.qdisc.classes[0].port = 80: allowed is"), "{error}");
}

/// What a client sees of a video for 60 s over a link of `rate`, from the run's third second.
fn video(rate: &str, rates: &str, beside: &str) -> crate::metrics::Metrics {
    let text = format!(
        "name = \"v\"\nstop = \"63s\"\n\
         bottleneck = {{ rate = \"{rate}\", rtt = \"40ms\", qdisc = {{ kind = \"fifo\", limit = \"1bdp\" }} }}\n\
         [[flow]]\nname = \"video\"\nstart = \"3s\"\n\
         traffic = {{ kind = \"video\", rates = [{rates}], segment = \"2s\" }}\n{beside}"
    );
    let source = Source { file: "v".into(), folder: None, text };
    let plan = Plan::from_source(source, &[]).unwrap();
    let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
    let rows = rows_of(&experiment);
    let flow = &rows.run.flows[0];
    assert!(flow.bytes > 0 && flow.bytes_per_100ms.iter().sum::<u64>() <= flow.bytes);
    evaluate(&experiment, &rows).unwrap().flows.remove(0).metrics
}

#[test]
fn a_video_plays_at_the_rate_that_the_path_allows_and_stalls_where_it_allows_none() {
    let ladder = "\"1Mbit/s\", \"5Mbit/s\", \"8Mbit/s\", \"16Mbit/s\", \"20Mbit/s\"";
    let alone = video("24Mbit/s", ladder, "");
    let get = |of: &crate::metrics::Metrics, name: &str| of.get(name).unwrap();
    // A segment of the lowest rate takes little more than a few round trips.
    assert!((200.0..600.0).contains(&get(&alone, "video_startup_ms")), "{alone:?}");
    assert!((14.0..16.0).contains(&get(&alone, "video_rate_mbps")), "{alone:?}");
    assert_eq!((get(&alone, "video_rebuffers"), get(&alone, "video_rebuffering_s")), (0.0, 0.0));
    assert!(
        (1.0..5.0).contains(&get(&alone, "video_switches"))
            && get(&alone, "video_settled_s") < 10.0
    );

    let bulk = "[[flow]]\nname = \"bulk\"\ntraffic = { kind = \"greedy\" }\n";
    let beside = video("24Mbit/s", ladder, bulk);
    assert!(get(&beside, "video_rate_mbps") < 12.0, "{beside:?}");

    let starved = video("4Mbit/s", "\"5Mbit/s\"", "");
    // Each segment takes 2.5 s and more, and is played in 2 s.
    assert!(get(&starved, "video_rebuffers") > 15.0, "{starved:?}");
    assert!((10.0..25.0).contains(&get(&starved, "video_rebuffering_s")), "{starved:?}");
    assert_eq!((get(&starved, "video_switches"), get(&starved, "video_rate_mbps")), (0.0, 5.0));
}

#[test]
fn a_constant_window_and_an_initial_window_are_in_flight_from_the_first_round_trip_on() {
    let samples = |keys: &str| {
        let text = format!(
            "name = \"w\"\nstop = \"3s\"\n\
             bottleneck = {{ rate = \"24Mbit/s\", rtt = \"40ms\", qdisc = {{ kind = \"fifo\", limit = \"1000p\" }} }}\n\
             [[flow]]\nname = \"proxy\"\ntraffic = {{ kind = \"greedy\" }}\n{keys}\n"
        );
        let source = Source { file: "w".into(), folder: None, text };
        let plan = Plan::from_source(source, &[]).unwrap();
        let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
        let rows = rows_of(&experiment);
        let queue = evaluate(&experiment, &rows).unwrap();
        let queue = queue.links[0].metrics.get("queue_max_packets").unwrap();
        (rows.run.flows[0].samples.clone(), queue)
    };
    let (constant, queue) = samples("cc = { kind = \"agent:const\", cwnd = \"450p\" }");
    assert!(constant.iter().all(|sample| sample.cwnd_segments == 450.0));
    // 80 of them fill the path.
    assert!((360.0..=450.0).contains(&queue), "{queue}");
    let (large, _) = samples("initial_window = 450\ncc = \"newreno\"");
    assert_eq!((large[0].cwnd_segments, large[1].cwnd_segments), (450.0, 450.0));
    let (usual, _) = samples("");
    assert_eq!(usual[0].cwnd_segments, 10.0);
}
