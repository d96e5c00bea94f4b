//! `policy`: congestion control that was learnt elsewhere and comes as an ONNX file.
//!
//! ```text
//! file ──► wire ──► message ──► onnx ──► core::cc::policy::graph ──► core::cc::policy, with Copa behind it
//! ```
//! Core decides and reads no file; [`registry`] is what hosts that have files use instead of core's own registry.
#![forbid(unsafe_code)]

mod error;
mod message;
pub mod onnx;
mod wire;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use forebay_core::cc::delay::FLOW;
use forebay_core::cc::policy::graph::Graph;
use forebay_core::cc::policy::steering::{MIN_WINDOW_MSS, STEERS};
use forebay_core::cc::policy::{self, NEEDS};
use forebay_core::cc::{Algorithm, CongestionControl, Registry};
use forebay_core::spec::{Described, Spec, SpecError, Value};

pub use crate::error::OnnxError;

/// Largest file: the most constants of a graph, and room for names.
pub const FILE_BYTES_MAX: u64 = 8 << 20;
/// Most graphs that are remembered.
const REMEMBERED_MAX: usize = 64;

const FILE: Described = Described {
    name: "file",
    summary: "the policy: an ONNX file with one input and one output",
    default: None,
    allowed: "the path of an ONNX file, from the folder in which the program runs",
};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "policy",
    summary: "what was learnt, from an ONNX file; Copa takes over where it fails",
    sources: &["this project: crates/policy, core/src/cc/policy"],
    params: &[&FILE, &STEERS, &FLOW],
    needs: NEEDS,
    min_window_mss: MIN_WINDOW_MSS,
    // Decisions come each round trip, however often something is measured. What is between them differs by what of it
    // is the newest.
    batch_tolerance: 0.2,
    build: &build,
};

/// The algorithms of core, and policies.
pub fn registry() -> Registry {
    let mut registry = Registry::BUILTIN;
    registry.register(ALGORITHM).expect("core has none of that name");
    registry
}

fn build(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    let graph = load(Path::new(file_of(spec)?))?;
    policy::build(&graph, spec)
}

/// The file that `spec` names.
///
/// # Errors
///
/// None is named.
pub fn file_of(spec: &Spec) -> Result<&str, SpecError> {
    match spec.params.get(FILE.name) {
        Some(Value::Text(file)) => Ok(file),
        Some(other) => Err(SpecError::new(FILE.name, &other.to_string(), FILE.allowed)),
        None => Err(SpecError::absent(FILE.name, &spec.kind)),
    }
}

/// The bytes of a policy's file.
///
/// # Errors
///
/// There is no such file, it cannot be read, or it has more than [`FILE_BYTES_MAX`] bytes.
pub fn read_file(path: &Path) -> Result<Vec<u8>, SpecError> {
    let refused = |allowed: &str| SpecError::new(FILE.name, &path.display().to_string(), allowed);
    let read = || {
        let file = File::open(path)?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map(|_| bytes)
    };
    let bytes = read().map_err(|error| refused(&format!("a readable file ({error})")))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(refused(&format!("a file of at most {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

/// What a file was when it was read.
type Stamp = (Option<SystemTime>, u64);

/// Graphs by their files: an agent builds one for each of many connections.
static LOADED: Mutex<BTreeMap<PathBuf, (Stamp, Arc<Graph>)>> = Mutex::new(BTreeMap::new());

/// The graph of a policy's file, read anew once that has changed.
///
/// # Errors
///
/// As [`read_file`], or the file is none that [`onnx::read`] takes: the node, and what is allowed.
pub fn load(path: &Path) -> Result<Arc<Graph>, SpecError> {
    let stamp = path.metadata().ok().filter(|it| it.is_file());
    let Some(stamp) = stamp.map(|it| (it.modified().ok(), it.len())) else {
        return Err(SpecError::new(FILE.name, &path.display().to_string(), FILE.allowed));
    };
    let loaded = || LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((known, graph)) = loaded().get(path)
        && *known == stamp
    {
        return Ok(graph.clone());
    }
    let refused = |error: String| {
        let allowed = format!("a policy ({error})");
        SpecError::new(FILE.name, &path.display().to_string(), &allowed)
    };
    let graph = onnx::read(&read_file(path)?).map_err(|error| refused(error.to_string()))?;
    policy::history_of(&graph).map_err(|error| refused(error.to_string()))?;
    let graph = Arc::new(graph);
    let mut loaded = loaded();
    if loaded.len() >= REMEMBERED_MAX {
        loaded.clear();
    }
    loaded.insert(path.to_path_buf(), (stamp, graph.clone()));
    Ok(graph)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::tests::{model, node, policy};

    fn written(bytes: &[u8]) -> (tempfile::TempDir, Spec) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy.onnx");
        std::fs::write(&file, bytes).unwrap();
        let file = Value::Text(file.to_str().unwrap().into());
        (folder, Spec::named("policy").with("file", file))
    }

    #[test]
    fn a_file_is_an_algorithm_and_a_changed_one_another() {
        let (_folder, spec) = written(&policy());
        assert!(registry().build(&spec, NEEDS).is_ok());
        let file = PathBuf::from(file_of(&spec).unwrap());
        let (first, again) = (load(&file).unwrap(), load(&file).unwrap());
        assert!(Arc::ptr_eq(&first, &again));
        std::fs::write(&file, b"no model").unwrap();
        let error = registry().build(&spec, NEEDS).err().unwrap().to_string();
        assert!(error.contains("policy.onnx: allowed is a policy (model: "), "{error}");
    }

    #[test]
    fn what_is_no_policy_is_refused_with_its_file() {
        let (_folder, spec) = written(&model(&[node("Sin", &["x"], "y", &[])], &[]));
        let error = registry().build(&spec, NEEDS).err().unwrap().to_string();
        assert!(error.contains("policy.onnx: allowed is a policy (node y (Sin): "), "{error}");
        let absent = spec.with("file", Value::Text("/nonexistent/x.onnx".into()));
        let error = registry().build(&absent, NEEDS).err().unwrap().to_string();
        assert!(error.starts_with("file = /nonexistent/x.onnx: allowed is the path"), "{error}");
        let error = registry().build(&Spec::named("policy"), NEEDS).err().unwrap().to_string();
        assert_eq!(error, "file = (absent): allowed is a value: policy needs it");
    }
}
