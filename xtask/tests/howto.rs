//! The pages under `docs/howto/` do what they say, or name all that there is.

use std::path::{Path, PathBuf};
use std::process::Command;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().into()
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

/// A copy of `folders` under `target/howto` as a workspace of `members`, without the files that are to be others.
struct Workspace {
    home: PathBuf,
}

impl Workspace {
    fn new(name: &str, folders: &[&str], members: &[&str], others: &[&str]) -> Self {
        let home = repository().join("target/howto").join(name);
        for folder in folders {
            let is_other =
                |path: &Path| others.iter().any(|other| repository().join(other) == path);
            copy(&repository().join(folder), &home.join(folder), &is_other);
        }
        let workspace = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
        let mut alone: toml::Table = workspace.parse().unwrap();
        let members = toml::Value::from(members.to_vec());
        alone["workspace"]["members"] = members.clone();
        alone["workspace"]["default-members"] = members;
        place(&home.join("Cargo.toml"), alone.to_string().as_bytes());
        std::fs::copy(repository().join("Cargo.lock"), home.join("Cargo.lock")).unwrap();
        Self { home }
    }

    /// Writes `file` as it is in the repository, each of `additions` before the text that it names.
    fn add(&self, file: &str, additions: &[(&str, &str)]) {
        let mut text = std::fs::read_to_string(repository().join(file)).unwrap();
        for (before, addition) in additions {
            assert!(text.contains(before), "{file} has no {before}");
            text = text.replacen(before, &format!("{addition}{before}"), 1);
        }
        place(&self.home.join(file), text.as_bytes());
    }

    /// What the tests of `package` that are named say, all of which pass.
    fn test(&self, package: &[&str], names: &[&str]) -> String {
        let output = Command::new(env!("CARGO"))
            .current_dir(&self.home)
            .args(["test", "--quiet", "--offline", "--lib", "-p"])
            .args(package)
            .arg("--")
            .args(names)
            .env("CARGO_TARGET_DIR", repository().join("target/howto"))
            .output()
            .unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        text.into_owned()
    }
}

fn page(name: &str) -> String {
    std::fs::read_to_string(repository().join("docs/howto").join(name)).unwrap()
}

#[test]
fn an_algorithm_is_one_file_and_its_name() {
    let page = page("add-an-algorithm.md");
    let [file, module, entry] = blocks(&page, "rust").try_into().expect("three blocks of Rust");
    let registry = "crates/core/src/cc/mod.rs";
    let workspace =
        Workspace::new("workspace", &["crates/core", "traces"], &["crates/core"], &[registry]);
    let additions = [("pub mod highspeed;\n", &*module), ("    highspeed::ALGORITHM,\n", &*entry)];
    workspace.add(registry, &additions);
    place(&workspace.home.join("crates/core/src/cc/gaimd.rs"), file.as_bytes());
    let text = workspace.test(&["forebay-core"], &["cc::gaimd", "testing::cc"]);
    // Two tests of its own and four of the suite: fewer would mean that the names above are old.
    assert!(text.contains("6 passed"), "{text}");
}

#[test]
fn the_page_about_datapaths_names_every_method() {
    let page = std::fs::read_to_string(repository().join("docs/howto/add-a-datapath.md")).unwrap();
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
fn a_metric_with_a_figure_is_a_file_and_a_plan() {
    let page = page("add-a-metric-with-a-figure.md");
    let [entry, value, test] = blocks(&page, "rust").try_into().expect("three blocks of Rust");
    let [figure] = blocks(&page, "toml").try_into().expect("one figure");
    let (metrics, plan) = ("crates/lab/src/metrics/requests.rs", "plans/bundler/main.toml");
    let folders = ["crates", "traces", "plans", "xtask/skips"];
    let members = ["core", "ebpf", "sim", "host", "lab"].map(|name| format!("crates/{name}"));
    let members = members.each_ref().map(String::as_str);
    let workspace = Workspace::new("lab", &folders, &members, &[metrics, plan]);
    let additions = [
        ("    entry(\"slowdown_above_1_3\"", &*entry),
        ("    metrics.put(\"slowdown_above_1_3\"", &*value),
        ("        assert_eq!(get(\"slowdown_above_1_3\")", &*test),
    ];
    workspace.add(metrics, &additions);
    let text = std::fs::read_to_string(repository().join(plan)).unwrap();
    place(&workspace.home.join(plan), format!("{text}\n{figure}").as_bytes());
    let package = ["forebay-lab", "--no-default-features"];
    let text = workspace.test(&package, &["metrics::requests", "every_built_in_plan_loads"]);
    // Three tests of requests and that of the plans: fewer would mean that the names above are old.
    assert!(text.contains("4 passed"), "{text}");
}
