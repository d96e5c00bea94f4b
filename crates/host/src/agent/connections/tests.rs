use std::io::Write;
use std::sync::mpsc::Receiver;

use forebay_core::cc::algorithms::newreno;
use forebay_core::cc::{Algorithm, Registry, SendLimits};
use forebay_core::units::ByteCount;
use forebay_ebpf::tcp::CaState;
use proptest::prelude::*;

use super::*;
use crate::agent::flow::tests::{Path, TERMS, Wild, reports};
use crate::agent::recording::{SCHEMA, Start};
use crate::agent::replay::replay;
use crate::agent::rules::Choice;

const REMOTE: &str = "192.0.2.1:443";

fn connections(algorithms: &[&str], rules: &[&str], recorder: Recorder) -> Connections {
    let choices = algorithms.iter().map(|text| text.parse().unwrap()).collect();
    let rules = rules.iter().map(|text| text.parse().unwrap()).collect();
    Connections::new(Rules::new(choices, rules).unwrap(), TERMS, 1, recorder)
}

fn reno() -> Connections {
    connections(&["newreno"], &[], Recorder::default())
}

/// Decides right after the newest record of `path`: slot, record answered, window.
fn decide(connections: &mut Connections, path: &Path) -> Vec<(u32, u32, u32)> {
    let mut answers = Vec::new();
    connections.decide(path.report.head.at, &mut |FlowAnswer { head, decision, .. }| {
        answers.push((head.flow.slot, head.seq, decision.cwnd.unwrap()));
    });
    answers
}

fn open(connections: &mut Connections, path: &Path) {
    connections.on_record(0, &Record::Opened(path.opened(REMOTE)));
}

fn tell(connections: &mut Connections, report: &Report) {
    connections.on_record(0, &Record::Report(*report));
}

#[test]
fn one_answer_per_connection_and_batch() {
    let mut connections = reno();
    let (mut one, mut other) = (Path::new(3, 1), Path::new(5, 1));
    open(&mut connections, &one);
    open(&mut connections, &other);
    for acked in [10, 20, 40] {
        tell(&mut connections, one.round(acked));
    }
    tell(&mut connections, other.round(10));
    assert_eq!(decide(&mut connections, &other), [(3, 4, 80), (5, 2, 20)]);
    assert_eq!(connections.shortest_rtt(), Some(Duration::from_millis(40)));
    assert_eq!(decide(&mut connections, &one), [], "nothing was heard since");
}

#[test]
fn reused_slot_is_a_new_connection() {
    let mut connections = reno();
    let mut first = Path::new(3, 1);
    open(&mut connections, &first);
    tell(&mut connections, first.round(10));
    let second = Path::new(3, 2);
    open(&mut connections, &second);
    assert_eq!(decide(&mut connections, &second), [(3, 1, 10)]);
    // A record of the first connection that still waits.
    let report = first.round(20);
    report.head.events = Events::CLOSE;
    tell(&mut connections, report);
    assert_eq!(connections.len(), 1);
    assert_eq!(connections.totals().closed, 1);
    // Later records of the first connection do not displace the other one.
    tell(&mut connections, first.round(20));
    let status = connections.status(Timestamp::ZERO);
    assert_eq!(status[0].remote.as_deref(), Some(REMOTE));
    assert_eq!((status.len(), status[0].reports, connections.totals().opened), (1, 1, 2));
}

#[test]
fn ten_thousand_closed_connections_leave_no_state() {
    let mut connections = reno();
    for generation in 1..=10_000 {
        let mut path = Path::new(generation % 16, generation);
        open(&mut connections, &path);
        tell(&mut connections, path.round(10));
        decide(&mut connections, &path);
        let report = path.round(20);
        report.head.events = Events::CLOSE;
        tell(&mut connections, report);
        assert_eq!(decide(&mut connections, &path), [], "the last record has no answer");
    }
    assert!(connections.is_empty() && connections.timers.is_empty() && connections.due.is_empty());
    assert_eq!(connections.tables[0].len(), 16);
    let totals = connections.totals();
    assert_eq!((totals.opened, totals.closed, totals.missed), (10_000, 10_000, 0));
}

#[test]
fn rules_apply_only_to_known_destinations() {
    let mut connections = connections(&["newreno", "cubic"], &[":443=vegas"], Recorder::default());
    let (adopted, ruled, other) = (&mut Path::new(0, 1), Path::new(1, 1), Path::new(1, 1));
    connections.on_record(1, &Record::Report(*adopted.round(10)));
    connections.on_record(1, &Record::Opened(ruled.opened(REMOTE)));
    connections.on_record(0, &Record::Opened(other.opened("192.0.2.1:80")));
    let status = connections.status(Timestamp::ZERO);
    let told: Vec<_> = status
        .iter()
        .map(|it| (it.name.as_str(), it.algorithm.as_str(), it.remote.as_deref()))
        .collect();
    assert_eq!(
        told,
        [
            ("fb_newreno", "newreno", Some("192.0.2.1:80")),
            ("fb_cubic", "cubic", None),
            ("fb_cubic", "vegas", Some(REMOTE)),
        ]
    );
}

#[test]
fn close_with_the_ring_full_drops_one_connection() {
    let mut connections = reno();
    let (gone, kept) = (Path::new(3, 1), Path::new(5, 1));
    open(&mut connections, &gone);
    open(&mut connections, &kept);
    let ghost = gone.report.head.flow;
    let ended = connections.ended(&|table, flow| table == 0 && flow == ghost);
    assert_eq!(ended, [(0, ghost)]);
    connections.drop_unheard(&ended);
    assert_eq!(connections.status(Timestamp::ZERO)[0].slot, 5);
    let totals = connections.totals();
    assert_eq!((connections.len(), totals.closed, totals.missed), (1, 1, 1));
    // Its slot has another connection before the next look.
    open(&mut connections, &Path::new(3, 2));
    connections.drop_unheard(&ended);
    assert_eq!((connections.len(), connections.totals().missed), (2, 1));
}

#[test]
fn losing_a_slot_counts_no_missed_report() {
    let mut connections = reno();
    let (silent, other) = (Path::new(3, 1), Path::new(3, 2));
    open(&mut connections, &silent);
    connections.lose(0, silent.report.head.flow);
    assert!(connections.is_empty());
    open(&mut connections, &other);
    // A connection without any record leaves no trace.
    connections.lose(0, silent.report.head.flow);
    let totals = connections.totals();
    assert_eq!((connections.len(), totals.closed, totals.missed, totals.taken_back), (1, 1, 0, 2));
}

#[test]
fn shortest_round_trip_expires_after_100_ms() {
    let mut connections = reno();
    let (mut short, mut long) = (Path::new(0, 1), Path::new(1, 1));
    short.report.head.srtt_us = 8_000;
    let shortest = |connections: &mut Connections, path: &Path| {
        decide(connections, path);
        connections.shortest_rtt().map(|rtt| rtt.as_millis())
    };
    open(&mut connections, &short);
    open(&mut connections, &long);
    assert_eq!(shortest(&mut connections, &long), Some(8));
    // Paths report every 40 ms: twice nothing, then the other path.
    for _ in 0..2 {
        assert_eq!(shortest(&mut connections, &long), Some(8));
        tell(&mut connections, long.round(10));
        assert_eq!(shortest(&mut connections, &long), Some(8));
    }
    tell(&mut connections, long.round(10));
    assert_eq!(shortest(&mut connections, &long), Some(40));
}

#[test]
fn status_of_ten_thousand_connections_fits_an_answer() {
    let mut connections = connections(&["copa"], &[], Recorder::default());
    for slot in 0..10_000 {
        let mut path = Path::new(slot, 1);
        open(&mut connections, &path);
        tell(&mut connections, path.round(10));
    }
    decide(&mut connections, &Path::new(0, 1));
    let status = connections.status(Timestamp::ZERO);
    let bytes = serde_json::to_vec(&status).unwrap().len();
    assert_eq!(status.len(), 10_000);
    assert!(bytes < 10_000 * 1_000, "{bytes}");
    // Memory of a connection, without the boxes of its algorithm.
    assert!(size_of::<Connection>() < 1_000, "{}", size_of::<Connection>());
}

#[test]
fn late_selection_continues_from_the_current_window() {
    let mut connections = reno();
    let mut path = Path::new(0, 1);
    path.report.head.cwnd = 60;
    path.report.head.ssthresh = Some(50);
    path.report.head.delivered = 4_000;
    open(&mut connections, &path);
    assert_eq!(decide(&mut connections, &path), [(0, 1, 60)]);
    tell(&mut connections, path.round(61));
    assert_eq!(decide(&mut connections, &path), [(0, 2, 61)], "and not in slow start");
}

#[test]
fn records_from_before_the_start_are_not_answered() {
    let mut connections = reno();
    let mut path = Path::new(0, 1);
    open(&mut connections, &path);
    tell(&mut connections, path.round(10));
    let woken = path.report.head.at + Duration::from_secs(3);
    connections.decide(woken, &mut |_| panic!("too late"));
    assert_eq!((connections.totals().stale, connections.totals().decisions), (1, 0));
    tell(&mut connections, path.round(20));
    assert_eq!(decide(&mut connections, &path), [(0, 3, 40)], "the bytes of the first count");
}

/// Gives the connection in slot `slot` an algorithm that panics at a loss.
fn sabotage(connections: &mut Connections, slot: usize, timer: Option<Timestamp>) {
    let connection = connections.tables[0][slot].take().unwrap();
    let limits = SendLimits { cwnd: Some(ByteCount::new(30_000)), ..SendLimits::default() };
    let flow = connection.flow.with_algorithm(Box::new(Wild(limits, timer)));
    connections.tables[0][slot] = Some(Box::new(Connection { flow, ..*connection }));
}

#[test]
fn an_algorithm_that_panics_harms_no_other_connection() {
    let mut connections = reno();
    let (mut bad, mut good) = (Path::new(0, 1), Path::new(1, 1));
    open(&mut connections, &bad);
    open(&mut connections, &good);
    sabotage(&mut connections, 0, None);
    for path in [&mut bad, &mut good] {
        let report = path.round(10);
        report.head.events = Events::LOSS;
        report.head.ca_state = CaState::Recovery;
        tell(&mut connections, report);
    }
    assert_eq!(decide(&mut connections, &good), [(1, 2, 10)]);
    assert_eq!(connections.totals().failed, 1);
    let status = connections.status(good.report.head.at);
    assert_eq!((status[0].decides.as_str(), status[1].decides.as_str()), ("kernel", "start"));
    assert_eq!(status[0].reason, "a loss was not foreseen");
    tell(&mut connections, bad.round(10));
    assert_eq!(decide(&mut connections, &bad), [], "its records are not answered");
    assert_eq!(connections.totals().failed, 1, "told once");
}

#[test]
fn timers_fire_when_due_and_end_with_connection() {
    let mut connections = reno();
    let mut path = Path::new(0, 1);
    open(&mut connections, &path);
    let at = path.report.head.at + Duration::from_millis(10);
    sabotage(&mut connections, 0, Some(at));
    decide(&mut connections, &path);
    assert_eq!(connections.next_timer(), Some(at));
    connections.on_timers(path.report.head.at);
    assert_eq!(decide(&mut connections, &path), []);
    connections.on_timers(at);
    assert_eq!(decide(&mut connections, &path), [(0, 1, 20)], "an answer without a report");
    assert_eq!(connections.next_timer(), Some(at + Duration::from_millis(10)));
    let report = path.round(10);
    report.head.events = Events::CLOSE;
    tell(&mut connections, report);
    assert_eq!(connections.next_timer(), None);
}

#[test]
fn answer_age_counts_from_its_oldest_record() {
    let since = |connections: &mut Connections, path: &Path| {
        let mut since = Vec::new();
        connections.decide(path.report.head.at, &mut |answer| since.push(answer.waits_since));
        since
    };
    const RTT: Duration = Duration::from_millis(40);
    let mut connections = reno();
    let mut path = Path::new(0, 1);
    open(&mut connections, &path);
    let opened_at = path.report.head.at;
    sabotage(&mut connections, 0, Some(opened_at + RTT));
    tell(&mut connections, path.round(10));
    assert_eq!(since(&mut connections, &path), [Some(opened_at)]);
    connections.on_timers(path.report.head.at);
    assert_eq!(since(&mut connections, &path), [None]);
    connections.on_timers(path.report.head.at + RTT);
    let report = path.round(10);
    let told_at = report.head.at;
    tell(&mut connections, report);
    tell(&mut connections, path.round(10));
    assert_eq!(since(&mut connections, &path), [Some(told_at)], "a timer changes nothing in that");
}

fn write(rows: &Receiver<RecordingRow>, path: &std::path::Path) -> Vec<RecordingRow> {
    let start = RecordingRow::Start(Start {
        schema: SCHEMA,
        version: "0".into(),
        kernel: "6.18".into(),
        pace: false,
    });
    let rows: Vec<RecordingRow> = std::iter::once(start).chain(rows.try_iter()).collect();
    let mut file = std::fs::File::create(path).unwrap();
    for row in &rows {
        writeln!(file, "{}", serde_json::to_string(row).unwrap()).unwrap();
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_recording_replays_bit_for_bit(
        reports in prop::collection::vec((0usize..5, 0u32..3, reports()), 1..60),
    ) {
        let (recorder, rows) = Recorder::for_test();
        let names = ["cubic", "copa", "bbr", "basic_delay", "vegas"];
        let mut connections = connections(&names, &[":443=illinois"], recorder);
        for (number, (table, slot, mut report)) in reports.into_iter().enumerate() {
            report.head.flow.slot = slot;
            report.head.flow.generation = 1 + number as u32 / 20;
            if number % 7 == 0 {
                let path = Path { report };
                connections.on_record(table, &Record::Opened(path.opened(REMOTE)));
            }
            connections.on_record(table, &Record::Report(report));
            if number % 3 == 0 {
                connections.on_timers(report.head.at);
                connections.decide(report.head.at, &mut |_| {});
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("recording");
        let rows = write(&rows, &file);
        let mut seen = 0;
        let replay = replay(&file, &Registry::BUILTIN, &mut |_| seen += 1).unwrap();
        let decisions = rows.iter().filter(|row| matches!(row, RecordingRow::Decision(_))).count() as u64;
        prop_assert_eq!((replay.decisions, replay.different, seen), (decisions, 0, decisions));
        prop_assert_eq!(replay.flows, connections.totals().opened);
    }
}

#[test]
fn replay_names_the_line_of_a_different_decision() {
    let (recorder, rows) = Recorder::for_test();
    let mut connections = connections(&["cubic"], &[], recorder);
    let mut path = Path::new(0, 1);
    open(&mut connections, &path);
    for acked in [10, 20, 40] {
        decide(&mut connections, &path);
        tell(&mut connections, path.round(acked));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recording");
    let rows = write(&rows, &file);
    let second =
        rows.iter().enumerate().filter(|(_, row)| matches!(row, RecordingRow::Decision(_))).nth(1);
    let line = second.unwrap().0;
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<String> = text
        .lines()
        .enumerate()
        .map(
            |(at, text)| {
                if at == line { text.replace("\"cwnd\":20", "\"cwnd\":21") } else { text.into() }
            },
        )
        .collect();
    std::fs::write(&file, lines.join("\n") + "\n").unwrap();
    let replay = replay(&file, &Registry::BUILTIN, &mut |_| {}).unwrap();
    assert_eq!((replay.decisions, replay.different), (3, 1));
    let difference = &replay.differences[0];
    assert_eq!((difference.line, difference.recorded.cwnd), (line + 1, Some(21)));
    assert_eq!(difference.replayed.as_ref().unwrap().cwnd, Some(20));
}

#[test]
fn replay_repeats_registered_foreign_algorithms() {
    let mut known = Registry::default();
    known.register(Algorithm { name: "mine", ..newreno::ALGORITHM }).unwrap();
    let rules = Rules::new(vec![Choice::offered(&known, "mine").unwrap()], Vec::new()).unwrap();
    let (recorder, rows) = Recorder::for_test();
    let mut connections = Connections::new(rules, TERMS, 1, recorder);
    let path = Path::new(0, 1);
    open(&mut connections, &path);
    decide(&mut connections, &path);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recording");
    write(&rows, &file);
    let replayed = replay(&file, &known, &mut |_| {}).unwrap();
    assert_eq!((replayed.decisions, replayed.different), (1, 0));
    let error = replay(&file, &Registry::BUILTIN, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("mine: allowed is one of "), "{error}");
}
