//! The TCP connections that load a path with traffic.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use forebay_core::probe::FlowLook;
use forebay_core::units::{ByteCount, Rate, Timestamp};
use socket2::{Domain, Protocol, Socket, Type};

use super::{Options, ProbeError};
use crate::tcp_info::{congestion_control, tcp_info};

/// Longest time for opening a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// Most unsent bytes that the kernel accepts per connection: enough for a time slice. At the end of the load no more
/// than this is lost.
const UNSENT_BYTES: u32 = 128 * 1024;
/// Data of one write.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Default congestion control of Linux.
const USUAL: &str = "cubic";

/// `SO_MAX_PACING_RATE` of include/uapi/asm-generic/socket.h, in bytes per second. TCP then paces itself.
const SO_MAX_PACING_RATE: libc::c_int = 47;

/// Connections to the peer; the first `sending` of them send.
pub struct LoadConnections {
    peer: SocketAddr,
    sockets: Vec<Socket>,
    sending: usize,
    max_rate: Rate,
    /// Bytes sent before the load on each connection.
    header: Vec<u8>,
    looks: Vec<FlowLook>,
}

impl LoadConnections {
    /// Opens all connections of the load, or one if there is no load.
    pub fn open(peer: SocketAddr, options: &Options) -> Result<Self, ProbeError> {
        let header = options.http_path.as_ref().map(|path| {
            // More than is ever sent: the end of the load ends the request.
            format!(
                "POST {path} HTTP/1.1\r\nHost: {peer}\r\nUser-Agent: forebay-probe\r\n\
                 Content-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n",
                1_u64 << 40
            )
        });
        let sockets = (0..options.flows.unwrap_or(1)).map(|_| open(peer, options));
        Ok(Self {
            peer,
            sockets: sockets.collect::<Result<_, _>>()?,
            sending: 0,
            max_rate: options.max_rate,
            header: header.unwrap_or_default().into_bytes(),
            looks: Vec::new(),
        })
    }

    /// The local address of the connections.
    pub fn local_ip(&self) -> Option<IpAddr> {
        Some(self.sockets.first()?.local_addr().ok()?.as_socket()?.ip())
    }

    /// Congestion control of the connections.
    pub fn congestion_control(&self) -> Option<String> {
        congestion_control(self.sockets.first()?)
    }

    /// Lets the first `flows` connections send. After the load, with 0, all connections are reset and their unsent
    /// data is discarded.
    pub fn load_with(&mut self, flows: u16) -> Result<(), ProbeError> {
        let flows = usize::from(flows).min(self.sockets.len());
        if flows == self.sending {
            return Ok(());
        }
        let begun = std::mem::replace(&mut self.sending, flows);
        if flows == 0 {
            self.sockets.clear();
            return Ok(());
        }
        for socket in &self.sockets[..flows] {
            let share = self.max_rate.as_bits_per_sec() / 8 / flows as u64;
            pace(socket, share).map_err(ProbeError::os("SO_MAX_PACING_RATE"))?;
        }
        for socket in self.sockets.get(begun..flows).unwrap_or_default() {
            if !self.header.is_empty() {
                socket.send(&self.header).map_err(|error| self.ended(socket, error))?;
            }
        }
        Ok(())
    }

    /// Sends as many bytes as the kernel accepts.
    pub fn send(&self) -> Result<(), ProbeError> {
        for socket in &self.sockets[..self.sending] {
            match socket.send(&ZEROS) {
                Ok(_) => {}
                Err(error) if is_wait(&error) => {}
                Err(error) => return Err(self.ended(socket, error)),
            }
        }
        Ok(())
    }

    /// The connections that have data to send.
    pub fn writable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets[..self.sending].iter().map(|socket| socket.as_fd())
    }

    /// Records the state of the connections that send.
    pub fn look(&mut self, at: Timestamp) {
        let looks = self.sockets[..self.sending].iter().enumerate().filter_map(|(flow, socket)| {
            let info = tcp_info(socket).ok()?;
            Some(FlowLook {
                at,
                flow: flow as u16,
                srtt: Duration::from_micros(info.tcpi_rtt.into()),
                acked: ByteCount::new(info.tcpi_bytes_acked),
                sent: info.tcpi_data_segs_out.into(),
                resent: info.tcpi_total_retrans.into(),
                busy: Duration::from_micros(info.tcpi_busy_time),
                window_limited: Duration::from_micros(info.tcpi_rwnd_limited),
            })
        });
        self.looks.extend(looks);
    }

    pub fn finish(self) -> Vec<FlowLook> {
        self.looks
    }

    fn ended(&self, socket: &Socket, source: io::Error) -> ProbeError {
        let bytes = tcp_info(socket).map_or(0, |info| info.tcpi_bytes_acked);
        ProbeError::Ended { address: self.peer, bytes, source }
    }
}

fn open(peer: SocketAddr, options: &Options) -> Result<Socket, ProbeError> {
    let socket = Socket::new(Domain::for_address(peer), Type::STREAM, Some(Protocol::TCP))
        .map_err(ProbeError::os("a TCP socket"))?;
    let chosen = options.congestion_control.as_deref();
    let set = socket.set_tcp_congestion(chosen.unwrap_or(USUAL).as_bytes());
    if let (Some(name), Err(source)) = (chosen, set) {
        let file = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
        let available = std::fs::read_to_string(file).unwrap_or_default();
        let (name, available) = (name.into(), available.trim().replace(' ', ", "));
        return Err(ProbeError::CongestionControl { name, available, source });
    }
    let connected = socket.connect_timeout(&peer.into(), CONNECT_WAIT);
    connected.map_err(|source| ProbeError::Connect { address: peer, source })?;
    let set_up = || {
        socket.set_nonblocking(true)?;
        socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
        // Reset on close: no more of the load is to stay on the path.
        socket.set_linger(Some(Duration::ZERO))
    };
    set_up().map_err(ProbeError::os("setting up a TCP socket"))?;
    Ok(socket)
}

fn pace(socket: &Socket, bytes_per_sec: u64) -> io::Result<()> {
    // SAFETY: the kernel reads eight bytes of a number that lives through the call.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MAX_PACING_RATE,
            (&raw const bytes_per_sec).cast(),
            size_of::<u64>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether an operation must only be repeated later.
fn is_wait(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
