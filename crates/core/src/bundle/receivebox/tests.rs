use super::super::protocol::keys::PresharedKey;
use super::super::protocol::session::Session;
use super::super::protocol::wire::Sealed;
use super::*;
use alloc::vec;

const BUNDLE: BundleId = BundleId(3);
const MS: Duration = Duration::from_millis(1);

/// A receivebox with the sendbox that it reports to, on a path without delay.
struct Bench {
    now: Timestamp,
    sendbox: Session,
    receivebox: Receivebox,
    random: u64,
    received_bytes: u64,
    reports: Vec<(Timestamp, Vec<Report>)>,
}

fn ring() -> KeyRing {
    KeyRing::new(PresharedKey::new([5; 32]), None)
}

fn size(log2: u8) -> EpochSize {
    EpochSize::from_log2(log2).unwrap()
}

impl Bench {
    fn new() -> Self {
        let now = Timestamp::from_nanos(1_000_000_000);
        let mut bench = Self {
            now,
            sendbox: Session::new(Role::Sendbox, BUNDLE, &ring(), 1, 2, now),
            receivebox: Receivebox::new(BUNDLE, &ring(), 3, 4, now),
            random: 5,
            received_bytes: 0,
            reports: Vec::new(),
        };
        bench.exchange();
        assert!(bench.sendbox.is_established());
        bench
    }

    fn exchange(&mut self) {
        let mut datagram = Vec::new();
        for _ in 0..3 {
            while self.sendbox.poll(self.now, &mut datagram) {
                self.give_receivebox(&datagram).unwrap();
            }
            self.poll_receivebox();
        }
    }

    fn give_receivebox(&mut self, datagram: &[u8]) -> Result<(), Reject> {
        let random = &mut self.random;
        self.receivebox.on_datagram(self.now, datagram, &mut || {
            *random += 1;
            *random
        })
    }

    fn poll_receivebox(&mut self) {
        let mut datagram = Vec::new();
        while self.receivebox.poll(self.now, &mut datagram) {
            let message = self.sendbox.open(self.now, &datagram, &mut || 99).unwrap();
            if let Some(Message::Reports(reports)) = message {
                self.reports.push((self.now, reports.as_slice().to_vec()));
            }
        }
        assert!(self.receivebox.next_timer() > self.now);
    }

    fn announce(&mut self, log2: u8) {
        let mut datagram = Vec::new();
        self.sendbox.seal(self.now, &Message::EpochNotice(size(log2)), &mut datagram);
        self.give_receivebox(&datagram).unwrap();
    }

    /// `bytes` of the bundle arrive, the last packet with this hash.
    fn see(&mut self, hash: u64, bytes: u64) {
        self.received_bytes += bytes;
        let seen = Seen {
            hash,
            received_at: self.now,
            received_bytes: ByteCount::new(self.received_bytes),
            received_packets: self.received_bytes / 1500,
            received_ce: 0,
        };
        self.receivebox.on_boundary(self.now, &seen);
    }

    /// A boundary every `gap`, each after `bytes` of the bundle.
    fn run(&mut self, time: Duration, gap: Duration, bytes: u64) {
        let (end, mut next) = (self.now + time, self.now);
        while self.now < end {
            if self.now >= next {
                self.see(0, bytes);
                next += gap;
            }
            self.exchange();
            self.now += MS / 2;
        }
    }

    fn counters(&self) -> ReceiveboxCounters {
        *self.receivebox.counters()
    }
}

#[test]
fn a_boundary_is_reported_at_once() {
    let mut bench = Bench::new();
    bench.announce(3);
    bench.see(8, 1500);
    bench.poll_receivebox();
    let report = Report {
        hash: 8,
        received_at: bench.now,
        received_bytes: ByteCount::new(1500),
        received_packets: 1,
        received_ce: 0,
        epoch_size: size(3),
    };
    assert_eq!(bench.reports, [(bench.now, vec![report])]);
}

#[test]
fn new_keys_start_a_session_and_keep_counts() {
    let mut bench = Bench::new();
    bench.announce(3);
    bench.see(8, 1500);
    bench.poll_receivebox();
    bench.see(8, 1500);
    assert_eq!(bench.give_receivebox(&[0; 100]), Err(Reject::NotOurs));
    let (counters, rejects) = (bench.counters(), *bench.receivebox.rejects());
    assert_eq!((counters.reports, rejects.total()), (1, 1));
    let other = KeyRing::new(PresharedKey::new([6; 32]), None);
    bench.receivebox.restart(&other, 11, 12, bench.now);
    assert_eq!((bench.counters(), *bench.receivebox.rejects()), (counters, rejects));
    assert_eq!((bench.receivebox.epoch_size(), bench.receivebox.heard_at()), (None, None));
    let mut datagram = Vec::new();
    bench.sendbox.seal(bench.now, &Message::EpochNotice(size(3)), &mut datagram);
    assert_eq!(bench.give_receivebox(&datagram), Err(Reject::Forged), "the key is gone");
}

#[test]
fn boundaries_from_before_a_size_change_are_reported() {
    let mut bench = Bench::new();
    bench.see(0, 1500);
    assert_eq!(bench.counters().without_sendbox, 1, "no size was named yet");
    bench.announce(2);
    // Arrived before the notice, but is handed over after it.
    bench.announce(3);
    bench.see(4, 1500);
    bench.poll_receivebox();
    assert_eq!((bench.counters().reports, bench.reports[0].1[0].epoch_size), (1, size(3)));
    assert_eq!(bench.receivebox.epoch_size(), Some(size(3)));
}

#[test]
fn boundaries_of_the_same_instant_share_a_datagram() {
    let mut bench = Bench::new();
    bench.announce(3);
    for n in 0..11 {
        bench.see(8 * n, 150_000);
    }
    bench.poll_receivebox();
    let lens: Vec<usize> = bench.reports.iter().map(|(_, reports)| reports.len()).collect();
    assert_eq!(lens, [8, 3]);
    let hashes = bench.reports.iter().flat_map(|(_, reports)| reports).map(|r| r.hash);
    assert!(hashes.eq((0..11).map(|n| 8 * n)));
}

#[test]
fn reports_beyond_200_per_second_are_batched() {
    let mut bench = Bench::new();
    bench.announce(0);
    // 500 boundaries a second at 96 Mbit/s.
    bench.run(MS * 10_000, MS * 2, 24_000);
    let ReceiveboxCounters { reports, report_datagrams, dropped, .. } = bench.counters();
    assert!(reports > 4990 && dropped == 0, "{reports} reports");
    assert!(report_datagrams <= 2000 + u64::from(BURST), "{report_datagrams} datagrams");
    for (at, reports) in &bench.reports {
        for report in reports {
            assert!(at.saturating_since(report.received_at) <= SPACING + MS);
        }
    }
}

#[test]
fn reports_take_one_percent_of_the_bundle() {
    let mut bench = Bench::new();
    bench.announce(0);
    // 250 boundaries a second at 12 Mbit/s: one by one, their reports would take 2 %.
    bench.run(MS * 10_000, MS * 4, 6000);
    let ReceiveboxCounters { reports, dropped, .. } = bench.counters();
    let message_bytes = bench.receivebox.message_bytes();
    assert!(reports > 2490 && dropped == 0, "{reports} reports");
    let share = message_bytes.as_f64() / bench.received_bytes as f64;
    assert!((0.009..0.0105).contains(&share), "{share}");
    for (at, reports) in &bench.reports {
        for report in reports {
            assert!(at.saturating_since(report.received_at) <= MAX_WAIT + MS);
        }
    }
}

#[test]
fn a_slow_bundle_waits_20_ms_at_most() {
    let mut bench = Bench::new();
    bench.announce(0);
    // A boundary every 100 ms at 120 kbit/s: ten times the budget.
    bench.run(MS * 20_000, MS * 100, 1500);
    assert!(bench.counters().reports >= 199);
    for (at, reports) in &bench.reports {
        assert!(at.saturating_since(reports[0].received_at) <= MAX_WAIT + MS);
    }
}

#[test]
fn excess_boundaries_drop_oldest_first_and_are_counted() {
    let mut bench = Bench::new();
    bench.announce(0);
    for n in 0..1000 {
        bench.see(n, 0);
    }
    assert_eq!(bench.counters().dropped, 1000 - MAX_WAITING as u64);
    bench.poll_receivebox();
    assert_eq!(bench.reports[0].1[0].hash, 1000 - MAX_WAITING as u64);
}

#[test]
fn a_sendbox_that_is_gone_gets_no_reports() {
    let mut bench = Bench::new();
    bench.announce(0);
    bench.now += GONE;
    bench.see(0, 1500);
    assert_eq!((bench.counters().without_sendbox, bench.counters().reports), (1, 0));
    bench.exchange();
    bench.see(0, 1500);
    bench.exchange();
    assert_eq!(bench.counters().reports, 1);
}

#[test]
fn a_restarted_sendbox_names_its_epoch_size_anew() {
    let mut bench = Bench::new();
    bench.announce(2);
    bench.sendbox = Session::new(Role::Sendbox, BUNDLE, &ring(), 11, 12, bench.now);
    let keepalive = Keepalive { state: BoxState::Measuring, epoch_size: Some(size(7)) };
    bench.now += MS * 200;
    // Challenge, response with a challenge, response.
    let mut datagram = Vec::new();
    for _ in 0..2 {
        assert!(bench.sendbox.poll(bench.now, &mut datagram));
        bench.give_receivebox(&datagram).unwrap();
        assert!(bench.receivebox.poll(bench.now, &mut datagram));
        let _ = bench.sendbox.open(bench.now, &datagram, &mut || 13);
    }
    assert_eq!(bench.receivebox.epoch_size(), None);
    bench.sendbox.set_keepalive(keepalive);
    bench.exchange();
    assert_eq!(bench.receivebox.epoch_size(), Some(size(7)));
    assert_eq!(bench.receivebox.peer().state(), Some(BoxState::Measuring));
}

#[test]
fn a_box_that_stops_says_so_at_once() {
    let mut bench = Bench::new();
    bench.receivebox.stop();
    // A later message does not undo the stop.
    bench.announce(4);
    let mut datagram = Vec::new();
    assert!(bench.receivebox.poll(bench.now, &mut datagram));
    assert!(Sealed::parse(&datagram).is_ok());
    let message = bench.sendbox.open(bench.now, &datagram, &mut || 0);
    let expected = Keepalive { state: BoxState::Stopping, epoch_size: Some(size(4)) };
    assert_eq!(message, Ok(Some(Message::Keepalive(expected))));
}
