//! How closely platforms follow the kernel's own algorithm over one bottleneck, and what is claimed.
//!
//! ```text
//! x(t)       mean over trials of the window, bitrate or round trip in the interval at t (100 ms)
//! NRMSE(x)   sqrt(mean over t of (x(t) - kernel(t))^2) / mean over t of kernel(t)
//! ```
//! over [`Link::from_s`] to [`Link::to_s`], as in the study of eBPFCCP. The kernel is run twice, trials
//! interleaved: what these two sets differ by is chance, and no other platform can be told to be closer.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;

use super::platform::Platform;
use crate::judge::{Behind, Bound, Judged, Made, SEED, Verdict, Why};
use crate::metrics::statistics::{Sorted, mean};
use crate::store::{Bin, OverTime};

/// Bins a second as the store has them.
const BINS_PER_S: f64 = 10.0;
/// Trials of each platform, and of each set of the kernel, behind the claims.
pub const TRIALS: usize = 20;
/// Slow start is looked at for this long: it takes ten round trips at the most from a window of 10 to
/// twice a BDP of 400 segments, and its losses are repaired in one more.
pub const SLOW_START_S: f64 = 2.0;
/// An NRMSE up to this is as good as none...
const NRMSE_MOST: f64 = 0.05;
/// ...and so is one up to this many times the kernel's own.
const NRMSE_OWN: f64 = 2.0;
/// Above this the kernel differs from itself too much for anything to be said.
const OWN_MOST: f64 = 0.06;
/// Segments sent again in slow start, at most: so many times the kernel's and so many more.
const RESENT: (f64, f64) = (2.0, 20.0);
/// The largest window in slow start differs by this much at most.
const PEAK: f64 = 0.25;
/// How much later a window that never reached half a BDP is (ms): later than any run is long.
const NEVER_MS: f64 = 1e9;
/// Share of the trials that lie below the band and above it.
const BAND_TAIL: f64 = 0.1;

/// Platforms of which something is claimed, and by how much their throughput may differ from the kernel's.
const CLAIMED: [(Platform, f64); 2] = [(Platform::Native, 0.01), (Platform::AgentRound, 0.02)];

/// What is compared over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Window (segments).
    Cwnd,
    /// Payload that the receiver read (Mbit/s).
    Bitrate,
    /// Smoothed round trip (ms).
    Rtt,
}

impl Quantity {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cwnd, Self::Bitrate, Self::Rtt];

    /// Name with its unit.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Cwnd => "cwnd (segments)",
            Self::Bitrate => "bitrate (Mbit/s)",
            Self::Rtt => "RTT (ms)",
        }
    }

    fn of(self, bin: &Bin) -> f64 {
        match self {
            Self::Cwnd => bin.cwnd_segments,
            Self::Bitrate => bin.throughput_mbps,
            Self::Rtt => bin.srtt_ms,
        }
    }
}

/// One trial of a platform.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trial {
    /// Trials of one seed are compared.
    pub seed: u64,
    /// From the start of the run on, each as long as [`Link::interval_s`].
    pub bins: Vec<Bin>,
    /// Segments sent again within [`SLOW_START_S`].
    pub slow_start_resent: f64,
    /// Largest window within [`SLOW_START_S`] (segments).
    pub slow_start_peak: f64,
    /// When the window reached half a BDP (ms).
    pub half_bdp_after_ms: Option<f64>,
}

impl Trial {
    /// Of a connection whose window was `windows` (s, segments), in bins of `count` of the store's.
    pub fn new(
        seed: u64,
        over_time: &OverTime,
        windows: &[(f64, f64)],
        half_bdp_after_ms: Option<f64>,
        count: usize,
    ) -> Self {
        let early = windows.iter().filter(|(at, _)| *at < SLOW_START_S);
        let slow_start_peak = early.map(|(_, segments)| *segments).fold(0.0, f64::max);
        let bins = over_time.in_bins_of(count).bins;
        let early = over_time.bins.iter();
        let early = early.filter(|bin| bin.at_s < SLOW_START_S - 0.5 / BINS_PER_S);
        let slow_start_resent = early.map(|bin| bin.retransmissions).sum();
        Self { seed, bins, slow_start_resent, slow_start_peak, half_bdp_after_ms }
    }
}

/// The bottleneck, and when it is looked at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Link {
    /// Name of the link.
    pub name: String,
    /// Round trip without queues (ms).
    pub rtt_ms: f64,
    /// The curves are compared from here (s)...
    pub from_s: f64,
    /// ...to here.
    pub to_s: f64,
    /// In bins of this length (s).
    pub interval_s: f64,
}

impl Link {
    fn bins(&self) -> Range<usize> {
        let place = |at: f64| (at / self.interval_s).round() as usize;
        place(self.from_s)..place(self.to_s)
    }
}

/// The error of each curve, as a share; `None` where there is nothing to compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Nrmse {
    /// Of the window.
    pub cwnd: Option<f64>,
    /// Of the bitrate.
    pub bitrate: Option<f64>,
    /// Of the round trip.
    pub rtt: Option<f64>,
}

impl Nrmse {
    fn between(seen: &[Trial], kernel: &[Trial], bins: &Range<usize>) -> Self {
        let of = |quantity| nrmse(&means(seen, quantity, bins)?, &means(kernel, quantity, bins)?);
        Self { cwnd: of(Quantity::Cwnd), bitrate: of(Quantity::Bitrate), rtt: of(Quantity::Rtt) }
    }

    /// The error of one quantity.
    pub const fn of(&self, quantity: Quantity) -> Option<f64> {
        match quantity {
            Quantity::Cwnd => self.cwnd,
            Quantity::Bitrate => self.bitrate,
            Quantity::Rtt => self.rtt,
        }
    }
}

/// What was seen of a platform, means over its trials.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Seen {
    /// Trials that count: valid ones whose connection was seen to the end.
    pub trials: usize,
    /// Beside the kernel.
    pub nrmse: Nrmse,
    /// While curves are compared.
    pub throughput_mbps: Option<f64>,
    /// Over the kernel's.
    pub throughput_ratio: Option<f64>,
    /// Segments sent again within [`SLOW_START_S`].
    pub slow_start_resent: Option<f64>,
    /// Largest window within [`SLOW_START_S`] (segments).
    pub slow_start_peak: Option<f64>,
    /// Until the window reached half a BDP; `None` also if it did not in some trial.
    pub half_bdp_after_ms: Option<f64>,
}

impl Seen {
    fn of(trials: &[Trial], kernel: &[Trial], bins: &Range<usize>) -> Self {
        let throughput = |trials| mean(means(trials, Quantity::Bitrate, bins)?.into_iter());
        let ratio = |own: f64, kernel: f64| (kernel > 0.0).then(|| own / kernel);
        let over_trials = |of: fn(&Trial) -> Option<f64>| {
            mean(trials.iter().map(of).collect::<Option<Vec<_>>>()?.into_iter())
        };
        Self {
            trials: trials.len(),
            nrmse: Nrmse::between(trials, kernel, bins),
            throughput_mbps: throughput(trials),
            throughput_ratio: throughput(trials)
                .zip(throughput(kernel))
                .and_then(|(a, b)| ratio(a, b)),
            slow_start_resent: over_trials(|trial| Some(trial.slow_start_resent)),
            slow_start_peak: over_trials(|trial| Some(trial.slow_start_peak)),
            half_bdp_after_ms: over_trials(|trial| trial.half_bdp_after_ms),
        }
    }
}

/// What was asked for, and what was run for it.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Trials of each platform: with fewer, nothing is said.
    pub trials: usize,
    /// Platforms of which something is claimed if it is at all.
    pub platforms: Vec<Platform>,
    /// Runs of each platform, rejected ones included.
    pub made: Vec<(Platform, Made)>,
    /// Commit of the runs.
    pub commit: String,
}

/// A platform's curve of one quantity over the whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Platform of the curve.
    pub platform: Platform,
    /// Quantity of the curve.
    pub quantity: Quantity,
    /// Bin by bin.
    pub points: Vec<Band>,
}

/// A quantity over the trials, in one bin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// When the bin begins (s).
    pub at_s: f64,
    /// Mean over the trials.
    pub mean: f64,
    /// A tenth of the trials are below.
    pub low: f64,
    /// A tenth are above.
    pub high: f64,
}

/// Everything that is known of one link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fidelity {
    /// The link.
    pub link: Link,
    /// What the two sets of the kernel differ by.
    pub own: Nrmse,
    /// By platform.
    pub platforms: BTreeMap<Platform, Seen>,
    /// What is claimed.
    pub claims: Vec<Judged>,
    /// For the figures.
    #[serde(skip)]
    pub curves: Vec<Curve>,
}

impl Fidelity {
    /// Judges `trials` over `link`. Trials that end before the curves do are left out.
    pub fn of(link: Link, mut trials: BTreeMap<Platform, Vec<Trial>>, asked: &Asked) -> Self {
        let bins = link.bins();
        trials.values_mut().for_each(|all| all.retain(|trial| trial.bins.len() >= bins.end));
        let of = |platform| trials.get(&platform).map_or(&[][..], Vec::as_slice);
        let kernel = of(Platform::Kernel);
        let own = Nrmse::between(of(Platform::KernelAgain), kernel, &bins);
        let seen = |all: &Vec<Trial>| Seen::of(all, kernel, &bins);
        let platforms: BTreeMap<Platform, Seen> =
            trials.iter().map(|(platform, all)| (*platform, seen(all))).collect();
        let claimed = CLAIMED.iter().filter(|(platform, _)| asked.platforms.contains(platform));
        let claims = claimed.flat_map(|(platform, throughput)| {
            Judge {
                link: &link,
                own,
                trials: &trials,
                platforms: &platforms,
                platform: *platform,
                asked,
            }
            .claims(*throughput)
        });
        let claims = claims.collect();
        let curves = trials.iter().flat_map(|(platform, all)| {
            Quantity::ALL.map(|quantity| curve(*platform, quantity, all, link.interval_s))
        });
        Self { own, claims, curves: curves.collect(), platforms, link }
    }
}

struct Judge<'a> {
    link: &'a Link,
    own: Nrmse,
    trials: &'a BTreeMap<Platform, Vec<Trial>>,
    platforms: &'a BTreeMap<Platform, Seen>,
    platform: Platform,
    asked: &'a Asked,
}

impl Judge<'_> {
    /// Judges that the platform deviates from the kernel by no more than a bound: in its curves, which are means over all
    /// trials, and in the throughput and slow start of the trials of one seed.
    fn claims(&self, throughput: f64) -> Vec<Judged> {
        let bins = self.link.bins();
        let [seen, kernel] = [self.platform, Platform::Kernel]
            .map(|platform| self.platforms.get(&platform).cloned().unwrap_or_default());
        let error = |what, quantity| {
            let most = self.own.of(quantity).map(|own| 100.0 * (NRMSE_OWN * own).max(NRMSE_MOST));
            let figure = seen.nrmse.of(quantity).map(|error| 100.0 * error);
            self.judged(self.claim(what).by_one(Bound::at_most(most.unwrap_or(0.0)), figure))
        };
        let pairs = |what, bound, means, of: &dyn Fn(&Trial, &Trial) -> Option<f64>| {
            let claim = self.claim(what).by_values(bound, &self.pairs(of), 1, SEED);
            self.judged(claim).beside_pooled(bound, means)
        };
        let bitrate =
            |trial: &Trial| mean(bins.clone().map(|bin| Quantity::Bitrate.of(&trial.bins[bin])));
        let off = |own: f64, kernel: f64| (kernel > 0.0).then(|| 100.0 * (own / kernel - 1.0));
        let beside = |own: Option<f64>, kernel: Option<f64>| off(own?, kernel?);
        let (times, more) = RESENT;
        let beyond = |own: f64, kernel: f64| own - times * kernel;
        let later = |own: Option<f64>, kernel: f64| own.map_or(NEVER_MS, |own| own - kernel);
        vec![
            error("NRMSE of cwnd (%)", Quantity::Cwnd),
            error("NRMSE of bitrate (%)", Quantity::Bitrate),
            error("NRMSE of RTT (%)", Quantity::Rtt),
            pairs(
                "throughput (%)",
                Bound::within(100.0 * throughput),
                beside(seen.throughput_mbps, kernel.throughput_mbps),
                &|own, kernel| off(bitrate(own)?, bitrate(kernel)?),
            ),
            pairs(
                "slow start: segments sent again beyond twice the kernel's",
                Bound::at_most(more),
                seen.slow_start_resent.zip(kernel.slow_start_resent).map(|(a, b)| beyond(a, b)),
                &|own, kernel| Some(beyond(own.slow_start_resent, kernel.slow_start_resent)),
            ),
            pairs(
                "slow start: largest window (%)",
                Bound::within(100.0 * PEAK),
                beside(seen.slow_start_peak, kernel.slow_start_peak),
                &|own, kernel| off(own.slow_start_peak, kernel.slow_start_peak),
            ),
            pairs(
                "slow start: time to half a BDP (ms)",
                Bound::within(self.link.rtt_ms),
                kernel.half_bdp_after_ms.map(|kernel| later(seen.half_bdp_after_ms, kernel)),
                &|own, kernel| Some(later(own.half_bdp_after_ms, kernel.half_bdp_after_ms?)),
            ),
        ]
    }

    fn of(&self, platform: Platform) -> &[Trial] {
        self.trials.get(&platform).map_or(&[], Vec::as_slice)
    }

    /// A figure of each trial beside that of the kernel with the same seed, where both have one.
    fn pairs(&self, of: &dyn Fn(&Trial, &Trial) -> Option<f64>) -> Vec<f64> {
        let kernel = self.of(Platform::Kernel);
        let pair = |own: &Trial| of(own, kernel.iter().find(|kernel| kernel.seed == own.seed)?);
        self.of(self.platform).iter().filter_map(pair).collect()
    }

    fn claim(&self, what: &str) -> Judged {
        let needed = [Platform::Kernel, Platform::KernelAgain, self.platform];
        let values = needed.map(|platform| self.of(platform).len()).into_iter().min().unwrap_or(0);
        let made = self.asked.made.iter().filter(|(platform, _)| needed.contains(platform));
        let made = made.map(|(_, made)| made.clone()).collect();
        Judged {
            of: "platforms/behaviour".into(),
            claim: format!("deviation from the kernel in {what}"),
            place: format!("{}, {}", self.platform.title(), self.link.name),
            behind: Behind { values, wanted: self.asked.trials.max(1), made },
            commit: self.asked.commit.clone(),
            ..Judged::default()
        }
    }

    /// Of too few trials nothing is said, nor where the kernel differs from itself too much.
    fn judged(&self, claim: Judged) -> Judged {
        let is_alike = |quantity| self.own.of(quantity).is_some_and(|own| own <= OWN_MOST);
        if claim.behind.values < claim.behind.wanted {
            return Judged { verdict: Verdict::NotShown(Why::NotRun), ..claim };
        }
        if !Quantity::ALL.into_iter().all(is_alike) {
            return Judged { verdict: Verdict::NotShown(Why::Unsteady), ..claim };
        }
        claim
    }
}

/// The mean over `trials` in each of `bins`; `None` without trials.
fn means(trials: &[Trial], quantity: Quantity, bins: &Range<usize>) -> Option<Vec<f64>> {
    let at = |bin: usize| mean(trials.iter().map(|trial| quantity.of(&trial.bins[bin])));
    bins.clone().map(at).collect()
}

/// The root mean square of what two curves differ by, over the mean of the second; `None` where that is
/// not above 0.
pub fn nrmse(seen: &[f64], reference: &[f64]) -> Option<f64> {
    let squares = seen.iter().zip(reference).map(|(seen, reference)| (seen - reference).powi(2));
    let level = mean(reference.iter().copied()).filter(|level| *level > 0.0)?;
    Some(mean(squares)?.sqrt() / level)
}

fn curve(platform: Platform, quantity: Quantity, trials: &[Trial], interval_s: f64) -> Curve {
    let bins = trials.iter().map(|trial| trial.bins.len()).min().unwrap_or(0);
    let band = |bin: usize| {
        let values = Sorted::new(trials.iter().map(|trial| quantity.of(&trial.bins[bin])));
        Some(Band {
            at_s: bin as f64 * interval_s,
            mean: values.mean()?,
            low: values.quantile(BAND_TAIL)?,
            high: values.quantile(1.0 - BAND_TAIL)?,
        })
    };
    Curve { platform, quantity, points: (0..bins).filter_map(band).collect() }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn asked(trials: usize) -> Asked {
        Asked {
            trials,
            platforms: vec![Platform::Native, Platform::AgentRound],
            ..Asked::default()
        }
    }

    pub fn link() -> Link {
        let (rtt_ms, interval_s) = (40.0, 0.1);
        Link { name: "40mbit_40ms".into(), rtt_ms, from_s: 1.0, to_s: 14.5, interval_s }
    }

    /// A saw of 100 to 150 segments over 5 s at 40 Mbit/s, all of it `scale` times as large; 12 segments
    /// are sent again in slow start and 30 later.
    fn trial(seed: u64, scale: f64) -> Trial {
        let bin = |index: usize| Bin {
            at_s: index as f64 / 10.0,
            cwnd_segments: scale * (100.0 + (index % 50) as f64),
            srtt_ms: scale * 60.0,
            throughput_mbps: scale * 38.0,
            retransmissions: match index {
                4 | 19 => scale * 6.0,
                20 => 30.0,
                _ => 0.0,
            },
        };
        let windows = [(0.0, 10.0), (0.4, scale * 200.0), (1.99, 20.0), (2.0, 900.0)];
        let over_time = OverTime { bins: (0..150).map(bin).collect() };
        Trial::new(seed, &over_time, &windows, Some(100.0 * scale), 1)
    }

    /// Two trials of each platform around its scale.
    pub fn judged(scales: &[(Platform, f64)]) -> Fidelity {
        let both = |scale: f64| vec![trial(1, scale * 0.9), trial(2, scale * 1.1)];
        let trials = scales.iter().map(|(it, scale)| (*it, both(*scale))).collect();
        Fidelity::of(link(), trials, &asked(2))
    }

    fn verdicts(fidelity: &Fidelity, platform: Platform) -> Vec<Verdict> {
        let claims = fidelity.claims.iter().filter(|it| it.place.starts_with(platform.title()));
        claims.map(|claim| claim.verdict).collect()
    }

    use Platform::{AgentRound, Kernel, KernelAgain, Native, Simulator};
    use Verdict::{Failed as Fail, Met as Pass};

    const INVALID: Verdict = Verdict::NotShown(Why::Unsteady);
    const NOT_RUN: Verdict = Verdict::NotShown(Why::NotRun);

    #[test]
    fn the_error_of_a_curve_is_relative_to_the_mean_of_the_reference() {
        assert_eq!(nrmse(&[3.0, 1.0], &[2.0, 2.0]), Some(0.5));
        assert_eq!(nrmse(&[2.0, 6.0], &[2.0, 2.0]), Some(8_f64.sqrt() / 2.0));
        assert_eq!(nrmse(&[1.0], &[0.0]), None);
        assert_eq!(nrmse(&[], &[]), None);
    }

    #[test]
    fn curves_are_means_over_trials_and_only_within_their_time() {
        // Trials are 0.9 and 1.1 times their platform's: their means are it.
        let fidelity = judged(&[(Kernel, 1.0), (KernelAgain, 1.02), (Simulator, 1.2)]);
        // A constant is off by the scale, a saw by more: sqrt(mean of squares) / mean.
        let near = |value: Option<f64>, expected: f64| (value.unwrap() - expected).abs() < 1e-9;
        assert!(near(fidelity.own.rtt, 0.02) && near(fidelity.own.bitrate, 0.02));
        let saw: Vec<f64> = (10..145).map(|bin| 100.0 + f64::from(bin % 50)).collect();
        let square = saw.iter().map(|it| it * it).sum::<f64>() / 135.0;
        let level = saw.iter().sum::<f64>() / 135.0;
        assert!(near(fidelity.own.cwnd, 0.02 * square.sqrt() / level));
        let simulator = &fidelity.platforms[&Simulator];
        assert!(near(simulator.throughput_mbps, 38.0 * 1.2));
        assert!(near(simulator.throughput_ratio, 1.2));
        assert!(near(simulator.slow_start_resent, 14.4), "of the first 2 s only");
        assert!(near(simulator.slow_start_peak, 240.0));
        assert!(near(simulator.half_bdp_after_ms, 120.0));
        assert!(verdicts(&fidelity, Simulator).is_empty());
        let curve = &fidelity.curves[0];
        assert_eq!(
            (curve.platform, curve.quantity, curve.points.len()),
            (Kernel, Quantity::Cwnd, 150)
        );
        let first = curve.points[0];
        assert!((first.mean - 100.0).abs() < 1e-9 && first.low > 90.0 && first.high < 110.0);
    }

    #[test]
    fn each_claim_has_its_own_bound() {
        let fidelity =
            judged(&[(Kernel, 1.0), (KernelAgain, 1.0), (Native, 1.015), (AgentRound, 1.015)]);
        assert_eq!(verdicts(&fidelity, Native), [Pass, Pass, Pass, Fail, Pass, Pass, Pass]);
        assert_eq!(verdicts(&fidelity, AgentRound), [Pass; 7]);
        let throughput = &fidelity.claims[3];
        assert!((throughput.figure.unwrap() - 1.5).abs() < 1e-9);
        let bounds = fidelity.claims[3..7].iter().map(|claim| claim.bound.as_str());
        let expected = ["≥ -1, ≤ 1", "≤ 20", "≥ -25, ≤ 25", "≥ -40, ≤ 40"];
        assert_eq!(bounds.collect::<Vec<_>>(), expected);
        let far = judged(&[(Kernel, 1.0), (KernelAgain, 1.0), (AgentRound, 1.26)]);
        let expected = [Fail, Fail, Fail, Fail, Pass, Fail, Pass];
        assert_eq!(verdicts(&far, AgentRound), expected);
        let below = judged(&[(Kernel, 1.0), (KernelAgain, 1.0), (AgentRound, 0.5)]);
        let expected = [Fail, Fail, Fail, Fail, Pass, Fail, Fail];
        assert_eq!(verdicts(&below, AgentRound), expected);
    }

    #[test]
    fn an_error_may_be_twice_the_kernel_s_own() {
        let own = |again| judged(&[(Kernel, 1.0), (KernelAgain, again), (AgentRound, 1.09)]);
        assert_eq!(verdicts(&own(1.02), AgentRound)[2], Fail);
        assert_eq!(verdicts(&own(1.05), AgentRound)[2], Pass);
        assert!(own(1.05).claims.iter().any(|claim| claim.bound == "≤ 10"));
    }

    #[test]
    fn nothing_counts_where_the_kernel_differs_from_itself() {
        let fidelity =
            judged(&[(Kernel, 1.0), (KernelAgain, 1.07), (Native, 1.0), (AgentRound, 2.0)]);
        assert_eq!(verdicts(&fidelity, Native), [INVALID; 7]);
        assert_eq!(verdicts(&fidelity, AgentRound), [INVALID; 7]);
    }

    #[test]
    fn without_both_sets_of_the_kernel_or_the_platform_a_claim_was_not_run() {
        let fidelity = judged(&[(Kernel, 1.0), (Native, 1.0)]);
        assert_eq!(verdicts(&fidelity, Native), [NOT_RUN; 7]);
        let scales = [(Kernel, 1.0), (KernelAgain, 1.0), (Native, 1.0)];
        let fidelity = judged(&scales);
        assert_eq!(verdicts(&fidelity, Native), [Pass; 7]);
        assert!(fidelity.claims.iter().take(7).all(|claim| claim.behind.values == 2));
        // As many in every set as were asked for.
        let mut trials: BTreeMap<Platform, Vec<Trial>> =
            scales.map(|(it, scale)| (it, vec![trial(1, scale), trial(2, scale)])).into();
        trials.get_mut(&KernelAgain).unwrap().pop();
        let fidelity = Fidelity::of(link(), trials, &asked(2));
        let first = &fidelity.claims[0];
        assert_eq!((first.verdict, first.behind.values), (NOT_RUN, 1));
        assert_eq!(verdicts(&fidelity, AgentRound), [NOT_RUN; 7]);
        let short = Trial { bins: trial(1, 1.0).bins[..144].to_vec(), ..trial(1, 1.0) };
        let trials = [Kernel, KernelAgain, Native].map(|it| (it, vec![short.clone()]));
        let fidelity = Fidelity::of(link(), trials.into(), &asked(1));
        assert_eq!(verdicts(&fidelity, Native), [NOT_RUN; 7]);
        assert_eq!(fidelity.platforms[&Native].trials, 0);
    }

    #[test]
    fn a_window_that_never_reaches_half_a_bdp_fails() {
        let stuck = |seed| Trial { half_bdp_after_ms: None, ..trial(seed, 1.0) };
        let verdict = |native: [Trial; 2]| {
            let kernel = || vec![trial(1, 1.0), trial(2, 1.0)];
            let trials = [(Kernel, kernel()), (KernelAgain, kernel()), (Native, native.into())];
            let found = verdicts(&Fidelity::of(link(), trials.into(), &asked(2)), Native);
            assert_eq!(found[..6], [Pass; 6]);
            found[6]
        };
        assert_eq!(verdict([stuck(1), stuck(2)]), Fail);
        assert_eq!(verdict([trial(1, 1.0), stuck(2)]), Verdict::Open);
    }

    #[test]
    fn trials_of_one_seed_are_compared() {
        // Seeds differ by more than the bound, platforms do not.
        let all = |seeds: [u64; 2]| seeds.map(|seed| trial(seed, seed as f64)).to_vec();
        let trials = [(Kernel, all([1, 2])), (KernelAgain, all([1, 2])), (Native, all([2, 1]))];
        let fidelity = Fidelity::of(link(), trials.into(), &asked(2));
        assert_eq!(verdicts(&fidelity, Native), [Pass; 7]);
        assert_eq!(fidelity.claims[3].interval.unwrap().high, 0.0);
    }
}
