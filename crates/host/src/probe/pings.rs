//! Small packets to the peer and back, from several source ports in turn.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use forebay_core::probe::Ping;
use forebay_core::units::Timestamp;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, Socket, Type};

use super::{ProbeError, wire};
use crate::daemon::unguessable;

/// Source ports of datagrams.
const PORTS: usize = 16;
/// Source ports of handshakes.
const HANDSHAKE_PORTS: usize = 12;
/// Time between two pings, on an idle and on a loaded path. Lost pings of an idle path reveal random loss.
const INTERVALS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(20)];
/// Time between two handshakes, on an idle and on a loaded path: they cost a server more.
const HANDSHAKE_INTERVALS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(100)];
/// Longest wait for the answer to a handshake. The host then aborts it, before TCP repeats it (after 1 s, RFC
/// 6298 section 2.1).
const HANDSHAKE_WAIT: Duration = Duration::from_millis(900);

/// Number of test datagrams to a peer.
const ATTEMPTS: u32 = 4;
/// Time to wait for the answer to each test datagram.
const ATTEMPT_WAIT: Duration = Duration::from_millis(250);

/// Pings of one kind.
pub struct Pings {
    pings: Vec<Ping>,
    next: Timestamp,
    way: Way,
}

/// The packets of the pings.
enum Way {
    /// Datagrams to an answering side.
    Datagrams { probe: u64, sockets: Vec<UdpSocket> },
    /// TCP handshakes, each reset once it is complete.
    Handshakes { peer: SocketAddr, ports: [u16; HANDSHAKE_PORTS], open: Vec<Handshake> },
}

/// A handshake in progress.
struct Handshake {
    ping: usize,
    socket: Socket,
}

impl Pings {
    /// Finds out whether `peer` answers datagrams. An answering side does so only while a connection to it is
    /// open.
    pub fn open(peer: SocketAddr) -> Result<Self, ProbeError> {
        let sockets = (0..PORTS).map(|_| connected(peer)).collect::<io::Result<Vec<_>>>();
        let sockets = sockets.map_err(ProbeError::os("a UDP socket"))?;
        let probe = unguessable();
        let way = if (0..ATTEMPTS).any(|_| is_answered(&sockets[0], probe)) {
            Way::Datagrams { probe, sockets }
        } else {
            Way::Handshakes { peer, ports: [0; HANDSHAKE_PORTS], open: Vec::new() }
        };
        Ok(Self { pings: Vec::new(), next: Timestamp::ZERO, way })
    }

    /// Whether the peer is an answering side.
    pub fn answers(&self) -> bool {
        matches!(self.way, Way::Datagrams { .. })
    }

    /// Sends the ping that is due at `now`. Pings missed by a late call are not made up for.
    pub fn send_due(&mut self, now: Timestamp, is_loaded: bool) {
        if now < self.next {
            return;
        }
        let ping = self.pings.len();
        let lost = |port: usize| Ping { at: now, port: port as u16, rtt: None, forward_ns: None };
        let intervals = match &mut self.way {
            Way::Datagrams { probe, sockets } => {
                let port = ping % sockets.len();
                // A send that the system refuses counts as a lost ping.
                let _ = sockets[port].send(&wire::question(*probe, ping as u32));
                self.pings.push(lost(port));
                INTERVALS
            }
            Way::Handshakes { peer, ports, open } => {
                let port = ping % ports.len();
                let socket = begin(*peer, &mut ports[port]);
                open.extend(socket.ok().map(|socket| Handshake { ping, socket }));
                self.pings.push(lost(port));
                HANDSHAKE_INTERVALS
            }
        };
        self.next = now + intervals[usize::from(is_loaded)];
    }

    /// Takes the answers that have come by `now`.
    pub fn receive(&mut self, now: Timestamp) {
        let Self { pings, way, .. } = self;
        match way {
            Way::Datagrams { probe, sockets } => {
                for socket in sockets {
                    while let Some((number, came_ns)) = read(socket, *probe) {
                        let ping = pings.get_mut(number as usize).filter(|ping| ping.rtt.is_none());
                        if let Some(ping) = ping {
                            ping.rtt = Some(now.saturating_since(ping.at));
                            let sent_ns = ping.at.as_nanos();
                            ping.forward_ns = Some(came_ns.wrapping_sub(sent_ns).cast_signed());
                        }
                    }
                }
            }
            Way::Handshakes { open, .. } => open.retain(|handshake| {
                let ping = &mut pings[handshake.ping];
                let waited = now.saturating_since(ping.at);
                if handshake.socket.peer_addr().is_ok() {
                    ping.rtt = Some(waited);
                    return false;
                }
                let is_refused = !matches!(handshake.socket.take_error(), Ok(None));
                !is_refused && waited < HANDSHAKE_WAIT
            }),
        }
    }

    /// Sockets that receive answers.
    pub fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let sockets: &[UdpSocket] = match &self.way {
            Way::Datagrams { sockets, .. } => &sockets[..],
            Way::Handshakes { .. } => &[],
        };
        sockets.iter().map(|socket| socket.as_fd())
    }

    /// Sockets that become writable with the answer.
    pub fn opening(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let open: &[Handshake] = match &self.way {
            Way::Datagrams { .. } => &[],
            Way::Handshakes { open, .. } => &open[..],
        };
        open.iter().map(|handshake| handshake.socket.as_fd())
    }

    pub fn finish(self) -> Vec<Ping> {
        self.pings
    }
}

/// A UDP socket that exchanges datagrams only with `peer`.
fn connected(peer: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(any_port(peer, 0))?;
    socket.set_nonblocking(true)?;
    socket.connect(peer)?;
    Ok(socket)
}

/// The unspecified address of `peer`'s IP version, with `port`.
fn any_port(peer: SocketAddr, port: u16) -> SocketAddr {
    match peer {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, port).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, port).into(),
    }
}

/// The next answer on `socket`: the number of its question, and the time when the question arrived (ns).
fn read(socket: &UdpSocket, probe: u64) -> Option<(u32, u64)> {
    let mut datagram = [0; wire::LEN + 1];
    loop {
        // An ICMP error about an earlier datagram also ends up here, and is no answer.
        let len = socket.recv(&mut datagram).ok()?;
        if let Some(answered) = wire::answered(&datagram[..len], probe) {
            return Some(answered);
        }
    }
}

/// Whether the peer answers a question in time. Its number belongs to no ping.
fn is_answered(socket: &UdpSocket, probe: u64) -> bool {
    let _ = socket.send(&wire::question(probe, u32::MAX));
    let wait = PollTimeout::try_from(ATTEMPT_WAIT).unwrap_or(PollTimeout::ZERO);
    let _ = poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], wait);
    read(socket, probe).is_some()
}

/// Begins a handshake from `port`; if that is taken, from a port that the kernel chooses, and stores that in
/// `port`.
fn begin(peer: SocketAddr, port: &mut u16) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(peer), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Reset instead of closed, so that the port is free for the next handshake.
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_reuse_address(true)?;
    // Another program may have taken the port meanwhile.
    let own = |port| socket.bind(&any_port(peer, port).into());
    own(*port).or_else(|_| own(0))?;
    *port = socket.local_addr()?.as_socket().map_or(0, |own| own.port());
    match socket.connect(&peer.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket),
    }
}
