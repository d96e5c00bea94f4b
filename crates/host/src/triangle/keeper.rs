//! The keeper of the rule that leads packets into a triangle. It is a separate process, `forebay keep-triangle`,
//! because the box has given up the necessary privileges.
//!
//! ```text
//!  the box ── "take", "leave", destinations ──► the keeper ── rtnetlink ──► rule, routes
//! ```
//! The rule exists while the box wants it and the triangle forwards. The process checks at each message of the kernel,
//! and `PERIOD` after the last check. When the box ends for any reason, its end of the pipe closes. The process then
//! removes the rule, and the triangle if the process has made it, and ends.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use caps::{CapSet, Capability};
use ipnet::IpNet;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::SockProtocol;

use super::link::TriangleLink;
use super::{Names, Spec, check, follow_mtu, make, remove, routes};
use crate::netlink::{self, Commands};
use crate::service::privileges;
use crate::service::supervisor::block_signals;

/// Longest time between two checks. If a part of the triangle is gone and the kernel does not report that, packets are
/// back on the plain route within a second. This is a quarter of that second.
const PERIOD: Duration = Duration::from_millis(250);
/// Least time between two checks, so that the changes of a routing daemon are handled together.
const SPACING: Duration = Duration::from_millis(20);
/// Least time between two looks at all routes: listing a full table takes the kernel some 100 ms.
const ROUTES_PERIOD: Duration = Duration::from_secs(1);
/// Longest time for the start, and for the end.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest line from a box in bytes: as many prefixes as a box can have.
const LINE_MAX: usize = 1 << 22;
/// Line that the process prints once the triangle is ready.
const READY: &str = "ready\n";

/// Multicast group of links (include/uapi/linux/rtnetlink.h).
const RTMGRP_LINK: u32 = 1;
/// Multicast group of IPv4 routes (include/uapi/linux/rtnetlink.h).
const RTMGRP_IPV4_ROUTE: u32 = 0x40;
/// Multicast group of IPv6 routes (include/uapi/linux/rtnetlink.h).
const RTMGRP_IPV6_ROUTE: u32 = 0x400;

/// The box's handle of its keeper. A drop removes the rule.
#[derive(Debug)]
pub struct Keeper {
    child: Child,
    said: ChildStdout,
    /// The last command: whether to lead packets into the triangle.
    is_taking: Option<bool>,
}

impl Keeper {
    /// Starts the process with the privileges of the caller. With `CAP_SYS_ADMIN` it makes the triangle, and removes it
    /// at its end. Otherwise the triangle must exist.
    ///
    /// # Errors
    ///
    /// The failure to start, or the message of the process.
    pub fn start(spec: &Spec) -> io::Result<Self> {
        let mut program = Command::new("/proc/self/exe");
        program.arg("keep-triangle").arg(serde_json::to_string(spec)?);
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let said = child.stdout.take().expect("piped");
        let input = child.stdin.as_ref().expect("piped");
        fcntl(input, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        fcntl(&said, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let mut keeper = Self { child, said, is_taking: None };
        match keeper.hear(|text| text.contains('\n'))? {
            text if text == READY => Ok(keeper),
            text if text.is_empty() => Err(io::Error::other("the keeper of the triangle ended")),
            text => Err(io::Error::other(text.trim_end().to_string())),
        }
    }

    /// Reads the output of the process until `is_enough`, until it ends, or until its time is over.
    fn hear(&mut self, is_enough: impl Fn(&str) -> bool) -> io::Result<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut text = Vec::new();
        let mut bytes = [0; 1 << 12];
        loop {
            match self.said.read(&mut bytes) {
                Ok(0) => break,
                Ok(len) => text.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let timeout = PollTimeout::try_from(left).map_err(io::Error::other)?;
                    let fd = PollFd::new(self.said.as_fd(), PollFlags::POLLIN);
                    if poll(&mut [fd], timeout)? == 0 {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if is_enough(&String::from_utf8_lossy(&text)) {
                break;
            }
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Leads packets into the triangle, or back to the plain route. Does not wait: a command for which there is no room
    /// is repeated with the next call.
    pub fn set_taking(&mut self, taking: bool) {
        if self.is_taking == Some(taking) {
            return;
        }
        let line = if taking { "take\n" } else { "leave\n" };
        let told =
            self.child.stdin.as_mut().is_some_and(|it| it.write_all(line.as_bytes()).is_ok());
        self.is_taking = told.then_some(taking);
    }

    /// Leads only packets to these destinations into the triangle.
    ///
    /// # Errors
    ///
    /// If the process has ended, or does not read.
    pub fn set_destinations(&mut self, to: &[IpNet]) -> io::Result<()> {
        let line = format!("{}\n", serde_json::to_string(to)?);
        let input = self.child.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match input.write(rest) {
                Ok(len) => rest = &rest[len..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let timeout = PollTimeout::from(1000_u16);
                    if poll(&mut [PollFd::new(input.as_fd(), PollFlags::POLLOUT)], timeout)? == 0 {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // Wait until its standard output closes, so that nothing is left when the box has ended.
        let _ = self.hear(|_| false);
    }
}

/// Runs as the keeper until standard input ends.
pub fn run(spec: Spec) -> io::Result<()> {
    // Signals for the box reach its whole process group or control group. Ignore them: the box ends this process.
    let _signals = block_signals()?;
    let held = caps::read(None, CapSet::Effective).map_err(io::Error::other)?;
    let makes = held.contains(&Capability::CAP_SYS_ADMIN);
    let mut stdout = io::stdout();
    let begun = begin(&spec, makes);
    let begun = match begun {
        Ok(begun) => begun,
        Err(error) => return writeln!(stdout, "{error}"),
    };
    stdout.write_all(READY.as_bytes())?;
    stdout.flush()?;
    let names = begun.names.clone();
    let kept: &[Capability] = if makes {
        &[Capability::CAP_NET_ADMIN, Capability::CAP_SYS_ADMIN]
    } else {
        &[Capability::CAP_NET_ADMIN]
    };
    let done = privileges::drop_all_but(kept, None).and_then(|()| begun.keep());
    let host = Commands::open()?;
    let ended = if makes { remove(&names) } else { routes::leave(&host, &names) };
    done.and(ended)
}

fn begin(spec: &Spec, makes: bool) -> io::Result<Begun> {
    let names = spec.names();
    if makes {
        make(spec)?;
    } else if let Err(missing) = check(&names) {
        return Err(io::Error::other(format!(
            "{missing}: start forebay-triangle@{}.service before the box, or the box as root",
            spec.name
        )));
    }
    let groups = RTMGRP_LINK | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE;
    let changes = netlink::subscribe(SockProtocol::NetlinkRoute, groups)?;
    let host = Commands::open()?;
    // The rule may be left from an earlier box whose keeper was killed.
    routes::leave(&host, &names)?;
    if !makes {
        routes::set(&host, spec, &names)?;
    }
    let link = TriangleLink::named(&names.exit)?.ok_or(io::ErrorKind::NotFound)?;
    Ok(Begun {
        spec: spec.clone(),
        names,
        host,
        changes,
        input: Vec::new(),
        is_wanted: false,
        has_changed: false,
        routes_at: Instant::now(),
        mtu: link.mtu,
    })
}

/// The running keeper, once its triangle exists.
struct Begun {
    spec: Spec,
    names: Names,
    host: Commands,
    changes: OwnedFd,
    /// Beginning of a line that is not complete.
    input: Vec<u8>,
    is_wanted: bool,
    /// The kernel has reported changes since the last look at the routes.
    has_changed: bool,
    /// Time of the last look at the routes.
    routes_at: Instant,
    /// The MTU at the start, which bounds the buffers of the box.
    mtu: u32,
}

impl Begun {
    fn keep(mut self) -> io::Result<()> {
        loop {
            self.look();
            let stdin = io::stdin();
            let fds: [BorrowedFd<'_>; 2] = [self.changes.as_fd(), stdin.as_fd()];
            let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            let timeout = PollTimeout::try_from(PERIOD).map_err(io::Error::other)?;
            match poll(&mut fds, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [changed, told] = fds.map(|fd| fd.any().unwrap_or(true));
            if changed {
                std::thread::sleep(SPACING);
            }
            self.has_changed |= changed;
            netlink::drain(&self.changes)?;
            if told && !self.read()? {
                return Ok(());
            }
        }
    }

    /// Updates rule, routes and MTU to the current state.
    fn look(&mut self) {
        let Self { spec, names, host, .. } = self;
        let is_whole = check(names).is_ok();
        // Errors below either belong to a part that is gone, or the next check meets them again.
        if self.is_wanted && is_whole {
            let _ = follow_mtu(host, spec, names, self.mtu);
            if self.has_changed && self.routes_at.elapsed() >= ROUTES_PERIOD {
                self.routes_at = Instant::now();
                self.has_changed = routes::set(host, spec, names).is_err();
            }
            if !routes::is_taken(host, spec, names).unwrap_or(true) {
                let _ = routes::take(host, spec, names);
            }
        } else {
            let _ = routes::leave(host, names);
        }
    }

    /// Reads commands of the box; false: it has ended.
    fn read(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 1 << 14];
        let len = io::stdin().read(&mut bytes)?;
        self.input.extend_from_slice(&bytes[..len]);
        while let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
            let rest = self.input.split_off(end + 1);
            let line = std::mem::replace(&mut self.input, rest);
            self.obey(&line[..end]);
        }
        if self.input.len() > LINE_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(len > 0)
    }

    fn obey(&mut self, line: &[u8]) {
        match line {
            b"take" => self.is_wanted = true,
            b"leave" => self.is_wanted = false,
            line => {
                let Ok(to) = serde_json::from_slice(line) else { return };
                self.spec.to = to;
                self.routes_at = Instant::now();
                let _ = routes::set(&self.host, &self.spec, &self.names);
                let _ = routes::guard(&self.host, &self.spec, &self.names);
            }
        }
    }
}
