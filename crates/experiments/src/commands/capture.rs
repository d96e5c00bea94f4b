//! `forebay capture`.

use std::path::PathBuf;
use std::process::ExitCode;

use forebay_core::spec::one_of;
use forebay_core::units::{ByteCount, Duration, format_duration};
use forebay_lab::capture::{self, CaptureError, Written};
use forebay_lab::plan::{Experiment, Plan};

use super::refuse;
use super::run::{note_replacements, parse_sets};
use forebay::commands::foreign_rust::{With, in_sets};
use forebay::{BadInput, print};

/// Write packets for Wireshark, or connections for qlog viewers.
///
/// Makes one run. If a queue dropped or marked a packet, each capture of that packet has a comment.
/// Capture at one point, or filter by frame.interface_name: Wireshark reports a packet that it sees
/// at two points as a retransmission.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay capture ccperf/responsiveness_step --pcapng step.pcapng\n  \
    tshark -r step.pcapng -Y 'frame.comment contains \"dropped\"'")]
pub struct Capture {
    /// Plan: the path of a file, or a name from `forebay list plans`.
    #[arg(value_name = "PLAN")]
    plan: String,
    /// Back end: sim (the packet simulator) or emu (real kernels over an emulated link).
    #[arg(long, default_value = "sim", value_name = "NAME")]
    backend: String,
    /// Arm to run [default: the first of the plan].
    #[arg(long, value_name = "NAME")]
    arm: Option<String>,
    /// Cell to run [default: the first of the plan].
    #[arg(long, value_name = "NAME")]
    cell: Option<String>,
    /// Seed of the run [default: the first of the plan].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Override a value of the plan, such as bottleneck.rate=48Mbit/s. May be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    #[command(flatten)]
    with: With,
    /// Write the headers of packets to this file.
    #[arg(long, value_name = "FILE", required_unless_present = "qlog")]
    pcapng: Option<PathBuf>,
    /// Points at which to capture: sender, receiver, NAME-in or NAME-out of a link, or all. With
    /// emu, sender is site A and receiver is site B.
    #[arg(long = "at", value_delimiter = ',', default_value = "sender", value_name = "POINT,..")]
    points: Vec<String>,
    /// Write windows, round trips, losses and packets of each simulated TCP connection to this file
    /// (qlog 0.3).
    #[arg(long, value_name = "FILE")]
    qlog: Option<PathBuf>,
    /// Largest size of each file, which later packets do not enter.
    #[arg(long, default_value = "256MB", value_name = "SIZE")]
    limit: ByteCount,
}

impl Capture {
    /// The arguments that may name algorithms.
    pub fn mentions(&mut self) -> Vec<&mut String> {
        in_sets(&mut self.sets).chain(self.with.mentions()).collect()
    }

    /// Makes the run and prints the paths of the files written.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let plan =
            Plan::load(&self.plan, &parse_sets(&self.sets).map_err(refuse)?).map_err(refuse)?;
        note_replacements(&plan);
        let experiment = self.experiment(&plan)?;
        let wanted = capture::Capture {
            backend: self.backend,
            points: self.points,
            limit: self.limit,
            pcapng: self.pcapng,
            qlog: self.qlog,
        };
        let refused = |error: CaptureError| match error {
            CaptureError::Backend(error) => refuse(error),
            error if error.is_bad_input() => BadInput(error.to_string()).into(),
            error => error.into(),
        };
        let captured = capture::capture(&experiment, &wanted, &mut |_| ()).map_err(refused)?;
        let packets = wanted.pcapng.zip(captured.pcapng).map(|it| (it, "packets"));
        let events = wanted.qlog.zip(captured.qlog).map(|it| (it, "events"));
        for ((path, written), what) in packets.into_iter().chain(events) {
            let Written { entries, bytes, full_at_ns } = written;
            print(&format!("{}: {entries} {what}, {bytes} bytes\n", path.display()))?;
            if let Some(at_ns) = full_at_ns {
                let at = format_duration(Duration::from_millis(at_ns / 1_000_000));
                let (path, limit) = (path.display(), self.limit);
                eprintln!(
                    "note: {path}: reached --limit {limit} at {at} of the run; later packets are missing"
                );
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn experiment(&self, plan: &Plan) -> anyhow::Result<Experiment> {
        let arm = find("arm", self.arm.as_deref(), &plan.arms, |arm| &arm.name)?;
        let cell = find("cell", self.cell.as_deref(), &plan.cells, |cell| &cell.name)?;
        let seed = self.seed.unwrap_or(plan.seeds.first);
        plan.experiment(arm, cell, seed).map_err(refuse)
    }
}

/// The element of `all` called `name`, or the first.
fn find<'a, T>(
    flag: &str,
    name: Option<&str>,
    all: &'a [T],
    name_of: impl Fn(&T) -> &String,
) -> anyhow::Result<&'a T> {
    let found = match name {
        Some(name) => all.iter().find(|it| name_of(it) == name),
        None => all.first(),
    };
    found.ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|it| name_of(it).as_str()).collect();
        let name = name.unwrap_or_default();
        BadInput(format!("--{flag} {name}: allowed is {}", one_of(name, &known))).into()
    })
}
