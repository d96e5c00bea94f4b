//! The measured gain of a bundle: the mean queue of a link without a bundle minus the mean queue with one.

use forebay_core::qdisc::bundle_default;
use forebay_core::spec::Spec;
use forebay_core::units::Duration;
use forebay_scenario::{Bundle, Flow, Link, Scenario, Traffic};

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;
/// Length of each of the two runs (ns).
const STOP: u64 = 14 * SECOND;
/// Time from which the queue counts (ns).
const WARM_UP: u64 = 4 * SECOND;

/// The reduction of the queue of `link` by a bundle (ms), under as many connections as a probe has.
pub fn measured_ms(link: &Link) -> f64 {
    queue_ms(link, false) - queue_ms(link, true)
}

/// Mean time that the queue of `link` takes to drain (ms).
fn queue_ms(link: &Link, has_bundle: bool) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let binary = env!("CARGO_BIN_EXE_forebay-experiments").as_ref();
    let record =
        forebay_testbed::run_with(binary, &scenario(link, has_bundle), dir.path(), &mut |_| {});
    let record = record.unwrap().since_start();
    let counted = |at_ns: u64| (WARM_UP..STOP).contains(&at_ns);
    let queue = record.links[0].queue.iter().filter(|sample| counted(sample.at_ns));
    let bytes: Vec<u64> = queue.map(|sample| sample.bytes).collect();
    let mean = bytes.iter().sum::<u64>() as f64 / bytes.len() as f64;
    mean * 8e3 / link.rate().unwrap().as_bits_per_sec() as f64
}

fn scenario(link: &Link, has_bundle: bool) -> Scenario {
    let (pair, stop) = ("site".to_string(), Duration::from_nanos(STOP));
    let bundle = Bundle::new("b", Spec::named("copa"), bundle_default());
    let bulk = Flow::new("bulk", Spec::named("cubic"), stop, Traffic::Greedy { flows: 8 });
    Scenario {
        pairs: vec![pair.clone()],
        bundles: has_bundle
            .then_some(Bundle { pair: pair.clone(), ..bundle })
            .into_iter()
            .collect(),
        flows: vec![Flow { pair, ..bulk }],
        ..Scenario::new(link.clone(), Link::delay("reverse", link.delay), stop)
    }
}
