//! The demo: two plans in short, and what came out in words for a newcomer.

use std::fmt::Write;

use crate::output::{number, text_table};
use crate::plan::{Override, Plan, PlanError};
use crate::store::{Run, Store, StoreError};
use crate::summary::{ArmSummary, IN_NETWORK, STATUS_QUO, summarise};

/// The arm with the boxes as operators get them.
const BUNDLED: &str = "copa_default";
/// The queue has moved if at least this share stands at the sendbox (bound of the evaluation).
const SHARE_MOVED: f64 = 0.85;
/// It has moved, and not just been halved with the rate, if at most this share of it is left at the
/// bottleneck ...
const QUEUE_LEFT: f64 = 0.15;
/// ... and at least this share of the throughput is kept: below the bound of the evaluation, as
/// these runs are short.
const GOODPUT_KEPT: f64 = 0.9;
/// Requests gain if their median falls at least to this share: half of the published gain of 61 %.
const FCT_GAINED: f64 = 0.7;

/// The demo's plans: `queue_shift` and `draft`, shortened so that all runs together take less than
/// three minutes, or less than two if `quick`.
pub fn plans(quick: bool) -> Result<Vec<Plan>, PlanError> {
    let (shift, draft) = if quick { ("12s", "15s") } else { ("20s", "25s") };
    let load = |name: &str, stop: &str, arms: &[&str]| {
        let sets = [format!("stop={stop}"), "warmup=5s".into(), "drain=5s".into()];
        let sets = sets.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
        let mut plan = Plan::load(name, &sets)?;
        plan.select_arms(&arms.iter().map(|arm| arm.to_string()).collect::<Vec<_>>())?;
        Ok::<_, PlanError>(plan)
    };
    Ok(vec![
        load("bundler/queue_shift", shift, &[STATUS_QUO, BUNDLED])?,
        load("bundler/draft", draft, &[STATUS_QUO, BUNDLED, IN_NETWORK])?,
    ])
}

/// What the demo showed.
pub struct Verdict {
    /// Tables and sentences for the terminal.
    pub text: String,
    /// Both gains are there.
    pub gained: bool,
}

/// Judges the newest attempt of every run of the demo; a rejected one is better than none here, and
/// is said to be one.
pub fn judge(store: &Store, runs: &[Run]) -> Result<Verdict, StoreError> {
    let mut text = String::new();
    let mut newest: Vec<Run> = Vec::new();
    for run in runs {
        newest.retain(|older| older.key != run.key);
        newest.push(run.clone());
    }
    for run in newest.iter_mut().filter(|run| !run.is_valid()) {
        let _ = writeln!(
            text,
            "note: the machine disturbed the run {} {}, its numbers may be off: {}",
            run.key.plan,
            run.key.arm,
            run.invalid.join("; ")
        );
        run.invalid.clear();
    }
    if !text.is_empty() {
        text.push('\n');
    }
    let summaries = summarise(store, &newest)?;
    let arm = |plan: &str, arm: &str| {
        summaries.iter().find(|summary| summary.plan == plan && summary.arm == arm)
    };
    let moved = queue_shift(&mut text, arm("queue_shift", STATUS_QUO), arm("queue_shift", BUNDLED));
    let draft = [STATUS_QUO, BUNDLED, IN_NETWORK].map(|name| arm("draft", name));
    let faster = requests(&mut text, draft);
    Ok(Verdict { text, gained: moved && faster })
}

fn words(arm: &ArmSummary) -> &'static str {
    match arm.arm.as_str() {
        STATUS_QUO => "without forebay",
        IN_NETWORK => "fair queueing inside the bottleneck",
        _ => "with forebay",
    }
}

fn with_unit(value: Option<f64>, unit: &str) -> String {
    value.map_or("-".into(), |value| format!("{} {unit}", number(value)))
}

/// Whether the queue has moved to the sendbox.
fn queue_shift(text: &mut String, without: Option<&ArmSummary>, with: Option<&ArmSummary>) -> bool {
    let titles = ["", "queue at the bottleneck", "queue at the sendbox", "throughput"];
    let row = |arm: &ArmSummary| {
        vec![
            words(arm).to_string(),
            with_unit(arm.link("forward", "queue_mean_packets"), "packets"),
            with_unit(arm.bundles("queue_mean_packets"), "packets"),
            with_unit(arm.metrics.get("goodput_mbps"), "Mbit/s"),
        ]
    };
    let rows: Vec<Vec<String>> = [without, with].into_iter().flatten().map(row).collect();
    let _ =
        writeln!(text, "One bulk transfer over 96 Mbit/s and 50 ms: where does its queue stand?");
    let _ = writeln!(text, "{}", text_table(&titles.map(str::to_string), &rows));
    let share = with.and_then(|arm| arm.bundles("queue_share_at_sendbox"));
    let of_status_quo = |value: &dyn Fn(&ArmSummary) -> Option<f64>| {
        let without = without.and_then(value).filter(|without| *without > 0.0)?;
        Some(with.and_then(value)? / without)
    };
    let left = of_status_quo(&|arm| arm.link("forward", "queue_mean_packets"));
    let kept = of_status_quo(&|arm| arm.metrics.get("goodput_mbps"));
    let percent = |share: Option<f64>| with_unit(share.map(|share| share * 100.0), "%");
    let mut missed = Vec::new();
    if share.is_none_or(|share| share < SHARE_MOVED) {
        let (share, bound) = (percent(share), SHARE_MOVED * 100.0);
        missed.push(format!(
            "{share} of it stands at the sendbox, expected was at least {bound:.0} %"
        ));
    }
    if left.is_none_or(|left| left > QUEUE_LEFT) {
        let (left, bound) = (percent(left), QUEUE_LEFT * 100.0);
        missed.push(format!(
            "{left} of it is left at the bottleneck, expected was at most {bound:.0} %"
        ));
    }
    if kept.is_none_or(|kept| kept < GOODPUT_KEPT) {
        let (kept, bound) = (percent(kept), GOODPUT_KEPT * 100.0);
        missed
            .push(format!("{kept} of the throughput is kept, expected was at least {bound:.0} %"));
    }
    let _ = if missed.is_empty() {
        writeln!(
            text,
            "-> The queue moved: {:.0} % of it stands at the sendbox, where the site decides who \
             waits.\n",
            share.unwrap_or_default() * 100.0
        )
    } else {
        writeln!(text, "-> The queue did NOT move: {}.\n", missed.join("; "))
    };
    missed.is_empty()
}

/// Whether short requests got faster.
fn requests(text: &mut String, arms: [Option<&ArmSummary>; 3]) -> bool {
    let titles = ["", "half are done within", "95 of 100 within", "goodput"];
    let row = |arm: &ArmSummary| {
        vec![
            words(arm).to_string(),
            with_unit(arm.metrics.get("fct_p50_ms"), "ms"),
            with_unit(arm.metrics.get("fct_p95_ms"), "ms"),
            with_unit(arm.metrics.get("goodput_mbps"), "Mbit/s"),
        ]
    };
    let rows: Vec<Vec<String>> = arms.iter().flatten().map(|arm| row(arm)).collect();
    let _ = writeln!(text, "Short requests beside a bulk transfer: how long do they take?");
    let _ = writeln!(text, "{}", text_table(&titles.map(str::to_string), &rows));
    let ratio = arms[1].and_then(|arm| arm.metrics.get("fct_p50_over_status_quo"));
    match ratio {
        Some(ratio) if ratio <= FCT_GAINED => {
            let percent = (1.0 - ratio) * 100.0;
            let _ = writeln!(
                text,
                "-> Requests got faster: half are done {percent:.0} % sooner. No packet was \
                 touched, no host changed."
            );
            true
        }
        ratio => {
            let change = with_unit(ratio.map(|ratio| (1.0 - ratio) * 100.0), "%");
            let _ = writeln!(
                text,
                "-> Requests did NOT get faster enough: the median fell by {change}, expected was \
                 at least {:.0} %.",
                (1.0 - FCT_GAINED) * 100.0
            );
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::metrics::{Evaluation, Metrics, Part};
    use crate::store::{NewRun, RunKey};

    /// What the arms of queue_shift show: the mean queues in packets, that at the bottleneck without
    /// and with the boxes, and the goodput with them for 90 Mbit/s without.
    #[derive(Clone, Copy)]
    struct Shown {
        without: f64,
        bottleneck: f64,
        sendbox: f64,
        goodput: f64,
    }

    const MOVED: Shown =
        Shown { without: 1000.0, bottleneck: 100.0, sendbox: 900.0, goodput: 90.0 };

    /// Stores runs of the demo that show this.
    fn runs(shown: Shown, invalid: bool) -> (tempfile::TempDir, Store, Vec<Run>) {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::create(folder.path()).unwrap();
        let mut runs = Vec::new();
        for plan in plans(true).unwrap() {
            for arm in &plan.arms {
                let experiment = plan.experiment(arm, &plan.cells[0], 1).unwrap();
                let metrics = |numbers: &[(&str, f64)]| {
                    let numbers = numbers.iter().map(|(name, value)| (name.to_string(), *value));
                    Metrics(numbers.collect())
                };
                let part = |name: &str, numbers: &[(&str, f64)]| Part {
                    name: name.into(),
                    metrics: metrics(numbers),
                };
                let is_bundled = arm.name == BUNDLED;
                let queue = if is_bundled { shown.bottleneck } else { shown.without };
                let goodput = if is_bundled { shown.goodput } else { 90.0 };
                let share = shown.sendbox / (shown.sendbox + shown.bottleneck);
                let bundle = part("a", &[("queue_share_at_sendbox", share)]);
                let evaluation = Evaluation {
                    run: metrics(&[("goodput_mbps", goodput)]),
                    links: vec![part("forward", &[("queue_mean_packets", queue)])],
                    bundles: experiment.bundles.iter().map(|_| bundle.clone()).collect(),
                    invalid: if invalid { vec!["late".into()] } else { vec![] },
                    ..Evaluation::default()
                };
                let run = NewRun {
                    key: &RunKey::of(&experiment, "emu", "abc"),
                    experiment: &experiment,
                    attempt: 1,
                    evaluation: &evaluation,
                    host: &json!({}),
                };
                let id = store.put_run(&run).unwrap();
                runs.push(store.run(id).unwrap());
            }
        }
        (folder, store, runs)
    }

    #[test]
    fn a_gain_that_is_absent_is_said_so() {
        let (_folder, store, stored) = runs(MOVED, false);
        let verdict = judge(&store, &stored).unwrap();
        assert!(verdict.text.contains("The queue moved: 90 %"), "{}", verdict.text);
        assert!(verdict.text.contains("did NOT get faster"), "{}", verdict.text);
        assert!(!verdict.gained);
        let (_folder, store, stored) = runs(MOVED, true);
        let verdict = judge(&store, &stored).unwrap();
        assert_eq!(verdict.text.matches("note: the machine disturbed").count(), 5);
    }

    #[test]
    fn a_queue_has_not_moved_if_too_little_arrives_too_much_is_left_or_throughput_is_lost() {
        for (shown, expected) in [
            (Shown { sendbox: 500.0, ..MOVED }, "did NOT move: 83.3 % of it stands at the sendbox"),
            (
                Shown { bottleneck: 151.0, sendbox: 9000.0, ..MOVED },
                "did NOT move: 15.1 % of it is left at the bottleneck",
            ),
            (Shown { goodput: 45.0, ..MOVED }, "did NOT move: 50 % of the throughput is kept"),
            (
                Shown { without: 0.0, ..MOVED },
                "did NOT move: - of it is left at the bottleneck, expected was at most 15 %",
            ),
        ] {
            let (_folder, store, stored) = runs(shown, false);
            let verdict = judge(&store, &stored).unwrap();
            assert!(verdict.text.contains(expected), "{}\nlacks\n{expected}", verdict.text);
            assert!(!verdict.gained);
        }
    }

    #[test]
    fn all_runs_of_the_demo_fit_into_three_minutes() {
        for (quick, limit) in [(false, 180), (true, 120)] {
            let seconds: u64 = plans(quick)
                .unwrap()
                .iter()
                .flat_map(|plan| plan.arms.iter().map(move |arm| (plan, arm)))
                .map(|(plan, arm)| {
                    let experiment = plan.experiment(arm, &plan.cells[0], 1).unwrap();
                    // At most: every run drains in full and takes 5 s to set up and to read.
                    (experiment.stop + experiment.drain).as_secs() + 5
                })
                .sum();
            assert!(seconds <= limit, "{seconds} s");
        }
    }
}
