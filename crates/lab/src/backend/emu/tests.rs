use super::*;
use crate::plan::library::Source;

#[test]
fn settings_that_real_boxes_lack_are_refused() {
    let check = |keys: &str| {
        let text = format!(
            "name = \"p\"\nstop = \"3s\"\n[bottleneck]\nrate = \"8Mbit/s\"\nrtt = \"20ms\"\nqdisc = \
             \"fifo\"\n[[flow]]\nbundle = \"a\"\ntraffic = {{ kind = \"greedy\" }}\n[[bundle]]\nname = \
             \"a\"\ncc = \"copa\"\n{keys}"
        );
        let source = Source { file: "p".into(), folder: None, text };
        let plan = crate::plan::Plan::from_source(source, &[]).unwrap();
        let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
        check_boxes(&experiment).map(|()| experiment)
    };
    let upset = |what: &str| format!("[[upset]]\nat = \"1s\"\nbundle = \"a\"\nwhat = {what}\n");
    let unseen = upset("\"unseen\"\nshare = \"50%\"");
    for (keys, reason) in [
        (
            "report_jitter = \"1ms\"".into(),
            "bundle.a.report_jitter: the boxes of the back end emu get",
        ),
        (
            "timestamp_jitter = \"1ms\"".into(),
            "bundle.a.timestamp_jitter: the boxes of the back end",
        ),
        ("[uplink]\nrate = \"9Mbit/s\"".into(), "uplink.rate = 9Mbit/s: the back end emu has a"),
        (upset("\"suspend\""), "[[upset]] suspend and resume: the boxes of the back end emu share"),
        (
            format!("reversed = true\n{unseen}"),
            "[[upset]] unseen: the back end emu has a second path",
        ),
    ] {
        let error = check(&keys).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("allowed with sim"), "{error}");
    }
    let keys = format!("datapath = \"kernel\"\nunseen = 0.2\nclock = \"0s +300ppm\"\n{unseen}");
    let bundle = &check(&keys).unwrap().bundles[0];
    assert_eq!(bundle.clock, forebay_core::clock::Clock::fast_by(300.0));
    assert!(bundle.in_kernel);
}

#[test]
fn links_that_emu_lacks_are_refused() {
    let walk = "{ of = \"loss\", every = \"1s\", deviation = 0.01, min = 0, max = 0.1 }";
    for (set, reason) in [
        ("bottleneck.paths=2".into(), "bottleneck.paths: the back end emu has one path"),
        ("bottleneck.hops=2".into(), "bottleneck.hops: the back end emu has one link each way"),
        (format!("bottleneck.walk=[{walk}]"), "bottleneck.walk: the back end emu has no random"),
        ("bottleneck.clears_ecn=true".into(), "bottleneck.clears_ecn: the back end emu has links"),
        (
            "reverse={ rate = \"9Mbit/s\", ack_filter = true }".into(),
            "reverse.ack_filter: the back end emu has no filter of ACKs",
        ),
        (format!("reverse.walk=[{walk}]"), "reverse.walk: the back end emu has no random walks"),
        (
            "link=[{ name = \"cross\", rate = \"9Mbit/s\", rtt = \"9ms\", qdisc = \"fifo\" }]"
                .into(),
            "link: the back end emu has one bottleneck for all pairs",
        ),
    ] {
        let set = crate::plan::Override::parse(&set).unwrap();
        let source = Source::plan("platforms/aggregate_algorithms").unwrap();
        let plan = crate::plan::Plan::from_source(source, &[set]).unwrap();
        let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
        let error = Emu.check(&experiment).unwrap_err().to_string();
        assert!(error.starts_with(reason) && error.ends_with("allowed with sim"), "{error}");
    }
    let plan = crate::plan::Plan::load("scale/deployment", &[]).unwrap();
    let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
    let error = Emu.check(&experiment).unwrap_err().to_string();
    assert!(error.starts_with("topology: the back end emu has one bottleneck"), "{error}");
}

#[test]
fn routed_gateway_has_bundles_over_own_links() {
    let plan = crate::plan::Plan::load("bundler/real_paths_routed", &[]).unwrap();
    let made = |arm: &str| {
        let arm = plan.arms.iter().find(|it| it.name == arm).unwrap();
        let experiment = plan.experiment(arm, &plan.cells[0], 1).unwrap();
        check_links(&experiment).and_then(|()| check_boxes(&experiment)).unwrap();
        experiment
    };
    let with = made("copa_kernel");
    assert!(with.routed && with.bundles.len() == with.pairs.len());
    let plan::OwnLink { there, back, .. } = &with.own_links[0];
    assert_eq!([&there.name, &back.name], ["belgium", "belgium-back"]);
    let delays = with.own_links.iter().map(|own| own.there.delay.as_micros());
    assert_eq!(delays.collect::<Vec<_>>(), [50_500, 53_000, 17_000, 15_000, 80_000]);
    assert!(with.own_links.iter().all(|own| own.back.rate().is_none()));
    // Arms differ in their boxes alone.
    let without = made("status_quo");
    assert!(without.routed && without.bundles.is_empty());
}

#[test]
fn bpf_reno_is_by_hand_newreno_from_core() {
    for name in ["reno", "newreno"] {
        let set = format!("flow.bulk.cc=bpf:{name}");
        let set = crate::plan::Override::parse(&set).unwrap();
        let plan = crate::plan::Plan::load("platforms/behaviour", &[set]).unwrap();
        let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
        let called = &experiment.flows[0].cc.kind;
        let kind = agent::native::KernelAlgorithm::named(called).unwrap();
        let is_by_hand = matches!(kind, agent::native::KernelAlgorithm::ByHand(_));
        assert_eq!((called.as_str(), is_by_hand), (name, name == "reno"));
    }
}

/// A plan with these keys at its head, this queue and these flows.
fn planned(head: &str, qdisc: &str, flows: &str) -> Experiment {
    let text = format!(
        "name = \"p\"\nstop = \"9s\"\n{head}[bottleneck]\nrate = \"8Mbit/s\"\nrtt = \"20ms\"\n\
         qdisc = {qdisc}\n{flows}"
    );
    let source = Source { file: "p".into(), folder: None, text };
    let plan = crate::plan::Plan::from_source(source, &[]).unwrap();
    plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap()
}

#[test]
fn flows_on_one_route_share_the_initial_window() {
    let windows = |other: &str| {
        let greedy = "traffic = { kind = \"greedy\" }";
        let flows = format!(
            "[[flow]]\nname = \"one\"\ninitial_window = 450\n{greedy}\n\
             [[flow]]\nname = \"two\"\n{greedy}\n{other}\n"
        );
        let checked = check_windows(&planned("", "\"fifo\"", &flows));
        checked.map_err(|error| error.to_string())
    };
    let expected = "flow.two.initial_window = 10: the back end emu has one initial window for each direction \
                    between a pair of sites, allowed is 450 as for flow.one, or another pair";
    assert_eq!(windows("").unwrap_err(), expected);
    for other in ["initial_window = 450", "reversed = true", "pair = \"other\""] {
        assert_eq!(windows(other), Ok(()), "{other}");
    }
}

#[test]
fn receivers_unlike_the_kernels_are_refused_by_name() {
    for (given, key) in [
        ("receiver = \"dividing\"", "receiver"),
        ("ack_every = 4", "ack_every"),
        ("ack_delay = \"100ms\"", "ack_delay"),
    ] {
        let flow = format!("[[flow]]\ntraffic = {{ kind = \"greedy\" }}\n{given}\n");
        let refused = Emu.check(&planned("", "\"fifo\"", &flow)).unwrap_err().to_string();
        assert!(refused.contains(&format!("flow.greedy.{key}: the receivers")), "{refused}");
    }
    let media = "[[flow]]\ntraffic = { kind = \"media\" }\n";
    let refused = Emu.check(&planned("", "\"fifo\"", media)).unwrap_err().to_string();
    assert!(refused.contains("flow.media.traffic.kind = media: the back end emu"), "{refused}");
    let slow = "[[flow]]\ntraffic = { kind = \"greedy\" }\nreceiver = \"honest\"\n\
                read_rate = \"1Mbit/s\"\nreceive_buffer = \"64KB\"\n";
    assert!(check_receivers(&planned("", "\"fifo\"", slow)).is_ok());
}

#[test]
fn unknown_kernel_algorithm_gets_nearest_name_and_agent() {
    let allowed = |kind| of_kernel(&Spec::named(kind), "reno cubic bbr\n");
    let has = "an algorithm of this kernel or of an installed module: reno, cubic, bbr";
    assert_eq!(allowed("brutal"), has);
    assert_eq!(allowed("bbbr"), format!("{has}; nearest is bbr"));
    assert!(allowed("copa").ends_with("; with agent:copa an agent controls the kernel's TCP"));
}
