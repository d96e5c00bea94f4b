//! Samples of the kernel's state of sending connections during a run.

use socket2::Socket;

use super::Sender;
use super::endpoint::Window;
use forebay_core::record::{SAMPLED_MAX, TcpSample};
use forebay_host::tcp_info::{congestion_control, tcp_info};

/// Sampling interval (ns): four samples in the shortest round trip of a plan.
const INTERVAL_NS: u64 = 10_000_000;

/// Most connections to sample: of a larger workload, only the end of each connection is recorded.
const CONNECTIONS_MAX: usize = SAMPLED_MAX as usize;

/// Samples the connections of one workload at equal intervals.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Time of the next sample; `None` if there are no more.
    next_ns: Option<u64>,
    end_ns: u64,
    seen: Vec<Vec<TcpSample>>,
}

impl Watch {
    /// Samples `connections` connections from the start of the run to the end of `window`.
    pub fn begin(&mut self, started_ns: u64, window: Window, connections: usize) {
        self.next_ns = (connections <= CONNECTIONS_MAX).then_some(started_ns);
        self.end_ns = window.end_ns;
        self.seen = vec![Vec::new(); connections];
    }

    /// Time of the next sample.
    pub fn next_timer(&self) -> Option<u64> {
        self.next_ns
    }

    /// Takes a sample of TCP connections if one is due.
    pub fn on_timer(&mut self, now: u64, connections: &[Option<Socket>]) {
        self.take(now, connections.iter().map(|socket| sample(socket.as_ref()?, now)));
    }

    /// Takes `samples`, one of each connection, if they are due. A failed connection yields none.
    pub fn take(&mut self, now: u64, samples: impl Iterator<Item = Option<TcpSample>>) {
        let Some(due) = self.next_ns.filter(|due| *due <= now) else { return };
        for (seen, sample) in self.seen.iter_mut().zip(samples) {
            seen.extend(sample);
        }
        // A late call does not make up for missed samples.
        let next = due + INTERVAL_NS * ((now - due) / INTERVAL_NS + 1);
        self.next_ns = (next < self.end_ns).then_some(next);
    }

    /// Samples of the TCP connections of the workload at place `flow`.
    pub fn finish(&mut self, flow: usize, connections: &[Option<Socket>]) -> Vec<Sender> {
        let end = |socket: &Option<Socket>| {
            let socket = socket.as_ref()?;
            let port = socket.peer_addr().ok()?.as_socket()?.port();
            Some((port, congestion_control(socket)?))
        };
        self.senders(flow, connections.iter().map(end))
    }

    /// Samples of the connections of the workload at place `flow`, with the receiver's port and the
    /// congestion control of each.
    pub fn senders(
        &mut self,
        flow: usize,
        ends: impl Iterator<Item = Option<(u16, String)>>,
    ) -> Vec<Sender> {
        let seen = std::mem::take(&mut self.seen).into_iter();
        let seen = seen.chain(std::iter::repeat_with(Vec::new));
        let sender = |(end, samples): (Option<(u16, String)>, _)| {
            let (port, cc) = end?;
            Some(Sender { flow, port, cc, samples })
        };
        ends.zip(seen).filter_map(sender).collect()
    }
}

fn sample(socket: &Socket, now: u64) -> Option<TcpSample> {
    let info = tcp_info(socket).ok()?;
    // As in tcp_packets_in_flight() of include/net/tcp.h.
    let out = info.tcpi_unacked + info.tcpi_retrans;
    Some(TcpSample {
        at_ns: now,
        cwnd_segments: info.tcpi_snd_cwnd.into(),
        srtt_ms: (info.tcpi_rtt > 0).then(|| f64::from(info.tcpi_rtt) / 1e3),
        in_flight_segments: Some(out.saturating_sub(info.tcpi_sacked + info.tcpi_lost).into()),
        delivered_bytes: Some(u64::from(info.tcpi_delivered) * u64::from(info.tcpi_snd_mss)),
        retransmissions: info.tcpi_total_retrans.into(),
        duplicates: Some(info.tcpi_dsack_dups.into()),
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn connected() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0.into(), client)
    }

    /// A flow from 1 us to 35 ms.
    const WINDOW: Window =
        Window { start_ns: 1_000, stop_ns: 35_000_000, end_ns: 35_000_000, drain_ns: 0 };

    #[test]
    fn state_is_sampled_periodically_until_end() {
        let (server, client) = connected();
        server.set_tcp_congestion(b"reno").unwrap();
        let connections = [Some(server)];
        let mut watch = Watch::default();
        watch.begin(1_000, WINDOW, 1);
        for now in [1_000, 9_000_000, 10_001_000, 24_000_000, 30_001_500] {
            watch.on_timer(now, &connections);
        }
        assert_eq!(watch.next_timer(), None, "the next would be after the end");
        let senders = watch.finish(3, &connections);
        let times: Vec<u64> = senders[0].samples.iter().map(|sample| sample.at_ns).collect();
        assert_eq!(times, [1_000, 10_001_000, 24_000_000, 30_001_500]);
        // The initial window of RFC 6928.
        assert!(
            senders[0].samples.iter().all(|it| it.cwnd_segments == 10.0 && it.retransmissions == 0)
        );
        assert_eq!((senders[0].cc.as_str(), senders[0].flow), ("reno", 3));
        assert_eq!(senders[0].port, client.local_addr().unwrap().port());
    }

    #[test]
    fn many_connections_are_sampled_only_at_end() {
        let (server, _client) = connected();
        let mut connections = vec![Some(server)];
        connections.resize_with(CONNECTIONS_MAX + 1, || None);
        let mut watch = Watch::default();
        watch.begin(1_000, WINDOW, connections.len());
        assert_eq!(watch.next_timer(), None);
        let senders = watch.finish(3, &connections);
        assert!(senders.len() == 1 && senders[0].samples.is_empty());
    }
}
