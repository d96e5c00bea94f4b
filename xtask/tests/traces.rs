//! The README of `traces/` lists every file there with the command that made it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Traces that no repeatable command made: the page gives the reason.
const WITHOUT: [&str; 3] = ["ns3/ground_truth.json", "lte_outages.trace", "lte_poor.trace"];

fn traces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("traces")
}

/// The files of a folder and the folders below it, relative to `root`.
fn files(folder: &Path, root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let name = |path: PathBuf| path.strip_prefix(root).unwrap().to_str().unwrap().to_string();
    let below = folders.iter().flat_map(|folder| self::files(folder, root));
    files.into_iter().map(name).chain(below).collect()
}

/// The command that the README has for a file.
fn command(page: &str, file: &str) -> Option<String> {
    let (_, block) = page.split_once("\n```sh\n")?;
    let mut lines = block.lines().take_while(|line| *line != "```");
    lines.find(|line| *line == format!("# {file}"))?;
    lines.next().map(String::from)
}

#[test]
fn every_trace_is_listed_with_its_command() {
    let page = std::fs::read_to_string(traces().join("README.md")).unwrap();
    for file in files(&traces(), &traces()).iter().filter(|file| *file != "README.md") {
        assert!(page.contains(&format!("| `{file}` |")), "{file} is not described");
        let has_command = command(&page, file).is_some_and(|command| !command.starts_with('#'));
        assert_eq!(has_command, !WITHOUT.contains(&file.as_str()), "{file}");
    }
}

#[test]
fn derived_traces_equal_output_of_their_commands() {
    let page = std::fs::read_to_string(traces().join("README.md")).unwrap();
    let made = command(&page, "caida_1mb.cdf").unwrap();
    let output = Command::new("sh").args(["-c", &made]).current_dir(traces()).output().unwrap();
    let file = std::fs::read_to_string(traces().join("caida_1mb.cdf")).unwrap();
    let lines: Vec<&str> = file.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().collect::<Vec<_>>(), lines);
}
