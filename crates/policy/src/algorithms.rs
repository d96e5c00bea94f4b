//! The algorithms that this program knows by name: core's, policies, and the user's own, which the program
//! was built with or which a file in Python has.

use std::path::Path;
use std::sync::{LazyLock, PoisonError, RwLock};

use forebay_core::cc::foreign::bounded;
use forebay_core::cc::{Algorithm, Registry};
use forebay_core::spec::SpecError;

use crate::registry;

/// Congestion controls of Linux (net/ipv4/tcp_*.c) that are no algorithms of ours.
pub const LINUX_ONLY: [&str; 2] = ["cdg", "nv"];

/// An algorithm of the user's own, and the crate that it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// Entry of the crate.
    pub algorithm: Algorithm,
    /// Folder of the crate, without symbolic links in its path; for an algorithm in Python, its file.
    pub folder: &'static str,
    /// Digest of the crate's sources, in hex.
    pub sources: &'static str,
}

struct Known {
    registry: Registry,
    own: Vec<Own>,
}

/// The algorithms of this process: built-in algorithms, policies, and algorithms that programs added.
static KNOWN: LazyLock<RwLock<&Known>> = LazyLock::new(|| {
    let known = Known { registry: registry(), own: Vec::new() };
    RwLock::new(Box::leak(Box::new(known)))
});

fn all() -> &'static Known {
    *KNOWN.read().unwrap_or_else(PoisonError::into_inner)
}

/// Every algorithm of this program. [`add`] puts another registry in its place.
pub fn known() -> &'static Registry {
    &all().registry
}

/// The algorithms of the user's own.
pub fn own() -> &'static [Own] {
    &all().own
}

/// Digest of the sources of the algorithm `name`, if it is the user's own.
pub fn sources(name: &str) -> Option<&'static str> {
    own().iter().find(|own| own.algorithm.name == name).map(|own| own.sources)
}

/// The file in Python with the class of the algorithm `name`, if it is one.
pub fn python(name: &str) -> Option<&'static Path> {
    let own = own().iter().find(|own| own.algorithm.name == name)?;
    Some(Path::new(own.folder)).filter(|file| file.is_file())
}

/// Adds `own` to the algorithms that this program knows, each in place of an added one of its name. Plans
/// that were loaded by then keep the algorithms that they know. Every limit that such an algorithm
/// sets is brought within bounds before its host sees it.
///
/// # Errors
///
/// A name that plans cannot write, or that an algorithm of the program or another of `own` has; then nothing
/// is added.
pub fn add(own: &[Own]) -> Result<(), SpecError> {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let is_replaced = |older: &Own| own.iter().any(|it| it.algorithm.name == older.algorithm.name);
    let mut all = known.own.clone();
    all.retain(|older| !is_replaced(older));
    all.extend(own);
    let mut registry = registry();
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
        let allowed = format!("at most {NAME_MAX} of a-z, 0-9 and `_`, starting with a letter");
        return Err(SpecError::new("name", name, &allowed));
    }
    let is_taken = registry().named(name).is_some();
    if is_taken || LINUX_ONLY.contains(&name) || ["aut", "reno"].contains(&name) {
        return Err(SpecError::new("name", name, "a name that no other algorithm has"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_unique() {
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
