//! Named network namespaces as in ip-netns(8): each is mounted on a file in `/run/netns`.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, setns, unshare};

use crate::netlink::Commands;

/// Folder with the names of network namespaces.
pub const FOLDER: &str = "/run/netns";

/// A network namespace that was just created.
pub struct Made {
    /// The namespace.
    pub file: File,
    /// A socket in the namespace.
    pub commands: Commands,
}

/// Creates a network namespace with this name and IPv6 disabled. Needs `CAP_SYS_ADMIN`.
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

/// Makes mounts in the folder visible in all other mount namespaces, as ip-netns(8) does.
fn share_folder() -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(FOLDER)?;
    let shared = || {
        let how = MsFlags::MS_SHARED | MsFlags::MS_REC;
        mount(None::<&str>, FOLDER, None::<&str>, how, None::<&str>)
    };
    match shared() {
        // The folder is not a mount point yet.
        Err(Errno::EINVAL) => {
            let how = MsFlags::MS_BIND | MsFlags::MS_REC;
            mount(Some(FOLDER), FOLDER, None::<&str>, how, None::<&str>)?;
            Ok(shared()?)
        }
        done => Ok(done?),
    }
}

/// Removes the name, and with it the namespace, unless a process holds it. A missing one is no error.
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

/// The names with this prefix, without the prefix.
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
        // No namespace is mounted on the file.
        Err(Errno::EINVAL) => Ok(false),
        Err(error) => Err(error.into()),
    })
}

fn path_of(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Runs `work` on a separate thread, which may change its namespace.
fn apart<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let panicked = |_| Err(io::Error::other("the thread of a namespace panicked"));
    std::thread::spawn(work).join().unwrap_or_else(panicked)
}
