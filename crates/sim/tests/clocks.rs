//! Receiveboxes whose clock does not agree with the sendbox's, that are late, or that sleep.

use forebay_core::link;
use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::Source;
use forebay_core::units::{Duration, Rate, Timestamp};
use forebay_sim::network::{
    Bundle, BundleChange, Flow, Hop, Link, Network, Signal, Traffic, Upset,
};
use forebay_sim::{Simulation, Stack};

const LAWS: [&str; 3] = ["copa", "setpoint", "basic_delay"];
const MBIT: u64 = 96;

/// Four Cubic flows through a bundle on 96 Mbit/s for 60 s; the receivebox reads `clock`.
fn network(law: &str, rtt_ms: u64, clock: &str) -> Network {
    let queue = |kind: &str| Spec::named(kind).with("limit", Value::Text("1200p".into()));
    let half = Duration::from_millis(rtt_ms) / 2;
    let config = link::Config::at_rate(Rate::from_mbit_per_sec(MBIT), half);
    let (path, back) = (vec![Hop::Link(0)], vec![Hop::Link(1)]);
    let mut bundle = Bundle::new("a", Spec::named(law), queue("sfq"), path, back.clone());
    bundle.clock = clock.parse().unwrap();
    bundle.log = true;
    let flow = Flow {
        cc: Spec::named("cubic"),
        traffic: Traffic::Source(Source::Greedy { bytes: None }),
        start: Duration::ZERO,
        opened: None,
        stop: None,
        data: vec![Hop::Bundle(0)],
        back,
    };
    Network {
        stop: Duration::from_secs(60),
        seed: 1,
        stack: Stack::LINUX,
        links: vec![Link::new("forward", config, queue("fifo")), Link::delay("back", half)],
        bundles: vec![bundle],
        flows: vec![flow; 4],
    }
}

fn at(secs: u64) -> Timestamp {
    Timestamp::from_nanos(secs * 1_000_000_000)
}

/// Share of the link in use, and packets in its queue on average, from one second to another.
fn seen(simulation: &mut Simulation, from_s: u64, to_s: u64) -> (f64, f64) {
    let mut sums = |secs: u64| {
        simulation.run_until(at(secs));
        let (link, secs) = (simulation.link_metrics(0), secs as f64);
        (link.mean_sending_rate_l1 * secs, link.mean_qdisc_length_l2 * secs)
    };
    let ((sent, waited), (sent_later, waited_later)) = (sums(from_s), sums(to_s));
    let secs = (to_s - from_s) as f64;
    ((sent_later - sent) / secs / MBIT as f64, (waited_later - waited) / secs)
}

fn ran(network: &Network) -> Simulation {
    let mut simulation = Simulation::new(network).unwrap();
    simulation.run();
    simulation
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[test]
fn a_clock_that_is_fast_by_what_clocks_are_costs_no_throughput_and_no_queue() {
    let mut worse = Vec::new();
    for law in LAWS {
        for (rtt_ms, clock) in [20, 50].into_iter().flat_map(|rtt_ms| {
            ["0s +300ppm", "0s +1000ppm", "0s -1000ppm"].map(|clock| (rtt_ms, clock))
        }) {
            let mut simulation = Simulation::new(network(law, rtt_ms, clock)).unwrap();
            let (utilisation, queue) = seen(&mut simulation, 5, 35);
            if utilisation < 0.95 || queue > 20.0 {
                worse.push(format!("{law}, {rtt_ms} ms, {clock}: {utilisation:.3}, {queue:.1}"));
            }
        }
    }
    assert!(worse.is_empty(), "{worse:#?}");
}

#[test]
fn a_clock_that_is_slewed_or_put_on_or_back_costs_little_throughput() {
    let mut worse = Vec::new();
    for law in LAWS {
        for clock in [
            "10s +10%, 30s +0ppm",
            "10s -10%, 30s +0ppm",
            "10s +1s, 20s -1s, 30s +30s",
            "10s -30s, 20s +7ms, 30s -7ms",
        ] {
            let mut simulation = Simulation::new(network(law, 50, clock)).unwrap();
            for (from_s, to_s) in [(10, 30), (30, 40), (40, 60)] {
                let (utilisation, queue) = seen(&mut simulation, from_s, to_s);
                let is_settled = from_s < 40 || queue <= 20.0;
                if utilisation < 0.9 || !is_settled {
                    let times = format!("{from_s} to {to_s} s: {utilisation:.3}, {queue:.1}");
                    worse.push(format!("{law}, {clock}, {times}"));
                }
            }
        }
    }
    assert!(worse.is_empty(), "{worse:#?}");
}

#[test]
fn reports_and_stamps_that_are_late_as_in_user_space_cost_nothing() {
    let mut worse = Vec::new();
    for law in LAWS {
        let mut plan = network(law, 50, "0s +50ppm");
        plan.bundles[0].report_jitter = Duration::from_millis(2);
        plan.bundles[0].timestamp_jitter = Duration::from_micros(200);
        let mut simulation = Simulation::new(&plan).unwrap();
        let (utilisation, queue) = seen(&mut simulation, 5, 35);
        if utilisation < 0.95 || queue > 20.0 {
            worse.push(format!("{law}: {utilisation:.3}, {queue:.1}"));
        }
    }
    assert!(worse.is_empty(), "{worse:#?}");
}

#[test]
fn jitter_is_as_large_as_it_is_set() {
    let mut plan = network("copa", 50, "0s +0ppm");
    plan.stop = Duration::from_secs(10);
    // Nothing queues: the raw round trip is the path's, and what was added.
    plan.flows.clear();
    plan.flows.push(Flow {
        cc: Spec::named("newreno"),
        traffic: Traffic::Ping,
        start: Duration::ZERO,
        opened: None,
        stop: None,
        data: vec![Hop::Bundle(0)],
        back: vec![Hop::Link(1)],
    });
    let raw = |plan: &Network| -> Vec<f64> {
        let mut simulation = ran(plan);
        let epochs = simulation.bundle_log(0).unwrap().epochs();
        epochs.iter().map(|(_, epoch)| ms(epoch.raw_rtt)).collect()
    };
    let spread = |all: &[f64]| {
        let least = all.iter().copied().fold(f64::MAX, f64::min);
        (least, all.iter().copied().fold(0.0, f64::max) - least)
    };
    let quiet = raw(&plan);
    let (least, width) = spread(&quiet);
    assert!(quiet.len() > 50 && (50.0..51.0).contains(&least) && width < 21.0, "{least} {width}");
    plan.bundles[0].report_jitter = Duration::from_millis(100);
    let (least, width) = spread(&raw(&plan));
    assert!((50.0..80.0).contains(&least) && (80.0..121.0).contains(&width), "{least} {width}");
}

#[test]
fn a_suspended_receivebox_is_survived_and_shaped_with_again() {
    let mut worse = Vec::new();
    for law in LAWS {
        for seconds in [1, 8] {
            let mut plan = network(law, 50, "0s +50ppm");
            let change = |secs, what| BundleChange { at: Duration::from_secs(secs), what };
            plan.bundles[0].changes = vec![
                change(20, Upset::Suspended(true)),
                change(20 + seconds, Upset::Suspended(false)),
            ];
            let mut simulation = Simulation::new(&plan).unwrap();
            let asleep = seen(&mut simulation, 20, 30);
            let awake = seen(&mut simulation, 38, 48);
            let reports = simulation.bundle_metrics(0).reports;
            let decisions = simulation.bundle_log(0).unwrap().decisions();
            let shaped_until = |secs: u64| {
                decisions.iter().rev().find(|it| it.0 <= at(secs)).unwrap().1.rate.is_some()
            };
            // Two seconds are longer than a sendbox waits.
            let is_missed = seconds == 1 || !shaped_until(24);
            if asleep.0 < 0.9 || awake.0 < 0.95 || awake.1 > 20.0 || !shaped_until(38) || !is_missed
            {
                worse.push(format!("{law}, {seconds} s: {asleep:?}, {awake:?}, {reports} reports"));
            }
        }
    }
    assert!(worse.is_empty(), "{worse:#?}");
}

#[test]
fn a_receivebox_that_starts_anew_after_it_slept_goes_on_at_once() {
    let mut plan = network("copa", 50, "0s -10%");
    let change = |ms, what| BundleChange { at: Duration::from_millis(ms), what };
    plan.bundles[0].changes = vec![
        change(10_000, Upset::Suspended(true)),
        change(20_000, Upset::Suspended(false)),
        change(22_000, Upset::Receivebox(Signal::Kill)),
        change(22_300, Upset::Receivebox(Signal::Restart)),
    ];
    let mut simulation = Simulation::new(&plan).unwrap();
    let mut reports = |secs: u64| {
        simulation.run_until(at(secs));
        simulation.bundle_metrics(0).reports
    };
    let [before, asleep, woken, anew, later] = [10, 20, 22, 23, 25].map(&mut reports);
    assert_eq!(before, asleep);
    assert!(woken > asleep + 20 && anew > woken && later > anew + 20, "{woken} {anew} {later}");
}
