//! Links and their changes.

use std::time::Duration;

use forebay_core::units::{Rate, Ratio};

use super::*;

#[test]
fn link_may_stop_only_in_a_change() {
    let stopped = "[[bottleneck.change]]\nat = \"1s\"\nrate = \"0bit/s\"\n[[flow]]";
    let plan = load(&PLAN.replacen("[[flow]]", stopped, 1), &[]).unwrap();
    let run = experiment(&plan, 0);
    assert_eq!(run.forward.changes[0].rate, Some(Rate::ZERO));
    let [before, after] = [0, 1].map(Duration::from_secs);
    assert_eq!(
        run.forward.capacity_bits(before, run.stop),
        run.forward.capacity_bits(before, after)
    );
    let error = load(&PLAN.replacen("96Mbit/s", "0bit/s", 1), &[]).unwrap_err().to_string();
    assert!(
        error.starts_with("p.toml:5: bottleneck.rate = \"0bit/s\": allowed is a rate"),
        "{error}"
    );
}

#[test]
fn walk_starts_at_link_value_and_is_seeded() {
    let walk = |of: &str, more: &str| {
        format!("[[bottleneck.walk]]\nof = \"{of}\"\nevery = \"100ms\"\n{more}\n[[flow]]")
    };
    let rate = walk("rate", "deviation = \"1Mbit/s\"\nmin = \"90Mbit/s\"\nmax = \"100Mbit/s\"");
    let plan = load(&PLAN.replacen("[[flow]]", &rate, 1), &[]).unwrap();
    let changes = |seed| {
        let run = plan.experiment(&plan.arms[0], &plan.cells[0], seed).unwrap();
        assert_eq!(run.link("reverse").changes.len(), 0);
        let rates = run.forward.changes.iter().map(|it| it.rate.unwrap().as_bits_per_sec());
        (run.forward.changes[0].at, rates.collect::<Vec<_>>())
    };
    let (at, rates) = changes(1);
    // To the end of the drain, 30 s after the plan's stop.
    assert_eq!((at.as_millis(), rates.len()), (100, 400));
    assert!(rates.iter().all(|rate| (90_000_000..=100_000_000).contains(rate)));
    assert!(rates[0] != 96_000_000 && rates[0].abs_diff(96_000_000) < 6_000_000);
    assert!(changes(1).1 == rates && changes(2).1 != rates);
    for (walk, expected) in [
        (walk("rtt", ""), "walk.0.of = \"rtt\": allowed is \"rate\", \"delay\" or \"loss\""),
        (
            walk("loss", "min = 0"),
            "walk.0.deviation is missing: allowed is a rate, a duration or a share",
        ),
        (
            walk("delay", "deviation = 1\nmin = \"0s\"\nmax = \"1s\""),
            "walk.0.deviation = 1: allowed is a duration such as",
        ),
        (
            walk("loss", "deviation = 0.1\nmin = 0.2\nmax = 0.1"),
            "walk.0.min = 0.2: allowed is at most max",
        ),
        (
            walk("loss", "deviation = 0.1\nmin = 0\nmax = 0.1\ncorrelation = 2"),
            "walk.0.correlation = 2: allowed is a number, -1 to 1",
        ),
        (
            rate.replace("100ms", "1us"),
            "walk.0.every = \"1us\": allowed is a duration such as \"50ms\", 1ms",
        ),
        (format!("paths = 2\n{rate}"), "allowed is one path with a walk"),
        (rate.replace("bottleneck", "reverse"), "reverse.walk.0.of = \"rate\": allowed is"),
    ] {
        let error = load(&PLAN.replacen("[[flow]]", &walk, 1), &[]).expect_err(&walk).to_string();
        assert!(error.contains(expected), "{error}\nlacks\n{expected}");
    }
}

#[test]
fn hops_equal_first_link_except_propagation() {
    let sets = ["bundle.a.enabled=false", "bottleneck.hops=3", "flow.bulk.hop=2"];
    let run = experiment(&load(PLAN, &sets).unwrap(), 0);
    assert_eq!((run.hops.len(), run.flows[0].hop), (2, Some(1)));
    let last = run.link("hop-3");
    assert_eq!((&last.service, &last.qdisc), (&run.forward.service, &run.forward.qdisc));
    assert_eq!([run.forward.delay, last.delay], [Duration::from_millis(25), Duration::ZERO]);
    for (set, expected) in [
        ("bottleneck.hops=33", "bottleneck.hops = 33: allowed is a whole number, 1 to 32"),
        ("bottleneck.paths=2", "bottleneck.hops = 3: allowed is a whole number, 1 to 32; with one"),
        ("flow.bulk.hop=4", "flow.bulk.hop = 4: allowed is a whole number, 1 to 32, up to"),
        ("flow.bulk.reversed=true", "flow.bulk.hop = 2: allowed is a whole number, 1 to 32, up to"),
        ("bundle.a.enabled=true", "bottleneck.hops = 3: allowed is a whole number, 1 to 32"),
    ] {
        let error = load(PLAN, &[&sets[..], &[set]].concat()).expect_err(set).to_string();
        assert!(error.contains(expected), "{error}\nlacks\n{expected}");
    }
}

#[test]
fn pulses_alternate_until_the_end() {
    let plan = |pulse: &str| {
        let pulse = format!("pulse = [{{ {pulse} }}]\n[[flow]]");
        load(&PLAN.replacen("[[flow]]", &pulse, 1), &[])
    };
    let changes = |pulse: &str| {
        let run = experiment(&plan(pulse).unwrap(), 0);
        let both = [run.scenario.forward.changes, run.scenario.reverse.changes];
        both.map(|all| all.into_iter().map(|it| (it.at.as_secs(), it)).collect::<Vec<_>>())
    };
    let [there, back] = changes("of = \"rate\", every = \"3s\", to = \"9Mbit/s\"");
    let rates: Vec<_> = there.iter().map(|(at, it)| (*at, it.rate.unwrap().to_string())).collect();
    let rates: Vec<_> = rates.iter().map(|(at, rate)| (*at, rate.as_str())).collect();
    assert_eq!(rates, [(3, "9Mbit/s"), (6, "96Mbit/s"), (9, "9Mbit/s")]);
    assert!(back.is_empty());
    for way in changes("of = \"rtt\", every = \"4s\", to = \"80ms\"") {
        let delays = way.iter().map(|(at, it)| (*at, it.delay.unwrap().as_millis()));
        assert_eq!(delays.collect::<Vec<_>>(), [(4, 40), (8, 25)]);
    }
    let [there, _] = changes("of = \"loss\", every = \"5s\", to = 0.5");
    assert_eq!(there.iter().map(|(_, it)| it.loss).collect::<Vec<_>>(), [Ratio::new(0.5)]);
    for (pulse, expected) in [
        ("every = \"1s\", to = 1", "of is missing: allowed is \"rate\", \"rtt\" or \"loss\""),
        ("of = \"rate\", every = \"1s\", to = 5", "to = 5: allowed is a rate such as"),
        ("of = \"loss\", every = \"1s\", to = 2", "to = 2: allowed is a share from 0 to 1"),
        (
            "of = \"loss\", every = \"1s\"",
            "to is missing: allowed is a rate, a duration or a share",
        ),
        (
            "of = \"loss\", every = \"1us\", to = 0",
            "every = \"1us\": allowed is a duration such as \"50ms\", 1ms",
        ),
    ] {
        let error = plan(pulse).expect_err(pulse).to_string();
        let expected = format!("p.toml:8: bottleneck.pulse.0.{expected}");
        assert!(error.starts_with(&expected), "{error}\nis not\n{expected}");
    }
}
