//! Changes of the sites' devices during a run, forged packets in a bundle's name, and clients that keep boxes
//! busy.

use std::io;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::TestbedError;
use super::crowd::{Crowd, Door};
use super::namespace::Namespace;
use super::topology::{PairSites, Site, Topology, ip, right_port, run, step};
use forebay_core::units::Rate;
use forebay_host::clock;
use forebay_host::offload::{self, Offload};
use forebay_host::port::{Direction, PacketPort, Port};
use forebay_scenario::{Upset, UpsetKind};

/// Offloads of a veth that [`UpsetKind::OffloadsOn`] switches on. Towards the link, checksum offload stays off: the
/// emulator is a wire and would carry packets with unfinished checksums.
const OFFLOADS: [(&str, Offload); 7] = [
    ("lan", Offload::TxChecksum),
    ("lan", Offload::Gso),
    ("lan", Offload::Tso),
    ("lan", Offload::Gro),
    ("wan", Offload::Gso),
    ("wan", Offload::Tso),
    ("wan", Offload::Gro),
];
/// Bytes of a forged frame.
const FORGED_BYTES: usize = 1000;
/// How often forged frames are sent.
const FORGED_EVERY: Duration = Duration::from_millis(1);

/// Applies the upsets of a run.
pub(super) struct Upsets<'a> {
    topology: &'a Topology,
    /// Forgers by pair of sites, also those at rate 0.
    forgers: Vec<(usize, Forger)>,
    /// Silent clients of boxes.
    crowds: Vec<Crowd>,
}

impl<'a> Upsets<'a> {
    pub fn new(topology: &'a Topology) -> Self {
        Self { topology, forgers: Vec::new(), crowds: Vec::new() }
    }

    /// Applies `upset` at `pair`; clients connect to `doors`. The kernel may refuse a change, for instance
    /// while a box runs. Then nothing changes, and the log says so.
    pub fn apply(
        &mut self,
        pair: usize,
        upset: &Upset,
        doors: Vec<Door>,
    ) -> Result<(), TestbedError> {
        let sites = &self.topology.pairs[pair];
        match upset.kind {
            UpsetKind::Forged(rate) => return self.forge(pair, rate.as_bits_per_sec()),
            // The emulator changes this itself, according to its specification.
            UpsetKind::Unseen(_) => return Ok(()),
            UpsetKind::OffloadsOn | UpsetKind::OffloadsOff => {
                return offloads(sites, upset.at_b, upset.kind == UpsetKind::OffloadsOn);
            }
            UpsetKind::MakeLan => return self.topology.make_lan(pair, upset.at_b),
            UpsetKind::ForeignTc(rate) => return foreign_tc(sites, upset.at_b, rate),
            UpsetKind::StatusClients(clients) | UpsetKind::MetricsClients(clients) => {
                return self.crowd(pair, upset, doors, clients);
            }
            _ => {}
        }
        let (place, namespace) = box_of(sites, upset.at_b);
        for line in lines(pair, upset) {
            match ip(place, namespace, &line) {
                Err(TestbedError::Refused { message, .. }) => {
                    let line = line.trim_end();
                    tracing::warn!(target: "upset", place, line, message, "refused");
                }
                done => done?,
            }
        }
        Ok(())
    }

    /// Sets the number of silent clients at each of `doors`.
    fn crowd(
        &mut self,
        pair: usize,
        upset: &Upset,
        doors: Vec<Door>,
        clients: u32,
    ) -> Result<(), TestbedError> {
        let (place, namespace) = box_of(&self.topology.pairs[pair], upset.at_b);
        for door in doors {
            let known = self.crowds.iter().position(|crowd| *crowd.door() == door);
            let index = match known {
                Some(index) => index,
                None => {
                    let crowd = Crowd::start(namespace, door);
                    self.crowds.push(crowd.map_err(step("start silent clients", place))?);
                    self.crowds.len() - 1
                }
            };
            self.crowds[index].set(clients);
        }
        Ok(())
    }

    fn forge(&mut self, pair: usize, rate_bps: u64) -> Result<(), TestbedError> {
        let known = self.forgers.iter().position(|(known, _)| *known == pair);
        let index = match known {
            Some(index) => index,
            None => {
                self.forgers.push((pair, Forger::start(&self.topology.emulator, pair)?));
                self.forgers.len() - 1
            }
        };
        self.forgers[index].1.rate_bps.store(rate_bps, Ordering::Relaxed);
        Ok(())
    }
}

fn box_of(sites: &PairSites, right: bool) -> (&'static str, &Namespace) {
    if right { ("right box", &sites.right_box) } else { ("left box", &sites.left_box) }
}

/// Lines for `ip -batch`, one for each change.
fn lines(pair: usize, upset: &Upset) -> Vec<String> {
    let site = if upset.at_b { Site::RightHosts } else { Site::LeftHosts };
    let [first, second, third, _] = site.address(pair).octets();
    // An address in the site's network that no host has.
    let address = Ipv4Addr::new(first, second, third, 77);
    match upset.kind {
        UpsetKind::Down => vec!["link set dev wan down\n".into()],
        UpsetKind::Up => vec!["link set dev wan up\n".into()],
        UpsetKind::LeaveBridge => vec!["link set dev wan nomaster\n".into()],
        UpsetKind::JoinBridge => vec!["link set dev wan master br0\n".into()],
        UpsetKind::Mtu(bytes) => {
            ["lan", "wan"].map(|port| format!("link set dev {port} mtu {bytes}\n")).into()
        }
        UpsetKind::Address => vec![format!("address add {address}/32 dev br0\n")],
        UpsetKind::NoAddress => vec![format!("address delete {address}/32 dev br0\n")],
        UpsetKind::RemoveLan => vec!["link delete dev lan\n".into()],
        UpsetKind::MakeLan
        | UpsetKind::ForeignTc(_)
        | UpsetKind::StatusClients(_)
        | UpsetKind::MetricsClients(_)
        | UpsetKind::OffloadsOn
        | UpsetKind::OffloadsOff
        | UpsetKind::Unseen(_)
        | UpsetKind::Forged(_)
        | UpsetKind::Suspend
        | UpsetKind::Resume => Vec::new(),
    }
}

/// Acts as another program that sets the rate of each TBF below the root of the box's WAN device. A device
/// without a TBF stays unchanged.
fn foreign_tc(sites: &PairSites, right: bool, rate: Rate) -> Result<(), TestbedError> {
    let (place, namespace) = box_of(sites, right);
    let show = || Command::new("tc").args(["qdisc", "show", "dev", "wan"]).output();
    let shown = namespace.within(show).map_err(step("see the qdiscs", place))?.stdout;
    let shown = String::from_utf8_lossy(&shown);
    let rate = rate.as_bits_per_sec();
    let change = |(handle, parent)| {
        format!(
            "qdisc change dev wan parent {parent} handle {handle} tbf rate {rate}bit burst 2000 limit 30000\n"
        )
    };
    let changes: String = token_buckets(&shown).into_iter().map(change).collect();
    // One process for all changes: there may be a thousand.
    let mut tc = Command::new("tc");
    tc.args(["-force", "-batch", "-"]);
    run(place, namespace, tc, &changes).unwrap_or_else(|error| {
        tracing::warn!(target: "upset", place, %error, "refused");
    });
    Ok(())
}

/// Handle and parent of each TBF that is not the root, as `tc qdisc show` prints them.
fn token_buckets(shown: &str) -> Vec<(&str, &str)> {
    let of_line = |line| {
        let words: Vec<&str> = str::split_whitespace(line).collect();
        match words[..] {
            ["qdisc", "tbf", handle, "parent", parent, ..] => Some((handle, parent)),
            _ => None,
        }
    };
    shown.lines().filter_map(of_line).collect()
}

fn offloads(sites: &PairSites, right: bool, on: bool) -> Result<(), TestbedError> {
    let (place, namespace) = box_of(sites, right);
    let switched = namespace.within(|| {
        for (device, offload) in OFFLOADS {
            let done = if on {
                offload::enable(device, offload)
            } else {
                offload::disable(device, offload)
            };
            if let Err(error) = done {
                tracing::warn!(target: "upset", place, %error, "refused");
            }
        }
        Ok(())
    });
    switched.map_err(step("offloads", place))
}

/// A thread that sends frames to the box on the right in the name of the hosts on the left, bypassing the
/// link. It ends when this is dropped.
struct Forger {
    /// Bits per second of frames.
    rate_bps: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Forger {
    fn start(emulator: &Namespace, pair: usize) -> Result<Self, TestbedError> {
        let device = right_port(pair);
        let opened = emulator
            .within(|| PacketPort::open(&device, Direction::Transmit).map_err(io::Error::other));
        let mut port = opened.map_err(step("forge packets", "emulator"))?;
        let (rate_bps, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (rate, over) = (rate_bps.clone(), is_over.clone());
        let mut frame = forged_frame(pair);
        let work = move || {
            let (mut number, mut owed_bits) = (0_u16, 0.0);
            let mut last = clock::now();
            while !over.load(Ordering::Relaxed) {
                thread::sleep(FORGED_EVERY);
                let now = clock::now();
                let elapsed_s = now.saturating_since(last).as_secs_f64();
                last = now;
                owed_bits += rate.load(Ordering::Relaxed) as f64 * elapsed_s;
                while owed_bits >= (8 * FORGED_BYTES) as f64 {
                    owed_bits -= (8 * FORGED_BYTES) as f64;
                    number = number.wrapping_add(1);
                    set_number(&mut frame, number);
                    port.send(&frame);
                }
                let _ = port.flush();
            }
        };
        let thread = thread::Builder::new().name("forger".into()).spawn(work);
        let thread = thread.map_err(step("forge packets", "emulator"))?;
        Ok(Self { rate_bps, is_over, thread: Some(thread) })
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Bytes of the Ethernet header.
const ETHERNET: usize = 14;
/// Bytes of the IPv4 header.
const IPV4: usize = 20;

/// A UDP datagram from the left hosts to the discard port of the right hosts, without a UDP checksum.
fn forged_frame(pair: usize) -> Vec<u8> {
    let (from, to) = (Site::LeftHosts, Site::RightHosts);
    let mut frame = Vec::with_capacity(FORGED_BYTES);
    frame.extend(to.mac_bytes(pair));
    frame.extend(from.mac_bytes(pair));
    frame.extend([0x08, 0x00]);
    let length = (FORGED_BYTES - ETHERNET) as u16;
    frame.extend([0x45, 0]);
    frame.extend(length.to_be_bytes());
    // Identification, no fragment; 64 hops, UDP; `set_number` fills in the checksum.
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend(from.address(pair).octets());
    frame.extend(to.address(pair).octets());
    frame.extend([0xc0, 0x00, 0, 9]);
    frame.extend((length - IPV4 as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.resize(FORGED_BYTES, 0);
    frame
}

/// Numbers the datagram, so that each packet differs, and completes its IPv4 header.
fn set_number(frame: &mut [u8], number: u16) {
    let header = &mut frame[ETHERNET..ETHERNET + IPV4];
    header[4..6].copy_from_slice(&number.to_be_bytes());
    header[10..12].fill(0);
    let words =
        header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::skip_without_root;

    fn upset(at_b: bool, kind: UpsetKind) -> Upset {
        Upset { at: Duration::ZERO, bundle: "b".into(), pair: "site".into(), at_b, kind }
    }

    #[test]
    fn forged_frame_is_valid_datagram_from_hosts() {
        let mut frame = forged_frame(0);
        set_number(&mut frame, 0x1234);
        assert_eq!(frame.len(), FORGED_BYTES);
        let header = &frame[ETHERNET..ETHERNET + IPV4];
        assert_eq!(header[12..], [10, 1, 1, 1, 10, 1, 2, 1]);
        // The 16-bit words of a header with its checksum sum up to all ones.
        let words = header.chunks_exact(2).map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])));
        let sum: u32 = words.sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }

    #[test]
    fn device_changes_are_made_and_undone() {
        if skip_without_root() {
            return;
        }
        let topology = Topology::build(1, None).unwrap();
        let mut upsets = Upsets::new(&topology);
        let state = || {
            let shown = topology.pairs[0].right_box.within(|| {
                let mut command = std::process::Command::new("ip");
                command.args(["-o", "address", "show"]);
                let addresses = command.output()?.stdout;
                let mut command = std::process::Command::new("ip");
                command.args(["-o", "link", "show"]);
                let links = command.output()?.stdout;
                let offloads = ["lan", "wan"].map(|it| offload::active(it).unwrap_or_default());
                let [addresses, links] =
                    [addresses, links].map(|text| String::from_utf8_lossy(&text).into_owned());
                Ok(format!("{addresses}{links}{offloads:?}"))
            });
            shown.unwrap()
        };
        let before = state();
        let upset = |kind| upset(true, kind);
        for (there, back, sign) in [
            (UpsetKind::Down, UpsetKind::Up, "<BROADCAST,MULTICAST>"),
            (UpsetKind::Mtu(1400), UpsetKind::Mtu(1500), "mtu 1400"),
            (UpsetKind::Address, UpsetKind::NoAddress, "10.1.2.77/32"),
            (UpsetKind::OffloadsOn, UpsetKind::OffloadsOff, "Gso"),
        ] {
            upsets.apply(0, &upset(there), Vec::new()).unwrap();
            assert!(state().contains(sign), "{there:?}: {}", state());
            upsets.apply(0, &upset(back), Vec::new()).unwrap();
            assert!(!state().contains(sign), "{back:?}: {}", state());
        }
        upsets.apply(0, &upset(UpsetKind::LeaveBridge), Vec::new()).unwrap();
        let left = state();
        assert_eq!(left.matches("master br0").count() + 1, before.matches("master br0").count());
        upsets.apply(0, &upset(UpsetKind::JoinBridge), Vec::new()).unwrap();
        assert_eq!(state().matches("master br0").count(), before.matches("master br0").count());
        upsets.apply(0, &upset(UpsetKind::RemoveLan), Vec::new()).unwrap();
        assert!(!state().contains(" lan@"), "{}", state());
        upsets.apply(0, &upset(UpsetKind::MakeLan), Vec::new()).unwrap();
        let made = state();
        assert!(made.contains(" lan@") && !made.contains("Gso"), "{made}");
        assert_eq!(made.matches("master br0").count(), before.matches("master br0").count());
    }

    #[test]
    fn another_program_changes_queues_below_the_root() {
        let shown = "qdisc htb 1: root refcnt 2 r2q 10\nqdisc tbf 402: parent 1:402 rate 34Gbit\n\
                     qdisc fq_codel 0: parent 402:1 limit 10240p\nqdisc tbf 8: root rate 1Mbit\n";
        assert_eq!(token_buckets(shown), [("402:", "1:402")]);
        if skip_without_root() {
            return;
        }
        let topology = Topology::build(1, None).unwrap();
        let namespace = &topology.pairs[0].left_box;
        let tc = |line: &'static str| {
            let run = || Command::new("tc").args(line.split(' ')).output();
            String::from_utf8(namespace.within(run).unwrap().stdout).unwrap()
        };
        tc("qdisc add dev wan root handle 1: htb default 2");
        tc("class add dev wan parent 1: classid 1:2 htb rate 10mbit");
        tc("qdisc add dev wan parent 1:2 handle 402: tbf rate 10gbit burst 20000 limit 30000");
        let kind = UpsetKind::ForeignTc(Rate::from_bits_per_sec(64_000));
        Upsets::new(&topology).apply(0, &upset(false, kind), Vec::new()).unwrap();
        let after = tc("qdisc show dev wan");
        assert!(after.contains("tbf 402: parent 1:2 rate 64Kbit"), "{after}");
    }
}
