//! What must hold when the reader is gone, late or wrong.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use forebay_core::cc::{Law, SendLimits};
use forebay_core::units::ByteCount;
use libbpf_rs::{MapCore, MapFlags};

use super::super::slot::Slot;
use super::super::{
    Cadence, Datapath, Decision, Events, FREE_SLOTS, Head, Mode, Options, Record, Reporting,
};
use super::Random;
use super::loopback::{
    Agent, LONG, RATE, connect, fresh_name, is_registered, options, paced, send, sink, tcp_info,
    until,
};
use super::loss::{EVERYTHING, lose, stream_until};
use crate::Error;
use crate::program::tests::loaded;

#[test]
fn a_connection_that_nobody_answers_falls_back_and_resumes_with_an_answer() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    const BYTES: usize = 24 << 20; // more than a second
    let (address, received) = sink(1);
    let sender = send(address, datapath.name(), BYTES);
    let mut agent = Agent::default();
    until("a few records", || {
        agent.serve(&mut datapath, Reporting::default());
        agent.records.len() > 5
    });
    let flow = agent.records[0].head().flow;
    until("it is led", || {
        agent.serve(&mut datapath, Reporting::default());
        datapath.mode(flow) == Some(Mode::Agent)
    });
    // Nobody answers: seen without a record, and then in one.
    until("it falls back", || datapath.mode(flow) == Some(Mode::Fallback));
    let answered = agent.records.last().expect("records").head().seq;
    let mut unanswered = Vec::new();
    datapath.drain(&mut |record| unanswered.push(record)).expect("drained");
    until("the record of it", || {
        datapath.drain(&mut |record| unanswered.push(record)).expect("drained");
        unanswered.iter().any(|record| record.head().events.contains(Events::FALLBACK))
    });
    let first = unanswered.iter().find(|record| record.head().seq > answered).expect("one");
    let fallen = unanswered
        .iter()
        .find(|record| record.head().events.contains(Events::FALLBACK))
        .expect("one");
    let after = fallen.head().at.saturating_since(first.head().at);
    // 100 ms less 2.5 round trips, which are short here.
    assert!(after >= Duration::from_millis(50) && after < Duration::from_millis(600), "{after:?}");
    // A law of its own, from one answer on.
    let newest = *unanswered.last().expect("records").head();
    let decision =
        Decision::new(&paced(SendLimits::default()), &Law::HOLD, newest.mss, Reporting::default());
    datapath.decide(&newest, &decision);
    until("it resumes", || datapath.mode(flow) != Some(Mode::Fallback));
    while !agent.serve(&mut datapath, Reporting::default()) {
        thread::sleep(Duration::from_millis(1));
    }
    sender.join().expect("sent");
    assert_eq!(received.join().expect("received"), BYTES as u64);
    let resumed = |record: &Record| record.head().events.contains(Events::RESUMED);
    assert!(agent.records.iter().any(resumed));
    let counters = datapath.counters();
    assert!(counters.fallbacks >= 1 && counters.resumed >= 1, "{counters:?}");
}

/// A connection is led with reports each so often until its agent ends; how long after the last record
/// that was answered it fell back, by the kernel's records, and its round trip then.
fn time_to_fall_back(datapath: &mut Datapath, reporting: Reporting) -> (Duration, Duration) {
    let (address, received) = sink(1);
    let (socket, end, sender) = stream_until(datapath, address);
    drop(socket);
    let mut agent = Agent::default();
    until("it is led", || {
        agent.serve(datapath, reporting);
        agent.records.len() > 5
    });
    let answered = *agent.records.last().expect("records").head();
    let mut fallen = None;
    until("it falls back", || {
        let mut take = |record: Record| {
            let head = *record.head();
            fallen = fallen.or(Some(head).filter(|it| it.events.contains(Events::FALLBACK)));
        };
        datapath.drain(&mut take).expect("drained");
        fallen.is_some()
    });
    end.send(()).expect("told");
    while !agent.serve(datapath, Reporting::default()) {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
    let fallen: Head = fallen.expect("a record");
    (fallen.at.saturating_since(answered.at), Duration::from_micros(fallen.srtt_us.into()))
}

#[test]
fn a_connection_that_reports_seldom_falls_back_in_time_too() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    const BOUND: Duration = Duration::from_millis(100);
    // From one acknowledgement to the next: the sender is paced, and its timer ticks every 4 ms. Where
    // the machine is later than that, it is not each time.
    const SLACK: Duration = Duration::from_millis(12);
    const TRIES: usize = 5;
    for period_ms in [25, 50] {
        let period = Duration::from_millis(period_ms);
        let reporting = Reporting { cadence: Cadence::Every(period), wake: false };
        let mut times = Vec::new();
        let is_timely = (0..TRIES).any(|_| {
            let (time, round_trip) = time_to_fall_back(&mut datapath, reporting);
            times.push((time, round_trip));
            // Nor is it early: what it had to wait for is told by the round trip.
            assert!(time + round_trip * 5 / 2 + period >= BOUND, "{times:?}");
            time <= BOUND.max(round_trip * 4) + SLACK
        });
        println!("reports each {period:?}: {times:?}");
        assert!(is_timely, "{times:?}");
    }
}

#[test]
fn a_connection_that_falls_back_leaves_the_rate_of_its_last_decision() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    let (address, received) = sink(1);
    let (socket, end, sender) = stream_until(&datapath, address);
    drop(socket);
    let rate = |record: &Record| match record {
        Record::Report(report) => Some(report.pacing_rate),
        Record::Opened(_) => None,
    };
    let mut agent = Agent::default();
    until("it is paced", || {
        agent.serve(&mut datapath, Reporting::default());
        agent.records.last().and_then(rate) == Some(RATE)
    });
    let mut newest = None;
    until("the kernel's own rate", || {
        let mut take = |record: Record| {
            if record.head().mode == Mode::Fallback {
                newest = rate(&record).or(newest);
            }
        };
        datapath.drain(&mut take).expect("drained");
        newest.is_some_and(|rate| rate > RATE)
    });
    end.send(()).expect("told");
    while !agent.serve(&mut datapath, Reporting::default()) {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
}

#[test]
fn a_window_is_obeyed_however_many_reports_came_since_the_last_event() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    // More than half of the numbers of 16 bits.
    const REPORTS: u64 = 40_000;
    let (address, received) = sink(1);
    let (socket, end, sender) = stream_until(&datapath, address);
    drop(socket);
    let reporting = Reporting { cadence: Cadence::Every(Duration::ZERO), wake: false };
    let (mut reports, mut ignored) = (0, 0);
    let mut newest: Option<Head> = None;
    let deadline = Instant::now() + 3 * LONG;
    loop {
        let mut take = |record: Record| {
            reports += 1;
            newest = Some(*record.head());
        };
        datapath.drain(&mut take).expect("drained");
        let Some(head) = newest else { continue };
        let segments = if reports < REPORTS { 40 } else { 20 };
        if segments == 20 {
            if head.cwnd == 20 {
                break;
            }
            ignored += 1;
        }
        assert!(ignored < 100, "{ignored} of 20 segments after {reports} reports: {}", head.cwnd);
        assert!(Instant::now() < deadline, "{reports} reports");
        let cwnd = ByteCount::new(segments * u64::from(head.mss));
        let limits = SendLimits { cwnd: Some(cwnd), ..SendLimits::default() };
        datapath.decide(&head, &Decision::new(&limits, &Law::HOLD, head.mss, reporting));
        thread::sleep(Duration::from_micros(200));
    }
    end.send(()).expect("told");
    assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
}

#[test]
fn a_full_ring_loses_records_that_are_counted_to_the_last() {
    const CONNECTIONS: u64 = 200;
    let small = Options { ring_bytes: 4096, ..options() };
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
fn a_full_ring_is_tried_again_once_a_millisecond() {
    let small = Options { ring_bytes: 4096, ..options() };
    let Some(mut datapath) = loaded(Datapath::register(&small)) else { return };
    // Both with events that wait: one that is known to the agent, one that is not.
    let (address, received) = sink(1);
    let known = stream_until(&datapath, address);
    let mut agent = Agent::default();
    let each = Reporting { cadence: Cadence::Every(Duration::ZERO), wake: false };
    until("it is led", || {
        agent.serve(&mut datapath, each);
        agent.records.len() > 20
    });
    until("the ring is full", || datapath.counters().dropped > 0);
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
    assert_eq!(after.records - before.records, tried, "all of them in vain");
    assert!(tried > 0 && u128::from(tried) <= 2 * (took.as_millis() + 2), "{tried} in {took:?}");
    for (socket, end, sender) in [known, unknown] {
        drop(socket);
        end.send(()).expect("told");
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
fn connections_beyond_the_slots_are_under_the_kernels_law() {
    let Some(datapath) = loaded(Datapath::register(&Options { flows: 1, ..options() })) else {
        return;
    };
    let (address, received) = sink(2);
    let first = connect(address, datapath.name());
    let second = send(address, datapath.name(), 1 << 20);
    drop(first);
    second.join().expect("sent");
    assert_eq!(received.join().expect("received"), 1 << 20);
    let counters = datapath.counters();
    assert_eq!((counters.refused, counters.fallbacks), (1, 1));
    until("all end", || datapath.counters().closed == 2);
    assert_eq!(datapath.free_slots(), 1);
}

#[test]
fn nothing_that_stands_in_a_slot_stops_or_breaks_a_connection() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    const WRITES: u64 = 100_000;
    let (address, received) = sink(1);
    let (socket, end, sender) = stream_until(&datapath, address);
    drop(socket);
    let mut random = Random(5);
    let mut newest: Option<Head> = None;
    let mut windows = Vec::new();
    let mut writes = 0_u64;
    let deadline = Instant::now() + 3 * LONG;
    loop {
        let mut has_ended = false;
        datapath
            .drain(&mut |record| {
                has_ended |= record.head().events.contains(Events::CLOSE);
                windows.push(record.head().cwnd);
                newest = Some(*record.head());
            })
            .expect("drained");
        if has_ended {
            break;
        }
        assert!(Instant::now() < deadline, "{windows:?}");
        let Some(head) = newest else { continue };
        for _ in 0..500 {
            let slot = garbage(&mut random, &head);
            assert!(datapath.slots.write(head.flow.slot, &slot));
            writes += 1;
        }
        if writes == WRITES {
            end.send(()).expect("told");
        }
        thread::sleep(Duration::from_micros(200));
    }
    assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
    assert!(writes >= WRITES, "{writes}");
    assert!(windows.iter().all(|cwnd| (1..=1 << 20).contains(cwnd)), "{windows:?}");
}

/// Any numbers at all, but for this connection; half of them with the right sum, and paced so that
/// the transfer ends within seconds.
fn garbage(random: &mut Random, head: &Head) -> Slot {
    let mut slot = Slot {
        generation: head.flow.generation,
        answered: if random.below(4) > 0 { head.seq } else { random.next() as u32 },
        answered_us: random.next() as u32,
        cwnd: random.of_bits(32),
        known_cwnd: random.of_bits(32),
        ssthresh: random.of_bits(32),
        growth: random.of_bits(32),
        cap: random.of_bits(32),
        beta: random.next() as u16,
        flags: random.next() as u16,
        trip_lost: random.next() as u16,
        trip_ce: random.next() as u16,
        trip_rtt_us: random.of_bits(32),
        report_us: random.of_bits(16),
        pacing_rate: random.next() | 1 << 24,
        ..Slot::default()
    };
    slot.seal();
    slot.check = slot.check.wrapping_add(random.below(2));
    slot
}

#[test]
fn a_reader_that_sleeps_is_woken_by_the_next_record_and_by_no_other() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    // Shorter than the datapath's patience, and much longer than from one report to the next.
    const QUIET: Duration = Duration::from_millis(60);
    let (address, received) = sink(1);
    let (socket, end, sender) = stream_until(&datapath, address);
    drop(socket);
    let mut agent = Agent::default();
    until("it is led", || {
        agent.serve(&mut datapath, Reporting::default());
        agent.records.len() > 20
    });
    for _ in 0..10 {
        datapath.set_asleep(true);
        agent.serve(&mut datapath, Reporting::default());
        let began = Instant::now();
        datapath.wait(LONG).expect("waited");
        assert!(began.elapsed() < LONG, "the next record did not wake");
        // That cleared it. A record between reading and waiting ends the wait, so there are more.
        let sleeps = (0..50).any(|_| {
            agent.serve(&mut datapath, Reporting::default());
            let (began, read) = (Instant::now(), agent.records.len());
            datapath.wait(QUIET).expect("waited");
            let lasted = began.elapsed();
            agent.serve(&mut datapath, Reporting::default());
            lasted >= QUIET && agent.records.len() > read + 1
        });
        assert!(sleeps, "records that can wait wake");
    }
    end.send(()).expect("told");
    until("it ends", || agent.serve(&mut datapath, Reporting::default()));
    assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
}

#[test]
fn what_a_lost_syn_brought_is_not_told_of_the_connection() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    lose(&listener, EVERYTHING);
    let name = datapath.name().to_string();
    let sender = thread::spawn(move || {
        let mut stream = connect(address, &name);
        stream.write_all(b"hello").expect("sent");
        tcp_info(&stream).tcpi_total_retrans
    });
    thread::sleep(Duration::from_millis(300));
    lose(&listener, 0);
    let (mut stream, _) = listener.accept().expect("a connection");
    assert_eq!(sender.join().expect("sent"), 1, "the SYN was lost");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("received");
    drop(stream);
    until("it ends", || datapath.counters().closed == 1);
    let mut heads: Vec<Head> = Vec::new();
    datapath.drain(&mut |record| heads.push(*record.head())).expect("drained");
    let happened = Events::LOSS.bits()
        | Events::RTO.bits()
        | Events::RECOVERY_END.bits()
        | Events::SPURIOUS.bits();
    assert!(heads.len() > 1 && heads[0].events == Events::OPEN, "{heads:?}");
    assert!(heads.iter().all(|head| head.events.bits() & happened == 0), "{heads:?}");
}

#[test]
fn what_happened_while_the_first_record_was_lost_is_told() {
    let small = Options { ring_bytes: 4096, ..options() };
    let Some(mut datapath) = loaded(Datapath::register(&small)) else { return };
    let (crowd, crowd_received) = sink(40);
    for _ in 0..40 {
        connect(crowd, datapath.name()).write_all(b"hello").expect("sent");
    }
    crowd_received.join().expect("received");
    assert!(datapath.counters().dropped > 0, "the ring is full");
    let (address, received) = sink(1);
    let (socket, end, sender) = stream_until(&datapath, address);
    // Nothing comes back until a timeout.
    lose(&socket, EVERYTHING);
    until("a timeout", || tcp_info(&socket).tcpi_ca_state == 4);
    let local = socket.local_addr().expect("an address");
    lose(&socket, 0);
    drop(socket);
    let (mut own, mut events) = (None, Vec::new());
    until("the timeout is told", || {
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
    end.send(()).expect("told");
    assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
}

#[test]
fn the_connection_after_four_thousand_million_has_a_number_too() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    datapath.counts.words()[0].store(u64::from(u32::MAX), Ordering::Relaxed);
    let (address, received) = sink(1);
    connect(address, datapath.name()).write_all(b"hello").expect("sent");
    assert_eq!(received.join().expect("received"), 5);
    until("it ends", || datapath.counters().closed == 1);
    let mut flows = Vec::new();
    datapath.drain(&mut |record| flows.push(record.head().flow.generation)).expect("drained");
    assert!(!flows.is_empty() && flows.iter().all(|number| *number == 1), "{flows:?}");
    assert_eq!(datapath.free_slots(), 256);
}

/// The number that the next connection would have taken.
fn take_slot(datapath: &Datapath) -> Option<u32> {
    let bytes = datapath.maps[FREE_SLOTS].lookup_and_delete(&[]).expect("a queue");
    bytes.map(|bytes| u32::from_ne_bytes(bytes.try_into().expect("four bytes")))
}

#[test]
fn a_slot_that_the_queue_does_not_take_back_comes_back_with_the_next_look() {
    const FLOWS: u32 = 4;
    let Some(mut datapath) = loaded(Datapath::register(&Options { flows: FLOWS, ..options() }))
    else {
        return;
    };
    let (address, received) = sink(1);
    let mut stream = connect(address, datapath.name());
    stream.write_all(b"hello").expect("sent");
    until("it has a slot", || datapath.free_slots() == FLOWS - 1);
    // The queue is full: there is a number in it that is not free.
    let stray = 3_u32.to_ne_bytes();
    datapath.maps[FREE_SLOTS].update(&[], &stray, MapFlags::ANY).expect("room for one");
    drop(stream);
    received.join().expect("received");
    until("it ends", || datapath.counters().closed == 1);
    assert_eq!(datapath.free_slots(), FLOWS - 1);
    assert_eq!(take_slot(&datapath), Some(1));
    datapath.drain(&mut |_| {}).expect("drained");
    assert_eq!(datapath.free_slots(), FLOWS);
    let left: Vec<u32> = std::iter::from_fn(|| take_slot(&datapath)).collect();
    assert_eq!(left, [2, 3, 3, 0]);
}

/// A BPF file system of the test's own.
struct Pins(PathBuf);

impl Pins {
    fn mount() -> Option<Self> {
        let path = std::env::temp_dir().join(fresh_name());
        std::fs::create_dir(&path).expect("a directory");
        let target = std::ffi::CString::new(path.to_str().expect("plain")).expect("no zero");
        // SAFETY: terminated strings and no data.
        let status = unsafe {
            libc::mount(c"bpf".as_ptr(), target.as_ptr(), c"bpf".as_ptr(), 0, std::ptr::null())
        };
        let pins = Self(path);
        (status == 0).then_some(pins)
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let path = std::ffi::CString::new(self.0.to_str().unwrap_or("")).unwrap_or_default();
        // SAFETY: a terminated string.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Where to pin, if this machine can carry datapaths and mount BPF file systems.
fn pinnable() -> Option<(Pins, Options)> {
    let options = options();
    drop(loaded(Datapath::register(&options))?);
    let Some(mount) = Pins::mount() else {
        println!("skipped: no BPF file system can be mounted here");
        return None;
    };
    until("the name goes", || !is_registered(&options.name));
    let pins = Some(mount.0.join("datapath"));
    Some((mount, Options { pins, ..options }))
}

#[test]
fn pins_that_somebody_left_unfinished_are_made_anew() {
    let Some((_mount, options)) = pinnable() else { return };
    let pins = options.pins.clone().expect("pins");
    let register = || Datapath::register(&options).expect("registered");
    let mut first = register();
    assert_eq!(std::fs::read_dir(&pins).expect("a folder").count(), 0, "only what is asked for");
    first.pin().expect("pinned");
    drop(first);
    // As one leaves it that dies in between: some of the maps, and no slot in the queue.
    let set = std::fs::read_dir(&pins).expect("a folder").next().expect("a set").expect("read");
    let unfinished = pins.join("unfinished");
    std::fs::rename(set.path(), &unfinished).expect("renamed");
    for file in ["link", "free_slots"] {
        std::fs::remove_file(unfinished.join(file)).expect("removed");
    }
    until("the name goes", || !is_registered(&options.name));
    let second = register();
    assert!(!unfinished.exists());
    let (address, received) = sink(1);
    send(address, second.name(), 1 << 16).join().expect("sent");
    assert_eq!(received.join().expect("received"), 1 << 16);
    assert_eq!((second.counters().opened, second.counters().refused), (1, 0));
    drop(second);
    assert!(!pins.exists());
}

#[test]
fn a_second_process_is_kept_off_the_pins_of_the_first() {
    let Some((_mount, options)) = pinnable() else { return };
    let mut first = Datapath::register(&options).expect("registered");
    first.pin().expect("pinned");
    // Another name, so that the pins alone can refuse it.
    let other = Options { name: fresh_name(), ..options.clone() };
    let error = Datapath::register(&other).map(drop).unwrap_err();
    assert!(matches!(error, Error::PinsInUse { .. }), "{error}");
    drop(first);
    let mut second = Datapath::register(&options).expect("taken over");
    second.unpin().expect("removed");
}

#[test]
fn a_pinned_link_is_taken_over_with_the_connections_under_it() {
    let Some((_mount, options)) = pinnable() else { return };
    let pins = options.pins.clone().expect("pins");
    let mut first = Datapath::register(&options).expect("registered");
    first.pin().expect("pinned");
    let (address, received) = sink(1);
    let (socket, end, sender) = stream_until(&first, address);
    drop(socket);
    let mut agent = Agent::default();
    until("it is led", || {
        agent.serve(&mut first, Reporting::default());
        agent.records.len() > 5
    });
    let flow = agent.records[0].head().flow;
    drop(first);
    assert!(is_registered(&options.name), "the pin keeps the name");
    let mut second = Datapath::register(&options).expect("taken over");
    // Its records are there and nobody answers them.
    until("it falls back", || second.mode(flow) == Some(Mode::Fallback));
    assert_eq!(second.counters().fallbacks, 1);
    until("it is led again", || {
        agent.serve(&mut second, Reporting::default());
        second.mode(flow) == Some(Mode::Agent)
    });
    end.send(()).expect("told");
    while !agent.serve(&mut second, Reporting::default()) {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
    assert_eq!(second.counters().closed, 1);
    second.unpin().expect("removed");
    assert!(!pins.exists());
    drop(second);
    until("the name goes", || !is_registered(&options.name));
}
