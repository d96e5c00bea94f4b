//! Runs a plan and reads its results.

use forebay_lab::plan::{Override, Plan};
use forebay_lab::{Event, Options, run};

#[test]
fn a_plan_is_run() -> Result<(), Box<dyn std::error::Error>> {
    let sets = ["stop=15s", "warmup=10s"].map(|set| Override::parse(set).unwrap());
    let mut plan = Plan::load("bundler/queue_shift", &sets)?;
    plan.select_arms(&["status_quo".into(), "copa_default".into()])?;
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("results");
    let options = Options {
        backend: "sim".into(),
        out: Some(out),
        seeds: Some("1..2".parse()?),
        ..Options::default()
    };
    let mut ended = 0;
    let results = run(&plan, &options, &mut |progress| {
        ended += usize::from(matches!(progress.event, Event::Ended(_)));
    })?;
    assert!(results.valid && ended == 4);

    let arm = |name: &str| results.summaries.iter().find(|it| it.arm == name).unwrap();
    let queue = |name: &str| arm(name).link("forward", "queue_mean_packets").unwrap();
    assert!(queue("copa_default") < queue("status_quo"));

    let json = serde_json::to_value(&results)?;
    assert_eq!(json["runs"].as_array().map(Vec::len), Some(4));
    assert_eq!(json["summary"][1]["arm"], "copa_default");
    let over_time = results.store.series(results.runs[0].id, "link", "forward", "queue_packets")?;
    assert!(over_time.iter().all(|(at_s, _)| *at_s <= 15.1));
    Ok(())
}
