//! The control socket: a Unix socket, one JSON request and one JSON answer a connection.
//!
//! Its mode is 0600, or 0660 with a group whose processes may ask for the status and nothing else. It is served
//! on the main thread, one client at a time: whoever may connect is trusted by the owner, so the bounds here
//! are against accidents, not against attackers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, lchown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, Uid, geteuid};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockAddr, Socket, Type};

use super::impatient::{Impatient, PATIENCE};
use super::outcome::Outcome;
use super::privileges::Confinement;

/// Longest request.
const MAX_REQUEST: u64 = 4096;

/// Longest answer that a client reads: a status of [`crate::daemon::config::MAX_BUNDLES`] bundles, or of tens
/// of thousands of connections.
const MAX_ANSWER: u64 = 64 << 20;

/// Clients served before signals are looked at again: as many as may wait.
const CLIENTS: u16 = 8;

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The state of the box or agent.
    Status,
    /// The text of the configuration in force.
    Config,
    /// Read the configuration and the key files again, and go over to what they say.
    Reload,
    /// Go over to the configuration that stands beside the box's own as its candidate, and back again
    /// unless [`Request::Confirm`] comes within so many seconds.
    Apply {
        /// From now on (s).
        within_s: u32,
    },
    /// What is on trial stays.
    Confirm,
    /// What is on trial goes at once.
    Revert,
}

/// What is answered; `S` is the state of the box or agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer<S> {
    /// The state.
    Status(Box<S>),
    /// What came of going over to another configuration.
    Changed(Box<Outcome>),
    /// Done; what was done, or the text that was asked for.
    Done(String),
    /// Not done; why.
    Failed(String),
}

/// The listening socket; its path goes when it is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl ControlSocket {
    /// Creates the socket at `path`, and its folder where it is missing, for the user and group of
    /// `confinement`. A socket left behind by a process that is gone is replaced; one that answers is an error,
    /// as is any other file.
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
                return Err(failed("something else stands there", error));
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
        Ok(Self { listener, path: path.to_owned(), inode })
    }

    /// Serves clients that wait, no more than eight, each with one answer of `handle`.
    pub fn serve<S: Serialize>(&self, mut handle: impl FnMut(Request) -> Answer<S>) {
        for _ in 0..CLIENTS {
            let Ok((stream, _)) = self.listener.accept() else { return };
            if let Err(error) = serve_client(stream, &mut handle) {
                tracing::debug!(target: "control", %error, "control client");
            }
        }
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // A successor may already have put its own socket there.
        let is_ours = std::fs::metadata(&self.path).is_ok_and(|file| file.ino() == self.inode);
        if is_ours {
            // Nothing can be done about a failure: the next start replaces what is left.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Makes the folder of a socket, where there is none. The user of the box may remove its socket from it, and
/// so may root without any capability, as an agent is that shares the folder.
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

/// Binds a socket that is private from the first moment. Its file takes the mode that the socket
/// has (`unix_bind_bsd`, net/unix/af_unix.c): a mask would be the whole process's, and a later
/// chmod would leave a gap. One that lets a group in, until then that of this process, comes after it.
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
    socket.listen(CLIENTS.into())?;
    Ok(OwnedFd::from(socket).into())
}

/// Whether root, or the user of this process, asks, and not somebody of the status group.
fn is_owner(stream: &UnixStream) -> io::Result<bool> {
    let uid = Uid::from_raw(getsockopt(stream, PeerCredentials)?.uid());
    Ok(uid.is_root() || uid == geteuid())
}

fn serve_client<S: Serialize>(
    stream: UnixStream,
    handle: &mut impl FnMut(Request) -> Answer<S>,
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let mut line = Vec::new();
    BufReader::new(Impatient::of(&stream)).take(MAX_REQUEST).read_until(b'\n', &mut line)?;
    let answer = match serde_json::from_slice(&line) {
        Ok(request) if request != Request::Status && !is_owner(&stream)? => {
            Answer::Failed("allowed to root and the user of the daemon alone".into())
        }
        Ok(request) => handle(request),
        Err(error) => Answer::Failed(format!("no request: {error}")),
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    Impatient::of(&stream).write_all(&text)
}

/// Asks the daemon at `path`.
pub fn ask<S: DeserializeOwned>(path: &Path, request: Request) -> io::Result<Answer<S>> {
    let mut stream = UnixStream::connect(path)?;
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
    use std::time::Duration;

    use nix::poll::{PollFd, PollFlags, PollTimeout};

    use super::*;

    fn answer_once(socket: ControlSocket) -> std::thread::JoinHandle<ControlSocket> {
        std::thread::spawn(move || {
            let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
            nix::poll::poll(&mut fds, PollTimeout::from(10_000u16)).unwrap();
            socket.serve(|request| Answer::<()>::Done(format!("{request:?}")));
            socket
        })
    }

    #[test]
    fn a_request_is_answered_on_a_private_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/box.sock");
        let server = answer_once(ControlSocket::bind(&path, &Confinement::default()).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let answer: Answer<()> = ask(&path, Request::Apply { within_s: 60 }).unwrap();
        assert_eq!(answer, Answer::Done("Apply { within_s: 60 }".into()));
        drop(server.join().unwrap());
        assert!(!path.exists(), "the path goes with the socket");
    }

    #[test]
    fn garbage_is_refused_and_does_not_reach_the_handler() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("box.sock");
        let server = answer_once(ControlSocket::bind(&path, &Confinement::default()).unwrap());
        let mut stream = UnixStream::connect(&path).unwrap();
        let mut answer = String::new();
        // The server may lose patience, or close while unread bytes are left, which resets the
        // connection.
        let _ = stream.write_all(&[b'['; 5000]);
        let _ = stream.read_to_string(&mut answer);
        drop(server.join().unwrap());
        assert!(answer.is_empty() || answer.contains("no request"), "{answer}");
    }

    #[test]
    fn a_client_that_trickles_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("box.sock");
        let server = answer_once(ControlSocket::bind(&path, &Confinement::default()).unwrap());
        let mut stream = UnixStream::connect(&path).unwrap();
        // A byte long before the server could lose patience with it, for many times its patience.
        let trickled = (0..150).take_while(|_| {
            std::thread::sleep(PATIENCE / 10);
            stream.write_all(b" ").is_ok()
        });
        assert!(trickled.count() < 150);
        drop(server.join().unwrap());
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
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
        assert!(error.contains("something else"), "{error}");
        assert!(path.exists());
    }
}
