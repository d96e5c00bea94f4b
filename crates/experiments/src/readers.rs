//! Checks that `fuzz/readers.toml` lists the format of each file that a command reads, so that fuzzing leaves none
//! out.

use std::any::TypeId;
use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::CommandFactory;
use forebay::Cli;
use forebay_lab::plan::schema;

use crate::commands::Command;

/// Formats and the commands that read them.
const TABLE: &str = include_str!("../../../fuzz/readers.toml");

/// Arguments that say where something is written, or a socket.
const NOT_READ: [&str; 48] = [
    "agent.control",
    "agent.pin",
    "agent.record",
    "apply.socket",
    "bench.out",
    "capture.pcapng",
    "capture.qlog",
    "compare.report",
    "confirm.socket",
    "demo.out",
    "explain.socket",
    "export.out",
    "init receivebox.out",
    "init sendbox.out",
    "keygen.file",
    "link.log",
    "man.out",
    "new-algorithm.out",
    "platforms.out",
    "probe.record",
    "record.out",
    "record.socket",
    "regret.out",
    "reload.socket",
    "replay.out",
    "reproduce.out",
    "revert.socket",
    "run.keep_logs",
    "run.out",
    "search.docs",
    "search.out",
    "sensitivity.docs",
    "sensitivity.out",
    "status.socket",
    "top.socket",
    "trace adsl.out",
    "trace constant.out",
    "trace convert.out",
    "trace docsis.out",
    "trace leo.out",
    "trace lte.out",
    "trace lte_att.out",
    "trace lte_tmobile.out",
    "trace lte_verizon.out",
    "trace poisson.out",
    "trace wifi.out",
    "chaos.out",
    "new-algorithm.source",
];

/// Files that another program reads, or that this program wrote itself.
const ELSEWHERE: [(&str, &str); 5] = [
    ("agent.files", "a class in Python, which Python reads"),
    ("bench.files", "a class in Python, which Python reads"),
    ("run.files", "a class in Python, which Python reads"),
    ("sendbox.python", "a program"),
    ("role.spec", "a file of the testbed for its own programs"),
];

/// Files that are copied into an archive unchanged.
const COPIED: [&str; 1] = ["record.log"];

/// Arguments and keys that the table lists as read.
fn listed() -> BTreeSet<String> {
    let table: toml::Table = TABLE.parse().unwrap();
    let readers = table["reader"].as_array().unwrap();
    let reads = readers.iter().filter_map(|reader| reader.get("reads")?.as_array());
    reads.flatten().map(|it| it.as_str().unwrap().to_owned()).collect()
}

/// The arguments of a command and those below it, as `COMMAND.ARGUMENT`, and whether each is a path.
fn arguments(command: &clap::Command, name: &str, found: &mut Vec<(String, bool)>) {
    for argument in command.get_arguments() {
        let is_path = argument.get_value_parser().type_id() == TypeId::of::<PathBuf>();
        found.push((format!("{name}.{}", argument.get_id()), is_path));
    }
    for below in command.get_subcommands() {
        let name = format!("{name} {}", below.get_name());
        arguments(below, name.trim(), found);
    }
}

/// Keys of plans that name a file, as `plan:SECTION.KEY`.
fn keys() -> Vec<String> {
    let mut keys = Vec::new();
    for heading in schema::headings() {
        let name = heading.text.trim_matches(['[', ']']);
        for key in heading.section.keys {
            if ["file", "path of"].iter().any(|word| key.allowed().contains(word)) {
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
    arguments(&Cli::<Command>::command(), "", &mut found);
    found.extend(keys().into_iter().map(|key| (key, true)));
    let is_known = |it: &&String| {
        listed.contains(*it)
            || NOT_READ.contains(&it.as_str())
            || COPIED.contains(&it.as_str())
            || ELSEWHERE.iter().any(|(name, _)| name == it)
    };
    let paths = found.iter().filter_map(|(name, is_path)| is_path.then_some(name));
    let unknown: Vec<&String> = paths.filter(|it| !is_known(it)).collect();
    assert!(
        unknown.is_empty(),
        "neither in fuzz/readers.toml nor in the exceptions here: {unknown:?}"
    );
    let excepted = NOT_READ.iter().chain(&COPIED).chain(ELSEWHERE.iter().map(|(name, _)| name));
    let all = listed.iter().map(String::as_str).chain(excepted.copied());
    let gone: Vec<&str> = all.filter(|it| !found.iter().any(|(known, _)| known == it)).collect();
    assert!(gone.is_empty(), "these arguments and keys no longer exist: {gone:?}");
}
