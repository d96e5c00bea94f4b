//! `make soak`: two boxes under load for an hour, while links fail, files are read again and keys change. Memory must
//! not grow, rates and delays must not drift, and the log may report only the events that the test causes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forebay_core::spec::{Spec, Value};
use forebay_core::units::Rate;
use forebay_host::clock;
use forebay_host::daemon::keys;
use forebay_host::daemon::status::Status;
use forebay_scenario::Link;
use forebay_skips::{Need, skip_without};
use forebay_testbed::emulator::{DevicePair, EmulatorSpec};
use forebay_testbed::namespace::Namespace;
use forebay_testbed::topology::{Site, Topology};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;
use serde::Serialize;

use crate::by_hand::{await_status, await_that, command, ip};
use crate::turns::alone;

/// Environment variable with the duration in minutes; one hour if it is unset.
const MINUTES: &str = "SOAK_MINUTES";
/// Rate of the link (bit/s).
const RATE_BPS: u64 = 96_000_000;
/// Port of the test traffic.
const PORT: u16 = 7000;
/// TCP flows of the bundle.
const FLOWS: usize = 4;
/// Time for which a link fails; TCP and a session survive it.
const DOWN: Duration = Duration::from_secs(2);
/// In the first minutes caches and histories fill: memory is compared from then on.
const WARM_UP_MAX: Duration = Duration::from_secs(180);
/// Largest change from the first part to the last, either way: of a box's memory (share), ...
const MEMORY_CHANGE: f64 = 0.02;
/// ... of the rate that arrives (share), ...
const RATE_CHANGE: f64 = 0.05;
/// ... and of delays (ms). An algorithm's operating point varies by this from one minute to the next.
const DELAY_CHANGE_MS: f64 = 5.0;
/// Log events that the test causes, and why.
const EXPECTED: [(&str, &str); 10] = [
    ("FB0101", "the boxes start"),
    ("FB0102", "the boxes get the signal to end"),
    ("FB0103", "they end"),
    ("FB0105", "files are read again"),
    ("FB0108", "there may be no account for them on this machine"),
    ("FB0201", "the peer is heard again after a link failed, and with each session"),
    ("FB0202", "the peer is silent while a link is down"),
    ("FB0301", "the bundle is shaped, or not while a link is down"),
    ("FB0305", "the kernel has the traffic while a port of the bridge is down"),
    ("FB0306", "it is taken again"),
];

/// Actions on the boxes, taken in turn again and again.
const ACTIONS: [Action; 6] = [
    Action::OtherRate,
    Action::Flap(Site::LeftBox),
    Action::Keys(Keys::Added),
    Action::Flap(Site::RightBox),
    Action::Keys(Keys::Turned),
    Action::Keys(Keys::Dropped),
];

#[derive(Clone, Copy, Debug)]
enum Action {
    /// The sendbox reads a file with another `max_rate`, still above the path's rate.
    OtherRate,
    /// The WAN of this box goes down and comes up again.
    Flap(Site),
    /// Both boxes read the key file of the next step of a rotation.
    Keys(Keys),
}

#[derive(Clone, Copy, Debug)]
enum Keys {
    Added,
    Turned,
    Dropped,
}

/// The state of both boxes at a second.
#[derive(Clone, Debug, Serialize)]
struct Sample {
    second: u64,
    delivered_bps: u64,
    own_queue_ms: Option<f64>,
    network_queue_ms: Option<f64>,
    state: String,
    /// Of receivebox and sendbox.
    rss_kib: [u64; 2],
}

/// A comparison of the first part with the last.
#[derive(Debug, Serialize)]
struct Compared {
    what: String,
    first: f64,
    last: f64,
    allowed_change: f64,
    is_met: bool,
}

#[derive(Serialize)]
struct Record {
    minutes: f64,
    actions: usize,
    compared: Vec<Compared>,
    /// Lines by event.
    events: BTreeMap<String, usize>,
    /// Lines of no event that was expected.
    unexpected: Vec<String>,
    samples: Vec<Sample>,
}

#[test]
#[ignore = "an hour of traffic: make soak"]
fn soak_keeps_memory_rates_and_delays() {
    if skip_without(Need::Root) {
        return;
    }
    let _turn = alone();
    let minutes: f64 = std::env::var(MINUTES).map_or(60.0, |text| match text.parse() {
        Ok(minutes) if (1.0..=10_000.0).contains(&minutes) => minutes,
        _ => panic!("{MINUTES}={text}: allowed is a number of minutes from 1 to 10000"),
    });
    let total = Duration::from_secs_f64(60.0 * minutes);
    let mut scene = Scene::set_up();
    let flows = scene.send();
    let spacing = (total / 40).clamp(Duration::from_secs(10), Duration::from_secs(60));
    let (began, mut samples, mut actions) = (Instant::now(), Vec::new(), 0);
    while began.elapsed() < total {
        if began.elapsed() >= spacing * (actions as u32 + 1) {
            let action = ACTIONS[actions % ACTIONS.len()];
            eprintln!("{:>5} s: {action:?}", began.elapsed().as_secs());
            scene.act(action, actions);
            actions += 1;
        }
        samples.push(scene.sample(began.elapsed().as_secs()));
        thread::sleep(Duration::from_secs(1));
    }
    flows.finish();
    let lines = scene.stop();
    let (mut events, mut unexpected) = (BTreeMap::new(), Vec::new());
    for line in lines {
        let id = line.split_ascii_whitespace().find(|word| word.starts_with("FB"));
        *events.entry(id.unwrap_or("none").to_string()).or_insert(0) += 1;
        if !EXPECTED.iter().any(|(expected, _)| Some(*expected) == id) {
            unexpected.push(line);
        }
    }
    let compared = compare(&samples, total);
    let record = Record { minutes, actions, compared, events, unexpected, samples };
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let file = repository.join("out/soak.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, serde_json::to_string_pretty(&record).unwrap()).unwrap();
    let Record { actions, compared, events, unexpected, .. } = &record;
    println!("{minutes} minutes, {actions} actions, events {events:?}");
    for Compared { what, first, last, allowed_change, is_met } in compared {
        let verdict = if *is_met { "met" } else { "MISSED" };
        println!(
            "{what}: {first:.3} and {last:.3}, allowed is a change of {allowed_change:.3}: {verdict}"
        );
    }
    println!("record: {}", file.display());
    assert!(unexpected.is_empty(), "lines that nothing explains: {unexpected:#?}");
    assert!(compared.iter().all(|it| it.is_met), "{compared:#?}");
}

/// Compares the first fifth after the warm-up with the last fifth of the whole run.
fn compare(samples: &[Sample], total: Duration) -> Vec<Compared> {
    let (fifth, warm_up) = ((total / 5).as_secs(), (total / 5).min(WARM_UP_MAX).as_secs());
    let part =
        |from: u64| samples.iter().filter(move |it| (from..from + fifth).contains(&it.second));
    let medians = |value: &dyn Fn(&Sample) -> Option<f64>| {
        [warm_up, total.as_secs() - fifth].map(|from| {
            let mut values: Vec<f64> = part(from).filter_map(value).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
        })
    };
    let compared = |what: &str, [first, last]: [f64; 2], allowed_change: f64| {
        let is_met = (last - first).abs() <= allowed_change;
        Compared { what: what.into(), first, last, allowed_change, is_met }
    };
    let mut all = Vec::new();
    for (place, role) in ["receivebox", "sendbox"].into_iter().enumerate() {
        let rss = medians(&|it| Some(it.rss_kib[place] as f64));
        all.push(compared(&format!("memory of the {role} (KiB)"), rss, rss[0] * MEMORY_CHANGE));
    }
    let delivered = medians(&|it| Some(it.delivered_bps as f64 / 1e6));
    all.push(compared("delivered (Mbit/s)", delivered, delivered[0] * RATE_CHANGE));
    let own = medians(&|it| it.own_queue_ms);
    all.push(compared("queue of the bundle (ms)", own, DELAY_CHANGE_MS));
    let network = medians(&|it| it.network_queue_ms);
    all.push(compared("queue in the network (ms)", network, DELAY_CHANGE_MS));
    all
}

/// Two sites, a link and two boxes.
struct Scene {
    topology: Topology,
    folder: tempfile::TempDir,
    emulator: Child,
    /// Receivebox and sendbox.
    boxes: [Child; 2],
}

/// Roles of the two boxes, in the order of their files and sockets.
const ROLES: [&str; 2] = ["receivebox", "sendbox"];

impl Scene {
    fn set_up() -> Self {
        let topology = Topology::build(1, None).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let emulator = start_emulator(&topology.emulator, folder.path());
        keys::generate(&folder.path().join("bundle.key")).unwrap();
        let sites = &topology.pairs[0];
        let namespaces = [&sites.right_box, &sites.left_box];
        let boxes = [0, 1].map(|place| {
            let role = ROLES[place];
            let config = folder.path().join(format!("{role}.toml"));
            fs::write(&config, config_text(role, 0)).unwrap();
            let log = File::create(folder.path().join(format!("{role}.log"))).unwrap();
            command(namespaces[place], role, &config).stderr(log).spawn().unwrap()
        });
        let scene = Self { topology, folder, emulator, boxes };
        await_that("both boxes hear each other", || {
            scene.statuses().iter().flat_map(|it| &it.bundles).all(|it| it.peer.state == "alive")
        });
        scene.topology.set_offloads().unwrap();
        scene
    }

    fn statuses(&self) -> [Status; 2] {
        ROLES.map(|role| await_status(&self.folder.path().join(format!("{role}.sock"))))
    }

    /// Begins to send as fast as TCP can.
    fn send(&self) -> Flows {
        let sites = &self.topology.pairs[0];
        let target = (Site::RightHosts.address(0), PORT);
        let listener = sites.right_hosts.within(|| TcpListener::bind(target)).unwrap();
        let (mut senders, mut threads) = (Vec::new(), Vec::new());
        for _ in 0..FLOWS {
            let sender = sites.left_hosts.within(|| TcpStream::connect(target)).unwrap();
            setsockopt(&sender, sockopt::TcpCongestion, &OsString::from("cubic")).unwrap();
            let (mut receiver, _) = listener.accept().unwrap();
            senders.push(sender.try_clone().unwrap());
            let mut sender = sender;
            threads.push(thread::spawn(move || while sender.write_all(&[7; 16_384]).is_ok() {}));
            threads.push(thread::spawn(move || {
                let mut chunk = vec![0; 1 << 16];
                while receiver.read(&mut chunk).is_ok_and(|len| len > 0) {}
            }));
        }
        Flows { senders, threads }
    }

    fn act(&self, action: Action, number: usize) {
        match action {
            Action::OtherRate => {
                let config = self.folder.path().join("sendbox.toml");
                replace(&config, &config_text("sendbox", number));
                self.reload(&[1]);
            }
            Action::Flap(site) => {
                let sites = &self.topology.pairs[0];
                let is_left = site == Site::LeftBox;
                let namespace = if is_left { &sites.left_box } else { &sites.right_box };
                ip(namespace, "link set dev wan down\n");
                thread::sleep(DOWN);
                ip(namespace, "link set dev wan up\n");
            }
            Action::Keys(step) => {
                self.change_keys(step);
                self.reload(&[0, 1]);
            }
        }
    }

    fn change_keys(&self, step: Keys) {
        let file = self.folder.path().join("bundle.key");
        let known = fs::read_to_string(&file).unwrap();
        let mut lines: Vec<&str> = known.lines().collect();
        let more = self.folder.path().join("next.key");
        let next = match step {
            Keys::Added => {
                keys::generate(&more).unwrap();
                let next = fs::read_to_string(&more).unwrap();
                fs::remove_file(&more).unwrap();
                next
            }
            Keys::Turned => {
                lines.reverse();
                String::new()
            }
            Keys::Dropped => {
                lines.truncate(1);
                String::new()
            }
        };
        lines.extend(next.lines());
        replace(&file, &(lines.join("\n") + "\n"));
    }

    /// Has boxes read their files again.
    fn reload(&self, places: &[usize]) {
        for place in places {
            kill(Pid::from_raw(self.boxes[*place].id() as i32), Signal::SIGHUP).unwrap();
        }
    }

    fn sample(&mut self, second: u64) -> Sample {
        for one in &mut self.boxes {
            assert!(one.try_wait().unwrap().is_none(), "a box has ended: {:?}", self.folder.path());
        }
        let [_, sendbox] = self.statuses();
        let shaping = sendbox.bundles[0].shaping.as_ref().unwrap();
        let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e6);
        Sample {
            second,
            delivered_bps: shaping.last_second.delivered_bps,
            own_queue_ms: ms(shaping.last_second.queue_delay_ns),
            network_queue_ms: ms(shaping.decision.queue_delay_ns),
            state: shaping.decision.state.clone(),
            rss_kib: self.boxes.each_ref().map(rss_kib),
        }
    }

    /// Ends all programs; the lines of both logs.
    fn stop(mut self) -> Vec<String> {
        for one in self.boxes.iter_mut().rev() {
            kill(Pid::from_raw(one.id() as i32), Signal::SIGTERM).unwrap();
            assert!(one.wait().unwrap().success());
        }
        // It ends with its stdin.
        drop(self.emulator.stdin.take());
        assert!(self.emulator.wait().unwrap().success());
        let log =
            |role| fs::read_to_string(self.folder.path().join(format!("{role}.log"))).unwrap();
        ROLES.map(log).iter().flat_map(|log| log.lines()).map(str::to_string).collect()
    }
}

/// The load: the senders and their threads.
struct Flows {
    senders: Vec<TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Flows {
    fn finish(self) {
        for sender in &self.senders {
            sender.shutdown(Shutdown::Both).unwrap();
        }
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

/// Starts the link between the sites, which keeps no record.
fn start_emulator(namespace: &Namespace, folder: &Path) -> Child {
    let queue = Spec::named("fifo").with("limit", Value::Text("480KB".into()));
    let link = |name| {
        let (rate, delay) = (Rate::from_bits_per_sec(RATE_BPS), Duration::from_millis(10));
        Link::at_rate(name, rate, delay, queue.clone())
    };
    let (left, right) = ("left0".into(), "right0".into());
    let spec = EmulatorSpec {
        seed: 1,
        pairs: vec![DevicePair { left, right, beside: None }],
        forward: link("forward"),
        reverse: link("reverse"),
        own: Vec::new(),
        out: None,
        keeps_headers: false,
        cpu: None,
        routed: false,
    };
    let file = folder.join("emulator.json");
    fs::write(&file, serde_json::to_vec(&spec).unwrap()).unwrap();
    let mut emulator = Command::new(crate::forebay());
    emulator.args(["role", "emulator", "--spec"]).arg(file);
    namespace.host(&mut emulator).unwrap();
    let mut emulator = emulator.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(emulator.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    let stdin = emulator.stdin.as_mut().unwrap();
    writeln!(stdin, "start {}", clock::now().as_nanos()).unwrap();
    emulator
}

/// Configuration of a box. For a sendbox, `number` chooses another `max_rate`.
fn config_text(role: &str, number: usize) -> String {
    let [left, right] = [Site::LeftBox, Site::RightBox];
    let (own, peer) = if role == "sendbox" { (left, right) } else { (right, left) };
    let (lan, shaping) = match role {
        "sendbox" => {
            let max_rate = 200 + number % 7;
            ("lan = \"lan\"\n", format!("cc = \"copa\"\nmax_rate = \"{max_rate}Mbit/s\"\n"))
        }
        _ => ("", String::new()),
    };
    format!(
        "[box]\nrole = \"{role}\"\n{lan}wan = \"wan\"\nlisten = \"{}\"\ncontrol = \"{role}.sock\"\n\n\
         [[bundle]]\nname = \"b\"\nid = 1\npeer = \"{}\"\nto = [\"{}\"]\nfrom = [\"{}\"]\n\
         key_file = \"bundle.key\"\n{shaping}",
        own.address(0),
        peer.address(0),
        Site::RightHosts.host_prefix(0),
        Site::LeftHosts.host_prefix(0),
    )
}

/// Writes a file whole, for a box may be reading it.
fn replace(file: &Path, text: &str) {
    let partial: PathBuf = file.with_extension("partial");
    let mut options = OpenOptions::new();
    let mut written =
        options.write(true).create(true).truncate(true).mode(0o600).open(&partial).unwrap();
    written.write_all(text.as_bytes()).unwrap();
    fs::rename(&partial, file).unwrap();
}

/// Memory of a process that is in main memory (proc_pid_status(5)).
fn rss_kib(process: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let row = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    row.trim().trim_end_matches(" kB").parse().unwrap()
}
