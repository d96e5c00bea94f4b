//! Invented results with known differences.

use forebay_core::random::Streams;

use super::*;
use crate::metrics::evaluate;
use crate::metrics::testing::{invented_rows, invented_run};
use crate::store::testing::put;

/// A folder with one run for each seed; all requests of a run have this slowdown.
fn stored(runs: &[(u64, f64)]) -> tempfile::TempDir {
    stored_of("sim", runs)
}

fn stored_of(backend: &str, runs: &[(u64, f64)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::create(folder.path()).unwrap();
    let (experiment, _) = invented_run();
    for (seed, slowdown) in runs {
        let mut experiment = experiment.clone();
        experiment.seed = *seed;
        let evaluation = evaluate(&experiment, &invented_rows(&experiment, *slowdown)).unwrap();
        put(&mut store, &experiment, backend, &evaluation);
    }
    folder
}

fn compared(old: &[(u64, f64)], new: &[(u64, f64)], metric: &str) -> Comparison {
    let (old, new) = (stored(old), stored(new));
    let [old, new] = [&old, &new].map(|folder| ComparedSide::read(folder.path()).unwrap());
    let options = CompareOptions { level: 0.01, above: 0.02, metric: metric.into() };
    compare(old, new, &options)
}

/// Slowdowns around `level` with noise of up to 2.5 %, one for each seed.
fn noisy(seeds: std::ops::Range<u64>, level: f64) -> Vec<(u64, f64)> {
    let noise = |seed: u64| Streams::new(seed).stream("noise").unit() - 0.5;
    seeds.map(|seed| (seed, level * (1.0 + 0.05 * noise(seed)))).collect()
}

#[test]
fn nothing_differs_where_all_is_equal() {
    let runs = noisy(1..11, 1.5);
    let found = compared(&runs, &runs, "");
    assert!(found.paired && found.seeds == [10, 10] && found.blind.is_none());
    assert!(found.figures > 30 && found.changed.is_empty() && found.smaller == 0, "{found:?}");
    let other = compared(&runs, &noisy(11..21, 1.5), "slowdown");
    assert!(!other.paired && other.changed.is_empty(), "{:?}", other.changed);
}

#[test]
fn change_is_reported_with_spreads_and_place() {
    let (old, new) = (noisy(1..11, 1.5), noisy(1..11, 1.65));
    for (found, paired) in
        [(compared(&old, &new, ""), true), (compared(&old, &noisy(11..21, 1.65), ""), false)]
    {
        assert_eq!(found.paired, paired);
        let change = found.changed.iter().find(|it| it.metric == "slowdown_p50").unwrap();
        let share = change.share().unwrap();
        assert!((share.median - 0.1).abs() < 0.03, "{share:?}");
        assert!(share.low > 0.05 && share.high < 0.15 && change.p.unwrap() <= 0.01);
        assert!(change.old.greatest < change.new.least);
        assert!(found.changed.iter().all(|it| it.metric != "requests_total"));
    }
}

#[test]
fn small_changes_are_counted_few_seeds_reported() {
    let found = compared(&noisy(1..11, 1.5), &noisy(1..11, 1.51), "slowdown_p50");
    assert_eq!((found.changed.len(), found.smaller > 0), (0, true), "{found:?}");
    let few = compared(&noisy(1..4, 1.5), &noisy(1..4, 3.0), "");
    let reason = few.blind.as_ref().unwrap();
    assert!(few.changed.is_empty() && reason.contains("both sides share 3 seeds, 8"), "{reason}");
    assert!(few.in_a_sentence().contains("8 are needed"));
    let untested = few.untested.iter().find(|it| it.metric == "slowdown_p50").unwrap();
    assert!(untested.p.is_none() && (untested.new.median / untested.old.median - 2.0).abs() < 0.2);
    let Interval { median, low, high } = untested.difference;
    assert!(low <= median && median <= high && high - low < 0.2, "{low} to {high}");
    assert!(few.untested.iter().all(|it| it.metric != "requests_total"));
}

#[test]
fn two_back_ends_stand_side_by_side() {
    let (ours, theirs) =
        (stored_of("sim", &noisy(1..11, 1.5)), stored_of("ns3", &noisy(1..11, 1.65)));
    let [old, new] = [&ours, &theirs].map(|folder| ComparedSide::read(folder.path()).unwrap());
    let options = CompareOptions { level: 0.01, above: 0.02, metric: String::new() };
    let found = compare(old, new, &options);
    assert!(found.paired && found.only_old.is_empty() && found.only_new.is_empty());
    assert_eq!(found.changed[0].place.backend, "sim to ns3");
}

#[test]
fn the_page_shows_each_change() {
    let found = compared(&noisy(1..11, 1.5), &noisy(1..11, 1.65), "slowdown");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("compare.html");
    write(&found, &path).unwrap();
    let html = std::fs::read_to_string(&path).unwrap();
    assert!(html.contains("slowdown_p50") && html.contains("95 % interval"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing half-written stays");
}
