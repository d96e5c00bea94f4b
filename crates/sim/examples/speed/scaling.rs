//! Speed-up of two threads over one, for simulations and for a loop without memory accesses.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_sim::Simulation;
use nix::time::ClockId;

use crate::{clock_ns, scenarios};

/// Number of parts of the runs, alternating with the loop, since the machine's speed varies over
/// time.
const PARTS: u32 = 5;
/// Least gain of simulations from a second thread, as a share of the loop's gain.
const LEAST_SHARE: f64 = 0.9;

/// Runs B1 `runs` times on one thread, as often on two, and a loop of about the same time in between.
/// Returns whether the median part scales as required.
pub fn compare(runs: u32) -> bool {
    let runs = (runs / PARTS).max(1);
    let plan = scenarios::rate_step();
    let simulate = || {
        let mut simulation = Simulation::new(&plan).expect("a valid scenario");
        simulation.run();
        black_box(simulation.event_hash());
    };
    let mut rows = [(); PARTS as usize].map(|()| {
        let sim = [1, 2].map(|threads| elapsed_s(threads, runs, simulate));
        let loops = [1, 2].map(|threads| elapsed_s(threads, runs, spin));
        (sim[0] / sim[1], loops[0] / loops[1], sim)
    });
    rows.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    let (scaling, reference, _) = rows[rows.len() / 2];
    let median = scaling / reference;
    for (scaling, reference, [one_s, two_s]) in rows {
        println!(
            "{runs} x b1: {one_s:.2} s on one thread, {two_s:.2} s on two: {scaling:.3} times; \
             the loop {reference:.3}; share {:.3}",
            scaling / reference
        );
    }
    let scales = median >= LEAST_SHARE;
    if !scales {
        eprintln!(
            "a second thread speeds simulations up by {median:.3} of the reference loop's factor \
             (median), expected at least {LEAST_SHARE}"
        );
    }
    scales
}

/// Time that `threads` take to do `work` `runs` times; a free thread takes the next one.
fn elapsed_s(threads: u32, runs: u32, work: impl Fn() + Sync) -> f64 {
    let next = AtomicU32::new(0);
    let before_ns = clock_ns(ClockId::CLOCK_MONOTONIC);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < runs {
                    work();
                }
            });
        }
    });
    (clock_ns(ClockId::CLOCK_MONOTONIC) - before_ns) as f64 * 1e-9
}

/// About as long as a run of B1. There are four independent chains: if two threads share a core, they
/// slow each other down as much as simulations do. A single chain would leave room.
fn spin() {
    let mut chains = black_box([1_u64, 2, 3, 4]);
    for _ in 0..4_000_000_u32 {
        for chain in &mut chains {
            *chain = (*chain ^ (*chain >> 29)).wrapping_mul(6_364_136_223_846_793_005);
        }
    }
    black_box(chains);
}
