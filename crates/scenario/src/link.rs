//! A one-way link: loss, a queue served at a rate or by a trace, delay, reordering, and changes of these.

pub use forebay_core::link::Change;
use forebay_core::link::{Replay, Service};
use forebay_core::qdisc::FLOOR_PACKETS;
use forebay_core::random::Streams;
use forebay_core::spec::{Spec, SpecError};
use forebay_core::units::{ByteCount, Duration, Limit, Rate, Ratio, format_duration};
use serde::{Deserialize, Serialize};

use crate::walk::{Property, Walk};

/// An Ethernet frame of 1500 bytes of IP, without FCS.
pub const FULL_FRAME: ByteCount = ByteCount::new(1514);

/// A one-way link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Name of its rows, unique in a run. Random numbers of the link follow from it and the seed alone.
    pub name: String,
    /// Rate or trace at which it sends.
    pub service: Service,
    /// One-way propagation delay, behind the server.
    pub delay: Duration,
    /// Each packet takes longer by up to this time, by a draw of its own; it waits for earlier packets, so
    /// that nothing is overtaken.
    pub jitter: Duration,
    /// Packets begin the delay together, at whole multiples of this, as on a radio or cable link that waits
    /// for its turn; zero: each when it has been sent.
    pub batch: Duration,
    /// Share of the packets that are lost.
    pub loss: Ratio,
    /// Share of the boxes' messages that are lost, in addition to `loss`.
    pub message_loss: Ratio,
    /// Share of the packets that are held back behind the queue ...
    pub reorder: Ratio,
    /// ... until this many later packets have overtaken them, at most
    /// [`MAX_HOLD`](forebay_core::link::MAX_HOLD).
    pub reorder_packets: u32,
    /// The queue; without effect on a link that is unlimited.
    pub qdisc: Spec,
    /// A waiting acknowledgement is dropped when a later one of the same connection comes that carries all
    /// its information; with a first in, first out queue without marks alone.
    pub ack_filter: bool,
    /// Packets come to the queue as not ECN-capable: through a tunnel in compatibility mode (RFC 6040
    /// section 4.1), or over a path that clears the field. None is marked, and no mark from before is kept.
    pub clears_ecn: bool,
    /// Random walks of its properties.
    pub walks: Vec<Walk>,
    /// Changes, in order of time.
    pub changes: Vec<Change>,
    /// Traces of its properties. [`Scenario::with_seed`](crate::Scenario::with_seed) turns them into `changes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traces: Vec<Replay>,
    /// Whether packets overtake those before them after a decrease of the delay; `None`: as the TCP stack of the run
    /// has it in a simulator, and not in the emulator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overtakes: Option<bool>,
}

impl Link {
    /// A link at what `service` says with the queue `qdisc`, and nothing else.
    pub fn new(name: &str, service: Service, delay: Duration, qdisc: Spec) -> Self {
        Self {
            name: name.into(),
            service,
            delay,
            jitter: Duration::ZERO,
            batch: Duration::ZERO,
            loss: Ratio::ZERO,
            message_loss: Ratio::ZERO,
            reorder: Ratio::ZERO,
            reorder_packets: 0,
            qdisc,
            ack_filter: false,
            clears_ecn: false,
            walks: Vec::new(),
            changes: Vec::new(),
            traces: Vec::new(),
            overtakes: None,
        }
    }

    /// A link at a constant rate.
    pub fn at_rate(name: &str, rate: Rate, delay: Duration, qdisc: Spec) -> Self {
        Self::new(name, Service::Rate(rate), delay, qdisc)
    }

    /// A link that delays, and does nothing else.
    pub fn delay(name: &str, delay: Duration) -> Self {
        Self::new(name, Service::Unlimited, delay, Spec::named("fifo"))
    }

    /// The rate before any change; `None` of a trace and where there is no limit.
    pub fn rate(&self) -> Option<Rate> {
        self.service.rate()
    }

    /// The rate, or the mean of the trace: the nominal one of slowdowns.
    pub fn nominal_rate(&self) -> Option<Rate> {
        match &self.service {
            Service::Unlimited => None,
            Service::Rate(rate) => Some(*rate),
            Service::Trace(trace) => Some(trace.mean_rate()),
        }
    }

    /// The delay in force at `at`.
    pub fn delay_at(&self, at: Duration) -> Duration {
        let past = &self.changes[..self.changes.partition_point(|change| change.at <= at)];
        past.iter().rev().find_map(|change| change.delay).unwrap_or(self.delay)
    }

    /// How long the link takes to send a full queue of full frames; `None` without a rate or limit.
    pub fn buffer_time(&self) -> Option<Duration> {
        let time_of = |bytes: ByteCount| bytes.time_at(self.nominal_rate()?);
        match self.qdisc.value::<Limit>("limit").ok()?? {
            Limit::Packets(packets) => time_of(FULL_FRAME * packets),
            Limit::Bytes(bytes) => time_of(bytes),
            Limit::Time(time) => Some(time.max(time_of(FULL_FRAME * FLOOR_PACKETS)?)),
        }
    }

    /// Bits that the link can carry in `from..to`; `None` without a constant rate.
    pub fn capacity_bits(&self, from: Duration, to: Duration) -> Option<f64> {
        let first = self.rate()?;
        let (past, later) =
            self.changes.split_at(self.changes.partition_point(|change| change.at <= from));
        let mut rate = past.iter().rev().find_map(|change| change.rate).unwrap_or(first);
        let mut since = from;
        let mut bits = 0.0;
        for change in later.iter().take_while(|change| change.at < to) {
            if change.at > since {
                bits += rate.as_bits_per_sec() as f64 * (change.at - since).as_secs_f64();
                since = change.at;
            }
            rate = change.rate.unwrap_or(rate);
        }
        let rest = to.saturating_sub(since).as_secs_f64();
        Some(bits + rate.as_bits_per_sec() as f64 * rest)
    }

    /// All changes up to `stop` in order of time: the link's own changes, the changes of its traces, and the steps of
    /// its walks. The noise of walks comes from the streams `walk 0`, `walk 1`, ... of `streams`.
    pub fn all_changes(&self, stop: Duration, streams: &Streams) -> Vec<Change> {
        let mut all = self.changes.clone();
        for trace in &self.traces {
            all.extend(trace.changes().take_while(|change| change.at < stop));
        }
        for (index, walk) in self.walks.iter().enumerate() {
            let from = match walk.property {
                Property::Rate => self.rate().map_or(walk.max, |it| it.as_bits_per_sec() as f64),
                Property::Delay => self.delay.as_secs_f64(),
                Property::Loss => self.loss.as_f64(),
            };
            all.extend(walk.steps(from, stop, streams.stream(&format!("walk {index}"))));
        }
        // Stable: where two set the same property at the same time, the walk comes last and counts.
        all.sort_by_key(|change| change.at);
        all
    }

    /// Refuses changes out of order, changes of a rate that a trace sets, values that a trace and something else
    /// set, and walks without a range or with an interval of zero.
    pub fn check(&self) -> Result<(), SpecError> {
        for pair in self.changes.windows(2) {
            if pair[1].at < pair[0].at {
                let allowed = "not before the change above it";
                return Err(SpecError::new("at", &format_duration(pair[1].at), allowed));
            }
        }
        let has_trace = matches!(self.service, Service::Trace(_));
        let of_rate = self.changes.iter().find(|change| change.rate.is_some());
        if let Some(change) = of_rate.filter(|_| has_trace) {
            let allowed = "no rate change on a link with a trace";
            return Err(SpecError::new("at", &format_duration(change.at), allowed));
        }
        if let Some((_, name)) = PROPERTIES.into_iter().find(|(it, _)| self.is_set_twice(*it)) {
            let allowed = "a trace without the values that changes, walks or another trace set";
            return Err(SpecError::new("trace", name, allowed));
        }
        self.walks.iter().try_for_each(|walk| walk.check(has_trace))
    }

    /// Whether a trace sets `property` over time.
    pub fn replays(&self, property: Property) -> bool {
        self.traces.iter().any(|replay| sets(replay, property))
    }

    /// Whether a trace sets `property`, and a change, a walk or another trace does, too.
    pub fn is_set_twice(&self, property: Property) -> bool {
        let traces = self.traces.iter().filter(|replay| sets(replay, property)).count();
        let is_changed = || {
            self.changes.iter().any(|change| match property {
                Property::Rate => change.rate.is_some(),
                Property::Delay => change.delay.is_some(),
                Property::Loss => change.loss.is_some(),
            })
        };
        let is_walked = || self.walks.iter().any(|walk| walk.property == property);
        let is_served = || property == Property::Rate && matches!(self.service, Service::Trace(_));
        traces > 1 || (traces == 1 && (is_changed() || is_walked() || is_served()))
    }
}

/// Every property and its name.
pub const PROPERTIES: [(Property, &str); 3] =
    [(Property::Rate, "rate"), (Property::Delay, "delay"), (Property::Loss, "loss")];

fn sets(replay: &Replay, property: Property) -> bool {
    match property {
        Property::Rate => replay.trace.sets_rate(),
        Property::Delay => replay.trace.sets_delay(),
        Property::Loss => replay.trace.sets_loss(),
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::link::{AtEnd, PathTrace, Trace};

    use super::*;

    fn at_96() -> Link {
        let delay = Duration::from_millis(25);
        Link::at_rate("forward", Rate::from_mbit_per_sec(96), delay, Spec::named("fifo"))
    }

    #[test]
    fn capacity_and_delay_follow_the_changes() {
        let seconds = Duration::from_secs;
        let change = |at, rate, delay| Change { at: seconds(at), rate, delay, loss: None };
        let changes = vec![
            change(10, Some(Rate::from_mbit_per_sec(48)), None),
            change(20, None, Some(Duration::from_millis(40))),
        ];
        let link = Link { changes, ..at_96() };
        assert_eq!(link.capacity_bits(seconds(0), seconds(10)), Some(960e6));
        assert_eq!(link.capacity_bits(seconds(5), seconds(30)), Some(5.0 * 96e6 + 20.0 * 48e6));
        assert_eq!(link.capacity_bits(seconds(12), seconds(13)), Some(48e6));
        assert_eq!(link.delay_at(seconds(19)), Duration::from_millis(25));
        assert_eq!(link.delay_at(seconds(20)), Duration::from_millis(40));
    }

    #[test]
    fn unordered_or_conflicting_changes_are_refused() {
        let change =
            |at_ms, rate| Change { at: Duration::from_millis(at_ms), rate, ..Change::default() };
        let changes = vec![change(2, None), change(1, None)];
        assert_eq!(Link { changes, ..at_96() }.check().unwrap_err().value, "1ms");
        let service = Service::Trace(Trace::parse("t", "1").unwrap().into());
        let changes = vec![change(7, Some(Rate::ZERO))];
        assert_eq!(Link { service, changes, ..at_96() }.check().unwrap_err().value, "7ms");
    }

    fn replay(text: &str, at_end: AtEnd) -> Replay {
        Replay { trace: PathTrace::parse("t", text).unwrap().into(), at_end }
    }

    #[test]
    fn traces_become_changes_until_the_end() {
        let rate = replay("time_s,rate_mbps\n0,10\n2,30\n", AtEnd::Repeat);
        let delay = replay("time_s,delay_ms\n0,5\n1,9\n", AtEnd::Hold);
        let mut link = Link { traces: vec![rate, delay], ..at_96() };
        link.changes = link.all_changes(Duration::from_secs(6), &Streams::new(1));
        link.traces.clear();
        let times: Vec<u64> = link.changes.iter().map(|it| it.at.as_secs()).collect();
        assert_eq!(times, [0, 0, 1, 2, 4]);
        let seconds = Duration::from_secs;
        // From 4 s on the trace is at its beginning again.
        assert_eq!(link.capacity_bits(seconds(1), seconds(6)), Some(10e6 + 60e6 + 20e6));
        let delays = [0, 1, 5].map(|at| link.delay_at(seconds(at)).as_millis());
        assert_eq!(delays, [5, 9, 9]);
    }

    #[test]
    fn nothing_is_set_by_two() {
        let both = replay("time_s,rate_mbps,delay_ms\n0,1,1\n1,2,2\n", AtEnd::Repeat);
        let delay = Some(Duration::ZERO);
        let traced = Link { traces: vec![both.clone()], ..at_96() };
        assert_eq!(traced.check(), Ok(()));
        let walk = Walk { property: Property::Rate, ..Walk::default() };
        let service = Service::Trace(Trace::parse("t", "1").unwrap().into());
        for (link, value) in [
            (
                Link { changes: vec![Change { delay, ..Change::default() }], ..traced.clone() },
                "delay",
            ),
            (Link { walks: vec![walk], ..traced.clone() }, "rate"),
            (Link { service, ..traced.clone() }, "rate"),
            (Link { traces: vec![both.clone(), both], ..traced.clone() }, "rate"),
        ] {
            let error = link.check().unwrap_err();
            assert_eq!((error.key.as_str(), error.value.as_str()), ("trace", value));
        }
    }

    #[test]
    fn a_link_survives_json() {
        let service = Service::Trace(Trace::parse("t", "3\n3\n10\n").unwrap().into());
        let loss = Ratio::new(0.1).unwrap();
        let change = Change { at: Duration::from_nanos(1), loss: Some(loss), ..Change::default() };
        let link = Link { service, loss, changes: vec![change], ..at_96() };
        let text = serde_json::to_string(&link).unwrap();
        assert_eq!(serde_json::from_str::<Link>(&text).unwrap(), link);
        let traces = vec![replay("time_s,rtt_ms\n0,0.5\n1,3\n", AtEnd::Hold)];
        let traced = Link { traces, overtakes: Some(true), ..link.clone() };
        let json = serde_json::to_string(&traced).unwrap();
        assert_eq!(serde_json::from_str::<Link>(&json).unwrap(), traced);
        for bad in [text.replace("0.1", "1.5"), text.replace("10\\n", "x\\n")] {
            assert!(serde_json::from_str::<Link>(&bad).is_err(), "{bad}");
        }
    }
}
