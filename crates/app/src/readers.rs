//! Each file that a command reads is of a format that `fuzz/readers.toml` has, so that none is left out of fuzzing.

use std::any::TypeId;
use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::CommandFactory;
use forebay_lab::plan::schema;

use crate::Cli;

/// Formats and who reads them.
const TABLE: &str = include_str!("../../../fuzz/readers.toml");

/// Arguments that say where something is written, or name no file of a format: sockets, folders of sources, programs of
/// another language.
const NOT_READ: &[&str] = &[];

/// Files that are read without being in the table, and why.
const ELSEWHERE: &[(&str, &str)] = &[];

/// What the table says is read.
fn listed() -> BTreeSet<String> {
    let table: toml::Table = TABLE.parse().unwrap();
    let readers = table["reader"].as_array().unwrap();
    let reads = readers.iter().filter_map(|reader| reader.get("reads")?.as_array());
    reads.flatten().map(|it| it.as_str().unwrap().to_owned()).collect()
}

/// The arguments of a command and those below it that are paths, as `COMMAND.ARGUMENT`.
fn paths(command: &clap::Command, name: &str, found: &mut Vec<String>) {
    for argument in command.get_arguments() {
        if argument.get_value_parser().type_id() == TypeId::of::<PathBuf>() {
            found.push(format!("{name}.{}", argument.get_id()));
        }
    }
    for below in command.get_subcommands() {
        let name = format!("{name} {}", below.get_name());
        paths(below, name.trim(), found);
    }
}

/// Keys of plans that name a file, as `plan:SECTION.KEY`.
fn keys() -> Vec<String> {
    let mut keys = Vec::new();
    for section in schema::SECTIONS {
        let name = section.heading.trim_matches(['[', ']']);
        for key in section.keys {
            if ["file", "path of"].iter().any(|word| key.allowed.contains(word)) {
                keys.push(format!("plan:{name}.{}", key.name));
            }
        }
    }
    keys
}

#[test]
fn every_file_that_is_read_is_fuzzed() {
    let listed = listed();
    let mut found = Vec::new();
    paths(&Cli::command(), "", &mut found);
    found.extend(keys());
    let is_known = |it: &&String| {
        listed.contains(*it)
            || NOT_READ.contains(&it.as_str())
            || ELSEWHERE.iter().any(|(name, _)| name == it)
    };
    let unknown: Vec<&String> = found.iter().filter(|it| !is_known(it)).collect();
    assert!(unknown.is_empty(), "neither in fuzz/readers.toml nor excepted here: {unknown:?}");
}
