//! The datagrams between a program's connections or bundles and their child.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv};
use serde::Deserialize;
use serde_json::{Value, json};
use socket2::Socket;

use super::Entry;
use crate::clock;
use crate::log::Allowance;
use crate::log::foreign::{plain, quoted};

/// Largest datagram of a child in bytes: an answer, or the traceback of an exception.
pub const DATAGRAM_MAX: usize = 65_536;
/// Connections that one datagram can report as ended: 21 kB at most.
const ENDS_MAX: usize = 1000;
/// Datagrams taken in one call, at most as many as a connection may wait for. A child that sends more than its answers
/// delays no caller.
const DATAGRAMS_MAX: usize = 64;

/// A window, a slow-start threshold (bytes) and a pacing rate (bit/s).
pub type Limits = [Option<f64>; 3];

/// A message from the other end: from a child or from its keeper.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Said {
    /// An answer.
    Answer(ChildAnswer),
    /// A child has started.
    Hello {
        /// The algorithms of the file.
        algorithms: Vec<Entry>,
    },
    /// The child could not run the file.
    Failed {
        /// Error text of Python.
        error: String,
    },
    /// A child has ended, and another follows.
    Ended {
        /// Exit status, and when the next child starts.
        ended: String,
    },
}

/// A child's answer to a question.
#[derive(Deserialize)]
pub struct ChildAnswer {
    connection: u64,
    /// Number of the question.
    number: u64,
    /// New limits; `None`: no change.
    limits: Option<Limits>,
    /// Traceback of an exception, after which the child answers nothing more for this connection.
    failed: Option<String>,
}

/// All answers of the child for a connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    /// Number of the newest question that was answered.
    pub number: u64,
    /// The newest limits since the last look.
    pub limits: Option<Limits>,
    /// Traceback of an exception since the last look.
    pub failed: Option<String>,
    /// Number of children that have followed the first one.
    pub generation: u64,
    /// The child has ended, and the next has not begun.
    pub is_gone: bool,
}

/// Our end of the pair of sockets.
pub struct Channel {
    socket: Socket,
    /// The file that the children run.
    file: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    opened: u64,
    connections: BTreeMap<u64, Heard>,
    /// Connections that have ended but whose end the child does not know yet, for want of room.
    ended: Vec<u64>,
    generation: u64,
    is_gone: bool,
    /// Limit on log lines about this file.
    allowance: Allowance,
    datagram: Vec<u8>,
}

impl Channel {
    /// Makes the channel of `socket`, whose other end is a child that runs `file`.
    pub fn new(socket: Socket, file: &Path) -> Self {
        let state = State { datagram: vec![0; DATAGRAM_MAX], ..State::default() };
        Self { socket, file: file.into(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file that the children run.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Whether another line about this file may be logged.
    pub fn may_tell(&self) -> bool {
        self.state().allowance.takes(clock::now())
    }

    /// Opens a connection, for which there are no answers yet.
    pub fn open(&self) -> u64 {
        let mut state = self.state();
        state.opened += 1;
        let number = state.opened;
        state.connections.insert(number, Heard::default());
        number
    }

    /// Closes `connection`. A child that has begun it is notified as soon as there is room.
    pub fn close(&self, connection: u64, has_begun: bool) {
        let mut state = self.state();
        state.connections.remove(&connection);
        if !has_begun {
            return;
        }
        state.ended.push(connection);
        // If other ends wait there was no room; the next question notifies the child of all.
        if state.ended.len() == 1 {
            self.tell_ends(&mut state);
        }
    }

    fn tell_ends(&self, state: &mut State) {
        while !state.ended.is_empty() {
            let first = state.ended.len().min(ENDS_MAX);
            if !self.ask(&json!({ "call": "end", "connections": state.ended[..first] })) {
                return;
            }
            state.ended.drain(..first);
        }
    }

    /// Sends `question`. False: it is lost, because the child has left no room. Its answer will then count as late.
    pub fn ask(&self, question: &Value) -> bool {
        let sent = self.socket.send_with_flags(question.to_string().as_bytes(), libc::MSG_DONTWAIT);
        sent.is_ok()
    }

    /// Sends `question`, and waits for room. False: the other end is closed.
    pub fn ask_for_sure(&self, question: &Value) -> bool {
        self.socket.send(question.to_string().as_bytes()).is_ok()
    }

    /// All answers for `connection` so far. Limits and exceptions are returned once.
    pub fn hear(&self, connection: u64) -> Heard {
        let mut state = self.state();
        for _ in 0..DATAGRAMS_MAX {
            if !state.receive(self, MsgFlags::MSG_DONTWAIT) {
                break;
            }
        }
        self.tell_ends(&mut state);
        state.heard(connection)
    }

    /// Waits for the answer to question `number`, and returns all answers for `connection`. Returns early if no answer
    /// can come any more, or after `limit`.
    pub fn wait(&self, connection: u64, number: u64, limit: Option<Duration>) -> Heard {
        self.tell_ends(&mut self.state());
        let until = limit.map(|limit| Instant::now() + limit);
        loop {
            let mut state = self.state();
            let is_answered =
                state.connections.get(&connection).is_none_or(|heard| heard.number >= number);
            let is_over = is_answered || state.is_gone || !self.has_more(until);
            if is_over || !state.receive(self, MsgFlags::empty()) {
                return state.heard(connection);
            }
        }
    }

    /// Waits `until` a datagram has come, or the other end is closed; false if neither happens.
    fn has_more(&self, until: Option<Instant>) -> bool {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            // Whole milliseconds, rounded up.
            PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut fds, timeout) {
                Err(Errno::EINTR) => {}
                ready => return ready.is_ok_and(|ready| ready > 0),
            }
        }
    }
}

impl State {
    /// Takes a datagram; false: none has come.
    fn receive(&mut self, link: &Channel, flags: MsgFlags) -> bool {
        let received = recv(link.socket.as_raw_fd(), &mut self.datagram, flags);
        let Ok(length @ 1..) = received else { return false };
        if let Ok(said) = serde_json::from_slice::<Said>(&self.datagram[..length]) {
            self.take(said, &link.file);
        }
        true
    }

    fn take(&mut self, said: Said, file: &Path) {
        let file = file.display();
        match said {
            Said::Answer(ChildAnswer { connection, number, limits, failed }) => {
                let Some(heard) = self.connections.get_mut(&connection) else { return };
                heard.number = number;
                heard.limits = limits.or(heard.limits);
                heard.failed = failed.or(heard.failed.take());
            }
            Said::Hello { .. } => {
                self.generation += 1;
                self.is_gone = false;
                // Earlier limits come from instances of the previous child.
                self.connections.values_mut().for_each(|heard| heard.limits = None);
                if self.allowance.takes(clock::now()) {
                    tracing::info!(target: "python", "{file} runs again, and decides");
                }
            }
            Said::Failed { error } => {
                if self.allowance.takes(clock::now()) {
                    let error = quoted(&error);
                    tracing::warn!(target: "python", "{file} cannot be run:\n{error}");
                }
            }
            Said::Ended { ended } => {
                self.is_gone = true;
                if self.allowance.takes(clock::now()) {
                    let ended = plain(ended.lines().next().unwrap_or_default());
                    tracing::warn!(
                        target: "python",
                        "{file} has ended, and fallbacks decide: {ended}"
                    );
                }
            }
        }
    }

    fn heard(&mut self, connection: u64) -> Heard {
        let (generation, is_gone) = (self.generation, self.is_gone);
        let Some(heard) = self.connections.get_mut(&connection) else {
            return Heard { generation, is_gone, ..Heard::default() };
        };
        let (number, limits, failed) = (heard.number, heard.limits.take(), heard.failed.take());
        Heard { number, limits, failed, generation, is_gone }
    }
}
