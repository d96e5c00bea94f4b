//! The receivebox for small routers (`crates/receivebox`) with a sendbox: its reports equal those made by the BPF
//! program.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use forebay_core::units::ByteCount;
use forebay_host::daemon::status::Status;
use forebay_skips::{Need, skip_without};
use forebay_testbed::namespace::Namespace;
use forebay_testbed::topology::{PairSites, Topology};

use crate::by_hand::{command, connect_the_sites, end, switch_on};
use crate::two_bundles::{await_both, flow, give_ipv6, hosts, settled, write_configs};
use crate::{alone, forebay};

/// Environment variable with the path of another build, such as a static one: `make test-small`.
const PROGRAM: &str = "FOREBAY_SMALL";
/// Duration of the measurement at each rate.
const MEASURED: Duration = Duration::from_secs(12);
/// Memory that a receivebox may take at 50 Mbit/s, all its processes together.
const MEMORY_MAX: u64 = 16 << 20;

fn program() -> OsString {
    let beside = forebay().with_file_name("forebay-receivebox");
    let program = std::env::var_os(PROGRAM).unwrap_or_else(|| beside.into());
    let is_there = Path::new(&program).exists();
    assert!(is_there, "no {}: `cargo build -p forebay-receivebox` makes it", program.display());
    program
}

fn small(namespace: &Namespace, config: &Path) -> Command {
    let mut command = Command::new(program());
    command.args(["receivebox", "--config"]).arg(config);
    namespace.host(&mut command).unwrap();
    command
}

/// Runs `carry` between a sendbox and the receivebox that `watch` makes, whose device merges packets.
fn between<T>(
    watch: impl FnOnce(&Namespace, &Path) -> Command,
    edit: impl FnOnce(&Path),
    carry: impl FnOnce(&PairSites, &[std::path::PathBuf; 2], &Child) -> T,
) -> T {
    let topology = Topology::build(1, None).unwrap();
    connect_the_sites(&topology.emulator);
    let sites = &topology.pairs[0];
    give_ipv6(sites);
    switch_on(&sites.right_box, "wan", &["tx", "gso", "tso", "gro", "txvlan"]);
    let folder = tempfile::tempdir().unwrap();
    let [receivebox, sendbox] = write_configs(folder.path());
    edit(&sendbox);
    let mut boxes = [
        watch(&sites.right_box, &receivebox).spawn().unwrap(),
        command(&sites.left_box, "sendbox", &sendbox).spawn().unwrap(),
    ];
    let sockets = ["receivebox.sock", "sendbox.sock"].map(|name| folder.path().join(name));
    // Until the boxes have agreed on their capabilities, they sample differently. After that they measure the
    // path MTU.
    await_both(&sockets, |both| {
        both.iter().flat_map(|one| &one.bundles).all(|bundle| bundle.peer.state == "alive")
            && both[1].bundles.iter().all(|bundle| bundle.peer.path_mtu.is_some())
    });
    let carried = carry(sites, &sockets, &boxes[0]);
    end(&mut boxes);
    carried
}

/// In all bundles: boundaries for which a report was expected, and boundaries that matched one.
fn boundaries(sent: &Status) -> (u64, u64) {
    let counters = sent.bundles.iter().map(|bundle| bundle.shaping.as_ref().unwrap().counters);
    counters.fold((0, 0), |(expected, matched), it| {
        (expected + it.boundaries_sent, matched + it.boundaries_matched)
    })
}

#[test]
fn small_receivebox_matches_boundaries() {
    if skip_without(Need::Root) {
        return;
    }
    let _alone = alone();
    let carry = |sites: &PairSites, sockets: &[std::path::PathBuf; 2], _: &Child| {
        for (sender, receiver) in hosts().map(|host| flow(sites, host)) {
            assert_eq!(receiver.join().unwrap(), sender.join().unwrap());
        }
        settled(sockets);
        await_both(sockets, |[_, sent]| {
            let (expected, matched) = boundaries(sent);
            matched >= 100 && matched == expected
        })
    };
    let [watched, _] = between(small, |_| {}, carry);
    assert_eq!(watched.ports[0].mode, "packet socket");
    assert_eq!(watched.ports[0].counters, [("packets_lost".to_string(), 0)]);
}

/// Resources that a program and its children have used.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    memory: ByteCount,
    cpu: Duration,
    processes: usize,
}

impl Taken {
    fn of(pid: u32) -> Self {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
        let status = read("status");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
        let peak: u64 = peak.trim().strip_suffix(" kB").unwrap().parse().unwrap();
        // After the name: state is the first field, user and system time are the 12th and the 13th.
        let stat = read("stat");
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
        let own = Self {
            memory: ByteCount::new(peak * 1024),
            // USER_HZ is 100 wherever Linux runs.
            cpu: Duration::from_millis(10 * ticks),
            processes: 1,
        };
        let children = read(&format!("task/{pid}/children"));
        children.split_whitespace().fold(own, |sum, child| {
            let child = Self::of(child.parse().unwrap());
            Self {
                memory: sum.memory + child.memory,
                cpu: sum.cpu + child.cpu,
                processes: sum.processes + child.processes,
            }
        })
    }
}

#[test]
#[ignore = "a measurement, of static builds: make test-small"]
fn small_receivebox_at_50_mbit() {
    if skip_without(Need::Root) {
        return;
    }
    let _alone = alone();
    let faster = |sendbox: &Path| {
        let text = fs::read_to_string(sendbox).unwrap();
        fs::write(sendbox, text.replace("8Mbit/s", "46Mbit/s")).unwrap();
    };
    let carry = |sites: &PairSites, sockets: &[std::path::PathBuf; 2], receivebox: &Child| {
        let [_, before] = await_both(sockets, |_| true);
        let (taken_before, began) = (Taken::of(receivebox.id()), Instant::now());
        let (elapsed, taken, after) = thread::scope(|scope| {
            for host in hosts() {
                // Each bundle has its own loop: the slower one would leave the other idle.
                scope.spawn(move || {
                    while began.elapsed() < MEASURED {
                        let (sender, receiver) = flow(sites, host);
                        assert_eq!(receiver.join().unwrap(), sender.join().unwrap());
                    }
                });
            }
            thread::sleep(MEASURED);
            let [_, after] = await_both(sockets, |_| true);
            (began.elapsed(), Taken::of(receivebox.id()), after)
        });
        settled(sockets);
        thread::sleep(Duration::from_millis(500));
        let [watched, sent] = await_both(sockets, |_| true);
        let bytes = |status: &Status| status.bundles.iter().map(|it| it.bytes).sum::<u64>();
        let mbit = 8e-6 * (bytes(&after) - bytes(&before)) as f64 / elapsed.as_secs_f64();
        let (expected, matched) = boundaries(&sent);
        let cpu = (taken.cpu - taken_before.cpu).as_secs_f64() / elapsed.as_secs_f64();
        eprintln!(
            "{}: {mbit:.1} Mbit/s, {matched} of {expected} boundaries matched, {:?}; {} processes, {:.1} MiB at most, \
             {:.2} % of a processor",
            watched.ports[0].mode,
            watched.ports[0].counters,
            taken.processes,
            taken.memory.as_u64() as f64 / f64::from(1 << 20),
            100.0 * cpu,
        );
        (taken, mbit, expected, matched)
    };
    let bpf = |namespace: &Namespace, config: &Path| command(namespace, "receivebox", config);
    between(bpf, faster, carry);
    let (taken, mbit, expected, matched) = between(small, faster, carry);
    assert!(mbit > 45.0, "{mbit} Mbit/s");
    assert!(taken.memory.as_u64() <= MEMORY_MAX, "{taken:?}");
    assert!(expected >= 100 && matched == expected, "{matched} of {expected}");
}
