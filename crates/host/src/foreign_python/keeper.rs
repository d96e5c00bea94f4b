//! The keeper of a child: a separate process that starts children, since a running daemon may start no programs.
//!
//! ```text
//! daemon ──► forebay keep-python ──► python3 -m forebay.live FILE     again and again, each time later
//!    └───────────── the pair of sockets ────────────┘
//! ```
//! All children share one end of the pair as their standard input, so the daemon opens nothing for the next child. Each
//! child has its own process group. Its filter of system calls keeps it in that group, and the keeper kills the group
//! with it. The keeper copies the children's standard error to the log, within a limit.

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

/// Accounts for the children of a root process: the first existing one. No box may run under them, since a child could
/// kill such a box.
pub(super) const ACCOUNTS: [&str; 2] = ["forebay-python", "nobody"];
/// Variables of the environment that a child gets: where Python and its packages are.
const ENVIRONMENT: [&str; 3] = ["PATH", "PYTHONPATH", "VIRTUAL_ENV"];
/// Variables that limit the threads of linear algebra libraries. By default they start one thread per core, but a tick
/// waits for this algorithm, and the child has process limits.
const THREADS: [&str; 3] = ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"];
/// Further variables that the keeper gets: the format of log lines.
const LOG: [&str; 3] = ["FOREBAY_LOG", format::VARIABLE, format::JOURNAL];
/// Limits of each process of a child: bytes of address space, bytes of a core dump, bytes of a written file (even an
/// unnamed one), and open files.
const LIMITS: [(Resource, u64); 4] = [
    (Resource::RLIMIT_AS, 16 << 30),
    (Resource::RLIMIT_CORE, 0),
    (Resource::RLIMIT_FSIZE, 0),
    (Resource::RLIMIT_NOFILE, 256),
];
/// Most processes and threads of the children's account. Not applied to other users, who have processes already.
const PROCESSES_MAX: u64 = 256;
/// Log line about a child whose filters the kernel refuses.
const NO_FILTER: &[u8] = b"python3 is not run: its filter of system calls cannot be installed\n";
/// Pause between a child and the next. It doubles for each child that ends soon.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause between a child and the next.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A child that has lived for this time has not ended soon.
const SETTLED: Duration = Duration::from_secs(60);

/// Starts the keeper, which runs `file` in children with `channel` as their standard input. The keeper ends with this
/// process.
///
/// # Errors
///
/// The process cannot be started, or there is no account for the children.
#[allow(clippy::zombie_processes, reason = "the process lives as long as this one")]
pub fn start(file: &Path, channel: Socket) -> Result<(), LiveError> {
    // Run this very program, even if its file was replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg("keep-python");
    if geteuid().is_root() {
        let Account { uid, gid, .. } = account()?;
        command.args(["--uid", &uid.to_string(), "--gid", &gid.to_string()]);
    }
    // Use a folder that no other user can put modules into.
    command.arg("--").arg(file).current_dir("/").env_clear();
    let kept = ENVIRONMENT.iter().chain(&LOG);
    command.envs(kept.filter_map(|name| Some((name, std::env::var_os(name)?))));
    // A separate process group: ctrl-C reaches only this program, which then ends its children.
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

/// Runs as the keeper, under this user and group if given, until the daemon has ended.
///
/// # Errors
///
/// Fails if the process cannot give up its privileges.
pub fn keep(file: &Path, account: Option<(u32, u32)>) -> io::Result<()> {
    // Ignore signals of the terminal and of the service manager: the daemon handles them and ends this process.
    let _signals = block_signals()?;
    let channel = Socket::from(io::stdin().as_fd().try_clone_to_owned()?);
    let processes_max = account.map(|_| PROCESSES_MAX);
    let account = account.map(|(uid, gid)| Account::of(uid, gid));
    privileges::drop_all_but(&[], account.as_ref())?;
    // A child has the same user, and could otherwise write into the memory of this process, which has no filter.
    prctl::set_dumpable(false)?;
    // Architectures without filters.
    let no_filters = |error: &io::Error| {
        tracing::warn!(target: "privileges", %error, "no filter of system calls for Python");
    };
    let filters = seccomp::of_others().inspect_err(no_filters).ok();
    // Without Landlock the file size limit still allows empty files.
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
        tracing::info!(target: "python_output", "{passed_over}: the account for Python may not \
                                                 execute it; the next one in PATH runs");
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

/// The first python3 in a PATH, if this process may not run it, for example in a home folder. The next one runs
/// instead, and may lack the package.
fn passed_over(path: &OsStr) -> Option<PathBuf> {
    let all = std::env::split_paths(path).map(|folder| folder.join("python3"));
    let first = all.into_iter().find(|file| file.symlink_metadata().is_ok())?;
    unistd::access(&first, AccessFlags::X_OK).is_err().then_some(first)
}

/// Ends this process once the other end of `channel` is closed, and kills the `group` of a child that hangs. A signal
/// at the daemon's death (PR_SET_PDEATHSIG) would not arrive: the daemon may not signal processes of another user
/// (kernel/signal.c, `check_kill_permission`).
fn end_with(channel: &Socket, group: &AtomicI32) {
    while is_left(channel, PollTimeout::NONE).is_ok_and(|is_left| !is_left) {}
    kill_group(group);
    std::process::exit(0);
}

/// Sets `command` up to run as a child: in its own process group, within limits and filters.
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
            // The service manager may allow less.
            let (soft, hard) = getrlimit(*resource)?;
            setrlimit(*resource, soft.min(*most), hard.min(*most))?;
        }
        let installed = filters.as_ref().map_or(Ok(()), |filters| seccomp::install(filters));
        if let Err(error) = installed {
            // The parent only gets the number of an error.
            let _ = unistd::write(io::stderr(), NO_FILTER);
            return Err(error);
        }
        // A process that is not dumpable cannot write its own files in /proc. From here on the filters also bind any
        // process of its user that gets into its memory.
        prctl::set_dumpable(true)?;
        // Let the kernel kill this process first if memory is short. If the write fails, the kernel chooses as usual.
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
        // From here on the process can no longer write that file.
        rules.as_ref().map_or(Ok(()), |rules| {
            prctl::set_no_new_privs()?;
            rules.enter()
        })
    };
    // SAFETY: the closure only makes system calls, and takes no lock that another thread may hold.
    unsafe { command.pre_exec(prepare) };
}

/// Runs `command`, which has its own process group, until it ends, and then kills the rest of the group. `group` holds
/// the number of the group meanwhile. Ends an unfinished line on `stderr`.
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
    // Before wait(2) reaps the child, the kernel does not reuse its number.
    kill_group(group);
    // If no thread reads the pipe, the lost newline does no harm.
    let _ = stderr.write_all(b"\n");
    child.wait()
}

/// Kills all processes of this group and sets its number to 0. Does nothing for 0.
fn kill_group(group: &AtomicI32) {
    let leader = group.swap(0, Ordering::SeqCst);
    if leader > 0 {
        // A process that has ended needs no signal.
        let _ = killpg(Pid::from_raw(leader), Signal::SIGKILL);
    }
}

/// Runs children one after the other until the other end of `channel` is closed.
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
        let said = json!({ "ended": format!("{ended}; the next one starts in {pause:?}") });
        // If the channel is full, the daemon notices the silence.
        let _ = channel.send_with_flags(said.to_string().as_bytes(), libc::MSG_DONTWAIT);
        thread::sleep(pause);
    }
}

/// Whether the other end is closed, or is closed within `wait`.
fn is_left(channel: &Socket, wait: PollTimeout) -> io::Result<bool> {
    let mut fds = [PollFd::new(channel.as_fd(), PollFlags::empty())];
    poll(&mut fds, wait)?;
    Ok(fds[0].revents().is_some_and(|seen| seen.contains(PollFlags::POLLHUP)))
}

/// The next pause, given the one before the last child and the time that the child lived.
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
    fn python_without_execute_permission_is_reported() {
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
    fn child_account_matches_the_packages() {
        let accounts = include_str!("../../../../packaging/sysusers.d/forebay.conf");
        assert!(accounts.contains(&format!("\nu {} ", ACCOUNTS[0])));
    }

    #[test]
    fn short_lived_children_restart_with_growing_pauses() {
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
        // Read until the sleeper, which holds the other end, has ended.
        let mut said = String::new();
        held.read_to_string(&mut said).unwrap();
        assert_eq!(said, "not ended\n");
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }

    #[test]
    fn child_has_its_limits_and_group() {
        let mut command = Command::new("sh");
        let script = "cat /proc/self/limits /proc/self/oom_score_adj; \
                      echo $OPENBLAS_NUM_THREADS thread; \
                      setsid true; test $? -eq 1 && echo stays; \
                      (echo 0 > /proc/self/oom_score_adj) 2>&-; cat /proc/$$/oom_score_adj; \
                      for kind in \"-M 1\" \"-S 1\" -Q; do ipcmk $kind 2>&- && echo left $kind; done; \
                      for file in /tmp /dev/shm /var/tmp; do \
                      (echo 1 > $file/forebay-$$) 2>&- && echo left $file; done; true";
        command.args(["-c", script]);
        // The user of this test may already run many processes.
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
    fn child_without_filters_is_not_run_and_logged() {
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
    fn ended_child_is_replaced_until_the_daemon_leaves() {
        let (ours, theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        let (ours, begun) = (Cell::new(Some(ours)), Cell::new(0));
        keep_on(&theirs, || {
            begun.set(begun.get() + 1);
            if begun.get() == 2 {
                // The daemon must have learned of the first child.
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
