//! `forebay platforms`: one algorithm in the kernel, in eBPF and in an agent, and what each costs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use forebay_core::units::{Rate, parse_duration};

/// Arguments of `forebay platforms`.
///
/// Needs root and Linux 6.4. Everything runs on the last processor, in two network namespaces that go
/// with the program: traffic over a veth pair, the agent, and a process at nice 19 that counts what is
/// left. Trials of a block follow each other in random order. Trials that the folder has already are
/// not made again, so a measurement that was broken off goes on where it was.
///
/// Exit code 1: a claim failed, reports were lost, or an agent that was slowed on purpose was not told
/// apart.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay platforms                                # everything: 40 minutes, up to 3 hours\n  \
    forebay platforms --what cpu --algorithm reno\n  \
    forebay platforms --what scale --duration 3s\n  \
    forebay platforms --what cpu --metric cpu_per_gb # another look at the same trials\n\n\
    Needs root, Linux 6.4 and a machine that is quiet. Figures and all numbers are in DIR/report.html, \
    every trial in DIR/trials.jsonl: a measurement that was broken off goes on where it was.\n\
    Exit code 1: a claim failed, reports were lost, or the slowed agent was not told apart.")]
pub struct Platforms {
    /// What is measured: cpu (scores beside the kernel's own, CPU time a gigabyte, time of each BPF
    /// program), latency (from report to decision), scale (1 to 1000 connections), or all.
    #[arg(long, default_value = "all", value_name = "cpu|latency|scale|all")]
    what: Parts,
    /// The algorithm: cubic, reno, or bbr where the kernel has it.
    #[arg(long, default_value = "cubic", value_name = "NAME")]
    algorithm: String,
    /// The measured part of a trial, 100ms to 10min.
    #[arg(long, default_value = "4s", value_parser = parse_duration, value_name = "TIME")]
    duration: Duration,
    /// Scored trials of each platform before claims are judged, and from one judgement to the next.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000),
          value_name = "N")]
    trials: u32,
    /// Trials at most; a claim that is open then stays so.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000),
          value_name = "N")]
    max_trials: u32,
    /// What is shown of the scored trials: score (what the counting process counts; claims are about
    /// this) or cpu_per_gb (CPU seconds a gigabyte).
    #[arg(long, default_value = "score", value_name = "score|cpu_per_gb")]
    metric: MetricName,
    /// Rate of the traffic of scored trials and latencies [default: the one at which the kernel's own
    /// takes half to seven tenths of the processor, searched].
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Seed of the order of trials and of the intervals.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Where results go.
    #[arg(long, default_value = "out/platforms", value_name = "DIR")]
    out: PathBuf,
    /// Print one JSON document on stdout and nothing else there.
    #[arg(long)]
    json: bool,
}

/// Values of `--what`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Parts {
    Cpu,
    Latency,
    Scale,
    All,
}

/// Values of `--metric`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum MetricName {
    Score,
    CpuPerGb,
}

#[cfg(feature = "host")]
mod with_host {
    use forebay_lab::platforms::progress::Progress;
    use forebay_lab::platforms::{Metric, Options, PlatformsError, What, measure, report, tables};

    use super::*;
    use crate::commands::run::COMMIT;
    use crate::commands::{BadInput, print};

    /// Shortest and longest measured part of a trial.
    const DURATIONS: std::ops::RangeInclusive<Duration> =
        Duration::from_millis(100)..=Duration::from_secs(600);

    impl Parts {
        fn list(self) -> Vec<What> {
            match self {
                Self::Cpu => vec![What::Cpu],
                Self::Latency => vec![What::Latency],
                Self::Scale => vec![What::Scale],
                Self::All => What::ALL.to_vec(),
            }
        }
    }

    impl Platforms {
        /// Measures what is missing and shows what was found.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            if !DURATIONS.contains(&self.duration) {
                let refusal = format!("--duration {:?}: allowed is 100ms to 10min", self.duration);
                return Err(BadInput(refusal).into());
            }
            if self.rate == Some(Rate::ZERO) {
                return Err(BadInput("--rate 0: allowed is more than that".into()).into());
            }
            let what = self.what.list();
            let metric = match self.metric {
                MetricName::Score => Metric::Score,
                MetricName::CpuPerGb => Metric::CpuPerGb,
            };
            let options = Options {
                what: what.clone(),
                algorithm: self.algorithm,
                duration: self.duration,
                trials: self.trials,
                max_trials: self.max_trials,
                rate: self.rate,
                seed: self.seed,
                commit: COMMIT.into(),
                binary: std::env::current_exe()?,
                folder: self.out,
            };
            let (rows, findings) = measure(&options, &mut Progress::on_stderr()).map_err(exit)?;
            let report = report::write(&findings, metric, rows.folder()).map_err(exit)?;
            let failures = findings.failures(&what);
            if self.json {
                let document = serde_json::json!({ "findings": findings, "failures": failures });
                print(&format!("{document:#}\n"))?;
            } else {
                let failures: String =
                    failures.iter().map(|failure| format!("FAILED: {failure}\n")).collect();
                let text = tables::text(&findings, metric);
                print(&format!("{text}{failures}report: {}\n", report.display()))?;
            }
            Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }

    fn exit(error: PlatformsError) -> anyhow::Error {
        if error.is_bad_input() { BadInput(error.to_string()).into() } else { error.into() }
    }
}

#[cfg(not(feature = "host"))]
impl Platforms {
    /// Says what is missing.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = self;
        Err(super::needs_host("platforms"))
    }
}
