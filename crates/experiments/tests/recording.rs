//! A path that a bundle records on the testbed, replayed in the simulator.
//!
//! ```text
//! emu    a link whose rate and delay change  --record-->  archive  -->  path.csv
//! sim    the same plan with path.csv, and with one rate and one round trip instead
//! ```
#![cfg(feature = "host")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use forebay_core::link::{Change, PathTrace};
use forebay_core::record::{path_csv, path_times};
use forebay_host::daemon::record::Paths;
use forebay_lab::metrics::Address;
use forebay_lab::store::{Run, Store};
use forebay_skips::{Need, skip_without};

/// Length of a recording (s).
const STOP_S: usize = 60;
/// From this time on a recording counts (s).
const FROM_S: usize = 5;
/// Bounds on the medians: goodput and queueing delay relative to the testbed's.
const SHARE_MAX: f64 = 0.1;
/// Bound on a small queueing delay (ms); the larger bound counts.
const QUEUE_MS_MAX: f64 = 2.0;
/// Bound on the correlation of the goodput in each second.
const CORRELATION_MIN: f64 = 0.9;
/// Before the traffic, single packets of the hosts carry less (bits per second).
const TRAFFIC_BPS: u64 = 1_000_000;
/// The rate grows and falls by a factor of three and more, and the delay by 20 ms each way.
const LINK: &str = "time_s,rate_mbps,rtt_ms\n0,24,40\n10,60,40\n20,18,40\n30,18,80\n35,40,80\n45,12,80\n52,36,40\n60,,\n";

/// The plan over a bottleneck with these keys. The bundle has all defaults, and every queue can fill.
fn plan(bottleneck: &str) -> String {
    format!(
        "name   = \"recording\"\nstop   = \"{STOP_S}s\"\nwarmup = \"{FROM_S}s\"\n\n\
         [bottleneck]\n{bottleneck}\nqdisc = {{ kind = \"fifo\", limit = \"200p\" }}\n\n\
         [[bundle]]\nname = \"a\"\ncc   = \"copa\"\n\n\
         [[flow]]\nname    = \"bulk\"\nbundle  = \"a\"\ncc      = \"cubic\"\ncount   = 8\n\
         traffic = {{ kind = \"greedy\" }}\n\n\
         [[flow]]\nname    = \"ping\"\nbundle  = \"a\"\ntraffic = {{ kind = \"ping\" }}\n"
    )
}

/// Figures of one run.
struct Figures {
    goodput_mbps: f64,
    /// Mean queueing delays (ms): of packets at the bottleneck, and of a sparse flow on the whole path.
    queues_ms: [f64; 2],
    /// Goodput in each second (Mbit/s).
    seconds: Vec<f64>,
    invalid: Vec<String>,
}

/// The folder of one recording.
struct Folder(tempfile::TempDir);

impl Folder {
    fn forebay(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
        command.current_dir(self.0.path()).args(arguments);
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Starts a run; its results go to the folder `backend` and the name.
    fn start(&self, name: &str, bottleneck: &str, backend: &str, seed: &str) -> Child {
        let file = format!("{name}.toml");
        fs::write(self.path(&file), plan(bottleneck)).unwrap();
        let arguments = ["run", &file, "--backend", backend, "--seed", seed, "--out", name];
        let mut command = self.forebay(&[&arguments[..], &["--quiet"]].concat());
        if backend == "emu" {
            command.args(["--keep-logs", "logs"]);
        }
        command.stdout(Stdio::null()).spawn().unwrap()
    }

    fn figures(&self, name: &str) -> Figures {
        let store = Store::open(&self.path(name)).unwrap();
        let id = *store.run_ids().unwrap().last().unwrap();
        let run = store.run(id).unwrap();
        let bins = store.series(id, "flow", "bulk", "throughput_mbps").unwrap();
        let mut seconds = vec![0.0; STOP_S];
        for (at_s, mbps) in bins {
            if let Some(second) = seconds.get_mut(at_s as usize) {
                *second += mbps / 10.0;
            }
        }
        Figures {
            goodput_mbps: metric(&run, "flows/bulk/goodput_mbps"),
            queues_ms: ["links/forward/sojourn_mean_ms", "flows/ping/ping_queueing_mean_ms"]
                .map(|address| metric(&run, address)),
            seconds: seconds.split_off(FROM_S),
            invalid: run.invalid,
        }
    }
}

fn metric(run: &Run, address: &str) -> f64 {
    let address: Address = address.parse().unwrap();
    run.get(&address).unwrap_or_else(|| panic!("{address} is missing"))
}

/// The control socket of the sendbox of a run that begins.
fn socket(logs: &Path) -> PathBuf {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let runs = fs::read_dir(logs).into_iter().flatten().flatten();
        let sockets = runs.map(|run| run.path().join("sendbox-0-forward.sock"));
        if let Some(socket) = sockets.into_iter().find(|socket| socket.exists()) {
            return socket;
        }
        assert!(Instant::now() < until, "no sendbox in {}", logs.display());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Records once. Gives the share of the time that is measured (%), and the figures of the testbed, of the replay, and of
/// the plan without the trace.
fn record(seed: usize) -> (f64, [Figures; 3]) {
    let folder = Folder(tempfile::tempdir().unwrap());
    fs::write(folder.path("link.csv"), LINK).unwrap();
    let seed = seed.to_string();
    let mut emulated = folder.start("emu", "trace = \"link.csv\"\nrtt = \"40ms\"", "emu", &seed);
    let socket = socket(&folder.path("logs"));
    // The boxes start before the traffic.
    let minutes = (STOP_S as f64 / 60.0 + 0.1).to_string();
    let from = socket.to_str().unwrap();
    let arguments = ["record", "--minutes", &minutes, "--socket", from, "--out", "a.tar.gz"];
    let until = Instant::now() + Duration::from_secs(20);
    // The socket may not answer yet.
    while !folder.forebay(&arguments).output().unwrap().status.success() {
        assert!(Instant::now() < until, "the sendbox does not answer");
        std::thread::sleep(Duration::from_millis(100));
    }
    emulated.wait().unwrap();
    let paths = Paths::read_archive(&folder.path("a.tar.gz")).unwrap();
    // The trace begins with the traffic, as the run does.
    let rows = paths.of(Some("a")).unwrap().1;
    let rows = &rows[rows.iter().position(|row| row.rate_bps > TRAFFIC_BPS).unwrap()..];
    let [whole, measured] = path_times(rows).map(|time| time.as_secs_f64());
    let share = 100.0 * measured / whole;
    // The replayed queue drops packets itself.
    let trace = PathTrace::parse("path.csv", &path_csv(rows)).unwrap();
    let trace = trace.only(|row| Change { loss: None, ..row }).unwrap();
    fs::write(folder.path("path.csv"), trace.to_string()).unwrap();
    let rate = trace.mean_rate().unwrap();
    let least = trace.rows().iter().filter_map(|row| row.delay).min().unwrap();
    let rtt_us = 2 * least.as_micros();
    let replayed = format!("trace = \"path.csv\"\ntrace_end = \"hold\"\nrtt = \"{rtt_us}us\"");
    let without = format!("rate = \"{rate}\"\nrtt = \"{rtt_us}us\"");
    for (name, keys) in [("sim", replayed), ("none", without)] {
        assert!(folder.start(name, &keys, "sim", &seed).wait().unwrap().success());
    }
    (share, ["emu", "sim", "none"].map(|name| folder.figures(name)))
}

/// Goodput relative to the testbed's, correlation, and differences of both queues (ms; and as a share).
struct Compared {
    goodput: f64,
    correlation: f64,
    queues: [(f64, f64); 2],
}

fn compared(real: &Figures, found: &Figures) -> Compared {
    let queue = |place: usize| {
        let more = (found.queues_ms[place] - real.queues_ms[place]).abs();
        (more, more / real.queues_ms[place])
    };
    Compared {
        goodput: found.goodput_mbps / real.goodput_mbps,
        correlation: correlation(&real.seconds, &found.seconds),
        queues: [queue(0), queue(1)],
    }
}

/// Pearson's; 0 if one of them never changes.
fn correlation(one: &[f64], other: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (of_one, of_other) = (mean(one), mean(other));
    let (mut both, mut squares) = (0.0, [0.0; 2]);
    for (x, y) in one.iter().zip(other) {
        both += (x - of_one) * (y - of_other);
        squares[0] += (x - of_one).powi(2);
        squares[1] += (y - of_other).powi(2);
    }
    let product: f64 = squares.iter().product();
    if product > 0.0 { both / product.sqrt() } else { 0.0 }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// Whether the medians are within all bounds; prints them.
fn is_within(name: &str, all: &[Compared]) -> bool {
    let goodput = median(all.iter().map(|it| it.goodput));
    let correlation = median(all.iter().map(|it| it.correlation));
    let queues = [0, 1].map(|place| {
        let of =
            |value: fn((f64, f64)) -> f64| median(all.iter().map(|it| value(it.queues[place])));
        (of(|it| it.0), of(|it| it.1))
    });
    println!(
        "median, {name}: goodput x {goodput:.3}, correlation {correlation:.3}, queueing delay differs by {:.1} ms \
         ({:.0} %) at the bottleneck and {:.1} ms ({:.0} %) on the whole path",
        queues[0].0,
        100.0 * queues[0].1,
        queues[1].0,
        100.0 * queues[1].1
    );
    (goodput - 1.0).abs() <= SHARE_MAX
        && correlation >= CORRELATION_MIN
        && queues.iter().all(|(ms, share)| *ms <= QUEUE_MS_MAX || *share <= SHARE_MAX)
}

#[test]
#[ignore = "six minutes of real traffic: make test-recording"]
fn replay_matches_five_recordings() {
    assert!(!skip_without(Need::Root), "no root");
    let wanted = std::env::var("RECORDINGS").map_or(5, |it| it.parse().unwrap());
    let (mut replayed, mut without, mut invalid) = (Vec::new(), Vec::new(), Vec::new());
    println!(
        "| recording | measured (%) | run | goodput (Mbit/s) | ratio | correlation | queueing delay at the bottleneck (ms) \
         | on the whole path (ms) |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for seed in 1..=wanted {
        let (share, [real, sim, none]) = record(seed);
        let rows = [&real, &sim, &none].map(|found| compared(&real, found));
        let runs = [("testbed", &real), ("replay", &sim), ("without trace", &none)];
        for ((name, found), row) in runs.iter().zip(&rows) {
            let Figures { goodput_mbps, queues_ms: [there, whole], .. } = found;
            println!(
                "| {seed} | {share:.0} | {name} | {goodput_mbps:.2} | {:.3} | {:.3} | {there:.1} | {whole:.1} |",
                row.goodput, row.correlation
            );
        }
        invalid.extend(real.invalid);
        let [_, of_replay, of_none] = rows;
        replayed.push(of_replay);
        without.push(of_none);
    }
    let is_replay_near = is_within("replay", &replayed);
    let is_other_near = is_within("without trace", &without);
    assert!(invalid.is_empty(), "the machine was busy: {invalid:#?}");
    assert!(is_replay_near, "the replay is not within the bounds");
    assert!(!is_other_near, "the plan without its trace is within the bounds, too");
}
