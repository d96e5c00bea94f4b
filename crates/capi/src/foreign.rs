//! Callbacks in C as a [`CongestionControl`].

use std::ffi::{CStr, c_void};
use std::ptr;

use forebay_core::cc::{CongestionControl, CongestionEvent, Measurement, SendLimits, State};
use forebay_core::spec::SpecError;
use forebay_core::units::{ByteCount, Duration, Rate, Ratio, Timestamp};

use crate::abi::{
    ABI, Callbacks, Create, Destroy, Limits, Measured, NONE, OnEvent, OnMeasurement, SetLimits,
    Start,
};

/// Makes an instance of the algorithm that `callbacks` implement, for one connection.
///
/// # Errors
///
/// If the C was written for another version of the header, or lacks a callback that may not be NULL.
///
/// # Safety
///
/// Each callback that is not NULL has the signature and the meaning that `forebay_cc.h` gives it. It may be called
/// from any thread, and for several connections at once.
pub unsafe fn build(
    callbacks: &'static Callbacks,
) -> Result<Box<dyn CongestionControl>, SpecError> {
    if callbacks.abi != ABI {
        let allowed = format!("{ABI}: copy the current forebay_cc.h and adapt the callbacks");
        return Err(SpecError::new("abi", &callbacks.abi.to_string(), &allowed));
    }
    Ok(Box::new(Foreign {
        callbacks,
        create: required("create", callbacks.create)?,
        destroy: required("destroy", callbacks.destroy)?,
        on_measurement: required("on_measurement", callbacks.on_measurement)?,
        on_event: required("on_event", callbacks.on_event)?,
        limits: required("limits", callbacks.limits)?,
        seed: 0,
        cc: None,
    }))
}

fn required<T>(name: &str, callback: Option<T>) -> Result<T, SpecError> {
    callback.ok_or_else(|| SpecError::new(name, "NULL", "a function: this callback is required"))
}

/// A connection, and the functions that decide for it.
struct Foreign {
    callbacks: &'static Callbacks,
    create: Create,
    destroy: Destroy,
    on_measurement: OnMeasurement,
    on_event: OnEvent,
    limits: SetLimits,
    seed: u64,
    /// What `create` returned; `None` before the connection starts.
    cc: Option<*mut c_void>,
}

// SAFETY: the caller of `build` vouches that the callbacks may be called from any thread, and only they get the
// pointer.
unsafe impl Send for Foreign {}

impl Foreign {
    fn end(&mut self) {
        if let Some(cc) = self.cc.take() {
            // SAFETY: `create` made it, and no call for it follows.
            unsafe { (self.destroy)(cc) }
        }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.end();
    }
}

impl CongestionControl for Foreign {
    fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    fn init(&mut self, now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        self.end();
        let start = Start {
            now_ns: now.as_nanos(),
            mss_bytes: mss.as_u64(),
            initial_cwnd_bytes: initial_cwnd.as_u64(),
            seed: self.seed,
        };
        // SAFETY: `start` lives until the call returns.
        self.cc = Some(unsafe { (self.create)(&raw const start) });
    }

    fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement) {
        let Some(cc) = self.cc else { return };
        let measured = Measured::from(measurement);
        // SAFETY: `create` made `cc`, and `measured` lives until the call returns.
        unsafe { (self.on_measurement)(cc, now.as_nanos(), &raw const measured) }
    }

    fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        let Some(cc) = self.cc else { return };
        let (number, value) = numbered(event);
        // SAFETY: `create` made `cc`.
        unsafe { (self.on_event)(cc, now.as_nanos(), number, value) }
    }

    fn on_timer(&mut self, now: Timestamp) {
        if let (Some(cc), Some(on_timer)) = (self.cc, self.callbacks.on_timer) {
            // SAFETY: `create` made `cc`.
            unsafe { on_timer(cc, now.as_nanos()) }
        }
    }

    fn next_timer(&self) -> Option<Timestamp> {
        let (cc, next_timer_ns) = (self.cc?, self.callbacks.next_timer_ns?);
        // SAFETY: `create` made `cc`.
        let at_ns = unsafe { next_timer_ns(cc) };
        known(at_ns).map(Timestamp::from_nanos)
    }

    fn send_limits(&self) -> SendLimits {
        let Some(cc) = self.cc else { return SendLimits::default() };
        let mut limits =
            Limits { cwnd_bytes: NONE, ssthresh_bytes: NONE, pacing_rate_bits_per_s: NONE };
        // SAFETY: `create` made `cc`, and `limits` lives until the call returns.
        unsafe { (self.limits)(cc, &raw mut limits) }
        SendLimits {
            cwnd: known(limits.cwnd_bytes).map(ByteCount::new),
            ssthresh: known(limits.ssthresh_bytes).map(ByteCount::new),
            pacing_rate: known(limits.pacing_rate_bits_per_s).map(Rate::from_bits_per_sec),
            app_limited: None,
        }
    }

    fn state(&self) -> State {
        let mut phase = ptr::null();
        if let (Some(cc), Some(of)) = (self.cc, self.callbacks.phase) {
            // SAFETY: `create` made `cc`.
            phase = unsafe { of(cc) };
        }
        if phase.is_null() {
            return State { phase: "running", ..State::default() };
        }
        // SAFETY: not NULL, so a string that lives as long as the program.
        let phase: &'static CStr = unsafe { CStr::from_ptr(phase) };
        let phase = phase.to_str().ok().filter(|phase| !phase.is_empty()).unwrap_or("unnamed");
        State { phase, ..State::default() }
    }
}

fn known(number: u64) -> Option<u64> {
    Some(number).filter(|number| *number != NONE)
}

fn bytes(bytes: Option<ByteCount>) -> u64 {
    bytes.map_or(NONE, ByteCount::as_u64)
}

fn nanos(duration: Option<Duration>) -> u64 {
    duration.map_or(NONE, |it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX))
}

fn bits_per_s(rate: Option<Rate>) -> u64 {
    rate.map_or(NONE, Rate::as_bits_per_sec)
}

impl From<&Measurement> for Measured {
    fn from(it: &Measurement) -> Self {
        Self {
            interval_ns: nanos(Some(it.interval)),
            acked_bytes: it.acked.as_u64(),
            lost_bytes: bytes(it.lost),
            ecn_ce_bytes: bytes(it.ecn_ce),
            ect1_bytes: bytes(it.ect1),
            rtt_latest_ns: nanos(it.rtt.map(|rtt| rtt.latest)),
            rtt_min_ns: nanos(it.rtt.map(|rtt| rtt.min)),
            feedback_delay_ns: nanos(it.feedback_delay),
            one_way_ns: nanos(it.one_way),
            send_rate_bits_per_s: bits_per_s(it.send_rate),
            delivery_rate_bits_per_s: bits_per_s(it.delivery_rate),
            train_rate_bits_per_s: bits_per_s(it.train_rate),
            in_flight_bytes: bytes(it.in_flight),
            delivered_bytes: it.delivered.as_u64(),
            prior_delivered_bytes: it.prior_delivered.as_u64(),
            lost_prior_delivered_bytes: bytes(it.lost_prior_delivered),
            backlog_bytes: bytes(it.backlog),
            idle_ppm: it.idle.map_or(NONE, ppm),
            app_limited: it.app_limited.into(),
            cwnd_limited: it.cwnd_limited.map_or(-1, i32::from),
        }
    }
}

fn ppm(share: Ratio) -> u64 {
    (share.as_f64() * 1e6).round() as u64
}

/// The number and the value of `event` in C, as `enum forebay_cc_event` has them.
pub(crate) fn numbered(event: CongestionEvent) -> (u32, i64) {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    match event {
        CongestionEvent::Loss => (1, 0),
        CongestionEvent::RecoveryEnd => (2, 0),
        CongestionEvent::Rto => (3, 0),
        CongestionEvent::Spurious => (4, 0),
        CongestionEvent::EcnCe => (5, 0),
        CongestionEvent::Resume(idle) => (6, signed(nanos(Some(idle)))),
        CongestionEvent::IdleRestart(timeouts) => (7, timeouts.into()),
        CongestionEvent::Underused(used) => (8, signed(used.as_u64())),
        CongestionEvent::RttShift(nanos) => (9, nanos),
        CongestionEvent::SlowStartEnd(cwnd) => (10, signed(cwnd.as_u64())),
        CongestionEvent::FeedbackLost => (11, 0),
        CongestionEvent::Unenforced => (12, 0),
        CongestionEvent::Enforced => (14, 0),
        CongestionEvent::DelayNoise(time) => (15, signed(nanos(Some(time)))),
    }
}
