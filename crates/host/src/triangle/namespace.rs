//! Network namespaces with a name, as ip-netns(8) has them: a file in `/run/netns` that the namespace is mounted on.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, setns, unshare};

use crate::netlink::Commands;

/// Where names of network namespaces are.
pub const FOLDER: &str = "/run/netns";

/// A network namespace that was just made.
pub struct Made {
    /// The namespace.
    pub file: File,
    /// A socket there.
    pub commands: Commands,
}

/// Makes a network namespace with this name, in which IPv6 is off. Needs `CAP_SYS_ADMIN`.
pub fn make(name: &str) -> io::Result<Made> {
    share_folder()?;
    let path = path_of(name);
    apart(move || {
        unshare(CloneFlags::CLONE_NEWNET)?;
        for which in ["all", "default"] {
            let key = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
            match fs::write(key, "1") {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                written => written?,
            }
        }
        File::options().write(true).create_new(true).open(&path)?;
        let own = "/proc/thread-self/ns/net";
        mount(Some(own), &path, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
        Ok(Made { file: File::open(own)?, commands: Commands::open()? })
    })
}

/// Has what is mounted in the folder show in all other mount namespaces, as ip-netns(8) does.
fn share_folder() -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(FOLDER)?;
    let shared = || {
        let how = MsFlags::MS_SHARED | MsFlags::MS_REC;
        mount(None::<&str>, FOLDER, None::<&str>, how, None::<&str>)
    };
    match shared() {
        // It is no place that something is mounted on yet.
        Err(Errno::EINVAL) => {
            let how = MsFlags::MS_BIND | MsFlags::MS_REC;
            mount(Some(FOLDER), FOLDER, None::<&str>, how, None::<&str>)?;
            Ok(shared()?)
        }
        done => Ok(done?),
    }
}

/// Removes the name, and so the namespace, unless somebody holds it. One that is not there is no error.
pub fn remove(name: &str) -> io::Result<()> {
    let path = path_of(name);
    match umount2(&path, MntFlags::MNT_DETACH) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
        Err(error) => return Err(error.into()),
    }
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The names that begin so, without that.
pub fn names(prefix: &str) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(FOLDER) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| Some(name.strip_prefix(prefix)?.to_string())).collect())
}

/// Whether a namespace has this device. Needs `CAP_SYS_ADMIN`.
pub fn has_device(name: &str, device: &'static str) -> io::Result<bool> {
    let file = File::open(path_of(name))?;
    apart(move || match setns(&file, CloneFlags::CLONE_NEWNET) {
        Ok(()) => Ok(if_nametoindex(device).is_ok()),
        // A file that no namespace is mounted on.
        Err(Errno::EINVAL) => Ok(false),
        Err(error) => Err(error.into()),
    })
}

fn path_of(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Runs `work` on a thread of its own, which may be moved.
fn apart<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let panicked = |_| Err(io::Error::other("the thread of a namespace panicked"));
    std::thread::spawn(work).join().unwrap_or_else(panicked)
}
