use std::collections::{BTreeMap, HashMap};

use super::cases::{CaseCell, cells};
use super::run::{Measured, Row, Variant, name, resolve, variants};
use super::table::{Presence, SensitivityTable};

/// A row whose first figure has this value.
fn row(cell: &CaseCell, value: Option<f64>, metrics: &str) -> Row {
    let figure = cell.figures[0].to_string();
    Row {
        run: String::new(),
        sources: String::new(),
        name: String::new(),
        figures: BTreeMap::from([(figure, value)]),
        metrics_sha256: metrics.into(),
        failed: None,
        wall_s: 1.0,
    }
}

/// A table from defaults that give 1 to 8 with the seeds 1 to 8. With seeds 1 and 2, the halved number adds
/// `half` and the doubled number adds `double`.
fn table(half: f64, double: f64) -> SensitivityTable {
    let more = |by: f64| move |seed: u64| Some(seed as f64 + by);
    SensitivityTable::of(&measured(more(0.0), [more(half), more(double)]))
}

/// The first figure by seed, with the defaults and with one number halved and doubled.
fn measured<T: Fn(u64) -> Option<f64>>(default: T, others: [T; 2]) -> Measured {
    let cells = cells().unwrap()[..1].to_vec();
    let variants = variants(&["supervisor_keep".into()]).unwrap();
    let mut rows = HashMap::new();
    let mut put = |variant: Option<&Variant>, seed: u64, value: Option<f64>| {
        let metrics = if value == default(seed) { "default" } else { "other" };
        rows.insert(name(&cells[0], variant, seed), row(&cells[0], value, metrics));
    };
    (1..=8).for_each(|seed| put(None, seed, default(seed)));
    for (variant, value) in variants.iter().zip(others) {
        (1..=2).for_each(|seed| put(Some(variant), seed, value(seed)));
    }
    let refused = BTreeMap::new();
    Measured { cells, variants, seeds: vec![1, 2], commit: "abc", rows, refused }
}

#[test]
fn figures_without_noise_have_some() {
    type Value = fn(u64) -> Option<f64>;
    let of = |default: Value, half: Value| {
        let table = SensitivityTable::of(&measured(default, [half, default]));
        (table.defaults[0].noise.unwrap(), table.numbers[0].largest().unwrap().1)
    };
    let (noise, change) = of(|_| Some(200.0), |_| Some(202.0));
    assert!((noise - 1.0).abs() < 1e-12 && (change - 2.0).abs() < 1e-9, "{noise} {change}");
    let (noise, change) = of(|_| Some(0.0), |_| Some(0.0002));
    assert!(noise == 1e-4 && (change - 2.0).abs() < 1e-9, "{noise} {change}");
}

#[test]
fn figures_that_come_or_go_are_changes() {
    type Value = fn(u64) -> Option<f64>;
    let of =
        |default: Value, half: Value| SensitivityTable::of(&measured(default, [half, default]));
    let some: Value = |seed| Some(seed as f64);
    for (default, half, presence) in [
        (some, (|seed| (seed > 1).then_some(1.0)) as Value, Presence::Gone),
        ((|_| None) as Value, some, Presence::New),
    ] {
        let table = of(default, half);
        let [half, double] = &table.numbers[..] else { panic!("{table:?}") };
        assert!(half.presences.values().eq([&presence]) && half.is_beyond_noise());
        assert!(double.presences.is_empty() && !double.is_beyond_noise());
        let name = "world/alone_mixed starlink flows/bulk/goodput_mbps";
        let (page, csv) = (table.page(), table.csv());
        assert!(page.contains(&format!("0.485: **{}** `{name}`", presence.name())), "{page}");
        assert!(csv.contains(&format!(",no,2,2,0,0,no,{},,,", presence.name())), "{csv}");
    }
}

#[test]
fn a_refused_value_stops_no_other() {
    let some = |seed: u64| Some(seed as f64);
    let mut measured = measured(some, [some; 2]);
    measured.refused.insert("supervisor_keep=0.485".into(), "too low".into());
    let table = SensitivityTable::of(&measured);
    let [half, double] = &table.numbers[..] else { panic!("{table:?}") };
    assert_eq!((half.refused.as_deref(), half.runs, half.wanted), (Some("too low"), 0, 0));
    assert_eq!((double.refused.as_deref(), double.runs, double.wanted), (None, 2, 2));
    let page = table.page();
    assert!(page.contains("| 0.485: not possible: out of range |"), "{page}");
    assert!(page.contains("2 of 2 runs are measured: 1 of 1 numbers in all runs"), "{page}");
}

#[test]
fn changes_are_in_units_of_noise() {
    let table = table(-12.0, 0.0);
    let [default, ..] = &table.defaults[..] else { panic!("{table:?}") };
    assert_eq!(default.mean, Some(4.5));
    let noise = default.noise.unwrap();
    assert!((noise - 6.0_f64.sqrt()).abs() < 1e-12, "{noise}");
    let [half, double] = &table.numbers[..] else { panic!("{table:?}") };
    let (figure, change) = half.largest().unwrap();
    assert_eq!(figure, "world/alone_mixed starlink flows/bulk/goodput_mbps");
    assert!((change + 12.0 / noise).abs() < 1e-12, "{change}");
    assert_eq!((half.runs, half.wanted, half.same, half.is_beyond_noise()), (2, 2, 0, true));
    assert_eq!((double.same, double.clamped, double.is_beyond_noise()), (2, true, false));
}

#[test]
fn figures_that_were_not_measured_stay_empty() {
    let csv = table(-12.0, 1.0).csv();
    let lines: Vec<&str> = csv.lines().collect();
    let begin = "supervisor_keep,\"Supervisor\",0.97";
    assert_eq!(lines[1], ",,,mean of defaults,,,,,,,,4.5000,,,");
    assert_eq!(lines[3], format!("{begin},half,0.485,no,2,2,0,0,no,-4.90,,,"));
    assert_eq!(lines[4], format!("{begin},double,0.999,yes,2,2,0,0,no,+0.408,,,"));
    let columns = |line: &&str| line.split(',').count();
    assert!(lines.iter().all(|line| columns(line) == columns(&lines[0])), "{csv}");
}

#[test]
fn the_page_says_what_was_measured() {
    let page = table(-12.0, 0.0).page();
    let figure = "world/alone_mixed starlink flows/bulk/goodput_mbps";
    let row = format!(
        "| `supervisor_keep` | 0.97 | 0.485: **-4.90** `{figure}` | 0.999 (clamped): same |"
    );
    assert!(page.contains(&row), "{page}");
    assert!(page.contains("4 of 4 runs are measured: 1 of 1 numbers in all runs"), "{page}");
    assert!(!page.contains('{'), "{page}");
}

#[test]
fn an_unknown_number_is_refused() {
    let error = variants(&["supervisor_kept".into()]).unwrap_err().to_string();
    let allowed =
        "allowed are the names in `forebay sensitivity --list`; nearest is supervisor_keep";
    assert!(error.contains(allowed), "{error}");
    assert!(
        variants(&["nonesuch".into()]).unwrap_err().to_string().ends_with("sensitivity --list`")
    );
}

#[test]
fn what_a_plan_refuses_is_named() {
    let cells = &cells().unwrap()[..1];
    let mut variants = variants(&["supervisor_keep".into()]).unwrap();
    variants[0].scaled.value = "7".into();
    let (resolved, refused) = resolve(cells, &variants);
    assert!(matches!(&resolved[..], [(_, variant, _)] if variant.scaled.value == "0.999"));
    let [(label, reason)] = &refused.into_iter().collect::<Vec<_>>()[..] else { panic!() };
    assert_eq!(label, "supervisor_keep=7");
    assert!(reason.contains("allowed is"), "{reason}");
}
