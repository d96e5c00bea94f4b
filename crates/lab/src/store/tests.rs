use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::metrics::Series;
use crate::metrics::testing::{experiment, invented_run};

fn key(seed: u64) -> RunKey {
    let mut experiment = experiment();
    experiment.seed = seed;
    RunKey::of(&experiment, "emu", "abc")
}

fn put(store: &mut Store, seed: u64, attempt: u32, invalid: &[&str]) -> i64 {
    let (experiment, mut evaluation) = invented_run();
    evaluation.invalid = invalid.iter().map(|reason| reason.to_string()).collect();
    let key = &key(seed);
    let host = &json!({ "kernel": "6.1", "wall_s": 3.5 });
    let (experiment, evaluation) = (&experiment, &evaluation);
    let run = NewRun { key, experiment, commit: "c", attempt, evaluation, host };
    store.put_run(&run).unwrap()
}

#[test]
fn a_run_comes_back_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::create(folder.path()).unwrap();
    let id = put(&mut store, 1, 1, &[]);
    drop(store);
    let store = Store::open(folder.path()).unwrap();
    let (experiment, evaluation) = invented_run();
    let run = store.run(id).unwrap();
    assert_eq!((&run.key, run.commit.as_str()), (&key(1), "c"));
    assert!(run.is_valid());
    assert_eq!(run.parameters, experiment.parameters);
    assert_eq!(run.metrics, evaluation.run);
    assert_eq!(run.links.len(), evaluation.links.len());
    assert_eq!(run.host["wall_s"], 3.5);
    assert_eq!(run.flow_kinds["web"], ("cubic".to_string(), Some("a".to_string())));
    let outcomes = store.outcomes(id).unwrap();
    let counted: Vec<_> = evaluation.requests.iter().filter(|r| r.counted).collect();
    assert_eq!(outcomes.len(), counted.len());
    assert_eq!(outcomes[0].1, counted[0].outcome);
    let series = &evaluation.series[0];
    let stored = store.series(id, series.part, &series.name, series.quantity).unwrap();
    assert_eq!(stored, series.points);
    assert!(store.series(id, "link", "none", "none").unwrap().is_empty());
    assert!(!evaluation.transitions.is_empty());
    assert_eq!(store.transitions(id).unwrap(), evaluation.transitions);
}

#[test]
fn connection_series_have_all_quantities() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::create(folder.path()).unwrap();
    let (experiment, mut evaluation) = invented_run();
    let mut put = |quantity, points: Vec<(f64, f64)>| {
        evaluation.series.push(Series { part: "flow", name: "one".into(), quantity, points });
    };
    put("cwnd_segments", vec![(0.01, 10.0), (0.06, 20.0), (0.11, 40.0)]);
    put("srtt_ms", vec![(0.06, 50.0)]);
    put("throughput_mbps", vec![(0.0, 1.0), (0.1, 2.0), (0.2, 3.0)]);
    put("retransmissions", vec![(0.01, 0.0), (0.06, 3.0), (0.11, 7.0)]);
    let (key, host) = (&key(1), &json!({}));
    let (experiment, evaluation) = (&experiment, &evaluation);
    let run = NewRun { key, experiment, commit: "c", attempt: 1, evaluation, host };
    let id = store.put_run(&run).unwrap();
    let bin = |at_s, cwnd_segments, throughput_mbps, retransmissions| Bin {
        at_s,
        cwnd_segments,
        srtt_ms: 50.0,
        throughput_mbps,
        retransmissions,
    };
    let bins = store.connection_over_time(id, "one").unwrap().bins;
    assert_eq!(
        bins,
        [bin(0.0, 15.0, 1.0, 3.0), bin(0.1, 40.0, 2.0, 4.0), bin(0.2, 40.0, 3.0, 0.0)]
    );
    assert!(store.connection_over_time(id, "other").unwrap().bins.is_empty());
}

#[test]
fn attempts_are_kept_and_told_apart_by_key() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::create(folder.path()).unwrap();
    put(&mut store, 1, 1, &["late"]);
    put(&mut store, 2, 1, &[]);
    put(&mut store, 1, 2, &[]);
    let attempt = |id, valid| Attempt { id, valid, failed: false };
    assert_eq!(store.attempts(&key(1)).unwrap(), [attempt(1, false), attempt(3, true)]);
    assert!(store.attempts(&key(3)).unwrap().is_empty());
    let other = RunKey { sources: "def".into(), ..key(1) };
    assert!(store.attempts(&other).unwrap().is_empty());
    assert_eq!(store.run(1).unwrap().invalid, ["late"]);
    let plan = &key(1).plan;
    assert_eq!(store.wall_s(plan, "emu").unwrap(), Some(3.5));
    assert_eq!(store.wall_s(plan, "sim").unwrap(), None);
    assert_eq!(store.run_ids().unwrap(), [1, 2, 3]);
}

#[test]
fn last_trial_of_another_seed_has_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::create(folder.path()).unwrap();
    put(&mut store, 1, 1, &[]);
    assert!(store.last_host(&key(3)).unwrap().is_null(), "no trial of costs");
    let (experiment, evaluation) = &invented_run();
    for (seed, rate) in [(1, 7), (2, 8)] {
        let (key, host) = (&key(seed), &json!({ "cost": { "rate_bps": rate } }));
        let run = NewRun { key, experiment, commit: "c", attempt: 1, evaluation, host };
        store.put_run(&run).unwrap();
    }
    assert_eq!(store.last_host(&key(3)).unwrap()["cost"]["rate_bps"], 8);
    let other = RunKey { sources: "def".into(), ..key(3) };
    assert!(store.last_host(&other).unwrap().is_null());
}

/// The rows of `tables`.
fn rows_of<const N: usize>(store: &Store, tables: [&'static str; N]) -> Tables<'static> {
    let rows = |table| {
        let mut rows = Vec::new();
        let visit = |cells: &[Cell<'_>]| {
            let owned = |cell: &Cell<'_>| match cell {
                Cell::Nothing => Cell::Nothing,
                Cell::Integer(number) => Cell::Integer(*number),
                Cell::Real(number) => Cell::Real(*number),
                Cell::Text(text) => Cell::Text(text.to_string().into()),
            };
            rows.push(cells.iter().map(owned).collect::<Row>());
            Ok::<(), StoreError>(())
        };
        store.rows(table, visit).unwrap();
        (table, rows)
    };
    tables.map(rows).into()
}

/// The rows of all tables that `adopt` takes.
fn all_rows_of(store: &Store) -> Tables<'static> {
    let mut rows = rows_of(store, OF_RUNS);
    rows.extend(rows_of(store, OVER_TIME));
    rows
}

#[test]
fn runs_are_adopted_once_and_whole() {
    let mut there = Store::in_memory().unwrap();
    let ids = [put(&mut there, 1, 1, &["late"]), put(&mut there, 2, 1, &[])];
    let folder = tempfile::tempdir().unwrap();
    let mut here = Store::create(folder.path()).unwrap();
    put(&mut here, 9, 1, &[]);
    assert_eq!(here.adopt(&all_rows_of(&there)).unwrap(), 2);
    for (id, new) in ids.into_iter().zip([2, 3]) {
        let (run, taken) = (there.run(id).unwrap(), here.run(new).unwrap());
        assert_eq!((&run.key, &run.invalid), (&taken.key, &taken.invalid));
        assert_eq!((&run.metrics, &run.flows), (&taken.metrics, &taken.flows));
        assert_eq!((&run.parameters, &run.host), (&taken.parameters, &taken.host));
        assert_eq!(run.flow_kinds, taken.flow_kinds);
        assert_eq!(there.outcomes(id).unwrap(), here.outcomes(new).unwrap());
        assert_eq!(there.transitions(id).unwrap(), here.transitions(new).unwrap());
    }
    let samples = |store: &Store| rows_of(store, OVER_TIME)["samples"].len();
    assert_eq!(2 * samples(&here), 3 * samples(&there));
    assert_eq!(here.adopt(&all_rows_of(&there)).unwrap(), 0);
    assert_eq!(2 * samples(&here), 3 * samples(&there));
    // An invalid attempt stays until a valid one follows.
    let mut later = Store::in_memory().unwrap();
    put(&mut later, 1, 1, &[]);
    assert_eq!(here.adopt(&rows_of(&later, OF_RUNS)).unwrap(), 1);
    let attempts = here.attempts(&key(1)).unwrap();
    assert_eq!(attempts.iter().map(|it| it.valid).collect::<Vec<_>>(), [false, true]);
    assert_eq!(here.run(attempts[1].id).unwrap().attempt, 2);
    // Samples may be adopted later.
    let (_, evaluation) = invented_run();
    let series = &evaluation.series[0];
    let Series { part, name, quantity, .. } = series;
    let read = |store: &Store| store.series(attempts[1].id, part, name, quantity);
    assert!(read(&here).unwrap().is_empty());
    assert_eq!(here.adopt(&all_rows_of(&later)).unwrap(), 0);
    assert_eq!(read(&here).unwrap(), series.points);
}

#[test]
fn invalid_rows_are_refused_without_traces() {
    let mut there = Store::in_memory().unwrap();
    put(&mut there, 1, 1, &[]);
    let folder = tempfile::tempdir().unwrap();
    let mut here = Store::create(folder.path()).unwrap();
    let spoilt = |table: &str, spoil: fn(&mut Row)| {
        let mut rows = all_rows_of(&there);
        spoil(&mut rows.get_mut(table).unwrap()[0]);
        rows
    };
    let text = |row: &mut Row| row[0] = Cell::Text("one".into());
    assert!(matches!(here.adopt(&spoilt("runs", text)), Err(StoreError::Rows(_))));
    assert!(matches!(here.adopt(&spoilt("metrics", text)), Err(StoreError::Rows(_))));
    assert!(matches!(here.adopt(&spoilt("samples", text)), Err(StoreError::Rows(_))));
    assert!(matches!(here.adopt(&spoilt("runs", Row::clear)), Err(StoreError::Rows(_))));
    assert!(matches!(here.adopt(&spoilt("links", |row| row.truncate(2))), Err(StoreError::Sql(_))));
    assert!(here.run_ids().unwrap().is_empty());
}

#[test]
fn every_part_of_a_key_makes_another_digest() {
    let plain = key(1);
    let others = [
        RunKey { seed: 2, ..plain.clone() },
        RunKey { plan: plain.plan.clone() + "x", ..plain.clone() },
        RunKey { arm: "x".into(), cell: String::new(), ..plain.clone() },
        RunKey { arm: String::new(), cell: "x".into(), ..plain.clone() },
        RunKey { backend: "sim".into(), ..plain.clone() },
        RunKey { sources: "def".into(), ..plain.clone() },
        RunKey { experiment_sha256: "0".into(), ..plain.clone() },
    ];
    let digests: BTreeSet<String> = others.iter().chain([&plain]).map(RunKey::digest).collect();
    assert_eq!(digests.len(), 8);
    assert_eq!(plain.digest().len(), 64);
}

#[test]
fn a_run_that_fails_half_way_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::create(folder.path()).unwrap();
    let (experiment, mut evaluation) = invented_run();
    // The same request twice breaks the primary key after the head has been written.
    evaluation.requests.push(evaluation.requests[0].clone());
    let (key, host) = (&key(1), &json!({}));
    let (experiment, evaluation) = (&experiment, &evaluation);
    let run = NewRun { key, experiment, commit: "c", attempt: 1, evaluation, host };
    assert!(store.put_run(&run).is_err());
    assert!(store.run_ids().unwrap().is_empty());
}

#[test]
fn only_stores_of_this_schema_are_opened() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(Store::open(folder.path()), Err(StoreError::Absent(_))));
    let store = Store::create(folder.path()).unwrap();
    store.connection.execute_batch("PRAGMA user_version = 99").unwrap();
    drop(store);
    assert!(matches!(Store::open(folder.path()), Err(StoreError::Schema { found: 99, .. })));
    std::fs::write(folder.path().join(FILE), "no database at all, but long enough").unwrap();
    assert!(matches!(Store::open(folder.path()), Err(StoreError::Sql(_))));
}

#[test]
fn benchmark_stores_are_found_below_folder() {
    let folder = tempfile::tempdir().unwrap();
    let found = || {
        let stores = Store::all_in(folder.path())?;
        let names = stores.iter().map(|store| store.folder().file_name().unwrap().to_owned());
        Ok::<_, StoreError>(names.collect::<Vec<_>>())
    };
    assert!(matches!(found(), Err(StoreError::Absent(_))));
    for name in ["second", "first"] {
        Store::create(&folder.path().join(name)).unwrap();
    }
    std::fs::create_dir(folder.path().join("no results")).unwrap();
    assert_eq!(found().unwrap(), ["first", "second"]);
    Store::create(folder.path()).unwrap();
    assert_eq!(found().unwrap().len(), 1, "that of the folder itself alone");
}

#[test]
fn rows_have_a_cell_for_each_column() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::create(folder.path()).unwrap();
    put(&mut store, 1, 1, &[]);
    let rows = |table| {
        let mut rows = Vec::new();
        let columns = store.columns(table).unwrap();
        let visit = |cells: &[Cell<'_>]| {
            assert_eq!(cells.len(), columns.len(), "{table}");
            for (cell, column) in cells.iter().zip(&columns) {
                let fits = match cell {
                    Cell::Nothing => column.is_optional,
                    Cell::Integer(_) => column.kind == ColumnKind::Integer,
                    Cell::Real(_) => column.kind == ColumnKind::Real,
                    Cell::Text(_) => column.kind == ColumnKind::Text,
                };
                assert!(fits, "{table}: {cell:?} under {column:?}");
            }
            rows.push(format!("{cells:?}"));
            Ok::<(), StoreError>(())
        };
        store.rows(table, visit).unwrap();
        rows
    };
    let (_, evaluation) = invented_run();
    let samples: usize = evaluation.series.iter().map(|series| series.points.len()).sum();
    let (at_s, value) = evaluation.series[0].points[0];
    let all = TABLES.map(rows);
    let of = |table: &str| &all[TABLES.iter().position(|it| *it == table).unwrap()];
    assert_eq!(of("samples").len(), samples);
    assert_eq!(
        of("samples")[0],
        format!("[Integer(1), Integer(0), Real({at_s:?}), Real({value:?})]")
    );
    assert_eq!((of("series").len(), of("runs").len()), (evaluation.series.len(), 1));
    assert!(store.rows("nothing", |_| Ok::<(), StoreError>(())).is_err());
}
