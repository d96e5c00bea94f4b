//! A benchmark of two plans, cut short.

use super::*;
use forebay_lab::judge::Verdict;
use forebay_lab::plan::library::benchmark;
use forebay_lab::report::FILE;

fn request(algorithms: &[&str]) -> BenchRequest {
    BenchRequest {
        algorithms: algorithms.iter().map(|name| name.to_string()).collect(),
        only: ["shallow_buffers", "competition_duel"].map(String::from).to_vec(),
        sets: ["stop=2s", "warmup=500ms"].map(|set| Override::parse(set).unwrap()).to_vec(),
        ..BenchRequest::default()
    }
}

#[test]
fn accepts_plan_names_with_or_without_folder() {
    let all = BenchRequest { algorithms: vec!["cubic".into()], ..BenchRequest::default() };
    assert_eq!(all.plans().unwrap().len(), benchmark().count());
    let named = BenchRequest { only: vec!["ccperf/parking_lot".into()], ..all.clone() };
    assert_eq!(named.plans().unwrap()[0].name, "parking_lot");
    let refused = BenchRequest { only: vec!["nonesuch".into()], ..all };
    let error = refused.plans().unwrap_err().to_string();
    assert!(error.contains("--only nonesuch: allowed is") && error.contains("parking_lot"));
}

#[test]
fn refuses_unknown_algorithm_and_names_argument() {
    let options = Options { backend: "sim".into(), ..Options::default() };
    for (name, begins, ends) in [
        (
            "cubci",
            "ALGORITHM \"cubci\": allowed is a congestion control: \"kernel:NAME\", or one of basic_delay, ",
            "; nearest is cubic",
        ),
        ("cubic(hystart=3)", "ALGORITHM: hystart = 3: allowed is off", ""),
    ] {
        let request = request(&["vegas", name]);
        let error = bench(&request, &options, &mut |_| {}).unwrap_err();
        assert!(error.is_bad_input());
        let error = error.to_string();
        assert!(error.starts_with(begins) && error.ends_with(ends), "{error}");
    }
}

#[test]
fn later_algorithm_joins_earlier_report() {
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
            let is_reused = |it: forebay_lab::Progress<'_>| it.event == forebay_lab::Event::Reused;
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
    let (turned, _) = test(&["vegas"]);
    assert_eq!(turned.scorecard.algorithms, ["vegas", "cubic"], "the requested algorithm is first");
    let (again, reused) = test(&["cubic", "vegas"]);
    let runs: usize = again.experiments.iter().map(|experiment| experiment.runs).sum();
    assert_eq!(reused, runs, "nothing is simulated twice");
    let mut other = request(&["cubic"]);
    other.sets[0] = Override::parse("stop=3s").unwrap();
    let found = bench(&other, &options, &mut |_| {}).unwrap();
    assert_eq!(found.scorecard.algorithms, ["cubic"], "vegas was tested with other settings");
    let scores = |it: &Benchmark| serde_json::to_string(&it.scorecard).unwrap();
    assert_eq!(scores(&again), scores(&both));
}

#[test]
fn shows_published_figures_only_for_unchanged_plans() {
    let folder = tempfile::tempdir().unwrap();
    let test = |names: &[&str], sets: &[&str]| {
        let options = Options {
            backend: "sim".into(),
            out: Some(folder.path().join(sets.join(","))),
            ..Options::default()
        };
        let request = BenchRequest {
            as_published: true,
            only: vec!["deep_buffers".into()],
            sets: sets.iter().map(|set| Override::parse(set).unwrap()).collect(),
            ..request(names)
        };
        bench(&request, &options, &mut |_| {}).unwrap()
    };
    let places = |found: &Benchmark| {
        let places: BTreeSet<String> = found.published().map(|it| it.place.clone()).collect();
        places.into_iter().collect::<Vec<_>>()
    };
    let one = test(&["newreno"], &[]);
    assert_eq!(places(&one), ["newreno limit=20p", "newreno limit=80p"]);
    assert!(one.published().all(|it| it.figure.is_some()), "{:?}", one.experiments);
    let page = std::fs::read_to_string(&one.report).unwrap();
    assert!(page.contains("Published claims about these algorithms") && page.contains("ns-3.44"));
    let json = serde_json::to_value(&one).unwrap();
    assert_eq!(json["experiments"][0]["published"][0]["published"]["value"], 15.39);
    let both = test(&["vegas"], &[]);
    assert!(places(&both).contains(&"vegas limit=80p".to_string()) && places(&both).len() == 3);
    assert!(places(&test(&["newreno"], &["stop=2s"])).is_empty(), "no paper has published that");
}

#[test]
fn failures_of_earlier_algorithms_do_not_count() {
    let known = criteria::PublishedComparison {
        section: "5.1.2".into(),
        text: "t".into(),
        known: criteria::Known {
            algorithm: "bbr".into(),
            verdict: Verdict::Failed,
            source: "s".into(),
        },
        found: Verdict::Met,
    };
    let criteria = Criteria { known: vec![known], ..Criteria::default() };
    let mut found = Benchmark {
        experiments: Vec::new(),
        scorecard: Scorecard::of(&[], &[]),
        criteria,
        asked: vec!["vegas".into()],
        report: PathBuf::new(),
    };
    assert!(found.is_fine());
    found.asked.push("bbr".into());
    assert!(!found.is_fine(), "a suite must reproduce known results");
}

#[test]
fn seeds_are_added_until_scores_are_known() {
    let seeds: Seeds = "3..22".parse().unwrap();
    let of_rounds = |grows| (0..5).map(|round| block(seeds, grows, round)).collect::<Vec<_>>();
    let some = |first, last| Some(Seeds { first, last });
    assert_eq!(of_rounds(false), [some(3, 22), None, None, None, None]);
    let grown = [some(3, 8), some(9, 11), some(12, 15), some(16, 21), some(22, 22)];
    assert_eq!(of_rounds(true), grown);
    assert_eq!(block("1..4".parse().unwrap(), true, 0), Some(Seeds { first: 1, last: 4 }));
    assert_eq!(block("1..4".parse().unwrap(), true, 1), None);
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        backend: "sim".into(),
        out: Some(folder.path().into()),
        seeds: Some("1..20".parse().unwrap()),
        ..Options::default()
    };
    let runs = |until| {
        let only = vec!["shallow_buffers".to_string()];
        let request = BenchRequest { only, until: Some(until), ..request(&["cubic"]) };
        let found = bench(&request, &options, &mut |_| {}).unwrap();
        let cells = request.plans().unwrap()[0].cells.len();
        found.experiments[0].runs / cells
    };
    assert_eq!(runs(1.0), 6, "no interval is wider than the scale");
    assert!(runs(0.0) == 20);
}

#[test]
fn each_suite_has_own_plans_folder_and_answer() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        backend: "sim".into(),
        out: Some(folder.path().into()),
        seeds: Some("1..2".parse().unwrap()),
        ..Options::default()
    };
    let request = |only: &str| BenchRequest {
        suite: "rfc9743".parse().unwrap(),
        only: vec![only.into()],
        sets: ["stop=3s", "warmup=1s"].map(|set| Override::parse(set).unwrap()).to_vec(),
        ..request(&["newreno"])
    };
    let found = bench(&request("policer"), &options, &mut |_| {}).unwrap();
    assert!(found.is_fine() && found.experiments[0].runs == 4, "{found:?}");
    let json = serde_json::to_value(&found).unwrap();
    assert!(json.get("scorecard").is_none());
    let findings = json["criteria"]["findings"].as_array().unwrap();
    let sections: Vec<&str> = findings.iter().map(|it| it["section"].as_str().unwrap()).collect();
    assert_eq!(sections, ["5.3.1", "5.3.2", "7.2", "7.10", "8"]);
    assert_eq!(findings[2]["verdicts"]["newreno"], "met");
    let page = std::fs::read_to_string(&found.report).unwrap();
    for text in
        ["7.2 Operation with", "Not applicable: every", "Evidence: A token bucket", "specified in"]
    {
        assert!(page.contains(text), "{text}");
    }
    assert!(page.contains("href=\"policer/report.html\""));
    let refusal =
        |request: BenchRequest| bench(&request, &options, &mut |_| {}).unwrap_err().to_string();
    assert!(refusal(request("parking_lot")).contains("--only parking_lot: allowed is collapse"));
    assert!(refusal(request("polcier")).ends_with("; nearest is policer"));
    let until = BenchRequest { until: Some(0.1), ..request("policer") };
    assert!(refusal(until).contains("--until: allowed with --suite ccperf"));
    let published = BenchRequest { as_published: true, ..request("policer") };
    assert!(refusal(published).contains("as_published"));
    let error = "rfc9744".parse::<Suite>().unwrap_err();
    assert_eq!(error, "allowed is one of ccperf, rfc9743; nearest is rfc9743");
    assert_ne!(Suite::Ccperf.default_out(), Suite::Rfc9743.default_out());
}
