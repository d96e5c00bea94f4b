//! Unused windows and marked windows, in whole exchanges.

use forebay_core::units::Timestamp;

use super::script::Script;
use crate::packet::{Marks, SackBlocks};
use crate::tcp::ecn::EcnMode;
use crate::tcp::receiver::Receiver;
use crate::tcp::stack::Tcp;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

/// A window of 40 that has carried 70 segments, all acknowledged at 250 ms.
fn grown(tcp: Tcp) -> Script {
    let mut it = Script::new(tcp, Some(70));
    it.ack(100.0, 10, &[]);
    it.ack(150.0, 30, &[]);
    it.ack(200.0, 70, &[]);
    it
}

#[test]
fn idle_timeouts_halve_the_window() {
    // The timeout is 50 + 200 ms; the last segment left at 150 ms.
    for (resumes_ms, sent) in [(400.0, 80), (401.0, 40), (651.0, 20), (2000.0, 10)] {
        let mut it = grown(Tcp::LINUX);
        assert_eq!(it.window().0, 80);
        assert_eq!(it.write(resumes_ms, 100).len(), sent, "at {resumes_ms} ms");
    }
    assert_eq!(grown(Tcp::NS3).write(5000.0, 100).len(), 80);
}

#[test]
fn underused_window_decays() {
    let mut it = grown(Tcp::LINUX);
    let mut windows = Vec::new();
    for round in 0..12 {
        let (ms, next) = (210.0 + 60.0 * f64::from(round), 70 + 5 * round);
        assert_eq!(it.write(ms, 5), (next..next + 5).collect::<Vec<_>>());
        it.ack(ms + 50.0, next + 5, &[]);
        windows.push(it.window().0);
    }
    assert_eq!((windows[0], windows[11]), (80, 27), "{windows:?}");
    assert!(windows.is_sorted_by(|former, latter| former >= latter), "{windows:?}");
}

#[test]
fn flight_of_full_window_still_allows_growth() {
    let mut it = Script::new(Tcp::LINUX, Some(15));
    assert_eq!(it.ack(100.0, 3, &[]), [10, 11, 12, 13, 14]);
    // 12 of 13 are out, but the ten that filled the window are not acknowledged.
    it.ack(150.0, 15, &[]);
    assert_eq!(it.window().0, 25);
    it.write(160.0, 5);
    it.ack(210.0, 20, &[]);
    assert_eq!(it.window().0, 25, "5 of 25 fill nothing");
}

#[test]
fn marks_halve_the_window_once_a_round_trip() {
    let mut it = Script::new(Tcp { ecn: EcnMode::Classic, ..Tcp::LINUX }, None);
    it.ack(100.0, 10, &[]);
    assert_eq!(it.window(), (20, None));
    // The first mark finds a window of 23; every second acknowledgement then sends one.
    it.ack(150.0, 12, &[]);
    let sent: usize = (13..=30).map(|number| it.ack_with_ece(151.0, number).len()).sum();
    assert_eq!((it.window(), sent), ((11, Some(11)), 9));
    // A window, those 23, is acknowledged: the next mark counts again.
    it.ack_with_ece(200.0, 35);
    assert_eq!(it.window().1, Some(11));
    it.ack_with_ece(201.0, 36);
    assert_eq!(it.window().1, Some(5));
    assert_eq!(it.sender.counters.resent, 0);
}

#[test]
fn mark_and_loss_in_one_window_reduce_once() {
    let tcp = Tcp { ecn: EcnMode::Classic, ack_every: 1, ..Tcp::LINUX };
    // Of ten segments the first is lost; the mark is seen before its recovery begins, or in it.
    for marked in [1, 8] {
        let mut it = Script::new(tcp, None);
        let mut receiver = Receiver::new(&tcp);
        let mark = |number| if number == marked { Marks::ECT.with_ce() } else { Marks::ECT };
        let mut flying: Vec<(u32, Marks)> = (1..10).map(|number| (number, mark(number))).collect();
        let (mut echoes, mut thresholds) = (Vec::new(), Vec::new());
        for round in 1..=6 {
            let (sent, now) = (at(round * 50), at(round * 50 + 50));
            for (number, marks) in std::mem::take(&mut flying) {
                receiver.on_marks(marks);
                let ack = receiver.on_data(now, number, sent).0.unwrap();
                let mut blocks = SackBlocks::NONE;
                receiver.fill(&ack, &mut blocks);
                it.sender.on_ack(now, ack.number, ack.echo, blocks.as_slice(), ack.is_ece);
                let out = std::iter::from_fn(|| it.sender.transmit(now));
                flying.extend(out.map(|out| (out.number, out.marks)));
                echoes.push(ack.is_ece);
                thresholds.push(it.window().1);
            }
        }
        assert!(echoes.contains(&true) && echoes.ends_with(&[false; 10]), "{echoes:?}");
        thresholds.dedup();
        thresholds.retain(Option::is_some);
        assert_eq!((thresholds, it.sender.recoveries().0), (vec![Some(5)], 1), "{marked}");
    }
}

#[test]
fn mark_before_timeout_is_answered_without_reduction() {
    let tcp = Tcp { ecn: EcnMode::Classic, tlp: false, ..Tcp::LINUX };
    let mut it = Script::new(tcp, None);
    assert_eq!(it.wait(320.0), [(300.0, vec![0])]);
    // The repair's acknowledgement covers all, and echoes a mark of the window that timed out.
    it.sender.on_ack(at(350), 10, at(300), &[], true);
    assert_eq!(it.window().1, Some(5));
    let out: Vec<bool> =
        std::iter::from_fn(|| it.sender.transmit(at(350))).map(|out| out.marks.is_cwr()).collect();
    assert!(out.len() > 1 && out[0] && !out[1..].contains(&true), "{out:?}");
}
