//! A user's own algorithms. Where the folder of a crate stands for an algorithm, a program is built that
//! knows the crate's entry as well, and takes the place of this one.
//!
//! ```text
//! forebay bench ./my_cc cubic ──► paths ──► Crate (manifest, digest of its sources)
//!                                   └──► program: a few lines, built by cargo in a shadow of forebay's workspace
//!                                        └──► exec with the same arguments
//! that program:    ./my_cc ──► my_cc, the name of the entry ──► the command, unchanged
//! ```

mod manifest;
mod paths;
mod program;
mod shadow;

use std::path::Path;

use anyhow::Context;
use forebay_core::text::shell_word;
use forebay_policy::algorithms::{self, Own};

use self::manifest::Crate;
pub use self::manifest::root_of;
use crate::Program;
use crate::commands::BadInput;

/// The option that makes algorithms known which no argument names.
#[derive(clap::Args)]
pub struct With {
    /// Add the algorithm of this crate, under the name of its entry. DIR is a folder that `forebay
    /// new-algorithm` wrote. May be repeated.
    #[arg(long = "with", value_parser = paths::folder, value_name = "DIR")]
    folders: Vec<String>,
}

impl With {
    /// The folders.
    pub fn mentions(&mut self) -> Vec<&mut String> {
        self.folders.iter_mut().collect()
    }
}

/// Arguments of a shell command that add the algorithms of this program again.
pub fn arguments() -> String {
    algorithms::own().iter().map(|own| format!(" --with {}", shell_word(own.folder))).collect()
}

/// The values of `--set` that may name an algorithm.
pub fn in_sets(sets: &mut [String]) -> impl Iterator<Item = &mut String> {
    sets.iter_mut().filter(|set| paths::is_of_algorithm(set))
}

/// Makes the algorithms known that this program was built with.
pub fn register(own: &[Own]) -> anyhow::Result<()> {
    let folders = || own.iter().map(|own| own.folder).collect::<Vec<_>>().join(", ");
    algorithms::add(own)
        .map_err(|error| BadInput(format!("{}: ALGORITHM: {error}", folders())).into())
}

/// Replaces the path of a crate in a text of `mentions` by the name of the crate's entry. If this program was
/// not built with these crates, one that was takes its place, with the same arguments and the commands of
/// `program`.
pub fn name_crates(mentions: Vec<&mut String>, program: &Program) -> anyhow::Result<()> {
    let mut found: Vec<String> = Vec::new();
    for path in mentions.iter().flat_map(|text| paths::in_text(text)) {
        if !found.contains(&path) {
            found.push(path);
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    if algorithms::own().is_empty() {
        let crates = found.iter().map(|path| Crate::read(path));
        let mut crates = crates.collect::<Result<Vec<_>, _>>().map_err(BadInput)?;
        crates.sort_by(|one, other| one.folder.cmp(&other.folder));
        crates.dedup_by(|one, other| one.folder == other.folder);
        return Err(program::exec(&program::build(&crates, program)?));
    }
    let names = found.iter().map(|path| name_of(path).map(|name| (path, name)));
    let names = names.collect::<anyhow::Result<Vec<_>>>()?;
    for text in mentions {
        let name =
            |path: &str| names.iter().find(|(found, _)| *found == path).map(|(_, name)| *name);
        *text = paths::replaced(text, |path| name(path).unwrap_or(path));
    }
    Ok(())
}

/// Name of the algorithm whose crate is at `path`.
fn name_of(path: &str) -> anyhow::Result<&'static str> {
    let folder = std::fs::canonicalize(path).with_context(|| path.to_string())?;
    let own = algorithms::own().iter().find(|own| Path::new(own.folder) == folder);
    let own = own.with_context(|| format!("{path}: this program was built without it"))?;
    Ok(own.algorithm.name)
}
