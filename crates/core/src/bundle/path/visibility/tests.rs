use super::*;
use crate::units::ByteCount;

const LOOP: Duration = Duration::from_millis(50);
const MATCH_S: f64 = 0.005;

/// A path that carries `capacity` (bytes per second) past a receivebox that sees a part, with a buffer of
/// `buffer_s`.
struct Path {
    visibility: Visibility,
    capacity: f64,
    buffer_s: f64,
    queue_s: f64,
    /// Cross traffic keeps the buffer full, which drops this share of the sent bytes.
    others_drop: Option<f64>,
    is_shaped: bool,
    totals: Totals,
    verdicts: alloc::vec::Vec<VisibilityVerdict>,
    least_share: f64,
}

impl Path {
    fn new(capacity: f64) -> Self {
        let totals = Totals {
            sent_at: Timestamp::from_nanos(1_000_000_000),
            sent: ByteCount::ZERO,
            received: ByteCount::ZERO,
        };
        let visibility = Visibility::default();
        let verdicts = alloc::vec::Vec::new();
        Self {
            visibility,
            capacity,
            buffer_s: 0.1,
            queue_s: 0.0,
            others_drop: None,
            is_shaped: true,
            totals,
            verdicts,
            least_share: 1.0,
        }
    }

    /// Sends `wanted` bytes per second for `seconds`; the receivebox sees the share `seen`.
    fn run(&mut self, seconds: f64, wanted: f64, seen: f64) {
        for _ in 0..(seconds / MATCH_S) as u32 {
            let asked = Rate::from_bytes_per_sec_f64(wanted);
            let rate = self.visibility.bound(&Tuning::DEFAULT, self.is_shaped.then_some(asked));
            let rate = rate.unwrap_or(asked).as_bytes_per_sec_f64();
            self.least_share = self.least_share.min(rate / wanted);
            self.totals.sent_at += Duration::from_secs_f64(MATCH_S);
            self.totals.sent += ByteCount::new((rate * MATCH_S) as u64);
            let longer_s = (rate / self.capacity - 1.0) * MATCH_S;
            self.queue_s = (self.queue_s + longer_s).clamp(0.0, self.buffer_s);
            let mut left = if self.queue_s > 0.0 { self.capacity } else { rate.min(self.capacity) };
            if let Some(dropped) = self.others_drop {
                (self.queue_s, left) = (self.buffer_s, rate * (1.0 - dropped));
            }
            let arrived = left * seen;
            self.totals.received += ByteCount::new((arrived * MATCH_S) as u64);
            let now = self.totals.sent_at + LOOP;
            let around = Loop {
                time: LOOP,
                rtt: LOOP + Duration::from_secs_f64(self.queue_s),
                least_rtt: LOOP,
                is_shaped: self.is_shaped,
                is_testable: true,
                min_rate: Rate::ZERO,
            };
            self.verdicts.extend(self.visibility.on_match(
                &Tuning::DEFAULT,
                now,
                self.totals,
                &around,
            ));
            self.verdicts.extend(self.visibility.on_tick(&Tuning::DEFAULT, now, LOOP));
        }
    }
}

#[test]
fn loss_that_persists_at_lower_rate_is_unseen() {
    for seen in [0.95, 0.8, 0.5, 0.1] {
        let mut path = Path::new(1e9);
        path.run(5.0, 2.5e6, seen);
        assert_eq!(path.verdicts, [VisibilityVerdict::Unseen], "{seen}");
        assert!((path.visibility.unseen() - (1.0 - seen)).abs() < 0.01, "{seen}");
        assert_eq!(path.visibility.missing(), 0.0);
        assert!(
            path.least_share > Tuning::DEFAULT.unseen_test_share_min - 1e-6,
            "{seen}: {}",
            path.least_share
        );
        assert_eq!(
            path.visibility.alarm(&Tuning::DEFAULT, path.totals.sent_at),
            Some(Alarm::Unseen)
        );
    }
}

#[test]
fn unseen_share_is_found_before_rate_enforcement() {
    let mut path = Path::new(1e9);
    path.is_shaped = false;
    path.run(5.0, 2.5e6, 0.1);
    assert_eq!(path.verdicts, [VisibilityVerdict::Unseen]);
    assert!((path.visibility.unseen() - 0.9).abs() < 0.01);
    assert!(
        path.least_share > Tuning::DEFAULT.unseen_test_share_min - 1e-6,
        "{}",
        path.least_share
    );
}

#[test]
fn slow_start_loss_triggers_no_test() {
    let mut path = Path::new(2.5e6);
    path.is_shaped = false;
    path.run(0.7, 4e6, 1.0);
    path.run(5.0, 2.4e6, 1.0);
    assert_eq!((path.least_share, path.visibility.missing()), (1.0, 0.0));
}

#[test]
fn what_a_lower_rate_brings_back_is_congestion() {
    for overload in [1.1, 1.5, 3.0, 10.0] {
        let mut path = Path::new(2.5e6);
        path.run(60.0, overload * 2.5e6, 1.0);
        assert_eq!(path.verdicts, [], "{overload}");
        assert_eq!(path.visibility.unseen(), 0.0);
        assert!((path.visibility.missing() - (1.0 - 1.0 / overload)).abs() < 0.05);
    }
}

#[test]
fn loss_by_foreign_full_buffer_is_congestion() {
    for dropped in [0.05, 0.1, 0.3] {
        let mut path = Path::new(2.5e6);
        path.others_drop = Some(dropped);
        path.run(60.0, 1e6, 1.0);
        assert_eq!((path.verdicts, path.visibility.unseen()), (alloc::vec![], 0.0));
        assert!((path.visibility.missing() - dropped).abs() < 0.01, "{dropped}");
        assert_eq!(path.visibility.alarm(&Tuning::DEFAULT, path.totals.sent_at), None);
    }
    // The capacity that cross traffic leaves free, in turns.
    let mut path = Path::new(2.5e6);
    for dropped in [0.3, 0.05, 0.2, 0.1].into_iter().cycle().take(150) {
        path.others_drop = Some(dropped);
        path.run(0.4, 1e6, 1.0);
    }
    assert_eq!((path.verdicts, path.visibility.unseen()), (alloc::vec![], 0.0));
}

/// Three real runs next to requests that fill the buffer in turns. Each raised an alarm when a test was
/// judged by all packets that left under it, or by the mean queue alone.
#[test]
fn requests_next_to_the_bundle_raise_no_alarm() {
    let runs = include_str!("cross_web.csv").split("\n\n");
    let matches: alloc::vec::Vec<usize> = runs.map(replay).collect();
    assert_eq!(matches, [453, 213, 263]);
}

/// Boundaries of a run; none may lead to a verdict.
fn replay(run: &str) -> usize {
    let mut visibility = Visibility::default();
    let rows = run.lines().filter(|row| !row.starts_with('#'));
    rows.map(|row| {
        let fields: alloc::vec::Vec<u64> =
            row.split(',').map(|field| field.parse().unwrap()).collect();
        let [now, sent_at, sent, received, time, rtt, least_rtt, is_shaped] = fields[..] else {
            panic!("{row}")
        };
        let at = |us: u64| Timestamp::from_nanos(1000 * us);
        let totals = Totals {
            sent_at: at(sent_at),
            sent: ByteCount::new(sent),
            received: ByteCount::new(received),
        };
        let around = Loop {
            time: Duration::from_micros(time),
            rtt: Duration::from_micros(rtt),
            least_rtt: Duration::from_micros(least_rtt),
            is_shaped: is_shaped == 1,
            is_testable: true,
            min_rate: Rate::from_bits_per_sec(1_200_000),
        };
        assert_eq!(
            visibility.on_match(&Tuning::DEFAULT, at(now), totals, &around),
            None,
            "at {now} us"
        );
        assert_eq!(visibility.on_tick(&Tuning::DEFAULT, at(now), around.time), None, "at {now} us");
        assert_eq!(visibility.alarm(&Tuning::DEFAULT, at(now)), None, "at {now} us");
    })
    .count()
}

#[test]
fn unseen_share_is_found_after_cross_traffic_ends() {
    let mut path = Path::new(1e9);
    path.others_drop = Some(0.0);
    path.run(20.0, 2.5e6, 0.5);
    assert_eq!(path.verdicts, []);
    path.others_drop = None;
    path.queue_s = 0.0;
    path.run(Tuning::DEFAULT.calm.as_secs_f64() + 3.0, 2.5e6, 0.5);
    assert_eq!(path.verdicts, [VisibilityVerdict::Unseen]);
}

#[test]
fn recovery_at_lower_rate_without_queue_is_ignored() {
    let mut path = Path::new(2.5e6);
    path.buffer_s = 0.0;
    path.run(1.5, 3.75e6, 1.0);
    assert_eq!(path.verdicts, [VisibilityVerdict::Unsteady]);
    assert_eq!(path.visibility.unseen(), 0.0);
    assert_eq!(path.visibility.alarm(&Tuning::DEFAULT, path.totals.sent_at), Some(Alarm::Unsteady));
}

#[test]
fn what_is_seen_again_is_no_longer_unseen() {
    let mut path = Path::new(1e9);
    path.run(5.0, 2.5e6, 0.7);
    path.run(60.0, 2.5e6, 1.0);
    assert_eq!(path.visibility.unseen(), 0.0);
    assert_eq!(path.visibility.alarm(&Tuning::DEFAULT, path.totals.sent_at), None);
}

#[test]
fn oscillating_share_is_ignored_for_a_while() {
    let mut path = Path::new(1e9);
    for seen in [0.9, 0.7, 0.5, 0.3] {
        path.run(2.0, 2.5e6, seen);
    }
    assert_eq!(
        path.verdicts,
        [VisibilityVerdict::Unseen, VisibilityVerdict::Unseen, VisibilityVerdict::Unsteady]
    );
    let alarm = path.visibility.alarm(&Tuning::DEFAULT, path.totals.sent_at);
    assert_eq!(alarm, Some(Alarm::Unsteady));
}

#[test]
fn random_loss_and_reordering_trigger_no_test() {
    let mut path = Path::new(1e9);
    path.run(20.0, 2.5e6, 0.98);
    assert_eq!((path.least_share, path.visibility.missing()), (1.0, 0.0));
}

#[test]
fn foreign_bytes_in_the_bundle_raise_an_alarm() {
    let mut path = Path::new(1e9);
    path.run(2.0, 2.5e6, 1.5);
    assert_eq!(path.visibility.alarm(&Tuning::DEFAULT, path.totals.sent_at), Some(Alarm::Foreign));
    path.run(9.0, 2.5e6, 1.0);
    assert_eq!(path.visibility.alarm(&Tuning::DEFAULT, path.totals.sent_at), Some(Alarm::Foreign));
    path.run(2.0, 2.5e6, 1.0);
    assert_eq!(path.visibility.alarm(&Tuning::DEFAULT, path.totals.sent_at), None);
}
