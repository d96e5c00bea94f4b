//! Probes of this host's loopback device: they check packets and records, not measured values.

use std::io::Read;
use std::net::TcpListener;
use std::sync::mpsc;

use forebay_core::probe::{Answer, Findings, Reason, judge};

use super::*;

fn options() -> Options {
    Options {
        span: Duration::from_millis(900),
        flows: Some(3),
        max_rate: Rate::from_mbit_per_sec(20),
        congestion_control: Some("reno".into()),
        http_path: None,
        site_hops: 1,
    }
}

/// The address of an answering side that runs for `span`.
fn served(span: Duration) -> SocketAddr {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        serve::serve(listen, Some(span), &mut |address| sender.send(address).unwrap())
    });
    receiver.recv().unwrap()
}

/// A server that passes each connection to `visited`.
fn server(visited: impl Fn(std::net::TcpStream) + Send + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let visited = visited.clone();
            std::thread::spawn(move || visited(stream));
        }
    });
    address
}

#[test]
fn answering_side_is_found_and_reports_time() {
    let peer = served(Duration::from_secs(20));
    let mut steps = Vec::new();
    let report = run(peer, &options(), &mut |progress| {
        if steps.last() != Some(&progress.step) {
            steps.push(progress.step);
        }
    });
    let report = report.unwrap();
    // A stall of the machine may skip a short step.
    let all = [ProbeStep::Idle, ProbeStep::Few, ProbeStep::Many, ProbeStep::Last];
    assert_eq!(steps, all.into_iter().filter(|it| steps.contains(it)).collect::<Vec<_>>());
    assert!(steps.contains(&ProbeStep::Many), "{steps:?}");
    assert!(report.answers);
    assert_eq!(report.congestion_control.as_deref(), Some("reno"));
    let answered = report.observed.pings.iter().filter(|ping| ping.rtt.is_some());
    assert!(answered.clone().all(|ping| ping.forward_ns.is_some()));
    assert!(answered.count() > report.observed.pings.len() / 2);
    let flows: std::collections::BTreeSet<u16> =
        report.observed.looks.iter().map(|look| look.flow).collect();
    assert_eq!(flows.len(), 3);
    let acked = report.observed.looks.iter().map(|look| look.acked.as_u64()).max();
    // At a pacing rate of 20 Mbit/s in all, at most 2.25 MB fit into 0.9 s.
    assert!(acked.is_some_and(|bytes| (10_000..2_250_000).contains(&bytes)), "{acked:?}");
}

#[test]
fn any_server_that_reads_will_do() {
    let peer = server(|mut stream| {
        let mut chunk = [0; 1 << 16];
        while stream.read(&mut chunk).is_ok_and(|len| len > 0) {}
    });
    let report = run(peer, &options(), &mut |_| ()).unwrap();
    assert!(!report.answers);
    let answered = report.observed.pings.iter().filter(|ping| ping.rtt.is_some());
    assert!(answered.clone().all(|ping| ping.forward_ns.is_none()));
    let count = answered.count();
    assert!(count > 20, "{count} of {} handshakes", report.observed.pings.len());
    assert!(report.observed.looks.iter().any(|look| look.acked.as_u64() > 10_000));
}

#[test]
fn idle_probe_sends_only_small_packets() {
    let (sender, receiver) = mpsc::channel();
    let peer = server(move |mut stream| {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let _ = sender.send(bytes.len());
    });
    let gentle = Options { flows: None, ..options() };
    let report = run(peer, &gentle, &mut |_| ()).unwrap();
    assert_eq!((report.observed.load, report.congestion_control), (None, None));
    assert!(report.observed.looks.is_empty());
    // All connections have ended by now or do so soon.
    let sent = receiver.iter().take(report.observed.pings.len() / 2).sum::<usize>();
    assert_eq!(sent, 0);
    let verdict = judge(&Findings::of(&report.observed), None);
    assert_eq!((verdict.answer, verdict.reason), (Answer::Unclear, Reason::NotLoaded));
}

#[test]
fn unsuitable_peer_error_names_a_suitable_one() {
    let hangs_up = server(drop);
    let error = run(hangs_up, &options(), &mut |_| ()).unwrap_err();
    assert!(matches!(error, ProbeError::Ended { .. }) && !error.is_bad_input(), "{error}");
    let nobody = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let error = run(nobody, &options(), &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("refused") && error.contains("probe --serve"), "{error}");
    let unknown = Options { congestion_control: Some("warp".into()), ..options() };
    let error = run(nobody, &unknown, &mut |_| ()).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("reno"), "{error}");
}

#[test]
fn a_peer_is_one_machine() {
    assert_eq!(resolve("192.0.2.1").unwrap(), SocketAddr::from(([192, 0, 2, 1], PORT)));
    assert_eq!(resolve("192.0.2.1:80").unwrap(), SocketAddr::from(([192, 0, 2, 1], 80)));
    assert_eq!(resolve("2001:db8::1").unwrap().port(), PORT);
    assert_eq!(resolve("[2001:db8::1]:80").unwrap().port(), 80);
    for nobody in ["0.0.0.0", "224.0.0.1", "255.255.255.255:9", "[ff02::1]:9", "::", "192.0.2.1:0"]
    {
        let error = resolve(nobody).unwrap_err();
        assert!(matches!(error, ProbeError::NotUnicast { .. }), "{nobody}: {error}");
    }
}

#[test]
fn the_device_of_an_address_is_known() {
    let loopback = if_nametoindex("lo").unwrap();
    assert_eq!(device_of([127, 0, 0, 1].into()), Some(loopback));
    assert_eq!(device_of([192, 0, 2, 1].into()), None);
}
