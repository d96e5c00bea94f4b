//! The datagrams between connections and bundles of a program and their child.

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

/// Largest datagram of a child: an answer, or what Python says of an exception.
pub const DATAGRAM_MAX: usize = 65_536;
/// Connections of which one datagram says that they have ended: 21 kB at the most.
const ENDS_MAX: usize = 1000;
/// Datagrams that are taken at a time, as many as a connection may wait for: a child that says more than it is asked holds
/// nobody up.
const DATAGRAMS_MAX: usize = 64;

/// A window, a slow-start threshold (bytes) and a pacing rate (bit/s).
pub type Limits = [Option<f64>; 3];

/// What is said at the other end, by a child or by who keeps one running.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Said {
    /// An answer.
    Answer(Answer),
    /// A child begins.
    Hello {
        /// The algorithms that it has.
        algorithms: Vec<Entry>,
    },
    /// The file could not be run.
    Failed {
        /// What Python says of it.
        error: String,
    },
    /// A child has ended, and another follows.
    Ended {
        /// How, and when.
        ended: String,
    },
}

/// What a child answers to a question.
#[derive(Deserialize)]
pub struct Answer {
    connection: u64,
    /// Number of the question.
    number: u64,
    /// New limits; those in force where there are none.
    limits: Option<Limits>,
    /// What Python says of an exception, after which nothing more is answered for this connection.
    failed: Option<String>,
}

/// What has been heard for a connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    /// Number of the newest question that was answered.
    pub number: u64,
    /// The newest limits since somebody took them.
    pub limits: Option<Limits>,
    /// What Python says of an exception, since somebody took it.
    pub failed: Option<String>,
    /// So many children have followed the first one.
    pub generation: u64,
    /// The child has ended, and the next has not begun.
    pub is_gone: bool,
}

/// The end of the pair of sockets that is ours.
pub struct Link {
    socket: Socket,
    /// The file that the children run.
    file: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    opened: u64,
    connections: BTreeMap<u64, Heard>,
    /// Connections that have ended and that a child may still have: no more than it could be told of.
    ended: Vec<u64>,
    generation: u64,
    is_gone: bool,
    /// What the log may tell.
    allowance: Allowance,
    datagram: Vec<u8>,
}

impl Link {
    /// The end `socket` of a child that runs `file`.
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

    /// Whether the log may tell something of this file.
    pub fn may_tell(&self) -> bool {
        self.state().allowance.takes(clock::now())
    }

    /// A connection that nothing has been heard for.
    pub fn open(&self) -> u64 {
        let mut state = self.state();
        state.opened += 1;
        let number = state.opened;
        state.connections.insert(number, Heard::default());
        number
    }

    /// Nothing more is heard for `connection`, and a child that has begun it is told so as soon as there is room.
    pub fn close(&self, connection: u64, has_begun: bool) {
        let mut state = self.state();
        state.connections.remove(&connection);
        if !has_begun {
            return;
        }
        state.ended.push(connection);
        // Where others wait there was no room, and they are told with the next question.
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

    /// Sends `question`. False: it is lost, since the child has left no room; what is not answered is late.
    pub fn ask(&self, question: &Value) -> bool {
        let sent = self.socket.send_with_flags(question.to_string().as_bytes(), libc::MSG_DONTWAIT);
        sent.is_ok()
    }

    /// Sends `question`, for which there is room before long. False: the other end is closed.
    pub fn ask_for_sure(&self, question: &Value) -> bool {
        self.socket.send(question.to_string().as_bytes()).is_ok()
    }

    /// What has been heard for `connection` by now; limits and exceptions are told once.
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

    /// What has been heard for `connection` once the question of this number has its answer, it is clear that there
    /// will be none, or `limit` is over.
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

    /// Waits `until` something has come, or the other end is closed; false where neither happens.
    fn has_more(&self, until: Option<Instant>) -> bool {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            // Whole milliseconds, and none too few.
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
    /// Takes a datagram; false: there is none.
    fn receive(&mut self, link: &Link, flags: MsgFlags) -> bool {
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
            Said::Answer(Answer { connection, number, limits, failed }) => {
                let Some(heard) = self.connections.get_mut(&connection) else { return };
                heard.number = number;
                heard.limits = limits.or(heard.limits);
                heard.failed = failed.or(heard.failed.take());
            }
            Said::Hello { .. } => {
                self.generation += 1;
                self.is_gone = false;
                // What the one before has said is of instances that are no more.
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
