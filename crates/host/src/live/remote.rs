//! A connection that a child decides for.

use std::sync::Arc;

use forebay_core::cc::{
    CongestionControl, CongestionEvent, Law, Measurement, SendLimits, State, newreno,
};
use forebay_core::spec::Spec;
use forebay_core::units::{ByteCount, Duration, Rate, Ratio, Timestamp};
use serde_json::{Value, json};

use super::link::Link;

/// Time between two looks for an answer that is awaited.
const LOOK: Duration = Duration::from_millis(1);
/// So many questions may be without an answer; with more the answer to the first is two of them late.
const UNANSWERED_MAX: u64 = 2;

/// An algorithm in a child, for one connection.
pub struct Remote {
    link: Arc<Link>,
    algorithm: String,
    connection: u64,
    seed: u64,
    /// Questions that were put.
    asked: u64,
    /// Number of the newest question that was answered.
    answered: u64,
    /// When to look for an answer.
    looks: Timestamp,
    limits: SendLimits,
    has_failed: bool,
    fallback: Box<dyn CongestionControl>,
}

impl Remote {
    /// A connection of `link`, for which the algorithm of this name decides.
    pub fn new(link: Arc<Link>, algorithm: &str) -> Self {
        let fallback = newreno::ALGORITHM.build(&Spec::named("newreno"));
        Self {
            connection: link.open(),
            link,
            algorithm: algorithm.into(),
            seed: 0,
            asked: 0,
            answered: 0,
            looks: Timestamp::ZERO,
            limits: SendLimits::default(),
            has_failed: false,
            fallback: fallback.expect("defaults are valid"),
        }
    }

    /// Puts a question: what of `call` the callback of that name is told.
    fn ask(&mut self, now: Timestamp, call: &str, told: Value) {
        self.hear();
        self.asked += 1;
        self.looks = now + LOOK;
        self.link.ask(&json!({
            "connection": self.connection,
            "number": self.asked,
            "now_ns": now.as_nanos(),
            "call": call,
            "told": told,
        }));
    }

    fn hear(&mut self) {
        let heard = self.link.hear(self.connection);
        self.has_failed |= heard.has_failed;
        // Nobody has answered what was not asked.
        self.answered = self.answered.max(heard.number.min(self.asked));
        if let Some([cwnd, ssthresh, rate]) = heard.limits {
            // A number that makes no sense becomes the nearest one that a u64 can be.
            let whole = |number: Option<f64>| number.map(|number| number as u64);
            self.limits = SendLimits {
                cwnd: whole(cwnd).map(ByteCount::new),
                ssthresh: whole(ssthresh).map(ByteCount::new),
                pacing_rate: whole(rate).map(Rate::from_bits_per_sec),
                app_limited: None,
            };
        }
    }

    fn is_late(&self) -> bool {
        self.has_failed || self.asked - self.answered > UNANSWERED_MAX
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.link.ask(&json!({ "connection": self.connection, "call": "end" }));
        self.link.close(self.connection);
    }
}

impl CongestionControl for Remote {
    fn init(&mut self, now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        self.fallback.init(now, mss, initial_cwnd);
        self.limits = SendLimits { cwnd: Some(initial_cwnd), ..SendLimits::default() };
        let start = json!({
            "now_ns": now.as_nanos(),
            "mss_bytes": mss.as_u64(),
            "initial_cwnd_bytes": initial_cwnd.as_u64(),
            "seed": self.seed,
        });
        let told = json!({ "algorithm": self.algorithm, "start": start });
        self.ask(now, "init", told);
    }

    fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement) {
        self.fallback.on_measurement(now, measurement);
        self.ask(now, "on_measurement", measured(measurement));
    }

    fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        self.fallback.on_event(now, event);
        let (name, value) = event.named();
        self.ask(now, "on_event", json!({ "event": name, "value": value }));
    }

    fn on_timer(&mut self, now: Timestamp) {
        if self.fallback.next_timer().is_some_and(|at| at <= now) {
            self.fallback.on_timer(now);
        }
        self.hear();
        self.looks = now + LOOK;
    }

    fn next_timer(&self) -> Option<Timestamp> {
        // What is late is heard of with the next question: a child that is gone costs nobody's sleep.
        let awaits = self.asked > self.answered && !self.is_late();
        let looks = awaits.then_some(self.looks);
        looks.into_iter().chain(self.fallback.next_timer()).min()
    }

    fn send_limits(&self) -> SendLimits {
        if self.is_late() { self.fallback.send_limits() } else { self.limits }
    }

    fn law(&self) -> Law {
        if self.is_late() { self.fallback.law() } else { Law::HOLD }
    }

    fn state(&self) -> State {
        let phase = if self.is_late() { "fallback" } else { "python" };
        State { phase, ..State::default() }
    }
}

/// `it` under the names that Python has for the fields.
fn measured(it: &Measurement) -> Value {
    let bytes = |bytes: Option<ByteCount>| bytes.map(ByteCount::as_u64);
    let nanos = |time: Option<Duration>| {
        time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    };
    let rate = |rate: Option<Rate>| rate.map(Rate::as_bits_per_sec);
    json!({
        "interval_ns": nanos(Some(it.interval)),
        "acked_bytes": it.acked.as_u64(),
        "lost_bytes": bytes(it.lost),
        "ecn_ce_bytes": bytes(it.ecn_ce),
        "ect1_bytes": bytes(it.ect1),
        "rtt_latest_ns": nanos(it.rtt.map(|rtt| rtt.latest)),
        "rtt_min_ns": nanos(it.rtt.map(|rtt| rtt.min)),
        "feedback_delay_ns": nanos(it.feedback_delay),
        "one_way_ns": nanos(it.one_way),
        "send_rate_bits_per_s": rate(it.send_rate),
        "delivery_rate_bits_per_s": rate(it.delivery_rate),
        "train_rate_bits_per_s": rate(it.train_rate),
        "in_flight_bytes": bytes(it.in_flight),
        "delivered_bytes": it.delivered.as_u64(),
        "prior_delivered_bytes": it.prior_delivered.as_u64(),
        "lost_prior_delivered_bytes": bytes(it.lost_prior_delivered),
        "backlog_bytes": bytes(it.backlog),
        "idle_share": it.idle.map(Ratio::as_f64),
        "app_limited": it.app_limited,
        "cwnd_limited": it.cwnd_limited,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use forebay_core::cc::RttSample;
    use socket2::{Domain, Socket, Type};

    use super::*;

    /// A connection, and the end of its child.
    fn connection() -> (Remote, Socket) {
        let (ours, theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut remote = Remote::new(Arc::new(Link::new(ours)), "mine");
        remote.init(Timestamp::ZERO, ByteCount::new(1000), ByteCount::new(10_000));
        (remote, theirs)
    }

    fn question(child: &mut Socket) -> Value {
        let mut datagram = [0; 4096];
        let length = child.read(&mut datagram).unwrap();
        serde_json::from_slice(&datagram[..length]).unwrap()
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
        let answer = r#"{"connection": 1, "number": 2, "limits": [30000.7, null, -5]}"#;
        child.send(answer.as_bytes()).unwrap();
        let looks = remote.next_timer().unwrap();
        remote.on_timer(looks);
        let limits = remote.send_limits();
        assert_eq!(limits.cwnd, Some(ByteCount::new(30_000)));
        assert_eq!((limits.ssthresh, limits.pacing_rate), (None, Some(Rate::ZERO)));
        assert_eq!((remote.next_timer(), remote.state().phase), (None, "python"));
    }

    #[test]
    fn what_is_two_late_is_decided_here_until_it_comes() {
        let (mut remote, child) = connection();
        measure(&mut remote, 20);
        assert_eq!(remote.state().phase, "python");
        measure(&mut remote, 40);
        assert_eq!(remote.state().phase, "fallback");
        // Slow start: more than at the start by what was acknowledged.
        assert!(remote.send_limits().cwnd > Some(ByteCount::new(10_000)));
        child.send(br#"{"connection": 1, "number": 99, "limits": [5000, null, null]}"#).unwrap();
        measure(&mut remote, 60);
        assert_eq!(remote.state().phase, "python", "an answer to what was not asked is the newest");
        assert_eq!(remote.send_limits().cwnd, Some(ByteCount::new(5000)));
    }

    #[test]
    fn nonsense_of_a_child_is_nothing_and_an_exception_is_the_end_of_its_word() {
        let (mut remote, child) = connection();
        let others = r#"{"connection": 7, "number": 1, "limits": [1, null, null]}"#;
        for said in ["", "nonsense", "{}", others, r#"{"connection": 1, "number": -1}"#] {
            child.send(said.as_bytes()).unwrap();
        }
        child.send(br#"{"connection": 1, "number": 1, "limits": null, "failed": true}"#).unwrap();
        for ms in 1..=5 {
            measure(&mut remote, ms);
        }
        assert_eq!((remote.state().phase, remote.has_failed), ("fallback", true));
    }

    #[test]
    fn a_child_that_is_gone_leaves_its_connections_to_the_law_here() {
        let (mut remote, child) = connection();
        drop(child);
        for ms in 1..=5 {
            measure(&mut remote, ms);
        }
        assert_eq!(remote.state().phase, "fallback");
    }
}
