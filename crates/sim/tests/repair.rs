//! Loss repair of the TCP stacks, end to end. A test changes the link's loss rate at set times to cause losses.

use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::Source;
use forebay_core::units::{ByteCount, Duration, Rate, Ratio};
use forebay_sim::{Change, Dumbbell, Flow, FlowMetrics, Simulation, Stack, Tcp};

/// Payload bytes of a segment.
const MSS: u64 = 1448;

/// One flow over 16 Mbit/s and 40 ms with a deep queue. A full segment takes 0.757 ms on the link.
fn dumbbell(cc: Spec, segments: Option<u64>, stack: Stack) -> Dumbbell {
    let bytes = segments.map(|segments| ByteCount::new(segments * MSS));
    let source = Source::Greedy { bytes };
    Dumbbell {
        stop: Duration::from_secs(30),
        seed: 1,
        stack,
        rate: Rate::from_mbit_per_sec(16),
        rtt: Duration::from_millis(40),
        loss: Ratio::ZERO,
        qdisc: Spec::named("fifo").with("limit", Value::Text("1000p".into())),
        changes: Vec::new(),
        flows: vec![Flow { cc, source, start: Duration::ZERO, rtt: None }],
    }
}

fn run(plan: &Dumbbell) -> FlowMetrics {
    let mut simulation = Simulation::new(plan).unwrap();
    simulation.run();
    simulation.flow_metrics(0).unwrap()
}

fn ms(metrics: &FlowMetrics) -> f64 {
    metrics.completed.unwrap().as_nanos() as f64 / 1e6
}

fn loss(at_us: u64, share: f64) -> Change {
    let at = Duration::from_micros(at_us);
    Change { at, loss: Ratio::new(share), ..Change::default() }
}

fn window(segments: u64) -> Spec {
    Spec::named("const").with("cwnd", Value::Text(format!("{}B", segments * MSS)))
}

/// Linux that detects losses only by counting duplicate acknowledgements (RFC 6675).
const BY_COUNT: Stack = Stack {
    tcp: Tcp { rack: false, tlp: false, frto: false, undo: false, dsack: false, ..Tcp::LINUX },
    ..Stack::LINUX
};

#[test]
fn lost_tail_costs_two_rtts_without_timeout() {
    // Ten segments leave 1.448 ms apart from 40.033 ms on; the last three, from 50.2 ms on, are lost.
    let lose = |stack| {
        let cc = Spec::named("const").with("rate", Value::Text("8Mbit/s".into()));
        let mut plan = dumbbell(cc, Some(10), stack);
        plan.changes = vec![loss(49_500, 1.0), loss(60_000, 0.0)];
        run(&plan)
    };
    let metrics = lose(Stack::LINUX);
    // The last acknowledgement arrives at 89.5 ms, and the tail loss probe leaves 2 SRTT + 2 ms later. Its
    // answer takes a round trip. The other two segments then take half a round trip to the receiver.
    assert_eq!((metrics.total_rtos_l4, metrics.total_retransmissions_l4), (0, 3));
    let expected_ms = 89.5 + 2.0 * 40.8 + 2.0 + 1.5 * 40.8 + 2.0;
    assert!((ms(&metrics) - expected_ms).abs() < 3.0, "{} {expected_ms}", ms(&metrics));
    let metrics = lose(BY_COUNT);
    assert_eq!(metrics.total_rtos_l4, 1);
    assert!(ms(&metrics) > 89.5 + 240.0, "{} ms", ms(&metrics));
}

#[test]
fn lost_retransmissions_cost_no_timeout_while_delivering() {
    let lose = |stack| {
        let mut plan = dumbbell(window(40), None, stack);
        plan.loss = Ratio::new(0.05).unwrap();
        run(&plan)
    };
    let (by_time, by_count) = (lose(Stack::LINUX), lose(BY_COUNT));
    // The link loses every twentieth retransmission: about 60 timeouts if the sender has no other signal.
    assert!(by_count.total_rtos_l4 > 20, "{by_count:?}");
    assert_eq!(by_time.total_rtos_l4, 0, "{by_time:?}");
    let (faster, slower) = (by_time.received_bytes, by_count.received_bytes);
    assert!(faster > slower, "{faster} {slower}");
}

#[test]
fn timeout_from_longer_path_is_undone() {
    // The round trip grows from 40 to 1000 ms. The sender sends a probe, and then its timer of 45 + 200 ms
    // expires, although nothing is lost. Before, the receiver's window of 60 segments just filled the path.
    let delay = |stack| {
        let mut plan = dumbbell(Spec::named("cubic"), Some(2000), stack);
        plan.stack.tcp.receive_buffer = 60 * MSS;
        let rtt = Some(Duration::from_millis(1000));
        plan.changes = vec![Change { at: Duration::from_secs(1), rtt, ..Change::default() }];
        run(&plan)
    };
    let (linux, standing) = (delay(Stack::LINUX), delay(BY_COUNT));
    assert!(linux.total_rtos_l4 > 0 && standing.total_rtos_l4 > 0, "{linux:?} {standing:?}");
    assert!(linux.total_retransmissions_l4 <= 4, "{linux:?}");
    assert!(standing.total_retransmissions_l4 > 40, "{standing:?}");
    assert!(ms(&linux) < ms(&standing), "{} {}", ms(&linux), ms(&standing));
    for metrics in [linux, standing] {
        let (spurious, all) =
            (metrics.total_spurious_retransmissions_l4, metrics.total_retransmissions_l4);
        assert_eq!(spurious, all, "nothing was lost: {metrics:?}");
    }
}

#[test]
fn reordering_within_quarter_rtt_costs_no_retransmissions() {
    // Every half second the path becomes 3 ms shorter each way for 100 ms: new packets overtake earlier
    // packets.
    let reorder = |stack| {
        let mut plan = dumbbell(window(60), None, stack);
        let change = |at_ms: u64, rtt_ms: u64| Change {
            at: Duration::from_millis(at_ms),
            rtt: Some(Duration::from_millis(rtt_ms)),
            ..Change::default()
        };
        plan.changes = (1..58)
            .flat_map(|half| [change(500 * half, 34), change(500 * half + 100, 40)])
            .collect();
        run(&plan)
    };
    let tcp = Tcp { rack: true, tlp: true, undo: true, dsack: true, ..Tcp::NS3 };
    let (by_time, by_count) = (reorder(Stack { tcp, ..Stack::NS3 }), reorder(Stack::NS3));
    assert!(by_count.total_retransmissions_l4 >= 50, "{by_count:?}");
    assert_eq!(by_time.total_retransmissions_l4, 0, "{by_time:?}");
}

#[test]
fn queue_overflow_is_repaired_once_without_timeout() {
    let mut plan = dumbbell(Spec::named("newreno"), None, Stack::LINUX);
    plan.qdisc = Spec::named("fifo").with("limit", Value::Text("50p".into()));
    let mut simulation = Simulation::new(&plan).unwrap();
    simulation.run();
    let (drops, metrics) =
        (simulation.link_metrics(0).total_qdisc_drops_l2, simulation.flow_metrics(0).unwrap());
    assert!(drops > 20, "{drops}");
    assert_eq!((metrics.total_retransmissions_l4, metrics.total_rtos_l4), (drops, 0));
    assert_eq!(metrics.total_spurious_retransmissions_l4, 0);
}
