//! Links: queues, several links, walks, jitter and batches.

use super::*;

#[test]
fn marks_and_drops_are_counted_by_reason() {
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
fn several_paths_sum_up_to_one_link() {
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
fn pair_with_an_own_link_takes_no_other() {
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
fn link_with_random_walk_carries_its_recorded_capacity() {
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
fn parking_lot_flow_gets_the_smaller_share() {
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
        // Among packets close to each other, most wait for a late one.
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
fn true_round_trip_includes_forward_jitter() {
    let sets = ["stop=4s", "warmup=1s", "bottleneck.jitter=3ms", "reverse.jitter=3ms"];
    let sets: Vec<_> = sets.iter().map(|it| crate::plan::Override::parse(it).unwrap()).collect();
    let plan = Plan::load("bundler/queue_shift", &sets).unwrap();
    let arm = plan.arms.iter().find(|arm| arm.name == "copa_sfq").unwrap();
    let experiment = plan.experiment(arm, &plan.cells[0], 1).unwrap();
    let evaluation = evaluate(&experiment, &rows_of(&experiment)).unwrap();
    let close = evaluation.bundles[0].metrics.get("rtt_within_1ms").unwrap();
    assert!(close > 0.8, "{close}");
}
