//! The program as a package: `.deb`, or an archive, `.rpm` or OCI image. A crate that needs none of forebay's: with those of the other chores cargo would build the program once more, in debug.

mod sbom;
mod small;

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};

pub use small::small;

/// What is built, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The profile of cargo.
    profile: String,
    /// What it is to be.
    kind: Kind,
    /// The version of the package; `None`: that of the commit.
    version: Option<String>,
}

/// What a package is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// For Debian.
    Deb,
    /// What `make install` would install, with a program that needs no shared libraries.
    Archive,
    /// For Fedora and its like, with that program.
    Rpm,
    /// An OCI image: a Debian with the program.
    Image,
}

impl Kind {
    /// Whether glibc, libelf and zlib become part of the program.
    fn is_static(self) -> bool {
        matches!(self, Self::Archive | Self::Rpm)
    }
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self { profile: "release".into(), kind: Kind::Deb, version: None };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value =
                || arguments.next().cloned().with_context(|| format!("{argument} has no value"));
            match argument.as_str() {
                "--static" => options.kind = Kind::Archive,
                "--rpm" => options.kind = Kind::Rpm,
                "--image" => options.kind = Kind::Image,
                "--profile" => options.profile = value()?,
                "--version" => options.version = Some(value()?),
                other => bail!(
                    "{other}: allowed are --static, --rpm, --image, --profile NAME, --version VERSION"
                ),
            }
        }
        Ok(options)
    }
}

/// What a chore was called with is not allowed.
#[derive(Debug)]
pub struct Misuse(anyhow::Error);

impl Misuse {
    /// The error that says so.
    pub fn of(error: anyhow::Error) -> anyhow::Error {
        Self(error).into()
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:#}", self.0)
    }
}

impl Error for Misuse {}

/// Prints why a chore failed.
pub fn failed(error: anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    if error.is::<Misuse>() { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// Runs a command to its end; one that fails is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("this crate lies in the repository").into()
}

/// Makes a package in `target/package`.
pub fn package(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments).map_err(Misuse::of)?;
    let made = Sources::of(repository(), options)?.make()?;
    println!("{}", made.display());
    Ok(())
}

/// Makes the `.deb` of a version by a profile of cargo.
pub fn deb(profile: &str, version: &str) -> Result<PathBuf> {
    let version = Some(version.into());
    let options = Options { profile: profile.into(), kind: Kind::Deb, version };
    Sources::of(repository(), options)?.make()
}

/// Makes a package twice, each time from a clean clone of the commit that is checked out, and fails
/// where the two differ.
pub fn reproducible(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments).map_err(Misuse::of)?;
    let folder = repository().join("target/reproducible");
    let clone = folder.join("source");
    let mut made = Vec::new();
    for number in ["first", "second"] {
        remove(&folder.join(number))?;
        remove(&clone)?;
        run(Command::new("git").args(["clone", "--quiet"]).arg(repository()).arg(&clone))?;
        let package = Sources::of(clone.clone(), options.clone())?.make()?;
        let kept = folder.join(number).join(package.file_name().context("a package has a name")?);
        std::fs::create_dir_all(folder.join(number))?;
        std::fs::rename(&package, &kept)?;
        made.push(kept);
    }
    remove(&clone)?;
    let is_same = std::fs::read(&made[0])? == std::fs::read(&made[1])?;
    print!("{}", text_of(Command::new("sha256sum").args(&made))?);
    ensure!(is_same, "two builds of one commit differ (`diffoscope` says in what)");
    Ok(())
}

/// A repository, and what a package of it is to be.
struct Sources {
    repository: PathBuf,
    options: Options,
    version: String,
    /// When the commit was made (s since 1970): the time of every file in the package.
    epoch: String,
}

impl Sources {
    fn of(repository: PathBuf, options: Options) -> Result<Self> {
        let version = match &options.version {
            Some(version) => version.clone(),
            None => version_of(&repository)?,
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".+~".contains(&byte);
        ensure!(
            version.bytes().all(is_plain)
                && version.starts_with(|first: char| first.is_ascii_digit()),
            "--version {version}: allowed are letters, digits and .+~ behind a digit"
        );
        let epoch = git(&repository, &["log", "-1", "--format=%ct"])?;
        Ok(Self { repository, options, version, epoch })
    }

    /// Where all that belongs to packages is made.
    fn folder(&self) -> PathBuf {
        self.repository.join("target/package")
    }

    /// Builds the program and packs it.
    fn make(&self) -> Result<PathBuf> {
        let binary = self.build()?;
        let sbom = self.folder().join("sbom.cdx.json");
        std::fs::write(&sbom, sbom::of(&self.repository, &triple(), &self.version)?)?;
        match self.options.kind {
            Kind::Deb => self.deb(&binary, &sbom),
            Kind::Archive => self.archive(&binary, &sbom),
            Kind::Rpm => self.rpm(&binary, &sbom),
            Kind::Image => self.image(&binary),
        }
    }

    /// In a folder of its own, since these flags would have cargo build anew what it has for others.
    fn build(&self) -> Result<PathBuf> {
        let Options { profile, kind, .. } = &self.options;
        let (triple, target) = (triple(), self.folder().join("build"));
        let mut flags = mapped_flags(&self.repository, "--remap-path-prefix")?.to_vec();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(&self.repository);
        cargo.args(["build", "--locked", "--package", "forebay", "--profile", profile]);
        // With a target that is named, build scripts and macros are not built with these flags.
        cargo.args(["--target", &triple, "--target-dir"]).arg(&target);
        if kind.is_static() {
            cargo.args(["--features", "static"]);
            flags.push("-Ctarget-feature=+crt-static".into());
            // Where cargo does not look for archives by itself.
            let libelf = text_of(Command::new("cc").arg("-print-file-name=libelf.a"))?;
            let folder = Path::new(libelf.trim()).parent().filter(|it| it.is_absolute());
            let folder = folder.context("no libelf.a: `make packages` installs libelf-dev")?;
            cargo.env(format!("LIBBPF_SYS_LIBRARY_PATH_{triple}"), folder);
        }
        cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        cargo.env("CFLAGS", mapped_flags(&self.repository, "-ffile-prefix-map")?.join(" "));
        cargo.env("SOURCE_DATE_EPOCH", &self.epoch);
        run(&mut cargo)?;
        let folder = if profile == "dev" { "debug" } else { profile };
        Ok(target.join(triple).join(folder).join("forebay"))
    }

    /// Packs a `.deb` by `packaging/debian`.
    fn deb(&self, binary: &Path, sbom: &Path) -> Result<PathBuf> {
        let stage = self.folder().join("deb");
        remove(&stage)?;
        std::fs::create_dir_all(&stage)?;
        run(Command::new("cp")
            .arg("-r")
            .arg(self.repository.join("packaging/debian"))
            .arg(&stage))?;
        let date = git(&self.repository, &["log", "-1", "--format=%cD"])?;
        let version = &self.version;
        let changelog = format!(
            "forebay ({version}) unstable; urgency=medium\n\n  \
             * See /usr/share/doc/forebay/changelog.gz.\n\n -- {MAINTAINER}  {date}\n"
        );
        std::fs::write(stage.join("debian/changelog"), changelog)?;
        let mut make = Command::new("make");
        make.current_dir(&stage).args(["--silent", "-f", "debian/rules", "binary"]);
        make.env("REPOSITORY", &self.repository).env("BINARY", binary).env("SBOM", sbom);
        make.env("SOURCE_DATE_EPOCH", &self.epoch).env("DEB_RULES_REQUIRES_ROOT", "no");
        make.env("DEB_BUILD_OPTIONS", "noautodbgsym").env_remove("MAKEFLAGS");
        // What it prints is its own list of steps.
        run(make.stdout(Stdio::null())).context("debhelper (`make package` installs it)")?;
        let architecture = text_of(Command::new("dpkg").arg("--print-architecture"))?;
        Ok(self.folder().join(format!("forebay_{version}_{}.deb", architecture.trim())))
    }

    /// Packs what `make install` would install below `/usr/local`.
    fn archive(&self, binary: &Path, sbom: &Path) -> Result<PathBuf> {
        let name = format!("forebay-{}-{}-static", self.version, std::env::consts::ARCH);
        let stage = self.folder().join("static");
        remove(&stage)?;
        let root = stage.join(&name);
        std::fs::create_dir_all(&root)?;
        let script = self.repository.join("packaging/install.sh");
        run(Command::new("sh").arg(script).arg(binary).arg("/usr/local").arg(&root))?;
        run(Command::new("strip").arg(root.join("usr/local/bin/forebay")))?;
        std::fs::copy(sbom, root.join("sbom.cdx.json"))?;
        let packed = self.folder().join(format!("{name}.tar.gz"));
        // Nothing of this machine: neither times nor owners nor the order of its folders.
        run(Command::new("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"])
            .arg(format!("--mtime=@{}", self.epoch))
            .args(["--use-compress-program", "gzip -9n", "-cf"])
            .arg(&packed)
            .arg("-C")
            .arg(&stage)
            .arg(&name))?;
        Ok(packed)
    }

    /// Packs a `.rpm` by `packaging/rpm/forebay.spec`.
    fn rpm(&self, binary: &Path, sbom: &Path) -> Result<PathBuf> {
        let stage = self.folder().join("rpm");
        remove(&stage)?;
        std::fs::create_dir_all(&stage)?;
        // rpm compares versions as dpkg does, but allows no hyphen and knows `~` and `^` alone.
        let version = self.version.replace('+', "^");
        let mut build = Command::new("rpmbuild");
        build.args(["-bb", "--quiet"]);
        for (name, value) in [
            ("_topdir", stage.as_path()),
            ("_rpmdir", self.folder().as_path()),
            ("_rpmfilename", Path::new("%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm")),
            ("VERSION", Path::new(&version)),
            ("REPOSITORY", self.repository.as_path()),
            ("BINARY", binary),
            ("SBOM", sbom),
        ] {
            build.arg("--define").arg(format!("{name} {}", value.display()));
        }
        build.arg(self.repository.join("packaging/rpm/forebay.spec"));
        build.env("SOURCE_DATE_EPOCH", &self.epoch);
        run(&mut build).context("rpmbuild (`make rpm` installs it)")?;
        let architecture = std::env::consts::ARCH;
        Ok(self.folder().join(format!("forebay-{version}-1.{architecture}.rpm")))
    }

    /// Packs an OCI image: Debian 12's essential packages, what the program is linked with, and the program.
    fn image(&self, binary: &Path) -> Result<PathBuf> {
        let script = self.repository.join("packaging/image/build.sh");
        let architecture = std::env::consts::ARCH;
        // A tag of an image has no `~`.
        let version = self.version.replace(['~', '+'], "_");
        let made = self.folder().join(format!("forebay-{version}-{architecture}.oci.tar"));
        let mut build = Command::new("sh");
        build.arg(script).arg(binary).arg(&version).arg(&made);
        build.current_dir(&self.repository).env("SOURCE_DATE_EPOCH", &self.epoch);
        run(&mut build).context("mmdebstrap, buildah (`make image` installs them)")?;
        Ok(made)
    }
}

/// Flags of a compiler that leave no path of this machine in a program; `flag` is the one that replaces a path.
fn mapped_flags(repository: &Path, flag: &str) -> Result<[String; 2]> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let home = home.context("neither CARGO_HOME nor HOME is set")?;
    let places = [(repository, "/forebay"), (home.as_path(), "/cargo")];
    Ok(places.map(|(from, to)| format!("{flag}={}={to}", from.display())))
}

/// Who answers for the packages; as in `packaging/debian/control`.
const MAINTAINER: &str = "The forebay authors <authors@forebay.invalid>";

/// The machine that is built for, which is this one.
fn triple() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// The version of the workspace where its tag is checked out, and else one that is older than that and
/// grows with each commit.
fn version_of(repository: &Path) -> Result<String> {
    let manifest = std::fs::read_to_string(repository.join("Cargo.toml"))?;
    let manifest: toml::Table = manifest.parse()?;
    let release = manifest["workspace"]["package"]["version"].as_str();
    let release = release.context("Cargo.toml has no version")?;
    let is_dirty = !git(repository, &["status", "--porcelain"])?.is_empty();
    let is_tagged = git(repository, &["tag", "--points-at", "HEAD"])?
        .lines()
        .any(|tag| tag == format!("v{release}"));
    if is_tagged && !is_dirty {
        return Ok(release.into());
    }
    let format =
        ["log", "-1", "--date=format-local:%Y%m%d%H%M%S", "--format=%cd.%h", "--abbrev=12"];
    let commit = git(repository, &format)?;
    Ok(format!("{release}~{commit}{}", if is_dirty { "+dirty" } else { "" }))
}

fn git(repository: &Path, arguments: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    let text = text_of(git.current_dir(repository).env("TZ", "UTC").args(arguments))?;
    Ok(text.trim().into())
}

/// What a command prints.
fn text_of(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// Removes a folder with all that is in it, if it is there.
pub fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Result<Options> {
        Options::parse(&arguments.iter().map(|it| it.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn a_package_is_a_release_build_of_the_commit_unless_said_otherwise() {
        let default = Options { profile: "release".into(), kind: Kind::Deb, version: None };
        assert_eq!(options(&[]).unwrap(), default);
        let other = options(&["--static", "--profile", "dev", "--version", "1.0~1"]).unwrap();
        let version = Some("1.0~1".into());
        assert_eq!(other, Options { profile: "dev".into(), kind: Kind::Archive, version });
        for (refused, said) in [
            (&["--profile"][..], "--profile has no value"),
            (&["dev"], "dev: allowed are --static, --rpm, --image"),
        ] {
            assert!(options(refused).unwrap_err().to_string().contains(said));
        }
    }

    #[test]
    fn versions_are_those_of_packages_and_grow_up_to_the_release() {
        let home = repository();
        let version = version_of(&home).unwrap();
        let options = Options { profile: "dev".into(), kind: Kind::Deb, version: None };
        assert_eq!(Sources::of(home.clone(), options.clone()).unwrap().version, version);
        let older = |one: &str, other: &str| {
            let mut dpkg = Command::new("dpkg");
            dpkg.args(["--compare-versions", one, "lt", other]).status().unwrap().success()
        };
        let release = env!("CARGO_PKG_VERSION");
        assert!(version == release || older(&version, release), "{version}");
        assert!(older("0.1.0~20260101000000.abc", "0.1.0~20260101000001.012+dirty"));
        for refused in ["a", "1.0 2", "", "1.0-1", "1/2"] {
            let options = Options { version: Some(refused.into()), ..options.clone() };
            let error = Sources::of(home.clone(), options).err().unwrap().to_string();
            assert!(error.contains(&format!("--version {refused}: ")), "{error}");
        }
    }

    #[test]
    fn packages_build_the_program_once() {
        for target in ["package", "static", "rpm", "image", "small", "reproducible"] {
            let mut make = Command::new("make");
            let make = make.current_dir(repository()).args(["--dry-run", "CARGO=cargo", target]);
            let planned = text_of(make.env_remove("MAKEFLAGS")).unwrap();
            let chores: Vec<&str> =
                planned.lines().filter(|line| line.contains("cargo ")).collect();
            assert_eq!(chores.len(), 1, "{planned}");
            assert!(chores[0].contains(" --package forebay-package -- "), "{planned}");
        }
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["tree", "--locked", "--offline", "--package", "forebay-package"]);
        let needed = text_of(cargo.args(["--prefix", "none"])).unwrap();
        let own = needed.lines().filter(|line| line.starts_with("forebay"));
        assert_eq!(own.count(), 1, "{needed}");
    }

    #[test]
    fn the_maintainer_is_the_one_of_the_package() {
        let control =
            std::fs::read_to_string(repository().join("packaging/debian/control")).unwrap();
        assert!(control.contains(&format!("\nMaintainer: {MAINTAINER}\n")));
    }
}
