//! Exchanges in the style of packetdrill: acknowledgements at set times, and the sender's packets.

use forebay_core::cc;
use forebay_core::spec::Spec;
use forebay_core::units::Timestamp;

use super::{SUPPLIED, Sender};
use crate::event::{Event, Events};
use crate::packet::Range;
use crate::tcp::stack::Tcp;

/// A connection whose SYN left at 0 ms and was answered at 50 ms. Times are in milliseconds since then.
pub(super) struct Script {
    pub sender: Sender,
    events: Events,
}

pub(super) fn at(ms: f64) -> Timestamp {
    Timestamp::from_nanos((ms * 1e6) as u64)
}

impl Script {
    /// Reno with `segments` to send; `None`: without end. The first window has left at 50 ms.
    pub fn new(tcp: Tcp, segments: Option<u64>) -> Self {
        let algorithm = cc::build(&Spec::named("newreno"), SUPPLIED).unwrap();
        let bytes = segments.map(|segments| segments * u64::from(tcp.mss));
        let mut sender = Sender::new(tcp, algorithm, bytes);
        sender.start();
        sender.transmit(at(0.0)).unwrap();
        sender.on_syn_ack(at(50.0), at(0.0));
        let mut script = Self { sender, events: Events::default() };
        let first: Vec<u32> =
            (0..segments.map_or(10, |segments| segments.min(10) as u32)).collect();
        assert_eq!(script.sent(50.0), first);
        script
    }

    fn sent(&mut self, ms: f64) -> Vec<u32> {
        let out = std::iter::from_fn(|| self.sender.transmit(at(ms)));
        let numbers = out.map(|out| out.number).collect();
        self.sender.rto_timer.plan(&mut self.events, Event::Rto(0));
        numbers
    }

    /// Sends an acknowledgement that echoes the first window; no timer may fire before it. Returns the
    /// segments that follow.
    pub fn ack(&mut self, ms: f64, number: u32, blocks: &[(u32, u32)]) -> Vec<u32> {
        self.ack_echoing(ms, 50.0, number, blocks)
    }

    /// Acknowledges with the echo of a segment sent at `echo`.
    pub fn ack_echoing(
        &mut self,
        ms: f64,
        echo: f64,
        number: u32,
        blocks: &[(u32, u32)],
    ) -> Vec<u32> {
        assert_eq!(self.wait(ms), []);
        let blocks: Vec<Range> =
            blocks.iter().map(|(start, end)| Range { start: *start, end: *end }).collect();
        self.sender.on_ack(at(ms), number, at(echo), &blocks, false);
        self.sent(ms)
    }

    /// An acknowledgement that announces room up to segment `edge`.
    pub fn ack_with_window(&mut self, ms: f64, number: u32, edge: u32) -> Vec<u32> {
        assert_eq!(self.wait(ms), []);
        self.sender.on_ack(at(ms), number, at(50.0), &[], false);
        self.sender.learn_window(at(ms), edge);
        self.sent(ms)
    }

    /// Acknowledges with ECE.
    pub fn ack_with_ece(&mut self, ms: f64, number: u32) -> Vec<u32> {
        assert_eq!(self.wait(ms), []);
        self.sender.on_ack(at(ms), number, at(50.0), &[], true);
        self.sent(ms)
    }

    /// The application writes `segments` more. Returns the segments that follow.
    pub fn write(&mut self, ms: f64, segments: u64) -> Vec<u32> {
        assert_eq!(self.wait(ms), []);
        self.sender.write(segments * self.sender.mss);
        self.sent(ms)
    }

    /// Waits until `ms`. Returns the segments that timers send, with their times.
    pub fn wait(&mut self, ms: f64) -> Vec<(f64, Vec<u32>)> {
        let mut all = Vec::new();
        while let Some((now, event)) = self.events.pop(at(ms)) {
            if self.sender.rto_timer.fired(now, &mut self.events, event) {
                let ms = now.as_nanos() as f64 / 1e6;
                self.sender.on_timeout(now);
                all.push((ms, self.sent(ms)));
            }
        }
        all.retain(|(_, numbers)| !numbers.is_empty());
        all
    }

    /// cwnd and ssthresh in segments.
    pub fn window(&self) -> (u64, Option<u64>) {
        let limits = self.sender.algorithm.send_limits();
        let segments = |bytes: forebay_core::units::ByteCount| bytes.as_u64() / self.sender.mss;
        (segments(limits.cwnd.unwrap()), limits.ssthresh.map(segments))
    }
}
