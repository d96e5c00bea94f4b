//! Who keeps a child running: a process of its own, since a daemon that runs may start no programs.
//!
//! ```text
//! daemon ──► forebay keep-python ──► python3 -m forebay.live FILE     again and again, each time later
//!    └───────────── the pair of sockets ────────────┘
//! ```
//! All children have the same end of the pair as their standard input, so that the daemon has nothing to open when one
//! follows another. Each has a group of processes of its own, which its filter of system calls keeps it in and which is
//! killed with it. What they write on standard error comes here and is told in the log, as far as there is room for it.

use std::ffi::OsStr;
use std::io::{self, PipeWriter, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{self, AccessFlags, Pid, geteuid};
use seccompiler::BpfProgram;
use serde_json::json;
use socket2::Socket;

use super::LiveError;
use super::output::tell_lines;
use crate::clock;
use crate::log::format;
use crate::service::privileges::landlock::ReadOnly;
use crate::service::privileges::{self, Account, seccomp};
use crate::service::supervisor::block_signals;

/// What a child of root becomes: the first of these accounts that is there. None of them is a box's, which the child
/// could end otherwise.
pub(super) const ACCOUNTS: [&str; 2] = ["forebay-python", "nobody"];
/// What a child has of the environment: where Python and its packages are.
const ENVIRONMENT: [&str; 3] = ["PATH", "PYTHONPATH", "VIRTUAL_ENV"];
/// What tells libraries of linear algebra how many threads they start: one a core otherwise, for a law that a tick waits for
/// and that has limits of its own.
const THREADS: [&str; 3] = ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"];
/// What the process that keeps it has besides: how lines of the log are written.
const LOG: [&str; 3] = ["FOREBAY_LOG", format::VARIABLE, format::JOURNAL];
/// What each process of a child has at the most: bytes of address space, bytes of what a crash leaves, bytes of a file that
/// it writes (one without a name among them), and open files.
const LIMITS: [(Resource, u64); 4] = [
    (Resource::RLIMIT_AS, 16 << 30),
    (Resource::RLIMIT_CORE, 0),
    (Resource::RLIMIT_FSIZE, 0),
    (Resource::RLIMIT_NOFILE, 256),
];
/// Processes and threads that the account of children has at the most. Any other user has some already.
const PROCESSES_MAX: u64 = 256;
/// What the log has of a child whose filters the kernel refuses.
const NO_FILTER: &[u8] = b"python3 is not run: its filter of system calls cannot be installed\n";
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
    let kept = ENVIRONMENT.iter().chain(&LOG);
    command.envs(kept.filter_map(|name| Some((name, std::env::var_os(name)?))));
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
    let channel = Socket::from(io::stdin().as_fd().try_clone_to_owned()?);
    let processes_max = account.map(|_| PROCESSES_MAX);
    let account = account.map(|(uid, gid)| Account::of(uid, gid));
    privileges::drop_all_but(&[], account.as_ref())?;
    // A child has the same user, and could write into the memory of this process, which has no filter, otherwise.
    prctl::set_dumpable(false)?;
    // An architecture that nobody wrote them for.
    let no_filters = |error: &io::Error| {
        tracing::warn!(target: "privileges", %error, "no filter of system calls for Python");
    };
    let filters = seccomp::of_others().inspect_err(no_filters).ok();
    // A kernel without Landlock: limits leave files that are empty.
    let no_rules = |error: &io::Error| {
        tracing::warn!(target: "privileges", %error, "no Landlock for Python: it may make empty files");
    };
    let rules = ReadOnly::new().inspect_err(no_rules).ok().map(Arc::new);
    let (written, stderr) = io::pipe()?;
    let tell = move || {
        tell_lines(written, clock::now, |line| tracing::info!(target: "python_output", "{line}"));
    };
    thread::Builder::new().name("output".into()).spawn(tell)?;
    let group = Arc::<AtomicI32>::default();
    let (watched, of_child) = (channel.try_clone()?, group.clone());
    thread::Builder::new().name("watch".into()).spawn(move || end_with(&watched, &of_child))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(passed_over) = passed_over(&path) {
        let passed_over = passed_over.display();
        tracing::info!(target: "python_output", "{passed_over}: the account of Python may not run it, and the next of PATH is run");
    }
    keep_on(&channel, || {
        let mut command = Command::new("python3");
        command.args(["-m", "forebay.live"]).arg(file).stderr(stderr.try_clone()?);
        for name in LOG {
            command.env_remove(name);
        }
        confine(&mut command, filters.clone(), rules.clone(), processes_max);
        run_in_group(&mut command, &group, &stderr)
    })
}

/// The first python3 of a PATH where this process may not run it, as one that lies in somebody's home: the next one is
/// run, which may lack the package.
fn passed_over(path: &OsStr) -> Option<PathBuf> {
    let all = std::env::split_paths(path).map(|folder| folder.join("python3"));
    let first = all.into_iter().find(|file| file.symlink_metadata().is_ok())?;
    unistd::access(&first, AccessFlags::X_OK).is_err().then_some(first)
}

/// Ends this process once nobody is at the other end of `channel`, and with it the `group` of a child that hangs. A signal
/// at the end of the daemon (PR_SET_PDEATHSIG) would not come: the daemon may send none to processes of another user
/// (kernel/signal.c, `check_kill_permission`).
fn end_with(channel: &Socket, group: &AtomicI32) {
    while is_left(channel, PollTimeout::NONE).is_ok_and(|is_left| !is_left) {}
    kill_group(group);
    std::process::exit(0);
}

/// Has `command` run as a child: in a group of its own, which ends with this process, within limits and filters.
fn confine(
    command: &mut Command,
    filters: Option<[BpfProgram; 3]>,
    rules: Option<Arc<ReadOnly>>,
    processes_max: Option<u64>,
) {
    let of_account = processes_max.map(|most| (Resource::RLIMIT_NPROC, most));
    let limits: Vec<(Resource, u64)> = LIMITS.into_iter().chain(of_account).collect();
    command.process_group(0).envs(THREADS.map(|name| (name, "1")));
    let prepare = move || -> io::Result<()> {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        for (resource, most) in &limits {
            // What the service manager allows may be less.
            let (soft, hard) = getrlimit(*resource)?;
            setrlimit(*resource, soft.min(*most), hard.min(*most))?;
        }
        let installed = filters.as_ref().map_or(Ok(()), |filters| seccomp::install(filters));
        if let Err(error) = installed {
            // The number of an error is all that a parent hears of it.
            let _ = unistd::write(io::stderr(), NO_FILTER);
            return Err(error);
        }
        // The copy of a process that is not dumpable cannot write its own files in /proc. From here on the filters hold
        // whoever of its user gets into its memory.
        prctl::set_dumpable(true)?;
        // The first to go where memory is short. A kernel that refuses chooses as it does otherwise.
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
        // From here on that is not written any more.
        rules.as_ref().map_or(Ok(()), |rules| {
            prctl::set_no_new_privs()?;
            rules.enter()
        })
    };
    // SAFETY: the closure makes system calls, and touches nothing that another thread may hold.
    unsafe { command.pre_exec(prepare) };
}

/// Runs `command`, which has a group of its own, until it ends, and then kills what it has left there. `group` has the
/// number of the group meanwhile. What was left unfinished on `stderr` is a line from then on.
fn run_in_group(
    command: &mut Command,
    group: &AtomicI32,
    mut stderr: &PipeWriter,
) -> io::Result<ExitStatus> {
    let mut child = command.spawn()?;
    let leader = Pid::from_raw(child.id() as i32);
    group.store(leader.as_raw(), Ordering::SeqCst);
    let has_ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    while waitid(Id::Pid(leader), has_ended) == Err(Errno::EINTR) {}
    // While nobody has waited for it, its number is nobody else's.
    kill_group(group);
    // Where nobody reads, nobody misses the line.
    let _ = stderr.write_all(b"\n");
    child.wait()
}

/// Kills all processes of the group with this number, unless it is 0; from then on it is.
fn kill_group(group: &AtomicI32) {
    let leader = group.swap(0, Ordering::SeqCst);
    if leader > 0 {
        // Who has ended already needs no signal.
        let _ = killpg(Pid::from_raw(leader), Signal::SIGKILL);
    }
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
    fn a_python_that_may_not_be_run_is_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let [none, here, behind] = ["none", "here", "behind"].map(|name| folder.path().join(name));
        for folder in [&none, &here, &behind] {
            std::fs::create_dir(folder).unwrap();
        }
        std::os::unix::fs::symlink("/nonexistent/python3", here.join("python3")).unwrap();
        std::os::unix::fs::symlink("/bin/true", behind.join("python3")).unwrap();
        let path = |folders: &[&PathBuf]| std::env::join_paths(folders).unwrap();
        assert_eq!(passed_over(&path(&[&none, &here, &behind])), Some(here.join("python3")));
        assert_eq!(passed_over(&path(&[&none, &behind, &here])), None);
        assert_eq!(passed_over(&path(&[&none])), None);
    }

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
    fn what_a_child_leaves_running_ends_with_it() {
        let (mut held, end) = io::pipe().unwrap();
        let mut command = Command::new("sh");
        let script = "printf 'not ended' >&2; sleep 60 & exit 3";
        command.args(["-c", script]).stderr(end.try_clone().unwrap());
        confine(&mut command, None, None, None);
        let (began, group) = (Instant::now(), AtomicI32::new(0));
        let ended = run_in_group(&mut command, &group, &end).unwrap();
        assert_eq!((ended.code(), group.into_inner()), (Some(3), 0));
        drop((command, end));
        // Until the sleeper is gone, which has the other end.
        let mut said = String::new();
        held.read_to_string(&mut said).unwrap();
        assert_eq!(said, "not ended\n");
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }

    #[test]
    fn a_child_has_its_limits_and_stays_in_its_group() {
        let mut command = Command::new("sh");
        let script = "cat /proc/self/limits /proc/self/oom_score_adj; \
                      echo $OPENBLAS_NUM_THREADS thread; \
                      setsid true; test $? -eq 1 && echo stays; \
                      (echo 0 > /proc/self/oom_score_adj) 2>&-; cat /proc/$$/oom_score_adj; \
                      for kind in \"-M 1\" \"-S 1\" -Q; do ipcmk $kind 2>&- && echo left $kind; done; \
                      for file in /tmp /dev/shm /var/tmp; do \
                      (echo 1 > $file/forebay-$$) 2>&- && echo left $file; done; true";
        command.args(["-c", script]);
        // The user of this test may have many already.
        let (soft, hard) = getrlimit(Resource::RLIMIT_NPROC).unwrap();
        let processes_max = hard - 1;
        let rules = Arc::new(ReadOnly::new().unwrap());
        let filters = Some(seccomp::of_others().unwrap());
        confine(&mut command, filters, Some(rules), Some(processes_max));
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = said.lines().map(words).collect();
        for expected in [
            "Max address space 17179869184 17179869184 bytes",
            "Max core file size 0 0 bytes",
            "Max file size 0 0 bytes",
            "Max open files 256 256 files",
            &format!("Max processes {} {processes_max} processes", soft.min(processes_max)),
            "1000",
            "1 thread",
            "stays",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected}: {said}");
        }
        assert!(lines.iter().all(|line| line != "0" && !line.starts_with("left")), "{said}");
    }

    #[test]
    fn a_child_whose_filters_the_kernel_refuses_is_not_run_and_the_log_says_why() {
        let (mut held, end) = io::pipe().unwrap();
        let mut command = Command::new("true");
        command.stderr(end);
        let unfinished = seccomp::of_others().unwrap().map(|filter| filter[..1].to_vec());
        confine(&mut command, Some(unfinished), None, None);
        assert!(command.status().is_err());
        drop(command);
        let mut said = Vec::new();
        held.read_to_end(&mut said).unwrap();
        assert_eq!(said, NO_FILTER);
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
