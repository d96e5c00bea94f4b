//! Identifies the version of an algorithm that took part in a run.
//!
//! The only mark of a change in a user's algorithm is the digest of its sources. Every run with the algorithm
//! therefore has the digest as a parameter, `sources.NAME`. A changed algorithm is run again, and
//! [`Versions`] keeps its older runs out of every report. The file of a policy is treated alike.

use std::collections::BTreeMap;

use forebay_core::spec::{Spec, SpecError};
use forebay_policy::algorithms::{own, sources};
use sha2::{Digest, Sha256};

/// Prefix of the keys of digests.
const SOURCES: &str = "sources.";
/// Bytes of a policy's digest to keep, as many as for sources.
const DIGEST_BYTES: usize = 8;

/// Parameter of a run that identifies the version of the algorithm `name`; `None` for an algorithm built into
/// the program.
pub fn version(name: &str) -> Option<(String, String)> {
    Some((format!("{SOURCES}{name}"), sources(name)?.to_string()))
}

/// Parameter of a run that identifies the version of `cc`; for a policy the digest of its file.
///
/// # Errors
///
/// The file is not a policy, or cannot be read.
pub fn version_of(cc: &Spec) -> Result<Option<(String, String)>, SpecError> {
    if cc.kind != forebay_policy::ALGORITHM.name {
        return Ok(version(&cc.kind));
    }
    let file = forebay_policy::file_of(cc)?;
    let digest = Sha256::digest(forebay_policy::refresh(cc)?);
    let hex = digest.iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect();
    Ok(Some((format!("{SOURCES}{file}"), hex)))
}

/// Whether the parameter `key` identifies the version of an algorithm.
pub fn is_version(key: &str) -> bool {
    key.starts_with(SOURCES)
}

/// Versions of algorithms that count among results: this program's own, else the version that ran last.
pub struct Versions(BTreeMap<String, String>);

impl Versions {
    /// The versions that count among runs with these parameters, in the order in which the runs were made.
    pub fn among<'a>(runs: impl Iterator<Item = &'a BTreeMap<String, String>>) -> Self {
        let mut versions = BTreeMap::new();
        for parameters in runs {
            versions.extend(told(parameters).map(|(key, sources)| (key.clone(), sources.clone())));
        }
        versions.extend(own().iter().filter_map(|own| version(own.algorithm.name)));
        Self(versions)
    }

    /// Whether every algorithm in a run with these parameters has a version that counts.
    pub fn count(&self, parameters: &BTreeMap<String, String>) -> bool {
        told(parameters).all(|(key, sources)| self.0.get(key) == Some(sources))
    }
}

/// Keys and digests in `parameters`.
fn told(parameters: &BTreeMap<String, String>) -> impl Iterator<Item = (&String, &String)> {
    parameters.iter().filter(|(key, _)| is_version(key))
}

#[cfg(test)]
mod tests {
    use forebay_core::spec::Value;

    use super::*;

    fn parameters(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    #[test]
    fn missing_algorithm_counts_with_last_version() {
        let [first, rival, last] = [
            parameters(&[("aut", "mine"), ("sources.mine", "1")]),
            parameters(&[("aut", "cubic"), ("sources.mine", "1"), ("sources.other", "9")]),
            parameters(&[("aut", "mine"), ("sources.mine", "2")]),
        ];
        let versions = Versions::among([&first, &rival, &last].into_iter());
        assert_eq!([&first, &rival, &last].map(|it| versions.count(it)), [false, false, true]);
        assert!(versions.count(&parameters(&[("aut", "cubic")])));
        assert!(Versions::among([&first, &rival].into_iter()).count(&rival));
    }

    #[test]
    fn policy_version_is_its_file_digest() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/policy/");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("learnt.onnx");
        let file = file.to_str().unwrap();
        let copy = |name: &str| std::fs::copy(format!("{corpus}{name}"), file).map(drop);
        let cc = Spec::named("policy").with("file", Value::Text(file.into()));
        copy("layers").unwrap();
        let (key, first) = version_of(&cc).unwrap().unwrap();
        assert_eq!((key, first.len()), (format!("sources.{file}"), 16));
        assert!(is_version(&format!("sources.{file}")));
        // ModelProto.doc_string: it changes the file but not the policy.
        let mut bytes = std::fs::read(file).unwrap();
        bytes.extend([0x32, 1, b'x']);
        std::fs::write(file, &bytes).unwrap();
        assert_ne!(version_of(&cc).unwrap().unwrap().1, first);
        copy("unknown_operator").unwrap();
        let error = version_of(&cc).unwrap_err().to_string();
        assert!(error.contains("learnt.onnx: allowed is a policy (node y (Conv): "), "{error}");
        assert_eq!(version_of(&Spec::named("cubic")), Ok(None));
    }
}
