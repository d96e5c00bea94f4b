//! A sendbox that is told to stop sends what it has queued, and the kernel carries on.

use std::collections::BTreeSet;
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use forebay_host::daemon::control::{self, Answer, Request};
use forebay_host::daemon::keys;
use forebay_host::daemon::status::Status;
use forebay_host::testbed::namespace::Namespace;
use forebay_host::testbed::topology::{Site, Topology};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const BURST: u32 = 600;
const AFTERWARDS: u32 = 200;

#[test]
fn a_clean_stop_loses_no_packet() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let topology = Topology::build(1).unwrap();
    connect_the_sites(&topology.emulator);
    let sites = &topology.pairs[0];
    let folder = tempfile::tempdir().unwrap();
    let config = write_config(folder.path());
    let mut sendbox = start(&sites.left_box, &config);
    let status = await_status(&folder.path().join("box.sock"));
    assert_eq!(status.bundles[0].peer.state, "waiting", "there is no receivebox");

    let receiver = socket(&sites.right_hosts, Site::RightHosts);
    let sender = socket(&sites.left_hosts, Site::LeftHosts);
    let target = receiver.local_addr().unwrap();
    let reader = std::thread::spawn(move || receive_all(&receiver));
    let send = |number: u32| {
        let mut datagram = [0; 1200];
        datagram[..4].copy_from_slice(&number.to_be_bytes());
        sender.send_to(&datagram, target).unwrap();
    };
    (0..BURST).for_each(send);
    // At 10 Mbit/s the burst takes 0.6 s: most of it stands in the queue now.
    let queued = await_status(&folder.path().join("box.sock")).bundles[0].clone();
    let queued = queued.shaping.unwrap().queue.packets;
    assert!(queued > 0, "nothing is queued");
    kill(Pid::from_raw(sendbox.id() as i32), Signal::SIGTERM).unwrap();
    for number in BURST..BURST + AFTERWARDS {
        send(number);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(sendbox.wait().unwrap().success());
    assert!(!folder.path().join("box.sock").exists(), "the control socket goes too");
    let received = reader.join().unwrap();
    let missing: Vec<u32> = (0..BURST + AFTERWARDS).filter(|n| !received.contains(n)).collect();
    assert!(missing.is_empty(), "{} of {queued} queued: {missing:?}", missing.len());
}

/// A bridge in the place of the emulator.
fn connect_the_sites(emulator: &Namespace) {
    let script = "link add name br type bridge forward_delay 0\nlink set dev br up\n\
                  link set dev left0 master br\nlink set dev right0 master br\n";
    let work = || {
        let mut ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
        std::io::Write::write_all(&mut ip.stdin.take().unwrap(), script.as_bytes())?;
        assert!(ip.wait()?.success());
        Ok(())
    };
    emulator.within(work).unwrap();
}

fn write_config(folder: &Path) -> PathBuf {
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
max_rate = "10Mbit/s"
"#,
        Site::LeftBox.address(0),
        Site::RightBox.address(0),
        Site::RightHosts.host_prefix(0),
    );
    let file = folder.join("sendbox.toml");
    fs::write(&file, text).unwrap();
    file
}

fn start(namespace: &Namespace, config: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["sendbox", "--config"]).arg(config);
    namespace.host(&mut command).unwrap();
    command.spawn().unwrap()
}

fn await_status(socket: &Path) -> Status {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Ok(Answer::Status(status)) = control::ask(socket, Request::Status) {
            return *status;
        }
        assert!(Instant::now() < deadline, "no answer on {}", socket.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn socket(namespace: &Namespace, site: Site) -> UdpSocket {
    let socket = namespace.within(|| UdpSocket::bind((site.address(0), 7000))).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    // All datagrams at once: on a loaded machine the reader may have to wait for a core.
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::RcvBufForce, &(16 << 20))
        .unwrap();
    socket
}

/// The numbers of all datagrams, until nothing comes for 5 s or all have come.
fn receive_all(socket: &UdpSocket) -> BTreeSet<u32> {
    let mut numbers = BTreeSet::new();
    let mut datagram = [0; 2000];
    while numbers.len() < (BURST + AFTERWARDS) as usize && socket.recv(&mut datagram).is_ok() {
        numbers.insert(u32::from_be_bytes(datagram[..4].try_into().unwrap()));
    }
    numbers
}
