//! Makes the trials that the store lacks.

use std::path::PathBuf;
use std::time::Duration;

use forebay_core::random::Streams;
use forebay_core::units::Rate;
use forebay_host::kernel;
use forebay_testbed::cost::bench::{Bench, Turn};
use forebay_testbed::cost::{Control, CounterScheduling, Load, Outcome, Trial};

use super::figures::{FLOWS, Findings};
use super::platform::{Algorithm, Platform, Setting};
use super::progress::PlatformsProgress;
use super::rows::{Calibration, PlatformRows, Purpose, Start, TrialKey, TrialRow};
use super::runs::unresolved;
use super::scores::disturbance;
use super::{PlatformsError, What};
use crate::judge::VALUES_MIN;
use crate::store::Build;

/// Traffic before the measured part of a trial. Slow start ends within milliseconds here, and the agent has
/// answered the request for its counters.
const WARM_UP: Duration = Duration::from_millis(500);
/// Measured time per turn of a platform: the processor's speed changes over longer times than a block of these.
const SLICE: Duration = Duration::from_millis(100);
/// Longest trial while a rate is searched.
const SEARCH_TRIAL: Duration = Duration::from_secs(2);
/// Share of the processor that the kernel's algorithm should take, and the accepted range. It lies well
/// within the half to seven tenths that the scored trials, which come later, must show.
const SHARE: f64 = 0.57;
const SHARE_NEAR: std::ops::RangeInclusive<f64> = 0.53..=0.62;
/// Range of rates to try.
const RATES: [Rate; 2] = [Rate::from_mbit_per_sec(10), Rate::from_mbit_per_sec(100_000)];
const RATE_FIRST: Rate = Rate::from_mbit_per_sec(300);
const TRIES: usize = 10;
/// Most trials at a rate until one is undisturbed: a minute and a half.
const TRIALS_A_RATE: u32 = 30;
/// Least share of the rate that the traffic must reach for the rate to count.
const RATE_REACHED: f64 = 0.99;
/// Rounds of trials that are shown as medians, without a claim about differences.
const ROUNDS: u32 = 3;
/// Rounds in which programs are timed: two more than an interval needs.
const TIMED_ROUNDS: u32 = VALUES_MIN as u32 + 2;
/// Pause between two turns, so that waiting measurements get theirs: they look ten times a second.
const PAUSE: Duration = Duration::from_millis(250);

/// Subject and method of a measurement.
#[derive(Clone, Debug)]
pub struct MeasureOptions {
    /// Parts to measure.
    pub what: Vec<What>,
    /// Scheduling classes of the counting process for which scores are taken.
    pub counters: Vec<CounterScheduling>,
    /// Name of the algorithm.
    pub algorithm: String,
    /// The measured part of a trial.
    pub duration: Duration,
    /// Blocks until scores are first examined, and between two examinations.
    pub trials: u32,
    /// Maximum number of blocks.
    pub max_trials: u32,
    /// Rate of the scored trials; `None`: searched for each setting.
    pub rate: Option<Rate>,
    /// Seed of the order of trials and of the intervals.
    pub seed: u64,
    /// The build of this program.
    pub build: Build,
    /// This program.
    pub binary: PathBuf,
    /// Folder of the results.
    pub folder: PathBuf,
}

impl MeasureOptions {
    /// The settings of the scored trials.
    pub fn settings(&self) -> Vec<Setting> {
        let is_wanted = |setting: &Setting| self.counters.contains(&setting.counter());
        Setting::ALL.into_iter().filter(is_wanted).collect()
    }
}

/// Measures the missing trials and returns all that the folder then holds.
pub fn measure(
    options: &MeasureOptions,
    progress: &mut PlatformsProgress,
) -> Result<(PlatformRows, Findings), PlatformsError> {
    let algorithm = Algorithm::of_this_kernel(&options.algorithm)?;
    let scratch = tempfile::tempdir()
        .map_err(|source| PlatformsError::File { path: std::env::temp_dir(), source })?;
    let bench = Bench::open(&options.binary, scratch.path())?;
    let rows = PlatformRows::open(&options.folder, start(options, &bench))?;
    let mut course = Course { options, algorithm, bench, rows, progress };
    for what in &options.what {
        match what {
            What::Cpu => course.cpu()?,
            What::Latency => course.latency()?,
            What::Scale => course.scale()?,
        }
    }
    course.progress.finish();
    let findings = Findings::of(&course.rows, &algorithm)?;
    Ok((course.rows, findings))
}

fn start(options: &MeasureOptions, bench: &Bench) -> Start {
    Start {
        sources: options.build.emu.into(),
        commit: options.build.commit.into(),
        kernel: kernel::release(),
        processor: processor(),
        cpu: bench.cpu(),
        algorithm: options.algorithm.clone(),
        duration_ns: options.duration.as_nanos() as u64,
        warm_up_ns: WARM_UP.as_nanos() as u64,
        slice_ns: SLICE.as_nanos() as u64,
        seed: options.seed,
        rate_bps: options.rate.map(Rate::as_bits_per_sec),
        ..Start::default()
    }
    .with_schema()
}

/// The model of the processor.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name"));
    model
        .map_or_else(|| "unknown".into(), |model| model.trim_start_matches([' ', '\t', ':']).into())
}

/// The properties that all trials of a block share.
#[derive(Clone, Copy)]
struct Block {
    purpose: Purpose,
    setting: Setting,
    flows: u32,
    number: u32,
    load: Load,
}

struct Course<'a> {
    options: &'a MeasureOptions,
    algorithm: Algorithm,
    bench: Bench,
    rows: PlatformRows,
    progress: &'a mut PlatformsProgress,
}

impl Course<'_> {
    fn cpu(&mut self) -> Result<(), PlatformsError> {
        for setting in self.options.settings() {
            let load = self.load(setting)?;
            self.score(setting, load)?;
            // The counting process does not change the time of any program.
            if setting.counter() != CounterScheduling::Idle {
                continue;
            }
            let platforms = self.algorithm.on(&Platform::TIMED);
            let title = format!("time of BPF programs, {}", setting.title());
            self.rounds(&title, Purpose::ProgramTimes, setting, load, &platforms)?;
        }
        Ok(())
    }

    /// Blocks of scored trials, until everything is resolved or there are enough.
    fn score(&mut self, setting: Setting, load: Load) -> Result<(), PlatformsError> {
        let (step, most) = (self.options.trials.max(1), self.options.max_trials.max(1));
        let mut platforms = self.algorithm.on(&Platform::SCORED);
        let mut done = 0;
        while done < most && !platforms.is_empty() {
            let goal = (done + step).min(most);
            let title = format!("CPU, {}", setting.title());
            self.progress.part(&title, platforms.len() * (goal - done) as usize);
            for number in done..goal {
                let block = Block { purpose: Purpose::Score, setting, flows: 1, number, load };
                self.block(&block, &platforms)?;
            }
            done = goal;
            // Only platforms with an open claim go on, along with their baselines.
            platforms = unresolved(&self.rows, &self.algorithm, setting, done)?;
        }
        Ok(())
    }

    fn latency(&mut self) -> Result<(), PlatformsError> {
        let load = self.load(Setting::Gso2)?;
        let platforms = self.algorithm.on(&Platform::REPORTING);
        self.rounds("latency", Purpose::Latency, Setting::Gso2, load, &platforms)
    }

    fn scale(&mut self) -> Result<(), PlatformsError> {
        let platforms = self.algorithm.on(&Platform::SCALED);
        for flows in FLOWS {
            let setting = Setting::GsoUnlimited;
            let load = Load { rate: None, flows, gso_segments: setting.segments() };
            let title = format!("{flows} connections");
            self.rounds(&title, Purpose::Scale, setting, load, &platforms)?;
        }
        Ok(())
    }

    fn rounds(
        &mut self,
        title: &str,
        purpose: Purpose,
        setting: Setting,
        load: Load,
        platforms: &[Platform],
    ) -> Result<(), PlatformsError> {
        let rounds = if purpose == Purpose::ProgramTimes { TIMED_ROUNDS } else { ROUNDS };
        self.progress.part(title, platforms.len() * rounds as usize);
        for number in 0..rounds {
            let block = Block { purpose, setting, flows: load.flows, number, load };
            self.block(&block, platforms)?;
        }
        Ok(())
    }

    /// Makes the trials of a block in a random order, with no other measurement in between. They take
    /// turns, but trials of many connections follow each other. A complete block is not made again. An
    /// interrupted one starts again, because compared trials must be of the same time.
    fn block(&mut self, block: &Block, platforms: &[Platform]) -> Result<(), PlatformsError> {
        let Block { purpose, setting, flows, number, load } = *block;
        let made = |rows: &PlatformRows| -> Vec<Platform> {
            rows.block(purpose, setting, flows, number).map(|row| row.key.platform).collect()
        };
        let found = made(&self.rows);
        if platforms.iter().all(|platform| found.contains(platform)) {
            self.progress.ended(platforms.len());
            return Ok(());
        }
        let last = self.rows.block(purpose, setting, flows, number).map(|row| row.key.attempt);
        let attempt = last.max().unwrap_or(0) + 1;
        let turn = Turn::take(&mut |holder| self.progress.waiting(&holder))?;
        let order = order(self.options.seed, block, platforms);
        let together = if purpose == Purpose::Scale { 1 } else { order.len() };
        for platforms in order.chunks(together.max(1)) {
            let title = match platforms {
                [platform] => platform.title().to_string(),
                several => format!("{} platforms in turns", several.len()),
            };
            self.progress.trial(&format!("{title}, block {}", number + 1));
            let controls: Vec<Control> = platforms
                .iter()
                .map(|it| it.control(&self.algorithm).expect("only those that it runs on"))
                .collect();
            let trial = self.trial(setting, load, self.options.duration, purpose);
            let outcomes = self.bench.run_in_turns(&trial, &controls)?;
            for (&platform, outcome) in platforms.iter().zip(outcomes) {
                let key = TrialKey { purpose, setting, flows, block: number, attempt, platform };
                self.rows.put_trial(TrialRow { key, outcome })?;
            }
            self.progress.ended(platforms.len());
        }
        drop(turn);
        std::thread::sleep(PAUSE);
        Ok(())
    }

    fn trial(&self, setting: Setting, load: Load, duration: Duration, purpose: Purpose) -> Trial {
        let (counter, times_programs) = (setting.counter(), purpose == Purpose::ProgramTimes);
        Trial { load, counter, warm_up: WARM_UP, duration, slice: SLICE, times_programs }
    }

    /// The load of a setting: its rate comes from the file, from the options, or from a search.
    fn load(&mut self, setting: Setting) -> Result<Load, PlatformsError> {
        if !setting.has_rate() {
            return Ok(Load { rate: None, flows: 1, gso_segments: setting.segments() });
        }
        let rate = match self.rows.calibration(setting) {
            Some(calibration) => Rate::from_bits_per_sec(calibration.rate_bps),
            None => {
                let calibration = self.calibrate(setting)?;
                let rate = Rate::from_bits_per_sec(calibration.rate_bps);
                self.progress.note(&format!(
                    "{}: {rate}, of which the kernel's {} takes {:.0} % of the processor",
                    setting.title(),
                    self.algorithm.kernel,
                    100.0 * calibration.share
                ));
                self.rows.put_calibration(calibration)?;
                rate
            }
        };
        Ok(load_at(rate, setting))
    }

    /// Searches the rate at which the kernel's algorithm takes its share of the processor.
    fn calibrate(&mut self, setting: Setting) -> Result<Calibration, PlatformsError> {
        let _turn = Turn::take(&mut |holder| self.progress.waiting(&holder))?;
        self.progress.trial(&format!("searching the rate, {}", setting.title()));
        let duration = self.options.duration.min(SEARCH_TRIAL);
        let idle_per_s = self.bench.idle_count(duration, setting.counter())?;
        let trial_at = |rate: Rate| {
            let control = Control::Kernel(self.algorithm.kernel.into());
            let trial = self.trial(setting, load_at(rate, setting), duration, Purpose::Score);
            Ok::<_, PlatformsError>(self.bench.run(&trial, &control)?)
        };
        let share_of = |outcome: &Outcome| 1.0 - outcome.counted_per_s / idle_per_s;
        // CPU time of other processes must not count as the kernel's.
        let share_at = |rate: Rate| -> Result<(f64, bool), PlatformsError> {
            let mut reason = "";
            for _ in 0..TRIALS_A_RATE {
                let outcome = trial_at(rate)?;
                let sent = outcome.bytes_per_s * 8.0 / rate.as_bits_per_sec() as f64;
                match disturbance(&outcome) {
                    None => return Ok((share_of(&outcome), sent >= RATE_REACHED)),
                    Some(why) => reason = why,
                }
            }
            Err(PlatformsError::Disturbed { reason, trials: TRIALS_A_RATE })
        };
        let calibration = |rate: Rate, share| Calibration {
            setting,
            rate_bps: rate.as_bits_per_sec(),
            idle_per_s,
            share,
        };
        if let Some(rate) = self.options.rate {
            return Ok(calibration(rate, share_of(&trial_at(rate)?)));
        }
        let mut rate = RATE_FIRST;
        let mut tried = Vec::new();
        for _ in 0..TRIES {
            let (share, is_reached) = share_at(rate)?;
            tried.push(format!("{rate}: {:.0} %", 100.0 * share));
            if SHARE_NEAR.contains(&share) && is_reached {
                return Ok(calibration(rate, share));
            }
            rate = next_rate(rate, share);
        }
        Err(PlatformsError::NoRate {
            name: self.algorithm.kernel.into(),
            least: RATES[0].to_string(),
            most: RATES[1].to_string(),
            tried: tried.join(", "),
        })
    }
}

fn load_at(rate: Rate, setting: Setting) -> Load {
    Load { rate: Some(rate), flows: 1, gso_segments: setting.segments() }
}

/// The rate that takes the wanted share, if the share grows with the rate.
fn next_rate(rate: Rate, share: f64) -> Rate {
    let factor = (SHARE / share.max(0.01)).clamp(0.25, 4.0);
    let bits = rate.as_bits_per_sec() as f64 * factor;
    let [least, most] = RATES.map(|rate| rate.as_bits_per_sec() as f64);
    Rate::from_bits_per_sec(bits.clamp(least, most) as u64)
}

/// The platforms of a block in the order of their trials.
fn order(seed: u64, block: &Block, platforms: &[Platform]) -> Vec<Platform> {
    let Block { purpose, setting, flows, number, .. } = block;
    let name = format!("order {purpose:?} {setting:?} {flows} {number}");
    let mut order = platforms.to_vec();
    Streams::new(seed).stream(&name).shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_platform_comes_first_as_often_as_any_other() {
        let load = load_at(RATE_FIRST, Setting::Gso2);
        let first = |number| {
            let (purpose, setting) = (Purpose::Score, Setting::Gso2);
            let block = Block { purpose, setting, flows: 1, number, load };
            let order = order(1, &block, &Platform::SCORED);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, Platform::SCORED);
            order[0]
        };
        let firsts: Vec<Platform> = (0..800).map(first).collect();
        for platform in Platform::SCORED {
            let count = firsts.iter().filter(|first| **first == platform).count();
            // 100 expected, with a standard deviation of 9.4.
            assert!((60..=140).contains(&count), "{platform:?}: {count}");
        }
        assert_eq!(first(7), first(7));
    }

    #[test]
    fn the_search_ends_where_the_share_grows_with_the_rate() {
        // 1.5 Gbit/s takes the whole processor.
        let mut rate = RATE_FIRST;
        let share = |rate: Rate| (rate.as_bits_per_sec() as f64 / 1.5e9).min(1.0);
        for _ in 0..3 {
            rate = next_rate(rate, share(rate));
        }
        assert!(SHARE_NEAR.contains(&share(rate)), "{rate}");
        assert_eq!(next_rate(RATES[1], 0.0), RATES[1]);
        assert_eq!(next_rate(RATES[0], 1.0), RATES[0]);
    }
}
