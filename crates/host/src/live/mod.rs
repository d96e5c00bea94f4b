//! Algorithms in Python, live: a child without privileges decides, and a law of this program where the child is late.
//!
//! ```text
//! connection, bundle ──► Remote ── questions ──► python3 -m forebay.live FILE ◄── keeper, when it ends
//!                          ├── answers ◄─────────┘
//!                          └─ NewReno or Copa, told the same, whose limits hold while answers are late
//! ```
//! Questions and answers are datagrams in JSON on a pair of sockets. Nobody waits for an answer: it counts when it is there.
//! What the child says is bounded and believed no more than any message of a network, and what it writes on standard error
//! comes into the log line by line (`output`). A simulation waits (`in_step`), since its time stands still meanwhile.

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

use forebay_core::cc::guest::{Described, Setting, Values};
use forebay_core::cc::{Algorithm, CongestionControl};
use forebay_core::spec::SpecError;
use serde::Deserialize;
use socket2::{Domain, Socket, Type};

use self::in_step::InStep;
use self::link::{DATAGRAM_MAX, Link, Said};
use self::remote::Remote;
use crate::log::foreign::{plain, quoted};

/// How long a child may take to say what it has: it may import large libraries.
const START: Duration = Duration::from_secs(30);

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
    #[error("no account for the child in Python: allowed is one of {}", keeper::ACCOUNTS.join(", "))]
    NoAccount,
    /// The child did not say which algorithms it has.
    #[error("{}: {reason}", path.display())]
    Silent {
        /// The file.
        path: PathBuf,
        /// What came in the place of algorithms, such as what Python says of an exception.
        reason: String,
    },
}

/// What a panic carries that ends a simulation because its algorithm in Python has no answer: which file, and what Python
/// says of an exception. It comes without a message of the panic's own.
#[derive(Debug)]
pub struct Raised(pub String);

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
    /// Longest time in seconds that a simulation waits for an answer; 0: any.
    #[serde(default)]
    pub limit_s: f64,
    /// Parameters of the algorithm.
    #[serde(default)]
    pub params: Vec<Setting>,
    /// Digest of all that decides, in hex.
    pub sources: String,
}

/// Children that decide, one after the other.
pub struct Live {
    /// The algorithms that the first has.
    pub entries: Vec<Entry>,
    link: Arc<Link>,
}

impl Live {
    /// Starts a child that runs `file`, and waits until it has said which algorithms are in there. Another follows
    /// where it ends before this process does.
    ///
    /// # Errors
    /// The file is not there, the child cannot be started, or it does not say within 30 s what it has.
    pub fn start(file: &Path) -> Result<Self, LiveError> {
        let missing = |source| LiveError::File { path: file.into(), source };
        let path = file.canonicalize().map_err(missing)?;
        let (socket, theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None)?;
        keeper::start(&path, theirs)?;
        socket.set_read_timeout(Some(START))?;
        let entries = first_word(&socket)
            .map_err(|reason| LiveError::Silent { path: path.clone(), reason })?;
        Ok(Self { entries, link: Arc::new(Link::new(socket, &path)) })
    }

    /// An entry for a registry of a simulation, whose time stands still until what `entry` says has answered. An exception
    /// in Python, and a callback that takes longer than its entry allows, is a panic with [`Raised`].
    ///
    /// # Errors
    ///
    /// The entry names a field or a time that there is not.
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

    /// An entry for a registry, which makes an instance a connection of what `entry` says; `fallback` decides where the
    /// child does not.
    ///
    /// # Errors
    ///
    /// The entry names a field or a time that there is not.
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

/// The algorithms that a child says it has, or what came in their place.
fn first_word(mut socket: &Socket) -> Result<Vec<Entry>, String> {
    let mut datagram = vec![0; DATAGRAM_MAX];
    let length = match socket.read(&mut datagram) {
        Ok(0) => return Err("the child has ended".into()),
        Ok(length) => length,
        Err(error) => return Err(format!("no word from the child within {START:?}: {error}")),
    };
    match serde_json::from_slice(&datagram[..length]) {
        Ok(Said::Hello { algorithms }) => Ok(algorithms),
        Ok(Said::Failed { error }) => Err(format!("cannot be run:\n{}", quoted(&error))),
        Ok(Said::Ended { ended }) => Err(format!("the child has ended: {}", plain(&ended))),
        Ok(Said::Answer(_)) => Err("the child answers what it was not asked".into()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_in_the_place_of_algorithms_is_why_no_child_decides() {
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
                Err("the child answers what it was not asked"),
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
