//! Traffic on real kernel sockets: requests, videos, greedy flows, paced datagrams and pings.
//!
//! One process carries all hosts of one side. A socket belongs to the namespace in which it was
//! made, so one event loop serves the hosts of every pair of sites. The sending side listens and the
//! receiving side connects, before the run starts. Both ends of a connection have the flow's congestion
//! control.

mod asked;
mod datagrams;
mod each;
mod endpoint;
mod greedy;
pub mod hostile;
mod meter;
mod pace;
mod quic;
mod reactor;
mod requests;
mod sockets;
mod video;
mod watch;
mod workload;

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns};
use nix::sys::epoll::EpollFlags;
use serde::{Deserialize, Serialize};

use crate::orders::{self, Order};
use crate::process;
use endpoint::{Endpoint, Window};
use forebay_core::record::{FlowRecord, RequestRecord, TcpSample};
use forebay_core::traffic::Connections;
use forebay_host::clock;
use forebay_scenario::{Traffic, Transport};
use reactor::{Key, Reactor};

pub use self::workload::{Workload, kernel_name};
pub(crate) use self::workload::{ns, socket_cc};

/// Listening port of the sending side of a pair's first workload; the next workloads have the next
/// ports.
///
/// All are below Linux's ephemeral ports (32768 and up), so that no outgoing connection can take
/// one.
pub const FIRST_PORT: u16 = 5000;

/// Real-time priority of the generators: the lowest possible, below the boxes (2) and the emulator
/// (10). A request must not be late because a build on the same machine holds the core for a time
/// slice. A nice value would not help, since it counts only within a session
/// (`CONFIG_SCHED_AUTOGROUP`, sched(7)).
const PRIORITY: i32 = 1;

/// Interval of the checks whether the hosts are done (ns).
const TICK_NS: u64 = 100_000_000;

/// Specification of the hosts of one side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostsSpec {
    /// The side of these hosts.
    pub side: Side,
    /// The hosts of each pair of sites.
    pub pairs: Vec<HostPair>,
    /// Time from the start of the run to the end of arrivals (ns).
    pub stop_ns: u64,
    /// Longest wait for unfinished requests after `stop_ns` (ns).
    pub drain_ns: u64,
    /// Makes a connection that is not ECN-capable an error.
    pub ecn: bool,
    /// File for the [`HostsOutput`] (JSON).
    pub output: PathBuf,
}

/// One of the two sides of a testbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Sends the data of flows that are not reversed.
    Left,
    /// Receives the data of flows that are not reversed.
    Right,
}

/// The hosts of one pair of sites, as seen from one side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostPair {
    /// File of their network namespace.
    pub namespace: PathBuf,
    /// Address on this side.
    pub local: Ipv4Addr,
    /// Address on the other side.
    pub remote: Ipv4Addr,
    /// All traffic of the pair.
    pub workloads: Vec<Workload>,
}

/// Results of the hosts of one side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostsOutput {
    /// Requests sent from this side.
    pub requests: Vec<RequestRecord>,
    /// Flows received on this side, and the pings it sent.
    pub flows: Vec<FlowRecord>,
    /// Paced datagrams sent from this side, by workload.
    pub datagrams_sent: Vec<(usize, u64)>,
    /// Paced datagrams received on this side, by workload.
    pub datagrams_received: Vec<(usize, u64)>,
    /// Connections that failed on this side, by workload.
    pub failures: Vec<(usize, u64)>,
    /// Connections that sent from this side.
    #[serde(default)]
    pub senders: Vec<Sender>,
    /// The ports of the connections received on this side: workload, number, port.
    #[serde(default)]
    pub receivers: Vec<(usize, u32, u16)>,
    /// Lateness of writing requests whose connection was free (ns), in order of time.
    pub lateness_ns: Vec<u64>,
}

/// Observations of a sending connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sender {
    /// Place of its workload in the scenario.
    pub flow: usize,
    /// Port of the receiver, which distinguishes the connections of a workload.
    pub port: u16,
    /// Congestion control of the connection at the end.
    pub cc: String,
    /// State of the connection over time.
    pub samples: Vec<TcpSample>,
}

/// A generator that could not start or failed.
#[derive(Debug, thiserror::Error)]
pub enum GeneratorError {
    /// A namespace cannot be entered.
    #[error("namespace {}: {source}", path.display())]
    Namespace {
        /// File of the namespace.
        path: PathBuf,
        /// Why the namespace cannot be entered.
        source: io::Error,
    },
    /// The kernel has no such congestion control.
    #[error("workload {workload}: cc = {name:?}: this kernel has {available}")]
    CongestionControl {
        /// The workload with this congestion control.
        workload: String,
        /// The algorithm.
        name: String,
        /// Contents of `net.ipv4.tcp_available_congestion_control`.
        available: String,
    },
    /// A connection is not ECN-capable, but the run requires it.
    #[error("workload {workload}: ecn: the connection from {peer} did not negotiate ECN")]
    NotEcnCapable {
        /// The workload.
        workload: String,
        /// The other end.
        peer: String,
    },
    /// A figure of a workload is out of range.
    #[error("workload {workload}: {key} = {value}: allowed is {allowed}")]
    Workload {
        /// The workload.
        workload: String,
        /// The figure.
        key: &'static str,
        /// Value of the figure.
        value: u64,
        /// The allowed values.
        allowed: &'static str,
    },
    /// A socket could not be set up.
    #[error("workload {workload}: {action}: {source}")]
    Socket {
        /// The workload.
        workload: String,
        /// The failed action, with the address.
        action: String,
        /// Why the socket could not be set up.
        source: io::Error,
    },
    /// The event loop failed.
    #[error("event loop: {0}")]
    Reactor(#[from] io::Error),
    /// The results cannot be written.
    #[error("{}: {source}", path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// Why the results cannot be written.
        source: io::Error,
    },
}

/// Runs the hosts of one side until stdin ends.
pub fn run(spec: HostsSpec) -> Result<(), GeneratorError> {
    process::try_realtime(PRIORITY);
    process::raise_file_limit()?;
    let mut hosts = Hosts::open(&spec)?;
    orders::tell("listening");
    while !hosts.over {
        hosts.turn(&spec.output)?;
    }
    Ok(())
}

/// Stage that the hosts last reported to the testbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Listening,
    Connecting,
    Ready,
    Running,
    Drained,
}

struct Hosts {
    reactor: Reactor,
    endpoints: Vec<Box<dyn Endpoint>>,
    control: Control,
    stage: Stage,
    over: bool,
}

impl Hosts {
    fn open(spec: &HostsSpec) -> Result<Self, GeneratorError> {
        let reactor = Reactor::new()?;
        let control = Control::new()?;
        reactor.watch(&control.stdin, Key::CONTROL, EpollFlags::EPOLLIN)?;
        let mut endpoints: Vec<Box<dyn Endpoint>> = Vec::new();
        for pair in &spec.pairs {
            let namespace = enter(pair)?;
            for (number, workload) in pair.workloads.iter().enumerate() {
                let site = SiteEnd::new(spec, pair, number, endpoints.len());
                let key = u32::try_from(endpoints.len()).expect("bounded by the ports of a host");
                endpoints.push(open_endpoint(&reactor, key, workload, &site, &namespace)?);
            }
        }
        Ok(Self { reactor, endpoints, control, stage: Stage::Listening, over: false })
    }

    /// Waits once and handles the events.
    fn turn(&mut self, output: &Path) -> Result<(), GeneratorError> {
        let timers = self.endpoints.iter_mut().filter_map(|endpoint| endpoint.deadline());
        let tick = (self.stage == Stage::Running).then(|| clock::now().as_nanos() + TICK_NS);
        let deadline = timers.chain(tick).min();
        for (key, flags) in self.reactor.wait(deadline)? {
            if key == Key::CONTROL {
                self.on_control(output)?;
            } else if let Some(endpoint) = self.endpoints.get_mut(key.endpoint as usize) {
                endpoint.handle_event(&self.reactor, key.connection, flags)?;
            }
        }
        let now = clock::now().as_nanos();
        for endpoint in &mut self.endpoints {
            if endpoint.deadline().is_some_and(|at| at <= now) {
                endpoint.handle_timer(&self.reactor, now)?;
            }
        }
        let mut endpoints = self.endpoints.iter_mut();
        if self.stage == Stage::Connecting && endpoints.all(|end| end.is_connected()) {
            self.stage = Stage::Ready;
            orders::tell("ready");
        }
        if self.stage == Stage::Running && self.endpoints.iter().all(|end| end.is_drained(now)) {
            self.stage = Stage::Drained;
            orders::tell("drained");
        }
        Ok(())
    }

    fn on_control(&mut self, output: &Path) -> Result<(), GeneratorError> {
        let (orders, ended) = self.control.read()?;
        self.over |= ended;
        for order in orders {
            match order {
                Order::Connect => {
                    self.stage = Stage::Connecting;
                    for endpoint in &mut self.endpoints {
                        endpoint.connect();
                    }
                }
                Order::Start(at) => {
                    self.stage = Stage::Running;
                    for endpoint in &mut self.endpoints {
                        endpoint.begin(at);
                    }
                }
                Order::Finish => {
                    self.write(output)?;
                    orders::tell("finished");
                }
            }
        }
        Ok(())
    }

    /// Writes the results. The sockets stay open, so that the peers do not see them end.
    fn write(&mut self, path: &Path) -> Result<(), GeneratorError> {
        let mut output = HostsOutput::default();
        for endpoint in &mut self.endpoints {
            endpoint.finish(&mut output);
        }
        let json = serde_json::to_vec(&output).map_err(io::Error::from);
        json.and_then(|json| fs::write(path, json))
            .map_err(|source| GeneratorError::Output { path: path.to_path_buf(), source })
    }
}

/// The testbed's orders on stdin, read without the buffer of `std`, which epoll cannot see.
struct Control {
    stdin: File,
    partial: Vec<u8>,
}

impl Control {
    fn new() -> io::Result<Self> {
        let stdin = io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Self { stdin: File::from(stdin), partial: Vec::new() })
    }

    /// The orders that arrived, and whether stdin ended.
    fn read(&mut self) -> io::Result<(Vec<Order>, bool)> {
        let mut chunk = [0; 256];
        let length = self.stdin.read(&mut chunk)?;
        self.partial.extend_from_slice(&chunk[..length]);
        let mut orders = Vec::new();
        while let Some(end) = self.partial.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]);
            let order = Order::parse(&line).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, format!("unknown order {line:?}"))
            })?;
            orders.push(order);
        }
        Ok((orders, length == 0))
    }
}

/// Addresses of one workload's sockets, and its window in time.
struct SiteEnd {
    /// Place of the workload in the scenario, counted over all pairs.
    flow: usize,
    local: Ipv4Addr,
    remote: Ipv4Addr,
    /// The workload's well-known port.
    port: u16,
    /// This side sends.
    sends: bool,
    /// Connections must be ECN-capable.
    ecn: bool,
    window: Window,
}

impl SiteEnd {
    fn new(spec: &HostsSpec, pair: &HostPair, number: usize, flow: usize) -> Self {
        let workload = &pair.workloads[number];
        let sends = (spec.side == Side::Left) != workload.reversed;
        let number = u16::try_from(number).expect("a pair has fewer workloads than ports");
        Self {
            flow,
            local: pair.local,
            remote: pair.remote,
            port: FIRST_PORT + number,
            sends,
            ecn: spec.ecn,
            window: Window {
                start_ns: ns(workload.start),
                stop_ns: ns(workload.stop).min(spec.stop_ns),
                end_ns: spec.stop_ns,
                drain_ns: spec.drain_ns,
            },
        }
    }

    /// The port of the sending side: on TCP it listens there.
    fn sender(&self) -> SocketAddrV4 {
        SocketAddrV4::new(if self.sends { self.local } else { self.remote }, self.port)
    }

    /// The port of the receiving side: datagrams go there.
    fn receiver(&self) -> SocketAddrV4 {
        SocketAddrV4::new(if self.sends { self.remote } else { self.local }, self.port)
    }

    /// A port of this side that the kernel chooses.
    fn any_port(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.local, 0)
    }
}

fn open_endpoint(
    reactor: &Reactor,
    key: u32,
    workload: &Workload,
    site: &SiteEnd,
    namespace: &File,
) -> Result<Box<dyn Endpoint>, GeneratorError> {
    if let Transport::Quic { .. } = workload.transport {
        return quic::open(reactor, key, workload, site, namespace);
    }
    Ok(match (&workload.traffic, site.sends) {
        (Traffic::Greedy { flows }, true) => {
            Box::new(greedy::Source::open(reactor, key, workload, site, *flows)?)
        }
        (Traffic::Greedy { flows }, false) => {
            Box::new(greedy::Sink::open(key, workload, site, *flows)?)
        }
        (Traffic::Requests(load), sends) => match (load.connections, sends) {
            (Connections::Persistent(connections), true) => {
                Box::new(requests::Server::open(reactor, key, workload, site, connections)?)
            }
            (Connections::Persistent(connections), false) => {
                Box::new(requests::Client::open(key, workload, site, connections)?)
            }
            (Connections::Each, true) => {
                Box::new(requests::Server::open(reactor, key, workload, site, 0)?)
            }
            (Connections::Each, false) => {
                Box::new(each::Client::open(key, workload, site, namespace.try_clone()?)?)
            }
        },
        (Traffic::Video { flows, .. }, true) => {
            Box::new(requests::Server::open(reactor, key, workload, site, *flows)?)
        }
        (Traffic::Video { flows, video }, false) => {
            Box::new(video::Client::open(key, workload, site, *flows, video)?)
        }
        (Traffic::Media { flows, .. }, _) => {
            let (workload, value) = (workload.name.clone(), u64::from(*flows));
            let (key, allowed) = ("media", "none: live encoders are the simulator's");
            return Err(GeneratorError::Workload { workload, key, value, allowed });
        }
        (Traffic::Datagrams { rate, packet_bytes, timing, .. }, true) => {
            let source = datagrams::source(workload, *rate, *packet_bytes, *timing)?;
            Box::new(datagrams::Pacer::open(workload, site, source, *packet_bytes)?)
        }
        (Traffic::Datagrams { .. }, false) => {
            Box::new(datagrams::Counter::open(reactor, key, workload, site)?)
        }
        (Traffic::Ping { loops }, true) => {
            Box::new(datagrams::Pinger::open(reactor, key, workload, site, *loops)?)
        }
        (Traffic::Ping { .. }, false) => {
            Box::new(datagrams::Echo::open(reactor, key, workload, site)?)
        }
    })
}

/// Enters the namespace of `pair`: later sockets are made there.
fn enter(pair: &HostPair) -> Result<File, GeneratorError> {
    let enter = || {
        let namespace = File::open(&pair.namespace)?;
        setns(&namespace, CloneFlags::CLONE_NEWNET)?;
        Ok(namespace)
    };
    enter().map_err(|source| GeneratorError::Namespace { path: pair.namespace.clone(), source })
}

#[cfg(test)]
mod tests;
