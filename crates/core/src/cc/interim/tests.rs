use super::*;
use crate::bundle::control::SUPPLIED;
use crate::cc::algorithms::{cubic, newreno};
use crate::cc::rounds::RoundSender;
use crate::cc::window::tests::{Fed, MSS};
use crate::cc::{CongestionEvent, Field, Registry, RttSample};
use crate::spec::Spec;

fn bytes(segments: u64) -> ByteCount {
    ByteCount::new(segments * MSS)
}

fn terms(interim: Interim) -> Terms {
    Terms::new(&interim, ByteCount::new(MSS))
}

/// A host that fills its window over a path of constant round trip.
struct Host {
    window: HostWindow,
    una: u32,
    nxt: u32,
    now_us: u32,
    rtt_us: u32,
}

impl Host {
    fn new(cwnd: u32) -> Self {
        let (una, nxt) = (7, 7 + cwnd);
        Self { window: HostWindow::new(cwnd, una, 0), una, nxt, now_us: 0, rtt_us: 40_000 }
    }

    /// One segment is acknowledged; true if slow start ended.
    fn ack(&mut self, terms: &Terms) -> bool {
        self.una += 1;
        let ack = Ack {
            acked: 1,
            una: self.una,
            nxt: self.nxt,
            has_advanced: true,
            is_filled: true,
            rtt_us: self.rtt_us,
            now_us: self.now_us,
            ..Ack::default()
        };
        let ends = self.window.on_ack(terms, &ack);
        self.nxt = self.una + self.window.cwnd;
        ends
    }

    /// A window is acknowledged, segment by segment, within a hundredth of the round trip.
    fn round(&mut self, terms: &Terms) -> bool {
        self.now_us += self.rtt_us;
        let segments = self.nxt - self.una;
        (0..segments).map(|_| self.ack(terms)).filter(|ends| *ends).count() > 0
    }
}

#[test]
fn default_rule_holds_the_window_and_never_trips() {
    let terms = terms(Interim::default());
    let mut host = Host::new(10);
    host.round(&terms);
    assert_eq!(
        host.window,
        HostWindow { hystart: host.window.hystart, ..HostWindow::new(10, 7, 0) }
    );
    let all = Interval { samples: 1000, rtt_min_us: u32::MAX, lost: 1000, ce: 1000 };
    assert_eq!(terms.tripped(&all), [false; 3]);
    assert_eq!(terms.reduced(10), 10);
}

#[test]
fn slow_start_stops_at_ssthresh_carrying_the_rest() {
    let interim = Interim { growth: bytes(1), slow_start: SlowStart::Standard, ..Interim::HOLD };
    let mut host = Host::new(10);
    host.window.ssthresh = 35;
    host.round(&terms(interim));
    assert_eq!(host.window.cwnd, 20);
    host.round(&terms(interim));
    assert_eq!((host.window.cwnd, host.window.credit), (35, 5 << FRACTION_BITS));
}

#[test]
fn growth_per_window_is_fixed_up_to_cap() {
    // RFC 5681, 3.1: about one segment a round trip; 2.5 segments; the cap.
    for (growth, rounds, least, most) in [(MSS, 20, 119, 120), (MSS * 5 / 2, 20, 148, 150)] {
        let interim = Interim { growth: ByteCount::new(growth), ..Interim::HOLD };
        let mut host = Host::new(100);
        host.window.ssthresh = 2;
        (0..rounds).for_each(|_| _ = host.round(&terms(interim)));
        assert!((least..=most).contains(&host.window.cwnd), "{}", host.window.cwnd);
        let capped = Interim { cap: bytes(110), ..interim };
        let mut host = Host::new(100);
        host.window.ssthresh = 2;
        (0..rounds).for_each(|_| _ = host.round(&terms(capped)));
        assert_eq!(host.window.cwnd, 110);
    }
}

#[test]
fn growth_is_never_faster_than_slow_start() {
    let interim = Interim { growth: bytes(1 << 30), ..Interim::HOLD };
    let mut host = Host::new(10);
    host.window.ssthresh = 2;
    host.round(&terms(interim));
    assert_eq!(host.window.cwnd, 20);
    host.window.cwnd = SEGMENTS_MAX - 1;
    host.ack(&terms(interim));
    host.ack(&terms(interim));
    assert_eq!(host.window.cwnd, SEGMENTS_MAX);
}

#[test]
fn stalled_or_unfilled_window_does_not_grow() {
    let interim = Interim { growth: bytes(10), slow_start: SlowStart::Standard, ..Interim::HOLD };
    let mut window = HostWindow::new(10, 0, 0);
    let full = Ack { acked: 10, una: 10, nxt: 20, ..Ack::default() };
    window.on_ack(&terms(interim), &Ack { has_advanced: true, ..full });
    window.on_ack(&terms(interim), &Ack { is_filled: true, ..full });
    assert_eq!(window.cwnd, 10);
    window.on_ack(&terms(interim), &Ack { has_advanced: true, is_filled: true, ..full });
    assert_eq!(window.cwnd, 20);
}

#[test]
fn hystart_plus_plus_quarters_growth_for_five_rounds() {
    // RFC 9406, 4.2: T = 5 ms with a round trip of 40 ms.
    let interim = terms(Interim { slow_start: SlowStart::HyStartPlusPlus, ..Interim::HOLD });
    let mut host = Host::new(16);
    host.round(&interim);
    host.rtt_us = 44_999;
    host.round(&interim);
    assert_eq!(host.window.cwnd, 64);
    host.rtt_us = 51_000;
    host.round(&interim);
    let before = host.window.cwnd;
    assert!(host.window.hystart.is_conservative());
    assert!(!host.round(&interim));
    assert_eq!(host.window.cwnd, before + before / 4);
    let ended = (0..4).position(|_| host.round(&interim));
    assert_eq!(ended, Some(3));
    assert!(host.window.ssthresh <= host.window.cwnd);
}

#[test]
fn slow_start_after_a_loss_is_not_conservative() {
    let interim = terms(Interim { slow_start: SlowStart::HyStartPlusPlus, ..Interim::HOLD });
    let mut host = Host::new(16);
    host.round(&interim);
    host.rtt_us = 60_000;
    host.round(&interim);
    assert!(host.window.hystart.is_conservative());
    (host.window.cwnd, host.window.ssthresh) = (10, 20);
    (0..4).for_each(|_| assert!(!host.ack(&interim)));
    assert_eq!(host.window.cwnd, 14);
}

#[test]
fn conservative_slow_start_ignores_remainder_of_avoidance() {
    let interim = terms(Interim { slow_start: SlowStart::HyStartPlusPlus, ..Interim::HOLD });
    let mut host = Host::new(16);
    host.round(&interim);
    host.rtt_us = 60_000;
    host.round(&interim);
    assert!(host.window.hystart.is_conservative());
    let before = host.window.cwnd;
    host.window.credit = 30 << FRACTION_BITS;
    host.ack(&interim);
    assert!(host.window.cwnd <= before + 1, "{} after {before}", host.window.cwnd);
}

#[test]
fn hystart_plus_plus_resumes_where_the_delay_falls() {
    let interim = terms(Interim { slow_start: SlowStart::HyStartPlusPlus, ..Interim::HOLD });
    let mut host = Host::new(16);
    host.round(&interim);
    host.rtt_us = 60_000;
    host.round(&interim);
    assert!(host.window.hystart.is_conservative());
    host.rtt_us = 50_000;
    host.round(&interim);
    assert!(!host.window.hystart.is_conservative());
    assert_eq!(host.window.ssthresh, SSTHRESH_INFINITE);
}

#[test]
fn hystart_ends_on_delay_or_long_acknowledgement_train() {
    let interim = terms(Interim { slow_start: SlowStart::HyStart, ..Interim::HOLD });
    let mut host = Host::new(16);
    assert!(!host.round(&interim));
    host.rtt_us = 45_001;
    assert!(host.round(&interim));
    // A train of more than 20 ms, one acknowledgement a millisecond.
    let mut host = Host::new(30);
    let ended = (1..40).find(|_| {
        host.now_us += 1000;
        host.ack(&interim)
    });
    assert_eq!(ended, Some(22));
    assert_eq!(host.window.ssthresh, 51);
}

/// Number, from the first on, of the acknowledgement that ends slow start by a train: one a
/// millisecond, at a round trip of 40 ms and from 30 segments on.
fn end_of_train(edit: impl Fn(&mut Ack)) -> Option<u32> {
    let interim = terms(Interim { slow_start: SlowStart::HyStart, ..Interim::HOLD });
    let mut window = HostWindow::new(30, 7, 0);
    (1..=100).find(|number| {
        let una = 7 + number;
        let mut ack = Ack {
            acked: 1,
            una,
            nxt: una + 200,
            has_advanced: true,
            is_filled: true,
            rtt_us: 40_000,
            now_us: number * 1000,
            ..Ack::default()
        };
        edit(&mut ack);
        window.on_ack(&interim, &ack)
    })
}

#[test]
fn aggregated_or_paced_trains_may_be_longer() {
    // Linux: (min_rtt + d) / 2, or all of it; the round begins with the first acknowledgement.
    assert_eq!(end_of_train(|_| {}), Some(1 + 21));
    assert_eq!(end_of_train(|ack| ack.ack_delay_us = 1000), Some(1 + 21));
    assert_eq!(end_of_train(|ack| ack.ack_delay_us = 2000), Some(1 + 22));
    assert_eq!(end_of_train(|ack| ack.is_paced = true), Some(1 + 41));
    // Acknowledgements without a sample are ignored: a gap of 3 ms breaks a train.
    assert_eq!(end_of_train(|ack| ack.rtt_us *= u32::from(ack.una % 3 == 0)), None);
}

#[test]
fn aggregates_delay_acknowledgements_by_at_most_a_millisecond() {
    // 4 x 64 KiB at 1 Gbit/s take 2 ms, at 10 Gbit/s 0.2 ms.
    let rates = [0, 1, 125_000_000, 262_144_000, 262_144_001, 1_250_000_000, u64::MAX];
    let delays = rates.map(|rate| hystart::ack_delay_us(65_536, rate));
    assert_eq!(delays, [0, 1000, 1000, 1000, 999, 209, 0]);
}

#[test]
fn hystart_ends_one_slow_start_until_a_timeout() {
    let interim = terms(Interim { slow_start: SlowStart::HyStart, ..Interim::HOLD });
    let mut host = Host::new(16);
    host.round(&interim);
    host.rtt_us = 60_000;
    assert!(host.round(&interim));
    let found = host.window.ssthresh;
    // After a pause slow start is back, and the round trip is still long.
    host.window.restart(1);
    assert!(host.window.cwnd < found);
    while host.window.cwnd < found {
        assert!(!host.round(&interim));
    }
    // After a timeout slow start ends again, by the samples of the present path.
    host.window.hystart = HostHyStart::new(host.nxt, host.now_us);
    (host.window.cwnd, host.window.ssthresh) = (16, 1000);
    host.round(&interim);
    assert!(!host.round(&interim), "60 ms is the least now");
    host.rtt_us = 90_000;
    assert!(host.round(&interim));
}

#[test]
fn hystart_counts_rounds_before_it_looks_at_them() {
    let interim = terms(Interim { slow_start: SlowStart::HyStart, ..Interim::HOLD });
    let mut host = Host::new(12);
    host.rtt_us = 10_000;
    // The round begins with 12 segments. Its train, seen from 16 segments on, is longer than 5 ms with
    // the 7th acknowledgement; it would be with the 8th if the round began with 16 segments.
    let ended = (0..12).find(|number| {
        host.now_us += if *number < 4 { 0 } else { 2_000 };
        host.ack(&interim)
    });
    assert_eq!(ended, Some(6));
}

#[test]
fn unused_window_falls_to_use_and_ssthresh_remembers() {
    // RFC 2861, 3.
    let mut window = HostWindow { credit: 5, ..HostWindow::new(100, 0, 0) };
    window.ssthresh = 20;
    window.on_underused(40);
    assert_eq!((window.cwnd, window.ssthresh, window.credit), (70, 75, 0));
    let cwnds = [3, 3, 3, 3, 3, 3].map(|used| {
        window.on_underused(used);
        window.cwnd
    });
    assert_eq!((cwnds, window.ssthresh), ([40, 25, 17, 13, 11, 10], 75));
    window.on_underused(0);
    assert_eq!(window.cwnd, 10);
    let restarted = |cwnd: u32, timeouts: u32| {
        let mut window = HostWindow::new(cwnd, 0, 0);
        window.restart(timeouts);
        window.cwnd
    };
    assert_eq!(
        [(100, 1), (100, 3), (100, 99), (4, 2), (0, 1)].map(|(c, t)| restarted(c, t)),
        [50, 12, 10, 4, 1]
    );
}

#[test]
fn tripwires_trip_at_their_limits() {
    let tripwires =
        Tripwires { rtt: Duration::from_millis(50), lost: bytes(3), ce: ByteCount::new(1) };
    let terms = terms(Interim { tripwires, ..Interim::HOLD });
    assert_eq!((terms.trip_rtt_us, terms.trip_lost, terms.trip_ce), (50_000, 3, 1));
    let below = Interval { samples: 8, rtt_min_us: 50_000, lost: 2, ce: 0 };
    assert_eq!(terms.tripped(&below), [false; 3]);
    let at = Interval { samples: 8, rtt_min_us: 50_001, lost: 3, ce: 1 };
    assert_eq!(terms.tripped(&at), [true; 3]);
    assert_eq!(terms.tripped(&Interval { samples: 7, ..at }), [false, true, true]);
}

#[test]
fn decision_keeps_growth_since_its_report() {
    let moving = terms(Interim { growth: bytes(1), ..Interim::HOLD });
    assert_eq!(moving.decided(25, 20, 18), 23);
    assert_eq!(moving.decided(1, 1, 1), 1);
    assert_eq!(moving.decided(5, 40, 1), SEGMENTS_MIN);
    assert_eq!(moving.decided(SEGMENTS_MAX, 0, u32::MAX), SEGMENTS_MAX);
    let holding = terms(Interim::HOLD);
    assert_eq!(holding.decided(25, 20, 18), 18);
    assert_eq!(holding.decided(25, 20, 0), SEGMENTS_MIN);
}

#[test]
fn window_shares_round_to_nearest() {
    assert_eq!((Beta::of(1, 2).parts(), Beta::of(7, 10).parts()), (512, 717));
    assert_eq!((Beta::of(3, 2), Beta::of(0, 0).parts()), (Beta::ONE, 0));
    let cubic = Terms { beta: Beta::of(7, 10).parts(), ..Terms::default() };
    // Linux's cubic has 717/1024 too.
    assert_eq!((cubic.reduced(100), cubic.reduced(2)), (70, 2));
}

#[test]
fn one_loss_is_answered_by_every_second_acknowledgement() {
    // RFC 6937, section 3.1, first example.
    let (mut in_flight, mut sent) = (19, 0);
    let mut leaves = 0;
    for delivered in 1..=19 {
        in_flight -= 1;
        let recovery = Recovery { ssthresh: 10, prior_cwnd: 20, delivered, sent };
        let window = recovery.window(in_flight, 1, false, false);
        leaves += u32::from(window > in_flight);
        sent += window - in_flight;
        in_flight = window;
    }
    assert_eq!((in_flight, leaves), (10, 10));
}

#[test]
fn below_ssthresh_only_advancing_acknowledgements_raise_inflight() {
    let recovery = Recovery { ssthresh: 10, prior_cwnd: 20, delivered: 6, sent: 6 };
    assert_eq!(recovery.window(4, 1, false, false), 5);
    assert_eq!(recovery.window(4, 1, true, true), 5);
    assert_eq!(recovery.window(4, 1, true, false), 6);
    assert_eq!(recovery.window(9, 5, true, false), 10);
    let first = Recovery { delivered: 1, sent: 0, ..recovery };
    assert_eq!(first.window(19, 1, false, false), 20);
}

/// The most segments by which two windows differ at the end of any of a hundred rounds after a loss,
/// before and after the decision. One belongs to an algorithm that is called once a window, with a host
/// that executes its interim in between. The other belongs to the same algorithm called segment by
/// segment. The path holds 100 segments and then queues.
fn beside(algorithm: &'static crate::cc::Algorithm, params: &[(&str, &str)]) -> u64 {
    let (mut each, mut once) = (Fed::new(algorithm, params), Fed::new(algorithm, params));
    for fed in [&mut each, &mut once] {
        fed.rtt = Some(RttSample { latest: round_trip(0), min: round_trip(0) });
        fed.ack(180);
        // Linux's CUBIC grows by 5 % a window before any loss, and no more after it.
        fed.event(CongestionEvent::SlowStartEnd(bytes(190)));
        fed.ack(200);
        fed.lose();
    }
    let mut host = Host::new((once.cwnd() / MSS) as u32);
    host.window.ssthresh = host.window.cwnd;
    let mut most = 0;
    for _ in 0..100 {
        let interim = terms(once.cc.interim());
        let segments = host.window.cwnd;
        host.round(&interim);
        once.gap = round_trip(segments);
        once.measure(u64::from(segments) * MSS);
        let known = host.window.cwnd;
        host.window.cwnd = interim.decided(known, known, (once.cwnd() / MSS) as u32);
        let count = each.cwnd() / MSS;
        each.gap = round_trip(segments) / count as u32;
        each.ack(count);
        for cwnd in [known, host.window.cwnd] {
            most = most.max(u64::from(cwnd).abs_diff(each.cwnd() / MSS));
        }
    }
    most
}

fn round_trip(segments: u32) -> Duration {
    Duration::from_micros(400) * segments.max(100)
}

#[test]
fn newreno_fed_once_per_round_acts_as_itself() {
    let most = beside(&newreno::ALGORITHM, &[]);
    assert!(most <= 1, "{most} segments");
    let mut fed = Fed::new(&newreno::ALGORITHM, &[]);
    let interim = fed.cc.interim();
    assert_eq!((interim.growth, interim.slow_start), (bytes(1), SlowStart::Standard));
    let halved = terms(interim).reduced(10);
    fed.event(CongestionEvent::Loss);
    assert_eq!(fed.cwnd() / MSS, u64::from(halved));
}

#[test]
fn cubic_fed_once_per_round_acts_as_itself() {
    for (linux, allowed) in [("false", 3), ("true", 2)] {
        let most = beside(&cubic::ALGORITHM, &[("linux_growth", linux)]);
        assert!(most <= allowed, "linux_growth={linux}: {most} segments");
    }
    let mut fed = Fed::new(&cubic::ALGORITHM, &[("hystart", "plus_plus")]);
    fed.ack(90);
    let interim = fed.cc.interim();
    assert_eq!(interim.slow_start, SlowStart::HyStartPlusPlus);
    let reduced = terms(interim).reduced(100);
    fed.event(CongestionEvent::Loss);
    assert_eq!(fed.cwnd() / MSS, u64::from(reduced));
}

#[test]
fn cubic_rule_does_most_growth_between_rounds() {
    // Without a decision, the host grows to within a segment of the window that cubic decides then.
    let mut fed = Fed::new(&cubic::ALGORITHM, &[]);
    fed.ack(290);
    fed.lose();
    let mut host = Host::new((fed.cwnd() / MSS) as u32);
    host.window.ssthresh = host.window.cwnd;
    fed.gap = Duration::from_millis(40);
    for _ in 0..100 {
        let interim = terms(fed.cc.interim());
        let segments = host.window.cwnd;
        host.round(&interim);
        fed.measure(u64::from(segments) * MSS);
        let wanted = (fed.cwnd() / MSS) as u32;
        assert!(wanted.abs_diff(host.window.cwnd) <= 2, "{wanted} {}", host.window.cwnd);
        host.window.cwnd = wanted;
    }
    assert!(host.window.cwnd > 270, "{}", host.window.cwnd);
}

#[test]
fn a_host_that_left_slow_start_is_followed() {
    let mut fed = Fed::new(&newreno::ALGORITHM, &[]);
    fed.ack(30);
    fed.event(CongestionEvent::SlowStartEnd(bytes(36)));
    assert_eq!((fed.cwnd(), fed.ssthresh()), (36 * MSS, Some(36 * MSS)));
}

/// Algorithms that double the window each round trip in slow start.
const DOUBLING: [&str; 17] = [
    "basic_delay",
    "bbr",
    "bbr3",
    "bic",
    "copa",
    "dctcp",
    "highspeed",
    "htcp",
    "illinois",
    "lp",
    "newreno",
    "scalable",
    "setpoint",
    "vegas",
    "veno",
    "westwood",
    "yeah",
];

#[test]
fn host_acts_in_slow_start_before_the_decision() {
    for name in DOUBLING {
        let spec = Registry::BUILTIN.of_single_flow(Spec::named(name));
        let mut sender = RoundSender::new(Registry::BUILTIN.build(&spec, SUPPLIED));
        // Data sent before the sender ran out may fill the window, too.
        (sender.extra.app_limited, sender.extra.cwnd_limited) = (true, Some(true));
        let mut host = Host::new(10);
        for doubled in [20, 40, 80, 160] {
            host.round(&terms(sender.cc.interim()));
            let acked = ByteCount::new(sender.cwnd());
            sender.extra.delivery_rate = acked.per(Duration::from_millis(40));
            assert_eq!(sender.round(40_000), doubled * MSS, "{name}");
            assert_eq!(u64::from(host.window.cwnd), doubled, "{name}");
        }
    }
}

#[test]
fn algorithm_that_never_doubles_forbids_host_doubling() {
    for name in ["const", "ledbat"] {
        let cc = crate::cc::build(&Spec::named(name), &[Field::Rtt]).unwrap();
        assert!(!cc.interim().moves_window(), "{name}");
    }
}

#[test]
fn slow_start_without_ssthresh_passes_the_timeout_value() {
    let mut host = Host::new(10);
    host.window.ssthresh = 15;
    host.round(&terms(Interim::DOUBLING));
    assert_eq!(host.window.cwnd, 20);
    host.round(&terms(Interim::DOUBLING));
    assert_eq!(host.window.cwnd, 40);
}
