//! Sizes and schedules of requests.

use forebay_core::random::Streams;
use forebay_core::spec::SpecError;
use forebay_core::traffic::{Connections, RequestPlan, Sampling, Schedule, SizeCdf};
use forebay_core::units::{ByteCount, Duration, Rate};
use serde::{Deserialize, Serialize};

use crate::{Flow, Scenario, Traffic};

/// Largest answer of a fixed size: it takes longer than a run at the rates emulated here.
const MAX_SIZE: u64 = 1_000_000_000;

/// The distribution whose sizes are all `size`; `None` outside 1 byte to 1 GB.
pub fn fixed_size(size: ByteCount) -> Option<SizeCdf> {
    let bytes = size.as_u64();
    let point_mass = format!("{bytes} 0\n{bytes} 1\n");
    (1..=MAX_SIZE).contains(&bytes).then(|| SizeCdf::parse("size", &point_mass).ok()).flatten()
}

/// Distributions that the requests of a flow are drawn from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestLoad {
    /// Sizes of the answers.
    pub sizes: SizeCdf,
    /// Bytes of answers offered over time.
    pub load: Rate,
    /// Connections that carry the requests.
    pub connections: Connections,
    /// Sizes drawn independently instead of by strata.
    pub iid: bool,
}

impl RequestLoad {
    /// Plan of the requests from `start` to `stop`; requests before `warmup` do not count.
    pub fn plan(&self, start: Duration, warmup: Duration, stop: Duration) -> RequestPlan {
        let counted_from = warmup.clamp(start, stop);
        RequestPlan {
            sizes: self.sizes.clone(),
            load: self.load,
            connections: match self.connections {
                Connections::Persistent(count) => count,
                Connections::Each => 1,
            },
            warm_up: counted_from - start,
            duration: stop - counted_from,
            sampling: if self.iid { Sampling::Iid } else { Sampling::Stratified },
        }
    }
}

impl Scenario {
    /// The schedule of a flow, times counted from the flow's start; `None` for flows that are not
    /// made of requests. The same for every arm and every back end.
    pub fn schedule(&self, flow: &Flow) -> Result<Option<Schedule>, SpecError> {
        let Traffic::Requests(load) = &flow.traffic else { return Ok(None) };
        if let Some(drawn) = self.schedules.get(&flow.name) {
            return Ok(Some(drawn.clone()));
        }
        let streams = Streams::new(self.seed).part(&flow.name);
        Schedule::draw(&load.plan(flow.start, self.warmup, flow.stop), &streams).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_size_offers_its_load() {
        let load = RequestLoad {
            sizes: fixed_size(ByteCount::new(10_000)).unwrap(),
            load: Rate::from_mbit_per_sec(8),
            connections: Connections::Persistent(4),
            iid: false,
        };
        let [start, warmup, stop] = [2, 3, 5].map(Duration::from_secs);
        let schedule = Schedule::draw(&load.plan(start, warmup, stop), &Streams::new(1)).unwrap();
        assert_eq!(schedule.requests().len(), 300);
        assert!(schedule.requests().iter().all(|request| request.size.as_u64() == 10_000));
        assert_eq!(schedule.bytes_from(Duration::from_secs(1)), ByteCount::new(2_000_000));
        assert!(fixed_size(ByteCount::ZERO).is_none());
    }
}
