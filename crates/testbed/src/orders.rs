//! How a testbed and the programs that it starts talk, by lines:
//!
//! | stdout of the program | stdin of the program |
//! |---|---|
//! | `listening` (hosts only): every listening socket is open | `connect`: open the connections |
//! | `ready`: traffic may start | `start NS`: the run starts at `NS` on `CLOCK_MONOTONIC` |
//! | `drained` (hosts only): nothing is left to wait for | `finish` (hosts only): write the results |
//! | `attacked` (hostile only): all messages are sent | |
//! | `finished` (hosts only): they are written | end of file: write the results and exit 0 |
//!
//! The end of stdin also covers a testbed that died. Logs and errors go to stderr.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// Tells the testbed `line`. A testbed that is gone is noticed at the end of stdin instead.
pub fn tell(line: &str) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// What the testbed told a role.
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
    /// Parses one line without its end; `None` if it is no order.
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

/// Longest order: `start` and 20 digits, with room to spare.
const ORDER_BYTES_MAX: usize = 256;

/// What comes from the testbed, without waiting for it.
#[derive(Debug)]
pub struct Orders {
    source: File,
    heard: Vec<u8>,
}

/// What [`Orders`] have for who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing new.
    Nothing,
    /// An order; there may be more.
    Order(Order),
    /// Their end, or nothing that is an order.
    End,
}

impl Orders {
    /// Orders from `source`, a pipe or socket, which no longer blocks from now on.
    pub fn from(source: &impl AsFd) -> io::Result<Self> {
        let source: OwnedFd = source.as_fd().try_clone_to_owned()?;
        let flags = OFlag::from_bits_retain(fcntl(&source, FcntlArg::F_GETFL)?);
        fcntl(&source, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        Ok(Self { source: source.into(), heard: Vec::new() })
    }

    /// What was told since the last call; one order at a time.
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
            tracing::warn!(target: "orders", "an order without end");
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
                tracing::warn!(target: "orders", %line, "not an order");
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
    fn orders_survive_a_round_trip_and_other_lines_are_none() {
        for order in [Order::Connect, Order::Finish, Order::Start(0), Order::Start(u64::MAX)] {
            assert_eq!(Order::parse(&order.to_string()), Some(order));
        }
        for line in ["", "start", "start -1", "start 1 2", "connect now", "stop"] {
            assert_eq!(Order::parse(line), None, "{line:?}");
        }
    }
}
