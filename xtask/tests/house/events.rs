//! The log of daemons: each line has the name of an event, by which it is found and filtered.

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
fn each_line_of_a_log_has_an_event_and_the_guides_explain_it() {
    let guides = ["docs/howto/connect-two-sites.md", "docs/agent.md"]
        .map(|guide| std::fs::read_to_string(repository().join(guide)).unwrap());
    let mut files = Vec::new();
    for folder in ["host", "ebpf", "testbed"] {
        sources(&repository().join("crates").join(folder), &mut files);
    }
    let mut lines = 0;
    for file in files {
        let source = std::fs::read_to_string(&file).unwrap();
        for (level, event) in events(&source) {
            lines += 1;
            let name =
                event.unwrap_or_else(|| panic!("{}: {level}! without a target", file.display()));
            assert!(!name.contains("::"), "{}: {name} is a path of modules", file.display());
            let is_of_operators = level != "debug" && !file.to_string_lossy().contains("/testbed/");
            let is_explained = guides.iter().any(|guide| guide.contains(&format!("`{name}`")));
            assert!(!is_of_operators || is_explained, "{name} is in no guide");
        }
    }
    assert!(lines > 30, "{lines} lines: where are the others?");
}
