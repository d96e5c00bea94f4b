//! A digest of the sources that can influence a run. The digest is a part of the key of its result, so that runs of two
//! programs are never taken for one another. A change of any other file invalidates no run.

mod told;

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use sha2::{Digest, Sha256};

pub use told::tell;

/// Characters of a digest: 64 bits.
const LENGTH: usize = 16;
/// Further inputs of the compiler, outside the crates: versions, profiles, and data that crates include.
const BESIDE: [&str; 4] = ["Cargo.lock", "Cargo.toml", "rust-toolchain.toml", "traces"];
/// The crates that a simulation consists of.
const SIMULATOR: [&str; 8] = [
    "crates/capi/",
    "crates/core/",
    "crates/policy/",
    "crates/reader/",
    "crates/scenario/",
    "crates/sim/",
    "crates/lab/",
    "crates/python/src/algorithm.rs",
];
/// The module for Python: a simulation may execute its algorithms, and runs of a testbed or of ns-3 execute nothing of
/// it.
const PYTHON: &str = "crates/python/";
/// Sources that no simulation executes.
const TESTBED: [&str; 2] = ["crates/lab/src/backend/cost", "crates/lab/src/backend/emu"];
/// Sources that only runs of ns-3 execute.
const ORACLE: &str = "crates/lab/src/backend/ns3/";
/// Parts of the simulator that runs of ns-3 use: its meters, and the initial values of its TCP.
const OF_ORACLE: [&str; 2] = ["crates/sim/src/metrics.rs", "crates/sim/src/tcp/stack.rs"];
/// Parts of core that runs of ns-3 do not use: ns-3 has its own congestion control. Its queues have the default
/// parameters of core's.
const BESIDE_ORACLE: [&str; 2] = ["crates/core/src/bundle/", "crates/core/src/cc/"];
/// Sources that read stored results or show them, or choose plans.
const READERS: [&str; 14] = [
    "crates/lab/assets/",
    "crates/lab/src/capture/",
    "crates/lab/src/compare/",
    "crates/lab/src/demo.rs",
    "crates/lab/src/export/",
    "crates/lab/src/judge/",
    "crates/lab/src/output.rs",
    "crates/lab/src/platforms.rs",
    "crates/lab/src/progress.rs",
    "crates/lab/src/recorded.rs",
    "crates/lab/src/report/",
    "crates/lab/src/summary.rs",
    "crates/lab/src/summary/",
    "crates/studies/",
];
/// Folders and files of tests, or that only tests, examples and other programs use.
const TESTS: [&str; 7] =
    ["tests", "tests.rs", "testing", "testing.rs", "examples", "benches", "templates"];
/// Entries in the folder of a crate that are no sources: files that cargo writes, and results with the default folder.
const BESIDE_CRATE: [&str; 3] = ["target", "Cargo.lock", "out"];
/// Files that identify a folder of results, of runs and of cases that a search tried.
const STORES: [&str; 2] = ["results.sqlite", "cases.jsonl"];
/// The report over several folders of results, in the folder above these.
const REPORT: &str = "report.html";
/// Ends of the names of sources and data, which an editor's copies do not have.
const ENDS: [&str; 12] =
    ["rs", "toml", "lock", "c", "cc", "h", "o", "sql", "cdf", "trace", "csv", "der"];

/// The digest, in hex, of all sources that can influence a run of the back end `sim`, `emu` or `ns3`, from the files
/// below `repository`. Fails where a file cannot be read.
pub fn digest(repository: &Path, backend: &str) -> io::Result<String> {
    let is_meant = match backend {
        "sim" => reaches_simulator,
        "ns3" => reaches_oracle,
        _ => reaches_testbed,
    };
    let mut files = Vec::new();
    for path in BESIDE.into_iter().chain(["crates"]) {
        collect(repository, path, is_meant, &mut files)?;
    }
    hash(repository, files)
}

/// The digest, in hex, of a crate outside the repository. It covers all files below `folder` except hidden ones, notes,
/// files that cargo writes there, and results: with results in the digest, every run would change the crate. Fails
/// where a file cannot be read.
pub fn of_crate(folder: &Path) -> io::Result<String> {
    let is_meant = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        !is_hidden(path) && !name.ends_with(".md") && name != REPORT
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        if !BESIDE_CRATE.contains(&name.as_str()) && !is_hidden(&name) {
            collect(folder, &name, is_meant, &mut files)?;
        }
    }
    let folder_of_store = |path: &String| {
        let (folder, name) = path.rsplit_once('/')?;
        STORES.contains(&name).then(|| format!("{folder}/"))
    };
    let results: Vec<String> = files.iter().filter_map(folder_of_store).collect();
    files.retain(|path| !results.iter().any(|folder| path.starts_with(folder.as_str())));
    hash(folder, files)
}

fn is_hidden(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with('.'))
}

/// The digest of these `files`, paths below `folder`.
fn hash(folder: &Path, mut files: Vec<String>) -> io::Result<String> {
    files.sort();
    let mut hasher = Sha256::new();
    for path in files {
        let text = std::fs::read(folder.join(&path))?;
        hasher.update(format!("{path}\n{}\n", text.len()));
        hasher.update(text);
    }
    let mut hex = String::new();
    for byte in &hasher.finalize()[..LENGTH / 2] {
        let _ = write!(hex, "{byte:02x}");
    }
    Ok(hex)
}

/// Adds the paths of the files at or below `path` that `is_meant` accepts, relative to `repository`.
fn collect(
    repository: &Path,
    path: &str,
    is_meant: fn(&str) -> bool,
    files: &mut Vec<String>,
) -> io::Result<()> {
    let whole = repository.join(path);
    if !whole.is_dir() {
        files.extend(is_meant(path).then(|| path.to_string()));
        return Ok(());
    }
    for entry in std::fs::read_dir(whole)? {
        if let Ok(name) = entry?.file_name().into_string() {
            collect(repository, &format!("{path}/{name}"), is_meant, files)?;
        }
    }
    Ok(())
}

/// Whether the file at `path` is in the program, and a run of our own uses it.
fn reaches_testbed(path: &str) -> bool {
    is_of_ours(path) && !path.starts_with(PYTHON)
}

/// Whether any run of our own uses the file at `path`.
fn is_of_ours(path: &str) -> bool {
    is_passed(path) && !path.starts_with(ORACLE)
}

/// Whether the file at `path` is in the program, and any run uses it.
fn is_passed(path: &str) -> bool {
    let is_test = || path.split('/').any(|part| TESTS.contains(&part));
    let is_reader = || READERS.iter().any(|reader| path.starts_with(reader));
    let is_source = path.rsplit_once('.').is_some_and(|(_, end)| ENDS.contains(&end));
    is_source && !is_test() && !is_reader()
}

fn reaches_simulator(path: &str) -> bool {
    let is_crate = path.starts_with("crates/");
    let is_simulated = || SIMULATOR.iter().any(|name| path.starts_with(name));
    let is_of_testbed = || TESTBED.iter().any(|name| path.starts_with(name));
    is_of_ours(path) && (!is_crate || is_simulated() && !is_of_testbed())
}

/// Whether a run of ns-3 uses the file at `path`. A change of the simulator invalidates no such run.
fn reaches_oracle(path: &str) -> bool {
    let is_beside = BESIDE_ORACLE.iter().any(|beside| path.starts_with(beside))
        || path.starts_with(PYTHON)
        || path.starts_with("crates/sim/") && !OF_ORACLE.contains(&path);
    path.starts_with(ORACLE) && is_passed(path) || reaches_simulator(path) && !is_beside
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    #[test]
    fn back_end_has_sources_of_its_runs() {
        for path in [
            "Cargo.lock",
            "traces/caida.cdf",
            "crates/core/src/cc/algorithms/copa.rs",
            "crates/sim/Cargo.toml",
            "crates/lab/src/metrics/links/mod.rs",
        ] {
            assert!(reaches_simulator(path) && reaches_testbed(path), "{path}");
        }
        for path in [
            "crates/ebpf/bpf/packet.h",
            "crates/host/src/port/xdp.rs",
            "crates/lab/src/backend/emu/scenario.rs",
            "crates/lab/src/backend/cost.rs",
            "crates/experiments/src/commands/role.rs",
        ] {
            assert!(!reaches_simulator(path) && reaches_testbed(path), "{path}");
        }
        let in_python = "crates/python/src/algorithm.rs";
        assert!(reaches_simulator(in_python) && !reaches_testbed(in_python));
        for path in [
            "traces/README.md",
            "crates/python/src/plan.rs",
            "crates/lab/src/judge/mod.rs",
            "crates/sim/tests/golden.rs",
            "crates/core/src/qdisc/codel/tests.rs",
            "crates/core/src/testing/cc.rs",
            "crates/sim/examples/speed.rs",
            "crates/experiments/templates/rust/lib.rs",
            "crates/sim/src/line.rs~",
        ] {
            assert!(!reaches_simulator(path) && !reaches_testbed(path), "{path}");
        }
    }

    #[test]
    fn ns3_sources_are_driver_and_defaults_without_algorithms() {
        for path in [
            "Cargo.lock",
            "crates/lab/src/metrics/mod.rs",
            "crates/core/src/qdisc/pie.rs",
            "crates/core/src/traffic/mod.rs",
            "crates/sim/src/tcp/stack.rs",
        ] {
            assert!(reaches_oracle(path) && reaches_simulator(path), "{path}");
        }
        let driver = "crates/lab/src/backend/ns3/cpp/driver.cc";
        assert!(reaches_oracle(driver) && !reaches_simulator(driver) && !reaches_testbed(driver));
        for path in ["crates/core/src/cc/algorithms/cubic/mod.rs", "crates/sim/src/link.rs"] {
            assert!(!reaches_oracle(path) && reaches_simulator(path), "{path}");
        }
        assert!(reaches_oracle("crates/sim/src/metrics.rs"));
        assert!(!reaches_oracle("crates/lab/src/backend/emu.rs"));
        assert!(!reaches_oracle("crates/python/src/algorithm.rs"));
    }

    #[test]
    fn every_path_that_is_named_is_there() {
        let of_oracle = OF_ORACLE.iter().chain(&BESIDE_ORACLE).chain([&ORACLE, &PYTHON]);
        let named = BESIDE.iter().chain(&SIMULATOR).chain(&TESTBED).chain(&READERS);
        for path in named.chain(of_oracle) {
            let path = repository().join(path);
            assert!(path.exists() || path.with_extension("rs").exists(), "{}", path.display());
        }
    }

    fn write(folder: &Path, path: &str, text: &str) {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn crate_digest_covers_its_sources() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| write(folder.path(), path, text);
        write("src/lib.rs", "1");
        let first = of_crate(folder.path()).unwrap();
        for path in ["target/debug/x", ".git/index", "src/.lib.rs.swp", "Cargo.lock", "README.md"] {
            write(path, "2");
        }
        for path in ["bench/report.html", "bench/duel/results.sqlite", "bench/duel/table.csv"] {
            write(&format!("out/{path}"), "2");
            write(&format!("before/{path}"), "2");
        }
        write("found/cases.jsonl", "2");
        assert_eq!(of_crate(folder.path()).unwrap(), first);
        write("my_cc.c", "2");
        let second = of_crate(folder.path()).unwrap();
        assert_ne!(second, first);
        write("src/target/table.csv", "2");
        let third = of_crate(folder.path()).unwrap();
        assert_ne!(third, second);
        write("src/out/table.csv", "2");
        assert_ne!(of_crate(folder.path()).unwrap(), third);
    }

    #[test]
    fn digest_changes_only_with_code_on_path() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path, text| write(folder.path(), path, text);
        let digests = || ["sim", "emu"].map(|backend| digest(folder.path(), backend).unwrap());
        for path in ["Cargo.lock", "Cargo.toml", "rust-toolchain.toml", "traces/a.cdf"] {
            write(path, "1");
        }
        write("crates/core/src/cc.rs", "1");
        write("crates/host/src/port.rs", "1");
        let first = digests();
        assert_eq!(first.each_ref().map(String::len), [LENGTH; 2]);
        write("docs/evidence/evaluation.md", "2");
        write("crates/core/src/cc/tests.rs", "2");
        write("crates/lab/src/report/page.rs", "2");
        write("xtask/src/main.rs", "2");
        assert_eq!(digests(), first);
        write("crates/host/src/port.rs", "2");
        let second = digests();
        assert!(second[0] == first[0] && second[1] != first[1]);
        write("crates/core/src/cc.rs", "2");
        let third = digests();
        assert!(third[0] != second[0] && third[1] != second[1]);
        write("Cargo.lock", "2");
        assert!(digests().iter().zip(&third).all(|(one, other)| one != other));
        std::fs::remove_file(folder.path().join("Cargo.lock")).unwrap();
        assert!(digest(folder.path(), "sim").is_err());
    }
}
