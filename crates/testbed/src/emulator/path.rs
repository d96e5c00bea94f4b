//! One direction of the emulated path: a link, and the truth about it.

use std::path::Path as FilePath;
use std::sync::Arc;

use forebay_core::link::{Change, Config, Service, Trace};
use forebay_core::packet::{Ecn, Packet};
use forebay_core::qdisc::{self, Classifier, Qdisc};
use forebay_core::random::{Stream, Streams};
use forebay_core::spec::SpecError;
use forebay_core::units::{Duration, Rate, Ratio, Timestamp};

use super::EmulatorError;
use super::frame::{Frame, Pool};
use super::link::{Carried, Discard, Link};
use super::truth::{Released, Truth};
use crate::scenario::{LinkChange, LinkSpec};
use forebay_core::record::LinkRecord;

type EmulatedLink = Link<Frame, Box<dyn Qdisc<Carried<Frame>> + Send>>;

/// One direction.
pub(super) struct Path {
    link: EmulatedLink,
    classifier: Classifier,
    message_loss: Ratio,
    message_loss_stream: Stream,
    routed: bool,
    truth: Truth,
    /// Frames of this round with the times at which they came.
    arrivals: Vec<(Timestamp, Frame)>,
}

impl Path {
    /// The link `name` as specified, `routed`, `out` and `keeps_headers` as in
    /// [`EmulatorSpec`](super::EmulatorSpec). It starts when [`Path::start`] says.
    pub fn new(
        name: &str,
        spec: &LinkSpec,
        seed: u64,
        routed: bool,
        out: Option<&FilePath>,
        keeps_headers: bool,
    ) -> Result<Self, EmulatorError> {
        let streams = Streams::new(seed).part(name);
        let config = config(spec).map_err(|error| error.at(name))?;
        let refused = |source: SpecError| EmulatorError::Link { name: name.to_string(), source };
        let queue = qdisc::seeded(&spec.qdisc, streams.stream("qdisc").bits());
        let in_qdisc = |error: SpecError| refused(error.within("qdisc"));
        let classifier = Classifier::from_spec(&queue).map_err(in_qdisc)?;
        if config.service.rate().is_none() {
            qdisc::check_without_rate(&queue).map_err(in_qdisc)?;
        }
        let queue = qdisc::build(&queue).map_err(in_qdisc)?;
        let link = Link::new(config, queue, Timestamp::MAX, &streams).map_err(refused)?;
        let message_loss = ratio("message_loss", spec.message_loss).map_err(refused)?;
        let message_loss_stream = streams.stream("message_loss");
        let truth = Truth::new(name, out, keeps_headers).map_err(EmulatorError::Log)?;
        let arrivals = Vec::new();
        Ok(Self { link, classifier, message_loss, message_loss_stream, routed, truth, arrivals })
    }

    /// The run starts at `start`: changes, trace and samples count from there.
    pub fn start(&mut self, start: Timestamp) {
        self.link.set_start(start);
        self.truth.sample_from(start);
    }

    /// A frame has arrived. Comes before [`Path::admit`], in any order.
    pub fn receive(&mut self, arrived: Timestamp, bytes: &[u8], pair: u16, pool: &mut Pool) {
        match pool.frame(bytes, pair) {
            Some(frame) => self.arrivals.push((arrived, frame)),
            None => self.truth.turned_away(),
        }
    }

    /// Lets the link live up to `now` with what was received since the last call, in the order in
    /// which it came at all ports. However late this call is, each frame finds the queue, and each
    /// sample shows it, as it was at that time.
    pub fn admit(&mut self, now: Timestamp, pool: &mut Pool) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        arrivals.sort_by_key(|(arrived, _)| *arrived);
        for (arrived, frame) in arrivals.drain(..) {
            self.sample(arrived, pool);
            self.offer(arrived, frame, pool);
        }
        self.arrivals = arrivals;
        self.sample(now, pool);
    }

    /// Takes the samples of the queue that are due by `now`.
    fn sample(&mut self, now: Timestamp, pool: &mut Pool) {
        while let Some(at) = self.truth.sample_due(now) {
            let truth = &mut self.truth;
            let queue = self.link.queue_at(at, &mut |gone| give_up(gone, truth, pool));
            self.truth.sample(at, queue);
        }
    }

    fn offer(&mut self, arrived: Timestamp, mut frame: Frame, pool: &mut Pool) {
        let Self { link, classifier, message_loss, message_loss_stream, routed, truth, .. } = self;
        frame.classify(classifier);
        // A frame that was on its way from the kernel during the last round comes in this one.
        let now = arrived.max(link.now());
        truth.arriving(now, &frame);
        // Drawn for messages only: the n-th of them meets the same fate whatever passes between.
        let lost = frame.is_message() && message_loss_stream.chance(message_loss.as_f64());
        let ends = *routed && frame.hops_left().is_some_and(|hops| hops <= 1);
        let mut give_up = |gone| give_up(gone, truth, pool);
        let arrival = if lost || ends {
            link.lose(now, frame, &mut give_up)
        } else {
            link.offer(now, frame, &mut give_up)
        };
        truth.arrived(arrival);
    }

    /// Hands the frames that are due at `now` to `send`, which answers false if it has no room;
    /// says whether there was any.
    pub fn release(
        &mut self,
        now: Timestamp,
        pool: &mut Pool,
        mut send: impl FnMut(&[u8], u16) -> bool,
    ) -> bool {
        let Self { link, routed, truth, .. } = self;
        let mut any = false;
        while let Some(delivery) = link.poll(now, &mut |gone| give_up(gone, truth, pool)) {
            let frame = delivery.packet;
            let ends = *routed && frame.hops_left().is_some_and(|hops| hops <= 2);
            truth.released(Released {
                number: delivery.number,
                bytes: frame.len().as_u64(),
                arrived: delivery.arrived,
                departed: delivery.departed,
                due: delivery.due,
                backlogged: delivery.backlogged,
                marked: frame.ecn() == Ecn::Ce,
                sent: ends || send(frame.bytes(), frame.pair),
            });
            pool.recycle(frame);
            any = true;
        }
        any
    }

    /// What was released since the last call was on its way at `now`.
    pub fn stamp(&mut self, now: Timestamp) {
        self.truth.stamp(now);
    }

    /// When something can be due next.
    pub fn next_timer(&self) -> Option<Timestamp> {
        self.link.next_timer()
    }

    /// The record; `ring_drops` are those of the ports that feed this direction.
    pub fn finish(self, ring_drops: u64) -> Result<LinkRecord, EmulatorError> {
        self.truth.finish(self.link.counters(), ring_drops).map_err(EmulatorError::Log)
    }
}

fn give_up(gone: Discard<Frame>, truth: &mut Truth, pool: &mut Pool) {
    truth.gave_up(gone.number, gone.cause);
    pool.recycle(gone.packet);
}

/// Why a link cannot be built, before its name is known.
enum Refusal {
    Spec(SpecError),
    Trace(forebay_core::text::TextError),
    Read { path: std::path::PathBuf, source: std::io::Error },
}

impl Refusal {
    fn at(self, name: &str) -> EmulatorError {
        let name = name.to_string();
        match self {
            Self::Spec(source) => EmulatorError::Link { name, source },
            Self::Trace(source) => EmulatorError::Trace { name, source },
            Self::Read { path, source } => EmulatorError::ReadTrace { name, path, source },
        }
    }
}

fn config(spec: &LinkSpec) -> Result<Config, Refusal> {
    let service = match (&spec.trace, spec.rate_bps) {
        (Some(path), None) => Service::Trace(Arc::new(read_trace(path)?)),
        (None, Some(bits)) => Service::Rate(Rate::from_bits_per_sec(bits)),
        (None, None) => Service::Unlimited,
        (Some(_), Some(bits)) => {
            let rate = Rate::from_bits_per_sec(bits).to_string();
            let error = SpecError::new("rate", &rate, "either a rate or a trace");
            return Err(Refusal::Spec(error));
        }
    };
    let changes = spec.changes.iter().map(change).collect::<Result<_, _>>();
    Ok(Config {
        service,
        delay: Duration::from_nanos(spec.delay_ns),
        jitter: Duration::from_nanos(spec.jitter_ns),
        batch: Duration::from_nanos(spec.batch_ns),
        loss: ratio("loss", spec.loss).map_err(Refusal::Spec)?,
        reorder: ratio("reorder", spec.reorder).map_err(Refusal::Spec)?,
        reorder_packets: spec.reorder_packets,
        changes: changes.map_err(Refusal::Spec)?,
    })
}

fn change(spec: &LinkChange) -> Result<Change, SpecError> {
    Ok(Change {
        at: Duration::from_nanos(spec.at_ns),
        rate: spec.rate_bps.map(Rate::from_bits_per_sec),
        delay: spec.delay_ns.map(Duration::from_nanos),
        loss: spec.loss.map(|loss| ratio("loss", loss)).transpose()?,
    })
}

pub(super) fn ratio(key: &str, value: f64) -> Result<Ratio, SpecError> {
    Ratio::new(value).ok_or_else(|| SpecError::new(key, &value.to_string(), "a share from 0 to 1"))
}

fn read_trace(path: &FilePath) -> Result<Trace, Refusal> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| Refusal::Read { path: path.to_path_buf(), source })?;
    Trace::parse(&path.display().to_string(), &text).map_err(Refusal::Trace)
}

#[cfg(test)]
mod tests {
    use forebay_core::record::PacketRecord;
    use forebay_core::spec::{Spec, Value};

    use super::*;
    use crate::emulator::{packets_file, read_packets};

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    /// What happened to frames of 1000 bytes that came at `arrivals` (ms, pair) on a link of
    /// 1 Mbit/s with a queue of two packets, if the emulator looked at `rounds` (ms).
    fn log(arrivals: &[(u64, u16)], rounds: &[u64]) -> (LinkRecord, Vec<PacketRecord>) {
        let dir = tempfile::tempdir().unwrap();
        let spec = LinkSpec {
            rate_bps: Some(1_000_000),
            trace: None,
            delay_ns: 0,
            jitter_ns: 0,
            batch_ns: 0,
            loss: 0.0,
            message_loss: 0.0,
            reorder: 0.0,
            reorder_packets: 0,
            qdisc: Spec::named("fifo").with("limit", Value::Text("2p".into())),
            changes: Vec::new(),
        };
        let mut path = Path::new("forward", &spec, 1, false, Some(dir.path()), false).ok().unwrap();
        let mut pool = Pool::default();
        path.start(ms(0));
        let mut seen = 0;
        for round in rounds {
            // Port by port, as the emulator reads them.
            let came = arrivals.iter().filter(|(at, _)| (seen..*round).contains(at));
            let mut came: Vec<_> = came.collect();
            came.sort_by_key(|(_, pair)| *pair);
            for (at, pair) in came {
                path.receive(ms(*at), &[*pair as u8; 1000], *pair, &mut pool);
            }
            path.admit(ms(*round), &mut pool);
            path.release(ms(*round), &mut pool, |_, _| true);
            path.stamp(ms(*round));
            seen = *round;
        }
        let record = path.finish(0).ok().unwrap();
        let packets = read_packets(&packets_file(dir.path(), "forward")).unwrap();
        (record, packets)
    }

    #[test]
    fn a_late_emulator_finds_the_same_queue_and_the_same_drops() {
        // A frame takes 8 ms: the queue of two is full in between.
        let arrivals = [(1, 1), (2, 0), (3, 1), (4, 0), (12, 0), (13, 1), (40, 1), (41, 0)];
        let every_ms: Vec<u64> = (1..=80).collect();
        let (in_time, packets) = log(&arrivals, &every_ms);
        let (late, late_packets) = log(&arrivals, &[80]);
        let truth = |packets: Vec<PacketRecord>| -> Vec<_> {
            packets.into_iter().map(|it| PacketRecord { released_ns: 0, ..it }).collect()
        };
        assert_eq!(truth(late_packets), truth(packets));
        assert_eq!(late.queue, in_time.queue);
        assert_eq!((late.drops_queue, in_time.drops_queue), (2, 2));
        let queue: Vec<u64> = in_time.queue.iter().map(|sample| sample.packets).collect();
        assert_eq!(queue, [0, 1, 1, 0, 0, 0, 0, 0, 0], "every 10 ms");
    }
}
