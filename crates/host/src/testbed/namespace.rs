//! Network namespaces without a name: the kernel removes them, with their devices, when the last
//! process and the last open file are gone, also after `kill -9`.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getppid};

/// A network namespace held open by this process, and where asked for one of mounts.
#[derive(Debug)]
pub struct Namespace {
    file: OwnedFd,
    mounts: Option<OwnedFd>,
}

impl Namespace {
    /// Makes a namespace with nothing in it but a loopback device that is down.
    ///
    /// Needs `CAP_SYS_ADMIN`.
    pub fn new() -> io::Result<Self> {
        // The thread is there to be moved: the caller stays where it is.
        on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(Self { file: File::open("/proc/thread-self/ns/net")?.into(), mounts: None })
        })
    }

    /// The same once more.
    pub fn try_clone(&self) -> io::Result<Self> {
        let mounts = self.mounts.as_ref().map(OwnedFd::try_clone).transpose()?;
        Ok(Self { file: self.file.try_clone()?, mounts })
    }

    /// The same network, where programs see a BPF file system of their own at `path`: what they pin
    /// there goes with the last user of what is returned.
    ///
    /// Needs `CAP_SYS_ADMIN`.
    pub fn with_bpffs(&self, path: &Path) -> io::Result<Self> {
        let file = self.file.try_clone()?;
        on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNS)?;
            let (none, all) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
            mount(none, "/", none, all, none)?;
            mount(Some("bpf"), path, Some("bpf"), MsFlags::empty(), none)?;
            Ok(Self { file, mounts: Some(File::open("/proc/thread-self/ns/mnt")?.into()) })
        })
    }

    /// A file through which other processes can enter, as long as this one lives.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", getpid(), self.file.as_raw_fd()).into()
    }

    /// Runs `work` inside, on a thread of its own.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        on_thread(|| {
            setns(&self.file, CloneFlags::CLONE_NEWNET)?;
            work()
        })
    }

    /// Makes `command` start inside and die with the thread that spawns it.
    pub fn host(&self, command: &mut Command) -> io::Result<()> {
        let file = self.file.try_clone()?;
        let mounts = self.mounts.as_ref().map(OwnedFd::try_clone).transpose()?;
        let enter = move || {
            setns(&file, CloneFlags::CLONE_NEWNET)?;
            mounts.as_ref().map_or(Ok(()), |mounts| setns(mounts, CloneFlags::CLONE_NEWNS))?;
            Ok(())
        };
        // SAFETY: setns(2) is a plain system call, which is all that is allowed after fork(2).
        unsafe { command.pre_exec(enter) };
        die_with_parent(command);
        Ok(())
    }
}

/// Makes the kernel kill what `command` starts when the thread that spawned it ends.
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
    use crate::testbed::tests::skip_without_root;

    #[test]
    fn a_namespace_is_another_network_and_vanishes_when_dropped() {
        if skip_without_root() {
            return;
        }
        let own = fs::read_link("/proc/thread-self/ns/net").unwrap();
        let namespace = Namespace::new().unwrap();
        let inside = namespace.within(|| fs::read_link("/proc/thread-self/ns/net")).unwrap();
        assert_ne!(inside, own);
        assert_eq!(fs::read_link("/proc/thread-self/ns/net").unwrap(), own);
        let path = namespace.path();
        // While it is open, no other test's namespace gets its number.
        let _held = File::open(&path).unwrap();
        drop(namespace);
        assert_ne!(fs::read_link(&path).ok(), Some(inside));
    }

    #[test]
    fn a_file_system_for_pins_is_seen_inside_only() {
        if skip_without_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let namespace = Namespace::new().unwrap().with_bpffs(folder.path()).unwrap();
        let kind = |command: &mut Command| {
            let output = command.args(["-f", "-c", "%T"]).arg(folder.path()).output().unwrap();
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
