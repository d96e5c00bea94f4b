//! The log of daemons: each line has the name of an event, by which it is found and filtered, and an id.

use std::collections::BTreeSet;

use forebay_host::log::events::EVENTS;

use crate::repository;
use crate::words::sources;

/// The level, and the name of the event if it has one, of each line that `source` logs.
fn events(source: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    source.split("tracing::").skip(1).filter_map(|rest| {
        let (level, rest) = rest.split_once("!(")?;
        if !["error", "warn", "info", "debug"].contains(&level) {
            return None;
        }
        let named = rest.trim_start().strip_prefix("target: \"");
        Some((level, named.and_then(|rest| rest.split_once('"')).map(|(name, _)| name)))
    })
}

#[test]
fn log_lines_and_event_table_match() {
    let table: BTreeSet<(String, &str)> =
        EVENTS.iter().map(|event| (event.level.to_string().to_lowercase(), event.name)).collect();
    let mut files = Vec::new();
    for folder in ["host", "ebpf", "testbed"] {
        sources(&repository().join("crates").join(folder), &mut files);
    }
    let mut found = BTreeSet::new();
    for file in files {
        let source = std::fs::read_to_string(&file).unwrap();
        for (level, event) in events(&source) {
            let name =
                event.unwrap_or_else(|| panic!("{}: {level}! without a target", file.display()));
            assert!(!name.contains("::"), "{}: {name} is a path of modules", file.display());
            let is_of_operators = !file.to_string_lossy().contains("/testbed/");
            let key = (level.to_string(), name.to_string());
            let is_in_table = table.contains(&(key.0.clone(), name));
            assert!(!is_of_operators || is_in_table, "{}: {key:?} has no id", file.display());
            found.insert(key);
        }
    }
    let lineless =
        table.iter().filter(|(level, name)| !found.contains(&(level.clone(), name.to_string())));
    assert_eq!(lineless.collect::<Vec<_>>(), Vec::<&(String, &str)>::new());
}
