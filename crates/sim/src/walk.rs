//! Random walks of a link's properties, worked out before the run.

use forebay_core::link::{Change, Config, Service};
use forebay_core::random::{Stream, Streams};
use forebay_core::units::{Duration, Rate, Ratio, seconds};

use crate::network::{Link, Property, Walk};

/// All changes of `link` up to `stop` in order of time: its own and the steps of its walks.
pub(crate) fn changes(link: &Link, stop: Duration, streams: &Streams) -> Vec<Change> {
    let mut all = link.config.changes.clone();
    for (index, walk) in link.walks.iter().enumerate() {
        let from = configured(walk.property, &link.config).unwrap_or(walk.max);
        all.extend(walk.steps(from, stop, streams.stream(&format!("walk {index}"))));
    }
    // Stable: where two set the same property at the same time, the walk comes last and counts.
    all.sort_by_key(|change| change.at);
    all
}

/// What the property is before the walk; `None` where the link has no rate.
fn configured(property: Property, config: &Config) -> Option<f64> {
    match (property, &config.service) {
        (Property::Rate, Service::Rate(rate)) => Some(rate.as_bits_per_sec() as f64),
        (Property::Rate, _) => None,
        (Property::Delay, _) => Some(config.delay.as_secs_f64()),
        (Property::Loss, _) => Some(config.loss.as_f64()),
    }
}

impl Walk {
    /// The steps up to `stop` from the value `from`, in the unit of the property. Their noise is of
    /// `stream`: in a simulation `walk N`, N from 0 among the walks of a link, of the link's streams.
    pub fn steps(
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
}

/// Standard normal (Box and Muller 1958); draws two numbers.
fn normal(stream: &mut Stream) -> f64 {
    let radius = libm::sqrt(2.0 * stream.exponential());
    radius * libm::cos(2.0 * core::f64::consts::PI * stream.unit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(correlation: f64, seed: u64) -> Vec<f64> {
        let mut link = Link::delay("l", Duration::ZERO);
        link.config.service = Service::Rate(Rate::from_mbit_per_sec(50));
        link.walks.push(Walk {
            property: Property::Rate,
            interval: Duration::from_millis(10),
            correlation,
            deviation: 1e5,
            min: 10e6,
            max: 90e6,
        });
        let changes = changes(&link, Duration::from_secs(100), &Streams::new(seed));
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
