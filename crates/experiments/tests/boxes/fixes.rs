//! Fixes that are printed on a remote machine.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use forebay_host::daemon::keys;
use forebay_skips::{Need, skip_without};
use forebay_testbed::namespace::Namespace;

use crate::by_hand::ip;
use crate::forebay;

/// Configuration of a sendbox whose devices are no ports of a bridge.
const CONFIG: &str = r#"
[box]
role = "sendbox"
lan = "fabric"
wan = "eth0"
listen = "192.0.2.2"
control = "box.sock"

[[bundle]]
name = "b"
id = 1
peer = "198.51.100.2"
to = ["198.51.100.0/24"]
key_file = "bundle.key"
cc = "copa"
"#;
/// Fix that `forebay` must name.
const JOINS: &str = "ip link set dev eth0 master br0";

#[test]
fn no_fix_cuts_a_remote_machine_off() {
    if skip_without(Need::Root) {
        return;
    }
    let machine = Namespace::new().unwrap();
    ip(
        &machine,
        "link set dev lo up\nlink add eth0 type veth peer name fabric\nlink set dev eth0 up\n\
         link set dev fabric up\naddress add 192.0.2.2/24 dev eth0\n",
    );
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("box.toml"), CONFIG).unwrap();
    keys::generate(&folder.path().join("bundle.key")).unwrap();
    let command = |arguments: &[&str], ssh: Option<&str>| {
        let mut command = Command::new(forebay());
        command.current_dir(folder.path()).args(arguments).env_remove("SSH_CONNECTION");
        command.envs(ssh.map(|ssh| ("SSH_CONNECTION", ssh)));
        command
    };
    let run = |arguments: &[&str], ssh: Option<&str>| {
        let mut command = command(arguments, ssh);
        let Output { stdout, stderr, .. } = machine.within(move || command.output()).unwrap();
        String::from_utf8([stdout, stderr].concat()).unwrap()
    };
    let doctor = &["doctor", "--config", "box.toml"][..];
    let preview = &["apply", "--dry-run", "box.toml"][..];
    let ssh = Some("192.0.2.9 50000 192.0.2.2 22");
    for arguments in [doctor, preview] {
        let said = run(arguments, None);
        assert!(said.contains(JOINS), "{said}");
        let said = run(arguments, ssh);
        assert!(!said.contains("master") && said.contains("of this SSH connection"), "{said}");
        assert!(said.contains("box.forward = \"route\""), "{said}");
    }
    ip(&machine, "route add 198.51.100.0/24 via 192.0.2.1\n");
    for arguments in [doctor, preview] {
        let said = run(arguments, None);
        assert!(!said.contains("master") && said.contains("to the peer 198.51.100.2"), "{said}");
    }
    ip(&machine, "route add default via 192.0.2.1\n");
    let said = run(doctor, None);
    assert!(!said.contains("master") && said.contains("the default route"), "{said}");
    // The log of a box that waits for its bridge.
    let mut waiting = command(&["sendbox", "--config", "box.toml"], None);
    machine.host(&mut waiting).unwrap();
    let mut waiting = waiting.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(waiting.stderr.take().unwrap()).lines().map(Result::unwrap);
    let said = lines.find(|line| line.contains("the box waits"));
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    let said = said.expect("a line of the log");
    assert!(!said.contains("master") && said.contains("the default route"), "{said}");
}
