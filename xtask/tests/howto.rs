//! The pages under `docs/howto/` do what they say, or name all that there is.

use std::path::{Path, PathBuf};
use std::process::Command;

use forebay_core::traffic::{Conduct, RECEIVERS};
use forebay_lab::plan::Plan;
use forebay_lab::plan::schema::{BOTTLENECK, FLOW, REVERSE};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().into()
}

fn page(name: &str) -> String {
    std::fs::read_to_string(repository().join("docs/howto").join(name)).unwrap()
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

/// Writes what has changed only: cargo goes by the times of files.
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

/// An addition of a page to `crates/core/src`: its first block becomes `file`, and each of the others goes to
/// `module`, before the line there that stands beside it.
struct Addition {
    page: &'static str,
    file: &'static str,
    module: &'static str,
    before: &'static [&'static str],
}

const ADDITIONS: [Addition; 2] = [
    Addition {
        page: "add-an-algorithm.md",
        file: "cc/gaimd.rs",
        module: "cc/mod.rs",
        before: &["pub mod highspeed;\n", "    highspeed::ALGORITHM,\n"],
    },
    Addition {
        page: "add-a-qdisc.md",
        file: "qdisc/head_drop.rs",
        module: "qdisc/mod.rs",
        before: &["mod limit;\n", "    prio::DISCIPLINE,\n", "        name => unreachable!"],
    },
];

/// The tests of what the pages add, and how many these are: fewer would mean that the names are old.
const TESTS: [(&str, usize); 4] =
    [("cc::gaimd", 2), ("testing::cc", 6), ("qdisc::head_drop", 1), ("testing::qdisc", 7)];

#[test]
fn an_algorithm_and_a_qdisc_are_a_file_and_its_name_each() {
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
    // What is built once and run once is not worth the time to optimise it.
    alone.remove("profile");
    place(&home.join("Cargo.toml"), alone.to_string().as_bytes());
    std::fs::copy(repository().join("Cargo.lock"), home.join("Cargo.lock")).unwrap();

    for Addition { page: name, file, module, before } in ADDITIONS {
        let rust = blocks(&page(name), "rust");
        assert_eq!(rust.len(), 1 + before.len(), "blocks of Rust in {name}");
        place(&home.join(core).join(file), rust[0].as_bytes());
        let mut text = std::fs::read_to_string(repository().join(core).join(module)).unwrap();
        for (before, line) in before.iter().zip(&rust[1..]) {
            assert!(text.contains(before), "{module} has no {before}");
            text = text.replacen(before, &format!("{line}{before}"), 1);
        }
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
    let page = page("add-a-datapath.md");
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
fn the_blocks_about_a_metric_stand_in_the_sources() {
    let page = page("add-a-metric-with-a-figure.md");
    for (file, language, count) in
        [("crates/lab/src/metrics/requests.rs", "rust", 3), ("plans/bundler/main.toml", "toml", 1)]
    {
        let source = std::fs::read_to_string(repository().join(file)).unwrap();
        let blocks = blocks(&page, language);
        assert_eq!(blocks.len(), count, "{language}");
        for block in blocks {
            assert!(source.contains(&block), "{file} lacks\n{block}");
        }
    }
}

#[test]
fn the_page_about_receivers_has_a_plan_that_loads_and_names_keys_that_there_are() {
    let page = page("misbehaving-and-slow-receivers.md");
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
