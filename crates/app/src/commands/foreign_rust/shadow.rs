//! A workspace that stands for forebay's own, with the program and its crates as further members. Cargo names
//! its outputs by the path of a package below the root of its workspace. So outputs built for forebay serve
//! here, too.
//!
//! ```text
//! NAME/  Cargo.toml           forebay's, with these members
//!        crates, fuzz, xtask  links to forebay's folders
//!        program/             the program
//!        own0/                a crate: its manifest, in which forebay's crates are those in here, and links to all else
//! ```

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use toml::{Table, Value};

use super::manifest::Crate;

/// The folder of the program.
pub const PROGRAM: &str = "program";
/// Tables of a manifest with packages that the crate is built of.
const DEPENDENCIES: [&str; 2] = ["dependencies", "build-dependencies"];
/// Parts of a manifest that are for the crate alone: its workspace, and dependencies of its tests.
const LEFT_OUT: [&str; 5] = ["dev-dependencies", "patch", "profile", "replace", "workspace"];
/// Entries of a crate's folder that are not linked: the manifest is another one, and cargo writes the rest.
const NOT_LINKED: [&str; 3] = ["Cargo.toml", "Cargo.lock", "target"];

/// The folder of a crate.
pub fn folder_of(place: usize) -> String {
    format!("own{place}")
}

/// The manifests of forebay's root and of the crates in such a workspace. `None` where a crate can be no
/// member of it: it has something of a workspace of its own or another crate by its path, or its name is
/// taken.
pub fn manifests(root: &Table, crates: &[Crate]) -> anyhow::Result<Option<(Table, Vec<Table>)>> {
    let names: BTreeSet<&str> = crates.iter().map(|it| it.package.as_str()).collect();
    if names.len() < crates.len() || names.iter().any(|name| name.starts_with("forebay")) {
        return Ok(None);
    }
    let mut members = Vec::new();
    for it in crates {
        let file = it.folder.join("Cargo.toml");
        let read = || anyhow::Ok(std::fs::read_to_string(&file)?.parse()?);
        let manifest = read().with_context(|| file.display().to_string())?;
        let Some(member) = member(manifest, &it.folder, &it.forebay) else { return Ok(None) };
        members.push(member);
    }
    let mut root = root.clone();
    let workspace = root.get_mut("workspace").and_then(Value::as_table_mut);
    let workspace = workspace.context("forebay's Cargo.toml has no workspace")?;
    workspace.remove("default-members");
    let of_root = workspace.get_mut("members").and_then(Value::as_array_mut);
    let of_root = of_root.context("forebay's workspace has no members")?;
    of_root.push(PROGRAM.into());
    of_root.extend((0..crates.len()).map(|place| folder_of(place).into()));
    Ok(Some((root, members)))
}

/// The manifest of a crate as a member, if it can be one.
fn member(mut manifest: Table, folder: &Path, forebay: &Path) -> Option<Table> {
    LEFT_OUT.iter().for_each(|key| drop(manifest.remove(*key)));
    if manifest.values().any(is_inherited) {
        return None;
    }
    let mut tables = vec![&mut manifest];
    let mut of_all = Vec::new();
    while let Some(table) = tables.pop() {
        for (key, value) in table {
            let Some(table) = value.as_table_mut() else { continue };
            match key.as_str() {
                "target" => tables.extend(table.iter_mut().filter_map(|(_, it)| it.as_table_mut())),
                key if DEPENDENCIES.contains(&key) => of_all.push(table),
                _ => {}
            }
        }
    }
    for dependency in of_all.into_iter().flat_map(|all| all.iter_mut()).map(|(_, it)| it) {
        let Some(Value::String(path)) = dependency.get_mut("path") else { continue };
        let whole = std::fs::canonicalize(folder.join(&path)).ok()?;
        let inside = whole.strip_prefix(forebay).ok()?;
        *path = Path::new("..").join(inside).to_str()?.into();
    }
    // The compiler's messages name the places of these files.
    let lib = manifest.entry("lib").or_insert_with(|| Table::new().into()).as_table_mut()?;
    let source = lib.get("path").and_then(Value::as_str).unwrap_or("src/lib.rs");
    let source = folder.join(source).to_str()?.to_string();
    lib.insert("path".into(), source.into());
    let package = manifest.get_mut("package")?.as_table_mut()?;
    let build = folder.join(package.get("build").and_then(Value::as_str).unwrap_or("build.rs"));
    if build.exists() && !package.get("build").is_some_and(Value::is_bool) {
        package.insert("build".into(), build.to_str()?.into());
    }
    Some(manifest)
}

/// Whether a part of a manifest is inherited from the crate's workspace.
fn is_inherited(value: &Value) -> bool {
    let Value::Table(table) = value else { return false };
    table.contains_key("workspace") || table.values().any(is_inherited)
}

/// Links from the workspace in `home` to the folders of forebay's members.
pub fn link_members(home: &Path, root: &Table, forebay: &Path) -> anyhow::Result<()> {
    let members = root["workspace"].get("members").and_then(Value::as_array);
    let members = members.context("forebay's workspace has no members")?;
    for member in members {
        let member = member.as_str().map(Path::new).and_then(|it| it.components().next());
        let Some(Component::Normal(first)) = member else {
            return Err(anyhow::anyhow!(
                "{member:?}: a member of forebay's workspace lies elsewhere"
            ));
        };
        if forebay.join(first).is_dir() {
            link(&forebay.join(first), &home.join(first))?;
        }
    }
    Ok(())
}

/// Links from `home` to the entries of a crate's folder, and removes links to entries that have gone.
pub fn link_crate(home: &Path, folder: &Path) -> io::Result<()> {
    let is_linked = |name: &OsStr| !NOT_LINKED.iter().any(|it| name == *it);
    for entry in std::fs::read_dir(home)? {
        let entry = entry?;
        if is_linked(&entry.file_name()) && !folder.join(entry.file_name()).exists() {
            gone_is_well(std::fs::remove_file(entry.path()))?;
        }
    }
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if is_linked(&entry.file_name()) {
            link(&entry.path(), &home.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Makes a link, unless it is there: another build at the same time makes the same.
fn link(to: &Path, at: &PathBuf) -> io::Result<()> {
    if std::fs::read_link(at).is_ok_and(|there| there == to) {
        return Ok(());
    }
    gone_is_well(std::fs::remove_file(at))?;
    match symlink(to, at) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn gone_is_well(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Manifest of a workspace like forebay's.
    const ROOT: &str = "[workspace]\nmembers = [\"crates/*\", \"fuzz\"]\ndefault-members = [\"crates/app\"]\n\
                        [profile.release]\ndebug = 1\n";

    fn forebay() -> PathBuf {
        std::fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
    }

    /// The manifest of a crate as a member, if it can be one, and its folder.
    fn member_of(manifest: &str) -> (Option<Table>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("build.rs"), "").unwrap();
        (member(manifest.parse().unwrap(), folder.path(), &forebay()), folder)
    }

    fn with_core(rest: &str) -> String {
        let core = forebay().join("crates/core");
        format!(
            "[package]\nname = \"a\"\n[dependencies]\nforebay-core = {{ path = {core:?} }}\n{rest}"
        )
    }

    #[test]
    fn member_links_forebay_and_keeps_source_paths() {
        let rest = format!(
            "[target.'cfg(unix)'.build-dependencies.forebay-capi]\npath = {:?}\nfeatures = [\"compile\"]\n\
             [dev-dependencies]\nforebay-core.path = \"nowhere\"\n[workspace]\n[profile.dev]\nopt-level = 2\n",
            forebay().join("crates/capi")
        );
        let (member, folder) = member_of(&with_core(&rest));
        let member = member.unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_string();
        assert_eq!(text(&member["dependencies"]["forebay-core"]["path"]), "../crates/core");
        let capi = &member["target"]["cfg(unix)"]["build-dependencies"]["forebay-capi"];
        assert_eq!(
            (text(&capi["path"]), capi.get("features").is_some()),
            ("../crates/capi".into(), true)
        );
        let at = |name: &str| folder.path().join(name).display().to_string();
        assert_eq!(text(&member["lib"]["path"]), at("src/lib.rs"));
        assert_eq!(text(&member["package"]["build"]), at("build.rs"));
        assert_eq!(member.keys().collect::<Vec<_>>(), ["dependencies", "lib", "package", "target"]);
        let (elsewhere, folder) = member_of(&with_core("[lib]\npath = \"law.rs\"\n"));
        let lib = text(&elsewhere.unwrap()["lib"]["path"]);
        assert_eq!(lib, folder.path().join("law.rs").display().to_string());
    }

    #[test]
    fn crate_with_own_workspace_is_no_member() {
        for rest in [
            "serde = { workspace = true }\n",
            "other = { path = \"/tmp\" }\n",
            "gone = { path = \"nowhere\" }\n",
            "[lints]\nworkspace = true\n",
        ] {
            assert_eq!(member_of(&with_core(rest)).0, None, "{rest}");
        }
    }

    #[test]
    fn root_lists_program_and_crates_as_members() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("Cargo.toml"), with_core("")).unwrap();
        let own = |package: &str| Crate {
            path: "./a".into(),
            folder: folder.path().into(),
            package: package.into(),
            forebay: forebay(),
            sources: String::new(),
        };
        let root: Table = ROOT.parse().unwrap();
        let (of_root, members) = manifests(&root, &[own("a"), own("b")]).unwrap().unwrap();
        let expected: Table =
            "[workspace]\nmembers = [\"crates/*\", \"fuzz\", \"program\", \"own0\", \"own1\"]\n\
                               [profile.release]\ndebug = 1\n"
                .parse()
                .unwrap();
        assert_eq!((of_root, members.len()), (expected, 2));
        for taken in [["a", "a"], ["a", "forebay-core"]] {
            assert_eq!(manifests(&root, &taken.map(own)).unwrap(), None, "{taken:?}");
        }
    }

    #[test]
    fn links_follow_what_lies_in_the_folder() {
        let [home, folder] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let write = |name: &str| std::fs::write(folder.path().join(name), "").unwrap();
        let linked = || {
            link_crate(home.path(), folder.path()).unwrap();
            let names = std::fs::read_dir(home.path()).unwrap().map(|it| it.unwrap().file_name());
            names.map(|it| it.into_string().unwrap()).collect::<BTreeSet<_>>()
        };
        ["Cargo.toml", "Cargo.lock", "target", "a.c"].iter().for_each(|name| write(name));
        assert_eq!(linked(), BTreeSet::from(["a.c".into()]));
        std::fs::remove_file(folder.path().join("a.c")).unwrap();
        write("b.c");
        assert_eq!(linked(), BTreeSet::from(["b.c".into()]));
        assert!(home.path().join("b.c").exists());
    }
}
