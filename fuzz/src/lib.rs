//! Fuzz targets: functions that take any bytes and must neither panic nor hang.
//!
//! A new target is one line in [`TARGETS`], one file in this folder, and a few inputs under
//! `corpus/<name>/` that reach its different branches. The corpus is replayed by `cargo test`;
//! `cargo run -- <name> --seconds 600` (in this directory) mutates it. A failing input lands in
//! `artifacts/<name>/`; once fixed, it moves to the corpus.
//!
//! [`readers`] runs whole commands on mutated files instead.

mod cdf;
mod claims;
mod config;
pub mod coverage;
mod looks;
pub mod mutate;
mod packet;
mod paths;
mod plan;
mod policy;
mod qdisc_ops;
pub mod readers;
mod record;
mod recording;
mod session;
mod spec;
mod trace;
mod wire;

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

/// Takes any bytes; a panic is a finding.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("cdf", cdf::run),
    ("claims", claims::run),
    ("config", config::run),
    ("looks", looks::run),
    ("packet", packet::run),
    ("paths", paths::run),
    ("plan", plan::run),
    ("policy", policy::run),
    ("qdisc_ops", qdisc_ops::run),
    ("record", record::run),
    ("recording", recording::run),
    ("session", session::run),
    ("spec", spec::run),
    ("trace", trace::run),
    ("wire", wire::run),
];

/// Folder of the inputs of `target`: `corpus` has those committed, `artifacts` the findings.
pub fn directory(kind: &str, target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(kind).join(target)
}

/// The committed inputs of `target`, in order of file name.
pub fn corpus(target: &str) -> std::io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory("corpus", target))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    paths.sort();
    paths.into_iter().map(|path| fs::read(&path).map(|bytes| (path, bytes))).collect()
}

/// Saves a failing input of `target` for later runs; returns the path of the file, or the reason
/// why there is none.
pub fn save(target: &str, input: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let folder = directory("artifacts", target);
    let path = folder.join(format!("{:016x}", hasher.finish()));
    match fs::create_dir_all(&folder).and_then(|()| fs::write(&path, input)) {
        Ok(()) => path.display().to_string(),
        Err(error) => format!("{}: {error}; the input is {input:?}", path.display()),
    }
}
