//! Measures the round trip to the routers on the path, by datagrams to the peer with a limited number of hops.
//!
//! The router that drops such a datagram reports it (ICMP time exceeded, RFC 792 and RFC 4443 section 3.3), and the
//! kernel passes the report to the socket (`IP_RECVERR`, ip(7)). A queue in front of the router delays the report. Each
//! datagram has a separate socket, so that a late report is matched to its datagram.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use forebay_core::probe::HopAnswer;
use forebay_core::units::Timestamp;
use nix::sys::socket::sockopt::{Ipv4RecvErr, Ipv6RecvErr};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use socket2::{Domain, Protocol, Socket, Type};

/// Time between two datagrams with the same number of hops. Linux answers six at once and then one per second.
const INTERVAL: Duration = Duration::from_millis(500);
/// Longest time to wait for a report.
const WAIT_MAX: Duration = Duration::from_secs(3);
/// Number of routers beyond the site that are also measured, to locate the queue.
const BEYOND: u8 = 3;

/// ICMP time exceeded: types of RFC 792 and of RFC 4443.
const TIME_EXCEEDED: [u8; 2] = [11, 3];

/// The routers of a path.
pub struct Hops {
    peer: SocketAddr,
    /// Largest number of hops of a datagram.
    most: u8,
    next: Timestamp,
    sent: Vec<Sent>,
    answers: Vec<HopAnswer>,
    routers: BTreeMap<u8, IpAddr>,
}

/// A datagram without a report so far.
struct Sent {
    socket: Socket,
    hops: u8,
    at: Timestamp,
}

impl Hops {
    pub fn new(peer: SocketAddr, site_hops: u8) -> Self {
        let most = site_hops.saturating_add(BEYOND);
        let (sent, answers, routers) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { peer, most, next: Timestamp::ZERO, sent, answers, routers }
    }

    /// Sends the datagrams that are due at `now`.
    pub fn send_due(&mut self, now: Timestamp) {
        if now < self.next {
            return;
        }
        self.next = now + INTERVAL;
        for hops in 1..=self.most {
            // If the system refuses, no data of the routers is collected: a probe does not fail for that.
            if let Ok(socket) = send(self.peer, hops) {
                self.sent.push(Sent { socket, hops, at: now });
            }
        }
    }

    /// Takes the reports that have come by `now`.
    pub fn receive(&mut self, now: Timestamp) {
        let Self { peer, most, sent, answers, routers, .. } = self;
        sent.retain(|sent| {
            let Some((from, is_exceeded)) = said(&sent.socket) else {
                return now.saturating_since(sent.at) < WAIT_MAX;
            };
            if from == peer.ip().to_canonical() {
                *most = (*most).min(sent.hops - 1);
            } else if is_exceeded {
                let rtt = now.saturating_since(sent.at);
                answers.push(HopAnswer { at: sent.at, hops: sent.hops, rtt });
                routers.insert(sent.hops, from);
            }
            false
        });
    }

    /// Sockets that wait for a report.
    pub fn open(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sent.iter().map(|sent| sent.socket.as_fd())
    }

    pub fn finish(self) -> (Vec<HopAnswer>, BTreeMap<u8, IpAddr>) {
        (self.answers, self.routers)
    }
}

/// Sends a datagram to `peer` that can pass `hops` routers.
fn send(peer: SocketAddr, hops: u8) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(peer), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    if peer.is_ipv4() {
        socket.set_ttl_v4(hops.into())?;
        setsockopt(&socket, Ipv4RecvErr, &true)?;
    } else {
        socket.set_unicast_hops_v6(hops.into())?;
        setsockopt(&socket, Ipv6RecvErr, &true)?;
    }
    socket.connect(&peer.into())?;
    // The datagram is no question of a probe, so the peer has nothing to answer if it arrives.
    socket.send(&[0; 8])?;
    Ok(socket)
}

/// The sender of a report about the datagram of `socket`, and whether the report says that its hops were used up.
fn said(socket: &Socket) -> Option<(IpAddr, bool)> {
    let mut payload = [0; 64];
    let mut iov = [IoSliceMut::new(&mut payload)];
    let mut control = nix::cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6);
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut iov, Some(&mut control), flags).ok()?;
    message.cmsgs().ok()?.find_map(|control| match control {
        ControlMessageOwned::Ipv4RecvErr(error, Some(from)) => {
            let from = Ipv4Addr::from(u32::from_be(from.sin_addr.s_addr));
            Some((from.into(), error.ee_type == TIME_EXCEEDED[0]))
        }
        ControlMessageOwned::Ipv6RecvErr(error, Some(from)) => {
            let from = Ipv6Addr::from(from.sin6_addr.s6_addr);
            Some((from.into(), error.ee_type == TIME_EXCEEDED[1]))
        }
        _ => None,
    })
}
