//! Cost of a sendbox that stays in the kernel of a routing machine, without a rate limit. Result: packets and
//! bits a second, compared with plain routing.
//!
//! ```text
//!  hosts              router                    far side
//!  eth0 ───────────── lan  routes, sendbox  wan ── eth0, receivebox
//! ```
//! All offloads are on. The receivebox runs in both arms, which take turns. TCP fills super-packets.
//! Datagrams go to an address that no machine has. They end at the far side's device, and the measurement
//! reads its counter.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay_host::daemon::keys;
use forebay_host::daemon::status::Status;
use forebay_host::offload::{self, Offload};
use forebay_host::service::control::{self, Answer, Request};
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};
use serde::Serialize;

use crate::TestbedError;
use crate::lock;
use crate::namespace::Namespace;
use crate::process::{self, ProcessorTime};
use crate::program::Program;
use crate::run::Starter;
use crate::topology::{ip, plain, set, step};

/// Flows at once in each block.
pub const FLOWS: [usize; 2] = [1, 100];
/// Payload of a datagram: 106 bytes on the wire, without FCS.
const DATAGRAM_BYTES: usize = 64;
/// Bytes handed to a TCP socket in one call.
const CHUNK: usize = 256 << 10;
/// Time until the first bytes of all flows have arrived.
const LEAD: Duration = Duration::from_millis(300);
/// Longest time until the boxes hear each other.
const PEER_TIMEOUT: Duration = Duration::from_secs(30);
/// Offloads of a usual network card. They are on for every device.
const OFFLOADS: [Offload; 4] = [Offload::TxChecksum, Offload::Gso, Offload::Tso, Offload::Gro];
/// Address of the far side.
const FAR: Ipv4Addr = Ipv4Addr::new(10, 30, 2, 1);
/// Address in the far side's network that no machine has.
const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 30, 2, 9);
/// Port of the receivers on the far side.
const PORT: u16 = 7000;

/// Forwards the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RoutingArm {
    /// The kernel's routing alone.
    Plain,
    /// A sendbox that routes.
    Sendbox,
}

/// Kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// As many bytes as come through.
    Tcp,
    /// As many small datagrams as come through.
    Datagrams,
}

/// A block of full load.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RoutingLoad {
    /// Traffic of the block.
    pub kind: Kind,
    /// Number of flows.
    pub flows: usize,
    /// Arrived datagrams or bits of payload a second.
    pub rate: f64,
    /// Processors in use by the whole machine, hosts and far side included.
    pub cores: f64,
}

/// One turn of an arm.
#[derive(Clone, Debug, Serialize)]
pub struct RoutingTurn {
    /// Counted from 0.
    pub round: u32,
    /// Arm of this turn.
    pub arm: RoutingArm,
    /// TCP and datagrams, each with the numbers of flows in [`FLOWS`].
    pub loads: Vec<RoutingLoad>,
    /// Packets of the bundle that the sendbox counted; 0 for plain routing.
    pub packets: u64,
}

/// Runs both arms in turn; calls `told` after each turn. Namespaces and programs end with the calling thread.
///
/// # Errors
///
/// No root, no tool `ip`, a program that does not start.
pub fn measure(
    binary: &Path,
    dir: &Path,
    rounds: u32,
    duration: Duration,
    told: &mut dyn FnMut(&RoutingTurn),
) -> Result<Vec<RoutingTurn>, TestbedError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(TestbedError::NotRoot);
    }
    let _lock = lock::take(&mut |_| {})?;
    let scene = Scene::build(binary, dir)?;
    let mut turns = Vec::new();
    for round in 0..rounds {
        let mut arms = [RoutingArm::Plain, RoutingArm::Sendbox];
        if round % 2 == 1 {
            arms.reverse();
        }
        for arm in arms {
            let turn = scene.turn(round, arm, duration)?;
            told(&turn);
            turns.push(turn);
        }
    }
    scene.stop()?;
    Ok(turns)
}

struct Scene<'a> {
    start: Starter<'a>,
    hosts: Namespace,
    router: Namespace,
    far: Namespace,
    receivebox: Program,
}

impl<'a> Scene<'a> {
    fn build(binary: &'a Path, dir: &'a Path) -> Result<Self, TestbedError> {
        let (hosts, router, far) =
            (plain("hosts", &[])?, plain("router", &[])?, plain("far", &[])?);
        let forwards = router.within(|| set("net/ipv4/ip_forward", "1"));
        forwards.map_err(step("switch forwarding on", "router"))?;
        let paths = [&hosts, &far].map(|namespace| namespace.path().display().to_string());
        let (mac, far_mac) = ("02:00:00:00:00:01", "02:00:00:00:00:02");
        let lines = format!(
            "link add lan type veth peer name eth0 netns {}\n\
             link add wan address {mac} type veth peer name eth0 address {far_mac} netns {}\n\
             address add 10.30.1.254/24 dev lan\n\
             address add 10.30.2.254/24 dev wan\n\
             link set dev lan up\n\
             link set dev wan up\n\
             neighbour add {NOBODY} lladdr {far_mac} dev wan nud permanent\n",
            paths[0], paths[1]
        );
        ip("router", &router, &lines)?;
        let ends = [("hosts", &hosts, "10.30.1.1", 1), ("far", &far, "10.30.2.1", 2)];
        for (place, namespace, address, network) in ends {
            let lines = format!(
                "link set dev eth0 up\naddress add {address}/24 dev eth0\n\
                 route add default via 10.30.{network}.254\n"
            );
            ip(place, namespace, &lines)?;
        }
        let devices = [
            ("hosts", &hosts, "eth0"),
            ("router", &router, "lan"),
            ("router", &router, "wan"),
            ("far", &far, "eth0"),
        ];
        for (place, namespace, device) in devices {
            let on = || Ok(OFFLOADS.iter().try_for_each(|it| offload::enable(device, *it)));
            let on = namespace.within(on).map_err(step("switch offloads on", place))?;
            on.map_err(|source| TestbedError::Offload { place, source })?;
        }
        // A receivebox reads VLAN tags in the packets themselves.
        let off = far.within(|| Ok(offload::disable("eth0", Offload::RxVlan)));
        let off = off.map_err(step("switch an offload off", "far"))?;
        off.map_err(|source| TestbedError::Offload { place: "far", source })?;
        let file = |path: PathBuf| move |source: io::Error| TestbedError::File { path, source };
        let key = dir.join("bundle.key");
        keys::generate(&key)
            .map_err(|error| file(key.clone())(io::Error::other(error.to_string())))?;
        let config = |role: &str, own: &str, [listen, peer]: [&str; 2], shaping: &str| {
            let path = dir.join(format!("{role}.toml"));
            let text = format!(
                "[box]\nrole = \"{role}\"\n{own}listen = \"{listen}\"\ncontrol = \"{role}.sock\"\n\n\
                 [[bundle]]\nname = \"b\"\nid = 1\npeer = \"{peer}\"\nfrom = [\"10.30.1.0/24\"]\n\
                 to = [\"10.30.2.0/28\"]\nkey_file = \"bundle.key\"\n{shaping}"
            );
            fs::write(&path, text).map_err(file(path.clone()))?;
            Ok::<_, TestbedError>(path)
        };
        let (near_box, far_box) = ("10.30.2.254", "10.30.2.1");
        let own = "wan = \"wan\"\nforward = \"route\"\ndatapath = \"kernel\"\n";
        config("sendbox", own, [near_box, far_box], "cc = \"const\"\n")?;
        let of_far = config("receivebox", "wan = \"eth0\"\n", [far_box, near_box], "")?;
        let start = Starter { binary, dir };
        let arguments = ["receivebox".into(), "--config".into(), of_far.into_os_string()];
        let receivebox = start.program("receivebox", &far, &arguments)?;
        Ok(Self { start, hosts, router, far, receivebox })
    }

    fn turn(
        &self,
        round: u32,
        arm: RoutingArm,
        duration: Duration,
    ) -> Result<RoutingTurn, TestbedError> {
        let mut sendbox = (arm == RoutingArm::Sendbox).then(|| self.sendbox()).transpose()?;
        let mut loads = Vec::new();
        for flows in FLOWS {
            loads.push(self.tcp(flows, duration)?);
            loads.push(self.datagrams(flows, duration)?);
        }
        let mut packets = 0;
        if let Some(sendbox) = &mut sendbox {
            sendbox.check()?;
            packets = self.status().map_or(0, |status| status.bundles[0].packets);
            sendbox.stop(Some(Signal::SIGTERM))?;
        }
        Ok(RoutingTurn { round, arm, loads, packets })
    }

    /// Starts a sendbox and waits until it hears the receivebox.
    fn sendbox(&self) -> Result<Program, TestbedError> {
        let config = self.start.dir.join("sendbox.toml");
        let arguments = ["sendbox".into(), "--config".into(), config.into_os_string()];
        let mut sendbox = self.start.program("sendbox", &self.router, &arguments)?;
        let deadline = Instant::now() + PEER_TIMEOUT;
        let hears = |status: Status| {
            status.bundles[0].peer.state == "alive" && status.failed_conditions.is_empty()
        };
        while !self.status().is_some_and(hears) {
            sendbox.check()?;
            if Instant::now() > deadline {
                let (name, seconds) = (sendbox.name.clone(), PEER_TIMEOUT.as_secs());
                return Err(TestbedError::NoPeer { name, seconds, tail: sendbox.tail() });
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(sendbox)
    }

    fn status(&self) -> Option<Status> {
        match control::ask::<Status>(&self.start.dir.join("sendbox.sock"), Request::Status) {
            Ok(Answer::Status(status)) => Some(*status),
            _ => None,
        }
    }

    /// Bits a second of `flows` TCP connections.
    fn tcp(&self, flows: usize, duration: Duration) -> Result<RoutingLoad, TestbedError> {
        let listener = self.far.within(|| TcpListener::bind((FAR, PORT)));
        let listener = listener.map_err(step("listen", "far"))?;
        let (over, received) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut threads = Vec::new();
        for _ in 0..flows {
            let sender = self.hosts.within(|| TcpStream::connect((FAR, PORT)));
            let sender = sender.map_err(step("connect", "hosts"))?;
            setsockopt(&sender, sockopt::TcpCongestion, &"cubic".into())
                .map_err(|errno| step("choose cubic", "hosts")(errno.into()))?;
            let receiver = listener.accept().map_err(step("accept", "far"))?.0;
            let (over, received) = (over.clone(), received.clone());
            threads.push(thread::spawn(move || send(sender, &over)));
            threads.push(thread::spawn(move || receive(receiver, &received)));
        }
        let (bytes, cores) = measured(duration, || Ok(received.load(Ordering::Relaxed)))?;
        over.store(true, Ordering::Relaxed);
        for thread in threads {
            let ended = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ended.map_err(step("carry", "hosts"))?;
        }
        Ok(RoutingLoad { kind: Kind::Tcp, flows, rate: 8.0 * bytes, cores })
    }

    /// Datagrams a second of `flows` sockets.
    fn datagrams(&self, flows: usize, duration: Duration) -> Result<RoutingLoad, TestbedError> {
        let open = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect((NOBODY, PORT))?;
            Ok(socket)
        };
        let sockets =
            self.hosts.within(|| (0..flows).map(|_| open()).collect::<io::Result<Vec<_>>>());
        let sockets = sockets.map_err(step("open sockets", "hosts"))?;
        let over = Arc::<AtomicBool>::default();
        let ending = over.clone();
        let sending = thread::spawn(move || {
            let payload = [7; DATAGRAM_BYTES];
            while !ending.load(Ordering::Relaxed) {
                for socket in &sockets {
                    // A full queue is no error: datagrams that do not arrive are not counted.
                    let _ = socket.send(&payload);
                }
            }
        });
        let counted = measured(duration, || {
            let read = || fs::read_to_string("/proc/thread-self/net/dev");
            arrived(&self.far.within(read)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
        });
        over.store(true, Ordering::Relaxed);
        sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (rate, cores) = counted?;
        Ok(RoutingLoad { kind: Kind::Datagrams, flows, rate, cores })
    }

    fn stop(mut self) -> Result<(), TestbedError> {
        self.receivebox.stop(Some(Signal::SIGTERM))
    }
}

/// Growth of `count` a second, and the processors that the machine used meanwhile.
fn measured(
    duration: Duration,
    count: impl Fn() -> io::Result<u64>,
) -> Result<(f64, f64), TestbedError> {
    thread::sleep(LEAD);
    let busy = || -> io::Result<u64> {
        let times = process::processors()?.into_iter().map(ProcessorTime::now);
        let times = times.collect::<io::Result<Vec<_>>>()?;
        Ok(times.iter().map(|time| time.total_ns - time.idle_ns).sum())
    };
    let now = || Ok((Instant::now(), count()?, busy()?));
    let (began, first, busy_before) = now().map_err(TestbedError::Proc)?;
    thread::sleep(duration);
    let (ended, last, busy_after) = now().map_err(TestbedError::Proc)?;
    let elapsed = ended - began;
    let cores = (busy_after - busy_before) as f64 / elapsed.as_nanos() as f64;
    Ok(((last - first) as f64 / elapsed.as_secs_f64(), cores))
}

fn send(mut socket: TcpStream, over: &AtomicBool) -> io::Result<()> {
    let chunk = vec![7; CHUNK];
    while !over.load(Ordering::Relaxed) {
        socket.write_all(&chunk)?;
    }
    Ok(())
}

fn receive(mut socket: TcpStream, received: &AtomicU64) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        match socket.read(&mut chunk)? {
            0 => return Ok(()),
            bytes => received.fetch_add(bytes as u64, Ordering::Relaxed),
        };
    }
}

/// Packets that `eth0` has received, from a table of devices.
fn arrived(table: &str) -> Option<u64> {
    let row = table.lines().find_map(|line| line.trim_start().strip_prefix("eth0:"))?;
    row.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_from_devices_table() {
        let table = "Inter-| Receive\n face |bytes packets\n  lo: 1 2 0\n  eth0: 123456 789 0 0\n";
        assert_eq!(arrived(table), Some(789));
        assert_eq!(arrived("  lo: 1 2 0\n"), None);
    }
}
