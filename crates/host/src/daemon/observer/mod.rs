//! Checks that the devices of a running box still meet its conditions. A separate process looks, because the
//! kernel answers some of the queries only with `CAP_NET_ADMIN`, which the box has dropped.
//!
//! ```text
//!  kernel ── rtnetlink, nftables ──► `forebay observe` ── a line for each change, ──► the box
//!                                     and each second      and an empty one a second
//! ```
//! The process looks after each message of the kernel, and once a second, since the kernel does not report
//! changes of tcx and sysctls. It ends with the box, which closes its standard input. If the process ends,
//! the box ends, too. If it is silent for `SILENT_AFTER`, a sendbox hands the traffic back.
//!
//! A process that it starts looks up the names of other boxes ([`names`]). The box writes these names on
//! standard input, one per line. On a machine that routes, the box also writes its destinations there, as
//! many per line as a pipe takes atomically. A line with `=` begins a list, and a line with `+` continues it.

pub mod names;
mod watch;

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use forebay_core::units::Timestamp;
use ipnet::IpNet;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

use self::names::Names;
use super::conditions::{Devices, FailedCondition};
use super::config::Peer;
use crate::bridge::Vlans;
use crate::clock;
use crate::service::privileges::Account;

pub use watch::run;

/// Longest time between two lines, unless the observer was stopped or cannot run.
const SILENT_AFTER: Duration = Duration::from_secs(10);
/// Longest wait for the first line: the time to start a program on a loaded machine.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// Longest line (bytes): some thousand addresses.
const LINE_MAX: usize = 1 << 20;

/// One observation of the devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Conditions that fail.
    pub failed_conditions: Vec<FailedCondition>,
    /// Index of the port towards the site's hosts, if there is such a device. A renamed port keeps it until
    /// another device takes its name.
    pub lan: Option<u32>,
    /// Receive queues of the port towards the site's hosts, if there is such a device.
    pub lan_queues: Option<u32>,
    /// As [`Observation::lan`], of the port towards the Internet.
    pub wan: Option<u32>,
    /// MTU of the port towards the Internet (bytes), if there is such a device.
    pub mtu: Option<u32>,
    /// Addresses of this machine.
    pub addresses: BTreeSet<IpAddr>,
    /// Ethernet addresses of the machine, and addresses that its bridge knows at ports other than the box's.
    pub macs: BTreeSet<[u8; 6]>,
    /// Translation of tags by the bridge from one port to the other; `None`: the bridge changes no tag.
    pub vlans: Option<Vlans>,
    /// Look-up results for the names of other boxes.
    pub names: Names,
    /// Notes for the operator about the machine's routes ([`Devices::routing`]).
    pub routing: Vec<String>,
}

impl Observation {
    /// Drops names that no peer has any more: their addresses may belong to hosts by now.
    pub fn keep_names<'a>(&mut self, peers: impl Iterator<Item = &'a Peer>) {
        let wanted: BTreeSet<&str> = peers.filter_map(Peer::name).collect();
        self.names.retain(|name, _| wanted.contains(name.as_str()));
    }
}

/// The box's end of its observer process.
pub struct Observer {
    /// Holds the standard input of the process, which ends when it closes.
    child: Child,
    lines: ChildStdout,
    /// The part of an incomplete line read so far.
    part: Vec<u8>,
    heard_at: Timestamp,
    /// Lines with destinations that the observer has not taken yet.
    untold: VecDeque<String>,
}

/// Destinations in one line: with the longest ones, as many as a pipe takes atomically (PIPE_BUF).
const DESTINATIONS_A_LINE: usize = 90;
/// First character of a line whose destinations replace the list, or continue it.
const DESTINATIONS: [char; 2] = ['=', '+'];

/// Whether a line from the box holds destinations, not a name.
fn is_of_destinations(line: &str) -> bool {
    line.starts_with(DESTINATIONS)
}

/// Adds the destinations in a line from the box to the list, or replaces the list.
fn take_destinations(to: &mut Vec<IpNet>, line: &str) {
    if line.starts_with(DESTINATIONS[0]) {
        to.clear();
    }
    let words = line.trim_start_matches(DESTINATIONS).split_whitespace();
    to.extend(words.filter_map(|word| word.parse::<IpNet>().ok()));
}

/// The lines that transmit destinations.
fn lines_of(to: &[IpNet]) -> VecDeque<String> {
    let line = |(place, some): (usize, &[IpNet])| {
        let some: Vec<String> = some.iter().map(ToString::to_string).collect();
        format!("{}{}\n", DESTINATIONS[usize::from(place > 0)], some.join(" "))
    };
    let all: &mut dyn Iterator<Item = &[IpNet]> = match to {
        [] => &mut std::iter::once(&[][..]),
        _ => &mut to.chunks(DESTINATIONS_A_LINE),
    };
    all.enumerate().map(line).collect()
}

impl Observer {
    /// Starts the observer with the privileges of the caller; returns it and its first observation. `account`
    /// looks up names, or else the caller's account.
    ///
    /// # Errors
    ///
    /// The process does not start, or sends nothing.
    pub fn start(devices: &Devices, account: Option<&Account>) -> io::Result<(Self, Observation)> {
        // The same program, even if its file was replaced meanwhile.
        let mut program = Command::new("/proc/self/exe");
        // The list of destinations may be longer than an argument of a program.
        let told = Devices { to: Vec::new(), ..devices.clone() };
        program.arg("observe").arg(serde_json::to_string(&told)?).args(arguments(account));
        let (mut observer, first) = Self::start_as(program)?;
        if !devices.to.is_empty() {
            observer.watch_routes(&devices.to);
        }
        Ok((observer, first))
    }

    /// As [`Observer::start`], with a program that writes the lines that `forebay observe` would write.
    pub(super) fn start_as(mut program: Command) -> io::Result<(Self, Observation)> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("watching the devices: {error}"))
        };
        let piped = program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().map_err(named)?;
        let lines = child.stdout.take().expect("piped");
        fcntl(&lines, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let asked = child.stdin.as_ref().expect("piped");
        fcntl(asked, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let (heard_at, untold) = (clock::now(), VecDeque::new());
        let mut observer = Self { child, lines, part: Vec::new(), heard_at, untold };
        let first = observer.await_first().map_err(named)?;
        Ok((observer, first))
    }

    fn await_first(&mut self) -> io::Result<Observation> {
        let deadline = clock::now() + START_PATIENCE;
        loop {
            if let Some(first) = self.latest()? {
                return Ok(first);
            }
            let left = deadline.saturating_since(clock::now());
            let timeout = PollTimeout::try_from(left).map_err(io::Error::other)?;
            if poll(&mut [PollFd::new(self.as_fd(), PollFlags::POLLIN)], timeout)? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// The newest observation since the last call, without waiting.
    ///
    /// # Errors
    ///
    /// The observer has ended.
    pub fn latest(&mut self) -> io::Result<Option<Observation>> {
        self.tell();
        let mut newest = None;
        let mut bytes = [0; 1 << 12];
        loop {
            match self.lines.read(&mut bytes) {
                Ok(0) => return Err(io::Error::other("the observer of the devices has ended")),
                Ok(len) => {
                    self.heard_at = clock::now();
                    self.part.extend_from_slice(&bytes[..len]);
                    newest = self.take_lines()?.or(newest);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(newest),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The last complete line that is not an empty sign of life.
    fn take_lines(&mut self) -> io::Result<Option<Observation>> {
        let Some(end) = self.part.iter().rposition(|byte| *byte == b'\n') else {
            let is_endless = self.part.len() > LINE_MAX;
            return if is_endless { Err(io::ErrorKind::InvalidData.into()) } else { Ok(None) };
        };
        let rest = self.part.split_off(end + 1);
        let lines = std::mem::replace(&mut self.part, rest);
        let mut lines = lines.split(|byte| *byte == b'\n');
        let newest = lines.rfind(|line| !line.is_empty());
        Ok(newest.map(serde_json::from_slice).transpose()?)
    }

    /// Watches exactly the routes to these destinations from now on.
    pub fn watch_routes(&mut self, to: &[IpNet]) {
        self.untold = lines_of(to);
        self.tell();
    }

    /// Sends the remaining lines with destinations, as far as the observer takes them now.
    fn tell(&mut self) {
        let Some(asked) = self.child.stdin.as_mut() else { return };
        while let Some(line) = self.untold.front()
            && asked.write_all(line.as_bytes()).is_ok()
        {
            self.untold.pop_front();
        }
    }

    /// Has these names looked up: the results come with a later observation.
    pub fn look_up(&mut self, names: &BTreeSet<String>) {
        let Some(asked) = self.child.stdin.as_mut() else { return };
        for name in names {
            // A whole line, or nothing if the pipe is full: the box then asks for the name again.
            let _ = asked.write_all(format!("{name}\n").as_bytes());
        }
    }

    /// Whether the observer has been silent until it must be stopped or hang.
    pub fn is_silent(&self, now: Timestamp) -> bool {
        now.saturating_since(self.heard_at) >= SILENT_AFTER
    }
}

/// The arguments that pass an account to a process.
fn arguments(account: Option<&Account>) -> Vec<String> {
    account.map_or_else(Vec::new, |Account { uid, gid, .. }| {
        vec![format!("--uid={uid}"), format!("--gid={gid}")]
    })
}

/// Readable when there may be new lines.
impl AsFd for Observer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lines.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_told_in_whole_lines() {
        let many: Vec<IpNet> =
            (0..16_384).map(|at| format!("2001:db8:{at:x}::/48").parse().unwrap()).collect();
        let lines = lines_of(&many);
        assert!(lines.iter().all(|line| line.len() <= 4096 && is_of_destinations(line)));
        let mut to = vec!["10.9.0.0/16".parse().unwrap()];
        lines.iter().for_each(|line| take_destinations(&mut to, line.trim_end()));
        assert_eq!(to, many);
        lines_of(&[]).iter().for_each(|line| take_destinations(&mut to, line.trim_end()));
        assert_eq!(to, []);
        assert!(!is_of_destinations("b.example"));
    }
}
