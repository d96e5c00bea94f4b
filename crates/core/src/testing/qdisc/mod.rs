//! The rules of [`Qdisc`], checked after every operation.

mod operations;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::packet::{Ecn, Packet};
use crate::qdisc::{self, Backlog, Burst, DropReason, DropSink, Qdisc, Shaper, ShaperParams};
use crate::spec::{Spec, SpecError, Value};
use crate::units::{ByteCount, Duration, Limit, Rate, Timestamp};

pub use operations::{Operation, decode, operations, specs};

/// Longest packet of an operation: a super-packet of 64 KB.
pub const LEN_MAX: u64 = 65_535;

/// A packet that carries its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestPacket {
    /// Flow of the packet.
    pub flow: u32,
    /// Place of the packet in its flow, or in the test.
    pub sequence: u64,
    /// Bytes of the packet.
    pub len: ByteCount,
    /// Class, 0 is served first.
    pub class: u8,
    /// ECN field.
    pub ecn: Ecn,
}

impl Default for TestPacket {
    /// A full-sized packet of flow 0.
    fn default() -> Self {
        Self { flow: 0, sequence: 0, len: ByteCount::new(1514), class: 0, ecn: Ecn::NotEct }
    }
}

impl Packet for TestPacket {
    fn len(&self) -> ByteCount {
        self.len
    }

    /// The finaliser of MurmurHash3, which reaches every bit: flows spread as in real traffic.
    fn flow_hash(&self, key: u64) -> u64 {
        let mut hash = u64::from(self.flow) ^ key;
        for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
            hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
        }
        hash ^ (hash >> 33)
    }

    fn class(&self) -> u8 {
        self.class
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn set_ce(&mut self) {
        assert_ne!(self.ecn, Ecn::NotEct, "marked a packet that is not ECN-capable");
        self.ecn = Ecn::Ce;
    }
}

/// Keeps the dropped packets.
#[derive(Clone, Debug, Default)]
pub struct Dropped {
    /// In order.
    pub packets: Vec<(TestPacket, DropReason)>,
    /// Why packets were marked instead, in order.
    pub marks: Vec<DropReason>,
}

impl Dropped {
    /// The reasons, in order.
    pub fn reasons(&self) -> Vec<DropReason> {
        self.packets.iter().map(|(_, reason)| *reason).collect()
    }
}

impl DropSink<TestPacket> for Dropped {
    fn dropped(&mut self, packet: TestPacket, reason: DropReason) {
        self.packets.push((packet, reason));
    }

    fn marked(&mut self, reason: DropReason) {
        self.marks.push(reason);
    }
}

/// A discipline under test, with its state as observed from outside.
pub struct Model {
    rules: Rules,
    subject: Subject,
    now: Timestamp,
    sequence: u64,
    /// Packets that must stand in the queue, by sequence number.
    queued: BTreeMap<u64, TestPacket>,
    backlog: Backlog,
    /// Marks that the discipline has reported and that were not yet found on a packet.
    marks: u64,
    /// The last packet that left each stream with an order to keep.
    last_out: BTreeMap<Stream, u64>,
    shaper_params: ShaperParams,
    meter: Meter,
    /// Largest rate that limits in time use.
    rate: Option<Rate>,
}

enum Subject {
    Plain(Box<dyn Qdisc<TestPacket> + Send>),
    Shaper(Box<Shaper<TestPacket>>),
}

/// Packets that must leave in the order in which they came: packets of one band or class, flow and service,
/// where the discipline distinguishes these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Stream {
    band: Option<usize>,
    flow: Option<u32>,
    is_l4s: Option<bool>,
}

/// A leaky bucket that fills with the bytes that a shaper sends and leaks at its rate.
#[derive(Default)]
struct Meter {
    rate: Option<Rate>,
    /// Bits x ns/s.
    level: u128,
    /// Highest level at which a packet may still leave.
    allowed: u128,
}

impl Model {
    /// An empty queue as `spec` says, at time zero.
    pub fn new(spec: &Spec) -> Result<Self, SpecError> {
        let mut meter = Meter::default();
        let plain = qdisc::build(spec)?;
        let spec = filled(spec);
        let mut shaper_params = ShaperParams::default();
        let subject = if spec.kind == "shaper" {
            shaper_params = ShaperParams::from_spec(&spec)?;
            let inner = spec.nested("inner")?.unwrap_or_else(|| Spec::named("fifo"));
            let mut shaper = Shaper::new(qdisc::build(&inner)?, shaper_params);
            let rate = spec.value("rate")?;
            shaper.set_rate(Timestamp::ZERO, rate);
            meter.set_rate(rate, shaper_params);
            Subject::Shaper(Box::new(shaper))
        } else {
            Subject::Plain(plain)
        };
        Ok(Self {
            rules: Rules::of(&spec),
            shaper_params,
            subject,
            now: Timestamp::ZERO,
            sequence: 0,
            queued: BTreeMap::new(),
            backlog: Backlog::default(),
            marks: 0,
            last_out: BTreeMap::new(),
            rate: meter.rate,
            meter,
        })
    }

    /// The time of the model.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Contents of the queue.
    pub fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// Performs one operation and checks every rule. The packet that left, if one did.
    ///
    /// # Panics
    /// Where a rule is broken.
    pub fn apply(&mut self, operation: &Operation) -> Option<TestPacket> {
        let mut out = None;
        match *operation {
            Operation::Enqueue { flow, len, class, ecn } => self.enqueue(flow, len, class, ecn),
            Operation::Dequeue => out = self.dequeue(),
            Operation::Advance(time) => self.advance(time),
            Operation::AwaitTimer => {
                if let Some(timer) = self.qdisc().next_timer() {
                    self.advance(timer.saturating_since(self.now));
                }
            }
            Operation::SetRate(rate) => self.set_rate(rate),
        }
        self.check_backlog();
        out
    }

    fn qdisc(&mut self) -> &mut dyn Qdisc<TestPacket> {
        match &mut self.subject {
            Subject::Plain(plain) => plain,
            Subject::Shaper(shaper) => shaper.as_mut(),
        }
    }

    fn advance(&mut self, time: Duration) {
        self.now += time;
        self.meter.leak(time);
    }

    fn set_rate(&mut self, rate: Option<Rate>) {
        let now = self.now;
        match &mut self.subject {
            Subject::Shaper(shaper) => {
                shaper.set_rate(now, rate);
                self.meter.set_rate(rate, self.shaper_params);
                // The inner discipline uses a mean of the rates.
                self.rate = rate.map(|rate| self.rate.map_or(rate, |before| before.max(rate)));
            }
            Subject::Plain(plain) => {
                plain.set_service_rate(rate);
                self.rate = rate;
            }
        }
    }

    fn enqueue(&mut self, flow: u32, len: u64, class: u8, ecn: Ecn) {
        let len = ByteCount::new(len.clamp(1, LEN_MAX));
        let packet = TestPacket { flow, sequence: self.sequence, len, class, ecn };
        self.sequence += 1;
        let before = self.backlog;
        self.backlog.add(packet.len);
        self.queued.insert(packet.sequence, packet.clone());
        let (now, mut drops) = (self.now, Dropped::default());
        self.qdisc().enqueue(now, packet, &mut drops);
        self.told_of(&drops.marks);
        for (packet, reason) in drops.packets {
            match reason {
                DropReason::Overlimit => {
                    if let Some(limit) = self.rules.drops_above {
                        let is_within = is_within(self.backlog, limit, self.rate);
                        assert!(!is_within, "dropped although there was room");
                    }
                }
                DropReason::Policed => {
                    assert!(self.rules.is_policed, "dropped as if by a policer");
                }
                DropReason::Codel => panic!("CoDel drops at the head, not on arrival"),
                DropReason::Superseded => panic!("a link filters acknowledgements, no discipline"),
                DropReason::Early | DropReason::Forced => {
                    assert!(self.rules.drops_early, "an arrival can only overfill the queue");
                }
            }
            self.leaves(&packet);
        }
        self.check_time(before);
    }

    /// After an arrival a limit in time holds. If only arrivals are dropped and the rate has fallen, the
    /// backlog may exceed the limit, but not `before`.
    fn check_time(&self, before: Backlog) {
        let Some(limit) = self.rules.in_time else { return };
        let Backlog { packets, bytes } = self.backlog;
        let is_no_more = packets <= before.packets && bytes <= before.bytes;
        let is_left = self.rules.drops_arrivals_only && is_no_more;
        let is_within = is_within(self.backlog, limit, self.rate);
        assert!(is_within || is_left, "{:?} of {limit} at {:?}", self.backlog, self.rate);
    }

    fn dequeue(&mut self) -> Option<TestPacket> {
        let (now, before, mut drops) = (self.now, self.backlog, Dropped::default());
        let is_due = self.qdisc().next_timer().is_some_and(|timer| timer <= now);
        let out = self.qdisc().dequeue(now, &mut drops);
        self.told_of(&drops.marks);
        for (packet, reason) in &drops.packets {
            let is_of_head = match reason {
                DropReason::Codel => true,
                DropReason::Early => self.rules.draws_at_head,
                _ => false,
            };
            assert!(is_of_head, "{reason:?}: all other drops are of arrivals");
            self.leaves(packet);
        }
        assert!(
            is_due == (out.is_some() || !drops.packets.is_empty()),
            "next_timer said due = {is_due} with {before:?} queued, but {out:?} left"
        );
        if let Some(packet) = &out {
            let arrived = self.leaves(packet);
            self.departs(&arrived);
        } else if self.rules.is_work_conserving {
            assert_eq!(self.backlog.packets, 0, "nothing left a queue with a backlog");
        }
        out
    }

    fn told_of(&mut self, marks: &[DropReason]) {
        let Marks { is_classic, is_l4s } = self.rules.marks;
        assert!(marks.is_empty() || is_classic || is_l4s, "marks although ECN is off");
        self.marks += marks.len() as u64;
    }

    /// `packet` is no longer queued, but sent or dropped. It must have been queued, unchanged but for a mark.
    /// Returns the packet as it arrived.
    fn leaves(&mut self, packet: &TestPacket) -> TestPacket {
        let arrived = self.queued.remove(&packet.sequence).expect("left twice or never arrived");
        if packet.ecn != arrived.ecn {
            let Marks { is_classic, is_l4s } = self.rules.marks;
            let may_be = match arrived.ecn {
                Ecn::NotEct | Ecn::Ce => false,
                Ecn::Ect0 => is_classic,
                Ecn::Ect1 => is_classic || is_l4s,
            };
            assert!(may_be && packet.ecn == Ecn::Ce, "{:?} became {packet:?}", arrived.ecn);
            self.marks = self.marks.checked_sub(1).expect("a mark that was not reported");
        }
        let unmarked = TestPacket { ecn: arrived.ecn, ..packet.clone() };
        assert_eq!(unmarked, arrived, "changed in the queue");
        self.backlog.remove(packet.len);
        arrived
    }

    /// Checks `packet`, sent as it came.
    fn departs(&mut self, packet: &TestPacket) {
        let stream = self.rules.order.stream(packet);
        if let Some(previous) = self.last_out.insert(stream, packet.sequence) {
            assert!(previous < packet.sequence, "{packet:?} left after {previous} of {stream:?}");
        }
        if self.rules.is_work_conserving
            && let Order::Bands { bands, strict } = &self.rules.order
        {
            let goes_first = band(bands, packet).min(*strict);
            let overtaken = self.queued.values().find(|other| band(bands, other) < goes_first);
            assert_eq!(overtaken, None, "a higher class waits while {packet:?} leaves");
        }
        self.meter.fill(packet.len);
    }

    /// Packets and bytes in = out + dropped + queued, within the limits, with a timer iff useful.
    fn check_backlog(&mut self) {
        let (now, backlog) = (self.now, self.backlog);
        assert_eq!(self.qdisc().backlog(), backlog);
        let capacity = self.rules.capacity;
        assert!(capacity.holds(backlog), "{backlog:?} exceeds {capacity:?}");
        let timer = self.qdisc().next_timer();
        if backlog.packets == 0 {
            assert_eq!(timer, None, "a timer on an empty queue");
        } else if self.rules.is_work_conserving {
            assert!(timer.is_some_and(|timer| timer <= now), "work waits until {timer:?}");
        }
    }
}

impl Meter {
    fn set_rate(&mut self, rate: Option<Rate>, params: ShaperParams) {
        if rate.is_none() || self.rate.is_none() {
            self.level = 0;
        }
        if let Some(rate) = rate {
            let burst = match params.burst {
                Burst::Time(time) => u128::from(rate.as_bits_per_sec()) * time.as_nanos(),
                Burst::Bytes(bytes) => u128::from(bytes.as_u64()) * 8_000_000_000,
            };
            let bucket = u128::from(params.bucket.as_u64()) * 8_000_000_000;
            self.allowed = self.allowed.max(burst).max(bucket);
        }
        self.rate = rate;
    }

    fn leak(&mut self, time: Duration) {
        let rate = self.rate.map_or(0, |rate| u128::from(rate.as_bits_per_sec()));
        self.level = self.level.saturating_sub(rate.saturating_mul(time.as_nanos()));
    }

    fn fill(&mut self, len: ByteCount) {
        if self.rate.is_some() {
            assert!(self.level <= self.allowed, "sent above the rate, bucket and burst");
            self.level += u128::from(len.as_u64()) * 8_000_000_000;
        }
    }
}

/// Whether a queue with `limit` may hold `backlog` where it is served at `rate`.
fn is_within(backlog: Backlog, limit: Limit, rate: Option<Rate>) -> bool {
    match (limit, rate) {
        (Limit::Packets(packets), _) => backlog.packets <= packets,
        (Limit::Bytes(bytes), _) => backlog.bytes <= bytes,
        (Limit::Time(_), None) => backlog.packets <= 1000,
        (Limit::Time(time), Some(rate)) => {
            let sends = u128::from(rate.as_bits_per_sec()) * time.as_nanos();
            let stands = u128::from(backlog.bytes.as_u64()) * 8_000_000_000;
            backlog.packets <= 10 || stands <= sends
        }
    }
}

/// Promises of a spec.
struct Rules {
    capacity: Capacity,
    /// A limit in time of the only queue.
    in_time: Option<Limit>,
    /// Packets that are in the queue already stay.
    drops_arrivals_only: bool,
    is_work_conserving: bool,
    /// The limit above which alone arrivals are dropped; `None` where flows have limits of their
    /// own, drops come in batches, or children decide.
    drops_above: Option<Limit>,
    /// Arrivals may be dropped although there is room.
    drops_early: bool,
    /// Packets that are about to leave may be dropped by a draw.
    draws_at_head: bool,
    /// Arrivals may be dropped because of earlier arrivals.
    is_policed: bool,
    marks: Marks,
    order: Order,
}

/// Which packets may be marked.
#[derive(Clone, Copy)]
struct Marks {
    /// All that are ECN-capable.
    is_classic: bool,
    /// Packets of L4S.
    is_l4s: bool,
}

/// Which packets must keep their order.
enum Order {
    /// All packets.
    Queue,
    /// The packets of each flow in each of `classes` classes.
    Flows { classes: usize },
    /// The packets of L4S, and the rest.
    Services,
    /// The packets of each band, as the band says; the first `strict` bands go before all behind.
    Bands { bands: Vec<Order>, strict: usize },
}

/// The most that a discipline may hold; `None`: not bounded in this unit.
#[derive(Clone, Copy, Debug)]
struct Capacity {
    packets: Option<u64>,
    bytes: Option<u64>,
}

impl Capacity {
    fn holds(self, backlog: Backlog) -> bool {
        self.packets.is_none_or(|packets| backlog.packets <= packets)
            && self.bytes.is_none_or(|bytes| backlog.bytes.as_u64() <= bytes)
    }

    fn plus(self, other: Self) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        Self { packets: sum(self.packets, other.packets), bytes: sum(self.bytes, other.bytes) }
    }
}

impl Rules {
    fn of(spec: &Spec) -> Self {
        let limit = spec.value("limit").ok().flatten();
        let memory = spec.value("memory").ok().flatten().map(ByteCount::as_u64);
        let capacity = match limit {
            Some(Limit::Packets(packets)) => Capacity { packets: Some(packets), bytes: memory },
            Some(Limit::Bytes(bytes)) => Capacity { packets: None, bytes: Some(bytes.as_u64()) },
            Some(Limit::Time(_)) | None => Capacity { packets: None, bytes: memory },
        };
        let is_dualpi2 = spec.kind == "dualpi2";
        let drops_arrivals_only =
            matches!(spec.kind.as_str(), "fifo" | "codel" | "pie" | "red" | "dualpi2");
        let drops_singly = match spec.kind.as_str() {
            "drr" | "las" => true,
            "sfq" => !spec.params.contains_key("depth"),
            _ => drops_arrivals_only,
        };
        let children = children(spec);
        let nested = children.iter().map(|child| child.capacity).reduce(Capacity::plus);
        let in_time = match (limit, &children[..]) {
            (Some(Limit::Time(_)), _) => limit,
            (_, [inner]) => inner.in_time,
            _ => None,
        };
        Self {
            in_time,
            drops_arrivals_only: drops_arrivals_only
                || matches!(&children[..], [inner] if inner.drops_arrivals_only),
            capacity: nested.unwrap_or(capacity),
            is_work_conserving: spec.kind != "shaper"
                && children.iter().all(|child| child.is_work_conserving),
            drops_above: limit.filter(|_| drops_singly),
            drops_early: matches!(spec.kind.as_str(), "pie" | "red")
                || children.iter().any(|child| child.drops_early),
            draws_at_head: is_dualpi2 || children.iter().any(|child| child.draws_at_head),
            is_policed: spec.kind == "policer" || children.iter().any(|child| child.is_policed),
            marks: Marks {
                is_classic: spec.value("ecn").ok().flatten().unwrap_or(is_dualpi2)
                    || children.iter().any(|child| child.marks.is_classic),
                is_l4s: spec.params.contains_key("l4s")
                    || children.iter().any(|child| child.marks.is_l4s),
            },
            order: Order::of(spec, children),
        }
    }
}

impl Order {
    fn of(spec: &Spec, children: Vec<Rules>) -> Self {
        let mut children: Vec<Order> = children.into_iter().map(|child| child.order).collect();
        match spec.kind.as_str() {
            "prio" => Self::Bands { strict: children.len(), bands: children },
            "ets" => {
                let strict: Option<u64> = spec.value("strict").ok().flatten();
                Self::Bands { strict: strict.unwrap_or(0) as usize, bands: children }
            }
            "shaper" | "policer" => children.pop().expect("it has an inner discipline"),
            "fifo" if spec.params.contains_key("l4s") => Self::Services,
            "dualpi2" => Self::Services,
            "fifo" | "codel" | "pie" | "red" => Self::Queue,
            _ => match spec.params.get("weights") {
                Some(Value::List(weights)) => Self::Flows { classes: weights.len() },
                _ => Self::Flows { classes: 1 },
            },
        }
    }

    fn stream(&self, packet: &TestPacket) -> Stream {
        match self {
            Self::Queue => Stream::default(),
            Self::Flows { classes } => {
                let class = usize::from(packet.class).min(classes - 1);
                Stream { band: Some(class), flow: Some(packet.flow), ..Stream::default() }
            }
            Self::Services => {
                let is_l4s = Some(matches!(packet.ecn, Ecn::Ect1 | Ecn::Ce));
                Stream { is_l4s, ..Stream::default() }
            }
            Self::Bands { bands, .. } => {
                let band = band(bands, packet);
                Stream { band: Some(band), ..bands[band].stream(packet) }
            }
        }
    }
}

fn band(bands: &[Order], packet: &TestPacket) -> usize {
    usize::from(packet.class).min(bands.len() - 1)
}

fn filled(spec: &Spec) -> Spec {
    spec.with_defaults(qdisc::discipline(spec).expect("accepted before").params)
}

fn children(spec: &Spec) -> Vec<Rules> {
    let inner = spec.nested("inner").ok().flatten();
    let bands = spec.nested_list("bands").ok().flatten();
    let specs = inner.into_iter().chain(bands.into_iter().flatten());
    specs.map(|child| Rules::of(&filled(&child))).collect()
}

#[cfg(test)]
mod tests;
