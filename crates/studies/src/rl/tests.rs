use std::sync::Arc;
use std::time::Duration;

use forebay_core::cc::policy::observation::{FEATURES, WIDTH};

use super::*;
use forebay_lab::plan::Override;
use forebay_lab::plan::library::Source;

/// One flow on a path of 67 full segments and a buffer of 100.
pub(super) const PLAN: &str = r#"
name   = "path"
stop   = "3s"
warmup = "1s"

[bottleneck]
rate  = "20Mbit/s"
rtt   = "40ms"
qdisc = { kind = "fifo", limit = "100p" }

[[flow]]
name    = "tested"
pair    = "tested"
cc      = "aut"
traffic = { kind = "greedy" }
"#;

pub(super) fn scenario(text: &str, settings: Settings) -> Result<Scenario, RlError> {
    let source = Source { file: "path.toml".into(), folder: None, text: text.into() };
    Scenario::of(source, settings)
}

fn tested() -> String {
    format!("aut = \"cubic\"\n{PLAN}")
}

fn ranges(texts: &[&str]) -> Vec<Range> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Runs an agent that takes `actions` in turn: returns its rewards and the last observation.
fn episode(environment: &mut Environment, seed: u64, actions: &[f32]) -> (Vec<f64>, Vec<f32>) {
    environment.reset(seed).unwrap();
    let mut rewards = Vec::new();
    let mut actions = actions.iter().cycle();
    loop {
        assert_eq!(environment.waiting(), [0]);
        environment.act(0, *actions.next().unwrap());
        let goes_on = environment.advance();
        rewards.push(environment.reward(0));
        if !goes_on {
            break;
        }
    }
    assert!(environment.waiting().is_empty() && !environment.advance());
    let mut observation = vec![0.0; environment.scenario().observation_len()];
    environment.observe(0, &mut observation);
    (rewards, observation)
}

#[test]
fn seed_and_actions_determine_episode() {
    let settings = Settings {
        ranges: ranges(&["bottleneck.rate=5Mbit/s..50Mbit/s:log", "bottleneck.rtt=20ms..80ms"]),
        ..Settings::default()
    };
    let mut environment = Environment::new(Arc::new(scenario(&tested(), settings).unwrap()));
    assert_eq!(environment.scenario().agents(), ["tested"]);
    assert_eq!(environment.scenario().observation_len(), 10 * WIDTH);
    let actions = [0.4, -0.1, 0.0, 0.2, -0.4];
    let first = episode(&mut environment, 1, &actions);
    let rate = environment.experiment().unwrap().forward.rate();
    // 3 s in round trips of 20 to 80 ms plus queueing delay.
    assert!((10..200).contains(&first.0.len()), "{}", first.0.len());
    assert_eq!(environment.now(), Duration::from_secs(3));
    let other = episode(&mut environment, 2, &actions);
    assert_ne!(environment.experiment().unwrap().forward.rate(), rate);
    assert_ne!(other, first);
    assert_eq!(episode(&mut environment, 1, &actions), first, "byte for byte");
    assert_ne!(episode(&mut environment, 1, &[0.0]), first, "actions count");
    for row in first.1.chunks(WIDTH) {
        for (value, feature) in row.iter().zip(FEATURES) {
            assert!((feature.low..=feature.high).contains(value), "{}", feature.name);
        }
    }
}

#[test]
fn an_action_moves_what_is_sent() {
    let scenario = scenario(&tested(), Settings::default()).unwrap();
    let mut environment = Environment::new(Arc::new(scenario));
    let mean = |rewards: Vec<f64>| rewards.iter().sum::<f64>() / rewards.len() as f64;
    // Ten segments a round trip of 40 ms are a seventh of the link's capacity.
    let still = mean(episode(&mut environment, 1, &[0.0]).0);
    let more = mean(episode(&mut environment, 1, &[0.2, -0.1, 0.0]).0);
    assert!(more > still + 0.5, "{more} against {still}");
}

#[test]
fn flow_and_bundle_agents_decide_at_own_times() {
    let text = PLAN.replace("\"aut\"", "\"learner(history=2)\"\ncount   = 2");
    let bundle = "\n[[bundle]]\nname = \"b\"\ncc = { kind = \"learner\", history = 2 }\n\
                  [[flow]]\nname = \"web\"\nbundle = \"b\"\ntraffic = { kind = \"greedy\" }\n";
    let scenario = scenario(&(text + bundle), Settings::default()).unwrap();
    assert_eq!(scenario.agents(), ["b", "tested-1", "tested-2"]);
    assert_eq!(scenario.history(), 2);
    let mut environment = Environment::new(Arc::new(scenario));
    environment.reset(1).unwrap();
    let mut turns = [0; 3];
    loop {
        for agent in environment.waiting().to_vec() {
            turns[agent] += 1;
            environment.act(agent, 0.1);
        }
        if !environment.advance() {
            break;
        }
    }
    assert!(turns.iter().all(|turns| *turns > 5), "{turns:?}");
    assert!((0..3).all(|agent| environment.outcome(agent).mss.as_u64() > 0));
}

#[test]
fn restarted_box_does_not_block_the_episode() {
    let boxes = "\n[[bundle]]\nname = \"b\"\ncc = \"learner\"\n\
                 [[flow]]\nname = \"web\"\nbundle = \"b\"\ntraffic = { kind = \"greedy\" }\n\
                 [[fault]]\nat = \"1s\"\nbundle = \"b\"\nend = \"sendbox\"\naction = \"kill\"\n\
                 [[fault]]\nat = \"1500ms\"\nbundle = \"b\"\nend = \"sendbox\"\n\
                 action = \"restart\"\n";
    let text = PLAN.replace("\"aut\"", "\"cubic\"") + boxes;
    let scenario = scenario(&text, Settings::default()).unwrap();
    assert_eq!(scenario.agents(), ["b"]);
    let mut environment = Environment::new(Arc::new(scenario));
    environment.reset(1).unwrap();
    let mut turns = 0;
    while environment.advance() {
        turns += 1;
    }
    assert!(turns > 3, "{turns}");
    assert_eq!(environment.now(), Duration::from_secs(3));
}

#[test]
fn threads_change_nothing() {
    let ranges = ranges(&["bottleneck.rtt=20ms..80ms"]);
    let settings = Settings { ranges, ..Settings::default() };
    let scenario = Arc::new(scenario(&tested(), settings).unwrap());
    let steps = |threads| {
        let mut vector = Vector::new(&scenario, 5, threads).unwrap();
        let mut batches = vec![vector.reset(&[7, 8, 9, 10, 11]).unwrap().clone()];
        for step in 0..200 {
            let action = [0.3, -0.2, 0.0][step % 3];
            batches.push(vector.step(&[action; 5]).unwrap().clone());
        }
        batches
    };
    let alone = steps(1);
    assert_eq!(steps(3), alone);
    assert_eq!(steps(9), alone, "more threads than environments");
    let first = alone.iter().position(|batch| batch.truncated[0]);
    let first = first.expect("3 s end within 200 steps");
    let next = &alone[first + 1];
    assert!(!next.truncated[0] && next.rewards[0] == 0.0, "the step after begins an episode");
    let own = |batch: &Batch, environment: usize| {
        batch.observations[environment * 10 * WIDTH..][..10 * WIDTH].to_vec()
    };
    assert_ne!(own(&alone[20], 0), own(&alone[20], 1), "each has seeds of its own");
}

#[test]
fn environments_with_one_seed_have_the_same_episodes() {
    let ranges = ranges(&["bottleneck.rtt=20ms..80ms"]);
    let settings = Settings { ranges, ..Settings::default() };
    let scenario = Arc::new(scenario(&tested(), settings).unwrap());
    let mut vector = Vector::new(&scenario, 3, 2).unwrap();
    vector.reset(&[5, 6, 5]).unwrap();
    let len = scenario.observation_len();
    for _ in 0..250 {
        let batch = vector.step(&[0.2; 3]).unwrap();
        assert_eq!(batch.observations[..len], batch.observations[2 * len..]);
        assert_eq!((batch.rewards[0], batch.truncated[0]), (batch.rewards[2], batch.truncated[2]));
    }
    let batch = vector.step(&[0.2; 3]).unwrap();
    assert_ne!(batch.observations[..len], batch.observations[len..2 * len]);
}

#[test]
fn what_is_asked_in_vain_is_told() {
    let wrong = |text: &str, settings| scenario(text, settings).unwrap_err().to_string();
    let nobody = PLAN.replace("\"aut\"", "\"cubic\"");
    let error = wrong(&nobody, Settings::default());
    let begins = "path.toml: no agent: allowed is a plan with `aut`";
    assert!(error.starts_with(begins), "{error}");
    let arm = Settings { arm: Some("none".into()), ..Settings::default() };
    assert!(wrong(&tested(), arm).starts_with("arm = none: allowed is one of "));
    let learner = Settings { learner: "learner(history=65)".into(), ..Settings::default() };
    let error = wrong(&tested(), learner);
    assert!(error.contains("allowed is a whole number, 1 to 64"), "{error}");
    let with = |sets: &[&str]| Settings {
        sets: sets.iter().map(|set| Override::parse(set).unwrap()).collect(),
        ..Settings::default()
    };
    let late = with(&["stop=50ms", "warmup=10ms"]);
    let mut environment = Environment::new(Arc::new(scenario(&tested(), late).unwrap()));
    let error = environment.reset(1).unwrap_err().to_string();
    assert!(error.ends_with("allowed is a time after the first decision"), "{error}");
    // Cells differ in the learner's history. An episode draws one cell, and sooner or later another
    // episode draws the other one.
    let cells = "\n[cells]\nflow.tested.cc = [\"learner(history=2)\", \"learner(history=3)\"]\n";
    let text = PLAN.replace("\"aut\"", "\"cubic\"") + cells;
    let differing = scenario(&text, Settings::default()).unwrap();
    let mut environment = Environment::new(Arc::new(differing));
    let error = (0..64).find_map(|seed| environment.reset(seed).err()).unwrap().to_string();
    assert!(error.ends_with(", as in other cells"), "{error}");
    assert!(environment.waiting().is_empty() && !environment.advance(), "no episode is left");
    let many = with(&["flow.tested.count=2"]);
    let many = Arc::new(scenario(&tested(), many).unwrap());
    assert!(Vector::new(&many, 4, 1).is_err(), "several agents");
    let one = Arc::new(scenario(&tested(), Settings::default()).unwrap());
    assert!(Vector::new(&one, 0, 1).is_err() && Vector::new(&one, 1, 0).is_err());
    let mut vector = Vector::new(&one, 2, 1).unwrap();
    let before_reset = "step: allowed after a successful reset";
    assert_eq!(vector.step(&[0.0; 2]).unwrap_err().to_string(), before_reset);
    vector.reset(&[1, 2]).unwrap();
    let error = vector.step(&[0.0]).unwrap_err().to_string();
    assert_eq!(error, "1 actions: allowed is 2");
    let error = vector.reset(&[1, 2, 3]).unwrap_err().to_string();
    assert_eq!(error, "3 seeds: allowed is 2");
    assert!(vector.step(&[0.0; 2]).is_ok(), "refused calls change nothing");
    // One of the episodes that the reset begins is invalid.
    let differing = Arc::new(scenario(&text, Settings::default()).unwrap());
    let mut vector = Vector::new(&differing, 64, 2).unwrap();
    let seeds: Vec<u64> = (0..64).collect();
    assert!(vector.reset(&seeds).is_err());
    assert_eq!(vector.step(&[0.0; 64]).unwrap_err().to_string(), before_reset);
}
