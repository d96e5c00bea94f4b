//! Traffic: the data that flows send, when, and under which congestion control.

use forebay_core::spec::Spec;
use forebay_core::traffic::media::Media;
use forebay_core::traffic::video::Video;
use forebay_core::traffic::{Receiving, Timing};
use forebay_core::units::{Duration, Rate};
use serde::{Deserialize, Serialize};

use crate::requests::RequestLoad;

/// Segments that a TCP sender has in flight before the first acknowledgement, unless the plan says otherwise
/// (RFC 6928).
pub const INITIAL_WINDOW: u32 = 10;

/// Traffic of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Name of the flow.
    pub name: String,
    /// Pair of sites of the flow.
    pub pair: String,
    /// From B to A.
    pub reversed: bool,
    /// Transport of greedy flows, requests and videos.
    pub transport: Transport,
    /// Congestion control of its connections.
    pub cc: Spec,
    /// Where the plan gives `cc`, such as `plan.toml:12`, for later error messages.
    pub cc_at: String,
    /// Where the congestion control runs; `None`: not given, so it is the kernel's, or the simulator's own.
    pub platform: Option<Platform>,
    /// First byte or arrival; with several connections, the first connection's.
    pub start: Duration,
    /// First bytes of the second and later connections, where they have a jitter.
    pub other_starts: Vec<Duration>,
    /// Last byte or arrival.
    pub stop: Duration,
    /// Two-way propagation delay, where it is not the path's.
    pub rtt: Option<Duration>,
    /// The only link of several in a row that its data take, the first being 0.
    pub hop: Option<usize>,
    /// DSCP of its packets, both ways (0 to 63).
    pub dscp: u8,
    /// Segments that its TCP senders have in flight before the first acknowledgement.
    pub initial_window: u32,
    /// How the receivers of its TCP connections read and acknowledge.
    pub receiving: Receiving,
    /// Where its datagrams end on the way: 1 before the queue, 2 behind the link.
    pub ttl: Option<u8>,
    /// The data that it sends.
    pub traffic: Traffic,
}

impl Flow {
    /// Traffic from A to B from the start of the run up to `stop`, with hosts as they are by default.
    pub fn new(name: &str, cc: Spec, stop: Duration, traffic: Traffic) -> Self {
        Self {
            name: name.into(),
            pair: String::new(),
            reversed: false,
            transport: Transport::Tcp,
            cc,
            cc_at: String::new(),
            platform: None,
            start: Duration::ZERO,
            other_starts: Vec::new(),
            stop,
            rtt: None,
            hop: None,
            dscp: 0,
            initial_window: INITIAL_WINDOW,
            receiving: Receiving::default(),
            ttl: None,
            traffic,
        }
    }

    /// Congestion control of the flow with its platform, as plans and rows have it: `agent:copa`.
    pub fn cc_name(&self) -> String {
        match self.platform {
            None => self.cc.to_string(),
            Some(platform) => format!("{}:{}", platform.name(), self.cc),
        }
    }

    /// How many connections (sources, loops) start by themselves; requests are one schedule.
    pub fn connections(&self) -> u32 {
        match self.traffic {
            Traffic::Greedy { flows }
            | Traffic::Video { flows, .. }
            | Traffic::Media { flows, .. }
            | Traffic::Datagrams { flows, .. } => flows,
            Traffic::Ping { loops } => loops,
            Traffic::Requests(_) => 1,
        }
    }

    /// When the connection of this number starts, the first being 0.
    pub fn start_of(&self, connection: u32) -> Duration {
        let other = connection.checked_sub(1).and_then(|it| self.other_starts.get(it as usize));
        other.copied().unwrap_or(self.start)
    }

    /// When the first byte of all is sent.
    pub fn first_start(&self) -> Duration {
        self.other_starts.iter().copied().fold(self.start, Duration::min)
    }

    /// Whether its packets belong to TCP connections.
    pub fn is_tcp(&self) -> bool {
        self.transport == Transport::Tcp && self.traffic.has_connections()
    }
}

/// Transport of flows with connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// TCP of the kernel or the simulator.
    Tcp,
    /// QUIC over UDP by quinn, with quinn's congestion control.
    Quic {
        /// Where the plan gives it, such as `plan.toml:12`, for later error messages.
        at: String,
    },
}

/// Where the congestion control of a flow runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Platform {
    /// In the hosts' kernel, which has it.
    Kernel,
    /// In the hosts' kernel alone, as BPF of this program.
    Bpf,
    /// In an agent, which decides for connections of the hosts' kernel.
    Agent,
}

impl Platform {
    /// All platforms.
    pub const ALL: [Self; 3] = [Self::Kernel, Self::Bpf, Self::Agent];

    /// Name as written before a colon.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Bpf => "bpf",
            Self::Agent => "agent",
        }
    }
}

/// Kinds of traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Traffic {
    /// Connections that always have data.
    Greedy {
        /// How many.
        flows: u32,
    },
    /// Open-loop requests over connections.
    Requests(RequestLoad),
    /// Clients that play a video, each over a connection.
    Video {
        /// How many.
        flows: u32,
        /// The video that each plays.
        video: Video,
    },
    /// Live encoders, each over a TCP connection.
    Media {
        /// How many.
        flows: u32,
        /// The frames of each.
        media: Media,
    },
    /// UDP in open loop.
    Datagrams {
        /// How many.
        flows: u32,
        /// Rate of frames of each; with on and off times, the rate within the on times.
        rate: Rate,
        /// Bytes of a frame.
        packet_bytes: u32,
        /// When they are sent.
        timing: Timing,
    },
    /// Closed-loop UDP request and response.
    Ping {
        /// Loops in parallel.
        loops: u32,
    },
}

impl Traffic {
    /// Whether it consists of connections, not of single datagrams.
    pub fn has_connections(&self) -> bool {
        match self {
            Self::Greedy { .. } | Self::Requests(_) | Self::Video { .. } | Self::Media { .. } => {
                true
            }
            Self::Datagrams { .. } | Self::Ping { .. } => false,
        }
    }
}
