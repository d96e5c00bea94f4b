//! The plans of the repository.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_core::link::Service;
use forebay_core::units::Rate;
use forebay_scenario::Stack;

use super::*;

#[test]
fn plans_that_extend_others_are_listed() {
    let runnable: Vec<&str> = library::runnable_plans().collect();
    // `low_load` extends `offered_load`, which extends `main`.
    for name in ["bundler/main", "bundler/offered_load", "bundler/low_load", "bundler/epoch_size"] {
        assert!(runnable.contains(&name), "{name} is missing");
    }
    for name in ["bundler/arms", "world/arms", "ccperf/base"] {
        assert!(!runnable.contains(&name), "{name} has no bottleneck");
    }
}

#[test]
fn every_built_in_plan_loads() {
    for name in library::runnable_plans() {
        let (_, text) = library::PLANS.iter().find(|(known, _)| *known == name).unwrap();
        let source = Source { file: name.into(), folder: None, text: text.to_string() };
        let plan = Plan::from_source(source, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert!(name.ends_with(&plan.name), "{name} is called {}", plan.name);
        assert!(!plan.description.is_empty() && plan.title != plan.name, "{name}");
    }
}

/// Forms of a value in prose: `96 mbit/s`, `50 ms`, `three bandwidth-delay`, `twenty cubic`, `copa`.
fn statements(key: &str, value: &str) -> Vec<String> {
    let end = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (number, unit) = value.split_at(end);
    if number.is_empty() {
        let is_algorithm =
            [".cc", "cc.kind", "qdisc", "qdisc.kind"].iter().any(|it| key.ends_with(it));
        return if is_algorithm { vec![value.to_lowercase()] } else { Vec::new() };
    }
    let unit = unit.to_lowercase();
    let nouns: &[&str] = match unit.as_str() {
        "" if number == "1" => &[],
        "" => &["flow", "cubic", "greedy", "hostile", "message", "other", "path"],
        "s" => &["s", "second", "minute"],
        "p" => &["packet"],
        "bdp" => &["bandwidth-delay"],
        unit => &[unit],
    };
    let words = [("2", "two"), ("3", "three"), ("4", "four"), ("8", "eight"), ("20", "twenty")];
    let word = words.iter().find(|(figure, _)| *figure == number).map(|(_, word)| *word);
    let numbers = [Some(number), word].into_iter().flatten();
    numbers.flat_map(|number| nouns.iter().map(move |noun| format!("{number} {noun}"))).collect()
}

#[test]
fn built_in_prose_states_no_overridable_values() {
    // A value that an arm or a cell sets remains.
    let all = |plan: &Plan| -> Vec<String> {
        let parameters = resolve::experiment(plan.tree.clone(), &plan.source, &plan.algorithms);
        let parameters = parameters.unwrap().parameters;
        parameters.iter().flat_map(|(key, value)| statements(key, value)).collect()
    };
    let stated = |text: &str, all: &[String]| {
        let text = format!(" {}", text.to_lowercase());
        all.iter().find(|it| text.contains(&format!(" {it}"))).cloned()
    };
    for name in library::runnable_plans() {
        let plan = Plan::load(name, &[]).unwrap();
        let all = all(&plan);
        let arms = plan.arms.iter().map(|arm| &arm.summary);
        for text in [&plan.title, &plan.description].into_iter().chain(arms) {
            assert_eq!(stated(text, &all), None, "{name}: {text}");
        }
    }
    let all = all(&load(PLAN, &["flow.bulk.count=20"]).unwrap());
    for (text, value) in [
        ("over a 96 Mbit/s link", "96 mbit/s"),
        ("with 50 ms of round trip", "50 ms"),
        ("Twenty Cubic flows", "twenty cubic"),
        ("the rate by Copa", "copa"),
        ("a FIFO", "fifo"),
        ("three bandwidth-delay products", "three bandwidth-delay"),
        ("after 10 seconds", "10 s"),
    ] {
        assert_eq!(stated(text, &all).as_deref(), Some(value), "{text}");
    }
}

#[test]
fn arms_configure_boxes_alike_in_all_plans() {
    let mut seen: BTreeMap<String, (String, String)> = BTreeMap::new();
    for name in library::runnable_plans() {
        let plan = Plan::load(name, &[]).unwrap();
        for arm in &plan.arms {
            for cell in &plan.cells {
                let bundles = plan.experiment(arm, cell, 1).unwrap().scenario.bundles;
                // `const` gets the rate of the link, so it differs from link to link.
                for bundle in bundles.iter().filter(|bundle| bundle.cc.kind != "const") {
                    let numbers = format!(
                        "{} {} {:?} {:?}",
                        bundle.cc, bundle.qdisc, bundle.min_rate, bundle.max_rate
                    );
                    let first =
                        seen.entry(arm.name.clone()).or_insert((numbers.clone(), name.to_string()));
                    assert_eq!(first.0, numbers, "{}: {} and {name}", arm.name, first.1);
                }
            }
        }
    }
    assert!(seen.len() >= 3, "{seen:?}");
}

/// A run: plan, cell, rate in Mbit/s (none for a trace), round trip in ms, loss, packets of the queue, and
/// start times of flows in ms.
type PublishedRun = (&'static str, &'static str, Option<f64>, u128, f64, u64, &'static [u128]);
/// Ten runs on ccperf's pages.
#[rustfmt::skip]
const PUBLISHED_RUNS: [PublishedRun; 10] = [
    ("responsiveness_step", "rate-down", Some(64.0), 15, 0.0, 20, &[0]),
    ("steady_state_single_flow", "path=india_to_aws_india", Some(100.42), 54, 0.0, 173, &[0]),
    ("steady_state_synchronous_fairness", "flows-5-winds", Some(42.0), 800, 0.0074, 2800, &[0; 5]),
    ("steady_state_start_time_fairness", "start=1.87s", Some(32.0), 15, 0.0, 40, &[0, 1870]),
    ("deep_buffers", "limit=80p", Some(16.0), 15, 0.0, 80, &[0]),
    ("deep_buffers", "limit=20p", Some(16.0), 15, 0.0, 20, &[0]),
    ("shallow_buffers", "limit=10p", Some(16.0), 15, 0.0, 10, &[0]),
    ("loss_resilience", "loss=0.02", Some(16.0), 15, 0.02, 20, &[0]),
    ("loss_resilience", "loss=0.03", Some(16.0), 15, 0.03, 20, &[0]),
    ("replay_rate_trace", "path=nepal_to_aws_india", None, 56, 0.0477, 14, &[0]),
];

#[test]
fn ccperf_runs_are_among_as_published_runs() {
    for (name, cell, rate, rtt, loss, packets, starts) in PUBLISHED_RUNS {
        let plan = Plan::load_as_published(&format!("ccperf/{name}"), &[]).unwrap();
        let cell = plan.cells.iter().find(|it| it.name == cell).unwrap();
        let run = plan.experiment(&plan.arms[0], cell, plan.seeds.first).unwrap();
        let found = run.forward.rate().map(|rate| rate.as_mbit_per_sec_f64());
        assert_eq!(
            (found, run.rtt.as_millis(), run.forward.loss.as_f64()),
            (rate, rtt, loss),
            "{name}"
        );
        assert_eq!(run.forward.qdisc.to_string(), format!("fifo(limit={packets}p)"), "{name}");
        let flows = run.flows.iter();
        let found = flows.flat_map(|it| (0..it.connections()).map(|number| it.start_of(number)));
        assert_eq!(found.map(|start| start.as_millis()).collect::<Vec<_>>(), starts, "{name}");
        let (stop, is_newreno) =
            (run.stop.as_secs(), run.flows.iter().all(|it| it.cc.kind == "newreno"));
        assert_eq!((stop, plan.seeds.first, is_newreno), (15, 42, true), "{name}");
        assert_eq!((run.stack, run.warmup), (Stack::Ns3, Duration::ZERO), "{name}");
    }
    let step = Plan::load_as_published("ccperf/responsiveness_step", &[]).unwrap();
    let change = experiment(&step, 0).forward.changes[0];
    assert_eq!((change.at.as_secs(), change.rate), (5, Some(Rate::from_mbit_per_sec(16))));
}

#[test]
fn benchmark_has_all_experiments_and_fits_time() {
    let (mut cells, mut packets) = (0, 0.0);
    for name in library::benchmark() {
        let plan = Plan::load(name, &[]).unwrap();
        assert_eq!((plan.arms.len(), plan.seeds.to_string()), (1, "1..10".into()), "{name}");
        cells += plan.cells.len();
        for run in plan.experiments() {
            let run = run.unwrap();
            assert!(run.flows.iter().any(|flow| flow.name == "aut"), "{name}");
            assert!(!run.start_jitter.is_zero(), "{name}");
            let bits = run.links().filter_map(|link| match &link.service {
                Service::Trace(trace) => Some(trace.mean_rate().bytes_in(run.stop).as_f64() * 8.0),
                _ => link.capacity_bits(Duration::ZERO, run.stop),
            });
            packets += bits.sum::<f64>() / (1514.0 * 8.0);
        }
    }
    assert!(cells >= 79, "{cells} runs of one seed");
    assert!(packets < 13e6, "{packets} packets of one seed");
}
