//! Questions to a child about a connection or bundle, and the reading of its answers.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::cc::foreign::{Told, Values};
use forebay_core::cc::{CongestionEvent, Measurement, SendLimits};
use forebay_core::units::{ByteCount, Rate, Timestamp};
use serde_json::{Value, json};

use super::link::{Channel, Heard, Limits};

/// The questions for one connection.
pub struct Questions {
    link: Arc<Channel>,
    algorithm: String,
    /// Parameters of the algorithm by name.
    params: Value,
    connection: u64,
    /// Number of the newest question.
    asked: u64,
    /// Whether sending a question waits for room.
    for_sure: bool,
    /// The child may have an instance.
    has_begun: bool,
}

impl Questions {
    /// Makes the questions to this algorithm and its parameters at the other end of `link`. With `for_sure` sending
    /// waits for room; otherwise a question is lost if the child is far behind.
    pub fn new(link: Arc<Channel>, algorithm: &str, params: &Values, for_sure: bool) -> Self {
        let connection = link.open();
        let algorithm = algorithm.into();
        let params = params.iter().map(|(name, value)| ((*name).to_string(), json!(value)));
        let params = Value::Object(params.collect());
        Self { link, algorithm, params, connection, asked: 0, for_sure, has_begun: false }
    }

    /// The channel to the child.
    pub fn link(&self) -> &Channel {
        &self.link
    }

    /// Number of the newest question.
    pub const fn asked(&self) -> u64 {
        self.asked
    }

    /// Creates an instance that starts with packets of `mss` bytes and this window.
    pub fn init(&mut self, now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount, seed: u64) {
        let start = json!({
            "now_ns": now.as_nanos(),
            "mss_bytes": mss.as_u64(),
            "initial_cwnd_bytes": initial_cwnd.as_u64(),
            "seed": seed,
        });
        let told = json!({ "algorithm": self.algorithm, "params": self.params, "start": start });
        self.has_begun |= self.put(now, "init", told);
    }

    /// Sends a measurement.
    pub fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement) {
        self.put(now, "on_measurement", json!(Told::from(measurement)));
    }

    /// Sends an event.
    pub fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        let (name, value) = event.named();
        self.put(now, "on_event", json!({ "event": name, "value": value }));
    }

    /// Sends a question: the arguments `told` for the callback `call`. False: the question is lost.
    fn put(&mut self, now: Timestamp, call: &str, told: Value) -> bool {
        self.asked += 1;
        let question = json!({
            "connection": self.connection,
            "number": self.asked,
            "now_ns": now.as_nanos(),
            "call": call,
            "told": told,
        });
        if self.for_sure { self.link.ask_for_sure(&question) } else { self.link.ask(&question) }
    }

    /// All answers so far.
    pub fn hear(&self) -> Heard {
        self.link.hear(self.connection)
    }

    /// Waits for the answer to the newest question, and returns all answers. Returns early if no answer can come any
    /// more, or after `limit`.
    pub fn wait(&self, limit: Option<Duration>) -> Heard {
        self.link.wait(self.connection, self.asked, limit)
    }
}

impl Drop for Questions {
    fn drop(&mut self) {
        self.link.close(self.connection, self.has_begun);
    }
}

/// Converts `limits` of the child. A number outside the range of u64 becomes the nearest u64.
pub fn send_limits([cwnd, ssthresh, rate]: Limits) -> SendLimits {
    let whole = |number: Option<f64>| number.map(|number| number as u64);
    SendLimits {
        cwnd: whole(cwnd).map(ByteCount::new),
        ssthresh: whole(ssthresh).map(ByteCount::new),
        pacing_rate: whole(rate).map(Rate::from_bits_per_sec),
        app_limited: None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::path::Path;

    use socket2::{Domain, Socket, Type};

    use super::*;

    fn begun(link: &Arc<Channel>) -> Questions {
        let mut questions = Questions::new(link.clone(), "mine", &Vec::new(), false);
        questions.init(Timestamp::ZERO, ByteCount::new(1000), ByteCount::new(10_000), 0);
        questions
    }

    /// The questions that have reached the child.
    fn found(child: &mut Socket) -> Vec<Value> {
        let mut datagram = [0; 65_536];
        let next = || child.read(&mut datagram).ok().map(|length| datagram[..length].to_vec());
        let found = std::iter::from_fn(next);
        found.map(|datagram| serde_json::from_slice(&datagram).unwrap()).collect()
    }

    fn ends(child: &mut Socket) -> Vec<Value> {
        found(child).into_iter().filter(|question| question["call"] == "end").collect()
    }

    #[test]
    fn pending_close_is_sent_once_there_is_room() {
        let (ours, mut theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let link = Arc::new(Channel::new(ours, Path::new("mine.py")));
        let [one, other, stays] = [0; 3].map(|_| begun(&link));
        while link.ask(&json!({ "call": "on_event" })) {}
        let never = begun(&link);
        drop((one, other, never));
        assert!(ends(&mut theirs).is_empty(), "there was no room");
        stays.hear();
        assert_eq!(ends(&mut theirs), [json!({ "call": "end", "connections": [1, 2] })]);
        drop(stays);
        assert_eq!(ends(&mut theirs), [json!({ "call": "end", "connections": [3] })]);
    }

    #[test]
    fn ends_of_many_connections_fit_into_datagrams() {
        let (ours, mut theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let link = Channel::new(ours, Path::new("mine.py"));
        while link.ask(&json!({ "call": "on_event" })) {}
        for number in 0..2500 {
            link.close(u64::MAX - number, true);
        }
        assert!(ends(&mut theirs).is_empty());
        link.hear(1);
        let told = ends(&mut theirs).into_iter();
        let counts = told.map(|end| end["connections"].as_array().unwrap().len());
        assert_eq!(counts.collect::<Vec<_>>(), [1000, 1000, 500]);
    }
}
