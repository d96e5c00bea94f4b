//! The test plays the child; a connection asks it.

use std::io::Read;
use std::path::Path;

use forebay_core::cc::RttSample;
use forebay_core::cc::algorithms::newreno;
use forebay_core::units::Rate;
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use super::*;

/// A connection, and the end of its child.
fn connection() -> (Remote, Socket) {
    let (ours, theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    let link = Arc::new(Channel::new(ours, Path::new("mine.py")));
    let mut remote = Remote::new(link, ("mine", &Vec::new()), "b", &newreno::ALGORITHM);
    remote.init(Timestamp::ZERO, ByteCount::new(1000), ByteCount::new(10_000));
    (remote, theirs)
}

fn question(child: &mut Socket) -> Value {
    let mut datagram = [0; 4096];
    let length = child.read(&mut datagram).unwrap();
    serde_json::from_slice(&datagram[..length]).unwrap()
}

fn say(child: &Socket, said: &str) {
    child.send(said.as_bytes()).unwrap();
}

fn measure(remote: &mut Remote, ms: u64) {
    let rtt = Duration::from_millis(20);
    let rtt = Some(RttSample { latest: rtt, min: rtt });
    let acked = ByteCount::new(1000);
    let measurement = Measurement { acked, rtt, ..Measurement::default() };
    remote.on_measurement(Timestamp::from_nanos(ms * 1_000_000), &measurement);
}

#[test]
fn an_answer_counts_when_it_has_come() {
    let (mut remote, mut child) = connection();
    let init = question(&mut child);
    assert_eq!((&init["call"], &init["told"]["algorithm"]), (&json!("init"), &json!("mine")));
    measure(&mut remote, 20);
    let asked = question(&mut child);
    assert_eq!(asked["told"]["rtt_min_ns"], 20_000_000);
    assert_eq!(asked["told"]["lost_bytes"], Value::Null);
    assert_eq!(remote.send_limits().cwnd, Some(ByteCount::new(10_000)));
    say(&child, r#"{"connection": 1, "number": 2, "limits": [30000.7, null, -5]}"#);
    let looks = remote.next_timer().unwrap();
    remote.on_timer(looks);
    let limits = remote.send_limits();
    assert_eq!(limits.cwnd, Some(ByteCount::new(30_000)));
    assert_eq!((limits.ssthresh, limits.pacing_rate), (None, Some(Rate::ZERO)));
    assert_eq!((remote.next_timer(), remote.state().phase), (None, "python"));
}

#[test]
fn fallback_decides_while_two_ticks_late() {
    let (mut remote, child) = connection();
    measure(&mut remote, 20);
    assert_eq!(remote.state().phase, "python");
    // The answer is found without another question.
    while remote.state().phase == "python" {
        let looks = remote.next_timer().unwrap();
        assert!(looks <= Timestamp::from_nanos(22_000_000), "{looks:?}");
        remote.on_timer(looks);
    }
    assert!(remote.state().reason.contains("two ticks late"));
    measure(&mut remote, 40);
    // Slow start: the initial window and the acknowledged bytes.
    assert!(remote.send_limits().cwnd > Some(ByteCount::new(10_000)));
    say(&child, r#"{"connection": 1, "number": 99, "limits": [5000, null, null]}"#);
    measure(&mut remote, 60);
    assert_eq!(remote.state().phase, "python", "an answer to an unknown question is the newest");
    assert_eq!(remote.send_limits().cwnd, Some(ByteCount::new(5000)));
}

#[test]
fn hanging_child_gets_bounded_questions_and_no_waits() {
    let (mut remote, mut child) = connection();
    for ms in 1..=2000 {
        measure(&mut remote, ms);
    }
    assert_eq!((remote.unanswered.len(), remote.next_timer()), (UNANSWERED_MAX, None));
    child.set_nonblocking(true).unwrap();
    let mut datagram = [0; 4096];
    let questions = std::iter::from_fn(|| child.read(&mut datagram).ok());
    assert_eq!(questions.count(), UNANSWERED_MAX);
}

#[test]
fn nonsense_is_ignored_and_exception_is_final() {
    let (mut remote, child) = connection();
    let others = r#"{"connection": 7, "number": 1, "limits": [1, null, null]}"#;
    for said in ["", "nonsense", "{}", others, r#"{"connection": 1, "number": -1}"#] {
        say(&child, said);
    }
    say(&child, r#"{"connection": 1, "number": 1, "limits": null, "failed": "Traceback"}"#);
    for ms in 1..=5 {
        measure(&mut remote, ms);
    }
    assert_eq!((remote.state().phase, remote.standing), ("fallback", Standing::Failed));
    say(&child, r#"{"connection": 1, "number": 1, "limits": [1, null, null]}"#);
    say(&child, r#"{"algorithms": []}"#);
    measure(&mut remote, 6);
    assert_eq!(remote.standing, Standing::Failed, "not even the next child is asked");
}

#[test]
fn fallback_decides_until_the_next_child_starts() {
    let (mut remote, mut child) = connection();
    say(&child, r#"{"connection": 1, "number": 1, "limits": [7000, null, null]}"#);
    measure(&mut remote, 1);
    assert_eq!(remote.send_limits().cwnd, Some(ByteCount::new(7000)));
    say(&child, r#"{"ended": "signal: 9 (SIGKILL); the next one starts in 1s"}"#);
    measure(&mut remote, 2);
    assert_eq!(remote.standing, Standing::Gone);
    assert!(remote.next_timer().is_none());
    let cwnd = remote.send_limits().cwnd.unwrap();
    say(&child, r#"{"algorithms": []}"#);
    while question(&mut child)["number"] != 2 {}
    measure(&mut remote, 3);
    let init = question(&mut child);
    assert_eq!((&init["call"], &init["number"]), (&json!("init"), &json!(3)));
    // The window includes the bytes that this measurement has acknowledged.
    let begins = init["told"]["start"]["initial_cwnd_bytes"].as_u64().unwrap();
    assert_eq!((begins, remote.state().phase), (cwnd.as_u64() + 1000, "python"));
    assert_eq!(remote.send_limits().cwnd, Some(ByteCount::new(begins)));
}

#[test]
fn daemon_survives_the_loss_of_its_keeper() {
    let (mut remote, child) = connection();
    drop(child);
    for ms in (0..=50).step_by(10) {
        measure(&mut remote, ms);
    }
    assert_eq!(remote.state().phase, "fallback");
}
