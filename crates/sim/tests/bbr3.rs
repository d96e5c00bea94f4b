//! Published properties of BBR version 3 that version 1 lacks, over 48 Mbit/s and 40 ms: 158 packets fill
//! the path.

use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::Source;
use forebay_core::units::{Duration, Rate, Ratio};
use forebay_sim::{BIN_NS, Bin, Change, Dumbbell, Flow, LinkMetrics, Simulation, Stack};

/// Rate of the bottleneck in Mbit/s.
const MBIT: u64 = 48;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn flow(cc: &str, start_s: u64) -> Flow {
    let source = Source::Greedy { bytes: None };
    Flow { cc: Spec::named(cc), source, start: seconds(start_s), rtt: None }
}

/// A path with a buffer of `packets` packets.
fn path(packets: u32, stop_s: u64, flows: Vec<Flow>) -> Dumbbell {
    let limit = Value::Text(format!("{packets}p"));
    Dumbbell {
        stop: seconds(stop_s),
        seed: 1,
        stack: Stack::LINUX,
        rate: Rate::from_mbit_per_sec(MBIT),
        rtt: Duration::from_millis(40),
        loss: Ratio::ZERO,
        qdisc: Spec::named("fifo").with("limit", limit),
        changes: Vec::new(),
        flows,
    }
}

/// Results of a run.
struct Run {
    link: LinkMetrics,
    /// Throughput of each flow from its start on, Mbit/s in each second.
    rates: Vec<Vec<f64>>,
}

impl Run {
    fn of(dumbbell: &Dumbbell) -> Self {
        let mut simulation = Simulation::new(dumbbell).unwrap();
        simulation.run();
        let rates = (0..dumbbell.flows.len()).map(|flow| {
            let seconds = simulation.flow_bins(flow).chunks((1_000_000_000 / BIN_NS) as usize);
            let bytes = |bins: &[Bin]| bins.iter().map(|bin| f64::from(bin.bytes)).sum::<f64>();
            seconds.map(|bins| bytes(bins) * 8e-6).collect()
        });
        Self { rates: rates.collect(), link: simulation.link_metrics(0) }
    }

    /// Throughput of a flow in its last seconds (Mbit/s).
    fn last(&self, flow: usize, seconds: usize) -> f64 {
        let rates = &self.rates[flow];
        rates[rates.len() - seconds..].iter().sum::<f64>() / seconds as f64
    }

    /// Share of the packets that the queue dropped.
    fn dropped(&self) -> f64 {
        self.link.total_qdisc_drops_l2 as f64 / self.link.packets as f64
    }
}

#[test]
fn one_flow_fills_the_path_behind_any_buffer() {
    // A fifth of the bandwidth-delay product, one product, and five.
    for (packets, queue, dropped) in [(32, 4.0, 0.005), (158, 20.0, 0.001), (790, 20.0, 0.0)] {
        let run = Run::of(&path(packets, 30, vec![flow("bbr3", 0)]));
        let rate = run.last(0, 25);
        assert!(rate > 0.9 * MBIT as f64, "{packets} packets: {rate}");
        assert!(run.link.mean_qdisc_length_l2 < queue, "{packets} packets: {:?}", run.link);
        assert!(run.dropped() <= dropped, "{packets} packets: {}", run.dropped());
    }
}

#[test]
fn leaves_cubic_more_than_bbr1_in_shallow_buffer() {
    let beside = |cc| {
        let run = Run::of(&path(32, 60, vec![flow("cubic", 0), flow(cc, 5)]));
        (run.last(0, 40), run.dropped())
    };
    let [(of_first, lost_first), (of_third, lost_third)] = ["bbr", "bbr3"].map(beside);
    assert!(of_third > 5.0 * of_first, "{of_third} and {of_first}");
    assert!(lost_third < 0.25 * lost_first, "{lost_third} and {lost_first}");
}

#[test]
fn two_flows_come_to_share_the_path() {
    let run = Run::of(&path(158, 60, vec![flow("bbr3", 0), flow("bbr3", 10)]));
    let rates = [0, 1].map(|flow| run.last(flow, 20));
    assert!((0.67..1.5).contains(&(rates[0] / rates[1])), "{rates:?}");
    assert!(rates[0] + rates[1] > 0.9 * MBIT as f64, "{rates:?}");
}

#[test]
fn refills_path_after_rtt_change() {
    for rtt_ms in [80, 20] {
        let rtt = Some(Duration::from_millis(rtt_ms));
        let mut path = path(158, 40, vec![flow("bbr3", 0)]);
        path.changes = vec![Change { at: seconds(15), rtt, ..Change::default() }];
        let run = Run::of(&path);
        let rate = run.last(0, 10);
        assert!(rate > 0.88 * MBIT as f64, "{rtt_ms} ms: {rate}");
        assert!(run.link.mean_qdisc_length_l2 < 40.0, "{rtt_ms} ms: {:?}", run.link);
    }
}

#[test]
fn adapts_to_faster_and_slower_paths() {
    for (before, after) in [(10, 48), (48, 10)] {
        let mut path = path(158, 30, vec![flow("bbr3", 0)]);
        path.rate = Rate::from_mbit_per_sec(before);
        let rate = Some(Rate::from_mbit_per_sec(after));
        path.changes = vec![Change { at: seconds(10), rate, ..Change::default() }];
        let run = Run::of(&path);
        let rate = run.last(0, 13);
        assert!(rate > 0.88 * after as f64, "to {after} Mbit/s: {rate}");
        assert!(run.link.mean_qdisc_length_l2 < 50.0, "to {after} Mbit/s: {:?}", run.link);
    }
}

#[test]
fn keeps_rate_under_random_loss() {
    let rate = |cc| {
        let mut path = path(158, 60, vec![flow(cc, 0)]);
        path.loss = Ratio::new(0.01).unwrap();
        Run::of(&path).last(0, 50)
    };
    let [third, cubic] = ["bbr3", "cubic"].map(rate);
    assert!(third > 0.7 * MBIT as f64, "{third}");
    assert!(third > 5.0 * cubic, "{third} and {cubic}");
}
