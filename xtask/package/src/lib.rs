//! The programs as packages: `.deb`, or an archive, `.rpm` or OCI image. This crate depends on no crate of forebay:
//! otherwise cargo would build the programs once more, in debug.

mod sbom;
mod small;

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};

pub use small::small;

/// Product and way of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The profile of cargo.
    profile: String,
    /// Kind of the package.
    kind: Kind,
    /// The version of the package; `None`: the one of the commit.
    version: Option<String>,
}

/// Kind of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// For Debian, one for each program.
    Deb,
    /// The files of `make install`, with programs that need no shared libraries.
    Archive,
    /// For Fedora and similar systems, with a `forebay` that needs no shared libraries.
    Rpm,
    /// An OCI image: a Debian with `forebay`.
    Image,
}

/// Name of the program that boxes and agents need.
const FOREBAY: &str = "forebay";
/// Name of the laboratory's program.
const EXPERIMENTS: &str = "forebay-experiments";

impl Kind {
    /// Whether glibc, libelf and zlib become part of the program.
    fn is_static(self) -> bool {
        matches!(self, Self::Archive | Self::Rpm)
    }

    /// The packages of cargo whose programs the package has.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Deb | Self::Archive => &[FOREBAY, EXPERIMENTS],
            Self::Rpm | Self::Image => &[FOREBAY],
        }
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

/// Error for arguments that a chore does not allow.
#[derive(Debug)]
pub struct Misuse(anyhow::Error);

impl Misuse {
    /// Wraps an error as a misuse.
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

/// Makes packages in `target/package`.
pub fn package(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments).map_err(Misuse::of)?;
    let made = Sources::of(repository(), options)?.make()?;
    made.iter().for_each(|package| println!("{}", package.display()));
    Ok(())
}

/// Makes each `.deb` of a version by a profile of cargo, the boxes' package first.
pub fn debs(profile: &str, version: &str) -> Result<Vec<PathBuf>> {
    let version = Some(version.into());
    let options = Options { profile: profile.into(), kind: Kind::Deb, version };
    Sources::of(repository(), options)?.make()
}

/// Makes packages twice, from clean clones of the current commit in two folders, and fails where the packages differ.
pub fn reproducible(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments).map_err(Misuse::of)?;
    let folder = repository().join("target/reproducible");
    let mut made = Vec::new();
    for number in ["first", "second"] {
        remove(&folder.join(number))?;
        let clone = folder.join(format!("{number}-source"));
        remove(&clone)?;
        run(Command::new("git").args(["clone", "--quiet"]).arg(repository()).arg(&clone))?;
        std::fs::create_dir_all(folder.join(number))?;
        let mut all = Vec::new();
        for package in Sources::of(clone.clone(), options.clone())?.make()? {
            let name = package.file_name().context("a package has a name")?;
            let kept = folder.join(number).join(name);
            std::fs::rename(&package, &kept)?;
            all.push(kept);
        }
        made.push(all);
        remove(&clone)?;
    }
    print!("{}", text_of(Command::new("sha256sum").args(made.concat()))?);
    for (one, other) in made[0].iter().zip(&made[1]) {
        let is_same = std::fs::read(one)? == std::fs::read(other)?;
        ensure!(is_same, "two builds of one commit differ (`diffoscope` shows the difference)");
    }
    Ok(())
}

/// A repository, and the kind of package to make from it.
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
            "--version {version}: allowed are letters, digits and .+~ after a digit"
        );
        let epoch = git(&repository, &["log", "-1", "--format=%ct"])?;
        Ok(Self { repository, options, version, epoch })
    }

    /// Folder for all intermediate files and packages.
    fn folder(&self) -> PathBuf {
        self.repository.join("target/package")
    }

    /// Builds the programs and packs them.
    fn make(&self) -> Result<Vec<PathBuf>> {
        let built = self.build()?;
        for program in self.options.kind.programs() {
            let sbom = sbom::of(&self.repository, program, &triple(), &self.version)?;
            std::fs::write(built.join(sbom_of(program)), sbom)?;
        }
        match self.options.kind {
            Kind::Deb => self.deb(&built),
            Kind::Archive => Ok(vec![self.archive(&built)?]),
            Kind::Rpm => Ok(vec![self.rpm(&built)?]),
            Kind::Image => Ok(vec![self.image(&built)?]),
        }
    }

    /// Builds the programs and returns their folder. The folder is separate: with these flags cargo would
    /// rebuild the results of other chores.
    fn build(&self) -> Result<PathBuf> {
        let Options { profile, kind, .. } = &self.options;
        let (triple, target) = (triple(), self.folder().join("build"));
        let mut flags = mapped_flags(&self.repository, "--remap-path-prefix")?.to_vec();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(&self.repository);
        cargo.args(["build", "--locked", "--profile", profile]);
        cargo.args(kind.programs().iter().flat_map(|program| ["--package", program]));
        // With an explicit target, cargo builds build scripts and macros without these flags.
        cargo.args(["--target", &triple, "--target-dir"]).arg(&target);
        if kind.is_static() {
            let features = kind.programs().iter().map(|program| format!("{program}/static"));
            cargo.args(features.flat_map(|feature| ["--features".into(), feature]));
            flags.push("-Ctarget-feature=+crt-static".into());
            // glibc finds no symbols in a static program: without this, keys need a /dev/random.
            flags.push("--cfg=getrandom_backend=\"linux_getrandom\"".into());
            // Cargo does not look for archives there by itself.
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
        Ok(target.join(triple).join(folder))
    }

    /// Packs a `.deb` for each program in `built` by `packaging/debian`.
    fn deb(&self, built: &Path) -> Result<Vec<PathBuf>> {
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
        make.env("REPOSITORY", &self.repository).env("PROGRAMS", built);
        make.env("SOURCE_DATE_EPOCH", &self.epoch).env("DEB_RULES_REQUIRES_ROOT", "no");
        make.env("DEB_BUILD_OPTIONS", "noautodbgsym").env_remove("MAKEFLAGS");
        // `make` prints only debhelper's own list of steps.
        run(make.stdout(Stdio::null())).context("debhelper (`make package` installs it)")?;
        let architecture = text_of(Command::new("dpkg").arg("--print-architecture"))?;
        let name = |program| format!("{program}_{version}_{}.deb", architecture.trim());
        let programs = self.options.kind.programs().iter();
        Ok(programs.map(|program| self.folder().join(name(program))).collect())
    }

    /// Packs what `make install` would install below `/usr/local`.
    fn archive(&self, built: &Path) -> Result<PathBuf> {
        let name = format!("forebay-{}-{}-static", self.version, std::env::consts::ARCH);
        let stage = self.folder().join("static");
        remove(&stage)?;
        let root = stage.join(&name);
        std::fs::create_dir_all(&root)?;
        let script = self.repository.join("packaging/install.sh");
        let mut install = Command::new("sh");
        install.arg(script).arg(built.join(FOREBAY)).arg("/usr/local").arg(&root);
        run(install.arg(built.join(EXPERIMENTS)))?;
        for (program, place) in [(FOREBAY, "bin"), (EXPERIMENTS, "libexec/forebay")] {
            run(Command::new("strip").arg(root.join("usr/local").join(place).join(program)))?;
            std::fs::copy(built.join(sbom_of(program)), root.join(sbom_of(program)))?;
        }
        let packed = self.folder().join(format!("{name}.tar.gz"));
        // The archive contains nothing of this machine: neither times nor owners nor the order of its folders.
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
    fn rpm(&self, built: &Path) -> Result<PathBuf> {
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
            ("BINARY", built.join(FOREBAY).as_path()),
            ("SBOM", built.join(sbom_of(FOREBAY)).as_path()),
        ] {
            build.arg("--define").arg(format!("{name} {}", value.display()));
        }
        build.arg(self.repository.join("packaging/rpm/forebay.spec"));
        build.env("SOURCE_DATE_EPOCH", &self.epoch);
        run(&mut build).context("rpmbuild (`make rpm` installs it)")?;
        let architecture = std::env::consts::ARCH;
        Ok(self.folder().join(format!("forebay-{version}-1.{architecture}.rpm")))
    }

    /// Packs an OCI image: Debian 12's essential packages, the libraries that the program is linked with, and the
    /// program.
    fn image(&self, built: &Path) -> Result<PathBuf> {
        let script = self.repository.join("packaging/image/build.sh");
        let architecture = std::env::consts::ARCH;
        // A tag of an image has no `~`.
        let version = self.version.replace(['~', '+'], "_");
        let made = self.folder().join(format!("forebay-{version}-{architecture}.oci.tar"));
        let mut build = Command::new("sh");
        build.arg(script).arg(built.join(FOREBAY)).arg(&version).arg(&made);
        build.current_dir(&self.repository).env("SOURCE_DATE_EPOCH", &self.epoch);
        run(&mut build).context("mmdebstrap, buildah (`make image` installs them)")?;
        Ok(made)
    }
}

/// Name of the bill of materials of a program.
fn sbom_of(program: &str) -> String {
    format!("{program}.cdx.json")
}

/// Compiler flags that keep paths of this machine out of a program; `flag` is the compiler's option that
/// replaces a path.
fn mapped_flags(repository: &Path, flag: &str) -> Result<[String; 2]> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let home = home.context("neither CARGO_HOME nor HOME is set")?;
    let places = [(repository, "/forebay"), (home.as_path(), "/cargo")];
    Ok(places.map(|(from, to)| format!("{flag}={}={to}", from.display())))
}

/// Maintainer of the packages; as in `packaging/debian/control`.
const MAINTAINER: &str = "The forebay authors <authors@forebay.invalid>";

/// The target of the build, which is this machine.
fn triple() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// The version of the workspace if its tag is checked out. Otherwise a version that is older than this and grows with
/// each commit.
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

/// Output of a command.
pub fn text_of(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// Removes a folder with its contents, if it exists.
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
    fn package_defaults_to_release_build_of_commit() {
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
    fn package_versions_are_valid_and_sort_before_release() {
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
    fn rpm_packs_every_installed_file() {
        // A program that writes a page if called for manual pages, and nothing as completions. It fails next to the
        // laboratory of an earlier build.
        let script = r#"
            set -f; root=$(mktemp -d); trap 'rm -r "$root"' EXIT
            : >"$root/forebay-experiments"
            printf '#!/bin/sh\n[ ! -e "${0%%/*}/forebay-experiments" ] || exit 1\n[ "$1" = completions ] || { mkdir -p "$3"; : >"$3/forebay.1"; }\n' >"$root/program"
            chmod +x "$root/program"
            sh packaging/install.sh "$root/program" /usr "$root/made"
            packed=$(sed -n '/^%files/,/^$/s,^/,/,p' packaging/rpm/forebay.spec)
            for file in $(cd "$root/made" && find . -type f | cut -c 2-); do
                is_packed=
                for pattern in $packed; do
                    case $file in $pattern | $pattern/*) is_packed=yes ;; esac
                done
                [ "$is_packed" ] || echo "$file"
            done"#;
        let mut sh = Command::new("sh");
        let missing = text_of(sh.current_dir(repository()).args(["-eu", "-c", script])).unwrap();
        assert_eq!(missing, "", "installed, and not in packaging/rpm/forebay.spec");
    }

    #[test]
    fn the_maintainer_is_the_one_of_the_package() {
        let control =
            std::fs::read_to_string(repository().join("packaging/debian/control")).unwrap();
        assert!(control.contains(&format!("\nMaintainer: {MAINTAINER}\n")));
    }
}
