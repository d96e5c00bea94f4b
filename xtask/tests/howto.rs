//! The instructions in the pages under `docs/internals/` and `docs/research/` work, and their lists are complete.

use std::path::{Path, PathBuf};
use std::process::Command;

use forebay_core::traffic::{Conduct, RECEIVERS};
use forebay_lab::plan::Plan;
use forebay_lab::plan::library::Source;
use forebay_lab::plan::schema::{BOTTLENECK, FLOW, REVERSE};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().into()
}

fn page(name: &str) -> String {
    std::fs::read_to_string(repository().join("docs").join(name)).unwrap()
}

/// The contents of the page's code blocks marked `language`, in order.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let opening = format!("\n```{language}\n");
    let mut blocks = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find(&opening) {
        let block = &rest[start + opening.len()..];
        let end = block.find("\n```\n").expect("every block ends") + 1;
        blocks.push(block[..end].into());
        rest = &block[end..];
    }
    blocks
}

/// Writes a file only if its contents changed: cargo checks modification times.
fn place(file: &Path, contents: &[u8]) {
    if std::fs::read(file).is_ok_and(|there| there == contents) {
        return;
    }
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, contents).unwrap();
}

fn copy(from: &Path, to: &Path, is_left_out: &dyn Fn(&Path) -> bool) {
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, target) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() {
            copy(&path, &target, is_left_out);
        } else if !is_left_out(&path) {
            place(&target, &std::fs::read(path).unwrap());
        }
    }
}

/// The code and plans below `folders` that name `name` outside comments, without tests.
fn naming(name: &str, folders: &[&str]) -> Vec<String> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let names = |line: &str| {
        let is_comment = ["//", "#"].iter().any(|mark| line.trim_start().starts_with(mark));
        let is_comment = is_comment && !line.trim_start().starts_with("#[");
        !is_comment && line.split(|it: char| !is_word(it)).any(|word| word == name)
    };
    let mut found = Vec::new();
    let mut left: Vec<PathBuf> = folders.iter().map(|it| repository().join(it)).collect();
    while let Some(path) = left.pop() {
        let file_name = path.file_name().unwrap().to_str().unwrap();
        if ["tests", "tests.rs"].contains(&file_name) {
            continue;
        }
        if path.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if file_name.ends_with(".rs") || file_name.ends_with(".toml") {
            let text = std::fs::read_to_string(&path).unwrap();
            if text.lines().take_while(|line| *line != "mod tests {").any(names) {
                found.push(path.strip_prefix(repository()).unwrap().to_str().unwrap().into());
            }
        }
    }
    found.sort();
    found
}

/// Checks that these files contain the page's blocks of a language, in this order.
fn stand_in_sources(page: &str, language: &str, files: &[&str]) {
    let blocks = blocks(page, language);
    assert_eq!(blocks.len(), files.len(), "blocks of {language}");
    for (file, block) in files.iter().zip(blocks) {
        let source = std::fs::read_to_string(repository().join(file)).unwrap();
        assert!(source.contains(&block), "{file} lacks\n{block}");
    }
}

/// An addition of a page to `crates/core/src`. Its first block becomes `file`. Its second, of one line, is inserted
/// into `module`, before the line `before`.
struct Addition {
    page: &'static str,
    file: &'static str,
    module: &'static str,
    before: &'static str,
}

/// The additions of both how-to pages.
const ADDITIONS: [Addition; 2] = [
    Addition {
        page: "internals/add-an-algorithm.md",
        file: "cc/algorithms/gaimd.rs",
        module: "cc/algorithms/mod.rs",
        before: "    highspeed,\n",
    },
    Addition {
        page: "internals/add-a-qdisc.md",
        file: "qdisc/head_drop.rs",
        module: "qdisc/mod.rs",
        before: "    prio,\n",
    },
];

/// Tests of the pages' additions, and their number: a smaller number would mean that the names are out of date.
const TESTS: [(&str, usize); 4] = [
    ("cc::algorithms::gaimd", 2),
    ("testing::cc", 6),
    ("qdisc::head_drop", 1),
    ("testing::qdisc", 7),
];

#[test]
fn algorithm_and_qdisc_are_one_file_and_line() {
    let work = repository().join("target/howto");
    let home = work.join("workspace");
    let core = Path::new("crates/core/src");
    let manifest = Path::new("crates/core/Cargo.toml");
    let is_changed = |path: &Path| {
        let is_module = |it: &Addition| repository().join(core).join(it.module) == path;
        path == repository().join(manifest) || ADDITIONS.iter().any(is_module)
    };
    for folder in ["crates/core", "traces"] {
        copy(&repository().join(folder), &home.join(folder), &is_changed);
    }
    let text = std::fs::read_to_string(repository().join(manifest)).unwrap();
    let mut without_benches: toml::Table = text.parse().unwrap();
    without_benches.remove("bench").unwrap();
    without_benches["dev-dependencies"].as_table_mut().unwrap().remove("criterion").unwrap();
    place(&home.join(manifest), without_benches.to_string().as_bytes());
    let workspace = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let mut alone: toml::Table = workspace.parse().unwrap();
    let members = toml::Value::from(vec!["crates/core"]);
    alone["workspace"]["members"] = members.clone();
    alone["workspace"]["default-members"] = members;
    // Optimising takes longer than it saves: the program is built once and run once.
    alone.remove("profile");
    place(&home.join("Cargo.toml"), alone.to_string().as_bytes());
    std::fs::copy(repository().join("Cargo.lock"), home.join("Cargo.lock")).unwrap();

    for Addition { page: name, file, module, before } in ADDITIONS {
        let rust = blocks(&page(name), "rust");
        let [code, line] = &rust[..] else { panic!("{} blocks of Rust in {name}", rust.len()) };
        assert_eq!(line.lines().count(), 1, "{line}");
        place(&home.join(core).join(file), code.as_bytes());
        let text = std::fs::read_to_string(repository().join(core).join(module)).unwrap();
        assert!(text.contains(before), "{module} has no {before}");
        let text = text.replacen(before, &format!("{line}{before}"), 1);
        place(&home.join(core).join(module), text.as_bytes());
    }

    let output = Command::new(env!("CARGO"))
        .current_dir(&home)
        .args(["test", "--quiet", "--offline", "-p", "forebay-core", "--lib", "--"])
        .args(TESTS.map(|(name, _)| name))
        .env("CARGO_TARGET_DIR", work)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let passed: usize = TESTS.iter().map(|(_, count)| count).sum();
    assert!(text.contains(&format!("{passed} passed")), "{text}");
}

#[test]
fn the_page_about_datapaths_names_every_method() {
    let page = page("internals/add-a-datapath.md");
    let home = repository().join("crates/host/src/daemon/sendbox/datapath/mod.rs");
    let traits = std::fs::read_to_string(home).unwrap();
    let methods: Vec<&str> = traits
        .lines()
        .filter_map(|line| line.strip_prefix("    fn ")?.split(['(', '<']).next())
        .collect();
    assert!(methods.contains(&"steer") && methods.contains(&"on_departures"), "{methods:?}");
    for method in methods {
        assert!(page.contains(&format!("`{method}`")), "{method} is missing");
    }
}

#[test]
fn datapath_is_one_folder_and_line() {
    let page = page("internals/add-a-datapath.md");
    let folder = "crates/host/src/daemon/sendbox/datapath/stub.rs";
    let list = "crates/host/src/daemon/config/datapath.rs";
    stand_in_sources(&page, "rust", &[folder, folder, list]);
    assert_eq!(blocks(&page, "rust")[2].lines().count(), 1);
    for name in ["stub", "Stub"] {
        let named_in = naming(name, &["crates/host"]);
        assert!(
            named_in.iter().all(|file| [folder, list].contains(&file.as_str())),
            "{named_in:?}"
        );
    }
    let text = std::fs::read_to_string(repository().join(list)).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("stub")).count(), 1);
}

#[test]
fn metric_with_figure_is_two_files() {
    let page = page("internals/add-a-metric-with-a-figure.md");
    let metric = "crates/lab/src/metrics/flows.rs";
    let plan = "plans/ccperf/competition_cross_traffic.toml";
    stand_in_sources(&page, "rust", &[metric; 3]);
    stand_in_sources(&page, "toml", &[plan]);
    assert_eq!(naming("datagrams_lost", &["crates", "plans"]), [metric, plan]);
}

#[test]
fn plan_key_is_three_files() {
    let page = page("internals/add-a-plan-key.md");
    let [schema, resolve, scenario] = [
        "crates/lab/src/plan/schema/links.rs",
        "crates/lab/src/plan/resolve/links.rs",
        "crates/scenario/src/walk.rs",
    ];
    stand_in_sources(&page, "rust", &[schema, resolve, scenario, scenario]);
    assert_eq!(naming("correlation", &["crates"]), [resolve, schema, scenario]);
    let (toml, told) = (blocks(&page, "toml"), blocks(&page, "text"));
    let plan = |text: &str| {
        let source = Source { file: "plan.toml".into(), folder: None, text: text.into() };
        Plan::from_source(source, &[])
    };
    let [right] = &toml[..] else { panic!("{toml:?}") };
    assert_eq!(plan(right).unwrap().experiments().count(), 1);
    let wrong = right.replace("correlation = 0.5", "correlation = 2").replace("\"20ms\"", "20");
    assert_eq!([format!("{}\n", plan(&wrong).unwrap_err())], told[..]);
}

#[test]
fn tuning_number_is_one_line_and_its_use() {
    let page = page("internals/add-a-tuning-number.md");
    let [table, used] =
        ["tuning.rs", "control/supervisor.rs"].map(|file| format!("crates/core/src/bundle/{file}"));
    stand_in_sources(&page, "rust", &[&table, &used]);
    assert_eq!(naming("supervisor_waits", &["crates"]), [used, table]);
    let (toml, told) = (blocks(&page, "toml"), blocks(&page, "text"));
    let plan = |text: &str| {
        let source = Source { file: "plan.toml".into(), folder: None, text: text.into() };
        Plan::from_source(source, &[])
    };
    let [right] = &toml[..] else { panic!("{toml:?}") };
    let experiment = plan(right).unwrap().experiments().next().unwrap().unwrap();
    assert_eq!(experiment.bundles[0].tuning.supervisor_waits, 20.0);
    let wrong = right.replace("waits = 20", "waits = 200");
    assert_eq!([format!("{}\n", plan(&wrong).unwrap_err())], told[..]);
}

#[test]
fn receivers_page_has_valid_plan_and_keys() {
    let page = page("research/receivers.md");
    let plans = blocks(&page, "toml");
    assert_eq!(plans.len(), 1);
    let file = repository().join("target/howto/misbehaving.toml");
    place(&file, plans[0].as_bytes());
    let plan = Plan::load(file.to_str().unwrap(), &[]).unwrap();
    let conducts = plan.experiments().map(|it| it.unwrap().flows[0].receiving.conduct);
    assert_eq!(conducts.filter(|it| *it != Conduct::Honest).count(), RECEIVERS.len() - 1);
    for (table, section) in [("flow.", &FLOW), ("reverse.", &REVERSE), ("bottleneck.", &BOTTLENECK)]
    {
        let keys: Vec<&str> = page.split('`').filter_map(|it| it.strip_prefix(table)).collect();
        assert!(!keys.is_empty(), "{table}");
        for key in keys {
            assert!(section.key(key).is_some(), "{table}{key}");
        }
    }
}
