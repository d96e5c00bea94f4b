//! The UDP socket of a box's messages.
//!
//! It is bound to the configured address, and only datagrams from a configured peer go on to the
//! cryptography: what comes from elsewhere costs a receive and a comparison. Datagrams are read a
//! few at a time, so that a flood delays no packet by more than a batch.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use forebay_core::bundle::wire::{MAX_DATAGRAM, RejectCounts};
use socket2::{Domain, Protocol, Socket, Type};

use super::status::MessageCounters;

/// Datagrams read in a row: about 50 us of tag checks.
pub const BATCH: usize = 32;

/// Receive buffer: holds 10 ms of small datagrams at half a million a second, with the kernel's
/// overhead of about 800 bytes each, so that a flood does not push out what is genuine.
const RECEIVE_BUFFER: usize = 4 << 20;

/// The socket and what went through it.
pub struct Messages {
    socket: UdpSocket,
    buffer: Box<[u8; MAX_DATAGRAM + 1]>,
    counters: MessageCounters,
}

impl Messages {
    /// Binds the socket.
    pub fn bind(listen: SocketAddr) -> io::Result<Self> {
        let bound = || {
            let socket =
                Socket::new(Domain::for_address(listen), Type::DGRAM, Some(Protocol::UDP))?;
            socket.set_nonblocking(true)?;
            socket.bind(&listen.into())?;
            force_receive_buffer(&socket)?;
            Ok(socket)
        };
        let named = |error: io::Error| {
            let fix = "box.listen must be an address of this machine, with a free port";
            io::Error::new(error.kind(), format!("messages on {listen}: {error}: {fix}"))
        };
        Ok(Self {
            socket: bound().map_err(named)?.into(),
            buffer: Box::new([0; MAX_DATAGRAM + 1]),
            counters: MessageCounters::default(),
        })
    }

    /// Reads up to [`BATCH`] datagrams. One that is longer than any message arrives cut, and still
    /// longer than any message.
    pub fn receive(&mut self, mut take: impl FnMut(SocketAddr, &[u8], &mut MessageCounters)) {
        for _ in 0..BATCH {
            match self.socket.recv_from(&mut self.buffer[..]) {
                Ok((len, source)) => {
                    self.counters.received += 1;
                    self.counters.received_bytes += len as u64;
                    take(source, &self.buffer[..len], &mut self.counters);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // ECONNREFUSED and the like: an ICMP error for an earlier datagram. The peer's
                // silence says the same.
                Err(_) => {}
            }
        }
    }

    /// Sends one datagram. A full socket buffer or an unreachable peer loses it, as a network may.
    pub fn send(&mut self, to: SocketAddr, datagram: &[u8]) {
        if self.socket.send_to(datagram, to).is_ok() {
            self.counters.sent += 1;
            self.counters.sent_bytes += datagram.len() as u64;
        }
    }

    /// What was counted, with what the sessions rejected.
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

impl AsFd for Messages {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Beyond `net.core.rmem_max` where the process may, up to it otherwise.
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
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    #[test]
    fn datagrams_arrive_with_their_source_and_too_long_ones_stay_too_long() {
        let mut messages = Messages::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = messages.socket.local_addr().unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(&[1; 5], address).unwrap();
        sender.send_to(&[2; 9000], address).unwrap();
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let mut fds = [PollFd::new(messages.as_fd(), PollFlags::POLLIN)];
            assert_eq!(poll(&mut fds, PollTimeout::from(10_000u16)), Ok(1));
            messages.receive(|source, datagram, _| seen.push((source, datagram.len())));
        }
        let source = sender.local_addr().unwrap();
        assert_eq!(seen, [(source, 5), (source, MAX_DATAGRAM + 1)]);
        assert_eq!(messages.counters(std::iter::empty()).received, 2);
    }

    #[test]
    fn an_address_of_another_machine_is_refused_by_name() {
        let error = Messages::bind("192.0.2.1:61475".parse().unwrap()).err().unwrap().to_string();
        assert!(error.contains("192.0.2.1:61475") && error.contains("box.listen"), "{error}");
    }
}
