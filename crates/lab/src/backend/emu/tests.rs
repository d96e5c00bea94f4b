use super::*;
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
fn connections_with_a_jitter_are_workloads_of_their_own() {
    let Plan { scenario, flows } = pings("20ms");
    let expected = ["ping#0", "ping#1", "ping#2"].into_iter().zip(0..);
    let expected: Vec<_> = expected.map(|(name, number)| (name.to_string(), 0, number)).collect();
    assert_eq!(flows, expected);
    let is_one = |it: &Workload| matches!(it.kind, WorkloadKind::Ping { loops: 1 });
    assert!(scenario.pairs[0].workloads.iter().all(is_one));
    let Plan { scenario, flows } = pings("0s");
    assert_eq!(flows, [("ping".to_string(), 0, 0)]);
    assert!(matches!(scenario.pairs[0].workloads[0].kind, WorkloadKind::Ping { loops: 3 }));
}
