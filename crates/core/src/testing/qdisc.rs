//! The rules of [`Qdisc`], checked after every operation.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

use proptest::prelude::*;

use crate::packet::{Ecn, Packet};
use crate::qdisc::{self, Backlog, Burst, DropReason, DropSink, Qdisc, Shaper, ShaperParams};
use crate::spec::{Spec, SpecError, Value};
use crate::units::{ByteCount, Duration, Limit, Rate, Timestamp};

/// Longest packet of an operation: a super-packet of 64 KB.
pub const LEN_MAX: u64 = 65_535;

/// A packet that knows who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestPacket {
    /// Its flow.
    pub flow: u32,
    /// Its place in the flow, or in the test.
    pub sequence: u64,
    /// Bytes.
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

/// Keeps what was dropped.
#[derive(Clone, Debug, Default)]
pub struct Dropped {
    /// In order.
    pub packets: Vec<(TestPacket, DropReason)>,
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
}

/// One step of a test.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// A packet arrives.
    Enqueue {
        /// Its flow.
        flow: u32,
        /// Its bytes, 1 to [`LEN_MAX`].
        len: u64,
        /// Its class.
        class: u8,
        /// Its ECN field.
        ecn: Ecn,
    },
    /// The host asks for a packet.
    Dequeue,
    /// Time passes.
    Advance(Duration),
    /// Time passes up to the timer, if there is one ahead.
    AwaitTimer,
    /// The rate of a shaper changes; nothing happens to other disciplines.
    SetRate(Option<Rate>),
}

/// A discipline under test with all that is known about it from outside.
pub struct Model {
    spec: Spec,
    subject: Subject,
    now: Timestamp,
    sequence: u64,
    /// What must stand in the queue, by sequence number.
    queued: BTreeMap<u64, TestPacket>,
    backlog: Backlog,
    /// The last packet that left each stream whose order must be kept.
    last_out: BTreeMap<Stream, u64>,
    meter: Meter,
}

enum Subject {
    Plain(Box<dyn Qdisc<TestPacket> + Send>),
    Shaper(Box<Shaper<TestPacket>>),
}

/// Packets that must leave in the order in which they came: of one class and flow, where the
/// discipline tells classes and flows apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stream {
    class: Option<u8>,
    flow: Option<u32>,
}

/// A leaky bucket that fills by what a shaper sends and leaks at its rate.
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
        let subject = if spec.kind == "shaper" {
            let params = ShaperParams::from_spec(&spec)?;
            let inner = spec.nested("inner")?.unwrap_or_else(|| Spec::named("fifo"));
            let mut shaper = Shaper::new(qdisc::build(&inner)?, params);
            let rate = spec.rate("rate")?;
            shaper.set_rate(Timestamp::ZERO, rate);
            meter.set_rate(rate, params);
            Subject::Shaper(Box::new(shaper))
        } else {
            Subject::Plain(plain)
        };
        Ok(Self {
            spec,
            subject,
            now: Timestamp::ZERO,
            sequence: 0,
            queued: BTreeMap::new(),
            backlog: Backlog::default(),
            last_out: BTreeMap::new(),
            meter,
        })
    }

    /// The time of the model.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// What stands in the queue.
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
        if let Subject::Shaper(shaper) = &mut self.subject {
            shaper.set_rate(now, rate);
            let params = ShaperParams::from_spec(&self.spec).expect("accepted before");
            self.meter.set_rate(rate, params);
        }
    }

    fn enqueue(&mut self, flow: u32, len: u64, class: u8, ecn: Ecn) {
        let len = ByteCount::new(len.clamp(1, LEN_MAX));
        let packet = TestPacket { flow, sequence: self.sequence, len, class, ecn };
        self.sequence += 1;
        self.backlog.add(packet.len);
        self.queued.insert(packet.sequence, packet.clone());
        let (now, mut drops) = (self.now, Dropped::default());
        self.qdisc().enqueue(now, packet, &mut drops);
        for (packet, reason) in drops.packets {
            assert_eq!(reason, DropReason::Overlimit, "an arrival can only overfill the queue");
            if drops_singly(&self.spec) {
                let limit = self.spec.limit("limit").ok().flatten();
                let limit = limit.expect("these disciplines have a limit");
                assert!(self.backlog.exceeds(limit), "dropped although there was room");
            }
            self.leaves(&packet);
        }
    }

    fn dequeue(&mut self) -> Option<TestPacket> {
        let (now, before, mut drops) = (self.now, self.backlog, Dropped::default());
        let is_due = self.qdisc().next_timer().is_some_and(|timer| timer <= now);
        let out = self.qdisc().dequeue(now, &mut drops);
        for (packet, _) in &drops.packets {
            self.leaves(packet);
        }
        assert!(
            is_due == (out.is_some() || !drops.packets.is_empty()),
            "next_timer said due = {is_due} with {before:?} queued, but {out:?} left"
        );
        if let Some(packet) = &out {
            self.leaves(packet);
            self.departs(packet);
        } else if is_work_conserving(&self.spec) {
            assert_eq!(self.backlog.packets, 0, "nothing left a queue with a backlog");
        }
        out
    }

    /// `packet` is no longer queued, sent or dropped: it must have been, unchanged.
    fn leaves(&mut self, packet: &TestPacket) {
        let mut known = self.queued.remove(&packet.sequence).expect("left twice or never came");
        if packet.ecn == Ecn::Ce && known.ecn != Ecn::NotEct {
            known.ecn = Ecn::Ce;
        }
        assert_eq!(*packet, known, "changed in the queue");
        self.backlog.remove(packet.len);
    }

    fn departs(&mut self, packet: &TestPacket) {
        let stream = stream(&self.spec, packet);
        if let Some(previous) = self.last_out.insert(stream, packet.sequence) {
            assert!(previous < packet.sequence, "{packet:?} left after {previous} of {stream:?}");
        }
        if self.spec.kind == "prio" && is_work_conserving(&self.spec) {
            let class = band(&self.spec, packet);
            let overtaken = self.queued.values().find(|other| band(&self.spec, other) < class);
            assert_eq!(overtaken, None, "a higher class waits while {packet:?} leaves");
        }
        self.meter.fill(packet.len);
    }

    /// Packets and bytes in = out + dropped + queued, within the limits, with a timer iff useful.
    fn check_backlog(&mut self) {
        let (now, backlog) = (self.now, self.backlog);
        assert_eq!(self.qdisc().backlog(), backlog);
        assert!(capacity(&self.spec).holds(backlog), "{backlog:?} exceeds {}", self.spec);
        let timer = self.qdisc().next_timer();
        if backlog.packets == 0 {
            assert_eq!(timer, None, "a timer on an empty queue");
        } else if is_work_conserving(&self.spec) {
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

/// The most that a discipline may hold; `None`: not bounded in this unit.
#[derive(Clone, Copy)]
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

fn filled(spec: &Spec) -> Spec {
    spec.with_defaults(qdisc::discipline(spec).expect("accepted before").params)
}

fn children(spec: &Spec) -> Vec<Spec> {
    let inner = spec.nested("inner").ok().flatten();
    let bands = spec.nested_list("bands").ok().flatten();
    inner.into_iter().chain(bands.into_iter().flatten()).map(|child| filled(&child)).collect()
}

fn capacity(spec: &Spec) -> Capacity {
    let nested = children(spec).iter().map(capacity).reduce(Capacity::plus);
    nested.unwrap_or_else(|| {
        let memory = spec.bytes("memory").ok().flatten().map(ByteCount::as_u64);
        match spec.limit("limit").ok().flatten() {
            Some(Limit::Packets(packets)) => Capacity { packets: Some(packets), bytes: memory },
            Some(Limit::Bytes(bytes)) => Capacity { packets: None, bytes: Some(bytes.as_u64()) },
            None => Capacity { packets: None, bytes: memory },
        }
    })
}

fn is_work_conserving(spec: &Spec) -> bool {
    spec.kind != "shaper" && children(spec).iter().all(is_work_conserving)
}

/// Whether each drop on arrival must have been needed: no batches, no limit of a single flow.
fn drops_singly(spec: &Spec) -> bool {
    match spec.kind.as_str() {
        "fifo" | "codel" | "drr" => true,
        "sfq" => !spec.params.contains_key("depth"),
        _ => false,
    }
}

fn band(spec: &Spec, packet: &TestPacket) -> usize {
    usize::from(packet.class).min(children(spec).len().saturating_sub(1))
}

fn stream(spec: &Spec, packet: &TestPacket) -> Stream {
    match spec.kind.as_str() {
        "prio" => {
            let band = band(spec, packet);
            Stream { class: Some(band as u8), ..stream(&children(spec)[band], packet) }
        }
        "shaper" => stream(&children(spec)[0], packet),
        "fifo" | "codel" => Stream { class: None, flow: None },
        _ => Stream { class: None, flow: Some(packet.flow) },
    }
}

/// Disciplines with small limits, so that short tests reach them: at least one of each kind.
pub fn specs() -> Vec<Spec> {
    let text = |text: &str| Value::Text(text.to_string());
    let named = Spec::named;
    let sfq = named("sfq").with("limit", text("20p")).with("perturb", text("100ms"));
    let mut specs = alloc::vec![
        named("fifo").with("limit", text("10p")),
        named("fifo").with("limit", text("20KB")),
        sfq.clone(),
        sfq.clone().with("headdrop", Value::Bool(true)).with("limit", text("70KB")),
        sfq.clone().with("divisor", Value::Integer(2)).with("quantum", text("300B")),
        sfq.clone().with("depth", Value::Integer(3)).with("headdrop", Value::Bool(true)),
        sfq.clone().with("depth", Value::Integer(3)).with("seed", Value::Integer(1)),
    ];
    let drr = named("drr").with("limit", text("20p"));
    let codel = named("codel").with("limit", text("30p")).with("target", text("1ms"));
    let codel = codel.with("interval", text("10ms"));
    let fq_codel = Spec { kind: "fq_codel".to_string(), ..codel.clone() };
    specs.extend([
        drr.clone(),
        drr.clone().with("limit", text("100KB")).with("quantum", text("500B")),
        drr.clone().with("flows", Value::Integer(1)),
        codel.clone(),
        codel.clone().with("ecn", Value::Bool(true)).with("limit", text("100KB")),
        fq_codel.clone(),
        fq_codel.clone().with("memory", text("70KB")).with("ecn", Value::Bool(false)),
        fq_codel.clone().with("flows", Value::Integer(2)).with("quantum", text("300B")),
    ]);
    let bands = |bands: &[&Spec]| {
        Value::List(bands.iter().map(|band| Value::Spec((*band).clone())).collect())
    };
    let shaper = named("shaper").with("rate", text("10Mbit/s"));
    specs.extend([
        shaper.clone().with("inner", Value::Spec(sfq.clone())),
        shaper.clone().with("burst", text("0s")).with("bucket", text("1514B")),
        shaper.clone().with("inner", Value::Spec(codel.clone())),
        named("prio").with("bands", bands(&[&sfq, &drr, &named("fifo")])),
        named("prio").with("bands", bands(&[&codel, &fq_codel])),
        named("prio").with("bands", bands(&[&shaper, &sfq])),
        shaper.clone().with("burst", text("64KB")).with("inner", Value::Spec(shaper)),
    ]);
    specs
}

/// Arbitrary operations, with few flows so that they meet.
pub fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let ecn = prop_oneof![Just(Ecn::NotEct), Just(Ecn::Ect0), Just(Ecn::Ect1), Just(Ecn::Ce)];
    let len = prop_oneof![4 => 1u64..=1514, 1 => 1..=LEN_MAX];
    let enqueue = (0u32..6, len, 0u8..4, ecn)
        .prop_map(|(flow, len, class, ecn)| Operation::Enqueue { flow, len, class, ecn });
    // Up to 20 ms, beyond CoDel's target and a shaper's burst, and rarely seconds.
    let advance = prop_oneof![4 => 0u64..20_000_000, 1 => 0u64..3_000_000_000];
    let rate = prop_oneof![Just(0u64), 1u64..=1_000_000_000_000];
    let operation = prop_oneof![
        6 => enqueue,
        4 => Just(Operation::Dequeue),
        3 => advance.prop_map(|nanos| Operation::Advance(Duration::from_nanos(nanos))),
        1 => Just(Operation::AwaitTimer),
        1 => proptest::option::of(rate)
            .prop_map(|rate| Operation::SetRate(rate.map(Rate::from_bits_per_sec))),
    ];
    proptest::collection::vec(operation, 1..300)
}

/// Reads a spec and operations from arbitrary bytes, for fuzzing: the first byte picks one of
/// [`specs`], then each operation takes one byte for its kind and up to four for its values.
pub fn decode(bytes: &[u8]) -> Option<(Spec, Vec<Operation>)> {
    let (&choice, mut rest) = bytes.split_first()?;
    let specs = specs();
    let spec = specs[usize::from(choice) % specs.len()].clone();
    let mut operations = Vec::new();
    while let Some((&kind, values)) = rest.split_first() {
        let (operation, taken) = decode_operation(kind, values);
        rest = &values[taken.min(values.len())..];
        operations.push(operation);
    }
    Some((spec, operations))
}

/// The operation and how many of `values` it took; missing values read as zero.
fn decode_operation(kind: u8, values: &[u8]) -> (Operation, usize) {
    let value = |index: usize| u64::from(values.get(index).copied().unwrap_or(0));
    // A mantissa of 8 bits and an exponent reach 1 ns to minutes, and 1 bit/s to Tbit/s.
    let scaled = || value(0) << (value(1) % 34);
    match kind % 8 {
        0..=3 => {
            let ecn = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce][usize::from(kind >> 6)];
            let class = (kind >> 3) & 7;
            let len = value(1) << 8 | value(2);
            (Operation::Enqueue { flow: value(0) as u32 % 16, len, class, ecn }, 3)
        }
        4 | 5 => (Operation::Dequeue, 0),
        6 if kind & 8 == 0 => (Operation::Advance(Duration::from_nanos(scaled())), 2),
        6 => (Operation::AwaitTimer, 0),
        _ if kind & 8 == 0 => (Operation::SetRate(Some(Rate::from_bits_per_sec(scaled()))), 2),
        _ => (Operation::SetRate(None), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    #[test]
    fn every_discipline_is_among_the_specs() {
        for entry in qdisc::DISCIPLINES {
            assert!(specs().iter().any(|spec| spec.kind == entry.name), "{}", entry.name);
        }
    }

    /// The bytes that each flow gets out of `total` when flow `n` always has packets of `lens[n]`
    /// bytes waiting. Time stands still, so that CoDel is content.
    fn shares(spec: &Spec, lens: &[u64], total: u64) -> Vec<u64> {
        let mut model = Model::new(spec).expect("a valid spec");
        let arrival = |flow: usize| Operation::Enqueue {
            flow: flow as u32,
            len: lens[flow],
            class: 0,
            ecn: Ecn::NotEct,
        };
        // More than a quantum of each, however small its packets.
        for flow in (0..lens.len()).cycle().take(lens.len() * 100) {
            model.apply(&arrival(flow));
        }
        let mut shares = alloc::vec![0; lens.len()];
        while shares.iter().sum::<u64>() < total {
            let packet = model.apply(&Operation::Dequeue).expect("always backlogged");
            shares[packet.flow as usize] += packet.len.as_u64();
            model.apply(&arrival(packet.flow as usize));
        }
        shares
    }

    fn spread(shares: &[u64]) -> u64 {
        shares.iter().max().unwrap_or(&0) - shares.iter().min().unwrap_or(&0)
    }

    #[test]
    fn a_fifo_shares_by_packets_so_the_fairness_tests_can_fail() {
        let shares = shares(&Spec::named("fifo"), &[1500, 60], 1_000_000);
        assert!(shares[0] > 20 * shares[1], "{shares:?}");
    }

    /// Any text that a plan may contain, near the grammar of quantities and far from it.
    fn texts() -> impl Strategy<Value = String> {
        prop_oneof!["[0-9]{1,20}(p|B|KB|GB|ms|s|min|bit/s|Gbit/s|%)?", "\\PC{0,12}"]
    }

    proptest! {
        #[test]
        fn every_discipline_keeps_the_rules(operations in operations()) {
            for spec in specs() {
                let mut model = Model::new(&spec).expect("a valid spec");
                for operation in &operations {
                    model.apply(operation);
                }
            }
        }

        #[test]
        fn backlogged_flows_get_the_same_bytes_whatever_their_packet_sizes(
            lens in prop::collection::vec(60u64..9000, 2..6),
            quantum in 1514u64..9000,
        ) {
            for kind in ["sfq", "drr", "fq_codel"] {
                let quantum_text = Value::Text(format!("{quantum}B"));
                let spec = Spec::named(kind).with("quantum", quantum_text);
                let shares = shares(&spec, &lens, 500_000);
                // Fairness measure of DRR (Shreedhar and Varghese, theorem 3): quantum + 2 x max.
                let bound = quantum + 2 * lens.iter().max().unwrap_or(&0);
                prop_assert!(spread(&shares) <= bound, "{kind}: {shares:?} of {lens:?}");
            }
        }

        #[test]
        fn any_value_of_a_parameter_is_taken_or_refused_by_name(text in texts()) {
            for entry in qdisc::DISCIPLINES {
                for param in entry.params {
                    let spec = Spec::named(entry.name)
                        .with("rate", Value::Text("1Mbit/s".into()))
                        .with(param.name, Value::Text(text.clone()));
                    let takes_rate = entry.params.iter().any(|param| param.name == "rate");
                    let params = spec.params.into_iter();
                    let params = params.filter(|(name, _)| takes_rate || name != "rate").collect();
                    let spec = Spec { kind: spec.kind, params };
                    if let Err(error) = qdisc::build::<TestPacket>(&spec) {
                        let is_named = error.key.split(['.', '[']).next() == Some(param.name);
                        // A prio lacks its bands, and an interval must not be below the target.
                        let is_related = matches!(error.key.as_str(), "bands" | "interval");
                        prop_assert!(is_named || is_related, "{spec}: {error}");
                        prop_assert!(!error.allowed.is_empty());
                    }
                }
            }
        }
    }

    #[test]
    fn every_default_is_taken_when_written_out() {
        for entry in qdisc::DISCIPLINES.iter().filter(|entry| entry.name != "prio") {
            let mut spec = Spec::named(entry.name);
            if entry.name == "shaper" {
                spec = spec.with("rate", Value::Text("1Mbit/s".into()));
            }
            let spec = spec.with_defaults(entry.params);
            let built = qdisc::build::<TestPacket>(&spec).map(|_| ());
            assert_eq!(built, Ok(()), "{spec}");
        }
    }
}
