//! The crate of an algorithm, as its manifest describes it.

use std::path::{Path, PathBuf};

use forebay_core::text::{of_parser, position};
use toml::{Table, Value};

/// A crate whose root exports an algorithm.
#[derive(Debug)]
pub struct Crate {
    /// The path as it was given.
    pub path: String,
    /// Folder of the crate, without symbolic links in its path.
    pub folder: PathBuf,
    /// Name of the package.
    pub package: String,
    /// Root of forebay's sources, where the crate has `forebay-core` from.
    pub forebay: PathBuf,
    /// Digest of the crate's sources, in hex.
    pub sources: String,
}

impl Crate {
    /// Reads the crate at `path`; the error gives the mistake and the allowed form.
    pub fn read(path: &str) -> Result<Self, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("{path}: {error}");
        let folder = std::fs::canonicalize(path).map_err(|error| wrong(&error))?;
        let file = Path::new(path).join("Cargo.toml");
        let text = std::fs::read_to_string(&file).map_err(|error| {
            let allowed =
                "allowed is the folder of a crate, such as `forebay new-algorithm` writes";
            format!("{}: {error}: {allowed}", file.display())
        })?;
        let (package, core) =
            package_and_core(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        let forebay = root_of(&folder.join(&core)).ok_or_else(|| {
            let allowed = "the folder crates/core of forebay's sources";
            let (file, core) = (file.display(), core.display());
            format!("{file}: dependencies.forebay-core.path = {core}: allowed is {allowed}")
        })?;
        let sources = forebay_sources::of_crate(&folder).map_err(|error| wrong(&error))?;
        Ok(Self { path: path.into(), folder, package, forebay, sources })
    }
}

/// Name of the package, and the path where it has `forebay-core` from.
fn package_and_core(text: &str) -> Result<(String, PathBuf), String> {
    // The error's own text would show the line.
    let manifest: Table = text.parse().map_err(|error: toml::de::Error| {
        let (line, column) = position(text, error.span().map_or(0, |span| span.start));
        format!("line {line}, column {column}: {}", of_parser(error.message()))
    })?;
    let package = manifest.get("package").and_then(|package| package.get("name"));
    let package =
        package.and_then(Value::as_str).ok_or("package.name is missing: allowed is a text")?;
    let core = manifest.get("dependencies").and_then(|all| all.get("forebay-core"));
    let core = core.and_then(|core| core.get("path")).and_then(Value::as_str).ok_or(
        "dependencies.forebay-core.path is missing: allowed is the folder crates/core of forebay's \
         sources, from which the rest of forebay is built as well",
    )?;
    Ok((package.into(), core.into()))
}

/// The root of forebay's sources, if `core` is its folder `crates/core`.
pub fn root_of(core: &Path) -> Option<PathBuf> {
    let core = std::fs::canonicalize(core).ok()?;
    let root = core.parent()?.parent()?;
    let is_root = core.ends_with("crates/core") && root.join("crates/app/Cargo.toml").is_file();
    is_root.then(|| root.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The crate that is read from this manifest.
    fn read(manifest: Option<&str>) -> Result<Crate, String> {
        let folder = tempfile::tempdir().unwrap();
        if let Some(manifest) = manifest {
            std::fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
        }
        Crate::read(folder.path().to_str().unwrap())
    }

    fn with_core(path: &str) -> String {
        format!(
            "[package]\nname = \"a-b\"\n[dependencies]\nforebay-core = {{ path = \"{path}\" }}\n"
        )
    }

    #[test]
    fn crate_is_read_with_root_of_forebay() {
        let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core");
        let found = read(Some(&with_core(core.to_str().unwrap()))).unwrap();
        assert_eq!((found.package.as_str(), found.sources.len()), ("a-b", 16));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert_eq!(found.forebay, std::fs::canonicalize(root).unwrap());
    }

    #[test]
    fn refuses_other_folders_with_file_and_key() {
        let [nowhere, outside] = ["nowhere", ".."].map(with_core);
        for (manifest, reason) in [
            (
                None,
                "Cargo.toml: No such file or directory (os error 2): allowed is the folder of a",
            ),
            (Some("a ="), "Cargo.toml: line 1, column 4: string values"),
            (Some("[package]"), "Cargo.toml: package.name is missing"),
            (Some("[package]\nname = \"a\""), "dependencies.forebay-core.path is missing"),
            (Some(nowhere.as_str()), "dependencies.forebay-core.path = nowhere: allowed is the"),
            (Some(outside.as_str()), "dependencies.forebay-core.path = ..: allowed is the folder"),
        ] {
            let error = read(manifest).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        assert!(Crate::read("./nonesuch").unwrap_err().starts_with("./nonesuch: No such file"));
    }
}
