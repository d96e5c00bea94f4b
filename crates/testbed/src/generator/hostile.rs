//! An attacker next to a box: forged, replayed, truncated and oversized messages over a real
//! socket.
//!
//! It listens on the box's own device from before the first handshake, so it can replay messages of
//! the running session. If the boxes have restarted since, it also has the whole session before. It
//! first replays that session once in order, then sends all kinds in random order. It sends in the
//! name of the peer, since a box ignores other senders. It has no key.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use forebay_core::packet::Headers;
use forebay_core::random::{Stream, Streams};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use crate::orders::{self, Order};
use forebay_core::record::AttackRecord;
use forebay_host::clock;
use forebay_host::port::{Direction, PacketPort, Port, PortError};

/// Most recent messages kept for replay: some seconds of the running session at 200 reports a
/// second.
const NEWEST_MAX: usize = 512;

/// Messages kept from the recorded session: 40 s of it, at most 12 MB.
const RECORDED_MAX: usize = 8192;

/// Messages sent between two reads of live messages.
const BATCH: u64 = 64;

/// Line to the testbed once all messages are sent.
pub const DONE: &str = "attacked";

/// Interval of the reads of live messages while it sends nothing.
const IDLE: Duration = Duration::from_millis(1);

/// Bytes of the Ethernet, IPv4 and UDP headers.
const PAYLOAD_OFFSET: usize = 14 + 20 + 8;

/// The largest payload of a UDP datagram over IPv4 (RFC 768, RFC 791).
const OVERSIZED_MAX: usize = 65_507;

/// Specification of an attacker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostileSpec {
    /// The device it listens on: one of the box under attack.
    pub device: String,
    /// The box under attack.
    pub target: SocketAddrV4,
    /// The other box, in whose name it sends.
    pub peer: SocketAddrV4,
    /// Messages before this time belong to the recorded session (ns since the start of the run).
    pub recorded_until_ns: u64,
    /// Start of the attack (ns since the start of the run); the attacker listens throughout.
    pub at_ns: u64,
    /// Number of messages; the attacker sends them as fast as it can.
    pub messages: u64,
    /// File for the [`AttackRecord`] (JSON), without the counters of the box.
    pub output: PathBuf,
    /// Seed of the forged bytes.
    pub seed: u64,
}

/// An attacker that could not start.
#[derive(Debug, thiserror::Error)]
pub enum HostileError {
    /// The device cannot be listened on.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The socket failed.
    #[error("attacking {target}: {source}")]
    Socket {
        /// The box.
        target: SocketAddrV4,
        /// Why the socket failed.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why the file cannot be written.
        source: io::Error,
    },
}

/// Runs the attacker until the testbed ends it.
pub fn run(spec: HostileSpec) -> Result<(), HostileError> {
    let mut attacker = Attacker::new(&spec)?;
    let (orders, inbox) = mpsc::channel();
    std::thread::spawn(move || {
        // The end of stdin closes the channel, and that ends the attack.
        for line in io::stdin().lines().map_while(Result::ok) {
            if orders.send(line).is_err() {
                break;
            }
        }
    });
    orders::tell("ready");
    let mut started = None;
    let mut began = None;
    let mut left = spec.messages;
    loop {
        match inbox.try_recv() {
            Ok(line) => {
                if let Some(Order::Start(at)) = Order::parse(&line) {
                    started = Some(at);
                }
            }
            Err(mpsc::TryRecvError::Disconnected) => break,
            Err(mpsc::TryRecvError::Empty) => {}
        }
        let now = clock::now().as_nanos();
        let is_past = |at_ns| started.is_some_and(|started: u64| now >= started + at_ns);
        attacker.listen(!is_past(spec.recorded_until_ns));
        if left > 0 && is_past(spec.at_ns) && attacker.repertoire.is_ready() {
            attacker.attack(BATCH.min(left));
            left = left.saturating_sub(BATCH);
            let began = *began.get_or_insert(now);
            let sent = &mut attacker.repertoire.sent;
            (sent.began_ns, sent.took_ns) = (began, clock::now().as_nanos() - began);
            if left == 0 {
                orders::tell(DONE);
            }
        } else {
            std::thread::sleep(IDLE);
        }
    }
    let json = serde_json::to_string(&attacker.repertoire.sent).expect("counters are JSON");
    fs::write(&spec.output, json)
        .map_err(|source| HostileError::File { path: spec.output.clone(), source })
}

/// Messages to send, and counts of sent ones.
struct Repertoire {
    /// Messages of the recorded session, in order.
    recorded: Vec<Vec<u8>>,
    /// Number of recorded messages that were replayed in order.
    replayed_in_order: usize,
    /// The newest messages.
    newest: VecDeque<Vec<u8>>,
    random: Stream,
    sent: AttackRecord,
}

impl Repertoire {
    fn new(seed: u64) -> Self {
        Self {
            recorded: Vec::new(),
            replayed_in_order: 0,
            newest: VecDeque::new(),
            random: Streams::new(seed).stream("hostile"),
            sent: AttackRecord::default(),
        }
    }

    fn keep(&mut self, message: &[u8], is_recorded: bool) {
        if is_recorded && self.recorded.len() < RECORDED_MAX {
            self.recorded.push(message.to_vec());
        }
        if self.newest.len() == NEWEST_MAX {
            self.newest.pop_front();
        }
        self.newest.push_back(message.to_vec());
    }

    /// Whether messages of both kinds are there to replay.
    fn is_ready(&self) -> bool {
        !self.recorded.is_empty() && !self.newest.is_empty()
    }

    /// The next message: first the recorded session in order, then any kind.
    fn next_message(&mut self) -> Vec<u8> {
        match self.recorded.get(self.replayed_in_order) {
            Some(message) => {
                self.replayed_in_order += 1;
                self.sent.recorded += 1;
                message.clone()
            }
            None => self.random_message(),
        }
    }

    fn random_message(&mut self) -> Vec<u8> {
        let index = self.random.below(self.newest.len() as u64) as usize;
        let mut message = self.newest[index].clone();
        let len = message.len() as u64;
        match self.random.below(5) {
            0 => {
                self.sent.forged += 1;
                for _ in 0..=self.random.below(8) {
                    let index = self.random.below(len) as usize;
                    message[index] ^= 1 + self.random.below(255) as u8;
                }
            }
            1 => self.sent.replayed += 1,
            2 => {
                self.sent.recorded += 1;
                let index = self.random.below(self.recorded.len() as u64) as usize;
                message.clone_from(&self.recorded[index]);
            }
            3 => {
                self.sent.truncated += 1;
                message.truncate(self.random.below(len) as usize);
            }
            _ => {
                self.sent.oversized += 1;
                // Mostly a few extra bytes; one in 64 as large as UDP allows.
                let largest = self.random.below(64) == 0;
                let extra = len + 1 + self.random.below(64);
                message.resize(if largest { OVERSIZED_MAX } else { extra as usize }, 0);
            }
        }
        message
    }
}

struct Attacker {
    port: PacketPort,
    socket: UdpSocket,
    target: SocketAddrV4,
    repertoire: Repertoire,
}

impl Attacker {
    fn new(spec: &HostileSpec) -> Result<Self, HostileError> {
        let socket = in_the_name_of(spec.peer)
            .map_err(|source| HostileError::Socket { target: spec.target, source })?;
        Ok(Self {
            port: PacketPort::open(&spec.device, Direction::Receive)?,
            socket,
            target: spec.target,
            repertoire: Repertoire::new(spec.seed),
        })
    }

    /// Keeps the messages to the target that have arrived since the last call.
    fn listen(&mut self, is_recorded: bool) {
        let Self { port, target, repertoire, .. } = self;
        // An error of the device only means fewer messages to replay.
        let _ = port.receive(usize::MAX, &mut |frame, _| {
            if let Some(message) = message_to(*target, frame) {
                repertoire.keep(message, is_recorded);
            }
        });
    }

    fn attack(&mut self, count: u64) {
        for _ in 0..count {
            let message = self.repertoire.next_message();
            if self.socket.send_to(&message, self.target).is_err() {
                self.repertoire.sent.refused += 1;
            }
        }
    }
}

/// A socket that sends datagrams from `peer`, an address that need not be ours (`IP_TRANSPARENT` in
/// ip(7)). Datagrams to an address of this namespace still arrive, over loopback.
fn in_the_name_of(peer: SocketAddrV4) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_ip_transparent_v4(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from(peer).into())?;
    Ok(socket.into())
}

/// The payload of `frame` if it is a UDP datagram to `target`. Datagrams of boxes have neither IP
/// options nor padding.
fn message_to(target: SocketAddrV4, frame: &[u8]) -> Option<&[u8]> {
    let headers = Headers::parse(frame).ok()?;
    let to_target = i32::from(headers.protocol) == libc::IPPROTO_UDP
        && headers.destination == IpAddr::from(*target.ip())
        && headers.destination_port == target.port();
    frame.get(PAYLOAD_OFFSET..).filter(|message| to_target && !message.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Namespace;
    use crate::tests::skip_without_root;

    fn attacker(peer: SocketAddrV4, target: SocketAddrV4) -> Attacker {
        let spec = HostileSpec {
            device: "lo".into(),
            target,
            peer,
            recorded_until_ns: 0,
            at_ns: 0,
            messages: 0,
            output: PathBuf::new(),
            seed: 1,
        };
        Attacker::new(&spec).unwrap()
    }

    #[test]
    fn attack_kinds_arrive_from_peer_and_are_counted() {
        if skip_without_root() {
            return;
        }
        let namespace = Namespace::new().unwrap();
        let mut up = std::process::Command::new("ip");
        up.args(["link", "set", "dev", "lo", "up"]);
        namespace.host(&mut up).unwrap();
        assert!(up.status().unwrap().success());
        let sent = namespace.within(|| {
            let victim = UdpSocket::bind("127.0.0.1:0").unwrap();
            victim.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let std::net::SocketAddr::V4(target) = victim.local_addr().unwrap() else { panic!() };
            // This namespace does not have the address.
            let peer = SocketAddrV4::new([10, 1, 3, 2].into(), 61_475);
            let mut attacker = attacker(peer, target);
            let genuine = UdpSocket::bind("127.0.0.1:0").unwrap();
            let (old, new) = ([1; 64], [2; 64]);
            for (message, is_recorded) in [(old, true), (new, false)] {
                genuine.send_to(&message, target).unwrap();
                victim.recv(&mut [0; 64]).unwrap();
                attacker.listen(is_recorded);
            }
            let heard = &attacker.repertoire;
            assert_eq!((heard.recorded.len(), heard.newest.len()), (1, 2));
            let mut buffer = vec![0; 1 << 16];
            let mut seen = AttackRecord::default();
            for _ in 0..100 {
                attacker.attack(1);
                let (len, source) = victim.recv_from(&mut buffer).unwrap();
                assert_eq!(source, peer.into());
                seen.truncated += u64::from(len < 64);
                seen.oversized += u64::from(len > 64);
                // The recorded message is the old one; one of the newest messages may be, too.
                seen.recorded += u64::from(buffer[..len] == old);
            }
            let sent = attacker.repertoire.sent;
            assert_eq!((sent.truncated, sent.oversized), (seen.truncated, seen.oversized));
            assert!(seen.recorded >= sent.recorded);
            Ok(sent)
        });
        let sent = sent.unwrap();
        let kinds = [sent.forged, sent.replayed, sent.recorded, sent.truncated, sent.oversized];
        assert!(
            kinds.iter().all(|count| *count > 0) && kinds.iter().sum::<u64>() == 100,
            "{sent:?}"
        );
        assert_eq!(sent.refused, 0);
    }

    #[test]
    fn recorded_session_is_replayed_first_and_once() {
        let mut repertoire = Repertoire::new(1);
        assert!(!repertoire.is_ready());
        for number in 0..5 {
            repertoire.keep(&[number; 40], number < 3);
        }
        assert!(repertoire.is_ready());
        let first: Vec<Vec<u8>> = (0..3).map(|_| repertoire.next_message()).collect();
        assert_eq!(first, [vec![0; 40], vec![1; 40], vec![2; 40]]);
        assert_eq!(repertoire.sent, AttackRecord { recorded: 3, ..AttackRecord::default() });
        for _ in 0..97 {
            repertoire.next_message();
        }
        let AttackRecord { forged, replayed, recorded, truncated, oversized, .. } = repertoire.sent;
        let kinds = [forged, replayed, recorded, truncated, oversized];
        assert!(kinds.iter().all(|count| *count > 0) && kinds.iter().sum::<u64>() == 100);
    }
}
