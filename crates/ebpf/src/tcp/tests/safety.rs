//! Properties of slots, numbers, windows and pins that no reader can break, with anything that it writes or leaves.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use forebay_core::cc::{Interim, SendLimits};
use forebay_core::units::{ByteCount, Timestamp};
use libbpf_rs::{MapCore, MapFlags};

use super::super::slot::Slot;
use super::super::{
    Cadence, Datapath, Decision, Events, FREE_SLOTS, FlowId, Head, Holder, Mode, Options, Record,
    Reporting,
};
use super::Random;
use super::loopback::{
    Agent, LONG, RATE, connect, fresh_name, is_registered, options, send, serve_to_end, sink,
    sink_with, tcp_info, until,
};
use super::loss::{EVERYTHING, filtered_sink, lose, stream_on, stream_until};
use crate::Error;
use crate::capture::monotonic_now;
use crate::program::tests::loaded;
use crate::skel::tcp_datapath::types::{self, counters};
use crate::skel::word_of;

#[test]
fn reclaimed_slot_is_reused_and_kernel_takes_over() {
    let Some(mut datapath) = loaded(Datapath::register(&Options { flows: 1, ..options() })) else {
        return;
    };
    let (address, received) = sink(2);
    let (socket, end, sender) = stream_until(&datapath, address);
    drop(socket);
    let mut agent = Agent::default();
    // The agent answers in time, but the connection stays under the kernel's algorithm.
    let mut serve = |datapath: &mut Datapath| {
        agent.serve(datapath, Reporting::default());
    };
    until("the agent controls it", || {
        serve(&mut datapath);
        datapath.connections().any(|(_, mode)| mode == Mode::Agent)
    });
    let (first, _) = datapath.connections().next().expect("a connection");
    let before = datapath.counters();
    assert!(datapath.take_back(first));
    assert!(!datapath.take_back(first), "it was taken back already");
    until("the kernel controls it", || {
        serve(&mut datapath);
        datapath.counters().fallbacks == before.fallbacks + 1
    });
    let second = connect(address, datapath.name());
    until("another connection has the slot", || datapath.connections().count() == 1);
    let (other, _) = datapath.connections().next().expect("a connection");
    assert_eq!((other.slot, datapath.counters().refused), (first.slot, 0));
    // The end of the first one gives back nothing.
    end.send(()).expect("sent");
    let sent = sender.join().expect("sent");
    until("the first ends", || datapath.counters().closed == 1);
    assert_eq!(datapath.free_slots(), 0);
    drop(second);
    until("both end", || datapath.counters().closed == 2);
    until("the second's slot is free", || datapath.free_slots() == 1);
    assert_eq!(received.join().expect("received"), sent);
}

#[test]
fn window_is_obeyed_after_any_number_of_reports() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    /// More than half of the numbers of 16 bits.
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
        datapath.decide(&head, &Decision::new(&limits, &Interim::HOLD, head.mss, reporting));
        thread::sleep(Duration::from_micros(200));
    }
    end.send(()).expect("sent");
    assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
}

#[test]
fn connections_without_slot_use_the_kernel_controller() {
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
fn no_decision_is_lost_or_reaches_another_connection() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    let (address, received) = sink_with(1, |_| {});
    let (address_2, received_2) = sink_with(1, |_| {});
    let connections = [stream_until(&datapath, address), stream_until(&datapath, address_2)];
    let mut newest: Vec<Head> = Vec::new();
    let (mut seen, mut obeyed) = (0, 0);
    let mut decided = 0_u64;
    let mut random = Random(6);
    // Windows of 30 to 39 segments for the connection with the odd number, 50 to 59 for the other.
    let window = |head: &Head, turn: u32| {
        let base = if head.flow.generation % 2 == 1 { 30 } else { 50 };
        base + turn % 10
    };
    let asked = Events::ROUND.bits() | Events::TIMER.bits();
    // The last window decided for each connection, and since when.
    let mut told: Vec<(FlowId, Timestamp, u32)> = Vec::new();
    while decided < 1_000_000 {
        datapath
            .drain(&mut |record| {
                let head = record.head();
                match newest.iter_mut().find(|known| known.flow == head.flow) {
                    Some(known) => *known = *head,
                    None => newest.push(*head),
                }
                if head.seq > 20 {
                    let base = window(head, 0);
                    assert!((base..base + 10).contains(&head.cwnd), "{head:?}");
                    seen += 1;
                }
                // When a busy machine repairs a segment, earlier decisions do not know of it.
                if head.events.bits() & !asked != 0 {
                    told.retain(|(flow, ..)| *flow != head.flow);
                }
                // An acknowledgement that came after a decision has taken it.
                let last = told.iter().find(|(flow, since, _)| {
                    *flow == head.flow && head.at > *since && head.mode == Mode::Agent
                });
                if let Some((_, _, cwnd)) = last {
                    assert_eq!(head.cwnd, *cwnd, "{head:?}");
                    obeyed += 1;
                }
            })
            .expect("drained");
        told.clear();
        for head in &newest {
            let turns = 400 + random.below(200);
            for turn in 0..turns {
                let decision = Decision {
                    cwnd: Some(window(head, turn)),
                    pacing_rate: Some(RATE),
                    ..Decision::default()
                };
                datapath.decide(head, &decision);
            }
            decided += u64::from(turns);
            told.push((head.flow, monotonic_now(), window(head, turns - 1)));
        }
        thread::sleep(Duration::from_micros(200));
    }
    // Only the last decision counts.
    let mut last = Vec::new();
    for head in &newest {
        let cwnd = window(head, 7);
        let decision =
            Decision { cwnd: Some(cwnd), pacing_rate: Some(RATE), ..Decision::default() };
        datapath.decide(head, &decision);
        last.push((head.flow, cwnd));
    }
    let mut after = Vec::new();
    until("records after the last decision", || {
        datapath.drain(&mut |record| after.push(*record.head())).expect("drained");
        last.iter().all(|(flow, cwnd)| {
            let own: Vec<&Head> = after.iter().filter(|head| head.flow == *flow).collect();
            own.last().is_some_and(|head| head.cwnd == *cwnd)
        })
    });
    assert!(seen > 20 && obeyed > 20, "{seen} and {obeyed}");
    for (socket, end, sender) in connections {
        drop(socket);
        end.send(()).expect("sent");
        sender.join().expect("sent");
    }
    received.join().expect("received");
    received_2.join().expect("received");
}

#[test]
fn arbitrary_slot_contents_cannot_break_a_connection() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    /// Random words that the test writes into the slot.
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
            end.send(()).expect("sent");
        }
        thread::sleep(Duration::from_micros(200));
    }
    assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
    assert!(writes >= WRITES, "{writes}");
    assert!(windows.iter().all(|cwnd| (1..=1 << 20).contains(cwnd)), "{windows:?}");
}

/// Any numbers at all, but for this connection; half with the right sum, and paced so that the
/// transfer ends within seconds.
fn garbage(random: &mut Random, head: &Head) -> Slot {
    let mut slot = Slot {
        generation: head.flow.generation,
        answered: if random.below(4) > 0 { head.seq } else { random.next() as u32 },
        answered_us: random.next() as u32,
        cwnd: random.of_bits(32),
        known_cwnd: random.of_bits(32),
        ssthresh: random.of_bits(32),
        law: types::law {
            growth: random.of_bits(32),
            cap: random.of_bits(32),
            beta: random.next() as u16,
            flags: random.next() as u16,
            trip_lost: random.next() as u16,
            trip_ce: random.next() as u16,
            trip_rtt_us: random.of_bits(32),
            report_us: random.of_bits(16),
        },
        pacing_rate: random.next() | 1 << 24,
        ..Slot::default()
    };
    slot.seal();
    slot.check = slot.check.wrapping_add(random.below(2));
    slot
}

#[test]
fn sleeping_reader_is_woken_once_by_next_record() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    /// Shorter than the datapath's patience, and much longer than from one report to the next.
    const QUIET: Duration = Duration::from_millis(60);
    let (address, received) = sink(1);
    let (socket, end, sender) = stream_until(&datapath, address);
    drop(socket);
    let mut agent = Agent::default();
    until("the agent controls it", || {
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
    end.send(()).expect("sent");
    serve_to_end(&mut agent, &mut datapath, &received);
    assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
}

#[test]
fn lost_syn_is_not_reported_as_loss() {
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
    assert_eq!(datapath.counters().fallbacks, 0);
}

#[test]
fn connection_number_wraps_without_zero() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    let numbers = &datapath.counts.words()[word_of!(counters, numbers)];
    numbers.store(u64::from(u32::MAX), Ordering::Relaxed);
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
pub(super) fn take_slot(datapath: &Datapath) -> Option<u32> {
    let bytes = datapath.maps[FREE_SLOTS].lookup_and_delete(&[]).expect("a queue");
    bytes.map(|bytes| u32::from_ne_bytes(bytes.try_into().expect("four bytes")))
}

#[test]
fn slot_refused_by_queue_returns_at_next_drain() {
    /// Slots of the datapath.
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
    fn mount() -> Self {
        let path = std::env::temp_dir().join(fresh_name());
        std::fs::create_dir(&path).expect("a directory");
        let target = std::ffi::CString::new(path.to_str().expect("plain")).expect("no zero");
        // SAFETY: terminated strings and no data.
        let status = unsafe {
            libc::mount(c"bpf".as_ptr(), target.as_ptr(), c"bpf".as_ptr(), 0, std::ptr::null())
        };
        assert_eq!(status, 0, "{path:?}: {}", std::io::Error::last_os_error());
        Self(path)
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

/// Where to pin, if this machine can carry datapaths.
fn pinnable() -> Option<(Pins, Options)> {
    let options = options();
    drop(loaded(Datapath::register(&options))?);
    let mount = Pins::mount();
    until("the name is unregistered", || !is_registered(&options.name));
    let pins = Some(mount.0.join("datapath"));
    Some((mount, Options { pins, ..options }))
}

#[test]
fn pins_that_somebody_left_unfinished_are_made_anew() {
    let Some((_mount, options)) = pinnable() else { return };
    let pins = options.pins.clone().expect("pins");
    let register = || Datapath::register(&options).expect("registered");
    let mut first = register();
    assert_eq!(std::fs::read_dir(&pins).expect("a folder").count(), 0, "no pin without a call");
    first.pin().expect("pinned");
    drop(first);
    // Left by a process that died in between: some of the maps, and no slot in the queue.
    let set = std::fs::read_dir(&pins).expect("a folder").next().expect("a set").expect("read");
    let unfinished = pins.join("unfinished");
    std::fs::rename(set.path(), &unfinished).expect("renamed");
    for file in ["link", "free_slots"] {
        std::fs::remove_file(unfinished.join(file)).expect("removed");
    }
    until("the name is unregistered", || !is_registered(&options.name));
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
fn second_process_cannot_use_the_same_pins() {
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
fn pinned_link_is_taken_over_with_its_connections() {
    let Some((_mount, options)) = pinnable() else { return };
    let pins = options.pins.clone().expect("pins");
    let mut first = Datapath::register(&options).expect("registered");
    first.pin().expect("pinned");
    let (address, received) = sink(1);
    let (socket, end, sender) = stream_until(&first, address);
    drop(socket);
    let mut agent = Agent::default();
    until("the agent controls it", || {
        agent.serve(&mut first, Reporting::default());
        agent.records.len() > 5
    });
    let flow = agent.records[0].head().flow;
    drop(first);
    assert!(is_registered(&options.name), "the pin keeps the name");
    let mut second = Datapath::register(&options).expect("taken over");
    // Its records are there and get no answer.
    until("it falls back", || second.mode(flow) == Some(Mode::Fallback));
    assert_eq!(second.counters().fallbacks, 1);
    assert_eq!(second.holders(), [Holder { uid: 0, slots: 1 }]);
    until("the agent controls it again", || {
        agent.serve(&mut second, Reporting::default());
        second.mode(flow) == Some(Mode::Agent)
    });
    end.send(()).expect("sent");
    until("it ends", || agent.serve(&mut second, Reporting::default()));
    assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
    assert_eq!(second.counters().closed, 1);
    assert_eq!(second.holders(), []);
    second.unpin().expect("removed");
    assert!(!pins.exists());
    drop(second);
    until("the name is unregistered", || !is_registered(&options.name));
}

#[test]
fn connection_without_init_event_gets_slot_and_controller() {
    let Some(mut datapath) = loaded(Datapath::without_init(&options())) else { return };
    let (address, received) = sink(1);
    let (socket, end, sender) = stream_on(connect(address, datapath.name()));
    until("it has a slot", || datapath.connections().count() == 1);
    until("it grows", || tcp_info(&socket).tcpi_snd_cwnd > 10);
    let mut opened = 0;
    until("its first record", || {
        let mut take = |record: Record| opened += u32::from(matches!(record, Record::Opened(_)));
        datapath.drain(&mut take).expect("drained");
        opened == 1
    });
    assert_eq!(datapath.counters().made_up, 1);
    end.send(()).expect("sent");
    drop(socket);
    assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
    until("it ends", || datapath.counters().closed == 1);
    assert_eq!(datapath.connections().count(), 0);
}

#[test]
fn connection_without_init_event_starts_at_timeout() {
    let Some(mut datapath) = loaded(Datapath::without_init(&options())) else { return };
    let (address, accepted, received) = filtered_sink();
    let stream = connect(address, datapath.name());
    let receiver = accepted.recv().expect("accepted");
    lose(&receiver, EVERYTHING);
    let (socket, end, sender) = stream_on(stream);
    let mut heads: Vec<Head> = Vec::new();
    until("it reports a timeout", || {
        datapath.drain(&mut |record| heads.push(*record.head())).expect("drained");
        heads.len() >= 2
    });
    assert!(heads[0].events == Events::OPEN && heads[1].events.contains(Events::RTO), "{heads:?}");
    assert_eq!((tcp_info(&socket).tcpi_bytes_acked, datapath.counters().made_up), (1, 1));
    lose(&receiver, 0);
    drop(receiver);
    end.send(()).expect("sent");
    drop(socket);
    assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
}
