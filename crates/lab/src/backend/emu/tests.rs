use forebay_core::cc::{self, constant};
use forebay_core::traffic::Connections;

use super::*;
use crate::algorithms::Own;
use crate::plan::library::Source;

/// The workloads of a flow of three loops of pings, with this jitter.
fn pings(jitter: &str) -> Plan {
    let text = format!(
        "name = \"p\"\nstop = \"3s\"\nstart_jitter = \"{jitter}\"\n[bottleneck]\nrate = \"8Mbit/s\"\n\
         rtt = \"20ms\"\nqdisc = \"fifo\"\n[[flow]]\nname = \"ping\"\ncount = 3\nstart = \"1s\"\n\
         traffic = {{ kind = \"ping\" }}\n"
    );
    let source = Source { file: "p".into(), folder: None, text };
    let plan = crate::plan::Plan::from_source(source, &[]).unwrap();
    let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
    let made = scenario(&experiment).unwrap();
    let starts: Vec<u64> = (0..3).map(|it| ns(experiment.flows[0].start_of(it))).collect();
    let of_workloads = made.scenario.pairs[0].workloads.iter().map(|it| it.start_ns);
    assert!(of_workloads.zip(starts).all(|(workload, plan)| workload == plan));
    made
}

#[test]
fn what_real_boxes_cannot_be_made_to_do_is_refused_with_the_reason() {
    let check = |keys: &str| {
        let text = format!(
            "name = \"p\"\nstop = \"3s\"\n[bottleneck]\nrate = \"8Mbit/s\"\nrtt = \"20ms\"\nqdisc = \
             \"fifo\"\n[[flow]]\nbundle = \"a\"\ntraffic = {{ kind = \"greedy\" }}\n[[bundle]]\nname = \
             \"a\"\ncc = \"copa\"\n{keys}"
        );
        let source = Source { file: "p".into(), folder: None, text };
        let plan = crate::plan::Plan::from_source(source, &[]).unwrap();
        let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
        check_boxes(&experiment).map(|()| scenario(&experiment).unwrap().scenario)
    };
    let upset = |what: &str| format!("[[upset]]\nat = \"1s\"\nbundle = \"a\"\nwhat = {what}\n");
    let unseen = upset("\"unseen\"\nshare = \"50%\"");
    for (keys, reason) in [
        (
            "report_jitter = \"1ms\"".into(),
            "bundle.a.report_jitter: the boxes of the back end emu are",
        ),
        (
            "timestamp_jitter = \"1ms\"".into(),
            "bundle.a.timestamp_jitter: the boxes of the back end",
        ),
        ("[uplink]\nrate = \"9Mbit/s\"".into(), "uplink.rate = 9Mbit/s: the back end emu has a"),
        (upset("\"suspend\""), "[[upset]] suspend and resume: the boxes of the back end emu share"),
        (
            format!("reversed = true\n{unseen}"),
            "[[upset]] unseen: the back end emu has a second way",
        ),
    ] {
        let error = check(&keys).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("allowed with sim"), "{error}");
    }
    let made =
        check(&format!("datapath = \"kernel\"\nunseen = 0.2\nclock = \"0s +300ppm\"\n{unseen}"))
            .unwrap();
    assert_eq!(made.unseen(0), Some((0.2, vec![(1_000_000_000, 0.5)])));
    let bundle = made.pairs[0].forward_bundle.as_ref().unwrap();
    assert_eq!(bundle.clock, forebay_core::clock::Clock::fast_by(300.0));
    assert_eq!(bundle.datapath, DatapathKind::Kernel);
}

#[test]
fn a_class_in_python_is_named_to_boxes_and_agent_by_its_file() {
    let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    let folder: &'static str = file.to_str().unwrap().to_string().leak();
    let algorithm = cc::Algorithm { name: "of_a_file", params: &[], ..constant::ALGORITHM };
    algorithms::add(&[Own { algorithm, folder, sources: "0" }]).unwrap();
    let sets = ["bundle.a.cc=of_a_file", "flow.bulk.cc=agent:of_a_file"]
        .map(|set| crate::plan::Override::parse(set).unwrap());
    let plan = crate::plan::Plan::load("bundler/queue_shift", &sets).unwrap();
    let arm = plan.arms.iter().find(|arm| arm.name == "copa_sfq").unwrap();
    let experiment = plan.experiment(arm, &plan.cells[0], 1).unwrap();
    let made = scenario(&experiment).unwrap().scenario;
    assert_eq!(made.agent.python, [Path::new(folder)]);
    let bundle = made.pairs[0].forward_bundle.as_ref().unwrap();
    assert_eq!(bundle.cc, named::of(Path::new(folder), Some("of_a_file")));
}

#[test]
fn links_that_the_emulator_is_not_made_of_are_refused() {
    let walk = "{ of = \"loss\", every = \"1s\", deviation = 0.01, min = 0, max = 0.1 }";
    for (set, reason) in [
        ("bottleneck.paths=2".into(), "bottleneck.paths: the back end emu has one path"),
        ("bottleneck.hops=2".into(), "bottleneck.hops: the back end emu has one link each way"),
        (format!("bottleneck.walk=[{walk}]"), "bottleneck.walk: the back end emu has no random"),
        ("bottleneck.clears_ecn=true".into(), "bottleneck.clears_ecn: the back end emu has links"),
        (
            "reverse={ rate = \"9Mbit/s\", ack_filter = true }".into(),
            "reverse.ack_filter: the back end emu has no such filter",
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
        scenario(&experiment).unwrap().scenario
    };
    let with = made("copa_kernel");
    assert!(with.routed && with.pairs.iter().all(|pair| pair.forward_bundle.is_some()));
    let names: Vec<_> = with.own_links.iter().map(|own| own.names.clone()).collect();
    assert_eq!(names[0], ["belgium", "belgium-back"]);
    let delays: Vec<u64> = with.own_links.iter().map(|own| own.forward.delay_ns).collect();
    assert_eq!(delays, [50_500_000, 53_000_000, 17_000_000, 15_000_000, 80_000_000]);
    assert!(with.own_links.iter().all(|own| own.reverse.rate_bps.is_none()));
    // Arms differ in their boxes alone.
    let without = made("status_quo");
    assert!(without.routed && without.pairs.iter().all(|pair| pair.forward_bundle.is_none()));
}

#[test]
fn reno_in_bpf_is_the_one_in_c_and_newreno_the_registry_s() {
    for name in ["reno", "newreno"] {
        let set = format!("flow.bulk.cc=bpf:{name}");
        let set = crate::plan::Override::parse(&set).unwrap();
        let plan = crate::plan::Plan::load("platforms/behaviour", &[set]).unwrap();
        let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap();
        let [Algorithm { platform: scenario::Platform::Bpf(called), .. }] =
            &algorithms(&experiment)[..]
        else {
            panic!("{name} is no algorithm in BPF");
        };
        let kind = agent::native::Kind::named(called).unwrap();
        let is_by_hand = matches!(kind, agent::native::Kind::ByHand(_));
        assert_eq!((called.as_str(), is_by_hand), (name, name == "reno"));
    }
}

#[test]
fn connections_with_a_jitter_are_workloads_of_their_own() {
    let Plan { scenario, flows } = pings("20ms");
    assert_eq!(flows, [(0, 0), (0, 1), (0, 2)]);
    let is_one = |it: &Workload| matches!(it.kind, WorkloadKind::Ping { loops: 1 });
    assert!(scenario.pairs[0].workloads.iter().all(is_one));
    let Plan { scenario, flows } = pings("0s");
    assert_eq!(flows, [(0, 0)]);
    assert!(matches!(scenario.pairs[0].workloads[0].kind, WorkloadKind::Ping { loops: 3 }));
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

/// The scenario of such a plan.
fn made(head: &str, qdisc: &str, flows: &str) -> Result<Scenario, BackendError> {
    scenario(&planned(head, qdisc, flows)).map(|plan| plan.scenario)
}

#[test]
fn a_workload_has_the_dscp_of_its_flow_and_the_link_its_rules() {
    let qdisc =
        "{ kind = \"prio\", bands = [\"fifo\", \"sfq\"], classes = [{ dscp = 46, class = 0 }] }";
    let made = made("", qdisc, "[[flow]]\ndscp = 46\ntraffic = { kind = \"ping\" }\n").unwrap();
    assert_eq!(made.pairs[0].workloads[0].dscp, 46);
    assert!(made.forward.qdisc.params.contains_key("classes"));
}

#[test]
fn requests_may_have_a_connection_each() {
    let flow = "[[flow]]\ntraffic = { kind = \"requests\", sizes = \"10KB\", load = \"50%\", \
                connections = \"each\" }\n";
    let made = made("", "\"fifo\"", flow).unwrap();
    let WorkloadKind::Requests { connections, schedule } = &made.pairs[0].workloads[0].kind else {
        panic!("no requests");
    };
    assert_eq!((*connections, schedule.len()), (Connections::Each, 450));
    assert!(schedule.iter().all(|request| request.connection == 0));
}

#[test]
fn clients_of_a_video_are_one_workload_or_with_a_jitter_several() {
    let clients = |head: &str| {
        let flow = "[[flow]]\ncount = 3\ntraffic = { kind = \"video\", rates = [\"2Mbit/s\"] }\n";
        let workloads = made(head, "\"fifo\"", flow).unwrap().pairs.remove(0).workloads;
        let clients = workloads.iter().map(|workload| match &workload.kind {
            WorkloadKind::Video { clients, video } if video.rates.len() == 1 => *clients,
            other => panic!("{other:?}"),
        });
        clients.collect::<Vec<_>>()
    };
    assert_eq!(clients(""), [3]);
    assert_eq!(clients("start_jitter = \"20ms\"\n"), [1; 3]);
}

#[test]
fn flows_that_share_a_route_have_one_initial_window() {
    let windows = |other: &str| {
        let greedy = "traffic = { kind = \"greedy\" }";
        let flows = format!(
            "[[flow]]\nname = \"one\"\ninitial_window = 450\n{greedy}\n\
             [[flow]]\nname = \"two\"\n{greedy}\n{other}\n"
        );
        let made = made("", "\"fifo\"", &flows).map_err(|error| error.to_string())?;
        Ok::<_, String>(made.pairs.iter().map(|pair| pair.initial_windows).collect::<Vec<_>>())
    };
    let expected = "flow.two.initial_window = 10: the back end emu has one for all flows that send the same \
                    way between a pair of sites, allowed is that of flow.one, 450, or another pair";
    assert_eq!(windows("").unwrap_err(), expected);
    assert_eq!(windows("initial_window = 450"), Ok(vec![[Some(450), None]]));
    assert_eq!(windows("reversed = true"), Ok(vec![[Some(450), None]]));
    assert_eq!(windows("pair = \"other\""), Ok(vec![[Some(450), None], [None; 2]]));
}

#[test]
fn receivers_other_than_the_kernels_are_refused_by_name() {
    for (given, key) in [
        ("receiver = \"dividing\"", "receiver"),
        ("ack_every = 4", "ack_every"),
        ("ack_delay = \"100ms\"", "ack_delay"),
    ] {
        let flow = format!("[[flow]]\ntraffic = {{ kind = \"greedy\" }}\n{given}\n");
        let refused = Emu.check(&planned("", "\"fifo\"", &flow)).unwrap_err().to_string();
        assert!(refused.contains(&format!("flow.greedy.{key}: the receivers")), "{refused}");
    }
    let slow = "[[flow]]\ntraffic = { kind = \"greedy\" }\nreceiver = \"honest\"\n\
                read_rate = \"1Mbit/s\"\nreceive_buffer = \"64KB\"\n";
    assert!(check_receivers(&planned("", "\"fifo\"", slow)).is_ok());
    let made = made("", "\"fifo\"", slow).unwrap();
    let reading = Reading { rate_bps: Some(1_000_000), buffer_bytes: Some(64_000) };
    assert_eq!(made.pairs[0].workloads[0].reading, reading);
}

#[test]
fn who_names_what_the_kernel_lacks_is_told_the_nearest_and_the_agent() {
    let allowed = |kind| of_kernel(&Spec::named(kind), "reno cubic bbr\n");
    let has = "one that this kernel, or a module installed for it, has: reno, cubic, bbr";
    assert_eq!(allowed("brutal"), has);
    assert_eq!(allowed("bbbr"), format!("{has}; nearest is bbr"));
    assert!(allowed("copa").ends_with("; agent:copa has an agent decide for the kernel's TCP"));
}
