//! Windows and rates between decisions: unused windows, and the socket's own pacing.

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use forebay_core::cc::interim::{self, Terms};
use forebay_core::units::Rate;

use super::super::{
    Cadence, Datapath, Decision, Native, NativeKind, Options, Record, Report, Reporting,
};
use super::loopback::{connect, fresh_name, options, set_option, sink, tcp_info, until};
use super::loss::stream_on;
use crate::program::tests::loaded;
use crate::program::tests::{command, in_namespace};

/// The reports that wait; each connection's newest record is answered by `decide`.
fn answer(datapath: &mut Datapath, mut decide: impl FnMut(&Record) -> Decision) -> Vec<Report> {
    let mut taken = Vec::new();
    datapath.drain(&mut |record| taken.push(record)).expect("drained");
    if let Some(last) = taken.last() {
        datapath.decide(last.head(), &decide(last));
    }
    let reports = taken.into_iter().filter_map(|record| match record {
        Record::Report(report) => Some(report),
        Record::Opened(_) => None,
    });
    reports.collect()
}

#[test]
fn window_unused_for_a_timeout_decays_and_reports() {
    let after_idle = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_slow_start_after_idle");
    assert_eq!(after_idle.expect("a setting").trim(), "1");
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    let (address, received) = sink(1);
    let mut stream = connect(address, datapath.name());
    stream.set_nodelay(true).expect("set");
    let terms = Terms { beta: 512, ..Terms::default() };
    let (mut is_set, mut bytes) = (false, 0);
    let (mut windows, mut told) = (vec![100], Vec::new());
    until("three timeouts", || {
        // One segment at a time.
        stream.write_all(&[7; 1000]).expect("sent");
        bytes += 1000;
        let reports = answer(&mut datapath, |record| {
            is_set |= record.head().cwnd == 100;
            let cwnd = (!is_set).then_some(100);
            Decision { cwnd, terms, ..Decision::default() }
        });
        for report in reports {
            let cwnd = report.head.cwnd;
            if is_set && windows.last() != Some(&cwnd) {
                windows.push(cwnd);
            }
            if let Some(used) = report.underused {
                told.push((used, cwnd));
            }
        }
        windows.len() > 3 && told.len() > 2
    });
    let mut expected = interim::HostWindow::new(100, 0, 0);
    let falls: Vec<u32> = (0..windows.len())
        .map(|_| {
            let cwnd = expected.cwnd;
            expected.on_underused(1);
            cwnd
        })
        .collect();
    assert_eq!(windows, falls);
    // The record that reports it is the record of the fall, or comes soon after it.
    assert!(told.iter().all(|(used, cwnd)| *used <= 10 && falls.contains(cwnd)), "{told:?}");
    assert_eq!(told[..3].iter().map(|(_, cwnd)| *cwnd).collect::<Vec<u32>>(), falls[1..4]);
    drop(stream);
    assert_eq!(received.join().expect("received"), bytes);
}

#[test]
fn max_pacing_rate_of_socket_outlives_decisions() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    /// Pacing rate that the socket requests, in bytes per second.
    const ASKED: u32 = 20_000_000;
    let (address, received) = sink(1);
    let stream = connect(address, datapath.name());
    set_option(&stream, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &ASKED.to_ne_bytes());
    let (socket, end, sender) = stream_on(stream);
    drop(socket);
    let reporting =
        Reporting { cadence: Cadence::Round { at_least: Duration::from_millis(1) }, wake: false };
    let decided = Rate::from_bits_per_sec(8 * u64::from(ASKED) / 4);
    let paced =
        Decision { cwnd: Some(100), pacing_rate: Some(decided), reporting, ..Decision::default() };
    until("the rate of a decision", || {
        let reports = answer(&mut datapath, |_| paced);
        reports.last().is_some_and(|last| last.pacing_rate == decided)
    });
    let unpaced = Decision { pacing_rate: None, ..paced };
    let mut heads = Vec::new();
    until("a second without one", || {
        let reports = answer(&mut datapath, |_| unpaced);
        let is_ended = |report: &&Report| report.pacing_rate != decided;
        heads.extend(reports.iter().filter(is_ended).map(|report| report.head));
        match (heads.first(), heads.last()) {
            (Some(first), Some(last)) => {
                last.at.saturating_since(first.at) > Duration::from_millis(500)
            }
            _ => false,
        }
    });
    let (first, last) = (heads.first().expect("some"), heads.last().expect("some"));
    let micros = last.at.saturating_since(first.at).as_micros() as u64;
    let rate = (last.bytes_acked - first.bytes_acked) * 1_000_000 / micros;
    assert!(rate < u64::from(ASKED) * 3 / 2, "{rate} bytes a second");
    end.send(()).expect("sent");
    assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
}

#[test]
fn no_window_grows_beyond_what_a_route_allows() {
    /// Largest window in segments that the route allows.
    const LIMIT: u32 = 20;
    in_namespace(|| {
        command("ip link set lo up");
        command(&format!("ip route change local 127.0.0.1 dev lo table local cwnd lock {LIMIT}"));
        // It holds from the second connection on: the first leaves the peer's metrics.
        let (address, received) = sink(1);
        connect(address, "cubic").write_all(&[7; 100_000]).expect("sent");
        received.join().expect("received");
        until("metrics of the peer", || {
            let shown = Command::new("ip").args(["tcp_metrics", "show"]).output();
            !shown.expect("iproute2 is here").stdout.is_empty()
        });
        let unled = Options { flows: 1, ..options() };
        let Some(mut led) = loaded(Datapath::register(&options())) else { return };
        let unled = Datapath::register(&unled).expect("registered");
        let natives =
            NativeKind::ALL.map(|kind| Native::register(kind, &fresh_name()).expect("registered"));
        // The only slot.
        let (other, other_received) = sink(1);
        let first = connect(other, unled.name());
        let names = natives.iter().map(Native::name).chain([led.name(), unled.name()]);
        let names: Vec<String> = names.map(str::to_string).collect();
        for name in names {
            let (address, received) = sink(1);
            let (socket, end, sender) = stream_on(connect(address, &name));
            until("the limit", || {
                let wanted = Decision { cwnd: Some(1000), ..Decision::default() };
                let mut heads = Vec::new();
                led.drain(&mut |record| heads.push(*record.head())).expect("drained");
                for head in &heads {
                    led.decide(head, &wanted);
                }
                tcp_info(&socket).tcpi_snd_cwnd >= LIMIT
            });
            // It may fall again: a busy machine lets timers expire.
            for _ in 0..50 {
                std::thread::sleep(Duration::from_millis(1));
                let cwnd = tcp_info(&socket).tcpi_snd_cwnd;
                assert!(cwnd <= LIMIT, "{name}: {cwnd}");
            }
            end.send(()).expect("sent");
            drop(socket);
            assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
        }
        drop(first);
        other_received.join().expect("received");
    });
}
