//! The pages under `docs/howto/` do what they say, or name all that there is.

use std::path::{Path, PathBuf};
use std::process::Command;

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

#[test]
fn an_algorithm_is_one_file_and_its_name() {
    let page = page("add-an-algorithm.md");
    let [file, module, entry] = blocks(&page, "rust").try_into().expect("three blocks of Rust");
    let work = repository().join("target/howto");
    let home = work.join("workspace");
    let registry = repository().join("crates/core/src/cc/mod.rs");
    for folder in ["crates/core", "traces"] {
        copy(&repository().join(folder), &home.join(folder), &|path| path == registry);
    }
    let workspace = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let mut alone: toml::Table = workspace.parse().unwrap();
    let members = toml::Value::from(vec!["crates/core"]);
    alone["workspace"]["members"] = members.clone();
    alone["workspace"]["default-members"] = members;
    place(&home.join("Cargo.toml"), alone.to_string().as_bytes());
    std::fs::copy(repository().join("Cargo.lock"), home.join("Cargo.lock")).unwrap();

    let modules = std::fs::read_to_string(registry).unwrap();
    let modules = modules
        .replacen("pub mod highspeed;\n", &format!("{module}pub mod highspeed;\n"), 1)
        .replacen("    highspeed::ALGORITHM,\n", &format!("{entry}    highspeed::ALGORITHM,\n"), 1);
    assert!(modules.contains("gaimd::ALGORITHM"), "{modules}");
    place(&home.join("crates/core/src/cc/mod.rs"), modules.as_bytes());
    place(&home.join("crates/core/src/cc/gaimd.rs"), file.as_bytes());

    let output = Command::new(env!("CARGO"))
        .current_dir(&home)
        .args(["test", "--quiet", "--offline", "-p", "forebay-core", "--lib", "--"])
        .args(["cc::gaimd", "testing::cc"])
        .env("CARGO_TARGET_DIR", work)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    // Two tests of its own and four of the suite: fewer would mean that the names above are old.
    assert!(text.contains("6 passed"), "{text}");
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
