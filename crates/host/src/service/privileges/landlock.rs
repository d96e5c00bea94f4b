//! Write protection for foreign programs: they may write no file with a path, except `/dev/null` (landlock(7), Linux
//! 5.13).
//!
//! They can read files in `/tmp`, `/dev/shm` and `/proc` (even their own), but not write them. The rules are made
//! before the fork: between fork and exec a process may only make system calls, and a library does not promise that.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

/// Rights per version of the kernel's interface that change files with a path (include/uapi/linux/landlock.h): writing,
/// removing and making files of any kind; moving them (2); truncating them (3).
const RIGHTS: [(i32, u64); 3] = [(1, 0x1ff2), (2, 1 << 13), (3, 1 << 14)];
/// The right to write a file, LANDLOCK_ACCESS_FS_WRITE_FILE.
const WRITE_FILE: u64 = 1 << 1;
/// Flag that requests the version, LANDLOCK_CREATE_RULESET_VERSION.
const VERSION: libc::c_long = 1;
/// The kind of a rule about a path, LANDLOCK_RULE_PATH_BENEATH.
const PATH_BENEATH: libc::c_long = 1;

/// struct landlock_path_beneath_attr.
#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: RawFd,
}

/// A rule set for a process.
#[derive(Debug)]
pub struct ReadOnly(OwnedFd);

impl ReadOnly {
    /// Creates the rule set.
    ///
    /// # Errors
    ///
    /// If the kernel lacks Landlock, or it is disabled.
    pub fn new() -> io::Result<Self> {
        let none: *const u64 = std::ptr::null();
        // SAFETY: the call returns a number and reads no memory.
        let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0, VERSION) };
        let version = checked(version)?;
        let known = RIGHTS.iter().filter(|(since, _)| *since <= version);
        let handled = known.fold(0, |all, (_, rights)| all | rights);
        let size = size_of_val(&handled);
        // SAFETY: the structure of the first version is one u64.
        let rules = unsafe {
            libc::syscall(libc::SYS_landlock_create_ruleset, &raw const handled, size, 0)
        };
        // SAFETY: the kernel has just opened this descriptor, and no other owner exists.
        let rules = unsafe { OwnedFd::from_raw_fd(checked(rules)?) };
        let null = File::options().read(true).custom_flags(libc::O_PATH).open("/dev/null")?;
        let rule = PathBeneath { allowed_access: WRITE_FILE, parent_fd: null.as_raw_fd() };
        // SAFETY: `rule` has the layout that the kernel expects, and outlives the call.
        let added = unsafe {
            let number = libc::SYS_landlock_add_rule;
            libc::syscall(number, rules.as_raw_fd(), PATH_BENEATH, &raw const rule, 0)
        };
        checked(added)?;
        Ok(Self(rules))
    }

    /// Applies the rules permanently to the calling thread and to all that it starts.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, for example because the thread may still gain privileges.
    pub fn enter(&self) -> io::Result<()> {
        // SAFETY: the rules are open.
        let entered =
            unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.0.as_raw_fd(), 0) };
        checked(entered).map(drop)
    }
}

fn checked(status: libc::c_long) -> io::Result<i32> {
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(status as i32) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_null_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "1").unwrap();
        let outcome = std::thread::spawn(move || {
            nix::sys::prctl::set_no_new_privs().unwrap();
            ReadOnly::new().unwrap().enter().unwrap();
            let refused = |it: io::Result<()>| it.unwrap_err().kind();
            let denied = io::ErrorKind::PermissionDenied;
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "1");
            assert_eq!(refused(std::fs::write(&file, "2")), denied);
            assert_eq!(
                refused(File::options().write(true).truncate(true).open(&file).map(drop)),
                denied
            );
            assert_eq!(refused(std::fs::write(folder.path().join("other"), "2")), denied);
            assert_eq!(refused(std::fs::create_dir(folder.path().join("folder"))), denied);
            assert_eq!(refused(std::fs::remove_file(&file)), denied);
            assert_eq!(refused(std::fs::write("/dev/shm/forebay-test", "2")), denied);
            assert_eq!(refused(std::fs::write("/proc/self/oom_score_adj", "0")), denied);
            std::fs::write("/dev/null", "3").unwrap();
            let folder = folder.keep();
            assert!(std::process::Command::new("rmdir").arg(&folder).output().is_ok());
            folder
        });
        std::fs::remove_dir_all(outcome.join().unwrap()).unwrap();
    }
}
