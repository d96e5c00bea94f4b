//! A flood of messages that look like the receivebox's, during a running bundle.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_host::daemon::config::DEFAULT_PORT;
use forebay_host::daemon::control::{self, Answer, Request};
use forebay_host::daemon::status::MessageCounters;
use forebay_host::port::{Direction, PacketPort, Port};
use forebay_host::testbed;
use nix::sched::{CloneFlags, setns};

use crate::{SECOND, bundle, forebay, scenario};

/// Datagrams of each kind.
const EACH: usize = 200_000;
const KINDS: usize = 5;
/// The time before the flood that it is compared with.
const CALM: Duration = Duration::from_secs(2);

/// Byte offsets in a frame without IP options.
const IP: usize = 14;
const UDP: usize = 34;
const PAYLOAD: usize = 42;

#[test]
fn a_million_bad_messages_are_counted_and_change_nothing() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let scenario = scenario(20, bundle("copa", "sfq"), None);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_path_buf();
    let attacker = std::thread::spawn(move || attack(&path));
    let record = testbed::run_with(&forebay(), &scenario, folder.path(), &mut |_| {}).unwrap();
    let (flood, before, after) = attacker.join().unwrap();

    let rejected = |counters: &MessageCounters| -> BTreeMap<String, u64> {
        counters.rejected.iter().cloned().collect()
    };
    let (before, after) = (rejected(&before), rejected(&after));
    let new = |kind: &str| after.get(kind).unwrap_or(&0) - before.get(kind).unwrap_or(&0);
    for kind in ["forged", "replayed", "truncated", "oversized", "not_the_peer"] {
        assert!(new(kind) as usize > EACH / 2, "{kind}: {after:?}");
    }
    // While the flood lasts, and some round trips later, the bundle is shaped as before.
    let rates = |from_ns: u64, to_ns: u64| -> Vec<u64> {
        let decisions = record.bundles[0].decisions.iter();
        let during = decisions.filter(|decision| (from_ns..to_ns).contains(&decision.at_ns));
        during.map(|decision| decision.rate_bps.unwrap_or(u64::MAX)).collect()
    };
    let calm = rates(flood.0 - CALM.as_nanos() as u64, flood.0);
    let flooded = rates(flood.0, flood.1 + SECOND);
    let (least, most) = (calm.iter().min().unwrap(), calm.iter().max().unwrap());
    println!("{} s of flood, calm {least}..{most}", (flood.1 - flood.0) as f64 / 1e9);
    println!("flooded {:?}..{:?}", flooded.iter().min(), flooded.iter().max());
    // Twice the spread: the flood's sender takes one of perhaps two cores from the emulation.
    let is_as_before = |rate: &u64| (least / 2..=most * 2).contains(rate);
    assert!(flooded.len() > 5 && flooded.iter().all(is_as_before), "{flooded:?}");
    let cores = record.host.cpu_cores.iter().find(|(name, _)| name.starts_with("sendbox")).unwrap();
    assert!(cores.1 <= 1.0, "{cores:?}");
    assert!(record.flows.iter().all(|flow| !flow.failed && flow.bytes > 0));
}

/// Waits until the bundle is shaped, records what the receivebox says, and floods. Answers when
/// (ns), and the sendbox's counters before and after.
fn attack(folder: &Path) -> ((u64, u64), MessageCounters, MessageCounters) {
    let socket = folder.join("sendbox-0-forward.sock");
    // Another emulation of this machine may come first.
    wait_until("the bundle to be shaped", 900, || {
        status(&socket).is_some_and(|(_, is_shaped)| is_shaped)
    });
    // The start's own overshoot is over after a second or two.
    std::thread::sleep(2 * CALM);
    let genuine = record_messages(&namespace_of("sendbox-0-forward.toml", folder));
    let frames: Vec<Vec<u8>> = (0..KINDS).map(|kind| spoil(&genuine, kind)).collect();
    let before = status(&socket).unwrap().0;
    let emulator = namespace_of("emulator", folder);
    let start = forebay_host::clock::now().as_nanos();
    within(&emulator, move || {
        let mut port = PacketPort::open("left0", Direction::Transmit).unwrap();
        for _ in 0..EACH {
            for frame in &frames {
                while !port.send(frame) {
                    std::thread::yield_now();
                }
            }
        }
    });
    let end = forebay_host::clock::now().as_nanos();
    // What stands in the socket's buffer is read within moments.
    std::thread::sleep(Duration::from_millis(300));
    ((start, end), before, status(&socket).unwrap().0)
}

/// The counters of messages, and whether the bundle is shaped.
fn status(socket: &Path) -> Option<(MessageCounters, bool)> {
    let Ok(Answer::Status(status)) = control::ask(socket, Request::Status) else { return None };
    let shaping = status.bundles[0].shaping.as_ref()?;
    Some((status.messages.clone(), shaping.decision.rate_bps.is_some()))
}

/// A frame with reports, as it reached the sendbox's box.
fn record_messages(namespace: &File) -> Vec<u8> {
    within(namespace, || {
        let mut port = PacketPort::open("wan", Direction::Receive).unwrap();
        let mut found = None;
        wait_until("a report", 10, || {
            port.receive(64, &mut |frame| {
                let is_ours = frame.len() > PAYLOAD + 24
                    && frame[UDP + 2..UDP + 4] == DEFAULT_PORT.to_be_bytes()
                    && frame[PAYLOAD..PAYLOAD + 4] == *b"FBAY"
                    && frame[PAYLOAD + 5] == 5;
                if is_ours {
                    found = Some(frame.to_vec());
                }
            })
            .unwrap();
            found.is_some()
        });
        found.unwrap()
    })
}

/// Turns a genuine frame into a bad one, with right lengths and checksums below UDP.
fn spoil(genuine: &[u8], kind: usize) -> Vec<u8> {
    let mut frame = genuine.to_vec();
    match kind {
        // Replayed as it is.
        0 => {}
        // Forged: a later sequence number without the key.
        1 => frame[PAYLOAD + 20] ^= 1,
        // Truncated.
        2 => frame.truncate(genuine.len() - 9),
        // Oversized.
        3 => frame.resize(1400, 0),
        // From another port.
        _ => frame[UDP] ^= 1,
    }
    let length = frame.len();
    frame[IP + 2..IP + 4].copy_from_slice(&((length - IP) as u16).to_be_bytes());
    frame[UDP + 4..UDP + 6].copy_from_slice(&((length - UDP) as u16).to_be_bytes());
    // None, as IPv4 allows (RFC 768).
    frame[UDP + 6..UDP + 8].fill(0);
    frame[IP + 10..IP + 12].fill(0);
    let words = frame[IP..UDP].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    frame[IP + 10..IP + 12].copy_from_slice(&(!folded as u16).to_be_bytes());
    frame
}

/// The network namespace of the program of this run with `mark` in its command line.
fn namespace_of(mark: &str, folder: &Path) -> File {
    let folder = folder.to_str().unwrap();
    let is_it = |entry: &fs::DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains(mark) && line.contains(folder)
    };
    let process: PathBuf =
        fs::read_dir("/proc").unwrap().flatten().find(is_it).expect("it runs").path();
    File::open(process.join("ns/net")).unwrap()
}

/// Runs `work` in a network namespace, on a thread of its own.
fn within<T: Send>(namespace: &File, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        });
        inside.join().unwrap()
    })
}

fn wait_until(what: &str, seconds: u64, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while !done() {
        assert!(Instant::now() < deadline, "waited {seconds} s for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
