//! Recordings of boxes, repeated in the simulator.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use forebay::commands::replay::Replay;
use forebay::commands::replay::boxes::{document, plain, told};
use forebay::{BadInput, print};
use forebay_core::link::{Change, PathTrace};
use forebay_core::qdisc::bundle_default;
use forebay_core::record::{PathRow, path_csv, path_times};
use forebay_core::spec::{Spec, one_of};
use forebay_core::units::Rate;
use forebay_host::daemon::record::{Figures, PROBED, Paths, Told};
use forebay_lab::output::{number, text_table};
use forebay_lab::plan::Plan;
use forebay_lab::plan::library::Source;
use forebay_lab::plan::references::STATUS_QUO;
use forebay_lab::recorded::{AS_RECORDED, Load, Measured, PATH_FILE, PLAN_FILE, write};
use forebay_lab::summary::ArmSummary;
use forebay_lab::{Options, progress};
use serde_json::{Value, json};

use super::refuse;
use super::run::BUILD;

/// If packets waited in a bundle's queue at more than this share of the samples, the bundle counts as greedy.
const BACKLOGGED: f64 = 0.5;

/// Connections in the simulation of a probe's path: the default of `forebay probe --flows`.
const PROBE_FLOWS: f64 = 8.0;

/// Prints the recorded events, and simulates a similar path and load.
pub fn execute(arguments: &Replay) -> anyhow::Result<ExitCode> {
    let recording = Told::read(&arguments.file).map_err(|error| BadInput(error.to_string()))?;
    let paths =
        Paths::read_archive(&arguments.file).map_err(|error| BadInput(error.to_string()))?;
    let mut figures = recording.figures.clone();
    if figures.is_empty() {
        figures.extend(paths.of(Some(PROBED)).map(|(_, rows)| probed(rows)));
    }
    if !arguments.json {
        print(&told(&recording))?;
    }
    let chosen = match &arguments.bundle {
        None => figures.first(),
        Some(name) => Some(figures.iter().find(|it| it.bundle == *name).ok_or_else(|| {
            let names: Vec<&str> = figures.iter().map(|it| it.bundle.as_str()).collect();
            BadInput(format!("--bundle {name}: allowed is {}", one_of(name, &names)))
        })?),
    };
    let simulated = match chosen {
        None => None,
        Some(figures) => match simulated(figures, &paths, arguments.out.as_deref()) {
            Ok(simulated) => Some((figures, simulated?)),
            Err(reason) => {
                eprintln!("bundle {} was not simulated: {reason}", figures.bundle);
                None
            }
        },
    };
    if arguments.json {
        let simulated = simulated.map_or(Value::Null, |(figures, it)| {
            json!({
                "bundle": figures.bundle, "plan": it.plan, "path": it.path, "approximations": it.approximations,
                "summary": it.arms,
            })
        });
        print(&document(&recording, &simulated))?;
    } else if let Some((figures, simulated)) = simulated {
        print(&beside(figures, &simulated, arguments.out.as_deref()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A simulation of a bundle.
struct Simulated {
    plan: String,
    /// The recorded path that the plan uses, as a trace.
    path: Option<String>,
    approximations: Vec<String>,
    arms: Vec<ArmSummary>,
}

/// Simulates a bundle over its recorded path, or over one rate if no rate of the path is measured. The outer `Err` names a
/// value that the recording lacks.
fn simulated(
    figures: &Figures,
    paths: &Paths,
    out: Option<&Path>,
) -> Result<anyhow::Result<Simulated>, String> {
    let path = paths.of(Some(&figures.bundle)).and_then(|(_, rows)| trace(rows));
    let length = path.as_ref().map(PathTrace::length);
    let measured = Measured { path: length, ..measured(figures)? };
    let (plan, path) = (measured.plan()?, path.map(|path| path.to_string()));
    let arms = simulate(&plan, path.as_deref(), out);
    let approximations = measured.approximations();
    Ok(arms.map(|arms| Simulated { plan, path, approximations, arms }))
}

/// The path of `rows` without losses, which a simulated queue makes itself; `None` if no rate is measured.
fn trace(rows: &[PathRow]) -> Option<PathTrace> {
    let [_, measured] = path_times(rows);
    let path = PathTrace::parse(PATH_FILE, &path_csv(rows)).ok().filter(|_| !measured.is_zero())?;
    path.only(|row| Change { loss: None, ..row })
}

/// Figures of a bundle with all defaults, on the path and under the load of a probe.
fn probed(rows: &[PathRow]) -> Figures {
    let [whole, _] = path_times(rows).map(|time| time.as_secs_f64());
    let bits = rows.iter().map(|row| row.rate_bps as f64 * row.took_ns as f64 / 1e9).sum::<f64>();
    let mut rates: Vec<u64> =
        rows.iter().filter(|row| row.is_measured).map(|row| row.rate_bps).collect();
    rates.sort_unstable();
    Figures {
        bundle: PROBED.into(),
        cc: "copa".into(),
        qdisc: bundle_default().to_string(),
        backlogged: 1.0,
        flows: Some(PROBE_FLOWS),
        delivered_bps: bits / whole.max(f64::MIN_POSITIVE),
        delivered_max_bps: rows.iter().map(|row| row.rate_bps).max().unwrap_or_default() as f64,
        bottleneck_bps: rates.get(rates.len() / 2).map(|bps| *bps as f64),
        min_rtt_ns: rows.iter().map(|row| row.rtt_ns).min(),
        ..Figures::default()
    }
}

/// Plan values from the figures. `Err` names a value that the recording lacks.
fn measured(figures: &Figures) -> Result<Measured, String> {
    let spec = |key: &str, text: &str| {
        text.parse::<Spec>().map_err(|error| format!("{key} = {}: {error}", plain(text)))
    };
    // Without an estimate, the delivered rate is a lower bound of the path's rate.
    let bottleneck_bps = figures.bottleneck_bps.unwrap_or(figures.delivered_max_bps);
    let rtt_ns = figures.min_rtt_ns.ok_or("no round trip was measured")?;
    let load = if figures.backlogged > BACKLOGGED {
        Load::Greedy(figures.flows.unwrap_or(1.0) as u32)
    } else {
        Load::Offered(Rate::from_bits_per_sec(figures.sent_bps as u64))
    };
    Ok(Measured {
        cc: spec("cc", &figures.cc)?,
        qdisc: spec("qdisc", &figures.qdisc)?,
        rate: Rate::from_bits_per_sec(bottleneck_bps as u64),
        rtt: Duration::from_nanos(rtt_ns),
        load,
        path: None,
    })
}

/// Runs the plan over this path; its files and results go below `out`, or into a temporary folder.
fn simulate(plan: &str, path: Option<&str>, out: Option<&Path>) -> anyhow::Result<Vec<ArmSummary>> {
    let scratch = tempfile::tempdir().context("no folder for the results")?;
    let folder = out.unwrap_or(scratch.path());
    write(folder, plan, path)
        .map_err(|error| BadInput(format!("--out {}: {error}", folder.display())))?;
    let source =
        Source { file: PLAN_FILE.into(), folder: Some(folder.to_owned()), text: plan.into() };
    let plan = Plan::from_source(source, &[]).map_err(refuse)?;
    let options = Options {
        backend: "sim".into(),
        out: Some(folder.to_owned()),
        build: BUILD,
        ..Options::default()
    };
    let results = forebay_lab::run(&plan, &options, &mut *progress::on_stderr()).map_err(refuse)?;
    Ok(results.summaries)
}

/// Recorded and simulated figures, side by side.
fn beside(figures: &Figures, simulated: &Simulated, out: Option<&Path>) -> String {
    let arms = &simulated.arms;
    let arm = |name: &str| arms.iter().find(|arm| arm.arm == name);
    let (with, without) = (arm(AS_RECORDED), arm(STATUS_QUO));
    let shown = |value: Option<f64>| value.map_or("-".to_string(), number);
    let ms = |ns: f64| ns / 1e6;
    let of_bundle = |metric: &str| with.and_then(|arm| arm.bundles(metric));
    let of_link =
        |arm: Option<&ArmSummary>, metric: &str| arm.and_then(|it| it.link("forward", metric));
    let rtt_ms = figures.min_rtt_ns.map(|least| ms(least as f64 + figures.there_ns.unwrap_or(0.0)));
    let there_packets = figures.there_ns.zip(figures.bottleneck_bps);
    let there_packets = there_packets.map(|(ns, bps)| ns / 1e9 * bps / 8.0 / 1514.0);
    let rows = [
        (
            "throughput (Mbit/s)",
            Some(figures.delivered_bps / 1e6),
            of_bundle("throughput_mbps"),
            of_link(without, "throughput_mbps"),
        ),
        (
            "queue at the sendbox (packets)",
            Some(figures.here_packets),
            of_bundle("queue_mean_packets"),
            None,
        ),
        (
            "queue in the network (packets)",
            there_packets,
            of_link(with, "queue_mean_packets"),
            of_link(without, "queue_mean_packets"),
        ),
        ("round trip (ms)", rtt_ms, of_bundle("rtt_p50_ms"), None),
        ("shaped (share of the time)", Some(figures.shaped), of_bundle("shaped_share"), None),
    ];
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(name, recorded, with, without)| {
            vec![name.to_string(), shown(recorded), shown(with), shown(without)]
        })
        .collect();
    let bundle = format!("bundle {}", plain(&figures.bundle));
    let titles =
        [&bundle[..], "recorded", "simulated", "simulated without boxes"].map(str::to_string);
    let mut text = format!("\n{}\nIn the simulator:\n", text_table(&titles, &rows));
    for approximation in &simulated.approximations {
        let _ = writeln!(text, "- {approximation};");
    }
    if let Some(out) = out {
        let plan = out.join(PLAN_FILE);
        let _ = writeln!(text, "\nthe plan: {}", plan.display());
    }
    text
}
