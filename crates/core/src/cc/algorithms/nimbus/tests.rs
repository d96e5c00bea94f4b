use super::*;
use crate::cc::RttSample;

const MU: f64 = 12e6;
const BASE_MS: f64 = 50.0;

/// A path of 96 Mbit/s and 50 ms that the bundle shares with traffic of a given rate. It has a queue of bytes,
/// and every 5 ms reports the bytes that left one round trip ago.
struct Fed {
    cc: Box<dyn CongestionControl>,
    now: Timestamp,
    queue_bytes: f64,
    /// Own rates of the last 200 ms, the newest first.
    sent: vec::Vec<f64>,
    others: fn(f64, f64) -> f64,
}

impl Fed {
    fn new(spec: &Spec, others: fn(f64, f64) -> f64) -> Self {
        let mut cc = build(spec).unwrap();
        let now = Timestamp::from_nanos(1_000_000_000);
        cc.init(now, ByteCount::new(1514), ByteCount::new(15_140));
        Self { cc, now, queue_bytes: 0.0, sent: vec![0.0; 40], others }
    }

    fn run(&mut self, seconds: f64) {
        for _ in 0..(seconds / 0.005) as u32 {
            self.now += Duration::from_millis(5);
            let limits = self.cc.send_limits();
            // The hosts of an unshaped bundle send at twice the path's rate.
            let rate = limits.pacing_rate.map_or(2.0 * MU, Rate::as_bytes_per_sec_f64);
            self.sent.rotate_right(1);
            self.sent[0] = rate;
            let now_s = self.now.as_secs_f64();
            let others = (self.others)(now_s, self.sent[10]);
            let arriving = rate + others;
            self.queue_bytes = (self.queue_bytes + (arriving - MU) * 0.005).clamp(0.0, 1.8e6);
            let is_full = self.queue_bytes > 0.0;
            let delivery = if is_full { MU * rate / arriving } else { rate };
            let rtt = duration(1e-3 * BASE_MS + self.queue_bytes / MU);
            let per_s = Rate::from_bytes_per_sec_f64;
            let measurement = Measurement {
                interval: Duration::from_millis(5),
                acked: ByteCount::new((delivery * 0.005) as u64),
                rtt: Some(RttSample { latest: rtt, min: rtt }),
                send_rate: Some(per_s(rate)),
                delivery_rate: Some(per_s(delivery)),
                backlog: Some(ByteCount::new(200_000)),
                ..Measurement::default()
            };
            self.cc.on_measurement(self.now, &measurement);
            if self.cc.next_timer().is_some_and(|at| at <= self.now) {
                self.cc.on_timer(self.now);
            }
        }
    }

    fn phase(&self) -> &'static str {
        self.cc.state().phase
    }
}

fn nimbus() -> Spec {
    Spec::named("nimbus")
}

fn elasticity(cc: &dyn CongestionControl) -> f64 {
    cc.state().numbers.iter().find(|number| number.0 == "elasticity").unwrap().1
}

#[test]
fn alone_it_holds_base_quarter_in_delay_mode() {
    for law in ["basic_delay", "copa"] {
        let spec = nimbus().with("delay", crate::spec::Value::Text(law.into()));
        let mut fed = Fed::new(&spec, |_, _| 0.0);
        fed.run(20.0);
        let mut queue_s = 0.0;
        for _ in 0..200 {
            fed.run(0.05);
            queue_s += fed.queue_bytes / MU / 200.0;
            assert_eq!(fed.phase(), "shaping");
        }
        assert!((0.004..0.02).contains(&queue_s), "{law}: {queue_s}");
        let mu = fed.cc.state().bottleneck_rate.unwrap().as_bytes_per_sec_f64();
        assert!((mu / MU - 1.0).abs() < 0.01, "{law}: {mu}");
    }
}

#[test]
fn competes_with_elastic_traffic_from_15_s_on() {
    // Cross traffic takes the rest of the path.
    let mut fed = Fed::new(&nimbus(), |now_s, own| {
        if (10.0..40.0).contains(&now_s) { (1.02 * MU - own).max(0.0) } else { 0.0 }
    });
    fed.run(14.9);
    assert_ne!(fed.phase(), "competing");
    fed.run(10.0);
    assert_eq!(fed.phase(), "competing", "{}", elasticity(&*fed.cc));
    fed.run(25.0);
    assert_eq!(fed.phase(), "shaping", "{}", elasticity(&*fed.cc));
}

#[test]
fn limits_need_a_lasting_queue_and_recent_feedback() {
    let mut fed = Fed::new(&nimbus(), |_, _| 0.0);
    assert_eq!((fed.phase(), fed.cc.next_timer()), ("measuring", None));
    fed.run(1.0);
    assert_eq!(fed.phase(), "shaping");
    fed.cc.on_event(fed.now, CongestionEvent::FeedbackLost);
    assert_eq!((fed.phase(), fed.cc.send_limits().pacing_rate), ("measuring", None));
}

#[test]
fn decides_every_10_ms_pulsing_at_6_hz() {
    let mut fed = Fed::new(&nimbus(), |_, _| 0.0);
    fed.run(30.0);
    let (mut pulses, mut was_high) = (0, true);
    for _ in 0..200 {
        fed.run(0.01);
        let rate = fed.cc.send_limits().pacing_rate.unwrap().as_bytes_per_sec_f64();
        let is_high = rate > 1.1 * MU;
        pulses += u32::from(is_high && !was_high);
        was_high = is_high;
        let due = fed.cc.next_timer().unwrap();
        assert!(due > fed.now && due <= fed.now + STEP);
    }
    assert!((11..=13).contains(&pulses), "{pulses} pulses in 2 s");
}

#[test]
fn mu_falls_a_minute_after_capacity_unless_competing() {
    let mut cc = Nimbus::new(DELAY.of(&nimbus()).unwrap());
    let rtt = Some(RttSample { latest: Duration::from_millis(50), min: Duration::from_millis(50) });
    let feed = |cc: &mut Nimbus, mbit: u64, seconds: u64| {
        for _ in 0..100 * seconds {
            let delivery_rate = Some(Rate::from_mbit_per_sec(mbit));
            let interval = Duration::from_millis(10);
            let measurement =
                Measurement { interval, rtt, delivery_rate, ..Measurement::default() };
            cc.on_measurement(Timestamp::from_nanos(1), &measurement);
        }
        (cc.mu() * 8e-6) as u64
    };
    assert_eq!(feed(&mut cc, 96, 1), 96);
    assert_eq!(feed(&mut cc, 48, 58), 96);
    assert_eq!(feed(&mut cc, 48, 3), 48);
    let seen = cc.seen.unwrap();
    cc.queued_since_s = Some(-1.0);
    cc.look_for_queue(Timestamp::ZERO, &Seen { rtt_s: 0.07, ..seen });
    cc.shaping.as_mut().unwrap().mode = Mode::Competing(Passing::new(0.0, 0.0));
    assert_eq!(feed(&mut cc, 12, 100), 48);
}

/// A single flow over 96 Mbit/s and 50 ms.
fn alone() -> crate::cc::flow::Flow {
    let spec = nimbus().with("flow", crate::spec::Value::Bool(true));
    let (rate, rtt) = (Rate::from_mbit_per_sec(96), Duration::from_millis(50));
    crate::cc::flow::Flow::new(build(&spec), rate, rtt)
}

#[test]
fn single_flow_starts_slowly_and_holds_short_queue() {
    let mut flow = alone();
    assert_eq!(flow.cc.send_limits().cwnd.unwrap().as_u64(), 15_000);
    let mut after = None;
    flow.run(20, |flow| {
        if after.is_none() && flow.now >= Timestamp::ZERO + Duration::from_secs(10) {
            after = Some(flow.delivered.0);
        }
    });
    assert_eq!(flow.names(), ["measuring", "shaping"]);
    let rate = (flow.delivered.0 - after.unwrap()).as_f64() / 10.0;
    assert!(rate > 0.95 * MU, "{rate}");
    let queue_ms = flow.cc.state().queue_delay.unwrap().as_millis();
    assert!(queue_ms < 25, "{queue_ms} ms");
}

#[test]
fn single_flow_keeps_limits_from_first_loss() {
    let mut flow = alone();
    // Full long before a queue could be a quarter of the base.
    flow.buffer = 40;
    flow.run(20, |_| ());
    assert_eq!(flow.names(), ["measuring", "shaping"]);
    let window = flow.cc.send_limits().cwnd.unwrap().as_f64();
    assert!((0.5..4.0).contains(&(window / (MU * 0.05))), "{window}");
}

#[test]
fn timeout_restarts_slow_start_of_a_single_flow() {
    let mut flow = alone();
    flow.run(3, |_| ());
    flow.cc.on_event(flow.now, CongestionEvent::Rto);
    assert_eq!(flow.cc.state().phase, "measuring");
    assert_eq!(flow.cc.send_limits().cwnd.unwrap().as_u64(), 1500);
    assert_eq!(flow.cc.send_limits().pacing_rate, None);
}
