//! `policy`: congestion control that was learnt elsewhere and comes as an ONNX file.
//!
//! ```text
//! file ──► wire ──► message ──► onnx ──► core::cc::policy::graph ──► core::cc::policy, with Copa behind it
//! ```
//! Core decides and reads no file. Hosts that have files use [`registry`] instead of core's own registry.
#![forbid(unsafe_code)]

pub mod algorithms;
mod error;
mod message;
pub mod onnx;
mod wire;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_core::cc::delay::FLOW;
use forebay_core::cc::policy::graph::Graph;
use forebay_core::cc::policy::steering::{MIN_WINDOW_MSS, STEERS};
use forebay_core::cc::policy::{self, NEEDS};
use forebay_core::cc::{Algorithm, CongestionControl, Registry};
use forebay_core::spec::{DescribedParam, Spec, SpecError, Value};

pub use crate::error::OnnxError;

/// Largest file: the most constants of a graph, and room for names.
pub const FILE_BYTES_MAX: u64 = 8 << 20;

/// The parameter that names the file.
pub const FILE: DescribedParam = DescribedParam {
    name: "file",
    summary: "the policy: an ONNX file with one input and one output",
    default: None,
    allowed: "the path of an ONNX file, relative to the folder in which the program runs",
};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "policy",
    summary: "a learned policy from an ONNX file; Copa takes over if it fails",
    sources: &["this project: crates/policy, core/src/cc/algorithms/policy"],
    params: &[&FILE, &STEERS, &FLOW],
    needs: NEEDS,
    min_window_mss: MIN_WINDOW_MSS,
    // Decisions come each round trip, however often something is measured. The measurements in between
    // differ in which of their values is the newest.
    batch_tolerance: 0.2,
    build: &build,
};

/// The algorithms of core, and policies.
pub fn registry() -> Registry {
    let mut registry = Registry::BUILTIN;
    registry.register(ALGORITHM).expect("the core has no algorithm with that name");
    registry
}

fn build(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    policy::build(&graph_of(spec)?, spec)
}

/// The graph in force of the file that `spec` names, which is read here if it has not been before.
///
/// # Errors
///
/// The errors of [`refresh`].
pub fn graph_of(spec: &Spec) -> Result<Arc<Graph>, SpecError> {
    let path = Path::new(file_of(spec)?);
    let is_known = loaded().contains_key(path);
    if !is_known {
        refresh(spec)?;
    }
    let graph = loaded().get(path).cloned();
    graph.ok_or_else(|| SpecError::absent(FILE.name, &spec.kind))
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

/// Graphs by their files. Once read, a graph stays until the program ends, even if the file changes or
/// disappears. So a connection that an agent takes over later has the policy that was checked.
static LOADED: Mutex<BTreeMap<PathBuf, Arc<Graph>>> = Mutex::new(BTreeMap::new());

fn loaded() -> MutexGuard<'static, BTreeMap<PathBuf, Arc<Graph>>> {
    LOADED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the file that `spec` names: policies that are built from now on have its graph. Returns the bytes
/// of the file.
///
/// # Errors
///
/// The file is missing, cannot be read, or has more than [`FILE_BYTES_MAX`] bytes, or [`onnx::read`] refuses it. The
/// error then names the node and the allowed values. An earlier graph then stays in force.
pub fn refresh(spec: &Spec) -> Result<Vec<u8>, SpecError> {
    let file = file_of(spec)?;
    let refused = |allowed: &str| SpecError::new(FILE.name, file, allowed);
    let bytes = read_file(Path::new(file))
        .map_err(|error| refused(&format!("a readable file ({error})")))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(refused(&format!("a file of at most {FILE_BYTES_MAX} bytes")));
    }
    let graph = onnx::read(&bytes).map_err(|error| refused(&format!("a policy ({error})")))?;
    policy::history_of(&graph).map_err(|error| refused(&format!("a policy ({error})")))?;
    loaded().insert(PathBuf::from(file), Arc::new(graph));
    Ok(bytes)
}

/// Reads at most one byte more than is allowed. Does not wait for a path that is no file, such as a pipe.
fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    if !path.metadata()?.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
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
    fn file_stays_loaded_until_reread() {
        let (_folder, spec) = written(&policy());
        assert!(registry().build(&spec, NEEDS).is_ok());
        std::fs::write(file_of(&spec).unwrap(), b"no model").unwrap();
        assert!(registry().build(&spec, NEEDS).is_ok(), "the checked policy stays");
        let error = refresh(&spec).unwrap_err().to_string();
        assert!(error.contains("policy.onnx: allowed is a policy (model: "), "{error}");
        assert!(registry().build(&spec, NEEDS).is_ok(), "and so it does after an error");
        let larger = vec![0; FILE_BYTES_MAX as usize + 1];
        std::fs::write(file_of(&spec).unwrap(), larger).unwrap();
        let error = refresh(&spec).unwrap_err().to_string();
        assert!(error.ends_with("allowed is a file of at most 8388608 bytes"), "{error}");
        std::fs::write(file_of(&spec).unwrap(), policy()).unwrap();
        assert_eq!(refresh(&spec), Ok(policy()));
    }

    #[test]
    fn refuses_invalid_policy_with_its_file() {
        let (_folder, spec) = written(&model(&[node("Sin", &["x"], "y", &[])], &[]));
        let error = registry().build(&spec, NEEDS).err().unwrap().to_string();
        assert!(error.contains("policy.onnx: allowed is a policy (node y (Sin): "), "{error}");
        let absent = spec.with("file", Value::Text("/nonexistent/x.onnx".into()));
        let error = registry().build(&absent, NEEDS).err().unwrap().to_string();
        let begins = "file = /nonexistent/x.onnx: allowed is a readable file (";
        assert!(error.starts_with(begins), "{error}");
        let error = registry().build(&Spec::named("policy"), NEEDS).err().unwrap().to_string();
        assert_eq!(error, "file = (absent): allowed is a value: policy needs it");
    }
}
