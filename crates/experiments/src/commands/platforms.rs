//! `forebay platforms`: one algorithm in the kernel, in eBPF and in an agent, and the cost of each.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use forebay_core::units::{Rate, parse_duration};

/// Arguments of `forebay platforms`.
///
/// Needs root and Linux 6.4. Costs are measured on the last processor, in two network namespaces that end with the
/// program. Traffic runs there over a veth pair, next to the agent and a process that counts with the remaining
/// processor time, under SCHED_IDLE and at nice 19. The trials of a block take turns of a tenth of a second in random
/// order; those with 1 to 1000 connections follow each other. Behaviour is measured by the plan platforms/behaviour
/// on the testbed and in the simulator, all platforms in turn. Trials that the folder has already are not made again,
/// so an interrupted measurement continues where it stopped.
///
/// Exit code 1: a claim failed, is open or was not shown (void, unsteady, too few trials). Also if reports were lost,
/// or an agent that was slowed on purpose was not detected, or root is missing. 130: you pressed Ctrl-C. The same
/// command then continues.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay platforms                                # everything: hours\n  \
    forebay platforms --what cpu --algorithm reno\n  \
    forebay platforms --what cpu --counter nice19    # the study's counting process\n  \
    forebay platforms --what scale --duration 3s\n  \
    forebay platforms --what behaviour               # 280 runs of 15 s; --trials 2: 28\n  \
    forebay platforms --what cpu --metric cpu_per_gb # another look at the same trials\n\n\
    Needs root, Linux 6.4 and a machine that is quiet. Figures and all numbers are in DIR/report.html, \
    every trial in DIR/results.sqlite; the behaviour has both in DIR/behaviour: \
    a measurement that was broken off goes on where it was.\n\
    Exit code 1: a claim failed, is open or was not shown (void, unsteady, of too few trials), reports were lost, \
    or the slowed agent was not told apart. No score is judged on fewer than 20 pairs of trials.")]
pub struct Platforms {
    /// Part to measure: cpu (scores compared with the kernel's own, CPU time a gigabyte, time of each BPF program),
    /// latency (from report to decision), scale (1 to 1000 connections), behaviour (window, bitrate and RTT over time
    /// compared with the kernel's own), or all.
    #[arg(long, default_value = "all", value_name = "cpu|latency|scale|behaviour|all")]
    what: Parts,
    /// The algorithm: cubic, reno, newreno (compared with the kernel's reno; in eBPF not written in C but compiled
    /// from the code that simulator and agent run), or bbr if the kernel has one.
    #[arg(long, default_value = "cubic", value_name = "NAME")]
    algorithm: String,
    /// How the counting process runs while scores are taken: idle (under SCHED_IDLE), nice19 (at nice 19, as in the
    /// study of eBPFCCP, there also next to traffic without a rate), or both.
    #[arg(long, default_value = "both", value_name = "idle|nice19|both")]
    counter: Counters,
    /// The measured part of a trial, 100ms to 10min; of the behaviour all of it, 4s or more [default: 4s;
    /// of the behaviour 15s].
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    duration: Option<Duration>,
    /// Only these arms of the behaviour, compared with the kernel's own: native, agent_round, agent_1ms, agent_10ms,
    /// agent_ack.
    #[arg(long, value_delimiter = ',', value_name = "NAME,..")]
    arms: Vec<String>,
    /// Bins of the behaviour's curves and of the claims about them, 100ms to 1s in steps of 100ms.
    #[arg(long, default_value = "100ms", value_parser = parse_duration, value_name = "TIME")]
    interval: Duration,
    /// Scored trials of each platform before claims are judged, and from one judgement to the next; of
    /// the behaviour all trials. With fewer than 20 of the behaviour, its claims are about these.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000),
          value_name = "N")]
    trials: u32,
    /// Scored trials at most; a claim that is open then stays so, as all are with fewer than 20.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000),
          value_name = "N")]
    max_trials: u32,
    /// Value shown of the scored trials: score (count of the counting process; claims are about this) or cpu_per_gb
    /// (CPU seconds a gigabyte).
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
    Behaviour,
    All,
}

/// Values of `--counter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Counters {
    Idle,
    Nice19,
    Both,
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
    use std::collections::BTreeSet;

    use forebay_lab::judge::{ClaimResults, Claims, Judged, table};
    use forebay_lab::plan::Plan;
    use forebay_lab::plan::curves::is_bin;
    use forebay_lab::platforms::behaviour::{self, STOP_MIN};
    use forebay_lab::platforms::figures::Findings;
    use forebay_lab::platforms::progress::PlatformsProgress;
    use forebay_lab::platforms::{
        Algorithm, MeasureOptions, Metric, PlatformsError, What, judged, measure, report, tables,
    };
    use forebay_lab::{Results, check, output, progress, run};
    use forebay_testbed::cost::CounterScheduling;

    use super::*;
    use crate::commands::refuse;
    use crate::commands::run::BUILD;
    use forebay::commands::interrupt::resume_after_interrupt;
    use forebay::{BadInput, print};

    /// Shortest and longest measured part of a trial.
    const DURATIONS: std::ops::RangeInclusive<Duration> =
        Duration::from_millis(100)..=Duration::from_secs(600);
    /// The default measured part.
    const DURATION: Duration = Duration::from_secs(4);
    /// Folder of the behaviour's runs, below the results' folder.
    const RUNS: &str = "behaviour";
    /// The back end that claims are about.
    const TESTBED: &str = "emu";

    impl Parts {
        /// The costs to measure.
        fn costs(self) -> Vec<What> {
            match self {
                Self::Cpu => vec![What::Cpu],
                Self::Latency => vec![What::Latency],
                Self::Scale => vec![What::Scale],
                Self::Behaviour => Vec::new(),
                Self::All => What::ALL.to_vec(),
            }
        }

        fn has_behaviour(self) -> bool {
            matches!(self, Self::Behaviour | Self::All)
        }
    }

    impl Counters {
        fn schedulings(self) -> Vec<CounterScheduling> {
            match self {
                Self::Idle => vec![CounterScheduling::Idle],
                Self::Nice19 => vec![CounterScheduling::Nice19],
                Self::Both => vec![CounterScheduling::Idle, CounterScheduling::Nice19],
            }
        }
    }

    impl Platforms {
        /// Makes the missing measurements and shows all findings.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            self.check()?;
            resume_after_interrupt()?;
            let mut text = String::new();
            let mut claims: Vec<Judged> = Vec::new();
            let (mut findings, mut behaviour) = (None, None);
            if !self.what.costs().is_empty() {
                let options = self.options()?;
                let (found, judged, path) = self.costs(&options)?;
                claims.extend(judged);
                text += &tables::text(&found, self.metric());
                text += &format!("report: {}\n", path.display());
                findings = Some(found);
            }
            if self.what.has_behaviour() {
                let (results, judged) = self.behaviour()?;
                text += &output::text(&results.summaries);
                text += &table::titled("claims", &table::of_claims(&judged));
                text += &format!("report: {}\n", results.report.display());
                claims.extend(judged);
                behaviour = Some(results);
            }
            let complaints: Vec<String> = claims.iter().filter_map(Judged::complaint).collect();
            if self.json {
                let document = serde_json::json!({
                    "sources": BUILD.emu, "findings": findings, "behaviour": behaviour, "claims": claims,
                });
                print(&format!("{document:#}\n"))?;
            } else {
                text.extend(complaints.iter().map(|complaint| format!("{complaint}\n")));
                text += &format!("{}\n", table::counts(claims.iter()));
                print(&text)?;
            }
            Ok(if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }

        fn check(&self) -> Result<(), BadInput> {
            let duration = self.duration.unwrap_or(DURATION);
            if !DURATIONS.contains(&duration) {
                let refusal = format!("--duration {duration:?}: allowed is 100ms to 10min");
                return Err(BadInput(refusal));
            }
            if self.what.has_behaviour() && duration < STOP_MIN {
                let refusal = format!(
                    "--duration {duration:?}: allowed is {STOP_MIN:?} to 10min for the behaviour"
                );
                return Err(BadInput(refusal));
            }
            if !is_bin(self.interval) {
                let refusal = format!(
                    "--interval {:?}: allowed is 100ms to 1s in steps of 100ms",
                    self.interval
                );
                return Err(BadInput(refusal));
            }
            if self.rate == Some(Rate::ZERO) {
                return Err(BadInput("--rate 0: allowed is more than that".into()));
            }
            Ok(())
        }

        fn metric(&self) -> Metric {
            match self.metric {
                MetricName::Score => Metric::Score,
                MetricName::CpuPerGb => Metric::CpuPerGb,
            }
        }

        fn options(&self) -> anyhow::Result<MeasureOptions> {
            Ok(MeasureOptions {
                what: self.what.costs(),
                counters: self.counter.schedulings(),
                algorithm: self.algorithm.clone(),
                duration: self.duration.unwrap_or(DURATION),
                trials: self.trials,
                max_trials: self.max_trials,
                rate: self.rate,
                seed: self.seed,
                build: BUILD,
                binary: std::env::current_exe()?,
                folder: self.out.clone(),
            })
        }

        fn costs(
            &self,
            options: &MeasureOptions,
        ) -> anyhow::Result<(Findings, Vec<Judged>, PathBuf)> {
            let (rows, findings) =
                measure(options, &mut PlatformsProgress::on_stderr()).map_err(exit)?;
            let algorithm = Algorithm::of_this_kernel(&options.algorithm).map_err(exit)?;
            let judged = judged(&rows, &algorithm, &options.what, &options.settings());
            let report = report::write(&findings, self.metric(), rows.folder())?;
            Ok((findings, judged?, report))
        }

        /// Runs the plan in the simulator and on the testbed, and judges the claims about its arms.
        fn behaviour(&self) -> anyhow::Result<(Results, Vec<Judged>)> {
            let algorithm = Algorithm::of_this_kernel(&self.algorithm).map_err(exit)?;
            let plan = behaviour::plan(&algorithm, self.duration, self.interval, &self.arms);
            let plan = plan.map_err(refuse)?;
            let simulated = behaviour::simulated(&plan).map_err(refuse)?;
            let seeds = format!("1..{}", self.trials).parse().expect("a range of seeds");
            let on = |backend: &str| forebay_lab::Options {
                backend: backend.into(),
                out: Some(self.out.join(RUNS)),
                seeds: Some(seeds),
                build: BUILD,
                ..Default::default()
            };
            check(&plan, &on(TESTBED)).map_err(refuse)?;
            let run = |plan, backend| run(plan, &on(backend), &mut *progress::on_stderr());
            // The testbed runs last, because the store describes the plan of the last run.
            run(&simulated, "sim").map_err(refuse)?;
            let results = run(&plan, TESTBED).map_err(refuse)?;
            let found = ClaimResults::read(&results.store, &plan, TESTBED, BUILD.emu, seeds)?;
            Ok((results, of_behaviour(&plan, &found)))
        }
    }

    /// The claims about the plan's arms, judged by `found`.
    fn of_behaviour(plan: &Plan, found: &ClaimResults) -> Vec<Judged> {
        let arms: BTreeSet<&str> = plan.arms.iter().map(|arm| arm.name.as_str()).collect();
        let claims = Claims::builtin().plan.into_iter().filter(|it| it.name == behaviour::PLAN);
        claims.flat_map(|claims| claims.of_arms(&arms).judge(TESTBED, found, None)).collect()
    }

    fn exit(error: PlatformsError) -> anyhow::Error {
        if error.is_bad_input() { BadInput(error.to_string()).into() } else { error.into() }
    }
}

#[cfg(not(feature = "host"))]
impl Platforms {
    /// Returns the error that names the missing feature.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = self;
        Err(super::needs_host("platforms"))
    }
}
