//! Turns the driver's event log into figures, with the simulator's meters.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::str::SplitAsciiWhitespace;
use std::time::Duration;

use forebay_core::qdisc::ByReason;
use forebay_core::record::TcpSample;
use forebay_core::units::Timestamp;
use forebay_scenario::Traffic;
use forebay_sim::{FlowMeter, FlowMetrics, Integral, LinkMetrics, Observed, Tcp};

use super::arrivals::{Arrivals, FIRST, unwrapped};
use super::network::{Network, PlacedFlow};
use crate::backend::BackendError;

/// Name of the file of a run that holds the driver's events.
const EVENTS: &str = "events";
/// Most bytes of a line: far more than the driver writes.
const LINE_BYTES: u64 = 200;
/// Time between two samples of a sender's state, as on the other back ends.
const SAMPLE: Duration = Duration::from_millis(10);
/// Span of one count of received bytes, as in `bytes_per_100ms` of the other back ends.
const BIN: Duration = Duration::from_millis(100);

/// Results of a network in ns-3.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// By flow.
    pub flows: Vec<FlowOutcome>,
    /// By link, measured as in the simulator.
    pub links: Vec<LinkMetrics>,
    /// The log of packets of each link, a file of [`forebay_core::record::PacketRecord`]s.
    pub packets: Vec<PathBuf>,
    /// End of the simulation.
    pub end: Timestamp,
}

/// Results of a flow.
#[derive(Clone, Debug)]
pub struct FlowOutcome {
    /// Measured as in the simulator: means until the flow's stop, counts to the end. For datagrams, bytes are
    /// those on the wire.
    pub metrics: FlowMetrics,
    /// Bytes that arrived in each 100 ms of the run.
    pub bytes_per_100ms: Vec<u64>,
    /// The sender's state every 10 ms, of greedy flows.
    pub samples: Vec<TcpSample>,
    /// For each request: when its connection was requested, and when its answer was complete.
    pub requests: Vec<[Option<Timestamp>; 2]>,
}

/// Reads the driver's output in `folder` for a run of `network`.
///
/// # Errors
/// [`BackendError::Failed`] with file and line if a line is not output of the driver.
pub fn replay(network: &Network, folder: &Path) -> Result<Outcome, BackendError> {
    let path = folder.join(EVENTS);
    let failed = |reason: String| BackendError::Failed(format!("{}{reason}", path.display()));
    let file = File::open(&path).map_err(|error| failed(format!(": {error}")))?;
    let mut outcome = read(network, BufReader::new(file)).map_err(failed)?;
    let packets = (0..outcome.links.len()).map(|link| folder.join(format!("packets-{link}")));
    outcome.packets = packets.collect();
    Ok(outcome)
}

/// The outcome by the events in `input`, without packets. An error begins with its line number.
fn read(network: &Network, mut input: impl BufRead) -> Result<Outcome, String> {
    let mut replay = Replay::new(network);
    let mut line = String::new();
    let mut number = 0_u64;
    loop {
        number += 1;
        line.clear();
        let refused = |reason: String| format!(":{number}: {reason}");
        let length = input.by_ref().take(LINE_BYTES).read_line(&mut line);
        length.map_err(|error| refused(error.to_string()))?;
        if !line.ends_with('\n') {
            let reason = match line.len() as u64 {
                0 => "the last event is missing".to_string(),
                LINE_BYTES => format!("a line of more than {LINE_BYTES} bytes"),
                _ => format!("{line:?} is cut off"),
            };
            return Err(refused(reason));
        }
        let is_over = replay
            .take(&line)
            .map_err(|reason| refused(format!("{:?}: {reason}", line.trim_end())))?;
        if is_over {
            return Ok(replay.finish());
        }
    }
}

/// State of a run up to an event.
struct Replay<'a> {
    network: &'a Network,
    now: Timestamp,
    next_sample: Timestamp,
    flows: Vec<Connection<'a>>,
    links: Vec<Wire>,
}

impl<'a> Replay<'a> {
    fn new(network: &'a Network) -> Self {
        Self {
            network,
            now: Timestamp::ZERO,
            next_sample: Timestamp::ZERO,
            flows: network.flows.iter().map(Connection::new).collect(),
            links: network.links.iter().map(|_| Wire::new()).collect(),
        }
    }

    /// Takes one line; true if it is the last.
    fn take(&mut self, line: &str) -> Result<bool, String> {
        let mut words = line.split_ascii_whitespace();
        let kind = words.next().unwrap_or_default();
        let index = number(&mut words)? as usize;
        let at = Timestamp::from_nanos(number(&mut words)?);
        if at < self.now {
            return Err(format!("the event is before {} ns", self.now.as_nanos()));
        }
        if at > Timestamp::ZERO + self.network.latest {
            return Err(format!("allowed is a time up to {} ns", self.network.latest.as_nanos()));
        }
        self.advance(at);
        match kind {
            "z" => return Ok(true),
            "q" | "o" | "l" | "k" | "n" | "m" => {
                let type_name = self.network.links.get(index).map(|link| link.qdisc.type_name);
                let link = self.links.get_mut(index).zip(type_name);
                let (link, type_name) = link.ok_or("unknown link")?;
                link.take(kind, at, type_name, &mut words)?;
            }
            _ => {
                let flow = self.flows.get_mut(index).ok_or("unknown flow")?;
                flow.stop_before(at);
                flow.take(kind, at, &mut words)?;
            }
        }
        Ok(false)
    }

    /// Advances to `now`, and takes the samples on the way.
    fn advance(&mut self, now: Timestamp) {
        while self.next_sample < now {
            let at = self.next_sample;
            self.flows.iter_mut().for_each(|flow| flow.sample(at));
            self.next_sample += SAMPLE;
        }
        self.now = now;
    }

    fn finish(self) -> Outcome {
        let end = self.now;
        Outcome {
            flows: self.flows.into_iter().map(|flow| flow.finish(end)).collect(),
            links: self.links.into_iter().map(|link| link.finish(end)).collect(),
            packets: Vec::new(),
            end,
        }
    }
}

fn number(words: &mut SplitAsciiWhitespace<'_>) -> Result<u64, String> {
    let word = words.next().ok_or("a number is missing")?;
    word.parse().map_err(|_| format!("{word} is not a number"))
}

/// State of a flow.
struct Connection<'a> {
    flow: &'a PlacedFlow,
    start: Timestamp,
    stop: Timestamp,
    meter: FlowMeter,
    /// The means, once the flow has stopped.
    life: Option<FlowMetrics>,
    seen: Observed,
    bins: Vec<u64>,
    samples: Vec<TcpSample>,
    requests: Vec<[Option<Timestamp>; 2]>,
    arrived: Arrivals,
    sent_up_to: u64,
    acked_up_to: u64,
    sent_packets: u64,
    sent_bytes: u64,
    written_bytes: u64,
    received_bytes: u64,
    resent: u64,
    duplicates: u64,
    timeouts: u64,
    recovers_since: Option<Timestamp>,
    recoveries: u64,
    recovering_ns: u64,
}

impl<'a> Connection<'a> {
    fn new(flow: &'a PlacedFlow) -> Self {
        let PlacedFlow { of, schedule, .. } = flow;
        let (first, requests) = match (&of.traffic, schedule.first()) {
            (Traffic::Requests(_), first) => (first, schedule.len()),
            (_, first) => (first, 0),
        };
        let first = first.map_or(of.start, |(at, _)| *at);
        let [start, stop] = [first, of.stop].map(|at| Timestamp::ZERO + at);
        Self {
            flow,
            start,
            stop,
            meter: FlowMeter::new(start, stop),
            life: None,
            seen: Observed::default(),
            bins: Vec::new(),
            samples: Vec::new(),
            requests: vec![[None; 2]; requests],
            arrived: Arrivals::NONE,
            sent_up_to: FIRST,
            acked_up_to: FIRST,
            sent_packets: 0,
            sent_bytes: 0,
            written_bytes: 0,
            received_bytes: 0,
            resent: 0,
            duplicates: 0,
            timeouts: 0,
            recovers_since: None,
            recoveries: 0,
            recovering_ns: 0,
        }
    }

    fn take(
        &mut self,
        kind: &str,
        now: Timestamp,
        words: &mut SplitAsciiWhitespace<'_>,
    ) -> Result<(), String> {
        // In ns-3 a stopped sender goes on, but nothing from it arrives.
        let is_alive = self.life.is_none();
        match kind {
            "w" => self.seen.cwnd = number(words)?,
            "f" => self.seen.in_flight = number(words)?,
            "r" => self.seen.srtt_ns = number(words)?,
            "s" => {
                let (from, bytes) = (unwrapped(self.sent_up_to, number(words)?), number(words)?);
                if is_alive {
                    self.send(now, from, bytes);
                }
            }
            "x" => {
                self.sent_packets += 1;
                self.meter.on_send(now);
            }
            "d" => {
                let (from, bytes) =
                    (unwrapped(self.arrived.next(), number(words)?), number(words)?);
                let new = self.arrived.take(from, from.saturating_add(bytes));
                self.duplicates += u64::from(new == 0);
                self.receive(now, new);
            }
            "y" => match &self.flow.of.traffic {
                Traffic::Datagrams { packet_bytes, .. } => {
                    self.receive(now, (*packet_bytes).into())
                }
                _ => return Err("a datagram of a TCP flow".into()),
            },
            "v" => {
                let bytes = number(words)?;
                self.receive(now, bytes);
            }
            "c" | "g" => {
                let request = self.requests.get_mut(number(words)? as usize);
                let request = request.ok_or("unknown request")?;
                request[usize::from(kind == "g")] = Some(now);
            }
            "a" => self.acked_up_to = unwrapped(self.acked_up_to, number(words)?),
            "t" => self.timeouts += u64::from(is_alive),
            "b" => self.recovers_since = Some(now),
            "e" => {
                if let Some(since) = self.recovers_since.take() {
                    self.recoveries += 1;
                    self.recovering_ns += now.as_nanos() - since.as_nanos();
                }
            }
            "p" => self.written_bytes = number(words)?,
            _ => return Err("unknown event".into()),
        }
        if is_alive && matches!(kind, "w" | "f" | "r") {
            self.meter.observe(now, self.seen);
        }
        Ok(())
    }

    fn send(&mut self, now: Timestamp, from: u64, bytes: u64) {
        let to = from.saturating_add(bytes);
        self.resent += u64::from(to <= self.sent_up_to);
        self.sent_up_to = self.sent_up_to.max(to);
        self.sent_packets += 1;
        self.sent_bytes += bytes;
        self.meter.on_send(now);
    }

    fn receive(&mut self, now: Timestamp, bytes: u64) {
        self.received_bytes += bytes;
        if self.life.is_none() {
            self.meter.on_receive(now, u32::try_from(bytes).unwrap_or(u32::MAX));
        }
        let bin = (u128::from(now.as_nanos()) / BIN.as_nanos()) as usize;
        if self.bins.len() <= bin {
            self.bins.resize(bin + 1, 0);
        }
        self.bins[bin] += bytes;
    }

    /// The sender's state at `now`, if the connection has been open.
    fn sample(&mut self, now: Timestamp) {
        let Observed { cwnd, in_flight, srtt_ns } = self.seen;
        if cwnd == 0 || now >= self.stop {
            return;
        }
        let segments = |bytes: u64| bytes as f64 / f64::from(Tcp::NS3.mss);
        self.samples.push(TcpSample {
            at_ns: now.as_nanos(),
            cwnd_segments: segments(cwnd),
            srtt_ms: (srtt_ns > 0).then_some(srtt_ns as f64 / 1e6),
            in_flight_segments: Some(segments(in_flight)),
            delivered_bytes: Some(self.acked_up_to - FIRST),
            retransmissions: self.resent,
            duplicates: Some(self.duplicates),
        });
    }

    /// Records the means if the flow stopped before `now`.
    fn stop_before(&mut self, now: Timestamp) {
        if now > self.stop && self.life.is_none() {
            self.life = Some(self.means());
        }
    }

    /// The means over the flow's life.
    fn means(&mut self) -> FlowMetrics {
        let life_s = self.stop.saturating_since(self.start).as_secs_f64();
        let rate = |bytes: u64| if life_s > 0.0 { bytes as f64 * 8e-6 / life_s } else { 0.0 };
        FlowMetrics {
            mean_sending_rate_l4: rate(self.sent_bytes),
            mean_sending_rate_l7: rate(self.written_bytes),
            mean_recovery_time_l4: match self.recoveries {
                0 => 0.0,
                recoveries => self.recovering_ns as f64 / 1e6 / recoveries as f64,
            },
            recovery_episodes: self.recoveries,
            ..self.meter.metrics(self.stop, u64::from(Tcp::NS3.mss))
        }
    }

    fn finish(mut self, end: Timestamp) -> FlowOutcome {
        let life = self.life.unwrap_or_else(|| self.means());
        let whole = (u128::from(end.as_nanos()) / BIN.as_nanos()) as usize;
        self.bins.resize(self.bins.len().max(whole), 0);
        let metrics = FlowMetrics {
            total_retransmissions_l4: self.resent,
            total_spurious_retransmissions_l4: self.duplicates,
            total_rtos_l4: self.timeouts,
            data_packets_sent: self.sent_packets,
            received_bytes: self.received_bytes,
            ..life
        };
        let Self { bins: bytes_per_100ms, samples, requests, .. } = self;
        FlowOutcome { metrics, bytes_per_100ms, samples, requests }
    }
}

/// State of a link.
struct Wire {
    length: Integral,
    length_max: u64,
    sojourn: Integral,
    metrics: LinkMetrics,
}

impl Wire {
    fn new() -> Self {
        let metrics = LinkMetrics::default();
        Self { length: Integral::NONE, length_max: 0, sojourn: Integral::NONE, metrics }
    }

    fn take(
        &mut self,
        kind: &str,
        now: Timestamp,
        type_name: &str,
        words: &mut SplitAsciiWhitespace<'_>,
    ) -> Result<(), String> {
        let metrics = &mut self.metrics;
        match kind {
            "q" => {
                let packets = number(words)?;
                self.length.set(now, packets);
                self.length_max = self.length_max.max(packets);
            }
            "o" => self.sojourn.set(now, number(words)?),
            "l" => metrics.total_loss_drops += 1,
            "k" => metrics.packets += 1,
            _ => {
                let count = number(words)?;
                let reason = words.collect::<Vec<_>>().join(" ");
                let (counts, total) = match kind {
                    "n" => (&mut metrics.drops, &mut metrics.total_qdisc_drops_l2),
                    _ => (&mut metrics.marks, &mut metrics.total_qdisc_marks_l2),
                };
                *by_reason(counts, type_name, &reason) += count;
                *total += count;
            }
        }
        Ok(())
    }

    fn finish(self, end: Timestamp) -> LinkMetrics {
        LinkMetrics {
            mean_qdisc_length_l2: self.length.mean(end),
            mean_qdisc_delay_l2: self.sojourn.mean(end) * 1e-6,
            max_qdisc_length_l2: self.length_max,
            ..self.metrics
        }
    }
}

/// The counter for the reason that ns-3 gives for a qdisc's drop or mark.
fn by_reason<'a>(counts: &'a mut ByReason, type_name: &str, reason: &str) -> &'a mut u64 {
    match reason {
        _ if reason.contains("Target exceeded") => &mut counts.codel,
        _ if reason.contains("Unforced") => &mut counts.early,
        // PIE gives this reason for a full queue.
        _ if reason.contains("Forced") && type_name == "ns3::RedQueueDisc" => &mut counts.forced,
        _ if reason.contains("CE threshold") => &mut counts.forced,
        _ => &mut counts.overlimit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ns3::network::{PlacedLink, Qdisc};
    use forebay_core::spec::Spec;
    use forebay_core::traffic::Connections;
    use forebay_core::units::Rate;
    use forebay_scenario::{Flow, Link, RequestLoad, fixed_size};

    /// A link, and a flow over it that lives from 100 to 900 ms of a second.
    fn network() -> Network {
        let link = PlacedLink {
            ends: [0, 1],
            of: Link::delay("forward", Duration::from_millis(5)),
            qdisc: Qdisc { type_name: "ns3::RedQueueDisc", attributes: Vec::new() },
        };
        let (cc, stop) = (Spec::named("newreno"), Duration::from_millis(900));
        let flow = PlacedFlow {
            of: Flow {
                start: Duration::from_millis(100),
                ..Flow::new("flow", cc, stop, Traffic::Greedy { flows: 1 })
            },
            algorithm: "ns3::TcpNewReno",
            pair: 0,
            access: [Duration::ZERO; 2],
            ways: [vec![0], vec![0]],
            schedule: Vec::new(),
        };
        Network {
            seed: 1,
            run: 1,
            stop: Duration::from_secs(1),
            latest: Duration::from_secs(1),
            attributes: Vec::new(),
            links: vec![link],
            flows: vec![flow],
        }
    }

    fn outcome(text: &str) -> Result<(FlowOutcome, LinkMetrics), String> {
        let mut outcome = read(&network(), text.as_bytes())?;
        Ok((outcome.flows.remove(0), outcome.links.remove(0)))
    }

    #[test]
    fn events_become_means_and_counts_of_a_flow() {
        let text = "w 0 200000000 14480\nf 0 200000000 1448\nr 0 200000000 10000000\n\
                    s 0 200000000 1 1448\ns 0 210000000 1449 1448\nd 0 300000000 1449 1448\n\
                    t 0 400000000\nb 0 400000000\ns 0 400000000 1 1448\nd 0 450000000 1 1448\n\
                    d 0 460000000 1 1448\na 0 500000000 2897\ne 0 500000000\nw 0 550000000 28960\n\
                    p 0 900000000 5792\nt 0 950000000\ns 0 950000000 2897 1448\nz 0 1000000000\n";
        let (flow, _) = outcome(text).unwrap();
        let metrics = flow.metrics;
        // 350 ms of 10 segments and 350 ms of 20.
        assert!((metrics.mean_cwnd_l4 - 15.0).abs() < 1e-9, "{metrics:?}");
        assert_eq!((metrics.mean_in_flight_l4, metrics.mean_srtt_l4), (1.0, 10.0));
        assert_eq!((metrics.total_retransmissions_l4, metrics.total_rtos_l4), (1, 1));
        assert_eq!(metrics.total_spurious_retransmissions_l4, 1);
        assert_eq!(metrics.received_bytes, 2 * 1448);
        assert!((metrics.mean_throughput_l4 - 2.0 * 1448.0 * 8e-6 / 0.8).abs() < 1e-9);
        assert!((metrics.mean_sending_rate_l4 - 3.0 * 1448.0 * 8e-6 / 0.8).abs() < 1e-9);
        assert!((metrics.mean_sending_rate_l7 - 5792.0 * 8e-6 / 0.8).abs() < 1e-9);
        assert_eq!((metrics.mean_recovery_time_l4, metrics.recovery_episodes), (100.0, 1));
        assert_eq!(flow.bytes_per_100ms, [0, 0, 0, 1448, 1448, 0, 0, 0, 0, 0]);
        let first = flow.samples[0];
        assert_eq!(
            (first.at_ns, first.cwnd_segments, first.srtt_ms),
            (200_000_000, 10.0, Some(10.0))
        );
        let last = flow.samples.last().unwrap();
        assert_eq!((last.at_ns, last.delivered_bytes), (890_000_000, Some(2 * 1448)));
        assert_eq!((last.retransmissions, last.duplicates), (1, Some(1)));
    }

    #[test]
    fn requests_have_their_times() {
        let mut network = network();
        let ms = Duration::from_millis;
        network.flows[0].of.traffic = Traffic::Requests(RequestLoad {
            sizes: fixed_size("2KB".parse().unwrap()).unwrap(),
            load: Rate::from_mbit_per_sec(1),
            connections: Connections::Each,
            iid: false,
        });
        network.flows[0].schedule = vec![(ms(200), 2000), (ms(300), 500)];
        let text = "c 0 200000000 0\nc 0 300000000 1\nv 0 310000000 1448\nv 0 320000000 552\n\
                    g 0 320000000 0\nz 0 950000000\n";
        let outcome = read(&network, text.as_bytes()).unwrap();
        let at = |ms: u64| Some(Timestamp::from_nanos(ms * 1_000_000));
        assert_eq!(outcome.flows[0].requests, [[at(200), at(320)], [at(300), None]]);
        assert_eq!(outcome.flows[0].metrics.received_bytes, 2000);
        assert_eq!(Some(outcome.end), at(950));
        let error = read(&network, "g 0 5 2\n".as_bytes()).map(drop).unwrap_err();
        assert!(error.contains("unknown request"), "{error}");
    }

    #[test]
    fn link_has_queue_and_drops_by_reason() {
        let text = "q 0 0 0\nq 0 500000000 10\no 0 750000000 4000000\nk 0 800000000\n\
                    l 0 800000000\nn 0 1000000000 3 Unforced drop\nn 0 1000000000 2 Forced drop\n\
                    n 0 1000000000 1 Dropped by internal queue\nm 0 1000000000 4 Forced mark\n\
                    z 0 1000000000\n";
        let (_, metrics) = outcome(text).unwrap();
        assert_eq!((metrics.mean_qdisc_length_l2, metrics.max_qdisc_length_l2), (5.0, 10));
        assert!((metrics.mean_qdisc_delay_l2 - 4.0).abs() < 1e-9);
        assert_eq!((metrics.packets, metrics.total_loss_drops), (1, 1));
        assert_eq!((metrics.total_qdisc_drops_l2, metrics.total_qdisc_marks_l2), (6, 4));
        let expected = ByReason { overlimit: 1, early: 3, forced: 2, ..ByReason::default() };
        assert_eq!((metrics.drops, metrics.marks.forced), (expected, 4));
    }

    #[test]
    fn wrong_driver_output_is_refused_with_its_line() {
        let long = format!("w 0 1 {}\n", "9".repeat(300));
        for (text, expected) in [
            ("", ":1: the last event is missing"),
            ("w 0 1 5\n", ":2: the last event is missing"),
            ("w 0 1 5", ":1: \"w 0 1 5\" is cut off"),
            (long.as_str(), ":1: a line of more than 200 bytes"),
            ("w 0 5 5\nw 0 4 5\n", ":2: \"w 0 4 5\": the event is before 5 ns"),
            ("w 0 1000000001 5\n", "allowed is a time up to 1000000000 ns"),
            ("w 1 5 5\n", "unknown flow"),
            ("q 7 5 5\n", "unknown link"),
            ("w 0 5\n", "a number is missing"),
            ("w 0 5 -1\n", "-1 is not a number"),
            ("u 0 5 5\n", "unknown event"),
            ("y 0 5\n", "a datagram of a TCP flow"),
        ] {
            let error = outcome(text).map(drop).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
