//! A connection of a simulation, which stops simulated time until its child has answered.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_core::cc::foreign::Values;
use forebay_core::cc::{CongestionControl, CongestionEvent, Measurement, SendLimits, State};
use forebay_core::units::{ByteCount, Timestamp};

use super::Raised;
use super::link::Channel;
use super::questions::{Questions, send_limits};

/// An algorithm in a child, for one connection of a simulation.
pub struct InStep {
    questions: Questions,
    algorithm: String,
    /// Name of its flow in error messages.
    owner: String,
    /// Longest time for an answer.
    limit: Option<Duration>,
    seed: u64,
    limits: SendLimits,
}

impl InStep {
    /// Makes a connection controlled by this algorithm and its parameters, at the other end of `link`. The child must
    /// answer within `limit`.
    pub fn new(
        link: Arc<Channel>,
        algorithm: &str,
        params: &Values,
        limit: Option<Duration>,
    ) -> Self {
        let questions = Questions::new(link, algorithm, params, true);
        let (algorithm, owner) = (algorithm.into(), "flow".into());
        Self { questions, algorithm, owner, limit, seed: 0, limits: SendLimits::default() }
    }

    /// Takes the answer to `callback`, which was called at `now`.
    ///
    /// # Panics
    ///
    /// With [`Raised`] if there is no answer: any other decision would make the run irreproducible.
    fn take(&mut self, callback: &str, now: Timestamp) {
        let began = Instant::now();
        let heard = self.questions.wait(self.limit);
        let told = |what: String| -> ! {
            let Self { algorithm, owner, .. } = &*self;
            let (file, now_s) =
                (self.questions.link().file().display(), now.as_nanos() as f64 / 1e9);
            let place = format!(
                "algorithm {algorithm:?}, {owner}, {callback} at {now_s} s of simulated time"
            );
            resume_unwind(Box::new(Raised(format!("{file}: {place}: {what}"))))
        };
        if let Some(traceback) = heard.failed {
            told(format!("an exception:\n{}", traceback.trim_end()));
        }
        if heard.number < self.questions.asked() {
            match self.limit {
                Some(limit) if !heard.is_gone && began.elapsed() >= limit => {
                    let allowed = "allowed is more with `limit_s` of forebay.algorithm";
                    told(format!("no answer within {limit:?}: {allowed}"))
                }
                _ => told("no answer, since the child has ended".into()),
            }
        }
        self.limits = heard.limits.map_or(self.limits, send_limits);
    }
}

impl CongestionControl for InStep {
    fn init(&mut self, now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        self.limits = SendLimits { cwnd: Some(initial_cwnd), ..SendLimits::default() };
        self.questions.init(now, mss, initial_cwnd, self.seed);
        self.take("init", now);
    }

    fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    fn set_owner(&mut self, owner: &str) {
        self.owner = owner.into();
    }

    fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement) {
        self.questions.on_measurement(now, measurement);
        self.take("on_measurement", now);
    }

    fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        self.questions.on_event(now, event);
        self.take("on_event", now);
    }

    fn send_limits(&self) -> SendLimits {
        self.limits
    }

    fn state(&self) -> State {
        State { phase: "running", ..State::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::Path;
    use std::thread;

    use socket2::{Domain, Socket, Type};

    use super::*;

    /// A child on a thread, which replies with `answers` and then closes its end.
    fn with_child(answers: &[&str]) -> InStep {
        let (ours, mut theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        let answers: Vec<String> = answers.iter().map(ToString::to_string).collect();
        thread::spawn(move || {
            for answer in answers {
                let mut datagram = [0; 4096];
                assert!(theirs.read(&mut datagram).unwrap() > 0);
                theirs.send(answer.as_bytes()).unwrap();
            }
        });
        let link = Arc::new(Channel::new(ours, Path::new("mine.py")));
        let mut cc = InStep::new(link, "mine", &Vec::new(), Some(Duration::from_millis(200)));
        cc.set_owner("flow bulk");
        cc
    }

    fn start(cc: &mut InStep) {
        cc.init(Timestamp::ZERO, ByteCount::new(1000), ByteCount::new(10_000));
    }

    #[test]
    fn each_answer_is_waited_for() {
        let mut cc = with_child(&[
            r#"{"connection": 1, "number": 1, "limits": null}"#,
            r#"{"connection": 1, "number": 2, "limits": [5000, null, null]}"#,
        ]);
        start(&mut cc);
        assert_eq!(cc.send_limits().cwnd, Some(ByteCount::new(10_000)));
        cc.on_event(Timestamp::ZERO, CongestionEvent::Loss);
        assert_eq!(cc.send_limits().cwnd, Some(ByteCount::new(5000)));
    }

    /// The panic message of a connection whose child gives these answers.
    fn told(cc: &mut InStep) -> String {
        let ended = catch_unwind(AssertUnwindSafe(|| start(cc))).unwrap_err();
        ended.downcast::<Raised>().unwrap().0
    }

    #[test]
    fn exception_or_dead_child_ends_the_run() {
        let place = "mine.py: algorithm \"mine\", flow bulk, init at 0 s of simulated time: ";
        let exception = r#"{"connection": 1, "number": 1, "failed": "Traceback\n"}"#;
        for (answers, expected) in [
            (&[exception][..], "an exception:\nTraceback"),
            (&[r#"{"ended": "killed"}"#], "no answer, since the child has ended"),
            (&[], "no answer, since the child has ended"),
        ] {
            assert_eq!(told(&mut with_child(answers)), format!("{place}{expected}"));
        }
    }

    #[test]
    fn late_answer_ends_the_run() {
        let (ours, _theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        let link = Arc::new(Channel::new(ours, Path::new("mine.py")));
        let limit = Duration::from_millis(50);
        let mut cc = InStep::new(link, "mine", &Vec::new(), Some(limit));
        let told = told(&mut cc);
        assert!(
            told.contains("flow, init at 0 s of simulated time: no answer within 50ms"),
            "{told}"
        );
    }
}
