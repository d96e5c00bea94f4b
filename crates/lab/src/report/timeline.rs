//! Figures over time: where the queue stands, and what a sendbox believes beside what is true.

use super::content::PlanResults;
use super::figure::{Axis, Series, curves, thinned};
use super::page::{Block, Figure};
use super::tables;
use crate::metrics::Transition;
use crate::store::{Run, Store, StoreError};

/// The figures of the first valid run of each side in `cell`.
pub fn figures(
    plan: &PlanResults<'_>,
    store: &Store,
    cell: &str,
    points: usize,
) -> Result<Vec<Block>, StoreError> {
    let first = |side| plan.valid_in(cell, side).next();
    let shown: Vec<&Run> = plan.sides.iter().filter_map(first).collect();
    let mut blocks = Vec::new();
    blocks.extend(queues(plan, store, &shown, points)?);
    blocks.extend(throughput(plan, store, &shown, points)?);
    for run in &shown {
        for bundle in &run.bundles {
            blocks.extend(round_trips(plan, store, run, &bundle.name, points)?);
            blocks.extend(rates(plan, store, run, &bundle.name, points)?);
        }
    }
    blocks.extend(competing(plan, store, &shown)?);
    Ok(blocks)
}

/// When bundles began and ended to compete with traffic outside them, and what they took for a sign of it.
fn competing(
    plan: &PlanResults<'_>,
    store: &Store,
    runs: &[&Run],
) -> Result<Option<Block>, StoreError> {
    let mut rows = Vec::new();
    for run in runs {
        let all = store.transitions(run.id)?;
        let is_shown = |pair: &&[Transition]| {
            pair[0].bundle == pair[1].bundle && pair.iter().any(Transition::is_about_others)
        };
        for it in all.windows(2).filter(is_shown).map(|pair| &pair[1]).take(TRANSITIONS) {
            let at = format!("{:.2}", it.at_s);
            let texts = [&it.bundle, &at, &it.state, &it.reason].map(|text| text.to_string());
            rows.push([label(plan, run)].into_iter().chain(texts).collect());
        }
    }
    let caption = format!(
        "When bundles began and ended to compete with traffic outside them, and what for \
         (first seed, the first {TRANSITIONS} changes of a run)."
    );
    let columns = ["arm", "bundle", "at (s)", "state", "reason"];
    Ok((!rows.is_empty()).then(|| tables::block(&columns, rows, &caption)))
}

/// Changes of state of a run that are shown: more are read by nobody.
const TRANSITIONS: usize = 50;

const TIME: Axis = Axis::linear("time (s)");

fn figure(series: Vec<Series>, order: &[String], y: Axis, caption: String) -> Option<Block> {
    let drawn: Vec<Series> = series.into_iter().filter(|one| !one.points.is_empty()).collect();
    let spec = (!drawn.is_empty()).then(|| curves(&drawn, order, TIME, y, true))?;
    Some(Block::Figure(Figure { caption, spec }))
}

fn queues(
    plan: &PlanResults<'_>,
    store: &Store,
    runs: &[&Run],
    points: usize,
) -> Result<Option<Block>, StoreError> {
    let mut series = Vec::new();
    let mut add = |run: &Run, part: &str, name: &str, panel: String| {
        let samples = store.series(run.id, part, name, "queue_packets")?;
        let thin = thinned(&samples, points);
        series.push(Series::new(label(plan, run), thin).in_panel(panel));
        Ok::<(), StoreError>(())
    };
    for run in runs {
        add(run, "link", "forward", "at the bottleneck".into())?;
    }
    for run in runs {
        for bundle in &run.bundles {
            let name = &bundle.name;
            add(run, "bundle", name, format!("at the sendbox of bundle {name}"))?;
        }
    }
    let seed = runs.first().map_or(0, |run| run.key.seed);
    let caption = format!(
        "The queue over time, in packets (seed {seed}). A sendbox is worth its place when the \
         queue that the status quo has at the bottleneck stands at the sendbox instead, where the \
         site decides who waits. Mean over 10 ms at the bottleneck, every 10 ms at the sendbox."
    );
    Ok(figure(series, &plan.order(), Axis::linear("packets"), caption))
}

fn throughput(
    plan: &PlanResults<'_>,
    store: &Store,
    runs: &[&Run],
    points: usize,
) -> Result<Option<Block>, StoreError> {
    let mut series = Vec::new();
    for run in runs {
        let samples = store.series(run.id, "link", "forward", "throughput_mbps")?;
        series.push(Series::new(label(plan, run), thinned(&samples, points)));
    }
    let caption = "What left the bottleneck, in each 100 ms (frames, first seed).".to_string();
    Ok(figure(series, &plan.order(), Axis::linear("Mbit/s"), caption))
}

/// Series of one bundle under readable names.
fn of_bundle(
    store: &Store,
    run: &Run,
    bundle: &str,
    points: usize,
    quantities: &[(&str, &str)],
) -> Result<(Vec<Series>, Vec<String>), StoreError> {
    let mut series = Vec::new();
    for (quantity, name) in quantities {
        let samples = store.series(run.id, "bundle", bundle, quantity)?;
        series.push(Series::new(*name, thinned(&samples, points)));
    }
    Ok((series, quantities.iter().map(|(_, name)| name.to_string()).collect()))
}

fn label(plan: &PlanResults<'_>, run: &Run) -> String {
    plan.label(&run.key.arm, &run.key.backend)
}

fn round_trips(
    plan: &PlanResults<'_>,
    store: &Store,
    run: &Run,
    bundle: &str,
    points: usize,
) -> Result<Option<Block>, StoreError> {
    let quantities = [("rtt_ms", "estimate"), ("rtt_true_ms", "truth"), ("min_rtt_ms", "base RTT")];
    let (series, order) = of_bundle(store, run, bundle, points, &quantities)?;
    let caption = format!(
        "{}, bundle {bundle}: the round trip as the sendbox estimates it, beside the truth from \
         the link's own log of the same packets. Where the curves cover each other, the estimate \
         is right.",
        label(plan, run)
    );
    Ok(figure(series, &order, Axis::linear("ms"), caption))
}

fn rates(
    plan: &PlanResults<'_>,
    store: &Store,
    run: &Run,
    bundle: &str,
    points: usize,
) -> Result<Option<Block>, StoreError> {
    let quantities = [
        ("delivery_mbps", "delivery rate, estimate"),
        ("delivery_true_mbps", "delivery rate, truth"),
        ("bottleneck_mbps", "bottleneck rate, estimate"),
        ("rate_mbps", "rate of the shaper"),
    ];
    let (series, order) = of_bundle(store, run, bundle, points, &quantities)?;
    let caption = format!(
        "{}, bundle {bundle}: rates. The true delivery rate is what left the bottleneck between \
         the same two boundary packets.",
        label(plan, run)
    );
    Ok(figure(series, &order, Axis::linear("Mbit/s"), caption))
}
