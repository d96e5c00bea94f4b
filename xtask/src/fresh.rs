//! Tests that the lists of packages are complete: runs the README's commands in a bare Debian 12 root.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;

/// Packages that a user has installed besides bare Debian 12. rustup is bound into the root.
const PRESENT: [&str; 3] = ["ca-certificates", "make", "python3"];

/// Certificate authorities that this machine trusts.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Builds a root with debootstrap for each of the README's commands, and runs the command there. The root
/// gets a clean clone and this machine's Rust toolchain. Run it as root, with `debootstrap` installed.
pub fn test_fresh() -> Result<()> {
    for command in ["make test", "make demo"] {
        run_in_a_bare_root(command)?;
    }
    println!("make test and make demo pass in a bare Debian 12 with only the listed packages");
    Ok(())
}

fn run_in_a_bare_root(command: &str) -> Result<()> {
    let root = tempfile::Builder::new().prefix("forebay-fresh-").tempdir_in("/var/tmp")?;
    let system = root.path();
    run(Command::new("debootstrap").args(["--variant=minbase", "bookworm"]).arg(system))
        .context("debootstrap (apt-get install debootstrap; run as root)")?;
    let clone = system.join("src/forebay");
    run(Command::new("git").args(["clone", "--quiet"]).arg(crate::repository()).arg(&clone))?;
    let _mounts = Mounts::over(system)?;
    let packages = PRESENT.join(" ");
    in_root(system, &format!("apt-get update -qq && apt-get install -y -qq {packages}"))?;
    // If this machine is behind an intercepting proxy, its list has the proxy's certificate.
    std::fs::copy(CERTIFICATES, system.join(&CERTIFICATES[1..])).context(CERTIFICATES)?;
    in_root(system, command).with_context(|| format!("`{command}` in a bare Debian 12"))
}

fn in_root(system: &Path, command: &str) -> Result<()> {
    let script = format!(
        "cd /src/forebay && export HOME=/root DEBIAN_FRONTEND=noninteractive CI=true PIP_CERT={CERTIFICATES} && \
         export PATH=$HOME/.cargo/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin && {command}"
    );
    // The full path is needed: the empty environment has no PATH.
    run(Command::new("/usr/sbin/chroot").arg(system).args(["/bin/sh", "-ec", &script]).env_clear())
}

/// Mounts in the new root. Dropping this unmounts them in reverse order, also after a failure.
struct Mounts(Vec<PathBuf>);

impl Mounts {
    fn over(system: &Path) -> Result<Self> {
        let home = std::env::var_os("HOME").map_or_else(|| "/root".into(), PathBuf::from);
        let Some(toolchains) = Some(home.join(".rustup")).filter(|path| path.is_dir()) else {
            bail!("no rustup in {}", home.display());
        };
        let mut mounts = Self(Vec::new());
        // Tests create mount namespaces, and the root of such a namespace must be a mount.
        mounts.bind(system, system)?;
        mounts.bind("/proc".as_ref(), &system.join("proc"))?;
        mounts.bind("/sys".as_ref(), &system.join("sys"))?;
        mounts.bind("/dev".as_ref(), &system.join("dev"))?;
        mounts.bind(&toolchains, &system.join("root/.rustup"))?;
        mounts.bind(&home.join(".cargo"), &system.join("root/.cargo"))?;
        for file in ["/etc/resolv.conf", "/etc/hosts"] {
            std::fs::copy(file, system.join(&file[1..])).with_context(|| file.to_string())?;
        }
        // This machine's package sources and proxies.
        for folder in ["/etc/apt/sources.list.d", "/etc/apt/apt.conf.d"] {
            let target = system.join(&folder[1..]);
            run(Command::new("cp").args(["-rT", folder]).arg(target))?;
        }
        Ok(mounts)
    }

    fn bind(&mut self, source: &Path, target: &Path) -> Result<()> {
        std::fs::create_dir_all(target)?;
        run(Command::new("mount").arg("--rbind").arg(source).arg(target))?;
        run(Command::new("mount").arg("--make-rslave").arg(target))?;
        self.0.push(target.into());
        Ok(())
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for target in self.0.iter().rev() {
            if let Err(error) = run(Command::new("umount").arg("-R").arg(target)) {
                eprintln!("warning: {error:#}");
            }
        }
    }
}
