//! All connections of an agent, by the slots of the kernel's tables. No clock and no I/O.
//!
//! [`Connections::on_record`] takes the records of a batch one after the other. Then
//! [`Connections::decide`] decides once for every connection with a new record or a due timer.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use forebay_core::units::{Rate, Timestamp};
use forebay_ebpf::tcp::{Decision, Events, FlowId, Head, Mode, Opened, Record, Report};

use super::flow::{Flow, FlowOrigin, Terms};
use super::recording::{Open, Recorder, RecordingRow};
use super::rows::{DecisionRow, ReportRow};
use super::rules::Rules;
use super::status::{AgentTotals, FlowStatus};

/// A slot in one of the kernel's tables: index of the table, number of the slot.
type SlotPlace = (usize, u32);

/// Most segments of a connection that counts as just opened: a first window (RFC 6928).
const YOUNG: u32 = 10;

/// How long the shortest round trip counts after its last sample.
const SHORTEST_FOR: Duration = Duration::from_millis(100);

/// A connection and the state that the agent keeps for it.
struct Connection {
    flow: Flow,
    /// Number of the connection, unique within this agent.
    number: u64,
    addresses: Option<(SocketAddr, SocketAddr)>,
    /// The connection waits for a decision.
    is_due: bool,
    /// When the kernel wrote the oldest record that waits for a decision; `None`: only a timer asked
    /// for one.
    waits_since: Option<Timestamp>,
    timer: Option<Timestamp>,
    has_told_failure: bool,
}

/// The agent's answer to a connection.
pub struct FlowAnswer<'a> {
    /// Table of the connection.
    pub table: usize,
    /// The newest record, which is answered.
    pub head: &'a Head,
    /// The decision.
    pub decision: &'a Decision,
    /// When the kernel wrote the oldest record that waited for this decision; `None`: only a timer
    /// asked for one.
    pub waits_since: Option<Timestamp>,
}

/// All connections of an agent.
pub struct Connections {
    rules: Rules,
    terms: Terms,
    seed: u64,
    /// By table and slot.
    tables: Vec<Vec<Option<Box<Connection>>>>,
    due: Vec<SlotPlace>,
    timers: BTreeSet<(Timestamp, SlotPlace)>,
    recorder: Recorder,
    totals: AgentTotals,
    /// The shortest round trip of all connections, and when it was last seen.
    shortest_rtt: Option<(Duration, Timestamp)>,
}

impl Connections {
    /// Starts without connections. Each algorithm that `rules` offers has a table with its number. All
    /// random choices of all algorithms derive from `seed`.
    pub fn new(rules: Rules, terms: Terms, seed: u64, recorder: Recorder) -> Self {
        let tables = rules.choices().iter().map(|_| Vec::new()).collect();
        Self {
            rules,
            terms,
            seed,
            tables,
            due: Vec::new(),
            timers: BTreeSet::new(),
            recorder,
            totals: AgentTotals::default(),
            shortest_rtt: None,
        }
    }

    /// Takes a record of the table with this number.
    pub fn on_record(&mut self, table: usize, record: &Record) {
        match record {
            Record::Opened(opened) => self.on_opened(table, opened),
            Record::Report(report) => self.on_report(table, report),
        }
    }

    /// Serves the timers that are due at `now`.
    pub fn on_timers(&mut self, now: Timestamp) {
        while let Some((at, place)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, place));
            let Some(connection) = get(&mut self.tables, place) else { continue };
            connection.timer = None;
            connection.flow.on_timer(now);
            self.recorder
                .put(RecordingRow::Timer { flow: connection.number, at_ns: now.as_nanos() });
            self.set_due(place, None);
        }
    }

    /// When the first timer is due.
    pub fn next_timer(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Decides for every connection with a new record or a due timer since the last call, and hands
    /// each answer to `write`.
    pub fn decide(&mut self, now: Timestamp, write: &mut dyn FnMut(FlowAnswer<'_>)) {
        let mut due = std::mem::take(&mut self.due);
        for place in due.drain(..) {
            let Some(connection) = get(&mut self.tables, place) else { continue };
            // A reused slot is listed twice.
            if !std::mem::take(&mut connection.is_due) {
                continue;
            }
            let waits_since = connection.waits_since.take();
            if waits_since.is_some() && connection.flow.is_stale(now, &self.terms) {
                self.totals.stale += 1;
            } else if let Some(decision) = connection.flow.decide(&self.terms) {
                let head = connection.flow.head();
                write(FlowAnswer { table: place.0, head, decision: &decision, waits_since });
                self.totals.decisions += 1;
                if self.recorder.is_on() {
                    let row = DecisionRow::of(connection.number, head.seq, &decision);
                    self.recorder.put(RecordingRow::Decision(row));
                }
                let rtt = Duration::from_micros(u64::from(head.srtt_us));
                let is_shorter = |(shortest, at): (Duration, Timestamp)| {
                    rtt <= shortest || now.saturating_since(at) > SHORTEST_FOR
                };
                if self.shortest_rtt.is_none_or(is_shorter) {
                    self.shortest_rtt = Some((rtt, now));
                }
            }
            connection.tell_failure(&mut self.totals);
            let next = connection.flow.next_timer();
            self.set_timer(place, next);
        }
        self.due = due;
    }

    /// The shortest smoothed round trip among the connections decided for in the last 100 ms; if there
    /// were none, the last known one.
    pub fn shortest_rtt(&self) -> Option<Duration> {
        self.shortest_rtt.map(|(rtt, _)| rtt)
    }

    /// When the last record of a connection came; `None`: never.
    pub fn heard(&self, table: usize, flow: FlowId) -> Option<Timestamp> {
        let connection = self.tables.get(table)?.get(flow.slot as usize)?.as_deref()?;
        Some(connection.flow.head()).filter(|head| head.flow == flow).map(|head| head.at)
    }

    /// The connections for which `has_ended` holds.
    pub fn ended(&self, has_ended: &dyn Fn(usize, FlowId) -> bool) -> Vec<(usize, FlowId)> {
        let all = self.tables.iter().enumerate().flat_map(|(table, slots)| {
            slots.iter().flatten().map(move |connection| (table, connection.flow.head().flow))
        });
        all.filter(|(table, flow)| has_ended(*table, *flow)).collect()
    }

    /// Drops the connections of `ended` that are still there: their last record found no room.
    pub fn drop_unheard(&mut self, ended: &[(usize, FlowId)]) {
        for (table, flow) in ended {
            let place = (*table, flow.slot);
            if get(&mut self.tables, place).is_some_and(|it| it.flow.head().flow == *flow) {
                self.totals.missed += 1;
                self.remove(place);
            }
        }
    }

    /// Drops a connection from which the kernel has taken its slot.
    pub fn lose(&mut self, table: usize, flow: FlowId) {
        self.totals.taken_back += 1;
        let place = (table, flow.slot);
        if get(&mut self.tables, place).is_some_and(|it| it.flow.head().flow == flow) {
            self.remove(place);
        }
    }

    /// Counts over all connections, closed ones included.
    pub fn totals(&self) -> AgentTotals {
        self.totals
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.tables.iter().flatten().flatten().count()
    }

    /// Whether there are no connections.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// State of every connection, by table and slot.
    pub fn status(&mut self, now: Timestamp) -> Vec<FlowStatus> {
        let mut rows = Vec::new();
        for (table, slots) in self.tables.iter_mut().enumerate() {
            let name = self.rules.choices().get(table).map(|choice| choice.kernel_name());
            for connection in slots.iter_mut().flatten() {
                rows.push(connection.status(name.as_deref().unwrap_or_default(), now));
            }
        }
        rows
    }

    fn on_opened(&mut self, table: usize, opened: &Opened) {
        let (place, head) = ((table, opened.head.flow.slot), opened.head);
        let choice = self.rules.choose(opened.remote, table).clone();
        // A connection may select its algorithm after it has sent data.
        let is_young = head.delivered <= YOUNG;
        let origin = if is_young { FlowOrigin::Opened } else { FlowOrigin::Adopted };
        let flow = Flow::new(origin, head, &choice, self.next_seed());
        self.insert(place, flow, Some((opened.local, opened.remote)), origin, None);
        self.set_due(place, Some(opened.head.at));
    }

    fn on_report(&mut self, table: usize, report: &Report) {
        let place = (table, report.head.flow.slot);
        let is_last = report.head.events.contains(Events::CLOSE);
        let generation = report.head.flow.generation;
        let known = get(&mut self.tables, place).map(|it| it.flow.head().flow.generation);
        // Later connections have later numbers. A connection that has just lost its slot may have
        // written its last record after the first record of the next one.
        if known.is_some_and(|known| known.wrapping_sub(generation).cast_signed() > 0) {
            return;
        }
        match (known == Some(generation), is_last) {
            (false, true) => return,
            (false, false) => {
                // Another agent took the first record: the destination is unknown here, so no rule can
                // match.
                let Some(choice) = self.rules.choices().get(table).cloned() else { return };
                let seed = self.next_seed();
                let flow = Flow::new(FlowOrigin::Adopted, report.head, &choice, seed);
                self.insert(place, flow, None, FlowOrigin::Adopted, Some(report));
            }
            (true, _) => self.take(place, report),
        }
        if is_last {
            self.remove(place);
        } else {
            self.set_due(place, Some(report.head.at));
        }
    }

    fn take(&mut self, place: SlotPlace, report: &Report) {
        let Some(connection) = get(&mut self.tables, place) else { return };
        let missed = connection.flow.counts().missed;
        connection.flow.on_report(report);
        self.totals.reports += 1;
        self.totals.missed += connection.flow.counts().missed - missed;
        if self.recorder.is_on() {
            self.recorder
                .put(RecordingRow::Report(ReportRow { flow: connection.number, report: *report }));
        }
        connection.tell_failure(&mut self.totals);
    }

    fn next_seed(&self) -> u64 {
        // Steps of 2^64 divided by the golden ratio: all seeds differ, and none is near the previous
        // one.
        self.seed.wrapping_add(self.totals.opened.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn insert(
        &mut self,
        place: SlotPlace,
        flow: Flow,
        addresses: Option<(SocketAddr, SocketAddr)>,
        origin: FlowOrigin,
        first: Option<&Report>,
    ) {
        self.remove(place);
        let number = self.totals.opened;
        self.totals.opened += 1;
        if self.recorder.is_on() {
            self.recorder.put(RecordingRow::Open(Open {
                flow: number,
                adopted: origin == FlowOrigin::Adopted,
                cc: flow.choice().spec().clone(),
                seed: flow.seed(),
                remote: addresses.map(|(_, remote)| remote.to_string()),
                head: *flow.head(),
                window_us: first.map(|report| report.window_us),
                acks: first.map(|report| report.acks),
            }));
        }
        let connection = Connection {
            flow,
            number,
            addresses,
            is_due: false,
            waits_since: None,
            timer: None,
            has_told_failure: false,
        };
        let slots = &mut self.tables[place.0];
        let slot = place.1 as usize;
        if slots.len() <= slot {
            slots.resize_with(slot + 1, || None);
        }
        slots[slot] = Some(Box::new(connection));
    }

    fn remove(&mut self, place: SlotPlace) {
        let slot = self.tables.get_mut(place.0).and_then(|slots| slots.get_mut(place.1 as usize));
        let Some(connection) = slot.and_then(Option::take) else { return };
        if let Some(at) = connection.timer {
            self.timers.remove(&(at, place));
        }
        self.totals.closed += 1;
        self.recorder.put(RecordingRow::Close { flow: connection.number });
    }

    /// Marks the connection as waiting for a decision, on a record that was written `at`, or on a
    /// timer.
    fn set_due(&mut self, place: SlotPlace, at: Option<Timestamp>) {
        let Some(connection) = get(&mut self.tables, place) else { return };
        connection.waits_since = connection.waits_since.or(at);
        if !std::mem::replace(&mut connection.is_due, true) {
            self.due.push(place);
        }
    }

    fn set_timer(&mut self, place: SlotPlace, at: Option<Timestamp>) {
        let Some(connection) = get(&mut self.tables, place) else { return };
        let before = std::mem::replace(&mut connection.timer, at);
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.timers.remove(&(before, place));
        }
        if let Some(at) = at {
            self.timers.insert((at, place));
        }
    }
}

fn get(tables: &mut [Vec<Option<Box<Connection>>>], place: SlotPlace) -> Option<&mut Connection> {
    tables.get_mut(place.0)?.get_mut(place.1 as usize)?.as_deref_mut()
}

impl Connection {
    /// Logs once that the algorithm has failed.
    fn tell_failure(&mut self, totals: &mut AgentTotals) {
        if let Some(reason) = self.flow.failure()
            && !std::mem::replace(&mut self.has_told_failure, true)
        {
            totals.failed += 1;
            let remote = self.addresses.map(|(_, remote)| remote.to_string());
            let remote = remote.as_deref().unwrap_or("unknown");
            tracing::error!(
                target: "agent_algorithm",
                remote,
                "{} failed; the kernel's own algorithm takes over this connection: {reason}",
                self.flow.choice()
            );
        }
    }

    fn status(&mut self, name: &str, now: Timestamp) -> FlowStatus {
        let state = self.flow.state();
        let head = *self.flow.head();
        let counts = self.flow.counts();
        let measured = self.flow.measured();
        let bits = |rate: Option<Rate>| rate.map(Rate::as_bits_per_sec);
        let mss = u64::from(head.mss);
        let text = |address: SocketAddr| address.to_string();
        FlowStatus {
            name: name.into(),
            slot: head.flow.slot,
            local: self.addresses.map(|(local, _)| text(local)),
            remote: self.addresses.map(|(_, remote)| text(remote)),
            algorithm: self.flow.choice().to_string(),
            phase: state.phase.into(),
            reason: self.flow.failure().unwrap_or(state.reason).into(),
            decides: match head.mode {
                _ if self.flow.failure().is_some() => "kernel",
                Mode::Fallback => "kernel",
                Mode::Start => "start",
                Mode::Agent => "agent",
            }
            .into(),
            cwnd_bytes: u64::from(head.cwnd) * mss,
            ssthresh_bytes: head.ssthresh.map(|segments| u64::from(segments) * mss),
            pacing_bps: bits(self.flow.decision().and_then(|decision| decision.pacing_rate)),
            delivery_bps: bits(measured.delivery_rate),
            srtt_us: head.srtt_us,
            min_rtt_us: head.min_rtt_us,
            in_flight_bytes: u64::from(head.in_flight) * mss,
            acked_bytes: head.bytes_acked,
            lost_packets: head.lost,
            reports: counts.records,
            missed: counts.missed,
            decisions: counts.decisions,
            stale: counts.stale,
            clamped: counts.clamped,
            heard_ns: now.saturating_since(head.at).as_nanos() as u64,
        }
    }
}

#[cfg(test)]
mod tests;
