//! A container with a systemd of its own, on the kernel that runs here: one boot and its output.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::guest;

/// Where a container's service writes, as seen inside.
pub const LOG: &str = "/trial/log";
/// Longest boot.
const PATIENCE: Duration = Duration::from_secs(900);
/// Mounts for systemd-nspawn, independent of the machine's. It wants a /run on a tmpfs, and one hierarchy of control
/// groups.
const MOUNTS: &str = "mount --make-rprivate / && mount -t tmpfs run /run && umount -R /sys/fs/cgroup && \
                      mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec systemd-nspawn \"$@\"";

/// Boots `root` until it powers off; `log` gets its service's output, too.
pub fn run(root: &Path, log: &Path) -> Result<String> {
    let mut child = Command::new("unshare")
        .args(["--mount", "sh", "-c", MOUNTS, "sh", "--quiet", "--boot", "--console=pipe", "-D"])
        .arg(root)
        .args(["--private-network", "--capability=all", "--register=no", "--keep-unit"])
        .env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1")
        .env("SYSTEMD_NSPAWN_API_VFS_WRITABLE", "1")
        // Without this, systemd's filter blocks bpf(2).
        .env("SYSTEMD_SECCOMP", "0")
        .stdin(Stdio::null())
        .stdout(File::create(log)?)
        .spawn()
        .context("unshare")?;
    guest::await_end(&mut child, PATIENCE)?;
    let printed = root.join(LOG.trim_start_matches('/'));
    ensure!(
        printed.exists(),
        "the container did not boot: {} (systemd-nspawn, run as root; `make test-package` installs it)",
        log.display()
    );
    let text = String::from_utf8_lossy(&fs::read(printed)?).into_owned();
    fs::write(log, &text)?;
    // Line ends as on a guest's console.
    Ok(text.replace('\n', "\r\n"))
}
