//! Requests that a client sends at scheduled times, and their records.

use super::endpoint::Window;
use super::meter::Meter;
use super::requests::SIZE_BYTES_MAX;
use super::workload::{Request, Workload};
use super::{GeneratorError, HostsOutput, SiteEnd};
use forebay_core::record::{FlowRecord, RequestRecord};

/// The requests of one workload, sent or not.
pub(super) struct Asked {
    flow: usize,
    schedule: Vec<Request>,
    /// Place of the next request in the schedule.
    next: usize,
    /// Records of the earlier requests.
    records: Vec<RequestRecord>,
    unfinished: usize,
    lateness_ns: Vec<u64>,
    meter: Meter,
    window: Window,
    started_ns: Option<u64>,
    failed: bool,
}

impl Asked {
    /// A schedule with no request sent yet. Rejects a schedule that is out of order or names connections
    /// beyond the first `connections`.
    pub fn new(
        workload: &Workload,
        site: &SiteEnd,
        connections: u32,
        schedule: Vec<Request>,
    ) -> Result<Self, GeneratorError> {
        check(workload, connections, &schedule)?;
        Ok(Self {
            flow: site.flow,
            next: 0,
            records: Vec::with_capacity(schedule.len()),
            unfinished: 0,
            lateness_ns: Vec::with_capacity(schedule.len()),
            schedule,
            meter: Meter::default(),
            window: site.window,
            started_ns: None,
            failed: false,
        })
    }

    /// The run starts at `started_ns`.
    pub fn begin(&mut self, started_ns: u64) {
        self.window = self.window.from(started_ns);
        self.started_ns = Some(started_ns);
        self.meter.begin(started_ns);
    }

    /// When the next request is due (ns).
    pub fn due_ns(&self) -> Option<u64> {
        let request = self.schedule.get(self.next)?;
        Some(self.started_ns?.saturating_add(request.at_ns))
    }

    /// The request that is due next.
    pub fn due(&self) -> Request {
        self.schedule[self.next]
    }

    /// Begins the request that was due at `scheduled_ns`; returns its place in the schedule.
    pub fn take(&mut self, scheduled_ns: u64, queued_behind: bool) -> usize {
        let (index, request) = (self.next, self.due());
        self.next += 1;
        self.records.push(RequestRecord {
            flow: self.flow,
            index: index as u32,
            connection: request.connection,
            size_bytes: request.size_bytes,
            scheduled_ns,
            sent_ns: None,
            queued_behind,
            finished_ns: None,
        });
        self.unfinished += 1;
        index
    }

    /// Request `index`.
    pub fn request(&self, index: usize) -> Request {
        self.schedule[index]
    }

    /// Notes that request `index` was sent at `now`; does nothing once the records were handed over.
    pub fn sent(&mut self, index: usize, now: u64) {
        let Some(record) = self.records.get_mut(index) else { return };
        record.sent_ns = Some(now);
        if !record.queued_behind {
            self.lateness_ns.push(now.saturating_sub(record.scheduled_ns));
        }
    }

    /// Counts bytes of answers that were read.
    pub fn read(&mut self, now: u64, bytes: u64) {
        self.meter.add(now, bytes);
    }

    /// Notes that the last byte of the answer to request `index` was read; does nothing once the records were
    /// handed over.
    pub fn finished(&mut self, index: usize, now: u64) {
        let Some(record) = self.records.get_mut(index) else { return };
        record.finished_ns = Some(now);
        self.unfinished -= 1;
    }

    /// Notes that a connection failed: this many requests stay unfinished, and the run does not wait for
    /// them.
    pub fn give_up(&mut self, requests: usize) {
        self.failed = true;
        self.unfinished -= requests;
    }

    /// Whether all arrivals are over and the run need not wait any longer.
    pub fn is_drained(&self, now: u64) -> bool {
        let asked = self.next == self.schedule.len();
        let finished = asked && self.unfinished == 0;
        now >= self.window.end_ns && (finished || now >= self.window.deadline_ns())
    }

    /// Hands over the records.
    pub fn finish(&mut self, output: &mut HostsOutput) {
        output.requests.append(&mut self.records);
        output.lateness_ns.append(&mut self.lateness_ns);
        let record = self.meter.take_record(self.flow, 0);
        output.flows.push(FlowRecord { failed: self.failed, ..record });
    }
}

fn check(
    workload: &Workload,
    connections: u32,
    schedule: &[Request],
) -> Result<(), GeneratorError> {
    let wrong = |key, value, allowed| {
        let workload = workload.name.clone();
        Err(GeneratorError::Workload { workload, key, value, allowed })
    };
    for request in schedule {
        if request.connection >= connections {
            let value = u64::from(request.connection);
            return wrong("connection", value, "less than the number of connections");
        }
        if request.size_bytes == 0 || request.size_bytes > SIZE_BYTES_MAX {
            return wrong("size_bytes", request.size_bytes, "1 to 1000000000");
        }
    }
    if !schedule.is_sorted_by_key(|request| request.at_ns) {
        return wrong("schedule", schedule.len() as u64, "requests in order of time");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::generator::tests::{requests, workload};
    use forebay_core::traffic::Connections;

    #[test]
    fn what_was_handed_over_is_not_asked_again() {
        let request = |at_ns| Request { at_ns, size_bytes: 100, connection: 0 };
        let schedule = vec![request(5), request(7)];
        let workload = workload(requests(Connections::Each));
        let window = Window { start_ns: 0, stop_ns: 9, end_ns: 9, drain_ns: 5 };
        let local = Ipv4Addr::LOCALHOST;
        let site =
            SiteEnd { flow: 3, local, remote: local, port: 0, sends: false, ecn: false, window };
        let mut asked = Asked::new(&workload, &site, 1, schedule).unwrap();
        assert_eq!(asked.due_ns(), None);
        asked.begin(1000);
        for (due_ns, index) in [(1005, 0), (1007, 1)] {
            assert_eq!(asked.due_ns(), Some(due_ns));
            assert_eq!(asked.take(due_ns, false), index);
            asked.sent(index, due_ns + 2);
        }
        asked.finished(1, 1020);
        assert!(!asked.is_drained(1013) && asked.is_drained(1014));
        let mut output = HostsOutput::default();
        asked.finish(&mut output);
        let finished = output.requests.iter().map(|request| request.finished_ns);
        assert_eq!(finished.collect::<Vec<_>>(), [None, Some(1020)]);
        assert_eq!((output.lateness_ns, asked.due_ns()), (vec![2, 2], None));
        // Events after the handover, as after a long outage, have no effect on the records.
        asked.finished(0, 1030);
    }
}
