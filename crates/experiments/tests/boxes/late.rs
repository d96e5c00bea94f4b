//! Boxes whose devices appear late, belong to another box, or have another name for a while.

use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use forebay_skips::{Need, skip_without};
use forebay_testbed::topology::Site;
use nix::sys::signal::Signal;

use crate::by_hand::{await_status, await_that, command, end, signal, start};
use crate::conditions::{Flow, Scene, run};
use crate::two_bundles::write_configs;

/// The messages that a box sends to systemd.
struct Systemd {
    socket: UnixDatagram,
    path: PathBuf,
    heard: Vec<String>,
}

impl Systemd {
    fn at(folder: &Path) -> Self {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, path, heard: Vec::new() }
    }

    /// Starts a box that must notify its watchdog every two seconds.
    fn start(&self, mut command: Command, log: File) -> Child {
        command.env("NOTIFY_SOCKET", &self.path).env("WATCHDOG_USEC", "2000000");
        command.stderr(log).spawn().unwrap()
    }

    /// Whether a message has this line.
    fn has_sent(&mut self, line: &str) -> bool {
        let mut buffer = [0; 4096];
        while let Ok(len) = self.socket.recv(&mut buffer) {
            self.heard.push(String::from_utf8_lossy(&buffer[..len]).into_owned());
        }
        self.heard.iter().any(|heard| heard.lines().any(|it| it.starts_with(line)))
    }

    fn await_message(&mut self, line: &str) {
        await_that(&format!("systemd hears {line:?}"), || self.has_sent(line));
    }
}

#[test]
fn late_devices_and_offloads_are_waited_for() {
    let Some(mut scene) = Scene::set_up() else { return };
    let mut systemd = Systemd::at(scene.folder.path());
    scene.run(&["ethtool -K wan gro on"]);
    scene.ip_in_box(&["link del dev lan"]);
    let command = scene.forebay(&["sendbox", "--config"]);
    scene.boxes.push(systemd.start(command, scene.log_file()));
    systemd.await_message("READY=1");
    systemd.await_message("STATUS=waits: there is no device lan in this network namespace");
    assert_eq!(scene.status().failed_conditions[0].condition, "device");
    scene.await_logged("FB0405");
    // It is no box that hangs.
    systemd.heard.clear();
    systemd.await_message("WATCHDOG=1");
    scene.make_lan_again("");
    systemd.await_message("STATUS=waits: wan has on: gro");
    assert!(scene.boxes[0].try_wait().unwrap().is_none(), "{}", scene.log());
    systemd.heard.clear();
    scene.run(&["ethtool -K wan gro off"]);
    systemd.await_message("READY=1");
    assert!(systemd.heard.iter().any(|heard| heard.ends_with("STATUS=")), "{:?}", systemd.heard);
    scene.await_logged("FB0406");
    let flow = Flow::start(scene.sites());
    await_that("packets are taken", || scene.takes());
    flow.finish();
}

#[test]
fn a_receivebox_waits_for_device_and_address() {
    let Some(mut scene) = Scene::set_up() else { return };
    let mut systemd = Systemd::at(scene.folder.path());
    let [receivebox, _] = write_configs(scene.folder.path());
    let address = Site::RightBox.address(0).to_string();
    let text = fs::read_to_string(&receivebox).unwrap();
    assert!(text.contains(&address), "{text}");
    fs::write(&receivebox, text.replace(&address, "10.9.9.9")).unwrap();
    scene.socket = scene.folder.path().join("receivebox.sock");
    let right_box = &scene.sites().right_box;
    run(right_box, &["ip link del dev wan"]);
    let command = command(right_box, "receivebox", &receivebox);
    scene.boxes.push(systemd.start(command, scene.log_file()));
    systemd.await_message("STATUS=waits: there is no device wan");
    assert!(systemd.has_sent("READY=1"));
    scene.make_wan(&scene.sites().right_box, "right0", "");
    systemd.await_message("STATUS=waits: no device that is up has the address 10.9.9.9");
    systemd.heard.clear();
    run(&scene.sites().right_box, &["ip address add 10.9.9.9/32 dev br0"]);
    systemd.await_message("READY=1");
    await_that("it runs", || {
        scene.status().failed_conditions.is_empty() && !scene.status().ports.is_empty()
    });
}

#[test]
fn a_waiting_box_ends_at_sigterm() {
    let Some(mut scene) = Scene::set_up() else { return };
    scene.ip_in_box(&["link del dev lan"]);
    scene.start();
    scene.await_logged("the box waits: there is no device lan");
    signal(&scene.boxes[0], Signal::SIGTERM);
    assert!(scene.boxes[0].wait().unwrap().success(), "{}", scene.log());
    assert!(!scene.socket.exists());
}

/// The file of a second sendbox: on the same WAN as the scene's, and with nothing else in common.
fn second_file(scene: &Scene, name: &str, lan: &str, datapath: &str) -> PathBuf {
    let text = fs::read_to_string(&scene.config).unwrap();
    let kernel = if datapath == "kernel" { "datapath = \"kernel\"" } else { "" };
    let listen = Site::LeftBox.address(0).to_string();
    let text = text
        .replace("lan = \"lan\"", &format!("lan = \"{lan}\"\n{kernel}"))
        .replace("box.sock", &format!("{name}.sock"))
        .replace(
            &format!("listen = \"{listen}\""),
            &format!("listen = \"{listen}:{}\"", lan.len() + 7100),
        );
    let lines = text.lines().filter(|line| kernel.is_empty() || !line.starts_with("qdisc"));
    let file = scene.folder.path().join(format!("{name}.toml"));
    fs::write(&file, lines.collect::<Vec<_>>().join("\n")).unwrap();
    file
}

#[test]
fn a_second_sendbox_on_a_wan_is_refused() {
    if skip_without(Need::QueueSampling) {
        return;
    }
    for first in ["user", "kernel"] {
        for second in ["user", "kernel"] {
            let Some(mut scene) = Scene::set_up() else { return };
            let (of_first, of_second) = (
                second_file(&scene, "first", "lan", first),
                second_file(&scene, "second", "side", second),
            );
            scene.ip_in_box(&[
                "link add side type veth peer name far",
                "link set dev side master br0",
                "link set dev side up",
                "link set dev far up",
            ]);
            scene.run(&["ethtool -K side tx off tso off gso off gro off txvlan off rxvlan off"]);
            let flow = Flow::start(scene.sites());
            let (config, socket) = (of_first, scene.folder.path().join("first.sock"));
            (scene.config, scene.socket) = (config, socket);
            scene.start();
            let name = if first == "user" { "captured" } else { "classified" };
            let is_carrying = || {
                let before = scene.counter(name);
                thread::sleep(Duration::from_millis(100));
                scene.counter(name) > before && scene.state() != "handed_back"
            };
            await_that("packets are taken", is_carrying);
            let mut command = command(&scene.sites().left_box, "sendbox", &of_second);
            let output = command.stdout(Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{first}, {second}: {said}");
            let pid = format!("(pid {})", scene.boxes[0].id());
            assert!(said.contains("wan is in use by another sendbox"), "{first}, {second}: {said}");
            assert!(said.contains(&pid), "{first}, {second}: {said}");
            thread::sleep(Duration::from_millis(1500));
            assert!(is_carrying(), "{first}, {second}: {}", scene.log());
            assert_eq!(scene.status().failed_conditions, [], "{first}, {second}");
            flow.finish();
            end(&mut scene.boxes);
        }
    }
}

#[test]
fn sendboxes_with_same_name_run_in_two_namespaces() {
    let Some(mut scene) = Scene::set_up() else { return };
    scene.start();
    let text = fs::read_to_string(&scene.config).unwrap();
    let [left, right] = [Site::LeftBox, Site::RightBox].map(|site| site.address(0).to_string());
    let text = text.replace(&left, "X").replace(&right, &left).replace('X', &right);
    let (file, socket) = ("right.toml", "right.sock");
    let file = scene.folder.path().join(file);
    fs::write(&file, text.replace("box.sock", socket)).unwrap();
    let other = start(&scene.sites().right_box, "sendbox", &file);
    scene.boxes.push(other);
    assert_eq!(scene.status().failed_conditions, []);
    assert_eq!(await_status(&scene.folder.path().join(socket)).failed_conditions, []);
    end(&mut scene.boxes);
}

#[test]
fn a_renamed_port_is_taken_again() {
    let Some(mut scene) = Scene::set_up() else { return };
    scene.start();
    let flow = Flow::start(scene.sites());
    for device in ["lan", "wan", "lan"] {
        await_that("packets are taken", || scene.takes());
        scene.ip_in_box(&[&format!("link set dev {device} name away")]);
        await_that("they are handed back", || scene.state() == "handed_back");
        scene.ip_in_box(&[&format!("link set dev away name {device}")]);
        await_that("they are taken again", || scene.takes());
        assert_eq!(scene.status().failed_conditions, []);
    }
    assert!(!scene.log().contains("made again"), "{}", scene.log());
    flow.finish();
}
