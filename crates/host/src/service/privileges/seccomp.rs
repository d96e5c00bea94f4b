//! The system calls that a thread of a box may make after set-up (seccomp(2)).
//!
//! There are two filters, and the stricter result applies. A call outside the known needs of a thread fails with EPERM.
//! So an unforeseen call, for example from a newer C library, is an ordinary error. A packet thread that cannot go on
//! ends and leaves its traffic to the kernel.
//!
//! Calls that only an attacker makes kill the process at once: executing a program, inspecting another process,
//! changing the machine. The kernel then detaches the programs of the process, and the bridge forwards. Foreign
//! programs, such as algorithms in Python, have separate filters ([`of_others`]).

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

/// The task of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Packets and messages.
    Packets,
    /// Messages, and packets of a packet socket.
    Watching,
    /// Messages, and maps of programs that see the packets: the packets stay in the kernel.
    Classes,
    /// Frames of one receive queue.
    Frames,
    /// Signals and the control socket.
    Control,
    /// The lines of the log.
    Log,
    /// The rates of classes.
    Rates,
    /// The rows of the trace.
    Trace,
    /// Clients of the metrics.
    Metrics,
    /// The key files, in a process of its own.
    Keys,
    /// Names of other boxes, in a process of its own.
    Names,
}

impl Task {
    /// All tasks.
    #[cfg(test)]
    const ALL: [Self; 11] = [
        Self::Packets,
        Self::Watching,
        Self::Classes,
        Self::Frames,
        Self::Control,
        Self::Log,
        Self::Rates,
        Self::Trace,
        Self::Metrics,
        Self::Keys,
        Self::Names,
    ];
}

/// Calls of every thread: memory, time, waiting, open files, its end.
const ALL: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    // For abort(3), after a panic within a panic.
    libc::SYS_tgkill,
    libc::SYS_write,
    libc::SYS_writev,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// Calls on sockets that are open.
const SOCKETS: &[libc::c_long] = &[
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
];

/// Clients of the control socket, systemd, and the file of the socket at the end.
const CONTROL: &[libc::c_long] = &[
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_newfstatat,
    libc::SYS_shutdown,
    libc::SYS_statx,
    libc::SYS_unlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
];

/// Clients of the metrics, on whose behalf the thread queries the control socket.
const METRICS: &[libc::c_long] = &[libc::SYS_accept4, libc::SYS_connect, libc::SYS_shutdown];

/// Rotation of the trace.
const TRACE: &[libc::c_long] = &[
    libc::SYS_ftruncate,
    libc::SYS_openat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
];

/// Key files.
const KEYS: &[libc::c_long] = &[libc::SYS_newfstatat, libc::SYS_statx];

/// Calls that only foreign programs need: executing a program.
const EXECUTING: &[libc::c_long] = &[libc::SYS_execve, libc::SYS_execveat];

/// Further calls denied to a foreign program. It must not reach a network or another process, raise its own priority,
/// or leave the process group that ends with it. It must not leave memory, semaphores or queues behind, or use kernel
/// interfaces that the filter does not see. If a box is not started as root, its child has the same user, and could
/// otherwise end the box by a signal. Without tgkill(2), abort(3) ends by a trap.
const DENIED_TO_OTHERS: &[libc::c_long] = &[
    libc::SYS_bpf,
    libc::SYS_io_uring_setup,
    libc::SYS_kill,
    libc::SYS_mq_open,
    libc::SYS_msgget,
    libc::SYS_personality,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_semget,
    libc::SYS_setpgid,
    libc::SYS_setpriority,
    libc::SYS_setsid,
    libc::SYS_shmget,
    libc::SYS_socket,
    libc::SYS_tgkill,
    libc::SYS_tkill,
];

/// Commands of fcntl(2) that make the kernel signal another process about a file
/// (include/uapi/asm-generic/fcntl.h).
const SIGNALLING_FCNTL: [libc::c_int; 3] = [8, 10, 15]; // F_SETOWN, F_SETSIG, F_SETOWN_EX
/// Commands of ioctl(2) that make the kernel signal another process about a file
/// (include/uapi/asm-generic/sockios.h).
const SIGNALLING_IOCTL: [libc::c_int; 2] = [0x8901, 0x8902]; // FIOSETOWN, SIOCSPGRP

/// First number of the x32 calls, which some kernels accept and which the filters do not list.
const X32: u32 = 0x4000_0000;

/// Calls of the system's resolver: its files, modules and name servers. It cannot use services behind Unix sockets,
/// since the box's own control socket is one.
const NAMES: &[libc::c_long] = &[
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getpeername,
    libc::SYS_getuid,
    libc::SYS_newfstatat,
    libc::SYS_pread64,
    libc::SYS_prlimit64,
    libc::SYS_readlinkat,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_shutdown,
    libc::SYS_statx,
    libc::SYS_uname,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
];

/// Calls that no thread or program here ever needs.
const DEADLY: &[libc::c_long] = &[
    libc::SYS_add_key,
    libc::SYS_chroot,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// Commands of bpf(2) on existing maps and programs (include/uapi/linux/bpf.h). They load and create nothing, and look
/// nothing up by its number.
const BPF_COMMANDS: [u64; 7] = [
    1,  // BPF_MAP_LOOKUP_ELEM
    2,  // BPF_MAP_UPDATE_ELEM
    3,  // BPF_MAP_DELETE_ELEM
    4,  // BPF_MAP_GET_NEXT_KEY
    15, // BPF_OBJ_GET_INFO_BY_FD
    21, // BPF_MAP_LOOKUP_AND_DELETE_ELEM
    24, // BPF_MAP_LOOKUP_BATCH
];

/// Command for tasks that attach a program to a device that was made again.
const BPF_LINK_CREATE: u64 = 28;

/// Both filters of `task`; installed by [`install`].
pub fn filters(task: Task) -> io::Result<[BpfProgram; 2]> {
    let deadly = compiled(&[EXECUTING, DEADLY], SeccompAction::KillProcess)?;
    let allowed = allowed(task).map_err(io::Error::other)?;
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    Ok([deadly, compile(allowed, denied, SeccompAction::Allow)?])
}

/// All filters of a foreign program with unknown needs. It may do anything that does not harm other users of this
/// machine.
pub fn of_others() -> io::Result<[BpfProgram; 3]> {
    let deadly = compiled(&[DEADLY], SeccompAction::KillProcess)?;
    let rules = denied_to_others().map_err(io::Error::other)?;
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    Ok([deadly, compile(rules, SeccompAction::Allow, denied)?, by_number()])
}

fn denied_to_others() -> Result<Rules, BackendError> {
    let mut rules: Rules = DENIED_TO_OTHERS.iter().map(|call| (*call, Vec::new())).collect();
    // In a user namespace of its own it would have capabilities, and could reach more of the kernel.
    let user = libc::CLONE_NEWUSER as u64;
    rules.insert(libc::SYS_clone, vec![only(0, SeccompCmpOp::MaskedEq(user), user)?]);
    // Limits of another process. A process names itself as 0.
    rules.insert(libc::SYS_prlimit64, vec![only(0, SeccompCmpOp::Ne, 0)?]);
    let command = |command: &libc::c_int| only(1, SeccompCmpOp::Eq, *command as u64);
    let of_files = SIGNALLING_FCNTL.iter().map(command).collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_fcntl, of_files);
    let of_devices = SIGNALLING_IOCTL.iter().map(command).collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_ioctl, of_devices);
    Ok(rules)
}

/// A filter that only checks the number of a call. clone3(2) has its flags in memory, which filters cannot see. If the
/// call fails with ENOSYS, the C library uses clone(2).
fn by_number() -> BpfProgram {
    let step = |code: u32, otherwise: u8, k: u32| {
        let (code, jt, jf) = (code as u16, 0, otherwise);
        sock_filter { code, jt, jf, k }
    };
    let answer = |action: u32| step(libc::BPF_RET | libc::BPF_K, 0, action);
    let fail = |errno: libc::c_int| answer(libc::SECCOMP_RET_ERRNO | errno as u32);
    vec![
        // struct seccomp_data begins with the number.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_clone3 as u32),
        fail(libc::ENOSYS),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, X32),
        fail(libc::EPERM),
        answer(libc::SECCOMP_RET_ALLOW),
    ]
}

/// A filter with the action `then` for these calls, and no restriction for other calls.
fn compiled(calls: &[&[libc::c_long]], then: SeccompAction) -> io::Result<BpfProgram> {
    let rules = calls.iter().copied().flatten().map(|call| (*call, Vec::new())).collect();
    compile(rules, SeccompAction::Allow, then)
}

fn compile(rules: Rules, otherwise: SeccompAction, then: SeccompAction) -> io::Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, otherwise, then, arch).map_err(io::Error::other)?;
    BpfProgram::try_from(filter).map_err(io::Error::other)
}

/// Installs filters permanently for the calling thread, and forbids it new privileges.
pub fn install(filters: &[BpfProgram]) -> io::Result<()> {
    filters.iter().try_for_each(|filter| seccompiler::apply_filter(filter).map_err(of_kernel))
}

/// The kernel's error, with its number.
fn of_kernel(error: seccompiler::Error) -> io::Error {
    match error {
        seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
        other => io::Error::other(other),
    }
}

type Rules = BTreeMap<libc::c_long, Vec<SeccompRule>>;

fn allowed(task: Task) -> Result<Rules, BackendError> {
    let more: &[&[libc::c_long]] = match task {
        Task::Packets | Task::Watching => &[SOCKETS, &[libc::SYS_bind]],
        Task::Classes | Task::Frames => &[SOCKETS],
        Task::Control => &[SOCKETS, CONTROL],
        Task::Log => &[],
        Task::Rates => &[SOCKETS],
        Task::Trace => &[TRACE],
        Task::Metrics => &[SOCKETS, METRICS],
        Task::Keys => &[SOCKETS, KEYS],
        Task::Names => &[SOCKETS, NAMES],
    };
    let calls = ALL.iter().chain(more.iter().copied().flatten());
    let mut rules: Rules = calls.map(|call| (*call, Vec::new())).collect();
    // No memory can become executable.
    let no_code = only(2, SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64), 0)?;
    rules.insert(libc::SYS_mmap, vec![no_code.clone()]);
    rules.insert(libc::SYS_mprotect, vec![no_code.clone()]);
    let family = |family: libc::c_int| only(0, SeccompCmpOp::Eq, family as u64);
    match task {
        Task::Packets | Task::Classes => {
            let commands = BPF_COMMANDS.into_iter().chain([BPF_LINK_CREATE]);
            let commands = commands.map(|command| only(0, SeccompCmpOp::Eq, command));
            rules.insert(libc::SYS_bpf, commands.collect::<Result<_, _>>()?);
        }
        Task::Control => {
            rules.insert(libc::SYS_socket, vec![family(libc::AF_UNIX)?]);
            rules.insert(
                libc::SYS_ioctl,
                vec![only(1, SeccompCmpOp::Eq, libc::FIONBIO as libc::c_ulong)?],
            );
            rules.insert(libc::SYS_openat, vec![reading()?]);
        }
        Task::Metrics => drop(rules.insert(libc::SYS_socket, vec![family(libc::AF_UNIX)?])),
        Task::Keys => drop(rules.insert(libc::SYS_openat, vec![reading()?])),
        Task::Names => {
            let families = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
            let families = families.into_iter().map(family).collect::<Result<_, _>>()?;
            rules.insert(libc::SYS_socket, families);
            rules.insert(
                libc::SYS_ioctl,
                vec![only(1, SeccompCmpOp::Eq, libc::FIONREAD as libc::c_ulong)?],
            );
            rules.insert(libc::SYS_openat, vec![reading()?]);
            // The resolver maps its modules when it needs them, and cannot write them.
            let no_writing = only(2, SeccompCmpOp::MaskedEq(libc::PROT_WRITE as u64), 0)?;
            rules.insert(libc::SYS_mmap, vec![no_code, no_writing]);
        }
        Task::Watching | Task::Frames | Task::Log | Task::Rates | Task::Trace => {}
    }
    Ok(rules)
}

/// Allows openat(2) only for reading existing files.
fn reading() -> Result<SeccompRule, BackendError> {
    let writing = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC;
    only(2, SeccompCmpOp::MaskedEq(writing as u64), libc::O_RDONLY as u64)
}

fn only(argument: u8, comparison: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    let compared = SeccompCmpArgLen::Dword;
    SeccompRule::new(vec![SeccompCondition::new(argument, compared, comparison, value)?])
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    use nix::errno::Errno;
    use nix::sys::signal::Signal;
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork, getpid, gettid};

    use super::*;

    #[test]
    fn only_calls_that_a_task_needs_succeed() {
        for task in Task::ALL {
            let outcome = std::thread::spawn(move || {
                let existing = tempfile::NamedTempFile::new().unwrap();
                install(&filters(task).unwrap()).unwrap();
                let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
                let read = File::open(existing.path());
                let may_read =
                    matches!(task, Task::Control | Task::Trace | Task::Keys | Task::Names);
                assert_eq!(read.is_ok(), may_read, "{task:?}: {read:?}");
                let written = File::options().write(true).open(existing.path());
                assert_eq!(written.is_ok(), task == Task::Trace, "{task:?}: {written:?}");
                let bound = UdpSocket::bind("127.0.0.1:0");
                assert_eq!(bound.is_ok(), task == Task::Names, "{task:?}: {bound:?}");
                assert!(bound.is_ok() || bound.is_err_and(|error| is_denied(&error)));
                let started = std::thread::Builder::new().spawn(|| ());
                assert!(started.is_err_and(|error| is_denied(&error)), "{task:?}");
                drop((vec![1_u8; 1 << 22], std::time::Instant::now()));
                // The drop would remove the file, which this thread may not do.
                existing.into_temp_path()
            });
            outcome.join().unwrap().close().unwrap();
        }
    }

    #[test]
    fn kernel_error_of_a_filter_keeps_its_number() {
        let unfinished = by_number()[..1].to_vec();
        let refused = std::thread::spawn(move || install(&[unfinished])).join().unwrap();
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn only_packet_threads_may_attach_programs() {
        if forebay_skips::skip_without(forebay_skips::Need::Root) {
            return;
        }
        for (task, is_denied) in
            [(Task::Packets, false), (Task::Classes, false), (Task::Rates, true)]
        {
            let outcome = std::thread::spawn(move || {
                install(&filters(task).unwrap()).unwrap();
                let nothing = std::ptr::null::<u8>();
                // SAFETY: no bytes are read.
                let status = unsafe { libc::syscall(libc::SYS_bpf, BPF_LINK_CREATE, nothing, 0) };
                (status, nix::errno::Errno::last())
            });
            let (status, error) = outcome.join().unwrap();
            assert_eq!((status, error == nix::errno::Errno::EPERM), (-1, is_denied), "{error}");
        }
    }

    #[test]
    fn foreign_programs_reach_neither_networks_nor_processes() {
        let outcome = std::thread::spawn(|| {
            let file = tempfile::NamedTempFile::new().unwrap();
            install(&of_others().unwrap()).unwrap();
            assert!(File::options().write(true).open(file.path()).is_ok());
            assert!(std::process::Command::new("true").status().unwrap().success());
            assert!(std::os::unix::net::UnixStream::pair().is_ok());
            let is_denied = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
            assert!(UdpSocket::bind("127.0.0.1:0").is_err_and(is_denied));
        });
        outcome.join().unwrap();
    }

    /// The kernel's result for a call without pointer arguments.
    fn asked(
        call: libc::c_long,
        [one, two, three]: [libc::c_long; 3],
    ) -> nix::Result<libc::c_long> {
        let none: libc::c_long = 0;
        // SAFETY: plain numbers.
        Errno::result(unsafe { libc::syscall(call, one, two, three, none, none, none) })
    }

    #[test]
    fn foreign_programs_cannot_leave_group_or_signal() {
        let outcome = std::thread::spawn(|| {
            let file = tempfile::tempfile().unwrap();
            let fd = libc::c_long::from(file.as_raw_fd());
            let [process, thread] = [getpid(), gettid()].map(|it| libc::c_long::from(it.as_raw()));
            let user = libc::c_long::from(libc::CLONE_NEWUSER | libc::SIGCHLD);
            let core = libc::c_long::from(libc::RLIMIT_CORE);
            install(&of_others().unwrap()).unwrap();
            for (call, arguments) in [
                (libc::SYS_kill, [process, 0, 0]),
                (libc::SYS_tgkill, [process, thread, 0]),
                (libc::SYS_setpgid, [0, 0, 0]),
                (libc::SYS_setsid, [0, 0, 0]),
                (libc::SYS_clone, [user, 0, 0]),
                (libc::SYS_fcntl, [fd, libc::c_long::from(libc::F_SETOWN), process]),
                (libc::SYS_ioctl, [fd, libc::c_long::from(SIGNALLING_IOCTL[0]), 0]),
                (libc::SYS_prlimit64, [process, core, 0]),
                (libc::c_long::from(X32) | libc::SYS_getpid, [0, 0, 0]),
            ] {
                assert_eq!(asked(call, arguments), Err(Errno::EPERM), "{call} {arguments:?}");
            }
            assert_eq!(asked(libc::SYS_clone3, [0, 0, 0]), Err(Errno::ENOSYS));
            assert_eq!(asked(libc::SYS_prlimit64, [0, core, 0]), Ok(0));
            assert!(std::thread::spawn(|| ()).join().is_ok());
        });
        outcome.join().unwrap();
    }

    #[test]
    fn to_execute_a_program_ends_the_process() {
        let filters = filters(Task::Control).unwrap();
        // SAFETY: the child makes system calls only.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let installed = install(&filters).is_ok();
                let arguments = [c"/bin/true".as_ptr(), std::ptr::null()];
                // SAFETY: text and array are constants and end with a zero.
                unsafe {
                    libc::execv(arguments[0], arguments.as_ptr());
                    libc::_exit(if installed { 1 } else { 2 });
                }
            }
            ForkResult::Parent { child } => {
                let status = waitpid(child, None).unwrap();
                assert!(matches!(status, WaitStatus::Signaled(_, Signal::SIGSYS, _)), "{status:?}");
            }
        }
    }
}
