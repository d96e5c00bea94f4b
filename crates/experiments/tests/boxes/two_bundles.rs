//! Two bundles between two boxes. Only prefixes decide which bundle a packet belongs to, in either IP version.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forebay_host::daemon::keys;
use forebay_host::daemon::status::Status;
use forebay_skips::{Need, skip_without};
use forebay_testbed::topology::{PairSites, Site, Topology};

use crate::by_hand::{await_status, connect_the_sites, ip, start, switch_on};
use crate::turns::{Turn, alone, together};

/// Port of the test traffic.
const PORT: u16 = 7000;
/// Shapers of the two bundles (bit/s).
pub const RATES: [u64; 2] = [8_000_000, 4_000_000];
/// Sending time: hundreds of packets and dozens of epochs for each bundle.
const SENDING: Duration = Duration::from_secs(3);

#[test]
fn two_bundles_are_separated_by_prefix() {
    carry_two_bundles(|_| {});
}

#[test]
fn unfinished_checksums_are_completed_before_sampling() {
    let beside = |sites: &PairSites| switch_on(&sites.left_hosts, "eth0", &["tx", "gso", "tso"]);
    let Some(sent) = carry_two_bundles(beside) else { return };
    let finished = sent.ports[0].counters.iter().find(|(name, _)| name == "finished_checksums");
    let packets: u64 = sent.bundles.iter().map(|bundle| bundle.packets).sum();
    // Nearly every packet has an unfinished checksum. The margin is for chance, and for the few packets
    // outside of all bundles.
    assert!(finished.unwrap().1 * 10 > packets * 9, "{finished:?} of {packets}");
}

#[test]
fn merging_and_segmenting_keep_counts_and_samples() {
    let offloads = ["tx", "gso", "tso", "gro", "txvlan"];
    carry_two_bundles(|sites| switch_on(&sites.right_box, "wan", &offloads));
}

#[test]
fn two_bundles_share_line_by_weight() {
    let share_the_line = |sendbox: &Path| {
        let text = fs::read_to_string(sendbox).unwrap();
        let text = text.replace("max_rate = \"8Mbit/s\"", "weight = 3");
        let text = text.replace("max_rate = \"4Mbit/s\"\n", "") + "[uplink]\nrate = \"12Mbit/s\"\n";
        fs::write(sendbox, text).unwrap();
    };
    between_two_boxes(
        alone,
        |_| {},
        share_the_line,
        |sites, sockets| {
            let flows = hosts().map(|host| flow(sites, host));
            let share = |status: &Status, bundle: usize| {
                status.bundles[bundle].shaping.as_ref().unwrap().share.unwrap().share
            };
            let is_near = |share: f64, other: f64| (share / other - 1.0).abs() < 0.01;
            let shared = await_both(sockets, |[_, sent]| {
                is_near(share(sent, 0), 0.75) && is_near(share(sent, 1), 0.25)
            });
            assert_eq!(shared[1].uplink_bps, Some(12_000_000));
            let since = await_both(sockets, |[_, sent]| {
                sent.bundles[0].packets >= shared[1].bundles[0].packets + 500
            });
            let [three, one] = [0, 1].map(|bundle| {
                (since[1].bundles[bundle].bytes - shared[1].bundles[bundle].bytes) as f64
            });
            assert!((2.5..3.5).contains(&(three / one)), "{three} and {one} bytes");
            for (sender, receiver) in flows {
                assert_eq!(receiver.join().unwrap(), sender.join().unwrap());
            }
        },
    );
}

/// Carries a flow in each bundle, measured and shaped, after `prepare` has changed the sites. Returns the
/// sendbox's last status.
fn carry_two_bundles(prepare: impl FnOnce(&PairSites)) -> Option<Status> {
    between_two_boxes(
        together,
        prepare,
        |_| {},
        |sites, sockets| {
            let began = Instant::now();
            let flows = hosts().map(|host| flow(sites, host));
            let bytes = flows.map(|(sender, receiver)| {
                let sent = sender.join().unwrap();
                assert_eq!(receiver.join().unwrap(), sent);
                sent
            });
            let elapsed = began.elapsed();

            let [watched, sent] = settled(sockets);
            for (index, bundle) in sent.bundles.iter().enumerate() {
                let name = &bundle.name;
                let shaping = bundle.shaping.as_ref().unwrap();
                assert!(bundle.bytes > bytes[index], "{name}: {bundle:?} carried {}", bytes[index]);
                // Allows 20 kB for the shaper's bucket, whose exact size does not matter here.
                let most = RATES[index] as f64 / 8.0 * elapsed.as_secs_f64() + 20_000.0;
                assert!(
                    bundle.bytes as f64 <= most,
                    "{name}: {} bytes in {elapsed:?}",
                    bundle.bytes
                );
                assert!(shaping.counters.boundaries_matched > 10, "{name}: {shaping:?}");
                assert!(
                    2 * shaping.counters.boundaries_matched > shaping.counters.boundaries_sent,
                    "{name}: {shaping:?}"
                );
                assert!(shaping.decision.min_rtt_ns.is_some(), "{name}: {shaping:?}");
                assert!(watched.bundles[index].watching.as_ref().unwrap().reports > 10, "{name}");
            }
            sent
        },
    )
}

/// Runs `carry` between two connected boxes, after `prepare` has changed the sites and `edit` the sendbox's
/// file.
fn between_two_boxes<T>(
    turn: fn() -> Turn,
    prepare: impl FnOnce(&PairSites),
    edit: impl FnOnce(&Path),
    carry: impl FnOnce(&PairSites, &[PathBuf; 2]) -> T,
) -> Option<T> {
    if skip_without(Need::Root) {
        return None;
    }
    let _turn = turn();
    let topology = Topology::build(1, None).unwrap();
    connect_the_sites(&topology.emulator);
    let sites = &topology.pairs[0];
    give_ipv6(sites);
    prepare(sites);
    let folder = tempfile::tempdir().unwrap();
    let [receivebox, sendbox] = write_configs(folder.path());
    edit(&sendbox);
    let mut boxes = [
        start(&sites.right_box, "receivebox", &receivebox),
        start(&sites.left_box, "sendbox", &sendbox),
    ];
    let sockets = ["receivebox.sock", "sendbox.sock"].map(|name| folder.path().join(name));
    await_both(&sockets, |both| {
        both.iter().flat_map(|one| &one.bundles).all(|bundle| bundle.peer.state == "alive")
    });
    let carried = carry(sites, &sockets);
    for one in &mut boxes {
        one.kill().unwrap();
        one.wait().unwrap();
    }
    Some(carried)
}

/// Where flows to the right site go, one in each bundle.
pub fn hosts() -> [SocketAddr; 2] {
    let hosts = [IpAddr::V4(Site::RightHosts.address(0)), IpAddr::V6(ipv6(Site::RightHosts))];
    hosts.map(|host| SocketAddr::new(host, PORT))
}

/// The site's host in IPv6.
fn ipv6(site: Site) -> Ipv6Addr {
    let part = if site == Site::LeftHosts { 1 } else { 2 };
    Ipv6Addr::new(0xfd00, 0, part, 0, 0, 0, 0, 1)
}

/// The testbed has IPv6 switched off.
pub fn give_ipv6(sites: &PairSites) {
    for (site, namespace) in
        [(Site::LeftHosts, &sites.left_hosts), (Site::RightHosts, &sites.right_hosts)]
    {
        let switch_on = || fs::write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "0");
        namespace.within(switch_on).unwrap();
        let address = ipv6(site);
        ip(namespace, &format!("address add {address}/32 dev eth0 nodad\n"));
    }
}

pub fn write_configs(folder: &Path) -> [PathBuf; 2] {
    let laws = [
        "cc = \"copa\"\nqdisc = { kind = \"sfq\", limit = \"400p\" }",
        "cc = \"setpoint\"\nqdisc = { kind = \"fq_codel\", limit = \"400p\" }",
    ];
    let [from, to] = [Site::LeftHosts, Site::RightHosts].map(|site| {
        let part = ipv6(site).segments()[2];
        [site.host_prefix(0), format!("fd00:0:{part}::/48")]
    });
    let config = |role: &str, lan: &str, [own, peer]: [Site; 2], shaping: [&str; 2]| {
        let mut text = format!(
            "[box]\nrole = \"{role}\"\n{lan}wan = \"wan\"\nlisten = \"{}\"\ncontrol = \
             \"{role}.sock\"\n",
            own.address(0)
        );
        for (index, name) in ["four", "six"].into_iter().enumerate() {
            text += &format!(
                "[[bundle]]\nname = \"{name}\"\nid = {}\npeer = \"{}\"\nto = [\"{}\"]\nfrom = \
                 [\"{}\"]\nkey_file = \"{name}.key\"\n{}\n",
                index + 1,
                peer.address(0),
                to[index],
                from[index],
                shaping[index],
            );
        }
        let file = folder.join(format!("{role}.toml"));
        fs::write(&file, text).unwrap();
        file
    };
    for name in ["four", "six"] {
        keys::generate(&folder.join(format!("{name}.key"))).unwrap();
    }
    let shaping: Vec<String> = laws
        .iter()
        .zip(RATES)
        .map(|(law, rate)| format!("{law}\nmax_rate = \"{}Mbit/s\"", rate / 1_000_000))
        .collect();
    [
        config("receivebox", "", [Site::RightBox, Site::LeftBox], ["", ""]),
        config(
            "sendbox",
            "lan = \"lan\"\n",
            [Site::LeftBox, Site::RightBox],
            [&shaping[0], &shaping[1]],
        ),
    ]
}

/// Gives up where nothing gets through.
fn connect(target: SocketAddr) -> std::io::Result<TcpStream> {
    TcpStream::connect_timeout(&target, Duration::from_secs(20))
}

/// Sends to `target` for a while; both threads answer how many bytes.
pub fn flow(sites: &PairSites, target: SocketAddr) -> (JoinHandle<u64>, JoinHandle<u64>) {
    let listener = sites.right_hosts.within(|| TcpListener::bind(target)).unwrap();
    let mut sender = sites.left_hosts.within(|| connect(target)).unwrap();
    let mut receiver = listener.accept().unwrap().0;
    let send = move || {
        let (chunk, deadline) = ([7; 16_384], Instant::now() + SENDING);
        let mut sent = 0;
        while Instant::now() < deadline {
            sender.write_all(&chunk).unwrap();
            sent += chunk.len() as u64;
        }
        sender.shutdown(Shutdown::Write).unwrap();
        // Data still in the socket's buffer arrives before the other direction ends.
        assert_eq!(sender.read(&mut [0; 1]).unwrap(), 0);
        sent
    };
    let receive = move || std::io::copy(&mut receiver, &mut std::io::sink()).unwrap();
    (thread::spawn(send), thread::spawn(receive))
}

/// Status of both boxes, once the receivebox has counted all packets that the sendbox sent.
pub fn settled(sockets: &[PathBuf; 2]) -> [Status; 2] {
    let counts = |status: &Status| -> Vec<(u64, u64)> {
        status.bundles.iter().map(|bundle| (bundle.packets, bundle.bytes)).collect()
    };
    await_both(sockets, |[watched, sent]| counts(watched) == counts(sent))
}

/// Status of both boxes, as soon as `is_it` accepts both.
pub fn await_both(sockets: &[PathBuf; 2], is_it: impl Fn(&[Status; 2]) -> bool) -> [Status; 2] {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let both = [await_status(&sockets[0]), await_status(&sockets[1])];
        if is_it(&both) {
            return both;
        }
        assert!(Instant::now() < deadline, "{both:#?}");
        thread::sleep(Duration::from_millis(50));
    }
}
