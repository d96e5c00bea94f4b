//! State of a sender for observers.

use forebay_core::units::{ByteCount, Duration, Rate};

use super::{Handshake, Sender, UNBOUNDED};
use crate::tcp::recovery::Phase;

/// Current state of the sender of an open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpState {
    /// The window in force; `None`: as much as the buffers hold.
    pub cwnd: Option<ByteCount>,
    /// Bytes thought to be in the network.
    pub in_flight: ByteCount,
    /// Slow-start threshold; `None`: none yet, or the algorithm has none.
    pub ssthresh: Option<ByteCount>,
    /// Pacing rate of an algorithm that paces.
    pub pacing_rate: Option<Rate>,
    /// Round-trip times; `None` before the first.
    pub rtt: Option<Rtt>,
    /// Losses are being repaired, without a timeout that resends everything.
    pub is_recovering: bool,
}

/// Round-trip times of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtt {
    /// The smoothed one (RFC 6298).
    pub smoothed: Duration,
    /// The least.
    pub min: Duration,
    /// The last.
    pub latest: Duration,
}

impl Sender {
    /// The state; `None` before the connection is open.
    pub fn state(&self) -> Option<TcpState> {
        let (limits, rtt) = (&self.state.limits, &self.state.rtt);
        let is_open = self.state.handshake == Handshake::Established;
        is_open.then(|| TcpState {
            cwnd: Some(self.cwnd()).filter(|cwnd| *cwnd < UNBOUNDED).map(ByteCount::new),
            in_flight: self.in_flight_bytes(),
            ssthresh: Some(limits.ssthresh).filter(|it| *it < u64::MAX).map(ByteCount::new),
            pacing_rate: limits.paces.then_some(limits.pacing_rate),
            rtt: (rtt.srtt_ns() > 0).then(|| Rtt {
                smoothed: Duration::from_nanos(rtt.srtt_ns()),
                min: Duration::from_nanos(rtt.min_ns()),
                latest: Duration::from_nanos(rtt.latest_ns()),
            }),
            is_recovering: self.state.recovery.phase() == Phase::Recovery,
        })
    }

    /// The segments that are lost and not sent again since.
    pub fn unrepaired(&self) -> impl Iterator<Item = u32> {
        self.board.unrepaired()
    }
}
