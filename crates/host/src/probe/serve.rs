//! The answering side of a probe: reads data over TCP, and returns datagrams with its own time.
//!
//! An attacker cannot make it send to a third party, or amplify traffic. Each answer is as long as its datagram,
//! and only goes to an address that has a TCP connection open here. The numbers of answers per second and of
//! connections, and their duration, are bounded. It runs on request of an operator, and needs no privilege.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{ProbeError, wire};
use crate::clock;

/// Most connections at a time.
const CONNECTIONS_MAX: usize = 256;
/// A connection without data ends after this time.
const SILENCE_MAX: Duration = Duration::from_secs(90);
/// Any connection ends after this time: a probe takes less.
const AGE_MAX: Duration = Duration::from_secs(150);
/// Most answers per second, to all probes together.
const ANSWERS_MAX: u32 = 2_000;
/// Connections, and datagrams, taken in a row.
const BATCH: usize = 64;
/// Bytes read at once.
const CHUNK: usize = 1 << 18;

/// Answers probes that come to `listen` for `span`, or until the process ends. Calls `ready` with the bound
/// address.
///
/// # Errors
///
/// If the address cannot be bound.
pub fn serve(
    listen: SocketAddr,
    span: Option<Duration>,
    ready: &mut dyn FnMut(SocketAddr),
) -> Result<(), ProbeError> {
    let busy = |source| ProbeError::Listen { address: listen, source };
    let listener = TcpListener::bind(listen).map_err(busy)?;
    let address = listener.local_addr().map_err(busy)?;
    let datagrams = UdpSocket::bind(address).map_err(busy)?;
    listener.set_nonblocking(true).map_err(busy)?;
    datagrams.set_nonblocking(true).map_err(busy)?;
    ready(address);
    let end = span.and_then(|span| Instant::now().checked_add(span));
    let mut side = Side {
        listener,
        datagrams,
        visitors: Vec::new(),
        answered: 0,
        second: Instant::now(),
        chunk: vec![0; CHUNK],
    };
    while end.is_none_or(|end| Instant::now() < end) {
        side.wait().map_err(ProbeError::os("poll"))?;
        side.accept();
        side.answer();
        side.read();
    }
    Ok(())
}

struct Side {
    listener: TcpListener,
    datagrams: UdpSocket,
    visitors: Vec<Visitor>,
    answered: u32,
    second: Instant,
    chunk: Vec<u8>,
}

/// A connection.
struct Visitor {
    stream: TcpStream,
    peer: SocketAddr,
    came: Instant,
    heard: Instant,
}

impl Side {
    fn wait(&self) -> io::Result<()> {
        let own = [self.listener.as_fd(), self.datagrams.as_fd()];
        let visitors = self.visitors.iter().map(|visitor| visitor.stream.as_fd());
        let mut fds: Vec<PollFd<'_>> =
            own.into_iter().chain(visitors).map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, PollTimeout::from(100_u8)) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn accept(&mut self) {
        for _ in 0..BATCH {
            // Any error of one visitor is over when the next one comes.
            let Ok((stream, peer)) = self.listener.accept() else { return };
            let now = Instant::now();
            if self.visitors.len() < CONNECTIONS_MAX && stream.set_nonblocking(true).is_ok() {
                self.visitors.push(Visitor { stream, peer, came: now, heard: now });
            }
        }
    }

    fn answer(&mut self) {
        let mut datagram = [0; wire::LEN + 1];
        for _ in 0..BATCH {
            let Ok((len, source)) = self.datagrams.recv_from(&mut datagram) else { return };
            let came = clock::now();
            if self.second.elapsed() >= Duration::from_secs(1) {
                (self.answered, self.second) = (0, Instant::now());
            }
            let is_known = self.visitors.iter().any(|visitor| visitor.peer.ip() == source.ip());
            if !is_known || self.answered >= ANSWERS_MAX {
                continue;
            }
            if let Some(answer) = wire::answer(&datagram[..len], came.as_nanos()) {
                self.answered += 1;
                // A probe counts a missing answer as lost.
                let _ = self.datagrams.send_to(&answer, source);
            }
        }
    }

    fn read(&mut self) {
        let Self { visitors, chunk, .. } = self;
        visitors.retain_mut(|visitor| {
            let now = Instant::now();
            match visitor.stream.read(chunk) {
                Ok(0) => return false,
                Ok(_) => visitor.heard = now,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
            now - visitor.heard < SILENCE_MAX && now - visitor.came < AGE_MAX
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc;

    use super::*;

    /// The address of an answering side that ends after two seconds.
    fn served() -> SocketAddr {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let listen = SocketAddr::from(([127, 0, 0, 1], 0));
            serve(listen, Some(Duration::from_secs(2)), &mut |address| {
                sender.send(address).unwrap();
            })
        });
        receiver.recv().unwrap()
    }

    fn asker() -> UdpSocket {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        socket
    }

    #[test]
    fn whoever_has_no_connection_gets_no_answer() {
        let (address, asker, mut answer) = (served(), asker(), [0; 100]);
        asker.send_to(&wire::question(7, 3), address).unwrap();
        assert!(asker.recv_from(&mut answer).is_err());
        let mut visitor = TcpStream::connect(address).unwrap();
        visitor.write_all(b"the content does not matter").unwrap();
        // The server may accept the connection after the first question.
        let len = (0..5).find_map(|number| {
            asker.send_to(&wire::question(7, number), address).unwrap();
            asker.recv_from(&mut answer).ok()
        });
        let (len, from) = len.expect("an answer");
        assert_eq!((len, from), (wire::LEN, address));
        assert!(wire::answered(&answer[..len], 7).is_some_and(|(_, came_ns)| came_ns > 0));
        drop(visitor);
        std::thread::sleep(Duration::from_millis(200));
        asker.send_to(&wire::question(7, 9), address).unwrap();
        assert!(asker.recv_from(&mut answer).is_err());
    }

    #[test]
    fn a_busy_port_is_named() {
        let address = served();
        let error = serve(address, None, &mut |_| ()).unwrap_err().to_string();
        assert!(error.starts_with(&address.to_string()), "{error}");
    }
}
