//! The control socket: a Unix socket with one JSON request and one JSON answer per connection.
//!
//! Its mode is 0600, or 0660 with a group whose members may only request the status. The main thread serves it in turns
//! (`clients.rs`) and never blocks on a client. The owner has priority, and members can delay neither the owner nor the
//! box.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, lchown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, Group, Uid, geteuid};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockAddr, Socket, Type};

use super::clients::{ClientLimits, Clients, Guest, Reply, TURN};
use super::outcome::Outcome;
use super::privileges::Confinement;

/// Longest request (bytes).
const MAX_REQUEST: usize = 4096;

/// Longest answer that a client reads (bytes): a status of [`crate::daemon::config::MAX_BUNDLES`] bundles, or of tens
/// of thousands of connections.
const MAX_ANSWER: u64 = 64 << 20;

/// Connections that the kernel queues until the next turn; further ones wait in connect(2).
const BACKLOG: i32 = 128;

/// Time for sending a request, for the worker's state, and for reading the answer.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Limits on connections: two users are owners, and several group members may connect at once.
const LIMITS: ClientLimits = ClientLimits { all: 32, each: 8, patience: PATIENCE };

/// The requests of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The state of the box or agent.
    Status,
    /// The text of the configuration in force.
    Config,
    /// Read the configuration and the key files again, and apply them.
    Reload,
    /// Apply the candidate configuration next to the box's own, and return to the old one unless [`Request::Confirm`]
    /// comes in time.
    Apply {
        /// Time for the confirmation, from now on (s).
        within_s: u32,
    },
    /// Keep the configuration on trial.
    Confirm,
    /// Return from the configuration on trial at once.
    Revert,
}

/// The answers; `S` is the state of the box or agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer<S> {
    /// The state.
    Status(Box<S>),
    /// Result of a change of configuration.
    Changed(Box<Outcome>),
    /// Done: a message, or the requested text.
    Done(String),
    /// Not done, with the reason.
    Failed(String),
}

/// The listening socket. A drop removes its path.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
    clients: Clients<UnixStream, u32>,
    /// Number of states requested from the worker, and number of states received.
    asked: u64,
    told: u64,
    /// The last answer with a state.
    latest: Option<(Instant, Arc<[u8]>)>,
}

impl ControlSocket {
    /// Creates the socket at `path`, and its folder if that is missing, for the user and group of `confinement`.
    /// Replaces a socket left behind by a dead process. A socket that answers, or any other file, is an error.
    pub fn bind(path: &Path, confinement: &Confinement) -> io::Result<Self> {
        let failed = |what: &str, error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("control socket {}: {what}: {error}", path.display()),
            )
        };
        if let Some(folder) = path.parent() {
            create_folder(folder, confinement).map_err(|error| failed("its folder", error))?;
        }
        if let Ok(metadata) = std::fs::symlink_metadata(path) {
            if !metadata.file_type().is_socket() {
                let error = io::Error::from(io::ErrorKind::AlreadyExists);
                return Err(failed("another file exists there", error));
            }
            if UnixStream::connect(path).is_ok() {
                let error = io::Error::from(io::ErrorKind::AddrInUse);
                return Err(failed("another daemon answers there", error));
            }
            std::fs::remove_file(path).map_err(|error| failed("left behind", error))?;
        }
        let listener =
            bind_private(path, confinement).map_err(|error| failed("cannot bind", error))?;
        listener.set_nonblocking(true)?;
        let inode = std::fs::metadata(path)?.ino();
        let failed =
            |error: &io::Error| tracing::debug!(target: "control", %error, "control client");
        let (path, clients) = (path.to_owned(), Clients::new(LIMITS, failed));
        Ok(Self { listener, path, inode, clients, asked: 0, told: 0, latest: None })
    }

    /// Descriptors to poll before the next turn.
    pub fn fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let listener = PollFd::new(self.listener.as_fd(), PollFlags::POLLIN);
        self.clients.is_open().then_some(listener).into_iter().chain(self.clients.fds())
    }

    /// Latest time of the next turn.
    pub fn next_timer(&self) -> Option<Instant> {
        self.clients.next_timer()
    }

    /// Serves clients for a turn of at most 100 ms, each with one answer of `handle`. If `handle` returns none, the
    /// client waits for [`ControlSocket::tell`].
    pub fn serve<S: Serialize>(&mut self, mut handle: impl FnMut(Request) -> Option<Answer<S>>) {
        let listener = &self.listener;
        self.clients.let_in(|| {
            let (stream, _) = listener.accept()?;
            let user = getsockopt(&stream, PeerCredentials)?.uid();
            Ok((stream, Guest { of: user, goes_first: is_owner(user) }))
        });
        let fresh = self.latest.as_ref().filter(|(at, _)| at.elapsed() < TURN);
        let (asked, is_asked) = (self.asked, self.asked > self.told);
        self.clients.serve(|guest, text, is_all| {
            let end = text.iter().position(|byte| *byte == b'\n');
            if end.is_none() && !is_all && text.len() < MAX_REQUEST {
                return Reply::NotYet;
            }
            let is_member = !guest.goes_first;
            let answer = match serde_json::from_slice(&text[..end.unwrap_or(text.len())]) {
                Ok(Request::Status) if is_member && let Some((_, text)) = fresh => {
                    return Reply::Now(Vec::new(), text.clone());
                }
                Ok(request) if request != Request::Status && is_member => Answer::Failed(
                    "only root and the user of the daemon may do this: run it with \
                                    sudo"
                        .into(),
                ),
                Ok(request) => match handle(request) {
                    Some(answer) => answer,
                    // An owner never gets a state that was requested before its own request.
                    None => return Reply::Later(asked + u64::from(!(is_asked && is_member))),
                },
                Err(error) => Answer::Failed(format!("invalid request: {error}")),
            };
            Reply::Now(Vec::new(), encoded(&answer))
        });
    }

    /// Whether to request the worker's state now: a client waits for one, and no request is pending.
    pub fn asks_for_status(&mut self) -> bool {
        let is_due = self.asked == self.told && self.clients.awaited() > Some(self.asked);
        self.asked += u64::from(is_due);
        is_due
    }

    /// Sends `answer` to the clients that wait for the requested state.
    pub fn tell<S: Serialize>(&mut self, answer: &Answer<S>) {
        let text = encoded(answer);
        self.told = self.asked;
        self.clients.tell(self.told, &text);
        self.latest = Some((Instant::now(), text));
    }

    /// Sends `answer` to the clients that have waited for a state for too long.
    pub fn tell_late<S: Serialize>(&mut self, answer: &Answer<S>) {
        self.clients.tell_late(&encoded(answer));
    }
}

/// Encodes an answer as a line.
fn encoded<S: Serialize>(answer: &Answer<S>) -> Arc<[u8]> {
    let text = serde_json::to_vec(answer)
        .or_else(|error| serde_json::to_vec(&Answer::<()>::Failed(error.to_string())));
    let mut text = text.unwrap_or_default();
    text.push(b'\n');
    text.into()
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // A successor may already have put its own socket there.
        let is_ours = std::fs::metadata(&self.path).is_ok_and(|file| file.ino() == self.inode);
        if is_ours {
            // A failure has no remedy here; the next start replaces the file.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Creates the folder of a socket if it does not exist. The user of the box may remove its socket from it. So may root
/// without any capability, such as an agent that shares the folder.
fn create_folder(folder: &Path, confinement: &Confinement) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(folder)?;
    if let Some(account) = &confinement.account {
        chown(folder, None, Some(account.gid.as_raw()))?;
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o775))?;
    }
    Ok(())
}

/// Binds a socket that is private from the first moment. Its file inherits the mode of the socket (`unix_bind_bsd`,
/// net/unix/af_unix.c). A umask would affect the whole process, and a later chmod would leave a gap. Access for a group
/// comes afterwards; until then the file belongs to the group of this process.
fn bind_private(path: &Path, confinement: &Confinement) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    fchmod(&socket, Mode::from_bits_truncate(0o600))?;
    socket.bind(&SockAddr::unix(path)?)?;
    let (user, group) = (confinement.account.as_ref().map(|it| it.uid), confinement.status_group);
    if group.is_some() {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    }
    if user.is_some() || group.is_some() {
        lchown(path, user.map(Uid::as_raw), group.map(Gid::as_raw))?;
    }
    socket.listen(BACKLOG)?;
    Ok(OwnedFd::from(socket).into())
}

/// Whether this user is root or the user of this process, and not just a member of the status group.
fn is_owner(user: u32) -> bool {
    let user = Uid::from_raw(user);
    user.is_root() || user == geteuid()
}

/// Whether the name of `socket` is the default for an agent, which has no key for a group that may read its status.
pub fn is_agents(socket: &Path) -> bool {
    socket.file_name().is_some_and(|name| name.to_string_lossy().starts_with("agent-"))
}

/// Adds to an error about missing permission who may connect to the socket at `path`.
fn with_hint(path: &Path, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return error;
    }
    // connect(2) needs write permission of the group.
    let file = std::fs::metadata(path).ok().filter(|file| file.mode() & 0o020 != 0);
    let group = file.and_then(|file| Group::from_gid(Gid::from_raw(file.gid())).ok().flatten());
    let hint = match group {
        Some(group) => {
            format!("run it with sudo; members of the group {:?} may read the status", group.name)
        }
        None if is_agents(path) => "run it with sudo".into(),
        None => "run it with sudo; in a box, box.status_group lets a group read the status".into(),
    };
    io::Error::new(error.kind(), format!("{error}: {hint}"))
}

/// Sends a request to the daemon at `path`, and returns its answer.
pub fn ask<S: DeserializeOwned>(path: &Path, request: Request) -> io::Result<Answer<S>> {
    let mut stream = UnixStream::connect(path).map_err(|error| with_hint(path, error))?;
    stream.set_read_timeout(Some(5 * PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_vec(&request)?;
    text.push(b'\n');
    stream.write_all(&text)?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
    serde_json::from_slice(&answer).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use nix::poll::poll;

    use super::*;
    use crate::service::clients::timeout;

    /// Serves turns on a thread until the last of `clients` clients is gone.
    fn serve(mut socket: ControlSocket, clients: usize) -> std::thread::JoinHandle<ControlSocket> {
        std::thread::spawn(move || {
            let mut seen = 0;
            while seen < clients || socket.fds().count() > 1 {
                let mut fds: Vec<PollFd<'_>> = socket.fds().collect();
                let knocks = poll(&mut fds, timeout(socket.next_timer())).unwrap() > 0
                    && fds[0].any().unwrap();
                seen += usize::from(knocks);
                socket.serve(|request| Some(Answer::<()>::Done(format!("{request:?}"))));
            }
            socket
        })
    }

    #[test]
    fn a_request_is_answered_on_a_private_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/box.sock");
        let server = serve(ControlSocket::bind(&path, &Confinement::default()).unwrap(), 1);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let answer: Answer<()> = ask(&path, Request::Apply { within_s: 60 }).unwrap();
        assert_eq!(answer, Answer::Done("Apply { within_s: 60 }".into()));
        drop(server.join().unwrap());
        assert!(!path.exists(), "the path goes with the socket");
    }

    #[test]
    fn garbage_does_not_reach_the_handler() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("box.sock");
        let server = serve(ControlSocket::bind(&path, &Confinement::default()).unwrap(), 1);
        let mut stream = UnixStream::connect(&path).unwrap();
        let mut answer = String::new();
        // The server may time out, or close the socket with unread bytes, which resets the connection.
        let _ = stream.write_all(&[b'['; 5000]);
        let _ = stream.read_to_string(&mut answer);
        drop(server.join().unwrap());
        assert!(answer.is_empty() || answer.contains("invalid request"), "{answer}");
    }

    #[test]
    fn a_client_that_trickles_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("box.sock");
        let server = serve(ControlSocket::bind(&path, &Confinement::default()).unwrap(), 1);
        let mut stream = UnixStream::connect(&path).unwrap();
        // Sends a byte long before each timeout, for many times that timeout.
        let trickled = (0..150).take_while(|_| {
            std::thread::sleep(PATIENCE / 10);
            stream.write_all(b" ").is_ok()
        });
        assert!(trickled.count() < 150);
        drop(server.join().unwrap());
    }

    #[test]
    fn silent_clients_do_not_delay_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("box.sock");
        let mut socket = ControlSocket::bind(&path, &Confinement::default()).unwrap();
        let silent: Vec<_> = (0..100).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"\"confirm\"\n").unwrap();
        let began = Instant::now();
        let mut served = false;
        while !served {
            socket.serve(|request| {
                served |= request == Request::Confirm;
                Some(Answer::<()>::Done("done".into()))
            });
            assert!(began.elapsed() < PATIENCE / 2);
        }
        socket.serve(|_| None::<Answer<()>>);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "{\"done\":\"done\"}\n");
        assert!(socket.fds().count() <= 1 + LIMITS.each, "one user has several connections");
        drop(silent);
    }

    #[test]
    fn one_state_answers_all_who_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("box.sock");
        let mut socket = ControlSocket::bind(&path, &Confinement::default()).unwrap();
        let connect = || {
            let mut client = UnixStream::connect(&path).unwrap();
            client.write_all(b"\"status\"\n").unwrap();
            client
        };
        let read = |socket: &mut ControlSocket, mut client: UnixStream| {
            socket.serve(|_| None::<Answer<u32>>);
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            answer
        };
        let (first, second) = (connect(), connect());
        socket.serve(|_| None::<Answer<u32>>);
        assert!(socket.asks_for_status() && !socket.asks_for_status());
        // A request after the pending one: the owner must not get the earlier state.
        let third = connect();
        socket.serve(|_| None::<Answer<u32>>);
        socket.tell(&Answer::Status(Box::new(7)));
        assert_eq!(read(&mut socket, first), "{\"status\":7}\n");
        assert_eq!(read(&mut socket, second), "{\"status\":7}\n");
        assert!(socket.asks_for_status());
        socket.tell(&Answer::Status(Box::new(8)));
        assert_eq!(read(&mut socket, third), "{\"status\":8}\n");
        assert!(!socket.asks_for_status());
    }

    #[test]
    fn only_a_dead_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("box.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "std leaves the path behind");
        // A child that another test starts holds the socket until it has become its program.
        while UnixStream::connect(&path).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let live = ControlSocket::bind(&path, &Confinement::default()).unwrap();
        let error = ControlSocket::bind(&path, &Confinement::default()).unwrap_err().to_string();
        assert!(error.contains("another daemon answers"), "{error}");
        drop(live);
        std::fs::write(&path, "text").unwrap();
        let error = ControlSocket::bind(&path, &Confinement::default()).unwrap_err().to_string();
        assert!(error.contains("another file exists there"), "{error}");
        assert!(path.exists());
    }
}
