//! Boxes whose log or trace cannot be written.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_host::daemon::status::Status;
use forebay_testbed::topology::Site;
use nix::mount::{MsFlags, mount, umount};
use nix::sys::signal::Signal;

use crate::by_hand::{await_status, await_that, bridged, command, start, write_sendbox};
use crate::outputs::{Unread, end, signal};
use crate::turns::together;
use crate::two_bundles::{RATES, await_both, flow, give_ipv6, write_configs};

/// Port of the test traffic.
const PORT: u16 = 7000;

#[test]
fn unwritable_log_neither_ends_nor_delays_box() {
    let _turn = together();
    let Some(topology) = bridged() else { return };
    let sites = &topology.pairs[0];
    give_ipv6(sites);
    let folder = tempfile::tempdir().unwrap();
    let configs = write_configs(folder.path());
    let roles = ["receivebox", "sendbox"];
    let sockets = roles.map(|role| folder.path().join(format!("{role}.sock")));
    for unread in Unread::ALL {
        let namespaces = [&sites.right_box, &sites.left_box];
        let (boxes, readers): (Vec<_>, Vec<_>) = std::iter::zip(namespaces, roles)
            .zip(&configs)
            .map(|((namespace, role), config)| {
                let (stderr, reader) = unread.open();
                let mut command = command(namespace, role, config);
                // Hundreds of lines at the start, and some for each client of the control socket.
                command.env("FOREBAY_LOG", "trace").stderr(stderr);
                (command.spawn().unwrap(), reader)
            })
            .unzip();
        let is_alive = |both: &[Status; 2]| {
            both.iter().flat_map(|one| &one.bundles).all(|bundle| bundle.peer.state == "alive")
        };
        await_both(&sockets, is_alive);
        for socket in &sockets {
            await_that("lines are lost", || {
                // Each is worth a line.
                (0..100).for_each(|_| drop(UnixStream::connect(socket).unwrap()));
                await_status(socket).log_lines_lost > 0
            });
        }
        let began = Instant::now();
        let target = SocketAddr::new(IpAddr::V4(Site::RightHosts.address(0)), PORT);
        let (sender, receiver) = flow(sites, target);
        for one in &boxes {
            signal(one, Signal::SIGHUP);
        }
        assert_eq!(sender.join().unwrap(), receiver.join().unwrap());
        let elapsed = began.elapsed();
        let both = await_both(&sockets, is_alive);
        let bundle = &both[1].bundles[0];
        let due = RATES[0] as f64 / 8.0 * elapsed.as_secs_f64();
        let carried = bundle.bytes as f64;
        assert!(carried <= due + 20_000.0, "{unread:?}: {bundle:?} in {elapsed:?}");
        assert!(carried >= due / 4.0, "{unread:?}: {bundle:?} in {elapsed:?}");
        for (one, reader) in boxes.iter().zip(readers) {
            let Some(reader) = reader else { continue };
            read_until(reader, |text| {
                signal(one, Signal::SIGHUP);
                text.contains("lines since the start: they could not be written")
            });
        }
        boxes.into_iter().rev().for_each(end);
    }
}

/// Reads the pipe until `is_enough` accepts the text.
fn read_until(mut reader: File, mut is_enough: impl FnMut(&str) -> bool) -> String {
    let (mut text, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(20));
    loop {
        match reader.read_to_end(&mut text) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => drop(other.unwrap()),
        }
        let text = String::from_utf8_lossy(&text);
        let text = text.trim_start_matches('.');
        if is_enough(text) {
            return text.into();
        }
        assert!(Instant::now() < deadline, "{text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn trace_rows_on_full_disk_are_counted() {
    let _turn = together();
    let Some(topology) = bridged() else { return };
    let sites = &topology.pairs[0];
    let folder = tempfile::tempdir().unwrap();
    let config = write_sendbox(folder.path(), "8Mbit/s");
    let disk = Disk::mount(folder.path());
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text + "[trace]\nfile = \"disk/trace\"\n").unwrap();
    let sendbox = start(&sites.left_box, "sendbox", &config);
    let socket = folder.path().join("box.sock");
    let lost = || await_status(&socket).trace_rows_lost;
    assert_eq!(lost(), 0);
    let trace = disk.0.join("trace");
    await_that("the trace has rows", || fs::metadata(&trace).unwrap().len() > 0);
    disk.fill();
    await_that("rows are lost", || lost() > 100);
    let target = SocketAddr::new(IpAddr::V4(Site::RightHosts.address(0)), PORT);
    let (sender, receiver) = flow(sites, target);
    assert_eq!(sender.join().unwrap(), receiver.join().unwrap());
    assert!(await_status(&socket).bundles[0].packets > 100);
    fs::remove_file(disk.0.join("filler")).unwrap();
    let before = fs::metadata(&trace).unwrap().len();
    await_that("the trace goes on", || fs::metadata(&trace).unwrap().len() > before);
    end(sendbox);
    for line in fs::read_to_string(&trace).unwrap().lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

/// A small file system of its own, removed when dropped.
struct Disk(std::path::PathBuf);

impl Disk {
    fn mount(folder: &Path) -> Self {
        let path = folder.join("disk");
        fs::create_dir(&path).unwrap();
        let kind = Some("tmpfs");
        mount(kind, &path, kind, MsFlags::empty(), Some("size=4m")).unwrap();
        Self(path)
    }

    fn fill(&self) {
        let mut filler = File::create(self.0.join("filler")).unwrap();
        while filler.write(&[0; 4096]).is_ok() {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = umount(&self.0);
    }
}
