//! The datagrams between the connections and their child.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde_json::Value;
use socket2::Socket;

/// Largest answer.
const ANSWER_MAX: usize = 4096;
/// Answers that are taken at a time: a child that says more than it is asked holds nobody up.
const ANSWERS_MAX: usize = 1024;

/// A window, a slow-start threshold (bytes) and a pacing rate (bit/s).
pub type Limits = [Option<f64>; 3];

/// What the child answers to a question.
#[derive(Deserialize)]
struct Answer {
    connection: u64,
    /// Number of the question.
    number: u64,
    /// New limits; those in force where there are none.
    limits: Option<Limits>,
    /// An exception was raised, and nothing more is answered for this connection.
    #[serde(default)]
    failed: bool,
}

/// What has been heard of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Heard {
    /// Number of the newest question that was answered.
    pub number: u64,
    /// The newest limits since somebody took them.
    pub limits: Option<Limits>,
    /// An exception was raised.
    pub has_failed: bool,
}

/// The end of the pair of sockets that is ours.
pub struct Link {
    socket: Socket,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    opened: u64,
    heard: BTreeMap<u64, Heard>,
}

impl Link {
    /// The end `socket`, which must not block.
    pub fn new(socket: Socket) -> Self {
        Self { socket, connections: Mutex::default() }
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that nothing has been heard of.
    pub fn open(&self) -> u64 {
        let mut connections = self.connections();
        connections.opened += 1;
        let number = connections.opened;
        connections.heard.insert(number, Heard::default());
        number
    }

    /// Nothing more is heard of `connection`.
    pub fn close(&self, connection: u64) {
        self.connections().heard.remove(&connection);
    }

    /// Sends `question`, which is lost where the child has left no room: what is not answered is late.
    pub fn ask(&self, question: &Value) {
        let _ = self.socket.send(question.to_string().as_bytes());
    }

    /// What has been heard of `connection` by now; its limits are told once.
    pub fn hear(&self, connection: u64) -> Heard {
        let mut connections = self.connections();
        let mut datagram = [0; ANSWER_MAX];
        for _ in 0..ANSWERS_MAX {
            let Ok(length @ 1..) = (&self.socket).read(&mut datagram) else { break };
            let Ok(answer) = serde_json::from_slice::<Answer>(&datagram[..length]) else {
                continue;
            };
            if let Some(heard) = connections.heard.get_mut(&answer.connection) {
                heard.number = answer.number;
                heard.limits = answer.limits.or(heard.limits);
                heard.has_failed |= answer.failed;
            }
        }
        let Some(heard) = connections.heard.get_mut(&connection) else { return Heard::default() };
        let told = *heard;
        heard.limits = None;
        told
    }
}
