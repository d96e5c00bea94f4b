//! A sender with a fixed window, and its reports.

use std::sync::{Arc, Mutex};

use forebay_core::cc::{Measurement, SendLimits, State};
use forebay_core::units::Duration;

use super::*;

/// Nanoseconds per millisecond.
const MS: u64 = 1_000_000;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * MS)
}

/// A window with ssthresh 5 after a loss, and a log of the sender's reports.
struct Fixed(Arc<Mutex<Vec<String>>>, u64, u64);

impl CongestionControl for Fixed {
    fn init(&mut self, _now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        (self.1, self.2) = (initial_cwnd.as_u64(), mss.as_u64());
    }
    fn on_measurement(&mut self, _now: Timestamp, measurement: &Measurement) {
        let segments = |bytes: ByteCount| bytes.as_u64() / self.2;
        let in_flight = segments(measurement.in_flight.unwrap());
        let acked = segments(measurement.acked);
        self.0.lock().unwrap().push(format!("acked {acked} in flight {in_flight}"));
    }
    fn on_event(&mut self, _now: Timestamp, event: CongestionEvent) {
        self.0.lock().unwrap().push(format!("{event:?}"));
        if event == CongestionEvent::Rto {
            self.1 = self.2;
        }
    }
    fn send_limits(&self) -> SendLimits {
        let ssthresh = Some(ByteCount::new(5 * self.2));
        SendLimits { cwnd: Some(ByteCount::new(self.1)), ssthresh, ..SendLimits::default() }
    }
    fn state(&self) -> State {
        State::default()
    }
}

struct Bench {
    sender: Sender,
    told: Arc<Mutex<Vec<String>>>,
}

impl Bench {
    /// A connection that is open since 10 ms and has sent its first window.
    fn new(tcp: Tcp, bytes: Option<u64>) -> (Self, Vec<u32>) {
        let told = Arc::default();
        let algorithm = Fixed(Arc::clone(&told), 0, 0);
        let mut sender = Sender::new(tcp, Box::new(algorithm), bytes);
        sender.start();
        assert_eq!(sender.transmit(at(0)).unwrap().kind, Kind::Syn);
        assert_eq!(sender.transmit(at(0)), None);
        sender.on_syn_ack(at(10), at(0));
        let mut bench = Self { sender, told };
        let sent = bench.sent(10);
        // Drop the reports of NS3 on the handshake.
        bench.told();
        (bench, sent)
    }

    fn sent(&mut self, ms: u64) -> Vec<u32> {
        std::iter::from_fn(|| self.sender.transmit(at(ms))).map(|out| out.number).collect()
    }

    fn ack(&mut self, ms: u64, number: u32, blocks: &[(u32, u32)]) -> Vec<u32> {
        let blocks: Vec<Range> =
            blocks.iter().map(|(start, end)| Range { start: *start, end: *end }).collect();
        self.sender.on_ack(at(ms), number, at(10), &blocks, false);
        self.sent(ms)
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.told.lock().unwrap())
    }
}

#[test]
fn the_initial_window_leaves_after_one_round_trip() {
    let (bench, sent) = Bench::new(Tcp::NS3, None);
    assert_eq!(sent, (0..10).collect::<Vec<_>>());
    assert_eq!(bench.sender.srtt_ns(), 10 * MS);
}

#[test]
fn ack_of_unsent_data_is_ignored() {
    let (mut bench, sent) = Bench::new(Tcp::LINUX, None);
    assert_eq!(sent.len(), 10);
    assert_eq!(bench.ack(20, 11, &[]), [0; 0]);
    assert_eq!((bench.sender.una(), bench.told()), (0, vec![]));
    assert_eq!(bench.ack(20, 10, &[]).len(), 10);
}

#[test]
fn a_recovery_repairs_tells_and_reduces() {
    let (mut bench, _) = Bench::new(Tcp::NS3, None);
    // Segment 0 is lost. Two duplicates: limited transmit sends 10 and 11 without a report.
    assert_eq!([bench.ack(20, 0, &[(1, 2)]), bench.ack(20, 0, &[(1, 3)])], [[10], [11]]);
    assert_eq!(bench.told(), ["acked 0 in flight 9"; 2]);
    // The third: 12 outstanding, 3 SACKed, 1 lost.
    assert_eq!(bench.ack(20, 0, &[(1, 4)]), [0]);
    let told = ["acked 0 in flight 8", "Loss", "acked 1 in flight 8"];
    assert_eq!(bench.told(), told);
    // PRR towards 5: every second or third duplicate lets one out.
    let sent: Vec<usize> = (5..=10).map(|end| bench.ack(21, 0, &[(1, end)]).len()).collect();
    assert_eq!(sent.iter().sum::<usize>(), 2, "{sent:?}");
    // The algorithm's window of 10 is back; 2 segments are in flight.
    assert_eq!(bench.ack(30, 12, &[]).len(), 8);
    assert!(bench.told().contains(&"RecoveryEnd".to_string()));
}

#[test]
fn ns3_partial_ack_resends_hole_beyond_window() {
    let by_prr = Tcp { newreno_partial_acks: false, ..Tcp::NS3 };
    for (tcp, repaired) in [(Tcp::NS3, vec![1]), (by_prr, vec![])] {
        let (mut bench, _) = Bench::new(tcp, None);
        // Segments 0 and 1 are lost; the first goes out again with the third duplicate.
        let sent = [3, 4, 5].map(|end| bench.ack(20, 0, &[(2, end)]));
        assert_eq!(sent[2], [0]);
        assert_eq!(bench.ack(30, 1, &[(2, 5)]), repaired);
    }
}

#[test]
fn without_sack_duplicates_count_as_arrivals() {
    let (mut bench, _) = Bench::new(Tcp { sack: false, ..Tcp::NS3 }, None);
    // Segments 0 and 3 are lost. Limited transmit, as with SACK.
    assert_eq!([bench.ack(20, 0, &[]), bench.ack(20, 0, &[])], [[10], [11]]);
    bench.told();
    assert_eq!(bench.ack(20, 0, &[]), [0]);
    // The lost head counts as in flight for the loss. No delivery is known.
    let told = ["acked 0 in flight 9", "Loss", "acked 0 in flight 8"];
    assert_eq!(bench.told(), told);
    // Each duplicate sends one segment: PRR sees no delivery, and the duplicate's segment counts as in
    // flight.
    assert_eq!(bench.ack(21, 0, &[]), [12]);
    assert_eq!(bench.ack(30, 3, &[]), [3]);
    assert_eq!(bench.ack(31, 3, &[]), [13]);
    let sent = bench.ack(40, 12, &[]);
    assert_eq!(sent, (14..22).collect::<Vec<_>>());
    assert!(bench.told().contains(&"RecoveryEnd".to_string()));
}

#[test]
fn without_sack_new_recovery_resends_head() {
    let (mut bench, _) = Bench::new(Tcp { sack: false, ..Tcp::NS3 }, None);
    // Two duplicates are taken for the arrival of 1 and 2. The reordered 0 arrives, so one of the duplicates
    // was for another segment. The head, 1, is then taken for lost.
    assert_eq!([bench.ack(20, 0, &[]), bench.ack(20, 0, &[])], [[10], [11]]);
    assert_eq!(bench.ack(21, 1, &[]).first(), Some(&1));
    // Three duplicates begin a recovery, which sends the head once more.
    bench.ack(22, 1, &[]);
    bench.ack(22, 1, &[]);
    assert_eq!(bench.ack(22, 1, &[]), [1]);
}

#[test]
fn without_sack_surplus_duplicate_sends_nothing() {
    let (mut bench, _) = Bench::new(Tcp { sack: false, ..Tcp::NS3 }, Some(14_480));
    // After nine duplicates, all segments above the head count as arrived.
    (0..9).for_each(|_| _ = bench.ack(20, 0, &[]));
    bench.ack(21, 0, &[]);
    assert_eq!(bench.sender.cwnd(), bench.sender.in_flight_bytes().as_u64());
}

/// A window of ten segments, and half of that from the first duplicate of a recovery on.
struct Yielding(u64, bool);

impl CongestionControl for Yielding {
    fn init(&mut self, _now: Timestamp, mss: ByteCount, _initial_cwnd: ByteCount) {
        self.0 = mss.as_u64();
    }
    fn on_measurement(&mut self, _now: Timestamp, measurement: &Measurement) {
        self.1 |= measurement.delivered > ByteCount::new(3 * self.0);
    }
    fn on_event(&mut self, _now: Timestamp, _event: CongestionEvent) {}
    fn send_limits(&self) -> SendLimits {
        let cwnd = if self.1 { self.0 / 2 } else { 10 * self.0 };
        let ssthresh = Some(ByteCount::new(9 * self.0));
        SendLimits { cwnd: Some(ByteCount::new(cwnd)), ssthresh, ..SendLimits::default() }
    }
    fn state(&self) -> State {
        State::default()
    }
}

#[test]
fn ns3_lowered_window_holds_until_next_prr() {
    for obeys_in_recovery in [true, false] {
        let tcp = Tcp { obeys_in_recovery, ..Tcp::NS3 };
        let mut sender = Sender::new(tcp, Box::new(Yielding(0, false)), None);
        sender.start();
        sender.transmit(at(0));
        sender.on_syn_ack(at(10), at(0));
        while sender.transmit(at(10)).is_some() {}
        let mut is_lowered = |end| {
            sender.on_ack(at(20), 0, at(10), &[Range { start: 1, end }], false);
            while sender.transmit(at(20)).is_some() {}
            sender.cwnd() < sender.mss
        };
        let lowered = [2, 3, 4, 5, 6].map(&mut is_lowered);
        assert_eq!(lowered, [false, false, false, obeys_in_recovery, false]);
    }
}

/// A window of twenty segments, sent one every 10 ms, and the first report.
#[derive(Default)]
struct Paced(u64, Arc<Mutex<Option<Measurement>>>);

impl CongestionControl for Paced {
    fn init(&mut self, _now: Timestamp, mss: ByteCount, _initial_cwnd: ByteCount) {
        self.0 = mss.as_u64();
    }
    fn on_measurement(&mut self, _now: Timestamp, measurement: &Measurement) {
        self.1.lock().unwrap().get_or_insert(*measurement);
    }
    fn on_event(&mut self, _now: Timestamp, _event: CongestionEvent) {}
    fn send_limits(&self) -> SendLimits {
        let cwnd = Some(ByteCount::new(20 * self.0));
        let pacing_rate = ByteCount::new(self.0).per(Duration::from_millis(10));
        SendLimits { cwnd, pacing_rate, ..SendLimits::default() }
    }
    fn state(&self) -> State {
        State::default()
    }
}

#[test]
fn ns3_first_window_and_immediate_repair_are_unpaced() {
    let begun = |tcp: Tcp| {
        let mut sender = Sender::new(tcp, Box::new(Paced::default()), None);
        sender.start();
        sender.transmit(at(0));
        sender.on_syn_ack(at(10), at(0));
        sender
    };
    let sent = |sender: &mut Sender, ms| -> Vec<u32> {
        std::iter::from_fn(|| sender.transmit(at(ms))).map(|out| out.number).collect()
    };
    let paced = Tcp { paces_first_window: true, ..Tcp::NS3 };
    assert_eq!(sent(&mut begun(paced), 10), [0]);
    for (paces_forced_repairs, next) in [(false, vec![11]), (true, vec![])] {
        let mut sender = begun(Tcp { paces_forced_repairs, ..Tcp::NS3 });
        assert_eq!(sent(&mut sender, 10), (0..10).collect::<Vec<_>>());
        // Segment 0 is lost. The third duplicate causes its retransmission, before the next segment's turn at
        // 30 ms.
        let mut duplicate = |ms, end| {
            sender.on_ack(at(ms), 0, at(10), &[Range { start: 1, end }], false);
            sent(&mut sender, ms)
        };
        assert_eq!([duplicate(20, 2), duplicate(21, 3)], [vec![10], vec![]]);
        assert_eq!(duplicate(22, 4), [0]);
        assert_eq!(sent(&mut sender, 30), next);
    }
}

#[test]
fn ns3_reports_handshake_rtt_before_sending() {
    let first = |tells_handshake| {
        let told = Arc::default();
        let algorithm = Paced(0, Arc::clone(&told));
        let tcp = Tcp { tells_handshake, ..Tcp::NS3 };
        let mut sender = Sender::new(tcp, Box::new(algorithm), None);
        sender.start();
        sender.transmit(at(0));
        sender.on_syn_ack(at(15), at(0));
        let first = *told.lock().unwrap();
        first.map(|told| (told.rtt.unwrap().latest, told.acked, told.in_flight))
    };
    let nothing = ByteCount::ZERO;
    assert_eq!(first(true), Some((Duration::from_millis(15), nothing, Some(nothing))));
    assert_eq!(first(false), None);
}

#[test]
fn timeout_restarts_with_one_segment_and_doubles() {
    let (mut bench, _) = Bench::new(Tcp::NS3, None);
    bench.sender.on_timeout(at(1010));
    assert_eq!(bench.told(), ["acked 0 in flight 10", "Rto"]);
    assert_eq!(bench.sent(1010), [0]);
    assert_eq!(bench.sender.counters.timeouts, 1);
    assert_eq!(bench.sender.state.rtt.rto_ns(), 2000 * MS);
    assert_eq!(bench.ack(1020, 1, &[]), [1]);
    assert!(bench.sender.state.rtt.rto_ns() < 2000 * MS, "something new ends the backing off");
}

#[test]
fn a_flow_ends_with_the_bytes_it_has() {
    let (mut bench, sent) = Bench::new(Tcp::NS3, Some(1448 * 2 + 100));
    assert_eq!(sent, [0, 1, 2]);
    assert_eq!(bench.sender.stream.payload(2), 100);
    assert_eq!(bench.ack(20, 3, &[]), [0; 0]);
    assert!(!bench.sender.rto_timer.is_running());
}

#[test]
fn messages_are_sent_as_they_are_written() {
    let mut sender = Sender::new(Tcp::LINUX, Box::new(Fixed(Arc::default(), 0, 0)), Some(0));
    sender.establish(at(0), 50 * MS);
    assert_eq!((sender.transmit(at(0)), sender.srtt_ns()), (None, 50 * MS));
    assert_eq!(sender.write(1448 + 16), 2);
    let lens = |sender: &mut Sender, ms| -> Vec<u16> {
        std::iter::from_fn(|| sender.transmit(at(ms))).map(|out| out.len).collect()
    };
    assert_eq!(lens(&mut sender, 5), [1514, 82]);
    assert_eq!(sender.write(100), 3);
    assert_eq!(lens(&mut sender, 6), [166]);
    sender.on_ack(at(60), 3, at(5), &[], false);
    assert!(sender.transmit(at(60)).is_none() && !sender.rto_timer.is_running());
}

#[test]
fn a_pause_is_told_with_its_length() {
    let told = Arc::default();
    let algorithm = Fixed(Arc::clone(&told), 0, 0);
    let mut sender = Sender::new(Tcp::LINUX, Box::new(algorithm), Some(0));
    sender.establish(at(0), 50 * MS);
    for (written_ms, acked_ms, number) in [(5, 60, 1), (60, 120, 2), (180, 240, 3)] {
        sender.write(1448);
        assert!(sender.transmit(at(written_ms)).is_some());
        assert!(sender.transmit(at(written_ms)).is_none());
        sender.on_ack(at(acked_ms), number, at(written_ms), &[], false);
    }
    let told = told.lock().unwrap();
    let pauses: Vec<&String> = told.iter().filter(|it| it.starts_with("Resume")).collect();
    assert_eq!(pauses, ["Resume(55ms)", "Resume(120ms)"]);
}

#[test]
fn closed_flow_only_repairs_sent_segments() {
    let (mut bench, _) = Bench::new(Tcp::NS3, None);
    bench.sender.close();
    let sent = [2, 3, 4].map(|end| bench.ack(20, 0, &[(1, end)]));
    assert_eq!(sent, [vec![], vec![], vec![0]]);
    assert_eq!(bench.ack(30, 10, &[]), [0; 0]);
}

#[test]
fn lost_request_is_resent_after_initial_timeout() {
    let algorithm = Fixed(Arc::default(), 0, 0);
    let mut sender = Sender::new(Tcp::LINUX, Box::new(algorithm), None);
    sender.start();
    sender.transmit(at(0)).unwrap();
    sender.on_timeout(at(1000));
    assert_eq!(sender.transmit(at(1000)).unwrap().kind, Kind::Syn);
    sender.on_syn_ack(at(1020), at(1000));
    assert_eq!(sender.srtt_ns(), 0, "Karn: which of the two was answered?");
    assert!(sender.transmit(at(1020)).is_some());
}

#[test]
fn timestamps_count_whole_ticks() {
    let nanos = Timestamp::from_nanos;
    assert_eq!(ticked(nanos(15_900_000), nanos(999_999), MS), 15 * MS);
    assert_eq!(ticked(nanos(16_000_000), nanos(999_999), MS), 16 * MS);
    assert_eq!(ticked(nanos(999_999), nanos(1), MS), 1_000);
}
