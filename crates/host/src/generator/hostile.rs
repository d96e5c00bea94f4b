//! An attacker beside a box: forged, replayed, truncated and oversized messages over a real socket.
//!
//! It listens on the box's own device from the start, so it has messages of the running session
//! to replay and, where the boxes restarted since, of the session before. It has no key.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::PathBuf;
use std::sync::mpsc;

use forebay_core::packet::Headers;
use forebay_core::random::{Stream, Streams};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::port::{Direction, PacketPort, Port, PortError};
use crate::roles::{self, Order};

/// Messages kept for replay, of the first ones as of the newest ones: seconds at 200 reports/s.
const KEPT_MAX: usize = 512;

/// How many messages are sent between two looks at the live ones.
const BATCH: u64 = 64;

/// Ethernet, IPv4 and UDP headers.
const PAYLOAD_OFFSET: usize = 14 + 20 + 8;

/// The largest payload of a UDP datagram over IPv4 (RFC 768, RFC 791).
const OVERSIZED_MAX: usize = 65_507;

/// What the attacker does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostileSpec {
    /// The device it listens on.
    pub device: String,
    /// The box under attack.
    pub target: SocketAddrV4,
    /// When it begins (ns since the start of the run); it listens from the start.
    pub at_ns: u64,
    /// How many messages it sends, as fast as it can.
    pub messages: u64,
    /// Where the [`HostileOutput`] goes (JSON).
    pub output: PathBuf,
    /// Seed of the forged bytes.
    pub seed: u64,
}

/// What the attacker sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostileOutput {
    /// A message with some bytes changed.
    pub forged: u64,
    /// One of the newest messages as it was.
    pub replayed: u64,
    /// One of the first messages of the run as it was.
    pub recorded: u64,
    /// A message cut short.
    pub truncated: u64,
    /// A message with bytes appended, up to the largest datagram.
    pub oversized: u64,
    /// Messages that the socket refused.
    pub refused: u64,
    /// From the first to the last (ns).
    pub took_ns: u64,
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
        /// Why.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Runs the attacker until the testbed ends it.
pub fn run(spec: HostileSpec) -> Result<(), HostileError> {
    let mut attacker = Attacker::new(&spec)?;
    let (orders, inbox) = mpsc::channel();
    std::thread::spawn(move || {
        // The end of stdin closes the channel, which ends the attack.
        for line in io::stdin().lines().map_while(Result::ok) {
            if orders.send(line).is_err() {
                break;
            }
        }
    });
    roles::tell("ready");
    let mut begin = None;
    let mut sent = 0;
    loop {
        match inbox.try_recv() {
            Ok(line) => {
                if let Some(Order::Start(started_ns)) = Order::parse(&line) {
                    begin = Some(started_ns.saturating_add(spec.at_ns));
                }
            }
            Err(mpsc::TryRecvError::Disconnected) => break,
            Err(mpsc::TryRecvError::Empty) => {}
        }
        attacker.listen();
        let now = clock::now().as_nanos();
        if begin.is_some_and(|begin| now >= begin) && sent < spec.messages {
            let count = BATCH.min(spec.messages - sent);
            attacker.attack(count);
            sent += count;
            attacker.output.took_ns = clock::now().as_nanos() - begin.unwrap_or(now);
        } else {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    let json = serde_json::to_string(&attacker.output).expect("counters are JSON");
    fs::write(&spec.output, json)
        .map_err(|source| HostileError::File { path: spec.output.clone(), source })
}

struct Attacker {
    port: PacketPort,
    socket: UdpSocket,
    target: SocketAddrV4,
    /// The first messages of the run.
    first: Vec<Vec<u8>>,
    /// The newest messages.
    newest: VecDeque<Vec<u8>>,
    random: Stream,
    output: HostileOutput,
}

impl Attacker {
    fn new(spec: &HostileSpec) -> Result<Self, HostileError> {
        let socket_error = |source| HostileError::Socket { target: spec.target, source };
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(socket_error)?;
        socket.set_nonblocking(true).map_err(socket_error)?;
        Ok(Self {
            port: PacketPort::open(&spec.device, Direction::Receive)?,
            socket,
            target: spec.target,
            first: Vec::new(),
            newest: VecDeque::new(),
            random: Streams::new(spec.seed).stream("hostile"),
            output: HostileOutput::default(),
        })
    }

    /// Keeps the messages to the target that have come since the last call.
    fn listen(&mut self) {
        let Self { port, target, first, newest, .. } = self;
        // An error of the device only means fewer messages to replay.
        let _ = port.receive(usize::MAX, &mut |frame| {
            let Some(message) = message_to(*target, frame) else { return };
            if first.len() < KEPT_MAX {
                first.push(message.to_vec());
            }
            if newest.len() == KEPT_MAX {
                newest.pop_front();
            }
            newest.push_back(message.to_vec());
        });
    }

    fn attack(&mut self, count: u64) {
        for _ in 0..count {
            if self.newest.is_empty() {
                return;
            }
            let message = self.next_message();
            if self.socket.send_to(&message, self.target).is_err() {
                self.output.refused += 1;
            }
        }
    }

    fn next_message(&mut self) -> Vec<u8> {
        let index = self.random.below(self.newest.len() as u64) as usize;
        let mut message = self.newest[index].clone();
        let len = message.len() as u64;
        match self.random.below(5) {
            0 => {
                self.output.forged += 1;
                for _ in 0..=self.random.below(8) {
                    let index = self.random.below(len) as usize;
                    message[index] ^= 1 + self.random.below(255) as u8;
                }
            }
            1 => self.output.replayed += 1,
            2 => {
                self.output.recorded += 1;
                let index = self.random.below(self.first.len() as u64) as usize;
                message.clone_from(&self.first[index]);
            }
            3 => {
                self.output.truncated += 1;
                message.truncate(self.random.below(len) as usize);
            }
            _ => {
                self.output.oversized += 1;
                // Mostly a few bytes too many; one in 64 as large as UDP allows.
                let largest = self.random.below(64) == 0;
                let extra = len + 1 + self.random.below(64);
                message.resize(if largest { OVERSIZED_MAX } else { extra as usize }, 0);
            }
        }
        message
    }
}

/// The payload of `frame` if it is a UDP datagram to `target`. The boxes' datagrams have neither
/// IP options nor padding.
fn message_to(target: SocketAddrV4, frame: &[u8]) -> Option<&[u8]> {
    let headers = Headers::parse(frame).ok()?;
    let to_target = i32::from(headers.protocol) == libc::IPPROTO_UDP
        && headers.destination == IpAddr::from(*target.ip())
        && headers.destination_port == target.port();
    frame.get(PAYLOAD_OFFSET..).filter(|message| to_target && !message.is_empty())
}
