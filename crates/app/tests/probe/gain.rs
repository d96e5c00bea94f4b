//! What a bundle takes out of the network, measured: the mean queue of a link without one less that with one.

use forebay_core::clock::Clock;
use forebay_core::qdisc::bundle_default;
use forebay_core::spec::Spec;
use forebay_host::daemon::config::DatapathKind;
use forebay_testbed::scenario::{
    AgentSpec, BundleSpec, LinkSpec, PairSpec, Reading, Scenario, Workload, WorkloadKind,
};

const SECOND: u64 = 1_000_000_000;
/// How long either runs, and from when on its queue counts.
const STOP: u64 = 14 * SECOND;
const WARM_UP: u64 = 4 * SECOND;

/// The queue of `link` that a bundle takes away (ms), under as many connections as a probe has.
pub fn measured_ms(link: &LinkSpec) -> f64 {
    queue_ms(link, false) - queue_ms(link, true)
}

/// Mean time that what stands in the queue of `link` takes to leave (ms).
fn queue_ms(link: &LinkSpec, has_bundle: bool) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let binary = env!("CARGO_BIN_EXE_forebay").as_ref();
    let record =
        forebay_testbed::run_with(binary, &scenario(link, has_bundle), dir.path(), &mut |_| {});
    let record = record.unwrap().since_start();
    let counted = |at_ns: u64| (WARM_UP..STOP).contains(&at_ns);
    let queue = record.links[0].queue.iter().filter(|sample| counted(sample.at_ns));
    let bytes: Vec<u64> = queue.map(|sample| sample.bytes).collect();
    let mean = bytes.iter().sum::<u64>() as f64 / bytes.len() as f64;
    mean * 8e3 / link.rate_bps.unwrap() as f64
}

fn scenario(link: &LinkSpec, has_bundle: bool) -> Scenario {
    let bundle = BundleSpec {
        name: "b".into(),
        cc: Spec::named("copa"),
        qdisc: bundle_default(),
        datapath: DatapathKind::User,
        supervised: true,
        min_rate_bps: None,
        max_rate_bps: None,
        unseen: 0.0,
        clock: Clock::default(),
    };
    let bulk = Workload {
        name: "bulk".into(),
        cc: "cubic".into(),
        reversed: false,
        start_ns: 0,
        stop_ns: STOP,
        dscp: 0,
        ttl: None,
        reading: Reading::default(),
        kind: WorkloadKind::Greedy { flows: 8 },
    };
    let reverse =
        LinkSpec { rate_bps: None, loss: 0.0, qdisc: Spec::named("fifo"), ..link.clone() };
    Scenario {
        seed: 1,
        stop_ns: STOP,
        drain_ns: SECOND,
        ecn: false,
        forward: link.clone(),
        reverse,
        own_links: Vec::new(),
        routed: false,
        pairs: vec![PairSpec {
            name: "site".into(),
            forward_bundle: has_bundle.then_some(bundle),
            reverse_bundle: None,
            initial_windows: [None; 2],
            workloads: vec![bulk],
        }],
        algorithms: Vec::new(),
        agent: AgentSpec::default(),
        faults: Vec::new(),
        upsets: Vec::new(),
        attack: None,
        keeps_headers: false,
    }
}
