//! Forebay with a user's own algorithms: a crate of a few lines, and where cargo puts its output.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use serde_json::Value;
use toml::Table;

use super::manifest::Crate;
use super::shadow;
use crate::Program;
use crate::commands::{BadInput, laboratory};

/// Builds `of` with the algorithms of `crates`, as this program was built; returns the path of the program.
/// Cargo reports its progress on stderr, and the mistakes in a crate.
///
/// # Errors
///
/// Bad input: crates that have forebay from different places, code that the compiler refuses. No cargo, or
/// another failure.
pub fn build(crates: &[Crate], of: &Program) -> anyhow::Result<PathBuf> {
    let forebay = &crates[0].forebay;
    if let Some(other) = crates.iter().find(|it| it.forebay != *forebay) {
        let (one, another) = (forebay.display(), other.forebay.display());
        let paths = format!("{} and {}", crates[0].path, other.path);
        let reason = format!("{paths}: one uses forebay from {one}, one from {another}");
        return Err(BadInput(format!("{reason}: allowed is one place for all")).into());
    }
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(target) => std::path::absolute(target)?,
        None => forebay.join("target"),
    };
    let lock = read(&forebay.join("Cargo.lock"))?;
    let name = name(crates, &lock, of);
    let home = target.join("own").join(&name);
    let of_program =
        write(&home, &name, crates, &lock, of).with_context(|| home.display().to_string())?;
    let program = run_cargo(&name, &of_program, &target, crates)?;
    crates.iter().try_for_each(is_unchanged)?;
    Ok(program)
}

/// Refuses a crate whose sources have changed since it was read: the program would show a digest of sources
/// that it was not built from.
fn is_unchanged(it: &Crate) -> anyhow::Result<()> {
    let sources = forebay_sources::of_crate(&it.folder).with_context(|| it.path.clone())?;
    if sources == it.sources {
        return Ok(());
    }
    anyhow::bail!("{}: changed while it was built: allowed is another try", it.path)
}

fn read(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| file.display().to_string())
}

/// A name for programs with exactly these crates, for any version of their sources. A program of another profile or
/// with other features has another name: its build does not replace the files of a running program.
fn name(crates: &[Crate], lock: &str, of: &Program) -> String {
    let mut hasher = DefaultHasher::new();
    crates.iter().for_each(|it| it.folder.hash(&mut hasher));
    lock.hash(&mut hasher);
    (cfg!(feature = "host"), cfg!(debug_assertions)).hash(&mut hasher);
    let packages: Vec<&str> = crates.iter().map(|it| it.package.as_str()).take(3).collect();
    format!("{}-with-{}-{:08x}", of.package, packages.join("-"), hasher.finish() as u32)
}

/// Writes the crate of the program, and the workspace that it is a member of; gives the folder of the crate.
fn write(
    home: &Path,
    name: &str,
    crates: &[Crate],
    lock: &str,
    of: &Program,
) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(home)?;
    let file = home.join("Cargo.lock");
    if !file.exists() {
        // The versions that forebay is built with: nothing has to be looked up.
        // Another build at the same time sees all of the file or none.
        let whole = home.join(format!("Cargo.lock.{}", std::process::id()));
        std::fs::write(&whole, lock)?;
        std::fs::rename(whole, file)?;
    }
    let forebay = &crates[0].forebay;
    let file = forebay.join("Cargo.toml");
    let root: Table = read(&file)?.parse().with_context(|| file.display().to_string())?;
    let program = match shadow::manifests(&root, crates)? {
        Some((root, members)) => {
            shadow::link_members(home, &root, forebay)?;
            for (number, (it, member)) in crates.iter().zip(members).enumerate() {
                let folder = home.join(shadow::folder_of(number));
                std::fs::create_dir_all(&folder)?;
                shadow::link_crate(&folder, &it.folder)?;
                place(&folder.join("Cargo.toml"), &member.to_string())?;
            }
            place(&home.join("Cargo.toml"), &root.to_string())?;
            let paths =
                (0..crates.len()).map(|number| Path::new("..").join(shadow::folder_of(number)));
            let program = home.join(shadow::PROGRAM);
            std::fs::create_dir_all(program.join("src"))?;
            let text = manifest(name, of, Path::new(".."), crates, paths);
            place(&program.join("Cargo.toml"), &text)?;
            program
        }
        None => {
            std::fs::create_dir_all(home.join("src"))?;
            place(&home.join("Cargo.toml"), &apart(name, of, crates, root))?;
            home.to_path_buf()
        }
    };
    place(&program.join("src/main.rs"), &main(crates, of))?;
    Ok(program)
}

/// Writes a file only if its text has changed: cargo compares the times of files.
fn place(file: &Path, text: &str) -> io::Result<()> {
    match std::fs::read(file) {
        Ok(there) if there == text.as_bytes() => Ok(()),
        _ => std::fs::write(file, text),
    }
}

/// `Cargo.toml` of the program: `of` in the sources `forebay` with the features of this one, and the crates at these
/// `paths`.
fn manifest(
    name: &str,
    of: &Program,
    forebay: &Path,
    crates: &[Crate],
    paths: impl Iterator<Item = PathBuf>,
) -> String {
    let path = |path: &Path| toml::Value::from(path.display().to_string());
    // Not only the feature: with the default features, cargo uses the forebay that is built already.
    let features = if cfg!(feature = "host") { "" } else { ", default-features = false" };
    let mut text = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n\
         [dependencies]\n{} = {{ path = {}{features} }}\n",
        of.package,
        path(&forebay.join(of.folder))
    );
    for (number, (it, folder)) in crates.iter().zip(paths).enumerate() {
        let package = toml::Value::from(it.package.as_str());
        text += &format!("own{number} = {{ package = {package}, path = {} }}\n", path(&folder));
    }
    text
}

/// `Cargo.toml` of a program outside forebay's workspace: cargo builds all its dependencies again. It has the profiles
/// of forebay's workspace (`root`), so that it is as fast as this program.
fn apart(name: &str, of: &Program, crates: &[Crate], root: Table) -> String {
    let paths = crates.iter().map(|it| it.folder.clone());
    let text = manifest(name, of, &crates[0].forebay, crates, paths);
    let profiles = root.into_iter().filter(|(key, _)| key == "profile");
    format!("{text}\n[workspace]\n\n{}", profiles.collect::<Table>())
}

/// `main.rs`.
fn main(crates: &[Crate], of: &Program) -> String {
    let library = of.package.replace('-', "_");
    let mut entries = String::new();
    for (place, Crate { folder, sources, .. }) in crates.iter().enumerate() {
        entries += &format!(
            "        {library}::Own {{\n            algorithm: own{place}::ALGORITHM,\n            \
             folder: {:?},\n            sources: {sources:?},\n        }},\n",
            folder.display().to_string()
        );
    }
    format!(
        "//! Forebay with your own algorithms. Written by `forebay`.\n\n\
         fn main() -> std::process::ExitCode {{\n    {library}::main(&[\n{entries}    ])\n}}\n"
    )
}

fn run_cargo(name: &str, home: &Path, target: &Path, crates: &[Crate]) -> anyhow::Result<PathBuf> {
    let paths: Vec<&str> = crates.iter().map(|it| it.path.as_str()).collect();
    let paths = paths.join(", ");
    eprintln!("building forebay with {paths}, which may take minutes the first time");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // This folder has the file that selects the toolchain.
    cargo.current_dir(&crates[0].forebay).env("CARGO_TARGET_DIR", target);
    cargo.args(["build", "--message-format", "json-render-diagnostics", "--manifest-path"]);
    cargo.arg(home.join("Cargo.toml"));
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(|error| {
        let reason = "your own algorithms need cargo: install it from https://rustup.rs";
        anyhow::anyhow!("{paths}: cargo: {error}: {reason}")
    })?;
    let program = executable(name, &String::from_utf8_lossy(&output.stdout));
    program.filter(|_| output.status.success()).ok_or_else(|| {
        let entry = "`pub const ALGORITHM: forebay_core::cc::Algorithm`";
        let reason = format!(
            "cargo could not build it, see above; the root of the crate must export {entry}"
        );
        BadInput(format!("{paths}: {reason}")).into()
    })
}

/// Path of the program `name`, from cargo's messages.
fn executable(name: &str, messages: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter(|message| message["target"]["name"] == name);
    programs.find_map(|message| Some(message["executable"].as_str()?.into()))
}

/// Replaces this process by `program`, with the same arguments; returns the reason if it cannot.
pub fn exec(program: &Path) -> anyhow::Error {
    let error = laboratory::uncalled(program).args(std::env::args_os().skip(1)).exec();
    anyhow::Error::new(error).context(program.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FOREBAY;

    fn crates() -> [Crate; 2] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        ["one", "the \"other\""].map(|name| Crate {
            path: format!("./{name}"),
            folder: format!("/home/me/{name}").into(),
            package: "my-cc".into(),
            forebay: std::fs::canonicalize(&root).unwrap(),
            sources: "0123456789abcdef".into(),
        })
    }

    #[test]
    fn manifest_has_forebay_crates_and_profiles() {
        let root = read(&crates()[0].forebay.join("Cargo.toml")).unwrap();
        let text = apart("forebay-with-x", &FOREBAY, &crates(), root.parse().unwrap());
        let manifest: Table = text.parse().unwrap();
        let dependencies = &manifest["dependencies"];
        assert!(dependencies["forebay"]["path"].as_str().unwrap().ends_with("/crates/app"));
        assert_eq!(dependencies["own1"]["path"].as_str(), Some("/home/me/the \"other\""));
        assert_eq!(dependencies["own1"]["package"].as_str(), Some("my-cc"));
        let optimised = &manifest["profile"]["release"]["package"]["forebay-sim"];
        assert_eq!(optimised["codegen-units"].as_integer(), Some(1));
        assert!(manifest["workspace"].as_table().unwrap().is_empty());
    }

    #[test]
    fn program_passes_entries_with_folder_and_digest() {
        let text = main(&crates(), &FOREBAY);
        assert!(text.contains("        forebay::Own {\n"), "{text}");
        assert!(
            text.contains("algorithm: own0::ALGORITHM,\n            folder: \"/home/me/one\",\n")
        );
        assert!(text.contains("folder: \"/home/me/the \\\"other\\\"\",\n"));
        assert!(text.contains("sources: \"0123456789abcdef\",\n        },\n    ])\n}\n"), "{text}");
    }

    #[test]
    fn program_name_depends_on_crates_and_versions() {
        let [one, other] = crates();
        let both = name(&[one, other], "lock", &FOREBAY);
        assert!(both.starts_with("forebay-with-my-cc-my-cc-"), "{both}");
        let names = [(&crates()[..], "lock"), (&crates()[..1], "lock"), (&crates()[..], "other")];
        let names = names.map(|(crates, lock)| name(crates, lock, &FOREBAY));
        assert!(names[0] == both && names[1] != both && names[2] != both);
    }

    #[test]
    fn refuses_crate_that_changed_during_build() {
        let folder = tempfile::tempdir().unwrap();
        let [one, _] = crates();
        let sources = forebay_sources::of_crate(folder.path()).unwrap();
        let one = Crate { folder: folder.path().into(), sources, ..one };
        is_unchanged(&one).unwrap();
        std::fs::write(folder.path().join("lib.rs"), "1").unwrap();
        let error = is_unchanged(&one).unwrap_err();
        assert!(error.downcast_ref::<BadInput>().is_none(), "another try may succeed");
        assert_eq!(error.to_string(), "./one: changed while it was built: allowed is another try");
    }

    #[test]
    fn refuses_crates_with_two_forebay_roots() {
        let [one, other] = crates();
        let other = Crate { forebay: "/elsewhere".into(), ..other };
        let error = build(&[one, other], &FOREBAY).unwrap_err();
        assert!(error.downcast_ref::<BadInput>().is_some());
        assert!(error.to_string().contains("one from /elsewhere: allowed is one place for all"));
    }

    #[test]
    fn cargo_tells_where_the_program_is() {
        let messages = "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"x\"},\"executable\":null}\n\
                        {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"x\"},\"executable\":\"/t/x\"}\n\
                        {\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(executable("x", messages), Some("/t/x".into()));
        assert_eq!(executable("y", messages), None);
    }
}
