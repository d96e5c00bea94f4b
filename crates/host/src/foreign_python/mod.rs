//! Algorithms in Python, live: a child without privileges decides, and an algorithm of this program takes over if the
//! child is late.
//!
//! ```text
//! connection, bundle ──► Remote ── questions ──► python3 -m forebay.live FILE ◄── keeper, when it ends
//!                          ├── answers ◄─────────┘
//!                          └─ NewReno or Copa, with the same input; its limits hold while answers are late
//! ```
//! Questions and answers are JSON datagrams on a pair of sockets. A live flow never waits for an answer, but uses it
//! once it has arrived. The child is trusted no more than a message from the network: its answers are checked and
//! clamped. Its standard error is copied to the log line by line (`output`). A simulation does wait (`in_step`), with
//! simulated time stopped.

mod in_step;
pub mod keeper;
mod link;
pub mod named;
mod output;
mod questions;
mod remote;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_core::cc::foreign::{Described, Setting, Values};
use forebay_core::cc::{Algorithm, CongestionControl};
use forebay_core::spec::SpecError;
use serde::Deserialize;
use socket2::{Domain, Socket, Type};

use self::in_step::InStep;
use self::link::{Channel, DATAGRAM_MAX, Said};
use self::remote::Remote;
use crate::log::foreign::{plain, quoted};

/// Time for a child to list its algorithms; it may import large libraries first.
const START: Duration = Duration::from_secs(30);

/// Why no child can decide.
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
    #[error("no account for the child in Python: allowed is one of {}", keeper::ACCOUNTS.join(", "))]
    NoAccount,
    /// The child did not list its algorithms.
    #[error("{}: {reason}", path.display())]
    Silent {
        /// The file.
        path: PathBuf,
        /// The datagram or error that came instead, such as a traceback of Python.
        reason: String,
    },
}

/// Payload of a panic that ends a simulation because its algorithm in Python has no answer: the file, and Python's
/// traceback. The panic hook prints nothing for it.
#[derive(Debug)]
pub struct Raised(pub String);

/// A child's description of an algorithm.
#[derive(Clone, Debug, Deserialize)]
pub struct Entry {
    /// Name of the algorithm.
    pub name: String,
    /// Summary in one line.
    pub summary: String,
    /// Names of the fields of a measurement that it requires.
    pub needs: Vec<String>,
    /// How often it gets measurements.
    pub every: String,
    /// Longest time in seconds that a simulation waits for an answer; 0: no limit.
    #[serde(default)]
    pub limit_s: f64,
    /// Parameters of the algorithm.
    #[serde(default)]
    pub params: Vec<Setting>,
    /// Digest of all sources that affect decisions, in hex.
    pub sources: String,
}

/// Children that run a file one after the other.
pub struct Live {
    /// The algorithms of the first child.
    pub entries: Vec<Entry>,
    link: Arc<Channel>,
}

impl Live {
    /// Starts a child that runs `file`, and waits until it has listed its algorithms. If it ends before this process
    /// does, another child follows.
    ///
    /// # Errors
    /// If the file does not exist, the child cannot be started, or it lists no algorithms within 30 s.
    pub fn start(file: &Path) -> Result<Self, LiveError> {
        let missing = |source| LiveError::File { path: file.into(), source };
        let path = file.canonicalize().map_err(missing)?;
        let (socket, theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None)?;
        keeper::start(&path, theirs)?;
        socket.set_read_timeout(Some(START))?;
        let entries = first_word(&socket)
            .map_err(|reason| LiveError::Silent { path: path.clone(), reason })?;
        Ok(Self { entries, link: Arc::new(Channel::new(socket, &path)) })
    }

    /// Makes an entry for a registry of a simulation, which stops simulated time until the algorithm of `entry` has
    /// answered. An exception in Python, or a callback that exceeds the limit of its entry, causes a panic with
    /// [`Raised`].
    ///
    /// # Errors
    ///
    /// If the entry names an unknown field or an invalid time.
    pub fn in_step(&self, entry: &Entry) -> Result<Algorithm, SpecError> {
        let (link, name) = (self.link.clone(), entry.name.clone());
        let limit = Duration::try_from_secs_f64(entry.limit_s).map_err(|_| {
            let allowed = "a time in seconds, or 0 for none";
            SpecError::new("limit_s", &entry.limit_s.to_string(), allowed)
        })?;
        let limit = (!limit.is_zero()).then_some(limit);
        described(entry).algorithm(move |values: Values| -> Box<dyn CongestionControl> {
            Box::new(InStep::new(link.clone(), &name, &values, limit))
        })
    }

    /// Makes an entry for a registry, with one instance of the algorithm of `entry` per connection. `fallback` decides
    /// while the child does not.
    ///
    /// # Errors
    ///
    /// If the entry names an unknown field or an invalid time.
    pub fn algorithm(&self, entry: &Entry, fallback: Algorithm) -> Result<Algorithm, SpecError> {
        let (link, name) = (self.link.clone(), entry.name.clone());
        described(entry).algorithm(move |values: Values| -> Box<dyn CongestionControl> {
            Box::new(Remote::new(link.clone(), (&name, &values), &name, &fallback))
        })
    }
}

fn described(entry: &Entry) -> Described {
    let Entry { name, summary, needs, every, params, .. } = entry.clone();
    Described { name, summary, needs, every, params }
}

/// The algorithms that a child lists; the error has its message otherwise.
fn first_word(mut socket: &Socket) -> Result<Vec<Entry>, String> {
    let mut datagram = vec![0; DATAGRAM_MAX];
    let length = match socket.read(&mut datagram) {
        Ok(0) => return Err("the child has ended".into()),
        Ok(length) => length,
        Err(error) => return Err(format!("no message from the child within {START:?}: {error}")),
    };
    match serde_json::from_slice(&datagram[..length]) {
        Ok(Said::Hello { algorithms }) => Ok(algorithms),
        Ok(Said::Failed { error }) => Err(format!("cannot be run:\n{}", quoted(&error))),
        Ok(Said::Ended { ended }) => Err(format!("the child has ended: {}", plain(&ended))),
        Ok(Said::Answer(_)) => Err("the child's first message is not a list of algorithms".into()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unexpected_greeting_explains_why_no_child_decides() {
        let entry = r#"{"name": "a", "summary": "", "needs": [], "every": "ack", "sources": "0"}"#;
        for (said, expected) in [
            (format!(r#"{{"algorithms": [{entry}]}}"#), Ok("a")),
            (
                r#"{"error": "Traceback\nSyntaxError\u001b\n"}"#.into(),
                Err("cannot be run:\n  | Traceback\n  | SyntaxError\\u{1b}"),
            ),
            (
                r#"{"ended": "exit status: 1\u001b"}"#.into(),
                Err("the child has ended: exit status: 1\\u{1b}"),
            ),
            (
                r#"{"connection": 1, "number": 1}"#.into(),
                Err("the child's first message is not a list of algorithms"),
            ),
        ] {
            let (ours, theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
            theirs.send(said.as_bytes()).unwrap();
            let word = first_word(&ours);
            let word = word.as_ref().map(|entries| entries[0].name.as_str());
            assert_eq!(word.map_err(String::as_str), expected);
        }
        let (ours, theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        drop(theirs);
        assert!(first_word(&ours).is_err_and(|reason| reason == "the child has ended"));
    }
}
