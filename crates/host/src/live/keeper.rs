//! Who keeps a child running: a process of its own, since a daemon that runs may start no programs.
//!
//! ```text
//! daemon ──► forebay keep-python ──► python3 -m forebay.live FILE     again and again, each time later
//!    └───────────── the pair of sockets ────────────┘
//! ```
//! All children have the same end of the pair as their standard input, so that the daemon has nothing to open when one
//! follows another.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use serde_json::json;
use socket2::Socket;

use super::LiveError;
use crate::service::privileges::{self, Account, seccomp};
use crate::service::supervisor::block_signals;

/// What a child of root becomes: the first of these accounts that is there. None of them is a box's, which the child
/// could end otherwise.
pub(super) const ACCOUNTS: [&str; 2] = ["forebay-python", "nobody"];
/// What a child has of the environment: where Python and its packages are.
const ENVIRONMENT: [&str; 3] = ["PATH", "PYTHONPATH", "VIRTUAL_ENV"];
/// Time from the end of a child to the start of the next, doubled with each child that ends soon.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A child that has lived so long has not ended soon.
const SETTLED: Duration = Duration::from_secs(60);

/// Starts the process, which has children run `file` with `channel` as their standard input, and ends with this one.
///
/// # Errors
///
/// The process cannot be started, or there is no account for the children.
#[allow(clippy::zombie_processes, reason = "the process lives as long as this one")]
pub fn start(file: &Path, channel: Socket) -> Result<(), LiveError> {
    // This program, even if its file was replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg("keep-python");
    if geteuid().is_root() {
        let Account { uid, gid, .. } = account()?;
        command.args(["--uid", &uid.to_string(), "--gid", &gid.to_string()]);
    }
    // From a folder that nobody else can put modules into.
    command.arg("--").arg(file).current_dir("/").env_clear();
    command.envs(ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    // A group of its own: ctrl-C is for this program alone, and ends the others with it.
    command.stdin(OwnedFd::from(channel)).stdout(Stdio::null()).process_group(0).spawn()?;
    Ok(())
}

fn account() -> Result<Account, LiveError> {
    for name in ACCOUNTS {
        if let Some(account) = Account::named(name)? {
            return Ok(account);
        }
    }
    Err(LiveError::NoAccount)
}

/// Is that process, as this user and group where they are given, until the daemon has ended.
///
/// # Errors
///
/// That the process cannot give up its privileges.
pub fn keep(file: &Path, account: Option<(u32, u32)>) -> io::Result<()> {
    // Signals of the terminal and of the service manager are for the daemon, which ends this process in its time.
    let _signals = block_signals()?;
    let channel = Socket::from(nix::unistd::dup(io::stdin())?);
    // The first to go where memory is short. A kernel that refuses chooses as it does otherwise.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let account = account.map(|(uid, gid)| Account::of(uid, gid));
    privileges::drop_all_but(&[], account.as_ref())?;
    // An architecture that nobody wrote one for, or a kernel without them.
    if let Err(error) = seccomp::of_others().and_then(|filters| seccomp::install(&filters)) {
        tracing::warn!(target: "privileges", %error, "no filter of system calls for Python");
    }
    let watched = channel.try_clone()?;
    thread::Builder::new().name("watch".into()).spawn(move || end_with(&watched))?;
    keep_on(&channel, || python(file))
}

/// Ends this process once nobody is at the other end of `channel`, and with it a child that hangs. A signal at the end of
/// the daemon (PR_SET_PDEATHSIG) would not come: the daemon may send none to processes of another user
/// (kernel/signal.c, `check_kill_permission`).
fn end_with(channel: &Socket) {
    while is_left(channel, PollTimeout::NONE).is_ok_and(|is_left| !is_left) {}
    std::process::exit(0);
}

/// Runs a child until it ends.
fn python(file: &Path) -> io::Result<ExitStatus> {
    let mut command = Command::new("python3");
    command.args(["-m", "forebay.live"]).arg(file);
    // SAFETY: the closure makes one system call, and touches nothing that another thread may hold.
    unsafe {
        command.pre_exec(|| prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from));
    }
    command.status()
}

/// Has children run one after the other, as long as somebody is at the other end of `channel`.
fn keep_on(channel: &Socket, run: impl Fn() -> io::Result<ExitStatus>) -> io::Result<()> {
    let mut pause = Duration::ZERO;
    loop {
        let began = Instant::now();
        let ended = match run() {
            Ok(status) => status.to_string(),
            Err(error) => format!("python3: {error}"),
        };
        if is_left(channel, PollTimeout::ZERO)? {
            return Ok(());
        }
        pause = next_pause(pause, began.elapsed());
        let said = json!({ "ended": format!("{ended}; the next is started in {pause:?}") });
        // What finds no room is told by silence.
        let _ = channel.send_with_flags(said.to_string().as_bytes(), libc::MSG_DONTWAIT);
        thread::sleep(pause);
    }
}

/// Whether nobody is at the other end, by the end of `wait` at the latest.
fn is_left(channel: &Socket, wait: PollTimeout) -> io::Result<bool> {
    let mut fds = [PollFd::new(channel.as_fd(), PollFlags::empty())];
    poll(&mut fds, wait)?;
    Ok(fds[0].revents().is_some_and(|seen| seen.contains(PollFlags::POLLHUP)))
}

/// The pause after a child that has lived so long, and came after this pause.
fn next_pause(before: Duration, lived: Duration) -> Duration {
    if lived >= SETTLED { PAUSE_MIN } else { (2 * before).clamp(PAUSE_MIN, PAUSE_MAX) }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Read;

    use socket2::{Domain, Type};

    use super::*;

    #[test]
    fn the_account_that_packages_make_for_children_is_the_one_looked_for() {
        let accounts = include_str!("../../../../packaging/sysusers.d/forebay.conf");
        assert!(accounts.contains(&format!("\nu {} ", ACCOUNTS[0])));
    }

    #[test]
    fn children_that_end_soon_follow_each_other_later_and_later() {
        let mut pause = Duration::ZERO;
        let soon = [1, 2, 4, 8, 16, 32, 60, 60].map(Duration::from_secs);
        assert_eq!(
            soon.map(|_| {
                pause = next_pause(pause, Duration::from_secs(59));
                pause
            }),
            soon
        );
        assert_eq!(next_pause(pause, SETTLED), PAUSE_MIN);
    }

    #[test]
    fn another_child_follows_one_that_ends_until_nobody_is_at_the_other_end() {
        let (ours, theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        let (ours, begun) = (Cell::new(Some(ours)), Cell::new(0));
        keep_on(&theirs, || {
            begun.set(begun.get() + 1);
            if begun.get() == 2 {
                // It has been told of the first.
                let mut daemon = ours.take().unwrap();
                let mut datagram = [0; 512];
                let length = daemon.read(&mut datagram).unwrap();
                assert!(!is_left(&theirs, PollTimeout::ZERO).unwrap());
                drop(daemon);
                assert!(String::from_utf8_lossy(&datagram[..length]).contains("exit status: 3"));
            }
            Command::new("sh").args(["-c", "exit 3"]).status()
        })
        .unwrap();
        assert_eq!(begun.get(), 2);
    }
}
