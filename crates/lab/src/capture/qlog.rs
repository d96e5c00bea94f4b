//! Connections as qlog, for qvis and other viewers: one trace each, seen from the end that sends data.
//!
//! Source: draft-ietf-quic-qlog-main-schema-03 and draft-ietf-quic-qlog-quic-events-02, version 0.3 of the
//! format. The format is for QUIC; these events fit TCP:
//!
//! ```text
//! packet_sent, packet_received    the packet number is the segment's: a retransmission has the same one
//! packet_lost                     the sender marked the segment as lost
//! metrics_updated                 the changed values, times in ms, pacing in bit/s
//! congestion_state_updated        recovery; slow start and avoidance once there is a threshold
//! ```

use std::collections::HashMap;
use std::io::{self, Write};

use forebay_core::units::{ByteCount, Duration, Timestamp};
use forebay_sim::{Segment, TcpState};
use serde_json::{Map, Value, json};

use super::frames::Written;

/// The log, kept until the run has ended.
pub struct Qlog {
    traces: Vec<Trace>,
    /// Place of each connection's trace.
    places: HashMap<u32, usize>,
    /// The acknowledgements on their way, by identity.
    acks: HashMap<u64, Ack>,
    limit: u64,
    /// Bytes of all events.
    bytes: u64,
    events: u64,
    full_at_ns: Option<u64>,
}

/// An acknowledgement of a connection.
struct Ack {
    connection: u32,
    /// Acknowledged ranges of packet numbers, both ends of each included.
    ranges: Vec<[u32; 2]>,
}

struct Trace {
    title: String,
    /// Events, with commas between them.
    events: String,
    state: Option<TcpState>,
    phase: Option<&'static str>,
}

impl Qlog {
    /// An empty log; its file will have at most about `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            traces: Vec::new(),
            places: HashMap::new(),
            acks: HashMap::new(),
            limit,
            bytes: 0,
            events: 0,
            full_at_ns: None,
        }
    }

    /// Adds a connection with a number of its own and its title.
    pub fn open(&mut self, connection: u32, title: String) {
        self.places.insert(connection, self.traces.len());
        self.traces.push(Trace { title, events: String::new(), state: None, phase: None });
    }

    /// A packet leaves an end of `connection`.
    pub fn on_sent(
        &mut self,
        connection: u32,
        at: Timestamp,
        identity: u64,
        bytes: u16,
        segment: &Segment,
    ) {
        if self.full_at_ns.is_some() {
            return;
        }
        if let Some(number) = segment.data {
            let data = json!({
                "header": header(number),
                "raw": { "length": bytes, "payload_length": segment.payload },
            });
            self.add(connection, at, "transport:packet_sent", data);
        }
        if let Some(acked) = segment.acked {
            let blocks = segment.blocks.iter().filter(|[start, end]| start < end);
            let blocks = blocks.map(|[start, end]| [*start, end - 1]);
            let all = acked.checked_sub(1).map(|last| [0, last]);
            let ranges = all.into_iter().chain(blocks).collect();
            self.acks.insert(identity, Ack { connection, ranges });
        }
    }

    /// A packet that was sent will not be received.
    pub fn on_dropped(&mut self, identity: u64) {
        self.acks.remove(&identity);
    }

    /// A packet comes to the other end of its connection.
    pub fn on_received(&mut self, at: Timestamp, identity: u64) {
        let Some(Ack { connection, ranges }) = self.acks.remove(&identity) else { return };
        let frame = json!({ "frame_type": "ack", "acked_ranges": ranges });
        let data = json!({ "header": { "packet_type": "1RTT" }, "frames": [frame] });
        self.add(connection, at, "transport:packet_received", data);
    }

    /// The sender of `connection` marks a segment as lost.
    pub fn on_lost(&mut self, connection: u32, at: Timestamp, number: u32) {
        self.add(connection, at, "recovery:packet_lost", json!({ "header": header(number) }));
    }

    /// New state of the sender of `connection`.
    pub fn on_state(&mut self, connection: u32, at: Timestamp, state: TcpState) {
        let Some(place) = self.places.get(&connection) else { return };
        let trace = &mut self.traces[*place];
        let changes = changes(trace.state.replace(state).as_ref(), &state);
        let (before, now) = (trace.phase, phase(&state, trace.phase));
        trace.phase = now;
        if !changes.is_empty() {
            self.add(connection, at, "recovery:metrics_updated", changes.into());
        }
        if let Some(new) = now.filter(|_| now != before) {
            let data =
                before.map_or(json!({ "new": new }), |old| json!({ "old": old, "new": new }));
            self.add(connection, at, "recovery:congestion_state_updated", data);
        }
    }

    fn add(&mut self, connection: u32, at: Timestamp, name: &str, data: Value) {
        let Some(place) = self.places.get(&connection) else { return };
        let time_ms = at.as_nanos() as f64 / 1e6;
        let event = json!({ "time": time_ms, "name": name, "data": data }).to_string();
        let bytes = event.len() as u64 + 1;
        if self.full_at_ns.is_some() || self.bytes + bytes > self.limit {
            self.full_at_ns.get_or_insert(at.as_nanos());
            return;
        }
        let events = &mut self.traces[*place].events;
        if !events.is_empty() {
            events.push(',');
        }
        events.push_str(&event);
        self.bytes += bytes;
        self.events += 1;
    }

    /// Writes the whole log, with `title`.
    pub fn write(&self, out: impl Write, title: &str) -> io::Result<Written> {
        let mut out = Counted { out, bytes: 0 };
        let title = json!(title);
        write!(out, "{{\"qlog_version\":\"0.3\",\"qlog_format\":\"JSON\",\"title\":{title},")?;
        write!(out, "\"traces\":[")?;
        for (index, trace) in self.traces.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let title = json!(trace.title);
            let vantage_point = json!({ "name": trace.title, "type": "server" });
            let common = json!({ "time_format": "relative", "reference_time": 0.0 });
            write!(out, "{comma}\n{{\"title\":{title},\"vantage_point\":{vantage_point},")?;
            write!(out, "\"common_fields\":{common},\"events\":[{}]}}", trace.events)?;
        }
        writeln!(out, "]}}")?;
        out.flush()?;
        Ok(Written { entries: self.events, bytes: out.bytes, full_at_ns: self.full_at_ns })
    }
}

fn header(number: u32) -> Value {
    json!({ "packet_type": "1RTT", "packet_number": number })
}

/// The changed values of a state.
fn changes(before: Option<&TcpState>, now: &TcpState) -> Map<String, Value> {
    let before = before.map_or([const { None }; FIGURES.len()], figures);
    let named = FIGURES.into_iter().zip(before.into_iter().zip(figures(now)));
    let changed = named.filter(|(_, (before, now))| before != now);
    changed.filter_map(|(name, (_, now))| Some((name.to_string(), now?))).collect()
}

/// Names of the metrics in `recovery:metrics_updated` events of qlog, in the order of [`figures`].
const FIGURES: [&str; 7] = [
    "min_rtt",
    "smoothed_rtt",
    "latest_rtt",
    "congestion_window",
    "bytes_in_flight",
    "ssthresh",
    "pacing_rate",
];

/// The value of each of [`FIGURES`]; `None` if unknown.
fn figures(state: &TcpState) -> [Option<Value>; FIGURES.len()] {
    let bytes = |of: ByteCount| json!(of.as_u64());
    let millis = |of: Duration| json!(of.as_secs_f64() * 1e3);
    [
        state.rtt.map(|rtt| millis(rtt.min)),
        state.rtt.map(|rtt| millis(rtt.smoothed)),
        state.rtt.map(|rtt| millis(rtt.latest)),
        state.cwnd.map(bytes),
        Some(bytes(state.in_flight)),
        state.ssthresh.map(bytes),
        state.pacing_rate.map(|rate| json!(rate.as_bits_per_sec())),
    ]
}

/// The congestion state; `None` before there is a slow start threshold.
fn phase(state: &TcpState, before: Option<&'static str>) -> Option<&'static str> {
    match (state.is_recovering, state.cwnd, state.ssthresh) {
        (true, ..) => Some("recovery"),
        (false, Some(cwnd), Some(ssthresh)) if cwnd < ssthresh => Some("slow_start"),
        (false, _, Some(_)) => Some("congestion_avoidance"),
        (false, _, None) => before.map(|_| "congestion_avoidance"),
    }
}

/// Counts the bytes that it passes on.
struct Counted<W> {
    out: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reportable_acknowledgements_are_remembered() {
        let at = Timestamp::from_nanos(7);
        let ack = Segment { acked: Some(3), ..Segment::default() };
        // Room for one event, and not for two.
        let mut log = Qlog::new(200);
        log.open(0, "a connection".into());
        for identity in [1, 2, 3] {
            log.on_sent(0, at, identity, 40, &ack);
        }
        log.on_dropped(1);
        log.on_received(at, 2);
        assert_eq!((log.events, log.full_at_ns, log.acks.len()), (1, None, 1));
        log.on_received(at, 3);
        log.on_sent(0, at, 4, 40, &ack);
        assert_eq!((log.events, log.full_at_ns, log.acks.len()), (1, Some(7), 0));
    }
}
