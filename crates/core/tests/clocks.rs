//! Clocks that do not agree, in the plant of `testing::plant`: what a bundle must hold up to 1000 ppm, and
//! what it must survive.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use forebay_core::clock::{Change, Clock};
use forebay_core::testing::plant::{Flow, Outage, Plan, Trace};
use forebay_core::units::Duration;

const LAWS: [&str; 3] = ["copa", "setpoint", "basic_delay"];

/// Runs every plan on all processors and answers what `judge` finds wrong with any trace.
fn faults(plans: &[(String, Plan)], judge: impl Fn(&Plan, &Trace) -> String + Sync) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let worker = || {
        let mut found = Vec::new();
        while let Some((name, plan)) = plans.get(next.fetch_add(1, Ordering::Relaxed)) {
            let fault = judge(plan, &plan.run());
            if !fault.is_empty() {
                found.push(format!("{name}: {fault}"));
            }
        }
        found
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|it| it.join().expect("the run ends")).collect()
    })
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Bins of all runs, and those of them in which the base is further than 1 ms from the path's.
#[derive(Default)]
struct Bases {
    all: AtomicUsize,
    off: AtomicUsize,
}

impl Bases {
    fn assert_held(&self) {
        let [all, off] = [&self.all, &self.off].map(|it| it.load(Ordering::Relaxed));
        assert!(100 * off <= all, "the base is off in {off} of {all} bins");
    }
}

/// What is not held between these times; the base may be off in a hundredth of all runs' time.
fn unheld(plan: &Plan, trace: &Trace, from_s: f64, to_s: f64, pooled: &Bases) -> String {
    let used = trace.utilisation(from_s, to_s);
    let queue = trace.mean_queue(from_s, to_s);
    let rtt_ms = plan.rtt.as_secs_f64() * 1e3;
    let bins = &trace.bins[(from_s * 100.0) as usize..(to_s * 100.0) as usize];
    let bases = bins.iter().filter_map(|bin| bin.bundles[0].decision?.min_rtt);
    let off: Vec<f64> = bases.map(|it| it.as_secs_f64() * 1e3 - rtt_ms).collect();
    pooled.all.fetch_add(off.len(), Ordering::Relaxed);
    let beyond = off.iter().filter(|it| it.abs() > 1.0).count();
    pooled.off.fetch_add(beyond, Ordering::Relaxed);
    let off =
        off.iter().fold(0.0, |worst: f64, it| if it.abs() > worst.abs() { *it } else { worst });
    if used >= 0.95 && queue <= 20.0 && off.abs() <= 2.0 {
        return String::new();
    }
    format!("{from_s} to {to_s} s: {used:.3} used, {queue:.1} packets, base {off:+.2} ms")
}

#[test]
fn clocks_that_drift_by_up_to_a_thousandth_are_held() {
    let mut plans = Vec::new();
    for law in LAWS {
        for rtt_ms in [10, 20, 50, 100] {
            for ppm in [-1000.0, -300.0, -100.0, 100.0, 300.0, 1000.0] {
                let seed = rtt_ms + ppm as u64 % 7;
                let plan = Plan::new(law, 96, rtt_ms).stop(30).seed(seed);
                let plan = Plan { clock: Clock::fast_by(ppm), ..plan };
                plans.push((format!("{law}, {rtt_ms} ms, {ppm} ppm"), plan));
            }
        }
    }
    let pooled = Bases::default();
    let faults = faults(&plans, |plan, trace| unheld(plan, trace, 5.0, 30.0, &pooled));
    assert!(faults.is_empty(), "{} of {}: {faults:#?}", faults.len(), plans.len());
    pooled.assert_held();
}

#[test]
fn drift_that_changes_again_and_again_leaves_no_trace_in_the_base() {
    let mut plans = Vec::new();
    for law in LAWS {
        for (mbit, rtt_ms) in [(24, 20), (96, 20), (96, 100)] {
            let ppms = [500.0, -500.0, 1000.0, 0.0, -1000.0, 250.0].into_iter().cycle();
            let clock = (1..20).zip(ppms).fold(Clock::default(), |clock, (turn, ppm)| {
                clock.change(seconds(6 * turn), Change::Rate(ppm * 1e-6))
            });
            let plan = Plan::new(law, mbit, rtt_ms).stop(125);
            plans.push((format!("{law}, {mbit} Mbit/s, {rtt_ms} ms"), Plan { clock, ..plan }));
        }
    }
    let pooled = Bases::default();
    let faults = faults(&plans, |plan, trace| unheld(plan, trace, 5.0, 125.0, &pooled));
    assert!(faults.is_empty(), "{} of {}: {faults:#?}", faults.len(), plans.len());
    pooled.assert_held();
}

#[test]
fn no_drift_and_no_slew_throttles_the_bundle_and_ten_seconds_later_it_is_held_again() {
    let mut plans = Vec::new();
    for law in LAWS {
        for rtt_ms in [10, 20, 50, 100] {
            for (share, time_s) in [(2600e-6, 30), (-2600e-6, 30), (0.1, 60), (-0.1, 60)] {
                for seed in 1..=if time_s == 30 { 2 } else { 1 } {
                    let clock = Clock::default()
                        .change(seconds(10), Change::Rate(share))
                        .change(seconds(10 + time_s), Change::Rate(0.0));
                    let stop = 30 + time_s;
                    let plan = Plan::new(law, 96, rtt_ms).stop(stop).seed(seed);
                    let name = format!("{law}, {rtt_ms} ms, {share} for {time_s} s, seed {seed}");
                    plans.push((name, Plan { clock, ..plan }));
                }
            }
        }
    }
    let pooled = Bases::default();
    let faults = faults(&plans, |plan, trace| {
        let end_s = plan.stop.as_secs_f64();
        let used = trace.utilisation(10.0, end_s - 20.0);
        let after = unheld(plan, trace, end_s - 10.0, end_s, &pooled);
        let throttled = if used < 0.9 { format!("{used:.3} used; ") } else { String::new() };
        throttled + &after
    });
    assert!(faults.is_empty(), "{} of {}: {faults:#?}", faults.len(), plans.len());
    pooled.assert_held();
}

#[test]
fn a_clock_that_is_put_on_or_back_costs_nothing() {
    let mut plans = Vec::new();
    for law in LAWS {
        for (mbit, rtt_ms) in [(24, 20), (96, 50)] {
            for step_ms in [-3_600_000, -30_000, -300, -20, -4, 4, 20, 300, 30_000, 3_600_000] {
                let step = Change::Step(step_ms * 1_000_000);
                let clock = Clock::default().change(seconds(10), step);
                let greedy = vec![Flow::Tcp(Duration::ZERO, None); 4];
                let plan = Plan::new(law, mbit, rtt_ms).flows(greedy).stop(30);
                let name = format!("{law}, {mbit} Mbit/s, {rtt_ms} ms, {step_ms} ms");
                plans.push((name, Plan { clock, ..plan }));
            }
        }
    }
    let pooled = Bases::default();
    let faults = faults(&plans, |plan, trace| {
        let used = trace.utilisation(10.0, 20.0);
        let after = unheld(plan, trace, 20.0, 30.0, &pooled);
        let throttled = if used < 0.9 { format!("{used:.3} used; ") } else { String::new() };
        throttled + &after
    });
    assert!(faults.is_empty(), "{} of {}: {faults:#?}", faults.len(), plans.len());
    pooled.assert_held();
}

#[test]
fn a_receivebox_that_sleeps_is_survived() {
    let mut plans = Vec::new();
    for law in LAWS {
        for rtt_ms in [20, 50] {
            for asleep_s in [1, 5, 40] {
                let mut plan = Plan::new(law, 96, rtt_ms).stop(30 + asleep_s);
                plan.outage = Some((Outage::Suspended, seconds(10), seconds(10 + asleep_s)));
                plans.push((format!("{law}, {rtt_ms} ms, {asleep_s} s asleep"), plan));
            }
        }
    }
    let pooled = Bases::default();
    let faults = faults(&plans, |plan, trace| {
        let end_s = plan.stop.as_secs_f64();
        let used = trace.utilisation(10.0, end_s - 10.0);
        let after = unheld(plan, trace, end_s - 10.0, end_s, &pooled);
        let throttled = if used < 0.9 { format!("{used:.3} used; ") } else { String::new() };
        throttled + &after
    });
    assert!(faults.is_empty(), "{} of {}: {faults:#?}", faults.len(), plans.len());
    pooled.assert_held();
}
