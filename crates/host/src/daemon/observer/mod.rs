//! Whether the devices of a running box are still as they must be: a process of its own looks, for the
//! kernel answers some of the questions only with `CAP_NET_ADMIN`, which the box has given up.
//!
//! ```text
//!  kernel ── rtnetlink, nftables ──► `forebay observe` ── a line for each change, ──► the box
//!                                     and each second      and an empty one a second
//! ```
//! The process looks at each message of the kernel, and once a second, since nobody tells of tcx and sysctls. It
//! ends with the box, whose end of its standard input closes. Where the process ends the box ends too; where it
//! is silent for `SILENT_AFTER` a sendbox hands the traffic back. Names of other boxes come from a process that it has
//! started ([`names`]): the box writes them on that standard input, one a line.

pub mod names;
mod watch;

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use forebay_core::units::Timestamp;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

use self::names::Names;
use super::conditions::{Devices, Void};
use super::config::Peer;
use crate::bridge::Vlans;
use crate::clock;
use crate::service::privileges::Account;

pub use watch::run;

/// Longest time between two lines, unless the observer is stopped or kept from running.
const SILENT_AFTER: Duration = Duration::from_secs(10);
/// How long the first line may take: the time to start a program on a loaded machine.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// Longest line: some thousand addresses.
const LINE_MAX: usize = 1 << 20;

/// What the observer saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// What does not hold.
    pub void: Vec<Void>,
    /// Index of the port towards the site's hosts, if there is such a device; under another name, too, for as long as no
    /// other device has its own.
    pub lan: Option<u32>,
    /// Receive queues of the port towards the site's hosts, if there is such a device.
    pub lan_queues: Option<u32>,
    /// As [`Observation::lan`], of the port towards the Internet.
    pub wan: Option<u32>,
    /// Addresses of this machine.
    pub addresses: BTreeSet<IpAddr>,
    /// Ethernet addresses of the machine, and those that its bridge knows at ports other than the box's.
    pub macs: BTreeSet<[u8; 6]>,
    /// What the bridge does with tags from the one port to the other; `None`: nothing.
    pub vlans: Option<Vlans>,
    /// What was found of the names of other boxes.
    pub names: Names,
}

impl Observation {
    /// Forgets names that none of these is called: their addresses may be hosts' by now.
    pub fn keep_names<'a>(&mut self, peers: impl Iterator<Item = &'a Peer>) {
        let wanted: BTreeSet<&str> = peers.filter_map(Peer::name).collect();
        self.names.retain(|name, _| wanted.contains(name.as_str()));
    }
}

/// The observer of a box, as the box sees it.
pub struct Observer {
    /// Holds the standard input whose end ends it.
    child: Child,
    lines: ChildStdout,
    /// What was read of a line that is not whole.
    part: Vec<u8>,
    heard_at: Timestamp,
}

impl Observer {
    /// Starts it, with the privileges of the caller; answers it and what it sees first. Names are looked up by
    /// this account, or else by the caller's.
    ///
    /// # Errors
    ///
    /// What keeps it from starting, and that it says nothing.
    pub fn start(devices: &Devices, account: Option<&Account>) -> io::Result<(Self, Observation)> {
        // Of this program, even if its file was replaced meanwhile.
        let mut program = Command::new("/proc/self/exe");
        program.arg("observe").arg(serde_json::to_string(devices)?).args(arguments(account));
        Self::start_as(program)
    }

    /// As [`Observer::start`], by a program that says what this one would.
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
        let mut observer = Self { child, lines, part: Vec::new(), heard_at: clock::now() };
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
    /// That the observer has ended.
    pub fn latest(&mut self) -> io::Result<Option<Observation>> {
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

    /// The last whole line that is no mere sign of life.
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

    /// Has these names looked up: what is found comes with a later observation.
    pub fn look_up(&mut self, names: &BTreeSet<String>) {
        let Some(asked) = self.child.stdin.as_mut() else { return };
        for name in names {
            // A whole line or, where the observer takes none, nothing: it is asked for again.
            let _ = asked.write_all(format!("{name}\n").as_bytes());
        }
    }

    /// Whether it has said nothing for so long that it must be stopped, or hang.
    pub fn is_silent(&self, now: Timestamp) -> bool {
        now.saturating_since(self.heard_at) >= SILENT_AFTER
    }
}

/// The arguments of a process that is told an account.
fn arguments(account: Option<&Account>) -> Vec<String> {
    account.map_or_else(Vec::new, |Account { uid, gid, .. }| {
        vec![format!("--uid={uid}"), format!("--gid={gid}")]
    })
}

/// Readable when there may be something new.
impl AsFd for Observer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lines.as_fd()
    }
}
