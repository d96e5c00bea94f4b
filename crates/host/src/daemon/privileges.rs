//! What the daemons may do, and when they give it up.
//!
//! | capability | for what | kept |
//! |---|---|---|
//! | CAP_NET_ADMIN | attaching XDP programs, large socket buffers; asking for packet filters | by the observer |
//! | CAP_NET_RAW | AF_XDP sockets | no |
//! | CAP_BPF | loading programs, making maps; later reading and setting maps | yes |
//! | CAP_IPC_LOCK | rings of AF_XDP sockets, also of devices that are made again | yes |
//! | CAP_SYS_NICE | SCHED_FIFO for the packet thread | no |
//! | CAP_PERFMON | loading the programs of a congestion control (agent) | no |
//!
//! CAP_BPF stays because kernels with `unprivileged_bpf_disabled` refuse map operations without it.
//! The user stays as it is, so that a reload can read the key files of that user. A daemon started
//! as root keeps no other power of root: the bounding set is emptied too, and `no_new_privs` keeps
//! any child from getting it back.

use std::io;
use std::time::Duration;

use caps::{CapSet, Capability, CapsHashSet};

/// Capabilities that set-up needs, with the use that the error names.
const SET_UP: [(Capability, &str); 3] = [
    (Capability::CAP_NET_ADMIN, "to attach XDP programs"),
    (Capability::CAP_NET_RAW, "to open AF_XDP sockets"),
    (Capability::CAP_BPF, "to load BPF programs"),
];

/// Capabilities that an agent's set-up needs.
const AGENT_SET_UP: [(Capability, &str); 3] = [
    (Capability::CAP_BPF, "to load BPF programs"),
    (Capability::CAP_PERFMON, "to load those of a congestion control"),
    (Capability::CAP_NET_ADMIN, "to register it"),
];

/// Capabilities that stay until the end.
const KEPT: [Capability; 2] = [Capability::CAP_BPF, Capability::CAP_IPC_LOCK];

/// The real-time priority of the packet thread: the second lowest, since the lowest belongs to the
/// traffic generators of a testbed, which a box must be able to interrupt. It stands above every
/// normal thread; the kernel's own real-time threads stay above it.
const PRIORITY: libc::c_int = 2;

/// Says which capabilities are missing for the set-up of a box, with the fix.
pub fn check() -> io::Result<()> {
    check_all(&SET_UP)
}

/// Says which capabilities are missing for the set-up of an agent, with the fix.
pub fn check_agent() -> io::Result<()> {
    check_all(&AGENT_SET_UP)
}

fn check_all(needed: &[(Capability, &str)]) -> io::Result<()> {
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
        format!("missing {}: start as root or with these capabilities", missing.join(", ")),
    ))
}

/// Gives up, in the calling thread, all that is not needed after set-up. Threads started later
/// inherit the rest. A capability that is missing already is no error.
pub fn drop_unneeded() -> io::Result<()> {
    drop_all_but(&KEPT)
}

/// As [`drop_unneeded`], with other capabilities that stay.
pub fn drop_all_but(kept: &[Capability]) -> io::Result<()> {
    let failed = |error: caps::errors::CapsError| io::Error::other(error);
    let held = caps::read(None, CapSet::Permitted).map_err(failed)?;
    let kept: CapsHashSet = kept.iter().copied().filter(|kept| held.contains(kept)).collect();
    // Needs CAP_SETPCAP, which a daemon that is not root has not: it has no bounding set to use
    // either, since nothing it executes could gain from it under no_new_privs.
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
    caps::set(None, CapSet::Effective, &kept).map_err(failed)?;
    caps::set(None, CapSet::Permitted, &kept).map_err(failed)?;
    caps::clear(None, CapSet::Inheritable).map_err(failed)
}

/// Puts the calling thread under SCHED_FIFO; false where the kernel does not allow it, such as
/// without CAP_SYS_NICE or in a container.
pub fn go_realtime() -> bool {
    let parameter = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: plain system call with a valid structure; 0 means the calling thread.
    let status = unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameter)
    };
    status == 0
}

/// Has the kernel wake the calling thread as close to its deadlines as it can (1 ns of slack
/// instead of 50 us).
pub fn cut_timer_slack() {
    set_timer_slack(Duration::from_nanos(1));
}

/// Lets the kernel wake the calling thread so much later than its deadlines, 1 ns or more, if an
/// interrupt comes meanwhile that is for another timer: one for itself is spared then.
pub fn set_timer_slack(slack: Duration) {
    let slack_ns = u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX);
    // A kernel without it keeps its own: nothing to report.
    let _ = nix::sys::prctl::set_timerslack(slack_ns.max(1));
}

/// Has the calling thread ask the scheduler for slices of 0.1 ms, the least there is: one that wakes
/// for some microseconds then need not wait for the end of another's slice of milliseconds (EEVDF,
/// Linux 6.12). Its share of the processor stays the same.
pub fn shorten_slices() {
    // SAFETY: plain numbers; 0 is the calling thread.
    if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
        // Somebody has chosen another policy for it.
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
    // A kernel that knows no slices ignores it, and one that refuses it wakes later: nothing to report.
    // SAFETY: the attributes outlive the call.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_needed_is_left_and_it_cannot_come_back() {
        std::thread::spawn(|| {
            drop_unneeded().unwrap();
            for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
                let held = caps::read(None, set).unwrap();
                assert!(held.iter().all(|capability| KEPT.contains(capability)), "{held:?}");
            }
            assert!(nix::sys::prctl::get_no_new_privs().unwrap());
            assert!(caps::raise(None, CapSet::Effective, Capability::CAP_NET_ADMIN).is_err());
            if let Err(error) = check() {
                assert!(error.to_string().contains("CAP_NET_ADMIN to attach XDP"), "{error}");
            } else {
                panic!("CAP_NET_ADMIN is still there");
            }
        })
        .join()
        .unwrap();
    }
}
