//! Flows: their start, their traffic, and the algorithm that decides.

use forebay_core::cc::{self, Algorithm, Registry};
use forebay_core::spec;

use super::*;

#[test]
fn longer_flow_leaves_the_path_unchanged() {
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
fn starts_follow_the_seed_within_the_jitter() {
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
fn added_connection_moves_no_start_of_another() {
    let starts = |count: u32| {
        let source = Source { file: "p".into(), folder: None, text: PLAN.into() };
        let sets = ["start_jitter=0.5rtt".into(), format!("flow.bulk.count={count}")];
        let sets = sets.map(|set: String| crate::plan::Override::parse(&set).unwrap());
        let plan = Plan::from_source(source, &sets).unwrap();
        let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
        let setup = super::set_up(&experiment).unwrap();
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
fn every_request_is_answered_in_full() {
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
fn connection_per_request_costs_a_round_trip() {
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
fn flows_follow_times_and_sites_of_the_plan() {
    let (rows, packets) = rows_and_packets(&experiment(&[]));
    let of_flow = |flow| rows.run.flows.iter().filter(move |row| row.flow == flow);
    for (index, bulk) in of_flow(1).enumerate() {
        let (before, rest) = bulk.bytes_per_100ms.split_at(5);
        assert_eq!((before, bulk.index as usize), (&[0; 5][..], index));
        assert!(rest[1] > 0 && rest.iter().sum::<u64>() == bulk.bytes);
        // Packets queued at 1.5 s have arrived 21 ms and a round trip later, retransmissions after that.
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
fn kernel_names_are_known_and_unknown_names_refused() {
    assert!(Sim::default().check(&experiment(&["flow.bulk.cc=reno"])).is_ok());
    for (set, expected) in [
        ("flow.bulk.cc=cdg", "--set: flow.bulk.cc.kind = cdg: allowed is one of"),
        ("flow.web.cc=kernel:cubic(gain=1)", "--set: flow.web.cc.gain = 1: allowed is one of"),
    ] {
        let error = Sim::default().check(&experiment(&[set])).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn plan_accepts_a_registered_algorithm() {
    let mut algorithms = Registry::default();
    let half = Algorithm {
        name: "half",
        build: &|_| {
            let rate = spec::Value::Text("10Mbit/s".into());
            cc::build(&spec::Spec::named("const").with("rate", rate), &[])
        },
        ..cc::algorithms::constant::ALGORITHM
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
fn platform_selects_stack_or_registry_algorithm() {
    let of = |cc: &str| rows_of(&greedy(cc)).run.flows.remove(0);
    let same = |one: &str, other: &str| assert_eq!(of(one), of(other), "{one}, {other}");
    same("kernel:cubic", "cubic");
    same("agent:cubic", "cubic(hystart=off, linux_growth=false)");
    same("bpf:cubic", "cubic(hystart=classic, linux_growth=true)");
    same("bpf:reno", "newreno");
    same("bpf:newreno", "newreno");
    same("bpf:vegas", "vegas");
    same("agent:copa", "copa(flow=true)");
    assert_ne!(of("agent:cubic"), of("cubic"), "Linux has HyStart");
}

#[test]
fn ns3_hosts_refuse_agents_and_bpf() {
    for (cc, is_allowed) in
        [("cubic", true), ("kernel:cubic", true), ("agent:cubic", false), ("bpf:cubic", false)]
    {
        let mut experiment = greedy(cc);
        experiment.stack = forebay_scenario::Stack::Ns3;
        let checked = Sim::default().check(&experiment);
        assert_eq!(checked.is_ok(), is_allowed, "{cc}");
        if let Err(error) = checked {
            let expected = format!("flow.bulk.cc = {cc}: allowed is a name without agent: or bpf:");
            assert!(error.to_string().contains(&expected), "{error}");
        }
    }
}

/// Metrics of a client's video for 60 s over a link of `rate`, from the run's third second.
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
fn video_adapts_to_the_path_or_stalls() {
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
fn constant_and_initial_windows_fill_the_first_round() {
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
    // 80 segments fill the path.
    assert!((360.0..=450.0).contains(&queue), "{queue}");
    let (large, _) = samples("initial_window = 450\ncc = \"newreno\"");
    assert_eq!((large[0].cwnd_segments, large[1].cwnd_segments), (450.0, 450.0));
    let (usual, _) = samples("");
    assert_eq!(usual[0].cwnd_segments, 10.0);
}

/// Metrics of a live encoder of up to 20 Mbit/s over a link of 5 Mbit/s and 50 ms that holds a second.
fn live(cc: &str) -> crate::metrics::Metrics {
    let text = format!(
        "name = \"m\"\nstop = \"30s\"\nwarmup = \"10s\"\n\
         bottleneck = {{ rate = \"5Mbit/s\", rtt = \"50ms\", qdisc = {{ kind = \"fifo\", limit = \"1s\" }} }}\n\
         [[flow]]\ncc = \"{cc}\"\ntraffic = {{ kind = \"media\", max_rate = \"20Mbit/s\" }}"
    );
    let source = Source { file: "m".into(), folder: None, text };
    let plan = Plan::from_source(source, &[]).unwrap();
    let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
    let rows = rows_of(&experiment);
    let frames = &rows.run.flows[0].media.as_ref().unwrap().frames;
    // 30 a second; the last one is captured just before the end.
    assert_eq!(frames.len(), 901);
    evaluate(&experiment, &rows).unwrap().flows.remove(0).metrics
}

#[test]
fn live_encoder_follows_its_algorithm() {
    let [scream, cubic] = ["scream", "cubic"].map(live);
    let get = |of: &crate::metrics::Metrics, name| of.get(name).unwrap();
    assert!((3.5..4.9).contains(&get(&scream, "media_rate_mbps")), "{scream:?}");
    assert!((30.0..150.0).contains(&get(&scream, "media_delay_p95_ms")), "{scream:?}");
    assert_eq!(get(&scream, "media_late_share"), 0.0);
    let [slow, fast] = [&cubic, &scream].map(|of| get(of, "media_delay_p95_ms"));
    assert!(slow > fast, "{cubic:?}");
}

#[test]
fn sending_rate_covers_the_life_of_media() {
    let text = "name = \"m\"\nstop = \"20s\"\n\
        bottleneck = { rate = \"5Mbit/s\", rtt = \"50ms\", qdisc = { kind = \"fifo\", limit = \"1s\" } }\n\
        [[flow]]\nstart = \"5s\"\nstop = \"15s\"\ncc = \"scream\"\n\
        traffic = { kind = \"media\", min_rate = \"2Mbit/s\", start_rate = \"2Mbit/s\", max_rate = \"2Mbit/s\" }";
    let source = Source { file: "m".into(), folder: None, text: text.into() };
    let plan = Plan::from_source(source, &[]).unwrap();
    let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
    let rows = rows_of(&experiment);
    let row = &rows.run.flows[0];
    // The last frame is captured just before the end, and sent after it.
    let frames = &row.media.as_ref().unwrap().frames;
    assert!(frames.iter().all(|frame| frame.delay_ns.is_some()), "{:?}", frames.last());
    assert!(row.bytes_per_100ms[..50].iter().all(|bytes| *bytes == 0));
    let metrics = evaluate(&experiment, &rows).unwrap().flows.remove(0).metrics;
    let rate = metrics.get("mean_sending_rate_l4").unwrap();
    assert!((1.95..2.15).contains(&rate), "{rate}");
}
