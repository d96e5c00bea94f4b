//! BBRv3 in Linux: a host that leaves window and pacing to the algorithm (`cong_control`), and reports every
//! acknowledgement, also during a recovery.
//!
//! ```text
//! Begin      init
//! Ack        cong_control
//! Loss       set_state to Recovery, or to CWR without a mark
//! Mark       set_state to CWR after a mark
//! Timeout    set_state to Loss
//! Repaired   set_state from Recovery or Loss to Open or Disorder
//! Undo       undo_cwnd
//! Restart    cwnd_event: sending resumes after an idle timeout
//! ```
//! `crates/ebpf/algorithms` compiles it to BPF, under the rules of [`crate::cc::native`].

use super::Bbr3;
use crate::cc::{CongestionControl, CongestionEvent, Measurement, RttSample};
use crate::random::Stream;
use crate::units::{ByteCount, Duration, Timestamp};

/// [`PacedCall::kind`]: a connection begins with [`PacedCall::cwnd`] segments.
pub const BEGIN: u32 = 0;
/// [`PacedCall::kind`]: an acknowledgement.
pub const ACK: u32 = 1;
/// [`PacedCall::kind`]: an episode of losses begins.
pub const LOSS: u32 = 2;
/// [`PacedCall::kind`]: a mark arrived.
pub const MARK: u32 = 3;
/// [`PacedCall::kind`]: a timeout.
pub const TIMEOUT: u32 = 4;
/// [`PacedCall::kind`]: the losses are repaired.
pub const REPAIRED: u32 = 5;
/// [`PacedCall::kind`]: the last losses were spurious.
pub const UNDO: u32 = 6;
/// [`PacedCall::kind`]: sending resumes after an idle timeout.
pub const RESTART: u32 = 7;

/// A call of Linux, and the answer to it. Numbers alone and no padding, as C has it in
/// `crates/ebpf/bpf/tcp_paced.bpf.c`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacedCall {
    /// On the kernel's clock.
    pub now_us: u64,
    /// Bytes delivered since the connection began.
    pub delivered: u64,
    /// `delivered` as the newest acknowledged packet left.
    pub prior_delivered: u64,
    /// Bytes of the rate sample; 0: there is none.
    pub sampled: u64,
    /// The time in which they were delivered.
    pub interval_us: u64,
    /// At [`BEGIN`]: the seed of the algorithm's random choices.
    pub seed: u64,
    /// [`BEGIN`] to [`RESTART`].
    pub kind: u32,
    /// At [`BEGIN`]: the window in segments.
    pub cwnd: u32,
    /// Bytes of a segment, the same in all calls.
    pub mss: u32,
    /// The newest round trip (us); 0 if unknown.
    pub rtt_us: u32,
    /// Segments newly delivered.
    pub acked: u32,
    /// Segments newly considered lost.
    pub lost: u32,
    /// Segments in flight.
    pub in_flight: u32,
    /// Bit 0: the sample is app-limited; bit 1: the sender's data filled the window.
    pub flags: u32,
    /// The answer: the window in bytes.
    pub window: u64,
    /// The answer: the pacing rate in bits per second.
    pub rate: u64,
}

impl PacedCall {
    /// When it was.
    #[inline]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.now_us.wrapping_mul(1000))
    }

    /// An acknowledgement in the form that algorithms get.
    #[inline]
    pub fn measurement(&self) -> Measurement {
        let bytes = |segments: u32| ByteCount::new(u64::from(segments) * u64::from(self.mss));
        let rtt = Duration::from_micros(self.rtt_us.into());
        let interval = Duration::from_micros(self.interval_us);
        let rate = ByteCount::new(self.sampled).per(interval);
        Measurement {
            acked: bytes(self.acked),
            lost: Some(bytes(self.lost)),
            rtt: (self.rtt_us > 0).then_some(RttSample { latest: rtt, min: rtt }),
            delivery_rate: rate.filter(|_| self.sampled > 0),
            in_flight: Some(bytes(self.in_flight)),
            delivered: ByteCount::new(self.delivered),
            prior_delivered: ByteCount::new(self.prior_delivered),
            app_limited: self.flags & 1 != 0,
            cwnd_limited: Some(self.flags & 2 != 0),
            ..Measurement::default()
        }
    }
}

impl Bbr3 {
    /// A connection that begins as `call` says.
    #[inline]
    pub fn begun(call: &PacedCall) -> Self {
        let mut it = Self::new();
        let mss = u64::from(call.mss);
        it.set_draws(Stream::seeded(call.seed));
        it.init(call.now(), ByteCount::new(mss), ByteCount::new(mss * u64::from(call.cwnd)));
        it
    }

    /// Takes a call other than [`BEGIN`] and [`ACK`].
    #[inline]
    pub fn take_event(&mut self, call: &PacedCall) {
        let event = match call.kind {
            LOSS => CongestionEvent::Loss,
            MARK => CongestionEvent::EcnCe,
            TIMEOUT => CongestionEvent::Rto,
            REPAIRED => CongestionEvent::RecoveryEnd,
            UNDO => CongestionEvent::Spurious,
            RESTART => CongestionEvent::IdleRestart(1),
            _ => return,
        };
        self.on_event(call.now(), event);
    }

    /// Answers `call` with the limits in force.
    #[inline]
    pub fn answer(&self, call: &mut PacedCall) {
        let limits = self.send_limits();
        call.window = limits.cwnd.unwrap_or_default().as_u64();
        call.rate = limits.pacing_rate.unwrap_or_default().as_bits_per_sec();
    }
}
