//! What a build script tells its crate: the commit, and the sources that runs pass.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::Path;
use std::process::Command;

use crate::digest;

/// Tells the crate whose build script asks what it is built from, for every row of results: the commit in
/// `FOREBAY_COMMIT`, or `version` where git knows none, and the digests of the back ends in `FOREBAY_SOURCES_SIM`,
/// `FOREBAY_SOURCES_EMU` and `FOREBAY_SOURCES_NS3`. The way to `repository` begins at the folder of the crate.
///
/// # Errors
/// A source cannot be read.
pub fn tell(repository: &Path, version: &str) -> io::Result<()> {
    // Any change of a source or of the index may change what is told.
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
