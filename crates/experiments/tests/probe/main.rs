//! `forebay probe` on real traffic over emulated paths.
#![cfg(feature = "host")]

mod gain;
mod net;
mod paths;

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use forebay_core::units::Rate;
use forebay_host::daemon::record::{PROBED, Paths};
use forebay_scenario::Link;
use forebay_skips::{Need, skip_without};

use self::net::{Net, Peer};

/// A link with this rate, one-way delay in each direction, and queue.
fn link(mbit_per_sec: u64, delay_ms: u64, qdisc: &str) -> Link {
    let (rate, delay) = (Rate::from_mbit_per_sec(mbit_per_sec), Duration::from_millis(delay_ms));
    Link::at_rate("forward", rate, delay, qdisc.parse().unwrap())
}

#[test]
fn queue_in_the_middle_is_found() {
    if skip_without(Need::Root) {
        return;
    }
    let net = Net::new(None, &[link(10, 10, "fifo(limit=100p)")], Peer::Answers);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("path.tar.gz");
    let text = net.probe(&["--seconds", "4", "--record", file.to_str().unwrap()]);
    for expected in [
        "path to 10.77.9.1:61477, which answers probes; load: 8 connections with cubic",
        "|idle",
        "|8 send",
        " before 10.77.1.2; ",
        "would a bundle help? yes: this site's own traffic fills a queue in the network",
        "it does only if this site sends most of the traffic there (--share)",
    ] {
        assert!(text.contains(expected), "{expected:?} in:\n{text}");
    }
    // The picture ends high: 100 packets are 120 ms.
    assert!(text.contains('▁') && text.contains('█'), "{text}");
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let paths = Paths::read_archive(&file).unwrap();
    let (_, rows) = paths.of(Some(PROBED)).unwrap();
    let measured: Vec<u64> =
        rows.iter().filter(|row| row.is_measured).map(|row| row.rate_bps).collect();
    let mean_bps = measured.iter().sum::<u64>() / measured.len() as u64;
    assert!(measured.len() > 20 && (9_000_000..10_500_000).contains(&mean_bps), "{rows:?}");
    assert!(rows.iter().all(|row| (20_000_000..25_000_000).contains(&row.rtt_ns)), "{rows:?}");
    let [link] = &net.finish()[..] else { panic!("one link") };
    assert!(link.drops_queue > 0 && link.drops_ring == 0, "{link:?}");
}

#[test]
fn missing_peer_fails_and_ambiguous_peer_is_refused() {
    for (arguments, code, expected) in [
        (&["127.0.0.1:1"][..], 1, "refused"),
        (&["224.0.0.1"], 2, "allowed is the address of one machine"),
        (&["192.0.2.1", "--seconds", "61"], 2, "--seconds 61: allowed is 3 to 60"),
        (&["192.0.2.1", "--gentle", "--flows", "9"], 2, "cannot be used with"),
        (&["192.0.2.1", "--share", "0"], 2, "percent above 0 and up to 100"),
        (&["192.0.2.1", "--share=-5"], 2, "percent above 0 and up to 100"),
        (&["192.0.2.1", "--share", "-5"], 2, "percent above 0 and up to 100"),
        (&["192.0.2.1", "--share", "101"], 2, "percent above 0 and up to 100"),
        (&["192.0.2.1", "--share", "most"], 2, "percent above 0 and up to 100"),
        (&["192.0.2.1", "--http", "upload"], 2, "allowed is a path such as /upload"),
        (&["192.0.2.1", "--gentle", "--record", "x"], 2, "cannot be used with"),
        (&["192.0.2.1", "--record", "/dev/null"], 2, "--record /dev/null: allowed is a new file"),
        (&["127.0.0.1:1", "--cc", "warp"], 2, "allowed is one of "),
        (&[], 2, "required"),
    ] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
        let output = command.arg("probe").args(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}
