//! Measures a path to one peer on plain sockets, without privileges, for the verdict of `forebay probe`.
//!
//! ```text
//!  pings     small packets from several source ports: datagrams that the answering side sends back with its time
//!            (`serve.rs`), or else TCP handshakes, which any server answers
//!  load      TCP connections that send as fast as they may, first a few, then all (`load.rs`)
//!  hops      datagrams that routers on the way drop and report (`hops.rs`)
//!  backlog   the qdisc of the local device
//! ```
//! One thread does everything, so no part waits for the processor while another part runs. All packets go to the
//! one address to which the peer's name resolved at the start. The duration bounds the memory of a probe, and is
//! itself bounded.

mod hops;
mod load;
mod pings;
pub mod receivebox;
pub mod serve;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use forebay_core::probe::{BacklogLook, Load, LoadPhase, Observed};
use forebay_core::spec::one_of;
use forebay_core::units::{Rate, Timestamp};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use self::hops::Hops;
use self::load::LoadConnections;
use self::pings::Pings;
use crate::{clock, egress};

/// Default port of the answering side, next to the ports of the boxes.
pub const PORT: u16 = 61477;

/// Time for which the path is watched before the load.
pub const IDLE: Duration = Duration::from_millis(2_500);

/// Connections in the first part of a load.
const FEW: u16 = 2;

/// Time to wait for answers after the last packet.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Longest sleep, because parts without sockets are polled.
const TICK: Duration = Duration::from_millis(5);

/// Time between two looks at the connections and the local qdisc.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Parameters of a probe.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time for which the path is loaded, or only watched without a load.
    pub span: Duration,
    /// Connections of the load, at least two; `None`: no load, only pings and hops.
    pub flows: Option<u16>,
    /// Rate limit of all connections together.
    pub max_rate: Rate,
    /// Congestion control of the connections; `None`: `cubic`, or the kernel's default if `cubic` is not
    /// available.
    pub congestion_control: Option<String>,
    /// Path of an HTTP server to which the load is sent as the body of a POST request.
    pub http_path: Option<String>,
    /// Routers on the way that belong to the site.
    pub site_hops: u8,
}

/// Result of a probe.
#[derive(Clone, Debug)]
pub struct Report {
    /// All observations.
    pub observed: Observed,
    /// Routers that answered, by number of hops.
    pub routers: BTreeMap<u8, IpAddr>,
    /// The peer is an answering side of `forebay probe`.
    pub answers: bool,
    /// Congestion control of the connections; `None`: there were none.
    pub congestion_control: Option<String>,
}

/// Progress of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeProgress {
    /// The current step.
    pub step: ProbeStep,
    /// Time since the start.
    pub elapsed: Duration,
    /// Total time of the probe.
    pub total: Duration,
}

/// The steps of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeStep {
    /// Only watching the path.
    Idle,
    /// A few connections send.
    Few,
    /// All connections send.
    Many,
    /// Waiting for the last answers.
    Last,
}

/// Why a path could not be probed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ProbeError {
    /// The name of the peer cannot be resolved.
    #[error("{peer}: {source}")]
    Resolve { peer: String, source: io::Error },
    /// The name of the peer has no address.
    #[error("{peer}: the name has no address")]
    NoAddress { peer: String },
    /// The address is a group's or unspecified, and not the address of one machine.
    #[error("{address}: allowed is the address of one machine")]
    NotUnicast { address: IpAddr },
    /// The peer takes no TCP connection.
    #[error(
        "{address}: {source}: the peer must accept TCP connections there and read all data, as \
         `forebay probe --serve` does"
    )]
    Connect { address: SocketAddr, source: io::Error },
    /// The peer ended a connection of the load.
    #[error(
        "{address} ended a connection after {bytes} bytes ({source}): the peer must read all data \
         until the end, as `forebay probe --serve` does; an HTTP server needs --http PATH"
    )]
    Ended { address: SocketAddr, bytes: u64, source: io::Error },
    /// The answering side cannot bind to its address.
    #[error("{address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    /// This machine lacks the congestion control, or restricts it to root.
    #[error(
        "congestion control {name}: {source}; allowed is {}",
        one_of(name, &available.split(", ").collect::<Vec<_>>())
    )]
    CongestionControl { name: String, available: String, source: io::Error },
    /// The system refused another operation.
    #[error("{action}: {source}")]
    Os { action: &'static str, source: io::Error },
}

impl ProbeError {
    /// Whether the operator's input was wrong, rather than the path or the machine.
    pub fn is_bad_input(&self) -> bool {
        use io::ErrorKind::{AddrInUse, PermissionDenied};
        match self {
            Self::Resolve { .. } | Self::NoAddress { .. } | Self::NotUnicast { .. } => true,
            // A port that is taken, or that root alone may use.
            Self::Listen { source, .. } | Self::CongestionControl { source, .. } => {
                ![AddrInUse, PermissionDenied].contains(&source.kind())
            }
            Self::Connect { .. } | Self::Ended { .. } | Self::Os { .. } => false,
        }
    }

    fn os(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Os { action, source }
    }
}

/// Resolves `peer`, `HOST` or `HOST:PORT`, to one address; the default port is [`PORT`].
///
/// # Errors
///
/// If the name cannot be resolved, or the address belongs to several machines or to none.
pub fn resolve(peer: &str) -> Result<SocketAddr, ProbeError> {
    let by_name = |source| ProbeError::Resolve { peer: peer.into(), source };
    let address = match peer.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, PORT),
        Err(_) => {
            let has_port =
                peer.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            let named = if has_port { peer.to_string() } else { format!("{peer}:{PORT}") };
            let mut addresses = named.to_socket_addrs().map_err(by_name)?;
            addresses.next().ok_or_else(|| ProbeError::NoAddress { peer: peer.into() })?
        }
    };
    let ip = address.ip().to_canonical();
    let is_broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    if ip.is_multicast() || ip.is_unspecified() || is_broadcast || address.port() == 0 {
        return Err(ProbeError::NotUnicast { address: ip });
    }
    Ok(address)
}

/// Probes the path to `peer`, which takes [`IDLE`], the requested span and one more second.
///
/// # Errors
///
/// If the peer refuses or ends connections, or the system refuses a socket.
pub fn run(
    peer: SocketAddr,
    options: &Options,
    progress: &mut dyn FnMut(ProbeProgress),
) -> Result<Report, ProbeError> {
    // An answering side only answers addresses with an open connection, so one is held even without a load.
    let connections = LoadConnections::open(peer, options)?;
    let pings = Pings::open(peer)?;
    let answers = pings.answers();
    let device = connections.local_ip().and_then(device_of);
    let congestion_control = connections.congestion_control();
    let mut probe = Probe {
        started: clock::now(),
        schedule: Schedule::of(options),
        pings,
        hops: Hops::new(peer, options.site_hops),
        connections,
        device,
        next_look: Timestamp::ZERO,
        backlog: Vec::new(),
    };
    probe.go(progress)?;
    let Probe { schedule, pings, hops, connections, backlog, .. } = probe;
    let (hops, routers) = hops.finish();
    let observed = Observed {
        pings: pings.finish(),
        looks: connections.finish(),
        hops,
        backlog,
        load: schedule.load,
        max_rate: options.max_rate,
        site_hops: options.site_hops,
    };
    let congestion_control = congestion_control.filter(|_| options.flows.is_some());
    Ok(Report { observed, routers, answers, congestion_control })
}

/// The schedule of a probe, in time since its start.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    load: Option<Load>,
    /// Time of the last packet.
    sent_by: Timestamp,
    end: Timestamp,
}

impl Schedule {
    fn of(options: &Options) -> Self {
        let from = Timestamp::ZERO + IDLE;
        let sent_by = from + options.span;
        let end = sent_by + LAST_WAIT;
        // Rates are compared between both parts, and the queue is measured in the second one.
        let load = options.flows.map(|flows| {
            let middle = from + options.span / 3;
            Load {
                few: LoadPhase { flows: FEW.min(flows), from, to: middle },
                many: LoadPhase { flows, from: middle, to: sent_by },
            }
        });
        Self { load, sent_by, end }
    }

    fn step(&self, now: Timestamp) -> ProbeStep {
        match self.load {
            _ if now >= self.sent_by => ProbeStep::Last,
            Some(load) if now >= load.many.from => ProbeStep::Many,
            Some(load) if now >= load.few.from => ProbeStep::Few,
            _ => ProbeStep::Idle,
        }
    }
}

struct Probe {
    started: Timestamp,
    schedule: Schedule,
    pings: Pings,
    hops: Hops,
    connections: LoadConnections,
    /// Index of the device towards the peer; `None`: unknown.
    device: Option<u32>,
    next_look: Timestamp,
    backlog: Vec<BacklogLook>,
}

impl Probe {
    fn go(&mut self, progress: &mut dyn FnMut(ProbeProgress)) -> Result<(), ProbeError> {
        let total = self.schedule.end.saturating_since(Timestamp::ZERO);
        loop {
            let now = self.now();
            if now >= self.schedule.end {
                return Ok(());
            }
            let step = self.schedule.step(now);
            progress(ProbeProgress { step, elapsed: now.saturating_since(Timestamp::ZERO), total });
            self.act(step, now)?;
            self.wait()?;
            let now = self.now();
            self.pings.receive(now);
            self.hops.receive(now);
            self.connections.send()?;
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(clock::now().saturating_since(self.started).as_nanos() as u64)
    }

    /// Does everything that is due at `now`.
    fn act(&mut self, step: ProbeStep, now: Timestamp) -> Result<(), ProbeError> {
        let flows = match (step, self.schedule.load) {
            (ProbeStep::Few, Some(load)) => load.few.flows,
            (ProbeStep::Many, Some(load)) => load.many.flows,
            _ => 0,
        };
        self.connections.load_with(flows)?;
        if step != ProbeStep::Last {
            self.pings.send_due(now, flows > 0);
            self.hops.send_due(now);
        }
        if flows > 0 && now >= self.next_look {
            self.next_look = now + LOOK_INTERVAL;
            self.connections.look(now);
            let bytes = self.device.and_then(|device| egress::backlog(device).ok());
            self.backlog.extend(bytes.map(|bytes| BacklogLook { at: now, bytes }));
        }
        Ok(())
    }

    /// Sleeps until a socket can be read or written, at most for a tick.
    fn wait(&self) -> Result<(), ProbeError> {
        let readable = self.pings.readable().map(|fd| (fd, PollFlags::POLLIN));
        let writable = self.pings.opening().chain(self.connections.writable());
        let writable = writable.map(|fd| (fd, PollFlags::POLLOUT));
        // The report of a router arrives as a socket error.
        let erring = self.hops.open().map(|fd| (fd, PollFlags::empty()));
        let watched = readable.chain(writable).chain(erring);
        let mut fds: Vec<PollFd<'_>> = watched.map(|(fd, flags)| PollFd::new(fd, flags)).collect();
        let tick = PollTimeout::try_from(TICK).unwrap_or(PollTimeout::ZERO);
        match poll(&mut fds, tick) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(ProbeError::os("poll")(errno.into())),
        }
    }
}

/// The index of the device that has `address`.
fn device_of(address: IpAddr) -> Option<u32> {
    let interface = getifaddrs().ok()?.find(|interface| {
        let own = interface.address.as_ref();
        let v4 = own.and_then(|own| Some(IpAddr::V4(own.as_sockaddr_in()?.ip())));
        let v6 = || own.and_then(|own| Some(IpAddr::V6(own.as_sockaddr_in6()?.ip())));
        v4.or_else(v6) == Some(address)
    })?;
    if_nametoindex(interface.interface_name.as_str()).ok()
}

#[cfg(test)]
mod tests;
