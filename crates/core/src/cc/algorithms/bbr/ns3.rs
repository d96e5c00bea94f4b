//! A recovery in ns-3: its TCP also changes the window of an algorithm that has its own.

use super::{Bbr, Recovery};
use crate::units::ByteCount;

/// ssthresh before startup has ended (TcpSocket, InitialSlowStartThreshold).
const NO_SSTHRESH: ByteCount = ByteCount::new(u32::MAX as u64);

impl Bbr {
    /// In ns-3 the first repair has left before the bytes in flight are counted again.
    pub(super) fn enter_as_ns3(&mut self, acked: ByteCount, lost: ByteCount) {
        self.cwnd = self.in_flight + acked.max(self.mss);
        self.cwnd = self.cwnd.saturating_sub(lost).max(self.mss);
        self.recovery = Recovery::Recovering;
        if !self.is_round_start {
            self.recovery = Recovery::Conserving(ByteCount::new(u64::MAX));
            self.cwnd = self.cwnd.max(self.in_flight + self.mss + acked);
        }
    }

    /// The window becomes ssthresh (TcpSocketBase::ProcessAck): B T at the end of startup. Before that
    /// there is no bound.
    pub(super) fn end_as_ns3(&mut self) {
        self.cwnd = self.ssthresh.unwrap_or(NO_SSTHRESH);
    }

    /// Sum of the window and the acknowledged bytes, in 32 bits. Without a bound on the window the sum is
    /// next to nothing, and startup ends with the least window.
    pub(super) fn grown_as_ns3(&self, acked: ByteCount) -> ByteCount {
        ByteCount::new(u64::from((self.cwnd + acked).as_u64() as u32))
    }
}
