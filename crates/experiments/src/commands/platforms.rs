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
/// order; those with 1 to 1000 connections follow each other. The plans platforms/cpu, platforms/programs,
/// platforms/latency and platforms/scale describe the trials. Behaviour is measured by the plan platforms/behaviour
/// on the testbed and in the simulator, all platforms in turn. Blocks that the folder has already are not made again,
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
    forebay run platforms/cpu --seeds 1..20          # one of the plans behind it\n\n\
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
    /// The measured part of a trial, 100ms to 10min; of the behaviour all of it, 4s or more [default: 2s;
    /// of scale 3s; of the behaviour 15s].
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
    /// Rate of the traffic of scored trials and latencies [default: the one at which the kernel's own
    /// takes half to seven tenths of the processor, searched].
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Seed of the first block of trials, which sets their order; the next blocks have the next seeds.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
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

#[cfg(feature = "host")]
mod with_host {
    use std::collections::BTreeSet;

    use forebay_core::spec::one_of;
    use forebay_lab::judge::{ClaimResults, Claims, Judged, PlanClaims, table};
    use forebay_lab::plan::curves::is_bin;
    use forebay_lab::plan::{Plan, Seeds};
    use forebay_lab::platforms::{self, CostOptions, STOP_MIN};
    use forebay_lab::{Results, check, output, progress, run};
    use forebay_scenario::{CostAlgorithm, Counter};

    use super::*;
    use crate::commands::refuse;
    use crate::commands::run::BUILD;
    use forebay::commands::interrupt::resume_after_interrupt;
    use forebay::{BadInput, print};

    /// Shortest and longest measured part of a trial.
    const DURATIONS: std::ops::RangeInclusive<Duration> =
        Duration::from_millis(100)..=Duration::from_secs(600);
    /// Folder of the behaviour's runs, below the results' folder.
    const RUNS: &str = "behaviour";
    /// The back end that claims are about.
    const TESTBED: &str = "emu";

    impl Parts {
        /// The plans of costs.
        fn costs(self) -> &'static [&'static str] {
            use platforms::{CPU, LATENCY, PROGRAMS, SCALE};
            match self {
                Self::Cpu => &[CPU, PROGRAMS],
                Self::Latency => &[LATENCY],
                Self::Scale => &[SCALE],
                Self::Behaviour => &[],
                Self::All => &[CPU, PROGRAMS, LATENCY, SCALE],
            }
        }

        fn has_behaviour(self) -> bool {
            matches!(self, Self::Behaviour | Self::All)
        }
    }

    /// The results of several calls, with what was judged of them.
    #[derive(Default)]
    struct Found {
        results: Option<Results>,
        judged: Vec<Judged>,
    }

    impl Found {
        fn add(&mut self, results: Results, judged: Vec<Judged>) {
            self.judged.extend(judged);
            match &mut self.results {
                None => self.results = Some(results),
                Some(all) => {
                    all.runs.extend(results.runs);
                    all.summaries.extend(results.summaries);
                }
            }
        }

        /// Tables for a terminal.
        fn text(&self) -> String {
            let Some(results) = &self.results else { return String::new() };
            let claims = table::titled("claims", &table::of_claims(&self.judged));
            let report = results.report.display();
            format!("{}{claims}report: {report}\n", output::text(&results.summaries))
        }
    }

    impl Platforms {
        /// Makes the missing measurements and shows all findings.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            self.check()?;
            let algorithm = self.algorithm()?;
            resume_after_interrupt()?;
            let costs = self.costs(algorithm)?;
            let behaviour = match self.what.has_behaviour() {
                true => self.behaviour(algorithm)?,
                false => Found::default(),
            };
            let claims: Vec<&Judged> = costs.judged.iter().chain(&behaviour.judged).collect();
            let complaints: Vec<String> =
                claims.iter().filter_map(|claim| claim.complaint()).collect();
            if self.json {
                let document = serde_json::json!({
                    "sources": BUILD.emu,
                    "costs": costs.results,
                    "behaviour": behaviour.results,
                    "claims": claims,
                });
                print(&format!("{document:#}\n"))?;
            } else {
                let mut text = costs.text() + &behaviour.text();
                text.extend(complaints.iter().map(|complaint| format!("{complaint}\n")));
                text += &format!("{}\n", table::counts(claims.into_iter()));
                print(&text)?;
            }
            Ok(if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }

        fn check(&self) -> Result<(), BadInput> {
            let duration = self.duration.unwrap_or(STOP_MIN);
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

        fn algorithm(&self) -> Result<CostAlgorithm, BadInput> {
            let named = CostAlgorithm::ALL.iter().find(|(name, _)| *name == self.algorithm);
            named.map(|(_, algorithm)| *algorithm).ok_or_else(|| {
                let allowed = one_of(&self.algorithm, &CostAlgorithm::ALL.map(|(name, _)| name));
                BadInput(format!("--algorithm {}: allowed is {allowed}", self.algorithm))
            })
        }

        /// How a plan is run on `backend`; the results are in the folder `below` that of the option.
        fn on(&self, backend: &str, below: &str, seeds: Seeds) -> forebay_lab::Options {
            forebay_lab::Options {
                backend: backend.into(),
                out: Some(self.out.join(below)),
                seeds: Some(seeds),
                build: BUILD,
                ..Default::default()
            }
        }

        /// The first `count` blocks.
        fn blocks(&self, count: u64) -> Seeds {
            Seeds { first: self.seed, last: self.seed + count.max(1) - 1 }
        }

        /// Runs the plans of costs, cell by cell: scores until no claim is open or there are enough blocks.
        fn costs(&self, algorithm: CostAlgorithm) -> anyhow::Result<Found> {
            let counters = match self.counter {
                Counters::Idle => vec![Counter::Idle],
                Counters::Nice19 => vec![Counter::Nice19],
                Counters::Both => vec![Counter::Idle, Counter::Nice19],
            };
            let (duration, rate) = (self.duration, self.rate);
            let options = CostOptions { algorithm, duration, rate, counters };
            let plan = |name| Ok((name, platforms::cost(name, &options).map_err(refuse)?));
            let names = self.what.costs().iter().copied();
            let plans: Vec<(&str, Plan)> = names.map(plan).collect::<anyhow::Result<_>>()?;
            for (_, plan) in &plans {
                check(plan, &self.on(TESTBED, "", self.blocks(1))).map_err(refuse)?;
            }
            let mut found = Found::default();
            for (name, plan) in &plans {
                let mut claims = claims_of(name, plan);
                if rate.is_some() {
                    claims.claim.retain(|claim| claim.value != ["processor_share"]);
                }
                for cell in &plan.cells {
                    let mut plan = plan.clone();
                    plan.cells = vec![cell.clone()];
                    let (results, judged) = self.cost(name, &plan, &claims)?;
                    found.add(results, judged);
                }
            }
            Ok(found)
        }

        /// Runs a plan of costs of one cell.
        fn cost(
            &self,
            name: &str,
            plan: &Plan,
            claims: &PlanClaims,
        ) -> anyhow::Result<(Results, Vec<Judged>)> {
            let own = plan.seeds.iter().count() as u64;
            let (step, most) = match name {
                platforms::CPU => (u64::from(self.trials), u64::from(self.max_trials)),
                _ => (own, own),
            };
            let mut count = 0;
            loop {
                count = (count + step).min(most);
                let seeds = self.blocks(count);
                let options = self.on(TESTBED, "", seeds);
                let results = run(plan, &options, &mut *progress::on_stderr()).map_err(refuse)?;
                let found = ClaimResults::read(&results.store, plan, TESTBED, BUILD.emu, seeds)?;
                let is_open = !claims.open_arms(&found, &plan.cells[0].name).is_empty();
                if count >= most || !is_open {
                    return Ok((results, claims.judge(TESTBED, &found, None)));
                }
            }
        }

        /// Runs the plan in the simulator and on the testbed, and judges the claims about its arms.
        fn behaviour(&self, algorithm: CostAlgorithm) -> anyhow::Result<Found> {
            let plan = platforms::behaviour(algorithm, self.duration, self.interval, &self.arms);
            let plan = plan.map_err(refuse)?;
            let simulated = platforms::simulated(&plan).map_err(refuse)?;
            let seeds = Seeds { first: 1, last: u64::from(self.trials) };
            let on = |backend: &str| self.on(backend, RUNS, seeds);
            check(&plan, &on(TESTBED)).map_err(refuse)?;
            let run = |plan, backend| run(plan, &on(backend), &mut *progress::on_stderr());
            // The testbed runs last, because the store describes the plan of the last run.
            run(&simulated, "sim").map_err(refuse)?;
            let results = run(&plan, TESTBED).map_err(refuse)?;
            let found = ClaimResults::read(&results.store, &plan, TESTBED, BUILD.emu, seeds)?;
            let judged = claims_of(platforms::BEHAVIOUR, &plan).judge(TESTBED, &found, None);
            Ok(Found { results: Some(results), judged })
        }
    }

    /// The claims about the arms of `plan`, which is called `name`.
    fn claims_of(name: &str, plan: &Plan) -> PlanClaims {
        let arms: BTreeSet<&str> = plan.arms.iter().map(|arm| arm.name.as_str()).collect();
        let mut plans = Claims::builtin().plan.into_iter();
        plans.find(|it| it.name == name).expect("a test reads them").of_arms(&arms)
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
