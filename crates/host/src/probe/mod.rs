//! Measures a path to one peer on plain sockets, without privileges: what `forebay probe` judges.
//!
//! ```text
//!  pings     small packets from several source ports: datagrams that the answering side sends back with its time
//!            (`serve.rs`), or else TCP handshakes, which any server answers
//!  load      TCP connections that send as fast as they may, first a few, then all (`load.rs`)
//!  hops      datagrams that routers on the way give up, and say so (`hops.rs`)
//!  backlog   the own device's qdisc
//! ```
//! One thread does everything, so no part waits for a processor that another one has. All that is sent goes to the
//! one address that the peer's name stood for at the start. What a probe keeps is bounded by its time, which is
//! bounded itself.

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

use forebay_core::probe::{BacklogLook, Load, Observed, Phase};
use forebay_core::units::{Rate, Timestamp};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use self::hops::Hops;
use self::load::Connections;
use self::pings::Pings;
use crate::{clock, egress};

/// Port of the answering side where nobody says otherwise: beside those of the boxes.
pub const PORT: u16 = 61477;

/// How long the path is watched before it is loaded.
pub const IDLE: Duration = Duration::from_millis(2_500);

/// Connections of the first part of a load.
const FEW: u16 = 2;

/// How long answers are waited for after the last packet.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Longest sleep: the parts that have no socket of their own are looked after so often.
const TICK: Duration = Duration::from_millis(5);

/// How often connections and the own qdisc are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// What is asked of a probe.
#[derive(Clone, Debug)]
pub struct Options {
    /// For how long the path is loaded, or only watched if it is not.
    pub span: Duration,
    /// The connections that load it, at least two; `None`: nothing does, pings and hops alone.
    pub flows: Option<u16>,
    /// The most that all connections together may send.
    pub max_rate: Rate,
    /// Congestion control of the connections; `None`: `cubic`, or the kernel's where `cubic` may not be had.
    pub congestion_control: Option<String>,
    /// Path of an HTTP server to which the load is sent as the body of a POST request.
    pub http_path: Option<String>,
    /// Routers on the way that belong to the site.
    pub site_hops: u8,
}

/// What came of a probe.
#[derive(Clone, Debug)]
pub struct Report {
    /// Everything that was seen.
    pub observed: Observed,
    /// Routers that answered, by their distance in hops.
    pub routers: BTreeMap<u8, IpAddr>,
    /// The peer is an answering side of `forebay probe`.
    pub answers: bool,
    /// Congestion control of the connections; `None`: there were none.
    pub congestion_control: Option<String>,
}

/// How far a probe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is done.
    pub step: Step,
    /// Time since the start.
    pub elapsed: Duration,
    /// How long everything takes.
    pub total: Duration,
}

/// The steps of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The path is watched.
    Idle,
    /// A few connections send.
    Few,
    /// All connections send.
    Many,
    /// The last answers are waited for.
    Last,
}

/// Why a path could not be probed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ProbeError {
    /// The name of the peer stands for nothing.
    #[error("{peer}: {source}")]
    Resolve { peer: String, source: io::Error },
    /// The name of the peer stands for no address.
    #[error("{peer}: the name has no address")]
    NoAddress { peer: String },
    /// The address is of more than one machine, or of none.
    #[error("{address}: allowed is the address of one machine")]
    NotUnicast { address: IpAddr },
    /// The peer takes no TCP connection.
    #[error(
        "{address}: {source}: the peer must take TCP connections there and read what comes, as \
         `forebay probe --serve` does"
    )]
    Connect { address: SocketAddr, source: io::Error },
    /// The peer ended a connection of the load.
    #[error(
        "{address} ended a connection after {bytes} bytes ({source}): the peer must read what comes \
         until the end, as `forebay probe --serve` does; an HTTP server needs --http PATH"
    )]
    Ended { address: SocketAddr, bytes: u64, source: io::Error },
    /// The answering side cannot have its address.
    #[error("{address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    /// A congestion control that this machine has not, or not for everybody.
    #[error("congestion control {name}: {source}; allowed is one of {available}")]
    CongestionControl { name: String, available: String, source: io::Error },
    /// The system refused something else.
    #[error("{action}: {source}")]
    Os { action: &'static str, source: io::Error },
}

impl ProbeError {
    /// Whether the operator's input was wrong, and neither the path nor the machine.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::Resolve { .. }
                | Self::NoAddress { .. }
                | Self::NotUnicast { .. }
                | Self::Listen { .. }
                | Self::CongestionControl { .. }
        )
    }

    fn os(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Os { action, source }
    }
}

/// The one address that `peer` stands for: `HOST` or `HOST:PORT`, [`PORT`] where there is none.
///
/// # Errors
///
/// A name that cannot be resolved, and an address of several machines or of none.
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

/// Probes the path to `peer`, which takes [`IDLE`], the span asked for and a second more.
///
/// # Errors
///
/// The peer takes no connections or ends them, or the system refuses a socket.
pub fn run(
    peer: SocketAddr,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, ProbeError> {
    // An answering side answers whoever has a connection: one is held where there is no load.
    let connections = Connections::open(peer, options)?;
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

/// When what is done, since the start.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    load: Option<Load>,
    /// The last packet is sent.
    sent_by: Timestamp,
    end: Timestamp,
}

impl Schedule {
    fn of(options: &Options) -> Self {
        let from = Timestamp::ZERO + IDLE;
        let sent_by = from + options.span;
        let end = sent_by + LAST_WAIT;
        // Rates are compared in both parts, and the queue is measured in the second one.
        let load = options.flows.map(|flows| {
            let middle = from + options.span / 3;
            Load {
                few: Phase { flows: FEW.min(flows), from, to: middle },
                many: Phase { flows, from: middle, to: sent_by },
            }
        });
        Self { load, sent_by, end }
    }

    fn step(&self, now: Timestamp) -> Step {
        match self.load {
            _ if now >= self.sent_by => Step::Last,
            Some(load) if now >= load.many.from => Step::Many,
            Some(load) if now >= load.few.from => Step::Few,
            _ => Step::Idle,
        }
    }
}

struct Probe {
    started: Timestamp,
    schedule: Schedule,
    pings: Pings,
    hops: Hops,
    connections: Connections,
    /// Number of the device towards the peer; `None`: not known.
    device: Option<u32>,
    next_look: Timestamp,
    backlog: Vec<BacklogLook>,
}

impl Probe {
    fn go(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), ProbeError> {
        let total = self.schedule.end.saturating_since(Timestamp::ZERO);
        loop {
            let now = self.now();
            if now >= self.schedule.end {
                return Ok(());
            }
            let step = self.schedule.step(now);
            progress(Progress { step, elapsed: now.saturating_since(Timestamp::ZERO), total });
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

    /// Does what is due at `now`.
    fn act(&mut self, step: Step, now: Timestamp) -> Result<(), ProbeError> {
        let flows = match (step, self.schedule.load) {
            (Step::Few, Some(load)) => load.few.flows,
            (Step::Many, Some(load)) => load.many.flows,
            _ => 0,
        };
        self.connections.load_with(flows)?;
        if step != Step::Last {
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

    /// Sleeps until something can be read or sent, a tick at most.
    fn wait(&self) -> Result<(), ProbeError> {
        let readable = self.pings.readable().map(|fd| (fd, PollFlags::POLLIN));
        let writable = self.pings.opening().chain(self.connections.writable());
        let writable = writable.map(|fd| (fd, PollFlags::POLLOUT));
        // What a router says comes as an error.
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

/// The number of the device that has `address`.
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
