//! A sendbox with a bundle that a Python class controls: the child's privileges, its end, and an exception.

use std::fs::{self, File, Permissions};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use forebay_skips::{Need, skip_without};
use forebay_testbed::topology::Site;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::by_hand::{await_status, await_that, bridged, command, end, start};
use crate::turns::together;
use crate::two_bundles::{await_both, flow, give_ipv6, write_configs};

/// Port of the test traffic.
const PORT: u16 = 7000;

/// A constant window, until there is a file `raise` next to this one.
const CLASS: &str = r#"
import pathlib
import sys

import forebay

print("\x1b[2J<3>FB0101 started:", file=sys.stderr, flush=True)


@forebay.algorithm("steady", needs=["rtt"], every="10ms")
class Steady:
    "A window that stays"

    def init(self, start):
        self.cwnd = 20 * start.mss_bytes

    def on_measurement(self, now_ns, measurement):
        if pathlib.Path(__file__).with_name("raise").exists():
            raise LookupError("as the test asks")
        return forebay.Limits(cwnd_bytes=self.cwnd)

    def on_event(self, now_ns, event, value):
        return None
"#;

/// Replaces the Rust module, which is not built here.
const NATIVE: &str = r#"
from typing import NamedTuple


class Limits(NamedTuple):
    cwnd_bytes: float | None = None
    ssthresh_bytes: float | None = None
    pacing_rate_bits_per_s: float | None = None


def register(entry, class_):
    pass
"#;

/// Writes the class, and the parts of the package that a child needs.
fn write_package(folder: &Path) -> PathBuf {
    let package = folder.join("forebay");
    fs::create_dir(&package).unwrap();
    for (name, text) in [
        (
            "__init__.py",
            "from forebay._forebay import Limits\nfrom forebay.algorithms import algorithm\n",
        ),
        ("_forebay.py", NATIVE),
        ("algorithms.py", include_str!("../../../../python/forebay/algorithms.py")),
        ("errors.py", include_str!("../../../../python/forebay/errors.py")),
        ("live.py", include_str!("../../../../python/forebay/live.py")),
        ("versions.py", include_str!("../../../../python/forebay/versions.py")),
    ] {
        fs::write(package.join(name), text).unwrap();
    }
    let file = folder.join("steady.py");
    fs::write(&file, CLASS).unwrap();
    file
}

/// The process that runs `file`, while it exists.
fn child(file: &Path) -> Option<i32> {
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str().and_then(|name| name.parse().ok()));
    let runs_it = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        line.contains("forebay.live") && line.contains(file.to_str().unwrap())
    };
    pids.into_iter().find(runs_it)
}

#[test]
fn python_class_controls_bundle_and_copa_takes_over() {
    let _turn = together();
    let Some(topology) = bridged() else { return };
    let sites = &topology.pairs[0];
    give_ipv6(sites);
    let folder = tempfile::tempdir().unwrap();
    // The child runs as another user.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let file = write_package(folder.path());
    let [receivebox, sendbox] = write_configs(folder.path());
    let text = fs::read_to_string(&sendbox).unwrap();
    let cc = format!("supervised = false\ncc = {{ kind = \"python\", file = {file:?} }}");
    fs::write(&sendbox, text.replacen("cc = \"copa\"", &cc, 1)).unwrap();
    let log = folder.path().join("log");
    let mut program = command(&sites.left_box, "sendbox", &sendbox);
    program.env("PYTHONPATH", folder.path()).stderr(File::create(&log).unwrap());
    let mut boxes = [start(&sites.right_box, "receivebox", &receivebox), program.spawn().unwrap()];
    let sockets = ["receivebox.sock", "sendbox.sock"].map(|name| folder.path().join(name));
    await_both(&sockets, |both| {
        both.iter().flat_map(|one| &one.bundles).all(|bundle| bundle.peer.state == "alive")
    });

    let target = SocketAddr::new(IpAddr::V4(Site::RightHosts.address(0)), PORT);
    let decides = |wanted: &str, reason: &str| {
        let (sender, receiver) = flow(sites, target);
        await_that(&format!("the state is {wanted}"), || {
            let status = await_status(&sockets[1]);
            let decision = &status.bundles[0].shaping.as_ref().unwrap().decision;
            decision.state == wanted && decision.reason.contains(reason)
        });
        assert_eq!(sender.join().unwrap(), receiver.join().unwrap());
    };
    let logs = |parts: &[&str]| {
        await_that(&format!("the log has {parts:?}"), || {
            // The log gets the child's messages while a flow is measured.
            let (sender, receiver) = flow(sites, target);
            assert_eq!(sender.join().unwrap(), receiver.join().unwrap());
            let text = fs::read_to_string(&log).unwrap();
            parts.iter().all(|part| text.contains(part))
        });
    };
    decides("python", "a class in Python decides");

    let first = child(&file).unwrap();
    let status = fs::read_to_string(format!("/proc/{first}/status")).unwrap();
    for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{line:?} is not in {status}");
    }
    let limits = fs::read_to_string(format!("/proc/{first}/limits")).unwrap();
    for (limit, most) in [("Max open files", "256"), ("Max processes", "256")] {
        let line = limits.lines().find_map(|line| line.strip_prefix(limit)).unwrap();
        assert_eq!(line.split_whitespace().next(), Some(most), "{limit}");
    }
    logs(&["FB0310 python_output: \\u{1b}[2J<3>FB0101 started:\n"]);
    let user = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
    assert!(!user.contains("\t0"), "{user}");

    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
    logs(&["FB0308 python: ", "signal: 9 (SIGKILL)", "FB0309 python: "]);
    assert_ne!(child(&file), Some(first));
    decides("python", "a class in Python decides");

    fs::write(folder.path().join("raise"), "").unwrap();
    decides("fallback", "raised an exception");
    logs(&["LookupError: as the test asks", "whom=four"]);
    let second = child(&file).expect("an exception ends no child");

    // A child that hangs ends with its box, too.
    fs::write(&file, "while True:\n    pass\n").unwrap();
    kill(Pid::from_raw(second), Signal::SIGKILL).unwrap();
    await_that("the next child hangs", || child(&file).is_some_and(|third| third != second));
    end(&mut boxes);
    await_that("the child ends with its box", || child(&file).is_none());
}

#[test]
fn simulation_runs_python_class_until_exception() {
    // If root has installed the tests' packages, Python is installed, too.
    if skip_without(Need::Root) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let file = write_package(folder.path());
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
        command.current_dir(folder.path()).env("PYTHONPATH", folder.path());
        command.args(["run", "bundler/queue_shift", "--backend", "sim", "--seed", "1", "--json"]);
        command.args(["--arms", "copa_sfq", "--set", "stop=7s", "--set", "bundle.a.cc=steady"]);
        command.args(["--set", "bundle.a.supervised=false"]);
        command.args(["--force", "--cc-python"]).arg(&file).output().unwrap()
    };
    let output = run();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let [run_of_class] = &document["runs"].as_array().unwrap()[..] else { panic!("{output:?}") };
    // 20 segments of the window of one bundle in 50 ms, where Copa would fill the link of 96 Mbit/s.
    let goodput_mbps = run_of_class["metrics"]["goodput_mbps"].as_f64().unwrap();
    assert!((4.0..5.0).contains(&goodput_mbps), "{run_of_class}");
    let report = fs::read_to_string(folder.path().join("out/queue_shift/report.html")).unwrap();
    assert!(report.contains(&format!(" --cc-python {}", file.display())), "the command repeats it");
    fs::write(folder.path().join("raise"), "").unwrap();
    let output = run();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error: ") && stderr.contains("as the test asks"), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}
