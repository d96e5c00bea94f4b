//! Queueing disciplines: the sendbox schedules with them, and the emulated bottleneck queues in them.
//!
//! One trait, one file per discipline, one registry ([`DISCIPLINES`], [`build`]) with a line each.

mod bands;
mod buffer;
mod check;
mod classify;
mod deficit;
mod flows;
mod limit;
mod longest;
mod marking;
mod params;
mod periods;
mod pool;
mod round;
mod sparse;
mod turns;
mod weights;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::packet::{Ecn, Packet};
use crate::random::Ns3Stream;
use crate::spec::{Parameter, Spec, SpecError, Value, one_of};
use crate::units::{ByteCount, Duration, Limit, Rate, Timestamp};

pub use check::check;
pub use classify::{Classifier, RULE};
pub use codel::{CodelParams, CodelQueue};
pub use drr::{Drr, DrrParams};
pub use dualpi2::DualPi2;
pub use ets::Ets;
pub use fifo::Fifo;
pub use fq_codel::{FqCodel, FqCodelParams};
pub use las::{Las, LasParams};
pub use limit::FLOOR_PACKETS;
pub use marking::Marking;
pub(crate) use params::MTU;
pub use pie::{Pie, PieParams};
pub use policer::Policer;
pub use red::{Red, RedParams};
pub use sfq::{Sfq, SfqParams};
pub use shaper::{Burst, Shaper, ShaperParams};
pub use sparse::SparseWait;
pub use weights::Weights;

/// Why a queue gave up a packet: it dropped the packet or, where noted, marked it instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The queue was at its limit.
    Overlimit,
    /// CoDel's control law (RFC 8289 section 5).
    Codel,
    /// Drawn by PIE (RFC 8033 section 4.1), by DualPI2 (RFC 9332 section 2.4) or by RED below its upper threshold.
    Early,
    /// RED's average length was above its upper threshold, or a mark was due without a draw (`mark`, `l4s`, and
    /// the step of `dualpi2`).
    Forced,
    /// A policer had too few tokens.
    Policed,
    /// An acknowledgement replaced by a later one of the same connection.
    Superseded,
}

/// Packets counted by [`DropReason`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct ByReason {
    /// Of [`DropReason::Overlimit`].
    pub overlimit: u64,
    /// Of [`DropReason::Codel`].
    pub codel: u64,
    /// Of [`DropReason::Early`].
    pub early: u64,
    /// Of [`DropReason::Forced`].
    pub forced: u64,
    /// Of [`DropReason::Policed`].
    pub policed: u64,
    /// Of [`DropReason::Superseded`].
    #[cfg_attr(feature = "serde", serde(default))]
    pub superseded: u64,
}

impl ByReason {
    /// Counts one packet.
    pub fn add(&mut self, reason: DropReason) {
        let count = match reason {
            DropReason::Overlimit => &mut self.overlimit,
            DropReason::Codel => &mut self.codel,
            DropReason::Early => &mut self.early,
            DropReason::Forced => &mut self.forced,
            DropReason::Policed => &mut self.policed,
            DropReason::Superseded => &mut self.superseded,
        };
        *count += 1;
    }

    /// Sum over all reasons.
    pub fn total(self) -> u64 {
        self.overlimit + self.codel + self.early + self.forced + self.policed + self.superseded
    }
}

/// Takes the packets that a qdisc drops, so that every host counts them the same way.
pub trait DropSink<P> {
    /// `packet` left the queue unsent.
    fn dropped(&mut self, packet: P, reason: DropReason);
    /// A packet that would have been dropped for `reason` was marked congestion experienced and stays in the
    /// queue. Hosts that count no marks may ignore this.
    fn marked(&mut self, reason: DropReason) {
        let _ = reason;
    }
}

/// Marks `packet` and reports it to `drops`; `false` if it is not ECN-capable and must be dropped. A packet
/// that arrived with a mark counts as marked here (Linux' INET_ECN_set_ce).
fn mark<P: Packet>(packet: &mut P, reason: DropReason, drops: &mut dyn DropSink<P>) -> bool {
    match packet.ecn() {
        Ecn::NotEct => return false,
        Ecn::Ect0 | Ecn::Ect1 => packet.set_ce(),
        Ecn::Ce => {}
    }
    drops.marked(reason);
    true
}

/// Contents of a queue, children included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Packets in the queue.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: ByteCount,
}

impl Backlog {
    /// One packet of `len` bytes more.
    pub fn with(self, len: ByteCount) -> Self {
        Self { packets: self.packets + 1, bytes: self.bytes + len }
    }

    /// Counts a packet of `len` bytes in.
    pub fn add(&mut self, len: ByteCount) {
        *self = self.with(len);
    }

    /// Counts a packet of `len` bytes out.
    pub fn remove(&mut self, len: ByteCount) {
        self.packets -= 1;
        self.bytes -= len;
    }

    /// [`Qdisc::next_timer`] of a work-conserving discipline: now, if anything waits.
    fn ready(self) -> Option<Timestamp> {
        (self.packets > 0).then_some(Timestamp::ZERO)
    }
}

/// A queueing discipline. It stores enqueue times itself and allocates nothing per packet once warm.
pub trait Qdisc<P: Packet> {
    /// Takes `packet`; a packet that does not fit, this or another, goes to `drops`.
    fn enqueue(&mut self, now: Timestamp, packet: P, drops: &mut dyn DropSink<P>);
    /// The next packet to send. May drop and still return `None`.
    fn dequeue(&mut self, now: Timestamp, drops: &mut dyn DropSink<P>) -> Option<P>;
    /// The earliest useful next `dequeue`; `None`: only after an `enqueue`. The default suits a
    /// work-conserving qdisc, which with a backlog answers a time that has passed.
    fn next_timer(&self) -> Option<Timestamp> {
        self.backlog().ready()
    }
    /// Contents of the queue, recursively.
    fn backlog(&self) -> Backlog;
    /// Number of flows that take turns. It may include a flow that has just emptied. `None`: the qdisc does not
    /// distinguish flows.
    fn flows(&self) -> Option<u32> {
        None
    }
    /// The queue is served at `rate` from now on; `None`: not known, or without a limit. Limits in
    /// time follow it; nothing is dropped before the next arrival.
    fn set_service_rate(&mut self, rate: Option<Rate>);
    /// The least round trip of the path is this, for parameters that follow it.
    fn set_path_rtt(&mut self, rtt: Duration) {
        let _ = rtt;
    }
}

impl<P: Packet> Qdisc<P> for Box<dyn Qdisc<P> + Send> {
    fn enqueue(&mut self, now: Timestamp, packet: P, drops: &mut dyn DropSink<P>) {
        (**self).enqueue(now, packet, drops);
    }
    fn dequeue(&mut self, now: Timestamp, drops: &mut dyn DropSink<P>) -> Option<P> {
        (**self).dequeue(now, drops)
    }
    fn next_timer(&self) -> Option<Timestamp> {
        (**self).next_timer()
    }
    fn backlog(&self) -> Backlog {
        (**self).backlog()
    }
    fn flows(&self) -> Option<u32> {
        (**self).flows()
    }
    fn set_service_rate(&mut self, rate: Option<Rate>) {
        (**self).set_service_rate(rate);
    }
    fn set_path_rtt(&mut self, rtt: Duration) {
        (**self).set_path_rtt(rtt);
    }
}

/// One entry of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Discipline {
    /// Name as written in plans.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Papers, RFCs and kernel files.
    pub sources: &'static [&'static str],
    /// Parameters that a specification may set.
    pub params: &'static [&'static dyn Parameter],
}

/// Result of a discipline's `build`.
type Built<P> = Result<Box<dyn Qdisc<P> + Send>, SpecError>;

/// Declares a module for each name, lists its `DISCIPLINE`, and calls its `build` for the disciplines of that kind.
macro_rules! disciplines {
    ($($name:ident,)*) => {
        $(mod $name;)*

        /// All disciplines, in the order of listings for people.
        pub const DISCIPLINES: &[Discipline] = &[$($name::DISCIPLINE),*];

        /// Builds the discipline of `spec`, which is a kind of [`DISCIPLINES`]. It and those in it are at most
        /// `levels` deep.
        fn build_kind<P: Packet + Send + 'static>(spec: &Spec, levels: usize) -> Built<P> {
            $(if spec.kind == $name::DISCIPLINE.name {
                return $name::build(spec, levels);
            })*
            unreachable!("{} is no discipline", spec.kind)
        }
    };
}

disciplines! {
    fifo,
    sfq,
    drr,
    las,
    codel,
    fq_codel,
    pie,
    red,
    dualpi2,
    prio,
    ets,
    shaper,
    policer,
}

/// The default discipline of a bundle. At any rate from 2 to 500 Mbit/s one bulk flow alone waits no longer
/// than at a bottleneck's own buffer of three bandwidth-delay products. It loses no throughput, and short
/// flows do not wait for it (docs/evidence/evaluation.md). The target is a tenth of the interval, as in RFC 8289
/// section 4.3; at that section's 5 ms one Cubic flow with 50 ms of round trip loses 7 % of a link of 100
/// Mbit/s. The limit matters only for flows that ignore drops.
pub fn bundle_default() -> Spec {
    let text = |text: &str| Value::Text(String::from(text));
    Spec::named("fq_codel")
        .with("limit", text("150ms"))
        .with("target", text("25ms"))
        .with("interval", text("250ms"))
        .with("follow_rtt", Value::Bool(true))
}

/// The discipline of a bundle as an operator writes it in a box's file. An `fq_codel` gets the missing
/// parameters from [`bundle_default`], so that writing the kind out changes nothing.
pub fn of_bundle(written: Spec) -> Spec {
    let default = bundle_default();
    if written.kind != default.kind {
        return written;
    }
    Spec { params: default.params.into_iter().chain(written.params).collect(), ..written }
}

/// A specification with every parameter that has a default, written out.
///
/// # Errors
///
/// There is no discipline of its kind.
pub fn written_out(spec: &Spec) -> Result<Spec, SpecError> {
    Ok(spec.with_defaults(discipline(spec)?.params))
}

/// How deep disciplines may be nested: a shaper over prio over a shaper over a queue is 4.
const NESTING_MAX: usize = 4;

/// Builds the discipline that `spec` describes. The error names the parameter, with the path to it when it
/// stands in a nested discipline, and the allowed values.
pub fn build<P: Packet + Send + 'static>(spec: &Spec) -> Built<P> {
    build_nested(spec, NESTING_MAX)
}

/// Stream of the draws of a qdisc on link 0 in ns-3, as the back end `ns3` and `cargo xtask ns3-runs` set it.
const NS3_STREAM: u64 = 2000;
/// Bits of a seed that hold the run of ns-3; the link is above.
const NS3_RUN_BITS: u32 = 32;

/// The parameter `seed` of a discipline as in ns-3, for link `link` in run `run`.
pub fn ns3_seed(link: u32, run: u64) -> u64 {
    u64::from(link & 0xff) << NS3_RUN_BITS | run & u64::from(u32::MAX)
}

/// The draws of a discipline with this `seed` in ns-3.
fn ns3_stream(seed: u64) -> Ns3Stream {
    Ns3Stream::new(NS3_STREAM + (seed >> NS3_RUN_BITS), seed & u64::from(u32::MAX))
}

/// Builds the discipline that `spec` describes as ns-3.37 has it. CoDel, FQ-CoDel, PIE and RED differ there; all
/// other disciplines are the same as by [`build`], and so are the errors.
pub fn build_as_ns3<P: Packet + Send + 'static>(spec: &Spec) -> Built<P> {
    let built = build(spec)?;
    let spec = &spec.with_defaults(discipline(spec)?.params);
    Ok(match spec.kind.as_str() {
        "codel" => codel::as_ns3(spec)?,
        "fq_codel" => {
            let mut params = FqCodelParams::from_spec(spec)?;
            params.codel.as_ns3 = true;
            Box::new(FqCodel::new(params))
        }
        "pie" => Box::new(Pie::new(PieParams { as_ns3: true, ..PieParams::from_spec(spec)? })),
        "red" => Box::new(Red::new(RedParams { as_ns3: true, ..RedParams::from_spec(spec)? })),
        _ => built,
    })
}

/// The registry entry of `spec`.
pub fn discipline(spec: &Spec) -> Result<&'static Discipline, SpecError> {
    DISCIPLINES.iter().find(|entry| entry.name == spec.kind).ok_or_else(|| {
        let names: Vec<&str> = DISCIPLINES.iter().map(|entry| entry.name).collect();
        SpecError::new("kind", &spec.kind, &one_of(&spec.kind, &names))
    })
}

/// Whether the discipline of `spec` has the parameter `name`.
fn takes(spec: &Spec, name: &str) -> bool {
    discipline(spec).is_ok_and(|entry| entry.params.iter().any(|param| param.name() == name))
}

/// Refuses limits in time in a queue that is served at no constant rate: a link that follows a trace or has
/// no limit. A shaper in between that has a rate makes them valid.
pub fn check_without_rate(spec: &Spec) -> Result<(), SpecError> {
    if spec.kind == "shaper" {
        return Ok(());
    }
    if let Some(limit @ Limit::Time(_)) = spec.value("limit")? {
        let allowed =
            "packets or bytes, such as \"1200p\" or \"1800KB\": no constant rate, no limit in time";
        return Err(SpecError::new("limit", &alloc::format!("{limit}"), allowed));
    }
    if let Some(inner) = spec.nested("inner")? {
        check_without_rate(&inner).map_err(|error| error.within("inner"))?;
    }
    for (index, band) in spec.nested_list("bands")?.into_iter().flatten().enumerate() {
        let within = |error: SpecError| error.within(&alloc::format!("bands[{index}]"));
        check_without_rate(&band).map_err(within)?;
    }
    Ok(())
}

/// `spec` with `seed` given to every discipline in it that takes one,
/// where none is written.
pub fn seeded(spec: &Spec, seed: u64) -> Spec {
    let mut spec = spec.clone();
    if takes(&spec, "seed") {
        let text = || Value::Text(alloc::format!("{seed}"));
        spec.params.entry(String::from("seed")).or_insert_with(text);
    }
    for value in spec.params.values_mut() {
        match value {
            Value::Spec(nested) => *nested = seeded(nested, seed),
            Value::Text(name) if discipline(&Spec::named(name)).is_ok() => {
                *value = Value::Spec(seeded(&Spec::named(name), seed));
            }
            Value::List(values) => values.iter_mut().for_each(|value| match value {
                Value::Spec(nested) => *nested = seeded(nested, seed),
                Value::Text(name) if discipline(&Spec::named(name)).is_ok() => {
                    *value = Value::Spec(seeded(&Spec::named(name), seed));
                }
                _ => {}
            }),
            _ => {}
        }
    }
    spec
}

fn build_nested<P: Packet + Send + 'static>(spec: &Spec, levels: usize) -> Built<P> {
    if levels == 0 {
        let allowed = alloc::format!("at most {NESTING_MAX} nested disciplines");
        return Err(SpecError::new("kind", &spec.kind, &allowed));
    }
    let entry = discipline(spec)?;
    spec.check_names(entry.params)?;
    let spec = &spec.with_defaults(entry.params);
    build_kind(spec, levels)
}

fn build_inner<P: Packet + Send + 'static>(spec: &Spec, levels: usize) -> Built<P> {
    let inner = given(spec, "inner", spec.nested("inner"))?;
    build_nested(&inner, levels - 1).map_err(|error| error.within("inner"))
}

/// Refuses a missing value.
fn given<T>(spec: &Spec, name: &str, found: Result<Option<T>, SpecError>) -> Result<T, SpecError> {
    found?.ok_or_else(|| SpecError::absent(name, &spec.kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::qdisc::TestPacket;

    fn refusal(spec: &Spec) -> String {
        alloc::format!("{}", build::<TestPacket>(spec).err().expect("refused"))
    }

    #[test]
    fn unknown_kinds_and_parameters_are_refused_with_alternatives() {
        assert!(refusal(&Spec::named("cake")).contains("one of fifo, sfq, drr"));
        let spec = Spec::named("fifo").with("limmit", Value::Text("10p".into()));
        assert!(refusal(&spec).contains("one of limit"));
        let spec = Spec::named("fifo").with("limit", Value::Integer(10));
        assert_eq!(
            refusal(&spec),
            "limit = 10: allowed is 1p to 1000000p, 1514B to 1GB, or 1ms to 10s of the rate \
             (at least 10 packets)"
        );
        let nested = Spec::named("fifo").with("limit", Value::Text("0p".into()));
        let spec = Spec::named("shaper")
            .with("rate", Value::Text("1Mbit/s".into()))
            .with("inner", Value::Spec(nested));
        assert!(refusal(&spec).starts_with("inner.limit = \"0p\": allowed is 1p to"));
    }

    #[test]
    fn a_limit_in_time_needs_a_rate() {
        let text = |text: &str| Value::Text(text.into());
        let fifo = Spec::named("fifo").with("limit", text("150ms"));
        let shaper = Spec::named("shaper").with("rate", text("1Mbit/s"));
        let shaper = shaper.with("inner", Value::Spec(fifo.clone()));
        let bands = |last: &Spec| {
            let bands = [text("sfq"), Value::Spec(shaper.clone()), Value::Spec(last.clone())];
            Spec::named("prio").with("bands", Value::List(bands.into()))
        };
        assert_eq!(check_without_rate(&shaper), Ok(()));
        assert_eq!(check_without_rate(&bands(&shaper)), Ok(()));
        let error = check_without_rate(&bands(&fifo)).unwrap_err().to_string();
        assert!(
            error.starts_with("bands[2].limit = 150ms: allowed is packets or bytes"),
            "{error}"
        );
        for (limit, is_allowed) in [("1ms", true), ("10s", true), ("999us", false), ("11s", false)]
        {
            let built = build::<TestPacket>(&Spec::named("sfq").with("limit", text(limit)));
            assert_eq!(built.is_ok(), is_allowed, "{limit}");
        }
        let red = Spec::named("red").with("min_th", text("5ms"));
        assert!(refusal(&red).starts_with("min_th = \"5ms\": allowed is 1p to 1000000p, or 1514B"));
    }

    #[test]
    fn nesting_without_end_is_refused() {
        let mut spec = Spec::named("fifo");
        for _ in 0..NESTING_MAX {
            assert!(build::<TestPacket>(&spec).is_ok());
            spec = Spec::named("shaper")
                .with("rate", Value::Text("1Mbit/s".into()))
                .with("inner", Value::Spec(spec));
        }
        assert!(refusal(&spec).contains("at most 4"));
    }

    #[test]
    fn seed_reaches_nested_disciplines_and_keeps_written_ones() {
        let inner = Value::Text("sfq".into());
        let spec = seeded(&Spec::named("shaper").with("inner", inner), 7);
        assert_eq!(spec.to_string(), "shaper(inner=sfq(seed=7))");
        let written = Spec::named("sfq").with("seed", Value::Integer(3));
        assert_eq!(seeded(&written, 7), written);
    }
}
