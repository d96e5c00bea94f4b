//! Many sites.

use std::collections::HashSet;
use std::thread::{self, ThreadId};

use forebay_core::cc::{self, Algorithm};
use forebay_core::spec::Spec;
use forebay_policy::algorithms::{self, Own};

use super::*;

/// A small Internet; half of its sites have boxes in the second arm.
fn small(arm: usize, seed: u64) -> Experiment {
    small_with(arm, seed, &[])
}

fn small_with(arm: usize, seed: u64, sets: &[crate::plan::Override]) -> Experiment {
    let text = r#"
        name = "p"
        stop = "6s"
        warmup = "1s"
        drain = "20s"
        bottleneck = { rate = "5Mbit/s", rtt = "20ms", qdisc = { kind = "fifo", limit = "100ms" } }
        topology = { sites = 10, routers = 4, peers = 1, deployment = "50%" }
        flow = [{ name = "web", bundle = "site", traffic = { kind = "requests", sizes = "mixed",
            load = "50Mbit/s", connections = 60, sampling = "iid" } }]
        bundle = [{ name = "site", cc = "copa" }]
        arm = [{ name = "status_quo", set = { bundle.site.enabled = false } }, { name = "copa" }]
    "#;
    let source = Source { file: "p".into(), folder: None, text: text.into() };
    let plan = Plan::from_source(source, sets).unwrap();
    plan.experiment(&plan.arms[arm], &plan.cells[0], seed).unwrap()
}

#[test]
fn requests_are_judged_by_their_own_path() {
    for arm in [0, 1] {
        let experiment = small(arm, 1);
        let rows = rows_of(&experiment);
        assert!(rows.run.requests.iter().all(|request| request.finished_ns.is_some()));
        let evaluation = evaluate(&experiment, &rows).unwrap();
        let groups: Vec<&str> = evaluation.flows.iter().map(|flow| flow.name.as_str()).collect();
        assert_eq!(groups, ["web-deployers", "web-others"]);
        for flow in &evaluation.flows {
            let get = |name: &str| flow.metrics.get(name).unwrap();
            // No request is faster than the empty path between its own sites.
            assert!(get("slowdown_p25") >= 1.0, "{}: {:?}", flow.name, flow.metrics);
            assert!(get("site_slowdown_p25") <= get("site_slowdown_p95"));
        }
        let passing = evaluation.run.get("bundles_passing_share");
        assert_eq!(passing.is_some(), arm == 1, "{passing:?}");
        for request in &evaluation.requests {
            let pair = experiment.site_pair(request.row.flow, request.row.connection).unwrap();
            assert!(request.outcome.fct_ms >= pair.rtt.as_secs_f64() * 1e3, "{request:?}");
        }
        let used = rows.run.links.iter().filter(|link| link.packets_out > 0);
        assert!(used.clone().count() > 2 && used.clone().all(|link| link.name.starts_with('r')));
    }
}

#[test]
fn many_site_runs_repeat_and_depend_on_boxes() {
    let finished = |arm: usize| -> Vec<Option<u64>> {
        rows_of(&small(arm, 1)).run.requests.iter().map(|request| request.finished_ns).collect()
    };
    let [without, with] = [0, 1].map(finished);
    assert_eq!(with, finished(1));
    assert_ne!(without, with);
}

#[test]
fn rows_are_equal_on_any_threads() {
    for seed in 1..=3 {
        let experiment = small(1, seed);
        let on = |threads| {
            let mut sim = Sim::default();
            sim.heed(&Stop::default(), threads);
            let rows = sim.run(&experiment, Path::new(""), &mut |_| ()).unwrap();
            format!("{:?} {:?}", rows.run, evaluate(&experiment, &rows).unwrap())
        };
        let one = on(1);
        assert!(one.len() > 100_000);
        [2, 3].into_iter().for_each(|threads| assert!(on(threads) == one, "seed {seed}"));
    }
}

/// Threads that made an instance of [`WITNESS`].
static THREADS: Mutex<Option<HashSet<ThreadId>>> = Mutex::new(None);

/// An algorithm whose instances share a state.
const WITNESS: Algorithm = Algorithm {
    name: "witness",
    build: &|_| {
        THREADS.lock().unwrap().get_or_insert_default().insert(thread::current().id());
        cc::build(&Spec::named("newreno"), &[])
    },
    ..cc::algorithms::constant::ALGORITHM
};

#[test]
fn own_algorithms_share_one_thread() {
    algorithms::add(&[Own { algorithm: WITNESS, folder: "/witness", sources: "0" }]).unwrap();
    let cc = crate::plan::Override::parse("flow.web.cc=witness").unwrap();
    let experiment = small_with(1, 1, &[cc]);
    let mut sim = Sim::default();
    sim.heed(&Stop::default(), 4);
    sim.run(&experiment, Path::new(""), &mut |_| ()).unwrap();
    let threads = THREADS.lock().unwrap().take().unwrap();
    assert!(threads.iter().eq([&thread::current().id()]), "{threads:?}");
}

#[test]
fn run_on_threads_stops_when_asked() {
    let (mut sim, stop) = (Sim::default(), Stop::default());
    sim.heed(&stop, 2);
    let ended = sim.run(&small(1, 1), Path::new(""), &mut |_| stop.ask());
    assert!(matches!(ended.err(), Some(BackendError::Stopped)));
}
