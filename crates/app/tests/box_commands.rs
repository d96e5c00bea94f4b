//! The commands around the boxes: exit codes and output.
#![cfg(feature = "host")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use forebay_host::daemon::config::Role;
use forebay_host::daemon::status::{Status, TrialStatus};
use forebay_host::service::control::{Answer, ControlSocket, Request};
use forebay_host::service::privileges::Confinement;

/// Configuration of a receivebox, the start of each file here.
const CONFIG: &str = include_str!("../../receivebox/tests/box.toml");

fn forebay(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.current_dir(folder).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_configuration_is_checked_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("box.toml"), CONFIG).unwrap();
    let check = || forebay(folder.path(), &["check-config", "box.toml"]);
    let refused = check();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("bundle.key: no such file"), "{refused:?}");
    let made = forebay(folder.path(), &["keygen", "bundle.key"]);
    assert!(made.status.success() && made.stdout.is_empty(), "the secret is not printed");
    let accepted = check();
    assert!(accepted.status.success(), "{accepted:?}");
    assert!(text(&accepted.stdout).contains("10.1.1.0/24 -> 10.1.2.0/24, peer 192.0.2.1:61475"));
    assert_eq!(forebay(folder.path(), &["keygen", "bundle.key"]).status.code(), Some(2));
}

#[test]
fn checked_configuration_is_printed_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let check = |config: &str, code: i32| -> serde_json::Value {
        fs::write(folder.path().join("box.toml"), config).unwrap();
        let output = forebay(folder.path(), &["check-config", "box.toml", "--json"]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    assert!(forebay(folder.path(), &["keygen", "bundle.key"]).status.success());
    let right = check(CONFIG, 0);
    let one = &right["boxes"][0];
    assert!(one["role"] == "receivebox" && one["wan"] == "wan0", "{right:#}");
    assert!(one["bundles"][0]["id"] == 1 && one["bundles"][0]["cc"].is_null(), "{right:#}");
    assert_eq!(one["bundles"][0]["to"], serde_json::json!(["10.1.2.0/24"]));
    assert_eq!(right["problems"], serde_json::json!([]));
    let wrong = check(&CONFIG.replace("192.0.2.2", "all").replace("id = 1", "id = -1"), 2);
    assert_eq!(wrong["boxes"], serde_json::json!([]));
    let problems = wrong["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 2, "{wrong:#}");
    let second = &problems[1];
    assert!(second["line"] == 8 && second["key"] == "bundle.id", "{wrong:#}");
    assert!(second["value"] == "-1" && second["allowed"].is_string(), "{wrong:#}");
}

#[test]
fn all_errors_of_a_configuration_come_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = CONFIG.replace("192.0.2.2", "all").replace("id = 1", "id = -1");
    fs::write(folder.path().join("box.toml"), wrong).unwrap();
    for arguments in [&["check-config", "box.toml"][..], &["receivebox", "--config", "box.toml"]] {
        let output = forebay(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let told = text(&output.stderr);
        assert!(told.contains("box.toml:4: box.listen = \"all\": allowed is"), "{told}");
        assert!(told.contains("\nbox.toml:8: bundle.id = -1: allowed is"), "{told}");
    }
    let two = format!(
        "{CONFIG}[[bundle]]\nname = \"c\"\nid = 2\npeer = \"192.0.2.3\"\n\
                       to = [\"10.1.4.0/24\"]\nfrom = [\"10.1.1.0/24\"]\nkey_file = \"other.key\"\n"
    );
    fs::write(folder.path().join("box.toml"), two).unwrap();
    let output = forebay(folder.path(), &["check-config", "box.toml"]);
    let told = text(&output.stderr);
    assert!(told.contains("bundle.key: no such") && told.contains("other.key: no such"), "{told}");
}

#[test]
fn check_config_prints_shares_of_uplink() {
    let folder = tempfile::tempdir().unwrap();
    let sendbox = CONFIG.replace("\"receivebox\"", "\"sendbox\"\nlan = \"lan0\"");
    let shares = "cc = \"copa\"\ngroup = \"g\"\nguarantee = \"20Mbit/s\"\n[uplink]\n\
                  rate = \"100Mbit/s\"\n[[group]]\nname = \"g\"\nweight = 3\nmax_rate = \"90Mbit/s\"\n";
    fs::write(folder.path().join("box.toml"), sendbox + shares).unwrap();
    forebay(folder.path(), &["keygen", "bundle.key"]);
    let output = forebay(folder.path(), &["check-config", "box.toml"]);
    let told = text(&output.stdout);
    for line in [
        "  uplink of 100Mbit/s\n",
        "  group g: at most 90Mbit/s, weight 3 in the uplink\n",
        ", automatic minimum rate, no maximum rate, weight 1 in g, 20Mbit/s guaranteed\n",
    ] {
        assert!(told.contains(line), "{line:?} is missing in\n{told}");
    }
}

#[test]
fn checked_configuration_tells_what_packets_wait_in() {
    let folder = tempfile::tempdir().unwrap();
    forebay(folder.path(), &["keygen", "bundle.key"]);
    let told = |in_box: &str, in_bundle: &str| {
        let of_sendbox = format!("\"sendbox\"\nlan = \"lan0\"{in_box}");
        let sendbox = CONFIG.replace("\"receivebox\"", &of_sendbox);
        let text = format!("{sendbox}cc = \"copa\"\n{in_bundle}");
        fs::write(folder.path().join("box.toml"), text).unwrap();
        let output = forebay(folder.path(), &["check-config", "box.toml"]);
        assert!(output.status.success(), "{output:?}");
        let told = String::from_utf8(output.stdout).unwrap();
        told.split(" over ").nth(1).unwrap().split(", automatic minimum").next().unwrap().to_owned()
    };
    let default = told("", "");
    for value in ["limit=150ms", "target=25ms", "interval=250ms", "follow_rtt=true", "flows=1024"] {
        assert!(default.contains(value), "{value} is missing in {default}");
    }
    assert_eq!(told("", "qdisc = \"fq_codel\"\n"), default, "written out");
    let other = told("", "qdisc = { kind = \"fq_codel\", limit = \"99p\" }\n");
    assert_eq!(other, default.replace("150ms", "99p"));
    assert!(told("", "qdisc = \"sfq\"\n").starts_with("sfq("));
    let kernel = "\ndatapath = \"kernel\"";
    assert_eq!(told(kernel, ""), "queues of the kernel by flow (HTB)");
    let cake = format!("{kernel}\nkernel_qdisc = \"cake\"");
    assert_eq!(told(&cake, ""), "the kernel's cake (HTB)");
}

#[test]
fn wrong_file_exits_with_2_and_place() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("box.toml"), CONFIG.replace("id = 1", "id = -1")).unwrap();
    for arguments in [
        &["check-config", "box.toml"][..],
        &["receivebox", "--config", "box.toml"],
        &["doctor", "--config", "box.toml"],
    ] {
        let output = forebay(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains("box.toml:8: bundle.id = -1: allowed is"));
        assert!(output.stdout.is_empty());
    }
    fs::write(folder.path().join("box.toml"), CONFIG).unwrap();
    let other = forebay(folder.path(), &["sendbox", "--config", "box.toml"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(text(&other.stderr).contains("box.role = \"receivebox\""), "{other:?}");
}

#[test]
fn status_without_daemon_fails_with_socket_name() {
    let folder = tempfile::tempdir().unwrap();
    for command in [&["status"][..], &["top"], &["reload"], &["explain", "b"]] {
        let output = forebay(folder.path(), &[command, &["--socket", "none.sock"]].concat());
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        assert!(text(&output.stderr).contains("none.sock"), "{output:?}");
    }
}

#[test]
fn dry_run_lists_blockers_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let own = CONFIG.replace("[[bundle]]", "control = \"box.sock\"\n\n[[bundle]]");
    fs::write(folder.path().join("box.toml"), own).unwrap();
    let planned = forebay(folder.path(), &["apply", "--dry-run", "box.toml"]);
    assert!(planned.stderr.is_empty(), "{planned:?}");
    assert_eq!(planned.status.code(), Some(1), "{planned:?}");
    let told = text(&planned.stdout);
    for part in [
        "box.toml: a receivebox would be started",
        "wan0: XDP program",
        "UDP 192.0.2.2:61476",
        "The kernel forwards all packets, before, during and after the change.",
        "no device wan0",
        "bundle.key",
    ] {
        assert!(told.contains(part), "{part:?} is missing in\n{told}");
    }
    let old = forebay(folder.path(), &["plan", "box.toml"]);
    assert_eq!((&old.stdout, old.status.code()), (&planned.stdout, Some(1)), "the old spelling");
    assert!(text(&old.stderr).contains("now `forebay apply --dry-run box.toml`"), "{old:?}");
    let document = forebay(folder.path(), &["apply", "--dry-run", "box.toml", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&document.stdout).unwrap();
    assert!(document["running"].is_null() && document["role"] == "receivebox", "{document}");
    let files = fs::read_dir(folder.path()).unwrap();
    assert_eq!(files.count(), 1, "nothing was made");
    fs::write(folder.path().join("wrong.toml"), CONFIG.replace("id = 1", "id = -1")).unwrap();
    for arguments in [
        &["plan", "wrong.toml"][..],
        &["apply", "--dry-run", "wrong.toml"],
        &["apply", "wrong.toml"],
    ] {
        let refused = forebay(folder.path(), arguments);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains("wrong.toml:8: bundle.id = -1"), "{refused:?}");
    }
    assert_eq!(forebay(folder.path(), &["plan"]).status.code(), Some(2));
}

#[test]
fn apply_and_confirm_refuse_without_box() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("box.toml"), CONFIG).unwrap();
    let ends = |code: i32, arguments: &[&str], part: &str| {
        let output = forebay(folder.path(), &[arguments, &["--socket", "none.sock"]].concat());
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(text(&output.stderr).contains(part), "{output:?}");
    };
    ends(
        1,
        &["apply", "box.toml"],
        "no box answers at none.sock: start it with `forebay receivebox",
    );
    let refused = |arguments: &[&str], part: &str| ends(2, arguments, part);
    refused(&["apply", "box.toml", "--confirm", "1.5s"], "allowed is a time of whole seconds");
    for time in ["4s", "86401s"] {
        refused(&["apply", "box.toml", "--confirm", time], "allowed are 5 to 86400 s");
    }
    let one_of_two = |name: &str, wan: &str, listen: &str| {
        let text = CONFIG.replace("[box]", &format!("[[box]]\nname = \"{name}\""));
        let text = text.replace("[[bundle]]", "[[box.bundle]]");
        text.replace("wan0", wan).replace("192.0.2.2", listen)
    };
    let two = one_of_two("a", "wan0", "192.0.2.2") + &one_of_two("b", "wan1", "192.0.2.3");
    fs::write(folder.path().join("two.toml"), two).unwrap();
    refused(
        &["apply", "two.toml"],
        "two.toml has several boxes (a, b), and a trial is for one box: preview it with `forebay apply --dry-run",
    );
    // A box that does not answer may have something on trial.
    for command in ["confirm", "revert"] {
        let output = forebay(folder.path(), &[command, "--socket", "none.sock"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains("no answer on none.sock"), "{output:?}");
    }
}

#[test]
fn nothing_that_a_box_answers_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let [file, other, candidate] =
        ["box.toml", "other.toml", "box.toml.candidate"].map(|name| folder.path().join(name));
    let socket = ControlSocket::bind(&folder.path().join("box.sock"), &Confinement::default());
    let (socket, is_over) = (Mutex::new(socket.unwrap()), AtomicBool::new(false));
    let says = |it: &Path, text: &'static str, is_start: bool, arguments: &[&str]| {
        let (left_s, what) = (60, "1 changed".to_string());
        let status = Status {
            config_file: it.display().to_string(),
            trial: Some(TrialStatus { left_s, what, is_start }),
            ..Status::new(Role::Receivebox, false)
        };
        is_over.store(false, Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    socket.lock().unwrap().serve(|request| {
                        Some(match request {
                            Request::Status => Answer::Status(Box::new(status.clone())),
                            Request::Config => Answer::Done(text.into()),
                            _ => Answer::Done("done".into()),
                        })
                    });
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let output = forebay(folder.path(), &[arguments, &["--socket", "box.sock"]].concat());
            is_over.store(true, Ordering::Relaxed);
            output
        })
    };
    let confirm = &["confirm", "--config", "box.toml"][..];
    let unwritten = |output: &Output, code: i32, part: &str| {
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(text(&output.stderr).contains(part), "{output:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "before");
        assert_eq!(fs::read_to_string(&other).unwrap(), "another's");
    };
    fs::write(&file, "before").unwrap();
    fs::write(&other, "another's").unwrap();
    // Another file than the operator has named, or the unit's.
    unwritten(
        &says(&other, "evil", false, confirm),
        2,
        "is not the file that the box was started with",
    );
    unwritten(&says(&other, "evil", false, &["confirm"]), 2, "/etc/forebay/receivebox.toml is not");
    // No candidate, another one, and a link.
    unwritten(&says(&file, "evil", false, confirm), 1, "cannot take");
    fs::write(&candidate, "good").unwrap();
    fs::set_permissions(&candidate, fs::Permissions::from_mode(0o600)).unwrap();
    unwritten(&says(&file, "evil", false, confirm), 1, "is not the configuration in force");
    unwritten(&says(&file, "good", true, confirm), 0, "");
    fs::remove_file(&candidate).unwrap();
    std::os::unix::fs::symlink(&other, &candidate).unwrap();
    unwritten(&says(&file, "another's", false, confirm), 1, "cannot take");
    fs::remove_file(&candidate).unwrap();
    fs::write(&candidate, "good").unwrap();
    fs::set_permissions(&candidate, fs::Permissions::from_mode(0o600)).unwrap();
    let output = says(&file, "good", false, confirm);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "good");
    assert!(!candidate.exists());
}

#[test]
fn doctor_names_command_for_missing_key() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("box.toml"), CONFIG).unwrap();
    let key = || {
        let output = forebay(folder.path(), &["doctor", "--config", "box.toml", "--json"]);
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = document["checks"].as_array().unwrap();
        checks.iter().find(|check| check["name"] == "key of bundle b").unwrap().clone()
    };
    let absent = key();
    assert_eq!(absent["verdict"], "fail", "{absent}");
    assert!(
        absent["fix"].as_str().unwrap().starts_with("run `forebay keygen bundle.key` at one"),
        "{absent}"
    );
    fs::write(folder.path().join("bundle.key"), "").unwrap();
    assert!(!key()["fix"].as_str().unwrap().contains("keygen"), "{}", key());
    fs::remove_file(folder.path().join("bundle.key")).unwrap();
    forebay(folder.path(), &["keygen", "bundle.key"]);
    assert_eq!(key()["verdict"], "ok", "{}", key());
}

#[test]
fn doctor_prints_one_document_and_fails() {
    let folder = tempfile::tempdir().unwrap();
    let output = forebay(folder.path(), &["doctor", "no-such-device", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["fit"], false);
    let checks = document["checks"].as_array().unwrap();
    assert!(checks.iter().all(|check| check["name"].is_string() && check["found"].is_string()));
    assert!(checks.iter().any(|check| check["verdict"] == "fail" && check["fix"] != ""));
}
