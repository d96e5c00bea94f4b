//! The way of a simulated run through the modules: few modules, and control enters nearly each only once.

use std::collections::BTreeSet;
use std::path::Path;

use crate::repository;
use crate::sources::Modules;

/// Most modules between a plan and a stored row.
const MODULES_MAX: usize = 12;
/// Most times that control enters a module that it has left before, all modules together.
const AGAIN_MAX: usize = 4;
/// Modules of the laboratory that the table's modules name and that are no step, and why.
const NO_STEPS: [(&str, &str); 5] = [
    ("experiment", "the value that every step hands on"),
    ("report", "reads rows that are stored"),
    ("summary", "reads rows that are stored"),
    ("traces", "reads the files of links for the plan"),
    ("versions", "names versions of algorithms"),
];

/// Modules of a simulated run in `docs/internals/architecture.md`, each with the function that is called there.
fn steps(page: &str) -> Vec<(&str, &str)> {
    let (_, section) = page.split_once("\n## From a plan to a row\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let quoted: Vec<&str> = row.split('`').collect();
        (quoted[0], quoted[2])
    })
    .collect()
}

/// Rust sources of a module without tests: its file, or all of its folder.
fn text_of_module(path: &Path) -> String {
    if path.is_file() {
        return std::fs::read_to_string(path).unwrap();
    }
    let entries = std::fs::read_dir(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_test = |path: &Path| path.file_stem().is_some_and(|stem| stem.to_str() == Some("tests"));
    let sources = paths.filter(|it| it.is_dir() || it.extension().is_some_and(|it| it == "rs"));
    sources.filter(|it| !is_test(it)).map(|it| text_of_module(&it)).collect()
}

fn calls(text: &str, function: &str) -> bool {
    let call = format!("{function}(");
    let is_call =
        |(place, _): (usize, &str)| text[..place].ends_with(['.', ':', ' ', '(', '|', '!']);
    text.match_indices(&call).any(|it| is_call(it) && !text[..it.0].ends_with("fn "))
}

#[test]
fn run_passes_few_modules_nearly_once_each() {
    let page =
        std::fs::read_to_string(repository().join("docs/internals/architecture.md")).unwrap();
    let steps = steps(&page);
    let modules: BTreeSet<&str> = steps.iter().map(|(module, _)| *module).collect();
    let again = steps.len() - modules.len();
    let counts = format!("{} modules, entered again {again} times", modules.len());
    assert!(page.contains(&counts), "docs/internals/architecture.md: {counts}");
    assert!((6..=MODULES_MAX).contains(&modules.len()) && again <= AGAIN_MAX, "{counts}");
    assert!(steps.windows(2).all(|two| two[0].0 != two[1].0), "{steps:?}");
    for (place, (module, function)) in steps.iter().enumerate() {
        let text = |module: &str| text_of_module(&repository().join(module));
        let is_there =
            ["(", "<"].iter().any(|end| text(module).contains(&format!("fn {function}{end}")));
        assert!(is_there, "docs/internals/architecture.md: there is no {function} in {module}");
        let before: BTreeSet<&str> = steps[..place].iter().map(|(module, _)| *module).collect();
        let is_called = before.iter().any(|it| it != module && calls(&text(it), function));
        // A user calls the first two: a plan is read, and run.
        assert!(is_called || before.len() < 3, "no module before calls {function} of {module}");
    }
}

#[test]
fn no_step_of_a_run_is_left_out() {
    let page =
        std::fs::read_to_string(repository().join("docs/internals/architecture.md")).unwrap();
    let of_lab = |module: &str| {
        let name = module.strip_prefix("crates/lab/src/")?.trim_end_matches('/');
        Some(name.trim_end_matches(".rs").to_string())
    };
    let steps: BTreeSet<String> = steps(&page).iter().filter_map(|step| of_lab(step.0)).collect();
    let modules = Modules::read(&repository().join("crates/lab/src/lib.rs"));
    let needs = modules.needs();
    let is_step = |way: &[String]| {
        // A simulated run passes no other back end.
        let is_simulated = way[0] != "backend" || way.get(1).is_none_or(|it| it == "sim");
        steps.contains(&way[0]) && is_simulated
    };
    let needed =
        needs.iter().filter(|(from, to)| !from.is_empty() && !to.is_empty() && is_step(from));
    let needed: BTreeSet<&str> = needed.map(|(_, to)| to[0].as_str()).collect();
    assert!(steps.iter().all(|step| needed.contains(step.as_str()) || step == "run"), "{needed:?}");
    let left_out: Vec<&str> = needed.into_iter().filter(|name| !steps.contains(*name)).collect();
    assert_eq!(left_out, NO_STEPS.map(|(name, _)| name), "steps that the table lacks");
}
