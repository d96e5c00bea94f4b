//! `make docs`: the pages of `docs/` as a site, and a check of its links.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::{repository, run};

/// The release of mdBook that `docs/book.toml` is written for.
const VERSION: &str = "0.5.4";

/// Where mdBook is installed, below the repository.
const TOOLS: &str = "target/tools";
/// Folder of the site, `build-dir` in `docs/book.toml`, below the repository.
const SITE: &str = "target/site";

/// mdBook's page for unknown addresses; its links start from the root of a server.
const ABSENT: &str = "404.html";

/// Builds the site, with an mdBook of its own.
///
/// # Errors
///
/// mdBook cannot be installed or refuses a page, or links are broken.
pub fn build() -> Result<()> {
    let mdbook = mdbook()?;
    let site = repository().join(SITE);
    if site.exists() {
        // Old pages would hide broken links to them.
        std::fs::remove_dir_all(&site).with_context(|| site.display().to_string())?;
    }
    run(Command::new(mdbook).current_dir(repository()).args(["build", "docs"]))?;
    let (pages, links) = check(&site)?;
    println!("{pages} pages, {links} links within them: {}", site.join("index.html").display());
    Ok(())
}

/// The program, installed if it is missing or of another release.
fn mdbook() -> Result<PathBuf> {
    let tools = repository().join(TOOLS);
    let program = tools.join("bin/mdbook");
    let version = Command::new(&program).arg("--version").stderr(Stdio::null()).output();
    let is_here = version.is_ok_and(|it| it.stdout.trim_ascii().ends_with(VERSION.as_bytes()));
    if !is_here {
        let mut install = Command::new(env!("CARGO"));
        install.current_dir(repository()).args(["install", "mdbook", "--locked", "--debug"]);
        // Without its server.
        install.args(["--no-default-features", "--features", "search", "--version", VERSION]);
        run(install.arg("--root").arg(&tools))?;
    }
    Ok(program)
}

/// How many pages and links the site in `folder` has.
fn check(folder: &Path) -> Result<(usize, usize)> {
    let mut pages = BTreeMap::new();
    let mut files = BTreeSet::new();
    read(folder, folder, &mut pages, &mut files)?;
    let mut count = 0;
    let mut dead = Vec::new();
    for (page, text) in &pages {
        for link in ["href", "src"].into_iter().flat_map(|name| values(text, name)) {
            let is_elsewhere = link.contains(':');
            if is_elsewhere || page == Path::new(ABSENT) {
                continue;
            }
            count += 1;
            let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { Some(page.clone()) } else { target(page, path) };
            let is_alive = match target.as_ref().and_then(|target| pages.get(target)) {
                Some(text) if !fragment.is_empty() => values(text, "id").any(|id| id == fragment),
                _ => target.is_some_and(|target| files.contains(&target)),
            };
            if !is_alive {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    ensure!(dead.is_empty(), "broken links:\n{}", dead.join("\n"));
    Ok((pages.len(), count))
}

/// The pages below `folder` with their text, and all files, by their paths below `root`.
fn read(
    root: &Path,
    folder: &Path,
    pages: &mut BTreeMap<PathBuf, String>,
    files: &mut BTreeSet<PathBuf>,
) -> Result<()> {
    let failed = || folder.display().to_string();
    for entry in std::fs::read_dir(folder).with_context(failed)? {
        let path = entry.with_context(failed)?.path();
        if path.is_dir() {
            read(root, &path, pages, files)?;
            continue;
        }
        let name = path.strip_prefix(root).expect("below it").to_owned();
        if path.extension().is_some_and(|it| it == "html") {
            let text = std::fs::read_to_string(&path);
            pages.insert(name.clone(), text.with_context(|| path.display().to_string())?);
        }
        files.insert(name);
    }
    Ok(())
}

/// Values of the attributes of this name, as mdBook writes them.
fn values<'a>(page: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let opening = format!(" {name}=\"");
    let starts: Vec<usize> =
        page.match_indices(&opening).map(|(at, _)| at + opening.len()).collect();
    starts.into_iter().filter_map(|start| page[start..].split('"').next())
}

/// Target of a link of `page`, below the root; `None`: out of the site.
fn target(page: &Path, link: &str) -> Option<PathBuf> {
    let mut target = page.parent().unwrap_or(Path::new("")).to_owned();
    for component in Path::new(link).components() {
        match component {
            Component::Normal(name) => target.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !target.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_dead_links_with_their_page() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("index.html", r#"<h1 id="a">A</h1><a href="how/to.html#b">to</a><img src="x.svg">"#);
        write("x.svg", "");
        write(
            "how/to.html",
            r##"<h2 id="b"></h2><a href="../index.html#a"></a><a href="#b"></a>"##,
        );
        write(ABSENT, r#"<a href="/nothing.html">"#);
        assert_eq!(check(folder.path()).unwrap(), (3, 4));
        write(
            "how/wrong.html",
            r##"<a href="to.html#c"><a href="none.html"><a href="../../up"><a href="https://x.y"><a href="#d">"##,
        );
        let error = check(folder.path()).unwrap_err().to_string();
        for dead in ["to.html#c", "none.html", "../../up", "#d"] {
            assert!(error.contains(&format!("how/wrong.html: {dead}")), "{error}");
        }
        assert_eq!(error.lines().count(), 5, "{error}");
    }
}
