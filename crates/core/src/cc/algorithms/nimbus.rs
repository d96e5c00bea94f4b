//! `nimbus`: the published algorithm for a bundle or a flow, as a baseline. It pulses its rate and takes from
//! the spectrum of the cross traffic whether that answers. Accordingly it competes or holds the delay.
//!
//! ```text
//!             rtt > 1.25 base for a round trip           E > 2.25
//! measuring ───────────────────────────────► delay mode ◄──────────► competitive mode
//! (no limits)                         pulses of 6 Hz      E < 2.0     pulses of 5 Hz
//!
//! rate = max(0.05 mu, r + mu pulse(t))     each 10 ms, r of the law of delay mode, or as below
//! mu     largest delivery rate of the last 60 s in which the bundle was backlogged in delay mode
//! ```
//! The folder has the pulse (`pulse.rs`), E, the mean elasticity of the cross traffic (`detector.rs`, with
//! its `spectrum.rs`), and the controllers of delay mode (`delay.rs`). In competitive mode the rate of a
//! bundle follows its own queue (`passing.rs`), and a flow's rate follows a window (`reno.rs`). No switch
//! before 15 s, nor back to delay mode before 5 s. The rate of competitive mode begins at the delivery rate
//! of 5 s before, when the cross traffic had not yet taken its share.
//!
//! States: measuring; shaping (delay mode); competing (competitive mode).
//!
//! Departures from the source, with reasons:
//! - mu is estimated. All published evaluations fix it to the rate of the emulated link; the source's own
//!   estimate, which they switch off, never falls. Here it does after a minute in delay mode. In competitive
//!   mode no time counts: the delivery rate is then a share.
//! - Measuring: the source sends 16 Mbit/s in the first second, which supposes that the link is known.
//! - Reports with losses count. The source does nothing at them, and so goes on at the last rate as long
//!   as losses go on.
//! - z and all spectra use reports as they come. The source moves z by two round trips against the pulse,
//!   which changes no magnitude.
//! - Competitive mode has a ceiling of 1.25 mu: the source's integral has none, and comes down from wherever
//!   it is by 0.1 mu a second.
//! - Every bundle pulses. The source can elect one of several bundles to pulse, but does not.
//!
//! These known faults are kept. Two bundles take each other's pulses for an answer. A capacity that falls, or
//! a path that becomes longer, looks like cross traffic that answers: z then follows the own pulses, and the
//! base never rises. mu is too low where cross traffic had its part all the time. [`super::delay`] has other
//! means.
//!
//! **A single flow** (`flow = true`, for a TCP sender) has no hosts behind it that fill the path. Without
//! limits means slow start here, from the initial window, doubling each round trip until a queue or a loss is
//! seen. A timeout begins slow start again with one segment. A window of twice the rate times the round trip
//! holds as well: a rate alone would send into a path that has stopped.
//!
//! Ranges: rates of 0.05 mu and more; parameters `delay` and `flow`. A bundle needs the sendbox's queue reported to
//! compete: without, it would find no queue to feed its pulses from, and fall to the least rate.

mod delay;
mod detector;
mod passing;
mod pulse;
mod reno;
mod spectrum;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec;

use self::delay::{DELAY, DELAY_TARGET, NimbusLaw};
use self::detector::{Detector, Frequency, cross_traffic};
use self::passing::Passing;
use self::pulse::pulse;
use self::reno::Reno;
use super::delay::FLOW;
use super::estimators::{SlidingMax, duration, is_idle};
use super::{Algorithm, CongestionControl, CongestionEvent, Field, Measurement, SendLimits, State};
use crate::spec::{Spec, SpecError};
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "nimbus",
    summary: "Nimbus: sends pulses and competes with traffic that responds",
    sources: &[
        "Goyal et al.: Elasticity detection, SIGCOMM 2022",
        "Cangialosi et al.: Site-to-site internet traffic control, EuroSys 2021",
        "github.com/ccp-project/nimbus, branch queue-control",
    ],
    params: &[&DELAY, &FLOW],
    needs: &[Field::Rtt, Field::SendRate, Field::DeliveryRate],
    min_window_mss: 1.0,
    batch_tolerance: 0.05,
    build: &build,
};

/// Time between two decisions; each decision is a sample of the spectra.
const STEP: Duration = Duration::from_millis(10);
/// [`STEP`] in seconds.
const STEP_S: f64 = 0.01;
/// Least rate over mu.
const FLOOR: f64 = 0.05;
/// Window of a flow over the bytes that its rate sends in a round trip.
const FLOW_WINDOW: f64 = 2.0;
/// Backlogged time in delay mode over which mu is the largest delivery rate (seconds).
const MU_WINDOW_S: f64 = 60.0;
/// Longest time that one measurement can add to it.
const MU_STEP_S: f64 = 1.0;
/// Elasticity above which the sendbox competes with cross traffic.
const COMPETE_ABOVE: f64 = 2.25;
/// Elasticity below which the sendbox returns to delay mode. The gap to [`COMPETE_ABOVE`] prevents
/// oscillation.
const DELAY_BELOW: f64 = 2.0;
/// Time after the start in which the mode stays (seconds).
const FIRST_SWITCH_S: f64 = 15.0;
/// Shortest time in competitive mode (seconds).
const COMPETE_S: f64 = 5.0;

fn build(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    let mut nimbus = Nimbus::new(DELAY.of(spec)?);
    nimbus.slow_start_bytes = FLOW.of(spec)?.then_some(0.0);
    Ok(Box::new(nimbus))
}

/// Values of the latest reports. Seconds and bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    rtt_s: f64,
    /// Least round trip ever.
    base_s: f64,
    /// Rate at which the arrived bytes were sent.
    send: f64,
    delivery: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Delay,
    /// The hosts of a bundle compete.
    Competing(Passing),
    /// A single flow does.
    Alone(Reno),
}

impl Mode {
    const fn pulses(&self) -> &'static Frequency {
        match self {
            Self::Delay => &Frequency::DELAY,
            Self::Competing(_) | Self::Alone(_) => &Frequency::COMPETE,
        }
    }
}

/// The state while limits hold.
struct Shaping {
    since_s: f64,
    mode: Mode,
    switched_s: f64,
    detector: Detector,
    due: Timestamp,
    /// Rate without the pulse and with it (bytes per second).
    base_rate: f64,
    rate: f64,
}

struct Nimbus {
    law: NimbusLaw,
    mss_bytes: f64,
    base_s: f64,
    seen: Option<Seen>,
    delivery_rates: SlidingMax,
    /// Time that counts for the window of mu.
    mu_clock_s: f64,
    backlog_bytes: f64,
    /// Window of a single flow's slow start, and with which it begins; `None` for a bundle.
    slow_start_bytes: Option<f64>,
    initial_bytes: f64,
    /// Since when every round trip was longer than the target of delay mode.
    queued_since_s: Option<f64>,
    shaping: Option<Shaping>,
    /// The host enforces the limits, so cross traffic can answer the pulses.
    is_enforced: bool,
    reason: &'static str,
}

impl Nimbus {
    fn new(law: NimbusLaw) -> Self {
        Self {
            law,
            mss_bytes: 1514.0,
            base_s: f64::INFINITY,
            seen: None,
            delivery_rates: SlidingMax::default(),
            mu_clock_s: 0.0,
            backlog_bytes: 0.0,
            slow_start_bytes: None,
            initial_bytes: 0.0,
            queued_since_s: None,
            shaping: None,
            is_enforced: true,
            reason: "no measurement yet",
        }
    }

    fn mu(&self) -> f64 {
        self.delivery_rates.value()
    }

    fn is_competing(&self) -> bool {
        self.shaping.as_ref().is_some_and(|it| it.mode != Mode::Delay)
    }

    fn update_mu(&mut self, measurement: &Measurement, delivery: f64) {
        if !self.is_competing() && !is_idle(measurement) {
            self.mu_clock_s += measurement.interval.as_secs_f64().min(MU_STEP_S);
        }
        self.delivery_rates.push(self.mu_clock_s, delivery, MU_WINDOW_S);
    }

    /// Sets no limits before the hosts have filled the path: until then mu is the rate at which they happened
    /// to send.
    fn look_for_queue(&mut self, now: Timestamp, seen: &Seen) {
        self.reason = "no self-inflicted queue seen";
        let now_s = now.as_secs_f64();
        if seen.rtt_s <= DELAY_TARGET * seen.base_s {
            self.queued_since_s = None;
            return;
        }
        if now_s - *self.queued_since_s.get_or_insert(now_s) >= seen.rtt_s {
            self.begin(now, seen);
        }
    }

    /// Limits hold from now on.
    fn begin(&mut self, now: Timestamp, seen: &Seen) {
        let now_s = now.as_secs_f64();
        self.shaping = Some(Shaping {
            since_s: now_s,
            mode: Mode::Delay,
            switched_s: now_s,
            detector: Detector::new(),
            due: now + STEP,
            base_rate: seen.delivery,
            rate: seen.delivery,
        });
        self.law.restart(now_s, seen);
        self.reason = "holding the delay";
    }

    /// Nothing is known any more, and no limits hold.
    fn start_anew(&mut self, reason: &'static str) {
        self.seen = None;
        self.delivery_rates.clear();
        self.queued_since_s = None;
        self.shaping = None;
        self.reason = reason;
    }

    /// Losses begin: a bundle leaves them to its hosts.
    fn on_loss(&mut self, now: Timestamp) {
        if self.slow_start_bytes.is_none() {
            return;
        }
        match (&mut self.shaping, self.seen) {
            (Some(Shaping { mode: Mode::Alone(reno), .. }), _) => reno.on_loss(),
            // The queue has overflowed before it was seen.
            (None, Some(seen)) => self.begin(now, &seen),
            _ => {}
        }
    }

    /// Switches to the mode that the elasticity calls for.
    fn switch(&mut self, now_s: f64, seen: &Seen) {
        let Some(shaping) = &mut self.shaping else { return };
        if now_s - shaping.since_s < FIRST_SWITCH_S || !self.is_enforced {
            return;
        }
        let elasticity = shaping.detector.elasticity();
        match shaping.mode {
            Mode::Delay if elasticity > COMPETE_ABOVE => {
                let before = shaping.detector.delivered_before();
                shaping.mode = match self.slow_start_bytes {
                    None => Mode::Competing(Passing::new(before, self.backlog_bytes)),
                    Some(_) => Mode::Alone(Reno::new(before * seen.rtt_s, self.mss_bytes)),
                };
                self.reason = "cross traffic responds to the pulses";
            }
            Mode::Competing(_) | Mode::Alone(_)
                if elasticity < DELAY_BELOW && now_s - shaping.switched_s >= COMPETE_S =>
            {
                shaping.mode = Mode::Delay;
                self.law.restart(now_s, seen);
                self.reason = "cross traffic does not respond to the pulses";
            }
            _ => return,
        }
        shaping.switched_s = now_s;
    }

    /// One step of 10 ms.
    fn decide(&mut self, now_s: f64, seen: &Seen, mu: f64) {
        let Some(shaping) = &mut self.shaping else { return };
        shaping.detector.push(mu, seen.send, seen.delivery, shaping.mode.pulses());
        self.switch(now_s, seen);
        let Some(shaping) = &mut self.shaping else { return };
        let floor = FLOOR * mu;
        shaping.base_rate = match &mut shaping.mode {
            Mode::Delay => self.law.rate(seen, mu, STEP_S).max(floor),
            Mode::Competing(passing) => passing.step(self.backlog_bytes, mu, floor, STEP_S),
            Mode::Alone(reno) => reno.rate(seen.rtt_s).max(floor),
        };
        let phase = (now_s - shaping.since_s) * shaping.mode.pulses().hertz;
        shaping.rate = (shaping.base_rate + mu * pulse(phase)).max(floor);
    }

    /// All round trips count as longer by this.
    fn shift(&mut self, by_s: f64) {
        let shifted = |seconds: f64| (seconds + by_s).max(1e-9);
        self.base_s = shifted(self.base_s);
        if let Some(seen) = &mut self.seen {
            (seen.rtt_s, seen.base_s) = (shifted(seen.rtt_s), shifted(seen.base_s));
        }
    }
}

impl CongestionControl for Nimbus {
    fn init(&mut self, _now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        self.mss_bytes = mss.as_f64().max(1.0);
        self.initial_bytes = initial_cwnd.as_f64().max(self.mss_bytes);
        self.slow_start_bytes = self.slow_start_bytes.map(|_| self.initial_bytes);
    }

    fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement) {
        if let Some(backlog) = measurement.backlog {
            self.backlog_bytes = backlog.as_f64();
        }
        let (Some(rtt), Some(delivery)) = (measurement.rtt, measurement.delivery_rate) else {
            return;
        };
        let (least_s, rtt_s) = (rtt.min.as_secs_f64(), rtt.latest.as_secs_f64());
        if least_s <= 0.0 || rtt_s <= 0.0 {
            return;
        }
        self.base_s = self.base_s.min(least_s).min(rtt_s);
        let delivery = delivery.as_bytes_per_sec_f64();
        let send = measurement.send_rate.map_or(delivery, Rate::as_bytes_per_sec_f64);
        let seen = Seen { rtt_s, base_s: self.base_s, send, delivery };
        self.seen = Some(seen);
        self.update_mu(measurement, delivery);
        let acked_bytes = measurement.acked.as_f64();
        match &mut self.shaping {
            None => {
                // Twice the former window, once all of it has arrived.
                self.slow_start_bytes = self.slow_start_bytes.map(|bytes| bytes + acked_bytes);
                self.look_for_queue(now, &seen);
            }
            Some(Shaping { mode: Mode::Delay, .. }) => {
                self.law.on_acked(now.as_secs_f64(), &seen, acked_bytes, self.mss_bytes);
            }
            Some(Shaping { mode: Mode::Alone(reno), .. }) => reno.on_acked(acked_bytes),
            Some(_) => {}
        }
    }

    fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        match event {
            CongestionEvent::FeedbackLost => self.start_anew("waiting for reports"),
            CongestionEvent::Loss => self.on_loss(now),
            CongestionEvent::Rto if self.slow_start_bytes.is_some() => {
                self.start_anew("timeout");
                self.slow_start_bytes = Some(self.mss_bytes);
            }
            CongestionEvent::RttShift(nanos) => self.shift(nanos as f64 * 1e-9),
            CongestionEvent::Unenforced => self.is_enforced = false,
            CongestionEvent::Enforced => self.is_enforced = true,
            _ => {}
        }
    }

    fn next_timer(&self) -> Option<Timestamp> {
        self.shaping.as_ref().map(|shaping| shaping.due)
    }

    fn on_timer(&mut self, now: Timestamp) {
        let Some(shaping) = self.shaping.as_mut().filter(|shaping| shaping.due <= now) else {
            return;
        };
        // From one time that was due to the next, or else the samples were further apart than they count
        // for. A step that was missed is not made up for.
        let due = shaping.due + STEP;
        shaping.due = if due > now { due } else { now + STEP };
        let mu = self.mu();
        if let Some(seen) = self.seen.filter(|_| mu > 0.0) {
            self.decide(now.as_secs_f64(), &seen, mu);
        }
    }

    fn send_limits(&self) -> SendLimits {
        let rate = self.shaping.as_ref().map(|it| Rate::from_bytes_per_sec_f64(it.rate));
        let cwnd = self.slow_start_bytes.map(|slow_start| match (&self.shaping, &self.seen) {
            (Some(shaping), Some(seen)) => FLOW_WINDOW * shaping.rate * seen.rtt_s,
            _ => slow_start,
        });
        let cwnd = cwnd.map(|bytes| ByteCount::new(bytes.max(self.mss_bytes) as u64));
        // A rate that the host held at the bottleneck's would not pulse.
        SendLimits { cwnd, ssthresh: None, pacing_rate: rate, app_limited: Some(false) }
    }

    fn state(&self) -> State {
        let mu = self.mu();
        let queue_s = self.seen.map(|seen| seen.rtt_s - seen.base_s);
        let cross =
            self.seen.map_or(0.0, |seen| cross_traffic(mu.max(0.0), seen.send, seen.delivery));
        let shaping = self.shaping.as_ref();
        State {
            phase: match shaping.map(|it| it.mode) {
                None => "measuring",
                Some(Mode::Delay) => "shaping",
                Some(Mode::Competing(_) | Mode::Alone(_)) => "competing",
            },
            reason: self.reason,
            min_rtt: self.base_s.is_finite().then(|| duration(self.base_s)),
            queue_delay: queue_s.map(duration),
            bottleneck_rate: (mu > 0.0).then(|| Rate::from_bytes_per_sec_f64(mu)),
            numbers: vec![
                ("elasticity", shaping.map_or(0.0, |it| it.detector.elasticity())),
                ("cross_bytes_per_s", cross),
                ("base_bytes_per_s", shaping.map_or(0.0, |it| it.base_rate)),
            ],
        }
    }
}
