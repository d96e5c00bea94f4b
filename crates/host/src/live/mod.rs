//! Algorithms in Python, live: a child without privileges decides, and a law of this program where the child is late.
//!
//! ```text
//! connection ──► Remote ── questions ──► python3 -m forebay.live FILE
//!                  ├── answers ◄─────────┘
//!                  └─ NewReno, told the same, whose limits hold while answers are late
//! ```
//! Questions and answers are datagrams in JSON on a pair of sockets. Nobody waits for an answer: it counts when it is there.
//! What the child says is bounded and believed no more than any message of a network.

mod link;
mod remote;

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use forebay_core::cc::CongestionControl;
use nix::unistd::geteuid;
use serde::Deserialize;
use socket2::{Domain, Socket, Type};

use self::link::Link;
use self::remote::Remote;
use crate::service::privileges::Account;

/// How long a child may take to say what it has: it may import large libraries.
const START: Duration = Duration::from_secs(30);
/// Largest datagram.
const DATAGRAM_MAX: usize = 65_536;
/// What a child that root starts becomes: the first of these accounts that is there.
const ACCOUNTS: [&str; 2] = ["forebay", "nobody"];
/// What a child has of the environment: where Python and its packages are.
const ENVIRONMENT: [&str; 3] = ["PATH", "PYTHONPATH", "VIRTUAL_ENV"];

/// Why no child decides.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The file is not there.
    #[error("{}: {source}: allowed is a file in Python that can be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read.
        source: io::Error,
    },
    /// The child cannot be started.
    #[error("python3 -m forebay.live: {0}")]
    Start(#[from] io::Error),
    /// There is no account for the child.
    #[error("no account {} for the child: allowed is one of them", ACCOUNTS.join(" or "))]
    NoAccount,
    /// The child did not say which algorithms it has.
    #[error("{}: {reason}; what Python says of it stands above", path.display())]
    Silent {
        /// The file.
        path: PathBuf,
        /// What came in the place of algorithms.
        reason: String,
    },
}

/// What a child says of an algorithm.
#[derive(Clone, Debug, Deserialize)]
pub struct Entry {
    /// Name of the algorithm.
    pub name: String,
    /// One line.
    pub summary: String,
    /// Names of the fields of a measurement that it cannot do without.
    pub needs: Vec<String>,
    /// How often it hears of measurements.
    pub every: String,
    /// Digest of its text, in hex.
    pub sources: String,
}

#[derive(Deserialize)]
struct Hello {
    algorithms: Vec<Entry>,
}

/// A child that decides.
pub struct Live {
    /// The algorithms that it has.
    pub entries: Vec<Entry>,
    link: Arc<Link>,
}

impl Live {
    /// Starts a child that runs `file`, and waits until it has said which algorithms are in there. The child ends when
    /// this process does.
    ///
    /// # Errors
    /// The file is not there, the child cannot be started, or it does not say within 30 s what it has.
    #[allow(clippy::zombie_processes, reason = "the child lives as long as this process")]
    pub fn start(file: &Path) -> Result<Self, LiveError> {
        let missing = |source| LiveError::File { path: file.into(), source };
        let path = file.canonicalize().map_err(missing)?;
        let (socket, theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None)?;
        let mut command = Command::new("python3");
        // From a folder that nobody else can put modules into.
        command.args(["-m", "forebay.live"]).arg(&path).current_dir("/").env_clear();
        command.envs(ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        // A group of its own: ctrl-C is for this program alone, and ends the child with it.
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).process_group(0);
        if geteuid().is_root() {
            let account = account()?;
            command.uid(account.uid.as_raw()).gid(account.gid.as_raw());
        }
        // SAFETY: the closure makes one system call, and touches nothing that another thread may hold.
        unsafe {
            command.pre_exec(|| nix::sys::prctl::set_no_new_privs().map_err(io::Error::from));
        }
        command.spawn()?;
        // The other end is the child's alone now, so that its end is seen here.
        drop(command);
        socket.set_read_timeout(Some(START))?;
        let mut datagram = vec![0; DATAGRAM_MAX];
        let silent = |reason: String| LiveError::Silent { path: path.clone(), reason };
        let length = match (&socket).read(&mut datagram) {
            Ok(0) => return Err(silent("the child has ended".into())),
            Ok(length) => length,
            Err(error) => return Err(silent(error.to_string())),
        };
        let hello: Hello = serde_json::from_slice(&datagram[..length])
            .map_err(|error| silent(error.to_string()))?;
        socket.set_nonblocking(true)?;
        Ok(Self { entries: hello.algorithms, link: Arc::new(Link::new(socket)) })
    }

    /// What makes instances of the algorithm called `name`, one a connection.
    pub fn maker(
        &self,
        name: &str,
    ) -> impl Fn() -> Box<dyn CongestionControl> + Send + Sync + use<> {
        let (link, name) = (self.link.clone(), name.to_string());
        move || -> Box<dyn CongestionControl> { Box::new(Remote::new(link.clone(), &name)) }
    }
}

fn account() -> Result<Account, LiveError> {
    for name in ACCOUNTS {
        if let Some(account) = Account::named(name)? {
            return Ok(account);
        }
    }
    Err(LiveError::NoAccount)
}
