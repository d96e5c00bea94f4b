use alloc::string::{String, ToString};

use super::*;

const SEEDS: core::ops::Range<u64> = 0..50;

fn drawn(model: PathModel, seed: u64, seconds: u64) -> PathTrace {
    DrawnPath { model, seed, seconds }.trace().unwrap()
}

fn bytes(model: PathModel, seed: u64) -> String {
    drawn(model, seed, 30).to_string()
}

#[test]
fn same_seed_gives_same_bytes() {
    for model in PathModel::ALL {
        assert_eq!(bytes(model, 3), bytes(model, 3), "{}", model.name());
        assert_ne!(bytes(model, 3), bytes(model, 4), "{}", model.name());
    }
}

#[test]
fn longer_traces_begin_alike() {
    for model in PathModel::ALL {
        let (short, long) = (drawn(model, 5, 10), drawn(model, 5, 20));
        assert_eq!(long.rows()[..short.rows().len()], *short.rows(), "{}", model.name());
    }
}

#[test]
fn values_stay_within_bounds() {
    for model in PathModel::ALL {
        let (mbps, delay_ms, loss) = match model {
            PathModel::Lte => ([0.0, lte::MOST_MBPS], [20.0, 44.0], 0.0),
            PathModel::LteAtt => ([0.0, carrier::ATT.most_mbps()], [20.0, 44.0], 0.0),
            PathModel::LteTmobile => ([0.0, carrier::TMOBILE.most_mbps()], [20.0, 44.0], 0.0),
            PathModel::LteVerizon => ([0.0, carrier::VERIZON.most_mbps()], [20.0, 44.0], 0.0),
            PathModel::Leo => ([50.0, 220.0], [15.0, 79.0], 0.5),
            PathModel::Wifi => ([13.0 / 4.2, 124.0], [10.0, 43.6], 0.0),
            PathModel::Docsis => ([16.0, 20.0], [12.0, 18.0], 0.0),
            PathModel::Adsl => ([0.0, 7.26], [18.0, 26.0], 1.0),
        };
        for seed in SEEDS {
            let trace = drawn(model, seed, 60);
            assert_eq!(trace.length(), Duration::from_secs(60));
            for row in trace.rows() {
                let named = |what| alloc::format!("{what} of {} {seed}: {row:?}", model.name());
                let rate = row.rate.unwrap().as_mbit_per_sec_f64();
                let delay = row.delay.unwrap().as_secs_f64() * 1e3;
                assert!((mbps[0] - 0.001..=mbps[1]).contains(&rate), "{}", named("rate"));
                assert!((delay_ms[0]..=delay_ms[1]).contains(&delay), "{}", named("delay"));
                assert!(row.loss.unwrap().as_f64() <= loss, "{}", named("loss"));
            }
        }
    }
}

#[test]
fn drawn_traces_are_read_back() {
    for model in PathModel::ALL {
        let trace = drawn(model, 1, 7);
        let text = trace.to_string();
        assert!(text.starts_with("time_ms,rate_mbps,delay_ms,loss\n0,"), "{text}");
        assert_eq!(PathTrace::parse("drawn", &text), Ok(trace), "{}", model.name());
    }
}

#[test]
fn means_match_what_the_models_say() {
    let mean = |model, of: fn(&PathTrace) -> f64| {
        SEEDS.map(|seed| of(&drawn(model, seed, 300))).sum::<f64>() / 50.0
    };
    let rate = |trace: &PathTrace| trace.mean_rate().unwrap().as_mbit_per_sec_f64();
    let loss = |trace: &PathTrace| {
        let spans =
            trace.spans().map(|(row, time)| row.loss.unwrap().as_f64() * time.as_secs_f64());
        spans.sum::<f64>() / trace.length().as_secs_f64()
    };
    // 0.625 of the highest rate of 12 Mbit/s, less the outages: 1 s in 17.7 s.
    assert!((6.3..7.9).contains(&mean(PathModel::Lte, rate)));
    assert!((130.0..140.0).contains(&mean(PathModel::Leo, rate)));
    assert!((0.0062..0.0072).contains(&mean(PathModel::Leo, loss)));
    assert!((17.0..19.0).contains(&mean(PathModel::Docsis, rate)));
    // An impulse of 20 ms a minute.
    assert!((0.00025..0.00042).contains(&mean(PathModel::Adsl, loss)));
}

#[test]
fn carriers_match_their_recordings_within_15_percent() {
    // Mean, 5th and 95th percentile of the rate over 100 ms (Mbit/s), and share of windows without a packet.
    for (model, recorded) in [
        (PathModel::LteAtt, [5.17, 0.0, 10.08, 0.051]),
        (PathModel::LteTmobile, [12.77, 0.0, 33.0, 0.08]),
        (PathModel::LteVerizon, [5.03, 0.72, 12.24, 0.016]),
    ] {
        let mut all = Vec::new();
        for trace in SEEDS.map(|seed| drawn(model, seed, 300)) {
            for (row, time) in trace.spans() {
                let mbps = row.rate.unwrap().as_mbit_per_sec_f64();
                all.extend((0..time.as_millis() / 100).map(|_| mbps));
            }
        }
        all.sort_by(f64::total_cmp);
        let share = |share: f64| all[(share * all.len() as f64) as usize];
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let empty = all.iter().filter(|mbps| **mbps == 0.0).count() as f64 / all.len() as f64;
        let found = [mean, share(0.05), share(0.95), empty];
        // Rates to a packet of 1500 bytes in 100 ms.
        for ((found, recorded), unit) in found.iter().zip(recorded).zip([0.12, 0.12, 0.12, 0.0]) {
            let is_near = (found - recorded).abs() <= (0.15 * recorded).max(unit);
            assert!(is_near, "{}: {found} {recorded}", model.name());
        }
    }
}

#[test]
fn satellites_change_every_15_seconds() {
    let trace = drawn(PathModel::Leo, 2, 120);
    let mut rates = trace.rows().to_vec();
    rates.dedup_by_key(|row| row.rate);
    let steps: Vec<Duration> = rates[1..].windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    assert!(steps.len() >= 6);
    assert!(steps.iter().all(|step| *step == Duration::from_secs(15)), "{steps:?}");
}

#[test]
fn names_carry_seed_and_seconds() {
    let read = |text: &str| DrawnPath::from_spec(&text.parse().unwrap());
    let path = DrawnPath { model: PathModel::Lte, seed: 3, seconds: 90 };
    assert_eq!(read("lte(seed=3, seconds=90)"), Some(Ok(path)));
    assert_eq!(read(&path.to_string()), Some(Ok(path)));
    assert_eq!(read("leo").unwrap().unwrap().seconds, 60);
    assert_eq!(read("gprs(seed=3)"), None);
    for (text, key) in [
        ("lte(sed=3)", "sed"),
        ("lte(seed=-1)", "seed"),
        ("lte(seconds=0)", "seconds"),
        ("lte(seconds=3601)", "seconds"),
        ("lte(seconds=1.5)", "seconds"),
    ] {
        assert_eq!(read(text).unwrap().unwrap_err().key, key, "{text}");
    }
    let long = DrawnPath { seconds: 3601, ..path };
    assert_eq!(long.trace().unwrap_err().key, "seconds");
}
