//! Records without a reader: events that find no room are counted, and are in the next record that
//! does.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use super::super::{Cadence, Datapath, Events, Options, Record, Reporting};
use super::loopback::{Agent, connect, options, sink, tcp_info, until};
use super::loss::{EVERYTHING, lose, stream_until};
use crate::program::tests::loaded;

#[test]
fn dropped_records_are_counted_exactly() {
    /// Enough to overfill a buffer of 30 records.
    const CONNECTIONS: u64 = 200;
    let small = Options { records: 30, ..options() };
    let Some(mut datapath) = loaded(Datapath::register(&small)) else { return };
    let (address, received) = sink(CONNECTIONS as usize);
    for _ in 0..CONNECTIONS {
        connect(address, datapath.name()).write_all(b"hello").expect("sent");
    }
    received.join().expect("received");
    until("all end", || datapath.counters().closed == CONNECTIONS);
    let mut taken = 0;
    datapath.drain(&mut |_| taken += 1).expect("drained");
    let counters = datapath.counters();
    assert!(taken > 0 && counters.dropped > CONNECTIONS, "{taken} {counters:?}");
    assert_eq!(counters.records, counters.dropped + taken);
    assert_eq!(datapath.free_slots(), 256);
}

#[test]
fn full_record_buffer_is_retried_every_millisecond() {
    let small = Options { records: 30, ..options() };
    let Some(mut datapath) = loaded(Datapath::register(&small)) else { return };
    // Both with events that wait: one that is known to the agent, one that is not.
    let (address, received) = sink(1);
    let known = stream_until(&datapath, address);
    let mut agent = Agent::default();
    let each = Reporting { cadence: Cadence::Every(Duration::ZERO), wake: false };
    until("the agent controls it", || {
        agent.serve(&mut datapath, each);
        agent.records.len() > 20
    });
    until("the buffer is full", || datapath.counters().dropped > 0);
    let (address, received_2) = sink(1);
    let unknown = stream_until(&datapath, address);
    lose(&unknown.0, EVERYTHING);
    until("a timeout", || tcp_info(&unknown.0).tcpi_ca_state == 4);
    lose(&unknown.0, 0);
    until("it fell back", || datapath.counters().fallbacks == 2);
    let (began, before) = (Instant::now(), datapath.counters());
    let segments = |socket| tcp_info(socket).tcpi_segs_in;
    let acks = segments(&known.0) + segments(&unknown.0);
    thread::sleep(Duration::from_millis(300));
    let acks = segments(&known.0) + segments(&unknown.0) - acks;
    let (after, took) = (datapath.counters(), began.elapsed());
    let tried = after.dropped - before.dropped;
    println!("{tried} tries at {acks} acknowledgements in {took:?}");
    assert_eq!(after.records - before.records, tried, "every try fails");
    assert!(tried > 0 && u128::from(tried) <= 2 * (took.as_millis() + 2), "{tried} in {took:?}");
    for (socket, end, sender) in [known, unknown] {
        drop(socket);
        end.send(()).expect("sent");
        sender.join().expect("sent");
    }
    received.join().expect("received");
    received_2.join().expect("received");
    until("both end", || datapath.counters().closed == 2);
    let mut taken = agent.records.len() as u64;
    datapath.drain(&mut |_| taken += 1).expect("drained");
    let counters = datapath.counters();
    assert_eq!(counters.records, counters.dropped + taken);
}

#[test]
fn events_survive_a_lost_first_record() {
    let small = Options { records: 30, ..options() };
    let Some(mut datapath) = loaded(Datapath::register(&small)) else { return };
    let (crowd, crowd_received) = sink(40);
    for _ in 0..40 {
        connect(crowd, datapath.name()).write_all(b"hello").expect("sent");
    }
    crowd_received.join().expect("received");
    assert!(datapath.counters().dropped > 0, "the buffer is full");
    let (address, received) = sink(1);
    let (socket, end, sender) = stream_until(&datapath, address);
    // Nothing comes back until a timeout.
    lose(&socket, EVERYTHING);
    until("a timeout", || tcp_info(&socket).tcpi_ca_state == 4);
    let local = socket.local_addr().expect("an address");
    lose(&socket, 0);
    drop(socket);
    let (mut own, mut events) = (None, Vec::new());
    until("the timeout is reported", || {
        let mut take = |record: Record| {
            if let Record::Opened(opened) = record
                && opened.local == local
            {
                own = Some(opened.head.flow);
            }
            if own == Some(record.head().flow) {
                events.push(record.head().events);
            }
        };
        datapath.drain(&mut take).expect("drained");
        events.iter().any(|events| events.contains(Events::RTO))
    });
    assert!(events[0].contains(Events::OPEN), "{events:?}");
    end.send(()).expect("sent");
    assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
}
