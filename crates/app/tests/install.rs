//! `make install`: what it puts where.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn install(prefix: &str, destination: &Path) -> Output {
    let mut command = Command::new("sh");
    command.arg("packaging/install.sh").arg(env!("CARGO_BIN_EXE_forebay")).arg(prefix);
    command.arg(destination).current_dir(repository()).output().unwrap()
}

#[test]
fn binary_pages_completions_units_and_account_stand_below_the_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let installed = install("/opt/forebay", folder.path());
    assert!(installed.status.success(), "{installed:?}");
    let there = |path: &str| {
        let path = folder.path().join("opt/forebay").join(path);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    for path in [
        "share/man/man1/forebay.1",
        "share/man/man1/forebay-status.1",
        "share/bash-completion/completions/forebay",
        "share/zsh/site-functions/_forebay",
        "share/fish/vendor_completions.d/forebay.fish",
        "lib/sysusers.d/forebay.conf",
        "share/forebay/prometheus/forebay.rules.yml",
        "share/forebay/grafana/forebay.json",
    ] {
        assert!(!there(path).is_empty(), "{path}");
    }
    let binary = folder.path().join("opt/forebay/bin/forebay");
    assert_eq!(fs::metadata(&binary).unwrap().permissions().mode() & 0o777, 0o755);
    for role in ["sendbox", "receivebox"] {
        let unit = there(&format!("lib/systemd/system/forebay-{role}.service"));
        let line = format!("\nExecStart=/opt/forebay/bin/forebay {role} --config /etc/");
        assert!(String::from_utf8(unit).unwrap().contains(&line), "{role}");
    }
    let elsewhere = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(elsewhere, 1, "all stands below the prefix");
}

#[test]
fn a_prefix_that_is_no_absolute_path_or_would_spoil_a_unit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for prefix in ["usr", "", "/opt/a,b", "/opt/a&b", "/opt/a b"] {
        let refused = install(prefix, folder.path());
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let told = String::from_utf8_lossy(&refused.stderr);
        assert!(told.contains(&format!("PREFIX={prefix}: allowed is an absolute")), "{told}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_build_needs_no_package_that_only_tests_need() {
    let names = |list: &str| -> Vec<String> {
        let text = fs::read_to_string(repository().join(list)).unwrap();
        let lines = text.lines().map(|line| line.split('#').next().unwrap().trim().to_string());
        lines.filter(|name| !name.is_empty()).collect()
    };
    let (build, test) = (names("packages.txt"), names("packaging/test.txt"));
    for name in ["chromium", "tshark"] {
        assert!(test.contains(&name.into()), "{name}: {test:?}");
    }
    assert!(!build.iter().any(|name| test.contains(name)), "{build:?}");
    let makefile = fs::read_to_string(repository().join("Makefile")).unwrap();
    let rule = makefile.lines().find(|line| line.starts_with("build:")).unwrap();
    assert!(rule.starts_with("build: packages ##"), "{rule}");
}
