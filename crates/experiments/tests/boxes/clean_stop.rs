//! A sendbox that stops on request, or cannot send: no captured packet is lost, and the kernel
//! carries on.

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use forebay_host::daemon::status::Status;
use forebay_host::port::{Direction, PacketPort, Port};
use forebay_skips::{Need, skip_without};
use forebay_testbed::namespace::Namespace;
use forebay_testbed::topology::{Site, Topology};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::by_hand::{await_status, await_that, connect_the_sites, ip, start, write_sendbox};
use crate::turns::{Turn, alone};

/// Port of the test traffic.
const PORT: u16 = 7000;
/// Datagrams in the queue when the sendbox is stopped: 0.6 s at 10 Mbit/s, 3 s at 2 Mbit/s.
const BURST: u32 = 600;
/// Most datagrams by which the kernel may overtake at the hand-over: the packets of one receive
/// poll (NAPI).
const HAND_OVER: usize = 64;

#[test]
fn clean_stop_drains_queue_in_order_at_rate() {
    let Some(mut scene) = Scene::set_up("10Mbit/s") else { return };
    let arrivals = scene.receive();
    scene.send_burst(BURST);
    let queued = scene.status().bundles[0].shaping.clone().unwrap().queue.packets;
    assert!(queued > 0, "nothing is queued");
    scene.stop();
    let count = scene.send_beyond_the_end(BURST, Duration::from_millis(5));
    assert_complete(&arrivals.join().unwrap(), count);
}

#[test]
fn clean_stop_under_load_loses_no_packet() {
    let Some(mut scene) = Scene::set_up("2Mbit/s") else { return };
    let arrivals = scene.receive();
    scene.send_burst(BURST);
    scene.stop();
    // A second stop request changes nothing.
    scene.stop();
    // 2.4 Mbit/s: the queue never empties at its rate.
    let count = scene.send_beyond_the_end(BURST, Duration::from_micros(4165));
    assert_complete(&arrivals.join().unwrap(), count);
}

#[test]
fn queue_waits_and_kernel_forwards_while_wan_down() {
    let Some(scene) = Scene::set_up("2Mbit/s") else { return };
    // The tap is at the end of the wire: the bridges need a moment after the device is up again.
    let tap = || PacketPort::open("left0", Direction::Receive).map_err(std::io::Error::other);
    let mut tap = scene.topology.emulator.within(tap).unwrap();
    scene.send_burst(BURST);
    scene.ip("link set dev wan down");
    await_that("traffic is handed back", || scene.counter("handed_back") == 1);
    let shaping = scene.status().bundles[0].shaping.clone().unwrap();
    assert_eq!(shaping.counters.drops_queue, 0);
    let decision = &shaping.decision;
    assert_eq!((decision.state.as_str(), decision.rate_bps), ("handed_back", None));
    assert!(scene.status().table().contains("wan is down"), "{}", scene.status().table());
    let captured = scene.counter("captured");
    scene.send(u32::MAX);
    assert_eq!(scene.counter("captured"), captured, "the kernel forwards");

    scene.ip("link set dev wan up");
    let mut arrived = Vec::new();
    await_that("the queue leaves", || {
        tap.receive(4096, &mut |frame, _| arrived.extend(number_in(frame))).unwrap();
        arrived.len() as u64 >= captured
    });
    assert!(arrived.is_sorted_by(|a, b| a < b), "in order, each once");
    await_that("traffic is taken again", || {
        scene.send(u32::MAX);
        scene.counter("captured") > captured
    });
    assert_eq!(scene.counter("handed_back"), 1);
    let shaping = scene.status().bundles[0].shaping.clone().unwrap();
    assert_ne!(shaping.decision.state, "handed_back");
}

/// Asserts that all numbers below `count` arrived, each once, and in order but for the hand-over.
fn assert_complete(arrived: &[u32], count: u32) {
    let mut sorted = arrived.to_vec();
    sorted.sort_unstable();
    let missing: Vec<u32> = (0..count).filter(|n| sorted.binary_search(n).is_err()).collect();
    assert!(missing.is_empty(), "{} of {count}: {missing:?}", missing.len());
    assert_eq!(sorted.len(), count as usize, "packets came twice");
    let mut newest = 0;
    let mut overtaken = arrived.to_vec();
    overtaken.retain(|number| {
        newest = newest.max(*number);
        *number < newest
    });
    println!("{} of {count} overtaken", overtaken.len());
    assert!(overtaken.len() <= HAND_OVER, "{}: {overtaken:?}", overtaken.len());
}

/// A sendbox without a receivebox between two hosts, which shapes to a fixed rate.
struct Scene {
    topology: Topology,
    folder: tempfile::TempDir,
    sendbox: Child,
    sender: UdpSocket,
    receiver: UdpSocket,
    target: SocketAddr,
    _turn: Turn,
}

impl Scene {
    /// `None` without the privilege to do so.
    fn set_up(max_rate: &str) -> Option<Self> {
        if skip_without(Need::Root) {
            return None;
        }
        let turn = alone();
        let topology = Topology::build(1, None).unwrap();
        connect_the_sites(&topology.emulator);
        let sites = &topology.pairs[0];
        let folder = tempfile::tempdir().unwrap();
        let config = write_sendbox(folder.path(), max_rate);
        let sendbox = start(&sites.left_box, "sendbox", &config);
        let receiver = socket(&sites.right_hosts, Site::RightHosts);
        let scene = Self {
            sender: socket(&sites.left_hosts, Site::LeftHosts),
            target: receiver.local_addr().unwrap(),
            receiver,
            topology,
            folder,
            sendbox,
            _turn: turn,
        };
        assert_eq!(scene.status().bundles[0].peer.state, "waiting", "there is no receivebox");
        Some(scene)
    }

    fn ip(&self, script: &str) {
        ip(&self.topology.pairs[0].left_box, script);
    }

    fn send(&self, number: u32) {
        let mut datagram = [0; 1200];
        datagram[..4].copy_from_slice(&number.to_be_bytes());
        self.sender.send_to(&datagram, self.target).unwrap();
    }

    /// Sends the numbers below `count`, no faster than the devices on the way take them.
    fn send_burst(&self, count: u32) {
        for number in 0..count {
            self.send(number);
            if number % 16 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Sends the numbers from `first` on, one every `gap`. Stops when the sendbox has ended cleanly
    /// and the kernel has carried some more. Returns the number after the last one.
    fn send_beyond_the_end(&mut self, first: u32, gap: Duration) -> u32 {
        let started = Instant::now();
        let mut more = 100;
        for number in first.. {
            let due = started + gap * (number - first);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            self.send(number);
            assert!(started.elapsed() < Duration::from_secs(30), "it does not end");
            match self.sendbox.try_wait().unwrap() {
                Some(status) => assert!(status.success()),
                None => continue,
            }
            more -= 1;
            if more == 0 {
                assert!(!self.control().exists(), "the control socket goes too");
                return number + 1;
            }
        }
        unreachable!("it ends or does not")
    }

    /// Collects the numbers that arrive, until none has arrived for 3 s.
    fn receive(&self) -> std::thread::JoinHandle<Vec<u32>> {
        let receiver = self.receiver.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut numbers = Vec::new();
            let mut datagram = [0; 2000];
            while receiver.recv(&mut datagram).is_ok() {
                numbers.push(u32::from_be_bytes(datagram[..4].try_into().unwrap()));
            }
            numbers
        })
    }

    fn stop(&self) {
        kill(Pid::from_raw(self.sendbox.id() as i32), Signal::SIGTERM).unwrap();
    }

    fn control(&self) -> PathBuf {
        self.folder.path().join("box.sock")
    }

    fn status(&self) -> Status {
        await_status(&self.control())
    }

    /// A counter of the LAN port.
    fn counter(&self, name: &str) -> u64 {
        let status = self.status();
        let mut counters = status.ports[0].counters.iter();
        counters.find(|(key, _)| key == name).unwrap_or_else(|| panic!("no {name}")).1
    }
}

fn socket(namespace: &Namespace, site: Site) -> UdpSocket {
    let socket = namespace.within(|| UdpSocket::bind((site.address(0), PORT))).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    // The buffer holds all datagrams: on a loaded machine the reader may have to wait for a core.
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::RcvBufForce, &(16 << 20))
        .unwrap();
    socket
}

/// The number in the payload of a test's UDP frame.
fn number_in(frame: &[u8]) -> Option<u32> {
    let is_ours = frame.get(36..38)? == PORT.to_be_bytes();
    let number = frame.get(42..46).filter(|_| is_ours)?;
    Some(u32::from_be_bytes(number.try_into().unwrap()))
}
