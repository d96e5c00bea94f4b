//! Sockets for the generators: nonblocking, with a chosen congestion control.

use std::fs;
use std::io;
use std::net::SocketAddrV4;

use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;
use socket2::{Domain, Protocol, Socket, Type};

use super::reactor::{Key, Reactor};
use super::workload::Workload;
use super::{GeneratorError, SiteEnd};
use forebay_host::tcp_info::tcp_info;

/// Bytes written or read in one call. Few calls per second even at 1 Gbit/s, and short enough that other
/// connections get their turn.
pub(super) const CHUNK: usize = 256 * 1024;

/// Payload of answers and greedy flows: nothing on the path depends on the content.
pub(super) static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// Interval between connects (ns). If 200 connections opened at once, their handshakes would overrun a small
/// bottleneck queue. Linux starts a connection whose SYN was lost with a window of one packet instead of ten
/// (`tcp_init_cwnd`).
pub(super) const DIAL_INTERVAL_NS: u64 = 1_000_000;

/// Turns an I/O error into one that names the workload and the action.
pub(super) fn failed(
    workload: &str,
    action: impl Into<String>,
) -> impl FnOnce(io::Error) -> GeneratorError {
    let (workload, action) = (workload.to_string(), action.into());
    move |source| GeneratorError::Socket { workload, action, source }
}

/// A TCP socket in the current namespace with the workload's congestion control.
pub(super) fn tcp(workload: &Workload) -> Result<Socket, GeneratorError> {
    let socket =
        nonblocking(Type::STREAM, Protocol::TCP).map_err(failed(&workload.name, "socket"))?;
    // Requests must not wait for the acknowledgement of an earlier one (Nagle).
    socket.set_tcp_nodelay(true).map_err(failed(&workload.name, "TCP_NODELAY"))?;
    set_dscp(&socket, workload)?;
    if let Some(bytes) = workload.receiving.buffer {
        set_receive_buffer(&socket, bytes.as_u64())
            .map_err(failed(&workload.name, "SO_RCVBUFFORCE"))?;
    }
    socket.set_tcp_congestion(workload.socket_cc.as_bytes()).map_err(|source| {
        if source.raw_os_error() != Some(Errno::ENOENT as i32) {
            return failed(&workload.name, format!("TCP_CONGESTION {}", workload.socket_cc))(
                source,
            );
        }
        let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
        GeneratorError::CongestionControl {
            workload: workload.name.clone(),
            name: workload.socket_cc.clone(),
            available: available.unwrap_or_default().trim().to_string(),
        }
    })?;
    Ok(socket)
}

/// A UDP socket bound to `local` and, if given, connected to `remote`.
pub(super) fn udp(
    workload: &Workload,
    local: SocketAddrV4,
    remote: Option<SocketAddrV4>,
) -> Result<Socket, GeneratorError> {
    let socket =
        nonblocking(Type::DGRAM, Protocol::UDP).map_err(failed(&workload.name, "socket"))?;
    set_dscp(&socket, workload)?;
    socket.bind(&local.into()).map_err(failed(&workload.name, format!("bind to {local}")))?;
    if let Some(remote) = remote {
        let action = format!("connect to {remote}");
        socket.connect(&remote.into()).map_err(failed(&workload.name, action))?;
    }
    Ok(socket)
}

/// Sets the DSCP of the workload on `socket`. An accepted connection inherits its listener's.
fn set_dscp(socket: &Socket, workload: &Workload) -> Result<(), GeneratorError> {
    socket
        .set_tos_v4(u32::from(workload.dscp) << 2)
        .map_err(failed(&workload.name, format!("IP_TOS for DSCP {}", workload.dscp)))
}

/// Sets a fixed receive buffer. The kernel reserves twice as much memory, announces half of the memory, and
/// stops adapting it (socket(7), tcp(7)). Root may exceed net.core.rmem_max.
pub(super) fn set_receive_buffer(socket: &Socket, bytes: u64) -> io::Result<()> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    Ok(setsockopt(socket, RcvBufForce, &bytes)?)
}

fn nonblocking(kind: Type, protocol: Protocol) -> io::Result<Socket> {
    Socket::new(Domain::IPV4, kind.nonblocking().cloexec(), Some(protocol))
}

/// Whether an operation must only be tried again later.
pub(super) fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Reads and discards up to `most` bytes of a TCP stream; returns zero if none have arrived. The end of the
/// stream is an error.
///
/// The kernel drops the bytes instead of copying them (`MSG_TRUNC`, tcp(7)).
pub(super) fn discard(socket: &Socket, most: usize) -> io::Result<u64> {
    // SAFETY: with MSG_TRUNC, recv(2) on TCP writes nothing to the buffer, so null is allowed.
    let length = unsafe {
        let fd = std::os::fd::AsRawFd::as_raw_fd(socket);
        libc::recv(fd, std::ptr::null_mut(), most, libc::MSG_TRUNC | libc::MSG_DONTWAIT)
    };
    let error = match u64::try_from(length) {
        Ok(0) => io::ErrorKind::UnexpectedEof.into(),
        Ok(length) => return Ok(length),
        Err(_) => io::Error::last_os_error(),
    };
    if would_block(&error) { Ok(0) } else { Err(error) }
}

/// Whether both ends of `socket` agreed on ECN, according to the kernel (`TCPI_OPT_ECN` in
/// include/uapi/linux/tcp.h).
fn is_ecn_capable(socket: &Socket) -> io::Result<bool> {
    /// Bit of `tcpi_options`: the connection has negotiated ECN.
    const TCPI_OPT_ECN: u8 = 8;
    Ok(tcp_info(socket)?.tcpi_options & TCPI_OPT_ECN != 0)
}

/// The listening end: accepts the connections of one workload.
pub(super) struct Acceptor {
    listener: Socket,
    /// Name of the workload in errors.
    pub workload: String,
    expected: usize,
    ecn: bool,
}

impl Acceptor {
    /// The key of the listening socket among the endpoint's connections.
    pub const CONNECTION: u32 = u32::MAX;

    pub fn open(
        reactor: &Reactor,
        endpoint: u32,
        workload: &Workload,
        site: &SiteEnd,
        expected: u32,
    ) -> Result<Self, GeneratorError> {
        let action = || format!("listen on {}", site.sender());
        let listener = tcp(workload)?;
        listener.bind(&site.sender().into()).map_err(failed(&workload.name, action()))?;
        // The kernel limits the backlog to net.core.somaxconn.
        listener.listen(i32::MAX).map_err(failed(&workload.name, action()))?;
        let key = Key { endpoint, connection: Self::CONNECTION };
        reactor.watch(&listener, key, EpollFlags::EPOLLIN)?;
        let workload = workload.name.clone();
        Ok(Self { listener, workload, expected: expected as usize, ecn: site.ecn })
    }

    /// Accepts the waiting connections.
    pub fn accept(&self) -> Result<Vec<Socket>, GeneratorError> {
        let mut taken = Vec::new();
        loop {
            match self.listener.accept() {
                Ok((socket, peer)) => {
                    if self.ecn && !is_ecn_capable(&socket)? {
                        let peer = peer.as_socket().map_or_else(String::new, |it| it.to_string());
                        let workload = self.workload.clone();
                        return Err(GeneratorError::NotEcnCapable { workload, peer });
                    }
                    socket.set_nonblocking(true)?;
                    socket.set_tcp_nodelay(true)?;
                    taken.push(socket);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(taken),
                // The peer gave up while its connection waited (accept(2)).
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub fn is_complete(&self, accepted: usize) -> bool {
        accepted >= self.expected
    }
}

/// The connecting end: opens the connections of one workload, one after the other.
pub(super) struct Dialer {
    endpoint: u32,
    workload: String,
    remote: SocketAddrV4,
    sockets: Vec<Socket>,
    up: Vec<bool>,
    next: usize,
    next_ns: Option<u64>,
}

impl Dialer {
    pub fn new(
        endpoint: u32,
        workload: &Workload,
        site: &SiteEnd,
        connections: u32,
    ) -> Result<Self, GeneratorError> {
        let mut sockets = Vec::new();
        for _ in 0..connections {
            sockets.push(tcp(workload)?);
        }
        Ok(Self {
            endpoint,
            workload: workload.name.clone(),
            remote: site.sender(),
            up: vec![false; sockets.len()],
            sockets,
            next: 0,
            next_ns: None,
        })
    }

    pub fn start(&mut self) {
        self.next_ns = (!self.sockets.is_empty()).then_some(0);
    }

    pub fn next_timer(&self) -> Option<u64> {
        self.next_ns
    }

    /// Opens the next connection.
    pub fn on_timer(&mut self, reactor: &Reactor, now: u64) -> Result<(), GeneratorError> {
        let socket = &self.sockets[self.next];
        let action = || format!("connect to {}", self.remote);
        match socket.connect(&self.remote.into()) {
            Err(error) if error.raw_os_error() != Some(Errno::EINPROGRESS as i32) => {
                return Err(failed(&self.workload, action())(error));
            }
            _ => {}
        }
        let key = Key { endpoint: self.endpoint, connection: self.next as u32 };
        reactor.watch(socket, key, EpollFlags::EPOLLOUT)?;
        self.next += 1;
        self.next_ns = (self.next < self.sockets.len()).then_some(now + DIAL_INTERVAL_NS);
        Ok(())
    }

    /// Handles an event of a connection that is still being opened; false if it is open already.
    pub fn on_event(&mut self, reactor: &Reactor, connection: u32) -> Result<bool, GeneratorError> {
        let Some(up) = self.up.get_mut(connection as usize) else { return Ok(true) };
        if *up {
            return Ok(false);
        }
        let socket = &self.sockets[connection as usize];
        if let Some(error) = socket.take_error()? {
            let action = format!("connect to {}", self.remote);
            return Err(failed(&self.workload, action)(error));
        }
        let key = Key { endpoint: self.endpoint, connection };
        reactor.change(socket, key, EpollFlags::EPOLLIN)?;
        *up = true;
        Ok(true)
    }

    pub fn is_complete(&self) -> bool {
        self.up.iter().all(|&up| up)
    }

    pub fn socket(&self, connection: u32) -> &Socket {
        &self.sockets[connection as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpStream};

    use super::super::endpoint::Window;
    use super::*;
    use crate::generator::tests::workload;
    use forebay_core::units::ByteCount;
    use forebay_scenario::Traffic;
    use forebay_skips::{Need, skip_without};

    fn bulk(dscp: u8) -> Workload {
        let mut bulk = workload(Traffic::Greedy { flows: 1 });
        bulk.of.dscp = dscp;
        bulk
    }

    /// Connections that a listener of `workload` accepts, or its error.
    fn accept(workload: &Workload, ecn: bool) -> Result<Vec<Socket>, String> {
        let local = Ipv4Addr::LOCALHOST;
        let window = Window { start_ns: 0, stop_ns: 0, end_ns: 0, drain_ns: 0 };
        let site = SiteEnd { flow: 0, local, remote: local, port: 0, sends: true, ecn, window };
        let acceptor = Acceptor::open(&Reactor::new().unwrap(), 0, workload, &site, 1).unwrap();
        let address = acceptor.listener.local_addr().unwrap().as_socket().unwrap();
        let _client = TcpStream::connect(address).unwrap();
        acceptor.accept().map_err(|error| error.to_string())
    }

    #[test]
    fn connection_without_required_ecn_is_refused() {
        assert_eq!(accept(&bulk(0), false).unwrap().len(), 1);
        // If tcp_ecn is 0 or 2, a client does not request ECN (tcp(7)), so the connection lacks it.
        let asks = fs::read_to_string("/proc/sys/net/ipv4/tcp_ecn").unwrap();
        if matches!(asks.trim(), "0" | "2") {
            let error = accept(&bulk(0), true).unwrap_err();
            let expected = "workload w: ecn: the connection from 127.0.0.1:";
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn receive_buffer_is_workload_value_doubled_by_kernel() {
        if skip_without(Need::Root) {
            return;
        }
        let mut workload = bulk(0);
        workload.of.receiving.buffer = Some(ByteCount::new(1_000_000));
        let socket = tcp(&workload).unwrap();
        assert_eq!(socket.recv_buffer_size().unwrap(), 2_000_000);
    }

    #[test]
    fn sockets_at_both_ends_use_workload_dscp() {
        let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        let expedited = bulk(46);
        let mut sockets = accept(&expedited, false).unwrap();
        sockets.extend([tcp(&expedited).unwrap(), udp(&expedited, any, None).unwrap()]);
        let tos = sockets.iter().map(|socket| socket.tos_v4().unwrap());
        assert_eq!(tos.collect::<Vec<_>>(), [0xb8; 3]);
    }
}
