//! Record of the events on an emulated link: one row per packet, lateness, rate, and the queue over time.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::Duration;

use forebay_core::packet::{Ecn, Packet};
use forebay_core::qdisc::Backlog;
use forebay_core::record::{Fate, LinkRecord, PacketRecord, QueueSample};
use forebay_core::units::Timestamp;

use super::frame::Frame;
use super::link::{Arrival, Cause, Counters};
use super::log::{HEADER_BYTES, Log, headers_file, packets_file};
use forebay_host::lateness::Lateness;

/// Sampling interval of the queue.
const SAMPLE_EVERY: Duration = Duration::from_millis(10);

/// Shortest backlogged stretch that counts for the rate: the tolerated lateness of a packet is 1 % of it.
/// At any rate, a short stretch begins on time and ends late, and a bundle with a short queue has many.
const STRETCH_MIN: Duration = Duration::from_millis(500);

/// The true record of one link.
pub(super) struct Truth {
    log: Option<Log<{ PacketRecord::BYTES }>>,
    headers: Option<Log<HEADER_BYTES>>,
    /// Packets by number from `first`: packets inside the link, and finished packets that wait for an
    /// earlier packet to finish.
    pending: VecDeque<Pending>,
    first: u64,
    /// Packets released since the last stamp.
    released: Vec<Released>,
    next_sample: Option<Timestamp>,
    lateness: Lateness,
    sojourn: Lateness,
    rate: AchievedRate,
    record: LinkRecord,
}

struct Pending {
    record: PacketRecord,
    /// The first bytes of the frame, if the log keeps headers.
    header: Option<Box<[u8; HEADER_BYTES]>>,
    /// The packet arrived with an ECN mark.
    came_marked: bool,
    settled: bool,
}

/// A packet that the link handed to its port.
pub(super) struct Released {
    pub number: u64,
    pub bytes: u64,
    pub arrived: Timestamp,
    pub departed: Timestamp,
    pub due: Timestamp,
    pub backlogged: bool,
    /// The packet carries an ECN mark.
    pub marked: bool,
    /// False if the port had no room.
    pub sent: bool,
}

impl Truth {
    /// A record of the link `name`. With `dir`, its packets go to its [`packets_file`]; with `keeps_headers`,
    /// their first bytes also go to its [`headers_file`].
    pub fn new(name: &str, dir: Option<&Path>, keeps_headers: bool) -> io::Result<Self> {
        let log = dir.map(|dir| Log::create(&packets_file(dir, name))).transpose()?;
        let headers = dir.filter(|_| keeps_headers).map(|dir| headers_file(dir, name));
        Ok(Self {
            log,
            headers: headers.map(|path| Log::create(&path)).transpose()?,
            pending: VecDeque::new(),
            first: 0,
            released: Vec::new(),
            next_sample: None,
            lateness: Lateness::default(),
            sojourn: Lateness::default(),
            rate: AchievedRate::default(),
            record: LinkRecord { name: name.to_string(), ..LinkRecord::default() },
        })
    }

    /// Samples the queue every 10 ms from `start` on.
    pub fn sample_from(&mut self, start: Timestamp) {
        if self.log.is_some() {
            self.next_sample = Some(start);
        }
    }

    /// Time of the next sample of the queue, if it is due by `now`.
    pub fn sample_due(&self, now: Timestamp) -> Option<Timestamp> {
        self.next_sample.filter(|at| *at <= now)
    }

    /// Takes the sample that [`Truth::sample_due`] requested.
    pub fn sample(&mut self, at: Timestamp, queue: Backlog) {
        self.record.queue.push(QueueSample::of(at, queue));
        self.next_sample = Some(at + SAMPLE_EVERY);
    }

    /// Notes a packet before the emulator offers it to the link.
    pub fn arriving(&mut self, now: Timestamp, frame: &Frame) {
        if self.log.is_none() {
            return;
        }
        let record = PacketRecord {
            arrived_ns: now.as_nanos(),
            identity: frame.identity(),
            bytes: frame.bytes().len() as u32,
            pair: frame.pair,
            fate: Fate::Inside,
            ..PacketRecord::default()
        };
        let came_marked = frame.ecn() == Ecn::Ce;
        let header = self.headers.is_some().then(|| first_bytes(frame.bytes()));
        self.pending.push_back(Pending { record, header, came_marked, settled: false });
    }

    /// Notes the queue after the emulator offered a packet.
    pub fn arrived(&mut self, arrival: Arrival) {
        if let Some(pending) = self.pending_at(arrival.number) {
            let packets = arrival.queue.packets;
            pending.record.queue_packets = u32::try_from(packets).unwrap_or(u32::MAX);
        }
        self.write_settled();
    }

    /// Notes that the link lost or dropped a packet.
    pub fn gave_up(&mut self, number: u64, cause: Cause) {
        let fate = match cause {
            Cause::Lost => Fate::Lost,
            Cause::Queue(_) => Fate::QueueDrop,
        };
        // `arrived` may still follow for this packet, so the next call of `arrived` or `stamp` writes it.
        self.settle(number, fate, |_| {});
    }

    /// Notes that a packet found no room in the ring in front of the link.
    pub fn turned_away(&mut self) {
        self.record.drops_ring += 1;
    }

    /// Notes a packet that the link handed to its port.
    pub fn released(&mut self, released: Released) {
        self.released.push(released);
    }

    /// Stamps the packets handed to ports since the last call with `now`.
    pub fn stamp(&mut self, now: Timestamp) {
        for index in 0..self.released.len() {
            let Released { number, bytes, arrived, departed, due, backlogged, marked, sent } =
                self.released[index];
            if sent {
                let late = now.saturating_since(due);
                self.lateness.record(late);
                self.sojourn.record(departed.saturating_since(arrived));
                self.rate.add(departed, late, backlogged);
                self.record.packets_out += 1;
                self.record.bytes_out += bytes;
            } else {
                self.record.drops_ring += 1;
            }
            let fate = if sent { Fate::Delivered } else { Fate::EmulatorDrop };
            self.settle(number, fate, |Pending { record, came_marked, .. }| {
                record.departed_ns = departed.as_nanos();
                record.released_ns = if sent { now.as_nanos() } else { 0 };
                record.marked = marked && !*came_marked;
            });
        }
        self.released.clear();
        self.write_settled();
    }

    /// The record of the link. `counters` are the link's own counters, and `ring_drops` is the number of drops
    /// at the ports that feed it. Fails if a log cannot be written.
    pub fn finish(mut self, counters: Counters, ring_drops: u64) -> io::Result<LinkRecord> {
        for pending in std::mem::take(&mut self.pending) {
            self.write(&pending);
        }
        if let Some(log) = self.log.take() {
            self.record.records_lost += log.finish()?;
        }
        if let Some(headers) = self.headers.take() {
            self.record.records_lost += headers.finish()?;
        }
        Ok(LinkRecord {
            packets_in: counters.packets_in,
            drops_queue: counters.dropped,
            marks_queue: counters.marks.total(),
            drops_by_reason: counters.drops,
            marks_by_reason: counters.marks,
            drops_loss: counters.lost,
            drops_ring: self.record.drops_ring + ring_drops,
            lateness_ns: self.lateness.percentiles(),
            sojourn_ns: self.sojourn.percentiles(),
            rate_achieved: self.rate.achieved(),
            backlogged_ns: self.rate.backlogged_ns,
            ..self.record
        })
    }

    fn pending_at(&mut self, number: u64) -> Option<&mut Pending> {
        let index = number.checked_sub(self.first)?;
        self.pending.get_mut(usize::try_from(index).ok()?)
    }

    fn settle(&mut self, number: u64, fate: Fate, complete: impl FnOnce(&mut Pending)) {
        if let Some(pending) = self.pending_at(number) {
            pending.record.fate = fate;
            complete(pending);
            pending.settled = true;
        }
    }

    /// Writes records in order of arrival, up to the first packet still inside.
    fn write_settled(&mut self) {
        while let Some(pending) = self.pending.pop_front_if(|pending| pending.settled) {
            self.write(&pending);
            self.first += 1;
        }
    }

    fn write(&mut self, pending: &Pending) {
        if let Some(log) = &mut self.log {
            log.push(&pending.record.to_bytes());
        }
        if let (Some(headers), Some(header)) = (&mut self.headers, &pending.header) {
            headers.push(header);
        }
    }
}

/// The first bytes of a frame, padded with zeros.
fn first_bytes(frame: &[u8]) -> Box<[u8; HEADER_BYTES]> {
    let mut bytes = Box::new([0; HEADER_BYTES]);
    let kept = frame.len().min(HEADER_BYTES);
    bytes[..kept].copy_from_slice(&frame[..kept]);
    bytes
}

/// Achieved rate of a backlogged link as a ratio to the configured rate. A backlogged stretch should take the
/// time between the virtual departures of its first and last packet. If the last packet is later than the
/// first, the stretch takes that much longer.
#[derive(Clone, Default)]
struct AchievedRate {
    backlogged_ns: u64,
    judged_ns: u64,
    later_ns: i64,
    /// First and last packet of the stretch: departure and lateness.
    stretch: Option<[(Timestamp, Duration); 2]>,
}

impl AchievedRate {
    fn add(&mut self, departed: Timestamp, late: Duration, backlogged: bool) {
        // A packet that departs before its predecessor ends the stretch.
        let goes_on = |last: &(Timestamp, Duration)| backlogged && departed >= last.0;
        match &mut self.stretch {
            Some([_, last]) if goes_on(last) => {
                self.backlogged_ns += departed.saturating_since(last.0).as_nanos() as u64;
                *last = (departed, late);
            }
            _ => {
                self.end_stretch();
                self.stretch = Some([(departed, late); 2]);
            }
        }
    }

    fn end_stretch(&mut self) {
        let Some([first, last]) = self.stretch.take() else { return };
        let took = last.0.saturating_since(first.0);
        if took >= STRETCH_MIN {
            self.judged_ns += took.as_nanos() as u64;
            self.later_ns += last.1.as_nanos() as i64 - first.1.as_nanos() as i64;
        }
    }

    fn achieved(&self) -> f64 {
        let mut all = self.clone();
        all.end_stretch();
        if all.judged_ns == 0 {
            return 1.0;
        }
        all.judged_ns as f64 / (all.judged_ns as f64 + all.later_ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::log::read_packets;
    use forebay_core::qdisc::DropReason;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn records_keep_arrival_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut truth = Truth::new("forward", Some(dir.path()), true).unwrap();
        let mut pool = super::super::frame::Pool::default();
        for number in 0..4 {
            let frame = pool.frame(&[number as u8; 100], 2).unwrap();
            truth.arriving(ms(number), &frame);
            if number == 3 {
                truth.gave_up(1, Cause::Queue(DropReason::Overlimit));
            }
            let queue = Backlog { packets: number, ..Backlog::default() };
            truth.arrived(Arrival { number, queue });
        }
        for (number, sent) in [(2, true), (0, false)] {
            let (arrived, departed, due) = (ms(number), ms(10 + number), ms(20));
            let (bytes, backlogged, marked) = (100, false, sent);
            let released =
                Released { number, bytes, arrived, departed, due, backlogged, marked, sent };
            truth.released(released);
        }
        truth.stamp(ms(21));
        let record = truth.finish(Counters::default(), 5).unwrap();
        assert_eq!((record.packets_out, record.bytes_out, record.drops_ring), (1, 100, 6));
        let packets = read_packets(&packets_file(dir.path(), "forward")).unwrap();
        let fates: Vec<_> = packets.iter().map(|packet| packet.fate).collect();
        assert_eq!(fates, [Fate::EmulatorDrop, Fate::QueueDrop, Fate::Delivered, Fate::Inside]);
        let marks: Vec<_> = packets.iter().map(|packet| packet.marked).collect();
        assert_eq!(marks, [false, false, true, false]);
        let queues: Vec<_> = packets.iter().map(|packet| packet.queue_packets).collect();
        assert_eq!(queues, [0, 1, 2, 3]);
        assert_eq!((packets[2].departed_ns, packets[2].released_ns), (12_000_000, 21_000_000));
        assert_eq!((packets[2].bytes, packets[2].pair), (100, 2));
        let headers = std::fs::read(headers_file(dir.path(), "forward")).unwrap();
        let headers: Vec<_> =
            headers.chunks(HEADER_BYTES).map(|it| (it[0], it[99], it[100])).collect();
        assert_eq!(headers, [(0, 0, 0), (1, 1, 0), (2, 2, 0), (3, 3, 0)]);
    }

    #[test]
    fn growing_lateness_lowers_achieved_rate() {
        let late = |late: fn(u64) -> u64| {
            let mut rate = AchievedRate::default();
            for n in 0..=1000 {
                rate.add(ms(n), Duration::from_micros(late(n)), true);
            }
            rate.achieved()
        };
        assert_eq!(late(|_| 5_000), 1.0, "late but on time after each other");
        assert!((late(|n| 250 * n) - 0.8).abs() < 1e-9);
        // Each first packet is on time and each later one late. This is lateness, not a slower link.
        let mut short = AchievedRate::default();
        (0..1000).for_each(|n| short.add(ms(n), Duration::from_millis(n % 5), n % 5 > 0));
        assert_eq!((short.achieved(), short.backlogged_ns), (1.0, 800_000_000));
        let mut idle = AchievedRate::default();
        (0..1000).for_each(|n| idle.add(ms(n), Duration::from_millis(n), false));
        assert_eq!((idle.achieved(), idle.backlogged_ns), (1.0, 0));
    }
}
