//! One direction of the emulated path: a link, and the true record of it.

use std::path::Path as FilePath;

use forebay_core::packet::{Ecn, Packet};
use forebay_core::qdisc::{self, Classifier, Qdisc};
use forebay_core::random::{Stream, Streams};
use forebay_core::spec::SpecError;
use forebay_core::units::{Ratio, Timestamp};
use forebay_scenario as scenario;

use super::EmulatorError;
use super::frame::{Frame, Pool};
use super::link::{Carried, Discard, Link};
use super::truth::{Released, Truth};
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
    /// Frames of this round with their arrival times.
    arrivals: Vec<(Timestamp, Frame)>,
}

impl Path {
    /// A path over the link `of`; `routed`, `out` and `keeps_headers` as in
    /// [`EmulatorSpec`](super::EmulatorSpec). Call [`Path::start`] to start it.
    pub fn new(
        of: &scenario::Link,
        seed: u64,
        routed: bool,
        out: Option<&FilePath>,
        keeps_headers: bool,
    ) -> Result<Self, EmulatorError> {
        let streams = Streams::new(seed).part(&of.name);
        let refused = |source: SpecError| EmulatorError::Link { name: of.name.clone(), source };
        let queue = qdisc::seeded(&of.qdisc, streams.stream("qdisc").bits());
        let in_qdisc = |error: SpecError| refused(error.within("qdisc"));
        let classifier = Classifier::from_spec(&queue).map_err(in_qdisc)?;
        if of.rate().is_none() {
            qdisc::check_without_rate(&queue).map_err(in_qdisc)?;
        }
        let queue = qdisc::build(&queue).map_err(in_qdisc)?;
        let link = Link::new(of, queue, Timestamp::MAX, &streams).map_err(refused)?;
        let message_loss = of.message_loss;
        let message_loss_stream = streams.stream("message_loss");
        let truth = Truth::new(&of.name, out, keeps_headers).map_err(EmulatorError::Log)?;
        let arrivals = Vec::new();
        Ok(Self { link, classifier, message_loss, message_loss_stream, routed, truth, arrivals })
    }

    /// Sets the start of the run, from which changes, trace and samples count.
    pub fn start(&mut self, start: Timestamp) {
        self.link.set_start(start);
        self.truth.sample_from(start);
    }

    /// Takes an arrived frame. Call it before [`Path::admit`], in any order of frames.
    pub fn receive(&mut self, arrived: Timestamp, bytes: &[u8], pair: u16, pool: &mut Pool) {
        match pool.frame(bytes, pair) {
            Some(frame) => self.arrivals.push((arrived, frame)),
            None => self.truth.turned_away(),
        }
    }

    /// Advances the link to `now` and offers the frames received since the last call, in order of
    /// arrival at all ports. However late this call is, each frame and each sample sees the queue
    /// at its own time.
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
        // A frame on its way from the kernel during the last round arrives in this one.
        let now = arrived.max(link.now());
        truth.arriving(now, &frame);
        // Drawn for messages only: the n-th message meets the same fate whatever other packets
        // pass.
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

    /// Hands the frames due at `now` to `send`, which returns false if it has no room. Returns
    /// whether there were any.
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

    /// Stamps the frames released since the last call with `now`.
    pub fn stamp(&mut self, now: Timestamp) {
        self.truth.stamp(now);
    }

    /// Earliest time at which the path has work.
    pub fn next_timer(&self) -> Option<Timestamp> {
        self.link.next_timer()
    }

    /// The record of this direction; `ring_drops` counts drops of the ports that feed it.
    pub fn finish(self, ring_drops: u64) -> Result<LinkRecord, EmulatorError> {
        self.truth.finish(self.link.counters(), ring_drops).map_err(EmulatorError::Log)
    }
}

fn give_up(gone: Discard<Frame>, truth: &mut Truth, pool: &mut Pool) {
    truth.gave_up(gone.number, gone.cause);
    pool.recycle(gone.packet);
}

#[cfg(test)]
mod tests {
    use forebay_core::record::PacketRecord;
    use forebay_core::spec::{Spec, Value};
    use forebay_core::units::{Duration, Rate};

    use super::*;
    use crate::emulator::{packets_file, read_packets};

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    /// Records of frames of 1000 bytes that arrive at `arrivals` (ms, pair) on a link of 1 Mbit/s
    /// with a queue of two packets. The emulator looks at `rounds` (ms).
    fn log(arrivals: &[(u64, u16)], rounds: &[u64]) -> (LinkRecord, Vec<PacketRecord>) {
        let dir = tempfile::tempdir().unwrap();
        let qdisc = Spec::named("fifo").with("limit", Value::Text("2p".into()));
        let rate = Rate::from_mbit_per_sec(1);
        let link = scenario::Link::at_rate("forward", rate, Duration::ZERO, qdisc);
        let mut path = Path::new(&link, 1, false, Some(dir.path()), false).ok().unwrap();
        let mut pool = Pool::default();
        path.start(ms(0));
        let mut seen = 0;
        for round in rounds {
            // Port by port, in the order in which the emulator reads.
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
    fn late_emulator_reproduces_queue_and_drops() {
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
