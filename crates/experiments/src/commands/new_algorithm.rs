//! `forebay new-algorithm`.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use forebay_policy::algorithms::check_name;

use forebay::commands::foreign_rust::root_of;
use forebay::{BadInput, print};

/// Create a crate for an algorithm of your own.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay new-algorithm my_cc       # creates my_cc/ with a working algorithm to change\n  \
    cd my_cc && cargo test            # forebay's rules for every algorithm, and your own tests\n  \
    forebay bench . cubic             # builds a program with it, and benchmarks both\n\n\
    For more, see docs/research/your-algorithm.md in forebay's sources.")]
pub struct NewAlgorithm {
    /// Name of the algorithm in plans: a-z, 0-9 and _.
    #[arg(value_name = "NAME")]
    name: String,
    /// Write C instead of Rust: callbacks of forebay_cc.h, for code of a QUIC stack or a kernel.
    #[arg(long)]
    c: bool,
    /// New folder [default: NAME].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Root of forebay's sources, with which cargo builds the crate [default: a folder above this
    /// program].
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
}

/// Name of a file in the crate, and the parts of its contents.
type File = (&'static str, &'static [&'static str]);

macro_rules! template {
    ($name:literal) => {
        include_str!(concat!("../../templates/", $name))
    };
}

/// Start of the manifest of every new crate.
const MANIFEST: &str = template!("manifest.toml");
/// End of the README of every new crate: how to test and run the algorithm.
const USING: &str = template!("using.md");
/// Outputs of cargo and forebay, which git ignores.
const GITIGNORE: File = (".gitignore", &["/target\n/out\n"]);

/// Files of a crate in Rust.
const RUST: [File; 4] = [
    ("Cargo.toml", &[MANIFEST]),
    ("README.md", &[template!("rust/README.md"), USING]),
    GITIGNORE,
    ("src/lib.rs", &[template!("rust/lib.rs")]),
];

/// Files of a crate in C.
const C: [File; 7] = [
    ("Cargo.toml", &[MANIFEST, template!("c/manifest.toml")]),
    ("README.md", &[template!("c/README.md"), USING]),
    GITIGNORE,
    ("build.rs", &[template!("c/build.rs")]),
    ("src/lib.rs", &[template!("c/lib.rs")]),
    ("my_cc.c", &[template!("c/my_cc.c")]),
    ("forebay_cc.h", &[include_str!("../../../capi/include/forebay_cc.h")]),
];

/// Placeholders in the templates: name of the algorithm, its type, and the root of forebay's sources.
const PLACEHOLDERS: [&str; 3] = ["my_cc", "MyCc", "/path/to/forebay"];

impl NewAlgorithm {
    /// Writes the crate and prints the next steps.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        check_name(&self.name).map_err(|error| BadInput(format!("NAME: {error}")))?;
        let root = self.root()?;
        let folder = self.out.unwrap_or_else(|| self.name.clone().into());
        let files: &[File] = if self.c { &C } else { &RUST };
        let words = [self.name.clone(), camel(&self.name), root.display().to_string()];
        fs::create_dir(&folder).map_err(|error| {
            let allowed = "a new folder in one that can be written";
            BadInput(format!("{}: {error}: allowed is {allowed}", folder.display()))
        })?;
        if let Err(error) = write(&folder, files, &words, &root) {
            // Half a crate is worse than none.
            let _ = fs::remove_dir_all(&folder);
            return Err(error).with_context(|| folder.display().to_string());
        }
        let path = folder.display();
        print(&format!(
            "{path} is a crate with a working algorithm. Change it in {path}/{}\n\
             cd {path} && cargo test          checks it by the rules for every algorithm\n\
             forebay bench {} cubic       benchmarks both\n",
            if self.c { format!("{}.c", self.name) } else { "src/lib.rs".into() },
            if folder.is_absolute() { path.to_string() } else { format!("./{path}") },
        ))?;
        Ok(ExitCode::SUCCESS)
    }

    /// Root of forebay's sources: `--source`, or the folder above this program that has them.
    fn root(&self) -> Result<PathBuf, BadInput> {
        let of = |folder: &Path| root_of(&folder.join("crates/core"));
        let program = env::current_exe().unwrap_or_default();
        let (root, why) = match &self.source {
            Some(source) => (of(source), format!("--source {}", source.display())),
            None => (
                program.ancestors().skip(1).find_map(of),
                "no folder above this program has forebay's sources: name it with --source DIR"
                    .into(),
            ),
        };
        root.ok_or_else(|| {
            BadInput(format!(
                "{why}: allowed is the root of forebay's sources, with crates/core in it"
            ))
        })
    }
}

/// Writes `files` with `words` in place of the templates' placeholders, and with the toolchain and
/// dependency versions of forebay.
fn write(folder: &Path, files: &[File], words: &[String; 3], root: &Path) -> io::Result<()> {
    let filled = |text: &str| {
        let pairs = PLACEHOLDERS.iter().zip(words);
        pairs.fold(text.to_string(), |text, (placeholder, word)| text.replace(placeholder, word))
    };
    for (name, parts) in files {
        let file = folder.join(filled(name));
        fs::create_dir_all(file.parent().unwrap_or(folder))?;
        fs::write(file, filled(&parts.concat()))?;
    }
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).map(drop)
}

/// `my_cc` as a type is called: `MyCc`.
fn camel(name: &str) -> String {
    let capitalised = |word: &str| -> String {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
    };
    name.split('_').map(capitalised).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(c: bool, name: &str) -> (tempfile::TempDir, PathBuf) {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join(name);
        let out = Some(folder.clone());
        NewAlgorithm { name: name.into(), c, out, source: None }.execute().unwrap();
        (parent, folder)
    }

    #[test]
    fn new_crate_has_name_and_no_placeholder() {
        for c in [false, true] {
            let (_parent, folder) = made(c, "fast_one2");
            let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
            let files = if c { &C[..] } else { &RUST[..] };
            for (name, _) in files {
                let text = read(&name.replace("my_cc", "fast_one2"));
                assert!(PLACEHOLDERS.iter().all(|it| !text.contains(it)), "{name}:\n{text}");
            }
            assert!(read("src/lib.rs").contains("name: \"fast_one2\","));
            assert!(read("Cargo.lock").contains("name = \"proptest\""));
            let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
            let core = manifest["dependencies"]["forebay-core"]["path"].as_str().unwrap();
            assert!(root_of(Path::new(core)).is_some(), "{core}");
        }
    }

    #[test]
    fn refuses_taken_name_existing_folder_and_other_sources() {
        let (_parent, folder) = made(false, "mine");
        let run = |name: &str, out: &Path, source: Option<&Path>| {
            let (out, source) = (Some(out.into()), source.map(PathBuf::from));
            let made = NewAlgorithm { name: name.into(), c: false, out, source }.execute();
            let error = made.unwrap_err();
            assert!(error.downcast_ref::<BadInput>().is_some(), "{error:?}");
            error.to_string()
        };
        let new = folder.join("new");
        assert!(run("cubic", &new, None).starts_with("NAME: name = cubic: allowed is a name"));
        assert!(run("mine", &folder, None).contains("File exists"));
        assert!(run("mine", &new.join("below"), None).contains("allowed is a new folder"));
        let error = run("mine", &new, Some(&folder));
        assert!(error.starts_with("--source ") && error.contains("crates/core in it"), "{error}");
        assert!(!new.exists());
    }
}
