//! The demo: two short plans, and their results in words for a newcomer.

use std::fmt::Write;

use crate::judge::Bound;
use crate::output::{change, number, text_table};
use crate::plan::references::{IN_NETWORK, STATUS_QUO};
use crate::plan::{Override, Plan, PlanError};
use crate::report::DEFAULT_BOXES as BUNDLED;
use crate::store::{Run, Store, StoreError};
use crate::summary::{ArmSummary, Requests, summarise};

/// Least share (%) of the queue at the sendbox for the queue to count as moved (bound of the evaluation).
const SHARE_MOVED: Bound = Bound::at_least(85.0);
/// Most of the former queue (%) left at the bottleneck for the queue to count as moved, and not just halved
/// with the rate ...
const QUEUE_LEFT: Bound = Bound::at_most(15.0);
/// ... and least throughput (%) to keep: below the bound of the evaluation because these runs are short.
const GOODPUT_KEPT: Bound = Bound::at_least(90.0);
/// Least reduction of the median completion time (%) for requests to gain: half of the published gain of 61
/// %.
const FCT_GAINED: Bound = Bound::at_least(30.0);

/// The demo's plans: `queue_shift` and `draft`, shortened so that all runs together take less than
/// three minutes, or less than two if `quick`.
pub fn plans(quick: bool) -> Result<[Plan; 2], PlanError> {
    let (shift, draft) = if quick { ("12s", "15s") } else { ("20s", "25s") };
    let load = |name: &str, stop: &str, arms: &[&str]| {
        let sets = [format!("stop={stop}"), "warmup=5s".into(), "drain=5s".into()];
        let sets = sets.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
        let mut plan = Plan::load(name, &sets)?;
        plan.select_arms(&arms.iter().map(|arm| arm.to_string()).collect::<Vec<_>>())?;
        Ok::<_, PlanError>(plan)
    };
    Ok([
        load("bundler/queue_shift", shift, &[STATUS_QUO, BUNDLED])?,
        load("bundler/draft", draft, &[STATUS_QUO, BUNDLED, IN_NETWORK])?,
    ])
}

/// Result of the demo.
pub struct DemoVerdict {
    /// Tables and sentences for the terminal.
    pub text: String,
    /// Both gains are present.
    pub gained: bool,
}

/// Judges the newest attempt at every run of the demo. Here a rejected run is better than none, and the text
/// says so.
pub fn judge(store: &Store, runs: &[Run]) -> Result<DemoVerdict, StoreError> {
    let mut text = String::new();
    let mut newest: Vec<Run> = Vec::new();
    for run in runs {
        newest.retain(|older| older.key != run.key);
        newest.push(run.clone());
    }
    for (run, reason) in newest.iter().filter_map(|run| Some((run, run.died()?))) {
        let _ = writeln!(
            text,
            "note: run {} {} ended early because a sendbox or receivebox ended: {reason}",
            run.key.plan, run.key.arm
        );
    }
    let mut rejected = Vec::new();
    for run in newest.iter_mut().filter(|run| !run.is_valid()) {
        rejected.push((run.key.plan.clone(), run.key.arm.clone()));
        let _ = writeln!(
            text,
            "note: other load on this machine disturbed run {} {}; its numbers may be wrong: {}",
            run.key.plan,
            run.key.arm,
            run.invalid.join("; ")
        );
        run.invalid.clear();
    }
    if !text.is_empty() {
        text.push('\n');
    }
    let summaries = summarise(&Requests::new(store), &newest)?;
    let arm = |plan: &str, arm: &str| {
        summaries.iter().find(|summary| summary.plan == plan && summary.arm == arm)
    };
    let mut text = DemoText { text, rejected };
    let moved = queue_shift(&mut text, arm("queue_shift", STATUS_QUO), arm("queue_shift", BUNDLED));
    let draft = [STATUS_QUO, BUNDLED, IN_NETWORK].map(|name| arm("draft", name));
    let faster = requests(&mut text, draft);
    let text = text.text;
    Ok(DemoVerdict { text, gained: moved && faster })
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

/// The text of the demo, and the plans and arms of its rejected runs.
struct DemoText {
    text: String,
    rejected: Vec<(String, String)>,
}

impl DemoText {
    /// Adds a table of the arms, with `cells` for each. Rows of rejected runs are marked.
    fn show(
        &mut self,
        title: &str,
        columns: [&str; 3],
        arms: &[Option<&ArmSummary>],
        cells: fn(&ArmSummary) -> [String; 3],
    ) {
        let row = |arm: &&ArmSummary| {
            let is_rejected = self.rejected.contains(&(arm.plan.clone(), arm.arm.clone()));
            let mark = if is_rejected { " (REJECTED RUN)" } else { "" };
            std::iter::once(format!("{}{mark}", words(arm))).chain(cells(arm)).collect::<Vec<_>>()
        };
        let rows: Vec<Vec<String>> = arms.iter().flatten().map(row).collect();
        let titles: Vec<String> = std::iter::once("").chain(columns).map(str::to_string).collect();
        let _ = writeln!(self.text, "{title}\n{}", text_table(&titles, &rows));
    }

    /// Adds the cost: the change of the payload between two arms.
    fn cost(&mut self, without: Option<&ArmSummary>, with: Option<&ArmSummary>) {
        let of = |arm: Option<&ArmSummary>| arm?.metrics.get("goodput_mbps");
        let (before, after) = (of(without), of(with));
        let share = before.zip(after).map(|(before, after)| after / before - 1.0);
        let change = share.filter(|it| it.is_finite()).map_or("is unknown".into(), change);
        let [before, after] = [before, after].map(|value| with_unit(value, "Mbit/s"));
        let _ = writeln!(self.text, "   Cost: goodput {change}, from {before} to {after}.\n");
    }
}

/// Whether the queue has moved to the sendbox.
fn queue_shift(
    text: &mut DemoText,
    without: Option<&ArmSummary>,
    with: Option<&ArmSummary>,
) -> bool {
    let title = "One bulk transfer over 96 Mbit/s and 50 ms: where does its queue build up?";
    let columns = ["queue at the bottleneck", "queue at the sendbox", "throughput"];
    text.show(title, columns, &[without, with], |arm| {
        [
            with_unit(arm.link("forward", "queue_mean_packets"), "packets"),
            with_unit(arm.bundles("queue_mean_packets"), "packets"),
            with_unit(arm.metrics.get("goodput_mbps"), "Mbit/s"),
        ]
    });
    let of_status_quo = |value: fn(&ArmSummary) -> Option<f64>| {
        let without = without.and_then(value).filter(|without| *without > 0.0)?;
        Some(100.0 * with.and_then(value)? / without)
    };
    let share = with.and_then(|arm| Some(100.0 * arm.bundles("queue_share_at_sendbox")?));
    let left = of_status_quo(|arm| arm.link("forward", "queue_mean_packets"));
    let kept = of_status_quo(|arm| arm.metrics.get("goodput_mbps"));
    let missed: Vec<String> = [
        (share, SHARE_MOVED, "of it waits at the sendbox"),
        (left, QUEUE_LEFT, "of it remains at the bottleneck"),
        (kept, GOODPUT_KEPT, "of the throughput is kept"),
    ]
    .into_iter()
    .filter(|(percent, bound, _)| percent.is_none_or(|percent| !bound.holds(percent)))
    .map(|(percent, bound, what)| format!("{} {what}, expected {bound} %", with_unit(percent, "%")))
    .collect();
    let _ = if missed.is_empty() {
        writeln!(
            text.text,
            "-> The queue moved: {:.0} % of it waits at the sendbox, where the site decides which \
             traffic waits.",
            share.unwrap_or_default()
        )
    } else {
        writeln!(text.text, "-> The queue did NOT move: {}.", missed.join("; "))
    };
    text.cost(without, with);
    missed.is_empty()
}

/// Whether short requests got faster.
fn requests(text: &mut DemoText, arms: [Option<&ArmSummary>; 3]) -> bool {
    let title = "Short requests competing with a bulk transfer: how long do they take?";
    let columns = ["median", "95th percentile", "goodput"];
    text.show(title, columns, &arms, |arm| {
        [
            with_unit(arm.metrics.get("fct_p50_ms"), "ms"),
            with_unit(arm.metrics.get("fct_p95_ms"), "ms"),
            with_unit(arm.metrics.get("goodput_mbps"), "Mbit/s"),
        ]
    });
    let ratio = arms[1].and_then(|arm| arm.metrics.get("fct_p50_over_status_quo"));
    let fell = ratio.map(|ratio| (1.0 - ratio) * 100.0);
    let gained = fell.filter(|percent| FCT_GAINED.holds(*percent));
    let _ = match gained {
        Some(percent) => writeln!(
            text.text,
            "-> Requests got faster: the median time fell by {percent:.0} %. No packet and no host \
             was changed."
        ),
        None => writeln!(
            text.text,
            "-> Requests did NOT get faster enough: the median time fell by {}, expected \
             {FCT_GAINED} %.",
            with_unit(fell, "%")
        ),
    };
    text.cost(arms[0], arms[1]);
    gained.is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::metrics::{Evaluation, Metrics, Part};
    use crate::store::{NewRun, RunKey};

    /// Figures of the arms of queue_shift: the mean queues in packets and the goodput. At the bottleneck
    /// without and with the boxes, and at the sendbox; the goodput with boxes, against 90 Mbit/s without.
    #[derive(Clone, Copy)]
    struct Shown {
        without: f64,
        bottleneck: f64,
        sendbox: f64,
        goodput: f64,
    }

    /// A run in which the queue has moved: 10 % of it remains at the bottleneck.
    const MOVED: Shown =
        Shown { without: 1000.0, bottleneck: 100.0, sendbox: 900.0, goodput: 90.0 };

    /// Stores runs of the demo with these figures.
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
                    commit: "c",
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
        assert_eq!(verdict.text.matches("note: other load on this machine disturbed").count(), 5);
        assert_eq!(verdict.text.matches("(REJECTED RUN)").count(), 5, "{}", verdict.text);
    }

    #[test]
    fn demo_states_its_cost_whatever_it_is() {
        for (goodput, expected) in [
            (88.2, "Cost: goodput falls by 2 %, from 90 Mbit/s to 88.2 Mbit/s"),
            (90.0, "Cost: goodput stays the same"),
            (91.8, "Cost: goodput rises by 2 %"),
        ] {
            let (_folder, store, stored) = runs(Shown { goodput, ..MOVED }, false);
            let text = judge(&store, &stored).unwrap().text;
            assert_eq!(text.matches(expected).count(), 2, "{text}");
            assert!(!text.contains("REJECTED"));
        }
    }

    #[test]
    fn queue_shift_needs_all_three_conditions() {
        for (shown, expected) in [
            (Shown { sendbox: 500.0, ..MOVED }, "did NOT move: 83.3 % of it waits at the sendbox"),
            (
                Shown { bottleneck: 151.0, sendbox: 9000.0, ..MOVED },
                "did NOT move: 15.1 % of it remains at the bottleneck",
            ),
            (Shown { goodput: 45.0, ..MOVED }, "did NOT move: 50 % of the throughput is kept"),
            (
                Shown { without: 0.0, ..MOVED },
                "did NOT move: - of it remains at the bottleneck, expected ≤ 15 %",
            ),
        ] {
            let (_folder, store, stored) = runs(shown, false);
            let verdict = judge(&store, &stored).unwrap();
            assert!(verdict.text.contains(expected), "{}\nlacks\n{expected}", verdict.text);
            assert!(!verdict.gained);
        }
    }

    #[test]
    fn demo_fits_into_three_minutes() {
        for (quick, limit) in [(false, 180), (true, 120)] {
            let seconds: u64 = plans(quick)
                .unwrap()
                .iter()
                .flat_map(|plan| plan.arms.iter().map(move |arm| (plan, arm)))
                .map(|(plan, arm)| {
                    let experiment = plan.experiment(arm, &plan.cells[0], 1).unwrap();
                    // An upper bound: every run drains in full and takes 5 s to set up and to read.
                    (experiment.stop + experiment.drain).as_secs() + 5
                })
                .sum();
            assert!(seconds <= limit, "{seconds} s");
        }
    }
}
