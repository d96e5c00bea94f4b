//! What a sendbox tells its operator before the first packet.

use std::fs::{self, File};

use forebay_host::testbed::topology::Topology;
use nix::sys::signal::Signal;

use crate::alone;
use crate::by_hand::{await_status, await_that, command, connect_the_sites, write_sendbox};
use crate::outputs::{end, signal};

#[test]
fn a_sendbox_warns_once_a_start_that_a_bundle_cannot_share_its_path() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let _alone = alone();
    let topology = Topology::build(1, None).unwrap();
    connect_the_sites(&topology.emulator);
    let folder = tempfile::tempdir().unwrap();
    let config = write_sendbox(folder.path(), "8Mbit/s");
    let log = folder.path().join("log");
    let mut sendbox = command(&topology.pairs[0].left_box, "sendbox", &config);
    let sendbox = sendbox.stderr(File::create(&log).unwrap()).spawn().unwrap();
    await_status(&folder.path().join("box.sock"));
    let said = || fs::read_to_string(&log).unwrap();
    signal(&sendbox, Signal::SIGHUP);
    await_that("it has read its keys again", || said().contains("SIGHUP"));
    end(sendbox);
    let said = said();
    let warnings: Vec<&str> = said.lines().filter(|line| line.contains("share its path")).collect();
    let [warning] = warnings[..] else { panic!("{said}") };
    assert!(
        warning.contains("WARN") && warning.contains("0.8 Mbit/s instead of 88.6"),
        "{warning}"
    );
}
