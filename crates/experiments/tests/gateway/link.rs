//! The bottleneck between two sites: the emulator as a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use forebay_core::record::{LinkRecord, PacketRecord};
use forebay_core::units::Rate;
use forebay_host::clock;
use forebay_scenario::Link;
use forebay_testbed::emulator::{DevicePair, EmulatorSpec, LINKS_FILE, packets_file, read_packets};
use forebay_testbed::namespace::Namespace;
use tempfile::TempDir;

use crate::load::Span;
use crate::machine::without_offloads;

/// Rate of the bottleneck.
pub const RATE_BPS: u64 = 20_000_000;
/// One way.
const DELAY: Duration = Duration::from_millis(10);
/// Some 150 ms.
const QUEUE: &str = "fifo(limit=250p)";

/// A bottleneck, which ends with this.
pub struct Bottleneck {
    process: Child,
    folder: TempDir,
    _middle: Namespace,
}

/// Record of the direction to the right.
pub struct Seen {
    forward: LinkRecord,
    packets: Vec<PacketRecord>,
}

impl Bottleneck {
    /// Between the devices `left` and `right` of `middle`.
    pub fn start(middle: Namespace) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for device in ["left", "right"] {
            without_offloads(&middle, device);
        }
        let forward = Link::at_rate(
            "forward",
            Rate::from_bits_per_sec(RATE_BPS),
            DELAY,
            QUEUE.parse().unwrap(),
        );
        let reverse = Link::delay("reverse", forward.delay);
        let spec = EmulatorSpec {
            seed: 1,
            pairs: vec![DevicePair { left: "left".into(), right: "right".into(), beside: None }],
            forward,
            reverse,
            own: Vec::new(),
            out: Some(folder.path().into()),
            keeps_headers: false,
            cpu: None,
            routed: false,
        };
        let file = folder.path().join("spec.json");
        std::fs::write(&file, serde_json::to_vec(&spec).unwrap()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
        command.args(["role", "emulator", "--spec"]).arg(&file);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        middle.host(&mut command).unwrap();
        let mut process = command.spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        let start = format!("start {}\n", clock::now().as_nanos());
        process.stdin.as_mut().unwrap().write_all(start.as_bytes()).unwrap();
        Self { process, folder, _middle: middle }
    }

    /// Ends the bottleneck and returns its record of the direction to the right.
    pub fn finish(mut self) -> Seen {
        drop(self.process.stdin.take());
        assert!(self.process.wait().unwrap().success());
        let file: PathBuf = self.folder.path().join(LINKS_FILE);
        let [forward, _]: [LinkRecord; 2] =
            serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        assert_eq!((forward.drops_ring, forward.records_lost), (0, 0), "{} lost", forward.name);
        let packets = read_packets(&packets_file(self.folder.path(), &forward.name)).unwrap();
        Seen { forward, packets }
    }
}

impl Seen {
    /// Mean packets that waited during a span.
    pub fn mean_packets(&self, span: &Span) -> f64 {
        let samples = self.forward.queue.iter();
        let within = samples.filter(|it| (span.from_ns..span.to_ns).contains(&it.at_ns));
        let packets: Vec<u64> = within.map(|sample| sample.packets).collect();
        assert!(!packets.is_empty(), "no samples in {span:?}");
        packets.iter().sum::<u64>() as f64 / packets.len() as f64
    }

    /// The rate at which frames left during a span.
    pub fn rate_bps(&self, span: &Span) -> f64 {
        let packets = self.packets.iter();
        let within = packets.filter(|it| (span.from_ns..span.to_ns).contains(&it.departed_ns));
        let bytes: u64 = within.map(|packet| u64::from(packet.bytes)).sum();
        8e9 * bytes as f64 / (span.to_ns - span.from_ns) as f64
    }
}

impl Drop for Bottleneck {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
