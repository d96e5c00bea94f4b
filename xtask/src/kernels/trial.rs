//! The package as an operator uses it: installed in a Debian 12 under systemd, between two sites. It is upgraded and
//! rolled back under traffic, and removed without a trace. The steps are functions of `trial.sh`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use forebay_package::{debs, remove};
use tempfile::TempDir;

use super::image::{self, Image};
use super::{Check, container};
use crate::run;

/// The steps, as a shell has them.
const STEPS: &str = include_str!("trial.sh");
/// The first program of the guest.
const INIT: &str = include_str!("debian.sh");
/// Packages in the guest that the steps and the package need, in addition to systemd.
const PACKAGES: [&str; 11] = [
    "systemd-sysv",
    "bpftool",
    "ethtool",
    "iperf3",
    "iproute2",
    "iputils-ping",
    "jq",
    "kmod",
    "libelf1",
    "procps",
    "zlib1g",
];
/// Folders of Debian that are left out, because no step needs them.
const LEFT_OUT: [&str; 6] =
    ["usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache", "var/lib/apt", "boot"];

/// The service that runs the steps; the caller appends the target of the output.
const SERVICE: &str = "[Unit]\nAfter=basic.target\nSuccessAction=poweroff-immediate\nFailureAction=poweroff-immediate\n\
    [Service]\nType=oneshot\nEnvironment=HOME=/root\nExecStart=/bin/sh /trial/run\nTimeoutStartSec=infinity\n\
    StandardError=inherit\n";
/// The boot target of a guest.
const TARGET: &str =
    "[Unit]\nRequires=basic.target trial.service\nAfter=basic.target\nAllowIsolate=yes\n";
/// The console of a guest.
const CONSOLE: &str = "StandardOutput=tty\nTTYPath=/dev/console\n";

const fn step(name: &'static str, command: &'static str, says: &'static str) -> Check {
    Check { name, command, exit: 0, says }
}

/// Both packages install, and no box runs yet.
const INSTALLED: Check = step("installed", "installed", "nothing runs");
/// The laboratory is a package of its own.
const LABORATORY: Check = step("laboratory", "laboratory", "a package of its own");
/// Both boxes run as units with their sandbox.
const SANDBOXED: Check = step("units under their sandbox", "started", "both boxes run");
/// The sendbox shapes traffic.
const SHAPED: Check = step("traffic is shaped", "shaped", "shaping");
/// A reload keeps the process.
const RELOADED: Check = step("reload", "reloaded", "same process");
/// A killed box starts again, and connections survive.
const KILLED: Check = step("killed under traffic", "killed", "no connection reset");
/// The watchdog ends a hung box, and connections survive.
const HUNG: Check = step("hung under traffic", "hung", "no connection reset");
/// An upgrade restarts the boxes, and connections survive.
const UPGRADED: Check = step("upgraded under traffic", "exchange 2", "no connection reset");
/// A downgrade restarts the boxes, and connections survive.
const ROLLED_BACK: Check = step("rolled back under traffic", "exchange 1", "no connection reset");
/// At an upgrade to a program that refuses the configuration, the old one keeps running.
const REFUSED: Check = step("configuration refused at an upgrade", "refused", "keeps running");
/// On a kernel that is too old, the unit of the agent fails and names the needed version.
const NO_AGENT: Check = step("unit of the agent is refused", "no_agent", "needs Linux 6.4");
/// The unit of an agent registers its algorithm.
const AGENT: Check = step("unit of the agent", "agent", "fb_cubic");
/// After a removal under traffic, the kernel forwards.
const REMOVED: Check = step("removed under traffic", "removed", "the kernel forwards");
/// A purge leaves the machine as it was before the installation.
const PURGED: Check = step("purged", "purged", "as before");

/// Steps on a kernel on which no agent can run.
pub(super) const WITHOUT_AGENT: [Check; 13] = steps(NO_AGENT);
/// Steps on kernels with agents.
pub(super) const WITH_AGENT: [Check; 13] = steps(AGENT);

const fn steps(agent: Check) -> [Check; 13] {
    [
        INSTALLED,
        LABORATORY,
        SANDBOXED,
        SHAPED,
        RELOADED,
        KILLED,
        HUNG,
        UPGRADED,
        ROLLED_BACK,
        REFUSED,
        agent,
        REMOVED,
        PURGED,
    ]
}

/// The common part of all kernels: Debian's files, and the packages of two versions, the boxes' package first.
pub struct Trial {
    debian: PathBuf,
    packages: [Vec<PathBuf>; 2],
}

impl Trial {
    /// Builds packages by this profile of cargo, and makes a Debian in `folder`.
    pub fn prepare(folder: &Path, profile: &str) -> Result<Self> {
        let packages = [debs(profile, "1.0.1")?, debs(profile, "1.0.2")?];
        Ok(Self { debian: debian(folder)?, packages })
    }

    /// Checks the packages of a version with Debian's checker, and their Ansible role with Ansible.
    pub fn lint(&self) -> Result<()> {
        let mut lintian = Command::new("lintian");
        run(lintian.args(["--allow-root", "--fail-on", "error,warning"]).args(&self.packages[0]))
            .context("lintian (`make test-package` installs it)")?;
        let mut playbook = Command::new("ansible-playbook");
        playbook.current_dir(crate::repository().join("packaging/ansible"));
        run(playbook.args(["--syntax-check", "--inventory", "boxes,", "site.yml"]))
            .context("ansible-playbook (`make test-package` installs it)")
    }

    /// Packs the initramfs of a guest that boots Debian from memory and runs `script`.
    pub fn pack(&self, folder: &Path, image: &Image, script: &str) -> Result<PathBuf> {
        let tree = tempfile::Builder::new().prefix("trial-").tempdir_in(folder)?;
        let (tree, added) = (tree.path().join("tree"), tree.path().join("added"));
        for below in ["bin", "new"] {
            std::fs::create_dir_all(tree.join(below))?;
        }
        image::pack_shell(&tree)?;
        image::write_program(&tree.join("init"), INIT)?;
        self.add(&added, CONSOLE, script)?;
        let modules = added.join("usr/lib/modules");
        std::fs::create_dir_all(&modules)?;
        run(Command::new("cp").arg("-r").arg(&image.modules).arg(&modules))?;
        let mut depmod = Command::new("/sbin/depmod");
        run(depmod.arg("-b").arg(added.join("usr")).arg(&image.release))?;
        let root = tree.join("root.tar");
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(&root).args(LEFT_OUT.map(|place| format!("--exclude=./{place}/*")));
        run(tar
            .arg("-C")
            .arg(&self.debian)
            .arg(".")
            .arg("-C")
            .arg(&added)
            .args(["etc", "trial", "usr"]))?;
        image::initramfs(folder, &tree)
    }

    /// Makes the root of a container that boots Debian and runs `script`.
    pub fn unpack(&self, folder: &Path, script: &str) -> Result<TempDir> {
        let root = tempfile::Builder::new().prefix("trial-").tempdir_in(folder)?;
        run(Command::new("cp").arg("-a").arg(self.debian.join(".")).arg(root.path()))?;
        self.add(root.path(), &format!("StandardOutput=append:{}\n", container::LOG), script)?;
        Ok(root)
    }

    /// Adds the steps, both versions of the boxes, a laboratory, and the units that run `script` with this `output`.
    fn add(&self, root: &Path, output: &str, script: &str) -> Result<()> {
        let (trial, units) = (root.join("trial"), root.join("etc/systemd/system"));
        for folder in [&trial, &units] {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(trial.join("run"), format!("{STEPS}\n{script}"))?;
        let [first, second] = &self.packages;
        for (name, package) in [("1", &first[0]), ("2", &second[0]), ("laboratory", &first[1])] {
            std::fs::copy(package, trial.join(format!("{name}.deb")))?;
        }
        std::fs::write(units.join("trial.service"), format!("{SERVICE}{output}"))?;
        std::fs::write(units.join("default.target"), TARGET)?;
        // Otherwise systemd asks the questions of a machine's first boot.
        std::fs::write(root.join("etc/machine-id"), "0123456789abcdef0123456789abcdef\n")?;
        Ok(())
    }
}

/// The files of a Debian 12 with systemd, made once.
fn debian(folder: &Path) -> Result<PathBuf> {
    let made = folder.join("debian");
    if made.is_dir() {
        return Ok(made);
    }
    let unfinished = folder.join("debian.unfinished");
    remove(&unfinished)?;
    run(Command::new("debootstrap")
        .args(["--variant=minbase", "--include", &PACKAGES.join(","), "bookworm"])
        .arg(&unfinished))
    .context("debootstrap (`make test-package` installs it; run as root)")?;
    std::fs::rename(&unfinished, &made)?;
    Ok(made)
}
