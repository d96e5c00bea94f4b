//! Network namespaces without a name: the kernel removes them and their devices once the last
//! process and the last open file are gone, also after `kill -9`.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// A network namespace held open by this process, if requested with a BPF file system for pins.
#[derive(Debug)]
pub struct Namespace {
    file: OwnedFd,
    /// Shared, since programs find it by its number.
    bpffs: Option<Arc<OwnedFd>>,
}

impl Namespace {
    /// Makes a namespace with only a loopback device, which is down.
    ///
    /// Needs `CAP_SYS_ADMIN`.
    pub fn new() -> io::Result<Self> {
        // Only the extra thread moves; the caller stays in its namespace.
        on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(Self { file: File::open("/proc/thread-self/ns/net")?.into(), bpffs: None })
        })
    }

    /// Another handle of this namespace.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()?, bpffs: self.bpffs.clone() })
    }

    /// This network with a BPF file system, and the path by which programs inside find it. The file
    /// system is not mounted anywhere (Linux 5.2). Its pins vanish with the last user of the
    /// returned namespace, in any mount namespace.
    ///
    /// Needs `CAP_SYS_ADMIN`.
    pub fn with_bpffs(&self) -> io::Result<(Self, PathBuf)> {
        let context = fsopen("bpf", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let attributes = MountAttrFlags::empty();
        let bpffs = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        let path = format!("/proc/self/fd/{}", bpffs.as_raw_fd()).into();
        Ok((Self { file: self.file.try_clone()?, bpffs: Some(bpffs.into()) }, path))
    }

    /// A file through which other processes can enter, as long as this one lives.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", getpid(), self.file.as_raw_fd()).into()
    }

    /// Runs `work` inside the namespace, on a thread of its own.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        on_thread(|| {
            setns(&self.file, CloneFlags::CLONE_NEWNET)?;
            work()
        })
    }

    /// Makes `command` start inside the namespace and die with the thread that spawns it.
    pub fn host(&self, command: &mut Command) -> io::Result<()> {
        let file = self.file.try_clone()?;
        let bpffs = self.bpffs.clone();
        let enter = move || {
            setns(&file, CloneFlags::CLONE_NEWNET)?;
            if let Some(bpffs) = &bpffs {
                // The started program must inherit the file.
                fcntl(bpffs, FcntlArg::F_SETFD(FdFlag::empty()))?;
            }
            Ok(())
        };
        // SAFETY: setns(2) and fcntl(2) are plain system calls, allowed after fork(2).
        unsafe { command.pre_exec(enter) };
        die_with_parent(command);
        Ok(())
    }
}

/// Makes the kernel kill the process of `command` when the thread that spawned it ends.
pub(super) fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    let bind = move || {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        // The parent may have died before the line above.
        if is_orphan(parent) { Err(Errno::ESRCH.into()) } else { Ok(()) }
    };
    // SAFETY: prctl(2) and getppid(2) are plain system calls, allowed after fork(2).
    unsafe { command.pre_exec(bind) };
}

fn is_orphan(parent: Pid) -> bool {
    getppid() != parent
}

fn on_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = scope.spawn(work);
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::tests::skip_without_root;

    #[test]
    fn namespace_isolates_network_until_dropped() {
        if skip_without_root() {
            return;
        }
        let own = fs::read_link("/proc/thread-self/ns/net").unwrap();
        let namespace = Namespace::new().unwrap();
        let inside = namespace.within(|| fs::read_link("/proc/thread-self/ns/net")).unwrap();
        assert_ne!(inside, own);
        assert_eq!(fs::read_link("/proc/thread-self/ns/net").unwrap(), own);
        let path = namespace.path();
        // While the file is open, no namespace of another test gets its number.
        let _held = File::open(&path).unwrap();
        drop(namespace);
        assert_ne!(fs::read_link(&path).ok(), Some(inside));
    }

    #[test]
    fn pin_file_system_exists_only_inside() {
        if skip_without_root() {
            return;
        }
        let (namespace, path) = Namespace::new().unwrap().with_bpffs().unwrap();
        let kind = |command: &mut Command| {
            let output = command.args(["-L", "-f", "-c", "%T"]).arg(&path).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_string()
        };
        let mut inside = Command::new("stat");
        namespace.host(&mut inside).unwrap();
        assert_eq!(kind(&mut inside), "bpf_fs");
        assert_ne!(kind(&mut Command::new("stat")), "bpf_fs");
    }

    #[test]
    fn a_child_starts_inside() {
        if skip_without_root() {
            return;
        }
        let namespace = Namespace::new().unwrap();
        let inside = namespace.within(|| fs::read_link("/proc/thread-self/ns/net")).unwrap();
        let mut command = Command::new("readlink");
        command.arg("/proc/self/ns/net");
        namespace.host(&mut command).unwrap();
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), inside.to_str().unwrap());
    }
}
