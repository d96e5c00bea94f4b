//! Checks that `forebay compare` reports real differences, and nothing else.
//!
//! ```text
//! Cubic and Cubic, the same seeds           ──► nothing may differ
//! Cubic and one whose beta is 10 % off      ──► something must, seed by seed and on other seeds
//! Cubic and Cubic on other seeds, often     ──► how often a difference is reported although there is none
//! ```

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use forebay_lab::Options;
use forebay_lab::compare::{self, ComparedSide, Comparison, compare};
use forebay_lab::plan::{Override, Plan, Seeds};

use crate::Misuse;

/// Plans whose runs differ from seed to seed by the flows' starts and by random losses, and two of the cells of each.
const PLANS: [(&str, &str); 2] = [
    ("ccperf/shallow_buffers", "cells.bottleneck.qdisc.limit=[\"5p\", \"15p\"]"),
    ("ccperf/loss_resilience", "cells.bottleneck.loss=[0.001, 0.01]"),
];
/// Settings of all runs: short ones of Cubic.
const SETS: [&str; 3] = ["aut=cubic", "stop=10s", "warmup=2s"];
/// Betas that are 10 % off the 0.7 of RFC 9438 section 4.6.
const OFF: [&str; 2] = ["77%", "63%"];
/// Number of seeds on each side.
const SEEDS: u64 = 10;
/// Chance that anything is called where nothing differs, which is the default of `forebay compare`.
const LEVEL: f64 = 0.01;
/// Number of comparisons without a real difference.
const COMPARISONS: u64 = 100;
/// Largest number of [`COMPARISONS`] that may report a difference. With a chance of 1 % each, more
/// do so in one of two thousand calls.
const FALSE_MAX: u64 = 5;

/// Prints all reported differences, and fails unless they are the expected ones.
pub fn check(arguments: &[String]) -> Result<()> {
    if let Some(argument) = arguments.first() {
        return Err(Misuse::of(anyhow!("{argument}: compare-check takes no arguments")));
    }
    let found = beside("same", (1, "70%"), (1, "70%"))?;
    ensure!(found.is_equal(), "the same seeds: {}", found.in_a_sentence());
    for beta in OFF {
        for (of, first) in [("the same seeds", 1), ("other seeds", SEEDS + 1)] {
            let name = format!("beta {beta} for 70%, {of}");
            let found = beside(&name, (1, "70%"), (first, beta))?;
            ensure!(!found.changed.is_empty(), "{name}: no change is reported");
        }
    }
    let mut called = 0;
    for number in 0..COMPARISONS {
        let first = 1 + 2 * SEEDS * number;
        let name = format!("equal, {} of {COMPARISONS}", number + 1);
        let found = beside(&name, (first, "70%"), (first + SEEDS, "70%"))?;
        called += u64::from(!found.changed.is_empty());
    }
    println!("{called} of {COMPARISONS} comparisons of equal runs report a change");
    ensure!(called <= FALSE_MAX, "{called} false reports: allowed are {FALSE_MAX}");
    Ok(())
}

/// Compares two Cubics, each given by its first seed and its beta, and prints the result.
fn beside(name: &str, old: (u64, &str), new: (u64, &str)) -> Result<Comparison> {
    let folder = tempfile::tempdir()?;
    let [old, new] = [("old", old), ("new", new)].map(|(side, (first, beta))| {
        let seeds = Seeds { first, last: first + SEEDS - 1 };
        run(&folder.path().join(side), seeds, beta).with_context(|| format!("{name}, {side}"))
    });
    // Changes of any size, where the command leaves out small ones.
    let options = compare::CompareOptions { level: LEVEL, above: 0.0, metric: String::new() };
    let found = compare(old?, new?, &options);
    println!("{name}: {}", found.in_a_sentence());
    Ok(found)
}

/// The results of all plans with these seeds, made in `folder`.
fn run(folder: &Path, seeds: Seeds, beta: &str) -> Result<ComparedSide> {
    let law = format!("flow.aut.cc={{ kind = \"cubic\", beta = \"{beta}\" }}");
    for (name, cells) in PLANS {
        let sets = SETS.into_iter().chain([cells, &law]).map(Override::parse);
        let plan = Plan::load(name, &sets.collect::<Result<Vec<_>, _>>()?)?;
        let options = Options {
            backend: "sim".into(),
            out: Some(folder.join(&plan.name)),
            seeds: Some(seeds),
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            ..Options::default()
        };
        forebay_lab::run(&plan, &options, &mut |_| {})?;
    }
    Ok(ComparedSide::read(folder)?)
}
