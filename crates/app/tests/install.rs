//! `make install`: the files and their places.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use forebay_skips::{Need, skip_without};

/// How far a unit may be open by systemd's judgement, in tenths of its points: 10 points for no sandbox. The
/// rights that a box needs (to become another user, to administer the network, to load BPF programs) take 3.3
/// points.
const EXPOSURE_MAX: &str = "--threshold=35";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn install(prefix: &str, destination: &Path) -> Output {
    let mut command = Command::new("sh");
    command.arg("packaging/install.sh").arg(env!("CARGO_BIN_EXE_forebay")).arg(prefix);
    command.arg(destination).current_dir(repository()).output().unwrap()
}

#[test]
fn install_writes_all_files_below_prefix() {
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
        "lib/tmpfiles.d/forebay.conf",
        "share/forebay/examples/sendbox.toml",
        "share/forebay/examples/receivebox.toml",
        "share/forebay/examples/10-forebay.link",
        "share/forebay/prometheus/forebay.rules.yml",
        "share/forebay/grafana/forebay.json",
        "lib/systemd/system/forebay-triangle@.service",
        "lib/systemd/system/forebay-sendbox@.service.d/10-triangle.conf",
    ] {
        assert!(!there(path).is_empty(), "{path}");
    }
    let binary = folder.path().join("opt/forebay/bin/forebay");
    assert_eq!(fs::metadata(&binary).unwrap().permissions().mode() & 0o777, 0o755);
    for (role, arguments) in [
        ("sendbox", "--config /etc/forebay/%i.toml\n"),
        ("receivebox", "--config /etc/forebay/%i.toml\n"),
        ("agent", "--algorithm %i "),
    ] {
        let unit = there(&format!("lib/systemd/system/forebay-{role}@.service"));
        let unit = String::from_utf8(unit).unwrap();
        let line = format!("\nExecStart=/opt/forebay/bin/forebay {role} {arguments}");
        assert!(unit.contains(&line) && !unit.contains("ROLE"), "{unit}");
        if role != "agent" {
            // A device that comes late, or goes, is no reason to give up.
            assert!(unit.contains("\nStartLimitIntervalSec=0\n"), "{unit}");
            assert!(!unit.contains("BindsTo"), "{unit}");
        } else {
            assert!(unit.contains("\nStartLimitIntervalSec=30\nStartLimitBurst=5\n"), "{unit}");
        }
    }
    let elsewhere = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(elsewhere, 1, "all stands below the prefix");
}

/// By systemd's own checker, which needs no service manager: keys, values, paths, manual pages and the sandbox.
#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    if skip_without(Need::SystemdAnalyze) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The place where they will run from is verified, too.
    let prefix = folder.path().join("usr");
    let installed = install(prefix.to_str().unwrap(), Path::new(""));
    assert!(installed.status.success(), "{installed:?}");
    let analyze =
        |arguments: &[&str]| Command::new("systemd-analyze").args(arguments).output().unwrap();
    for role in ["sendbox", "receivebox", "agent"] {
        let unit = prefix.join(format!("lib/systemd/system/forebay-{role}@.service"));
        let unit = unit.to_str().unwrap();
        let verified = analyze(&["verify", "--man=no", unit]);
        let said = String::from_utf8_lossy(&verified.stderr);
        assert!(verified.status.success() && !said.contains("forebay"), "{said}");
        let page = format!("Documentation=man:forebay-{role}(1)\n");
        assert!(fs::read_to_string(unit).unwrap().contains(&page), "{role}");
        assert!(prefix.join(format!("share/man/man1/forebay-{role}.1")).exists(), "{role}");
        let judged = analyze(&["security", "--offline=true", EXPOSURE_MAX, unit]);
        assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stdout));
    }
    // Runs for a moment, and is root: the names of its namespaces are for all to see.
    let unit = prefix.join("lib/systemd/system/forebay-triangle@.service");
    let verified = analyze(&["verify", "--man=no", unit.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && !said.contains("forebay"), "{said}");
    assert!(prefix.join("share/man/man1/forebay-triangle.1").exists());
}

/// Lines of `[Service]` that are no comments.
fn service(unit: &str) -> Vec<String> {
    let (mut lines, mut is_service) = (Vec::new(), false);
    for line in unit.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with('[') {
            is_service = line == "[Service]";
        } else if is_service && !line.starts_with('#') {
            lines.push(line.to_string());
        }
    }
    lines.sort();
    lines
}

/// A sendbox has the rights that it had before there were triangles: a receivebox, which has none, has the
/// same.
#[test]
fn the_triangle_widens_no_sandbox() {
    let folder = tempfile::tempdir().unwrap();
    let installed = install("/usr", folder.path());
    assert!(installed.status.success(), "{installed:?}");
    let units = folder.path().join("usr/lib/systemd/system");
    let read = |name: &str| fs::read_to_string(units.join(name)).unwrap();
    let receivebox = read("forebay-receivebox@.service").replace("receivebox", "sendbox");
    let sendbox = service(&read("forebay-sendbox@.service"));
    assert_eq!(sendbox, service(&receivebox));
    for kept in [
        "CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_BPF CAP_PERFMON CAP_IPC_LOCK CAP_SYS_NICE",
        "CapabilityBoundingSet=CAP_CHOWN CAP_DAC_READ_SEARCH CAP_SETUID CAP_SETGID CAP_SETPCAP",
        "RestrictNamespaces=yes",
        "ProtectKernelTunables=yes",
        "ProtectSystem=strict",
        "PrivateMounts=yes",
    ] {
        assert!(sendbox.iter().any(|line| line == kept), "{kept}: {sendbox:?}");
    }
    let drop_ins: Vec<_> =
        fs::read_dir(units.join("forebay-sendbox@.service.d")).unwrap().collect();
    assert_eq!(drop_ins.len(), 1);
    let drop_in = read("forebay-sendbox@.service.d/10-triangle.conf");
    assert!(
        service(&drop_in).is_empty() && drop_in.contains("\nAfter=forebay-triangle@%i.service")
    );
    let triangle = read("forebay-triangle@.service");
    for line in [
        "Before=forebay-sendbox@%i.service",
        "PartOf=forebay-sendbox@%i.service",
        "Type=oneshot",
        "RemainAfterExit=yes",
        "ExecStart=/usr/bin/forebay triangle make --config /etc/forebay/%i.toml",
        "ExecStop=/usr/bin/forebay triangle remove --config /etc/forebay/%i.toml",
    ] {
        assert!(triangle.lines().any(|it| it == line), "{line}: {triangle}");
    }
}

#[test]
fn image_has_the_capabilities_of_units() {
    let text = |file: &str| fs::read_to_string(repository().join(file)).unwrap();
    let unit = text("packaging/systemd/forebay-ROLE@.service");
    let lists = unit.lines().filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names: Vec<&str> = lists.flat_map(|list| list.split(' ')).collect();
    let names: Vec<&str> = names.iter().map(|name| name.strip_prefix("CAP_").unwrap()).collect();
    assert_eq!(text("packaging/image/capabilities").trim(), names.join(","));
    let page = text("docs/operate/install.md");
    assert!(page.contains(&format!("\ncapabilities={}\n", names.join(","))), "{names:?}");
}

#[test]
fn refuses_prefix_that_is_relative_or_breaks_units() {
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
fn build_needs_no_test_packages() {
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
