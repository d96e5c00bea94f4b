//! A connection without answers falls back in time, and no other connection does.

use std::time::Duration;

use forebay_core::cc::{Interim, SendLimits};

use super::super::{Cadence, Datapath, Decision, Events, Head, Mode, Record, Reporting};
use super::loopback::{Agent, RATE, options, paced, send, serve_to_end, sink, sink_with, until};
use super::loss::{EVERYTHING, lose, serve_until, stream_until};
use crate::program::tests::loaded;

#[test]
fn unanswered_connection_falls_back_and_resumes() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    /// Bytes of the transfer, which takes more than a second.
    const BYTES: usize = 24 << 20;
    let (address, received) = sink(1);
    let sender = send(address, datapath.name(), BYTES);
    let mut agent = Agent::default();
    until("a few records", || {
        agent.serve(&mut datapath, Reporting::default());
        agent.records.len() > 5
    });
    let flow = agent.records[0].head().flow;
    until("the agent controls it", || {
        agent.serve(&mut datapath, Reporting::default());
        datapath.mode(flow) == Some(Mode::Agent)
    });
    // No answers: the fallback shows without a record, and then in one.
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
    let decision = Decision::new(
        &paced(SendLimits::default()),
        &Interim::HOLD,
        newest.mss,
        Reporting::default(),
    );
    datapath.decide(&newest, &decision);
    until("it resumes", || datapath.mode(flow) != Some(Mode::Fallback));
    serve_to_end(&mut agent, &mut datapath, &received);
    sender.join().expect("sent");
    assert_eq!(received.join().expect("received"), BYTES as u64);
    let resumed = |record: &Record| record.head().events.contains(Events::RESUMED);
    assert!(agent.records.iter().any(resumed));
    let counters = datapath.counters();
    assert!(counters.fallbacks >= 1 && counters.resumed >= 1, "{counters:?}");
}

/// Leads a connection, with reports at this cadence, until its agent ends. Returns how long after the
/// last answered record it fell back, by the kernel's records, and its round trip then.
fn time_to_fall_back(datapath: &mut Datapath, reporting: Reporting) -> (Duration, Duration) {
    let (address, received) = sink(1);
    let (socket, end, sender) = stream_until(datapath, address);
    drop(socket);
    let mut agent = Agent::default();
    until("the agent controls it", || {
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
    end.send(()).expect("sent");
    serve_to_end(&mut agent, datapath, &received);
    assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
    let fallen: Head = fallen.expect("a record");
    (fallen.at.saturating_since(answered.at), Duration::from_micros(fallen.srtt_us.into()))
}

#[test]
fn rarely_reporting_connection_falls_back_in_time() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    /// Least time without an answer before a connection falls back.
    const BOUND: Duration = Duration::from_millis(100);
    /// From one acknowledgement to the next: the sender is paced, and its timer ticks every 4 ms. On
    /// a later machine only some tries are in time.
    const SLACK: Duration = Duration::from_millis(12);
    /// Tries for each interval; one timely fallback suffices.
    const TRIES: usize = 5;
    for period_ms in [25, 50] {
        let period = Duration::from_millis(period_ms);
        let reporting = Reporting { cadence: Cadence::Every(period), wake: false };
        let mut times = Vec::new();
        let is_timely = (0..TRIES).any(|_| {
            let (time, round_trip) = time_to_fall_back(&mut datapath, reporting);
            times.push((time, round_trip));
            // Nor is it early: the round trip gives the time that it had to wait.
            assert!(time + round_trip * 5 / 2 + period >= BOUND, "{times:?}");
            time <= BOUND.max(round_trip * 4) + SLACK
        });
        println!("reports each {period:?}: {times:?}");
        assert!(is_timely, "{times:?}");
    }
}

#[test]
fn fallback_drops_the_decided_pacing_rate() {
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
    end.send(()).expect("sent");
    serve_to_end(&mut agent, &mut datapath, &received);
    assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
}

#[test]
fn timeout_falls_back_only_without_an_answer() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    for is_answered in [true, false] {
        let (address, received) = sink_with(1, |_| {});
        let (socket, end, sender) = stream_until(&datapath, address);
        let mut agent = Agent::default();
        until("the agent controls it", || {
            agent.serve(&mut datapath, Reporting::default());
            agent.records.len() > 20
        });
        let flow = agent.records.last().expect("records").head().flow;
        let before = datapath.counters();
        if is_answered {
            lose(&socket, EVERYTHING);
            serve_until(&mut datapath, &mut agent, Events::RTO);
            assert_eq!(datapath.counters().fallbacks, before.fallbacks);
        } else {
            let unread = |datapath: &Datapath| datapath.counters().records > before.records + 2;
            until("a record waits for its answer", || unread(&datapath));
            lose(&socket, EVERYTHING);
            until("it falls back", || datapath.mode(flow) == Some(Mode::Fallback));
        }
        lose(&socket, 0);
        drop(socket);
        end.send(()).expect("sent");
        serve_to_end(&mut agent, &mut datapath, &received);
        assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
    }
}

#[test]
fn unread_answer_counts_for_one_timeout_only() {
    let Some(mut datapath) = loaded(Datapath::register(&options())) else { return };
    let (address, received) = sink_with(1, |_| {});
    let (socket, end, sender) = stream_until(&datapath, address);
    let mut agent = Agent::default();
    until("the agent controls it", || {
        agent.serve(&mut datapath, Reporting::default());
        agent.records.len() > 20
    });
    lose(&socket, EVERYTHING);
    // The path is cut; the agent answers the first timeout and ends.
    serve_until(&mut datapath, &mut agent, Events::RTO);
    let window = agent.records.last().expect("records").head().cwnd;
    let mut timeouts: Vec<Head> = Vec::new();
    until("two more timeouts", || {
        let mut take = |record: Record| {
            timeouts.extend(Some(*record.head()).filter(|it| it.events.contains(Events::RTO)));
        };
        datapath.drain(&mut take).expect("drained");
        timeouts.len() >= 2
    });
    let fallen = |head: &Head| (head.mode, head.events.contains(Events::FALLBACK));
    assert_eq!(fallen(&timeouts[0]), (Mode::Agent, false), "{:?}", timeouts[0]);
    assert_eq!(timeouts[0].cwnd, window, "the answer knows of no timeout after its own");
    assert_eq!(fallen(&timeouts[1]), (Mode::Fallback, true), "{:?}", timeouts[1]);
    lose(&socket, 0);
    drop(socket);
    end.send(()).expect("sent");
    serve_to_end(&mut agent, &mut datapath, &received);
    assert_eq!(received.join().expect("received"), sender.join().expect("sent"));
}
