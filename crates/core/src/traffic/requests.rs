//! Schedules of requests: when, how large, on which connection.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use sha2::{Digest, Sha256};

use super::cdf::SizeCdf;
use crate::random::{Stream, Streams};
use crate::spec::SpecError;
use crate::units::{ByteCount, Duration, Rate, format_duration, seconds};

/// Requests above this size are placed evenly instead of at random: a handful of large requests
/// carries half of the bytes of heavy-tailed distributions, and chance would decide the load.
pub const LARGE: ByteCount = ByteCount::new(1_000_000);

/// The share of the run, from its start, over which large requests are spread, so that the last one
/// can still finish.
pub const LARGE_SHARE: f64 = 0.85;

/// Most requests in a schedule: 100 MB of memory.
pub const MAX_REQUESTS: u64 = 1 << 22;

/// How far the offered load of a stratified schedule may be from the nominal one.
const LOAD_TOLERANCE: f64 = 0.01;

/// One scheduled request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Scheduled arrival, since the start of the run.
    pub at: Duration,
    /// Bytes of the answer.
    pub size: ByteCount,
    /// The connection that it is sent on.
    pub connection: u32,
}

/// The connections that requests are made over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Connections {
    /// This many persistent connections, at least one.
    Persistent(u32),
    /// One for each request.
    Each,
}

/// How sizes and arrivals are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    /// The sizes are the midpoints of equal-probability strata and their number is fixed, so every
    /// seed offers the nominal load within 1 %. Requests up to [`LARGE`] arrive as a Poisson
    /// process conditioned on their number, in random order; larger ones evenly.
    #[default]
    Stratified,
    /// Independent sizes at the arrivals of a Poisson process: the load varies with the seed.
    Iid,
}

/// Input of the draw of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestPlan {
    /// Sizes of the answers.
    pub sizes: SizeCdf,
    /// Offered load in payload bytes.
    pub load: Rate,
    /// Number of connections, each equally likely for each request.
    pub connections: u32,
    /// Time before `duration` in which requests arrive too, drawn for themselves by the same rule,
    /// so that the requests counted after it offer the nominal load.
    pub warm_up: Duration,
    /// Time of the arrivals that count.
    pub duration: Duration,
    /// How arrivals and sizes are drawn.
    pub sampling: Sampling,
}

/// Requests in order of time: open loop, no arrival waits for an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    requests: Vec<Request>,
}

impl Schedule {
    /// Draws the schedule of a plan. The error names the values that the plan would need.
    pub fn draw(plan: &RequestPlan, streams: &Streams) -> Result<Self, SpecError> {
        if plan.connections == 0 {
            return Err(SpecError::new("connections", "0", "at least 1"));
        }
        let mut requests = Vec::new();
        for (name, start, duration) in
            [("warm_up", Duration::ZERO, plan.warm_up), ("run", plan.warm_up, plan.duration)]
        {
            if !duration.is_zero() {
                part(plan, start, duration, &streams.part(name), &mut requests)?;
            }
        }
        requests.sort_by_key(|request| request.at);
        let mut connections = streams.stream("connections");
        for request in &mut requests {
            request.connection = connections.below(u64::from(plan.connections)) as u32;
        }
        Ok(Self { requests })
    }

    /// The requests, in order of time.
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Payload bytes of the requests that arrive from `from` on.
    pub fn bytes_from(&self, from: Duration) -> ByteCount {
        self.requests.iter().filter(|request| request.at >= from).map(|request| request.size).sum()
    }

    /// Tells schedules apart: the first 64 bits of the SHA-256 of all requests, in hexadecimal.
    pub fn hash(&self) -> String {
        let mut hasher = Sha256::new();
        for request in &self.requests {
            hasher.update((request.at.as_nanos() as u64).to_le_bytes());
            hasher.update(request.size.as_u64().to_le_bytes());
            hasher.update(request.connection.to_le_bytes());
        }
        let digest = hasher.finalize();
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Appends the requests of one part of the run, connections not yet chosen.
fn part(
    plan: &RequestPlan,
    start: Duration,
    duration: Duration,
    streams: &Streams,
    requests: &mut Vec<Request>,
) -> Result<(), SpecError> {
    let target = plan.load.bytes_in(duration).as_f64();
    let expected = target / plan.sizes.mean_bytes();
    if expected > MAX_REQUESTS as f64 / 2.0 {
        let allowed = format!("at most {} requests in the run", MAX_REQUESTS / 2);
        return Err(SpecError::new("load", &format!("{}", plan.load), &allowed));
    }
    let mut push = |at: Duration, size| {
        requests.push(Request { at: start + at, size, connection: 0 });
    };
    match plan.sampling {
        Sampling::Stratified => {
            let mut sizes = stratified_sizes(plan, duration, target)?;
            let large = sizes.split_off(sizes.partition_point(|size| *size <= LARGE));
            streams.stream("sizes").shuffle(&mut sizes);
            let mut arrivals = streams.stream("arrivals");
            for size in sizes {
                push(duration.mul_f64(arrivals.unit()), size);
            }
            for (at, size) in spread(large, duration, &mut streams.stream("large")) {
                push(at, size);
            }
        }
        Sampling::Iid if expected > 0.0 => {
            let mean_gap = duration.as_secs_f64() / expected;
            let [mut arrivals, mut sizes] = ["arrivals", "sizes"].map(|name| streams.stream(name));
            let mut at = mean_gap * arrivals.exponential();
            while at < duration.as_secs_f64() {
                push(seconds(at), plan.sizes.quantile(sizes.unit()));
                at += mean_gap * arrivals.exponential();
            }
        }
        Sampling::Iid => {}
    }
    Ok(())
}

/// The midpoints of strata, with the number of strata that brings the sum of the sizes closest to
/// `target` bytes, in ascending order.
fn stratified_sizes(
    plan: &RequestPlan,
    duration: Duration,
    target: f64,
) -> Result<Vec<ByteCount>, SpecError> {
    let sum = |n: u64| plan.sizes.midpoints(n).sum::<ByteCount>().as_f64();
    // With few strata the midpoint of the last one falls short of its mean, so the number is
    // searched for rather than taken from the mean size.
    let mut high = ((target / plan.sizes.mean_bytes()) as u64).max(1);
    while sum(high) < target && high < MAX_REQUESTS {
        high *= 2;
    }
    let mut low = 0;
    while low + 1 < high {
        let middle = low.midpoint(high);
        if sum(middle) < target { low = middle } else { high = middle }
    }
    let error = |n: u64| (sum(n) - target).abs();
    let n = if error(low) < error(high) { low } else { high };
    if error(n) > LOAD_TOLERANCE * target {
        let value = format!("{} for {}", plan.load, format_duration(duration));
        let allowed = format!(
            "a load and a run long enough to offer it within 1 % (mean size {:.0} bytes)",
            plan.sizes.mean_bytes()
        );
        return Err(SpecError::new("load", &value, &allowed));
    }
    Ok(plan.sizes.midpoints(n).collect())
}

/// Places `sizes` at equal distances over the first [`LARGE_SHARE`] of `duration`, with a random
/// phase. Which size takes which place follows the van der Corput sequence over their ranks,
/// turned by a random amount: the largest lie far apart, so their bytes are spread evenly too.
fn spread(
    sizes: Vec<ByteCount>,
    duration: Duration,
    stream: &mut Stream,
) -> impl Iterator<Item = (Duration, ByteCount)> {
    let count = sizes.len();
    // `sizes` ascend, so the rank from the top is the distance from the end.
    let mut ranks: Vec<u32> = (0..count as u32).collect();
    ranks.sort_by_key(|rank| rank.reverse_bits());
    let turn = stream.below(count as u64) as usize;
    ranks.rotate_left(turn);
    let phase = stream.unit();
    ranks.into_iter().enumerate().map(move |(place, rank)| {
        let share = (place as f64 + phase) / count as f64;
        let at = duration.mul_f64(LARGE_SHARE * share);
        (at, sizes[count - 1 - rank as usize])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(cdf: &str, load_mbit: u64, secs: u64) -> RequestPlan {
        RequestPlan {
            sizes: SizeCdf::builtin(cdf).unwrap(),
            load: Rate::from_mbit_per_sec(load_mbit),
            connections: 200,
            warm_up: Duration::from_secs(5),
            duration: Duration::from_secs(secs),
            sampling: Sampling::Stratified,
        }
    }

    fn draw(plan: &RequestPlan, seed: u64) -> Schedule {
        Schedule::draw(plan, &Streams::new(seed)).unwrap()
    }

    #[test]
    fn every_seed_offers_nominal_load_within_one_percent() {
        for cdf in ["caida", "mixed"] {
            for (load_mbit, secs) in [(84, 60), (84, 5), (42, 30), (12, 30), (6, 10), (900, 10)] {
                let plan = plan(cdf, load_mbit, secs);
                for seed in 0..8 {
                    let schedule = draw(&plan, seed);
                    let all = schedule.bytes_from(Duration::ZERO).as_f64();
                    let counted = schedule.bytes_from(plan.warm_up).as_f64();
                    for (bytes, secs) in [(counted, secs), (all - counted, 5)] {
                        let share = bytes * 8.0 / (load_mbit * 1_000_000 * secs) as f64;
                        assert!((share - 1.0).abs() <= 0.01, "{cdf} {load_mbit} {secs} {share}");
                    }
                }
            }
        }
    }

    #[test]
    fn main_workload_keeps_the_shape_of_its_distribution() {
        let schedule = draw(&plan("caida", 84, 60), 1);
        let sizes: Vec<u64> = schedule
            .requests()
            .iter()
            .filter(|request| request.at >= Duration::from_secs(5))
            .map(|request| request.size.as_u64())
            .collect();
        let share = |limit| {
            let below = sizes.iter().filter(|size| **size <= limit).count();
            below as f64 / sizes.len() as f64
        };
        assert!((29_900..30_100).contains(&sizes.len()), "{}", sizes.len());
        for (limit, probability) in [(10_000, 0.976), (100_000, 0.995), (1_000_000, 0.999)] {
            assert!((share(limit) - probability).abs() < 1e-4);
        }
        assert_eq!(sizes.iter().filter(|size| **size > 5_000_000).count(), 6);
    }

    #[test]
    fn seeds_change_order_and_times_but_not_sizes() {
        let plan = plan("caida", 84, 60);
        let sorted = |seed| {
            let mut sizes: Vec<_> =
                draw(&plan, seed).requests().iter().map(|request| request.size).collect();
            sizes.sort_unstable();
            sizes
        };
        assert_eq!(sorted(1), sorted(2));
        assert_eq!(draw(&plan, 1).hash(), draw(&plan, 1).hash());
        assert_ne!(draw(&plan, 1).hash(), draw(&plan, 2).hash());
    }

    #[test]
    fn large_requests_are_spread_over_first_85_percent() {
        let plan = plan("caida", 84, 60);
        for seed in 0..50 {
            let schedule = draw(&plan, seed);
            let large: Vec<Request> = schedule
                .requests()
                .iter()
                .copied()
                .filter(|request| request.at >= plan.warm_up && request.size > LARGE)
                .collect();
            let end = plan.warm_up + plan.duration.mul_f64(LARGE_SHARE);
            assert!(large.iter().all(|request| request.at < end));
            let gap = plan.duration.mul_f64(LARGE_SHARE / large.len() as f64);
            for pair in large.windows(2) {
                assert!((pair[1].at - pair[0].at).abs_diff(gap) < Duration::from_micros(1));
            }
            // The six of 5 to 100 MB, half of all bytes: the first 6 ranks of the sequence lie at
            // least an eighth of 30 places apart, rounded down 3 places of 1.7 s.
            let giants: Vec<Duration> = large
                .iter()
                .filter(|request| request.size > ByteCount::new(5_000_000))
                .map(|request| request.at)
                .collect();
            assert_eq!(giants.len(), 6);
            let apart = gap * 3 - Duration::from_micros(1);
            assert!(giants.windows(2).all(|pair| pair[1] - pair[0] >= apart));
        }
    }

    #[test]
    fn arrivals_are_poisson() {
        // The number in a bin of a Poisson process has variance = mean.
        for sampling in [Sampling::Stratified, Sampling::Iid] {
            let plan = RequestPlan { sampling, ..plan("caida", 84, 60) };
            let mut bins = [0_f64; 600];
            for request in draw(&plan, 3).requests() {
                if let Some(at) = request.at.checked_sub(plan.warm_up) {
                    bins[(at.as_secs_f64() * 10.0) as usize] += 1.0;
                }
            }
            let mean = bins.iter().sum::<f64>() / 600.0;
            let variance = bins.iter().map(|n| (n - mean) * (n - mean)).sum::<f64>() / 599.0;
            assert!((49.0..51.0).contains(&mean), "{mean}");
            // Five standard errors of a variance over 600 bins: 5 sqrt(2 / 600) = 0.29.
            assert!((0.71..1.29).contains(&(variance / mean)), "{}", variance / mean);
        }
    }

    #[test]
    fn connections_are_chosen_uniformly() {
        let schedule = draw(&plan("caida", 84, 60), 4);
        let mut counts = [0_f64; 200];
        for request in schedule.requests() {
            counts[request.connection as usize] += 1.0;
        }
        let expected = schedule.requests().len() as f64 / 200.0;
        let chi_squared: f64 = counts.iter().map(|n| (n - expected).powi(2) / expected).sum();
        // 199 degrees of freedom: mean 199, standard deviation 20.
        assert!((99.0..299.0).contains(&chi_squared), "{chi_squared}");
    }

    #[test]
    fn independent_sampling_varies_with_the_seed() {
        let plan = RequestPlan { sampling: Sampling::Iid, ..plan("mixed", 84, 60) };
        let load = |seed| draw(&plan, seed).bytes_from(plan.warm_up).as_f64() * 8.0 / 60.0 / 84e6;
        let loads: Vec<f64> = (0..20).map(load).collect();
        assert!(loads.iter().any(|load| (load - 1.0).abs() > 0.01));
        assert!((loads.iter().sum::<f64>() / 20.0 - 1.0).abs() < 0.05);
    }

    #[test]
    fn impossible_plans_are_refused() {
        let key = |plan: RequestPlan| Schedule::draw(&plan, &Streams::new(1)).unwrap_err().key;
        assert_eq!(key(RequestPlan { connections: 0, ..plan("caida", 84, 60) }), "connections");
        let warm_up = Duration::ZERO;
        assert_eq!(key(RequestPlan { warm_up, ..plan("mixed", 1, 1) }), "load");
        assert_eq!(key(plan("mixed", 10_000_000, 60)), "load");
    }

    #[test]
    fn no_load_is_an_empty_schedule() {
        for sampling in [Sampling::Stratified, Sampling::Iid] {
            let plan = RequestPlan { load: Rate::ZERO, sampling, ..plan("mixed", 1, 1) };
            assert!(draw(&plan, 1).requests().is_empty());
        }
    }
}
