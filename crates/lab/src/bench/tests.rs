//! A benchmark of two plans, cut short.

use super::*;
use crate::report::FILE;

fn request(algorithms: &[&str]) -> Request {
    Request {
        algorithms: algorithms.iter().map(|name| name.to_string()).collect(),
        only: ["shallow_buffers", "competition_duel"].map(String::from).to_vec(),
        sets: ["stop=2s", "warmup=500ms"].map(|set| Override::parse(set).unwrap()).to_vec(),
        ..Request::default()
    }
}

#[test]
fn names_are_of_the_benchmark_with_or_without_their_folder() {
    let all = Request { algorithms: vec!["cubic".into()], ..Request::default() };
    assert_eq!(all.plans().unwrap().len(), benchmark().count());
    let named = Request { only: vec!["ccperf/parking_lot".into()], ..all.clone() };
    assert_eq!(named.plans().unwrap()[0].name, "parking_lot");
    let refused = Request { only: vec!["nonesuch".into()], ..all.clone() };
    let error = refused.plans().unwrap_err().to_string();
    assert!(error.contains("--only nonesuch: allowed is") && error.contains("parking_lot"));
    let unknown = Request { algorithms: vec!["cubci".into()], ..all };
    let options = Options { backend: "sim".into(), ..Options::default() };
    let error = bench(&unknown, &options, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("nearest is cubic"), "{error}");
}

#[test]
fn algorithms_are_tested_scored_and_reported_and_a_later_one_joins_them() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        backend: "sim".into(),
        out: Some(folder.path().into()),
        seeds: Some("1..2".parse().unwrap()),
        ..Options::default()
    };
    let test = |names: &[&str]| {
        let mut reused = 0;
        let found = bench(&request(names), &options, &mut |step| {
            let is_reused = |it: crate::Progress<'_>| it.event == crate::Event::Reused;
            reused += usize::from(matches!(step, Step::UnderWay(it) if is_reused(it)));
        });
        (found.unwrap(), reused)
    };
    let (first, reused) = test(&["cubic"]);
    assert!(first.is_fine() && reused == 0, "{first:?}");
    assert_eq!(first.scorecard.algorithms, ["cubic"]);
    let (both, _) = test(&["cubic", "vegas"]);
    assert_eq!(both.scorecard.algorithms, ["cubic", "vegas"]);
    let page = std::fs::read_to_string(&both.report).unwrap();
    assert!(page.contains("Scorecard") && page.contains("Against each other"));
    for experiment in &both.experiments {
        assert!(experiment.folder.join(FILE).is_file() && page.contains(&experiment.title));
    }
    let (again, reused) = test(&["cubic", "vegas"]);
    let runs: usize = again.experiments.iter().map(|experiment| experiment.runs).sum();
    assert_eq!(reused, runs, "nothing is simulated twice");
    let scores = |it: &Benchmark| serde_json::to_string(&it.scorecard).unwrap();
    assert_eq!(scores(&again), scores(&both));
}
