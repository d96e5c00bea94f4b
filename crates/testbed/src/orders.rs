//! Protocol between a testbed and its programs, line by line:
//!
//! | stdout of the program | stdin of the program |
//! |---|---|
//! | `listening` (hosts only): every listening socket is open | `connect`: open the connections |
//! | `ready`: traffic may start | `start NS`: the run starts at `NS` on `CLOCK_MONOTONIC` |
//! | `drained` (hosts only): nothing is left to wait for | `finish` (hosts only): write the results |
//! | `attacked` (hostile only): all messages are sent | |
//! | `finished` (hosts only): the results are written | end of file: write the results and exit 0 |
//!
//! Stdin also ends if the testbed dies. Logs and errors go to stderr.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// Sends `line` to the testbed. If the testbed is gone, the end of stdin shows it.
pub fn tell(line: &str) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// An order of the testbed to a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Open the connections.
    Connect,
    /// The run starts at this time (ns on `CLOCK_MONOTONIC`).
    Start(u64),
    /// Write the results, but leave the sockets open.
    Finish,
}

impl Order {
    /// Parses one line without its line end; `None` if it is no order.
    pub fn parse(line: &str) -> Option<Self> {
        match line.split_once(' ') {
            None if line == "connect" => Some(Self::Connect),
            None if line == "finish" => Some(Self::Finish),
            Some(("start", time)) => time.parse().ok().map(Self::Start),
            _ => None,
        }
    }
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connect => f.write_str("connect"),
            Self::Finish => f.write_str("finish"),
            Self::Start(time) => write!(f, "start {time}"),
        }
    }
}

/// Longest order (bytes): `start` and 20 digits, with room to spare.
const ORDER_BYTES_MAX: usize = 256;

/// Orders from the testbed, read without blocking.
#[derive(Debug)]
pub struct Orders {
    source: File,
    heard: Vec<u8>,
}

/// Result of [`Orders::hear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing new.
    Nothing,
    /// An order; there may be more.
    Order(Order),
    /// The orders have ended, or a line was no order.
    End,
}

impl Orders {
    /// Reads orders from `source`, a pipe or socket, and makes it nonblocking.
    pub fn from(source: &impl AsFd) -> io::Result<Self> {
        let source: OwnedFd = source.as_fd().try_clone_to_owned()?;
        let flags = OFlag::from_bits_retain(fcntl(&source, FcntlArg::F_GETFL)?);
        fcntl(&source, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        Ok(Self { source: source.into(), heard: Vec::new() })
    }

    /// The next order that has arrived since the last call.
    pub fn hear(&mut self) -> Heard {
        let mut chunk = [0; ORDER_BYTES_MAX];
        match self.source.read(&mut chunk) {
            Ok(0) => return Heard::End,
            Ok(len) => self.heard.extend_from_slice(&chunk[..len]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Heard::End,
        }
        if self.heard.len() > ORDER_BYTES_MAX {
            tracing::warn!(target: "orders", "order without line end");
            return Heard::End;
        }
        let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') else {
            return Heard::Nothing;
        };
        let line: Vec<u8> = self.heard.drain(..=end).collect();
        let line = String::from_utf8_lossy(&line[..end]);
        match Order::parse(line.trim()) {
            Some(order) => Heard::Order(order),
            None => {
                tracing::warn!(target: "orders", %line, "unknown order");
                Heard::Nothing
            }
        }
    }
}

impl AsFd for Orders {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.source.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_round_trip_and_other_lines_fail() {
        for order in [Order::Connect, Order::Finish, Order::Start(0), Order::Start(u64::MAX)] {
            assert_eq!(Order::parse(&order.to_string()), Some(order));
        }
        for line in ["", "start", "start -1", "start 1 2", "connect now", "stop"] {
            assert_eq!(Order::parse(line), None, "{line:?}");
        }
    }
}
