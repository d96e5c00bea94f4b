//! What boxes have recorded: told, and tried in the simulator.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use forebay_core::spec::Spec;
use forebay_core::units::Rate;
use forebay_host::daemon::record::{Figures, Moment, Told};
use forebay_host::log::events::EVENTS;
use forebay_lab::output::{number, text_table};
use forebay_lab::plan::Plan;
use forebay_lab::plan::library::Source;
use forebay_lab::recorded::{APPROXIMATIONS, AS_RECORDED, Load, Measured};
use forebay_lab::summary::{ArmSummary, STATUS_QUO};
use forebay_lab::{Options, progress};
use serde_json::json;

use super::Replay;
use crate::commands::run::BUILD;
use crate::commands::{BadInput, print, refuse};

/// Most moments that a table shows; the JSON document has all.
const MOMENTS_MAX: usize = 200;
/// A bundle in whose queue packets waited at more than this share of the looks was kept from sending more.
const BACKLOGGED: f64 = 0.5;

impl Replay {
    /// Tells what happened, and simulates the like of it.
    pub(super) fn execute_of_boxes(self) -> anyhow::Result<ExitCode> {
        let recording = Told::read(&self.file).map_err(|error| BadInput(error.to_string()))?;
        let figures = &recording.figures;
        if !self.json {
            print(&told(&recording))?;
        }
        let chosen = match &self.bundle {
            None => figures.first(),
            Some(name) => Some(figures.iter().find(|it| it.bundle == *name).ok_or_else(|| {
                let names: Vec<&str> = figures.iter().map(|it| it.bundle.as_str()).collect();
                BadInput(format!("--bundle {name}: allowed is one of {}", names.join(", ")))
            })?),
        };
        let simulated = match chosen.filter(|_| !self.explain) {
            None => None,
            Some(figures) => match measured(figures).and_then(|measured| measured.plan()) {
                Ok(plan) => Some((figures, simulate(&plan, self.out.as_deref())?, plan)),
                Err(reason) => {
                    eprintln!("bundle {} is not simulated: {reason}", figures.bundle);
                    None
                }
            },
        };
        if self.json {
            let moment = |it: &Moment| json!({ "at_s": it.at_s, "whom": it.whom, "what": it.what });
            let simulated = simulated.map(|(figures, arms, plan)| {
                json!({ "bundle": figures.bundle, "plan": plan, "approximations": APPROXIMATIONS, "summary": arms })
            });
            let document = json!({
                "about": recording.about,
                "story": recording.story.iter().map(moment).collect::<Vec<_>>(),
                "moments_left_out": recording.moments_left_out,
                "simulated": simulated,
            });
            print(&format!("{document}\n"))?;
        } else if let Some((figures, arms, _)) = simulated {
            print(&beside(figures, &arms, self.out.as_deref()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What happened, for people.
fn told(recording: &Told) -> String {
    let Told { about, looks, story, moments_left_out, logged, .. } = recording;
    let (version, kernel) = (plain(&about.version), plain(&about.kernel));
    let took_s = about.took_s;
    let mut text = format!(
        "recorded by forebay {version} on Linux {kernel}: {looks} looks in {took_s:.0} s\n"
    );
    // Writing to a string cannot fail.
    for what in &about.left_out {
        let _ = writeln!(text, "left out: {}", plain(what));
    }
    text.push('\n');
    for Moment { at_s, whom, what } in story.iter().take(MOMENTS_MAX) {
        let _ = writeln!(text, "{at_s:>8.1} s  {}: {}", plain(whom), plain(what));
    }
    if story.len() > MOMENTS_MAX {
        let more = story.len() - MOMENTS_MAX;
        let _ = writeln!(text, "and {more} more (--json has them)");
    }
    if *moments_left_out > 0 {
        let _ = writeln!(text, "and {moments_left_out} more, which are not kept");
    }
    for event in EVENTS {
        if let Some(count) = logged.get(event.id) {
            let _ =
                writeln!(text, "log.txt: {count} x {} {}: {}", event.id, event.name, event.when);
        }
    }
    text
}

/// Text of somebody else's, which may hold what moves a terminal's cursor.
fn plain(text: &str) -> String {
    text.replace(|letter: char| letter.is_control(), "?")
}

/// What of the figures makes a plan; `Err`: what is not known.
fn measured(figures: &Figures) -> Result<Measured, String> {
    let spec = |key: &str, text: &str| {
        text.parse::<Spec>().map_err(|error| format!("{key} = {}: {error}", plain(text)))
    };
    // Without an estimate the path carries at least what came through.
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

/// Runs the plan; its results go below `out`, or away.
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
