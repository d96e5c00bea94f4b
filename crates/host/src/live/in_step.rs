//! A connection of a simulation, whose time stands still until its child has answered.

use std::panic::resume_unwind;
use std::sync::Arc;

use forebay_core::cc::guest::Values;
use forebay_core::cc::{CongestionControl, CongestionEvent, Measurement, SendLimits, State};
use forebay_core::units::{ByteCount, Timestamp};

use super::Raised;
use super::link::Link;
use super::questions::{Questions, send_limits};

/// An algorithm in a child, for one connection of a simulation.
pub struct InStep {
    questions: Questions,
    seed: u64,
    limits: SendLimits,
}

impl InStep {
    /// A connection that the algorithm of this name and with these parameters, at the other end of `link`, decides for.
    pub fn new(link: Arc<Link>, algorithm: &str, params: &Values) -> Self {
        let questions = Questions::new(link, algorithm, params, true);
        Self { questions, seed: 0, limits: SendLimits::default() }
    }

    /// Takes the answer to what was asked.
    ///
    /// # Panics
    ///
    /// With [`Raised`] where there is none: nothing else could decide for a run that is to be repeated.
    fn take(&mut self) {
        let heard = self.questions.wait();
        let file = self.questions.link().file().display();
        if let Some(traceback) = heard.failed {
            let traceback = traceback.trim_end();
            resume_unwind(Box::new(Raised(format!("{file} raised an exception:\n{traceback}"))));
        }
        if heard.number < self.questions.asked() {
            resume_unwind(Box::new(Raised(format!("{file}: no answer from Python"))));
        }
        self.limits = heard.limits.map_or(self.limits, send_limits);
    }
}

impl CongestionControl for InStep {
    fn init(&mut self, now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        self.limits = SendLimits { cwnd: Some(initial_cwnd), ..SendLimits::default() };
        self.questions.init(now, mss, initial_cwnd, self.seed);
        self.take();
    }

    fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement) {
        self.questions.on_measurement(now, measurement);
        self.take();
    }

    fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        self.questions.on_event(now, event);
        self.take();
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

    /// A child on a thread, which answers questions by `answers` and then closes its end.
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
        InStep::new(Arc::new(Link::new(ours, Path::new("mine.py"))), "mine", &Vec::new())
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

    #[test]
    fn an_exception_and_a_child_that_is_gone_end_the_run() {
        let exception = r#"{"connection": 1, "number": 1, "failed": "Traceback\n"}"#;
        for (answers, expected) in [
            (&[exception][..], "mine.py raised an exception:\nTraceback"),
            (&[], "mine.py: no answer from Python"),
        ] {
            let mut cc = with_child(answers);
            let ended = catch_unwind(AssertUnwindSafe(|| start(&mut cc))).unwrap_err();
            assert_eq!(ended.downcast::<Raised>().unwrap().0, expected);
        }
    }
}
