//! Two sites joined by a bridge, and boxes that a test starts itself: without link and lock of the
//! testbed.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use forebay_host::daemon::keys;
use forebay_host::daemon::status::Status;
use forebay_host::service::control::{self, Answer, Request};
use forebay_skips::{Need, skip_without};
use forebay_testbed::namespace::Namespace;
use forebay_testbed::topology::{Site, Topology};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Sites with a bridge between them; `None` without the privilege to make them.
pub fn bridged() -> Option<Topology> {
    if skip_without(Need::Root) {
        return None;
    }
    let topology = Topology::build(1, None).unwrap();
    connect_the_sites(&topology.emulator);
    Some(topology)
}

/// A bridge in the place of the emulator.
pub fn connect_the_sites(emulator: &Namespace) {
    ip(
        emulator,
        "link add name br type bridge forward_delay 0\nlink set dev br up\n\
         link set dev left0 master br\nlink set dev right0 master br\n",
    );
}

/// Runs these lines of `ip -batch`.
pub fn ip(namespace: &Namespace, lines: &str) {
    feed(namespace, &["ip", "-batch", "-"], lines);
}

/// Runs a program that reads these lines.
pub fn feed(namespace: &Namespace, program: &[&str], lines: &str) {
    let work = || {
        let mut command = Command::new(program[0]);
        let mut child = command.args(&program[1..]).stdin(Stdio::piped()).spawn()?;
        child.stdin.take().unwrap().write_all(lines.as_bytes())?;
        assert!(child.wait()?.success(), "{lines}");
        Ok(())
    };
    namespace.within(work).unwrap();
}

/// Switches these offloads of a device on, in the words of `ethtool -K`.
pub fn switch_on(namespace: &Namespace, device: &str, offloads: &[&str]) {
    switch(namespace, device, offloads, "on");
}

/// Switches these offloads of a device `"on"` or `"off"`.
pub fn switch(namespace: &Namespace, device: &str, offloads: &[&str], to: &str) {
    let work = || {
        let mut ethtool = Command::new("ethtool");
        ethtool.args(["-K", device]).args(offloads.iter().flat_map(|offload| [*offload, to]));
        assert!(ethtool.status()?.success(), "{device}: {offloads:?}");
        Ok(())
    };
    namespace.within(work).unwrap();
}

/// The file of a sendbox without a receivebox, which shapes to a fixed rate.
pub fn write_sendbox(folder: &Path, max_rate: &str) -> PathBuf {
    keys::generate(&folder.join("bundle.key")).unwrap();
    let text = format!(
        r#"
[box]
role = "sendbox"
lan = "lan"
wan = "wan"
listen = "{}"
control = "box.sock"

[[bundle]]
name = "b"
id = 1
peer = "{}"
to = ["{}"]
key_file = "bundle.key"
cc = "copa"
qdisc = {{ kind = "sfq", limit = "1200p" }}
max_rate = "{max_rate}"
"#,
        Site::LeftBox.address(0),
        Site::RightBox.address(0),
        Site::RightHosts.host_prefix(0),
    );
    let file = folder.join("sendbox.toml");
    fs::write(&file, text).unwrap();
    file
}

/// Starts a box.
pub fn start(namespace: &Namespace, role: &str, config: &Path) -> Child {
    command(namespace, role, config).spawn().unwrap()
}

/// The command that starts a box.
pub fn command(namespace: &Namespace, role: &str, config: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
    command.args([role, "--config"]).arg(config);
    namespace.host(&mut command).unwrap();
    command
}

/// Ends boxes, however far they are.
pub fn end(boxes: &mut [Child]) {
    for one in boxes {
        let _ = one.kill();
        let _ = one.wait();
    }
}

/// Sends the box a signal.
pub fn signal(process: &Child, signal: Signal) {
    kill(Pid::from_raw(process.id() as i32), signal).unwrap();
}

/// The status of a box, as soon as the box answers.
pub fn await_status(socket: &Path) -> Status {
    let mut answer = None;
    await_that("a box answers", || {
        if let Ok(Answer::Status(status)) = control::ask(socket, Request::Status) {
            answer = Some(*status);
        }
        answer.is_some()
    });
    answer.unwrap()
}

/// Waits until it is so.
pub fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited 30 s until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
