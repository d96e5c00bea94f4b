//! The algorithms that plans may name: those of core, and those of somebody's own that the program was built with.
//!
//! What an algorithm of somebody's own does is known by the digest of its sources alone. So the digest is among the
//! parameters of every run in which the algorithm decides, under `sources.NAME`: a changed algorithm is run again, and
//! [`Versions`] keeps what it did before its change out of every report. So it is with the file of a policy.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{LazyLock, PoisonError, RwLock};

use forebay_core::cc::guest::bounded;
use forebay_core::cc::{Algorithm, Registry};
use forebay_core::spec::{Spec, SpecError};
use sha2::{Digest, Sha256};

/// Congestion controls of Linux (net/ipv4/tcp_*.c) that are no algorithms of ours.
pub const LINUX_ONLY: [&str; 2] = ["cdg", "nv"];

/// An algorithm of somebody's own, and the crate that it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// Entry of the crate.
    pub algorithm: Algorithm,
    /// Folder of the crate, without symbolic links in its path; of an algorithm in Python its file.
    pub folder: &'static str,
    /// Digest of the crate's sources, in hex.
    pub sources: &'static str,
}

struct Known {
    registry: Registry,
    own: Vec<Own>,
}

static KNOWN: LazyLock<RwLock<&Known>> = LazyLock::new(|| {
    let known = Known { registry: forebay_policy::registry(), own: Vec::new() };
    RwLock::new(Box::leak(Box::new(known)))
});

fn all() -> &'static Known {
    *KNOWN.read().unwrap_or_else(PoisonError::into_inner)
}

/// Every algorithm of this program. After [`add`] it is another registry, at another place.
pub fn known() -> &'static Registry {
    &all().registry
}

/// The algorithms of somebody's own.
pub fn own() -> &'static [Own] {
    &all().own
}

/// Digest of the sources of the algorithm `name`, if that is somebody's own.
pub fn sources(name: &str) -> Option<&'static str> {
    own().iter().find(|own| own.algorithm.name == name).map(|own| own.sources)
}

/// The file in Python that the algorithm `name` is a class of, if it is one.
pub fn python(name: &str) -> Option<&'static Path> {
    let own = own().iter().find(|own| own.algorithm.name == name)?;
    Some(Path::new(own.folder)).filter(|file| file.is_file())
}

/// Adds `own` to what this program knows, each in the stead of one of its name that was added before. Plans that were
/// loaded by then keep the algorithms that there were. Whatever limits such an algorithm sets, its host sees them
/// brought within bounds.
///
/// # Errors
///
/// A name that plans cannot write, or that one of the program's or another of `own` has; then nothing is added.
pub fn add(own: &[Own]) -> Result<(), SpecError> {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let is_replaced = |older: &Own| own.iter().any(|it| it.algorithm.name == older.algorithm.name);
    let mut all = known.own.clone();
    all.retain(|older| !is_replaced(older));
    all.extend(own);
    let mut registry = forebay_policy::registry();
    for own in &all {
        check_name(own.algorithm.name)?;
        registry.register(bounded(own.algorithm))?;
    }
    *known = Box::leak(Box::new(Known { registry, own: all }));
    Ok(())
}

/// Longest name of an algorithm: arms and files are called like it.
const NAME_MAX: usize = 24;

/// Refuses a `name` that plans cannot write, or that means another algorithm there.
pub fn check_name(name: &str) -> Result<(), SpecError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !begins || name.len() > NAME_MAX || !name.chars().all(is_plain) {
        let allowed = format!("at most {NAME_MAX} of a-z, 0-9 and `_`, the first of them a letter");
        return Err(SpecError::new("name", name, &allowed));
    }
    let is_taken = forebay_policy::registry().named(name).is_some();
    if is_taken || LINUX_ONLY.contains(&name) || ["aut", "reno"].contains(&name) {
        return Err(SpecError::new("name", name, "a name that no other algorithm has"));
    }
    Ok(())
}

/// Beginning of the keys that name digests.
const SOURCES: &str = "sources.";
/// How much of the digest of a policy is kept, as much as of sources.
const DIGEST_BYTES: usize = 8;

/// The parameter of a run that tells which version of the algorithm `name` decides in it; `None` where its version is
/// the program's.
pub fn version(name: &str) -> Option<(String, String)> {
    Some((format!("{SOURCES}{name}"), sources(name)?.to_string()))
}

/// The parameter of a run that tells which version of `cc` decides in it: of a policy the digest of its file.
///
/// # Errors
///
/// The file of a policy is none, or cannot be read.
pub fn version_of(cc: &Spec) -> Result<Option<(String, String)>, SpecError> {
    if cc.kind != forebay_policy::ALGORITHM.name {
        return Ok(version(&cc.kind));
    }
    let file = forebay_policy::file_of(cc)?;
    let digest = Sha256::digest(forebay_policy::refresh(cc)?);
    let hex = digest.iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect();
    Ok(Some((format!("{SOURCES}{file}"), hex)))
}

/// Whether the parameter `key` tells the version of an algorithm.
pub fn is_version(key: &str) -> bool {
    key.starts_with(SOURCES)
}

/// The versions of algorithms that count among results: the one that this program has, else the one that ran last.
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

    /// Whether all that decided in a run with these parameters counts.
    pub fn count(&self, parameters: &BTreeMap<String, String>) -> bool {
        told(parameters).all(|(key, sources)| self.0.get(key) == Some(sources))
    }
}

/// Keys and digests that `parameters` tell.
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
    fn of_an_algorithm_that_is_not_here_the_version_that_ran_last_counts() {
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
    fn the_version_of_a_policy_is_the_digest_of_its_file() {
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
        // ModelProto.doc_string, which changes nothing but the file.
        let mut bytes = std::fs::read(file).unwrap();
        bytes.extend([0x32, 1, b'x']);
        std::fs::write(file, &bytes).unwrap();
        assert_ne!(version_of(&cc).unwrap().unwrap().1, first);
        copy("unknown_operator").unwrap();
        let error = version_of(&cc).unwrap_err().to_string();
        assert!(error.contains("learnt.onnx: allowed is a policy (node y (Conv): "), "{error}");
        assert_eq!(version_of(&Spec::named("cubic")), Ok(None));
    }

    #[test]
    fn names_are_of_few_letters_and_mean_one_thing() {
        assert!(check_name("my_cc2").is_ok());
        for name in ["", "2cc", "_cc", "my-cc", "MyCc", "a.b", "twentyfive_letters_in_all"] {
            let error = check_name(name).unwrap_err().to_string();
            assert!(error.contains("at most 24 of a-z"), "{error}");
        }
        for name in ["cubic", "reno", "aut", "nv"] {
            let error = check_name(name).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("name = {name}: allowed is a name that no other algorithm has")
            );
        }
    }
}
