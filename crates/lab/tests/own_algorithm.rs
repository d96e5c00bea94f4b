//! A user algorithm, registered when the process starts.

use forebay_core::cc::{self, Algorithm};
use forebay_core::spec::{Spec, Value};
use forebay_lab::plan::{Override, Plan};
use forebay_lab::{Options, run};
use forebay_policy::algorithms::{self, Own};

/// Always half of the link's rate.
const HALF: Algorithm = Algorithm {
    name: "half",
    build: &|_| {
        let rate = Value::Text("12Mbit/s".into());
        cc::build(&Spec::named("const").with("rate", rate), &[])
    },
    ..cc::algorithms::constant::ALGORITHM
};

#[test]
fn plans_name_own_algorithm_and_record_version() {
    let own = Own { algorithm: HALF, folder: "/home/me/half", sources: "0123456789abcdef" };
    algorithms::add(&[own]).unwrap();
    assert!(algorithms::known().named("half").is_some());

    let sets = ["aut=[\"half\", \"cubic\", \"agent:half\"]", "stop=2s", "warmup=500ms"];
    let sets = sets.map(|set| Override::parse(set).unwrap());
    let mut plan = Plan::load("ccperf/steady_state_single_flow", &sets).unwrap();
    plan.cells.truncate(1);
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        backend: "sim".into(),
        out: Some(folder.path().into()),
        seeds: Some("1".parse().unwrap()),
        ..Options::default()
    };
    let results = run(&plan, &options, &mut |_| {}).unwrap();
    let told = |arm: &str| {
        let run = results.runs.iter().find(|run| run.key.arm == arm).unwrap();
        run.parameters.get("sources.half").map(String::as_str)
    };
    assert_eq!(told("half"), Some("0123456789abcdef"));
    assert_eq!((told("agent-half"), told("cubic")), (Some("0123456789abcdef"), None));
    let page = std::fs::read_to_string(&results.report).unwrap();
    assert!(page.contains("sources.half"), "the report says which version it was");

    let before = algorithms::known();
    algorithms::add(&[Own { sources: "fedcba9876543210", ..own }]).unwrap();
    assert_eq!(algorithms::sources("half"), Some("fedcba9876543210"));
    assert_eq!(algorithms::own().len(), 1, "a newer version takes the place of the older one");
    assert!(!std::ptr::eq(before, algorithms::known()));
    assert!(algorithms::add(&[own, own]).is_err());
    assert_eq!(algorithms::sources("half"), Some("fedcba9876543210"));
}
