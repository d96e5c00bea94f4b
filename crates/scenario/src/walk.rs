//! Random walks of a link's properties, worked out before the run.

use forebay_core::random::Stream;
use forebay_core::spec::SpecError;
use forebay_core::units::{Duration, Rate, Ratio, seconds};
use serde::{Deserialize, Serialize};

use crate::link::Change;

/// A random walk of a property x of a link:
///
/// ```text
/// d ← correlation · d + N(0, deviation²),   x ← min(max(x + d, min), max)      every interval
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Walk {
    /// The property that walks.
    pub property: Property,
    /// Time between steps, above zero.
    pub interval: Duration,
    /// Correlation of steps, -1 to 1.
    pub correlation: f64,
    /// Standard deviation of the noise, in the unit of the property.
    pub deviation: f64,
    /// Least value.
    pub min: f64,
    /// Greatest value.
    pub max: f64,
}

/// A property of a link and its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Property {
    /// Bits per second.
    #[default]
    Rate,
    /// Delay in seconds.
    Delay,
    /// Share of the packets, 0 to 1.
    Loss,
}

impl Walk {
    /// The steps up to `stop` from the value `from`, in the unit of the property. Their noise is of `stream`.
    pub(crate) fn steps(
        self,
        from: f64,
        stop: Duration,
        mut stream: Stream,
    ) -> impl Iterator<Item = Change> {
        let (mut value, mut step) = (from, 0.0);
        let count = stop.as_nanos() / self.interval.as_nanos();
        (1..=count as u32).map(move |index| {
            step = self.correlation * step + self.deviation * normal(&mut stream);
            value = (value + step).clamp(self.min, self.max);
            let change = Change { at: self.interval * index, ..Change::default() };
            match self.property {
                Property::Rate => {
                    Change { rate: Some(Rate::from_bits_per_sec(value as u64)), ..change }
                }
                Property::Delay => Change { delay: Some(seconds(value)), ..change },
                Property::Loss => Change { loss: Ratio::new(value), ..change },
            }
        })
    }

    pub(crate) fn check(&self, has_trace: bool) -> Result<(), SpecError> {
        let refused = |name: &str, value: f64, allowed: &str| {
            Err(SpecError::new(name, &value.to_string(), allowed))
        };
        if has_trace && self.property == Property::Rate {
            return refused("walk", self.max, "no rate walk on a link with a trace");
        }
        if self.interval.is_zero() {
            return refused("interval", 0.0, "more than 0s");
        }
        if !(-1.0..=1.0).contains(&self.correlation) {
            return refused("correlation", self.correlation, "-1 to 1");
        }
        if !(self.deviation >= 0.0 && self.deviation.is_finite()) {
            return refused("deviation", self.deviation, "a finite number from 0");
        }
        let top = if self.property == Property::Loss { 1.0 } else { 1e15 };
        if !(self.min >= 0.0 && self.min <= self.max && self.max <= top) {
            let allowed = "at least min, which is at least 0; of a loss at most 1";
            return refused("max", self.max, allowed);
        }
        Ok(())
    }
}

/// Standard normal (Box and Muller 1958); draws two numbers.
fn normal(stream: &mut Stream) -> f64 {
    let radius = libm::sqrt(2.0 * stream.exponential());
    radius * libm::cos(2.0 * core::f64::consts::PI * stream.unit())
}

#[cfg(test)]
mod tests {
    use forebay_core::random::Streams;

    use super::*;
    use crate::link::Link;

    fn rates(correlation: f64, seed: u64) -> Vec<f64> {
        let rate = Rate::from_mbit_per_sec(50);
        let mut link = Link::at_rate("l", rate, Duration::ZERO, "fifo".parse().unwrap());
        link.walks.push(Walk {
            property: Property::Rate,
            interval: Duration::from_millis(10),
            correlation,
            deviation: 1e5,
            min: 10e6,
            max: 90e6,
        });
        let changes = link.all_changes(Duration::from_secs(100), &Streams::new(seed));
        assert!(changes.windows(2).all(|pair| pair[0].at < pair[1].at));
        changes.iter().map(|change| change.rate.unwrap().as_bits_per_sec() as f64).collect()
    }

    #[test]
    fn uncorrelated_steps_are_normal_with_the_given_deviation() {
        let rates = rates(0.0, 1);
        assert_eq!(rates.len(), 10_000);
        let steps: Vec<f64> = rates.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean_of = |power: i32| {
            steps.iter().map(|step| (step / 1e5).powi(power)).sum::<f64>() / steps.len() as f64
        };
        // Five standard errors over 10,000 steps: moments of the standard normal are 0, 1, 0 and 3.
        for (power, expected, error) in
            [(1, 0.0, 0.05), (2, 1.0, 0.071), (3, 0.0, 0.194), (4, 3.0, 0.49)]
        {
            assert!((mean_of(power) - expected).abs() < error, "{power}: {}", mean_of(power));
        }
    }

    #[test]
    fn walks_stay_inside_and_repeat_with_the_seed() {
        let walk = rates(0.99, 2);
        assert!(walk.iter().all(|rate| (10e6..=90e6).contains(rate)));
        assert!(walk.contains(&10e6) && walk.contains(&90e6), "never met a bound");
        assert_eq!(walk, rates(0.99, 2));
        assert_ne!(walk, rates(0.99, 3));
    }
}
