//! The UDP sockets and the connections of one side of a workload.

use std::fs::File;
use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use nix::sched::{CloneFlags, setns};
use nix::sys::epoll::EpollFlags;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, Event,
};
use socket2::Socket;

use super::super::reactor::{Key, Reactor};
use super::super::sockets::{DIAL_INTERVAL_NS, failed, set_receive_buffer, udp};
use super::super::workload::Workload;
use super::super::{GeneratorError, SiteEnd};
use super::{App, config};
use forebay_host::clock;

/// Key of the listening socket among the connections of the endpoint.
const LISTENER: u32 = u32::MAX;
/// Most datagrams read per wake-up, so that other endpoints get their turn.
const BATCH: usize = 64;
/// Longest datagram (bytes): larger than any that fits into an Ethernet frame.
const LONGEST_BYTES: usize = 2048;
/// Receive buffer of a socket (bytes): 80 ms at 1 Gbit/s, far longer than the process waits for a processor.
const BUFFER_BYTES: u64 = 10_000_000;

/// One side of a workload. Connections have numbers from 0; a number is used again after its connection.
pub(super) struct Host {
    key: u32,
    /// The workload that sockets are made for, without its schedule.
    workload: Workload,
    namespace: File,
    local: SocketAddrV4,
    remote: SocketAddrV4,
    endpoint: Endpoint,
    client: ClientConfig,
    /// The socket of all connections; `None` at clients, whose connections have a port each.
    listener: Option<UdpSocket>,
    links: Vec<Option<Link>>,
    /// Connections to open before the run.
    expected: u32,
    dialled: u32,
    dial_ns: Option<u64>,
    /// Connections whose handshake is complete, since the start.
    opened: u32,
    /// The run has started.
    pub has_begun: bool,
    /// An instant on both clocks.
    epoch: (Instant, u64),
    datagram: Vec<u8>,
}

/// One connection.
struct Link {
    connection: Connection,
    socket: Option<UdpSocket>,
    deadline_ns: Option<u64>,
}

impl Host {
    /// Expects or opens `expected` connections before the run.
    pub fn open(
        reactor: &Reactor,
        key: u32,
        workload: &Workload,
        site: &SiteEnd,
        namespace: &File,
        expected: u32,
    ) -> Result<Self, GeneratorError> {
        let workload = Workload { requests: Vec::new(), ..workload.clone() };
        let listener = site.sends.then(|| {
            let socket = socket(&workload, site.sender(), None)?;
            reactor.watch(
                &socket,
                Key { endpoint: key, connection: LISTENER },
                EpollFlags::EPOLLIN,
            )?;
            Ok::<_, GeneratorError>(socket)
        });
        let server = site.sends.then(|| config::server(&workload));
        Ok(Self {
            key,
            client: config::client(&workload),
            namespace: namespace.try_clone()?,
            local: site.any_port(),
            remote: site.sender(),
            endpoint: Endpoint::new(EndpointConfig::default().into(), server, false, None),
            listener: listener.transpose()?,
            workload,
            links: Vec::new(),
            expected,
            dialled: 0,
            dial_ns: None,
            opened: 0,
            has_begun: false,
            epoch: (Instant::now(), clock::now().as_nanos()),
            datagram: Vec::new(),
        })
    }

    /// The instant of `now` (ns of the clock).
    pub fn instant(&self, now: u64) -> Instant {
        self.epoch.0 + Duration::from_nanos(now.saturating_sub(self.epoch.1))
    }

    /// Clients: opens the connections from the next timer on.
    pub fn dial(&mut self) {
        self.dial_ns = (self.listener.is_none() && self.expected > 0).then_some(0);
    }

    pub fn is_ready(&self) -> bool {
        self.opened >= self.expected
    }

    /// Connections by number; `None`: over.
    pub fn connections(&mut self) -> impl Iterator<Item = Option<&mut Connection>> {
        self.links.iter_mut().map(|link| Some(&mut link.as_mut()?.connection))
    }

    /// Connection `number`, unless it is over.
    pub fn connection(&mut self, number: usize) -> Option<&mut Connection> {
        Some(&mut self.links.get_mut(number)?.as_mut()?.connection)
    }

    /// The port of this side of connection `number` of a client.
    pub fn port(&self, number: usize) -> Option<u16> {
        let link = self.links.get(number)?.as_ref()?;
        Some(link.socket.as_ref()?.local_addr().ok()?.port())
    }

    /// Begins to open a connection; returns its number.
    pub fn connect(&mut self, reactor: &Reactor, now: u64) -> Result<usize, GeneratorError> {
        // The thread is in the namespace of the pair whose client last opened a connection.
        setns(&self.namespace, CloneFlags::CLONE_NEWNET).map_err(io::Error::from)?;
        let socket = socket(&self.workload, self.local, Some(self.remote))?;
        let (now, client) = (self.instant(now), self.client.clone());
        let made = self.endpoint.connect(now, client, self.remote.into(), config::NAME);
        let (ConnectionHandle(number), connection) = made.map_err(|error| {
            failed(&self.workload.name, format!("connect to {}", self.remote))(io::Error::other(
                error,
            ))
        })?;
        let key = Key { endpoint: self.key, connection: number as u32 };
        reactor.watch(&socket, key, EpollFlags::EPOLLIN)?;
        self.insert(number, connection, Some(socket));
        Ok(number)
    }

    fn insert(&mut self, number: usize, connection: Connection, socket: Option<UdpSocket>) {
        if self.links.len() <= number {
            self.links.resize_with(number + 1, || None);
        }
        self.links[number] = Some(Link { connection, socket, deadline_ns: None });
    }

    /// Time of the next [`Self::on_timer`].
    pub fn next_timer(&self) -> Option<u64> {
        let links = self.links.iter().flatten().filter_map(|link| link.deadline_ns);
        links.chain(self.dial_ns).min()
    }

    /// Opens the next connection if it is due, and notes times that have come; returns the numbers of the
    /// connections to drive.
    pub fn on_timer(&mut self, reactor: &Reactor, now: u64) -> Result<Vec<usize>, GeneratorError> {
        let mut touched = Vec::new();
        if self.dial_ns.is_some_and(|at| at <= now) {
            touched.push(self.connect(reactor, now)?);
            self.dialled += 1;
            self.dial_ns = (self.dialled < self.expected).then_some(now + DIAL_INTERVAL_NS);
        }
        let instant = self.instant(now);
        for (number, link) in self.links.iter_mut().enumerate() {
            let Some(link) = link else { continue };
            if link.deadline_ns.is_some_and(|at| at <= now) {
                link.connection.handle_timeout(instant);
                touched.push(number);
            }
        }
        Ok(touched)
    }

    /// Reads the datagrams that wait at a socket; returns the numbers of the connections to drive.
    pub fn receive(&mut self, connection: u32) -> Vec<usize> {
        let now = self.instant(clock::now().as_nanos());
        let mut touched = Vec::new();
        let mut buffer = [0; LONGEST_BYTES];
        for _ in 0..BATCH {
            let socket = match connection {
                LISTENER => self.listener.as_ref(),
                number => {
                    let link = self.links.get(number as usize).and_then(Option::as_ref);
                    link.and_then(|link| link.socket.as_ref())
                }
            };
            let Some(Ok((length, from))) = socket.map(|it| it.recv_from(&mut buffer)) else {
                break;
            };
            self.datagram.clear();
            let (data, answer) = (BytesMut::from(&buffer[..length]), &mut self.datagram);
            match self.endpoint.handle(now, from, None, None, data, answer) {
                Some(DatagramEvent::ConnectionEvent(ConnectionHandle(number), event)) => {
                    if let Some(connection) = self.connection(number) {
                        connection.handle_event(event);
                        touched.push(number);
                    }
                }
                Some(DatagramEvent::NewConnection(incoming)) => {
                    let accepted = self.endpoint.accept(incoming, now, answer, None);
                    if let Ok((ConnectionHandle(number), connection)) = accepted {
                        self.insert(number, connection, None);
                        touched.push(number);
                    }
                }
                Some(DatagramEvent::Response(transmit)) => {
                    if let Some(socket) = &self.listener {
                        let _ = socket.send_to(&answer[..transmit.size], transmit.destination);
                    }
                }
                None => {}
            }
        }
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// Passes the events of connection `number` to `app`, and sends what may be sent.
    pub fn drive(&mut self, number: usize, app: &mut impl App) -> Result<(), GeneratorError> {
        let now = self.instant(clock::now().as_nanos());
        let Some(slot) = self.links.get_mut(number) else { return Ok(()) };
        let Some(link) = slot else { return Ok(()) };
        while let Some(event) = link.connection.poll_endpoint_events() {
            let is_over = event.is_drained();
            let answer = self.endpoint.handle_event(ConnectionHandle(number), event);
            if is_over {
                *slot = None;
                return Ok(());
            }
            if let Some(event) = answer {
                link.connection.handle_event(event);
            }
        }
        while let Some(event) = link.connection.poll() {
            match &event {
                Event::Connected => self.opened += 1,
                Event::ConnectionLost { reason } if !self.has_begun => {
                    let action = format!("QUIC with {}", link.connection.remote_address());
                    return Err(failed(&self.workload.name, action)(reason.clone().into()));
                }
                _ => {}
            }
            app.on_event(number, &mut link.connection, event, now);
        }
        loop {
            self.datagram.clear();
            let Some(transmit) = link.connection.poll_transmit(now, 1, &mut self.datagram) else {
                break;
            };
            // The hosts' devices have no queue: a datagram that the kernel does not take is lost.
            let _ = match (&link.socket, &self.listener) {
                (Some(socket), _) => socket.send(&self.datagram[..transmit.size]),
                (_, Some(socket)) => {
                    socket.send_to(&self.datagram[..transmit.size], transmit.destination)
                }
                _ => Ok(0),
            };
        }
        let (epoch, epoch_ns) = self.epoch;
        link.deadline_ns = link.connection.poll_timeout().map(|at| {
            let since = at.saturating_duration_since(epoch).as_nanos();
            epoch_ns.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
        });
        Ok(())
    }
}

/// A UDP socket in the current namespace.
fn socket(
    workload: &Workload,
    local: SocketAddrV4,
    remote: Option<SocketAddrV4>,
) -> Result<UdpSocket, GeneratorError> {
    let socket: Socket = udp(workload, local, remote)?;
    // A user other than root keeps the default.
    let _ = set_receive_buffer(&socket, BUFFER_BYTES);
    Ok(socket.into())
}
