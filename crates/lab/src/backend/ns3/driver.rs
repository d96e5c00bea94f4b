//! The program that runs a network in ns-3: compiled at first use, and kept.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::network::Network;
use super::replay::{Outcome, replay};
use crate::backend::{BackendError, RunProgress};

/// The sources; the first one is compiled.
const SOURCES: [(&str, &str); 4] = [
    ("driver.cc", include_str!("cpp/driver.cc")),
    ("flow.h", include_str!("cpp/flow.h")),
    ("link.h", include_str!("cpp/link.h")),
    ("common.h", include_str!("cpp/common.h")),
];
/// The modules of ns-3 to link with, by their pkg-config names.
const MODULES: [&str; 5] =
    ["ns3-core", "ns3-network", "ns3-internet", "ns3-point-to-point", "ns3-traffic-control"];
/// The last minor version of ns-3 with headers that are not valid C++20.
const CPP17_UP_TO: u32 = 40;
/// Most bytes of a program's error output to show.
const ERROR_BYTES: u64 = 2000;
/// Name of the file of a run that holds the driver's input.
const INPUT: &str = "network";
/// Name of the file of a run that holds the driver's error output.
const ERRORS: &str = "errors";

/// An installed ns-3, and the driver for it.
#[derive(Debug)]
pub struct Driver {
    version: String,
    /// Compiler flags from pkg-config.
    flags: Vec<String>,
    /// The compiled program; `None` before the first use.
    program: Mutex<Option<PathBuf>>,
}

impl Driver {
    /// Looks for ns-3 without compiling anything: the installation with `ns3-core.pc` in `folder`, else that
    /// in `PKG_CONFIG_PATH` or the system's.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] if there is none, with what to install.
    pub fn find(folder: Option<&Path>) -> Result<Self, BackendError> {
        let version = pkg_config(folder, &["--modversion", MODULES[0]])?;
        let flags = pkg_config(folder, &[&["--cflags", "--libs"][..], &MODULES].concat())?;
        // Debian's flags also name library files of other packages; ns-3's own libraries know where those
        // are.
        let flags = flags.split_whitespace().filter(|flag| flag.starts_with('-'));
        let mut flags: Vec<String> = flags.map(String::from).collect();
        // The program looks for its libraries where the linker found them.
        let folders = flags.iter().filter_map(|flag| flag.strip_prefix("-L"));
        let rpaths: Vec<String> = folders.map(|folder| format!("-Wl,-rpath,{folder}")).collect();
        flags.extend(rpaths);
        let minor = version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
        let is_old = minor.is_some_and(|minor| minor <= CPP17_UP_TO);
        let standard = if is_old { "-std=c++17" } else { "-std=c++20" };
        flags.extend([standard, "-O2"].map(String::from));
        Ok(Self { version, flags, program: Mutex::new(None) })
    }

    /// Version of ns-3, such as `3.37`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Runs `network`; its files, including [`Outcome::packets`], go into the empty `folder`.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] if the driver cannot be compiled. [`BackendError::Failed`] if ns-3
    /// fails, a file cannot be written, or the output is not understood (with file and line).
    pub fn run(
        &self,
        network: &Network,
        folder: &Path,
        progress: &mut dyn FnMut(RunProgress),
    ) -> Result<Outcome, BackendError> {
        let mut report = |phase: &str, done| progress(RunProgress { phase: phase.into(), done });
        let program = self.program(&mut report)?;
        let failed = |what: &Path, error: &dyn std::fmt::Display| {
            BackendError::Failed(format!("{}: {error}", what.display()))
        };
        let [input, errors] = [INPUT, ERRORS].map(|name| folder.join(name));
        fs::write(&input, network.to_string()).map_err(|error| failed(&input, &error))?;
        let stderr = File::create(&errors).map_err(|error| failed(&errors, &error))?;
        let mut command = Command::new(&program);
        command.arg(&input).arg(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().map_err(|error| failed(&program, &error))?;
        if let Some(told) = child.stdout.take() {
            for line in BufReader::new(told).lines().map_while(Result::ok) {
                let percent: f64 = line.parse().unwrap_or(0.0);
                report("running", (percent / 100.0).clamp(0.0, 1.0));
            }
        }
        let status = child.wait().map_err(|error| failed(&program, &error))?;
        if !status.success() {
            let mut told = String::new();
            let read = File::open(&errors).map(|file| file.take(ERROR_BYTES));
            let _ = read.and_then(|mut file| file.read_to_string(&mut told));
            let reason = format!("ns-{} ended with {status}: {}", self.version, told.trim());
            return Err(BackendError::Failed(reason));
        }
        replay(network, folder)
    }

    /// The compiled driver. Other threads that need it wait for the compilation.
    fn program(&self, report: &mut dyn FnMut(&str, f64)) -> Result<PathBuf, BackendError> {
        let mut known = self.program.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = &*known {
            return Ok(program.clone());
        }
        let program = cache()?.join(self.name());
        if !program.is_file() {
            report("compiling the driver of ns-3", 0.0);
            self.compile(&program)?;
        }
        *known = Some(program.clone());
        Ok(program)
    }

    /// Name of the compiled driver, with a digest of all of its inputs.
    fn name(&self) -> String {
        let mut hasher = Sha256::new();
        let flags = self.flags.iter().map(String::as_str);
        for part in flags.chain(SOURCES.iter().map(|(_, text)| *text)) {
            hasher.update(part);
            hasher.update([0_u8]);
        }
        let hash: String =
            hasher.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("ns-{}-{hash}", self.version)
    }

    fn compile(&self, program: &Path) -> Result<(), BackendError> {
        let unavailable =
            |reason: String| BackendError::Unavailable(format!("the driver of ns-3: {reason}"));
        let folder = program.parent().unwrap_or(Path::new("."));
        let built = fs::create_dir_all(folder).and_then(|()| tempfile::tempdir_in(folder));
        let built = built.map_err(|error| unavailable(format!("{}: {error}", folder.display())))?;
        for (name, text) in SOURCES {
            let source = built.path().join(name);
            fs::write(&source, text)
                .map_err(|error| unavailable(format!("{}: {error}", source.display())))?;
        }
        let [source, object] = [SOURCES[0].0, "driver"].map(|name| built.path().join(name));
        let compiler = env::var_os("CXX").unwrap_or_else(|| OsString::from("c++"));
        let mut command = Command::new(&compiler);
        command.arg("-o").arg(&object).arg(&source).args(&self.flags);
        let output = command.output().map_err(|error| {
            let compiler = compiler.display();
            unavailable(format!("{compiler}: {error}: apt-get install g++, or set CXX"))
        })?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            let told: String = told.chars().take(ERROR_BYTES as usize).collect();
            return Err(unavailable(format!(
                "compilation with ns-{} failed: {told}",
                self.version
            )));
        }
        // The rename is atomic, so other processes see the whole file or none, also if several compile at
        // once.
        fs::rename(&object, program)
            .map_err(|error| unavailable(format!("{}: {error}", program.display())))
    }
}

/// Folder of compiled drivers: the user's cache, never a folder that other users can write to.
fn cache() -> Result<PathBuf, BackendError> {
    let folder = |name: &str| env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let home = || folder("HOME").map(|home| home.join(".cache"));
    let cache = folder("XDG_CACHE_HOME").or_else(home).map(|cache| cache.join("forebay"));
    let reason = "the driver of ns-3 is stored below XDG_CACHE_HOME or HOME: set one of the two";
    cache.ok_or_else(|| BackendError::Unavailable(reason.into()))
}

fn pkg_config(folder: Option<&Path>, arguments: &[&str]) -> Result<String, BackendError> {
    let missing = |why: &str| {
        BackendError::Unavailable(format!(
            "the back end ns3 needs ns-3 and a compiler: apt-get install libns3-dev g++ pkg-config, \
             or let PKG_CONFIG_PATH name the folder of ns3-core.pc ({why})"
        ))
    };
    let mut command = Command::new("pkg-config");
    command.args(arguments).envs(folder.map(|folder| ("PKG_CONFIG_PATH", folder)));
    let output = command.output().map_err(|error| missing(&format!("pkg-config: {error}")))?;
    if !output.status.success() {
        return Err(missing(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ns3_error_names_the_package() {
        let error = pkg_config(None, &["--modversion", "ns3-nonesuch"]).unwrap_err();
        assert!(matches!(error, BackendError::Unavailable(_)));
        assert!(error.to_string().contains("apt-get install libns3-dev"), "{error}");
    }

    #[test]
    fn a_driver_of_another_ns3_has_another_name() {
        let driver = |version: &str, flags: &[&str]| Driver {
            version: version.into(),
            flags: flags.iter().map(ToString::to_string).collect(),
            program: Mutex::new(None),
        };
        let name = driver("3.37", &["-lns3-core"]).name();
        assert!(name.starts_with("ns-3.37-"), "{name}");
        assert_eq!(name, driver("3.37", &["-lns3-core"]).name());
        assert_ne!(name, driver("3.44", &["-lns3-core"]).name());
        assert_ne!(name, driver("3.37", &["-L/opt", "-lns3-core"]).name());
    }
}
