//! The UDP sockets of a box's messages, one for each address that it listens on.
//!
//! Datagrams from the address of a peer go on to the cryptography. From other addresses at most one per
//! millisecond does: the rest costs a receive and a comparison. The box reads a few messages at a time, so
//! that a flood delays no packet by more than a batch. Messages of bundles at rest wait for the end of a
//! round, and share a datagram to the same peer.

mod peers;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::iter;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use forebay_core::bundle::wire::{
    MAX_DATAGRAM, MAX_PROBE, MESSAGE_DSCP, Reject, RejectCounts, may_share, split,
};
use forebay_core::units::Timestamp;
use nix::poll::{PollFd, PollFlags};
use socket2::{Domain, Protocol, Socket, Type};

pub use self::peers::Admission;
use self::peers::{NOT_THE_PEER, Peers};
use super::config::{BundleConfig, Config};
use super::observer::names::Names;
use super::status::{MessageCounters, PeerStatus};
use super::udp;
use crate::clock;

/// Messages read in a row, plus the rest of the last datagram: about 50 us of tag checks.
pub const BATCH: usize = 32;

/// Receive buffer (bytes). It holds 10 ms of small datagrams at half a million per second, with the kernel's
/// overhead of about 800 bytes each. So a flood does not displace genuine messages.
const RECEIVE_BUFFER: usize = 4 << 20;

/// DSCP and ECN of the messages.
const TRAFFIC_CLASS: u32 = (MESSAGE_DSCP as u32) << 2;

/// Result of a session for one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The session rejected the message and counted it.
    Rejected,
    /// The message is authentic, but may be old.
    Authentic,
    /// The message belongs to the current session.
    New {
        /// The challenge to a single address that the message answers.
        answers: Option<u64>,
    },
}

impl Taken {
    /// From the result of a session, whether it heard its peer now, and the challenge that the message
    /// answers.
    pub fn of(opened: Result<(), Reject>, is_heard: bool, answers: Option<u64>) -> Self {
        match opened {
            Err(_) => Self::Rejected,
            Ok(()) if is_heard => Self::New { answers },
            Ok(()) => Self::Authentic,
        }
    }

    /// For a message that may only be verified.
    pub const fn verified(is_authentic: bool) -> Self {
        if is_authentic { Self::Authentic } else { Self::Rejected }
    }
}

/// The sockets, with counters of their messages.
pub struct Messages {
    /// One socket per address that the box listens on ...
    sockets: Vec<UdpSocket>,
    /// ... in the same order: whether the address is IPv4.
    are_v4: Vec<bool>,
    peers: Peers,
    buffer: Box<[u8; MAX_PROBE + 1]>,
    /// Messages that wait to share a datagram, by peer.
    waiting: BTreeMap<SocketAddr, Vec<u8>>,
    counters: MessageCounters,
}

impl Messages {
    /// Binds the sockets.
    pub fn bind(config: &Config) -> io::Result<Self> {
        let socket = |listen: &SocketAddr| bind(*listen, config);
        let sockets = config.listen.iter().map(socket).collect::<io::Result<_>>()?;
        let mut peers = Peers::new(&config.listen);
        peers.set_bundles(clock::now(), &config.bundles);
        Ok(Self {
            sockets,
            are_v4: config.listen.iter().map(SocketAddr::is_ipv4).collect(),
            peers,
            buffer: Box::new([0; MAX_PROBE + 1]),
            waiting: BTreeMap::new(),
            counters: MessageCounters::default(),
        })
    }

    /// Reads up to [`BATCH`] messages from each socket. Passes the messages that may come from a peer to
    /// `take`, with the index of the bundle and the time of the read. The read comes after the arrival: with
    /// an earlier time, a measured round trip would be shorter than the path.
    pub fn receive(&mut self, mut take: impl FnMut(Timestamp, usize, &[u8], Admission) -> Taken) {
        let Self { sockets, peers, buffer, counters, .. } = self;
        for socket in sockets {
            let enough = counters.received + BATCH as u64;
            while counters.received < enough {
                match socket.recv_from(&mut buffer[..]) {
                    Ok((len, source)) => {
                        let now = clock::now();
                        counters.received_bytes += len as u64;
                        // A longer one is cut, and still longer than any message.
                        let mut left = Some(&buffer[..len]);
                        while let Some(datagram) = left {
                            let (message, others) = split(datagram);
                            counters.received += 1;
                            match peers.admit(now, source, message) {
                                Ok((place, admission)) => {
                                    let taken = take(now, place, message, admission);
                                    peers.heard(now, place, source, message.len(), taken);
                                    if admission == Admission::Verify {
                                        counters.add_rejected(NOT_THE_PEER, 1);
                                    } else if taken != Taken::Rejected {
                                        counters.accepted += 1;
                                    }
                                }
                                Err(reason) => counters.add_rejected(reason, 1),
                            }
                            left = (!others.is_empty()).then_some(others);
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // ECONNREFUSED and similar errors: ICMP errors for an earlier datagram. The silence of
                    // the peer shows the same.
                    Err(_) => {}
                }
            }
        }
    }

    /// Drops all messages that wait in the sockets: times measured with them would include the wait.
    pub fn expire(&mut self) {
        for socket in &self.sockets {
            // More than a buffer holds, so that a flood does not keep the box here.
            for _ in 0..RECEIVE_BUFFER / 512 {
                let received = socket.recv_from(&mut self.buffer[..]);
                if received.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                    break;
                }
            }
        }
    }

    /// Accepts messages of these bundles from now on.
    pub fn set_bundles(&mut self, bundles: &[BundleConfig]) {
        self.peers.set_bundles(clock::now(), bundles);
    }

    /// Sets the addresses found for the names of peers.
    pub fn set_names(&mut self, names: &Names) {
        self.peers.set_names(clock::now(), names);
    }

    /// Names of silent peers to look up now: each at once when it falls silent, and then at intervals.
    pub fn take_unknown(&mut self) -> BTreeSet<String> {
        self.peers.take_unknown(clock::now())
    }

    /// Address where the peer of this bundle was last heard, if messages go there.
    pub fn heard_from(&self, place: usize) -> Option<SocketAddr> {
        self.peers.heard_from(place)
    }

    /// Whether the address for messages of any peer has changed since the last call.
    pub const fn take_moved(&mut self) -> bool {
        self.peers.take_moved()
    }

    /// Known location of the peer of this bundle; the other fields have their defaults.
    pub fn peer(&self, place: usize) -> PeerStatus {
        let now = clock::now();
        PeerStatus {
            address: self.peers.describe(place),
            moved: self.peers.moved(now, place),
            elsewhere: self.peers.elsewhere(now, place).map(|it| it.to_string()),
            ..PeerStatus::default()
        }
    }

    /// The nonce of the next challenge to an address where the peer has not answered, and that address, for
    /// [`Messages::send_to`].
    pub fn challenge_due(&mut self, place: usize) -> Option<(SocketAddr, u64)> {
        self.peers.challenge_due(clock::now(), place)
    }

    /// Sends a message to one address.
    pub fn send_to(&mut self, to: SocketAddr, message: &[u8]) {
        self.send_datagram(to, message);
    }

    /// Adds the descriptors to wake for.
    pub fn wake_for<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        fds.extend(self.sockets.iter().map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN)));
    }

    /// Adds the rejects of a removed bundle's session to the counters.
    pub fn retire(&mut self, rejects: &RejectCounts) {
        for (reject, count) in rejects.iter() {
            self.counters.add_rejected(reject.name(), count);
        }
    }

    /// Sends a message to the peer of this bundle, at all its possible addresses. A message that may share a
    /// datagram waits for [`Messages::flush`]. A full socket buffer or an unreachable peer loses the message,
    /// as a network may.
    pub fn send(&mut self, place: usize, message: &[u8]) {
        for to in self.peers.targets(clock::now(), place) {
            if !may_share(message) {
                self.send_datagram(to, message);
                continue;
            }
            let mut waiting = self.waiting.remove(&to).unwrap_or_default();
            if waiting.len() + message.len() > MAX_DATAGRAM {
                self.send_datagram(to, &waiting);
                waiting.clear();
            }
            waiting.extend_from_slice(message);
            self.waiting.insert(to, waiting);
        }
    }

    /// Sends the waiting messages.
    pub fn flush(&mut self) {
        while let Some((to, datagram)) = self.waiting.pop_first() {
            self.send_datagram(to, &datagram);
        }
    }

    fn send_datagram(&mut self, to: SocketAddr, datagram: &[u8]) {
        let Some(at) = self.are_v4.iter().position(|is_v4| *is_v4 == to.is_ipv4()) else { return };
        if self.sockets[at].send_to(datagram, to).is_ok() {
            let messages = iter::successors(Some(datagram), |rest| Some(split(rest).1));
            self.counters.sent += messages.take_while(|rest| !rest.is_empty()).count() as u64;
            self.counters.sent_bytes += datagram.len() as u64;
        }
    }

    /// The counters, with the rejects of the sessions.
    pub fn counters<'a>(
        &self,
        sessions: impl Iterator<Item = &'a RejectCounts>,
    ) -> MessageCounters {
        let mut counters = self.counters.clone();
        for (reject, count) in sessions.flat_map(RejectCounts::iter) {
            counters.add_rejected(reject.name(), count);
        }
        counters
    }
}

fn bind(listen: SocketAddr, config: &Config) -> io::Result<UdpSocket> {
    let bound = || {
        let socket = Socket::new(Domain::for_address(listen), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        match listen {
            SocketAddr::V4(_) => socket.set_tos_v4(TRAFFIC_CLASS)?,
            SocketAddr::V6(_) => socket.set_tclass_v6(TRAFFIC_CLASS)?,
        }
        socket.bind(&listen.into())?;
        force_receive_buffer(&socket)?;
        send_whole(&socket, listen)?;
        Ok(socket)
    };
    let named = |error: io::Error| {
        let is_taken = error.kind() == io::ErrorKind::AddrInUse;
        let holder = if is_taken { udp::holder(listen) } else { None };
        let holder = holder.map_or(String::new(), |holder| format!(", {holder} uses it"));
        let what = format!(
            " = \"{listen}\": {error}{holder}: allowed is an address of this machine with a free port, such as \
             \"{}\"",
            SocketAddr::new(listen.ip(), 7000)
        );
        io::Error::new(error.kind(), config.refuse(None, "box.listen", what))
    };
    Ok(bound().map_err(named)?.into())
}

/// Has datagrams leave whole or not at all, even if they exceed the kernel's path MTU: probes must show
/// whether they arrive.
fn send_whole(socket: &Socket, listen: SocketAddr) -> io::Result<()> {
    let (level, option, value) = match listen {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
        SocketAddr::V6(_) => {
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)
        }
    };
    // SAFETY: the option takes an int, which outlives the call.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets the buffer beyond `net.core.rmem_max` if the process may, otherwise up to it.
fn force_receive_buffer(socket: &Socket) -> io::Result<()> {
    let bytes = RECEIVE_BUFFER as libc::c_int;
    // SAFETY: the option takes an int, which outlives the call.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { socket.set_recv_buffer_size(RECEIVE_BUFFER) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use forebay_core::bundle::BundleId;
    use forebay_core::bundle::keys::{KeyRing, PresharedKey};
    use forebay_core::bundle::receivebox::Receivebox;
    use forebay_core::bundle::sendbox::{SUPPLIED, Sendbox, SendboxConfig};
    use forebay_core::cc;
    use nix::poll::{PollTimeout, poll};

    use super::*;

    /// Sockets at the addresses `listen` for bundle 7 with the peer `peer`, and for bundle 8 with another
    /// peer.
    fn bind(listen: &str, peer: SocketAddr) -> io::Result<Messages> {
        bind_behind(listen, peer, "")
    }

    /// As [`bind`], with these lines on NAT.
    fn bind_behind(listen: &str, peer: SocketAddr, nat: &str) -> io::Result<Messages> {
        let bundle = |id, peer| {
            format!(
                "[[bundle]]\nname = \"b{id}\"\nid = {id}\npeer = \"{peer}\"\n\
                 to = [\"10.{id}.0.0/16\"]\nfrom = [\"192.0.2.0/24\"]\nkey_file = \"key\"\n{nat}"
            )
        };
        let other = "192.0.2.9:9".parse().unwrap();
        let node = "[box]\nrole = \"receivebox\"\nwan = \"s0\"\n\
                    listen = [\"127.0.0.9:9\", \"[2001:db8::9]:9\"]\n";
        let text = [node.into(), bundle(8, other), bundle(7, peer)].concat();
        let config = Config::parse(Path::new("box.toml"), &text).unwrap();
        // A configuration file may not ask for a free port.
        let listen = listen.split(' ').map(|own| own.parse().unwrap()).collect();
        Messages::bind(&Config { listen, ..config })
    }

    fn challenge(bundle: u16) -> Vec<u8> {
        let keys = KeyRing::new(PresharedKey::new([1; 32]), None);
        let now = Timestamp::from_nanos(1);
        let cc = cc::build(&"copa".parse().unwrap(), SUPPLIED).unwrap();
        let bundle = BundleId(bundle);
        let mut sendbox = Sendbox::new(SendboxConfig::default(), cc, bundle, &keys, [1, 2], now);
        let mut datagram = Vec::new();
        assert!(sendbox.poll(now, &mut datagram));
        datagram
    }

    #[test]
    fn only_authentic_messages_of_the_peer_pass() {
        let [peer, stranger] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let mut messages = bind("127.0.0.1:0", peer.local_addr().unwrap()).unwrap();
        let address = messages.sockets[0].local_addr().unwrap();
        let genuine = challenge(7);
        for (socket, datagram) in [
            (&peer, &genuine[..]),
            (&peer, &genuine),
            (&stranger, &genuine),
            (&peer, &challenge(8)),
            (&peer, &challenge(9)),
            (&peer, &[1; 5]),
            (&peer, &[2; 9000]),
        ] {
            socket.send_to(datagram, address).unwrap();
        }
        let mut seen = Vec::new();
        while messages.counters.received < 7 {
            let mut fds = Vec::new();
            messages.wake_for(&mut fds);
            assert_eq!(poll(&mut fds, PollTimeout::from(10_000u16)), Ok(1));
            messages.receive(|_, index, datagram, admission| {
                seen.push((index, datagram.to_vec(), admission));
                if seen.len() == 1 { Taken::New { answers: None } } else { Taken::Rejected }
            });
        }
        // One message from elsewhere may be checked, to report its sender.
        let (taken, verified): (Vec<_>, Vec<_>) =
            seen.into_iter().partition(|(.., admission)| *admission == Admission::Take);
        let of_peer = |it| (1, genuine.clone(), it);
        assert_eq!(taken, [of_peer(Admission::Take), of_peer(Admission::Take)]);
        let others = [(0, challenge(8), Admission::Verify), of_peer(Admission::Verify)];
        assert!(verified.iter().all(|it| others.contains(it)), "{verified:?}");
        let counters = messages.counters(std::iter::empty());
        assert_eq!(counters.accepted, 1, "the session did not accept the second");
        let mut rejected = counters.rejected;
        rejected.sort();
        let expected =
            [("not_the_peer", 2), ("oversized", 1), ("truncated", 1), ("unknown_bundle", 1)];
        assert_eq!(rejected, expected.map(|(reason, count)| (reason.to_string(), count)));
    }

    #[test]
    fn messages_are_read_after_they_came() {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut messages = bind("127.0.0.1:0", peer.local_addr().unwrap()).unwrap();
        let own = messages.sockets[0].local_addr().unwrap();
        let send = || peer.send_to(&challenge(7), own).unwrap();
        send();
        let mut came_by = Vec::new();
        while came_by.len() < 3 {
            messages.receive(|read_at, _, _, _| {
                came_by.push(read_at);
                // The box pauses in the middle of a round, and another message arrives meanwhile.
                std::thread::sleep(std::time::Duration::from_millis(2));
                let sent_at = clock::now();
                came_by.push(sent_at);
                send();
                Taken::Rejected
            });
        }
        assert!(came_by.is_sorted(), "{came_by:?}");
    }

    #[test]
    fn idle_bundles_share_datagrams_to_one_peer() {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        let address = peer.local_addr().unwrap();
        let mut messages = bind("127.0.0.1:0", address).unwrap();
        let own = messages.sockets[0].local_addr().unwrap();
        // Tags are for sessions to check.
        let resting = |bundle: u16| {
            let mut message = vec![0; 42];
            message[..6].copy_from_slice(b"FBAY\x01\x03");
            message[6..8].copy_from_slice(&bundle.to_le_bytes());
            message[24] = 6;
            message
        };
        let urgent = challenge(7);
        (0..20).for_each(|_| messages.send(1, &resting(7)));
        messages.send(1, &urgent);
        messages.flush();
        messages.flush();
        let mut seen: Vec<usize> = Vec::new();
        let mut buffer = [0; 2048];
        while seen.iter().sum::<usize>() < 20 * 42 + urgent.len() {
            seen.push(peer.recv(&mut buffer).unwrap());
        }
        assert_eq!(seen, [13 * 42, urgent.len(), 7 * 42]);
        assert_eq!((messages.counters.sent, messages.counters.sent_bytes), (21, 840 + 48));

        let several = [resting(7), resting(8), resting(7), vec![1; 42]].concat();
        peer.send_to(&several, own).unwrap();
        let mut taken = Vec::new();
        while messages.counters.received < 4 {
            let mut fds = Vec::new();
            messages.wake_for(&mut fds);
            assert_eq!(poll(&mut fds, PollTimeout::from(10_000u16)), Ok(1));
            messages.receive(|_, index, message, admission| {
                if admission == Admission::Take {
                    taken.push((index, message.to_vec()));
                }
                Taken::New { answers: None }
            });
        }
        // The peer of the other bundle has another address.
        assert_eq!(taken, [(1, resting(7)), (1, resting(7))]);
        let counters = messages.counters(iter::empty());
        assert_eq!((counters.received_bytes, counters.accepted), (168, 2));
        let rejected = [("not_the_peer", 1), ("not_ours", 1)];
        assert_eq!(counters.rejected, rejected.map(|(reason, count)| (reason.to_string(), count)));
    }

    /// A box with real sockets, and the receivebox that handles its messages.
    struct Own {
        messages: Messages,
        receivebox: Receivebox,
    }

    impl Own {
        /// Takes the messages that have come, and sends the due ones.
        fn round(&mut self) {
            let Self { messages, receivebox } = self;
            messages.receive(|now, _, datagram, admission| {
                assert_eq!(admission, Admission::Take);
                let opened = receivebox.on_datagram(now, datagram, &mut crate::daemon::unguessable);
                let is_heard = receivebox.heard_at() == Some(now);
                Taken::of(opened, is_heard, receivebox.take_answered())
            });
            let mut datagram = Vec::new();
            while receivebox.poll(clock::now(), &mut datagram) {
                messages.send(1, &datagram);
            }
            while let Some((to, nonce)) = messages.challenge_due(1) {
                receivebox.challenge_at(nonce, &mut datagram);
                messages.send_to(to, &datagram);
            }
            messages.flush();
        }
    }

    /// The datagrams that have arrived at a socket.
    fn come(socket: &UdpSocket) -> Vec<Vec<u8>> {
        socket.set_nonblocking(true).unwrap();
        let mut buffer = [0; 2048];
        iter::from_fn(|| socket.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec())).collect()
    }

    #[test]
    fn intercepted_messages_from_a_third_address_divert_nothing() {
        let [home, attacker] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let at_home = home.local_addr().unwrap();
        let messages = bind_behind("127.0.0.1:0", at_home, "nat = \"source\"\n").unwrap();
        let own = messages.sockets[0].local_addr().unwrap();
        let keys = KeyRing::new(PresharedKey::new([1; 32]), None);
        let cc = cc::build(&"copa".parse().unwrap(), SUPPLIED).unwrap();
        let (id, start) = (BundleId(7), clock::now());
        let mut peer = Sendbox::new(SendboxConfig::default(), cc, id, &keys, [1, 2], start);
        let receivebox = Receivebox::new(id, &keys, 3, 4, start);
        let mut own_box = Own { messages, receivebox };
        let (mut played, mut diverted, mut rounds) = (0, 0, 0);
        while rounds < 30 || played == 0 {
            rounds += 1;
            own_box.round();
            for datagram in come(&home) {
                let _ = peer.on_datagram(clock::now(), &datagram, &mut crate::daemon::unguessable);
            }
            let mut datagram = Vec::new();
            while peer.poll(clock::now(), &mut datagram) {
                // Once the boxes know each other, every other message is intercepted.
                let is_taken = own_box.receivebox.heard_at().is_some() && rounds % 2 == 0;
                if is_taken {
                    attacker.send_to(&datagram, own).unwrap();
                    played += datagram.len();
                } else {
                    home.send_to(&datagram, own).unwrap();
                    // The attacker has also recorded each one, and replays it.
                    attacker.send_to(&datagram, own).unwrap();
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(60));
            own_box.round();
            for datagram in come(&attacker) {
                assert_eq!(datagram[5], 1, "nothing but challenges");
                diverted += datagram.len();
            }
            assert!(diverted <= played, "{diverted} bytes for {played}");
            let now = clock::now();
            assert_eq!(own_box.messages.peers.targets(now, 1), [at_home]);
        }
        assert!(diverted > 0, "the new address was asked");
    }

    #[test]
    fn source_address_has_the_peer_s_ip_version() {
        let peers = ["127.0.0.1:0", "[::1]:0"].map(|own| UdpSocket::bind(own).unwrap());
        for peer in &peers {
            let both = "127.0.0.1:0 [::1]:0";
            let mut messages = bind(both, peer.local_addr().unwrap()).unwrap();
            messages.send(1, b"to the peer of the second bundle");
            let mut datagram = [0; 64];
            let (len, source) = peer.recv_from(&mut datagram).unwrap();
            assert_eq!(&datagram[..len], b"to the peer of the second bundle");
            assert_eq!(source.is_ipv4(), peer.local_addr().unwrap().is_ipv4());
        }
    }

    #[test]
    fn messages_are_of_the_class_of_network_control() {
        let peer = "192.0.2.2:61475".parse().unwrap();
        let v4 = bind("127.0.0.1:0", peer).unwrap();
        assert_eq!(socket2::SockRef::from(&v4.sockets[0]).tos_v4().unwrap(), 0xc0);
        let v6 = bind("[::1]:0", peer).unwrap();
        assert_eq!(socket2::SockRef::from(&v6.sockets[0]).tclass_v6().unwrap(), 0xc0);
    }

    #[test]
    fn taken_address_is_refused_with_its_process() {
        let peer = "192.0.2.2:61475".parse().unwrap();
        let first = bind("127.0.0.1:0", peer).unwrap();
        let address = first.sockets[0].local_addr().unwrap().to_string();
        let error = bind(&address, peer).err().unwrap().to_string();
        let named = format!("box.toml:4: box.listen = \"{address}\": Address already in use");
        let holder = format!("(pid {}) uses it", std::process::id());
        assert!(error.starts_with(&named) && error.contains(&holder), "{error}");
    }

    #[test]
    fn address_of_another_machine_is_refused() {
        let peer = "192.0.2.2:61475".parse().unwrap();
        let error = bind("192.0.2.1:61475", peer).err().unwrap().to_string();
        assert!(error.contains("192.0.2.1:61475") && error.contains("box.listen"), "{error}");
    }
}
