//! Link traces from a rate: opportunities at equal distances, or at the arrivals of a Poisson
//! process.
//!
//! ```text
//! constant : the n-th opportunity at n x 1500 bytes / rate, rounded up to a millisecond, as long
//!            as it does not exceed the duration
//! Poisson  : exponential distances of mean 1500 bytes / rate, rounded down to a millisecond; the
//!            first opportunity at the duration or after it is the last
//! ```
//! A constant trace is never ahead of its rate, and behind it by less than 1 ms per period. The number of
//! opportunities of a Poisson trace varies by its square root. Its rate has no bias, since the last distance
//! counts whole.
//!
//! Source: the Poisson traces of Pantheon's calibrated emulators, which ccperf replays
//! (`0.57mbps-poisson.trace` and similar). Their last times are 60,005 to 60,027 ms, just past a duration of
//! 60 s. Their first second holds ten opportunities at equal distances, here [`PoissonTrace::cold_start`].
//! Their rates are 2 to 8 % below their names; generated traces do not repeat that.

use super::trace::{OPPORTUNITY_IP, Trace};
use crate::random::Streams;
use crate::spec::SpecError;
use crate::traffic::Source;
use crate::units::{Duration, Rate, format_duration};

/// Most opportunities of a generated trace: one minute at 10 Gbit/s, about 300 MB of text.
pub const OPPORTUNITIES_MAX: u64 = 50_000_000;
/// Distance of the opportunities of a cold start, 100 ms: ten in the first second of Pantheon's traces.
const COLD_START_EVERY: Duration = Duration::from_millis(100);
/// Longest duration, 40 days. The last time that a trace can name is 2^32 - 1 ms, and Poisson traces end a
/// little after their duration.
const DURATION_MAX: Duration = Duration::from_secs(40 * 86_400);

/// Parameters of a Poisson trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoissonTrace {
    /// Mean rate in bytes of IP packets, 1500 per opportunity, above 0.
    pub rate: Rate,
    /// Shortest period, 1 ms to 40 days.
    pub duration: Duration,
    /// Time from the beginning during which opportunities come every 100 ms instead; at most `duration`.
    pub cold_start: Duration,
}

impl Trace {
    /// A trace of equal distances at `rate`, in bytes of IP packets, 1500 per opportunity. The period is at
    /// most `duration`, 1 ms to 40 days. Refuses a duration with no opportunity or more than
    /// [`OPPORTUNITIES_MAX`].
    pub fn constant(rate: Rate, duration: Duration) -> Result<Self, SpecError> {
        check(rate, duration)?;
        let source = Source::Cbr { rate, packet: OPPORTUNITY_IP };
        // A constant rate draws nothing from the stream.
        let times = source.send_times(&Streams::new(0)).into_iter().flatten();
        // The first packet is sent at time 0; its opportunity ends one packet later.
        let times = times.skip(1).take_while(|at| *at <= duration);
        Self::from_times(times.map(|at| at.as_nanos().div_ceil(1_000_000) as u32))
            .ok_or_else(|| too_short(rate, duration))
    }

    /// A trace of Poisson arrivals, drawn from the stream `trace` of `streams`; equal `streams` give equal
    /// traces. Refuses the same values as [`Trace::constant`], and a cold start longer than the duration.
    pub fn poisson(plan: &PoissonTrace, streams: &Streams) -> Result<Self, SpecError> {
        let PoissonTrace { rate, duration, cold_start } = *plan;
        check(rate, duration)?;
        if cold_start > duration {
            let allowed = alloc::format!("at most the duration, {}", format_duration(duration));
            return Err(SpecError::new("cold_start", &format_duration(cold_start), &allowed));
        }
        let cold = (1_u32..).map(|n| COLD_START_EVERY * n).take_while(|at| *at <= cold_start);
        let source = Source::Poisson { rate, packet: OPPORTUNITY_IP };
        let arrivals = source.send_times(&streams.part("trace")).into_iter().flatten();
        let arrivals = arrivals.map(|at| cold_start.saturating_add(at));
        let mut is_over = false;
        let times = cold.chain(arrivals).map(|at| at.as_millis()).take_while(|at| {
            // The first time at the end still belongs to the trace.
            let goes_on = !is_over;
            is_over = *at >= duration.as_millis();
            goes_on
        });
        let last = u128::from(u32::MAX);
        Self::from_times(times.map(|at| at.min(last) as u32))
            .ok_or_else(|| too_short(rate, duration))
    }
}

fn check(rate: Rate, duration: Duration) -> Result<(), SpecError> {
    if !(Duration::from_millis(1)..=DURATION_MAX).contains(&duration) {
        let allowed = alloc::format!("1ms to {}", format_duration(DURATION_MAX));
        return Err(SpecError::new("duration", &format_duration(duration), &allowed));
    }
    let opportunities = rate.bytes_in(duration).as_u64() / OPPORTUNITY_IP.as_u64();
    if opportunities == 0 {
        return Err(too_short(rate, duration));
    }
    if opportunities > OPPORTUNITIES_MAX {
        let most = (OPPORTUNITY_IP * OPPORTUNITIES_MAX).per(duration).unwrap_or(Rate::ZERO);
        let allowed = alloc::format!(
            "at most {most}, {OPPORTUNITIES_MAX} packets of 1500 bytes in {}",
            format_duration(duration)
        );
        return Err(SpecError::new("rate", &alloc::format!("{rate}"), &allowed));
    }
    Ok(())
}

fn too_short(rate: Rate, duration: Duration) -> SpecError {
    let allowed =
        alloc::format!("at least a packet of 1500 bytes in {}", format_duration(duration));
    SpecError::new("rate", &alloc::format!("{rate}"), &allowed)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    use super::super::{OPPORTUNITY, Server, Service};
    use super::*;
    use crate::units::Timestamp;

    const MINUTE: Duration = Duration::from_secs(60);

    fn constant(rate: &str, duration: Duration) -> Trace {
        Trace::constant(rate.parse().unwrap(), duration).unwrap()
    }

    fn poisson(rate: &str, seed: u64) -> Trace {
        let rate = rate.parse().unwrap();
        let plan = PoissonTrace { rate, duration: MINUTE, cold_start: Duration::ZERO };
        Trace::poisson(&plan, &Streams::new(seed)).unwrap()
    }

    #[test]
    fn constant_traces_are_the_well_known_ones() {
        let millis = Duration::from_millis;
        assert_eq!(constant("12Mbit/s", millis(3)).to_string(), "1\n2\n3\n");
        assert_eq!(constant("24Mbit/s", millis(2)).to_string(), "1\n1\n2\n2\n");
        assert_eq!(constant("8Mbit/s", millis(5)).to_string(), "2\n3\n5\n");
        // The 100.42 Mbit/s of Pantheon's path from India: 502,100 in a minute.
        assert_eq!(constant("100.42Mbit/s", MINUTE).opportunities(), 502_100);
    }

    #[test]
    fn constant_trace_lags_less_than_a_millisecond() {
        for rate in ["300kbit/s", "1Mbit/s", "2.64Mbit/s", "48Mbit/s", "77.72Mbit/s", "1Gbit/s"] {
            for millis in [60_000, 7_777, 1000] {
                let trace = constant(rate, Duration::from_millis(millis));
                assert!(trace.period() <= Duration::from_millis(millis));
                let found = trace.mean_rate().as_mbit_per_sec_f64();
                let wanted: Rate = rate.parse().unwrap();
                let behind = 1.0 - found / wanted.as_mbit_per_sec_f64();
                let bound = 0.001 / trace.period().as_secs_f64();
                assert!((0.0..bound + 1e-5).contains(&behind), "{behind} of {rate}");
            }
        }
    }

    #[test]
    fn poisson_traces_have_the_requested_mean_rate() {
        for rate in ["0.57Mbit/s", "2.64Mbit/s", "3.04Mbit/s", "100Mbit/s"] {
            let rates = (0..16).map(|seed| poisson(rate, seed).mean_rate().as_mbit_per_sec_f64());
            let rates: Vec<f64> = rates.collect();
            let expected: Rate = rate.parse().unwrap();
            let expected = expected.as_mbit_per_sec_f64();
            let packets = expected * 5000.0;
            let error = 1.0 / libm::sqrt(packets);
            let mean = rates.iter().sum::<f64>() / 16.0 / expected;
            // Five standard errors, of one trace and of the mean of 16.
            assert!(rates.iter().all(|rate| (rate / expected - 1.0).abs() < 5.0 * error));
            assert!((mean - 1.0).abs() < 5.0 * error / 4.0, "{mean}");
        }
    }

    #[test]
    fn poisson_trace_ends_past_duration_with_scattered_counts() {
        let trace = poisson("3.04Mbit/s", 1);
        assert!((MINUTE..MINUTE + Duration::from_millis(100)).contains(&trace.period()));
        let text = trace.to_string();
        let mut counts = [0.0_f64; 600];
        for line in text.lines() {
            let at: usize = line.parse().unwrap();
            if let Some(count) = counts.get_mut(at / 100) {
                *count += 1.0;
            }
        }
        let mean = counts.iter().sum::<f64>() / 600.0;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / 599.0;
        // A Poisson number has the variance of its mean; 5 standard errors of 600 are 29 %.
        assert!((0.71..1.29).contains(&(variance / mean)), "{}", variance / mean);
    }

    #[test]
    fn one_second_cold_start_has_ten_spaced_opportunities() {
        let cold_start = Duration::from_secs(1);
        let rate = "2.64Mbit/s".parse().unwrap();
        let plan = PoissonTrace { rate, duration: MINUTE, cold_start };
        let text = Trace::poisson(&plan, &Streams::new(1)).unwrap().to_string();
        let times: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
        let cold: Vec<u64> = (1..=10).map(|n| n * 100).collect();
        assert_eq!(times[..10], cold);
        // 220 packets a second from then on, within 5 standard errors.
        assert!((12_400..13_600).contains(&times.len()), "{}", times.len());
    }

    #[test]
    fn bundled_poisson_traces_are_generated_with_published_rates() {
        let made =
            [("0.5643Mbit/s", 22, 0.557), ("2.4746Mbit/s", 3, 2.435), ("2.862Mbit/s", 21, 2.817)];
        for ((name, text), (rate, seed, published)) in Trace::BUILTIN.into_iter().zip(made) {
            let rate = rate.parse().unwrap();
            let plan = PoissonTrace { rate, duration: MINUTE, cold_start: Duration::from_secs(1) };
            let trace = Trace::poisson(&plan, &Streams::new(seed)).unwrap();
            assert_eq!(Trace::parse(name, text).as_ref(), Ok(&trace), "{name}");
            let found = trace.mean_rate().as_mbit_per_sec_f64();
            assert!((found / published - 1.0).abs() < 0.001, "{name}: {found}");
        }
    }

    #[test]
    fn same_seed_gives_identical_readable_bytes() {
        let trace = poisson("2.64Mbit/s", 1);
        let text = trace.to_string();
        assert_eq!(text, poisson("2.64Mbit/s", 1).to_string());
        assert_ne!(text, poisson("2.64Mbit/s", 2).to_string());
        assert_eq!(Trace::parse("generated", &text), Ok(trace));
        let trace = constant("77.72Mbit/s", MINUTE);
        assert_eq!(Trace::parse("generated", &trace.to_string()), Ok(trace));
    }

    #[test]
    fn busy_link_carries_the_rate_of_its_trace() {
        for (trace, rate) in
            [(constant("5Mbit/s", MINUTE), "5Mbit/s"), (poisson("5Mbit/s", 3), "5Mbit/s")]
        {
            let (period, opportunities) = (trace.period(), trace.opportunities());
            let start = Timestamp::ZERO;
            let mut server = Server::new(Service::Trace(Arc::new(trace)), start);
            let mut send = || {
                let at = server.ready_at(start).unwrap();
                server.send(at, OPPORTUNITY)
            };
            let end = start + period * 3;
            let packets = core::iter::repeat_with(&mut send).take_while(|at| *at <= end).count();
            assert_eq!(packets as u64, 3 * opportunities);
            let carried = Rate::from_bits_per_sec(
                packets as u64 * 1500 * 8 * 1000 / (period * 3).as_millis() as u64,
            );
            let expected: Rate = rate.parse().unwrap();
            let ratio = carried.as_mbit_per_sec_f64() / expected.as_mbit_per_sec_f64();
            // 25,000 arrivals of a Poisson process: five standard errors.
            assert!((ratio - 1.0).abs() < 0.032, "{ratio}");
        }
    }

    #[test]
    fn what_gives_no_trace_is_refused_by_name() {
        let refused = |rate: &str, duration, cold_start| {
            let plan = PoissonTrace { rate: rate.parse().unwrap(), duration, cold_start };
            let error = Trace::poisson(&plan, &Streams::new(1)).unwrap_err();
            if cold_start.is_zero() {
                assert_eq!(Trace::constant(plan.rate, duration), Err(error.clone()));
            }
            error
        };
        let zero = Duration::ZERO;
        assert_eq!(refused("1kbit/s", Duration::from_secs(1), zero).key, "rate");
        assert_eq!(refused("0bit/s", MINUTE, zero).key, "rate");
        assert_eq!(refused("12Mbit/s", zero, zero).key, "duration");
        assert_eq!(refused("12Mbit/s", DURATION_MAX * 2, zero).key, "duration");
        assert_eq!(refused("12Mbit/s", MINUTE, MINUTE * 2).key, "cold_start");
        assert_eq!(
            refused("100Gbit/s", MINUTE, zero).to_string(),
            "rate = 100Gbit/s: allowed is at most 10Gbit/s, 50000000 packets of 1500 bytes in 60s"
        );
    }
}
