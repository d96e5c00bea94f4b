//! Checks that the documentation names only commands and options that exist.

use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use forebay::Cli;

use crate::commands::Command;

/// Fences of code that a shell reads.
const SHELL: [&str; 4] = ["", "sh", "bash", "console"];

/// Starts of words that end a command in a shell line.
const ENDS: [&str; 8] = ["#", "|", "&", ";", ">", "2>", "<", "\\"];

/// The README, CONTRIBUTING.md, and all pages below `docs/`.
fn pages() -> Vec<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![repository.join("README.md"), repository.join("CONTRIBUTING.md")];
    let mut folders = vec![repository.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// The lines of a page's shell blocks, and the code within sentences. Such code may continue on the next line.
fn code(page: &str) -> Vec<String> {
    let (mut code, mut prose) = (Vec::new(), String::new());
    let mut fence = None;
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), fence) {
            (Some(language), None) => fence = Some(language),
            (Some(_), Some(_)) => fence = None,
            (None, Some(language)) if SHELL.contains(&language) => code.push(line.into()),
            (None, Some(_)) => {}
            (None, None) => prose += &format!("{line}\n"),
        }
    }
    // An unclosed backtick spoils only its own paragraph.
    for paragraph in prose.split("\n\n") {
        code.extend(paragraph.split('`').skip(1).step_by(2).map(|code| code.replace('\n', " ")));
    }
    code
}

/// The words of each call of `forebay` in a line of shell.
fn calls(line: &str) -> Vec<Vec<&str>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_program = |place: &usize| {
        let (word, before) = (words[*place], place.checked_sub(1).map(|before| words[before]));
        // `cargo build -p forebay` is no call.
        ["forebay", "target/release/forebay"].contains(&word) && before != Some("-p")
    };
    let starts = (0..words.len()).filter(is_program);
    let call = |start: usize| {
        let rest = words[start + 1..].iter().copied();
        let mut call = vec!["forebay"];
        for word in rest {
            if ENDS.iter().any(|end| word.starts_with(end)) {
                break;
            }
            let bare = word.trim_end_matches([';', ')', '"']);
            call.push(bare.trim_matches('\''));
            if bare != word {
                break;
            }
        }
        call
    };
    starts.map(call).filter(|call| call.len() > 1).collect()
}

/// The command line's error for a call with an unknown command or option. Arguments that a page leaves out, and
/// words in place of values, are ignored.
fn problem(call: &[&str]) -> Option<String> {
    let error = Cli::<Command>::try_parse_from(call).err()?;
    let is_unknown = matches!(
        error.kind(),
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand | ErrorKind::ArgumentConflict
    );
    is_unknown.then(|| error.to_string())
}

/// The visible commands below `command`, each with the words that call it.
fn visible(command: &clap::Command, words: &str, found: &mut Vec<(String, clap::Command)>) {
    for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        let words = format!("{words} {}", below.get_name());
        visible(below, &words, found);
        found.push((words, below.clone()));
    }
}

#[test]
fn every_command_has_examples_that_parse() {
    let mut commands = Vec::new();
    visible(&Cli::<Command>::command(), "forebay", &mut commands);
    assert!(commands.len() > 45, "{} commands: where are the others?", commands.len());
    let mut wrong = Vec::new();
    for (words, command) in commands {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples = help.split_once("Examples:\n").map(|(_, examples)| examples);
        // The models of `forebay trace` share their examples.
        let name = words.split(' ').nth(1).unwrap();
        let all: Vec<Vec<&str>> = examples.unwrap_or_default().lines().flat_map(calls).collect();
        if !all.iter().any(|call| call.get(1) == Some(&name)) {
            wrong.push(format!("`{words}` has no example of its own: {help}"));
        }
        let problems = all.iter().filter_map(|call| problem(call));
        wrong.extend(problems.map(|problem| format!("`{words}`: {problem}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn documentation_names_only_existing_commands() {
    let (mut count, mut wrong) = (0, Vec::new());
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for line in code(&text) {
            for call in calls(&line) {
                count += 1;
                if let Some(problem) = problem(&call) {
                    wrong.push(format!("{}: `{}`: {problem}", page.display(), call.join(" ")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 150, "{count} calls: where are the others?");
}

#[test]
fn finds_unknown_commands_in_blocks_and_prose() {
    let page = "Ask `forebay\nstatos` or\n\n```sh\nsudo forebay status --jsn   # all\n```\n\
                ```toml\nforebay = \"nonesuch\"\n```\n";
    let code = code(page);
    let calls: Vec<Vec<&str>> = code.iter().flat_map(|line| calls(line)).collect();
    assert_eq!(calls, [vec!["forebay", "status", "--jsn"], vec!["forebay", "statos"]]);
    assert!(calls.iter().all(|call| problem(call).is_some()), "{calls:?}");
    for fine in [&["forebay", "plan"][..], &["forebay", "run", "PLAN", "--seeds", "S"]] {
        assert_eq!(problem(fine), None);
    }
}
