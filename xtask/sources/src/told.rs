//! Variables that a build script sets for its crate: the commit, and digests of the sources that runs use.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::Path;
use std::process::Command;

use crate::digest;

/// Sets variables for the crate of the calling build script, for every row of results. `FOREBAY_COMMIT` is the
/// commit, or `version` where git knows none. `FOREBAY_SOURCES_SIM`, `FOREBAY_SOURCES_EMU` and
/// `FOREBAY_SOURCES_NS3` are the digests of the back ends. The path `repository` is relative to the folder of the
/// crate.
///
/// # Errors A source cannot be read.
pub fn tell(repository: &Path, version: &str) -> io::Result<()> {
    // Any change of a source or of the index may change these variables.
    for path in ["crates", "traces", "Cargo.lock", "Cargo.toml", "rust-toolchain.toml"] {
        println!("cargo:rerun-if-changed={}", repository.join(path).display());
    }
    for path in ["HEAD", "index"] {
        if let Some(path) = git(&["rev-parse", "--git-path", path]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    println!("cargo:rustc-env=FOREBAY_COMMIT={}", commit(repository, version));
    for (name, backend) in [("SIM", "sim"), ("EMU", "emu"), ("NS3", "ns3")] {
        println!("cargo:rustc-env=FOREBAY_SOURCES_{name}={}", digest(repository, backend)?);
    }
    Ok(())
}

/// The commit, with `-dirty` and a hash of the changes if there are any.
fn commit(repository: &Path, version: &str) -> String {
    let Some(commit) = git(&["describe", "--always", "--abbrev=12"]) else {
        return format!("v{version}");
    };
    let [crates, lock] = ["crates", "Cargo.lock"].map(|path| repository.join(path));
    let [crates, lock] = [&crates, &lock].map(|path| path.to_string_lossy());
    let changes = git(&["diff", "HEAD", "--", &crates, &lock]);
    match changes.filter(|changes| !changes.is_empty()) {
        Some(changes) => {
            let mut hasher = DefaultHasher::new();
            changes.hash(&mut hasher);
            format!("{commit}-dirty-{:08x}", hasher.finish() as u32)
        }
        None => commit,
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
    output.status.success().then_some(text)
}
