//! Privileges of the daemons, and when they give them up.
//!
//! | capability | for what | kept |
//! |---|---|---|
//! | CAP_NET_ADMIN | attaching programs, large buffers; asking for filters; setting rates of classes | by the observer; by a thread of the kernel datapath |
//! | CAP_NET_RAW | AF_XDP and packet sockets | no |
//! | CAP_BPF | loading programs, making maps; later setting maps and links | by the packet thread |
//! | CAP_PERFMON | programs that keep pointers or stand at tracepoints, and those of a congestion control (agent) | no |
//! | CAP_IPC_LOCK | memory of AF_XDP sockets, also of devices made again | by a packet thread that has such sockets |
//! | CAP_SYS_NICE | SCHED_FIFO for the packet thread | no |
//!
//! CAP_BPF stays because kernels with `unprivileged_bpf_disabled` refuse map operations without it. After set-up each
//! thread of a box changes to another user ([`Confinement`]), empties its bounding set, sets `no_new_privs` and
//! installs a filter of system calls ([`seccomp`]). An agent, which is not a box, keeps its user and its system calls.
//!
//! The [`observer`](crate::daemon::observer) is a separate process. It keeps its user and has no filter, but only one
//! capability and `no_new_privs`; it reads no data from the network. Another process resolves names for it, confined
//! like the threads of the box. The keeper of algorithms in Python ([`keeper`](crate::foreign_python::keeper)) changes
//! to their user at once, without capabilities. Those algorithms run under the filters for foreign programs and write
//! no files ([`landlock`]).

pub mod landlock;
pub mod seccomp;

use std::io;
use std::time::Duration;

use caps::{CapSet, Capability, CapsHashSet};
use nix::unistd::{Gid, Uid, User, geteuid};

use self::seccomp::Task;
use crate::log;

/// Capabilities that set-up needs, with their use for the error message.
const SET_UP: [(Capability, &str); 5] = [
    (Capability::CAP_NET_ADMIN, "to attach XDP programs"),
    (Capability::CAP_NET_RAW, "to open AF_XDP sockets"),
    (Capability::CAP_BPF, "to load BPF programs"),
    (Capability::CAP_PERFMON, "to load BPF programs that keep pointers"),
    (Capability::CAP_IPC_LOCK, "to share memory with AF_XDP sockets"),
];

/// Capability that the set-up of a receivebox without a BPF program needs.
const BY_SOCKET: [(Capability, &str); 1] = [(Capability::CAP_NET_RAW, "to open packet sockets")];

/// Optional capability of set-up: SCHED_FIFO.
const WELCOME: Capability = Capability::CAP_SYS_NICE;

/// Capabilities that an agent's set-up needs.
const AGENT_SET_UP: [(Capability, &str); 3] = [
    (Capability::CAP_BPF, "to load BPF programs"),
    (Capability::CAP_PERFMON, "to load BPF programs of a congestion control"),
    (Capability::CAP_NET_ADMIN, "to register it"),
];

/// Capabilities kept until the end.
const KEPT: [Capability; 2] = [Capability::CAP_BPF, Capability::CAP_IPC_LOCK];

/// The real-time priority of the packet thread: the second lowest. The lowest belongs to the traffic generators of a
/// testbed, which a box must be able to interrupt. It is above every normal thread and below the kernel's own real-time
/// threads.
const PRIORITY: libc::c_int = 2;

/// The capabilities that a box requires, as a list for people.
pub fn needed() -> String {
    SET_UP.map(|(capability, _)| capability.to_string()).join(", ")
}

/// All capabilities that a box uses if it is not started as root.
fn wanted() -> String {
    format!("{} and {WELCOME}", needed())
}

/// Checks the capabilities for the set-up of a box. The error names missing ones and the fix.
pub fn check() -> io::Result<()> {
    check_all(&SET_UP, &wanted())
}

/// As [`check`], for a receivebox without a BPF program.
pub fn check_by_socket() -> io::Result<()> {
    check_all(&BY_SOCKET, &Capability::CAP_NET_RAW.to_string())
}

/// Checks the capabilities for the set-up of an agent. The error names missing ones and the fix.
pub fn check_agent() -> io::Result<()> {
    let needed = AGENT_SET_UP.map(|(capability, _)| capability.to_string());
    check_all(&AGENT_SET_UP, &needed.join(", "))
}

fn check_all(needed: &[(Capability, &str)], wanted: &str) -> io::Result<()> {
    let held = caps::read(None, CapSet::Effective).map_err(io::Error::other)?;
    let missing: Vec<String> = needed
        .iter()
        .filter(|(capability, _)| !held.contains(capability))
        .map(|(capability, use_of_it)| format!("{capability} {use_of_it}"))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("missing {}: start as root or with {wanted}", missing.join(", ")),
    ))
}

/// Gives up all privileges of the calling thread that are not needed after set-up. Threads started later inherit the
/// rest. A capability that is already missing is no error.
pub fn drop_unneeded() -> io::Result<()> {
    drop_all_but(&KEPT, None)
}

/// As [`drop_unneeded`], but keeps other capabilities, and changes to another user.
pub fn drop_all_but(kept: &[Capability], account: Option<&Account>) -> io::Result<()> {
    let failed = |error: caps::errors::CapsError| io::Error::other(error);
    let held = caps::read(None, CapSet::Permitted).map_err(failed)?;
    let kept: CapsHashSet = kept.iter().copied().filter(|kept| held.contains(kept)).collect();
    // Emptying the bounding set needs CAP_SETPCAP, which a daemon without root lacks. It does not need that either:
    // under no_new_privs no executed program gains from a bounding set.
    if held.contains(&Capability::CAP_SETPCAP) {
        for capability in caps::all() {
            if !kept.contains(&capability)
                && caps::has_cap(None, CapSet::Bounding, capability).map_err(failed)?
            {
                caps::drop(None, CapSet::Bounding, capability).map_err(failed)?;
            }
        }
    }
    nix::sys::prctl::set_no_new_privs()?;
    if let Some(account) = account {
        account.assume()?;
    }
    caps::set(None, CapSet::Effective, &kept).map_err(failed)?;
    caps::set(None, CapSet::Permitted, &kept).map_err(failed)?;
    caps::clear(None, CapSet::Inheritable).map_err(failed)
}

/// The user account that a daemon runs as after its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Name of the account.
    pub name: String,
    /// User of the account.
    pub uid: Uid,
    /// Group of the account.
    pub gid: Gid,
}

impl Account {
    /// An account without a name.
    pub fn of(uid: u32, gid: u32) -> Self {
        Self { name: String::new(), uid: Uid::from_raw(uid), gid: Gid::from_raw(gid) }
    }

    /// The account with this name; `None`: there is none.
    pub fn named(name: &str) -> io::Result<Option<Self>> {
        let found = User::from_name(name)?;
        Ok(found.map(|User { name, uid, gid, .. }| Self { name, uid, gid }))
    }

    /// Changes the calling thread to this account; its permitted capabilities stay. The C library's functions would
    /// change all threads, some of which still have set-up to do.
    pub fn assume(&self) -> io::Result<()> {
        nix::sys::prctl::set_keepcaps(true)?;
        let (uid, gid) = (self.uid.as_raw(), self.gid.as_raw());
        let made = |status: libc::c_long| {
            if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        };
        // SAFETY: an empty list and plain numbers.
        made(unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) })?;
        // SAFETY: plain numbers.
        made(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
        // SAFETY: as above.
        made(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })
    }
}

/// Restrictions that the threads of a box apply to themselves after set-up.
#[derive(Clone, Debug, Default)]
pub struct Confinement {
    /// The new user; `None`: the user stays.
    pub account: Option<Account>,
    /// The group that may request the status.
    pub status_group: Option<Gid>,
    /// A warning about the restrictions, to log later.
    pub surprise: Option<String>,
}

impl Confinement {
    /// Confinement to another user.
    pub fn to(account: Account) -> Self {
        Self { account: Some(account), ..Self::default() }
    }

    /// Starts the log. Its thread is the first one to be confined.
    pub fn start_log(&self) -> io::Result<()> {
        let confinement = self.clone();
        log::start(move || confinement.confine(Task::Log))?;
        if let Some(surprise) = &self.surprise {
            tracing::warn!(target: "privileges", "{surprise}");
        }
        Ok(())
    }

    /// Confines the calling thread to its task permanently.
    pub fn confine(&self, task: Task) -> io::Result<()> {
        let filters = seccomp::filters(task);
        let kept: &[Capability] = match task {
            Task::Packets => &KEPT,
            Task::Classes => &[Capability::CAP_BPF],
            // The files are readable by their owner only, which may be another user.
            Task::Keys => &[Capability::CAP_DAC_READ_SEARCH],
            Task::Rates => &[Capability::CAP_NET_ADMIN],
            Task::Watching
            | Task::Frames
            | Task::Control
            | Task::Log
            | Task::Trace
            | Task::Metrics
            | Task::Names => &[],
        };
        drop_all_but(kept, self.account.as_ref())?;
        // The architecture has no filter, or the kernel does not support filters.
        if let Err(error) = filters.and_then(|filters| seccomp::install(&filters)) {
            tracing::warn!(target: "privileges", %error, ?task, "no filter of system calls");
        }
        Ok(())
    }

    /// Users besides root that may own this box's files: the current one and the future one.
    pub fn owners(&self) -> Vec<u32> {
        let account = self.account.iter().map(|account| account.uid);
        account.chain([geteuid()]).map(Uid::as_raw).collect()
    }
}

/// Puts the calling thread under SCHED_FIFO. False: the kernel refuses, for example without CAP_SYS_NICE or in a
/// container.
pub fn go_realtime() -> bool {
    // The kernel's struct sched_param. The system call is direct because musl's function always fails.
    let parameter: libc::c_int = PRIORITY;
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: plain system call with a valid structure; 0 means the calling thread.
    let status =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameter) };
    status == 0
}

/// Makes the kernel wake the calling thread as close to its deadlines as possible (1 ns of slack instead of 50 us).
pub fn cut_timer_slack() {
    set_timer_slack(Duration::from_nanos(1));
}

/// Lets the kernel wake the calling thread up to this much after its deadlines, 1 ns or more. The thread then shares
/// the interrupt of another timer.
pub fn set_timer_slack(slack: Duration) {
    let slack_ns = u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX);
    // A kernel without this option keeps its own slack; that needs no report.
    let _ = nix::sys::prctl::set_timerslack(slack_ns.max(1));
}

/// Requests time slices of 0.1 ms for the calling thread, the least possible. A thread that wakes for some microseconds
/// then does not wait for the end of a slice of milliseconds (EEVDF, Linux 6.12). Its share of the processor stays the
/// same.
pub fn shorten_slices() {
    // SAFETY: plain numbers; 0 is the calling thread.
    if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
        // The thread already has another policy.
        return;
    }
    // SAFETY: as above.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: 100_000,
        sched_deadline: 0,
        sched_period: 0,
    };
    // A kernel without slices ignores the request. If it refuses, the thread wakes later; that needs no report.
    // SAFETY: the attributes outlive the call.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn systemd_units_grant_only_what_is_needed() {
        let left = |unit: &'static str| -> BTreeSet<&'static str> {
            let lists = unit.lines().filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
            lists.flat_map(|list| list.split(' ')).collect()
        };
        // For the change of user: its files, the key files, the identity, an empty bounding set.
        let change = "CAP_CHOWN CAP_DAC_READ_SEARCH CAP_SETUID CAP_SETGID CAP_SETPCAP".split(' ');
        let all = format!("{}, {WELCOME}", needed());
        let boxes = include_str!("../../../../../packaging/systemd/forebay-ROLE@.service");
        assert_eq!(left(boxes), all.split(", ").chain(change).collect());
        let of_agents = AGENT_SET_UP.map(|(capability, _)| capability.to_string());
        let agents = include_str!("../../../../../packaging/systemd/forebay-agent@.service");
        // For an empty bounding set, and the user of a child in Python.
        let change = ["CAP_SETPCAP", "CAP_SETUID", "CAP_SETGID"];
        assert_eq!(left(agents), of_agents.iter().map(String::as_str).chain(change).collect());
    }

    #[test]
    fn dropped_privileges_cannot_be_regained() {
        std::thread::spawn(|| {
            drop_unneeded().unwrap();
            for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
                let held = caps::read(None, set).unwrap();
                assert!(held.iter().all(|capability| KEPT.contains(capability)), "{held:?}");
            }
            assert!(nix::sys::prctl::get_no_new_privs().unwrap());
            assert!(caps::raise(None, CapSet::Effective, Capability::CAP_NET_ADMIN).is_err());
            if let Err(error) = check() {
                let error = error.to_string();
                let all = "CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON, CAP_IPC_LOCK and CAP_SYS_NICE";
                assert!(error.contains("CAP_NET_ADMIN to attach XDP"), "{error}");
                assert!(error.ends_with(&format!("start as root or with {all}")), "{error}");
            } else {
                panic!("CAP_NET_ADMIN is still there");
            }
        })
        .join()
        .unwrap();
    }
}
