//! Marks: requested, carried, reported and answered, on a loopback device that marks every full
//! segment.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::thread;

use super::super::{Datapath, Events, Head, Options, Record, Reporting};
use super::loopback::{Agent, connect, options, serve_to_ends, set_option};
use super::with_programs;
use crate::attach::XdpLink;
use crate::program::tests::loaded;
use crate::program::tests::{command, in_namespace};

/// The first device of a network namespace.
const LOOPBACK: u32 = 1;

/// Runs `test` in a network namespace of its own, where everything that can be is marked.
fn where_all_is_marked(test: impl FnOnce() + Send + 'static) {
    in_namespace(|| {
        // The program sees segments, and no aggregates.
        command("ip link set lo up gso_max_segs 1");
        with_programs(|programs| {
            let _link = XdpLink::attach(programs.mark.as_fd(), LOOPBACK).expect("attached");
            test();
        });
    });
}

/// Who asks for marks.
#[derive(Clone, Copy, PartialEq)]
enum Asked {
    Nobody,
    /// Both ends: net.ipv4.tcp_ecn.
    Setting,
    /// Both ends' congestion control, as with DCTCP.
    Algorithm,
}

/// Transfers 60 segments at a time; returns the records of the sender.
fn transfer(asked: Asked, bursts: u32) -> Vec<Head> {
    let setting = if asked == Asked::Setting { "1" } else { "2" };
    std::fs::write("/proc/sys/net/ipv4/tcp_ecn", setting).expect("set");
    let ecn = asked == Asked::Algorithm;
    let Some(mut datapath) = loaded(Datapath::register(&Options { ecn, ..options() })) else {
        return Vec::new();
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let name = if ecn { datapath.name() } else { "reno" };
    set_option(&listener, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes());
    let mut stream = connect(listener.local_addr().expect("its address"), datapath.name());
    let (mut peer, _) = listener.accept().expect("a connection");
    let received = thread::spawn(move || peer.read_to_end(&mut Vec::new()).expect("received"));
    let burst = [7; 60 * 1448];
    let mut agent = Agent::default();
    for _ in 0..bursts {
        stream.write_all(&burst).expect("sent");
        agent.serve(&mut datapath, Reporting::default());
    }
    let local = stream.local_addr().expect("its address");
    drop(stream);
    serve_to_ends(&mut agent, &mut datapath, &received, |_, datapath| {
        let counters = datapath.counters();
        counters.opened == counters.closed
    });
    assert_eq!(received.join().expect("received"), bursts as usize * burst.len());
    let own = agent.records.iter().find_map(|record| match record {
        Record::Opened(opened) if opened.local == local => Some(opened.head.flow),
        _ => None,
    });
    let heads = agent.records.iter().map(Record::head).filter(|head| Some(head.flow) == own);
    heads.copied().collect()
}

#[test]
fn marks_are_told_and_answered_without_a_loss() {
    where_all_is_marked(|| {
        for asked in [Asked::Setting, Asked::Algorithm] {
            let heads = transfer(asked, 20);
            let Some(last) = heads.last() else { return };
            println!("{} of {} segments marked", last.delivered_ce, last.delivered);
            // A machine that stalls lets a retransmission timer expire.
            assert!(last.lost <= last.delivered / 100, "{last:?}");
            assert!(last.delivered_ce > last.delivered / 2, "{last:?}");
            let told = |event| heads.iter().filter(|head| head.events.contains(event)).count();
            assert!(told(Events::ECN) > 0 && told(Events::LOSS) <= last.lost as usize, "{last:?}");
            // Kernel and algorithm halve the window at each mark: nothing else is left of it.
            assert!(last.cwnd <= 4 && last.ssthresh == Some(2), "{last:?}");
        }
    });
}

#[test]
fn without_being_asked_no_segment_can_be_marked() {
    where_all_is_marked(|| {
        let heads = transfer(Asked::Nobody, 5);
        // A busy machine may end slow start.
        let is_free = |head: &Head| head.delivered_ce == 0 && !head.events.contains(Events::ECN);
        assert!(heads.iter().all(is_free), "{heads:?}");
    });
}
