//! Any text is refused or is a distribution of sizes, from which schedules keep their load.

use forebay_core::random::Streams;
use forebay_core::traffic::{RequestPlan, Sampling, Schedule, SizeCdf};
use forebay_core::units::{ByteCount, Duration, Rate};
use forebay_lab::traces::sizes::{PACKET_BYTES, converted};

/// The bytes are a size CDF.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match converted("fuzz.cdf", &text, PACKET_BYTES) {
        Ok(ours) => drop(SizeCdf::parse("converted", &ours).expect("our own file can be read")),
        Err(error) => assert!(error.line >= 1 && error.line <= text.lines().count().max(1)),
    }
    let sizes = match SizeCdf::parse("fuzz.cdf", &text) {
        Ok(sizes) => sizes,
        Err(error) => {
            assert!(error.line >= 1 && error.line <= text.lines().count().max(1));
            return;
        }
    };
    let quantiles: Vec<ByteCount> =
        (0..=20).map(|step| sizes.quantile(f64::from(step) / 20.0)).collect();
    assert!(quantiles.is_sorted() && quantiles[0] >= ByteCount::new(1));
    assert!(sizes.mean_bytes() >= 0.0 && sizes.mean_bytes() <= quantiles[20].as_f64());
    let duration = Duration::from_secs(1);
    // A load of some hundred requests, small enough for any size.
    let load = Rate::from_bytes_per_sec_f64(300.0 * sizes.mean_bytes());
    let (connections, warm_up) = (3, Duration::ZERO);
    let sampling = Sampling::Stratified;
    let plan = RequestPlan { sizes, load, connections, warm_up, duration, sampling };
    let Ok(schedule) = Schedule::draw(&plan, &Streams::new(1)) else { return };
    let offered = schedule.bytes_from(Duration::ZERO).as_f64();
    let nominal = load.bytes_in(duration).as_f64();
    assert!((offered - nominal).abs() <= 0.01 * nominal, "{offered} for {nominal}");
    assert!(schedule.requests().is_sorted_by_key(|request| request.at));
    assert!(schedule.requests().iter().all(|request| request.at < duration));
}
