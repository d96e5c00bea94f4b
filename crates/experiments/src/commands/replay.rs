//! Recordings of boxes, repeated in the simulator.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use forebay::commands::replay::Replay;
use forebay::commands::replay::boxes::{document, plain, told};
use forebay::{BadInput, print};
use forebay_core::spec::{Spec, one_of};
use forebay_core::units::Rate;
use forebay_host::daemon::record::{Figures, Told};
use forebay_lab::output::{number, text_table};
use forebay_lab::plan::Plan;
use forebay_lab::plan::library::Source;
use forebay_lab::plan::references::STATUS_QUO;
use forebay_lab::recorded::{APPROXIMATIONS, AS_RECORDED, Load, Measured};
use forebay_lab::summary::ArmSummary;
use forebay_lab::{Options, progress};
use serde_json::{Value, json};

use super::refuse;
use super::run::BUILD;

/// If packets waited in a bundle's queue at more than this share of the samples, the bundle counts as greedy.
const BACKLOGGED: f64 = 0.5;

/// Prints the recorded events, and simulates a similar path and load.
pub fn execute(arguments: &Replay) -> anyhow::Result<ExitCode> {
    let recording = Told::read(&arguments.file).map_err(|error| BadInput(error.to_string()))?;
    let figures = &recording.figures;
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
        Some(figures) => match measured(figures).and_then(|measured| measured.plan()) {
            Ok(plan) => Some((figures, simulate(&plan, arguments.out.as_deref())?, plan)),
            Err(reason) => {
                eprintln!("bundle {} was not simulated: {reason}", figures.bundle);
                None
            }
        },
    };
    if arguments.json {
        let simulated = simulated.map_or(Value::Null, |(figures, arms, plan)| {
            json!({ "bundle": figures.bundle, "plan": plan, "approximations": APPROXIMATIONS, "summary": arms })
        });
        print(&document(&recording, &simulated))?;
    } else if let Some((figures, arms, _)) = simulated {
        print(&beside(figures, &arms, arguments.out.as_deref()))?;
    }
    Ok(ExitCode::SUCCESS)
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
    })
}

/// Runs the plan; its results go below `out`, or into a temporary folder.
fn simulate(plan: &str, out: Option<&Path>) -> anyhow::Result<Vec<ArmSummary>> {
    let scratch = tempfile::tempdir().context("no folder for the results")?;
    let folder = out.unwrap_or(scratch.path());
    if let Some(out) = out {
        let file = out.join("recorded.toml");
        std::fs::create_dir_all(out)
            .and_then(|()| std::fs::write(&file, plan))
            .map_err(|error| BadInput(format!("--out {}: {error}", file.display())))?;
    }
    let source = Source { file: "recorded.toml".into(), folder: None, text: plan.into() };
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
fn beside(figures: &Figures, arms: &[ArmSummary], out: Option<&Path>) -> String {
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
    for approximation in APPROXIMATIONS {
        let _ = writeln!(text, "- {approximation};");
    }
    if let Some(out) = out {
        let plan = out.join("recorded.toml");
        let _ = writeln!(text, "\nthe plan: {}", plan.display());
    }
    text
}
