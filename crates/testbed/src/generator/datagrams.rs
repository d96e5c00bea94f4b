//! UDP: open-loop datagrams and closed-loop pings.

use std::os::fd::AsRawFd;
use std::time::Duration;

use forebay_core::random::Streams;
use forebay_core::traffic::{SendTimes, Source};
use forebay_core::units::{ByteCount, Rate};
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{MsgFlags, SockaddrIn, recvfrom, sendto};
use socket2::Socket;

use super::endpoint::{Endpoint, Window};
use super::meter::Meter;
use super::reactor::{Key, Reactor};
use super::sockets::{failed, udp};
use super::workload::Workload;
use super::{GeneratorError, HostsOutput, SiteEnd};
use forebay_core::record::FlowRecord;
use forebay_core::traffic::Timing;
use forebay_host::clock;

/// Bytes of Ethernet (without FCS), IPv4 and UDP headers around a payload.
const HEADER_BYTES: u32 = 14 + 20 + 8;

/// The largest frame that leaves a device with an MTU of 1500 (bytes, without FCS).
const FRAME_BYTES_MAX: u32 = 1514;

/// Payload of a ping and of its answer (bytes).
const PING_BYTES: usize = 40;

/// Time after which a ping without an answer counts as lost (ns). It is longer than any queue here,
/// and a closed loop must continue.
const PING_TIMEOUT_NS: u64 = 1_000_000_000;

/// Time that datagrams are awaited after the last one was due (ns), for the same reason.
const LINGER_NS: u64 = 1_000_000_000;

/// The source that a [`Pacer`] follows; rejects figures that cannot be sent.
pub(super) fn source(
    workload: &Workload,
    rate: Rate,
    packet_bytes: u32,
    timing: Timing,
) -> Result<Source, GeneratorError> {
    let wrong = |key, value, allowed| {
        let workload = workload.name.clone();
        Err(GeneratorError::Workload { workload, key, value, allowed })
    };
    if !(HEADER_BYTES..=FRAME_BYTES_MAX).contains(&packet_bytes) {
        return wrong("packet_bytes", u64::from(packet_bytes), "42 to 1514");
    }
    if rate == Rate::ZERO {
        return wrong("rate", 0, "more than zero");
    }
    let packet = ByteCount::new(u64::from(packet_bytes));
    if matches!(timing, Timing::OnOff { on: Duration::ZERO, .. }) {
        return wrong("on", 0, "more than zero");
    }
    Ok(timing.source(rate, packet))
}

/// Writes `datagram` into the payload, as far as it has room. Datagrams of an application differ. If
/// only the IP identification differed, a sendbox would see the same packets every 65,536.
fn number(payload: &mut [u8], datagram: u64) {
    let len = payload.len().min(8);
    payload[..len].copy_from_slice(&datagram.to_le_bytes()[..len]);
}

/// Sends at the times of a source.
pub(super) struct Pacer {
    flow: usize,
    socket: Socket,
    payload: Vec<u8>,
    times: SendTimes,
    /// Due time of the next datagram, since the start of the flow.
    next: Duration,
    sent: u64,
    window: Window,
    started: bool,
}

impl Pacer {
    pub fn open(
        workload: &Workload,
        site: &SiteEnd,
        source: Source,
        packet_bytes: u32,
    ) -> Result<Self, GeneratorError> {
        let mut times =
            source.send_times(&Streams::new(workload.seed)).expect("checked, and not greedy");
        let socket = udp(workload, site.any_port(), Some(site.receiver()))?;
        if let Some(ttl) = workload.ttl {
            socket.set_ttl_v4(ttl.into()).map_err(failed(&workload.name, "IP_TTL"))?;
        }
        Ok(Self {
            flow: site.flow,
            socket,
            payload: vec![0; (packet_bytes - HEADER_BYTES) as usize],
            next: times.next().unwrap_or(Duration::MAX),
            times,
            sent: 0,
            window: site.window,
            started: false,
        })
    }

    fn due_ns(&self) -> u64 {
        let after = u64::try_from(self.next.as_nanos()).unwrap_or(u64::MAX);
        self.window.start_ns.saturating_add(after)
    }
}

impl Endpoint for Pacer {
    fn begin(&mut self, started_ns: u64) {
        self.window = self.window.from(started_ns);
        self.started = true;
    }

    fn on_event(&mut self, _: &Reactor, _: u32, _: EpollFlags) -> Result<(), GeneratorError> {
        Ok(())
    }

    fn next_timer(&self) -> Option<u64> {
        (self.started && self.due_ns() < self.window.stop_ns).then(|| self.due_ns())
    }

    fn on_timer(&mut self, _: &Reactor, now: u64) -> Result<(), GeneratorError> {
        while self.next_timer().is_some_and(|due| due <= now) {
            number(&mut self.payload, self.sent);
            // The datagram counts even if the kernel refuses it: the receiver will miss it.
            let _ = self.socket.send(&self.payload);
            self.sent += 1;
            self.next = self.times.next().unwrap_or(Duration::MAX);
        }
        Ok(())
    }

    fn is_drained(&self, now: u64) -> bool {
        now >= self.window.end_ns
    }

    fn finish(&mut self, output: &mut HostsOutput) {
        output.datagrams_sent.push((self.flow, self.sent));
    }
}

/// Counts the datagrams of a [`Pacer`].
pub(super) struct Counter {
    flow: usize,
    socket: Socket,
    meter: Meter,
    datagrams: u64,
    window: Window,
}

impl Counter {
    pub fn open(
        reactor: &Reactor,
        key: u32,
        workload: &Workload,
        site: &SiteEnd,
    ) -> Result<Self, GeneratorError> {
        let socket = udp(workload, site.receiver(), None)?;
        reactor.watch(&socket, Key { endpoint: key, connection: 0 }, EpollFlags::EPOLLIN)?;
        Ok(Self {
            flow: site.flow,
            socket,
            meter: Meter::default(),
            datagrams: 0,
            window: site.window,
        })
    }
}

impl Endpoint for Counter {
    fn begin(&mut self, started_ns: u64) {
        self.window = self.window.from(started_ns);
        self.meter.begin(started_ns);
    }

    fn on_event(&mut self, _: &Reactor, _: u32, _: EpollFlags) -> Result<(), GeneratorError> {
        let mut datagram = [0; FRAME_BYTES_MAX as usize];
        while let Ok(length) = nix::unistd::read(&self.socket, &mut datagram) {
            self.meter.add(clock::now().as_nanos(), length as u64);
            self.datagrams += 1;
        }
        Ok(())
    }

    fn is_drained(&self, now: u64) -> bool {
        now >= self.window.end_ns.saturating_add(LINGER_NS)
    }

    fn finish(&mut self, output: &mut HostsOutput) {
        output.flows.push(self.meter.take_record(self.flow, 0));
        output.datagrams_received.push((self.flow, self.datagrams));
    }
}

/// Sends a ping once the answer to the previous ping has arrived.
pub(super) struct Pinger {
    flow: usize,
    loops: Vec<PingLoop>,
    window: Window,
    /// Send time of the first pings; `None` after that.
    first_ns: Option<u64>,
}

struct PingLoop {
    socket: Socket,
    sequence: u64,
    /// Send time of the current ping.
    sent_ns: Option<u64>,
    rtts_ns: Vec<u64>,
    lost: u64,
    meter: Meter,
}

impl Pinger {
    pub fn open(
        reactor: &Reactor,
        key: u32,
        workload: &Workload,
        site: &SiteEnd,
        loops: u32,
    ) -> Result<Self, GeneratorError> {
        let mut open = Vec::new();
        for connection in 0..loops {
            let socket = udp(workload, site.any_port(), Some(site.receiver()))?;
            let key = Key { endpoint: key, connection };
            reactor
                .watch(&socket, key, EpollFlags::EPOLLIN)
                .map_err(failed(&workload.name, "epoll"))?;
            open.push(PingLoop {
                socket,
                sequence: 0,
                sent_ns: None,
                rtts_ns: Vec::new(),
                lost: 0,
                meter: Meter::default(),
            });
        }
        Ok(Self { flow: site.flow, loops: open, window: site.window, first_ns: None })
    }
}

impl PingLoop {
    fn send(&mut self, now: u64, stop_ns: u64) {
        self.sent_ns = None;
        if now >= stop_ns {
            return;
        }
        self.sequence += 1;
        let mut payload = [0; PING_BYTES];
        payload[..8].copy_from_slice(&self.sequence.to_le_bytes());
        self.sent_ns = Some(now);
        // A ping that the kernel refuses counts as lost like any other.
        let _ = self.socket.send(&payload);
    }

    /// Reads the answers that arrived; late answers to lost pings do not count.
    fn receive(&mut self, stop_ns: u64) {
        let mut payload = [0; PING_BYTES];
        while let Ok(length) = nix::unistd::read(&self.socket, &mut payload) {
            let now = clock::now().as_nanos();
            let sequence = u64::from_le_bytes(payload[..8].try_into().expect("eight of forty"));
            let Some(sent) = self.sent_ns else { continue };
            if length == PING_BYTES && sequence == self.sequence {
                self.rtts_ns.push(now - sent);
                self.meter.add(now, length as u64);
                self.send(now, stop_ns);
            }
        }
    }
}

impl Endpoint for Pinger {
    fn begin(&mut self, started_ns: u64) {
        self.window = self.window.from(started_ns);
        self.first_ns = Some(self.window.start_ns);
        for ping in &mut self.loops {
            ping.meter.begin(started_ns);
        }
    }

    fn on_event(
        &mut self,
        _: &Reactor,
        connection: u32,
        _: EpollFlags,
    ) -> Result<(), GeneratorError> {
        if let Some(ping) = self.loops.get_mut(connection as usize) {
            ping.receive(self.window.stop_ns);
        }
        Ok(())
    }

    fn next_timer(&self) -> Option<u64> {
        let sent = self.loops.iter().filter_map(|ping| ping.sent_ns).min();
        self.first_ns.or(sent.map(|sent| sent + PING_TIMEOUT_NS))
    }

    fn on_timer(&mut self, _: &Reactor, now: u64) -> Result<(), GeneratorError> {
        let first = self.first_ns.take().is_some();
        for ping in &mut self.loops {
            let overdue = ping.sent_ns.is_some_and(|sent| sent + PING_TIMEOUT_NS <= now);
            ping.lost += u64::from(overdue);
            if first || overdue {
                ping.send(now, self.window.stop_ns);
            }
        }
        Ok(())
    }

    fn is_drained(&self, now: u64) -> bool {
        let waiting = self.loops.iter().any(|ping| ping.sent_ns.is_some());
        now >= self.window.end_ns && !waiting
    }

    fn finish(&mut self, output: &mut HostsOutput) {
        for (index, ping) in self.loops.iter_mut().enumerate() {
            output.flows.push(FlowRecord {
                rtts_ns: std::mem::take(&mut ping.rtts_ns),
                lost: ping.lost,
                ..ping.meter.take_record(self.flow, index as u32)
            });
        }
    }
}

/// Answers every ping with its own bytes.
pub(super) struct Echo {
    socket: Socket,
    window: Window,
}

impl Echo {
    pub fn open(
        reactor: &Reactor,
        key: u32,
        workload: &Workload,
        site: &SiteEnd,
    ) -> Result<Self, GeneratorError> {
        let socket = udp(workload, site.receiver(), None)?;
        reactor.watch(&socket, Key { endpoint: key, connection: 0 }, EpollFlags::EPOLLIN)?;
        Ok(Self { socket, window: site.window })
    }
}

impl Endpoint for Echo {
    fn begin(&mut self, started_ns: u64) {
        self.window = self.window.from(started_ns);
    }

    fn on_event(&mut self, _: &Reactor, _: u32, _: EpollFlags) -> Result<(), GeneratorError> {
        let mut payload = [0; PING_BYTES];
        let fd = self.socket.as_raw_fd();
        while let Ok((length, Some(from))) = recvfrom::<SockaddrIn>(fd, &mut payload) {
            let _ = sendto(fd, &payload[..length], &from, MsgFlags::empty());
        }
        Ok(())
    }

    fn is_drained(&self, now: u64) -> bool {
        now >= self.window.end_ns
    }

    fn finish(&mut self, _: &mut HostsOutput) {}
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::generator::tests;
    use forebay_scenario::Traffic;

    /// Nanoseconds per millisecond.
    const MS: u64 = 1_000_000;
    /// Start of the flow in ns.
    const START: u64 = 1_000 * MS;

    /// A packet of 1500 bytes each 10 ms.
    const RATE: Rate = Rate::from_bits_per_sec(1_200_000);

    fn workload(timing: Timing) -> Workload {
        let (flows, rate, packet_bytes) = (1, RATE, 1500);
        tests::workload(Traffic::Datagrams { flows, rate, packet_bytes, timing })
    }

    /// Due times (ms) of datagrams in a second that begins 5 ms after the start.
    fn due_ms(timing: Timing, seed: u64) -> Vec<f64> {
        let workload = Workload { seed, ..workload(timing) };
        let local = Ipv4Addr::LOCALHOST;
        let [start_ns, stop_ns] = [5 * MS, 1_005 * MS];
        let window = Window { start_ns, stop_ns, end_ns: stop_ns, drain_ns: 0 };
        let site =
            SiteEnd { flow: 0, local, remote: local, port: 9, sends: true, ecn: false, window };
        let source = source(&workload, RATE, 1500, timing).unwrap();
        let mut pacer = Pacer::open(&workload, &site, source, 1500).unwrap();
        assert_eq!(pacer.next_timer(), None, "not before the start");
        pacer.begin(START);
        let reactor = Reactor::new().unwrap();
        let mut due = Vec::new();
        while let Some(at) = pacer.next_timer() {
            due.push((at - START) as f64 / MS as f64);
            pacer.on_timer(&reactor, at).unwrap();
        }
        assert_eq!(pacer.sent as usize, due.len());
        due
    }

    #[test]
    fn datagrams_are_due_when_their_source_says() {
        let even: Vec<f64> = (0..100).map(|number| 5.0 + 10.0 * f64::from(number)).collect();
        assert_eq!(due_ms(Timing::Even, 1), even);
        let poisson = due_ms(Timing::Poisson, 1);
        assert!(poisson[0] > 5.0 && (60..140).contains(&poisson.len()), "{poisson:?}");
        assert_eq!(poisson, due_ms(Timing::Poisson, 1));
        assert_ne!(poisson, due_ms(Timing::Poisson, 2));
        let bursts = due_ms(
            Timing::OnOff { on: Duration::from_millis(50), off: Duration::from_millis(150) },
            1,
        );
        assert!((5..70).contains(&bursts.len()), "{bursts:?}");
        let gaps: Vec<f64> = bursts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.contains(&10.0) && gaps.iter().any(|gap| *gap > 10.0), "{gaps:?}");
    }

    #[test]
    fn datagrams_differ_in_content() {
        let receiver = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = receiver.local_addr().unwrap().port();
        let local = Ipv4Addr::LOCALHOST;
        let window = Window { start_ns: 0, stop_ns: 3_000 * MS, end_ns: 3_000 * MS, drain_ns: 0 };
        for packet_bytes in [1500, 44, 42] {
            let site =
                SiteEnd { flow: 0, local, remote: local, port, sends: true, ecn: false, window };
            let workload = workload(Timing::Even);
            let source = source(&workload, RATE, 1500, Timing::Even).unwrap();
            let mut pacer = Pacer::open(&workload, &site, source, packet_bytes).unwrap();
            pacer.begin(START);
            let reactor = Reactor::new().unwrap();
            let mut seen = std::collections::BTreeSet::new();
            while let Some(at) = pacer.next_timer() {
                pacer.on_timer(&reactor, at).unwrap();
                let mut datagram = [0; FRAME_BYTES_MAX as usize];
                let length = receiver.recv(&mut datagram).unwrap();
                assert_eq!(length as u32, packet_bytes - HEADER_BYTES);
                // A sendbox hashes 16 bytes behind the UDP header.
                seen.insert(datagram[..length.min(16)].to_vec());
            }
            assert_eq!(pacer.sent, 300);
            assert_eq!(seen.len(), if packet_bytes > HEADER_BYTES { 300 } else { 1 });
        }
    }

    #[test]
    fn invalid_datagram_settings_are_refused_by_key() {
        let never = Timing::OnOff { on: Duration::ZERO, off: Duration::from_millis(1) };
        for (rate, packet_bytes, timing, key) in [
            (Rate::ZERO, 1500, Timing::Even, "rate"),
            (RATE, 41, Timing::Poisson, "packet_bytes"),
            (RATE, 1515, Timing::Poisson, "packet_bytes"),
            (RATE, 1500, never, "on"),
        ] {
            let error = source(&workload(timing), rate, packet_bytes, timing).unwrap_err();
            assert!(error.to_string().contains(key), "{error}");
        }
    }
}
