//! Clients that hold connections to a box and send nothing.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::namespace::Namespace;

/// Interval after which clients whose connection was closed connect again.
const AGAIN_EVERY: Duration = Duration::from_millis(20);
/// Longest time until a connection over TCP is open.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);

/// Address for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// A Unix socket.
    Socket(PathBuf),
    /// A TCP port of the box's namespace.
    Port(SocketAddr),
}

/// A silent connection.
enum Client {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Client {
    fn connect(door: &Door) -> io::Result<Self> {
        match door {
            Door::Socket(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(Self::Unix(stream))
            }
            Door::Port(address) => {
                let stream = TcpStream::connect_timeout(address, CONNECT_TIMEOUT)?;
                stream.set_nonblocking(true)?;
                Ok(Self::Tcp(stream))
            }
        }
    }

    /// Whether the box still has the connection.
    fn is_open(&mut self) -> bool {
        let mut bytes = [0; 512];
        let read = match self {
            Self::Unix(stream) => stream.read(&mut bytes),
            Self::Tcp(stream) => stream.read(&mut bytes),
        };
        match read {
            Ok(length) => length > 0,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

/// Silent clients of one door; they disconnect when this is dropped.
#[derive(Debug)]
pub(super) struct Crowd {
    door: Door,
    clients: Arc<AtomicU32>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Crowd {
    /// Clients in `namespace` for `door`, none at first. If no program listens, they retry.
    ///
    /// # Errors
    ///
    /// No handle of the namespace, or no thread.
    pub fn start(namespace: &Namespace, door: Door) -> io::Result<Self> {
        let namespace = namespace.try_clone()?;
        let (clients, is_over) = (Arc::<AtomicU32>::default(), Arc::<AtomicBool>::default());
        let (wanted, over, to) = (clients.clone(), is_over.clone(), door.clone());
        let work = move || {
            let hold = || {
                let mut held: Vec<Client> = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let wanted = wanted.load(Ordering::Relaxed) as usize;
                    held.retain_mut(Client::is_open);
                    held.truncate(wanted);
                    while held.len() < wanted
                        && let Ok(client) = Client::connect(&to)
                    {
                        held.push(client);
                    }
                    thread::sleep(AGAIN_EVERY);
                }
                Ok(())
            };
            if let Err(error) = namespace.within(hold) {
                tracing::warn!(target: "upset", %error, "no silent clients");
            }
        };
        let thread = thread::Builder::new().name("crowd".into()).spawn(work)?;
        Ok(Self { door, clients, is_over, thread: Some(thread) })
    }

    /// Address that the clients connect to.
    pub fn door(&self) -> &Door {
        &self.door
    }

    /// Sets the number of clients.
    pub fn set(&self, clients: u32) {
        self.clients.store(clients, Ordering::Relaxed);
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::time::Instant;

    use super::*;
    use crate::tests::skip_without_root;
    use crate::topology::plain;

    #[test]
    fn clients_come_again_when_their_connection_is_closed() {
        if skip_without_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("door.sock");
        let namespace = plain("box", &[]).unwrap();
        let crowd = Crowd::start(&namespace, Door::Socket(path.clone())).unwrap();
        crowd.set(3);
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        let accept = |count: usize| {
            let mut all = Vec::new();
            while all.len() < count && Instant::now() < deadline {
                match listener.accept() {
                    Ok((stream, _)) => all.push(stream),
                    Err(_) => thread::sleep(Duration::from_millis(5)),
                }
            }
            all
        };
        let first = accept(3);
        assert_eq!(first.len(), 3);
        drop(first);
        assert_eq!(accept(3).len(), 3);
        // Clients retry a door without a listener until it has one again.
        crowd.set(0);
        assert_eq!(crowd.door(), &Door::Socket(path));
    }
}
