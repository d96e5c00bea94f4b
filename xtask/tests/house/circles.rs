//! Folders of a crate are layers: none needs another that needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::repository;
use crate::sources::{Modules, Way};

/// Needs that close a circle, by crate and module, and the reason for each. The list may only become
/// shorter.
const KNOWN: &[(&str, &str, &str, &str)] = &[];

/// Needs between modules of the same parent, each with the two files of one such need.
type Needs<'a> = BTreeMap<&'a [String], BTreeMap<&'a [String], (&'a Way, &'a Way)>>;

/// Which of `modules` need which, except for needs in `known`.
///
/// A file needs another if it names something that the other defines, by `use` or by a path, through any
/// re-export. A module and all modules below it are one room; within a room any file may need any other. A
/// need between two files counts for the two rooms of their nearest common module that contain one file
/// each.
fn needs<'a>(modules: &'a Modules, known: &BTreeSet<(Way, Way)>) -> Needs<'a> {
    let mut needs = Needs::new();
    for (from, to) in modules.needs() {
        let common = from.iter().zip(to).take_while(|(from, to)| from == to).count();
        if common == from.len().min(to.len()) || known.contains(&(from.clone(), to.clone())) {
            continue;
        }
        needs.entry(&from[..=common]).or_default().insert(&to[..=common], (from, to));
    }
    needs
}

/// The rooms that `room` needs, directly or indirectly.
fn reach<'a>(needs: &Needs<'a>, room: &'a [String]) -> BTreeSet<&'a [String]> {
    let mut reached = BTreeSet::new();
    let mut next = vec![room];
    while let Some(room) = next.pop() {
        let needed = needs.get(room).into_iter().flat_map(BTreeMap::keys);
        next.extend(needed.filter(|room| reached.insert(**room)));
    }
    reached
}

/// The needs that form circles of two or more rooms in the same module, one of them a folder. Files of one
/// folder may need each other.
fn circles(modules: &Modules, known: &BTreeSet<(Way, Way)>) -> Vec<String> {
    let needs = needs(modules, known);
    let mut found = Vec::new();
    for (&room, needed) in &needs {
        let is_back = |other: &&[String]| reach(&needs, other).contains(room);
        let circle: Vec<&[String]> = reach(&needs, room).into_iter().filter(is_back).collect();
        if circle.iter().any(|room| modules.is_folder(room)) {
            let within = needed.iter().filter(|(other, _)| circle.contains(other));
            let needs = within.map(|(_, (from, to))| [from, to].map(|it| it.join("::")));
            found.extend(needs.map(|[from, to]| format!("{from} needs {to}")));
        }
    }
    found
}

fn way(text: &str) -> Way {
    text.split("::").map(String::from).collect()
}

fn crates() -> impl Iterator<Item = (String, PathBuf)> {
    let folders = std::fs::read_dir(repository().join("crates")).unwrap();
    folders.map(|folder| {
        let folder = folder.unwrap();
        let roots = ["src/lib.rs", "src/main.rs"].map(|root| folder.path().join(root));
        let root = roots.into_iter().find(|root| root.exists()).expect("a crate has a root");
        (folder.file_name().into_string().unwrap(), root)
    })
}

#[test]
fn no_folders_need_each_other() {
    let mut checked = 0;
    for (name, root) in crates() {
        let modules = Modules::read(&root);
        let known = KNOWN.iter().filter(|(of, ..)| *of == name);
        let known: BTreeSet<(Way, Way)> =
            known.map(|(_, from, to, _)| (way(from), way(to))).collect();
        let found = circles(&modules, &known);
        assert!(found.is_empty(), "crates/{name}: a circle:\n{}", found.join("\n"));
        for need in &known {
            let others = known.iter().filter(|other| *other != need).cloned().collect();
            let (from, to) = need;
            let is_closed = !circles(&modules, &others).is_empty();
            assert!(is_closed, "{from:?} -> {to:?} closes no circle any more: take it from KNOWN");
        }
        checked += modules.files().count();
    }
    assert!(checked > 300, "{checked} files: where are the others?");
}

/// The circles of a crate of these files.
fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap_or(Path::new("."))).unwrap();
        std::fs::write(file, text).unwrap();
    }
    circles(&Modules::read(&folder.path().join("lib.rs")), &BTreeSet::new())
}

#[test]
fn finds_circle_through_paths_macros_and_aliases() {
    let circle = ["a::inner needs b", "b needs a::inner"];
    for (inner, b) in [
        ("use crate::b::B;\npub struct A;", "use super::a::A;\npub struct B;"),
        (
            "use crate::B;\npub struct A;",
            "use crate::{a::inner as x};\nfn b() { x::A; }\npub struct B;",
        ),
        ("fn a() { crate::b::b() }\npub struct A;", "fn b() { print!(\"{}\", crate::A) }"),
        ("use crate::b::*;\npub struct A;", "use crate::a;\ntype A = a::A;\npub struct B;"),
    ] {
        let root = "mod a; mod b; pub use a::A; pub use b::B;";
        let files = [
            ("lib.rs", root),
            ("a/mod.rs", "mod inner;\npub use inner::A;"),
            ("a/inner.rs", inner),
        ];
        let found = circles_of(&[&files[..], &[("b.rs", b)]].concat());
        assert_eq!(found, circle, "{inner}\n{b}");
    }
}

#[test]
fn related_modules_and_tests_may_form_circles() {
    let found = circles_of(&[
        ("lib.rs", "mod a; mod b; mod c; pub struct Root(a::A);"),
        ("a.rs", "mod inner;\npub use inner::A;\npub struct Own(crate::Root);"),
        ("a/inner.rs", "use super::Own;\nuse crate::b::B;\npub struct A;"),
        ("b.rs", "use crate::c::C;\npub struct B;\n#[cfg(test)]\nmod tests { use crate::a::A; }"),
        ("c.rs", "use crate::b::B;\npub struct C;"),
    ]);
    assert_eq!(found, [""; 0]);
}
