//! Queues that mark packets, and senders that respond.

use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::Source;
use forebay_core::units::{Duration, Rate, Ratio};
use forebay_sim::{Dumbbell, EcnMode, Flow, FlowMetrics, LinkMetrics, Simulation, Stack, Tcp};

fn text(value: &str) -> Value {
    Value::Text(value.into())
}

/// Two connections for 20 s over 16 Mbit/s and 20 ms.
fn run(cc: &str, qdisc: Spec, stack: Stack) -> (LinkMetrics, [FlowMetrics; 2]) {
    let source = Source::Greedy { bytes: None };
    let flow = Flow { cc: Spec::named(cc), source, start: Duration::ZERO, rtt: None };
    let plan = Dumbbell {
        stop: Duration::from_secs(20),
        seed: 1,
        stack,
        rate: Rate::from_mbit_per_sec(16),
        rtt: Duration::from_millis(20),
        loss: Ratio::ZERO,
        qdisc,
        changes: Vec::new(),
        flows: vec![flow.clone(), flow],
    };
    let mut simulation = Simulation::new(&plan).unwrap();
    simulation.run();
    let flows = [0, 1].map(|index| simulation.flow_metrics(index).unwrap());
    (simulation.link_metrics(0), flows)
}

/// Linux with ECN of RFC 3168.
const CLASSIC: Stack = Stack { tcp: Tcp { ecn: EcnMode::Classic, ..Tcp::LINUX }, ..Stack::LINUX };

#[test]
fn marking_queues_cause_no_retransmissions() {
    let pie = Spec::named("pie").with("ecn_threshold", Value::Integer(1));
    for qdisc in [Spec::named("codel"), Spec::named("fq_codel"), pie] {
        let qdisc = qdisc.with("ecn", Value::Bool(true));
        let kind = qdisc.kind.clone();
        let (link, flows) = run("newreno", qdisc.clone(), CLASSIC);
        assert!(link.total_qdisc_marks_l2 > 20, "{kind}: {link:?}");
        assert!(link.mean_sending_rate_l1 > 15.0, "{kind}: {link:?}");
        let resent: u64 = flows.iter().map(|flow| flow.total_retransmissions_l4).sum();
        assert_eq!((link.total_qdisc_drops_l2, resent), (0, 0), "{kind}");
        let of_reason = if kind == "pie" { link.marks.early } else { link.marks.codel };
        assert_eq!(of_reason, link.total_qdisc_marks_l2, "{kind}");
        let (unmarked, _) = run("newreno", qdisc, Stack::LINUX);
        assert_eq!(unmarked.total_qdisc_marks_l2, 0);
        assert!(unmarked.total_qdisc_drops_l2 > 20, "{kind}: {unmarked:?}");
    }
}

#[test]
fn dctcp_stands_at_the_step_that_marks() {
    let red = Spec::named("red").with("min_th", text("20p")).with("max_th", text("20p"));
    let red = red.with("weight", Value::Integer(1)).with("ecn", Value::Bool(true));
    for stack in Stack::ALL {
        let (link, flows) = run("dctcp", red.clone(), stack);
        assert_eq!(link.total_qdisc_drops_l2, 0);
        assert!((10.0..25.0).contains(&link.mean_qdisc_length_l2), "{}: {link:?}", stack.name);
        assert!(link.mean_sending_rate_l1 > 15.8, "{}: {link:?}", stack.name);
        let rates = flows.map(|flow| flow.mean_throughput_l4);
        assert!((rates[0] / rates[1] - 1.0).abs() < 0.2, "{}: {rates:?}", stack.name);
    }
}
