//! `forebay init` on the machines of boxes: its file is used without changes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use forebay_skips::{Need, skip_without};
use forebay_testbed::namespace::Namespace;
use forebay_testbed::topology::Topology;
use serde_json::Value;

use crate::alone;
use crate::by_hand::ip;
use crate::routed::route;

/// The command in a namespace.
fn forebay(namespace: &Namespace, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
    namespace.host(command.args(arguments)).unwrap();
    command.output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs `init` with these options, first as a dry run that must write nothing. Then check-config and doctor check the
/// file without changes. Returns the file's text.
fn init(namespace: &Namespace, file: &Path, options: &str) -> String {
    let place = file.to_str().unwrap();
    let dry = format!("init {options} --json --dry-run --out {place}");
    let dry = forebay(namespace, &dry.split(' ').collect::<Vec<_>>());
    assert!(dry.status.success() && !file.exists(), "{}", told(&dry));
    let document: Value = serde_json::from_slice(&dry.stdout).unwrap();
    assert_eq!(document["written"], false, "{document}");
    for step in document["before"].as_array().unwrap() {
        namespace.within(|| shell(step["command"].as_str().unwrap())).unwrap();
    }
    let line = format!("init {options} --out {place}");
    let done = forebay(namespace, &line.split(' ').collect::<Vec<_>>());
    assert!(done.status.success(), "{}", told(&done));
    let text = fs::read_to_string(file).unwrap();
    assert_eq!(document["text"].as_str(), Some(&*text));
    for command in [&["check-config", place][..], &["doctor", "--config", place]] {
        let output = forebay(namespace, command);
        assert!(output.status.success(), "{command:?}: {}\n{text}", told(&output));
    }
    let again = forebay(namespace, &line.split(' ').collect::<Vec<_>>());
    assert_eq!(again.status.code(), Some(2), "{}", told(&again));
    assert!(told(&again).contains("exists already and is never overwritten"), "{again:?}");
    assert_eq!(fs::read_to_string(file).unwrap(), text);
    text
}

fn shell(line: &str) -> io::Result<()> {
    let output = Command::new("sh").args(["-ec", line]).output()?;
    assert!(output.status.success(), "{line}: {}", told(&output));
    Ok(())
}

/// A gateway with one device and one address of its own, behind a fabric that routes.
fn one_nic() -> [Namespace; 2] {
    let [gateway, fabric] = [Namespace::new().unwrap(), Namespace::new().unwrap()];
    let other = fabric.path();
    ip(
        &gateway,
        &format!(
            "link set dev lo up\nlink add eth0 mtu 1460 type veth peer name g0 netns {}\n\
         link set dev eth0 up\naddress add 10.1.1.2/32 dev eth0\nroute add 10.0.0.1 dev eth0\n\
         route add default via 10.0.0.1 dev eth0 onlink\n",
            other.display()
        ),
    );
    ip(&fabric, "link set dev g0 up\n");
    gateway.within(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap();
    [gateway, fabric]
}

fn files(folder: &Path) -> [PathBuf; 2] {
    ["sendbox.toml", "receivebox.toml"].map(|name| folder.join(name))
}

#[test]
fn init_fits_a_vpc() {
    if skip_without(Need::Root) || skip_without(Need::QueueSampling) {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let [sendbox, receivebox] = files(folder.path());
    let [gateway, _fabric] = one_nic();
    let text = init(&gateway, &sendbox, "sendbox --peer 203.0.113.9 --to 10.2.0.0/16");
    for line in ["forward = \"route\"", "own = false", "wan = \"eth0\"", "listen = \"10.1.1.2\""] {
        assert!(text.contains(&format!("\n{line}\n")), "{line} is missing in\n{text}");
    }
    assert!(text.contains("through eth0, MTU 1460."), "{text}");
    let options = "receivebox --peer 203.0.113.9 --from 10.2.0.0/16 --to 10.1.0.0/16";
    let key = sendbox.with_extension("key");
    let text = init(&gateway, &receivebox, &format!("{options} --key {}", key.display()));
    assert!(text.contains("\nkey_file = \"sendbox.key\"\n"), "{text}");
}

#[test]
fn init_fits_a_bridge() {
    if skip_without(Need::Root) || skip_without(Need::QueueSampling) {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let [sendbox, receivebox] = files(folder.path());
    let topology = Topology::build(1, None).unwrap();
    route(&topology);
    let here = &topology.pairs[0].left_box;
    let unseen = "init sendbox --peer 10.1.2.2 --to 10.1.2.0/24";
    let refused = forebay(here, &unseen.split(' ').collect::<Vec<_>>());
    assert_eq!(refused.status.code(), Some(2), "{}", told(&refused));
    assert!(told(&refused).contains("has not seen the next hop yet"), "{}", told(&refused));
    // Any packet has the bridge see the router.
    let greet = || {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
        for _ in 0..20 {
            socket.send_to(b"greeting", "10.1.2.1:9")?;
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Ok(())
    };
    here.within(greet).unwrap();
    let text = init(here, &sendbox, "sendbox --peer 10.1.2.2 --to 10.1.2.0/24");
    for line in ["forward = \"bridge\"", "lan = \"lan\"", "wan = \"wan\"", "listen = \"10.1.1.2\""]
    {
        assert!(text.contains(&format!("\n{line}\n")), "{line} is missing in\n{text}");
    }
    let text = init(here, &receivebox, "receivebox --peer 10.1.2.2 --from 10.1.2.0/24");
    for line in ["wan = \"wan\"", "to = [\"10.1.1.0/24\"]"] {
        assert!(text.contains(&format!("\n{line}\n")), "{line} is missing in\n{text}");
    }
}

#[test]
fn init_needs_no_network_for_a_trial() {
    if skip_without(Need::Root) {
        return;
    }
    let nowhere = Namespace::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("box.toml");
    let line = format!("init sendbox --peer 203.0.113.9 --to 10.2.0.0/16 --out {}", file.display());
    let line: Vec<&str> = line.split(' ').collect();
    let refused = forebay(&nowhere, &line);
    assert_eq!(refused.status.code(), Some(2), "{}", told(&refused));
    assert!(told(&refused).contains("no route to 203.0.113.9"), "{}", told(&refused));
    let dry = forebay(&nowhere, &[&line[..], &["--dry-run"]].concat());
    assert!(dry.status.success(), "{}", told(&dry));
    let text = String::from_utf8(dry.stdout).unwrap();
    assert!(text.contains("\n# wan = \"eth0\"\n") && text.contains("\n# listen = "), "{text}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is written");
    // An operator who fills in the open choices has a complete file.
    let taken = text.replace("# wan = ", "wan = ").replace("# listen = \"192", "listen = \"192");
    fs::write(&file, taken).unwrap();
    assert!(
        forebay(&nowhere, &["keygen", file.with_extension("key").to_str().unwrap()])
            .status
            .success()
    );
    let checked = forebay(&nowhere, &["check-config", file.to_str().unwrap()]);
    assert!(checked.status.success(), "{}", told(&checked));
}
