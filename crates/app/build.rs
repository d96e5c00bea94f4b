//! Tells the program what it was built from, for every row of results: the commit, and the sources that runs pass.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::process::Command;

fn main() -> std::io::Result<()> {
    // Any change of a source or of the index may change what is told.
    for path in ["crates", "traces", "Cargo.lock", "Cargo.toml", "rust-toolchain.toml"] {
        println!("cargo:rerun-if-changed=../../{path}");
    }
    for path in ["HEAD", "index"] {
        if let Some(path) = git(&["rev-parse", "--git-path", path]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    println!("cargo:rustc-env=FOREBAY_COMMIT={}", commit());
    for (name, backend) in [("SIM", "sim"), ("EMU", "emu"), ("NS3", "ns3")] {
        let digest = forebay_sources::digest(Path::new("../.."), backend)?;
        println!("cargo:rustc-env=FOREBAY_SOURCES_{name}={digest}");
    }
    Ok(())
}

/// The commit, with `-dirty` and a hash of the changes if there are any.
fn commit() -> String {
    let Some(commit) = git(&["describe", "--always", "--abbrev=12"]) else {
        return format!("v{}", env!("CARGO_PKG_VERSION"));
    };
    let changes = git(&["diff", "HEAD", "--", "../../crates", "../../Cargo.lock"]);
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
