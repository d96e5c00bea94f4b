//! Boot files of a guest: a Debian kernel, and an initramfs with our programs.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use forebay_package::remove;
use serde_json::Value;

use super::{copy, folder};
use crate::run;

/// The first program of a guest.
const INIT: &str = include_str!("init.sh");
/// Modules in the order in which they are loaded.
const MODULES: [&str; 14] = [
    "llc",
    "stp",
    "bridge",
    "veth",
    "inet_diag",
    "tcp_diag",
    "sch_htb",
    "sch_tbf",
    "sch_fq_codel",
    "sch_cake",
    "sch_fq",
    "sch_sfq",
    "sch_ingress",
    "tun",
];
/// Programs of this machine that the tests need: busybox has different ones, and its shell prefers its own `tc`.
const TOOLS: [&str; 5] = ["ip", "sh", "ss", "tc", "unshare"];
/// Folders of the modules that any check may need, below the kernel's own folder.
const MODULE_FOLDERS: [&str; 7] = [
    "drivers/net/tun.ko*",
    "drivers/net/veth.ko*",
    "net/802/*",
    "net/bridge/*",
    "net/ipv4/*",
    "net/llc/*",
    "net/sched/*",
];

/// A fetched kernel.
pub struct Image {
    /// Release as `uname -r` prints it.
    pub release: String,
    /// The kernel image.
    pub kernel: PathBuf,
    /// The folder of its modules.
    pub modules: PathBuf,
}

/// Our programs, by their names in the guest.
pub struct Programs {
    all: Vec<(&'static str, PathBuf)>,
    /// The path at which the tests of the app look for it.
    forebay: PathBuf,
}

impl Programs {
    /// Builds them.
    pub fn build() -> Result<Self> {
        let ebpf = built(&["-p", "forebay-ebpf", "--lib"])?;
        let host = built(&["-p", "forebay-host", "--lib"])?;
        let datapath = built(&["-p", "forebay-host", "--test", "datapath"])?;
        let app = built(&["-p", "forebay", "--test", "agent"])?;
        let find = |built: &[(String, bool, PathBuf)], name: &str, is_test: bool| {
            let found = built.iter().find(|(it, test, _)| it == name && *test == is_test);
            found.map(|(_, _, path)| path.clone()).with_context(|| format!("cargo built no {name}"))
        };
        let forebay = find(&app, "forebay", false)?;
        let all = vec![
            ("forebay", forebay.clone()),
            ("ebpf-tests", find(&ebpf, "forebay_ebpf", true)?),
            ("host-tests", find(&host, "forebay_host", true)?),
            ("datapath-tests", find(&datapath, "datapath", true)?),
            ("agent-tests", find(&app, "agent", true)?),
        ];
        Ok(Self { all, forebay })
    }
}

/// Builds tests without running them: name, whether it is a test, executable.
fn built(arguments: &[&str]) -> Result<Vec<(String, bool, PathBuf)>> {
    let output = Command::new(env!("CARGO"))
        .current_dir(crate::repository())
        .args(["test", "--no-run", "--locked", "--message-format=json"])
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "cargo test --no-run {arguments:?}: {}", output.status);
    let mut executables = Vec::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let message: Value = serde_json::from_str(line)?;
        if let (Some(path), Some(name)) =
            (message["executable"].as_str(), message["target"]["name"].as_str())
        {
            let is_test = message["profile"]["test"] == true;
            executables.push((name.to_string(), is_test, path.into()));
        }
    }
    Ok(executables)
}

/// Fetches once the kernel that `linux-image-amd64` of `suite` depends on. apt checks signatures.
pub fn fetch(root: &Path, name: &str, suite: &str) -> Result<Image> {
    let target = root.join(name);
    if let Ok(image) = Image::at(&target) {
        return Ok(image);
    }
    let unpacked = folder(root.join(format!("{name}.unpacked")))?;
    let apt = Apt::new(root)?;
    let package = apt.kernel_package(suite)?;
    let debs = folder(root.join(format!("{name}.debs")))?;
    run(apt.command("apt-get").arg("download").arg(&package).current_dir(&debs))?;
    let deb = std::fs::read_dir(&debs)?.next().context("apt-get download left nothing")??;
    let wanted = MODULE_FOLDERS.map(|folder| format!("*/kernel/{folder}"));
    // tar fails if a pattern matches no file: a module can be in the kernel itself.
    run(Command::new("sh")
        .args(["-ec", "dpkg-deb --fsys-tarfile \"$0\" | tar -x --wildcards -C \"$@\" || true"])
        .arg(deb.path())
        .arg(&unpacked)
        .arg("./boot/vmlinuz-*")
        .args(wanted))?;
    run(Command::new("sh")
        .args(["-c", "find \"$0\" -name '*.ko.xz' -exec xz -d '{}' +"])
        .arg(&unpacked))?;
    Image::at(&unpacked)?;
    remove(&target)?;
    std::fs::rename(&unpacked, &target)?;
    std::fs::remove_dir_all(&debs)?;
    Image::at(&target)
}

impl Image {
    fn at(root: &Path) -> Result<Self> {
        let mut kernels = std::fs::read_dir(root.join("boot"))?;
        let kernel = kernels.next().context("no kernel")??.path();
        let name = kernel.file_name().and_then(|name| name.to_str());
        let release = name.and_then(|name| name.strip_prefix("vmlinuz-"));
        let release = release.context("no kernel")?.to_string();
        // On a merged system one of the two is a link to the other.
        let modules = ["lib", "usr/lib"].map(|lib| root.join(lib).join("modules").join(&release));
        // An earlier version of this program fetched less.
        let is_whole = |it: &PathBuf| {
            let kernel = it.join("kernel");
            kernel.join("net/sched").is_dir() && kernel.join("drivers/net/tun.ko").is_file()
        };
        let modules = modules.into_iter().find(is_whole).context("no modules")?;
        Ok(Self { release, kernel, modules })
    }
}

/// The package sources of this machine's Debian 12, and its backports, without touching them.
struct Apt(Vec<String>);

impl Apt {
    fn new(root: &Path) -> Result<Self> {
        let lists = folder(root.join("apt/lists/partial"))?;
        let cache = folder(root.join("apt/cache/archives/partial"))?;
        let known = Command::new("apt-get")
            .args(["indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"])
            .output()?;
        let known = String::from_utf8(known.stdout)?;
        let source = |suite: &str| {
            let found = known.lines().filter_map(|line| line.split_once(' '));
            found.filter(|(_, it)| *it == suite).map(|(uri, _)| uri.to_string()).next()
        };
        let mirror = source("bookworm").context("no package source of Debian 12 (bookworm)")?;
        let mut text = String::new();
        for suite in ["bookworm", "bookworm-backports"] {
            text += &format!("deb {mirror} {suite} main\n");
        }
        if let Some(security) = source("bookworm-security") {
            text += &format!("deb {security} bookworm-security main\n");
        }
        let sources = root.join("apt/sources.list");
        std::fs::write(&sources, text)?;
        let above = |path: &Path| path.parent().map(Path::to_path_buf).unwrap_or_default();
        let apt = Self(vec![
            format!("Dir::Etc::SourceList={}", sources.display()),
            "Dir::Etc::SourceParts=/dev/null".into(),
            format!("Dir::State::Lists={}", above(&lists).display()),
            format!("Dir::Cache={}", above(&above(&cache)).display()),
            // apt's sandbox user may not read files downloaded here.
            "APT::Sandbox::User=root".into(),
        ]);
        run(apt.command("apt-get").args(["update", "-qq"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for option in &self.0 {
            command.arg("-o").arg(option);
        }
        command
    }

    /// The package that the newest `linux-image-amd64` of a suite depends on.
    fn kernel_package(&self, suite: &str) -> Result<String> {
        let mut command = self.command("apt-cache");
        command.args(["show", "--no-all-versions"]);
        // Without backports, apt installs the newest version, including security updates.
        command.arg(match suite {
            "bookworm" => "linux-image-amd64".into(),
            suite => format!("linux-image-amd64/{suite}"),
        });
        let text = String::from_utf8(command.output()?.stdout)?;
        let depends = text.lines().find_map(|line| line.strip_prefix("Depends: "));
        let package = depends.and_then(|depends| depends.split([' ', ',']).next());
        package.map(str::to_string).with_context(|| format!("no linux-image-amd64 in {suite}"))
    }
}

/// Packs the initramfs that runs `checks`.
pub fn pack(root: &Path, image: &Image, programs: &Programs, checks: &str) -> Result<PathBuf> {
    let tree = tempfile::Builder::new().prefix("guest-").tempdir_in(root)?;
    let tree = tree.path();
    for name in ["proc", "sys", "dev", "run", "tmp", "root", "modules", "bin"] {
        folder(tree.join(name))?;
    }
    std::fs::set_permissions(tree.join("tmp"), PermissionsExt::from_mode(0o1777))?;
    write_program(&tree.join("init"), INIT)?;
    std::fs::write(tree.join("checks"), checks)?;
    pack_shell(tree)?;
    let mut all = programs.all.clone();
    for tool in TOOLS {
        all.push((tool, which(tool)?));
    }
    for (name, path) in all {
        let inside = tree.join("usr/bin").join(name);
        copy(&path, &inside)?;
        run(Command::new("strip").arg("--strip-debug").arg(&inside))?;
        for library in libraries(&path)? {
            copy(&library, &tree.join(library.strip_prefix("/")?))?;
        }
    }
    let forebay = tree.join(programs.forebay.strip_prefix("/")?);
    if let Some(above) = forebay.parent() {
        folder(above.into())?;
    }
    symlink("/usr/bin/forebay", forebay)?;
    pack_modules(tree, image)?;
    initramfs(root, tree)
}

/// Packs `tree` as an initramfs.
pub fn initramfs(root: &Path, tree: &Path) -> Result<PathBuf> {
    let initramfs = root.join("initramfs.cpio");
    run(Command::new("sh")
        .args(["-c", "cd \"$0\" && find . | cpio --quiet -o -H newc > \"$1\""])
        .args([tree, &initramfs]))?;
    Ok(initramfs)
}

/// Numbered, so that the guest loads them in order.
fn pack_modules(tree: &Path, image: &Image) -> Result<()> {
    for (number, name) in MODULES.iter().enumerate() {
        let found = Command::new("find")
            .arg(&image.modules)
            .args(["-name", &format!("{name}.ko")])
            .output()?;
        // A module without a file is in the kernel itself. If not, a check will fail.
        if let Some(path) = String::from_utf8(found.stdout)?.lines().next() {
            copy(Path::new(path), &tree.join(format!("modules/{number:02}-{name}.ko")))?;
        }
    }
    Ok(())
}

/// The shell of a guest.
pub fn pack_shell(tree: &Path) -> Result<()> {
    copy(Path::new("/bin/busybox"), &tree.join("bin/busybox"))
        .context("/bin/busybox (`make test-kernels` installs busybox-static)")
}

/// Writes a program of a guest.
pub fn write_program(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755))?;
    Ok(())
}

fn which(name: &str) -> Result<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut paths = std::env::split_paths(&folders).chain(["/usr/sbin".into(), "/sbin".into()]);
    paths
        .find_map(|folder| Some(folder.join(name)).filter(|path| path.exists()))
        .with_context(|| format!("{name} is not installed"))
}

/// The shared libraries of a program and the loader, as ldd names them.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output()?;
    let text = String::from_utf8(output.stdout)?;
    let paths = text.lines().filter_map(|line| {
        line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from)
    });
    Ok(paths.collect())
}
